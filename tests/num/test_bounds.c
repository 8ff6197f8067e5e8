/* SPDX-License-Identifier: Apache-2.0 */
/* What one contribution can do to a mean: bounds on its weight, its norm and its direction (outer_opt/weights,
 * outer_opt/outlier, outer_opt/direction). */
#include "tests/lib/testlib.h"

#include <math.h>
#include <string.h>

#include "outer_opt/direction.h"
#include "outer_opt/outlier.h"
#include "outer_opt/weights.h"

/* ---- norms ---- */

static const struct outlier_conf clip = {.action = OUTLIER_CLIP, .threshold = 3};
static const struct outlier_conf drop = {.action = OUTLIER_DROP, .threshold = 3};
static const float equal[] = {1, 1, 1, 1, 1};

static void assert_factors(const struct outlier_conf *conf, const double *norms, const float *weights, size_t count,
                           const float *want)
{
    float factors[5];
    size_t out = 0, said = outlier_judge(conf, norms, weights, count, factors);
    for (size_t i = 0; i < count; i++) {
        out += want[i] != 1;
        if (fabsf(factors[i] - want[i]) > 1e-6f * want[i])
            fail_msg("factor %zu is %g, not %g", i, (double)factors[i], (double)want[i]);
    }
    assert_int_equal(said, out);
}

/* From the first round on, whatever was before: nothing is remembered. */
static void what_is_far_above_the_others_is_brought_to_their_median(void **state)
{
    (void)state;
    assert_factors(&clip, (double[]){1, 1, 1000}, equal, 3, (float[]){1, 1, 1e-3f});
    assert_factors(&drop, (double[]){1, 1, 1000}, equal, 3, (float[]){1, 1, 0});
    assert_factors(&clip, (double[]){1, 2, 6.5}, equal, 3, (float[]){1, 1, 2 / 6.5f}); /* the upper one of two */
    /* Those that weigh nothing are no measure, however many they are. */
    const float turned[] = {1, 0, 1, 0, 1};
    assert_factors(&clip, (double[]){1, 900, 1, 900, 1000}, turned, 5, (float[]){1, 1, 1, 1, 1e-3f});
    assert_factors(&clip, (double[]){1, 1, 1e300}, equal, 3, (float[]){1, 1, 0});
    assert_factors(&clip, (double[]){1, 1, (double)INFINITY}, equal, 3, (float[]){1, 1, 0});
    assert_factors(&clip, (double[]){1, 50, 2, 40, 1.5}, equal, 5, (float[]){1, 2 / 50.0f, 1, 2 / 40.0f, 1});
}

static void what_is_within_three_medians_stays_to_the_bit(void **state)
{
    (void)state;
    assert_factors(&clip, (double[]){1, 1, 3}, equal, 3, (float[]){1, 1, 1});
    assert_factors(&clip, (double[]){0.01, 1, 2.9}, equal, 3, (float[]){1, 1, 1}); /* small is no harm */
    assert_factors(&clip, (double[]){5, 7, 9, 11, 15}, equal, 5, (float[]){1, 1, 1, 1, 1});
}

/* Of two nobody can say which of them is sick; who sends nothing, or no number, says nothing about the others. */
static void fewer_than_three_are_not_judged(void **state)
{
    (void)state;
    assert_factors(&clip, (double[]){1, 1e6}, equal, 2, (float[]){1, 1});
    assert_factors(&clip, (double[]){0, 1, 1e6}, equal, 3, (float[]){1, 1, 1});
    assert_factors(&clip, (double[]){1, 0, 0}, equal, 3, (float[]){1, 1, 1});
    assert_factors(&clip, (double[]){1, (double)NAN, 1e6}, equal, 3, (float[]){1, 1, 1});
}

/* Beside two that weigh, the largest of those that are turned away: small ones bring nobody down, and it is not judged
 * itself. */
static void of_three_one_that_is_turned_away_is_still_a_measure(void **state)
{
    (void)state;
    const float turned[] = {1, 1, 0}, two_turned[] = {0, 1, 1, 0, 0}, unequal[] = {4, 1, 0};
    assert_factors(&clip, (double[]){1, 1000, 2}, turned, 3, (float[]){1, 2e-3f, 1});
    assert_factors(&drop, (double[]){1, 1000, 2}, turned, 3, (float[]){1, 0, 1});
    assert_factors(&clip, (double[]){1, 2.9, 0.01}, turned, 3, equal);
    assert_factors(&clip, (double[]){1, 29, 10}, turned, 3, equal); /* it may be the first that is sick */
    assert_factors(&clip, (double[]){1, 1, 1000}, turned, 3, equal);
    assert_factors(&clip, (double[]){0.01, 1, 10, 5, 0.01}, two_turned, 5, equal);
    assert_factors(&clip, (double[]){0.01, 1, 50, 5, 0.01}, two_turned, 5, (float[]){1, 1, 0.1f, 1, 1});
    assert_factors(&clip, (double[]){11, 1, 1}, unequal, 3, equal); /* of four times the tokens */
    assert_factors(&clip, (double[]){13, 1, 1}, unequal, 3, (float[]){1 / 13.0f, 1, 1});
    assert_factors(&clip, (double[]){1, 1000, 0}, turned, 3, equal); /* it sent nothing */
}

/* While one is turned away, and another one sends ten times as much as all others in the wrong direction, nothing runs
 * away. */
static void beside_one_that_is_turned_away_another_carries_nothing_off(void **state)
{
    (void)state;
    double place = 100;
    for (int round = 0; round < 200; round++) {
        double norms[3] = {0.5 * fabs(place) + 0.01, 10 * fabs(place) + 1, 0.4 * fabs(place) + 0.01};
        const float weights[3] = {1, 1, 0};
        float factors[3];
        outlier_judge(&clip, norms, weights, 3, factors);
        place += 0.7 * (norms[1] * (double)factors[1] - norms[0]) / 2;
    }
    assert_true(fabs(place) < 110);
}

/* A weight is bounded by the others' and by missed rounds; within that, more work may be larger. */
static void who_weighs_more_may_be_larger(void **state)
{
    (void)state;
    assert_factors(&clip, (double[]){1, 1, 10, 1, 1}, (float[]){1, 1, 4, 1, 1}, 5, (float[]){1, 1, 1, 1, 1});
    assert_factors(&clip, (double[]){1, 1, 13, 1, 1}, (float[]){1, 1, 4, 1, 1}, 5, (float[]){1, 1, 1 / 13.0f, 1, 1});
    assert_factors(&clip, (double[]){1, 1, 2.9, 1, 1}, (float[]){1, 1, 0.1f, 1, 1}, 5, (float[]){1, 1, 1, 1, 1});
}

/* One island always sends ten times what the larger of two others does, away from where they want to go. What it sends
 * is bounded by what they send, and they send more the further they are: they have to win all the same. */
static void two_pull_against_one_and_win(void **state)
{
    (void)state;
    double place = 100;
    for (int round = 0; round < 200; round++) {
        double norms[3] = {0.5 * fabs(place) + 0.01, 0.4 * fabs(place) + 0.01, 10 * fabs(place) + 1};
        float factors[3];
        outlier_judge(&clip, norms, equal, 3, factors);
        double push = norms[2] * (double)factors[2];
        place += copysign(0.7 * (push - norms[0] - norms[1]) / 3, place) * (push > norms[0] + norms[1] ? 1 : -1);
    }
    assert_true(fabs(place) < 1);
}

/* ---- weights ---- */

static void assert_weights(double max, const struct weight_input *inputs, size_t count, const double *want)
{
    float weights[WEIGHT_INPUTS_MAX];
    weights_bound(max, inputs, count, weights);
    for (size_t i = 0; i < count; i++)
        if (fabs((double)weights[i] - want[i]) > 1e-6 * want[i])
            fail_msg("weight %zu is %g, not %g", i, (double)weights[i], want[i]);
}

static void tokens_within_the_bounds_are_the_weight(void **state)
{
    (void)state;
    static const struct weight_input one[] = {{1000000, 0, true}}, two[] = {{1000, 0, true}, {3999, 0, true}};
    static const struct weight_input five[] = {
        {1000, 0, true}, {1100, 0, true}, {900, 0, true}, {1900, 0, true}, {10, 0, true}};
    assert_weights(4, one, 1, (double[]){1000000});
    assert_weights(4, two, 2, (double[]){1000, 3999});
    assert_weights(4, five, 5, (double[]){1000, 1100, 900, 1505, 10}); /* half of what the others weigh */
}

/* A wrong token counter in one loop: it would own the mean. */
static void a_wrong_token_counter_does_not_own_the_mean(void **state)
{
    (void)state;
    const uint64_t huge = (uint64_t)1 << 62;
    const struct weight_input two[] = {{1000, 0, true}, {huge, 0, true}};
    const struct weight_input three[] = {{1000, 0, true}, {1000, 0, true}, {huge, 0, true}};
    const struct weight_input many[] = {{1000, 0, true}, {1000, 0, true}, {1000, 0, true}, {1000, 0, true},
                                        {1000, 0, true}, {1000, 0, true}, {1000, 0, true}, {1000, 0, true},
                                        {1000, 0, true}, {huge, 0, true}};
    assert_weights(4, two, 2, (double[]){1000, 4000});
    assert_weights(4, three, 3, (double[]){1000, 1000, 1000});
    assert_weights(4, many, 10, (double[]){1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 4000});
    assert_weights(2, many, 10, (double[]){1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 2000});
    /* Two of that kind: what they say of each other does not help them, as the median is the others'. */
    const struct weight_input five[] = {
        {1000, 0, true}, {1000, 0, true}, {1000, 0, true}, {huge, 0, true}, {huge, 0, true}};
    float weights[5];
    weights_bound(4, five, 5, weights);
    assert_true(weights[3] <= 3500.5f && weights[4] <= 3500.5f);
}

/* The work of several rounds at once weighs as much as that many rounds; how many results know, not the member. */
static void who_missed_rounds_brings_the_work_of_them(void **state)
{
    (void)state;
    struct weight_input in[10];
    double want[10];
    for (size_t i = 0; i < 10; i++) {
        in[i] = (struct weight_input){1000, 0, true};
        want[i] = 1000;
    }
    in[9] = (struct weight_input){4400, 0, true};
    want[9] = 4000;
    assert_weights(4, in, 10, want);
    in[9].missed = 1;
    want[9] = 4400;
    assert_weights(4, in, 10, want);
    in[9] = (struct weight_input){1000000, 1000, true};
    want[9] = 4500; /* of 8 rounds, as half of what the others weigh */
    assert_weights(4, in, 10, want);
    /* And in the others' median it stands for a round. */
    const struct weight_input two[] = {{8000, 7, true}, {5000, 0, true}};
    assert_weights(4, two, 2, (double[]){8000, 4000});
}

/* Whoever owns nothing is many, perhaps, and easily made. */
static void contributors_weigh_at_most_as_much_as_owners(void **state)
{
    (void)state;
    static const struct weight_input in[] = {{1000, 0, true},  {1000, 0, true},  {1000, 0, false}, {1000, 0, false},
                                             {1000, 0, false}, {1000, 0, false}, {90000, 0, false}};
    /* Of the last one half of what the others weigh is left, 3000; 7000 of them together become 2000. */
    assert_weights(4, in, 7, (double[]){1000, 1000, 2e6 / 7e3, 2e6 / 7e3, 2e6 / 7e3, 2e6 / 7e3, 6e6 / 7e3});
    static const struct weight_input one[] = {{1000, 0, true}, {1000, 0, false}, {500, 0, false}};
    assert_weights(4, one, 3, (double[]){750, 450, 300});
}

static void the_order_of_contributions_does_not_matter(void **state)
{
    (void)state;
    struct env_rng rng = env_rng_init(41, 0);
    for (int trial = 0; trial < 300; trial++) {
        enum { MOST = 12 };
        size_t count = 1 + (size_t)env_rng_below(&rng, MOST);
        struct weight_input in[MOST], turned[MOST];
        float weights[MOST], again[MOST];
        for (size_t i = 0; i < count; i++)
            in[i] = (struct weight_input){1 + env_rng_below(&rng, 5000), env_rng_below(&rng, 12), i % 3 != 0};
        for (size_t i = 0; i < count; i++)
            turned[i] = in[count - 1 - i];
        weights_bound(4, in, count, weights);
        weights_bound(4, turned, count, again);
        for (size_t i = 0; i < count; i++) {
            assert_true(weights[i] > 0 && (double)weights[i] <= 1.0000001 * (double)in[i].tokens);
            assert_true(fabsf(weights[i] - again[count - 1 - i]) <= 1e-6f * weights[i]);
        }
    }
}

/* ---- directions ---- */

static uint32_t after(uint32_t state, const char *rounds)
{
    for (; *rounds != '\0'; rounds++)
        state = direction_next(state, *rounds == '-');
    return state;
}

static void five_rounds_below_turn_away_and_five_others_bring_back(void **state)
{
    (void)state;
    assert_false(direction_turned(after(0, "----")));
    assert_true(direction_turned(after(0, "-----")));
    assert_false(direction_turned(after(0, "----+----")));
    assert_true(direction_turned(after(0, "-----++++-++++")));
    assert_false(direction_turned(after(0, "-----++++-+++++")));
    assert_int_equal(after(0, "-----+++++"), 0); /* as if nothing had been */
    for (uint32_t s = 0; s < DIRECTION_STATES; s++)
        assert_true(after(s, "-") < DIRECTION_STATES && after(s, "+") < DIRECTION_STATES);
}

/* Letters: O an owner, o one that is turned away; C, c: who owns nothing. */
static size_t makers_of(const char *text, struct direction_input *makers)
{
    size_t count = strlen(text);
    for (size_t i = 0; i < count; i++)
        makers[i] = (struct direction_input){.owner = text[i] == 'O' || text[i] == 'o',
                                             .turned = text[i] == 'o' || text[i] == 'c'};
    return count;
}

static void assert_weightless(const char *text, const char *want)
{
    struct direction_input makers[16] = {{0}};
    bool out[16];
    size_t count = makers_of(text, makers);
    direction_weightless(makers, count, out);
    for (size_t i = 0; i < count; i++)
        if (out[i] != (want[i] == '1'))
            fail_msg("%s: number %zu weighs %s", text, i, out[i] ? "nothing" : "something");
}

/* A minority that works together turns nobody else away, and strangers none of the owners. */
static void no_more_than_half_of_the_owners_weigh_nothing(void **state)
{
    (void)state;
    assert_weightless("OOo", "..1");
    assert_weightless("OOOoo", "...11");
    assert_weightless("OOooo", ".....");
    assert_weightless("ooo", "...");
    assert_weightless("o", ".");
    assert_weightless("Oo", ".1"); /* what three could tell is not forgotten when one of them is away */
    assert_weightless("OOocccc", "..11111");
    assert_weightless("ooOCCCC", ".......");
    assert_weightless("CCc", "..1");
    assert_weightless("Ccc", "...");
}

static void assert_judges(const char *text, const char *judges, const char *judged)
{
    struct direction_input makers[16] = {{0}};
    bool weighs[16] = {0}, by[16], of[16], any = false;
    size_t count = makers_of(text, makers);
    for (size_t i = 0; i < count; i++)
        weighs[i] = !makers[i].turned;
    bool said = direction_judges(makers, weighs, count, by, of);
    for (size_t i = 0; i < count; i++) {
        any |= of[i];
        if (by[i] != (judges[i] == '1') || of[i] != (judged[i] == '1'))
            fail_msg("%s: number %zu", text, i);
    }
    assert_true(said == any);
}

static void owners_are_judged_by_two_other_owners_or_not_at_all(void **state)
{
    (void)state;
    assert_judges("OO", "11", "..");
    assert_judges("OOO", "111", "111");
    assert_judges("OOo", "11.", "..1"); /* of the two nobody can tell which is wrong */
    assert_judges("Oo", "1.", "..");
    assert_judges("OOCC", "11..", "..11");
    assert_judges("OOOCc", "111..", "11111");
    assert_judges("OCC", "111", ".11");
    assert_judges("CCC", "111", "111");
    assert_judges("OC", "11", "..");
}

/* By its definition, of contributions in so many dimensions. `cosines`: out. */
static void judge_all(const double (*sent)[3], const float *weights, size_t count, float *cosines)
{
    bool judges[8];
    double along[8], squares[8], all[3] = {0};
    struct direction_sums sums[8] = {{0}};
    for (size_t i = 0; i < count; i++) {
        judges[i] = true;
        for (int k = 0; k < 3; k++)
            all[k] += (double)weights[i] * sent[i][k];
    }
    for (size_t i = 0; i < count; i++) {
        along[i] = squares[i] = 0;
        for (int k = 0; k < 3; k++) {
            along[i] += sent[i][k] * all[k];
            squares[i] += sent[i][k] * sent[i][k];
        }
    }
    direction_add(judges, weights, along, squares, count, sums);
    for (size_t i = 0; i < count; i++) {
        double square = direction_cosine_square(&sums[i]);
        cosines[i] = (float)copysign(sqrt(fabs(square)), square);
    }
}

static void who_goes_against_the_others_is_below(void **state)
{
    (void)state;
    float cosines[5];
    const double turned[3][3] = {{1, 0.6, 0}, {1, -0.6, 0}, {-1, 0, 0.6}};
    judge_all(turned, equal, 3, cosines);
    assert_true(cosines[2] < -0.8f && cosines[0] > DIRECTION_LEAST && cosines[1] > DIRECTION_LEAST);
    /* As much as the others weigh, it counts among them. */
    const float heavy[3] = {1, 7, 1};
    const double odd[3][3] = {{1, 0, 0}, {0.5, 1, 0}, {-1, 1, 0}};
    judge_all(odd, heavy, 3, cosines);
    assert_true(fabs((double)cosines[2] - 2.5 / sqrt(2 * (4.5 * 4.5 + 49))) < 1e-6);
}

/* Of large parts one piece in so many; another one when anything else was contributed. */
static void one_piece_in_eight_of_a_large_part_is_looked_at(void **state)
{
    (void)state;
    for (uint64_t times = 0; times < 20; times++) {
        uint64_t of = times < 1 ? 1 : times > DIRECTION_OF ? DIRECTION_OF : times;
        unsigned looked = 0, moved = 0;
        for (uint64_t piece = 0; piece < 64 * of; piece++) {
            bool looks = direction_looks(5, times * DIRECTION_VALUES_MIN, piece, 1000);
            looked += looks;
            moved += looks != direction_looks(6, times * DIRECTION_VALUES_MIN, piece, 1000);
        }
        assert_int_equal(looked, 64);
        assert_true(of == 1 ? moved == 0 : moved > 16);
    }
    /* Of few large ones no fewer than one: else it would look at none of them, more often than not. */
    for (uint64_t pieces = 1; pieces <= 2 * DIRECTION_OF; pieces++)
        for (uint64_t seed = 0; seed < 100; seed++) {
            unsigned looked = 0;
            for (uint64_t piece = 0; piece < pieces; piece++)
                looked += direction_looks(seed, 100 * DIRECTION_VALUES_MIN, piece, 100 * DIRECTION_VALUES_MIN / pieces);
            assert_in_range(looked, pieces / DIRECTION_OF > 0 ? pieces / DIRECTION_OF : 1, pieces);
        }
}

/* At rest the sum of all is nothing, and each the opposite of all others: data that differ are no fault. */
static void where_the_others_point_against_each_other_nobody_is_below(void **state)
{
    (void)state;
    float cosines[5];
    const double rest[3][3] = {{1, 0, 0}, {-0.5, 0.866, 0}, {-0.5, -0.866, 0}};
    judge_all(rest, equal, 3, cosines);
    for (int i = 0; i < 3; i++)
        assert_true(cosines[i] == 0);
    const double line[5][3] = {{-2, 0, 0}, {-1, 0, 0}, {0, 0.1, 0}, {1, 0, 0}, {2, 0, 0}};
    judge_all(line, equal, 5, cosines);
    for (int i = 0; i < 5; i++)
        assert_true(!(cosines[i] < DIRECTION_LEAST));
    const double none[3][3] = {{0, 0, 0}, {1, 0, 0}, {1, 0, 0}};
    judge_all(none, equal, 3, cosines);
    assert_true(cosines[0] == 0);
    const double broken[3][3] = {{(double)NAN, 0, 0}, {1, 0, 0}, {1, 0, 0}};
    judge_all(broken, equal, 3, cosines);
    assert_true(cosines[0] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_far_above_the_others_is_brought_to_their_median),
        cmocka_unit_test(what_is_within_three_medians_stays_to_the_bit),
        cmocka_unit_test(fewer_than_three_are_not_judged),
        cmocka_unit_test(of_three_one_that_is_turned_away_is_still_a_measure),
        cmocka_unit_test(beside_one_that_is_turned_away_another_carries_nothing_off),
        cmocka_unit_test(who_weighs_more_may_be_larger),
        cmocka_unit_test(two_pull_against_one_and_win),
        cmocka_unit_test(tokens_within_the_bounds_are_the_weight),
        cmocka_unit_test(a_wrong_token_counter_does_not_own_the_mean),
        cmocka_unit_test(who_missed_rounds_brings_the_work_of_them),
        cmocka_unit_test(contributors_weigh_at_most_as_much_as_owners),
        cmocka_unit_test(the_order_of_contributions_does_not_matter),
        cmocka_unit_test(five_rounds_below_turn_away_and_five_others_bring_back),
        cmocka_unit_test(no_more_than_half_of_the_owners_weigh_nothing),
        cmocka_unit_test(owners_are_judged_by_two_other_owners_or_not_at_all),
        cmocka_unit_test(who_goes_against_the_others_is_below),
        cmocka_unit_test(one_piece_in_eight_of_a_large_part_is_looked_at),
        cmocka_unit_test(where_the_others_point_against_each_other_nobody_is_below),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
