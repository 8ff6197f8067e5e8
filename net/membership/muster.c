/* SPDX-License-Identifier: Apache-2.0 */
#include "net/membership/muster.h"

#include <stdlib.h>
#include <string.h>

#include "common/mem.h"

/* A member on its way into the next record. */
struct place {
    struct record_member *member;
    bool shy;     /* is not to own, unless nobody else can */
    bool gone;    /* revoked: not in the record */
    bool able;    /* to vote, in the record as it was made so far */
    bool leaving; /* votes in the last record, and would better not */
    bool ready;   /* to own, if it has to */
    bool apart;   /* leaving only because it and an owner do not hear each other */
    int patience; /* of those leaving, the lower ones leave first; below UNWILLING: they can't vote, or soon */
};

enum { UNWILLING = 3 };
/* Who was lost so often lately owns nothing, as long as so many others do. */
enum { UNSTEADY = 3, STEADY_MIN = 3 };

static const struct muster_wish *wish_of(const struct muster_wish *wishes, uint32_t count, uint32_t id)
{
    for (uint32_t i = 0; i < count; i++)
        if (!wishes[i].enrol && wishes[i].as.id == id)
            return &wishes[i];
    return NULL;
}

static bool may_enrol(const struct record *next, const struct muster_wish *wish)
{
    if (!wish->enrol || wish->revoked || next->members_count == WIRE_MEMBERS_MAX || next->next_id == UINT32_MAX)
        return false;
    for (uint32_t i = 0; i < next->members_count; i++) {
        const struct record_member *member = &next->members[i];
        if (strcmp(member->name, wish->as.name) == 0 || ident_compare(member->key, wish->as.key) == 0 ||
            (member->role == RECORD_WITNESS && wish->as.role == RECORD_WITNESS))
            return false;
    }
    return true;
}

static enum err enrol(struct record *next, const struct muster_wish *wishes, uint32_t count)
{
    TRY(mem_grow(&next->members, next->members_count, (size_t)next->members_count + count, sizeof next->members[0],
                 "members"));
    for (uint32_t i = 0; i < count; i++) {
        if (!may_enrol(next, &wishes[i]))
            continue;
        struct record_member *member = &next->members[next->members_count++];
        *member = wishes[i].as;
        member->id = next->next_id++;
        member->voter = false;
        member->role = wishes[i].as.role == RECORD_WITNESS ? RECORD_WITNESS : RECORD_OBSERVER;
    }
    return ERR_OK;
}

/* Two islands that cannot be dialled never meet, so of more than two islands those that can be own. */
static bool is_shy(const struct record_member *member, uint32_t islands)
{
    return member->owner_wish == RECORD_OWNER_NO || (member->owner_wish == RECORD_OWNER_DIALS && islands > 2);
}

/* A trainer's island that votes: it stays an owner, leaves, or waits until its disk is whole again. */
static void place_voter(struct place *place, const struct muster_wish *wish, bool doubt)
{
    struct record_member *member = place->member;
    bool lost = wish->silent || wish->evicted || wish->apart;
    place->leaving = lost || wish->draining || (doubt && !wish->caught_up);
    if (lost && !wish->evicted && member->role != RECORD_AWAY && member->losses < RECORD_LOSSES_MAX)
        member->losses++;
    if (lost)
        member->role = RECORD_AWAY;
    else if (wish->draining)
        member->role = RECORD_DRAINING;
    else if (member->role != RECORD_OWNER || doubt)
        member->role = wish->caught_up ? RECORD_OWNER : RECORD_AWAY;
    if (doubt && wish->caught_up && !lost)
        member->incarnation = wish->as.incarnation;
    place->able = !place->leaving;
    place->patience = lost ? 0 : doubt ? 1 : 2;
    place->apart = wish->apart && !wish->silent && !wish->evicted;
}

/* `shy`: it is not to own. */
static void place_other(struct record_member *member, const struct muster_wish *wish, bool shy)
{
    member->incarnation = wish->as.incarnation;
    if (wish->evicted)
        member->role = RECORD_AWAY;
    else if (wish->silent)
        return; /* it pauses */
    else if (wish->draining)
        member->role = RECORD_DRAINING;
    else if (shy || wish->apart)
        member->role = wish->near || member->role == RECORD_CONTRIBUTOR ? RECORD_CONTRIBUTOR : RECORD_OBSERVER;
    else if (wish->caught_up)
        member->role = RECORD_OWNER;
    else if (member->role != RECORD_CONTRIBUTOR)
        member->role = RECORD_OBSERVER;
}

static void place_witness(struct place *place, const struct muster_wish *wish, bool doubt)
{
    bool lost = wish->silent || wish->evicted || wish->draining;
    place->leaving = place->member->voter && lost;
    /* One that cannot vote yet would only be missed where all voters are needed. */
    place->able = !lost && (place->member->voter || doubt || !wish->in_doubt);
    if (doubt && !lost)
        place->member->incarnation = wish->as.incarnation; /* it has nothing to catch up with */
}

/* `islands`: that train, on the next roster. */
static void place_one(struct place *place, const struct muster_wish *wish, uint32_t islands)
{
    struct record_member *member = place->member;
    place->shy = is_shy(member, islands);
    if (wish == NULL) { /* as it is */
        place->able = member->voter;
        return;
    }
    bool doubt = wish->as.incarnation != member->incarnation;
    memcpy(member->address, wish->as.address, sizeof member->address);
    member->uplink = wish->as.uplink;
    member->owner_wish = wish->as.owner_wish;
    member->losses = wish->as.losses < member->losses ? wish->as.losses : member->losses;
    place->shy = is_shy(member, islands);
    if (wish->revoked)
        place->gone = true;
    else if (member->role == RECORD_WITNESS)
        place_witness(place, wish, doubt);
    else if (member->voter)
        place_voter(place, wish, doubt);
    else {
        place_other(member, wish, place->shy);
        place->ready = wish->caught_up && !wish->apart && !wish->silent && !wish->evicted && !wish->draining;
        place->able = member->role == RECORD_OWNER;
    }
}

/* Whether `a` is to own shards rather than `b`. */
static bool sooner(const struct record_member *a, const struct record_member *b)
{
    bool yes_a = a->owner_wish == RECORD_OWNER_YES, yes_b = b->owner_wish == RECORD_OWNER_YES;
    if (yes_a != yes_b)
        return yes_a;
    return a->uplink != b->uplink ? a->uplink > b->uplink : a->id < b->id;
}

static bool may_own(const struct place *place)
{
    return !place->gone && place->able && place->member->role == RECORD_OWNER;
}

static bool willing(const struct place *place)
{
    return may_own(place) && !place->shy;
}

/* Of those who are lost again and again, whose losses cost all others an epoch each, none owns while so many others do
 * without it. */
static bool may_be_spared(const struct place *places, uint32_t count)
{
    uint32_t others = 0;
    for (uint32_t i = 0; i < count; i++)
        others += willing(&places[i]) && places[i].member->losses < UNSTEADY;
    return others >= STEADY_MIN;
}

/* Somebody has to own the shards: where nobody is left who would, those do who would not, and have caught up. True:
 * there is somebody willing, or nobody at all. */
static bool find_willing(struct place *places, uint32_t count)
{
    bool owner = false;
    for (uint32_t i = 0; i < count; i++) {
        if (willing(&places[i]))
            return true;
        owner |= may_own(&places[i]);
    }
    for (uint32_t i = 0; !owner && i < count; i++) {
        if (places[i].gone || !places[i].ready || places[i].member->role != RECORD_CONTRIBUTOR)
            continue;
        places[i].member->role = RECORD_OWNER;
        places[i].able = true;
    }
    return false;
}

/* At most RECORD_OWNERS_MAX own; who wishes not to leaves the voters as far as rule 5 lets it. */
static void pick_owners(struct place *places, uint32_t count)
{
    bool some = find_willing(places, count), spare = may_be_spared(places, count);
    for (uint32_t i = 0; i < count; i++) {
        struct record_member *member = places[i].member;
        if (places[i].gone || member->role != RECORD_OWNER)
            continue;
        uint32_t before = 0;
        for (uint32_t k = 0; k < count; k++)
            before += k != i && (some ? willing(&places[k]) : may_own(&places[k])) && sooner(places[k].member, member);
        bool unsteady = spare && member->losses >= UNSTEADY;
        if ((!some || !places[i].shy) && before < RECORD_OWNERS_MAX && !unsteady)
            continue;
        places[i].able = false;
        places[i].leaving = member->voter;
        places[i].patience = UNWILLING;
    }
    for (uint32_t i = 0; i < count; i++)
        if (!places[i].member->voter && places[i].member->role == RECORD_OWNER && !places[i].able)
            places[i].member->role = RECORD_CONTRIBUTOR;
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
        if (places[i].leaving && !places[i].gone && places[i].member->voter &&
            places[i].member->role != RECORD_WITNESS && (first == NULL || places[i].patience < first->patience))
            first = &places[i];
    return first;
}

struct poll {
    uint32_t staying, coming, leaving; /* that keep bytes */
    uint32_t lost;                     /* of those leaving */
    struct place *witness;
};

/* Who stands back can vote, and gets what is to be certified from others who have it; but not if there is only one
 * other and the witness, which keeps no bytes: those two go on without it. */
static void let_vote_who_stand_back(struct place *places, uint32_t count)
{
    uint32_t keepers = 0;
    bool witness = false;
    for (uint32_t i = 0; i < count; i++) {
        bool keeps = places[i].member->role != RECORD_WITNESS;
        keepers += keeps && places[i].able && !places[i].gone;
        witness |= !keeps && places[i].able && !places[i].gone;
    }
    for (uint32_t i = 0; i < count; i++)
        if (places[i].apart && (keepers > 1 || !witness)) {
            places[i].leaving = false;
            places[i].able = true;
        }
}

static struct poll poll_of(struct place *places, uint32_t count)
{
    struct poll poll = {0};
    for (uint32_t i = 0; i < count; i++) {
        if (places[i].gone)
            continue;
        const struct record_member *member = places[i].member;
        if (member->role == RECORD_WITNESS)
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
 * then the one in which a result is certified at fewest. The witness votes where that helps. */
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
        return err_set(ERR_STATE, "no voter that keeps bytes would be left: drain, evict or revoke fewer at a time");
    for (struct place *place; best_out > 0 && (place = next_leaving(places, count)) != NULL; best_out--) {
        place->member->voter = false;
        if (place->member->role == RECORD_OWNER)
            place->member->role = RECORD_CONTRIBUTOR;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct record_member *member = places[i].member;
        member->voter = !places[i].gone && (member->voter || (places[i].able && member->role == RECORD_OWNER));
    }
    if (poll.witness != NULL)
        poll.witness->member->voter = best_witness;
    return ERR_OK;
}

static uint32_t owners_of(const struct record *next, const struct place *places, bool unwilling,
                          struct shardmap_owner owners[RECORD_OWNERS_MAX])
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < next->members_count; i++) {
        const struct record_member *member = places[i].member;
        if (!places[i].gone && member->role == RECORD_OWNER && (places[i].able || unwilling) &&
            count < RECORD_OWNERS_MAX)
            owners[count++] = (struct shardmap_owner){.id = member->id, .weight = member->uplink};
    }
    return count;
}

/* An owner that wishes not to be one and goes on voting has no slot, unless nobody else is there. */
static void share_out(struct record *next, const struct place *places)
{
    struct shardmap_owner owners[RECORD_OWNERS_MAX];
    uint32_t count = owners_of(next, places, false, owners);
    if (count == 0)
        count = owners_of(next, places, true, owners);
    if (count > 0)
        shardmap_assign(&next->map, owners, count);
    else
        next->map = shardmap_empty();
}

static uint32_t islands_of(const struct record *next, const struct muster_wish *wishes, uint32_t wishes_count)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < next->members_count; i++) {
        const struct muster_wish *wish = wish_of(wishes, wishes_count, next->members[i].id);
        count += next->members[i].role != RECORD_WITNESS && (wish == NULL || !wish->revoked);
    }
    return count;
}

enum err muster(struct record *next, const struct muster_wish *wishes, uint32_t wishes_count)
{
    uint32_t before = next->members_count;
    TRY(enrol(next, wishes, wishes_count));
    struct place *places;
    TRY(mem_new(next->members_count, sizeof *places, "members", &places));
    uint32_t islands = islands_of(next, wishes, wishes_count);
    for (uint32_t i = 0; i < next->members_count; i++) {
        places[i].member = &next->members[i];
        if (i < before)
            place_one(&places[i], wish_of(wishes, wishes_count, next->members[i].id), islands);
    }
    pick_owners(places, next->members_count);
    enum err err = pick_voters(places, next->members_count);
    if (err == ERR_OK) {
        share_out(next, places);
        uint32_t kept = 0;
        for (uint32_t i = 0; i < next->members_count; i++)
            if (!places[i].gone)
                next->members[kept++] = next->members[i];
        next->members_count = kept;
    }
    mem_free(places);
    return err;
}
