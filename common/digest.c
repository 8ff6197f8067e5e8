/* SPDX-License-Identifier: Apache-2.0 */
#include "common/digest.h"

#include <sodium.h>
#include <stdbool.h>
#include <string.h>

#include "common/blake2b_lanes.h"
#include "common/bytes.h"
#include "common/isa.h"

_Static_assert(sizeof(struct digest_state) >= sizeof(crypto_generichash_state), "digest_state holds BLAKE2b's state");

enum err digest_init(void)
{
    if (sodium_init() < 0)
        return err_set(ERR_STATE, "libsodium cannot start: this machine gives it no randomness");
    return ERR_OK;
}

struct digest digest_of(const void *data, size_t bytes)
{
    struct digest out;
    crypto_generichash(out.byte, DIGEST_BYTES, data, bytes, NULL, 0);
    return out;
}

void digest_begin(struct digest_state *state)
{
    crypto_generichash_init((crypto_generichash_state *)(void *)state->opaque, NULL, 0, DIGEST_BYTES);
}

void digest_add(struct digest_state *state, const void *data, size_t bytes)
{
    crypto_generichash_update((crypto_generichash_state *)(void *)state->opaque, data, bytes);
}

struct digest digest_end(struct digest_state *state)
{
    struct digest out;
    crypto_generichash_final((crypto_generichash_state *)(void *)state->opaque, out.byte, DIGEST_BYTES);
    return out;
}

/* ---- trees ---- */

enum { DOMAIN_BYTES = 16 };
static const char leaf_domain[DOMAIN_BYTES] = "diloco leaf 1", root_domain[DOMAIN_BYTES] = "diloco tree 1";

static void leaf_begin(struct digest_state *state)
{
    digest_begin(state);
    digest_add(state, leaf_domain, sizeof leaf_domain);
}

static void root_begin(struct digest_state *state)
{
    digest_begin(state);
    digest_add(state, root_domain, sizeof root_domain);
}

/* The length comes last, so that it need not be known before. */
static struct digest root_end(struct digest_state *state, uint64_t total_bytes)
{
    uint8_t length[sizeof total_bytes];
    struct bytes_writer writer = bytes_writer_init(length, sizeof length);
    bytes_put_u64(&writer, total_bytes);
    digest_add(state, length, sizeof length);
    return digest_end(state);
}

/* What this processor hashes several leaves at once with; NULL: nothing. */
static const struct blake2b_lanes *lanes_best(void)
{
#if defined(__x86_64__)
    static const struct blake2b_lanes *const compiled[ISA_LEVELS_MAX] = {NULL, &blake2b_lanes_avx2,
                                                                         &blake2b_lanes_avx512};
    return compiled[isa_levels() - 1];
#else
    return NULL;
#endif
}

size_t digest_tree_leaves(uint64_t bytes)
{
    return (size_t)(bytes / DIGEST_LEAF_BYTES + (bytes % DIGEST_LEAF_BYTES != 0));
}

struct digest digest_tree_leaf(const void *data, size_t bytes, size_t index)
{
    size_t begin = index * DIGEST_LEAF_BYTES;
    size_t left = bytes - begin;
    struct digest_state state;
    leaf_begin(&state);
    digest_add(&state, (const uint8_t *)data + begin, left < DIGEST_LEAF_BYTES ? left : DIGEST_LEAF_BYTES);
    return digest_end(&state);
}

/* Up to as many leaves as there are lanes; what is left over of them hashes the last leaf again. */
static void hash_lanes(const struct blake2b_lanes *best, const uint8_t *from, size_t leaves, struct digest *out)
{
    const uint8_t *messages[BLAKE2B_LANES_MAX];
    uint8_t *digests[BLAKE2B_LANES_MAX];
    for (size_t i = 0; i < best->lanes; i++) {
        size_t leaf = i < leaves ? i : leaves - 1;
        messages[i] = from + leaf * DIGEST_LEAF_BYTES;
        digests[i] = out[leaf].byte;
    }
    best->hash((const uint8_t *)leaf_domain, messages, DIGEST_LEAF_BYTES, digests);
}

void digest_tree_whole(const void *data, size_t leaves, struct digest *out)
{
    enum { WORTH = 3 }; /* so many leaves one after the other take as long as all lanes */
    const struct blake2b_lanes *best = lanes_best();
    const uint8_t *from = data;
    size_t done = 0, next;
    for (; best != NULL && leaves - done >= WORTH; done += next) {
        next = leaves - done < best->lanes ? leaves - done : best->lanes;
        hash_lanes(best, from + done * DIGEST_LEAF_BYTES, next, out + done);
    }
    for (; done < leaves; done++)
        out[done] = digest_tree_leaf(data, leaves * DIGEST_LEAF_BYTES, done);
}

struct digest digest_tree_root(const struct digest *leaves, size_t count, uint64_t total_bytes)
{
    struct digest_state state;
    root_begin(&state);
    digest_add(&state, leaves, count * sizeof *leaves);
    return root_end(&state, total_bytes);
}

struct digest digest_tree(const void *data, size_t bytes)
{
    struct digest_tree_state state;
    digest_tree_begin(&state);
    digest_tree_add(&state, data, bytes);
    return digest_tree_end(&state);
}

/* A leaf of which arrays have parts; the last one is shorter. */
static struct digest leaf_across(const struct digest_span *spans, size_t spans_count, size_t at)
{
    struct digest_state state;
    size_t left = DIGEST_LEAF_BYTES;
    leaf_begin(&state);
    for (size_t s = 0; s < spans_count && left > 0; s++) {
        size_t part = spans[s].bytes - (at < spans[s].bytes ? at : spans[s].bytes);
        part = part < left ? part : left;
        if (part > 0)
            digest_add(&state, (const uint8_t *)spans[s].data + at, part);
        left -= part;
        at -= at < spans[s].bytes ? at : spans[s].bytes;
    }
    return digest_end(&state);
}

void digest_tree_spans(const struct digest_span *spans, size_t spans_count, size_t first, size_t count,
                       struct digest *out)
{
    size_t at = first * DIGEST_LEAF_BYTES; /* in spans[0] */
    while (count > 0) {
        while (spans_count > 0 && at >= spans->bytes) {
            at -= spans->bytes;
            spans++;
            spans_count--;
        }
        size_t whole = spans_count > 0 ? (spans->bytes - at) / DIGEST_LEAF_BYTES : 0;
        whole = whole < count ? whole : count;
        if (whole > 0)
            digest_tree_whole((const uint8_t *)spans->data + at, whole, out);
        else
            *out = leaf_across(spans, spans_count, at);
        whole = whole > 0 ? whole : 1;
        at += whole * DIGEST_LEAF_BYTES;
        out += whole;
        count -= whole;
    }
}

void digest_tree_begin(struct digest_tree_state *state)
{
    state->bytes = 0;
    root_begin(&state->root);
}

static void end_leaf(struct digest_tree_state *state)
{
    struct digest leaf = digest_end(&state->leaf);
    digest_add(&state->root, leaf.byte, DIGEST_BYTES);
}

/* Up to the end of a leaf; returns how many bytes it took. */
static size_t add_to_leaf(struct digest_tree_state *state, const uint8_t *from, size_t bytes)
{
    size_t inside = (size_t)(state->bytes % DIGEST_LEAF_BYTES);
    size_t part = DIGEST_LEAF_BYTES - inside;
    part = bytes < part ? bytes : part;
    if (inside == 0)
        leaf_begin(&state->leaf);
    digest_add(&state->leaf, from, part);
    state->bytes += part;
    if (state->bytes % DIGEST_LEAF_BYTES == 0)
        end_leaf(state);
    return part;
}

/* Whole leaves, as many as there are or a handful; returns the bytes. */
static size_t add_whole(struct digest_tree_state *state, const uint8_t *from, size_t bytes)
{
    struct digest leaves[BLAKE2B_LANES_MAX];
    size_t count = bytes / DIGEST_LEAF_BYTES < BLAKE2B_LANES_MAX ? bytes / DIGEST_LEAF_BYTES : BLAKE2B_LANES_MAX;
    digest_tree_whole(from, count, leaves);
    digest_add(&state->root, leaves, count * sizeof *leaves);
    state->bytes += count * DIGEST_LEAF_BYTES;
    return count * DIGEST_LEAF_BYTES;
}

void digest_tree_add(struct digest_tree_state *state, const void *data, size_t bytes)
{
    const uint8_t *from = data;
    while (bytes > 0) {
        bool whole = state->bytes % DIGEST_LEAF_BYTES == 0 && bytes >= DIGEST_LEAF_BYTES;
        size_t took = whole ? add_whole(state, from, bytes) : add_to_leaf(state, from, bytes);
        from += took;
        bytes -= took;
    }
}

struct digest digest_tree_end(struct digest_tree_state *state)
{
    if (state->bytes % DIGEST_LEAF_BYTES != 0)
        end_leaf(state);
    return root_end(&state->root, state->bytes);
}

/* ---- what digests are good for ---- */

int digest_equal(const struct digest *left, const struct digest *right)
{
    return memcmp(left->byte, right->byte, DIGEST_BYTES) == 0;
}

char *digest_hex(const struct digest *digest, char *hex)
{
    return sodium_bin2hex(hex, DIGEST_HEX_BYTES, digest->byte, DIGEST_BYTES);
}

uint64_t digest_tag(const struct digest *digest)
{
    uint64_t tag = 0;
    for (int i = 0; i < 8; i++)
        tag |= (uint64_t)digest->byte[i] << (8 * i);
    return tag;
}
