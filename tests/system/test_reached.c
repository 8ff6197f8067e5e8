/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a newcomer is reached at the address that it states: it hears so from `join`, and comes in as what it can be;
 * and who cannot let it in. By commands, with real daemons. */
#include "tests/lib/testlib.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/env.h"
#include "daemon/founding.h"
#include "daemon/membership/dial_server.h"
#include "net/config/config_proof.h"
#include "tests/lib/homes.h"
#include "tests/lib/proc.h"
#include "tests/lib/village.h"

/* FORETOLD: longer than heartbeats take to say so. */
enum { PATIENCE_S = 60, FORETOLD_S = 25, TOKEN_BYTES = 4096, ADDRESS_MAX = 64, KNOCKS = 8 };

static const char *text, *spec, *paris, *oslo, *rome, *bern;
static char paris_listens[ADDRESS_MAX], rome_listens[ADDRESS_MAX];

static const char *trainer(const char *name)
{
    return village_synth(spec, name, "sleep=20");
}

/* Copied; valid until the next call. */
static const char *invited(const char *home)
{
    static char token[TOKEN_BYTES];
    const char *got = homes_invite(home, NULL);
    if (got == NULL)
        fail_msg("no invitation:\n%s", homes_out);
    snprintf(token, sizeof token, "%s", got);
    return token;
}

static void assert_owner(const char *name)
{
    if (!homes_wait_role(paris, name, "owner", PATIENCE_S)) {
        HOMES_RUN(paris, "logs");
        fail_msg("%s does not become an owner:\n%s", name, homes_out);
    }
}

static void assert_untold(const char *part)
{
    if (strstr(homes_out, part) != NULL)
        fail_msg("it says \"%s\":\n%s", part, homes_out);
}

/* What the configuration by which it came in has of it: its first word. */
static int choice_of(const char *home, const char *name)
{
    struct config config;
    struct config_entry entry;
    assert_ok(founding_read_joined(testlib_path(home, "joined"), &config, &entry));
    const struct config_member *member = config_member_named(&config, name);
    int choice = member != NULL ? member->owner_choice : -1;
    config_deinit(&config);
    config_entry_free(&entry);
    return choice;
}

static void assert_says(const char *format, const char *address)
{
    char want[400];
    snprintf(want, sizeof want, format, address);
    assert_told(want);
}

/* bern comes in at `address`, by paris, and is not started; it goes again. */
static void bern_joins_at(const char *address)
{
    GOOD(bern, "join", invited(paris), "--name", "bern", "--data", text, "--listen", homes_somewhere(), "--address",
         address, "--no-start");
}

static void bern_goes(void)
{
    char told[sizeof homes_out];
    memcpy(told, homes_out, sizeof told);
    GOOD(paris, "revoke", "bern");
    GOOD(bern, "reset");
    unlink(testlib_path(bern, "dilocod.conf"));
    unlink(testlib_path(bern, "island.key"));
    unlink(testlib_path(bern, "run.ini"));
    memcpy(homes_out, told, sizeof told);
}

static void who_listens_is_told_who_reaches_it(void **state)
{
    (void)state;
    char address[ADDRESS_MAX];
    snprintf(paris_listens, sizeof paris_listens, "%s", homes_somewhere());
    GOOD(paris, "init", "--name", "paris", "--data", text, "--run", spec, "--listen", paris_listens, "--program",
         trainer("paris"));
    assert_true(homes_wait_versions(paris, 2, PATIENCE_S));
    snprintf(address, sizeof address, "%s", homes_somewhere());
    GOOD(oslo, "join", invited(paris), "--name", "oslo", "--data", text, "--listen", address, "--program",
         trainer("oslo"));
    assert_says("Reached at %s by paris.\n", address);
    assert_int_equal(choice_of(oslo, "oslo"), CONFIG_OWNER_AUTO);
    assert_owner("oslo");
    snprintf(rome_listens, sizeof rome_listens, "%s", homes_somewhere());
    GOOD(rome, "join", invited(paris), "--name", "rome", "--data", text, "--listen", rome_listens, "--program",
         trainer("rome"));
    assert_says("Reached at %s by paris and oslo.\n", rome_listens);
    assert_owner("rome");
}

/* Its port is open, at another address than it says. */
static void who_is_not_reached_is_told_so_and_comes_in_all_the_same(void **state)
{
    (void)state;
    char listen[ADDRESS_MAX], address[ADDRESS_MAX];
    snprintf(listen, sizeof listen, "%s", homes_somewhere());
    snprintf(address, sizeof address, "127.9.9.9:%s", strrchr(listen, ':') + 1);
    GOOD(bern, "join", invited(paris), "--name", "bern", "--data", text, "--listen", listen, "--address", address,
         "--program", trainer("bern"));
    assert_says(
        "Warning: this island is not reached at %s: paris dialled it: nobody listens there (connection refused); ",
        address);
    assert_told(" dialled it: nobody listens there (connection refused). It joins all the same: it contributes");
    assert_told("let that TCP port in (firewall, port forwarding), or state another way: --listen");
    assert_int_equal(choice_of(bern, "bern"), CONFIG_OWNER_DIALS);
    for (double begin_s = env_mono_s(); env_mono_s() < begin_s + FORETOLD_S; proc_sleep_ms(200)) {
        json_t *status = homes_ask(bern, "status");
        if (status != NULL && !json_is_true(json_object_get(status, "undialled")))
            fail_msg("it takes itself for reachable after %.1f s", env_mono_s() - begin_s);
        json_decref(status);
        assert_string_not_equal(homes_role(paris, "bern"), "owner");
    }
    assert_true(homes_number(bern, "trainer", "tokens_counted") > 0);
    GOOD(bern, "stop");
    assert_true(homes_configure(bern, "net", "address", listen));
    GOOD(bern, "start");
    assert_owner("bern"); /* it was mended */
    GOOD(bern, "leave");  /* of those that vote no more than one is sent away at a time */
    GOOD(bern, "stop");
    bern_goes();
}

static void another_one_that_listens_there_is_not_taken_for_it(void **state)
{
    (void)state;
    bern_joins_at(rome_listens); /* as behind an address that several share */
    assert_says("Warning: this island is not reached at %s: paris dialled it: somebody else answers there; ",
                rome_listens);
    assert_int_equal(choice_of(bern, "bern"), CONFIG_OWNER_DIALS);
    bern_goes();
}

static void a_name_that_is_none_is_told_as_such(void **state)
{
    (void)state;
    GOOD(bern, "join", invited(paris), "--name", "bern", "--data", text, "--listen", homes_somewhere(), "--address",
         "nowhere.invalid:7600", "--no-start", "--json");
    assert_told(",\"reached\":false}");
    assert_told("is not reached at nowhere.invalid:7600: paris dialled it: the name does not resolve; ");
    bern_goes();
}

/* The kernel answers nobody more while nobody accepts. */
static void a_firewall_that_drops_is_told_in_seconds(void **state)
{
    (void)state;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    char address[ADDRESS_MAX];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), knocks[KNOCKS];
    assert_int_equal(bind(fd, (const struct sockaddr *)&at, bytes), 0);
    assert_int_equal(listen(fd, 0), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &bytes), 0);
    for (int i = 0; i < KNOCKS; i++) {
        knocks[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)!connect(knocks[i], (const struct sockaddr *)&at, bytes);
    }
    snprintf(address, sizeof address, "127.0.0.1:%u", ntohs(at.sin_port));
    bern_joins_at(address);
    assert_says("Warning: this island is not reached at %s: paris dialled it: no answer, as behind a firewall (",
                address);
    bern_goes();
    for (int i = 0; i < KNOCKS; i++)
        close(knocks[i]);
    close(fd);
}

static void who_listens_nowhere_is_not_dialled(void **state)
{
    (void)state;
    GOOD(bern, "join", invited(paris), "--name", "bern", "--data", text, "--listen", "", "--no-start", "--json");
    assert_told(",\"reached\":null}");
    assert_untold("Reached at");
    assert_untold("not reached");
    assert_untold("Not tested");
    assert_int_equal(choice_of(bern, "bern"), CONFIG_OWNER_DIALS);
    bern_goes();
}

static void what_cannot_be_an_address_or_a_port_is_refused_before_anybody_is_asked(void **state)
{
    (void)state;
    const char *token = invited(paris);
    assert_int_equal(HOMES_RUN(bern, "join", token, "--name", "bern", "--data", text, "--address", "nonsense"), 2);
    assert_told("--address nonsense: not host:port");
    assert_int_equal(
        HOMES_RUN(bern, "join", token, "--name", "bern", "--data", text, "--listen", paris_listens, "--no-start"), 2);
    assert_says("cannot listen on %s: the port is in use", paris_listens);
    assert_int_equal(access(testlib_path(bern, "dilocod.conf"), F_OK), -1);
}

static void who_is_no_operator_invites_nobody(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        assert_int_equal(HOMES_RUN(oslo, "invite"), 1);
        assert_told("this island is no operator of the run, so its tokens would let nobody in: invite at paris");
        assert_untold("dlc1.");
    }
}

static void a_revoked_inviter_lets_nobody_in(void **state)
{
    (void)state;
    char token[TOKEN_BYTES];
    GOOD(paris, "grant", "rome");
    snprintf(token, sizeof token, "%s", invited(rome));
    GOOD(paris, "ungrant", "rome");
    assert_int_equal(HOMES_RUN(bern, "join", token, "--name", "bern", "--data", text, "--listen", homes_somewhere(),
                               "--no-start", "--wait", "15"),
                     1);
    assert_told("refused: ");
    assert_told("is no operator");
    assert_string_equal(homes_role(paris, "bern"), "");
    GOOD(paris, "grant", "rome");
    snprintf(token, sizeof token, "%s", invited(rome));
    GOOD(paris, "revoke", "rome");
    int status = HOMES_RUN(bern, "join", token, "--name", "bern", "--data", text, "--listen", homes_somewhere(),
                           "--no-start", "--wait", "15");
    if (status != 1 && status != 3) /* whether its daemon has ended by then is chance */
        fail_msg("it comes in by a token of one that is revoked (status %d):\n%s", status, homes_out);
    assert_string_equal(homes_role(paris, "bern"), "");
    assert_int_equal(access(testlib_path(bern, "dilocod.conf"), F_OK), -1);
}

/* Where it cannot be let in now, each try has it dialled again, until its token has had enough of that. It comes in all
 * the same. */
static void a_token_whose_tests_are_used_up_is_as_good(void **state)
{
    (void)state;
    char token[TOKEN_BYTES], listen[ADDRESS_MAX];
    snprintf(token, sizeof token, "%s", invited(paris));
    snprintf(listen, sizeof listen, "%s", homes_somewhere());
    homes_kill(oslo);
#define BERN_JOINS(seconds)                                                                                      \
    HOMES_RUN(bern, "join", token, "--name", "bern", "--data", text, "--listen", listen, "--no-start", "--wait", \
              seconds)
    for (int i = 0; i < DIALS_TOKEN_MAX; i++) {
        assert_int_equal(BERN_JOINS("2"), 3);
        assert_says("Reached at %s by paris.\n", listen);
    }
    assert_int_equal(BERN_JOINS("2"), 3);
    assert_says("Not tested: whether others reach this island at %s; once it runs, status says if they do not", listen);
    GOOD(oslo, "start");
    if (BERN_JOINS("60") != 0)
        fail_msg("it is not let in any more:\n%s", homes_out);
    assert_told("Not tested: ");
    assert_int_equal(choice_of(bern, "bern"), CONFIG_OWNER_AUTO);
}

int main(void)
{
    assert_ok(digest_init());
    if (!village_open("dialled"))
        return 1;
    text = village_text();
    spec = village_spec(20);
    paris = village_home("paris");
    oslo = village_home("oslo");
    rome = village_home("rome");
    bern = village_home("bern");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_listens_is_told_who_reaches_it),
        cmocka_unit_test(who_is_not_reached_is_told_so_and_comes_in_all_the_same),
        cmocka_unit_test(another_one_that_listens_there_is_not_taken_for_it),
        cmocka_unit_test(a_name_that_is_none_is_told_as_such),
        cmocka_unit_test(a_firewall_that_drops_is_told_in_seconds),
        cmocka_unit_test(who_listens_nowhere_is_not_dialled),
        cmocka_unit_test(what_cannot_be_an_address_or_a_port_is_refused_before_anybody_is_asked),
        cmocka_unit_test(who_is_no_operator_invites_nobody),
        cmocka_unit_test(a_revoked_inviter_lets_nobody_in),
        cmocka_unit_test(a_token_whose_tests_are_used_up_is_as_good),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
