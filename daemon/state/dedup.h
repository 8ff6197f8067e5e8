/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dedup: the dedup table of an anchor: for each member and shard the last contribution that a result counted, by the
 * version it made and by its digest, and how its contributions have pointed (outer_opt/direction.h).
 *
 * It follows from the results, as the anchor does, is part of the version hash, and goes with every state: so an island
 * that takes a state over knows which of its own work is in it, and sends the rest again (docs/PROTOCOL.md, "Epochs",
 * rule 7). One row for a member's shards that one contribution covers; packed in order of member and lowest shard, so
 * equal tables are equal bytes. Pure. The caller sees to it that one thread changes it at a time.
 */
#ifndef DAEMON_STATE_DEDUP_H
#define DAEMON_STATE_DEDUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/digest.h"
#include "common/err.h"
#include "net/transport/wire_object.h"
#include "outer_opt/direction.h"

enum { DEDUP_ROW_BYTES = 56, DEDUP_ROWS_OF_ONE_MAX = 64 };

struct dedup_row {
    uint32_t id;
    uint32_t direction; /* its state, below DIRECTION_STATES */
    uint64_t shards;    /* mask; disjoint among a member's rows */
    uint64_t version;
    struct digest digest;
};

/* Empty when zeroed. */
struct dedup {
    struct dedup_row *rows; /* in order of id, then of the lowest shard */
    size_t count;
};

/* Frees the rows and empties it. */
void dedup_clear(struct dedup *dedup);
ERR_MUST_CHECK enum err dedup_copy(const struct dedup *from, struct dedup *to);

/* A result over these shards made `version` of the contributions that `meta` names. ERR_NOMEM: all is as before. After
 * all results of a version dedup_judge() follows. */
ERR_MUST_CHECK enum err dedup_note(struct dedup *dedup, uint64_t shards, uint64_t version,
                                   const struct wire_meta *meta);

/* The member's shards whose last contribution was counted in a version after this one. */
uint64_t dedup_since(const struct dedup *dedup, uint32_t id, uint64_t version);
/* The newest version that counts the member in any of these shards; 0: none. */
uint64_t dedup_last(const struct dedup *dedup, uint32_t id, uint64_t shards);
/* The shards in which the last one counted is this one. */
uint64_t dedup_as(const struct dedup *dedup, uint32_t id, uint64_t version, const struct digest *digest);

/* All results of `version` are noted: who was below in most of the values that count it, and in most of the results,
 * each of which is another owner's. `values`: of each shard. */
void dedup_judge(struct dedup *dedup, uint64_t version, const uint64_t *values);
/* The shards of row `i` if its member is turned away there; else 0. */
uint64_t dedup_turned(const struct dedup *dedup, size_t i);

size_t dedup_bytes(const struct dedup *dedup);
/* Into `out`, dedup_bytes(). */
void dedup_pack(const struct dedup *dedup, uint8_t *out);
/* ERR_PROTO: no such bytes; `*counted`, which has to be empty, is empty then. */
ERR_MUST_CHECK enum err dedup_unpack(const uint8_t *bytes, size_t bytes_count, struct dedup *dedup);

#endif
