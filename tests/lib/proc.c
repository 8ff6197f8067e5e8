/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/proc.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

void proc_sleep_ms(long ms)
{
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

static bool enter_one(int space, const char *name, int type)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/ns/%s", space, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd >= 0 && setns(fd, type) == 0;
}

/* Whether the process sees other mounts than we do. */
static bool mounts_differ(int space)
{
    char path[64];
    struct stat ours, theirs;
    snprintf(path, sizeof path, "/proc/%d/ns/mnt", space);
    return stat("/proc/self/ns/mnt", &ours) == 0 && stat(path, &theirs) == 0 && ours.st_ino != theirs.st_ino;
}

static void enter(int space)
{
    char folder[600];
    bool mounts = mounts_differ(space);
    if (!enter_one(space, "net", CLONE_NEWNET))
        _exit(126);
    /* What is relative stays so: the folder has the same path there. */
    if (mounts &&
        (getcwd(folder, sizeof folder) == NULL || !enter_one(space, "mnt", CLONE_NEWNS) || chdir(folder) != 0))
        _exit(126);
}

static int start(int space, const char *const *argv, const char *log, int out_fd)
{
    int pid = fork();
    if (pid != 0)
        return pid;
    if (space != 0)
        enter(space);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    int fd = log != NULL ? open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;
    if (fd >= 0) {
        dup2(fd, STDOUT_FILENO);
        dup2(fd, STDERR_FILENO);
    }
    if (out_fd >= 0)
        dup2(out_fd, STDOUT_FILENO);
    execv(argv[0], (char *const *)(uintptr_t)argv);
    _exit(127);
}

int proc_start(const char *const *argv, const char *log)
{
    return start(0, argv, log, -1);
}

int proc_start_in(int space, const char *const *argv, const char *log)
{
    return start(space, argv, log, -1);
}

static int status_of(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int proc_wait(int pid, double seconds)
{
    for (double waited = 0;; waited += 0.02) {
        int status;
        if (waitpid(pid, &status, WNOHANG) == pid)
            return status_of(status);
        if (waited >= seconds)
            return -1;
        proc_sleep_ms(20);
    }
}

bool proc_thread_rests(int tid)
{
    char path[64], text[512] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return false;
    size_t bytes = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    const char *name_end = bytes > 0 ? strrchr(text, ')') : NULL;
    return name_end != NULL && strncmp(name_end, ") S", 3) == 0;
}

int proc_run(const char *const *argv, const char *log, char *out, size_t out_bytes)
{
    return proc_run_in(0, argv, log, out, out_bytes);
}

int proc_run_in(int space, const char *const *argv, const char *log, char *out, size_t out_bytes)
{
    int fds[2];
    size_t at = 0;
    if (pipe2(fds, O_CLOEXEC) != 0)
        return -1;
    int pid = start(space, argv, log, fds[1]);
    close(fds[1]);
    for (;;) {
        char spill[4096];
        bool room = at + 1 < out_bytes;
        ssize_t got = read(fds[0], room ? out + at : spill, room ? out_bytes - 1 - at : sizeof spill);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        at += room ? (size_t)got : 0;
    }
    if (out_bytes > 0)
        out[at] = '\0';
    close(fds[0]);
    return pid > 0 ? proc_wait(pid, 3600) : -1;
}

/* Below the ports that the kernel gives to whoever connects somewhere: such a connection could take one before the
 * program that it is meant for has bound it. */
enum { PORT_FIRST = 20000, PORTS = 12000 };

static bool bind_port(unsigned port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool is_free = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
    if (fd >= 0)
        close(fd);
    return is_free;
}

/* A name that only one process of this network namespace can hold, until it ends. */
static bool claim_port(unsigned port)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int length = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "diloco-test-port-%u", port);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
    bool ours = fd >= 0 && bind(fd, (struct sockaddr *)&name, bytes) == 0;
    if (fd >= 0 && !ours)
        close(fd);
    return ours;
}

unsigned proc_free_port(void)
{
    unsigned begin = (unsigned)getpid() * 37;
    for (unsigned i = 0; i < PORTS; i++) {
        unsigned port = PORT_FIRST + (begin + i) % PORTS;
        if (claim_port(port) && bind_port(port))
            return port;
    }
    return 0;
}

void proc_kill_trainer(const char *state_folder)
{
    char path[600];
    int pid = 0;
    snprintf(path, sizeof path, "%s/worker.pid", state_folder);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return;
    if (fscanf(file, "%d", &pid) == 1 && pid > 1)
        kill(pid, SIGKILL);
    fclose(file);
}
