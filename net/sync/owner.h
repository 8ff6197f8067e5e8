/* SPDX-License-Identifier: Apache-2.0 */
/*
 * owner: the state machine of one part of a fragment at the island that owns it.
 *
 * A pure table: (state, event, time) to (state, order). It opens no socket, reads no clock, starts no thread; the
 * caller carries out the order and reports back.
 *
 *     COLLECTING ──everyone contributed or abstained, or quorum and grace──▶ REDUCING ──reduced──▶ STORING
 *         ▲                                                                                          │ durable:
 *         └──────────────────────────── round + 1, published to every member ◀───────────────────────┘
 *
 * If the result of this round turns up from another member (we had published it before a crash), that result stands:
 * the owner advances past it, and what a running reduction brings is dropped. As long as it is only known to exist, the
 * caller does not let the round close.
 */
#ifndef NET_SYNC_OWNER_H
#define NET_SYNC_OWNER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/bitset.h"

enum owner_state { OWNER_COLLECTING, OWNER_REDUCING, OWNER_STORING, OWNER_STATES };

enum owner_event {
    OWNER_CONTRIBUTED, /* member: its contribution to this round is here, whole and checked */
    OWNER_REFUSED,     /* member: its contribution to this round came and is unusable; another may come */
    OWNER_DROPPED,     /* member: the reduction failed at its contribution; this round does without it */
    OWNER_CHECK,       /* waiting, now_ms: someone abstained, or time went by */
    OWNER_REDUCED,     /* the mean is encoded */
    OWNER_STORED,      /* and durable */
    OWNER_ADVANCED,    /* version: a result for it stands */
    OWNER_OVERTAKEN,   /* the reduction was not begun: an epoch came first */
    OWNER_SHOWN,       /* somebody shows the result of this round: the one being made is of no use */
    OWNER_RESTARTED,   /* our state was wrong: contributions were accepted and refused by it */
    OWNER_BEGUN,       /* version: a new epoch: what came was for other shards; the round after this version begins */
    OWNER_EVENTS
};

enum owner_order { OWNER_NOTHING, OWNER_REDUCE, OWNER_STORE, OWNER_PUBLISH };

struct owner_rule {
    uint32_t quorum;   /* 0: everyone who takes part */
    uint64_t grace_ms; /* the most that a quorum waits for others */
};

struct owner {
    enum owner_state state;
    uint64_t round;        /* the version the next result makes */
    struct bitset have;    /* whose contribution is here */
    struct bitset refused; /* whose contribution was unusable */
    struct bitset late;    /* whose came while a job was at work; it counts if collecting goes on */
    struct bitset early;   /* of have and late: they came before their base could be compared with ours */
    uint64_t quorum_ms;    /* when the quorum was reached; 0 before */
    bool drop;             /* a reduction is running whose result is not needed any more */
};

struct owner_input {
    enum owner_event event;
    uint32_t member;
    uint64_t version;
    bool early;        /* OWNER_CONTRIBUTED: nobody knows yet whether its base is ours */
    bool missing;      /* OWNER_CHECK: someone takes part, may contribute and has not */
    uint64_t grace_ms; /* OWNER_CHECK: how long the missing ones are worth waiting for after the quorum */
    uint64_t now_ms;
};

/* `version`: the shard's last known result; the owner begins with the next. */
struct owner owner_init(uint64_t version);

enum owner_order owner_step(struct owner *owner, const struct owner_rule *rule, const struct owner_input *input);

const char *owner_state_name(enum owner_state state);

/* ---- how long an owner that has its quorum waits for one more island, learnt from how late that one usually is ----
 *
 * As TCP does for round trips (RFC 6298): a smoothed lateness and its deviation; an island is waited for so long that
 * it is very probably there, and one that was not there in spite of it is taken to be twice as late. One that is later
 * than the run allows is not waited for at all but in rounds that probe, or nobody would see that it has mended. */

struct grace {
    bool known;
    uint64_t late_ms, deviation_ms;
    uint64_t missed; /* rounds in a row that closed without it, though it takes part */
};

/* Its contribution came so long after the quorum was there; 0 if it was part of it. */
void grace_arrived(struct grace *grace, uint64_t late_ms);
/* A round closed without it, that long after the quorum was there. */
void grace_missed(struct grace *grace, uint64_t waited_ms);
/* Whether a round probes: one in eight, the same ones for the owners of all shards, since a version waits for each.
 * Fragments take turns. */
bool grace_probes(uint32_t fragment, uint64_t round);
/* How long after the quorum it is worth waiting for; at most `most_ms`. */
uint64_t grace_wait(const struct grace *grace, uint64_t most_ms, bool probe);

#endif
