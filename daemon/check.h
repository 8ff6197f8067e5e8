/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check: finds before a start the faults that would end it: key, run spec, trainer, corpus, folders, as the user that
 * the daemon will run as sees them.
 *
 * For `dilocod --check-config` alone. Opens no port and changes no file. A start itself goes on without a corpus or a
 * program: the other islands wait for this one's shards, not for its trainer.
 */
#ifndef DAEMON_CHECK_H
#define DAEMON_CHECK_H

#include "common/err.h"
#include "daemon/dconf.h"

/* For root, who may read what the daemon will not: goes on as this user; NULL: as `diloco`, if there is one, as the
 * unit does. Others are who they are. ERR_ARG: there is no such user; ERR_STATE: it cannot be. */
ERR_MUST_CHECK enum err check_as(const char *user);

/* Prints its findings on standard output, and possible mistakes in the log. ERR_CONF, ERR_NOTFOUND: the first fault,
 * with file or key and remedy. */
ERR_MUST_CHECK enum err check_start(const struct dconf *conf);

#endif
