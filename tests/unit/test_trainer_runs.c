/* SPDX-License-Identifier: Apache-2.0 */
/* trainer: whole runs of an island that is alone, with libdiloco in a thread as the trainer: undisturbed, with a daemon
 * that dies and is followed by another, and with a trainer that saves, ends and is followed by another. Alone, the mean
 * is its own work: what comes out is what was trained, and every token is counted once. */
#include "tests/lib/testlib.h"

#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>

#include "tests/lib/trainerstage.h"
#include "worker/libdiloco/diloco.h"

enum { RUN_STEPS = 40, STEP_TOKENS = 10, TENSOR_MAX = 2048, KEPT_MAX = 1 << 17, DEADLINE_MS = 10000, POLLED = 8 };

static struct stage stage;

/* A trainer's life, every step adding 1 to every value. `hold_at`: the step after which it waits for the test;
 * `save_at`: after which it keeps all that a checkpoint would, and ends; 0: none. */
struct life {
    float tensors[TRAINERRUN_TENSORS][TENSOR_MAX];
    const char *path;
    uint64_t hold_at, save_at, steps;
    char kept[KEPT_MAX];
    size_t kept_bytes;
    struct diloco_start start;
    pthread_t thread;
    uint64_t copy_at; /* a checkpoint is made after it, and training goes on */
    float copied_tensors[TRAINERRUN_TENSORS][TENSOR_MAX];
    char copied[KEPT_MAX];
    size_t copied_bytes;
    sem_t held, go;
    int result;
    char error[400];
};
static struct life life;

static uint64_t count_of(uint32_t tensor)
{
    return stage.run.plan->plan->tensors[tensor].count;
}

/* ---- the trainer's thread ---- */

static int train(struct diloco *d)
{
    int result = DILOCO_OK;
    while (result == DILOCO_OK) {
        for (uint32_t i = 0; i < TRAINERRUN_TENSORS; i++)
            for (uint64_t k = 0; k < count_of(i); k++)
                life.tensors[i][k] += 1;
        result = diloco_step(
            d, &(struct diloco_report){.size = sizeof(struct diloco_report), .tokens = STEP_TOKENS, .loss = 1});
        if (++life.steps == life.copy_at) {
            life.copied_bytes = diloco_keep(d, life.copied, KEPT_MAX);
            memcpy(life.copied_tensors, life.tensors, sizeof life.tensors);
        }
        if (life.steps == life.save_at) {
            assert_in_range(diloco_keep_bytes(d), 1, KEPT_MAX);
            life.kept_bytes = diloco_keep(d, life.kept, KEPT_MAX);
            return DILOCO_OK;
        }
        if (life.steps != life.hold_at)
            continue;
        sem_post(&life.held);
        sem_wait(&life.go);
    }
    if (result != DILOCO_STOP)
        return result;
    result = diloco_finish(d);
    life.kept_bytes = diloco_keep(d, life.kept, KEPT_MAX); /* for when it joins again */
    return result;
}

static int register_all(struct diloco *d)
{
    int result = DILOCO_OK;
    for (uint32_t i = 0; i < TRAINERRUN_TENSORS && result == DILOCO_OK; i++) {
        struct diloco_tensor tensor = {.size = sizeof(struct diloco_tensor),
                                       .name = trainerrun_tensors[i].name,
                                       .data = life.tensors[i],
                                       .dims = trainerrun_tensors[i].dims,
                                       .layer = trainerrun_tensors[i].layer};
        memcpy(tensor.shape, trainerrun_tensors[i].shape, sizeof tensor.shape);
        result = diloco_register(d, &tensor);
    }
    return result;
}

static void *live(void *unused)
{
    struct diloco *d;
    struct diloco_options options = {.size = sizeof(struct diloco_options),
                                     .socket_path = life.path,
                                     .trainer = "test",
                                     .kept = life.kept,
                                     .kept_bytes = life.kept_bytes};
    life.result = diloco_attach(&options, &d);
    if (life.result == DILOCO_OK)
        life.result = register_all(d);
    if (life.result == DILOCO_OK)
        life.result = diloco_begin(d, &life.start);
    if (life.result == DILOCO_OK)
        life.result = train(d);
    snprintf(life.error, sizeof life.error, "%s", diloco_error(d));
    diloco_detach(d);
    return unused;
}

/* ---- the daemon ---- */

/* One turn of its loop. */
static void serve(uint64_t deadline_ms)
{
    struct pollfd items[POLLED];
    size_t count = trainer_poll(stage.trainer, items, POLLED);
    poll(items, count, 5);
    stage_tick(&stage, 5);
    stage_forget(&stage);
    assert_true(env_mono_ms() < deadline_ms);
}

static void begin_life(const char *lines, uint64_t hold_at)
{
    stage_open(&stage, 1, lines, "");
    stage.run.spec.steps = RUN_STEPS;
    stage.peers_heard = true;
    stage.end.end = RUN_OVER;
    life = (struct life){.path = testlib_path(stage.conf.run_folder, "worker.sock"),
                         .hold_at = hold_at,
                         .start.size = sizeof(struct diloco_start)};
    for (uint32_t i = 0; i < TRAINERRUN_TENSORS; i++)
        for (uint64_t k = 0; k < count_of(i); k++)
            life.tensors[i][k] = (float)(100 * i);
    sem_init(&life.held, 0, 0);
    sem_init(&life.go, 0, 0);
    assert_int_equal(pthread_create(&life.thread, NULL, live, NULL), 0);
}

/* Serves it to its end, and looks at what came of it. */
static void end_life(uint64_t deadline_ms)
{
    while (trainer_phase(stage.trainer) != TRAINER_FINISHED || trainer_info(stage.trainer).attached)
        serve(deadline_ms);
    pthread_join(life.thread, NULL);
    if (life.result != DILOCO_OK)
        fail_msg("libdiloco: %d (%s)", life.result, life.error);
    assert_int_equal(life.steps, RUN_STEPS);
    assert_int_equal(trainer_info(stage.trainer).tokens, RUN_STEPS * STEP_TOKENS);
    for (uint32_t f = 0; f < TRAINERRUN_FRAGMENTS; f++)
        assert_int_equal(stage.counted_tokens[f], RUN_STEPS * STEP_TOKENS);
    for (uint32_t i = 0; i < TRAINERRUN_TENSORS; i++) {
        const struct plan_tensor *place = &stage.run.plan->plan->tensors[i];
        const float *anchor = replica_anchor(stage.run.replica, place->fragment) + place->offset;
        assert_memory_equal(life.tensors[i], anchor, place->count * sizeof *anchor);
    }
    stage_tick(&stage, 1);
    assert_int_equal(stage_memories(), 0);
}

static const char in_lockstep[] = "late = wait\nmix = 0\n";

/* Every anchor but the last comes a step late, and replaces what that step has trained: everything else is in it once.
 */
static void assert_values_in_lockstep(void)
{
    for (uint32_t i = 0; i < TRAINERRUN_TENSORS; i++) {
        uint32_t f = stage.run.plan->plan->tensors[i].fragment;
        uint64_t version = sync_own(stage.run.sync, f).version;
        assert_true(version > 5);
        assert_true(life.tensors[i][3] == (float)(100 * i + RUN_STEPS - (version - 1)));
    }
}

/* ---- cases ---- */

static void undisturbed_every_token_is_counted_once(void **state)
{
    (void)state;
    static const char *const lines[] = {in_lockstep, "late = wait\nmix = 0\noverlap = 3\n", "mix = 0.5\n",
                                        "late = wait\noverlap = 6\n"};
    for (size_t l = 0; l < sizeof lines / sizeof lines[0]; l++) {
        uint64_t deadline_ms = env_mono_ms() + DEADLINE_MS;
        begin_life(lines[l], 0);
        end_life(deadline_ms);
        if (l == 0)
            assert_values_in_lockstep();
        stage_close(&stage);
    }
}

/* The daemon dies while an answer of this type is under way (0: after step 15, while nothing is), and another comes. */
static void live_through_a_restart(enum event_type held)
{
    uint64_t deadline_ms = env_mono_ms() + DEADLINE_MS;
    begin_life(in_lockstep, held == 0 ? 15 : 0);
    stage.held = held != 0 ? 1u << held : 0;
    while (held != 0 ? stage.waiting_count == 0 : sem_trywait(&life.held) != 0)
        serve(deadline_ms);
    stage_restart(&stage);
    sem_post(&life.go);
    end_life(deadline_ms);
    assert_values_in_lockstep();
    stage_close(&stage);
}

static void a_daemon_that_dies_between_two_rounds_costs_nothing(void **state)
{
    (void)state;
    live_through_a_restart(0);
}

static void a_daemon_that_dies_while_it_encodes_costs_nothing(void **state)
{
    (void)state;
    live_through_a_restart(EVENT_ENCODED);
}

static void a_daemon_that_dies_while_it_writes_an_anchor_costs_nothing(void **state)
{
    (void)state;
    live_through_a_restart(EVENT_FILL);
}

/* ---- a trainer that saves and ends, and one that goes on from there ---- */

/* Serves it until it has ended by itself. */
static void serve_life(uint64_t deadline_ms)
{
    while (pthread_tryjoin_np(life.thread, NULL) != 0)
        serve(deadline_ms);
    if (life.result != DILOCO_OK)
        fail_msg("libdiloco: %d (%s)", life.result, life.error);
    for (int i = 0; i < 3; i++)
        serve(deadline_ms);
}

static void live_on(uint64_t save_at)
{
    life.save_at = save_at;
    assert_int_equal(pthread_create(&life.thread, NULL, live, NULL), 0);
}

/* From after step `at`; `held`: answers of this type do not come any more before that. */
static void live_twice(const char *lines, uint64_t at, enum event_type held, bool daemon_too)
{
    uint64_t deadline_ms = env_mono_ms() + DEADLINE_MS;
    begin_life(lines, 0);
    life.save_at = at;
    stage.held = held != 0 ? 1u << held : 0;
    serve_life(deadline_ms);
    assert_int_equal(life.steps, at);
    assert_int_equal(trainer_info(stage.trainer).tokens, at * STEP_TOKENS);
    if (daemon_too)
        stage_restart(&stage);
    else
        stage_answer(&stage);
    live_on(0);
    end_life(deadline_ms);
    assert_int_equal(life.start.step, at);
}

static const char merging[] = "late = merge\nmix = 0.5\n";

static void a_trainer_that_is_started_again_goes_on_with_what_it_kept(void **state)
{
    (void)state;
    for (int daemon_too = 0; daemon_too < 2; daemon_too++)
        for (uint64_t at = 5; at < 25; at += 3) {
            live_twice(in_lockstep, at, 0, daemon_too != 0);
            assert_values_in_lockstep();
            stage_close(&stage);
        }
}

/* Its contribution is on its way when it ends. A daemon that ends, too, has it made again. */
static void what_was_on_its_way_is_counted_once(void **state)
{
    (void)state;
    static const char *const lines[] = {merging, "late = merge\nmix = 0.5\noverlap = 6\n",
                                        "late = merge\nmix = 0\noverlap = 6\neager = yes\n"};
    for (size_t l = 0; l < sizeof lines / sizeof lines[0]; l++)
        for (int daemon_too = 0; daemon_too < 2; daemon_too++) {
            live_twice(lines[l], 23, EVENT_ENCODED, daemon_too != 0);
            stage_close(&stage);
        }
}

/* Nothing was counted for long: the anchors stand at version 0, and all work is in the trainer's tensors. */
static void work_of_a_time_without_rounds_is_all_there(void **state)
{
    (void)state;
    uint64_t deadline_ms = env_mono_ms() + DEADLINE_MS;
    begin_life(merging, 0);
    life.save_at = 31;
    stage.held = 1u << EVENT_ENCODED;
    serve_life(deadline_ms);
    stage_restart(&stage);
    stage.held = 1u << EVENT_ENCODED;
    live_on(0);
    while (trainer_phase(stage.trainer) != TRAINER_TRAINING)
        serve(deadline_ms);
    stage_answer(&stage);
    end_life(deadline_ms);
    assert_int_equal(life.start.step, 31);
    stage_close(&stage);
}

/* It goes on from what was kept while a contribution was on its way, which was counted before it died. Of a fragment
 * that went out after the checkpoint, the step is trained and counted twice, and what came before it may be lost. */
static void what_was_counted_after_a_checkpoint_is_counted_once(void **state)
{
    (void)state;
    for (int daemon_too = 0; daemon_too < 2; daemon_too++)
        for (uint64_t at = 5; at < 25; at++) {
            uint64_t deadline_ms = env_mono_ms() + DEADLINE_MS;
            begin_life(in_lockstep, 0);
            life.copy_at = at;
            life.save_at = at + 1;
            serve_life(deadline_ms);
            memcpy(life.kept, life.copied, sizeof life.kept);
            memcpy(life.tensors, life.copied_tensors, sizeof life.tensors);
            life.kept_bytes = life.copied_bytes;
            life.steps = at;
            if (daemon_too)
                stage_restart(&stage);
            live_on(0);
            while (trainer_phase(stage.trainer) != TRAINER_FINISHED || trainer_info(stage.trainer).attached)
                serve(deadline_ms);
            pthread_join(life.thread, NULL);
            assert_int_equal(life.result, DILOCO_OK);
            assert_in_range(trainer_info(stage.trainer).tokens_counted, (RUN_STEPS - 2) * STEP_TOKENS,
                            (RUN_STEPS + 1) * STEP_TOKENS);
            stage_close(&stage);
        }
}

/* After a crash: results have counted more than the checkpoint holds, so it goes on from the anchor. */
static void a_checkpoint_that_results_have_counted_beyond_is_not_gone_on_from(void **state)
{
    (void)state;
    uint64_t deadline_ms = env_mono_ms() + DEADLINE_MS;
    static char kept[KEPT_MAX];
    begin_life(in_lockstep, 0);
    life.save_at = 9;
    serve_life(deadline_ms);
    memcpy(kept, life.kept, sizeof kept);
    live_on(29);
    serve_life(deadline_ms);
    memcpy(life.kept, kept, sizeof kept); /* all since is lost with the machine */
    for (uint32_t i = 0; i < TRAINERRUN_TENSORS; i++)
        for (uint64_t k = 0; k < count_of(i); k++)
            life.tensors[i][k] = -1e6f;
    stage_restart(&stage);
    live_on(0);
    while (trainer_phase(stage.trainer) != TRAINER_FINISHED || trainer_info(stage.trainer).attached)
        serve(deadline_ms);
    pthread_join(life.thread, NULL);
    assert_int_equal(life.result, DILOCO_OK);
    for (uint32_t i = 0; i < TRAINERRUN_TENSORS; i++)
        assert_true(life.tensors[i][3] > 100 * (float)i); /* nothing of the old values */
    for (uint32_t f = 0; f < TRAINERRUN_FRAGMENTS; f++)
        assert_in_range(stage.counted_tokens[f], 1, life.steps * STEP_TOKENS);
    stage_close(&stage);
}

static void what_is_damaged_or_of_another_run_is_refused(void **state)
{
    (void)state;
    uint64_t deadline_ms = env_mono_ms() + DEADLINE_MS;
    static const size_t flips[] = {0, 8, 12, 30, 100, 5000};
    begin_life(in_lockstep, 0);
    life.save_at = 15;
    serve_life(deadline_ms);
    for (size_t i = 0; i <= sizeof flips / sizeof flips[0]; i++) {
        size_t bytes = life.kept_bytes;
        if (i < sizeof flips / sizeof flips[0])
            life.kept[flips[i]] ^= 1;
        else
            life.kept_bytes -= 1;
        live_on(0);
        while (pthread_tryjoin_np(life.thread, NULL) != 0)
            serve(deadline_ms);
        assert_int_equal(life.result, DILOCO_ERROR);
        assert_non_null(strstr(life.error, "options.kept"));
        life.kept_bytes = bytes;
        if (i < sizeof flips / sizeof flips[0])
            life.kept[flips[i]] ^= 1;
    }
    live_on(0);
    end_life(deadline_ms);
    stage_close(&stage);
}

/* ---- leaving ---- */

/* It trains on until each fragment's next contribution is due, and contributes what it then has; what it trains of a
 * fragment after that goes out when it has joined again. */
static void one_that_leaves_contributes_where_it_is_due_and_keeps_the_rest(void **state)
{
    (void)state;
    uint64_t deadline_ms = env_mono_ms() + DEADLINE_MS;
    struct trainer_leaving leaving;
    begin_life(merging, 9);
    while (sem_trywait(&life.held) != 0)
        serve(deadline_ms);
    for (int i = 0; i < 5; i++)
        serve(deadline_ms);
    assert_int_equal(trainer_info(stage.trainer).step, 9);
    assert_ok(trainer_leave(stage.trainer, &leaving));
    assert_int_equal(leaving.steps, 5); /* fragment 0 is due after step 12, 1 after 14, 2 after 10 */
    sem_post(&life.go);
    while (pthread_tryjoin_np(life.thread, NULL) != 0)
        serve(deadline_ms);
    assert_int_equal(life.result, DILOCO_OPEN);
    assert_int_equal(life.steps, 14);
    assert_int_equal(stage.counted_tokens[0], 12 * STEP_TOKENS);
    assert_int_equal(stage.counted_tokens[1], 14 * STEP_TOKENS);
    assert_int_equal(stage.counted_tokens[2], 10 * STEP_TOKENS);
    serve(deadline_ms);
    life.hold_at = 0;
    live_on(0);
    end_life(deadline_ms);
    stage_close(&stage);
}

static void one_that_leaves_at_the_end_of_the_run_does_not_train_on(void **state)
{
    (void)state;
    uint64_t deadline_ms = env_mono_ms() + DEADLINE_MS;
    struct trainer_leaving leaving;
    begin_life(merging, RUN_STEPS - 1);
    while (sem_trywait(&life.held) != 0)
        serve(deadline_ms);
    for (int i = 0; i < 5; i++)
        serve(deadline_ms);
    assert_ok(trainer_leave(stage.trainer, &leaving));
    assert_int_equal(leaving.steps, 1);
    sem_post(&life.go);
    while (pthread_tryjoin_np(life.thread, NULL) != 0)
        serve(deadline_ms);
    assert_int_equal(life.steps, RUN_STEPS);
    stage_close(&stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(undisturbed_every_token_is_counted_once),
        cmocka_unit_test(a_daemon_that_dies_between_two_rounds_costs_nothing),
        cmocka_unit_test(a_daemon_that_dies_while_it_encodes_costs_nothing),
        cmocka_unit_test(a_daemon_that_dies_while_it_writes_an_anchor_costs_nothing),
        cmocka_unit_test(a_trainer_that_is_started_again_goes_on_with_what_it_kept),
        cmocka_unit_test(what_was_on_its_way_is_counted_once),
        cmocka_unit_test(work_of_a_time_without_rounds_is_all_there),
        cmocka_unit_test(what_was_counted_after_a_checkpoint_is_counted_once),
        cmocka_unit_test(a_checkpoint_that_results_have_counted_beyond_is_not_gone_on_from),
        cmocka_unit_test(one_that_leaves_contributes_where_it_is_due_and_keeps_the_rest),
        cmocka_unit_test(one_that_leaves_at_the_end_of_the_run_does_not_train_on),
        cmocka_unit_test(what_is_damaged_or_of_another_run_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
