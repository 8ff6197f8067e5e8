/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model: a Llama-family decoder on one device: parameters, gradients, forward and backward pass, decoding.
 *
 * Names, shapes and arithmetic are those of the published Llama code (RMSNorm, rotary positions in halves, grouped
 * query attention, SwiGLU, optionally tied head), so that a saved file loads elsewhere. Weights are (out, in).
 * Everything is allocated by model_new(), and what that takes is known before; the training path allocates nothing. One
 * thread calls. It never sees a file, an optimizer or a daemon. model_setup.c: parameters; model_pass.c: the passes;
 * both above model_work, their memory.
 *
 * Owns: a Llama-family decoder: parameters, passes, and what ranks share of it.
 * Called by: worker.
 * Never includes: daemon/, net/, outer_opt/, worker/libdiloco/, <pthread.h>, <unistd.h>, <sys/socket.h>.
 */
#ifndef WORKER_MODEL_MODEL_H
#define WORKER_MODEL_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "common/runspec.h"
#include "kernels/kern.h"

enum { MODEL_NAME_BYTES = 64 };

/* What of the forward pass is not kept for the backward pass, which makes it again there, from the same values by the
 * same operations: gradients and losses have the same bits in every mode. */
enum model_recompute {
    MODEL_RECOMPUTE_NONE,
    MODEL_RECOMPUTE_NORMS, /* what the norms and SwiGLU put out: no product is done twice */
    MODEL_RECOMPUTE_LAYER, /* all of a layer but what it begins from: its forward pass runs twice */
    MODEL_RECOMPUTES
};

/* As the user gives them: "none", "norms", "layer". */
const char *model_recompute_name(enum model_recompute recompute);
/* ERR_ARG lists them. */
ERR_MUST_CHECK enum err model_recompute_find(const char *name, enum model_recompute *out);

struct comm;

/* The ranks that train one model, as a grid. The `tp` ranks of a row have a part of every matrix each and train on the
 * same batch (tensor parallelism, Shoeybi and others 2019, 1909.08053); the `dp` ranks of a column have the same parts
 * and train on different batches. Rank r of all is in row r / tp and column r % tp. All zero: one rank alone. */
struct model_grid {
    int dp, tp;      /* how many; 0 is 1 */
    int row, column; /* this rank's, from 0 */
    /* Borrowed; NULL where it would be of one rank, and for model_outline(). */
    struct comm *of_column, *of_row, *of_all;
};

struct model_conf {
    int64_t batch; /* sequences of spec->context tokens at a time, of this rank's row */
    bool train;    /* with gradients and the activations they need */
    enum model_recompute recompute;
    struct model_grid grid;
};

/* Of the flat arrays: what is summed and gathered in a column at a time. See model_shares.h. */
struct model_bucket {
    int64_t begin, count;
    int64_t at, own; /* this rank's part of it: where it is in arrays of own values, how many it is */
};

/* What of a model the ranks of a column have. */
struct model_extent {
    int64_t H, G, F;  /* heads, hidden width */
    int64_t first, V; /* of the vocabulary: from which token on, how many */
    int64_t V_most;   /* as many as any column has */
};

/* What of a tensor the ranks of a column have, closely packed: these rows and columns (a vector is one row). */
struct model_part {
    int64_t row, rows, column, columns;
};

/* Bytes on the device, of what model_new() allocates there. */
struct model_memory {
    uint64_t masters, copy; /* parameters; the copies that products use: none where they read the masters */
    uint64_t gradients;     /* none for a model that only evaluates */
    uint64_t activations;   /* all that a pass makes and reads, but for the next two */
    uint64_t logits;        /* of as many rows as the device takes at a time */
    uint64_t scratch;       /* of attention, and of all other operations */
};

struct model_tensor {
    char name[MODEL_NAME_BYTES];
    int32_t layer; /* -1: outside the layers */
    uint32_t dims;
    uint64_t shape[2];
    int64_t count; /* of the whole tensor */
    struct model_part part;
    int64_t offset;  /* values into the flat arrays, where that part lies */
    bool decay;      /* matrices are decayed, norms are not */
    double init_std; /* 0: ones */
};

struct model {
    const struct kern *kern;
    struct kern_dev *dev;
    struct model_tensor *tensors;
    int tensors_count;
    int64_t params_count;
    int64_t flat_count; /* parameters of this rank's column, and alignment */
    struct model_bucket *buckets;
    int buckets_count;
    struct model_grid grid; /* dp and tp at least 1 */
    int rank, ranks;        /* of all */
    int64_t own_count;      /* of the values in the flat arrays: those whose masters are here */
    float *w;               /* master weights, own_count of them, on the device; with one rank they lie as grad does */
    kern_act *act;          /* the copy products use, flat; the same array on the CPU where there is one rank */
    struct kern_weights *kept; /* and what the table keeps of its matrices; NULL: nothing */
    float *grad;               /* flat; NULL for a model that only evaluates */
    double *loss;              /* (1), on the device: sum of scale * mean loss over what model_train() was given */
    int64_t V, C, L, H, G, D, F, T, B; /* of the whole model, but for B, the batch of a row */
    struct model_extent part;          /* what this rank's column has of it */
    bool tied;
    float eps;
    struct model_work *work;
};

/* Parameters are zero until model_init() or somebody's model_write(). ERR_CONF: the device cannot do such a shape, or
 * it cannot be cut into so many parts. */
ERR_MUST_CHECK enum err model_new(const struct runspec *spec, const struct kern *kern, struct kern_dev *dev,
                                  const struct model_conf *conf, struct model **out);
void model_free(struct model *model);

/* What model_new() begins with: shape and tensors, and nothing on the device. For who wants to know how large it would
 * be; nothing else but model_free() takes it. */
ERR_MUST_CHECK enum err model_outline(const struct runspec *spec, const struct kern *kern, struct kern_dev *dev,
                                      const struct model_conf *conf, struct model **out);
/* Of a model, or of an outline. */
ERR_MUST_CHECK enum err model_memory(struct model *model, struct model_memory *out);

/* Parameters from the seed: the same bits on every machine. */
ERR_MUST_CHECK enum err model_init(struct model *model, uint64_t seed);

/* One tensor's values in `own`, an array that lies as model->w does (weights, moments; with one rank gradients, too),
 * from and to host memory; waits. Of several ranks each calls it: all read the whole tensor (or with `to` NULL only
 * take part), by way of the gradients' memory, which must be zero, and each writes what is its own. After writing
 * weights, model_refresh(). */
ERR_MUST_CHECK enum err model_read(struct model *model, const struct model_tensor *tensor, const float *own, float *to);
ERR_MUST_CHECK enum err model_write(struct model *model, const struct model_tensor *tensor, float *own,
                                    const float *from);
/* The same of some rows of the whole tensor, which are all that is in `from` (a vector is one row). */
ERR_MUST_CHECK enum err model_write_rows(struct model *model, const struct model_tensor *tensor, float *own,
                                         int64_t row, int64_t rows, const float *from);

/* Makes the products' copy follow the master weights after they were changed from outside. Of several ranks all call.
 */
ERR_MUST_CHECK enum err model_refresh(struct model *model);

/* Queues forward and backward over tokens(B,T) with targets(B,T), both in host memory, which may change once it has
 * returned; gradients of scale * mean cross-entropy (nats) are added to model->grad, that product to model->loss. Of
 * several ranks the mean is that of all their batches, and what is added here this row's part of it. Waits only where
 * the device is two batches behind. */
ERR_MUST_CHECK enum err model_train(struct model *model, const int32_t *tokens, const int32_t *targets, double scale);

/* Mean cross-entropy without gradients; waits for it. */
ERR_MUST_CHECK enum err model_loss(struct model *model, const int32_t *tokens, const int32_t *targets, double *loss);

/* Feeds one token at the next position and writes the logits(V) that follow it into host memory. Up to T tokens fit;
 * model_decode_reset() begins anew. For a rank alone; ERR_STATE else. */
ERR_MUST_CHECK enum err model_decode(struct model *model, int32_t token, float *logits);
void model_decode_reset(struct model *model);
/* Bytes on the device that the first model_decode() allocates there. Of a model, or of an outline. */
uint64_t model_decode_memory(const struct model *model);

/* Floating-point operations of one training step over `tokens` tokens, counting products only: 6 per parameter in a
 * product and token, and the attention scores. */
double model_train_flops(const struct model *model, int64_t tokens);

/* Whose kernels do the model's attention, and why: one short line for people, cut off at `bytes`. Where that is found
 * out by trials, it is known after the first model_train(). */
void model_attention_by(const struct model *model, bool backward, char *text, size_t bytes);

#endif
