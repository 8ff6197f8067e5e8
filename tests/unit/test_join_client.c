/* SPDX-License-Identifier: Apache-2.0 */
/* join_client: a guest with a token is admitted by the island that gave it, or hears why not; over loopback, the island
 * played by a thread. */
#include "tests/lib/testlib.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/env.h"
#include "common/mem.h"
#include "net/transport/join_client.h"
#include "net/transport/link.h"

enum { CONFIGS_BYTES = 1 << 20, TIMEOUT_MS = 20000 };

static struct ident inviter, bert, carl;
static const uint8_t nonce[WIRE_NONCE_BYTES] = {7};
static const struct digest run_id = {{6}};

/* The island that invites, as a daemon would: it admits what it gave out, and judges who comes. */
static struct {
    pthread_t thread;
    atomic_bool stop;
    struct link *link;
    struct invites invites;
    unsigned deaf; /* questions that are not answered: their answers are lost */
    atomic_uint questions, joined, dialled;
    uint32_t id;
    uint8_t configs[CONFIGS_BYTES];
} island;

static enum err judge(const struct link_guest *guest, struct wire_join *join)
{
    bool again;
    const struct invite_row *row = invites_of(&island.invites, guest->key);
    TRY(wire_join_unpack(guest->payload, guest->bytes, join));
    if (row == NULL || !digest_equal(&row->id, &join->invitation))
        return err_set(ERR_STATE, "that is not its invitation");
    if (!wire_join_signed(join, nonce))
        return err_set(ERR_STATE, "not signed");
    TRY(invites_redeem(&island.invites, &join->invitation, join->key, env_wall_ms() / 1000, &again));
    if (!again)
        island.id++;
    return ERR_OK;
}

/* Whether its address can be dialled: nobody tries. */
static void answer_dial(const struct link_guest *guest)
{
    struct wire_join join;
    struct wire_dial_response response = {.reports_count = 1, .reports = {{.outcome = WIRE_DIAL_UNTESTED}}};
    uint8_t bytes[WIRE_JOIN_BYTES_MAX];
    if (wire_join_unpack(guest->payload, guest->bytes, &join) != ERR_OK)
        return;
    wire_dial_tag(&join, response.request);
    island.dialled++;
    (void)!link_guest_send(island.link, guest->connection, WIRE_DIAL_RESPONSE, bytes,
                           wire_dial_response_pack(&response, bytes));
}

static void answer(const struct link_guest *guest)
{
    struct wire_join join;
    uint8_t refusal[WIRE_JOIN_BYTES_MAX], *bytes;
    size_t count;
    if (guest->type == WIRE_DIAL_REQUEST) {
        answer_dial(guest);
        return;
    }
    if (judge(guest, &join) != ERR_OK) {
        (void)!link_guest_send(island.link, guest->connection, WIRE_REFUSAL, refusal,
                               wire_refusal_pack(err_text(), false, refusal));
        return;
    }
    if (island.questions++ < island.deaf)
        return;
    struct wire_joined joined = {
        .id = island.id, .configs = island.configs, .configs_bytes = CONFIGS_BYTES, .run_spec = "[run]\nname = r\n"};
    if (wire_joined_pack(&joined, &bytes, &count) == ERR_OK &&
        link_guest_send(island.link, guest->connection, WIRE_JOINED, bytes, count) == ERR_OK)
        island.joined++;
    mem_free(bytes);
}

static void *serve(void *unused)
{
    (void)unused;
    while (!island.stop) {
        struct link_event event;
        struct link_message message;
        struct link_guest guest;
        while (link_event(island.link, &event))
            continue;
        (void)!link_recv(island.link, &message);
        while (link_guest_recv(island.link, &guest))
            answer(&guest);
        link_tick(island.link);
        usleep(1000);
    }
    return NULL;
}

/* Gives out one token, and begins to serve. */
static struct invite open_island_at(const char *listen, unsigned deaf, bool admits)
{
    struct invite invite = {.addresses_count = 1, .run_id = run_id, .expiry_s = env_wall_ms() / 1000 + 1000};
    struct link_conf conf = {
        .ident = &inviter, .listen = listen, .run_tag = wire_run_tag(nonce, &run_id), .io_threads = 1};
    uint8_t key[IDENT_KEY_BYTES];
    island.stop = false;
    island.deaf = deaf;
    island.questions = island.joined = island.dialled = 0;
    island.id = 40;
    island.invites = (struct invites){.count = 0};
    memcpy(invite.nonce, nonce, sizeof nonce);
    memcpy(invite.inviter, inviter.key, sizeof invite.inviter);
    memset(invite.seed, 3, sizeof invite.seed);
    assert_ok(link_new(&conf, &island.link));
    snprintf(invite.addresses[0], sizeof invite.addresses[0], "127.0.0.1:%u", link_port(island.link));
    assert_ok(invites_add(&island.invites, &invite, INVITE_AUTO, "", ""));
    invite_curve(&invite, key, NULL);
    if (admits)
        assert_ok(link_admit(island.link, key, env_mono_ms() + 1000000));
    assert_int_equal(pthread_create(&island.thread, NULL, serve, NULL), 0);
    return invite;
}

static struct invite open_island(unsigned deaf, bool admits)
{
    return open_island_at("127.0.0.1:*", deaf, admits);
}

static void close_island(void)
{
    island.stop = true;
    assert_int_equal(pthread_join(island.thread, NULL), 0);
    link_free(island.link);
}

static enum err ask(const struct invite *invite, const struct ident *ident, uint32_t timeout_ms,
                    struct wire_joined *joined)
{
    struct join_client_conf conf = {.invite = invite,
                                    .ident = ident,
                                    .name = "bert",
                                    .address = "b.example.org:7600",
                                    .uplink = 1000000,
                                    .timeout_ms = timeout_ms,
                                    .decide_ms = timeout_ms};
    return admit_ask(&conf, joined);
}

static void a_token_admits_one_key_and_a_lost_answer_is_told_again(void **state)
{
    (void)state;
    struct wire_joined joined;
    island.configs[77] = 5;
    struct invite invite = open_island(2, true); /* answers are lost */
    assert_ok(ask(&invite, &bert, TIMEOUT_MS, &joined));
    assert_int_equal(island.questions, 3);
    assert_int_equal(joined.id, 41);
    assert_int_equal(joined.configs_bytes, CONFIGS_BYTES);
    assert_memory_equal(joined.configs, island.configs, CONFIGS_BYTES);
    assert_string_equal(joined.run_spec, "[run]\nname = r\n");
    wire_joined_deinit(&joined);
    assert_ok(ask(&invite, &bert, TIMEOUT_MS, &joined)); /* from a new connection: the same */
    assert_int_equal(joined.id, 41);
    wire_joined_deinit(&joined);
    assert_fails(ERR_STATE, "refused: this invitation was redeemed by another island",
                 ask(&invite, &carl, TIMEOUT_MS, &joined));
    assert_null(joined.configs);
    close_island();
    assert_int_equal(island.id, 41);
}

static void addresses_are_tried_in_turn(void **state)
{
    (void)state;
    struct wire_joined joined;
    struct invite invite = open_island(0, true);
    memcpy(invite.addresses[2], invite.addresses[0], sizeof invite.addresses[2]);
    strcpy(invite.addresses[0], "127.0.0.1:1"); /* nobody listens */
    strcpy(invite.addresses[1], "nowhere.invalid:7600");
    invite.addresses_count = 3;
    assert_ok(ask(&invite, &bert, TIMEOUT_MS, &joined));
    wire_joined_deinit(&joined);
    close_island();
}

static unsigned times_late;
static char late[400], address_late[WIRE_ADDRESS_BYTES];

static void note_late(void *user, const char *what)
{
    (void)user;
    times_late++;
    snprintf(late, sizeof late, "%s", what);
}

/* Before the end: whoever waits learns for what. */
static void who_waits_is_told_for_what(void **state)
{
    (void)state;
    struct wire_joined joined;
    struct invite invite = open_island(1000, true);
    struct join_client_conf conf = {.invite = &invite,
                                    .ident = &bert,
                                    .name = "bert",
                                    .address = "",
                                    .uplink = 1,
                                    .timeout_ms = 1000, /* nobody is to take that long to be there */
                                    .decide_ms = 6000,
                                    .late = note_late};
    assert_fails(ERR_CLOSED, "no answer within 6 s", admit_ask(&conf, &joined));
    assert_int_equal(times_late, 1);
    assert_non_null(strstr(late, "has taken the question"));
    assert_non_null(strstr(late, "majority"));
    close_island();
    assert_fails(ERR_CLOSED, "no answer within 1 s", admit_ask(&conf, &joined));
    conf.timeout_ms = 6000;
    assert_fails(ERR_CLOSED, "no answer within 6 s", admit_ask(&conf, &joined));
    assert_int_equal(times_late, 2);
    assert_non_null(strstr(late, "no connection to 127.0.0.1:"));
}

/* It comes up when we have waited for it, and been told so; and answers at once that nobody dialled. */
static void *come_late(void *invite)
{
    const struct timespec wait = {.tv_sec = 4, .tv_nsec = 500000000};
    nanosleep(&wait, NULL);
    *(struct invite *)invite = open_island_at(address_late, 1000, true);
    return NULL;
}

static void who_waits_is_told_once(void **state)
{
    (void)state;
    struct wire_joined joined;
    struct invite invite = open_island(1000, true), late_invite;
    pthread_t thread;
    close_island();
    snprintf(address_late, sizeof address_late, "%s", invite.addresses[0]);
    struct join_client_conf conf = {.invite = &invite,
                                    .ident = &bert,
                                    .name = "bert",
                                    .address = "127.0.0.1:1",
                                    .listen = "127.0.0.1:*",
                                    .uplink = 1,
                                    .timeout_ms = 10000,
                                    .decide_ms = 11000,
                                    .late = note_late};
    times_late = 0;
    assert_int_equal(pthread_create(&thread, NULL, come_late, &late_invite), 0);
    assert_fails(ERR_CLOSED, "no answer within 11 s", admit_ask(&conf, &joined));
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(island.dialled > 0 && island.questions > 0); /* after that it asked to be let in */
    assert_int_equal(times_late, 1);
    assert_non_null(strstr(late, "no connection to 127.0.0.1:"));
    close_island();
}

static void who_gets_no_answer_is_told_what_was_heard(void **state)
{
    (void)state;
    struct wire_joined joined;
    struct invite invite = open_island(1000, true);
    assert_fails(ERR_CLOSED, "did not answer; the run may have no majority", ask(&invite, &bert, 1500, &joined));
    close_island();
    assert_fails(ERR_CLOSED, "no connection; check that", ask(&invite, &bert, 500, &joined));
    invite = open_island(0, false);
    assert_fails(ERR_STATE, "does not admit this token", ask(&invite, &bert, 1500, &joined));
    close_island();
    invite = open_island(0, true);
    memcpy(invite.inviter, carl.key, sizeof invite.inviter); /* another island listens there */
    assert_fails(ERR_STATE, "another island listens there", ask(&invite, &bert, 1500, &joined));
    close_island();
    assert_int_equal(island.questions, 0);
}

static void what_cannot_be_asked_is_not(void **state)
{
    (void)state;
    struct wire_joined joined;
    struct invite invite = {.addresses_count = 1, .addresses = {"127.0.0.1:1"}, .expiry_s = env_wall_ms() / 1000};
    memcpy(invite.inviter, inviter.key, sizeof invite.inviter);
    assert_fails(ERR_STATE, "has expired", ask(&invite, &bert, 1000, &joined));
    struct join_client_conf conf = {.invite = &invite, .ident = &bert, .name = "b b", .address = "", .uplink = 1};
    assert_fails(ERR_ARG, "the name \"b b\"", admit_ask(&conf, &joined));
    conf.name = "b";
    conf.address = "nonsense";
    assert_fails(ERR_ARG, "is not host:port", admit_ask(&conf, &joined));
}

int main(void)
{
    assert_ok(digest_init());
    assert_ok(ident_generate(&inviter));
    assert_ok(ident_generate(&bert));
    assert_ok(ident_generate(&carl));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_token_admits_one_key_and_a_lost_answer_is_told_again),
        cmocka_unit_test(addresses_are_tried_in_turn),
        cmocka_unit_test(who_gets_no_answer_is_told_what_was_heard),
        cmocka_unit_test(who_waits_is_told_for_what),
        cmocka_unit_test(who_waits_is_told_once),
        cmocka_unit_test(what_cannot_be_asked_is_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
