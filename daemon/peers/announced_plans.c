/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/announced_plans.h"

/* Once one has announced the run's plan, the others have so long to announce theirs. */
enum { PLAN_HEARD_MS = 2000 };

void announced_plans_note(struct announced_plans *plans, uint32_t slot, bool known, const struct digest *plan)
{
    if (known)
        bitset_add(&plans->known, slot);
    else
        bitset_remove(&plans->known, slot);
    plans->of[slot] = *plan;
}

struct support {
    uint32_t voters, members, lowest;
};

static struct support support_of(const struct plan_said *said, uint32_t count, const struct digest *plan)
{
    struct support support = {.lowest = UINT32_MAX};
    for (uint32_t i = 0; i < count; i++) {
        if (!digest_equal(&said[i].plan, plan))
            continue;
        support.voters += said[i].voter;
        support.members++;
        support.lowest = said[i].id < support.lowest ? said[i].id : support.lowest;
    }
    return support;
}

static bool is_more(const struct support *left, const struct support *right)
{
    if (left->voters != right->voters)
        return left->voters > right->voters;
    if (left->members != right->members)
        return left->members > right->members;
    return left->lowest < right->lowest;
}

uint32_t plan_of_most(const struct plan_said *said, uint32_t count)
{
    uint32_t best = count;
    struct support most = {.lowest = UINT32_MAX};
    for (uint32_t i = 0; i < count; i++) {
        if (best < count && digest_equal(&said[i].plan, &said[best].plan))
            continue;
        struct support support = support_of(said, count, &said[i].plan);
        if (best < count && !is_more(&support, &most))
            continue;
        best = i;
        most = support;
    }
    return best;
}

/* Whether all have had their time to say which plan the run has: one who lies may be the first to be heard. */
static bool are_said(struct announced_plans *plans, const struct bitset *with_plan, bool all_heard, uint64_t now_ms)
{
    if (bitset_empty(with_plan))
        plans->heard_ms = 0;
    else if (plans->heard_ms == 0)
        plans->heard_ms = now_ms;
    return plans->heard_ms != 0 && (all_heard || now_ms >= plans->heard_ms + PLAN_HEARD_MS);
}

struct bitset announced_plans_holders(struct announced_plans *plans, const struct view *view, const struct bitset *up,
                                      bool all_heard, uint64_t now_ms)
{
    struct bitset with_plan = *up, holders = {{0}};
    struct plan_said said[VIEW_SLOTS_MAX];
    uint32_t count = 0;
    bitset_keep_all(&with_plan, &plans->known);
    if (!are_said(plans, &with_plan, all_heard, now_ms))
        return holders;
    for (uint32_t i = 0; i < view->count; i++) {
        const struct config_member *as = &view->members[i].as;
        if (bitset_has(&with_plan, i))
            said[count++] = (struct plan_said){.id = as->id, .voter = as->voter, .plan = plans->of[i]};
    }
    const struct digest *plan = &said[plan_of_most(said, count)].plan;
    for (uint32_t i = 0; i < view->count; i++)
        if (bitset_has(&with_plan, i) && digest_equal(&plans->of[i], plan))
            bitset_add(&holders, i);
    return holders;
}
