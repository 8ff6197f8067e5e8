/* SPDX-License-Identifier: Apache-2.0 */
/* keyring: which key is an island's, whatever a crash has left in which file. */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/fsio.h"
#include "common/mem.h"
#include "daemon/home.h"
#include "daemon/keyring.h"
#include "tests/lib/sample_configs.h"

static struct dconf conf;
static struct keyring keyring;
static struct ident key, next, dropped;
static struct config config;
static char key_path[300], next_path[320], dropped_path[320], before_path[320], try_path[320];

static int begin(void **state)
{
    (void)state;
    const char *folder = testlib_folder("keyring");
    snprintf(key_path, sizeof key_path, "%s/island.key", folder);
    snprintf(next_path, sizeof next_path, "%s.next", key_path);
    snprintf(dropped_path, sizeof dropped_path, "%s.dropped", key_path);
    snprintf(before_path, sizeof before_path, "%s.before", key_path);
    snprintf(try_path, sizeof try_path, "%s.try", key_path);
    unlink(key_path);
    unlink(next_path);
    unlink(dropped_path);
    unlink(before_path);
    conf = (struct dconf){.key_path = key_path, .run_folder = (char *)(uintptr_t)folder, .in_home = true};
    assert_ok(ident_generate(&key));
    assert_ok(ident_generate(&next));
    assert_ok(ident_generate(&dropped));
    assert_ok(ident_save(&key, key_path));
    config = configs_first(3, false);
    return 0;
}

static int end(void **state)
{
    (void)state;
    keyring_close(&keyring);
    config_deinit(&config);
    return 0;
}

static void open_again(void)
{
    keyring_close(&keyring);
    assert_ok(keyring_open(&conf, &keyring));
}

/* The configuration gives member 1 this key. */
static void name(const struct ident *ident)
{
    memcpy(config.members[1].key, ident->key, sizeof ident->key);
}

static void assert_in(const char *path, const struct ident *ident)
{
    struct ident is;
    if (ident == NULL) {
        assert_int_not_equal(access(path, F_OK), 0);
        return;
    }
    assert_ok(ident_load(path, &is));
    assert_string_equal(is.public_text, ident->public_text);
}

static void assert_is(const struct ident *ident)
{
    assert_string_equal(keyring.ident.public_text, ident->public_text);
}

static void the_configuration_says_which_key_is_ours(void **state)
{
    (void)state;
    open_again();
    assert_null(keyring_other(&keyring));
    assert_false(keyring_settle(&keyring, &config)); /* it names none of ours */
    assert_is(&key);
    assert_ok(ident_save(&next, next_path));
    name(&key);
    assert_ok(keyring_reload(&keyring));
    assert_false(keyring_settle(&keyring, &config));
    assert_is(&key);
    assert_string_equal(keyring_other(&keyring)->public_text, next.public_text);
    name(&next);
    assert_true(keyring_settle(&keyring, &config));
    assert_is(&next);
    assert_null(keyring_other(&keyring));
    assert_in(key_path, &next);
    assert_in(next_path, NULL);
    assert_in(before_path, &key);
    assert_string_equal(keyring.before.public_text, key.public_text);
    assert_false(keyring_settle(&keyring, &config));
    open_again();
    assert_is(&next);
    assert_string_equal(keyring.before.public_text, key.public_text);
}

/* Its daemon ended before it could rename anything, or in between. */
static void a_start_finds_out(void **state)
{
    (void)state;
    char *old_mark, *new_mark;
    bool exposed;
    struct stat status;
    assert_ok(home_mark(true, key.public_text, conf.run_folder, &old_mark, &exposed));
    assert_ok(home_mark(true, next.public_text, conf.run_folder, &new_mark, &exposed));
    for (int moved = 0; moved < 2; moved++) {
        unlink(key_path);
        unlink(next_path);
        assert_ok(ident_save(&key, key_path));
        assert_ok(ident_save(&next, next_path));
        assert_ok(fsio_replace(moved ? new_mark : old_mark, "mark", 4, 0600));
        name(&next);
        open_again();
        assert_is(&key);
        assert_true(keyring_settle(&keyring, &config));
        assert_is(&next);
        assert_in(key_path, &next);
        assert_in(next_path, NULL);
        assert_int_equal(stat(new_mark, &status), 0); /* the votes are the island's, whatever its key */
        assert_int_equal(status.st_size, 4);
        assert_int_not_equal(stat(old_mark, &status), 0);
        unlink(new_mark);
    }
    mem_free(old_mark);
    mem_free(new_mark);
}

static void what_was_taken_back_may_have_been_given(void **state)
{
    (void)state;
    assert_ok(ident_save(&dropped, dropped_path));
    assert_ok(ident_save(&next, next_path));
    open_again();
    assert_string_equal(keyring_other(&keyring)->public_text, next.public_text);
    name(&dropped);
    assert_true(keyring_settle(&keyring, &config));
    assert_is(&dropped);
    assert_in(key_path, &dropped);
    assert_in(dropped_path, NULL);
    assert_in(next_path, &next);
    unlink(next_path);
    assert_ok(ident_save(&key, dropped_path));
    assert_ok(keyring_reload(&keyring));
    assert_string_equal(keyring_other(&keyring)->public_text, key.public_text);
    keyring_forget_dropped(&keyring);
    assert_null(keyring_other(&keyring));
    assert_in(dropped_path, NULL);
}

/* Its word is the run's when a configuration rests on it; a founder that has never said another has number 1, which
 * none has. */
static void what_was_taken_back_can_be_given_no_more(void **state)
{
    (void)state;
    struct config_member *as = &config.members[1];
    open_again();
    as->word = 7;
    assert_false(keyring_dropped_is_over(&keyring, as, 7)); /* there is none */
    assert_ok(ident_save(&dropped, dropped_path));
    open_again();
    assert_false(keyring_dropped_is_over(&keyring, as, 0)); /* it has said nothing yet */
    assert_false(keyring_dropped_is_over(&keyring, as, 8));
    assert_true(keyring_dropped_is_over(&keyring, as, 7));
    memcpy(as->next_key, dropped.key, sizeof as->next_key);
    assert_false(keyring_dropped_is_over(&keyring, as, 7));
    memset(as->next_key, 0, sizeof as->next_key);
    as->word = 0;
    assert_false(keyring_dropped_is_over(&keyring, as, 2));
    assert_true(keyring_dropped_is_over(&keyring, as, 1));
}

static void a_damaged_new_key_is_none(void **state)
{
    (void)state;
    assert_ok(fsio_replace(next_path, "seed", 4, 0600));
    open_again();
    assert_null(keyring_other(&keyring));
    assert_int_equal(chmod(next_path, 0644), 0);
    assert_ok(keyring_reload(&keyring));
    assert_null(keyring_other(&keyring));
    unlink(key_path);
    keyring_close(&keyring);
    assert_fails(ERR_NOTFOUND, "make one with", keyring_open(&conf, &keyring));
}

/* As on a file system that may only be read now. */
static void a_key_that_cannot_be_renamed_is_found_where_it_lies(void **state)
{
    (void)state;
    assert_ok(ident_save(&next, next_path));
    name(&next);
    for (int starts = 0; starts < 2; starts++) {
        open_again();
        conf.key_path = (char *)(uintptr_t) "/proc/self/no/such/folder/island.key"; /* where nothing can be put */
        assert_true(keyring_settle(&keyring, &config));
        conf.key_path = key_path;
        assert_is(&next);
        assert_in(key_path, &key);
        assert_in(next_path, &next);
    }
}

/* As of a service whose key was put into a folder that is not its to write: before anybody is asked for anything. */
static void no_key_is_asked_for_where_none_could_be_kept(void **state)
{
    (void)state;
    static const char nowhere[] = "/proc/self/no/such/folder/island.key";
    open_again();
    assert_ok(ident_save(&next, next_path));
    conf.key_path = (char *)(uintptr_t)nowhere;
    assert_fails(ERR_CONF,
                 "cannot write beside its key /proc/self/no/such/folder/island.key: No such file or directory",
                 keyring_reload(&keyring));
    assert_false(keyring_has(&keyring.asked));
    assert_null(keyring_other(&keyring)); /* nobody was told of it */
    conf.key_path = key_path;
    assert_ok(keyring_reload(&keyring));
    assert_string_equal(keyring.asked.public_text, next.public_text);
    assert_int_not_equal(access(try_path, F_OK), 0);
    conf.key_path = (char *)(uintptr_t)nowhere; /* from now on */
    assert_fails(ERR_CONF, "move the key into a folder where its user may write", keyring_reload(&keyring));
    assert_false(keyring_has(&keyring.asked));
    assert_string_equal(keyring_other(&keyring)->public_text, next.public_text); /* it may be given still */
    conf.key_path = key_path;
}

/* A pipe that nobody reads would be waited for as long. */
static void what_lies_where_it_tries_is_not_waited_for(void **state)
{
    (void)state;
    assert_ok(ident_save(&next, next_path));
    assert_int_equal(mkfifo(try_path, 0600), 0);
    alarm(60);
    open_again();
    alarm(0);
    assert_true(keyring_has(&keyring.asked));
    assert_int_not_equal(access(try_path, F_OK), 0);
}

static void the_present_key_is_no_other_one(void **state)
{
    (void)state;
    assert_ok(ident_save(&key, next_path));
    assert_ok(ident_save(&key, dropped_path));
    open_again();
    assert_null(keyring_other(&keyring));
    assert_false(keyring_has(&keyring.asked));
    unlink(next_path); /* a daemon that could not rename it has it in memory */
    unlink(dropped_path);
    assert_ok(ident_save(&next, next_path));
    assert_ok(keyring_reload(&keyring));
    name(&next);
    conf.key_path = (char *)(uintptr_t) "/proc/self/no/such/folder/island.key";
    assert_true(keyring_settle(&keyring, &config));
    assert_false(keyring_has(&keyring.asked));
    conf.key_path = key_path;
    assert_ok(keyring_reload(&keyring));
    assert_is(&next);
    assert_null(keyring_other(&keyring));
    assert_false(keyring_has(&keyring.asked));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        CASE(the_configuration_says_which_key_is_ours),
        CASE(a_start_finds_out),
        CASE(what_was_taken_back_may_have_been_given),
        CASE(what_was_taken_back_can_be_given_no_more),
        CASE(a_damaged_new_key_is_none),
        CASE(a_key_that_cannot_be_renamed_is_found_where_it_lies),
        CASE(no_key_is_asked_for_where_none_could_be_kept),
        CASE(what_lies_where_it_tries_is_not_waited_for),
        CASE(the_present_key_is_no_other_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
