/*
 * encode: our contributions: one job per shard, from the trainer's snapshot into the slots that go out. Private to
 * rounds/; the loop's thread calls.
 */
#ifndef DAEMON_ROUNDS_ENCODE_H
#define DAEMON_ROUNDS_ENCODE_H

#include "daemon/rounds/desk.h"

struct encode;

/* `desk` is borrowed for its life. ERR_NOMEM. */
ERR_MUST_CHECK enum err encode_new(struct desk *desk, struct encode **out);
void encode_free(struct encode *encode);
/* Our contribution to `version` from a snapshot, whose arrays are borrowed until EVENT_ENCODED, which says how it went:
 * ERR_NONFINITE, there is a NaN in it; ERR_NOMEM, with which the daemon ends. */
void encode_begin(struct encode *encode, uint32_t f, uint64_t version, const struct replica_snapshot *snapshot);

#endif
