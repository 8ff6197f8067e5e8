/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_dnn_graph: causal attention as cuDNN's graphs of operations, and the plans that the library makes of them. A
 * graph is built operation by operation, in the order and with the strides by which the library finds its fused
 * kernels; our arrays are read and written where they lie. Of the engine configurations that the library proposes, only
 * those are taken that give the same bits each time.
 *
 * It asks neither a GPU nor CUDA: in place of a handle it takes a descriptor of a device's properties, so that all of
 * it but the execution is tested without a GPU. Private to this folder; the thread that uses the device calls.
 */
#ifndef KERNELS_CUDA_CUDA_DNN_GRAPH_H
#define KERNELS_CUDA_CUDA_DNN_GRAPH_H

#include <cudnn_graph.h>

#include "kernels/kern_table.h"

/* The library's functions, as cuda_dnn_load() finds them. */
struct cuda_dnn_calls {
    __typeof__(cudnnGetVersion) *version;
    __typeof__(cudnnGetErrorString) *error_string;
    __typeof__(cudnnGetLastErrorString) *last_error;
    __typeof__(cudnnCreate) *create;
    __typeof__(cudnnDestroy) *destroy;
    __typeof__(cudnnSetStream) *set_stream;
    __typeof__(cudnnBackendCreateDescriptor) *descriptor_new;
    __typeof__(cudnnBackendDestroyDescriptor) *descriptor_free;
    __typeof__(cudnnBackendFinalize) *finalize;
    __typeof__(cudnnBackendSetAttribute) *set;
    __typeof__(cudnnBackendGetAttribute) *get;
    __typeof__(cudnnBackendExecute) *execute;
};

/* What plans are made for: a GPU in this process (`handle`), or else one that is described (`device`). */
struct cuda_dnn_target {
    const struct cuda_dnn_calls *calls;
    cudnnHandle_t handle;            /* NULL: `device` says which GPU */
    cudnnBackendDescriptor_t device; /* CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, finalized; NULL with a handle */
};

enum { CUDA_DNN_TEXT = 512, CUDA_DNN_PLANS = 3, CUDA_DNN_ARRAYS = 16 };

/* One way of doing it. */
struct cuda_dnn_plan {
    cudnnBackendDescriptor_t config, plan;
    int64_t engine; /* the library's number of it */
    size_t workspace_bytes;
};

/* Forward or backward attention of one shape. */
struct cuda_dnn_graph {
    cudnnBackendDescriptor_t *made; /* all descriptors but the plans, in the order they were made; ours */
    size_t made_count, made_room;
    cudnnBackendDescriptor_t graph;
    struct cuda_dnn_plan plans[CUDA_DNN_PLANS]; /* the best first, by what the library believes */
    int plans_count;
    int refused;              /* configurations passed over: not the same bits each time, or no plan comes of them */
    size_t sums_bytes;        /* memory beside the workspace: what one operation leaves to the next */
    char text[CUDA_DNN_TEXT]; /* why there is no plan, or what was said of the last one refused; "" if nothing was */
};

/* What a graph is executed on. */
struct cuda_dnn_arrays {
    void *out; /* (R, H*D): forward writes it, backward reads it */
    void *lse; /* (B, H, T), likewise */
    const void *qkv, *dout;
    void *dqkv;
    void *scratch; /* cuda_dnn_graph_scratch() bytes of the device */
};

/* Builds it and asks for up to `most` plans (at most CUDA_DNN_PLANS), for each of which the library compiles kernels:
 * about a second of the host each. On failure plans_count is 0 and `text` says which descriptor was refused, with the
 * library's status and its own words. To be freed in any case. */
void cuda_dnn_graph_new(const struct cuda_dnn_target *target, const struct kern_attention *dims, bool backward,
                        int most, struct cuda_dnn_graph *out);
void cuda_dnn_graph_free(const struct cuda_dnn_target *target, struct cuda_dnn_graph *graph);

/* Gives up its plans, but for what `text` says. */
void cuda_dnn_graph_drop(const struct cuda_dnn_target *target, struct cuda_dnn_graph *graph);

/* Bytes of the device that any of its plans takes. */
size_t cuda_dnn_graph_scratch(const struct cuda_dnn_graph *graph);

/* Queues plan number `plan` in the handle's stream; false: graph->text says what the library says. */
bool cuda_dnn_graph_run(const struct cuda_dnn_target *target, struct cuda_dnn_graph *graph, int plan,
                        const struct kern_attention *dims, const struct cuda_dnn_arrays *arrays);

#endif
