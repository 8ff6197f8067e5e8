/* SPDX-License-Identifier: Apache-2.0 */
/*
 * refused_orders: of which orders that a member sent, and that are refused, people are told. Private to
 * net/membership/.
 *
 * Each of another kind, subject or signer than the last few is told at once, and again once in a while: so what is sent
 * without end hides nothing else. All of one sender have a quota.
 */
#ifndef NET_MEMBERSHIP_REFUSED_ORDERS_H
#define NET_MEMBERSHIP_REFUSED_ORDERS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/quota.h"
#include "net/config/order.h"

/* SAID: so many are remembered, and told at once; then one in EVERY_MS. AGAIN_MS: the same is told so often. */
enum { REFUSED_ORDERS_SAID = 16, REFUSED_ORDERS_EVERY_MS = 10000, REFUSED_ORDERS_AGAIN_MS = 60000 };

/* Of one sender. All zero at first. */
struct refused_orders {
    struct quota told;
    struct refused_order {
        uint32_t kind, subject, signer;
        uint64_t until_ms; /* so long it is not told again; 0: there is none */
    } said[REFUSED_ORDERS_SAID];
};

/* Whether people are to be told of this one; then they are. */
bool refused_orders_tell(struct refused_orders *refused, const struct order *order, uint64_t now_ms);

#endif
