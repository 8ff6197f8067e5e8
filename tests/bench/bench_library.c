/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What libdiloco costs a trainer whose model is large: attaching, and each call of diloco_step(), held against memcpy
 * of as many bytes right after it. One island, whose daemon has the rounds to itself; a trainer in C with the layers of
 * a GPT, and, where there is PyTorch, models of library.py.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/env.h"
#include "common/fsio.h"
#include "net/transport/ident.h"
#include "outer_opt/schedule.h"
#include "tests/bench/bench.h"
#include "tests/lib/proc.h"
#include "worker/libdiloco/diloco.h"

enum { INTERVAL = 20, GROUP = 3, INTERVALS = 5, CALLS_MAX = INTERVAL * INTERVALS * 4, FRAGMENTS_MAX = 16, PARTS = 12 };
enum { SMALL_VALUES = 4 << 20 }; /* of smaller fragments the caches decide */
#define FOLDER "build/bench/library"
#define OWN "build/python/bin/python3" /* make check-python makes it */

/* Of one kind of call: how often its time was so many times memcpy's. */
struct calls {
    int count;
    double over_memcpy[CALLS_MAX], own_s[CALLS_MAX]; /* processor time */
};

/* What a trainer finds; shared with it. */
struct found {
    uint64_t values;
    double attach_s, attach_cpu_s; /* until the tensors hold the first anchor */
    double bytes_per_value;        /* peak, beside its tensors */
    double idle_s;                 /* a call that moves nothing, median */
    double keep_s, keep_bytes_per_value;
    struct calls snapshot, mix;
    bool done;
};

struct model {
    uint64_t width, layers, tensors_count;
    float **tensors;
    uint64_t *counts;
    uint64_t values, fragment_values[FRAGMENTS_MAX];
};

/* ---- the trainer ---- */

static float *touched(uint64_t values, float value)
{
    float *memory = malloc(values * sizeof *memory);
    for (uint64_t i = 0; memory != NULL && i < values; i++)
        memory[i] = value;
    return memory;
}

static bool add(struct model *model, struct diloco *d, const char *name, uint64_t rows, uint64_t columns, uint32_t f)
{
    uint64_t count = rows * columns;
    float *values = touched(count, 0.01f);
    struct diloco_tensor tensor = {.size = sizeof tensor,
                                   .name = name,
                                   .data = values,
                                   .dims = rows > 1 ? 2 : 1,
                                   .shape = {rows > 1 ? rows : columns, columns},
                                   .layer = DILOCO_LAYER_FROM_NAME};
    model->tensors[model->tensors_count] = values;
    model->counts[model->tensors_count++] = count;
    model->values += count;
    model->fragment_values[f] += count;
    return values != NULL && diloco_register(d, &tensor) == DILOCO_OK;
}

static bool register_model(struct model *model, struct diloco *d)
{
    const uint64_t w = model->width;
    const struct {
        const char *name;
        uint64_t rows, columns;
    } parts[PARTS] = {{"norm1.weight", 1, w},  {"norm1.bias", 1, w},  {"qkv.weight", 3 * w, w},  {"qkv.bias", 1, 3 * w},
                      {"out.weight", w, w},    {"out.bias", 1, w},    {"norm2.weight", 1, w},    {"norm2.bias", 1, w},
                      {"up.weight", 4 * w, w}, {"up.bias", 1, 4 * w}, {"down.weight", w, 4 * w}, {"down.bias", 1, w}};
    model->tensors = calloc(PARTS * model->layers + 1, sizeof *model->tensors);
    model->counts = calloc(PARTS * model->layers + 1, sizeof *model->counts);
    bool good = model->tensors != NULL && model->counts != NULL && add(model, d, "embed.weight", 1280, w, 0);
    for (uint64_t l = 0; good && l < model->layers; l++)
        for (int p = 0; good && p < PARTS; p++) {
            char name[64];
            snprintf(name, sizeof name, "layers.%d.%s", (int)l, parts[p].name);
            good = add(model, d, name, parts[p].rows, parts[p].columns, 1 + (uint32_t)l / GROUP);
        }
    return good;
}

/* Both in processor time of this thread: the daemon, which is at work then or waited for, and whatever else is on the
 * machine do not count. */
static void note(struct calls *calls, double own_s, float *const scratch[2], uint64_t values)
{
    if (calls->count == CALLS_MAX || values < SMALL_VALUES)
        return;
    uint64_t begin_ns = env_thread_cpu_ns();
    memcpy(scratch[0], scratch[1], values * sizeof *scratch[0]);
    calls->over_memcpy[calls->count] = own_s / ((double)(env_thread_cpu_ns() - begin_ns) * 1e-9);
    calls->own_s[calls->count++] = own_s;
}

static void train(const struct model *model, struct diloco *d, struct found *found, float *const scratch[2])
{
    const uint32_t fragments = 1 + ((uint32_t)model->layers + GROUP - 1) / GROUP;
    const struct schedule schedule = {.interval = INTERVAL, .fragments = fragments, .spread = true};
    double idle_s[CALLS_MAX];
    int idle = 0;
    for (uint64_t step = 1; step <= INTERVAL * INTERVALS; step++) {
        uint32_t out = fragments;
        for (uint32_t f = 0; f < fragments; f++)
            out = schedule_next_due(&schedule, f, step - 1) == step ? f : out;
        for (uint64_t t = 0; t < model->tensors_count; t++)
            model->tensors[t][step] += 1e-3f;
        uint64_t begin_ns = env_thread_cpu_ns();
        (void)diloco_step(d, &(struct diloco_report){.size = sizeof(struct diloco_report), .tokens = 1000});
        double own_s = (double)(env_thread_cpu_ns() - begin_ns) * 1e-9;
        uint64_t in = 0;
        for (uint64_t t = 0; diloco_changed(d, DILOCO_ANY) && t < model->tensors_count; t++)
            in += diloco_changed(d, (int)t) ? model->counts[t] : 0;
        if (out == fragments && in == 0)
            idle_s[idle++] = own_s;
        else if (in == 0)
            note(&found->snapshot, own_s, scratch, model->fragment_values[out]);
        else if (out == fragments)
            note(&found->mix, own_s, scratch, in);
    }
    found->idle_s = bench_median(idle_s, idle);
}

static double peak_bytes(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (double)usage.ru_maxrss * 1024 : 0;
}

static bool keep(struct diloco *d, struct found *found)
{
    size_t room = diloco_keep_bytes(d);
    void *memory = malloc(room);
    if (memory == NULL)
        return false;
    double begin_s = env_mono_s();
    size_t bytes = diloco_keep(d, memory, room);
    found->keep_s = env_mono_s() - begin_s;
    found->keep_bytes_per_value = (double)room / (double)found->values;
    free(memory);
    return bytes > 0;
}

static bool work(const char *socket, struct model *model, struct found *found)
{
    struct diloco *d;
    struct diloco_options options = {.size = sizeof options, .socket_path = socket, .wait_ms = 20000};
    struct diloco_start start = {.size = sizeof start};
    if (diloco_attach(&options, &d) != DILOCO_OK || !register_model(model, d)) {
        fprintf(stderr, "bench: %s\n", diloco_error(d));
        return false;
    }
    uint64_t largest = 0;
    for (int f = 0; f < FRAGMENTS_MAX; f++)
        largest = model->fragment_values[f] > largest ? model->fragment_values[f] : largest;
    float *scratch[2] = {touched(largest, 1), touched(largest, 2)};
    double begin_s = env_mono_s(), before = peak_bytes();
    uint64_t begin_ns = env_process_cpu_ns();
    if (scratch[0] == NULL || scratch[1] == NULL || diloco_begin(d, &start) != DILOCO_OK) {
        fprintf(stderr, "bench: %s\n", diloco_error(d));
        return false;
    }
    found->attach_s = env_mono_s() - begin_s;
    found->attach_cpu_s = (double)(env_process_cpu_ns() - begin_ns) * 1e-9;
    found->values = model->values;
    train(model, d, found, scratch);
    found->bytes_per_value = (peak_bytes() - before) / (double)model->values;
    found->done = keep(d, found);
    diloco_detach(d);
    return found->done;
}

/* ---- its island ---- */

static enum err make_island(void)
{
    struct ident ident;
    char conf[400], run[200];
    snprintf(run, sizeof run,
             "[run]\nname = library\nsteps = 100000\n[sync]\ninterval = %d\nlayers_per_fragment = %d\noverlap = 2\n"
             "late = wait\n",
             INTERVAL, GROUP);
    snprintf(conf, sizeof conf,
             "[island]\nname = a\nrun = run.ini\nkey = a.key\nstate = state\nsockets = s\n[net]\nlisten = "
             "127.0.0.1:%u\n[worker]\nprogram =\n",
             proc_free_port());
    if (system("rm -rf " FOLDER) != 0)
        return err_set(ERR_IO, "cannot empty " FOLDER);
    TRY(fsio_mkdirs(FOLDER, 0755));
    TRY(fsio_replace(FOLDER "/run.ini", run, strlen(run), 0644));
    TRY(fsio_replace(FOLDER "/a.conf", conf, strlen(conf), 0644));
    TRY(ident_generate(&ident));
    return ident_save(&ident, FOLDER "/a.key");
}

static int start_island(const char *programs)
{
    char program[300];
    snprintf(program, sizeof program, "%s/dilocod", programs);
    const char *argv[] = {program, "--config", FOLDER "/a.conf", NULL};
    enum err err = make_island();
    if (err != ERR_OK)
        fprintf(stderr, "bench: %s\n", err_text());
    return err == ERR_OK ? proc_start(argv, FOLDER "/a.log") : -1;
}

static void end_island(int pid)
{
    kill(pid, SIGTERM);
    if (proc_wait(pid, 60) < 0)
        kill(pid, SIGKILL);
}

/* ---- what is said of it ---- */

static double worst(const struct calls *calls)
{
    double most = 0;
    for (int i = 0; i < calls->count; i++)
        most = calls->over_memcpy[i] > most ? calls->over_memcpy[i] : most;
    return most;
}

static void print(const char *name, struct found *found)
{
    double snapshot_worst = worst(&found->snapshot), mix_worst = worst(&found->mix);
    printf(
        "library      %s, %.0fM values: attached in %.2f s (%.2f of its processor); peak %.1f bytes a value beside the "
        "tensors\n"
        "             a step with nothing %.3f ms, with a snapshot %.1f ms, %.2f (at worst %.2f) times memcpy's, with "
        "a mix %.1f ms, %.2f (%.2f); %d and %d calls\n"
        "             diloco_keep() %.2f s, room for %.1f bytes a value\n",
        name, (double)found->values / 1e6, found->attach_s, found->attach_cpu_s, found->bytes_per_value,
        1000 * found->idle_s, 1000 * bench_median(found->snapshot.own_s, found->snapshot.count),
        bench_median(found->snapshot.over_memcpy, found->snapshot.count), snapshot_worst,
        1000 * bench_median(found->mix.own_s, found->mix.count), bench_median(found->mix.over_memcpy, found->mix.count),
        mix_worst, found->snapshot.count, found->mix.count, found->keep_s, found->keep_bytes_per_value);
    fflush(stdout);
}

static json_t *measure(const char *programs, const char *name, uint64_t width, uint64_t layers)
{
    struct model model = {.width = width, .layers = layers};
    struct found *found = mmap(NULL, sizeof *found, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int daemon = found != MAP_FAILED ? start_island(programs) : -1;
    json_t *figures = NULL;
    if (daemon > 0) {
        int pid = fork();
        if (pid == 0)
            _exit(work(FOLDER "/s/worker.sock", &model, found) ? 0 : 1);
        if (proc_wait(pid, 300) < 0)
            kill(pid, SIGKILL);
        end_island(daemon);
    }
    if (found != MAP_FAILED && found->done && found->snapshot.count > 0 && found->mix.count > 0) {
        print(name, found);
        figures = json_pack("{s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "values", (json_int_t)found->values,
                            "attach_s", found->attach_s, "attach_cpu_s", found->attach_cpu_s, "bytes_per_value",
                            found->bytes_per_value, "idle_s", found->idle_s, "snapshot_over_memcpy",
                            bench_median(found->snapshot.over_memcpy, found->snapshot.count), "snapshot_worst",
                            worst(&found->snapshot), "mix_over_memcpy",
                            bench_median(found->mix.over_memcpy, found->mix.count), "mix_worst", worst(&found->mix));
    } else {
        fprintf(stderr, "bench: library %s did not come to its end; see " FOLDER "/a.log\n", name);
    }
    if (found != MAP_FAILED)
        munmap(found, sizeof *found);
    return figures != NULL ? figures : json_null();
}

/* ---- in Python ---- */

static double at(const json_t *figures, const char *part, const char *key)
{
    const json_t *from = part != NULL ? json_object_get(figures, part) : figures;
    return json_number_value(json_object_get(from, key));
}

/* A model of library.py; null where there is no PyTorch. */
static json_t *measure_python(const char *name)
{
    char answer[4096];
    const char *python = getenv("PYTHON");
    python = python != NULL && python[0] != '\0' ? python : OWN;
    const char *argv[] = {"/usr/bin/env", python, "tests/bench/library.py", name, NULL};
    int status = proc_run(argv, FOLDER "/python.log", answer, sizeof answer);
    json_t *figures = status == 0 ? json_loads(answer, 0, NULL) : NULL;
    if (figures == NULL) {
        printf("library      %s: skipped, no PyTorch for it (make check-python installs it; " FOLDER "/python.log)\n",
               name);
        return json_null();
    }
    printf(
        "library      PyTorch, %s, %.0fM values in %.0f tensors: attached in %.2f s (%.2f of its processor); peak "
        "%.1f bytes a value beside them\n"
        "             a step with nothing %.2f ms, with a snapshot %.1f ms, %.2f (at worst %.2f) times memcpy's, with "
        "a mix %.1f ms, %.2f (%.2f)\n"
        "             state_dict() %.2f s, at its peak %.1f bytes a value\n",
        name, at(figures, NULL, "values") / 1e6, at(figures, NULL, "tensors"), at(figures, NULL, "attach_s"),
        at(figures, NULL, "attach_cpu_s"), at(figures, NULL, "bytes_per_value"), at(figures, "step_ms", "nothing"),
        at(figures, "step_ms", "snapshot"), at(figures, "over_memcpy", "snapshot"), at(figures, "worst", "snapshot"),
        at(figures, "step_ms", "mix"), at(figures, "over_memcpy", "mix"), at(figures, "worst", "mix"),
        at(figures, NULL, "state_s"), at(figures, NULL, "state_peak_bytes_per_value"));
    fflush(stdout);
    return figures;
}

void bench_library(json_t *summary, const char *programs)
{
    static const char *const models[] = {"fp32_85m", "bf16_85m", "tensors_6000"};
    json_t *all = json_object();
    json_object_set_new(all, "c_85m", measure(programs, "C, GPT-2's width and depth", 768, 12));
    json_object_set_new(all, "c_256m", measure(programs, "C", 1280, 13));
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        json_object_set_new(all, models[i], measure_python(models[i]));
    json_object_set_new(summary, "library", all);
}
