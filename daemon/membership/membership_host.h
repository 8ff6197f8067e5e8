/* SPDX-License-Identifier: Apache-2.0 */
/*
 * membership_host: the host of net/membership in this daemon: its votes, records and proofs on disk, its messages on
 * the link, and what it has to say to people and to the engine.
 *
 * It decides nothing. Whoever has something to tell membership, or to ask it, takes it by membership_host_membership().
 * What is decided is posted (EVENT_EPOCH) once it is durable; the engine takes it, changes over, and calls
 * membership_host_begin(). Only the loop's thread.
 */
#ifndef DAEMON_MEMBERSHIP_MEMBERSHIP_HOST_H
#define DAEMON_MEMBERSHIP_MEMBERSHIP_HOST_H

#include <stddef.h>
#include <stdint.h>

#include "common/bitset.h"
#include "common/err.h"
#include "daemon/event.h"
#include "daemon/jobs.h"
#include "daemon/membership/vote.h"
#include "net/membership/membership.h"
#include "net/transport/link.h"

/* All borrowed. */
struct membership_host_conf {
    const char *folder;      /* of the state */
    const struct view *view; /* follows the newest record of the chain */
    const struct chain *chain;
    const struct ident *ident;
    struct vote *vote;
    struct events *events;
    struct jobs *jobs;
    uint64_t start_ms;
};

struct membership_host;
/* The chain has the newest record, the view follows it. The link is borrowed. */
ERR_MUST_CHECK enum err membership_host_new(const struct membership_host_conf *conf, struct link *link,
                                            struct membership_host **out);
/* NULL is fine. */
void membership_host_free(struct membership_host *host);
/* Borrowed. */
struct membership *membership_host_membership(struct membership_host *host);

/* The chain has a new record, and view and core have changed over to it; or nothing was said before now. */
ERR_MUST_CHECK enum err membership_host_begin(struct membership_host *host, uint64_t now_ms);
/* Records before that epoch, which no restart needs, are put together into few files, from which who was away for long
 * is told of them. What fails is logged, and tried at the next call. */
void membership_host_tidy(struct membership_host *host, uint64_t before);
/* EVENT_KEPT: a vote or a decided record has become durable. */
void membership_host_kept(struct membership_host *host, uint64_t now_ms);
/* What could not be written is tried again; then membership_tick(). */
void membership_host_tick(struct membership_host *host, const struct bitset *silent, uint64_t now_ms);

/* Why what is decided, or our vote, cannot be made durable; "": it can. Borrowed until the next change. */
const char *membership_host_unkept(const struct membership_host *host);
/* As membership_waits(), and for our disk, if that is what is waited for. */
void membership_host_waits(const struct membership_host *host, char *text, size_t text_bytes);

#endif
