/* SPDX-License-Identifier: Apache-2.0 */
#include "net/membership/change_requests.h"

#include <inttypes.h>
#include <string.h>

#include "common/mem.h"
#include "net/membership/paxos.h"
#include "net/membership/wire_paxos.h"

/* Those who come are gathered for so long: each costs an epoch. Twice as long after each configuration that changed
 * nothing, as it is where somebody is always a little behind, but for IDLE_MAX times. */
enum { GATHERED_MS = 2000, IDLE_MAX = 7 };
/* What a member says of itself, its uplink for one, is a reason for a configuration when an epoch has stood for so
 * long. */
enum { SAID_MS = 30000 };

/* ---- requests ---- */

static void ask(struct seat_change_request *request, uint32_t by, uint64_t now_ms)
{
    if (!request->requested)
        *request = (struct seat_change_request){.requested = true, .by = by, .since_ms = now_ms};
    request->told_ms = now_ms;
}

enum err change_requests_add(struct change_requests *requests, struct member_progress *progress, uint32_t by,
                             uint32_t kind, uint32_t id, uint64_t number)
{
    uint32_t slot = view_slot(progress->view, id);
    struct seat *seat = slot != VIEW_NOBODY ? &progress->seat[slot] : NULL;
    if (kind == WIRE_CHANGE_STEPS) {
        requests->steps = number;
        requests->steps_told_ms = progress->now_ms;
        return ERR_OK;
    }
    if (kind != WIRE_CHANGE_EVICT && kind != WIRE_CHANGE_REVOKE)
        return err_set(ERR_ARG, "a change request of kind %" PRIu32, kind);
    if (seat == NULL)
        return err_set(ERR_NOTFOUND, "no island of id %" PRIu32 " is on the roster", id);
    if (number == progress->view->epoch) /* a late one would put out a member that has come back */
        ask(kind == WIRE_CHANGE_REVOKE ? &seat->off : &seat->out, by, progress->now_ms);
    return ERR_OK;
}

/* Whether an island of that name and key is on the roster; ERR_STATE: one of that name or that key. */
static enum err look_up(const struct config *config, const struct config_member *as, bool *there)
{
    *there = false;
    for (uint32_t i = 0; i < config->members_count; i++) {
        const struct config_member *member = &config->members[i];
        bool same_key = ident_compare(member->key, as->key) == 0;
        bool same_name = strcmp(member->name, as->name) == 0;
        bool mirrored = same_key && memcmp(member->key, as->key, sizeof as->key) != 0;
        *there |= same_key && same_name && !mirrored;
        if (same_name && !same_key)
            return err_set(ERR_STATE, "an island called %s is on the roster already; take another name", as->name);
        if (same_key && (!same_name || mirrored))
            return err_set(ERR_STATE, "that key is on the roster already, as island %s", member->name);
    }
    const struct config_member *witness = as->role == CONFIG_WITNESS ? config_witness(config) : NULL;
    if (witness != NULL && !*there)
        return err_set(ERR_STATE, "%s is the run's witness already, and there is at most one", witness->name);
    return ERR_OK;
}

enum err change_requests_admit(struct change_requests *requests, const struct member_progress *progress,
                               const struct config *config, const struct config_member *as)
{
    bool there;
    TRY(look_up(config, as, &there));
    if (there)
        return ERR_OK;
    for (uint32_t k = 0; k < requests->admit_count; k++) {
        if (memcmp(requests->join[k].key, as->key, sizeof as->key) == 0) {
            requests->admit_told_ms[k] = progress->now_ms;
            return ERR_OK;
        }
        if (ident_compare(requests->join[k].key, as->key) == 0)
            return err_set(ERR_STATE, "that key is being admitted already, as island %s", requests->join[k].name);
        if (strcmp(requests->join[k].name, as->name) == 0)
            return err_set(ERR_STATE, "an island called %s is being admitted already; take another name", as->name);
        if (as->role == CONFIG_WITNESS && requests->join[k].role == CONFIG_WITNESS)
            return err_set(ERR_STATE, "%s is being admitted as the run's witness, and there is at most one",
                           requests->join[k].name);
    }
    if (requests->admit_count == CHANGE_REQUESTS_ADMIT_MAX)
        return err_set(ERR_STATE, "%d islands are being admitted; try again in a moment", CHANGE_REQUESTS_ADMIT_MAX);
    requests->admit_told_ms[requests->admit_count] = progress->now_ms;
    requests->join[requests->admit_count++] = *as;
    return ERR_OK;
}

static bool says_doubt(const struct member_progress *progress, uint32_t member)
{
    return member == progress->view->self ? progress->disk->doubt != VOTE_SURE : progress->seat[member].doubt_ms != 0;
}

/* Whether the configuration puts a member out that can be heard, or us: people asked for that, here or at another
 * voter. Of a lost member the configuration counts one more loss: a member that was away itself cannot have noticed.
 * A member whose disk is in doubt is away until it has caught up, and put out only if somebody asked for that. */
static bool was_put_out(const struct member_progress *progress, uint32_t member, const struct config *before)
{
    const struct view_member *is = &progress->view->members[member];
    const struct seat *seat = &progress->seat[member];
    const struct config_member *was = before != NULL && is->used ? config_member(before, is->as.id) : NULL;
    bool here = member == progress->view->self || seat->up;
    bool out = was != NULL && was->role != CONFIG_AWAY && is->as.role == CONFIG_AWAY;
    return out && here && (seat->out.requested || !says_doubt(progress, member)) && seat->losses <= was->losses &&
           !member_progress_silent(progress, member) && seat->partitioned_ms == 0;
}

static void keep_admission(struct change_requests *requests, uint32_t k, uint32_t *kept)
{
    requests->admit_told_ms[*kept] = requests->admit_told_ms[k];
    requests->join[(*kept)++] = requests->join[k];
}

void change_requests_fulfil(struct change_requests *requests, struct member_progress *progress,
                            const struct config *config)
{
    uint32_t kept = 0;
    const struct config *before = config->epoch > 0 ? config_log_at(progress->config_log, config->epoch - 1) : NULL;
    for (uint32_t k = 0; k < requests->admit_count; k++) {
        bool there;
        if (look_up(config, &requests->join[k], &there) == ERR_OK && !there)
            keep_admission(requests, k, &kept);
    }
    requests->admit_count = kept;
    for (uint32_t i = 0; i < progress->view->count; i++) {
        struct seat *seat = &progress->seat[i]; /* whoever would come back may do so from now on, but one that hangs */
        if (was_put_out(progress, i, before))
            member_progress_put_out(progress, i);
        else if (progress->view->members[i].as.role != CONFIG_AWAY)
            seat->out_ms = 0; /* it is in: to put it out again takes another change request */
        seat->evict = (seat->evict || seat->out.requested) && (seat->broke_word || seat->drain);
        seat->out = seat->off = (struct seat_change_request){.requested = false};
    }
    requests->steps = 0;
    bool idle = before != NULL && !config_differs(before, config);
    requests->idle = !idle ? 0 : requests->idle < IDLE_MAX ? requests->idle + 1 : IDLE_MAX;
}

static bool over(uint64_t told_ms, uint64_t now_ms)
{
    return now_ms > told_ms + CHANGE_REQUESTS_TOLD_MS;
}

void change_requests_tick(struct change_requests *requests, struct member_progress *progress)
{
    uint32_t kept = 0;
    for (uint32_t k = 0; k < requests->admit_count; k++)
        if (!over(requests->admit_told_ms[k], progress->now_ms))
            keep_admission(requests, k, &kept);
    requests->admit_count = kept;
    if (over(requests->steps_told_ms, progress->now_ms))
        requests->steps = 0;
    for (uint32_t i = 0; i < progress->view->count; i++) {
        struct seat *seat = &progress->seat[i];
        seat->out.requested = seat->out.requested && !over(seat->out.told_ms, progress->now_ms);
        seat->off.requested = seat->off.requested && !over(seat->off.told_ms, progress->now_ms);
        seat->evict = seat->evict && (seat->broke_word || seat->drain); /* who resumes wishes to come back */
    }
}

/* ---- what the next configuration would say ---- */

/* `said`: with its own words. */
static struct change_request change_request_of(const struct change_requests *requests,
                                               const struct member_progress *progress,
                                               const struct config_member *member, bool said)
{
    uint32_t slot = view_slot(progress->view, member->id);
    struct change_request request = {.as = *member};
    if (slot == VIEW_NOBODY)
        return request;
    const struct seat *seat = &progress->seat[slot];
    bool self = slot == progress->view->self;
    bool doubt = member_progress_in_doubt(progress, slot);
    uint64_t incarnation = member_progress_incarnation(progress, slot);
    /* An older word may be of the disk before the one that the newest configuration names. */
    bool fresh_word = self || seat->epoch >= config_log_last(progress->config_log)->epoch;
    if (doubt && incarnation != 0 && fresh_word)
        request.as.incarnation = incarnation;
    request.as.losses = member_progress_losses(progress, slot);
    if (said && seat->said) {
        memcpy(request.as.address, seat->address, sizeof request.as.address);
        request.as.uplink = seat->uplink != 0 ? seat->uplink : member->uplink;
        request.as.owner_choice = seat->owner_choice;
    }
    request.in_doubt = says_doubt(progress, slot) || (!self && seat->incarnation == 0);
    /* Who can keep nothing makes no result, and nothing is committed by it: it is as good as lost until it can. */
    request.silent = (self ? member_progress_yields(progress) : member_progress_silent(progress, slot)) ||
                     member_progress_disk_fails(progress, slot);
    request.partitioned = member_progress_partitioned(progress, slot);
    request.evicted = seat->evict || seat->out.requested || member_progress_kept_out(progress, slot);
    request.revoked = seat->off.requested;
    request.draining = seat->drain;
    /* Who owns already stays one; who comes, or comes back, is let in when an epoch has stood for a while. */
    bool comes = member->role != CONFIG_OWNER || doubt;
    bool answers = self || (seat->up && !bitset_has(&seat->silent, progress->view->self));
    request.near = answers && member_progress_caught_up(progress, slot) &&
                   (!comes || member_progress_hear_owners(progress)) &&
                   (!comes || progress->now_ms >= progress->begun_ms + ((uint64_t)GATHERED_MS << requests->idle));
    request.caught_up = request.near;
    return request;
}

enum err change_requests_gather(const struct change_requests *requests, const struct member_progress *progress,
                                bool said, struct change_request **out, uint32_t *count)
{
    const struct config *config = config_log_last(progress->config_log);
    TRY(mem_new((size_t)config->members_count + requests->admit_count, sizeof **out, "change_requests", out));
    *count = 0;
    for (uint32_t i = 0; i < config->members_count; i++) {
        uint32_t slot = view_slot(progress->view, config->members[i].id);
        struct change_request request = change_request_of(requests, progress, &config->members[i], said);
        bool heard = slot == progress->view->self || (slot != VIEW_NOBODY && progress->seat[slot].up);
        if (heard || request.silent || request.partitioned || request.evicted || request.revoked)
            (*out)[(*count)++] = request;
    }
    for (uint32_t k = 0; k < requests->admit_count; k++)
        (*out)[(*count)++] = (struct change_request){.as = requests->join[k], .join = true};
    return ERR_OK;
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
    return heard && !request.silent && !request.partitioned && !request.evicted && !request.revoked &&
           !request.draining;
}

bool change_requests_change(const struct change_requests *requests, const struct member_progress *progress)
{
    struct config next = {0};
    struct change_request *all = NULL;
    uint32_t count;
    const struct config *last = config_log_last(progress->config_log);
    /* Nobody could decide it: where one copy commits, rounds go on, and nobody is asked, or sealed, in vain. */
    if (progress->sync == NULL || member_progress_voters_able(progress) < config_majority(last) ||
        member_progress_disk_fails(progress, progress->view->self))
        return false;
    bool said = progress->now_ms >= progress->begun_ms + SAID_MS;
    enum err err = change_requests_gather(requests, progress, said, &all, &count);
    if (err == ERR_OK)
        err = config_copy(last, &next);
    if (err == ERR_OK && requests->steps != 0)
        next.steps = requests->steps;
    if (err == ERR_OK)
        err = assign_roles(&next, all, count);
    bool wanted = err == ERR_OK && config_differs(last, &next);
    config_deinit(&next);
    mem_free(all);
    return wanted;
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
            if (!requests[i].join && requests[i].as.id == asked[k] && !requests[i].caught_up)
                return false;
    return true;
}
