/* SPDX-License-Identifier: Apache-2.0 */
/* What a start takes over of what was saved, and what it refuses: with exit status 2, the reason and the remedy, and
 * without a change to what is there. */
#include "tests/lib/testlib.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/fsio.h"
#include "common/mem.h"
#include "net/transport/ident.h"
#include "tests/lib/cluster.h"
#include "tests/lib/proc.h"

enum { A, WRONG_SPEC_OR_CONF = 2, PATIENCE_S = 30, FRAGMENTS = 3, VERSIONS = 6 };

/* No round is due before step 200. */
static const char late[] = "[run]\nname = saved\nsteps = 400\n[model]\nlayers = 2\n"
                           "[sync]\ninterval = 200\nlayers_per_fragment = 1\n";
static const char spec[] = "[run]\nname = saved\nsteps = 4000\n[model]\nlayers = 2\n"
                           "[sync]\ninterval = 10\nlayers_per_fragment = 1\n";
static const struct cluster_options options = {.run = spec, .data = "sleep=15"};

static struct cluster *cluster;

static int end(void **state)
{
    (void)state;
    cluster_free(cluster);
    return 0;
}

static void set_spec(const char *text)
{
    assert_ok(fsio_replace(cluster->run, text, strlen(text), 0644));
}

static const char *saved(const char *name)
{
    return testlib_path(cluster->island[A].state, name);
}

static void end_daemon(void)
{
    assert_int_equal(cluster_end(cluster, A, SIGTERM), 0);
}

static void assert_refused(const char *reason)
{
    unlink(cluster->island[A].log);
    cluster_start(cluster, A);
    assert_int_equal(cluster_wait_end(cluster, A, PATIENCE_S), WRONG_SPEC_OR_CONF);
    assert_true(cluster_log_has(cluster, A, reason, 0));
    assert_true(cluster_log_has(cluster, A, "[island] state", 0)); /* what to do */
}

/* Some rounds are closed and saved. */
static void run_some(void)
{
    cluster_start(cluster, A);
    cluster_wait(cluster, A, cluster_versions_reach, VERSIONS, "some versions");
    end_daemon();
}

static void assert_goes_on(void)
{
    cluster_start(cluster, A);
    cluster_wait(cluster, A, cluster_training, 0, "training");
    assert_true(cluster_status_number(cluster, A, "versions") >= VERSIONS);
    end_daemon();
}

/* Whoever has lost its key is a stranger; what it saved is kept for its owner. */
static void with_a_new_address_it_goes_on_and_with_a_new_key_it_is_told_how(void **state)
{
    (void)state;
    struct ident ident;
    struct cluster_island *island;
    cluster = cluster_new("saved-key", 1, &options);
    island = &cluster->island[A];
    run_some();
    island->port = proc_free_port();
    cluster_configure(cluster, A, &options);
    assert_goes_on();
    assert_ok(ident_generate(&ident));
    assert_int_equal(rename(island->key, saved("old.key")), 0);
    assert_ok(ident_save(&ident, island->key));
    char known[sizeof island->public_key];
    memcpy(known, island->public_key, sizeof known);
    snprintf(island->public_key, sizeof island->public_key, "%s", ident.public_text);
    cluster_configure(cluster, A, &options);
    unlink(island->log);
    cluster_start(cluster, A);
    assert_int_equal(cluster_wait_end(cluster, A, PATIENCE_S), WRONG_SPEC_OR_CONF);
    assert_true(cluster_log_has(cluster, A, "is not on the roster", 0));
    assert_true(cluster_log_has(cluster, A, "invitation", 0)); /* what to do */
    assert_int_equal(rename(saved("old.key"), island->key), 0);
    memcpy(island->public_key, known, sizeof known);
    cluster_configure(cluster, A, &options);
    assert_goes_on();
}

/* ---- the run spec ---- */

/* Which leaves a plan, initial tensors, and what its trainer saved. */
static void start_without_a_round(const char *text)
{
    set_spec(text);
    cluster_start(cluster, A);
    cluster_wait(cluster, A, cluster_training, 0, "training");
    for (int i = 0; i < 1000 && access(saved("fragment-0002.safetensors"), F_OK) != 0; i++)
        proc_sleep_ms(10);
    assert_int_equal(access(saved("fragment-0002.safetensors"), F_OK), 0);
    end_daemon();
    (void)!mkdir(saved("worker"), 0755);
    testlib_file(saved("worker"), "worker-2.safetensors", "%s", text);
}

static void a_run_spec_is_corrected_as_long_as_nothing_was_saved_under_it(void **state)
{
    (void)state;
    cluster = cluster_new("saved-spec", 1, &options);
    start_without_a_round(late);
    set_spec(spec);
    run_some();
    assert_true(cluster_log_has(cluster, A, "No round was saved under that one", 0));
    assert_int_equal(access(saved("worker.1/worker-2.safetensors"), F_OK), 0); /* its owner may throw it away */
    set_spec(late);
    assert_refused("belongs to another run");
    /* Nor is it taken where the ledger is gone, or the plan: the checkpoints are there. */
    assert_int_equal(unlink(saved("ledger-000000000002.log")), 0);
    assert_refused("belongs to another run");
    char *plan;
    size_t bytes;
    assert_ok(fsio_read(saved("plan.txt"), 1 << 20, &plan, &bytes));
    assert_int_equal(unlink(saved("plan.txt")), 0);
    assert_refused("belongs to another run");
    assert_ok(fsio_replace(saved("plan.txt"), plan, bytes, 0644));
    mem_free(plan);
    set_spec(spec);
    assert_goes_on();
}

/* ---- the plan ---- */

static ino_t inode_of(const char *path)
{
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    return status.st_ino;
}

static void the_plan_is_written_once_and_brought_anew_where_it_is_damaged(void **state)
{
    (void)state;
    char *plan;
    size_t bytes;
    cluster = cluster_new("saved-plan", 1, &options);
    run_some();
    const char *path = saved("plan.txt");
    ino_t written = inode_of(path);
    assert_goes_on();
    assert_int_equal(inode_of(path), written);
    /* A digit of the last shape: a plan all the same, of another model. */
    assert_ok(fsio_read(path, 1 << 20, &plan, &bytes));
    plan[bytes - 2] = plan[bytes - 2] == '4' ? '3' : '4';
    assert_ok(fsio_replace(path, plan, bytes, 0644));
    mem_free(plan);
    assert_goes_on();
    assert_true(cluster_log_has(cluster, A, "plan.txt: damaged", 0));
    assert_int_equal(access(saved("plan.txt.damaged"), F_OK), 0);
    assert_int_equal(access(path, F_OK), 0);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(with_a_new_address_it_goes_on_and_with_a_new_key_it_is_told_how, end),
        cmocka_unit_test_teardown(a_run_spec_is_corrected_as_long_as_nothing_was_saved_under_it, end),
        cmocka_unit_test_teardown(the_plan_is_written_once_and_brought_anew_where_it_is_damaged, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
