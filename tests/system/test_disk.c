/* SPDX-License-Identifier: Apache-2.0 */
/* A disk that is full, fails or may only be read, of an owner of three: it says so, the others go on without it, and it
 * comes back by itself. What its files say to changes is tests/preloaded/faulty.c. */
#include "tests/lib/testlib.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/fsio.h"
#include "common/mem.h"
#include "daemon/ctl/ctl_client.h"
#include "tests/lib/cluster.h"

enum { ISLANDS = 3, A = 0, B = 1, SOME = 20, LINES_MAX = 40 };

static const char spec[] = "[run]\nname = disk\nsteps = 100000\n[model]\nlayers = 2\n"
                           "[sync]\ninterval = 10\nlayers_per_fragment = 1\noverlap = 2\nlate = merge\n";
static const struct cluster_options options = {.run = spec, .data = "sleep=15"};

static char error_file[600];

/* The disk of b answers every change so from now on; 0: it works. */
static void set_disk(int error)
{
    char text[16];
    int length = snprintf(text, sizeof text, "%d", error);
    assert_ok(fsio_replace(error_file, text, (size_t)length, 0644));
}

static struct cluster *begin(const char *name)
{
    char folder[PATH_MAX], preload[400];
    const char *build = getenv("BUILD"), *sanitizer = getenv("SAN");
    if (sanitizer != NULL && sanitizer[0] != '\0')
        skip_because("a sanitizer's library wants to be the first one");
    struct cluster *cluster = cluster_new(name, ISLANDS, &options);
    assert_ok(fsio_mkdirs(cluster->island[B].state, 0755));
    assert_non_null(realpath(cluster->island[B].state, folder));
    snprintf(error_file, sizeof error_file, "%s/disk-error", cluster->folder);
    snprintf(preload, sizeof preload, "%s/tests/faulty.so", build != NULL ? build : "build/gcc");
    set_disk(0);
    setenv("FAULTY_FOLDER", folder, 1);
    setenv("FAULTY_ERROR", error_file, 1);
    setenv("LD_PRELOAD", preload, 1);
    cluster_start(cluster, B);
    unsetenv("LD_PRELOAD");
    for (uint32_t i = 0; i < ISLANDS; i++)
        if (i != B)
            cluster_start(cluster, i);
    for (uint32_t i = 0; i < ISLANDS; i++)
        cluster_wait(cluster, i, cluster_versions_reach, SOME, "some versions");
    return cluster;
}

static void all_go_on(struct cluster *cluster, bool with_b)
{
    long long versions = cluster_status_number(cluster, A, "versions");
    for (uint32_t i = 0; i < ISLANDS; i++)
        if (i != B || with_b)
            cluster_wait(cluster, i, cluster_versions_reach, versions + SOME, "more versions");
}

static size_t log_lines(const struct cluster *cluster, uint32_t i)
{
    char *text;
    size_t bytes, lines = 0;
    assert_ok(fsio_read(cluster->island[i].log, 1 << 28, &text, &bytes));
    for (const char *at = text, *end; (end = strchr(at, '\n')) != NULL; at = end + 1)
        lines += memmem(at, (size_t)(end - at), " debug: ", 8) == NULL;
    mem_free(text);
    return lines;
}

static bool says(struct cluster *cluster, uint32_t i, long long code)
{
    static const char *const codes[] = {"disk", "peer-disk"};
    json_t *status = cluster_ask(cluster, i, "status");
    const json_t *complaints = json_object_get(status, "degraded");
    bool found = false;
    for (size_t k = 0; k < json_array_size(complaints); k++)
        found |= strcmp(ctl_text(json_array_get(complaints, k), "code"), codes[code]) == 0;
    json_decref(status);
    return found;
}

/* Nobody's patience is used up: the others know it from b, not by waiting for what does not come. */
static void assert_it_is_said_and_nobody_waits(int error, const char *what, const char *remedy)
{
    char name[32];
    snprintf(name, sizeof name, "disk-%d", error);
    struct cluster *cluster = begin(name);
    set_disk(error);
    size_t lines = log_lines(cluster, B);
    assert_true(
        cluster_log_has(cluster, A, "island b says that its disk keeps nothing: the run goes on without it", 60));
    cluster_wait(cluster, A, says, 1, "saying so of b in status");
    cluster_wait(cluster, B, says, 0, "saying so in status");
    for (int k = 0; k < 12; k++)
        all_go_on(cluster, false);
    assert_true(cluster_log_has(cluster, B, what, 0));
    assert_true(cluster_log_has(cluster, B, remedy, 0));
    assert_in_range(log_lines(cluster, B) - lines, 1, LINES_MAX);
    set_disk(0);
    assert_true(cluster_log_has(cluster, A, "island b takes part again", 60));
    all_go_on(cluster, true);
    for (uint32_t i = 0; i < ISLANDS; i++) {
        assert_false(cluster_log_has(cluster, i, "it makes no result of its shards", 0));
        assert_false(cluster_log_has(cluster, i, "island b: its contributions do not come in time", 0));
    }
    for (uint32_t i = 0; i < ISLANDS; i++)
        cluster_end(cluster, i, SIGTERM);
    cluster_free(cluster);
}

static void a_full_disk_stops_nobody_else(void **state)
{
    (void)state;
    assert_it_is_said_and_nobody_waits(ENOSPC, "No space left on device", "free some space");
}

static void a_disk_that_fails_stops_nobody_else(void **state)
{
    (void)state;
    assert_it_is_said_and_nobody_waits(EIO, "Input/output error", "look at what the kernel says of it (dmesg)");
}

static void a_disk_that_may_only_be_read_stops_nobody_else(void **state)
{
    (void)state;
    assert_it_is_said_and_nobody_waits(EROFS, "Read-only file system", "mount -o remount,rw");
}

static void a_folder_that_is_removed_ends_its_daemon(void **state)
{
    (void)state;
    struct cluster *cluster = cluster_new("disk-removed", ISLANDS, &options);
    char command[600];
    cluster_start_all(cluster);
    for (uint32_t i = 0; i < ISLANDS; i++)
        cluster_wait(cluster, i, cluster_versions_reach, SOME, "some versions");
    int trainer = cluster_trainer_pid(cluster, B);
    snprintf(command, sizeof command, "rm -rf '%s'", cluster->island[B].state);
    assert_int_equal(system(command), 0);
    assert_int_equal(cluster_wait_end(cluster, B, 90), 2); /* nor is it started again */
    assert_true(cluster_log_has(cluster, B, "was removed or replaced, so what is saved is lost: this daemon ends", 0));
    assert_int_equal(kill(trainer, 0), -1); /* nor does its trainer go on for nobody */
    assert_int_equal(access(cluster->island[B].state, F_OK), -1);
    all_go_on(cluster, false);
    cluster_start(cluster, B); /* its port is free */
    assert_true(cluster_log_has(cluster, A, "island b takes part again", 60));
    all_go_on(cluster, true);
    for (uint32_t i = 0; i < ISLANDS; i++)
        cluster_end(cluster, i, SIGTERM);
    cluster_free(cluster);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_disk_stops_nobody_else),
        cmocka_unit_test(a_disk_that_fails_stops_nobody_else),
        cmocka_unit_test(a_disk_that_may_only_be_read_stops_nobody_else),
        cmocka_unit_test(a_folder_that_is_removed_ends_its_daemon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
