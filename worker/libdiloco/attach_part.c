/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/libdiloco/attach_part.h"

#include <string.h>

uint64_t attach_part_before(const struct tensor *t, uint64_t at)
{
    uint64_t column = at % t->width;
    uint64_t in_row = column <= t->column0 ? 0 : column - t->column0 < t->columns ? column - t->column0 : t->columns;
    uint64_t before = at / t->width * t->columns + in_row;
    return before <= t->first ? 0 : before - t->first < t->count ? before - t->first : t->count;
}

uint64_t attach_part_block(const struct tensor *t, uint64_t own, uint64_t end, uint64_t *at, struct diloco_move *move)
{
    uint64_t of_all = t->first + own, column = of_all % t->columns, left = end - own;
    *at = of_all / t->columns * t->width + t->column0 + column;
    move->rows = 1;
    move->stride = t->width;
    if (t->columns == t->width) { /* rows follow each other closely */
        move->columns = left;
    } else if (column != 0 || left < t->columns) {
        move->columns = left < t->columns - column ? left : t->columns - column;
    } else {
        move->rows = left / t->columns;
        move->columns = t->columns;
    }
    return move->rows * move->columns;
}

void attach_part_pack(const struct tensor *t, float *area, float *values, bool back)
{
    for (uint64_t own = 0, at; own < t->count;) {
        struct diloco_move block;
        uint64_t of_block = attach_part_block(t, own, t->count, &at, &block);
        for (size_t row = 0; row < block.rows; row++) {
            float *packed = values + own + row * block.columns;
            float *there = area + t->place.offset + at + row * block.stride;
            memcpy(back ? there : packed, back ? packed : there, block.columns * sizeof *values);
        }
        own += of_block;
    }
}
