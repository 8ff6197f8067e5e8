/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/cuda_dev.h"

#include <cuda_runtime_api.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "kernels/cuda/cuda.h"

enum { SCRATCH_ALIGN = 256 };

/* ---- faults ---- */

void cuda_use(const struct kern_dev *dev)
{
    cudaSetDevice(dev->device);
}

void cuda_fault_set(struct kern_dev *dev, const char *format, ...)
{
    va_list args;
    if (dev->fault[0] != '\0')
        return;
    va_start(args, format);
    vsnprintf(dev->fault, sizeof dev->fault, format, args);
    va_end(args);
}

bool cuda_failed(struct kern_dev *dev, int code, const char *what)
{
    if (code == cudaSuccess)
        return false;
    cudaGetLastError(); /* else the next launch would find this one */
    cuda_fault_set(dev, "%s: %s (%s); the newest operation queued is %s", what, cudaGetErrorString((cudaError_t)code),
                   cudaGetErrorName((cudaError_t)code), dev->operation != NULL ? dev->operation : "none");
    return true;
}

enum err cuda_kept_fault(const struct kern_dev *dev)
{
    if (dev->fault[0] == '\0')
        return ERR_OK;
    return err_set(ERR_STATE, "GPU %d: %s", dev->device, dev->fault);
}

/* ---- what launchers ask ---- */

void *cuda_main_stream(struct kern_dev *dev)
{
    cuda_use(dev);
    return dev->stream[KERN_MAIN];
}

void cuda_allow_shared(struct kern_dev *dev, const void *kernel, size_t bytes)
{
    size_t i = 0;
    if (bytes <= CUDA_DEFAULT_SHARED)
        return;
    while (i < dev->shared_count && dev->shared[i].kernel != kernel)
        i++;
    if (i < dev->shared_count && dev->shared[i].bytes >= bytes)
        return;
    cuda_use(dev);
    cudaError_t code = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    if (cuda_failed(dev, code, "shared memory for a kernel"))
        return;
    if (i == CUDA_SHARED_KERNELS)
        return; /* not remembered: it is said again each time */
    dev->shared[i].kernel = kernel;
    dev->shared[i].bytes = bytes;
    if (i == dev->shared_count)
        dev->shared_count++;
}

void cuda_launched(struct kern_dev *dev, const char *operation)
{
    dev->operation = operation;
    cuda_failed(dev, cudaGetLastError(), operation);
}

int cuda_processors(const struct kern_dev *dev)
{
    return dev->processors;
}

/* ---- memory ---- */

enum err cuda_memory(struct kern_dev *dev, size_t *free_bytes, size_t *total)
{
    cuda_use(dev);
    return cuda_failed(dev, cudaMemGetInfo(free_bytes, total), "how much memory is free") ? cuda_kept_fault(dev)
                                                                                          : ERR_OK;
}

enum err cuda_alloc(struct kern_dev *dev, size_t bytes, const char *what, void **out)
{
    void *at = NULL;
    cuda_use(dev);
    *out = NULL;
    cudaError_t code = cudaMalloc(&at, bytes > 0 ? bytes : 1);
    if (code == cudaErrorMemoryAllocation) {
        size_t free_bytes = 0, total = 0;
        cudaGetLastError(); /* no fault: the caller is told, and the device goes on */
        cudaMemGetInfo(&free_bytes, &total);
        return err_set(ERR_NOMEM, "GPU %d has no room for %s: %zu MiB are wanted, %zu of %zu MiB are free", dev->device,
                       what, (bytes >> 20) + 1, free_bytes >> 20, total >> 20);
    }
    if (cuda_failed(dev, code, what))
        return cuda_kept_fault(dev);
    /* In the queue of nobody, and waited for: whichever of ours comes first finds zeros. */
    code = cudaMemsetAsync(at, 0, bytes, NULL);
    if (code == cudaSuccess)
        code = cudaStreamSynchronize(NULL);
    if (cuda_failed(dev, code, what)) {
        cudaFree(at);
        return cuda_kept_fault(dev);
    }
    *out = at;
    return ERR_OK;
}

void cuda_free(struct kern_dev *dev, void *pointer)
{
    if (pointer == NULL)
        return;
    cuda_use(dev);
    /* cudaFree() waits as well, but does not promise to. */
    cuda_failed(dev, cudaDeviceSynchronize(), "before memory is freed");
    cuda_failed(dev, cudaFree(pointer), "memory is freed");
}

enum err cuda_pin(struct kern_dev *dev, void *host, size_t bytes)
{
    cuda_use(dev);
    cudaError_t code = cudaHostRegister(host, bytes, cudaHostRegisterPortable);
    if (code == cudaSuccess)
        return ERR_OK;
    cudaGetLastError(); /* no fault: copies work all the same */
    return err_set(ERR_STATE, "GPU %d: %zu bytes of memory cannot be pinned: %s", dev->device, bytes,
                   cudaGetErrorString(code));
}

void cuda_unpin(struct kern_dev *dev, void *host)
{
    if (host == NULL)
        return;
    cuda_use(dev);
    cuda_failed(dev, cudaHostUnregister(host), "memory is unpinned");
}

enum err cuda_scratch_grow(struct kern_dev *dev, size_t bytes)
{
    void *more;
    bytes = (bytes + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN;
    if (bytes <= dev->scratch_bytes)
        return ERR_OK;
    TRY(cuda_alloc(dev, bytes, "scratch memory of the kernels", &more));
    cuda_free(dev, dev->scratch);
    dev->scratch = more;
    dev->scratch_bytes = bytes;
    return ERR_OK;
}

void *cuda_scratch(struct kern_dev *dev, size_t bytes)
{
    if (bytes > dev->scratch_bytes) {
        cuda_fault_set(dev, "an operation takes %zu bytes of scratch memory, but reserve() made room for %zu", bytes,
                       dev->scratch_bytes);
        /* The results are void, but no kernel is to write over other memory meanwhile. */
        if (cuda_scratch_grow(dev, bytes) != ERR_OK)
            return NULL;
    }
    return dev->scratch;
}

/* ---- copies ---- */

/* Memory of the host that the driver does not know: it goes through the driver's own pages, whenever that suits it. */
static bool is_pageable(const void *at)
{
    struct cudaPointerAttributes found;
    if (cudaPointerGetAttributes(&found, at) != cudaSuccess) {
        cudaGetLastError();
        return true;
    }
    return found.type == cudaMemoryTypeUnregistered;
}

static void end_copy(struct kern_dev *dev, cudaError_t code, enum kern_queue queue, const void *to, const void *from)
{
    if (code == cudaSuccess && (is_pageable(to) || is_pageable(from)))
        code = cudaStreamSynchronize(dev->stream[queue]);
    cuda_failed(dev, code, "a copy");
}

void cuda_copy(struct kern_dev *dev, enum kern_queue queue, void *to, const void *from, size_t bytes)
{
    if (bytes == 0)
        return;
    cuda_use(dev);
    end_copy(dev, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, dev->stream[queue]), queue, to, from);
}

void cuda_copy_rows(struct kern_dev *dev, enum kern_queue queue, void *to, size_t to_stride, const void *from,
                    size_t from_stride, size_t bytes, size_t rows)
{
    if (bytes == 0 || rows == 0)
        return;
    cuda_use(dev);
    /* Rows that follow closely are one piece: no limit on how far apart they are, and the faster of the two. */
    cudaError_t code =
        to_stride == bytes && from_stride == bytes
            ? cudaMemcpyAsync(to, from, bytes * rows, cudaMemcpyDefault, dev->stream[queue])
            : cudaMemcpy2DAsync(to, to_stride, from, from_stride, bytes, rows, cudaMemcpyDefault, dev->stream[queue]);
    end_copy(dev, code, queue, to, from);
}

void cuda_zero(struct kern_dev *dev, void *pointer, size_t bytes)
{
    if (bytes == 0)
        return;
    cuda_use(dev);
    cuda_failed(dev, cudaMemsetAsync(pointer, 0, bytes, dev->stream[KERN_MAIN]), "zero");
}
