/* SPDX-License-Identifier: Apache-2.0 */
/*
 * broken: which members broke their word, as a proof shows that is kept on disk and told the others: they stay evicted
 * as long as their key is on the roster, whoever is started again. Private to net/membership/.
 *
 * Of the members' rows (seats.h) it writes that alone.
 */
#ifndef NET_MEMBERSHIP_BROKEN_H
#define NET_MEMBERSHIP_BROKEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "net/membership/seats.h"
#include "net/membership/wire_epoch.h"

/* Members of whom the host has a proof are marked. To be called whenever members came. What proves nothing is told
 * (MEMBERSHIP_NO_PROOF). ERR_NOMEM. */
ERR_MUST_CHECK enum err broken_load(struct seats *seats);
/* A proof that somebody told: kept, and its member marked. True: that is news. One that is none is ERR_PROTO. */
ERR_MUST_CHECK enum err broken_take(struct seats *seats, uint32_t id, const uint8_t *proof, size_t proof_bytes,
                                    bool *news);
/* The wish by which a proof is told, of the next marked member after slot `*slot` (VIEW_NOBODY: the first): the caller
 * frees `*proof` after it. False: there are no more. */
bool broken_next(const struct seats *seats, uint32_t *slot, struct epoch_message *wish, uint8_t **proof);
/* Whether a marked member still takes part, by the newest record. */
bool broken_pending(const struct seats *seats);

#endif
