/* SPDX-License-Identifier: Apache-2.0 */
/* trainer: what it is said to do, for every combination of what attaches and what was started that can be, and the
 * commands that lead there. Heartbeats and status both show this word. */
#include "daemon/trainer/process.h"
#include "tests/lib/testlib.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/script.h"
#include "tests/lib/trainerstage.h"

enum { DEADLINE_MS = 10000, POLLED = 8, BACKOFF_MS = 1000, STOP_MS = 5000 };

static struct stage stage;
static const char fails[] = "exit 1";

static const char *program(const char *body)
{
    return script_make("diloco-worker", body);
}

static void open_with(const char *program_path)
{
    stage_open(&stage, TRAINERRUN_ISLANDS, "", program_path);
    stage.conf.data = script_ready_path();
}

static int begin(void **state)
{
    (void)state;
    script_open(testlib_folder("phase"));
    return 0;
}

static int end(void **state)
{
    (void)state;
    script_close();
    return 0;
}

static void join_and_wait(void)
{
    assert_ok(trainer_join(stage.trainer, stage.now_ms));
    script_wait_ready();
}

/* Takes in what comes until the process has ended. */
static void wait_end(void)
{
    while (process_running(stage.trainer->process)) {
        struct pollfd items[POLLED];
        size_t count = trainer_poll(stage.trainer, items, POLLED);
        assert_true(poll(items, count, DEADLINE_MS) > 0);
        stage_turn(&stage);
    }
}

static enum err leave_now(void)
{
    bool killed;
    return trainer_leave_now(stage.trainer, &killed);
}

static void kill_process(void)
{
    if (!process_running(stage.trainer->process))
        return;
    stage_hang_up(&stage, false); /* so that its own number is shown */
    stage_turn(&stage);
    assert_int_equal(kill((int)trainer_info(stage.trainer).pid, SIGKILL), 0);
    wait_end();
}

static void close_all(void)
{
    kill_process();
    stage_close(&stage);
}

static void assert_phase(enum trainer_phase want)
{
    assert_string_equal(trainer_phase_name(trainer_phase(stage.trainer)), trainer_phase_name(want));
}

/* ---- all combinations ---- */

/* What is there at the socket. */
enum attached {
    NOBODY,
    REGISTERING,
    WELCOMED,
    TRAINS,
    SETTLED, /* it has said of a fragment that nothing more comes */
    LEAVES,  /* it was asked to */
    DONE,    /* it has said that all is counted */
    LEFT,    /* the same, because it was asked to leave */
    GONE_WHEN_DONE,
    GONE_WHEN_LEFT,
    ATTACHED_STATES
};

/* What became of the process; one that leaves was told to without waiting for its work. */
enum started { NONE, STOPPED, RUNNING, LEAVING, WAITING, FINISHED, STARTED_STATES };

static void attach(enum attached to)
{
    if (to == NOBODY)
        return;
    if (to == REGISTERING) {
        stage_connect(&stage);
        stage_turn(&stage);
        return;
    }
    if (to == WELCOMED) {
        stage_connect(&stage);
        stage_register(&stage);
        return;
    }
    stage_train(&stage, !sync_known(stage.run.sync, 0));
    if (to == SETTLED)
        stage_say(&stage, IPC_SETTLED, 1);
    if (to == LEAVES || to == LEFT || to == GONE_WHEN_LEFT)
        assert_ok(trainer_leave(stage.trainer, &(struct trainer_leaving){0}));
    if (to >= DONE)
        stage_say(&stage, IPC_FINISHED, 0);
    if (to >= GONE_WHEN_DONE) {
        stage_hang_up(&stage, false);
        stage_turn(&stage);
    }
}

/* Before anyone attaches. */
static void prepare(enum started to)
{
    open_with(to == NONE ? "" : program(to == WAITING ? fails : script_stays));
    if (to == RUNNING || to == LEAVING || to == FINISHED)
        join_and_wait();
    if (to == FINISHED) {
        attach(GONE_WHEN_DONE);
        kill_process();
    }
    if (to == WAITING) {
        assert_ok(trainer_join(stage.trainer, stage.now_ms));
        wait_end();
    }
}

/* TRAINER_PHASES: cannot be, because who asks a trainer to leave stops its process, too. */
#define no TRAINER_PHASES
static const enum trainer_phase phases[ATTACHED_STATES][STARTED_STATES] = {
    [NOBODY] = {[NONE] = TRAINER_NONE,
                [STOPPED] = TRAINER_STOPPED,
                [RUNNING] = TRAINER_STARTING,
                [LEAVING] = TRAINER_LEAVING,
                [WAITING] = TRAINER_RESTARTING,
                [FINISHED] = TRAINER_FINISHED},
    /* Someone else's trainer may attach whatever became of ours. */
    [REGISTERING] = {[NONE] = TRAINER_STARTING,
                     [STOPPED] = TRAINER_STARTING,
                     [RUNNING] = TRAINER_STARTING,
                     [LEAVING] = TRAINER_LEAVING,
                     [WAITING] = TRAINER_STARTING,
                     [FINISHED] = TRAINER_STARTING},
    [WELCOMED] = {[NONE] = TRAINER_STARTING,
                  [STOPPED] = TRAINER_STARTING,
                  [RUNNING] = TRAINER_STARTING,
                  [LEAVING] = TRAINER_LEAVING,
                  [WAITING] = TRAINER_STARTING,
                  [FINISHED] = TRAINER_STARTING},
    [TRAINS] = {[NONE] = TRAINER_TRAINING,
                [STOPPED] = TRAINER_TRAINING,
                [RUNNING] = TRAINER_TRAINING,
                [LEAVING] = TRAINER_LEAVING,
                [WAITING] = TRAINER_TRAINING,
                [FINISHED] = TRAINER_TRAINING},
    [SETTLED] = {[NONE] = TRAINER_FINISHING,
                 [STOPPED] = TRAINER_FINISHING,
                 [RUNNING] = TRAINER_FINISHING,
                 [LEAVING] = TRAINER_LEAVING,
                 [WAITING] = TRAINER_FINISHING,
                 [FINISHED] = TRAINER_FINISHING},
    [LEAVES] = {[NONE] = TRAINER_FINISHING,
                [STOPPED] = TRAINER_FINISHING,
                [RUNNING] = no,
                [LEAVING] = TRAINER_FINISHING,
                [WAITING] = no,
                [FINISHED] = TRAINER_FINISHING},
    [DONE] = {[NONE] = TRAINER_FINISHED,
              [STOPPED] = TRAINER_FINISHED,
              [RUNNING] = TRAINER_FINISHED,
              [LEAVING] = TRAINER_FINISHED,
              [WAITING] = TRAINER_FINISHED,
              [FINISHED] = TRAINER_FINISHED},
    [LEFT] = {[NONE] = TRAINER_LEAVING,
              [STOPPED] = TRAINER_LEAVING,
              [RUNNING] = no,
              [LEAVING] = TRAINER_LEAVING,
              [WAITING] = no,
              [FINISHED] = TRAINER_LEAVING},
    [GONE_WHEN_DONE] = {[NONE] = TRAINER_FINISHED,
                        [STOPPED] = TRAINER_FINISHED,
                        [RUNNING] = TRAINER_FINISHED,
                        [LEAVING] = TRAINER_FINISHED,
                        [WAITING] = TRAINER_FINISHED,
                        [FINISHED] = TRAINER_FINISHED},
    [GONE_WHEN_LEFT] = {[NONE] = TRAINER_NONE,
                        [STOPPED] = TRAINER_STOPPED,
                        [RUNNING] = no,
                        [LEAVING] = TRAINER_LEAVING,
                        [WAITING] = no,
                        [FINISHED] = TRAINER_FINISHED},
};
#undef no

static void every_combination_has_one_phase(void **state)
{
    (void)state;
    for (int how = NOBODY; how < ATTACHED_STATES; how++)
        for (int process = NONE; process < STARTED_STATES; process++) {
            enum trainer_phase want = phases[how][process];
            if (want == TRAINER_PHASES)
                continue;
            prepare((enum started)process);
            attach((enum attached)how);
            if (process == LEAVING && how != LEAVES && how != LEFT && how != GONE_WHEN_LEFT)
                assert_ok(leave_now());
            if (trainer_phase(stage.trainer) != want)
                fail_msg("attached %d, process %d (%s): %s, expected %s", how, process,
                         trainer_info(stage.trainer).process_name, trainer_phase_name(trainer_phase(stage.trainer)),
                         trainer_phase_name(want));
            close_all();
        }
}

static void every_phase_has_a_name_of_its_own(void **state)
{
    (void)state;
    for (int a = 0; a < TRAINER_PHASES; a++)
        for (int b = 0; b < a; b++)
            assert_string_not_equal(trainer_phase_name((enum trainer_phase)a),
                                    trainer_phase_name((enum trainer_phase)b));
    assert_string_equal(trainer_phase_name(TRAINER_PHASES), "unknown");
    for (int i = 0; i < TRAINER_PHASES; i++) /* a word, which programs compare and a column holds */
        assert_null(strpbrk(trainer_phase_name((enum trainer_phase)i), " \t"));
}

/* ---- from phase to phase ---- */

static void a_life_that_runs_to_the_end_of_the_run(void **state)
{
    (void)state;
    open_with(program(script_sleeps));
    stage.conf.autostart = true;
    assert_phase(TRAINER_STOPPED);
    assert_ok(process_autostart(stage.trainer->process, stage.now_ms));
    assert_phase(TRAINER_STARTING);
    script_wait_ready();
    int pid = (int)trainer_info(stage.trainer).pid;
    assert_true(pid > 1 && pid != getpid());
    assert_string_equal(trainer_info(stage.trainer).process_name, "running");
    stage_train(&stage, true);
    assert_int_equal(trainer_info(stage.trainer).pid, getpid()); /* whoever is attached is the trainer */
    assert_phase(TRAINER_TRAINING);
    for (uint32_t f = 0; f < TRAINERRUN_FRAGMENTS; f++)
        stage_say(&stage, IPC_SETTLED, f);
    assert_posted(&stage, "settled 0, settled 1, settled 2");
    assert_phase(TRAINER_FINISHING);
    stage_say(&stage, IPC_FINISHED, 0);
    assert_posted(&stage, "finished, announce");
    assert_phase(TRAINER_FINISHED);
    stage_hang_up(&stage, false);
    stage_turn(&stage);
    assert_posted(&stage, "down 0, down 1, down 2, announce");
    assert_int_equal(trainer_info(stage.trainer).pid, pid);
    assert_int_equal(kill(pid, SIGKILL), 0);
    wait_end();
    assert_phase(TRAINER_FINISHED);
    assert_string_equal(trainer_info(stage.trainer).process_name, "finished");
    stage_tick(&stage, 100 * BACKOFF_MS);
    assert_phase(TRAINER_FINISHED); /* not started again */
    /* Unless someone wants it: then that was another. */
    join_and_wait();
    assert_phase(TRAINER_STARTING);
    close_all();
}

/* All it has said counts before its end does. */
static void the_last_word_of_one_that_ends_at_once_is_heard(void **state)
{
    (void)state;
    open_with(program(script_sleeps));
    join_and_wait();
    int pid = (int)trainer_info(stage.trainer).pid;
    stage_train(&stage, true);
    struct ipc_message last = {.type = IPC_FINISHED};
    assert_ok(ipc_send(stage.socket, &last, -1)); /* and the daemon looks only when it has ended */
    stage_hang_up(&stage, false);
    assert_int_equal(kill(pid, SIGKILL), 0);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    stage_turn(&stage);
    assert_posted(&stage, "finished, announce, down 0, down 1, down 2, announce");
    assert_false(process_running(stage.trainer->process));
    assert_string_equal(trainer_info(stage.trainer).process_name, "finished");
    close_all();
}

static void one_that_fails_is_started_again(void **state)
{
    (void)state;
    open_with(program(fails));
    assert_ok(trainer_join(stage.trainer, stage.now_ms));
    wait_end();
    struct trainer_info info = trainer_info(stage.trainer);
    assert_phase(TRAINER_RESTARTING);
    assert_int_equal(info.failures, 1);
    assert_non_null(strstr(info.process_note, "ended with status 1"));
    assert_int_equal(info.pid, 0);
    stage_tick(&stage, BACKOFF_MS - 1);
    assert_phase(TRAINER_RESTARTING);
    stage_tick(&stage, 1);
    wait_end();
    assert_int_equal(trainer_info(stage.trainer).failures, 2);
    close_all();
}

/* Killed while it trained: that is a failure though it was attached. */
static void one_that_dies_while_it_trains_is_started_again(void **state)
{
    (void)state;
    open_with(program(script_sleeps));
    join_and_wait();
    stage_train(&stage, true);
    kill_process();
    assert_posted(&stage, "down 0, down 1, down 2, announce");
    assert_phase(TRAINER_RESTARTING);
    stage_tick(&stage, BACKOFF_MS);
    script_wait_ready();
    assert_phase(TRAINER_STARTING);
    close_all();
}

/* ---- leaving ---- */

static void one_that_trains_is_asked_and_has_its_work_counted(void **state)
{
    (void)state;
    open_with(program(script_sleeps));
    join_and_wait();
    stage_train(&stage, true);
    for (int twice = 0; twice < 2; twice++) {
        assert_ok(trainer_leave(stage.trainer, &(struct trainer_leaving){0}));
        stage_hear(&stage, IPC_LEAVE);
        assert_int_equal(atomic_load(&stage.shm->leave), 1);
        assert_phase(TRAINER_FINISHING);
        assert_true(trainer_info(stage.trainer).left);
    }
    assert_string_equal(trainer_info(stage.trainer).process_name, "leaving");
    stage_turn(&stage);
    assert_true(process_running(stage.trainer->process)); /* nobody ends it */
    stage_say(&stage, IPC_FINISHED, 0);
    assert_posted(&stage, "finished, announce");
    assert_phase(TRAINER_LEAVING);
    kill_process();
    assert_phase(TRAINER_STOPPED);
    stage_tick(&stage, 100 * BACKOFF_MS);
    assert_phase(TRAINER_STOPPED);
    assert_fails(ERR_STATE, "no trainer is running", trainer_leave(stage.trainer, &(struct trainer_leaving){0}));
    close_all();
}

static void one_that_has_contributed_nothing_is_ended(void **state)
{
    (void)state;
    for (int attached = 0; attached < 2; attached++) {
        open_with(program(script_sleeps));
        join_and_wait();
        attach(attached != 0 ? WELCOMED : NOBODY);
        assert_ok(trainer_leave(stage.trainer, &(struct trainer_leaving){0}));
        assert_phase(TRAINER_LEAVING);
        wait_end();
        stage_hang_up(&stage, false);
        stage_turn(&stage);
        assert_phase(TRAINER_STOPPED);
        close_all();
    }
}

static void leaving_now_does_not_wait(void **state)
{
    (void)state;
    open_with(program(script_sleeps));
    assert_fails(ERR_STATE, "no trainer that this daemon started", leave_now());
    join_and_wait();
    stage_train(&stage, true);
    assert_ok(leave_now());
    wait_end();
    stage_hear_nothing(&stage); /* it was not asked to finish */
    stage_hang_up(&stage, false);
    stage_turn(&stage);
    assert_phase(TRAINER_STOPPED);
    /* One that it did not start it does not end. */
    stage_train(&stage, false);
    assert_fails(ERR_STATE, "no trainer that this daemon started", leave_now());
    assert_phase(TRAINER_TRAINING);
    close_all();
}

static void one_that_hangs_is_killed_when_leaving_now_is_said_twice_or_in_time(void **state)
{
    (void)state;
    for (int twice = 0; twice < 2; twice++) {
        bool killed;
        open_with(program(script_stays));
        stage.conf.stop_ms = STOP_MS;
        join_and_wait();
        stage_train(&stage, true);
        assert_ok(trainer_leave_now(stage.trainer, &killed));
        assert_false(killed);
        assert_phase(TRAINER_LEAVING);
        stage_tick(&stage, STOP_MS - 1);
        assert_true(process_running(stage.trainer->process));
        if (twice != 0) {
            assert_ok(trainer_leave_now(stage.trainer, &killed));
            assert_true(killed);
        } else {
            stage_tick(&stage, 1);
        }
        wait_end();
        stage_hang_up(&stage, false);
        stage_turn(&stage);
        assert_phase(TRAINER_STOPPED);
        close_all();
    }
}

static void leaving_ends_the_waiting_for_the_next_start(void **state)
{
    (void)state;
    prepare(WAITING);
    assert_ok(trainer_leave(stage.trainer, &(struct trainer_leaving){0}));
    assert_phase(TRAINER_STOPPED);
    stage_tick(&stage, 100 * BACKOFF_MS);
    assert_phase(TRAINER_STOPPED);
    close_all();
}

/* Ours is turned away again and again because somebody else's trains: both are meant. */
static void leaving_means_the_one_that_trains_too(void **state)
{
    (void)state;
    prepare(WAITING);
    stage_train(&stage, true);
    assert_ok(trainer_leave(stage.trainer, &(struct trainer_leaving){0}));
    stage_hear(&stage, IPC_LEAVE);
    assert_phase(TRAINER_FINISHING);
    assert_string_equal(trainer_info(stage.trainer).process_name, "stopped");
    close_all();
}

static void somebody_elses_trainer_is_asked_once_it_trains(void **state)
{
    (void)state;
    open_with("");
    assert_fails(ERR_STATE, "no trainer is running", trainer_leave(stage.trainer, &(struct trainer_leaving){0}));
    attach(WELCOMED);
    assert_fails(ERR_STATE, "does not train yet",
                 trainer_leave(stage.trainer, &(struct trainer_leaving){0})); /* nobody could be asked */
    stage_hang_up(&stage, false);
    stage_turn(&stage);
    attach(DONE);
    assert_ok(trainer_leave(stage.trainer, &(struct trainer_leaving){0})); /* it goes anyway */
    close_all();
}

/* ---- the daemon's own start and end ---- */

static void what_still_runs_is_taken_over_with_the_daemon_that_started_it(void **state)
{
    (void)state;
    open_with(program(script_sleeps));
    join_and_wait();
    int pid = (int)trainer_info(stage.trainer).pid;
    stage_restart(&stage);
    assert_true(process_running(stage.trainer->process));
    assert_phase(TRAINER_STARTING); /* it attaches again by itself */
    assert_int_equal(trainer_info(stage.trainer).pid, pid);
    assert_fails(ERR_STATE, "running already", trainer_join(stage.trainer, stage.now_ms));
    close_all();
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void a_daemon_that_stops_takes_it_along(void **state)
{
    (void)state;
    open_with(program(script_sleeps));
    join_and_wait();
    process_stop(stage.trainer->process);
    wait_end();
    assert_phase(TRAINER_STOPPED);
    stage_tick(&stage, 100 * BACKOFF_MS);
    assert_phase(TRAINER_STOPPED);
    close_all();
}

#define in_a_folder(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        in_a_folder(every_combination_has_one_phase),
        in_a_folder(every_phase_has_a_name_of_its_own),
        in_a_folder(a_life_that_runs_to_the_end_of_the_run),
        in_a_folder(the_last_word_of_one_that_ends_at_once_is_heard),
        in_a_folder(one_that_fails_is_started_again),
        in_a_folder(one_that_dies_while_it_trains_is_started_again),
        in_a_folder(one_that_trains_is_asked_and_has_its_work_counted),
        in_a_folder(one_that_has_contributed_nothing_is_ended),
        in_a_folder(leaving_now_does_not_wait),
        in_a_folder(one_that_hangs_is_killed_when_leaving_now_is_said_twice_or_in_time),
        in_a_folder(leaving_ends_the_waiting_for_the_next_start),
        in_a_folder(leaving_means_the_one_that_trains_too),
        in_a_folder(somebody_elses_trainer_is_asked_once_it_trains),
        in_a_folder(what_still_runs_is_taken_over_with_the_daemon_that_started_it),
        in_a_folder(a_daemon_that_stops_takes_it_along),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
