/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/libdiloco/attach_register.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/ipc.h"
#include "common/mem.h"
#include "worker/libdiloco/attach_types.h"

enum { TENSORS_ROOM_FIRST = 64 };

/* The first number between dots of a name, as in "model.layers.7.mlp.weight"; NONE if there is none. */
static int32_t layer_from_name(const char *name)
{
    for (const char *at = name; (at = strchr(at, '.')) != NULL;) {
        char *end;
        at++;
        if (*at < '0' || *at > '9')
            continue;
        long number = strtol(at, &end, 10);
        if ((*end == '.' || *end == '\0') && number < INT32_MAX)
            return (int32_t)number;
    }
    return DILOCO_LAYER_NONE;
}

static int check_name(struct diloco *d, const char *name, uint32_t dims)
{
    if (name == NULL || strlen(name) >= IPC_NAME_BYTES || dims > IPC_DIMS_MAX)
        return attach_fail(d, DILOCO_ERROR,
                           "tensor \"%.40s\": a name of at most %d bytes and at most %d dimensions are possible",
                           name != NULL ? name : "", IPC_NAME_BYTES - 1, IPC_DIMS_MAX);
    bool twice = false;
    for (uint32_t i = 0; i < d->tensors_count; i++)
        twice |= strcmp(d->tensors[i].announced.name, name) == 0;
    for (uint32_t i = 0; i < d->frozen_count; i++)
        twice |= strcmp(d->frozen[i].name, name) == 0;
    return twice ? attach_fail(d, DILOCO_ERROR, "tensor \"%s\" is registered twice", name) : DILOCO_OK;
}

static int check_tensor(struct diloco *d, const struct diloco_tensor *tensor)
{
    uint64_t count = 1;
    int result = check_name(d, tensor->name, tensor->dims);
    if (result != DILOCO_OK)
        return result;
    if (tensor->data == NULL)
        return attach_fail(d, DILOCO_ERROR, "tensor \"%s\" has no data", tensor->name);
    if (attach_type_bytes(tensor->type) == 0)
        return attach_fail(d, DILOCO_ERROR, "tensor \"%s\" has type %d, which is none of enum diloco_type",
                           tensor->name, (int)tensor->type);
    for (uint32_t i = 0; i < tensor->dims; i++)
        if (__builtin_mul_overflow(count, tensor->shape[i], &count) || count > PTRDIFF_MAX / sizeof(float))
            return attach_fail(d, DILOCO_ERROR, "tensor \"%s\" is larger than memory can be", tensor->name);
    if (tensor->first > PTRDIFF_MAX / sizeof(float) - count)
        return attach_fail(d, DILOCO_ERROR, "tensor \"%s\" begins at value %" PRIu64 ", where no memory can be",
                           tensor->name, tensor->first);
    return DILOCO_OK;
}

/* Values that belong to two tensors would be moved twice by every anchor. What a device calls its arrays is its own
 * business: there two tensors are told apart by what they are called. */
static int check_memory(struct diloco *d, const struct tensor *tensor)
{
    bool host = d->device.move == NULL;
    uint64_t bytes = host ? attach_type_bytes(tensor->type) : 1;
    uint64_t begin = (host ? (uintptr_t)tensor->data : 0) + tensor->begin * bytes, end = begin + tensor->count * bytes;
    for (uint32_t i = 0; i < d->tensors_count; i++) {
        const struct tensor *other = &d->tensors[i];
        uint64_t other_bytes = host ? attach_type_bytes(other->type) : 1;
        uint64_t other_begin = (host ? (uintptr_t)other->data : 0) + other->begin * other_bytes;
        if ((host || tensor->data == other->data) && begin < other_begin + other->count * other_bytes &&
            other_begin < end)
            return attach_fail(d, DILOCO_ERROR,
                               "tensor \"%s\" shares memory with tensor \"%s\"; register tied parameters once",
                               tensor->announced.name, other->announced.name);
    }
    return DILOCO_OK;
}

static int take_part(struct diloco *d, struct tensor *slot, const struct diloco_part *part)
{
    uint64_t rows = slot->announced.dims > 1 ? slot->announced.shape[0] : 1;
    slot->width = slot->columns = rows > 0 ? slot->whole / rows : 0;
    slot->count = slot->whole;
    if (part->columns == 0)
        return DILOCO_OK;
    slot->column0 = part->column0;
    slot->columns = part->columns;
    slot->first = part->first;
    slot->count = part->count;
    if (part->column0 <= slot->width && part->columns <= slot->width - part->column0 &&
        part->first <= rows * part->columns && part->count <= rows * part->columns - part->first)
        return DILOCO_OK;
    return attach_fail(d, DILOCO_ERROR, "tensor \"%s\": its part does not lie in it", slot->announced.name);
}

/* Grows `*list`, of `count` elements of `size` bytes, for one more. */
static int room_for_one(struct diloco *d, void *list, uint32_t count, size_t size, uint32_t *room)
{
    if (d->tensors_count + d->frozen_count == IPC_TENSORS_MAX)
        return attach_fail(d, DILOCO_ERROR, "more than %d tensors", IPC_TENSORS_MAX);
    if (count < *room)
        return DILOCO_OK;
    uint32_t more = *room > 0 ? 2 * *room : TENSORS_ROOM_FIRST;
    if (mem_grow(list, count, more, size, "registered tensors") != ERR_OK)
        return attach_fail(d, DILOCO_ERROR, "%s", err_text());
    *room = more;
    return DILOCO_OK;
}

int attach_register(struct diloco *d, const struct diloco_tensor *tensor)
{
    int result = check_tensor(d, tensor);
    if (result == DILOCO_OK)
        result = room_for_one(d, &d->tensors, d->tensors_count, sizeof *d->tensors, &d->tensors_room);
    if (result != DILOCO_OK)
        return result;
    struct tensor *slot = &d->tensors[d->tensors_count];
    *slot = (struct tensor){
        .data = tensor->data, .begin = tensor->first, .type = tensor->type, .number = d->tensors_count, .whole = 1};
    snprintf(slot->announced.name, sizeof slot->announced.name, "%s", tensor->name);
    slot->announced.dims = tensor->dims;
    slot->announced.layer = tensor->layer == DILOCO_LAYER_FROM_NAME ? layer_from_name(tensor->name) : tensor->layer;
    for (uint32_t i = 0; i < tensor->dims; i++) {
        slot->announced.shape[i] = tensor->shape[i];
        slot->whole *= tensor->shape[i];
    }
    result = take_part(d, slot, &tensor->part);
    if (result == DILOCO_OK)
        result = check_memory(d, slot);
    if (result != DILOCO_OK)
        return result;
    d->tensors_count++;
    return DILOCO_OK;
}

int attach_register_frozen(struct diloco *d, const struct diloco_frozen *frozen)
{
    int result = check_name(d, frozen->name, frozen->dims);
    if (result == DILOCO_OK &&
        (frozen->type == NULL || frozen->type[0] == '\0' || strlen(frozen->type) >= IPC_TYPE_BYTES))
        result = attach_fail(d, DILOCO_ERROR, "tensor \"%s\": a type is a word of at most %d bytes", frozen->name,
                             IPC_TYPE_BYTES - 1);
    if (result == DILOCO_OK)
        result = room_for_one(d, &d->frozen, d->frozen_count, sizeof *d->frozen, &d->frozen_room);
    if (result != DILOCO_OK)
        return result;
    struct ipc_tensor *slot = &d->frozen[d->frozen_count++];
    *slot = (struct ipc_tensor){
        .frozen = 1, .layer = layer_from_name(frozen->name), .dims = frozen->dims, .sum = frozen->sum};
    snprintf(slot->name, sizeof slot->name, "%s", frozen->name);
    snprintf(slot->type, sizeof slot->type, "%s", frozen->type);
    for (uint32_t i = 0; i < frozen->dims; i++)
        slot->shape[i] = frozen->shape[i];
    return DILOCO_OK;
}

static int announced_by_layer_and_name(const void *left, const void *right)
{
    const struct ipc_tensor *a = left, *b = right;
    if (a->layer != b->layer)
        return a->layer < b->layer ? -1 : 1;
    return strcmp(a->name, b->name);
}

static int by_layer_and_name(const void *left, const void *right)
{
    return announced_by_layer_and_name(&((const struct tensor *)left)->announced,
                                       &((const struct tensor *)right)->announced);
}

int attach_register_sort(struct diloco *d)
{
    if (d->tensors_count == 0)
        return DILOCO_OK;
    qsort(d->tensors, d->tensors_count, sizeof *d->tensors, by_layer_and_name);
    if (d->frozen_count > 0)
        qsort(d->frozen, d->frozen_count, sizeof *d->frozen, announced_by_layer_and_name);
    mem_free(d->changed);
    if (mem_new(d->tensors_count, sizeof *d->changed, "registered tensors", &d->changed) != ERR_OK)
        return attach_fail(d, DILOCO_ERROR, "%s", err_text());
    return DILOCO_OK;
}

int attach_register_place(struct diloco *d, int tensor, void *data)
{
    for (uint32_t i = 0; tensor >= 0 && i < d->tensors_count; i++) {
        struct tensor *slot = &d->tensors[i];
        if (slot->number != (uint32_t)tensor)
            continue;
        if (data == NULL)
            return attach_fail(d, DILOCO_ERROR, "tensor \"%s\" has no data", slot->announced.name);
        slot->data = data;
        return DILOCO_OK;
    }
    return attach_fail(d, DILOCO_ERROR, "diloco_place() of tensor %d, and %u are registered", tensor, d->tensors_count);
}

void attach_register_unchanged(struct diloco *d)
{
    d->looked = false;
    if (d->any_changed)
        memset(d->changed, 0, d->tensors_count * sizeof *d->changed);
    d->any_changed = false;
}

bool attach_register_changed(const struct diloco *d, int tensor)
{
    if (tensor == DILOCO_ANY || !d->any_changed)
        return d->any_changed;
    return tensor >= 0 && (uint32_t)tensor < d->tensors_count && d->changed[tensor];
}
