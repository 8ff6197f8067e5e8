/* SPDX-License-Identifier: Apache-2.0 */
/*
 * received_message: whether what another member's message says is so, before net/membership/paxos takes it in: the
 * configuration that it brings, its signature, the endorsements in it. Private to net/membership/.
 *
 * What changes nothing is not checked. Who brings a configuration that breaks the rules is told people once in a while.
 */
#ifndef NET_MEMBERSHIP_RECEIVED_MESSAGE_H
#define NET_MEMBERSHIP_RECEIVED_MESSAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "net/membership/member_progress.h"
#include "net/membership/outbox.h"
#include "net/membership/paxos.h"
#include "net/membership/promise_reports.h"
#include "net/membership/proposer.h"
#include "net/membership/wire_paxos.h"

/* All borrowed. */
struct received_message_conf {
    struct member_progress *progress;
    const struct paxos *paxos;
    const struct proposer *proposer; /* which knows what is judged by */
    struct promise_reports *reports; /* take over what promises report */
    const struct outbox *outbox;
    const uint64_t *sealed_ms; /* since when this voter is sealed; 0: it is not */
};

/* Of the member in that slot. What a promise says that it holds is taken over, and what it points to goes on pointing
 * to the same. `*good`: as in struct paxos_event. False: it is of no use. */
bool received_message_judge(const struct received_message_conf *conf, uint32_t member, struct paxos_message *message,
                            uint64_t now_ms, bool *good);

#endif
