/* SPDX-License-Identifier: Apache-2.0 */
/* ctl_home: who is ended is who holds the lock, and nobody else; what a daemon that does not start leaves is shown. */
#include "tests/lib/testlib.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/fsio.h"
#include "common/ipc.h"
#include "common/mem.h"
#include "common/pidfile.h"
#include "daemon/ctl/ctl_client.h"
#include "daemon/ctl/ctl_home.h"

static char folder[] = "/tmp/diloco-ctl-XXXXXX";
static struct home home;
static struct ctl_home ctl = {.home = &home, .socket = "no/such.sock", .state = folder, .stop_ms = 200};

/* ---- what is printed to one of our descriptors ---- */

static int kept_fd = -1;

static const char *divert(int fd)
{
    const char *path = testlib_path(folder, "printed");
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    fflush(NULL);
    kept_fd = dup(fd);
    assert_true(file >= 0 && kept_fd >= 0 && dup2(file, fd) == fd);
    close(file);
    return path;
}

static char *restore(int fd, const char *path)
{
    char *text;
    size_t bytes;
    fflush(NULL);
    assert_int_equal(dup2(kept_fd, fd), fd);
    close(kept_fd);
    assert_ok(fsio_read(path, 64 << 20, &text, &bytes)); /* one test prints without end until others are done */
    return text;
}

static void assert_stop_prints(const char *part)
{
    const char *path = divert(STDOUT_FILENO);
    enum err err = ctl_home_stop(&ctl);
    char *text = restore(STDOUT_FILENO, path);
    assert_ok(err);
    if (strstr(text, part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", text, part);
    mem_free(text);
}

/* ---- stop ---- */

/* A process that waits to be ended, or ends after so long by itself (0: never); with the lock or without. */
static int passer_by(bool with_lock, useconds_t lives_us)
{
    int ready[2], pid;
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid = fork();
    if (pid == 0) {
        int fd;
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test leaves nobody behind */
        if ((with_lock && home_lock(&home, &fd) != ERR_OK) || write(ready[1], "r", 1) != 1)
            _exit(1);
        if (lives_us > 0)
            _exit(usleep(lives_us));
        for (;;)
            pause();
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

static int bystander(bool with_lock)
{
    return passer_by(with_lock, 0);
}

static void who_holds_the_lock_is_ended(void **state)
{
    (void)state;
    int status, pid = bystander(true);
    assert_stop_prints("dilocod has stopped (pid ");
    assert_int_equal(waitpid(pid, &status, WNOHANG), pid);
    assert_int_equal(WTERMSIG(status), SIGTERM);
    assert_stop_prints("dilocod does not run\n");
}

static void a_process_that_a_stale_file_names_is_left_alone(void **state)
{
    (void)state;
    int status, pid = bystander(false);
    testlib_file(folder, "dilocod.pid", "%d\n", pid);
    assert_stop_prints("dilocod does not run\n");
    /* Nor is it, where somebody else has the lock. */
    int holder = bystander(true);
    testlib_file(folder, "dilocod.pid", "%d\n", pid);
    assert_stop_prints("dilocod has stopped");
    assert_int_equal(waitpid(holder, &status, 0), holder);
    usleep(20000);
    assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
}

/* As a daemon that was killed leaves one. */
static void assert_trainer_ended_by(int pid, int wanted)
{
    int status;
    assert_ok(pidfile_save(testlib_path(folder, "worker.pid"), pid));
    assert_stop_prints("the trainer that it had left has ended (pid ");
    assert_int_equal(waitpid(pid, &status, WNOHANG), pid);
    assert_int_equal(WTERMSIG(status), wanted);
    assert_int_equal(access(testlib_path(folder, "worker.pid"), F_OK), -1);
    assert_stop_prints("dilocod does not run\n");
}

static void a_trainer_without_a_daemon_is_ended_as_the_daemon_would_end_it(void **state)
{
    (void)state;
    assert_trainer_ended_by(bystander(false), SIGTERM);
    signal(SIGTERM, SIG_IGN); /* it hangs */
    int pid = bystander(false);
    signal(SIGTERM, SIG_DFL);
    assert_trainer_ended_by(pid, SIGKILL);
}

/* Its number may be anybody's one day. */
static void a_process_that_is_not_the_trainer_of_before_is_left_alone(void **state)
{
    (void)state;
    int status, pid = bystander(false);
    testlib_file(folder, "worker.pid", "%d 1\n", pid);
    assert_stop_prints("dilocod does not run\n");
    testlib_file(folder, "worker.pid", "%d\n", pid);
    assert_stop_prints("dilocod does not run\n");
    usleep(20000);
    assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    unlink(testlib_path(folder, "worker.pid"));
}

/* ---- start ---- */

/* What is called dilocod in PATH. */
static void play_daemon(const char *script)
{
    const char *path = testlib_file(folder, "dilocod", "#!/bin/sh\n%s", script);
    assert_int_equal(chmod(path, 0755), 0);
}

static void a_daemon_that_does_not_start_is_shown_by_the_end_of_its_log(void **state)
{
    (void)state;
    testlib_file(folder, "dilocod.log", "of long ago\n");
    play_daemon("echo \"it was called with $*\"\nexit 2\n");
    const char *path = divert(STDERR_FILENO);
    enum err err = ctl_home_start(&ctl);
    char *text = restore(STDERR_FILENO, path);
    assert_fails(ERR_STATE, "dilocod has ended", err);
    char want[200];
    snprintf(want, sizeof want, "it was called with --home %s --supervise\n", folder);
    assert_string_equal(text, want);
    mem_free(text);
    play_daemon("seq 100 >&2\nexit 1\n");
    path = divert(STDERR_FILENO);
    err = ctl_home_start(&ctl);
    text = restore(STDERR_FILENO, path);
    assert_fails(ERR_STATE, "dilocod.log", err);
    assert_int_equal(strncmp(text, "81\n82\n", 6), 0);
    assert_string_equal(text + strlen(text) - 7, "99\n100\n");
    mem_free(text);
}

/* It may be at its ledger still, or have its sockets elsewhere. */
static void one_that_runs_and_does_not_answer_is_not_waited_for(void **state)
{
    (void)state;
    int pid = bystander(true);
    const char *path = divert(STDOUT_FILENO);
    enum err err = ctl_home_start(&ctl);
    char *text = restore(STDOUT_FILENO, path), want[100];
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    assert_ok(err);
    snprintf(want, sizeof want, "dilocod runs already, but does not answer yet (pid %d)\n", pid);
    assert_string_equal(text, want);
    mem_free(text);
}

/* One that ends meanwhile, as after a revocation, is no daemon that runs. */
static void where_one_is_on_its_way_out_another_is_started(void **state)
{
    (void)state;
    testlib_file(folder, "dilocod.log", "of the one before\n");
    play_daemon("echo the next one\nexit 2\n");
    fflush(NULL);
    int pid = passer_by(true, 300000);
    const char *path = divert(STDERR_FILENO);
    enum err err = ctl_home_start(&ctl);
    char *text = restore(STDERR_FILENO, path);
    waitpid(pid, NULL, 0);
    assert_fails(ERR_STATE, "dilocod has ended", err);
    assert_string_equal(text, "the next one\n");
    mem_free(text);
}

static void a_daemon_that_is_started_keeps_nothing_of_ours(void **state)
{
    (void)state;
    int ends[2];
    play_daemon("exec sleep 60\n");
    assert_int_equal(pipe(ends), 0);
    ctl.no_wait = true;
    const char *path = divert(STDOUT_FILENO);
    enum err err = ctl_home_start(&ctl);
    char *text = restore(STDOUT_FILENO, path);
    ctl.no_wait = false;
    assert_ok(err);
    int pid = 0;
    assert_int_equal(sscanf(text, "dilocod is starting (pid %d)", &pid), 1);
    mem_free(text);
    close(ends[1]);
    struct pollfd item = {.fd = ends[0], .events = POLLIN};
    int closed = poll(&item, 1, 5000); /* whose other end it has, too, is not */
    int session = getsid(pid);
    close(ends[0]);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    assert_int_equal(closed, 1);
    assert_int_equal(session, pid);
}

/* A process that is again and again a supervisor that does not pause, for a moment, as one that another start has just
 * made. */
static int coming_and_going(void)
{
    enum { HELD_US = 1500, FREE_US = 1 };
    fflush(NULL);
    int pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test leaves nobody behind */
    for (int fd;; usleep(FREE_US)) {
        if (home_lock_supervisor(&home, &fd) != ERR_OK)
            _exit(1);
        usleep(HELD_US);
        close(fd);
    }
}

static void a_supervisor_that_another_start_has_just_made_is_not_ended(void **state)
{
    (void)state;
    enum { STARTS = 1000 }; /* that found nobody */
    int status, ended = 0, made = 0, pid = coming_and_going();
    play_daemon("exit 0\n");
    ctl.no_wait = true;
    const char *path = divert(STDOUT_FILENO);
    enum err err = ERR_OK;
    while (made < STARTS && err == ERR_OK && ended == 0) {
        err = ctl_home_start(&ctl);
        for (int child; (child = waitpid(-1, &status, WNOHANG)) > 0; made++)
            ended = child == pid ? status : ended;
        usleep(20);
    }
    mem_free(restore(STDOUT_FILENO, path));
    ctl.no_wait = false;
    kill(pid, SIGKILL);
    while (waitpid(-1, NULL, 0) > 0)
        continue;
    assert_ok(err);
    assert_int_equal(ended, 0);
}

/* A process that answers on ctl.socket as a daemon does; with the lock or without. Its answer to all is `answer`. */
static int answerer(bool with_lock, const char *answer)
{
    struct sockaddr_un address;
    assert_ok(ipc_address(ctl.socket, &address));
    int listening = socket(AF_UNIX, SOCK_STREAM, 0), pid;
    assert_true(listening >= 0);
    unlink(ctl.socket);
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        int fd;
        char asked[64];
        if (with_lock && home_lock(&home, &fd) != ERR_OK)
            _exit(1);
        if (bind(listening, (const struct sockaddr *)&address, sizeof address) != 0 || listen(listening, 8) != 0)
            _exit(1);
        while ((fd = accept(listening, NULL, NULL)) >= 0) {
            if (read(fd, asked, sizeof asked) <= 0 || write(fd, answer, strlen(answer)) < 0)
                _exit(1);
            close(fd);
        }
        _exit(1);
    }
    close(listening);
    json_t *status;
    for (int i = 0; i < 500 && ctl_ask(ctl.socket, "status", &status) == ERR_CLOSED; i++)
        usleep(10000);
    json_decref(status);
    return pid;
}

static void only_the_daemon_of_this_folder_is_taken_for_it(void **state)
{
    (void)state;
    char want[200];
    const char *before = ctl.socket;
    ctl.socket = testlib_path(folder, "control.sock");
    /* Somebody else's, where the configuration says: ours ends over that, and its log says so. */
    play_daemon("echo \"$2: control.sock is taken\"\nexit 2\n");
    int other = answerer(false, "{\"island\":\"oslo\"}\n");
    const char *path = divert(STDERR_FILENO);
    enum err err = ctl_home_start(&ctl);
    char *text = restore(STDERR_FILENO, path);
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
    snprintf(want, sizeof want, "another one answers (pid %d): have [island] sockets in %s/dilocod.conf", other,
             folder);
    assert_fails(ERR_STATE, want, err);
    snprintf(want, sizeof want, "%s: control.sock is taken\n", folder);
    assert_non_null(strstr(text, want));
    mem_free(text);
    /* And one that runs here. */
    int own = answerer(true, "{\"island\":\"paris\"}\n");
    path = divert(STDOUT_FILENO);
    err = ctl_home_start(&ctl);
    text = restore(STDOUT_FILENO, path);
    kill(own, SIGKILL);
    waitpid(own, NULL, 0);
    assert_ok(err);
    snprintf(want, sizeof want, "dilocod runs already: island paris (pid %d)\n", own);
    assert_string_equal(text, want);
    mem_free(text);
    unlink(ctl.socket);
    ctl.socket = before;
}

/* ---- logs ---- */

static void the_log_is_printed_whole(void **state)
{
    (void)state;
    assert_int_equal(unlink(home.log), 0);
    assert_fails(ERR_NOTFOUND, "there is no log yet", ctl_home_logs(&home, false, false));
    testlib_file(folder, "dilocod.log", "one\ntwo\n");
    const char *path = divert(STDOUT_FILENO);
    enum err err = ctl_home_logs(&home, false, false);
    char *text = restore(STDOUT_FILENO, path);
    assert_ok(err);
    assert_string_equal(text, "one\ntwo\n");
    mem_free(text);
}

static void of_the_log_what_the_trainer_says_can_be_had_alone(void **state)
{
    (void)state;
    char text[600];
    memset(text, 'x', sizeof text);
    snprintf(text, 100, "2026-11-23 06:28:31.123 dilocod warning: trainer: a long one ");
    text[strlen(text)] = 'x';
    text[sizeof text - 1] = '\0';
    testlib_file(
        folder, "dilocod.log",
        "2026-11-23 06:28:31.123 dilocod info: started it\n2026-11-23 06:28:31.124 dilocod info: trainer: one\n"
        "short\n\n%s\n2026-11-23 06:28:31.125 dilocod info: a long line that speaks of much else before it "
        "comes to its trainer: two\n",
        text);
    const char *path = divert(STDOUT_FILENO);
    enum err err = ctl_home_logs(&home, false, true);
    char *printed = restore(STDOUT_FILENO, path), want[800];
    assert_ok(err);
    snprintf(want, sizeof want, "2026-11-23 06:28:31.124 dilocod info: trainer: one\n%s\n", text);
    assert_string_equal(printed, want);
    mem_free(printed);
}

/* Also past an end that somebody cut. */
static void a_log_is_followed(void **state)
{
    (void)state;
    char *text = NULL;
    size_t bytes;
    testlib_file(folder, "dilocod.log", "%s", "a long first line\n");
    fflush(NULL);
    int pid = fork();
    if (pid == 0) {
        divert(STDOUT_FILENO);
        _exit(ctl_home_logs(&home, true, false) == ERR_OK);
    }
    bool cut = false, seen = false;
    for (int i = 0; !seen && i < 500; i++) {
        usleep(20000);
        mem_free(text);
        text = NULL;
        if (fsio_read(testlib_path(folder, "printed"), 1 << 20, &text, &bytes) != ERR_OK)
            continue;
        if (!cut && strstr(text, "first line\n") != NULL) {
            testlib_file(folder, "dilocod.log", "next\n");
            cut = true;
        }
        seen = strstr(text, "first line\nnext\n") != NULL;
    }
    mem_free(text);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    assert_true(seen);
}

static int end(void **state)
{
    (void)state;
    testlib_clear(folder);
    home_free(&home);
    return rmdir(folder);
}

int main(void)
{
    char path[4096];
    if (mkdtemp(folder) == NULL || home_find(folder, &home) != ERR_OK)
        return 1;
    snprintf(path, sizeof path, "%s:%s", folder, getenv("PATH"));
    setenv("PATH", path, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_holds_the_lock_is_ended),
        cmocka_unit_test(a_process_that_a_stale_file_names_is_left_alone),
        cmocka_unit_test(a_trainer_without_a_daemon_is_ended_as_the_daemon_would_end_it),
        cmocka_unit_test(a_process_that_is_not_the_trainer_of_before_is_left_alone),
        cmocka_unit_test(a_daemon_that_does_not_start_is_shown_by_the_end_of_its_log),
        cmocka_unit_test(one_that_runs_and_does_not_answer_is_not_waited_for),
        cmocka_unit_test(where_one_is_on_its_way_out_another_is_started),
        cmocka_unit_test(only_the_daemon_of_this_folder_is_taken_for_it),
        cmocka_unit_test(a_daemon_that_is_started_keeps_nothing_of_ours),
        cmocka_unit_test(a_supervisor_that_another_start_has_just_made_is_not_ended),
        cmocka_unit_test(the_log_is_printed_whole),
        cmocka_unit_test(of_the_log_what_the_trainer_says_can_be_had_alone),
        cmocka_unit_test(a_log_is_followed),
    };
    return cmocka_run_group_tests(tests, NULL, end);
}
