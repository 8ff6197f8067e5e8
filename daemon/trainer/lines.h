/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lines: a program's output as lines for a log: whole ones, not too long and not too many. Private to trainer/.
 *
 * A line has LINES_BYTES at most; of a longer one it is said how much was left out. After a burst so many lines a
 * second pass, and how many did not is said; the last of these are kept, and told when the program ends, since they may
 * say why. What a line says before a carriage return is a state, as progress bars print it: the newest one passes now
 * and then. Escape sequences and other control characters are taken out; "<3>" at a line's beginning is its priority,
 * as sd-daemon(3) has it. It takes time as an argument, and knows no file.
 */
#ifndef DAEMON_TRAINER_LINES_H
#define DAEMON_TRAINER_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "common/log.h"

enum { LINES_BYTES = 400, LINES_BURST = 200, LINES_A_SECOND = 20, LINES_KEPT = 20, LINES_STATE_MS = 5000 };

struct lines;

typedef void lines_say(void *user, enum log_level level, const char *text);

ERR_MUST_CHECK enum err lines_new(lines_say *say, void *user, struct lines **out);
void lines_free(struct lines *lines);

void lines_take(struct lines *lines, const char *bytes, size_t count, uint64_t now_ms);
/* Now and then: what waits for its time. */
void lines_tick(struct lines *lines, uint64_t now_ms);
/* The program has ended: what it left unfinished, too, and then all is as at the beginning. */
void lines_end(struct lines *lines, uint64_t now_ms);
/* The last line with a letter or a digit, passed or not, without its priority: of this program, or, when that has
 * ended, still; "": there was none. Borrowed until the next call. */
const char *lines_last(const struct lines *lines);
/* Something is missing here: the line that was begun is forgotten, and so is all up to the next one. */
void lines_skip(struct lines *lines);
/* Bytes of a line that is not at its end. */
size_t lines_unfinished(const struct lines *lines);

#endif
