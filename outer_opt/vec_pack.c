/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops that put levels several to a byte and take them out again, compiled once per instruction set like
 * vec_impl.c. Whole numbers alone. Each alphabet has functions of its own in which radix and shape are constants, so
 * that compilers widen them to as many bytes as a vector holds.
 */
#include "outer_opt/vec_parts.h"

static const struct vec_alphabet alphabets[VEC_ALPHABETS] = VEC_ALPHABET_TABLE;
enum { SLOTS = VEC_BLOCK + 2, WIDE_SLOTS = VEC_BLOCK + 32, WORD = 8 };

/* Symbol by symbol, over a block that is padded to whole bytes. `id` is a constant wherever this is inlined. */
static inline __attribute__((always_inline)) void pack_block(enum vec_alphabet_id id, const uint8_t *restrict symbols,
                                                             uint8_t *restrict out)
{
    const struct vec_alphabet a = alphabets[id];
    for (unsigned i = 0; i < a.group; i++) {
        unsigned sum = 0;
        for (unsigned k = a.per_byte; k-- > 0;)
            sum = sum * a.radix + symbols[k * a.group + i];
        out[i] = (uint8_t)sum;
    }
}

/* A quotient by 4, 6 or 16, exact below 256, as a product that fits into 16 bits. */
static inline uint8_t quotient(uint8_t value, unsigned radix)
{
    uint16_t product = (uint16_t)(value * 171u);
    return radix == 6 ? (uint8_t)(product >> 10) : (uint8_t)(value / radix);
}

/* A group in whole vectors of 32 bytes. */
static inline unsigned wide_group(enum vec_alphabet_id id)
{
    return (alphabets[id].group + 31) / 32 * 32;
}

/* The levels of one block; true if one of them stands elsewhere. Whole vectors of bytes are taken and written, so that
 * no loop ends inside one: `in` has bytes of the next block behind it, what is written too far is written again by the
 * next, and `levels` has room for WIDE_SLOTS.
 */
static inline __attribute__((always_inline)) bool unpack_block(enum vec_alphabet_id id, const uint8_t *restrict in,
                                                               int8_t *restrict levels)
{
    const struct vec_alphabet a = alphabets[id];
    const unsigned wide = wide_group(id);
    uint8_t rest[VEC_BLOCK], far = 0;
    memcpy(rest, in, wide);
    for (unsigned k = 0; k < a.per_byte; k++)
        for (unsigned i = 0; i < wide; i++) {
            uint8_t above = quotient(rest[i], a.radix);
            uint8_t symbol = (uint8_t)(rest[i] - a.radix * above);
            levels[k * a.group + i] = (int8_t)(symbol - a.largest);
            far |= symbol == a.radix - 1;
            rest[i] = above;
        }
    return far != 0;
}

/* Whether one of these eight symbols is the last of the alphabet; a symbol is below 128. */
static inline bool some_far(const uint8_t *symbols, unsigned radix)
{
    const uint64_t each = 0x0101010101010101;
    uint64_t word;
    memcpy(&word, symbols, sizeof word);
    /* What is added carries into the top bit exactly where a symbol is radix - 1 or more. */
    return ((word + (0x81 - radix) * each) & 0x80 * each) != 0;
}

static inline __attribute__((always_inline)) size_t pack(enum vec_alphabet_id id, const int8_t *levels, size_t blocks,
                                                         uint8_t *packed, uint8_t *far)
{
    const struct vec_alphabet a = alphabets[id];
    size_t written = 0;
    uint8_t symbols[SLOTS];
    memset(symbols + B, a.largest, SLOTS - B);
    for (size_t block = 0; block < blocks; block++, levels += B) {
        for (int i = 0; i < B; i++) {
            uint8_t symbol = (uint8_t)(levels[i] + a.largest); /* below 0: above all symbols */
            symbols[i] = symbol < a.radix - 1 ? symbol : (uint8_t)(a.radix - 1);
        }
        pack_block(id, symbols, packed + block * a.group);
        for (int word = 0; word < B; word += WORD) {
            if (!some_far(symbols + word, a.radix))
                continue;
            for (int i = word; i < word + WORD; i++)
                if (symbols[i] == a.radix - 1)
                    far[written++] = (uint8_t)levels[i];
        }
    }
    return written;
}

/* Takes the levels of a block that stand elsewhere from there, and counts them; false: there are not so many. */
static inline bool take_far(int8_t mark, int8_t *levels, const uint8_t *far, size_t far_count, size_t *used)
{
    const uint64_t each = 0x0101010101010101;
    for (int word = 0; word < B; word += WORD) {
        uint64_t differs;
        memcpy(&differs, levels + word, sizeof differs);
        differs ^= (uint64_t)mark * each;
        if (((differs - each) & ~differs & 0x80 * each) == 0) /* no byte of it is 0 */
            continue;
        for (int i = word; i < word + WORD; i++) {
            if (levels[i] != mark)
                continue;
            if (*used == far_count)
                return false;
            levels[i] = (int8_t)far[(*used)++];
        }
    }
    return true;
}

static inline __attribute__((always_inline)) size_t unpack(enum vec_alphabet_id id, const uint8_t *packed,
                                                           size_t blocks, const uint8_t *far, size_t far_count,
                                                           int8_t *levels)
{
    const struct vec_alphabet a = alphabets[id];
    const int8_t mark = (int8_t)((int)a.radix - 1 - a.largest);
    size_t used = 0;
    for (size_t block = 0; block < blocks; block++, levels += B) {
        const uint8_t *in = packed + block * a.group;
        bool some;
        if (block + 1 < blocks) {
            some = unpack_block(id, in, levels);
        } else {
            uint8_t last_in[VEC_BLOCK] = {0};
            int8_t last[WIDE_SLOTS];
            memcpy(last_in, in, a.group);
            some = unpack_block(id, last_in, last);
            memcpy(levels, last, B);
        }
        if (some && !take_far(mark, levels, far, far_count, &used))
            return SIZE_MAX;
    }
    return used;
}

#define DEFINE_ALPHABET(radix)                                                                                      \
    size_t TABLE_NAME(vec_pack_##radix##_, ISA)(const int8_t *levels, size_t blocks, uint8_t *packed, uint8_t *far) \
    {                                                                                                               \
        return pack(VEC_RADIX_##radix, levels, blocks, packed, far);                                                \
    }                                                                                                               \
    size_t TABLE_NAME(vec_unpack_##radix##_, ISA)(const uint8_t *packed, size_t blocks, const uint8_t *far,         \
                                                  size_t far_count, int8_t *levels)                                 \
    {                                                                                                               \
        return unpack(VEC_RADIX_##radix, packed, blocks, far, far_count, levels);                                   \
    }
DEFINE_ALPHABET(4)
DEFINE_ALPHABET(6)
DEFINE_ALPHABET(16)
