/* SPDX-License-Identifier: Apache-2.0 */
/*
 * modelfiles: the tensors of a model from where it lies: one tensor file, or a folder as models are published in, with
 * config.json and model.safetensors or its shards.
 *
 * A file or folder may come from anybody. Shards have plain names and lie in the folder itself; they may be links, as
 * the caches of downloads have them. Tensors are found by the model's names, with or without "model." in front, and
 * read in pieces of any size, as floats. Blocking; one thread.
 */
#ifndef COMMON_MODELFILES_H
#define COMMON_MODELFILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "common/llama.h"

struct modelfiles;

/* Opens a file or a folder, and all its shards. `checked`: checksums that files carry are compared, for which all is
 * read; else the caller knows the values by another digest. ERR_NOTFOUND: nothing is there. ERR_CONF: a model, and none
 * of ours. ERR_CORRUPT: not whole. Each names the file, and the remedy. */
ERR_MUST_CHECK enum err modelfiles_open(const char *path, bool checked, struct modelfiles **out);
void modelfiles_close(struct modelfiles *files);

/* Its model, by config.json, or by the run spec that a file carries. ERR_CONF: a file that carries none. */
ERR_MUST_CHECK enum err modelfiles_config(const struct modelfiles *files, struct llama_config *config);
/* Whether a folder was opened. */
bool modelfiles_is_folder(const struct modelfiles *files);
/* A word of a file's metadata; of a folder written by `dilococtl export`, of its diloco.json. NULL: there is none.
 * Borrowed until close. */
const char *modelfiles_meta(const struct modelfiles *files, const char *key);

/* Where this tensor is. ERR_CORRUPT: it is missing, has another shape, or is of a dtype that cannot be read. */
ERR_MUST_CHECK enum err modelfiles_find(const struct modelfiles *files, const struct llama_tensor *tensor,
                                        size_t *index);
/* `count` of its values from value `first` on, which it must have. */
ERR_MUST_CHECK enum err modelfiles_read(const struct modelfiles *files, size_t index, uint64_t first, size_t count,
                                        float *to);

/* The names that a folder's files have; see `dilococtl export`. */
#define MODELFILES_CONFIG "config.json"
#define MODELFILES_SINGLE "model.safetensors"
#define MODELFILES_INDEX "model.safetensors.index.json"
#define MODELFILES_OURS "diloco.json"

#endif
