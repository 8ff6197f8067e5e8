/* SPDX-License-Identifier: Apache-2.0 */
/* doorway: who is let in, and when; with guests that knock over loopback, and voters played by the test. */
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
#include "daemon/membership/doorway.h"
#include "net/membership/wire_epoch.h"
#include "net/transport/enrol.h"
#include "net/transport/socket.h"
#include "tests/lib/sample_records.h"

enum { TIMEOUT_MS = 20000, QUIET_MS = 300, DAY_S = 86400 };

/* The island that invites is member 0; guests are 1 and 2. */
static struct {
    const char *folder;
    struct runspec spec;
    struct chain *chain;
    struct link *link;
    struct doorway *doorway;
    char address[WIRE_ADDRESS_BYTES];
    unsigned enrolled, wished; /* how often the voters were told */
    struct record_member newcomer;
    uint64_t wish_number;
    bool unwilling, minority, revoked;
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
    struct wire_enrolled enrolled;
    atomic_bool done;
} guest;

/* ---- the island ---- */

static uint64_t wall_s(void)
{
    return env_wall_ms() / 1000;
}

static enum err enrol(void *user, const struct record_member *as)
{
    assert_ptr_equal(user, &island);
    if (island.unwilling)
        return err_set(ERR_STATE, "too many are being enrolled");
    island.enrolled++;
    island.newcomer = *as;
    return ERR_OK;
}

static enum err decidable(void *user)
{
    (void)user;
    return island.minority ? err_set(ERR_STATE, "nobody could decide it now") : ERR_OK;
}

static enum err is_open(void *user, bool begun)
{
    (void)user;
    (void)begun;
    return island.revoked ? err_set(ERR_STATE, "it was probably revoked itself") : ERR_OK;
}

static enum err wish(void *user, uint32_t kind, uint32_t id, uint64_t number)
{
    (void)user;
    (void)kind;
    (void)id;
    island.wished++;
    island.wish_number = number;
    return ERR_OK;
}

static void add(struct record *record)
{
    struct record_entry entry = {0};
    struct digest digest = records_digest(record);
    assert_ok(record_pack(record, &entry.bytes, &entry.bytes_count));
    assert_ok(config_store_save(island.folder, record->epoch, &entry));
    assert_ok(chain_add(island.chain, record, &digest));
    record_entry_free(&entry);
}

static void open_doorway(void)
{
    struct link_conf link = {.ident = records_ident(0),
                             .listen = "127.0.0.1:*",
                             .run_tag = wire_run_tag(chain_last(island.chain)->nonce, &island.spec.digest),
                             .io_threads = 1};
    assert_ok(link_new(&link, &island.link));
    snprintf(island.address, sizeof island.address, "127.0.0.1:%u", link_port(island.link));
    struct doorway_conf conf = {.folder = island.folder,
                                .spec = &island.spec,
                                .ident = records_ident(0),
                                .chain = island.chain,
                                .link = island.link,
                                .enrol = enrol,
                                .wish = wish,
                                .decidable = decidable,
                                .open = is_open,
                                .user = &island};
    assert_ok(doorway_new(&conf, env_mono_ms(), wall_s(), &island.doorway));
}

static void close_doorway(void)
{
    doorway_free(island.doorway);
    link_free(island.link);
}

static int begin(void **state)
{
    (void)state;
    struct record record = records_first(1, false);
    memset(&island, 0, sizeof island);
    memset(&guest, 0, sizeof guest);
    island.folder = testlib_folder("doorway");
    assert_ok(runspec_parse("[run]\nname = r\nsteps = 10\n", "r", &island.spec));
    assert_ok(chain_new(&island.chain));
    add(&record);
    open_doorway();
    return 0;
}

static int end(void **state)
{
    (void)state;
    close_doorway();
    chain_free(island.chain);
    runspec_deinit(&island.spec);
    wire_enrolled_deinit(&guest.enrolled);
    return 0;
}

/* Record e + 1: the newest one with the newcomer. */
static void decide(const char *name)
{
    struct record next = records_next(chain_last(island.chain));
    struct record_member *member = records_add(&next, guest.witness ? RECORD_WITNESS : RECORD_OBSERVER);
    snprintf(member->name, sizeof member->name, "%s", name);
    memcpy(member->key, island.newcomer.key, sizeof member->key);
    add(&next);
    doorway_begin(island.doorway);
}

static void pump_once(void)
{
    struct link_event event;
    struct link_message message;
    while (link_event(island.link, &event))
        island.mismatched |= event.type == LINK_MISMATCH && event.peer == UINT32_MAX;
    (void)!link_recv(island.link, &message);
    doorway_look(island.doorway, env_mono_ms(), wall_s());
    doorway_tick(island.doorway, env_mono_ms(), wall_s());
    link_tick(island.link);
    usleep(1000);
}

static void pump(long ms)
{
    for (uint64_t end_ms = env_mono_ms() + (uint64_t)ms; env_mono_ms() < end_ms;)
        pump_once();
}

static void pump_until_enrolled(unsigned times)
{
    for (uint64_t end_ms = env_mono_ms() + TIMEOUT_MS; island.enrolled < times; pump_once())
        assert_true(env_mono_ms() < end_ms);
}

/* ---- guests ---- */

static struct invite invited_for(const char *name)
{
    struct doorway_ask ask = {.addresses_count = 1, .seconds = DAY_S, .island = name, .note = "for the test"};
    char text[INVITE_TEXT_BYTES];
    struct digest id;
    struct invite invite;
    snprintf(ask.addresses[0], sizeof ask.addresses[0], "%s", island.address);
    assert_ok(doorway_invite(island.doorway, &ask, env_mono_ms(), wall_s(), text, &id));
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
    struct enrol_conf conf = {.invite = &guest.invite,
                              .ident = guest.ident,
                              .name = guest.name,
                              .address = "guest.example:7600",
                              .uplink = 5000000,
                              .witness = guest.witness,
                              .timeout_ms = guest.timeout_ms != 0 ? guest.timeout_ms : TIMEOUT_MS,
                              .decide_ms = guest.timeout_ms != 0 ? guest.timeout_ms : TIMEOUT_MS};
    guest.err = enrol_ask(&conf, &guest.enrolled);
    snprintf(guest.text, sizeof guest.text, "%s", guest.err != ERR_OK ? err_text() : "");
    guest.done = true;
    return NULL;
}

static void send_guest(const struct invite *invite, uint32_t id, const char *name)
{
    guest.invite = *invite;
    guest.ident = records_ident(id);
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
    struct epoch_message message;
    struct record record;
    struct runspec spec;
    if (guest.err != ERR_OK)
        fail_msg("refused: %s", guest.text);
    assert_int_equal(guest.enrolled.id, id);
    assert_ok(runspec_parse(guest.enrolled.run_spec, "told", &spec));
    assert_true(digest_equal(&spec.digest, &island.spec.digest));
    runspec_deinit(&spec);
    assert_ok(wire_epoch_unpack(WIRE_DECIDED, guest.enrolled.records, guest.enrolled.records_bytes, &message));
    assert_ok(record_unpack(message.bytes, message.bytes_count, &record));
    assert_int_equal(record.epoch, chain_last(island.chain)->epoch);
    assert_memory_equal(record_member(&record, id)->key, guest.ident->key, IDENT_KEY_BYTES);
    record_deinit(&record);
    wire_epoch_deinit(&message);
    wire_enrolled_deinit(&guest.enrolled);
}

/* ---- cases ---- */

static void a_guest_is_answered_when_a_record_has_it(void **state)
{
    (void)state;
    struct invite invite = invited();
    send_guest(&invite, 1, "m1");
    pump_until_enrolled(1);
    assert_string_equal(island.newcomer.name, "m1");
    assert_string_equal(island.newcomer.address, "guest.example:7600");
    assert_int_equal(island.newcomer.uplink, 5000000);
    assert_int_equal(island.newcomer.role, RECORD_OBSERVER);
    pump(QUIET_MS);
    assert_false(guest.done);
    pump_until_enrolled(2); /* the voters are told again, until a record says it */
    decide("m1");
    await_guest();
    assert_let_in(1);
    unsigned told = island.enrolled;
    send_guest(&invite, 1, "m1"); /* its answer may have been lost */
    await_guest();
    assert_let_in(1);
    assert_int_equal(island.enrolled, told);
}

static void a_token_is_one_key_s(void **state)
{
    (void)state;
    struct invite invite = invited();
    send_guest(&invite, 1, "m1");
    pump_until_enrolled(1);
    decide("m1");
    await_guest();
    assert_let_in(1);
    assert_refused(&invite, 2, "m2", "redeemed by another island");
}

/* Asked for again, it takes the place of the one before, unless somebody has come by that. */
static void a_token_for_an_island_lets_in_no_other(void **state)
{
    (void)state;
    const struct invites *invites = doorway_invites(island.doorway);
    struct invite other = invited_for("m2"), first = invited_for("m1"), second = invited_for("m1");
    struct digest id[] = {invite_id(&other), invite_id(&first), invite_id(&second)};
    assert_int_equal(invites->count, 2);
    assert_non_null(invites_find(invites, &id[0]));
    assert_null(invites_find(invites, &id[1]));
    assert_refused(&second, 1, "m3", "the token is for island m1; join by that name");
    send_guest(&second, 1, "m1");
    pump_until_enrolled(1);
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
    close_doorway(); /* nothing is written now */
    open_doorway();
    assert_int_equal(doorway_invites(island.doorway)->count, 1);
    assert_string_equal(doorway_invites(island.doorway)->rows[0].note, "for the test");
    memcpy(invite.addresses[0], island.address, sizeof island.address);
    guest.timeout_ms = 2000;
    send_guest(&invite, 1, "m1");
    pump_until_enrolled(1);
    close_doorway(); /* with the guest at the door */
    open_doorway();
    assert_true(doorway_invites(island.doorway)->rows[0].redeemed);
    assert_memory_equal(doorway_invites(island.doorway)->rows[0].by, records_ident(1)->key, IDENT_KEY_BYTES);
    await_guest();
    assert_int_not_equal(guest.err, ERR_OK);
}

static void what_cannot_be_kept_is_not_told(void **state)
{
    (void)state;
    struct doorway_ask ask = {
        .addresses_count = 1, .addresses = {"127.0.0.1:1"}, .seconds = 1, .island = "", .note = ""};
    char text[INVITE_TEXT_BYTES], away[600];
    struct digest id;
    snprintf(away, sizeof away, "%s.away", island.folder);
    assert_int_equal(rename(island.folder, away), 0);
    assert_int_equal(doorway_invite(island.doorway, &ask, env_mono_ms(), wall_s(), text, &id), ERR_IO);
    assert_int_equal(rename(away, island.folder), 0);
    assert_string_equal(text, "");
    assert_int_equal(doorway_invites(island.doorway)->count, 0);
    ask.addresses_count = 0;
    assert_fails(ERR_ARG, "addresses", doorway_invite(island.doorway, &ask, 0, wall_s(), text, &id));
}

static void who_cannot_be_enrolled_leaves_the_token_open(void **state)
{
    (void)state;
    struct invite invite = invited();
    assert_refused(&invite, 1, "m0", "if this is it on a new disk, free it: dilococtl revoke m0 elsewhere");
    island.unwilling = true;
    assert_refused(&invite, 1, "m1", "too many are being enrolled");
    island.unwilling = false;
    assert_false(doorway_invites(island.doorway)->rows[0].redeemed);
    send_guest(&invite, 2, "m2"); /* another may have it */
    pump_until_enrolled(1);
    struct record next = records_next(chain_last(island.chain)); /* somebody was faster with that name */
    struct record_member *member = records_add(&next, RECORD_OBSERVER);
    snprintf(member->name, sizeof member->name, "m2");
    add(&next);
    doorway_begin(island.doorway);
    await_guest();
    assert_int_equal(guest.err, ERR_STATE);
    assert_non_null(strstr(guest.text, "take another"));
    assert_false(doorway_invites(island.doorway)->rows[0].redeemed);
}

/* At most one, and it stays one. */
static void a_run_has_one_witness(void **state)
{
    (void)state;
    struct invite invite = invited(), other = invited();
    guest.witness = true;
    send_guest(&invite, 1, "m1");
    pump_until_enrolled(1);
    assert_int_equal(island.newcomer.role, RECORD_WITNESS);
    decide("m1");
    await_guest();
    assert_let_in(1);
    assert_refused(&other, 2, "m2", "m1 is the run's witness already, and there is at most one");
    assert_int_equal(island.enrolled, 1);
    guest.witness = false;
    assert_refused(&invite, 1, "m1", "is on the roster as the witness");
}

/* Two islands invite one each at a time: the record that is decided has one of them. */
static void of_two_witnesses_the_one_in_the_record_stays(void **state)
{
    (void)state;
    struct invite invite = invited();
    guest.witness = true;
    send_guest(&invite, 2, "m2");
    pump_until_enrolled(1);
    struct record next = records_next(chain_last(island.chain)); /* another's guest, m1 */
    records_add(&next, RECORD_WITNESS);
    add(&next);
    doorway_begin(island.doorway);
    await_guest();
    assert_int_equal(guest.err, ERR_STATE);
    assert_non_null(strstr(guest.text, "m1 is the run's witness already"));
    assert_false(doorway_invites(island.doorway)->rows[0].redeemed);
}

/* A guest's words, as they stand, by its own connection; the header of the answer, and its text, if it is a refusal. */
static struct wire_header say_as_guest(const struct invite *invite, const struct wire_header *fields,
                                       const uint8_t *payload, size_t bytes, char reason[WIRE_REASON_BYTES])
{
    uint8_t header[WIRE_HEADER_BYTES], answer[WIRE_ENROLLED_BYTES_MAX], server[IDENT_KEY_BYTES], key[IDENT_KEY_BYTES],
        secret[IDENT_KEY_BYTES];
    char route[SOCKET_ROUTE_BYTES];
    void *context = zmq_ctx_new(), *socket = NULL, *monitor = NULL;
    struct wire_header got;
    wire_header_put(fields, header);
    assert_ok(ident_curve(invite->inviter, server));
    invite_curve(invite, key, secret);
    struct socket_dial dial = {.address = island.address,
                               .server = server,
                               .key = key,
                               .secret = secret,
                               .route = route,
                               .route_bytes = socket_route(key, false, 1, route),
                               .part_bytes_max = WIRE_ENROLLED_BYTES_MAX};
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
        assert_ok(wire_refusal_unpack(answer, (size_t)count, reason));
    socket_close(&socket, &monitor);
    zmq_ctx_term(context);
    return got;
}

/* By its own words, with another's key: whoever has the token cannot enrol whom it likes. */
static void who_did_not_sign_is_not_enrolled(void **state)
{
    (void)state;
    struct invite invite = invited();
    struct wire_enrol enrol = {.invitation = invite_id(&invite), .name = "m1", .uplink = 1};
    uint8_t payload[WIRE_ENROL_BYTES_MAX];
    char reason[WIRE_REASON_BYTES];
    struct wire_header fields = {
        .version = WIRE_VERSION, .type = WIRE_ENROL, .run_tag = wire_run_tag(invite.nonce, &invite.run_id)};
    wire_enrol_sign(records_ident(1), invite.nonce, &invite.run_id, &enrol);
    memcpy(enrol.key, records_ident(2)->key, sizeof enrol.key);
    fields = say_as_guest(&invite, &fields, payload, wire_enrol_pack(&enrol, payload), reason);
    assert_int_equal(fields.type, WIRE_REFUSAL);
    assert_int_equal(island.enrolled, 0);
    assert_false(doorway_invites(island.doorway)->rows[0].redeemed);
}

/* Whatever it says, and in whatever form: our version stands in the header, which all releases read. */
static void a_newcomer_of_another_version_is_told_so_at_once(void **state)
{
    (void)state;
    static const uint8_t payload[] = {1, 2, 3};
    struct invite invite = invited();
    char reason[WIRE_REASON_BYTES];
    struct wire_header fields = {
        .version = WIRE_VERSION + 1, .type = WIRE_ENROL, .run_tag = wire_run_tag(invite.nonce, &invite.run_id)};
    fields = say_as_guest(&invite, &fields, payload, sizeof payload, reason);
    assert_int_equal(fields.type, WIRE_REFUSAL);
    assert_int_equal(fields.version, WIRE_VERSION);
    assert_non_null(strstr(reason, "install the same release"));
    pump_once();
    assert_true(island.mismatched);
    assert_false(doorway_invites(island.doorway)->rows[0].redeemed);
}

static void what_is_revoked_or_over_lets_nobody_in(void **state)
{
    (void)state;
    char hex[DIGEST_HEX_BYTES];
    struct invite invite = invited(), other = invited();
    struct digest id = invite_id(&invite);
    digest_hex(&id, hex);
    hex[8] = '\0';
    assert_fails(ERR_NOTFOUND, "no invitation abc", doorway_revoke(island.doorway, "abc"));
    assert_ok(doorway_revoke(island.doorway, hex));
    assert_fails(ERR_NOTFOUND, "is open here", doorway_revoke(island.doorway, hex));
    assert_refused(&invite, 1, "m1", "does not admit this token");
    doorway_tick(island.doorway, env_mono_ms(), wall_s() + DAY_S + 1);
    assert_int_equal(doorway_invites(island.doorway)->count, 0);
    assert_refused(&other, 1, "m1", "does not admit this token");
    close_doorway();
    open_doorway();
    assert_int_equal(doorway_invites(island.doorway)->count, 0);
    assert_int_equal(island.enrolled, 0);
}

static void an_order_is_told_until_a_record_says_it(void **state)
{
    (void)state;
    struct record next = records_next(chain_last(island.chain));
    records_add(&next, RECORD_CONTRIBUTOR);
    add(&next);
    doorway_begin(island.doorway);
    uint64_t now_ms = env_mono_ms();
    assert_fails(ERR_ARG, "an order of kind", doorway_order(island.doorway, WIRE_WISH_STEPS, 1, now_ms));
    assert_ok(doorway_order(island.doorway, WIRE_WISH_EVICT, 1, now_ms));
    assert_int_equal(island.wished, 1);
    assert_int_equal(island.wish_number, 1); /* the epoch in which it is asked */
    doorway_tick(island.doorway, now_ms + 1000, wall_s());
    assert_int_equal(island.wished, 2);
    next = records_next(chain_last(island.chain)); /* which says something else */
    add(&next);
    doorway_begin(island.doorway);
    doorway_tick(island.doorway, now_ms + 2000, wall_s());
    assert_int_equal(island.wished, 3);
    assert_int_equal(island.wish_number, 2);
    next = records_next(chain_last(island.chain));
    next.members[1].role = RECORD_AWAY;
    add(&next);
    doorway_begin(island.doorway);
    doorway_tick(island.doorway, now_ms + 3000, wall_s());
    assert_int_equal(island.wished, 3);
}

/* Member 1, of which an eviction is asked at `now_ms`. */
static void ask_about_another(uint64_t now_ms)
{
    struct record next = records_next(chain_last(island.chain));
    records_add(&next, RECORD_CONTRIBUTOR);
    add(&next);
    doorway_begin(island.doorway);
    assert_ok(doorway_order(island.doorway, WIRE_WISH_REVOKE, 1, now_ms));
    assert_int_equal(island.wished, 1);
    assert_int_equal(island.wish_number, 1); /* the epoch in which it is asked */
}

static void an_order_ends_after_ten_minutes(void **state)
{
    (void)state;
    uint64_t now_ms = env_mono_ms(), minute_ms = 60000;
    ask_about_another(now_ms);
    doorway_tick(island.doorway, now_ms + 9 * minute_ms, wall_s());
    assert_int_equal(island.wished, 2);
    doorway_tick(island.doorway, now_ms + 10 * minute_ms + 1, wall_s());
    doorway_tick(island.doorway, now_ms + 10 * minute_ms + 2001, wall_s());
    assert_int_equal(island.wished, 2);
}

static void what_a_minority_asks_is_not_done_later(void **state)
{
    (void)state;
    uint64_t now_ms = env_mono_ms();
    ask_about_another(now_ms);
    island.minority = true;
    doorway_tick(island.doorway, now_ms + 1000, wall_s());
    assert_int_equal(island.wished, 1);
    assert_fails(ERR_STATE, "nobody could decide it now", doorway_order(island.doorway, WIRE_WISH_EVICT, 1, now_ms));
    island.minority = false; /* the line is back */
    doorway_tick(island.doorway, now_ms + 2000, wall_s());
    struct record next = records_next(chain_last(island.chain));
    add(&next);
    doorway_begin(island.doorway);
    doorway_tick(island.doorway, now_ms + 4000, wall_s());
    assert_int_equal(island.wished, 1);
}

static void the_token_of_a_revoked_island_is_told_as_such(void **state)
{
    (void)state;
    struct invite invite = invited();
    island.revoked = true;
    assert_refused(&invite, 1, "m1", "it was probably revoked itself");
    assert_false(doorway_invites(island.doorway)->rows[0].redeemed);
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
    unsigned told = island.enrolled;
    assert_true(told > 0);
    doorway_tick(island.doorway, now_ms + 9 * 60000, wall_s());
    assert_int_equal(island.enrolled, told + 1);
    doorway_tick(island.doorway, now_ms + 11 * 60000, wall_s());
    assert_int_equal(island.enrolled, told + 1);
}

static void a_damaged_list_is_put_aside(void **state)
{
    (void)state;
    invited();
    close_doorway();
    testlib_file(island.folder, "invites", "nonsense");
    open_doorway();
    assert_int_equal(doorway_invites(island.doorway)->count, 0);
    assert_int_equal(access(testlib_path(island.folder, "invites.damaged"), F_OK), 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        CASE(a_guest_is_answered_when_a_record_has_it),
        CASE(a_token_is_one_key_s),
        CASE(a_token_for_an_island_lets_in_no_other),
        CASE(what_was_told_is_known_after_a_crash),
        CASE(what_cannot_be_kept_is_not_told),
        CASE(who_cannot_be_enrolled_leaves_the_token_open),
        CASE(a_run_has_one_witness),
        CASE(of_two_witnesses_the_one_in_the_record_stays),
        CASE(who_did_not_sign_is_not_enrolled),
        CASE(a_newcomer_of_another_version_is_told_so_at_once),
        CASE(what_is_revoked_or_over_lets_nobody_in),
        CASE(an_order_is_told_until_a_record_says_it),
        CASE(an_order_ends_after_ten_minutes),
        CASE(what_a_minority_asks_is_not_done_later),
        CASE(the_token_of_a_revoked_island_is_told_as_such),
        CASE(a_guest_that_has_gone_is_put_forward_no_more),
        CASE(a_damaged_list_is_put_aside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
