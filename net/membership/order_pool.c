/* SPDX-License-Identifier: Apache-2.0 */
#include "net/membership/order_pool.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/mem.h"

struct order_pool {
    struct waiting_order waiting[ORDER_POOL_MAX]; /* in order of signer, then number */
    uint32_t count;
    uint64_t given; /* the highest number of an order that was given here */
};

enum err order_pool_new(struct order_pool **out)
{
    return mem_new(1, sizeof **out, "orders", out);
}

void order_pool_free(struct order_pool *pool)
{
    mem_free(pool);
}

static void drop(struct order_pool *pool, uint32_t at)
{
    memmove(&pool->waiting[at], &pool->waiting[at + 1], (--pool->count - at) * sizeof pool->waiting[0]);
}

/* Of one signer, that take approvals, or that take none. */
static uint32_t count_of(const struct order_pool *pool, const struct config *config, uint32_t signer, bool approved)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < pool->count; i++)
        count += pool->waiting[i].order.signer == signer &&
                 config_order_takes_approval(config, &pool->waiting[i].order) == approved;
    return count;
}

static struct waiting_order *find(struct order_pool *pool, uint32_t signer, uint64_t number)
{
    for (uint32_t i = 0; i < pool->count; i++)
        if (pool->waiting[i].order.signer == signer && pool->waiting[i].order.number == number)
            return &pool->waiting[i];
    return NULL;
}

static enum err make_room(const struct order_pool *pool, const struct config *config, const struct order *order)
{
    bool approved = config_order_takes_approval(config, order);
    uint32_t most = approved ? ORDER_POOL_APPROVED_OF_ONE : ORDER_POOL_OF_ONE;
    if (count_of(pool, config, order->signer, approved) >= most)
        return err_set(ERR_STATE, "%" PRIu32 " orders of %s wait to be decided; no more can", most,
                       config_name_of(config, order->signer));
    if (pool->count == ORDER_POOL_MAX)
        return err_set(ERR_STATE, "%d orders wait to be decided; no more can", ORDER_POOL_MAX);
    return ERR_OK;
}

static struct waiting_order *put(struct order_pool *pool, const struct order *order, uint64_t now_ms)
{
    uint32_t at = pool->count;
    while (at > 0 && order_compare(&pool->waiting[at - 1].order, order) > 0)
        at--;
    memmove(&pool->waiting[at + 1], &pool->waiting[at], (pool->count - at) * sizeof pool->waiting[0]);
    pool->count++;
    pool->waiting[at] = (struct waiting_order){.order = *order, .since_ms = now_ms, .alive_ms = now_ms};
    return &pool->waiting[at];
}

/* ---- given here ---- */

/* Above all that were carried out, wait, or were withdrawn: others may still have those. */
static uint64_t next_number(const struct order_pool *pool, const struct config *config, uint32_t self)
{
    uint64_t number = pool->given;
    for (uint32_t i = 0; i < config->marks_count; i++)
        if (config->marks[i].id == self && config->marks[i].number > number)
            number = config->marks[i].number;
    for (uint32_t i = 0; i < pool->count; i++)
        if (pool->waiting[i].order.signer == self && pool->waiting[i].order.number > number)
            number = pool->waiting[i].order.number;
    return number + 1;
}

/* Ours that asks for the same. */
static struct waiting_order *same_of_ours(struct order_pool *pool, const struct order *what)
{
    for (uint32_t i = 0; i < pool->count; i++) {
        struct order like = pool->waiting[i].order;
        like.number = what->number;
        like.signer = what->signer;
        if (pool->waiting[i].ours && order_same(&like, what))
            return &pool->waiting[i];
    }
    return NULL;
}

/* Tries it on a copy, so that what makes no sense is told to who gives it, not to nobody in ten minutes. */
static enum err try_out(const struct config *config, const struct order *order)
{
    struct config next;
    TRY(config_copy(config, &next));
    next.orders_count = next.words_count = 0;
    enum err err = config_order_apply(config, &next, order);
    config_deinit(&next);
    return err;
}

enum err order_pool_give(struct order_pool *pool, const struct ident *ident, const struct config *config, uint32_t self,
                         const struct order *what, uint64_t now_ms, uint64_t *number)
{
    struct order order = *what;
    order.signer = self;
    order.number = 1;
    order.epoch = config->epoch;
    order.approvals_count = 0;
    struct waiting_order *same = same_of_ours(pool, &order);
    if (same != NULL) {
        same->alive_ms = now_ms;
        if (number != NULL)
            *number = same->order.number;
        return ERR_OK;
    }
    TRY(make_room(pool, config, &order));
    order.number = next_number(pool, config, self);
    TRY(order_check(&order));
    order_sign(ident, config->nonce, &order);
    TRY(config_order_allowed(config, &order, true));
    TRY(try_out(config, &order));
    const struct config_member *as = config_member(config, self);
    if (config_order_takes_approval(config, &order) && as != NULL && as->voter)
        TRY(order_approve(ident, config->nonce, self, &order));
    put(pool, &order, now_ms)->ours = true;
    pool->given = order.number;
    if (number != NULL)
        *number = order.number;
    return ERR_OK;
}

enum err order_pool_approve(struct order_pool *pool, const struct ident *ident, const struct config *config,
                            uint32_t self, uint32_t signer, uint64_t number)
{
    struct waiting_order *waiting = find(pool, signer, number);
    const struct config_member *as = config_member(config, self);
    if (waiting == NULL)
        return err_set(ERR_NOTFOUND, "no order %" PRIu64 " of %s waits here", number, config_name_of(config, signer));
    if (!config_order_takes_approval(config, &waiting->order))
        return err_set(ERR_STATE, "order %" PRIu64 " of %s takes no approval", number, config_name_of(config, signer));
    if (as == NULL || !as->voter)
        return err_set(ERR_STATE, "this island does not vote, so its approval counts nothing");
    TRY(order_approve(ident, config->nonce, self, &waiting->order));
    waiting->approved = true;
    waiting->told_ms = 0;
    return ERR_OK;
}

enum err order_pool_withdraw(struct order_pool *pool, uint32_t self, uint64_t number)
{
    struct waiting_order *waiting = find(pool, self, number);
    if (waiting == NULL || !waiting->ours)
        return err_set(ERR_NOTFOUND, "no order %" PRIu64 " of this island waits", number);
    drop(pool, (uint32_t)(waiting - pool->waiting));
    return ERR_OK;
}

/* ---- heard of ---- */

/* Adds approvals that are good; true: there were some. */
static bool merge(const struct config *config, struct order *order, const struct order *from)
{
    bool news = false;
    for (uint32_t i = 0; i < from->approvals_count; i++) {
        const struct order_approval *approval = &from->approvals[i];
        const struct config_member *member = config_member(config, approval->id);
        bool there = false;
        for (uint32_t k = 0; k < order->approvals_count; k++)
            there |= order->approvals[k].id == approval->id;
        if (!there && member != NULL && member->voter && order_approved(member->key, config->nonce, order, approval))
            news |= order_add_approval(order, approval);
    }
    return news;
}

enum err order_pool_take(struct order_pool *pool, const struct config *config, const struct order *order,
                         uint64_t now_ms, bool *news)
{
    struct waiting_order *waiting = find(pool, order->signer, order->number);
    *news = false;
    if (waiting != NULL && memcmp(waiting->order.signature, order->signature, sizeof order->signature) == 0) {
        waiting->alive_ms = now_ms; /* its signature was checked */
        *news = merge(config, &waiting->order, order);
        return ERR_OK;
    }
    if (waiting != NULL && waiting->ours)
        return err_set(ERR_STATE, "it has the number of one of ours");
    if (waiting != NULL && !order_same(&waiting->order, order)) /* people may be about to approve that one */
        return err_set(ERR_STATE, "it has the number of another order of %s that waits",
                       config_name_of(config, order->signer));
    TRY(config_order_allowed(config, order, true));
    if (waiting != NULL)
        drop(pool, (uint32_t)(waiting - pool->waiting));
    TRY(make_room(pool, config, order));
    struct order bare = *order;
    bare.approvals_count = 0;
    waiting = put(pool, &bare, now_ms);
    (void)merge(config, &waiting->order, order);
    *news = true;
    return ERR_OK;
}

/* ---- time ---- */

void order_pool_begin(struct order_pool *pool, const struct ident *ident, const struct config *config)
{
    for (uint32_t i = pool->count; i-- > 0;) {
        struct waiting_order *waiting = &pool->waiting[i];
        bool gathers = config_order_takes_approval(config, &waiting->order);
        if (config_order_done(config, &waiting->order)) {
            drop(pool, i);
            continue;
        }
        if (waiting->ours && !gathers) { /* approvals are of the order as it was signed first */
            waiting->order.epoch = config->epoch;
            waiting->order.approvals_count = 0;
            order_sign(ident, config->nonce, &waiting->order);
        }
        if (config_order_allowed(config, &waiting->order, true) != ERR_OK)
            drop(pool, i);
        else
            waiting->told_ms = 0;
    }
}

/* Why an order of ours is asked no more; NULL: it stands. */
static const char *end_of(const struct waiting_order *waiting, bool gathers, bool majority, uint64_t now_ms)
{
    uint64_t life_ms = gathers ? (uint64_t)ORDER_POOL_APPROVED_MS : ORDER_POOL_OWN_MS;
    if (waiting->order.kind == ORDER_ADMIT && now_ms > waiting->alive_ms + ORDER_POOL_JOIN_MS)
        return "its guest does not ask any more";
    if (waiting->order.kind != ORDER_ADMIT && now_ms > waiting->since_ms + life_ms)
        return gathers ? "it was not approved within seven days" : "it was not decided within ten minutes";
    return gathers || majority ? NULL : "no majority of the voters is heard";
}

void order_pool_tick(struct order_pool *pool, const struct config *config, bool majority, uint64_t now_ms,
                     void (*ended)(void *user, const struct order *order, const char *why), void *user)
{
    for (uint32_t i = pool->count; i-- > 0;) {
        struct waiting_order *waiting = &pool->waiting[i];
        bool gathers = config_order_takes_approval(config, &waiting->order);
        const char *why = waiting->ours ? end_of(waiting, gathers, majority, now_ms) : NULL;
        uint64_t end_ms = waiting->approved ? waiting->since_ms + (uint64_t)ORDER_POOL_APPROVED_MS
                                            : waiting->alive_ms + ORDER_POOL_HEARD_MS;
        bool over = waiting->ours ? why != NULL : now_ms > end_ms;
        if (!over)
            continue;
        if (why != NULL && ended != NULL)
            ended(user, &waiting->order, why);
        drop(pool, i);
    }
}

/* ---- looking in ---- */

const struct waiting_order *order_pool_next(const struct order_pool *pool, uint32_t *at)
{
    return *at < pool->count ? &pool->waiting[(*at)++] : NULL;
}

const struct order *order_pool_to_tell(struct order_pool *pool, uint64_t now_ms)
{
    for (uint32_t i = 0; i < pool->count; i++) {
        struct waiting_order *waiting = &pool->waiting[i];
        bool again = waiting->told_ms == 0 || now_ms >= waiting->told_ms + ORDER_POOL_AGAIN_MS;
        if ((!waiting->ours && !waiting->approved) || !again)
            continue;
        waiting->told_ms = now_ms > 0 ? now_ms : 1;
        return &waiting->order;
    }
    return NULL;
}

/* Their signatures were checked when they came. */
static bool is_ready(const struct config *config, const struct order *order)
{
    return !config_order_takes_approval(config, order) ||
           config_order_approvals(config, order) >= config_majority(config);
}

uint32_t order_pool_allowed(const struct order_pool *pool, const struct config *config,
                            const struct order *out[CONFIG_ORDERS_MAX])
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < pool->count && count < CONFIG_ORDERS_MAX; i++)
        if (is_ready(config, &pool->waiting[i].order))
            out[count++] = &pool->waiting[i].order;
    return count;
}

bool order_pool_any(const struct order_pool *pool, const struct config *config)
{
    for (uint32_t i = 0; i < pool->count; i++)
        if (is_ready(config, &pool->waiting[i].order) && try_out(config, &pool->waiting[i].order) == ERR_OK)
            return true;
    return false;
}
