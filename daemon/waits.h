/* SPDX-License-Identifier: Apache-2.0 */
/*
 * waits: where the daemon's loop waits: for the other islands' sockets, the trainer, the control socket, finished jobs
 * and signals, all at once.
 *
 * Only the loop's thread calls. Takes nothing in: that is each part's own business.
 */
#ifndef DAEMON_WAITS_H
#define DAEMON_WAITS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "daemon/control/control.h"
#include "daemon/jobs.h"
#include "daemon/peers/peers.h"
#include "daemon/trainer/trainer.h"

struct waits;

/* All borrowed until waits_free(). */
struct waits_conf {
    struct peers *peers;
    struct trainer *trainer;
    struct control *control;
    struct jobs *jobs;
};
ERR_MUST_CHECK enum err waits_new(const struct waits_conf *conf, struct waits **out);
/* NULL is fine. */
void waits_free(struct waits *waits);

/* Returns when something has come in, or at `until_ms` (of env_mono_ms()) at the latest. `peers`: for the other
 * islands, too. ERR_NOMEM, ERR_IO. */
ERR_MUST_CHECK enum err waits_wait(struct waits *waits, int signal_fd, uint64_t until_ms, bool peers);

#endif
