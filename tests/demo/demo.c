/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/demo/demo.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/args.h"
#include "common/digest.h"
#include "common/env.h"
#include "common/fsio.h"
#include "common/mem.h"
#include "common/human.h"
#include "daemon/ctl/ctl_client.h"
#include "tests/lib/corpus.h"
#include "tests/lib/homes.h"
#include "tests/lib/proc.h"

/* A run whose trainers stand still this long is broken. */
enum { STALL_S = 60, LINE_EVERY_S = 5 };
enum { START_S = 60 }; /* for an island to be there */

/* Where the run is, for the screen. */
enum phase { PHASE_BEGIN, PHASE_TRAIN, PHASE_LAST, PHASE_SAVE };

static const char *const phase_text[] = {
    [PHASE_BEGIN] = "the islands find each other and begin with the same parameters",
    [PHASE_TRAIN] = "training",
    [PHASE_LAST] = "all steps are done; the last results come in",
    [PHASE_SAVE] = "each island writes its copy of the model",
};

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    interrupted = number;
}

/* ---- set-up ---- */

static void name_places(struct demo_island *island)
{
    snprintf(island->home, sizeof island->home, DEMO_FOLDER "/%s", island->name);
    snprintf(island->log, sizeof island->log, DEMO_FOLDER "/%s.log", island->name);
    snprintf(island->state, sizeof island->state, "%s/state", island->home);
    snprintf(island->control, sizeof island->control, "%s/run/control.sock", island->home);
}

static enum err set_up(struct demo *demo)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    demo->threads = cores > DEMO_ISLANDS ? cores / DEMO_ISLANDS : 1;
    demo->threads = demo->threads > 4 ? 4 : demo->threads;
    char *text;
    size_t bytes;
    struct stat status;
    /* Before the last demo's pictures are gone. */
    if (demo->data == NULL && access(DEMO_TEXT, R_OK) != 0)
        return err_set_errno(ERR_CONF, "cannot read " DEMO_TEXT " (run it from the root of the tree)");
    if (demo->data != NULL && (access(demo->data, R_OK) != 0 || stat(demo->data, &status) != 0))
        return err_set(ERR_CONF, "DATA=%s: cannot read it: %s", demo->data, strerror(errno));
    if (demo->data != NULL && !S_ISREG(status.st_mode))
        return err_set(ERR_CONF, "DATA=%s: not a file; give one file of text", demo->data);
    if (system("rm -rf " DEMO_FOLDER) != 0)
        return err_set(ERR_IO, "cannot empty " DEMO_FOLDER);
    TRY(fsio_mkdirs(DEMO_FOLDER, 0755));
    if (!corpus_link(demo->data != NULL ? demo->data : DEMO_TEXT, DEMO_FOLDER "/corpus"))
        return err_set(ERR_CONF, "no corpus");
    TRY(fsio_read("conf/demo.ini", 1 << 20, &text, &bytes));
    enum err err = fsio_replace(DEMO_FOLDER "/run.ini", text, bytes, 0644);
    const char *steps = strstr(text, "\nsteps = ");
    demo->eval_every = steps != NULL ? strtoll(steps + 9, NULL, 10) / DEMO_EVALS : 0;
    mem_free(text);
    TRY(err);
    for (int i = 0; i < DEMO_ISLANDS; i++)
        name_places(&demo->island[i]);
    homes_init(demo->programs);
    return ERR_OK;
}

static void start(struct demo *demo, int i)
{
    char program[300];
    snprintf(program, sizeof program, "%s/dilocod", demo->programs);
    const char *argv[] = {program, "--home", demo->island[i].home, NULL};
    demo->island[i].pid = proc_start(argv, demo->island[i].log);
}

/* What no option of init and join says. */
static bool configure(const struct demo *demo, const char *home)
{
    char threads[24];
    snprintf(threads, sizeof threads, "%ld", demo->threads);
    return homes_configure(home, "worker", "threads", threads) && homes_configure(home, "net", "compress_auto", "no");
}

static size_t log_bytes(const struct demo_island *island)
{
    struct stat status;
    return stat(island->log, &status) == 0 ? (size_t)status.st_size : 0;
}

/* As soon as its parameters are the run's, which others then begin with, too. A trainer that has only just begun dies
 * of the signal: what the log says up to here is no fault. */
static bool pause_at_the_first_step(struct demo *demo)
{
    const char *home = demo->island[0].home;
    unsigned ms = 100;
    for (unsigned waited = 0; waited < START_S * 1000 && interrupted == 0; waited += ms, ms += ms / 2) {
        if (proc_wait(demo->island[0].pid, 0) >= 0)
            return false;
        proc_sleep_ms(ms);
        if (HOMES_RUN(home, "pause", "--now") != 0)
            continue; /* it does not answer yet */
        if (strlen(homes_anchors(home)) == DIGEST_HEX_BYTES - 1)
            return true;
        (void)!HOMES_RUN(home, "resume", "--no-wait");
    }
    return false;
}

/* The first one measures the held-out loss: their anchors are the same. */
static bool found(struct demo *demo)
{
    const char *home = demo->island[0].home;
    char every[24], program[64];
    snprintf(every, sizeof every, "%lld", demo->eval_every);
    snprintf(program, sizeof program, "diloco-worker --eval-batches %d", DEMO_EVAL_BATCHES);
    if (HOMES_RUN(home, "init", "--name", demo->island[0].name, "--data", DEMO_FOLDER "/corpus", "--run",
                  DEMO_FOLDER "/run.ini", "--program", program, "--listen", homes_somewhere(), "--no-start") != 0 ||
        !configure(demo, home) || !homes_configure(home, "worker", "eval_every", every))
        return false;
    start(demo, 0);
    bool good = pause_at_the_first_step(demo);
    demo->island[0].log_from = log_bytes(&demo->island[0]);
    return good;
}

static bool join(struct demo *demo, int i)
{
    const struct demo_island *island = &demo->island[i];
    const char *token = homes_invite(demo->island[0].home, NULL);
    if (token == NULL || HOMES_RUN(island->home, "join", token, "--name", island->name, "--data", DEMO_FOLDER "/corpus",
                                   "--listen", homes_somewhere(), "--no-start") != 0)
        return false;
    if (!configure(demo, island->home) || !homes_configure(island->home, "worker", "autostart", "no"))
        return false;
    start(demo, i);
    return homes_wait_role(demo->island[0].home, island->name, "owner", START_S);
}

/* As people do it, but that all trainers begin at once, with the first step. */
static bool begin(struct demo *demo)
{
    bool good = found(demo);
    for (int i = 1; i < DEMO_ISLANDS && good; i++)
        good = join(demo, i);
    for (int i = 0; i < DEMO_ISLANDS && good; i++)
        good = HOMES_RUN(demo->island[i].home, "resume", "--no-wait") == 0;
    if (!good && interrupted == 0)
        fprintf(stderr, "FAILED: the islands do not come together; their logs are in " DEMO_FOLDER ":\n%s", homes_out);
    return good;
}

static bool log_says(const struct demo_island *island, const char *text)
{
    char *log = NULL;
    size_t bytes;
    bool found = fsio_read(island->log, 64 << 20, &log, &bytes) == ERR_OK && bytes > island->log_from &&
                 strstr(log + island->log_from, text) != NULL;
    mem_free(log);
    return found;
}

/* Ends everything; a daemon ends its trainer. False if one of them did not end well. */
static bool stop_all(struct demo *demo)
{
    bool well = true;
    for (int i = 0; i < DEMO_ISLANDS; i++)
        if (demo->island[i].pid > 0)
            kill(demo->island[i].pid, SIGTERM);
    for (int i = 0; i < DEMO_ISLANDS; i++) {
        struct demo_island *island = &demo->island[i];
        if (island->pid <= 0)
            continue;
        int status = proc_wait(island->pid, 20);
        if (status < 0) {
            kill(island->pid, SIGKILL);
            proc_wait(island->pid, 5);
        }
        proc_kill_trainer(island->state);
        island->pid = 0;
        if (status == 0 && !log_says(island, "was killed by signal"))
            continue;
        fprintf(stderr, "FAILED: %s or its trainer did not end well; its log is " DEMO_FOLDER "/%s.log\n", island->name,
                island->name);
        well = false;
    }
    return well;
}

/* ---- looking ---- */

static void take_status(struct demo *demo, struct demo_island *island, const json_t *status)
{
    const json_t *trainer = json_object_get(status, "trainer");
    const json_t *run = json_object_get(status, "run");
    snprintf(island->trainer, sizeof island->trainer, "%s", ctl_text(trainer, "state"));
    snprintf(island->anchors, sizeof island->anchors, "%s", ctl_text(status, "anchors"));
    snprintf(island->saved, sizeof island->saved, "%.250s", ctl_text(status, "saved"));
    snprintf(demo->codec, sizeof demo->codec, "%s", ctl_text(run, "codec"));
    demo->steps = ctl_integer(run, "steps");
    demo->interval = ctl_integer(run, "interval");
    demo->params = ctl_integer(status, "params");
    demo->fragments = ctl_integer(status, "fragments");
    island->step = ctl_integer(trainer, "step");
    island->tokens = ctl_integer(trainer, "tokens");
    island->loss = ctl_number(trainer, "loss");
    island->tokens_per_s = ctl_number(trainer, "tokens_per_s");
    island->versions = ctl_integer(status, "versions");
    island->version_min = ctl_integer(status, "version_min");
    island->version_max = ctl_integer(status, "version_max");
    island->bytes_sent = ctl_integer(status, "bytes_sent");
    island->bytes_received = ctl_integer(status, "bytes_received");
    island->payload_sent = ctl_integer(status, "payload_sent");
    island->finished = strcmp(island->trainer, "finished") == 0;
}

static void look(struct demo *demo)
{
    for (int i = 0; i < DEMO_ISLANDS; i++) {
        json_t *status;
        if (ctl_ask(demo->island[i].control, "status", &status) != ERR_OK)
            continue; /* still starting */
        take_status(demo, &demo->island[i], status);
        json_decref(status);
    }
    char folder[128];
    snprintf(folder, sizeof folder, "%s/worker", demo->island[0].state);
    demo->held_out = demo_held_out(folder);
}

static long long slowest_step(const struct demo *demo)
{
    long long step = demo->island[0].step;
    for (int i = 1; i < DEMO_ISLANDS; i++)
        step = demo->island[i].step < step ? demo->island[i].step : step;
    return step;
}

static enum phase phase_of(const struct demo *demo)
{
    bool begun = true, finished = true;
    for (int i = 0; i < DEMO_ISLANDS; i++) {
        begun = begun && demo->island[i].step > 0;
        finished = finished && demo->island[i].finished;
    }
    if (!begun)
        return PHASE_BEGIN;
    if (slowest_step(demo) < demo->steps)
        return PHASE_TRAIN;
    return finished ? PHASE_SAVE : PHASE_LAST;
}

/* How long it trains still, by the pace so far; false: nobody knows yet. */
static bool left(const struct demo *demo, char *text, size_t text_bytes)
{
    long long step = slowest_step(demo);
    double passed_s = env_mono_s() - demo->begin_s;
    if (step >= 5)
        snprintf(text, text_bytes, "%.0f s left", ceil(passed_s / (double)step * (double)(demo->steps - step)));
    return step >= 5;
}

static const char *doing(const struct demo *demo, char *text, size_t text_bytes)
{
    enum phase phase = phase_of(demo);
    char rest[40];
    if (phase != PHASE_TRAIN || !left(demo, rest, sizeof rest))
        return phase_text[phase];
    snprintf(text, text_bytes, "%s, about %s", phase_text[phase], rest);
    return text;
}

static void show_bar(const struct demo *demo)
{
    enum { WIDTH = 50 };
    long long step = slowest_step(demo);
    int full = demo->steps > 0 ? (int)(WIDTH * step / demo->steps) : 0;
    char text[80];
    printf("  [");
    for (int i = 0; i < WIDTH; i++)
        fputs(i < full ? "█" : "·", stdout);
    printf("] %3lld %%\033[K\n  %s", demo->steps > 0 ? 100 * step / demo->steps : 0, doing(demo, text, sizeof text));
    if (!isnan(demo->held_out.loss))
        printf("; held-out loss %.3f", demo->held_out.loss);
    printf("\033[K\n");
}

static void show_screen(const struct demo *demo, bool first)
{
    char a[32], b[32];
    if (!first)
        printf("\033[%dA", DEMO_ISLANDS + 5);
    printf("\033[K\n  %-7s %-9s %9s %7s %9s %8s %9s %9s\033[K\n", "island", "trainer", "step", "loss", "tokens/s",
           "versions", "sent", "received");
    for (int i = 0; i < DEMO_ISLANDS; i++) {
        const struct demo_island *island = &demo->island[i];
        char step[32], versions[32], loss[32] = "-", speed[32] = "-";
        if (island->step > 0) {
            snprintf(loss, sizeof loss, "%.4f", island->loss);
            snprintf(speed, sizeof speed, "%.0f", island->tokens_per_s);
        }
        snprintf(step, sizeof step, "%lld/%lld", island->step, demo->steps);
        snprintf(versions, sizeof versions, "%lld-%lld", island->version_min, island->version_max);
        printf("  %-7s %-9s %9s %7s %9s %8s %9s %9s\033[K\n", island->name,
               island->trainer[0] != '\0' ? island->trainer : "starting", step, loss, speed, versions,
               human_bytes((double)island->bytes_sent, a), human_bytes((double)island->bytes_received, b));
    }
    printf("\033[K\n");
    show_bar(demo);
    fflush(stdout);
}

/* Fits 80 columns. */
static void show_line(const struct demo *demo)
{
    char text[80];
    enum phase phase = phase_of(demo);
    if (phase != PHASE_TRAIN) {
        demo_say(demo, phase_text[phase]);
        return;
    }
    printf("%5.0f s  step %lld/%lld  loss", env_mono_s() - demo->begin_s, slowest_step(demo), demo->steps);
    for (int i = 0; i < DEMO_ISLANDS; i++)
        printf(" %s %.3f", demo->island[i].name, demo->island[i].loss);
    if (!isnan(demo->held_out.loss))
        printf("  held out %.3f", demo->held_out.loss);
    printf("  %s\n", left(demo, text, sizeof text) ? text : "");
    fflush(stdout);
}

static bool all_done(const struct demo *demo)
{
    for (int i = 0; i < DEMO_ISLANDS; i++) {
        const struct demo_island *island = &demo->island[i];
        if (!island->finished || island->saved[0] == '\0' || island->versions != demo->island[0].versions)
            return false;
    }
    return true;
}

static const char *dead_daemon(struct demo *demo)
{
    for (int i = 0; i < DEMO_ISLANDS; i++) {
        if (proc_wait(demo->island[i].pid, 0) >= 0) {
            demo->island[i].pid = 0;
            return demo->island[i].name;
        }
        if (strcmp(demo->island[i].trainer, "restarting") == 0)
            return demo->island[i].name;
    }
    return NULL;
}

/* The last errors of an island's log, which say what the matter is. */
static void print_errors(const char *name)
{
    char command[200];
    fflush(stderr);
    snprintf(command, sizeof command, "grep -a ' error: ' " DEMO_FOLDER "/%s.log | tail -n 3 >&2", name);
    (void)!system(command);
}

/* Until both are done; false if something died or stands still. */
static bool run(struct demo *demo)
{
    bool terminal = isatty(STDOUT_FILENO) != 0;
    bool first = true;
    double moved_s = env_mono_s(), shown_s = 0;
    long long seen = -1;
    enum phase shown = PHASE_BEGIN;
    while (interrupted == 0) {
        proc_sleep_ms(250);
        look(demo);
        double now_s = env_mono_s();
        long long progress = slowest_step(demo) + demo->island[0].versions;
        if (progress != seen)
            moved_s = now_s;
        seen = progress;
        if (terminal)
            show_screen(demo, first);
        else if (now_s >= shown_s + LINE_EVERY_S || phase_of(demo) != shown)
            show_line(demo);
        shown_s = now_s >= shown_s + LINE_EVERY_S ? now_s : shown_s;
        shown = phase_of(demo);
        first = false;
        if (all_done(demo))
            return true;
        const char *dead = dead_daemon(demo);
        if (dead != NULL || now_s > moved_s + STALL_S) {
            fprintf(stderr, "\nFAILED: %s %s; its log is " DEMO_FOLDER "/%s.log\n", dead != NULL ? dead : "the run",
                    dead != NULL ? "or its trainer has ended" : "stands still",
                    dead != NULL ? dead : demo->island[0].name);
            print_errors(dead != NULL ? dead : demo->island[0].name);
            return false;
        }
    }
    printf("\nStopping.\n");
    return false;
}

int main(int argc, char **argv)
{
    struct demo demo = {.programs = "build/gcc", .held_out.loss = NAN, .island = {{.name = "oslo"}, {.name = "lima"}}};
    const struct args_option options[] = {
        {"programs", ARGS_STRING, &demo.programs, "FOLDER", "where dilocod and diloco-worker are"},
        {"data", ARGS_STRING, &demo.data, "FILE", "a text to train on instead of " DEMO_TEXT},
    };
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    if (digest_init() != ERR_OK || args_parse(argc, argv, options, 2, NULL) != ERR_OK || set_up(&demo) != ERR_OK) {
        fprintf(stderr, "demo: %s\n", err_text());
        return 2;
    }
    printf("Two islands, oslo and lima, train one language model, over encrypted ZeroMQ on\n"
           "loopback, on %s.\n"
           "Logs:    " DEMO_FOLDER "/oslo.log, " DEMO_FOLDER "/lima.log\n"
           "Look in: %s/dilococtl watch --socket %s\n",
           demo.data != NULL ? demo.data : DEMO_TEXT, demo.programs, demo.island[0].control);
    demo.begin_s = env_mono_s();
    bool done = begin(&demo) && run(&demo);
    demo.took_s = env_mono_s() - demo.begin_s;
    if (done) {
        look(&demo); /* the last bytes */
        demo_say(&demo, "ending both daemons and their trainers");
    }
    done = stop_all(&demo) && done;
    if (interrupted != 0)
        return 130;
    if (done) {
        demo_say(&demo, "for comparison, data-parallel on as many tokens (Ctrl-C leaves it out)");
        demo.parallel = demo_parallel(&demo, &interrupted);
        if (!demo.parallel && interrupted == 0)
            fprintf(stderr, "FAILED: data-parallel training; " DEMO_FOLDER "/data-parallel.log says why\n");
        done = demo.parallel || interrupted == SIGINT;
    }
    /* There is no daemon left to end first. */
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGHUP, SIG_DFL);
    return done ? demo_report(&demo) : 1;
}
