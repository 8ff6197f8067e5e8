/* SPDX-License-Identifier: Apache-2.0 */
/* status: what it says of the island's own trainer: that it failed, ended, hangs, waits, or trains what is no number.
 * One island with all its parts, whose trainer and peers are played. */
#include "tests/lib/testlib.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/digest.h"
#include "common/mem.h"
#include "daemon/control/status.h"
#include "daemon/trainer/process.h"
#include "tests/lib/complains.h"
#include "tests/lib/look.h"
#include "tests/lib/sample_configs.h"

/* ---- its process ---- */

static void a_trainers_process_that_fails_or_does_not_run_is_told(void **state)
{
    (void)state;
    char text[400];
    look_begin_run("status-process", 1, NULL);
    const char *program = testlib_file(look.run->folder, "trainer",
                                       "#!/bin/sh\ntest -f go && exec sleep 100\n"
                                       "echo No module named torch >&2\nexit 3\n"); /* it runs there */
    assert_int_equal(chmod(program, 0755), 0);
    snprintf(text, sizeof text, "worker.program=%s", program);
    struct conf_override overrides[] = {{text}, {"worker.data=d"}, {"worker.autostart=no"}};
    look.a = isle_open(look.run, LOOK_A, overrides, 3);
    assert_complains(look_take(), COMPLAINT_STOPPED, "no trainer is running");
    assert_ok(trainer_join(look.a->trainer, look.a->now_ms));
    isle_wait(trainer_phase(look.a->trainer) == TRAINER_RESTARTING);
    assert_complains(look_take(), COMPLAINT_RESTARTING,
                     "ended with status 3; its last line: \"No module named torch\"; started again in 1 s");
    assert_int_equal(look.status.trainer.failures, 1);
    assert_silent(look_take(), COMPLAINT_STOPPED);
    testlib_file(look.run->folder, "go", "\n");
    assert_ok(trainer_join(look.a->trainer, look.a->now_ms));
    assert_silent(look_take(), COMPLAINT_RESTARTING);
    assert_silent(look_take(), COMPLAINT_STOPPED);
    assert_silent(look_take(), COMPLAINT_NOT_ATTACHED);
    isle_tick(look.a);
    look.a->now_ms += 60000;
    isle_tick(look.a);
    assert_silent(look_take(), COMPLAINT_NOT_ATTACHED); /* it may be large */
    look.a->now_ms += 1;
    snprintf(text, sizeof text, "the trainer (pid %d) has not attached for 60 s",
             (int)trainer_info(look.a->trainer).pid);
    assert_complains(look_take(), COMPLAINT_NOT_ATTACHED, text);
    bool killed;
    assert_ok(trainer_leave_now(look.a->trainer, &killed));
    isle_wait(!process_running(look.a->trainer->process));
    assert_silent(look_take(), COMPLAINT_STOPPED); /* as was asked */
    assert_int_equal(look.status.phase, TRAINER_STOPPED);
    look_end();
}

/* An island whose trainer is this shell script. */
static void begin_script(const char *name, const char *body)
{
    static char text[400];
    look_begin_run(name, 1, NULL);
    const char *program = testlib_file(look.run->folder, "trainer", "#!/bin/sh\n%s\n", body);
    assert_int_equal(chmod(program, 0755), 0);
    snprintf(text, sizeof text, "worker.program=%s", program);
    struct conf_override overrides[] = {{text}, {"worker.autostart=no"}};
    look.a = isle_open(look.run, LOOK_A, overrides, 2);
    assert_ok(trainer_join(look.a->trainer, look.a->now_ms));
}

/* To start it again would train the same epoch for ever. */
static void a_script_that_ends_by_itself_is_told_and_not_started_again(void **state)
{
    (void)state;
    begin_script("status-ended", "echo one epoch is done");
    isle_wait(!process_running(look.a->trainer->process));
    look.a->now_ms += 100000;
    isle_tick(look.a);
    assert_false(process_running(look.a->trainer->process));
    assert_complains(look_take(), COMPLAINT_ENDED,
                     "ended with status 0 at step 0 of the run's 1000, and had not said that");
    assert_non_null(strstr(complaint_of(&look.status, COMPLAINT_ENDED)->remedy, "until island.step() is False"));
    assert_silent(&look.status, COMPLAINT_RESTARTING);
    assert_string_equal(trainer_phase_name(look.status.phase), "ended");
    assert_int_equal(look.status.trainer.failures, 0);
    assert_ok(trainer_join(look.a->trainer, look.a->now_ms));
    assert_silent(look_take(), COMPLAINT_ENDED);
    isle_wait(!process_running(look.a->trainer->process));
    look_end();
}

/* It was done; what it does after that is people's as well. */
static void one_that_fails_when_it_is_done_is_told_and_not_started_again(void **state)
{
    (void)state;
    begin_script("status-badly", "echo cannot save: disk quota exceeded\nexit 5");
    process_finished(look.a->trainer->process);
    isle_wait(!process_running(look.a->trainer->process));
    assert_complains(
        look_take(), COMPLAINT_ENDED_BADLY,
        "ended with status 5; its last line: \"cannot save: disk quota exceeded\"; all that it had to contribute is "
        "counted");
    assert_int_equal(look.status.phase, TRAINER_FINISHED);
    look.a->now_ms += 100000;
    isle_tick(look.a);
    assert_false(process_running(look.a->trainer->process));
    look_end();
    begin_script("status-well", "exit 0");
    process_finished(look.a->trainer->process);
    isle_wait(!process_running(look.a->trainer->process));
    assert_silent(look_take(), COMPLAINT_ENDED_BADLY);
    assert_silent(look_take(), COMPLAINT_ENDED);
    look_end();
}

/* ---- steps ---- */

static void no_trainer_attached_and_one_that_stands_still_are_told(void **state)
{
    (void)state;
    look_begin("status-attached", 1, NULL);
    assert_complains(look_take(), COMPLAINT_NOT_ATTACHED, "no trainer is attached");
    look.trainer = played_trainer_open(look.a);
    played_trainer_start(look.trainer);
    look.a->now_ms += 60001;                       /* it hangs in its first step, or takes its time */
    assert_silent(look_take(), COMPLAINT_STALLED); /* in which its program is compiled */
    look.a->now_ms += 600000 - 60001;
    assert_silent(look_take(), COMPLAINT_STALLED);
    look.a->now_ms++;
    assert_complains(look_take(), COMPLAINT_STALLED, "has not finished its first step for 10 min");
    look_train(6);
    assert_silent(look_take(), COMPLAINT_NOT_ATTACHED);
    assert_silent(look_take(), COMPLAINT_STALLED);
    look_end();
}

/* Trainers stand by order; who asked for it is said, and no more. */
static void of_a_pause_nothing_is_complained(void **state)
{
    (void)state;
    look_begin("status-paused", 1, NULL);
    look_train(6);
    struct config next = configs_next(config_log_last(look.a->configs.config_log));
    struct order order = {.kind = ORDER_PAUSE, .signer = next.members[0].id, .number = 7};
    next.paused = true;
    assert_ok(mem_new(1, sizeof *next.orders, "orders", &next.orders));
    next.orders[0] = order;
    next.orders_count = 1;
    struct digest digest = configs_digest(&next);
    assert_ok(config_log_add(look.a->configs.config_log, &next, &digest));
    trainer_run(look.a->trainer, true);
    look.a->now_ms += 3600000;
    isle_tick(look.a);
    assert_silent(look_take(), COMPLAINT_STALLED);
    assert_silent(look_take(), COMPLAINT_BLOCKED);
    assert_true(look.status.pause.is);
    assert_string_equal(look.status.pause.by, look.a->configs.view.members[look.a->configs.view.self].as.name);
    assert_int_equal(look.status.pause.order, 7);
    assert_true(look.status.left_s < 0);
    look_end();
}

/* The slowest step so far may have been the one that compiled it all. */
static void a_step_may_take_thrice_as_long_as_the_slowest_and_a_minute_at_least(void **state)
{
    (void)state;
    look_begin("status-steps", 1, NULL);
    look_train(0);
    look.a->now_ms += 1000;
    look_train(6);
    look.a->now_ms += 60000;
    assert_silent(look_take(), COMPLAINT_STALLED);
    look.a->now_ms++;
    assert_complains(look_take(), COMPLAINT_STALLED,
                     "has not finished a step for 1 min 0 s; its slowest so far took 166 ms");
    look.a->now_ms += 30000;
    look_train(7); /* after 90 s */
    assert_silent(look_take(), COMPLAINT_STALLED);
    look.a->now_ms += 270000;
    assert_silent(look_take(), COMPLAINT_STALLED);
    look.a->now_ms += 1000;
    assert_complains(look_take(), COMPLAINT_STALLED, "for 4 min 31 s; its slowest so far took 1 min 30 s");
    look_end();
}

/* 0 is not said, which is nothing to complain of. */
static void a_loss_that_is_no_number_is_told_and_shown_as_none(void **state)
{
    (void)state;
    static const double losses[] = {0, (double)NAN, (double)INFINITY, -2.5};
    look_begin("status-loss", 2, NULL);
    look_train(6);
    for (size_t i = 0; i < sizeof losses / sizeof losses[0]; i++) {
        played_trainer_say(
            look.trainer,
            &(struct ipc_message){.type = IPC_REPORT,
                                  .report = {.step = 7 + i, .tokens = 70, .loss = losses[i], .tokens_per_s = 99}});
        look_take();
        if (i == 1 || i == 2)
            assert_complains(&look.status, COMPLAINT_LOSS_NAN, "the trainer's loss is NaN or Inf, at step ");
        else
            assert_silent(&look.status, COMPLAINT_LOSS_NAN);
        json_t *json = status_json(&look.status), *peers = status_json_peers(&look.status);
        const json_t *loss = json_object_get(json_object_get(json, "trainer"), "loss");
        const json_t *row = json_object_get(json_array_get(json_object_get(peers, "peers"), 0), "loss");
        assert_int_equal(json_is_null(loss), i < 3);
        assert_int_equal(json_is_null(row), i < 3);
        assert_true(i < 3 || json_real_value(loss) == -2.5);
        json_decref(json);
        json_decref(peers);
    }
    look_end();
}

/* The engine's part of a snapshot that was encoded, or refused. */
static void encode(uint32_t f, enum err err)
{
    struct replica_snapshot snapshot;
    assert_true(trainer_snapshot(look.a->trainer, f, &snapshot));
    trainer_encoded(look.a->trainer, f, err);
}

static void a_trainer_that_sends_nan_is_told_until_it_sends_none(void **state)
{
    (void)state;
    look_begin("status-nan", 1, NULL);
    look_train(6);
    encode(1, ERR_OK);
    assert_silent(look_take(), COMPLAINT_NAN);
    encode(1, ERR_NONFINITE);
    encode(1, ERR_NONFINITE);
    encode(3, ERR_NONFINITE);
    assert_complains(look_take(), COMPLAINT_NAN, "the last snapshots of 2 fragments hold NaN or Inf, 2 times in a row");
    encode(3, ERR_OK);
    assert_complains(look_take(), COMPLAINT_NAN, "of 1 fragment holds NaN");
    encode(1, ERR_OK);
    assert_silent(look_take(), COMPLAINT_NAN);
    encode(1, ERR_NONFINITE);
    played_trainer_close(look.trainer); /* the next one begins anew */
    look.trainer = NULL;
    isle_turn(look.a);
    assert_silent(look_take(), COMPLAINT_NAN);
    look_end();
}

static void one_that_was_to_leave_and_hangs_is_told(void **state)
{
    (void)state;
    struct trainer_leaving leaving;
    look_begin("status-leaving", 1, NULL);
    look_train(6);
    assert_ok(trainer_leave(look.a->trainer, &leaving));
    look.a->now_ms += 600001;
    assert_complains(look_take(), COMPLAINT_STALLED, "has not finished its first step");
    look_contribute(0); /* it waits for others, or for jobs: that is another matter */
    look_end();
}

/* a's trainer has just made its second step and is to finish; rounds of two fragments wait for b. */
static void finish_but_for_b(const char *name)
{
    struct event event;
    struct trainer_leaving leaving;
    look_begin(name, 3, NULL);
    played_greet(look.b, look.a);
    played_greet(look.c, look.a);
    look_train(1);
    look_contribute(1);
    look_contribute(2);
    isle_step(look.a, &(struct sync_event){.type = SYNC_EV_STORED, .fragment = 1, .version = 1, .owner = LOOK_C});
    isle_step(look.a, &(struct sync_event){.type = SYNC_EV_STORED, .fragment = 2, .version = 1, .owner = LOOK_C});
    /* c has said that it waits for nobody and that nobody has to wait for it. */
    struct wire_heartbeat *beat = played_beat(look.c);
    for (uint32_t f = 1; f <= 2; f++)
        played_holds(beat, f, LOOK_C, &(struct digest){{0}}); /* so its results count */
    played_say(look.c, LOOK_A);
    isle_wait(isle_took_sync(look.a, SYNC_EV_HEARTBEAT, &event));
    look.a->now_ms += 3000;
    assert_silent(look_take(), COMPLAINT_WAITING); /* it trains */
    played_trainer_say(look.trainer, &(struct ipc_message){.type = IPC_SETTLED, .fragment = 3});
    look_train(2);
    assert_ok(trainer_leave(look.a->trainer, &leaving));
}

static void settle_the_rest(void)
{
    for (uint32_t f = 0; f < ISLE_FRAGMENTS; f++)
        if (f != 1 && f != 2)
            isle_step(look.a, &(struct sync_event){.type = SYNC_EV_SETTLED, .fragment = f});
}

static void a_trainer_that_stands_still_at_its_end_names_whom_it_waits_for(void **state)
{
    (void)state;
    finish_but_for_b("status-waiting");
    look.a->now_ms += 20000;
    assert_silent(look_take(),
                  COMPLAINT_WAITING); /* its own contributions to the others are still to come: it hangs itself */
    look.a->now_ms += 43000;
    assert_complains(look_take(), COMPLAINT_STALLED, "has not finished a step for 1 min 3 s");
    settle_the_rest();
    assert_complains(look_take(), COMPLAINT_WAITING, "it waits for b");
    assert_null(strstr(complaint_of(look_take(), COMPLAINT_WAITING)->what, "b, c"));
    assert_silent(look_take(), COMPLAINT_STALLED);
    isle_step(look.a, &(struct sync_event){.type = SYNC_EV_STORED, .fragment = 1, .version = 1, .owner = LOOK_B});
    isle_step(look.a, &(struct sync_event){.type = SYNC_EV_STORED, .fragment = 2, .version = 1, .owner = LOOK_B});
    look_end();
}

static void islands_that_are_heard_have_the_time_of_a_round_before_it_is_told(void **state)
{
    (void)state;
    finish_but_for_b("status-usual");
    settle_the_rest();
    uint64_t since_ms = look.a->now_ms;
    look.a->now_ms = since_ms + 19999;
    assert_silent(look_take(), COMPLAINT_WAITING);
    look.a->now_ms = since_ms + 20000;
    assert_complains(look_take(), COMPLAINT_WAITING, "it waits for b");
    /* Where an interval takes longer, that long. */
    uint64_t interval_s = (uint64_t)look.run->spec.interval * 30;
    assert_ok(progress_new(&look.progress));
    progress_note(look.progress, look.a->sync, ISLE_FRAGMENTS, 3, 0, since_ms);
    progress_note(look.progress, look.a->sync, ISLE_FRAGMENTS, 3, 1, since_ms + 30000);
    look.a->now_ms = since_ms + interval_s * 1000 - 1;
    assert_silent(look_take(), COMPLAINT_WAITING);
    look.a->now_ms++;
    assert_complains(look_take(), COMPLAINT_WAITING, "it waits for b");
    look_end();
}

static void one_that_is_away_at_the_end_is_told_within_seconds(void **state)
{
    (void)state;
    finish_but_for_b("status-gone");
    settle_the_rest();
    look.a->now_ms += 2999;
    isle_tick(look.a); /* nobody has been heard for so long */
    assert_false(peers_info(look.a->peers, LOOK_B).up);
    assert_silent(look_take(), COMPLAINT_WAITING);
    look.a->now_ms++;
    assert_complains(look_take(), COMPLAINT_WAITING, "it waits for b");
    look_end();
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trainers_process_that_fails_or_does_not_run_is_told),
        cmocka_unit_test(a_script_that_ends_by_itself_is_told_and_not_started_again),
        cmocka_unit_test(one_that_fails_when_it_is_done_is_told_and_not_started_again),
        cmocka_unit_test(no_trainer_attached_and_one_that_stands_still_are_told),
        cmocka_unit_test(of_a_pause_nothing_is_complained),
        cmocka_unit_test(a_step_may_take_thrice_as_long_as_the_slowest_and_a_minute_at_least),
        cmocka_unit_test(a_loss_that_is_no_number_is_told_and_shown_as_none),
        cmocka_unit_test(a_trainer_that_sends_nan_is_told_until_it_sends_none),
        cmocka_unit_test(one_that_was_to_leave_and_hangs_is_told),
        cmocka_unit_test(a_trainer_that_stands_still_at_its_end_names_whom_it_waits_for),
        cmocka_unit_test(islands_that_are_heard_have_the_time_of_a_round_before_it_is_told),
        cmocka_unit_test(one_that_is_away_at_the_end_is_told_within_seconds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
