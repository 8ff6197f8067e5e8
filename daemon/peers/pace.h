/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pace: how fast islands take steps, and how far one of them is believed to be by that. Private to peers/.
 *
 * All islands follow the step of the one that is furthest: learning rates and the run's end go by it. One that says
 * more than it has trained would end the run in minutes. So the line, up to which a single island is believed, rises
 * only so many times as fast as the owners' lower median trains: where two owners train or more, no number of
 * contributors moves that, nor a minority of the owners. Plain memory, only the loop's thread.
 */
#ifndef DAEMON_PEERS_PACE_H
#define DAEMON_PEERS_PACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of one island, by how many steps it says that its trainer has taken. All zero at first. */
struct pace {
    uint64_t begun_ms, begun; /* of the present window; 0 ms: there is none */
    uint64_t trained;
    double per_ms; /* in the window before; 0: there was none */
};

/* `trained`: steps taken since its trainer began; fewer than before: another one began. 0 is none, or not known yet: a
 * daemon that starts beside its trainer hears of all its steps at once. */
void pace_note(struct pace *pace, uint64_t trained, uint64_t now_ms);
/* Of a trainer that stands still: no step for 20 s, nor in the time in which it took four. */
enum { PACE_STILL = -1 };
/* Steps per millisecond: of the last window of ten seconds, or less if no step has come for longer than that says;
 * PACE_STILL; 0: it is not known yet. */
double pace_now(const struct pace *pace, uint64_t now_ms);

/* What an island's pace is, and whether it is an owner's. */
struct pace_said {
    double per_ms;
    bool owner;
};
/* The lower median of the owners' paces; of all, where fewer than two are owners'. Those that stand still say nothing
 * of how fast islands train, and are left out; one that is not known yet counts, so that nobody else's is the measure
 * until it is. 0 for none. Sorts `said`. */
double pace_usual(struct pace_said *said, size_t count);

/* All zero at first. */
struct step_line {
    double at;
    uint64_t ms; /* 0: it was never set */
};

/* Moves the line on to `now_ms` by `per_ms`; it is never below `sure` and never above `most`, run steps. Returns the
 * last step up to which a single island is believed. */
uint64_t step_line_move(struct step_line *line, uint64_t sure, uint64_t most, double per_ms, uint64_t now_ms);

#endif
