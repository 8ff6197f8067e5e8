/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem: allocation with overflow checks, cache-line alignment for arrays, and a switch that makes the n-th allocation
 * fail, so that tests can walk every out-of-memory path.
 *
 * Any thread may call. Hot paths do not: they use memory allocated at start or when the plan became known.
 */
#ifndef COMMON_MEM_H
#define COMMON_MEM_H

#include <stddef.h>

#include "common/err.h"

enum { MEM_ALIGN = 64 };

/* Zeroed memory for `count` elements of `size` bytes, aligned to MEM_ALIGN; `*out` is NULL on failure. `what` names
 * the thing in the error text. count == 0 gives a valid pointer. Free with mem_free(). */
ERR_MUST_CHECK enum err mem_new(size_t count, size_t size, const char *what, void *out);

/* The same, but its contents are undefined, and the system takes memory for it as it is first written to: for large
 * arrays that are mostly not filled. */
ERR_MUST_CHECK enum err mem_new_unset(size_t count, size_t size, const char *what, void *out);

/* Zeroed memory for arrays as large as a model, aligned to MEM_ALIGN: the kernel clears each page when it is first
 * touched, so that this call takes microseconds at any size, and whoever fills the array has the work. Errors as of
 * mem_new(). Free with mem_pages_free(), which is told the same count and size. */
ERR_MUST_CHECK enum err mem_pages_new(size_t count, size_t size, const char *what, void *out);
/* NULL is fine. */
void mem_pages_free(void *pointer, size_t count, size_t size);
/* Zeros in a part of such an array, which takes about a millisecond at any size. */
void mem_pages_clear(void *first, size_t bytes);
/* What such arrays hold of the address space now, all together, in bytes; small ones, that mem_new() made, not among
 * it. */
size_t mem_pages_bytes(void);

/* Grows or shrinks an array from mem_new(), keeping the first elements; new elements are zero. On failure the old
 * array stands. */
ERR_MUST_CHECK enum err mem_grow(void *array, size_t count_old, size_t count_new, size_t size, const char *what);

ERR_MUST_CHECK enum err mem_strdup(const char *text, char **out);

/* printf into new memory; caller frees with mem_free(). */
ERR_MUST_CHECK enum err mem_printf(char **out, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Bytes of the machine's memory that programs can still have: the kernel's estimate, which counts the files it caches,
 * as it gives those up. */
size_t mem_available(void);

/* NULL is fine. */
void mem_free(void *pointer);

/* Tests only: lets `n` allocations pass, fails the one after, then passes again. Negative turns it off. */
void mem_fail_after(long n);

#endif
