/*
 * The kernels against float64: forward values against naive double-precision code, gradients against central
 * differences of it. Every variant the machine runs is tested. Tolerances are stated per case, relative to the norm
 * of the array.
 */
#include "tests/lib/testlib.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kern.h"
#include "tests/lib/ref64.h"

static const struct kern *kern;
static struct kern_dev *dev;
static struct env_rng rng;

/* An array in both precisions. */
struct pair {
    int64_t count;
    float *f;
    double *d;
};

static struct pair pair_new(int64_t count, double sigma)
{
    struct pair p = {
        .count = count, .f = calloc((size_t)count, sizeof(float)), .d = calloc((size_t)count, sizeof(double))};
    for (int64_t i = 0; i < count; i++) {
        p.f[i] = (float)(sigma * env_rng_normal(&rng));
        p.d[i] = p.f[i];
    }
    return p;
}

static void pair_free(struct pair *p)
{
    free(p->f);
    free(p->d);
}

static void assert_near(const char *what, const float *got, const double *want, int64_t count, double tolerance)
{
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(got[i]))
            fail_msg("%s: element %ld is %g", what, (long)i, (double)got[i]);
        difference += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        norm += want[i] * want[i];
    }
    double error = sqrt(difference / (norm + 1e-300));
    if (!(error <= tolerance))
        fail_msg("%s: relative error %.3g, allowed %.3g", what, error, tolerance);
}

/* ---- finite differences: L = sum(dout * forward(inputs)), judged at up to SAMPLES places of each input ---- */

enum { SAMPLES = 60 };

typedef void forward_fn(double *out, void *context);

static double objective(forward_fn *forward, void *context, const struct pair *dout, double *out)
{
    forward(out, context);
    double sum = 0;
    for (int64_t i = 0; i < dout->count; i++)
        sum += dout->d[i] * out[i];
    return sum;
}

static void assert_gradient(const char *what, forward_fn *forward, void *context, const struct pair *dout,
                            struct pair *input, const float *gradient, double tolerance)
{
    double *out = calloc((size_t)dout->count, sizeof *out);
    double difference = 0, norm = 0;
    const double h = 1e-5;
    for (int s = 0; s < SAMPLES; s++) {
        int64_t i = input->count <= SAMPLES ? s % input->count : (int64_t)env_rng_below(&rng, (uint64_t)input->count);
        double saved = input->d[i];
        input->d[i] = saved + h;
        double up = objective(forward, context, dout, out);
        input->d[i] = saved - h;
        double down = objective(forward, context, dout, out);
        input->d[i] = saved;
        double want = (up - down) / (2 * h);
        difference += (gradient[i] - want) * (gradient[i] - want);
        norm += want * want;
    }
    free(out);
    double error = sqrt(difference / (norm + 1e-300));
    if (!(error <= tolerance))
        fail_msg("%s: gradient off by %.3g, allowed %.3g", what, error, tolerance);
}

/* ---- linear ---- */

struct linear {
    struct pair inp, w;
    int64_t R, K, N;
};

static void linear_forward(double *out, void *context)
{
    const struct linear *c = context;
    ref_linear(out, c->inp.d, c->w.d, c->R, c->K, c->N);
}

static void linear_holds(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{1, 1, 1}, {7, 13, 5}, {33, 64, 96}, {128, 100, 17}};
    for (size_t s = 0; s < 4; s++) {
        struct linear c = {.R = shapes[s][0], .K = shapes[s][1], .N = shapes[s][2]};
        c.inp = pair_new(c.R * c.K, 1);
        c.w = pair_new(c.N * c.K, 1);
        struct pair dout = pair_new(c.R * c.N, 1), out = pair_new(c.R * c.N, 0);
        struct pair dinp = pair_new(c.R * c.K, 0), dw = pair_new(c.N * c.K, 0);
        kern->linear_fwd(dev, out.f, c.inp.f, c.w.f, c.R, c.K, c.N);
        linear_forward(out.d, &c);
        assert_near("linear", out.f, out.d, out.count, 1e-6);
        kern->linear_bwd_inp(dev, dinp.f, dout.f, c.w.f, c.R, c.K, c.N, false);
        kern->linear_bwd_inp(dev, dinp.f, dout.f, c.w.f, c.R, c.K, c.N, true); /* adds: twice the gradient */
        for (int64_t i = 0; i < dinp.count; i++)
            dinp.f[i] /= 2;
        kern->linear_bwd_w(dev, dw.f, dout.f, c.inp.f, c.R, c.K, c.N);
        assert_gradient("linear dinp", linear_forward, &c, &dout, &c.inp, dinp.f, 1e-5);
        assert_gradient("linear dw", linear_forward, &c, &dout, &c.w, dw.f, 1e-5);
        struct pair *all[] = {&c.inp, &c.w, &dout, &out, &dinp, &dw};
        for (size_t i = 0; i < 6; i++)
            pair_free(all[i]);
    }
}

/* ---- embedding ---- */

struct embed {
    struct pair w;
    int32_t tokens[50];
    int64_t C;
};

static void embed_forward(double *out, void *context)
{
    const struct embed *c = context;
    ref_embed(out, c->tokens, c->w.d, 50, c->C);
}

static void embedding_holds(void **state)
{
    (void)state;
    struct embed c = {.C = 70};
    c.w = pair_new(11 * c.C, 1);
    for (int i = 0; i < 50; i++)
        c.tokens[i] = (int32_t)env_rng_below(&rng, 11);
    struct pair out = pair_new(50 * c.C, 0), dout = pair_new(50 * c.C, 1), dw = pair_new(11 * c.C, 0);
    kern->embed_fwd(dev, out.f, c.tokens, c.w.f, 50, c.C);
    embed_forward(out.d, &c);
    assert_near("embed", out.f, out.d, out.count, 0);
    kern->embed_bwd(dev, dw.f, dout.f, c.tokens, 50, c.C);
    assert_gradient("embed dw", embed_forward, &c, &dout, &c.w, dw.f, 1e-5);
    pair_free(&out);
    pair_free(&dout);
    pair_free(&dw);
    pair_free(&c.w);
}

/* ---- RMSNorm ---- */

struct rmsnorm {
    struct pair inp, w;
    int64_t R, C;
};

static void rmsnorm_forward(double *out, void *context)
{
    const struct rmsnorm *c = context;
    ref_rmsnorm(out, c->inp.d, c->w.d, c->R, c->C, 1e-5);
}

static void rmsnorm_holds(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{1, 1}, {5, 64}, {9, 200}, {40, 130}};
    for (size_t s = 0; s < 4; s++) {
        struct rmsnorm c = {.R = shapes[s][0], .C = shapes[s][1]};
        int64_t count = c.R * c.C;
        c.inp = pair_new(count, 2);
        c.w = pair_new(c.C, 1);
        struct pair out = pair_new(count, 0), dout = pair_new(count, 1), dinp = pair_new(count, 0);
        struct pair dw = pair_new(c.C, 0), rstd = pair_new(c.R, 0), half = pair_new(count, 0), sum = pair_new(count, 0);
        /* The fused form adds two halves first; it must give what the plain form gives on the sum. */
        for (int64_t i = 0; i < count; i++)
            half.f[i] = c.inp.f[i] / 2;
        kern->rmsnorm_fwd(dev, out.f, rstd.f, NULL, c.inp.f, NULL, c.w.f, c.R, c.C, 1e-5f);
        rmsnorm_forward(out.d, &c);
        assert_near("rmsnorm", out.f, out.d, count, 1e-6);
        memset(out.f, 0, (size_t)count * sizeof(float));
        kern->rmsnorm_fwd(dev, out.f, rstd.f, sum.f, half.f, half.f, c.w.f, c.R, c.C, 1e-5f);
        assert_near("rmsnorm of a sum", out.f, out.d, count, 1e-6);
        assert_near("the sum", sum.f, c.inp.d, count, 1e-7);
        kern->rmsnorm_bwd(dev, dinp.f, dw.f, dout.f, c.inp.f, c.w.f, rstd.f, c.R, c.C);
        if (c.C > 1) /* with one column the output is a sign: its gradient is all cancellation */
            assert_gradient("rmsnorm dinp", rmsnorm_forward, &c, &dout, &c.inp, dinp.f, 1e-5);
        assert_gradient("rmsnorm dw", rmsnorm_forward, &c, &dout, &c.w, dw.f, 1e-5);
        struct pair *all[] = {&c.inp, &c.w, &out, &dout, &dinp, &dw, &rstd, &half, &sum};
        for (size_t i = 0; i < 9; i++)
            pair_free(all[i]);
    }
}

/* ---- rotary positions ---- */

static void rope_rotates_and_returns(void **state)
{
    (void)state;
    enum { B = 2, T = 9, H = 3, D = 8, ROW = 5 * D };
    struct pair x = pair_new(B * T * ROW, 1), original = pair_new(B * T * ROW, 0);
    float table[T * D];
    memcpy(original.d, x.d, sizeof(double) * (size_t)x.count);
    for (int64_t t = 0; t < T; t++) {
        for (int64_t i = 0; i < D / 2; i++) {
            double angle = (double)t * pow(10000, -2.0 * (double)i / D);
            table[t * D + 2 * i] = (float)cos(angle);
            table[t * D + 2 * i + 1] = (float)sin(angle);
        }
    }
    kern->rope(dev, x.f, table, B * T, T, ROW, H, D, false);
    ref_rope(x.d, B * T, T, ROW, H, D, 10000);
    assert_near("rope", x.f, x.d, x.count, 1e-6);
    /* A rotation's gradient is the inverse rotation; forth and back is where we began. */
    kern->rope(dev, x.f, table, B * T, T, ROW, H, D, true);
    assert_near("rope inverse", x.f, original.d, x.count, 1e-6);
    pair_free(&x);
    pair_free(&original);
}

/* ---- attention ---- */

struct attention {
    struct pair qkv;
    struct kern_attention d;
};

static void attention_forward(double *out, void *context)
{
    const struct attention *c = context;
    ref_attention(out, c->qkv.d, c->d.B, c->d.T, c->d.H, c->d.G, c->d.D);
}

static void attention_holds(void **state)
{
    (void)state;
    /* one position; grouped heads; one tile; several tiles with a rest */
    static const struct kern_attention shapes[] = {
        {2, 1, 2, 1, 4}, {2, 17, 4, 2, 6}, {1, 128, 2, 2, 8}, {2, 150, 4, 1, 10}};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        struct attention c = {.d = shapes[s]};
        int64_t rows = c.d.B * c.d.T;
        c.qkv = pair_new(rows * (c.d.H + 2 * c.d.G) * c.d.D, 1);
        int64_t count = rows * c.d.H * c.d.D;
        struct pair out = pair_new(count, 0), dout = pair_new(count, 1), lse = pair_new(c.d.B * c.d.H * c.d.T, 0);
        struct pair dqkv = pair_new(c.qkv.count, 5); /* rubbish: it must be overwritten */
        void *scratch = malloc(kern->attention_scratch(dev, &c.d));
        kern->attention_fwd(dev, out.f, lse.f, c.qkv.f, &c.d, scratch);
        attention_forward(out.d, &c);
        assert_near("attention", out.f, out.d, count, 2e-6);
        kern->attention_bwd(dev, dqkv.f, dout.f, out.f, c.qkv.f, lse.f, &c.d, scratch);
        assert_gradient("attention dqkv", attention_forward, &c, &dout, &c.qkv, dqkv.f, 1e-5);
        free(scratch);
        struct pair *all[] = {&c.qkv, &out, &dout, &lse, &dqkv};
        for (size_t i = 0; i < 5; i++)
            pair_free(all[i]);
    }
}

/* ---- SwiGLU ---- */

struct swiglu {
    struct pair gu;
};

static void swiglu_forward(double *out, void *context)
{
    const struct swiglu *c = context;
    ref_swiglu(out, c->gu.d, 6, 50);
}

static void swiglu_holds(void **state)
{
    (void)state;
    struct swiglu c = {.gu = pair_new(600, 4)};
    struct pair out = pair_new(300, 0), dout = pair_new(300, 1), dgu = pair_new(600, 0);
    c.gu.f[0] = -100; /* where e^x leaves the range of float */
    c.gu.f[1] = 100;
    c.gu.d[0] = -100;
    c.gu.d[1] = 100;
    kern->swiglu_fwd(dev, out.f, c.gu.f, 6, 50);
    swiglu_forward(out.d, &c);
    assert_near("swiglu", out.f, out.d, out.count, 1e-6);
    kern->swiglu_bwd(dev, dgu.f, dout.f, c.gu.f, 6, 50);
    for (int i = 0; i < 5; i++)
        assert_gradient("swiglu dgu", swiglu_forward, &c, &dout, &c.gu, dgu.f, 1e-5);
    pair_free(&c.gu);
    pair_free(&out);
    pair_free(&dout);
    pair_free(&dgu);
}

/* ---- loss ---- */

struct loss {
    struct pair logits;
    int32_t targets[20];
    int64_t V;
};

static void loss_forward(double *out, void *context)
{
    const struct loss *c = context;
    out[0] = ref_cross_entropy(c->logits.d, c->targets, 20, c->V);
}

static void cross_entropy_holds(void **state)
{
    (void)state;
    struct loss c = {.V = 301};
    c.logits = pair_new(20 * c.V, 3);
    c.logits.f[5] = 500; /* a logit that would overflow without subtracting the largest */
    c.logits.d[5] = 500;
    for (int i = 0; i < 20; i++)
        c.targets[i] = (int32_t)env_rng_below(&rng, (uint64_t)c.V);
    c.targets[0] = 300;
    struct pair losses = pair_new(20, 0), one = pair_new(1, 0), gradient = pair_new(20 * c.V, 0);
    memcpy(gradient.f, c.logits.f, sizeof(float) * (size_t)gradient.count);
    kern->cross_entropy(dev, losses.f, c.logits.f, c.targets, 20, c.V, 0);
    assert_memory_equal(gradient.f, c.logits.f, sizeof(float) * (size_t)gradient.count);
    double sum = 0;
    for (int i = 0; i < 20; i++)
        sum += losses.f[i];
    double want;
    loss_forward(&want, &c);
    assert_true(fabs(sum / 20 - want) < 1e-6 * want);
    kern->cross_entropy(dev, losses.f, gradient.f, c.targets, 20, c.V, 1.0f / 20);
    one.d[0] = 1;
    for (int i = 0; i < 10; i++)
        assert_gradient("cross-entropy", loss_forward, &c, &one, &c.logits, gradient.f, 1e-5);
    pair_free(&c.logits);
    pair_free(&losses);
    pair_free(&one);
    pair_free(&gradient);
}

/* ---- optimizer ---- */

static void adamw_and_clipping_follow_their_definition(void **state)
{
    (void)state;
    enum { N = 1003 };
    struct pair w = pair_new(N, 1), m = pair_new(N, 0), v = pair_new(N, 0);
    for (int step = 1; step <= 4; step++) {
        struct pair g = pair_new(N, 0.5);
        double sum = 0, want_sum = 0;
        float scale;
        kern->sum_squares(dev, &sum, g.f, N);
        for (int i = 0; i < N; i++)
            want_sum += g.d[i] * g.d[i];
        assert_true(fabs(sum - want_sum) < 1e-12 * want_sum);
        kern->clip_scale(dev, &scale, &sum, 1.0f);
        double factor = sqrt(want_sum) > 1 ? 1 / sqrt(want_sum) : 1;
        assert_true(fabs(scale - factor) < 1e-6);
        struct kern_adamw conf = {.lr = 0.01f,
                                  .beta1 = 0.9f,
                                  .beta2 = 0.99f,
                                  .eps = 1e-8f,
                                  .weight_decay = 0.1f,
                                  .correction1 = (float)(1 - pow(0.9, step)),
                                  .correction2 = (float)(1 - pow(0.99, step))};
        kern->adamw(dev, w.f, w.f, g.f, m.f, v.f, N, &scale, &conf);
        for (int i = 0; i < N; i++) {
            double gradient = factor * g.d[i];
            m.d[i] = 0.9 * m.d[i] + 0.1 * gradient;
            v.d[i] = 0.99 * v.d[i] + 0.01 * gradient * gradient;
            double update = m.d[i] / (1 - pow(0.9, step)) / (sqrt(v.d[i] / (1 - pow(0.99, step))) + 1e-8);
            w.d[i] = w.d[i] * (1 - 0.01 * 0.1) - 0.01 * update;
        }
        pair_free(&g);
    }
    assert_near("adamw w", w.f, w.d, N, 1e-6);
    assert_near("adamw m", m.f, m.d, N, 1e-6);
    assert_near("adamw v", v.f, v.d, N, 1e-5);
    struct pair g = pair_new(N, 1);
    float scale = 0.5f;
    kern->sgd(dev, w.f, w.f, g.f, N, &scale, 0.1f);
    for (int i = 0; i < N; i++)
        w.d[i] -= 0.05 * g.d[i];
    assert_near("sgd", w.f, w.d, N, 1e-6);
    double small = 0.01;
    kern->clip_scale(dev, &scale, &small, 1.0f);
    assert_true(scale == 1.0f);
    double large = 1e6;
    kern->clip_scale(dev, &scale, &large, 0.0f);
    assert_true(scale == 1.0f);
    pair_free(&w);
    pair_free(&m);
    pair_free(&v);
    pair_free(&g);
}

/* Singular values of a step come out near 1 whatever they were, and singular vectors stay: for a matrix made of known
 * ones the step is known. */
static void muon_makes_a_step_orthogonal(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{6, 40}, {40, 6}, {24, 24}};
    for (int s = 0; s < 3; s++) {
        int64_t N = shapes[s][0], K = shapes[s][1], rank = 3;
        struct pair w = pair_new(N * K, 1), g = pair_new(N * K, 0), m = pair_new(N * K, 0);
        double left[3][40], right[3][40];
        /* Cosines of different frequencies are orthogonal (DCT-II), of length sqrt(n / 2). */
        for (int r = 0; r < rank; r++) {
            for (int i = 0; i < N; i++)
                left[r][i] = cos(3.14159265358979 * (r + 1) * (i + 0.5) / (double)N) * sqrt(2.0 / (double)N);
            for (int i = 0; i < K; i++)
                right[r][i] = cos(3.14159265358979 * (r + 1) * (i + 0.5) / (double)K) * sqrt(2.0 / (double)K);
        }
        const double singular[3] = {5, 1, 0.2};
        for (int r = 0; r < rank; r++)
            for (int i = 0; i < N * K; i++)
                g.d[i] += singular[r] * left[r][i / K] * right[r][i % K];
        for (int i = 0; i < N * K; i++)
            g.f[i] = (float)g.d[i];
        float scale = 0.5f, *scratch = calloc(kern->muon_scratch(N, K), sizeof *scratch);
        struct kern_muon conf = {.lr = 0.1f, .momentum = 0.9f, .weight_decay = 0.5f};
        kern->muon(dev, w.f, w.f, g.f, m.f, N, K, &scale, &conf, scratch);
        double unit = 0.1 * 0.2 * sqrt((double)(N > K ? N : K)), rest = 0;
        for (int i = 0; i < N * K; i++) {
            assert_true(fabs((double)m.f[i] - 0.5 * g.d[i]) < 1e-6);
            w.d[i] = ((1 - 0.1 * 0.5) * w.d[i] - (double)w.f[i]) / unit; /* the step */
        }
        for (int r = 0; r < rank; r++) {
            double value = 0;
            for (int i = 0; i < N * K; i++)
                value += left[r][i / K] * w.d[i] * right[r][i % K];
            assert_in_range((uint64_t)(1000 * value), 650, 1250);
            for (int i = 0; i < N * K; i++)
                w.d[i] -= value * left[r][i / K] * right[r][i % K];
        }
        for (int i = 0; i < N * K; i++)
            rest += w.d[i] * w.d[i];
        assert_true(sqrt(rest) < 1e-3);
        free(scratch);
        pair_free(&w);
        pair_free(&g);
        pair_free(&m);
    }
}

static void threads_do_not_change_a_bit(void **state)
{
    (void)state;
    enum { R = 100, C = 200 };
    struct pair x = pair_new(R * C, 1), w = pair_new(C, 1), dout = pair_new(R * C, 1);
    static float out[2][R * C], dx[2][R * C], dw[2][C], rstd[R];
    double sum[2] = {0};
    for (int t = 0; t < 2; t++) {
        struct kern_dev *other;
        assert_ok(kern->open(1 + t, &other));
        memset(dx[t], 0, sizeof dx[t]);
        memset(dw[t], 0, sizeof dw[t]);
        kern->rmsnorm_fwd(other, out[t], rstd, NULL, x.f, NULL, w.f, R, C, 1e-5f);
        kern->rmsnorm_bwd(other, dx[t], dw[t], dout.f, x.f, w.f, rstd, R, C);
        kern->sum_squares(other, &sum[t], x.f, R * C);
        kern->close(other);
    }
    assert_memory_equal(out[0], out[1], sizeof out[0]);
    assert_memory_equal(dx[0], dx[1], sizeof dx[0]);
    assert_memory_equal(dw[0], dw[1], sizeof dw[0]);
    assert_true(sum[0] == sum[1]);
    pair_free(&x);
    pair_free(&w);
    pair_free(&dout);
}

int main(void)
{
    const struct kern *tables[3];
    size_t count = kern_all(tables, 3);
    int failures = 0;
    for (size_t t = 0; t < count; t++) {
        kern = tables[t];
        rng = env_rng_init(7, t);
        assert_ok(kern->open(2, &dev));
        const struct CMUnitTest tests[] = {
            cmocka_unit_test(linear_holds),
            cmocka_unit_test(embedding_holds),
            cmocka_unit_test(rmsnorm_holds),
            cmocka_unit_test(rope_rotates_and_returns),
            cmocka_unit_test(attention_holds),
            cmocka_unit_test(swiglu_holds),
            cmocka_unit_test(cross_entropy_holds),
            cmocka_unit_test(adamw_and_clipping_follow_their_definition),
            cmocka_unit_test(muon_makes_a_step_orthogonal),
            cmocka_unit_test(threads_do_not_change_a_bit),
        };
        print_message("variant %zu of %zu\n", t + 1, count);
        failures += cmocka_run_group_tests(tests, NULL, NULL);
        kern->close(dev);
    }
    const struct kern *none;
    assert_fails(ERR_NOTFOUND, "no device \"tpu\"", kern_find("tpu", &none));
    return failures != 0;
}
