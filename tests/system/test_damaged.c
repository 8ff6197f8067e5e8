/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Real daemons with damage: in shared memory, in numbers, in files, in one copy of the state, and a disk that is full.
 * Each is noticed and named, and in the end all islands hold the same anchors.
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
#include "daemon/ctl/ctl_client.h"
#include "tests/lib/cluster.h"
#include "tests/lib/forge.h"
#include "tests/lib/trouble.h"

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
    struct cluster *cluster = trouble_begin_with("overwritten", 2, "sleep=25 size=200000");
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
    trouble_end_well(cluster);
}

static void a_nan_is_named_and_contained(void **state)
{
    (void)state;
    struct cluster_options options = {.run = trouble_spec, .data = trouble_data},
                           nan = {.run = trouble_spec, .data = "sleep=15 nan=38"};
    struct cluster *cluster = cluster_new("nan", 2, &options);
    cluster_configure(cluster, 1, &nan);
    cluster_start_all(cluster);
    assert_true(cluster_log_has(cluster, 1, "tensor layers.0.weight holds NaN or Inf (near value 0)", 60));
    trouble_end_well(cluster);
}

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

/* The others decide without what the file held, so it does not vote until they have given it all of it. */
static void a_file_that_cannot_be_read_costs_the_vote_until_it_is_mended(void **state)
{
    (void)state;
    static const struct {
        const char *file, *why;
    } rows[] = {{"fragment-0001.safetensors", "a checkpoint was damaged"}, {"plan.txt", "the plan of its fragments"}};
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        struct cluster *cluster = trouble_begin("unread", 3);
        char doubt[160];
        snprintf(doubt, sizeof doubt, "this disk is in doubt: %s", rows[k].why);
        cluster_wait(cluster, 1, cluster_versions_reach, 6, "some versions");
        assert_int_equal(cluster_end(cluster, 1, SIGTERM), 0);
        flip_byte(cluster->island[1].state, rows[k].file, 30);
        cluster_start(cluster, 1);
        assert_true(cluster_log_has(cluster, 1, doubt, 5));
        assert_true(cluster_log_has(cluster, 1, "this island votes: its disk is not in doubt", 30));
        trouble_end_well(cluster);
    }
}

static void damaged_files_are_noticed_and_mended(void **state)
{
    (void)state;
    struct cluster *cluster = trouble_begin("damage", 2);
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
    trouble_end_well(cluster);
}

static void a_silent_divergence_is_found_and_repaired(void **state)
{
    (void)state;
    struct cluster *cluster = trouble_begin("diverge", 2);
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
    struct cluster_options options = {.run = trouble_spec, .data = trouble_data};
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

int main(int argc, char **argv)
{
    assert_ok(digest_init());
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trainer_whose_words_are_overwritten_begins_anew),
        cmocka_unit_test(a_nan_is_named_and_contained),
        cmocka_unit_test(a_file_that_cannot_be_read_costs_the_vote_until_it_is_mended),
        cmocka_unit_test(damaged_files_are_noticed_and_mended),
        cmocka_unit_test(a_silent_divergence_is_found_and_repaired),
        cmocka_unit_test(a_full_disk_is_said_and_waited_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
