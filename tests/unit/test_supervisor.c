/* SPDX-License-Identifier: Apache-2.0 */
/* supervisor: which ends of a daemon are followed by another start, and which are not; played by scripts. */
#include "tests/lib/testlib.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/fsio.h"
#include "common/log.h"
#include "common/mem.h"
#include "daemon/supervisor.h"

enum { LOOK_US = 5000, LOOKS = 12000 };

static char folder[] = "/tmp/diloco-super-XXXXXX";
static struct home home;

/* ---- what is played ---- */

/* What is called dilocod in PATH; each start of it is a line of "starts". */
static void play_daemon(const char *script)
{
    const char *path = testlib_file(
        folder, "dilocod", "#!/bin/sh\ncd %s || exit 9\necho \"$DILOCO_SUPERVISED\" >> starts\n%s", folder, script);
    assert_int_equal(chmod(path, 0755), 0);
    testlib_file(folder, "starts", "%s", "");
}

static int lines_of(const char *file)
{
    char *text;
    size_t bytes;
    int lines = 0;
    assert_ok(fsio_read(testlib_path(folder, file), 1 << 20, &text, &bytes));
    for (size_t i = 0; i < bytes; i++)
        lines += text[i] == '\n';
    mem_free(text);
    return lines;
}

/* A process that supervises. `input`: what it has for standard input; -1: nothing. */
static int supervise(int input)
{
    fflush(NULL);
    int pid = fork();
    if (pid != 0)
        return pid;
    int status, log_fd = open(testlib_path(folder, "log"), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test leaves nobody behind */
    if (input < 0)
        input = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (dup2(input, STDIN_FILENO) < 0 || dup2(log_fd, STDERR_FILENO) < 0)
        _exit(99);
    syscall(SYS_close_range, STDERR_FILENO + 1, UINT_MAX, 0);
    signal(SIGCHLD, SIG_IGN); /* as a careless starter has it */
    log_init("dilocod", LOG_LEVEL_INFO);
    enum err err = supervisor_run(&home, &status);
    if (err != ERR_OK)
        log_error("%s", err_text());
    _exit(err == ERR_OK ? status : 98);
}

static int end_of(int pid)
{
    int status = 0, ended = 0;
    for (int i = 0; i < LOOKS && (ended = waitpid(pid, &status, WNOHANG)) == 0; i++)
        usleep(LOOK_US);
    if (ended != pid)
        fail_msg("the supervisor does not end");
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void wait_for_lines(const char *file, int lines)
{
    for (int i = 0; i < LOOKS && lines_of(file) < lines; i++)
        usleep(LOOK_US);
    assert_true(lines_of(file) >= lines);
}

static void wait_for_pause(void)
{
    bool pausing = false;
    for (int i = 0; i < LOOKS && !pausing; i++) {
        usleep(LOOK_US);
        assert_ok(home_is_pausing(&home, &pausing));
    }
    assert_true(pausing);
}

static void assert_log(const char *part)
{
    char *text;
    size_t bytes;
    assert_ok(fsio_read(testlib_path(folder, "log"), 1 << 20, &text, &bytes));
    if (strstr(text, part) == NULL)
        fail_msg("the log does not say \"%s\":\n%s", part, text);
    mem_free(text);
}

/* ---- cases ---- */

static void after_these_ends_there_is_no_other_start(void **state)
{
    (void)state;
    static const struct {
        const char *end;
        int status;
    } cases[] = {{"exit 0\n", 0},
                 {"exit 2\n", 2},
                 {"kill -TERM $$\n", 128 + SIGTERM},
                 {"kill -INT $$\n", 128 + SIGINT},
                 {"rm supervisor.pid; kill -KILL $$\n", 128 + SIGKILL},
                 {"rm supervisor.pid; echo 7 > supervisor.pid; exit 1\n", 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        play_daemon(cases[i].end);
        assert_int_equal(end_of(supervise(-1)), cases[i].status);
        assert_int_equal(lines_of("starts"), 1);
        assert_int_equal(lines_of("log"), cases[i].status == 2); /* what is to be mended */
    }
    int pid;
    assert_ok(home_supervisor(&home, &pid));
    assert_int_equal(pid, 0);
}

static void after_these_ends_there_is_one_after_a_pause(void **state)
{
    (void)state;
    static const struct {
        const char *end, *why;
    } cases[] = {{"exit 1\n", "ended with status 1"},
                 {"exit 127\n", "ended with status 127"},
                 {"kill -KILL $$\n", "was killed by signal 9 (Killed)"},
                 {"kill -SEGV $$\n", "was killed by signal 11 (Segmentation fault)"}};
    char line[200], want[200];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        play_daemon(cases[i].end);
        int pid = supervise(-1), named;
        wait_for_pause();
        assert_ok(home_supervisor(&home, &named));
        assert_int_equal(named, pid);
        wait_for_lines("starts", 2);
        wait_for_pause();
        kill(pid, SIGTERM);
        end_of(pid);
        snprintf(want, sizeof want, "dilocod %s; it is started again in 1 s", cases[i].why);
        assert_log(want);
        assert_log("; it is started again in 2 s");
        assert_int_equal(lines_of("starts"), 2);
        /* And what each hears of its supervisor. */
        int by = 0, used = 0;
        unsigned again = 9;
        long long at = 0;
        FILE *file = fopen(testlib_path(folder, "starts"), "re");
        assert_non_null(file);
        assert_non_null(fgets(line, sizeof line, file));
        assert_true(sscanf(line, "%d %u %lld %n", &by, &again, &at, &used) == 3 && by == pid && again == 0 && at > 0);
        assert_string_equal(line + used, "");
        assert_non_null(fgets(line, sizeof line, file));
        assert_true(sscanf(line, "%d %u %lld %n", &by, &again, &at, &used) == 3 && by == pid && again == 1);
        snprintf(want, sizeof want, "%s\n", cases[i].why);
        assert_string_equal(line + used, want);
        fclose(file);
    }
}

/* Who waits at the other end is told, and starts another when it is mended. */
static void a_start_that_somebody_awaits_is_not_made_again(void **state)
{
    (void)state;
    int ends[2];
    play_daemon("exit 1\n");
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(end_of(supervise(ends[0])), 1);
    assert_int_equal(lines_of("starts"), 1);
    play_daemon("test -e go && kill -KILL $$\nsleep 0.01\nexec ./dilocod\n");
    int pid = supervise(ends[0]);
    close(ends[0]);
    wait_for_lines("starts", 1);
    close(ends[1]); /* it waits no longer: the first daemon has answered */
    testlib_file(folder, "go", "%s", "");
    wait_for_pause();
    kill(pid, SIGTERM);
    end_of(pid);
    unlink(testlib_path(folder, "go"));
}

static void who_ends_it_waits_for_its_daemon(void **state)
{
    (void)state;
    static const int signals[] = {SIGTERM, SIGINT};
    for (int i = 0; i < 2; i++) {
        play_daemon("trap 'sleep 0.2; echo saved > saved; exit 0' TERM\necho > ready\nwhile :; do sleep 0.01; done\n");
        testlib_file(folder, "ready", "%s", "");
        testlib_file(folder, "saved", "%s", "");
        int pid = supervise(-1);
        wait_for_lines("ready", 1);
        kill(pid, signals[i]);
        assert_int_equal(end_of(pid), 0);
        assert_int_equal(lines_of("saved"), 1);
        assert_int_equal(lines_of("starts"), 1);
    }
}

static void one_supervises_a_folder(void **state)
{
    (void)state;
    play_daemon("exec sleep 60\n");
    int first = supervise(-1);
    wait_for_lines("starts", 1);
    assert_int_equal(end_of(supervise(-1)), 98);
    assert_log("has a supervisor already (pid ");
    assert_int_equal(lines_of("starts"), 1);
    kill(first, SIGTERM);
    assert_int_equal(end_of(first), 128 + SIGTERM);
}

static void who_starts_one_by_hand_meanwhile_has_no_supervisor(void **state)
{
    (void)state;
    char byte;
    int ready[2];
    play_daemon("exit 1\n");
    int pid = supervise(-1);
    wait_for_pause();
    assert_int_equal(pipe(ready), 0);
    int other = fork();
    if (other == 0) {
        int fd;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (home_lock(&home, &fd) != ERR_OK || write(ready[1], "r", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    end_of(pid);
    assert_log("dilocod was started by somebody else (pid ");
    assert_int_equal(lines_of("starts"), 1);
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
}

static void a_daemon_reads_what_it_hears_once(void **state)
{
    (void)state;
    struct supervised heard;
    setenv("DILOCO_SUPERVISED", "12 3 1700000000 was killed by signal 6 (Aborted)", 1);
    supervised_take(&heard);
    assert_true(heard.by == 12 && heard.again == 3 && heard.at_s == 1700000000);
    assert_string_equal(heard.why, "was killed by signal 6 (Aborted)");
    assert_null(getenv("DILOCO_SUPERVISED"));
    supervised_take(&heard);
    assert_int_equal(heard.by, 0);
    setenv("DILOCO_SUPERVISED", "12 a lie", 1);
    supervised_take(&heard);
    assert_true(heard.by == 0 && heard.again == 0 && heard.why[0] == '\0');
}

static int end(void **state)
{
    (void)state;
    char command[100];
    home_free(&home);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

int main(void)
{
    char path[600];
    if (mkdtemp(folder) == NULL || home_find(folder, &home) != ERR_OK)
        return 1;
    snprintf(path, sizeof path, "%s:%s", folder, getenv("PATH"));
    setenv("PATH", path, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(after_these_ends_there_is_no_other_start),
        cmocka_unit_test(after_these_ends_there_is_one_after_a_pause),
        cmocka_unit_test(a_start_that_somebody_awaits_is_not_made_again),
        cmocka_unit_test(who_ends_it_waits_for_its_daemon),
        cmocka_unit_test(one_supervises_a_folder),
        cmocka_unit_test(who_starts_one_by_hand_meanwhile_has_no_supervisor),
        cmocka_unit_test(a_daemon_reads_what_it_hears_once),
    };
    return cmocka_run_group_tests(tests, NULL, end);
}
