/* SPDX-License-Identifier: Apache-2.0 */
/* replica's guards: residuals in bounds, and outliers that do not carry a mean off. */
#include "tests/lib/testlib.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/digest.h"
#include "daemon/state/replica.h"
#include "tests/lib/shares.h"

enum { MEMBERS = 3, FRAME_MAX = 1 << 16 };

static struct plan *plan;
static struct codec *codec;
static float *scratch;

struct frame {
    uint8_t bytes[FRAME_MAX];
    size_t count;
};

static struct parts parts_of_three(void)
{
    static const uint64_t weights[MEMBERS] = {1, 1, 2};
    static struct config_log *config_log;
    if (config_log == NULL)
        config_log = shares_config_log(weights, MEMBERS);
    return (struct parts){.plan = plan, .config_log = config_log};
}

static struct replica *restrained(struct codec_choice choice, float limit)
{
    const struct parts parts = parts_of_three();
    struct replica_conf conf = {.plan = plan,
                                .outer = {.kind = OUTER_NESTEROV, .lr = 0.4f, .momentum = 0.9f},
                                .error_feedback = true,
                                .feedback_decay = 1,
                                .feedback_limit = limit,
                                .choice = choice};
    struct replica *replica;
    assert_ok(replica_new(&conf, &replica));
    assert_ok(shares_cut(&parts, replica, 0));
    return replica;
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

/* ---- residuals ---- */

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
        struct replica *one = restrained(topk, limits[k]);
        const struct parts parts = parts_of_three();
        const uint64_t own = shares_mask(&parts, 0, 0);
        struct plan_shard range = shares_run(&parts, 0, 0);
        size_t n = (size_t)(range.end - range.begin);
        for (int round = 0; round < 20; round++) {
            assert_ok(replica_encode(one, 0, own, replica_anchor(one, 0), theta, 1000, codec, in.bytes, &in.count));
            replica_commit(one, 0, own);
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

/* An outer gradient that grows because the anchor runs away is no reason for a larger residual: fed back, that would
 * drive it on. One that grows with what was trained is. */
static void a_residual_does_not_grow_with_a_run_that_diverges(void **state)
{
    (void)state;
    static struct frame in, out;
    const struct codec_choice topk = {.id = CODEC_TOPK, .ratio = 1.0f / 64};
    size_t count = plan->fragments[0].values_count;
    float *theta = calloc(count, sizeof *theta);
    for (int diverges = 0; diverges < 2; diverges++) {
        struct replica *one = restrained(topk, 0.7f);
        const struct parts parts = parts_of_three();
        const uint64_t own = shares_mask(&parts, 0, 0);
        struct plan_shard range = shares_run(&parts, 0, 0);
        size_t bad, n = (size_t)(range.end - range.begin);
        double usual[2] = {0};
        for (int round = 0; round < 120; round++) {
            double size = 0.01 * (1 + 0.1 * (round % 3)) * (round >= 40 ? pow(1.2, round - 40) : 1);
            uint64_t tokens = (uint64_t)(1e6 * (diverges || round < 40 ? 1 : pow(1.2, round - 40)));
            struct mean_input input = {.frame = in.bytes, .bytes = in.count, .weight = (float)tokens, .member = 0};
            if (round == 20)
                replica_settle(one, 0);
            for (size_t i = 0; i < count; i++)
                theta[i] = (float)size;
            assert_ok(replica_encode(one, 0, own, replica_anchor(one, 0), theta, tokens, codec, in.bytes, &in.count));
            replica_commit(one, 0, own);
            input.bytes = in.count;
            assert_ok(replica_reduce(one, 0, &input, 1, codec, scratch, out.bytes, &out.count, &bad));
            replica_commit_owner(one, 0);
            double left[2] = {norm_of(replica_residual(one, 0) + range.begin, NULL, n),
                              norm_of(replica_owner_residual(one, 0), NULL, n)};
            for (int k = 0; k < 2; k++) {
                usual[k] = round < 40 && left[k] > usual[k] ? left[k] : usual[k];
                if (diverges && left[k] > 1.3 * usual[k])
                    fail_msg("round %d: %s residual is %.3g, and was %.3g", round, k == 0 ? "a" : "the owner's",
                             left[k], usual[k]);
            }
            double meant = norm_of(theta + range.begin, replica_anchor(one, 0) + range.begin, n);
            if (!diverges && round > 0)
                assert_true(left[0] > 0.5 * meant && left[0] < 0.7001 * meant);
        }
        replica_free(one);
    }
    free(theta);
}

/* ---- outliers ---- */

/* Ten times too large: it has no weight, is scaled down, or is cut off value by value, as the run spec says. */
static void an_outlier_does_not_carry_the_mean_off(void **state)
{
    (void)state;
    static const enum outlier_action actions[] = {OUTLIER_KEEP, OUTLIER_DROP, OUTLIER_CLIP, OUTLIER_TRIMMED,
                                                  OUTLIER_MEDIAN};
    static const float largest[] = {20, 1.1f, 1.1f, 1.1f, 1.1f};
    static struct frame in[MEMBERS], result;
    struct codec *plain;
    size_t bad;
    assert_ok(codec_new(0, &plain));
    for (size_t a = 0; a < 5; a++) {
        const struct parts parts = parts_of_three();
        struct replica_conf conf = {.plan = plan,
                                    .outer = {.kind = OUTER_AVERAGE},
                                    .choice = {.id = CODEC_FP32},
                                    .outliers = {.action = actions[a], .threshold = 3, .trim = 1}};
        struct replica *owner;
        struct mean_input inputs[MEMBERS];
        assert_ok(replica_new(&conf, &owner));
        assert_ok(shares_cut(&parts, owner, 0));
        struct plan_shard range = shares_run(&parts, 0, 0);
        size_t n = (size_t)(range.end - range.begin);
        float *values = calloc(n, sizeof *values);
        for (uint32_t i = 0; i < MEMBERS; i++) {
            for (size_t k = 0; k < n; k++)
                values[k] = i == 1 ? 50 : 1;
            struct vec_source source = {.minuend = values};
            struct codec_part part = {.count = n, .choice = {.id = CODEC_FP32}};
            assert_ok(codec_encode(plain, &part, 1, &source, NULL, in[i].bytes, &in[i].count, &bad));
            inputs[i] = (struct mean_input){.frame = in[i].bytes, .bytes = in[i].count, .weight = 100, .member = i};
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

/* After an absence the work of many rounds comes at once. It is as large as it may be, and counts in full. */
static void the_work_of_many_rounds_is_no_outlier(void **state)
{
    (void)state;
    static struct frame in[MEMBERS], result;
    const struct parts parts = parts_of_three();
    struct replica_conf conf = {.plan = plan,
                                .outer = {.kind = OUTER_AVERAGE},
                                .choice = {.id = CODEC_FP32},
                                .outliers = {.action = OUTLIER_CLIP, .threshold = 3}};
    struct replica *owner;
    size_t bad;
    assert_ok(replica_new(&conf, &owner));
    assert_ok(shares_cut(&parts, owner, 0));
    struct plan_shard range = shares_run(&parts, 0, 0);
    size_t n = (size_t)(range.end - range.begin);
    float *values = calloc(n, sizeof *values);
    for (int trained = 0; trained < 2; trained++) {
        struct mean_input inputs[MEMBERS];
        for (uint32_t i = 0; i < MEMBERS; i++) {
            for (size_t k = 0; k < n; k++)
                values[k] = i == 1 ? 20 : 1;
            struct vec_source source = {.minuend = values};
            struct codec_part part = {.count = n, .choice = {.id = CODEC_FP32}};
            assert_ok(codec_encode(codec, &part, 1, &source, NULL, in[i].bytes, &in[i].count, &bad));
            inputs[i] = (struct mean_input){
                .frame = in[i].bytes, .bytes = in[i].count, .weight = i == 1 && trained ? 2000 : 100, .member = i};
        }
        assert_ok(replica_reduce(owner, 0, inputs, MEMBERS, codec, scratch, result.bytes, &result.count, &bad));
        assert_true(inputs[0].factor == 1 && inputs[2].factor == 1);
        assert_true(trained ? inputs[1].factor == 1 : inputs[1].factor < 0.5f);
    }
    free(values);
    replica_free(owner);
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
        cmocka_unit_test(a_residual_does_not_outgrow_its_limit),
        cmocka_unit_test(a_residual_does_not_grow_with_a_run_that_diverges),
        cmocka_unit_test(an_outlier_does_not_carry_the_mean_off),
        cmocka_unit_test(the_work_of_many_rounds_is_no_outlier),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(scratch);
    codec_free(codec);
    plan_free(plan);
    return failed;
}
