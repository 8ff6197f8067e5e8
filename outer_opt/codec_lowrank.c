/* SPDX-License-Identifier: Apache-2.0 */
/*
 * powersgd: a matrix X as two thin factors P (rows x rank, orthonormal columns) and Q (cols x rank), X ~ P Q' (Vogels
 * et al. 2019, 1905.13727). One step of power iteration an encoding: P = orth(X Q_last), Q = X' P; Q is carried on.
 * What the factors do not hold stays in the residual; padding behind the matrix is zero.
 *
 * Planes: u32 rows, u32 cols, u32 rank; P and Q as bf16, row by row. Nothing of it compresses.
 */
#include <string.h>

#include "outer_opt/codec_kind.h"
#include "outer_opt/fbits.h"

enum { SHAPE_BYTES = 12 };

static void powersgd_room(const struct codec_kind *kind, size_t count, size_t room[PLANES_MAX])
{
    (void)kind;
    room[0] = SHAPE_BYTES;
    /* A column or a row vector of rank CODEC_RANK_MAX is the largest there is. */
    room[1] = room[2] = count * CODEC_RANK_MAX * sizeof(uint16_t);
}

static bool finite_bits(float value)
{
    return (float_bits(value) & FBITS_MAGNITUDE) < FBITS_INF;
}

/* By Newton's method from above: no library's root is needed, and so none's rounding. */
static double root(double value)
{
    double guess = value > 1 ? value : 1;
    for (double next; (next = 0.5 * (guess + value / guess)) < guess;)
        guess = next;
    return guess;
}

/* X at a place of the part. */
static float element(const struct vec_source *source, size_t at)
{
    float value = source->minuend[at];
    if (source->subtrahend != NULL)
        value = value - source->subtrahend[at];
    if (source->residual != NULL)
        value = value + source->residual[at];
    return value;
}

/* A start that no column of X is orthogonal to but by accident: the same on every island and in every run. */
static void seed_factor(float *factor, size_t count)
{
    uint32_t state = 0x9e3779b9u;
    for (size_t i = 0; i < count; i++) {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        factor[i] = (float)(int32_t)state * 0x1p-31f;
    }
}

/* Gram-Schmidt on the columns of p, twice over, in double; a column that vanishes is left zero. */
static void orthonormalise(float *p, size_t rows, uint32_t rank)
{
    for (uint32_t k = 0; k < rank; k++) {
        double before = 0;
        for (size_t i = 0; i < rows; i++)
            before += (double)p[i * rank + k] * (double)p[i * rank + k];
        for (int pass = 0; pass < 2; pass++)
            for (uint32_t j = 0; j < k; j++) {
                double dot = 0;
                for (size_t i = 0; i < rows; i++)
                    dot += (double)p[i * rank + j] * (double)p[i * rank + k];
                for (size_t i = 0; i < rows; i++)
                    p[i * rank + k] = (float)((double)p[i * rank + k] - dot * (double)p[i * rank + j]);
            }
        double square = 0;
        for (size_t i = 0; i < rows; i++)
            square += (double)p[i * rank + k] * (double)p[i * rank + k];
        /* What is left of a column that lay in the span of those before it is rounding alone. */
        double inverse = square > before * 1e-10 && square > 0 ? 1 / root(square) : 0;
        for (size_t i = 0; i < rows; i++)
            p[i * rank + k] = (float)((double)p[i * rank + k] * inverse);
    }
}

/* p = X q; returns the first row with a value that is not finite, or rows. A sum with such a value in it is not finite,
 * whatever its other terms and factors are. */
static size_t multiply(const struct vec_source *source, size_t rows, size_t cols, uint32_t rank, const float *q,
                       float *p)
{
    for (size_t i = 0; i < rows; i++) {
        float sum[CODEC_RANK_MAX] = {0};
        for (size_t j = 0; j < cols; j++) {
            float x = element(source, i * cols + j);
            for (uint32_t k = 0; k < rank; k++)
                sum[k] += x * q[j * rank + k];
        }
        for (uint32_t k = 0; k < rank; k++) {
            p[i * rank + k] = sum[k];
            if (!finite_bits(sum[k]))
                return i;
        }
    }
    return rows;
}

/* q = X' p */
static void multiply_transposed(const struct vec_source *source, size_t rows, size_t cols, uint32_t rank,
                                const float *p, float *q)
{
    memset(q, 0, cols * rank * sizeof *q);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < cols; j++) {
            float x = element(source, i * cols + j);
            for (uint32_t k = 0; k < rank; k++)
                q[j * rank + k] += x * p[i * rank + k];
        }
}

/* Elementwise in a written order: every decoder gets the same bits. */
static inline float product(const float *p, const float *q, uint32_t rank)
{
    float sum = 0;
    for (uint32_t k = 0; k < rank; k++)
        sum = sum + p[k] * q[k];
    return sum;
}

/* Rounds to bf16 in place and writes the halves. */
static bool put_factor(float *factor, size_t count, uint8_t *out)
{
    bool good = true;
    for (size_t i = 0; i < count; i++) {
        uint16_t half = float_bf16(factor[i]);
        good &= (float_bits(factor[i]) & FBITS_MAGNITUDE) < FBITS_BF16_LIMIT;
        memcpy(out + 2 * i, &half, sizeof half);
        factor[i] = bf16_float(half);
    }
    return good;
}

static void put_residual(const struct vec_source *source, size_t rows, size_t cols, size_t count, uint32_t rank,
                         const float *p, const float *q, float *residual)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < cols; j++)
            residual[i * cols + j] = element(source, i * cols + j) - product(p + i * rank, q + j * rank, rank);
    for (size_t at = rows * cols; at < count; at++)
        residual[at] = element(source, at);
}

static bool is_zero(const float *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (values[i] != 0)
            return false;
    return true;
}

static size_t powersgd_encode(struct codec *codec, const struct codec_kind *kind, const struct codec_part *part,
                              const struct vec_source *source, float *residual, struct segment *segment)
{
    size_t rows = part->rows, cols = part->cols, count = segment->count;
    uint32_t rank = part->choice.rank;
    float *p = codec->factors, *q = p + rows * rank;
    uint8_t *halves = (uint8_t *)(q + cols * rank);
    uint32_t shape[3] = {part->rows, part->cols, rank};
    (void)kind;
    if (is_zero(part->factor, cols * rank))
        seed_factor(part->factor, cols * rank);
    size_t good = multiply(source, rows, cols, rank, part->factor, p);
    if (good != rows)
        return good * cols / CODEC_BLOCK;
    orthonormalise(p, rows, rank);
    if (!put_factor(p, rows * rank, halves))
        return 0;
    multiply_transposed(source, rows, cols, rank, p, q);
    if (!put_factor(q, cols * rank, halves + 2 * rows * rank))
        return 0;
    if (residual != NULL)
        put_residual(source, rows, cols, count, rank, p, q, residual);
    memcpy(part->factor, q, cols * rank * sizeof *q);
    memcpy(codec->plane[0], shape, sizeof shape);
    segment->planes_count = 3;
    segment->plane[0] = (struct plane){codec->plane[0], SHAPE_BYTES};
    segment->plane[1] = (struct plane){halves, 2 * rows * rank};
    segment->plane[2] = (struct plane){halves + 2 * rows * rank, 2 * cols * rank};
    return blocks_of(count);
}

static void load_row(const uint8_t *halves, uint32_t rank, float *row)
{
    for (uint32_t k = 0; k < rank; k++) {
        uint16_t half;
        memcpy(&half, halves + 2 * k, sizeof half);
        row[k] = bf16_float(half);
    }
}

static enum err powersgd_decode(struct codec *codec, const struct codec_kind *kind, const struct segment *segment,
                                const float *weight, float *values)
{
    uint32_t shape[3] = {0};
    (void)codec;
    if (segment->planes_count == 3 && segment->plane[0].bytes == SHAPE_BYTES)
        memcpy(shape, segment->plane[0].data, sizeof shape);
    uint64_t rows = shape[0], cols = shape[1], rank = shape[2];
    if (rows == 0 || cols == 0 || rank == 0 || rank > CODEC_RANK_MAX || rows > segment->count / cols ||
        segment->count - rows * cols >= CODEC_BLOCK || segment->plane[1].bytes != 2 * rows * rank ||
        segment->plane[2].bytes != 2 * cols * rank)
        return err_set(ERR_PROTO, "codec segment of %s with a shape that does not fit its %u values", kind->name,
                       segment->count);
    for (size_t i = 0; values != NULL && i < rows; i++) {
        float p[CODEC_RANK_MAX], q[CODEC_RANK_MAX];
        load_row(segment->plane[1].data + 2 * i * rank, (uint32_t)rank, p);
        for (size_t j = 0; j < cols; j++) {
            load_row(segment->plane[2].data + 2 * j * rank, (uint32_t)rank, q);
            float value = product(p, q, (uint32_t)rank);
            float *out = &values[i * cols + j];
            *out = weight != NULL ? *out + *weight * value : value;
        }
    }
    if (values != NULL && weight == NULL)
        memset(values + rows * cols, 0, (segment->count - rows * cols) * sizeof *values);
    return ERR_OK;
}

const struct codec_kind codec_kind_powersgd = {CODEC_POWERSGD,  "powersgd",      true, powersgd_room,
                                               powersgd_encode, powersgd_decode, false};
