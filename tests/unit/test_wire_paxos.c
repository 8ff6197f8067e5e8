/* SPDX-License-Identifier: Apache-2.0 */
/* wire_paxos: every message of the epoch protocol there and back, every limit, floods and damaged bytes, memory. */
#include "tests/lib/testlib.h"

#include <string.h>

#include "common/digest.h"
#include "common/mem.h"
#include "net/config/config_proof.h"
#include "net/membership/wire_paxos.h"
#include "tests/lib/outofmem.h"

static uint8_t *packed; /* of the last message, until the next */
static size_t packed_bytes;

static void pack(const struct paxos_message *message)
{
    mem_free(packed);
    packed = NULL;
    assert_ok(wire_paxos_pack(message, &packed, &packed_bytes));
}

/* wire_paxos_deinit() what comes back. */
static struct paxos_message there_and_back(const struct paxos_message *message)
{
    struct paxos_message back;
    memset(&back, 0xee, sizeof back);
    pack(message);
    assert_ok(wire_paxos_unpack(message->type, packed, packed_bytes, &back));
    assert_true(back.type == message->type && back.epoch == message->epoch && back.ballot == message->ballot);
    return back;
}

static const uint8_t config_bytes[] = "a configuration is its packed bytes here";
static const struct part_result held[] = {
    {.id.owner = 0, .id.epoch = 3, .shards = 0xff, .id.digest = {{4}}},
    {.id.owner = 0, .id.epoch = 4, .shards = 0xff00, .id.digest = {{5}}},
    {.id.owner = 9, .id.epoch = 4, .shards = ~0ull, .id.digest = {{6}}},
};
static const struct holding rows[] = {
    {.fragment = 0,
     .version = 7,
     .hash = {{9}},
     .hash_known = true,
     .held = held,
     .held_count = 2,
     .reach = 9,
     .beyond = held + 1,
     .beyond_count = 2},
    {.fragment = 1, .version = 0},
    {.fragment = 4095, .version = 1ull << 62, .held = held + 2, .held_count = 1},
};

static struct paxos_message a_prepare(void)
{
    return (struct paxos_message){.type = WIRE_PREPARE,
                                  .epoch = 5,
                                  .ballot = 1ull << 63,
                                  .bytes = config_bytes,
                                  .bytes_count = sizeof config_bytes,
                                  .recover = true};
}

static struct paxos_message a_promise(void)
{
    return (struct paxos_message){.type = WIRE_PROMISE,
                                  .epoch = 5,
                                  .ballot = 12,
                                  .accepted = 11,
                                  .bytes = config_bytes,
                                  .bytes_count = sizeof config_bytes,
                                  .incarnation = ~0ull,
                                  .step = CONFIG_NUMBER_MAX - 1,
                                  .sealed = true,
                                  .rows = rows,
                                  .rows_count = 3};
}

static void proposals_come_back(void **state)
{
    (void)state;
    struct paxos_message m = a_prepare(), b = there_and_back(&m);
    assert_int_equal(b.bytes_count, sizeof config_bytes);
    assert_memory_equal(b.bytes, config_bytes, sizeof config_bytes);
    assert_true(b.recover);
    wire_paxos_deinit(&b);
    m.bytes_count = 0;
    m.recover = false;
    b = there_and_back(&m);
    assert_true(b.bytes_count == 0 && !b.recover);
    wire_paxos_deinit(&b);
    wire_paxos_deinit(&b);

    m = (struct paxos_message){.type = WIRE_ACCEPT, .epoch = 1, .ballot = 1};
    m.bytes = config_bytes;
    m.bytes_count = sizeof config_bytes;
    b = there_and_back(&m);
    assert_int_equal(b.bytes_count, sizeof config_bytes);
    assert_memory_equal(b.bytes, config_bytes, sizeof config_bytes);
    wire_paxos_deinit(&b);
    wire_paxos_deinit(&m); /* of what it does not own it frees nothing */
}

/* They come back as results of that fragment and version. */
static void assert_results(const struct part_result *from, const struct part_result *to, uint32_t count,
                           uint32_t fragment, uint64_t version)
{
    for (uint32_t k = 0; k < count; k++) {
        struct part_result want = from[k];
        want.id.fragment = fragment;
        want.id.version = version;
        assert_memory_equal(&want, &to[k], sizeof want);
    }
}

static void answers_come_back(void **state)
{
    (void)state;
    struct paxos_message m = a_promise(), b = there_and_back(&m);
    assert_true(b.accepted == 11 && b.incarnation == ~0ull && b.step == CONFIG_NUMBER_MAX - 1);
    assert_int_equal(b.bytes_count, sizeof config_bytes);
    assert_memory_equal(b.bytes, config_bytes, sizeof config_bytes);
    assert_int_equal(b.rows_count, 3);
    for (int i = 0; i < 3; i++) {
        const struct holding *from = &rows[i], *to = &b.rows[i];
        assert_true(from->fragment == to->fragment && from->version == to->version);
        assert_true(from->hash_known == to->hash_known && digest_equal(&from->hash, &to->hash));
        assert_int_equal(from->held_count, to->held_count);
        assert_results(from->held, to->held, from->held_count, from->fragment, from->version + 1);
        assert_true(from->reach == to->reach && from->beyond_count == to->beyond_count);
        assert_results(from->beyond, to->beyond, from->beyond_count, from->fragment, from->reach + 1);
    }
    wire_paxos_deinit(&b);
    m.accepted = m.bytes_count = m.rows_count = 0;
    b = there_and_back(&m);
    assert_true(b.bytes_count == 0 && b.rows_count == 0);
    wire_paxos_deinit(&b);

    m = (struct paxos_message){.type = WIRE_REJECT, .epoch = 1ull << 62, .ballot = ~0ull};
    b = there_and_back(&m);
    wire_paxos_deinit(&b);
    m = (struct paxos_message){.type = WIRE_ACCEPTED, .epoch = 5, .ballot = 6, .digest = digest_of("d", 1)};
    memset(m.signature, 0x5a, sizeof m.signature);
    b = there_and_back(&m);
    assert_true(digest_equal(&b.digest, &m.digest));
    assert_memory_equal(b.signature, m.signature, sizeof m.signature);
    wire_paxos_deinit(&b);
}

static void decisions_questions_and_evidence_come_back(void **state)
{
    (void)state;
    struct config_vote votes[CONFIG_VOTERS_MAX];
    memset(votes, 0, sizeof votes);
    for (uint32_t i = 0; i < CONFIG_VOTERS_MAX; i++) {
        votes[i].id = UINT32_MAX - i;
        votes[i].ballot = ~0ull - i;
        memset(votes[i].signature, (int)i, IDENT_SIGNATURE_BYTES);
    }
    struct paxos_message m = {.type = WIRE_DECIDED}, b;
    m.bytes = config_bytes;
    m.bytes_count = sizeof config_bytes;
    b = there_and_back(&m);
    assert_int_equal(b.votes_count, 0);
    wire_paxos_deinit(&b);
    m.votes = votes;
    m.votes_count = CONFIG_VOTERS_MAX;
    b = there_and_back(&m);
    assert_int_equal(b.votes_count, CONFIG_VOTERS_MAX);
    for (uint32_t i = 0; i < CONFIG_VOTERS_MAX; i++) {
        assert_true(b.votes[i].id == votes[i].id && b.votes[i].ballot == votes[i].ballot);
        assert_memory_equal(b.votes[i].signature, votes[i].signature, IDENT_SIGNATURE_BYTES);
    }
    assert_memory_equal(b.bytes, config_bytes, sizeof config_bytes);
    wire_paxos_deinit(&b);
    m = (struct paxos_message){.type = WIRE_CONFIG_LOG, .epoch = 0};
    b = there_and_back(&m);
    m.epoch = 1ull << 62;
    b = there_and_back(&m);
    m = (struct paxos_message){
        .type = WIRE_EVIDENCE, .id = UINT32_MAX - 1, .bytes = config_bytes, .bytes_count = sizeof config_bytes};
    b = there_and_back(&m);
    assert_int_equal(b.id, UINT32_MAX - 1);
    assert_memory_equal(b.bytes, config_bytes, sizeof config_bytes);
    wire_paxos_deinit(&b);
}

static struct order an_order(uint32_t kind)
{
    struct order order = {.kind = kind, .signer = 7, .number = 3, .epoch = 1ull << 62};
    if (order_about_member(kind))
        order.subject = UINT32_MAX - 1;
    if (kind == ORDER_STEPS)
        order.value = 4321;
    if (kind == ORDER_REKEY)
        memset(order.key, 0xa5, sizeof order.key);
    if (kind == ORDER_ADMIT) {
        struct ident ident;
        assert_ok(ident_generate(&ident));
        order.value = 1;
        order.join.witness = true;
        order.join.word = (struct member_word){.number = 1, .uplink = 20000000, .owner_choice = 4};
        strcpy(order.join.name, "oslo");
        strcpy(order.join.word.address, "oslo.example.org:7600");
        wire_join_sign(&ident, (const uint8_t[WIRE_NONCE_BYTES]){7}, &order.join);
    }
    memset(order.signature, 0x5a, sizeof order.signature);
    for (uint32_t i = 0; i < kind % 3 * 30; i++) {
        const struct order_approval approval = {.id = 1000 - i, .signature = {(uint8_t)i}};
        assert_true(order_add_approval(&order, &approval));
        assert_false(order_add_approval(&order, &approval));
    }
    return order;
}

static void orders_come_back(void **state)
{
    (void)state;
    for (uint32_t kind = ORDER_ADMIT; kind < ORDER_KINDS; kind++) {
        struct order order = an_order(kind);
        struct paxos_message m = {.type = WIRE_ORDER, .order = &order}, b = there_and_back(&m);
        assert_memory_equal(b.order, &order, sizeof order);
        wire_paxos_deinit(&b);
    }
}

/* ---- limits ---- */

static void assert_refused(const char *text, const struct paxos_message *message)
{
    struct paxos_message back;
    pack(message);
    assert_fails(ERR_PROTO, text, wire_paxos_unpack(message->type, packed, packed_bytes, &back));
    for (int i = 0; i < 3; i++)
        assert_null(back.memory[i]);
}

#define REFUSED(make, text, change)    \
    do {                               \
        struct paxos_message m = make; \
        change;                        \
        assert_refused(text, &m);      \
    } while (0)

static void ballots_are_checked(void **state)
{
    (void)state;
    REFUSED(a_prepare(), "ballot 0", m.ballot = 0);
    REFUSED(a_prepare(), "about epoch 0", m.epoch = 0);
    REFUSED(a_prepare(), "about epoch 9223372036854775808", m.epoch = CONFIG_NUMBER_MAX);
    REFUSED(a_promise(), "ballot 0", m.ballot = 0);
    REFUSED(((struct paxos_message){.type = WIRE_REJECT, .epoch = 1}), "ballot 0", (void)m);
    REFUSED(((struct paxos_message){.type = WIRE_ACCEPT, .epoch = 1}), "ballot 0", (void)m);
    REFUSED(((struct paxos_message){.type = WIRE_ACCEPTED, .epoch = 1}), "ballot 0", (void)m);
    REFUSED(((struct paxos_message){.type = WIRE_ACCEPT, .epoch = 1, .ballot = 1}), "nothing to accept", (void)m);
}

static void promises_are_checked(void **state)
{
    (void)state;
    struct holding r[3];
    struct part_result h[3];
#define ROWS(text, change)                      \
    do {                                        \
        memcpy(r, rows, sizeof r);              \
        memcpy(h, held, sizeof h);              \
        r[0].held = h;                          \
        r[2].held = h + 2;                      \
        change;                                 \
        REFUSED(a_promise(), text, m.rows = r); \
    } while (0)
    REFUSED(a_promise(), "accepted in 0", m.accepted = 0);
    REFUSED(a_promise(), "accepted in 13", m.accepted = 13);
    REFUSED(a_promise(), "configuration of 0 bytes", m.bytes_count = 0);
    ROWS("not in order", r[1].fragment = 0);
    ROWS("fragment 4096", r[2].fragment = 4096);
    ROWS("version 9223372036854775808", r[2].version = CONFIG_NUMBER_MAX);
    ROWS("reaches version 7 from 7", r[0].reach = 7);
    ROWS("reaches version 0 from 7", r[0].reach = 0);
    ROWS("reaches version 9223372036854775808", r[0].reach = CONFIG_NUMBER_MAX);
    ROWS("not in order of owner", (h[1].id.owner = 3, h[0].id.owner = 4, r[0].held_count = 0, r[0].beyond = h));
    ROWS("held of epoch 5", h[2].id.epoch = 5);
    ROWS("with shards 0", h[2].shards = 0);
    ROWS("not in order of owner", h[1].id.epoch = 3);
    ROWS("not in order of owner", (h[0].id.owner = 1, h[1].id.owner = 0));
}

static void decisions_and_evidence_are_checked(void **state)
{
    (void)state;
    static const struct config_vote vote = {.id = 1};
    struct paxos_message decided = {.type = WIRE_DECIDED,
                                    .bytes = config_bytes,
                                    .bytes_count = sizeof config_bytes,
                                    .votes = &vote,
                                    .votes_count = 1};
    REFUSED(decided, "ballot 0", (void)m);
    REFUSED(decided, "configuration of 0 bytes", m.bytes_count = 0);
    REFUSED(((struct paxos_message){.type = WIRE_CONFIG_LOG}), "after epoch 9223372036854775808",
            m.epoch = CONFIG_NUMBER_MAX);
    struct paxos_message evidence = {.type = WIRE_EVIDENCE, .bytes = config_bytes, .bytes_count = sizeof config_bytes};
    REFUSED(evidence, "evidence of 0 bytes", m.bytes_count = 0);
    struct paxos_message back;
    assert_fails(ERR_PROTO, "type 8 is none", wire_paxos_unpack(8, config_bytes, 1, &back));
    assert_fails(ERR_PROTO, "type 18 is none", wire_paxos_unpack(18, config_bytes, 1, &back));
    assert_false(wire_is_epoch(8) || wire_is_epoch(18) || !wire_is_epoch(9) || !wire_is_epoch(17));
    /* Lengths that only bytes can have wrong. */
    static const uint8_t accepted[] = {1 << 3, 1, 2 << 3, 1, 3 << 3 | 2, 1, 0};
    assert_fails(ERR_PROTO, "digest of 1 bytes", wire_paxos_unpack(WIRE_ACCEPTED, accepted, sizeof accepted, &back));
    static const uint8_t hash[] = {1 << 3, 1, 2 << 3, 1, 6 << 3 | 2, 3, 3 << 3 | 2, 1, 0};
    assert_fails(ERR_PROTO, "hash of 1 bytes", wire_paxos_unpack(WIRE_PROMISE, hash, sizeof hash, &back));
}

/* A word that states a key, which is there. */
static void wire_next(struct member_word *word)
{
    struct ident ident;
    assert_ok(ident_generate(&ident));
    member_word_state_next(&ident, ident.key, (const uint8_t[WIRE_NONCE_BYTES]){7}, 1, word);
}

static void orders_are_checked(void **state)
{
    (void)state;
#define ORDERS(kind_, text, change)                                                \
    do {                                                                           \
        struct order o = an_order(kind_);                                          \
        change;                                                                    \
        REFUSED(((struct paxos_message){.type = WIRE_ORDER}), text, m.order = &o); \
    } while (0)
    ORDERS(ORDER_EVICT, "unknown kind 0", (o.kind = 0, o.subject = 0));
    ORDERS(ORDER_EVICT, "unknown kind 14", (o.kind = ORDER_KINDS, o.subject = 0));
    ORDERS(ORDER_EVICT, "of number 0", o.number = 0);
    ORDERS(ORDER_EVICT, "of number 9223372036854775808", o.number = ORDER_NUMBER_MAX);
    ORDERS(ORDER_EVICT, "epoch 9223372036854775808", o.epoch = ORDER_NUMBER_MAX);
    ORDERS(ORDER_EVICT, "kind 2 with value 1", o.value = 1);
    ORDERS(ORDER_STEPS, "kind 9 with value 0", o.value = 0);
    ORDERS(ORDER_STEPS, "kind 9 about member 1", o.subject = 1);
    ORDERS(ORDER_ADMIT, "kind 1 with value 2", o.value = 2);
    ORDERS(ORDER_ADMIT, "about to leave", o.join.word.draining = true);
    ORDERS(ORDER_ADMIT, "or to change its key", wire_next(&o.join.word));
    ORDERS(ORDER_REKEY, "kind 13 without a key", memset(o.key, 0, sizeof o.key));
    ORDERS(ORDER_REKEY, "kind 13 with value 1", o.value = 1);
    ORDERS(ORDER_EVICT, "not in order", (o.approvals_count = 2, o.approvals[0].id = o.approvals[1].id = 5));
#undef ORDERS
}

/* The longest promise without a configuration: everything there is of everything. */
static struct paxos_message longest(struct holding *row, struct part_result *one)
{
    for (uint32_t i = 0; i < WIRE_RESULTS_MAX; i++)
        one[i] =
            (struct part_result){.id.owner = UINT32_MAX - 1 + i % 2, .id.epoch = CONFIG_NUMBER_MAX - 2, .shards = 1};
    for (uint32_t i = 0; i < CONFIG_FRAGMENTS_MAX; i++)
        row[i] = (struct holding){.fragment = i,
                                  .version = CONFIG_NUMBER_MAX - 1,
                                  .hash_known = true,
                                  .held = one + (size_t)2 * i,
                                  .held_count = 2};
    return (struct paxos_message){.type = WIRE_PROMISE,
                                  .epoch = CONFIG_NUMBER_MAX - 1,
                                  .ballot = UINT64_MAX,
                                  .incarnation = 1,
                                  .rows = row,
                                  .rows_count = CONFIG_FRAGMENTS_MAX};
}

static void the_most_that_is_allowed_passes(void **state)
{
    (void)state;
    static struct holding row[CONFIG_FRAGMENTS_MAX + 1];
    static struct part_result one[WIRE_RESULTS_MAX + 1];
    static uint8_t config[WIRE_PAXOS_BYTES_MAX];
    uint8_t *bytes;
    size_t count;
    struct paxos_message m = longest(row, one), b = there_and_back(&m);
    print_message("the longest promise without a configuration has %zu bytes\n", packed_bytes);
    wire_paxos_deinit(&b);
    m.rows_count++;
    assert_int_equal(wire_paxos_pack(&m, &bytes, &count), ERR_ARG);
    m.rows_count--;
    row[0].held_count++;
    assert_int_equal(wire_paxos_pack(&m, &bytes, &count), ERR_ARG);
    m = (struct paxos_message){.type = WIRE_PROMISE, .epoch = 1, .ballot = 1};
    m.accepted = 1;
    m.bytes = config;
    m.bytes_count = CONFIG_BYTES_MAX;
    b = there_and_back(&m);
    assert_int_equal(b.bytes_count, CONFIG_BYTES_MAX);
    wire_paxos_deinit(&b);
    m.bytes_count++;
    assert_refused("accepted configuration of 983041 bytes", &m);
    m = (struct paxos_message){.type = WIRE_ACCEPT, .epoch = 1, .ballot = 1};
    m.bytes = config;
    m.bytes_count = sizeof config;
    assert_fails(ERR_ARG, "more than 1048576", wire_paxos_pack(&m, &bytes, &count));
    assert_fails(ERR_PROTO, "an ACCEPT of 1048577 bytes",
                 wire_paxos_unpack(WIRE_ACCEPT, config, WIRE_PAXOS_BYTES_MAX + 1, &b));
    struct paxos_message decided = {.type = WIRE_DECIDED, .votes_count = CONFIG_VOTERS_MAX + 1};
    assert_int_equal(wire_paxos_pack(&decided, &bytes, &count), ERR_ARG);
    m = (struct paxos_message){.type = WIRE_PREPARE, .epoch = 1, .ballot = 1};
    m.bytes = config;
    m.bytes_count = CONFIG_BYTES_MAX + 1;
    assert_refused("a draft of 983041 bytes", &m);
    struct paxos_message none = {.type = (enum wire_paxos_type)WIRE_BYE};
    assert_int_equal(wire_paxos_pack(&none, &bytes, &count), ERR_ARG);
}

/* Two bytes announce a row each time. */
static void assert_flood_refused(enum wire_paxos_type type, uint8_t field, size_t times, const char *text)
{
    struct paxos_message back;
    uint8_t *bytes;
    assert_ok(mem_new(4 + 2 * times, 1, "a flood", &bytes));
    bytes[0] = 1 << 3;
    bytes[2] = 2 << 3;
    bytes[1] = bytes[3] = 1;
    for (size_t i = 0; i < times; i++)
        bytes[4 + 2 * i] = (uint8_t)(field << 3 | 2);
    size_t skip = type == WIRE_DECIDED ? 4 : 0; /* it has no ballot */
    assert_fails(ERR_PROTO, text, wire_paxos_unpack(type, bytes + skip, 4 + 2 * times - skip, &back));
    mem_free(bytes);
}

static void floods_are_refused(void **state)
{
    (void)state;
    enum { MANY = 1 << 17 }; /* so that no single piece of memory is too large */
    assert_flood_refused(WIRE_PROMISE, 6, MANY, "holds too much");
    assert_flood_refused(WIRE_DECIDED, 2, MANY, "holds too much");
    assert_flood_refused(WIRE_PROMISE, 6, 4097, "4097 fragments");
    assert_flood_refused(WIRE_DECIDED, 2, 66, "66 votes");
}

static void any_bytes_are_survived(void **state)
{
    (void)state;
    struct env_rng rng = env_rng_init(5, 6);
    struct paxos_message messages[2] = {a_prepare(), a_promise()}, back;
    size_t passed = 0;
    for (int k = 0; k < 2; k++) {
        pack(&messages[k]);
        for (int i = 0; i < 50000; i++) {
            size_t at = env_rng_below(&rng, packed_bytes), count = packed_bytes;
            uint8_t old = packed[at];
            packed[at] = (uint8_t)env_rng_u64(&rng);
            if (i % 4 == 0)
                count = env_rng_below(&rng, count);
            uint32_t type = i % 2 == 0 ? (uint32_t)messages[k].type : (uint32_t)env_rng_below(&rng, 19);
            if (wire_paxos_unpack(type, packed, count, &back) == ERR_OK) {
                uint8_t *again;
                size_t again_bytes;
                assert_ok(wire_paxos_pack(&back, &again, &again_bytes));
                mem_free(again);
                wire_paxos_deinit(&back);
                passed++;
            }
            packed[at] = old;
        }
    }
    print_message("%zu of 100000 changed messages are messages still\n", passed);
    assert_true(passed > 100);
}

static enum err make_one(void *user)
{
    const struct paxos_message *message = user;
    struct paxos_message back;
    uint8_t *bytes;
    size_t count;
    TRY(wire_paxos_pack(message, &bytes, &count));
    enum err err = wire_paxos_unpack(message->type, bytes, count, &back);
    mem_free(bytes);
    if (err == ERR_OK)
        wire_paxos_deinit(&back);
    return err;
}

static void every_path_without_memory_is_clean(void **state)
{
    (void)state;
    struct paxos_message prepare = a_prepare(), promise = a_promise();
    size_t failed = outofmem_walk(make_one, &prepare) + outofmem_walk(make_one, &promise);
    print_message("%zu allocations failed in turn\n", failed);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(proposals_come_back),
        cmocka_unit_test(answers_come_back),
        cmocka_unit_test(decisions_questions_and_evidence_come_back),
        cmocka_unit_test(orders_come_back),
        cmocka_unit_test(ballots_are_checked),
        cmocka_unit_test(promises_are_checked),
        cmocka_unit_test(decisions_and_evidence_are_checked),
        cmocka_unit_test(orders_are_checked),
        cmocka_unit_test(the_most_that_is_allowed_passes),
        cmocka_unit_test(floods_are_refused),
        cmocka_unit_test(any_bytes_are_survived),
        cmocka_unit_test(every_path_without_memory_is_clean),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mem_free(packed);
    return failed;
}
