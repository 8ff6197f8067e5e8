/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/ranks.h"

#include <math.h>
#include <string.h>

#include "common/env.h"
#include "common/mem.h"

enum err ranks_open(const struct launch_rank *rank, const struct kern *kern, struct ranks *out)
{
    *out = (struct ranks){.kern = kern};
    TRY(kern->open(&(struct kern_place){.device = rank->device, .threads = 1}, &out->dev));
    return comm_shm_new(rank->seat, kern, out->dev, rank->patience_s, &out->comm);
}

void ranks_close(struct ranks *ranks)
{
    ranks->comm->calls->free(ranks->comm);
    ranks->kern->close(ranks->dev);
}

/* ---- values ---- */

int64_t ranks_bytes(enum comm_type type, int64_t count)
{
    return count * (type == COMM_BF16 ? 2 : type == COMM_F64 ? 8 : 4);
}

static float widen(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

/* The nearer neighbour, by distance; of two equally near ones the even one. */
static uint16_t narrow(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint16_t low = (uint16_t)(bits >> 16), high = (uint16_t)(low + 1);
    double to_low = fabs((double)value - (double)widen(low)), to_high = fabs((double)widen(high) - (double)value);
    if (to_low != to_high)
        return to_low < to_high ? low : high;
    return low % 2 == 0 ? low : high;
}

static float value_of(uint64_t seed, int rank, int64_t i)
{
    uint64_t of_all = env_mix64(env_mix64(seed) + (uint64_t)i);
    uint64_t bits = env_mix64(env_mix64(seed * 64 + (uint64_t)rank + 1) + (uint64_t)i);
    /* One small value among large ones that may cancel each other: what is left of it shows the order in bf16, too. */
    if (of_all % 4 == 0 && (of_all >> 8) % 3 != (uint64_t)rank)
        return (bits & 1) != 0 ? 0x1p40f : -0x1p40f;
    /* 24 bits at any of 16 scales: each order of summing rounds in its own way. */
    return ldexpf((float)(int32_t)(bits >> 40) - 8388608.0f, -(int)(bits & 15));
}

void ranks_fill(enum comm_type type, void *out, int64_t count, uint64_t seed, int rank)
{
    for (int64_t i = 0; i < count; i++) {
        float value = value_of(seed, rank, i);
        if (type == COMM_F32)
            ((float *)out)[i] = value;
        else if (type == COMM_BF16)
            ((uint16_t *)out)[i] = narrow(value);
        else if (type == COMM_F64)
            ((double *)out)[i] = 1.0000000001 * (double)value;
        else
            ((uint32_t *)out)[i] = (uint32_t)env_mix64(seed * 64 + (uint64_t)rank + ((uint64_t)i << 20));
    }
}

void ranks_sum(enum comm_type type, void *out, int64_t count, uint64_t seed, const int *rank, int ranks_count)
{
    for (int64_t i = 0; i < count; i++) {
        volatile float sum = 0;
        volatile double wide = 0;
        uint32_t total = 0;
        for (int r = 0; r < ranks_count; r++) {
            float value = value_of(seed, rank[r], i);
            value = type == COMM_BF16 ? widen(narrow(value)) : value;
            sum = r == 0 ? value : sum + value;
            wide = r == 0 ? 1.0000000001 * (double)value : wide + 1.0000000001 * (double)value;
            total += (uint32_t)env_mix64(seed * 64 + (uint64_t)rank[r] + ((uint64_t)i << 20));
        }
        if (type == COMM_F32)
            ((float *)out)[i] = sum;
        else if (type == COMM_BF16)
            ((uint16_t *)out)[i] = narrow(sum);
        else if (type == COMM_F64)
            ((double *)out)[i] = wide;
        else
            ((uint32_t *)out)[i] = total;
    }
}

/* ---- one collective after another ---- */

struct bench {
    const struct ranks *ranks;
    enum kern_queue queue;
    enum comm_type type;
    int64_t count, bytes; /* of one rank's part */
    char *array, *part;   /* on the device: for all parts, for one */
    char *host, *want;    /* for all parts */
    uint64_t seed;
};

static int everyone[GROUP_RANKS_MAX];

static void upload(const struct bench *b, void *to, int64_t bytes)
{
    const struct kern *kern = b->ranks->kern;
    kern->copy(b->ranks->dev, KERN_MAIN, to, b->host, (size_t)bytes);
    if (b->queue != KERN_MAIN)
        kern->order(b->ranks->dev, b->queue, KERN_MAIN);
}

static enum err compare(const struct bench *b, const void *array, int64_t bytes, const char *what)
{
    const struct kern *kern = b->ranks->kern;
    if (b->queue != KERN_MAIN)
        kern->order(b->ranks->dev, KERN_MAIN, b->queue);
    memset(b->host, 0x5a, (size_t)bytes);
    kern->copy(b->ranks->dev, KERN_MAIN, b->host, array, (size_t)bytes);
    TRY(kern->sync(b->ranks->dev));
    if (memcmp(b->host, b->want, (size_t)bytes) != 0)
        return err_set(ERR_STATE, "%s of %lld values of type %d: not the right bits", what, (long long)b->count,
                       (int)b->type);
    return ERR_OK;
}

static enum err check_reduce(struct bench *b)
{
    struct comm *comm = b->ranks->comm;
    int64_t all = b->count * comm->count;
    ranks_fill(b->type, b->host, b->count, ++b->seed, comm->rank);
    upload(b, b->part, b->bytes);
    TRY(comm->calls->all_reduce(comm, b->queue, b->part, b->count, b->type));
    ranks_sum(b->type, b->want, b->count, b->seed, everyone, comm->count);
    TRY(compare(b, b->part, b->bytes, "all_reduce"));
    for (int in_place = 0; in_place < 2; in_place++) {
        ranks_fill(b->type, b->host, all, ++b->seed, comm->rank);
        upload(b, b->array, comm->count * b->bytes);
        char *part = in_place ? b->array + comm->rank * b->bytes : b->part;
        TRY(comm->calls->reduce_scatter(comm, b->queue, part, b->array, b->count, b->type));
        ranks_sum(b->type, b->want, all, b->seed, everyone, comm->count);
        memmove(b->want, b->want + comm->rank * b->bytes, (size_t)b->bytes);
        TRY(compare(b, part, b->bytes, in_place ? "reduce_scatter in place" : "reduce_scatter"));
    }
    return ERR_OK;
}

static enum err check_spread(struct bench *b)
{
    struct comm *comm = b->ranks->comm;
    for (int in_place = 0; in_place < 2; in_place++) {
        char *part = in_place ? b->array + comm->rank * b->bytes : b->part;
        ranks_fill(b->type, b->host, b->count, ++b->seed, comm->rank);
        upload(b, part, b->bytes);
        TRY(comm->calls->all_gather(comm, b->queue, b->array, part, b->count, b->type));
        for (int r = 0; r < comm->count; r++)
            ranks_fill(b->type, b->want + r * b->bytes, b->count, b->seed, r);
        TRY(compare(b, b->array, b->bytes * comm->count, in_place ? "all_gather in place" : "all_gather"));
    }
    for (int root = 0; root < comm->count; root++) {
        ranks_fill(b->type, b->host, b->count, ++b->seed, comm->rank);
        upload(b, b->part, b->bytes);
        TRY(comm->calls->broadcast(comm, b->queue, b->part, b->count, b->type, root));
        ranks_fill(b->type, b->want, b->count, b->seed, root);
        TRY(compare(b, b->part, b->bytes, "broadcast"));
    }
    return ERR_OK;
}

static enum err check_one(struct bench *b)
{
    const struct ranks *ranks = b->ranks;
    size_t all = (size_t)(b->bytes * ranks->comm->count);
    b->array = b->part = b->host = b->want = NULL;
    enum err err = ranks->kern->alloc(ranks->dev, all, "a test's array", (void **)&b->array);
    if (err == ERR_OK)
        err = ranks->kern->alloc(ranks->dev, (size_t)b->bytes, "a test's part", (void **)&b->part);
    if (err == ERR_OK)
        err = mem_new(all, 1, "a test's values", &b->host);
    if (err == ERR_OK)
        err = mem_new(all, 1, "a test's values", &b->want);
    if (err == ERR_OK)
        err = check_reduce(b);
    if (err == ERR_OK)
        err = check_spread(b);
    mem_free(b->host);
    mem_free(b->want);
    ranks->kern->free(ranks->dev, b->array);
    ranks->kern->free(ranks->dev, b->part);
    return err;
}

enum err ranks_check_all(const struct ranks *ranks, enum kern_queue queue, const int64_t *counts, int counts_count)
{
    static const enum comm_type types[] = {COMM_F32, COMM_BF16, COMM_I32, COMM_F64};
    struct bench bench = {.ranks = ranks, .queue = queue};
    for (int r = 0; r < GROUP_RANKS_MAX; r++)
        everyone[r] = r;
    for (int t = 0; t < 4; t++)
        for (int i = 0; i < counts_count; i++) {
            bench.type = types[t];
            bench.count = counts[i];
            bench.bytes = ranks_bytes(types[t], counts[i]);
            TRY(check_one(&bench));
        }
    return ERR_OK;
}
