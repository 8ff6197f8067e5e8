/*
 * kern_table: the operations of a training step, as one table with several implementations.
 *
 * A table works on one device. Arrays live in that device's memory (alloc) and are of three kinds: `kern_act`, the
 * type activations and the copy of the weights used in products have (float on the CPU, bf16 on CUDA); float, for
 * master weights, gradients, optimizer state, losses and statistics; int32_t, for tokens. Calls are queued in order
 * on the device's stream and return at once; only download() and sync() wait. The CPU table computes at once and is
 * the readable oracle the others are tested against. Implementations include this header; other rooms get it with
 * kern.h, which chooses a table.
 *
 * One thread calls; a table may use many inside. The same call with the same inputs gives the same bits, whatever the
 * number of threads, except for the matrix products, which are the library's.
 * Shapes: B batch, T time, C width, H query heads, G key/value heads, D head size, F hidden width, V vocabulary,
 * R = B * T rows. Row-major, the last index fastest. "+=" accumulates into the output.
 */
#ifndef KERNELS_KERN_TABLE_H
#define KERNELS_KERN_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

typedef void kern_act;

struct kern_dev;

struct kern_attention {
    int64_t B, T, H, G, D; /* G divides H; D even */
};

struct kern_adamw {
    float lr, beta1, beta2, eps, weight_decay;
    float correction1, correction2; /* 1 - beta1^step, 1 - beta2^step */
};

struct kern_muon {
    float lr, momentum, weight_decay;
};

struct kern {
    const char *name;
    size_t act_bytes;

    /* ---- device and memory ---- */
    /* `threads`: CPU threads to use, 0 for all. ERR_NOTFOUND if there is no such device. */
    enum err (*open)(int threads, struct kern_dev **dev);
    void (*close)(struct kern_dev *dev);
    /* Zeroed. ERR_NOMEM names `what`. */
    enum err (*alloc)(struct kern_dev *dev, size_t bytes, const char *what, void **out);
    void (*free)(struct kern_dev *dev, void *pointer);
    void (*zero)(struct kern_dev *dev, void *pointer, size_t bytes);
    void (*upload)(struct kern_dev *dev, void *to, const void *from_host, size_t bytes);
    void (*download)(struct kern_dev *dev, void *to_host, const void *from, size_t bytes);
    /* float to act, rounding to nearest; on the CPU `to` may be `from`. */
    void (*to_act)(struct kern_dev *dev, kern_act *to, const float *from, int64_t count);
    void (*download_act)(struct kern_dev *dev, float *to_host, const kern_act *from, int64_t count);
    enum err (*sync)(struct kern_dev *dev);

    /* ---- linear layers; weights are (N,K) as in y = x W^T ---- */
    /* out(R,N) = inp(R,K) w(N,K)^T */
    void (*linear_fwd)(struct kern_dev *dev, kern_act *out, const kern_act *inp, const kern_act *w, int64_t R,
                       int64_t K, int64_t N);
    /* dinp(R,K) = dout(R,N) w(N,K), or += with `add` */
    void (*linear_bwd_inp)(struct kern_dev *dev, kern_act *dinp, const kern_act *dout, const kern_act *w, int64_t R,
                           int64_t K, int64_t N, bool add);
    /* dw(N,K) += dout(R,N)^T inp(R,K) */
    void (*linear_bwd_w)(struct kern_dev *dev, float *dw, const kern_act *dout, const kern_act *inp, int64_t R,
                         int64_t K, int64_t N);

    /* ---- the rest of the forward and backward pass ---- */
    /* out(R,C) = w(V,C)[tokens(R)] */
    void (*embed_fwd)(struct kern_dev *dev, kern_act *out, const int32_t *tokens, const kern_act *w, int64_t R,
                      int64_t C);
    /* dw(V,C)[tokens(R)] += dout(R,C), rows in order */
    void (*embed_bwd)(struct kern_dev *dev, float *dw, const kern_act *dout, const int32_t *tokens, int64_t R,
                      int64_t C);
    /* sum(R,C) = inp(R,C) + add(R,C) (`add` NULL: sum is not written and inp is normalised);
     * out = sum * rstd * w(C), rstd(R) = 1 / sqrt(mean(sum^2) + eps) */
    void (*rmsnorm_fwd)(struct kern_dev *dev, kern_act *out, float *rstd, kern_act *sum, const kern_act *inp,
                        const kern_act *add, const kern_act *w, int64_t R, int64_t C, float eps);
    /* dinp(R,C) += gradient through the norm of inp(R,C); dw(C) += */
    void (*rmsnorm_bwd)(struct kern_dev *dev, kern_act *dinp, float *dw, const kern_act *dout, const kern_act *inp,
                        const kern_act *w, const float *rstd, int64_t R, int64_t C);
    /* Rotates, in place, the first `heads` heads of each row of x(R, row) by the angles of its position (row mod T).
     * Pairs are (i, i + D/2), as in Llama's published code. cos_sin(T, D/2, 2). `inverse` for the backward pass. */
    void (*rope)(struct kern_dev *dev, kern_act *x, const float *cos_sin, int64_t R, int64_t T, int64_t row,
                 int64_t heads, int64_t D, bool inverse);
    /* qkv(R, (H+2G)*D): queries, keys, values. out(R, H*D). lse(B,H,T): log-sum-exp of each row of scores.
     * Causal; scores are never held for more than a tile of rows per thread. `scratch` is attention_scratch() bytes. */
    size_t (*attention_scratch)(const struct kern_dev *dev, const struct kern_attention *dims);
    void (*attention_fwd)(struct kern_dev *dev, kern_act *out, float *lse, const kern_act *qkv,
                          const struct kern_attention *dims, void *scratch);
    /* dqkv(R, (H+2G)*D) is overwritten */
    void (*attention_bwd)(struct kern_dev *dev, kern_act *dqkv, const kern_act *dout, const kern_act *out,
                          const kern_act *qkv, const float *lse, const struct kern_attention *dims, void *scratch);
    /* One more position `at` of one sequence: qkv((H+2G)*D) of that position; its keys and values are put into
     * cache(2, T, G*D) and out(H*D) attends to positions 0..at. */
    void (*attention_decode)(struct kern_dev *dev, kern_act *out, const kern_act *qkv, kern_act *cache, int64_t at,
                             const struct kern_attention *dims, void *scratch);
    /* gu(R, 2F): gate, up. out(R,F) = silu(gate) * up */
    void (*swiglu_fwd)(struct kern_dev *dev, kern_act *out, const kern_act *gu, int64_t R, int64_t F);
    void (*swiglu_bwd)(struct kern_dev *dev, kern_act *dgu, const kern_act *dout, const kern_act *gu, int64_t R,
                       int64_t F);
    /* losses(R) = cross-entropy of logits(R,V) at targets(R); with `scale` != 0 logits become scale * dloss/dlogits */
    void (*cross_entropy)(struct kern_dev *dev, float *losses, kern_act *logits, const int32_t *targets, int64_t R,
                          int64_t V, float scale);

    /* ---- optimizer ---- */
    /* sum(1) += sum of x^2, over fixed blocks in fixed order, in double */
    void (*sum_squares)(struct kern_dev *dev, double *sum, const float *x, int64_t count);
    /* scale(1) = factor that brings the norm sqrt(sum) down to `norm_max`, at most 1; 1 if norm_max is 0 */
    void (*clip_scale)(struct kern_dev *dev, float *scale, const double *sum, float norm_max);
    /* One AdamW step with decoupled decay (Loshchilov & Hutter 2019) on w, m, v(count) with gradient scale(1) * g;
     * the new weights go to `act` as well where that is another array. */
    void (*adamw)(struct kern_dev *dev, float *w, kern_act *act, const float *g, float *m, float *v, int64_t count,
                  const float *scale, const struct kern_adamw *conf);
    /* One Muon step (Jordan and others 2024) on a matrix w(N,K) with momentum m(N,K) and gradient scale(1) * g:
     *   m = momentum m + g; u = g + momentum m, made nearly orthogonal by five Newton-Schulz iterations;
     *   w = (1 - lr weight_decay) w - lr 0.2 sqrt(max(N,K)) u, so that learning rates are AdamW's (2502.16982).
     * `scratch` is muon_scratch() floats. */
    size_t (*muon_scratch)(int64_t N, int64_t K);
    void (*muon)(struct kern_dev *dev, float *w, kern_act *act, const float *g, float *m, int64_t N, int64_t K,
                 const float *scale, const struct kern_muon *conf, float *scratch);
    /* w = w - lr * scale * g */
    void (*sgd)(struct kern_dev *dev, float *w, kern_act *act, const float *g, int64_t count, const float *scale,
                float lr);
};

/* One for each instruction set that the Makefile compiles for; kern.c chooses, nobody else names one. */
extern const struct kern kern_cpu_base, kern_cpu_avx2, kern_cpu_avx512;

#endif
