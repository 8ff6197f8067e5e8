/* SPDX-License-Identifier: Apache-2.0 */
/*
 * epoch: how the voters of record e decide record e + 1: a seal and single-decree Paxos (Lamport, "Paxos Made Simple",
 * 2001) in one table, (state, event, time) -> (state, actions). The rules it keeps are those of docs/PROTOCOL.md,
 * "Epochs".
 *
 * It opens no socket or file and reads no clock. A record is bytes with a digest here; who signs, checks signatures and
 * unpacks is the caller, who says of each message whether it is `good`. One struct epoch serves one island for all
 * epochs: epoch_begin() whenever a record became the newest. Owns what it is given: bytes are copied.
 *
 * After each call that takes `now_ms`, drain epoch_action() until it says false; what an action points to is borrowed
 * until the next such call. A message to our own id comes back as an event like any other.
 *
 * Another register that says "record e + 1 is ..." (a compare-and-swap elsewhere) takes the place of the second half
 * alone: seal and composing stay as they are, epoch_propose() hands the bytes to it instead of asking for ACCEPT, and
 * what it decided comes in as a DECIDED message that is `good`.
 */
#ifndef NET_MEMBERSHIP_EPOCH_H
#define NET_MEMBERSHIP_EPOCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/digest.h"
#include "common/err.h"
#include "net/config/record.h"
#include "net/membership/wire_epoch.h"

enum { EPOCH_VOTERS_MAX = 128, EPOCH_ASKED_MAX = 128 };

/* A ballot is (counter << 32 | id of who proposes); 0: none. */
static inline uint32_t epoch_ballot_id(uint64_t ballot)
{
    return (uint32_t)ballot;
}

/* Must be on disk before we speak: of one epoch, void in every other. */
struct epoch_vote {
    uint64_t epoch;
    uint64_t promised; /* 0: not sealed */
    uint64_t accepted; /* ballot in which `bytes` were accepted last; 0: none */
    uint64_t own;      /* the highest ballot we ever proposed in */
    struct digest digest;
    const uint8_t *bytes; /* of the accepted record */
    size_t bytes_count;
};

/*
 *   IDLE --wanted or sealed, our turn--> CLAIMING --ballot saved--> PREPARING --a majority promised--> COMPOSING
 *    ^                                                               | one of them had accepted a record  |
 * epoch_propose() |                                                               v v
 *    +---- REJECT of a higher ballot (pause) ---- from all ------ ACCEPTING <-----------------------------+
 *                                                                    | a majority accepted in this ballot
 *   DECIDED <--- DECIDED that is good, in any state ----------------+
 */
enum epoch_state {
    EPOCH_IDLE,
    EPOCH_CLAIMING,
    EPOCH_PREPARING,
    EPOCH_COMPOSING,
    EPOCH_ACCEPTING,
    EPOCH_DECIDED,
    EPOCH_STATES
};

enum epoch_event_type {
    EPOCH_EV_TICK,
    EPOCH_EV_MESSAGE, /* from, message, good */
    EPOCH_EV_SAVED,   /* number: this vote and all before it are durable */
    EPOCH_EV_WANT,    /* flag: whether a change is wanted */
    EPOCH_EV_UP,      /* from, flag: whether that voter can be heard */
    EPOCH_EV_HEARD,   /* from, epoch: that island says that this is its epoch */
    /* Rule 9, when every voter can be heard and so many disks are in doubt that the others are no majority: begin with
     * EPOCH_EV_RECOVER; EPOCH_EV_RECOVERED answers EPOCH_DO_TAKE_OVER. */
    EPOCH_EV_RECOVER,
    EPOCH_EV_RECOVERED,
    EPOCH_EVENTS
};

struct epoch_event {
    enum epoch_event_type type;
    uint32_t from;
    /* PROMISE with an accepted record, ACCEPT: it follows our record (compose_follows()). ACCEPTED: the signature is
     * that voter's. DECIDED: proved by its votes, after our record. Others: true. */
    bool good;
    bool flag;
    uint64_t number, epoch;
    const struct epoch_message *message;
};

enum epoch_action_type {
    EPOCH_DO_SAVE, /* make `vote` durable, then EPOCH_EV_SAVED with `number`; where that fails, say nothing */
    /* `message` to the island `to`. The caller adds what takes a key, a disk or other members: PROMISE: incarnation and
     * rows, for it is what that island holds. ACCEPTED: the signature. */
    EPOCH_DO_SEND,
    EPOCH_DO_COMPOSE,   /* when all else is drained: epoch_draft() or epoch_propose(), from what those hold who promised
                         */
    EPOCH_DO_FETCH,     /* fetch what we lack of what the draft `bytes` starts from and carries; sealed or not */
    EPOCH_DO_DECIDED,   /* `bytes` with `votes` is record e + 1: keep it durably, tell all, epoch_begin() */
    EPOCH_DO_CHAIN,     /* send `to` the records after `epoch`, each as DECIDED */
    EPOCH_DO_TAKE_OVER, /* every voter promised: fetch what any of them holds; EPOCH_EV_RECOVERED when all is here */
    EPOCH_DO_VOTE,      /* our disk is in doubt no more, by the incarnation that the record names: set the mark */
};

struct epoch_action {
    enum epoch_action_type type;
    uint32_t to;
    uint64_t number, epoch;
    struct epoch_vote vote;
    struct epoch_message message;
    const uint8_t *bytes;
    size_t bytes_count;
    const struct record_vote *votes;
    uint32_t votes_count;
};

struct epoch_conf {
    uint32_t self;
    uint64_t seed;     /* of the pauses */
    uint64_t turn_ms;  /* how long the next one waits for the one before it to decide something */
    uint64_t again_ms; /* a message without an answer is sent again after this */
};

struct epoch;
ERR_MUST_CHECK enum err epoch_new(const struct epoch_conf *conf, struct epoch **out);
/* NULL is fine. */
void epoch_free(struct epoch *epoch);

/* Record `number` is the newest; `voters` are its voters in order of id, at most EPOCH_VOTERS_MAX (ERR_ARG).
 * `may_vote`: we are one of them and our disk is not in doubt (rule 9). `vote`: what is on disk, NULL if nothing is;
 * one of an earlier epoch is void, one of a later is ERR_STATE: the record that it belongs to is missing. */
ERR_MUST_CHECK enum err epoch_begin(struct epoch *epoch, uint64_t number, const uint32_t *voters, uint32_t voters_count,
                                    bool may_vote, const struct epoch_vote *vote, uint64_t now_ms);
/* ERR_NOMEM: as if the event had been lost. Whatever a message says, it reaches no assert. */
ERR_MUST_CHECK enum err epoch_step(struct epoch *epoch, const struct epoch_event *event, uint64_t now_ms);
bool epoch_action(struct epoch *epoch, struct epoch_action *action);

/* Answers to EPOCH_DO_COMPOSE; ignored in any other state than COMPOSING. The draft is not safe yet (rule 2): the
 * voters and these further members are asked to fetch what it needs. */
ERR_MUST_CHECK enum err epoch_draft(struct epoch *epoch, const uint8_t *bytes, size_t bytes_count,
                                    const uint32_t *asked, uint32_t asked_count, uint64_t now_ms);
/* This record is safe: propose it. */
ERR_MUST_CHECK enum err epoch_propose(struct epoch *epoch, const uint8_t *bytes, size_t bytes_count,
                                      const struct digest *digest, uint64_t now_ms);

enum epoch_state epoch_state(const struct epoch *epoch);
uint64_t epoch_ballot(const struct epoch *epoch); /* in which we propose, or did last */
/* Whether that voter promised in epoch_ballot(): what it said it holds is a seal. */
bool epoch_promised(const struct epoch *epoch, uint32_t id);
/* Sealed until record e + 1 is known: no result is made or acknowledged here. What is fetched for a draft is kept, but
 * is no acknowledgement, now or later in this epoch. */
bool epoch_sealed(const struct epoch *epoch);

#endif
