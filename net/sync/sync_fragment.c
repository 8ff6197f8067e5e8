/* SPDX-License-Identifier: Apache-2.0 */
#include "net/sync/sync_fragment.h"

#include <stddef.h>

#include "net/sync/sync_commit.h"
#include "net/sync/sync_owner.h"
#include "net/sync/sync_patience.h"

/* An unanswered request for a state is made again after this long, possibly to another member. */
enum { STATE_AGAIN_MS = 15000 };
/* Until a contribution that was refused is offered again: first, and at most. */
enum { OFFER_AGAIN_MS = 2000, OFFER_AGAIN_MAX_MS = 60000 };
/* From a state that came results lead on, as long as a version comes in this time, or in as long as the state took, if
 * that is more: a version's results have fewer bytes. Another state would be as old as this one when it is here. But
 * whoever serves one slowly is not to hold us up for long. */
enum { LEADS_MS = 60000, LEADS_MAX_MS = 600000 };

/* ---- versions ---- */

/* The fragment stands at `version` now; results of the one after it are still to come. */
static void arrive(struct sync *sync, uint32_t f, uint64_t version, const struct digest *hash)
{
    struct sync_fragment *fragment = &sync->fragments[f];
    fragment->own.version = version;
    fragment->complete = false;
    fragment->proof = SYNC_PROOF_NONE;
    fragment->behind_ms = 0;
    fragment->fetch_ms = 0;
    fragment->fetch_tries = 0;
    sync_core_ask_anew(sync, f);
    sync_core_remember_hash(fragment, version, hash);
    sync_patience_arrived(sync, f);
    sync_beyond_reset(sync, f);
    sync_commit_arrive(sync, f); /* results of the next one that the ledger has are told after this */
    sync_core_put_version(sync, SYNC_DO_RETIRE, f, version);
    sync_owner_advanced(sync, f, version);
    sync_core_announce(sync);
}

/* ---- asking for a state ---- */

void sync_fragment_ask_for_state(struct sync *sync, uint32_t f, uint32_t member)
{
    struct sync_fragment *fragment = &sync->fragments[f];
    fragment->state_key = (struct wire_key){.kind = WIRE_STATE,
                                            .fragment = f,
                                            .version = sync->peers[member].fragments[f].version,
                                            .island = sync_core_id(sync, member)};
    fragment->state_from = member;
    fragment->state_ms = sync->now_ms;
    fragment->fetch_ms = sync->now_ms + STATE_AGAIN_MS;
    fragment->refused = false;
    sync_core_put(
        sync, (struct sync_action){.type = SYNC_DO_FETCH, .fragment = f, .key = fragment->state_key, .member = member});
}

void sync_fragment_repair(struct sync *sync, uint32_t f)
{
    struct sync_fragment *fragment = &sync->fragments[f];
    fragment->state_key = (struct wire_key){0};
    fragment->state_from = sync_core_self(sync);
    fragment->vain_ms = 0;
    sync_core_put_version(sync, SYNC_DO_REPAIR, f, fragment->own.version);
}

void sync_fragment_cannot_repair(struct sync *sync, uint32_t f)
{
    struct sync_fragment *fragment = &sync->fragments[f];
    if (fragment->state_from != sync_core_self(sync))
        return;
    fragment->state_from = SYNC_NOBODY;
    fragment->fetch_ms = sync->now_ms;
}

bool sync_fragment_fetching_state(const struct sync *sync, uint32_t f, struct wire_key *key)
{
    *key = sync->fragments[f].state_key;
    return sync->fragments[f].state == SYNC_REPAIR;
}

void sync_fragment_state_moves(struct sync *sync, uint32_t f, bool comes)
{
    sync->fragments[f].fetch_ms = sync->now_ms + STATE_AGAIN_MS;
    if (comes)
        sync->fragments[f].vain_ms = 0;
}

/* ---- handlers: [state][event]; the picture is in sync_types.h ---- */

typedef void handler(struct sync *sync, uint32_t f, const struct sync_event *event);

static void illegal(struct sync *sync, uint32_t f, const struct sync_event *event)
{
    (void)event;
    sync_core_report(sync, SYNC_REPORT_ILLEGAL, f, sync_core_self(sync));
}

static void ignore(struct sync *sync, uint32_t f, const struct sync_event *event)
{
    (void)sync;
    (void)f;
    (void)event;
}

static void apply(struct sync *sync, uint32_t f, const struct sync_event *event)
{
    (void)event;
    if (!sync->fragments[f].own.hash_known)
        return; /* blank: nothing to apply it to; the state that is being fetched will hold it */
    sync->fragments[f].state = SYNC_APPLYING;
    sync_core_put_version(sync, SYNC_DO_APPLY, f, sync->fragments[f].own.version + 1);
}

static void repair(struct sync *sync, uint32_t f, const struct sync_event *event)
{
    struct sync_fragment *fragment = &sync->fragments[f];
    fragment->lost = false;
    fragment->state = SYNC_REPAIR;
    fragment->alone_ms = fragment->vain_ms = 0;
    /* A contribution in flight is void, and the next one takes its memory. */
    sync_core_put_version(sync, SYNC_DO_RETIRE, f, fragment->own.version + 1);
    sync_core_announce(sync); /* nobody is to ask us for the state */
    if (event->member == sync_core_self(sync)) {
        sync_fragment_repair(sync, f);
    } else if (event->member != SYNC_NOBODY) {
        sync_fragment_ask_for_state(sync, f, event->member);
    } else { /* it has left since: with the next tick somebody else is asked */
        fragment->state_key = (struct wire_key){0};
        fragment->state_from = SYNC_NOBODY;
        fragment->fetch_ms = sync->now_ms;
    }
}

/* Not now: after the step that is under way. */
static void repair_later(struct sync *sync, uint32_t f, const struct sync_event *event)
{
    sync->fragments[f].lost = true;
    sync->fragments[f].lost_to = event->member;
}

/* What a fragment does that has nothing in flight: repair, apply what came in meanwhile, or rest. */
static void settle(struct sync *sync, uint32_t f)
{
    struct sync_fragment *fragment = &sync->fragments[f];
    if (fragment->lost)
        repair(sync, f, &(struct sync_event){.member = fragment->lost_to});
    else if (fragment->complete)
        apply(sync, f, NULL);
}

static void trainer_down(struct sync *sync, uint32_t f, const struct sync_event *event)
{
    (void)event;
    struct sync_fragment *fragment = &sync->fragments[f];
    fragment->trainer = false;
    sync_core_announce(sync);
    sync_owner_check(sync, f);
}

static void trainer_down_at_rest(struct sync *sync, uint32_t f, const struct sync_event *event)
{
    sync->fragments[f].state = SYNC_LISTENING;
    trainer_down(sync, f, event);
    settle(sync, f);
}

static void encode(struct sync *sync, uint32_t f, const struct sync_event *event)
{
    (void)event;
    sync->fragments[f].state = SYNC_ENCODING;
    sync_core_put_version(sync, SYNC_DO_ENCODE, f, sync->fragments[f].own.version + 1);
}

void sync_fragment_send_contributions(struct sync *sync, uint32_t f, uint32_t only)
{
    const struct sync_fragment *fragment = &sync->fragments[f];
    const struct sync_parts *parts = &fragment->parts;
    struct wire_key key = {.kind = WIRE_CONTRIBUTION,
                           .fragment = f,
                           .version = fragment->own.version + 1,
                           .epoch = sync->conf.view.epoch,
                           .island = sync_core_id(sync, sync_core_self(sync))};
    for (uint32_t p = 0; p < parts->count; p++) {
        uint32_t owner = sync_core_slot(sync, parts->part[p].id.owner);
        if (parts->part[p].carried || (parts->held >> p & 1) || owner == SYNC_NOBODY || !sync_core_other(sync, owner) ||
            !sync->peers[owner].up || (only != SYNC_NOBODY && only != owner))
            continue;
        key.owner = parts->part[p].id.owner;
        sync_core_put(sync, (struct sync_action){.type = SYNC_DO_SEND, .fragment = f, .key = key, .member = owner});
    }
}

static void encoded(struct sync *sync, uint32_t f, const struct sync_event *event)
{
    struct sync_fragment *fragment = &sync->fragments[f];
    bool anew = fragment->anew;
    fragment->anew = false;
    if (fragment->lost || fragment->complete) {
        /* The round closed without us meanwhile: the work stays in the trainer's tensors and goes out next time. */
        settle(sync, f);
        return;
    }
    if (anew) {
        encode(sync, f, event);
        return;
    }
    fragment->state = SYNC_CONTRIBUTED;
    fragment->own.contributed = fragment->own.version + 1;
    fragment->turned_down = (struct bitset){{0}};
    fragment->offer_wait_ms = OFFER_AGAIN_MS;
    sync_core_announce(sync);
    sync_fragment_send_contributions(sync, f, SYNC_NOBODY);
    sync_owner_contributed(sync, f, fragment->own.contributed);
}

static void refused(struct sync *sync, uint32_t f, const struct sync_event *event)
{
    (void)event;
    struct sync_fragment *fragment = &sync->fragments[f];
    fragment->state = fragment->trainer ? SYNC_IDLE : SYNC_LISTENING;
    fragment->own.abstained = fragment->own.version + 1;
    fragment->anew = false;
    if (fragment->trainer)
        sync_core_put_version(sync, SYNC_DO_RELEASE, f, sync->fragments[f].own.version);
    sync_core_announce(sync);
    sync_owner_check(sync, f);
    settle(sync, f);
}

/* The anchor changed: bring it to the trainer if there is one. */
static void give(struct sync *sync, uint32_t f)
{
    struct sync_fragment *fragment = &sync->fragments[f];
    if (fragment->trainer) {
        fragment->state = SYNC_MIXING;
        sync_core_put_version(sync, SYNC_DO_PUBLISH, f, sync->fragments[f].own.version);
    } else {
        fragment->state = SYNC_LISTENING;
        settle(sync, f);
    }
}

static void trainer_up(struct sync *sync, uint32_t f, const struct sync_event *event)
{
    struct sync_fragment *fragment = &sync->fragments[f];
    fragment->trainer = true;
    fragment->own.abstained = 0;
    fragment->state = SYNC_IDLE;
    sync_core_announce(sync);
    if (event->version < fragment->own.version)
        give(sync, f); /* it attached again, with an older anchor in its tensors */
}

/* Nobody else hears of it before it has a hash, and a restart comes back to it: so the trainer need not wait. */
static void made(struct sync *sync, uint32_t f, const struct sync_event *event)
{
    (void)event;
    struct sync_fragment *fragment = &sync->fragments[f];
    fragment->made = true;
    if (!fragment->trainer)
        return;
    fragment->ahead = SYNC_AHEAD_PUBLISHED;
    sync_core_put_version(sync, SYNC_DO_PUBLISH, f, fragment->own.version + 1);
}

static void mixed_ahead(struct sync *sync, uint32_t f, const struct sync_event *event)
{
    (void)event;
    if (sync->fragments[f].ahead == SYNC_AHEAD_PUBLISHED)
        sync->fragments[f].ahead = SYNC_AHEAD_MIXED;
}

/* One of before the anchor is not encoded: it waits for the anchor that is coming. */
static void snapped_ahead(struct sync *sync, uint32_t f, const struct sync_event *event)
{
    (void)event;
    if (sync->fragments[f].ahead == SYNC_AHEAD_MIXED)
        sync->fragments[f].ahead = SYNC_AHEAD_SNAPPED;
}

static void trainer_down_ahead(struct sync *sync, uint32_t f, const struct sync_event *event)
{
    sync->fragments[f].ahead = SYNC_AHEAD_NOT;
    trainer_down(sync, f, event);
}

static void mixed(struct sync *sync, uint32_t f, const struct sync_event *event)
{
    (void)event;
    sync->fragments[f].state = SYNC_IDLE;
    settle(sync, f);
}

static void applied(struct sync *sync, uint32_t f, const struct sync_event *event)
{
    struct sync_fragment *fragment = &sync->fragments[f];
    uint64_t since_ms = fragment->wait.arrived_ms;
    enum sync_ahead ahead = fragment->ahead;
    fragment->ahead = SYNC_AHEAD_NOT;
    fragment->made = false;
    arrive(sync, f, fragment->own.version + 1, &event->hash);
    if (sync->now_ms < fragment->leads_until_ms)
        fragment->leads_until_ms = sync->now_ms + fragment->leads_ms;
    sync_patience_made(sync, f, since_ms);
    switch (ahead) {
    case SYNC_AHEAD_NOT: give(sync, f); break;
    case SYNC_AHEAD_PUBLISHED: fragment->state = SYNC_MIXING; break;
    case SYNC_AHEAD_MIXED: mixed(sync, f, event); break;
    case SYNC_AHEAD_SNAPPED: encode(sync, f, event); break;
    }
}

static void results_lead(const struct sync *sync, struct sync_fragment *fragment, uint64_t state_took_ms)
{
    fragment->leads_ms = state_took_ms < LEADS_MS       ? LEADS_MS
                         : state_took_ms < LEADS_MAX_MS ? state_took_ms
                                                        : LEADS_MAX_MS;
    fragment->leads_until_ms = sync->now_ms + fragment->leads_ms;
}

static void installed(struct sync *sync, uint32_t f, const struct sync_event *event)
{
    struct sync_fragment *fragment = &sync->fragments[f];
    const struct wire_standing *own = &fragment->own;
    bool was_wrong = own->hash_known && own->version == event->version && !digest_equal(&own->hash, &event->hash);
    sync_core_report(sync, SYNC_REPORT_REPAIRED, f, fragment->state_from);
    if (was_wrong)
        sync_owner_restarted(sync, f);
    arrive(sync, f, event->version, &event->hash);
    if (fragment->state_from != sync_core_self(sync))
        results_lead(sync, fragment, sync->now_ms - fragment->state_ms);
    give(sync, f);
}

static void take_back(struct sync *sync, uint32_t f, const struct sync_event *event)
{
    (void)event;
    sync_core_put_version(sync, SYNC_DO_WITHDRAW, f, sync->fragments[f].own.version);
}

static void repair_withdraw(struct sync *sync, uint32_t f, const struct sync_event *event)
{
    repair_later(sync, f, event);
    sync_core_put_version(sync, SYNC_DO_WITHDRAW, f, sync->fragments[f].own.version);
}

static void taken_back(struct sync *sync, uint32_t f, const struct sync_event *event)
{
    (void)event;
    settle(sync, f);
}

/* Its contribution in flight is to owners who are none any more. */
static void encode_anew(struct sync *sync, uint32_t f, const struct sync_event *event)
{
    struct sync_fragment *fragment = &sync->fragments[f];
    if (fragment->own.contributed > fragment->own.version)
        fragment->own.contributed = fragment->own.version;
    fragment->turned_down = (struct bitset){{0}};
    encode(sync, f, event);
}

static void encode_once_more(struct sync *sync, uint32_t f, const struct sync_event *event)
{
    (void)event;
    sync->fragments[f].anew = true;
}

static void settled(struct sync *sync, uint32_t f, const struct sync_event *event)
{
    (void)event;
    sync->fragments[f].own.abstained = UINT64_MAX;
    sync_core_announce(sync);
    sync_owner_check(sync, f);
}

static handler *const handlers[SYNC_STATES][SYNC_FRAGMENT_EVENTS] = {
    [SYNC_LISTENING] = {[SYNC_EV_TRAINER_UP] = trainer_up,
                        [SYNC_EV_TRAINER_DOWN] = ignore,
                        [SYNC_EV_COMPLETE] = apply,
                        [SYNC_EV_EPOCH] = ignore,
                        [SYNC_EV_LOST] = repair},
    [SYNC_IDLE] = {[SYNC_EV_TRAINER_DOWN] = trainer_down_at_rest,
                   [SYNC_EV_SNAPSHOT] = encode,
                   [SYNC_EV_MIXED] = ignore, /* said twice, after attaching again */
                   [SYNC_EV_SETTLED] = settled,
                   [SYNC_EV_COMPLETE] = apply,
                   [SYNC_EV_EPOCH] = ignore,
                   [SYNC_EV_LOST] = repair},
    /* A trainer that attached again says once more what its words have told already. */
    [SYNC_ENCODING] = {[SYNC_EV_TRAINER_DOWN] = trainer_down,
                       [SYNC_EV_SNAPSHOT] = ignore,
                       [SYNC_EV_MIXED] = ignore,
                       [SYNC_EV_ENCODED] = encoded,
                       [SYNC_EV_REFUSED] = refused,
                       [SYNC_EV_COMPLETE] = ignore, /* remembered; encoded() looks */
                       [SYNC_EV_EPOCH] = encode_once_more,
                       [SYNC_EV_LOST] = repair_later},
    [SYNC_CONTRIBUTED] = {[SYNC_EV_TRAINER_DOWN] = trainer_down,
                          [SYNC_EV_SNAPSHOT] = ignore,
                          [SYNC_EV_MIXED] = ignore,
                          [SYNC_EV_COMPLETE] = apply,
                          [SYNC_EV_EPOCH] = encode_anew,
                          [SYNC_EV_LOST] = repair},
    [SYNC_APPLYING] = {[SYNC_EV_TRAINER_DOWN] = trainer_down_ahead,
                       [SYNC_EV_SNAPSHOT] = snapped_ahead,
                       [SYNC_EV_MIXED] = mixed_ahead,
                       [SYNC_EV_MADE] = made,
                       [SYNC_EV_SETTLED] = settled,
                       [SYNC_EV_APPLIED] = applied,
                       [SYNC_EV_EPOCH] = ignore, /* what is being applied stands in every epoch */
                       [SYNC_EV_LOST] = ignore}, /* the comparison comes again with the next version */
    [SYNC_MIXING] = {[SYNC_EV_TRAINER_DOWN] = trainer_down_at_rest,
                     [SYNC_EV_MIXED] = mixed,
                     [SYNC_EV_WITHDRAWN] = taken_back,
                     [SYNC_EV_SETTLED] = settled,
                     [SYNC_EV_COMPLETE] = take_back,
                     [SYNC_EV_EPOCH] = ignore,
                     [SYNC_EV_LOST] = repair_withdraw},
    [SYNC_REPAIR] = {[SYNC_EV_TRAINER_DOWN] = trainer_down,
                     [SYNC_EV_SNAPSHOT] = ignore,
                     [SYNC_EV_SETTLED] = settled,
                     [SYNC_EV_MIXED] = ignore,
                     [SYNC_EV_INSTALLED] = installed,
                     [SYNC_EV_COMPLETE] = ignore,
                     [SYNC_EV_EPOCH] = ignore,
                     [SYNC_EV_LOST] = ignore},
};

void sync_fragment_raise(struct sync *sync, uint32_t f, enum sync_event_type type, const struct sync_event *event)
{
    handler *handle = handlers[sync->fragments[f].state][type];
    (handle != NULL ? handle : illegal)(sync, f, event);
}

/* ---- contributions that were refused ---- */

void sync_fragment_turned_down(struct sync *sync, const struct sync_event *event)
{
    const struct wire_key *key = &event->key;
    if (key->kind != WIRE_CONTRIBUTION || key->fragment >= sync->conf.fragments_count ||
        key->epoch != sync->conf.view.epoch || key->island != sync_core_id(sync, sync_core_self(sync)) ||
        key->owner != sync_core_id(sync, event->member))
        return;
    struct sync_fragment *fragment = &sync->fragments[key->fragment];
    if (fragment->state != SYNC_CONTRIBUTED || key->version != fragment->own.contributed)
        return;
    bitset_add(&fragment->turned_down, event->member);
    fragment->offer_ms = sync->now_ms + fragment->offer_wait_ms;
    fragment->offer_wait_ms *= 2;
    if (fragment->offer_wait_ms > OFFER_AGAIN_MAX_MS)
        fragment->offer_wait_ms = OFFER_AGAIN_MAX_MS;
}

void sync_fragment_owner_mended(struct sync *sync, uint32_t f, uint32_t member)
{
    bitset_add(&sync->fragments[f].turned_down, member); /* what it had taken, it has dropped, too */
    sync->fragments[f].offer_ms = sync->now_ms;
}

void sync_fragment_offer_again(struct sync *sync, uint32_t f)
{
    struct sync_fragment *fragment = &sync->fragments[f];
    if (fragment->state != SYNC_CONTRIBUTED || bitset_empty(&fragment->turned_down) ||
        sync->now_ms < fragment->offer_ms)
        return;
    for (uint32_t i = 0; i < sync_core_slots(sync); i++) {
        if (!bitset_has(&fragment->turned_down, i))
            continue;
        bitset_remove(&fragment->turned_down, i);
        sync_fragment_send_contributions(sync, f, i); /* one in a tick */
        return;
    }
}

/* ---- results ---- */

void sync_fragment_look(struct sync *sync, uint32_t f)
{
    struct sync_fragment *fragment = &sync->fragments[f];
    if (fragment->complete || !sync_commit_complete(sync, f))
        return;
    fragment->complete = true;
    sync_fragment_raise(sync, f, SYNC_EV_COMPLETE, &(struct sync_event){.fragment = f});
}

void sync_fragment_result_stored(struct sync *sync, const struct sync_event *event)
{
    uint32_t f = event->fragment, self = sync_core_self(sync);
    bool news = sync_commit_stored(sync, f, event);
    if (event->owner == sync_core_id(sync, self) && (event->epoch == sync->conf.view.epoch || event->member == self))
        sync_owner_stored(sync, f, event->version, event->member);
    if (!news)
        return;
    sync_core_announce(sync);
    sync_fragment_look(sync, f);
}

void sync_fragment_epoch(struct sync *sync, uint32_t f)
{
    struct sync_fragment *fragment = &sync->fragments[f];
    sync_core_ask_anew(sync, f);
    if (fragment->state != SYNC_REPAIR) /* a state is of no epoch, and may be half here */
        fragment->fetch_ms = 0;
    fragment->missing_last = 0;
    fragment->start_wanted = fragment->taken_over = 0;
    sync_beyond_reset(sync, f);
    sync_patience_anew(sync, f);
    sync_commit_epoch(sync, f);
    sync_owner_epoch(sync, f);
    sync_core_put_version(sync, SYNC_DO_RETIRE, f, fragment->own.version + 1);
    sync_fragment_look(sync, f);
    sync_fragment_raise(sync, f, SYNC_EV_EPOCH, &(struct sync_event){.fragment = f});
}

void sync_fragment_restore(struct sync *sync, uint32_t f, uint64_t version, const struct digest *hash)
{
    struct sync_fragment *fragment = &sync->fragments[f];
    fragment->own.version = version;
    sync_core_remember_hash(fragment, version, hash);
    sync_commit_arrive(sync, f);
    sync_owner_restore(sync, f, version);
}

/* ---- looking in ---- */

enum sync_want sync_fragment_wants_state(const struct sync *sync, const struct wire_key *key, uint32_t from)
{
    const struct sync_fragment *fragment = &sync->fragments[key->fragment];
    bool asked = fragment->state == SYNC_REPAIR && wire_key_equal(key, &fragment->state_key);
    return asked && fragment->state_from == from ? SYNC_WANT : SYNC_NOT_NEEDED;
}

/* While we are sealed only what counts anyway, or what a proposed configuration wants to carry, is stored. */
static bool may_store(const struct sync *sync, uint32_t f, uint32_t p)
{
    const struct sync_parts *parts = &sync->fragments[f].parts;
    if (!sync->sealed || parts->part[p].carried || (parts->wanted >> p & 1))
        return true;
    uint64_t version = sync->fragments[f].own.version;
    return version < sync_commit_start(sync, f) || version < sync->fragments[f].start_wanted ||
           sync_commit_applied(sync, f);
}

enum sync_want sync_fragment_wants_result(const struct sync *sync, const struct wire_key *key, uint32_t from)
{
    const struct sync_fragment *fragment = &sync->fragments[key->fragment];
    if (key->version <= fragment->own.version)
        return SYNC_HAVE;
    if (key->version > fragment->own.version + 1)
        return sync_beyond_wants(sync, key, from);
    uint32_t p = sync_commit_part(sync, key->fragment, key->epoch, key->owner);
    if (p == VERSION_PARTS_MAX)
        return key->epoch > sync->conf.view.epoch ? SYNC_NOT_YET : SYNC_NOT_NEEDED;
    if (!sync_commit_lacks(sync, key->fragment, p)) {
        uint64_t awaited = fragment->parts.rivals & ~fragment->parts.seconds;
        return (awaited >> p & 1) && sync_commit_rivals(sync, key->fragment, p, from) ? SYNC_WANT : SYNC_HAVE;
    }
    if (!may_store(sync, key->fragment, p))
        return SYNC_NOT_YET;
    /* It is signed, so anybody may pass it on; but only who was asked may fill our line with it. */
    bool fetched = (fragment->astray >> p & 1) && bitset_has(&fragment->asked, from);
    return sync_core_id(sync, from) == key->owner || fetched ? SYNC_WANT : SYNC_NOT_NEEDED;
}

struct bitset sync_fragment_waiting_for(const struct sync *sync, uint32_t f)
{
    const struct sync_fragment *fragment = &sync->fragments[f];
    const struct sync_parts *parts = &fragment->parts;
    struct bitset waiting = {{0}};
    if (fragment->state != SYNC_CONTRIBUTED)
        return waiting;
    waiting = sync_commit_waiting_for(sync, f);
    for (uint32_t p = 0; p < parts->count; p++) {
        uint32_t owner = sync_core_slot(sync, parts->part[p].id.owner);
        if (!(parts->held >> p & 1) && owner != SYNC_NOBODY && sync_core_other(sync, owner))
            bitset_add(&waiting, owner);
    }
    return waiting;
}
