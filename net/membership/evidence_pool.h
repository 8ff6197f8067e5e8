/* SPDX-License-Identifier: Apache-2.0 */
/*
 * evidence_pool: members that broke their word: evidence of it (net/membership/evidence.h), which the host keeps and
 * the others are told. Private to net/membership/.
 *
 * Evidence is checked before it is kept, and marks its member in member_progress. As long as one who is marked takes
 * part, all are told again and again: then a configuration leaves it out.
 */
#ifndef NET_MEMBERSHIP_EVIDENCE_POOL_H
#define NET_MEMBERSHIP_EVIDENCE_POOL_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "net/membership/member_progress.h"
#include "net/membership/outbox.h"

struct evidence_pool {
    struct member_progress *progress; /* borrowed, as is the outbox, of whose host the evidence is */
    struct outbox *outbox;
    uint64_t all_ms; /* when evidence is told again; 0 at first */
};

/* Marks members of whom the host has evidence. Call it whenever members came. Tells of a file that proves nothing
 * (MEMBERSHIP_NO_EVIDENCE). ERR_NOMEM. */
ERR_MUST_CHECK enum err evidence_pool_load(const struct evidence_pool *pool);
/* Keeps evidence about the member of this id that somebody told, marks its member, and tells all others, if it is news.
 * ERR_PROTO: it proves nothing; ERR_NOTFOUND: there is no such member; and others of the host. */
ERR_MUST_CHECK enum err evidence_pool_take(const struct evidence_pool *pool, uint32_t id, const uint8_t *evidence,
                                           size_t evidence_bytes);
/* Tells all the evidence to the member in that slot, if it is here; VIEW_NOBODY: to all that are. */
void evidence_pool_tell(const struct evidence_pool *pool, uint32_t to);
/* Tells all again, where one whose word is broken takes part. */
void evidence_pool_tick(struct evidence_pool *pool, uint64_t now_ms);
/* The host has seen that the owner of this id broke its word, and has the evidence of it, if that could be kept. */
void evidence_pool_equivocation(const struct evidence_pool *pool, uint32_t owner, uint32_t fragment, uint64_t version);

#endif
