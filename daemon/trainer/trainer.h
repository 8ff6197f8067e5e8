/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trainer: the island's trainer as the daemon sees it: its socket, the memory shared with it, and its process.
 *
 * What it says is posted as events; orders and answers come from the engine. It reads the protocol's core and never
 * writes it. Only the loop's thread calls; nothing blocks. Memory that jobs read or fill is pinned from the event or
 * order that hands it out until the answer comes back.
 */
#ifndef DAEMON_TRAINER_TRAINER_H
#define DAEMON_TRAINER_TRAINER_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/bitset.h"
#include "common/err.h"
#include "common/ipc.h"
#include "daemon/trainer/run_end.h"
#include "daemon/trainer/trainer_types.h"

struct trainer;

/* Opens the socket; a trainer of before that still runs is taken over. Starts none yet. What `conf` points to is
 * borrowed until trainer_free(). ERR_CONF: another daemon listens there, or the folder cannot be written; ERR_IO,
 * ERR_NOMEM. */
ERR_MUST_CHECK enum err trainer_new(const struct trainer_conf *conf, struct trainer **out);
void trainer_free(struct trainer *trainer);
void trainer_plan_known(struct trainer *trainer, const struct trainer_plan *plan);
/* Starts the process, if the configuration says so and none runs. As trainer_join() otherwise. */
ERR_MUST_CHECK enum err trainer_autostart(struct trainer *trainer, uint64_t now_ms);

size_t trainer_poll(const struct trainer *trainer, struct pollfd *items, size_t items_max);
/* Takes one thing in that has happened; false: there was nothing. */
bool trainer_take(struct trainer *trainer, uint64_t now_ms);
/* Once a tick. `peers_heard`: every other island has said how it stands, so that a run under way is not begun anew.
 * `end`: whether the run is over, which a trainer that is done waits for. */
void trainer_tick(struct trainer *trainer, uint64_t now_ms, bool peers_heard, enum run_end end);

/* ---- answers to its events ---- */

/* EVENT_REGISTERED: its tensors, borrowed until the answer: they fit the run, or it is refused with a reason.
 * `other_base`: how those that are not trained differ from the run's, where that is allowed; "": they do not. */
const struct ipc_tensor *trainer_tensors(const struct trainer *trainer, uint32_t *count);
/* Whether one waits to be accepted or refused. */
bool trainer_registered(const struct trainer *trainer);
void trainer_accept(struct trainer *trainer, const char *other_base);
void trainer_refuse(struct trainer *trainer, const char *reason);
/* EVENT_START: the base area to copy to or from; EVENT_FILL: the area to fill. Pinned until the answer. */
float *trainer_base(struct trainer *trainer, uint32_t f);
float *trainer_area(struct trainer *trainer, uint32_t f);
void trainer_started(struct trainer *trainer, uint32_t f, bool initial);
void trainer_given(struct trainer *trainer, uint32_t f);
/* EVENT_READY: training goes on after this run step. */
void trainer_go(struct trainer *trainer, uint64_t step);

/* ---- the core's orders, and what rounds say ---- */

/* The snapshot to encode, pinned until trainer_encoded(); false: its trainer has gone. */
bool trainer_snapshot(struct trainer *trainer, uint32_t f, struct replica_snapshot *out);
void trainer_encoded(struct trainer *trainer, uint32_t f, enum err err);
void trainer_counted(struct trainer *trainer, uint32_t f, uint64_t version, uint64_t shards, double share);
void trainer_release(struct trainer *trainer, uint32_t f);
void trainer_give(struct trainer *trainer, uint32_t f);
void trainer_take_back(struct trainer *trainer, uint32_t f);
/* How far the run is, by the furthest island. */
void trainer_run_step(struct trainer *trainer, uint64_t step);

/* ---- commands ---- */

/* ERR_STATE or ERR_CONF say why not. A trainer that leaves trains on until each fragment's next contribution is due,
 * has these counted, and ends. */
ERR_MUST_CHECK enum err trainer_join(struct trainer *trainer, uint64_t now_ms);
ERR_MUST_CHECK enum err trainer_leave(struct trainer *trainer, struct trainer_leaving *leaving);
/* Without waiting for the last contributions to be counted: it is asked to save and end, and killed if it has not in
 * time ([worker] stop). Said again, it kills it at once: `*killed`. */
ERR_MUST_CHECK enum err trainer_leave_now(struct trainer *trainer, bool *killed);
/* It said that it is done (EVENT_FINISHED): its end is not a failure. */
void trainer_finished(struct trainer *trainer);
/* The daemon stops: the process is asked to end. */
void trainer_stop(struct trainer *trainer);
/* A process that the daemon started is there. */
bool trainer_running(const struct trainer *trainer);

/* ---- looking in ---- */

enum trainer_phase {
    TRAINER_NONE,       /* no process is configured, and none is attached */
    TRAINER_STOPPED,    /* it was told to stop, or not to start */
    TRAINER_STARTING,   /* it runs or is attached, and does not train yet */
    TRAINER_TRAINING,   /* it takes steps */
    TRAINER_FINISHING,  /* it has its last contributions counted, and waits for the run's end */
    TRAINER_FINISHED,   /* it has done the run's steps */
    TRAINER_LEAVING,    /* it has nothing more to contribute, or is not waited for, and ends */
    TRAINER_RESTARTING, /* it failed, and is started again after a pause */
    TRAINER_ENDED,      /* it ended by itself, and well, before it was done */
    TRAINER_PHASES
};
/* What the trainer does, for everyone who asks. */
enum trainer_phase trainer_phase(const struct trainer *trainer);
const char *trainer_phase_name(enum trainer_phase phase);

struct trainer_info trainer_info(const struct trainer *trainer);
/* Its loss at one of its last steps; false: it did not say one, or that is too long ago. */
bool trainer_loss_at(const struct trainer *trainer, uint64_t step, double *loss);
/* It stands still for a round of this fragment (waits_ms). */
bool trainer_stands(const struct trainer *trainer, uint32_t f);
/* The one that is there brings no initial tensors. */
bool trainer_without_initial(const struct trainer *trainer);
/* Jobs are taking its initial tensors over as the anchor. */
bool trainer_initialising(const struct trainer *trainer);

#endif
