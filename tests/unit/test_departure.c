/* SPDX-License-Identifier: Apache-2.0 */
/* trainer: what is left behind when a trainer goes, wherever it has come to: the core hears of it once for each
 * fragment that it knew the trainer in, and memory that jobs are at outlives it until they have answered. */
#include "tests/lib/testlib.h"

#include <math.h>
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include "daemon/jobs.h"
#include "daemon/trainer/attachment.h"
#include "tests/lib/shares.h"
#include "tests/lib/trainerstage.h"

enum { POLLED = 8 };

static struct stage stage;

static int begin(void **state)
{
    (void)state;
    stage_open(&stage, TRAINERRUN_ISLANDS, "", "");
    return 0;
}

static int end(void **state)
{
    (void)state;
    jobs_free(stage_jobs);
    stage_jobs = NULL;
    stage_close(&stage);
    return 0;
}

static void leave_without_a_word(bool keep_memory)
{
    stage_forget(&stage);
    stage_hang_up(&stage, keep_memory);
    stage_turn(&stage);
}

/* Nothing more is said of it, its memory is gone, and the place is free for the next: one that has to bring initial
 * tensors or not. */
static void assert_forgotten(bool initial)
{
    for (int i = 0; i < 3; i++)
        stage_tick(&stage, 1);
    assert_posted(&stage, "");
    assert_false(trainer_info(stage.trainer).attached);
    assert_int_equal(stage_memories(), stage.memfd >= 0 ? 1 : 0); /* the test's own */
    stage_train(&stage, initial);
    stage_take_snapshot(&stage, 1, 8, 5, 1);
    assert_posted(&stage, "snapshot 1");
}

/* Welcomed to bring its tensors. */
static void be_welcomed(void)
{
    stage.peers_heard = true;
    stage_connect(&stage);
    stage_register(&stage);
    stage_tick(&stage, 1);
    assert_true(stage_hear(&stage, IPC_WELCOME).welcome.need_initial);
}

static void while_it_registers(void **state)
{
    (void)state;
    stage_connect(&stage);
    stage_hello(&stage, 0, 0, 0, -1);
    leave_without_a_word(false);
    assert_posted(&stage, "announce");
    assert_forgotten(true);
}

static void while_its_tensors_are_judged(void **state)
{
    (void)state;
    stage.held = 1 << EVENT_REGISTERED;
    stage.peers_heard = true;
    stage_connect(&stage);
    stage_register(&stage);
    leave_without_a_word(false);
    assert_posted(&stage, "announce");
    stage_answer(&stage); /* they fit; nobody is there to hear it */
    assert_posted(&stage, "");
    assert_forgotten(true);
}

static void while_it_waits_for_other_islands(void **state)
{
    (void)state;
    stage_connect(&stage);
    stage_register(&stage);
    leave_without_a_word(false);
    assert_posted(&stage, "announce");
    stage_tick(&stage, 10000);
    assert_int_equal(stage_memories(), 0);
    assert_forgotten(true);
}

static void with_the_memory_that_it_was_to_fill(void **state)
{
    (void)state;
    be_welcomed();
    leave_without_a_word(false);
    assert_posted(&stage, "announce");
    assert_forgotten(true);
}

static void stand_before_a_closed_door(void)
{
    struct pollfd items[POLLED];
    stage_connect(&stage);
    stage_tick(&stage, 1);
    stage_tick(&stage, 1);
    assert_int_equal(trainer_poll(stage.trainer, items, POLLED), 0);
    assert_false(trainer_take(stage.trainer, stage.now_ms));
    assert_false(trainer_info(stage.trainer).attached);
    assert_posted(&stage, "");
}

static void while_its_initial_tensors_are_taken_over(void **state)
{
    (void)state;
    be_welcomed();
    ipc_base(stage.shm, stage_fragment(&stage, 2))[5] = 7;
    stage.held = 1 << EVENT_START;
    stage_say(&stage, IPC_INITIAL, 0);
    assert_posted(&stage, "registered, initial 0, initial 1, initial 2");
    leave_without_a_word(false);
    assert_posted(&stage, "announce");
    assert_int_equal(stage_memories(), 1);
    assert_true(attachment_initialising(stage.trainer->attachment));
    stand_before_a_closed_door(); /* one whose jobs are at work cannot be followed by another yet */
    assert_int_equal(stage_memories(), 1);
    stage_answer(&stage); /* what it brought is the run's beginning all the same */
    assert_false(attachment_initialising(stage.trainer->attachment));
    assert_true(replica_anchor(stage.run.replica, 2)[5] == 7);
    assert_true(trainer_info(stage.trainer).attached); /* the next one */
    assert_int_equal(stage_memories(), 0);
    stage_hang_up(&stage, false);
    stage_turn(&stage);
    stage_forget(&stage);
    assert_forgotten(false);
}

static void while_fragments_are_brought_to_it(void **state)
{
    (void)state;
    be_welcomed();
    stage_say(&stage, IPC_INITIAL, 0);
    stage.held = 1 << EVENT_START;
    stage_tick(&stage, 1);
    stage_forget(&stage);
    leave_without_a_word(false);
    assert_posted(&stage, "announce"); /* the core knew it in no fragment */
    stage_tick(&stage, 1);
    assert_int_equal(stage_memories(), 1);
    stage_answer(&stage); /* the copies end in memory that is still there */
    assert_posted(&stage, "");
    for (uint32_t f = 0; f < TRAINERRUN_FRAGMENTS; f++)
        assert_int_equal(sync_state(stage.run.sync, f), SYNC_LISTENING);
    assert_forgotten(false);
}

static void when_some_fragments_are_there(void **state)
{
    (void)state;
    trainerrun_restore(&stage.run, 0, 3);
    trainerrun_restore(&stage.run, 2, 4);
    stage_connect(&stage);
    stage_register(&stage);
    stage_hear(&stage, IPC_WELCOME);
    stage_tick(&stage, 1);
    assert_posted(&stage, "registered, start 0, start 2, up 0@3, up 2@4");
    leave_without_a_word(false);
    assert_posted(&stage, "down 0, down 2, announce");
    trainerrun_restore(&stage.run, 1, 3);
    assert_forgotten(false);
}

static void just_before_it_is_told_to_go(void **state)
{
    (void)state;
    be_welcomed();
    stage_say(&stage, IPC_INITIAL, 0);
    stage.held = 1 << EVENT_READY;
    stage_tick(&stage, 1);
    stage_tick(&stage, 1);
    leave_without_a_word(false);
    assert_posted(&stage, "down 0, down 1, down 2, announce");
    stage_answer(&stage);
    assert_posted(&stage, "");
    assert_int_equal(trainer_phase(stage.trainer), TRAINER_NONE);
    assert_forgotten(false);
}

static void while_it_trains(void **state)
{
    (void)state;
    stage_train(&stage, true);
    leave_without_a_word(false);
    assert_posted(&stage, "down 0, down 1, down 2, announce");
    assert_forgotten(false);
}

/* A snapshot is being encoded, and an anchor written for another fragment. */
static void begin_two_jobs(void)
{
    stage_train(&stage, true);
    stage.held = 1 << EVENT_ENCODED | 1 << EVENT_FILL;
    stage_take_snapshot(&stage, 0, 6, 60, 3);
    stage_results(&stage, 2, &(struct bitset){{0}});
    assert_posted(&stage, "snapshot 0, fill 2");
}

static void while_jobs_are_at_its_memory(void **state)
{
    (void)state;
    begin_two_jobs();
    float *area = trainer_area(stage.trainer, 2);
    leave_without_a_word(true);
    assert_posted(&stage, "down 0, down 1, down 2, announce");
    for (int i = 0; i < 3; i++)
        stage_tick(&stage, 1);
    assert_true(stage.snapshot[0].theta[9] == 3); /* they read and write as if nothing had happened */
    assert_ptr_equal(trainer_area(stage.trainer, 2), area);
    area[9] = 4;
    assert_true(ipc_area(stage.shm, stage_fragment(&stage, 2))[9] == 4);
    struct event encoded = stage.waiting[0];
    assert_int_equal(encoded.type, EVENT_ENCODED);
    trainer_encoded(stage.trainer, 0, ERR_OK); /* one is done, the other not yet */
    stand_before_a_closed_door();
    assert_int_equal(stage_memories(), 2);
    assert_true(area[9] == 4);
    stage.waiting[0] = stage.waiting[1];
    stage.waiting_count = 1;
    stage_answer(&stage);
    stage_tick(&stage, 1);
    assert_int_equal(stage_memories(), 1);                /* the test's own */
    assert_int_equal(stage_word(&stage, 2), IPC_FILLING); /* it is not moved for nobody */
    assert_true(trainer_info(stage.trainer).attached);
    assert_posted(&stage, "");
}

/* Either job alone holds the memory. */
static void while_one_job_is_at_its_memory(void **state)
{
    (void)state;
    static const enum event_type jobs[] = {EVENT_ENCODED, EVENT_FILL};
    for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++) {
        stage_train(&stage, true);
        stage.held = 1u << jobs[i];
        stage_take_snapshot(&stage, 0, 6, 60, 3);
        if (jobs[i] == EVENT_FILL)
            stage_results(&stage, 0, &(struct bitset){{0}});
        assert_int_equal(stage.waiting_count, 1);
        leave_without_a_word(false);
        assert_posted(&stage, "down 0, down 1, down 2, announce");
        stand_before_a_closed_door();
        assert_int_equal(stage_memories(), 1);
        stage_answer(&stage);
        stage_tick(&stage, 1);
        assert_int_equal(stage_memories(), 0);
        assert_true(trainer_info(stage.trainer).attached);
        stage_close(&stage);
        stage_open(&stage, TRAINERRUN_ISLANDS, "", "");
    }
}

static void a_job_that_fails_for_one_that_is_gone_is_no_harm(void **state)
{
    (void)state;
    begin_two_jobs();
    leave_without_a_word(false);
    stage.waiting[0].err = ERR_NONFINITE;
    stage_answer(&stage);
    assert_posted(&stage, "down 0, down 1, down 2, announce");
    assert_forgotten(false);
}

static void orders_for_one_that_is_gone_do_nothing(void **state)
{
    (void)state;
    struct replica_snapshot snapshot;
    const uint64_t all = plan_shards(stage.run.plan->plan, 0);
    begin_two_jobs(); /* the memory is still there */
    uint64_t due = stage_fragment(&stage, 0)->due_step;
    leave_without_a_word(true);
    stage_forget(&stage);
    stage_put_word(&stage, 1, IPC_ANCHOR);
    assert_false(trainer_snapshot(stage.trainer, 0, &snapshot));
    trainer_counted(stage.trainer, 0, 1, all, 0);
    trainer_release(stage.trainer, 0);
    trainer_publish(stage.trainer, 0);
    trainer_withdraw(stage.trainer, 1);
    trainer_run_step(stage.trainer, 99);
    attachment_go(stage.trainer->attachment, 5);
    stage_turn(&stage);
    assert_posted(&stage, "");
    assert_int_equal(stage_word(&stage, 0), IPC_SNAPSHOT);
    assert_int_equal(stage_word(&stage, 1), IPC_ANCHOR);
    assert_int_equal(stage_fragment(&stage, 0)->due_step, due);
    assert_int_equal(stage_fragment(&stage, 0)->counted_tokens[0], 0);
    assert_int_equal(atomic_load(&stage.shm->run_step), 0);
    stage_answer(&stage);
    stage_tick(&stage, 1);
    /* And now it is gone, too. */
    assert_false(trainer_snapshot(stage.trainer, 0, &snapshot));
    trainer_counted(stage.trainer, 0, 1, all, 0);
    trainer_release(stage.trainer, 0);
    trainer_publish(stage.trainer, 0);
    trainer_withdraw(stage.trainer, 0);
    trainer_run_step(stage.trainer, 99);
    attachment_go(stage.trainer->attachment, 5);
    stage_turn(&stage);
    stage_hang_up(&stage, false);
    stage_results(&stage, 0, &(struct bitset){{0}}); /* its last contribution is out: the next comes after that round */
    stage_forget(&stage);
    assert_forgotten(false);
}

/* What a result counts is the work of a trainer that is not there any more. */
static void the_next_trainer_is_credited_with_nothing(void **state)
{
    (void)state;
    struct bitset all = shares_owners(&stage.run.parts, 0);
    stage_train(&stage, true);
    stage_take_snapshot(&stage, 0, 6, 60, 3);
    leave_without_a_word(false);
    stage_connect(&stage);
    stage_register(&stage); /* another, to which the fragment was not brought yet */
    stage_hear(&stage, IPC_WELCOME);
    stage_fragment(&stage, 0)->snapshot_tokens = 5;
    trainer_counted(stage.trainer, 0, 1, plan_shards(stage.run.plan->plan, 0), 0);
    for (uint32_t s = 0; s < PLAN_SHARDS_MAX; s++)
        assert_int_equal(stage_fragment(&stage, 0)->counted_tokens[s], 0);
    stage_results(&stage, 0, &all);
    stage_tick(&stage, 1);
    stage_tick(&stage, 1);
    stage_hear(&stage, IPC_GO);
    stage_results(&stage, 0, &(struct bitset){{0}});
    assert_true(stage_fragment(&stage, 0)->ranges_count > 0);
    for (uint32_t r = 0; r < stage_fragment(&stage, 0)->ranges_count; r++)
        assert_int_equal(stage_fragment(&stage, 0)->ranges[r].mode, IPC_SHIFT);
}

static void one_that_is_refused_while_it_trains_goes_likewise(void **state)
{
    (void)state;
    begin_two_jobs();
    stage_say(&stage, IPC_WELCOME, 0);
    assert_posted(&stage, "down 0, down 1, down 2, announce");
    stage_hear_refusal(&stage, "does not send");
    stand_before_a_closed_door();
    stage_answer(&stage);
    stage_tick(&stage, 1);
    stage_hang_up(&stage, false);
    stage_turn(&stage);
    stage_results(&stage, 0, &(struct bitset){{0}});
    stage_forget(&stage);
    assert_forgotten(false);
}

static void open_with_jobs(void)
{
    stage_close(&stage);
    assert_ok(jobs_new(&(struct jobs_conf){.threads = 1}, &stage_jobs));
    stage_open(&stage, TRAINERRUN_ISLANDS, "", "");
    stage_train(&stage, true);
    leave_without_a_word(false);
    stage_tick(&stage, 1);
}

static void its_memory_is_given_back_by_a_job(void **state)
{
    (void)state;
    open_with_jobs();
    bool by_a_job = false;
    while (jobs_pending(stage_jobs) > 0)
        if (jobs_take_back(stage_jobs))
            by_a_job |= jobs_taken(stage_jobs) == JOBS_STATES;
        else
            sched_yield();
    assert_true(by_a_job);
    stage_forget(&stage);
    assert_forgotten(false);
}

static void its_memory_goes_with_a_daemon_that_ends_before_the_job(void **state)
{
    (void)state;
    open_with_jobs();
    jobs_free(stage_jobs); /* as the engine does, first; begun or not */
    stage_jobs = NULL;
    stage_close(&stage);
    assert_int_equal(stage_memories(), 0);
    stage_open(&stage, TRAINERRUN_ISLANDS, "", "");
}

#define on_stage(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        on_stage(while_it_registers),
        on_stage(while_its_tensors_are_judged),
        on_stage(while_it_waits_for_other_islands),
        on_stage(with_the_memory_that_it_was_to_fill),
        on_stage(while_its_initial_tensors_are_taken_over),
        on_stage(while_fragments_are_brought_to_it),
        on_stage(when_some_fragments_are_there),
        on_stage(just_before_it_is_told_to_go),
        on_stage(while_it_trains),
        on_stage(while_jobs_are_at_its_memory),
        on_stage(while_one_job_is_at_its_memory),
        on_stage(a_job_that_fails_for_one_that_is_gone_is_no_harm),
        on_stage(orders_for_one_that_is_gone_do_nothing),
        on_stage(the_next_trainer_is_credited_with_nothing),
        on_stage(one_that_is_refused_while_it_trains_goes_likewise),
        on_stage(its_memory_is_given_back_by_a_job),
        on_stage(its_memory_goes_with_a_daemon_that_ends_before_the_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
