/* SPDX-License-Identifier: Apache-2.0 */
/* ctl_plan: what makes no sense is refused with the reason, and what is recommended is not; nothing is recommended that
 * the machine does not carry, nor a loss stated that was not measured. What a forecast comes to is tested in tests/num.
 */
#include "tests/lib/testlib.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

#include "common/digest.h"
#include "common/runspec.h"
#include "daemon/ctl/ctl_plan.h"

static void a_plan_that_makes_no_sense_is_refused_with_the_reason(void **state)
{
    (void)state;
    static const struct ctl_plan good = {.params = 1e6,
                                         .step_s = 1,
                                         .layers = 4,
                                         .islands = 2,
                                         .interval = 100,
                                         .overlap = 1,
                                         .bandwidth = "1Mbit",
                                         .rtt_ms = 10};
    struct ctl_plan plan;
#define REFUSES(field, value, part)                   \
    do {                                              \
        plan = good;                                  \
        plan.field = value;                           \
        assert_fails(ERR_ARG, part, ctl_plan(&plan)); \
    } while (0)
    REFUSES(params, 0, "--params");
    REFUSES(step_s, 0, "--step-time");
    REFUSES(bandwidth, NULL, "--bandwidth");
    REFUSES(bandwidth, "fast", "is no rate");
    REFUSES(bandwidth, "-1Mbit", "is no rate");
    REFUSES(bandwidth, "1Mb", "is no rate");
    REFUSES(islands, 1, "--islands");
    REFUSES(islands, 1025, "--islands");
    REFUSES(layers, 0, "--layers");
    REFUSES(overlap, 101, "--overlap");
    REFUSES(interval, 0, "--overlap");
    REFUSES(loss, 0.95, "--loss");
    REFUSES(rtt_ms, -1, "--rtt");
    REFUSES(daemon_cores, 0.5, "--daemon-cores");
    REFUSES(daemon_cores, 65, "--daemon-cores");
    REFUSES(daemon_memory, -1, "--daemon-memory");
}

/* Whoever takes what is recommended must not be refused. */
static void every_run_spec_that_is_recommended_loads(void **state)
{
    (void)state;
    for (size_t which = 0; which < ctl_ways_proposals(); which++)
        for (uint64_t overlap = 0; overlap <= ctl_ways_overlap_max(which); overlap++) {
            char text[CTL_WAYS_SPEC_BYTES];
            struct runspec spec;
            ctl_ways_spec(which, overlap, text);
            assert_true(strlen(text) + 1 < sizeof text);
            if (runspec_parse(text, "plan", &spec) != ERR_OK)
                fail_msg("%s\n%s", err_text(), text);
            assert_int_equal(spec.overlap, overlap);
            assert_int_equal(spec.interval, ctl_ways_proposal(which)->interval);
            runspec_deinit(&spec);
        }
}

/* ---- what is said of the loss was measured ---- */

/* All that was measured; of rows that are in both, the first one's. */
static json_t *committed_rows(void)
{
    static const char *const paths[] = {"tests/bench/results/2core-intervals.json",
                                        "tests/bench/results/2core-quality.json"};
    json_t *all = json_array();
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        json_t *results = json_load_file(paths[i], 0, NULL);
        assert_int_equal(json_array_extend(all, json_object_get(results, "rows")), 0);
        json_decref(results);
    }
    return all;
}

static const json_t *row_named(const json_t *rows, const char *name)
{
    size_t index;
    json_t *row;
    json_array_foreach (rows, index, row)
        if (strcmp(json_string_value(json_object_get(row, "name")), name) == 0)
            return row;
    fail_msg("no row is called %s", name);
    return NULL;
}

static bool was_set(const json_t *row, const char *setting)
{
    size_t index;
    json_t *set;
    json_array_foreach (json_object_get(row, "settings"), index, set)
        if (strcmp(json_string_value(set), setting) == 0)
            return true;
    return false;
}

static double number_of(const json_t *row, const char *key)
{
    return json_number_value(json_object_get(row, key));
}

/* The committed rows, and what they were made with. */
static void losses_are_those_of_the_committed_results(void **state)
{
    (void)state;
    json_t *rows = committed_rows();
    for (size_t which = 0; which < ctl_ways_proposals(); which++) {
        const struct proposal *proposal = ctl_ways_proposal(which);
        const json_t *row = row_named(rows, proposal->row);
        char text[CTL_WAYS_SPEC_BYTES];
        struct runspec spec;
        assert_float_equal(proposal->loss_percent, number_of(row, "dp_gap_percent"), 1e-6);
        assert_int_equal(proposal->interval, number_of(row, "H"));
        assert_string_equal(ctl_ways[proposal->way].codec_name, json_string_value(json_object_get(row, "codec")));
        ctl_ways_spec(which, 1, text);
        assert_ok(runspec_parse(text, "plan", &spec));
        assert_float_equal(spec.outer_lr, was_set(row, "outer.lr=0.7") ? 0.7 : 0.4, 1e-6);
        assert_int_equal(spec.error_feedback, was_set(row, "sync.error_feedback=yes"));
        runspec_deinit(&spec);
    }
    for (uint64_t overlap = 0; overlap <= 10; overlap++) {
        const char *name;
        double loss = ctl_ways_overlap_loss(30, overlap, &name);
        if (overlap <= 1) {
            assert_null(name);
            assert_float_equal(loss, 0, 0);
            continue;
        }
        assert_true(number_of(row_named(rows, name), "tau") >= (double)overlap);
        assert_float_equal(loss, number_of(row_named(rows, name), "codec_gap_percent"), 1e-6);
    }
    json_decref(rows);
}

/* ---- what the machine carries ---- */

static const struct ctl_plan one_billion = {.params = 1e9,
                                            .step_s = 0.1,
                                            .layers = 24,
                                            .islands = 2,
                                            .interval = 100,
                                            .overlap = 5,
                                            .bandwidth = "100Gbit",
                                            .rtt_ms = 10};

/* All codecs alike: five nanoseconds here, one there. */
static struct plan_machine machine_of(double cores, double gib, double encode_ns)
{
    struct plan_machine machine = {.cores = cores, .memory_bytes = gib * 1073741824};
    machine.yardstick = (struct yardstick){0.5, 2, 0.4, 0.3, 0.5, 1};
    for (int i = 0; i < WAYS; i++)
        machine.codecs[i] = (struct yardstick_codec){encode_ns, 1, 0.3};
    return machine;
}

static struct plan_choice choice_of(const struct ctl_plan *plan, const struct plan_machine *machine)
{
    static struct plan_found found;
    assert_ok(ctl_plan_find(plan, machine, &found));
    return found.choice;
}

/* A line as fast as this one would do for every 30 steps; what it takes decides. */
static void only_what_the_machine_carries_is_recommended(void **state)
{
    (void)state;
    struct plan_machine many = machine_of(8, 100, 1), few = machine_of(1, 100, 5), none = machine_of(1, 100, 1000);
    struct plan_choice choice = choice_of(&one_billion, &many);
    assert_true(choice.carried && choice.utilisation > 0.95);
    assert_int_equal(ctl_ways_proposal(choice.proposal)->interval, 30);
    assert_true(choice.cores > 0 && choice.cores <= 8);
    struct plan_choice slower = choice_of(&one_billion, &few);
    assert_true(slower.carried && slower.cores <= 1);
    assert_true(ctl_ways_proposal(slower.proposal)->interval > 30);
    assert_false(choice_of(&one_billion, &none).carried);
    struct plan_machine small = machine_of(8, 10, 1);
    choice = choice_of(&one_billion, &small);
    assert_false(choice.carried);
    assert_true(choice.memory_bytes > 10 * 1073741824.0 && choice.memory_bytes < 20 * 1073741824.0);
}

/* The longer the interval, the less; the more parameters, the more. */
static void cores_and_memory_follow_model_and_interval(void **state)
{
    (void)state;
    static struct plan_found once, rarer, larger;
    struct plan_machine machine = machine_of(64, 1000, 1);
    struct ctl_plan plan = one_billion;
    plan.overlap = 30;
    assert_ok(ctl_plan_find(&plan, &machine, &once));
    plan.interval = 200;
    assert_ok(ctl_plan_find(&plan, &machine, &rarer));
    plan = one_billion;
    plan.overlap = 30;
    plan.params = 2e9;
    assert_ok(ctl_plan_find(&plan, &machine, &larger));
    for (int i = 0; i < WAYS; i++) {
        const struct plan_outcome *o = &once.outcomes[i];
        if (ctl_ways[i].every_step) {
            assert_true(o->cores == 0 && o->memory_bytes == 0);
            continue;
        }
        double at_full = o->cores / o->utilisation;
        assert_float_equal(rarer.outcomes[i].cores / rarer.outcomes[i].utilisation, at_full / 2, 1e-9);
        assert_float_equal(larger.outcomes[i].cores / larger.outcomes[i].utilisation, 2 * at_full, 1e-9);
        assert_float_equal(larger.outcomes[i].memory_bytes, 2 * o->memory_bytes, 1);
    }
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_that_makes_no_sense_is_refused_with_the_reason),
        cmocka_unit_test(every_run_spec_that_is_recommended_loads),
        cmocka_unit_test(losses_are_those_of_the_committed_results),
        cmocka_unit_test(only_what_the_machine_carries_is_recommended),
        cmocka_unit_test(cores_and_memory_follow_model_and_interval),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
