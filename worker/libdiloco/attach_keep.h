/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attach_keep: what a trainer's checkpoint keeps of its attachment, so that work which no result has counted goes on
 * after a restart as if the trainer had never been away.
 *
 * For each fragment: the anchor its tensors last took in, its counted tokens, the snapshot on its way, and the work set
 * aside. Called by the public calls, on the trainer's thread; costs a copy. The bytes are for the machine that wrote
 * them, carry a version and a digest, and are checked before any of them is used.
 */
#ifndef WORKER_LIBDILOCO_ATTACH_KEEP_H
#define WORKER_LIBDILOCO_ATTACH_KEEP_H

#include <stdbool.h>
#include <stddef.h>

#include "worker/libdiloco/attach_core.h"

/* At most; 0 before there is a shared memory. */
size_t attach_keep_bytes(const struct diloco *d);
/* Writes the kept bytes as of now; `to` has room for attach_keep_bytes(). Waits for a device to finish its orders.
 * Returns how many bytes it wrote; 0 if that failed. */
size_t attach_keep(struct diloco *d, void *to);

/* Of which only the values are left out, that attach_kept_out() gives. */
size_t attach_keep_rest_bytes(const struct diloco *d);
/* Waits for operations under way; from then on until the next step attach_kept_out() gives values that belong together.
 */
ERR_MUST_CHECK int attach_keep_settle(struct diloco *d);
/* After all values. Returns how many bytes it is; 0 if that failed. */
size_t attach_keep_rest(struct diloco *d, void *to);

/* Before HELLO: takes step and tokens from what the options bring. DILOCO_ERROR: it is damaged. */
ERR_MUST_CHECK int attach_keep_read(struct diloco *d);
/* Puts it into a new shared memory and what this side remembers. A fragment whose tensors hold NaN or Inf is not kept.
 * DILOCO_ERROR: it is of another run. */
ERR_MUST_CHECK int attach_keep_restore(struct diloco *d);
/* Training goes on: a fragment that the daemon brought anew has nothing on its way. `*kept`: it is none. */
ERR_MUST_CHECK int attach_keep_begins(struct diloco *d, uint32_t f, bool *kept);

#endif
