/* SPDX-License-Identifier: Apache-2.0 */
/* standing: who was an outlier, as results say: counted, and forgotten after eight results; and who is turned away, of
 * what it has sent lately. */
#include "tests/lib/testlib.h"

#include <string.h>

#include "daemon/rounds/standing.h"
#include "tests/lib/overhear.h"

enum { ANA, BOB, CYD, MEMBERS };
static struct view_member members[MEMBERS] = {{.used = true, .as.id = 3, .as.name = "ana"},
                                              {.used = true, .as.id = 13, .as.name = "bob"},
                                              {.used = true, .as.id = 23, .as.name = "cyd"}};
static struct view_place places[MEMBERS] = {{3, ANA}, {13, BOB}, {23, CYD}};
static const struct view view = {
    .members = members, .count = MEMBERS, .self = ANA, .places = places, .places_count = MEMBERS};

/* A result over the first `count` of them and a stranger, in which the last of them has this factor. */
static void note(struct standing *standing, uint32_t count, float factor, bool tell)
{
    uint8_t rows[(MEMBERS + 1) * WIRE_CONTRIBUTOR_BYTES];
    struct wire_meta meta = {.contributors = rows, .contributors_count = count + (count == MEMBERS)};
    for (uint32_t i = 0; i < meta.contributors_count; i++) {
        struct wire_contributor row = {
            .id = 3 + 10 * i, .norm = testlib_float_bits(2), .factor = testlib_float_bits(i + 1 == count ? factor : 1)};
        wire_contributor_put(rows, i, &row);
    }
    standing_note(standing, &view, &meta, 0, 7, 1000, tell);
}

static void assert_standing(const struct standing *standing, uint32_t member, uint64_t all, unsigned lately)
{
    unsigned said;
    assert_int_equal(standing_outliers(standing, member, &said), all);
    assert_int_equal(said, lately);
}

static void who_sends_what_is_usual_again_is_forgotten_after_eight_results(void **state)
{
    (void)state;
    struct standing standing = {0};
    assert_standing(&standing, CYD, 0, 0);
    assert_ok(standing_members(&standing, 2));
    assert_ok(standing_members(&standing, MEMBERS));
    assert_ok(standing_members(&standing, 1)); /* nobody is taken away */
    note(&standing, MEMBERS, 0, false);
    note(&standing, MEMBERS, 0.5f, false);
    assert_standing(&standing, CYD, 2, 2);
    assert_standing(&standing, ANA, 0, 0);
    for (unsigned i = 1; i <= 8; i++) {
        note(&standing, 2, 0.5f, false); /* two are not judged */
        note(&standing, MEMBERS, 1, false);
        assert_standing(&standing, CYD, 2, i < 7 ? 2 : 8 - i);
    }
    assert_standing(&standing, BOB, 0, 0);
    assert_standing(&standing, MEMBERS, 0, 0);
    standing_deinit(&standing);
}

static void who_takes_a_slot_is_not_blamed_for_the_one_before(void **state)
{
    (void)state;
    struct standing standing = {0};
    assert_ok(standing_members(&standing, MEMBERS));
    note(&standing, MEMBERS, 0, false);
    assert_standing(&standing, CYD, 1, 1);
    standing_forget(&standing, CYD);
    standing_forget(&standing, MEMBERS); /* there is none */
    assert_standing(&standing, CYD, 0, 0);
    standing_deinit(&standing);
}

static const struct plan plan = {
    .fragments = (struct plan_fragment[]){{.values_count = 64 * PLAN_BLOCK, .shards_count = 64},
                                          {.values_count = 128 * PLAN_BLOCK, .shards_count = 64}},
    .fragments_count = 2,
};

/* The fragment counts bob's newest contribution, of `newest`, to all shards, and of cyd one to these shards. */
static void counts(struct standing *standing, uint32_t f, uint64_t newest, uint64_t shards, uint64_t version,
                   uint32_t direction)
{
    struct dedup_row rows[] = {{.id = 13, .shards = UINT64_MAX, .version = newest},
                               {.id = 23, .shards = shards, .version = version, .direction = direction}};
    struct dedup counted = {.rows = rows, .count = shards != 0 ? 2 : 1};
    standing_turned(standing, &view, f, &counted, 1000, false);
}

static void who_contributes_to_less_is_turned_away_by_that(void **state)
{
    (void)state;
    struct standing standing;
    assert_ok(standing_init(&standing, &plan));
    assert_ok(standing_members(&standing, MEMBERS));
    counts(&standing, 0, 50, UINT64_MAX, 50, DIRECTION_ROUNDS); /* the smaller fragment of the two */
    counts(&standing, 1, 50, UINT64_MAX, 50, 0);
    assert_false(standing_turned_away(&standing, CYD));
    counts(&standing, 1, 50, 0, 0, 0); /* it has never sent anything of the larger one; */
    assert_true(standing_turned_away(&standing, CYD));
    counts(&standing, 1, 50, UINT64_MAX, 41, 0); /* nor of late: */
    assert_false(standing_turned_away(&standing, CYD));
    counts(&standing, 1, 51, UINT64_MAX, 41, 0);
    assert_true(standing_turned_away(&standing, CYD));
    counts(&standing, 1, 51, 1, 51, 0); /* a contribution to one shard alone is its say of that fragment */
    assert_false(standing_turned_away(&standing, CYD));
    counts(&standing, 1, 51, 1, 51, DIRECTION_ROUNDS);
    assert_true(standing_turned_away(&standing, CYD));
    counts(&standing, 0, 90, UINT64_MAX, 50, DIRECTION_ROUNDS); /* it sends nothing any more */
    counts(&standing, 1, 90, 1, 51, DIRECTION_ROUNDS);
    assert_true(standing_turned_away(&standing, CYD));
    assert_false(standing_turned_away(&standing, BOB));
    standing_forget(&standing, CYD);
    assert_false(standing_turned_away(&standing, CYD));
    standing_deinit(&standing);
}

static void news_of_an_outlier_are_told(void **state)
{
    (void)state;
    struct standing standing = {0};
    assert_ok(standing_members(&standing, MEMBERS));
    overhear_begin();
    note(&standing, MEMBERS, 0.5f, false);
    assert_string_equal(overhear_end(), "");
    overhear_begin();
    note(&standing, MEMBERS, 0.5f, true);
    assert_non_null(strstr(overhear_end(),
                           "version 7: the contribution of island cyd, of norm 2, is far larger than the "
                           "others'; scaled down (the 2. time)"));
    standing_deinit(&standing);
}

/* A result over all of them, in which cyd says that it trained so many times the tokens, and weighs as much. */
static void claim(struct standing *standing, uint64_t times, float weight, bool tell)
{
    uint8_t rows[MEMBERS * WIRE_CONTRIBUTOR_BYTES];
    struct wire_meta meta = {.contributors = rows, .contributors_count = MEMBERS};
    for (uint32_t i = 0; i < MEMBERS; i++) {
        struct wire_contributor row = {.id = 3 + 10 * i,
                                       .tokens = i == CYD ? 100 * times : 100,
                                       .weight = testlib_float_bits(i == CYD ? 100 * weight : 100),
                                       .factor = testlib_float_bits(1)};
        wire_contributor_put(rows, i, &row);
    }
    standing_note(standing, &view, &meta, 0, 7, 1000, tell);
}

static void who_claims_far_more_tokens_than_count_is_named(void **state)
{
    (void)state;
    static const struct {
        uint64_t times;
        float weight;
        bool named;
    } cases[] = {{17, 4, true}, {16, 4, false}, {17, 17, false}, {1000000, 0, true}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct standing standing = {0}, after = {0};
        assert_ok(standing_members(&standing, MEMBERS));
        assert_ok(standing_members(&after, MEMBERS));
        overhear_begin();
        for (int i = 0; i < STANDING_CLAIMS; i++) {
            assert_false(standing_claims_much(&standing, CYD));
            claim(&standing, cases[k].times, cases[k].weight, true);
        }
        assert_true(standing_claims_much(&standing, CYD) == cases[k].named);
        assert_int_equal(overhear_count(overhear_end(), "island cyd says that it trained"), cases[k].named);
        assert_false(standing_claims_much(&standing, ANA) || standing_claims_much(&standing, MEMBERS));
        standing_add(&after, &standing); /* as when it starts again */
        assert_true(standing_claims_much(&after, CYD) == cases[k].named);
        for (int i = 0; i < 8; i++)
            claim(&after, 1, 1, false);
        assert_false(standing_claims_much(&after, CYD));
        standing_deinit(&standing);
        standing_deinit(&after);
    }
}

static void of_two_nobody_knows_who_claims_too_much(void **state)
{
    (void)state;
    struct standing standing = {0};
    uint8_t rows[2 * WIRE_CONTRIBUTOR_BYTES];
    struct wire_meta meta = {.contributors = rows, .contributors_count = 2};
    assert_ok(standing_members(&standing, MEMBERS));
    for (uint32_t i = 0; i < 2; i++) {
        struct wire_contributor row = {
            .id = 3 + 10 * i, .tokens = i == BOB ? 100000 : 1, .weight = testlib_float_bits(1)};
        wire_contributor_put(rows, i, &row);
    }
    for (int i = 0; i < 8; i++)
        standing_note(&standing, &view, &meta, 0, 7, 1000, false);
    assert_false(standing_claims_much(&standing, BOB));
    standing_deinit(&standing);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_sends_what_is_usual_again_is_forgotten_after_eight_results),
        cmocka_unit_test(who_takes_a_slot_is_not_blamed_for_the_one_before),
        cmocka_unit_test(who_contributes_to_less_is_turned_away_by_that),
        cmocka_unit_test(news_of_an_outlier_are_told),
        cmocka_unit_test(who_claims_far_more_tokens_than_count_is_named),
        cmocka_unit_test(of_two_nobody_knows_who_claims_too_much),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
