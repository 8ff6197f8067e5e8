/* SPDX-License-Identifier: Apache-2.0 */
/*
 * encode: our contributions: one job per part, from the trainer's snapshot into the slots that go out. The loop's
 * thread calls.
 */
#ifndef DAEMON_ROUNDS_ENCODE_H
#define DAEMON_ROUNDS_ENCODE_H

#include "daemon/rounds/round_context.h"

struct encode;

/* `round_context` is borrowed for its life. ERR_NOMEM. */
ERR_MUST_CHECK enum err encode_new(struct round_context *context, struct encode **out);
void encode_free(struct encode *encode);
/* Our contribution to `version` from a snapshot, whose arrays are borrowed until EVENT_ENCODED, which says how it went:
 * ERR_NONFINITE, there is a NaN in it; ERR_NOMEM, with which the daemon ends. Now, or when no job stands in the way.
 * May be ordered again for the same version, when an epoch has begun and its parts are others: it replaces the encoding
 * of shards that are not carried, and an order that is not carried out yet; one EVENT_ENCODED follows. */
void encode_begin(struct encode *encode, uint32_t f, uint64_t version, const struct replica_snapshot *snapshot);
void encode_unread(struct encode *encode, uint32_t f);

#endif
