/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order_pool: orders that wait for a configuration: those that people here gave, and those heard of. Private to
 * net/membership/.
 *
 * One that was given here is signed anew in each epoch, as long as it lives: for ORDER_POOL_OWN_MS, or, where it
 * gathers approvals, ORDER_POOL_APPROVED_MS and CONFIG_ORDER_EPOCHS epochs; and only while a majority of the voters is
 * heard, since what a minority ordered that was cut off must not be carried out when it is back. One that ends before
 * it was carried out is withdrawn: a void of its number takes its place (ORDER_VOID), here and wherever it is heard,
 * and stays until a configuration has it, or the order could not count any more: also while its signer has no vote,
 * which it may have again. Likewise one of ours that takes approvals. An order of another member lives as long as it is
 * repeated. Which of them may be carried out is net/config/config_orders.h's to say.
 *
 * Orders come from strangers. A signature is checked once; a bad one is remembered for whoever sent it, and checks are
 * a quota of the sender's. Room is shared among signers.
 */
#ifndef NET_MEMBERSHIP_ORDER_POOL_H
#define NET_MEMBERSHIP_ORDER_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "net/config/config.h"
#include "net/config/config_log.h"
#include "net/config/config_orders.h"
#include "net/config/view.h"
#include "net/transport/ident.h"

/* OF_ONE: of one signer; APPROVED_OF_ONE: that take approvals. HEARD: another's order is forgotten when nobody has
 * repeated it for so long. AGAIN: ours are told so often. CHECKS: signatures of one sender that are checked at once,
 * and one more each CHECK_MS. BAD: so many bad signatures of a sender are remembered. */
enum {
    ORDER_POOL_MAX = 192,
    ORDER_POOL_OF_ONE = 20,
    ORDER_POOL_APPROVED_OF_ONE = 2,
    ORDER_POOL_OWN_MS = 10 * 60 * 1000,
    ORDER_POOL_APPROVED_MS = 7 * 24 * 3600 * 1000,
    ORDER_POOL_JOIN_MS = 10000,
    ORDER_POOL_HEARD_MS = 10000,
    ORDER_POOL_AGAIN_MS = 1000,
    ORDER_POOL_CHECKS = 256,
    ORDER_POOL_CHECK_MS = 20,
    ORDER_POOL_BAD = 16,
};

/* An order that waits. */
struct waiting_order {
    struct order order;
    bool ours;         /* people here gave it: we sign it */
    bool approved;     /* people here approved it: we repeat it, too */
    bool pointless;    /* ours: in this epoch it would change nothing */
    bool powerless;    /* in this epoch its signer may not order it; it may again in a later one */
    bool due;          /* the next configuration might carry it out */
    uint64_t since_ms; /* when it was given, or heard of first */
    uint64_t alive_ms; /* when it was given, heard, or asked for last */
    uint64_t told_ms;  /* when we told the voters of it last */
};

/* All borrowed. */
struct order_pool_conf {
    /* A number of at least `least` for an order of ours, which no order of ours has had; that it was given is durable
     * when this returns. A failure: the order is not given. */
    enum err (*number)(void *user, uint64_t least, uint64_t *number);
    void *user;
    const struct config_log *config_log; /* who might order what in epochs before; NULL: nobody knows */
};

struct order_pool;
ERR_MUST_CHECK enum err order_pool_new(const struct order_pool_conf *conf, struct order_pool **out);
/* NULL is fine. */
void order_pool_free(struct order_pool *pool);

/* What people here order of the run, as member `self`; `what` has kind, subject, value and join. The same that waits
 * already is kept alive, as if it were given now. `*number`, if not NULL: its number. ERR_STATE: it may not be ordered
 * here, and why; ERR_AGAIN: too many wait. */
ERR_MUST_CHECK enum err order_pool_give(struct order_pool *pool, const struct ident *ident, const struct config *config,
                                        uint32_t self, const struct order *what, uint64_t now_ms, uint64_t *number);
/* One of another member, sent by that of slot `from`. `*news`: it was not here, or has an approval that was not.
 * ERR_PROTO: nobody who is honest sends it: its signer may not order it, or did not. Else it is passed over: ERR_STATE:
 * it would change nothing as things stand, or was withdrawn; ERR_AGAIN: there is no room, or the sender has had its
 * share of checks. */
ERR_MUST_CHECK enum err order_pool_take(struct order_pool *pool, const struct config *config, uint32_t from,
                                        const struct order *order, uint64_t now_ms, bool *news);
/* People here agree to an order that waits. ERR_NOTFOUND; ERR_STATE: it takes no approval, or we are no voter. */
ERR_MUST_CHECK enum err order_pool_approve(struct order_pool *pool, const struct ident *ident,
                                           const struct config *config, uint32_t self, uint32_t signer,
                                           uint64_t number);
/* People here take back one that they gave: it is a void from now on. ERR_NOTFOUND. */
ERR_MUST_CHECK enum err order_pool_withdraw(struct order_pool *pool, const struct ident *ident,
                                            const struct config *config, uint32_t self, uint64_t number);
/* Likewise the order that admits who redeemed this invitation; where there is none, nothing. */
void order_pool_shut_out(struct order_pool *pool, const struct ident *ident, const struct config *config,
                         const struct digest *invitation);

/* A new epoch: forgets what its configuration carried out, or what cannot be any more, and signs ours anew. `before`:
 * the configuration before it; NULL: it is not known. Where it begins anew it is counted once. */
void order_pool_begin(struct order_pool *pool, const struct ident *ident, const struct config *before,
                      const struct config *config, uint64_t now_ms);
/* How many configurations in all have left out an order that waits, and that they might have carried out: few, those
 * that were made when it came, unless somebody does so on purpose. */
uint32_t order_pool_left_out(const struct order_pool *pool);
/* Forgets what has lived, and withdraws what has of ours; `majority`: it is heard. `ended`, if not NULL, is told of
 * each of those, and why. */
void order_pool_tick(struct order_pool *pool, const struct ident *ident, const struct config *config, bool majority,
                     uint64_t now_ms, void (*ended)(void *user, const struct order *order, const char *why),
                     void *user);

/* The orders that wait, in order of signer and number: the next one at `*at`, 0 at first; NULL: no more. Borrowed. */
const struct waiting_order *order_pool_next(const struct order_pool *pool, uint32_t *at);
/* The next of ours, and of those approved here, that is to be told the voters again now; NULL: none. */
const struct order *order_pool_to_tell(struct order_pool *pool, uint64_t now_ms);
/* How many voters agree to one of them: their signatures were checked when they came. */
uint32_t order_pool_agree(const struct config *config, const struct order *order);
/* Those that may be carried out in the configuration after this one, each beside those before it: pointers to at most
 * CONFIG_ORDERS_MAX of them, in order of signer, then number. Where there are more, each signer has its share. One that
 * sends away a voter waits where too many went lately (net/membership/removals.h). `all`: also the voids of those that
 * are no operators, which are no reason for a configuration. ERR_NOMEM. */
ERR_MUST_CHECK enum err order_pool_allowed(const struct order_pool *pool, const struct config *config, bool all,
                                           uint64_t now_ms, const struct order *out[CONFIG_ORDERS_MAX],
                                           uint32_t *count);

#endif
