/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model_work: what a model's passes need beside its parameters: where each layer's tensors lie, and the activations.
 *
 * Owns that memory, all of it taken at once. model_setup.c makes and ends it, model_pass.c computes in it, on the
 * model's one thread; nobody else sees it. It computes nothing and calls neither of the two.
 */
#ifndef WORKER_MODEL_MODEL_WORK_H
#define WORKER_MODEL_MODEL_WORK_H

#include "kernels/kern_host.h"
#include "worker/model/model.h"

enum { MODEL_FEEDS = 2 };

/* A batch on its way to the device. */
struct model_feed {
    struct kern_host host; /* tokens(R), targets(R) */
    uint64_t mark;         /* reached when it may be written again; 0: was never used */
};

/* What the backward pass needs of one layer; R = B * T rows; H, G, F and V are
 * those of model->part. What is not kept for it is one array for all layers, with
 * the values of the layer that was computed last: all of it in a model that only evaluates, else by work->recompute. */
struct model_layer {
    int64_t norm1, qkv, out, norm2, gate_up, down; /* offsets into the flat arrays; qkv and gate_up are fused */
    kern_act *resid1;                              /* (R,C): input of the first norm */
    kern_act *normed1;                             /* (R,C) */
    float *rstd1;                                  /* (R) */
    kern_act *heads;                               /* (R,(H+2G)D): queries, keys, values, rotated */
    kern_act *attended;                            /* (R,HD) */
    float *lse;                                    /* (B,H,T) */
    kern_act *resid2;                              /* (R,C): input of the second norm */
    kern_act *normed2;                             /* (R,C) */
    float *rstd2;                                  /* (R) */
    kern_act *gu;                                  /* (R,2F) */
    kern_act *hidden;                              /* (R,F) */
    kern_act *cache;                               /* (2,T,GD): keys and values of decoded positions */
};

struct model_work {
    struct model_layer *layers;
    int64_t embed, norm_final, head; /* offsets */
    bool train;
    enum model_recompute recompute;
    int64_t chunk, logits_ld; /* rows of logits at a time; values from one to the next */
    struct model_feed feeds[MODEL_FEEDS];
    uint64_t fed;              /* batches so far */
    bool sums;                 /* the backward pass sums gradients over the column */
    int32_t *tokens, *targets; /* (R), on the device */
    float *cos_sin;            /* (T, D/2, 2) */
    kern_act *resid_final;     /* (R,C) */
    kern_act *normed_final;    /* (R,C) */
    float *rstd_final;         /* (R) */
    kern_act *proj;            /* (R,C): output of the last projection, not yet added to the residual stream */
    kern_act *logits;          /* (chunk,V), rows logits_ld apart */
    float *losses;             /* (R) */
    float *stats, *lse;        /* (tp,chunk,3), (chunk): of logits that a row has in parts; NULL: it has them whole */
    double *loss;              /* (1), of model_loss() */
    kern_act *d_resid;         /* (R,C) */
    kern_act *d_normed;        /* (R,C) */
    kern_act *d_wide;          /* (R, max(2F, (H+2G)D)) */
    kern_act *d_narrow;        /* (R, max(F, HD)) */
    void *scratch;             /* attention */
    float *logits_float;       /* (V), of decoding; NULL before it */
    int64_t decoded;           /* positions in the caches */
};

/* What the sizes depend on, for a shape that is there. */
void model_work_outline(struct model *model, const struct model_conf *conf);
/* The activations, for layers that are there and after the outline. On failure the rest is released by
 * model_work_free(). */
ERR_MUST_CHECK enum err model_work_new(struct model *model);
/* Adds what that allocates. */
void model_work_memory(struct model *model, struct model_memory *memory);
/* Releases model->work and its layers, too. */
void model_work_free(struct model *model);

/* The shape, as the kernels of attention take it. */
struct kern_attention model_attention(const struct model *model);

#endif
