/*
 * cpu: what the files of the CPU implementation share; private to this folder. Each file here is compiled once per
 * instruction set (ISA names it); CPU(name) gives a function the name of its variant. What an operation does and its
 * shapes stand in kern_table.h; cpu_table.c puts them together.
 */
#ifndef KERNELS_CPU_CPU_H
#define KERNELS_CPU_CPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
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

struct kern_dev {
    int threads;
    uint64_t marks; /* given so far: each is reached when it is given */
};

/* Makes the products' copy of values follow, where it is another array. */
static inline void cpu_follow(kern_act *act, const float *values, int64_t count)
{
    if (act != NULL && act != values)
        memcpy(act, values, (size_t)count * sizeof *values);
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

/* C(M,N) = alpha op(A) op(B) + beta C, row-major with leading dimensions; `ta`, `tb` transpose. */
void CPU(gemm)(bool ta, bool tb, int64_t M, int64_t N, int64_t K, float alpha, const float *a, int64_t lda,
               const float *b, int64_t ldb, float beta, float *c, int64_t ldc);

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
