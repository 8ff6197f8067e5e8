/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt: a worker's saved state: parameters, inner optimizer, step and data position, in one tensor file; how it is
 * read.
 *
 * Files are named worker-STEP.safetensors; the two newest are kept, so that a damaged one is never the only one. The
 * parameters carry the model's own tensor names, the run spec travels along as text, so the file loads elsewhere and
 * can be sampled from. ckpt_write writes them. One thread calls; blocking.
 */
#ifndef WORKER_CKPT_H
#define WORKER_CKPT_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "common/runspec.h"
#include "worker/inner.h"
#include "worker/model/model.h"

struct ckpt_state {
    uint64_t step;     /* run steps done */
    uint64_t position; /* windows of the data stream used up */
    uint64_t tokens;   /* trained by this island */
    float *kept;       /* [kept_count] bytes of diloco_keep(), the caller's to free; NULL: none */
    size_t kept_count;
};

/* Loads the newest whole checkpoint of this run; a damaged one is reported in the log and passed over. Of several ranks
 * all call it, and the first one chooses. ERR_NOTFOUND: there is none. ERR_CORRUPT: there are, and all are damaged.
 * ERR_CONF: it belongs to another run spec, or lacks something; nothing of it has been read then. */
ERR_MUST_CHECK enum err ckpt_load(const char *folder, const struct runspec *spec, struct model *model,
                                  struct inner *inner, struct ckpt_state *state);

/* Reads parameters alone from any tensor file with the model's names: a checkpoint, an anchor, or a foreign file; or
 * from the folder of a published model, whose config.json must go together with the run spec. */
ERR_MUST_CHECK enum err ckpt_load_params(const char *path, const struct runspec *spec, struct model *model);

/* Reads the parameters that the run begins from, by [run] init, and checks that they are those that it says. Of several
 * ranks all call it; the first one checks, and each reads what is its own. ERR_NOTFOUND: they are not on this machine.
 */
ERR_MUST_CHECK enum err ckpt_load_origin(const struct runspec *spec, struct model *model);

/* The run spec a file carries, or the folder of an exported model; of another published model one that fits.
 * ERR_NOTFOUND: a file that carries none. */
ERR_MUST_CHECK enum err ckpt_read_spec(const char *path, struct runspec *spec);

#endif
