/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config_orders: what orders and members' words change from one configuration to the next, and whether a configuration
 * says just that (docs/PROTOCOL.md, "Orders").
 *
 * Roster, founder, operators, contributors, steps and pause change by order alone; a member's address, uplink, choice
 * and draining by its own word alone. All else is the proposer's to say, within net/membership/next_config's rules. Who
 * may order what is judged by the configuration before: one operator for most; the founder, or a majority of the
 * voters, for what concerns operators. Pure.
 */
#ifndef NET_CONFIG_CONFIG_ORDERS_H
#define NET_CONFIG_CONFIG_ORDERS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "net/config/config.h"

/* An order that takes approvals is good for so many epochs after the one in which it was signed; others in that one
 * alone. */
enum { CONFIG_ORDER_EPOCHS = 64 };

/* Whether the order takes the founder, or the approvals of a majority of the voters. */
bool config_order_takes_approval(const struct config *config, const struct order *order);
/* Whether the configuration has carried it out. */
bool config_order_done(const struct config *config, const struct order *order);
/* Whether its signer may order this in the configuration after this one, as far as signatures, numbers and epochs say.
 * `pending`: apart from approvals that are missing. ERR_STATE names the lack, fit to be told to people. */
ERR_MUST_CHECK enum err config_order_allowed(const struct config *config, const struct order *order, bool pending);
/* The parts of that: all but signatures and approvals; the signature of its signer. Likewise, of one that admits, the
 * newcomer's, which config_order_apply() looks at. ERR_STATE. */
ERR_MUST_CHECK enum err config_order_stands(const struct config *config, const struct order *order);
ERR_MUST_CHECK enum err config_order_signed(const struct config *config, const struct order *order);
ERR_MUST_CHECK enum err config_order_newcomer(const struct config *config, const struct order *order);
/* Whether it might stand in this epoch or a later one, whatever its signer may order just now: that is on the roster,
 * the order's number is not done, and its epochs are not over. */
bool config_order_lasts(const struct config *config, const struct order *order);
/* Of its approvals, those that are good. */
uint32_t config_order_approvals(const struct config *config, const struct order *order);

/* Whether it takes a voter of `config` out of the run, or off the owners. */
bool config_order_removes(const struct config *config, const struct order *order);
/* How many of so many voters orders may send away at a time: a minority, or one. */
uint32_t config_removed_most(uint32_t voters);

/* Carries out an order that is allowed after `previous` in `next`, its successor so far. ERR_STATE: it makes no sense,
 * or not beside those carried out before it, and `next` is as it was; ERR_NOMEM. */
ERR_MUST_CHECK enum err config_order_apply(const struct config *previous, struct config *next,
                                           const struct order *order);
/* The same without a look at the newcomer's signature, for who has seen it. */
ERR_MUST_CHECK enum err config_order_try(const struct config *previous, struct config *next, const struct order *order);
/* A member's word, in the successor so far: nothing changes where its number or signature is not good. One that says
 * the same as before is taken, too: one of a lower number, which said something else, counts no more then. ERR_NOMEM.
 */
ERR_MUST_CHECK enum err config_word_apply(const struct config *previous, struct config *next, uint32_t id,
                                          const struct member_word *word);

/* Whether the word is of another key of the member than its present one (config_other_key()): of one that it had, since
 * it may not know yet that it has that; or of the one that it would have, since we may not. */
bool config_word_of_other_key(const struct config *config, uint32_t id, const struct member_word *word);

/* Whether `next` differs from `previous` in these things as its orders and words say, and no further. ERR_PROTO names
 * what differs; ERR_NOMEM. */
ERR_MUST_CHECK enum err config_orders_follow(const struct config *previous, const struct config *next);

/* What the configuration calls a member; "id 7" where there is none, in a buffer of the thread. */
const char *config_name_of(const struct config *config, uint32_t id);

#endif
