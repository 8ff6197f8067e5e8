/* SPDX-License-Identifier: Apache-2.0 */
/*
 * own_answer: what this island answers a proposer of the next configuration: with its promise what it holds and what it
 * agrees to, with its acceptance its signature. Private to net/membership/.
 *
 * net/membership/paxos says what is promised and accepted.
 */
#ifndef NET_MEMBERSHIP_OWN_ANSWER_H
#define NET_MEMBERSHIP_OWN_ANSWER_H

#include "net/config/config_proof.h"
#include "net/membership/change_requests.h"
#include "net/membership/member_progress.h"
#include "net/membership/order_pool.h"
#include "net/membership/outbox.h"
#include "net/membership/promise_reports.h"
#include "net/membership/wire_paxos.h"
#include "net/transport/ident.h"

struct own_answer {
    /* borrowed */
    const struct ident *ident;
    const struct member_progress *progress;
    const struct change_requests *requests;
    const struct order_pool *orders;
    struct promise_reports *reports;
    const struct outbox *outbox;
    struct config_endorsement endorsements[WIRE_ENDORSEMENTS_MAX]; /* of our last promise */
};

/* Adds to a PROMISE or an ACCEPTED of ours all that paxos leaves to us, as it is now; other messages stay as they are.
 * What is added is borrowed until the next call. */
void own_answer_complete(struct own_answer *answer, struct paxos_message *message);

#endif
