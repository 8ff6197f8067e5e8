/* SPDX-License-Identifier: Apache-2.0 */
/* equivocation: two results of one part that its owner has signed are evidence, and nothing else is. */
#include "tests/lib/testlib.h"

#include <string.h>

#include "common/digest.h"
#include "daemon/state/results.h"
#include "net/transport/ident.h"
#include "net/transport/wire_object.h"
#include "outer_opt/codec.h"
#include "tests/lib/ledgers.h"

enum { VALUES = CODEC_BLOCK, OWNER = 5, F = 1, VERSION = 7, EPOCH = 4, OBJECT_BYTES = 8192 };

static struct codec *codec;
static struct ident owner, liar;

/* A result of these numbers, as `signer` seals it, into the ledger. */
static struct result_id append(struct ledger *ledger, const struct ident *signer, struct wire_key key, float number)
{
    static uint8_t object[OBJECT_BYTES];
    float values[VALUES];
    uint8_t rows[WIRE_CONTRIBUTOR_BYTES];
    struct wire_contributor row = {.id = 1, .tokens = 1000};
    struct wire_meta meta = {.step = 100, .contributors = rows, .contributors_count = 1};
    struct wire_object what = {.shards = 1, .key = key};
    struct vec_source source = {.minuend = values};
    struct codec_part part = {.count = VALUES, .choice = {.id = CODEC_FP32}};
    size_t frame_bytes, fault, count;
    for (size_t i = 0; i < VALUES; i++)
        values[i] = number;
    wire_contributor_put(rows, 0, &row);
    assert_ok(codec_encode(codec, &part, 1, &source, NULL, wire_object_frame(object), &frame_bytes, &fault));
    assert_ok(wire_object_seal(&what, &meta, signer, object, frame_bytes, &count, &what.digest));
    struct result_id there = {.fragment = key.fragment,
                              .owner = key.owner,
                              .version = key.version,
                              .epoch = key.epoch,
                              .digest = what.digest};
    assert_ok(ledger_append(ledger, &there, object, count));
    return there;
}

static const struct wire_key one = {
    .kind = WIRE_RESULT, .fragment = F, .version = VERSION, .epoch = EPOCH, .owner = OWNER, .island = OWNER};

static void two_signed_results_of_one_part_are_equivocation(void **state)
{
    (void)state;
    struct ledger *ledger = ledgers_new("equivocation-two");
    struct result_id other, first = append(ledger, &owner, one, 1);
    assert_false(results_equivocation(ledger, &first, owner.key, &other)); /* not of itself */
    struct result_id again = append(ledger, &owner, one, 1);
    assert_true(digest_equal(&again.digest, &first.digest));
    assert_false(results_equivocation(ledger, &first, owner.key, &other));
    struct result_id second = append(ledger, &owner, one, 2);
    assert_true(results_equivocation(ledger, &second, owner.key, &other));
    assert_true(digest_equal(&other.digest, &first.digest));
    assert_true(results_equivocation(ledger, &first, owner.key, &other));
    assert_true(digest_equal(&other.digest, &second.digest));
    ledger_close(ledger);
}

static void results_of_other_parts_are_none(void **state)
{
    (void)state;
    struct ledger *ledger = ledgers_new("equivocation-parts");
    struct result_id other, first = append(ledger, &owner, one, 1);
    struct wire_key key = one;
    key.epoch++;
    append(ledger, &owner, key, 2);
    key = one;
    key.version++;
    append(ledger, &owner, key, 2);
    key = one;
    key.fragment++;
    append(ledger, &owner, key, 2);
    key = one;
    key.owner = key.island = OWNER + 1;
    append(ledger, &owner, key, 2);
    assert_false(results_equivocation(ledger, &first, owner.key, &other));
    ledger_close(ledger);
}

/* Nobody is evicted for what somebody else has signed in his name. */
static void only_signatures_of_the_owner_prove_it(void **state)
{
    (void)state;
    struct ledger *ledger = ledgers_new("equivocation-forged");
    struct result_id other, forged = append(ledger, &liar, one, 2), first = append(ledger, &owner, one, 1);
    assert_false(results_equivocation(ledger, &first, owner.key, &other));
    assert_false(results_equivocation(ledger, &forged, owner.key, &other));
    struct result_id nowhere = first;
    nowhere.digest.byte[0] ^= 1;
    assert_false(results_equivocation(ledger, &nowhere, owner.key, &other));
    struct result_id second = append(ledger, &owner, one, 3);
    assert_true(results_equivocation(ledger, &second, owner.key, &other)); /* past the forged one */
    assert_true(digest_equal(&other.digest, &first.digest));
    ledger_close(ledger);
}

int main(void)
{
    assert_ok(digest_init());
    assert_ok(codec_new(0, &codec));
    assert_ok(ident_generate(&owner));
    assert_ok(ident_generate(&liar));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_signed_results_of_one_part_are_equivocation),
        cmocka_unit_test(results_of_other_parts_are_none),
        cmocka_unit_test(only_signatures_of_the_owner_prove_it),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    codec_free(codec);
    return failed;
}
