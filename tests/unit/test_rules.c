/* SPDX-License-Identifier: Apache-2.0 */
/* What a run spec means to outer_opt: the numbers of a round. */
#include "tests/lib/testlib.h"

#include <math.h>

#include "common/digest.h"
#include "daemon/rules.h"

static void load(struct runspec *spec)
{
    assert_ok(runspec_parse("[run]\nname = r\nsteps = 93600\n[train]\nlr = 0.008\nlr_final = 0.001\nwarmup = 10000\n"
                            "[sync]\ninterval = 4\noverlap = 1\ngrowth = 0.0175\n[outer]\nlr = 0.7\nmomentum = 0.9\n",
                            "text", spec));
}

static bool is_plain(struct outer_round round)
{
    return round.scale == 1 && round.momentum == 0.9f && round.lr == 0.7f;
}

static void an_interval_is_what_the_schedule_has(void **state)
{
    (void)state;
    struct runspec spec;
    load(&spec);
    /* During warm-up the interval is 4 steps, however far an island has skipped or says it is. */
    assert_true(is_plain(rules_round(&spec, 1, 0, 1, 0, 4)));
    assert_true(is_plain(rules_round(&spec, 1, 0, 1, 0, 6000)));
    assert_true(is_plain(rules_round(&spec, 1, 0, 1, 0, (uint64_t)1 << 62)));
    assert_true(is_plain(rules_round(&spec, 1, 0, 1, UINT64_MAX, UINT64_MAX)));
    /* Near the end it is long: momentum has decayed, the mean is brought to one of 4 steps, and lr makes up for it. */
    struct schedule schedule = rules_schedule(&spec, 1);
    uint64_t due = schedule_next_due(&schedule, 0, 80000);
    uint64_t next = schedule_next_due(&schedule, 0, due);
    assert_true(next - due > 100);
    struct outer_round round = rules_round(&spec, 1, 0, 9, due, next);
    print_message("interval of %d steps: scale %g, momentum %g, lr %g\n", (int)(next - due), (double)round.scale,
                  (double)round.momentum, (double)round.lr);
    assert_true(round.scale < 0.05f && round.momentum < 0.1f && round.lr > 10);
    assert_true(fabsf(round.scale * round.lr - 0.7f) < 1e-5f);
    struct outer_round wild = rules_round(&spec, 1, 0, 9, due, (uint64_t)1 << 62);
    assert_true(wild.scale == round.scale && wild.momentum == round.momentum && wild.lr == round.lr);
    runspec_deinit(&spec);
}

static double cosine(double step)
{
    const double low = 0.008 * 0.001;
    return low + (0.008 - low) * 0.5 * (1 + cos(M_PI * (step - 10000) / (93600 - 10000)));
}

/* momentum^(T / H), and the sums of the learning rates of the steps begin + 1 ... over the whole interval and over its
 * first H = 4. */
static void a_long_interval_is_corrected_by_its_learning_rates(void **state)
{
    (void)state;
    struct runspec spec;
    load(&spec);
    struct schedule schedule = rules_schedule(&spec, 1);
    uint64_t begin = schedule_next_due(&schedule, 0, 80000), end = schedule_next_due(&schedule, 0, begin);
    double all = 0, first = 0;
    for (uint64_t step = begin + 1; step <= end; step++) {
        all += cosine((double)step);
        first += step <= begin + 4 ? cosine((double)step) : 0;
    }
    struct outer_round round = rules_round(&spec, 1, 0, 9, begin, end);
    assert_true(fabs((double)round.scale * all / first - 1) < 1e-6);
    assert_true(fabs((double)round.lr / 0.7 * first / all - 1) < 1e-6);
    assert_true(fabs((double)round.momentum - pow(0.9, (double)(end - begin) / 4)) < 1e-6);
    spec.growth_correction = false;
    assert_true(is_plain(rules_round(&spec, 1, 0, 9, begin, end)));
    spec.growth_correction = true;
    spec.outer = RUNSPEC_AVERAGE; /* moves by the mean, whatever the interval */
    round = rules_round(&spec, 1, 0, 9, begin, end);
    assert_true(round.scale == 1 && round.momentum == 0 && round.lr == 1);
    runspec_deinit(&spec);
}

static void a_trainer_may_be_a_quarter_interval_behind(void **state)
{
    (void)state;
    static const struct {
        int64_t interval;
        uint64_t slack;
    } cases[] = {{1, 2}, {4, 2}, {11, 2}, {12, 3}, {100, 25}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct runspec spec = {.interval = cases[i].interval, .pace = RUNSPEC_RUN, .late = RUNSPEC_MERGE};
        assert_int_equal(rules_run_slack(&spec), cases[i].slack);
        spec.pace = RUNSPEC_LOCKSTEP;
        assert_int_equal(rules_run_slack(&spec), UINT64_MAX);
        spec.pace = RUNSPEC_RUN;
        spec.late = RUNSPEC_WAIT;
        assert_int_equal(rules_run_slack(&spec), UINT64_MAX);
    }
}

/* A warm start of the interval and the warm-up of the learning rate end at steps of their own. */
static void two_warm_ups_are_two(void **state)
{
    (void)state;
    struct runspec spec = {.interval = 20, .warmup = 100, .warm_steps = 40, .warm_interval = 5, .steps = 1000};
    struct schedule schedule = rules_schedule(&spec, 1);
    assert_int_equal(schedule_next_due(&schedule, 0, 35), 40);
    assert_int_equal(schedule_next_due(&schedule, 0, 40), 60);
    assert_int_equal(rules_warm_until(&spec), 100);
    spec.warm_steps = 140;
    assert_int_equal(rules_warm_until(&spec), 140);
}

/* The result of step 0 is the newest. The round due at 10 may be on its way, and what is due at 20 is taken in 3 steps
 * later; a fragment that has its turn later follows within 10 steps. */
static void two_rounds_on_is_the_furthest(void **state)
{
    (void)state;
    const struct runspec spec = {.interval = 10, .overlap = 3, .steps = 1000};
    assert_int_equal(rules_furthest(&spec, 1, 0), 10 + 10 + 10 + 3);
    assert_int_equal(rules_furthest(&spec, 1, 9), 10 + 10 + 10 + 3);
    assert_int_equal(rules_furthest(&spec, 1, 10), 20 + 10 + 10 + 3);
}

static void a_codec_takes_the_option_that_is_its_own(void **state)
{
    (void)state;
    struct runspec spec = {.codec = CODEC_TOPK, .keep = 0.02, .step = 1.4, .rank = 3};
    assert_true(rules_codec(&spec).id == CODEC_TOPK && rules_codec(&spec).ratio == 0.02f);
    spec.codec = CODEC_POWERSGD;
    assert_true(rules_codec(&spec).id == CODEC_POWERSGD && rules_codec(&spec).rank == 3);
    spec.codec = CODEC_UNIFORM;
    assert_true(rules_codec(&spec).id == CODEC_UNIFORM && rules_codec(&spec).ratio == 1.4f);
    assert_string_equal(rules_codec_name(&spec), "uniform");
    spec.codec = CODEC_ADAPTIVE; /* whose reference is uniform */
    assert_true(rules_codec(&spec).id == CODEC_UNIFORM && rules_codec(&spec).ratio == 1.4f);
    assert_string_equal(rules_codec_name(&spec), "adaptive");
}

/* No two of these are equal, so none stands for another. */
static void each_option_reaches_what_it_is_for(void **state)
{
    (void)state;
    struct runspec spec = {.outer = RUNSPEC_HEAVY_BALL,
                           .outer_lr = 0.5,
                           .outer_momentum = 0.25,
                           .outer_clip = 3,
                           .outer_average = 7,
                           .outer_warmup = 11,
                           .outliers = RUNSPEC_OUTLIERS_TRIMMED,
                           .outlier_threshold = 13,
                           .trim = 2,
                           .pattern = RUNSPEC_SEQUENTIAL,
                           .layers_per_fragment = 5,
                           .fragments = 6,
                           .codec = CODEC_POWERSGD};
    struct outer_conf outer = rules_outer(&spec);
    assert_true(outer.kind == OUTER_HEAVY_BALL && outer.lr == 0.5f && outer.momentum == 0.25f && outer.clip == 3);
    assert_true(outer.average_versions == 7 && outer.warmup_versions == 11);
    struct outlier_conf outliers = rules_outliers(&spec);
    assert_true(outliers.action == OUTLIER_TRIMMED && outliers.threshold == 13 && outliers.trim == 2);
    struct plan_conf plan = rules_plan(&spec);
    assert_true(plan.pattern == PLAN_SEQUENTIAL && plan.layers_per_fragment == 5 && plan.fragments == 6);
    assert_true(plan.whole_tensors); /* a matrix is not cut between two owners */
    spec.codec = CODEC_ADAPTIVE;
    assert_false(rules_plan(&spec).whole_tensors);
}

/* The share of a step that Eager takes ahead is the difference between two outer steps and one: with one island, after
 * any number of rounds, the anchor to come. */
static void an_eager_island_alone_is_at_the_anchor_to_come(void **state)
{
    (void)state;
    for (int kind = RUNSPEC_NESTEROV; kind <= RUNSPEC_AVERAGE; kind++) {
        struct runspec spec = {.eager = true, .outer = kind, .outer_lr = 0.4, .outer_momentum = 0.9};
        struct rules_eager eager = rules_eager(&spec);
        struct outer_conf conf = rules_outer(&spec);
        enum { BLOCK = 256, ROUNDS = 6 };
        float anchor[BLOCK] = {0}, momentum[BLOCK] = {0}, delta[BLOCK], estimate = 0;
        double past = 0;
        for (int round = 1; round <= ROUNDS; round++) {
            float d = 0.1f * (float)(round * round % 5) - 0.2f;
            estimate = anchor[0] - (float)(eager.fresh * d + eager.past * past);
            past = eager.decay * past + d;
            for (int i = 0; i < BLOCK; i++)
                delta[i] = d;
            struct outer_round numbers = outer_round_of(&conf, (uint64_t)round);
            outer_step(&conf, &numbers, anchor, momentum, delta, BLOCK);
            assert_true(fabsf(anchor[0] - estimate) < 1e-5f);
        }
        spec.eager = false;
        assert_true(rules_eager(&spec).fresh == 0);
    }
}

static void results_are_kept_while_they_are_fewer_bytes_than_the_state(void **state)
{
    (void)state;
    assert_int_equal(rules_versions(8000, 800), 10);
    assert_int_equal(rules_versions(8000, 801), 9);
    assert_int_equal(rules_versions(8000, 4001), 2); /* never fewer */
    assert_int_equal(rules_versions(8000, 100000), 2);
    assert_int_equal(rules_versions(8000, 100), 80);
    assert_int_equal(rules_versions(8000, 1), 1024); /* nor ever more */
    assert_int_equal(rules_versions(8000, 0), 1024);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_interval_is_what_the_schedule_has),
        cmocka_unit_test(a_long_interval_is_corrected_by_its_learning_rates),
        cmocka_unit_test(a_trainer_may_be_a_quarter_interval_behind),
        cmocka_unit_test(two_warm_ups_are_two),
        cmocka_unit_test(two_rounds_on_is_the_furthest),
        cmocka_unit_test(a_codec_takes_the_option_that_is_its_own),
        cmocka_unit_test(each_option_reaches_what_it_is_for),
        cmocka_unit_test(an_eager_island_alone_is_at_the_anchor_to_come),
        cmocka_unit_test(results_are_kept_while_they_are_fewer_bytes_than_the_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
