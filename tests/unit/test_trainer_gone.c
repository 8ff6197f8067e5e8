/* SPDX-License-Identifier: Apache-2.0 */
/* trainer: one whose process ends is gone, though a process that it has forked still holds its socket: a loader of data
 * outlives who started it. The test is the engine above (tests/lib/trainerstage.h); the trainer is a process. */
#include "tests/lib/testlib.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/trainerstage.h"

static struct stage stage;

/* A process that connects and forks another one, which says who it is on a pipe and waits; it ends when `end` is
 * closed. */
static int trainer_begin(int said[2], int end[2])
{
    int pid = fork();
    if (pid != 0)
        return pid;
    close(end[1]);
    int fd = stage_dial(&stage);
    int loader = fork();
    if (loader == 0) {
        int own = getpid();
        (void)!write(said[1], &own, sizeof own);
        for (;;)
            pause();
    }
    char byte;
    (void)!read(end[0], &byte, 1);
    close(fd);
    _exit(0);
}

static void a_trainer_is_gone_when_its_process_is_whoever_holds_its_socket(void **state)
{
    (void)state;
    int said[2], ends[2], loader, status;
    assert_int_equal(pipe(said), 0);
    assert_int_equal(pipe(ends), 0);
    int pid = trainer_begin(said, ends);
    assert_int_equal(read(said[0], &loader, sizeof loader), sizeof loader);
    stage_turn(&stage);
    assert_posted(&stage, "");
    close(ends[1]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(kill(loader, 0), 0); /* the socket is still open there */
    stage_turn(&stage);
    assert_posted(&stage, "announce");
    stage_train(&stage, true); /* the next one comes in, and stays */
    stage_tick(&stage, 1000);
    stage_hear_nothing(&stage);
    assert_int_equal(kill(loader, SIGKILL), 0);
    close(said[0]);
    close(said[1]);
    close(ends[0]);
}

static int begin(void **state)
{
    (void)state;
    stage_open(&stage, TRAINERRUN_ISLANDS, "", "");
    return 0;
}

static int end(void **state)
{
    (void)state;
    stage_close(&stage);
    return 0;
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_trainer_is_gone_when_its_process_is_whoever_holds_its_socket, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
