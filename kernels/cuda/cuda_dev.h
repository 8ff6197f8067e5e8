/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_dev: a GPU as the files of the host's side share it: what it is, its memory and copies, its first fault. It
 * knows no operation, and nobody above it: cuda_queue has the queues, cuda_blas the products, cuda_open finds it, and
 * cuda_table puts it together. Private to this folder; types of CUDA are kept out of the header (`void *` is a stream
 * or an event), so that it compiles without the toolkit.
 *
 * One thread calls, whichever: every entry makes the GPU the thread's current one. Nothing here ends the process.
 */
#ifndef KERNELS_CUDA_CUDA_DEV_H
#define KERNELS_CUDA_CUDA_DEV_H

#include "kernels/kern_table.h"

enum { CUDA_FAULT_BYTES = 384, CUDA_SHARED_KERNELS = 64, CUDA_DEFAULT_SHARED = 48 * 1024 };

struct cuda_mark {
    uint64_t number;
    void *event;
};

/* Marks of one queue that nobody has seen reached yet, the oldest first: a ring that grows. */
struct cuda_marks {
    struct cuda_mark *ring; /* every place has an event of its own; ours */
    size_t room, first, count;
    uint64_t done; /* number of the newest that is reached */
};

struct cuda_blas;
struct cuda_choices;
struct cuda_attention;

struct kern_dev {
    int device, processors, capability; /* number; streaming multiprocessors; 10 * major + minor */
    void *stream[KERN_QUEUES];
    struct cuda_marks marks[KERN_QUEUES];
    void *order_event[KERN_QUEUES]; /* of the earlier queue */
    uint64_t last;                  /* mark's count */
    char *scratch;
    size_t scratch_bytes;
    struct {
        const void *kernel;
        size_t bytes;
    } shared[CUDA_SHARED_KERNELS]; /* kernels that may have more than CUDA_DEFAULT_SHARED */
    size_t shared_count;
    const char *operation; /* the newest launched; what fails later is this one or one before */
    char fault[CUDA_FAULT_BYTES];
    struct cuda_blas *blas;           /* cuda_blas.c owns it */
    struct cuda_choices *choices;     /* likewise */
    struct cuda_attention *attention; /* cuda_attention.c owns it */
};

/* Makes it the calling thread's current GPU. */
void cuda_use(const struct kern_dev *dev);
/* Keeps what a call of CUDA has returned as the fault, if it is one and the first; whether it is one. */
bool cuda_failed(struct kern_dev *dev, int code, const char *what);
/* The same of a failure that is told in words. */
void cuda_fault_set(struct kern_dev *dev, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The fault kept so far, as an error; asks CUDA nothing. */
enum err cuda_kept_fault(const struct kern_dev *dev);

/* At least `bytes` for cuda_scratch(). */
enum err cuda_scratch_grow(struct kern_dev *dev, size_t bytes);

/* The table's own, as kern_table.h says. */
enum err cuda_memory(struct kern_dev *dev, size_t *free_bytes, size_t *total);
enum err cuda_pin(struct kern_dev *dev, void *host, size_t bytes);
void cuda_unpin(struct kern_dev *dev, void *host);
void cuda_zero(struct kern_dev *dev, void *pointer, size_t bytes);
void cuda_copy_rows(struct kern_dev *dev, enum kern_queue queue, void *to, size_t to_stride, const void *from,
                    size_t from_stride, size_t bytes, size_t rows);

#endif
