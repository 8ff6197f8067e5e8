/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blake2b: BLAKE2b (RFC 7693) without a key, in plain C, for what links no libsodium: libdiloco, which is loaded into
 * other people's programs. The daemon's digests are common/digest's, which are faster; both give the same bytes.
 *
 * Any thread may call; no allocation, no failure.
 */
#ifndef COMMON_BLAKE2B_H
#define COMMON_BLAKE2B_H

#include <stddef.h>
#include <stdint.h>

enum { BLAKE2B_BYTES = 32, BLAKE2B_BLOCK_BYTES = 128 };

struct blake2b {
    uint64_t chain[8];
    uint64_t bytes; /* in blocks that are mixed in; more than 2^64 nobody has */
    uint8_t block[BLAKE2B_BLOCK_BYTES];
    size_t filled;
};

void blake2b_begin(struct blake2b *state);
void blake2b_add(struct blake2b *state, const void *data, size_t bytes);
void blake2b_end(struct blake2b *state, uint8_t digest[BLAKE2B_BYTES]);

#endif
