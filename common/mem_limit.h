/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem_limit: the most memory that this process may ever have. No state; called by what plans memory, never often.
 */
#ifndef COMMON_MEM_LIMIT_H
#define COMMON_MEM_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

/* The machine's; or the least that one of the process's control groups is limited to, as by a container, a batch system
 * or systemd's MemoryMax=. */
struct mem_limit {
    uint64_t bytes;
    bool group;
};
struct mem_limit mem_limit(void);

/* The same of another process and another tree: the text of /proc/PID/cgroup, where control groups are mounted, and the
 * machine's memory. Control groups of both versions (cgroup-v2: memory.max; cgroup-v1: memory.limit_in_bytes), with
 * those above them. */
struct mem_limit mem_limit_of(const char *groups, const char *root, uint64_t machine_bytes);

#endif
