/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/trainer/process.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/as_typed.h"
#include "common/human.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/pidfile.h"
#include "common/program.h"
#include "daemon/trainer/command.h"
#include "daemon/trainer/spool.h"

/*
 * The trainer outlives a killed daemon: it is not told to die with us, its number is kept in a file, and it is watched
 * through a pidfd, which works for processes that are not (any more) our children.
 */
enum { BACKOFF_MS = 1000, BACKOFF_MAX_MS = 60000, HEALTHY_MS = 60000, DOUBLINGS_MAX = 10, NOTE_BYTES = 400 };

struct process {
    const struct dconf *conf;
    enum process_state state;
    int pid, pidfd;
    bool child; /* ours to reap */
    bool ours;  /* it is diloco-worker */
    bool finished, stopping;
    bool left, ended_badly; /* as in struct process_info */
    bool ending, killed;    /* it was asked to end; and it was not given more time */
    unsigned failures;
    uint64_t now_ms, started_ms, next_start_ms, kill_ms;
    struct spool *spool; /* what it prints; NULL: none is configured */
    char *pid_path;
    char *path; /* as in struct process_info; NULL: none */
    char note[NOTE_BYTES];
};

/* ---- the file with its number ---- */

static void save_pid(struct process *process)
{
    if (pidfile_save(process->pid_path, process->pid) != ERR_OK)
        log_warn("%s; a restarted daemon will not recognise the running trainer", err_text());
}

/* Takes over a trainer that an earlier daemon started and that still runs. */
static void adopt(struct process *process)
{
    if (pidfile_open(process->pid_path, &process->pid, &process->pidfd) != ERR_OK)
        log_error("the trainer of before: %s; end it by hand", err_text());
    if (process->pidfd < 0)
        return;
    process->state = PROCESS_RUNNING;
    log_info("the trainer of before (pid %d) still runs; it attaches again by itself", process->pid);
}

/* ---- starting ---- */

/* What the child may have to say: it can only write what is there already. */
struct last_words {
    char no_folder[512], no_program[512];
};

/* In the child: never returns. */
static void run_child(const struct command *command, const struct last_words *words, int out_fd)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    /* A session of its own: a terminal's Ctrl-C goes to the daemon, which ends the trainer in order. */
    setsid();
    if (out_fd >= 0 && (dup2(out_fd, STDOUT_FILENO) < 0 || dup2(out_fd, STDERR_FILENO) < 0))
        _exit(126);
    if (command->folder != NULL && chdir(command->folder) != 0)
        child_say(words->no_folder, errno, "");
    execvpe(command->program, command->arguments, command->environment);
    child_say(words->no_program, errno, "; set [worker] program");
    _exit(127);
}

/* One that is not watched would seem to run for ever; it is better not there. */
static enum err give_up_child(struct process *process)
{
    enum err err = err_set_errno(ERR_IO, "cannot watch the trainer (pid %d), so it is ended again", process->pid);
    kill(process->pid, SIGKILL);
    waitpid(process->pid, NULL, 0);
    process->pid = 0;
    return err;
}

static enum err start_child(struct process *process, const struct command *command)
{
    struct last_words words;
    int out_fd = spool_open(process->spool);
    bool read_as_log = out_fd >= 0; /* what reads it adds all else */
    snprintf(words.no_folder, sizeof words.no_folder, "%s%s: cannot go there: ", read_as_log ? "<4>" : "dilocod: ",
             command->folder != NULL ? command->folder : "");
    snprintf(words.no_program, sizeof words.no_program,
             "%scannot start %s: ", read_as_log ? "<3>" : "dilocod: ", command->program);
    int pid = fork();
    if (pid == 0)
        run_child(command, &words, out_fd);
    enum err err = pid < 0 ? err_set_errno(ERR_NOMEM, "cannot start a trainer") : ERR_OK;
    if (out_fd >= 0)
        close(out_fd);
    TRY(err);
    process->pid = pid;
    process->child = true;
    process->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    return process->pidfd >= 0 ? ERR_OK : give_up_child(process);
}

/* Which program a name without a folder means here: another one may come first elsewhere. */
static enum err note_path(struct process *process, const struct command *command)
{
    mem_free(process->path);
    process->path = NULL;
    return command->searched ? mem_strdup(command->program, &process->path) : ERR_OK;
}

static enum err start(struct process *process, uint64_t now_ms)
{
    struct command command;
    TRY(command_make(process->conf, &command));
    enum err err = note_path(process, &command);
    if (err == ERR_OK)
        err = start_child(process, &command);
    if (err == ERR_OK) {
        process->finished = process->left = process->ended_badly = false;
        process->note[0] = '\0';
        process->now_ms = process->started_ms = now_ms;
        process->state = PROCESS_RUNNING;
        save_pid(process);
        log_info("started %s (pid %d)", command.program, process->pid);
    }
    command_free(&command);
    return err;
}

/* ---- its end ---- */

/* `*status` as waitpid(2) gives it; -1: it was not ours to wait for. */
static void describe_end(const struct process *process, int *status, char *text, size_t text_bytes)
{
    *status = -1;
    if (process->child && waitpid(process->pid, status, WNOHANG) == process->pid) {
        if (WIFEXITED(*status))
            snprintf(text, text_bytes, "ended with status %d", WEXITSTATUS(*status));
        else
            snprintf(text, text_bytes, "was killed by signal %d (%s)", WTERMSIG(*status), strsignal(WTERMSIG(*status)));
    } else {
        snprintf(text, text_bytes, "ended");
    }
}

/* The last thing it said, as far as there is room; most programs say there why they failed. */
static void note_last_line(struct process *process)
{
    enum { LINE_BYTES = 200 };
    const char *last = spool_last(process->spool);
    size_t at = strlen(process->note);
    int shown = (int)strnlen(last, LINE_BYTES);
    while (shown > 0 && last[shown] != '\0' && ((unsigned char)last[shown] & 0xc0) == 0x80)
        shown--; /* no piece of a character */
    if (shown > 0)
        snprintf(process->note + at, sizeof process->note - at, "; its last line: \"%.*s%s\"", shown, last,
                 last[shown] != '\0' ? "..." : "");
}

/* It had nothing more to contribute, or was asked to end. */
static void ended_in_turn(struct process *process, int status, bool told)
{
    bool leaving = process->state == PROCESS_LEAVING;
    process->state = leaving || !process->finished ? PROCESS_STOPPED : PROCESS_FINISHED;
    process->left = leaving;
    process->ended_badly = process->finished && !told && status > 0;
    process->failures = 0;
    if (!process->ended_badly) {
        log_info("%s", process->note);
        process->note[0] = '\0';
        return;
    }
    note_last_line(process);
    log_error("%s; all that it had to contribute is counted", process->note);
}

static void ended_early(struct process *process)
{
    process->state = PROCESS_ENDED;
    process->failures = 0;
    log_error("%s, and had not said that it is done; it is not started again", process->note);
}

static void failed(struct process *process, uint64_t now_ms)
{
    if (now_ms > process->started_ms + HEALTHY_MS)
        process->failures = 0;
    unsigned doublings = process->failures < DOUBLINGS_MAX ? process->failures : DOUBLINGS_MAX;
    uint64_t pause_ms = (uint64_t)BACKOFF_MS << doublings;
    pause_ms = pause_ms < BACKOFF_MAX_MS ? pause_ms : BACKOFF_MAX_MS;
    process->failures++;
    process->next_start_ms = now_ms + pause_ms;
    process->state = PROCESS_WAITING;
    note_last_line(process);
    size_t at = strlen(process->note);
    snprintf(process->note + at, sizeof process->note - at, "; started again in %.0f s", (double)pause_ms / 1000);
    log_error("%s", process->note);
}

static void ended(struct process *process, uint64_t now_ms)
{
    char how[128];
    int status;
    describe_end(process, &status, how, sizeof how);
    spool_end(process->spool, now_ms);
    snprintf(process->note, sizeof process->note, "the trainer (pid %d) %s", process->pid, how);
    bool told = process->ending || process->stopping; /* by us */
    bool asked = process->stopping || process->state == PROCESS_LEAVING;
    close(process->pidfd);
    process->pidfd = -1;
    process->ending = process->killed = false;
    unlink(process->pid_path);
    process->pid = 0;
    if (process->finished || asked)
        ended_in_turn(process, status, told);
    else if (status == 0 && !process->ours)
        ended_early(process);
    else
        failed(process, now_ms);
}

/* ---- the interface ---- */

/* What cannot be started is said now, and which program is meant, where PATH says that. */
static void say_program(const struct command *command)
{
    const char *name = strrchr(command->program, '/');
    if (command->missing && name == NULL)
        log_error("[worker] program: there is no program %s beside dilocod or in PATH; write its whole path there, as "
                  "/srv/venv/bin/%s, and restart the daemon",
                  command->program, command->program);
    else if (command->missing)
        log_error("[worker] program: there is no program at %s; correct the path, and restart the daemon",
                  command->program);
    if (command->searched)
        log_info("[worker] program: %s is %s here; where another PATH holds, as in a service, it may be another one: "
                 "its whole path is certain",
                 name != NULL ? name + 1 : command->program, command->program);
}

static enum err open_process(struct process *process)
{
    const struct dconf *conf = process->conf;
    TRY(mem_printf(&process->pid_path, "%s/worker.pid", conf->state_folder));
    if (conf->worker_program[0] == '\0')
        return ERR_OK;
    struct command command;
    TRY(command_make(conf, &command));
    process->ours = command.ours;
    enum err err = note_path(process, &command);
    say_program(&command);
    command_free(&command);
    TRY(err);
    TRY(spool_new(conf->state_folder, &process->spool));
    process->state = PROCESS_STOPPED;
    adopt(process);
    return ERR_OK;
}

enum err process_new(const struct dconf *conf, struct process **out)
{
    struct process *process;
    *out = NULL;
    TRY(mem_new(1, sizeof *process, "the trainer's supervision", &process));
    process->conf = conf;
    process->pidfd = -1;
    enum err err = open_process(process);
    if (err != ERR_OK)
        process_free(process);
    else
        *out = process;
    return err;
}

void process_free(struct process *process)
{
    if (process == NULL)
        return;
    if (process->pidfd >= 0)
        close(process->pidfd);
    spool_free(process->spool);
    mem_free(process->pid_path);
    mem_free(process->path);
    mem_free(process);
}

enum err process_autostart(struct process *process, uint64_t now_ms)
{
    return process->state == PROCESS_STOPPED && process->conf->autostart ? start(process, now_ms) : ERR_OK;
}

enum err process_start(struct process *process, uint64_t now_ms)
{
    switch (process->state) {
    case PROCESS_NONE:
        return err_set(ERR_STATE,
                       "no trainer is configured ([worker] program is empty); start yours, it attaches itself");
    case PROCESS_RUNNING: return err_set(ERR_STATE, "the trainer is running already (pid %d)", process->pid);
    case PROCESS_LEAVING:
        return err_set(ERR_STATE,
                       "the trainer is being paused; resume when it has, or let it go at once with %s pause --now",
                       as_typed());
    case PROCESS_STOPPED:
    case PROCESS_WAITING:
    case PROCESS_ENDED:
    case PROCESS_FINISHED: break;
    }
    if (process->conf->data[0] == '\0' && process->ours)
        return err_set(ERR_CONF, "[worker] data is not set; there is nothing to train on");
    process->failures = 0;
    return start(process, now_ms);
}

void process_leave(struct process *process)
{
    if (process->state == PROCESS_WAITING) {
        process->state = PROCESS_STOPPED;
        process->left = true;
    } else if (process->pidfd >= 0) {
        process->state = PROCESS_LEAVING;
    }
}

static void send_signal(const struct process *process, int number)
{
    syscall(SYS_pidfd_send_signal, process->pidfd, number, NULL, 0);
}

bool process_end(struct process *process)
{
    if (process->pidfd < 0)
        return false;
    if (!process->ending) {
        process->ending = true;
        process->kill_ms = process->now_ms + process->conf->stop_ms;
        log_info("the trainer (pid %d) is asked to end; it is killed if it has not in %.0f s", process->pid,
                 (double)process->conf->stop_ms / 1000);
    }
    send_signal(process, SIGTERM);
    return true;
}

void process_kill(struct process *process)
{
    if (process->pidfd < 0 || process->killed)
        return;
    log_warn("the trainer (pid %d) is killed; what it has trained since its last checkpoint is lost", process->pid);
    process->ending = process->killed = true;
    /* And what it has started: its group has its number, which nobody else gets while it is there. */
    if (syscall(SYS_pidfd_send_signal, process->pidfd, 0, NULL, 0) == 0)
        kill(-process->pid, SIGKILL);
    send_signal(process, SIGKILL);
}

void process_hung(struct process *process, double seconds)
{
    char took[HUMAN_BYTES];
    if (process->pidfd < 0 || process->killed)
        return;
    log_error(
        "the trainer (pid %d) has taken no step for %s, nor said that it waits: it is taken to hang ([worker] hang)",
        process->pid, human_duration(seconds, took));
    process_kill(process);
}

void process_finished(struct process *process)
{
    process->finished = true;
}

void process_stop(struct process *process)
{
    process->stopping = true;
    process_end(process);
}

size_t process_poll(const struct process *process, struct pollfd *items, size_t items_max)
{
    if (process->pidfd < 0 || items_max == 0)
        return 0;
    items[0] = (struct pollfd){.fd = process->pidfd, .events = POLLIN};
    return 1;
}

void process_run(struct process *process, uint64_t now_ms)
{
    struct pollfd item = {.fd = process->pidfd, .events = POLLIN};
    process->now_ms = now_ms;
    if (process->pidfd >= 0 && poll(&item, 1, 0) == 1)
        ended(process, now_ms);
}

void process_tick(struct process *process, uint64_t now_ms)
{
    process->now_ms = now_ms;
    if (process->spool != NULL)
        spool_tick(process->spool, now_ms);
    if (process->ending && now_ms >= process->kill_ms)
        process_kill(process);
    if (process->state != PROCESS_WAITING || process->stopping || now_ms < process->next_start_ms)
        return;
    if (start(process, now_ms) != ERR_OK) {
        log_error("%s", err_text());
        process->next_start_ms = now_ms + BACKOFF_MAX_MS;
    }
}

bool process_running(const struct process *process)
{
    return process->pidfd >= 0;
}

struct process_info process_info(const struct process *process)
{
    return (struct process_info){.state = process->state,
                                 .pid = process->pid,
                                 .ending = process->ending,
                                 .failures = process->failures,
                                 .left = process->left,
                                 .ended_badly = process->ended_badly,
                                 .note = process->note,
                                 .path = process->path != NULL ? process->path : ""};
}

const char *process_state_name(enum process_state state)
{
    static const char *const names[] = {
        [PROCESS_NONE] = "none",         [PROCESS_STOPPED] = "stopped",    [PROCESS_RUNNING] = "running",
        [PROCESS_LEAVING] = "leaving",   [PROCESS_WAITING] = "restarting", [PROCESS_ENDED] = "ended",
        [PROCESS_FINISHED] = "finished",
    };
    return names[state];
}
