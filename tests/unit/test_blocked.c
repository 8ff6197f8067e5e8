/* SPDX-License-Identifier: Apache-2.0 */
/* status: that rounds do not close is told on every island, whatever the cause, with whom they wait for; and not where
 * they are only slow, or none is due. */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <unistd.h>

#include "common/digest.h"
#include "daemon/lag.h"
#include "daemon/control/status.h"
#include "tests/lib/complains.h"
#include "tests/lib/isle.h"
#include "tests/lib/played.h"
#include "tests/lib/played_trainer.h"

enum { A, B, C, ISLANDS, INTERVAL = 10, SHORT_MS = 60000, STANDS_MS = 5000 };

static struct isle_run *run;
static struct isle *a;
static struct played *peers[ISLANDS];
static struct played_trainer *trainer;
static struct progress *progress;
static struct status status;

static void beat(uint32_t i)
{
    struct event event;
    peers[i]->out.heartbeat.sequence = ++peers[i]->sequence;
    played_say(peers[i], A);
    isle_wait(isle_took_sync(a, SYNC_EV_HEARTBEAT, &event));
}

static int begin(void **state)
{
    (void)state;
    run = isle_run_new("blocked", ISLANDS, "interval = 10\noffsets = zero\n");
    for (uint32_t i = B; i < ISLANDS; i++)
        peers[i] = played_open(run, i, 0, NULL);
    a = isle_open(run, A, NULL, 0);
    isle_know_plan(a);
    a->engine = true;
    trainer = NULL;
    assert_ok(progress_new(&progress));
    for (uint32_t i = B; i < ISLANDS; i++) {
        played_greet(peers[i], a);
        played_beat(peers[i])->trainer = WIRE_TRAINER_TRAINING;
        beat(i);
    }
    return 0;
}

static int end(void **state)
{
    (void)state;
    status_deinit(&status);
    progress_free(progress);
    if (trainer != NULL)
        played_trainer_close(trainer);
    isle_close(a);
    for (uint32_t i = B; i < ISLANDS; i++)
        played_close(peers[i]);
    isle_run_free(run);
    return 0;
}

static void train(uint64_t step)
{
    if (trainer == NULL) {
        trainer = played_trainer_open(a);
        played_trainer_start(trainer);
    }
    played_trainer_say(trainer, &(struct ipc_message){.type = IPC_REPORT, .report = {.step = step, .tokens = 10}});
}

static uint64_t furthest(void)
{
    struct trainer_info info = trainer_info(a->trainer);
    return peers_furthest_said(a->peers, info.training ? info.step : 0);
}

static const struct status *take(void)
{
    static struct status_conf conf;
    conf = isle_status_conf(a);
    conf.progress = progress;
    progress_note(progress, a->sync, a->plan->plan->fragments_count, ISLANDS, furthest(), a->now_ms);
    status_deinit(&status);
    assert_ok(status_take(&conf, a->now_ms, &status));
    return &status;
}

/* Of rounds. */
static void assert_says(const char *what)
{
    const struct complaint *complaint = complaint_of(take(), COMPLAINT_BLOCKED);
    assert_non_null(complaint);
    assert_string_equal(complaint->what, what);
}

static void contribute(uint32_t f)
{
    isle_step(a, &(struct sync_event){.type = SYNC_EV_SNAPSHOT, .fragment = f});
    isle_step(a, &(struct sync_event){.type = SYNC_EV_ENCODED, .fragment = f});
}

static void stored(uint32_t f, uint32_t shard)
{
    isle_step(a, &(struct sync_event){.type = SYNC_EV_STORED, .fragment = f, .version = 1, .owner = shard});
}

/* Peers are kept alive while time goes by: what is looked at is rounds. */
static void wait_ms(uint64_t ms)
{
    a->now_ms += ms;
    for (uint32_t i = B; i < ISLANDS; i++)
        beat(i);
}

/* ---- by steps ---- */

/* A snapshot that is refused, a contribution that is never sent, a result that is never made: all the same. */
static void steps_go_by_and_nothing_closes(void **state)
{
    (void)state;
    train(1);
    train(4 * INTERVAL - 1);
    assert_silent(take(), COMPLAINT_BLOCKED);
    train(4 * INTERVAL);
    assert_silent(take(), COMPLAINT_BLOCKED); /* steps may take no time at all */
    wait_ms(STANDS_MS - 1);
    assert_silent(take(), COMPLAINT_BLOCKED);
    wait_ms(1);
    assert_says("no round has closed for 3 intervals, and no anchor moves; fragment 0 waits for a, b, c");
}

static void an_island_without_a_trainer_sees_it_too(void **state)
{
    (void)state;
    peers[B]->out.heartbeat.step = 4 * INTERVAL - 1;
    beat(B);
    assert_silent(take(), COMPLAINT_BLOCKED);
    peers[B]->out.heartbeat.step = 4 * INTERVAL;
    wait_ms(STANDS_MS);
    assert_says("no round has closed for 3 intervals, and no anchor moves; fragment 0 waits for b, c");
}

/* ---- by time ---- */

/* B has contributed, and says so. */
static void wait_long_for_c(void)
{
    peers[B]->out.heartbeat.fragments[5].at.contributed = 1;
    beat(B);
    assert_silent(take(), COMPLAINT_BLOCKED);
    wait_ms(SHORT_MS + 1);
    assert_says("no round of 1 out of 41 fragments has closed for 3 intervals; fragment 5 waits for c");
}

/* As one that has just joined, over a slow line: rounds go on without it. */
static void whose_state_is_to_come_is_told_that_alone(void **state)
{
    (void)state;
    wait_long_for_c();
    assert_false(sync_known(a->sync, 5));
    peers[B]->out.heartbeat.fragments[5].at.hash_known = true;
    beat(B);
    assert_silent(take(), COMPLAINT_BLOCKED);
}

/* At the run's end, or in lockstep, no step goes by any more. */
static void a_round_that_is_under_way_for_too_long_is_told(void **state)
{
    (void)state;
    train(INTERVAL);
    contribute(2);
    peers[B]->out.heartbeat.fragments[2].at.contributed = 1;
    beat(B);
    assert_silent(take(), COMPLAINT_BLOCKED);
    wait_ms(SHORT_MS);
    assert_silent(take(), COMPLAINT_BLOCKED);
    wait_ms(1);
    assert_says("no round of 1 out of 41 fragments has closed for 3 intervals; fragment 2 waits for c");
    /* All have contributed: an owner, whose disk is full, keeps its result back. */
    peers[C]->out.heartbeat.fragments[2].at.contributed = 1;
    beat(C);
    stored(2, B);
    stored(2, A);
    assert_says("no round of 1 out of 41 fragments has closed for 3 intervals; fragment 2 waits for c");
    stored(2, C); /* a result counts only where others hold it, too */
    assert_says("no round of 1 out of 41 fragments has closed for 3 intervals; fragment 2 waits for b, c");
    struct digest hash = {{0}};
    for (uint32_t owner = A; owner <= C; owner++)
        played_holds(&peers[B]->out.heartbeat, 2, owner, &hash);
    beat(B); /* nobody but this island keeps it from being applied */
    assert_says("no round of 1 out of 41 fragments has closed for 3 intervals; fragment 2 waits for a");
}

static void without_a_trainer_it_is_known_from_what_the_others_say(void **state)
{
    (void)state;
    wait_long_for_c();
    peers[C]->out.heartbeat.trainer = WIRE_TRAINER_NONE; /* has none, and is not waited for; of shards it is an owner */
    beat(C);
    assert_says("no round of 1 out of 41 fragments has closed for 3 intervals; fragment 5 waits for a, b, c");
}

/* The contributions to it are over, and forgotten, where somebody has come to the version that we cannot come to. */
static void a_version_that_somebody_has_and_we_do_not_come_to_is_told(void **state)
{
    (void)state;
    peers[B]->out.heartbeat.fragments[7].at.version = 1;
    beat(B);
    assert_silent(take(), COMPLAINT_BLOCKED);
    wait_ms(SHORT_MS + 1);
    assert_says("no round of 1 out of 41 fragments has closed for 3 intervals; fragment 7 waits for b, c");
}

/* Three intervals of ten steps of five seconds. */
static void where_steps_take_long_so_may_rounds(void **state)
{
    (void)state;
    uint64_t step = 1;
    train(step);
    assert_silent(take(), COMPLAINT_BLOCKED);
    for (int k = 0; k < 6; k++) {
        wait_ms(5000);
        train(++step);
        assert_silent(take(), COMPLAINT_BLOCKED);
    }
    contribute(2);
    assert_silent(take(), COMPLAINT_BLOCKED);
    wait_ms(150000);
    assert_silent(take(), COMPLAINT_BLOCKED);
    wait_ms(1);
    assert_non_null(complaint_of(take(), COMPLAINT_BLOCKED));
}

/* It begins anew with every version. */
static void a_round_that_closes_ends_the_wait(void **state)
{
    (void)state;
    train(INTERVAL);
    contribute(2);
    assert_silent(take(), COMPLAINT_BLOCKED);
    wait_ms(SHORT_MS);
    struct digest hash = digest_of("x", 1);
    isle_step(a, &(struct sync_event){.type = SYNC_EV_LOST, .fragment = 2, .member = B});
    isle_step(a, &(struct sync_event){.type = SYNC_EV_INSTALLED, .fragment = 2, .version = 1, .hash = hash});
    assert_silent(take(), COMPLAINT_BLOCKED);
    wait_ms(SHORT_MS);
    assert_silent(take(), COMPLAINT_BLOCKED);
}

/* ---- the folder below it ---- */

static void a_state_folder_that_is_gone_is_told_until_it_is_back(void **state)
{
    (void)state;
    char aside[300];
    snprintf(aside, sizeof aside, "%s-aside", a->conf.state_folder);
    assert_null(complaint_of(take(), COMPLAINT_STATE_LOST));
    assert_int_equal(rename(a->conf.state_folder, aside), 0);
    assert_non_null(complaint_of(take(), COMPLAINT_STATE_LOST));
    assert_int_equal(rename(aside, a->conf.state_folder), 0);
    assert_null(complaint_of(take(), COMPLAINT_STATE_LOST));
    /* Another in its place; or only the file that is appended to is gone. */
    assert_int_equal(unlink(testlib_path(a->conf.state_folder, "lock")), 0);
    testlib_file(a->conf.state_folder, "lock", "%s", "");
    assert_non_null(complaint_of(take(), COMPLAINT_STATE_LOST));
}

static void a_ledger_that_is_unlinked_is_told(void **state)
{
    (void)state;
    assert_null(complaint_of(take(), COMPLAINT_STATE_LOST));
    assert_int_equal(unlink(testlib_path(a->conf.state_folder, "ledger-000000000001.log")), 0);
    assert_non_null(complaint_of(take(), COMPLAINT_STATE_LOST));
}

/* ---- processors ---- */

static void processors_are_those_of_the_last_minute(void **state)
{
    (void)state;
    struct load load = {.count = 0};
    const uint64_t minute_ms = 60 * 1000, begin_ms = 7000;
    uint64_t now_ms = begin_ms, cpu_ns = 0;
    assert_true(load_cores(&load) == 0);
    load_note(&load, now_ms, cpu_ns);
    assert_true(load_cores(&load) == 0);
    for (; now_ms < begin_ms + minute_ms; now_ms += 100, cpu_ns += 50 * 1000000) /* half a core */
        load_note(&load, now_ms, cpu_ns);
    assert_float_equal(load_cores(&load), 0.5, 0.01);
    for (; now_ms < begin_ms + 2 * minute_ms + 2 * LOAD_EVERY_MS; now_ms += 100, cpu_ns += 300 * 1000000)
        load_note(&load, now_ms, cpu_ns);
    assert_float_equal(load_cores(&load), 3, 0.01);
}

int main(void)
{
    assert_ok(digest_init());
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        CASE(steps_go_by_and_nothing_closes),
        CASE(an_island_without_a_trainer_sees_it_too),
        CASE(whose_state_is_to_come_is_told_that_alone),
        CASE(a_round_that_is_under_way_for_too_long_is_told),
        CASE(without_a_trainer_it_is_known_from_what_the_others_say),
        CASE(a_version_that_somebody_has_and_we_do_not_come_to_is_told),
        CASE(where_steps_take_long_so_may_rounds),
        CASE(a_round_that_closes_ends_the_wait),
        CASE(a_state_folder_that_is_gone_is_told_until_it_is_back),
        CASE(a_ledger_that_is_unlinked_is_told),
        cmocka_unit_test(processors_are_those_of_the_last_minute),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
