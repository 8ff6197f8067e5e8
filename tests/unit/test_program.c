/* SPDX-License-Identifier: Apache-2.0 */
/* process: what the trainer's program is started with: ours all that it needs to know, one of somebody else's what the
 * configuration says, and where the daemon is. */
#include "tests/lib/testlib.h"

#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/fsio.h"
#include "common/mem.h"
#include "daemon/trainer/process.h"
#include "tests/lib/overhear.h"
#include "tests/lib/script.h"

enum { DEADLINE_MS = 10000, NOW_MS = 1000000 };

static struct dconf conf;
static const char *folder;

static int begin(void **state)
{
    (void)state;
    folder = testlib_folder("program");
    script_open(folder);
    conf = (struct dconf){.state_folder = (char *)(uintptr_t)folder,
                          .run_folder = "some/sockets",
                          .run_path = "some/run.ini",
                          .worker_folder = "",
                          .data = "",
                          .device = "cpu",
                          .stream = "",
                          .devices = ""};
    return 0;
}

static int end(void **state)
{
    (void)state;
    script_close();
    return 0;
}

static void wait_end(struct process *process)
{
    struct pollfd item;
    if (process_poll(process, &item, 1) == 1)
        assert_int_equal(poll(&item, 1, DEADLINE_MS), 1);
    process_run(process, NOW_MS);
    assert_false(process_running(process));
}

static void start(char *line, struct process **process)
{
    conf.worker_program = line;
    assert_ok(process_new(&conf, process));
    assert_ok(process_start(*process, NOW_MS));
}

static void assert_told(const char *want)
{
    char *text;
    size_t bytes;
    assert_ok(fsio_read(testlib_path(folder, "told"), 1024, &text, &bytes));
    assert_string_equal(text, want);
    mem_free(text);
}

/* Whatever it is called, it learns where the daemon is; one of somebody else's is told nothing more. */
static void a_program_of_ones_own_gets_its_own_arguments_and_the_socket(void **state)
{
    (void)state;
    static const char body[] = "printf '%s|' \"$@\" \"$DILOCO_SOCKET\" >\"${0%/*}/told\"\nexit 1";
    static const struct {
        const char *name, *arguments, *want;
    } cases[] = {{"mine", "", "some/sockets/worker.sock|"},
                 {"mine", " -u train.py --name='one two' \"\" $HOME",
                  "-u|train.py|--name=one two||$HOME|some/sockets/worker.sock|"},
                 {"my own", "", "some/sockets/worker.sock|"}};
    setenv("DILOCO_SOCKET", "another", 1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char line[600];
        struct process *process;
        snprintf(line, sizeof line, "'%s'%s", script_make(cases[i].name, body), cases[i].arguments);
        start(line, &process);
        wait_end(process);
        assert_told(cases[i].want);
        process_free(process);
    }
    assert_string_equal(getenv("DILOCO_SOCKET"), "another");
    unsetenv("DILOCO_SOCKET");
}

/* As a Python environment's interpreter: a link to the system's that knows its packages by where the link is. */
static void a_program_that_is_a_link_is_started_by_its_own_name(void **state)
{
    (void)state;
    char line[600], here[400], want[1100];
    struct process *process;
    script_make("real", "pwd >\"${0%/*}/told\"\necho \"$0\" >>\"${0%/*}/told\"\nexit 1");
    snprintf(line, sizeof line, "%s", testlib_path(folder, "link"));
    assert_int_equal(symlink("real", line), 0);
    snprintf(conf.folder, sizeof conf.folder, "/");
    start(line, &process);
    wait_end(process);
    assert_non_null(getcwd(here, sizeof here));
    snprintf(want, sizeof want, "/\n%s%s%s\n", line[0] == '/' ? "" : here, line[0] == '/' ? "" : "/", line);
    assert_told(want);
    process_free(process);
}

/* The daemon may be a service, of which its manager hears; the trainer is none. */
static void what_a_service_manager_says_is_the_daemons_alone(void **state)
{
    (void)state;
    char *script;
    struct process *process;
    setenv("NOTIFY_SOCKET", "/run/systemd/notify", 1);
    setenv("LISTEN_FDS", "1", 1);
    setenv("MINE", "passes", 1);
    script = script_make("mine.sh", "echo \"$NOTIFY_SOCKET,$LISTEN_FDS,$MINE\" >\"${0%/*}/told\"\nexit 1");
    start(script, &process);
    wait_end(process);
    assert_told(",,passes\n");
    process_free(process);
    unsetenv("NOTIFY_SOCKET");
    unsetenv("LISTEN_FDS");
    unsetenv("MINE");
}

static void a_program_runs_in_the_folder_that_is_named(void **state)
{
    (void)state;
    char line[PATH_MAX + 700], here[PATH_MAX], want[PATH_MAX + 8];
    struct process *process;
    assert_non_null(realpath(folder, here));
    snprintf(line, sizeof line, "%s", script_make("where.sh", "pwd >\"$1/told\"\nexit 1"));
    snprintf(line + strlen(line), sizeof line - strlen(line), " %s", here);
    snprintf(conf.folder, sizeof conf.folder, "/");
    conf.worker_folder = here;
    start(line, &process);
    wait_end(process);
    snprintf(want, sizeof want, "%s\n", here);
    assert_told(want);
    process_free(process);
}

static void our_trainer_takes_more_arguments_before_the_daemons(void **state)
{
    (void)state;
    char line[600];
    struct process *process;
    snprintf(line, sizeof line, "%s --quiet",
             script_make("diloco-worker", "echo \"$1 $2 $3\" >\"${0%/*}/told\"\nexit 1"));
    conf.data = "corpus";
    start(line, &process);
    wait_end(process);
    assert_told("train --quiet --run\n");
    process_free(process);
}

static void our_trainer_is_told_how_its_ranks_share_layers(void **state)
{
    (void)state;
    static const char *const want[] = {"cpu --ranks 4\n", "cpu --ranks 4 --tensor-parallel 2\n",
                                       "cuda --devices 0-3 --tensor-parallel 2\n"};
    conf.data = "corpus";
    conf.ranks = 4;
    for (size_t i = 0; i < 3; i++) {
        struct process *process;
        conf.tensor_parallel = i > 0 ? 2 : 1;
        conf.device = i < 2 ? "cpu" : "cuda";
        conf.devices = i < 2 ? "" : "0-3";
        start(script_make(
                  "diloco-worker",
                  "line=\"$*\"\nline=${line#*--device }\necho \"${line%% --threads*}\" >\"${0%/*}/told\"\nexit 1"),
              &process);
        wait_end(process);
        assert_told(want[i]);
        process_free(process);
    }
}

static void what_cannot_be_started_says_why_and_what_to_do(void **state)
{
    (void)state;
    struct process *process;
    overhear_begin();
    start("no/such/trainer", &process);
    wait_end(process);
    overhear_assert_once(overhear_end(),
                         "trainer: cannot start no/such/trainer: No such file or directory; set [worker] program\n");
    process_free(process);
}

static void a_line_that_cannot_be_cut_is_refused(void **state)
{
    (void)state;
    struct process *process;
    conf.worker_program = "mine 'half";
    assert_fails(ERR_CONF, "[worker] program: a ' without", process_new(&conf, &process));
    assert_null(process);
}

#define in_a_folder(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        in_a_folder(a_program_of_ones_own_gets_its_own_arguments_and_the_socket),
        in_a_folder(a_program_that_is_a_link_is_started_by_its_own_name),
        in_a_folder(what_a_service_manager_says_is_the_daemons_alone),
        in_a_folder(a_program_runs_in_the_folder_that_is_named),
        in_a_folder(our_trainer_takes_more_arguments_before_the_daemons),
        in_a_folder(our_trainer_is_told_how_its_ranks_share_layers),
        in_a_folder(what_cannot_be_started_says_why_and_what_to_do),
        in_a_folder(a_line_that_cannot_be_cut_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
