/* SPDX-License-Identifier: Apache-2.0 */
#include "net/membership/refused_orders.h"

static const struct quota_rule told_rule = {.every_ms = REFUSED_ORDERS_EVERY_MS, .at_once = REFUSED_ORDERS_SAID};

static bool is_of(const struct refused_order *said, const struct order *order)
{
    return said->until_ms != 0 && said->kind == order->kind && said->subject == order->subject &&
           said->signer == order->signer;
}

bool refused_orders_tell(struct refused_orders *refused, const struct order *order, uint64_t now_ms)
{
    struct refused_order *place = &refused->said[0]; /* of the same, or of the one told longest ago */
    for (uint32_t i = 0; i < REFUSED_ORDERS_SAID; i++) {
        struct refused_order *said = &refused->said[i];
        if (is_of(said, order) && now_ms < said->until_ms)
            return false;
        place = is_of(said, order) || (!is_of(place, order) && said->until_ms < place->until_ms) ? said : place;
    }
    if (!quota_take(&refused->told, told_rule, now_ms))
        return false;
    *place = (struct refused_order){.kind = order->kind,
                                    .subject = order->subject,
                                    .signer = order->signer,
                                    .until_ms = now_ms + REFUSED_ORDERS_AGAIN_MS};
    return true;
}
