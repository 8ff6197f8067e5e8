/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kern_services: what the program and a library with a table of operations, opened with dlopen, agree on. The library
 * has copies of its own of what it uses of common/; what belongs to the program, its record of errors, is handed in.
 */
#ifndef KERNELS_KERN_SERVICES_H
#define KERNELS_KERN_SERVICES_H

#include <stddef.h>

#include "kernels/kern_table.h"

/* Of another number, a library is not used. A row more or less in the table changes it by itself; where the meaning of
 * one changes, or of what it takes, the first factor is to be raised by hand. */
#define KERN_SERVICES_VERSION ((unsigned)(3 * 10000 + sizeof(struct kern) / sizeof(void *)))

struct kern_services {
    size_t size; /* of this struct */
    /* Keeps `text` as this thread's last failure, and returns `code`. */
    enum err (*fail)(enum err code, const char *text);
};

/* What the library exports as KERN_CUDA_ENTRY: its table, valid while the library stays loaded, or NULL if it is not of
 * this version. `services` is copied. May be called again. */
#define KERN_CUDA_ENTRY "diloco_cuda_table"
typedef const struct kern *kern_library_entry(const struct kern_services *services, unsigned version);

#endif
