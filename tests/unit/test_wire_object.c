/* SPDX-License-Identifier: Apache-2.0 */
/* wire_object: an object says itself what it is; every byte is covered; an owner signs; whom a result counts. */
#include "tests/lib/testlib.h"

#include <math.h>
#include <string.h>

#include "common/bytes.h"
#include "common/digest.h"
#include "net/transport/wire_object.h"
#include "outer_opt/codec.h"
#include "tests/lib/mend.h"

enum { FRAME = 500, KIND_AT = 4, VERSION_AT = 5, ZERO_AT = 6, DIGEST_AT = 72, SIGNATURE_AT = 104 };
enum { OBJECT_BYTES = WIRE_OBJECT_HEADER_BYTES + FRAME + 24 + WIRE_CONTRIBUTORS_MAX * WIRE_CONTRIBUTOR_BYTES };

static struct ident owner, other;
static uint8_t object[OBJECT_BYTES], rows[WIRE_CONTRIBUTORS_MAX * WIRE_CONTRIBUTOR_BYTES];
static const uint8_t nonce[WIRE_NONCE_BYTES] = "of this one run";

static struct wire_object named(uint32_t kind)
{
    struct wire_object what = {.shards = 0x8000000000000005};
    what.key = (struct wire_key){
        .kind = kind, .fragment = 4095, .version = 1ull << 40, .epoch = 1ull << 50, .owner = ~0u - 1, .island = 70000};
    if (kind == WIRE_RESULT)
        what.key.island = what.key.owner;
    memcpy(what.nonce, nonce, sizeof nonce);
    return what;
}

static struct wire_contributor contributor(uint32_t id, uint64_t tokens)
{
    return (struct wire_contributor){.id = id,
                                     .tokens = tokens,
                                     .weight = testlib_float_bits(1.5f + (float)id),
                                     .norm = testlib_float_bits(0.25f * (float)id),
                                     .factor = testlib_float_bits(0.5f),
                                     .cosine = testlib_float_bits(0.5f - 0.125f * (float)(id % 8)),
                                     .digest = digest_of(&id, sizeof id)};
}

static struct wire_meta of_contributors(uint32_t count)
{
    struct wire_meta meta = {.step = 77, .outer = {7, 8, ~0u}, .contributors_count = count, .contributors = rows};
    for (uint32_t i = 0; i < count; i++) {
        struct wire_contributor row = contributor(3 * i + 1, ~0ull - i);
        wire_contributor_put(rows, i, &row);
    }
    return meta;
}

static const struct wire_meta contribution_meta = {.tokens = 12345, .step = 77, .base_hash = {{1, 2, 3}}};

/* Seals what is given and returns its size; the frame is bytes that are none. */
static size_t seal(const struct wire_object *what, const struct wire_meta *meta, struct digest *digest)
{
    size_t bytes;
    for (size_t i = 0; i < FRAME; i++)
        wire_object_frame(object)[i] = (uint8_t)(i * 7);
    assert_ok(
        wire_object_seal(what, meta, what->key.kind == WIRE_RESULT ? &owner : NULL, object, FRAME, &bytes, digest));
    return bytes;
}

static enum err reopen(size_t bytes, struct wire_object *what, struct wire_meta *meta)
{
    const uint8_t *frame;
    size_t frame_bytes;
    enum err err = wire_object_open(object, bytes, what, meta, &frame, &frame_bytes);
    if (err == ERR_OK)
        assert_true(frame_bytes == FRAME && frame == wire_object_frame(object));
    return err;
}

static void an_object_says_what_it_is(void **state)
{
    (void)state;
    for (uint32_t kind = WIRE_CONTRIBUTION; kind <= WIRE_RESULT; kind++) {
        struct wire_object what = named(kind), got;
        struct wire_meta meta = kind == WIRE_RESULT ? of_contributors(2) : contribution_meta, back;
        struct digest digest;
        size_t bytes = seal(&what, &meta, &digest);
        assert_int_equal(bytes, WIRE_OBJECT_HEADER_BYTES + FRAME + (kind == WIRE_RESULT ? 24 + 2 * 60 : 48));
        assert_true(bytes <= wire_object_bytes_max(FRAME, what.shards, 2));
        assert_ok(reopen(bytes, &got, &back));
        assert_true(wire_key_equal(&got.key, &what.key) && got.shards == what.shards);
        assert_memory_equal(got.nonce, nonce, sizeof nonce);
        assert_true(digest_equal(&got.digest, &digest));
        assert_true(back.step == 77 && back.tokens == meta.tokens && digest_equal(&back.base_hash, &meta.base_hash));
        assert_memory_equal(back.outer, meta.outer, sizeof meta.outer);
        assert_int_equal(back.contributors_count, meta.contributors_count);
        memset(&got, 0xee, sizeof got);
        assert_ok(wire_object_peek(object, bytes, &got));
        assert_true(wire_key_equal(&got.key, &what.key) && digest_equal(&got.digest, &digest));
    }
}

/* The frame's payload is under the digest in its own head. */
static void every_byte_but_a_signature_is_covered(void **state)
{
    (void)state;
    for (uint32_t kind = WIRE_CONTRIBUTION; kind <= WIRE_RESULT; kind++) {
        struct wire_object what = named(kind), got;
        struct wire_meta meta = kind == WIRE_RESULT ? of_contributors(3) : contribution_meta, back;
        struct digest digest;
        size_t bytes = seal(&what, &meta, &digest);
        for (size_t cut = 0; cut < bytes; cut++)
            assert_int_equal(reopen(cut, &got, &back), ERR_PROTO);
        for (size_t at = 0; at < bytes; at++) {
            if (at >= WIRE_OBJECT_HEADER_BYTES + CODEC_HEADER_BYTES && at < WIRE_OBJECT_HEADER_BYTES + FRAME)
                continue;
            for (int bit = 0; bit < 8; bit++) {
                bool signature = kind == WIRE_RESULT && at >= SIGNATURE_AT && at < WIRE_OBJECT_HEADER_BYTES;
                object[at] ^= (uint8_t)(1 << bit);
                assert_int_equal(reopen(bytes, &got, &back), signature ? ERR_OK : ERR_PROTO);
                if (signature)
                    assert_fails(ERR_PROTO, "not signed by its owner", wire_object_signed(&got, owner.key));
                object[at] ^= (uint8_t)(1 << bit);
            }
        }
        assert_ok(reopen(bytes, &got, &back));
    }
}

/* A change that is made with all digests right makes another object, which has another name. */
static void no_two_objects_have_one_digest(void **state)
{
    (void)state;
    struct wire_object what = named(WIRE_RESULT);
    struct wire_meta meta = of_contributors(3);
    struct digest first, digest;
    size_t bytes = seal(&what, &meta, &first);
    for (size_t at = 24; at < bytes; at++) {
        static uint8_t copy[OBJECT_BYTES];
        struct wire_object got;
        if (at >= DIGEST_AT && at < WIRE_OBJECT_HEADER_BYTES)
            continue;
        memcpy(copy, object, bytes);
        copy[at] ^= 1;
        mend_object(copy, bytes);
        assert_true(wire_object_peek(copy, bytes, &got) != ERR_OK || !digest_equal(&got.digest, &first));
    }
    what.shards ^= 2;
    seal(&what, &meta, &digest);
    assert_false(digest_equal(&digest, &first));
}

static void an_object_is_the_one_that_was_asked_for(void **state)
{
    (void)state;
    struct wire_object what = named(WIRE_RESULT);
    const struct wire_key key = what.key;
    struct wire_key wrong[6] = {key, key, key, key, key, key};
    uint8_t elsewhere[WIRE_NONCE_BYTES];
    assert_ok(wire_object_is(&what, &key, nonce));
    wrong[0].kind = WIRE_CONTRIBUTION;
    wrong[1].fragment--;
    wrong[2].version++;
    wrong[3].epoch++;
    wrong[4].owner++;
    wrong[5].island++;
    for (int i = 0; i < 6; i++)
        assert_fails(ERR_PROTO, "another object than was asked for", wire_object_is(&what, &wrong[i], nonce));
    for (int i = 0; i < WIRE_NONCE_BYTES; i++) {
        memcpy(elsewhere, nonce, sizeof nonce);
        elsewhere[i] ^= 1;
        assert_fails(ERR_PROTO, "of another run", wire_object_is(&what, &key, elsewhere));
    }
}

static void a_result_is_signed_by_its_owner_and_nobody_else(void **state)
{
    (void)state;
    struct wire_object what = named(WIRE_RESULT), got;
    struct wire_meta meta = of_contributors(1), back;
    struct digest digest;
    uint8_t message[16 + DIGEST_BYTES] = "diloco result 1";
    size_t bytes = seal(&what, &meta, &digest);
    assert_ok(reopen(bytes, &got, &back));
    assert_ok(wire_object_signed(&got, owner.key));
    assert_fails(ERR_PROTO, "not signed by its owner", wire_object_signed(&got, other.key));
    memcpy(message + 16, digest.byte, DIGEST_BYTES); /* as docs/FORMATS.md has it */
    assert_true(ident_signed(owner.key, message, sizeof message, object + SIGNATURE_AT));
    /* A signature of one result is none of another. */
    struct wire_object moved = what, moved_got;
    moved.key.version++;
    uint8_t signature[IDENT_SIGNATURE_BYTES];
    memcpy(signature, object + SIGNATURE_AT, sizeof signature);
    bytes = seal(&moved, &meta, &digest);
    memcpy(object + SIGNATURE_AT, signature, sizeof signature);
    assert_ok(reopen(bytes, &moved_got, &back));
    assert_fails(ERR_PROTO, "not signed by its owner", wire_object_signed(&moved_got, owner.key));
    /* Nobody signs a contribution, and a result is not left unsigned. */
    struct wire_object contribution = named(WIRE_CONTRIBUTION);
    assert_fails(ERR_ARG, "a result is signed", wire_object_seal(&what, &meta, NULL, object, FRAME, &bytes, &digest));
    assert_fails(ERR_ARG, "a contribution is not",
                 wire_object_seal(&contribution, &contribution_meta, &owner, object, FRAME, &bytes, &digest));
    bytes = seal(&contribution, &contribution_meta, &digest);
    assert_ok(reopen(bytes, &got, &back));
    assert_fails(ERR_PROTO, "not signed", wire_object_signed(&got, owner.key));
}

static void limits_of_names_and_metadata_are_checked(void **state)
{
    (void)state;
    struct wire_object what = named(WIRE_RESULT), got;
    struct wire_meta meta = of_contributors(1), back;
    struct digest digest;
    size_t bytes;
#define REFUSED(text, change, restore)                             \
    do {                                                           \
        change;                                                    \
        bytes = seal(&what, &meta, &digest);                       \
        restore;                                                   \
        assert_fails(ERR_PROTO, text, reopen(bytes, &got, &back)); \
    } while (0)
    REFUSED("fragment 4096", what.key.fragment = 4096, what.key.fragment = 1);
    REFUSED("version 0", what.key.version = 0, what.key.version = 1);
    REFUSED("of no shard", what.shards = 0, what.shards = 1);
    REFUSED("island 5 made for owner 4", (what.key.owner = 4, what.key.island = 5), what.key.island = 4);
    REFUSED("0 contributors", meta.contributors_count = 0, meta = of_contributors(6));
    struct wire_contributor wrong = contributor(4, 1); /* as the one before it */
    REFUSED("not in order", wire_contributor_put(rows, 2, &wrong), meta = of_contributors(6));
    const struct wire_contributor good = contributor(1, 9);
    const float senseless[][4] = {{-1, 0, 1, 0},    {INFINITY, 0, 1, 0}, {NAN, 0, 1, 0},   {1, -1, 1, 0},
                                  {1, INFINITY, 1}, {1, NAN, 1, 0},      {1, 0, -0.1f, 0}, {1, 0, 1.1f, 0},
                                  {1, 0, NAN, 0},   {1, 0, 1, 1.1f},     {1, 0, 1, -1.1f}, {1, 0, 1, NAN},
                                  {1, 0, 1, -0.0f}};
    for (size_t i = 0; i < sizeof senseless / sizeof senseless[0]; i++) {
        wrong = good;
        wrong.weight = testlib_float_bits(senseless[i][0]);
        wrong.norm = testlib_float_bits(senseless[i][1]);
        wrong.factor = testlib_float_bits(senseless[i][2]);
        wrong.cosine = testlib_float_bits(senseless[i][3]);
        REFUSED("make no sense", wire_contributor_put(rows, 0, &wrong), meta = of_contributors(6));
    }
    what = named(WIRE_CONTRIBUTION);
    meta = contribution_meta;
    REFUSED("contribution of 0 tokens", meta.tokens = 0, meta.tokens = 1);
    REFUSED("contribution of", meta.tokens = (1ull << 62) + 1, meta.tokens = 1ull << 62);
    bytes = seal(&what, &meta, &digest);
    assert_ok(reopen(bytes, &got, &back));
    object[ZERO_AT] = 1;
    mend_object(object, bytes);
    assert_fails(ERR_PROTO, "wrong length", reopen(bytes, &got, &back));
    object[ZERO_AT] = 0;
    object[KIND_AT] = WIRE_STATE;
    mend_object(object, bytes);
    assert_fails(ERR_PROTO, "unknown kind 3", reopen(bytes, &got, &back));
    object[VERSION_AT]++;
    assert_fails(ERR_PROTO, "object of version", reopen(bytes, &got, &back));
    what.key.kind = WIRE_PLAN;
    assert_fails(ERR_ARG, "plan", wire_object_seal(&what, &meta, NULL, object, FRAME, &bytes, &digest));
}

/* ---- spans: shards of a contribution that are not alike ---- */

enum { FIRST = 0, SECOND = 2, LAST = 63 }; /* the shards of named() */

/* What a span is on the wire, at its place in a list. */
static void put_span(uint8_t *spans, uint32_t index, struct wire_span span)
{
    struct bytes_writer writer = bytes_writer_init(spans + (size_t)index * WIRE_SPAN_BYTES, WIRE_SPAN_BYTES);
    bytes_put_u32(&writer, span.id);
    bytes_put_u32(&writer, span.weight);
    bytes_put_u64(&writer, span.shards);
    bytes_put_u64(&writer, span.tokens);
}

/* As few spans as there can be, in one order; none where all shards are alike; and none of who finds no room. */
static void shards_that_are_alike_are_one_span(void **state)
{
    (void)state;
    static uint8_t spans[WIRE_SPANS_MAX * WIRE_SPAN_BYTES];
    const uint64_t shards = named(WIRE_RESULT).shards;
    uint64_t tokens[WIRE_SHARDS_MAX] = {[FIRST] = 7, [SECOND] = 5, [LAST] = 7};
    uint32_t weights[WIRE_SHARDS_MAX] = {[FIRST] = 9, [SECOND] = 9, [LAST] = 8};
    struct wire_meta meta = {.spans = spans, .tokens = 3};
    struct wire_span span;
    meta.spans_count = wire_spans_put(spans, 0, WIRE_SPANS_MAX, 4, shards, tokens, NULL);
    assert_int_equal(meta.spans_count, 2);
    assert_true(wire_meta_span(&meta, 4, LAST, &span));
    assert_true(span.shards == (1 | 1ull << LAST) && span.tokens == 7 && span.weight == 0 && span.id == 4);
    assert_true(wire_meta_span(&meta, 4, SECOND, &span) && span.shards == 4 && span.tokens == 5);
    assert_false(wire_meta_span(&meta, 4, 1, &span) || wire_meta_span(&meta, 5, FIRST, &span));
    meta.spans_count = wire_spans_put(spans, 2, WIRE_SPANS_MAX, 5, shards, tokens, weights);
    assert_int_equal(meta.spans_count, 5);
    assert_true(wire_meta_span(&meta, 5, LAST, &span) && span.shards == 1ull << LAST && span.weight == 8);
    assert_true(wire_meta_span(&meta, 4, LAST, &span) && span.tokens == 7 && span.weight == 0);
    assert_int_equal(wire_spans_put(spans, 5, 7, 6, shards, tokens, weights), 5);
    tokens[SECOND] = 7;
    assert_int_equal(wire_spans_put(spans, 5, WIRE_SPANS_MAX, 6, shards, tokens, NULL), 5);
    assert_int_equal(wire_spans_put(spans, WIRE_SPANS_MAX, WIRE_SPANS_MAX, 6, shards, tokens, weights), WIRE_SPANS_MAX);
}

static void spans_come_back_and_their_limits_are_checked(void **state)
{
    (void)state;
    uint8_t spans[4 * WIRE_SPAN_BYTES];
    for (uint32_t kind = WIRE_CONTRIBUTION; kind <= WIRE_RESULT; kind++) {
        struct wire_object what = named(kind), got;
        struct wire_meta meta = kind == WIRE_RESULT ? of_contributors(2) : contribution_meta, back;
        struct digest digest;
        struct wire_span span;
        const uint32_t id = kind == WIRE_RESULT ? 4 : what.key.island;
        const struct wire_span a = {.id = id, .shards = 1 | 1ull << LAST, .tokens = 7}, b = {id, 0, 4, 1ull << 62};
        meta.tokens = 0;
        meta.spans = spans;
        meta.spans_count = 2;
        put_span(spans, 0, a);
        put_span(spans, 1, b);
        size_t bytes = seal(&what, &meta, &digest);
        assert_true(bytes <= wire_object_bytes_max(FRAME, what.shards, kind == WIRE_RESULT ? 2 : 0));
        assert_ok(reopen(bytes, &got, &back));
        assert_int_equal(back.spans_count, 2);
        assert_memory_equal(back.spans, spans, 2 * WIRE_SPAN_BYTES);
        assert_true(wire_meta_span(&back, id, SECOND, &span) && span.tokens == 1ull << 62);
#define SPANS(text, first, second)                                 \
    do {                                                           \
        put_span(spans, 0, first);                                 \
        put_span(spans, 1, second);                                \
        bytes = seal(&what, &meta, &digest);                       \
        assert_fails(ERR_PROTO, text, reopen(bytes, &got, &back)); \
    } while (0)
        const struct wire_span odd[] = {{id, 0, 0, 3}, {id, 0, 5, 3}, {id, 0, 12, 3}, {id, 0, 4, 7}};
        for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) /* none, one twice, one of others, nothing new */
            SPANS("spans of other shards", a, odd[i]);
        SPANS("not in order", b, a);
        SPANS("lack shards", ((struct wire_span){id, 0, 1, 7}), b);
        SPANS("span of 0 tokens", a, ((struct wire_span){id, 0, 4, 0}));
        SPANS("span of", a, ((struct wire_span){id, 0, 4, (1ull << 62) + 1}));
        SPANS("makes no sense", a, ((struct wire_span){id, testlib_float_bits(-1), 4, 3}));
        SPANS("lack shards", a, ((struct wire_span){id + 1, 0, 4, 3}));
        SPANS("lack shards", ((struct wire_span){id + 1, 0, 5, 7}), a);
        meta.spans_count = 1;
        SPANS("more than need be", ((struct wire_span){id, 0, what.shards, 7}), a);
        meta.spans_count = WIRE_SPANS_MAX + 1;
        assert_fails(
            ERR_ARG, "1025 spans",
            wire_object_seal(&what, &meta, kind == WIRE_RESULT ? &owner : NULL, object, FRAME, &bytes, &digest));
    }
}

/* Those of a contribution are its maker's, and weigh nothing yet; those of a result are of who contributed. */
static void spans_are_of_who_made_what_they_are_of(void **state)
{
    (void)state;
    uint8_t spans[2 * WIRE_SPAN_BYTES];
    struct wire_object what = named(WIRE_RESULT), got;
    struct wire_meta meta = of_contributors(2), back;
    struct digest digest;
    size_t bytes;
    meta.spans = spans;
    meta.spans_count = 2;
    SPANS("who did not contribute", ((struct wire_span){5, 0, 1 | 1ull << LAST, 7}), ((struct wire_span){5, 0, 4, 3}));
    what = named(WIRE_CONTRIBUTION);
    meta = contribution_meta;
    meta.spans = spans;
    meta.spans_count = 2;
    struct wire_span a = {what.key.island, 0, 1 | 1ull << LAST, 7}, b = {what.key.island, 0, 4, 3};
    SPANS("12345 tokens, with 2 spans", a, b);
    meta.tokens = 0;
    b.weight = 1;
    SPANS("with weights", a, b);
    a.id = b.id = 1;
    b.weight = 0;
    SPANS("another member", a, b);
    meta.spans_count = 0;
    SPANS("contribution of 0 tokens", a, b);
}

static void as_many_contributors_as_a_run_has_members_are_found(void **state)
{
    (void)state;
    struct wire_object what = named(WIRE_RESULT), got;
    struct wire_meta meta = of_contributors(WIRE_CONTRIBUTORS_MAX), back;
    struct digest digest;
    size_t bytes = seal(&what, &meta, &digest);
    assert_ok(reopen(bytes, &got, &back));
    assert_int_equal(back.contributors_count, WIRE_CONTRIBUTORS_MAX);
    assert_true(sizeof back < 128); /* the list stays where it lies */
    for (uint32_t id = 0; id <= 3 * WIRE_CONTRIBUTORS_MAX + 3; id++) {
        struct wire_contributor found, want = contributor(id, ~0ull - id / 3);
        bool there = id % 3 == 1 && id / 3 < WIRE_CONTRIBUTORS_MAX;
        assert_int_equal(wire_meta_find(&back, id, &found), there);
        assert_int_equal(wire_meta_find(&back, id, NULL), there);
        if (!there)
            continue;
        assert_true(found.id == id && found.tokens == want.tokens && found.weight == want.weight &&
                    found.norm == want.norm && found.factor == want.factor &&
                    digest_equal(&found.digest, &want.digest));
        found = wire_meta_contributor(&back, id / 3);
        assert_true(found.id == id && found.tokens == want.tokens);
    }
    meta.contributors_count++;
    assert_fails(ERR_ARG, "1025 contributors", wire_object_seal(&what, &meta, &owner, object, FRAME, &bytes, &digest));
    /* More than there may be, in an object that is whole: the count is above the limit, and its bytes are there. */
    uint8_t *after = wire_object_frame(object) + FRAME;
    bytes = seal(&what, &(struct wire_meta){.contributors_count = 2, .contributors = rows}, &digest);
    after[20] = 3;
    mend_object(object, bytes);
    assert_fails(ERR_PROTO, "3 contributors", reopen(bytes, &got, &back));
    assert_false(wire_meta_find(&(struct wire_meta){0}, 1, NULL));
}

int main(void)
{
    assert_ok(digest_init());
    assert_ok(ident_generate(&owner));
    assert_ok(ident_generate(&other));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_object_says_what_it_is),
        cmocka_unit_test(every_byte_but_a_signature_is_covered),
        cmocka_unit_test(no_two_objects_have_one_digest),
        cmocka_unit_test(an_object_is_the_one_that_was_asked_for),
        cmocka_unit_test(a_result_is_signed_by_its_owner_and_nobody_else),
        cmocka_unit_test(limits_of_names_and_metadata_are_checked),
        cmocka_unit_test(shards_that_are_alike_are_one_span),
        cmocka_unit_test(spans_come_back_and_their_limits_are_checked),
        cmocka_unit_test(spans_are_of_who_made_what_they_are_of),
        cmocka_unit_test(as_many_contributors_as_a_run_has_members_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
