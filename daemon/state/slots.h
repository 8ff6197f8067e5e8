/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slots: memory for encoded objects while they are made, sent, received and looked at: per fragment our contributions
 * and the results on their way into the ledger, by part; the contributions to our own part, by member; our own result,
 * and a state on its way in.
 *
 * A slot is allocated when first used and then kept; it grows when parts become larger. `busy` says that a job is at
 * it; whoever submits the job sets and clears it. Slots never move. Only the loop's thread calls; jobs write the bytes
 * of slots that are busy for them.
 */
#ifndef DAEMON_STATE_SLOTS_H
#define DAEMON_STATE_SLOTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "daemon/state/replica.h"

struct slot {
    uint8_t *data; /* NULL before slots_room() */
    size_t bytes_max, bytes;
    uint64_t version; /* of the object in it; 0: none */
    uint64_t epoch;   /* in which it was made */
    bool busy;        /* a job is at it */
};

struct slots_conf {
    const struct replica *replica; /* for sizes; borrowed */
    uint32_t fragments_count;
    uint32_t members_count; /* at first */
};

struct slots;

/* Slots without memory yet. ERR_NOMEM. */
ERR_MUST_CHECK enum err slots_new(const struct slots_conf *conf, struct slots **out);
void slots_free(struct slots *slots);

/* Slots for members 0 to `count` - 1 (BITSET_MAX at most). ERR_NOMEM: there are as many as before. */
ERR_MUST_CHECK enum err slots_members(struct slots *slots, uint32_t count);

/* Our contribution to part `p` of fragment `f` (daemon/state/parts.h). */
struct slot *slots_out(const struct slots *slots, uint32_t f, uint32_t p);
/* A member's contribution to our own part. */
struct slot *slots_in(const struct slots *slots, uint32_t f, uint32_t member);
/* A part's result as it came in. */
struct slot *slots_result(const struct slots *slots, uint32_t f, uint32_t p);
/* The result of our own part. */
struct slot *slots_own(const struct slots *slots, uint32_t f);

/* Makes sure a slot has room for one object over the values of these shards. Growing loses its contents; the caller
 * sees to it that no transfer is at the memory any more. ERR_NOMEM: it is as before. */
ERR_MUST_CHECK enum err slots_room(struct slots *slots, struct slot *slot, uint32_t f, uint64_t shards);
/* Bytes of the tables, without what slots_room() takes. */
uint64_t slots_bytes(uint32_t fragments_count, uint32_t members_count);

/* States that come in at a time. */
enum { SLOTS_SPARES = 2 };
/* Memory for a peer's state of fragment `f`, `bytes` long; what an earlier attempt left is taken over. ERR_NOMEM. */
ERR_MUST_CHECK enum err slots_take_state(struct slots *slots, uint32_t f, uint64_t bytes, uint8_t **out);
uint8_t *slots_state(const struct slots *slots, uint32_t f);
/* Large memory is kept for the next state, until slots_drop_spares(): no more states are to come. */
void slots_free_state(struct slots *slots, uint32_t f);
void slots_drop_spares(struct slots *slots);

#endif
