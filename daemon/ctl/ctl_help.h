/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctl_help: what dilococtl's help says beside its tables of commands and options: which commands belong together, and
 * how each is typed.
 */
#ifndef DAEMON_CTL_CTL_HELP_H
#define DAEMON_CTL_CTL_HELP_H

#include <stddef.h>

#include "common/commands.h"

/* Without options, which the caller adds. `rows` are borrowed. */
struct commands ctl_help_of(const struct commands_row *rows, size_t rows_count);

#endif
