/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keep: files beside the ledger: checkpoints, from which a restart replays, and the exported anchors, which
 * are for people. The loop's thread calls.
 *
 * Checkpoints begin by themselves with keep_tick(), one at a time, unless rounds_conf.checkpoint_ms is 0: at once of a
 * fragment that the ledger does not lead to; else of the one whose results since its last one take the longest to
 * replay, when these have as many bytes as the checkpoint or are of 32 versions, or when checkpoint_ms have passed; and
 * saving takes at most a 25th of the time. That limit falls when the results that no checkpoint covers outgrow both
 * ledger_keep and the checkpoints of all fragments. These checkpoints have no residuals, since results use them up
 * before most of them are read.
 * A fragment is held still only while its bytes are copied to the kernel; the disk is waited for afterwards.
 */
#ifndef DAEMON_ROUNDS_KEEP_H
#define DAEMON_ROUNDS_KEEP_H

#include "daemon/rounds/apply.h"
#include "daemon/rounds/round_context.h"

/* Of the exported anchors. */
enum rounds_export_state { ROUNDS_EXPORT_NONE, ROUNDS_EXPORT_WRITING, ROUNDS_EXPORT_DONE, ROUNDS_EXPORT_FAILED };

struct keep;

/* Both are borrowed for its life. ERR_NOMEM. */
ERR_MUST_CHECK enum err keep_new(struct round_context *context, const struct apply *apply, struct keep **out);
void keep_free(struct keep *keep);

/* `version` of the fragment is on disk, or, KEEP_NONE, none that the ledger leads on from. */
#define KEEP_NONE UINT64_MAX
void keep_on_disk(struct keep *keep, uint32_t f, uint64_t version);
/* The oldest epoch whose configuration a restart needs to go on from the checkpoints; 0: that is not known. */
uint64_t keep_first_epoch(const struct keep *keep);
/* Begins a checkpoint with residuals, if the fragment stands still and the disk has not all of this version; where one
 * is being written, when that has ended. A disk that refuses is noted in the round context. */
void keep_checkpoint(struct keep *keep, uint32_t f);
/* Begins a checkpoint of what the fragment holds now, which nothing changes before EVENT_ON_DISK says that it is there,
 * or that the disk refuses: no result of the next version may count by a state that a restart would not have. */
void keep_now(struct keep *keep, uint32_t f);
/* One of each fragment, at the end: from then on none begins by itself. */
void keep_checkpoint_all(struct keep *keep);
/* Writes all anchors to one file, one after the other, each as soon as nothing changes it. */
void keep_export(struct keep *keep);
/* From now on it is written again when versions have come and nothing has changed for a while. */
void keep_follow(struct keep *keep);
void keep_tick(struct keep *keep);
/* How far that is; the file's path, or why there is none, "" before: valid until the next call of keep_export() or
 * keep_tick(), or the end of a job. */
enum rounds_export_state keep_saving(const struct keep *keep);
const char *keep_saved(const struct keep *keep);

#endif
