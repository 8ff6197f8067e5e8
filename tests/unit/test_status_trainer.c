/* SPDX-License-Identifier: Apache-2.0 */
/* status: what it says of the island's own trainer: that it failed, ended, hangs, waits, or trains what is no number.
 * One island with all its parts, whose trainer and peers are played. */
#include "tests/lib/testlib.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/digest.h"
#include "daemon/control/status.h"
#include "daemon/control/status_json.h"
#include "tests/lib/complains.h"
#include "tests/lib/isle.h"
#include "tests/lib/played.h"
#include "tests/lib/played_trainer.h"

enum { A, B, C };

static struct isle_run *run;
static struct isle *a;
static struct played *b, *c;
static struct played_trainer *trainer;
static struct status status; /* as last taken */

static void begin_run(const char *name, uint32_t count, const char *sync)
{
    run = isle_run_new(name, count, sync);
    b = count > B ? played_open(run, B, 0, NULL) : NULL;
    c = count > C ? played_open(run, C, 0, NULL) : NULL;
    trainer = NULL;
}

static void begin(const char *name, uint32_t count, const char *sync)
{
    begin_run(name, count, sync);
    a = isle_open(run, A, NULL, 0);
    isle_know_plan(a);
    a->engine = true;
}

static void end(void)
{
    status_deinit(&status);
    if (trainer != NULL)
        played_trainer_close(trainer);
    isle_close(a);
    if (b != NULL)
        played_close(b);
    if (c != NULL)
        played_close(c);
    isle_run_free(run);
}

static const struct status *take(void)
{
    static struct status_conf conf;
    conf = isle_status_conf(a);
    status_deinit(&status);
    assert_ok(status_take(&conf, a->now_ms, &status));
    return &status;
}

static void train(uint64_t step)
{
    if (trainer == NULL) {
        trainer = played_trainer_open(a);
        played_trainer_start(trainer);
    }
    played_trainer_say(
        trainer, &(struct ipc_message){.type = IPC_REPORT, .report = {.step = step, .tokens = 10 * step, .loss = 2.5}});
}

/* Our contribution to the next version of a fragment is on its way. */
static void contribute(uint32_t f)
{
    isle_step(a, &(struct sync_event){.type = SYNC_EV_SNAPSHOT, .fragment = f});
    isle_step(a, &(struct sync_event){.type = SYNC_EV_ENCODED, .fragment = f});
}

/* ---- its process ---- */

static void a_trainers_process_that_fails_or_does_not_run_is_told(void **state)
{
    (void)state;
    char text[400];
    begin_run("status-process", 1, NULL);
    const char *program = testlib_file(run->folder, "trainer",
                                       "#!/bin/sh\ntest -f go && exec sleep 100\n"
                                       "echo No module named torch >&2\nexit 3\n"); /* it runs there */
    assert_int_equal(chmod(program, 0755), 0);
    snprintf(text, sizeof text, "worker.program=%s", program);
    struct conf_override overrides[] = {{text}, {"worker.data=d"}, {"worker.autostart=no"}};
    a = isle_open(run, A, overrides, 3);
    assert_complains(take(), COMPLAINT_STOPPED, "no trainer is running");
    assert_ok(trainer_join(a->trainer, a->now_ms));
    isle_wait(trainer_phase(a->trainer) == TRAINER_RESTARTING);
    assert_complains(take(), COMPLAINT_RESTARTING,
                     "ended with status 3; its last line: \"No module named torch\"; started again in 1 s");
    assert_int_equal(status.trainer.failures, 1);
    assert_silent(take(), COMPLAINT_STOPPED);
    testlib_file(run->folder, "go", "\n");
    assert_ok(trainer_join(a->trainer, a->now_ms));
    assert_silent(take(), COMPLAINT_RESTARTING);
    assert_silent(take(), COMPLAINT_STOPPED);
    assert_silent(take(), COMPLAINT_NOT_ATTACHED);
    isle_tick(a);
    a->now_ms += 60000;
    isle_tick(a);
    assert_silent(take(), COMPLAINT_NOT_ATTACHED); /* it may be large */
    a->now_ms += 1;
    snprintf(text, sizeof text, "the trainer (pid %d) has not attached for 60 s", (int)trainer_info(a->trainer).pid);
    assert_complains(take(), COMPLAINT_NOT_ATTACHED, text);
    bool killed;
    assert_ok(trainer_leave_now(a->trainer, &killed));
    isle_wait(!trainer_running(a->trainer));
    assert_silent(take(), COMPLAINT_STOPPED); /* as was asked */
    assert_int_equal(status.phase, TRAINER_STOPPED);
    end();
}

/* An island whose trainer is this shell script. */
static void begin_script(const char *name, const char *body)
{
    static char text[400];
    begin_run(name, 1, NULL);
    const char *program = testlib_file(run->folder, "trainer", "#!/bin/sh\n%s\n", body);
    assert_int_equal(chmod(program, 0755), 0);
    snprintf(text, sizeof text, "worker.program=%s", program);
    struct conf_override overrides[] = {{text}, {"worker.autostart=no"}};
    a = isle_open(run, A, overrides, 2);
    assert_ok(trainer_join(a->trainer, a->now_ms));
}

/* To start it again would train the same epoch for ever. */
static void a_script_that_ends_by_itself_is_told_and_not_started_again(void **state)
{
    (void)state;
    begin_script("status-ended", "echo one epoch is done");
    isle_wait(!trainer_running(a->trainer));
    a->now_ms += 100000;
    isle_tick(a);
    assert_false(trainer_running(a->trainer));
    assert_complains(take(), COMPLAINT_ENDED, "ended with status 0 at step 0 of the run's 1000, and had not said that");
    assert_non_null(strstr(complaint_of(&status, COMPLAINT_ENDED)->remedy, "until island.step() is False"));
    assert_silent(&status, COMPLAINT_RESTARTING);
    assert_string_equal(trainer_phase_name(status.phase), "ended");
    assert_int_equal(status.trainer.failures, 0);
    assert_ok(trainer_join(a->trainer, a->now_ms));
    assert_silent(take(), COMPLAINT_ENDED);
    isle_wait(!trainer_running(a->trainer));
    end();
}

/* It was done; what it does after that is people's as well. */
static void one_that_fails_when_it_is_done_is_told_and_not_started_again(void **state)
{
    (void)state;
    begin_script("status-badly", "echo cannot save: disk quota exceeded\nexit 5");
    trainer_finished(a->trainer);
    isle_wait(!trainer_running(a->trainer));
    assert_complains(
        take(), COMPLAINT_ENDED_BADLY,
        "ended with status 5; its last line: \"cannot save: disk quota exceeded\"; all that it had to contribute is "
        "counted");
    assert_int_equal(status.phase, TRAINER_FINISHED);
    a->now_ms += 100000;
    isle_tick(a);
    assert_false(trainer_running(a->trainer));
    end();
    begin_script("status-well", "exit 0");
    trainer_finished(a->trainer);
    isle_wait(!trainer_running(a->trainer));
    assert_silent(take(), COMPLAINT_ENDED_BADLY);
    assert_silent(take(), COMPLAINT_ENDED);
    end();
}

/* ---- steps ---- */

static void no_trainer_attached_and_one_that_stands_still_are_told(void **state)
{
    (void)state;
    begin("status-attached", 1, NULL);
    assert_complains(take(), COMPLAINT_NOT_ATTACHED, "no trainer is attached");
    trainer = played_trainer_open(a);
    played_trainer_start(trainer);
    a->now_ms += 60001;                       /* it hangs in its first step, or takes its time */
    assert_silent(take(), COMPLAINT_STALLED); /* in which its program is compiled */
    a->now_ms += 600000 - 60001;
    assert_silent(take(), COMPLAINT_STALLED);
    a->now_ms++;
    assert_complains(take(), COMPLAINT_STALLED, "has not finished its first step for 10 min");
    train(6);
    assert_silent(take(), COMPLAINT_NOT_ATTACHED);
    assert_silent(take(), COMPLAINT_STALLED);
    end();
}

/* The slowest step so far may have been the one that compiled it all. */
static void a_step_may_take_thrice_as_long_as_the_slowest_and_a_minute_at_least(void **state)
{
    (void)state;
    begin("status-steps", 1, NULL);
    train(0);
    a->now_ms += 1000;
    train(6);
    a->now_ms += 60000;
    assert_silent(take(), COMPLAINT_STALLED);
    a->now_ms++;
    assert_complains(take(), COMPLAINT_STALLED,
                     "has not finished a step for 1 min 0 s; its slowest so far took 166 ms");
    a->now_ms += 30000;
    train(7); /* after 90 s */
    assert_silent(take(), COMPLAINT_STALLED);
    a->now_ms += 270000;
    assert_silent(take(), COMPLAINT_STALLED);
    a->now_ms += 1000;
    assert_complains(take(), COMPLAINT_STALLED, "for 4 min 31 s; its slowest so far took 1 min 30 s");
    end();
}

/* 0 is not said, which is nothing to complain of. */
static void a_loss_that_is_no_number_is_told_and_shown_as_none(void **state)
{
    (void)state;
    static const double losses[] = {0, (double)NAN, (double)INFINITY, -2.5};
    begin("status-loss", 2, NULL);
    train(6);
    for (size_t i = 0; i < sizeof losses / sizeof losses[0]; i++) {
        played_trainer_say(
            trainer,
            &(struct ipc_message){.type = IPC_REPORT,
                                  .report = {.step = 7 + i, .tokens = 70, .loss = losses[i], .tokens_per_s = 99}});
        take();
        if (i == 1 || i == 2)
            assert_complains(&status, COMPLAINT_LOSS_NAN, "the trainer's loss is NaN or Inf, at step ");
        else
            assert_silent(&status, COMPLAINT_LOSS_NAN);
        json_t *json = status_json(&status), *peers = status_json_peers(&status);
        const json_t *loss = json_object_get(json_object_get(json, "trainer"), "loss");
        const json_t *row = json_object_get(json_array_get(json_object_get(peers, "peers"), 0), "loss");
        assert_int_equal(json_is_null(loss), i < 3);
        assert_int_equal(json_is_null(row), i < 3);
        assert_true(i < 3 || json_real_value(loss) == -2.5);
        json_decref(json);
        json_decref(peers);
    }
    end();
}

/* The engine's part of a snapshot that was encoded, or refused. */
static void encode(uint32_t f, enum err err)
{
    struct replica_snapshot snapshot;
    assert_true(trainer_snapshot(a->trainer, f, &snapshot));
    trainer_encoded(a->trainer, f, err);
}

static void a_trainer_that_sends_nan_is_told_until_it_sends_none(void **state)
{
    (void)state;
    begin("status-nan", 1, NULL);
    train(6);
    encode(1, ERR_OK);
    assert_silent(take(), COMPLAINT_NAN);
    encode(1, ERR_NONFINITE);
    encode(1, ERR_NONFINITE);
    encode(3, ERR_NONFINITE);
    assert_complains(take(), COMPLAINT_NAN, "the last snapshots of 2 fragments hold NaN or Inf, 2 times in a row");
    encode(3, ERR_OK);
    assert_complains(take(), COMPLAINT_NAN, "of 1 fragment holds NaN");
    encode(1, ERR_OK);
    assert_silent(take(), COMPLAINT_NAN);
    encode(1, ERR_NONFINITE);
    played_trainer_close(trainer); /* the next one begins anew */
    trainer = NULL;
    isle_turn(a);
    assert_silent(take(), COMPLAINT_NAN);
    end();
}

static void one_that_was_to_leave_and_hangs_is_told(void **state)
{
    (void)state;
    struct trainer_leaving leaving;
    begin("status-leaving", 1, NULL);
    train(6);
    assert_ok(trainer_leave(a->trainer, &leaving));
    a->now_ms += 600001;
    assert_complains(take(), COMPLAINT_STALLED, "has not finished its first step");
    contribute(0); /* it waits for others, or for jobs: that is another matter */
    end();
}

static void a_trainer_that_stands_still_at_its_end_names_whom_it_waits_for(void **state)
{
    (void)state;
    begin("status-waiting", 3, NULL);
    played_greet(b, a);
    played_greet(c, a);
    train(1);
    contribute(1);
    contribute(2);
    isle_step(a, &(struct sync_event){.type = SYNC_EV_STORED, .fragment = 1, .version = 1, .owner = C});
    isle_step(a, &(struct sync_event){.type = SYNC_EV_STORED, .fragment = 2, .version = 1, .owner = C});
    /* c has said that it waits for nobody and that nobody has to wait for it. */
    struct event event;
    struct wire_heartbeat *beat = played_beat(c);
    for (uint32_t f = 1; f <= 2; f++)
        played_holds(beat, f, C, &(struct digest){{0}}); /* so its results count */
    played_say(c, A);
    isle_wait(isle_took_sync(a, SYNC_EV_HEARTBEAT, &event));
    a->now_ms += 3000;
    assert_silent(take(), COMPLAINT_WAITING); /* it trains */
    played_trainer_say(trainer, &(struct ipc_message){.type = IPC_SETTLED, .fragment = 3});
    struct trainer_leaving leaving;
    train(2); /* just now */
    assert_ok(trainer_leave(a->trainer, &leaving));
    a->now_ms += 2999;
    assert_silent(take(), COMPLAINT_WAITING);
    a->now_ms++;
    assert_silent(take(),
                  COMPLAINT_WAITING); /* its own contributions to the others are still to come: it hangs itself */
    a->now_ms += 60000;
    assert_complains(take(), COMPLAINT_STALLED, "has not finished a step for 1 min 3 s");
    for (uint32_t f = 0; f < ISLE_FRAGMENTS; f++)
        if (f != 1 && f != 2)
            isle_step(a, &(struct sync_event){.type = SYNC_EV_SETTLED, .fragment = f});
    assert_complains(take(), COMPLAINT_WAITING, "it waits for b");
    assert_null(strstr(complaint_of(take(), COMPLAINT_WAITING)->what, "b, c"));
    assert_silent(take(), COMPLAINT_STALLED);
    isle_step(a, &(struct sync_event){.type = SYNC_EV_STORED, .fragment = 1, .version = 1, .owner = B});
    isle_step(a, &(struct sync_event){.type = SYNC_EV_STORED, .fragment = 2, .version = 1, .owner = B});
    end();
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trainers_process_that_fails_or_does_not_run_is_told),
        cmocka_unit_test(a_script_that_ends_by_itself_is_told_and_not_started_again),
        cmocka_unit_test(one_that_fails_when_it_is_done_is_told_and_not_started_again),
        cmocka_unit_test(no_trainer_attached_and_one_that_stands_still_are_told),
        cmocka_unit_test(a_step_may_take_thrice_as_long_as_the_slowest_and_a_minute_at_least),
        cmocka_unit_test(a_loss_that_is_no_number_is_told_and_shown_as_none),
        cmocka_unit_test(a_trainer_that_sends_nan_is_told_until_it_sends_none),
        cmocka_unit_test(one_that_was_to_leave_and_hangs_is_told),
        cmocka_unit_test(a_trainer_that_stands_still_at_its_end_names_whom_it_waits_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
