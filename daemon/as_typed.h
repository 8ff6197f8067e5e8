/* SPDX-License-Identifier: Apache-2.0 */
/*
 * as_typed: how a command of this island begins when somebody types it, so that people can copy the commands that
 * dilocod and dilococtl suggest.
 *
 * main() sets it from the command line, before there are other threads; all code that suggests a command reads it. A
 * command for another island begins with "dilococtl" only.
 */
#ifndef DAEMON_AS_TYPED_H
#define DAEMON_AS_TYPED_H

#include <stddef.h>

/* Adds an option ("--home") and its value, with quotes where a shell needs them; NULL: was not given. */
void as_typed_add(const char *option, const char *value);

/* "dilococtl" and the additions; valid until the next as_typed_add(). */
const char *as_typed(void);

/* Copies `text` with as_typed() in place of each "{here}"; with "dilococtl" if that does not fit into `out`. "{logs}"
 * and "{trainer logs}" become the command that shows them, or words for the same log where --config or --socket were
 * added, which that command does not take. */
void as_typed_fill(const char *text, char *out, size_t out_bytes);

#endif
