/* SPDX-License-Identifier: Apache-2.0 */
/* rounds and the disk: when checkpoints begin by themselves, how much of the time they take, and that nobody waits for
 * the disk but who has to. fsync() is the tests'. */
#include "tests/lib/testlib.h"

#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/tensorfile.h"
#include "tests/lib/rig.h"

enum { MEMBERS = 3, SELF = 2, OLD_MS = 600000, SLOW_MS = 40, PART = 25, MANY = 200, DEADLINE_S = 10, AGAIN_MS = 10000 };

static const char coarse[] = "codec = uniform\nerror_feedback = yes\n";

/* How long a flush of a checkpoint or of exported anchors takes; or it says that it has begun, and ends when it is let
 * go. */
static atomic_int flush_ms;
static atomic_bool held;
static sem_t begun, go;

static bool is_saved(int fd)
{
    char link[64], path[600];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = '\0';
    return strstr(path, ".safetensors") != NULL;
}

int fsync(int fd)
{
    if (is_saved(fd) && held) {
        sem_post(&begun);
        testlib_sem_wait(&go, DEADLINE_S);
    }
    if (is_saved(fd))
        usleep((useconds_t)flush_ms * 1000);
    return (int)syscall(SYS_fsync, fd);
}

static const char *path_of(const struct rig *rig, uint32_t f)
{
    return testlib_path(rig->conf.folder, f == 0 ? "fragment-0000.safetensors" : "fragment-0001.safetensors");
}

/* The version that a fragment's checkpoint is of; -1: it has none. */
static long long saved(const struct rig *rig, uint32_t f)
{
    struct tensorfile *file;
    uint64_t version;
    if (access(path_of(rig, f), F_OK) != 0)
        return -1;
    assert_ok(tensorfile_open(path_of(rig, f), true, &file));
    assert_ok(tensorfile_meta_u64(file, "version", &version));
    tensorfile_close(file);
    return (long long)version;
}

static bool has_residuals(const struct rig *rig, uint32_t f)
{
    struct tensorfile *file;
    const float *values;
    assert_ok(tensorfile_open(path_of(rig, f), true, &file));
    bool has = tensorfile_values(file, "residual", rig_values(rig, f), &values) == ERR_OK;
    tensorfile_close(file);
    return has;
}

/* Both fragments are on disk at version 0. */
static struct rig *begin(const char *name, uint64_t keep_bytes)
{
    struct rig_conf conf = {.folder = testlib_folder(name),
                            .sync = coarse,
                            .members = MEMBERS,
                            .self = SELF,
                            .segment_bytes = 4096,
                            .kept_bytes = keep_bytes,
                            .checkpoint_ms = OLD_MS};
    flush_ms = 0;
    struct rig *rig = rig_open(&conf);
    rig_begin(rig);
    for (uint32_t f = 0; f < RIG_FRAGMENTS; f++) {
        assert_int_equal(saved(rig, f), -1);
        rig_tick(rig, 0);
        assert_int_equal(jobs_pending(rig->jobs), 1); /* one at a time */
        rig_tick(rig, 0);
        assert_int_equal(jobs_pending(rig->jobs), 1);
        rig_settle(rig);
        assert_int_equal(saved(rig, f), 0);
    }
    rig_tick(rig, OLD_MS / 8);
    assert_int_equal(jobs_pending(rig->jobs), 0); /* nothing is new */
    return rig;
}

/* Rounds of a fragment until a checkpoint begins; returns their number. */
static int rounds_until_due(struct rig *rig, uint32_t f)
{
    struct bitset all = bitset_first(MEMBERS);
    int count = 0;
    while (jobs_pending(rig->jobs) == 0) {
        assert_in_range(++count, 1, MANY);
        rig_round(rig, f, &all);
        rig_tick(rig, 0);
    }
    return count;
}

static void what_would_be_replayed_the_longest_is_written_first(void **state)
{
    (void)state;
    struct bitset all = bitset_first(MEMBERS);
    struct rig *rig = begin("pace-longest", 0);
    int due = rounds_until_due(rig, 0);
    assert_in_range(due, 2, MANY); /* one version alone is not worth it */
    rig_settle(rig);
    assert_int_equal(saved(rig, 0), due);
    assert_false(has_residuals(rig, 0));
    for (int k = 0; k < 3 * due; k++) {
        rig_round(rig, 1, &all);
        if (k < 2 * due)
            rig_round(rig, 0, &all);
    }
    rig_tick(rig, OLD_MS / 4); /* whatever the last one took */
    assert_int_equal(jobs_pending(rig->jobs), 1);
    rig_settle(rig);
    assert_int_equal(saved(rig, 1), 3 * due);
    assert_int_equal(saved(rig, 0), due);
    rig_tick(rig, OLD_MS / 4);
    rig_settle(rig);
    assert_int_equal(saved(rig, 0), 3 * due);
    rig_close(rig);
}

/* A version takes its outer step to replay, however few bytes its results have. */
static void many_versions_are_written_though_they_have_few_bytes(void **state)
{
    (void)state;
    static const char tiny[] = "codec = uniform\nstep = 2\n";
    struct rig_conf conf = {.folder = testlib_folder("pace-versions-due"),
                            .sync = tiny,
                            .members = 2,
                            .self = 1,
                            .zstd_level = 1,
                            .times = 8,
                            .checkpoint_ms = OLD_MS};
    struct rig *rig = rig_open(&conf);
    flush_ms = 0;
    rig_begin(rig);
    for (uint32_t f = 0; f < RIG_FRAGMENTS; f++) {
        rig_tick(rig, 0);
        rig_settle(rig);
    }
    rig_tick(rig, OLD_MS / 8);
    struct bitset all = bitset_first(2);
    int count = 0;
    uint64_t bytes = 0;
    while (jobs_pending(rig->jobs) == 0) {
        assert_in_range(++count, 1, MANY);
        rig_round(rig, 0, &all);
        bytes += ledger_version_bytes(rig->ledger, 0, (uint64_t)count);
        rig_tick(rig, 0);
    }
    rig_settle(rig);
    assert_in_range(bytes, 1, 2 * sizeof(float) * rig_values(rig, 0) - 1);
    assert_in_range(count, 31, 32);
    assert_int_equal(saved(rig, 0), count);
    rig_close(rig);
}

static void an_old_checkpoint_is_written_anew(void **state)
{
    (void)state;
    struct bitset all = bitset_first(MEMBERS);
    struct rig *rig = begin("pace-old", 0);
    rig_round(rig, 0, &all);
    rig_tick(rig, OLD_MS);
    rig_settle(rig);
    assert_int_equal(saved(rig, 0), 1);
    rig_round(rig, 0, &all);
    rig_tick(rig, OLD_MS - 1);
    assert_int_equal(jobs_pending(rig->jobs), 0);
    rig_tick(rig, 1);
    rig_settle(rig);
    assert_int_equal(saved(rig, 0), 2);
    rig_close(rig);
}

/* The disk takes its time, and the rounds are fast. */
static void saving_takes_a_small_part_of_the_time(void **state)
{
    (void)state;
    struct bitset all = bitset_first(MEMBERS);
    struct rig *rig = begin("pace-part", 1 << 30);
    flush_ms = SLOW_MS;
    int due = rounds_until_due(rig, 0);
    rig_settle(rig);
    assert_int_equal(saved(rig, 0), due);
    for (int k = 0; k < 2 * due; k++)
        rig_round(rig, 0, &all);
    rig_tick(rig, SLOW_MS * (PART - 1) - 1); /* it took SLOW_MS or more */
    assert_int_equal(jobs_pending(rig->jobs), 0);
    rig_tick(rig, OLD_MS / 2);
    assert_int_equal(jobs_pending(rig->jobs), 1);
    rig_settle(rig);
    assert_int_equal(saved(rig, 0), 3 * due);
    rig_close(rig);
}

/* The ledger can let nothing go: it stays as large as all checkpoints, and no larger. */
static void a_ledger_that_outgrows_the_checkpoints_is_not_waited_with(void **state)
{
    (void)state;
    struct rig *rig = begin("pace-presses", 1);
    flush_ms = SLOW_MS;
    int due = rounds_until_due(rig, 0);
    rig_settle(rig);
    int pressing = rounds_until_due(rig, 0); /* no time has gone by */
    assert_in_range(pressing, due + 1, MANY);
    rig_settle(rig);
    assert_int_equal(saved(rig, 0), due + pressing);
    rig_close(rig);
    rig = begin("pace-presses-not", 1 << 30);
    struct bitset all = bitset_first(MEMBERS);
    flush_ms = SLOW_MS;
    due = rounds_until_due(rig, 0);
    rig_settle(rig);
    for (int k = 0; k < pressing; k++)
        rig_round(rig, 0, &all);
    rig_tick(rig, 0);
    assert_int_equal(jobs_pending(rig->jobs), 0); /* it may have more */
    rig_close(rig);
}

/* A round of fragment 0 for which one result is lacking, which comes into `object`; and the rest of it, while a flush
 * is held. */
static void begin_round(struct rig *rig, struct rig_object *object)
{
    struct bitset all = bitset_first(MEMBERS);
    rig_contribute(rig, 0, 0.01f, 1000);
    for (uint32_t i = 0; i < SELF; i++)
        rig_bring_contribution(rig, 0, i, 100, 0.02f);
    rig_bring_result(rig, 0, 0, true);
    rig_result(rig, 0, 1, &all, 0.1f, object);
}

static void end_round(struct rig *rig, const struct rig_object *object, uint64_t version)
{
    assert_true(testlib_sem_wait(&begun, DEADLINE_S));
    rig_bring(rig, 1, object);
    for (int k = 0; k < MANY && rounds_state(rig->rounds, 0)->version < version; k++)
        rig_withdraw(rig);
    assert_int_equal(rounds_state(rig->rounds, 0)->version, version);
    assert_true(held);
}

/* An outer step waits until its fragment is copied, not until the copy is on the disk. */
static void a_slow_disk_holds_no_outer_step_up(void **state)
{
    (void)state;
    static struct rig_object object;
    struct bitset all = bitset_first(MEMBERS);
    struct rig *rig = begin("pace-slow", 0);
    struct rig_conf conf = rig->conf;
    rig_round(rig, 0, &all);
    begin_round(rig, &object);
    held = true;
    keep_checkpoint(rig->rounds->keep, 0);
    rig_withdraw(rig); /* it is copied */
    end_round(rig, &object, 2);
    assert_int_equal(saved(rig, 0), 0);
    held = false;
    sem_post(&go);
    rig_settle(rig);
    assert_int_equal(saved(rig, 0), 1);
    struct digest lived = rounds_state(rig->rounds, 0)->hash;
    rig_close(rig);
    rig = rig_open(&conf);
    assert_int_equal(rounds_state(rig->rounds, 0)->version, 2);
    assert_true(digest_equal(&rounds_state(rig->rounds, 0)->hash, &lived));
    rig_close(rig);
}

/* What the end orders is written whole, also where one was under way. */
static void the_end_writes_all_with_residuals(void **state)
{
    (void)state;
    struct rig *rig = begin("pace-end", 0);
    int due = rounds_until_due(rig, 0);
    keep_checkpoint_all(rig->rounds->keep);
    rig_settle(rig);
    assert_int_equal(saved(rig, 0), due);
    for (uint32_t f = 0; f < RIG_FRAGMENTS; f++)
        assert_true(has_residuals(rig, f));
    struct bitset all = bitset_first(MEMBERS);
    for (int k = 0; k < due; k++)
        rig_round(rig, 0, &all);
    rig_tick(rig, OLD_MS);
    assert_int_equal(jobs_pending(rig->jobs), 0); /* it is the end */
    rig_close(rig);
}

/* A checkpoint of fragment 0 is being flushed, until sem_post(&go); meanwhile the state of a peer, which the object
 * holds, is taken over. The peer's replica is the caller's to free. */
static struct replica *overtake(struct rig *rig, struct rig_object *object)
{
    struct replica *twin;
    held = true;
    rounds_until_due(rig, 0);
    rig_withdraw(rig);
    assert_true(testlib_sem_wait(&begun, DEADLINE_S));
    held = false;
    rig_make_state(rig, 0, 0.5f, &twin, object);
    rig_diverge(rig, 0, twin);
    rig_bring(rig, 0, object);
    for (int k = 0; k < MANY && rounds_state(rig->rounds, 0)->step != RIG_STATE_STEP; k++)
        rig_withdraw(rig);
    return twin;
}

/* While a checkpoint is flushed a state of a peer is taken over: the ledger leads from the one to the other no more. */
static void a_checkpoint_that_was_overtaken_by_a_state_leads_nowhere(void **state)
{
    (void)state;
    static struct rig_object object;
    struct rig *rig = begin("pace-overtaken", 0);
    struct replica *twin = overtake(rig, &object);
    assert_int_equal(rounds_state(rig->rounds, 0)->step, RIG_STATE_STEP);
    assert_int_equal(rig_told_count(rig, SYNC_EV_INSTALLED), 0); /* none leads on yet */
    sem_post(&go);
    rig_settle(rig);
    assert_int_equal(rig_told_count(rig, SYNC_EV_INSTALLED), 1); /* the one after it does */
    rig_mixed(rig, 0);
    rig_tick(rig, 0);
    assert_int_equal(jobs_pending(rig->jobs), 0);
    replica_free(twin);
    rig = rig_again(rig);
    assert_int_equal(rounds_state(rig->rounds, 0)->step, RIG_STATE_STEP);
    rig_close(rig);
}

/* The same where the disk refuses the one after it: what it has leads nowhere, so the next one does not wait its turn.
 */
static void a_checkpoint_that_was_overtaken_is_followed_when_the_disk_works(void **state)
{
    (void)state;
    static struct rig_object object;
    struct rlimit limit;
    struct rig *rig = begin("pace-overtaken-refused", 0);
    struct replica *twin = overtake(rig, &object);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = 1000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    sem_post(&go);
    rig_settle(rig);
    limit.rlim_cur = limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_non_null(strstr(rounds_info(rig->rounds).disk_note, "checkpoint of fragment 0 failed"));
    rig_mixed(rig, 0);
    rig_tick(rig, AGAIN_MS);
    rig_settle(rig);
    assert_string_equal(rounds_info(rig->rounds).disk_note, "");
    replica_free(twin);
    rig = rig_again(rig);
    assert_int_equal(rounds_state(rig->rounds, 0)->step, RIG_STATE_STEP);
    rig_close(rig);
}

/* The disk stands while a state is written; meanwhile another one has come. */
static void of_two_states_the_core_hears_of_the_last_one(void **state)
{
    (void)state;
    static struct rig_object object;
    struct replica *twin;
    struct rig *rig = begin("pace-two", 0);
    rig_make_state(rig, 0, 0.5f, &twin, &object);
    rig_diverge(rig, 0, twin);
    for (int k = 0; k < 2; k++) {
        rig_bring(rig, 0, &object);
        rig_withdraw(rig); /* it is taken over, and on its way to the disk */
        assert_int_equal(rounds_state(rig->rounds, 0)->step, RIG_STATE_STEP);
    }
    assert_int_equal(rig_told_count(rig, SYNC_EV_INSTALLED), 0);
    rig_settle(rig);
    assert_int_equal(rig_told_count(rig, SYNC_EV_INSTALLED), 1);
    assert_int_equal(rig_posted_count(rig, EVENT_ON_DISK), 1);
    replica_free(twin);
    rig_close(rig);
}

/* Held is the fragment that is being copied, and none while the file is flushed. */
static void an_export_holds_nothing_while_it_is_flushed(void **state)
{
    (void)state;
    static struct rig_object object;
    struct rig *rig = begin("pace-export", 0);
    begin_round(rig, &object);
    held = true;
    keep_export(rig->rounds->keep);
    for (uint32_t f = 0; f < RIG_FRAGMENTS; f++)
        rig_withdraw(rig);
    end_round(rig, &object, 1);
    assert_int_equal(rounds_info(rig->rounds).saving, ROUNDS_EXPORT_WRITING);
    held = false;
    sem_post(&go);
    rig_settle(rig);
    assert_int_equal(rounds_info(rig->rounds).saving, ROUNDS_EXPORT_DONE);
    rig_close(rig);
}

/* All fragments, after so many rounds; the ledger keeps `kept_bytes`, and of `versions` at most (0: as it finds). */
static struct rig *saved_after(const char *name, uint64_t rounds_count, uint64_t kept_bytes, uint64_t versions)
{
    struct bitset all = bitset_first(MEMBERS);
    struct rig_conf conf = {.folder = testlib_folder(name),
                            .sync = coarse,
                            .members = MEMBERS,
                            .self = SELF,
                            .segment_bytes = 4096,
                            .kept_bytes = kept_bytes,
                            .versions = versions};
    struct rig *rig = rig_open(&conf);
    rig_begin(rig);
    for (uint64_t k = 0; k < rounds_count; k++)
        for (uint32_t f = 0; f < RIG_FRAGMENTS; f++)
            rig_round(rig, f, &all);
    for (uint32_t f = 0; f < RIG_FRAGMENTS; f++)
        keep_checkpoint(rig->rounds->keep, f);
    rig_settle(rig);
    return rig;
}

/* More versions than are worth their place go, though the ledger may have more bytes. */
static void versions_that_nobody_is_served_go(void **state)
{
    (void)state;
    struct rig *rig = saved_after("pace-versions", 24, 1 << 30, 3);
    for (uint32_t f = 0; f < RIG_FRAGMENTS; f++) {
        assert_false(rig_has(rig, f, 1, 0));
        for (uint64_t version = 22; version <= 24; version++)
            assert_true(rig_has(rig, f, version, 0));
    }
    rig_close(rig);
}

/* Who fetches a state goes on from it by the results since, and these may have half as many bytes: a checkpoint that is
 * written meanwhile does not let them go, however little the ledger is to keep. */
static void results_since_a_state_that_is_being_fetched_stay(void **state)
{
    (void)state;
    const uint64_t many = 24;
    struct rig *rig = saved_after("pace-fetched", many, 1, 0);
    for (uint32_t f = 0; f < RIG_FRAGMENTS; f++) {
        uint64_t state_bytes = 2 * sizeof(float) * rig_values(rig, f), bytes = 0, version = many;
        assert_int_equal(saved(rig, f), many);
        assert_false(rig_has(rig, f, 1, 0));
        for (; bytes < state_bytes / 2; version--) {
            assert_true(rig_has(rig, f, version, 0));
            bytes += ledger_version_bytes(rig->ledger, f, version);
        }
        assert_in_range(version, 1, many - 3);
    }
    rig_close(rig);
}

int main(void)
{
    assert_ok(digest_init());
    sem_init(&begun, 0, 0);
    sem_init(&go, 0, 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_would_be_replayed_the_longest_is_written_first),
        cmocka_unit_test(many_versions_are_written_though_they_have_few_bytes),
        cmocka_unit_test(an_old_checkpoint_is_written_anew),
        cmocka_unit_test(saving_takes_a_small_part_of_the_time),
        cmocka_unit_test(a_ledger_that_outgrows_the_checkpoints_is_not_waited_with),
        cmocka_unit_test(a_slow_disk_holds_no_outer_step_up),
        cmocka_unit_test(the_end_writes_all_with_residuals),
        cmocka_unit_test(a_checkpoint_that_was_overtaken_by_a_state_leads_nowhere),
        cmocka_unit_test(a_checkpoint_that_was_overtaken_is_followed_when_the_disk_works),
        cmocka_unit_test(of_two_states_the_core_hears_of_the_last_one),
        cmocka_unit_test(an_export_holds_nothing_while_it_is_flushed),
        cmocka_unit_test(versions_that_nobody_is_served_go),
        cmocka_unit_test(results_since_a_state_that_is_being_fetched_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
