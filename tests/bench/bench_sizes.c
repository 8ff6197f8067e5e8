/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models of 16M to 256M parameters, between real daemons whose trainers hold a model of that size and touch little of
 * it. An island joins by command while the others train: how long that takes, what share of the line its states had,
 * beside what one plain TCP connection with our cipher carries over the same line, and what it costs the others. Then
 * on loopback what an exchange takes of the processor, how long a stop takes, and a start after a kill; the longest
 * that a daemon's loop stood still, beside a process that does nothing but look at the clock, and its memory. At last
 * by what power of the size each of these grows.
 */
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/env.h"
#include "common/fsio.h"
#include "tests/bench/bench.h"
#include "tests/lib/homes.h"
#include "tests/lib/proc.h"
#include "tests/lib/said.h"
#include "tests/lib/wan.h"

enum { ISLANDS_MAX = 4, LAYERS = 12, FRAGMENTS = LAYERS / 3 + 1, MBIT = 1000000, QUEUE_MS = 200 };
/* PATIENCE: for anything at all. LINE: what a state may need on a line, or the case is skipped. PLAIN: how long the
 * plain connection is looked at, about. */
enum { PATIENCE_S = 400, LINE_S_MAX = 100, PLAIN_S = 4, MEMORY_BYTES_PER_PARAM = 36, STATE_BYTES = 8 };
#define LOG "build/bench/sizes.log"
#define LOOPBACK "loopback"

static const struct size {
    const char *name;
    double params;
} sizes[] = {{"16M", 16 << 20}, {"64M", 64 << 20}, {"256M", 256 << 20}};
static const struct line_kind {
    const char *name;
    uint64_t bits; /* per second; 0: loopback */
} kinds[] = {{LOOPBACK, 0}, {"1 Gbit/s", 1000ull * MBIT}, {"100 Mbit/s", 100 * MBIT}};
static const int crowds[] = {2, ISLANDS_MAX};
static const char *const names[ISLANDS_MAX] = {"a", "b", "c", "d"};

static struct camp {
    const char *programs;
    const struct size *size;
    const struct line_kind *kind;
    struct wan wan;
    int count;
    char text[PATH_MAX], home[ISLANDS_MAX][96], log[ISLANDS_MAX][128];
} camp;
static char folder[64];

/* Of one case; negative: not measured. */
enum figure { JOIN, COMMAND, STATE, SHARE, OVER, PACE, EXCHANGE, STOP, RESTART, LAG, IDLE, MEMORY, FIGURES };
static const struct {
    const char *key;
    bool grows; /* an exponent is asked for */
} figures[FIGURES] = {
    [JOIN] = {"join_s", true}, /* trainer registered, to training */
    [COMMAND] = {"join_from_command_s", true},
    [STATE] = {"state_s", true}, /* first fragment asked for, to the last one whole */
    [SHARE] = {"share_of_plain_tcp", false},
    [OVER] = {"bytes_over_due", false},
    [PACE] = {"others_pace", false},       /* versions a second while it joins over those before */
    [EXCHANGE] = {"exchange_cpu_s", true}, /* of a daemon, for one version of the whole model */
    [STOP] = {"stop_s", true},
    [RESTART] = {"restart_s", true}, /* killed and started, to training again */
    [LAG] = {"loop_lag_ms_max", false},
    [IDLE] = {"idle_process_ms_max", false}, /* what the machine alone holds up */
    [MEMORY] = {"memory_bytes", true},       /* of a daemon */
};

/* ---- islands ---- */

static bool failed(const char *what)
{
    fprintf(stderr, "bench: %s\n%s\n", what, homes_out);
    return false;
}

static bool place(int i)
{
    snprintf(camp.home[i], sizeof camp.home[i], "%s/%s", folder, names[i]);
    snprintf(camp.log[i], sizeof camp.log[i], "%s/%s/dilocod.log", folder, names[i]);
    camp.count = i + 1;
    return true;
}

/* Where the newest listens, when it is behind the line and when it is not. */
static const char *listens(int i)
{
    static char address[64];
    if (camp.kind->bits == 0)
        return homes_somewhere();
    snprintf(address, sizeof address, "%s:%u", wan_host(i == 0 ? 0 : 1), proc_free_port());
    return address;
}

static bool start(int i)
{
    char program[2 * PATH_MAX];
    long sleep_ms =
        (long)fmax(100, 400 * camp.size->params / (64 << 20)); /* a step's: exchanges leave processors free */
    snprintf(program, sizeof program,
             "%s/tests/system/tool_synth --run %s/run.ini --mark %s --data 'params=%s sleep=%ld touch=1000 seed=%d'",
             camp.programs, folder, names[i], camp.size->name, sleep_ms, 7 + i);
    return (homes_configure(camp.home[i], "worker", "program", program) &&
            homes_configure(camp.home[i], "island", "log", "debug") && HOMES_RUN(camp.home[i], "start") == 0) ||
           failed("an island does not start");
}

static bool found(void)
{
    static const char spec[] = "[run]\nname = sizes\nsteps = 10000000\n[model]\nlayers = 12\n[sync]\ninterval = 20\n"
                               "layers_per_fragment = 3\noverlap = 4\nlate = merge\n";
    char path[128];
    snprintf(folder, sizeof folder, "/tmp/diloco-sizes-XXXXXX");
    if (mkdtemp(folder) == NULL || realpath("tests/demo/shakespeare.txt", camp.text) == NULL)
        return failed("no folder");
    snprintf(path, sizeof path, "%s/run.ini", folder);
    return fsio_replace(path, spec, strlen(spec), 0644) == ERR_OK && place(0) &&
           (HOMES_RUN(camp.home[0], "init", "--name", names[0], "--data", camp.text, "--run", path, "--listen",
                      listens(0), "--no-start") == 0 ||
            failed("init fails")) &&
           start(0) && (homes_wait_versions(camp.home[0], 2L * FRAGMENTS, PATIENCE_S) || failed("nothing is trained"));
}

/* The next one, by a token of the first; `*since_s`: when the command was given. */
static bool join(double *since_s)
{
    int i = camp.count;
    char token[4096];
    const char *made = homes_invite(camp.home[0], NULL);
    if (made == NULL)
        return failed("no token");
    snprintf(token, sizeof token, "%s", made);
    place(i);
    if (camp.kind->bits > 0)
        homes_place(camp.home[i], camp.wan.far);
    *since_s = said_now_s();
    return (HOMES_RUN(camp.home[i], "join", token, "--name", names[i], "--data", camp.text, "--listen", listens(i),
                      "--no-start") == 0 ||
            failed("join fails")) &&
           start(i) &&
           (said_wait(camp.log[i], *since_s, "training goes on", NULL, PATIENCE_S) > 0 || failed("it does not train"));
}

static void end(void)
{
    char command[128];
    for (int i = 0; i < camp.count; i++)
        HOMES_RUN(camp.home[i], "stop");
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (camp.count > 0 && system(command) != 0)
        fprintf(stderr, "bench: %s stays\n", folder);
    camp.count = 0;
}

/* ---- a join ---- */

/* What the newcomer's log says of its states. */
struct arrivals {
    double from_s, to_s, bytes, again;
};

static struct arrivals arrivals_of(const char *log)
{
    static const char words[] = " is here after ";
    struct arrivals all = {.from_s = HUGE_VAL};
    char line[1200];
    double at_s = 0, since_s = 0;
    FILE *file = fopen(log, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        const char *at = strstr(line, words);
        double took_s, bytes, again;
        unsigned givers;
        if (at == NULL || sscanf(at, " is here after %lf s: %lf bytes from %u islands, and %lf bytes", &took_s, &bytes,
                                 &givers, &again) != 4)
            continue;
        double next_s = said_first(log, since_s, words, NULL);
        at_s = next_s > 0 ? next_s : at_s; /* two may have come within a millisecond */
        since_s = at_s + 0.0005;
        all.from_s = fmin(all.from_s, at_s - took_s);
        all.to_s = at_s;
        all.bytes += bytes;
        all.again += again;
    }
    if (file != NULL)
        fclose(file);
    return all;
}

/* Versions a second that the first made, by its log: from the last before `from_s` to the first after `to_s`, so that
 * it does not matter when between two of them the span begins and ends. */
static double pace_between(double from_s, double to_s)
{
    unsigned count = 0;
    double first_s = -1, last_s = -1, at_s = 0;
    while (last_s < to_s && (at_s = said_first(camp.log[0], at_s, "debug: fragment ", " hash ")) > 0) {
        if (first_s < 0 || at_s <= from_s) {
            first_s = at_s;
            count = 0;
        } else {
            count++;
        }
        last_s = at_s;
        at_s += 0.0005;
    }
    return count > 0 ? count / (last_s - first_s) : 0;
}

static bool measure_join(double plain, double *f)
{
    double alone_s = said_now_s(), since_s;
    int i = camp.count;
    if (!homes_wait_versions(camp.home[0], homes_number(camp.home[0], NULL, "versions") + FRAGMENTS + 1, PATIENCE_S) ||
        !join(&since_s))
        return false;
    double trains_s = said_first(camp.log[i], since_s, "training goes on", NULL);
    double registered_s = said_first(camp.log[i], since_s, " registered ", NULL);
    struct arrivals all = arrivals_of(camp.log[i]);
    double before = pace_between(alone_s, since_s), during = pace_between(since_s, trains_s);
    f[JOIN] = trains_s - registered_s;
    f[COMMAND] = trains_s - since_s;
    f[STATE] = all.to_s - all.from_s;
    f[OVER] = (all.bytes + all.again) / (STATE_BYTES * camp.size->params);
    f[SHARE] = plain > 0 && f[STATE] > 0 ? all.bytes / f[STATE] / plain : -1;
    f[PACE] = before > 0 ? during / before : -1;
    return true;
}

/* ---- what comes after ---- */

static double largest(double (*of)(int i))
{
    double most = -1;
    for (int i = 0; i < camp.count; i++)
        most = fmax(most, of(i));
    return most;
}

static double lag_of(int i)
{
    json_t *status = homes_ask(camp.home[i], "status");
    const json_t *lag = json_object_get(status, "loop_lag_ms_max");
    double ms = json_is_number(lag) ? json_number_value(lag) : -1;
    json_decref(status);
    return ms;
}

static double memory_of(int i)
{
    return bench_peak_bytes(homes_daemon(camp.home[i]));
}

/* A process that sleeps and looks at the clock, over and over: how much later than it wished it came to it at most. */
static int idle_pid;
static double *idle_ms; /* shared with it */

static void idle_begin(void)
{
    enum { NAP_MS = 5 };
    idle_ms = mmap(NULL, sizeof *idle_ms, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (idle_ms == MAP_FAILED || (idle_pid = fork()) != 0)
        return;
    for (double last_s = env_mono_s();;) {
        proc_sleep_ms(NAP_MS);
        double now_s = env_mono_s();
        *idle_ms = fmax(*idle_ms, (now_s - last_s) * 1000 - NAP_MS);
        last_s = now_s;
    }
}

/* In milliseconds; -1: not known. */
static double idle_end(void)
{
    double most = -1;
    if (idle_pid > 0) {
        kill(idle_pid, SIGKILL);
        waitpid(idle_pid, NULL, 0);
        most = *idle_ms;
    }
    if (idle_ms != MAP_FAILED)
        munmap(idle_ms, sizeof *idle_ms);
    idle_pid = 0;
    return most;
}

/* Processor time of the first daemon over some versions, for as many as the model has fragments. */
static bool measure_exchange(double *f)
{
    long long versions = homes_number(camp.home[0], NULL, "versions");
    int pid = homes_daemon(camp.home[0]);
    double cpu_s = -bench_cpu_s(pid);
    if (!homes_wait_versions(camp.home[0], versions + 2L * FRAGMENTS, PATIENCE_S))
        return failed("no exchange comes to an end");
    versions = homes_number(camp.home[0], NULL, "versions") - versions;
    cpu_s += bench_cpu_s(pid);
    f[EXCHANGE] = cpu_s * FRAGMENTS / (double)versions;
    return true;
}

static bool measure_restart(double *f)
{
    int last = camp.count - 1;
    homes_kill(camp.home[last]);
    double since_s = said_now_s();
    if (HOMES_RUN(camp.home[last], "start") != 0 ||
        said_wait(camp.log[last], since_s, "training goes on", NULL, PATIENCE_S) < 0)
        return failed("it does not train again");
    f[RESTART] = said_first(camp.log[last], since_s, "training goes on", NULL) - since_s;
    since_s = env_mono_s();
    HOMES_RUN(camp.home[last], "stop");
    f[STOP] = env_mono_s() - since_s;
    return true;
}

/* ---- cases ---- */

static double memory_there(void)
{
    char word[64];
    double kib = 0;
    FILE *file = fopen("/proc/meminfo", "re");
    while (file != NULL && fscanf(file, "%63s %lf%*[^\n]", word, &kib) == 2 && strcmp(word, "MemAvailable:") != 0)
        kib = 0;
    if (file != NULL)
        fclose(file);
    return kib * 1024;
}

/* Whether it can be measured here; else why not is printed. */
static bool possible(const char *name, int islands)
{
    double needs = camp.size->params * MEMORY_BYTES_PER_PARAM * islands, there = memory_there();
    double line_s = camp.kind->bits > 0 ? camp.size->params * STATE_BYTES * 8 / (double)camp.kind->bits : 0;
    if (needs > there)
        printf("sizes        %-18s skipped: %.0f GB of memory are needed, and %.0f are there\n", name, needs / 1e9,
               there / 1e9);
    else if (line_s > LINE_S_MAX)
        printf("sizes        %-18s skipped: its state is on the line for %.0f s\n", name, line_s);
    return needs <= there && line_s <= LINE_S_MAX;
}

static bool measure(int islands, double *plain, double *f)
{
    double rate = camp.kind->bits > 0 ? (double)camp.kind->bits / 8 : 1e9, since_s;
    double bytes = fmin(camp.size->params * STATE_BYTES, rate * PLAIN_S);
    *plain =
        bench_plain_tcp(camp.kind->bits > 0 ? camp.wan.far : 0, camp.kind->bits > 0 ? wan_host(0) : "127.0.0.1", bytes);
    if (!found())
        return false;
    while (camp.count < islands - 1)
        if (!join(&since_s))
            return false;
    if (!measure_join(*plain, f))
        return false;
    f[LAG] = largest(lag_of);
    f[MEMORY] = largest(memory_of);
    return camp.kind->bits > 0 || (measure_exchange(f) && measure_restart(f));
}

static void print(const char *name, double plain, const double *f)
{
    printf("sizes        %-18s joined %.1f s after its trainer was there, %.1f s after the command; states in %.1f s, "
           "%.0f %% of plain TCP's %.0f Mbit/s, %.3f times what was due; others' pace %.2f\n",
           name, f[JOIN], f[COMMAND], f[STATE], 100 * f[SHARE], plain * 8 / 1e6, f[OVER], f[PACE]);
    if (f[EXCHANGE] >= 0)
        printf("             an exchange %.2f s of processor time; stop %.1f s, restart %.1f s", f[EXCHANGE], f[STOP],
               f[RESTART]);
    else
        printf("            ");
    printf(" loop stood for %.0f ms, an idle process for %.0f; memory %.1f bytes a parameter\n", f[LAG], f[IDLE],
           f[MEMORY] / camp.size->params);
    fflush(stdout);
}

static bool run_case(const char *only, int islands, json_t *all, double *f)
{
    char name[64], why[600];
    double plain = 0;
    snprintf(name, sizeof name, "%s %d %s", camp.size->name, islands, camp.kind->name);
    if ((only != NULL && strstr(name, only) == NULL) || !possible(name, islands))
        return false;
    const struct wan_conf line = {.rate_bits = camp.kind->bits, .queue_ms = QUEUE_MS};
    if (camp.kind->bits > 0 && !wan_begin(&line, LOG, &camp.wan, why, sizeof why)) {
        printf("sizes        %-18s skipped: %s\n", name, why);
        return false;
    }
    for (int i = 0; i < FIGURES; i++)
        f[i] = -1;
    idle_begin();
    bool good = measure(islands, &plain, f);
    f[IDLE] = idle_end();
    end();
    if (camp.kind->bits > 0)
        wan_end(&camp.wan);
    if (!good) {
        printf("sizes        %-18s failed\n", name);
        return false;
    }
    print(name, plain, f);
    json_t *row = json_object();
    for (int i = 0; i < FIGURES; i++)
        json_object_set_new(row, figures[i].key, f[i] >= 0 ? json_real(f[i]) : json_null());
    json_object_set_new(row, "plain_tcp_bytes_per_s", json_real(plain));
    json_object_set_new(all, name, row);
    return true;
}

/* By what power of the size each figure grows, from the smallest to the largest that was measured. */
static void exponents(const struct line_kind *kind, int islands, double (*f)[FIGURES], const bool *have, json_t *all)
{
    int low = -1, high = -1;
    char name[64];
    for (int s = 0; s < (int)(sizeof sizes / sizeof *sizes); s++) {
        low = have[s] && low < 0 ? s : low;
        high = have[s] ? s : high;
    }
    if (low == high)
        return;
    json_t *row = json_object();
    snprintf(name, sizeof name, "exponents %d %s", islands, kind->name);
    printf("sizes        %d islands, %s: from %s to %s", islands, kind->name, sizes[low].name, sizes[high].name);
    for (int i = 0; i < FIGURES; i++) {
        if (!figures[i].grows || f[low][i] <= 0 || f[high][i] <= 0)
            continue;
        double power = log(f[high][i] / f[low][i]) / log(sizes[high].params / sizes[low].params);
        json_object_set_new(row, figures[i].key, json_real(power));
        printf(" %s^%.2f", figures[i].key, power);
    }
    puts("");
    json_object_set_new(all, name, row);
}

/* In a process of its own, which has one thread and may leave our namespace; it leaves its figures in a file. */
static int run_all(const char *path, const char *programs, const char *only)
{
    char why[600];
    static char absolute[PATH_MAX];
    json_t *all = json_object();
    bool apart = wan_enter(why, sizeof why);
    if (realpath(programs, absolute) == NULL)
        return 1;
    homes_init(absolute);
    camp.programs = absolute;
    for (size_t c = 0; c < sizeof crowds / sizeof *crowds; c++) {
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            double f[sizeof sizes / sizeof *sizes][FIGURES];
            bool have[sizeof sizes / sizeof *sizes] = {false};
            if (kinds[k].bits > 0 && (!apart || crowds[c] > 2)) {
                if (!apart)
                    printf("sizes        %-18s skipped: %s\n", kinds[k].name, why);
                continue;
            }
            camp.kind = &kinds[k];
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
                camp.size = &sizes[s];
                have[s] = run_case(only, crowds[c], all, f[s]);
            }
            exponents(&kinds[k], crowds[c], f, have, all);
        }
    }
    return json_dump_file(all, path, 0) != 0;
}

void bench_sizes(json_t *summary, const char *programs, const char *only)
{
    static const char path[] = "build/bench/sizes.json";
    (void)remove(path);
    fflush(stdout);
    int pid = fork(), status = 0;
    if (pid == 0) {
        status = run_all(path, programs, only);
        fflush(stdout);
        exit(status);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
        printf("sizes        failed; see " LOG "\n");
    json_t *all = json_load_file(path, 0, NULL);
    if (all != NULL)
        json_object_set_new(summary, "sizes", all);
}
