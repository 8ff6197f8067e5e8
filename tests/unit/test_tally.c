/* SPDX-License-Identifier: Apache-2.0 */
/* tally: tokens trained and counted outlive a daemon that is killed. */
#include "tests/lib/testlib.h"

#include <sched.h>
#include <string.h>

#include "common/fsio.h"
#include "daemon/trainer/tally.h"

static struct tally found(const char *folder)
{
    struct tally tally;
    assert_ok(tally_init(&tally, folder));
    struct tally copy = tally;
    tally_deinit(&tally);
    return copy;
}

static void what_was_counted_is_in_the_file_a_second_later(void **state)
{
    (void)state;
    const char *folder = testlib_folder("tally");
    struct tally tally;
    assert_ok(tally_init(&tally, folder));
    tally_begin(&tally, 0);
    tally_tick(&tally, 0, 1000);
    tally.counted = 700;
    tally_tick(&tally, 800, 1999);
    assert_true(found(folder).counted == 0);
    tally_tick(&tally, 900, 2000);
    assert_true(found(folder).counted == 700);
    assert_int_equal(found(folder).last, 900);
    tally_deinit(&tally);
}

static void where_nothing_is_counted_it_is_written_once_a_minute(void **state)
{
    (void)state;
    const char *folder = testlib_folder("tally2");
    struct tally tally;
    assert_ok(tally_init(&tally, folder));
    tally_begin(&tally, 0);
    tally_tick(&tally, 0, 1000);
    tally_tick(&tally, 500, 60999);
    assert_int_equal(found(folder).last, 0);
    tally_tick(&tally, 600, 61000);
    assert_int_equal(found(folder).last, 600);
    tally_tick(&tally, 700, 62000);
    assert_int_equal(found(folder).last, 600);
    tally_deinit(&tally);
}

static void the_next_trainer_counts_on_from_what_it_kept(void **state)
{
    (void)state;
    const char *folder = testlib_folder("tally3");
    struct tally tally;
    assert_ok(tally_init(&tally, folder));
    tally_save(&tally, 1000);
    tally_deinit(&tally);
    assert_ok(tally_init(&tally, folder));
    tally_begin(&tally, 400);
    assert_int_equal(tally.before, 600);
    assert_int_equal(tally.last, 0);
    tally_deinit(&tally);
}

/* As of one that attaches, reads its checkpoint, and attaches again with what that kept. */
static void a_trainer_that_trained_nothing_changes_nothing(void **state)
{
    (void)state;
    struct tally tally;
    assert_ok(tally_init(&tally, testlib_folder("tally5")));
    tally_begin(&tally, 0);
    tally_end(&tally, 750);
    tally_begin(&tally, 0);
    assert_int_equal(tally_trained(&tally, 0), 750);
    tally_end(&tally, 0);
    tally_begin(&tally, 700);
    assert_int_equal(tally_trained(&tally, 700), 750);
    tally_end(&tally, 700);
    tally_resume(&tally);
    assert_int_equal(tally_trained(&tally, 700), 750);
    tally_end(&tally, 800);
    tally_resume(&tally);
    assert_int_equal(tally_trained(&tally, 800), 850);
    tally_end(&tally, 800);
    tally_end(&tally, 0); /* another connection, that came to nothing */
    tally_begin(&tally, 0);
    assert_int_equal(tally_trained(&tally, 5), 855);
    tally_deinit(&tally);
}

/* A daemon that finds a trainer at work. */
static void a_trainer_that_was_there_before_the_daemon_counts_once(void **state)
{
    (void)state;
    struct tally tally;
    const char *folder = testlib_folder("tally6");
    assert_ok(tally_init(&tally, folder));
    tally_begin(&tally, 0);
    tally_save(&tally, 400);
    tally_deinit(&tally);
    assert_ok(tally_init(&tally, folder));
    tally_resume(&tally);
    assert_int_equal(tally_trained(&tally, 450), 450);
    tally_end(&tally, 450);
    tally_begin(&tally, 400);
    assert_int_equal(tally_trained(&tally, 400), 450);
    tally_save(&tally, 400);
    tally_deinit(&tally);
    /* One that has trained nothing yet forgets nothing of those before it. */
    assert_ok(tally_init(&tally, folder));
    tally.before = 450;
    tally_resume(&tally);
    tally_end(&tally, 0);
    tally_begin(&tally, 0);
    assert_int_equal(tally_trained(&tally, 0), 450);
    tally_deinit(&tally);
}

static void what_was_noted_is_in_the_file_too(void **state)
{
    (void)state;
    struct tally tally;
    const char *folder = testlib_folder("tally7");
    assert_ok(tally_init(&tally, folder));
    assert_true(tally_noted(&tally, 0, 1) == 0 && tally_noted(&tally, 7, 1) == 0);
    tally_note(&tally, 3, 5, 0x3);
    tally_note(&tally, 3, 5, 0x8);
    tally_note(&tally, 0, 2, 0x1);
    for (int again = 0; again < 2; again++) {
        assert_true(tally_noted(&tally, 3, 4) == UINT64_MAX);
        assert_true(tally_noted(&tally, 3, 5) == 0xb);
        assert_true(tally_noted(&tally, 3, 6) == 0);
        assert_true(tally_noted(&tally, 0, 2) == 0x1 && tally_noted(&tally, 1, 1) == 0);
        tally_save(&tally, 10);
        tally_deinit(&tally);
        assert_ok(tally_init(&tally, folder));
        assert_int_equal(tally.last, 10 * (again + 1));
    }
    tally_note(&tally, 3, 4, 0x1); /* a run that began anew */
    assert_true(tally_noted(&tally, 3, 5) == 0 && tally_noted(&tally, 3, 4) == 0x1);
    tally_deinit(&tally);
}

static void whether_all_was_contributed_is_in_the_file_too(void **state)
{
    (void)state;
    const char *folder = testlib_folder("tally5");
    struct tally tally;
    assert_ok(tally_init(&tally, folder));
    tally_begin(&tally, 0);
    assert_false(tally.unfinished); /* nobody has trained here */
    tally_unfinished(&tally, true, 10);
    assert_true(found(folder).unfinished); /* at once: what is said to the others outlives the daemon */
    assert_int_equal(found(folder).last, 10);
    tally_unfinished(&tally, true, 20); /* nothing new */
    assert_int_equal(found(folder).last, 10);
    tally_unfinished(&tally, false, 20);
    assert_int_equal(found(folder).last, 20);
    assert_false(found(folder).unfinished);
    tally_deinit(&tally);
}

static void a_damaged_file_counts_as_none(void **state)
{
    (void)state;
    const char *folder = testlib_folder("tally4");
    static const char bad[] = "diloco tokens 1\nbefore = x\n";
    assert_ok(fsio_replace(testlib_path(folder, "trainer.tokens"), bad, strlen(bad), 0644));
    assert_int_equal(found(folder).last, 0);
    assert_true(found(folder).counted == 0);
}

static void flush(struct jobs *jobs)
{
    while (jobs_pending(jobs) > 0)
        if (!jobs_take_back(jobs))
            sched_yield();
}

/* A disk that is busy may take long to flush a file. */
static void a_job_writes_it_and_the_last_word_stands(void **state)
{
    (void)state;
    const char *folder = testlib_folder("tally-job");
    struct tally tally;
    struct jobs *jobs;
    assert_ok(jobs_new(&(struct jobs_conf){.threads = 1}, &jobs));
    assert_ok(tally_init(&tally, folder));
    tally.jobs = jobs;
    tally_begin(&tally, 0);
    for (int i = 1; i <= 50; i++) {
        tally.counted = i;
        tally_save(&tally, 100);
    }
    assert_int_equal(jobs_pending(jobs), 1); /* one at a time */
    flush(jobs);
    assert_true(found(folder).counted == 50);
    tally.counted = 60;
    tally_save(&tally, 100);
    jobs_free(jobs); /* whether it was begun or not */
    tally_deinit(&tally);
    assert_true(found(folder).counted == 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_writes_it_and_the_last_word_stands),
        cmocka_unit_test(what_was_counted_is_in_the_file_a_second_later),
        cmocka_unit_test(where_nothing_is_counted_it_is_written_once_a_minute),
        cmocka_unit_test(the_next_trainer_counts_on_from_what_it_kept),
        cmocka_unit_test(a_trainer_that_trained_nothing_changes_nothing),
        cmocka_unit_test(a_trainer_that_was_there_before_the_daemon_counts_once),
        cmocka_unit_test(what_was_noted_is_in_the_file_too),
        cmocka_unit_test(whether_all_was_contributed_is_in_the_file_too),
        cmocka_unit_test(a_damaged_file_counts_as_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
