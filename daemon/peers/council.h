/* SPDX-License-Identifier: Apache-2.0 */
/*
 * council: this island's voice in who takes part: the messages of net/membership/epoch in and out, the votes made
 * durable, what the others hold, who is silent, and what is wanted of the members. Private to peers/, but for its
 * looking in.
 *
 * It decides nothing itself: net/membership/epoch has the rules of voting, net/membership/compose those of what the
 * next record says. What is decided is kept on disk and posted (EVENT_EPOCH); the engine takes it, changes over, and
 * calls council_begin(). Of the protocol's core it seals, and says what a draft wants to carry, and does nothing else
 * to it. Only the loop's thread.
 */
#ifndef DAEMON_PEERS_COUNCIL_H
#define DAEMON_PEERS_COUNCIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/bitset.h"
#include "common/err.h"
#include "daemon/peers/peers_types.h"
#include "net/config/chain.h"
#include "net/transport/ident.h"
#include "net/transport/link.h"
#include "net/config/record.h"
#include "net/sync/sync.h"
#include "net/config/view.h"
#include "net/membership/wire_epoch.h"

struct council;
/* The chain has the newest record, the view follows it. The link is borrowed. */
ERR_MUST_CHECK enum err council_new(const struct peers_conf *conf, struct link *link, struct council **out);
/* NULL is fine. */
void council_free(struct council *council);
ERR_MUST_CHECK enum err council_plan_known(struct council *council, const struct council_plan *plan);

/* The chain has a new record, and view and core have changed over to it. */
ERR_MUST_CHECK enum err council_begin(struct council *council, uint64_t now_ms);

/* Records before that epoch, which no restart needs, are put together into few files, from which who was away for long
 * is told of them. What fails is logged, and tried at the next call. */
void council_tidy(struct council *council, uint64_t before);

/* A message of the epoch protocol (wire_is_epoch()). ERR_PROTO: it is malformed. */
ERR_MUST_CHECK enum err council_message_in(struct council *council, uint32_t member, uint32_t type, const void *payload,
                                           size_t bytes, uint64_t now_ms);
/* A member's heartbeat: its epoch, whom it does not hear, and its disk. */
void council_heard(struct council *council, uint32_t member, const struct wire_heartbeat *beat, uint64_t now_ms);
/* Our own heartbeat, which is going out. */
void council_beat(struct council *council, const struct wire_heartbeat *beat, uint64_t now_ms);
/* EVENT_KEPT: a vote or a decided record has become durable. */
void council_kept(struct council *council, uint64_t now_ms);
/* A member can be heard, or cannot any more. */
void council_up(struct council *council, uint32_t member, bool up, uint64_t now_ms);
/* `silent`: members that we have not heard for as long as the run allows (by slot). */
void council_tick(struct council *council, const struct bitset *silent, uint64_t now_ms);

/* EVENT_EPOCH: the record that was decided, which the caller owns from now on, and its digest; false: none. */
bool council_take(struct council *council, struct record *record, struct digest *digest);

/* What a member, or we ourselves, say of it: goes into the next record that is made for another reason, but for
 * `draining`, which is one. */
struct council_said {
    const char *address; /* "host:port"; "": it dials the others */
    uint64_t uplink;     /* bit/s; 0: as the record says */
    uint8_t owner_wish;  /* enum record_wish */
    bool draining;
};
void council_said(struct council *council, uint32_t member, const struct council_said *said);

/* What somebody here asks for, until a record says it: kinds and numbers as in net/membership/wire_epoch.h. All voters
 * are told, those that can be heard: ask again now and then. ERR_NOTFOUND: nobody of that id. */
ERR_MUST_CHECK enum err council_wish(struct council *council, uint32_t kind, uint32_t id, uint64_t number);
/* An owner, by its id, has signed two results of one part. Nobody can tell which is the right one; it has broken its
 * word, and is to lose its shards: its eviction is wished for. If it is ourselves, the others will see to it. */
void council_rivals(struct council *council, uint32_t owner, uint32_t fragment, uint64_t version);
/* A new member, as of an invitation that was redeemed; likewise. ERR_STATE: too many at a time, or its name or key is
 * taken. */
ERR_MUST_CHECK enum err council_enrol(struct council *council, const struct record_member *as);

/* ---- looking in ---- */
/* Whether this island may vote: it is a voter, and its disk is not in doubt. */
bool council_votes(const struct council *council);
/* Whether a member, which may be us, is a voter that is heard and may vote: its disk is not in doubt, as far as it
 * says. */
bool council_may_vote(const struct council *council, uint32_t member);
/* Whether a member is known to have signed two results of one part. */
bool council_broke_word(const struct council *council, uint32_t member);
/* Since when the next epoch is being decided, so that nothing is made; 0: it is not. */
uint64_t council_sealed_ms(const struct council *council);
/* Since when somebody wishes for another record, decided or not; 0: nobody does. */
uint64_t council_wished_ms(const struct council *council);
/* What was asked about a member, is not decided, and is not forgotten yet. */
struct council_pending {
    uint32_t kind; /* enum wire_wish: evict or revoke */
    uint32_t member;
    const char *by; /* name of the island where it was asked; borrowed of the view */
    uint64_t for_ms;
};
/* The next one after number `*at`, 0 at first; false: there is no more. */
bool council_pending(const struct council *council, uint32_t *at, struct council_pending *out);
/* What either waits for, and whom: into `text`; "" if nothing is decided or wished. */
void council_waits(const struct council *council, char *text, size_t text_bytes);
/* Why what is decided, or our vote, cannot be made durable; "": it can. Borrowed until the next change. */
const char *council_unkept(const struct council *council);
/* How many vote, and how many of them are heard, us among them. */
uint32_t council_voters(const struct council *council, uint32_t *heard);
/* Whether a majority of the voters does not hear the member. */
bool council_silent(const struct council *council, uint32_t member);
/* Whether a member that is heard says that its disk keeps nothing. */
bool council_disk_fails(const struct council *council, uint32_t member);
/* The owner that is cut off from the member, which may be us, so that it stands back; VIEW_NOBODY: it does not. */
uint32_t council_apart_from(const struct council *council, uint32_t member);

/* Into `text`: whether it is a line that keeps those two apart, or that one of them makes no result, as far as that is
 * known here; false: it is no line for sure. */
bool council_apart_text(const struct council *council, uint32_t member, uint32_t owner, char *text, size_t text_bytes);

#endif
