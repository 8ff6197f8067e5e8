/* SPDX-License-Identifier: Apache-2.0 */
/* outer_opt: plan, schedule, codecs, mean, outer optimizers and version hash, against independent vectors and bounds.
 */
#include "tests/lib/testlib.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/digest.h"
#include "common/mem.h"
#include "outer_opt/outer.h"
#include "outer_opt/plan.h"
#include "outer_opt/schedule.h"
#include "outer_opt/vec.h"
#include "outer_opt/vhash.h"

static const struct vec_ops *tables[3];
static size_t tables_count;

/* ---- vectors ---- */

static void e3m0_vectors_hold_bit_for_bit(void **state)
{
    (void)state;
    size_t index;
    json_t *item;
    json_array_foreach (testlib_cases("e3m0"), index, item) {
        float x[256] = {0}, decoded[256], got[256];
        size_t count = testlib_hex_floats(json_object_get(item, "input_f32"), x, 256);
        testlib_hex_floats(json_object_get(item, "decoded_f32"), decoded, 256);
        unsigned scale = (unsigned)strtoul(json_string_value(json_object_get(item, "scale_bf16")), NULL, 16);
        json_t *codes = json_object_get(item, "codes");
        for (size_t t = 0; t < tables_count; t++) {
            const struct vec_codec *e3m0 = &tables[t]->codec[CODEC_E3M0];
            uint8_t raw[130];
            struct vec_source source = {.minuend = x};
            assert_int_equal(e3m0->encode(&source, 1, raw, NULL), 1);
            assert_int_equal(raw[0] | raw[1] << 8, scale);
            for (size_t i = 0; i < 256; i++) {
                unsigned code = i < 128 ? raw[2 + i] & 15u : raw[2 + i - 128] >> 4;
                unsigned want = i < count ? (unsigned)json_integer_value(json_array_get(codes, i)) : 0;
                if (code != want)
                    fail_msg("%s: code %zu is %u, not %u", tables[t]->name, i, code, want);
            }
            e3m0->decode(raw, raw + e3m0->head_bytes, 1, got);
            for (size_t i = 0; i < count; i++)
                assert_int_equal(testlib_float_bits(got[i]), testlib_float_bits(decoded[i]));
        }
    }
}

static void mean_vectors_hold_bit_for_bit(void **state)
{
    (void)state;
    size_t index;
    json_t *item;
    json_array_foreach (testlib_cases("mean"), index, item) {
        float weights[8];
        size_t islands = testlib_hex_floats(json_object_get(item, "weights"), weights, 8);
        float want[256];
        size_t count = testlib_hex_floats(json_object_get(item, "mean_f32"), want, 256);
        for (size_t t = 0; t < tables_count; t++) {
            float sum[256] = {0};
            for (size_t i = 0; i < islands; i++) {
                float x[256] = {0};
                uint8_t raw[1024];
                testlib_hex_floats(json_array_get(json_object_get(item, "inputs_f32"), i), x, 256);
                struct vec_source source = {.minuend = x};
                assert_int_equal(tables[t]->codec[CODEC_FP32].encode(&source, 1, raw, NULL), 1);
                tables[t]->codec[CODEC_FP32].decode_add(raw, raw + tables[t]->codec[CODEC_FP32].head_bytes, 1,
                                                        weights[i], sum);
            }
            outer_mean_finish(sum, 256, weights, islands);
            for (size_t i = 0; i < count; i++)
                assert_int_equal(testlib_float_bits(sum[i]), testlib_float_bits(want[i]));
        }
    }
}

static void nesterov_vectors_hold_bit_for_bit(void **state)
{
    (void)state;
    size_t index;
    json_t *item;
    json_array_foreach (testlib_cases("nesterov"), index, item) {
        struct outer_conf conf = {.kind = OUTER_NESTEROV,
                                  .lr = (float)json_number_value(json_object_get(item, "lr")),
                                  .momentum = (float)json_number_value(json_object_get(item, "momentum"))};
        float theta[64], buffer[64] = {0};
        size_t count = testlib_hex_floats(json_object_get(item, "theta_f32"), theta, 64);
        json_t *deltas = json_object_get(item, "deltas_f32");
        json_t *trajectory = json_object_get(item, "trajectory_f32");
        for (size_t round = 0; round < json_array_size(deltas); round++) {
            float delta[64], want[64];
            testlib_hex_floats(json_array_get(deltas, round), delta, 64);
            testlib_hex_floats(json_array_get(trajectory, round), want, 64);
            struct outer_round numbers = outer_round_of(&conf, round + 1);
            outer_step(&conf, &numbers, theta, buffer, delta, count);
            for (size_t i = 0; i < count; i++)
                assert_int_equal(testlib_float_bits(theta[i]), testlib_float_bits(want[i]));
        }
        float momentum[64];
        testlib_hex_floats(json_object_get(item, "momentum_f32"), momentum, 64);
        for (size_t i = 0; i < count; i++)
            assert_int_equal(testlib_float_bits(buffer[i]), testlib_float_bits(momentum[i]));
    }
}

static struct plan *layered_plan(uint32_t layers, enum plan_pattern pattern, uint32_t per)
{
    struct plan_tensor tensors[128];
    char names[128][32];
    uint32_t count = 0;
    tensors[count++] = (struct plan_tensor){.name = "embed", .layer = -1, .count = 300};
    for (uint32_t l = 0; l < layers; l++) {
        snprintf(names[l], sizeof names[l], "layer.%u", l);
        tensors[count++] = (struct plan_tensor){.name = names[l], .layer = (int32_t)l, .count = 1000 + l};
    }
    struct plan_conf conf = {.pattern = pattern, .layers_per_fragment = per};
    struct plan *plan;
    assert_ok(plan_new(tensors, count, &conf, &plan));
    return plan;
}

static void check_pattern(const json_t *item, const char *name, enum plan_pattern pattern)
{
    uint32_t layers = (uint32_t)json_integer_value(json_object_get(item, "layers"));
    struct plan *plan =
        layered_plan(layers, pattern, (uint32_t)json_integer_value(json_object_get(item, "layers_per_fragment")));
    json_t *want = json_object_get(item, name);
    assert_int_equal(plan->fragments_count, json_array_size(want));
    for (uint32_t f = 0; f < plan->fragments_count; f++) {
        json_t *members = json_array_get(want, f);
        uint32_t found = 0;
        for (uint32_t i = 1; i < plan->tensors_count; i++) {
            if (plan->tensors[i].fragment != f)
                continue;
            assert_int_equal(plan->tensors[i].layer, json_integer_value(json_array_get(members, found)));
            found++;
        }
        assert_int_equal(found, json_array_size(members));
    }
    assert_int_equal(plan->tensors[0].fragment, 0);
    plan_free(plan);
}

static void schedule_vectors_hold(void **state)
{
    (void)state;
    size_t index;
    json_t *item;
    json_array_foreach (testlib_cases("schedule"), index, item) {
        struct schedule schedule = {.interval = (uint64_t)json_integer_value(json_object_get(item, "H")),
                                    .fragments = (uint32_t)json_integer_value(json_object_get(item, "fragments")),
                                    .spread = true};
        uint64_t steps = (uint64_t)json_integer_value(json_object_get(item, "steps"));
        check_pattern(item, "strided", PLAN_STRIDED);
        check_pattern(item, "sequential", PLAN_SEQUENTIAL);
        for (uint32_t f = 0; f < schedule.fragments; f++) {
            json_t *offsets = json_object_get(item, "offsets");
            assert_int_equal(schedule_offset(&schedule, f), json_integer_value(json_array_get(offsets, f)));
            json_t *due = json_array_get(json_object_get(item, "due"), f);
            uint64_t at = 0;
            for (size_t k = 0;; k++) {
                at = schedule_next_due(&schedule, f, at);
                if (at > steps) {
                    assert_int_equal(k, json_array_size(due));
                    break;
                }
                assert_int_equal(at, json_integer_value(json_array_get(due, k)));
            }
        }
    }
    /* More fragments than steps still spreads them; zero offsets make them all due together. */
    struct schedule crowded = {.interval = 4, .fragments = 8, .spread = true};
    assert_int_equal(schedule_offset(&crowded, 7), 3);
    crowded.spread = false;
    assert_int_equal(schedule_next_due(&crowded, 7, 4), 8);
    struct schedule each = {.interval = 1, .fragments = 1, .spread = true};
    assert_int_equal(schedule_next_due(&each, 0, 0), 1);
    assert_int_equal(schedule_next_due(&each, 0, 1), 2);
}

/* The learning rate of the vectors: linear warm-up from 0, cosine to the final value. */
struct cosine {
    double steps, warmup, peak, final;
};

static double cosine_lr(const void *user, uint64_t step)
{
    const struct cosine *c = user;
    double at = (double)step;
    if (at < c->warmup)
        return c->peak * at / c->warmup;
    return c->final + (c->peak - c->final) * 0.5 * (1 + cos(M_PI * (at - c->warmup) / (c->steps - c->warmup)));
}

static double member_of(const json_t *item, const char *name)
{
    return json_number_value(json_object_get(item, name));
}

static void quadratic_rule_vectors_hold(void **state)
{
    (void)state;
    size_t index;
    json_t *item;
    json_array_foreach (testlib_cases("qsr"), index, item) {
        struct cosine lr = {member_of(item, "total_steps"), member_of(item, "warmup"), member_of(item, "peak_lr"),
                            member_of(item, "final_lr")};
        struct schedule schedule = {.interval = (uint64_t)member_of(item, "H_base"),
                                    .fragments = 1,
                                    .growth = member_of(item, "alpha"),
                                    .steps = (uint64_t)lr.steps,
                                    .lr_warmup = (uint64_t)lr.warmup,
                                    .lr = cosine_lr,
                                    .user = &lr};
        json_t *first = json_object_get(item, "first"), *last = json_object_get(item, "last");
        size_t rounds = (size_t)member_of(item, "rounds");
        uint64_t at = 0, longest = 0;
        for (size_t k = 0; k < rounds; k++) {
            uint64_t due = schedule_next_due(&schedule, 0, at);
            assert_int_equal(schedule_next_due(&schedule, 0, due - 1), due);
            longest = due - at > longest ? due - at : longest;
            at = due;
            if (k < json_array_size(first))
                assert_int_equal(at, json_integer_value(json_array_get(first, k)));
            if (k + json_array_size(last) >= rounds)
                assert_int_equal(at, json_integer_value(json_array_get(last, k + json_array_size(last) - rounds)));
        }
        assert_int_equal(at, schedule.steps);
        assert_int_equal(longest, (uint64_t)member_of(item, "H_max"));
    }
}

static double halved_lr(const void *user, uint64_t step)
{
    (void)user;
    (void)step;
    return 0.5;
}

/* (5 / 0.5)^2 = 100 steps from step 40 on, 20 before. Fragments of one run keep their turns, and end with it. */
static void growing_intervals_keep_turns_and_end_with_the_run(void **state)
{
    (void)state;
    static const uint64_t due[4][7] = {{20, 40, 140, 240, 300}, {25, 45, 145, 245, 300}, {}, {35, 55, 155, 255, 300}};
    const struct schedule schedule = {
        .interval = 20, .fragments = 4, .spread = true, .growth = 5, .steps = 300, .lr_warmup = 40, .lr = halved_lr};
    for (uint32_t f = 0; f < 4; f += f + 1) {
        uint64_t at = 0;
        for (size_t k = 0; due[f][k] != 0; k++) {
            at = schedule_next_due(&schedule, f, at);
            assert_int_equal(at, due[f][k]);
        }
        assert_true(schedule_next_due(&schedule, f, schedule.steps) > schedule.steps); /* whoever asks gets an answer */
    }
}

static void a_warm_start_is_denser_and_leads_into_the_schedule(void **state)
{
    (void)state;
    struct schedule plain = {.interval = 30, .fragments = 5, .spread = true};
    struct schedule warm = plain;
    warm.warm_interval = 5;
    warm.warm_until = 100;
    for (uint32_t f = 0; f < 5; f++) {
        uint64_t last = 0;
        unsigned early = 0;
        for (uint64_t due = schedule_next_due(&warm, f, 0); due < 1000; due = schedule_next_due(&warm, f, due)) {
            assert_true(due > last);
            early += due <= 100;
            assert_true(due - last <= 30 + 24); /* nor is there a hole behind it */
            if (due > 100)
                assert_int_equal(schedule_next_due(&plain, f, due - 1), due);
            last = due;
        }
        assert_in_range(early, 19, 20);
    }
    struct schedule brief = {.interval = 13, .fragments = 13, .spread = true, .warm_interval = 1, .warm_until = 1};
    assert_int_equal(schedule_next_due(&brief, 12, 0), 1);
    assert_int_equal(schedule_next_due(&brief, 12, 1), 12);
    assert_int_equal(schedule_next_due(&brief, 12, 12), 25);
}

/* ---- plan ---- */

static void tensors_never_share_a_block_and_shards_cover(void **state)
{
    (void)state;
    struct plan *plan = layered_plan(7, PLAN_STRIDED, 3);
    uint64_t params = 0;
    for (uint32_t i = 0; i < plan->tensors_count; i++) {
        const struct plan_tensor *t = &plan->tensors[i];
        assert_int_equal(t->offset % PLAN_BLOCK, 0);
        params += t->count;
        for (uint32_t k = 0; k < i; k++) {
            const struct plan_tensor *o = &plan->tensors[k];
            if (o->fragment == t->fragment)
                assert_true(o->offset + o->count <= t->offset || t->offset + t->count <= o->offset);
        }
        assert_ptr_equal(plan_tensor_at(plan, t->fragment, t->offset + t->count - 1), t);
        if (t->count % PLAN_BLOCK != 0)
            assert_null(plan_tensor_at(plan, t->fragment, t->offset + t->count));
    }
    assert_int_equal(params, plan->params_count);
    for (uint32_t f = 0; f < plan->fragments_count; f++) {
        uint64_t at = 0;
        for (uint32_t s = 0; s < plan->fragments[f].shards_count; s++) {
            struct plan_shard shard = plan_shard(plan, f, s);
            assert_int_equal(shard.begin, at);
            assert_int_equal(shard.begin % PLAN_BLOCK, 0);
            at = shard.end;
        }
        assert_int_equal(at, plan->fragments[f].values_count);
    }
    plan_free(plan);
}

static void balanced_plans_are_even_and_ordered(void **state)
{
    (void)state;
    struct plan_tensor tensors[20];
    char names[20][32];
    for (uint32_t i = 0; i < 20; i++) {
        snprintf(names[i], sizeof names[i], "t%u", i);
        tensors[i] = (struct plan_tensor){.name = names[i], .layer = -1, .count = 256u * (1 + i % 5)};
    }
    struct plan_conf conf = {.pattern = PLAN_BALANCED, .fragments = 4};
    struct plan *plan, *again;
    assert_ok(plan_new(tensors, 20, &conf, &plan));
    assert_int_equal(plan->fragments_count, 4);
    for (uint32_t f = 0; f < 4; f++)
        assert_int_equal(plan->fragments[f].values_count, 256u * 15);
    assert_ok(plan_new(tensors, 20, &conf, &again));
    assert_true(digest_equal(&plan->digest, &again->digest));
    plan_free(again);
    tensors[3].count++;
    assert_ok(plan_new(tensors, 20, &conf, &again));
    assert_false(digest_equal(&plan->digest, &again->digest));
    plan_free(again);
    plan_free(plan);
}

static void senseless_plans_are_refused(void **state)
{
    (void)state;
    struct plan *plan;
    struct plan_conf conf = {.pattern = PLAN_STRIDED, .layers_per_fragment = 1};
    struct plan_tensor twice[] = {{.name = "a", .layer = -1, .count = 1}, {.name = "a", .layer = -1, .count = 1}};
    assert_fails(ERR_ARG, "two tensors are called a", plan_new(twice, 2, &conf, &plan));
    struct plan_tensor empty[] = {{.name = "a", .layer = -1, .count = 0}};
    assert_fails(ERR_ARG, "tensor a has 0 values", plan_new(empty, 1, &conf, &plan));
    struct plan_tensor nameless[] = {{.name = "", .layer = -1, .count = 1}};
    assert_fails(ERR_ARG, "has no name", plan_new(nameless, 1, &conf, &plan));
    assert_fails(ERR_ARG, "no tensors", plan_new(NULL, 0, &conf, &plan));
    struct plan_tensor gap[] = {{.name = "a", .layer = 5, .count = 1}};
    assert_fails(ERR_ARG, "gaps", plan_new(gap, 1, &conf, &plan));
    struct plan_tensor deep[] = {{.name = "a", .layer = 100000, .count = 1}};
    assert_fails(ERR_ARG, "raise layers_per_fragment", plan_new(deep, 1, &conf, &plan));
    for (long n = 0;; n++) {
        struct plan_tensor one[] = {{.name = "a", .layer = -1, .count = 1}};
        mem_fail_after(n);
        enum err err = plan_new(one, 1, &conf, &plan);
        mem_fail_after(-1);
        if (err == ERR_OK)
            break;
        assert_int_equal(err, ERR_NOMEM);
    }
    plan_free(plan);
}

/* ---- outer optimizers and hash ---- */

static void average_is_the_mean_of_parameters(void **state)
{
    (void)state;
    float theta[4] = {1, 2, 3, 4};
    float delta[4] = {0.5f, -0.5f, 0, 4};
    const struct outer_conf average = {.kind = OUTER_AVERAGE, .lr = 9, .momentum = 9};
    struct outer_round round = outer_round_of(&average, 1);
    outer_step(&average, &round, theta, NULL, delta, 4);
    const float want[4] = {0.5f, 2.5f, 3, 0};
    assert_memory_equal(theta, want, sizeof want);
    float buffer[4] = {0};
    float ball[4] = {1, 2, 3, 4};
    struct outer_conf conf = {.kind = OUTER_HEAVY_BALL, .lr = 0.5f, .momentum = 0.5f};
    round = outer_round_of(&conf, 1);
    outer_step(&conf, &round, ball, buffer, delta, 4);
    outer_step(&conf, &round, ball, buffer, delta, 4);
    assert_true(ball[0] == 1 - 0.25f - 0.375f);
}

/* Whoever made a result chose the numbers that came with it. Under `average` they mean nothing. */
static void an_average_heeds_no_numbers(void **state)
{
    (void)state;
    const struct outer_conf average = {.kind = OUTER_AVERAGE};
    const struct outer_round round = {.scale = 0.5f, .momentum = 0.9f, .lr = 0.25f};
    float theta[VEC_BLOCK], delta[VEC_BLOCK];
    for (int i = 0; i < VEC_BLOCK; i++) {
        theta[i] = (float)i;
        delta[i] = (float)(2 * i - 100);
    }
    outer_step(&average, &round, theta, NULL, delta, VEC_BLOCK);
    for (int i = 0; i < VEC_BLOCK; i++)
        assert_true(theta[i] == (float)(100 - i));
}

/* g = delta / 4; buffer = buffer / 2 + g; theta = theta - 4 (g + buffer / 2): all of it exact, to the last value. */
static void a_scaled_step_is_scaled_to_its_end(void **state)
{
    (void)state;
    const struct outer_conf conf = {.kind = OUTER_NESTEROV};
    const struct outer_round round = {.scale = 0.25f, .momentum = 0.5f, .lr = 4};
    float theta[VEC_BLOCK] = {0}, buffer[VEC_BLOCK], delta[VEC_BLOCK];
    for (int i = 0; i < VEC_BLOCK; i++) {
        buffer[i] = 8;
        delta[i] = (float)(8 * i);
    }
    outer_step(&conf, &round, theta, buffer, delta, VEC_BLOCK);
    for (int i = 0; i < VEC_BLOCK; i++) {
        assert_true(buffer[i] == (float)(4 + 2 * i));
        assert_true(theta[i] == (float)(-4 * (2 * i + 2 + i)));
    }
}

/* Where nothing moved there is no gap, and nothing to be scaled by one. */
static void a_gap_of_nothing_changes_nothing(void **state)
{
    (void)state;
    const struct outer_round round = {.scale = 0.75f, .momentum = 0.5f, .lr = 1};
    assert_true(outer_round_penalised(round, 0, 0).scale == 0.75f);
    assert_true(outer_round_penalised(round, 1, 0).scale == 0.75f);
    assert_true(outer_round_penalised(round, 0, 1).scale == 0.75f);
    assert_true(outer_round_penalised(round, 1, 1).scale == 0.375f);
}

/* Against sums in long double: of any number of blocks, and of differences that no float holds. */
static void sums_are_those_of_exact_differences_and_products(void **state)
{
    (void)state;
    enum { BLOCKS = 13, COUNT = BLOCKS * VEC_BLOCK };
    static float a[COUNT], b[COUNT];
    for (size_t t = 0; t < tables_count; t++)
        for (size_t blocks = 0; blocks <= BLOCKS; blocks++) {
            long double alone = 0, apart = 0, along = 0;
            for (size_t i = 0; i < blocks * VEC_BLOCK; i++) {
                a[i] = (float)(i % 5 + 1);
                b[i] = ldexpf((float)(i % 3 + 1), -24);
                alone += (long double)a[i] * a[i];
                apart += ((long double)a[i] - b[i]) * ((long double)a[i] - b[i]);
                along += (long double)a[i] * b[i];
            }
            assert_true(tables[t]->square_sum(a, NULL, blocks) == (double)alone);
            assert_true(fabs(tables[t]->square_sum(a, b, blocks) - (double)apart) <= 1e-13 * (double)apart);
            assert_true(tables[t]->dot(a, b, blocks) == (double)along);
        }
}

static void co2_vectors_hold(void **state)
{
    (void)state;
    size_t index;
    json_t *item;
    json_array_foreach (testlib_cases("co2"), index, item) {
        struct outer_conf conf = {.kind = OUTER_HEAVY_BALL,
                                  .lr = (float)member_of(item, "lr"),
                                  .momentum = (float)member_of(item, "beta"),
                                  .clip = (float)member_of(item, "clip")};
        float theta[VEC_BLOCK] = {0}, before[VEC_BLOCK] = {0}, buffer[VEC_BLOCK] = {0}, stale[VEC_BLOCK] = {0};
        size_t round_index, applied = 0;
        json_t *round;
        json_array_foreach (json_object_get(item, "rounds"), round_index, round) {
            json_t *anchor = json_object_get(round, "anchor");
            size_t count = json_array_size(anchor);
            for (size_t i = 0; i < count && round_index == 0; i++)
                theta[i] = (float)json_number_value(json_array_get(anchor, i));
            float delta[VEC_BLOCK] = {0}, now[VEC_BLOCK];
            memcpy(now, theta, sizeof now);
            if (json_is_true(json_object_get(round, "applied"))) {
                /* What was meant by the round before, applied to the anchor of now. */
                memcpy(delta, stale, sizeof delta);
                /* With heavy ball the anchor's last move is lr * momentum: nothing more has to be remembered. */
                double moved = (double)conf.lr * sqrt(outer_square_sum(buffer, NULL, VEC_BLOCK));
                assert_true(fabs(moved - sqrt(outer_square_sum(theta, before, VEC_BLOCK))) < 1e-5);
                struct outer_round numbers = outer_round_penalised(outer_round_of(&conf, ++applied), moved,
                                                                   sqrt(outer_square_sum(delta, NULL, VEC_BLOCK)));
                assert_true(fabs(1 / (double)numbers.scale - member_of(round, "lambda_")) < 1e-4);
                outer_step(&conf, &numbers, theta, buffer, delta, VEC_BLOCK);
            }
            memcpy(before, now, sizeof before);
            for (size_t i = 0; i < count; i++) {
                stale[i] = now[i] - (float)json_number_value(json_array_get(json_object_get(round, "mean"), i));
                assert_true(fabs((double)theta[i] -
                                 json_number_value(json_array_get(json_object_get(round, "next_anchor"), i))) < 1e-5);
                assert_true(fabs((double)buffer[i] -
                                 json_number_value(json_array_get(json_object_get(round, "momentum"), i))) < 1e-5);
            }
        }
        assert_true(applied > 0);
    }
}

static void a_round_adapts_to_its_interval(void **state)
{
    (void)state;
    const struct outer_conf conf = {
        .kind = OUTER_NESTEROV, .lr = 0.4f, .momentum = 0.9f, .average_versions = 3, .warmup_versions = 4};
    struct outer_round first = outer_round_of(&conf, 3), rising = outer_round_of(&conf, 5),
                       later = outer_round_of(&conf, 7);
    assert_true(first.lr == 1 && first.momentum == 0);
    assert_true(rising.lr == 0.2f && rising.momentum == 0.9f);
    assert_true(later.lr == 0.4f);
    /* Momentum 0 and lr 1 are an average whatever the interval; four reference intervals in one move as four do. */
    struct outer_round average = outer_round_corrected((struct outer_round){1, 0, 1}, 0, 4);
    assert_true(average.scale * average.lr == 1 && average.momentum == 0);
    struct outer_round long_one = outer_round_corrected(later, 0.9 * 0.9 * 0.9 * 0.9, 4);
    assert_true(fabsf(long_one.scale * long_one.lr - later.lr) < 1e-6f);
    assert_true(fabsf(long_one.momentum - 0.6561f) < 1e-6f && long_one.scale == 0.25f);
}

static void version_hash_sees_all_that_it_names(void **state)
{
    (void)state;
    struct digest tree = digest_tree("body", 4), other = digest_tree("bodz", 4);
    const struct vhash_subject good = {
        .fragment = 1, .momentum = true, .version = 2, .step = 3, .count = 256, .rows = 4};
    struct vhash_subject changed[] = {good, good, good, good, good, good};
    changed[0].fragment++;
    changed[1].momentum = false;
    changed[2].version++;
    changed[3].step++;
    changed[4].count++;
    changed[5].rows++;
    struct digest root = vhash_root(&good, &tree), same = vhash_root(&good, &tree), body = vhash_root(&good, &other);
    assert_true(digest_equal(&root, &same));
    assert_false(digest_equal(&root, &body) || digest_equal(&root, &tree));
    for (size_t i = 0; i < sizeof changed / sizeof changed[0]; i++) {
        struct digest hash = vhash_root(&changed[i], &tree);
        assert_false(digest_equal(&root, &hash));
    }
}

int main(void)
{
    assert_ok(digest_init());
    tables_count = vec_all(tables, 3);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(e3m0_vectors_hold_bit_for_bit),
        cmocka_unit_test(mean_vectors_hold_bit_for_bit),
        cmocka_unit_test(nesterov_vectors_hold_bit_for_bit),
        cmocka_unit_test(schedule_vectors_hold),
        cmocka_unit_test(tensors_never_share_a_block_and_shards_cover),
        cmocka_unit_test(balanced_plans_are_even_and_ordered),
        cmocka_unit_test(senseless_plans_are_refused),
        cmocka_unit_test(average_is_the_mean_of_parameters),
        cmocka_unit_test(an_average_heeds_no_numbers),
        cmocka_unit_test(a_scaled_step_is_scaled_to_its_end),
        cmocka_unit_test(a_gap_of_nothing_changes_nothing),
        cmocka_unit_test(sums_are_those_of_exact_differences_and_products),
        cmocka_unit_test(quadratic_rule_vectors_hold),
        cmocka_unit_test(growing_intervals_keep_turns_and_end_with_the_run),
        cmocka_unit_test(a_warm_start_is_denser_and_leads_into_the_schedule),
        cmocka_unit_test(co2_vectors_hold),
        cmocka_unit_test(a_round_adapts_to_its_interval),
        cmocka_unit_test(version_hash_sees_all_that_it_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
