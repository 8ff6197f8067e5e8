/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers: the library's products, with their shapes. Row-major as everywhere; see kern_table.h. */
#include "kernels/cuda/cuda.h"

bool cuda_bf16(const struct kern_dev *dev)
{
    (void)dev;
    return true;
}

size_t cuda_weights_bytes(const struct kern_dev *dev, const struct kern_matrix *matrices, size_t count, bool train)
{
    (void)dev;
    (void)matrices;
    (void)count;
    (void)train;
    return 0;
}

enum err cuda_weights_new(struct kern_dev *dev, const kern_act *act, const struct kern_matrix *matrices, size_t count,
                          bool train, struct kern_weights **out)
{
    (void)dev;
    (void)act;
    (void)matrices;
    (void)count;
    (void)train;
    *out = NULL;
    return ERR_OK;
}

void cuda_weights_free(struct kern_dev *dev, struct kern_weights *weights)
{
    (void)dev;
    (void)weights;
}

void cuda_linear_fwd(struct kern_dev *dev, kern_act *out, const kern_act *inp, const kern_act *w,
                     struct kern_linear shape)
{
    struct cuda_product product = {.tb = true,
                                   .M = shape.R,
                                   .N = shape.N,
                                   .K = shape.K,
                                   .lda = shape.K,
                                   .ldb = shape.K,
                                   .ldc = shape.ld,
                                   .alpha = 1};
    if (shape.R > 0)
        cuda_multiply(dev, out, inp, w, product);
}

void cuda_linear_bwd_inp(struct kern_dev *dev, kern_act *dinp, const kern_act *dout, const kern_act *w,
                         struct kern_linear shape, bool add)
{
    struct cuda_product product = {.M = shape.R,
                                   .N = shape.K,
                                   .K = shape.N,
                                   .lda = shape.ld,
                                   .ldb = shape.K,
                                   .ldc = shape.K,
                                   .alpha = 1,
                                   .beta = add ? 1 : 0};
    if (shape.R > 0)
        cuda_multiply(dev, dinp, dout, w, product);
}

/* Gradients of weights are float, so that many small ones add up. */
void cuda_linear_bwd_w(struct kern_dev *dev, float *dw, const kern_act *dout, const kern_act *inp,
                       struct kern_linear shape)
{
    struct cuda_product product = {.ta = true,
                                   .M = shape.N,
                                   .N = shape.K,
                                   .K = shape.R,
                                   .lda = shape.ld,
                                   .ldb = shape.K,
                                   .ldc = shape.K,
                                   .alpha = 1,
                                   .beta = 1,
                                   .to_float = true};
    if (shape.R > 0)
        cuda_multiply(dev, dw, dout, inp, product);
}
