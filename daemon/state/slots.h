/*
 * slots: memory for encoded objects while they are made, sent, received and looked at: per fragment our contributions,
 * the contributions to our shard, results on their way into the ledger, our own result, and a state on its way in.
 *
 * A slot is allocated when first used and then kept: its size is the largest object that can be in it. `busy` says
 * that a job is at it; whoever submits the job sets and clears it. Only the loop's thread calls; jobs write the bytes
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
    bool busy;        /* a job is at it */
};

struct slots_conf {
    const struct replica *replica; /* for sizes; borrowed */
    uint32_t fragments_count, members_count;
};

struct slots;

/* Slots without memory yet. ERR_NOMEM. */
ERR_MUST_CHECK enum err slots_new(const struct slots_conf *conf, struct slots **out);
void slots_free(struct slots *slots);

/* Our contribution to a shard of fragment `f`. */
struct slot *slots_out(const struct slots *slots, uint32_t f, uint32_t shard);
/* A member's contribution to our shard. */
struct slot *slots_in(const struct slots *slots, uint32_t f, uint32_t member);
/* A shard's result as it came in. */
struct slot *slots_result(const struct slots *slots, uint32_t f, uint32_t shard);
/* The result of our shard. */
struct slot *slots_own(const struct slots *slots, uint32_t f);

/* Makes sure a slot has room for one object over the values of a shard. ERR_NOMEM. */
ERR_MUST_CHECK enum err slots_room(struct slots *slots, struct slot *slot, uint32_t f, uint32_t shard);

/* Memory for a peer's state of fragment `f`, `bytes` long; what an earlier attempt left is taken over. ERR_NOMEM. */
ERR_MUST_CHECK enum err slots_take_state(struct slots *slots, uint32_t f, uint64_t bytes, uint8_t **out);
uint8_t *slots_state(const struct slots *slots, uint32_t f);
void slots_free_state(struct slots *slots, uint32_t f);

#endif
