/* SPDX-License-Identifier: Apache-2.0 */
/*
 * smallrun: a run that is small enough for a unit test: its spec, a plan of three fragments, and replicas of it.
 */
#ifndef TESTS_LIB_SMALLRUN_H
#define TESTS_LIB_SMALLRUN_H

#include "tests/lib/testlib.h"

#include "common/digest.h"
#include "common/runspec.h"
#include "daemon/state/model_plan.h"
#include "daemon/state/parts.h"
#include "daemon/state/replica.h"

enum { SMALLRUN_MEMBERS = 3, SMALLRUN_FRAGMENTS = 3, SMALLRUN_TENSORS = 5, SMALLRUN_STEPS = 1000 };

struct smallrun {
    struct runspec spec;
    struct model_plan *plan;
    struct config_log *config_log; /* configuration 0: the last of three members owns half of everything */
    struct parts parts;
};

/* Fragment 0 is an embedding; 1 and 2 are layers of one shape. */
extern const struct ipc_tensor smallrun_tensors[SMALLRUN_TENSORS];

/* `more`: lines of the run spec beyond its name and steps. */
struct smallrun smallrun_new(const char *more);
void smallrun_free(struct smallrun *run);

/* The caller may change it before replica_new(). */
struct replica_conf smallrun_conf(const struct smallrun *run);
/* Member `self`'s, cut into the parts. */
struct replica *smallrun_replica(const struct smallrun *run, uint32_t self);

/* Numbers of `seed` for all that fragment `f` has of anchor, momentum, residual and owner's residual. */
void smallrun_fill(struct replica *replica, const struct smallrun *run, uint32_t f, uint64_t seed);
/* Over the same arrays of all fragments: whether anything of them has changed. */
struct digest smallrun_digest(struct replica *replica, const struct smallrun *run);

#endif
