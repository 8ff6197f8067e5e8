/* SPDX-License-Identifier: Apache-2.0 */
/* runspec: derived values, checks that make sense of combinations, identity, learning rate. */
#include "tests/lib/testlib.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/mem.h"
#include "common/runspec.h"

static const char *folder;
static const char minimal[] = "[run]\nname = r\nsteps = 100\n";

static enum err load(const char *more, struct runspec *spec)
{
    return runspec_load(testlib_file(folder, "run.ini", "%s%s", minimal, more), NULL, 0, spec);
}

static void defaults_and_derived_values(void **state)
{
    (void)state;
    struct runspec spec;
    assert_ok(load("", &spec));
    assert_int_equal(spec.kv_heads, spec.heads);
    assert_int_equal(spec.ff, 704); /* 8/3 * 256 = 682, up to a multiple of 32 */
    assert_int_equal(spec.interval, 30);
    assert_int_equal(spec.codec, CODEC_UNIFORM);
    runspec_deinit(&spec);
    assert_ok(load("[model]\nvocab = 1048576\n[data]\nformat = uint32\n", &spec));
    assert_int_equal(spec.vocab, 1048576);
    runspec_deinit(&spec);
}

static void identity_covers_every_value_and_nothing_else(void **state)
{
    (void)state;
    struct runspec a, b, c;
    assert_ok(load("", &a));
    assert_ok(load("# a remark\n\n[sync]\ninterval =   30 ; the default\n", &b));
    assert_true(digest_equal(&a.digest, &b.digest));
    assert_ok(load("[sync]\ninterval = 31\n", &c));
    assert_false(digest_equal(&a.digest, &c.digest));
    struct runspec own; /* what is a machine's own is no part of the run */
    assert_ok(load("[train]\nprecision = bf16\n", &own));
    assert_int_equal(own.precision, RUNSPEC_PRECISION_BF16);
    assert_true(digest_equal(&a.digest, &own.digest));
    runspec_deinit(&own);
    assert_fails(ERR_CONF, "fp32, bf16", load("[train]\nprecision = fp16\n", &own));
    char *text;
    assert_ok(runspec_text(&c, &text));
    assert_null(strstr(text, "precision"));
    struct runspec again;
    assert_ok(runspec_parse(text, "text", &again));
    assert_true(digest_equal(&again.digest, &c.digest));
    mem_free(text);
    runspec_deinit(&again);
    runspec_deinit(&a);
    runspec_deinit(&b);
    runspec_deinit(&c);
}

static void senseless_combinations_are_refused_with_the_reason(void **state)
{
    (void)state;
    struct runspec spec;
    assert_fails(ERR_CONF, "257 is not a multiple of heads = 4", load("[model]\nwidth = 257\n", &spec));
    assert_fails(ERR_CONF, "must be even", load("[model]\nwidth = 12\n", &spec));
    assert_fails(ERR_CONF, "3 does not divide heads = 4", load("[model]\nkv_heads = 3\n", &spec));
    assert_fails(ERR_CONF, "needs 256, not 300", load("[model]\nvocab = 300\n", &spec));
    assert_fails(ERR_CONF, "uint16 holds no token above 65535, and vocab is 65537; set uint32",
                 load("[model]\nvocab = 65537\n[data]\nformat = uint16\n", &spec));
    assert_fails(ERR_CONF, "vocab", load("[model]\nvocab = 1048577\n[data]\nformat = uint32\n", &spec));
    assert_fails(ERR_CONF, "31 steps is longer than interval = 30", load("[sync]\noverlap = 31\n", &spec));
    assert_fails(ERR_CONF, "1 never takes an anchor in", load("[sync]\nmix = 1\n", &spec));
    assert_fails(ERR_CONF, "fp32 leaves nothing over", load("[sync]\ncodec = fp32\nerror_feedback = yes\n", &spec));
    assert_fails(ERR_CONF, "needs both", load("[sync]\nwarm_steps = 100\n", &spec));
    assert_fails(ERR_CONF, "leave warm_steps out",
                 load("[sync]\ngrowth = 1\nwarm_steps = 10\nwarm_interval = 5\n", &spec));
    assert_fails(ERR_CONF, "from overlap = 1 to interval = 30",
                 load("[sync]\nwarm_steps = 10\nwarm_interval = 31\n", &spec));
    assert_fails(ERR_CONF, "with nesterov it is not", load("[outer]\nstaleness_penalty = yes\n", &spec));
    assert_fails(ERR_CONF, "needs overlap = interval = 30 and mix = 0", load("[sync]\neager = yes\n", &spec));
    assert_fails(ERR_CONF, "an outer step that is always the same",
                 load("[sync]\neager = yes\noverlap = 30\nmix = 0\n[outer]\nwarmup = 2\n", &spec));
    assert_fails(ERR_CONF, "leave out growth, and [outer] average, warmup, clip and staleness_penalty",
                 load("[sync]\neager = yes\noverlap = 30\nmix = 0\n[outer]\noptimizer = heavyball\nclip = 1\n", &spec));
    assert_fails(ERR_CONF, "no outer gradient is stale",
                 load("[outer]\noptimizer = heavyball\nstaleness_penalty = yes\n", &spec));
    assert_fails(ERR_CONF, "nesterov has none to bound", load("[outer]\nclip = 1\n", &spec));
    assert_fails(ERR_CONF, "not to be clipped", load("[outer]\noptimizer = heavyball\nclip = 1\naverage = 3\n", &spec));
    assert_fails(ERR_CONF, "topk leaves most", load("[sync]\ncodec = topk\n", &spec));
    assert_fails(ERR_CONF, "set a step below 2, or error_feedback",
                 load("[sync]\ncodec = adaptive\nstep = 2\n", &spec));
    assert_fails(ERR_CONF, "longer than the run's 100 steps", load("[train]\nwarmup = 101\n", &spec));
    assert_fails(ERR_CONF, "1 to 63 letters",
                 runspec_load(testlib_file(folder, "n.ini", "[run]\nname = a b\nsteps = 1\n"), NULL, 0, &spec));
}

static void the_samples_parse_and_one_is_the_manual(void **state)
{
    (void)state;
    struct runspec spec;
    assert_ok(runspec_load("conf/run.ini", NULL, 0, &spec));
    testlib_assert_manual(&runspec_schema, &spec, "conf/run.ini");
    runspec_deinit(&spec);
    assert_ok(runspec_load("conf/demo.ini", NULL, 0, &spec));
    assert_string_equal(spec.name, "demo");
    runspec_deinit(&spec);
}

/* The figures of docs/QUALITY.md are for these. */
static void the_thin_sample_says_what_was_measured(void **state)
{
    (void)state;
    struct runspec spec;
    assert_ok(runspec_load("conf/thin.ini", NULL, 0, &spec));
    assert_int_equal(spec.inner, RUNSPEC_MUON);
    assert_int_equal(spec.interval, 200);
    assert_int_equal(spec.codec, CODEC_UNIFORM);
    assert_true(spec.step == 1.7);
    assert_true(spec.lr == 6e-3);
    assert_true(spec.outer_lr == 0.7);
    assert_true(spec.outer_momentum == 0.6);
    runspec_deinit(&spec);
}

static void learning_rate_warms_up_and_falls(void **state)
{
    (void)state;
    struct runspec spec;
    assert_ok(load("[train]\nlr = 2e-3\nwarmup = 10\nlr_final = 0.25\n", &spec));
    assert_true(fabs(runspec_lr(&spec, 5) - 1e-3) < 1e-12);
    assert_true(fabs(runspec_lr(&spec, 10) - 2e-3) < 1e-12);
    assert_true(fabs(runspec_lr(&spec, 55) - 1.25e-3) < 1e-12);
    assert_true(fabs(runspec_lr(&spec, 100) - 5e-4) < 1e-12);
    assert_true(fabs(runspec_lr(&spec, 1000) - 5e-4) < 1e-12);
    runspec_deinit(&spec);
}

/* By order; the run stays the same. */
static void learning_rate_follows_the_length_that_the_run_has_now(void **state)
{
    (void)state;
    struct runspec spec;
    assert_ok(load("[train]\nlr = 2e-3\nwarmup = 10\nlr_final = 0.25\n", &spec));
    struct digest digest = spec.digest;
    char *before, *after;
    assert_int_equal(runspec_length(&spec), 100);
    assert_ok(runspec_text(&spec, &before));
    spec.length = 190;
    assert_int_equal(runspec_length(&spec), 190);
    assert_true(fabs(runspec_lr(&spec, 5) - 1e-3) < 1e-12);
    assert_true(fabs(runspec_lr(&spec, 100) - 1.25e-3) < 1e-12);
    assert_true(fabs(runspec_lr(&spec, 190) - 5e-4) < 1e-12);
    assert_int_equal(runspec_rounds(&spec), 6);
    spec.length = 55;
    assert_true(fabs(runspec_lr(&spec, 55) - 5e-4) < 1e-12);
    assert_ok(runspec_text(&spec, &after));
    assert_string_equal(before, after);
    assert_true(digest_equal(&digest, &spec.digest));
    mem_free(before);
    mem_free(after);
    runspec_deinit(&spec);
}

static void a_run_of_few_rounds_is_told_to_average(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t rounds;
        bool told;
    } cases[] = {
        {"[run]\nname = few\nsteps = 240\n[sync]\ninterval = 30\n", 8, true},
        {"[run]\nname = few\nsteps = 1499\n[sync]\ninterval = 30\n", 49, true},
        {"[run]\nname = few\nsteps = 1500\n[sync]\ninterval = 30\n", 50, false},
        {"[run]\nname = few\nsteps = 240\n[sync]\ninterval = 30\n[outer]\noptimizer = average\n", 8, false},
        {"[run]\nname = few\nsteps = 240\n[sync]\ninterval = 30\n[outer]\nmomentum = 0\n", 8, false},
        {"[run]\nname = few\nsteps = 300\n[sync]\ninterval = 30\nwarm_steps = 200\nwarm_interval = 4\n", 53, false},
        {"[run]\nname = few\nsteps = 100\n[sync]\ninterval = 30\nwarm_steps = 200\nwarm_interval = 4\n", 25, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct runspec spec;
        char text[RUNSPEC_ADVICE_BYTES], want[64] = "";
        assert_ok(runspec_parse(cases[i].text, "few", &spec));
        assert_int_equal(runspec_rounds(&spec), cases[i].rounds);
        runspec_advice(&spec, text);
        snprintf(want, sizeof want, "this run has %" PRIu64 " intervals, too few for outer momentum", cases[i].rounds);
        assert_int_equal(strncmp(text, want, strlen(want)) == 0, cases[i].told);
        assert_int_equal(text[0] == '\0', !cases[i].told);
        assert_true(strlen(text) < sizeof text - 8);
        runspec_deinit(&spec);
    }
}

int main(void)
{
    assert_ok(digest_init());
    folder = testlib_folder("runspec");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_and_derived_values),
        cmocka_unit_test(a_run_of_few_rounds_is_told_to_average),
        cmocka_unit_test(identity_covers_every_value_and_nothing_else),
        cmocka_unit_test(senseless_combinations_are_refused_with_the_reason),
        cmocka_unit_test(the_samples_parse_and_one_is_the_manual),
        cmocka_unit_test(the_thin_sample_says_what_was_measured),
        cmocka_unit_test(learning_rate_warms_up_and_falls),
        cmocka_unit_test(learning_rate_follows_the_length_that_the_run_has_now),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
