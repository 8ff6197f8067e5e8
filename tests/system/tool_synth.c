/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A synthetic trainer: attaches through libdiloco's public interface alone and moves a few tensors towards targets
 * that differ between islands. Needs no BLAS and no OpenMP, so that daemons can be tested under every sanitizer and
 * eight of them on two cores. It is somebody else's program to dilocod. --mark is the name of its island, and
 * --data carries its options:
 *
 *   sleep=MS    per step                  nan=STEP       puts a NaN into a tensor after that step
 *   seed=N      of the initial tensors    size=VALUES    of each layer's tensor
 *   params=N    instead: of all tensors, about; size and params take K, M and G, powers of 1024
 *   touch=VALUES  a step moves the first so many of each tensor, and leaves the processor to others
 *   crash=STEP  ends without a word after that step, the first time
 *   hang=STEP   stands still for ever after that step, the first time, and does not end when it is asked to
 *   chat=1      says every step, in turn to its standard output and errors
 *   spike=STEP  throws all tensors far off after that step
 *   drift=1     every step adds (island + 1) / 1000 to every value, wherever it is, so that work can be summed up
 *   turn=1      every step goes the other way
 *   keep=1      saves when it is asked to end, and goes on from there
 *   worked=1    counts what it trains in all its lives in a file that no kill harms (tests/lib/worked.h)
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/env.h"
#include "common/fsio.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/runspec.h"
#include "tests/lib/worked.h"
#include "worker/libdiloco/diloco.h"

/* DRAWN: values of a tensor; those behind them are the same again, since drawing takes its time. */
enum { TENSORS_MAX = 64, DRAWN_MAX = 1 << 20 };

struct synth {
    struct runspec spec;
    const char *run, *mark, *data;
    long sleep_ms, nan_step, seed, size, crash_step, spike_step, drift, turn, keep, hang_step, chat, touch;
    uint64_t *worked; /* NULL: it is not counted */
    float *tensor[TENSORS_MAX];
    size_t count[TENSORS_MAX];
    int tensors_count;
    uint32_t island;
    char *kept; /* what diloco_keep() gave */
    size_t kept_bytes;
};

static volatile sig_atomic_t stop_signal;

static void on_signal(int number)
{
    stop_signal = number;
}

static int interrupted(void *user)
{
    (void)user;
    return stop_signal != 0;
}

static long option(const char *text, const char *name, long initial)
{
    text = strrchr(text, '/') != NULL ? strrchr(text, '/') + 1 : text; /* the daemon made a path of it */
    const char *at = strstr(text, name);
    if (at == NULL || at[strlen(name)] != '=')
        return initial;
    char *end;
    long value = strtol(at + strlen(name) + 1, &end, 10);
    return *end == 'K' ? value << 10 : *end == 'M' ? value << 20 : *end == 'G' ? value << 30 : value;
}

static void add_tensor(struct synth *s, size_t count)
{
    struct env_rng rng = env_rng_init((uint64_t)s->seed, (uint64_t)s->tensors_count);
    float *values = malloc(count * sizeof *values);
    for (size_t i = 0; i < count && i < DRAWN_MAX; i++)
        values[i] = (float)(0.1 * env_rng_normal(&rng));
    for (size_t i = DRAWN_MAX; i < count; i++)
        values[i] = values[i - DRAWN_MAX];
    s->tensor[s->tensors_count] = values;
    s->count[s->tensors_count++] = count;
}

static int register_all(struct synth *s, struct diloco *d)
{
    for (int i = 0; i < s->tensors_count; i++) {
        char name[64];
        snprintf(name, sizeof name, i == 0 ? "embed" : "layers.%d.weight", i - 1);
        bool norm = i == s->tensors_count - 1; /* one vector among matrices */
        struct diloco_tensor tensor = {.size = sizeof(struct diloco_tensor),
                                       .name = name,
                                       .data = s->tensor[i],
                                       .dims = norm ? 1 : 2,
                                       .shape = {norm ? s->count[i] : 10, s->count[i] / 10},
                                       .layer = DILOCO_LAYER_FROM_NAME};
        int result = diloco_register(d, &tensor);
        if (result != DILOCO_OK)
            return result;
    }
    return DILOCO_OK;
}

/* Towards this island's target, with a disturbance that depends on island and step alone. */
static double inner_step(struct synth *s, uint64_t step)
{
    double loss = 0, values = 0;
    const float way = s->turn != 0 ? -1 : 1;
    for (int t = 0; t < s->tensors_count; t++) {
        struct env_rng rng = env_rng_init(step, ((uint64_t)s->island << 32) + (uint64_t)t);
        float noise = (float)(0.01 * env_rng_normal(&rng));
        size_t count = s->touch > 0 && (size_t)s->touch < s->count[t] ? (size_t)s->touch : s->count[t];
        for (size_t i = 0; i < count; i++) {
            float target = (float)((i * 37 + (size_t)t * 11) % 101) / 101.0f + 0.1f * (float)s->island;
            float error = s->tensor[t][i] - target;
            if (s->drift != 0) {
                s->tensor[t][i] += way * 1e-3f * (float)(s->island + 1);
                continue;
            }
            s->tensor[t][i] -= way * 0.05f * (error + noise * (float)(i % 7));
            loss += (double)error * error;
        }
        values += (double)count;
    }
    return loss / values;
}

static bool first_time(const struct synth *s, long when, uint64_t step, const char *what)
{
    char path[600];
    if (when == 0 || step != (uint64_t)when || s->mark == NULL)
        return false;
    snprintf(path, sizeof path, "%s.%s-%s", s->run, what, s->mark);
    return access(path, F_OK) != 0 && fsio_replace(path, "", 0, 0644) == ERR_OK;
}

static bool crash_now(const struct synth *s, uint64_t step)
{
    return first_time(s, s->crash_step, step, "crashed");
}

static bool hang_now(const struct synth *s, uint64_t step)
{
    return first_time(s, s->hang_step, step, "hung");
}

static void hang(void)
{
    for (;;)
        pause();
}

/* Its checkpoint: all tensors, then what libdiloco keeps. */
static void checkpoint_path(const struct synth *s, char *path, size_t path_bytes)
{
    snprintf(path, path_bytes, "%s.kept-%s", s->run, s->mark != NULL ? s->mark : "");
}

static void save(const struct synth *s, struct diloco *d)
{
    char path[600];
    struct fsio_writer writer;
    size_t bytes = diloco_keep_bytes(d);
    char *kept = malloc(bytes);
    checkpoint_path(s, path, sizeof path);
    bytes = diloco_keep(d, kept, bytes);
    enum err err = fsio_begin(&writer, path, 0644);
    for (int t = 0; t < s->tensors_count && err == ERR_OK; t++)
        err = fsio_write(&writer, s->tensor[t], s->count[t] * sizeof *s->tensor[t]);
    if (err == ERR_OK)
        err = fsio_write(&writer, kept, bytes);
    if (err == ERR_OK)
        err = fsio_commit(&writer);
    log_info("saved %zu bytes after step %llu: %s", bytes, (unsigned long long)diloco_run_step(d), err_name(err));
    free(kept);
}

static void load(struct synth *s)
{
    char path[600], *bytes, *at;
    size_t count;
    checkpoint_path(s, path, sizeof path);
    if (fsio_read(path, 64 << 20, &bytes, &count) != ERR_OK)
        return;
    at = bytes;
    for (int t = 0; t < s->tensors_count; t++) {
        memcpy(s->tensor[t], at, s->count[t] * sizeof *s->tensor[t]);
        at += s->count[t] * sizeof *s->tensor[t];
    }
    s->kept_bytes = count - (size_t)(at - bytes);
    s->kept = malloc(s->kept_bytes);
    memcpy(s->kept, at, s->kept_bytes);
    mem_free(bytes);
}

static void rest(long ms)
{
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    if (ms > 0)
        nanosleep(&pause, NULL);
}

/* What the tensors hold in the end; a test compares these lines. */
static void tell_end(const struct synth *s, int result)
{
    struct digest_state state;
    char hex[DIGEST_HEX_BYTES];
    digest_begin(&state);
    for (int t = 0; t < s->tensors_count; t++)
        digest_add(&state, s->tensor[t], s->count[t] * sizeof *s->tensor[t]);
    struct digest digest = digest_end(&state);
    log_info("ended with %d, tensors %s", result, digest_hex(&digest, hex));
}

/* Once, after that step or the first one behind it: who has fallen behind the run goes past some. */
static bool falls_due(long *due, uint64_t step)
{
    if (*due == 0 || step < (uint64_t)*due)
        return false;
    *due = 0;
    return true;
}

static int train(struct synth *s, struct diloco *d, uint64_t step)
{
    (void)falls_due(&s->nan_step, step); /* one that was started again has had them */
    (void)falls_due(&s->spike_step, step);
    while (step < diloco_run_steps(d)) {
        if (stop_signal != 0) {
            if (s->keep != 0)
                save(s, d);
            return DILOCO_INTERRUPTED;
        }
        step++;
        double loss = inner_step(s, step);
        if (falls_due(&s->nan_step, step))
            s->tensor[1][3] = NAN;
        if (falls_due(&s->spike_step, step))
            for (int t = 0; t < s->tensors_count; t++)
                for (size_t i = 0; i < s->count[t]; i++)
                    s->tensor[t][i] += 1000;
        if (s->worked != NULL)
            *s->worked += 100 + 10 * s->island;
        struct diloco_report report = {
            .size = sizeof(struct diloco_report), .tokens = 100 + 10 * s->island, .loss = loss, .tokens_per_s = 1000};
        int result = diloco_step(d, &report);
        step = diloco_run_step(d);
        if (result == DILOCO_STOP)
            break;
        if (result != DILOCO_OK)
            return result;
        if (crash_now(s, step))
            _exit(9);
        if (hang_now(s, step))
            hang();
        if (s->chat != 0)
            dprintf(step % 2 ? STDOUT_FILENO : STDERR_FILENO, "said %llu.\n", (unsigned long long)step);
        rest(s->sleep_ms);
    }
    int result = diloco_finish(d);
    tell_end(s, result);
    return result;
}

int main(int argc, char **argv)
{
    struct synth s = {.data = ""};
    for (int i = 1; i + 1 < argc; i++) {
        if (strcmp(argv[i], "--run") == 0)
            s.run = argv[i + 1];
        if (strcmp(argv[i], "--mark") == 0)
            s.mark = argv[i + 1];
        if (strcmp(argv[i], "--data") == 0)
            s.data = argv[i + 1];
    }
    log_init("synth", LOG_LEVEL_INFO);
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGTERM, &action, NULL);
    if (digest_init() != ERR_OK || s.run == NULL || runspec_load(s.run, NULL, 0, &s.spec) != ERR_OK) {
        log_error("%s", err_text());
        return 2;
    }
    s.sleep_ms = option(s.data, "sleep", 2);
    s.nan_step = option(s.data, "nan", 0);
    s.seed = option(s.data, "seed", 7);
    s.size = option(s.data, "size", 1500);
    if (s.spec.layers > 0 && option(s.data, "params", 0) > 0)
        s.size = option(s.data, "params", 0) / s.spec.layers;
    s.touch = option(s.data, "touch", 0);
    s.crash_step = option(s.data, "crash", 0);
    s.spike_step = option(s.data, "spike", 0);
    s.hang_step = option(s.data, "hang", 0);
    s.chat = option(s.data, "chat", 0);
    s.drift = option(s.data, "drift", 0);
    s.turn = option(s.data, "turn", 0);
    s.keep = option(s.data, "keep", 0);
    add_tensor(&s, 700);
    for (int64_t l = 0; l < s.spec.layers && l + 1 < TENSORS_MAX; l++)
        add_tensor(&s, (size_t)s.size / 10 * 10 + 10 * (size_t)l);

    if (s.keep != 0)
        load(&s);
    if (option(s.data, "worked", 0) != 0)
        s.worked = worked_open(s.run, s.mark);
    struct diloco_options options = {.size = sizeof(struct diloco_options),
                                     .kept = s.kept,
                                     .kept_bytes = s.kept_bytes,
                                     .trainer = "synth",
                                     .wait_ms = 5000,
                                     .interrupted = interrupted};
    struct diloco *d = NULL;
    struct diloco_start start = {.size = sizeof(struct diloco_start)};
    int result = diloco_attach(&options, &d);
    if (result == DILOCO_OK)
        result = register_all(&s, d);
    if (result == DILOCO_OK)
        result = diloco_begin(d, &start);
    if (result == DILOCO_OK) {
        s.island = start.island_index;
        log_info("after step %llu", (unsigned long long)start.step);
        result = train(&s, d, start.step);
    }
    if (result != DILOCO_OK)
        log_error("%s", diloco_error(d));
    diloco_detach(d);
    for (int i = 0; i < s.tensors_count; i++)
        free(s.tensor[i]);
    free(s.kept);
    runspec_deinit(&s.spec);
    return result >= DILOCO_OK ? 0 : 1;
}
