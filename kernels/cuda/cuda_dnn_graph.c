/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/cuda_dnn_graph.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/mem.h"

enum { DIMS = 4, ALIGN = 16, OPERATIONS_MAX = 40, PROPOSALS = 16, NOTES = 16, WORDS = 400, LARGEST_ALIGN = 256 };

/* Numbers of the arrays that are bound when a plan is run; virtual ones, which no memory holds, count on from there. */
enum { QUERIES = 1, KEYS, VALUES, OUT, STATS, SCALE, HIDDEN, ONE, DOUT, DQUERIES, DKEYS, DVALUES, SUMS, BOUND_END };

enum kind { BOUND, VIRTUAL, BY_VALUE };

/* One graph while it is built. The first refusal ends the rest: what comes after is not asked. */
struct builder {
    const struct cuda_dnn_target *target;
    struct cuda_dnn_graph *graph;
    bool failed;
    int64_t next; /* number of the next virtual array */
    cudnnBackendDescriptor_t operations[OPERATIONS_MAX];
    int operations_count;
    int64_t B, T, H, G, D;
};

struct layout {
    int64_t dim[DIMS], stride[DIMS];
};

typedef cudnnBackendDescriptor_t desc_t;

/* ---- what the library says ---- */

/* On one line. */
static void keep_words(const struct cuda_dnn_target *target, struct cuda_dnn_graph *graph, const char *what,
                       cudnnStatus_t status)
{
    char words[WORDS] = "";
    target->calls->last_error(words, sizeof words);
    for (char *at = words; *at != '\0'; at++)
        *at = *at == '\n' ? ' ' : *at;
    snprintf(graph->text, sizeof graph->text, "%s: %s%s%s", what, target->calls->error_string(status),
             words[0] != '\0' ? ": " : "", words);
}

/* Whether the call before went well. */
static bool check(struct builder *b, cudnnStatus_t status, const char *what)
{
    if (status == CUDNN_STATUS_SUCCESS)
        return true;
    keep_words(b->target, b->graph, what, status);
    b->failed = true;
    return false;
}

/* ---- descriptors ---- */

static desc_t begin(struct builder *b, cudnnBackendDescriptorType_t type, const char *what)
{
    struct cuda_dnn_graph *graph = b->graph;
    desc_t out = NULL;
    if (b->failed)
        return NULL;
    if (graph->made_count == graph->made_room) {
        size_t room = 2 * graph->made_room + 128;
        if (mem_grow(&graph->made, graph->made_count, room, sizeof *graph->made, "descriptors of cuDNN") != ERR_OK) {
            snprintf(graph->text, sizeof graph->text, "%s: out of memory", what);
            b->failed = true;
            return NULL;
        }
        graph->made_room = room;
    }
    if (!check(b, b->target->calls->descriptor_new(type, &out), what))
        return NULL;
    graph->made[graph->made_count++] = out;
    return out;
}

static void set(struct builder *b, desc_t desc, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                int64_t count, const void *values, const char *what)
{
    if (!b->failed)
        check(b, b->target->calls->set(desc, name, type, count, values), what);
}

static void set_desc(struct builder *b, desc_t desc, cudnnBackendAttributeName_t name, desc_t value, const char *what)
{
    set(b, desc, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value, what);
}

static void end(struct builder *b, desc_t desc, const char *what)
{
    if (!b->failed)
        check(b, b->target->calls->finalize(desc), what);
}

/* ---- arrays ---- */

static desc_t array(struct builder *b, int64_t number, enum kind kind, cudnnDataType_t type, struct layout layout,
                    const char *what)
{
    const int64_t align = ALIGN;
    const bool yes = true;
    desc_t out = begin(b, CUDNN_BACKEND_TENSOR_DESCRIPTOR, what);
    set(b, out, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type, what);
    set(b, out, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, DIMS, layout.dim, what);
    set(b, out, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, DIMS, layout.stride, what);
    set(b, out, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &number, what);
    set(b, out, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align, what);
    if (kind == VIRTUAL)
        set(b, out, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes, what);
    if (kind == BY_VALUE)
        set(b, out, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &yes, what);
    end(b, out, what);
    return out;
}

/* A virtual array that is written closely, the last index fastest. */
static struct layout close_layout(int64_t d0, int64_t d1, int64_t d2, int64_t d3)
{
    return (struct layout){{d0, d1, d2, d3}, {d1 * d2 * d3, d2 * d3, d3, 1}};
}

static struct layout scores_layout(const struct builder *b)
{
    return close_layout(b->B, b->H, b->T, b->T);
}

/* One value for each row of a head. */
static struct layout rows_layout(const struct builder *b)
{
    return (struct layout){{b->B, b->H, b->T, 1}, {b->H * b->T, b->T, 1, 1}};
}

/* `heads` heads of rows of `row` values: of qkv, out, or the gradient of either. */
static struct layout heads_layout(const struct builder *b, int64_t heads, int64_t row)
{
    return (struct layout){{b->B, heads, b->T, b->D}, {b->T * row, b->D, row, 1}};
}

/* The same transposed: the library's products take keys and values so. */
static struct layout transposed(struct layout layout)
{
    int64_t dim = layout.dim[2], stride = layout.stride[2];
    layout.dim[2] = layout.dim[3];
    layout.stride[2] = layout.stride[3];
    layout.dim[3] = dim;
    layout.stride[3] = stride;
    return layout;
}

static int64_t qkv_row(const struct builder *b)
{
    return (b->H + 2 * b->G) * b->D;
}

static desc_t virtual_array(struct builder *b, cudnnDataType_t type, struct layout layout, const char *what)
{
    return array(b, b->next++, VIRTUAL, type, layout, what);
}

static desc_t value(struct builder *b, int64_t number, const char *what)
{
    return array(b, number, BY_VALUE, CUDNN_DATA_FLOAT, close_layout(1, 1, 1, 1), what);
}

/* ---- operations ---- */

static void add(struct builder *b, desc_t operation, const char *what)
{
    end(b, operation, what);
    if (!b->failed)
        b->operations[b->operations_count++] = operation;
}

struct pointwise {
    cudnnPointwiseMode_t mode;
    cudnnDataType_t math;
    desc_t x, b, t, y; /* b, t: NULL where the mode takes none */
    int64_t axis;      /* of CUDNN_POINTWISE_GEN_INDEX, else 0 */
};

static void pointwise(struct builder *b, struct pointwise p, const char *what)
{
    desc_t how = begin(b, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, what);
    set(b, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &p.mode, what);
    set(b, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &p.math, what);
    if (p.mode == CUDNN_POINTWISE_GEN_INDEX)
        set(b, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &p.axis, what);
    end(b, how, what);
    desc_t out = begin(b, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, what);
    set_desc(b, out, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how, what);
    set_desc(b, out, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, p.x, what);
    if (p.b != NULL)
        set_desc(b, out, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, p.b, what);
    if (p.t != NULL)
        set_desc(b, out, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, p.t, what);
    set_desc(b, out, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, p.y, what);
    add(b, out, what);
}

/* y = mode(x, by), float, into a new virtual array. `by` NULL: of one operand. */
static desc_t float_of(struct builder *b, cudnnPointwiseMode_t mode, desc_t x, desc_t by, struct layout layout,
                       const char *what)
{
    desc_t y = virtual_array(b, CUDNN_DATA_FLOAT, layout, what);
    pointwise(b, (struct pointwise){.mode = mode, .math = CUDNN_DATA_FLOAT, .x = x, .b = by, .y = y}, what);
    return y;
}

/* What a product or a reduction needs besides its arrays: it adds up in fp32. To be ended. */
static desc_t begin_in_float(struct builder *b, cudnnBackendDescriptorType_t type,
                             cudnnBackendAttributeName_t precision, const char *what)
{
    const cudnnDataType_t math = CUDNN_DATA_FLOAT;
    desc_t how = begin(b, type, what);
    set(b, how, precision, CUDNN_TYPE_DATA_TYPE, 1, &math, what);
    return how;
}

static void product(struct builder *b, desc_t x, desc_t y, desc_t out, const char *what)
{
    desc_t how = begin_in_float(b, CUDNN_BACKEND_MATMUL_DESCRIPTOR, CUDNN_ATTR_MATMUL_COMP_TYPE, what);
    end(b, how, what);
    desc_t operation = begin(b, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, what);
    set_desc(b, operation, CUDNN_ATTR_OPERATION_MATMUL_DESC, how, what);
    set_desc(b, operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC, x, what);
    set_desc(b, operation, CUDNN_ATTR_OPERATION_MATMUL_BDESC, y, what);
    set_desc(b, operation, CUDNN_ATTR_OPERATION_MATMUL_CDESC, out, what);
    add(b, operation, what);
}

static void reduce(struct builder *b, cudnnReduceTensorOp_t mode, desc_t x, desc_t y, const char *what)
{
    desc_t how = begin_in_float(b, CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_ATTR_REDUCTION_COMP_TYPE, what);
    set(b, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode, what);
    end(b, how, what);
    desc_t operation = begin(b, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, what);
    set_desc(b, operation, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how, what);
    set_desc(b, operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x, what);
    set_desc(b, operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y, what);
    add(b, operation, what);
}

static desc_t reshape(struct builder *b, desc_t x, struct layout layout, const char *what)
{
    desc_t y = virtual_array(b, CUDNN_DATA_BFLOAT16, layout, what);
    desc_t operation = begin(b, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, what);
    set_desc(b, operation, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x, what);
    set_desc(b, operation, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y, what);
    add(b, operation, what);
    return y;
}

/* ---- attention ---- */

/* Scores of keys after their query become -Inf. */
static desc_t hide_later_keys(struct builder *b, desc_t scores)
{
    struct layout all = scores_layout(b);
    desc_t row = virtual_array(b, CUDNN_DATA_INT32, all, "rows' numbers");
    desc_t column = virtual_array(b, CUDNN_DATA_INT32, all, "columns' numbers");
    desc_t seen = virtual_array(b, CUDNN_DATA_BOOLEAN, all, "the mask");
    desc_t hidden = value(b, HIDDEN, "the value that hides");
    desc_t out = virtual_array(b, CUDNN_DATA_FLOAT, all, "masked scores");
    struct pointwise p = {.mode = CUDNN_POINTWISE_GEN_INDEX, .math = CUDNN_DATA_FLOAT, .x = scores};
    p.axis = 2;
    p.y = row;
    pointwise(b, p, "the rows' numbering");
    p.axis = 3;
    p.y = column;
    pointwise(b, p, "the columns' numbering");
    pointwise(b,
              (struct pointwise){
                  .mode = CUDNN_POINTWISE_CMP_GE, .math = CUDNN_DATA_BOOLEAN, .x = row, .b = column, .y = seen},
              "the comparison of rows and columns");
    pointwise(b,
              (struct pointwise){.mode = CUDNN_POINTWISE_BINARY_SELECT,
                                 .math = CUDNN_DATA_FLOAT,
                                 .x = scores,
                                 .b = hidden,
                                 .t = seen,
                                 .y = out},
              "the choice by the mask");
    return out;
}

static desc_t scaled_scores(struct builder *b, desc_t queries, desc_t keys, desc_t scale)
{
    struct layout all = scores_layout(b);
    desc_t raw = virtual_array(b, CUDNN_DATA_FLOAT, all, "scores");
    product(b, queries, keys, raw, "the product of queries and keys");
    return float_of(b, CUDNN_POINTWISE_MUL, raw, scale, all, "scaled scores");
}

static void describe_forward(struct builder *b)
{
    struct layout all = scores_layout(b), rows = rows_layout(b);
    desc_t queries = array(b, QUERIES, BOUND, CUDNN_DATA_BFLOAT16, heads_layout(b, b->H, qkv_row(b)), "queries");
    desc_t keys =
        array(b, KEYS, BOUND, CUDNN_DATA_BFLOAT16, transposed(heads_layout(b, b->G, qkv_row(b))), "keys, transposed");
    desc_t values = array(b, VALUES, BOUND, CUDNN_DATA_BFLOAT16, heads_layout(b, b->G, qkv_row(b)), "values");
    desc_t out = array(b, OUT, BOUND, CUDNN_DATA_BFLOAT16, heads_layout(b, b->H, b->H * b->D), "the output");
    desc_t stats = array(b, STATS, BOUND, CUDNN_DATA_FLOAT, rows, "rows' log-sum-exp");
    desc_t scores = hide_later_keys(b, scaled_scores(b, queries, keys, value(b, SCALE, "the scale of scores")));
    desc_t most = virtual_array(b, CUDNN_DATA_FLOAT, rows, "rows' largest scores");
    reduce(b, CUDNN_REDUCE_TENSOR_MAX, scores, most, "the rows' maximum");
    desc_t less = float_of(b, CUDNN_POINTWISE_SUB, scores, most, all, "scores less the largest");
    desc_t weights = float_of(b, CUDNN_POINTWISE_EXP, less, NULL, all, "weights");
    desc_t sum = virtual_array(b, CUDNN_DATA_FLOAT, rows, "rows' sums of weights");
    reduce(b, CUDNN_REDUCE_TENSOR_ADD, weights, sum, "the rows' sum");
    desc_t log_sum = float_of(b, CUDNN_POINTWISE_LOG, sum, NULL, rows, "the sums' logarithm");
    pointwise(
        b,
        (struct pointwise){.mode = CUDNN_POINTWISE_ADD, .math = CUDNN_DATA_FLOAT, .x = most, .b = log_sum, .y = stats},
        "the rows' log-sum-exp");
    desc_t shares = virtual_array(b, CUDNN_DATA_BFLOAT16, all, "softmax");
    pointwise(
        b,
        (struct pointwise){.mode = CUDNN_POINTWISE_DIV, .math = CUDNN_DATA_FLOAT, .x = weights, .b = sum, .y = shares},
        "softmax");
    product(b, shares, values, out, "the product of softmax and values");
}

/* gradient(B, G or H, T, D) = x^T y, summed over the query heads that share a key head. */
static void transposed_product(struct builder *b, desc_t x, desc_t y, desc_t gradient, const char *what)
{
    struct layout turned = {{b->B, b->H, b->T, b->T}, {b->H * b->T * b->T, b->T * b->T, 1, b->T}};
    desc_t left = reshape(b, x, turned, what);
    if (b->H == b->G) {
        product(b, left, y, gradient, what);
        return;
    }
    desc_t each = virtual_array(b, CUDNN_DATA_BFLOAT16, close_layout(b->B, b->H, b->T, b->D), what);
    product(b, left, y, each, what);
    reduce(b, CUDNN_REDUCE_TENSOR_ADD, each, gradient, what);
}

/* The rows' sums of dout * out, held in memory for the next kernel. */
static desc_t sums_of_changes(struct builder *b, desc_t dout, desc_t out)
{
    struct layout rows = rows_layout(b);
    struct layout heads = {{b->B, b->H, b->T, b->D}, {b->H * b->T * b->D, b->T * b->D, b->H * b->D, 1}};
    desc_t each = float_of(b, CUDNN_POINTWISE_MUL, dout, out, heads, "dout times out");
    desc_t sum = virtual_array(b, CUDNN_DATA_FLOAT, rows, "rows' sums of dout times out");
    reduce(b, CUDNN_REDUCE_TENSOR_ADD, each, sum, "the sum of dout times out");
    desc_t sums = array(b, SUMS, BOUND, CUDNN_DATA_FLOAT, rows, "kept sums of dout times out");
    pointwise(
        b,
        (struct pointwise){
            .mode = CUDNN_POINTWISE_MUL, .math = CUDNN_DATA_FLOAT, .x = sum, .b = value(b, ONE, "one"), .y = sums},
        "the keeping of sums");
    return sums;
}

static void describe_backward(struct builder *b)
{
    struct layout all = scores_layout(b);
    struct layout query = heads_layout(b, b->H, qkv_row(b)), key = heads_layout(b, b->G, qkv_row(b));
    struct layout attended = heads_layout(b, b->H, b->H * b->D);
    desc_t queries = array(b, QUERIES, BOUND, CUDNN_DATA_BFLOAT16, query, "queries");
    desc_t keys = array(b, KEYS, BOUND, CUDNN_DATA_BFLOAT16, transposed(key), "keys, transposed");
    desc_t values = array(b, VALUES, BOUND, CUDNN_DATA_BFLOAT16, transposed(key), "values, transposed");
    desc_t out = array(b, OUT, BOUND, CUDNN_DATA_BFLOAT16, attended, "the output");
    desc_t dout = array(b, DOUT, BOUND, CUDNN_DATA_BFLOAT16, attended, "the output's gradient");
    desc_t stats = array(b, STATS, BOUND, CUDNN_DATA_FLOAT, rows_layout(b), "rows' log-sum-exp");
    desc_t dqueries = array(b, DQUERIES, BOUND, CUDNN_DATA_BFLOAT16, query, "the queries' gradient");
    desc_t dkeys = array(b, DKEYS, BOUND, CUDNN_DATA_BFLOAT16, key, "the keys' gradient");
    desc_t dvalues = array(b, DVALUES, BOUND, CUDNN_DATA_BFLOAT16, key, "the values' gradient");
    desc_t scale = value(b, SCALE, "the scale of scores");
    desc_t sums = sums_of_changes(b, dout, out);
    desc_t scores = scaled_scores(b, queries, keys, scale);
    scores = float_of(b, CUDNN_POINTWISE_SUB, scores, stats, all, "scores less log-sum-exp");
    desc_t shares = float_of(b, CUDNN_POINTWISE_EXP, hide_later_keys(b, scores), NULL, all, "softmax, computed again");
    transposed_product(b, shares, dout, dvalues, "the values' gradient");
    desc_t change = virtual_array(b, CUDNN_DATA_FLOAT, all, "softmax's gradient");
    product(b, dout, values, change, "the product of dout and values");
    change = float_of(b, CUDNN_POINTWISE_SUB, change, sums, all, "softmax's gradient less the sums");
    change = float_of(b, CUDNN_POINTWISE_MUL, change, shares, all, "the scores' gradient");
    change = float_of(b, CUDNN_POINTWISE_MUL, change, scale, all, "the scores' scaled gradient");
    transposed_product(b, change, queries, dkeys, "the keys' gradient");
    desc_t rows = reshape(b, keys, key, "keys by rows");
    product(b, change, rows, dqueries, "the queries' gradient");
    b->graph->sums_bytes = (size_t)(b->B * b->H * b->T) * sizeof(float);
}

/* ---- plans ---- */

static desc_t collect(struct builder *b)
{
    static const char what[] = "the graph of operations";
    desc_t out = begin(b, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, what);
    if (b->target->handle != NULL)
        set(b, out, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &b->target->handle, what);
    set(b, out, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, b->operations_count, b->operations, what);
    end(b, out, what);
    return out;
}

/* Configurations that the library's heuristics propose, the best first; how many. */
static int ask(struct builder *b, cudnnBackendHeurMode_t mode, desc_t proposals[PROPOSALS])
{
    static const char what[] = "the question for engines";
    int64_t count = 0;
    desc_t heuristics = begin(b, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, what);
    set_desc(b, heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, b->graph->graph, what);
    set(b, heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode, what);
    if (b->target->device != NULL)
        set_desc(b, heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, b->target->device, what);
    end(b, heuristics, what);
    for (int i = 0; i < PROPOSALS; i++)
        proposals[i] = begin(b, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "an engine's configuration");
    if (!b->failed)
        check(b,
              b->target->calls->get(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, PROPOSALS,
                                    &count, proposals),
              "the engines proposed");
    if (!b->failed && count == 0) {
        keep_words(b->target, b->graph, "no engine is proposed", CUDNN_STATUS_NOT_SUPPORTED);
        b->failed = true;
    }
    return b->failed ? 0 : (int)(count < PROPOSALS ? count : PROPOSALS);
}

/* Whether it gives the same bits each time, as far as the library says; *number becomes the engine's. */
static bool repeats(struct builder *b, desc_t config, int64_t *number)
{
    const struct cuda_dnn_calls *calls = b->target->calls;
    cudnnBackendNumericalNote_t notes[NOTES];
    int64_t count = 0;
    bool same = false;
    desc_t engine = begin(b, CUDNN_BACKEND_ENGINE_DESCRIPTOR, "an engine");
    if (b->failed || calls->get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                                &engine) != CUDNN_STATUS_SUCCESS)
        return false;
    calls->get(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count, number);
    same = calls->get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, NOTES, &count, notes) ==
           CUDNN_STATUS_SUCCESS;
    for (int64_t i = 0; same && i < count && i < NOTES; i++)
        same = notes[i] != CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    if (!same)
        snprintf(b->graph->text, sizeof b->graph->text, "engine %" PRId64 " gives other bits each time", *number);
    return same;
}

/* Makes the plan of a configuration and puts it with the others; one that the library refuses is left out. */
static void plan_one(struct builder *b, desc_t config, int64_t engine)
{
    const struct cuda_dnn_calls *calls = b->target->calls;
    struct cuda_dnn_graph *graph = b->graph;
    desc_t plan = NULL;
    int64_t bytes = 0, count = 0;
    char what[64];
    snprintf(what, sizeof what, "the plan of engine %" PRId64, engine);
    cudnnStatus_t status = calls->descriptor_new(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan);
    if (status == CUDNN_STATUS_SUCCESS && b->target->handle != NULL)
        status = calls->set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &b->target->handle);
    if (status == CUDNN_STATUS_SUCCESS && b->target->device != NULL)
        status = calls->set(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                            &b->target->device);
    if (status == CUDNN_STATUS_SUCCESS)
        status = calls->set(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config);
    if (status == CUDNN_STATUS_SUCCESS)
        status = calls->finalize(plan);
    if (status == CUDNN_STATUS_SUCCESS)
        status = calls->get(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count, &bytes);
    if (status != CUDNN_STATUS_SUCCESS) {
        keep_words(b->target, graph, what, status);
        if (plan != NULL)
            calls->descriptor_free(plan);
        graph->refused++;
        return;
    }
    graph->plans[graph->plans_count++] = (struct cuda_dnn_plan){
        .config = config, .plan = plan, .engine = engine, .workspace_bytes = bytes > 0 ? (size_t)bytes : 0};
}

void cuda_dnn_graph_new(const struct cuda_dnn_target *target, const struct kern_attention *dims, bool backward,
                        int most, struct cuda_dnn_graph *out)
{
    struct builder b = {.target = target,
                        .graph = out,
                        .next = BOUND_END,
                        .B = dims->B,
                        .T = dims->T,
                        .H = dims->H,
                        .G = dims->G,
                        .D = dims->D};
    desc_t proposals[PROPOSALS];
    memset(out, 0, sizeof *out);
    if (backward)
        describe_backward(&b);
    else
        describe_forward(&b);
    out->graph = collect(&b);
    int count = b.failed ? 0 : ask(&b, CUDNN_HEUR_MODE_A, proposals);
    for (int i = 0; i < count && out->plans_count < most; i++) {
        int64_t engine = -1;
        if (repeats(&b, proposals[i], &engine))
            plan_one(&b, proposals[i], engine);
        else
            out->refused++;
    }
}

void cuda_dnn_graph_drop(const struct cuda_dnn_target *target, struct cuda_dnn_graph *graph)
{
    while (graph->plans_count > 0)
        target->calls->descriptor_free(graph->plans[--graph->plans_count].plan);
    while (graph->made_count > 0)
        target->calls->descriptor_free(graph->made[--graph->made_count]);
    mem_free(graph->made);
    graph->made = NULL;
    graph->made_room = 0;
    graph->graph = NULL;
    graph->sums_bytes = 0;
}

void cuda_dnn_graph_free(const struct cuda_dnn_target *target, struct cuda_dnn_graph *graph)
{
    cuda_dnn_graph_drop(target, graph);
    memset(graph, 0, sizeof *graph);
}

static size_t rounded(size_t bytes)
{
    return (bytes + LARGEST_ALIGN - 1) / LARGEST_ALIGN * LARGEST_ALIGN;
}

size_t cuda_dnn_graph_scratch(const struct cuda_dnn_graph *graph)
{
    size_t most = 0;
    for (int i = 0; i < graph->plans_count; i++)
        most = graph->plans[i].workspace_bytes > most ? graph->plans[i].workspace_bytes : most;
    return graph->plans_count > 0 ? rounded(graph->sums_bytes) + most : 0;
}

/* ---- a run ---- */

bool cuda_dnn_graph_run(const struct cuda_dnn_target *target, struct cuda_dnn_graph *graph, int plan,
                        const struct kern_attention *dims, const struct cuda_dnn_arrays *arrays)
{
    const struct cuda_dnn_calls *calls = target->calls;
    const size_t act = sizeof(uint16_t), keys = (size_t)(dims->H * dims->D) * act;
    const size_t values = keys + (size_t)(dims->G * dims->D) * act;
    float scale = 1.0f / sqrtf((float)dims->D), hidden = -INFINITY, one = 1.0f;
    char *qkv = (char *)arrays->qkv, *dqkv = arrays->dqkv;
    void *workspace = (char *)arrays->scratch + rounded(graph->sums_bytes);
    const bool backward = graph->sums_bytes > 0;
    const int64_t numbers[] = {QUERIES, KEYS, VALUES,   OUT,   STATS,   SCALE, HIDDEN,
                               ONE,     DOUT, DQUERIES, DKEYS, DVALUES, SUMS};
    void *const pointers[] = {qkv,         qkv + keys,    qkv + values,   arrays->out,          arrays->lse,
                              &scale,      &hidden,       &one,           (void *)arrays->dout, dqkv,
                              dqkv + keys, dqkv + values, arrays->scratch};
    const int64_t count = backward ? (int64_t)(sizeof numbers / sizeof numbers[0]) : 7;
    desc_t pack = NULL;
    cudnnStatus_t status = calls->descriptor_new(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    if (status == CUDNN_STATUS_SUCCESS)
        status = calls->set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, numbers);
    if (status == CUDNN_STATUS_SUCCESS)
        status = calls->set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, pointers);
    if (status == CUDNN_STATUS_SUCCESS)
        status = calls->set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    if (status == CUDNN_STATUS_SUCCESS)
        status = calls->finalize(pack);
    if (status == CUDNN_STATUS_SUCCESS)
        status = calls->execute(target->handle, graph->plans[plan].plan, pack);
    if (status != CUDNN_STATUS_SUCCESS)
        keep_words(target, graph, "the execution", status);
    if (pack != NULL)
        calls->descriptor_free(pack);
    return status == CUDNN_STATUS_SUCCESS;
}
