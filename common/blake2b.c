/* SPDX-License-Identifier: Apache-2.0 */
#include "common/blake2b.h"

#include <string.h>

enum { ROUNDS = 12, WORDS = 16, WORD_BYTES = 8 };

static const uint64_t start[8] = {0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
                                  0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179};

/* Which word of the block each mixing takes; the last two rounds are the first two again. */
static const uint8_t order[10][WORDS] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}};

static uint64_t turn(uint64_t word, int bits)
{
    return word >> bits | word << (64 - bits);
}

static inline void mix(uint64_t *v, int a, int b, int c, int d, uint64_t x, uint64_t y)
{
    v[a] += v[b] + x;
    v[d] = turn(v[d] ^ v[a], 32);
    v[c] += v[d];
    v[b] = turn(v[b] ^ v[c], 24);
    v[a] += v[b] + y;
    v[d] = turn(v[d] ^ v[a], 16);
    v[c] += v[d];
    v[b] = turn(v[b] ^ v[c], 63);
}

static uint64_t word_of(const uint8_t *bytes)
{
    uint64_t word = 0;
    for (int i = 0; i < WORD_BYTES; i++)
        word |= (uint64_t)bytes[i] << (8 * i);
    return word;
}

/* One block of 128 bytes, of which `bytes` count. */
static void compress(struct blake2b *state, const uint8_t *block, size_t bytes, uint64_t last)
{
    uint64_t v[WORDS], m[WORDS];
    state->bytes += bytes;
    for (int i = 0; i < WORDS; i++)
        m[i] = word_of(block + (size_t)i * WORD_BYTES);
    memcpy(v, state->chain, sizeof state->chain);
    memcpy(v + 8, start, sizeof start);
    v[12] ^= state->bytes;
    v[14] ^= last;
    for (int round = 0; round < ROUNDS; round++) {
        const uint8_t *s = order[round % 10];
        mix(v, 0, 4, 8, 12, m[s[0]], m[s[1]]);
        mix(v, 1, 5, 9, 13, m[s[2]], m[s[3]]);
        mix(v, 2, 6, 10, 14, m[s[4]], m[s[5]]);
        mix(v, 3, 7, 11, 15, m[s[6]], m[s[7]]);
        mix(v, 0, 5, 10, 15, m[s[8]], m[s[9]]);
        mix(v, 1, 6, 11, 12, m[s[10]], m[s[11]]);
        mix(v, 2, 7, 8, 13, m[s[12]], m[s[13]]);
        mix(v, 3, 4, 9, 14, m[s[14]], m[s[15]]);
    }
    for (int i = 0; i < 8; i++)
        state->chain[i] ^= v[i] ^ v[i + 8];
}

void blake2b_begin(struct blake2b *state)
{
    memset(state, 0, sizeof *state);
    memcpy(state->chain, start, sizeof start);
    state->chain[0] ^= 0x01010000 ^ BLAKE2B_BYTES; /* no key, one lane */
}

/* The last block is told that it is the last: a full one is kept back until more is there. */
void blake2b_add(struct blake2b *state, const void *data, size_t bytes)
{
    const uint8_t *at = data;
    while (bytes > 0) {
        if (state->filled == BLAKE2B_BLOCK_BYTES) {
            compress(state, state->block, BLAKE2B_BLOCK_BYTES, 0);
            state->filled = 0;
        }
        for (; state->filled == 0 && bytes > BLAKE2B_BLOCK_BYTES; bytes -= BLAKE2B_BLOCK_BYTES) {
            compress(state, at, BLAKE2B_BLOCK_BYTES, 0);
            at += BLAKE2B_BLOCK_BYTES;
        }
        size_t room = BLAKE2B_BLOCK_BYTES - state->filled, piece = bytes < room ? bytes : room;
        memcpy(state->block + state->filled, at, piece);
        state->filled += piece;
        at += piece;
        bytes -= piece;
    }
}

void blake2b_end(struct blake2b *state, uint8_t digest[BLAKE2B_BYTES])
{
    memset(state->block + state->filled, 0, BLAKE2B_BLOCK_BYTES - state->filled);
    compress(state, state->block, state->filled, UINT64_MAX);
    for (size_t i = 0; i < BLAKE2B_BYTES; i++)
        digest[i] = (uint8_t)(state->chain[i / WORD_BYTES] >> (8 * (i % WORD_BYTES)));
}
