/* SPDX-License-Identifier: Apache-2.0 */
#include "common/processors.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 4096 };
#define ROOT "/sys/fs/cgroup"

/* "QUOTA PERIOD", both in microseconds, or "max PERIOD". 0: no limit. */
static double limit_of(const char *root, const char *group)
{
    char path[PATH_BYTES + 64], line[64] = "";
    double quota = 0, period = 0;
    snprintf(path, sizeof path, "%s%s/cpu.max", root, group);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0;
    if (fgets(line, sizeof line, file) == NULL || strncmp(line, "max", 3) == 0 ||
        sscanf(line, "%lf %lf", &quota, &period) != 2)
        quota = 0;
    fclose(file);
    return quota > 0 && period > 0 ? quota / period : 0;
}

double processors_quota(const char *root, const char *group)
{
    char at[PATH_BYTES];
    double least = 0;
    snprintf(at, sizeof at, "%s", strcmp(group, "/") == 0 ? "" : group);
    for (;;) {
        double limit = limit_of(root, at);
        if (limit > 0 && (least == 0 || limit < least))
            least = limit;
        char *last = strrchr(at, '/');
        if (last == NULL)
            return least;
        *last = '\0';
    }
}

/* The line "0::/GROUP" of /proc/self/cgroup. */
static double own_quota(void)
{
    char line[PATH_BYTES] = "";
    double quota = 0;
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "0::", 3) == 0)
            quota = processors_quota(ROOT, line + 3);
    }
    if (file != NULL)
        fclose(file);
    return quota;
}

unsigned processors_here(void)
{
    cpu_set_t may;
    unsigned count = sched_getaffinity(0, sizeof may, &may) == 0 ? (unsigned)CPU_COUNT(&may) : 1;
    double quota = own_quota();
    if (quota > 0 && ceil(quota) < count)
        count = (unsigned)ceil(quota);
    return count > 0 ? count : 1;
}

int processors_jobs(int64_t asked)
{
    enum { SHARE = 4, LEAST = 2, MOST = 8 };
    int64_t quarter = processors_here() / SHARE;
    if (asked > 0)
        return (int)asked;
    return quarter < LEAST ? LEAST : quarter > MOST ? MOST : (int)quarter;
}
