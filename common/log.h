/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log: one line per event on standard error, for people and for the journal.
 *
 * Any thread may call; a line is written with one write(). Where the journal reads standard error
 * (JOURNAL_STREAM names it), or somebody who does as it does (DILOCO_LOG=journal), lines carry the "<N>" priority
 * prefix and no time; elsewhere local date and time, program name and level.
 */
#ifndef COMMON_LOG_H
#define COMMON_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "common/quota.h"

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG, LOG_LEVEL_COUNT };

/* `name` is borrowed for the life of the process. Call once before the first thread starts. */
void log_init(const char *name, enum log_level level);
void log_set_level(enum log_level level);

void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...) log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...) log_line(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...) log_line(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_LEVEL_DEBUG, __VA_ARGS__)

/* Lets an event that may repeat forever through at most once per `interval_ms`. Keep one per kind of event. */
struct log_limit {
    uint64_t next_ms;
    uint64_t suppressed; /* since the last line that went through */
};
bool log_limit_pass(struct log_limit *limit, uint64_t now_ms, uint64_t interval_ms);

/* Lines of one kind about one other, each of which may be news: so many at once, and then one in so long, or whoever
 * brings them about without end fills the disk. Keep a quota for each kind and each other. */
enum { LOG_LINES_OF_ONE = 20, LOG_LINES_OF_ONE_MS = 10000 };
bool log_line_of_one(struct quota *lines, uint64_t now_ms);

#endif
