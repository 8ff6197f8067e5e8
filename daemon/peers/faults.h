/* SPDX-License-Identifier: Apache-2.0 */
/*
 * faults: what there is to complain of in members that can be heard, for people: in the log when it begins and ends,
 * and for status. Private to peers/.
 *
 * The core finds most of it (net/sync/sync.h); beside that, who sends what is dropped, or more than anybody has to say.
 * It decides nothing: whose results do not come is told the others with those that are not heard, and a majority of the
 * voters judges. Plain memory, only the loop's thread.
 */
#ifndef DAEMON_PEERS_FAULTS_H
#define DAEMON_PEERS_FAULTS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/bitset.h"
#include "common/log.h"
#include "common/quota.h"
#include "net/sync/sync.h"

/* Of one member; all zero at first. */
struct faults {
    enum sync_fault now;
    struct log_limit said;
    uint64_t dropped_ms; /* when it last sent something that was dropped; 0: never */
    struct quota messages, chains, wishes;
};

/* Once a tick: looks at what the core says of the member, which can be heard. True: it is to be told the others as one
 * that is not heard. */
bool faults_look(struct faults *faults, const struct sync *sync, uint32_t member, const char *name, uint64_t now_ms);
/* Something that it sent was dropped. */
void faults_dropped(struct faults *faults, uint64_t now_ms);
/* Whether a message of the epoch protocol is one too many; its type as in net/membership/wire_epoch.h. */
bool faults_floods(struct faults *faults, uint32_t type, uint64_t now_ms);
/* What the core complains of in it. */
enum sync_fault faults_now(const struct faults *faults);
/* For status; "": nothing. */
const char *faults_text(const struct faults *faults, uint64_t now_ms);

#endif
