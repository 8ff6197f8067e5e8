/* SPDX-License-Identifier: Apache-2.0 */
#include "net/membership/change_requests.h"

#include <inttypes.h>
#include <string.h>

#include "common/mem.h"
#include "net/membership/paxos.h"

/* Those who come are gathered for so long: each costs an epoch. Twice as long after each configuration that changed
 * nothing, as it is where somebody is always a little behind, but for IDLE_MAX times. */
enum { GATHERED_MS = 2000, IDLE_MAX = 7 };
/* What a member says of itself, its uplink for one, is a reason for a configuration when an epoch has stood for so
 * long. */
enum { SAID_MS = 30000 };
/* But that it begins or ends to drain is one at once, where that was not so too often lately: each costs an epoch. */
static const struct quota_rule drains_rule = {.every_ms = 600000, .at_once = 4};
/* So is one that says the same by a higher number: it makes void what was said in between, as a key that was taken back
 * before any configuration had it. A disk that keeps nothing says so in each epoch. */
static const struct quota_rule repeats_rule = {.every_ms = 600000, .at_once = 4};
/* Nor are the orders of one operator a reason at once without end. */
static const struct quota_rule orders_rule = {.every_ms = 10000, .at_once = 32};

/* ---- orders and words ---- */

/* Whether it states another new key, or none any more. */
static bool states_other(const struct member_word *word, const struct config_member *member)
{
    return memcmp(word->next_key, member->next_key, sizeof member->next_key) != 0;
}

/* Whether it says something that the configuration does not. */
static bool says_new(const struct member_word *word, const struct config_member *member)
{
    return word->number > member->word &&
           (word->uplink != member->uplink || word->owner_choice != member->owner_choice ||
            word->draining != member->draining || word->units != member->units ||
            strcmp(word->address, member->address) != 0 || states_other(word, member));
}

/* Whether it may happen now; it has not. */
static bool may(struct quota quota, struct quota_rule rule, uint64_t now_ms)
{
    return quota_take(&quota, rule, now_ms);
}

/* One that says the same makes those void that were said in between. `said`: the epoch has stood for a while. */
static bool belongs(const struct seat *seat, const struct config_member *member, enum wanted_for what, bool said,
                    uint64_t now_ms)
{
    const struct member_word *word = &seat->word;
    bool new = says_new(word, member), later = word->number > config_word_number(member);
    bool turns = word->draining != member->draining || states_other(word, member);
    if (what == WANTED_COMPOSE)
        return new || later;
    if (new)
        return said || (turns && may(seat->drains, drains_rule, now_ms));
    return later && said && may(seat->repeats, repeats_rule, now_ms);
}

/* Orders of those who gave many lately: they go along with others', or are a reason a little later. */
static void leave_out_hasty(const struct member_progress *progress, struct wanted_changes *out)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < out->orders_count; i++) {
        uint32_t slot = view_slot(progress->view, out->orders[i]->signer);
        if (slot == VIEW_NOBODY || may(progress->seat[slot].orders, orders_rule, progress->now_ms))
            out->orders[kept++] = out->orders[i];
    }
    out->orders_count = kept;
}

enum err change_requests_wanted(const struct member_progress *progress, const struct order_pool *pool,
                                enum wanted_for what, struct wanted_changes *out)
{
    const struct config *config = config_log_last(progress->config_log);
    bool said = progress->now_ms >= progress->begun_ms + SAID_MS;
    out->words_count = 0;
    TRY(order_pool_allowed(pool, config, what == WANTED_COMPOSE || said, progress->now_ms, out->orders,
                           &out->orders_count));
    if (what == WANTED_REASONS)
        leave_out_hasty(progress, out);
    for (uint32_t i = 0; i < config->members_count; i++) {
        const struct config_member *member = &config->members[i];
        uint32_t slot = view_slot(progress->view, member->id);
        if (slot == VIEW_NOBODY || !progress->seat[slot].said)
            continue;
        const struct member_word *word = &progress->seat[slot].word;
        if (belongs(&progress->seat[slot], member, what, said, progress->now_ms))
            out->words[out->words_count++] = (struct next_config_word){.id = member->id, .word = word};
    }
    return ERR_OK;
}

static bool says_doubt(const struct member_progress *progress, uint32_t member)
{
    return member == progress->view->self ? progress->disk->doubt != VOTE_SURE : progress->seat[member].doubt_ms != 0;
}

/* Whether one of the orders puts the member out. */
static bool is_put_out(const struct order *const *orders, uint32_t count, uint32_t id)
{
    for (uint32_t i = 0; i < count; i++)
        if (orders[i]->kind == ORDER_EVICT && orders[i]->subject == id)
            return true;
    return false;
}

static bool was_put_out(const struct config *config, uint32_t id)
{
    for (uint32_t i = 0; i < config->orders_count; i++)
        if (config->orders[i].kind == ORDER_EVICT && config->orders[i].subject == id)
            return true;
    return false;
}

uint32_t change_requests_left_out(struct member_progress *progress, const struct order_pool *pool)
{
    const struct config *config = config_log_last(progress->config_log);
    uint32_t most = order_pool_left_out(pool);
    for (uint32_t i = 0; i < config->members_count; i++) {
        uint32_t slot = view_slot(progress->view, config->members[i].id);
        struct seat *seat = slot != VIEW_NOBODY ? &progress->seat[slot] : NULL;
        if (seat == NULL || !seat->said)
            continue;
        /* The first one that was due: later ones are as good. One that states a key may be passed over by anybody. */
        if (seat->word_due == 0 && !member_word_has_next(&seat->word) && says_new(&seat->word, &config->members[i]))
            seat->word_due = seat->word.number;
        most = seat->word_left_out > most ? seat->word_left_out : most;
    }
    return most;
}

static void note_left_out(struct seat *seat, const struct config *config)
{
    const struct config_member *member = config_member(config, seat->id);
    bool left_out = member != NULL && member->word < seat->word_due;
    seat->word_left_out = left_out ? seat->word_left_out + 1 : 0;
    seat->word_due = 0;
}

static bool drains_in(const struct config *config, uint32_t id)
{
    const struct config_member *member = config_member(config, id);
    return member != NULL && member->draining;
}

/* Whether it says there that it begins or ends to drain, or another new key, or none any more; an order takes that,
 * too. */
static bool turned_in(const struct config *before, const struct config *config, uint32_t id)
{
    const struct config_member *was = config_member(before, id), *is = config_member(config, id);
    bool other = was != NULL && is != NULL && memcmp(was->key, is->key, sizeof is->key) == 0 &&
                 memcmp(was->next_key, is->next_key, sizeof is->next_key) != 0;
    return other || drains_in(before, id) != drains_in(config, id);
}

/* Whether it says there, by a higher number, what it said before. */
static bool repeated_in(const struct config *before, const struct config *config, uint32_t id)
{
    const struct config_member *was = config_member(before, id), *is = config_member(config, id);
    return was != NULL && is != NULL && is->word != was->word && config_says_same(was, is);
}

void change_requests_fulfil(struct change_requests *requests, struct member_progress *progress,
                            const struct config *config)
{
    const struct config *before = config->epoch > 0 ? config_log_at(progress->config_log, config->epoch - 1) : NULL;
    if (requests->begun > config->epoch) /* it begins anew when a doubt ends */
        return;
    requests->begun = config->epoch + 1;
    for (uint32_t i = 0; i < progress->view->count; i++) {
        struct seat *seat = &progress->seat[i]; /* whoever would come back may do so from now on, but one that hangs */
        if (was_put_out(config, seat->id))
            member_progress_put_out(progress, i);
        else if (progress->view->members[i].as.role != CONFIG_AWAY)
            seat->out_ms = 0; /* it is in: to put it out again takes another order */
        note_left_out(seat, config);
        if (before != NULL && turned_in(before, config, seat->id))
            (void)quota_take(&seat->drains, drains_rule, progress->now_ms);
        if (before != NULL && repeated_in(before, config, seat->id))
            (void)quota_take(&seat->repeats, repeats_rule, progress->now_ms);
    }
    for (uint32_t k = 0; k < config->orders_count; k++) {
        uint32_t slot = view_slot(progress->view, config->orders[k].signer);
        if (slot != VIEW_NOBODY)
            (void)quota_take(&progress->seat[slot].orders, orders_rule, progress->now_ms);
    }
    bool idle = before != NULL && !config_differs(before, config);
    bool again = idle && requests->reasons == requests->tried_reasons;
    bool ours = digest_equal(config_log_last_digest(progress->config_log), &requests->proposed);
    if (idle && (ours || (requests->composed_epoch == config->epoch && !requests->asked))) {
        requests->tried = !again ? 1 : requests->tried < IDLE_MAX ? requests->tried + 1 : IDLE_MAX;
        requests->tried_reasons = requests->reasons;
    }
    if (!idle)
        requests->tried = 0;
    requests->idle = !idle ? 0 : requests->idle < IDLE_MAX ? requests->idle + 1 : IDLE_MAX;
}

/* ---- what the next configuration would say ---- */

/* `now`: nobody is waited for who may come along. */
static struct change_request change_request_of(const struct change_requests *requests,
                                               const struct member_progress *progress,
                                               const struct config_member *member, bool now)
{
    uint32_t slot = view_slot(progress->view, member->id);
    struct change_request request = {
        .id = member->id, .incarnation = member->incarnation, .losses = member->losses, .unheard = true};
    if (slot == VIEW_NOBODY)
        return request;
    const struct seat *seat = &progress->seat[slot];
    bool self = slot == progress->view->self;
    bool doubt = member_progress_in_doubt(progress, slot);
    uint64_t incarnation = member_progress_incarnation(progress, slot);
    /* An older word may be of the disk before the one that the newest configuration names. */
    bool fresh_word = self || seat->epoch >= config_log_last(progress->config_log)->epoch;
    if (doubt && incarnation != 0 && fresh_word)
        request.incarnation = incarnation;
    request.losses = member_progress_losses(progress, slot);
    request.in_doubt = says_doubt(progress, slot) || (!self && seat->incarnation == 0);
    /* Who can keep nothing makes no result, and nothing is committed by it: it is as good as lost until it can. */
    request.silent = (self ? member_progress_yields(progress) : member_progress_silent(progress, slot)) ||
                     member_progress_disk_fails(progress, slot);
    request.partitioned = member_progress_partitioned(progress, slot);
    /* Of ourselves the others will see to it. */
    request.evicted = (seat->evidence && !self) || member_progress_kept_out(progress, slot);
    request.unheard = !self && !seat->up && !request.silent && !request.partitioned && !request.evicted;
    /* Who owns already stays one; who comes, or comes back, is let in when an epoch has stood for a while. */
    bool comes = member->role != CONFIG_OWNER || doubt;
    bool answers = self || (seat->up && !bitset_has(&seat->silent, progress->view->self));
    /* Of one that says that its disk is in doubt, and has not done so for long, it is not known yet which one to name.
     */
    bool unsure = comes && says_doubt(progress, slot) && incarnation != 0 && incarnation != request.incarnation;
    request.near =
        answers && !unsure && member_progress_caught_up(progress, slot) &&
        (!comes || member_progress_hear_owners(progress)) &&
        (!comes || now || progress->now_ms >= progress->begun_ms + ((uint64_t)GATHERED_MS << requests->idle));
    request.caught_up = request.near;
    return request;
}

static enum err gather(const struct change_requests *requests, const struct member_progress *progress,
                       const struct wanted_changes *wanted, bool now, struct change_request **out, uint32_t *count)
{
    const struct config *config = config_log_last(progress->config_log);
    TRY(mem_new(config->members_count, sizeof **out, "change requests", out));
    *count = 0;
    for (uint32_t i = 0; i < config->members_count; i++) {
        struct change_request request = change_request_of(requests, progress, &config->members[i], now);
        if (!request.unheard || is_put_out(wanted->orders, wanted->orders_count, request.id))
            (*out)[(*count)++] = request;
    }
    return ERR_OK;
}

enum err change_requests_gather(struct change_requests *requests, const struct member_progress *progress,
                                const struct wanted_changes *wanted, struct change_request **out, uint32_t *count)
{
    requests->composed_epoch = config_log_last(progress->config_log)->epoch + 1;
    return gather(requests, progress, wanted, false, out, count);
}

void change_requests_proposed(struct change_requests *requests, const struct digest *digest)
{
    requests->proposed = *digest;
}

bool change_requests_catches_up(const struct change_requests *requests, const struct member_progress *progress,
                                uint32_t member)
{
    const struct config *config = config_log_last(progress->config_log);
    const struct config_member *as = config_member(config, progress->view->members[member].as.id);
    if (as == NULL || as->role != CONFIG_AWAY || progress->seat[member].broke_word)
        return false;
    struct change_request request = change_request_of(requests, progress, as, false);
    bool heard = member == progress->view->self ? member_progress_voters_heard(progress) >= config_majority(config)
                                                : progress->seat[member].up;
    bool draining = progress->seat[member].said ? progress->seat[member].word.draining : as->draining;
    return heard && !request.silent && !request.partitioned && !request.evicted && !draining;
}

/* What it would say of members. `what`: as of change_requests_wanted(); `now`: as of change_request_of(). */
static enum err expect(const struct change_requests *requests, const struct member_progress *progress,
                       const struct order_pool *pool, enum wanted_for what, bool now, struct config *next,
                       struct change_request **known, uint32_t *count)
{
    enum err err;
    const struct config *last = config_log_last(progress->config_log);
    struct wanted_changes *wanted = NULL;
    *next = (struct config){0};
    *known = NULL;
    TRY_OUT(mem_new_unset(1, sizeof *wanted, "changes", &wanted));
    TRY_OUT(change_requests_wanted(progress, pool, what, wanted));
    TRY_OUT(gather(requests, progress, wanted, now, known, count));
    TRY_OUT(config_copy(last, next));
    TRY_OUT(next_config_obey(&(struct next_config_base){.config = last,
                                                        .orders = wanted->orders,
                                                        .orders_count = wanted->orders_count,
                                                        .words = wanted->words,
                                                        .words_count = wanted->words_count},
                             next, *known, *count));
    TRY_OUT(assign_roles(next, *known, *count));
out:
    mem_free(wanted);
    if (err != ERR_OK) {
        config_deinit(next);
        mem_free(*known);
        *known = NULL;
    }
    return err;
}

enum err change_requests_expect(const struct change_requests *requests, const struct member_progress *progress,
                                const struct order_pool *pool, struct config *next, struct change_request **known,
                                uint32_t *count)
{
    return expect(requests, progress, pool, WANTED_COMPOSE, true, next, known, count);
}

/* What it says that the newest one does not, so that the same is known again: FNV-1a, by fields. */
static uint64_t reasons_of(const struct config *next)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (uint32_t i = 0; i < next->members_count; i++) {
        const struct config_member *m = &next->members[i];
        const uint64_t fields[] = {m->id, m->role, m->voter, m->incarnation, m->word};
        for (size_t k = 0; k < sizeof fields / sizeof *fields; k++)
            hash = (hash ^ fields[k]) * 0x100000001b3u;
    }
    for (uint32_t k = 0; k < next->orders_count; k++)
        hash = (hash ^ next->orders[k].number ^ (uint64_t)next->orders[k].signer << 32) * 0x100000001b3u;
    return hash;
}

/* Whether it carries out an order, or a member's word. */
static bool carries_out(const struct config *next, const struct config *last)
{
    bool words = false;
    for (uint32_t i = 0; i < next->members_count; i++) {
        const struct config_member *was = config_member(last, next->members[i].id);
        words |= was != NULL && was->word != next->members[i].word;
    }
    return words || next->orders_count > 0;
}

/* An epoch has just begun, and of a voter whose disk was in doubt it is not known yet which one it has now. What would
 * follow from the one that the configuration names is no reason for another one. */
static bool waits_for_doubts(const struct member_progress *progress)
{
    const struct config *config = config_log_last(progress->config_log);
    if (progress->now_ms >= progress->begun_ms + GATHERED_MS)
        return false;
    for (uint32_t i = 0; i < progress->view->count; i++) {
        const struct view_member *member = &progress->view->members[i];
        const struct seat *seat = &progress->seat[i];
        if (member->used && member->as.voter && i != progress->view->self && seat->up && seat->doubt_ms != 0 &&
            seat->epoch < config->epoch)
            return true;
    }
    return false;
}

bool change_requests_change(struct change_requests *requests, const struct member_progress *progress,
                            const struct order_pool *pool)
{
    struct config next;
    struct change_request *known;
    uint32_t count;
    const struct config *last = config_log_last(progress->config_log);
    /* Nobody could decide it: where one copy commits, rounds go on, and nobody is asked, or sealed, in vain. */
    if (progress->sync == NULL || member_progress_voters_able(progress) < config_majority(last) ||
        member_progress_disk_fails(progress, progress->view->self) || waits_for_doubts(progress))
        return false;
    if (expect(requests, progress, pool, WANTED_REASONS, false, &next, &known, &count) != ERR_OK)
        return false;
    bool differs = config_differs(last, &next) || next.words_count > 0;
    requests->reasons = reasons_of(&next);
    requests->asked = carries_out(&next, last);
    /* Where that came to nothing, as others hear otherwise, it is tried again later, and others have their turn. */
    bool again = requests->tried > 0 && requests->reasons == requests->tried_reasons;
    config_deinit(&next);
    mem_free(known);
    return differs && (!again || progress->now_ms >= progress->begun_ms + ((uint64_t)GATHERED_MS << requests->tried));
}

/* ---- members that might take part ---- */

uint32_t change_requests_whom_to_ask(const struct member_progress *progress, struct bitset *asked, uint32_t *ids)
{
    const struct view *view = progress->view;
    uint32_t count = 0;
    for (uint32_t i = 0; i < view->count && count < PAXOS_ASKED_MAX; i++) {
        const struct view_member *member = &view->members[i];
        bool comes = !member->as.voter || member->as.role != CONFIG_OWNER || member_progress_in_doubt(progress, i);
        bool here = member->used && !member->leaving && (i == view->self || progress->seat[i].up);
        if (!here || !comes || member_progress_kept_out(progress, i) ||
            (!member_progress_caught_up(progress, i) && !bitset_has(asked, i)))
            continue;
        bitset_add(asked, i);
        ids[count++] = member->as.id;
    }
    return count;
}

bool change_requests_all_there(const struct change_request *requests, uint32_t count, const uint32_t *asked,
                               uint32_t asked_count)
{
    for (uint32_t k = 0; k < asked_count; k++)
        for (uint32_t i = 0; i < count; i++)
            if (requests[i].id == asked[k] && !requests[i].caught_up)
                return false;
    return true;
}
