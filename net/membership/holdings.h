/* SPDX-License-Identifier: Apache-2.0 */
/*
 * holdings: what this island holds, as a seal tells it, and what members answered to our own ballot, as
 * net/membership/compose takes it. Private to net/membership/.
 *
 * One answer a member is kept, the last one; answers to another ballot do not count.
 */
#ifndef NET_MEMBERSHIP_HOLDINGS_H
#define NET_MEMBERSHIP_HOLDINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "net/membership/compose.h"
#include "net/membership/epoch.h"
#include "net/sync/sync.h"
#include "net/membership/wire_epoch.h"

struct holdings;
ERR_MUST_CHECK enum err holdings_new(struct holdings **out);
/* NULL is fine. */
void holdings_free(struct holdings *holdings);
/* The run has so many fragments. ERR_NOMEM. */
ERR_MUST_CHECK enum err holdings_reserve(struct holdings *holdings, uint32_t fragments_count);
/* A new epoch: nothing was answered. */
void holdings_clear(struct holdings *holdings);

/* What we hold; borrowed until the next call. None before holdings_reserve(), and ever of a witness. */
void holdings_own(struct holdings *holdings, const struct sync *sync, const struct holding **rows,
                  uint32_t *rows_count);

/* A promise, or what one says who does not vote; its memory is taken over, and the caller may read on in it until the
 * next call. One for which there is no room is as if lost; so is that of a member without a vote whose state is another
 * than ours of its version, as far as `sync` knows (NULL: nothing). */
void holdings_answer(struct holdings *holdings, const struct sync *sync, uint32_t id, struct epoch_message *answer);
/* It cannot be heard any more: what it alone holds, nobody could fetch. The others' answers have to do, or its next. */
void holdings_drop(struct holdings *holdings, uint32_t id);
/* Those who answered our ballot; borrowed until the next call. */
const struct compose_answer *holdings_answered(struct holdings *holdings, const struct epoch *epoch, uint32_t *count);
/* Whether all other voters of the record that keep bytes have answered our ballot, and can be heard still, and all that
 * those hold who answered is here; what is not, the core is told to fetch. `self`: our id. */
bool holdings_here(const struct holdings *holdings, const struct epoch *epoch, const struct record *record,
                   uint32_t self, struct sync *sync);

#endif
