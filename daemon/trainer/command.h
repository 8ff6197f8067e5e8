/* SPDX-License-Identifier: Apache-2.0 */
/*
 * command: the command of the trainer's process: program, arguments, environment. Private to trainer/.
 *
 * Ours (dconf_is_ours()) is told all that the configuration says; one of somebody else's gets the arguments that stand
 * in `program`, and no others. Both find the daemon's socket in DILOCO_SOCKET.
 */
#ifndef DAEMON_TRAINER_COMMAND_H
#define DAEMON_TRAINER_COMMAND_H

#include <stdbool.h>

#include "common/err.h"
#include "common/words.h"
#include "daemon/dconf.h"

enum { COMMAND_ARGUMENTS_MAX = WORDS_MAX + 32, COMMAND_ADDED_MAX = 3 };

struct command {
    bool ours;
    char *program;                              /* found beside our own or in PATH, or as given */
    bool searched;                              /* somebody else's, named without a folder, and found */
    bool missing;                               /* there is none now; starting it says so, too */
    char *folder;                               /* where it is to run; NULL: where we do. Borrowed */
    char *arguments[COMMAND_ARGUMENTS_MAX + 1]; /* NULL after the last; the first is the program */
    int arguments_count;
    char **environment;             /* ours, and what stands in `added`; other strings are borrowed */
    char *added[COMMAND_ADDED_MAX]; /* "DILOCO_SOCKET=…" first */
};

/* ERR_CONF: `program` cannot be cut into words. After a failure nothing is left to free. */
ERR_MUST_CHECK enum err command_make(const struct dconf *conf, struct command *out);
void command_free(struct command *command);

#endif
