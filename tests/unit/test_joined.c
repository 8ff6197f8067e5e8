/* SPDX-License-Identifier: Apache-2.0 */
/* joined: the configuration by which an island joined is read as it was decided; what is no such file is refused. */
#include "tests/lib/testlib.h"

#include <string.h>
#include <unistd.h>

#include "common/digest.h"
#include "daemon/founding.h"
#include "net/config/config_proof.h"
#include "tests/lib/begun.h"

enum { ISLANDS = 2 };

static void what_was_decided_is_read_and_nothing_else(void **state)
{
    (void)state;
    struct ident idents[ISLANDS];
    struct begun_island islands[ISLANDS];
    struct runspec spec;
    struct config config;
    struct config_entry entry;
    const char *folder = testlib_folder("joined"), *path = testlib_path(folder, "joined");
    static const char *const names[ISLANDS][3] = {{"a", "state-a", "s-a"}, {"b", "state-b", "s-b"}};
    assert_ok(runspec_parse("[run]\nname = r\nsteps = 77\n", "r", &spec));
    for (int i = 0; i < ISLANDS; i++) {
        assert_ok(ident_generate(&idents[i]));
        islands[i] = (struct begun_island){.name = names[i][0],
                                           .address = "",
                                           .ident = &idents[i],
                                           .uplink = 1,
                                           .state = testlib_path(folder, names[i][1]),
                                           .sockets = testlib_path(folder, names[i][2]),
                                           .joined = i > 0 ? path : NULL};
    }
    assert_fails(ERR_NOTFOUND, "", founding_read_joined(path, &config, &entry));
    assert_ok(begun_write(islands, ISLANDS, &spec, NULL));
    assert_ok(founding_read_joined(path, &config, &entry));
    struct digest digest = config_digest(entry.bytes, entry.bytes_count);
    assert_int_equal(config.epoch, 1);
    assert_int_equal(config.members_count, ISLANDS);
    assert_int_equal(entry.votes_count, 1);
    assert_true(config_vote_good(idents[0].key, config.nonce, 1, &digest, &entry.votes[0]));
    config_deinit(&config);
    config_entry_free(&entry);
    assert_int_equal(truncate(path, 60), 0);
    assert_int_equal(founding_read_joined(path, &config, &entry), ERR_PROTO);
    assert_null(config.members);
    assert_null(entry.bytes);
    runspec_deinit(&spec);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_decided_is_read_and_nothing_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
