/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu: what the files of the CPU implementation share; private to this folder. Each file here is compiled once per
 * instruction set (ISA names it); CPU(name) gives a function the name of its variant. What an operation does and its
 * shapes stand in kern_table.h; cpu_table.c puts them together.
 *
 * Owns: the operations on the CPU, once for each instruction set.
 * Called by: nobody; kernels/kern.c names its tables.
 * Never includes: kernels/cuda/.
 */
#ifndef KERNELS_CPU_CPU_H
#define KERNELS_CPU_CPU_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "kernels/kern_table.h"

#if defined(_OPENMP)
#include <omp.h>
static inline int cpu_thread(void)
{
    return omp_get_thread_num();
}
#else
static inline int cpu_thread(void)
{
    return 0;
}
#endif

#ifndef ISA
#define ISA base
#endif
#define CPU_JOIN2(a, b) a##_##b
#define CPU_JOIN(a, b) CPU_JOIN2(a, b)
#define CPU(name) CPU_JOIN(cpu_##name, ISA)

typedef uint16_t cpu_half; /* bf16: the upper half of a float */

enum { CPU_FAULT_BYTES = 200 };

struct kern_dev {
    int threads;
    uint64_t marks;               /* given so far: each is reached when it is given */
    struct cpu_bf16 *bf16;        /* cpu_bf16.c; NULL: products are in float */
    struct kern_weights *weights; /* cpu_weights.c: kept packed, a list; NULL: none */
    enum err fault;               /* the first one */
    char fault_text[CPU_FAULT_BYTES];
};

/* Keeps the first failure, for fault(), wait() and sync(). */
__attribute__((format(printf, 3, 4))) static inline void cpu_fault(struct kern_dev *dev, enum err err,
                                                                   const char *format, ...)
{
    va_list arguments;
    if (dev->fault != ERR_OK)
        return;
    va_start(arguments, format);
    vsnprintf(dev->fault_text, sizeof dev->fault_text, format, arguments);
    va_end(arguments);
    dev->fault = err;
}

/* Of what an operation has written that may be weights. */
void CPU(wrote)(struct kern_dev *dev, const void *values, size_t bytes);

/* What changes weights ends with this: the products' copy follows, where it is another array, and who keeps weights in
 * another form is told. */
static inline void cpu_follow(struct kern_dev *dev, kern_act *act, const float *values, int64_t count)
{
    size_t bytes = (size_t)count * sizeof *values;
    CPU(wrote)(dev, values, bytes);
    if (act == NULL || act == values)
        return;
    memcpy(act, values, bytes);
    CPU(wrote)(dev, act, bytes);
}

/* e^x to about 2 ulp by x = n ln2 + r and a polynomial on r (Cephes), written so that a loop over it vectorises.
 * Below -87.3 it gives 0, above 88.3 the largest power; NaN stays NaN, or a row with one would look sound. */
static inline float cpu_exp(float x)
{
    float clamped = x < 88.3f ? x : 88.3f;
    clamped = clamped > -87.3f ? clamped : -87.3f;
    float n = (clamped * 1.44269504088896341f + 0x1.8p23f) - 0x1.8p23f;
    float r = clamped - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    int32_t power = ((int32_t)n + 127) << 23;
    float scale;
    memcpy(&scale, &power, sizeof scale);
    float power_of_e = x > -87.3f ? p * scale : 0.0f;
    return x == x ? power_of_e : x;
}

/* To nearest, ties to even; NaN stays NaN. */
static inline cpu_half cpu_half_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (cpu_half)((bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 0x40 : rounded);
}

/* C(M,N) = alpha op(A) op(B) + beta C, row-major with leading dimensions; `ta`, `tb` transpose. */
void CPU(gemm)(bool ta, bool tb, int64_t M, int64_t N, int64_t K, float alpha, const float *a, int64_t lda,
               const float *b, int64_t ldb, float beta, float *c, int64_t ldc);

/* ---- products with bf16 operands (cpu_bf16.c) ---- */

/* out(M,N) = x(M,K) w(K,N), or += with `add`; rows of out are ld apart. `transposed`: x lies as (K,M). */
struct cpu_product {
    int64_t M, N, K, ld;
    bool transposed, add;
};

/* Whether the library can, with the instructions that this CPU has and its environment allows. */
bool CPU(bf16_there)(void);
enum err CPU(bf16_open)(struct cpu_bf16 **out);
void CPU(bf16_close)(struct cpu_bf16 *bf16); /* NULL is fine */
enum err CPU(bf16_reserve)(struct cpu_bf16 *bf16, int64_t R, int64_t C, int64_t L);
size_t CPU(bf16_reserve_bytes)(int64_t R, int64_t C, int64_t L);
/* To nearest, ties to even; rows of `from` are ld apart, those of `to` follow closely. */
void CPU(bf16_round)(cpu_half *to, const float *from, int64_t rows, int64_t columns, int64_t ld);
/* A second operand (k,n) as products want it; `lying`: it comes as (n,k). */
size_t CPU(bf16_packed_bytes)(int64_t k, int64_t n);
void CPU(bf16_pack)(struct kern_dev *dev, void *to, const cpu_half *from, bool lying, int64_t k, int64_t n);
/* Both operands in the device's memory, each until the next of its kind; NULL after a fault. */
const cpu_half *CPU(bf16_first)(struct kern_dev *dev, const float *x, int64_t rows, int64_t columns, int64_t ld);
const void *CPU(bf16_second)(struct kern_dev *dev, const float *x, bool lying, int64_t k, int64_t n);
/* Does nothing after a fault. */
void CPU(bf16_product)(struct kern_dev *dev, float *out, const cpu_half *x, const void *packed,
                       const struct cpu_product *shape);

/* ---- weights that are kept packed (cpu_weights.c) ---- */

size_t CPU(weights_bytes)(const struct kern_dev *dev, const struct kern_matrix *matrices, size_t count, bool train);
enum err CPU(weights_new)(struct kern_dev *dev, const kern_act *act, const struct kern_matrix *matrices, size_t count,
                          bool train, struct kern_weights **out);
void CPU(weights_free)(struct kern_dev *dev, struct kern_weights *weights);
/* Those of w(N,K) at `at`, for linear_fwd() or (`back`) linear_bwd_inp(), as they are now; NULL: they are not kept. */
const void *CPU(weights_packed)(struct kern_dev *dev, const kern_act *at, int64_t N, int64_t K, bool back);

/* ---- attention with bf16 operands (cpu_heads.c) ---- */

/* Bytes beside the scores that a thread takes; 0: this variant has no such instructions. */
size_t CPU(heads_bf16_bytes)(const struct kern_attention *dims);
/* As attention_fwd() and attention_bwd(); `per_thread` floats of scratch are each thread's. */
void CPU(heads_bf16_fwd)(float *out, float *lse, const float *qkv, const struct kern_attention *dims, float *scratch,
                         size_t per_thread);
void CPU(heads_bf16_bwd)(float *dqkv, const float *dout, const float *out, const float *qkv, const float *lse,
                         const struct kern_attention *dims, float *scratch, size_t per_thread);

/* ---- the table's ---- */

void CPU(linear_fwd)(struct kern_dev *dev, kern_act *out, const kern_act *inp, const kern_act *w,
                     struct kern_linear shape);
void CPU(linear_bwd_inp)(struct kern_dev *dev, kern_act *dinp, const kern_act *dout, const kern_act *w,
                         struct kern_linear shape, bool add);
void CPU(linear_bwd_w)(struct kern_dev *dev, float *dw, const kern_act *dout, const kern_act *inp,
                       struct kern_linear shape);
void CPU(embed_fwd)(struct kern_dev *dev, kern_act *out, const int32_t *tokens, const kern_act *w, int64_t R, int64_t C,
                    int64_t first, int64_t V);
void CPU(embed_bwd)(struct kern_dev *dev, float *dw, const kern_act *dout, const int32_t *tokens, int64_t R, int64_t C,
                    int64_t first, int64_t V);
void CPU(rmsnorm_fwd)(struct kern_dev *dev, kern_act *out, float *rstd, kern_act *sum, const kern_act *inp,
                      const kern_act *add, const kern_act *w, int64_t R, int64_t C, float eps);
void CPU(rmsnorm_bwd)(struct kern_dev *dev, kern_act *dinp, float *dw, const kern_act *dout, const kern_act *inp,
                      const kern_act *w, const float *rstd, int64_t R, int64_t C);
void CPU(rope)(struct kern_dev *dev, kern_act *x, const float *cos_sin, int64_t R, int64_t T, int64_t row,
               int64_t heads, int64_t D, bool inverse);
size_t CPU(attention_scratch)(const struct kern_dev *dev, const struct kern_attention *dims);
void CPU(attention_fwd)(struct kern_dev *dev, kern_act *out, float *lse, const kern_act *qkv,
                        const struct kern_attention *dims, void *scratch);
void CPU(attention_bwd)(struct kern_dev *dev, kern_act *dqkv, const kern_act *dout, const kern_act *out,
                        const kern_act *qkv, const float *lse, const struct kern_attention *dims, void *scratch);
void CPU(attention_decode)(struct kern_dev *dev, kern_act *out, const kern_act *qkv, kern_act *cache, int64_t at,
                           const struct kern_attention *dims, void *scratch);
void CPU(swiglu_fwd)(struct kern_dev *dev, kern_act *out, const kern_act *gu, int64_t R, int64_t F);
void CPU(swiglu_bwd)(struct kern_dev *dev, kern_act *dgu, const kern_act *dout, const kern_act *gu, int64_t R,
                     int64_t F);
void CPU(logits_shape)(int64_t R, int64_t V, int64_t *rows, int64_t *ld);
void CPU(cross_entropy)(struct kern_dev *dev, float *losses, kern_act *logits, const int32_t *targets,
                        struct kern_logits shape, float scale);
void CPU(loss_part)(struct kern_dev *dev, float *stats, const kern_act *logits, const int32_t *targets,
                    struct kern_logits shape);
void CPU(loss_join)(struct kern_dev *dev, float *losses, float *lse, const float *stats, int64_t parts, int64_t R);
void CPU(loss_back)(struct kern_dev *dev, kern_act *logits, const float *lse, const int32_t *targets,
                    struct kern_logits shape, float scale);
void CPU(add_losses)(struct kern_dev *dev, double *total, const float *losses, int64_t R, double factor);
void CPU(sum_squares)(struct kern_dev *dev, struct kern_step *step, const float *x, int64_t count);
void CPU(judge)(struct kern_dev *dev, struct kern_step *step, struct kern_judge conf);
enum err CPU(spans_new)(struct kern_dev *dev, const struct kern_span *spans, size_t count, struct kern_spans **out);
void CPU(spans_free)(struct kern_dev *dev, struct kern_spans *spans);
void CPU(adamw)(struct kern_dev *dev, float *w, kern_act *act, const float *g, float *m, float *v,
                const struct kern_spans *spans, const struct kern_step *step, struct kern_adamw conf);
void CPU(sgd)(struct kern_dev *dev, float *w, kern_act *act, const float *g, const struct kern_spans *spans,
              const struct kern_step *step, float lr, struct kern_rounding rounding);
size_t CPU(muon_scratch)(int64_t N, int64_t K);
void CPU(muon_aim)(struct kern_dev *dev, float *g, float *m, int64_t count, const struct kern_step *step,
                   float momentum);
void CPU(orthogonalise)(struct kern_dev *dev, float *u, int64_t N, int64_t K, void *scratch);
void CPU(muon_apply)(struct kern_dev *dev, float *w, kern_act *act, const float *u, int64_t count, int64_t longer,
                     const struct kern_step *step, struct kern_muon conf);
void CPU(mix)(struct kern_dev *dev, float *live, kern_act *act, const float *anchor, int64_t count, float keep);
void CPU(shift)(struct kern_dev *dev, float *live, kern_act *act, const float *anchor, const float *base,
                int64_t count);
void CPU(aside_out)(struct kern_dev *dev, float *live, kern_act *act, const float *base, float *aside,
                    const float *past, int64_t count, struct kern_aside rule);
void CPU(aside_in)(struct kern_dev *dev, float *live, kern_act *act, const float *base, const float *anchor,
                   const float *aside, float *past, bool counted, int64_t count, struct kern_aside rule);
void CPU(aside_off)(struct kern_dev *dev, float *live, kern_act *act, const float *aside, const float *past,
                    const int32_t *bad, int64_t count, struct kern_aside rule);
void CPU(find_bad)(struct kern_dev *dev, int32_t *bad, const float *x, int64_t count);

#endif
