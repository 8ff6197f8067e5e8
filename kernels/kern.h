/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kern: which table of operations (kern_table.h) a device's name stands for, in the widest variant this machine runs.
 * One thread calls. It opens no device: the table's open() does.
 */
#ifndef KERNELS_KERN_H
#define KERNELS_KERN_H

#include <stddef.h>

#include "common/err.h"
#include "kernels/kern_table.h"

/* The table called `name`: "cpu"; "cuda", a library that is loaded for it; "auto", which is cuda where that library, a
 * driver and a GPU are there, else cpu, and the log says why. ERR_NOTFOUND: the text lists the names, or says what is
 * missing. */
ERR_MUST_CHECK enum err kern_find(const char *name, const struct kern **out);

/* Every variant of the CPU's that this machine runs, for tests. */
size_t kern_all(const struct kern **tables, size_t tables_max);

#endif
