/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/gpu.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/kern_cuda.h"

enum { TEXT_BYTES = 2048 };

/* The folders that this program's own library may be in, with a colon behind each. */
static void own_folders(char *folders, size_t bytes)
{
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    folders[0] = '\0';
    if (length <= 0)
        return;
    self[length] = '\0';
    char *end = strrchr(self, '/');
    if (end != NULL)
        *end = '\0';
    snprintf(folders, bytes, "%s:%s/../..", self, self);
}

enum err gpu_find(const struct kern **table)
{
    char folders[2 * PATH_MAX + 16], program[2 * PATH_MAX + 64];
    own_folders(folders, sizeof folders);
    /* Only where none is there: one that does not load is not passed over. */
    for (const char *at = folders; *at != '\0';) {
        size_t bytes = strcspn(at, ":");
        snprintf(program, sizeof program, "%.*s/libdiloco-cuda.so", (int)bytes, at);
        if (access(program, F_OK) == 0)
            return kern_cuda_find_in(folders, false, table);
        at += bytes + (at[bytes] == ':');
    }
    return kern_cuda_find(table);
}

static int say_why_not(void)
{
    char reason[TEXT_BYTES];
    const char *needed = getenv("DILOCO_GPU_NEEDED");
    snprintf(reason, sizeof reason, "%s", err_text());
    if (kern_cuda_present() != ERR_OK) {
        printf("skipped: no CUDA device: %s\n", reason);
        return GPU_SKIPPED;
    }
    if (needed == NULL || needed[0] == '\0') {
        printf("skipped: the GPU here cannot be used: %s\n", reason);
        return GPU_SKIPPED;
    }
    printf("there is a GPU, but: %s\n", reason);
    return 1;
}

int gpu_number(void)
{
    const char *number = getenv("DILOCO_GPU");
    return number != NULL ? (int)strtol(number, NULL, 10) : 0;
}

int gpu_open(const struct kern **table, struct kern_dev **dev)
{
    char text[TEXT_BYTES];
    const struct kern_place place = {.device = gpu_number()};
    *dev = NULL;
    enum err err = gpu_find(table);
    if (err == ERR_OK)
        err = (*table)->open(&place, dev);
    if (err != ERR_OK)
        return say_why_not();
    (*table)->describe(*dev, text, sizeof text);
    printf("GPU %d: %s\n", place.device, text);
    fflush(stdout);
    return 0;
}

int gpu_there(void)
{
    int status = 0;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        const struct kern *table;
        struct kern_dev *dev;
        int code = gpu_open(&table, &dev);
        if (code == 0)
            table->close(dev);
        fflush(NULL);
        _exit(code);
    }
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
