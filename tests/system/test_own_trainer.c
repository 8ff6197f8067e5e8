/* SPDX-License-Identifier: Apache-2.0 */
/* A trainer of somebody's own below real daemons: how it is started, where what it prints goes while daemons are
 * killed, what becomes of one that hangs; and what status says while one waits for other islands. */
#include "tests/lib/testlib.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/fsio.h"
#include "common/mem.h"
#include "tests/lib/cli.h"
#include "tests/lib/cluster.h"
#include "tests/lib/proc.h"

static const char spec[] = "[run]\nname = own\nsteps = 100000\n[model]\nlayers = 2\n"
                           "[sync]\ninterval = 10\nlayers_per_fragment = 1\noverlap = 2\n";

static bool step_reaches(struct cluster *cluster, uint32_t i, long long step)
{
    return cluster_trainer_number(cluster, i, "step") >= step;
}

/* How often the log has each of the lines "said 1." to "said N."; fails for one that it has not. */
static void assert_said_each(struct cluster *cluster, long long from, long long until)
{
    char *text;
    size_t bytes;
    assert_ok(fsio_read(cluster->island[0].log, 16 << 20, &text, &bytes));
    for (long long step = from; step <= until; step++) {
        char line[64];
        snprintf(line, sizeof line, "info: trainer: said %lld.\n", step);
        if (strstr(text, line) == NULL)
            fail_msg("the log lacks: %s", line);
    }
    for (const char *at = text; (at = strstr(at, "said ")) != NULL; at++) /* none is torn */
        if (strncmp(at - 9, "trainer: ", 9) != 0 || at[strcspn(at, ".\n")] != '.' || at[strcspn(at, ".") + 1] != '\n')
            fail_msg("a torn line: %.60s", at - 20);
    mem_free(text);
}

static void a_chatty_trainer_outlives_its_daemon_and_is_heard_by_the_next(void **state)
{
    (void)state;
    struct cluster_options options = {.run = spec, .data = "sleep=60 chat=1"};
    struct cluster *cluster = cluster_new("own-chatty", 1, &options);
    long long step = 20;
    cluster_start(cluster, 0);
    cluster_wait(cluster, 0, step_reaches, step, "some steps");
    int trainer = cluster_trainer_pid(cluster, 0);
    for (int i = 0; i < 3; i++) {
        step = cluster_trainer_number(cluster, 0, "step");
        assert_int_equal(cluster_end(cluster, 0, SIGKILL), 128 + SIGKILL);
        proc_sleep_ms(1000); /* it prints on, to nobody */
        assert_int_equal(kill(trainer, 0), 0);
        cluster_start(cluster, 0);
        cluster_wait(cluster, 0, step_reaches, step + 30, "it goes on");
        assert_int_equal(cluster_trainer_pid(cluster, 0), trainer);
    }
    step = cluster_trainer_number(cluster, 0, "step");
    cluster_wait(cluster, 0, step_reaches, step + 10, "the log to follow");
    assert_said_each(cluster, 2, step);
    assert_int_equal(cluster_end(cluster, 0, SIGTERM), 0);
    cluster_free(cluster);
}

static void one_that_hangs_is_killed_and_started_again(void **state)
{
    (void)state;
    struct cluster_options options = {.run = spec, .data = "sleep=20 hang=30", .more = "[worker]\nhang = 3s\n"};
    struct cluster *cluster = cluster_new("own-hangs", 1, &options);
    cluster_start(cluster, 0);
    cluster_wait(cluster, 0, step_reaches, 25, "some steps");
    int trainer = cluster_trainer_pid(cluster, 0);
    assert_true(cluster_log_has(cluster, 0, "it is taken to hang ([worker] hang)", 30));
    assert_true(cluster_log_has(cluster, 0, "was killed by signal 9", 10));
    cluster_wait(cluster, 0, step_reaches, 60, "it goes on");
    assert_int_not_equal(cluster_trainer_pid(cluster, 0), trainer);
    assert_int_equal(cluster_end(cluster, 0, SIGTERM), 0);
    cluster_free(cluster);
}

/* Its own [worker] program instead of the synthetic one's line. */
static void set_program(struct cluster *cluster, const char *program)
{
    char *text;
    size_t bytes;
    assert_ok(fsio_read(cluster->island[0].conf, 1 << 16, &text, &bytes));
    char *at = strstr(text, "program = ");
    const char *rest = strchr(at, '\n');
    *at = '\0';
    testlib_file(cluster->folder, strrchr(cluster->island[0].conf, '/') + 1, "%sprogram = %s%s", text, program, rest);
    mem_free(text);
}

/* Words with quotes, the folder it runs in, what it prints, and that it is none of ours; by a link, whose name stays,
 * as Python finds its virtual environment by that. */
static void it_is_started_with_its_words_in_the_configurations_folder(void **state)
{
    (void)state;
    struct cluster_options options = {.run = spec, .data = "sleep=20"};
    struct cluster *cluster = cluster_new("own-words", 1, &options);
    set_program(cluster, "./link.sh \"two words\" --lr 3e-4");
    const char *script =
        testlib_file(cluster->folder, "own.sh", "%s",
                     "#!/bin/sh\necho \"as ${0##*/}\"\nls run.ini\nls \"$DILOCO_SOCKET\" >/dev/null && echo found it\n"
                     "for word in \"$@\"; do echo \"<$word>\" >&2; done\n"
                     "echo \"unbuffered $PYTHONUNBUFFERED\"\nprintf 'a\\rb\\rbar\\n'\nexec sleep 60\n");
    assert_int_equal(chmod(script, 0755), 0);
    assert_int_equal(symlink("own.sh", testlib_path(cluster->folder, "link.sh")), 0);
    assert_int_equal(RUN("dilocod", "--check-config", "--config", cluster->island[0].conf), 0);
    cluster_start(cluster, 0);
    static const char *const wants[] = {"trainer: as link.sh\n",   "trainer: run.ini\n", "trainer: found it\n",
                                        "trainer: <two words>\n",  "trainer: <--lr>\n",  "trainer: <3e-4>\n",
                                        "trainer: unbuffered 1\n", "trainer: bar\n"};
    for (size_t i = 0; i < sizeof wants / sizeof wants[0]; i++)
        assert_true(cluster_log_has(cluster, 0, wants[i], 10));
    assert_int_equal(cluster_end(cluster, 0, SIGTERM), 0);
    cluster_free(cluster);
}

/* Until the first island's status, as JSON, has this text; a daemon that has just begun does not answer yet. */
static void assert_status_says(struct cluster *cluster, const char *text)
{
    for (int i = 0; i < 400; i++) {
        int status = RUN("dilococtl", "status", "--json", "--socket", cluster->island[0].control);
        if (status == 0 && strstr(cli_out, text) != NULL)
            return;
        proc_sleep_ms(50);
    }
    fail_msg("\"%s\" does not come:\n%s", text, cli_out);
}

/* As a service with a hand-written `python3`, whose environment another shell has. */
static void a_name_without_a_folder_is_told_as_the_file_that_is_found(void **state)
{
    (void)state;
    struct cluster_options options = {.run = spec, .data = "sleep=20"};
    struct cluster *cluster = cluster_new("own-bare", 1, &options);
    char *before, *path, *want;
    char *there = realpath(cluster->folder, NULL);
    assert_ok(mem_strdup(getenv("PATH"), &before));
    assert_ok(mem_printf(&path, "%s:%s", there, before));
    set_program(cluster, "our-python train.py");
    assert_int_equal(RUN("dilocod", "--check-config", "--config", cluster->island[0].conf), 2);
    assert_says("there is no program our-python beside dilocod or in PATH; write its whole path");
    cluster_start(cluster, 0);
    assert_true(cluster_log_has(cluster, 0, "error: [worker] program: there is no program our-python beside", 10));
    assert_int_equal(cluster_end(cluster, 0, SIGTERM), 0);
    const char *python = testlib_file(cluster->folder, "our-python", "#!/bin/sh\necho No module named torch\nexit 1\n");
    assert_int_equal(chmod(python, 0755), 0);
    setenv("PATH", path, 1);
    assert_int_equal(RUN("dilocod", "--check-config", "--config", cluster->island[0].conf), 0);
    assert_ok(mem_printf(&want, "[worker] program: our-python is %s/our-python here", there));
    assert_says(want);
    cluster_start(cluster, 0);
    assert_true(cluster_log_has(cluster, 0, want, 10));
    setenv("PATH", before, 1);
    mem_free(want);
    assert_ok(mem_printf(&want, "it is %s/our-python, the first our-python in this daemon's PATH", there));
    assert_status_says(cluster, want);
    assert_non_null(strstr(cli_out, "No module named torch"));
    assert_non_null(strstr(cli_out, "as /srv/venv/bin/our-python, and restart the daemon"));
    assert_int_equal(cluster_end(cluster, 0, SIGTERM), 0);
    cluster_free(cluster);
    mem_free(want);
    mem_free(path);
    mem_free(before);
    free(there);
}

static void assert_waits(struct cluster *cluster, const char *text)
{
    for (int i = 0; i < 200; i++) {
        assert_int_equal(RUN("dilococtl", "status", "--socket", cluster->island[0].control), 0);
        if (strstr(cli_out, text) != NULL)
            return;
        proc_sleep_ms(100);
    }
    fail_msg("\"%s\" does not come:\n%s", text, cli_out);
}

/* Whose share of a round is missing stops both; what it says then is not what it was. */
static void one_that_waits_for_others_is_said_to(void **state)
{
    (void)state;
    char run[300];
    snprintf(run, sizeof run, "%slate = wait\n", spec);
    struct cluster_options options = {.run = run, .data = "sleep=10", .more = "[worker]\nhang = 2s\n"};
    struct cluster *cluster = cluster_new("own-waits", 2, &options);
    for (uint32_t i = 0; i < 2; i++)
        cluster_start(cluster, i);
    cluster_wait(cluster, 0, cluster_versions_reach, 6, "some versions");
    int trainer = cluster_trainer_pid(cluster, 0);
    assert_int_equal(cluster_end(cluster, 1, SIGKILL), 128 + SIGKILL);
    proc_kill_trainer(cluster->island[1].state);
    assert_waits(cluster, "trainer    waits for b (for ");
    assert_null(strstr(cli_out, "tokens/s"));
    assert_waits(cluster, "training stands still until they are back");
    assert_null(strstr(cli_out, "until a round closes that waits")); /* it is the same event */
    assert_int_equal(RUN("dilococtl", "status", "-v", "--socket", cluster->island[0].control), 0);
    assert_non_null(strstr(cli_out,
                           "follows    the trainer stands still, as late = wait has it, until a round closes that "
                           "waits for b, for "));
    assert_null(strstr(cli_out, "trains on alone")); /* nor does the advice say that it would */
    assert_null(strstr(cli_out, "training goes on alone"));
    assert_int_equal(RUN("dilococtl", "status", "--json", "--socket", cluster->island[0].control), 0);
    json_t *json = cli_parsed(), *part = json_object_get(json, "trainer");
    assert_string_equal(json_string_value(json_object_get(part, "state")), "training");
    assert_true(json_number_value(json_object_get(part, "waits_s")) > 2);
    assert_true(json_number_value(json_object_get(part, "tokens_per_s")) == 0);
    json_decref(json);
    proc_sleep_ms(3000); /* for longer than one may hang, which this is not */
    assert_int_equal(cluster_trainer_pid(cluster, 0), trainer);
    cluster_start(cluster, 1);
    cluster_wait(cluster, 0, cluster_versions_reach, 20, "rounds again");
    assert_waits(cluster, "trainer    training");
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(cluster_end(cluster, i, SIGTERM), 0);
    cluster_free(cluster);
}

int main(void)
{
    cli_init(testlib_folder("own-trainer"));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chatty_trainer_outlives_its_daemon_and_is_heard_by_the_next),
        cmocka_unit_test(one_that_hangs_is_killed_and_started_again),
        cmocka_unit_test(it_is_started_with_its_words_in_the_configurations_folder),
        cmocka_unit_test(a_name_without_a_folder_is_told_as_the_file_that_is_found),
        cmocka_unit_test(one_that_waits_for_others_is_said_to),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
