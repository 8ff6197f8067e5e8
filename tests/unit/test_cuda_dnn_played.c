/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_dnn_graph: that the graphs compute causal attention and its gradients, by a cuDNN that is played: it keeps what
 * it is told of each operation, and executes one after the other in plain loops. Where one operand has fewer heads than
 * the result, heads share it, as cuDNN says. It knows nothing of what the real library refuses (test_cuda_dnn).
 */
#include "tests/lib/testlib.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda_dnn_graph.h"

enum { DIMS = 4, OPERATIONS_MAX = 64, ARRAYS_MAX = 32 };

struct part {
    cudnnBackendDescriptorType_t type;
    /* an array */
    int64_t number, dim[DIMS], stride[DIMS];
    cudnnDataType_t data;
    bool is_virtual;
    enum { DOUBLES, FLOATS, HALVES } kept; /* bf16: HALVES */
    void *memory, *own;
    /* an operation, or how it is done */
    struct part *x, *by, *mask, *y, *how;
    int mode;
    int64_t axis;
    /* a graph; a pack of pointers */
    struct part *operations[OPERATIONS_MAX];
    int64_t count, numbers[ARRAYS_MAX];
    void *pointers[ARRAYS_MAX];
};

static struct part *graph; /* the newest */
static int made;

/* ---- the library's calls ---- */

static cudnnStatus_t descriptor_new(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *out)
{
    struct part *part = calloc(1, sizeof *part);
    assert_non_null(part);
    part->type = type;
    if (type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)
        graph = part;
    *out = (cudnnBackendDescriptor_t)part;
    made++;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t descriptor_free(cudnnBackendDescriptor_t descriptor)
{
    free(((struct part *)descriptor)->own);
    free(descriptor);
    made--;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t finalize(cudnnBackendDescriptor_t descriptor)
{
    assert_non_null(descriptor);
    return CUDNN_STATUS_SUCCESS;
}

/* Where an attribute goes; NULL: it changes nothing here. */
static void *place_of(struct part *p, cudnnBackendAttributeName_t name, size_t *each)
{
    *each = sizeof(int64_t);
    switch ((int)name) {
    case CUDNN_ATTR_TENSOR_UNIQUE_ID: return &p->number;
    case CUDNN_ATTR_TENSOR_DIMENSIONS: return p->dim;
    case CUDNN_ATTR_TENSOR_STRIDES: return p->stride;
    case CUDNN_ATTR_POINTWISE_AXIS: return &p->axis;
    case CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS: return p->numbers;
    }
    *each = sizeof(int);
    switch ((int)name) {
    case CUDNN_ATTR_TENSOR_DATA_TYPE: return &p->data;
    case CUDNN_ATTR_POINTWISE_MODE:
    case CUDNN_ATTR_REDUCTION_OPERATOR: return &p->mode;
    }
    *each = sizeof(bool);
    if (name == CUDNN_ATTR_TENSOR_IS_VIRTUAL)
        return &p->is_virtual;
    *each = sizeof(void *);
    switch ((int)name) {
    case CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR:
    case CUDNN_ATTR_OPERATION_REDUCTION_DESC: return &p->how;
    case CUDNN_ATTR_OPERATION_POINTWISE_XDESC:
    case CUDNN_ATTR_OPERATION_MATMUL_ADESC:
    case CUDNN_ATTR_OPERATION_REDUCTION_XDESC:
    case CUDNN_ATTR_OPERATION_RESHAPE_XDESC: return &p->x;
    case CUDNN_ATTR_OPERATION_POINTWISE_BDESC:
    case CUDNN_ATTR_OPERATION_MATMUL_BDESC: return &p->by;
    case CUDNN_ATTR_OPERATION_POINTWISE_TDESC: return &p->mask;
    case CUDNN_ATTR_OPERATION_POINTWISE_YDESC:
    case CUDNN_ATTR_OPERATION_MATMUL_CDESC:
    case CUDNN_ATTR_OPERATION_REDUCTION_YDESC:
    case CUDNN_ATTR_OPERATION_RESHAPE_YDESC: return &p->y;
    case CUDNN_ATTR_OPERATIONGRAPH_OPS: return p->operations;
    case CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS: return p->pointers;
    }
    return NULL;
}

static cudnnStatus_t set(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    struct part *p = (struct part *)descriptor;
    size_t each;
    void *place = place_of(p, name, &each);
    (void)type;
    if (place == NULL)
        return CUDNN_STATUS_SUCCESS;
    assert_in_range(count, 1, name == CUDNN_ATTR_OPERATIONGRAPH_OPS ? OPERATIONS_MAX : ARRAYS_MAX);
    memcpy(place, values, (size_t)count * each);
    if (name == CUDNN_ATTR_OPERATIONGRAPH_OPS || name == CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS)
        p->count = count;
    return CUDNN_STATUS_SUCCESS;
}

/* One engine is proposed, which has nothing to note and takes no workspace. */
static cudnnStatus_t get(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t most, int64_t *count, void *values)
{
    (void)descriptor, (void)type, (void)most;
    *count = name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE ? 0 : 1;
    if (name == CUDNN_ATTR_ENGINE_GLOBAL_INDEX || name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)
        memset(values, 0, sizeof(int64_t));
    return CUDNN_STATUS_SUCCESS;
}

/* ---- values ---- */

static uint16_t half_of(double value)
{
    float f = (float)value;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static double of_half(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return (double)f;
}

/* The place of an index of a result whose dimensions are `of`. */
static int64_t offset_of(const struct part *p, const int64_t at[DIMS], const int64_t of[DIMS])
{
    int64_t offset = 0;
    for (int i = 0; i < DIMS; i++)
        offset += at[i] * p->dim[i] / of[i] * p->stride[i];
    return offset;
}

static double load(const struct part *p, const int64_t at[DIMS], const int64_t of[DIMS])
{
    int64_t offset = offset_of(p, at, of);
    assert_non_null(p->memory);
    if (p->kept == DOUBLES)
        return ((double *)p->memory)[offset];
    return p->kept == FLOATS ? (double)((float *)p->memory)[offset] : of_half(((uint16_t *)p->memory)[offset]);
}

static void store(struct part *p, const int64_t at[DIMS], double value)
{
    if (p->memory == NULL) {
        int64_t values = 1;
        assert_true(p->is_virtual); /* of the others each has a pointer */
        /* No memory holds it, so its strides are no places: two of its values may have the same one. */
        for (int i = DIMS - 1; i >= 0; i--) {
            p->stride[i] = values;
            values *= p->dim[i];
        }
        p->memory = p->own = calloc((size_t)values, sizeof(double));
        assert_non_null(p->memory);
    }
    int64_t offset = offset_of(p, at, p->dim);
    if (p->kept == DOUBLES)
        ((double *)p->memory)[offset] = value;
    else if (p->kept == FLOATS)
        ((float *)p->memory)[offset] = (float)value;
    else
        ((uint16_t *)p->memory)[offset] = half_of(value);
}

/* The next index; false: there is none. */
static bool next(int64_t at[DIMS], const int64_t dim[DIMS])
{
    for (int i = DIMS - 1; i >= 0; i--) {
        if (++at[i] < dim[i])
            return true;
        at[i] = 0;
    }
    return false;
}

/* ---- operations ---- */

static double pointwise(const struct part *o, const int64_t at[DIMS])
{
    const int64_t *of = o->y->dim;
    double x = load(o->x, at, of), by = o->by != NULL ? load(o->by, at, of) : 0;
    switch (o->how->mode) {
    case CUDNN_POINTWISE_ADD: return x + by;
    case CUDNN_POINTWISE_SUB: return x - by;
    case CUDNN_POINTWISE_MUL: return x * by;
    case CUDNN_POINTWISE_DIV: return x / by;
    case CUDNN_POINTWISE_EXP: return exp(x);
    case CUDNN_POINTWISE_LOG: return log(x);
    case CUDNN_POINTWISE_CMP_GE: return x >= by;
    case CUDNN_POINTWISE_GEN_INDEX: return (double)at[o->how->axis];
    case CUDNN_POINTWISE_BINARY_SELECT: return load(o->mask, at, of) != 0 ? x : by;
    }
    fail_msg("pointwise operation %d is not played", o->how->mode);
    return 0;
}

static double product(const struct part *o, const int64_t at[DIMS])
{
    const int64_t inner = o->x->dim[3];
    const int64_t of_x[DIMS] = {o->y->dim[0], o->y->dim[1], o->y->dim[2], inner};
    const int64_t of_by[DIMS] = {o->y->dim[0], o->y->dim[1], inner, o->y->dim[3]};
    double sum = 0;
    assert_int_equal(o->by->dim[2], inner);
    for (int64_t k = 0; k < inner; k++)
        sum += load(o->x, (int64_t[]){at[0], at[1], at[2], k}, of_x) *
               load(o->by, (int64_t[]){at[0], at[1], k, at[3]}, of_by);
    return sum;
}

static double reduce(const struct part *o, const int64_t at[DIMS])
{
    const int64_t *of = o->x->dim;
    bool most = o->how->mode == CUDNN_REDUCE_TENSOR_MAX;
    double out = most ? -INFINITY : 0;
    int64_t from[DIMS] = {0};
    do {
        bool mine = true;
        for (int i = 0; i < DIMS; i++)
            mine = mine && from[i] * o->y->dim[i] / of[i] == at[i];
        if (mine)
            out = most ? fmax(out, load(o->x, from, of)) : out + load(o->x, from, of);
    } while (next(from, of));
    return out;
}

static void operate(struct part *o)
{
    int64_t at[DIMS] = {0};
    if (o->type == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR) { /* the same values, seen otherwise */
        o->y->memory = o->x->memory;
        o->y->kept = o->x->kept;
        return;
    }
    do {
        double value = o->type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR ? pointwise(o, at)
                       : o->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR  ? product(o, at)
                                                                               : reduce(o, at);
        store(o->y, at, value);
    } while (next(at, o->y->dim));
}

static void bind(struct part *array, const struct part *pack)
{
    if (array == NULL || array->is_virtual)
        return;
    array->kept = array->data == CUDNN_DATA_FLOAT ? FLOATS : HALVES;
    for (int64_t i = 0; i < pack->count; i++)
        if (pack->numbers[i] == array->number)
            array->memory = pack->pointers[i];
}

static cudnnStatus_t execute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack)
{
    (void)handle, (void)plan;
    for (int64_t i = 0; i < graph->count; i++) {
        struct part *o = graph->operations[i];
        struct part *arrays[] = {o->x, o->by, o->mask, o->y};
        for (int k = 0; k < 4; k++)
            bind(arrays[k], (struct part *)pack);
        operate(o);
    }
    return CUDNN_STATUS_SUCCESS;
}

/* ---- attention, once more ---- */

enum { VALUES_MAX = 8192 };
struct arrays {
    uint16_t qkv[VALUES_MAX], out[VALUES_MAX], dout[VALUES_MAX], dqkv[VALUES_MAX];
    float lse[VALUES_MAX], scratch[VALUES_MAX];
};
static struct arrays is;
static double out[VALUES_MAX], lse[VALUES_MAX], dqkv[VALUES_MAX]; /* as they should be */

/* Of one query of one head, and what it adds to the gradients. */
static void attend(const struct kern_attention *d, int64_t b, int64_t h, int64_t t)
{
    const int64_t row = (d->H + 2 * d->G) * d->D, key = (d->H + h / (d->H / d->G)) * d->D, value = key + d->G * d->D;
    const double scale = 1 / sqrt((double)d->D);
    const int64_t mine = (b * d->T + t) * row + h * d->D, o = ((b * d->T + t) * d->H + h) * d->D;
    double share[64], sum = 0, along = 0;
    for (int64_t k = 0; k <= t; k++) {
        double score = 0;
        for (int64_t i = 0; i < d->D; i++)
            score += of_half(is.qkv[mine + i]) * of_half(is.qkv[(b * d->T + k) * row + key + i]);
        share[k] = exp(score * scale);
        sum += share[k];
    }
    lse[(b * d->H + h) * d->T + t] = log(sum);
    for (int64_t i = 0; i < d->D; i++) {
        out[o + i] = 0;
        for (int64_t k = 0; k <= t; k++)
            out[o + i] += share[k] / sum * of_half(is.qkv[(b * d->T + k) * row + value + i]);
        along += out[o + i] * of_half(is.dout[o + i]);
    }
    for (int64_t k = 0; k <= t; k++) {
        const int64_t other = (b * d->T + k) * row;
        double change = -along;
        for (int64_t i = 0; i < d->D; i++)
            change += of_half(is.dout[o + i]) * of_half(is.qkv[other + value + i]);
        change *= share[k] / sum * scale;
        for (int64_t i = 0; i < d->D; i++) {
            dqkv[mine + i] += change * of_half(is.qkv[other + key + i]);
            dqkv[other + key + i] += change * of_half(is.qkv[mine + i]);
            dqkv[other + value + i] += share[k] / sum * of_half(is.dout[o + i]);
        }
    }
}

static void run(const struct kern_attention *d, bool backward)
{
    const struct cuda_dnn_calls calls = {.descriptor_new = descriptor_new,
                                         .descriptor_free = descriptor_free,
                                         .finalize = finalize,
                                         .set = set,
                                         .get = get,
                                         .execute = execute};
    const struct cuda_dnn_target target = {.calls = &calls};
    const struct cuda_dnn_arrays arrays = {
        .out = is.out, .lse = is.lse, .qkv = is.qkv, .dout = is.dout, .dqkv = is.dqkv, .scratch = is.scratch};
    struct cuda_dnn_graph built;
    cuda_dnn_graph_new(&target, d, backward, 1, &built);
    assert_int_equal(built.plans_count, 1);
    assert_in_range(cuda_dnn_graph_scratch(&built), backward ? 1 : 0, sizeof is.scratch);
    assert_true(cuda_dnn_graph_run(&target, &built, 0, d, &arrays));
    cuda_dnn_graph_free(&target, &built);
    assert_int_equal(made, 0);
}

static void compare(const struct kern_attention *d)
{
    const int64_t row = (d->H + 2 * d->G) * d->D, rows = d->B * d->T;
    uint32_t seed = 1;
    assert_true(rows * row <= VALUES_MAX && d->T <= 64);
    memset(dqkv, 0, sizeof dqkv);
    memset(&is, 0xff, sizeof is); /* not a number */
    for (int64_t i = 0; i < rows * row; i++)
        is.qkv[i] = half_of((double)((seed = seed * 1664525 + 1013904223) >> 8) / (1 << 22) - 2);
    for (int64_t i = 0; i < rows * d->H * d->D; i++)
        is.dout[i] = half_of((double)((seed = seed * 1664525 + 1013904223) >> 8) / (1 << 22) - 2);
    for (int64_t i = 0; i < rows * d->H; i++)
        attend(d, i / (d->H * d->T), i / d->T % d->H, i % d->T);
    run(d, false);
    for (int64_t i = 0; i < rows * d->H * d->D; i++)
        assert_true(fabs(of_half(is.out[i]) - out[i]) < 0.01);
    for (int64_t i = 0; i < rows * d->H; i++)
        assert_true(fabs((double)is.lse[i] - lse[i]) < 1e-5);
    run(d, true);
    for (int64_t i = 0; i < rows * row; i++)
        assert_true(fabs(of_half(is.dqkv[i]) - dqkv[i]) < 0.02 * (1 + fabs(dqkv[i])));
}

static void each_head_has_its_keys(void **state)
{
    (void)state;
    compare(&(struct kern_attention){.B = 2, .T = 9, .H = 3, .G = 3, .D = 16});
}

static void heads_share_keys(void **state)
{
    (void)state;
    compare(&(struct kern_attention){.B = 2, .T = 9, .H = 4, .G = 2, .D = 16});
    compare(&(struct kern_attention){.B = 1, .T = 17, .H = 4, .G = 1, .D = 16});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_head_has_its_keys),
        cmocka_unit_test(heads_share_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
