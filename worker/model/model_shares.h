/*
 * model_shares: who of the ranks that train one model on different batches has which of its masters (ZeRO stage 1,
 * Rajbhandari and others 2019, 1910.02054).
 *
 * The flat arrays are cut into buckets: the embedding, each layer, what follows the layers. A bucket is as many equal
 * pieces as there are ranks, and rank r has the masters and moments of piece r of each; gradients are summed into the
 * piece of whom they belong to, products' copies are gathered from all. With one rank there is one piece, all of it.
 * Part of model; its callers are above it (inner, train). What is queued on COMM is ordered against MAIN here.
 */
#ifndef WORKER_MODEL_MODEL_SHARES_H
#define WORKER_MODEL_MODEL_SHARES_H

#include "worker/model/model.h"

/* This rank's: `count` values from `begin` of the flat arrays (gradients, act) are `at` of its own (masters, moments).
 */
struct model_piece {
    int64_t begin, count, at;
};
int model_pieces(const struct model *model);
struct model_piece model_piece(const struct model *model, int index);

/* Of a tensor: `count` values from its value `first` are this rank's; `at` of its own arrays. */
struct model_share {
    int64_t first, count, at;
};
struct model_share model_share(const struct model *model, const struct model_tensor *tensor);

/* Where own values from `at` on lie in the flat arrays. */
int64_t model_flat_of(const struct model *model, int64_t at);

/* Every rank has the directions of all pieces of bucket `index` in model->grad; or its values of rank `root`. */
ERR_MUST_CHECK enum err model_gather_grads(struct model *model, int index);
ERR_MUST_CHECK enum err model_send_grads(struct model *model, const struct model_tensor *tensor, int root);

/* Where the products' copy of own values from model->w on lies. */
kern_act *model_act_of(const struct model *model, const float *own);

/* The next model_train() is a step's last: as its backward pass comes by, gradients are summed over all ranks. */
void model_sum_next(struct model *model);
/* Called by the backward pass: bucket `index` has all its gradients. */
ERR_MUST_CHECK enum err model_bucket_done(struct model *model, int index);
/* What is queued on MAIN from now on finds own gradients summed. */
void model_await_sums(struct model *model);

/* The mean over all ranks of a number that each has; waits. Between steps: it goes by way of model->loss. */
ERR_MUST_CHECK enum err model_mean(struct model *model, double *value);

/* The products' copies are those of all ranks' masters; what is queued on MAIN from now on finds them. */
ERR_MUST_CHECK enum err model_spread(struct model *model);

/* The bucket that a tensor is in, whole on every rank: own values from all ranks go to its place in model->grad, which
 * must hold nothing that is needed, and is zero after model_gathered_end(). */
ERR_MUST_CHECK enum err model_gather(struct model *model, const struct model_tensor *tensor, const float *own);
void model_gathered_end(struct model *model, const struct model_tensor *tensor);

#endif
