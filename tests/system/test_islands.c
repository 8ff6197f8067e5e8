/* SPDX-License-Identifier: Apache-2.0 */
/* Real daemons, synthetic trainers: 1 to 8 islands end with equal hashes for every fragment and version. */
#include "tests/lib/testlib.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "common/digest.h"
#include "common/env.h"
#include "common/fsio.h"
#include "common/mem.h"
#include "common/tensorfile.h"
#include "net/transport/wire_object.h"
#include "tests/lib/accounts.h"
#include "tests/lib/cluster.h"

#define RUN "[run]\nname = synth\nsteps = 60\n[model]\nlayers = 4\n[data]\nformat = bytes\n[sync]\n"
#define SYNC "layers_per_fragment = 1\n"
static const char common_spec[] = RUN SYNC "interval = 10\n";

/* `killed`: the last island is killed on its way, and comes back. */
static void run_whole_spec(const char *name, uint32_t islands, const char *spec, const char *data, long long versions,
                           bool killed)
{
    struct cluster_options options = {.run = spec, .data = data};
    struct cluster *cluster = cluster_new(name, islands, &options);
    cluster_start_all(cluster);
    if (killed) {
        cluster_wait(cluster, islands - 1, cluster_versions_reach, versions / 2, "some versions");
        assert_int_equal(cluster_end(cluster, islands - 1, SIGKILL), 128 + SIGKILL);
        cluster_start(cluster, islands - 1);
    }
    for (uint32_t i = 0; i < islands; i++)
        cluster_wait(cluster, i, cluster_trainer_finished, 0, "the end of training");
    /* The last finisher's own last version may still be on its way to the others. */
    long long last = 0;
    for (uint32_t i = 0; i < islands; i++) {
        long long own = cluster_status_number(cluster, i, "versions");
        last = own > last ? own : last;
    }
    assert_true(last >= versions);
    for (uint32_t i = 0; i < islands; i++)
        cluster_wait(cluster, i, cluster_versions_reach, last, "the last version");
    cluster_assert_one_truth(cluster);
    for (uint32_t i = 0; i < islands; i++) {
        assert_false(cluster_log_has(cluster, i, "DIVERGED", 0));
        assert_false(cluster_log_has(cluster, i, "please report", 0));
        assert_int_equal(cluster_end(cluster, i, SIGTERM), 0);
    }
    cluster_free(cluster);
}

static void run_to_the_end(const char *name, uint32_t islands, const char *more_spec, const char *data,
                           long long versions)
{
    char spec[1024];
    snprintf(spec, sizeof spec, "%s%s", common_spec, more_spec);
    run_whole_spec(name, islands, spec, data, versions, false);
}

static void one_island(void **state)
{
    (void)state;
    run_to_the_end("islands1", 1, "late = wait\n", "sleep=1", 30);
}

static void two_islands(void **state)
{
    (void)state;
    run_to_the_end("islands2", 2, "late = wait\n", "sleep=1", 30);
}

/* Of two that joined before anybody trained nobody knows the run's plan. Who waits for it all the same waits for 10 s.
 */
static void nobody_waits_for_a_plan_that_nobody_has(void **state)
{
    (void)state;
    struct cluster_options options = {.run = "[run]\nname = plan\nsteps = 100000\n[model]\nlayers = 2\n"
                                             "[data]\nformat = bytes\n[sync]\ninterval = 30\n",
                                      .data = "sleep=1"};
    struct cluster *cluster = cluster_new("plan", 2, &options);
    double began_s = env_mono_s();
    cluster_start_all(cluster);
    for (uint32_t i = 0; i < 2; i++)
        cluster_wait(cluster, i, cluster_training, 0, "training");
    assert_true(env_mono_s() < began_s + 8);
    for (uint32_t i = 0; i < 2; i++)
        cluster_end(cluster, i, SIGTERM);
    cluster_free(cluster);
}

static void three_islands_merging_late_results(void **state)
{
    (void)state;
    run_to_the_end("islands3", 3, "late = merge\noverlap = 3\nmix = 0.5\n", "sleep=5", 10);
}

static void four_islands_with_other_codecs(void **state)
{
    (void)state;
    run_to_the_end("islands4i", 4, "late = wait\ncodec = int8\noverlap = 0\nmix = 0\n", "sleep=1", 30);
    run_to_the_end("islands4b", 4,
                   "late = wait\ncodec = bf16\nerror_feedback = no\noverlap = 10\npattern = balanced\nfragments = 3\n",
                   "sleep=1", 15);
    run_to_the_end("islands4f", 4,
                   "late = wait\ncodec = fp32\nerror_feedback = no\noffsets = zero\n[outer]\noptimizer = average\n",
                   "sleep=1", 30);
}

static void three_islands_with_coarse_codecs(void **state)
{
    (void)state;
    static const char *const codecs[] = {"e3m0\nerror_feedback = yes",
                                         "int4\nerror_feedback = yes",
                                         "int2\nerror_feedback = yes",
                                         "ternary",
                                         "uniform\nerror_feedback = yes",
                                         "topk\nkeep = 0.1\nerror_feedback = yes",
                                         "powersgd\nrank = 1\nerror_feedback = yes",
                                         "adaptive"};
    for (size_t i = 0; i < sizeof codecs / sizeof codecs[0]; i++) {
        char name[32], spec[256];
        snprintf(name, sizeof name, "coarse%zu", i);
        snprintf(spec, sizeof spec, "late = wait\noverlap = 2\ncodec = %s\n", codecs[i]);
        run_to_the_end(name, 3, spec, "sleep=1", 30);
    }
}

/* Its owners leave it out, say so, and everybody still agrees. */
static void an_island_that_runs_away_is_left_out(void **state)
{
    (void)state;
    char spec[1024];
    snprintf(spec, sizeof spec, "%slate = wait\noutliers = drop\nmix = 0\n", common_spec);
    struct cluster_options options = {.run = spec, .data = "sleep=1"};
    struct cluster_options spiking = {.run = spec, .data = "sleep=1 spike=45"};
    struct cluster *cluster = cluster_new("runaway", 3, &options);
    cluster_configure(cluster, 2, &spiking);
    cluster_start_all(cluster);
    for (uint32_t i = 0; i < 3; i++)
        cluster_wait(cluster, i, cluster_trainer_finished, 0, "the end of training");
    for (uint32_t i = 0; i < 3; i++)
        cluster_wait(cluster, i, cluster_versions_reach, 30, "the last version");
    assert_true(cluster_log_has(cluster, 0, "the contribution of island c, of norm ", 1));
    cluster_assert_one_truth(cluster);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(cluster_end(cluster, i, SIGTERM), 0);
    cluster_free(cluster);
}

/* The run is as long as the fast island's steps; the slow one takes part in all of it with what it gets done. */
static void a_slow_island_holds_nobody_up(void **state)
{
    (void)state;
    char spec[1024];
    snprintf(spec, sizeof spec, "%slate = merge\noverlap = 5\n", common_spec);
    struct cluster_options fast = {.run = spec, .data = "sleep=40"}, slow = {.run = spec, .data = "sleep=160"};
    struct cluster *cluster = cluster_new("slow", 2, &fast);
    cluster_configure(cluster, 1, &slow);
    cluster_start_all(cluster);
    for (uint32_t i = 0; i < 2; i++)
        cluster_wait(cluster, i, cluster_trainer_finished, 0, "the end of training");
    long long last = 0, tokens[2];
    for (uint32_t i = 0; i < 2; i++) {
        long long own = cluster_status_number(cluster, i, "versions");
        last = own > last ? own : last;
        tokens[i] = cluster_trainer_number(cluster, i, "tokens");
        assert_int_equal(cluster_trainer_number(cluster, i, "step"), 60);
    }
    print_message("tokens: %lld and %lld; %lld versions\n", tokens[0], tokens[1], last);
    assert_in_range(tokens[0], 55 * 100, 60 * 100);
    assert_in_range(tokens[1], 5 * 110, 35 * 110);
    assert_true(last >= 20);
    for (uint32_t i = 0; i < 2; i++)
        cluster_wait(cluster, i, cluster_versions_reach, last, "the last version");
    cluster_assert_one_truth(cluster);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(cluster_end(cluster, i, SIGTERM), 0);
    cluster_free(cluster);
}

/* The line in the log after these words; fails if there is none. */
static const char *said_after(struct cluster *cluster, uint32_t i, const char *words)
{
    static char line[2][256];
    char *text;
    size_t bytes;
    assert_ok(fsio_read(cluster->island[i].log, 64 << 20, &text, &bytes));
    const char *at = strstr(text, words);
    assert_non_null(at);
    snprintf(line[i], sizeof line[i], "%.*s", (int)strcspn(at, "\n"), at);
    mem_free(text);
    return line[i];
}

/* The slow one changes the anchors for long after the fast one has contributed all. */
static void the_end_is_the_same_for_the_fast_and_the_slow(void **state)
{
    (void)state;
    char spec[1024];
    snprintf(spec, sizeof spec, "%space = lockstep\nlate = merge\noverlap = 5\nquorum = 1\ngrace = 100ms\n",
             common_spec);
    struct cluster_options fast = {.run = spec, .data = "sleep=10"}, slow = {.run = spec, .data = "sleep=30"};
    struct cluster *cluster = cluster_new("unequal", 2, &fast);
    cluster_configure(cluster, 1, &slow);
    cluster_start_all(cluster);
    for (uint32_t i = 0; i < 2; i++) {
        cluster_wait(cluster, i, cluster_trainer_finished, 0, "the end of training");
        assert_true(cluster_log_has(cluster, i, "ended with 0, tensors", 10));
    }
    assert_string_equal(said_after(cluster, 0, "ended with 0"), said_after(cluster, 1, "ended with 0"));
    cluster_assert_one_truth(cluster);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(cluster_end(cluster, i, SIGTERM), 0);
    cluster_free(cluster);
}

static void two_islands_with_varying_intervals(void **state)
{
    (void)state;
    run_to_the_end("grown", 2, "late = wait\ngrowth = 0.0045\n", "sleep=1", 10);
    run_to_the_end("warm", 2, "late = wait\nwarm_steps = 20\nwarm_interval = 5\n[outer]\naverage = 2\nwarmup = 3\n",
                   "sleep=1", 30);
    run_to_the_end("clipped", 2, "late = wait\noverlap = 9\nmix = 0.2\n[outer]\noptimizer = heavyball\nclip = 0.01\n",
                   "sleep=1", 15);
}

/* A whole interval to bring a result: work is set aside meanwhile, with CO2's remedies, with Eager, and with rounds
 * that are missed; a daemon that comes back finds the same outer steps in its ledger. */
static void three_islands_with_a_whole_interval_of_overlap(void **state)
{
    (void)state;
    static const char co2[] =
        RUN SYNC "interval = 10\nlate = wait\noverlap = 10\nmix = 0\n"
                 "[outer]\noptimizer = heavyball\nlr = 1\nmomentum = 0.2\nclip = 1\nstaleness_penalty = yes\n";
    run_whole_spec("co2", 3, co2, "sleep=1", 15, false);
    run_whole_spec("co2killed", 3, co2, "sleep=20", 15, true);
    run_to_the_end("eager", 3, "late = wait\noverlap = 10\nmix = 0\neager = yes\n", "sleep=1", 15);
    run_to_the_end("aside", 3, "late = merge\noverlap = 10\nmix = 0\nquorum = 2\ngrace = 0\n", "sleep=5", 10);
}

enum { DRIFT_FRAGMENTS = 5, DRIFT_STEPS = 60 };

/* The last anchor of a run whose steps do not depend on the parameters, and by how much its results have moved each
 * fragment. */
struct drift {
    const char *anchor;
    double moved[DRIFT_FRAGMENTS];
};

/* Every step is in one result of a shard. A killed daemon's trainer may bring two intervals at once, which then weigh
 * as two, so the mean is not that of equal ones: by what the ledger says it is known. */
static void take_drift(struct cluster *cluster, struct drift *drift)
{
    static const double tokens_a_step[2] = {100, 110}, a_step[2] = {1e-3, 2e-3};
    struct accounts *accounts = accounts_open(cluster);
    for (uint32_t f = 0; f < DRIFT_FRAGMENTS; f++) {
        struct shard_account account = accounts_of(accounts, f, 0);
        drift->moved[f] = 0;
        for (uint32_t i = 0; i < 2; i++) {
            assert_in_range(account.tokens[i], DRIFT_STEPS * (long long)tokens_a_step[i],
                            DRIFT_STEPS * (long long)tokens_a_step[i] + account.results);
            drift->moved[f] += account.moved[i] / tokens_a_step[i] * a_step[i];
        }
    }
    accounts_close(accounts);
}

static struct drift run_a_drift(const char *name, const char *sync, bool killed)
{
    char spec[1024];
    struct drift drift;
    snprintf(spec, sizeof spec, RUN SYNC "interval = 10\nlate = wait\ncodec = fp32\n%s\n[outer]\noptimizer = average\n",
             sync);
    struct cluster_options options = {.run = spec, .data = killed ? "sleep=20 drift=1" : "sleep=1 drift=1"};
    struct cluster *cluster = cluster_new(name, 2, &options);
    cluster_start_all(cluster);
    if (killed) {
        cluster_wait(cluster, 1, cluster_versions_reach, 12, "some versions");
        assert_int_equal(cluster_end(cluster, 1, SIGKILL), 128 + SIGKILL);
        cluster_start(cluster, 1);
    }
    for (uint32_t i = 0; i < 2; i++)
        cluster_wait(cluster, i, cluster_trainer_finished, 0, "the end of training");
    assert_true(cluster_log_has(cluster, 0, "the anchor is in", 10));
    drift.anchor = testlib_path(cluster->island[0].state, "anchor.safetensors");
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(cluster_end(cluster, i, SIGTERM), 0);
    take_drift(cluster, &drift);
    cluster_free(cluster);
    return drift;
}

/* Of a tensor: how far the second run's is from what its results say; the fragment is not known here, so the nearest.
 */
static double off_by(const struct drift *left, const struct drift *right, double difference)
{
    double least = INFINITY;
    for (uint32_t f = 0; f < DRIFT_FRAGMENTS; f++)
        least = fmin(least, fabs(difference - (right->moved[f] - left->moved[f])));
    return least;
}

static void assert_same_work(const struct drift *left, struct drift right)
{
    struct tensorfile *a, *b;
    double most = 0;
    assert_ok(tensorfile_open(left->anchor, true, &a));
    assert_ok(tensorfile_open(right.anchor, true, &b));
    assert_true(tensorfile_count(a) > 3);
    for (size_t i = 0; i < tensorfile_count(a); i++) {
        struct tensorfile_tensor tensor = tensorfile_at(a, i);
        uint64_t count = 1;
        const float *x, *y;
        for (uint32_t d = 0; d < tensor.dims; d++)
            count *= tensor.shape[d];
        assert_ok(tensorfile_values(a, tensor.name, count, &x));
        assert_ok(tensorfile_values(b, tensor.name, count, &y));
        for (uint64_t k = 0; k < count; k++)
            most = fmax(most, off_by(left, &right, (double)y[k] - (double)x[k]));
    }
    print_message("off by at most %g; one interval is 0.015\n", most);
    assert_true(most < 1e-3); /* norms are sent as bf16 */
    tensorfile_close(a);
    tensorfile_close(b);
}

/* Where the steps do not depend on the parameters the last anchor is the first and the mean of all steps, whenever they
 * were exchanged: with work lost or counted twice it is not. (Mixing after a short overlap gives up 1 - mix of the
 * steps of that overlap, as published.) */
static void work_is_counted_once_whatever_the_overlap(void **state)
{
    (void)state;
    const struct drift blocking = run_a_drift("drift0", "overlap = 0\nmix = 0", false);
    for (uint32_t f = 0; f < DRIFT_FRAGMENTS; f++)
        assert_true(fabs(blocking.moved[f] - DRIFT_STEPS * 320.0 / 210 * 1e-3) < 1e-6); /* of equal intervals */
    assert_same_work(&blocking, run_a_drift("drift10", "overlap = 10\nmix = 0", false));
    assert_same_work(&blocking, run_a_drift("drift10k", "overlap = 10\nmix = 0", true));
    assert_same_work(&blocking, run_a_drift("driftmixed", "overlap = 10\nmix = 0.5", false));
    assert_same_work(&blocking, run_a_drift("drifteager", "overlap = 10\nmix = 0\neager = yes", false));
}

/* What every trainer trained stands, shard by shard, in the results; a contribution with nothing new in it weighs 1.
 * Returns how many contributions, shard by shard, were to parts whose shards are not all alike. */
static long long assert_tokens_counted(struct cluster *cluster, const long long *tokens, uint32_t fragments)
{
    long long partial = 0, uneven = 0;
    struct accounts *accounts = accounts_open(cluster);
    for (uint32_t f = 0; f < fragments; f++) {
        for (uint32_t s = 0; s < WIRE_SHARDS_MAX; s++) {
            struct shard_account account = accounts_of(accounts, f, s);
            if (account.results == 0 && s >= cluster->count) /* a small fragment has fewer */
                break;
            partial += account.partial;
            uneven += account.uneven;
            for (uint32_t i = 0; i < cluster->count; i++)
                if (account.tokens[i] < tokens[i] || account.tokens[i] > tokens[i] + account.results)
                    fail_msg("fragment %u, shard %u: %lld results count %lld tokens of island %s, which trained %lld",
                             f, s, account.results, account.tokens[i], cluster->island[i].name, tokens[i]);
        }
    }
    print_message("%lld results do without an island\n", partial);
    assert_true(partial > 0); /* else nothing was carried over */
    accounts_close(accounts);
    return uneven;
}

/* Lets a run come to its end; what each trainer trained. */
static void end_with_tokens(struct cluster *cluster, long long *tokens)
{
    long long last = 0;
    for (uint32_t i = 0; i < cluster->count; i++)
        cluster_wait(cluster, i, cluster_trainer_finished, 0, "the end of training");
    for (uint32_t i = 0; i < cluster->count; i++) {
        long long own = cluster_status_number(cluster, i, "versions");
        last = own > last ? own : last;
        tokens[i] = cluster_trainer_number(cluster, i, "tokens");
    }
    for (uint32_t i = 0; i < cluster->count; i++)
        cluster_wait(cluster, i, cluster_versions_reach, last, "the last version");
    cluster_assert_one_truth(cluster);
    for (uint32_t i = 0; i < cluster->count; i++)
        assert_int_equal(cluster_end(cluster, i, SIGTERM), 0);
}

/* Rounds close without waiting, so many a contribution is missed by some of the shards; it is part of the next one
 * there, and of that one alone. */
static void every_token_is_counted_once(void **state)
{
    (void)state;
    enum { ISLANDS = 2, FRAGMENTS = 5 };
    static const char spec[] =
        RUN SYNC "interval = 10\nlate = merge\noverlap = 3\ncodec = fp32\nquorum = 1\ngrace = 0\n";
    struct cluster_options fast = {.run = spec, .data = "sleep=5"}, slow = {.run = spec, .data = "sleep=9"};
    struct cluster *cluster = cluster_new("tokens", ISLANDS, &fast);
    long long tokens[ISLANDS];
    cluster_configure(cluster, 1, &slow);
    cluster_start_all(cluster);
    end_with_tokens(cluster, tokens);
    assert_int_equal(assert_tokens_counted(cluster, tokens, FRAGMENTS), 0); /* a part's shards go together */
    cluster_free(cluster);
}

static bool epoch_reached(struct cluster *cluster, uint32_t i, long long epoch)
{
    return cluster_status_number(cluster, i, "epoch") >= epoch;
}

/* The same where an owner is killed and comes back: its shards go to those who counted others in their own, and back.
 * Then a contribution to one part holds more rounds' work in some shards than in others, and says so. */
static void every_token_is_counted_once_whoever_owns_its_shard(void **state)
{
    (void)state;
    enum { ISLANDS = 3, FRAGMENTS = 5 };
    static const char spec[] =
        "[run]\nname = synth\nsteps = 1500\n[model]\nlayers = 4\n[data]\nformat = bytes\n[sync]\n" SYNC
        "interval = 10\nlate = merge\noverlap = 3\ncodec = fp32\nquorum = 1\ngrace = 0\n";
    static const char away[] = "[net]\naway = 500ms";
    struct cluster_options options = {.run = spec, .data = "sleep=8", .more = away};
    struct cluster *cluster = cluster_new("owners", ISLANDS, &options);
    long long tokens[ISLANDS];
    options.data = "sleep=13";
    cluster_configure(cluster, 1, &options);
    cluster_start_all(cluster);
    cluster_wait(cluster, 0, cluster_versions_reach, 20, "some versions");
    assert_int_equal(cluster_end(cluster, 2, SIGKILL), 128 + SIGKILL);
    cluster_wait(cluster, 0, epoch_reached, CLUSTER_EPOCH + 1, "an epoch without it");
    cluster_start(cluster, 2);
    cluster_wait(cluster, 0, epoch_reached, CLUSTER_EPOCH + 2, "its return");
    end_with_tokens(cluster, tokens);
    long long uneven = assert_tokens_counted(cluster, tokens, FRAGMENTS);
    print_message("%lld times a shard of a contribution was unlike others of its part\n", uneven);
    assert_true(uneven > 0); /* else no part's shards had been several owners' */
    cluster_free(cluster);
}

/* Branch-Train-Merge: nothing is exchanged until the end, then the mean is the model. */
static void two_islands_merging_once(void **state)
{
    (void)state;
    run_whole_spec("merge", 2,
                   RUN SYNC "interval = 60\noffsets = zero\noverlap = 0\nmix = 0\n[outer]\noptimizer = average\n",
                   "sleep=1", 5, false);
}

static void eight_islands(void **state)
{
    (void)state;
    run_to_the_end("islands8", 8, "late = wait\noverlap = 2\n", "sleep=2", 30);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_island),
        cmocka_unit_test(two_islands),
        cmocka_unit_test(nobody_waits_for_a_plan_that_nobody_has),
        cmocka_unit_test(three_islands_merging_late_results),
        cmocka_unit_test(four_islands_with_other_codecs),
        cmocka_unit_test(three_islands_with_coarse_codecs),
        cmocka_unit_test(an_island_that_runs_away_is_left_out),
        cmocka_unit_test(a_slow_island_holds_nobody_up),
        cmocka_unit_test(the_end_is_the_same_for_the_fast_and_the_slow),
        cmocka_unit_test(two_islands_with_varying_intervals),
        cmocka_unit_test(three_islands_with_a_whole_interval_of_overlap),
        cmocka_unit_test(work_is_counted_once_whatever_the_overlap),
        cmocka_unit_test(every_token_is_counted_once),
        cmocka_unit_test(every_token_is_counted_once_whoever_owns_its_shard),
        cmocka_unit_test(two_islands_merging_once),
        cmocka_unit_test(eight_islands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
