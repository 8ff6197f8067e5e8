/* SPDX-License-Identifier: Apache-2.0 */
/* ground: a folder that is gone is noticed, and one that comes back in time is no loss; no link is followed to
 * another's file. */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/digest.h"
#include "daemon/ground.h"
#include "net/transport/ident.h"
#include "tests/lib/ledgers.h"

static const char *folder, *aside;
static struct ledger *ledger;

static int set_up(void **state)
{
    (void)state;
    folder = testlib_folder("ground/state");
    aside = testlib_path(testlib_folder("ground-aside"), "state");
    ledger = ledgers_open(folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    ledger_close(ledger);
    return 0;
}

/* When it was told first, milliseconds from now on; 0: not within a minute. */
static uint64_t told_after(struct ground *ground, uint64_t begin_ms)
{
    for (uint64_t ms = 0; ms < 60000; ms += 100)
        if (ground_is_gone(ground, ledger, begin_ms + ms))
            return ms;
    return 0;
}

static void a_folder_that_is_gone_ends_the_daemon_soon(void **state)
{
    (void)state;
    struct ground ground = {.look_ms = 0};
    struct dconf conf = {.state_folder = (char *)(uintptr_t)folder};
    char text[600];
    assert_int_equal(told_after(&ground, 1000), 0);
    assert_int_equal(rename(folder, aside), 0);
    assert_in_range(told_after(&ground, 100000), 5000, 7000);
    ground_text(&conf, text, sizeof text);
    assert_non_null(strstr(text, folder));
    assert_non_null(strstr(text, "was removed or replaced"));
    assert_int_equal(rename(aside, folder), 0);
    assert_int_equal(told_after(&ground, 200000), 0);
}

/* Nor does a look at it while it is being moved. */
static void one_that_is_back_in_time_does_not(void **state)
{
    (void)state;
    struct ground ground = {.look_ms = 0};
    for (uint64_t ms = 1000; ms < 60000; ms += 1000) {
        assert_int_equal(rename(folder, aside), 0);
        assert_false(ground_is_gone(&ground, ledger, ms));
        assert_int_equal(rename(aside, folder), 0);
        assert_false(ground_is_gone(&ground, ledger, ms += 1000));
    }
}

static void a_mark_that_a_copy_would_bring_back_is_known(void **state)
{
    (void)state;
    struct dconf conf = {.state_folder = (char *)(uintptr_t)folder,
                         .run_folder = (char *)(uintptr_t)testlib_folder("ground-run")};
    struct vote *vote;
    assert_ok(ground_open_vote(&conf, "nobody", ledger, &vote)); /* a service's is in /run */
    assert_false(vote_exposed(vote));
    vote_close(vote);
}

/* Whoever may write to the folder of a new key could have it written to a file that others read. */
static void a_key_goes_into_a_new_file_alone(void **state)
{
    (void)state;
    struct ident ident, back;
    const char *key = testlib_path(folder, "island.key"), *theirs = testlib_path(folder, "theirs");
    assert_ok(ident_generate(&ident));
    assert_int_equal(symlink(theirs, key), 0);
    assert_fails(ERR_STATE, "exists already", ident_save(&ident, key));
    assert_int_equal(access(theirs, F_OK), -1);
    assert_int_equal(unlink(key), 0);
    testlib_file(folder, "island.key", "%s", "");
    assert_fails(ERR_STATE, "exists already", ident_save(&ident, key));
    assert_int_equal(unlink(key), 0);
    char beside[600];
    snprintf(beside, sizeof beside, "%s.new", key);
    assert_int_equal(symlink(theirs, beside), 0);
    assert_ok(ident_save(&ident, key));
    assert_int_equal(access(theirs, F_OK), -1);
    assert_ok(ident_load(key, &back));
    assert_memory_equal(back.key, ident.key, sizeof ident.key);
}

/* As of a service, whose key's folder is its user's alone. */
static void a_key_in_a_folder_of_another_user_is_not_to_be_made_anew(void **state)
{
    (void)state;
    struct ident ident;
    const char *closed = testlib_path(folder, "closed"), *key = testlib_path(folder, "closed/island.key");
    assert_int_equal(mkdir(closed, 0700), 0);
    assert_ok(ident_generate(&ident));
    assert_ok(ident_save(&ident, key));
    assert_int_equal(chmod(closed, 0), 0);
    bool root = geteuid() == 0;
    assert_int_equal(root ? seteuid(4711) : 0, 0);
    enum err err = ident_load(key, &ident);
    assert_int_equal(root ? seteuid(0) : 0, 0);
    assert_fails(ERR_IO, "this user may not look into its folder; call this with sudo", err);
    assert_null(strstr(err_text(), "keygen"));
    assert_int_equal(chmod(closed, 0700), 0);
    assert_int_equal(unlink(key), 0);
    assert_int_equal(rmdir(closed), 0);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_folder_that_is_gone_ends_the_daemon_soon, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_that_is_back_in_time_does_not, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_mark_that_a_copy_would_bring_back_is_known, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_key_goes_into_a_new_file_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_key_in_a_folder_of_another_user_is_not_to_be_made_anew, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
