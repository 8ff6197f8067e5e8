/* SPDX-License-Identifier: Apache-2.0 */
/* dilococtl watch on a terminal that the test plays, of a daemon that it plays, too: what stands there at any size of
 * the window, and that the terminal is given back however it ends. */
#include "tests/lib/testlib.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/fsio.h"
#include "common/ipc.h"
#include "common/mem.h"
#include "tests/lib/cli.h"
#include "tests/lib/proc.h"
#include "tests/lib/tty.h"

static const char *folder, *path;
static struct tty tty;

/* ---- a daemon ---- */

static struct {
    int pid;
    volatile int *hangs; /* it takes requests and does not answer */
} played;

static void answer(int fd, const char *request)
{
    static int step = 1000;
    char text[3000] = "{\"error\":\"what?\"}";
    if (strncmp(request, "status", 6) == 0)
        snprintf(text, sizeof text,
                 "{\"island\":\"paris\",\"run\":{\"name\":\"big\",\"steps\":2000},\"trainer\":{\"state\":\"training\","
                 "\"step\":%d,\"loss\":2.5,\"tokens_per_s\":12345,\"machine\":{\"device\":\"CPU\",\"ranks\":2}},"
                 "\"islands\":2,\"islands_up\":1,\"uptime_s\":60,\"bytes_sent\":%d,\"degraded\":[{\"code\":\"x\","
                 "\"what\":\"caf\\u00e9 \\u65e5\\u672c is away, and this text goes on for longer than any line of a "
                 "small window has room for\",\"remedy\":\"look there\"}]}",
                 step, step * 1000);
    else if (strncmp(request, "peers", 5) == 0)
        snprintf(text, sizeof text,
                 "{\"peers\":[{\"name\":\"paris\",\"self\":true,\"up\":true,\"trainer\":\"training\",\"step\":%d,"
                 "\"uplink_bit_s\":1000000000},{\"name\":\"oslo\",\"self\":false,\"up\":false,\"heard_s\":72,"
                 "\"trainer\":\"none\"}]}",
                 step);
    else if (strncmp(request, "fragments", 9) == 0)
        snprintf(text, sizeof text,
                 "{\"fragments\":[{\"fragment\":0,\"version\":3,\"state\":\"contributed\",\"waiting_for\":[\"oslo\"]}"
                 "]}");
    step++;
    dprintf(fd, "%s\n", text);
}

static void serve(int listener)
{
    for (;;) {
        char request[64] = "";
        int fd = accept(listener, NULL, NULL);
        if (recv(fd, request, sizeof request - 1, 0) > 0 && *played.hangs)
            continue; /* it stays open, and silent */
        answer(fd, request);
        close(fd);
    }
}

static void start_daemon(void)
{
    int listener;
    unlink(path);
    assert_ok(ipc_listen(path, SOCK_STREAM, &listener));
    fcntl(listener, F_SETFL, 0);
    *played.hangs = 0;
    played.pid = fork();
    if (played.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGPIPE, SIG_IGN);
        serve(listener);
    }
    close(listener);
}

static void kill_daemon(void)
{
    kill(played.pid, SIGKILL);
    waitpid(played.pid, NULL, 0);
}

static int begin(void **state)
{
    (void)state;
    start_daemon();
    return 0;
}

static int end(void **state)
{
    (void)state;
    kill_daemon();
    return 0;
}

/* ---- the screen ---- */

static void watch(int rows, int columns, const char *term)
{
    const char *argv[] = {cli_program("dilococtl"), "watch", "--interval", "100", "--socket", path, NULL};
    tty_start(&tty, argv, rows, columns, term);
}

static void assert_given_back(int status)
{
    assert_int_equal(tty_end(&tty), status);
    if (tty.alternate || tty.cursor_hidden || !tty_restored(&tty))
        fail_msg("the terminal is left with%s%s%s", tty.alternate ? " the alternate screen" : "",
                 tty.cursor_hidden ? " no cursor" : "", tty_restored(&tty) ? "" : " other settings");
    assert_false(tty.beyond);
    tty_close(&tty);
}

/* The first row, the last one, and all of one size between. */
static void assert_whole(void)
{
    tty_wait(&tty, "q end", false);
    for (int i = 0; tty.behind && i < 200; i++)
        tty_look(&tty, 0.1);
    assert_false(tty.behind);
    tty_look(&tty, 0.1); /* the rest of it */
    const char *text = tty_text(&tty), *last = text;
    for (int row = 1; row < tty.rows; row++)
        last = strchr(last, '\n') + 1;
    assert_int_equal(strncmp(text, " paris ", 7), 0);
    assert_int_equal(strncmp(last, "q end", 5), 0);
    assert_true(tty.alternate && tty.cursor_hidden && !tty.beyond);
}

static void it_fits_any_window_and_follows_it(void **state)
{
    (void)state;
    static const int sizes[][2] = {{24, 80}, {10, 40}, {60, 200}, {3, 12}, {40, 100}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        watch(sizes[i][0], sizes[i][1], "xterm");
        assert_whole();
        for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
            tty_resize(&tty, sizes[k][0], sizes[k][1]);
            assert_whole();
        }
        tty_type(&tty, "q");
        assert_given_back(0);
    }
    watch(24, 80, "xterm");
    tty_wait(&tty, "out ", false); /* two answers are there */
    static const char *const parts[] = {"run big",       "12.3k tokens/s",  "steps/s",
                                        " left",         "away 1 min 12 s", "! caf",
                                        "-> look there", "waits for oslo",  "2 ranks on CPU"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        tty_wait(&tty, parts[i], false);
    assert_true(tty.coloured);
    tty_type(&tty, "q");
    assert_given_back(0);
}

/* What has not changed is not drawn again. */
static void it_does_not_flicker(void **state)
{
    (void)state;
    watch(24, 80, "xterm");
    assert_whole();
    tty_look(&tty, 0.5);
    *played.hangs = 1;
    tty_look(&tty, 0.5);
    size_t before = tty.bytes;
    tty_look(&tty, 2);
    assert_true(tty.bytes - before < 100);
    tty_type(&tty, "q");
    assert_given_back(0);
}

static void keys_steer_it(void **state)
{
    (void)state;
    watch(10, 80, "xterm");
    assert_whole();
    tty_type(&tty, "?");
    tty_wait(&tty, "Ctrl-C     end", false);
    tty_type(&tty, "?");
    tty_wait(&tty, "Ctrl-C     end", true);
    tty_type(&tty, "\033[6~");
    tty_wait(&tty, "lines 1 to", true);
    tty_type(&tty, "\033[5~");
    tty_wait(&tty, "lines 1 to", false);
    tty_type(&tty, "\x03");
    assert_given_back(128 + SIGINT);
    signal(SIGINT, SIG_IGN); /* as a shell's background job is started */
    watch(10, 80, "xterm");
    signal(SIGINT, SIG_DFL);
    assert_whole();
    tty_type(&tty, "\x03");
    assert_given_back(128 + SIGINT);
}

/* Also while the daemon hangs, so that an answer is waited for. */
static void however_it_ends_the_terminal_is_as_it_was(void **state)
{
    (void)state;
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};
    for (int hangs = 0; hangs < 2; hangs++) {
        for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
            *played.hangs = 0;
            watch(24, 80, "xterm");
            assert_whole();
            *played.hangs = hangs;
            tty_look(&tty, hangs ? 0.4 : 0);
            kill(tty.pid, signals[i]);
            assert_given_back(128 + signals[i]);
        }
    }
}

static bool is_stopped(int pid)
{
    int status;
    for (int i = 0; i < 500; i++) {
        if (waitpid(pid, &status, WUNTRACED | WNOHANG) == pid)
            return WIFSTOPPED(status);
        proc_sleep_ms(10);
        tty_look(&tty, 0);
    }
    return false;
}

static void one_that_is_stopped_gives_the_terminal_back_and_takes_it_again(void **state)
{
    (void)state;
    watch(24, 80, "xterm");
    assert_whole();
    /* A session's leader is in no group that anybody could stop it in; SIGSTOP comes behind what it does itself. */
    kill(tty.pid, SIGTSTP);
    tty_look(&tty, 0.5);
    assert_whole(); /* it goes on at once, since nobody could let it */
    kill(tty.pid, SIGSTOP);
    assert_true(is_stopped(tty.pid));
    tty_resize(&tty, 12, 60);
    kill(tty.pid, SIGCONT);
    tty_look(&tty, 0.5);
    assert_whole();
    tty_type(&tty, "q");
    assert_given_back(0);
}

/* As a shell runs it: in a group of its own, stopped by Ctrl-Z. */
static void ctrl_z_stops_it_with_the_terminal_as_it_was(void **state)
{
    (void)state;
    char command[700];
    snprintf(command, sizeof command,
             "set -m; %s watch --interval 100 --socket %s; echo stopped by $?; stty -a | tr ' ;' '\\n\\n' | grep -x "
             "'[-]*icanon'; read line; fg >/dev/null; echo ended by $?",
             cli_program("dilococtl"), path);
    const char *argv[] = {"/bin/bash", "-c", command, NULL};
    if (access(argv[0], X_OK) != 0)
        skip_because("no /bin/bash");
    tty_start(&tty, argv, 24, 80, "xterm");
    assert_whole();
    tty_type(&tty, "\x1a");
    tty_wait(&tty, "stopped by 148", false);
    tty_wait(&tty, "\nicanon", false);
    assert_false(tty.alternate || tty.cursor_hidden);
    tty_type(&tty, "\n");
    tty_wait(&tty, "q end", false);
    assert_true(tty.alternate && tty.cursor_hidden);
    tty_type(&tty, "q");
    tty_wait(&tty, "ended by 0", false);
    assert_int_equal(tty_end(&tty), 0);
    assert_false(tty.alternate || tty.cursor_hidden);
    tty_close(&tty);
}

static void a_daemon_that_is_killed_is_asked_until_it_is_back(void **state)
{
    (void)state;
    watch(24, 80, "xterm");
    assert_whole();
    kill_daemon();
    tty_wait(&tty, "no answer for", false);
    tty_wait(&tty, "step 1", false); /* what was seen last */
    assert_true(tty.alternate);
    start_daemon();
    tty_wait(&tty, "no answer for", true);
    assert_whole();
    tty_type(&tty, "q");
    assert_given_back(0);
}

/* One that never answered is no daemon to watch. */
static void without_a_daemon_there_is_no_screen(void **state)
{
    (void)state;
    kill_daemon();
    watch(24, 80, "xterm");
    assert_int_equal(tty_end(&tty), 3);
    assert_true(strstr(tty_text(&tty), "no daemon answers") != NULL);
    tty_close(&tty);
    start_daemon();
}

static void assert_plain(const char *text)
{
    assert_null(strchr(text, '\033'));
    assert_non_null(strstr(text, "island     paris"));
    assert_non_null(strstr(text, "waiting for"));
}

static uint32_t blocks_in(const char *file)
{
    char *text;
    size_t bytes;
    uint32_t count = 0;
    if (fsio_read(file, 1 << 20, &text, &bytes) != ERR_OK) /* it has not begun */
        return 0;
    for (const char *at = text; (at = strstr(at, "island     paris")) != NULL; at++)
        count++;
    if (count > 0 && strstr(text, "waiting for") != NULL)
        assert_plain(text);
    else
        count = 0;
    mem_free(text);
    return count;
}

static void wait_for_blocks(const char *file, uint32_t count)
{
    for (int i = 0; i < 1200 && blocks_in(file) < count; i++)
        proc_sleep_ms(50);
    assert_true(blocks_in(file) >= count);
}

static void where_there_is_no_screen_it_prints_plain_text(void **state)
{
    (void)state;
    const char *out = testlib_path(folder, "watch.out");
    const char *argv[] = {cli_program("dilococtl"), "watch", "--interval", "100", "--socket", path, NULL};
    int pid = proc_start(argv, out);
    wait_for_blocks(out, 2); /* one after the other */
    kill(pid, SIGTERM);
    assert_int_equal(proc_wait(pid, 5), 128 + SIGTERM);
    watch(50, 120, "dumb");
    tty_wait(&tty, "waiting for", false);
    assert_false(tty.alternate);
    assert_plain(tty_text(&tty));
    kill(tty.pid, SIGTERM);
    assert_int_equal(tty_end(&tty), 128 + SIGTERM);
    tty_close(&tty);
}

static void no_color_is_heeded(void **state)
{
    (void)state;
    setenv("NO_COLOR", "1", 1);
    watch(24, 80, "xterm");
    assert_whole();
    tty_look(&tty, 0.3);
    assert_false(tty.coloured);
    tty_type(&tty, "q");
    assert_given_back(0);
    unsetenv("NO_COLOR");
}

int main(void)
{
    folder = testlib_folder("watch");
    cli_init(folder);
    path = testlib_path(folder, "control.sock");
    played.hangs = mmap(NULL, sizeof *played.hangs, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    unsetenv("NO_COLOR");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(it_fits_any_window_and_follows_it, begin, end),
        cmocka_unit_test_setup_teardown(it_does_not_flicker, begin, end),
        cmocka_unit_test_setup_teardown(keys_steer_it, begin, end),
        cmocka_unit_test_setup_teardown(however_it_ends_the_terminal_is_as_it_was, begin, end),
        cmocka_unit_test_setup_teardown(one_that_is_stopped_gives_the_terminal_back_and_takes_it_again, begin, end),
        cmocka_unit_test_setup_teardown(ctrl_z_stops_it_with_the_terminal_as_it_was, begin, end),
        cmocka_unit_test_setup_teardown(a_daemon_that_is_killed_is_asked_until_it_is_back, begin, end),
        cmocka_unit_test_setup_teardown(without_a_daemon_there_is_no_screen, begin, end),
        cmocka_unit_test_setup_teardown(where_there_is_no_screen_it_prints_plain_text, begin, end),
        cmocka_unit_test_setup_teardown(no_color_is_heeded, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
