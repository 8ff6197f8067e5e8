/* SPDX-License-Identifier: Apache-2.0 */
#include "net/membership/endorse.h"

#include <inttypes.h>
#include <string.h>

#include "common/log.h"
#include "common/mem.h"
#include "net/config/endorsement.h"

/* Drafts that leave out what no majority agrees to, before one that changes nothing but by order. */
enum { TRIES_MAX = 4 };

/* ---- ours ---- */

struct own {
    const struct ident *ident;
    const struct config *last;
    uint64_t ballot;
    struct config_endorsement *out;
    uint32_t count;
};

static void say(struct own *own, uint32_t member, enum config_endorsed says, uint64_t incarnation)
{
    if (own->count == WIRE_ENDORSEMENTS_MAX)
        return;
    struct config_endorsement *one = &own->out[own->count++];
    *one = (struct config_endorsement){.member = member, .says = says, .incarnation = incarnation};
    endorsement_sign(own->ident, own->last->nonce, own->last->epoch + 1, own->ballot, one);
}

/* Whether it may go, whatever becomes of the others: whom we do not hear ourselves counts, too, or each voter would
 * wait for the heartbeats of the others. */
static bool may_go(const struct member_progress *progress, const struct config_member *member,
                   const struct change_request *request)
{
    uint32_t slot = view_slot(progress->view, member->id);
    bool unheard = slot != VIEW_NOBODY && slot != progress->view->self && bitset_has(&progress->silent, slot);
    bool evicted = request != NULL && request->evicted;
    if (member->role == CONFIG_CONTRIBUTOR && !member->voter)
        return evicted;
    return unheard || evicted ||
           (request != NULL &&
            (request->silent || request->partitioned || request->incarnation != member->incarnation));
}

static const struct change_request *request_of(const struct change_request *requests, uint32_t count, uint32_t id,
                                               uint32_t *from)
{
    while (*from < count && requests[*from].id < id)
        ++*from;
    return *from < count && requests[*from].id == id ? &requests[*from] : NULL;
}

enum err endorse_own(const struct change_requests *requests, const struct member_progress *progress,
                     const struct order_pool *pool, const struct ident *ident, uint64_t ballot,
                     struct config_endorsement out[WIRE_ENDORSEMENTS_MAX], uint32_t *count)
{
    struct own own = {.ident = ident, .last = config_log_last(progress->config_log), .ballot = ballot, .out = out};
    struct change_request *known = NULL;
    struct config next = {0};
    uint32_t known_count, from = 0;
    *count = 0;
    TRY(change_requests_expect(requests, progress, pool, &next, &known, &known_count));
    for (uint32_t i = 0; i < next.members_count; i++) {
        const struct config_member *member = &next.members[i], *was = config_member(own.last, member->id);
        struct endorsement_need need = endorsement_needed(own.last, &next, member);
        const struct change_request *request = request_of(known, known_count, member->id, &from);
        bool counts = was != NULL && (was->voter || was->role == CONFIG_OWNER || was->role == CONFIG_CONTRIBUTOR);
        if (need.leaves || (counts && may_go(progress, was, request)))
            say(&own, member->id, CONFIG_LEAVES, 0);
        if (need.comes)
            say(&own, member->id, CONFIG_COMES, member->incarnation);
    }
    *count = own.count;
    config_deinit(&next);
    mem_free(known);
    return ERR_OK;
}

/* ---- a promise's ---- */

static bool was_kept(const struct paxos_message *kept, uint64_t ballot, const struct config_endorsement *one)
{
    bool was = false;
    for (uint32_t i = 0; kept != NULL && kept->ballot == ballot && i < kept->endorsements_count && !was; i++) {
        const struct config_endorsement *there = &kept->endorsements[i];
        was = there->member == one->member && there->says == one->says && there->incarnation == one->incarnation &&
              memcmp(there->signature, one->signature, sizeof one->signature) == 0;
    }
    return was;
}

void endorse_keep_signed(const struct config *last, uint32_t id, const struct paxos_message *kept, struct quota *checks,
                         uint64_t now_ms, struct paxos_message *promise)
{
    const struct quota_rule rule = {.every_ms = ENDORSE_CHECK_MS, .at_once = ENDORSE_CHECKS};
    const struct config_member *signer = config_member(last, id);
    uint32_t count = 0;
    for (uint32_t i = 0; signer != NULL && signer->voter && i < promise->endorsements_count; i++) {
        const struct config_endorsement *one = &promise->endorsements[i];
        if (was_kept(kept, promise->ballot, one) ||
            (quota_take(checks, rule, now_ms) &&
             endorsement_signed(signer->key, last->nonce, last->epoch + 1, promise->ballot, one)))
            promise->endorsements[count++] = *one;
    }
    promise->endorsements_count = count;
}

/* ---- a draft's ---- */

struct gathering {
    const struct config *last;
    uint64_t ballot;
    const struct next_config_answer *answers;
    uint32_t answers_count;
    struct config *draft;
    uint32_t room;     /* so many endorsements have room in the draft */
    uint32_t reserved; /* of them, for members that leave and come later in it */
    bool full;         /* some had none */
};

/* The next voter after id `after`, -1 at first, that has answered; NULL: there is none. So signatures stand in order.
 */
static const struct next_config_answer *next_answer(const struct gathering *g, int64_t after)
{
    const struct next_config_answer *next = NULL;
    for (uint32_t i = 0; i < g->answers_count; i++) {
        const struct config_member *member = config_member(g->last, g->answers[i].id);
        if (member != NULL && member->voter && g->answers[i].id > after &&
            (next == NULL || g->answers[i].id < next->id))
            next = &g->answers[i];
    }
    return next;
}

/* What it has signed of this, with its signer; false: nothing. */
static bool says_so(const struct next_config_answer *answer, const struct config_endorsement *wanted,
                    struct config_endorsement *found)
{
    for (uint32_t i = 0; i < answer->endorsements_count; i++) {
        const struct config_endorsement *one = &answer->endorsements[i];
        if (one->member != wanted->member || one->says != wanted->says || one->incarnation != wanted->incarnation)
            continue;
        *found = *one;
        found->signer = answer->id;
        return true;
    }
    return false;
}

/* Whether a member has signed of somebody else that it may go. */
static bool speaks(const struct gathering *g, uint32_t member)
{
    for (uint32_t i = 0; i < g->answers_count; i++)
        for (uint32_t k = 0; g->answers[i].id == member && k < g->answers[i].endorsements_count; k++)
            if (g->answers[i].endorsements[k].says == CONFIG_LEAVES && g->answers[i].endorsements[k].member != member)
                return true;
    return false;
}

/* Whether the word counts whatever else the draft will have (endorsement_counts()). */
static bool may_count(const struct gathering *g, uint32_t signer, const struct config_endorsement *wanted)
{
    const struct config_member *row = config_member(g->draft, signer);
    return wanted->says == CONFIG_COMES || signer == wanted->member || row == NULL ||
           !endorsement_needed(g->last, g->draft, row).leaves || !speaks(g, wanted->member);
}

/* All that the draft says but for them is there. */
static enum err measure(struct gathering *g)
{
    enum { BALLOT_BYTES = 16 };
    bool any = false;
    size_t bytes;
    for (uint32_t i = 0; i < g->draft->members_count; i++) {
        struct endorsement_need need = endorsement_needed(g->last, g->draft, &g->draft->members[i]);
        g->reserved += need.leaves ? endorsement_quorum(g->last, CONFIG_LEAVES) : 0;
        any |= need.leaves || need.comes;
    }
    if (!any)
        return ERR_OK;
    TRY(config_packed_bytes(g->draft, &bytes));
    size_t room = bytes + BALLOT_BYTES < CONFIG_BYTES_MAX ? CONFIG_BYTES_MAX - bytes - BALLOT_BYTES : 0;
    g->room = (uint32_t)(room / CONFIG_ENDORSEMENT_BYTES);
    g->room = g->room < CONFIG_ENDORSEMENTS_MAX ? g->room : CONFIG_ENDORSEMENTS_MAX;
    return ERR_OK;
}

/* As many as it takes, at the end of the draft's; `*enough`: a majority has signed, and there is room for it. */
static enum err gather(struct gathering *g, const struct config_endorsement *wanted, bool *enough)
{
    struct config *draft = g->draft;
    uint32_t needed = endorsement_quorum(g->last, (enum config_endorsed)wanted->says), have = 0,
             before = draft->endorsements_count;
    const struct next_config_answer *answer = next_answer(g, -1);
    bool fits = (size_t)before + g->reserved + needed <= g->room;
    g->full |= !fits;
    for (; fits && answer != NULL && have < needed; answer = next_answer(g, answer->id)) {
        struct config_endorsement found;
        if (!may_count(g, answer->id, wanted) || !says_so(answer, wanted, &found))
            continue;
        TRY(mem_grow(&draft->endorsements, draft->endorsements_count, (size_t)draft->endorsements_count + 1,
                     sizeof *draft->endorsements, "endorsements"));
        draft->endorsements[draft->endorsements_count++] = found;
        have++;
    }
    *enough = have == needed;
    if (!*enough)
        draft->endorsements_count = before;
    return ERR_OK;
}

/* `goes`: it leaves, as a majority agrees. */
static void hold(struct change_request *requests, uint32_t requests_count, uint32_t id, bool goes)
{
    for (uint32_t k = 0; k < requests_count; k++) {
        requests[k].held |= requests[k].id == id && !goes;
        requests[k].evicted |= requests[k].id == id && goes;
    }
}

/* Whether it votes by a disk that it has no more: as it is, it would never hold what the draft rests on. */
static bool is_other_disk(const struct config *last, const struct config_member *member)
{
    const struct config_member *was = config_member(last, member->id);
    return was != NULL && was->voter && was->incarnation != member->incarnation;
}

static enum err could_gather(struct gathering *g, const struct config_endorsement *wanted, bool *enough)
{
    uint32_t before = g->draft->endorsements_count;
    TRY(gather(g, wanted, enough));
    g->draft->endorsements_count = before;
    return ERR_OK;
}

/* Where not all have room that would come, none comes instead of those that have none. */
static void hold_others(const struct config *last, const struct config *draft, struct change_request *requests,
                        uint32_t count)
{
    for (uint32_t k = 0, at = 0; k < count; k++) {
        const struct config_member *was = config_member(last, requests[k].id);
        while (at < draft->endorsements_count && draft->endorsements[at].member < requests[k].id)
            at++;
        bool changes = at < draft->endorsements_count && draft->endorsements[at].member == requests[k].id;
        bool stays = was == NULL || was->voter || was->role == CONFIG_OWNER || requests[k].evicted;
        requests[k].held |= !changes && !stays;
    }
}

/* The signatures that the draft needs. Of how many members too few are there, or have room: `*lacking`; they are held.
 * Those who leave have theirs first: rounds may wait for them. */
static enum err endorse_draft(const struct config *last, uint64_t ballot, const struct next_config_answer *answers,
                              uint32_t answers_count, struct config *draft, struct change_request *requests,
                              uint32_t requests_count, uint32_t *lacking)
{
    struct gathering g = {
        .last = last, .ballot = ballot, .answers = answers, .answers_count = answers_count, .draft = draft};
    *lacking = draft->endorsements_count = 0;
    draft->ballot = 0;
    TRY(measure(&g));
    for (uint32_t i = 0; i < draft->members_count; i++) {
        const struct config_member *member = &draft->members[i];
        struct endorsement_need need = endorsement_needed(last, draft, member);
        struct config_endorsement leaves = {.member = member->id, .says = CONFIG_LEAVES};
        struct config_endorsement comes = {
            .member = member->id, .says = CONFIG_COMES, .incarnation = member->incarnation};
        bool left = true, came = true;
        g.reserved -= need.leaves ? endorsement_quorum(last, CONFIG_LEAVES) : 0;
        if (need.leaves)
            TRY(gather(&g, &leaves, &left));
        if (need.comes)
            TRY(gather(&g, &comes, &came));
        if (left && came)
            continue;
        ++*lacking;
        bool goes = false;
        if (!came && is_other_disk(last, member))
            TRY(could_gather(&g, &leaves, &goes));
        hold(requests, requests_count, member->id, goes);
    }
    draft->ballot = draft->endorsements_count > 0 ? ballot : 0;
    if (g.full)
        hold_others(last, draft, requests, requests_count);
    return ERR_OK;
}

enum err endorse_agree(struct next_config_base *base, uint64_t ballot, bool waits,
                       const struct next_config_answer *answers, uint32_t answers_count,
                       struct change_request *requests, uint32_t requests_count, struct next_config_out *out,
                       bool *agreed)
{
    for (int tries = 0;; tries++) {
        uint32_t lacking;
        TRY(endorse_draft(base->config, ballot, answers, answers_count, &out->draft, requests, requests_count,
                          &lacking));
        *agreed = lacking == 0;
        if (*agreed || waits)
            return ERR_OK;
        if (base->by_order)
            return err_set(ERR_STATE, "no majority agrees to what orders say of %" PRIu32 " members", lacking);
        log_debug("next configuration: no majority agrees to the changes of %" PRIu32 " members", lacking);
        base->by_order = tries == TRIES_MAX;
        config_deinit(&out->draft);
        TRY(next_config(base, answers, answers_count, requests, requests_count, out));
        if (out->ask)
            return ERR_OK;
    }
}
