/* replica: a round's arithmetic: what islands send, what owners make of it, what everyone holds afterwards. */
#include "tests/lib/testlib.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/digest.h"
#include "daemon/state/replica.h"

enum { MEMBERS = 3, FRAME_MAX = 1 << 16 };

static struct plan *plan;
static struct codec *codec;
static float *scratch;

static const struct outer_round numbers = {.scale = 1, .momentum = 0.9f, .lr = 0.4f};

static struct replica *member_with(uint32_t self, struct codec_choice choice, float limit)
{
    static const uint64_t weights[MEMBERS] = {1, 1, 2};
    struct replica_conf conf = {.plan = plan,
                                .outer = {.kind = OUTER_NESTEROV, .lr = 0.4f, .momentum = 0.9f},
                                .error_feedback = true,
                                .feedback_decay = 1,
                                .feedback_limit = limit,
                                .weights = weights,
                                .members_count = MEMBERS,
                                .choice = choice,
                                .self = self};
    struct replica *replica;
    assert_ok(replica_new(&conf, &replica));
    return replica;
}

static struct replica *member(uint32_t self)
{
    return member_with(self, (struct codec_choice){.id = CODEC_E3M0}, 0);
}

struct frame {
    uint8_t bytes[FRAME_MAX];
    size_t count;
};

/* What member i contributes to shard s when its parameters are the anchor plus noise. */
static void contribute(struct replica *replica, uint32_t s, uint64_t seed, struct frame *frame)
{
    size_t count = plan->fragments[0].values_count;
    float *theta = malloc(count * sizeof *theta);
    struct env_rng rng = env_rng_init(seed, s);
    testlib_fill_normal(&rng, theta, count, 0.01);
    for (size_t i = 0; i < count; i++)
        theta[i] += replica_anchor(replica, 0)[i];
    assert_ok(replica_encode(replica, 0, s, replica_anchor(replica, 0), theta, codec, frame->bytes, &frame->count));
    free(theta);
}

static void everyone_holds_the_same_after_any_rounds(void **state)
{
    (void)state;
    static struct frame in[MEMBERS], result[MEMBERS];
    struct replica *members[MEMBERS];
    struct digest hash, first;
    size_t bad;
    for (uint32_t i = 0; i < MEMBERS; i++)
        members[i] = member(i);
    for (uint64_t version = 1; version <= 4; version++) {
        for (uint32_t s = 0; s < MEMBERS; s++) {
            struct replica_input inputs[MEMBERS];
            for (uint32_t i = 0; i < MEMBERS; i++) {
                contribute(members[i], s, version * 10 + i, &in[i]);
                inputs[i] = (struct replica_input){
                    .frame = in[i].bytes, .bytes = in[i].count, .weight = 1000.0f + (float)i, .member = i};
            }
            assert_ok(replica_reduce(members[s], 0, inputs, MEMBERS, codec, scratch, result[s].bytes, &result[s].count,
                                     &bad));
            replica_commit_owner(members[s], 0);
        }
        for (uint32_t i = 0; i < MEMBERS; i++) {
            /* One of them was not counted by one of the owners: its anchor is the same all the same. */
            for (uint32_t s = 0; s < MEMBERS; s++)
                assert_ok(replica_apply(members[i], 0, s, &numbers, result[s].bytes, result[s].count,
                                        i == 1 && s == 2 ? REPLICA_KEEP : REPLICA_MOVE, codec, scratch));
            assert_ok(replica_hash(members[i], 0, version, &hash));
            if (i == 0)
                first = hash;
            assert_true(digest_equal(&hash, &first));
        }
    }
    for (uint32_t i = 0; i < MEMBERS; i++)
        replica_free(members[i]);
}

static void residuals_move_only_when_counted(void **state)
{
    (void)state;
    static struct frame in, result;
    struct replica *one = member(0);
    struct plan_shard range = replica_shard(one, 0, 0);
    size_t bad, n = (size_t)(range.end - range.begin);
    const float *residual = replica_residual(one, 0) + range.begin;
    contribute(one, 0, 1, &in);
    for (size_t i = 0; i < n; i++)
        assert_true(residual[i] == 0); /* nothing has counted it yet */
    struct replica_input input = {.frame = in.bytes, .bytes = in.count, .weight = 5};
    assert_ok(replica_reduce(one, 0, &input, 1, codec, scratch, result.bytes, &result.count, &bad));
    assert_ok(replica_apply(one, 0, 0, &numbers, result.bytes, result.count, REPLICA_KEEP, codec, scratch));
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += fabs(residual[i]);
    assert_true(sum == 0);
    contribute(one, 0, 2, &in);
    assert_ok(replica_apply(one, 0, 0, &numbers, result.bytes, result.count, REPLICA_MOVE, codec, scratch));
    for (size_t i = 0; i < n; i++)
        sum += fabs(residual[i]);
    assert_true(sum > 0);
    assert_ok(replica_apply(one, 0, 0, &numbers, result.bytes, result.count, REPLICA_CLEAR, codec, scratch));
    for (size_t i = 0; i < n; i++)
        assert_true(residual[i] == 0);
    replica_free(one);
}

static double norm_of(const float *values, const float *minus, size_t count)
{
    double square = 0;
    for (size_t i = 0; i < count; i++) {
        double x = (double)values[i] - (minus != NULL ? (double)minus[i] : 0);
        square += x * x;
    }
    return sqrt(square);
}

/* The same step again and again under a codec that sends little of it: the residual piles up, or is kept in bounds. */
static void a_residual_does_not_outgrow_its_limit(void **state)
{
    (void)state;
    static struct frame in;
    static const float limits[] = {0, 0.7f};
    const struct codec_choice topk = {.id = CODEC_TOPK, .ratio = 1.0f / 64};
    size_t count = plan->fragments[0].values_count;
    float *theta = calloc(count, sizeof *theta);
    for (size_t i = 0; i < count; i++)
        theta[i] = 0.01f;
    for (size_t k = 0; k < 2; k++) {
        struct replica *one = member_with(0, topk, limits[k]);
        struct plan_shard range = replica_shard(one, 0, 0);
        size_t n = (size_t)(range.end - range.begin);
        for (int round = 0; round < 20; round++) {
            assert_ok(replica_encode(one, 0, 0, replica_anchor(one, 0), theta, codec, in.bytes, &in.count));
            replica_commit(one, 0, 0);
        }
        double ratio = norm_of(replica_residual(one, 0) + range.begin, NULL, n) /
                       norm_of(theta + range.begin, replica_anchor(one, 0) + range.begin, n);
        print_message("limit %.1f: a residual of %.2f outer gradients, cut %d times\n", (double)limits[k], ratio,
                      (int)replica_feedback_cuts(one, 0));
        assert_true(limits[k] > 0 ? ratio <= 0.7001 && replica_feedback_cuts(one, 0) == 20 : ratio > 5);
        replica_free(one);
    }
    free(theta);
}

/* A contribution that is whole and well signed can still hold numbers nobody can average. */
static void the_one_who_sends_nonsense_is_left_out(void **state)
{
    (void)state;
    static struct frame in[MEMBERS], result;
    struct replica *owner = member(0);
    struct replica_input inputs[MEMBERS];
    struct codec *plain;
    size_t bad;
    assert_ok(codec_new(0, &plain));
    struct plan_shard range = replica_shard(owner, 0, 0);
    size_t n = (size_t)(range.end - range.begin);
    for (uint32_t culprit = 0; culprit < MEMBERS; culprit++) {
        for (uint32_t i = 0; i < MEMBERS; i++) {
            float *values = calloc(n, sizeof *values);
            values[n / 2] = i == culprit ? 3.4e38f : 1.0f; /* beyond bf16, so beyond any scale */
            struct vec_source source = {.minuend = values};
            struct codec_part part = {.count = n, .choice = {.id = CODEC_FP32}};
            assert_ok(codec_encode(plain, &part, 1, &source, NULL, in[i].bytes, &in[i].count, &bad));
            inputs[i] = (struct replica_input){.frame = in[i].bytes, .bytes = in[i].count, .weight = 1e6f, .member = i};
            free(values);
        }
        assert_fails(ERR_NONFINITE, "NaN, Inf",
                     replica_reduce(owner, 0, inputs, MEMBERS, codec, scratch, result.bytes, &result.count, &bad));
        assert_int_equal(bad, culprit);
        in[culprit].bytes[0] ^= 1;
        assert_fails(ERR_PROTO, "",
                     replica_reduce(owner, 0, inputs, MEMBERS, codec, scratch, result.bytes, &result.count, &bad));
        assert_int_equal(bad, culprit);
    }
    codec_free(plain);
    replica_free(owner);
}

/* Ten times too large: it has no weight, is scaled down, or is cut off value by value, as the run spec says. */
static void an_outlier_does_not_carry_the_mean_off(void **state)
{
    (void)state;
    static const enum outlier_action actions[] = {OUTLIER_KEEP, OUTLIER_DROP, OUTLIER_CLIP, OUTLIER_TRIMMED,
                                                  OUTLIER_MEDIAN};
    static const float largest[] = {20, 1.1f, 4.5f, 1.1f, 1.1f};
    static struct frame in[MEMBERS], result;
    struct codec *plain;
    size_t bad;
    assert_ok(codec_new(0, &plain));
    for (size_t a = 0; a < 5; a++) {
        const uint64_t weights[MEMBERS] = {1, 1, 1};
        struct replica_conf conf = {.plan = plan,
                                    .outer = {.kind = OUTER_AVERAGE},
                                    .choice = {.id = CODEC_FP32},
                                    .outliers = {.action = actions[a], .threshold = 3, .warmup = 100, .trim = 1},
                                    .weights = weights,
                                    .members_count = MEMBERS};
        struct replica *owner;
        struct replica_input inputs[MEMBERS];
        assert_ok(replica_new(&conf, &owner));
        struct plan_shard range = replica_shard(owner, 0, 0);
        size_t n = (size_t)(range.end - range.begin);
        float *values = calloc(n, sizeof *values);
        for (uint32_t i = 0; i < MEMBERS; i++) {
            for (size_t k = 0; k < n; k++)
                values[k] = i == 1 ? 50 : 1;
            struct vec_source source = {.minuend = values};
            struct codec_part part = {.count = n, .choice = {.id = CODEC_FP32}};
            assert_ok(codec_encode(plain, &part, 1, &source, NULL, in[i].bytes, &in[i].count, &bad));
            inputs[i] = (struct replica_input){.frame = in[i].bytes, .bytes = in[i].count, .weight = 100, .member = i};
        }
        assert_ok(replica_reduce(owner, 0, inputs, MEMBERS, plain, scratch, result.bytes, &result.count, &bad));
        assert_ok(codec_decode(plain, result.bytes, result.count, values, n));
        print_message("action %zu: mean %.3f, factor %.3f\n", a, (double)values[0], (double)inputs[1].factor);
        assert_true(values[0] >= 1 && values[0] <= largest[a]);
        assert_true(actions[a] != OUTLIER_DROP || inputs[1].factor == 0);
        assert_true(inputs[0].factor == 1 && inputs[2].factor == 1);
        free(values);
        replica_free(owner);
    }
    codec_free(plain);
}

static void a_nan_of_ours_names_its_tensor(void **state)
{
    (void)state;
    static struct frame frame;
    struct replica *one = member(0);
    size_t count = plan->fragments[0].values_count;
    float *theta = calloc(count, sizeof *theta);
    theta[plan->tensors[1].offset + 7] = NAN;
    enum err err = ERR_OK;
    for (uint32_t s = 0; s < MEMBERS && err == ERR_OK; s++)
        err = replica_encode(one, 0, s, replica_anchor(one, 0), theta, codec, frame.bytes, &frame.count);
    assert_int_equal(err, ERR_NONFINITE);
    assert_non_null(strstr(err_text(), "second"));
    free(theta);
    replica_free(one);
}

int main(void)
{
    assert_ok(digest_init());
    struct plan_tensor tensors[] = {{.name = "first", .layer = -1, .count = 1500},
                                    {.name = "second", .layer = -1, .count = 700}};
    struct plan_conf conf = {.pattern = PLAN_BALANCED, .fragments = 1};
    assert_ok(plan_new(tensors, 2, &conf, &plan));
    assert_ok(codec_new(1, &codec));
    scratch = malloc(plan->values_count_max * sizeof *scratch);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everyone_holds_the_same_after_any_rounds),
        cmocka_unit_test(residuals_move_only_when_counted),
        cmocka_unit_test(a_residual_does_not_outgrow_its_limit),
        cmocka_unit_test(the_one_who_sends_nonsense_is_left_out),
        cmocka_unit_test(an_outlier_does_not_carry_the_mean_off),
        cmocka_unit_test(a_nan_of_ours_names_its_tensor),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(scratch);
    codec_free(codec);
    plan_free(plan);
    return failed;
}
