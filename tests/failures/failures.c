/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failures: four islands on loopback, daemon and trainer of each killed at random for minutes, and started again after
 * a while: how much of what they could train reaches an anchor?
 *
 *   goodput = tokens that the ledgers' results count / sum over islands of (rate x time up)
 *
 * Time up is from the start of the daemon to its kill, so restarting, catching up and starting a trainer all count
 * against it; in the end until the trainer has stopped. The rate is what the island's own trainer, which has a fixed
 * pace, trained a second before the first failure. Writes build/failures/summary.json. Exit status 1: goodput is below
 * the aim, anchors differ, or a token is counted twice or missing without a name.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/args.h"
#include "common/digest.h"
#include "common/fsio.h"
#include "daemon/ctl/ctl_client.h"
#include "tests/lib/accounts.h"
#include "tests/lib/proc.h"
#include "tests/lib/testlib.h"
#include "tests/lib/worked.h"

enum { ISLANDS = 4, FRAGMENTS = 3, LOOK_MS = 20, WARM_S = 10, PATIENCE_S = 120, SAMPLES_MAX = 4096 };
/* Longer without a new version of any fragment, and anchors stand still. */
static const double still_s = 1;
static const double aim = 0.88;

/* A round of each fragment takes 0.8 s. */
static const char run_spec[] = "[run]\nname = failures\nsteps = 100000000\n[model]\nlayers = 2\n"
                               "[sync]\ninterval = 20\nlayers_per_fragment = 1\noverlap = 2\nlate = merge\n";
static const char trainer[] = "sleep=40 worked=1";

/* Seconds, of several times. */
struct times {
    double sum, most;
    unsigned count;
};

struct island {
    uint64_t *worked; /* tokens, by the trainer's own count */
    uint64_t worked_before;
    double rate;               /* tokens a second */
    bool up, trains, counts;   /* of this life: its daemon is there; its trainer trains; some of it was counted */
    double since_s, next_s;    /* of this life or absence; when it ends */
    double up_s;               /* of lives that have ended */
    long long tokens, counted; /* as `status` said last */
    long long tokens_first, dedup_first; /* in this life */
    unsigned failures;
    long long open; /* trained and not counted when it was killed or had left, as `status` said then */
};

static struct failures {
    uint64_t minutes, seed, mean_s, repair_s;
    struct env_rng rng;
    struct cluster *cluster;
    struct island island[ISLANDS];
    long long versions, epoch, epoch_first;
    double advanced_s; /* when the newest version was first seen */
    struct times still, to_training, to_counted;
    bool same;
} all = {.minutes = 5, .seed = 1, .mean_s = 60, .repair_s = 20};

static double now_s(void)
{
    return env_mono_s();
}

static void add(struct times *times, double s)
{
    times->sum += s;
    times->most = s > times->most ? s : times->most;
    times->count++;
}

static double mean(const struct times *times)
{
    return times->count > 0 ? times->sum / times->count : 0;
}

/* ---- looking ---- */

static void note_versions(long long versions)
{
    double at_s = now_s();
    if (versions <= all.versions)
        return;
    if (all.versions > 0 && at_s - all.advanced_s > still_s)
        add(&all.still, at_s - all.advanced_s);
    all.versions = versions;
    all.advanced_s = at_s;
}

static void note_trainer(struct island *island, const json_t *part)
{
    bool training = strcmp(ctl_text(part, "state"), "training") == 0;
    island->tokens = (long long)ctl_integer(part, "tokens");
    island->counted = (long long)ctl_integer(part, "tokens_counted");
    if (training && !island->trains) {
        island->trains = true;
        island->tokens_first = island->tokens;
        island->dedup_first = island->counted;
        if (island->failures > 0)
            add(&all.to_training, now_s() - island->since_s);
    }
    if (island->trains && !island->counts && island->counted > island->dedup_first) {
        island->counts = true;
        if (island->failures > 0)
            add(&all.to_counted, now_s() - island->since_s);
    }
}

static void look(uint32_t i)
{
    json_t *status = cluster_ask(all.cluster, i, "status");
    if (status == NULL)
        return;
    long long epoch = (long long)ctl_integer(status, "epoch");
    all.epoch = epoch > all.epoch ? epoch : all.epoch;
    note_versions((long long)ctl_integer(status, "versions"));
    note_trainer(&all.island[i], json_object_get(status, "trainer"));
    json_decref(status);
}

static void look_at_all(void)
{
    for (uint32_t i = 0; i < ISLANDS; i++)
        if (all.island[i].up)
            look(i);
    proc_sleep_ms(LOOK_MS);
}

static void note_open(struct island *island)
{
    if (island->trains)
        island->open += island->tokens - island->tokens_first - (island->counted - island->dedup_first);
}

/* ---- failing ---- */

static void fall(uint32_t i)
{
    struct island *island = &all.island[i];
    double at_s = now_s();
    look(i);
    assert_int_equal(cluster_end(all.cluster, i, SIGKILL), 128 + SIGKILL);
    proc_kill_trainer(all.cluster->island[i].state);
    note_open(island);
    island->up_s += at_s - island->since_s;
    island->up = island->trains = island->counts = false;
    island->since_s = at_s;
    island->next_s = at_s + (double)all.repair_s;
    island->failures++;
    printf("%6.1f s: %s is killed\n", at_s, all.cluster->island[i].name);
    fflush(stdout);
}

static void rise(uint32_t i)
{
    struct island *island = &all.island[i];
    cluster_start(all.cluster, i);
    island->up = true;
    island->since_s = now_s();
    island->next_s = island->since_s - (double)all.mean_s * log(env_rng_uniform(&all.rng));
    printf("%6.1f s: %s is started\n", island->since_s, all.cluster->island[i].name);
    fflush(stdout);
}

static bool all_train(void)
{
    for (uint32_t i = 0; i < ISLANDS; i++)
        if (!all.island[i].trains)
            return false;
    return true;
}

static void wait_for_training(void)
{
    double until_s = now_s() + PATIENCE_S;
    while (!all_train()) {
        look_at_all();
        if (now_s() > until_s) {
            cluster_print_logs(all.cluster);
            fail_msg("not all train");
        }
    }
}

static void warm_up(void)
{
    uint64_t before[ISLANDS];
    for (uint32_t i = 0; i < ISLANDS; i++)
        rise(i);
    wait_for_training();
    for (double until_s = now_s() + WARM_S / 2.0; now_s() < until_s;)
        look_at_all();
    for (uint32_t i = 0; i < ISLANDS; i++)
        before[i] = *all.island[i].worked;
    double begin_s = now_s();
    while (now_s() < begin_s + WARM_S)
        look_at_all();
    double end_s = now_s();
    for (uint32_t i = 0; i < ISLANDS; i++) {
        struct island *island = &all.island[i];
        island->worked_before = *island->worked;
        island->rate = (double)(island->worked_before - before[i]) / (end_s - begin_s);
        island->next_s += end_s - island->since_s; /* it fails from now on */
        island->since_s = end_s;
    }
    all.still = (struct times){0};
    all.epoch_first = all.epoch;
}

static void fail_for_a_while(void)
{
    double until_s = now_s() + 60 * (double)all.minutes;
    while (now_s() < until_s) {
        for (uint32_t i = 0; i < ISLANDS; i++) {
            if (now_s() < all.island[i].next_s)
                continue;
            if (all.island[i].up)
                fall(i);
            else
                rise(i);
        }
        look_at_all();
    }
    for (uint32_t i = 0; i < ISLANDS; i++)
        if (!all.island[i].up)
            rise(i);
    wait_for_training();
}

/* ---- the end ---- */

static bool all_same(void)
{
    char first[80] = "";
    bool same = true;
    for (uint32_t i = 0; i < ISLANDS; i++) {
        json_t *status = cluster_ask(all.cluster, i, "status");
        const char *anchors = ctl_text(status, "anchors");
        if (i == 0)
            snprintf(first, sizeof first, "%s", anchors);
        same &= strlen(anchors) == 64 && strcmp(first, anchors) == 0;
        json_decref(status);
    }
    return same;
}

static void leave(void)
{
    bool stopped[ISLANDS] = {0};
    unsigned left = ISLANDS;
    double until_s = now_s() + PATIENCE_S;
    for (uint32_t i = 0; i < ISLANDS; i++)
        json_decref(cluster_ask(all.cluster, i, "pause"));
    while (left > 0 && now_s() < until_s) {
        for (uint32_t i = 0; i < ISLANDS; i++) {
            struct island *island = &all.island[i];
            if (stopped[i] || strcmp(cluster_trainer(all.cluster, i), "stopped") != 0)
                continue;
            stopped[i] = true;
            island->up_s += now_s() - island->since_s;
            left--;
        }
        proc_sleep_ms(LOOK_MS);
    }
    while (left == 0 && !all.same && now_s() < until_s) {
        all.same = all_same();
        proc_sleep_ms(LOOK_MS);
    }
    for (uint32_t i = 0; i < ISLANDS; i++) {
        look(i);
        note_open(&all.island[i]);
    }
    if (!all.same)
        cluster_print_logs(all.cluster);
}

/* ---- what became of the tokens ---- */

struct sums {
    double could, trained, counted, open;
    double short_most; /* of what was trained less what was open, no result counts so much; a step at each look aside */
    double over_most;  /* of one shard, results count so much more than was trained */
};

/* Of one island; what counts is the mean over shards, as in `status`. A contribution with nothing new in it weighs 1.
 */
static void account(struct accounts *accounts, uint32_t i, struct sums *sums)
{
    const struct island *island = &all.island[i];
    double trained = (double)*island->worked, counted = 0;
    unsigned shards = 0;
    for (uint32_t f = 0; f < FRAGMENTS; f++) {
        struct shard_account row;
        for (uint32_t s = 0; s < 64 && (row = accounts_of(accounts, f, s)).results > 0; s++, shards++) {
            double tokens = (double)row.tokens[i];
            counted += tokens;
            sums->over_most = fmax(sums->over_most, tokens - trained - (double)row.results);
        }
    }
    counted /= shards;
    printf("%s: up %.1f s, %u kills, %.0f tokens/s; trained %.0f, counted %.0f (status: %lld), open %lld\n",
           all.cluster->island[i].name, island->up_s, island->failures, island->rate, trained, counted, island->counted,
           island->open);
    sums->could += island->rate * island->up_s;
    sums->trained += trained - (double)island->worked_before;
    sums->counted += counted - (double)island->worked_before;
    sums->open += (double)island->open;
    double steps = (2 * island->failures + 1) * (100.0 + 10 * i);
    sums->short_most = fmax(sums->short_most, trained - (double)island->open - counted - steps);
}

static double load_average(void)
{
    double load = 0;
    return getloadavg(&load, 1) == 1 ? load : -1;
}

static bool write_summary(const struct sums *sums)
{
    unsigned failures = 0;
    double goodput = sums->counted / sums->could;
    for (uint32_t i = 0; i < ISLANDS; i++)
        failures += all.island[i].failures;
    bool right = sums->short_most <= 0 && sums->over_most <= 0;
    json_t *json = json_pack(
        "{s:I, s:I, s:i, s:f, s:f, s:b, s:f, s:f, s:f, s:f, s:b, s:b, s:I, s:f, s:i, s:f, s:f, s:f, "
        "s:f, s:f, s:f}",
        "minutes", (json_int_t)all.minutes, "seed", (json_int_t)all.seed, "failures", (int)failures, "goodput", goodput,
        "aim", aim, "ok", (int)(goodput >= aim), "tokens_could", sums->could, "tokens_trained", sums->trained,
        "tokens_counted", sums->counted, "tokens_open", sums->open, "tokens_right", (int)right, "anchors_identical",
        (int)all.same, "epochs", (json_int_t)(all.epoch - all.epoch_first), "still_s", all.still.sum, "still_times",
        (int)all.still.count, "still_longest_s", all.still.most, "to_training_s", mean(&all.to_training),
        "to_training_longest_s", all.to_training.most, "to_counted_s", mean(&all.to_counted), "to_counted_longest_s",
        all.to_counted.most, "load_average", load_average());
    char *text = json_dumps(json, JSON_INDENT(2) | JSON_REAL_PRECISION(4) | JSON_PRESERVE_ORDER);
    json_decref(json);
    assert_non_null(text);
    assert_ok(fsio_mkdirs("build/failures", 0755));
    assert_ok(fsio_replace("build/failures/summary.json", text, strlen(text), 0644));
    printf("%s\nshort by %.0f, over by %.0f at most\nbuild/failures/summary.json\n", text, sums->short_most,
           sums->over_most);
    free(text);
    return right && all.same && goodput >= aim;
}

static bool run(void)
{
    struct cluster_options options = {.run = run_spec, .data = trainer};
    struct sums sums = {.short_most = -1e9, .over_most = -1e9};
    all.rng = env_rng_init(all.seed, 0);
    all.cluster = cluster_new("failures", ISLANDS, &options);
    for (uint32_t i = 0; i < ISLANDS; i++) {
        all.island[i].worked = worked_open(all.cluster->run, all.cluster->island[i].name);
        assert_non_null(all.island[i].worked);
    }
    warm_up();
    fail_for_a_while();
    leave();
    for (uint32_t i = 0; i < ISLANDS; i++)
        assert_int_equal(cluster_end(all.cluster, i, SIGTERM), 0);
    struct accounts *accounts = accounts_open(all.cluster);
    for (uint32_t i = 0; i < ISLANDS; i++)
        account(accounts, i, &sums);
    accounts_close(accounts);
    bool good = write_summary(&sums);
    cluster_free(all.cluster);
    return good;
}

int main(int argc, char **argv)
{
    const struct args_option options[] = {
        {"minutes", ARGS_U64, &all.minutes, "N", "how long islands fail (default 5)"},
        {"seed", ARGS_U64, &all.seed, "N", "of the times at which they do"},
        {"mean", ARGS_U64, &all.mean_s, "S", "mean time up until an island fails (default 60)"},
        {"repair", ARGS_U64, &all.repair_s, "S", "until it is started again (default 20)"},
    };
    enum err err = args_parse(argc, argv, options, sizeof options / sizeof options[0], NULL);
    if (err == ERR_OK)
        err = digest_init();
    if (err != ERR_OK) {
        fprintf(stderr, "failures: %s\n", err_text());
        return 2;
    }
    return run() ? 0 : 1;
}
