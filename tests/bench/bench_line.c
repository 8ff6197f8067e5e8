/* SPDX-License-Identifier: Apache-2.0 */
/* Two daemons with a slow, far or lossy line between them, always with more to send than it carries: what of it is
 * used, what is sent in vain, how long heartbeats take, and whether training minds. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/env.h"
#include "common/fsio.h"
#include "daemon/ctl/ctl_client.h"
#include "tests/bench/bench.h"
#include "tests/lib/cluster.h"
#include "tests/lib/proc.h"
#include "tests/lib/wan.h"

enum {
    LAYERS = 4,
    SETTLE_MS = 4000,
    SETTLE_ROUNDS = 20,
    MEASURE_MS = 12000,
    SAMPLE_MS = 50,
    SAMPLES_MAX = 2 * MEASURE_MS / SAMPLE_MS
};
enum { QUEUE_MS = 400 };       /* of the line's own buffer */
enum { VALUES_MAX = 8000000 }; /* of a layer; memory is finite */
enum { MBIT = 1000000, FAST_BITS = 1000 * MBIT, TOUCHED = 100000 };
#define LOG "build/bench/line.log"

/* `bits`: of a value on the line, about. */
static const struct codec {
    const char *name;
    double bits;
} uniform = {"uniform", 2.5}, fp32 = {"fp32", 32};

static const struct line_case {
    const char *name;
    struct wan_conf wan;
    double fragment_s; /* how long the line needs for a fragment, about */
    const struct codec *codec;
    const char *key;  /* of the share in the summary; NULL: it is printed only */
    const char *more; /* a line of [net]; NULL: none */
} cases[] = {
    {"1 Mbit/s, large", {MBIT, QUEUE_MS, 0, 0, 0}, 4, &uniform, "line_share_1mbit", NULL},
    {"1 Mbit/s, small", {MBIT, QUEUE_MS, 0, 0, 0}, 0.3, &uniform, NULL, NULL},
    {"2 Mbit/s, large", {2 * MBIT, QUEUE_MS, 0, 0, 0}, 3, &uniform, NULL, NULL},
    {"10 Mbit/s, large", {10 * MBIT, QUEUE_MS, 0, 0, 0}, 2, &fp32, "line_share_10mbit", NULL},
    {"10 Mbit/s, small", {10 * MBIT, QUEUE_MS, 0, 0, 0}, 0.1, &uniform, NULL, NULL},
    {"10 Mbit/s, rate_limit 9.3", {10 * MBIT, QUEUE_MS, 0, 0, 0}, 2, &fp32, NULL, "rate_limit = 9300kbit"},
    {"100 Mbit/s, large", {100 * MBIT, QUEUE_MS, 0, 0, 0}, 0.5, &fp32, "line_share_100mbit", NULL},
    {"100 Mbit/s, small", {100 * MBIT, QUEUE_MS, 0, 0, 0}, 0.05, &fp32, NULL, NULL},
    {"1 Gbit/s, large", {1000ull * MBIT, QUEUE_MS, 0, 0, 0}, 1, &fp32, "line_share_1gbit", NULL},
    {"10 Mbit/s, 20 ms, 0.1 % lost", {10 * MBIT, QUEUE_MS, 20, 1000, 0}, 2, &fp32, "line_share_20ms_01", NULL},
    {"10 Mbit/s, 100 ms, 1 % lost", {10 * MBIT, QUEUE_MS, 100, 10000, 0}, 2, &fp32, "line_share_100ms_1", NULL},
    {"10 Mbit/s, 20 ms, 5 % lost", {10 * MBIT, QUEUE_MS, 20, 50000, 0}, 2, &fp32, "line_share_20ms_5", NULL},
    {"10 Mbit/s, 300 ms", {10 * MBIT, QUEUE_MS, 300, 0, 0}, 2, &fp32, "line_share_300ms", NULL},
    {"100 Mbit/s, 50 ms", {100 * MBIT, QUEUE_MS, 50, 0, 0}, 0.5, &fp32, "line_share_100mbit_50ms", NULL},
    /* 80 ms there and back */
    {"1 Gbit/s, 40 ms", {1000ull * MBIT, QUEUE_MS, 40, 0, 0}, 1, &fp32, "line_share_1gbit_40ms", NULL},
    {"1 Gbit/s, 40 ms, 0.5 % lost", {1000ull * MBIT, QUEUE_MS, 40, 5000, 0}, 1, &fp32, "line_share_1gbit_05", NULL},
    {"1 Gbit/s, 40 ms, 0.5 % lost, cubic",
     {1000ull * MBIT, QUEUE_MS, 40, 5000, 0},
     1,
     &fp32,
     "line_share_1gbit_05_cubic",
     "congestion = cubic"},
    {"20 Mbit/s, 40 ms, 0.5 % lost", {20 * MBIT, QUEUE_MS, 40, 5000, 0}, 1, &fp32, "line_share_20mbit_05", NULL},
    {"20 Mbit/s, 40 ms, 0.5 % lost, cubic",
     {20 * MBIT, QUEUE_MS, 40, 5000, 0},
     1,
     &fp32,
     "line_share_20mbit_05_cubic",
     "congestion = cubic"},
};

struct figures {
    double share;       /* of what the line carries while something is on its way */
    double over_due;    /* bytes of objects sent over those that were to be sent */
    double beat_ms_p99; /* a heartbeat and its answer */
    double pace;        /* steps in a second */
};

/* ---- one line ---- */

static struct cluster *begin(const struct line_case *c, uint32_t count, int far)
{
    static char spec[512], data[64], more[128];
    double values = (double)c->wan.rate_bits * c->fragment_s / c->codec->bits;
    snprintf(
        spec, sizeof spec,
        "[run]\nname = line\nsteps = 10000000\n[model]\nlayers = %d\n[data]\nformat = bytes\n[sync]\ninterval = 16\n"
        "layers_per_fragment = 1\ncodec = %s\nlate = merge\nzstd_level = 0\n%s",
        LAYERS, c->codec->name, c->codec == &fp32 ? "error_feedback = no\n" : "");
    /* On a fast line two daemons need all of two processors; trainers would only show that they are on them, too. */
    snprintf(data, sizeof data, "sleep=50 touch=%d size=%.0f", c->wan.rate_bits >= FAST_BITS ? TOUCHED : 0,
             values < VALUES_MAX ? values : VALUES_MAX);
    snprintf(more, sizeof more, "[net]\nwindow = 64MiB\n%s\n", c->more != NULL ? c->more : "");
    struct cluster_options options = {.run = spec, .data = data, .more = more};
    struct cluster *cluster = cluster_new("bench-line", count, &options);
    if (count > 1) {
        cluster->island[1].space = far;
        for (uint32_t i = 0; i < count; i++)
            snprintf(cluster->island[i].host, sizeof cluster->island[i].host, "%s", wan_host((int)i));
        for (uint32_t i = 0; i < count; i++)
            cluster_configure(cluster, i, &options);
    }
    cluster_start_all(cluster);
    for (uint32_t i = 0; i < count; i++)
        cluster_wait(cluster, i, cluster_training, 0, "training");
    proc_sleep_ms(SETTLE_MS + SETTLE_ROUNDS * 2 * (long)c->wan.delay_ms);
    return cluster;
}

static void end(struct cluster *cluster)
{
    for (uint32_t i = 0; i < cluster->count; i++)
        if (cluster->island[i].pid != 0)
            cluster_end(cluster, i, SIGKILL);
    cluster_free(cluster);
}

/* What an island says of the other one; false: no heartbeat of it was answered yet. */
static bool look(struct cluster *cluster, uint32_t i, long long *on_its_way, double *beat_ms)
{
    json_t *answer = cluster_ask(cluster, i, "peers");
    json_t *row = json_array_get(json_object_get(answer, "peers"), 1 - i);
    bool up = json_is_true(json_object_get(row, "up"));
    *on_its_way = (long long)ctl_integer(row, "unacknowledged");
    *beat_ms = (double)ctl_integer(row, "rtt_ms");
    json_decref(answer);
    return up && *beat_ms > 0; /* 0: not known yet */
}

static void sum_payload(struct cluster *cluster, double *sent, double *wasted)
{
    *sent = *wasted = 0;
    for (uint32_t i = 0; i < cluster->count; i++) {
        *sent += (double)cluster_status_number(cluster, i, "payload_sent");
        *wasted += (double)cluster_status_number(cluster, i, "payload_wasted");
    }
}

static double p99(double *values, int count)
{
    if (count == 0)
        return MEASURE_MS;             /* none was answered all the time */
    (void)bench_median(values, count); /* sorts */
    return values[count * 99 / 100];
}

static struct figures measure(const struct line_case *c, struct cluster *cluster, const struct wan *wan)
{
    static double beats[SAMPLES_MAX];
    int beats_count = 0;
    double busy_s = 0, busy_bytes = 0, sent, wasted;
    double begin_s = env_mono_s(), then_s[2] = {begin_s, begin_s};
    long long step = cluster_trainer_number(cluster, 0, "step");
    uint64_t then[2] = {wan_sent_bytes(wan, 0), wan_sent_bytes(wan, 1)};
    bool was_busy[2] = {false, false};
    while (env_mono_s() < begin_s + MEASURE_MS / 1e3 && beats_count + 2 <= SAMPLES_MAX) {
        proc_sleep_ms(SAMPLE_MS);
        for (uint32_t i = 0; i < 2; i++) {
            long long on_its_way;
            if (look(cluster, i, &on_its_way, &beats[beats_count]))
                beats_count++;
            double now_s = env_mono_s();
            uint64_t now = wan_sent_bytes(wan, (int)i);
            if (on_its_way > 0 && was_busy[i]) {
                busy_s += now_s - then_s[i];
                busy_bytes += (double)(now - then[i]);
            }
            was_busy[i] = on_its_way > 0;
            then[i] = now;
            then_s[i] = now_s;
        }
    }
    double pace = (double)(cluster_trainer_number(cluster, 0, "step") - step) / (env_mono_s() - begin_s);
    sum_payload(cluster, &sent, &wasted);
    return (struct figures){.share = busy_s > 0 ? busy_bytes * 8 / busy_s / (double)c->wan.rate_bits : 0,
                            .over_due = sent > wasted ? sent / (sent - wasted) : 0,
                            .beat_ms_p99 = p99(beats, beats_count),
                            .pace = pace};
}

static double pace_alone(const struct line_case *c)
{
    struct cluster *cluster = begin(c, 1, 0);
    double begin_s = env_mono_s();
    long long step = cluster_trainer_number(cluster, 0, "step");
    proc_sleep_ms(MEASURE_MS / 3);
    double pace = (double)(cluster_trainer_number(cluster, 0, "step") - step) / (env_mono_s() - begin_s);
    end(cluster);
    return pace;
}

/* ---- all of them ---- */

struct worst {
    double over_due, beat_ms, pace;
};

static void set(json_t *summary, const char *key, double value)
{
    json_object_set_new(summary, key, json_real(value));
}

static bool run_case(const struct line_case *c, json_t *summary, struct worst *worst)
{
    char why[600];
    struct wan wan;
    double alone = pace_alone(c);
    if (!wan_begin(&c->wan, LOG, &wan, why, sizeof why)) {
        printf("line         %-29s skipped: %s\n", c->name, why);
        return false;
    }
    struct cluster *cluster = begin(c, 2, wan.far);
    struct figures figures = measure(c, cluster, &wan);
    end(cluster);
    wan_end(&wan);
    double pace = figures.pace / alone;
    printf("line         %-29s %5.1f %% used, %.3f times what was due, heartbeat and answer %3.0f ms (p99), training "
           "%.1f %%\n",
           c->name, 100 * figures.share, figures.over_due, figures.beat_ms_p99, 100 * pace);
    fflush(stdout);
    if (c->key != NULL)
        set(summary, c->key, figures.share);
    worst->over_due = figures.over_due > worst->over_due ? figures.over_due : worst->over_due;
    bool near = c->wan.delay_ms == 0; /* of the others the distance is most of it */
    worst->beat_ms = near && figures.beat_ms_p99 > worst->beat_ms ? figures.beat_ms_p99 : worst->beat_ms;
    worst->pace = worst->pace == 0 || pace < worst->pace ? pace : worst->pace;
    return true;
}

/* In a process of its own, which has one thread and may leave our namespace; it leaves its figures in a file. */
static int run_all(const char *path, const char *only)
{
    char why[600];
    json_t *summary = json_object();
    struct worst worst = {0};
    bool any = false;
    if (!wan_enter(why, sizeof why)) {
        printf("line         skipped: %s\n", why);
        return 0;
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (only == NULL || strstr(cases[i].name, only) != NULL)
            any |= run_case(&cases[i], summary, &worst);
    if (any) {
        set(summary, "line_bytes_over_due_max", worst.over_due);
        set(summary, "line_heartbeat_ms_p99", worst.beat_ms);
        set(summary, "line_pace", worst.pace);
    }
    return json_dump_file(summary, path, 0) != 0;
}

void bench_line(json_t *summary, const char *only)
{
    static const char path[] = "build/bench/line.json";
    (void)remove(path);
    fflush(stdout);
    int pid = fork(), status = 0;
    if (pid == 0) {
        status = run_all(path, only);
        fflush(stdout);
        exit(status);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
        printf("line         failed; see build/bench/line.log and the islands' logs\n");
    json_t *figures = json_load_file(path, 0, NULL);
    if (figures != NULL)
        json_object_update(summary, figures);
    json_decref(figures);
}
