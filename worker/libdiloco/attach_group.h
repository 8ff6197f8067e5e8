/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attach_group: the ranks of a trainer that hold its tensors in parts (options.group). Rank 0 has the socket, moves the
 * words and decides; it orders every operation on values of the other ranks, which do the same to their own parts, in
 * the same order. Here orders are given and heard, and it is known which parts are done; attach_follow carries them
 * out.
 *
 * Owns the memory that ranks share for values which are not in the daemon's. With one rank all of this is nothing.
 */
#ifndef WORKER_LIBDILOCO_ATTACH_GROUP_H
#define WORKER_LIBDILOCO_ATTACH_GROUP_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/libdiloco/attach_core.h"

enum attach_order_kind {
    ATTACH_ORDER_MAP,        /* a descriptor comes along: the daemon's shared memory; `session` */
    ATTACH_ORDER_SCRATCH,    /* a descriptor comes along: memory for `count` values */
    ATTACH_ORDER_COPY_OUT,   /* `which`: enum attach_area */
    ATTACH_ORDER_COPY_IN,    /* `which`: enum attach_area */
    ATTACH_ORDER_BESIDE_OUT, /* `which`: enum attach_beside; to the scratch memory */
    ATTACH_ORDER_BESIDE_IN,  /* `which`: enum attach_beside; from it */
    ATTACH_ORDER_PAST_ANEW,  /* Eager's past is zero again */
    ATTACH_ORDER_KEPT_IN,    /* `which`: enum diloco_kept; by options.kept_values */
    ATTACH_ORDER_SNAPSHOT,
    ATTACH_ORDER_BRING,  /* the anchor in the area to far ranks */
    ATTACH_ORDER_ANCHOR, /* `sent`, `ending` */
    ATTACH_ORDER_BACK,   /* the work set aside */
    ATTACH_ORDER_SETTLE, /* wait until all is done, then meet */
    ATTACH_ORDER_LOOK,   /* nothing is moved: `now` alone */
    ATTACH_ORDER_WAIT,   /* nothing yet: rank 0 lives */
    ATTACH_ORDER_END     /* of the call: result, step, start, error */
};

/* What changes of a fragment in the shared memory, for those that do not see it. */
struct attach_now {
    uint32_t word, ranges_count;
    double eager_share;
    struct ipc_range ranges[IPC_RANGES_MAX];
};

struct attach_order {
    uint32_t kind; /* enum attach_order_kind */
    uint32_t fragment;
    uint32_t which, sent, ending, attached, keeps;
    int32_t result;
    uint64_t session, count, step, steps;
    struct diloco_start start;
    struct deal deal;
    char error[sizeof((struct diloco *)0)->error];
    struct attach_now now; /* of SNAPSHOT, BRING, ANCHOR and LOOK */
};

/* DILOCO_ERROR: it lacks a function, or is of another size. */
ERR_MUST_CHECK int attach_group_take(struct diloco *d, const struct diloco_group *group);
void attach_group_deinit(struct diloco *d);

/* Whether this rank has all values, once tensors are registered. Of rank 0 the others hear it at the end of each call.
 */
bool attach_group_has_all(const struct diloco *d);

/* Whether somebody else decides. */
bool attach_follows(const struct diloco *d);

/* Rank 0: tells the others; `fd` goes along unless it is negative. */
ERR_MUST_CHECK int attach_order(struct diloco *d, const struct attach_order *order, int fd);
/* The others: waits for the next one; `*fd` is theirs to close, or -1. */
ERR_MUST_CHECK int attach_hear(struct diloco *d, struct attach_order *order, int *fd);
/* Rank 0, again and again in what may take long: tells the others every second that it lives, as whoever waits for one
 * that says nothing takes it for dead. A group that is gone is found by the next order. */
void attach_group_awake(struct diloco *d);
/* All: returns when all have come here. */
ERR_MUST_CHECK int attach_meet(struct diloco *d);

/* Rank 0, before it orders a move of a fragment: nobody has done it. */
void attach_group_begins(struct diloco *d, uint32_t f);
/* The others: this rank has done its part, or cannot. */
void attach_group_did(struct diloco *d, uint32_t f, bool failed);
/* Rank 0: whether all others have; `*done`. DILOCO_ERROR: one cannot. */
ERR_MUST_CHECK int attach_group_done(struct diloco *d, uint32_t f, bool *done);

/* Memory for `count` values that all ranks see; rank 0 calls and orders it of the others, who map what came along. A
 * far rank gets memory of its own. */
ERR_MUST_CHECK int attach_group_scratch(struct diloco *d, uint64_t count);
ERR_MUST_CHECK int attach_group_map_scratch(struct diloco *d, int fd, uint64_t count);

#endif
