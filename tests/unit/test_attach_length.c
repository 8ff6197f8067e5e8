/* SPDX-License-Identifier: Apache-2.0 */
/* libdiloco: a run that is made longer or shorter, and one that pauses: as the daemon says in the shared memory. */
#include "tests/lib/testlib.h"

#include <string.h>

#include "tests/lib/counterpart.h"

enum { LAST_SLICE = 5 };

static int at_slice; /* of waiting, at which the daemon changes something */
static uint64_t new_steps;

/* ---- a pause ---- */

static int go_on_later(int slice)
{
    assert_true(slice <= LAST_SLICE);
    if (slice == at_slice)
        atomic_store(&shm->paused, 0);
    return 0;
}

static void a_paused_run_stands_still_until_it_goes_on(void **state)
{
    (void)state;
    begin();
    assert_int_equal(train(1), DILOCO_OK);
    atomic_store(&shm->paused, 1);
    while_waiting = go_on_later;
    slices = 0;
    at_slice = LAST_SLICE;
    assert_int_equal(train(1), DILOCO_OK);
    assert_int_equal(slices, LAST_SLICE + 1);
    assert_int_equal(diloco_run_step(d), 2);
    assert_int_equal(train(1), DILOCO_OK);
    assert_int_equal(slices, LAST_SLICE + 1); /* and does not stand again */
    while_waiting = NULL;
    end();
}

/* The round that was open when the pause came closes. */
static int bring_it_and_go_on(int slice)
{
    if (slice == 2) {
        assert_int_equal(ipc_word(fragment), IPC_SNAPSHOT); /* what was due went out */
        fragment->due_step = UINT64_MAX;
        bring_anchor(1, 700, &(struct ipc_range){0, VALUES, IPC_RESET, 0}, 1);
    }
    if (slice == LAST_SLICE)
        assert_int_equal(ipc_word(fragment), IPC_FREE); /* and what came was taken in */
    return go_on_later(slice);
}

static void what_becomes_due_in_a_pause_is_moved(void **state)
{
    (void)state;
    make_conf = (struct ipc_shm){.overlap = 0, .mix = 0.25};
    begin();
    fragment->due_step = 1;
    atomic_store(&shm->paused, 1);
    while_waiting = bring_it_and_go_on;
    slices = 0;
    at_slice = LAST_SLICE;
    assert_int_equal(train(1), DILOCO_OK);
    while_waiting = NULL;
    assert_true(tensor[3] == 700);
    end();
    make_conf = (struct ipc_shm){.overlap = 1, .mix = 0.25};
}

static int end_it(int slice)
{
    return slice == 2;
}

static int end_soon(int slice)
{
    if (slice == 2)
        diloco_ending(d, 0);
    return 0;
}

/* SIGTERM, or its Python: whoever stands can be ended. */
static void who_stands_can_be_ended(void **state)
{
    (void)state;
    begin();
    atomic_store(&shm->paused, 1);
    while_waiting = end_it;
    slices = 0;
    assert_int_equal(train(1), DILOCO_INTERRUPTED);
    while_waiting = end_soon;
    slices = 0;
    assert_int_equal(train(1), DILOCO_STOP);
    while_waiting = NULL;
    end();
}

/* It has taken the run's last step, and only waits for the end. */
static void who_is_done_does_not_stand(void **state)
{
    (void)state;
    begin();
    atomic_store(&shm->steps, 1);
    atomic_store(&shm->paused, 1);
    slices = 0;
    assert_int_equal(train(1), DILOCO_STOP);
    assert_int_equal(slices, 0);
    end();
}

/* ---- the length ---- */

static void a_run_made_shorter_ends_with_the_step_that_is_under_way(void **state)
{
    (void)state;
    begin();
    assert_int_equal(diloco_run_steps(d), 1000000);
    for (int i = 0; i < 3; i++)
        assert_int_equal(train(0), DILOCO_OK);
    atomic_store(&shm->steps, 2);
    fragment->due_step = 4;
    assert_int_equal(train(0), DILOCO_STOP);
    assert_int_equal(diloco_run_step(d), 4);
    assert_int_equal(diloco_run_steps(d), 2);
    assert_int_equal(ipc_word(fragment), IPC_SNAPSHOT); /* what was trained counts, to its last token */
    assert_int_equal(fragment->snapshot_tokens, 40);
    assert_int_equal(train(0), DILOCO_STOP); /* the next one would not */
    assert_int_equal(diloco_run_step(d), 4);
    end();
}

/* Who is slower than others skips to where they are, but never beyond the end, nor back. */
static void nobody_skips_beyond_an_end_that_has_moved(void **state)
{
    (void)state;
    begin();
    shm->run_slack = 2;
    atomic_store(&shm->run_step, 50);
    atomic_store(&shm->steps, 20);
    assert_int_equal(train(0), DILOCO_STOP);
    assert_int_equal(diloco_run_step(d), 20);
    end();
    begin();
    for (int i = 0; i < 9; i++)
        assert_int_equal(train(0), DILOCO_OK);
    shm->run_slack = 2;
    atomic_store(&shm->run_step, 50);
    atomic_store(&shm->steps, 5);
    assert_int_equal(train(0), DILOCO_STOP);
    assert_int_equal(diloco_run_step(d), 10);
    end();
}

/* The last contribution is counted before that. */
static int make_it_longer(int slice)
{
    if (slice == 1)
        bring_anchor(1, 700, &(struct ipc_range){0, VALUES, IPC_MIX, 0}, 1);
    if (slice == at_slice)
        atomic_store(&shm->steps, new_steps);
    return slice > LAST_SLICE;
}

/* Its end is not waited for: it would wait for our own steps. */
static void whoever_is_done_when_a_run_is_made_longer_is_let_go(void **state)
{
    (void)state;
    struct ipc_message message;
    int fd;
    begin();
    atomic_store(&shm->steps, 2);
    assert_int_equal(train(0), DILOCO_OK);
    assert_int_equal(train(0), DILOCO_STOP);
    while_waiting = make_it_longer;
    slices = 0;
    at_slice = 3;
    new_steps = 9;
    assert_int_equal(diloco_finish(d), DILOCO_OPEN);
    while_waiting = NULL;
    assert_int_equal(slices, at_slice + 1);
    assert_non_null(strstr(diloco_error(d), "made longer meanwhile, to step 9"));
    do
        message = hear(&fd);
    while (message.type != IPC_FINISHED);
    assert_int_equal(message.report.step, 2); /* so the daemon knows that there is more to do */
    end();
}

/* A trainer that calls it a day before its run is over has chosen that itself. */
static void whoever_ends_early_waits_for_the_end(void **state)
{
    (void)state;
    begin();
    assert_int_equal(train(0), DILOCO_OK);
    while_waiting = make_it_longer;
    slices = 0;
    at_slice = 3;
    new_steps = 2000000;
    assert_int_equal(diloco_finish(d), DILOCO_INTERRUPTED); /* at the last slice */
    while_waiting = NULL;
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_paused_run_stands_still_until_it_goes_on),
        cmocka_unit_test(what_becomes_due_in_a_pause_is_moved),
        cmocka_unit_test(who_stands_can_be_ended),
        cmocka_unit_test(who_is_done_does_not_stand),
        cmocka_unit_test(a_run_made_shorter_ends_with_the_step_that_is_under_way),
        cmocka_unit_test(nobody_skips_beyond_an_end_that_has_moved),
        cmocka_unit_test(whoever_is_done_when_a_run_is_made_longer_is_let_go),
        cmocka_unit_test(whoever_ends_early_waits_for_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
