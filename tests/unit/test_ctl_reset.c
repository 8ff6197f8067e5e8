/* SPDX-License-Identifier: Apache-2.0 */
/* ctl_reset: what an island keeps of its run is moved aside, and with it what lies beside its key. */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/fsio.h"
#include "daemon/ctl/ctl_reset.h"
#include "daemon/home.h"
#include "net/transport/ident.h"

static struct home home;

static const char *inside(const char *name)
{
    return testlib_path(home.folder, name);
}

static bool there(const char *name)
{
    return access(inside(name), F_OK) == 0;
}

static void make_key(const char *name)
{
    struct ident ident;
    assert_ok(ident_generate(&ident));
    assert_ok(ident_save(&ident, inside(name)));
}

static void make_home(const char *key)
{
    assert_ok(home_find(testlib_path(testlib_folder("reset"), "oslo"), &home));
    assert_ok(fsio_mkdirs(home.state, 0755));
    testlib_file(home.folder, "dilocod.conf",
                 "[island]\nname = oslo\nrun = run.ini\nkey = %s\njoined = joined\n[net]\nlisten = *:7600\n"
                 "[worker]\ndata = text\n",
                 key);
    make_key(key);
    testlib_file(home.state, "config-000000000000", "of the run\n");
}

static enum err reset(void)
{
    return ctl_reset(&home, inside("run/control.sock"), true);
}

/* What was asked for before would be asked for of the next run, and an order there give it to whoever has a copy. */
static void no_key_of_a_change_is_left_beside_the_key(void **state)
{
    (void)state;
    static const char *const keys[] = {"island.key.next", "island.key.dropped", "island.key.before"};
    char aside[100];
    make_home("island.key");
    for (size_t i = 0; i < 3; i++)
        make_key(keys[i]);
    testlib_file(home.folder, "island.key.config", "of the run\n");
    assert_ok(reset());
    for (size_t i = 0; i < 3; i++) {
        snprintf(aside, sizeof aside, "state.before-1/%s", keys[i]);
        assert_true(there(aside) && !there(keys[i]));
    }
    assert_true(there("state.before-1/island.key.config") && !there("island.key.config"));
    assert_true(there("state.before-1/config-000000000000"));
    assert_true(there("island.key") && there("dilocod.conf"));
    assert_fails(ERR_NOTFOUND, "there is nothing to reset", reset());
    assert_false(there("state.before-2"));
    home_free(&home);
}

static void a_key_in_the_folder_of_the_state_stays(void **state)
{
    (void)state;
    make_home("state/island.key");
    make_key("state/island.key.next");
    assert_ok(reset());
    assert_true(there("state/island.key") && !there("state/island.key.next"));
    assert_true(there("state.before-1/island.key.next") && there("state.before-1/config-000000000000"));
    assert_fails(ERR_NOTFOUND, "there is nothing to reset", reset());
    home_free(&home);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_key_of_a_change_is_left_beside_the_key),
        cmocka_unit_test(a_key_in_the_folder_of_the_state_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
