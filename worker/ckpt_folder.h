/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt_folder: which checkpoints a folder holds, by the names of its files; and the names inside a file, on which those
 * who write and those who read agree (docs/FORMATS.md, section 8).
 *
 * ckpt and ckpt_write call it, on any thread; it opens no file and keeps nothing.
 */
#ifndef WORKER_CKPT_FOLDER_H
#define WORKER_CKPT_FOLDER_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "worker/model/model.h"

#define CKPT_FORMAT "diloco worker 1"
#define CKPT_KEPT "diloco.kept"
enum { CKPT_MOMENTS = 2, CKPT_STEPS_MAX = 64, CKPT_NAME_BYTES = MODEL_NAME_BYTES + 16 };

/* "adamw.m" and "adamw.v", before "/" and a tensor's name. */
extern const char *const ckpt_moments[CKPT_MOMENTS];

/* The steps of the checkpoints in `folder`, newest first; returns how many. None where it cannot be read. */
size_t ckpt_folder_steps(const char *folder, uint64_t steps[CKPT_STEPS_MAX]);

/* Caller frees with mem_free(). */
ERR_MUST_CHECK enum err ckpt_folder_path(const char *folder, uint64_t step, char **path);

/* Removes all but the checkpoint of `step` and the newest besides, and what writes that were cut off have left. None is
 * under way. What cannot be removed stays: the next time comes. */
void ckpt_folder_tidy(const char *folder, uint64_t step);

#endif
