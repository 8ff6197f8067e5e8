/* SPDX-License-Identifier: Apache-2.0 */
/* ident and link over real sockets on loopback: admission by key, the ladder of refusals, counters at the socket. */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <stdlib.h>
#include <signal.h>
#include <string.h>
#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/digest.h"
#include "net/transport/ident.h"
#include "net/transport/link.h"
#include "net/transport/socket.h"
#include "net/membership/wire_paxos.h"

static struct ident idents[4];
static char addresses[4][32];
static const char *const names[] = {"a", "b", "c", "d"};
static const char *chosen = ""; /* congestion control */

static struct link *open_link(uint32_t self, uint32_t members, uint64_t run, const struct ident *as)
{
    static struct link_member list[4];
    for (uint32_t i = 0; i < members; i++) {
        list[i].name = names[i];
        list[i].address = i != self ? addresses[i] : NULL;
        memcpy(list[i].key, idents[i].key, sizeof list[i].key);
    }
    struct link_conf conf = {.ident = as != NULL ? as : &idents[self],
                             .listen = "127.0.0.1:*",
                             .members = list,
                             .members_count = members,
                             .self = self,
                             .run_tag = run,
                             .congestion = chosen,
                             .io_threads = 1};
    struct link *link;
    assert_ok(link_new(&conf, &link));
    return link;
}

static void know(uint32_t i, const struct link *link)
{
    snprintf(addresses[i], sizeof addresses[i], "127.0.0.1:%u", link_port(link));
}

/* Waits for an event of this type on `link`, serving `other` meanwhile; messages are dropped. */
static bool wait_event(struct link *link, struct link *other, enum link_event_type type, struct link_event *event)
{
    for (int i = 0; i < 3000; i++) {
        struct link_event drop;
        struct link_message message;
        while (type >= LINK_MISMATCH && link_recv(link, &message) == ERR_OK) {
        }
        while (link_event(link, event))
            if (event->type == type)
                return true;
        while (other != NULL && link_event(other, &drop)) {
        }
        usleep(1000);
    }
    return false;
}

static bool wait_message(struct link *link, struct link *other, struct link_message *message)
{
    for (int i = 0; i < 3000; i++) {
        struct link_event drop;
        if (link_recv(link, message) == ERR_OK)
            return true;
        while (link_event(link, &drop) || (other != NULL && link_event(other, &drop))) {
        }
        usleep(1000);
    }
    return false;
}

static void keys_are_saved_privately(void **state)
{
    (void)state;
    const char *folder = testlib_folder("ident");
    const char *path = testlib_path(folder, "key");
    struct ident back;
    assert_ok(ident_save(&idents[0], path));
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    assert_ok(ident_load(path, &back));
    assert_memory_equal(&back, &idents[0], sizeof back);
    assert_fails(ERR_STATE, "exists already", ident_save(&idents[1], path));
    assert_int_equal(chmod(path, 0640), 0);
    assert_fails(ERR_CONF, "chmod 600", ident_load(path, &back));
    assert_fails(ERR_NOTFOUND, "dilococtl keygen", ident_load("no/such", &back));
    const char *bad = testlib_file(folder, "bad", "secret = tooshort\n");
    assert_int_equal(chmod(bad, 0600), 0);
    assert_fails(ERR_CONF, "holds no key", ident_load(bad, &back));
    assert_int_equal(truncate(bad, 1 << 20), 0); /* some other file */
    assert_fails(ERR_CONF, "holds no key", ident_load(bad, &back));
    uint8_t key[IDENT_KEY_BYTES] = {0},
            curve_key[IDENT_KEY_BYTES]; /* a point of small order: anyone could sign for it */
    assert_fails(ERR_CONF, "not a public key", ident_curve(key, curve_key));
}

static void a_signature_is_of_one_key_and_one_message(void **state)
{
    (void)state;
    uint8_t signature[IDENT_SIGNATURE_BYTES];
    char message[] = "result of fragment 3";
    ident_sign(&idents[0], message, sizeof message, signature);
    assert_true(ident_signed(idents[0].key, message, sizeof message, signature));
    assert_false(ident_signed(idents[1].key, message, sizeof message, signature));
    assert_false(ident_signed(idents[0].key, message, sizeof message - 1, signature));
    for (size_t i = 0; i < sizeof signature; i++) {
        signature[i] ^= 1;
        assert_false(ident_signed(idents[0].key, message, sizeof message, signature));
        signature[i] ^= 1;
    }
    message[3] ^= 1;
    assert_false(ident_signed(idents[0].key, message, sizeof message, signature));
}

/* RFC 8032, 7.1, test 2. */
static void keys_and_signatures_are_those_of_the_rfc(void **state)
{
    (void)state;
    const char *folder = testlib_folder("rfc8032");
    const char *path = testlib_file(folder, "key", "secret = %s\n", "TM0Imyj_ltqdtsNG7BFOD1uKMZ81q6Yk2oz27U-4pvs");
    static const uint8_t want[IDENT_SIGNATURE_BYTES] = {
        0x92, 0xa0, 0x09, 0xa9, 0xf0, 0xd4, 0xca, 0xb8, 0x72, 0x0e, 0x82, 0x0b, 0x5f, 0x64, 0x25, 0x40,
        0xa2, 0xb2, 0x7b, 0x54, 0x16, 0x50, 0x3f, 0x8f, 0xb3, 0x76, 0x22, 0x23, 0xeb, 0xdb, 0x69, 0xda,
        0x08, 0x5a, 0xc1, 0xe4, 0x3e, 0x15, 0x99, 0x6e, 0x45, 0x8f, 0x36, 0x13, 0xd0, 0xf1, 0x1d, 0x8c,
        0x38, 0x7b, 0x2e, 0xae, 0xb4, 0x30, 0x2a, 0xee, 0xb0, 0x0d, 0x29, 0x16, 0x12, 0xbb, 0x0c, 0x00};
    struct ident ident;
    uint8_t signature[IDENT_SIGNATURE_BYTES];
    assert_int_equal(chmod(path, 0600), 0);
    assert_ok(ident_load(path, &ident));
    assert_string_equal(ident.public_text, "PUAXw-hDiVqStwqnTRt-vJyYLM8uxJaMwM1V8Sr0Zgw");
    ident_sign(&ident, "\x72", 1, signature);
    assert_memory_equal(signature, want, sizeof want);
}

static void messages_travel_both_ways_on_both_connections(void **state)
{
    (void)state;
    struct link *a = open_link(0, 2, 1, NULL);
    addresses[1][0] = '\0';
    know(0, a);
    struct link *b = open_link(1, 2, 1, NULL); /* only b knows where the other is */
    struct link_event event;
    struct link_message message;
    assert_int_equal(link_send(a, 1, WIRE_HELLO, "x", 1, NULL, 0), ERR_CLOSED);
    assert_true(wait_event(b, a, LINK_CONNECTED, &event));
    bool first_is_bulk = event.bulk;
    assert_true(wait_event(b, a, LINK_CONNECTED, &event));
    assert_true(event.bulk != first_is_bulk); /* one of each */
    assert_ok(link_send(b, 0, WIRE_HELLO, "hel", 3, "lo", 2));
    bool hello = false, bulk = false;
    while (!(hello && bulk) && wait_message(a, b, &message)) {
        assert_int_equal(message.peer, 1);
        if (message.header.type == WIRE_HELLO) {
            assert_int_equal(message.bytes, 5);
            assert_memory_equal(message.payload, "hello", 5);
            hello = true;
        }
        bulk |= message.header.type == WIRE_BULK_HELLO;
    }
    assert_true(hello && bulk);
    assert_true(link_up(a, 1, false) && link_up(a, 1, true));
    static uint8_t chunk[WIRE_CHUNK_HEADER_BYTES + WIRE_CHUNK_BYTES_MAX]; /* the largest that PROTOCOL.md allows */
    assert_ok(
        link_send(a, 1, WIRE_CHUNK, chunk, WIRE_CHUNK_HEADER_BYTES, chunk, sizeof chunk - WIRE_CHUNK_HEADER_BYTES));
    assert_true(wait_message(b, a, &message));
    assert_int_equal(message.header.type, WIRE_CHUNK);
    assert_int_equal(message.bytes, sizeof chunk);
    for (int i = 0; i < 100; i++) {
        link_sample(a);
        link_sample(b);
        if (link_counters(b, 0).received >= sizeof chunk && link_counters(a, 1).sent >= sizeof chunk)
            break;
        usleep(10000);
    }
    assert_in_range(link_counters(a, 1).sent, sizeof chunk, sizeof chunk + 6000);
    assert_in_range(link_counters(b, 0).received, sizeof chunk, sizeof chunk + 6000);
    assert_in_range(link_counters(b, 0).sent, 100, 6000);
    link_free(a);
    link_free(b);
}

/* Configurations and promises of a run of many members are larger than anything else (docs/PROTOCOL.md, "Messages"). */
static void the_largest_message_of_epochs_passes_either_way(void **state)
{
    (void)state;
    static uint8_t large[WIRE_PAXOS_BYTES_MAX];
    struct link_event event;
    struct link_message message;
    struct link *a = open_link(0, 2, 1, NULL);
    addresses[1][0] = '\0';
    know(0, a);
    struct link *b = open_link(1, 2, 1, NULL);
    do
        assert_true(wait_event(b, a, LINK_CONNECTED, &event));
    while (event.bulk);
    assert_ok(link_send(b, 0, (enum wire_type)WIRE_DECIDED, large, sizeof large, NULL, 0));
    do
        assert_true(wait_message(a, b, &message));
    while (message.header.type == WIRE_BULK_HELLO);
    assert_int_equal((int)message.header.type, WIRE_DECIDED);
    assert_int_equal(message.bytes, sizeof large);
    assert_ok(link_send(a, 1, (enum wire_type)WIRE_PROMISE, large, sizeof large, NULL, 0));
    assert_true(wait_message(b, a, &message));
    assert_int_equal((int)message.header.type, WIRE_PROMISE);
    assert_int_equal(message.bytes, sizeof large);
    link_free(a);
    link_free(b);
}

static void what_is_said_is_a_packed_control_message(void **state)
{
    (void)state;
    static struct wire_message bye = {.type = WIRE_BYE, .bye.reason = "tired"}, chunk = {.type = WIRE_CHUNK}, back;
    struct link *a = open_link(0, 2, 1, NULL);
    addresses[1][0] = '\0';
    know(0, a);
    struct link *b = open_link(1, 2, 1, NULL);
    struct link_event event;
    struct link_message message;
    assert_int_equal(link_say(a, 1, &bye), ERR_CLOSED);
    do
        assert_true(wait_event(b, a, LINK_CONNECTED, &event));
    while (event.bulk);
    assert_fails(ERR_ARG, "has no control payload", link_say(b, 0, &chunk));
    assert_ok(link_say(b, 0, &bye));
    do
        assert_true(wait_message(a, b, &message));
    while (message.header.type == WIRE_BULK_HELLO);
    assert_int_equal(message.header.type, WIRE_BYE);
    assert_ok(wire_unpack(message.header.type, message.payload, message.bytes, &back));
    assert_string_equal(back.bye.reason, "tired");
    link_free(a);
    link_free(b);
}

static void strangers_are_refused_before_any_payload(void **state)
{
    (void)state;
    struct link *a = open_link(0, 2, 1, NULL);
    addresses[1][0] = '\0';
    know(0, a);
    struct link *mallory = open_link(1, 2, 1, &idents[3]); /* says it is b, with another key */
    struct link_event event;
    assert_true(wait_event(a, mallory, LINK_STRANGER, &event));
    char key[IDENT_TEXT_BYTES];
    ident_text(idents[3].curve_key, key);
    assert_non_null(strstr(event.text, key));
    assert_non_null(strstr(event.text, "127.0.0.1"));
    assert_true(wait_event(mallory, a, LINK_NOT_ADMITTED, &event));
    struct link_message message;
    assert_int_equal(link_send(mallory, 0, WIRE_HELLO, "x", 1, NULL, 0), ERR_CLOSED);
    assert_int_equal(link_recv(a, &message), ERR_AGAIN);
    /* The listener goes on: the real b gets through. */
    struct link *b = open_link(1, 2, 1, NULL);
    assert_true(wait_event(b, a, LINK_CONNECTED, &event));
    link_free(mallory);
    link_free(a);
    link_free(b);
}

/* A listener that is no island: it takes what comes and ends it at once, as the kernel does for a process that dies. */
static int open_plain(uint32_t i)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&at, bytes), 0);
    assert_int_equal(listen(fd, 5), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &bytes), 0);
    snprintf(addresses[i], sizeof addresses[i], "127.0.0.1:%u", ntohs(at.sin_port));
    return fd;
}

/* Both connections are dialled, and each may be ended twice without a word about keys. */
static void a_handshake_that_ends_is_an_accident_until_it_happens_again_and_again(void **state)
{
    (void)state;
    int fd = open_plain(1), ended = 0, told_after = -1;
    addresses[0][0] = '\0';
    struct link *a = open_link(0, 2, 1, NULL);
    for (int i = 0; i < 15000 && told_after < 0; i++) {
        struct link_event event;
        int connection = accept(fd, NULL, NULL);
        if (connection >= 0) {
            ended++;
            close(connection);
        }
        while (link_event(a, &event))
            if (event.type == LINK_NOT_ADMITTED)
                told_after = ended;
        link_tick(a);
        usleep(1000);
    }
    assert_true(told_after >= 3 && told_after <= 6);
    close(fd);
    link_free(a);
}

/* Somebody else may listen at the address that a member states. */
static void where_handshakes_end_the_pauses_grow(void **state)
{
    (void)state;
    enum { FOR_MS = 8000, BEFORE_MS = 4000, LEAST = 2, MOST = 8 }; /* of both connections, a pause of 2 s each */
    int dials[2] = {0}, first[2] = {0}, fds[2];
    addresses[0][0] = '\0';
    struct link *a = open_link(0, 1, 0, NULL);
    for (uint32_t i = 0; i < 2; i++) { /* by one key, and by two */
        fds[i] = open_plain(i + 1);
        struct link_member member = {.name = "b", .address = addresses[i + 1]};
        memcpy(member.key, idents[i + 1].key, sizeof member.key);
        if (i == 1)
            memcpy(member.next, idents[3].key, sizeof member.next);
        assert_ok(link_set(a, i + 1, &member));
    }
    uint64_t begin_ms = env_mono_ms();
    for (uint64_t now_ms = begin_ms; now_ms < begin_ms + FOR_MS; now_ms = env_mono_ms()) {
        struct link_event event;
        for (int i = 0; i < 2; i++) {
            int connection = accept(fds[i], NULL, NULL);
            if (connection < 0)
                continue;
            close(connection);
            dials[i] += now_ms >= begin_ms + BEFORE_MS;
            first[i] += now_ms < begin_ms + BEFORE_MS;
        }
        while (link_event(a, &event))
            continue;
        link_tick(a);
        usleep(1000);
    }
    for (int i = 0; i < 2; i++) {
        assert_in_range(first[i], 2 * LEAST, 2 * MOST);
        assert_in_range(dials[i], LEAST, MOST);
        close(fds[i]);
    }
    assert_true(first[1] > first[0]); /* each key has its turn before the pause grows */
    link_free(a);
}

/* Its process hangs, or something in between has forgotten the connection. */
static void who_says_nothing_on_an_open_connection_is_dialled_anew(void **state)
{
    (void)state;
    struct link *a = open_link(0, 2, 1, NULL);
    struct link_event event;
    struct link_message message;
    int ups = 0;
    know(0, a);
    addresses[1][0] = '\0';
    struct link_conf conf = {
        .ident = &idents[1], .listen = NULL, .self = 1, .run_tag = 1, .io_threads = 1, .mute_ms = 300};
    struct link_member peer = {.name = "a", .address = addresses[0]};
    struct link *b;
    memcpy(peer.key, idents[0].key, sizeof peer.key);
    conf.members = &peer;
    conf.members_count = 1;
    assert_ok(link_new(&conf, &b));
    for (int i = 0; i < 10000 && ups < 4; i++) {
        while (link_recv(a, &message) == ERR_OK || link_event(a, &event)) {
        }
        while (link_event(b, &event))
            ups += event.type == LINK_CONNECTED;
        link_tick(b);
        usleep(1000);
    }
    assert_int_equal(ups, 4); /* both connections, twice */
    uint64_t until_ms = env_mono_ms() + 1200;
    while (env_mono_ms() < until_ms) {                       /* who says something is left alone */
        (void)!link_send(b, 0, WIRE_HELLO, "x", 1, NULL, 0); /* so that the way back is known */
        (void)!link_send(a, 1, WIRE_HELLO, "x", 1, NULL, 0);
        while (link_recv(a, &message) == ERR_OK || link_recv(b, &message) == ERR_OK || link_event(a, &event)) {
        }
        while (link_event(b, &event))
            ups += event.type == LINK_CONNECTED;
        link_tick(b);
        usleep(10000);
    }
    assert_int_equal(ups, 4);
    link_free(a);
    link_free(b);
}

static void who_is_dialled_in_vain_is_told(void **state)
{
    (void)state;
    struct link_event event;
    addresses[0][0] = '\0';
    snprintf(addresses[1], sizeof addresses[1], "127.0.0.1:1"); /* nobody is there */
    struct link *a = open_link(0, 2, 1, NULL);
    assert_true(link_undialled(a, 1));
    assert_false(link_undialled(a, 700));
    know(0, a);
    addresses[1][0] = '\0';
    struct link *b = open_link(1, 2, 1, NULL);
    assert_true(wait_event(b, a, LINK_CONNECTED, &event));
    assert_false(link_undialled(b, 0));
    assert_true(link_undialled(a, 1)); /* that it dials us is another matter */
    link_free(a);
    link_free(b);
}

static void another_run_version_or_type_is_told(void **state)
{
    (void)state;
    struct link *a = open_link(0, 2, 1, NULL);
    addresses[1][0] = '\0';
    know(0, a);
    struct link *other = open_link(1, 2, 9, NULL);
    struct link_event event;
    assert_true(wait_event(other, a, LINK_CONNECTED, &event));
    assert_true(wait_event(a, other, LINK_MISMATCH, &event));
    assert_int_equal(event.peer, 1);
    assert_non_null(strstr(event.text, "another run spec"));
    link_free(other);
    struct link *b = open_link(1, 2, 1, NULL);
    assert_true(wait_event(b, a, LINK_CONNECTED, &event));
    assert_true(wait_event(b, a, LINK_CONNECTED, &event));
    assert_ok(link_send(b, 0, (enum wire_type)77, "x", 1, NULL, 0));
    assert_true(wait_event(a, b, LINK_MALFORMED, &event));
    link_free(a);
    link_free(b);
}

/* A listener files connections by routing id, and a second one of the same name takes the place of the first
 * (ZMQ_ROUTER_HANDOVER): were two members named alike, each would cut the other off at every reconnect. */
static void no_two_members_share_a_name_at_a_listener(void **state)
{
    (void)state;
    char first[SOCKET_ROUTE_BYTES], second[SOCKET_ROUTE_BYTES];
    for (uint32_t member = 1; member < 4; member++) {
        size_t a = socket_route(idents[0].key, false, 42, first),
               b = socket_route(idents[member].key, false, 42, second);
        assert_true(a != b || memcmp(first, second, a) != 0);
        assert_in_range(b, 1, SOCKET_ROUTE_BYTES - 1);
    }
    socket_route(idents[1].key, false, 42, first);
    socket_route(idents[1].key, true, 42, second);
    assert_string_not_equal(first, second);
}

static void a_used_port_and_a_bad_address_are_named(void **state)
{
    (void)state;
    struct link *a = open_link(0, 1, 1, NULL), *b;
    char listen[32];
    snprintf(listen, sizeof listen, "127.0.0.1:%u", link_port(a));
    struct link_member self = {.name = "a"};
    struct link_conf conf = {
        .ident = &idents[0], .listen = listen, .members = &self, .members_count = 1, .io_threads = 1};
    assert_fails(ERR_CONF, "the port is in use", link_new(&conf, &b));
    conf.listen = "nonsense";
    assert_fails(ERR_CONF, "expected host:port", link_new(&conf, &b));
    link_free(a);
}

static uint64_t resident_bytes(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%*u %lu", &pages), 1);
    fclose(file);
    return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

enum { PART = 60000, PARTS = 6000, MOST = 96 << 20 }; /* of 360 MB */

/* In a process of its own: what it gathers before it sends is not ours. Begun while we have one thread; the address to
 * dial comes through a pipe. */
static void send_without_end(int from)
{
    char endpoint[64];
    static uint8_t part[PART];
    char route[SOCKET_ROUTE_BYTES], server[IDENT_KEY_BYTES];
    void *context = zmq_ctx_new(), *dealer = zmq_socket(context, ZMQ_DEALER);
    memcpy(server, idents[0].curve_key, sizeof server);
    zmq_setsockopt(dealer, ZMQ_CURVE_SERVERKEY, server, IDENT_KEY_BYTES);
    zmq_setsockopt(dealer, ZMQ_CURVE_PUBLICKEY, idents[1].curve_key, IDENT_KEY_BYTES);
    zmq_setsockopt(dealer, ZMQ_CURVE_SECRETKEY, idents[1].curve_secret, IDENT_KEY_BYTES);
    zmq_setsockopt(dealer, ZMQ_ROUTING_ID, route, socket_route(idents[1].key, true, 7, route));
    if (read(from, endpoint, sizeof endpoint) != sizeof endpoint || zmq_connect(dealer, endpoint) != 0)
        _exit(1);
    for (int i = 0; i < PARTS; i++)
        (void)zmq_send(dealer, part, sizeof part, i + 1 < PARTS ? ZMQ_SNDMORE : 0);
    for (;;)
        pause();
}

/* A member whose message has part after part: it is cut off before it fills our memory. */
static void a_message_without_end_is_cut_off(void **state)
{
    (void)state;
    char endpoint[64] = "";
    int fds[2];
    struct link_event event;
    struct link_message message;
    bool told = false;
    assert_int_equal(pipe(fds), 0);
    int sender = fork();
    if (sender == 0)
        send_without_end(fds[0]);
    addresses[1][0] = '\0';
    struct link *a = open_link(0, 2, 1, NULL);
    snprintf(endpoint, sizeof endpoint, "tcp://127.0.0.1:%u", link_port(a));
    assert_int_equal(write(fds[1], endpoint, sizeof endpoint), sizeof endpoint);
    uint64_t before = resident_bytes(), most = 0;
    for (int i = 0; i < 4000 && !told; i++) {
        usleep(5000);
        link_tick(a);
        while (link_event(a, &event))
            told |= event.type == LINK_MALFORMED && strstr(event.text, "without end") != NULL;
        (void)!link_recv(a, &message);
        uint64_t now = resident_bytes();
        most = now > most ? now : most;
    }
    kill(sender, SIGKILL);
    assert_int_equal(waitpid(sender, NULL, 0), sender);
    close(fds[0]);
    close(fds[1]);
    link_free(a);
    assert_true(told);
    assert_true(most < before + MOST);
}

enum { CHUNK = 64 << 10, WARM = 4000, FULL_MS = 300, QUIET_MS = 2000 };

/* Sends until the connection takes no more for a while; returns how many. */
static uint32_t fill(struct link *from, uint32_t to)
{
    static const uint8_t chunk[CHUNK];
    uint32_t sent = 0;
    for (uint64_t last_ms = env_mono_ms(); env_mono_ms() < last_ms + FULL_MS;) {
        if (link_send(from, to, WIRE_CHUNK, NULL, 0, chunk, sizeof chunk) != ERR_OK) {
            usleep(1000);
            continue;
        }
        sent++;
        last_ms = env_mono_ms();
    }
    return sent;
}

static uint32_t drain(struct link *link, uint32_t most, uint64_t quiet_ms)
{
    struct link_message message;
    uint32_t count = 0;
    for (uint64_t last_ms = env_mono_ms(); count < most && env_mono_ms() < last_ms + quiet_ms;) {
        if (link_recv(link, &message) != ERR_OK) {
            usleep(1000);
            continue;
        }
        count += message.header.type == WIRE_CHUNK;
        last_ms = env_mono_ms();
    }
    return count;
}

/* Of the connections of this process to or from that port: how many have that congestion control. */
static int connections_with(const char *congestion, unsigned port)
{
    enum { DESCRIPTORS = 256 };
    int count = 0;
    for (int fd = 0; fd < DESCRIPTORS; fd++) {
        struct sockaddr_in6 ours = {0}, theirs = {0}; /* of IPv4 the port stands in the same place */
        socklen_t bytes = sizeof ours, their_bytes = sizeof theirs, name_bytes = 16;
        char name[16] = "";
        if (getsockname(fd, (struct sockaddr *)&ours, &bytes) != 0 ||
            getpeername(fd, (struct sockaddr *)&theirs, &their_bytes) != 0 ||
            (ntohs(ours.sin6_port) != port && ntohs(theirs.sin6_port) != port) ||
            getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &name_bytes) != 0)
            continue;
        count += strncmp(name, congestion, sizeof name) == 0;
    }
    return count;
}

/* reno is in every kernel, and for everybody. */
static void bulk_has_the_congestion_control_that_was_chosen(void **state)
{
    (void)state;
    struct link_event event;
    struct link_conf conf = {.ident = &idents[0], .listen = "127.0.0.1:*", .congestion = "no-such", .io_threads = 1};
    struct link *a, *b;
    assert_fails(ERR_CONF, "the kernel has no such congestion control", link_new(&conf, &a));
    conf.congestion = "a name that is longer than any of the kernel's";
    assert_fails(ERR_CONF, "[net] congestion", link_new(&conf, &a));
    chosen = "reno";
    addresses[1][0] = '\0';
    a = open_link(0, 2, 1, NULL);
    know(0, a);
    b = open_link(1, 2, 1, NULL);
    chosen = "";
    assert_true(wait_event(b, a, LINK_CONNECTED, &event));
    assert_true(wait_event(b, a, LINK_CONNECTED, &event));
    /* Both ends of the bulk connection; of all, where it is the system's own. */
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), with = 0;
    char usual[16] = "";
    socklen_t bytes = sizeof usual;
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, usual, &bytes), 0);
    close(fd);
    int wanted = strncmp(usual, "reno", sizeof usual) == 0 ? 4 : 2;
    for (int i = 0; i < 1000 && (with = connections_with("reno", link_port(a))) < wanted; i++) {
        struct link_message message;
        (void)!link_recv(a, &message);
        usleep(1000);
    }
    assert_int_equal(with, wanted);
    link_free(b);
    link_free(a);
}

/* The buffers of a long, fast line: of every connection here as large as may be. False: that is not large. */
static bool widen_buffers(void)
{
    enum { WIDE = 32 << 20, DESCRIPTORS = 256 };
    int room = 0;
    for (int fd = 0; fd < DESCRIPTORS; fd++) {
        int now = 0, wide = WIDE;
        socklen_t bytes = sizeof now;
        if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &wide, sizeof wide) != 0)
            (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &wide, sizeof wide);
        if (getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &now, &bytes) == 0 && now > room)
            room = now;
    }
    return room >= WIDE;
}

/* The kernel holds many megabytes for a fast connection. Where nobody read for a while, they are whole messages all the
 * same: who sent them is not cut off. */
static void what_waits_unread_is_not_without_end(void **state)
{
    (void)state;
    static const uint8_t chunk[CHUNK];
    struct link_event event;
    addresses[1][0] = '\0';
    struct link *a = open_link(0, 2, 1, NULL);
    know(0, a);
    struct link *b = open_link(1, 2, 1, NULL);
    assert_true(wait_event(b, a, LINK_CONNECTED, &event));
    assert_true(wait_event(b, a, LINK_CONNECTED, &event));
    uint32_t sent = 0, got = 0;
    while (sent < WARM) { /* its buffers grow as they are read */
        struct link_message message;
        sent += link_send(b, 0, WIRE_CHUNK, NULL, 0, chunk, sizeof chunk) == ERR_OK;
        while (link_recv(a, &message) == ERR_OK)
            got += message.header.type == WIRE_CHUNK;
    }
    got += drain(a, sent - got, QUIET_MS);
    assert_int_equal(got, sent);
    if (!widen_buffers())
        print_message("skip: the kernel lets no receive buffer here be large, so little waits unread\n");
    for (int times = 0; times < 3; times++) {
        link_tick(a);
        sent = fill(b, 0);
        print_message("%u MiB wait\n", sent * CHUNK >> 20);
        link_tick(a);
        link_tick(a);
        while (link_event(a, &event))
            assert_int_not_equal(event.type, LINK_MALFORMED);
        assert_int_equal(drain(a, sent, QUIET_MS), sent);
    }
    link_free(b);
    link_free(a);
}

int main(void)
{
    assert_ok(digest_init());
    for (int i = 0; i < 4; i++)
        assert_ok(ident_generate(&idents[i]));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_saved_privately),
        cmocka_unit_test(keys_and_signatures_are_those_of_the_rfc),
        cmocka_unit_test(a_signature_is_of_one_key_and_one_message),
        cmocka_unit_test(messages_travel_both_ways_on_both_connections),
        cmocka_unit_test(the_largest_message_of_epochs_passes_either_way),
        cmocka_unit_test(what_is_said_is_a_packed_control_message),
        cmocka_unit_test(strangers_are_refused_before_any_payload),
        cmocka_unit_test(a_handshake_that_ends_is_an_accident_until_it_happens_again_and_again),
        cmocka_unit_test(where_handshakes_end_the_pauses_grow),
        cmocka_unit_test(who_says_nothing_on_an_open_connection_is_dialled_anew),
        cmocka_unit_test(who_is_dialled_in_vain_is_told),
        cmocka_unit_test(another_run_version_or_type_is_told),
        cmocka_unit_test(no_two_members_share_a_name_at_a_listener),
        cmocka_unit_test(a_used_port_and_a_bad_address_are_named),
        cmocka_unit_test(a_message_without_end_is_cut_off),
        cmocka_unit_test(bulk_has_the_congestion_control_that_was_chosen),
        cmocka_unit_test(what_waits_unread_is_not_without_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
