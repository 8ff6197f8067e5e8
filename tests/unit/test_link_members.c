/* SPDX-License-Identifier: Apache-2.0 */
/* link: members come and go while others talk, and who has left is not heard any more; guests say one thing. Callers
 * are sockets of our own, so that they can say what they should not. */
#include "tests/lib/testlib.h"

#include <dlfcn.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/env.h"
#include "net/transport/link.h"
#include "net/transport/socket.h"
#include "net/transport/traffic.h"
#include "net/transport/wire_join.h"

enum { RUN = 77, MANY = 200, PATIENCE_MS = 20000, ANSWER_BYTES = 1 << 20 };
enum { OURS, ANNA, BERT, CARL, IDENTS };

static struct ident idents[IDENTS];
static void *context; /* of callers */

/* ---- the one that is called ---- */

static struct {
    struct link *link;
    char address[32];
    uint32_t heard[LINK_SLOTS_MAX]; /* messages, by slot */
    uint32_t strangers, malformed;
    uint32_t last; /* number in the last message */
} hub;

static void open_hub(void)
{
    struct link_conf conf = {.ident = &idents[OURS], .listen = "127.0.0.1:*", .run_tag = RUN, .io_threads = 1};
    memset(&hub, 0, sizeof hub);
    assert_ok(link_new(&conf, &hub.link));
    snprintf(hub.address, sizeof hub.address, "127.0.0.1:%u", link_port(hub.link));
}

static void look(void)
{
    struct link_event event;
    struct link_message message;
    while (link_event(hub.link, &event)) {
        hub.strangers += event.type == LINK_STRANGER;
        hub.malformed += event.type == LINK_MALFORMED;
    }
    while (link_recv(hub.link, &message) == ERR_OK) {
        assert_in_range(message.peer, 0, LINK_SLOTS_MAX - 1);
        hub.heard[message.peer]++;
        if (message.bytes == sizeof hub.last)
            memcpy(&hub.last, message.payload, sizeof hub.last);
    }
}

static struct link_member member_of(const struct ident *ident, const char *address)
{
    struct link_member member = {.name = "somebody", .address = address};
    memcpy(member.key, ident->key, sizeof member.key);
    return member;
}

static void set(uint32_t slot, const struct ident *ident)
{
    struct link_member member = member_of(ident, "");
    assert_ok(link_set(hub.link, slot, &member));
}

#define wait_for(condition)                                             \
    do {                                                                \
        uint64_t until_ms_ = env_mono_ms() + PATIENCE_MS;               \
        while (!(condition)) {                                          \
            if (env_mono_ms() > until_ms_)                              \
                fail_msg("line %d: in vain: %s", __LINE__, #condition); \
            look();                                                     \
            usleep(500);                                                \
        }                                                               \
    } while (0)

/* For as long as anything that is on its way may need. */
static void rest(void)
{
    for (int i = 0; i < 100; i++) {
        look();
        usleep(1000);
    }
}

/* ---- those who call ---- */

struct caller {
    void *socket, *monitor;
    bool up;
    uint32_t ups, downs, refused;
};

static void call_with(struct caller *caller, const uint8_t *key, const uint8_t *secret, bool bulk)
{
    char route[SOCKET_ROUTE_BYTES];
    struct socket_dial dial = {.address = hub.address,
                               .server = idents[OURS].curve_key,
                               .key = key,
                               .secret = secret,
                               .route = route,
                               .route_bytes = socket_route(key, bulk, env_random_u64(), route),
                               .part_bytes_max = ANSWER_BYTES};
    *caller = (struct caller){.up = false};
    assert_ok(socket_dial(context, &dial, &caller->socket, &caller->monitor));
}

static void call(struct caller *caller, const struct ident *ident)
{
    call_with(caller, ident->curve_key, ident->curve_secret, false);
}

static void hang_up(struct caller *caller)
{
    socket_close(&caller->socket, &caller->monitor);
}

static bool is_up(struct caller *caller)
{
    uint16_t event;
    uint32_t value;
    while (socket_event(caller->monitor, &event, &value)) {
        caller->up = event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED;
        caller->ups += caller->up;
        caller->downs += event == ZMQ_EVENT_DISCONNECTED;
        caller->refused += event != ZMQ_EVENT_CONNECTED && event != ZMQ_EVENT_DISCONNECTED && !caller->up;
    }
    return caller->up;
}

static bool was_cut(struct caller *caller)
{
    (void)is_up(caller);
    return caller->downs > 0;
}

static bool was_refused(struct caller *caller)
{
    (void)is_up(caller);
    return caller->refused > 0;
}

static enum err say_as(struct caller *caller, uint64_t run, uint32_t type, const void *payload, size_t bytes)
{
    uint8_t header[WIRE_HEADER_BYTES];
    wire_header_put(&(struct wire_header){.version = WIRE_VERSION, .type = type, .run_tag = run}, header);
    return socket_send(caller->socket, &(struct socket_part){header, sizeof header}, 1,
                       &(struct socket_part){payload, bytes}, &(struct socket_part){NULL, 0});
}

static enum err say(struct caller *caller, uint32_t type, const void *payload, size_t bytes)
{
    return say_as(caller, RUN, type, payload, bytes);
}

/* ---- members ---- */

/* One who talks all the time: nothing of it is lost, whatever the others do. */
static struct {
    struct caller caller;
    uint32_t said;
} talker;

static void talk(void)
{
    talker.said++;
    while (say(&talker.caller, WIRE_HELLO, &talker.said, sizeof talker.said) != ERR_OK)
        look();
}

static void members_come_and_go_while_others_talk(void **state)
{
    (void)state;
    struct caller bert, carl;
    open_hub(); /* with nobody but ourselves */
    assert_int_equal(link_send(hub.link, 1000, WIRE_BYE, "", 0, NULL, 0), ERR_CLOSED);
    set(2, &idents[ANNA]);
    talker.said = 0;
    call(&talker.caller, &idents[ANNA]);
    wait_for(is_up(&talker.caller));
    call(&bert, &idents[BERT]);
    wait_for(hub.strangers > 0);
    set(700, &idents[BERT]);
    hang_up(&bert);
    call(&bert, &idents[BERT]);
    for (int i = 0; i < 50; i++)
        talk();
    wait_for(is_up(&bert));
    assert_ok(say(&bert, WIRE_HELLO, "", 0));
    wait_for(hub.heard[700] == 1);
    assert_ok(link_send(hub.link, 700, WIRE_BYE, "", 0, NULL, 0));

    /* What is on its way when it leaves is not heard, nor what it says after. */
    for (int i = 0; i < 20; i++)
        assert_ok(say(&bert, WIRE_HELLO, "", 0));
    usleep(50000);
    assert_ok(link_set(hub.link, 700, NULL));
    for (int i = 0; i < 50; i++)
        talk();
    wait_for(was_cut(&bert));
    assert_int_equal(hub.heard[700], 1);
    assert_int_equal(link_send(hub.link, 700, WIRE_BYE, "", 0, NULL, 0), ERR_CLOSED);
    wait_for(was_refused(&bert));

    /* The slot is another's now. */
    set(700, &idents[CARL]);
    call(&carl, &idents[CARL]);
    wait_for(is_up(&carl));
    rest();
    assert_int_equal(hub.heard[700], 1);
    assert_ok(say(&carl, WIRE_HELLO, "", 0));
    wait_for(hub.heard[700] == 2);
    assert_false(is_up(&bert));
    for (int i = 0; i < 50; i++)
        talk();
    wait_for(hub.heard[2] == talker.said);
    assert_int_equal(hub.last, talker.said);
    assert_int_equal(talker.caller.downs, 0);
    hang_up(&bert);
    hang_up(&carl);
    hang_up(&talker.caller);
    link_free(hub.link);
}

static void another_key_is_admitted_in_place_of_the_old_one(void **state)
{
    (void)state;
    struct caller anna, bert, second;
    open_hub();
    set(1, &idents[ANNA]);
    call(&anna, &idents[ANNA]);
    call(&second, &idents[ANNA]); /* a connection of it that never said anything */
    wait_for(is_up(&anna) && is_up(&second));
    assert_ok(say(&anna, WIRE_HELLO, "", 0));
    wait_for(hub.heard[1] == 1);
    set(1, &idents[ANNA]); /* nothing changes */
    assert_ok(say(&anna, WIRE_HELLO, "", 0));
    wait_for(hub.heard[1] == 2);
    assert_false(was_cut(&anna));
    set(1, &idents[BERT]);
    call(&bert, &idents[BERT]);
    wait_for(is_up(&bert) && was_cut(&anna));
    assert_ok(say(&bert, WIRE_HELLO, "", 0));
    wait_for(hub.heard[1] == 3);
    (void)!say(&second, WIRE_HELLO, "", 0);
    wait_for(was_cut(&second));
    wait_for(was_refused(&anna));
    assert_int_equal(hub.heard[1], 3);
    struct link_member again = member_of(&idents[BERT], "");
    assert_fails(ERR_STATE, "the same key", link_set(hub.link, 2, &again));
    again.address = "nonsense";
    assert_fails(ERR_CONF, "[peer somebody] address", link_set(hub.link, 1, &again));
    assert_fails(ERR_ARG, "at most 1024", link_set(hub.link, LINK_SLOTS_MAX, &again));
    hang_up(&anna);
    hang_up(&bert);
    hang_up(&second);
    link_free(hub.link);
}

/* So that whoever has it already, by a configuration that is not known here yet, is let in. */
static void the_next_key_is_admitted_beside_the_present_one(void **state)
{
    (void)state;
    struct caller anna, bert, again;
    open_hub();
    struct link_member member = member_of(&idents[ANNA], "");
    memcpy(member.next, idents[BERT].key, sizeof member.next);
    assert_ok(link_set(hub.link, 1, &member));
    call(&anna, &idents[ANNA]);
    call(&bert, &idents[BERT]);
    wait_for(is_up(&anna) && is_up(&bert));
    assert_ok(say(&anna, WIRE_HELLO, "", 0));
    wait_for(hub.heard[1] == 1);
    assert_ok(say(&bert, WIRE_HELLO, "", 0));
    wait_for(hub.heard[1] == 2);
    struct link_member other = member_of(&idents[BERT], "");
    assert_fails(ERR_STATE, "the same key", link_set(hub.link, 2, &other));
    other = member_of(&idents[CARL], "");
    memcpy(other.next, idents[BERT].key, sizeof other.next);
    assert_fails(ERR_STATE, "the same key", link_set(hub.link, 2, &other));
    set(1, &idents[ANNA]); /* it was taken back */
    (void)!say(&bert, WIRE_HELLO, "", 0);
    wait_for(was_cut(&bert));
    wait_for(was_refused(&bert));
    hang_up(&bert);
    assert_ok(link_set(hub.link, 1, &member));
    set(1, &idents[BERT]); /* it has it, and no other */
    call(&again, &idents[ANNA]);
    call(&bert, &idents[BERT]);
    wait_for(is_up(&bert) && was_refused(&again));
    uint32_t heard = hub.heard[1];
    assert_ok(say(&bert, WIRE_HELLO, "", 0));
    wait_for(hub.heard[1] == heard + 1);
    hang_up(&anna);
    hang_up(&again);
    hang_up(&bert);
    link_free(hub.link);
}

/* Only what was let in by a key that is taken back ends, and at once. */
static void who_has_the_present_key_goes_on_while_the_next_one_changes(void **state)
{
    (void)state;
    struct caller anna, bert;
    open_hub();
    struct link_member member = member_of(&idents[ANNA], "");
    memcpy(member.next, idents[BERT].key, sizeof member.next);
    set(1, &idents[ANNA]);
    call(&anna, &idents[ANNA]);
    wait_for(is_up(&anna));
    assert_ok(say(&anna, WIRE_HELLO, "", 0));
    wait_for(hub.heard[1] == 1);
    const struct ident *const next[] = {&idents[BERT], &idents[CARL], NULL, &idents[BERT]};
    for (int i = 0; i < 4; i++) {
        memset(member.next, 0, sizeof member.next);
        if (next[i] != NULL)
            memcpy(member.next, next[i]->key, sizeof member.next);
        assert_ok(link_set(hub.link, 1, &member));
        assert_true(link_up(hub.link, 1, false));
        assert_ok(say(&anna, WIRE_HELLO, "", 0));
        wait_for(hub.heard[1] == 2 + (uint32_t)i);
    }
    assert_false(was_cut(&anna));
    call(&bert, &idents[BERT]); /* it is there by the next key, and spoke last */
    wait_for(is_up(&bert));
    assert_ok(say(&bert, WIRE_HELLO, "", 0));
    wait_for(hub.heard[1] == 6);
    set(1, &idents[ANNA]);
    assert_false(link_up(hub.link, 1, false));
    wait_for(was_cut(&bert));
    assert_ok(say(&anna, WIRE_HELLO, "", 0));
    wait_for(hub.heard[1] == 7);
    assert_true(link_up(hub.link, 1, false));
    assert_false(was_cut(&anna));
    hang_up(&anna);
    hang_up(&bert);
    link_free(hub.link);
}

/* Another link, which the hub knows as slot 1, and which knows the hub as slot 0. */
static struct link *open_other(const struct ident *next)
{
    struct link_conf conf = {.ident = &idents[ANNA], .listen = "127.0.0.1:*", .run_tag = RUN, .io_threads = 1};
    struct link_member member = member_of(&idents[OURS], hub.address);
    struct link *other;
    assert_ok(link_new(&conf, &other));
    if (next != NULL)
        memcpy(member.next, next->key, sizeof member.next);
    assert_ok(link_set(other, 0, &member));
    return other;
}

static bool other_is(struct link *other, bool up)
{
    struct link_event event;
    struct link_message message;
    link_tick(hub.link);
    link_tick(other);
    while (link_event(other, &event) || link_recv(other, &message) == ERR_OK)
        continue;
    return link_up(other, 0, false) == up;
}

/* Its listener, too: who expects the key before does not find it, who may expect the next one does. */
static void with_another_key_of_our_own_we_are_found_by_that(void **state)
{
    (void)state;
    struct caller bert;
    open_hub();
    set(1, &idents[ANNA]);
    set(2, &idents[BERT]);
    struct link *other = open_other(&idents[CARL]);
    call(&bert, &idents[BERT]);
    wait_for(is_up(&bert));
    wait_for(other_is(other, true));
    assert_memory_equal(link_key(hub.link), idents[OURS].key, IDENT_KEY_BYTES);
    unsigned port = link_port(hub.link);
    link_rekey(hub.link, &idents[CARL], NULL);
    assert_memory_equal(link_key(hub.link), idents[CARL].key, IDENT_KEY_BYTES);
    wait_for(was_cut(&bert));
    wait_for(other_is(other, false));
    wait_for(other_is(other, true));
    assert_int_equal(link_port(hub.link), port);
    rest();
    assert_false(is_up(&bert));
    uint32_t heard = hub.heard[1];
    assert_ok(link_send(other, 0, WIRE_HELLO, "", 0, NULL, 0));
    wait_for(other_is(other, true) && hub.heard[1] > heard); /* the bulk connection has its greeting, too */
    link_rekey(hub.link, &idents[OURS], &idents[CARL]);      /* and back */
    wait_for(other_is(other, false));
    wait_for(other_is(other, true));
    hang_up(&bert);
    link_free(other);
    link_free(hub.link);
}

static char bound_at[300]; /* what was bound last */

int zmq_bind(void *socket, const char *endpoint)
{
    static int (*real)(void *, const char *);
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "zmq_bind");
    snprintf(bound_at, sizeof bound_at, "%s", endpoint);
    return real(socket, endpoint);
}

/* A network interface has another address by then, maybe. */
static void with_another_key_of_our_own_we_listen_where_we_were_told_to(void **state)
{
    (void)state;
    static const char *const listens[] = {"lo:*", "*:*", "[::1]:*", "127.0.0.1:*"};
    for (size_t i = 0; i < sizeof listens / sizeof *listens; i++) {
        struct link_conf conf = {.ident = &idents[OURS], .listen = listens[i], .run_tag = RUN, .io_threads = 1};
        char wanted[sizeof bound_at];
        memset(&hub, 0, sizeof hub);
        if (link_new(&conf, &hub.link) != ERR_OK) { /* a machine without IPv6 */
            assert_true(listens[i][0] == '[');
            continue;
        }
        snprintf(wanted, sizeof wanted, "tcp://%.*s%u", (int)(strlen(listens[i]) - 1), listens[i], link_port(hub.link));
        link_rekey(hub.link, &idents[CARL], NULL);
        wait_for((link_tick(hub.link), strcmp(bound_at, wanted) == 0));
        link_free(hub.link);
    }
}

static void who_is_dialled_by_the_next_key_is_dialled_anew_when_that_changes(void **state)
{
    (void)state;
    open_hub();
    set(1, &idents[ANNA]);
    struct link *other = open_other(&idents[CARL]);
    struct link_member ours = member_of(&idents[OURS], hub.address);
    wait_for(other_is(other, true));
    assert_ok(link_set(other, 0, &ours)); /* it is dialled by the key that stays */
    assert_true(link_up(other, 0, false) && !link_undialled(other, 0));
    memcpy(ours.next, idents[CARL].key, sizeof ours.next);
    assert_ok(link_set(other, 0, &ours));
    link_rekey(hub.link, &idents[CARL], NULL);
    wait_for(other_is(other, false));
    wait_for(other_is(other, true));
    memset(ours.next, 0, sizeof ours.next);
    assert_ok(link_set(other, 0, &ours)); /* whoever that is, it has no key of ours any more */
    assert_true(link_undialled(other, 0));
    rest();
    assert_true(other_is(other, false));
    link_free(other);
    link_free(hub.link);
}

/* Who was away while our key changed admits the one before. */
static void who_knows_the_key_before_is_dialled_with_that(void **state)
{
    (void)state;
    struct link_conf conf = {.ident = &idents[CARL], .before = &idents[ANNA], .run_tag = RUN, .io_threads = 1};
    struct link *other;
    open_hub();
    set(1, &idents[ANNA]);
    struct link_member member = member_of(&idents[OURS], hub.address);
    assert_ok(link_new(&conf, &other));
    assert_ok(link_set(other, 0, &member));
    wait_for(other_is(other, true));
    assert_true(hub.strangers > 0);
    assert_ok(link_send(other, 0, WIRE_HELLO, "", 0, NULL, 0));
    wait_for(other_is(other, true) && hub.heard[1] > 0);
    set(1, &idents[CARL]); /* now it knows */
    wait_for(other_is(other, false));
    wait_for(other_is(other, true));
    uint32_t heard = hub.heard[1];
    assert_ok(link_send(other, 0, WIRE_HELLO, "", 0, NULL, 0));
    wait_for(other_is(other, true) && hub.heard[1] > heard);
    link_free(other);
    link_free(hub.link);
}

/* A configuration gives us the key that we have our connections with by then: those stay, and there is a key before. */
static void who_knows_the_key_before_is_found_once_there_is_one(void **state)
{
    (void)state;
    struct link_conf conf = {.ident = &idents[CARL], .run_tag = RUN, .io_threads = 1};
    struct caller bert;
    struct link *other;
    open_hub();
    set(1, &idents[ANNA]);
    set(2, &idents[BERT]);
    struct link_member member = member_of(&idents[OURS], hub.address);
    assert_ok(link_new(&conf, &other));
    assert_ok(link_set(other, 0, &member));
    wait_for(other_is(other, false) && hub.strangers > 0);
    link_rekey(other, &idents[CARL], &idents[ANNA]);
    wait_for(other_is(other, true));
    assert_memory_equal(link_key(other), idents[CARL].key, IDENT_KEY_BYTES);
    call(&bert, &idents[BERT]);
    wait_for(is_up(&bert));
    link_rekey(hub.link, &idents[OURS], &idents[CARL]);
    rest();
    assert_true(is_up(&bert) && other_is(other, true));
    hang_up(&bert);
    link_free(other);
    link_free(hub.link);
}

/* It is no stranger meanwhile, and nobody is told of it; what it said on its way is not heard. */
static void who_is_shut_out_is_not_heard_until_its_time_is_over(void **state)
{
    (void)state;
    enum { HOUR_MS = 3600000 };
    struct caller anna, again, late, bert;
    open_hub();
    set(1, &idents[ANNA]);
    set(2, &idents[BERT]);
    call(&anna, &idents[ANNA]);
    call(&bert, &idents[BERT]);
    wait_for(is_up(&anna) && is_up(&bert));
    assert_ok(say(&anna, WIRE_HELLO, "", 0));
    wait_for(hub.heard[1] == 1);
    (void)!say(&anna, WIRE_HELLO, "", 0);
    link_shut(hub.link, 1, HOUR_MS);
    wait_for(was_cut(&anna));
    call(&again, &idents[ANNA]);
    wait_for(was_refused(&again));
    set(1, &idents[ANNA]); /* a new configuration changes nothing */
    link_tick(hub.link);
    rest();
    assert_int_equal(hub.heard[1], 1);
    assert_int_equal(hub.strangers, 0);
    assert_false(link_up(hub.link, 1, false));
    assert_ok(say(&bert, WIRE_HELLO, "", 0)); /* nobody else is meant */
    wait_for(hub.heard[2] == 1);
    link_shut(hub.link, 1, 0);
    link_tick(hub.link);
    call(&late, &idents[ANNA]);
    wait_for(is_up(&late));
    assert_ok(say(&late, WIRE_HELLO, "", 0));
    wait_for(hub.heard[1] == 2);
    hang_up(&anna);
    hang_up(&again);
    hang_up(&late);
    hang_up(&bert);
    link_free(hub.link);
}

/* Of one that dials again and again under ever new names, the oldest ends. */
static void a_member_has_few_connections(void **state)
{
    (void)state;
    enum { CALLS = TRAFFIC_FDS_MAX + 4 };
    struct caller callers[CALLS];
    uint32_t cut = 0;
    open_hub();
    set(1, &idents[ANNA]);
    for (uint32_t i = 0; i < CALLS; i++) {
        call(&callers[i], &idents[ANNA]);
        wait_for(is_up(&callers[i]));
        assert_ok(say(&callers[i], WIRE_HELLO, "", 0));
        wait_for(hub.heard[1] == i + 1);
    }
    wait_for(was_cut(&callers[0]) && was_cut(&callers[CALLS - TRAFFIC_FDS_MAX - 1]));
    for (uint32_t i = CALLS - TRAFFIC_FDS_MAX; i < CALLS; i++)
        cut += was_cut(&callers[i]);
    assert_int_equal(cut, 0);
    for (uint32_t i = 0; i < CALLS; i++)
        hang_up(&callers[i]);
    link_free(hub.link);
}

/* ---- strangers at the door ---- */

enum { IDLE = 300 };

/* Each holds a connection, says nothing, and dials anew as soon as it is ended. How many dialled. */
static unsigned knock(int *idle)
{
    unsigned dialled = 0;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char greeting[256];
    to.sin_port = htons((uint16_t)link_port(hub.link));
    for (int i = 0; i < IDLE; i++) {
        while (idle[i] >= 0 && recv(idle[i], greeting, sizeof greeting, MSG_DONTWAIT) > 0)
            continue;
        if (idle[i] >= 0 && recv(idle[i], greeting, 1, MSG_DONTWAIT | MSG_PEEK) == 0) {
            close(idle[i]);
            idle[i] = -1;
        }
        if (idle[i] >= 0)
            continue;
        idle[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        (void)connect(idle[i], (struct sockaddr *)&to, sizeof to);
        dialled++;
    }
    return dialled;
}

static void strangers_at_the_door_keep_no_member_out(void **state)
{
    (void)state;
    struct caller anna;
    int idle[IDLE];
    open_hub();
    set(1, &idents[ANNA]);
    for (int i = 0; i < IDLE; i++)
        idle[i] = -1;
    for (int k = 0; k < 200; k++) { /* they are there first */
        knock(idle);
        look();
        usleep(1000);
    }
    uint64_t since_ms = env_mono_ms();
    unsigned before = 0;
    call(&anna, &idents[ANNA]);
    while (!is_up(&anna) && env_mono_ms() < since_ms + PATIENCE_MS) {
        before += knock(idle);
        look();
        usleep(500);
    }
    print_message("with %d strangers at the door a member is in after %u of them, and %llu ms\n", IDLE, before,
                  (unsigned long long)(env_mono_ms() - since_ms));
    /* By its first connection, and before each of them has had another turn. How long that takes is the machine's. */
    assert_true(anna.up);
    assert_int_equal(anna.downs + anna.refused, 0);
    assert_in_range(before, 0, IDLE - 1);
    assert_ok(say(&anna, WIRE_HELLO, "", 0));
    wait_for(hub.heard[1] == 1);
    for (int k = 0; k < 200; k++) { /* and it stays */
        knock(idle);
        look();
        usleep(1000);
    }
    assert_false(was_cut(&anna));
    for (int i = 0; i < IDLE; i++)
        if (idle[i] >= 0)
            close(idle[i]);
    hang_up(&anna);
    link_free(hub.link);
}

static struct link *listener(const struct ident *ident, char *address, size_t address_bytes)
{
    struct link_member ours = member_of(&idents[OURS], "");
    struct link_conf conf = {.ident = ident,
                             .listen = "127.0.0.1:*",
                             .members = &ours,
                             .members_count = 1,
                             .self = UINT32_MAX,
                             .run_tag = RUN,
                             .io_threads = 1};
    struct link *link;
    assert_ok(link_new(&conf, &link));
    snprintf(address, address_bytes, "127.0.0.1:%u", link_port(link));
    return link;
}

static bool serve(struct link *link)
{
    struct link_event event;
    struct link_message message;
    while (link_event(link, &event))
        continue;
    while (link_recv(link, &message) == ERR_OK)
        continue;
    return link_up(hub.link, 3, false) && link_up(hub.link, 3, true);
}

/* Whoever is dialled may end its connection at any time, as while what it has said is read here, part by part. */
static void a_connection_that_ends_while_it_is_read_ends_nobody(void **state)
{
    (void)state;
    enum { TIMES = 25, MESSAGES = 300 };
    static const uint8_t text[200];
    char here[32];
    open_hub();
    struct link *first = listener(&idents[ANNA], here, sizeof here);
    struct link_member anna = member_of(&idents[ANNA], here);
    struct link_message message;
    assert_ok(link_set(hub.link, 3, &anna));
    for (int i = 0; i < TIMES; i++) {
        wait_for(serve(first));
        assert_ok(link_send(hub.link, 3, WIRE_HELLO, "", 0, NULL, 0)); /* so that it knows where to answer */
        wait_for(serve(first) && link_up(first, 0, false));
        for (int k = 0; k < MESSAGES + 2 * i; k++) /* they wait on the way, since nobody takes them in */
            while (link_send(first, 0, WIRE_HEARTBEAT, text, sizeof text, NULL, 0) != ERR_OK)
                usleep(100);
        for (int k = 0; k < MESSAGES; k++) /* likewise: so the end comes at once, and not behind what was sent */
            (void)!link_send(hub.link, 3, WIRE_HEARTBEAT, text, sizeof text, NULL, 0);
        usleep(2000);
        link_shut(first, 0, 0);
        for (int k = 0; k < 2 * MESSAGES; k++) { /* and they are taken in no faster than they come */
            (void)!link_recv(hub.link, &message);
            usleep(20);
        }
        link_tick(first);
        wait_for(!link_up(hub.link, 3, false));
    }
    link_free(first);
    link_free(hub.link);
}

static void another_address_is_dialled(void **state)
{
    (void)state;
    char here[32], there[32];
    open_hub();
    struct link *first = listener(&idents[ANNA], here, sizeof here), *second;
    struct link_member anna = member_of(&idents[ANNA], here);
    size_t without = link_poll_items(hub.link, NULL, 0);
    assert_ok(link_set(hub.link, 3, &anna));
    assert_int_equal(link_poll_items(hub.link, NULL, 0), without + 4);
    wait_for(serve(first));
    link_free(first);
    wait_for(!link_up(hub.link, 3, false) && !link_up(hub.link, 3, true));
    second = listener(&idents[ANNA], there, sizeof there);
    anna.address = there;
    assert_ok(link_set(hub.link, 3, &anna));
    wait_for(serve(second));
    assert_ok(link_send(hub.link, 3, WIRE_BYE, "", 0, NULL, 0));
    assert_ok(link_set(hub.link, 3, NULL));
    assert_false(link_up(hub.link, 3, false));
    assert_int_equal(link_send(hub.link, 3, WIRE_BYE, "", 0, NULL, 0), ERR_CLOSED);
    assert_int_equal(link_poll_items(hub.link, NULL, 0), without);
    assert_ok(link_set(hub.link, 3, NULL));
    link_free(second);
    link_free(hub.link);
}

static void who_was_refused_is_let_in_later_without_a_restart(void **state)
{
    (void)state;
    char address[32];
    open_hub();
    struct link_member ours = member_of(&idents[OURS], hub.address), anna;
    struct link *link = listener(&idents[ANNA], address, sizeof address);
    assert_ok(link_set(link, 0, &ours));
    wait_for((serve(link), hub.strangers >= 2));
    anna = member_of(&idents[ANNA], "");
    assert_ok(link_set(hub.link, 3, &anna));
    wait_for((serve(link), link_tick(link), link_up(link, 0, false) && link_up(link, 0, true)));
    wait_for((serve(link), hub.heard[3] > 0));
    link_free(link);
    link_free(hub.link);
}

/* Both connections of each, all at once. */
static void many_members_talk(void **state)
{
    (void)state;
    static struct ident crowd[LINK_SLOTS_MAX];
    static struct caller callers[2 * LINK_SLOTS_MAX];
    const char *request = getenv("MEMBERS");
    uint32_t many = request != NULL ? (uint32_t)strtoul(request, NULL, 10) : MANY;
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    open_hub();
    for (uint32_t i = 0; i < many; i++) {
        assert_ok(ident_generate(&crowd[i]));
        set(i, &crowd[i]);
    }
    for (uint32_t i = 0; i < 2 * many; i++)
        call_with(&callers[i], crowd[i / 2].curve_key, crowd[i / 2].curve_secret, i % 2 == 1);
    for (uint32_t i = 0; i < 2 * many; i++)
        wait_for(is_up(&callers[i]));
    for (uint32_t i = 0; i < 2 * many; i++)
        assert_ok(say(&callers[i], i % 2 == 1 ? WIRE_BULK_HELLO : WIRE_HELLO, "", 0));
    for (uint32_t i = 0; i < many; i++)
        wait_for(hub.heard[i] == 2);
    for (uint32_t i = 0; i < many; i++) {
        assert_true(link_up(hub.link, i, false) && link_up(hub.link, i, true));
        assert_ok(link_send(hub.link, i, WIRE_BYE, "", 0, NULL, 0));
        assert_ok(link_send(hub.link, i, WIRE_CHUNK, "", 0, NULL, 0));
    }
    link_sample(hub.link);
    link_tick(hub.link);
    for (uint32_t i = 0; i < many; i += 2) /* every other leaves */
        assert_ok(link_set(hub.link, i, NULL));
    for (uint32_t i = 0; i < 2 * many; i++)
        if (i / 2 % 2 == 0)
            wait_for(was_cut(&callers[i]));
        else
            assert_ok(say(&callers[i], i % 2 == 1 ? WIRE_BULK_HELLO : WIRE_HELLO, "", 0));
    for (uint32_t i = 0; i < many; i++)
        wait_for(hub.heard[i] == (i % 2 == 0 ? 2 : 4));
    assert_int_equal(hub.malformed, 0);
    for (uint32_t i = 0; i < 2 * many; i++)
        hang_up(&callers[i]);
    link_free(hub.link);
}

/* ---- guests ---- */

static uint8_t guest_key[IDENT_KEY_BYTES], guest_secret[IDENT_KEY_BYTES];

static void call_as_guest(struct caller *guest)
{
    call_with(guest, guest_key, guest_secret, false);
}

static bool guest_said(struct link_guest *guest)
{
    look();
    return link_guest_recv(hub.link, guest);
}

static bool answered(struct caller *caller, uint32_t type, size_t bytes)
{
    zmq_msg_t part;
    struct wire_header header = {.type = 0};
    zmq_msg_init(&part);
    bool whole = zmq_msg_recv(&part, caller->socket, ZMQ_DONTWAIT) >= 0;
    if (whole) {
        assert_ok(wire_header_get(zmq_msg_data(&part), zmq_msg_size(&part), &header));
        assert_true(header.type == type && header.run_tag == RUN);
        assert_true(zmq_msg_recv(&part, caller->socket, ZMQ_DONTWAIT) >= 0);
        assert_int_equal(zmq_msg_size(&part), bytes);
    }
    zmq_msg_close(&part);
    return whole;
}

static void a_guest_says_who_it_is_and_gets_an_answer(void **state)
{
    (void)state;
    static uint8_t answer[ANSWER_BYTES], longest[WIRE_JOIN_BYTES_MAX];
    struct caller guest, other;
    struct link_guest said;
    open_hub();
    call_as_guest(&guest);
    wait_for(hub.strangers > 0);
    assert_ok(link_admit(hub.link, guest_key, env_mono_ms() + PATIENCE_MS));
    hang_up(&guest);
    call_as_guest(&guest);
    wait_for(is_up(&guest));
    assert_ok(say(&guest, WIRE_JOIN, "it is me", 8));
    wait_for(guest_said(&said));
    assert_memory_equal(said.key, guest_key, sizeof guest_key);
    assert_int_equal(said.bytes, 8);
    assert_memory_equal(said.payload, "it is me", 8);
    assert_ok(link_guest_send(hub.link, said.connection, WIRE_JOINED, answer, sizeof answer));
    wait_for(answered(&guest, WIRE_JOINED, sizeof answer));
    /* The answer may have been lost: it asks again, and once more from another connection. */
    memset(longest, 'x', sizeof longest);
    assert_ok(say(&guest, WIRE_JOIN, longest, sizeof longest));
    wait_for(guest_said(&said));
    assert_int_equal(said.bytes, sizeof longest);
    uint64_t before = said.connection;
    call_as_guest(&other);
    wait_for(is_up(&other));
    assert_ok(say(&other, WIRE_JOIN, "", 0));
    wait_for(guest_said(&said));
    wait_for(was_cut(&guest)); /* one at a time */
    assert_int_equal(link_guest_send(hub.link, before, WIRE_REFUSAL, "", 0), ERR_CLOSED);
    assert_ok(link_guest_send(hub.link, said.connection, WIRE_REFUSAL, "", 0));
    wait_for(answered(&other, WIRE_REFUSAL, 0));
    link_unadmit(hub.link, guest_key);
    wait_for(was_cut(&other));
    assert_int_equal(link_guest_send(hub.link, said.connection, WIRE_REFUSAL, "", 0), ERR_CLOSED);
    for (uint32_t i = 0; i < LINK_SLOTS_MAX; i++)
        assert_int_equal(hub.heard[i], 0);
    hang_up(&guest);
    hang_up(&other);
    link_free(hub.link);
}

/* Each time costs signature checks and an answer: of what it says in between the last stands. */
static void a_guest_is_heard_now_and_then(void **state)
{
    (void)state;
    enum { TIMES = 200, AT_ONCE = 4 };
    struct caller guest;
    struct link_guest heard;
    uint32_t count = 0;
    open_hub();
    assert_ok(link_admit(hub.link, guest_key, UINT64_MAX));
    call_as_guest(&guest);
    wait_for(is_up(&guest));
    uint64_t since_ms = env_mono_ms();
    for (uint32_t i = 0; i < TIMES; i++) {
        while (say(&guest, WIRE_JOIN, &i, sizeof i) != ERR_OK)
            look();
        usleep(500);
        count += guest_said(&heard);
    }
    uint64_t most = AT_ONCE + 1 + (env_mono_ms() - since_ms) / 500;
    assert_in_range(count, 1, most);
    wait_for(guest_said(&heard) && memcmp(heard.payload, &(uint32_t){TIMES - 1}, sizeof(uint32_t)) == 0);
    hang_up(&guest);
    link_free(hub.link);
}

static void whatever_else_a_guest_says_ends_it(void **state)
{
    (void)state;
    static uint8_t bytes[WIRE_JOIN_BYTES_MAX + 1];
    static const struct {
        uint64_t run;
        uint32_t type;
        size_t bytes;
    } rows[] = {{RUN, WIRE_HELLO, 0},      {RUN, WIRE_HEARTBEAT, 0},      {RUN, WIRE_CHUNK, 100},
                {RUN, WIRE_BULK_HELLO, 0}, {RUN, WIRE_JOINED, 10},        {RUN, 0, 0},
                {RUN + 1, WIRE_JOIN, 10},  {RUN, WIRE_JOIN, sizeof bytes}};
    open_hub();
    set(0, &idents[ANNA]);
    assert_ok(link_admit(hub.link, guest_key, env_mono_ms() + 10 * PATIENCE_MS));
    for (size_t i = 0; i <= sizeof rows / sizeof rows[0]; i++) {
        struct caller guest;
        struct link_guest said;
        call_as_guest(&guest);
        wait_for(is_up(&guest));
        if (i < sizeof rows / sizeof rows[0])
            assert_ok(say_as(&guest, rows[i].run, rows[i].type, bytes, rows[i].bytes));
        else
            assert_true(zmq_send(guest.socket, "nonsense", 8, 0) == 8);
        wait_for(hub.malformed == i + 1);
        wait_for(was_cut(&guest));
        assert_false(link_guest_recv(hub.link, &said));
        hang_up(&guest);
    }
    for (uint32_t i = 0; i < LINK_SLOTS_MAX; i++)
        assert_int_equal(hub.heard[i], 0);
    link_free(hub.link);
}

static void a_guest_whose_time_is_over_is_a_stranger(void **state)
{
    (void)state;
    struct caller guest, late;
    struct link_guest said;
    open_hub();
    assert_ok(link_admit(hub.link, guest_key, env_mono_ms() + 1000));
    call_as_guest(&guest);
    wait_for(is_up(&guest));
    assert_ok(say(&guest, WIRE_JOIN, "", 0));
    wait_for(guest_said(&said));
    uint32_t before = hub.strangers;
    usleep(1100000);
    assert_ok(say(&guest, WIRE_JOIN, "", 0));
    wait_for(was_cut(&guest));
    call_as_guest(&late);
    wait_for(hub.strangers > before && was_refused(&late));
    assert_false(guest_said(&said));
    assert_int_equal(late.ups, 0);
    assert_ok(link_admit(hub.link, guest_key, 0)); /* past its time before it knocks */
    before = hub.strangers;
    hang_up(&late);
    call_as_guest(&late);
    wait_for(hub.strangers > before && was_refused(&late));
    assert_int_equal(late.ups, 0);
    hang_up(&guest);
    hang_up(&late);
    link_free(hub.link);
}

static void a_member_is_no_guest(void **state)
{
    (void)state;
    struct caller anna;
    struct link_guest said;
    open_hub();
    set(4, &idents[ANNA]);
    assert_ok(link_admit(hub.link, idents[ANNA].curve_key, env_mono_ms() + PATIENCE_MS));
    call(&anna, &idents[ANNA]);
    wait_for(is_up(&anna));
    assert_ok(say(&anna, WIRE_JOIN, "", 0)); /* has no place on a member's connection */
    wait_for(hub.malformed == 1);
    assert_false(link_guest_recv(hub.link, &said));
    assert_ok(say(&anna, WIRE_HELLO, "", 0));
    wait_for(hub.heard[4] == 1);
    hang_up(&anna);
    link_free(hub.link);
}

int main(void)
{
    assert_ok(digest_init());
    for (int i = 0; i < IDENTS; i++)
        assert_ok(ident_generate(&idents[i]));
    struct ident guest;
    assert_ok(ident_generate(&guest));
    memcpy(guest_key, guest.curve_key, sizeof guest_key);
    memcpy(guest_secret, guest.curve_secret, sizeof guest_secret);
    context = zmq_ctx_new();
    zmq_ctx_set(context, ZMQ_MAX_SOCKETS, 16384);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_come_and_go_while_others_talk),
        cmocka_unit_test(another_key_is_admitted_in_place_of_the_old_one),
        cmocka_unit_test(the_next_key_is_admitted_beside_the_present_one),
        cmocka_unit_test(who_has_the_present_key_goes_on_while_the_next_one_changes),
        cmocka_unit_test(with_another_key_of_our_own_we_are_found_by_that),
        cmocka_unit_test(with_another_key_of_our_own_we_listen_where_we_were_told_to),
        cmocka_unit_test(who_is_dialled_by_the_next_key_is_dialled_anew_when_that_changes),
        cmocka_unit_test(who_knows_the_key_before_is_dialled_with_that),
        cmocka_unit_test(who_knows_the_key_before_is_found_once_there_is_one),
        cmocka_unit_test(who_is_shut_out_is_not_heard_until_its_time_is_over),
        cmocka_unit_test(a_member_has_few_connections),
        cmocka_unit_test(strangers_at_the_door_keep_no_member_out),
        cmocka_unit_test(a_connection_that_ends_while_it_is_read_ends_nobody),
        cmocka_unit_test(another_address_is_dialled),
        cmocka_unit_test(who_was_refused_is_let_in_later_without_a_restart),
        cmocka_unit_test(many_members_talk),
        cmocka_unit_test(a_guest_says_who_it_is_and_gets_an_answer),
        cmocka_unit_test(a_guest_is_heard_now_and_then),
        cmocka_unit_test(whatever_else_a_guest_says_ends_it),
        cmocka_unit_test(a_guest_whose_time_is_over_is_a_stranger),
        cmocka_unit_test(a_member_is_no_guest),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    zmq_ctx_term(context);
    return failed;
}
