/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keep: what is written besides the ledger: checkpoints, from which a restart replays, and the exported anchors, which
 * are for people. Private to rounds/; the loop's thread calls.
 */
#ifndef DAEMON_ROUNDS_KEEP_H
#define DAEMON_ROUNDS_KEEP_H

#include "daemon/rounds/apply.h"
#include "daemon/rounds/desk.h"

struct keep;

/* Both are borrowed for its life. ERR_NOMEM. */
ERR_MUST_CHECK enum err keep_new(struct desk *desk, const struct apply *apply, struct keep **out);
void keep_free(struct keep *keep);

/* `version` of the fragment is on disk, or, KEEP_NONE, none that the ledger leads on from. */
#define KEEP_NONE UINT64_MAX
void keep_on_disk(struct keep *keep, uint32_t f, uint64_t version);
/* The oldest epoch whose record a restart needs to go on from the checkpoints; 0: that is not known. */
uint64_t keep_first_epoch(const struct keep *keep);
/* Begins a checkpoint, if the fragment stands still, none of it is being written, and the disk has not this version.
 * A disk that refuses is noted on the desk. */
void keep_checkpoint(struct keep *keep, uint32_t f);
/* Writes all anchors to one file, now or, where something changes them, in a later keep_tick(). */
void keep_export(struct keep *keep);
/* From now on it is written again when versions have come and nothing has changed for a while. */
void keep_follow(struct keep *keep);
void keep_tick(struct keep *keep);
/* How far that is; the file's path, or why there is none, "" before: valid until the next call of keep_export() or
 * keep_tick(), or the end of a job. */
enum rounds_export_state keep_saving(const struct keep *keep);
const char *keep_saved(const struct keep *keep);

#endif
