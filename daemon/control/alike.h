/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alike: whether other islands train the same batches as this one: then their losses at the same steps agree digit for
 * digit, since they hold the same parameters, and nobody learns anything from them.
 *
 * Memory of what they said, for status: it is told each of their reports once, and compares it when our trainer has
 * taken that step. It grows with the view; only the loop's thread calls.
 */
#ifndef DAEMON_CONTROL_ALIKE_H
#define DAEMON_CONTROL_ALIKE_H

#include <stdint.h>

#include "common/err.h"
#include "daemon/peers/peers.h"
#include "daemon/trainer/trainer.h"
#include "net/config/view.h"

struct alike;

/* So many losses that agree, each unlike the one before, are no chance. */
enum { ALIKE_TOLD = 10 };

ERR_MUST_CHECK enum err alike_new(struct alike **out);
void alike_free(struct alike *alike);

/* Takes in what the others said last, and compares. */
void alike_note(struct alike *alike, const struct view *view, const struct peers *peers, const struct trainer *trainer);
/* How many of a member's losses in a row agree with ours to six digits. */
uint32_t alike_count(const struct alike *alike, const struct view *view, uint32_t slot);

#endif
