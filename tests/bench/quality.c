/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/quality.h"

#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/args.h"
#include "common/conf.h"
#include "common/digest.h"
#include "common/env.h"
#include "common/fsio.h"
#include "common/mem.h"
#include "tests/bench/field.h"
#include "tests/lib/corpus.h"

#define CORPUS "build/bench/quality/corpus"
enum { CORPUS_BYTES_MAX = 8 << 20, FILE_BYTES_MAX = 1 << 30 };

/* One run: a row with one seed. */
struct task {
    const struct quality_row *row;
    uint64_t seed;
};

static volatile sig_atomic_t stopped;
/* Of this process alone: two may be at work on different rows. */
static char base_path[64];
/* Of the text, and of the programs that train on it: a result counts for these alone. */
static struct digest made_of[2];

static void on_signal(int number)
{
    stopped = number;
}

static enum err add_file(struct digest_state *state, const char *path)
{
    char *data;
    size_t bytes;
    TRY(fsio_read(path, FILE_BYTES_MAX, &data, &bytes));
    digest_add(state, data, bytes);
    mem_free(data);
    return ERR_OK;
}

static enum err note_origin(const char *text)
{
    const char *build = getenv("BUILD");
    char daemon[300], worker[300];
    struct digest_state state;
    snprintf(daemon, sizeof daemon, "%s/dilocod", build != NULL ? build : "build/gcc");
    snprintf(worker, sizeof worker, "%s/diloco-worker", build != NULL ? build : "build/gcc");
    digest_begin(&state);
    TRY(add_file(&state, text));
    made_of[0] = digest_end(&state);
    digest_begin(&state);
    TRY(add_file(&state, "/proc/self/exe"));
    TRY(add_file(&state, daemon));
    TRY(add_file(&state, worker));
    made_of[1] = digest_end(&state);
    return ERR_OK;
}

/* The name holds what the run is made of, so that it is run anew when a row, the text or the programs have changed. */
void quality_path(const struct quality_row *row, uint64_t seed, char *path, size_t path_bytes)
{
    struct digest_state state;
    char hex[DIGEST_HEX_BYTES];
    digest_begin(&state);
    digest_add(&state, made_of, sizeof made_of);
    digest_add(&state, quality_base, strlen(quality_base));
    digest_add(&state, &row->islands, sizeof row->islands);
    digest_add(&state, &row->steps, sizeof row->steps);
    const uint8_t flags[] = {row->lab.data_parallel, row->lab.own_parts, row->lab.flush, row->lab.field,
                             row->no_feedback};
    digest_add(&state, flags, sizeof flags);
    digest_add(&state, &row->lab.drop, sizeof row->lab.drop);
    digest_add(&state, row->lab.forget, sizeof row->lab.forget);
    digest_add(&state, &row->lab.slow, sizeof row->lab.slow);
    for (int i = 0; i < QUALITY_SETS_MAX && row->sets[i] != NULL; i++)
        digest_add(&state, row->sets[i], strlen(row->sets[i]) + 1);
    struct digest digest = digest_end(&state);
    digest_hex(&digest, hex);
    snprintf(path, path_bytes, "build/bench/quality/%.16s-%" PRIu64 ".json", hex, seed);
}

static enum err load_spec(const struct quality_row *row, uint64_t seed, struct runspec *spec)
{
    struct conf_override sets[QUALITY_SETS_MAX + 3];
    char steps[40], seeds[40];
    size_t count = 0;
    snprintf(steps, sizeof steps, "run.steps=%" PRIu64, row->steps);
    snprintf(seeds, sizeof seeds, "run.seed=%" PRIu64, seed);
    sets[count++].text = steps;
    sets[count++].text = seeds;
    for (int i = 0; i < QUALITY_SETS_MAX && row->sets[i] != NULL; i++)
        sets[count++].text = row->sets[i];
    if (row->no_feedback)
        sets[count++].text = "sync.error_feedback=yes"; /* taken back below: it may be what a run spec insists on */
    TRY(runspec_load(base_path, sets, count, spec));
    if (row->no_feedback)
        spec->error_feedback = false;
    return ERR_OK;
}

static enum err run_task(const struct task *task, const char *data)
{
    struct lab_conf conf = task->row->lab;
    struct lab_result result;
    char path[200], text[600];
    conf.islands = task->row->islands;
    conf.data = data;
    TRY(load_spec(task->row, task->seed, &conf.spec));
    double begin_s = env_mono_s();
    enum err err = conf.field ? field_run(&conf, &result) : lab_run(&conf, &result);
    if (err == ERR_NONFINITE) /* diverging is an outcome, too */
        result.val_loss = 99;
    else if (err != ERR_OK)
        return err;
    quality_path(task->row, task->seed, path, sizeof path);
    int bytes = snprintf(text, sizeof text,
                         "{\"val_loss\": %.6f, \"tokens\": %" PRIu64 ", \"rounds\": %" PRIu64
                         ", \"bytes_sent\": %.0f, \"bytes_data_parallel\": %.0f, \"seconds\": %.1f}\n",
                         result.val_loss, result.tokens, result.rounds, result.bytes_sent, result.bytes_data_parallel,
                         env_mono_s() - begin_s);
    printf("%-28s seed %" PRIu64 "  held-out %.4f  %.0f s\n", task->row->name, task->seed, result.val_loss,
           env_mono_s() - begin_s);
    fflush(stdout);
    runspec_deinit(&conf.spec);
    return fsio_replace(path, text, (size_t)bytes, 0644);
}

/* Seeds outermost, so that a first full table is there as early as can be. */
static size_t list_tasks(const char *only, uint64_t seeds, struct task *tasks)
{
    size_t count = 0;
    for (uint64_t seed = 1; seed <= seeds; seed++)
        for (size_t i = 0; i < quality_rows_count; i++) {
            char path[200];
            quality_path(&quality_rows[i], seed, path, sizeof path);
            bool wanted = only == NULL || fnmatch(only, quality_rows[i].name, 0) == 0 ||
                          fnmatch(only, quality_rows[i].group, 0) == 0;
            if (wanted && access(path, R_OK) != 0)
                tasks[count++] = (struct task){&quality_rows[i], seed};
        }
    return count;
}

/* Waits for one child; false if it failed. */
static bool reap(void)
{
    int status;
    while (wait(&status) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool run_all(const struct task *tasks, size_t count, long jobs, const char *data)
{
    long running = 0;
    bool good = true;
    for (size_t i = 0; i < count && !stopped && good; i++) {
        if (running == jobs) {
            good &= reap();
            running--;
        }
        pid_t pid = stopped ? 0 : fork();
        if (pid == 0) {
            if (stopped)
                break;
            enum err err = run_task(&tasks[i], data);
            if (err != ERR_OK)
                fprintf(stderr, "%s: %s\n", tasks[i].row->name, err_text());
            _exit(err != ERR_OK);
        }
        running += pid > 0;
        if (i % 10 == 0)
            printf("[%zu of %zu runs begun; stop with Ctrl-C, the same command goes on]\n", i + 1, count);
        fflush(stdout);
    }
    for (; running > 0; running--)
        good &= reap();
    return good && !stopped;
}

int main(int argc, char **argv)
{
    const char *data = NULL, *only = NULL, *out = "build/bench/quality.json";
    uint64_t jobs = (uint64_t)sysconf(_SC_NPROCESSORS_ONLN), seeds = 3;
    bool report = false;
    const struct args_option options[] = {
        {"data", ARGS_STRING, &data, "FILE", "a text to train on; else this machine's C headers"},
        {"only", ARGS_STRING, &only, "PATTERN", "rows or groups of this name"},
        {"seeds", ARGS_U64, &seeds, "N", "runs of every row"},
        {"jobs", ARGS_U64, &jobs, "N", "runs at a time"},
        {"report", ARGS_FLAG, &report, NULL, "only the table of what has been run"},
        {"out", ARGS_STRING, &out, "FILE", "where the results go"},
    };
    snprintf(base_path, sizeof base_path, "build/bench/quality/base-%d.ini", (int)getpid());
    if (digest_init() != ERR_OK ||
        args_parse(argc, argv, options, sizeof options / sizeof options[0], NULL) != ERR_OK ||
        fsio_mkdirs("build/bench/quality", 0755) != ERR_OK ||
        fsio_replace(base_path, quality_base, strlen(quality_base), 0644) != ERR_OK) {
        fprintf(stderr, "quality: %s\n", err_text());
        return 2;
    }
    if (!corpus_make(data, CORPUS, CORPUS_BYTES_MAX))
        return 2;
    if (note_origin(CORPUS) != ERR_OK) {
        fprintf(stderr, "quality: %s\n", err_text());
        return 2;
    }
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    struct task *tasks = calloc(quality_rows_count * seeds, sizeof *tasks);
    bool good = tasks != NULL;
    if (good && !report)
        good = run_all(tasks, list_tasks(only, seeds, tasks), (long)jobs, CORPUS);
    free(tasks);
    unlink(base_path);
    return quality_report(seeds, data != NULL ? data : "C headers", out) && good ? 0 : 1;
}
