/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spool: the trainer's output, on its way into the island's log. Private to trainer/.
 *
 * It goes into a file, trainer.log in the state folder, which the trainer appends to and the daemon reads behind it: no
 * pipe, which would hold the trainer up while the daemon is busy, and end it when the daemon ends. A daemon that is
 * killed leaves the trainer printing, and the next one goes on where the last one stopped: the part that has gone into
 * the log is zeroes in the file (and takes no room on the disk, where the file system can do that), so the file itself
 * shows the rest. Only the loop's thread calls; nothing blocks but a disk.
 */
#ifndef DAEMON_TRAINER_SPOOL_H
#define DAEMON_TRAINER_SPOOL_H

#include <stdint.h>

#include "common/err.h"

struct spool;

/* Of a trainer that is to be started, or runs; the first tick brings the file's contents into the log. */
ERR_MUST_CHECK enum err spool_new(const char *state_folder, struct spool **out);
void spool_free(struct spool *spool);

/* A descriptor that a trainer's output goes to; the caller closes it. -1: the file cannot be opened, which was logged,
 * and its output goes where ours does. */
int spool_open(struct spool *spool);
/* Logs the new lines. */
void spool_tick(struct spool *spool, uint64_t now_ms);
/* As lines_last(). */
const char *spool_last(const struct spool *spool);
/* The trainer has ended: all it has printed is logged, as far as that is wanted. */
void spool_end(struct spool *spool, uint64_t now_ms);

#endif
