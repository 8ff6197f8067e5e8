/* SPDX-License-Identifier: Apache-2.0 */
/* Levels of the uniform codec, in every instruction set: against loops that take one value at a time, at the edges of
 * blocks and of memory, and with bytes that no encoder makes. */
#include "tests/lib/testlib.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/env.h"
#include "outer_opt/vec.h"
#include "outer_opt/vec_ops.h"

enum { BLOCKS = 21, COUNT = BLOCKS * VEC_BLOCK, GUARD = 64, GUARD_BYTE = 0x5a };

static const struct vec_ops *tables[3];
static size_t tables_count;
static const struct vec_alphabet alphabets[VEC_ALPHABETS] = VEC_ALPHABET_TABLE;

/* ---- one value at a time ---- */

/* As vec_ops.h has it. */
static size_t unpack_slowly(const struct vec_alphabet *a, const uint8_t *packed, size_t blocks, const uint8_t *far,
                            size_t far_count, int8_t *levels)
{
    size_t used = 0;
    for (size_t at = 0; at < blocks * VEC_BLOCK; at++) {
        size_t block = at / VEC_BLOCK, place = at % VEC_BLOCK;
        unsigned rest = packed[block * a->group + place % a->group];
        for (size_t k = 0; k < place / a->group; k++)
            rest /= a->radix;
        unsigned symbol = rest % a->radix;
        if (symbol < a->radix - 1) {
            levels[at] = (int8_t)((int)symbol - a->largest);
        } else {
            if (used == far_count)
                return SIZE_MAX;
            levels[at] = (int8_t)far[used++];
        }
    }
    return used;
}

/* Memory that ends where its bytes end, as far as a sanitizer can see, and with a guard that anybody can. */
static void *guarded(size_t bytes)
{
    uint8_t *memory = malloc(bytes + GUARD);
    assert_non_null(memory);
    memset(memory, GUARD_BYTE, bytes + GUARD);
    return memory;
}

static void assert_guard(const void *memory, size_t bytes)
{
    for (size_t i = 0; i < GUARD; i++)
        assert_int_equal(((const uint8_t *)memory)[bytes + i], GUARD_BYTE);
}

static void any_bytes_unpack_as_they_should(void **state)
{
    (void)state;
    struct env_rng rng = env_rng_init(5, 0);
    static int8_t want[COUNT];
    static uint8_t far[COUNT];
    for (size_t i = 0; i < COUNT; i++)
        far[i] = (uint8_t)(127 * env_rng_uniform(&rng));
    for (int trial = 0; trial < 200; trial++) {
        for (int id = 0; id < VEC_ALPHABETS; id++) {
            const struct vec_alphabet *a = &alphabets[id];
            size_t blocks = 1 + (size_t)(trial % BLOCKS), packed_bytes = blocks * a->group;
            uint8_t *packed = malloc(packed_bytes); /* exactly as large */
            assert_non_null(packed);
            /* Few of the largest symbols, many, and whatever comes. */
            double most = trial % 3 == 0 ? 256 : trial % 3 == 1 ? 3 : 220;
            for (size_t i = 0; i < packed_bytes; i++)
                packed[i] = (uint8_t)(most * env_rng_uniform(&rng));
            size_t used = unpack_slowly(a, packed, blocks, far, COUNT, want);
            for (size_t t = 0; t < tables_count; t++) {
                int8_t *levels = guarded(blocks * VEC_BLOCK);
                assert_int_equal(tables[t]->levels_unpack[id](packed, blocks, far, used, levels), used);
                assert_memory_equal(levels, want, blocks * VEC_BLOCK);
                assert_guard(levels, blocks * VEC_BLOCK);
                if (used > 0)
                    assert_true(tables[t]->levels_unpack[id](packed, blocks, far, used - 1, levels) == SIZE_MAX);
                free(levels);
            }
            free(packed);
        }
    }
}

static void what_is_packed_comes_out_again(void **state)
{
    (void)state;
    struct env_rng rng = env_rng_init(6, 0);
    static int8_t levels[COUNT], out[COUNT];
    for (int trial = 0; trial < 100; trial++) {
        size_t blocks = 1 + (size_t)(trial % BLOCKS), count = blocks * VEC_BLOCK;
        double wide = trial % 4 == 0 ? 60 : 1.3;
        for (size_t i = 0; i < count; i++)
            levels[i] = (int8_t)fmax(-127, fmin(127, wide * env_rng_normal(&rng)));
        for (int id = 0; id < VEC_ALPHABETS; id++) {
            for (size_t t = 0; t < tables_count; t++) {
                uint8_t *packed = guarded(blocks * alphabets[id].group), *far = guarded(count);
                size_t far_count = tables[t]->levels_pack[id](levels, blocks, packed, far);
                assert_guard(packed, blocks * alphabets[id].group);
                assert_int_equal(unpack_slowly(&alphabets[id], packed, blocks, far, far_count, out), far_count);
                assert_memory_equal(out, levels, count);
                free(packed);
                free(far);
            }
        }
    }
}

/* ---- choosing them ---- */

/* The finest step, and one value that is all of its block: sqrt(VEC_BLOCK) / VEC_RATIO_MIN steps. */
static void the_largest_level_fits_into_a_byte(void **state)
{
    (void)state;
    static float x[COUNT], out[COUNT];
    static int8_t levels[COUNT];
    static uint8_t steps[2 * BLOCKS];
    for (int sign = -1; sign <= 1; sign += 2) {
        for (double scale = 1e-30; scale < 1e36; scale *= 1e6) {
            for (size_t i = 0; i < COUNT; i++)
                x[i] = i % VEC_BLOCK == i / VEC_BLOCK ? (float)(sign * scale) : 0;
            for (size_t t = 0; t < tables_count; t++) {
                const struct vec_source source = {.minuend = x};
                assert_int_equal(tables[t]->levels_encode(&source, BLOCKS, VEC_RATIO_MIN, steps, levels, NULL), BLOCKS);
                tables[t]->levels_decode(steps, levels, BLOCKS, out);
                for (size_t i = 0; i < COUNT; i++) {
                    assert_in_range(abs(levels[i]), x[i] != 0 ? 120 : 0, x[i] != 0 ? 127 : 0);
                    assert_true(fabsf(out[i] - x[i]) <= 0.02f * fabsf(x[i]));
                }
            }
        }
    }
}

/* Where several blocks are at fault, in whatever way, the first is told. */
static void the_first_fault_is_told(void **state)
{
    (void)state;
    static float x[COUNT];
    static int8_t levels[COUNT];
    static uint8_t steps[2 * BLOCKS];
    const struct vec_source source = {.minuend = x};
    struct env_rng rng = env_rng_init(7, 0);
    for (size_t first = 0; first < BLOCKS; first++) {
        for (size_t second = first; second < BLOCKS; second += 3) {
            for (int edge = 0; edge < 2; edge++) {
                testlib_fill_normal(&rng, x, COUNT, 1);
                x[second * VEC_BLOCK + 9] = NAN;
                x[first * VEC_BLOCK + 200] = edge ? 3.39e38f : -INFINITY; /* a number, and all there is of its block */
                for (size_t i = 0; edge && i < VEC_BLOCK; i++)
                    x[first * VEC_BLOCK + i] = first == second && i == 9 ? NAN : 3.39e38f;
                for (size_t t = 0; t < tables_count; t++)
                    assert_int_equal(tables[t]->levels_encode(&source, BLOCKS, 1.9f, steps, levels, NULL), first);
            }
        }
    }
}

int main(void)
{
    tables_count = vec_all(tables, 3);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_bytes_unpack_as_they_should),
        cmocka_unit_test(what_is_packed_comes_out_again),
        cmocka_unit_test(the_largest_level_fits_into_a_byte),
        cmocka_unit_test(the_first_fault_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
