/* SPDX-License-Identifier: Apache-2.0 */
#include "common/mem_limit.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* `max`, or a file that is not there, limits nothing. */
static void look_at(const char *folder, const char *name, struct mem_limit *limit)
{
    char path[PATH_MAX + 32];
    uint64_t bytes;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return;
    if (fscanf(file, "%" SCNu64, &bytes) == 1 && bytes < limit->bytes)
        *limit = (struct mem_limit){.bytes = bytes, .group = true};
    fclose(file);
}

/* A group is limited by those above it, too. In a container the path may be one of the machine outside, of which only
 * the end of the way up is there. */
static void climb(const char *root, const char *group, const char *name, struct mem_limit *limit)
{
    char folder[PATH_MAX];
    int length = snprintf(folder, sizeof folder, "%s%s", root, group);
    if (length < 0 || (size_t)length >= sizeof folder)
        return;
    for (;;) {
        look_at(folder, name, limit);
        char *cut = strrchr(folder + strlen(root), '/');
        if (cut == NULL)
            return;
        *cut = '\0';
    }
}

/* Whether `word` is one of those between commas, up to `end`. */
static bool among(const char *list, const char *end, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = list; at < end; at += strcspn(at, ",:") + 1)
        if (strcspn(at, ",:") == length && strncmp(at, word, length) == 0)
            return true;
    return false;
}

struct mem_limit mem_limit_of(const char *groups, const char *root, uint64_t machine_bytes)
{
    struct mem_limit limit = {.bytes = machine_bytes};
    for (const char *line = groups; *line != '\0'; line += strcspn(line, "\n"), line += *line == '\n') {
        char group[PATH_MAX], below[PATH_MAX];
        const char *list = strchr(line, ':'), *path = list != NULL ? strchr(list + 1, ':') : NULL;
        size_t length = strcspn(line, "\n");
        if (path == NULL || path >= line + length)
            continue;
        snprintf(group, sizeof group, "%.*s", (int)(line + length - path - 1), path + 1);
        if (path == list + 1) { /* 0::/PATH, version 2, alone or beside version 1 */
            climb(root, group, "memory.max", &limit);
        } else if (among(list + 1, path, "memory")) {
            snprintf(below, sizeof below, "%s/memory", root);
            climb(below, group, "memory.limit_in_bytes", &limit);
        }
    }
    return limit;
}

struct mem_limit mem_limit(void)
{
    uint64_t machine_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    struct mem_limit limit = {.bytes = machine_bytes};
    char groups[16 * PATH_MAX]; /* of more than so many the first count */
    FILE *file = fopen("/proc/self/cgroup", "re");
    if (file == NULL)
        return limit;
    groups[fread(groups, 1, sizeof groups - 1, file)] = '\0';
    fclose(file);
    return mem_limit_of(groups, "/sys/fs/cgroup", machine_bytes);
}
