/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model_layout: which tensors a model has, what of them a rank has, and where that lies in the flat arrays.
 *
 * A column's part of the model is one flat array: all norms; the embedding; each layer's matrices; a head of its own.
 * Each of these is a bucket (model_shares.h). Cut by rows are what makes heads and hidden values (q, k, v, gate, up),
 * embedding and head; by columns what brings them together again (o, down). Norms are not cut: they are column 0's, and
 * the other columns only have the products' copy. Part of model; called once, by model_outline().
 */
#ifndef WORKER_MODEL_MODEL_LAYOUT_H
#define WORKER_MODEL_MODEL_LAYOUT_H

#include "worker/model/model.h"

/* Buckets, by what is in them; layer l's is MODEL_BUCKET_LAYERS + l, and that of a head comes after the layers. */
enum { MODEL_BUCKET_NORMS, MODEL_BUCKET_EMBED, MODEL_BUCKET_LAYERS };

/* For a model with its sizes, grid and layers: all that has to do with tensors. ERR_CONF: it cannot be cut so. */
ERR_MUST_CHECK enum err model_layout(struct model *model, double init_std);

#endif
