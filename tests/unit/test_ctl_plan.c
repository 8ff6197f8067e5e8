/* SPDX-License-Identifier: Apache-2.0 */
/* ctl_plan: what makes no sense is refused with the reason, and what is recommended is not; nothing is recommended that
 * the machine does not carry, nor a loss stated that was not measured. The results of simulations are tested in
 * tests/num. */
#include "tests/lib/testlib.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/digest.h"
#include "common/fsio.h"
#include "common/mem.h"
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

/* A line of the table in docs/QUALITY.md, "What is known": islands, rounds, steps, alike, differing. */
static void row_text(const struct known_loss *loss, char *text, size_t bytes)
{
    char alike[40], differing[20] = "not measured";
    if (loss->least < loss->most)
        snprintf(alike, sizeof alike, "+%.1f to +%.1f %%", loss->least, loss->most);
    else
        snprintf(alike, sizeof alike, "+%.1f %%", loss->most);
    if (loss->differing >= 0)
        snprintf(differing, sizeof differing, "+%.1f %%", loss->differing);
    snprintf(text, bytes, "\n| %d | %d | %d | %s | %s |\n", (int)loss->islands, (int)loss->rounds, (int)loss->interval,
             alike, differing);
}

/* What it prints stands in the document, and the document's table is all it knows. */
static void losses_are_what_the_document_knows(void **state)
{
    (void)state;
    char *bytes;
    size_t count, losses = 0, lines = 0;
    assert_ok(fsio_read("docs/QUALITY.md", 1 << 20, &bytes, &count));
    char *text = strndup(bytes, count);
    const char *table = strstr(text, "| islands | rounds | every | data alike | data that differ |\n");
    assert_non_null(table);
    for (const char *line = strchr(table, '\n') + 1; *line == '|'; line = strchr(line, '\n') + 1)
        lines++;
    for (size_t which = 0; which < ctl_ways_proposals(); which++) {
        const struct known_loss *known[CTL_WAYS_LOSSES_MAX];
        size_t n = ctl_ways_losses(which, known);
        for (size_t i = 0; i < n; i++) {
            char row[200];
            row_text(known[i], row, sizeof row);
            if (strstr(table, row) == NULL)
                fail_msg("docs/QUALITY.md does not have %s", row);
            assert_int_equal(known[i]->interval, ctl_ways_proposal(which)->interval);
            assert_true(ctl_ways[known[i]->way].codec.id == CODEC_UNIFORM);
        }
        losses += n;
    }
    assert_int_equal(losses, lines - 1); /* and the line below the head */
    free(text);
    mem_free(bytes);
}

/* ---- what the machine carries ---- */

static void parameters_are_said_as_people_say_them(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double params;
    } rows[] = {{"1e9", 1e9}, {"1B", 1e9}, {"1.5b", 1.5e9}, {"350M", 350e6}, {"12k", 12e3}, {"2T", 2e12}};
    double params;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_ok(ctl_plan_params(rows[i].text, &params));
        assert_true(fabs(params - rows[i].params) < 1);
    }
    static const char *const bad[] = {"", "B", "1X", "1BB", "0", "-1B", "nan", "1e99"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_fails(ERR_ARG, "--params", ctl_plan_params(bad[i], &params));
}

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
    machine.calibration = (struct calibration){0.5, 2, 0.4, 0.3, 0.5, 1};
    for (int i = 0; i < WAYS; i++)
        machine.codecs[i] = (struct calibrate_codec){encode_ns, 1, 0.3};
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

/* A disk of one byte a nanosecond: whatever is saved takes a second for each gigabyte, and a bit for the processor. */
static void what_is_saved_follows_the_parameters(void **state)
{
    (void)state;
    struct plan_machine machine = machine_of(64, 1000, 1);
    struct ctl_plan plan = one_billion;
    struct plan_choice one = choice_of(&plan, &machine);
    plan.params = 2e9;
    struct plan_choice two = choice_of(&plan, &machine);
    const struct way *way = &ctl_ways[ctl_ways_proposal(one.proposal)->way];
    double file = 8e9 + (way->error_feedback ? 8e9 : 0);
    assert_int_equal(one.proposal, two.proposal);
    assert_true(one.saving.checkpoints_bytes > file && one.saving.checkpoints_bytes < 1.5 * file);
    assert_true(one.saving.ledger_bytes >= 8e9 && one.saving.ledger_bytes < 13e9);
    assert_float_equal(one.saving.exported_bytes, 8e9, 1);
    assert_true(one.saving.checkpoint_s > 8 && one.saving.checkpoint_s < 10);
    assert_true(one.saving.stop_s >= file / 1e9 && one.saving.stop_s < 1.2 * file / 1e9);
    assert_true(one.saving.export_s > 4 && one.saving.export_s < 12);
    assert_true(one.saving.start_s > one.saving.stop_s + 8);
    assert_float_equal(two.saving.checkpoints_bytes, 2 * one.saving.checkpoints_bytes, 1);
    assert_float_equal(two.saving.ledger_bytes, 2 * one.saving.ledger_bytes, 1);
    assert_float_equal(two.saving.exported_bytes, 2 * one.saving.exported_bytes, 1);
    assert_float_equal(two.saving.checkpoint_s, 2 * one.saving.checkpoint_s, 1e-9);
    assert_float_equal(two.saving.stop_s, 2 * one.saving.stop_s, 1e-9);
    assert_float_equal(two.saving.export_s, 2 * one.saving.export_s, 1e-9);
    assert_float_equal(two.saving.start_s, 2 * one.saving.start_s, 1e-9);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_are_said_as_people_say_them),
        cmocka_unit_test(a_plan_that_makes_no_sense_is_refused_with_the_reason),
        cmocka_unit_test(every_run_spec_that_is_recommended_loads),
        cmocka_unit_test(losses_are_what_the_document_knows),
        cmocka_unit_test(only_what_the_machine_carries_is_recommended),
        cmocka_unit_test(cores_and_memory_follow_model_and_interval),
        cmocka_unit_test(what_is_saved_follows_the_parameters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
