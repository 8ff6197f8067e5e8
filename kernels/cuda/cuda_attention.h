/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_attention: whose kernels do attention: ours (attention_fwd.cu, attention_bwd.cu) or cuDNN's, where it is
 * installed. For each shape that is large enough to be worth the time that the library takes to make its plans, both
 * are timed at the first call, on its own arrays, and the faster one stays; the choice is kept where algorithms of
 * products are (cuda_choices.h), and holds in a process that goes on from there. Of cuDNN's, only what gave the same
 * bits each time is taken. Forward and backward are chosen each by itself: both leave, and take, the same log-sum-exp.
 *
 * The environment's DILOCO_ATTENTION=ours takes ours without a trial and opens no library; =cudnn takes cuDNN's for
 * every shape that it can do. Private to this folder; the thread that uses the device calls.
 */
#ifndef KERNELS_CUDA_CUDA_ATTENTION_H
#define KERNELS_CUDA_CUDA_ATTENTION_H

#include "kernels/kern_table.h"

/* After cuda_blas_open(). ERR_CONF: DILOCO_ATTENTION is neither. */
ERR_MUST_CHECK enum err cuda_attention_open(struct kern_dev *dev);
/* When nothing of it is queued any more, before cuda_blas_close(). */
void cuda_attention_close(struct kern_dev *dev);

/* The table's own, as kern_table.h says. A shape that cuda_chosen_scratch() was not asked for goes by our kernels. */
size_t cuda_chosen_scratch(const struct kern_dev *dev, const struct kern_attention *dims);
void cuda_chosen_by(struct kern_dev *dev, const struct kern_attention *dims, bool backward, char *text, size_t bytes);
void cuda_chosen_fwd(struct kern_dev *dev, kern_act *out, float *lse, const kern_act *qkv,
                     const struct kern_attention *dims, void *scratch);
void cuda_chosen_bwd(struct kern_dev *dev, kern_act *dqkv, const kern_act *dout, const kern_act *out,
                     const kern_act *qkv, const float *lse, const struct kern_attention *dims, void *scratch);

#endif
