/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pages: how many pages of an array lie in memory, as the kernel says: whether somebody has touched it.
 */
#ifndef TESTS_LIB_PAGES_H
#define TESTS_LIB_PAGES_H

#include <stdbool.h>
#include <stddef.h>

/* Pages that hold these bytes, or parts of them, and lie in memory. */
size_t pages_resident(const void *array, size_t bytes);
/* Whether arrays of mem_pages_new() are cleared when they are made, as an address sanitizer's allocator has it. */
bool pages_cleared_at_once(void);

#endif
