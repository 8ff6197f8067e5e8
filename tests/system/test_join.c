/* SPDX-License-Identifier: Apache-2.0 */
/* Islands that join a running run, leave it, are sent away and come back: by commands, with real daemons. */
#include "tests/lib/testlib.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/env.h"
#include "common/fsio.h"
#include "common/mem.h"
#include "tests/lib/homes.h"
#include "tests/lib/proc.h"
#include "tests/lib/village.h"

/* Sanitizers and a busy machine take their time. */
enum { PATIENCE_S = 60, TOKEN_BYTES = 4096 };

static const char *text, *spec, *paris, *oslo, *rome, *bern;

/* They wait where others compute, so that this test leaves the processors to others. Valid until the next call. */
static const char *trainer(const char *name)
{
    return village_synth(spec, name, "sleep=20");
}

/* What it says is to be typed works when it is copied. */
static void assert_suggests(const char *home, const char *command)
{
    char want[300];
    snprintf(want, sizeof want, "dilococtl --home %s %s", home, command);
    assert_told(want);
}

static const char *invited(const char *home)
{
    const char *token = homes_invite(home, NULL);
    if (token == NULL)
        fail_msg("no invitation:\n%s", homes_out);
    return token;
}

static int join(const char *home, const char *token, const char *name)
{
    return HOMES_RUN(home, "join", token, "--name", name, "--data", text, "--listen", homes_somewhere(), "--program",
                     trainer(name));
}

static void assert_owner(const char *home, const char *name)
{
    if (!homes_wait_role(home, name, "owner", PATIENCE_S)) {
        HOMES_RUN(home, "logs");
        fail_msg("%s does not become an owner:\n%s", name, homes_out);
    }
}

static void assert_versions_go_on(const char *home)
{
    if (!homes_wait_versions(home, homes_number(home, NULL, "versions") + 4, PATIENCE_S)) {
        HOMES_RUN(home, "logs");
        fail_msg("no versions are made at %s:\n%s", home, homes_out);
    }
}

static void each_joins_with_a_token_and_nobody_else_does_anything(void **state)
{
    (void)state;
    GOOD(paris, "init", "--name", "paris", "--data", text, "--run", spec, "--listen", homes_somewhere(), "--program",
         trainer("paris"));
    assert_told("invite");
    assert_true(homes_wait_versions(paris, 2, PATIENCE_S));
    assert_int_equal(join(oslo, invited(paris), "oslo"), 0);
    assert_told("Island oslo is made");
    assert_told("takes part by itself");
    assert_suggests(oslo, "watch");
    assert_owner(paris, "oslo");
    assert_int_equal(HOMES_RUN(oslo, "invite"), 1); /* that is for operators */
    assert_told("this island is no operator of the run, so its tokens would let nobody in: invite at paris");
    assert_int_equal(HOMES_RUN(oslo, "contributor", "oslo"), 1);
    assert_told("oslo is no operator; the run's operators: paris");
    GOOD(oslo, "founder", "oslo", "--no-wait"); /* it may ask the others to agree to that */
    assert_told(
        "it takes the founder, or 2 of the islands that vote: at the others of these, dilococtl approve 1 oslo");
    GOOD(paris, "orders");
    assert_told("founder oslo");
    assert_told("1 of 2 voters agree: dilococtl");
    GOOD(oslo, "orders");
    assert_told("1 of 2 voters agree, this island too");
    GOOD(oslo, "withdraw", "1");
    GOOD(paris, "grant", "oslo");
    assert_told("oslo may give orders, in epoch");
    const char *token = homes_invite(oslo, NULL); /* it may hear of that epoch a little later than paris */
    for (int k = 0; token == NULL && k < 100; k++) {
        proc_sleep_ms(50);
        token = homes_invite(oslo, NULL);
    }
    assert_non_null(token);
    const char *file = testlib_file(testlib_folder("join-token"), "token", "%s\n", token);
    GOOD(rome, "join", "--token-file", file, "--name", "rome", "--data", text, "--listen", homes_somewhere(),
         "--program", trainer("rome"));
    assert_owner(paris, "rome");
    assert_versions_go_on(paris);
    assert_versions_go_on(oslo);
    assert_versions_go_on(rome);
    assert_true(homes_number(rome, "trainer", "tokens_counted") > 0);
    GOOD(paris, "invite", "--list");
    assert_told("used");
    GOOD(paris, "invite");
    assert_suggests(paris, "invite --revoke ");
}

static void assert_nothing_made(void)
{
    assert_int_equal(access(bern, F_OK), -1);
}

/* The first trainer says what the model is; the guest hears at once what keeps it, and its token stays good. */
static void nobody_comes_in_before_a_trainer_has_run(void **state)
{
    (void)state;
    const char *lima = village_home("lima");
    char token[TOKEN_BYTES];
    GOOD(lima, "init", "--name", "lima", "--data", text, "--run", spec, "--listen", homes_somewhere(), "--program",
         "false");
    for (int k = 0; strcmp(homes_trainer(lima), "restarting") != 0 && k < PATIENCE_S * 10; k++)
        proc_sleep_ms(100);
    snprintf(token, sizeof token, "%s", invited(lima));
    assert_int_equal(join(bern, token, "bern"), 1);
    assert_told("nobody can come in before a trainer has run there, and its own does not: the trainer (pid ");
    assert_told("ended with status 1");
    assert_nothing_made();
    assert_int_equal(join(oslo, token, "oslo"), 1); /* which is in another run */
    assert_told("an island is here already, on the roster of a run");
    GOOD(lima, "invite", "--list");
    assert_told("open");
    GOOD(lima, "stop");
}

static void a_token_that_is_worth_nothing_lets_nobody_in(void **state)
{
    (void)state;
    char token[TOKEN_BYTES], id[9] = "";
    snprintf(token, sizeof token, "%s", homes_invite(paris, "1s"));
    proc_sleep_ms(1100);
    assert_int_equal(join(bern, token, "bern"), 1);
    assert_told("has expired");
    assert_nothing_made();
    GOOD(paris, "invite", "--json");
    const char *at = strstr(homes_out, "\"id\":\"");
    assert_non_null(at);
    memcpy(id, at + 6, 8);
    json_t *answer = json_loads(homes_out, 0, NULL);
    snprintf(token, sizeof token, "%s", json_string_value(json_object_get(answer, "token")));
    json_decref(answer);
    GOOD(paris, "invite", "--revoke", id);
    assert_int_equal(join(bern, token, "bern"), 1);
    assert_told("does not admit this token");
    assert_nothing_made();
    snprintf(token, sizeof token, "%s", invited(paris));
    assert_int_equal(join(bern, token, "oslo"), 1);
    assert_told("an island called oslo is on the roster already; take another name");
    assert_told("dilococtl revoke oslo");
    assert_nothing_made();
    assert_int_equal(HOMES_RUN(bern, "join", token, "--name", "bern", "--data", text, "--witness"), 2);
    assert_told("a witness trains on nothing");
    assert_int_equal(join(paris, token, "paris"), 1);
    assert_told("an island is here already");
    token[strlen(token) - 4] = '\0';
    assert_int_equal(join(bern, token, "bern"), 2);
    assert_told("cut short");
    assert_nothing_made();
}

/* Copied; valid until the next call. */
static const char *invited_for(const char *home, const char *name)
{
    static char token[TOKEN_BYTES];
    GOOD(home, "invite", "--for", name, "--json");
    json_t *answer = json_loads(homes_out, JSON_DISABLE_EOF_CHECK, NULL);
    const char *said = json_string_value(json_object_get(answer, "token"));
    snprintf(token, sizeof token, "%s", said != NULL ? said : "");
    json_decref(answer);
    return token;
}

/* As a script that brings machines into a state, and is run again. */
static void what_is_asked_twice_is_done_once(void **state)
{
    (void)state;
    char first[TOKEN_BYTES], token[TOKEN_BYTES];
    assert_int_equal(HOMES_RUN(paris, "invite", "--for", "no name"), 2);
    assert_told("--for no name: an island's name is 1 to 63 letters");
    snprintf(first, sizeof first, "%s", invited_for(paris, "bern"));
    snprintf(token, sizeof token, "%s", invited_for(paris, "bern"));
    assert_int_equal(join(bern, first, "bern"), 1);
    assert_told("does not admit this token");
    assert_int_equal(join(bern, token, "lima"), 1);
    assert_told("the token is for island bern; join by that name");
    assert_nothing_made();
    assert_string_equal(invited_for(paris, "rome"), "");
    GOOD(paris, "invite", "--for", "rome");
    assert_told("Island rome is in this run already, and needs no token");
    int daemon = homes_daemon(oslo);
    assert_int_equal(join(oslo, token, "oslo"), 0);
    assert_told("Island oslo is in this run already, and was left as it is.");
    assert_int_equal(homes_daemon(oslo), daemon);
    assert_int_equal(join(oslo, token, "lima"), 1); /* it is another one */
    assert_told("an island is here already");
}

static bool is_dialled_at(const char *home, const char *name, const char *address)
{
    json_t *peers = homes_ask(home, "peers"), *row;
    bool is = false;
    size_t index;
    json_array_foreach (json_object_get(peers, "peers"), index, row)
        is |= strcmp(json_string_value(json_object_get(row, "name")), name) == 0 &&
              strcmp(json_string_value(json_object_get(row, "address")), address) == 0;
    json_decref(peers);
    return is;
}

static void an_island_that_moves_is_found_again(void **state)
{
    (void)state;
    const char *others[] = {oslo, rome};
    char address[40];
    snprintf(address, sizeof address, "%s", homes_somewhere());
    GOOD(paris, "stop");
    assert_true(homes_configure(paris, "net", "listen", address));
    GOOD(paris, "start");
    assert_versions_go_on(paris); /* it dials them */
    for (int i = 0; i < 2; i++) {
        for (int k = 0; !is_dialled_at(others[i], "paris", address) && k < PATIENCE_S * 10; k++)
            proc_sleep_ms(100);
        assert_true(is_dialled_at(others[i], "paris", address));
    }
    assert_versions_go_on(rome);
}

static void assert_configured(const char *home, const char *line)
{
    char *conf;
    size_t bytes;
    assert_ok(fsio_read(testlib_path(home, "dilocod.conf"), 1 << 20, &conf, &bytes));
    assert_non_null(strstr(conf, line));
    mem_free(conf);
}

/* A try that was killed leaves the key; one with another key is another island. */
static void a_token_is_one_island_s_and_it_may_ask_again(void **state)
{
    (void)state;
    char token[TOKEN_BYTES];
    snprintf(token, sizeof token, "%s", invited(paris));
    GOOD(paris, "stop"); /* whom it has invited it knows after a start, too */
    GOOD(paris, "start");
    GOOD(bern, "join", token, "--name", "bern", "--data", text, "--listen", homes_somewhere(), "--no-start", "--owner",
         "no");
    unlink(testlib_path(bern, "dilocod.conf"));
    unlink(testlib_path(bern, "joined"));
    GOOD(bern, "join", token, "--name", "bern", "--data", text, "--listen", homes_somewhere(), "--no-start", "--owner",
         "no", "--device", "auto", "--ranks", "2", "--tensor-parallel", "2");
    assert_told("island.key (was there)");
    assert_configured(bern, "\ndevice = auto\n");
    assert_configured(bern, "\nranks = 2\n");
    assert_configured(bern, "\ntensor_parallel = 2\n");
    rename(testlib_path(bern, "island.key"), testlib_path(village_folder(), "bern.key"));
    unlink(testlib_path(bern, "dilocod.conf"));
    assert_int_equal(join(bern, token, "berne"), 1);
    assert_told("redeemed by another island");
    rename(testlib_path(village_folder(), "bern.key"), testlib_path(bern, "island.key"));
    assert_string_equal(homes_role(paris, "bern"), "observer");
    GOOD(oslo, "revoke", "bern");
    assert_told("is off the roster, in epoch");
    assert_string_equal(homes_role(rome, "bern"), "");
}

static void who_is_evicted_comes_back_by_itself(void **state)
{
    (void)state;
    GOOD(oslo, "evict", "rome");
    assert_told("rome takes no part, in epoch");
    assert_versions_go_on(paris);
    assert_owner(paris, "rome");
    assert_int_equal(HOMES_RUN(oslo, "evict", "nobody"), 1);
    assert_told("no island called \"nobody\"");
    assert_int_equal(HOMES_RUN(oslo, "evict", "oslo"), 1);
    assert_told("is this island itself");
}

/* Its daemon has everything; its trainer would keep rounds waiting again. */
static void one_whose_trainer_hangs_stays_out_until_it_moves(void **state)
{
    (void)state;
    pid_t trainer = (pid_t)homes_number(rome, "trainer", "pid");
    assert_true(trainer > 1);
    assert_int_equal(kill(trainer, SIGSTOP), 0);
    GOOD(oslo, "evict", "rome");
    assert_told("rome takes no part, in epoch");
    for (int i = 0; i < 10; i++) {
        proc_sleep_ms(1000);
        assert_string_not_equal(homes_role(paris, "rome"), "owner");
    }
    assert_versions_go_on(paris);
    assert_int_equal(kill(trainer, SIGCONT), 0);
    assert_owner(paris, "rome");
    assert_versions_go_on(rome);
}

static void who_leaves_owns_nothing_until_it_is_resumed_or_started_again(void **state)
{
    (void)state;
    GOOD(rome, "leave");
    assert_told("owns nothing now");
    assert_string_equal(homes_role(paris, "rome"), "draining");
    assert_string_equal(homes_trainer(rome), "stopped");
    assert_versions_go_on(paris);
    assert_string_equal(homes_role(paris, "rome"), "draining");
    GOOD(rome, "resume");
    assert_owner(paris, "rome");
    GOOD(rome, "leave");
    GOOD(rome, "stop");
    GOOD(rome, "start");
    assert_owner(paris, "rome");
    assert_versions_go_on(rome);
}

static void one_is_lost_for_good_and_comes_back_with_nothing(void **state)
{
    (void)state;
    homes_kill(rome);
    assert_true(homes_wait_role(paris, "rome", "away", PATIENCE_S));
    assert_versions_go_on(paris);
    assert_versions_go_on(oslo);
    homes_empty_state(rome);
    GOOD(rome, "start");
    assert_owner(paris, "rome");
    assert_versions_go_on(rome);
}

static void who_is_revoked_comes_back_with_a_new_token_alone(void **state)
{
    (void)state;
    GOOD(paris, "revoke", "rome");
    for (int i = 0; homes_daemon(rome) != 0 && i < PATIENCE_S * 40; i++)
        proc_sleep_ms(25);
    if (HOMES_RUN(rome, "start") != 1) {
        HOMES_RUN(rome, "logs");
        fail_msg("it starts though it is off the roster:\n%s",
                 homes_out + (strlen(homes_out) > 900 ? strlen(homes_out) - 900 : 0));
    }
    assert_told("is not on the roster");
    assert_suggests(rome, "reset");
    assert_versions_go_on(paris);
    assert_int_equal(HOMES_RUN(oslo, "reset"), 1);
    assert_told("dilocod runs here");
    assert_suggests(oslo, "stop");
    GOOD(rome, "reset");
    assert_told("its key and its configuration are as they were");
    assert_suggests(rome, "join TOKEN --name rome --program COMMAND");
    assert_int_equal(HOMES_RUN(rome, "reset"), 1); /* no remedy any more */
    assert_told("there is nothing to reset");
    assert_suggests(rome, "join TOKEN --name rome --program COMMAND");
    assert_int_equal(HOMES_RUN(rome, "start"), 1);
    assert_suggests(rome, "join TOKEN --name rome");
    assert_null(strstr(homes_out, " reset"));
    assert_int_equal(join(rome, invited(oslo), "rome"), 0);
    assert_owner(paris, "rome");
}

/* One of three decides nothing, and cannot have its last contributions counted. */
static void a_minority_says_what_it_waits_for(void **state)
{
    (void)state;
    char token[TOKEN_BYTES];
#define BERN_JOINS(seconds)                                                                                       \
    HOMES_RUN(bern, "join", token, "--name", "bern", "--data", text, "--listen", homes_somewhere(), "--no-start", \
              "--owner", "no", "--wait", seconds)
    homes_kill(oslo);
    homes_kill(rome);
    double since_s = env_mono_s();
    assert_int_equal(HOMES_RUN(paris, "leave", "--wait", "4"), 1);
    assert_true(env_mono_s() - since_s < 4 + PATIENCE_S / 2);
    assert_told("trainer: ");
    assert_told("not done after 4 s: the trainer is ");
    assert_told("it stays asked");
    GOOD(paris, "invite");
    assert_told("Warning: 1 of the 3 islands that vote are heard, no majority");
    snprintf(token, sizeof token, "%s", invited(paris));
    assert_int_equal(BERN_JOINS("6"), 3);
    assert_told("Still waiting: ");
    assert_told("not let in within 6 s: nobody could decide it now: it takes 2 of the 3 islands that vote");
    assert_told("the token stays good");
    GOOD(oslo, "start");
    GOOD(rome, "start");
    assert_true(homes_wait_role(oslo, "paris", "draining", PATIENCE_S)); /* it has stayed asked */
    if (BERN_JOINS("60") != 0)
        fail_msg("the same command does not go on:\n%s", homes_out);
    GOOD(oslo, "revoke", "bern");
    GOOD(paris, "resume");
    assert_owner(oslo, "paris");
}

static void all_hold_the_same(void **state)
{
    (void)state;
    village_ends_alike((const char *const[]){paris, oslo, rome}, 3, PATIENCE_S);
}

int main(void)
{
    assert_ok(digest_init());
    if (!village_open("join"))
        return 1;
    text = village_text();
    spec = village_spec(20);
    paris = village_home("paris");
    oslo = village_home("oslo");
    rome = village_home("rome");
    bern = village_home("bern");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_joins_with_a_token_and_nobody_else_does_anything),
        cmocka_unit_test(nobody_comes_in_before_a_trainer_has_run),
        cmocka_unit_test(a_token_that_is_worth_nothing_lets_nobody_in),
        cmocka_unit_test(what_is_asked_twice_is_done_once),
        cmocka_unit_test(an_island_that_moves_is_found_again),
        cmocka_unit_test(a_token_is_one_island_s_and_it_may_ask_again),
        cmocka_unit_test(who_is_evicted_comes_back_by_itself),
        cmocka_unit_test(one_whose_trainer_hangs_stays_out_until_it_moves),
        cmocka_unit_test(who_leaves_owns_nothing_until_it_is_resumed_or_started_again),
        cmocka_unit_test(one_is_lost_for_good_and_comes_back_with_nothing),
        cmocka_unit_test(who_is_revoked_comes_back_with_a_new_token_alone),
        cmocka_unit_test(a_minority_says_what_it_waits_for),
        cmocka_unit_test(all_hold_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
