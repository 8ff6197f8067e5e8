/* SPDX-License-Identifier: Apache-2.0 */
/* dial_server: two islands dial a newcomer for whoever may ask, so often, and no more; over loopback. The one that
 * invites is m0, the founder; m1 is an owner. The newcomer knocks from a thread. */
#include "tests/lib/testlib.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/env.h"
#include "common/mem.h"
#include "daemon/membership/dial_server.h"
#include "net/transport/dial_back.h"
#include "net/transport/join_client.h"
#include "tests/lib/sample_configs.h"

enum { TIMEOUT_MS = 30000, TURN_MS_MAX = 3000, CHOICE = 3 };

static struct isle {
    struct link *link;
    struct view view;
    struct jobs *jobs;
    struct dial_server *dials;
    struct bitset silent;
    enum err refused; /* what became of the last message about dialling; and its text */
    char text[300];
    unsigned heard; /* such messages */
} isles[2];

static struct config config;
static struct digest run_id = {{6}};
static uint64_t longest_turn_ms, stands_ms; /* its clock, if not 0 */
static bool deaf;                           /* m1 takes nothing in */
static struct wire_dial_response played;    /* m1's answer, in place of its own; none: reports_count 0 */

static struct guest {
    pthread_t thread;
    struct invite invite;
    char listen[ADDRESS_BYTES], address[ADDRESS_BYTES];
    enum err err;
    char text[400];
    struct wire_dial_report reports[WIRE_DIAL_REPORTS_MAX];
    uint32_t reports_count;
    unsigned dialled;
    atomic_bool done;
    uint8_t joined_as; /* the owner choice of its JOIN; 255: none came */
} guest;

/* ---- the islands ---- */

static void open_isle(uint32_t i)
{
    struct isle *isle = &isles[i];
    struct jobs_conf jobs = {.threads = 1};
    struct view_changes changes;
    struct digest digest = configs_digest(&config);
    struct link_conf link = {.ident = configs_ident(i),
                             .listen = "127.0.0.1:*",
                             .run_tag = wire_run_tag(config.nonce, &run_id),
                             .io_threads = 1};
    *isle = (struct isle){.heard = 0};
    assert_ok(link_new(&link, &isle->link));
    assert_ok(view_init(NULL, 0, &isle->view));
    assert_ok(view_update(&isle->view, &config, &digest, configs_ident(i)->key, &changes));
    assert_ok(jobs_new(&jobs, &isle->jobs));
    struct dial_server_conf conf = {.jobs = isle->jobs, .link = isle->link, .view = &isle->view};
    assert_ok(dial_server_new(&conf, &isle->dials));
}

static void connect_isles(void)
{
    char address[2][ADDRESS_BYTES];
    for (uint32_t i = 0; i < 2; i++)
        snprintf(address[i], sizeof address[i], "127.0.0.1:%u", link_port(isles[i].link));
    for (uint32_t i = 0; i < 2; i++) {
        struct link_member member = {.name = "peer", .address = address[1 - i]};
        memcpy(member.key, configs_ident(1 - i)->key, sizeof member.key);
        assert_ok(link_set(isles[i].link, view_slot(&isles[i].view, config.members[1 - i].id), &member));
    }
}

static uint64_t now_of(void)
{
    return stands_ms != 0 ? stands_ms : env_mono_ms();
}

static void hear_guest(const struct link_guest *from)
{
    struct wire_join join;
    uint8_t bytes[WIRE_JOIN_BYTES_MAX];
    assert_ok(wire_join_unpack(from->payload, from->bytes, &join));
    assert_true(from->type == WIRE_DIAL_REQUEST ? wire_dial_request_signed(&join, config.nonce)
                                                : wire_join_signed(&join, config.nonce));
    if (from->type == WIRE_DIAL_REQUEST) {
        dial_server_ask(isles[0].dials, &join, from->connection, now_of());
        return;
    }
    guest.joined_as = join.word.owner_choice;
    assert_int_equal(join.word.number, 1);
    assert_ok(link_guest_send(isles[0].link, from->connection, WIRE_REFUSAL, bytes,
                              wire_refusal_pack("that is all", false, bytes)));
}

static void say(uint32_t from, enum wire_type type, const void *bytes, size_t bytes_count)
{
    uint32_t slot = view_slot(&isles[from].view, config.members[1 - from].id);
    assert_ok(link_send(isles[from].link, slot, type, bytes, bytes_count, NULL, 0));
}

/* As a member that lies, or sees it otherwise. */
static void play(const struct link_message *message)
{
    struct wire_join join;
    struct wire_dial_response response = played;
    uint8_t bytes[WIRE_JOIN_BYTES_MAX];
    assert_ok(wire_join_unpack(message->payload, message->bytes, &join));
    response.request[0] ^= 1; /* of no question */
    say(1, WIRE_DIAL_RESPONSE, bytes, wire_dial_response_pack(&response, bytes));
    wire_dial_tag(&join, response.request);
    say(1, WIRE_DIAL_RESPONSE, bytes, wire_dial_response_pack(&response, bytes));
}

static void turn(uint32_t i)
{
    struct isle *isle = &isles[i];
    struct link_event event;
    struct link_message message;
    struct link_guest from;
    while (link_event(isle->link, &event))
        continue;
    if (i == 1 && deaf)
        return;
    if (link_recv(isle->link, &message) == ERR_OK && wire_is_dial(message.header.type)) {
        isle->heard++;
        if (i == 1 && played.reports_count > 0) {
            play(&message);
        } else {
            isle->refused = dial_server_message_in(isle->dials, message.peer, message.header.type, message.payload,
                                                   message.bytes, now_of());
            snprintf(isle->text, sizeof isle->text, "%s", isle->refused != ERR_OK ? err_text() : "");
        }
    }
    while (link_guest_recv(isle->link, &from))
        hear_guest(&from);
    while (jobs_take_back(isle->jobs))
        continue;
    dial_server_tick(isle->dials, &isle->silent, now_of());
    link_tick(isle->link);
}

static void pump_once(void)
{
    for (uint32_t i = 0; i < 2; i++) {
        uint64_t begin_ms = env_mono_ms();
        turn(i);
        uint64_t took_ms = env_mono_ms() - begin_ms;
        longest_turn_ms = took_ms > longest_turn_ms ? took_ms : longest_turn_ms;
    }
    usleep(1000);
}

#define WAIT_FOR(condition)                                                           \
    do {                                                                              \
        for (uint64_t end_ms = env_mono_ms() + TIMEOUT_MS; !(condition); pump_once()) \
            assert_true(env_mono_ms() < end_ms);                                      \
    } while (0)

static int begin(void **state)
{
    (void)state;
    config = configs_first(2, false);
    longest_turn_ms = stands_ms = 0;
    deaf = false;
    played = (struct wire_dial_response){.reports_count = 0};
    guest = (struct guest){.joined_as = 255};
    open_isle(0);
    open_isle(1);
    connect_isles();
    WAIT_FOR(link_up(isles[0].link, 1, false) && link_up(isles[1].link, 0, false));
    return 0;
}

static int end(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        jobs_free(isles[i].jobs);
        dial_server_free(isles[i].dials);
        link_free(isles[i].link);
        view_free(&isles[i].view);
    }
    config_deinit(&config);
    return 0;
}

/* ---- the newcomer ---- */

static struct invite invited(uint8_t seed)
{
    struct invite invite = {.addresses_count = 1, .run_id = run_id, .expiry_s = env_wall_ms() / 1000 + 1000};
    uint8_t key[IDENT_KEY_BYTES];
    memcpy(invite.nonce, config.nonce, sizeof invite.nonce);
    memcpy(invite.inviter, configs_ident(0)->key, sizeof invite.inviter);
    memset(invite.seed, seed, sizeof invite.seed);
    snprintf(invite.addresses[0], sizeof invite.addresses[0], "127.0.0.1:%u", link_port(isles[0].link));
    invite_curve(&invite, key, NULL);
    assert_ok(link_admit(isles[0].link, key, env_mono_ms() + 1000000));
    return invite;
}

static uint8_t note_dialled(void *user, const struct wire_dial_report *reports, uint32_t reports_count)
{
    assert_ptr_equal(user, &guest);
    guest.dialled++;
    guest.reports_count = reports_count;
    for (uint32_t i = 0; i < reports_count; i++)
        guest.reports[i] = reports[i];
    return CHOICE;
}

static void *knock(void *unused)
{
    (void)unused;
    struct wire_joined joined;
    struct join_client_conf conf = {.invite = &guest.invite,
                                    .ident = configs_ident(9),
                                    .name = "m9",
                                    .address = guest.address,
                                    .listen = guest.listen,
                                    .uplink = 1000000,
                                    .timeout_ms = TIMEOUT_MS,
                                    .decide_ms = TIMEOUT_MS,
                                    .dialled = note_dialled,
                                    .user = &guest};
    guest.err = admit_ask(&conf, &joined);
    snprintf(guest.text, sizeof guest.text, "%s", err_text());
    guest.done = true;
    return NULL;
}

static unsigned free_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&at, bytes), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &bytes), 0);
    close(fd);
    return ntohs(at.sin_port);
}

/* `address`: NULL: where it listens. Until the islands have answered it. */
static void send_guest(const struct invite *invite, const char *address)
{
    guest.invite = *invite;
    guest.done = false;
    guest.dialled = 0;
    guest.joined_as = 255;
    snprintf(guest.listen, sizeof guest.listen, "127.0.0.1:%u", free_port());
    snprintf(guest.address, sizeof guest.address, "%s", address != NULL ? address : guest.listen);
    assert_int_equal(pthread_create(&guest.thread, NULL, knock, NULL), 0);
}

static void await_guest(void)
{
    WAIT_FOR(guest.done);
    assert_int_equal(pthread_join(guest.thread, NULL), 0);
    assert_int_equal(guest.err, ERR_STATE);
    assert_non_null(strstr(guest.text, "that is all"));
    assert_int_equal(guest.dialled, 1);
    assert_int_equal(guest.joined_as, CHOICE);
}

static void assert_report(uint32_t i, const char *island, enum wire_dial_outcome outcome)
{
    assert_true(i < guest.reports_count);
    assert_string_equal(guest.reports[i].island, island);
    assert_int_equal(guest.reports[i].outcome, outcome);
}

/* ---- cases ---- */

static void the_inviter_dials_and_one_more_owner(void **state)
{
    (void)state;
    struct invite invite = invited(1);
    send_guest(&invite, NULL);
    await_guest();
    assert_int_equal(guest.reports_count, 2);
    assert_report(0, "m0", WIRE_DIAL_REACHED);
    assert_report(1, "m1", WIRE_DIAL_REACHED);
    char address[ADDRESS_BYTES];
    snprintf(address, sizeof address, "%s", guest.address); /* where nobody listens any more */
    send_guest(&invite, address);
    await_guest();
    assert_int_equal(guest.reports_count, 2);
    assert_report(0, "m0", WIRE_DIAL_REFUSED);
    assert_report(1, "m1", WIRE_DIAL_REFUSED);
}

static void who_is_not_heard_is_not_asked(void **state)
{
    (void)state;
    struct invite invite = invited(1);
    bitset_add(&isles[0].silent, 1);
    pump_once();
    send_guest(&invite, NULL);
    await_guest();
    assert_int_equal(guest.reports_count, 1);
    assert_report(0, "m0", WIRE_DIAL_REACHED);
    assert_int_equal(isles[1].heard, 0);
}

static void an_owner_that_does_not_answer_is_left_out_in_time(void **state)
{
    (void)state;
    struct invite invite = invited(1);
    uint64_t begin_ms = env_mono_ms();
    deaf = true;
    send_guest(&invite, NULL);
    await_guest();
    assert_int_equal(guest.reports_count, 1);
    assert_report(0, "m0", WIRE_DIAL_REACHED);
    assert_in_range(env_mono_ms() - begin_ms, DIALS_OTHER_MS, 2 * DIALS_OTHER_MS);
}

/* It is named as the roster has it, whatever it says of itself. */
static void an_owner_may_see_it_otherwise(void **state)
{
    (void)state;
    struct invite invite = invited(1);
    played.reports_count = 2;
    played.reports[0] = (struct wire_dial_report){.island = "m0", .outcome = WIRE_DIAL_NO_ANSWER, .took_ms = 4321};
    played.reports[1] = (struct wire_dial_report){.island = "m0", .outcome = WIRE_DIAL_REFUSED};
    send_guest(&invite, NULL);
    await_guest();
    assert_int_equal(guest.reports_count, 2);
    assert_report(0, "m0", WIRE_DIAL_REACHED);
    assert_report(1, "m1", WIRE_DIAL_NO_ANSWER);
    assert_int_equal(guest.reports[1].took_ms, 4321);
}

/* Nothing that a guest states holds the daemon up. */
static void a_line_that_swallows_all_keeps_nobody_waiting(void **state)
{
    (void)state;
    struct invite invite = invited(1);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    char address[ADDRESS_BYTES];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), knocks[8];
    assert_int_equal(bind(fd, (const struct sockaddr *)&at, bytes), 0);
    assert_int_equal(listen(fd, 0), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &bytes), 0);
    for (int i = 0; i < 8; i++) {
        knocks[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)!connect(knocks[i], (const struct sockaddr *)&at, bytes);
    }
    snprintf(address, sizeof address, "127.0.0.1:%u", ntohs(at.sin_port));
    send_guest(&invite, address);
    await_guest();
    assert_report(0, "m0", WIRE_DIAL_NO_ANSWER);
    assert_report(1, "m1", WIRE_DIAL_NO_ANSWER);
    assert_true(longest_turn_ms < TURN_MS_MAX);
    for (int i = 0; i < 8; i++)
        close(knocks[i]);
    close(fd);
}

static enum wire_dial_outcome tested(const struct invite *invite)
{
    send_guest(invite, NULL);
    await_guest();
    assert_true(guest.reports_count >= 1);
    return guest.reports[0].outcome;
}

/* Beyond that it comes in all the same, untested, and no owner is asked for it. */
static void a_token_and_a_minute_have_so_many(void **state)
{
    (void)state;
    struct invite first = invited(1), second = invited(2);
    struct digest id = invite_id(&first);
    stands_ms = env_mono_ms();
    for (int i = 0; i < DIALS_TOKEN_MAX; i++)
        assert_int_equal(tested(&first), WIRE_DIAL_REACHED);
    assert_int_equal(tested(&first), WIRE_DIAL_UNTESTED);
    assert_int_equal(guest.reports_count, 1);
    for (int i = DIALS_TOKEN_MAX; i < DIALS_BURST; i++)
        assert_int_equal(tested(&second), WIRE_DIAL_REACHED);
    assert_int_equal(tested(&second), WIRE_DIAL_UNTESTED);
    stands_ms += DIALS_EVERY_MS;
    assert_int_equal(tested(&first), WIRE_DIAL_UNTESTED);
    assert_int_equal(tested(&second), WIRE_DIAL_REACHED);
    dial_server_forget(isles[0].dials, &id); /* it is over; its place is another's */
    stands_ms += DIALS_EVERY_MS;
    assert_int_equal(tested(&first), WIRE_DIAL_REACHED);
}

static struct wire_join question(uint64_t number, const char *address)
{
    struct wire_join join = {.name = "m9", .word = {.number = number, .uplink = 1}};
    snprintf(join.word.address, sizeof join.word.address, "%s", address);
    wire_dial_request_sign(configs_ident(9), config.nonce, &join);
    return join;
}

/* Somebody who asks and asks, for addresses that swallow all, makes us dial one after the other, and others wait. */
static void only_so_many_wait_at_a_time(void **state)
{
    (void)state;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    char address[ADDRESS_BYTES];
    assert_int_equal(bind(fd, (const struct sockaddr *)&at, bytes), 0);
    assert_int_equal(listen(fd, 5), 0); /* it says nothing, and nobody hangs up */
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &bytes), 0);
    snprintf(address, sizeof address, "127.0.0.1:%u", ntohs(at.sin_port));
    for (uint64_t i = 0; i < DIALS_AT_ONCE + 3; i++) {
        struct wire_join join = question(1 + i, address);
        join.invitation.byte[0] = (uint8_t)i; /* each by a token of its own */
        dial_server_ask(isles[0].dials, &join, 0, now_of());
    }
    assert_int_equal(jobs_pending(isles[0].jobs), DIALS_AT_ONCE);
    struct invite invite = invited(1);
    assert_int_equal(tested(&invite), WIRE_DIAL_UNTESTED);
    close(fd); /* what waits is refused now */
}

static void assert_refused(uint32_t from, const struct wire_join *join, const char *why)
{
    uint8_t bytes[WIRE_JOIN_BYTES_MAX];
    struct isle *isle = &isles[1 - from];
    unsigned heard = isle->heard;
    say(from, WIRE_DIAL_REQUEST, bytes, wire_join_pack(join, bytes));
    WAIT_FOR(isle->heard > heard);
    assert_int_equal(isle->refused, ERR_PROTO);
    if (strstr(isle->text, why) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", isle->text, why);
    assert_int_equal(jobs_pending(isle->jobs), 0);
}

static void a_member_may_have_nobody_dialled_but_an_operator_its_guest(void **state)
{
    (void)state;
    struct wire_join join = question(1, "127.0.0.1:1");
    assert_refused(1, &join, "is no operator");
    join.word.address[8] = '2'; /* the newcomer has not asked for that */
    assert_refused(0, &join, "has not asked for it");
    join = question(1, "127.0.0.1:1");
    wire_join_sign(configs_ident(9), config.nonce, &join); /* it asked to be let in, and for nothing else */
    assert_refused(0, &join, "has not asked for it");
    say(0, WIRE_DIAL_REQUEST, "nonsense", 8);
    unsigned heard = isles[1].heard;
    WAIT_FOR(isles[1].heard > heard);
    assert_int_equal(isles[1].refused, ERR_PROTO);
    say(0, WIRE_DIAL_RESPONSE, "nonsense", 8);
    heard = isles[1].heard;
    WAIT_FOR(isles[1].heard > heard);
    assert_int_equal(isles[1].refused, ERR_PROTO);
}

/* An operator looks through nobody's ports by way of us; nor are we asked where we own nothing. */
static void members_have_so_many_dialled_and_owners_alone_dial_for_them(void **state)
{
    (void)state;
    stands_ms = env_mono_ms();
    uint32_t dialled = 0;
    for (uint64_t k = 0; k < DIALS_ASKED_MAX + 3; k++) {
        struct wire_join join = question(1 + k, "127.0.0.1:1");
        uint8_t bytes[WIRE_JOIN_BYTES_MAX];
        isles[1].view.members[1].as.role = k == 0 ? CONFIG_CONTRIBUTOR : CONFIG_OWNER;
        assert_ok(dial_server_message_in(isles[1].dials, 0, WIRE_DIAL_REQUEST, bytes, wire_join_pack(&join, bytes),
                                         now_of()));
        dialled += jobs_pending(isles[1].jobs) > 0;
        assert_true(k > 0 || dialled == 0);
        WAIT_FOR(jobs_pending(isles[1].jobs) == 0);
    }
    assert_int_equal(dialled, DIALS_ASKED_MAX);
}

static void who_ends_dials_nobody_any_more(void **state)
{
    (void)state;
    struct invite invite = invited(1);
    assert_int_equal(tested(&invite), WIRE_DIAL_REACHED);
    dial_server_stop(isles[0].dials);
    assert_int_equal(tested(&invite), WIRE_DIAL_UNTESTED);
}

/* A line that takes all and says nothing costs its patience once: the rest of the time is the last checkpoint's. */
static void who_ends_dials_none_of_those_that_wait(void **state)
{
    (void)state;
    char address[ADDRESS_BYTES];
    unsigned dialled = 0;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), taken;
    assert_int_equal(bind(fd, (const struct sockaddr *)&at, bytes), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &bytes), 0);
    assert_int_equal(listen(fd, 2 * DIALS_AT_ONCE), 0);
    snprintf(address, sizeof address, "127.0.0.1:%u", (unsigned)ntohs(at.sin_port));
    bitset_add(&isles[0].silent, 1); /* the other one is not asked */
    pump_once();
    for (uint8_t k = 0; k < DIALS_AT_ONCE; k++) {
        struct wire_join join = question(1 + k, address);
        dial_server_ask(isles[0].dials, &join, 0, now_of());
    }
    assert_int_equal(jobs_pending(isles[0].jobs), DIALS_AT_ONCE);
    dial_server_stop(isles[0].dials);
    WAIT_FOR(jobs_pending(isles[0].jobs) == 0);
    for (; (taken = accept(fd, NULL, NULL)) >= 0; dialled++)
        close(taken);
    assert_in_range(dialled, 0, 1);
    close(fd);
}

static void without_memory_it_is_not_tested(void **state)
{
    (void)state;
    struct wire_join join = question(1, "127.0.0.1:1");
    struct dial_server_conf conf = {.jobs = isles[0].jobs, .link = isles[0].link, .view = &isles[0].view};
    struct dial_server *none;
    mem_fail_after(0);
    enum err err = dial_server_new(&conf, &none);
    assert_int_equal(err, ERR_NOMEM);
    mem_fail_after(0);
    dial_server_ask(isles[0].dials, &join, 0, now_of());
    mem_fail_after(-1);
    assert_int_equal(jobs_pending(isles[0].jobs), 0);
    struct invite invite = invited(1);
    assert_int_equal(tested(&invite), WIRE_DIAL_REACHED);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        CASE(the_inviter_dials_and_one_more_owner),
        CASE(who_is_not_heard_is_not_asked),
        CASE(an_owner_that_does_not_answer_is_left_out_in_time),
        CASE(an_owner_may_see_it_otherwise),
        CASE(a_line_that_swallows_all_keeps_nobody_waiting),
        CASE(a_token_and_a_minute_have_so_many),
        CASE(only_so_many_wait_at_a_time),
        CASE(members_have_so_many_dialled_and_owners_alone_dial_for_them),
        CASE(who_ends_dials_nobody_any_more),
        CASE(a_member_may_have_nobody_dialled_but_an_operator_its_guest),
        CASE(who_ends_dials_none_of_those_that_wait),
        CASE(without_memory_it_is_not_tested),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
