/* SPDX-License-Identifier: Apache-2.0 */
/*
 * deal: which windows of a corpus that all islands share each of them draws, so that no two draw the same one.
 *
 * The windows of a pass stand in one order. At each run step the members of a list have the next positions in that
 * order, each as many as its units; one unit is one window. A configuration says from which step, and which position,
 * its list is in force. An island far ahead of the results that it knows, or of a step before its first list, draws
 * from a reserve: the last sixteenth of the pass, of which each id has a piece of its own, and when it has been through
 * that, its piece of the pass after it. The rules, and why they hold, stand in deal.c.
 *
 * Integer arithmetic alone, with one outcome everywhere. Pure; no allocation.
 */
#ifndef COMMON_DEAL_H
#define COMMON_DEAL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

enum {
    DEAL_MEMBERS_MAX = 1024,
    DEAL_UNITS_MAX = 1 << 20, /* of a member */
    DEAL_MEDIANS = 64,        /* nor more than so many times the median */
    DEAL_LISTS = 16,          /* kept */
    DEAL_RESERVE = 16,        /* the reserve is this part of a pass */
};

struct deal_share {
    uint32_t id;    /* of the member */
    uint32_t units; /* windows that it draws in a step; 0: none is dealt to it */
};

/* The run step from which a list is in force, and the position of its first unit at that step. */
struct deal_start {
    uint64_t step, position;
};

/* As a configuration has it. */
struct deal_list {
    struct deal_start start;
    /* No result of an earlier epoch that anybody applies, ever, names a later run step (deal_counted_step()). */
    uint64_t counted_step;
    const struct deal_share *shares; /* in order of id, each once; borrowed */
    uint32_t count;
};

/* ---- how a configuration comes by its list ---- */

/* Sum of the units. */
uint64_t deal_units(const struct deal_share *shares, uint32_t count);
/* Limits units to DEAL_UNITS_MAX, and to DEAL_MEDIANS times the median of those above 0: one that says more than the
 * others draw would leave most of the corpus undrawn. At most DEAL_MEMBERS_MAX. */
void deal_limit(struct deal_share *shares, uint32_t count);
bool deal_same(const struct deal_share *left, uint32_t left_count, const struct deal_share *right,
               uint32_t right_count);
/* Where the next list starts, which differs from this one. `horizon`: twice the interval, in steps; `counted_step`: of
 * the configuration that has the next list. */
struct deal_start deal_start_next(const struct deal_list *list, uint64_t counted_step, uint64_t horizon);

/* What a voter that has sealed says: the largest run step that a result names which it has applied or holds durably. */
struct deal_claim {
    uint64_t step;
    uint32_t id;
};
/* Of voters whose answers were sorted by deal_sort(), the first of which are enough to decide without the others: the
 * step of the last of these. Whatever is committed one of them holds, so a larger claim is none. */
void deal_sort(struct deal_claim *claims, uint32_t count);
/* `enough`: whether the first `count` claims are enough. The counted step of the next configuration: never below that
 * of the one before. Without enough claims: the largest. */
uint64_t deal_counted_step(uint64_t before, const struct deal_claim *claims, uint32_t count,
                           bool (*enough)(void *user, const struct deal_claim *claims, uint32_t count), void *user);

/* ---- what one draws ---- */

/* A member's part of a list. */
struct deal_cut {
    struct deal_start start;
    uint64_t units;       /* of all */
    uint64_t before, own; /* of those before it in order of id, and its own; 0: it is not in the list */
};

/* What a member knows. Plain memory, of 64-bit words alone: it may be copied, and shared with a trainer. */
struct deal {
    uint64_t id, horizon, counted;
    uint64_t count;                   /* 0: nothing is dealt */
    struct deal_cut cuts[DEAL_LISTS]; /* the oldest first */
};
/* Of a member that knows no list yet. */
struct deal deal_of(uint32_t id, uint64_t horizon);
/* The list of a configuration that is decided, in order of epochs; some may be left out before the first. A list like
 * the last is none. Of more than DEAL_LISTS the oldest is forgotten. ERR_ARG: it starts before the last one, or its
 * shares are out of order or too many. */
ERR_MUST_CHECK enum err deal_add(struct deal *deal, const struct deal_list *list);
/* A result was applied here that names this run step, of an epoch whose configuration was added before. Not the step of
 * a state that was taken over from others: whoever made it may know a configuration that is not known here. */
void deal_counted(struct deal *deal, uint64_t step);
/* Up to this run step units are dealt, now. */
uint64_t deal_last_step(const struct deal *deal);

/* A window, whatever the length of the pass. */
struct deal_place {
    bool dealt;        /* else it is from the reserve of `id` */
    uint64_t position; /* dealt: of the unit; reserve: about where the others are */
    uint64_t turn;     /* reserve: which of its own */
    uint64_t since;    /* reserve: turns since it began to draw of it */
    uint32_t id;
};
/* The place of window `unit` of the `units` that the member draws for run step `step`, as of now: judged when it is
 * drawn, however much later it is trained on. The same place for the same step, unless that was not dealt before. */
struct deal_place deal_place(const struct deal *deal, uint64_t step, uint32_t unit, uint32_t units);

struct deal_window {
    uint64_t pass, index; /* in the order of the pass, below its length */
    bool shared;          /* others may draw it, too: the pass is too short for a reserve of one's own */
};
/* In a corpus of `windows` windows, above 0. */
struct deal_window deal_window(const struct deal_place *place, uint64_t windows);

/* The order of a pass: which window of the corpus stands at `index`. A permutation of [0, windows) for each key. */
uint64_t deal_key(uint64_t seed, uint64_t pass);
uint64_t deal_shuffled(uint64_t index, uint64_t windows, uint64_t key);

#endif
