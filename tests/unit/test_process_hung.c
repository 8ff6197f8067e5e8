/* SPDX-License-Identifier: Apache-2.0 */
/* process: a trainer that does not end when it is asked to is ended, after the time that the configuration states and
 * no earlier; at once if that is wanted. Time is the test's. */
#include "tests/lib/testlib.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/trainer/process.h"
#include "tests/lib/script.h"

enum { DEADLINE_MS = 10000, STOP_MS = 7000, BACKOFF_MS = 1000 };

static struct dconf conf;
static const char *folder;
static uint64_t now_ms;

static int begin(void **state)
{
    (void)state;
    folder = testlib_folder("hung");
    script_open(folder);
    conf = script_conf();
    conf.stop_ms = STOP_MS;
    now_ms = 1000000;
    return 0;
}

static int end(void **state)
{
    (void)state;
    script_close();
    return 0;
}

static struct process *make_started(const char *body)
{
    struct process *process;
    conf.worker_folder = "";
    conf.worker_program = script_make("diloco-worker", body);
    assert_ok(process_new(&conf, &process));
    assert_ok(process_start(process, now_ms));
    script_wait_ready();
    return process;
}

/* Whether it ends within a moment. */
static bool ends(struct process *process, int wait_ms)
{
    struct pollfd item;
    if (process_poll(process, &item, 1) == 1)
        poll(&item, 1, wait_ms);
    process_run(process, now_ms);
    return !process_running(process);
}

static void tick(struct process *process, uint64_t ms)
{
    now_ms += ms;
    process_run(process, now_ms);
    process_tick(process, now_ms);
}

static void one_that_hangs_is_killed_after_the_stated_time(void **state)
{
    (void)state;
    for (int stopping = 0; stopping < 2; stopping++) {
        struct process *process = make_started(script_stays);
        tick(process, 60000); /* nobody has asked it yet */
        tick(process, 60000);
        assert_false(process_info(process).ending);
        process_leave(process);
        tick(process, 60000); /* it has its work counted: that may take long */
        assert_false(ends(process, 50));
        assert_false(process_info(process).ending);
        if (stopping)
            process_stop(process);
        else
            assert_true(process_end(process));
        assert_true(process_info(process).ending);
        tick(process, STOP_MS - 1);
        assert_true(process_end(process)); /* asked again, it has no more time */
        assert_false(ends(process, 100));
        tick(process, 1);
        assert_true(ends(process, DEADLINE_MS));
        assert_int_equal(process_info(process).state, PROCESS_STOPPED);
        assert_false(process_info(process).ending);
        process_free(process);
    }
}

static void one_that_ends_in_time_is_not_killed(void **state)
{
    (void)state;
    struct process *process = make_started("trap ': >\"${0%/*}/saved\"; exit 0' TERM\necho ready >\"$5\"\n"
                                           "i=0\nwhile [ $((i += 1)) -lt 3000 ]; do sleep 0.01; done");
    process_leave(process);
    assert_true(process_end(process));
    tick(process, STOP_MS - 1);
    assert_true(ends(process, DEADLINE_MS));
    assert_int_equal(access(testlib_path(folder, "saved"), F_OK), 0);
    /* Nor is the one after it. */
    conf.worker_program = script_make("diloco-worker", script_stays);
    assert_ok(process_start(process, now_ms));
    script_wait_ready();
    tick(process, STOP_MS);
    tick(process, STOP_MS);
    assert_false(ends(process, 100));
    process_kill(process);
    assert_true(ends(process, DEADLINE_MS));
    process_free(process);
}

static void it_is_killed_at_once_where_that_is_wanted(void **state)
{
    (void)state;
    struct process *process = make_started(script_stays);
    process_leave(process);
    process_kill(process);
    assert_true(ends(process, DEADLINE_MS));
    assert_int_equal(process_info(process).state, PROCESS_STOPPED);
    process_kill(process); /* there is none */
    process_free(process);
}

/* The next daemon took it over: it is not its child. */
static void one_that_was_taken_over_is_killed_too(void **state)
{
    (void)state;
    struct process *process = make_started(script_stays);
    int pid = process_info(process).pid;
    process_free(process);
    assert_ok(process_new(&conf, &process));
    assert_int_equal(process_info(process).pid, pid);
    process_run(process, now_ms);
    process_leave(process);
    assert_true(process_end(process));
    tick(process, STOP_MS);
    assert_true(ends(process, DEADLINE_MS));
    process_free(process);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

#define in_a_folder(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        in_a_folder(one_that_hangs_is_killed_after_the_stated_time),
        in_a_folder(one_that_ends_in_time_is_not_killed),
        in_a_folder(it_is_killed_at_once_where_that_is_wanted),
        in_a_folder(one_that_was_taken_over_is_killed_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
