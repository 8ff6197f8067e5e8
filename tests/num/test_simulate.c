/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulation against the published table of Streaming DiLoCo (2501.18512, table 4): bandwidth, in Gbit/s, at which
 * 1B, 10B and 100B models train for 50, 80, 90, 95 and 99 % of the time; 2 islands, interval 100. The paper's grid has
 * steps of a factor 1.21, and one of these is allowed.
 */
#include "tests/lib/testlib.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/digest.h"
#include "daemon/ctl/simulate.h"

enum { TARGETS = 5 };
static const double targets[TARGETS] = {0.50, 0.80, 0.90, 0.95, 0.99};

static double utilisation_of(struct simulate_conf conf)
{
    struct simulate_result result;
    conf.islands = conf.islands > 0 ? conf.islands : 2;
    conf.interval = 100;
    conf.slack = 2.0 / 3;
    conf.steps = 400;
    assert_ok(simulate_run(&conf, &result));
    return result.utilisation;
}

static double needed(struct simulate_conf conf, double target)
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
        struct simulate_conf conf;
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
    struct simulate_conf conf = {
        .params = 1e9, .fragments = 8, .step_s = 0.1, .bits = 4, .bits_per_s = 1e9, .overlap = 1};
    double plain = utilisation_of(conf);
    struct simulate_conf many = conf, far = conf, lossy = conf, half = conf, longer = conf;
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
    struct simulate_result result;
    assert_fails(ERR_ARG, "2 to 1024", simulate_run(&(struct simulate_conf){.islands = 1025}, &result));
}

/* What plan's table rests on: a few islands stand for many. */
static void few_islands_stand_for_many(void **state)
{
    (void)state;
    enum { FEW = 4 };
    struct simulate_conf conf = {
        .params = 1e9, .fragments = 8, .step_s = 0.1, .bits = 4, .overlap = 1, .interval = 100, .rtt_s = 0.05};
    for (double rate = 3e8; rate < 2e9; rate *= 2) {
        struct simulate_conf all = conf, uneven = conf;
        all.islands = 64;
        uneven.islands = 48;
        all.bits_per_s = uneven.bits_per_s = rate;
        double of_all = utilisation_of(all), of_few = utilisation_of(simulate_fewer(&all, FEW));
        double of_uneven = utilisation_of(uneven);
        print_message("%.1f Gbit/s: 64 islands %.3f, 48 %.3f, few %.3f\n", rate / 1e9, of_all, of_uneven, of_few);
        assert_true(fabs(of_all - of_few) < 0.03);
        /* Where some own two shards and others one, those who own two hold up all. */
        assert_true(of_uneven < of_few + 0.03 && of_uneven > of_few / 1.5);
    }
    /* Many more than own shards: those who do send to all others. */
    struct simulate_conf crowd = conf;
    crowd.islands = 200;
    crowd.bits_per_s = 1e9;
    crowd.fragments = 2;
    struct simulate_conf few = simulate_fewer(&crowd, FEW), as_few = few;
    as_few.bits = crowd.bits;
    double of_crowd = utilisation_of(crowd), of_few = utilisation_of(few);
    print_message("200 islands %.3f, few %.3f, of whom each sends as few do %.3f\n", of_crowd, of_few,
                  utilisation_of(as_few));
    assert_true(fabs(of_crowd - of_few) < 0.05);
    assert_true(utilisation_of(as_few) > of_few + 0.05);
}

/* Jobs wait for a thread, the line for the cipher; and without any work nothing waits. */
static void the_daemons_work_takes_its_time(void **state)
{
    (void)state;
    const struct simulate_conf free = {
        .params = 1e9, .fragments = 8, .step_s = 0.1, .bits = 4, .bits_per_s = 1e10, .overlap = 3};
    struct simulate_conf one = free, two = free, sealed = free, quick = free;
    one.work = (struct simulate_work){.threads = 1, .encode_ns = 2, .apply_ns = 4, .reduce_ns = 3, .store_ns = 1};
    two.work = one.work;
    two.work.threads = 2;
    quick.work = (struct simulate_work){.threads = 1, .encode_ns = 0.02, .apply_ns = 0.04, .reduce_ns = 0.03};
    sealed.work = (struct simulate_work){.threads = 1, .link_ns = 40}; /* 200 Mbit/s */
    double of_free = utilisation_of(free), of_one = utilisation_of(one), of_two = utilisation_of(two);
    print_message("no work %.3f, one thread %.3f, two %.3f, slow cipher %.3f\n", of_free, of_one, of_two,
                  utilisation_of(sealed));
    assert_true(of_free > 0.99 && utilisation_of(quick) > 0.99);
    assert_true(of_one < 0.95);
    assert_true(of_two > of_one); /* all is done in pieces */
    assert_true(utilisation_of(sealed) < of_free - 0.1);
    struct simulate_conf slow = free;
    slow.bits_per_s = 8e9 / 40;
    assert_float_equal(utilisation_of(sealed), utilisation_of(slow), 0.01);
    /* A hash keeps threads busy, and nobody waiting as long as there are enough. */
    struct simulate_conf hashed = free, applied = free, busy = free;
    hashed.work = (struct simulate_work){.threads = 4, .hash_ns = 12};
    applied.work = (struct simulate_work){.threads = 4, .apply_ns = 12};
    busy.work = (struct simulate_work){.threads = 1, .hash_ns = 100};
    print_message("four threads, hashes %.3f, as much to apply %.3f; one thread and far more %.3f\n",
                  utilisation_of(hashed), utilisation_of(applied), utilisation_of(busy));
    assert_float_equal(utilisation_of(hashed), of_free, 0.005);
    assert_true(utilisation_of(applied) < of_free - 0.02 && utilisation_of(busy) < of_free - 0.02);
    /* With work for far more than all of the time, and an overlap in which all fragments are on their way at once, two
     * threads do twice as much. */
    one.overlap = two.overlap = 90;
    one.work = two.work = (struct simulate_work){.threads = 1, .encode_ns = 400, .apply_ns = 800, .reduce_ns = 600};
    two.work.threads = 2;
    of_one = utilisation_of(one);
    of_two = utilisation_of(two);
    print_message("two hundred times as much: one thread %.4f, two %.4f\n", of_one, of_two);
    assert_true(of_one < 0.01 && of_two > 1.5 * of_one && of_two < 2.1 * of_one);
}

/* In a process of its own, whose memory nothing else has grown. */
static void memory_said_is_memory_taken(void **state)
{
    (void)state;
    const struct simulate_conf conf = {.islands = 300,
                                       .params = 1e9,
                                       .fragments = 4,
                                       .interval = 20,
                                       .overlap = 1,
                                       .step_s = 1,
                                       .slack = 2.0 / 3,
                                       .bits = 4,
                                       .bits_per_s = 1e9,
                                       .steps = 20};
    struct simulate_conf huge = conf;
    huge.islands = 1024;
    huge.fragments = 256;
    assert_true(simulate_bytes(&huge) > 4e10);
    pid_t child = fork();
    if (child == 0) {
        struct simulate_result result;
        _exit(simulate_run(&conf, &result) == ERR_OK ? 0 : 1);
    }
    struct rusage usage;
    int status;
    assert_int_equal(wait4(child, &status, 0, &usage), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    double taken = 1024.0 * (double)usage.ru_maxrss, said = simulate_bytes(&conf);
    print_message("%.0f MiB said, %.0f taken\n", said / (1 << 20), taken / (1 << 20));
    if (getenv("BUILD") != NULL && strchr(getenv("BUILD"), '-') != NULL)
        return; /* a sanitizer keeps books of its own */
    assert_true(taken > 0.75 * said && taken < 1.25 * said + (20 << 20));
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_published_table_is_met),
        cmocka_unit_test(more_islands_delay_and_loss_cost_what_they_should),
        cmocka_unit_test(few_islands_stand_for_many),
        cmocka_unit_test(the_daemons_work_takes_its_time),
        cmocka_unit_test(memory_said_is_memory_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
