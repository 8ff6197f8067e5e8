/* SPDX-License-Identifier: Apache-2.0 */
/* Islands of unequal speed, and how evenly a run uses its line: real daemons on loopback, synthetic trainers. */
#include <signal.h>
#include <stdio.h>

#include "common/env.h"
#include "tests/bench/bench.h"
#include "tests/lib/cluster.h"
#include "tests/lib/proc.h"

enum { SETTLE_MS = 1500, MEASURE_MS = 6000, WINDOWS = 20, WINDOW_STEPS = 16 };

static const char unequal_spec[] =
    "[run]\nname = unequal\nsteps = 1000000\n[model]\nlayers = 8\n[data]\nformat = bytes\n"
    "[sync]\ninterval = 30\nlayers_per_fragment = 1\n";
/* 32 fragments of one size, one every two steps of 20 ms: a quarter of an interval is eight of them. Frames of
 * one size, as made-up values compress the better the nearer they are to their targets. */
static const char even_spec[] =
    "[run]\nname = even\nsteps = 1000000\n[model]\nlayers = 32\n[data]\nformat = bytes\n"
    "[sync]\ninterval = 64\npattern = balanced\nfragments = 32\ncodec = e3m0\nzstd_level = 0\n";

static struct cluster *begin(const char *name, const char *spec, uint32_t count, const char *const *data)
{
    struct cluster_options options = {.run = spec, .data = data[0]};
    struct cluster *cluster = cluster_new(name, count, &options);
    for (uint32_t i = 1; i < count; i++) {
        options.data = data[i];
        cluster_configure(cluster, i, &options);
    }
    cluster_start_all(cluster);
    for (uint32_t i = 0; i < count; i++)
        cluster_wait(cluster, i, cluster_training, 0, "training");
    proc_sleep_ms(SETTLE_MS);
    return cluster;
}

static void end(struct cluster *cluster)
{
    for (uint32_t i = 0; i < cluster->count; i++)
        cluster_end(cluster, i, SIGTERM);
    cluster_free(cluster);
}

/* Of all islands together. */
static double tokens_per_s(const char *name, uint32_t count, const char *const *data)
{
    struct cluster *cluster = begin(name, unequal_spec, count, data);
    double begin_s = env_mono_s(), tokens = 0;
    for (uint32_t i = 0; i < count; i++)
        tokens -= (double)cluster_trainer_number(cluster, i, "tokens");
    proc_sleep_ms(MEASURE_MS);
    for (uint32_t i = 0; i < count; i++)
        tokens += (double)cluster_trainer_number(cluster, i, "tokens");
    double rate = tokens / (env_mono_s() - begin_s);
    end(cluster);
    return rate;
}

void bench_unequal(json_t *summary)
{
    static const char *const both[] = {"sleep=10", "sleep=40"};
    double fast = tokens_per_s("fast", 1, &both[0]);
    double slow = tokens_per_s("slow", 1, &both[1]);
    double together = tokens_per_s("both", 2, both);
    double part = together / (fast + slow);
    printf("unequal      islands, one four times slower: together %.0f tokens/s, alone %.0f and %.0f: %.1f %%\n",
           together, fast, slow, 100 * part);
    json_object_set_new(summary, "unequal_islands_fraction", json_real(part));
}

/* Windows are counted in steps, so that a machine that is busy with something else does not count. */
static double sent_at_step(struct cluster *cluster, long long step)
{
    while (cluster_trainer_number(cluster, 0, "step") < step)
        proc_sleep_ms(2);
    return (double)cluster_status_number(cluster, 0, "payload_sent");
}

void bench_even(json_t *summary)
{
    static const char *const data[] = {"sleep=20 size=20000", "sleep=20 size=20000"};
    struct cluster *cluster = begin("even", even_spec, 2, data);
    double peak = 0, sum = 0;
    long long step = cluster_trainer_number(cluster, 0, "step") + WINDOW_STEPS;
    double last = sent_at_step(cluster, step);
    for (int i = 1; i <= WINDOWS; i++) {
        double now = sent_at_step(cluster, step + i * WINDOW_STEPS);
        peak = now - last > peak ? now - last : peak;
        sum += now - last;
        last = now;
    }
    end(cluster);
    double ratio = peak / (sum / WINDOWS);
    printf("bandwidth    of 32 fragments, in windows of a quarter interval: peak over mean %.2f\n", ratio);
    json_object_set_new(summary, "bandwidth_peak_over_mean", json_real(ratio));
}
