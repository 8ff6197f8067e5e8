/* SPDX-License-Identifier: Apache-2.0 */
/* libdiloco against a daemon played by the test: a trainer that has to end before the run does, as after a SIGTERM.
 * What is there goes out, nothing is waited for longer than is said, and it may come again. */
#include "tests/lib/testlib.h"

#include <fcntl.h>
#include <string.h>

#include "common/env.h"
#include "common/ipc.h"
#include "tests/lib/counterpart.h"
#include "worker/libdiloco/diloco.h"

enum { WAIT_MS = 1500, LONG_MS = 60000 };

/* Of what heard() took in last: what it said with IPC_SETTLED; -1: it did not. */
static int ends;

/* What it says from now on, but for reports: 1 << type. */
static unsigned heard(void)
{
    struct ipc_message message;
    int fd;
    unsigned types = 0;
    ends = -1;
    while (diloco_attached(d) && ipc_recv(connection, &message, &fd) == ERR_OK) {
        types |= message.type != IPC_REPORT ? 1u << message.type : 0;
        if (message.type == IPC_SETTLED)
            ends = (int)message.settled.ends;
    }
    return types;
}

static void listen_without_waiting(void)
{
    int flags = fcntl(connection, F_GETFL);
    assert_int_equal(fcntl(connection, F_SETFL, flags | O_NONBLOCK), 0);
}

static void what_is_there_goes_out_and_is_not_waited_for_long(void **state)
{
    (void)state;
    begin();
    listen_without_waiting();
    assert_int_equal(train(1), DILOCO_OK);
    diloco_ending(d, WAIT_MS);
    assert_int_equal(train(1), DILOCO_STOP);
    assert_int_equal(ipc_word(fragment), IPC_FREE); /* nothing was due */
    uint64_t begin_ms = env_mono_ms();
    assert_int_equal(diloco_finish(d), DILOCO_OPEN);
    uint64_t took_ms = env_mono_ms() - begin_ms;
    assert_in_range(took_ms, WAIT_MS - 100, LONG_MS / 2);
    assert_non_null(strstr(diloco_error(d), "of 1 fragments its last contributions to 0 are counted"));
    assert_int_equal(ipc_word(fragment), IPC_SNAPSHOT);
    assert_true(fragment->snapshot_final != 0);
    assert_int_equal(fragment->snapshot_tokens, 20);
    for (int i = 0; i < COUNT; i++)
        assert_true(ipc_area(shm, fragment)[i] == (float)i + 2 && tensor[i] == (float)i + 2);
    assert_int_equal(heard(), 1u << IPC_TAKEN); /* it has not finished */
    end();
}

static int count_it(int slice)
{
    static const struct ipc_range all = {0, VALUES, IPC_MIX, 0};
    if (slice == 1)
        bring_anchor(1, 7, &all, 1);
    return slice > 100;
}

static void what_is_counted_in_time_ends_the_waiting(void **state)
{
    (void)state;
    begin();
    listen_without_waiting();
    assert_int_equal(train(1), DILOCO_OK);
    diloco_ending(d, LONG_MS);
    while_waiting = count_it;
    slices = 0;
    uint64_t begin_ms = env_mono_ms();
    assert_int_equal(diloco_finish(d), DILOCO_OPEN);
    while_waiting = NULL;
    assert_true(env_mono_ms() - begin_ms < LONG_MS / 2);
    assert_non_null(strstr(diloco_error(d), "of 1 fragments its last contributions to 1 are counted"));
    for (int i = 0; i < COUNT; i++)
        assert_true(tensor[i] == 7);
    assert_int_equal(heard() & 1u << IPC_FINISHED, 0);
    assert_int_equal(ends, 1); /* rounds are not to wait for it, and the run's end is */
    end();
}

/* What comes after the run's last step is no work: it has contributed all. */
static void one_that_has_done_the_runs_steps_settles_as_any(void **state)
{
    (void)state;
    begin();
    listen_without_waiting();
    atomic_store(&shm->steps, 1);
    assert_int_equal(train(1), DILOCO_STOP);
    diloco_ending(d, LONG_MS);
    while_waiting = count_it;
    slices = 0;
    assert_int_equal(diloco_finish(d), DILOCO_OPEN); /* nobody said that the run is over */
    while_waiting = NULL;
    assert_int_equal(heard() & 1u << IPC_SETTLED, 1u << IPC_SETTLED);
    assert_int_equal(ends, 0);
    end();
}

static int ask_to_end(int slice)
{
    if (slice == 2)
        diloco_ending(d, WAIT_MS);
    return slice > 100;
}

static void a_step_that_waits_for_an_anchor_waits_no_longer(void **state)
{
    (void)state;
    make_conf.late_wait = 1;
    begin();
    fragment->due_step = 1;
    while_waiting = ask_to_end;
    slices = 0;
    assert_int_equal(train(1), DILOCO_OK);
    assert_int_equal(train(1), DILOCO_STOP); /* the anchor of the first is due */
    while_waiting = NULL;
    assert_int_equal(ipc_word(fragment), IPC_SNAPSHOT);
    make_conf.late_wait = 0;
    end();
}

static void an_order_to_leave_that_is_carried_out_is_one(void **state)
{
    (void)state;
    begin();
    listen_without_waiting();
    assert_int_equal(train(1), DILOCO_OK);
    atomic_store(&shm->leave, 1);
    diloco_ending(d, LONG_MS);
    while_waiting = count_it;
    slices = 0;
    assert_int_equal(train(0), DILOCO_STOP);
    assert_int_equal(diloco_finish(d), DILOCO_OPEN);
    while_waiting = NULL;
    assert_non_null(strstr(diloco_error(d), "this island leaves"));
    assert_int_equal(heard() & 1u << IPC_FINISHED, 1u << IPC_FINISHED);
    end();
    diloco_ending(NULL, 1);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_there_goes_out_and_is_not_waited_for_long),
        cmocka_unit_test(what_is_counted_in_time_ends_the_waiting),
        cmocka_unit_test(a_step_that_waits_for_an_anchor_waits_no_longer),
        cmocka_unit_test(one_that_has_done_the_runs_steps_settles_as_any),
        cmocka_unit_test(an_order_to_leave_that_is_carried_out_is_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
