/* results: whom a result in the ledger counts, and what is taken for true when that cannot be known. */
#include "tests/lib/testlib.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/mem.h"
#include "daemon/state/results.h"
#include "outer_opt/codec.h"

enum { VALUES = CODEC_BLOCK, US = 2, OTHER = 0, THIRD = 5, VERSION = 7, EPOCH = 4 };

struct object {
    uint8_t bytes[8192];
    size_t count;
};

static struct codec *codec;
static struct digest run_id;
static struct ident ident;

/* What a member contributed. */
static struct digest contribution(uint32_t id)
{
    return digest_of(&id, sizeof id);
}

static struct ledger *open_ledger(const char *name)
{
    struct ledger *ledger;
    struct ledger_conf conf = {.folder = testlib_folder(name),
                               .run_id = run_id,
                               .nonce = run_id.byte,
                               .segment_bytes = 1 << 20,
                               .keep_bytes = 1 << 20};
    assert_ok(ledger_open(&conf, &ledger));
    return ledger;
}

/* A result whose numbers are all `number`, counting the islands of a list that ends with UINT32_MAX. The first has no
 * weight, as one that was left out. */
static struct ledger_key make_of(uint64_t shards, uint64_t epoch, uint32_t f, uint64_t version, uint32_t owner,
                                 float number, const uint32_t *islands, struct object *object)
{
    float values[VALUES];
    uint8_t rows[WIRE_MEMBERS_MAX * WIRE_CONTRIBUTOR_BYTES];
    struct wire_meta meta = {.step = 100, .contributors = rows};
    struct wire_object what = {.shards = shards};
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
    return result_key(&what);
}

static struct ledger_key make_in(uint64_t epoch, uint32_t f, uint64_t version, uint32_t owner, float number,
                                 const uint32_t *islands, struct object *object)
{
    return make_of((uint64_t)1 << owner, epoch, f, version, owner, number, islands, object);
}

/* Of one shard, which is numbered as its owner is. */
static struct ledger_key make(uint32_t f, uint64_t version, uint32_t owner, float number, const uint32_t *islands,
                              struct object *object)
{
    return make_in(EPOCH, f, version, owner, number, islands, object);
}

#define ISLANDS(...) ((const uint32_t[]){__VA_ARGS__, UINT32_MAX})

static struct ledger_key append_counting(struct ledger *ledger, uint32_t f, uint64_t version, uint32_t owner,
                                         const uint32_t *islands)
{
    struct object object;
    struct ledger_key key = make(f, version, owner, 1, islands, &object);
    assert_ok(ledger_append(ledger, &key, object.bytes, object.count, false));
    return key;
}

/* One whose metadata was damaged since it was looked at. */
static struct ledger_key append_rotten(struct ledger *ledger, uint32_t f, uint32_t owner)
{
    struct object object;
    struct ledger_key key = make(f, VERSION, owner, 1, ISLANDS(OTHER, US), &object);
    object.bytes[object.count - 1] ^= 1;
    assert_ok(ledger_append(ledger, &key, object.bytes, object.count, false));
    return key;
}

static void a_result_is_opened_in_place(void **state)
{
    (void)state;
    struct ledger *ledger = open_ledger("results-open");
    struct object objects[3];
    struct ledger_key keys[3];
    struct result results[3];
    for (uint32_t s = 0; s < 3; s++) {
        keys[s] = make(1, VERSION, s, (float)s, ISLANDS(s, s + 10), &objects[s]);
        assert_ok(ledger_append(ledger, &keys[s], objects[s].bytes, objects[s].count, false));
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
    struct ledger *ledger = open_ledger("results-bad");
    struct result result;
    struct ledger_key rotten = append_rotten(ledger, 0, 0);
    struct ledger_key good = append_counting(ledger, 0, VERSION, 3, ISLANDS(US));
    struct ledger_key none[] = {good, good, good, good, good};
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

static void the_first_of_an_owners_results_is_found(void **state)
{
    (void)state;
    struct ledger *ledger = open_ledger("results-first");
    struct object object;
    struct ledger_key got, first = append_counting(ledger, 1, VERSION, 2, ISLANDS(OTHER));
    append_counting(ledger, 1, VERSION, 2, ISLANDS(OTHER, US));
    append_counting(ledger, 1, VERSION, 3, ISLANDS(US));
    struct ledger_key later = make_in(EPOCH + 1, 1, VERSION, 2, 1, ISLANDS(THIRD), &object);
    assert_ok(ledger_append(ledger, &later, object.bytes, object.count, false));
    assert_true(results_find(ledger, 1, VERSION, EPOCH, 2, &got));
    assert_true(digest_equal(&got.digest, &first.digest) && got.owner == 2 && got.epoch == EPOCH);
    assert_true(results_find(ledger, 1, VERSION, EPOCH + 1, 2, &got));
    assert_true(digest_equal(&got.digest, &later.digest) && got.epoch == EPOCH + 1);
    assert_false(results_find(ledger, 1, VERSION, EPOCH + 1, 3, &got));
    assert_false(results_find(ledger, 1, VERSION, EPOCH, 4, &got));
    assert_false(results_find(ledger, 1, VERSION + 1, EPOCH, 2, &got));
    assert_false(results_find(ledger, 0, VERSION, EPOCH, 2, &got));
    ledger_close(ledger);
}

/* ---- which shards of an applied version count us ---- */

/* Says that these made version VERSION of fragment 1. */
static void commit(struct ledger *ledger, const struct ledger_key *keys, uint32_t count)
{
    struct ledger_commit made = {.fragment = 1, .version = VERSION, .parts_count = count};
    for (uint32_t i = 0; i < count; i++)
        made.parts[i] = (struct ledger_part){.epoch = keys[i].epoch, .owner = keys[i].owner, .digest = keys[i].digest};
    assert_ok(ledger_append_commit(ledger, &made, false));
}

static void assert_counting(struct ledger *ledger, uint64_t asked, bool lost_counts, uint64_t counting)
{
    assert_int_equal(results_counting(ledger, 1, VERSION, asked, US, lost_counts), counting);
    assert_int_equal(maps(), 0);
}

static void of_the_shards_asked_for_those_that_count_us_are_said(void **state)
{
    (void)state;
    struct ledger *ledger = open_ledger("results-counting");
    const uint64_t all = 1ull << 63 | 1 << 4 | 1 << 3 | 1 << 1 | 1 << 0;
    struct ledger_key keys[] = {append_counting(ledger, 1, VERSION, 0, ISLANDS(OTHER, US)),
                                append_counting(ledger, 1, VERSION, 1, ISLANDS(OTHER, THIRD)),
                                append_counting(ledger, 1, VERSION, 3, ISLANDS(US)), /* with no weight, and counted */
                                append_counting(ledger, 1, VERSION, 4, ISLANDS(OTHER)),
                                append_counting(ledger, 1, VERSION, 63, ISLANDS(US, THIRD))};
    /* Neither other versions nor other fragments are asked, nor what was received and made nothing. */
    append_counting(ledger, 1, VERSION - 1, 1, ISLANDS(US));
    append_counting(ledger, 1, VERSION + 1, 1, ISLANDS(US));
    append_counting(ledger, 0, VERSION, 1, ISLANDS(US));
    append_counting(ledger, 1, VERSION, 1, ISLANDS(US));
    commit(ledger, keys, 5);
    for (int lost_counts = 0; lost_counts < 2; lost_counts++) {
        assert_counting(ledger, all, lost_counts, 1ull << 63 | 1 << 3 | 1 << 0);
        assert_counting(ledger, 1 << 1 | 1 << 3 | 1 << 4, lost_counts, 1 << 3);
        assert_counting(ledger, 1 << 1 | 1 << 4, lost_counts, 0);
        assert_counting(ledger, 0, lost_counts, 0);
    }
    ledger_close(ledger);
}

/* A part is of several shards, and in the first version of an epoch an owner may have made two. */
static void a_part_counts_for_all_its_shards(void **state)
{
    (void)state;
    struct ledger *ledger = open_ledger("results-parts");
    struct object object;
    struct ledger_key keys[2];
    keys[0] = make_of(0x35, EPOCH, 1, VERSION, 2, 1, ISLANDS(OTHER, US), &object);
    assert_ok(ledger_append(ledger, &keys[0], object.bytes, object.count, false));
    keys[1] = make_of(0xca, EPOCH + 1, 1, VERSION, 2, 1, ISLANDS(OTHER), &object);
    assert_ok(ledger_append(ledger, &keys[1], object.bytes, object.count, false));
    commit(ledger, keys, 2);
    assert_counting(ledger, 0xff, false, 0x35);
    assert_counting(ledger, 0xff, true, 0x35);
    assert_counting(ledger, 0xf0, true, 0x30);
    ledger_close(ledger);
}

/* Its contribution may have been counted there: to count work twice would be worse than to give it up. */
static void a_result_that_is_not_known_any_more_is_taken_to_count_us(void **state)
{
    (void)state;
    struct ledger *ledger = open_ledger("results-gone");
    struct object object;
    struct ledger_key keys[] = {append_counting(ledger, 1, VERSION, 0, ISLANDS(OTHER)),
                                append_counting(ledger, 1, VERSION, 1, ISLANDS(US)),
                                make(1, VERSION, 2, 1, ISLANDS(OTHER), &object)}; /* is not appended */
    assert_counting(ledger, 1 << 0 | 1 << 1, true, 1 << 0 | 1 << 1);              /* nothing says what made it */
    assert_counting(ledger, 1 << 0 | 1 << 1, false, 0);
    commit(ledger, keys, 3);
    assert_counting(ledger, 1 << 0 | 1 << 1 | 1 << 2, true, 1 << 1 | 1 << 2);
    assert_counting(ledger, 1 << 0 | 1 << 1 | 1 << 2, false, 1 << 1);
    assert_counting(ledger, 1ull << 40 | 1 << 2, true, 1ull << 40 | 1 << 2);
    ledger_close(ledger);
}

/* A byte of the disk turns after the ledger was opened. */
static void a_result_that_cannot_be_read_any_more_is_taken_to_count_us(void **state)
{
    (void)state;
    struct ledger *ledger = open_ledger("results-rotten");
    struct ledger_key keys[] = {append_counting(ledger, 1, VERSION, 0, ISLANDS(OTHER)), append_rotten(ledger, 1, 1)};
    commit(ledger, keys, 2);
    assert_counting(ledger, 1 << 0 | 1 << 1, true, 1 << 1);
    assert_counting(ledger, 1 << 0 | 1 << 1, false, 0);
    ledger_close(ledger);
}

int main(void)
{
    assert_ok(digest_init());
    run_id = digest_of("run", 3);
    assert_ok(ident_generate(&ident));
    assert_ok(codec_new(0, &codec));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_result_is_opened_in_place),
        cmocka_unit_test(what_cannot_be_opened_leaves_nothing_to_close),
        cmocka_unit_test(a_contributor_counts_whatever_its_weight),
        cmocka_unit_test(a_contribution_counts_and_no_other_of_the_same_island),
        cmocka_unit_test(the_first_of_an_owners_results_is_found),
        cmocka_unit_test(of_the_shards_asked_for_those_that_count_us_are_said),
        cmocka_unit_test(a_part_counts_for_all_its_shards),
        cmocka_unit_test(a_result_that_is_not_known_any_more_is_taken_to_count_us),
        cmocka_unit_test(a_result_that_cannot_be_read_any_more_is_taken_to_count_us),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    codec_free(codec);
    return failed;
}
