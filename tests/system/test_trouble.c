/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Real daemons in trouble: things are killed, lost, damaged, misconfigured or full. Each time there is one clear
 * message, nothing that was saved is lost, and in the end all islands hold the same anchors.
 */
#include "tests/lib/testlib.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/env.h"
#include "common/fsio.h"
#include "common/ipc.h"
#include "common/mem.h"
#include "daemon/ctl/ctl_client.h"
#include "net/transport/ident.h"
#include "tests/lib/cluster.h"
#include "tests/lib/forge.h"
#include "worker/libdiloco/diloco.h"

static const char spec[] = "[run]\nname = trouble\nsteps = 300\n[model]\nlayers = 2\n"
                           "[sync]\ninterval = 10\nlayers_per_fragment = 1\noverlap = 2\nlate = merge\n";
static const char data[] = "sleep=15";

static struct cluster *begin_with(const char *name, uint32_t islands, const char *with)
{
    struct cluster_options options = {.run = spec, .data = with};
    struct cluster *cluster = cluster_new(name, islands, &options);
    cluster_start_all(cluster);
    for (uint32_t i = 0; i < islands; i++)
        cluster_wait(cluster, i, cluster_training, 0, "training");
    return cluster;
}

static struct cluster *begin(const char *name, uint32_t islands)
{
    return begin_with(name, islands, data);
}

static void end_well(struct cluster *cluster)
{
    long long last = 0;
    for (uint32_t i = 0; i < cluster->count; i++)
        cluster_wait(cluster, i, cluster_trainer_finished, 0, "the end of training");
    for (uint32_t i = 0; i < cluster->count; i++) {
        long long own = cluster_status_number(cluster, i, "versions");
        last = own > last ? own : last;
    }
    for (uint32_t i = 0; i < cluster->count; i++)
        cluster_wait(cluster, i, cluster_versions_reach, last, "the last version");
    cluster_assert_one_truth(cluster);
    cluster_assert_one_model(cluster);
    for (uint32_t i = 0; i < cluster->count; i++) {
        assert_false(cluster_log_has(cluster, i, "please report", 0));
        assert_int_equal(cluster_end(cluster, i, SIGTERM), 0);
    }
    cluster_free(cluster);
}

static void order(struct cluster *cluster, uint32_t i, const char *request)
{
    json_t *answer;
    assert_ok(ctl_ask(cluster->island[i].control, request, &answer));
    json_decref(answer);
}

static bool alive(int pid)
{
    return pid > 0 && kill(pid, 0) == 0;
}

/* ---- killed ---- */

static void a_killed_daemon_comes_back_to_its_trainer(void **state)
{
    (void)state;
    /* Slow enough that the trainer is not done before the daemon is back and has been looked at. */
    struct cluster *cluster = begin_with("kill-daemon", 2, "sleep=40");
    cluster_wait(cluster, 1, cluster_versions_reach, 4, "some versions");
    int trainer = cluster_trainer_pid(cluster, 1);
    assert_int_equal(cluster_end(cluster, 1, SIGKILL), 128 + SIGKILL);
    assert_true(alive(trainer));
    double begin_s = env_mono_s();
    cluster_wait(cluster, 0, cluster_degraded, 1, "the other island to notice");
    assert_true(cluster_log_has(cluster, 0, "island b has not been heard of", 3));
    assert_true(env_mono_s() - begin_s < 3.5);
    usleep(700000);
    assert_true(alive(trainer)); /* it trains on */
    cluster_start(cluster, 1);
    assert_true(cluster_log_has(cluster, 1, "still runs; it attaches again by itself", 5));
    assert_true(cluster_log_has(cluster, 1, "is attached again at step", 10));
    cluster_wait(cluster, 1, cluster_training, 0, "training");
    assert_int_equal(cluster_trainer_pid(cluster, 1), trainer);
    cluster_wait(cluster, 0, cluster_degraded, 0, "all to be well again");
    end_well(cluster);
}

static void a_killed_daemon_is_survived_again_and_again(void **state)
{
    (void)state;
    struct cluster *cluster = begin("kill-often", 3);
    struct env_rng rng = env_rng_init(5, 5);
    for (int round = 0; round < 6; round++) {
        uint32_t i = (uint32_t)env_rng_below(&rng, 3);
        usleep((useconds_t)env_rng_below(&rng, 400000));
        cluster_end(cluster, i, SIGKILL);
        usleep((useconds_t)env_rng_below(&rng, 300000));
        cluster_start(cluster, i);
    }
    end_well(cluster);
}

static long long trainer_step(struct cluster *cluster, uint32_t i)
{
    json_t *status = cluster_ask(cluster, i, "status");
    long long step = json_integer_value(json_object_get(json_object_get(status, "trainer"), "step"));
    json_decref(status);
    return step;
}

/* The daemon hangs (here: it is stopped) with its sockets open: the trainer must not find that out by waiting. */
static void a_daemon_that_hangs_does_not_stop_the_trainer(void **state)
{
    (void)state;
    struct cluster_options options = {
        .run = "[run]\nname = hang\nsteps = 3000\n[model]\nlayers = 2\n"
               "[sync]\ninterval = 400\nlayers_per_fragment = 1\noverlap = 2\nlate = merge\n",
        .data = "sleep=2"};
    struct cluster *cluster = cluster_new("hang", 2, &options);
    cluster_start_all(cluster);
    for (uint32_t i = 0; i < 2; i++)
        cluster_wait(cluster, i, cluster_training, 0, "training");
    double first_s = env_mono_s();
    long long first = trainer_step(cluster, 1);
    usleep(1000000);
    double stop_s = env_mono_s();
    long long stop = trainer_step(cluster, 1);
    assert_int_equal(kill(cluster->island[1].pid, SIGSTOP), 0);
    usleep(4000000);
    assert_int_equal(kill(cluster->island[1].pid, SIGCONT), 0);
    double go_s = env_mono_s();
    usleep(200000);
    long long go = trainer_step(cluster, 1);
    double before = (double)(stop - first) / (stop_s - first_s), hung = (double)(go - stop) / (go_s - stop_s);
    print_message("%.0f steps/s before, %.0f while the daemon hung\n", before, hung);
    assert_true(hung > 0.5 * before);
    end_well(cluster);
}

static void a_killed_trainer_is_started_again(void **state)
{
    (void)state;
    struct cluster *cluster = begin("kill-trainer", 2);
    cluster_wait(cluster, 1, cluster_versions_reach, 3, "some versions");
    int trainer = cluster_trainer_pid(cluster, 1);
    assert_int_equal(kill(trainer, SIGKILL), 0);
    assert_true(cluster_log_has(cluster, 1, "was killed by signal 9", 5));
    cluster_wait(cluster, 1, cluster_training, 0, "the next trainer");
    assert_int_not_equal(cluster_trainer_pid(cluster, 1), trainer);
    end_well(cluster);
}

static void everything_killed_at_once_goes_on(void **state)
{
    (void)state;
    struct cluster *cluster = begin("kill-all", 2);
    cluster_wait(cluster, 0, cluster_versions_reach, 6, "some versions");
    int trainers[2] = {cluster_trainer_pid(cluster, 0), cluster_trainer_pid(cluster, 1)};
    for (uint32_t i = 0; i < 2; i++) {
        cluster_end(cluster, i, SIGKILL);
        kill(trainers[i], SIGKILL);
    }
    cluster_start_all(cluster);
    for (uint32_t i = 0; i < 2; i++)
        assert_true(cluster_log_has(cluster, i, "recovered 3 fragments", 5));
    end_well(cluster);
}

static void a_stopped_daemon_ends_its_trainer_and_saves(void **state)
{
    (void)state;
    struct cluster *cluster = begin("stop", 2);
    cluster_wait(cluster, 0, cluster_versions_reach, 4, "some versions");
    int trainer = cluster_trainer_pid(cluster, 0);
    assert_int_equal(cluster_end(cluster, 0, SIGTERM), 0);
    assert_false(alive(trainer));
    assert_true(cluster_log_has(cluster, 1, "island a says goodbye", 3));
    cluster_start(cluster, 0);
    end_well(cluster);
}

/* ---- coming and going ---- */

static void an_island_that_starts_late_is_waited_for(void **state)
{
    (void)state;
    struct cluster_options options = {.run = spec, .data = data};
    struct cluster *cluster = cluster_new("late", 2, &options);
    cluster_start(cluster, 0);
    cluster_wait(cluster, 0, cluster_training, 0, "training alone");
    cluster_wait(cluster, 0, cluster_degraded, 1, "saying that it is alone");
    usleep(1500000);
    assert_int_equal(cluster_status_number(cluster, 0, "versions"), 0); /* no round closes over an island's head */
    cluster_start(cluster, 1);
    end_well(cluster);
}

static bool trainer_stopped(struct cluster *cluster, uint32_t i, long long unused)
{
    (void)unused;
    return strcmp(cluster_trainer(cluster, i), "stopped") == 0;
}

static void an_island_leaves_and_joins(void **state)
{
    (void)state;
    struct cluster *cluster = begin("leave", 2);
    cluster_wait(cluster, 1, cluster_versions_reach, 4, "some versions");
    order(cluster, 1, "pause");
    cluster_wait(cluster, 1, trainer_stopped, 0, "having left");
    assert_true(cluster_log_has(cluster, 1, "its last contributions are counted", 1));
    long long then = cluster_status_number(cluster, 0, "versions");
    cluster_wait(cluster, 0, cluster_versions_reach, then + 6, "rounds without the island that left");
    cluster_wait(cluster, 1, cluster_versions_reach, then + 6, "the island that left to follow");
    order(cluster, 1, "resume");
    cluster_wait(cluster, 1, cluster_training, 0, "training again");
    json_t *answer;
    assert_fails(ERR_STATE, "running already", ctl_ask(cluster->island[1].control, "resume", &answer));
    assert_fails(ERR_STATE, "no command", ctl_ask(cluster->island[1].control, "jion", &answer));
    end_well(cluster);
}

static bool says_it_waits(struct cluster *cluster, uint32_t i, long long unused)
{
    (void)unused;
    json_t *status = cluster_ask(cluster, i, "status");
    char *text = json_dumps(status, JSON_COMPACT);
    bool says = text != NULL && strstr(text, "it waits for b") != NULL && strstr(text, "pause --now") != NULL;
    free(text);
    json_decref(status);
    return says;
}

/* Leaving waits for rounds that need an island that is away: it says so, and can be cut short. */
static void leaving_without_the_others_is_explained_and_can_be_cut_short(void **state)
{
    (void)state;
    struct cluster *cluster = begin_with("leavealone", 2, "sleep=40");
    cluster_wait(cluster, 0, cluster_versions_reach, 2, "some versions");
    assert_int_equal(cluster_end(cluster, 1, SIGTERM), 0);
    order(cluster, 0, "pause");
    cluster_wait(cluster, 0, says_it_waits, 0, "saying what it waits for");
    order(cluster, 0, "pause now");
    cluster_wait(cluster, 0, trainer_stopped, 0, "having left at once");
    cluster_start(cluster, 1);
    order(cluster, 0, "resume");
    cluster_wait(cluster, 0, cluster_training, 0, "training again");
    end_well(cluster);
}

static void an_island_without_a_trainer_serves_its_shards(void **state)
{
    (void)state;
    struct cluster_options options = {.run = spec, .data = data};
    struct cluster_options listener = {.run = spec, .data = data, .more = "autostart = no"};
    struct cluster *cluster = cluster_new("listener", 2, &options);
    /* [worker] is the last section written before the extra lines. */
    cluster_configure(cluster, 1, &listener);
    cluster_start_all(cluster);
    cluster_wait(cluster, 0, cluster_trainer_finished, 0, "the end of training");
    cluster_wait(cluster, 1, cluster_versions_reach, cluster_status_number(cluster, 0, "versions"), "following");
    cluster_assert_one_truth(cluster);
    assert_true(cluster_log_has(cluster, 1, "the model's plan came from island a", 0));
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(cluster_end(cluster, i, SIGTERM), 0);
    cluster_free(cluster);
}

/* Islands may have known each other for long before the first trainer says what the model is. */
static void a_model_that_comes_late_reaches_everyone(void **state)
{
    (void)state;
    struct cluster_options options = {.run = spec, .data = data, .more = "autostart = no"};
    struct cluster *cluster = cluster_new("latemodel", 3, &options);
    cluster_start_all(cluster);
    for (uint32_t i = 0; i < 3; i++)
        cluster_wait(cluster, i, cluster_peers_up, 3, "all islands to greet each other");
    order(cluster, 0, "resume");
    cluster_wait(cluster, 0, cluster_versions_reach, 6, "rounds with two islands that only listen");
    for (uint32_t i = 1; i < 3; i++)
        assert_true(cluster_log_has(cluster, i, "the model's plan came from island", 1));
    order(cluster, 1, "resume");
    cluster_wait(cluster, 1, cluster_training, 0, "training");
    for (uint32_t i = 0; i < 2; i++)
        cluster_wait(cluster, i, cluster_trainer_finished, 0, "the end of training");
    for (uint32_t i = 1; i < 3; i++)
        cluster_wait(cluster, i, cluster_versions_reach, cluster_status_number(cluster, 0, "versions"), "following");
    cluster_assert_one_truth(cluster);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(cluster_end(cluster, i, SIGTERM), 0);
    cluster_free(cluster);
}

/* ---- wrong ---- */

static void strangers_are_refused_and_named(void **state)
{
    (void)state;
    struct cluster_options options = {.run = spec, .data = data};
    struct cluster *cluster = begin("stranger", 2);
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
    end_well(cluster);
}

static void another_run_spec_is_refused(void **state)
{
    (void)state;
    struct cluster_options options = {.run = spec, .data = data};
    struct cluster *cluster = cluster_new("otherspec", 2, &options);
    cluster_start(cluster, 0);
    cluster_wait(cluster, 0, cluster_training, 0, "training");
    char text[1024];
    snprintf(text, sizeof text, "%s", spec);
    memcpy(strstr(text, "steps = 300"), "steps = 301", 11);
    assert_ok(fsio_replace(cluster->run, text, strlen(text), 0644));
    cluster_start(cluster, 1);
    assert_true(cluster_log_has(cluster, 0, "island b is refused: it has another run spec", 10));
    assert_true(cluster_log_has(cluster, 1, "island a is refused: it has another run spec", 10));
    cluster_end(cluster, 1, SIGTERM);
    /* With the right one it is there: nothing was saved under the other. */
    assert_ok(fsio_replace(cluster->run, spec, strlen(spec), 0644));
    cluster_start(cluster, 1);
    assert_true(cluster_log_has(cluster, 0, "island b is here", 10));
    end_well(cluster);
}

static void a_trainer_with_other_tensors_is_refused(void **state)
{
    (void)state;
    struct cluster_options options = {.run = spec, .data = data}, wrong = {.run = spec, .data = "sleep=15 size=1600"};
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
    struct cluster_options options = {.run = spec, .data = data, .more = "autostart = no"};
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
    end_well(cluster);
}

static void a_second_trainer_is_told(void **state)
{
    (void)state;
    struct cluster_options options = {.run = spec, .data = data};
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
    end_well(cluster);
}

/* The memory that the trainer `pid` shares with its daemon. */
static struct ipc_shm *map_shared(int pid)
{
    for (int fd = 0; fd < 64; fd++) {
        char path[64], name[64] = "";
        struct stat status;
        snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
        if (readlink(path, name, sizeof name - 1) < 0 || strncmp(name, "/memfd:diloco", strlen("/memfd:diloco")) != 0)
            continue;
        int own = open(path, O_RDWR | O_CLOEXEC);
        assert_true(own >= 0);
        assert_int_equal(fstat(own, &status), 0);
        struct ipc_shm *shm = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, own, 0);
        assert_true(shm != MAP_FAILED);
        assert_ok(ipc_shm_check(shm, (uint64_t)status.st_size));
        close(own);
        return shm;
    }
    fail_msg("trainer %d holds no shared memory", pid);
    return NULL;
}

/* While the daemon writes an anchor, somebody else says that the area is the trainer's. */
static void a_trainer_whose_words_are_overwritten_begins_anew(void **state)
{
    (void)state;
    /* Large enough that writing an anchor takes a while, slow enough that there are many before the end. */
    struct cluster *cluster = begin_with("overwritten", 2, "sleep=25 size=200000");
    struct ipc_shm *shm = map_shared(cluster_trainer_pid(cluster, 1));
    double deadline_s = env_mono_s() + 30;
    for (bool written = false; !written;) {
        assert_true(env_mono_s() < deadline_s);
        for (uint32_t f = 0; f < shm->fragments_count; f++) {
            uint32_t filling = IPC_FILLING;
            written |= atomic_compare_exchange_strong(&ipc_fragment(shm, f)->word, &filling, IPC_COPYING);
        }
    }
    munmap(shm, shm->bytes);
    assert_true(cluster_log_has(cluster, 1, "wrote COPYING over the daemon's FILLING", 5));
    assert_true(cluster_log_has(cluster, 1, "ended with status 1", 5));
    assert_true(cluster_log_has(cluster, 1, "started again", 5));
    end_well(cluster);
}

static void different_initial_tensors_become_one(void **state)
{
    (void)state;
    struct cluster_options options = {.run = spec, .data = data}, other = {.run = spec, .data = "sleep=15 seed=8"};
    struct cluster *cluster = cluster_new("otherseed", 2, &options);
    cluster_configure(cluster, 1, &other);
    cluster_start_all(cluster);
    end_well(cluster);
}

/* Starts island b with one line of its configuration changed; it ends with status 2 and says why. */
static void assert_refuses_to_start(struct cluster *cluster, const char *from, const char *to, const char *why)
{
    struct cluster_options options = {.run = spec, .data = data};
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
    struct cluster *cluster = begin("ports", 2);
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

static void a_nan_is_named_and_contained(void **state)
{
    (void)state;
    struct cluster_options options = {.run = spec, .data = data}, nan = {.run = spec, .data = "sleep=15 nan=38"};
    struct cluster *cluster = cluster_new("nan", 2, &options);
    cluster_configure(cluster, 1, &nan);
    cluster_start_all(cluster);
    assert_true(cluster_log_has(cluster, 1, "tensor layers.0.weight holds NaN or Inf (near value 0)", 60));
    end_well(cluster);
}

/* ---- damaged and full ---- */

static void cut_file(const char *folder, const char *name, off_t less)
{
    char path[600];
    struct stat status;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(truncate(path, status.st_size - less), 0);
}

static void flip_byte(const char *folder, const char *name, off_t at)
{
    char path[600];
    unsigned char byte = 0;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0 && pread(fd, &byte, 1, at) == 1);
    byte ^= 1;
    assert_true(pwrite(fd, &byte, 1, at) == 1);
    close(fd);
}

static void damaged_files_are_noticed_and_mended(void **state)
{
    (void)state;
    struct cluster *cluster = begin("damage", 2);
    cluster_wait(cluster, 1, cluster_versions_reach, 6, "some versions");
    int trainer = cluster_trainer_pid(cluster, 1);
    cluster_end(cluster, 1, SIGKILL);
    kill(trainer, SIGKILL);
    cut_file(cluster->island[1].state, "ledger-000000000001.log", 100);
    flip_byte(cluster->island[1].state, "fragment-0001.safetensors", 3000);
    cluster_start(cluster, 1);
    assert_true(cluster_log_has(cluster, 1, "are no whole record (a crash while writing) and were cut off", 5));
    assert_true(cluster_log_has(cluster, 1, "its values are not those of its hash; the fragment is fetched", 5));
    assert_true(cluster_log_has(cluster, 1, "fragment 1 now holds island a's state", 15));
    end_well(cluster);
}

static void a_silent_divergence_is_found_and_repaired(void **state)
{
    (void)state;
    struct cluster *cluster = begin("diverge", 2);
    cluster_wait(cluster, 1, cluster_versions_reach, 6, "some versions");
    assert_int_equal(cluster_end(cluster, 1, SIGTERM), 0);
    forge_checkpoint(cluster->island[1].state);
    cluster_start(cluster, 1);
    /* Its disk confirms it, so it gives way only when the other has had time to mend itself. */
    assert_true(cluster_log_has(cluster, 1, "fragment 1 has DIVERGED", 60));
    assert_true(cluster_log_has(cluster, 1, "fragment 1 now holds island a's state", 15));
    for (uint32_t i = 0; i < 2; i++)
        cluster_wait(cluster, i, cluster_trainer_finished, 0, "the end of training");
    cluster_wait(cluster, 1, cluster_versions_reach, cluster_status_number(cluster, 0, "versions"), "the last version");
    json_t *a = cluster_ask(cluster, 0, "status"), *b = cluster_ask(cluster, 1, "status");
    assert_string_equal(ctl_text(a, "anchors"), ctl_text(b, "anchors"));
    json_decref(a);
    json_decref(b);
    cluster_end(cluster, 0, SIGTERM);
    cluster_end(cluster, 1, SIGTERM);
    cluster_free(cluster);
}

static void a_full_disk_is_said_and_waited_out(void **state)
{
    (void)state;
    struct cluster_options options = {.run = spec, .data = data};
    struct cluster *cluster = cluster_new("full", 2, &options);
    assert_ok(fsio_mkdirs(cluster->island[1].state, 0755));
    if (mount("tmpfs", cluster->island[1].state, "tmpfs", 0, "size=400k") != 0) {
        cluster_free(cluster);
        skip_because("no right to mount a small file system");
    }
    cluster_start_all(cluster);
    cluster_wait(cluster, 1, cluster_versions_reach, 3, "some versions");
    char filler[600];
    snprintf(filler, sizeof filler, "%s/filler", cluster->island[1].state);
    int fd = open(filler, O_WRONLY | O_CREAT, 0644);
    static char block[4096];
    while (write(fd, block, sizeof block) > 0) {
    }
    close(fd);
    assert_true(cluster_log_has(cluster, 1, "No space left on device; free some space", 30));
    cluster_wait(cluster, 1, cluster_degraded, 1, "saying so in status");
    assert_int_equal(unlink(filler), 0);
    assert_true(cluster_log_has(cluster, 1, "the disk can be written again", 20));
    for (uint32_t i = 0; i < 2; i++)
        cluster_wait(cluster, i, cluster_trainer_finished, 0, "the end of training");
    cluster_wait(cluster, 1, cluster_versions_reach, cluster_status_number(cluster, 0, "versions"), "the last version");
    cluster_assert_one_truth(cluster);
    cluster_end(cluster, 0, SIGTERM);
    cluster_end(cluster, 1, SIGTERM);
    assert_int_equal(umount(cluster->island[1].state), 0);
    cluster_free(cluster);
}

static void a_disk_that_is_too_small_is_refused_before_anything_is_taken(void **state)
{
    (void)state;
    struct cluster_options options = {.run = spec, .data = data};
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
        cmocka_unit_test(a_killed_daemon_comes_back_to_its_trainer),
        cmocka_unit_test(a_killed_daemon_is_survived_again_and_again),
        cmocka_unit_test(a_daemon_that_hangs_does_not_stop_the_trainer),
        cmocka_unit_test(a_killed_trainer_is_started_again),
        cmocka_unit_test(everything_killed_at_once_goes_on),
        cmocka_unit_test(a_stopped_daemon_ends_its_trainer_and_saves),
        cmocka_unit_test(an_island_that_starts_late_is_waited_for),
        cmocka_unit_test(an_island_leaves_and_joins),
        cmocka_unit_test(leaving_without_the_others_is_explained_and_can_be_cut_short),
        cmocka_unit_test(an_island_without_a_trainer_serves_its_shards),
        cmocka_unit_test(a_model_that_comes_late_reaches_everyone),
        cmocka_unit_test(strangers_are_refused_and_named),
        cmocka_unit_test(another_run_spec_is_refused),
        cmocka_unit_test(a_trainer_with_other_tensors_is_refused),
        cmocka_unit_test(a_model_too_large_is_refused),
        cmocka_unit_test(a_second_trainer_is_told),
        cmocka_unit_test(a_trainer_whose_words_are_overwritten_begins_anew),
        cmocka_unit_test(different_initial_tensors_become_one),
        cmocka_unit_test(used_ports_sockets_and_folders_are_named),
        cmocka_unit_test(a_nan_is_named_and_contained),
        cmocka_unit_test(damaged_files_are_noticed_and_mended),
        cmocka_unit_test(a_silent_divergence_is_found_and_repaired),
        cmocka_unit_test(a_full_disk_is_said_and_waited_out),
        cmocka_unit_test(a_disk_that_is_too_small_is_refused_before_anything_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
