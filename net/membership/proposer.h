/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proposer: composes the next configuration in our own ballot, of what its promises report, and proposes it once it is
 * safe and agreed to; a draft before that says what is to be fetched. Private to net/membership/.
 *
 * net/membership/next_config says what it contains and whether it is safe, net/membership/endorse what is agreed to,
 * and net/membership/paxos sends it; here is how long what is missing is waited for.
 */
#ifndef NET_MEMBERSHIP_PROPOSER_H
#define NET_MEMBERSHIP_PROPOSER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/bitset.h"
#include "common/err.h"
#include "net/membership/change_requests.h"
#include "net/membership/member_progress.h"
#include "net/membership/next_config.h"
#include "net/membership/order_pool.h"
#include "net/membership/outbox.h"
#include "net/membership/paxos.h"
#include "net/membership/promise_reports.h"

struct proposer {
    /* borrowed */
    const struct member_progress *progress;
    struct change_requests *requests;
    const struct order_pool *orders;
    struct promise_reports *reports; /* what members answered in our ballot */
    struct paxos *paxos;
    const struct outbox *outbox;
    const uint32_t *shards_counts; /* per fragment; NULL: the run's plan is not known yet */
    /* all zero at first */
    uint32_t lacking[CONFIG_OWNERS_MAX + 1]; /* of the last draft, by id: who lacks some of what it rests on */
    uint32_t lacking_count;
    uint64_t asked_ms;     /* since when those who might join are asked, in `asked_ballot`; 0: they are not */
    uint64_t asked_ballot; /* of ours: in each all that is signed anew is waited for anew */
    struct bitset asked;
};

/* A new epoch: nothing is asked or lacking. */
void proposer_begin(struct proposer *proposer);
/* Composes of what is known now, and proposes or asks. ERR_NOMEM; ERR_STATE, ERR_PROTO: nobody would accept it. */
ERR_MUST_CHECK enum err proposer_compose(struct proposer *proposer, uint64_t now_ms);
/* What a configuration of another member is judged by (net/membership/received_config.h). */
struct next_config_base proposer_base(const struct proposer *proposer);
/* Writes what our ballot waits for, and for whom; false, and "": we are not in one that waits. */
bool proposer_waits(const struct proposer *proposer, char *text, size_t text_bytes);

#endif
