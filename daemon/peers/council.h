/* SPDX-License-Identifier: Apache-2.0 */
/*
 * council: the host of net/membership in this daemon: its votes, records and proofs on disk, its messages on the link,
 * and what it has to say to people and to the engine.
 *
 * It decides nothing. Whoever has something to tell membership, or to ask it, takes it by council_membership(). What is
 * decided is posted (EVENT_EPOCH) once it is durable; the engine takes it, changes over, and calls council_begin().
 * Only the loop's thread.
 */
#ifndef DAEMON_PEERS_COUNCIL_H
#define DAEMON_PEERS_COUNCIL_H

#include <stddef.h>
#include <stdint.h>

#include "common/bitset.h"
#include "common/err.h"
#include "daemon/peers/peers_types.h"
#include "net/membership/membership.h"
#include "net/transport/link.h"

struct council;
/* The chain has the newest record, the view follows it. The link is borrowed. */
ERR_MUST_CHECK enum err council_new(const struct peers_conf *conf, struct link *link, struct council **out);
/* NULL is fine. */
void council_free(struct council *council);
/* Borrowed. */
struct membership *council_membership(struct council *council);

/* The chain has a new record, and view and core have changed over to it; or nothing was said before now. */
ERR_MUST_CHECK enum err council_begin(struct council *council, uint64_t now_ms);
/* Records before that epoch, which no restart needs, are put together into few files, from which who was away for long
 * is told of them. What fails is logged, and tried at the next call. */
void council_tidy(struct council *council, uint64_t before);
/* EVENT_KEPT: a vote or a decided record has become durable. */
void council_kept(struct council *council, uint64_t now_ms);
/* What could not be written is tried again; then membership_tick(). */
void council_tick(struct council *council, const struct bitset *silent, uint64_t now_ms);

/* Why what is decided, or our vote, cannot be made durable; "": it can. Borrowed until the next change. */
const char *council_unkept(const struct council *council);
/* As membership_waits(), and for our disk, if that is what is waited for. */
void council_waits(const struct council *council, char *text, size_t text_bytes);

#endif
