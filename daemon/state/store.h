/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store: checkpoints of the daemon's state: one file per fragment, the plan, and the exported anchor.
 *
 * A fragment's file holds anchor, momentum and residuals at one version, and of which shards the owner's residual is;
 * fragments are independent, so no two files need to agree. Files are whole or not there. Blocking; runs on job threads
 * and at start.
 */
#ifndef DAEMON_STATE_STORE_H
#define DAEMON_STATE_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/digest.h"
#include "common/err.h"
#include "common/runspec.h"
#include "daemon/state/model_plan.h"
#include "daemon/state/replica.h"

struct store_fragment {
    uint64_t version;
    uint64_t step; /* run step of the newest result in it */
    struct digest hash;
};

/* Writes fragment `f` as it stands in the replica. `nonce_id`: the run's (net/view.h). */
ERR_MUST_CHECK enum err store_save_fragment(const char *folder, const struct runspec *spec,
                                            const struct digest *nonce_id, const struct model_plan *plan,
                                            struct replica *replica, uint32_t f, const struct store_fragment *state);
/* Reads it back into the replica. ERR_NOTFOUND; ERR_CORRUPT (damaged, or not what its hash says); ERR_CONF: of
 * another run or plan, or of other islands. Initial tensors of others are as good as none. */
ERR_MUST_CHECK enum err store_load_fragment(const char *folder, const struct runspec *spec,
                                            const struct digest *nonce_id, const struct model_plan *plan,
                                            struct replica *replica, uint32_t f, struct store_fragment *state);

ERR_MUST_CHECK enum err store_save_plan(const char *folder, const struct runspec *spec, const struct model_plan *plan);
/* ERR_NOTFOUND if there is none yet; ERR_CORRUPT; ERR_CONF: of another run. */
ERR_MUST_CHECK enum err store_load_plan(const char *folder, const struct runspec *spec, struct model_plan **out);

/* Whether a checkpoint in the folder, of whatever run, holds more than initial tensors. */
bool store_in(const char *folder);
/* Where no plan leads to the checkpoints: ERR_CONF if one of them holds a version of another run or of other islands.
 */
ERR_MUST_CHECK enum err store_check(const char *folder, const struct runspec *spec, const struct digest *nonce_id);
/* Puts a plan aside that was not to be loaded, so that another can take its place; nothing is deleted. Of another run:
 * and what its trainer saved, which no trainer of this run can read. */
ERR_MUST_CHECK enum err store_put_aside(const char *folder, bool other_run);

/* Writes all anchors under the tensors' own names to folder/anchor.safetensors, with the run spec, versions and step in
 * its metadata. The caller sees to it that no anchor changes meanwhile. */
ERR_MUST_CHECK enum err store_export(const char *folder, const struct runspec *spec, const struct model_plan *plan,
                                     struct replica *replica, const struct store_fragment *states);

#endif
