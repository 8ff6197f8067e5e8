/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire_object: a contribution or a result as one run of bytes: header, codec frame, metadata (docs/FORMATS.md, 3).
 *
 * An object says itself what it is, and of which run: whoever holds the bytes needs nobody's word. Its digest covers
 * every byte but the signature: the header, the metadata and the frame's head directly, the frame's payload through the
 * digest in that head, which codec_check() compares. A result is signed by the owner of its part (Ed25519, RFC 8032).
 * Pure; no allocation. Opening accepts bytes from strangers: none reach an assert.
 */
#ifndef NET_TRANSPORT_WIRE_OBJECT_H
#define NET_TRANSPORT_WIRE_OBJECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/digest.h"
#include "common/err.h"
#include "net/transport/ident.h"
#include "net/transport/result_id.h"
#include "net/transport/wire.h"

enum {
    WIRE_OBJECT_VERSION = 5,
    WIRE_OBJECT_HEADER_BYTES = 168,
    WIRE_OUTER_NUMBERS = 3,
    WIRE_CONTRIBUTORS_MAX = 1024,
    WIRE_CONTRIBUTOR_BYTES = 60,
    WIRE_SHARDS_MAX = 64, /* of a fragment */
    WIRE_SPANS_MAX = 1024,
    WIRE_SPAN_BYTES = 24,
    WIRE_FACTOR_ONE = 0x3f800000,
    /* header, head of the frame, metadata */
    WIRE_OBJECT_STUB_BYTES_MAX = WIRE_OBJECT_HEADER_BYTES + 64 + 24 + WIRE_CONTRIBUTORS_MAX * WIRE_CONTRIBUTOR_BYTES +
                                 WIRE_SPANS_MAX * WIRE_SPAN_BYTES,
};

/* What the header says. */
struct wire_object {
    struct wire_key key;
    uint8_t nonce[WIRE_NONCE_BYTES];          /* of the run */
    uint64_t shards;                          /* bit s: the frame holds shard s of the fragment, in order of number */
    struct digest digest;                     /* by which it is named */
    uint8_t signature[IDENT_SIGNATURE_BYTES]; /* result: its owner's; contribution: zeros */
};

/* The name of the result that it is. */
struct result_id wire_object_result(const struct wire_object *what);

/* Shards of a contribution that hold the work of as many tokens as each other, and weigh alike: of one whose shards do
 * not all, there are spans for all of them. */
struct wire_span {
    uint32_t id;     /* of the member that made it */
    uint32_t weight; /* as bits of a single; of a contribution: 0 */
    uint64_t shards; /* mask */
    uint64_t tokens; /* trained for each of these shards, as its maker says */
};

/* A contribution that a result counts. */
struct wire_contributor {
    uint32_t id;     /* of the member that made it */
    uint64_t tokens; /* trained for it, as its maker says: of its shards the average by their values, as is `weight` */
    /* Singles, as bits. */
    uint32_t weight;      /* in the mean: its tokens, within bounds */
    uint32_t norm;        /* of its values; 0: not looked at */
    uint32_t factor;      /* WIRE_FACTOR_ONE; less: scaled down as an outlier; 0: counted, and left out of the mean */
    uint32_t cosine;      /* of its values to the mean of the others'; 0: not judged */
    struct digest digest; /* of the contribution */
};

/* What else has to be known; what the other kind has is zero. The lists stay packed, in memory that is borrowed: the
 * object's that was opened, or the caller's, who filled them in with wire_contributor_put() and wire_spans_put(). */
struct wire_meta {
    uint64_t tokens; /* of a contribution: trained for each of its shards; 0: not as many for all, and its spans say */
    uint64_t step;
    struct digest base_hash;
    uint32_t spans_count;
    const uint8_t *spans;               /* in order of id, then of their first shards, WIRE_SPAN_BYTES each */
    uint32_t outer[WIRE_OUTER_NUMBERS]; /* of a result: the outer step's numbers, as bits */
    uint32_t contributors_count;
    const uint8_t *contributors; /* in order of id, WIRE_CONTRIBUTOR_BYTES each */
};

void wire_contributor_put(uint8_t *contributors, uint32_t index, const struct wire_contributor *contributor);
struct wire_contributor wire_meta_contributor(const struct wire_meta *meta, uint32_t index);
/* The contribution of a member; false: the result counts none. `out` may be NULL. */
bool wire_meta_find(const struct wire_meta *meta, uint32_t id, struct wire_contributor *out);

/* Puts the spans of a member's contribution behind `count` that are there: what its shards hold and weigh (NULL: 0), by
 * number. Returns how many there are then; `count`: its shards are all alike, or there is no room for `room` in all. */
uint32_t wire_spans_put(uint8_t *spans, uint32_t count, uint32_t room, uint32_t id, uint64_t shards,
                        const uint64_t tokens[WIRE_SHARDS_MAX], const uint32_t *weights);
/* The span of a member's contribution that has a shard. False: there is none, and all its shards are alike; or, of a
 * result, there was no room. */
bool wire_meta_span(const struct wire_meta *meta, uint32_t id, uint32_t shard, struct wire_span *out);

/* Bytes of an object of these shards around a frame of at most `frame_bytes`, with at most so many contributors
 * (contribution: 0). */
size_t wire_object_bytes_max(size_t frame_bytes, uint64_t shards, uint32_t contributors);
/* Where the frame has to lie in the object's memory before wire_object_seal(): a fixed place, so that encoders write
 * it there directly. */
uint8_t *wire_object_frame(uint8_t *object);
/* Writes the header in front of the frame that is already in place, and the metadata after it. `ident`: the owner's,
 * who signs a result; NULL for a contribution. Digest and signature in `what` are not read; the digest it gets is
 * `*digest`. ERR_ARG. */
ERR_MUST_CHECK enum err wire_object_seal(const struct wire_object *what, const struct wire_meta *meta,
                                         const struct ident *ident, uint8_t *object, size_t frame_bytes,
                                         size_t *object_bytes, struct digest *digest);

/* What the header says, and nothing is proved. ERR_PROTO: it is none of this version, or not whole. */
ERR_MUST_CHECK enum err wire_object_peek(const uint8_t *object, size_t object_bytes, struct wire_object *what);
/* Checks all that needs no key but the frame's payload: lengths, limits, digest, metadata. `*frame` points into
 * `object`. ERR_PROTO. */
ERR_MUST_CHECK enum err wire_object_open(const uint8_t *object, size_t object_bytes, struct wire_object *what,
                                         struct wire_meta *meta, const uint8_t **frame, size_t *frame_bytes);
/* A stub is what an object's digest covers directly, and so its owner's signature: all but the frame's payload. How
 * long it is; ERR_PROTO: the object is none. Then it fits into `out`. */
ERR_MUST_CHECK enum err wire_object_stub_bytes(const uint8_t *object, size_t object_bytes, size_t *stub_bytes);
void wire_object_stub(const uint8_t *object, size_t object_bytes, uint8_t *out);
/* What its header says, and that its digest is right. ERR_PROTO. */
ERR_MUST_CHECK enum err wire_object_stub_open(const uint8_t *stub, size_t stub_bytes, struct wire_object *what);

/* Whether it is the one that was asked for, of this run. ERR_PROTO says what it is instead. */
ERR_MUST_CHECK enum err wire_object_is(const struct wire_object *what, const struct wire_key *key,
                                       const uint8_t nonce[WIRE_NONCE_BYTES]);
/* Whether a result is signed with this public key. ERR_PROTO: it is not. */
ERR_MUST_CHECK enum err wire_object_signed(const struct wire_object *what, const uint8_t *owner_key);

#endif
