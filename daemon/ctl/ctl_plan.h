/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctl_plan: dilococtl plan: the share of its time that a run would train on a link and a machine. A table for each way
 * of synchronising: that share, the daemons' share of the machine, bandwidth, traffic; and a run spec to begin with.
 */
#ifndef DAEMON_CTL_CTL_PLAN_H
#define DAEMON_CTL_CTL_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "daemon/ctl/ctl_ways.h"
#include "daemon/ctl/calibrate.h"

struct ctl_plan {
    double params, step_s;
    uint64_t layers, islands, interval, overlap;
    const char *bandwidth; /* as 100Mbit */
    double rtt_ms, loss;
    double daemon_cores, daemon_memory; /* what a daemon may take, the latter in GiB; 0: as on this machine */
    bool half_duplex, json;
    const char *plot; /* file for a picture; NULL: none */
};

enum { PLAN_TARGETS = 5, PLAN_GRID = 50 };
/* A run that trains for this part of its time is good. */
#define PLAN_SHARE_GOOD 0.95
/* Most islands that are simulated, for the table and for the recommendation; they stand for more. */
enum { PLAN_FEW = 4, PLAN_CROWD = 128 };

/* What an island has. */
struct plan_machine {
    double cores, memory_bytes; /* that its daemon may take */
    struct calibration calibration;
    struct calibrate_codec codecs[WAYS];
};

/* What one way comes to. */
struct plan_outcome {
    double utilisation, bytes_per_day;
    double cores, memory_bytes; /* of an island's daemon; data-parallel: none */
    struct calibrate_cost cost;
    double needed[PLAN_TARGETS];                   /* bit/s */
    double curve[PLAN_GRID], bandwidth[PLAN_GRID]; /* for the picture: %, bit/s */
};

/* The most that a daemon's disk holds, as long as it keeps up with the rounds; and the time of saves on this machine's
 * disk, one job at a time. */
struct plan_saving {
    double checkpoints_bytes, ledger_bytes,
        exported_bytes;                             /* each with the new file that is written before the old one goes */
    double checkpoint_s, stop_s, export_s, start_s; /* all fragments; with residuals; the anchors; with all replayed */
};

struct plan_choice {
    size_t proposal; /* of ctl_ways_proposal() */
    uint64_t overlap;
    double utilisation, cores, memory_bytes;
    struct plan_saving saving;
    bool carried; /* by the cores and the memory there are */
};

struct plan_found {
    double bits_per_s;
    uint32_t fragments;
    struct plan_machine machine;
    struct plan_outcome outcomes[WAYS];
    struct plan_choice choice;
};

/* So many parameters, as 1e9, 350M or 1.3B, as people write the names of models. ERR_ARG. */
ERR_MUST_CHECK enum err ctl_plan_params(const char *text, double *params);

/* Measures this machine for about a second, and prints to stdout. ERR_ARG: a value that makes no sense; ERR_IO. */
ERR_MUST_CHECK enum err ctl_plan(const struct ctl_plan *plan);

/* The same in parts: the machine; and, pure, what it comes to. */
ERR_MUST_CHECK enum err ctl_plan_machine(const struct ctl_plan *plan, struct plan_machine *out);
ERR_MUST_CHECK enum err ctl_plan_find(const struct ctl_plan *plan, const struct plan_machine *machine,
                                      struct plan_found *found);

#endif
