/* SPDX-License-Identifier: Apache-2.0 */
#include "net/config/config_deal.h"

#include <inttypes.h>

_Static_assert((int)CONFIG_MEMBERS_MAX <= (int)DEAL_MEMBERS_MAX, "a list has room for all members");

/* Whoever is about to come draws soon, and until then leaves a hole, as a slow one does. */
static bool is_dealt_to(const struct config_member *member)
{
    return member->units > 0 &&
           (member->role == CONFIG_OWNER || member->role == CONFIG_CONTRIBUTOR || member->role == CONFIG_OBSERVER);
}

struct deal_list config_deal_list(const struct config *config, struct deal_share shares[DEAL_MEMBERS_MAX])
{
    struct deal_list list = {.start = config->deal.start, .counted_step = config->deal.counted_step, .shares = shares};
    for (uint32_t i = 0; i < config->members_count && i < DEAL_MEMBERS_MAX; i++)
        if (is_dealt_to(&config->members[i]))
            shares[list.count++] = (struct deal_share){.id = config->members[i].id, .units = config->members[i].units};
    deal_limit(shares, list.count);
    return list;
}

/* Where `next` starts to deal by the rule. */
static struct deal_start start_of(const struct config *previous, uint64_t counted_step, const struct config *next)
{
    struct deal_share old_shares[DEAL_MEMBERS_MAX], new_shares[DEAL_MEMBERS_MAX];
    struct deal_list old = config_deal_list(previous, old_shares), new = config_deal_list(next, new_shares);
    if (deal_same(old.shares, old.count, new.shares, new.count))
        return old.start;
    return deal_start_next(&old, counted_step, previous->deal.horizon);
}

void config_deal_next(const struct config *previous, uint64_t counted_step, struct config *next)
{
    next->deal = previous->deal;
    next->deal.counted_step = counted_step;
    next->deal.start = start_of(previous, counted_step, next);
}

enum err config_deal_check(const struct config *config)
{
    const struct config_deal *deal = &config->deal;
    if (deal->horizon > UINT32_MAX || deal->counted_step >= CONFIG_NUMBER_MAX)
        return err_set(ERR_PROTO, "a configuration that deals data for %" PRIu64 " steps beyond step %" PRIu64,
                       deal->horizon, deal->counted_step);
    if (config->epoch == 0 && (deal->counted_step != 0 || deal->start.step > 1 || deal->start.position != 0))
        return err_set(ERR_PROTO, "configuration 0 deals data from step %" PRIu64, deal->start.step);
    return ERR_OK;
}

enum err config_deal_follows(const struct config *previous, const struct config *next)
{
    if (next->deal.horizon != previous->deal.horizon || next->deal.counted_step < previous->deal.counted_step)
        return err_set(ERR_PROTO,
                       "configuration %" PRIu64 " deals data for %" PRIu64 " steps beyond step %" PRIu64
                       ", and the one before for %" PRIu64 " beyond %" PRIu64,
                       next->epoch, next->deal.horizon, next->deal.counted_step, previous->deal.horizon,
                       previous->deal.counted_step);
    if (next->deal.counted_step > config_steps_most(previous))
        return err_set(ERR_PROTO,
                       "configuration %" PRIu64 " deals data as if a result of step %" PRIu64
                       " were applied, in a run of %" PRIu64,
                       next->epoch, next->deal.counted_step, config_steps_most(previous));
    struct deal_start start = start_of(previous, next->deal.counted_step, next);
    if (start.step != next->deal.start.step || start.position != next->deal.start.position)
        return err_set(ERR_PROTO,
                       "configuration %" PRIu64 " deals data from step %" PRIu64 ", position %" PRIu64
                       ", and by the rule from step %" PRIu64 ", position %" PRIu64,
                       next->epoch, next->deal.start.step, next->deal.start.position, start.step, start.position);
    return ERR_OK;
}
