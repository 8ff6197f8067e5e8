/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A member of the run with a good key that floods real daemons, with each kind of message in turn: nobody honest is put
 * out, rounds go on, memory does not grow, its link is closed, and status names it.
 *
 * By hand, FLOOD_S=20 BUILD=build/gcc build/gcc/tests/system/test_flood shows a table: of each kind and rate, versions
 * a second as parts of those without a flood, what it costs besides, and what is said of it. FLOOD_KIND=NAME does one
 * kind, FLOOD_RATE=3000 one rate, FLOOD_ISLANDS=5 that many islands instead of four.
 */
#include "tests/lib/testlib.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <zmq.h>

#include "common/digest.h"
#include "common/env.h"
#include "common/mem.h"
#include "daemon/membership/config_store.h"
#include "net/transport/socket.h"
#include "net/transport/wire_join.h"
#include "tests/lib/rogue.h"
#include "tests/lib/toll.h"

enum { FRAGMENTS = 3, ISLANDS = 4, JUNK_VOTES = 65, FULL_RATE = 1000000, AT_ONCE = 500 };
#ifdef __SANITIZE_ADDRESS__ /* what is freed is kept for a while */
static const long memory_more_kib = 512 << 10;
#else
static const long memory_more_kib = 48 << 10;
#endif
static const char spec[] = "[run]\nname = flood\nsteps = 900000\n[model]\nlayers = 2\n"
                           "[sync]\ninterval = 10\nlayers_per_fragment = 1\noverlap = 2\nlate = merge\n";
static const struct cluster_options options = {.run = spec, .data = "sleep=20"};

/* ---- what it says ---- */

static uint64_t said;
static void *raw_context, *raw[CLUSTER_MAX], *raw_monitor[CLUSTER_MAX];

static void say_raw_type(struct rogue *rogue, uint32_t to)
{
    rogue_say_raw(rogue, to, 200, "whatever", 8);
}

static void say_garbage(struct rogue *rogue, uint32_t to)
{
    static const uint8_t bytes[100] = {0xff, 0xff, 0xff};
    rogue_say_raw(rogue, to, WIRE_HEARTBEAT, bytes, sizeof bytes);
}

/* Three bytes that are no message, on a connection of its own. */
static void say_three_bytes(struct rogue *rogue, uint32_t to)
{
    uint8_t server[IDENT_KEY_BYTES];
    char route[SOCKET_ROUTE_BYTES];
    if (raw[to] == NULL) {
        struct socket_dial dial = {.address = rogue->view.members[to].as.address,
                                   .server = server,
                                   .key = rogue->ident.curve_key,
                                   .secret = rogue->ident.curve_secret,
                                   .route = route,
                                   .route_bytes = socket_route(rogue->ident.key, false, env_random_u64(), route),
                                   .part_bytes_max = 1 << 20};
        assert_ok(ident_curve(rogue->view.members[to].as.key, server));
        assert_ok(socket_dial(raw_context, &dial, &raw[to], &raw_monitor[to]));
    }
    (void)zmq_send(raw[to], "abc", 3, ZMQ_DONTWAIT);
}

static void say_hello(struct rogue *rogue, uint32_t to)
{
    static struct wire_message message;
    const struct view_member *self = &rogue->view.members[rogue->self];
    message = (struct wire_message){.type = WIRE_HELLO};
    message.hello = (struct wire_hello){.run_id = rogue->spec.digest,
                                        .session = 1000 + said,
                                        .island = self->as.id,
                                        .word = {.number = self->as.word + 1, .uplink = self->as.uplink},
                                        .software = "nonsense",
                                        .window_kib = 1024};
    snprintf(message.hello.name, sizeof message.hello.name, "%s", self->as.name);
    snprintf(message.hello.word.address, sizeof message.hello.word.address, "%s", self->as.address);
    member_word_sign(&rogue->ident, rogue->view.nonce, rogue->self, &message.hello.word);
    rogue_say(rogue, to, &message);
}

static void say_heartbeat(struct rogue *rogue, uint32_t to)
{
    static struct wire_message message;
    message = (struct wire_message){.type = WIRE_HEARTBEAT};
    message.heartbeat.session = rogue->session;
    message.heartbeat.sequence = 1000000 + said;
    message.heartbeat.epoch = rogue->heard_epoch[to];
    message.heartbeat.incarnation = rogue->view.members[rogue->self].as.incarnation;
    for (uint32_t f = 0; f < FRAGMENTS; f++)
        message.heartbeat.fragments[message.heartbeat.fragments_count++] =
            (struct wire_fragment){.fragment = f, .at.abstained = UINT64_MAX};
    rogue_say(rogue, to, &message);
}

static struct wire_key some_result(uint64_t version)
{
    return (struct wire_key){
        .kind = WIRE_RESULT, .fragment = version % FRAGMENTS, .version = version, .epoch = 1, .owner = 0, .island = 0};
}

static void say_ack(struct rogue *rogue, uint32_t to)
{
    static struct wire_message message;
    message = (struct wire_message){.type = WIRE_ACK, .ack = {.key = some_result(1 + said % 50), .have = 1}};
    rogue_say(rogue, to, &message);
}

static void say_refused(struct rogue *rogue, uint32_t to)
{
    static struct wire_message message;
    message =
        (struct wire_message){.type = WIRE_DONE, .done = {.key = some_result(1 + said % 50), .status = WIRE_REFUSED}};
    rogue_say(rogue, to, &message);
}

static void say_fetch(struct rogue *rogue, uint32_t to)
{
    static struct wire_message message;
    message = (struct wire_message){.type = WIRE_FETCH, .fetch = {.key = some_result(1 + said % 50)}};
    if (said % 10 == 0)
        message.fetch.key = (struct wire_key){.kind = WIRE_STATE,
                                              .fragment = said / 10 % FRAGMENTS,
                                              .version = rogue->heard[to][0].at.version,
                                              .island = rogue->view.members[to].as.id};
    rogue_say(rogue, to, &message);
}

static void say_stale(struct rogue *rogue, uint32_t to)
{
    struct paxos_message message = {.type = WIRE_PREPARE, .epoch = 1};
    message.ballot = (1 + said % 1000) << 32 | rogue->view.members[rogue->self].as.id;
    rogue_say_paxos(rogue, to, &message);
}

static void say_reject(struct rogue *rogue, uint32_t to)
{
    struct paxos_message message = {.type = WIRE_REJECT, .epoch = rogue->heard_epoch[to] + 1};
    message.ballot = (uint64_t)(1 + said % 4000) << 52 | rogue->view.members[rogue->self].as.id;
    rogue_say_paxos(rogue, to, &message);
}

static void say_question(struct rogue *rogue, uint32_t to)
{
    struct paxos_message message = {.type = WIRE_CONFIG_LOG};
    rogue_say_paxos(rogue, to, &message);
}

static void say_order(struct rogue *rogue, uint32_t to)
{
    struct order order = {.kind = ORDER_STEPS, .value = 1000 + said, .number = said + 1};
    order.epoch = rogue->heard_epoch[to];
    order.signer = rogue->view.members[rogue->self].as.id;
    order_sign(&rogue->ident, rogue->view.nonce, &order);
    struct paxos_message message = {.type = WIRE_ORDER, .order = &order};
    rogue_say_paxos(rogue, to, &message);
}

/* Newcomers of its own making, each of which others are to dial. */
static void say_dial(struct rogue *rogue, uint32_t to)
{
    uint8_t bytes[WIRE_JOIN_BYTES_MAX];
    struct wire_join join = {.name = "m", .word = {.number = 1 + said, .uplink = 1, .address = "127.0.0.1:1"}};
    wire_dial_request_sign(&rogue->ident, rogue->view.nonce, &join);
    rogue_say_raw(rogue, to, WIRE_DIAL_REQUEST, bytes, wire_join_pack(&join, bytes));
}

/* The configuration after that epoch's, as it might be; packed, the caller's. */
static void pack_next(struct rogue *rogue, uint64_t epoch, uint8_t **bytes, size_t *count)
{
    struct config_entry last;
    struct config config;
    assert_ok(config_store_read(rogue->cluster->island[0].state, epoch, &last));
    assert_ok(config_unpack(last.bytes, last.bytes_count, &config));
    config.epoch = epoch + 1;
    config.previous = config_digest(last.bytes, last.bytes_count);
    config.orders_count = config.words_count = 0;
    assert_ok(config_pack(&config, bytes, count));
    config_deinit(&config);
    config_entry_free(&last);
}

/* Decided by votes that are none. */
static void say_decided(struct rogue *rogue, uint32_t to)
{
    static struct config_vote votes[JUNK_VOTES];
    static uint8_t *bytes;
    static size_t count;
    static uint64_t epoch;
    if (bytes == NULL || epoch != rogue->heard_epoch[0]) {
        epoch = rogue->heard_epoch[0];
        mem_free(bytes);
        pack_next(rogue, epoch, &bytes, &count);
        for (uint32_t i = 0; i < JUNK_VOTES; i++) {
            votes[i] = (struct config_vote){.id = i % rogue->view.count, .ballot = 1 + i / rogue->view.count};
            ident_sign(&rogue->ident, "junk", 4, votes[i].signature);
        }
    }
    struct paxos_message message = {
        .type = WIRE_DECIDED, .bytes = bytes, .bytes_count = count, .votes = votes, .votes_count = JUNK_VOTES};
    rogue_say_paxos(rogue, to, &message);
}

/* Of objects that nobody wants. */
static void say_chunk(struct rogue *rogue, uint32_t to)
{
    static const uint8_t data[1000];
    uint8_t head[WIRE_CHUNK_HEADER_BYTES];
    struct wire_chunk chunk = {.key = some_result(1000000 + said), .total = 1000000};
    wire_chunk_put(&chunk, head);
    (void)!link_send(rogue->link, to, WIRE_CHUNK, head, sizeof head, data, sizeof data);
}

static const struct kind {
    const char *name;
    void (*say)(struct rogue *rogue, uint32_t to);
    const char *told; /* by status, of its flood at full rate */
} kinds[] = {
    {"unknown-types", say_raw_type, "messages that nobody can use"},
    {"garbage", say_garbage, "messages that nobody can use"},
    {"three-bytes", say_three_bytes, "messages that nobody can use"},
    {"sessions", say_hello, "greetings"},
    {"heartbeats", say_heartbeat, "heartbeats"},
    {"acks", say_ack, "answers that nobody asked for"},
    {"refusals", say_refused, "answers that nobody asked for"},
    {"fetches", say_fetch, "questions for objects"},
    {"stale-epochs", say_stale, "messages about the next epoch"},
    {"rejects", say_reject, "messages about the next epoch"},
    {"questions", say_question, "questions for configurations"},
    {"orders", say_order, "orders and evidence"},
    {"decided", say_decided, "signatures that are none"},
    {"chunks", say_chunk, "bytes of objects that nobody wants"},
    {"dials", say_dial, "questions about newcomers' addresses"},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

/* ---- what becomes of it ---- */

static long long versions(struct cluster *cluster)
{
    return cluster_status_number(cluster, 1, "versions");
}

/* Floods all for so long, at so many a second to each; how many versions the others made meanwhile, a second. `toll`:
 * looks after what it costs; NULL: nobody does. */
static double flood(struct rogue *rogue, const struct kind *kind, uint32_t rate, double seconds, uint64_t *sent,
                    struct toll *toll)
{
    long long before = versions(rogue->cluster);
    double since_s = env_mono_s();
    *sent = 0;
    for (double passed_s; (passed_s = env_mono_s() - since_s) < seconds;) {
        for (int k = 0; kind != NULL && k < AT_ONCE && (double)*sent < passed_s * rate; k++, said++, ++*sent)
            for (uint32_t i = 0; i < rogue->self; i++)
                kind->say(rogue, i);
        rogue_pass(rogue, 1);
        if (toll != NULL)
            toll_look(toll);
    }
    return (double)(versions(rogue->cluster) - before) / (env_mono_s() - since_s);
}

static struct rogue *begin(const char *name, uint32_t islands)
{
    struct cluster *cluster = cluster_new(name, islands, &options);
    cluster_configure_after(cluster, islands - 1, "[net]\n", "uplink = 1kbit\n");
    for (uint32_t i = 0; i + 1 < islands; i++)
        cluster_start(cluster, i);
    (void)setpriority(PRIO_PROCESS, 0, 10); /* it has a machine of its own */
    struct rogue *rogue = rogue_open(cluster, islands - 1, FRAGMENTS);
    raw_context = zmq_ctx_new();
    return rogue;
}

static void end(struct rogue *rogue)
{
    for (uint32_t i = 0; i < rogue->self; i++)
        socket_close(&raw[i], &raw_monitor[i]);
    zmq_ctx_term(raw_context);
    rogue_end(rogue);
}

/* What status of an island says of the rogue; "": nothing. */
static void told(struct rogue *rogue, uint32_t by, char *text, size_t text_bytes)
{
    json_t *status = cluster_ask(rogue->cluster, by, "status"), *item;
    size_t k;
    text[0] = '\0';
    json_array_foreach (json_object_get(status, "degraded"), k, item) {
        const char *code = json_string_value(json_object_get(item, "code"));
        if (code != NULL && strcmp(code, "fault") == 0)
            snprintf(text, text_bytes, "%s", json_string_value(json_object_get(item, "what")));
    }
    json_decref(status);
}

/* Nobody honest was put out, by anybody. */
static void assert_nobody_is_lost(const struct rogue *rogue)
{
    char text[80];
    for (uint32_t i = 0; i < rogue->self; i++)
        for (uint32_t k = 0; k < rogue->self; k++) {
            snprintf(text, sizeof text, "island %s is lost", rogue->cluster->island[k].name);
            assert_false(cluster_log_has(rogue->cluster, i, text, 0));
        }
}

static void flooded_by(const struct kind *kind)
{
    char name[32], text[300];
    uint64_t sent;
    long before[CLUSTER_MAX];
    snprintf(name, sizeof name, "flood-%s", kind->name);
    struct rogue *rogue = begin(name, ISLANDS);
    for (uint32_t i = 0; i < rogue->self; i++)
        before[i] = rogue_memory_kib(rogue->cluster, i);
    long long made = versions(rogue->cluster);
    for (int k = 0; k < 30; k++) { /* whatever the speed of this machine */
        (void)flood(rogue, kind, FULL_RATE, 1, &sent, NULL);
        told(rogue, 0, text, sizeof text);
        if (strstr(text, "its link is closed") != NULL && k >= 2)
            break;
    }
    print_message("%s: %s\n", kind->name, text);
    assert_non_null(strstr(text, "island d: it sends more "));
    assert_non_null(strstr(text, kind->told));
    for (int k = 0; k < 300 && versions(rogue->cluster) < made + 10; k++)
        rogue_pass(rogue, 100);
    assert_true(versions(rogue->cluster) >= made + 10);
    assert_nobody_is_lost(rogue);
    for (uint32_t i = 0; i < rogue->self; i++)
        assert_in_range(rogue_memory_kib(rogue->cluster, i), 0, before[i] + memory_more_kib);
    end(rogue);
}

static void messages_that_nobody_can_use(void **state)
{
    (void)state;
    flooded_by(&kinds[0]);
    flooded_by(&kinds[2]);
}

static void what_costs_a_look_at_signatures_or_disk(void **state)
{
    (void)state;
    flooded_by(&kinds[7]);
    flooded_by(&kinds[12]);
    flooded_by(&kinds[14]);
}

static void what_everybody_says_and_far_more_of_it(void **state)
{
    (void)state;
    flooded_by(&kinds[4]);
    flooded_by(&kinds[13]);
}

/* ---- by hand ---- */

static void show(const struct kind *kind, uint32_t rate, uint32_t islands, double seconds)
{
    static struct toll toll;
    char name[40], text[300];
    uint64_t sent;
    snprintf(name, sizeof name, "flood-%s-%u", kind->name, rate);
    struct rogue *rogue = begin(name, islands);
    double quiet = flood(rogue, NULL, 0, seconds / 4, &sent, NULL);
    toll_begin(&toll, rogue->cluster);
    double flooded = flood(rogue, kind, rate, seconds, &sent, &toll);
    told(rogue, 0, text, sizeof text);
    print_message("| %s | %u | %.0f | %.1f | %.1f | %.0f %% | %lld | %u | %ld | %ld | %.1f s, by %d | %s |\n",
                  kind->name, islands, (double)sent / seconds, quiet, flooded, 100 * flooded / quiet,
                  toll_epochs(&toll), toll_put_out(&toll), toll_memory_kib(&toll), toll_lines(&toll), toll.named_s,
                  __builtin_popcount(toll.named_by), text);
    fflush(stdout);
    assert_nobody_is_lost(rogue);
    end(rogue);
}

static void table(void **state)
{
    (void)state;
    static const uint32_t rates[] = {500, 3000, FULL_RATE};
    const char *only = getenv("FLOOD_KIND"), *rate = getenv("FLOOD_RATE"), *size = getenv("FLOOD_ISLANDS");
    double seconds = strtod(getenv("FLOOD_S"), NULL);
    uint32_t islands = size != NULL ? (uint32_t)strtoul(size, NULL, 10) : ISLANDS;
    assert_in_range(islands, 3, CLUSTER_MAX);
    print_message(
        "| kind | islands | sent a second to each | versions a second before | with it | | epochs | honest put "
        "out | memory KiB more | log lines more | named after | status in the end |\n");
    for (size_t k = 0; k < KINDS; k++) {
        if (only != NULL && strcmp(only, kinds[k].name) != 0)
            continue;
        if (rate != NULL)
            show(&kinds[k], (uint32_t)strtoul(rate, NULL, 10), islands, seconds);
        for (size_t r = 0; rate == NULL && r < sizeof rates / sizeof rates[0]; r++)
            show(&kinds[k], rates[r], islands, seconds);
    }
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_that_nobody_can_use),
        cmocka_unit_test(what_costs_a_look_at_signatures_or_disk),
        cmocka_unit_test(what_everybody_says_and_far_more_of_it),
    };
    const struct CMUnitTest by_hand[] = {cmocka_unit_test(table)};
    return getenv("FLOOD_S") != NULL ? cmocka_run_group_tests(by_hand, NULL, NULL)
                                     : cmocka_run_group_tests(tests, NULL, NULL);
}
