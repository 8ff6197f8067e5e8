/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/ctl/ctl_home.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/env.h"
#include "common/fsio.h"
#include "common/mem.h"
#include "common/pidfile.h"
#include "common/program.h"
#include "daemon/ctl/ctl_client.h"
#include "daemon/as_typed.h"

/* A daemon that ends waits for its trainer, for as long as [worker] stop says, which is 10 minutes at most. */
enum { POLL_MS = 50, PATIENCE_MS = 5000, STOP_MS_MAX = 11 * 60 * 1000, TRIES = 100 };
enum { TAIL_LINES = 20, TAIL_BYTES = 16384, PIECE_BYTES = 65536 };
/* Of a line, with its time, level and who says it. */
enum { HEAD_BYTES = 64 };

static void pause_ms(long ms)
{
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

static enum err say(const struct ctl_home *ctl, int pid, const char *what)
{
    if (ctl->json)
        printf("{\"ok\":\"%s\",\"pid\":%d}\n", what, pid);
    else if (pid > 0)
        printf("%s (pid %d)\n", what, pid);
    else
        printf("%s\n", what);
    return fflush(stdout) == 0 ? ERR_OK : err_set_errno(ERR_IO, "cannot write");
}

/* ---- the log ---- */

/* Lets lines through that the trainer said, as the daemon logs them: "… dilocod info: trainer: …". */
struct sieve {
    char head[HEAD_BYTES]; /* of the line that is coming in */
    size_t used;
    bool decided, passes;
};

static bool is_said_by_trainer(const struct sieve *sieve)
{
    static const char mark[] = ": trainer: ";
    return memmem(sieve->head, sieve->used, mark, strlen(mark)) != NULL;
}

static void sieve_take(struct sieve *sieve, const char *bytes, size_t count, FILE *out)
{
    for (size_t i = 0; i < count; i++) {
        if (sieve->decided && sieve->passes)
            fputc(bytes[i], out);
        else if (!sieve->decided)
            sieve->head[sieve->used++] = bytes[i];
        if (!sieve->decided && (bytes[i] == '\n' || sieve->used == HEAD_BYTES)) {
            sieve->decided = true;
            sieve->passes = is_said_by_trainer(sieve);
            if (sieve->passes)
                fwrite(sieve->head, 1, sieve->used, out);
        }
        if (bytes[i] == '\n')
            *sieve = (struct sieve){.used = 0};
    }
}

/* Copies from where `fd` stands to the end there is now. `sieve`: NULL: all passes. */
static enum err copy_rest(int fd, const char *path, struct sieve *sieve, FILE *out)
{
    char piece[PIECE_BYTES];
    for (;;) {
        ssize_t got = read(fd, piece, sizeof piece);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_set_errno(ERR_IO, "%s: cannot read", path);
        if (got == 0)
            return fflush(out) == 0 ? ERR_OK : err_set_errno(ERR_IO, "cannot write");
        if (sieve != NULL)
            sieve_take(sieve, piece, (size_t)got, out);
        else if (fwrite(piece, 1, (size_t)got, out) != (size_t)got)
            return err_set_errno(ERR_IO, "cannot write");
    }
}

/* Where the last lines begin, of what stands after `from`. */
static off_t tail_of(int fd, off_t from)
{
    char end[TAIL_BYTES];
    struct stat status;
    if (fstat(fd, &status) != 0 || status.st_size <= from)
        return from;
    off_t at = status.st_size - from > TAIL_BYTES ? status.st_size - TAIL_BYTES : from;
    ssize_t bytes = pread(fd, end, sizeof end, at);
    int lines = 0;
    for (ssize_t i = bytes - 2; i >= 0; i--)
        if (end[i] == '\n' && ++lines == TAIL_LINES)
            return at + i + 1;
    return at;
}

static void print_tail(const char *path, off_t from, FILE *out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (lseek(fd, tail_of(fd, from), SEEK_SET) < 0 || copy_rest(fd, path, NULL, out) != ERR_OK)
        fprintf(out, "%s: cannot read\n", path);
    close(fd);
}

static enum err follow_log(int fd, const char *path, struct sieve *sieve)
{
    struct stat status;
    off_t at = lseek(fd, tail_of(fd, 0), SEEK_SET);
    while (at >= 0) {
        TRY(copy_rest(fd, path, sieve, stdout));
        at = lseek(fd, 0, SEEK_CUR);
        if (fstat(fd, &status) == 0 && status.st_size < at) /* somebody has emptied it */
            at = lseek(fd, 0, SEEK_SET);
        pause_ms(4 * POLL_MS);
    }
    return err_set_errno(ERR_IO, "%s: cannot read", path);
}

enum err ctl_home_logs(const struct home *home, bool follow, bool trainer)
{
    struct sieve sieve = {.used = 0}, *through = trainer ? &sieve : NULL;
    int fd = open(home->log, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return err_set(ERR_NOTFOUND, "%s: there is no log yet; %s start begins one", home->log, as_typed());
    if (fd < 0)
        return err_set_errno(ERR_IO, "%s: cannot open", home->log);
    enum err err = follow ? follow_log(fd, home->log, through) : copy_rest(fd, home->log, through, stdout);
    close(fd);
    return err;
}

/* ---- a start, and what comes of it ---- */

/* In the child: never returns. What it does not need of ours it does not keep: a pipe that somebody reads to its end.
 * `await_fd`: by which it sees whether we wait for its first daemon. */
static void become_supervisor(const struct home *home, const char *program, const char *failed, int log_fd,
                              int await_fd)
{
    const char *const argv[] = {program, "--home", home->folder, "--supervise", NULL};
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    setsid();
    if (dup2(await_fd, STDIN_FILENO) < 0 || dup2(log_fd, STDOUT_FILENO) < 0 || dup2(log_fd, STDERR_FILENO) < 0 ||
        chdir(home->folder) != 0)
        _exit(126);
    syscall(SYS_close_range, STDERR_FILENO + 1, UINT_MAX, 0);
    execv(program, (char *const *)(uintptr_t)argv);
    child_say(failed, errno, "");
    _exit(127);
}

/* `*await_fd`: as long as the caller keeps it, the supervisor ends where its daemon does, and restarts nothing. */
static enum err fork_supervisor(const struct home *home, int *child, off_t *log_begin, int *await_fd)
{
    char *program = NULL, failed[512];
    int ends[2];
    TRY(program_find("dilocod", &program));
    snprintf(failed, sizeof failed, "cannot start %s: ", program);
    int log_fd = open(home->log, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0640);
    enum err err = log_fd < 0 ? fsio_failed(ERR_IO, "%s: cannot open", home->log) : ERR_OK;
    if (err == ERR_OK && pipe2(ends, O_CLOEXEC) != 0)
        err = err_set_errno(ERR_NOMEM, "cannot start dilocod");
    if (err == ERR_OK) {
        *log_begin = lseek(log_fd, 0, SEEK_END);
        *await_fd = ends[1];
        *child = fork();
        if (*child == 0)
            become_supervisor(home, program, failed, log_fd, ends[0]);
        if (*child < 0)
            err = err_set_errno(ERR_NOMEM, "cannot start dilocod");
        close(ends[0]);
    }
    if (log_fd >= 0)
        close(log_fd);
    mem_free(program);
    return err;
}

static enum err say_started(const struct ctl_home *ctl, const json_t *status, int pid, bool already)
{
    char what[128];
    snprintf(what, sizeof what, "dilocod runs%s: island %s", already ? " already" : "", ctl_text(status, "island"));
    return say(ctl, pid, what);
}

/* `other`: the process that answers in its place; 0: none does. */
static enum err say_ended(const struct ctl_home *ctl, off_t log_begin, int other)
{
    print_tail(ctl->home->log, log_begin, stderr);
    if (other > 0)
        return err_set(ERR_STATE,
                       "dilocod has ended; above stands the end of %s; at %s another one answers (pid %d): have "
                       "[island] sockets in %s name a folder of this island alone",
                       ctl->home->log, ctl->socket, other, ctl->home->conf);
    return err_set(ERR_STATE, "dilocod has ended; above stands the end of %s", ctl->home->log);
}

/* Whether it runs, which is said, as that of this folder and no other: it holds the lock. `*other`: who answers
 * instead. Failure: it does not answer yet, for it may not have come to it; or it answered what is no answer. */
static enum err ask_ours(const struct ctl_home *ctl, bool already, bool *runs, int *other)
{
    json_t *status;
    int pid, holder;
    *runs = false;
    *other = 0;
    enum err err = ctl_ask_whom(ctl->socket, "status", &status, &pid);
    if (err == ERR_CLOSED || err == ERR_IO)
        return ERR_OK;
    TRY(err);
    err = home_holder(ctl->home, &holder);
    *runs = err == ERR_OK && holder > 0 && (pid == holder || pid == 0);
    *other = *runs ? 0 : pid;
    if (*runs)
        err = say_started(ctl, status, holder, already);
    json_decref(status);
    return err;
}

/* Whether a daemon runs, or is about to: one that starts again only after a pause does not. */
static enum err look(const struct home *home, int *holder, bool *coming)
{
    int supervisor;
    bool pausing;
    TRY(home_holder(home, holder));
    TRY(home_supervisor(home, &supervisor));
    TRY(home_is_pausing(home, &pausing));
    *coming = *holder > 0 || (supervisor > 0 && !pausing);
    return ERR_OK;
}

/* Until it answers. `child`: the supervisor, if we have started it, with its log from `log_begin` on; 0, and below 0:
 * another has. `*gone`: that one was on its way out, and now nobody is there. */
static enum err wait_for_answer(const struct ctl_home *ctl, int child, off_t log_begin, bool *gone)
{
    const struct home *home = ctl->home;
    uint64_t begin_ms = env_mono_ms();
    int started = 0;
    bool already = child == 0, said = ctl->json, runs, coming;
    for (;;) {
        int holder, other;
        TRY(ask_ours(ctl, already, &runs, &other));
        if (runs)
            return ERR_OK;
        TRY(look(home, &holder, &coming));
        started = holder > 0 ? holder : started;
        if (child > 0 && waitpid(child, NULL, WNOHANG) == child) {
            child = 0;
            already = true; /* if somebody else was faster */
        }
        *gone = child == 0 && !coming && log_begin < 0;
        if (*gone)
            return ERR_OK;
        if (child == 0 && !coming)
            return say_ended(ctl, log_begin, other != started ? other : 0);
        bool late = env_mono_ms() - begin_ms > PATIENCE_MS;
        if (late && child == 0 &&
            holder > 0) /* nor may it ever: its sockets may have been elsewhere when it was started */
            return say(ctl, holder, "dilocod runs already, but does not answer yet");
        if (late && child == 0)
            return err_set(ERR_STATE,
                           "dilocod does not start, though its supervisor, whose number is in %s, runs; %s stop",
                           home->supervisor, as_typed());
        if (late && !said) {
            printf("dilocod is still starting, as it does when it has much to replay; its log is %s\n", home->log);
            fflush(stdout);
            said = true;
        }
        pause_ms(POLL_MS);
    }
}

/* ---- stop ---- */

/* A descriptor of the process that holds the lock that `find` looks at; -1: none does. */
static enum err open_holder(const struct home *home, enum err (*find)(const struct home *, int *), int *pid, int *fd)
{
    for (int i = 0; i < TRIES; i++) {
        int still;
        *fd = -1;
        TRY(find(home, pid));
        if (*pid == 0)
            return ERR_OK;
        *fd = (int)syscall(SYS_pidfd_open, *pid, 0);
        if (*fd < 0 && errno != ESRCH)
            return err_set_errno(ERR_STATE, "cannot watch dilocod (pid %d)", *pid);
        /* The descriptor is of a process that has held the lock with this number only if it is so still. */
        enum err err = find(home, &still);
        if (err == ERR_OK && *fd >= 0 && still == *pid)
            return ERR_OK;
        if (*fd >= 0)
            close(*fd);
        *fd = -1;
        TRY(err);
    }
    return err_set(ERR_STATE, "dilocod in %s starts and ends again and again; its log says why: %s", home->folder,
                   home->log);
}

static enum err wait_for_end(const struct ctl_home *ctl, int pid, int fd)
{
    struct pollfd item = {.fd = fd, .events = POLLIN};
    int ended = poll(&item, 1, PATIENCE_MS);
    if (ended == 0) {
        if (!ctl->json)
            printf("dilocod (pid %d) is ending; it waits for its trainer to save\n", pid);
        fflush(stdout);
        ended = poll(&item, 1, STOP_MS_MAX);
    }
    if (ended < 0)
        return err_set_errno(ERR_IO, "cannot wait for dilocod (pid %d)", pid);
    if (ended == 0)
        return err_set(ERR_STATE, "dilocod (pid %d) does not end; its log says why: %s; kill -KILL %d ends it", pid,
                       ctl->home->log, pid);
    return ERR_OK;
}

/* By the lock that `find` looks at; `*pid`: 0: none had it. `named`: who is waited for then, 0: that one. */
static enum err end_holder(const struct ctl_home *ctl, enum err (*find)(const struct home *, int *), int named,
                           int *pid)
{
    int fd;
    TRY(open_holder(ctl->home, find, pid, &fd));
    if (*pid == 0)
        return ERR_OK;
    enum err err = ERR_OK;
    if (syscall(SYS_pidfd_send_signal, fd, SIGTERM, NULL, 0) != 0 && errno != ESRCH)
        err =
            err_set_errno(ERR_STATE, "cannot end dilocod (pid %d); call as the user that started it, or as root", *pid);
    if (err == ERR_OK)
        err = wait_for_end(ctl, named > 0 ? named : *pid, fd);
    close(fd);
    return err;
}

/* Asked first, so that it saves, as the daemon would ask it. */
static enum err end_process(const struct ctl_home *ctl, int pid, int fd)
{
    static const int signals[] = {SIGTERM, SIGKILL};
    struct pollfd item = {.fd = fd, .events = POLLIN};
    if (!ctl->json)
        printf("dilocod does not run, but has left its trainer (pid %d), which is asked to save and end\n", pid);
    fflush(stdout);
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        if (syscall(SYS_pidfd_send_signal, fd, signals[i], NULL, 0) != 0 && errno != ESRCH)
            return err_set_errno(
                ERR_STATE, "its trainer (pid %d) cannot be ended; call as the user that started it, or as root", pid);
        int ended = poll(&item, 1, ctl->stop_ms < INT_MAX ? (int)ctl->stop_ms : INT_MAX);
        if (ended < 0)
            return err_set_errno(ERR_IO, "cannot wait for the trainer (pid %d)", pid);
        if (ended > 0)
            return ERR_OK;
    }
    return err_set(
        ERR_STATE,
        "its trainer (pid %d) does not end, though it was killed; see what it waits for: ps -o stat,wchan %d", pid,
        pid);
}

/* One that was killed leaves its trainer, which goes on with nobody to count its work. `*pid`: 0: there is none. */
static enum err stop_trainer(const struct ctl_home *ctl, int *pid)
{
    char *path;
    int fd;
    TRY(mem_printf(&path, "%s/worker.pid", ctl->state));
    enum err err = pidfile_open(path, pid, &fd);
    if (err == ERR_OK && fd >= 0)
        err = end_process(ctl, *pid, fd);
    if (err == ERR_OK && fd >= 0)
        unlink(path);
    if (fd >= 0)
        close(fd);
    mem_free(path);
    return err;
}

/* First the supervisor, which ends its daemon and starts no other; then one that runs without it. */
enum err ctl_home_stop(const struct ctl_home *ctl)
{
    int ran, supervisor, daemon, trainer;
    TRY(home_holder(ctl->home, &ran));
    TRY(end_holder(ctl, home_supervisor, ran, &supervisor));
    TRY(end_holder(ctl, home_holder, 0, &daemon));
    daemon = daemon > 0 ? daemon : supervisor > 0 ? ran : 0;
    TRY(stop_trainer(ctl, &trainer));
    if (trainer > 0)
        return say(ctl, trainer, "the trainer that it had left has ended");
    if (daemon > 0)
        return say(ctl, daemon, "dilocod has stopped");
    return say(ctl, 0, supervisor > 0 ? "dilocod does not run, and is not started again" : "dilocod does not run");
}

/* ---- start ---- */

/* 0: it does not pause, so it starts a daemon or has one. Another start may just have made it. */
static enum err pausing_supervisor(const struct home *home, int *pid)
{
    bool pausing;
    TRY(home_supervisor(home, pid));
    TRY(home_is_pausing(home, &pausing));
    *pid = pausing ? *pid : 0;
    return ERR_OK;
}

/* `*gone`: whoever was there has ended, and nobody was started. */
static enum err start(const struct ctl_home *ctl, bool *gone)
{
    int holder, child = 0, await_fd = -1, ended;
    off_t log_begin = -1; /* of ours */
    bool coming;
    *gone = false;
    TRY(look(ctl->home, &holder, &coming));
    if (!coming) {
        TRY(end_holder(ctl, pausing_supervisor, 0, &ended)); /* nobody waits for its pause */
        TRY(look(ctl->home, &holder, &coming));
    }
    if (!coming)
        TRY(fork_supervisor(ctl->home, &child, &log_begin, &await_fd));
    enum err err = ctl->no_wait ? say(ctl, holder + child, child == 0 ? "dilocod runs already" : "dilocod is starting")
                                : wait_for_answer(ctl, child, log_begin, gone);
    if (await_fd >= 0)
        close(await_fd);
    return err;
}

enum err ctl_home_start(const struct ctl_home *ctl)
{
    bool gone = true;
    for (int i = 0; i < TRIES && gone; i++)
        TRY(start(ctl, &gone));
    return gone ? err_set(ERR_STATE, "others start dilocod in %s, too, and each ends; its log says why: %s",
                          ctl->home->folder, ctl->home->log)
                : ERR_OK;
}
