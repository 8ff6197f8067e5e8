/* SPDX-License-Identifier: Apache-2.0 */
#include "net/membership/assign_roles.h"

#include <stdlib.h>
#include <string.h>

#include "common/mem.h"
#include "net/config/owners.h"

/* A member on its way into the next configuration. */
struct place {
    struct config_member *member;
    enum shyness shy;
    bool held;        /* no majority agrees that it changes: it stays what it is, whoever would own instead */
    bool able;        /* to vote, in the configuration as it was made so far */
    bool leaving;     /* votes in the last configuration, and would better not */
    bool ready;       /* to own, if it has to */
    bool owns;        /* in the next configuration, if it votes there */
    bool partitioned; /* leaving only because it and an owner do not hear each other */
    int patience;     /* of those leaving, the lower ones leave first; below UNWILLING: they can't vote, or soon */
};

enum { UNWILLING = 3 };
/* Requests mostly stand in the order of the members, so each is looked for from where the last one was found: with a
 * thousand members that is a thousand looks, not a million. `from`: there; 0 at first. */
static const struct change_request *change_request_of(const struct change_request *requests, uint32_t count,
                                                      uint32_t id, uint32_t *from)
{
    for (uint32_t k = 0, i = *from; k < count; k++, i++) {
        i = i < count ? i : 0;
        if (requests[i].id != id)
            continue;
        *from = i + 1;
        return &requests[i];
    }
    return NULL;
}

/* A trainer's island that votes: it stays an owner, leaves, or waits until its disk is whole again. */
static void place_voter(struct place *place, const struct change_request *request, bool doubt)
{
    struct config_member *member = place->member;
    bool lost = request->silent || request->evicted || request->partitioned;
    place->leaving = lost || member->draining || (doubt && !request->caught_up);
    if (lost && !request->evicted && member->role != CONFIG_AWAY && member->losses < CONFIG_LOSSES_MAX)
        member->losses++;
    if (lost)
        member->role = CONFIG_AWAY;
    else if (member->draining)
        member->role = member->role == CONFIG_AWAY ? CONFIG_AWAY : CONFIG_DRAINING;
    else if (member->role != CONFIG_OWNER || doubt)
        member->role = request->caught_up ? CONFIG_OWNER : CONFIG_AWAY;
    if (doubt && request->caught_up && !lost)
        member->incarnation = request->incarnation;
    place->able = !place->leaving;
    place->patience = lost ? 0 : doubt ? 1 : 2;
    place->partitioned = request->partitioned && !request->silent && !request->evicted;
}

/* Who was away is so until it has caught up: that it is back is no reason for an epoch. */
static void place_other(struct config_member *member, const struct change_request *request, enum shyness shy)
{
    bool owns = shy == SHY_WILLING && !request->partitioned;
    member->incarnation = request->incarnation;
    if (request->evicted)
        member->role = CONFIG_AWAY;
    else if (request->silent)
        return; /* it pauses */
    else if (member->draining)
        member->role = member->role == CONFIG_AWAY ? CONFIG_AWAY : CONFIG_DRAINING;
    else if (owns && request->caught_up)
        member->role = CONFIG_OWNER;
    else if (!owns && request->near)
        member->role = CONFIG_CONTRIBUTOR;
    else if (member->role != CONFIG_CONTRIBUTOR && member->role != CONFIG_AWAY)
        member->role = CONFIG_OBSERVER;
}

static void place_witness(struct place *place, const struct change_request *request, bool doubt)
{
    bool lost = request->silent || request->evicted || place->member->draining;
    place->leaving = place->member->voter && lost;
    /* One that cannot vote yet would only be missed where all voters are needed. */
    place->able = !lost && (place->member->voter || doubt || !request->in_doubt);
    if (doubt && !lost)
        place->member->incarnation = request->incarnation; /* it has nothing to catch up with */
}

/* `islands`: that train, on the next roster. */
static void place_one(struct place *place, const struct change_request *request, uint32_t islands)
{
    struct config_member *member = place->member;
    place->shy = owners_shyness(member, islands);
    if (member->role == CONFIG_DRAINING && !member->draining) /* it would come back */
        member->role = CONFIG_AWAY;
    if (request == NULL || request->held || (request->unheard && !request->evicted)) { /* as it is */
        place->held = request != NULL && request->held;
        place->able = member->voter;
        return;
    }
    bool doubt = request->incarnation != member->incarnation;
    member->losses = request->losses < member->losses ? request->losses : member->losses;
    if (member->role == CONFIG_WITNESS)
        place_witness(place, request, doubt);
    else if (member->voter)
        place_voter(place, request, doubt);
    else {
        place_other(member, request, place->shy);
        place->ready =
            request->caught_up && !request->partitioned && !request->silent && !request->evicted && !member->draining;
        place->able = member->role == CONFIG_OWNER;
    }
}

static bool may_own(const struct place *place)
{
    return place->able && place->shy != SHY_NEVER && place->member->role == CONFIG_OWNER;
}

static bool willing(const struct place *place)
{
    return may_own(place) && place->shy == SHY_WILLING;
}

/* Of those who are lost again and again, whose losses cost all others an epoch each, none owns while so many others do
 * without it. */
static bool may_be_spared(const struct place *places, uint32_t count)
{
    uint32_t others = 0;
    for (uint32_t i = 0; i < count; i++)
        others += willing(&places[i]) && !owners_unsteady(places[i].member);
    return owners_enough(others);
}

/* Those of this shyness own who would not, and have caught up. True: there is one. */
static bool persuade(struct place *places, uint32_t count, enum shyness shy)
{
    bool any = false;
    for (uint32_t i = 0; i < count; i++) {
        if (places[i].shy != shy || !places[i].ready || places[i].member->role != CONFIG_CONTRIBUTOR)
            continue;
        places[i].member->role = CONFIG_OWNER;
        places[i].able = any = true;
    }
    return any;
}

/* Somebody has to own the shards. How shy those are that do: where nobody is left who would, the least shy of all. */
static enum shyness find_owners(struct place *places, uint32_t count)
{
    for (enum shyness shy = SHY_WILLING; shy < SHYNESSES; shy++) {
        bool any = false;
        for (uint32_t i = 0; i < count; i++)
            any |= may_own(&places[i]) && places[i].shy == shy;
        if (any || (shy != SHY_WILLING && persuade(places, count, shy)))
            return shy;
    }
    return SHY_UNREACHED;
}

static int compare_sooner(const void *a, const void *b)
{
    const struct place *const *one = a, *const *other = b;
    return owners_sooner((*one)->member, (*other)->member) ? -1 : 1;
}

/* Of those who would own, the CONFIG_OWNERS_MAX first do. */
static enum err choose_owners(struct place *places, uint32_t count)
{
    enum shyness shy = find_owners(places, count);
    bool spare = may_be_spared(places, count);
    struct place **order;
    uint32_t many = 0, held = 0;
    TRY(mem_new(count, sizeof *order, "members", &order));
    for (uint32_t i = 0; i < count; i++) {
        places[i].owns = places[i].held && places[i].member->role == CONFIG_OWNER;
        held += places[i].owns;
        if (!places[i].owns && may_own(&places[i]) && places[i].shy <= shy &&
            !(spare && owners_unsteady(places[i].member)))
            order[many++] = &places[i];
    }
    qsort(order, many, sizeof(struct place *), compare_sooner);
    for (uint32_t k = 0; k < many && held + k < CONFIG_OWNERS_MAX; k++)
        order[k]->owns = true;
    mem_free(order);
    return ERR_OK;
}

/* Who is not to own leaves the voters as far as rule 5 lets it. */
static enum err pick_owners(struct place *places, uint32_t count)
{
    TRY(choose_owners(places, count));
    for (uint32_t i = 0; i < count; i++) {
        struct config_member *member = places[i].member;
        if (places[i].owns || member->role != CONFIG_OWNER)
            continue;
        places[i].able = false;
        places[i].leaving = member->voter;
        places[i].patience = UNWILLING;
        if (!member->voter)
            member->role = CONFIG_CONTRIBUTOR;
    }
    return ERR_OK;
}

/* How good a set of voters is. */
struct worth {
    bool possible;
    int spare;     /* how many more may be lost */
    uint32_t need; /* at how many a result has to be durable */
};

static struct worth worth_of(uint32_t voters, uint32_t keepers, uint32_t mute)
{
    uint32_t majority = voters / 2 + 1;
    return (struct worth){.possible = keepers > 0,
                          .spare = (int)voters - (int)majority - (int)mute,
                          .need = majority < keepers ? majority : keepers};
}

static bool better(struct worth a, struct worth b)
{
    if (a.possible != b.possible)
        return a.possible;
    return a.spare != b.spare ? a.spare > b.spare : a.need < b.need;
}

/* The next one to leave the voters; NULL: none is left. */
static struct place *next_leaving(struct place *places, uint32_t count)
{
    struct place *first = NULL;
    for (uint32_t i = 0; i < count; i++)
        if (places[i].leaving && places[i].member->voter && places[i].member->role != CONFIG_WITNESS &&
            (first == NULL || places[i].patience < first->patience))
            first = &places[i];
    return first;
}

struct poll {
    uint32_t staying, coming, leaving; /* that have a copy */
    uint32_t lost;                     /* of those leaving */
    struct place *witness;
};

/* Who stands back can vote, and gets what is to be committed from others who have it; but not if there is only one
 * other and the witness, which keeps no bytes: those two go on without it. */
static void let_vote_who_stand_back(struct place *places, uint32_t count)
{
    uint32_t keepers = 0;
    bool witness = false;
    for (uint32_t i = 0; i < count; i++) {
        bool keeps = places[i].member->role != CONFIG_WITNESS;
        keepers += keeps && places[i].able;
        witness |= !keeps && places[i].able;
    }
    for (uint32_t i = 0; i < count; i++)
        if (places[i].partitioned && (keepers > 1 || !witness)) {
            places[i].leaving = false;
            places[i].able = true;
        }
}

static struct poll poll_of(struct place *places, uint32_t count)
{
    struct poll poll = {0};
    for (uint32_t i = 0; i < count; i++) {
        const struct config_member *member = places[i].member;
        if (member->role == CONFIG_WITNESS)
            poll.witness = &places[i];
        else if (places[i].leaving && member->voter) {
            poll.leaving++;
            poll.lost += places[i].patience < UNWILLING;
        } else if (places[i].able) {
            poll.staying += member->voter;
            poll.coming += !member->voter;
        }
    }
    return poll;
}

/* Rule 5: of those who would better not vote, as few leave as it takes to get the best set: the one that can lose most,
 * then the one in which a result is committed at fewest. The witness votes where that helps. */
static enum err pick_voters(struct place *places, uint32_t count)
{
    let_vote_who_stand_back(places, count);
    struct poll poll = poll_of(places, count);
    uint32_t fewest = poll.coming < poll.leaving ? poll.coming : poll.leaving; /* others take their places */
    bool was = poll.witness != NULL && poll.witness->member->voter;
    struct worth best = {0};
    uint32_t best_out = 0;
    bool best_witness = false;
    for (uint32_t out = fewest; out <= poll.leaving; out++) {
        for (int change = 0; change < 2; change++) {
            bool with = (change != 0) != was;
            if (with && !was && (poll.witness == NULL || !poll.witness->able))
                continue;
            uint32_t keepers = poll.staying + poll.coming + poll.leaving - out;
            uint32_t mute = (poll.lost > out ? poll.lost - out : 0) + (with && !poll.witness->able);
            struct worth worth = worth_of(keepers + with, keepers, mute);
            if (!better(worth, best))
                continue;
            best = worth;
            best_out = out;
            best_witness = with;
        }
    }
    if (!best.possible)
        return err_set(ERR_STATE, "no full voter would be left: let fewer leave, and evict or revoke fewer, at a time");
    for (struct place *place; best_out > 0 && (place = next_leaving(places, count)) != NULL; best_out--) {
        place->member->voter = false;
        if (place->member->role == CONFIG_OWNER)
            place->member->role = CONFIG_CONTRIBUTOR;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct config_member *member = places[i].member;
        member->voter = member->voter || (places[i].able && member->role == CONFIG_OWNER);
    }
    if (poll.witness != NULL)
        poll.witness->member->voter = best_witness;
    return ERR_OK;
}

enum err assign_roles(struct config *next, const struct change_request *requests, uint32_t change_requests_count)
{
    struct place *places;
    TRY(mem_new(next->members_count, sizeof *places, "members", &places));
    uint32_t islands = owners_islands(next), from = 0;
    for (uint32_t i = 0; i < next->members_count; i++) {
        places[i].member = &next->members[i];
        place_one(&places[i], change_request_of(requests, change_requests_count, next->members[i].id, &from), islands);
    }
    enum err err = pick_owners(places, next->members_count);
    if (err == ERR_OK)
        err = pick_voters(places, next->members_count);
    if (err == ERR_OK)
        owners_share_out(next);
    mem_free(places);
    return err;
}

void assign_roles_by_order(struct config *next)
{
    for (uint32_t i = 0; i < next->orders_count; i++)
        for (uint32_t k = 0; next->orders[i].kind == ORDER_EVICT && k < next->members_count; k++)
            if (next->members[k].id == next->orders[i].subject)
                next->members[k].role = CONFIG_AWAY;
    for (uint32_t k = 0; k < next->members_count; k++)
        if (next->members[k].role == CONFIG_DRAINING &&
            !next->members[k].draining) /* its own word: it would come back */
            next->members[k].role = CONFIG_AWAY;
    owners_share_out(next);
}
