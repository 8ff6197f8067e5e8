/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model_shares: what each rank has of a model that several train, and what they tell each other.
 *
 * Rows and columns are those of struct model_grid. A column's flat arrays are cut into buckets (model_layout.h). A
 * bucket is as many equal pieces as the column has ranks, and the rank in row r has the masters and moments of piece r
 * of each (ZeRO stage 1, Rajbhandari and others 2019, 1910.02054): gradients are summed into the piece of whom they
 * belong to, products' copies are gathered from all. Norms have masters in column 0 alone, so that each value has one
 * rank that changes it. Alone there is one piece, all of it.
 *
 * All collectives go through COMM, ordered against MAIN here: never are two under way at a time, and all ranks make
 * them in the same order. Part of model; its callers are above it (inner, train).
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

/* What of a tensor the ranks of a column have, for columns 0 .. model_parts() - 1. */
int model_parts(const struct model *model, const struct model_tensor *tensor);
struct model_part model_part_of(const struct model *model, const struct model_tensor *tensor, int column);

/* Of tensor->part: `count` values from its value `first` are this rank's; `at` of its own arrays. */
struct model_share {
    int64_t first, count, at;
};
struct model_share model_share(const struct model *model, const struct model_tensor *tensor);

/* Where own values from `at` on lie in the flat arrays. */
int64_t model_flat_of(const struct model *model, int64_t at);
/* Where the products' copy of own values from model->w on lies. */
kern_act *model_act_of(const struct model *model, const float *own);

/* ---- in a row ---- */

/* array(count) = the sum over the row of that many activations. What is queued between the two calls does not wait for
 * it; what is queued on MAIN after the second finds it. */
void model_row_begin(struct model *model);
ERR_MUST_CHECK enum err model_row_sum(struct model *model, kern_act *array, int64_t count);
/* array(tp * count) = the row's part(count), which lie in it, in order of column. */
ERR_MUST_CHECK enum err model_row_gather(struct model *model, float *array, int64_t count);

/* ---- gradients ---- */

/* The next model_train() is a step's last: as its backward pass comes by, gradients are summed over the column. */
void model_sum_next(struct model *model);
/* Called by the backward pass: bucket `index` has all its gradients. */
ERR_MUST_CHECK enum err model_bucket_done(struct model *model, int index);
/* What is queued on MAIN from now on finds own gradients summed. */
void model_await_sums(struct model *model);

/* A number on the device that each rank has becomes the sum over all ranks, or over the rows. */
ERR_MUST_CHECK enum err model_sum_all(struct model *model, double *number);
ERR_MUST_CHECK enum err model_sum_rows(struct model *model, double *number);
/* The mean over all rows of a number that each has; waits. Between steps: it goes by way of model->loss. */
ERR_MUST_CHECK enum err model_mean(struct model *model, double *value);
/* After a wait for the device: whether what came of the ranks' collectives counts (comm.h, check()). */
ERR_MUST_CHECK enum err model_check(struct model *model);

/* For Muon. All ranks of the column have in model->grad what each had of its own piece of that bucket. */
ERR_MUST_CHECK enum err model_gather_grads(struct model *model, int index);
/* A matrix of the layers, of which the ranks of a row have parts in model->grad, to *whole: in there where there is no
 * other part, else in `room`, which has space for it twice. Back: this rank's part of it. */
ERR_MUST_CHECK enum err model_gather_whole(struct model *model, const struct model_tensor *tensor, float *room,
                                           float **whole);
void model_keep_part(struct model *model, const struct model_tensor *tensor, const float *whole);
/* All ranks of the column have in model->grad what the one in row `root` has of that tensor. */
ERR_MUST_CHECK enum err model_send_grads(struct model *model, const struct model_tensor *tensor, int root);

/* ---- masters ---- */

/* The products' copies are those of all ranks' masters; what is queued on MAIN from now on finds them. */
ERR_MUST_CHECK enum err model_spread(struct model *model);

/* Of several ranks: what column `column` has of a tensor, from all own values to *at, which is in model->grad. That
 * must hold nothing that is needed, and is zero after model_gathered_end(). */
ERR_MUST_CHECK enum err model_gather(struct model *model, const struct model_tensor *tensor, int column,
                                     const float *own, const float **at);
void model_gathered_end(struct model *model, const struct model_tensor *tensor);

#endif
