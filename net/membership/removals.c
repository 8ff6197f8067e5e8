/* SPDX-License-Identifier: Apache-2.0 */
#include "net/membership/removals.h"

#include <inttypes.h>
#include <string.h>

#include "net/config/config_orders.h"

static void drop(struct removals *removals, uint32_t at)
{
    memmove(&removals->of[at], &removals->of[at + 1], (--removals->count - at) * sizeof removals->of[0]);
}

/* One that is back, and is sent away again within its ten minutes, counts from the first time: or whoever sends it away
 * every nine minutes would keep everybody else from being sent away for ever. */
static void put(struct removals *removals, uint32_t id, uint32_t voters, uint64_t now_ms)
{
    for (uint32_t i = removals->count; i-- > 0;) {
        if (removals->of[i].id != id)
            continue;
        if (now_ms < removals->of[i].at_ms + REMOVALS_MS)
            return;
        drop(removals, i);
    }
    if (removals->count == REMOVALS_MAX)
        drop(removals, 0);
    removals->of[removals->count++] = (struct removal){.id = id, .voters = voters, .at_ms = now_ms};
}

void removals_note(struct removals *removals, const struct config *before, const struct config *config, uint64_t now_ms)
{
    bool first = removals->epoch == 0, again = removals->epoch > config->epoch;
    removals->epoch = again ? removals->epoch : config->epoch + 1;
    for (uint32_t i = 0; !first && !again && before != NULL && i < config->orders_count; i++)
        if (config_order_removes(before, &config->orders[i]))
            put(removals, config->orders[i].subject, config_voters(before), now_ms);
}

/* The first one within the last ten minutes. */
static uint32_t first_of(const struct removals *removals, uint64_t now_ms)
{
    uint32_t at = 0;
    while (at < removals->count && now_ms >= removals->of[at].at_ms + REMOVALS_MS)
        at++;
    return at;
}

static bool is_among(const struct removals *removals, uint32_t from, uint32_t id)
{
    for (uint32_t i = from; i < removals->count; i++)
        if (removals->of[i].id == id)
            return true;
    return false;
}

/* Whether one more may go where those before `from` count no more. */
static bool has_room(const struct removals *removals, uint32_t from, const struct config *config,
                     const struct config *next)
{
    uint32_t count = removals->count - from;
    for (uint32_t i = 0; i < next->orders_count; i++)
        count += config_order_removes(config, &next->orders[i]) && !is_among(removals, from, next->orders[i].subject);
    return from == removals->count || count < config_removed_most(removals->of[from].voters);
}

enum err removals_check(const struct removals *removals, const struct config *config, const struct config *next,
                        const struct order *order, uint64_t now_ms)
{
    uint32_t first = first_of(removals, now_ms), from = first;
    /* One that is back, and is sent away again, makes no fewer. */
    if (!config_order_removes(config, order) || is_among(removals, first, order->subject))
        return ERR_OK;
    while (!has_room(removals, from, config, next))
        from++;
    if (from == first)
        return ERR_OK;
    uint64_t left_ms = removals->of[from - 1].at_ms + REMOVALS_MS - now_ms;
    return err_set(ERR_STATE,
                   "only %" PRIu32 " of %" PRIu32 " voters can be sent away within ten minutes; ask again in %" PRIu64
                   " s",
                   config_removed_most(removals->of[first].voters), removals->of[first].voters, (left_ms + 999) / 1000);
}
