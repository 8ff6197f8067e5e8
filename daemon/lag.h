/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lag: the daemon's use of time: how long its loop does not look at its sockets, and how many processors all its
 * threads take.
 *
 * A turn is all that the loop does between two waits; while it lasts, no heartbeat goes out and nobody is answered. The
 * loop says when a turn begins, what it has done, and when the turn ends; it keeps the longest turn lately and since
 * the start, and the longest step of the present one, by name. Plain structs, zero at birth; times come as arguments
 * and may only go on; only the loop's thread calls.
 */
#ifndef DAEMON_LAG_H
#define DAEMON_LAG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* LONG: what a turn may take at most; a longer one is worth a line in the log. */
enum { LAG_LONG_MS = 50, LAG_SPANS = 13, LAG_SPAN_MS = 5000 };
/* After so much of a turn nothing more is taken in that can wait for the next. */
enum { LAG_SHARE_MS = 15 };

struct lag {
    uint64_t turn_ns, step_ns; /* when the turn, and the present step of it, began */
    const char *slowest;       /* the turn's longest step; NULL: there was none */
    uint64_t slowest_ns;       /* what it took */
    uint64_t most_ms;          /* the longest turn since the start */
    struct lag_span {
        uint64_t number; /* of the span of LAG_SPAN_MS that it is of, counted from 1 */
        uint64_t most_ms;
    } spans[LAG_SPANS]; /* by number, modulo their count */
};

/* A turn begins. */
void lag_turn(struct lag *lag, uint64_t now_ns);
/* A step has ended: it began where the one before ended, or with the turn. `name` is borrowed until the turn after this
 * one. */
void lag_step(struct lag *lag, const char *name, uint64_t now_ns);
/* Whether the turn has lasted so long that what can wait should. */
bool lag_is_up(const struct lag *lag, uint64_t now_ns);
/* The turn ends. Returns what it took, in whole milliseconds. */
uint64_t lag_end(struct lag *lag, uint64_t now_ns);
/* The longest turn that ended within the last minute, in milliseconds; 0: none took one. */
uint64_t lag_lately_ms(const struct lag *lag, uint64_t now_ms);

/* ---- processors, lately ---- */

enum { LOAD_SAMPLES = 13, LOAD_EVERY_MS = 5000 };

struct load {
    uint64_t at_ms[LOAD_SAMPLES], cpu_ns[LOAD_SAMPLES]; /* a ring */
    size_t count;                                       /* of all samples so far */
};

/* Now and then. `cpu_ns`: of all threads, since the process began. */
void load_note(struct load *load, uint64_t now_ms, uint64_t cpu_ns);
/* Processors taken in the mean of the last minute, or since the first note; 0: there were not two yet. */
double load_cores(const struct load *load);

#endif
