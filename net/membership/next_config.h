/* SPDX-License-Identifier: Apache-2.0 */
/*
 * next_config: makes a draft of configuration e + 1 from configuration e, the promise reports and the change requests,
 * and says whether it is safe to propose (rules 1 to 5 and 9 of docs/PROTOCOL.md, "Epochs").
 *
 * A fragment starts from the highest version that anyone who answered has, bytes and all, as far as that can be; every
 * sealed result of the version after it that is valid in epoch e is carried. Orders that may be carried out are, but
 * for those that make no sense beside others, which wait. A draft is proposed only when starts and carried results are
 * durable at so many of its own voters that they would be committed there: until then it tells who lacks what. Pure.
 * Answers come from strangers: whatever makes no sense in epoch e is left out.
 */
#ifndef NET_MEMBERSHIP_NEXT_CONFIG_H
#define NET_MEMBERSHIP_NEXT_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "common/digest.h"
#include "common/err.h"
#include "net/config/config.h"
#include "net/membership/assign_roles.h"
#include "net/membership/wire_paxos.h"

/* The answer of one member. */
struct next_config_answer {
    uint32_t id;
    uint64_t incarnation;
    uint64_t step;              /* the largest that a result names which is applied or durable there */
    bool sealed;                /* it is a PROMISE in the proposer's ballot (paxos_promised()) */
    const struct holding *rows; /* in order of fragment, each once; of one that is left out it holds nothing */
    uint32_t rows_count;
    const struct config_endorsement *endorsements; /* its own, signed by it */
    uint32_t endorsements_count;
};

/* What a member says of itself. */
struct next_config_word {
    uint32_t id;
    const struct member_word *word;
};

/* The last configuration, how the run cuts its fragments, and what is wanted of the next one. */
struct next_config_base {
    const struct config *config;
    const struct digest *digest;
    const uint32_t *shards; /* per fragment: into how many it is cut */
    uint32_t fragments_count;
    /* A result that only a few answered has had its time to be fetched: it is left out where the other seals are
     * enough, for then it was committed nowhere, or stands in them. */
    bool overdue;
    bool by_order;         /* no majority agrees to anything else: what orders say alone changes */
    uint64_t applied_step; /* the largest that a result names which is applied here: what an acceptor knows */
    const struct order *const *orders; /* that may be carried out, in order of signer, then number */
    uint32_t orders_count;
    const struct next_config_word *words; /* of members, as heard last */
    uint32_t words_count;
};

enum { NEXT_CONFIG_SUSPECTS_MAX = CONFIG_OWNERS_MAX };

struct next_config_out {
    bool ask;            /* the answers do not suffice: ask further members, and again. There is no draft */
    struct config draft; /* config_deinit() */
    uint32_t suspects[NEXT_CONFIG_SUSPECTS_MAX]; /* owners of which seals show two results of one part */
    uint32_t suspects_count;
};

/* Fills in caught_up of `requests`. ERR_NOMEM; ERR_STATE: from assign_roles(), or there are more carried results than a
 * configuration has room for. On failure `*out` is empty. */
ERR_MUST_CHECK enum err next_config(const struct next_config_base *base, const struct next_config_answer *answers,
                                    uint32_t answers_count, struct change_request *requests,
                                    uint32_t change_requests_count, struct next_config_out *out);

/* Rule 2: whether start and carried results of the draft are durable at config_commit_quorum() of its own full voters;
 * where it has one alone, also at another one that has sealed and votes no more. `lacking`, room for
 * CONFIG_OWNERS_MAX + 1 ids, and `*lacking_count`: those of them that lack some of it, or have not answered. */
bool next_config_safe(const struct config *draft, const struct next_config_base *base,
                      const struct next_config_answer *answers, uint32_t answers_count, uint32_t *lacking,
                      uint32_t *lacking_count);

/* Whether a holder lacks something of a fragment in a draft or configuration: the start (then it fetches a state, or
 * the results up to it), or else this carried result. False: it lacks nothing. */
struct next_config_lack {
    bool start;
    uint32_t carried; /* index in the configuration */
};
bool next_config_lacks(const struct config *draft, uint32_t fragment, const struct holding *holds,
                       struct next_config_lack *lack);

/* Orders and words carried out in `next`, a copy of the last configuration (net/config/config_orders.h), as far as it
 * can be packed with them; whom they put out is so in `requests`. Signatures of orders were checked before. ERR_NOMEM.
 */
ERR_MUST_CHECK enum err next_config_obey(const struct next_config_base *base, struct config *next,
                                         struct change_request *requests, uint32_t change_requests_count);

/* Whether an acceptor may accept `next`: it follows (config_follows(), config_orders_follow()), and what it carries was
 * made in epoch e by the owner of exactly these shards, or was carried by it; and nothing was applied here that is
 * beyond its counted step. ERR_PROTO; ERR_STATE: what others said, or the plan that is not known here, is to blame, and
 * not its maker. */
ERR_MUST_CHECK enum err next_config_follows(const struct next_config_base *base, const struct config *next);

#endif
