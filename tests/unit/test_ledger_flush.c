/* SPDX-License-Identifier: Apache-2.0 */
/* ledger: whoever waits for the disk keeps nobody else waiting, and hears what became of its own bytes. fdatasync() is
 * the tests'. */
#include "tests/lib/testlib.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/env.h"
#include "tests/lib/ledgers.h"
#include "tests/lib/made.h"

enum { DEADLINE_S = 10, OBJECT_BYTES = 1000, WAITERS = 6 };

/* A flush says that it has begun, and ends when it is let go. The kernel tells a failure once: the next flush of the
 * same file succeeds, whatever was lost. */
static atomic_bool held, fails;
static atomic_int flushes;
static sem_t begun, go;

/* So does a write, at the place where it looks for the end of the file. */
static atomic_bool write_held;
static sem_t write_begun, write_go;

off_t lseek(int fd, off_t offset, int whence)
{
    if (write_held) {
        sem_post(&write_begun);
        testlib_sem_wait(&write_go, DEADLINE_S);
    }
    return (off_t)syscall(SYS_lseek, fd, offset, whence);
}

int fdatasync(int fd)
{
    flushes++;
    if (held) {
        sem_post(&begun);
        testlib_sem_wait(&go, DEADLINE_S);
    }
    errno = EIO;
    return fails ? -1 : (int)syscall(SYS_fdatasync, fd);
}

static const char *folder; /* of the ledger that was opened last */

struct appender {
    pthread_t thread;
    struct ledger *ledger;
    struct result_id key;
    uint8_t object[OBJECT_BYTES];
    enum err err;
    atomic_bool ended;
};

static void *run_appender(void *argument)
{
    struct appender *a = argument;
    a->err = ledger_append(a->ledger, &a->key, a->object, sizeof a->object);
    a->ended = true;
    return NULL;
}

static void begin(struct appender *a, struct ledger *ledger, uint32_t owner)
{
    struct env_rng rng = env_rng_init(7, owner);
    for (size_t i = 0; i < OBJECT_BYTES; i++)
        a->object[i] = (uint8_t)env_rng_u64(&rng);
    a->ledger = ledger;
    a->key = made_result(0, 5, 0, owner, a->object, OBJECT_BYTES);
    a->ended = false;
    assert_int_equal(pthread_create(&a->thread, NULL, run_appender, a), 0);
}

static enum err end(struct appender *a)
{
    pthread_join(a->thread, NULL);
    return a->err;
}

static size_t listed(struct ledger *ledger)
{
    struct result_id keys[WAITERS + 1];
    return ledger_list(ledger, 0, 5, keys, WAITERS + 1);
}

static struct ledger *open_held(const char *name)
{
    folder = testlib_folder(name);
    struct ledger *ledger = ledgers_open(folder);
    sem_init(&begun, 0, 0);
    sem_init(&go, 0, 0);
    sem_init(&write_begun, 0, 0);
    sem_init(&write_go, 0, 0);
    flushes = 0;
    fails = false;
    held = true;
    return ledger;
}

static void close_held(struct ledger *ledger)
{
    held = fails = write_held = false;
    ledger_close(ledger);
    sem_destroy(&begun);
    sem_destroy(&go);
    sem_destroy(&write_begun);
    sem_destroy(&write_go);
}

/* Until so many are written. */
static void wait_for_records(struct ledger *ledger, uint64_t count)
{
    for (double end_s = env_mono_s() + DEADLINE_S; ledger_stats(ledger).records < count;) {
        assert_true(env_mono_s() < end_s);
        sched_yield();
    }
}

/* The loop looks things up, and a disk may take seconds. Nothing is told of what could be lost yet. */
static void nobody_else_waits_for_the_disk(void **state)
{
    (void)state;
    static struct appender a;
    struct ledger *ledger = open_held("flush-look");
    struct ledger_map map = {0};
    struct ledger_commit commit = {.fragment = 1, .version = 9, .parts_count = 1}, got;
    begin(&a, ledger, 0);
    assert_true(testlib_sem_wait(&begun, DEADLINE_S));
    assert_int_equal(listed(ledger), 0);
    assert_false(ledger_has(ledger, &a.key));
    assert_int_equal(ledger_map(ledger, &a.key, &map), ERR_NOTFOUND);
    assert_int_equal(ledger_commit_of(ledger, 1, 9, &got), ERR_NOTFOUND);
    assert_ok(ledger_append_commit(ledger, &commit, false)); /* nor does who needs no flush */
    assert_ok(ledger_commit_of(ledger, 1, 9, &got));
    ledger_prune(ledger, (struct ledger_reach[2]){{0}}, 2, 0);
    assert_true(ledger_at(ledger) > 0);
    assert_false(a.ended);
    sem_post(&go);
    assert_ok(end(&a));
    assert_int_equal(listed(ledger), 1);
    assert_true(ledger_has(ledger, &a.key));
    close_held(ledger);
}

/* Who came while one flush was under way is served by the next, all at once. */
static void all_who_wait_share_a_flush(void **state)
{
    (void)state;
    static struct appender a[WAITERS];
    struct ledger *ledger = open_held("flush-share");
    begin(&a[0], ledger, 0);
    assert_true(testlib_sem_wait(&begun, DEADLINE_S));
    for (uint32_t i = 1; i < WAITERS; i++)
        begin(&a[i], ledger, i);
    wait_for_records(ledger, WAITERS);
    for (uint32_t i = 0; i < WAITERS; i++)
        assert_false(a[i].ended);
    sem_post(&go);
    assert_ok(end(&a[0]));
    assert_true(testlib_sem_wait(&begun, DEADLINE_S));
    for (uint32_t i = 1; i < WAITERS; i++)
        assert_false(a[i].ended); /* the first flush began before their bytes were there */
    assert_int_equal(listed(ledger), 1);
    for (uint32_t i = 1; i < WAITERS; i++) /* more than are needed */
        sem_post(&go);
    for (uint32_t i = 1; i < WAITERS; i++)
        assert_ok(end(&a[i]));
    assert_int_equal(flushes, 2);
    assert_int_equal(listed(ledger), WAITERS);
    close_held(ledger);
}

/* All whose bytes a failed flush was for; who came later is flushed to another file. */
static void a_failed_flush_fails_for_all_it_was_for(void **state)
{
    (void)state;
    static struct appender a[3], late;
    struct ledger *ledger = open_held("flush-fail");
    begin(&a[0], ledger, 0);
    assert_true(testlib_sem_wait(&begun, DEADLINE_S));
    for (uint32_t i = 1; i < 3; i++)
        begin(&a[i], ledger, i);
    wait_for_records(ledger, 3);
    sem_post(&go);
    assert_ok(end(&a[0]));
    assert_true(testlib_sem_wait(&begun, DEADLINE_S));
    fails = true;
    for (int i = 0; i < 2; i++)
        sem_post(&go);
    for (uint32_t i = 1; i < 3; i++)
        assert_int_equal(end(&a[i]), ERR_IO);
    assert_int_equal(listed(ledger), 1);
    assert_true(ledger_has(ledger, &a[0].key));
    held = fails = false;
    uint64_t segments = ledger_stats(ledger).segments;
    for (uint32_t i = 1; i < 3; i++)
        assert_ok(ledger_append(ledger, &a[i].key, a[i].object, OBJECT_BYTES));
    begin(&late, ledger, 3);
    assert_ok(end(&late));
    assert_int_equal(ledger_stats(ledger).segments, segments + 1);
    assert_int_equal(listed(ledger), 4);
    close_held(ledger);
}

/* As the disk has them, by a second look at the folder. */
static uint64_t on_disk(void)
{
    struct ledger *again = ledgers_open(folder);
    uint64_t records = ledger_stats(again).records;
    ledger_close(again);
    return records;
}

/* Its bytes may have been in what the failed flush lost, and no later flush would tell. */
static void a_failed_flush_fails_for_all_that_came_meanwhile(void **state)
{
    (void)state;
    static struct appender a[3];
    struct ledger *ledger = open_held("flush-meanwhile");
    struct ledger_commit commit = {.fragment = 1, .version = 9, .parts_count = 1}, got;
    held = false;
    begin(&a[0], ledger, 0); /* this one is durable before anything fails */
    assert_ok(end(&a[0]));
    uint64_t at = ledger_at(ledger);
    held = true;
    begin(&a[1], ledger, 1);
    assert_true(testlib_sem_wait(&begun, DEADLINE_S));
    begin(&a[2], ledger, 2);
    wait_for_records(ledger, 3);
    assert_ok(ledger_append_commit(ledger, &commit, false)); /* nobody waits for it, and it may be lost as well */
    fails = true;
    held = false;
    sem_post(&go);
    assert_int_equal(end(&a[1]), ERR_IO);
    assert_int_equal(end(&a[2]), ERR_IO);
    fails = false;
    assert_int_equal(flushes, 2);
    assert_int_equal(listed(ledger), 1);
    assert_int_equal(ledger_commit_of(ledger, 1, 9, &got), ERR_NOTFOUND);
    assert_int_equal(ledger_at(ledger), at);
    for (uint32_t i = 1; i < 3; i++) /* once more, each is kept */
        assert_ok(ledger_append(ledger, &a[i].key, a[i].object, OBJECT_BYTES));
    assert_int_equal(listed(ledger), 3);
    assert_true(ledger_at(ledger) > at);
    close_held(ledger);
    assert_int_equal(on_disk(), 3);
}

/* Nor is a record durable of which a part was written before the flush failed and a part after it. */
static void a_failed_flush_fails_for_what_is_being_written(void **state)
{
    (void)state;
    static struct appender a[2];
    struct ledger *ledger = open_held("flush-writing");
    begin(&a[0], ledger, 0);
    assert_true(testlib_sem_wait(&begun, DEADLINE_S));
    write_held = true;
    begin(&a[1], ledger, 1);
    assert_true(testlib_sem_wait(&write_begun, DEADLINE_S));
    fails = true;
    held = false;
    sem_post(&go);
    assert_int_equal(end(&a[0]), ERR_IO);
    fails = write_held = false;
    sem_post(&write_go);
    assert_int_equal(end(&a[1]), ERR_IO);
    assert_int_equal(listed(ledger), 0);
    assert_ok(ledger_append(ledger, &a[1].key, a[1].object, OBJECT_BYTES));
    assert_int_equal(listed(ledger), 1);
    close_held(ledger);
    assert_int_equal(on_disk(), 1);
}

/* Who finds a file full flushes it for all, and then leaves it. */
static void a_full_file_that_cannot_be_flushed_is_lost_as_any(void **state)
{
    (void)state;
    enum { FILL = 70 };
    static struct appender a[FILL];
    struct ledger *ledger = open_held("flush-full");
    held = false;
    uint32_t i = 0;
    while (ledger_stats(ledger).bytes + OBJECT_BYTES + 200 < 64 << 10) {
        begin(&a[i], ledger, i);
        assert_ok(end(&a[i++]));
    }
    struct ledger_commit commit = {.fragment = 1, .version = 9, .parts_count = 1}, got;
    assert_ok(ledger_append_commit(ledger, &commit, false));
    fails = true;
    begin(&a[i], ledger, i);
    assert_int_equal(end(&a[i]), ERR_IO);
    fails = false;
    assert_int_equal(ledger_commit_of(ledger, 1, 9, &got), ERR_NOTFOUND);
    assert_int_equal(ledger_stats(ledger).records, i);
    assert_ok(ledger_append(ledger, &a[i].key, a[i].object, OBJECT_BYTES));
    close_held(ledger);
    assert_int_equal(on_disk(), i + 1);
}

/* The same result from two threads: both are told when it is durable, and it is there once. */
static void one_result_that_comes_twice_is_kept_once(void **state)
{
    (void)state;
    static struct appender a[2];
    struct ledger *ledger = open_held("flush-twice");
    begin(&a[0], ledger, 4);
    assert_true(testlib_sem_wait(&begun, DEADLINE_S));
    begin(&a[1], ledger, 4);
    sem_post(&go);
    assert_ok(end(&a[0]));
    sem_post(&go);
    assert_ok(end(&a[1]));
    assert_int_equal(ledger_stats(ledger).records, 1);
    assert_int_equal(listed(ledger), 1);
    close_held(ledger);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_else_waits_for_the_disk),
        cmocka_unit_test(all_who_wait_share_a_flush),
        cmocka_unit_test(a_failed_flush_fails_for_all_it_was_for),
        cmocka_unit_test(a_failed_flush_fails_for_all_that_came_meanwhile),
        cmocka_unit_test(a_failed_flush_fails_for_what_is_being_written),
        cmocka_unit_test(a_full_file_that_cannot_be_flushed_is_lost_as_any),
        cmocka_unit_test(one_result_that_comes_twice_is_kept_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
