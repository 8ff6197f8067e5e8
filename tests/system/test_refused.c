/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Real daemons refuse: strangers, another run, other tensors, what is too large, what is taken already. Each time one
 * clear message says what and what to do, and who was right goes on.
 */
#include "tests/lib/testlib.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/fsio.h"
#include "common/mem.h"
#include "daemon/ctl/ctl_client.h"
#include "net/transport/ident.h"
#include "tests/lib/cluster.h"
#include "tests/lib/trouble.h"
#include "worker/libdiloco/diloco.h"

static void order(struct cluster *cluster, uint32_t i, const char *request)
{
    json_t *answer;
    assert_ok(ctl_ask(cluster->island[i].control, request, &answer));
    json_decref(answer);
}

static void strangers_are_refused_and_named(void **state)
{
    (void)state;
    struct cluster_options options = {.run = trouble_spec, .data = trouble_data};
    struct cluster *cluster = trouble_begin("stranger", 2);
    struct cluster *other = cluster_new("stranger2", 2, &options);
    /* It is in a run of the same founder, where that listens; but a does not know it. */
    other->island[0].port = cluster->island[0].port;
    char *secret;
    size_t bytes;
    assert_ok(fsio_read(cluster->island[0].key, 1024, &secret, &bytes));
    assert_ok(fsio_replace(other->island[0].key, secret, bytes, 0600));
    mem_free(secret);
    cluster_configure(other, 0, &options);
    cluster_configure(other, 1, &options);
    cluster_start(other, 1);
    assert_true(cluster_log_has(cluster, 0, "refused a connection with unknown key", 10));
    char known_by[IDENT_TEXT_BYTES]; /* what a connection shows of a key */
    struct ident ident;
    assert_ok(ident_load(other->island[1].key, &ident));
    ident_text(ident.curve_key, known_by);
    assert_true(cluster_log_has(cluster, 0, known_by, 0));
    assert_true(cluster_log_has(other, 1, "does not admit our key", 10));
    cluster_end(other, 1, SIGTERM);
    cluster_free(other);
    trouble_end_well(cluster);
}

static void another_run_spec_is_refused(void **state)
{
    (void)state;
    struct cluster_options options = {.run = trouble_spec, .data = trouble_data};
    struct cluster *cluster = cluster_new("otherspec", 2, &options);
    cluster_start(cluster, 0);
    cluster_wait(cluster, 0, cluster_training, 0, "training");
    char text[1024];
    snprintf(text, sizeof text, "%s", trouble_spec);
    memcpy(strstr(text, "steps = 300"), "steps = 301", 11);
    assert_ok(fsio_replace(cluster->run, text, strlen(text), 0644));
    cluster_start(cluster, 1);
    assert_true(cluster_log_has(cluster, 0, "island b is refused: it has another run spec", 10));
    assert_true(cluster_log_has(cluster, 1, "island a is refused: it has another run spec", 10));
    cluster_end(cluster, 1, SIGTERM);
    /* With the right one it is there: nothing was saved under the other. */
    assert_ok(fsio_replace(cluster->run, trouble_spec, strlen(trouble_spec), 0644));
    cluster_start(cluster, 1);
    assert_true(cluster_log_has(cluster, 0, "island b is here", 10));
    trouble_end_well(cluster);
}

static void a_trainer_with_other_tensors_is_refused(void **state)
{
    (void)state;
    struct cluster_options options = {.run = trouble_spec, .data = trouble_data},
                           wrong = {.run = trouble_spec, .data = "sleep=15 size=1600"};
    struct cluster *cluster = cluster_new("othermodel", 2, &options);
    cluster_configure(cluster, 1, &wrong);
    cluster_start(cluster, 0);
    cluster_wait(cluster, 0, cluster_training, 0, "training");
    cluster_start(cluster, 1);
    /* Whether it learns the run's plan before its own trainer registers is a race; either way it says what is wrong. */
    bool refused = false;
    for (int k = 0; k < 100 && !refused; k++) {
        refused = cluster_log_has(cluster, 1, "its tensors are not those of the run: tensor 1 is layers.0.weight", 0) ||
                  cluster_log_has(cluster, 1, "its model has other tensors", 0);
        usleep(100000);
    }
    assert_true(refused);
    cluster_end(cluster, 0, SIGTERM);
    cluster_end(cluster, 1, SIGTERM);
    cluster_free(cluster);
}

/* Refused by what it would take, before anything is allocated; the daemon goes on and takes the next trainer. */
static void a_model_too_large_is_refused(void **state)
{
    (void)state;
    struct cluster_options options = {.run = trouble_spec, .data = trouble_data, .more = "autostart = no"};
    struct cluster *cluster = cluster_new("large", 1, &options);
    char socket[400];
    cluster_start(cluster, 0);
    cluster_wait(cluster, 0, cluster_peers_up, 1, "the daemon");
    snprintf(socket, sizeof socket, "%s/worker.sock", cluster->island[0].sockets);
    struct diloco *d;
    struct diloco_start start = {.size = sizeof(struct diloco_start)};
    static float nothing[1];
    const struct diloco_tensor huge = {
        .size = sizeof(struct diloco_tensor), .name = "huge", .data = nothing, .dims = 1, .shape = {(uint64_t)1 << 44}};
    assert_int_equal(
        diloco_attach(
            &(struct diloco_options){.size = sizeof(struct diloco_options), .socket_path = socket, .wait_ms = 5000},
            &d),
        DILOCO_OK);
    assert_int_equal(diloco_register(d, &huge), DILOCO_OK);
    assert_int_equal(diloco_begin(d, &start), DILOCO_REFUSED);
    if (strstr(diloco_error(d), "GiB here, and this machine has") == NULL)
        fail_msg("%s", diloco_error(d));
    diloco_detach(d);
    order(cluster, 0, "resume");
    trouble_end_well(cluster);
}

static void a_second_trainer_is_told(void **state)
{
    (void)state;
    struct cluster_options options = {.run = trouble_spec, .data = trouble_data};
    struct cluster *cluster = cluster_new("second", 1, &options);
    char socket[400];
    cluster_start(cluster, 0);
    cluster_wait(cluster, 0, cluster_training, 0, "training");
    snprintf(socket, sizeof socket, "%s/worker.sock", cluster->island[0].sockets);
    for (int i = 0; i < 2; i++) {
        struct diloco *d;
        struct diloco_start start = {.size = sizeof(struct diloco_start)};
        float values[4] = {0};
        const struct diloco_tensor tensor = {
            .size = sizeof(struct diloco_tensor), .name = "other", .data = values, .dims = 1, .shape = {4}};
        assert_int_equal(
            diloco_attach(
                &(struct diloco_options){.size = sizeof(struct diloco_options), .socket_path = socket, .wait_ms = 5000},
                &d),
            DILOCO_OK);
        assert_int_equal(diloco_register(d, &tensor), DILOCO_OK);
        assert_int_equal(diloco_begin(d, &start), DILOCO_REFUSED);
        if (strstr(diloco_error(d), "is attached already") == NULL)
            fail_msg("%s", diloco_error(d));
        diloco_detach(d);
    }
    trouble_end_well(cluster);
}

static void different_initial_tensors_become_one(void **state)
{
    (void)state;
    struct cluster_options options = {.run = trouble_spec, .data = trouble_data},
                           other = {.run = trouble_spec, .data = "sleep=15 seed=8"};
    struct cluster *cluster = cluster_new("otherseed", 2, &options);
    cluster_configure(cluster, 1, &other);
    cluster_start_all(cluster);
    trouble_end_well(cluster);
}

/* Starts island b with one line of its configuration changed; it ends with status 2 and says why. */
static void assert_refuses_to_start(struct cluster *cluster, const char *from, const char *to, const char *why)
{
    struct cluster_options options = {.run = trouble_spec, .data = trouble_data};
    char *text, *changed;
    size_t bytes;
    cluster_configure(cluster, 1, &options);
    assert_ok(fsio_read(cluster->island[1].conf, 1 << 16, &text, &bytes));
    char *at = strstr(text, from);
    assert_non_null(at);
    assert_ok(mem_printf(&changed, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from)));
    assert_ok(fsio_replace(cluster->island[1].conf, changed, strlen(changed), 0644));
    mem_free(changed);
    mem_free(text);
    cluster_start(cluster, 1);
    assert_int_equal(cluster_wait_end(cluster, 1, 10), 2);
    if (!cluster_log_has(cluster, 1, why, 0)) {
        cluster_print_logs(cluster);
        fail_msg("the log does not say: %s", why);
    }
}

static void used_ports_sockets_and_folders_are_named(void **state)
{
    (void)state;
    struct cluster *cluster = trouble_begin("ports", 2);
    char own[64], others[64];
    cluster_end(cluster, 1, SIGTERM);
    snprintf(own, sizeof own, "listen = 127.0.0.1:%u", cluster->island[1].port);
    snprintf(others, sizeof others, "listen = 127.0.0.1:%u", cluster->island[0].port);
    assert_refuses_to_start(cluster, own, others, "the port is in use");
    assert_refuses_to_start(cluster, "sockets = s-b", "sockets = s-a", "another dilocod is running");
    assert_refuses_to_start(cluster, "state = state-b", "state = state-a", "in use by another dilocod");
    cluster_wait(cluster, 0, cluster_training, 0, "the first one to be undisturbed");
    assert_int_equal(cluster_end(cluster, 0, SIGTERM), 0);
    cluster_free(cluster);
}

static void a_disk_that_is_too_small_is_refused_before_anything_is_taken(void **state)
{
    (void)state;
    struct cluster_options options = {.run = trouble_spec, .data = trouble_data};
    struct cluster *cluster = cluster_new("small", 2, &options);
    char path[600];
    assert_ok(fsio_mkdirs(cluster->island[1].state, 0755));
    if (mount("tmpfs", cluster->island[1].state, "tmpfs", 0, "size=40k") != 0) {
        cluster_free(cluster);
        skip_because("no right to mount a small file system");
    }
    cluster_start_all(cluster);
    assert_true(cluster_log_has(cluster, 1, "MiB of disk in ", 60));
    assert_true(cluster_log_has(cluster, 1, "MiB are free there; free some space, or set [island] state", 5));
    snprintf(path, sizeof path, "%s/plan.txt", cluster->island[1].state);
    assert_int_equal(access(path, F_OK), -1);
    cluster_end(cluster, 0, SIGTERM);
    cluster_end(cluster, 1, SIGTERM);
    assert_int_equal(umount(cluster->island[1].state), 0);
    cluster_free(cluster);
}

int main(int argc, char **argv)
{
    assert_ok(digest_init());
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strangers_are_refused_and_named),
        cmocka_unit_test(another_run_spec_is_refused),
        cmocka_unit_test(a_trainer_with_other_tensors_is_refused),
        cmocka_unit_test(a_model_too_large_is_refused),
        cmocka_unit_test(a_second_trainer_is_told),
        cmocka_unit_test(different_initial_tensors_become_one),
        cmocka_unit_test(used_ports_sockets_and_folders_are_named),
        cmocka_unit_test(a_disk_that_is_too_small_is_refused_before_anything_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
