/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_end: whether the run is over, as this island sees it.
 *
 * Pure: it looks into the protocol's core and at what the others say of their trainers.
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

/* `trainers`: of each member, what its trainer does, as it last said (enum wire_trainer). */
enum run_end run_end_of(const struct sync *sync, const struct view *view, uint32_t fragments_count,
                        const uint32_t *trainers);

/* Whether what `member` has to contribute is waited for, as long as it has a trainer: it takes part, and has not said
 * that it has contributed all. Never ourselves. */
bool run_end_waits_for(const struct sync *sync, const struct view *view, uint32_t fragments_count, uint32_t member);

#endif
