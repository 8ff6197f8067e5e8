/*
 * attach_move: values between a trainer's tensors and the shared memory, and the two moves of a fragment: a snapshot
 * out, an anchor in.
 *
 * Owns the memory for work set aside. Called by the public calls, on the trainer's thread; costs what the copies cost
 * and never waits for the daemon. It moves words along the trainer's arrows of common/ipc.h and tells the daemon, but
 * never decides when: that is the public calls'.
 */
#ifndef WORKER_LIBDILOCO_ATTACH_MOVE_H
#define WORKER_LIBDILOCO_ATTACH_MOVE_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/libdiloco/attach_core.h"

/* Between live tensors and a fragment's values. */
void attach_copy_out(struct diloco *d, uint32_t f, float *area);
void attach_copy_in(struct diloco *d, uint32_t f, const float *area);

/* Memory for work set aside, if the run does that: 4 bytes per parameter, 8 with Eager. */
ERR_MUST_CHECK enum err attach_make_aside(struct diloco *d);
void attach_free_aside(struct diloco *d);

/* FREE -> SNAPSHOT; nothing happens if the daemon took the fragment just now to bring an anchor. DILOCO_ERROR:
 * somebody else wrote its word meanwhile. */
ERR_MUST_CHECK int attach_snapshot(struct diloco *d, uint32_t f, bool final);

/* ANCHOR -> FREE; nothing happens if the daemon took the anchor back just now. `ending`: nothing was trained since the
 * snapshot and nothing will be, so the anchor replaces what it already contains. DILOCO_ERROR as above. */
ERR_MUST_CHECK int attach_take_in(struct diloco *d, uint32_t f, bool ending);

/* A snapshot that the daemon refused (a NaN in it), or lost, comes back as FREE without an anchor. True if that
 * happened; what was set aside for it is back then, unless it held NaN. */
bool attach_released(struct diloco *d, uint32_t f);

#endif
