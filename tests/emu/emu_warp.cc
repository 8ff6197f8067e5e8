/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_warp.cc: what the lanes of an emulated warp do together, for all of them at once; see emu_inside.cuh.
 */
#include "tests/emu/emu_inside.cuh"

QUIET static void copy_bytes(void *to, const void *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        ((volatile char *)to)[i] = ((const volatile char *)from)[i];
}

/* Which lane a lane's value comes from. */
QUIET static int shuffle_source(const struct emu_op *op, int lane)
{
    int first = lane & ~(op->width - 1), end = first + op->width, from;
    switch (op->kind) {
    case EMU_SHUFFLE: return first + (op->lane & (op->width - 1));
    case EMU_SHUFFLE_UP: from = lane - op->lane; return from < first ? lane : from;
    case EMU_SHUFFLE_DOWN: from = lane + op->lane; return from >= end ? lane : from;
    default: from = lane ^ op->lane; return from >= end || from < 0 ? lane : from;
    }
}

QUIET static void do_shuffle(struct emu_op *const *ops, uint32_t mask)
{
    for (int l = 0; l < WARP_LANES; l++) {
        if (!(mask >> l & 1))
            continue;
        struct emu_op *op = ops[l];
        int from = shuffle_source(op, l);
        if (mask >> from & 1) {
            copy_bytes(op->out, ops[from]->in, op->bytes);
            continue;
        }
        emu_record("%s:%d: lane %d takes a value from lane %d, which mask %#x does not name", op->file, op->line, l,
                   from, mask);
        for (size_t i = 0; i < op->bytes; i++)
            ((volatile unsigned char *)op->out)[i] = 0xff;
    }
}

QUIET static void do_ballot(struct emu_op *const *ops, uint32_t mask)
{
    uint32_t out = 0;
    for (int l = 0; l < WARP_LANES; l++)
        if ((mask >> l & 1) && *(const int *)ops[l]->in)
            out |= 1u << l;
    for (int l = 0; l < WARP_LANES; l++)
        if (mask >> l & 1)
            *(uint32_t *)ops[l]->out = out;
}

QUIET static float half_of(uint32_t pair, int high)
{
    union {
        uint32_t bits;
        float value;
    } x = {high ? pair & 0xffff0000u : pair << 16};
    return x.value;
}

/* PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type": lane l has group g = l / 4 and t = l % 4. Of a
 * each register holds k and k + 1 of a row: row g or g + 8 (registers 0 and 2, 1 and 3), k = 2t or 2t + 8 (0 and 1, 2
 * and 3). Of b: column g, k = 2t or 2t + 8. Of d: row g (0, 1) or g + 8 (2, 3), columns 2t and 2t + 1. */
QUIET static void do_mma(struct emu_op *const *ops)
{
    float a[16][16], b[16][8], d[16][8];
    for (int l = 0; l < WARP_LANES; l++) {
        const uint32_t *in = (const uint32_t *)ops[l]->in;
        const float *sum = (const float *)ops[l]->out;
        int g = l / 4, t = l % 4;
        for (int h = 0; h < 2; h++) {
            a[g][2 * t + h] = half_of(in[0], h);
            a[g + 8][2 * t + h] = half_of(in[1], h);
            a[g][2 * t + 8 + h] = half_of(in[2], h);
            a[g + 8][2 * t + 8 + h] = half_of(in[3], h);
            b[2 * t + h][g] = half_of(in[4], h);
            b[2 * t + 8 + h][g] = half_of(in[5], h);
            d[g][2 * t + h] = sum[h];
            d[g + 8][2 * t + h] = sum[2 + h];
        }
    }
    for (int row = 0; row < 16; row++)
        for (int k = 0; k < 16; k++)
            for (int column = 0; column < 8; column++)
                d[row][column] += a[row][k] * b[k][column];
    for (int l = 0; l < WARP_LANES; l++) {
        float *sum = (float *)ops[l]->out;
        for (int i = 0; i < 4; i++)
            sum[i] = d[l / 4 + i / 2 * 8][l % 4 * 2 + i % 2];
    }
}

/* Lane l gets, of each matrix, values 2 (l % 4) and the next of row l / 4; transposed, of column l / 4. */
QUIET static void do_matrix(struct emu_op *const *ops, bool trans)
{
    for (int l = 0; l < WARP_LANES; l++) {
        uint32_t *out = (uint32_t *)ops[l]->out;
        for (int m = 0; m < 4; m++) {
            uint32_t value = 0;
            for (int h = 0; h < 2; h++) {
                int row = l / 4, column = l % 4 * 2 + h;
                const struct emu_op *from = ops[m * 8 + (trans ? column : row)];
                uint32_t pair = ((const uint32_t *)from->in)[(trans ? row : column) / 2];
                value |= (pair >> ((trans ? row : column) % 2 * 16) & 0xffffu) << (16 * h);
            }
            out[m] = value;
        }
    }
}

QUIET void emu_together(struct emu_op *const *ops, const struct emu_op *op)
{
    switch (op->kind) {
    case EMU_BALLOT: do_ballot(ops, op->mask); break;
    case EMU_MMA: do_mma(ops); break;
    case EMU_MATRIX: do_matrix(ops, false); break;
    case EMU_MATRIX_TRANS: do_matrix(ops, true); break;
    case EMU_SYNCWARP:
    case EMU_SYNCTHREADS: break;
    default: do_shuffle(ops, op->mask); break;
    }
}
