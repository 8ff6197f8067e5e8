/* SPDX-License-Identifier: Apache-2.0 */
/*
 * outofmem: every out-of-memory path of a function, one after the other.
 */
#ifndef TESTS_LIB_OUTOFMEM_H
#define TESTS_LIB_OUTOFMEM_H

#include <stddef.h>

#include "common/err.h"

/* Makes something, and takes it down again if that worked. */
typedef enum err outofmem_attempt(void *user);

/* Lets the first allocation of an attempt fail, then the second, and so on until one attempt needs no more: all before
 * that must say ERR_NOMEM. Returns how many failed. What leaks on the way is the sanitizers' to find. */
size_t outofmem_walk(outofmem_attempt *attempt, void *user);

/* Bytes this process has allocated at present; 0: the allocator rounds up too much to say (thread sanitizer). */
size_t outofmem_allocated(void);

#endif
