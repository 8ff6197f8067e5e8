/* SPDX-License-Identifier: Apache-2.0 */
/*
 * paxos: how the voters of configuration e decide configuration e + 1: a seal and single-decree Paxos (Lamport, "Paxos
 * Made Simple", 2001) in one table, (state, event, time) -> (state, actions). The rules it keeps are those of
 * docs/PROTOCOL.md, "Epochs".
 *
 * It opens no socket or file and reads no clock. A configuration is bytes with a digest here; the caller signs, checks
 * signatures, unpacks, and says of each message whether it is `good`. One struct paxos serves one island for all
 * epochs: paxos_begin() whenever a configuration became the newest. Bytes given to it are copied.
 *
 * After each call that takes `now_ms`, drain paxos_action() until it says false; an action's pointers are borrowed
 * until the next such call. A message to our own id comes back as an event like any other.
 *
 * Another register that says "configuration e + 1 is ..." (a compare-and-swap elsewhere) takes the place of the second
 * half alone: seal and composing stay as they are, paxos_propose() hands the bytes to it instead of asking for ACCEPT,
 * and what it decided comes in as a DECIDED message that is `good`.
 */
#ifndef NET_MEMBERSHIP_PAXOS_H
#define NET_MEMBERSHIP_PAXOS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/digest.h"
#include "common/err.h"
#include "net/config/config.h"
#include "net/config/config_proof.h"
#include "net/membership/wire_paxos.h"

enum { PAXOS_VOTERS_MAX = 128, PAXOS_ASKED_MAX = 128 };

/* A ballot is (counter << 32 | id of the proposer); 0: none. */
static inline uint32_t paxos_ballot_id(uint64_t ballot)
{
    return (uint32_t)ballot;
}

/* Must be on disk before we speak: of one epoch, void in every other. */
struct paxos_vote {
    uint64_t epoch;
    uint64_t promised; /* 0: not sealed */
    uint64_t accepted; /* ballot in which `bytes` were accepted last; 0: none */
    uint64_t own;      /* the highest ballot we ever proposed in */
    struct digest digest;
    const uint8_t *bytes; /* of the accepted configuration */
    size_t bytes_count;
};

/*
 *   IDLE --wanted or sealed, our turn--> CLAIMING --ballot saved--> PREPARING --a majority promised--> COMPOSING
 *    ^                                                       an accepted  |                             |
 *    |                                                     configuration  |             paxos_propose()  |
 *    |                                                                  v                              v
 *    +---- REJECT of a higher ballot (pause) ---- from all --------- ACCEPTING <-----------------------+
 *                                                                       | a majority accepted in this ballot
 *   DECIDED <--- DECIDED that is good, in any state --------------------+
 */
enum paxos_state {
    PAXOS_IDLE,
    PAXOS_CLAIMING,
    PAXOS_PREPARING,
    PAXOS_COMPOSING,
    PAXOS_ACCEPTING,
    PAXOS_DECIDED,
    PAXOS_STATES
};

enum paxos_event_type {
    PAXOS_EV_TICK,
    PAXOS_EV_MESSAGE, /* from, message, good */
    PAXOS_EV_SAVED,   /* number: this vote and all before it are durable */
    /* flag: whether a change is wanted; number: how many configurations have left out something that was wanted when
     * they were made. */
    PAXOS_EV_WANT,
    PAXOS_EV_UP,    /* from, flag: whether that voter can be heard */
    PAXOS_EV_HEARD, /* from, epoch: that island says that this is its epoch */
    /* Rule 9, when every voter can be heard and so many disks are in doubt that the others are no majority: begin with
     * PAXOS_EV_RECOVER; PAXOS_EV_RECOVERED answers PAXOS_DO_TAKE_OVER. */
    PAXOS_EV_RECOVER,
    PAXOS_EV_RECOVERED,
    PAXOS_EVENTS
};

struct paxos_event {
    enum paxos_event_type type;
    uint32_t from;
    /* PROMISE with an accepted configuration, ACCEPT: it follows our configuration (next_config_follows()). ACCEPTED:
     * the signature is that voter's. DECIDED: proved by its votes, after our configuration. Others: true. Of one that
     * does not matter (paxos_matters()) it is not looked at. */
    bool good;
    bool flag;
    uint64_t number, epoch;
    const struct paxos_message *message;
};

enum paxos_action_type {
    PAXOS_DO_SAVE, /* make `vote` durable, then PAXOS_EV_SAVED with `number`; where that fails, say nothing */
    /* `message` to the island `to`. The caller adds what takes a key, a disk or other members: PROMISE: incarnation and
     * rows, for it is what that island holds. ACCEPTED: the signature. */
    PAXOS_DO_SEND,
    PAXOS_DO_COMPOSE,    /* when all else is drained: paxos_draft() or paxos_propose(), from the promise reports */
    PAXOS_DO_FETCH,      /* fetch what we lack of the draft's starts and carried results (`bytes`); sealed or not */
    PAXOS_DO_DECIDED,    /* `bytes` with `votes` is configuration e + 1: keep it durably, tell all, paxos_begin() */
    PAXOS_DO_CONFIG_LOG, /* send `to` the configurations after `epoch`, each as DECIDED; `asked`: it asked for them */
    PAXOS_DO_TAKE_OVER,  /* every voter promised: fetch what any of them holds; PAXOS_EV_RECOVERED when all is here */
    PAXOS_DO_VOTE, /* our disk is in doubt no more, by the incarnation that the configuration names: set the mark */
};

struct paxos_action {
    enum paxos_action_type type;
    uint32_t to;
    uint64_t number, epoch;
    bool asked;
    struct paxos_vote vote;
    struct paxos_message message;
    const uint8_t *bytes;
    size_t bytes_count;
    const struct config_vote *votes;
    uint32_t votes_count;
};

struct paxos_conf {
    uint32_t self;
    uint64_t seed;     /* of the pauses */
    uint64_t turn_ms;  /* how long the next one waits for the one before it to decide something */
    uint64_t again_ms; /* a message without an answer is sent again after this */
};

struct paxos;
ERR_MUST_CHECK enum err paxos_new(const struct paxos_conf *conf, struct paxos **out);
/* NULL is fine. */
void paxos_free(struct paxos *paxos);

/* Configuration `number` is the newest; `voters` are its voters in order of id, at most PAXOS_VOTERS_MAX (ERR_ARG).
 * `may_vote`: we are one of them and our disk is not in doubt (rule 9). `vote`: the one on disk; NULL: there is none;
 * one of an earlier epoch is void. With one of a later epoch nothing is promised, not even to who recovers: the
 * configuration that it belongs to is missing here, and another vote would take its place. */
ERR_MUST_CHECK enum err paxos_begin(struct paxos *paxos, uint64_t number, const uint32_t *voters, uint32_t voters_count,
                                    bool may_vote, const struct paxos_vote *vote, uint64_t now_ms);
/* ERR_NOMEM: as if the event had been lost. Whatever a message says, it reaches no assert. */
ERR_MUST_CHECK enum err paxos_step(struct paxos *paxos, const struct paxos_event *event, uint64_t now_ms);
bool paxos_action(struct paxos *paxos, struct paxos_action *action);
/* Whether it makes a difference what the message of that island says, as far as it can be told without its signatures:
 * look before you check these, and before you keep what a PROMISE says, for anybody may say anything. A PROMISE matters
 * in our ballot, of a voter or of one of those who were asked (paxos_draft()). */
bool paxos_matters(const struct paxos *paxos, uint32_t from, const struct paxos_message *message, uint64_t now_ms);

/* Answers to PAXOS_DO_COMPOSE; ignored in any other state than COMPOSING. The draft is not safe yet (rule 2): the
 * voters and these further members are asked to fetch what it needs. */
ERR_MUST_CHECK enum err paxos_draft(struct paxos *paxos, const uint8_t *bytes, size_t bytes_count,
                                    const uint32_t *asked, uint32_t asked_count, uint64_t now_ms);
/* This configuration is safe: propose it. */
ERR_MUST_CHECK enum err paxos_propose(struct paxos *paxos, const uint8_t *bytes, size_t bytes_count,
                                      const struct digest *digest, uint64_t now_ms);

enum paxos_state paxos_state(const struct paxos *paxos);
uint64_t paxos_ballot(const struct paxos *paxos); /* in which we propose, or did last */
/* Whether that voter promised in paxos_ballot(): then its report is a seal. */
bool paxos_promised(const struct paxos *paxos, uint32_t id);
/* Sealed until configuration e + 1 is known: no result is made or acknowledged here. Results fetched for a draft are
 * kept, and never acknowledged in this epoch. */
bool paxos_sealed(const struct paxos *paxos);

#endif
