/* SPDX-License-Identifier: Apache-2.0 */
/*
 * late: a device for libdiloco that plays a GPU: what it is told to do to tensors is done in order, but what goes to
 * the host arrives only when it is asked for, and host memory that it was told to read must not change until then.
 * Tensors are ordinary memory; what is beside them is, too, and must be freed. No cmocka; one thread.
 */
#ifndef TESTS_LIB_LATE_H
#define TESTS_LIB_LATE_H

#include <stdbool.h>

#include "worker/libdiloco/diloco.h"

struct late {
    struct late_move *first, **end;
    uint64_t moves;    /* so far */
    int refuse;        /* so many times reached() says no before it looks */
    bool fails;        /* reached() says that a move has failed */
    bool broken;       /* host memory was changed while it was lent */
    long memory, pins; /* arrays not freed, regions not unpinned */
};

/* A device on it; `computes` false: it can only read and write. Everything is its own until late_end(). */
struct diloco_device late_device(struct late *late, bool computes);
/* Whether a move of this kind has not arrived. */
bool late_is_under_way(const struct late *late, enum diloco_move_kind kind);
/* Drops what was not asked for. */
void late_end(struct late *late);

#endif
