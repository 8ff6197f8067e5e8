/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kern_table: the operations of a training step, as one table with several implementations.
 *
 * A table works on one device. Arrays live in that device's memory (alloc) and are of three kinds: `kern_act`, the
 * type activations and the copy of the weights used in products have (float on the CPU, bf16 on CUDA); float, for
 * master weights, gradients, optimizer state, losses and statistics; int32_t, for tokens. Calls are queued in order
 * and return at once; only wait() and sync() wait. Operations go to the queue MAIN, copies to the one they name; what
 * one queue must not begin before another has come so far is said by order(). The CPU table computes at once and is
 * the readable oracle the others are tested against. Implementations include this header; other rooms get it with
 * kern.h, which chooses a table.
 *
 * An operation that cannot fail by its arguments returns nothing: what goes wrong on the device later is kept as its
 * fault (the first one, with the operation's name) and comes back from fault(), wait() and sync().
 *
 * One thread calls; a table may use many inside. The same call with the same inputs gives the same bits, whatever the
 * number of threads, except for the matrix products, which are the library's: these do in one process, and in others
 * that are given the same kern_place.choices.
 * Shapes: B batch, T time, C width, H query heads, G key/value heads, D head size, F hidden width, V vocabulary,
 * R = B * T rows. Row-major, the last index fastest. "+=" accumulates into the output.
 *
 * Owns: the table of operations of a training step, and the choice between its implementations.
 * Called by: kernels/cpu, kernels/cuda, worker, worker/comm, worker/model.
 * Never includes: <dnnl.h>, <omp.h>, daemon/, net/, outer_opt/, worker/.
 */
#ifndef KERNELS_KERN_TABLE_H
#define KERNELS_KERN_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

typedef void kern_act;

struct kern_dev;
struct kern_spans;   /* on the device: stretches of a flat array */
struct kern_weights; /* on the device: matrices as products read them */

enum kern_queue { KERN_MAIN, KERN_COMM, KERN_COPY, KERN_QUEUES };

struct kern_place {
    int device;  /* number of the GPU, as the driver counts those that this process may see; 0 on the CPU */
    int threads; /* CPU threads to use, 0 for all */
    bool bf16;   /* the CPU's products with bf16 operands, where it can; a GPU's are so anyway */
    /* File for what the device finds out by trials, and by which the last bits of its results go: with it, another
     * process computes the same. Made where it is not there. Not shared by processes at a time. NULL: none is kept. */
    const char *choices;
};

struct kern_linear {
    int64_t R, K, N;
    int64_t ld; /* values from one row of the array (R,N) to the next, at least N; rows of the others follow closely */
};

/* A matrix (N,K) of weights in an array of act, from its value `at` on. */
struct kern_matrix {
    int64_t at, N, K;
};

struct kern_attention {
    int64_t B, T, H, G, D; /* G divides H; D even */
};

struct kern_logits {
    int64_t R, V;
    int64_t ld;    /* values from one row to the next, at least V; what lies between is read and written by nobody */
    int64_t first; /* the vocabulary's index of column 0: a rank of a tensor-parallel group has a part of it */
};

/* What one optimizer step goes by: decided on the device, read by the host when it is there. */
struct kern_step {
    double sum;                     /* of the squares of the gradient, so far; judge() sets it to 0 again */
    double norm;                    /* of the gradient of this step */
    uint64_t updates;               /* steps taken so far, this one too unless it is skipped */
    float scale;                    /* for the gradient: brings its norm down to the limit; at most 1 */
    float correction1, correction2; /* 1 - beta1^updates, 1 - beta2^updates */
    uint32_t skip;                  /* the norm is not finite: no optimizer changes anything */
};

struct kern_judge {
    float norm_max; /* 0: no limit */
    double beta1, beta2;
};

struct kern_span {
    int64_t begin, count; /* values; spans do not overlap */
    bool decay;
};

/* How float becomes act in an optimizer: to nearest; or, with `stochastic`, up or down with the chances that keep the
 * mean, by bits drawn from (seed, index of the value): the same on every machine. Where act is float, nothing. */
struct kern_rounding {
    bool stochastic;
    uint64_t seed;
    int64_t first; /* the index of the call's first value: parts of an array are then rounded as all of it at once */
};

struct kern_adamw {
    float lr, beta1, beta2, eps;
    float weight_decay; /* of spans with `decay` */
    struct kern_rounding rounding;
};

struct kern_muon {
    float lr, weight_decay;
    struct kern_rounding rounding;
};

/* Work set aside while a contribution is on its way; see worker/libdiloco/aside.h, where the rule is explained. */
struct kern_aside {
    float keep, fresh, past, decay;
};

struct kern {
    const char *name;
    size_t act_bytes;
    bool on_host;   /* arrays are ordinary memory of this process, and act is float */
    unsigned ahead; /* steps the host may be queuing ahead of what the device has done: 0 where it computes at once */

    /* ---- the device and its memory ---- */
    /* ERR_NOTFOUND if there is no such device, ERR_STATE if it cannot be used; the text says which and what to do. */
    enum err (*open)(const struct kern_place *place, struct kern_dev **dev);
    void (*close)(struct kern_dev *dev);
    /* Which device it is, for people: one short line without a line's end, cut off at `bytes`: what it is called, and
     * behind the first comma what else there is to say. */
    void (*describe)(struct kern_dev *dev, char *text, size_t bytes);
    /* Floating-point operations a second that products of act can do at best, by what the device says of itself; 0: not
     * known. */
    double (*peak_flops)(struct kern_dev *dev);
    /* Whether the operands of products are rounded to bf16 (to nearest, ties to even); sums are in float all the same.
     */
    bool (*bf16)(const struct kern_dev *dev);
    /* Bytes that are free and that there are. */
    enum err (*memory)(struct kern_dev *dev, size_t *free_bytes, size_t *total);
    /* Whether attention can do heads of D values. */
    bool (*has_head_size)(int64_t D);
    /* The table's own scratch memory for operations on up to R rows of up to C values, and on up to L logits; before
     * the first of them. What it takes of the device's memory, and keeps, is reserve_bytes(). */
    enum err (*reserve)(struct kern_dev *dev, int64_t R, int64_t C, int64_t L);
    size_t (*reserve_bytes)(const struct kern_dev *dev, int64_t R, int64_t C, int64_t L);
    /* Zeroed. ERR_NOMEM names `what`. free: NULL is fine; waits for what may still use it. */
    enum err (*alloc)(struct kern_dev *dev, size_t bytes, const char *what, void **out);
    void (*free)(struct kern_dev *dev, void *pointer);
    /* Host memory that others may own and that begins at a page (pin) until unpin(): copies to and from it do not wait
     * for the host. ERR_STATE where the system refuses; copies work all the same, but wait. */
    enum err (*pin)(struct kern_dev *dev, void *host, size_t bytes);
    void (*unpin)(struct kern_dev *dev, void *host);

    /* ---- queues ---- */
    /* What is queued in `later` from now on begins when what `earlier` holds now is done. */
    void (*order)(struct kern_dev *dev, enum kern_queue later, enum kern_queue earlier);
    /* A number for "all that `queue` holds now": never 0, and larger than every one before. */
    uint64_t (*mark)(struct kern_dev *dev, enum kern_queue queue);
    /* Whether it is done; never waits. Also true after a fault, which the next wait() tells. */
    bool (*reached)(struct kern_dev *dev, uint64_t mark);
    enum err (*wait)(struct kern_dev *dev, uint64_t mark);
    /* Waits for all queues. */
    enum err (*sync)(struct kern_dev *dev);
    /* The first failure on the device so far, with the operation; never waits. */
    enum err (*fault)(struct kern_dev *dev);

    /* The stream of a queue (`cudaStream_t`, the device's), for a library that queues work there itself; NULL where
     * there is none. The device becomes the calling thread's current one. */
    void *(*stream)(struct kern_dev *dev, enum kern_queue queue);

    /* ---- copies; each side is on the device or on the host. Of host memory that is not pinned, values are taken, or
     * there, when the call returns; pinned memory belongs to the copy until its queue has come so far. ---- */
    void (*zero)(struct kern_dev *dev, void *pointer, size_t bytes); /* on MAIN */
    void (*copy)(struct kern_dev *dev, enum kern_queue queue, void *to, const void *from, size_t bytes);
    /* `rows` times `bytes`, from rows that begin `from_stride` bytes apart to rows `to_stride` apart. */
    void (*copy_rows)(struct kern_dev *dev, enum kern_queue queue, void *to, size_t to_stride, const void *from,
                      size_t from_stride, size_t bytes, size_t rows);
    /* Between float and act on the device, to nearest; where they are one type, `to` may be `from`. */
    void (*to_act)(struct kern_dev *dev, kern_act *to, const float *from, int64_t count);
    void (*from_act)(struct kern_dev *dev, float *to, const kern_act *from, int64_t count);

    /* ---- weights as products read them, where that is not as they lie in act: on a CPU in bf16 ---- */
    /* Keeps these matrices of `act` (in rising order, none overlapping) for linear_fwd() and, with `train`,
     * linear_bwd_inp(), and makes them anew before the first product after values of theirs were written. That the
     * table sees in all of its own operations; whoever writes into the array by other means, as the exchange between
     * islands does on the host, calls to_act() behind it, from the values to themselves. Forgotten, it is a fault at
     * the next product. ERR_NOMEM. *out is NULL where nothing is kept; to be freed before the array is. weights_bytes()
     * is what it takes of the device. */
    size_t (*weights_bytes)(const struct kern_dev *dev, const struct kern_matrix *matrices, size_t count, bool train);
    enum err (*weights_new)(struct kern_dev *dev, const kern_act *act, const struct kern_matrix *matrices, size_t count,
                            bool train, struct kern_weights **out);
    void (*weights_free)(struct kern_dev *dev, struct kern_weights *weights); /* NULL is fine */

    /* ---- linear layers; weights are (N,K) as in y = x W^T ---- */
    /* out(R,N) = inp(R,K) w(N,K)^T */
    void (*linear_fwd)(struct kern_dev *dev, kern_act *out, const kern_act *inp, const kern_act *w,
                       struct kern_linear shape);
    /* dinp(R,K) = dout(R,N) w(N,K), or += with `add` */
    void (*linear_bwd_inp)(struct kern_dev *dev, kern_act *dinp, const kern_act *dout, const kern_act *w,
                           struct kern_linear shape, bool add);
    /* dw(N,K) += dout(R,N)^T inp(R,K) */
    void (*linear_bwd_w)(struct kern_dev *dev, float *dw, const kern_act *dout, const kern_act *inp,
                         struct kern_linear shape);

    /* ---- the rest of the forward and backward pass ---- */
    /* out(R,C) = w(V,C)[tokens(R) - first]; zeros for tokens that are not in first .. first + V - 1 */
    void (*embed_fwd)(struct kern_dev *dev, kern_act *out, const int32_t *tokens, const kern_act *w, int64_t R,
                      int64_t C, int64_t first, int64_t V);
    /* dw(V,C)[tokens(R) - first] += dout(R,C), the rows of one token in order; others are left out */
    void (*embed_bwd)(struct kern_dev *dev, float *dw, const kern_act *dout, const int32_t *tokens, int64_t R,
                      int64_t C, int64_t first, int64_t V);
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
     * Causal; scores are never held for more than a tile of rows at a time. `scratch` is attention_scratch() bytes. */
    size_t (*attention_scratch)(const struct kern_dev *dev, const struct kern_attention *dims);
    /* Whose kernels do it for a shape, and why, for people: one short line without a line's end, cut off at `bytes`.
     * Where that is found out by trials, it is known after the first call. */
    void (*attention_by)(struct kern_dev *dev, const struct kern_attention *dims, bool backward, char *text,
                         size_t bytes);
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

    /* ---- the loss ---- */
    /* For logits of R rows over V tokens: how many rows at a time suit the device (*rows), and how far apart (*ld). */
    void (*logits_shape)(int64_t R, int64_t V, int64_t *rows, int64_t *ld);
    /* losses(R) = cross-entropy of logits(R,V) at targets(R); with `scale` != 0 logits become scale * dloss/dlogits.
     * shape.first is 0. */
    void (*cross_entropy)(struct kern_dev *dev, float *losses, kern_act *logits, const int32_t *targets,
                          struct kern_logits shape, float scale);
    /* The same where each rank has a part of the vocabulary, in three moves: of each row the part's largest logit, the
     * sum of exp(logit - that), and the target's logit if the part has it (else 0), as stats(R,3); all parts' stats
     * (parts,R,3), which have gone around, to losses(R) and lse(R), in order of parts; and logits to
     * scale * dloss/dlogits by lse(R). */
    void (*loss_part)(struct kern_dev *dev, float *stats, const kern_act *logits, const int32_t *targets,
                      struct kern_logits shape);
    void (*loss_join)(struct kern_dev *dev, float *losses, float *lse, const float *stats, int64_t parts, int64_t R);
    void (*loss_back)(struct kern_dev *dev, kern_act *logits, const float *lse, const int32_t *targets,
                      struct kern_logits shape, float scale);
    /* total(1) += factor * (sum of losses(R)), in double and in a fixed order */
    void (*add_losses)(struct kern_dev *dev, double *total, const float *losses, int64_t R, double factor);

    /* ---- optimizer: what decides and what changes the weights ---- */
    /* step->sum += sum of x^2, over fixed blocks in fixed order, in double */
    void (*sum_squares)(struct kern_dev *dev, struct kern_step *step, const float *x, int64_t count);
    /* Makes of step->sum all the rest of `step`, for the optimizers queued after. */
    void (*judge)(struct kern_dev *dev, struct kern_step *step, struct kern_judge conf);
    /* `spans` stays the caller's; the handle belongs to the device. */
    enum err (*spans_new)(struct kern_dev *dev, const struct kern_span *spans, size_t count, struct kern_spans **out);
    void (*spans_free)(struct kern_dev *dev, struct kern_spans *spans);
    /* One AdamW step with decoupled decay (Loshchilov & Hutter 2019) on those stretches of w, m, v with gradient
     * step->scale * g; the new weights go to `act` as well where that is another array. */
    void (*adamw)(struct kern_dev *dev, float *w, kern_act *act, const float *g, float *m, float *v,
                  const struct kern_spans *spans, const struct kern_step *step, struct kern_adamw conf);
    /* w = w - lr * step->scale * g */
    void (*sgd)(struct kern_dev *dev, float *w, kern_act *act, const float *g, const struct kern_spans *spans,
                const struct kern_step *step, float lr, struct kern_rounding rounding);
    /* A step of Muon (Jordan and others 2024) on a matrix (N,K), in three moves, of which only the second needs it
     * whole. muon_aim: m = momentum m + step->scale g; then g = step->scale g + momentum m, the direction. m stays as
     * it is in a step that is skipped. orthogonalise: u(N,K), made nearly orthogonal by five Newton-Schulz iterations,
     * in place; `scratch` is muon_scratch() bytes. muon_apply: w = (1 - lr weight_decay) w - lr 0.2 sqrt(longer) u,
     * with the longer of N and K, so that learning rates are AdamW's (2502.16982). */
    size_t (*muon_scratch)(int64_t N, int64_t K);
    void (*muon_aim)(struct kern_dev *dev, float *g, float *m, int64_t count, const struct kern_step *step,
                     float momentum);
    void (*orthogonalise)(struct kern_dev *dev, float *u, int64_t N, int64_t K, void *scratch);
    void (*muon_apply)(struct kern_dev *dev, float *w, kern_act *act, const float *u, int64_t count, int64_t longer,
                       const struct kern_step *step, struct kern_muon conf);

    /* ---- what the exchange between islands does to parameters; all arrays on the device, act as in adamw() ---- */
    /* live = keep * live + (1 - keep) * anchor; with keep 0 the anchor, whatever live was */
    void (*mix)(struct kern_dev *dev, float *live, kern_act *act, const float *anchor, int64_t count, float keep);
    /* live += anchor - base */
    void (*shift)(struct kern_dev *dev, float *live, kern_act *act, const float *anchor, const float *base,
                  int64_t count);
    /* aside_out(), aside_in() and aside_off() of worker/libdiloco/aside.h; `past` NULL: not Eager. */
    void (*aside_out)(struct kern_dev *dev, float *live, kern_act *act, const float *base, float *aside,
                      const float *past, int64_t count, struct kern_aside rule);
    void (*aside_in)(struct kern_dev *dev, float *live, kern_act *act, const float *base, const float *anchor,
                     const float *aside, float *past, bool counted, int64_t count, struct kern_aside rule);
    /* `bad`(1), on the device: not 0 if anything in `aside` is not finite, so that none of it comes back. */
    void (*aside_off)(struct kern_dev *dev, float *live, kern_act *act, const float *aside, const float *past,
                      const int32_t *bad, int64_t count, struct kern_aside rule);
    /* bad(1) becomes 1 if x holds NaN or Inf; else it stays as it is */
    void (*find_bad)(struct kern_dev *dev, int32_t *bad, const float *x, int64_t count);
};

/* One for each instruction set that the Makefile compiles for; kern.c chooses, nobody else names one. */
extern const struct kern kern_cpu_base, kern_cpu_avx2, kern_cpu_avx512;

#endif
