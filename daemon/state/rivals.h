/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rivals: two results of one part, both signed by its owner. There can be one at most: an owner that makes another has
 * lied, or works from an older disk without knowing it, and the two are the proof.
 *
 * Any thread; the ledger locks inside.
 */
#ifndef DAEMON_STATE_RIVALS_H
#define DAEMON_STATE_RIVALS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "daemon/state/ledger.h"

/* Whether the ledger has this result and another one of the same owner for the same fragment, version and epoch, and
 * both are signed with this key. A result that is damaged or not signed proves nothing. */
bool rivals_of(struct ledger *ledger, const struct result_id *key, const uint8_t *owner_key, struct result_id *other);

/* Both, as a proof (net/membership/proof.h). Caller frees `*bytes`. Fails as result_open(), or ERR_NOMEM. */
ERR_MUST_CHECK enum err rivals_proof(struct ledger *ledger, const struct result_id *first,
                                     const struct result_id *second, uint8_t **bytes, size_t *count);

#endif
