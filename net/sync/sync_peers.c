/* SPDX-License-Identifier: Apache-2.0 */
#include "net/sync/sync_peers.h"

#include <stddef.h>
#include <string.h>

#include "net/sync/sync_commit.h"
#include "net/sync/sync_doubt.h"
#include "net/sync/sync_fragment.h"
#include "net/sync/sync_owner.h"
#include "net/sync/sync_patience.h"

/*
 * PATIENCE: before a missing result is fetched instead of waited for: the owner is normally on its way with it.
 * FETCH_AGAIN: an unanswered request is made again, possibly to another member. STATE_MOVED: pause before a state is
 * asked for again that the member did not have. ALONE: before a state that nobody can give is what our own disk leads
 * to. FETCH_TRIES: so often the results of a version are asked for while one of them is here, however far behind it
 * is. WITHOUT: who does not have a result is asked again, if for so long nobody else said anything. TRIAL: so long a
 * state is looked for that too few could prove who are heard; PAUSE: from then to the next time, at first. VAIN: so
 * long all who are asked for a state refuse before it is given up although enough are heard who have come so far: one
 * may have lost its disk since, and another forgotten what that one signed. BY_RESULTS: so long results are asked for
 * then, before a state is again, which somebody may be able to prove by now.
 */
enum {
    PATIENCE_MS = 400,
    FETCH_AGAIN_MS = 2000,
    STATE_MOVED_MS = 250,
    ALONE_MS = 10000,
    FETCH_TRIES_MAX = 8,
    WITHOUT_MS = 10000
};
enum { TRIAL_MS = 15000, TRIAL_PAUSE_MS = 60000, TRIAL_DOUBLINGS = 4, VAIN_MS = 15000, BY_RESULTS_MS = 60000 };

/* ---- peers ---- */

void sync_peers_up(struct sync *sync, uint32_t member)
{
    struct sync_member *peer = &sync->peers[member];
    peer->up = true;
    peer->epoch = 0;
    peer->heard = false;
    peer->fragments_said = 0;
    memset(peer->fragments, 0, sync->conf.fragments_count * sizeof *peer->fragments);
    memset(peer->without, 0, sync->conf.fragments_count * sizeof *peer->without);
    sync_patience_up(sync, member);
    sync_commit_forget(sync, member);
    for (uint32_t f = 0; f < sync->conf.fragments_count; f++)
        if (sync->fragments[f].state == SYNC_CONTRIBUTED)
            sync_fragment_send_contributions(sync, f, member);
    sync_core_announce(sync);
}

/* Whoever was asked: it answers no more, or something is wanted that cannot wait. */
static void ask_at_once(struct sync_fragment *fragment)
{
    fragment->fetch_ms = 0;
    for (uint32_t p = 0; p < VERSION_PARTS_MAX; p++)
        fragment->asks[p].asked_ms = 0;
}

void sync_peers_down(struct sync *sync, uint32_t member)
{
    sync->peers[member].up = false;
    /* What it said stays true: a round does not close over someone who may have contributed elsewhere. */
    for (uint32_t f = 0; f < sync->conf.fragments_count; f++) {
        struct sync_fragment *fragment = &sync->fragments[f];
        /* A state may be half here, and more of it may come, of others or when the line is back. */
        if (fragment->state != SYNC_REPAIR && bitset_has(&fragment->asked, member))
            ask_at_once(fragment);
    }
}

void sync_peers_fetch_now(struct sync *sync, uint32_t f)
{
    if (sync->fragments[f].state != SYNC_REPAIR)
        ask_at_once(&sync->fragments[f]);
}

/* What the member says of one fragment. What it contributed and holds is of the owners of its epoch. */
static void row_in(struct sync *sync, uint32_t member, const struct wire_heartbeat *beat,
                   const struct wire_fragment *row)
{
    struct sync_member *peer = &sync->peers[member];
    struct wire_standing *said = &peer->fragments[row->fragment];
    bool differed = sync_doubt_differs(sync, row->fragment, member), now = beat->epoch == sync->conf.view.epoch;
    if (!said->said)
        peer->fragments_said++;
    *said = row->at;
    said->contributed = now ? row->at.contributed : 0;
    said->said = true;
    /* A member whose disk may have forgotten something does not commit results that it holds, until a configuration
     * names its disk. */
    uint32_t held_count = now && !beat->in_doubt ? row->held_count : 0;
    sync_commit_heard(sync, row->fragment, member, beat->held + row->held_first, held_count);
    sync_owner_heard(sync, row->fragment, member);
    if (differed && !sync_doubt_differs(sync, row->fragment, member))
        sync_fragment_owner_mended(sync, row->fragment, member);
    sync_doubt_compare(sync, row->fragment, member);
    sync_fragment_look(sync, row->fragment);
}

/* Whom it does not hear. True if that is news. */
static bool silent_in(const struct sync *sync, struct sync_member *peer, const struct wire_heartbeat *beat)
{
    const struct sync_view *view = &sync->conf.view;
    struct bitset heard = view->keepers;
    bool was_deaf = peer->deaf, was_cut_off = peer->cut_off;
    peer->deaf = false;
    for (uint32_t i = 0; i < beat->silent_count; i++) {
        uint32_t slot = sync_core_slot(sync, beat->silent[i]);
        if (slot != SYNC_NOBODY)
            bitset_remove(&heard, slot);
        peer->deaf = peer->deaf || slot == view->self;
    }
    peer->cut_off = bitset_count(&heard) < view->commit_quorum;
    return peer->deaf != was_deaf || peer->cut_off != was_cut_off;
}

void sync_peers_heartbeat_in(struct sync *sync, const struct sync_event *event)
{
    struct sync_member *peer = &sync->peers[event->member];
    const struct wire_heartbeat *beat = event->beat;
    bool changed = silent_in(sync, peer, beat) || !peer->heard || peer->taking_part != beat->taking_part;
    peer->taking_part = beat->taking_part;
    peer->epoch = beat->epoch;
    peer->in_doubt = beat->in_doubt;
    if (!sync_core_keeps(sync, event->member)) /* it has nothing to say of fragments, whatever it says */
        return;
    for (uint32_t i = 0; i < beat->fragments_count; i++)
        if (beat->fragments[i].fragment < sync->conf.fragments_count)
            row_in(sync, event->member, beat, &beat->fragments[i]);
    peer->heard = peer->fragments_said == sync->conf.fragments_count;
    for (uint32_t i = 0; !changed && i < beat->fragments_count; i++)
        if (beat->fragments[i].fragment < sync->conf.fragments_count)
            sync_owner_check(sync, beat->fragments[i].fragment);
    if (changed)
        sync_owner_check_all(sync);
}

/* ---- catching up: whom to ask ---- */

/* How many announce the same hash of the version as this member: a vote is more than all who have none. */
static uint32_t agreeing(const struct sync *sync, uint32_t f, uint32_t member)
{
    const struct wire_standing *row = &sync->peers[member].fragments[f];
    uint32_t count = 0;
    for (uint32_t i = 0; i < sync_core_slots(sync); i++) {
        if (!sync_core_may_publish(sync, f, i))
            continue;
        const struct wire_standing *other = &sync->peers[i].fragments[f];
        if (other->version == row->version && digest_equal(&other->hash, &row->hash))
            count += bitset_has(&sync->conf.view.keepers, i) ? sync_core_slots(sync) : 1;
    }
    return count;
}

/* The member to ask for its state: of those that can give exactly the version that is announced, with the hash that
 * most of them have, the next one after `before`. */
static uint32_t state_source(const struct sync *sync, uint32_t f, uint32_t before)
{
    uint64_t version = sync_core_announced(sync, f, true);
    uint32_t best = SYNC_NOBODY, best_agree = 0, first = before == SYNC_NOBODY ? 0 : before + 1;
    for (uint32_t k = 0; k < sync_core_slots(sync); k++) {
        uint32_t i = (first + k) % sync_core_slots(sync);
        if (!sync_core_may_publish(sync, f, i) || sync->peers[i].fragments[f].version != version)
            continue;
        uint32_t agree = agreeing(sync, f, i);
        if (agree > best_agree) {
            best = i;
            best_agree = agree;
        }
    }
    return best;
}

/* Whether a proposed configuration wants to carry the result of a part that is not here: who has it may not say so, for
 * it came after its seal, or was told of before a restart. */
static bool wanted(const struct sync *sync, uint32_t f, uint32_t p)
{
    const struct sync_parts *parts = &sync->fragments[f].parts;
    return (parts->wanted >> p & 1) != 0 && sync_commit_lacks(sync, f, p);
}

/* Whether the member may be asked for the result of a part of the next version. */
static bool may_have(const struct sync *sync, uint32_t f, uint32_t p, uint32_t member)
{
    const struct sync_member *peer = &sync->peers[member];
    return sync_core_other(sync, member) && sync_core_keeps(sync, member) && peer->up &&
           (peer->without[f] >> p & 1) == 0 && (wanted(sync, f, p) || sync_commit_has(sync, f, member, p));
}

/* Whether a result is its owner's to bring: the owner is there and shows none. It may be on its way; and what others
 * hold of its part it fetches itself. But not what a configuration wants to carry, or what exists for certain: an owner
 * whose disk is in doubt does not say what it has. */
static bool owner_brings_it(const struct sync *sync, uint32_t f, uint32_t p, uint32_t owner)
{
    bool there = owner != SYNC_NOBODY && sync_core_other(sync, owner) && sync->peers[owner].up;
    bool new = sync->fragments[f].parts.part[p].id.epoch == sync->conf.view.epoch;
    return there && new && !wanted(sync, f, p) && !sync_commit_has(sync, f, owner, p) && !sync_commit_applied(sync, f);
}

/* The member to ask for a result: its owner first, then all who hold it in turn, since one may be silent. */
static uint32_t result_source(const struct sync *sync, uint32_t f, uint32_t p)
{
    const struct sync_fragment *fragment = &sync->fragments[f];
    uint32_t slots = sync_core_slots(sync), first = fragment->asks[p].next;
    uint32_t owner = sync_core_slot(sync, fragment->parts.part[p].id.owner);
    if (owner_brings_it(sync, f, p, owner))
        return SYNC_NOBODY;
    if (first == 0 && owner != SYNC_NOBODY)
        first = owner;
    for (uint32_t k = 0; k < slots; k++)
        if (may_have(sync, f, p, (first + k) % slots))
            return (first + k) % slots;
    return SYNC_NOBODY;
}

/* ---- catching up ---- */

static void fetch_part(struct sync *sync, uint32_t f, uint32_t p, uint32_t from)
{
    const struct sync_fragment *fragment = &sync->fragments[f];
    const struct version_part *part = &fragment->parts.part[p];
    struct wire_key key = {.kind = WIRE_RESULT,
                           .fragment = f,
                           .version = fragment->own.version + 1,
                           .epoch = part->id.epoch,
                           .owner = part->id.owner,
                           .island = part->id.owner};
    sync_core_put(sync, (struct sync_action){.type = SYNC_DO_FETCH, .fragment = f, .key = key, .member = from});
}

/* Asks for the result of a part, unless somebody was asked who may still answer. False: there is nobody to ask. */
static bool fetch_result(struct sync *sync, uint32_t f, uint32_t p)
{
    struct sync_fragment *fragment = &sync->fragments[f];
    struct sync_ask *ask = &fragment->asks[p];
    if (ask->asked_ms == 0 || sync->now_ms >= ask->asked_ms + FETCH_AGAIN_MS) {
        uint32_t from = result_source(sync, f, p);
        if (from == SYNC_NOBODY)
            return false;
        *ask = (struct sync_ask){.asked_ms = sync->now_ms, .next = from + 1};
        bitset_add(&fragment->asked, from);
        if (sync_core_id(sync, from) != fragment->parts.part[p].id.owner)
            fragment->astray |= (uint64_t)1 << p;
        fetch_part(sync, f, p, from);
    }
    uint64_t again_ms = ask->asked_ms + FETCH_AGAIN_MS;
    fragment->fetch_ms = again_ms < fragment->fetch_ms ? again_ms : fragment->fetch_ms;
    return true;
}

/* Every missing one of the next version. False: there is nobody to ask for any of them. */
static bool fetch_results(struct sync *sync, uint32_t f)
{
    struct sync_fragment *fragment = &sync->fragments[f];
    bool asked = false;
    for (uint32_t p = 0; p < fragment->parts.count; p++)
        if (sync_commit_lacks(sync, f, p) && fetch_result(sync, f, p))
            asked = true;
    fragment->fetch_tries += asked;
    return asked;
}

/* Whether anybody who is up has what we lack: a later version, or a result of the next one. */
static bool someone_holds_more(const struct sync *sync, uint32_t f)
{
    const struct sync_fragment *fragment = &sync->fragments[f];
    uint64_t lacking = 0;
    bool any_wanted = false;
    for (uint32_t p = 0; p < fragment->parts.count; p++) {
        lacking |= (uint64_t)sync_commit_lacks(sync, f, p) << p;
        any_wanted = any_wanted || wanted(sync, f, p);
    }
    for (uint32_t i = 0; i < sync_core_slots(sync); i++) {
        if (!sync_core_other(sync, i) || !sync->peers[i].up)
            continue;
        if (sync->peers[i].fragments[f].version > fragment->own.version ||
            (sync_core_keeps(sync, i) && (any_wanted || sync_commit_has_any(sync, f, i, lacking))))
            return true;
    }
    return false;
}

/* A fragment without any state takes one that is there. */
static void fill_blank(struct sync *sync, uint32_t f)
{
    uint32_t from = state_source(sync, f, SYNC_NOBODY);
    /* A run that begins: our own trainer is about to bring the same initial tensors. */
    if (from == SYNC_NOBODY || (sync->peers[from].fragments[f].version == 0 && sync->brings_initial))
        return;
    sync_fragment_raise(sync, f, SYNC_EV_LOST, &(struct sync_event){.member = from});
}

/* Whether as many voters as commit said that they have come to this version, though some may be gone since: what one
 * alone says, and proposes, sends nobody for a state for long: there may be no certificate of it. Where our own disk is
 * in doubt our voice may be missing from one. */
static bool surely_reached(const struct sync *sync, uint32_t f, uint64_t version)
{
    const struct sync_view *view = &sync->conf.view;
    uint32_t count = bitset_has(&view->keepers, view->self) && !view->votes;
    for (uint32_t i = 0; i < sync_core_slots(sync); i++)
        count += sync_core_other(sync, i) && bitset_has(&view->keepers, i) && sync->peers[i].fragments[f].said &&
                 sync->peers[i].fragments[f].version >= version;
    return count >= view->commit_quorum;
}

/* What the newest configuration starts from, or one that is proposed. */
static uint64_t start_to_reach(const struct sync *sync, uint32_t f)
{
    const struct sync_fragment *fragment = &sync->fragments[f];
    uint64_t start = sync_commit_start(sync, f);
    if (fragment->start_wanted > start && surely_reached(sync, f, fragment->start_wanted))
        start = fragment->start_wanted;
    return start;
}

/* It may be at one member only: the next one after `before` that says it has come so far. */
static uint32_t start_source(const struct sync *sync, uint32_t f, uint32_t before)
{
    uint64_t start = start_to_reach(sync, f);
    uint32_t slots = sync_core_slots(sync), first = before == SYNC_NOBODY ? 0 : before + 1;
    for (uint32_t k = 0; k < slots && sync->fragments[f].own.version < start; k++) {
        uint32_t i = (first + k) % slots;
        if (sync_core_may_publish(sync, f, i) && sync->peers[i].fragments[f].version >= start)
            return i;
    }
    return SYNC_NOBODY;
}

/* Whether to look for a state of this version. Where too few that are heard could prove it, whoever is asked may have
 * heard the others: so it is tried, for a while and now and then, for a claim may also be false. */
static bool may_be_proved(struct sync *sync, uint32_t f, uint64_t version)
{
    struct sync_fragment *fragment = &sync->fragments[f];
    if (surely_reached(sync, f, version)) {
        fragment->trials = 0;
        return true;
    }
    if (sync->now_ms < fragment->trial_next_ms)
        return false;
    uint32_t doublings = fragment->trials < TRIAL_DOUBLINGS ? fragment->trials : TRIAL_DOUBLINGS;
    fragment->trials++;
    fragment->trial_ms = sync->now_ms;
    fragment->trial_next_ms = sync->now_ms + ((uint64_t)TRIAL_PAUSE_MS << doublings);
    return true;
}

/* Results do not lead on from here: takes a state, if more than half of the others are ahead by `by`, or a
 * configuration starts by `start_by` further on. */
static void fall_behind(struct sync *sync, uint32_t f, uint64_t by, uint64_t start_by)
{
    uint64_t announced = sync_core_announced(sync, f, true), own = sync->fragments[f].own.version;
    bool ahead = announced >= own && announced - own >= by && may_be_proved(sync, f, announced);
    uint32_t from = SYNC_NOBODY;
    if (ahead)
        from = state_source(sync, f, SYNC_NOBODY);
    else if (start_to_reach(sync, f) >= own + start_by)
        from = start_source(sync, f, SYNC_NOBODY);
    if (from == SYNC_NOBODY)
        return;
    sync_core_report(sync, SYNC_REPORT_BEHIND, f, from);
    sync_fragment_raise(sync, f, SYNC_EV_LOST, &(struct sync_event){.member = from});
}

/* Whether anybody is ahead by more than so many versions. */
static bool someone_ahead(const struct sync *sync, uint32_t f, uint64_t by)
{
    for (uint32_t i = 0; i < sync_core_slots(sync); i++)
        if (sync_core_other(sync, i) && sync->peers[i].up &&
            sync->peers[i].fragments[f].version > sync->fragments[f].own.version + by)
            return true;
    return false;
}

/* All who have a state may be repairing theirs, too, or be gone: what our own disk leads to is right, as far as we can
 * know, or is outvoted again when somebody is there. Without that nobody would ever leave. */
static void nobody_to_ask(struct sync *sync, uint32_t f)
{
    struct sync_fragment *fragment = &sync->fragments[f];
    if (fragment->alone_ms == 0)
        fragment->alone_ms = sync->now_ms;
    if (!fragment->own.hash_known || sync->now_ms < fragment->alone_ms + ALONE_MS)
        return;
    fragment->alone_ms = 0;
    if (fragment->refused)
        fragment->by_results_ms = sync->now_ms + BY_RESULTS_MS;
    sync_fragment_repair(sync, f);
}

/* Whether this member's state was refused for a while: nobody who is left may be able to prove it. */
static bool was_tried(const struct sync *sync, uint32_t f, uint32_t member)
{
    const struct sync_fragment *fragment = &sync->fragments[f];
    uint64_t version = member != SYNC_NOBODY ? sync->peers[member].fragments[f].version : 0;
    if (!fragment->own.hash_known || version < fragment->own.version || !fragment->refused)
        return false;
    bool sure = version == fragment->own.version || surely_reached(sync, f, version);
    return sure ? sync->now_ms >= fragment->vain_ms + VAIN_MS : sync->now_ms >= fragment->trial_ms + TRIAL_MS;
}

static void ask_again_for_state(struct sync *sync, uint32_t f)
{
    struct sync_fragment *fragment = &sync->fragments[f];
    if (fragment->state_from == sync_core_self(sync) || sync->now_ms < fragment->fetch_ms)
        return;
    uint32_t from = state_source(sync, f, fragment->state_from), start = start_source(sync, f, fragment->state_from);
    if (was_tried(sync, f, from)) /* or they have taken it back */
        from = SYNC_NOBODY;
    if (from == SYNC_NOBODY && was_tried(sync, f, start)) /* results may lead to it */
        start = SYNC_NOBODY;
    bool back = from == SYNC_NOBODY || sync->peers[from].fragments[f].version < fragment->own.version;
    /* The only one who is at what most have come to cannot prove it; who is further may. */
    bool vain = fragment->refused && from == fragment->state_from;
    if (from == SYNC_NOBODY && start == SYNC_NOBODY) {
        nobody_to_ask(sync, f);
        return;
    }
    fragment->alone_ms = 0;
    if ((back || vain) && start != SYNC_NOBODY)
        sync_fragment_ask_for_state(sync, f, start);
    else if (back && fragment->own.hash_known)
        sync_fragment_repair(sync, f); /* who made us ask was wrong: nobody goes back behind what it has acknowledged */
    else
        sync_fragment_ask_for_state(sync, f, from);
}

/* Asks for what leads on to the next version; `may_fall`: a state, if results do not. */
static void ask_for_more(struct sync *sync, uint32_t f, bool may_fall)
{
    struct sync_fragment *fragment = &sync->fragments[f];
    /* One member's word that it is far ahead is no reason not to ask for the results of a start that is near. */
    bool often = fragment->fetch_tries >= FETCH_TRIES_MAX, far = someone_ahead(sync, f, SYNC_BEHIND_MAX);
    bool in_vain = often || (fragment->parts.held == 0 && sync->now_ms >= fragment->by_results_ms);
    in_vain = in_vain && sync->now_ms >= fragment->leads_until_ms;
    if (in_vain && far && !may_fall)
        return; /* for the next tick to say */
    if (in_vain && far)
        fall_behind(sync, f, SYNC_BEHIND_MAX + 1, often ? 1 : SYNC_BEHIND_MAX + 1);
    if (fragment->state == SYNC_REPAIR || fragment->lost)
        return;
    fragment->fetch_ms = sync->now_ms + FETCH_AGAIN_MS;
    /* They may have it meanwhile; and one who is silent is no reason not to ask them. */
    if (fragment->without != 0 && sync->now_ms >= fragment->without_ms + WITHOUT_MS)
        sync_core_forget_without(sync, f);
    bool known = fragment->parts.count > 0;
    if (fetch_results(sync, f) || (known && fragment->without == 0))
        return;
    /* All who could be asked have said that their ledgers do not go back so far; or our configurations do not. */
    sync_core_forget_without(sync, f);
    if (may_fall)
        fall_behind(sync, f, 1, 1);
    else
        fragment->fetch_ms = sync->now_ms;
}

/* Whether another result of the part is to be asked for now: none has come, and whoever was asked last has not answered
 * in time. */
static bool second_is_due(const struct sync *sync, const struct sync_parts *parts, uint32_t p)
{
    bool asked = (parts->rivals >> p & 1) != 0;
    return (parts->seconds >> p & 1) == 0 && (!asked || sync->now_ms >= parts->rivals_ms + FETCH_AGAIN_MS);
}

/* Two results of one part prove that their owner broke its word, and split the voters so that neither may ever count:
 * so one that another holds is fetched though we have one. From all who say so in turn, until one comes: a request may
 * be lost, who is asked may be cut off, or it may not be true; and where the voters are split evenly all wait for ever
 * if nobody finds the evidence. True if somebody was asked. */
static bool fetch_equivocation(struct sync *sync, uint32_t f)
{
    struct sync_parts *parts = &sync->fragments[f].parts;
    uint64_t due = 0;
    for (uint32_t p = 0; p < parts->count; p++)
        due |= (uint64_t)second_is_due(sync, parts, p) << p;
    bool asked = false;
    for (uint32_t p = 0; p < parts->count; p++) {
        uint32_t from = due >> p & 1 ? sync_commit_rival(sync, f, p, parts->rivals_next) : SYNC_NOBODY;
        if (from == SYNC_NOBODY)
            continue;
        parts->rivals |= (uint64_t)1 << p;
        parts->rivals_ms = sync->now_ms;
        parts->rivals_next = from + 1;
        fetch_part(sync, f, p, from);
        asked = true;
    }
    return asked;
}

/* Whether a proposed configuration starts further on, or carries a result that is not here. */
static bool draft_needs_more(const struct sync *sync, uint32_t f)
{
    const struct sync_fragment *fragment = &sync->fragments[f];
    for (uint32_t p = 0; p < fragment->parts.count; p++)
        if (wanted(sync, f, p))
            return true;
    return fragment->own.version < fragment->start_wanted || fragment->own.version < fragment->taken_over;
}

void sync_peers_catch_up(struct sync *sync, uint32_t f, bool tick)
{
    struct sync_fragment *fragment = &sync->fragments[f];
    if (!sync_core_keeps(sync, sync_core_self(sync)))
        return; /* a witness catches up with configurations alone */
    /* Either: a tick has room for as many requests as a version has parts. */
    if (!fetch_equivocation(sync, f) && !fragment->lost && fragment->state != SYNC_REPAIR)
        sync_beyond_catch_up(sync, f);
    if (!fragment->own.hash_known && fragment->state == SYNC_LISTENING) {
        fill_blank(sync, f);
        return;
    }
    if (fragment->state == SYNC_REPAIR) {
        ask_again_for_state(sync, f);
        return;
    }
    if (fragment->complete || fragment->state == SYNC_APPLYING || !someone_holds_more(sync, f)) {
        fragment->behind_ms = 0;
        return;
    }
    if (fragment->behind_ms == 0)
        fragment->behind_ms = sync->now_ms;
    /* What the next round but one was made from is on its way no more; and all rounds stand still for what a proposed
     * configuration rests on. */
    bool urgent = someone_ahead(sync, f, 1) || draft_needs_more(sync, f);
    uint64_t patience_ms = urgent ? 0 : PATIENCE_MS;
    if (sync->now_ms >= fragment->behind_ms + patience_ms && sync->now_ms >= fragment->fetch_ms)
        ask_for_more(sync, f, tick);
}

void sync_peers_not_available(struct sync *sync, const struct sync_event *event)
{
    const struct wire_key *key = &event->key;
    if (key->fragment >= sync->conf.fragments_count)
        return;
    struct sync_fragment *fragment = &sync->fragments[key->fragment];
    if (key->kind == WIRE_STATE) {
        bool ours = event->member == fragment->state_from || fragment->state_from == SYNC_NOBODY;
        if (fragment->state == SYNC_REPAIR && ours &&
            wire_key_equal(key, &fragment->state_key)) { /* it moved on, or is busy, or cannot prove it: ask again */
            fragment->fetch_ms = sync->now_ms + STATE_MOVED_MS;
            fragment->refused = true;
            if (fragment->vain_ms == 0)
                fragment->vain_ms = sync->now_ms;
        }
        return;
    }
    if (key->kind == WIRE_RESULT)
        sync_beyond_not_available(sync, event);
    if (key->kind != WIRE_RESULT || key->version != fragment->own.version + 1 ||
        !bitset_has(&fragment->asked, event->member))
        return;
    uint32_t p = sync_commit_part(sync, key->fragment, key->epoch, key->owner);
    if (p == VERSION_PARTS_MAX)
        return;
    fragment->asks[p].asked_ms = 0;
    fragment->without |= (uint64_t)1 << p;
    fragment->without_ms = sync->now_ms;
    sync->peers[event->member].without[key->fragment] |= (uint64_t)1 << p;
    fragment->fetch_ms = 0; /* the next one is asked at once */
}

/* To a witness, who has none itself: the highest of those whose copies count. */
static uint64_t highest_kept(const struct sync *sync, uint32_t f)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < sync_core_slots(sync); i++)
        if (bitset_has(&sync->conf.view.keepers, i) && sync->peers[i].up && sync->peers[i].fragments[f].version > most)
            most = sync->peers[i].fragments[f].version;
    return most;
}

uint64_t sync_peers_version_max(const struct sync *sync, uint32_t f)
{
    if (!sync_core_keeps(sync, sync_core_self(sync)))
        return highest_kept(sync, f);
    uint64_t own = sync->fragments[f].own.version, announced = sync_core_announced(sync, f, false);
    return announced > own ? announced : own;
}
