/* SPDX-License-Identifier: Apache-2.0 */
#include "common/pidfile.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/fsio.h"
#include "common/mem.h"

/* Of /proc/PID/stat, counted from 1 (proc_pid_stat(5)). */
enum { FIELD_NAME = 2, FIELD_START = 22, TEXT_BYTES_MAX = 256 };

/* In clock ticks since boot. */
static bool start_time(int pid, uint64_t *ticks)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    char stat_text[1024];
    ssize_t got = read(fd, stat_text, sizeof stat_text - 1);
    close(fd);
    if (got <= 0)
        return false;
    stat_text[got] = '\0';
    char *at = strrchr(stat_text, ')'); /* the command's name may hold anything */
    for (int field = FIELD_NAME; at != NULL && field < FIELD_START; field++)
        at = strchr(at + 1, ' ');
    return at != NULL && sscanf(at, "%" SCNu64, ticks) == 1;
}

enum err pidfile_save(const char *path, int pid)
{
    char text[64];
    uint64_t ticks = 0;
    start_time(pid, &ticks);
    int length = snprintf(text, sizeof text, "%d %" PRIu64 "\n", pid, ticks);
    return fsio_replace(path, text, (size_t)length, 0644);
}

static bool read_file(const char *path, int *pid, uint64_t *ticks)
{
    char *text;
    size_t bytes;
    if (fsio_read(path, TEXT_BYTES_MAX, &text, &bytes) != ERR_OK)
        return false;
    bool good = sscanf(text, "%d %" SCNu64, pid, ticks) == 2 && *pid > 1;
    mem_free(text);
    return good;
}

enum err pidfile_open(const char *path, int *pid, int *fd)
{
    uint64_t was, is;
    int named, process;
    *pid = 0;
    *fd = -1;
    if (!read_file(path, &named, &was))
        return ERR_OK;
    /* First the descriptor: what it means is told by what is there after it was opened. */
    process = (int)syscall(SYS_pidfd_open, named, 0);
    int error = errno;
    if (!start_time(named, &is) || is != was) {
        if (process >= 0)
            close(process);
        return ERR_OK;
    }
    errno = error;
    if (process < 0)
        return err_set_errno(ERR_STATE, "cannot watch the process %d", named);
    *pid = named;
    *fd = process;
    return ERR_OK;
}
