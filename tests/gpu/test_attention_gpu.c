/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention by our kernels and by cuDNN's on a GPU: the cases of tests/kern with cuDNN's forced; both at lengths of
 * real models, against each other and, head by head, against double precision, and twice for the same bits; then whose
 * kernels the models of the bench go by, with the times that the choice was made from.
 *
 * Of each shape it prints what was found, and what cuDNN said of one that it refused. Without cuDNN it is skipped.
 */
#include "tests/lib/testlib.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/digest.h"
#include "common/dtype.h"
#include "common/env.h"
#include "tests/gpu/gpu.h"
#include "tests/kern/arrays.h"
#include "tests/kern/cases.h"

enum { TEXT_BYTES = 1024, EXACT_MOST = 1100, ROWS_SEEN = 24 };
/* Relative to the norm. Of gradients: keys' and values' are rounded for each query head before they are added up. */
#define TOLERANCE 8e-3
#define GRADIENT_TOLERANCE 1.5e-2

static const struct kern *table;
static struct kern_dev *ours, *dnn;

/* ---- one side ---- */

struct results {
    uint16_t *out, *dqkv;
    float *lse;
};

struct inputs {
    struct kern_attention d;
    int64_t rows, row, width; /* values of a row of qkv, and of out */
    uint16_t *qkv, *dout;
};

static float wide(uint16_t x)
{
    float out;
    dtype_decode(DTYPE_BF16, &x, 1, &out);
    return out;
}

static uint16_t narrow(float x)
{
    uint16_t out;
    (void)dtype_encode(DTYPE_BF16, &x, 1, &out); /* none is too large */
    return out;
}

static void *room(size_t count, size_t bytes)
{
    void *out = calloc(count, bytes);
    assert_non_null(out);
    return out;
}

static uint16_t *drawn(struct env_rng *rng, int64_t count)
{
    uint16_t *out = room((size_t)count, sizeof *out);
    for (int64_t i = 0; i < count; i++) {
        /* Four uniform ones added: near enough to a normal value of deviation 1. */
        uint64_t bits = env_rng_u64(rng);
        float sum = 0;
        for (int k = 0; k < 4; k++)
            sum += (float)(bits >> 16 * k & 0xffff) / 65536.0f - 0.5f;
        out[i] = narrow(sum * 1.732f);
    }
    return out;
}

static void *on_device(struct kern_dev *at, size_t bytes, const void *values)
{
    void *out;
    assert_ok(table->alloc(at, bytes, "an array", &out));
    if (values != NULL)
        table->copy(at, KERN_MAIN, out, values, bytes);
    return out;
}

static struct results attend(struct kern_dev *at, const struct inputs *in)
{
    size_t qkv_bytes = (size_t)(in->rows * in->row) * 2, out_bytes = (size_t)(in->rows * in->width) * 2;
    size_t lse_bytes = (size_t)(in->rows * in->d.H) * sizeof(float);
    struct results r = {room(out_bytes, 1), room(qkv_bytes, 1), room(lse_bytes, 1)};
    void *qkv = on_device(at, qkv_bytes, in->qkv), *dout = on_device(at, out_bytes, in->dout);
    void *out = on_device(at, out_bytes, NULL), *dqkv = on_device(at, qkv_bytes, NULL);
    float *lse = on_device(at, lse_bytes, NULL);
    void *scratch = on_device(at, table->attention_scratch(at, &in->d) + 1, NULL);
    table->attention_fwd(at, out, lse, qkv, &in->d, scratch);
    table->attention_bwd(at, dqkv, dout, out, qkv, lse, &in->d, scratch);
    table->copy(at, KERN_MAIN, r.out, out, out_bytes);
    table->copy(at, KERN_MAIN, r.dqkv, dqkv, qkv_bytes);
    table->copy(at, KERN_MAIN, r.lse, lse, lse_bytes);
    assert_ok(table->sync(at));
    void *const all[] = {qkv, dout, out, dqkv, lse, scratch};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        table->free(at, all[i]);
    return r;
}

static void release(struct results *r)
{
    free(r->out);
    free(r->dqkv);
    free(r->lse);
}

/* ---- against double precision ---- */

struct error {
    double wrong, all; /* sums of squares */
};

static void count_in(struct error *e, double got, double want)
{
    e->wrong += (got - want) * (got - want);
    e->all += want * want;
}

static double share(struct error e)
{
    return e.all > 0 ? sqrt(e.wrong / e.all) : 0;
}

struct exact {
    double *q, *k, *v, *dout; /* (T,D): one query head, and its key head, in double */
    double *dk, *dv, *p, *dp, *out, *dq;
};

static void load(double *to, const uint16_t *from, int64_t T, int64_t D, int64_t row)
{
    for (int64_t t = 0; t < T; t++)
        for (int64_t c = 0; c < D; c++)
            to[t * D + c] = (double)wide(from[t * row + c]);
}

static double dot(const double *x, const double *y, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += x[i] * y[i];
    return sum;
}

static void add_to(double *y, double factor, const double *x, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        y[i] += factor * x[i];
}

/* Row i of a head: out, dq, log-sum-exp; what it adds to dk and dv. */
static double exact_row(const struct exact *e, int64_t i, int64_t D)
{
    double scale = 1 / sqrt((double)D), most = -INFINITY, sum = 0, delta;
    memset(e->out, 0, (size_t)D * sizeof *e->out);
    memset(e->dq, 0, (size_t)D * sizeof *e->dq);
    for (int64_t j = 0; j <= i; j++) {
        e->p[j] = scale * dot(e->q + i * D, e->k + j * D, D);
        most = fmax(most, e->p[j]);
    }
    for (int64_t j = 0; j <= i; j++)
        sum += exp(e->p[j] - most);
    for (int64_t j = 0; j <= i; j++) {
        e->p[j] = exp(e->p[j] - most) / sum;
        add_to(e->out, e->p[j], e->v + j * D, D);
        e->dp[j] = dot(e->dout + i * D, e->v + j * D, D);
    }
    delta = dot(e->dout + i * D, e->out, D);
    for (int64_t j = 0; j <= i; j++) {
        double ds = scale * e->p[j] * (e->dp[j] - delta);
        add_to(e->dq, ds, e->k + j * D, D);
        add_to(e->dk + j * D, ds, e->q + i * D, D);
        add_to(e->dv + j * D, e->p[j], e->dout + i * D, D);
    }
    return most + log(sum);
}

struct errors {
    struct error out, dq, dk, dv;
    double lse;
};

static void compare_row(struct errors *e, const struct exact *x, const struct inputs *in, const struct results *r,
                        int64_t position, int64_t head, double lse, int64_t b)
{
    int64_t D = in->d.D, at = b * in->d.T + position;
    for (int64_t c = 0; c < D; c++) {
        count_in(&e->out, (double)wide(r->out[at * in->width + head * D + c]), x->out[c]);
        count_in(&e->dq, (double)wide(r->dqkv[at * in->row + head * D + c]), x->dq[c]);
    }
    e->lse = fmax(e->lse, fabs((double)r->lse[(b * in->d.H + head) * in->d.T + position] - lse));
}

static void compare_keys(struct errors *e, const struct exact *x, const struct inputs *in, const struct results *r,
                         int64_t b, int64_t group)
{
    int64_t D = in->d.D;
    for (int64_t t = 0; t < in->d.T; t++)
        for (int64_t c = 0; c < D; c++) {
            const uint16_t *row = r->dqkv + (b * in->d.T + t) * in->row + (in->d.H + group) * D + c;
            count_in(&e->dk, (double)wide(row[0]), x->dk[t * D + c]);
            count_in(&e->dv, (double)wide(row[in->d.G * D]), x->dv[t * D + c]);
        }
}

/* The last sequence's last key head, with all query heads that share it: all of it, or some rows of a long one. */
static void check_exactly(const struct inputs *in, const struct results *both, struct errors *errors)
{
    int64_t T = in->d.T, D = in->d.D, b = in->d.B - 1, group = in->d.G - 1, each = in->d.H / in->d.G;
    bool whole = T <= EXACT_MOST;
    int64_t step = whole ? 1 : T / ROWS_SEEN;
    double *memory = room((size_t)(6 * T * D + 2 * T + 2 * D), sizeof *memory);
    struct exact x = {.q = memory, .k = memory + T * D, .v = memory + 2 * T * D, .dout = memory + 3 * T * D};
    x.dk = memory + 4 * T * D;
    x.dv = memory + 5 * T * D;
    x.p = memory + 6 * T * D;
    x.dp = x.p + T;
    x.out = x.dp + T;
    x.dq = x.out + D;
    const uint16_t *first = in->qkv + b * T * in->row;
    load(x.k, first + (in->d.H + group) * D, T, D, in->row);
    load(x.v, first + (in->d.H + in->d.G + group) * D, T, D, in->row);
    for (int64_t head = group * each; head < (group + 1) * each; head++) {
        load(x.q, first + head * D, T, D, in->row);
        load(x.dout, in->dout + b * T * in->width + head * D, T, D, in->width);
        for (int64_t i = whole ? 0 : step - 1; i < T; i += step) {
            double lse = exact_row(&x, i, D);
            for (int side = 0; side < 2; side++)
                compare_row(&errors[side], &x, in, &both[side], i, head, lse, b);
        }
    }
    for (int side = 0; side < 2 && whole; side++)
        compare_keys(&errors[side], &x, in, &both[side], b, group);
    free(memory);
}

/* ---- cases ---- */

static double apart(const uint16_t *got, const uint16_t *want, int64_t count)
{
    struct error e = {0, 0};
    for (int64_t i = 0; i < count; i++)
        count_in(&e, (double)wide(got[i]), (double)wide(want[i]));
    return share(e);
}

static bool by_dnn(const struct kern_attention *d, bool backward)
{
    char text[TEXT_BYTES];
    table->attention_by(dnn, d, backward, text, sizeof text);
    printf("    %s: %s\n", backward ? "bwd" : "fwd", text);
    return strncmp(text, "cuDNN", 5) == 0;
}

static void judge(const char *what, double error, double tolerance)
{
    if (!(error <= tolerance))
        fail_msg("%s: error %.3g, and %.3g is allowed", what, error, tolerance);
}

static void large_case(struct kern_attention d, struct env_rng *rng)
{
    static const char *const sides[] = {"ours", "cuDNN"};
    struct inputs in = {.d = d, .rows = d.B * d.T, .row = (d.H + 2 * d.G) * d.D, .width = d.H * d.D};
    in.qkv = drawn(rng, in.rows * in.row);
    in.dout = drawn(rng, in.rows * in.width);
    printf("  B %lld, T %lld, H %lld, G %lld, D %lld\n", (long long)d.B, (long long)d.T, (long long)d.H, (long long)d.G,
           (long long)d.D);
    struct results both[] = {attend(ours, &in), attend(dnn, &in)}, again = attend(dnn, &in);
    bool forward = by_dnn(&d, false), backward = by_dnn(&d, true);
    struct errors errors[2] = {{.lse = 0}, {.lse = 0}};
    check_exactly(&in, both, errors);
    double out = apart(both[1].out, both[0].out, in.rows * in.width);
    double dqkv = apart(both[1].dqkv, both[0].dqkv, in.rows * in.row);
    for (int s = 0; s < 2; s++)
        printf("    %-5s against double: out %.2e, lse %.1e, dq %.2e, dk %.2e, dv %.2e\n", sides[s],
               share(errors[s].out), errors[s].lse, share(errors[s].dq), share(errors[s].dk), share(errors[s].dv));
    printf("    cuDNN against ours: out %.2e, dqkv %.2e\n", out, dqkv);
    fflush(stdout);
    for (int s = 0; s < 2; s++) {
        judge("out", share(errors[s].out), TOLERANCE);
        judge("lse", errors[s].lse, 1e-4);
        judge("dq", share(errors[s].dq), GRADIENT_TOLERANCE);
        judge("dk", share(errors[s].dk), GRADIENT_TOLERANCE);
        judge("dv", share(errors[s].dv), GRADIENT_TOLERANCE);
    }
    judge("out against ours", out, TOLERANCE);
    judge("dqkv against ours", dqkv, GRADIENT_TOLERANCE);
    assert_memory_equal(both[1].out, again.out, (size_t)(in.rows * in.width) * 2);
    assert_memory_equal(both[1].lse, again.lse, (size_t)(in.rows * d.H) * sizeof(float));
    assert_memory_equal(both[1].dqkv, again.dqkv, (size_t)(in.rows * in.row) * 2);
    assert_true(forward && backward);
    release(&both[0]);
    release(&both[1]);
    release(&again);
    free(in.qkv);
    free(in.dout);
}

#define LARGE(name, ...)                                        \
    static void name(void **state)                              \
    {                                                           \
        struct env_rng rng = env_rng_init(17, 0);               \
        (void)state;                                            \
        large_case((struct kern_attention){__VA_ARGS__}, &rng); \
    }
LARGE(heads_of_128, 2, 1024, 4, 4, 128)
LARGE(heads_of_64, 2, 1024, 4, 4, 64)
LARGE(a_length_of_no_tile_128, 2, 1030, 4, 2, 128)
LARGE(a_length_of_no_tile_64, 2, 1030, 4, 1, 64)
LARGE(grouped_2048, 2, 2048, 8, 2, 128)
LARGE(grouped_4096, 1, 4096, 4, 1, 128)
LARGE(long_64, 1, 4096, 8, 8, 64)

static void the_cases_hold_with_cudnn(void **state)
{
    (void)state;
    arrays_begin(table, dnn);
    assert_ok(table->reserve(dnn, CASES_ROWS, CASES_COLUMNS, 0));
    attention_holds(NULL);
    struct digest first = arrays_digest();
    arrays_begin(table, dnn);
    attention_holds(NULL);
    struct digest again = arrays_digest();
    assert_true(digest_equal(&first, &again));
}

static void what_is_not_finite_stays_with_cudnn(void **state)
{
    (void)state;
    arrays_begin(table, dnn);
    attention_keeps_what_is_not_finite(NULL);
}

/* By trial, as a run does it. */
static void choose(const char *name, struct kern_dev *by_trial, struct kern_attention d)
{
    char text[TEXT_BYTES];
    struct env_rng rng = env_rng_init(18, 0);
    struct inputs in = {.d = d, .rows = d.B * d.T, .row = (d.H + 2 * d.G) * d.D, .width = d.H * d.D};
    in.qkv = drawn(&rng, in.rows * in.row);
    in.dout = drawn(&rng, in.rows * in.width);
    struct results r = attend(by_trial, &in);
    for (int backward = 0; backward < 2; backward++) {
        table->attention_by(by_trial, &d, backward == 1, text, sizeof text);
        printf("  %s %s: %s\n", name, backward == 1 ? "bwd" : "fwd", text);
    }
    fflush(stdout);
    release(&r);
    free(in.qkv);
    free(in.dout);
}

static struct kern_dev *open_by(const char *rule)
{
    const struct kern_place place = {.device = gpu_number()};
    struct kern_dev *out;
    if (rule != NULL)
        setenv("DILOCO_ATTENTION", rule, 1);
    else
        unsetenv("DILOCO_ATTENTION");
    assert_ok(table->open(&place, &out));
    return out;
}

static void the_models_of_the_bench_choose(void **state)
{
    (void)state;
    struct kern_dev *by_trial = open_by(NULL);
    choose("1.3B", by_trial, (struct kern_attention){8, 2048, 16, 16, 128});
    choose("350M", by_trial, (struct kern_attention){32, 1024, 16, 16, 64});
    choose("124M", by_trial, (struct kern_attention){32, 1024, 12, 12, 64});
    table->close(by_trial);
}

static int all_cases(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_of_128),
        cmocka_unit_test(heads_of_64),
        cmocka_unit_test(the_models_of_the_bench_choose),
        cmocka_unit_test(a_length_of_no_tile_128),
        cmocka_unit_test(a_length_of_no_tile_64),
        cmocka_unit_test(grouped_2048),
        cmocka_unit_test(grouped_4096),
        cmocka_unit_test(long_64),
        cmocka_unit_test(the_cases_hold_with_cudnn),
        cmocka_unit_test(what_is_not_finite_stays_with_cudnn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    const struct kern_attention small = {1, 64, 2, 2, 64};
    char text[TEXT_BYTES];
    int status = gpu_open(&table, &ours);
    if (status != 0)
        return status;
    table->close(ours);
    assert_ok(digest_init());
    ours = open_by("ours");
    dnn = open_by("cudnn");
    (void)table->attention_scratch(dnn, &small);
    table->attention_by(dnn, &small, false, text, sizeof text);
    printf("a small shape, fwd: %s\n", text);
    int failures = 0;
    if (strstr(text, "not found") != NULL || strstr(text, "is needed") != NULL)
        status = GPU_SKIPPED;
    else
        failures = all_cases();
    table->close(dnn);
    table->close(ours);
    if (status == GPU_SKIPPED)
        printf("skipped: %s\n", text);
    return status != 0 ? status : failures != 0;
}
