/* SPDX-License-Identifier: Apache-2.0 */
/* join_server: when it lets a guest in; with guests that knock over loopback, and voters played by the test. */
#include "tests/lib/testlib.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/env.h"
#include "common/fsio.h"
#include "common/mem.h"
#include "daemon/membership/config_store.h"
#include "daemon/membership/join_server.h"
#include "net/config/config_proof.h"
#include "net/membership/wire_paxos.h"
#include "net/transport/join_client.h"
#include "net/transport/socket.h"
#include "tests/lib/overhear.h"
#include "tests/lib/sample_configs.h"

enum { TIMEOUT_MS = 20000, QUIET_MS = 300, DAY_S = 86400 };

/* The island that invites is member 0; guests are 1 and 2. */
static struct {
    const char *folder;
    struct runspec spec;
    struct ident ident;
    struct config_log *config_log;
    struct link *link;
    struct jobs *jobs;
    struct view view;
    struct dial_server *dials;
    struct join_server *join_server;
    char address[WIRE_ADDRESS_BYTES];
    unsigned joined; /* how often the voters were told */
    struct wire_join newcomer;
    bool contributor, unwilling, full, no_operator, revoked;
    unsigned shut_out;
    struct digest shut_out_last;
    bool mismatched; /* it was told that a newcomer speaks another version */
} island;

static struct guest {
    pthread_t thread;
    struct invite invite;
    const struct ident *ident;
    const char *name;
    bool witness;
    uint32_t timeout_ms; /* 0: as long as it takes */
    enum err err;
    char text[400];
    struct wire_joined joined;
    atomic_bool done;
} guest;

/* ---- the island ---- */

static uint64_t wall_s(void)
{
    return env_wall_ms() / 1000;
}

static enum err join(void *user, const struct wire_join *guest_says, bool contributor)
{
    assert_ptr_equal(user, &island);
    if (island.full)
        return err_set(ERR_AGAIN, "20 orders of m0 wait to be decided; no more can");
    if (island.unwilling)
        return err_set(ERR_STATE, "too many are being admitted");
    island.joined++;
    island.newcomer = *guest_says;
    island.contributor = contributor;
    return ERR_OK;
}

static void shut_out(void *user, const struct digest *invitation)
{
    assert_ptr_equal(user, &island);
    island.shut_out++;
    island.shut_out_last = *invitation;
}

static enum err may_invite(void *user)
{
    (void)user;
    return island.no_operator ? err_set(ERR_STATE, "this island is no operator") : ERR_OK;
}

static enum err is_open(void *user, bool begun)
{
    (void)user;
    (void)begun;
    return island.revoked ? err_set(ERR_STATE, "it was probably revoked itself") : ERR_OK;
}

static void add(struct config *config)
{
    struct config_entry entry = {0};
    struct digest digest = configs_digest(config);
    assert_ok(config_pack(config, &entry.bytes, &entry.bytes_count));
    assert_ok(config_store_save(island.folder, config->epoch, &entry));
    assert_ok(config_log_add(island.config_log, config, &digest));
    config_entry_free(&entry);
}

static void open_join_server(void)
{
    struct link_conf link = {.ident = configs_ident(0),
                             .listen = "127.0.0.1:*",
                             .run_tag = wire_run_tag(config_log_last(island.config_log)->nonce, &island.spec.digest),
                             .io_threads = 1};
    assert_ok(link_new(&link, &island.link));
    snprintf(island.address, sizeof island.address, "127.0.0.1:%u", link_port(island.link));
    struct jobs_conf jobs = {.threads = 1};
    assert_ok(jobs_new(&jobs, &island.jobs));
    struct dial_server_conf dials = {.jobs = island.jobs, .link = island.link, .view = &island.view};
    assert_ok(dial_server_new(&dials, &island.dials));
    struct join_server_conf conf = {.folder = island.folder,
                                    .spec = &island.spec,
                                    .ident = &island.ident,
                                    .config_log = island.config_log,
                                    .link = island.link,
                                    .dials = island.dials,
                                    .join = join,
                                    .shut_out = shut_out,
                                    .may_invite = may_invite,
                                    .open = is_open,
                                    .user = &island};
    assert_ok(join_server_new(&conf, env_mono_ms(), wall_s(), &island.join_server));
}

static void close_join_server(void)
{
    jobs_free(island.jobs);
    join_server_free(island.join_server);
    dial_server_free(island.dials);
    link_free(island.link);
}

static int begin(void **state)
{
    (void)state;
    struct config config = configs_first(1, false);
    memset(&island, 0, sizeof island);
    memset(&guest, 0, sizeof guest);
    island.view.self = VIEW_NOBODY;
    island.ident = *configs_ident(0);
    island.folder = testlib_folder("join_server");
    assert_ok(runspec_parse("[run]\nname = r\nsteps = 10\n", "r", &island.spec));
    assert_ok(config_log_new(&island.config_log));
    add(&config);
    open_join_server();
    return 0;
}

static int end(void **state)
{
    (void)state;
    close_join_server();
    config_log_free(island.config_log);
    runspec_deinit(&island.spec);
    wire_joined_deinit(&guest.joined);
    return 0;
}

/* Configuration e + 1: the newest one with the newcomer. */
static void decide(const char *name)
{
    struct config next = configs_next(config_log_last(island.config_log));
    struct config_member *member = configs_add(&next, guest.witness ? CONFIG_WITNESS : CONFIG_OBSERVER);
    snprintf(member->name, sizeof member->name, "%s", name);
    memcpy(member->key, island.newcomer.key, sizeof member->key);
    add(&next);
    join_server_begin(island.join_server);
}

static void pump_once(void)
{
    struct link_event event;
    struct link_message message;
    while (link_event(island.link, &event))
        island.mismatched |= event.type == LINK_MISMATCH && event.peer == UINT32_MAX;
    (void)!link_recv(island.link, &message);
    join_server_look(island.join_server, env_mono_ms(), wall_s());
    join_server_tick(island.join_server, env_mono_ms(), wall_s());
    dial_server_tick(island.dials, &(struct bitset){{0}}, env_mono_ms());
    while (jobs_take_back(island.jobs))
        continue;
    link_tick(island.link);
    usleep(1000);
}

static void pump(long ms)
{
    for (uint64_t end_ms = env_mono_ms() + (uint64_t)ms; env_mono_ms() < end_ms;)
        pump_once();
}

static void pump_until_admitted(unsigned times)
{
    for (uint64_t end_ms = env_mono_ms() + TIMEOUT_MS; island.joined < times; pump_once())
        assert_true(env_mono_ms() < end_ms);
}

/* ---- guests ---- */

static struct invite invited_for(const char *name)
{
    struct join_server_ask ask = {.addresses_count = 1, .seconds = DAY_S, .island = name, .note = "for the test"};
    char text[INVITE_TEXT_BYTES];
    struct digest id;
    struct invite invite;
    snprintf(ask.addresses[0], sizeof ask.addresses[0], "%s", island.address);
    assert_ok(join_server_invite(island.join_server, &ask, env_mono_ms(), wall_s(), text, &id));
    assert_ok(invite_parse(text, &invite));
    return invite;
}

static struct invite invited(void)
{
    return invited_for("");
}

static void *knock(void *unused)
{
    (void)unused;
    struct join_client_conf conf = {.invite = &guest.invite,
                                    .ident = guest.ident,
                                    .name = guest.name,
                                    .address = "guest.example:7600",
                                    .uplink = 5000000,
                                    .witness = guest.witness,
                                    .timeout_ms = guest.timeout_ms != 0 ? guest.timeout_ms : TIMEOUT_MS,
                                    .decide_ms = guest.timeout_ms != 0 ? guest.timeout_ms : TIMEOUT_MS};
    guest.err = admit_ask(&conf, &guest.joined);
    snprintf(guest.text, sizeof guest.text, "%s", guest.err != ERR_OK ? err_text() : "");
    guest.done = true;
    return NULL;
}

static void send_guest(const struct invite *invite, uint32_t id, const char *name)
{
    guest.invite = *invite;
    guest.ident = configs_ident(id);
    guest.name = name;
    guest.done = false;
    assert_int_equal(pthread_create(&guest.thread, NULL, knock, NULL), 0);
}

static void await_guest(void)
{
    while (!guest.done)
        pump_once();
    assert_int_equal(pthread_join(guest.thread, NULL), 0);
}

static void assert_refused(const struct invite *invite, uint32_t id, const char *name, const char *reason)
{
    send_guest(invite, id, name);
    await_guest();
    assert_int_equal(guest.err, ERR_STATE);
    if (strstr(guest.text, reason) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", guest.text, reason);
}

static void assert_let_in(uint32_t id)
{
    struct paxos_message message;
    struct config config;
    struct runspec spec;
    if (guest.err != ERR_OK)
        fail_msg("refused: %s", guest.text);
    assert_int_equal(guest.joined.id, id);
    assert_ok(runspec_parse(guest.joined.run_spec, "told", &spec));
    assert_true(digest_equal(&spec.digest, &island.spec.digest));
    runspec_deinit(&spec);
    assert_ok(wire_paxos_unpack(WIRE_DECIDED, guest.joined.configs, guest.joined.configs_bytes, &message));
    assert_ok(config_unpack(message.bytes, message.bytes_count, &config));
    assert_int_equal(config.epoch, config_log_last(island.config_log)->epoch);
    assert_memory_equal(config_member(&config, id)->key, guest.ident->key, IDENT_KEY_BYTES);
    config_deinit(&config);
    wire_paxos_deinit(&message);
    wire_joined_deinit(&guest.joined);
}

/* ---- cases ---- */

static void a_guest_is_answered_when_a_configuration_has_it(void **state)
{
    (void)state;
    struct invite invite = invited();
    send_guest(&invite, 1, "m1");
    pump_until_admitted(1);
    assert_string_equal(island.newcomer.name, "m1");
    assert_string_equal(island.newcomer.word.address, "guest.example:7600");
    assert_int_equal(island.newcomer.word.uplink, 5000000);
    assert_true(wire_join_signed(&island.newcomer, invite.nonce));
    assert_false(island.newcomer.witness || island.contributor);
    pump(QUIET_MS);
    assert_false(guest.done);
    pump_until_admitted(2); /* the voters are told again, until a configuration says it */
    decide("m1");
    await_guest();
    assert_let_in(1);
    unsigned told = island.joined;
    send_guest(&invite, 1, "m1"); /* its answer may have been lost */
    await_guest();
    assert_let_in(1);
    assert_int_equal(island.joined, told);
}

static void a_token_is_one_key_s(void **state)
{
    (void)state;
    struct invite invite = invited();
    send_guest(&invite, 1, "m1");
    pump_until_admitted(1);
    decide("m1");
    await_guest();
    assert_let_in(1);
    assert_refused(&invite, 2, "m2", "redeemed by another island");
}

/* Asked for again, it takes the place of the one before, unless somebody has come by that. */
static void a_token_for_an_island_lets_in_no_other(void **state)
{
    (void)state;
    const struct invites *invites = join_server_invites(island.join_server);
    struct invite other = invited_for("m2"), first = invited_for("m1"), second = invited_for("m1");
    struct digest id[] = {invite_id(&other), invite_id(&first), invite_id(&second)};
    assert_int_equal(invites->count, 2);
    assert_non_null(invites_find(invites, &id[0]));
    assert_null(invites_find(invites, &id[1]));
    assert_refused(&second, 1, "m3", "the token is for island m1; join by that name");
    send_guest(&second, 1, "m1");
    pump_until_admitted(1);
    (void)invited_for("m1");
    assert_int_equal(invites->count, 3);
    assert_true(invites_find(invites, &id[2])->redeemed);
    decide("m1");
    await_guest();
    assert_let_in(1);
}

static void what_was_told_is_known_after_a_crash(void **state)
{
    (void)state;
    struct invite invite = invited();
    close_join_server(); /* nothing is written now */
    open_join_server();
    assert_int_equal(join_server_invites(island.join_server)->count, 1);
    assert_string_equal(join_server_invites(island.join_server)->rows[0].note, "for the test");
    memcpy(invite.addresses[0], island.address, sizeof island.address);
    guest.timeout_ms = 2000;
    send_guest(&invite, 1, "m1");
    pump_until_admitted(1);
    close_join_server(); /* with the guest at the door */
    open_join_server();
    assert_true(join_server_invites(island.join_server)->rows[0].redeemed);
    assert_memory_equal(join_server_invites(island.join_server)->rows[0].by, configs_ident(1)->key, IDENT_KEY_BYTES);
    await_guest();
    assert_int_not_equal(guest.err, ERR_OK);
}

static void what_cannot_be_kept_is_not_told(void **state)
{
    (void)state;
    struct join_server_ask ask = {
        .addresses_count = 1, .addresses = {"127.0.0.1:1"}, .seconds = 1, .island = "", .note = ""};
    char text[INVITE_TEXT_BYTES], away[600];
    struct digest id;
    snprintf(away, sizeof away, "%s.away", island.folder);
    assert_int_equal(rename(island.folder, away), 0);
    assert_int_equal(join_server_invite(island.join_server, &ask, env_mono_ms(), wall_s(), text, &id), ERR_IO);
    assert_int_equal(rename(away, island.folder), 0);
    assert_string_equal(text, "");
    assert_int_equal(join_server_invites(island.join_server)->count, 0);
    ask.addresses_count = 0;
    assert_fails(ERR_ARG, "addresses", join_server_invite(island.join_server, &ask, 0, wall_s(), text, &id));
}

static void who_cannot_be_admitted_leaves_the_token_open(void **state)
{
    (void)state;
    struct invite invite = invited();
    assert_refused(&invite, 1, "m0", "if this is it on a new disk, free it: dilococtl revoke m0 elsewhere");
    island.unwilling = true;
    assert_refused(&invite, 1, "m1", "too many are being admitted");
    island.unwilling = false;
    assert_false(join_server_invites(island.join_server)->rows[0].redeemed);
    send_guest(&invite, 2, "m2"); /* another may have it */
    pump_until_admitted(1);
    struct config next = configs_next(config_log_last(island.config_log)); /* somebody was faster with that name */
    struct config_member *member = configs_add(&next, CONFIG_OBSERVER);
    snprintf(member->name, sizeof member->name, "m2");
    add(&next);
    join_server_begin(island.join_server);
    await_guest();
    assert_int_equal(guest.err, ERR_STATE);
    assert_non_null(strstr(guest.text, "take another"));
    assert_false(join_server_invites(island.join_server)->rows[0].redeemed);
}

/* At most one, and it stays one. */
static void a_run_has_one_witness(void **state)
{
    (void)state;
    struct invite invite = invited(), other = invited();
    guest.witness = true;
    send_guest(&invite, 1, "m1");
    pump_until_admitted(1);
    assert_int_equal(island.newcomer.witness ? CONFIG_WITNESS : CONFIG_OBSERVER, CONFIG_WITNESS);
    decide("m1");
    await_guest();
    assert_let_in(1);
    assert_refused(&other, 2, "m2", "m1 is the run's witness already, and there is at most one");
    assert_int_equal(island.joined, 1);
    guest.witness = false;
    assert_refused(&invite, 1, "m1", "is on the roster as the witness");
}

/* Two islands invite one each at a time: the configuration that is decided has one of them. */
static void of_two_witnesses_the_one_in_the_configuration_stays(void **state)
{
    (void)state;
    struct invite invite = invited();
    guest.witness = true;
    send_guest(&invite, 2, "m2");
    pump_until_admitted(1);
    struct config next = configs_next(config_log_last(island.config_log)); /* another's guest, m1 */
    configs_add(&next, CONFIG_WITNESS);
    add(&next);
    join_server_begin(island.join_server);
    await_guest();
    assert_int_equal(guest.err, ERR_STATE);
    assert_non_null(strstr(guest.text, "m1 is the run's witness already"));
    assert_false(join_server_invites(island.join_server)->rows[0].redeemed);
}

/* A guest's words, as they stand, by its own connection; the header of the answer, and its text, if it is a refusal. */
static struct wire_header say_as_guest(const struct invite *invite, const struct wire_header *fields,
                                       const uint8_t *payload, size_t bytes, char reason[WIRE_REASON_BYTES])
{
    uint8_t header[WIRE_HEADER_BYTES], answer[WIRE_JOINED_BYTES_MAX], server[IDENT_KEY_BYTES], key[IDENT_KEY_BYTES],
        secret[IDENT_KEY_BYTES];
    char route[SOCKET_ROUTE_BYTES];
    void *context = zmq_ctx_new(), *socket = NULL, *monitor = NULL;
    struct wire_header got;
    bool later;
    wire_header_put(fields, header);
    assert_ok(ident_curve(invite->inviter, server));
    invite_curve(invite, key, secret);
    struct socket_dial dial = {.address = island.address,
                               .server = server,
                               .key = key,
                               .secret = secret,
                               .route = route,
                               .route_bytes = socket_route(key, false, 1, route),
                               .part_bytes_max = WIRE_JOINED_BYTES_MAX};
    assert_ok(socket_dial(context, &dial, &socket, &monitor));
    while (socket_send(socket, &(struct socket_part){header, sizeof header}, 1, &(struct socket_part){payload, bytes},
                       &(struct socket_part){NULL, 0}) != ERR_OK)
        pump_once(); /* it connects first */
    zmq_pollitem_t item = {.socket = socket, .events = ZMQ_POLLIN};
    for (uint64_t end_ms = env_mono_ms() + TIMEOUT_MS; zmq_poll(&item, 1, 0) == 0; pump_once())
        assert_true(env_mono_ms() < end_ms);
    assert_int_equal(zmq_recv(socket, header, sizeof header, 0), WIRE_HEADER_BYTES);
    assert_ok(wire_header_get(header, sizeof header, &got));
    int count = zmq_recv(socket, answer, sizeof answer, 0);
    assert_true(count >= 0);
    if (got.type == WIRE_REFUSAL)
        assert_ok(wire_refusal_unpack(answer, (size_t)count, reason, &later));
    socket_close(&socket, &monitor);
    zmq_ctx_term(context);
    return got;
}

/* By its own words, with another's key: whoever has the token cannot admit whom it likes. */
static void who_did_not_sign_is_not_admitted(void **state)
{
    (void)state;
    struct invite invite = invited();
    struct wire_join join = {.invitation = invite_id(&invite), .name = "m1", .word = {.number = 1, .uplink = 1}};
    uint8_t payload[WIRE_JOIN_BYTES_MAX];
    char reason[WIRE_REASON_BYTES];
    struct wire_header fields = {
        .version = WIRE_VERSION, .type = WIRE_JOIN, .run_tag = wire_run_tag(invite.nonce, &invite.run_id)};
    wire_join_sign(configs_ident(1), invite.nonce, &join);
    memcpy(join.key, configs_ident(2)->key, sizeof join.key);
    fields = say_as_guest(&invite, &fields, payload, wire_join_pack(&join, payload), reason);
    assert_int_equal(fields.type, WIRE_REFUSAL);
    assert_int_equal(island.joined, 0);
    assert_false(join_server_invites(island.join_server)->rows[0].redeemed);
}

/* Each with its reason, before anything of it is believed. */
static void what_no_configuration_may_have_is_refused_at_the_door(void **state)
{
    (void)state;
    struct invite invite = invited();
    const struct {
        const char *address, *says;
        bool none, mirrored;
    } rows[] = {{"nonsense", "an address that is not host:port", false, false},
                {"10.0.0.1:0", "an address that is not host:port", false, false},
                {"[::1:7600", "an address that is not host:port", false, false},
                {"b.example:7600", "a key that is none", true, false},
                {"b.example:7600", "that key is the mirror image of island m0's", false, true}};
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        struct wire_join join = {.invitation = invite_id(&invite), .name = "m1", .word = {.number = 1, .uplink = 1}};
        struct wire_header fields = {
            .version = WIRE_VERSION, .type = WIRE_JOIN, .run_tag = wire_run_tag(invite.nonce, &invite.run_id)};
        uint8_t payload[WIRE_JOIN_BYTES_MAX];
        char reason[WIRE_REASON_BYTES];
        snprintf(join.word.address, sizeof join.word.address, "%s", rows[k].address);
        wire_join_sign(configs_ident(1), invite.nonce, &join);
        if (rows[k].none)
            memset(join.key, 0, sizeof join.key);
        if (rows[k].mirrored) {
            memcpy(join.key, configs_ident(0)->key, sizeof join.key);
            join.key[IDENT_KEY_BYTES - 1] ^= 0x80;
        }
        fields = say_as_guest(&invite, &fields, payload, wire_join_pack(&join, payload), reason);
        assert_int_equal(fields.type, WIRE_REFUSAL);
        if (strstr(reason, rows[k].says) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", reason, rows[k].says);
        assert_int_equal(island.joined, 0);
        assert_false(join_server_invites(island.join_server)->rows[0].redeemed);
    }
}

/* A line about each of its first few refusals, though it asks on for ever. */
static void who_is_refused_again_and_again_fills_no_log(void **state)
{
    (void)state;
    struct invite invite = invited_for("m1");
    struct wire_join join = {.invitation = invite_id(&invite), .name = "m2", .word = {.number = 1, .uplink = 1}};
    uint8_t payload[WIRE_JOIN_BYTES_MAX];
    char reason[WIRE_REASON_BYTES];
    const struct wire_header fields = {
        .version = WIRE_VERSION, .type = WIRE_JOIN, .run_tag = wire_run_tag(invite.nonce, &invite.run_id)};
    wire_join_sign(configs_ident(1), invite.nonce, &join);
    size_t count = wire_join_pack(&join, payload);
    overhear_begin();
    for (int k = 0; k < 7; k++) {
        assert_int_equal(say_as_guest(&invite, &fields, payload, count, reason).type, WIRE_REFUSAL);
        assert_non_null(strstr(reason, "the token is for island m1"));
    }
    assert_int_equal(overhear_count(overhear_end(), "guest m2 is refused: the token is for island m1"), 4);
}

/* Before it asks to be let in; by a question that is its own. */
static void a_guest_is_dialled_and_that_redeems_nothing(void **state)
{
    (void)state;
    struct invite invite = invited();
    struct wire_join join = {.invitation = invite_id(&invite), .name = "m1", .word = {.number = 5, .uplink = 1}};
    uint8_t payload[WIRE_JOIN_BYTES_MAX];
    char reason[WIRE_REASON_BYTES];
    const struct wire_header fields = {
        .version = WIRE_VERSION, .type = WIRE_DIAL_REQUEST, .run_tag = wire_run_tag(invite.nonce, &invite.run_id)};
    snprintf(join.word.address, sizeof join.word.address, "127.0.0.1:1");
    wire_dial_request_sign(configs_ident(1), invite.nonce, &join);
    struct wire_header got = say_as_guest(&invite, &fields, payload, wire_join_pack(&join, payload), reason);
    assert_int_equal(got.type, WIRE_DIAL_RESPONSE);
    assert_false(join_server_invites(island.join_server)->rows[0].redeemed);
    assert_int_equal(island.joined, 0);
    struct wire_header as_join = fields; /* said as what it did not sign, by somebody who has heard it */
    as_join.type = WIRE_JOIN;
    got = say_as_guest(&invite, &as_join, payload, wire_join_pack(&join, payload), reason);
    assert_int_equal(got.type, WIRE_REFUSAL);
    assert_non_null(strstr(reason, "the signature is not of the key that is to be admitted"));
    assert_false(join_server_invites(island.join_server)->rows[0].redeemed);
    assert_int_equal(island.joined, 0);
    snprintf(join.word.address, sizeof join.word.address, "127.0.0.1:2"); /* which it did not sign */
    got = say_as_guest(&invite, &fields, payload, wire_join_pack(&join, payload), reason);
    assert_int_equal(got.type, WIRE_REFUSAL);
    assert_int_equal(jobs_pending(island.jobs), 0);
    send_guest(&invite, 2, "m2"); /* any key may still have it */
    pump_until_admitted(1);
    decide("m2");
    await_guest();
    assert_int_equal(guest.err, ERR_OK);
}

/* Whatever it says, and in whatever form: our version stands in the header, which all releases read. */
static void a_newcomer_of_another_version_is_told_so_at_once(void **state)
{
    (void)state;
    static const uint8_t payload[] = {1, 2, 3};
    struct invite invite = invited();
    char reason[WIRE_REASON_BYTES];
    struct wire_header fields = {
        .version = WIRE_VERSION + 1, .type = WIRE_JOIN, .run_tag = wire_run_tag(invite.nonce, &invite.run_id)};
    fields = say_as_guest(&invite, &fields, payload, sizeof payload, reason);
    assert_int_equal(fields.type, WIRE_REFUSAL);
    assert_int_equal(fields.version, WIRE_VERSION);
    assert_non_null(strstr(reason, "install the same release"));
    pump_once();
    assert_true(island.mismatched);
    assert_false(join_server_invites(island.join_server)->rows[0].redeemed);
}

/* Who comes when too many wait is asked to wait, too: it has its token still. */
static void one_guest_too_many_is_told_to_ask_again(void **state)
{
    (void)state;
    struct invite invite = invited();
    island.full = true;
    guest.timeout_ms = 3000;
    send_guest(&invite, 1, "m1");
    await_guest();
    assert_int_equal(guest.err, ERR_CLOSED);
    assert_non_null(strstr(guest.text, "not let in within"));
    assert_non_null(strstr(guest.text, "20 orders of m0 wait to be decided"));
    assert_int_equal(island.joined, 0);
    assert_true(join_server_invites(island.join_server)->rows[0].redeemed); /* no other key takes it meanwhile */
    guest.timeout_ms = 0;
    send_guest(&invite, 1, "m1");
    pump(QUIET_MS);
    assert_int_equal(island.joined, 0);
    island.full = false;
    pump_until_admitted(1);
    decide("m1");
    await_guest();
    assert_ok(guest.err);
}

static void what_is_revoked_or_over_lets_nobody_in(void **state)
{
    (void)state;
    char hex[DIGEST_HEX_BYTES];
    struct invite invite = invited(), other = invited();
    struct digest id = invite_id(&invite);
    digest_hex(&id, hex);
    hex[8] = '\0';
    assert_fails(ERR_NOTFOUND, "no invitation abc", join_server_revoke(island.join_server, "abc"));
    assert_ok(join_server_revoke(island.join_server, hex));
    assert_true(island.shut_out == 1 && digest_equal(&island.shut_out_last, &id)); /* its guest may be under way */
    assert_fails(ERR_NOTFOUND, "is open here", join_server_revoke(island.join_server, hex));
    assert_refused(&invite, 1, "m1", "does not admit this token");
    join_server_tick(island.join_server, env_mono_ms(), wall_s() + DAY_S + 1);
    assert_int_equal(join_server_invites(island.join_server)->count, 0);
    assert_refused(&other, 1, "m1", "does not admit this token");
    close_join_server();
    open_join_server();
    assert_int_equal(join_server_invites(island.join_server)->count, 0);
    assert_int_equal(island.joined, 0);
}

/* Where five own, or its inviter said so; not where that said otherwise. */
static void by_default_one_of_many_contributes(void **state)
{
    (void)state;
    static const struct {
        uint32_t more_owners;
        enum invite_as as;
        bool contributor;
    } rows[] = {
        {3, INVITE_AUTO, false}, {0, INVITE_CONTRIBUTOR, true}, {1, INVITE_AUTO, true}, {0, INVITE_OWNER, false}};
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        struct config next = configs_next(config_log_last(island.config_log));
        for (uint32_t i = 0; i < rows[k].more_owners; i++)
            configs_add(&next, CONFIG_OWNER);
        add(&next);
        join_server_begin(island.join_server);
        struct join_server_ask ask = {
            .addresses_count = 1, .seconds = DAY_S, .island = "", .note = "", .as = rows[k].as};
        char text[INVITE_TEXT_BYTES], name[8];
        struct digest id;
        struct invite invite;
        snprintf(ask.addresses[0], sizeof ask.addresses[0], "%s", island.address);
        assert_ok(join_server_invite(island.join_server, &ask, env_mono_ms(), wall_s(), text, &id));
        assert_ok(invite_parse(text, &invite));
        uint32_t told = island.joined;
        snprintf(name, sizeof name, "g%zu", k);
        send_guest(&invite, (uint32_t)(20 + k), name);
        pump_until_admitted(told + 1);
        assert_int_equal(island.contributor, rows[k].contributor);
        decide(name);
        await_guest();
        assert_int_equal(guest.err, ERR_OK);
        wire_joined_deinit(&guest.joined);
    }
}

static void only_operators_invite(void **state)
{
    (void)state;
    struct join_server_ask ask = {.addresses_count = 1, .seconds = DAY_S, .island = "", .note = ""};
    char text[INVITE_TEXT_BYTES];
    struct digest id;
    snprintf(ask.addresses[0], sizeof ask.addresses[0], "%s", island.address);
    island.no_operator = true;
    assert_fails(ERR_STATE, "this island is no operator",
                 join_server_invite(island.join_server, &ask, env_mono_ms(), wall_s(), text, &id));
    assert_int_equal(join_server_invites(island.join_server)->count, 0);
}

static void the_token_of_a_revoked_island_is_told_as_such(void **state)
{
    (void)state;
    struct invite invite = invited();
    island.revoked = true;
    assert_refused(&invite, 1, "m1", "it was probably revoked itself");
    assert_false(join_server_invites(island.join_server)->rows[0].redeemed);
}

static void a_guest_that_has_gone_is_put_forward_no_more(void **state)
{
    (void)state;
    struct invite invite = invited();
    uint64_t now_ms = env_mono_ms();
    guest.timeout_ms = 1500;
    send_guest(&invite, 1, "m1");
    await_guest();
    assert_int_equal(guest.err, ERR_CLOSED);
    unsigned told = island.joined;
    assert_true(told > 0);
    join_server_tick(island.join_server, now_ms + 9 * 60000, wall_s());
    assert_int_equal(island.joined, told + 1);
    join_server_tick(island.join_server, now_ms + 11 * 60000, wall_s());
    assert_int_equal(island.joined, told + 1);
}

/* Whoever holds one dials the key before, and finds nobody. */
static void tokens_from_before_another_key_are_forgotten(void **state)
{
    (void)state;
    invited_for("m1");
    struct invite invite = invited();
    struct digest last_id = invite_id(&invite);
    join_server_begin(island.join_server);
    assert_int_equal(join_server_invites(island.join_server)->count, 2);
    island.ident = *configs_ident(5);
    join_server_begin(island.join_server);
    assert_int_equal(join_server_invites(island.join_server)->count, 0);
    assert_true(island.shut_out == 2 && digest_equal(&island.shut_out_last, &last_id)); /* guests may be under way */
    invite = invited();
    assert_memory_equal(invite.inviter, island.ident.key, sizeof invite.inviter);
    for (int starts = 0; starts < 2; starts++) {
        close_join_server();
        open_join_server();
        assert_int_equal(join_server_invites(island.join_server)->count, 1);
    }
    /* A configuration that was read at the start gave it the key. */
    close_join_server();
    island.ident = *configs_ident(6);
    open_join_server();
    assert_int_equal(join_server_invites(island.join_server)->count, 0);
    /* Before the configuration is taken in. */
    invited();
    island.ident = *configs_ident(7);
    invited();
    assert_int_equal(join_server_invites(island.join_server)->count, 1);
    assert_int_equal(access(testlib_path(island.folder, "invites.damaged"), F_OK), -1);
}

static void a_damaged_list_is_put_aside(void **state)
{
    (void)state;
    invited();
    close_join_server();
    testlib_file(island.folder, "invites", "nonsense");
    open_join_server();
    assert_int_equal(join_server_invites(island.join_server)->count, 0);
    assert_int_equal(access(testlib_path(island.folder, "invites.damaged"), F_OK), 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        CASE(a_guest_is_answered_when_a_configuration_has_it),
        CASE(a_token_is_one_key_s),
        CASE(a_token_for_an_island_lets_in_no_other),
        CASE(what_was_told_is_known_after_a_crash),
        CASE(what_cannot_be_kept_is_not_told),
        CASE(who_cannot_be_admitted_leaves_the_token_open),
        CASE(a_run_has_one_witness),
        CASE(of_two_witnesses_the_one_in_the_configuration_stays),
        CASE(who_did_not_sign_is_not_admitted),
        CASE(what_no_configuration_may_have_is_refused_at_the_door),
        CASE(who_is_refused_again_and_again_fills_no_log),
        CASE(a_guest_is_dialled_and_that_redeems_nothing),
        CASE(a_newcomer_of_another_version_is_told_so_at_once),
        CASE(one_guest_too_many_is_told_to_ask_again),
        CASE(what_is_revoked_or_over_lets_nobody_in),
        CASE(only_operators_invite),
        CASE(by_default_one_of_many_contributes),
        CASE(the_token_of_a_revoked_island_is_told_as_such),
        CASE(a_guest_that_has_gone_is_put_forward_no_more),
        CASE(tokens_from_before_another_key_are_forgotten),
        CASE(a_damaged_list_is_put_aside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
