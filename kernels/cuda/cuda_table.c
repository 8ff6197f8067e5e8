/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA table: puts the host's side and the operations together, and hands it out; see kern_services.h. */
#include "common/mem.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/cuda_attention.h"
#include "kernels/cuda/cuda_blas.h"
#include "kernels/cuda/cuda_dev.h"
#include "kernels/cuda/cuda_err.h"
#include "kernels/cuda/cuda_open.h"
#include "kernels/cuda/cuda_queue.h"
#include "kernels/kern_services.h"

static void table_close(struct kern_dev *dev)
{
    if (dev == NULL)
        return;
    cuda_free(dev, dev->scratch); /* waits, so that nothing is in use below */
    cuda_attention_close(dev);
    cuda_blas_close(dev);
    cuda_queues_close(dev);
    mem_free(dev);
}

static enum err table_open(const struct kern_place *place, struct kern_dev **out)
{
    struct kern_dev *dev;
    *out = NULL;
    TRY(mem_new(1, sizeof *dev, "a GPU", &dev));
    enum err err = cuda_open_device(dev, place);
    if (err != ERR_OK) {
        mem_free(dev);
        return err;
    }
    err = cuda_queues_open(dev);
    if (err == ERR_OK)
        err = cuda_blas_open(dev, place->choices);
    if (err == ERR_OK)
        err = cuda_attention_open(dev);
    if (err != ERR_OK) {
        table_close(dev);
        return err;
    }
    *out = dev;
    return ERR_OK;
}

static enum err table_reserve(struct kern_dev *dev, int64_t R, int64_t C, int64_t L)
{
    return cuda_scratch_grow(dev, cuda_reserve_bytes(dev, R, C, L));
}

static const struct kern table = {
    .name = "cuda",
    .act_bytes = 2,
    .ahead = 1,
    .open = table_open,
    .close = table_close,
    .describe = cuda_describe,
    .peak_flops = cuda_peak_flops,
    .memory = cuda_memory,
    .reserve = table_reserve,
    .reserve_bytes = cuda_reserve_bytes,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .pin = cuda_pin,
    .unpin = cuda_unpin,
    .order = cuda_order,
    .mark = cuda_mark,
    .reached = cuda_reached,
    .wait = cuda_wait,
    .sync = cuda_sync,
    .fault = cuda_fault,
    .stream = cuda_stream,
    .zero = cuda_zero,
    .copy = cuda_copy,
    .copy_rows = cuda_copy_rows,
    .attention_scratch = cuda_chosen_scratch,
    .attention_by = cuda_chosen_by,
    .attention_fwd = cuda_chosen_fwd,
    .attention_bwd = cuda_chosen_bwd,
    CUDA_OPERATIONS,
};

extern kern_library_entry diloco_cuda_table;

__attribute__((visibility("default"))) const struct kern *diloco_cuda_table(const struct kern_services *services,
                                                                            unsigned version)
{
    if (version != KERN_SERVICES_VERSION || services->size != sizeof *services)
        return NULL;
    cuda_err_init(services);
    return &table;
}
