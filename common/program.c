/* SPDX-License-Identifier: Apache-2.0 */
#include "common/program.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/mem.h"

static bool is_program(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode) && access(path, X_OK) == 0;
}

/* `*out` is NULL if it is not there. */
static enum err in_folder(const char *folder, size_t folder_bytes, const char *name, char **out)
{
    TRY(mem_printf(out, "%.*s%s%s", (int)folder_bytes, folder, folder_bytes > 0 ? "/" : "", name));
    if (is_program(*out))
        return ERR_OK;
    mem_free(*out);
    *out = NULL;
    return ERR_OK;
}

enum err program_find(const char *name, char **out)
{
    char self[512];
    *out = NULL;
    if (strchr(name, '/') != NULL) {
        TRY(in_folder("", 0, name, out));
        return *out != NULL ? ERR_OK : err_set(ERR_NOTFOUND, "%s: no program there", name);
    }
    ssize_t bytes = readlink("/proc/self/exe", self, sizeof self - 1);
    if (bytes > 0) {
        self[bytes] = '\0';
        TRY(in_folder(self, (size_t)(strrchr(self, '/') - self), name, out));
    }
    const char *folders = getenv("PATH");
    while (*out == NULL && folders != NULL) {
        const char *end = strchr(folders, ':');
        TRY(in_folder(folders, strcspn(folders, ":"), name, out));
        folders = end != NULL ? end + 1 : NULL;
    }
    return *out != NULL ? ERR_OK : err_set(ERR_NOTFOUND, "%s: no such program beside this one or in PATH", name);
}

/* ---- in a child ---- */

void child_say(const char *before, int error, const char *after)
{
    const char *meaning = strerrordesc_np(error); /* constant, and in no other language */
    const char *const parts[] = {before, meaning != NULL ? meaning : "unknown error", after};
    char line[1024];
    size_t used = 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        size_t bytes = strlen(parts[i]), room = sizeof line - 1 - used;
        memcpy(line + used, parts[i], bytes < room ? bytes : room);
        used += bytes < room ? bytes : room;
    }
    line[used++] = '\n';
    ssize_t written = write(STDERR_FILENO, line, used);
    (void)written; /* there is nobody else to tell */
}

/* ---- running one ---- */

enum { NOT_STARTED = 127 };

/* In the child: never returns. */
static void become(const char *path, const char *const *argv, int out_fd, bool errors)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (out_fd >= 0)
        dup2(out_fd, STDOUT_FILENO);
    if (out_fd >= 0 && errors)
        dup2(out_fd, STDERR_FILENO);
    execv(path, (char *const *)(uintptr_t)argv);
    _exit(NOT_STARTED);
}

/* Until its writers have gone; what does not fit is read and forgotten. */
static void listen_to(int fd, char *said, size_t said_bytes)
{
    size_t at = 0;
    for (;;) {
        char spill[4096];
        bool room = at + 1 < said_bytes;
        ssize_t got = read(fd, room ? said + at : spill, room ? said_bytes - 1 - at : sizeof spill);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        at += room ? (size_t)got : 0;
    }
    said[at] = '\0';
}

static int wait_for(int pid)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

enum err program_run(const char *const *argv, char *said, size_t said_bytes, bool errors, int *status)
{
    char *path;
    int ends[2] = {-1, -1};
    TRY(program_find(argv[0], &path));
    if (said != NULL && pipe2(ends, O_CLOEXEC) != 0) {
        mem_free(path);
        return err_set_errno(ERR_IO, "cannot open a pipe");
    }
    int pid = fork();
    if (pid == 0)
        become(path, argv, ends[1], errors);
    enum err err = pid < 0 ? err_set_errno(ERR_IO, "cannot start %s", path) : ERR_OK;
    if (ends[1] >= 0)
        close(ends[1]);
    if (err == ERR_OK && said != NULL)
        listen_to(ends[0], said, said_bytes);
    if (err == ERR_OK)
        *status = wait_for(pid);
    if (ends[0] >= 0)
        close(ends[0]);
    mem_free(path);
    return err;
}
