/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiled once per instruction set, with ISA naming the table. A vector holds the same word of as many messages as it
 * has lanes, so that a round is the scalar one, word for word.
 */
#include "common/blake2b_lanes.h"

#include <string.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif
enum { ROUNDS = 12, WORDS = 16, BLOCK = 128, CHAIN = 8, DIGEST_WORDS = 4 };

typedef uint64_t word __attribute__((vector_size(LANES * sizeof(uint64_t))));

static const uint64_t start[CHAIN] = {0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
                                      0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179};
/* 32 bytes of digest, no key, sequential. */
static const uint64_t parameters = 0x01010020;

/* To the right. What the instruction set can do at once is not found by compilers in the general form. */
#if defined(__AVX512F__)
#define TURN(x, bits) ((word)_mm512_ror_epi64((__m512i)(x), bits))
#define TURN32(x) TURN(x, 32)
#define TURN24(x) TURN(x, 24)
#define TURN16(x) TURN(x, 16)
#else
#define SHUFFLED(x, control) ((word)_mm256_shuffle_epi8((__m256i)(x), control))
#define TURN32(x) ((word)_mm256_shuffle_epi32((__m256i)(x), 0xb1))
#define TURN24(x)                                                                                                      \
    SHUFFLED(x, _mm256_setr_epi8(3, 4, 5, 6, 7, 0, 1, 2, 11, 12, 13, 14, 15, 8, 9, 10, 3, 4, 5, 6, 7, 0, 1, 2, 11, 12, \
                                 13, 14, 15, 8, 9, 10))
#define TURN16(x)                                                                                                      \
    SHUFFLED(x, _mm256_setr_epi8(2, 3, 4, 5, 6, 7, 0, 1, 10, 11, 12, 13, 14, 15, 8, 9, 2, 3, 4, 5, 6, 7, 0, 1, 10, 11, \
                                 12, 13, 14, 15, 8, 9))
#endif

static inline word turn63(word x)
{
#if defined(__AVX512F__)
    return TURN(x, 63);
#else
    return x >> 63 | (x + x);
#endif
}

/* Of each lane's row the same word into one vector: LANES words of LANES rows. In registers: vectors that are read
 * where single words have just been stored would wait for all of them. */
static inline void transpose(const uint8_t *const *rows, size_t at, word out[LANES])
{
#if defined(__AVX512F__)
    __m512i r[LANES], pair[LANES], four[LANES];
    for (size_t i = 0; i < LANES; i++)
        r[i] = _mm512_loadu_si512(rows[i] + at);
    for (size_t i = 0; i < LANES; i += 2) {
        pair[i] = _mm512_unpacklo_epi64(r[i], r[i + 1]); /* words 0 2 4 6 of two rows */
        pair[i + 1] = _mm512_unpackhi_epi64(r[i], r[i + 1]);
    }
    for (size_t i = 0; i < LANES; i += 4)
        for (size_t odd = 0; odd < 2; odd++) {
            four[i + odd] = _mm512_shuffle_i64x2(pair[i + odd], pair[i + 2 + odd], 0x88); /* words 0 4 of four rows */
            four[i + 2 + odd] = _mm512_shuffle_i64x2(pair[i + odd], pair[i + 2 + odd], 0xdd); /* words 2 6 */
        }
    for (size_t i = 0; i < 4; i++) {
        out[i] = (word)_mm512_shuffle_i64x2(four[i], four[i + 4], 0x88);
        out[i + 4] = (word)_mm512_shuffle_i64x2(four[i], four[i + 4], 0xdd);
    }
#else
    __m256i r[LANES], pair[LANES];
    for (size_t i = 0; i < LANES; i++)
        r[i] = _mm256_loadu_si256((const __m256i *)(const void *)(rows[i] + at));
    for (size_t i = 0; i < LANES; i += 2) {
        pair[i] = _mm256_unpacklo_epi64(r[i], r[i + 1]); /* words 0 2 of two rows */
        pair[i + 1] = _mm256_unpackhi_epi64(r[i], r[i + 1]);
    }
    for (size_t odd = 0; odd < 2; odd++) {
        out[odd] = (word)_mm256_permute2x128_si256(pair[odd], pair[2 + odd], 0x20);
        out[odd + 2] = (word)_mm256_permute2x128_si256(pair[odd], pair[2 + odd], 0x31);
    }
#endif
}

/* The G of RFC 7693, 3.1. */
#define MIX(a, b, c, d, x, y)       \
    do {                            \
        v[a] = v[a] + m[x] + v[b];  \
        v[d] = TURN32(v[d] ^ v[a]); \
        v[c] += v[d];               \
        v[b] = TURN24(v[b] ^ v[c]); \
        v[a] = v[a] + m[y] + v[b];  \
        v[d] = TURN16(v[d] ^ v[a]); \
        v[c] += v[d];               \
        v[b] = turn63(v[b] ^ v[c]); \
    } while (0)

/* One round, with the order in which it takes the words of the block. */
#define ROUND(s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, s13, s14, s15) \
    do {                                                                            \
        MIX(0, 4, 8, 12, s0, s1);                                                   \
        MIX(1, 5, 9, 13, s2, s3);                                                   \
        MIX(2, 6, 10, 14, s4, s5);                                                  \
        MIX(3, 7, 11, 15, s6, s7);                                                  \
        MIX(0, 5, 10, 15, s8, s9);                                                  \
        MIX(1, 6, 11, 12, s10, s11);                                                \
        MIX(2, 7, 8, 13, s12, s13);                                                 \
        MIX(3, 4, 9, 14, s14, s15);                                                 \
    } while (0)

/* One block of every message, `at` bytes into it; `count`: the bytes of each that count so far, these included. */
static inline void compress(word chain[CHAIN], const uint8_t *const *messages, size_t at, uint64_t count, uint64_t last)
{
    word v[WORDS], m[WORDS];
    for (size_t i = 0; i < WORDS; i += LANES)
        transpose(messages, at + i * sizeof(uint64_t), m + i);
    for (int i = 0; i < CHAIN; i++) {
        v[i] = chain[i];
        v[i + CHAIN] = (word){0} + start[i];
    }
    v[12] ^= count;
    v[14] ^= last;
    ROUND(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    ROUND(14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3);
    ROUND(11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4);
    ROUND(7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8);
    ROUND(9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13);
    ROUND(2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9);
    ROUND(12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11);
    ROUND(13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10);
    ROUND(6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5);
    ROUND(10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0);
    ROUND(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    ROUND(14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3);
    for (int i = 0; i < CHAIN; i++)
        chain[i] ^= v[i] ^ v[i + CHAIN];
}

static void hash(const uint8_t head[BLAKE2B_HEAD_BYTES], const uint8_t *const *messages, size_t bytes,
                 uint8_t *const *digests)
{
    word chain[CHAIN];
    uint8_t edge[LANES][BLOCK];
    const uint8_t *edges[LANES];
    size_t at = BLOCK - BLAKE2B_HEAD_BYTES;
    for (int i = 0; i < CHAIN; i++)
        chain[i] = (word){0} + start[i];
    chain[0] ^= parameters;
    for (size_t lane = 0; lane < LANES; lane++) {
        edges[lane] = edge[lane];
        memcpy(edge[lane], head, BLAKE2B_HEAD_BYTES);
        memcpy(edge[lane] + BLAKE2B_HEAD_BYTES, messages[lane], at);
    }
    compress(chain, edges, 0, BLOCK, 0);
    for (; bytes - at >= BLOCK; at += BLOCK)
        compress(chain, messages, at, at + BLAKE2B_HEAD_BYTES + BLOCK, 0);
    memset(edge, 0, sizeof edge);
    for (size_t lane = 0; lane < LANES; lane++)
        memcpy(edge[lane], messages[lane] + at, bytes - at);
    compress(chain, edges, 0, bytes + BLAKE2B_HEAD_BYTES, UINT64_MAX);
    for (size_t lane = 0; lane < LANES; lane++)
        for (size_t i = 0; i < DIGEST_WORDS; i++) {
            uint64_t out = chain[i][lane];
            memcpy(digests[lane] + i * sizeof out, &out, sizeof out);
        }
}

#define NAME_JOIN(a, b) a##b
#define NAME(stem, name) NAME_JOIN(stem, name)
#define TEXT_OF(name) #name
#define TEXT(name) TEXT_OF(name)

const struct blake2b_lanes NAME(blake2b_lanes_, ISA) = {TEXT(ISA), LANES, hash};
