/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replica_types: what a replica is made for.
 */
#ifndef DAEMON_STATE_REPLICA_TYPES_H
#define DAEMON_STATE_REPLICA_TYPES_H

#include <stdbool.h>

#include "outer_opt/codec_types.h"
#include "outer_opt/outer.h"
#include "outer_opt/outlier.h"
#include "outer_opt/plan.h"

struct replica_conf {
    const struct plan *plan; /* borrowed */
    struct outer_conf outer;
    struct codec_choice choice;
    bool adaptive; /* tensor by tensor the codec that serves it best, at the error `choice` would make */
    bool error_feedback;
    float feedback_decay; /* share of a residual that is kept from one round to the next; 1: all */
    float feedback_limit; /* largest residual over the usual outer gradient, as norms; 0: none */
    struct outlier_conf outliers;
};

#endif
