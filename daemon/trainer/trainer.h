/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trainer: the island's trainer as the daemon sees it: its socket, the memory shared with it, and its process.
 *
 * What it says is posted as events; orders and answers come from the engine. It reads the protocol's core and never
 * writes it. Only the loop's thread calls; nothing blocks. Memory that jobs read or fill is pinned from the event or
 * order that hands it out until the answer comes back.
 *
 * Owns: the trainer's process, its socket and the memory shared with it; tokens trained and counted.
 * Called by: daemon, daemon/control, daemon/membership, daemon/peers, daemon/transfer.
 * Never includes: daemon/peers/, daemon/transfer/, daemon/membership/, daemon/rounds/, daemon/control/, <zmq.h>,
 * <pthread.h>.
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
#include "daemon/trainer/attachment.h"
#include "daemon/trainer/run_end.h"

struct process;

/* Its socket and its process, each as its own header has it, and what follows from both. */
struct trainer {
    struct trainer_conf conf;
    struct trainer_plan plan;
    struct attachment *attachment;
    struct process *process;
    uint64_t unattached_ms;  /* since when the process has run without being attached; 0: it does not, or is */
    uint64_t step, moved_ms; /* the last that it has taken, and when it did, or need not have */
};

/* Opens the socket; a trainer of before that still runs is taken over. Starts none yet. What `conf` points to is
 * borrowed until trainer_free(). ERR_CONF: another daemon listens there, or the folder cannot be written; ERR_IO,
 * ERR_NOMEM. */
ERR_MUST_CHECK enum err trainer_new(const struct trainer_conf *conf, struct trainer **out);
void trainer_free(struct trainer *trainer);
void trainer_plan_known(struct trainer *trainer, const struct trainer_plan *plan);

size_t trainer_poll(const struct trainer *trainer, struct pollfd *items, size_t items_max);
/* Takes one thing in that has happened; false: there was nothing. */
bool trainer_take(struct trainer *trainer, uint64_t now_ms);
/* Once a tick. `peers_heard`: every other island has said how it stands, so that a run under way is not begun anew.
 * `end`: whether the run is over, which a trainer that is done waits for. */
void trainer_tick(struct trainer *trainer, uint64_t now_ms, bool peers_heard, const struct run_end_found *end);

/* What the configuration says: whether the run is paused; and its length, by the run spec's runspec_length(). */
void trainer_run(struct trainer *trainer, bool paused);
/* It said that it is done, and the run was made longer since: one that the daemon starts is started again. */
bool trainer_outgrown(const struct trainer *trainer);

/* ---- answers to its events ---- */

/* EVENT_START: the base area to copy to or from; EVENT_FILL: the area to fill. Pinned until the answer. */
float *trainer_base(struct trainer *trainer, uint32_t f);
float *trainer_area(struct trainer *trainer, uint32_t f);
void trainer_started(struct trainer *trainer, uint32_t f, bool initial);
void trainer_published(struct trainer *trainer, uint32_t f);

/* ---- the core's orders, and what rounds say ---- */

/* The snapshot to encode, pinned until trainer_encoded(); false: its trainer has gone. */
bool trainer_snapshot(struct trainer *trainer, uint32_t f, struct replica_snapshot *out);
void trainer_encoded(struct trainer *trainer, uint32_t f, enum err err);
void trainer_counted(struct trainer *trainer, uint32_t f, uint64_t version, uint64_t shards, double share);
void trainer_release(struct trainer *trainer, uint32_t f);
void trainer_publish(struct trainer *trainer, uint32_t f);
void trainer_withdraw(struct trainer *trainer, uint32_t f);
/* How far the run is, by the furthest island. */
void trainer_run_step(struct trainer *trainer, uint64_t step);
/* How data is dealt to this island, now. */
void trainer_deal(struct trainer *trainer, const struct deal *deal);

/* ---- commands ---- */

/* ERR_STATE or ERR_CONF say why not. A trainer that leaves trains on until each fragment's next contribution is due,
 * has these counted, and ends. */
ERR_MUST_CHECK enum err trainer_join(struct trainer *trainer, uint64_t now_ms);
ERR_MUST_CHECK enum err trainer_leave(struct trainer *trainer, struct trainer_leaving *leaving);
/* Without waiting for the last contributions to be counted: it is asked to save and end, and killed if it has not in
 * time ([worker] stop). Said again, it kills it at once: `*killed`. */
ERR_MUST_CHECK enum err trainer_leave_now(struct trainer *trainer, bool *killed);

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

#endif
