/* SPDX-License-Identifier: Apache-2.0 */
/*
 * budget: what one member may cost this island, by kind, charged before the work is done. Private to peers/.
 *
 * Each kind has so many at once, and then one in so many microseconds (BUDGET_RULES in the .c, and the table in
 * docs/PROTOCOL.md, "What a member may cost"). What is beyond that is dropped, which an honest member mends by itself,
 * since all that matters is said again; whoever goes on has its link closed for a while, longer each time. The limits
 * are far above what an honest member says at its busiest. What has gathered while this island slept is no fault of its
 * sender (budget_credit()), nor are answers to what it was asked or sent (budget_earn()).
 *
 * Plain memory, all zero at first; the clock is the caller's. It closes nothing and logs nothing.
 */
#ifndef DAEMON_PEERS_BUDGET_H
#define DAEMON_PEERS_BUDGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum budget_kind {
    BUDGET_GREETINGS,  /* HELLO, BYE, BULK_HELLO */
    BUDGET_SESSIONS,   /* greetings of another session than before: transfers with it begin anew */
    BUDGET_HEARTBEATS, /* HEARTBEAT */
    BUDGET_ANSWERS,    /* ACK, DONE, beyond those that were earned */
    BUDGET_FETCHES,    /* FETCH: each may read the disk */
    BUDGET_EPOCH,      /* types 9 to 17 */
    BUDGET_EPOCH_KIB,  /* their KiB */
    BUDGET_QUESTIONS,  /* CONFIG_LOG */
    BUDGET_ORDERS,     /* ORDER, EVIDENCE */
    BUDGET_DIALS,      /* DIAL_REQUEST, DIAL_RESPONSE */
    BUDGET_CHUNKS,     /* chunks that bring nothing, each as 64 and its KiB, beyond what was earned; a question is 8 */
    BUDGET_FALSE,      /* signatures that are none */
    BUDGET_UNUSABLE,   /* messages of unknown types, of another version or run, that can't be read */
    BUDGET_KINDS
};
/* What a chunk that brings nothing counts as, beside its KiB; and one without bytes. */
enum { BUDGET_CHUNK = 64, BUDGET_CHUNK_QUESTION = 8 };

enum { BUDGET_TEXT_BYTES = 200 };

struct budget {
    uint64_t used_up_us[BUDGET_KINDS];
    uint64_t earned[BUDGET_KINDS];
    uint64_t most[BUDGET_KINDS];    /* that was used up at any time, of what may come at once */
    uint64_t dropped[BUDGET_KINDS]; /* since the link was closed last */
    uint64_t drops_us;              /* as of a kind: how much of its patience is used up */
    uint64_t closed_ms;             /* when its link was closed last; 0: never */
    uint64_t open_ms;               /* and until when */
    unsigned closings;              /* without a long time between them */
    char text[BUDGET_TEXT_BYTES];
};

/* Everybody's, for what gathered while we slept: nothing that comes within as long is too much. All zero at first. */
struct budget_credit {
    uint64_t until_us;
};
/* This island took nothing in for so long. */
void budget_credit(struct budget_credit *credit, uint64_t slept_ms, uint64_t now_ms);

/* Charges `count` of a kind. False: that is beyond the budget; it is noted, and what they are of is to be dropped. */
bool budget_take(struct budget *budget, const struct budget_credit *credit, enum budget_kind kind, uint32_t count,
                 uint64_t now_ms);
/* Charges what has been spent already, if need be beyond the budget: what comes next is dropped then. */
void budget_spend(struct budget *budget, enum budget_kind kind, uint32_t count, uint64_t now_ms);
/* It was asked for so many; at most as many as may come at once are remembered. */
void budget_earn(struct budget *budget, enum budget_kind kind, uint64_t count);

/* Whether so much of it was dropped that its link is to be closed. */
bool budget_is_exceeded(const struct budget *budget, const struct budget_credit *credit, uint64_t now_ms);
/* It is: for so many milliseconds. */
uint64_t budget_close(struct budget *budget, uint64_t now_ms);
/* For people: what it does, while its link is closed and for a minute after; else "". Borrowed. */
const char *budget_text(const struct budget *budget, uint64_t now_ms);
/* Of a kind: for people, what there is too much of; and how near to its limit it ever came, in percent. */
const char *budget_name(enum budget_kind kind);
uint64_t budget_percent(const struct budget *budget, enum budget_kind kind);

#endif
