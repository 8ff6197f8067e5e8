/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attachment: the trainer's socket: admits a trainer, registers, starts and attaches it again, and reads its reports
 * while it trains.
 *
 *   NONE ──it connects──▶ REGISTERING ──all tensors said──▶ REGISTERED ──they fit the run──▶ WELCOMING, or RESUMING
 *   WELCOMING ──peers heard, or patience over──▶ INITIAL ──its tensors are in the base areas──▶ STARTING
 *       ├──────────the run has begun──────────────────────────────────────────────────────────────▲
 *       └──────────the same, and it has kept work──▶ KEEPING ──that is in the areas───────────────┘
 *   STARTING ──every fragment was brought to it──▶ TRAINING ◀──fragments are up to date── RESUMING
 *
 * What follows from what it says is posted; the engine brings the answers. Only the loop's thread calls; nothing
 * blocks. The trainer's messages are input: checked, and a bad one ends the attachment.
 */
#ifndef DAEMON_TRAINER_ATTACHMENT_H
#define DAEMON_TRAINER_ATTACHMENT_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "common/ipc.h"
#include "common/runspec.h"
#include "daemon/dconf.h"
#include "daemon/event.h"
#include "daemon/jobs.h"
#include "daemon/state/model_plan.h"
#include "daemon/state/replica.h"
#include "daemon/trainer/run_end.h"
#include "net/config/view.h"
#include "net/sync/sync.h"

/* All borrowed. */
struct trainer_conf {
    const struct dconf *conf;
    const struct runspec *spec;
    const struct view *view;
    struct events *events;
    struct jobs *jobs; /* NULL: what takes long is done at once */
    uint64_t start_ms; /* of the daemon */
};

/* The parts that exist once the run's plan is known; all borrowed. */
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
    bool unfinished; /* of the island: trainers have trained, and none has contributed all that it will */
    uint32_t pid;
    uint64_t step, tokens;      /* of the island: trainers before this one count, too, and daemons */
    uint64_t trained;           /* steps that this trainer has taken: none that it left out to follow the run */
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
    bool paused;                /* it is to stand still, since the run is paused */
    uint64_t done_step;         /* that it had taken when it said that it is done; 0: it has not */
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

struct attachment;
struct shared;

/* Opens worker.sock in the run folder. ERR_CONF: another daemon listens there. */
ERR_MUST_CHECK enum err attachment_new(const struct trainer_conf *conf, struct attachment **out);
void attachment_free(struct attachment *attachment);
void attachment_plan_known(struct attachment *attachment, const struct trainer_plan *plan);

size_t attachment_poll(const struct attachment *attachment, struct pollfd *items, size_t items_max);
/* Takes one message in, or a new connection; false: there was nothing. */
bool attachment_take(struct attachment *attachment, uint64_t now_ms);
void attachment_tick(struct attachment *attachment, uint64_t now_ms, bool peers_heard, const struct run_end_found *end);

/* EVENT_REGISTERED: its tensors, borrowed until the answer: they fit the run, or it is refused with a reason.
 * `other_base`: how those that are not trained differ from the run's, where that is allowed; "": they do not. */
const struct ipc_tensor *attachment_tensors(const struct attachment *attachment, uint32_t *count);
/* Whether one waits to be accepted or refused. */
bool attachment_registered(const struct attachment *a);
void attachment_accept(struct attachment *attachment, const char *other_base);
void attachment_refuse(struct attachment *attachment, const char *reason);
/* EVENT_STARTED, as trainer_started(). */
void attachment_started(struct attachment *attachment, uint32_t f, bool initial);
/* EVENT_READY: training goes on after this run step. */
void attachment_go(struct attachment *attachment, uint64_t step);
/* A trainer was started: what one before it has finished is over. */
void attachment_expect(struct attachment *attachment);
/* Asks a trainer that trains to finish; false: none does. */
bool attachment_leave(struct attachment *attachment, struct trainer_leaving *leaving);

/* What the configuration says: whether the run is paused; and its length, by the run spec's runspec_length(). */
void attachment_run(struct attachment *attachment, bool paused);

/* Brings the anchor to the trainer, or wakes it if it is there, or remembers that it waits. */
void attachment_publish(struct attachment *attachment, uint32_t f);
/* The word of a fragment has changed. */
void attachment_wake(struct attachment *attachment, uint32_t f);

/* An applied result counts its snapshot in these shards. */
void attachment_counted(struct attachment *attachment, uint32_t f, uint64_t version, uint64_t shards, double share);
/* Its snapshot could be sent, or not. */
void attachment_judged(struct attachment *attachment, uint32_t f, bool good);

/* The memory shared with a trainer that is there; NULL: none is, or it has gone. */
struct shared *attachment_shared(const struct attachment *attachment);
/* The memory that is pinned: its trainer may have gone. */
struct shared *attachment_pinned(const struct attachment *attachment);
/* It stands still for an anchor of this fragment. */
bool attachment_stands(const struct attachment *a, uint32_t f);
/* The core knows of the trainer in this fragment. */
bool attachment_up(const struct attachment *attachment, uint32_t f);
/* It brings no initial tensors: it said so, or this island joins a run that others have begun. */
bool attachment_without_initial(const struct attachment *attachment);
/* Jobs are taking its initial tensors over as the anchor. */
bool attachment_initialising(const struct attachment *attachment);
/* Its loss at one of its last steps; false: it did not say one, or that is too long ago. */
bool attachment_loss_at(const struct attachment *attachment, uint64_t step, double *loss);
/* Without what the process has to say. */
struct trainer_info attachment_info(const struct attachment *attachment);

#endif
