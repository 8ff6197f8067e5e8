/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/comm/comm_sum.h"

#include <string.h>

enum { BLOCK = 1024 }; /* values: the sum so far stays in the nearest cache */

size_t comm_type_bytes(enum comm_type type)
{
    switch (type) {
    case COMM_F32: return sizeof(float);
    case COMM_BF16: return sizeof(uint16_t);
    case COMM_I32: return sizeof(int32_t);
    case COMM_F64: return sizeof(double);
    }
    return 0;
}

static float from_bf16(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

static uint16_t to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t nan = bits >> 16 | 0x40; /* which must not become Inf by losing its last bits */
    uint32_t nearest = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
    return (uint16_t)((int32_t)(bits & 0x7fffffffu) > 0x7f800000 ? nan : nearest);
}

static void sum_f32(float *out, const void *const *part, int parts_count, int64_t at, int count)
{
    float sum[BLOCK];
    memcpy(sum, (const float *)part[0] + at, (size_t)count * sizeof *sum);
    for (int p = 1; p < parts_count; p++) {
        const float *x = (const float *)part[p] + at;
#pragma omp simd
        for (int i = 0; i < count; i++)
            sum[i] += x[i];
    }
    memcpy(out + at, sum, (size_t)count * sizeof *sum);
}

static void sum_bf16(uint16_t *out, const void *const *part, int parts_count, int64_t at, int count)
{
    float sum[BLOCK];
    const uint16_t *first = (const uint16_t *)part[0] + at;
#pragma omp simd
    for (int i = 0; i < count; i++)
        sum[i] = from_bf16(first[i]);
    for (int p = 1; p < parts_count; p++) {
        const uint16_t *x = (const uint16_t *)part[p] + at;
#pragma omp simd
        for (int i = 0; i < count; i++)
            sum[i] += from_bf16(x[i]);
    }
#pragma omp simd
    for (int i = 0; i < count; i++)
        out[at + i] = to_bf16(sum[i]);
}

static void sum_i32(uint32_t *out, const void *const *part, int parts_count, int64_t at, int count)
{
    uint32_t sum[BLOCK];
    memcpy(sum, (const uint32_t *)part[0] + at, (size_t)count * sizeof *sum);
    for (int p = 1; p < parts_count; p++) {
        const uint32_t *x = (const uint32_t *)part[p] + at;
#pragma omp simd
        for (int i = 0; i < count; i++)
            sum[i] += x[i];
    }
    memcpy(out + at, sum, (size_t)count * sizeof *sum);
}

static void sum_f64(double *out, const void *const *part, int parts_count, int64_t at, int count)
{
    double sum[BLOCK];
    memcpy(sum, (const double *)part[0] + at, (size_t)count * sizeof *sum);
    for (int p = 1; p < parts_count; p++) {
        const double *x = (const double *)part[p] + at;
#pragma omp simd
        for (int i = 0; i < count; i++)
            sum[i] += x[i];
    }
    memcpy(out + at, sum, (size_t)count * sizeof *sum);
}

void comm_sum(enum comm_type type, void *out, const void *const *part, int parts_count, int64_t count)
{
    for (int64_t at = 0; at < count; at += BLOCK) {
        int some = count - at < BLOCK ? (int)(count - at) : BLOCK;
        switch (type) {
        case COMM_F32: sum_f32(out, part, parts_count, at, some); break;
        case COMM_BF16: sum_bf16(out, part, parts_count, at, some); break;
        case COMM_I32: sum_i32(out, part, parts_count, at, some); break;
        case COMM_F64: sum_f64(out, part, parts_count, at, some); break;
        }
    }
}
