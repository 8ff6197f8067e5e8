/* SPDX-License-Identifier: Apache-2.0 */
/*
 * own_vote: whether this island may vote, by its disk and by what the newest configuration calls that. Private to
 * net/membership/.
 *
 * A disk that is in doubt does not vote (rule 9 of docs/PROTOCOL.md, "Epochs"), nor one beside which the configuration
 * names another: a copy of it runs somewhere with our key. The disk is the host's; view and disk are those of
 * member_progress.
 */
#ifndef NET_MEMBERSHIP_OWN_VOTE_H
#define NET_MEMBERSHIP_OWN_VOTE_H

#include <stdbool.h>
#include <stdint.h>

#include "net/membership/member_progress.h"
#include "net/membership/outbox.h"

/* Whether it may: it is a voter, of the newest configuration that its disk has voted after, and its disk is sure. */
bool own_vote_may(const struct member_progress *progress);
/* A new epoch: keeps what the configuration calls our disk, or puts it in doubt where that names another one. */
void own_vote_begin(const struct member_progress *progress, const struct outbox *outbox);
/* Our disk is in doubt no more; `trusted_epoch`: as in struct voting_disk. False: that could not be kept. */
bool own_vote_settle(const struct member_progress *progress, const struct outbox *outbox, uint64_t trusted_epoch);

#endif
