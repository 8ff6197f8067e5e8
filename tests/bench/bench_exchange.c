/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One exchange of a whole model between daemons on loopback: one fragment, synchronised at every step without overlap,
 * so that a call of diloco_step() is snapshot, encode, exchange, mean, second encoding, exchange, outer step, hash,
 * anchor back. Its wall time, and the processor time the daemons take for it, by what they take it for.
 */
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <zstd.h>

#include "common/env.h"
#include "common/fsio.h"
#include "daemon/ctl/calibrate.h"
#include "common/runspec.h"
#include "net/transport/ident.h"
#include "tests/bench/bench.h"
#include "tests/lib/begun.h"
#include "tests/lib/proc.h"
#include "worker/libdiloco/diloco.h"

enum {
    ISLANDS_MAX = 4,
    ROUNDS = 7,
    WARM = 2,
    COUNTED = ROUNDS - WARM,
    SMALL = 16 << 20,
    LARGE = 64 << 20,
    ANSWER_BYTES = 65536,
    UPLINK = 1000000000
};
#define FOLDER "build/bench/exchange"

struct island {
    char conf[64], log[64], socket[96], state[64], sockets[64], name[16], address[32];
    struct ident ident;
    int pid;
};

/* What a case finds. */
struct figures {
    double wall_s;          /* of one exchange, median over rounds and islands */
    double ns_per_param;    /* of all the daemon's processor time, in the mean of the islands */
    double snapshot_ns;     /* of the trainer's */
    double bytes_per_param; /* of memory, the most at any time */
    char phases[400];       /* of the daemon's time, for people */
    json_t *json;           /* the same, in nanoseconds a parameter */
};

struct exchange {
    const char *programs; /* folder */
    const char *codec;    /* "": the default */
    size_t count;
    int islands_count;
    struct island islands[ISLANDS_MAX];
};

/* What the trainers, which are processes, share. */
struct shared {
    pthread_barrier_t barrier;
    double took_s[ISLANDS_MAX][ROUNDS], trainer_s[ISLANDS_MAX];
    double daemon_s[ISLANDS_MAX]; /* of processor time, since the warm rounds */
    char processor[2]
                  [ANSWER_BYTES]; /* the same of the first daemon by its own account: before these rounds, and after */
};

static enum err make_island(struct island *island, int i)
{
    char key[64], conf[600];
    snprintf(island->name, sizeof island->name, "i%d", i);
    snprintf(island->conf, sizeof island->conf, FOLDER "/%d.conf", i);
    snprintf(island->log, sizeof island->log, FOLDER "/%d.log", i);
    snprintf(island->state, sizeof island->state, FOLDER "/state%d", i);
    snprintf(island->sockets, sizeof island->sockets, FOLDER "/s%d", i);
    snprintf(island->socket, sizeof island->socket, "%s/worker.sock", island->sockets);
    snprintf(island->address, sizeof island->address, "127.0.0.1:%u", proc_free_port());
    snprintf(key, sizeof key, FOLDER "/%d.key", i);
    TRY(ident_generate(&island->ident));
    TRY(ident_save(&island->ident, key));
    snprintf(conf, sizeof conf,
             "[island]\nname = %s\nrun = run.ini\nkey = %d.key\nstate = state%d\nsockets = s%d\n"
             "[net]\nlisten = %s\nwindow = 64MiB\n[worker]\nprogram =\n",
             island->name, i, i, i, island->address);
    return fsio_replace(island->conf, conf, strlen(conf), 0644);
}

static enum err put_down(const struct exchange *x)
{
    struct begun_island begun[ISLANDS_MAX];
    struct runspec spec;
    for (int i = 0; i < x->islands_count; i++)
        begun[i] = (struct begun_island){.name = x->islands[i].name,
                                         .address = x->islands[i].address,
                                         .ident = &x->islands[i].ident,
                                         .uplink = UPLINK,
                                         .state = x->islands[i].state,
                                         .sockets = x->islands[i].sockets};
    TRY(runspec_load(FOLDER "/run.ini", NULL, 0, &spec));
    enum err err = begun_write(begun, (uint32_t)x->islands_count, &spec, NULL);
    runspec_deinit(&spec);
    return err;
}

static enum err start_islands(struct exchange *x)
{
    char program[300], spec[400];
    snprintf(program, sizeof program, "%s/dilocod", x->programs);
    snprintf(spec, sizeof spec,
             "[run]\nname = exchange\nsteps = 1000\n[sync]\ninterval = 1\noverlap = 0\nmix = 0\nlate = wait\n"
             "pattern = balanced\nfragments = 1\n%s%s\n",
             x->codec[0] != '\0' ? "codec = " : "", x->codec);
    TRY(fsio_replace(FOLDER "/run.ini", spec, strlen(spec), 0644));
    for (int i = 0; i < x->islands_count; i++)
        TRY(make_island(&x->islands[i], i));
    TRY(put_down(x));
    for (int i = 0; i < x->islands_count; i++) {
        const char *argv[] = {program, "--config", x->islands[i].conf, NULL};
        x->islands[i].pid = proc_start(argv, x->islands[i].log);
    }
    return ERR_OK;
}

/* Gaussian steps, as outer gradients nearly are; a million values over and over, since drawing takes its time. */
static void wander(float *values, size_t count, struct env_rng *rng)
{
    enum { DRAWN = 1 << 20 };
    static float drawn[DRAWN];
    for (size_t i = 0; i < DRAWN; i++)
        drawn[i] = (float)(1e-4 * env_rng_normal(rng));
    for (size_t i = 0; i < count; i++)
        values[i] += drawn[i % DRAWN];
}

/* What a daemon says that it did with its processor time. */
static bool ask_processor(const struct exchange *x, int i, char *answer)
{
    char program[300];
    snprintf(program, sizeof program, "%s/dilococtl", x->programs);
    const char *argv[] = {program, "--config", x->islands[i].conf, "status", "--json", NULL};
    return proc_run(argv, FOLDER "/ctl.log", answer, ANSWER_BYTES) == 0;
}

/* One trainer; all call diloco_step() at once. */
static int train(const struct exchange *x, int i, struct shared *shared)
{
    float *values = malloc(x->count * sizeof *values);
    struct diloco_options options = {
        .size = sizeof(struct diloco_options), .socket_path = x->islands[i].socket, .wait_ms = 10000};
    struct diloco_tensor tensor = {.size = sizeof(struct diloco_tensor),
                                   .name = "all",
                                   .data = values,
                                   .dims = 2,
                                   .shape = {4096, (int64_t)x->count / 4096},
                                   .layer = DILOCO_LAYER_NONE};
    struct diloco_start start = {.size = sizeof(struct diloco_start)};
    struct diloco *d;
    struct env_rng rng = env_rng_init((uint64_t)i, 0);
    for (size_t k = 0; values != NULL && k < x->count; k++)
        values[k] = 0.01f * (float)(k % 17);
    if (values == NULL || diloco_attach(&options, &d) != DILOCO_OK || diloco_register(d, &tensor) != DILOCO_OK ||
        diloco_begin(d, &start) != DILOCO_OK)
        return 1;
    for (int round = 0; round < ROUNDS; round++) {
        struct diloco_report report = {.size = sizeof(struct diloco_report), .tokens = 1000};
        wander(values, x->count, &rng);
        if (round == WARM && i == 0 && !ask_processor(x, i, shared->processor[0]))
            return 1;
        pthread_barrier_wait(&shared->barrier);
        if (round == WARM)
            shared->daemon_s[i] = -bench_cpu_s(x->islands[i].pid);
        double begin_s = env_mono_s();
        uint64_t begin_ns = env_process_cpu_ns();
        if (diloco_step(d, &report) != DILOCO_OK)
            return 1;
        shared->took_s[i][round] = env_mono_s() - begin_s;
        shared->trainer_s[i] += round >= WARM ? (double)(env_process_cpu_ns() - begin_ns) * 1e-9 : 0;
    }
    pthread_barrier_wait(&shared->barrier);
    shared->daemon_s[i] += bench_cpu_s(x->islands[i].pid);
    if (i == 0 && !ask_processor(x, i, shared->processor[1]))
        return 1;
    pthread_barrier_wait(&shared->barrier); /* who leaves makes work for a daemon */
    diloco_detach(d);
    free(values);
    return 0;
}

static struct shared *share(int islands)
{
    pthread_barrierattr_t attr;
    struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return NULL;
    pthread_barrierattr_init(&attr);
    pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared->barrier, &attr, (unsigned)islands);
    return shared;
}

static void take_phases(const struct exchange *x, const struct shared *shared, struct figures *out)
{
    json_t *before = json_loads(shared->processor[0], 0, NULL), *after = json_loads(shared->processor[1], 0, NULL);
    const json_t *then = json_object_get(before, "processor");
    const char *key;
    json_t *value;
    out->json = json_object();
    json_object_foreach (json_object_get(after, "processor"), key, value) {
        double took_s = json_number_value(value) - json_number_value(json_object_get(then, key));
        double ns = took_s * 1e9 / (double)x->count / COUNTED;
        if (strcmp(key, "cores") == 0 || strcmp(key, "seconds") == 0 || ns < 0.005)
            continue;
        json_object_set_new(out->json, key, json_real(ns));
        size_t at = strlen(out->phases);
        snprintf(out->phases + at, sizeof out->phases - at, "%s%s %.2f", at > 0 ? ", " : "", key, ns);
    }
    json_decref(before);
    json_decref(after);
}

static void take_figures(const struct exchange *x, const struct shared *shared, struct figures *out)
{
    double took[ISLANDS_MAX * COUNTED];
    int n = 0;
    double params = (double)x->count * COUNTED * x->islands_count;
    *out = (struct figures){0};
    for (int i = 0; i < x->islands_count; i++) {
        for (int round = WARM; round < ROUNDS; round++)
            took[n++] = shared->took_s[i][round];
        out->ns_per_param += shared->daemon_s[i] * 1e9 / params;
        out->snapshot_ns += shared->trainer_s[i] * 1e9 / params;
        double bytes = bench_peak_bytes(x->islands[i].pid) / (double)x->count;
        out->bytes_per_param = bytes > out->bytes_per_param ? bytes : out->bytes_per_param;
    }
    out->wall_s = bench_median(took, n);
    take_phases(x, shared, out);
}

/* All trainers to their end. One that fails leaves the others waiting for it: then all are ended. */
static bool run_trainers(const struct exchange *x, struct shared *shared)
{
    enum { LONGEST_S = 300 };
    int pids[ISLANDS_MAX], left = x->islands_count;
    double begin_s = env_mono_s();
    bool good = true;
    for (int i = 0; i < x->islands_count; i++) {
        pids[i] = fork();
        if (pids[i] == 0)
            _exit(train(x, i, shared));
    }
    while (left > 0) {
        good &= env_mono_s() - begin_s < LONGEST_S;
        for (int i = 0; i < x->islands_count; i++) {
            if (pids[i] > 0 && !good)
                kill(pids[i], SIGKILL);
            int status = pids[i] > 0 ? proc_wait(pids[i], 0.02) : -1;
            if (status < 0)
                continue;
            good &= status == 0;
            pids[i] = 0;
            left--;
        }
    }
    return good;
}

static void stop_islands(const struct exchange *x)
{
    for (int i = 0; i < x->islands_count; i++) {
        if (x->islands[i].pid <= 0)
            continue;
        kill(x->islands[i].pid, SIGTERM);
        if (proc_wait(x->islands[i].pid, 30) < 0)
            kill(x->islands[i].pid, SIGKILL);
    }
}

/* False: it did not happen, and why is said. */
static bool measure(struct exchange *x, struct figures *out)
{
    struct shared *shared = share(x->islands_count);
    bool good = shared != NULL && system("rm -rf " FOLDER) == 0 && fsio_mkdirs(FOLDER, 0755) == ERR_OK;
    good = good && start_islands(x) == ERR_OK;
    if (!good)
        fprintf(stderr, "bench: %s\n", err_text());
    else if (!(good = run_trainers(x, shared)))
        fprintf(stderr, "bench: the exchange did not happen; see " FOLDER "/*.log\n");
    else
        take_figures(x, shared, out);
    stop_islands(x);
    if (shared != NULL)
        munmap(shared, sizeof *shared);
    return good;
}

/* ---- what it is held against ---- */

/* Seconds for a copy of so many bytes, on one core, both sides larger than any cache. */
static double memcpy_s(size_t bytes)
{
    enum { TIMES = 5 };
    double took[TIMES];
    uint8_t *from = malloc(bytes), *to = malloc(bytes);
    if (from == NULL || to == NULL)
        return 0;
    memset(from, 1, bytes);
    memset(to, 2, bytes);
    for (int i = 0; i < TIMES; i++) {
        double begin_s = env_mono_s();
        memcpy(to, from, bytes);
        took[i] = env_mono_s() - begin_s;
    }
    free(from);
    free(to);
    return bench_median(took, TIMES);
}

/* Seconds in which zstd packs so many Gaussian floats at the level that is behind codecs, on one core; 0: it cannot. */
static double zstd_s(size_t count)
{
    const size_t bytes = count * sizeof(float), room = ZSTD_compressBound(bytes);
    float *from = calloc(count, sizeof *from);
    uint8_t *to = malloc(room);
    struct env_rng rng = env_rng_init(1, 0);
    double took = 0;
    if (from != NULL && to != NULL) {
        wander(from, count, &rng);
        memset(to, 1, room);
        double begin_s = env_mono_s();
        took = ZSTD_isError(ZSTD_compress(to, room, from, bytes, 1)) ? 0 : env_mono_s() - begin_s;
    }
    free(from);
    free(to);
    return took;
}

#define OWN "build/python/bin/python3" /* make check-python makes it */

/* An all-reduce of so many floats between processes by PyTorch's gloo; 0: there is no PyTorch. */
static double gloo_s(size_t count, int processes)
{
    char answer[400], floats[32], many[12];
    const char *python = getenv("PYTHON");
    snprintf(floats, sizeof floats, "%zu", count);
    snprintf(many, sizeof many, "%d", processes);
    const char *argv[] = {
        "/usr/bin/env", python != NULL && python[0] != '\0' ? python : OWN, "tests/bench/gloo.py", floats, many, NULL};
    return proc_run(argv, "build/bench/gloo.log", answer, sizeof answer) == 0 ? strtod(answer, NULL) : 0;
}

/* What `dilococtl plan` takes the daemon's processor time for, and its memory, a parameter. */
static struct calibrate_cost plan_says(const struct calibration *machine, const struct exchange *x)
{
    static const struct {
        const char *codec;
        struct codec_choice choice;
        double bits;
    } rows[] = {{"", {.id = CODEC_UNIFORM, .ratio = 1.4f}, 1.74},
                {"fp32", {.id = CODEC_FP32}, 32},
                {"int8", {.id = CODEC_INT8}, 7.5},
                {"e3m0", {.id = CODEC_E3M0}, 3.6}};
    size_t at = 0;
    struct calibrate_codec codec;
    while (strcmp(rows[at].codec, x->codec) != 0)
        at++;
    if (calibrate_measure_codec(&rows[at].choice, &codec) != ERR_OK)
        fprintf(stderr, "bench: %s\n", err_text());
    const struct calibrate_run run = {
        .islands = (uint32_t)x->islands_count, .owners = (uint32_t)x->islands_count, .bits = rows[at].bits};
    return calibrate_cost(machine, &codec, &run);
}

static json_t *number_or_null(double value)
{
    return value > 0 ? json_real(value) : json_null();
}

/* Under `exchange` all there is; by themselves the figures that are followed over time. */
static void note(json_t *summary, json_t *all, const struct exchange *x, struct figures *f, double gloo,
                 const struct calibrate_cost *plan)
{
    char name[64];
    const char *codec = x->codec[0] != '\0' ? x->codec : "uniform";
    snprintf(name, sizeof name, "%s_%zumi_%d", codec, x->count >> 20, x->islands_count);
    json_object_set_new(all, name,
                        json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:o}", "wall_s", f->wall_s, "ns_per_param",
                                  f->ns_per_param, "trainer_ns_per_param", f->snapshot_ns, "bytes_per_param",
                                  f->bytes_per_param, "plan_ns_per_param", plan->all_ns, "plan_bytes_per_param",
                                  plan->memory_bytes, "ns_by_phase", f->json));
    bool followed =
        x->islands_count == 2 && x->count == LARGE && (strcmp(codec, "uniform") == 0 || strcmp(codec, "fp32") == 0);
    if (!followed)
        return;
    snprintf(name, sizeof name, "exchange_%s_ns_per_param", codec);
    json_object_set_new(summary, name, json_real(f->ns_per_param));
    snprintf(name, sizeof name, "exchange_%s_64mi_s", codec);
    json_object_set_new(summary, name, json_real(f->wall_s));
    snprintf(name, sizeof name, "exchange_%s_over_gloo", codec);
    json_object_set_new(summary, name, number_or_null(gloo > 0 ? f->wall_s / gloo : 0));
    if (strcmp(codec, "uniform") != 0)
        return;
    json_object_set_new(summary, "version_hash_ns_per_param",
                        json_real(json_number_value(json_object_get(f->json, "hash"))));
    json_object_set_new(summary, "daemon_bytes_per_param", json_real(f->bytes_per_param));
}

void bench_exchange(json_t *summary, const char *programs, const char *only)
{
    static const char *const codecs[] = {"", "fp32", "int8", "e3m0"};
    static const struct {
        size_t count;
        int islands;
    } sizes[] = {{SMALL, 2}, {LARGE, 2}, {SMALL, 4}, {LARGE, 4}};
    json_t *all = json_object();
    struct calibration machine;
    if (calibrate_measure(".", &machine) != ERR_OK)
        fprintf(stderr, "bench: %s\n", err_text());
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        double gloo = gloo_s(sizes[s].count, sizes[s].islands);
        printf("exchange     %zu Mi values, %d islands; on one core memcpy takes %.3f s, zstd %.2f s",
               sizes[s].count >> 20, sizes[s].islands, memcpy_s(sizes[s].count * sizeof(float)),
               zstd_s(sizes[s].count));
        if (gloo > 0)
            printf("; gloo's all-reduce %.3f s\n", gloo);
        else
            puts("; gloo: skipped, no PyTorch for it");
        for (size_t k = 0; k < sizeof codecs / sizeof codecs[0]; k++) {
            struct exchange x = {
                .programs = programs, .codec = codecs[k], .count = sizes[s].count, .islands_count = sizes[s].islands};
            struct figures f;
            char name[64];
            snprintf(name, sizeof name, "%s %zu %d", codecs[k][0] != '\0' ? codecs[k] : "uniform", x.count >> 20,
                     x.islands_count);
            if ((only != NULL && strstr(name, only) == NULL) || !measure(&x, &f))
                continue;
            const struct calibrate_cost plan = plan_says(&machine, &x);
            printf(
                "             %-8s %.3f s; processor time a parameter: daemon %.1f ns (plan says %.1f), trainer %.1f "
                "ns; memory %.1f bytes (%.1f)\n             %s\n",
                codecs[k][0] != '\0' ? codecs[k] : "default", f.wall_s, f.ns_per_param, plan.all_ns, f.snapshot_ns,
                f.bytes_per_param, plan.memory_bytes, f.phases);
            fflush(stdout);
            note(summary, all, &x, &f, gloo, &plan);
        }
    }
    json_object_set_new(summary, "exchange", all);
}
