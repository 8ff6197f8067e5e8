/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trainer_types: what trainer/'s parts are born with and what they tell, for trainer.h and the parts below it.
 */
#ifndef DAEMON_TRAINER_TRAINER_TYPES_H
#define DAEMON_TRAINER_TRAINER_TYPES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/ipc.h"
#include "common/runspec.h"
#include "daemon/dconf.h"
#include "daemon/event.h"
#include "daemon/jobs.h"
#include "daemon/state/model_plan.h"
#include "daemon/state/replica.h"
#include "net/sync/sync.h"
#include "net/config/view.h"

/* All borrowed. */
struct trainer_conf {
    const struct dconf *conf;
    const struct runspec *spec;
    const struct view *view;
    struct events *events;
    struct jobs *jobs; /* NULL: what takes long is done at once */
    uint64_t start_ms; /* of the daemon */
};

/* What is there once the run's plan is known; all borrowed. */
struct trainer_plan {
    const struct model_plan *plan;
    struct replica *replica; /* for what its anchors count */
    const struct sync *sync;
    uint64_t listens_ms; /* since when other islands are listened to; 0: since the daemon's start */
};

/* How long a trainer that leaves trains on, until its last contributions are due. */
struct trainer_leaving {
    uint64_t steps;
    double seconds; /* at its present speed; 0: not known */
};

struct trainer_info {
    bool attached;
    bool left;    /* it was asked to leave */
    bool counted; /* its last contributions are counted: it has nothing more to do */
    bool training, finishing;
    uint32_t pid;
    uint64_t step, tokens;      /* of the island: trainers before this one count, too, and daemons */
    uint64_t tokens_counted;    /* of these, in the anchors: the mean over all parameters */
    double loss, grad_norm;     /* 0: it does not say; NaN: it is no number */
    double tokens_per_s, lr;    /* tokens_per_s: 0, too, where no report has come for long */
    struct ipc_machine machine; /* as it said, and finite */
    double flops_per_s;         /* of the model, by tokens_per_s; 0: not known */
    const char *other_base;     /* how what it trains upon differs from the run's base; "": it does not */
    double mfu;                 /* model FLOPs utilization, that rate's share of the machine's peak; 0: not known */
    uint64_t ready_ms;          /* since when it may take steps; 0: not yet */
    uint64_t report_ms;         /* when it last reported; 0: not yet */
    uint64_t slowest_ms;        /* that a step took so far, without waiting for others; 0: there was none */
    uint64_t waits_ms;          /* since when it stands still, as late = wait has it, for a round; 0: it does not */
    uint32_t bad_fragments;     /* of which its last snapshot could not be sent: it held NaN or Inf */
    uint64_t bad_most;          /* the most in a row */
    uint64_t unattached_ms;     /* since when its process has run without being attached; 0: it does not, or is */
    const char *process_name;   /* what its process does */
    const char *process_note;   /* how its process ended, where that was not as it should be; "" */
    const char *process_path;   /* where the program was found that was named without a folder; "" */
    bool process_left;          /* it does not run since people asked for that */
    bool ended_badly;           /* it had nothing more to contribute, and ended with a failure */
    unsigned failures;
};

#endif
