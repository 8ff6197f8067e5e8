/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attachment: the trainer's socket: who may attach, registering, starting, attaching again, and what it says while it
 * trains. Private to trainer/.
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
#include "daemon/trainer/run_end.h"
#include "daemon/trainer/trainer_types.h"

struct attachment;
struct shared;

/* Opens worker.sock in the run folder. ERR_CONF: another daemon listens there. */
ERR_MUST_CHECK enum err attachment_new(const struct trainer_conf *conf, struct attachment **out);
void attachment_free(struct attachment *attachment);
void attachment_plan_known(struct attachment *attachment, const struct trainer_plan *plan);

size_t attachment_poll(const struct attachment *attachment, struct pollfd *items, size_t items_max);
/* Takes one message in, or a new connection; false: there was nothing. */
bool attachment_take(struct attachment *attachment, uint64_t now_ms);
void attachment_tick(struct attachment *attachment, uint64_t now_ms, bool peers_heard, enum run_end end);

/* As in trainer.h. */
void attachment_accept(struct attachment *attachment, const char *other_base);
void attachment_started(struct attachment *attachment, uint32_t f, bool initial);
void attachment_go(struct attachment *attachment, uint64_t step);
void attachment_refuse(struct attachment *attachment, const char *reason);
/* A trainer was started: what one before it has finished is over. */
void attachment_expect(struct attachment *attachment);
/* Asks a trainer that trains to finish; false: none does. */
bool attachment_leave(struct attachment *attachment, struct trainer_leaving *leaving);

/* Brings the anchor to the trainer, or wakes it if it is there, or remembers that it waits. */
void attachment_give(struct attachment *attachment, uint32_t f);
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
const struct ipc_tensor *attachment_tensors(const struct attachment *attachment, uint32_t *count);
/* Whether one waits to be accepted or refused. */
bool attachment_registered(const struct attachment *a);
/* It brings no initial tensors: it said so, or this island joins a run that others have begun. */
bool attachment_without_initial(const struct attachment *attachment);
/* Jobs are taking its initial tensors over as the anchor. */
bool attachment_initialising(const struct attachment *attachment);
/* As trainer_loss_at(). */
bool attachment_loss_at(const struct attachment *attachment, uint64_t step, double *loss);
/* Without what the process has to say. */
struct trainer_info attachment_info(const struct attachment *attachment);

#endif
