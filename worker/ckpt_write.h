/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt_write: a trainer's checkpoints on their way to the disk, while training goes on.
 *
 * ckpt_save() copies what is to be saved into memory of this process; a thread writes that, flushes it, gives it its
 * name and removes older ones. So the values are those of the step that the file names, training stands still for the
 * copy alone, and a file is whole or not there. One write is under way at a time. It owns the copy's memory, 4 bytes a
 * value (12 a parameter with AdamW or Muon), from the first ckpt_save() until the end: given back in between, its pages
 * would have to be found and cleared again each time, which takes longer than the copy itself. Where the host has too
 * little, the caller's thread writes, tensor by tensor, and training waits.
 *
 * The train loop's one thread calls. Of several ranks each has a writer and makes the same calls; rank 0 alone has the
 * copy and the thread, and writes, the others go on at once. The thread touches nothing but the copy and the folder; it
 * has all signals blocked and does not log.
 */
#ifndef WORKER_CKPT_WRITE_H
#define WORKER_CKPT_WRITE_H

#include "common/err.h"
#include "common/runspec.h"
#include "worker/ckpt.h"
#include "worker/inner.h"
#include "worker/model/model.h"

struct ckpt_writer;

/* All are borrowed until the end. */
ERR_MUST_CHECK enum err ckpt_writer_new(const char *folder, const struct runspec *spec, struct model *model,
                                        const struct inner *inner, struct ckpt_writer **out);
/* Waits for a write under way; the log says if it has failed. NULL is fine. */
void ckpt_writer_free(struct ckpt_writer *writer);

/* Begins folder/worker-STEP.safetensors of the state as it is now; all results of `inner` have been read. A write that
 * is still under way is waited for, and the log says so. Takes state->kept over, also on failure. What goes wrong in
 * the thread is said by the log at ckpt_look() or at the next call; the older checkpoints then stand. */
ERR_MUST_CHECK enum err ckpt_save(struct ckpt_writer *writer, struct ckpt_state *state);

/* The same, whole and on the disk when it returns ERR_OK. */
ERR_MUST_CHECK enum err ckpt_save_now(struct ckpt_writer *writer, struct ckpt_state *state);

/* Between two steps: whether the write under way has come to its end, and if it has failed, the log says so. Costs
 * nothing. */
void ckpt_look(struct ckpt_writer *writer);

#endif
