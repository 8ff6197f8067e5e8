/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon of a folder is started again when it dies, and only then: with real daemons, supervisors and trainers. */
#include "tests/lib/testlib.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/fsio.h"
#include "common/mem.h"
#include "tests/lib/homes.h"
#include "tests/lib/proc.h"
#include "tests/lib/village.h"

enum { PATIENCE_S = 60, LOOK_MS = 20 };

static const char *home, *text;

/* ---- what runs ---- */

static bool lives(int pid)
{
    char path[64], state = 'Z';
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    bool read = fscanf(file, "%*d (%*[^)]) %c", &state) == 1;
    fclose(file);
    return read && state != 'Z';
}

/* Until the condition holds, or the test fails. */
#define WAIT_UNTIL(condition)                                                \
    do {                                                                     \
        int looks = PATIENCE_S * 1000 / LOOK_MS;                             \
        for (; looks > 0 && !(condition); looks--)                           \
            proc_sleep_ms(LOOK_MS);                                          \
        if (looks == 0)                                                      \
            fail_msg("it never comes that %s:\n%s", #condition, log_text()); \
    } while (0)

static const char *log_text(void)
{
    HOMES_RUN(home, "logs");
    return homes_out;
}

static bool log_says(const char *part)
{
    return strstr(log_text(), part) != NULL;
}

/* Empties the log, so that what it says is of what comes. */
static void begin_log(void)
{
    assert_int_equal(truncate(testlib_path(home, "dilocod.log"), 0), 0);
}

static void start(void)
{
    GOOD(home, "start");
    assert_true(homes_daemon(home) > 0 && homes_supervisor(home) > 0);
}

static int kill_daemon(void)
{
    int pid = homes_daemon(home);
    assert_true(pid > 1);
    assert_int_equal(kill(pid, SIGKILL), 0);
    return pid;
}

/* Nor does anything come that was about to. */
static void assert_nothing_runs(void)
{
    for (int i = 0; i < 2; i++) {
        assert_int_equal(homes_daemon(home), 0);
        assert_int_equal(homes_supervisor(home), 0);
        proc_sleep_ms(i == 0 ? 250 : 0);
    }
}

static bool status_says(const char *part)
{
    HOMES_RUN(home, "status");
    return strstr(homes_out, part) != NULL;
}

static void spoil(const char *file, const char *with)
{
    assert_ok(fsio_replace(testlib_path(home, file), with, strlen(with), 0644));
}

/* ---- a daemon that dies ---- */

/* What init starts has a supervisor as well. */
static int make_island(void **state)
{
    (void)state;
    GOOD(home, "init", "--name", "paris", "--data", text, "--run", village_spec(10), "--listen", homes_somewhere());
    assert_true(homes_supervisor(home) > 0);
    GOOD(home, "stop");
    return 0;
}

static void a_killed_daemon_is_back_and_goes_on_without_a_hand(void **state)
{
    (void)state;
    start();
    assert_true(homes_wait_versions(home, 3, PATIENCE_S));
    long long versions = homes_number(home, NULL, "versions"), trainer = homes_number(home, "trainer", "pid");
    assert_false(status_says("started again"));
    int killed = kill_daemon();
    WAIT_UNTIL(homes_daemon(home) > 0 && homes_daemon(home) != killed);
    assert_true(homes_wait_versions(home, versions + 3, PATIENCE_S));
    assert_int_equal(homes_number(home, "trainer", "pid"), trainer);
    assert_true(log_says("dilocod was killed by signal 9 (Killed); it is started again in 1 s"));
    assert_true(status_says("the daemon was killed by signal 9 (Killed) and was started again at "));
    assert_true(status_says("degraded   no"));
    GOOD(home, "stop");
    assert_told("dilocod has stopped (pid ");
    assert_nothing_runs();
}

/* One that dies as soon as it is there is waited for longer and longer; and people are told. */
static void one_that_dies_again_and_again_is_started_after_pauses_that_grow(void **state)
{
    (void)state;
    begin_log();
    start();
    for (int i = 0; i < 3; i++) {
        int killed = kill_daemon();
        WAIT_UNTIL(homes_daemon(home) > 0 && homes_daemon(home) != killed);
    }
    WAIT_UNTIL(homes_number(home, NULL, "versions") >= 0);
    assert_true(log_says("started again in 1 s"));
    assert_true(log_says("started again in 2 s"));
    assert_true(log_says("started again in 4 s"));
    assert_true(status_says("(3 times within an hour)"));
    assert_int_equal(HOMES_RUN(home, "status", "--check"), 1);
    assert_told("the daemon was started again 3 times within an hour; the last one was killed by signal 9");
    GOOD(home, "stop");
    assert_nothing_runs();
}

/* ---- one that is asked to end, or cannot start ---- */

static void who_asks_the_daemon_itself_to_end_is_not_undone(void **state)
{
    (void)state;
    static const int signals[] = {SIGTERM, SIGINT};
    for (int i = 0; i < 2; i++) {
        start();
        assert_int_equal(kill(homes_daemon(home), signals[i]), 0);
        WAIT_UNTIL(homes_supervisor(home) == 0);
        assert_nothing_runs();
        start();
        assert_int_equal(kill(homes_supervisor(home), signals[i]), 0); /* as a machine that is shut down does */
        WAIT_UNTIL(homes_supervisor(home) == 0);
        assert_nothing_runs();
    }
}

static void a_wrong_configuration_is_not_tried_again(void **state)
{
    (void)state;
    char *good;
    size_t bytes;
    assert_ok(fsio_read(testlib_path(home, "run.ini"), 1 << 16, &good, &bytes));
    start();
    begin_log();
    spoil("run.ini", "[run]\nname = x\nsteps = many\n");
    kill_daemon();
    WAIT_UNTIL(homes_supervisor(home) == 0);
    assert_true(log_says("run.ini:3: [run] steps"));
    assert_true(log_says("dilocod ended with status 2, for the reason above, so it is not started again"));
    assert_nothing_runs();
    /* Once. (A trainer that begins just then reads the file too, and says the same of itself.) */
    assert_null(strstr(strstr(log_text(), "dilocod ended with") + 1, "dilocod ended with"));
    assert_int_equal(HOMES_RUN(home, "start"), 1);
    assert_told("dilocod has ended");
    assert_nothing_runs();
    GOOD(home, "stop"); /* the trainer */
    spoil("run.ini", good);
    mem_free(good);
}

/* ---- stop, and start, in between ---- */

static void a_stop_is_never_undone(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        start();
        kill_daemon();
        if (i > 0)
            WAIT_UNTIL(homes_daemon(home) == 0);
        proc_sleep_ms(i * 240); /* from at once to the end of the pause, and a little more */
        GOOD(home, "stop");
        assert_nothing_runs();
    }
    proc_sleep_ms(1000); /* nor was a pause slept through */
    assert_nothing_runs();
}

static void a_reset_is_not_made_where_the_next_daemon_is_to_come(void **state)
{
    (void)state;
    start();
    kill_daemon();
    WAIT_UNTIL(homes_daemon(home) == 0);
    assert_int_equal(HOMES_RUN(home, "reset"), 1);
    assert_told("stop it first");
    GOOD(home, "stop");
    assert_told("(pid "); /* of the trainer that it has left */
    GOOD(home, "stop");
    assert_told("dilocod does not run\n");
}

static void a_start_waits_for_no_pause(void **state)
{
    (void)state;
    begin_log();
    start();
    for (int i = 0; i < 3; i++) {
        int killed = kill_daemon(), supervisor = homes_supervisor(home);
        WAIT_UNTIL(homes_daemon(home) == 0 && log_says("is started again in"));
        GOOD(home, "start");
        assert_told("dilocod runs: island paris (pid ");
        assert_true(homes_daemon(home) > 0 && homes_daemon(home) != killed && homes_supervisor(home) != supervisor);
        begin_log();
    }
    GOOD(home, "start");
    assert_told("dilocod runs already: island paris (pid ");
    GOOD(home, "stop");
    assert_nothing_runs();
}

/* ---- a supervisor that dies, and a folder that is gone ---- */

static void a_daemon_outlives_its_supervisor_and_says_so(void **state)
{
    (void)state;
    start();
    int pid = homes_daemon(home), supervisor = homes_supervisor(home);
    assert_int_equal(kill(supervisor, SIGKILL), 0);
    WAIT_UNTIL(homes_supervisor(home) == 0 && !lives(supervisor));
    long long versions = homes_number(home, NULL, "versions");
    assert_true(homes_wait_versions(home, versions + 3, PATIENCE_S));
    assert_int_equal(homes_daemon(home), pid);
    WAIT_UNTIL(HOMES_RUN(home, "status", "--check") == 1);
    assert_told("nobody starts the daemon again if it dies");
    GOOD(home, "start"); /* changes nothing */
    assert_told("dilocod runs already");
    assert_int_equal(homes_daemon(home), pid);
    GOOD(home, "stop");
    assert_nothing_runs();
    start();
    WAIT_UNTIL(status_says("degraded   no"));
    GOOD(home, "stop");
}

/* One that was started by hand has none, and needs none. */
static void a_daemon_in_the_foreground_has_no_supervisor(void **state)
{
    (void)state;
    char program[400];
    const char *build = getenv("BUILD");
    snprintf(program, sizeof program, "%s/dilocod", build != NULL ? build : "build/gcc");
    const char *const argv[] = {program, "--home", home, NULL};
    int pid = proc_start(argv, testlib_path(home, "dilocod.log"));
    WAIT_UNTIL(homes_number(home, NULL, "versions") >= 0);
    assert_int_equal(homes_supervisor(home), 0);
    WAIT_UNTIL(status_says("degraded   no"));
    GOOD(home, "stop");
    assert_int_equal(proc_wait(pid, PATIENCE_S), 0);
    assert_nothing_runs();
}

/* That its trainer has begun, too: a daemon that does not answer yet has -1 versions, and one that answers has those of
 * before. */
static void wait_until_it_trains(void)
{
    WAIT_UNTIL(strcmp(homes_trainer(home), "training") == 0);
    assert_true(homes_wait_versions(home, homes_number(home, NULL, "versions") + 1, PATIENCE_S));
}

/* The state alone first: a daemon that is started then would begin with nothing. Its trainer, which is killed and
 * begins again, makes no folder there either: one that is put back would come to lie inside it. */
static void a_folder_that_is_removed_ends_both(void **state)
{
    (void)state;
    char away[300], kept[300];
    snprintf(away, sizeof away, "%s", testlib_path(home, "away"));
    snprintf(kept, sizeof kept, "%s", testlib_path(home, "state"));
    start();
    wait_until_it_trains();
    int trainer = (int)homes_number(home, "trainer", "pid");
    assert_int_equal(rename(kept, away), 0);
    assert_int_equal(kill(trainer, SIGKILL), 0);
    WAIT_UNTIL(log_says("cannot create folder") || homes_supervisor(home) == 0); /* or it had no time to begin */
    WAIT_UNTIL(homes_supervisor(home) == 0);
    assert_true(log_says("was removed or replaced, so what is saved is lost: this daemon ends"));
    assert_true(log_says("is not started again"));
    assert_nothing_runs();
    assert_int_equal(access(kept, F_OK), -1);
    assert_int_equal(rename(away, kept), 0);
    start();
    wait_until_it_trains();
    int pid = homes_daemon(home), supervisor = homes_supervisor(home);
    trainer = (int)homes_number(home, "trainer", "pid");
    snprintf(away, sizeof away, "rm -rf %s", home);
    for (int i = 0; i < 100 && access(home, F_OK) == 0; i++)
        (void)!system(away);
    for (int i = 0; i < PATIENCE_S * 50 && (lives(pid) || lives(supervisor)); i++)
        proc_sleep_ms(LOOK_MS);
    assert_false(lives(pid) || lives(supervisor) || lives(trainer));
    assert_int_equal(access(testlib_path(home, "dilocod.pid"), F_OK), -1); /* nor has another begun there */
    assert_int_equal(access(testlib_path(home, "supervisor.pid"), F_OK), -1);
}

int main(void)
{
    assert_ok(digest_init());
    if (!village_open("again"))
        return 1;
    home = village_home("paris");
    text = village_text();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_daemon_is_back_and_goes_on_without_a_hand),
        cmocka_unit_test(one_that_dies_again_and_again_is_started_after_pauses_that_grow),
        cmocka_unit_test(who_asks_the_daemon_itself_to_end_is_not_undone),
        cmocka_unit_test(a_wrong_configuration_is_not_tried_again),
        cmocka_unit_test(a_stop_is_never_undone),
        cmocka_unit_test(a_reset_is_not_made_where_the_next_daemon_is_to_come),
        cmocka_unit_test(a_start_waits_for_no_pause),
        cmocka_unit_test(a_daemon_outlives_its_supervisor_and_says_so),
        cmocka_unit_test(a_daemon_in_the_foreground_has_no_supervisor),
        cmocka_unit_test(a_folder_that_is_removed_ends_both),
    };
    return cmocka_run_group_tests(tests, make_island, NULL);
}
