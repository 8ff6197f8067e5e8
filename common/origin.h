/* SPDX-License-Identifier: Apache-2.0 */
/*
 * origin: the model that a run begins from: its digest, which is part of the run's identity, and a run spec for it.
 *
 * The digest is over the parameters' values as floats, tensor by tensor in order of name (docs/FORMATS.md, section 1).
 * So it is the same however a model is cut into files, and whether they hold bf16 or the same values as floats; the
 * path, which may differ between islands, is not under it. All is read once, by pieces. Blocking; one thread.
 */
#ifndef COMMON_ORIGIN_H
#define COMMON_ORIGIN_H

#include "common/conf.h"
#include "common/digest.h"
#include "common/err.h"
#include "common/modelfiles.h"
#include "common/runspec.h"

/* Of the tensors that this model has. ERR_CORRUPT: one is missing or has another shape. ERR_NONFINITE:
 * one holds NaN or Inf. The first one is named. */
ERR_MUST_CHECK enum err origin_digest(const struct modelfiles *files, const struct llama_config *config,
                                      struct digest *digest);

/* That what lies there is the model of this run spec, and has the digest that it says. ERR_CONF: it is another one. */
ERR_MUST_CHECK enum err origin_check(const struct modelfiles *files, const char *path, const struct runspec *spec);

struct origin_base {
    const char *file; /* of a run spec; NULL: `text` */
    const char *text, *name;
    const struct conf_override *overrides; /* as a user gives them; they come last */
    size_t overrides_count;                /* at most ORIGIN_OVERRIDES_MAX */
};
enum { ORIGIN_OVERRIDES_MAX = 64 };

/* A run spec with [model] as the model at `path` has it, and where no file says otherwise sequences up to 1024 tokens;
 * `begins`: and the run begins from it, by init and init_digest. ERR_CONF: a model, or an override, that does not go
 * together with that; and what runspec_load() and modelfiles_open() fail with. */
ERR_MUST_CHECK enum err origin_spec(const char *path, const struct origin_base *base, bool begins,
                                    struct runspec *spec);

#endif
