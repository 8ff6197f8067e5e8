/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU's table: device and memory calls, and the list of operations. */
#include <stdio.h>
#include <unistd.h>

#include "common/mem.h"
#include "kernels/cpu/cpu.h"

static enum err dev_open(const struct kern_place *place, struct kern_dev **out)
{
    struct kern_dev *dev;
    TRY(mem_new(1, sizeof *dev, "the CPU device", &dev));
    dev->threads = 1;
#if defined(_OPENMP)
    dev->threads = place->threads > 0 ? place->threads : omp_get_num_procs();
    omp_set_num_threads(dev->threads);
#endif
    enum err err = place->bf16 && CPU(bf16_there)() ? CPU(bf16_open)(&dev->bf16) : ERR_OK;
    if (err != ERR_OK)
        mem_free(dev);
    else
        *out = dev;
    return err;
}

static void dev_close(struct kern_dev *dev)
{
    CPU(bf16_close)(dev->bf16);
    mem_free(dev);
}

static bool dev_bf16(const struct kern_dev *dev)
{
    return dev->bf16 != NULL;
}

#define TEXT_OF_(name) #name
#define TEXT_OF(name) TEXT_OF_(name)

static void dev_describe(struct kern_dev *dev, char *text, size_t bytes)
{
    snprintf(text, bytes, "CPU (" TEXT_OF(ISA) "), %d of %ld processors%s", dev->threads, sysconf(_SC_NPROCESSORS_ONLN),
             dev->bf16 != NULL ? ", products in bf16" : "");
}

/* Nobody can tell: processors change their clocks with what they do. */
static double dev_peak_flops(struct kern_dev *dev)
{
    (void)dev;
    return 0;
}

static void attention_by(struct kern_dev *dev, const struct kern_attention *dims, bool backward, char *text,
                         size_t bytes)
{
    (void)dev;
    (void)dims;
    (void)backward;
    snprintf(text, bytes, "ours");
}

static enum err dev_memory(struct kern_dev *dev, size_t *free_bytes, size_t *total)
{
    (void)dev;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    *free_bytes = mem_available();
    *total = (size_t)sysconf(_SC_PHYS_PAGES) * page;
    return ERR_OK;
}

static bool dev_has_head_size(int64_t D)
{
    return D >= 2 && D % 2 == 0;
}

static enum err dev_reserve(struct kern_dev *dev, int64_t R, int64_t C, int64_t L)
{
    return dev->bf16 != NULL ? CPU(bf16_reserve)(dev->bf16, R, C, L) : ERR_OK;
}

static size_t dev_reserve_bytes(const struct kern_dev *dev, int64_t R, int64_t C, int64_t L)
{
    return dev->bf16 != NULL ? CPU(bf16_reserve_bytes)(R, C, L) : 0;
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

static enum err dev_pin(struct kern_dev *dev, void *host, size_t bytes)
{
    (void)dev;
    (void)host;
    (void)bytes;
    return ERR_OK;
}

static void dev_unpin(struct kern_dev *dev, void *host)
{
    (void)dev;
    (void)host;
}

static void dev_order(struct kern_dev *dev, enum kern_queue later, enum kern_queue earlier)
{
    (void)dev;
    (void)later;
    (void)earlier;
}

static uint64_t dev_mark(struct kern_dev *dev, enum kern_queue queue)
{
    (void)queue;
    return ++dev->marks;
}

static bool dev_reached(struct kern_dev *dev, uint64_t mark)
{
    (void)dev;
    (void)mark;
    return true;
}

static enum err dev_fault(struct kern_dev *dev)
{
    return dev->fault == ERR_OK ? ERR_OK : err_set(dev->fault, "%s", dev->fault_text);
}

static enum err dev_wait(struct kern_dev *dev, uint64_t mark)
{
    (void)mark;
    return dev_fault(dev);
}

static void *dev_stream(struct kern_dev *dev, enum kern_queue queue)
{
    (void)dev;
    (void)queue;
    return NULL;
}

static void dev_zero(struct kern_dev *dev, void *pointer, size_t bytes)
{
    memset(pointer, 0, bytes);
    CPU(wrote)(dev, pointer, bytes);
}

static void dev_copy(struct kern_dev *dev, enum kern_queue queue, void *to, const void *from, size_t bytes)
{
    (void)queue;
    memmove(to, from, bytes);
    CPU(wrote)(dev, to, bytes);
}

static void dev_copy_rows(struct kern_dev *dev, enum kern_queue queue, void *to, size_t to_stride, const void *from,
                          size_t from_stride, size_t bytes, size_t rows)
{
    for (size_t r = 0; r < rows; r++)
        dev_copy(dev, queue, (char *)to + r * to_stride, (const char *)from + r * from_stride, bytes);
}

static void dev_to_act(struct kern_dev *dev, kern_act *to, const float *from, int64_t count)
{
    cpu_follow(dev, to, from, count);
}

static void dev_from_act(struct kern_dev *dev, float *to, const kern_act *from, int64_t count)
{
    dev_to_act(dev, to, from, count);
}

const struct kern CPU_JOIN(kern_cpu, ISA) = {
    .name = "cpu",
    .act_bytes = sizeof(float),
    .on_host = true,
    .ahead = 0,
    .open = dev_open,
    .close = dev_close,
    .describe = dev_describe,
    .peak_flops = dev_peak_flops,
    .bf16 = dev_bf16,
    .memory = dev_memory,
    .has_head_size = dev_has_head_size,
    .reserve = dev_reserve,
    .reserve_bytes = dev_reserve_bytes,
    .alloc = dev_alloc,
    .free = dev_free,
    .pin = dev_pin,
    .unpin = dev_unpin,
    .order = dev_order,
    .mark = dev_mark,
    .reached = dev_reached,
    .wait = dev_wait,
    .sync = dev_fault,
    .fault = dev_fault,
    .stream = dev_stream,
    .zero = dev_zero,
    .copy = dev_copy,
    .copy_rows = dev_copy_rows,
    .to_act = dev_to_act,
    .from_act = dev_from_act,
    .weights_bytes = CPU(weights_bytes),
    .weights_new = CPU(weights_new),
    .weights_free = CPU(weights_free),
    .linear_fwd = CPU(linear_fwd),
    .linear_bwd_inp = CPU(linear_bwd_inp),
    .linear_bwd_w = CPU(linear_bwd_w),
    .embed_fwd = CPU(embed_fwd),
    .embed_bwd = CPU(embed_bwd),
    .rmsnorm_fwd = CPU(rmsnorm_fwd),
    .rmsnorm_bwd = CPU(rmsnorm_bwd),
    .rope = CPU(rope),
    .attention_scratch = CPU(attention_scratch),
    .attention_by = attention_by,
    .attention_fwd = CPU(attention_fwd),
    .attention_bwd = CPU(attention_bwd),
    .attention_decode = CPU(attention_decode),
    .swiglu_fwd = CPU(swiglu_fwd),
    .swiglu_bwd = CPU(swiglu_bwd),
    .logits_shape = CPU(logits_shape),
    .cross_entropy = CPU(cross_entropy),
    .loss_part = CPU(loss_part),
    .loss_join = CPU(loss_join),
    .loss_back = CPU(loss_back),
    .add_losses = CPU(add_losses),
    .sum_squares = CPU(sum_squares),
    .judge = CPU(judge),
    .spans_new = CPU(spans_new),
    .spans_free = CPU(spans_free),
    .adamw = CPU(adamw),
    .sgd = CPU(sgd),
    .muon_scratch = CPU(muon_scratch),
    .muon_aim = CPU(muon_aim),
    .orthogonalise = CPU(orthogonalise),
    .muon_apply = CPU(muon_apply),
    .mix = CPU(mix),
    .shift = CPU(shift),
    .aside_out = CPU(aside_out),
    .aside_in = CPU(aside_in),
    .aside_off = CPU(aside_off),
    .find_bad = CPU(find_bad),
};
