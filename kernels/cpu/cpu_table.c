/* The CPU's table: device and memory calls, and the list of operations. */
#include <unistd.h>

#include "common/mem.h"
#include "kernels/cpu/cpu.h"

static enum err dev_open(int threads, struct kern_dev **out)
{
    struct kern_dev *dev;
    TRY(mem_new(1, sizeof *dev, "the CPU device", &dev));
    dev->threads = 1;
#if defined(_OPENMP)
    dev->threads = threads > 0 ? threads : omp_get_num_procs();
    omp_set_num_threads(dev->threads);
#else
    (void)threads;
#endif
    *out = dev;
    return ERR_OK;
}

static void dev_close(struct kern_dev *dev)
{
    mem_free(dev);
}

static enum err dev_alloc(struct kern_dev *dev, size_t bytes, const char *what, void **out)
{
    (void)dev;
    return mem_new(bytes, 1, what, out);
}

static void dev_free(struct kern_dev *dev, void *pointer)
{
    (void)dev;
    mem_free(pointer);
}

static void dev_zero(struct kern_dev *dev, void *pointer, size_t bytes)
{
    (void)dev;
    memset(pointer, 0, bytes);
}

static void dev_copy(struct kern_dev *dev, void *to, const void *from, size_t bytes)
{
    (void)dev;
    memmove(to, from, bytes);
}

static void dev_to_act(struct kern_dev *dev, kern_act *to, const float *from, int64_t count)
{
    if (to != from)
        dev_copy(dev, to, from, (size_t)count * sizeof *from);
}

static void dev_download_act(struct kern_dev *dev, float *to, const kern_act *from, int64_t count)
{
    dev_copy(dev, to, from, (size_t)count * sizeof *to);
}

static enum err dev_sync(struct kern_dev *dev)
{
    (void)dev;
    return ERR_OK;
}

const struct kern CPU_JOIN(kern_cpu, ISA) = {
    .name = "cpu",
    .act_bytes = sizeof(float),
    .open = dev_open,
    .close = dev_close,
    .alloc = dev_alloc,
    .free = dev_free,
    .zero = dev_zero,
    .upload = dev_copy,
    .download = dev_copy,
    .to_act = dev_to_act,
    .download_act = dev_download_act,
    .sync = dev_sync,
    .linear_fwd = CPU(linear_fwd),
    .linear_bwd_inp = CPU(linear_bwd_inp),
    .linear_bwd_w = CPU(linear_bwd_w),
    .embed_fwd = CPU(embed_fwd),
    .embed_bwd = CPU(embed_bwd),
    .rmsnorm_fwd = CPU(rmsnorm_fwd),
    .rmsnorm_bwd = CPU(rmsnorm_bwd),
    .rope = CPU(rope),
    .attention_scratch = CPU(attention_scratch),
    .attention_fwd = CPU(attention_fwd),
    .attention_bwd = CPU(attention_bwd),
    .attention_decode = CPU(attention_decode),
    .swiglu_fwd = CPU(swiglu_fwd),
    .swiglu_bwd = CPU(swiglu_bwd),
    .cross_entropy = CPU(cross_entropy),
    .sum_squares = CPU(sum_squares),
    .clip_scale = CPU(clip_scale),
    .adamw = CPU(adamw),
    .muon_scratch = CPU(muon_scratch),
    .muon = CPU(muon),
    .sgd = CPU(sgd),
};
