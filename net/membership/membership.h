/* SPDX-License-Identifier: Apache-2.0 */
/*
 * membership: this island's voice in decisions about members: messages of the epoch protocol in and out, the others'
 * holdings, silent members, members' words, and orders.
 *
 * net/membership/paxos has the rules of voting, net/membership/next_config those of the next configuration's contents;
 * here both are joined to the protocol's core, to the members' words, and to the host's disk and network
 * (net/membership/membership_io.h). The same object runs in the daemon and in tests/sim. Of the core (net/sync/sync.h)
 * it seals, says what a draft wants fetched, and does nothing else to it.
 *
 * The host keeps each decided configuration and then tells it (MEMBERSHIP_DECIDED); whoever owns config log, view and
 * core takes it, changes over, and calls membership_begin(). Pure but for its host; one thread calls.
 *
 * Owns: how members decide who takes part: ballots and votes, the next configuration's contents, lost members.
 * Called by: daemon, daemon/control, daemon/ctl, daemon/membership, daemon/peers, daemon/state.
 * Never includes: daemon/, common/fsio.h, net/transfer/, <pthread.h>, <sys/socket.h>, <time.h>, <unistd.h>, <zmq.h>.
 */
#ifndef NET_MEMBERSHIP_MEMBERSHIP_H
#define NET_MEMBERSHIP_MEMBERSHIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/bitset.h"
#include "common/err.h"
#include "net/config/config_log.h"
#include "net/config/config.h"
#include "net/config/config_proof.h"
#include "net/config/view.h"
#include "net/membership/key_turns.h"
#include "net/membership/membership_io.h"
#include "net/membership/wire_paxos.h"
#include "net/sync/sync.h"
#include "net/transport/ident.h"
#include "net/transport/wire.h"
#include "net/transport/wire_join.h"

/* A message without an answer goes again after this. */
enum { MEMBERSHIP_AGAIN_MS = 250 };

/* All else borrowed. */
struct membership_conf {
    const struct view *view; /* follows the newest configuration of the config log */
    const struct config_log *config_log;
    const struct ident *ident; /* changes with the configuration that gives us another key, before membership_begin() */
    const struct ident *next;  /* the key that our word states; one of zeros, or NULL: none */
    const struct voting_disk *disk;
    struct said_numbers numbers; /* as the disk has them; by value */
    const struct membership_io *host;
    void *user;    /* of the host's calls */
    uint64_t seed; /* another one in each life: of the pauses between ballots, and of where numbers begin */
};

struct membership;
/* membership_begin() follows. ERR_NOMEM. */
ERR_MUST_CHECK enum err membership_new(const struct membership_conf *conf, struct membership **out);
/* NULL is fine. */
void membership_free(struct membership *membership);
/* The run's plan: the core, and into how many shards each fragment is cut; borrowed. ERR_NOMEM. */
ERR_MUST_CHECK enum err membership_plan_known(struct membership *membership, struct sync *sync,
                                              uint32_t fragments_count, const uint32_t *shards_counts);

/* The config log has a new configuration, and view and core have changed over to it; or this process begins. ERR_NOMEM
 * and others: the daemon cannot go on. */
ERR_MUST_CHECK enum err membership_begin(struct membership *membership, uint64_t now_ms);
/* MEMBERSHIP_DECIDED: the configuration, which the caller owns from now on, and its digest; false: none. */
bool membership_take(struct membership *membership, struct config *config, struct digest *digest);

/* ---- what comes in ---- */

/* A message of the epoch protocol (wire_is_epoch()) of a member, by slot. ERR_PROTO: it is malformed. */
ERR_MUST_CHECK enum err membership_message_in(struct membership *membership, uint32_t member, uint32_t type,
                                              const void *payload, size_t bytes, uint64_t now_ms);
/* A member's heartbeat: its epoch, whom it does not hear, its disk, its trainer. */
void membership_heard(struct membership *membership, uint32_t member, const struct wire_heartbeat *beat,
                      uint64_t now_ms);
/* Our own heartbeat, which is going out. */
void membership_beat(struct membership *membership, const struct wire_heartbeat *beat, uint64_t now_ms);
/* A member can be heard, or cannot any more. */
void membership_up(struct membership *membership, uint32_t member, bool up, uint64_t now_ms);
/* `silent`: members that we have not heard for as long as the run allows (by slot). */
void membership_tick(struct membership *membership, const struct bitset *silent, uint64_t now_ms);

/* What another member says of itself. It goes into the next configuration that is made for another reason, but where it
 * begins or ends to drain, which is one. ERR_PROTO: it did not sign that. */
ERR_MUST_CHECK enum err membership_word(struct membership *membership, uint32_t member, const struct member_word *word);
/* Likewise of ourselves: all but number and signature. */
void membership_say(struct membership *membership, const struct member_word *what);
/* That word, signed, for our greeting; borrowed. Its number rises when it says something new. */
const struct member_word *membership_own_word(const struct membership *membership);

/* ---- orders: net/config/order.h ---- */

/* People here order something of the run: kind and value, and the subject, by id (of a REKEY the key that the newest
 * configuration says it states). Told all voters that can be heard,
 * until a configuration carries it out. `*number`: of the order. ERR_STATE: it may not be ordered here, nobody could
 * decide it now, or it makes no sense; the reason is fit for people. */
ERR_MUST_CHECK enum err membership_order(struct membership *membership, uint32_t kind, uint32_t subject, uint64_t value,
                                         uint64_t *number);
/* A newcomer, as it signed itself, which redeemed an invitation of ours; asked again and again while it waits.
 * ERR_STATE: it may not be; ERR_AGAIN: nobody could decide it now, or too many wait. */
ERR_MUST_CHECK enum err membership_admit(struct membership *membership, const struct wire_join *join, bool contributor);
/* The invitation by which it came is worth nothing any more: the order that admits it is withdrawn, if it waits. */
void membership_shut_out(struct membership *membership, const struct digest *invitation);
/* People here agree to an order that waits, or take back one that they gave: a void of its number is told, and carried
 * out by the next configuration; whoever has not heard of it may carry out the order until then. ERR_NOTFOUND;
 * ERR_STATE. */
ERR_MUST_CHECK enum err membership_approve(struct membership *membership, uint32_t signer, uint64_t number);
ERR_MUST_CHECK enum err membership_withdraw(struct membership *membership, uint64_t number);
/* An order that waits. */
struct membership_pending {
    const struct order *order; /* borrowed, until the next call that takes a time */
    const char *by, *about;    /* names of its signer and of its subject, borrowed likewise; about NULL: of nobody */
    bool ours;
    bool takes_approval;
    uint32_t approvals, needed; /* where it does */
    bool agreed;                /* and whether this island's is among them */
    uint64_t for_ms;
};
/* The next one after number `*at`, 0 at first; false: there is no more. */
bool membership_pending(const struct membership *membership, uint32_t *at, struct membership_pending *out);

/* An owner, by its id, has signed two results of one part; the host has the evidence, if that could be kept. Nobody can
 * tell which is the right one; it has broken its word and is evicted. If it is ourselves, the others will see to it. */
void membership_equivocation(struct membership *membership, uint32_t owner, uint32_t fragment, uint64_t version);

/* ---- the host's answers ---- */

/* The vote of this number, and all before it, are durable. */
void membership_saved(struct membership *membership, uint64_t number, uint64_t now_ms);
/* The configuration that was decided is durable. */
void membership_kept(struct membership *membership, const struct config_entry *entry);

/* ---- looking in ---- */

/* Whether this island may vote: it is a voter, and its disk is not in doubt. */
bool membership_votes(const struct membership *membership);
/* Whether a member, which may be us, is a voter that is heard and may vote: its disk is not in doubt, as far as it
 * says. */
bool membership_may_vote(const struct membership *membership, uint32_t member);
/* Whom a voter whose disk is in doubt has to hear, besides other voters, before it recovers by itself. */
struct bitset membership_awaited(const struct membership *membership);
/* Whether a member is known to have signed two results of one part. */
bool membership_broke_word(const struct membership *membership, uint32_t member);
/* Whether a member has brought, within the last minute, a configuration that may not follow ours. */
bool membership_misproposed(const struct membership *membership, uint32_t member);
/* Since when the next epoch is being decided, so that nothing is made; 0: it is not. */
uint64_t membership_sealed_ms(const struct membership *membership);
/* Since when another configuration is asked for, decided or not; 0: none is. */
uint64_t membership_requested_ms(const struct membership *membership);
/* Writes what the decision or the request waits for, and for whom, into `text`; "": there is neither. */
void membership_waits(const struct membership *membership, char *text, size_t text_bytes);
/* How many vote, and how many of them are heard, us among them. */
uint32_t membership_voters(const struct membership *membership, uint32_t *heard);
/* As member_progress_hears(). */
struct key_turns_heard membership_hears(const struct membership *membership);
/* Whether a majority of the voters does not hear the member. */
bool membership_silent(const struct membership *membership, uint32_t member);
/* Whether a member that is heard says that its disk keeps nothing. */
bool membership_disk_fails(const struct membership *membership, uint32_t member);
/* Whether a member that is away, which may be us, is back and catches up: it takes part again by itself. */
bool membership_catches_up(const struct membership *membership, uint32_t member);
/* The owner that is cut off from the member, which may be us, so that it stands back; VIEW_NOBODY: it does not. */
uint32_t membership_partitioned_from(const struct membership *membership, uint32_t member);
/* Into `text`: whether a cut line is the cause, or one of the two makes no result, as far as that is known here; false:
 * it is no line for sure. */
bool membership_partitioned_text(const struct membership *membership, uint32_t member, uint32_t owner, char *text,
                                 size_t text_bytes);

#endif
