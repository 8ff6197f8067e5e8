/* SPDX-License-Identifier: Apache-2.0 */
/*
 * processors: how many processors this process may use.
 *
 * No state; any thread. Reads /proc and /sys.
 */
#ifndef COMMON_PROCESSORS_H
#define COMMON_PROCESSORS_H

#include <stdint.h>

/* Those it may run on (sched_getaffinity(2)), but no more than its control groups let it take (cpu.max of cgroup v2,
 * rounded up): what containers and CPUQuota= set. At least 1. */
unsigned processors_here(void);

/* Threads for work beside a trainer: as many as are asked for, or, where that is 0, a quarter of the processors there
 * are, but 2 to 8. */
int processors_jobs(int64_t asked);

/* The least cpu.max, in processors, of a control group and those above it; `root` is where they are mounted, `group` as
 * /proc/self/cgroup has it: "/" or "/a/b". 0: no limit is known. */
double processors_quota(const char *root, const char *group);

#endif
