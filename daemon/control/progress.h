/* SPDX-License-Identifier: Apache-2.0 */
/*
 * progress: whether rounds close: since when a round of each fragment is under way, and how long a step of the run
 * takes.
 *
 * Memory of time for status, which is taken afresh each time: it is told now and then how the protocol's core stands,
 * and asked. It knows no cause. Allocated at birth for any plan; only the loop's thread calls.
 */
#ifndef DAEMON_CONTROL_PROGRESS_H
#define DAEMON_CONTROL_PROGRESS_H

#include <stdint.h>

#include "common/err.h"
#include "net/sync/sync.h"

struct progress;

ERR_MUST_CHECK enum err progress_new(struct progress **out);
void progress_free(struct progress *progress);

/* `furthest`: the highest run step of all islands. Time may only go on. */
void progress_note(struct progress *progress, const struct sync *sync, uint32_t fragments_count, uint32_t members_count,
                   uint64_t furthest, uint64_t now_ms);

/* How long somebody's contribution to the version after ours has waited, as last noted; 0: there is none. */
uint64_t progress_waits_ms(const struct progress *progress, uint32_t f);
/* How long the fragment has stood at its version, as last noted; since the first note at most. */
uint64_t progress_stands_ms(const struct progress *progress, uint32_t f);
/* For how long the fragment, which is more than a version behind the others, has come no nearer to them; 0: it has just
 * now, or is not behind. */
uint64_t progress_no_nearer_ms(const struct progress *progress, uint32_t f);
/* When a version last rose, as far as that was noted; 0: none has. */
uint64_t progress_moved_ms(const struct progress *progress);
/* How long so many steps of the run take while it trains; 0: not known yet. */
uint64_t progress_steps_ms(const struct progress *progress, uint64_t steps);

#endif
