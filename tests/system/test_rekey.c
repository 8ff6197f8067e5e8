/* SPDX-License-Identifier: Apache-2.0 */
/* Islands that change their key while the run goes on: by commands, with real daemons. */
#include "tests/lib/testlib.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/env.h"
#include "common/fsio.h"
#include "common/mem.h"
#include "net/transport/ident.h"
#include "tests/lib/homes.h"
#include "tests/lib/proc.h"
#include "tests/lib/village.h"

/* Sanitizers and a busy machine take their time. GAP: the longest time that a version may take while a key changes,
 * where one takes a fifth of a second. */
enum { PATIENCE_S = 60, GAP_S = 15 };

static const char *text, *spec, *paris, *oslo, *rome;

static const char *trainer(const char *name)
{
    return village_synth(spec, name, "sleep=20");
}

static void fail_with_logs(const char *home, const char *what)
{
    HOMES_RUN(home, "logs");
    size_t bytes = strlen(homes_out);
    fail_msg("%s at %s:\n%s", what, home, homes_out + (bytes > 3000 ? bytes - 3000 : 0));
}

static void join(const char *home, const char *name)
{
    char token[4096];
    const char *invited = homes_invite(paris, NULL);
    assert_non_null(invited);
    snprintf(token, sizeof token, "%s", invited);
    GOOD(home, "join", token, "--name", name, "--data", text, "--listen", homes_somewhere(), "--program",
         trainer(name));
    if (!homes_wait_role(paris, name, "owner", PATIENCE_S))
        fail_with_logs(home, "it does not become an owner");
}

/* ---- keys ---- */

static const char *path_of(const char *home, const char *end)
{
    static char path[600];
    snprintf(path, sizeof path, "%s/island.key%s", home, end);
    return path;
}

static void key_in(const char *home, const char *end, char out[IDENT_TEXT_BYTES])
{
    struct ident ident;
    assert_ok(ident_load(path_of(home, end), &ident));
    snprintf(out, IDENT_TEXT_BYTES, "%s", ident.public_text);
}

/* No configuration can give it the key that was taken back any more. */
static void wait_forgotten(const char *home)
{
    for (int i = 0; access(path_of(home, ".dropped"), F_OK) == 0 && i < PATIENCE_S * 20; i++)
        proc_sleep_ms(50);
    assert_int_not_equal(access(path_of(home, ".dropped"), F_OK), 0);
}

/* What `home` knows of an island; "": nothing. */
static void known(const char *home, const char *name, const char *what, char out[IDENT_TEXT_BYTES])
{
    json_t *peers = homes_ask(home, "peers"), *row;
    size_t index;
    out[0] = '\0';
    json_array_foreach (json_object_get(peers, "peers"), index, row)
        if (strcmp(json_string_value(json_object_get(row, "name")), name) == 0)
            snprintf(out, IDENT_TEXT_BYTES, "%s", json_string_value(json_object_get(row, what)));
    json_decref(peers);
}

static void wait_known(const char *home, const char *name, const char *what, const char *value)
{
    char is[IDENT_TEXT_BYTES] = "";
    for (int i = 0; i < PATIENCE_S * 20; i++) {
        known(home, name, what, is);
        if (strcmp(is, value) == 0)
            return;
        proc_sleep_ms(50);
    }
    fprintf(stderr, "%s of %s is %s, not %s\n", what, name, is, value);
    fail_with_logs(home, "it does not know the key");
}

static bool is_up(const char *home, const char *name)
{
    json_t *peers = homes_ask(home, "peers"), *row;
    size_t index;
    bool up = false;
    json_array_foreach (json_object_get(peers, "peers"), index, row)
        if (strcmp(json_string_value(json_object_get(row, "name")), name) == 0)
            up = json_is_true(json_object_get(row, "up"));
    json_decref(peers);
    return up;
}

static void wait_up(const char *home, const char *name)
{
    for (int i = 0; i < PATIENCE_S * 20; i++) {
        if (is_up(home, name))
            return;
        proc_sleep_ms(50);
    }
    fail_with_logs(home, "it does not hear an island");
}

/* ---- the run goes on ---- */

/* Until `more` versions were made; none of them may take too long. */
static void watch_versions(const char *home, int more)
{
    long long at = homes_number(home, NULL, "versions"), end = at + more;
    double last_s = (double)env_mono_ms() * 1e-3, longest_s = 0;
    while (at < end) {
        long long now = homes_number(home, NULL, "versions");
        double gap_s = (double)env_mono_ms() * 1e-3 - last_s;
        longest_s = gap_s > longest_s ? gap_s : longest_s;
        if (gap_s > GAP_S)
            fail_with_logs(home, "no version is made");
        if (now > at) {
            at = now;
            last_s = (double)env_mono_ms() * 1e-3;
        }
        proc_sleep_ms(20);
    }
    print_message("the longest version took %.2f s\n", longest_s);
}

static void assert_counted_goes_on(const char *home)
{
    long long before = homes_number(home, "trainer", "tokens_counted");
    for (int i = 0; i < PATIENCE_S * 20; i++) {
        if (homes_number(home, "trainer", "tokens_counted") > before)
            return;
        proc_sleep_ms(50);
    }
    fail_with_logs(home, "its work counts no more");
}

/* ---- cases ---- */

static void change_key(const char *home, const char *name)
{
    char old[IDENT_TEXT_BYTES], next[IDENT_TEXT_BYTES];
    struct stat status;
    key_in(home, "", old);
    int daemon = homes_daemon(home);
    GOOD(home, "rekey");
    key_in(home, ".next", next);
    assert_told(next);
    assert_int_equal(stat(path_of(home, ".next"), &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    GOOD(home, "rekey"); /* the same again */
    assert_told("asks already for");
    assert_told(next);
    wait_known(paris, name, "next_key", next);
    GOOD(paris, "orders");
    assert_told("asks for the key");
    GOOD(paris, "status", "-v");
    assert_told("asks for another key");
    GOOD(paris, "rekey", name);
    assert_told(old);
    assert_told(next);
    GOOD(paris, "rekey", name, "--yes");
    assert_told("has its new key, in epoch");
    const char *const all[] = {paris, oslo, rome};
    for (int i = 0; i < 3; i++)
        wait_known(all[i], name, "public_key", next);
    watch_versions(paris, 20);
    for (int i = 0; i < 3; i++)
        if (all[i] != home) {
            wait_up(all[i], name);
            wait_up(home, i == 0 ? "paris" : i == 1 ? "oslo" : "rome");
        }
    assert_counted_goes_on(home);
    char is[IDENT_TEXT_BYTES];
    key_in(home, "", is);
    assert_string_equal(is, next);
    GOOD(home, "rekey", "--old", old); /* as in a play that is run again */
    assert_told("has another key already");
    GOOD(paris, "rekey", name, "--old", old, "--yes");
    assert_told("has another key already");
    assert_int_not_equal(access(path_of(home, ".next"), F_OK), 0);
    assert_int_equal(homes_daemon(home), daemon); /* nothing was started again */
    known(paris, name, "next_key", is);
    assert_string_equal(is, "");
}

static void three_islands_train(void **state)
{
    (void)state;
    GOOD(paris, "init", "--name", "paris", "--data", text, "--run", spec, "--listen", homes_somewhere(), "--program",
         trainer("paris"), "--no-start");
    GOOD(paris, "rekey");
    assert_told("No daemon runs here");
    GOOD(paris, "rekey", "--cancel");
    GOOD(paris, "start");
    wait_forgotten(paris); /* no configuration has the founder's first word */
    assert_true(homes_wait_versions(paris, 2, PATIENCE_S));
    join(oslo, "oslo");
    join(rome, "rome");
    watch_versions(paris, 10);
}

static void a_voter_changes_its_key(void **state)
{
    (void)state;
    assert_int_equal(HOMES_RUN(paris, "rekey", "oslo"), 1);
    assert_told("asks for no other key");
    change_key(oslo, "oslo");
    assert_int_equal(HOMES_RUN(oslo, "rekey", "rome", "--yes"), 1);
    assert_told("asks for no other key");
}

static void the_founder_changes_its_own(void **state)
{
    (void)state;
    GOOD(paris, "invite");
    GOOD(paris, "invite", "--list");
    assert_told("open");
    change_key(paris, "paris");
    GOOD(paris, "invite", "--list"); /* tokens name the key before */
    assert_told("no invitation of this island is open");
    GOOD(paris, "invite"); /* it is the founder still */
}

static void a_contributor_changes_its_key(void **state)
{
    (void)state;
    GOOD(paris, "contributor", "rome");
    change_key(rome, "rome");
    GOOD(paris, "owner", "rome");
    if (!homes_wait_role(paris, "rome", "owner", PATIENCE_S))
        fail_with_logs(rome, "it does not become an owner");
}

static void one_that_is_taken_back_is_nobody_s(void **state)
{
    (void)state;
    char old[IDENT_TEXT_BYTES], next[IDENT_TEXT_BYTES];
    key_in(oslo, "", old);
    assert_int_equal(HOMES_RUN(oslo, "rekey", "--cancel"), 1);
    assert_told("asks for no other key");
    GOOD(oslo, "rekey");
    key_in(oslo, ".next", next);
    wait_known(paris, "oslo", "next_key", next);
    GOOD(oslo, "rekey", "--cancel");
    wait_known(paris, "oslo", "next_key", "");
    assert_int_equal(HOMES_RUN(paris, "rekey", "oslo", "--yes"), 1);
    assert_told("asks for no other key");
    wait_forgotten(oslo);
    GOOD(oslo, "rekey");
    GOOD(oslo, "rekey", "--cancel"); /* it may be that no configuration ever had it */
    wait_forgotten(oslo);
    known(paris, "oslo", "public_key", next);
    assert_string_equal(next, old);
}

/* It is ordered while the island is down: nobody lets in the key that it knows to be its own. */
static void one_that_was_down_finds_out(void **state)
{
    (void)state;
    char next[IDENT_TEXT_BYTES], is[IDENT_TEXT_BYTES];
    GOOD(rome, "rekey");
    key_in(rome, ".next", next);
    wait_known(rome, "rome", "next_key", next);
    homes_kill(rome);
    GOOD(paris, "rekey", "rome", "--yes");
    watch_versions(paris, 10);
    GOOD(rome, "start");
    wait_known(rome, "rome", "public_key", next);
    wait_up(paris, "rome");
    if (!homes_wait_role(paris, "rome", "owner", PATIENCE_S))
        fail_with_logs(rome, "it does not come back");
    key_in(rome, "", is);
    assert_string_equal(is, next);
    assert_counted_goes_on(rome);
}

/* Before the word is heard, after it, and while it is carried out. */
static void one_that_is_killed_at_any_moment_has_a_key(void **state)
{
    (void)state;
    for (int moment = 0; moment < 4; moment++) {
        char next[IDENT_TEXT_BYTES];
        GOOD(oslo, "rekey");
        key_in(oslo, ".next", next);
        if (moment == 0)
            homes_kill(oslo);
        if (moment == 0)
            GOOD(oslo, "start");
        wait_known(paris, "oslo", "next_key", next);
        GOOD(paris, "rekey", "oslo", "--yes", "--no-wait");
        proc_sleep_ms(moment == 0 ? 0 : 150 * (moment - 1));
        homes_kill(oslo);
        proc_sleep_ms(500);
        GOOD(oslo, "start");
        wait_known(oslo, "oslo", "public_key", next);
        wait_known(paris, "oslo", "public_key", next);
        wait_up(paris, "oslo");
        wait_up(oslo, "rome");
        if (!homes_wait_role(paris, "oslo", "owner", PATIENCE_S))
            fail_with_logs(oslo, "it does not come back");
        assert_counted_goes_on(oslo);
    }
}

/* Somebody has a copy of the key that rome had. */
static void the_key_before_is_shut_out(void **state)
{
    (void)state;
    char *old;
    char next[IDENT_TEXT_BYTES], path[640];
    size_t bytes;
    assert_ok(fsio_read(path_of(rome, ""), 4096, &old, &bytes));
    change_key(rome, "rome");
    key_in(rome, "", next);
    GOOD(rome, "stop");
    snprintf(path, sizeof path, "%s.mine", path_of(rome, ""));
    assert_int_equal(rename(path_of(rome, ""), path), 0);
    assert_ok(fsio_replace(path_of(rome, ""), old, bytes, 0600));
    mem_free(old);
    assert_int_not_equal(HOMES_RUN(rome, "start"), 0);
    assert_told("is not on the roster");
    if (rename(path, path_of(rome, "")) != 0)
        fail_msg("%s: %s", path, strerror(errno));
    GOOD(rome, "start");
    wait_up(paris, "rome");
}

/* What it joined by, or founded, names the key that it had then. */
static void one_whose_state_is_lost_comes_back(void **state)
{
    (void)state;
    const char *const homes[] = {rome, paris}, *const names[] = {"rome", "paris"}, *const others[] = {paris, oslo};
    for (int i = 0; i < 2; i++) {
        char command[700];
        GOOD(homes[i], "stop");
        homes_empty_state(homes[i]);
        snprintf(command, sizeof command, "rm -f %s/run/config-*", homes[i]);
        assert_int_equal(system(command), 0);
        GOOD(homes[i], "start");
        if (!homes_wait_role(others[i], names[i], "owner", PATIENCE_S))
            fail_with_logs(homes[i], "it does not come back");
        assert_counted_goes_on(homes[i]);
    }
}

/* A copy of the state folder alone, from before oslo asked for the key that it has now. */
static void one_whose_state_is_older_than_its_key_comes_back(void **state)
{
    (void)state;
    char command[1400];
    GOOD(oslo, "stop");
    snprintf(command, sizeof command, "cp -a %s/state %s/state.copy", oslo, oslo);
    assert_int_equal(system(command), 0);
    GOOD(oslo, "start");
    wait_up(paris, "oslo");
    change_key(oslo, "oslo");
    GOOD(oslo, "stop");
    watch_versions(paris, 10);
    homes_empty_state(oslo);
    snprintf(command, sizeof command, "mv %s/state.copy %s/state", oslo, oslo);
    assert_int_equal(system(command), 0);
    for (int starts = 0; starts < 2; starts++) {
        GOOD(oslo, "start");
        wait_up(paris, "oslo");
        if (!homes_wait_role(paris, "oslo", "owner", PATIENCE_S))
            fail_with_logs(oslo, "it does not come back");
        assert_counted_goes_on(oslo);
        GOOD(oslo, "stop");
    }
    GOOD(oslo, "start");
    wait_up(paris, "oslo");
}

static void all_hold_the_same(void **state)
{
    (void)state;
    village_ends_alike((const char *const[]){paris, oslo, rome}, 3, PATIENCE_S);
}

int main(void)
{
    assert_ok(digest_init());
    if (!village_open("rekey"))
        return 1;
    text = village_text();
    spec = village_spec(20);
    paris = village_home("paris");
    oslo = village_home("oslo");
    rome = village_home("rome");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(three_islands_train),
        cmocka_unit_test(a_voter_changes_its_key),
        cmocka_unit_test(the_founder_changes_its_own),
        cmocka_unit_test(a_contributor_changes_its_key),
        cmocka_unit_test(one_that_is_taken_back_is_nobody_s),
        cmocka_unit_test(one_that_was_down_finds_out),
        cmocka_unit_test(one_that_is_killed_at_any_moment_has_a_key),
        cmocka_unit_test(the_key_before_is_shut_out),
        cmocka_unit_test(one_whose_state_is_lost_comes_back),
        cmocka_unit_test(one_whose_state_is_older_than_its_key_comes_back),
        cmocka_unit_test(all_hold_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
