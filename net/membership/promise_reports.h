/* SPDX-License-Identifier: Apache-2.0 */
/*
 * promise_reports: this island's own report, as its seal tells it, and the members' answers to our own ballot, in the
 * form that net/membership/next_config takes. Private to net/membership/.
 *
 * Keeps the last answer of each member; answers to another ballot do not count.
 */
#ifndef NET_MEMBERSHIP_PROMISE_REPORTS_H
#define NET_MEMBERSHIP_PROMISE_REPORTS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "net/membership/next_config.h"
#include "net/membership/paxos.h"
#include "net/sync/sync.h"
#include "net/membership/wire_paxos.h"

struct promise_reports;
ERR_MUST_CHECK enum err promise_reports_new(struct promise_reports **out);
/* NULL is fine. */
void promise_reports_free(struct promise_reports *reports);
/* The run has so many fragments. ERR_NOMEM. */
ERR_MUST_CHECK enum err promise_reports_reserve(struct promise_reports *reports, uint32_t fragments_count);
/* A new epoch: nothing was answered. */
void promise_reports_clear(struct promise_reports *reports);

/* What a member has answered last; NULL: nothing, or nothing of use. Borrowed until it answers again. */
const struct paxos_message *promise_reports_of(const struct promise_reports *reports, uint32_t id);
/* Our own report; borrowed until the next call. Empty before promise_reports_reserve(), and always on a witness. */
void promise_reports_own(struct promise_reports *reports, const struct sync *sync, const struct holding **rows,
                         uint32_t *rows_count);

/* Takes in a promise, or the report of a member without a vote. Its memory is taken over, and the caller may read on in
 * it until the next call. One for which there is no room is dropped, as if lost; so is the report of a member without a
 * vote whose state differs from ours of its version, as far as `sync` knows (NULL: nothing). */
void promise_reports_answer(struct promise_reports *reports, const struct sync *sync, uint32_t id,
                            struct paxos_message *answer);
/* Forgets the answer of a member that cannot be heard any more: nobody could fetch what it alone holds. The others'
 * answers have to do, or its next. */
void promise_reports_drop(struct promise_reports *reports, uint32_t id);
/* Those who answered our ballot; borrowed until the next call. */
const struct next_config_answer *promise_reports_answered(struct promise_reports *reports, const struct paxos *paxos,
                                                          uint32_t *count);
/* Whether all other full voters of the configuration have answered our ballot and can still be heard, and everything in
 * the answers is here; tells the core to fetch the rest. `self`: our id. */
bool promise_reports_here(const struct promise_reports *reports, const struct paxos *paxos, const struct config *config,
                          uint32_t self, struct sync *sync);

#endif
