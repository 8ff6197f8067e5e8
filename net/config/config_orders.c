/* SPDX-License-Identifier: Apache-2.0 */
#include "net/config/config_orders.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/mem.h"

enum { BELOW = 64 }; /* numbers below the highest that a mark tells of */

const char *config_name_of(const struct config *config, uint32_t id)
{
    static _Thread_local char text[32];
    const struct config_member *member = config_member(config, id);
    snprintf(text, sizeof text, "id %" PRIu32, id);
    return member != NULL ? member->name : text;
}

static struct config_member *row_of(struct config *config, uint32_t id)
{
    return (struct config_member *)(uintptr_t)config_member(config, id);
}

/* ---- which were carried out ---- */

static const struct config_mark *mark_of(const struct config *config, uint32_t id)
{
    for (uint32_t i = 0; i < config->marks_count; i++)
        if (config->marks[i].id == id)
            return &config->marks[i];
    return NULL;
}

bool config_order_done(const struct config *config, const struct order *order)
{
    const struct config_mark *mark = mark_of(config, order->signer);
    if (mark == NULL || order->number > mark->number)
        return false;
    uint64_t back = mark->number - order->number;
    return back == 0 || back > BELOW || (mark->below >> (back - 1) & 1) != 0;
}

static enum err put_mark(struct config *next, const struct order *order)
{
    uint32_t at = 0;
    while (at < next->marks_count && next->marks[at].id < order->signer)
        at++;
    if (at == next->marks_count || next->marks[at].id != order->signer) {
        TRY(mem_grow(&next->marks, next->marks_count, (size_t)next->marks_count + 1, sizeof *next->marks, "marks"));
        memmove(&next->marks[at + 1], &next->marks[at], (next->marks_count - at) * sizeof *next->marks);
        next->marks[at] = (struct config_mark){.id = order->signer, .number = order->number};
        next->marks_count++;
        return ERR_OK;
    }
    struct config_mark *mark = &next->marks[at];
    if (order->number > mark->number) {
        uint64_t on = order->number - mark->number;
        mark->below = (on < BELOW ? mark->below << on : 0) | (on <= BELOW ? (uint64_t)1 << (on - 1) : 0);
        mark->number = order->number;
    } else if (order->number < mark->number) {
        mark->below |= (uint64_t)1 << (mark->number - order->number - 1);
    }
    return ERR_OK;
}

static void drop_mark(struct config *next, uint32_t id)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < next->marks_count; i++)
        if (next->marks[i].id != id)
            next->marks[kept++] = next->marks[i];
    next->marks_count = kept;
}

/* ---- who may ---- */

static bool concerns_operators(const struct config *config, const struct order *order)
{
    const struct config_member *subject =
        order_about_member(order->kind) ? config_member(config, order->subject) : NULL;
    switch (order->kind) {
    case ORDER_GRANT:
    case ORDER_UNGRANT:
    case ORDER_FOUNDER: return true;
    /* Of itself, too: whoever has stolen an operator's key would shut out its owner by it. */
    case ORDER_REKEY: return subject != NULL && subject->operates;
    case ORDER_EVICT:
    case ORDER_REVOKE:
    case ORDER_CONTRIBUTOR: return subject != NULL && subject->operates && order->subject != order->signer;
    default: return false;
    }
}

bool config_order_takes_approval(const struct config *config, const struct order *order)
{
    return concerns_operators(config, order) && order->signer != config->founder;
}

uint32_t config_order_approvals(const struct config *config, const struct order *order)
{
    uint32_t good = 0;
    for (uint32_t i = 0; i < order->approvals_count; i++) {
        const struct config_member *member = config_member(config, order->approvals[i].id);
        good +=
            member != NULL && member->voter && order_approved(member->key, config->nonce, order, &order->approvals[i]);
    }
    return good;
}

static enum err check_epoch(const struct config *config, const struct order *order, bool takes_approval)
{
    /* One that withdraws lives as long as what it withdraws. */
    bool lasts = takes_approval || (order->kind == ORDER_VOID && order->value != 0);
    uint64_t epochs = lasts ? CONFIG_ORDER_EPOCHS : 1;
    if (order->epoch <= config->epoch && config->epoch - order->epoch < epochs)
        return ERR_OK;
    return err_set(ERR_STATE, "it was signed in epoch %" PRIu64 ", and this is epoch %" PRIu64, order->epoch,
                   config->epoch);
}

/* Says who is. */
static enum err no_operator(const struct config *config, const struct config_member *signer)
{
    char operators[200] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < config->members_count; i++) {
        const struct config_member *member = &config->members[i];
        if (!member->operates || used + strlen(member->name) + 2 >= sizeof operators)
            continue;
        used += (size_t)snprintf(operators + used, sizeof operators - used, "%s%s", used > 0 ? ", " : "", member->name);
    }
    return err_set(ERR_STATE, "%s is no operator; the run's operators: %s", signer->name,
                   used > 0 ? operators : "none now, so a majority of the islands that vote has to approve one");
}

enum err config_order_stands(const struct config *config, const struct order *order)
{
    const struct config_member *signer = config_member(config, order->signer);
    bool takes_approval = config_order_takes_approval(config, order);
    if (signer == NULL)
        return err_set(ERR_STATE, "its signer, id %" PRIu32 ", is not on the roster", order->signer);
    /* Who votes may have given one that takes approvals. */
    if (!signer->operates && !((takes_approval || order->kind == ORDER_VOID) && signer->voter))
        return no_operator(config, signer);
    if (config_order_done(config, order))
        return err_set(ERR_STATE, "order %" PRIu64 " of %s was carried out, or withdrawn", order->number, signer->name);
    return check_epoch(config, order, takes_approval);
}

bool config_order_lasts(const struct config *config, const struct order *order)
{
    return config_member(config, order->signer) != NULL && !config_order_done(config, order) &&
           check_epoch(config, order, config_order_takes_approval(config, order)) == ERR_OK;
}

enum err config_order_signed(const struct config *config, const struct order *order)
{
    const struct config_member *signer = config_member(config, order->signer);
    if (signer == NULL || !order_signed(signer->key, config->nonce, order))
        return err_set(ERR_STATE, "the signature is not of %s", config_name_of(config, order->signer));
    return ERR_OK;
}

enum err config_order_allowed(const struct config *config, const struct order *order, bool pending)
{
    TRY(config_order_stands(config, order));
    TRY(config_order_signed(config, order));
    if (!config_order_takes_approval(config, order) || pending)
        return ERR_OK;
    uint32_t good = config_order_approvals(config, order), needed = config_majority(config);
    if (good < needed)
        return err_set(ERR_STATE, "it has the approval of %" PRIu32 " of %" PRIu32 " voters, and takes %" PRIu32, good,
                       config_voters(config), needed);
    return ERR_OK;
}

/* ---- carrying out ---- */

static bool is_full(const struct config_member *member)
{
    return member->voter && member->role != CONFIG_WITNESS;
}

bool config_order_removes(const struct config *config, const struct order *order)
{
    const struct config_member *subject =
        order_about_member(order->kind) ? config_member(config, order->subject) : NULL;
    bool removes = order->kind == ORDER_EVICT || order->kind == ORDER_REVOKE || order->kind == ORDER_CONTRIBUTOR;
    return removes && subject != NULL && subject->voter;
}

uint32_t config_removed_most(uint32_t voters)
{
    return voters > 4 ? (voters - 1) / 2 : 1;
}

static uint32_t removed_so_far(const struct config *previous, const struct config *next)
{
    uint32_t removed = 0;
    for (uint32_t i = 0; i < next->orders_count; i++)
        removed += config_order_removes(previous, &next->orders[i]);
    return removed;
}

static bool is_put_out(const struct config *next, uint32_t id)
{
    for (uint32_t i = 0; i < next->orders_count; i++)
        if (next->orders[i].kind == ORDER_EVICT && next->orders[i].subject == id)
            return true;
    return false;
}

/* Of those who vote and have the run's bytes one stays that no order sends away; and only a minority goes at a time. */
static enum err check_removal(const struct config *previous, const struct config *next,
                              const struct config_member *subject)
{
    const struct config_member *was = config_member(previous, subject->id);
    uint32_t voters = config_voters(previous), most = config_removed_most(voters), stay = 0;
    if (was == NULL || !was->voter)
        return ERR_OK;
    for (uint32_t i = 0; i < next->members_count; i++) {
        const struct config_member *member = &next->members[i];
        stay += is_full(member) && !member->contributor && member->id != subject->id && !is_put_out(next, member->id);
    }
    if (stay == 0)
        return err_set(ERR_STATE, "%s is the last island that votes and has the run's parameters: nobody could go on",
                       was->name);
    if (removed_so_far(previous, next) >= most)
        return err_set(ERR_STATE, "only %" PRIu32 " of %" PRIu32 " voters can be sent away at a time", most, voters);
    return ERR_OK;
}

/* ---- carrying out: keys ---- */

static struct config_retired *retired_of(struct config *next, const uint8_t *key)
{
    for (uint32_t i = 0; i < next->retired_count; i++)
        if (ident_compare(next->retired[i].key, key) == 0)
            return &next->retired[i];
    return NULL;
}

static void drop_retired(struct config *next, uint32_t at)
{
    memmove(&next->retired[at], &next->retired[at + 1], (--next->retired_count - at) * sizeof *next->retired);
}

/* A key is nobody's any more, from this epoch on. */
static enum err retire(struct config *next, const struct config_member *member, bool revoked, uint64_t epoch)
{
    const struct config_retired *there = retired_of(next, member->key);
    if (there != NULL)
        drop_retired(next, (uint32_t)(there - next->retired));
    else if (next->retired_count == CONFIG_RETIRED_MAX)
        drop_retired(next, 0);
    TRY(mem_grow(&next->retired, next->retired_count, (size_t)next->retired_count + 1, sizeof *next->retired,
                 "retired keys"));
    struct config_retired *row = &next->retired[next->retired_count++];
    *row = (struct config_retired){.id = member->id, .revoked = revoked, .epoch = epoch};
    memcpy(row->key, member->key, sizeof row->key);
    return ERR_OK;
}

/* Whether a member has the key, or states it. */
static const struct config_member *holder_of(const struct config *config, const uint8_t *key)
{
    for (uint32_t i = 0; i < config->members_count; i++) {
        const struct config_member *member = &config->members[i];
        if (ident_compare(member->key, key) == 0 ||
            (config_has_next(member) && ident_compare(member->next_key, key) == 0))
            return member;
    }
    return NULL;
}

/* The member stated it, with both signatures, in a configuration that stands. */
static enum err rekey(const struct config *previous, struct config *next, struct config_member *subject,
                      const struct order *order)
{
    const struct config_member *was = config_member(previous, subject->id);
    if (memcmp(was->next_key, order->key, sizeof order->key) != 0 ||
        memcmp(subject->next_key, order->key, sizeof order->key) != 0)
        return err_set(ERR_STATE, "%s does not ask for this key, or not any more", subject->name);
    TRY(retire(next, subject, false, previous->epoch + 1));
    memcpy(subject->key, order->key, sizeof subject->key);
    memset(subject->next_key, 0, sizeof subject->next_key);
    return ERR_OK;
}

/* ---- carrying out: members ---- */

static enum err check_newcomer(struct config *next, const struct wire_join *join)
{
    if (next->members_count == CONFIG_MEMBERS_MAX || next->next_id >= CONFIG_NOBODY)
        return err_set(ERR_STATE, "the roster is full");
    for (uint32_t i = 0; i < next->members_count; i++) {
        const struct config_member *member = &next->members[i];
        if (strcmp(member->name, join->name) == 0)
            return err_set(ERR_STATE, "an island called %s is on the roster already; take another name", join->name);
        if (member->role == CONFIG_WITNESS && join->witness)
            return err_set(ERR_STATE, "%s is the run's witness already, and there is at most one", member->name);
    }
    const struct config_member *holder = holder_of(next, join->key);
    if (holder != NULL)
        return err_set(ERR_STATE, "that key is on the roster already, as island %s", holder->name);
    const struct config_retired *retired = retired_of(next, join->key);
    if (retired != NULL && !retired->revoked)
        return err_set(ERR_STATE, "that key was left by an island, id %" PRIu32 ", for another one: make a new key",
                       retired->id);
    return ERR_OK;
}

static void take_word(struct config_member *member, const struct member_word *word)
{
    member->word = word->number;
    memset(member->address, 0, sizeof member->address);
    snprintf(member->address, sizeof member->address, "%s", word->address);
    member->uplink = word->uplink;
    member->owner_choice = word->owner_choice;
    member->draining = word->draining;
    member->units = word->units;
    memcpy(member->next_key, word->next_key, sizeof member->next_key);
}

static enum err admit(struct config *next, const struct order *order)
{
    TRY(check_newcomer(next, &order->join));
    TRY(mem_grow(&next->members, next->members_count, (size_t)next->members_count + 1, sizeof *next->members,
                 "members"));
    struct config_member *member = &next->members[next->members_count++];
    *member = (struct config_member){.id = next->next_id++,
                                     .role = order->join.witness ? CONFIG_WITNESS : CONFIG_OBSERVER,
                                     .contributor = order->value != 0};
    memcpy(member->name, order->join.name, sizeof member->name);
    memcpy(member->key, order->join.key, sizeof member->key);
    take_word(member, &order->join.word);
    return ERR_OK;
}

static void remove_member(struct config *next, uint32_t id)
{
    uint32_t kept = 0, words = 0;
    for (uint32_t i = 0; i < next->members_count; i++)
        if (next->members[i].id != id)
            next->members[kept++] = next->members[i];
    next->members_count = kept;
    for (uint32_t i = 0; i < next->words_count; i++)
        if (next->words[i].id != id)
            next->words[words++] = next->words[i];
    next->words_count = words;
    drop_mark(next, id);
    if (next->founder == id)
        next->founder = CONFIG_NOBODY;
}

/* The last operator would leave nobody who may order anything but a majority of voters. */
static enum err set_operator(struct config *next, struct config_member *subject, bool operates)
{
    if (subject->operates == operates)
        return err_set(ERR_STATE, "%s is %s", subject->name, operates ? "an operator already" : "no operator");
    subject->operates = operates;
    if (!operates && next->founder == subject->id)
        next->founder = CONFIG_NOBODY;
    return ERR_OK;
}

static enum err about_member(const struct config *previous, struct config *next, const struct order *order)
{
    struct config_member *subject = row_of(next, order->subject);
    /* Whom this very configuration admits nobody knows yet: nothing was gathered of it that an order could change. */
    if (subject == NULL || config_member(previous, order->subject) == NULL)
        return err_set(ERR_STATE, "id %" PRIu32 " is not on the roster", order->subject);
    switch (order->kind) {
    case ORDER_EVICT:
        if (subject->role == CONFIG_WITNESS)
            return err_set(ERR_STATE, "%s is the witness, which no round waits for", subject->name);
        return check_removal(previous, next, subject);
    case ORDER_REVOKE:
        TRY(check_removal(previous, next, subject));
        TRY(retire(next, subject, true, previous->epoch + 1));
        remove_member(next, order->subject);
        return ERR_OK;
    case ORDER_OWNER:
    case ORDER_CONTRIBUTOR:
        if (subject->role == CONFIG_WITNESS || subject->contributor == (order->kind == ORDER_CONTRIBUTOR))
            return err_set(ERR_STATE, "%s is %s", subject->name,
                           subject->role == CONFIG_WITNESS ? "the witness"
                           : subject->contributor          ? "a contributor already"
                                                           : "no contributor");
        if (order->kind == ORDER_CONTRIBUTOR)
            TRY(check_removal(previous, next, subject));
        subject->contributor = order->kind == ORDER_CONTRIBUTOR;
        return ERR_OK;
    case ORDER_GRANT: return set_operator(next, subject, true);
    case ORDER_UNGRANT: return set_operator(next, subject, false);
    case ORDER_REKEY: return rekey(previous, next, subject, order);
    default: break;
    }
    if (next->founder == order->subject)
        return err_set(ERR_STATE, "%s is the founder already", subject->name);
    subject->operates = true;
    next->founder = order->subject;
    return ERR_OK;
}

static enum err about_run(struct config *next, const struct order *order)
{
    bool pause = order->kind == ORDER_PAUSE;
    if (order->kind == ORDER_VOID)
        return ERR_OK;
    if (order->kind == ORDER_STEPS) {
        if (next->steps == order->value)
            return err_set(ERR_STATE, "the run ends at step %" PRIu64 " already", order->value);
        if (order->value <= next->deal.counted_step)
            return err_set(ERR_STATE, "results of steps up to %" PRIu64 " are counted, and stay: take more than that",
                           next->deal.counted_step);
        uint64_t most = config_steps_most(next);
        next->steps = order->value;
        next->steps_before = most > next->steps ? most : 0;
        return ERR_OK;
    }
    if (next->paused == pause)
        return err_set(ERR_STATE, "the run is %s", pause ? "paused already" : "not paused");
    next->paused = pause;
    return ERR_OK;
}

/* In its place, after all else has succeeded. */
static void put_order(struct config *next, const struct order *order)
{
    uint32_t at = next->orders_count++;
    for (; at > 0 && order_compare(&next->orders[at - 1], order) > 0; at--)
        next->orders[at] = next->orders[at - 1];
    next->orders[at] = *order;
}

/* Room first, so that nothing is half done where there is none. */
static enum err make_room(struct config *next, const struct order *order)
{
    uint32_t approved = 0;
    for (uint32_t i = 0; i < next->orders_count; i++) {
        approved += next->orders[i].approvals_count > 0;
        if (order_compare(&next->orders[i], order) == 0)
            return err_set(ERR_STATE, "two orders of number %" PRIu64 " of %s", order->number,
                           config_name_of(next, order->signer));
    }
    if (next->orders_count == CONFIG_ORDERS_MAX || (order->approvals_count > 0 && approved == CONFIG_APPROVED_MAX))
        return err_set(ERR_STATE, "a configuration carries out %d orders, and %d that were approved", CONFIG_ORDERS_MAX,
                       CONFIG_APPROVED_MAX);
    return mem_grow(&next->orders, next->orders_count, (size_t)next->orders_count + 1, sizeof *next->orders, "orders");
}

enum err config_order_newcomer(const struct config *config, const struct order *order)
{
    if (order->kind != ORDER_ADMIT || wire_join_signed(&order->join, config->nonce))
        return ERR_OK;
    return err_set(ERR_STATE, "the newcomer %s did not sign that it comes", order->join.name);
}

enum err config_order_apply(const struct config *previous, struct config *next, const struct order *order)
{
    TRY(config_order_newcomer(previous, order));
    return config_order_try(previous, next, order);
}

enum err config_order_try(const struct config *previous, struct config *next, const struct order *order)
{
    TRY(make_room(next, order));
    if (order->kind == ORDER_ADMIT)
        TRY(admit(next, order));
    else if (order_about_member(order->kind))
        TRY(about_member(previous, next, order));
    else
        TRY(about_run(next, order));
    put_order(next, order);
    /* Who orders itself away leaves no mark: its id is given to nobody else. */
    return config_member(next, order->signer) != NULL ? put_mark(next, order) : ERR_OK;
}

/* ---- words ---- */

static struct member_word word_of(const struct config_member *member)
{
    struct member_word word = {.number = member->word,
                               .uplink = member->uplink,
                               .owner_choice = member->owner_choice,
                               .draining = member->draining,
                               .units = member->units};
    memcpy(word.address, member->address, sizeof word.address);
    memcpy(word.next_key, member->next_key, sizeof word.next_key);
    return word;
}

/* Whether it may be the member's next key: nobody has it, states it, or had it. */
static bool key_is_free(struct config *next, const struct config_member *member, const struct member_word *word)
{
    const struct config_member *holder;
    if (!member_word_has_next(word) || memcmp(member->next_key, word->next_key, sizeof member->next_key) == 0)
        return true;
    holder = holder_of(next, word->next_key);
    bool own = holder == member && ident_compare(member->key, word->next_key) != 0;
    return (holder == NULL || own) && retired_of(next, word->next_key) == NULL;
}

enum err config_word_apply(const struct config *previous, struct config *next, uint32_t id,
                           const struct member_word *word)
{
    struct config_member *member = row_of(next, id);
    const struct config_member *was = config_member(previous, id);
    uint32_t at = 0;
    if (member == NULL || was == NULL || word->number <= was->word)
        return ERR_OK;
    /* It was signed by the key that an order takes from the member in this very configuration. */
    if (memcmp(member->key, was->key, sizeof was->key) != 0 || !key_is_free(next, member, word))
        return ERR_OK;
    if (member_word_check(word) != ERR_OK || !member_word_signed(was->key, previous->nonce, id, word))
        return ERR_OK;
    while (at < next->words_count && next->words[at].id < id)
        at++;
    if (at < next->words_count && next->words[at].id == id)
        return ERR_OK;
    TRY(mem_grow(&next->words, next->words_count, (size_t)next->words_count + 1, sizeof *next->words, "words"));
    memmove(&next->words[at + 1], &next->words[at], (next->words_count - at) * sizeof *next->words);
    next->words[at].id = id;
    memcpy(next->words[at].signature, word->signature, sizeof next->words[at].signature);
    memcpy(next->words[at].next_signature, word->next_signature, sizeof next->words[at].next_signature);
    next->words_count++;
    take_word(member, word);
    return ERR_OK;
}

bool config_word_of_other_key(const struct config *config, uint32_t id, const struct member_word *word)
{
    const uint8_t *key;
    for (uint32_t k = 0; (key = config_other_key(config, id, k)) != NULL; k++)
        if (member_word_signed(key, config->nonce, id, word))
            return true;
    return false;
}

/* ---- does it follow? ---- */

/* `expected`: as orders and words make it. */
static enum err compare_member(const struct config_member *expected, const struct config_member *is)
{
    if (expected->id != is->id || strcmp(expected->name, is->name) != 0 ||
        memcmp(expected->key, is->key, sizeof is->key) != 0)
        return err_set(ERR_PROTO, "a roster with %s that no order names", is->name);
    struct member_word said = word_of(expected), says = word_of(is);
    if (said.number != says.number || !member_word_same(&said, &says))
        return err_set(ERR_PROTO, "another word of %s than it signed", is->name);
    if (expected->contributor != is->contributor || expected->operates != is->operates)
        return err_set(ERR_PROTO, "another power of %s than orders give it", is->name);
    return ERR_OK;
}

static enum err compare(const struct config *expected, const struct config *is)
{
    if (expected->members_count != is->members_count || expected->next_id != is->next_id)
        return err_set(ERR_PROTO, "%" PRIu32 " members and next id %" PRIu32 ", and by orders %" PRIu32 " and %" PRIu32,
                       is->members_count, is->next_id, expected->members_count, expected->next_id);
    for (uint32_t i = 0; i < is->members_count; i++)
        TRY(compare_member(&expected->members[i], &is->members[i]));
    if (expected->steps != is->steps || expected->steps_before != is->steps_before || expected->paused != is->paused ||
        expected->founder != is->founder)
        return err_set(ERR_PROTO, "steps, a pause or a founder that no order names");
    bool retired = expected->retired_count == is->retired_count;
    for (uint32_t i = 0; retired && i < is->retired_count; i++)
        retired = expected->retired[i].id == is->retired[i].id &&
                  expected->retired[i].revoked == is->retired[i].revoked &&
                  expected->retired[i].epoch == is->retired[i].epoch &&
                  memcmp(expected->retired[i].key, is->retired[i].key, sizeof is->retired[i].key) == 0;
    if (!retired)
        return err_set(ERR_PROTO, "other retired keys than orders leave");
    bool same = expected->marks_count == is->marks_count;
    for (uint32_t i = 0; same && i < is->marks_count; i++)
        same = expected->marks[i].id == is->marks[i].id && expected->marks[i].number == is->marks[i].number &&
               expected->marks[i].below == is->marks[i].below;
    return same ? ERR_OK : err_set(ERR_PROTO, "marks of orders that were not carried out");
}

static enum err take_words(const struct config *previous, const struct config *is, struct config *expected)
{
    for (uint32_t i = 0; i < is->words_count; i++) {
        const struct config_member *member = config_member(is, is->words[i].id);
        uint32_t before = expected->words_count;
        struct member_word word = word_of(member);
        memcpy(word.signature, is->words[i].signature, sizeof word.signature);
        memcpy(word.next_signature, is->words[i].next_signature, sizeof word.next_signature);
        TRY(config_word_apply(previous, expected, member->id, &word));
        if (expected->words_count == before)
            return err_set(ERR_PROTO, "a word of %s that is not its own, or not new", member->name);
    }
    return ERR_OK;
}

static enum err carry_out(const struct config *previous, const struct config *is, struct config *expected)
{
    for (uint32_t i = 0; i < is->orders_count; i++) {
        TRY(config_order_allowed(previous, &is->orders[i], false));
        TRY(config_order_apply(previous, expected, &is->orders[i]));
        if (is->orders[i].kind == ORDER_EVICT) {
            const struct config_member *subject = config_member(is, is->orders[i].subject);
            if (subject != NULL && subject->role != CONFIG_AWAY)
                return err_set(ERR_STATE, "%s was to be put out of it", subject->name);
        }
    }
    return take_words(previous, is, expected);
}

/* Nobody becomes a voter, or owns beside others, against an order. */
static enum err check_contributors(const struct config *previous, const struct config *next)
{
    bool others = false;
    for (uint32_t i = 0; i < next->members_count; i++)
        others |= next->members[i].role == CONFIG_OWNER && !next->members[i].contributor;
    for (uint32_t i = 0; i < next->members_count; i++) {
        const struct config_member *member = &next->members[i], *was = config_member(previous, member->id);
        if (member->contributor && member->voter && (was == NULL || !was->voter))
            return err_set(ERR_PROTO, "a voter %s, who is a contributor by order", member->name);
    }
    for (uint32_t slot = 0; others && slot < SHARDMAP_SLOTS; slot++) {
        const struct config_member *owner = config_member(next, next->map.owner[slot]);
        if (owner != NULL && owner->contributor)
            return err_set(ERR_PROTO, "slots of %s, who is a contributor by order", owner->name);
    }
    return ERR_OK;
}

enum err config_orders_follow(const struct config *previous, const struct config *next)
{
    struct config expected;
    enum err err;
    TRY(config_copy(previous, &expected));
    expected.orders_count = expected.words_count = 0;
    expected.deal.counted_step = next->deal.counted_step; /* orders go by what is counted by then */
    TRY_OUT(carry_out(previous, next, &expected));
    TRY_OUT(compare(&expected, next));
    TRY_OUT(check_contributors(previous, next));
out:
    config_deinit(&expected);
    if (err == ERR_OK || err == ERR_NOMEM)
        return err;
    return err_prefix(ERR_PROTO, "configuration %" PRIu64 " has what no order or word says", next->epoch);
}
