/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trainerrun: what lies below the trainer's part in a daemon, for a run that is small: run spec, membership, plan,
 * replica, ledger and the protocol's core.
 *
 * Island `bob` of ana, bob and cyd (or bob alone), and a model of four tensors in three fragments that are too small to
 * be cut evenly: not every island has a shard of each. A fragment is due every 6 steps, in turns: fragment f first
 * after step 6 + 2 f. A failure fails the running test.
 */
#ifndef TESTS_LIB_TRAINERRUN_H
#define TESTS_LIB_TRAINERRUN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/bitset.h"
#include "common/ipc.h"
#include "common/runspec.h"
#include "daemon/state/ledger.h"
#include "daemon/state/model_plan.h"
#include "daemon/state/parts.h"
#include "daemon/state/replica.h"
#include "daemon/trainer/shared.h"
#include "net/sync/sync.h"
#include "net/config/view.h"

enum { TRAINERRUN_ISLANDS = 3, TRAINERRUN_TENSORS = 4, TRAINERRUN_FRAGMENTS = 3, TRAINERRUN_STEPS = 1000 };

extern const struct ipc_tensor trainerrun_tensors[TRAINERRUN_TENSORS];

struct trainerrun {
    struct runspec spec;
    struct view view;
    struct config_log *config_log;
    uint32_t ids[TRAINERRUN_ISLANDS]; /* by slot */
    struct model_plan *plan;
    struct parts parts;
    struct replica *replica;
    struct ledger *ledger;
    struct sync *sync;
    uint64_t now_ms; /* of the core */
};

/* `islands`: TRAINERRUN_ISLANDS or 1. `lines`: more of the run spec, from within its section [sync]. */
void trainerrun_open(struct trainerrun *run, const char *folder, uint32_t islands, const char *lines);
void trainerrun_close(struct trainerrun *run);

struct shared_conf trainerrun_shared_conf(const struct trainerrun *run);
/* A mapping of the memory shared with the trainer, as the trainer has it; all of it. */
struct ipc_shm *trainerrun_map(int memfd);

/* When fragment `f` is due next after `step`. */
uint64_t trainerrun_due(uint32_t f, uint64_t step);

/* A core as a daemon has it that has just started: all fragments are blank. */
void trainerrun_new_sync(struct trainerrun *run);
/* The hash of a fragment's version, the same for everyone. */
struct digest trainerrun_hash(uint32_t f, uint64_t version);
/* Fragment `f` is at `version`, as read from disk. */
void trainerrun_restore(struct trainerrun *run, uint32_t f, uint64_t version);
/* Steps the core; what it orders is dropped. */
void trainerrun_step(struct trainerrun *run, const struct sync_event *event);
/* Another island is here, and says that its fragment `f` is at `version`; `known`: that it has a state at all. */
void trainerrun_hear(struct trainerrun *run, uint32_t member, uint32_t f, uint64_t version, bool known);

/* The next epoch, in which a member is of this role, or off the roster; the others are as they were. */
void trainerrun_epoch(struct trainerrun *run, uint32_t member, enum config_role role, bool voter, bool revoked);

/* A result in the ledger, of the part of a member, that counts these; it holds no values. Returns its digest. */
struct digest trainerrun_result(struct trainerrun *run, uint32_t f, uint64_t version, uint32_t owner,
                                const struct bitset *counted);
/* What the ledger has of a version is what it was made of. */
void trainerrun_commit(struct trainerrun *run, uint32_t f, uint64_t version);

#endif
