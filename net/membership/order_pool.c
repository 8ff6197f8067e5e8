/* SPDX-License-Identifier: Apache-2.0 */
#include "net/membership/order_pool.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/mem.h"
#include "common/quota.h"
#include "net/membership/removals.h"

/* What one member sends; of a slot that has passed to another member, what is left does no harm. */
struct order_sender {
    struct quota checks;
    struct digest bad[ORDER_POOL_BAD]; /* signatures, with what they are under */
    uint32_t bad_count;                /* ever, but for whole rounds: the oldest gives its place */
};

/* How often an order was left out, by its name; forgotten when it was not for so many epochs. */
enum { LEFT_OUT_EPOCHS = 2 };
struct left_out {
    uint32_t signer, count;
    uint64_t number, epoch;
};

struct order_pool {
    struct order_pool_conf conf;
    struct left_out left_out[ORDER_POOL_MAX];
    uint32_t left_out_count;
    struct waiting_order waiting[ORDER_POOL_MAX]; /* in order of signer, then number */
    uint32_t count;
    uint64_t begun; /* the newest configuration's epoch and one; 0: there was none yet */
    struct order_sender senders[VIEW_SLOTS_MAX];
    struct removals removals;
};

enum err order_pool_new(const struct order_pool_conf *conf, struct order_pool **out)
{
    TRY(mem_new(1, sizeof **out, "orders", out));
    (*out)->conf = *conf;
    return ERR_OK;
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

static uint32_t count_all_of(const struct order_pool *pool, uint32_t signer)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < pool->count; i++)
        count += pool->waiting[i].order.signer == signer;
    return count;
}

/* Takes the last order of the signer that has most, if `signer` has fewer with one more; ours and voids stay, but for
 * voids of others that may not order now. */
static bool make_way(struct order_pool *pool, uint32_t signer)
{
    uint32_t most = count_all_of(pool, signer) + 1, at = ORDER_POOL_MAX;
    for (uint32_t i = 0; i < pool->count; i++) {
        const struct waiting_order *waiting = &pool->waiting[i];
        uint32_t count = count_all_of(pool, waiting->order.signer);
        if (waiting->ours || (waiting->order.kind == ORDER_VOID && !waiting->powerless) || count < most ||
            (count == most && at == ORDER_POOL_MAX))
            continue;
        most = count;
        at = i;
    }
    if (at == ORDER_POOL_MAX)
        return false;
    drop(pool, at);
    return true;
}

static enum err make_room(struct order_pool *pool, const struct config *config, const struct order *order)
{
    bool approved = config_order_takes_approval(config, order);
    uint32_t most = approved ? ORDER_POOL_APPROVED_OF_ONE : ORDER_POOL_OF_ONE;
    if (count_of(pool, config, order->signer, approved) >= most)
        return err_set(ERR_AGAIN, "%" PRIu32 " orders of %s wait to be decided; no more can", most,
                       config_name_of(config, order->signer));
    if (pool->count == ORDER_POOL_MAX && !make_way(pool, order->signer))
        return err_set(ERR_AGAIN, "%d orders wait to be decided; no more can", ORDER_POOL_MAX);
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

/* Above all that were carried out, or wait. */
static uint64_t least_number(const struct order_pool *pool, const struct config *config, uint32_t self)
{
    uint64_t number = 0;
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

/* Tries it on a copy, so that what makes no sense is told to who gives it, not to nobody in ten minutes. `removals`:
 * NULL: whoever was sent away. */
static enum err try_out(const struct config *config, const struct removals *removals, const struct order *order,
                        uint64_t now_ms)
{
    struct config next;
    TRY(config_copy(config, &next));
    next.orders_count = next.words_count = 0;
    enum err err = removals != NULL ? removals_check(removals, config, &next, order, now_ms) : ERR_OK;
    if (err == ERR_OK)
        err = config_order_try(config, &next, order);
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
        TRY(config_order_stands(config, &same->order));
        same->since_ms = same->alive_ms = now_ms;
        if (number != NULL)
            *number = same->order.number;
        return ERR_OK;
    }
    TRY(make_room(pool, config, &order));
    order.number = least_number(pool, config, self);
    TRY(order_check(&order));
    TRY(config_order_stands(config, &order));
    TRY(config_order_newcomer(config, &order));
    TRY(try_out(config, &pool->removals, &order, now_ms));
    TRY(pool->conf.number(pool->conf.user, order.number, &order.number));
    order_sign(ident, config->nonce, &order);
    const struct config_member *as = config_member(config, self);
    if (config_order_takes_approval(config, &order) && as != NULL && as->voter)
        TRY(order_approve(ident, config->nonce, self, &order));
    put(pool, &order, now_ms)->ours = true;
    if (number != NULL)
        *number = order.number;
    return ERR_OK;
}

enum err order_pool_approve(struct order_pool *pool, const struct ident *ident, const struct config *config,
                            uint32_t self, uint32_t signer, uint64_t number)
{
    struct waiting_order *waiting = find(pool, signer, number);
    const struct config_member *as = config_member(config, self);
    if (waiting == NULL || waiting->order.kind == ORDER_VOID)
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

/* Others may have heard it, and whoever has can repeat it: so its number is taken back, too. */
static void make_void(const struct ident *ident, const struct config *config, struct waiting_order *waiting)
{
    struct order order = {.kind = ORDER_VOID,
                          .signer = waiting->order.signer,
                          .number = waiting->order.number,
                          .epoch = waiting->order.epoch,
                          .value = config_order_takes_approval(config, &waiting->order)};
    order_sign(ident, config->nonce, &order);
    waiting->order = order;
    waiting->told_ms = 0;
}

enum err order_pool_withdraw(struct order_pool *pool, const struct ident *ident, const struct config *config,
                             uint32_t self, uint64_t number)
{
    struct waiting_order *waiting = find(pool, self, number);
    if (waiting == NULL || waiting->order.kind == ORDER_VOID)
        return err_set(ERR_NOTFOUND, "no order %" PRIu64 " of this island waits", number);
    waiting->ours = true; /* from before a restart it is not */
    make_void(ident, config, waiting);
    return ERR_OK;
}

void order_pool_shut_out(struct order_pool *pool, const struct ident *ident, const struct config *config,
                         const struct digest *invitation)
{
    for (uint32_t i = 0; i < pool->count; i++) {
        struct waiting_order *waiting = &pool->waiting[i];
        if (waiting->ours && waiting->order.kind == ORDER_ADMIT &&
            digest_equal(&waiting->order.join.invitation, invitation))
            make_void(ident, config, waiting);
    }
}

/* ---- what may be checked ---- */

static bool known_bad(const struct order_sender *sender, const struct digest *what)
{
    uint32_t count = sender->bad_count < ORDER_POOL_BAD ? sender->bad_count : ORDER_POOL_BAD;
    for (uint32_t i = 0; i < count; i++)
        if (digest_equal(&sender->bad[i], what))
            return true;
    return false;
}

static void remember_bad(struct order_sender *sender, const struct digest *what)
{
    sender->bad[sender->bad_count % ORDER_POOL_BAD] = *what;
    sender->bad_count = sender->bad_count + 1 < 2 * ORDER_POOL_BAD ? sender->bad_count + 1 : ORDER_POOL_BAD;
}

/* Before the work. */
static bool charge(struct order_sender *sender, uint32_t checks, uint64_t now_ms)
{
    static const struct quota_rule rule = {.every_ms = ORDER_POOL_CHECK_MS, .at_once = ORDER_POOL_CHECKS};
    for (uint32_t i = 0; i < checks; i++)
        if (!quota_take(&sender->checks, rule, now_ms))
            return false;
    return true;
}

/* Its signature, and its newcomer's. */
static enum err check_signed(struct order_sender *sender, const struct config *config, const struct order *order,
                             uint64_t now_ms)
{
    struct digest what = order_digest(config->nonce, order);
    if (known_bad(sender, &what))
        return err_set(ERR_PROTO, "the signature is not of %s, as before", config_name_of(config, order->signer));
    if (!charge(sender, order->kind == ORDER_ADMIT ? 3 : 1, now_ms))
        return err_set(ERR_AGAIN, "more signatures than are checked of one member");
    enum err err = config_order_signed(config, order);
    if (err == ERR_OK)
        err = config_order_newcomer(config, order);
    if (err != ERR_OK)
        remember_bad(sender, &what);
    return err == ERR_STATE ? err_prefix(ERR_PROTO, "order %" PRIu64, order->number) : err;
}

/* ---- heard of ---- */

static bool has_approval(const struct order *order, uint32_t id)
{
    for (uint32_t k = 0; k < order->approvals_count; k++)
        if (order->approvals[k].id == id)
            return true;
    return false;
}

static struct digest approval_digest(const struct order *order, const struct order_approval *approval)
{
    uint8_t both[2 * IDENT_SIGNATURE_BYTES];
    memcpy(both, order->signature, IDENT_SIGNATURE_BYTES);
    memcpy(both + IDENT_SIGNATURE_BYTES, approval->signature, IDENT_SIGNATURE_BYTES);
    return digest_of(both, sizeof both);
}

/* Adds approvals that are good; true: there were some. */
static bool merge(struct order_sender *sender, const struct config *config, struct order *order,
                  const struct order *from, uint64_t now_ms)
{
    bool news = false;
    if (!config_order_takes_approval(config, order))
        return false;
    for (uint32_t i = 0; i < from->approvals_count; i++) {
        const struct order_approval *approval = &from->approvals[i];
        const struct config_member *member = config_member(config, approval->id);
        if (has_approval(order, approval->id) || member == NULL || !member->voter)
            continue;
        struct digest what = approval_digest(order, approval);
        if (known_bad(sender, &what))
            continue;
        if (!charge(sender, 1, now_ms))
            break;
        if (order_approved(member->key, config->nonce, order, approval))
            news |= order_add_approval(order, approval);
        else
            remember_bad(sender, &what);
    }
    return news;
}

/* Whether it may stand beside, or in the place of, the one of its number that waits. */
static enum err check_beside(const struct config *config, const struct waiting_order *waiting,
                             const struct order *order)
{
    if (waiting == NULL)
        return ERR_OK;
    if (waiting->order.kind == ORDER_VOID)
        return err_set(ERR_STATE, "order %" PRIu64 " of %s was withdrawn", order->number,
                       config_name_of(config, order->signer));
    if (order->kind == ORDER_VOID)
        return ERR_OK;
    if (waiting->ours)
        return err_set(ERR_STATE, "it has the number of one of ours");
    if (!order_same(&waiting->order, order)) /* people may be about to approve that one */
        return err_set(ERR_STATE, "it has the number of another order of %s that waits",
                       config_name_of(config, order->signer));
    return ERR_OK;
}

/* Its own epoch's, if that was before ours and is known; else ours. */
static const struct config *config_then(const struct order_pool *pool, const struct config *config,
                                        const struct order *order)
{
    const struct config *then = NULL;
    if (pool->conf.config_log != NULL && order->epoch < config->epoch)
        then = config_log_at(pool->conf.config_log, order->epoch);
    return then != NULL ? then : config;
}

/* What was carried out meanwhile, or is of an epoch before, an honest member may still repeat, if its signer gave it,
 * and might. Who is in a later epoch knows more than we do. */
static enum err check_stands(const struct order_pool *pool, struct order_sender *sender, const struct config *config,
                             const struct order *order, uint64_t now_ms)
{
    enum err err = config_order_stands(config, order);
    if (err != ERR_STATE || order->epoch > config->epoch)
        return err;
    const struct config *then = config_then(pool, config, order);
    struct order as_then = *order;
    as_then.epoch = then->epoch;
    if (!config_order_done(config, order) && config_order_stands(then, &as_then) != ERR_OK)
        return err_prefix(ERR_PROTO, "order %" PRIu64, order->number);
    TRY(check_signed(sender, then, order, now_ms));
    return config_order_stands(config, order);
}

enum err order_pool_take(struct order_pool *pool, const struct config *config, uint32_t from, const struct order *order,
                         uint64_t now_ms, bool *news)
{
    struct waiting_order *waiting = find(pool, order->signer, order->number);
    struct order_sender *sender = &pool->senders[from];
    *news = false;
    if (waiting != NULL && memcmp(waiting->order.signature, order->signature, sizeof order->signature) == 0) {
        waiting->alive_ms = now_ms; /* its signature was checked */
        *news = merge(sender, config, &waiting->order, order, now_ms);
        return ERR_OK;
    }
    TRY(check_beside(config, waiting, order));
    TRY(check_stands(pool, sender, config, order, now_ms));
    TRY(check_signed(sender, config, order, now_ms));
    TRY(try_out(config, NULL, order, now_ms)); /* it is sent again, if it makes sense by then */
    struct order bare = *order;
    bare.approvals_count = 0;
    if (waiting != NULL)
        drop(pool, (uint32_t)(waiting - pool->waiting));
    if (waiting == NULL || order->kind != ORDER_VOID)
        TRY(make_room(pool, config, order));
    waiting = put(pool, &bare, now_ms);
    (void)merge(sender, config, &waiting->order, order, now_ms);
    *news = true;
    return ERR_OK;
}

/* ---- time ---- */

static struct left_out *left_out_of(struct order_pool *pool, const struct order *order)
{
    for (uint32_t i = 0; i < pool->left_out_count; i++)
        if (pool->left_out[i].signer == order->signer && pool->left_out[i].number == order->number)
            return &pool->left_out[i];
    return NULL;
}

/* What might have been carried out in this configuration, and was not. It is signed anew in each epoch and comes again:
 * so how often is kept beside it, for as long as it comes. */
static void note_left_out(struct order_pool *pool, const struct config *config)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < pool->left_out_count; i++)
        if (config->epoch <= pool->left_out[i].epoch + LEFT_OUT_EPOCHS)
            pool->left_out[kept++] = pool->left_out[i];
    pool->left_out_count = kept;
    for (uint32_t i = 0; i < pool->count; i++) {
        struct waiting_order *waiting = &pool->waiting[i];
        bool counts = waiting->due && !config_order_done(config, &waiting->order);
        struct left_out *left_out = counts ? left_out_of(pool, &waiting->order) : NULL;
        waiting->due = false;
        if (!counts || (left_out == NULL && pool->left_out_count == ORDER_POOL_MAX))
            continue;
        if (left_out == NULL) {
            left_out = &pool->left_out[pool->left_out_count++];
            *left_out = (struct left_out){.signer = waiting->order.signer, .number = waiting->order.number};
        }
        left_out->epoch = config->epoch;
        left_out->count++;
    }
}

static bool is_rekeyed(const struct config *config, uint32_t id)
{
    bool rekeyed = false;
    for (uint32_t i = 0; i < config->orders_count; i++)
        rekeyed |= config->orders[i].kind == ORDER_REKEY && config->orders[i].subject == id;
    return rekeyed;
}

/* Approvals of a key that is its voter's no more count nothing: they are given again. */
static void drop_outdated(const struct config *config, struct order *order)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < order->approvals_count; i++)
        if (!is_rekeyed(config, order->approvals[i].id))
            order->approvals[kept++] = order->approvals[i];
    order->approvals_count = kept;
}

/* What its signer signed with a key that it has no more is no order of it. False: it goes. Ours begins anew. */
static bool follow_rekey(const struct ident *ident, const struct config *config, struct waiting_order *waiting)
{
    drop_outdated(config, &waiting->order);
    if (!is_rekeyed(config, waiting->order.signer))
        return true;
    if (!waiting->ours || waiting->order.kind == ORDER_VOID)
        return false;
    waiting->order.epoch = config->epoch;
    waiting->order.approvals_count = 0;
    order_sign(ident, config->nonce, &waiting->order);
    const struct config_member *as = config_member(config, waiting->order.signer);
    return !config_order_takes_approval(config, &waiting->order) || as == NULL || !as->voter ||
           order_approve(ident, config->nonce, as->id, &waiting->order) == ERR_OK;
}

void order_pool_begin(struct order_pool *pool, const struct ident *ident, const struct config *before,
                      const struct config *config, uint64_t now_ms)
{
    bool again = pool->begun > config->epoch; /* when a doubt ends: what has happened in it since stands */
    pool->begun = again ? pool->begun : config->epoch + 1;
    if (!again)
        note_left_out(pool, config);
    removals_note(&pool->removals, before, config, now_ms);
    for (uint32_t i = pool->count; i-- > 0;) {
        struct waiting_order *waiting = &pool->waiting[i];
        bool gathers = config_order_takes_approval(config, &waiting->order);
        if (config_order_done(config, &waiting->order) || (!again && !follow_rekey(ident, config, waiting))) {
            drop(pool, i);
            continue;
        }
        waiting->pointless = try_out(config, NULL, &waiting->order, now_ms) != ERR_OK;
        /* Approvals are of the order as it was signed first, and a void ends with what it withdraws. */
        if (waiting->ours && !gathers && !waiting->pointless && waiting->order.kind != ORDER_VOID) {
            waiting->order.epoch = config->epoch;
            waiting->order.approvals_count = 0;
            order_sign(ident, config->nonce, &waiting->order);
        }
        bool kept = waiting->order.kind == ORDER_VOID || (waiting->ours && gathers);
        waiting->powerless = config_order_stands(config, &waiting->order) != ERR_OK;
        bool stays = !waiting->powerless || (kept && config_order_lasts(config, &waiting->order));
        if (waiting->pointless ? !waiting->ours : !stays)
            drop(pool, i);
        else
            waiting->told_ms = 0;
    }
}

/* Why an order of ours is asked no more; NULL: it stands. */
static const char *end_of(const struct waiting_order *waiting, bool gathers, bool majority, uint64_t now_ms)
{
    if (waiting->pointless)
        return waiting->order.kind == ORDER_STEPS ? "the run is that long already, or results name that step"
                                                  : "it would change nothing any more";
    uint64_t life_ms = gathers ? (uint64_t)ORDER_POOL_APPROVED_MS : ORDER_POOL_OWN_MS;
    if (waiting->order.kind == ORDER_ADMIT && now_ms > waiting->alive_ms + ORDER_POOL_JOIN_MS)
        return "its guest does not ask any more";
    if (waiting->order.kind != ORDER_ADMIT && now_ms > waiting->since_ms + life_ms)
        return gathers ? "it was not approved within seven days" : "it was not decided within ten minutes";
    return gathers || majority ? NULL : "no majority of the voters is heard";
}

/* From then on it is left out by whoever makes a configuration without it. Out of memory it is so a little later. */
static void note_due(struct order_pool *pool, const struct config *config, uint64_t now_ms)
{
    const struct order *allowed[CONFIG_ORDERS_MAX];
    uint32_t count = 0;
    bool all_due = true;
    for (uint32_t i = 0; i < pool->count; i++)
        all_due &= pool->waiting[i].due;
    if (all_due || order_pool_allowed(pool, config, false, now_ms, allowed, &count) != ERR_OK)
        return;
    for (uint32_t i = 0; i < pool->count; i++)
        for (uint32_t k = 0; k < count; k++)
            pool->waiting[i].due |= allowed[k] == &pool->waiting[i].order;
}

void order_pool_tick(struct order_pool *pool, const struct ident *ident, const struct config *config, bool majority,
                     uint64_t now_ms, void (*ended)(void *user, const struct order *order, const char *why), void *user)
{
    for (uint32_t i = pool->count; i-- > 0;) {
        struct waiting_order *waiting = &pool->waiting[i];
        bool gathers = config_order_takes_approval(config, &waiting->order);
        uint64_t end_ms = waiting->approved ? waiting->since_ms + (uint64_t)ORDER_POOL_APPROVED_MS
                                            : waiting->alive_ms + ORDER_POOL_HEARD_MS;
        if (waiting->order.kind == ORDER_VOID)
            continue;
        if (!waiting->ours && now_ms > end_ms) {
            drop(pool, i);
            continue;
        }
        const char *why = waiting->ours ? end_of(waiting, gathers, majority, now_ms) : NULL;
        if (why == NULL)
            continue;
        if (ended != NULL)
            ended(user, &waiting->order, why);
        if (config_order_lasts(config, &waiting->order))
            make_void(ident, config, waiting);
        else
            drop(pool, i); /* of an epoch before: nobody can use it */
    }
    note_due(pool, config, now_ms);
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
        if ((!waiting->ours && !waiting->approved) || waiting->pointless || waiting->powerless || !again)
            continue;
        waiting->told_ms = now_ms > 0 ? now_ms : 1;
        return &waiting->order;
    }
    return NULL;
}

uint32_t order_pool_left_out(const struct order_pool *pool)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < pool->count; i++)
        for (uint32_t k = 0; pool->waiting[i].due && k < pool->left_out_count; k++)
            if (pool->left_out[k].signer == pool->waiting[i].order.signer &&
                pool->left_out[k].number == pool->waiting[i].order.number && pool->left_out[k].count > most)
                most = pool->left_out[k].count;
    return most;
}

uint32_t order_pool_agree(const struct config *config, const struct order *order)
{
    uint32_t agree = 0;
    for (uint32_t i = 0; i < order->approvals_count; i++) {
        const struct config_member *member = config_member(config, order->approvals[i].id);
        agree += member != NULL && member->voter;
    }
    return agree;
}

/* Its signature was checked when it came. */
static bool is_ready(const struct config *config, const struct order *order, bool all)
{
    const struct config_member *signer = config_member(config, order->signer);
    if (config_order_stands(config, order) != ERR_OK)
        return false;
    if (order->kind == ORDER_VOID && !all)
        return signer != NULL && signer->operates;
    return !config_order_takes_approval(config, order) || order_pool_agree(config, order) >= config_majority(config);
}

/* Which of them go into `next`, each on top of those before it: the first of each signer, then the second of each, and
 * so on. Who begins changes with the epoch. */
static enum err choose(const struct order_pool *pool, const struct config *config, bool all, uint64_t now_ms,
                       struct config *next, bool chosen[ORDER_POOL_MAX])
{
    uint32_t begin[ORDER_POOL_MAX + 1], signers = 0;
    bool more = true;
    for (uint32_t i = 0; i < pool->count; i++)
        if (i == 0 || pool->waiting[i].order.signer != pool->waiting[i - 1].order.signer)
            begin[signers++] = i;
    begin[signers] = pool->count;
    for (uint32_t turn = 0; more; turn++) {
        more = false;
        for (uint32_t s = 0; s < signers && next->orders_count < CONFIG_ORDERS_MAX; s++) {
            uint32_t k = (uint32_t)((s + config->epoch) % signers), at = begin[k] + turn;
            if (at >= begin[k + 1])
                continue;
            more = true;
            if (!is_ready(config, &pool->waiting[at].order, all))
                continue;
            enum err err = removals_check(&pool->removals, config, next, &pool->waiting[at].order, now_ms);
            if (err == ERR_OK)
                err = config_order_try(config, next, &pool->waiting[at].order);
            if (err == ERR_NOMEM)
                return err;
            chosen[at] = err == ERR_OK;
        }
    }
    return ERR_OK;
}

enum err order_pool_allowed(const struct order_pool *pool, const struct config *config, bool all, uint64_t now_ms,
                            const struct order *out[CONFIG_ORDERS_MAX], uint32_t *count)
{
    struct config next;
    bool chosen[ORDER_POOL_MAX] = {false};
    *count = 0;
    if (pool->count == 0)
        return ERR_OK;
    TRY(config_copy(config, &next));
    next.orders_count = next.words_count = 0;
    enum err err = choose(pool, config, all, now_ms, &next, chosen);
    config_deinit(&next);
    TRY(err);
    for (uint32_t i = 0; i < pool->count; i++)
        if (chosen[i])
            out[(*count)++] = &pool->waiting[i].order;
    return ERR_OK;
}
