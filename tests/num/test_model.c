/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The whole model: loss and gradients against a float64 forward pass assembled from ref64, decoding against the full
 * pass, the same initial parameters everywhere, and one batch learnt by heart.
 */
#include "tests/lib/testlib.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/digest.h"
#include "tests/lib/ref64.h"
#include "worker/inner.h"
#include "worker/model/model.h"

static const struct kern *kern;
static struct kern_dev *dev;

static struct runspec spec_of(int64_t width, int64_t layers, int64_t heads, int64_t kv_heads, bool tied)
{
    return (struct runspec){.vocab = 29,
                            .width = width,
                            .layers = layers,
                            .heads = heads,
                            .kv_heads = kv_heads,
                            .ff = 24,
                            .context = 11,
                            .rope_theta = 10000,
                            .norm_eps = 1e-5,
                            .init_std = 0.3,
                            .tied = tied,
                            .inner = RUNSPEC_ADAMW,
                            .lr = 1e-2,
                            .lr_final = 1,
                            .beta1 = 0.9,
                            .beta2 = 0.99,
                            .eps = 1e-8,
                            .clip = 1,
                            .steps = 1000,
                            .batch = 2};
}

/* The loss of a forward and backward pass. */
static double train(struct model *m, const int32_t *tokens, const int32_t *targets, double scale)
{
    double loss;
    kern->zero(dev, m->loss, sizeof *m->loss);
    assert_ok(model_train(m, tokens, targets, scale));
    kern->copy(dev, KERN_MAIN, &loss, m->loss, sizeof loss);
    assert_ok(kern->sync(dev));
    return loss / scale;
}

static struct inner_result step_of(struct inner *inner, uint64_t step)
{
    struct inner_result result;
    assert_ok(inner_step(inner, step));
    assert_true(inner_pending(inner) == 1);
    assert_ok(inner_result(inner, &result));
    return result;
}

/* A flat array of the model's, on the host. */
static float *flat(struct model *m, const float *from)
{
    float *to = calloc((size_t)m->flat_count, sizeof *to);
    for (int i = 0; i < m->tensors_count; i++)
        assert_ok(model_read(m, &m->tensors[i], from, to + m->tensors[i].offset));
    return to;
}

static void put(struct model *m, float *to, const float *from)
{
    for (int i = 0; i < m->tensors_count; i++)
        assert_ok(model_write(m, &m->tensors[i], to, from + m->tensors[i].offset));
}

/* ---- the reference ---- */

struct reference {
    const struct model *m;
    double *w; /* flat, as model->w */
    const int32_t *tokens, *targets;
};

static const double *tensor_of(const struct reference *r, const char *name)
{
    for (int i = 0; i < r->m->tensors_count; i++)
        if (strcmp(r->m->tensors[i].name, name) == 0)
            return r->w + r->m->tensors[i].offset;
    fail_msg("no tensor %s", name);
    return NULL;
}

static const double *layer_tensor(const struct reference *r, int64_t layer, const char *part)
{
    char name[64];
    snprintf(name, sizeof name, "model.layers.%d.%s.weight", (int)layer, part);
    return tensor_of(r, name);
}

static void reference_layer(const struct reference *r, int64_t l, double *x, double *a, double *b, double *c)
{
    const struct model *m = r->m;
    int64_t R = m->B * m->T, C = m->C, q = m->H * m->D, kv = m->G * m->D, row = q + 2 * kv, F = m->F;
    double *part = calloc((size_t)(R * (row + 2 * F)), sizeof *part);
    ref_rmsnorm(a, x, layer_tensor(r, l, "input_layernorm"), R, C, 1e-5);
    const char *names[3] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"};
    int64_t widths[3] = {q, kv, kv}, at = 0;
    for (int i = 0; i < 3; i++) {
        ref_linear(part, a, layer_tensor(r, l, names[i]), R, C, widths[i]);
        for (int64_t k = 0; k < R; k++)
            memcpy(b + k * row + at, part + k * widths[i], (size_t)widths[i] * sizeof *b);
        at += widths[i];
    }
    ref_rope(b, R, m->T, row, m->H + m->G, m->D, 10000);
    ref_attention(c, b, m->B, m->T, m->H, m->G, m->D);
    ref_linear(a, c, layer_tensor(r, l, "self_attn.o_proj"), R, q, C);
    for (int64_t i = 0; i < R * C; i++)
        x[i] += a[i];
    ref_rmsnorm(a, x, layer_tensor(r, l, "post_attention_layernorm"), R, C, 1e-5);
    ref_linear(b, a, layer_tensor(r, l, "mlp.gate_proj"), R, C, F);
    ref_linear(c, a, layer_tensor(r, l, "mlp.up_proj"), R, C, F);
    for (int64_t k = 0; k < R; k++) {
        memcpy(part + k * 2 * F, b + k * F, (size_t)F * sizeof *b);
        memcpy(part + k * 2 * F + F, c + k * F, (size_t)F * sizeof *b);
    }
    ref_swiglu(b, part, R, F);
    ref_linear(a, b, layer_tensor(r, l, "mlp.down_proj"), R, F, C);
    for (int64_t i = 0; i < R * C; i++)
        x[i] += a[i];
    free(part);
}

static double reference_loss(const struct reference *r)
{
    const struct model *m = r->m;
    int64_t R = m->B * m->T;
    int64_t wide = 256;
    double *x = calloc((size_t)(R * wide), sizeof *x), *a = calloc((size_t)(R * wide), sizeof *a);
    double *b = calloc((size_t)(R * wide), sizeof *b), *c = calloc((size_t)(R * wide), sizeof *c);
    const double *embed = tensor_of(r, "model.embed_tokens.weight");
    ref_embed(x, r->tokens, embed, R, m->C);
    for (int64_t l = 0; l < m->L; l++)
        reference_layer(r, l, x, a, b, c);
    ref_rmsnorm(a, x, tensor_of(r, "model.norm.weight"), R, m->C, 1e-5);
    ref_linear(b, a, m->tied ? embed : tensor_of(r, "lm_head.weight"), R, m->C, m->V);
    double loss = ref_cross_entropy(b, r->targets, R, m->V);
    free(x);
    free(a);
    free(b);
    free(c);
    return loss;
}

static void fill_tokens(int32_t *tokens, int32_t *targets, int64_t count, int64_t vocab, uint64_t seed)
{
    struct env_rng rng = env_rng_init(seed, 0);
    for (int64_t i = 0; i < count; i++) {
        tokens[i] = (int32_t)env_rng_below(&rng, (uint64_t)vocab);
        targets[i] = (int32_t)env_rng_below(&rng, (uint64_t)vocab);
    }
}

/* Loss to 1e-6; the gradient of every tensor, by central differences at 25 places each, to 2e-5 of its norm. */
static void check_shape(struct runspec spec)
{
    struct model *m;
    assert_ok(model_new(&spec, kern, dev, &(struct model_conf){.batch = 2, .train = true}, &m));
    assert_ok(model_init(m, 3));
    int32_t tokens[22], targets[22];
    fill_tokens(tokens, targets, 22, spec.vocab, 1);
    struct reference r = {
        .m = m, .w = calloc((size_t)m->flat_count, sizeof(double)), .tokens = tokens, .targets = targets};
    struct env_rng rng = env_rng_init(4, 4);
    float *w = flat(m, m->w);
    for (int64_t i = 0; i < m->flat_count; i++) {
        if (w[i] == 1.0f)
            w[i] = (float)(1 + 0.2 * env_rng_normal(&rng)); /* norms that are not all one */
        r.w[i] = (double)w[i];
    }
    put(m, m->w, w);
    assert_ok(model_refresh(m));
    double want = reference_loss(&r), loss = train(m, tokens, targets, 1);
    float *grad = flat(m, m->grad);
    if (fabs(loss - want) > 1e-6 * want)
        fail_msg("loss %.9f, reference %.9f", loss, want);
    const double h = 1e-5;
    for (int t = 0; t < m->tensors_count; t++) {
        const struct model_tensor *tensor = &m->tensors[t];
        double difference = 0, norm = 0;
        for (int s = 0; s < 25; s++) {
            int64_t i = tensor->offset + (int64_t)env_rng_below(&rng, (uint64_t)tensor->count);
            double saved = r.w[i];
            r.w[i] = saved + h;
            double up = reference_loss(&r);
            r.w[i] = saved - h;
            double down = reference_loss(&r);
            r.w[i] = saved;
            double slope = (up - down) / (2 * h);
            difference += ((double)grad[i] - slope) * ((double)grad[i] - slope);
            norm += slope * slope;
        }
        if (!(sqrt(difference) <= 2e-5 * sqrt(norm) + 1e-9))
            fail_msg("%s: gradient off by %.3g", tensor->name, sqrt(difference / norm));
    }
    free(r.w);
    free(w);
    free(grad);
    model_free(m);
}

static void gradients_agree_with_finite_differences(void **state)
{
    (void)state;
    check_shape(spec_of(16, 2, 4, 2, true));
    check_shape(spec_of(12, 3, 2, 2, false));
    check_shape(spec_of(20, 1, 2, 1, true));
}

static void decoding_gives_what_the_full_pass_gives(void **state)
{
    (void)state;
    struct runspec spec = spec_of(16, 2, 4, 2, true);
    struct model *m;
    int32_t tokens[22], targets[22];
    fill_tokens(tokens, targets, 22, spec.vocab, 2);
    assert_ok(model_new(&spec, kern, dev, &(struct model_conf){.batch = 2}, &m));
    assert_ok(model_init(m, 5));
    double loss, sum = 0;
    assert_ok(model_loss(m, tokens, targets, &loss));
    for (int b = 0; b < 2; b++) {
        model_decode_reset(m);
        for (int t = 0; t < 11; t++) {
            float logits[29];
            double total = 0;
            assert_ok(model_decode(m, tokens[b * 11 + t], logits));
            for (int i = 0; i < 29; i++)
                total += exp((double)logits[i]);
            sum += log(total) - (double)logits[targets[b * 11 + t]];
        }
        float logits[29];
        assert_fails(ERR_STATE, "context of 11 tokens is full", model_decode(m, 0, logits));
    }
    assert_true(fabs(sum / 22 - loss) < 1e-5);
    assert_fails(ERR_STATE, "without gradients", model_train(m, tokens, targets, 1));
    model_free(m);
}

static void initial_parameters_are_pinned(void **state)
{
    (void)state;
    struct runspec spec = spec_of(16, 2, 4, 2, true);
    struct model *m;
    assert_ok(model_new(&spec, kern, dev, &(struct model_conf){.batch = 1}, &m));
    assert_ok(model_init(m, 1));
    float *w = malloc((size_t)m->params_count * sizeof *w); /* tensor after tensor, wherever they lie */
    assert_non_null(w);
    int64_t at = 0;
    for (int i = 0; i < m->tensors_count; i++) {
        assert_ok(model_read(m, &m->tensors[i], m->w, w + at));
        at += m->tensors[i].count;
    }
    struct digest digest = digest_of(w, (size_t)m->params_count * sizeof *w);
    free(w);
    char hex[DIGEST_HEX_BYTES];
    assert_string_equal(digest_hex(&digest, hex), "f13739259650d3819a7f89c3c6d25bb58d9723c11ebe996013cc421b46d0582f");
    model_free(m);
}

static void one_batch_is_learnt_by_heart(void **state)
{
    (void)state;
    struct runspec spec = spec_of(32, 2, 4, 2, true);
    struct model *m;
    struct inner *inner;
    int32_t tokens[22], targets[22];
    spec.init_std = 0.05;
    fill_tokens(tokens, targets, 22, spec.vocab, 3);
    assert_ok(model_new(&spec, kern, dev, &(struct model_conf){.batch = 2, .train = true}, &m));
    assert_ok(model_init(m, 1));
    assert_ok(inner_new(m, &spec, &inner));
    double first = 0, last = 0;
    for (uint64_t step = 1; step <= 150; step++) {
        assert_ok(model_train(m, tokens, targets, 1));
        last = step_of(inner, step).loss;
        if (step == 1)
            first = last;
    }
    assert_true(fabs(first - log(29)) < 0.3);
    assert_true(last < 0.05);
    /* A gradient with a NaN changes nothing and is told. */
    float *before = flat(m, m->w), *grad = flat(m, m->grad);
    uint64_t updates = inner->updates;
    grad[7] = NAN;
    put(m, m->grad, grad);
    assert_true(step_of(inner, 151).skipped && inner->updates == updates);
    float *after = flat(m, m->w);
    assert_memory_equal(before, after, (size_t)m->flat_count * sizeof *after);
    free(grad);
    grad = flat(m, m->grad);
    assert_true(grad[7] == 0);
    free(before);
    free(after);
    free(grad);
    inner_free(inner);
    model_free(m);
}

static void accumulation_is_the_larger_batch(void **state)
{
    (void)state;
    struct runspec spec = spec_of(16, 2, 4, 2, true);
    struct model *one, *two;
    int32_t tokens[44], targets[44];
    fill_tokens(tokens, targets, 44, spec.vocab, 9);
    assert_ok(model_new(&spec, kern, dev, &(struct model_conf){.batch = 4, .train = true}, &one));
    assert_ok(model_new(&spec, kern, dev, &(struct model_conf){.batch = 2, .train = true}, &two));
    assert_ok(model_init(one, 1));
    assert_ok(model_init(two, 1));
    double whole = train(one, tokens, targets, 1), a = train(two, tokens, targets, 0.5);
    double b = train(two, tokens + 22, targets + 22, 0.5);
    assert_true(fabs(whole - (a + b) / 2) < 1e-6);
    float *left = flat(one, one->grad), *right = flat(two, two->grad);
    assert_true(testlib_relative_error(right, left, (size_t)one->flat_count) < 1e-5);
    free(left);
    free(right);
    model_free(one);
    model_free(two);
}

/* Results are read in order, steps later; as many as may wait wait, and no more. */
static void results_wait_to_be_read(void **state)
{
    (void)state;
    struct runspec spec = spec_of(16, 1, 2, 1, true);
    struct model *m;
    struct inner *inner;
    struct inner_result result;
    int32_t tokens[22], targets[22];
    double want[INNER_RESULTS];
    fill_tokens(tokens, targets, 22, spec.vocab, 8);
    for (int run = 0; run < 2; run++) {
        assert_ok(model_new(&spec, kern, dev, &(struct model_conf){.batch = 2, .train = true}, &m));
        assert_ok(model_init(m, 1));
        assert_ok(inner_new(m, &spec, &inner));
        assert_fails(ERR_STATE, "no step waits", inner_result(inner, &result));
        for (uint64_t step = 1; step <= INNER_RESULTS; step++) {
            assert_ok(model_train(m, tokens, targets, 0.5));
            assert_ok(model_train(m, tokens, targets, 0.5));
            if (run == 0)
                want[step - 1] = step_of(inner, step).loss;
            else
                assert_ok(inner_step(inner, step));
        }
        if (run == 1) {
            assert_fails(ERR_STATE, "wait for their results", inner_step(inner, 9));
            for (int i = 0; i < INNER_RESULTS; i++) {
                assert_true(inner_pending(inner) == (uint64_t)(INNER_RESULTS - i));
                assert_ok(inner_result(inner, &result));
                assert_true(result.loss == want[i] && inner->updates == (uint64_t)i + 1);
                assert_true(result.lr == spec.lr && result.grad_norm > 0 && !result.skipped);
            }
        }
        inner_free(inner);
        model_free(m);
    }
}

/* Two batches' gradients in each mode: the same bits as where all is kept. */
static void check_recompute(struct runspec spec)
{
    float *want = NULL;
    double want_loss = 0;
    int32_t tokens[44], targets[44];
    fill_tokens(tokens, targets, 44, spec.vocab, 6);
    for (int mode = 0; mode < MODEL_RECOMPUTES; mode++) {
        struct model *m;
        struct model_conf conf = {.batch = 2, .train = true, .recompute = (enum model_recompute)mode};
        assert_ok(model_new(&spec, kern, dev, &conf, &m));
        assert_ok(model_init(m, 7));
        double loss = train(m, tokens, targets, 0.5);
        double other = 0;
        assert_ok(model_loss(m, tokens + 22, targets + 22, &other)); /* leaves nothing behind that the next one reads */
        loss += train(m, tokens + 22, targets + 22, 0.5);
        float *grad = flat(m, m->grad);
        if (mode == MODEL_RECOMPUTE_NONE) {
            want = grad;
            want_loss = loss;
        } else {
            assert_memory_equal(grad, want, (size_t)m->flat_count * sizeof *grad);
            assert_true(loss == want_loss);
            free(grad);
        }
        model_free(m);
    }
    free(want);
}

static void what_is_made_again_has_the_same_bits(void **state)
{
    (void)state;
    check_recompute(spec_of(16, 4, 4, 2, true));
    check_recompute(spec_of(12, 3, 2, 2, false));
    check_recompute(spec_of(20, 1, 2, 1, true));
    check_recompute(spec_of(32, 2, 4, 1, false));
    enum model_recompute mode;
    for (int i = 0; i < MODEL_RECOMPUTES; i++) {
        assert_ok(model_recompute_find(model_recompute_name((enum model_recompute)i), &mode));
        assert_true((int)mode == i);
    }
    assert_fails(ERR_ARG, "expected none, norms or layer", model_recompute_find("Layer", &mode));
}

int main(void)
{
    assert_ok(digest_init());
    assert_ok(kern_find("cpu", &kern));
    assert_ok(kern->open(&(struct kern_place){.threads = 2}, &dev));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_agree_with_finite_differences),
        cmocka_unit_test(decoding_gives_what_the_full_pass_gives),
        cmocka_unit_test(initial_parameters_are_pinned),
        cmocka_unit_test(one_batch_is_learnt_by_heart),
        cmocka_unit_test(accumulation_is_the_larger_batch),
        cmocka_unit_test(results_wait_to_be_read),
        cmocka_unit_test(what_is_made_again_has_the_same_bits),
    };
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    kern->close(dev);
    return failures != 0;
}
