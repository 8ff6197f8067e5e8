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

#include "net/sync/sync.h"
#include "net/config/view.h"

enum run_end {
    RUN_GOES_ON, /* contributions or anchors are still to come */
    RUN_OPEN,    /* all members here have contributed all; one that is away has not said so */
    RUN_OVER     /* everybody has, and our trainer has the last anchors */
};

/* `trainers`: of each member, what its trainer does, as it last said (enum wire_trainer). `gone`: ours was done, and is
 * not attached any more; what is told to one that is attached must not go by that. */
enum run_end run_end_of(const struct sync *sync, const struct view *view, uint32_t fragments_count,
                        const uint32_t *trainers, bool gone);

/* Whether what `member` has to contribute is waited for, as long as it has a trainer: it takes part, and has not said
 * that it has contributed all. Never ourselves. */
bool run_end_waits_for(const struct sync *sync, const struct view *view, uint32_t fragments_count, uint32_t member);

/* For a daemon that ends with its run (dilocod --until-over). Zeroed it has seen no end. */
struct run_close {
    uint64_t since_ms; /* 0: it is not at its end */
    enum run_end end;
};

/* Looked at again and again: whether nobody needs this daemon any more. `finished`: our trainer has done the run's
 * steps, and its process has ended. That no other trainer has anything to do has held for some seconds, in which the
 * last results went round; while somebody is away who has not said so, for minutes. */
bool run_close_due(struct run_close *close, enum run_end end, bool finished, const struct sync *sync,
                   const struct view *view, const uint32_t *trainers, uint64_t now_ms);

#endif
