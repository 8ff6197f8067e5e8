/* SPDX-License-Identifier: Apache-2.0 */
#include "net/sync/sync_owner.h"

#include "net/sync/owner.h"
#include "net/sync/sync_commit.h"
#include "net/sync/sync_patience.h"

/* ---- who is missing, and for how long ---- */

/* Whether the contribution of a member that takes part may come to the round of our part. Of one that votes and is lost
 * the next epoch says so; one that only contributes pauses without an epoch, and may never come back, or can't
 * contribute as long as it does not hear us, or too few. */
static bool may_come(const struct sync *sync, uint32_t f, uint32_t i)
{
    const struct sync_fragment *own = &sync->fragments[f];
    const struct sync_member *peer = &sync->peers[i];
    uint64_t round = own->owner.round;
    if (!bitset_has(&sync->conf.view.taking_part, i))
        return false;
    if (bitset_has(&own->owner.have, i) || bitset_has(&own->owner.refused, i))
        return false;
    if (i == sync_core_self(sync))
        return own->state == SYNC_ENCODING || (own->trainer ? own->own.abstained < round : sync->expecting);
    if ((!peer->up || peer->deaf || peer->cut_off) && !bitset_has(&sync->conf.view.keepers, i))
        return false;
    if (peer->fragments[f].version >= round)
        return false; /* it is past it, as it says; what that means for the round, sync_commit_lost() says */
    return !peer->heard || peer->fragments[f].contributed >= round ||
           (peer->taking_part && peer->fragments[f].abstained < round);
}

/* Whether the round still waits for the member. */
static bool missing(const struct sync *sync, uint32_t f, uint32_t i)
{
    bool on_its_way = i == sync_core_self(sync) && sync->fragments[f].state == SYNC_ENCODING;
    return may_come(sync, f, i) && (on_its_way || sync_patience_waits(sync, f, i));
}

/* Whether anyone is missing; looks first at who was last time. */
static bool someone_missing(struct sync *sync, uint32_t f)
{
    struct sync_fragment *fragment = &sync->fragments[f];
    for (uint32_t k = 0; k < sync_core_slots(sync); k++) {
        if (missing(sync, f, fragment->missing_last))
            return true;
        fragment->missing_last = (fragment->missing_last + 1) % sync_core_slots(sync);
    }
    return false;
}

/* The longest that any of the missing is worth waiting for. */
static uint64_t grace_for(const struct sync *sync, uint32_t f)
{
    uint64_t most = 0, grace_ms = sync->conf.rule.grace_ms;
    bool probe = grace_probes(f, sync->fragments[f].owner.round);
    for (uint32_t i = 0; i < sync_core_slots(sync); i++) {
        uint64_t wait = missing(sync, f, i) ? grace_wait(&sync->peers[i].grace, grace_ms, probe) : 0;
        most = wait > most ? wait : most;
    }
    return most;
}

/* The round closes. */
static void note_missing(struct sync *sync, uint32_t f)
{
    uint64_t quorum_ms = sync->fragments[f].owner.quorum_ms;
    for (uint32_t i = 0; i < sync_core_slots(sync); i++) {
        if (!may_come(sync, f, i))
            continue;
        if (quorum_ms > 0 && i != sync_core_self(sync) && missing(sync, f, i))
            grace_missed(&sync->peers[i].grace, sync->now_ms - quorum_ms);
        sync_patience_missed(sync, f, i);
    }
}

/* ---- the owner's table ---- */

static void publish(struct sync *sync, uint32_t f, uint64_t version)
{
    uint32_t id = sync_core_id(sync, sync_core_self(sync));
    struct wire_key key = {.kind = WIRE_RESULT,
                           .fragment = f,
                           .version = version,
                           .epoch = sync->conf.view.epoch,
                           .owner = id,
                           .island = id};
    for (uint32_t i = 0; i < sync_core_slots(sync); i++)
        if (sync_core_other(sync, i) && sync_core_keeps(sync, i) && sync->peers[i].up)
            sync_core_put(sync, (struct sync_action){.type = SYNC_DO_SEND, .fragment = f, .key = key, .member = i});
}

/* Whether the round may close: our fragment has come so far, nobody decides on another epoch meanwhile, we may make
 * results at all, and it is not open which state is right. */
static bool may_close(const struct sync *sync, uint32_t f)
{
    const struct sync_fragment *fragment = &sync->fragments[f];
    return fragment->owner.round == fragment->own.version + 1 && fragment->own.hash_known && !sync->sealed &&
           sync->conf.view.votes && sync_commit_ours(sync, f) < VERSION_PARTS_MAX && !sync_core_disputed(sync, f);
}

uint32_t sync_owner_quorum(const struct sync *sync)
{
    uint32_t set = sync->conf.rule.quorum, there = bitset_count(&sync->conf.view.taking_part);
    there = there > 0 ? there : 1;
    return set < there ? set : there;
}

/* Runs the table for our part of the fragment and puts what it orders. */
static void step(struct sync *sync, uint32_t f, struct owner_input input)
{
    struct owner *owner = &sync->fragments[f].owner;
    if (input.event == OWNER_CHECK &&
        (owner->state != OWNER_COLLECTING || bitset_empty(&owner->have) || !may_close(sync, f)))
        return; /* and nobody needs to know who is missing */
    struct owner_rule rule = {.quorum = sync_owner_quorum(sync), .grace_ms = sync->conf.rule.grace_ms};
    uint64_t round = owner->round;
    input.now_ms = sync->now_ms;
    if (input.event == OWNER_CHECK) {
        input.missing = someone_missing(sync, f);
        if (input.missing && sync->conf.view.paused) { /* nobody's lateness counts, whatever the grace */
            owner->quorum_ms = 0;
            return;
        }
        input.grace_ms = sync->conf.rule.quorum > 0 ? grace_for(sync, f) : 0;
        /* A result that exists already, although we lost it, is not made again, or two islands would apply different
         * ones. Who shows it may be away; it stays the truth. */
        if ((!input.missing || sync->conf.rule.quorum > 0) && sync_commit_lost(sync, f, round))
            return;
    }
    /* What a job brings that was at work when the seal came is of no use: the seal does not name it. */
    if (sync->sealed && (input.event == OWNER_REDUCED || input.event == OWNER_STORED))
        owner->drop = true;
    if (input.event == OWNER_CONTRIBUTED && owner->state == OWNER_COLLECTING)
        grace_arrived(&sync->peers[input.member].grace, owner->quorum_ms > 0 ? sync->now_ms - owner->quorum_ms : 0);
    switch (owner_step(owner, &rule, &input)) {
    case OWNER_REDUCE:
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

void sync_owner_tick(struct sync *sync, uint32_t f)
{
    const struct owner *owner = &sync->fragments[f].owner;
    uint32_t have = bitset_count(&owner->have), late = 0;
    bool waits = owner->state == OWNER_COLLECTING && have > 0 && may_close(sync, f);
    for (uint32_t i = 0; waits && i < sync_core_slots(sync); i++)
        late += may_come(sync, f, i);
    sync_patience_keeps(sync, f, have, late);
    sync_owner_check(sync, f);
}

void sync_owner_check_all(struct sync *sync)
{
    for (uint32_t f = 0; f < sync->conf.fragments_count; f++)
        sync_owner_check(sync, f);
}

void sync_owner_restore(struct sync *sync, uint32_t f, uint64_t version)
{
    struct owner owner = owner_init(version);
    /* Contributions to this round may be here already, and their senders were told so. */
    if (sync->fragments[f].owner.round < owner.round)
        sync->fragments[f].owner = owner;
}

void sync_owner_epoch(struct sync *sync, uint32_t f)
{
    step(sync, f, (struct owner_input){.event = OWNER_BEGUN, .version = sync->fragments[f].own.version});
}

/* ---- contributions ---- */

void sync_owner_contributed(struct sync *sync, uint32_t f, uint64_t version)
{
    if (sync->fragments[f].owner.round == version) {
        sync_patience_came(sync, f, sync_core_self(sync));
        step(sync, f, (struct owner_input){.event = OWNER_CONTRIBUTED, .member = sync_core_self(sync)});
    }
    sync_owner_check(sync, f); /* of whatever round: it does not wait for us any more */
}

static void contribution(struct sync *sync, const struct sync_event *event, enum owner_event what)
{
    if (event->version != sync->fragments[event->fragment].owner.round || event->epoch != sync->conf.view.epoch)
        return;
    bool early = sync_core_hash_at(&sync->fragments[event->fragment], event->version - 1) == NULL;
    if (what == OWNER_CONTRIBUTED)
        sync_patience_came(sync, event->fragment, event->member);
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

void sync_owner_overtaken(struct sync *sync, uint32_t f)
{
    step(sync, f, (struct owner_input){.event = OWNER_OVERTAKEN});
    sync_owner_check(sync, f);
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
    if (owner->state == OWNER_STORING && member == sync_core_self(sync) && !round_over)
        step(sync, f, (struct owner_input){.event = OWNER_STORED});
    else
        sync_owner_advanced(sync, f, version);
}

void sync_owner_heard(struct sync *sync, uint32_t f, uint32_t member)
{
    const struct owner *owner = &sync->fragments[f].owner;
    if (owner->state == OWNER_REDUCING && sync_commit_lost(sync, f, owner->round))
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

/* Whether a part of that version is ours to make. */
static bool ours(const struct sync *sync, uint32_t f, uint64_t version)
{
    struct version_part parts[VERSION_PARTS_MAX];
    uint32_t id = sync_core_id(sync, sync_core_self(sync));
    uint32_t count = sync_core_parts(sync, f, version, parts);
    for (uint32_t p = 0; p < count; p++)
        if (parts[p].id.owner == id && parts[p].id.epoch == sync->conf.view.epoch && !parts[p].carried)
            return true;
    return false;
}

enum sync_want sync_owner_wants(const struct sync *sync, const struct wire_key *key, uint32_t from)
{
    const struct owner *owner = &sync->fragments[key->fragment].owner;
    uint64_t epoch = sync->conf.view.epoch;
    if (key->owner != sync_core_id(sync, sync_core_self(sync)) || key->island != sync_core_id(sync, from) ||
        key->epoch < epoch)
        return SYNC_NOT_NEEDED;
    if (key->epoch > epoch)
        return SYNC_NOT_YET; /* its round may be one that we have made, and that is made anew */
    if (key->version != owner->round)
        return key->version < owner->round ? SYNC_NOT_NEEDED : SYNC_NOT_YET;
    if (!ours(sync, key->fragment, key->version))
        return SYNC_NOT_NEEDED;
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
    for (uint32_t i = 0; collects && i < sync_core_slots(sync); i++)
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
