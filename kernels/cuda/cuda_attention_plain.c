/* SPDX-License-Identifier: Apache-2.0 */
/* Stands for cuda_attention.c where the library was built without cuDNN's header: attention is ours. */
#include <stdio.h>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/cuda_attention.h"

enum err cuda_attention_open(struct kern_dev *dev)
{
    (void)dev;
    return ERR_OK;
}

void cuda_attention_close(struct kern_dev *dev)
{
    (void)dev;
}

size_t cuda_chosen_scratch(const struct kern_dev *dev, const struct kern_attention *dims)
{
    return cuda_attention_scratch(dev, dims);
}

void cuda_chosen_by(struct kern_dev *dev, const struct kern_attention *dims, bool backward, char *text, size_t bytes)
{
    (void)dev;
    (void)dims;
    (void)backward;
    snprintf(text, bytes, "ours: libdiloco-cuda.so was built without cuDNN's header, cudnn_graph.h");
}

void cuda_chosen_fwd(struct kern_dev *dev, kern_act *out, float *lse, const kern_act *qkv,
                     const struct kern_attention *dims, void *scratch)
{
    cuda_attention_fwd(dev, out, lse, qkv, dims, scratch);
}

void cuda_chosen_bwd(struct kern_dev *dev, kern_act *dqkv, const kern_act *dout, const kern_act *out,
                     const kern_act *qkv, const float *lse, const struct kern_attention *dims, void *scratch)
{
    cuda_attention_bwd(dev, dqkv, dout, out, qkv, lse, dims, scratch);
}
