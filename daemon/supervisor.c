/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/env.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/program.h"

enum { PAUSE_S_MAX = 60, STEADY_MS = 5 * 60 * 1000, HOUR_MS = 60 * 60 * 1000 };
/* As many as there can be in an hour, with pauses that grow. */
enum { RESTARTS_MAX = 128 };
enum { STATUS_FAILED = 1, STATUS_USELESS = 2, STATUS_NO_FOLDER = 126, STATUS_NO_PROGRAM = 127, STATUS_SIGNAL = 128 };

static const char variable[] = "DILOCO_SUPERVISED";

struct supervisor {
    const struct home *home;
    char *program;
    char failed[512]; /* what a child says that cannot become the daemon */
    int lock_fd;
    sigset_t signals; /* blocked, and waited for */
    bool asked;       /* to end */
    int pause_s;
    uint64_t restarts_ms[RESTARTS_MAX]; /* the last ones, in a ring */
    uint64_t restarts;
};

/* ---- one daemon ---- */

/* In the child: never returns. */
static void become_daemon(const struct supervisor *s)
{
    const char *const argv[] = {s->program, "--home", s->home->folder, NULL};
    sigset_t none;
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setsid();
    if (null_fd < 0 || dup2(null_fd, STDIN_FILENO) < 0)
        _exit(STATUS_NO_FOLDER);
    execv(s->program, (char *const *)(uintptr_t)argv);
    child_say(s->failed, errno, "");
    _exit(STATUS_NO_PROGRAM);
}

/* Until it has ended; a request to end is passed on. Children of others may come to who is a container's first process.
 */
static int wait_for(struct supervisor *s, int child)
{
    int status = 0, ended = 0;
    while (ended != child) {
        int signal = sigwaitinfo(&s->signals, NULL);
        if (signal == SIGTERM || signal == SIGINT) {
            s->asked = true;
            kill(child, SIGTERM);
        }
        while ((ended = waitpid(-1, &status, WNOHANG)) > 0 && ended != child)
            continue;
        if (ended < 0 && errno == ECHILD)
            return 0;
    }
    return status;
}

/* Runs one daemon from its start to its end, whose status, as of waitpid(2), is returned, and told in `why`. */
static int run_one(struct supervisor *s, char why[SUPERVISED_WHY_BYTES])
{
    int child = fork(), status = W_EXITCODE(STATUS_FAILED, 0);
    if (child == 0)
        become_daemon(s);
    if (child < 0) {
        snprintf(why, SUPERVISED_WHY_BYTES, "could not be started: %s", strerror(errno));
        return status;
    }
    status = wait_for(s, child);
    if (WIFSIGNALED(status))
        snprintf(why, SUPERVISED_WHY_BYTES, "was killed by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else
        snprintf(why, SUPERVISED_WHY_BYTES, "ended with status %d", WEXITSTATUS(status));
    return status;
}

/* ---- and the next ---- */

/* Who started this waits for its first answer still. */
static bool is_awaited(void)
{
    struct stat status;
    struct pollfd input = {.fd = STDIN_FILENO};
    if (fstat(STDIN_FILENO, &status) != 0 || !S_ISFIFO(status.st_mode))
        return false;
    return poll(&input, 1, 0) == 0;
}

static bool is_over(const struct supervisor *s, int status)
{
    if (s->asked || is_awaited() || !home_is_there(s->home, s->lock_fd))
        return true;
    if (WIFSIGNALED(status))
        return WTERMSIG(status) == SIGTERM || WTERMSIG(status) == SIGINT;
    if (WEXITSTATUS(status) == STATUS_USELESS)
        log_error("dilocod ended with status %d, for the reason above, so it is not started again; mend that, then: "
                  "dilococtl --home %s start",
                  STATUS_USELESS, s->home->folder);
    return WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == STATUS_USELESS;
}

static uint32_t restarts_lately(const struct supervisor *s, uint64_t now_ms)
{
    uint32_t count = 0;
    for (uint64_t i = 0; i < s->restarts && i < RESTARTS_MAX; i++)
        count += s->restarts_ms[i] + HOUR_MS > now_ms;
    return count;
}

/* For the daemon that is started next. */
static void tell(struct supervisor *s, const char *why)
{
    char text[SUPERVISED_WHY_BYTES + 80];
    uint64_t now_ms = env_mono_ms();
    if (why[0] != '\0')
        s->restarts_ms[s->restarts++ % RESTARTS_MAX] = now_ms;
    snprintf(text, sizeof text, "%d %" PRIu32 " %" PRIu64 " %s", (int)getpid(), restarts_lately(s, now_ms),
             env_wall_ms() / 1000, why);
    setenv(variable, text, 1);
}

static enum err pause_before(struct supervisor *s, uint64_t lived_ms, const char *why)
{
    sigset_t ends = s->signals;
    s->pause_s = lived_ms >= STEADY_MS || s->pause_s == 0 ? 1 : s->pause_s * 2;
    s->pause_s = s->pause_s < PAUSE_S_MAX ? s->pause_s : PAUSE_S_MAX;
    log_warn("dilocod %s; it is started again in %d s", why, s->pause_s);
    struct timespec pause = {.tv_sec = s->pause_s};
    sigdelset(&ends, SIGCHLD);
    TRY(home_set_pausing(s->home, s->lock_fd, true));
    s->asked = sigtimedwait(&ends, NULL, &pause) > 0;
    return home_set_pausing(s->home, s->lock_fd, false);
}

/* Somebody may have started one by hand meanwhile. */
static enum err is_replaced(const struct supervisor *s, bool *replaced)
{
    int holder;
    TRY(home_holder(s->home, &holder));
    *replaced = holder > 0;
    if (*replaced)
        log_info("dilocod was started by somebody else (pid %d), so its supervisor ends", holder);
    return ERR_OK;
}

static enum err run_all(struct supervisor *s, int *status)
{
    char why[SUPERVISED_WHY_BYTES] = "";
    bool over = false;
    while (!over) {
        uint64_t begin_ms = env_mono_ms();
        tell(s, why);
        int ended = run_one(s, why);
        *status = WIFSIGNALED(ended) ? STATUS_SIGNAL + WTERMSIG(ended) : WEXITSTATUS(ended);
        over = is_over(s, ended);
        if (!over) {
            TRY(pause_before(s, env_mono_ms() - begin_ms, why));
            over = s->asked || !home_is_there(s->home, s->lock_fd);
        }
        if (!over)
            TRY(is_replaced(s, &over));
    }
    return ERR_OK;
}

enum err supervisor_run(const struct home *home, int *status)
{
    struct supervisor s = {.home = home, .lock_fd = -1};
    *status = STATUS_FAILED;
    signal(SIGCHLD, SIG_DFL); /* where it is ignored, nobody learns how a child ended */
    sigemptyset(&s.signals);
    sigaddset(&s.signals, SIGTERM);
    sigaddset(&s.signals, SIGINT);
    sigaddset(&s.signals, SIGCHLD);
    if (sigprocmask(SIG_BLOCK, &s.signals, NULL) != 0)
        return err_set_errno(ERR_IO, "cannot block signals");
    TRY(program_find("dilocod", &s.program));
    snprintf(s.failed, sizeof s.failed, "cannot start %s: ", s.program);
    enum err err = home_lock_supervisor(home, &s.lock_fd);
    if (err == ERR_OK)
        err = run_all(&s, status);
    if (s.lock_fd >= 0)
        close(s.lock_fd);
    mem_free(s.program);
    return err;
}

/* ---- in the daemon ---- */

void supervised_take(struct supervised *out)
{
    const char *text = getenv(variable);
    int used = 0;
    *out = (struct supervised){0};
    if (text == NULL)
        return;
    if (sscanf(text, "%d %" SCNu32 " %" SCNd64 " %n", &out->by, &out->again, &out->at_s, &used) == 3)
        snprintf(out->why, sizeof out->why, "%s", text + used);
    else
        *out = (struct supervised){0};
    unsetenv(variable);
}
