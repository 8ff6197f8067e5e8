/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctl_save: waiting until the daemon has written the anchor that it was asked to save. Blocking.
 */
#ifndef DAEMON_CTL_CTL_SAVE_H
#define DAEMON_CTL_CTL_SAVE_H

#include "common/err.h"

enum { CTL_SAVE_PATH_BYTES = 400 };

/* `saved`: the file's path. ERR_IO: it could not be written, and why. */
ERR_MUST_CHECK enum err ctl_save_wait(const char *socket, char saved[CTL_SAVE_PATH_BYTES]);

#endif
