/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store: checkpoints of the daemon's state: one file per fragment, the plan, and the exported anchor.
 *
 * A fragment's file holds anchor and momentum at one version, and those of the last checkpoint before an end in order
 * the residuals, and of which shards the owner's is. Fragments are independent, so no two files need to agree. Files
 * are whole or not there. Values are copied to the kernel first, while the caller holds the fragment still, and
 * flushed and named afterwards, when it may change again. Blocking; runs on job threads and at start.
 */
#ifndef DAEMON_STATE_STORE_H
#define DAEMON_STATE_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/digest.h"
#include "common/err.h"
#include "common/runspec.h"
#include "common/tensorfile.h"
#include "daemon/state/model_plan.h"
#include "daemon/state/replica.h"

struct store_fragment {
    uint64_t version;
    uint64_t step; /* run step of the newest result in it */
    struct digest hash;
};

/* Where, and whose. All are borrowed. */
struct store_at {
    const char *folder;
    const struct runspec *spec;
    const struct digest *nonce_id; /* the run's (net/config/view.h) */
    const struct model_plan *plan;
};

/* Writes fragment `f` as it stands in the replica: it must not change meanwhile. tensorfile_commit() flushes it and
 * puts it in the place of the one before, tensorfile_abort() drops it. ERR_NOSPACE, ERR_IO, ERR_NOMEM. */
ERR_MUST_CHECK enum err store_write_fragment(const struct store_at *at, struct replica *replica, uint32_t f,
                                             const struct store_fragment *state, bool residuals,
                                             struct tensorfile_writer **out);
/* Bytes of anchor and momentum, which every checkpoint of the fragment has. */
uint64_t store_fragment_bytes(struct replica *replica, const struct model_plan *plan, uint32_t f);
/* Whether there are residuals to be saved. */
bool store_has_residuals(struct replica *replica, uint32_t f);
/* Reads it back into the replica. ERR_NOTFOUND; ERR_CORRUPT (damaged, or not what its hash says); ERR_CONF: of
 * another run or plan, or of other islands. Initial tensors of others are as good as none. */
ERR_MUST_CHECK enum err store_load_fragment(const char *folder, const struct runspec *spec,
                                            const struct digest *nonce_id, const struct model_plan *plan,
                                            struct replica *replica, uint32_t f, struct store_fragment *state);

/* What its first lines say of the errors that loading it would have, before anything else of it is read: ERR_CONF may
 * still be damage. */
ERR_MUST_CHECK enum err store_check_fragment(const char *folder, const struct runspec *spec,
                                             const struct digest *nonce_id, const struct model_plan *plan, uint32_t f);

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

/* All anchors under the tensors' own names in folder/anchor.safetensors, with the run spec, the version of each
 * fragment and the largest step in its metadata. Fragments come in any order, each once; `spec` and `plan` are borrowed
 * until it is freed. The file appears with store_export_end(). */
struct store_export;
ERR_MUST_CHECK enum err store_export_begin(const char *folder, const struct runspec *spec,
                                           const struct model_plan *plan, struct store_export **out);
/* `f` as it is in the replica, at `state`: it must not change meanwhile. */
ERR_MUST_CHECK enum err store_export_fragment(struct store_export *export, struct replica *replica, uint32_t f,
                                              const struct store_fragment *state);
/* Once, when all fragments are in it; store_export_free() follows. */
ERR_MUST_CHECK enum err store_export_end(struct store_export *export);
void store_export_free(struct store_export *export);

#endif
