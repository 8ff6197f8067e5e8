/* SPDX-License-Identifier: Apache-2.0 */
/*
 * change_requests: what the next configuration is to change, of what is known of the members, of their words and of the
 * orders that wait; and whether that is worth an epoch. Private to net/membership/.
 *
 * net/membership/assign_roles and net/membership/next_config decide what that configuration says.
 */
#ifndef NET_MEMBERSHIP_CHANGE_REQUESTS_H
#define NET_MEMBERSHIP_CHANGE_REQUESTS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/digest.h"
#include "common/err.h"
#include "net/membership/member_progress.h"
#include "net/membership/next_config.h"
#include "net/membership/order_pool.h"
#include "net/config/config.h"

/* All zero at first. */
struct change_requests {
    uint64_t begun; /* the newest configuration's epoch and one; 0: there was none yet */
    uint32_t idle;  /* configurations in a row that changed nothing; */
    /* and of these, those that we proposed, as long as for the same reasons. Where no order or word is among these,
     * another's counts as well if we composed one then: others hear otherwise. An order or a word that it leaves out
     * is for the next one to carry out. */
    uint32_t tried;
    uint64_t tried_reasons;  /* these */
    uint64_t reasons;        /* that there were last */
    bool asked;              /* an order or a word is among them */
    uint64_t composed_epoch; /* of the configuration that we composed last */
    struct digest proposed;  /* of the one that we proposed last */
};

/* Orders and words for a draft; what it points to is the pool's and the members'. */
struct wanted_changes {
    const struct order *orders[CONFIG_ORDERS_MAX];
    uint32_t orders_count;
    struct next_config_word words[VIEW_SLOTS_MAX];
    uint32_t words_count;
};
/* What for. COMPOSE: all that a configuration may say. REASONS: what is a reason to make one now: no words but those by
 * which a member begins or ends to drain, and no voids of those that are no operators, before an epoch has stood for a
 * while; and of words that say the same by a higher number only so many. */
enum wanted_for { WANTED_REASONS, WANTED_COMPOSE };
/* ERR_NOMEM. */
ERR_MUST_CHECK enum err change_requests_wanted(const struct member_progress *progress, const struct order_pool *pool,
                                               enum wanted_for what, struct wanted_changes *out);

/* Once a tick: the words known now are due in the next configuration, as the pool has it of orders. Returns how many
 * configurations in a row have left out what was due: the most of any order or word. */
uint32_t change_requests_left_out(struct member_progress *progress, const struct order_pool *pool);
/* A new epoch: whom its orders put out stays out for a while; which words it leaves out is counted. One that begins
 * anew changes nothing. */
void change_requests_fulfil(struct change_requests *requests, struct member_progress *progress,
                            const struct config *config);

/* For a configuration that we compose: what is known of all members that are heard, or known to be silent, or are to be
 * put out by one of the orders: mem_free() it. Other members stay as they are: there is nothing to go by. ERR_NOMEM. */
ERR_MUST_CHECK enum err change_requests_gather(struct change_requests *requests, const struct member_progress *progress,
                                               const struct wanted_changes *wanted, struct change_request **out,
                                               uint32_t *count);
/* We propose the configuration of this digest. */
void change_requests_proposed(struct change_requests *requests, const struct digest *digest);
/* Whether a member that is away, which may be us, is back and comes in again by itself when it has caught up: it is
 * heard, and does not drain. */
bool change_requests_catches_up(const struct change_requests *requests, const struct member_progress *progress,
                                uint32_t member);
/* Ids of members that might take part from the next configuration on, at most PAXOS_ASKED_MAX: their reports must be
 * known, or the configuration says nothing new. `asked`: slots of those already asked for this configuration; they
 * stay: they are fetching a version that others have reached meanwhile. */
uint32_t change_requests_whom_to_ask(const struct member_progress *progress, struct bitset *asked, uint32_t *ids);
/* Whether all that were asked hold the versions that the draft starts from, as next_config() has found: rounds stand
 * still, so they soon do. */
bool change_requests_all_there(const struct change_request *requests, uint32_t count, const uint32_t *asked,
                               uint32_t asked_count);
/* The members of the next configuration, as they would be were it made now of what is known here, with nobody waited
 * for who may come along; config_deinit() it. `*known`, `*count`: what is known of members, as of
 * change_requests_gather(). ERR_NOMEM; ERR_STATE: from assign_roles(). */
ERR_MUST_CHECK enum err change_requests_expect(const struct change_requests *requests,
                                               const struct member_progress *progress, const struct order_pool *pool,
                                               struct config *next, struct change_request **known, uint32_t *count);
/* Whether the next configuration would differ from the last one, and enough voters are heard to decide it. */
bool change_requests_change(struct change_requests *requests, const struct member_progress *progress,
                            const struct order_pool *pool);

#endif
