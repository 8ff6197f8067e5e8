/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compose: what record e + 1 says, from record e, what those who answered hold, and what is wanted of the members; and
 * whether it is safe to propose (rules 1 to 5 and 9 of docs/PROTOCOL.md, "Epochs").
 *
 * The start of a fragment is the highest version that anyone who answered is at, bytes and all, as far as that can be;
 * every sealed result of the version after it that is valid in epoch e is carried. A draft is proposed only when what
 * it rests on is durable at so many of its own voters that it would be certified there: until then it tells who lacks
 * what. Pure. Answers come from strangers: whatever makes no sense in epoch e is left out.
 */
#ifndef NET_MEMBERSHIP_COMPOSE_H
#define NET_MEMBERSHIP_COMPOSE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/digest.h"
#include "common/err.h"
#include "net/config/record.h"
#include "net/membership/muster.h"
#include "net/membership/wire_epoch.h"

/* What one member answered. */
struct compose_answer {
    uint32_t id;
    uint64_t incarnation;
    bool sealed;                /* it is a PROMISE in the proposer's ballot (epoch_promised()) */
    const struct holding *rows; /* in order of fragment, each once; of one that is left out it holds nothing */
    uint32_t rows_count;
};

/* The last record, and how the run cuts its fragments. */
struct compose_base {
    const struct record *record;
    const struct digest *digest;
    const uint32_t *shards; /* per fragment: into how many it is cut */
    uint32_t fragments_count;
    /* What only a few answered has had its time to be fetched: it is left out where the other seals are enough, for
     * then it was certified nowhere, or stands in them. */
    bool overdue;
};

enum { COMPOSE_SUSPECTS_MAX = RECORD_OWNERS_MAX };

struct compose_out {
    bool ask;            /* what was answered does not suffice: ask further members, and again. There is no draft */
    struct record draft; /* record_deinit() */
    uint32_t suspects[COMPOSE_SUSPECTS_MAX]; /* owners of whom two results of one part are shown */
    uint32_t suspects_count;
};

/* `wishes`: caught_up is filled in here. ERR_NOMEM; ERR_STATE: muster()'s, or more carried results than a record has
 * room for. `*out` is empty then. */
ERR_MUST_CHECK enum err compose(const struct compose_base *base, const struct compose_answer *answers,
                                uint32_t answers_count, struct muster_wish *wishes, uint32_t wishes_count,
                                struct compose_out *out);

/* Rule 2: whether start and carried results of the draft are durable at record_certifying() of its own voters that keep
 * bytes. `lacking`, room for RECORD_OWNERS_MAX + 1 ids, and `*lacking_count`: those of its voters that lack some of it,
 * or have not answered. */
bool compose_safe(const struct record *draft, const struct compose_base *base, const struct compose_answer *answers,
                  uint32_t answers_count, uint32_t *lacking, uint32_t *lacking_count);

/* What a holder lacks of a fragment in a draft or record: the start (then it fetches a state, or the results up to it),
 * or else this carried result. False: nothing. */
struct compose_lack {
    bool start;
    uint32_t carried; /* index in the record */
};
bool compose_lacks(const struct record *draft, uint32_t fragment, const struct holding *holds,
                   struct compose_lack *lack);

/* Whether an acceptor may accept `next`: it follows (record_follows()), and what it carries was made in epoch e by the
 * owner of exactly these shards, or was carried by it. ERR_PROTO. */
ERR_MUST_CHECK enum err compose_follows(const struct compose_base *base, const struct record *next);

#endif
