/* SPDX-License-Identifier: Apache-2.0 */
/*
 * digest: BLAKE2b (RFC 7693) over bytes, by libsodium; sizes and text forms used across the project.
 *
 * A digest over many bytes is a tree: leaves over DIGEST_LEAF_BYTES each, the last one shorter, and a root over all of
 * them, so that threads can share the work, and one thread several leaves at once in the lanes of its vectors: four
 * times as fast as one after the other. Leaves and roots begin with a word of their own: neither is ever the other, nor
 * a plain digest of the same bytes (docs/FORMATS.md, 1).
 * Call digest_init() once before the first thread starts. After that any thread may call; no allocation.
 */
#ifndef COMMON_DIGEST_H
#define COMMON_DIGEST_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

enum { DIGEST_BYTES = 32, DIGEST_HEX_BYTES = 2 * DIGEST_BYTES + 1 };

struct digest {
    uint8_t byte[DIGEST_BYTES];
};

/* Initialises libsodium; ERR_STATE if it refuses (no randomness). */
ERR_MUST_CHECK enum err digest_init(void);

struct digest digest_of(const void *data, size_t bytes);

/* Incremental form: begin, add any number of times, end. */
struct digest_state {
    _Alignas(64) uint8_t opaque[384];
};
void digest_begin(struct digest_state *state);
void digest_add(struct digest_state *state, const void *data, size_t bytes);
struct digest digest_end(struct digest_state *state);

/* ---- trees ---- */

enum { DIGEST_LEAF_BYTES = 64 << 10 };

struct digest digest_tree(const void *data, size_t bytes);

/* The same in parts: leaf by leaf, in any order and by any thread; `leaves` are all of them, in order. */
size_t digest_tree_leaves(uint64_t bytes);
struct digest digest_tree_leaf(const void *data, size_t bytes, size_t index);
/* The digests of the `leaves` whole leaves that `data` begins with. */
void digest_tree_whole(const void *data, size_t leaves, struct digest *out);
struct digest digest_tree_root(const struct digest *leaves, size_t count, uint64_t total_bytes);

/* The same of several arrays, one behind the other: the digests of `count` leaves from `first` on. */
struct digest_span {
    const void *data;
    size_t bytes;
};
void digest_tree_spans(const struct digest_span *spans, size_t spans_count, size_t first, size_t count,
                       struct digest *out);

/* The same over bytes that come one after another. */
struct digest_tree_state {
    struct digest_state leaf, root;
    uint64_t bytes;
};
void digest_tree_begin(struct digest_tree_state *state);
void digest_tree_add(struct digest_tree_state *state, const void *data, size_t bytes);
struct digest digest_tree_end(struct digest_tree_state *state);

/* ---- what digests are good for ---- */

/* Non-zero if equal. */
int digest_equal(const struct digest *left, const struct digest *right);

/* Lower-case hexadecimal, NUL-terminated, into `hex`, which holds DIGEST_HEX_BYTES; returned for convenience. */
char *digest_hex(const struct digest *digest, char *hex);

/* The first eight bytes as a little-endian number: a tag for headers, not a proof. */
uint64_t digest_tag(const struct digest *digest);

#endif
