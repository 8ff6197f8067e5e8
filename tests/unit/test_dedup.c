/* SPDX-License-Identifier: Apache-2.0 */
/* dedup: of each member and shard the contribution counted last; as bytes that are the same for everyone. */
#include "tests/lib/testlib.h"

#include <string.h>

#include "common/mem.h"
#include "daemon/state/dedup.h"
#include "outer_opt/plan.h"
#include "tests/lib/outofmem.h"

enum { ANA = 3, BOB = 13, CYD = 23 };

static struct digest contribution(uint32_t id, uint64_t version)
{
    uint64_t what[2] = {id, version};
    return digest_of(what, sizeof what);
}

static float cosine; /* that results name for the first member they count */

/* A result that counts these members' contributions to its version; ids in order, 0: none. */
static enum err note_some(struct dedup *dedup, uint64_t shards, uint64_t version, const uint32_t *ids)
{
    uint8_t rows[3 * WIRE_CONTRIBUTOR_BYTES];
    struct wire_meta meta = {.contributors = rows};
    for (; ids[meta.contributors_count] != 0; meta.contributors_count++) {
        uint32_t id = ids[meta.contributors_count];
        struct wire_contributor row = {.id = id, .digest = contribution(id, version)};
        if (meta.contributors_count == 0)
            row.cosine = testlib_float_bits(cosine);
        wire_contributor_put(rows, meta.contributors_count, &row);
    }
    return dedup_note(dedup, shards, version, &meta);
}
#define note(dedup, shards, version, ...) \
    assert_ok(note_some((dedup), (shards), (version), (const uint32_t[]){__VA_ARGS__, 0}))

static void the_last_one_of_each_shard_is_kept(void **state)
{
    (void)state;
    struct dedup dedup = {0};
    assert_int_equal(dedup_since(&dedup, BOB, 0), 0);
    note(&dedup, 0x0f, 1, ANA, BOB);
    note(&dedup, 0xf0, 1, BOB);
    note(&dedup, 0x3c, 2, BOB, CYD);
    assert_int_equal(dedup_since(&dedup, BOB, 0), 0xff);
    assert_int_equal(dedup_since(&dedup, BOB, 1), 0x3c);
    assert_int_equal(dedup_since(&dedup, BOB, 2), 0);
    assert_int_equal(dedup_since(&dedup, ANA, 0), 0x0f);
    assert_int_equal(dedup_since(&dedup, ANA, 1), 0);
    assert_int_equal(dedup_since(&dedup, CYD, 0), 0x3c);
    assert_int_equal(dedup_since(&dedup, 4, 0), 0);
    struct digest first = contribution(BOB, 1), second = contribution(BOB, 2);
    assert_int_equal(dedup_as(&dedup, BOB, 1, &first), 0xc3);
    assert_int_equal(dedup_as(&dedup, BOB, 2, &second), 0x3c);
    assert_int_equal(dedup_as(&dedup, BOB, 2, &first), 0);
    assert_int_equal(dedup_as(&dedup, CYD, 2, &second), 0);
    assert_int_equal(dedup_last(&dedup, BOB, 0xff), 2);
    assert_int_equal(dedup_last(&dedup, BOB, 0x03), 1);
    assert_int_equal(dedup_last(&dedup, CYD, 0xc3), 0);
    assert_int_equal(dedup_last(&dedup, 4, 0xff), 0);
    note(&dedup, 0xff, 3, BOB); /* nothing of the others is left */
    assert_int_equal(dedup_since(&dedup, BOB, 2), 0xff);
    assert_int_equal(dedup.count, 3);
    dedup_clear(&dedup);
    assert_int_equal(dedup.count, 0);
}

static const uint64_t values[PLAN_SHARDS_MAX] = {10, 10, 10, 10, 25, 25, 10, 10};

/* The shards in which it is turned away. */
static uint64_t turned(const struct dedup *dedup, uint32_t id)
{
    uint64_t shards = 0;
    for (size_t i = 0; i < dedup->count; i++)
        shards |= dedup->rows[i].id == id ? dedup_turned(dedup, i) : 0;
    return shards;
}

/* A version of two parts, in which the first member named is below where it is said. */
static void two_parts(struct dedup *dedup, uint64_t version, bool below_0f, bool below_30, const uint32_t *ids)
{
    cosine = below_0f ? -0.21f : 0.5f;
    assert_ok(note_some(dedup, 0x0f, version, ids));
    cosine = below_30 ? -0.21f : -0.19f;
    assert_ok(note_some(dedup, 0x30, version, ids));
    cosine = 0;
    dedup_judge(dedup, version, values);
}
#define version_of(dedup, version, below_0f, below_30, ...) \
    two_parts((dedup), (version), (below_0f), (below_30), (const uint32_t[]){__VA_ARGS__, 0})

static void who_is_below_in_most_values_five_times_is_turned_away(void **state)
{
    (void)state;
    struct dedup dedup = {0}, copy = {0};
    uint8_t bytes[16 * DEDUP_ROW_BYTES];
    uint64_t version = 1;
    for (; version <= 2 * DIRECTION_ROUNDS; version++) /* 40 values of 90 */
        version_of(&dedup, version, true, false, ANA, BOB);
    assert_int_equal(turned(&dedup, ANA), 0);
    for (; version <= 4 * DIRECTION_ROUNDS; version++) /* 50 of them, as one owner of two says */
        version_of(&dedup, version, false, true, ANA, BOB);
    assert_int_equal(turned(&dedup, ANA), 0);
    for (int round = 0; round < DIRECTION_ROUNDS - 1; round++)
        version_of(&dedup, version++, true, true, ANA, BOB);
    assert_int_equal(turned(&dedup, ANA), 0);
    dedup_pack(&dedup, bytes); /* by way of a disk, or of another island */
    assert_ok(dedup_unpack(bytes, dedup_bytes(&dedup), &copy));
    version_of(&copy, version++, true, true, ANA, BOB);
    assert_int_equal(turned(&copy, ANA), 0x3f);
    assert_int_equal(turned(&copy, BOB), 0);
    version_of(&copy, version++, true, true, BOB); /* a round without it changes nothing */
    assert_int_equal(turned(&copy, ANA), 0x3f);
    for (int round = 0; round < DIRECTION_ROUNDS; round++) {
        assert_int_equal(turned(&copy, ANA), 0x3f);
        version_of(&copy, version++, false, false, ANA);
    }
    assert_int_equal(turned(&copy, ANA), 0);
    dedup_clear(&copy);
    dedup_clear(&dedup);
}

/* Two owners of three, of less than half of the values; and of more than half. */
static void most_owners_have_to_say_it_too(void **state)
{
    (void)state;
    for (int larger = 0; larger <= 1; larger++) {
        struct dedup dedup = {0};
        for (uint64_t version = 1; version <= DIRECTION_ROUNDS; version++) {
            cosine = larger ? -0.3f : 0.3f;
            note(&dedup, 0x30, version, ANA); /* 50 values */
            cosine = -0.3f;
            note(&dedup, 0x03, version, ANA); /* 20 */
            cosine = larger ? 0.3f : -0.3f;
            note(&dedup, 0x04, version, ANA); /* 10 */
            dedup_judge(&dedup, version, values);
        }
        assert_int_equal(turned(&dedup, ANA), larger ? 0x37 : 0);
        dedup_clear(&dedup);
    }
    cosine = 0;
}

/* Parts that are cut anew begin with what is behind each of their shards, the least of it. */
static void the_next_owner_goes_on_with_the_state_of_its_shards(void **state)
{
    (void)state;
    struct dedup dedup = {0};
    for (uint64_t version = 1; version <= DIRECTION_ROUNDS; version++)
        version_of(&dedup, version, true, true, ANA);
    cosine = -1;
    note(&dedup, 0x1f, 6, ANA);
    note(&dedup, 0x60, 6, ANA); /* 0x40: for the first time */
    dedup_judge(&dedup, 6, values);
    assert_int_equal(turned(&dedup, ANA), 0x1f);
    cosine = 0;
    dedup_clear(&dedup);
}

static void equal_tables_are_equal_bytes(void **state)
{
    (void)state;
    struct dedup one = {0}, other = {0}, copy = {0};
    note(&one, 0x0f, 1, ANA, BOB);
    note(&one, 0xf0, 1, ANA, CYD);
    note(&one, 0x42, 2, BOB);
    note(&other, 0xf0, 1, ANA, CYD); /* parts come in any order */
    note(&other, 0x0f, 1, ANA, BOB);
    note(&other, 0x42, 2, BOB);
    assert_int_equal(one.count, other.count);
    uint8_t bytes[2][16 * DEDUP_ROW_BYTES];
    size_t count = dedup_bytes(&one);
    assert_in_range(count, 1, sizeof bytes[0]);
    dedup_pack(&one, bytes[0]);
    dedup_pack(&other, bytes[1]);
    assert_memory_equal(bytes[0], bytes[1], count);
    assert_ok(dedup_unpack(bytes[0], count, &copy));
    dedup_pack(&copy, bytes[1]);
    assert_memory_equal(bytes[0], bytes[1], count);
    assert_ok(dedup_copy(&one, &copy));
    assert_int_equal(dedup_since(&copy, BOB, 1), 0x42);
    dedup_clear(&one);
    dedup_clear(&other);
    dedup_clear(&copy);
}

/* They come from other islands. */
static void bytes_that_nobody_packs_are_refused(void **state)
{
    (void)state;
    struct dedup dedup = {0}, got = {0};
    uint8_t good[3 * DEDUP_ROW_BYTES], bad[3 * DEDUP_ROW_BYTES];
    note(&dedup, 0x03, 1, ANA, BOB);
    note(&dedup, 0x0c, 2, BOB);
    assert_int_equal(dedup_bytes(&dedup), sizeof good);
    dedup_pack(&dedup, good);
    const struct {
        size_t at;
        uint8_t to;
    } faults[] = {
        {0, BOB + 1},              /* out of order */
        {4, DIRECTION_STATES},     /* no state of a direction */
        {8, 0},                    /* of no shard */
        {DEDUP_ROW_BYTES + 8, 0},  /* likewise, not the first */
        {DEDUP_ROW_BYTES + 8, 7},  /* a shard twice */
        {DEDUP_ROW_BYTES + 8, 16}, /* its rows out of order */
        {2 * DEDUP_ROW_BYTES, ANA},
    };
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        memcpy(bad, good, sizeof bad);
        bad[faults[i].at] = faults[i].to;
        assert_fails(ERR_PROTO, "out of order", dedup_unpack(bad, sizeof bad, &got));
        assert_true(got.rows == NULL && got.count == 0);
    }
    assert_fails(ERR_PROTO, "bytes", dedup_unpack(good, sizeof good - 1, &got));
    assert_ok(dedup_unpack(good, 0, &got));
    assert_int_equal(got.count, 0);
    dedup_clear(&got);
    dedup_clear(&dedup);
}

static enum err note_once(void *user)
{
    struct dedup *dedup = user;
    size_t before = dedup->count;
    enum err err = note_some(dedup, 0x06, 5, (const uint32_t[]){ANA, CYD, 0});
    assert_true(err == ERR_OK || (dedup->count == before && dedup_since(dedup, ANA, 4) == 0));
    return err;
}

static void without_memory_all_is_as_before(void **state)
{
    (void)state;
    struct dedup dedup = {0};
    note(&dedup, 0x0f, 1, ANA, BOB);
    assert_int_equal(outofmem_walk(note_once, &dedup), 1);
    assert_int_equal(dedup_since(&dedup, CYD, 4), 0x06);
    dedup_clear(&dedup);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_one_of_each_shard_is_kept),
        cmocka_unit_test(who_is_below_in_most_values_five_times_is_turned_away),
        cmocka_unit_test(most_owners_have_to_say_it_too),
        cmocka_unit_test(the_next_owner_goes_on_with_the_state_of_its_shards),

        cmocka_unit_test(equal_tables_are_equal_bytes),
        cmocka_unit_test(bytes_that_nobody_packs_are_refused),
        cmocka_unit_test(without_memory_all_is_as_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
