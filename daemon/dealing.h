/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dealing: what this island knows of how data is dealt to it: the lists of its configurations, and how far the results
 * are that it has applied (common/deal.h). Plain memory, all zero at first; the loop's thread.
 */
#ifndef DAEMON_DEALING_H
#define DAEMON_DEALING_H

#include <stdbool.h>
#include <stdint.h>

#include "common/deal.h"
#include "common/err.h"
#include "net/config/config_log.h"

struct dealing {
    struct deal deal;
    uint64_t next_epoch; /* whose list is to be added next */
    bool begun;
};

/* Takes in the configurations that are new in the log, then the step of the results that were applied
 * (sync_steps()): in this order, as a result may be of an epoch that has just begun. `id`: ours. ERR_ARG: a list is
 * none, which no decided configuration has. */
ERR_MUST_CHECK enum err dealing_follow(struct dealing *dealing, const struct config_log *config_log, uint32_t id,
                                       uint64_t applied_step);

#endif
