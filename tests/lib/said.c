/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/said.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/env.h"
#include "tests/lib/proc.h"

enum { LINE_BYTES = 1200, LOOK_MS = 20 };

double said_now_s(void)
{
    return (double)env_wall_ms() / 1000;
}

/* common/log.h's stamps. */
static bool stamp_of(const char *line, double *out)
{
    struct tm tm = {.tm_isdst = -1};
    int ms;
    if (sscanf(line, "%d-%d-%d %d:%d:%d.%d", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour, &tm.tm_min, &tm.tm_sec,
               &ms) != 7)
        return false;
    tm.tm_year -= 1900;
    tm.tm_mon--;
    *out = (double)mktime(&tm) + ms / 1000.0;
    return true;
}

double said_first(const char *log, double since_s, const char *words, const char *more)
{
    char line[LINE_BYTES];
    double at_s = -1, found_s = -1;
    FILE *file = fopen(log, "re");
    while (found_s < 0 && file != NULL && fgets(line, sizeof line, file) != NULL) {
        bool hit = strstr(line, words) != NULL && (more == NULL || strstr(line, more) != NULL);
        if (hit && stamp_of(line, &at_s) && at_s >= since_s)
            found_s = at_s;
    }
    if (file != NULL)
        fclose(file);
    return found_s;
}

double said_wait(const char *log, double since_s, const char *words, const char *more, double seconds)
{
    double until_s = env_mono_s() + seconds, found_s;
    while ((found_s = said_first(log, since_s, words, more)) < 0 && env_mono_s() < until_s)
        proc_sleep_ms(LOOK_MS);
    return found_s;
}
