/* SPDX-License-Identifier: Apache-2.0 */
#include "net/sync/sync_patience.h"

#include "net/sync/sync_commit.h"

/*
 * ROUNDS: beside its own patience, so many usual rounds are waited. FIRST: so many times as long before any round is
 * known, since programs and data take their time at the beginning. AGAIN: so many times an owner waits that has started
 * again and knows no round yet: less than RESULT of the others' patiences, or whoever withholds a contribution from it
 * has them complain of it. RESULT: an owner may use up its own patience with others before its result is missed. PROBE:
 * whom a round had to do without is waited for again in one of so many, of twice as many each time that it happens, but
 * at least in one of 64; KEPT: which is forgotten after so many contributions in time.
 */
enum { ROUNDS = 2, FIRST = 5, AGAIN = 2, RESULT = 3, PROBE = 8, PROBE_DOUBLINGS = 3, KEPT = 256 };
/* So long a claim that was not proved is not believed; and one that makes no result takes no part: the first time, and
 * after so many doublings the longest. FORGOTTEN: after so long without another time, the next is a first one. */
enum { UNPROVEN_MS = 600000, BLAMED_MS = 60000, BLAMED_DOUBLINGS = 6, BLAME_FORGOTTEN_MS = 3600000 };

/* So many usual rounds; 0 before any is known. */
static uint64_t rounds_ms(const struct sync *sync, uint32_t f)
{
    const struct sync_wait *wait = &sync->fragments[f].wait;
    uint32_t known = wait->took_count < SYNC_TOOK ? wait->took_count : SYNC_TOOK;
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < known; i++)
        least = wait->took_ms[i] < least ? wait->took_ms[i] : least;
    return known > 0 ? ROUNDS * least : 0;
}

static uint64_t patience_of(const struct sync *sync, uint32_t f)
{
    bool known = sync->fragments[f].wait.took_count > 0;
    return known ? sync->conf.patience_ms + rounds_ms(sync, f) : FIRST * sync->conf.patience_ms;
}

/* With contributions to our part. */
static uint64_t own_patience_of(const struct sync *sync, uint32_t f)
{
    const struct sync_fragment *fragment = &sync->fragments[f];
    bool again = fragment->wait.took_count == 0 && fragment->own.version > 0;
    return again ? AGAIN * sync->conf.patience_ms : patience_of(sync, f);
}

/* ---- how long rounds take ---- */

void sync_patience_arrived(struct sync *sync, uint32_t f)
{
    struct sync_wait *wait = &sync->fragments[f].wait;
    wait->arrived_ms = wait->kept_ms = wait->ripe_ms = wait->overdue_ms = 0;
}

void sync_patience_made(struct sync *sync, uint32_t f, uint64_t since_ms)
{
    struct sync_wait *wait = &sync->fragments[f].wait;
    if (since_ms != 0)
        wait->took_ms[wait->took_count++ % SYNC_TOOK] = sync->now_ms - since_ms;
    wait->arrived_ms = sync->now_ms;
}

/* ---- since when somebody is waited for ---- */

void sync_patience_up(struct sync *sync, uint32_t member)
{
    sync->peers[member].conduct.up_ms = sync->now_ms;
}

/* Of what is due since then: whoever was not heard then could not bring it, nor we take it. */
static uint64_t waited_ms(const struct sync *sync, uint32_t member, uint64_t due_ms)
{
    uint64_t up_ms = member == sync_core_self(sync) ? 0 : sync->peers[member].conduct.up_ms;
    return sync->now_ms - (up_ms > due_ms ? up_ms : due_ms);
}

/* Who makes part `p` of the next version, if its result is to come from elsewhere; SYNC_NOBODY. */
static uint32_t missing_from(const struct sync *sync, uint32_t f, uint32_t p)
{
    const struct sync_parts *parts = &sync->fragments[f].parts;
    uint32_t owner = sync_core_slot(sync, parts->part[p].id.owner);
    bool there = parts->part[p].carried || (parts->held >> p & 1);
    return !there && owner != SYNC_NOBODY && sync_core_other(sync, owner) ? owner : SYNC_NOBODY;
}

/* Overdue is what everybody has had whose result is missing. */
void sync_patience_anew(struct sync *sync, uint32_t f)
{
    struct sync_wait *wait = &sync->fragments[f].wait;
    uint64_t least_ms = sync->now_ms - wait->ripe_ms;
    for (uint32_t p = 0; p < sync->fragments[f].parts.count; p++) {
        uint32_t owner = missing_from(sync, f, p);
        uint64_t ms = owner == SYNC_NOBODY     ? UINT64_MAX
                      : !sync->peers[owner].up ? 0
                                               : waited_ms(sync, owner, wait->ripe_ms);
        least_ms = ms < least_ms ? ms : least_ms;
    }
    if (wait->ripe_ms != 0)
        wait->overdue_ms += least_ms;
    wait->kept_ms = wait->ripe_ms = 0;
}

/* ---- contributions to our parts ---- */

void sync_patience_keeps(struct sync *sync, uint32_t f, uint32_t have, uint32_t missing)
{
    struct sync_wait *wait = &sync->fragments[f].wait;
    bool kept = missing > 0 && have >= missing && !sync->conf.view.paused;
    if (!kept)
        wait->kept_ms = 0;
    else if (wait->kept_ms == 0)
        wait->kept_ms = sync->now_ms;
}

static uint32_t doublings(const struct sync_conduct *conduct)
{
    return conduct->strikes < PROBE_DOUBLINGS ? conduct->strikes : PROBE_DOUBLINGS;
}

/* Whom a round had to do without is not worth that much once more, nor as soon as it is in time again, or it would cost
 * as much by withholding every second contribution: as long as it usually takes when it is in time, or two usual rounds
 * of those who never were. But what came in time before rounds grew shorter, or its line longer, may be too little for
 * ever: so the rarer it is waited for, the longer, up to two usual rounds. An eighth of these in every eighth round, a
 * quarter in every sixteenth ...: a thirty-second part of a round, of all rounds. */
static uint64_t worth_ms(const struct sync *sync, uint32_t f, uint32_t member)
{
    const struct sync_conduct *conduct = &sync->peers[member].conduct;
    uint64_t patience_ms = own_patience_of(sync, f);
    if (!conduct->late && conduct->strikes == 0)
        return patience_ms;
    uint64_t most_ms = sync->conf.rule.grace_ms > 0 ? sync->conf.rule.grace_ms : patience_ms;
    uint64_t usual_ms = conduct->usual.known ? grace_wait(&conduct->usual, most_ms, true) : rounds_ms(sync, f);
    uint64_t longer_ms = (rounds_ms(sync, f) << doublings(conduct)) / PROBE;
    uint64_t worth_ms = usual_ms > longer_ms ? usual_ms : longer_ms;
    return worth_ms < patience_ms ? worth_ms : patience_ms;
}

static bool patience_is_over(const struct sync *sync, uint32_t f, uint32_t member)
{
    uint64_t since_ms = sync->fragments[f].wait.kept_ms;
    return sync->conf.patience_ms > 0 && since_ms != 0 &&
           waited_ms(sync, member, since_ms) >= worth_ms(sync, f, member);
}

/* Whether the round waits for a member that an earlier one had to do without: the same rounds for the owners of all
 * parts, since a version waits for each. One contribution in time in such a round, and all wait for it again. */
static bool probes(const struct sync *sync, uint32_t f, uint32_t member)
{
    const struct sync_conduct *conduct = &sync->peers[member].conduct;
    return !conduct->late || (sync->fragments[f].owner.round + f) % ((uint64_t)PROBE << doublings(conduct)) == 0;
}

bool sync_patience_waits(const struct sync *sync, uint32_t f, uint32_t member)
{
    const struct sync_member *peer = &sync->peers[member];
    if (member != sync_core_self(sync) && !peer->up) /* the next epoch says that it is lost */
        return true;
    return probes(sync, f, member) && !patience_is_over(sync, f, member);
}

void sync_patience_missed(struct sync *sync, uint32_t f, uint32_t member)
{
    struct sync_conduct *conduct = &sync->peers[member].conduct;
    bool here = member == sync_core_self(sync) || sync->peers[member].up;
    if (!here || !probes(sync, f, member) || !patience_is_over(sync, f, member))
        return;
    conduct->strikes += conduct->late; /* the first one costs the least */
    conduct->late = true;
    conduct->kept = 0;
}

void sync_patience_came(struct sync *sync, uint32_t f, uint32_t member)
{
    struct sync_conduct *conduct = &sync->peers[member].conduct;
    uint64_t since_ms = sync->fragments[f].wait.kept_ms;
    if (member != sync_core_self(sync))
        grace_arrived(&conduct->usual, since_ms != 0 ? waited_ms(sync, member, since_ms) : 0);
    /* In a round that would not have waited it says little: who withholds every second one is in time in between. */
    if (conduct->late && probes(sync, f, member)) {
        conduct->strikes++;
        conduct->late = false;
    }
    if (conduct->strikes > 0 && ++conduct->kept >= KEPT)
        conduct->strikes = 0;
}

/* ---- claims ---- */

/* Whether the member alone keeps a round of ours from closing by what it says there is. */
static bool claims(const struct sync *sync, uint32_t member)
{
    for (uint32_t f = 0; f < sync->conf.fragments_count; f++) {
        const struct sync_fragment *fragment = &sync->fragments[f];
        uint64_t round = fragment->own.version + 1;
        bool collects = fragment->owner.state == OWNER_COLLECTING && !bitset_empty(&fragment->owner.have) &&
                        fragment->owner.round == round && sync_commit_ours(sync, f) < VERSION_PARTS_MAX;
        if (collects && fragment->own.hash_known && sync_commit_claims(sync, f, round, member) &&
            !sync_commit_surely_lost(sync, f, round))
            return true;
    }
    return false;
}

static void look_at_claim(struct sync *sync, uint32_t member)
{
    struct sync_conduct *conduct = &sync->peers[member].conduct;
    if (sync_core_unproven(sync, member) || !claims(sync, member)) {
        conduct->claim_ms = 0;
        return;
    }
    if (conduct->claim_ms == 0)
        conduct->claim_ms = sync->now_ms;
    if (sync->now_ms < conduct->claim_ms + sync->conf.patience_ms)
        return;
    conduct->unproven_until_ms = sync->now_ms + UNPROVEN_MS;
    conduct->claim_ms = 0;
}

/* ---- results that are due ---- */

/* Whether there is something to make a result of: at least half of those who take part, can be heard and do not abstain
 * say that they have contributed. */
static bool most_contributed(const struct sync *sync, uint32_t f)
{
    const struct sync_view *view = &sync->conf.view;
    uint64_t round = sync->fragments[f].own.version + 1;
    uint32_t done = 0, others = 0;
    for (uint32_t i = 0; i < view->slots; i++) {
        bool self = i == view->self;
        if (!bitset_has(&view->taking_part, i) || (!self && !sync->peers[i].up))
            continue;
        const struct wire_standing *row = self ? &sync->fragments[f].own : &sync->peers[i].fragments[f];
        bool has = row->contributed >= round;
        done += has;
        others += !has && row->abstained < round;
    }
    return done > 0 && done >= others;
}

static void blame(struct sync *sync, uint32_t member)
{
    struct sync_conduct *conduct = &sync->peers[member].conduct;
    if (sync->now_ms < conduct->blamed_until_ms)
        return;
    if (sync->now_ms >= conduct->blamed_until_ms + BLAME_FORGOTTEN_MS)
        conduct->blames = 0;
    uint32_t doublings = conduct->blames < BLAMED_DOUBLINGS ? conduct->blames : BLAMED_DOUBLINGS;
    conduct->blamed_until_ms = sync->now_ms + ((uint64_t)BLAMED_MS << doublings);
    conduct->blames++;
}

/* In this epoch it has had half as long again as its own patience may last; with those before, what it is given. */
static bool is_overdue(const struct sync *sync, uint32_t f, uint32_t owner)
{
    const struct sync_wait *wait = &sync->fragments[f].wait;
    uint64_t patience_ms = patience_of(sync, f), since_ms = waited_ms(sync, owner, wait->ripe_ms);
    uint64_t before_ms = sync->peers[owner].conduct.up_ms > wait->ripe_ms ? 0 : wait->overdue_ms;
    return since_ms >= patience_ms + patience_ms / 2 && since_ms + before_ms >= RESULT * patience_ms;
}

static void look_at_results(struct sync *sync, uint32_t f)
{
    struct sync_fragment *fragment = &sync->fragments[f];
    bool due = fragment->own.hash_known && !sync->sealed && !sync->conf.view.paused && !sync_core_disputed(sync, f) &&
               sync_core_announced(sync, f, true) <= fragment->own.version && most_contributed(sync, f);
    struct sync_wait *wait = &fragment->wait;
    if (!due) {
        wait->ripe_ms = 0;
        return;
    }
    if (wait->ripe_ms == 0)
        wait->ripe_ms = sync->now_ms;
    for (uint32_t p = 0; p < fragment->parts.count; p++) {
        uint32_t owner = missing_from(sync, f, p);
        if (owner != SYNC_NOBODY && sync->peers[owner].up && is_overdue(sync, f, owner))
            blame(sync, owner);
    }
}

/* Members who complained of each other may all be out for it, and then nobody makes results: whom each of them goes on
 * without is of no use any more. */
static void forgive_where_nobody_owns(struct sync *sync)
{
    const struct shardmap *map = &config_log_last(sync->conf.config_log)->map;
    for (uint32_t slot = 0; slot < SHARDMAP_SLOTS; slot++)
        if (map->owner[slot] != SHARDMAP_NOBODY)
            return;
    for (uint32_t i = 0; i < sync_core_slots(sync); i++)
        sync->peers[i].conduct.blamed_until_ms = 0;
}

void sync_patience_tick(struct sync *sync)
{
    if (sync->conf.patience_ms == 0)
        return;
    forgive_where_nobody_owns(sync);
    for (uint32_t i = 0; i < sync_core_slots(sync); i++)
        if (sync_core_other(sync, i))
            look_at_claim(sync, i);
    for (uint32_t f = 0; f < sync->conf.fragments_count; f++)
        look_at_results(sync, f);
}

enum sync_fault sync_patience_fault(const struct sync *sync, uint32_t member)
{
    const struct sync_conduct *conduct = &sync->peers[member].conduct;
    if (sync->now_ms < conduct->blamed_until_ms)
        return SYNC_FAULT_NO_RESULT;
    if (conduct->late)
        return SYNC_FAULT_LATE;
    return sync_core_unproven(sync, member) ? SYNC_FAULT_UNPROVEN : SYNC_FAULT_NONE;
}
