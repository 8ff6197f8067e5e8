/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shared: the memory that the daemon and its trainer share (common/ipc.h): made or taken over, and the daemon's moves
 * in it. Private to trainer/.
 *
 * The trainer can write anywhere in it, so what matters of the layout is kept here and never asked there. It tells
 * nobody: every call returns what follows. Only the loop's thread calls; jobs get pointers into it and hold it with a
 * pin.
 */
#ifndef DAEMON_TRAINER_SHARED_H
#define DAEMON_TRAINER_SHARED_H

#include <stdbool.h>
#include <stdint.h>

#include "common/bitset.h"
#include "common/err.h"
#include "common/ipc.h"
#include "common/runspec.h"
#include "daemon/state/model_plan.h"
#include "daemon/state/replica.h"
#include "net/config/view.h"

/* All borrowed. */
struct shared_conf {
    const struct runspec *spec;
    const struct view *view;
    const struct model_plan *plan;
};

struct shared;

/* New memory. ERR_NOMEM. */
ERR_MUST_CHECK enum err shared_make(const struct shared_conf *conf, struct shared **out);
/* That of a trainer which attaches again, by its descriptor, which is then ours. ERR_PROTO: it is not ours, or of
 * another run; the descriptor is closed then, too. */
ERR_MUST_CHECK enum err shared_adopt(const struct shared_conf *conf, int fd, uint64_t session, struct shared **out);
/* Gives the memory back, which may take a tenth of a second a gigabyte: on a job's thread, where nobody else uses it
 * any more. shared_free() follows. */
void shared_unmap(struct shared *shared);
void shared_free(struct shared *shared);

int shared_fd(const struct shared *shared);
uint64_t shared_session(const struct shared *shared);
uint64_t shared_bytes(const struct shared *shared);

/* A job is at the memory; it is not to be freed. */
void shared_pin(struct shared *shared);
void shared_unpin(struct shared *shared);
bool shared_pinned(const struct shared *shared);

/* The area that holds the base, and the other one: each has all values of the fragment, padding included. They swap
 * when the trainer has taken an anchor in. Borrowed until shared_free(), which a pin holds off. */
float *shared_base(struct shared *shared, uint32_t f);
float *shared_area(struct shared *shared, uint32_t f);

/* ---- for all fragments ---- */

/* The trainer, which has taken `step`, is asked to finish; the step by which its last contributions are due. */
uint64_t shared_leave(struct shared *shared, uint64_t step);
/* Where the furthest island is. */
void shared_run_step(struct shared *shared, uint64_t step);
/* How long the run is, by the run spec's runspec_length(); and whether a trainer is to stand still. */
void shared_run(struct shared *shared, bool paused);
/* How data is dealt to this island. */
void shared_deal(struct shared *shared, const struct deal *deal);
/* Training begins after this step: when each fragment is due. */
void shared_go(struct shared *shared, uint64_t step);

/* ---- of one fragment ---- */

/* What a trainer that begins has kept. */
struct shared_keeps {
    uint64_t version; /* of the anchor that its work began from */
    bool on_its_way;  /* a snapshot is */
    bool lost;        /* and its values are gone */
};
/* False: nothing, or it makes no sense. */
bool shared_kept(const struct shared *shared, uint32_t f, struct shared_keeps *out);
/* An anchor is there that it takes in some steps after this one. */
bool shared_mixes_later(const struct shared *shared, uint32_t f, uint64_t step);
/* What it kept is no use: the base area is to be filled, and none of its tokens so far stand for work that is there. */
void shared_drop_kept(struct shared *shared, uint32_t f, uint64_t tokens);
/* The base area holds this version. */
void shared_based(struct shared *shared, uint32_t f, uint64_t version);
/* What a trainer before this one left of rounds and refusals is forgotten. */
void shared_forget(struct shared *shared, uint32_t f);

/* What became of a word that the trainer says it moved. */
enum shared_news {
    SHARED_NOTHING,  /* said twice, or not true */
    SHARED_SNAPSHOT, /* a snapshot waits to be encoded */
    SHARED_MIXED,    /* the anchor was taken in */
    SHARED_PUBLISH   /* an anchor that had to wait for it can be published now */
};
enum shared_news shared_taken(struct shared *shared, uint32_t f);
enum shared_news shared_mixed(struct shared *shared, uint32_t f);

/* With late = wait: a trainer that has taken `step` stands still until this one's anchor is there. */
bool shared_stands(const struct shared *shared, uint32_t f, uint64_t step);

void shared_snapshot(struct shared *shared, uint32_t f, struct replica_snapshot *out);
/* The snapshot cannot be contributed (there is a NaN in it): with `is`, the next anchor replaces the tensors. */
void shared_void(struct shared *shared, uint32_t f, bool is);
/* An applied result counts the snapshot in these shards. Returns how many tokens more are counted now, as the mean over
 * all parameters. */
double shared_counted(struct shared *shared, uint32_t f, uint64_t shards);
/* Eager: what part of the newest mean is ours, by weight. */
void shared_share(struct shared *shared, uint32_t f, double share);
/* Gives the area of a snapshot back without an anchor. `*wake`: the trainer is to be woken. ERR_PROTO as below. */
ERR_MUST_CHECK enum err shared_release(struct shared *shared, uint32_t f, bool *wake);

/* The area is ours: it is to be filled, then shared_published(). False: the trainer is at it; shared_taken() or
 * shared_mixed() will say SHARED_PUBLISH. */
bool shared_publish(struct shared *shared, uint32_t f);
/* The area holds the anchor of `version`: the trainer's. It is to be woken. ERR_PROTO: somebody else wrote over a word
 * that is ours, so nothing in the memory can be believed: the trainer has to begin anew. */
ERR_MUST_CHECK enum err shared_published(struct shared *shared, uint32_t f, uint64_t version);
/* Takes an anchor back that the trainer has not begun to mix. */
bool shared_withdraw(struct shared *shared, uint32_t f);

/* A trainer attached again while this island stands at `version`: what its word tells. It moves none until it is
 * welcomed; with a base older than `version` the area is ours by then, for the anchor that follows. */
struct shared_resumed {
    uint64_t base_version;
    bool in_flight; /* its contribution may have been counted in base_version + 1, and that one is applied here */
    bool snapshot;  /* and one waits to be encoded */
};
/* ERR_PROTO as above. */
ERR_MUST_CHECK enum err shared_resume(struct shared *shared, uint32_t f, uint64_t version, struct shared_resumed *out);

#endif
