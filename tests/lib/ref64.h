/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ref64: the forward pass of every operation in double precision, written naively from its definition and sharing no
 * line with kernels/. Gradients are judged by central differences of these. Shapes as in kernels/kern_table.h.
 */
#ifndef TESTS_LIB_REF64_H
#define TESTS_LIB_REF64_H

#include <stdint.h>

void ref_linear(double *out, const double *inp, const double *w, int64_t R, int64_t K, int64_t N);
void ref_embed(double *out, const int32_t *tokens, const double *w, int64_t R, int64_t C);
void ref_rmsnorm(double *out, const double *inp, const double *w, int64_t R, int64_t C, double eps);
/* angles from `theta` directly, not from a table */
void ref_rope(double *x, int64_t R, int64_t T, int64_t row, int64_t heads, int64_t D, double theta);
void ref_attention(double *out, const double *qkv, int64_t B, int64_t T, int64_t H, int64_t G, int64_t D);
void ref_swiglu(double *out, const double *gu, int64_t R, int64_t F);
/* mean over rows */
double ref_cross_entropy(const double *logits, const int32_t *targets, int64_t R, int64_t V);

#endif
