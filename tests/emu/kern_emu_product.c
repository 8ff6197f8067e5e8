/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_multiply() of the emulated table: the plain product, sums in fp32 in order of k. */
#include <string.h>

#include "common/mem.h"
#include "kernels/cuda/cuda.h"
#include "tests/emu/emu.h"

/* Its loops run over private copies; looking at each access would make sanitizers the most of a test. */
#if defined(__clang__)
#define LOOPS __attribute__((no_sanitize("address", "thread", "undefined")))
#else
#define LOOPS __attribute__((no_sanitize("address", "thread", "undefined"), optimize("O3")))
#endif

enum { ROWS = 4 };

static float widen(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float out;
    memcpy(&out, &wide, sizeof out);
    return out;
}

/* To nearest, ties to even; NaN stays NaN. */
static uint16_t narrow(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return x != x ? 0x7fff : (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

/* op(X)(rows, columns) as floats; `turned`: X is stored (columns, rows). */
static void spread(float *out, const uint16_t *x, int64_t rows, int64_t columns, int64_t ld, bool turned)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            out[i * columns + j] = widen(turned ? x[j * ld + i] : x[i * ld + j]);
}

/* sums(ROWS,N) = a(ROWS,K) b(K,N) */
LOOPS static void multiply_rows(float *restrict sums, const float *restrict a, const float *restrict b, int64_t N,
                                int64_t K)
{
    for (int64_t i = 0; i < ROWS * N; i++)
        sums[i] = 0;
    for (int64_t k = 0; k < K; k++) {
        float a0 = a[k], a1 = a[K + k], a2 = a[2 * K + k], a3 = a[3 * K + k];
        for (int64_t j = 0; j < N; j++) {
            float x = b[k * N + j];
            sums[j] += a0 * x;
            sums[N + j] += a1 * x;
            sums[2 * N + j] += a2 * x;
            sums[3 * N + j] += a3 * x;
        }
    }
}

static void put_row(void *c, int64_t row, const float *sums, const struct cuda_product *p)
{
    for (int64_t j = 0; j < p->N; j++) {
        int64_t at = row * p->ldc + j;
        float value = p->alpha * sums[j];
        if (p->beta != 0)
            value += p->beta * (p->to_float ? ((const float *)c)[at] : widen(((const uint16_t *)c)[at]));
        if (p->to_float)
            ((float *)c)[at] = value;
        else
            ((uint16_t *)c)[at] = narrow(value);
    }
}

struct factors {
    void *c;
    const kern_act *a, *b;
    struct cuda_product product;
};

static void multiply(void *context)
{
    const struct factors *f = context;
    const struct cuda_product p = f->product;
    float *all;
    int64_t rows = (p.M + ROWS - 1) / ROWS * ROWS;
    if (mem_new((size_t)(rows * p.K + p.K * p.N + ROWS * p.N), sizeof *all, "a product", &all) != ERR_OK) {
        emu_record("multiply: %s", err_text());
        return;
    }
    float *b_wide = all + rows * p.K, *sums = b_wide + p.K * p.N;
    spread(all, f->a, p.M, p.K, p.lda, p.ta);
    spread(b_wide, f->b, p.K, p.N, p.ldb, p.tb);
    for (int64_t row = 0; row < p.M; row += ROWS) {
        multiply_rows(sums, all + row * p.K, b_wide, p.N, p.K);
        for (int64_t i = row; i < row + ROWS && i < p.M; i++)
            put_row(f->c, i, sums + (i - row) * p.N, &p);
    }
    mem_free(all);
}

void cuda_multiply(struct kern_dev *dev, void *c, const kern_act *a, const kern_act *b, struct cuda_product p)
{
    if (p.M <= 0 || p.N <= 0 || p.K < 0 || p.ldc < p.N || p.lda < (p.ta ? p.M : p.K) || p.ldb < (p.tb ? p.K : p.N)) {
        emu_record("multiply: M %lld N %lld K %lld lda %lld ldb %lld ldc %lld make no sense", (long long)p.M,
                   (long long)p.N, (long long)p.K, (long long)p.lda, (long long)p.ldb, (long long)p.ldc);
        return;
    }
    emu_queue(dev, multiply, &(struct factors){c, a, b, p}, sizeof(struct factors));
}
