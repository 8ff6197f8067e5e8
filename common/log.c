/* SPDX-License-Identifier: Apache-2.0 */
#include "common/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LOG_LINE_BYTES = 1024 };

static const char *log_name = "diloco";
static _Atomic int log_max = LOG_LEVEL_INFO;
static bool log_journal;

static const char *const level_names[LOG_LEVEL_COUNT] = {"error", "warning", "info", "debug"};
static const int level_syslog[LOG_LEVEL_COUNT] = {3, 4, 6, 7};

/* JOURNAL_STREAM, "device:inode", names what the service manager connected; what is started from there with its
 * standard error elsewhere inherits the variable all the same. */
static bool is_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    struct stat status;
    uintmax_t device, inode;
    return stream != NULL && sscanf(stream, "%ju:%ju", &device, &inode) == 2 && fstat(STDERR_FILENO, &status) == 0 &&
           status.st_dev == device && status.st_ino == inode;
}

void log_init(const char *name, enum log_level level)
{
    log_name = name;
    log_max = (int)level;
    const char *how = getenv("DILOCO_LOG");
    log_journal = is_journal() || (how != NULL && strcmp(how, "journal") == 0);
}

void log_set_level(enum log_level level)
{
    log_max = (int)level;
}

static size_t line_head(char *line, size_t line_bytes, enum log_level level)
{
    if (log_journal)
        return (size_t)snprintf(line, line_bytes, "<%d>", level_syslog[level]);
    struct timespec now;
    struct tm local;
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &local);
    char clock[32];
    strftime(clock, sizeof clock, "%Y-%m-%d %H:%M:%S", &local);
    return (size_t)snprintf(line, line_bytes, "%s.%03ld %s %s: ", clock, now.tv_nsec / 1000000, log_name,
                            level_names[level]);
}

void log_line(enum log_level level, const char *format, ...)
{
    if ((int)level > log_max)
        return;
    char line[LOG_LINE_BYTES];
    size_t used = line_head(line, sizeof line, level);
    va_list args;
    va_start(args, format);
    int text = vsnprintf(line + used, sizeof line - used - 1, format, args);
    va_end(args);
    if (text > 0)
        used += (size_t)text;
    if (used > sizeof line - 2)
        used = sizeof line - 2;
    line[used++] = '\n';
    /* A log that cannot be written has nowhere to report to. */
    ssize_t ignored = write(STDERR_FILENO, line, used);
    (void)ignored;
}

bool log_limit_pass(struct log_limit *limit, uint64_t now_ms, uint64_t interval_ms)
{
    if (now_ms < limit->next_ms) {
        limit->suppressed++;
        return false;
    }
    limit->next_ms = now_ms + interval_ms;
    limit->suppressed = 0;
    return true;
}

bool log_line_of_one(struct quota *lines, uint64_t now_ms)
{
    static const struct quota_rule rule = {.every_ms = LOG_LINES_OF_ONE_MS, .at_once = LOG_LINES_OF_ONE};
    return quota_take(lines, rule, now_ms);
}
