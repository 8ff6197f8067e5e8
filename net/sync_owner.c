#include "net/sync_owner.h"

#include "net/grace.h"
#include "net/owner.h"

/* ---- who is missing, and for how long ---- */

/* Whether the round of our shard still waits for a member: it takes part, and its contribution may come. */
static bool missing(const struct sync *sync, uint32_t f, uint32_t i)
{
    const struct sync_fragment *own = &sync->fragments[f];
    const struct sync_member *peer = &sync->peers[i];
    uint64_t round = own->owner.round;
    if (bitset_has(&own->owner.have, i) || bitset_has(&own->owner.refused, i))
        return false;
    if (i == sync->conf.self)
        return own->state == SYNC_ENCODING || (own->trainer ? own->own.abstained < round : sync->expecting);
    return !peer->heard || peer->fragments[f].contributed >= round ||
           (peer->taking_part && peer->fragments[f].abstained < round);
}

/* Whether anyone is missing; looks first at who was last time. */
static bool someone_missing(struct sync *sync, uint32_t f)
{
    struct sync_fragment *fragment = &sync->fragments[f];
    for (uint32_t k = 0; k < sync->conf.members_count; k++) {
        if (missing(sync, f, fragment->missing_last))
            return true;
        fragment->missing_last = (fragment->missing_last + 1) % sync->conf.members_count;
    }
    return false;
}

/* The longest that any of the missing is worth waiting for. */
static uint64_t grace_for(const struct sync *sync, uint32_t f)
{
    uint64_t most = 0, grace_ms = sync->conf.rule.grace_ms;
    bool probe = grace_probes(f, sync->fragments[f].owner.round);
    for (uint32_t i = 0; i < sync->conf.members_count; i++) {
        uint64_t wait = missing(sync, f, i) ? grace_wait(&sync->peers[i].grace, grace_ms, probe) : 0;
        most = wait > most ? wait : most;
    }
    return most;
}

static void note_missing(struct sync *sync, uint32_t f)
{
    uint64_t waited_ms = sync->now_ms - sync->fragments[f].owner.quorum_ms;
    for (uint32_t i = 0; i < sync->conf.members_count; i++)
        if (missing(sync, f, i))
            grace_missed(&sync->peers[i].grace, waited_ms);
}

/* ---- the owner's table ---- */

static void publish(struct sync *sync, uint32_t f, uint64_t version)
{
    struct wire_key key = {.kind = WIRE_RESULT, .fragment = f, .version = version, .owner = sync->conf.self};
    key.island = sync->conf.self;
    for (uint32_t i = 0; i < sync->conf.members_count; i++)
        if (i != sync->conf.self && sync->peers[i].up)
            sync_core_put(sync, (struct sync_action){.type = SYNC_DO_SEND, .fragment = f, .key = key, .member = i});
}

/* Whether the result of our shard's round exists already, although we lost it: then it is not made again, or two
 * islands would apply different ones. Who shows it may be away; it stays the truth. */
static bool exists(const struct sync *sync, uint32_t f)
{
    for (uint32_t i = 0; i < sync->conf.members_count; i++)
        if (i != sync->conf.self &&
            sync_core_holds(&sync->peers[i].fragments[f], sync->fragments[f].owner.round, sync->conf.self))
            return true;
    return false;
}

/* Runs the table for our shard of the fragment, if we have one, and puts what it orders. */
static void step(struct sync *sync, uint32_t f, struct owner_input input)
{
    struct owner *owner = &sync->fragments[f].owner;
    bool idle = owner->state != OWNER_COLLECTING || bitset_empty(&owner->have);
    /* Those whom we refuse may be right: it is not known yet. */
    idle = idle || sync_core_disputed(sync, f);
    if (!sync_core_we_own(sync, f) || (input.event == OWNER_CHECK && idle))
        return; /* and nobody needs to know who is missing */
    uint64_t round = owner->round;
    input.now_ms = sync->now_ms;
    if (input.event == OWNER_CHECK) {
        input.missing = someone_missing(sync, f);
        input.grace_ms = sync->conf.rule.quorum > 0 ? grace_for(sync, f) : 0;
        if ((!input.missing || sync->conf.rule.quorum > 0) && exists(sync, f))
            return;
    }
    if (input.event == OWNER_CONTRIBUTED && owner->state == OWNER_COLLECTING)
        grace_arrived(&sync->peers[input.member].grace, owner->quorum_ms > 0 ? sync->now_ms - owner->quorum_ms : 0);
    switch (owner_step(owner, &sync->conf.rule, &input)) {
    case OWNER_REDUCE:
        if (owner->quorum_ms > 0)
            note_missing(sync, f);
        sync_core_put_version(sync, SYNC_DO_REDUCE, f, round);
        break;
    case OWNER_STORE: sync_core_put_version(sync, SYNC_DO_STORE, f, round); break;
    case OWNER_PUBLISH: publish(sync, f, round); break;
    case OWNER_NOTHING: break;
    }
}

void sync_owner_check(struct sync *sync, uint32_t f)
{
    step(sync, f, (struct owner_input){.event = OWNER_CHECK});
}

void sync_owner_check_all(struct sync *sync)
{
    for (uint32_t f = 0; f < sync->conf.fragments_count; f++)
        sync_owner_check(sync, f);
}

void sync_owner_restore(struct sync *sync, uint32_t f, uint64_t version, const struct bitset *results)
{
    bool ours_stands = bitset_has(results, sync->conf.self);
    struct owner owner = owner_init(version + (ours_stands ? 1 : 0));
    /* Contributions to this round may be here already, and their senders were told so. */
    if (sync->fragments[f].owner.round < owner.round)
        sync->fragments[f].owner = owner;
}

/* ---- contributions ---- */

void sync_owner_contributed(struct sync *sync, uint32_t f, uint64_t version)
{
    if (sync->fragments[f].owner.round == version)
        step(sync, f, (struct owner_input){.event = OWNER_CONTRIBUTED, .member = sync->conf.self});
    sync_owner_check(sync, f); /* of whatever round: it does not wait for us any more */
}

static void contribution(struct sync *sync, const struct sync_event *event, enum owner_event what)
{
    if (event->version != sync->fragments[event->fragment].owner.round)
        return;
    bool early = sync_core_hash_at(&sync->fragments[event->fragment], event->version - 1) == NULL;
    step(sync, event->fragment, (struct owner_input){.event = what, .member = event->member, .early = early});
    sync_owner_check(sync, event->fragment);
}

void sync_owner_contribution_in(struct sync *sync, const struct sync_event *event)
{
    contribution(sync, event, OWNER_CONTRIBUTED);
}

void sync_owner_contribution_refused(struct sync *sync, const struct sync_event *event)
{
    contribution(sync, event, OWNER_REFUSED);
}

/* ---- results ---- */

void sync_owner_reduced(struct sync *sync, uint32_t f)
{
    step(sync, f, (struct owner_input){.event = OWNER_REDUCED});
}

void sync_owner_dropped(struct sync *sync, uint32_t f, uint32_t member)
{
    step(sync, f, (struct owner_input){.event = OWNER_DROPPED, .member = member});
    sync_owner_check(sync, f);
}

void sync_owner_stored(struct sync *sync, uint32_t f, uint64_t version, uint32_t member)
{
    const struct owner *owner = &sync->fragments[f].owner;
    bool round_over = owner->round != version && !owner->drop;
    if (owner->state == OWNER_STORING && member == sync->conf.self && !round_over)
        step(sync, f, (struct owner_input){.event = OWNER_STORED});
    else
        sync_owner_advanced(sync, f, version);
}

void sync_owner_heard(struct sync *sync, uint32_t f, uint32_t member)
{
    const struct owner *owner = &sync->fragments[f].owner;
    if (owner->state == OWNER_REDUCING &&
        sync_core_holds(&sync->peers[member].fragments[f], owner->round, sync->conf.self))
        step(sync, f, (struct owner_input){.event = OWNER_SHOWN, .member = member});
}

void sync_owner_restarted(struct sync *sync, uint32_t f)
{
    step(sync, f, (struct owner_input){.event = OWNER_RESTARTED});
}

void sync_owner_advanced(struct sync *sync, uint32_t f, uint64_t version)
{
    step(sync, f, (struct owner_input){.event = OWNER_ADVANCED, .version = version});
}

/* ---- looking in ---- */

enum sync_want sync_owner_wants(const struct sync *sync, const struct wire_key *key, uint32_t from)
{
    const struct owner *owner = &sync->fragments[key->fragment].owner;
    if (key->owner != sync->conf.self || key->island != from || key->version < owner->round)
        return SYNC_NOT_NEEDED;
    if (key->version > owner->round)
        return SYNC_NOT_YET;
    if (bitset_has(&owner->have, from))
        return SYNC_HAVE;
    /* While a reduction runs it is not known whether this round is over: it may fail and collect on. */
    return owner->state == OWNER_COLLECTING ? SYNC_WANT : SYNC_NOT_YET;
}

struct bitset sync_owner_waiting_for(const struct sync *sync, uint32_t f)
{
    const struct owner *owner = &sync->fragments[f].owner;
    struct bitset waiting = {{0}};
    bool collects = owner->state == OWNER_COLLECTING && !bitset_empty(&owner->have);
    for (uint32_t i = 0; collects && i < sync->conf.members_count; i++)
        if (missing(sync, f, i))
            bitset_add(&waiting, i);
    return waiting;
}

uint64_t sync_owner_missed(const struct sync *sync, uint32_t member, bool *too_late)
{
    const struct grace *grace = &sync->peers[member].grace;
    *too_late = grace->missed > 0 && grace->late_ms > sync->conf.rule.grace_ms;
    return grace->missed;
}
