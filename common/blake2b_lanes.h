/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blake2b_lanes: BLAKE2b (RFC 7693, 32 bytes, no key) of several messages of one length at once, each in one lane of
 * the processor's vectors: for the leaves of digest trees (common/digest.h), which are many and alike.
 *
 * One table for each instruction set that the Makefile compiles blake2b_lanes.c for; digest.c chooses. Where there is
 * none, a message is hashed after the other by libsodium. Pure; any thread; no allocation.
 */
#ifndef COMMON_BLAKE2B_LANES_H
#define COMMON_BLAKE2B_LANES_H

#include <stddef.h>
#include <stdint.h>

enum { BLAKE2B_LANES_MAX = 8, BLAKE2B_HEAD_BYTES = 16 };

struct blake2b_lanes {
    const char *name;
    size_t lanes;
    /* digests[i] = the 32 bytes of BLAKE2b over `head` and the `bytes` bytes at messages[i], for each of `lanes`
     * messages; two may be the same. `bytes` is a multiple of 128 and not 0. */
    void (*hash)(const uint8_t head[BLAKE2B_HEAD_BYTES], const uint8_t *const *messages, size_t bytes,
                 uint8_t *const *digests);
};

extern const struct blake2b_lanes blake2b_lanes_avx2, blake2b_lanes_avx512;

#endif
