/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attach_move: values between a trainer's tensors and the shared memory, and the two moves of a fragment: a snapshot
 * out, an anchor in.
 *
 * A move begins when a word is ours (COPYING, MIXING), is done or queued, and ends, with the word given away, in a
 * later attach_settle_move() that finds it done: at once where tensors are host memory. Owns the memory for work set
 * aside. Called by the public calls, on the trainer's thread; never waits for the daemon. It moves words along the
 * trainer's arrows of common/ipc.h and tells the daemon, but never decides when: that is the public calls'.
 */
#ifndef WORKER_LIBDILOCO_ATTACH_MOVE_H
#define WORKER_LIBDILOCO_ATTACH_MOVE_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/libdiloco/attach_core.h"

/* Between live tensors and a fragment's values; touched until attach_settle_all(). */
ERR_MUST_CHECK int attach_copy_out(struct diloco *d, uint32_t f, enum attach_area to);
ERR_MUST_CHECK int attach_copy_in(struct diloco *d, uint32_t f, enum attach_area from);
/* The same for work set aside, Eager's past, or the remainders of 16-bit values, and memory of the caller's; done when
 * it returns. */
enum attach_beside { ATTACH_ASIDE, ATTACH_PAST, ATTACH_CARRY };
ERR_MUST_CHECK int attach_beside_out(struct diloco *d, uint32_t f, enum attach_beside which, float *values);
ERR_MUST_CHECK int attach_beside_in(struct diloco *d, uint32_t f, enum attach_beside which, const float *values);
/* Eager's past is zeros again. */
ERR_MUST_CHECK int attach_past_anew(struct diloco *d, uint32_t f);
/* Waits until all that was ordered is done, by all ranks. */
ERR_MUST_CHECK int attach_settle_all(struct diloco *d);

/* Memory for work set aside, if the run does that: 4 bytes per parameter, 8 with Eager; and 4 for each of 16 bits. */
ERR_MUST_CHECK int attach_make_beside(struct diloco *d);
void attach_free_beside(struct diloco *d);

/* FREE -> COPYING; nothing happens if the daemon took the fragment just now to bring an anchor. */
ERR_MUST_CHECK int attach_snapshot(struct diloco *d, uint32_t f, bool final);

/* Far ranks get the anchor that is in the area, ahead of the step that it is due at; `*there`: they have it. Waits for
 * that with `wait`. */
ERR_MUST_CHECK int attach_bring(struct diloco *d, uint32_t f, bool wait, bool *there);
/* ANCHOR -> MIXING; nothing happens if the daemon took the anchor back just now, or if far ranks have not got it; with
 * `wait` they are waited for. `ending`: nothing was trained since the snapshot and nothing will be, so the anchor
 * replaces what it already contains. */
ERR_MUST_CHECK int attach_merge(struct diloco *d, uint32_t f, bool ending, bool wait);
/* Far ranks hear of every fragment whose turn it is. */
ERR_MUST_CHECK int attach_look(struct diloco *d);

/* COPYING -> SNAPSHOT or MIXING -> FREE, if that has been done; waits for it with `wait`. Not while words must not move
 * (attach_words_free()). DILOCO_ERROR: somebody else wrote the word meanwhile. */
ERR_MUST_CHECK int attach_settle_move(struct diloco *d, uint32_t f, bool wait);

/* A snapshot that the daemon refused (a NaN in it), or lost, comes back as FREE without an anchor: `*released` then,
 * and the work set aside for it is back, unless it held NaN. */
ERR_MUST_CHECK int attach_withdraw(struct diloco *d, uint32_t f, bool *released);

/* The kept values of a tensor, by its number; of a device, waited for. `values` NULL: whether there is such, 1 or 0.
 * The word of its fragment says where its anchor is and whether anything is on its way. */
ERR_MUST_CHECK int attach_kept_out(struct diloco *d, int tensor, enum diloco_kept kind, float *values, uint64_t count);
/* All ranks put what their callers have of a fragment's tensors (options.kept_values) into its base area, its area, or
 * beside. Done when it returns. */
ERR_MUST_CHECK int attach_kept_in(struct diloco *d, uint32_t f, enum diloco_kept kind);

/* diloco_anchor(). */
ERR_MUST_CHECK int attach_read_anchor(struct diloco *d, int tensor, float *values, uint64_t count);

/* ---- of one rank: what the above orders of all ---- */

struct attach_order;
/* Its own part of an order that moves values; queued. */
ERR_MUST_CHECK int attach_own_part(struct diloco *d, const struct attach_order *order);

#endif
