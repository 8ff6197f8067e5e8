/*
 * The forecast against the published table of Streaming DiLoCo (2501.18512, table 4): bandwidth, in Gbit/s, at which
 * 1B, 10B and 100B models train for 50, 80, 90, 95 and 99 % of the time; 2 islands, interval 100. The paper's grid has
 * steps of a factor 1.21, and one of these is allowed.
 */
#include "tests/lib/testlib.h"

#include <math.h>

#include "common/digest.h"
#include "common/shardmap.h"
#include "daemon/ctl/forecast.h"

enum { TARGETS = 5 };
static const double targets[TARGETS] = {0.50, 0.80, 0.90, 0.95, 0.99};

static double utilisation_of(struct forecast_conf conf)
{
    struct forecast_result result;
    conf.islands = conf.islands > 0 ? conf.islands : 2;
    conf.interval = 100;
    conf.slack = 2.0 / 3;
    conf.steps = 400;
    assert_ok(forecast_run(&conf, &result));
    return result.utilisation;
}

static double needed(struct forecast_conf conf, double target)
{
    double low = 1e7, high = 1e13;
    while (high / low > 1.01) {
        conf.bits_per_s = sqrt(low * high);
        if (utilisation_of(conf) >= target)
            high = conf.bits_per_s;
        else
            low = conf.bits_per_s;
    }
    return high / 1e9;
}

static void the_published_table_is_met(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        struct forecast_conf conf;
        double published[TARGETS];
    } rows[] = {
        {"1B DiLoCo", {.params = 1e9, .fragments = 1, .step_s = 0.1, .bits = 16}, {1.4, 6.2, 13.3, 23.3, 86.8}},
        {"1B streaming", {.params = 1e9, .fragments = 8, .step_s = 0.1, .bits = 16}, {1.4, 5.2, 9.1, 16, 28.1}},
        {"1B overlap",
         {.params = 1e9, .fragments = 8, .step_s = 0.1, .bits = 16, .overlap = 1},
         {1.4, 4.3, 6.2, 9.1, 11}},
        {"1B FP4", {.params = 1e9, .fragments = 8, .step_s = 0.1, .bits = 4, .overlap = 1}, {0.4, 0.9, 1.7, 2.0, 3.0}},
        {"10B DiLoCo", {.params = 1e10, .fragments = 1, .step_s = 0.8, .bits = 16}, {1.7, 7.5, 16, 33.9, 104.8}},
        {"10B streaming", {.params = 1e10, .fragments = 16, .step_s = 0.8, .bits = 16}, {1.7, 5.2, 9.1, 13.3, 19.3}},
        {"100B DiLoCo", {.params = 1e11, .fragments = 1, .step_s = 4.9, .bits = 16}, {3.0, 11, 23.3, 49.4, 184.2}},
        /* At 99 % the paper has 19.3, the figure of its 10B model. It does not go with its neighbours: P transfers in H
         * steps that may each be late by 2/3 t leave a stall of (1/u - 1) H / P steps to each, so a transfer may take
         * (2/3 + .0526 H/P) t at 95 % and (2/3 + .0101 H/P) t at 99 %. From 95 to 99 % bandwidth then grows
         * by 1.67, 1.36 and 1.17 for 8, 16 and 36 fragments; the paper's columns grow by 1.75, 1.45 and, here, 1.75,
         * where 11 * 1.17 = 12.9 is what we find, too (13.1). Not compared. */
        {"100B streaming", {.params = 1e11, .fragments = 36, .step_s = 4.9, .bits = 16}, {2.4, 6.2, 9.1, 11, 0}},
    };
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++)
        for (int t = 0; t < TARGETS; t++) {
            double gbit = needed(rows[r].conf, targets[t]);
            double published = rows[r].published[t];
            print_message("%-14s %2.0f %%: %.2f, published %.1f\n", rows[r].name, 100 * targets[t], gbit, published);
            /* Besides the grid's step, the published figures are rounded to a decimal. */
            if (published > 0)
                assert_in_range((uint64_t)(1000 * gbit / published), 1000 / 1.21 * (1 - 0.06 / published) - 1,
                                1000 * 1.21 * (1 + 0.06 / published) + 1);
        }
}

static void more_islands_delay_and_loss_cost_what_they_should(void **state)
{
    (void)state;
    struct forecast_conf conf = {
        .params = 1e9, .fragments = 8, .step_s = 0.1, .bits = 4, .bits_per_s = 1e9, .overlap = 1};
    double plain = utilisation_of(conf);
    struct forecast_conf many = conf, far = conf, lossy = conf, half = conf, longer = conf;
    many.islands = 16;
    far.rtt_s = 0.3;
    lossy.loss = 0.5;
    half.half_duplex = true;
    longer.overlap = 5;
    print_message("plain %.3f, 16 islands %.3f, 300 ms %.3f, half lost %.3f, half duplex %.3f, overlap 5 %.3f\n", plain,
                  utilisation_of(many), utilisation_of(far), utilisation_of(lossy), utilisation_of(half),
                  utilisation_of(longer));
    assert_true(utilisation_of(many) < plain && utilisation_of(many) > 0.5 * plain);
    assert_true(utilisation_of(far) < plain);
    assert_true(utilisation_of(lossy) < plain);
    assert_true(utilisation_of(half) < plain);
    assert_true(utilisation_of(longer) > plain);
    /* What plan's table rests on: sixteen islands stand for many, as far as all own as many shards. Where some own two
     * and others one, those who own two hold up all. */
    struct forecast_conf all = conf, uneven = conf, few = conf;
    all.islands = 64;
    uneven.islands = 48;
    few.islands = 16;
    for (double rate = 3e8; rate < 2e9; rate *= 2) {
        all.bits_per_s = few.bits_per_s = uneven.bits_per_s = rate;
        double of_all = utilisation_of(all), of_few = utilisation_of(few), of_uneven = utilisation_of(uneven);
        print_message("%.1f Gbit/s: 64 islands %.3f, 48 %.3f, 16 %.3f\n", rate / 1e9, of_all, of_uneven, of_few);
        assert_true(fabs(of_all - of_few) < 0.02);
        assert_true(of_uneven < of_few + 0.02 && of_uneven > of_few / 1.5);
    }
    /* Many more than own shards: those who do send to all others. */
    struct forecast_conf crowd = conf;
    crowd.islands = 200;
    crowd.fragments = few.fragments = 2;
    few.bits_per_s = crowd.bits_per_s;
    print_message("200 islands %.3f\n", utilisation_of(crowd));
    assert_true(utilisation_of(crowd) < utilisation_of(few));
    assert_true(utilisation_of(crowd) > utilisation_of(few) * SHARDMAP_OWNERS_MAX / crowd.islands);
    struct forecast_result result;
    struct forecast_conf huge = conf;
    huge.islands = 1024;
    huge.fragments = 256;
    huge.interval = huge.steps = 1;
    assert_true(forecast_bytes(&huge) > 4e10);
    assert_fails(ERR_ARG, "2 to 1024", forecast_run(&(struct forecast_conf){.islands = 1025}, &result));
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_published_table_is_met),
        cmocka_unit_test(more_islands_delay_and_loss_cost_what_they_should),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
