/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Epochs under a seeded network, crashes, reboots, one older disk, proposers that die half-way and islands that never
 * return, held against the invariants of docs/PROTOCOL.md, "Epochs":
 *   I1: one applied result per (fragment, version, shard), over all islands and all time;
 *   I5: starts never fall, and a version belongs to one epoch;
 *   I6: one decided configuration per epoch;
 *   L: a live majority of the newest proposed configuration comes to new versions within LIVE_MS after the faults end.
 * A failure prints the seed; TEST_SEED=n repeats it; TEST_SEEDS, TEST_SEED_FIRST, TEST_FILTER and TEST_MIX as in
 * test_sync.
 */
#include "tests/lib/epochworld.h"

#include <stdlib.h>
#include <string.h>

enum { FAULTS_MS = 5000, LIVE_MS = 20000, MORE_VERSIONS = 3 };
enum { JUDGED_MIN = 100 /* worlds, of which how many had to go on is judged */ };

static unsigned worlds, held_to_progress, lost, epochs_most, recovered;
static uint64_t epochs_all, versions_all;

static void cut_or_mend(void)
{
    for (uint32_t a = 0; a < ew->n; a++)
        for (uint32_t b = 0; b < ew->n; b++) {
            if (ew->cut[a][b] && ew->now_ms >= ew->cut_ms[a][b])
                ew->cut[a][b] = false;
            if (!ew->cut[a][b] && ew_below(2000) == 0) {
                ew->cut[a][b] = true;
                ew->cut_ms[a][b] = ew->now_ms + ew_below(1500);
                if (ew_chance(50)) {
                    ew->cut[b][a] = true;
                    ew->cut_ms[b][a] = ew->cut_ms[a][b];
                }
            }
        }
}

static void disturb(void)
{
    uint32_t i = (uint32_t)ew_below(ew->n);
    struct ew_island *island = &ew->island[i];
    cut_or_mend();
    if (!ew->blackout && ew_below(4000) == 0) { /* power is lost everywhere */
        ew->blackout = true;
        for (uint32_t k = 0; k < ew->n; k++) {
            ew_crash(k, 20 + ew_below(800));
            ew->island[k].mark = 0;
        }
    }
    if (ew_below(300) == 0) {
        island->older = island->disk;
        island->older_there = true;
    }
    if (ew_below(1000) < ew->crash_permille) {
        ew_crash(i, 20 + ew_below(1500));
    } else if (ew_below(600) == 0 && ew_majority(i)) { /* a reboot: the mark is gone */
        ew_crash(i, 20 + ew_below(800));
        island->mark = 0;
    } else if (!ew->rolled && island->older_there && ew_below(60) == 0 && ew_majority(i)) {
        ew_roll_back(i);
    } else if (ew_below(1200) == 0 && ew_majority(i)) {
        ew_crash(i, 0);
        island->gone = true;
    } else if (ew_below(100) == 0) {
        island->uplink = 50 + ew_below(200);
    }
}

static void heal(void)
{
    ew->healing = true;
    ew->loss_percent = 0;
    ew->delay_most_ms = 30;
    for (uint32_t a = 0; a < ew->n; a++)
        for (uint32_t b = 0; b < ew->n; b++)
            ew->cut[a][b] = false;
}

/* Whether the premise of L holds. All together always go on, even if every disk is in doubt. */
static bool must_go_on(void)
{
    bool all = true;
    for (uint32_t i = 0; i < ew->n; i++)
        all = all && !ew->island[i].gone;
    return all || ew_majority(ew->n);
}

static bool anyone_keeps(const struct part_result *carried)
{
    uint32_t f = carried->id.fragment, result = 0;
    for (uint32_t k = 1; k < ew->results_count; k++)
        if (digest_equal(&ew->results[k].id.digest, &carried->id.digest))
            result = k;
    for (uint32_t i = 0; i < ew->n; i++)
        if (!ew->island[i].witness &&
            (ew->island[i].disk.holds.version[f] >= carried->id.version || ew_keeps(i, f, result)))
            return true;
    return false;
}

/* Whether what the newest configuration starts from, or carries, was lost by the only one who had it, when nobody could
 * know. */
static bool is_lost(void)
{
    const struct config *newest = &ew->configs[ew->decided[ew->newest]].config;
    for (uint32_t f = 0; f < ew->fragments && ew->beyond; f++)
        if (ew_top(f) < config_start(newest, f))
            return true;
    for (uint32_t k = 0; k < newest->carried_count && ew->beyond; k++)
        if (!anyone_keeps(&newest->carried[k]))
            return true;
    return false;
}

static bool went_on(const uint64_t *top)
{
    for (uint32_t i = 0; i < ew->n; i++)
        for (uint32_t f = 0; f < ew->fragments; f++)
            if (!ew->island[i].gone && !ew->island[i].witness &&
                ew->island[i].disk.holds.version[f] < top[f] + MORE_VERSIONS)
                return false;
    return true;
}

static void run(uint64_t seed, uint32_t n, uint32_t voters, bool witness)
{
    ew_begin(seed, n, voters, witness);
    ew->fragments = 1 + (uint32_t)ew_below(EW_F_MAX);
    ew->loss_percent = (unsigned)ew_below(30);
    ew->crash_permille = (unsigned)ew_below(12);
    ew->delay_most_ms = 1 + ew_below(100);
    for (uint32_t i = 0; i < n; i++)
        ew_start(i);
    uint64_t end = ew->now_ms + FAULTS_MS;
    while (ew->now_ms < end) {
        disturb();
        ew_turn();
    }
    heal();
    uint64_t top[EW_F_MAX];
    for (uint32_t f = 0; f < ew->fragments; f++)
        top[f] = ew_top(f);
    bool must = must_go_on();
    end = ew->now_ms + (must ? LIVE_MS : 1000);
    while (ew->now_ms < end && !(must && went_on(top)))
        ew_turn();
    if (must && !went_on(top) && !is_lost())
        ew_print();
    EW_HOLDS(!must || went_on(top) || is_lost(), "L: the islands do not go on\n");
    lost += must && !went_on(top);
    worlds++;
    recovered += ew->recoveries;
    held_to_progress += must;
    epochs_all += ew->newest;
    epochs_most = ew->newest > epochs_most ? (unsigned)ew->newest : epochs_most;
    for (uint32_t f = 0; f < ew->fragments; f++)
        versions_all += ew_top(f);
    ew_end();
}

struct mix {
    const char *name;
    uint32_t n, voters;
    bool witness;
};

static void run_mix(unsigned initial, const struct mix *mix)
{
    const char *one = getenv("TEST_SEED"), *from = getenv("TEST_SEED_FIRST"), *only = getenv("TEST_MIX");
    if (only != NULL && strcmp(only, mix->name) != 0) {
        if (strcmp(only, "?") == 0)
            print_message("mix: %s\n", mix->name);
        return;
    }
    unsigned count = one != NULL ? 1 : testlib_seeds(initial);
    uint64_t first = one != NULL ? strtoull(one, NULL, 10) : from != NULL ? strtoull(from, NULL, 10) : 1;
    worlds = held_to_progress = lost = epochs_most = recovered = 0;
    epochs_all = versions_all = 0;
    for (unsigned k = 0; k < count; k++)
        run(first + k, mix->n, mix->voters, mix->witness);
    print_message("%s: %u worlds, %llu epochs, at most %u in one, %llu versions; %u had to go on, and did; %u disks "
                  "recovered, too much lost to go on %u\n",
                  mix->name, worlds, (unsigned long long)epochs_all, epochs_most, (unsigned long long)versions_all,
                  held_to_progress - lost, recovered, lost);
    assert_true(count < JUDGED_MIN || held_to_progress * 2 > worlds);
    assert_true(count < JUDGED_MIN || lost * 20 < worlds);
}

static void three_islands_keep_one_truth_under_trouble(void **state)
{
    (void)state;
    run_mix(1200, &(struct mix){"epochs of three", 3, 3, false});
}

static void two_islands_and_a_witness_do(void **state)
{
    (void)state;
    run_mix(1200, &(struct mix){"epochs of two, a witness", 3, 3, true});
}

static void four_islands_do(void **state)
{
    (void)state;
    run_mix(800, &(struct mix){"epochs of four", 4, 4, false});
}

static void three_islands_and_one_that_joins_do(void **state)
{
    (void)state;
    run_mix(800, &(struct mix){"epochs of three, and one", 4, 3, false});
}

static void five_islands_and_a_witness_do(void **state)
{
    (void)state;
    run_mix(600, &(struct mix){"epochs of four, a witness", 5, 5, true});
}

static void worlds_that_once_broke_hold(void **state)
{
    (void)state;
    if (getenv("TEST_MIX") != NULL || getenv("TEST_SEED") != NULL)
        return;
    run(1306, 3, 3, true); /* the next configuration rests on a disk that came back older just before */
}

static int end(void **state)
{
    (void)state;
    ew_free();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(three_islands_keep_one_truth_under_trouble),
        cmocka_unit_test(two_islands_and_a_witness_do),
        cmocka_unit_test(four_islands_do),
        cmocka_unit_test(three_islands_and_one_that_joins_do),
        cmocka_unit_test(five_islands_and_a_witness_do),
        cmocka_unit_test(worlds_that_once_broke_hold),
    };
    return cmocka_run_group_tests(tests, NULL, end);
}
