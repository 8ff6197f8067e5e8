#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/fsio.h"
#include "common/mem.h"
#include "daemon/engine.h"

/*
 * The trainer outlives a killed daemon: it is not told to die with us, its number is kept in a file, and it is watched
 * through a pidfd, which works for processes that are not (any more) our children.
 *
 *   STOPPED ──join, or autostart──▶ RUNNING ──leave──▶ LEAVING ──it ended──▶ STOPPED
 *                                    │   ▲
 *                  it ended badly    ▼   │ pause over
 *                                   WAITING             RUNNING ──it said it is done, and ended──▶ FINISHED
 */
enum { BACKOFF_MS = 1000, BACKOFF_MAX_MS = 60000, HEALTHY_MS = 60000, ARGS_MAX = 32 };

struct workers {
    enum workers_state state;
    int pid, pidfd;
    bool child; /* ours to reap */
    bool finished, stopping;
    unsigned failures;
    uint64_t started_ms, next_start_ms;
    char *pid_path, *program;
    char note[320];
};

/* ---- the file with its number ---- */

/* Start time of a process in clock ticks since boot, from /proc: with the number, it names a process for good. */
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
    for (int field = 2; at != NULL && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at != NULL && sscanf(at, "%" SCNu64, ticks) == 1;
}

static void save_pid(struct workers *workers)
{
    char text[64];
    uint64_t ticks = 0;
    start_time(workers->pid, &ticks);
    int length = snprintf(text, sizeof text, "%d %" PRIu64 "\n", workers->pid, ticks);
    if (fsio_replace(workers->pid_path, text, (size_t)length, 0644) != ERR_OK)
        log_warn("%s; a restarted daemon will not recognise the running trainer", err_text());
}

static void watch(struct workers *workers, int pid, bool child)
{
    workers->pid = pid;
    workers->child = child;
    workers->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
}

/* Takes over a trainer that an earlier daemon started and that still runs. */
static void adopt(struct workers *workers)
{
    char *text;
    size_t bytes;
    int pid;
    uint64_t was, is;
    if (fsio_read(workers->pid_path, 256, &text, &bytes) != ERR_OK)
        return;
    bool alive = sscanf(text, "%d %" SCNu64, &pid, &was) == 2 && pid > 1 && start_time(pid, &is) && is == was;
    mem_free(text);
    if (!alive)
        return;
    watch(workers, pid, false);
    if (workers->pidfd < 0)
        return;
    workers->state = WORKERS_RUNNING;
    log_info("the trainer of before (pid %d) still runs; it attaches again by itself", pid);
}

/* ---- starting ---- */

/* A bare name is first looked for beside our own program, so that a build folder works without installation. */
static enum err find_program(const char *name, char **out)
{
    char self[512];
    ssize_t bytes = readlink("/proc/self/exe", self, sizeof self - 1);
    if (strchr(name, '/') == NULL && bytes > 0) {
        self[bytes] = '\0';
        char *slash = strrchr(self, '/');
        *slash = '\0';
        TRY(mem_printf(out, "%s/%s", self, name));
        if (access(*out, X_OK) == 0)
            return ERR_OK;
        mem_free(*out);
    }
    return mem_strdup(name, out);
}

struct arguments {
    char *text[ARGS_MAX];
    int count;
};

static enum err add(struct arguments *args, const char *text)
{
    return mem_strdup(text, &args->text[args->count++]);
}

static enum err add_number(struct arguments *args, const char *option, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    TRY(add(args, option));
    return add(args, text);
}

static enum err add_pair(struct arguments *args, const char *option, const char *value)
{
    TRY(add(args, option));
    return add(args, value);
}

static enum err make_arguments(const struct engine *engine, struct arguments *args)
{
    const struct dconf *conf = engine->conf;
    char folder[512], path[512];
    snprintf(folder, sizeof folder, "%s/worker", conf->state_folder);
    snprintf(path, sizeof path, "%s/worker.sock", conf->run_folder);
    TRY(add(args, engine->workers->program));
    TRY(add(args, "train"));
    TRY(add_pair(args, "--run", conf->run_path));
    TRY(add_pair(args, "--data", conf->data));
    TRY(add_pair(args, "--out", folder));
    TRY(add_pair(args, "--attach", path));
    TRY(add_pair(args, "--device", conf->device));
    if (conf->stream[0] != '\0')
        TRY(add_pair(args, "--stream", conf->stream));
    TRY(add_number(args, "--threads", conf->threads));
    TRY(add_number(args, "--checkpoint-every", conf->checkpoint_every));
    return add_number(args, "--eval-every", conf->eval_every);
}

static void free_arguments(struct arguments *args)
{
    for (int i = 0; i < args->count; i++)
        mem_free(args->text[i]);
}

static void run_child(struct arguments *args)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    /* A session of its own: a terminal's Ctrl-C goes to the daemon, which ends the trainer in order. */
    setsid();
    execvp(args->text[0], args->text);
    log_error("cannot start %s: %s; set [worker] program", args->text[0], strerror(errno));
    _exit(127);
}

static enum err start(struct engine *engine)
{
    struct workers *workers = engine->workers;
    struct arguments args = {.count = 0};
    enum err err = make_arguments(engine, &args);
    if (err == ERR_OK) {
        int pid = fork();
        if (pid == 0)
            run_child(&args);
        if (pid < 0) {
            err = err_set_errno(ERR_NOMEM, "cannot start a trainer");
        } else {
            workers->finished = false;
            workers->started_ms = engine->now_ms;
            workers->state = WORKERS_RUNNING;
            watch(workers, pid, true);
            save_pid(workers);
            log_info("started %s (pid %d)", args.text[0], pid);
        }
    }
    free_arguments(&args);
    return err;
}

/* ---- its end ---- */

static void describe_end(struct workers *workers, int *status, char *text, size_t text_bytes)
{
    *status = -1;
    if (workers->child && waitpid(workers->pid, status, WNOHANG) == workers->pid) {
        if (WIFEXITED(*status))
            snprintf(text, text_bytes, "ended with status %d", WEXITSTATUS(*status));
        else
            snprintf(text, text_bytes, "was killed by signal %d (%s)", WTERMSIG(*status), strsignal(WTERMSIG(*status)));
    } else {
        snprintf(text, text_bytes, "ended");
    }
}

static void ended(struct engine *engine)
{
    struct workers *workers = engine->workers;
    char how[128];
    int status;
    describe_end(workers, &status, how, sizeof how);
    close(workers->pidfd);
    workers->pidfd = -1;
    unlink(workers->pid_path);
    bool asked = workers->stopping || workers->state == WORKERS_LEAVING;
    if (workers->finished || asked) {
        log_info("the trainer (pid %d) %s", workers->pid, how);
        workers->state = workers->state == WORKERS_LEAVING || !workers->finished ? WORKERS_STOPPED : WORKERS_FINISHED;
        workers->note[0] = '\0';
        workers->failures = 0;
        workers->pid = 0;
        return;
    }
    if (engine->now_ms > workers->started_ms + HEALTHY_MS)
        workers->failures = 0;
    uint64_t pause_ms = (uint64_t)BACKOFF_MS << (workers->failures < 10 ? workers->failures : 10);
    pause_ms = pause_ms < BACKOFF_MAX_MS ? pause_ms : BACKOFF_MAX_MS;
    workers->failures++;
    workers->next_start_ms = engine->now_ms + pause_ms;
    workers->state = WORKERS_WAITING;
    snprintf(workers->note, sizeof workers->note,
             "the trainer (pid %d) %s; its own message stands above in the log; started again in %.0f s", workers->pid,
             how, (double)pause_ms / 1000);
    log_error("%s", workers->note);
    workers->pid = 0;
}

/* ---- the interface ---- */

enum err workers_new(struct engine *engine)
{
    struct workers *workers;
    TRY(mem_new(1, sizeof *workers, "the trainer's supervision", &workers));
    engine->workers = workers;
    workers->pidfd = -1;
    TRY(mem_printf(&workers->pid_path, "%s/worker.pid", engine->conf->state_folder));
    if (engine->conf->worker_program[0] == '\0') {
        workers->state = WORKERS_OFF;
        return ERR_OK;
    }
    workers->state = WORKERS_STOPPED;
    TRY(find_program(engine->conf->worker_program, &workers->program));
    adopt(workers);
    if (workers->state == WORKERS_STOPPED && engine->conf->autostart)
        return start(engine);
    return ERR_OK;
}

void workers_free(struct engine *engine)
{
    struct workers *workers = engine->workers;
    if (workers == NULL)
        return;
    if (workers->pidfd >= 0)
        close(workers->pidfd);
    mem_free(workers->pid_path);
    mem_free(workers->program);
    mem_free(workers);
    engine->workers = NULL;
}

size_t workers_poll(struct engine *engine, struct pollfd *items, size_t items_max)
{
    struct workers *workers = engine->workers;
    if (workers->pidfd < 0 || items_max == 0)
        return 0;
    items[0] = (struct pollfd){.fd = workers->pidfd, .events = POLLIN};
    return 1;
}

void workers_run(struct engine *engine)
{
    struct workers *workers = engine->workers;
    struct pollfd item = {.fd = workers->pidfd, .events = POLLIN};
    if (workers->pidfd >= 0 && poll(&item, 1, 0) == 1)
        ended(engine);
}

void workers_tick(struct engine *engine)
{
    struct workers *workers = engine->workers;
    if (workers->state != WORKERS_WAITING || engine->stopping || engine->now_ms < workers->next_start_ms)
        return;
    if (start(engine) != ERR_OK) {
        log_error("%s", err_text());
        workers->next_start_ms = engine->now_ms + BACKOFF_MAX_MS;
    }
}

enum err workers_join(struct engine *engine)
{
    struct workers *workers = engine->workers;
    switch (workers->state) {
    case WORKERS_OFF:
        return err_set(ERR_STATE,
                       "no trainer is configured ([worker] program is empty); start yours, it attaches itself");
    case WORKERS_RUNNING: return err_set(ERR_STATE, "the trainer is running already (pid %d)", workers->pid);
    case WORKERS_LEAVING:
        return err_set(
            ERR_STATE,
            "the island is leaving; join again when it has left, or let it go at once with dilococtl leave --now");
    case WORKERS_STOPPED:
    case WORKERS_WAITING:
    case WORKERS_FINISHED: break;
    }
    if (engine->conf->data[0] == '\0')
        return err_set(ERR_CONF, "[worker] data is not set; there is nothing to train on");
    workers->failures = 0;
    return start(engine);
}

enum err workers_leave_now(struct engine *engine)
{
    struct workers *workers = engine->workers;
    if (workers->pidfd < 0)
        return err_set(ERR_STATE, "no trainer that this daemon started is running");
    workers->state = WORKERS_LEAVING;
    syscall(SYS_pidfd_send_signal, workers->pidfd, SIGTERM, NULL, 0);
    return ERR_OK;
}

enum err workers_leave(struct engine *engine)
{
    struct workers *workers = engine->workers;
    struct port_info port = port_info(engine);
    if (workers->state == WORKERS_WAITING) {
        workers->state = WORKERS_STOPPED;
        return ERR_OK;
    }
    if (workers->state != WORKERS_RUNNING && workers->state != WORKERS_LEAVING && !port.attached)
        return err_set(ERR_STATE, "no trainer is running");
    if (workers->state == WORKERS_RUNNING)
        workers->state = WORKERS_LEAVING;
    if (port.training)
        port_leave(engine);
    else if (workers->pidfd >= 0)
        syscall(SYS_pidfd_send_signal, workers->pidfd, SIGTERM, NULL, 0); /* it has contributed nothing yet */
    return ERR_OK;
}

void workers_finished(struct engine *engine)
{
    engine->workers->finished = true;
}

void workers_stop(struct engine *engine)
{
    struct workers *workers = engine->workers;
    workers->stopping = true;
    if (workers->pidfd >= 0)
        syscall(SYS_pidfd_send_signal, workers->pidfd, SIGTERM, NULL, 0);
}

bool workers_running(const struct engine *engine)
{
    return engine->workers->pidfd >= 0;
}

struct workers_info workers_info(const struct engine *engine)
{
    const struct workers *workers = engine->workers;
    struct workers_info info = {.state = WORKERS_OFF};
    if (workers == NULL)
        return info;
    info = (struct workers_info){.state = workers->state,
                                 .pid = workers->pid,
                                 .failures = workers->failures,
                                 .next_start_ms = workers->next_start_ms};
    memcpy(info.note, workers->note, sizeof info.note);
    return info;
}

const char *workers_state_name(enum workers_state state)
{
    static const char *const names[] = {
        [WORKERS_OFF] = "none configured", [WORKERS_STOPPED] = "stopped",    [WORKERS_RUNNING] = "running",
        [WORKERS_LEAVING] = "leaving",     [WORKERS_WAITING] = "restarting", [WORKERS_FINISHED] = "finished",
    };
    return names[state];
}
