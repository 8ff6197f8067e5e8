/* SPDX-License-Identifier: Apache-2.0 */
/*
 * piece_picker: picks which leaf of a body (common/digest.h) to ask of which member, while several send at once.
 *
 *   MISSING ──asked of a source──▶ ASKED ──came, and is of its digest──▶ HERE
 *      ▲                             │ its source is gone, stands still, lies, or is too slow at the end │
 *      └─────────────────────────────┘
 *
 * Each source is asked for two ranges of leaves at a time, each twice as long as the one before until it takes about
 * half a second to come, from its first byte on; each leaf is checked as soon as it is whole. A leaf that is HERE
 * stays, whatever becomes of its source, so a source that dies costs at most the leaf that it was at, of each range.
 * Whose leaf is not of its digest has lied, and is never asked again. A source that brings nothing for long is passed
 * over for a while, as long as there is another; alone it is asked again, for the request may be lost. At the end, a
 * source that is done takes over leaves for which slower ones would still need long.
 *
 * Pure: bytes and time in, requests out; no socket, no clock. Body and digests are the caller's, and kept by it as long
 * as the table lives. piece_picker_new() allocates one byte a leaf. One thread calls.
 */
#ifndef NET_TRANSFER_PIECE_PICKER_H
#define NET_TRANSFER_PIECE_PICKER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

enum {
    PIECE_PICKER_SOURCES_MAX = 16,
    PIECE_PICKER_ASKS = 2, /* of one source at a time */
    PIECE_PICKER_STANDS_MS = 3000,
};

struct piece_picker_conf {
    const uint8_t *digests; /* DIGEST_BYTES each */
    uint32_t leaves_count;  /* digest_tree_leaves(bytes) */
    uint64_t bytes;
    uint8_t *body; /* `bytes` long */
};

struct piece_picker;
/* ERR_NOMEM. Caller frees. */
ERR_MUST_CHECK enum err piece_picker_new(const struct piece_picker_conf *conf, struct piece_picker **out);
/* NULL is fine. */
void piece_picker_free(struct piece_picker *picker);

/* This member has the body: it is asked from now on. False: it has lied, or there are too many. */
bool piece_picker_add(struct piece_picker *picker, uint32_t peer, uint64_t now_ms);
/* It is gone, or has the body no more, until it is added again: others are asked. */
void piece_picker_lose(struct piece_picker *picker, uint32_t peer);
/* It broke its word in another way: as if a leaf of its were wrong. */
void piece_picker_condemn(struct piece_picker *picker, uint32_t peer);

/* A range of leaves, asked of one member. */
struct piece_range {
    uint32_t peer, first, count;
};
enum piece_picker_do {
    PIECE_PICKER_ASK,       /* ask for it */
    PIECE_PICKER_ASK_AGAIN, /* likewise: an earlier question stands still. Bytes of it that are here stay */
    PIECE_PICKER_DROP,      /* nothing of it may be written any more: the same memory may be asked of another, next */
};
/* The next request; false: none. To be called until then, after every change and every so often. */
bool piece_picker_next(struct piece_picker *picker, uint64_t now_ms, enum piece_picker_do *what,
                       struct piece_range *range);

/* Where a range goes, and its length. False: it was not asked of this member, or is not any more. */
bool piece_picker_place(const struct piece_picker *picker, const struct piece_range *range, uint8_t **to,
                        uint64_t *bytes);
/* So many bytes of it are there, without a gap. False: a leaf is not the one of its digest. The member has lied, and
 * all that it was asked for is dropped. */
bool piece_picker_in(struct piece_picker *picker, const struct piece_range *range, uint64_t have, uint64_t now_ms);

bool piece_picker_whole(const struct piece_picker *picker);
/* Whether it may be asked. */
bool piece_picker_has(const struct piece_picker *picker, uint32_t peer);
/* How many members may be asked, those that are passed over for a while too. */
uint32_t piece_picker_sources(const struct piece_picker *picker);
/* For the log: bytes that have come, those too that had to come again; those that are here; members that brought
 * some. */
uint64_t piece_picker_received(const struct piece_picker *picker);
uint64_t piece_picker_bytes(const struct piece_picker *picker);
uint32_t piece_picker_givers(const struct piece_picker *picker);

#endif
