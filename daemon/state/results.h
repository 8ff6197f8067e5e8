/*
 * results: what the ledger's results say: a result opened in place, and whom it counts.
 *
 * Any thread; the ledger locks inside.
 */
#ifndef DAEMON_STATE_RESULTS_H
#define DAEMON_STATE_RESULTS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/bitset.h"
#include "common/err.h"
#include "daemon/state/ledger.h"
#include "net/wire.h"

struct result {
    struct wire_meta meta;
    const uint8_t *frame; /* valid until result_close() */
    size_t frame_bytes;
    struct ledger_map map;
};

/* Maps and checks a result. ERR_NOTFOUND: the ledger does not have it (any more); ERR_PROTO: it is damaged. After a
 * failure there is nothing to close. */
ERR_MUST_CHECK enum err result_open(struct ledger *ledger, uint32_t f, uint64_t version, uint32_t shard,
                                    struct result *out);
void result_close(struct result *result);

/* Whether the result counts a contribution of the member. */
bool result_counts(const struct wire_meta *meta, uint32_t member);

/* Of these shards those whose result of `version` counts the member. One that the ledger does not have any more, or
 * that cannot be read, is taken to count it: to count work twice would be worse than to give it up. */
struct bitset results_counting(struct ledger *ledger, uint32_t f, uint64_t version, const struct bitset *shards,
                               uint32_t member);

/* Which of the first `shards_count` shards' results of `version` the ledger has. */
struct bitset results_held(struct ledger *ledger, uint32_t f, uint64_t version, uint32_t shards_count);

#endif
