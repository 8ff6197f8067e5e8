/* SPDX-License-Identifier: Apache-2.0 */
/* results: a result in the ledger is opened in place, and says whom it counts. */
#include "tests/lib/testlib.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/mem.h"
#include "daemon/state/results.h"
#include "outer_opt/codec.h"
#include "tests/lib/ledgers.h"

enum { VALUES = CODEC_BLOCK, US = 2, OTHER = 0, THIRD = 5, VERSION = 7, EPOCH = 4 };

struct object {
    uint8_t bytes[8192];
    size_t count;
};

static struct codec *codec;
static struct ident ident;

/* What a member contributed. */
static struct digest contribution(uint32_t id)
{
    return digest_of(&id, sizeof id);
}

/* A result whose numbers are all `number`, counting the islands of a list that ends with UINT32_MAX. The first has no
 * weight, as one that was left out. */
static struct result_id make_in(uint64_t epoch, uint32_t f, uint64_t version, uint32_t owner, float number,
                                const uint32_t *islands, struct object *object)
{
    float values[VALUES];
    uint8_t rows[WIRE_MEMBERS_MAX * WIRE_CONTRIBUTOR_BYTES];
    struct wire_meta meta = {.step = 100, .contributors = rows};
    struct wire_object what = {.shards = 1};
    struct vec_source source = {.minuend = values};
    struct codec_part part = {.count = VALUES, .choice = {.id = CODEC_FP32}};
    size_t frame_bytes, fault;
    for (size_t i = 0; i < VALUES; i++)
        values[i] = number;
    for (uint32_t i = 0; islands[i] != UINT32_MAX; i++) {
        struct wire_contributor row = {.id = islands[i], .tokens = 1000 * i, .digest = contribution(islands[i])};
        wire_contributor_put(rows, meta.contributors_count++, &row);
    }
    what.key = (struct wire_key){.kind = WIRE_RESULT, .fragment = f, .version = version, .epoch = epoch};
    what.key.owner = what.key.island = owner;
    assert_ok(codec_encode(codec, &part, 1, &source, NULL, wire_object_frame(object->bytes), &frame_bytes, &fault));
    assert_ok(wire_object_seal(&what, &meta, &ident, object->bytes, frame_bytes, &object->count, &what.digest));
    return wire_object_result(&what);
}

static struct result_id make(uint32_t f, uint64_t version, uint32_t owner, float number, const uint32_t *islands,
                             struct object *object)
{
    return make_in(EPOCH, f, version, owner, number, islands, object);
}

#define ISLANDS(...) ((const uint32_t[]){__VA_ARGS__, UINT32_MAX})

static struct result_id append_counting(struct ledger *ledger, uint32_t f, uint64_t version, uint32_t owner,
                                        const uint32_t *islands)
{
    struct object object;
    struct result_id key = make(f, version, owner, 1, islands, &object);
    assert_ok(ledger_append(ledger, &key, object.bytes, object.count));
    return key;
}

/* One whose metadata was damaged since it was looked at. */
static struct result_id append_rotten(struct ledger *ledger, uint32_t f, uint32_t owner)
{
    struct object object;
    struct result_id key = make(f, VERSION, owner, 1, ISLANDS(OTHER, US), &object);
    object.bytes[object.count - 1] ^= 1;
    assert_ok(ledger_append(ledger, &key, object.bytes, object.count));
    return key;
}

static void a_result_is_opened_in_place(void **state)
{
    (void)state;
    struct ledger *ledger = ledgers_new("results-open");
    struct object objects[3];
    struct result_id keys[3];
    struct result results[3];
    for (uint32_t s = 0; s < 3; s++) {
        keys[s] = make(1, VERSION, s, (float)s, ISLANDS(s, s + 10), &objects[s]);
        assert_ok(ledger_append(ledger, &keys[s], objects[s].bytes, objects[s].count));
    }
    for (uint32_t s = 0; s < 3; s++) /* several at a time */
        assert_ok(result_open(ledger, &keys[s], &results[s]));
    for (uint32_t s = 0; s < 3; s++) {
        float values[VALUES];
        assert_int_equal(results[s].meta.step, 100);
        assert_int_equal(results[s].meta.contributors_count, 2);
        assert_int_equal(wire_meta_contributor(&results[s].meta, 1).id, s + 10);
        assert_ok(codec_decode(codec, results[s].frame, results[s].frame_bytes, values, VALUES));
        assert_true(values[0] == (float)s && values[VALUES - 1] == (float)s);
    }
    for (uint32_t s = 0; s < 3; s++)
        result_close(&results[s]);
    ledger_close(ledger);
}

/* Maps of the ledger that this process has. */
static unsigned maps(void)
{
    char line[512];
    unsigned count = 0;
    FILE *file = fopen("/proc/self/maps", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL)
        count += strstr(line, "/ledger-") != NULL;
    fclose(file);
    return count;
}

static void what_cannot_be_opened_leaves_nothing_to_close(void **state)
{
    (void)state;
    struct ledger *ledger = ledgers_new("results-bad");
    struct result result;
    struct result_id rotten = append_rotten(ledger, 0, 0);
    struct result_id good = append_counting(ledger, 0, VERSION, 3, ISLANDS(US));
    struct result_id none[] = {good, good, good, good, good};
    assert_fails(ERR_PROTO, "was altered", result_open(ledger, &rotten, &result));
    none[0].owner++;
    none[1].version++;
    none[2].fragment++;
    none[3].epoch++;
    none[4].digest.byte[0] ^= 1;
    for (int i = 0; i < 5; i++)
        assert_fails(ERR_NOTFOUND, "no such result", result_open(ledger, &none[i], &result));
    assert_int_equal(maps(), 0);
    assert_ok(result_open(ledger, &good, &result));
    assert_int_equal(maps(), 1);
    result_close(&result);
    assert_int_equal(maps(), 0);
    ledger_close(ledger);
}

static void a_contributor_counts_whatever_its_weight(void **state)
{
    (void)state;
    uint8_t rows[3 * WIRE_CONTRIBUTOR_BYTES];
    struct wire_meta meta = {.contributors_count = 2, .contributors = rows};
    wire_contributor_put(rows, 0, &(struct wire_contributor){.id = OTHER, .tokens = 0});
    wire_contributor_put(rows, 1, &(struct wire_contributor){.id = US, .tokens = 5, .digest = contribution(US)});
    wire_contributor_put(rows, 2, &(struct wire_contributor){.id = THIRD}); /* of an earlier use of this memory */
    assert_true(result_counts(&meta, OTHER, NULL));
    assert_true(result_counts(&meta, US, NULL));
    assert_false(result_counts(&meta, THIRD, NULL));
    meta.contributors_count = 0;
    assert_false(result_counts(&meta, OTHER, NULL));
}

static void a_share_of_the_mean_is_by_weight(void **state)
{
    (void)state;
    uint8_t rows[3 * WIRE_CONTRIBUTOR_BYTES];
    struct wire_meta meta = {.contributors_count = 3, .contributors = rows};
    const struct wire_contributor row[] = {
        {.id = 1, .tokens = 9000, .weight = testlib_float_bits(300), .factor = WIRE_FACTOR_ONE},
        {.id = 2, .tokens = 100, .weight = testlib_float_bits(100), .factor = testlib_float_bits(0.1f)},
        {.id = 3, .tokens = 100, .weight = testlib_float_bits(100), .factor = 0}};
    for (uint32_t i = 0; i < 3; i++)
        wire_contributor_put(rows, i, &row[i]);
    assert_float_equal(result_share(&meta, 1, false), 0.75, 1e-9);
    assert_float_equal(result_share(&meta, 2, false), 0.25, 1e-9); /* scaled down, it weighs what it did */
    assert_float_equal(result_share(&meta, 3, false), 0, 1e-9);
    assert_float_equal(result_share(&meta, 4, false), 0, 1e-9);
    assert_float_equal(result_share(&meta, 1, true), 1.0 / 3, 1e-9);
}

/* Who was killed after it had sent something may send another for the same version: only one of them is counted. */
static void a_contribution_counts_and_no_other_of_the_same_island(void **state)
{
    (void)state;
    uint8_t rows[2 * WIRE_CONTRIBUTOR_BYTES];
    struct wire_meta meta = {.contributors_count = 2, .contributors = rows};
    struct digest ours = contribution(US), theirs = contribution(OTHER);
    wire_contributor_put(rows, 0, &(struct wire_contributor){.id = OTHER, .digest = theirs});
    wire_contributor_put(rows, 1, &(struct wire_contributor){.id = US, .tokens = 5, .digest = ours});
    assert_true(result_counts(&meta, US, &ours));
    assert_true(result_counts(&meta, OTHER, &theirs));
    assert_false(result_counts(&meta, US, &theirs));
    assert_false(result_counts(&meta, THIRD, &ours));
    ours.byte[DIGEST_BYTES - 1] ^= 1;
    assert_false(result_counts(&meta, US, &ours));
}

static bool found(struct ledger *ledger, uint32_t f, uint64_t version, uint64_t epoch, uint32_t owner,
                  struct result_id *got)
{
    struct result_id like = {.fragment = f, .owner = owner, .version = version, .epoch = epoch};
    return results_find(ledger, &like, got);
}

static void the_first_of_an_owners_results_is_found(void **state)
{
    (void)state;
    struct ledger *ledger = ledgers_new("results-first");
    struct object object;
    struct result_id got, first = append_counting(ledger, 1, VERSION, 2, ISLANDS(OTHER));
    append_counting(ledger, 1, VERSION, 2, ISLANDS(OTHER, US));
    append_counting(ledger, 1, VERSION, 3, ISLANDS(US));
    struct result_id later = make_in(EPOCH + 1, 1, VERSION, 2, 1, ISLANDS(THIRD), &object);
    assert_ok(ledger_append(ledger, &later, object.bytes, object.count));
    assert_true(found(ledger, 1, VERSION, EPOCH, 2, &got));
    assert_true(digest_equal(&got.digest, &first.digest) && got.owner == 2 && got.epoch == EPOCH);
    assert_true(found(ledger, 1, VERSION, EPOCH + 1, 2, &got));
    assert_true(digest_equal(&got.digest, &later.digest) && got.epoch == EPOCH + 1);
    assert_false(found(ledger, 1, VERSION, EPOCH + 1, 3, &got));
    assert_false(found(ledger, 1, VERSION, EPOCH, 4, &got));
    assert_false(found(ledger, 1, VERSION + 1, EPOCH, 2, &got));
    assert_false(found(ledger, 0, VERSION, EPOCH, 2, &got));
    ledger_close(ledger);
}

int main(void)
{
    assert_ok(digest_init());
    assert_ok(ident_generate(&ident));
    assert_ok(codec_new(0, &codec));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_result_is_opened_in_place),
        cmocka_unit_test(what_cannot_be_opened_leaves_nothing_to_close),
        cmocka_unit_test(a_contributor_counts_whatever_its_weight),
        cmocka_unit_test(a_share_of_the_mean_is_by_weight),
        cmocka_unit_test(a_contribution_counts_and_no_other_of_the_same_island),
        cmocka_unit_test(the_first_of_an_owners_results_is_found),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    codec_free(codec);
    return failed;
}
