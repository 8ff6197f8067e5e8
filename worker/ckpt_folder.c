/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/ckpt_folder.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/mem.h"

enum { KEPT = 2 };
const char *const ckpt_moments[CKPT_MOMENTS] = {"adamw.m", "adamw.v"};

static int newest_first(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left;
    uint64_t b = *(const uint64_t *)right;
    return a > b ? -1 : a < b;
}

/* Whether it is worker-STEP and then `ending`. */
static bool is_named(const char *name, const char *ending, uint64_t *step)
{
    int end = 0;
    return sscanf(name, "worker-%" SCNu64 "%n", step, &end) == 1 && end > 0 && strcmp(name + end, ending) == 0;
}

size_t ckpt_folder_steps(const char *folder, uint64_t steps[CKPT_STEPS_MAX])
{
    DIR *dir = opendir(folder);
    size_t count = 0;
    if (dir == NULL)
        return 0;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL && count < CKPT_STEPS_MAX;)
        if (is_named(entry->d_name, ".safetensors", &steps[count]))
            count++;
    closedir(dir);
    qsort(steps, count, sizeof *steps, newest_first);
    return count;
}

enum err ckpt_folder_path(const char *folder, uint64_t step, char **path)
{
    return mem_printf(path, "%s/worker-%09" PRIu64 ".safetensors", folder, step);
}

/* As fsio names a file that is not whole yet. */
static void remove_unfinished(const char *folder)
{
    DIR *dir = opendir(folder);
    uint64_t step;
    if (dir == NULL)
        return;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        if (is_named(entry->d_name, ".safetensors.new", &step))
            unlinkat(dirfd(dir), entry->d_name, 0);
    closedir(dir);
}

void ckpt_folder_tidy(const char *folder, uint64_t step)
{
    uint64_t steps[CKPT_STEPS_MAX];
    size_t count = ckpt_folder_steps(folder, steps);
    for (size_t i = KEPT; i < count; i++) {
        char *path;
        if (steps[i] == step) /* the run's step went back: this one is the newest all the same */
            continue;
        if (ckpt_folder_path(folder, steps[i], &path) != ERR_OK)
            return;
        unlink(path);
        mem_free(path);
    }
    remove_unfinished(folder);
}
