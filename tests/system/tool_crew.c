/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A synthetic trainer of two ranks, each with one column of every tensor on a device that is late: what is to leave it
 * arrives some steps later, so that moves are under way most of the time. Somebody else's program to dilocod, as
 * tool_synth. --mark is the name of its island; --data carries its options:
 *
 *   sleep=MS  per step
 *   dies=ROW  in each of its first lives one process is killed while a move is under way: see `deaths`
 *
 * All values begin at 1000 and grow by .001 a step.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/log.h"
#include "common/runspec.h"
#include "kernels/kern.h"
#include "tests/lib/late.h"
#include "tests/lib/worked.h"
#include "worker/crew.h"
#include "worker/launch.h"

enum { RANKS = 2, TENSORS = 4, ROWS = 300, TOKENS = 100, LATE_STEPS = 4 };

/* Which process goes, and in which move; a life each. */
enum { LAUNCHER = -1, ROWS_OF_DEATHS = 3, DEATHS = 3 };
static const struct death {
    int rank;
    enum diloco_move_kind move;
} deaths[ROWS_OF_DEATHS][DEATHS] = {
    [1] = {{1, DILOCO_READ}, {LAUNCHER, DILOCO_READ}, {1, DILOCO_MIX}},
    [2] = {{0, DILOCO_READ}, {0, DILOCO_MIX}, {LAUNCHER, DILOCO_MIX}},
};

struct tool {
    struct runspec spec;
    const char *run, *mark, *data;
    long sleep_ms, dies;
    uint64_t *worked, *lives;
};

static long option(const char *text, const char *name, long initial)
{
    const char *at = strstr(text, name);
    return at != NULL ? strtol(at + strlen(name), NULL, 10) : initial;
}

struct trainer {
    struct tool *tool;
    struct crew crew;
    struct diloco *d;
    struct diloco_device device;
    struct late late;
    float values[TENSORS][ROWS]; /* this rank's column of each */
};

static int asked_to_end(void *user)
{
    sigset_t pending;
    (void)user;
    return sigpending(&pending) == 0 && sigismember(&pending, SIGTERM) == 1;
}

/* Of the second move of its kind in this life: the first one has gone well. */
static void die_if_it_is_time(struct trainer *t, uint64_t *seen, bool *was)
{
    if (t->tool->dies == 0 || *t->tool->lives > DEATHS)
        return;
    const struct death *death = &deaths[t->tool->dies][*t->tool->lives - 1];
    bool is = late_is_under_way(&t->late, death->move);
    *seen += is && !*was;
    *was = is;
    if (*seen < 2 || t->crew.rank != (death->rank == LAUNCHER ? 0 : death->rank))
        return;
    log_info("killed: %s, life %d", death->move == DILOCO_READ ? "COPYING" : "MIXING", (int)*t->tool->lives);
    kill(death->rank == LAUNCHER ? getppid() : getpid(), SIGKILL);
    for (;;)
        pause();
}

static int register_all(struct trainer *t)
{
    int result = DILOCO_OK;
    for (int i = 0; i < TENSORS && result == DILOCO_OK; i++) {
        char name[32];
        snprintf(name, sizeof name, i == 0 ? "embed" : "layers.%d.weight", i - 1);
        struct diloco_tensor tensor = {.size = sizeof tensor,
                                       .name = name,
                                       .data = t->values[i],
                                       .dims = 2,
                                       .shape = {ROWS, RANKS},
                                       .layer = DILOCO_LAYER_FROM_NAME,
                                       .part = {(uint64_t)t->crew.rank, 1, 0, ROWS}};
        for (int k = 0; k < ROWS; k++)
            t->values[i][k] = 1000;
        result = diloco_register(t->d, &tensor);
    }
    return result;
}

static int train(struct trainer *t, uint64_t step)
{
    struct tool *tool = t->tool;
    uint64_t seen = 0;
    bool was = false;
    while (step < diloco_run_steps(t->d)) {
        uint8_t stop = (uint8_t)asked_to_end(NULL);
        if (crew_agree(&t->crew, &stop, 1) != ERR_OK || stop != 0)
            return DILOCO_INTERRUPTED;
        for (int i = 0; i < TENSORS; i++)
            for (int k = 0; k < ROWS; k++)
                t->values[i][k] += 1e-3f;
        if (t->crew.rank == 0)
            *tool->worked += TOKENS;
        t->late.refuse = step % (LATE_STEPS + (uint64_t)t->crew.rank) == 0 ? 0 : 1 << 20;
        int result = diloco_step(t->d, &(struct diloco_report){.size = sizeof(struct diloco_report), .tokens = TOKENS});
        step = diloco_run_step(t->d);
        if (result != DILOCO_OK && result != DILOCO_STOP)
            return result;
        if (result == DILOCO_STOP)
            break;
        die_if_it_is_time(t, &seen, &was);
        nanosleep(&(struct timespec){.tv_nsec = tool->sleep_ms * 1000000}, NULL);
    }
    t->late.refuse = 0;
    return diloco_finish(t->d);
}

static int take_part(struct trainer *t)
{
    struct diloco_options options = {.size = sizeof options,
                                     .trainer = "crew",
                                     .wait_ms = 5000,
                                     .interrupted = asked_to_end,
                                     .device = &t->device,
                                     .group = &t->crew.group};
    struct diloco_start start = {.size = sizeof start};
    int result = diloco_attach(&options, &t->d);
    if (result == DILOCO_OK)
        result = register_all(t);
    if (result == DILOCO_OK)
        result = diloco_begin(t->d, &start);
    if (result == DILOCO_OK && t->crew.rank == 0)
        log_info("after step %llu, life %d", (unsigned long long)start.step, (int)*t->tool->lives);
    return result == DILOCO_OK ? train(t, start.step) : result;
}

static enum err be_rank(void *user, const struct launch_rank *rank)
{
    struct trainer *t = calloc(1, sizeof *t);
    const struct kern *kern;
    struct kern_dev *dev;
    TRY(kern_find("cpu", &kern));
    TRY(kern->open(&(struct kern_place){.threads = 1}, &dev));
    t->tool = user;
    t->device = late_device(&t->late, true);
    TRY(crew_init(&t->crew, rank, 1, kern, dev));
    int result = take_part(t);
    bool in_range = true;
    for (int i = 0; result == DILOCO_OK && i < TENSORS; i++)
        for (int k = 0; k < ROWS; k++)
            in_range &= t->values[i][k] > 999 && t->values[i][k] < 1100;
    enum err err = result < DILOCO_OK ? err_set(ERR_STATE, "%s", diloco_error(t->d)) : ERR_OK;
    if (t->late.broken || !in_range)
        err = err_set(ERR_STATE, "please report: %s",
                      in_range ? "a lent array was changed" : "values are not as trained");
    t->late.refuse = 0; /* who goes waits for its device */
    diloco_detach(t->d);
    late_end(&t->late);
    crew_deinit(&t->crew);
    kern->close(dev);
    free(t);
    return err;
}

int main(int argc, char **argv)
{
    struct tool tool = {.data = ""};
    char mark[80];
    for (int i = 1; i + 1 < argc; i++) {
        if (strcmp(argv[i], "--run") == 0)
            tool.run = argv[i + 1];
        if (strcmp(argv[i], "--mark") == 0)
            tool.mark = argv[i + 1];
        if (strcmp(argv[i], "--data") == 0)
            tool.data = argv[i + 1];
    }
    log_init("crew", LOG_LEVEL_INFO);
    enum err err = digest_init();
    if (err == ERR_OK)
        err = tool.run != NULL ? runspec_load(tool.run, NULL, 0, &tool.spec) : err_set(ERR_ARG, "--run is missing");
    tool.sleep_ms = option(tool.data, "sleep=", 5);
    tool.dies = option(tool.data, "dies=", 0) % ROWS_OF_DEATHS;
    snprintf(mark, sizeof mark, "%s-lives", tool.mark != NULL ? tool.mark : "");
    tool.worked = err == ERR_OK ? worked_open(tool.run, tool.mark) : NULL;
    tool.lives = err == ERR_OK ? worked_open(tool.run, mark) : NULL;
    if (tool.worked != NULL && tool.lives != NULL) {
        ++*tool.lives;
        err = launch_run(&(struct launch_conf){.ranks = RANKS, .device = "late", .patience_s = 20}, be_rank, &tool);
    }
    if (err != ERR_OK)
        log_error("%s", err_text());
    runspec_deinit(&tool.spec);
    return err == ERR_OK && tool.lives != NULL ? 0 : 1;
}
