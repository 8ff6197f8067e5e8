/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda: what the files of the CUDA implementation share on the host's side; private to this folder. What an operation
 * does and its shapes stand in kern_table.h. An operation is a file of kernels with its launcher, a C function
 * cuda_NAME of the table's type. CUDA_OPERATIONS lists them for who puts a table together: cuda_table.c for a GPU,
 * and a test that emulates one; attention is left to these two. Both define the functions of the first part, which the
 * launchers stand on.
 *
 * Owns: the operations on a GPU, and the host's side of them: libdiloco-cuda.so.
 * Called by: nobody; kernels/kern_cuda.c opens the library that it becomes.
 * Never includes: <dnnl.h>, <omp.h>, kernels/cpu/.
 */
#ifndef KERNELS_CUDA_CUDA_H
#define KERNELS_CUDA_CUDA_H

#include "kernels/kern_table.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- what a launcher stands on ---- */

/* The stream of queue MAIN (a cudaStream_t). */
void *cuda_main_stream(struct kern_dev *dev);
/* Lets a kernel have so much dynamic shared memory; cheap after the first time. */
void cuda_allow_shared(struct kern_dev *dev, const void *kernel, size_t bytes);
/* After a launch: keeps its failure, if any, as the device's fault. */
void cuda_launched(struct kern_dev *dev, const char *operation);
/* Memory of the device's for one operation, until the next; at most what reserve() made room for. 256-byte aligned. */
void *cuda_scratch(struct kern_dev *dev, size_t bytes);
/* As the table's alloc, free and copy. */
enum err cuda_alloc(struct kern_dev *dev, size_t bytes, const char *what, void **out);
void cuda_free(struct kern_dev *dev, void *pointer);
void cuda_copy(struct kern_dev *dev, enum kern_queue queue, void *to, const void *from, size_t bytes);
/* Streaming multiprocessors. */
int cuda_processors(const struct kern_dev *dev);

/* C(M,N) = alpha op(A)(M,K) op(B)(K,N) + beta C, row-major; `ta`: A is stored (K,M); `tb`: B is stored (N,K). */
struct cuda_product {
    bool ta, tb;
    int64_t M, N, K;
    int64_t lda, ldb, ldc; /* values from one stored row to the next */
    float alpha, beta;
    bool to_float; /* C is float; else act. A and B are act, sums are fp32 */
};
void cuda_multiply(struct kern_dev *dev, void *c, const kern_act *a, const kern_act *b, struct cuda_product product);

/* ---- scratch that operations take, for up to R rows of up to C values; reserve() takes the largest,
 * reserve_bytes() ---- */
size_t cuda_rmsnorm_scratch(int64_t R, int64_t C);
size_t cuda_embed_scratch(int64_t R, int64_t C);
size_t cuda_norm_scratch(void);
size_t cuda_loss_scratch(int64_t R);
size_t cuda_reserve_bytes(const struct kern_dev *dev, int64_t R, int64_t C, int64_t L);

/* ---- operations ---- */

void cuda_to_act(struct kern_dev *dev, kern_act *to, const float *from, int64_t count);
void cuda_from_act(struct kern_dev *dev, float *to, const kern_act *from, int64_t count);
/* Products read act as it is: nothing is kept. */
bool cuda_bf16(const struct kern_dev *dev);
size_t cuda_weights_bytes(const struct kern_dev *dev, const struct kern_matrix *matrices, size_t count, bool train);
enum err cuda_weights_new(struct kern_dev *dev, const kern_act *act, const struct kern_matrix *matrices, size_t count,
                          bool train, struct kern_weights **out);
void cuda_weights_free(struct kern_dev *dev, struct kern_weights *weights);
void cuda_linear_fwd(struct kern_dev *dev, kern_act *out, const kern_act *inp, const kern_act *w,
                     struct kern_linear shape);
void cuda_linear_bwd_inp(struct kern_dev *dev, kern_act *dinp, const kern_act *dout, const kern_act *w,
                         struct kern_linear shape, bool add);
void cuda_linear_bwd_w(struct kern_dev *dev, float *dw, const kern_act *dout, const kern_act *inp,
                       struct kern_linear shape);
void cuda_embed_fwd(struct kern_dev *dev, kern_act *out, const int32_t *tokens, const kern_act *w, int64_t R, int64_t C,
                    int64_t first, int64_t V);
void cuda_embed_bwd(struct kern_dev *dev, float *dw, const kern_act *dout, const int32_t *tokens, int64_t R, int64_t C,
                    int64_t first, int64_t V);
void cuda_rmsnorm_fwd(struct kern_dev *dev, kern_act *out, float *rstd, kern_act *sum, const kern_act *inp,
                      const kern_act *add, const kern_act *w, int64_t R, int64_t C, float eps);
void cuda_rmsnorm_bwd(struct kern_dev *dev, kern_act *dinp, float *dw, const kern_act *dout, const kern_act *inp,
                      const kern_act *w, const float *rstd, int64_t R, int64_t C);
void cuda_rope(struct kern_dev *dev, kern_act *x, const float *cos_sin, int64_t R, int64_t T, int64_t row,
               int64_t heads, int64_t D, bool inverse);
bool cuda_has_head_size(int64_t D);
/* The kernels of this folder; cuda_attention.c puts another library's beside them. */
size_t cuda_attention_scratch(const struct kern_dev *dev, const struct kern_attention *dims);
void cuda_attention_fwd(struct kern_dev *dev, kern_act *out, float *lse, const kern_act *qkv,
                        const struct kern_attention *dims, void *scratch);
void cuda_attention_bwd(struct kern_dev *dev, kern_act *dqkv, const kern_act *dout, const kern_act *out,
                        const kern_act *qkv, const float *lse, const struct kern_attention *dims, void *scratch);
void cuda_attention_decode(struct kern_dev *dev, kern_act *out, const kern_act *qkv, kern_act *cache, int64_t at,
                           const struct kern_attention *dims, void *scratch);
void cuda_swiglu_fwd(struct kern_dev *dev, kern_act *out, const kern_act *gu, int64_t R, int64_t F);
void cuda_swiglu_bwd(struct kern_dev *dev, kern_act *dgu, const kern_act *dout, const kern_act *gu, int64_t R,
                     int64_t F);
void cuda_logits_shape(int64_t R, int64_t V, int64_t *rows, int64_t *ld);
void cuda_cross_entropy(struct kern_dev *dev, float *losses, kern_act *logits, const int32_t *targets,
                        struct kern_logits shape, float scale);
void cuda_loss_part(struct kern_dev *dev, float *stats, const kern_act *logits, const int32_t *targets,
                    struct kern_logits shape);
void cuda_loss_join(struct kern_dev *dev, float *losses, float *lse, const float *stats, int64_t parts, int64_t R);
void cuda_loss_back(struct kern_dev *dev, kern_act *logits, const float *lse, const int32_t *targets,
                    struct kern_logits shape, float scale);
void cuda_add_losses(struct kern_dev *dev, double *total, const float *losses, int64_t R, double factor);
void cuda_sum_squares(struct kern_dev *dev, struct kern_step *step, const float *x, int64_t count);
void cuda_judge(struct kern_dev *dev, struct kern_step *step, struct kern_judge conf);
enum err cuda_spans_new(struct kern_dev *dev, const struct kern_span *spans, size_t count, struct kern_spans **out);
void cuda_spans_free(struct kern_dev *dev, struct kern_spans *spans);
void cuda_adamw(struct kern_dev *dev, float *w, kern_act *act, const float *g, float *m, float *v,
                const struct kern_spans *spans, const struct kern_step *step, struct kern_adamw conf);
void cuda_sgd(struct kern_dev *dev, float *w, kern_act *act, const float *g, const struct kern_spans *spans,
              const struct kern_step *step, float lr, struct kern_rounding rounding);
size_t cuda_muon_scratch(int64_t N, int64_t K);
void cuda_muon_aim(struct kern_dev *dev, float *g, float *m, int64_t count, const struct kern_step *step,
                   float momentum);
void cuda_orthogonalise(struct kern_dev *dev, float *u, int64_t N, int64_t K, void *scratch);
void cuda_muon_apply(struct kern_dev *dev, float *w, kern_act *act, const float *u, int64_t count, int64_t longer,
                     const struct kern_step *step, struct kern_muon conf);
void cuda_mix(struct kern_dev *dev, float *live, kern_act *act, const float *anchor, int64_t count, float keep);
void cuda_shift(struct kern_dev *dev, float *live, kern_act *act, const float *anchor, const float *base,
                int64_t count);
void cuda_aside_out(struct kern_dev *dev, float *live, kern_act *act, const float *base, float *aside,
                    const float *past, int64_t count, struct kern_aside rule);
void cuda_aside_in(struct kern_dev *dev, float *live, kern_act *act, const float *base, const float *anchor,
                   const float *aside, float *past, bool counted, int64_t count, struct kern_aside rule);
void cuda_aside_off(struct kern_dev *dev, float *live, kern_act *act, const float *aside, const float *past,
                    const int32_t *bad, int64_t count, struct kern_aside rule);
void cuda_find_bad(struct kern_dev *dev, int32_t *bad, const float *x, int64_t count);
/* No operation of the table: parts[cuda_digest_parts()], whose sum is a digest of the array's whole words. */
size_t cuda_digest_parts(void);
void cuda_digest(struct kern_dev *dev, uint64_t *parts, const void *array, size_t bytes);

#define CUDA_OPERATIONS                                                                                               \
    .has_head_size = cuda_has_head_size, .to_act = cuda_to_act, .from_act = cuda_from_act, .bf16 = cuda_bf16,         \
    .weights_bytes = cuda_weights_bytes, .weights_new = cuda_weights_new, .weights_free = cuda_weights_free,          \
    .linear_fwd = cuda_linear_fwd, .linear_bwd_inp = cuda_linear_bwd_inp, .linear_bwd_w = cuda_linear_bwd_w,          \
    .embed_fwd = cuda_embed_fwd, .embed_bwd = cuda_embed_bwd, .rmsnorm_fwd = cuda_rmsnorm_fwd,                        \
    .rmsnorm_bwd = cuda_rmsnorm_bwd, .rope = cuda_rope, .attention_decode = cuda_attention_decode,                    \
    .swiglu_fwd = cuda_swiglu_fwd, .swiglu_bwd = cuda_swiglu_bwd, .logits_shape = cuda_logits_shape,                  \
    .cross_entropy = cuda_cross_entropy, .loss_part = cuda_loss_part, .loss_join = cuda_loss_join,                    \
    .loss_back = cuda_loss_back, .add_losses = cuda_add_losses, .sum_squares = cuda_sum_squares, .judge = cuda_judge, \
    .spans_new = cuda_spans_new, .spans_free = cuda_spans_free, .adamw = cuda_adamw, .sgd = cuda_sgd,                 \
    .muon_scratch = cuda_muon_scratch, .muon_aim = cuda_muon_aim, .orthogonalise = cuda_orthogonalise,                \
    .muon_apply = cuda_muon_apply, .mix = cuda_mix, .shift = cuda_shift, .aside_out = cuda_aside_out,                 \
    .aside_in = cuda_aside_in, .aside_off = cuda_aside_off, .find_bad = cuda_find_bad

#ifdef __cplusplus
}
#endif

#endif
