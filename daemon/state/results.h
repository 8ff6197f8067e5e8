/* SPDX-License-Identifier: Apache-2.0 */
/*
 * results: reads the ledger's results in place: the contributions that one counts, and whether its owner has signed
 * another one.
 *
 * Any thread; the ledger locks inside.
 */
#ifndef DAEMON_STATE_RESULTS_H
#define DAEMON_STATE_RESULTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "daemon/state/ledger.h"
#include "net/transport/wire_object.h"

struct result {
    struct wire_object what;
    struct wire_meta meta; /* its list lies in the map */
    const uint8_t *frame;  /* valid until result_close() */
    size_t frame_bytes;
    struct ledger_map map;
};

/* Maps and checks a result. ERR_NOTFOUND: the ledger does not have it (any more); ERR_PROTO: it is damaged. After a
 * failure there is nothing to close. */
ERR_MUST_CHECK enum err result_open(struct ledger *ledger, const struct result_id *key, struct result *out);
void result_close(struct result *result);

/* Whether the result counts this contribution of the member; NULL: any of its contributions. */
bool result_counts(const struct wire_meta *meta, uint32_t id, const struct digest *contribution);

/* What part of the mean is a member's, by the weights of what it counts, or, with `alike`, as if these were equal; 0:
 * it does not count it, or left it out. */
double result_share(const struct wire_meta *meta, uint32_t id, bool alike);

/* The first result that the ledger got of the part that `like` names, whatever its digest; false: it has none, and
 * `*out` is as it was. */
bool results_find(struct ledger *ledger, const struct result_id *like, struct result_id *out);

/* ---- two results of one part, both signed by its owner ----
 *
 * There can be one at most: an owner that makes another has lied, or works from an older disk without knowing it, and
 * the two are the evidence. */

/* Whether the ledger has this result and another one of the same owner for the same fragment, version and epoch, and
 * both are signed with this key. A result that is damaged or not signed proves nothing. */
bool results_equivocation(struct ledger *ledger, const struct result_id *key, const uint8_t *owner_key,
                          struct result_id *other);

/* Both, as evidence (net/membership/evidence.h). Caller frees `*bytes`. Fails as result_open(), or ERR_NOMEM. */
ERR_MUST_CHECK enum err results_evidence(struct ledger *ledger, const struct result_id *first,
                                         const struct result_id *second, uint8_t **bytes, size_t *count);

#endif
