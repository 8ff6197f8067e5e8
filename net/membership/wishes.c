/* SPDX-License-Identifier: Apache-2.0 */
#include "net/membership/wishes.h"

#include <inttypes.h>
#include <string.h>

#include "common/mem.h"
#include "net/membership/epoch.h"
#include "net/membership/wire_epoch.h"

/* Those who come are gathered for so long: each costs an epoch. Twice as long after each record that changed nothing,
 * as it is where somebody is always a little behind, but for IDLE_MAX times. */
enum { GATHER_MS = 2000, IDLE_MAX = 7 };
/* What a member says of itself, its uplink for one, is a reason for a record when an epoch has stood for so long. */
enum { SAID_MS = 30000 };

/* ---- what is asked for ---- */

static void ask(struct seat_wish *wish, uint32_t by, uint64_t now_ms)
{
    if (!wish->wished)
        *wish = (struct seat_wish){.wished = true, .by = by, .since_ms = now_ms};
    wish->told_ms = now_ms;
}

enum err wishes_add(struct wishes *wishes, struct seats *seats, uint32_t by, uint32_t kind, uint32_t id,
                    uint64_t number)
{
    uint32_t slot = view_slot(seats->view, id);
    struct seat *seat = slot != VIEW_NOBODY ? &seats->seat[slot] : NULL;
    if (kind == WIRE_WISH_STEPS) {
        wishes->steps = number;
        wishes->steps_told_ms = seats->now_ms;
        return ERR_OK;
    }
    if (kind != WIRE_WISH_EVICT && kind != WIRE_WISH_REVOKE)
        return err_set(ERR_ARG, "a wish of kind %" PRIu32, kind);
    if (seat == NULL)
        return err_set(ERR_NOTFOUND, "no island of id %" PRIu32 " is on the roster", id);
    if (number == seats->view->epoch) /* one that is late would put out who has come back */
        ask(kind == WIRE_WISH_REVOKE ? &seat->off : &seat->out, by, seats->now_ms);
    return ERR_OK;
}

/* Whether an island of that name and key is on the roster; ERR_STATE: one of that name or that key. */
static enum err look_up(const struct record *record, const struct record_member *as, bool *there)
{
    *there = false;
    for (uint32_t i = 0; i < record->members_count; i++) {
        const struct record_member *member = &record->members[i];
        bool same_key = ident_compare(member->key, as->key) == 0;
        bool same_name = strcmp(member->name, as->name) == 0;
        bool mirrored = same_key && memcmp(member->key, as->key, sizeof as->key) != 0;
        *there |= same_key && same_name && !mirrored;
        if (same_name && !same_key)
            return err_set(ERR_STATE, "an island called %s is on the roster already; take another name", as->name);
        if (same_key && (!same_name || mirrored))
            return err_set(ERR_STATE, "that key is on the roster already, as island %s", member->name);
    }
    const struct record_member *witness = as->role == RECORD_WITNESS ? record_witness(record) : NULL;
    if (witness != NULL && !*there)
        return err_set(ERR_STATE, "%s is the run's witness already, and there is at most one", witness->name);
    return ERR_OK;
}

enum err wishes_enrol(struct wishes *wishes, const struct seats *seats, const struct record *record,
                      const struct record_member *as)
{
    bool there;
    TRY(look_up(record, as, &there));
    if (there)
        return ERR_OK;
    for (uint32_t k = 0; k < wishes->enrol_count; k++) {
        if (memcmp(wishes->enrol[k].key, as->key, sizeof as->key) == 0) {
            wishes->enrol_told_ms[k] = seats->now_ms;
            return ERR_OK;
        }
        if (ident_compare(wishes->enrol[k].key, as->key) == 0)
            return err_set(ERR_STATE, "that key is being enrolled already, as island %s", wishes->enrol[k].name);
        if (strcmp(wishes->enrol[k].name, as->name) == 0)
            return err_set(ERR_STATE, "an island called %s is being enrolled already; take another name", as->name);
        if (as->role == RECORD_WITNESS && wishes->enrol[k].role == RECORD_WITNESS)
            return err_set(ERR_STATE, "%s is being enrolled as the run's witness, and there is at most one",
                           wishes->enrol[k].name);
    }
    if (wishes->enrol_count == WISHES_ENROL_MAX)
        return err_set(ERR_STATE, "%d islands are being enrolled; try again in a moment", WISHES_ENROL_MAX);
    wishes->enrol_told_ms[wishes->enrol_count] = seats->now_ms;
    wishes->enrol[wishes->enrol_count++] = *as;
    return ERR_OK;
}

/* Whether the record puts somebody out that can be heard, or us: people wished so, of us or of another voter. Of a
 * member that was lost the record counts one more loss: who was away itself cannot have noticed. */
static bool was_put_out(const struct seats *seats, uint32_t member, const struct record *before)
{
    const struct view_member *is = &seats->view->members[member];
    const struct seat *seat = &seats->seat[member];
    const struct record_member *was = before != NULL && is->used ? record_member(before, is->as.id) : NULL;
    bool here = member == seats->view->self || seat->up;
    bool out = was != NULL && was->role != RECORD_AWAY && is->as.role == RECORD_AWAY;
    return out && here && seat->losses <= was->losses && !seats_silent(seats, member) && seat->apart_ms == 0;
}

static void keep_enrolment(struct wishes *wishes, uint32_t k, uint32_t *kept)
{
    wishes->enrol_told_ms[*kept] = wishes->enrol_told_ms[k];
    wishes->enrol[(*kept)++] = wishes->enrol[k];
}

void wishes_fulfil(struct wishes *wishes, struct seats *seats, const struct record *record)
{
    uint32_t kept = 0;
    const struct record *before = record->epoch > 0 ? chain_at(seats->chain, record->epoch - 1) : NULL;
    for (uint32_t k = 0; k < wishes->enrol_count; k++) {
        bool there;
        if (look_up(record, &wishes->enrol[k], &there) == ERR_OK && !there)
            keep_enrolment(wishes, k, &kept);
    }
    wishes->enrol_count = kept;
    for (uint32_t i = 0; i < seats->view->count; i++) {
        struct seat *seat = &seats->seat[i]; /* whoever would come back may do so from now on, but one that hangs */
        if (was_put_out(seats, i, before))
            seats_put_out(seats, i);
        else if (seats->view->members[i].as.role != RECORD_AWAY)
            seat->out_ms = 0; /* it is in: to put it out again takes another wish */
        seat->evict = (seat->evict || seat->out.wished) && (seat->broke_word || seat->drain);
        seat->out = seat->off = (struct seat_wish){.wished = false};
    }
    wishes->steps = 0;
    bool idle = before != NULL && !record_differs(before, record);
    wishes->idle = !idle ? 0 : wishes->idle < IDLE_MAX ? wishes->idle + 1 : IDLE_MAX;
}

static bool over(uint64_t told_ms, uint64_t now_ms)
{
    return now_ms > told_ms + WISHES_TOLD_MS;
}

void wishes_tick(struct wishes *wishes, struct seats *seats)
{
    uint32_t kept = 0;
    for (uint32_t k = 0; k < wishes->enrol_count; k++)
        if (!over(wishes->enrol_told_ms[k], seats->now_ms))
            keep_enrolment(wishes, k, &kept);
    wishes->enrol_count = kept;
    if (over(wishes->steps_told_ms, seats->now_ms))
        wishes->steps = 0;
    for (uint32_t i = 0; i < seats->view->count; i++) {
        struct seat *seat = &seats->seat[i];
        seat->out.wished = seat->out.wished && !over(seat->out.told_ms, seats->now_ms);
        seat->off.wished = seat->off.wished && !over(seat->off.told_ms, seats->now_ms);
    }
}

/* ---- what the next record would say ---- */

/* `said`: with its own words. */
static struct muster_wish wish_of(const struct wishes *wishes, const struct seats *seats,
                                  const struct record_member *member, bool said)
{
    uint32_t slot = view_slot(seats->view, member->id);
    struct muster_wish wish = {.as = *member};
    if (slot == VIEW_NOBODY)
        return wish;
    const struct seat *seat = &seats->seat[slot];
    bool self = slot == seats->view->self;
    bool doubt = seats_in_doubt(seats, slot);
    uint64_t incarnation = seats_incarnation(seats, slot);
    if (doubt && incarnation != 0)
        wish.as.incarnation = incarnation;
    wish.as.losses = seats_losses(seats, slot);
    if (said && seat->said) {
        memcpy(wish.as.address, seat->address, sizeof wish.as.address);
        wish.as.uplink = seat->uplink != 0 ? seat->uplink : member->uplink;
        wish.as.owner_wish = seat->owner_wish;
    }
    wish.in_doubt = self ? seats->disk->doubt != VOTE_SURE : seat->doubt_ms != 0 || seat->incarnation == 0;
    /* Who can keep nothing makes no result, and nothing is certified by it: it is as good as lost until it can. */
    wish.silent = (self ? seats_yields(seats) : seats_silent(seats, slot)) || seats_disk_fails(seats, slot);
    wish.apart = seats_apart(seats, slot);
    wish.evicted = seat->evict || seat->out.wished || seats_kept_out(seats, slot);
    wish.revoked = seat->off.wished;
    wish.draining = seat->drain;
    /* Who owns already stays one; who comes, or comes back, is let in when an epoch has stood for a while. */
    bool comes = member->role != RECORD_OWNER || doubt;
    bool answers = self || (seat->up && !bitset_has(&seat->silent, seats->view->self));
    wish.near = answers && seats_caught_up(seats, slot) && (!comes || seats_hear_owners(seats)) &&
                (!comes || seats->now_ms >= seats->begun_ms + ((uint64_t)GATHER_MS << wishes->idle));
    wish.caught_up = wish.near;
    return wish;
}

enum err wishes_gather(const struct wishes *wishes, const struct seats *seats, bool said, struct muster_wish **out,
                       uint32_t *count)
{
    const struct record *record = chain_last(seats->chain);
    TRY(mem_new((size_t)record->members_count + wishes->enrol_count, sizeof **out, "wishes", out));
    *count = 0;
    for (uint32_t i = 0; i < record->members_count; i++) {
        uint32_t slot = view_slot(seats->view, record->members[i].id);
        struct muster_wish wish = wish_of(wishes, seats, &record->members[i], said);
        bool heard = slot == seats->view->self || (slot != VIEW_NOBODY && seats->seat[slot].up);
        if (heard || wish.silent || wish.apart || wish.evicted || wish.revoked)
            (*out)[(*count)++] = wish;
    }
    for (uint32_t k = 0; k < wishes->enrol_count; k++)
        (*out)[(*count)++] = (struct muster_wish){.as = wishes->enrol[k], .enrol = true};
    return ERR_OK;
}

bool wishes_change(const struct wishes *wishes, const struct seats *seats)
{
    struct record next = {0};
    struct muster_wish *all = NULL;
    uint32_t count;
    const struct record *last = chain_last(seats->chain);
    /* Nobody could decide it: where one copy certifies, rounds go on, and nobody is asked, or sealed, in vain. */
    if (seats->sync == NULL || seats_voters_able(seats) < record_majority(last) ||
        seats_disk_fails(seats, seats->view->self))
        return false;
    bool said = seats->now_ms >= seats->begun_ms + SAID_MS;
    enum err err = wishes_gather(wishes, seats, said, &all, &count);
    if (err == ERR_OK)
        err = record_copy(last, &next);
    if (err == ERR_OK && wishes->steps != 0)
        next.steps = wishes->steps;
    if (err == ERR_OK)
        err = muster(&next, all, count);
    bool wanted = err == ERR_OK && record_differs(last, &next);
    record_deinit(&next);
    mem_free(all);
    return wanted;
}

/* ---- those who might take part ---- */

uint32_t wishes_whom_to_ask(const struct seats *seats, struct bitset *asked, uint32_t *ids)
{
    const struct view *view = seats->view;
    uint32_t count = 0;
    for (uint32_t i = 0; i < view->count && count < EPOCH_ASKED_MAX; i++) {
        const struct view_member *member = &view->members[i];
        bool comes = !member->as.voter || member->as.role != RECORD_OWNER || seats_in_doubt(seats, i);
        bool here = member->used && !member->leaving && (i == view->self || seats->seat[i].up);
        if (!here || !comes || seats_kept_out(seats, i) || (!seats_caught_up(seats, i) && !bitset_has(asked, i)))
            continue;
        bitset_add(asked, i);
        ids[count++] = member->as.id;
    }
    return count;
}

bool wishes_all_there(const struct muster_wish *wishes, uint32_t count, const uint32_t *asked, uint32_t asked_count)
{
    for (uint32_t k = 0; k < asked_count; k++)
        for (uint32_t i = 0; i < count; i++)
            if (!wishes[i].enrol && wishes[i].as.id == asked[k] && !wishes[i].caught_up)
                return false;
    return true;
}
