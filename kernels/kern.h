/*
 * kern: which table of operations (kern_table.h) a device's name stands for, in the widest variant this machine runs.
 * Pure; any thread. It opens no device: the table's open() does.
 */
#ifndef KERNELS_KERN_H
#define KERNELS_KERN_H

#include <stddef.h>

#include "common/err.h"
#include "kernels/kern_table.h"

/* The table called `name` ("cpu"), in the widest variant this machine runs. ERR_NOTFOUND lists the names. */
ERR_MUST_CHECK enum err kern_find(const char *name, const struct kern **out);

/* Every variant this machine runs, for tests. */
size_t kern_all(const struct kern **tables, size_t tables_max);

#endif
