/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_end: whether the run is over, as this island sees it.
 *
 * Pure: it looks into the protocol's core and at what the others say of their trainers, and of time knows what it is
 * told.
 */
#ifndef DAEMON_TRAINER_RUN_END_H
#define DAEMON_TRAINER_RUN_END_H

#include <stdbool.h>
#include <stdint.h>

#include "common/bitset.h"
#include "net/sync/sync.h"
#include "net/config/view.h"

enum run_end {
    RUN_GOES_ON, /* contributions or anchors are still to come */
    RUN_OPEN,    /* none is on its way, and somebody may contribute again: `open` */
    RUN_OVER     /* everybody has contributed all, and our trainer has the last anchors */
};

struct run_end_found {
    enum run_end end;
    struct bitset open; /* slots; of RUN_OPEN: who has not said that it has contributed all, and trains no more */
};

/* What a member last said of its trainer. */
struct run_said {
    uint32_t trainer; /* enum wire_trainer */
    bool unfinished;  /* its trainers have trained, and none has said that it has contributed all that it will */
};

/* `said`: of each member, by slot. `gone`: ours was done, and is not attached any more; what is told to one that is
 * attached must not go by that. */
struct run_end_found run_end_of(const struct sync *sync, const struct view *view, uint32_t fragments_count,
                                const struct run_said *said, bool gone);

/* For a daemon that ends with its run (dilocod --until-over). Zeroed it has seen no end. */
struct run_close {
    uint64_t since_ms; /* 0: it is not at its end */
    enum run_end end;
};

/* Looked at again and again: whether nobody needs this daemon any more. `finished`: our trainer has done the run's
 * steps, and its process has ended. That no other trainer has anything to do has held for some seconds, in which the
 * last results went round; where one that takes part may contribute again, for minutes. */
bool run_close_due(struct run_close *close, const struct run_end_found *found, bool finished, const struct sync *sync,
                   const struct view *view, const struct run_said *said, uint64_t now_ms);

#endif
