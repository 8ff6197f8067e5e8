/* SPDX-License-Identifier: Apache-2.0 */
#include "net/sync/sync_core.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "common/mem.h"

static const char what_for[] = "the protocol";

/*
 * The most actions that one event can order, among M members, with P parts of a version:
 *
 *   a tick, of each fragment: the fetch of every part's result (P), or a report, and the way to a state: a retirement,
 * an announcement, the fetch (4); one contribution that was refused is offered again (1); and its owner's check may
 * close the round (1). a heartbeat, of each fragment: a report, the way to a state, its owner's check (5), or a replay;
 * and the outer step, where it commits (1). "replayed": a report, the way to the repair, its owner's check (5). a peer
 * that came up: of each fragment a contribution to each of its parts (P), and one announcement. "encoded": an
 * announcement, a contribution to every part (P), the owner's check (P + 2 in all). "stored": our result to every other
 * member (M - 1), an announcement, the outer step (M + 1 in all). "installed": a report, a retirement, an announcement;
 * "refused": a release, an announcement, the owner's check; either may then go the way to a state (6 in all). a new
 * epoch, of each fragment: a retirement, an encoding or the outer step or the way to it (2), an announcement. every
 * other event: fewer.
 *
 * So no fragment takes more than the largest of M + 2, P + 2 and 6, which is below M + P + 5; and one announcement
 * belongs to no fragment. What is left is for a caller that answers an action at once, while it drains: for a
 * SYNC_DO_WITHDRAW taken out, SYNC_EV_WITHDRAWN puts two in; a SYNC_DO_ENCODE that is answered with SYNC_EV_REFUSED was
 * alone.
 */
enum { ACTIONS_BESIDES_MEMBERS = VERSION_PARTS_MAX + 5, ACTIONS_OF_NO_FRAGMENT = 1 };

static size_t ring_room(uint64_t slots, uint64_t fragments)
{
    return fragments * (slots + ACTIONS_BESIDES_MEMBERS) + ACTIONS_OF_NO_FRAGMENT;
}

uint64_t sync_core_bytes(uint64_t slots, uint64_t fragments, uint64_t keepers)
{
    uint64_t fragment = sizeof(struct sync_fragment) + sizeof(uint32_t) + sizeof(uint64_t);
    uint64_t member =
        sizeof(struct sync_member) + sizeof(uint32_t) + fragments * (sizeof(struct wire_standing) + sizeof(uint64_t));
    return sizeof(struct sync) + ring_room(slots, fragments) * sizeof(struct sync_action) + fragments * fragment +
           slots * member + keepers * fragments * sizeof(struct sync_tags);
}

static enum err grow_ring(struct sync *sync, uint32_t slots)
{
    struct sync_action *actions;
    size_t room = ring_room(slots, sync->conf.fragments_count);
    assert(sync->actions_count == 0);
    if (room <= sync->actions_room)
        return ERR_OK;
    TRY(mem_new(room, sizeof *actions, what_for, &actions));
    mem_free(sync->actions);
    sync->actions = actions;
    sync->actions_room = room;
    sync->actions_head = 0;
    return ERR_OK;
}

static enum err grow_slots(struct sync *sync, uint32_t slots)
{
    if (slots <= sync->slots_room)
        return ERR_OK;
    TRY(mem_grow(&sync->peers, sync->slots_room, slots, sizeof *sync->peers, what_for));
    TRY(mem_grow(&sync->ids, sync->slots_room, slots, sizeof *sync->ids, what_for));
    sync->slots_room = slots;
    return ERR_OK;
}

/* Memory for what a member says; that of one who keeps results, for what it holds of them. */
static enum err alloc_member(struct sync *sync, const struct sync_view *view, uint32_t slot)
{
    struct sync_member *peer = &sync->peers[slot];
    uint32_t fragments = sync->conf.fragments_count;
    if (peer->fragments == NULL)
        TRY(mem_new(fragments, sizeof *peer->fragments, what_for, &peer->fragments));
    if (peer->without == NULL)
        TRY(mem_new(fragments, sizeof *peer->without, what_for, &peer->without));
    if (peer->reports == NULL && bitset_has(&view->keepers, slot))
        return mem_new(fragments, sizeof *peer->reports, what_for, &peer->reports);
    return ERR_OK;
}

static void drop_member(struct sync_member *peer)
{
    mem_free(peer->fragments);
    mem_free(peer->without);
    mem_free(peer->reports);
    *peer = (struct sync_member){0};
}

/* What was said in another epoch: contributions are to other owners, and results perhaps of nobody's part. */
static void age_member(struct sync *sync, uint32_t slot)
{
    struct sync_member *peer = &sync->peers[slot];
    for (uint32_t f = 0; f < sync->conf.fragments_count; f++) {
        struct wire_standing *row = &peer->fragments[f];
        if (row->contributed > row->version)
            row->contributed = row->version;
        if (peer->reports != NULL)
            peer->reports[f].count = 0;
    }
}

/* Whose slot it is no more gives no state: another one is asked, unless it comes from others already. */
static void forget_source(struct sync *sync, uint32_t slot)
{
    for (uint32_t f = 0; f < sync->conf.fragments_count; f++) {
        struct sync_fragment *fragment = &sync->fragments[f];
        if (fragment->lost_to == slot)
            fragment->lost_to = SYNC_NOBODY;
        if (fragment->state_from != slot)
            continue;
        fragment->state_from = SYNC_NOBODY;
        fragment->fetch_ms = fragment->state == SYNC_REPAIR ? sync->now_ms : fragment->fetch_ms;
    }
}

enum err sync_core_set_view(struct sync *sync, const struct sync_view *view)
{
    if (view->slots == 0 || view->slots > SYNC_MEMBERS_MAX || view->self >= view->slots ||
        !bitset_has(&view->members, view->self))
        return err_set(ERR_ARG, "%" PRIu32 " members; 1 to %d are possible", view->slots, SYNC_MEMBERS_MAX);
    TRY(grow_ring(sync, view->slots));
    TRY(grow_slots(sync, view->slots));
    for (uint32_t i = 0; i < sync->slots_room; i++) {
        bool used = i < view->slots && bitset_has(&view->members, i);
        if (sync->peers[i].fragments != NULL && (!used || sync->ids[i] != view->ids[i])) {
            drop_member(&sync->peers[i]);
            forget_source(sync, i);
        }
        if (!used)
            continue;
        TRY(alloc_member(sync, view, i));
        sync->ids[i] = view->ids[i];
        age_member(sync, i);
    }
    sync->conf.view = *view;
    sync->conf.view.ids = sync->ids;
    return ERR_OK;
}

enum err sync_core_new(const struct sync_conf *conf, struct sync **out)
{
    enum err err;
    struct sync *sync = NULL;
    *out = NULL;
    TRY_OUT(mem_new(1, sizeof *sync, "the protocol", &sync));
    sync->conf = *conf;
    sync->conf.shards_counts = NULL; /* the caller's; our copy follows */
    TRY_OUT(mem_new(conf->fragments_count, sizeof *sync->fragments, what_for, &sync->fragments));
    TRY_OUT(mem_new(conf->fragments_count, sizeof *sync->shards_counts, what_for, &sync->shards_counts));
    memcpy(sync->shards_counts, conf->shards_counts, conf->fragments_count * sizeof *sync->shards_counts);
    sync->conf.filled = NULL;
    TRY_OUT(mem_new(conf->fragments_count, sizeof *sync->filled, what_for, &sync->filled));
    for (uint32_t f = 0; f < conf->fragments_count; f++)
        sync->filled[f] = conf->filled != NULL ? conf->filled[f] : UINT64_MAX;
    TRY_OUT(sync_core_set_view(sync, &conf->view));
    for (uint32_t f = 0; f < conf->fragments_count; f++)
        sync->fragments[f].owner = owner_init(0);
out:
    if (err != ERR_OK)
        sync_core_free(sync);
    else
        *out = sync;
    return err;
}

void sync_core_free(struct sync *sync)
{
    if (sync == NULL)
        return;
    for (uint32_t i = 0; i < sync->slots_room; i++)
        drop_member(&sync->peers[i]);
    mem_free(sync->peers);
    mem_free(sync->ids);
    mem_free(sync->fragments);
    mem_free(sync->shards_counts);
    mem_free(sync->filled);
    mem_free(sync->actions);
    mem_free(sync);
}

/* ---- parts ---- */

uint32_t sync_core_parts(const struct sync *sync, uint32_t f, uint64_t version,
                         struct version_part parts[VERSION_PARTS_MAX])
{
    uint32_t count = config_log_parts(sync->conf.config_log, f, sync->shards_counts[f], version, parts), kept = 0;
    for (uint32_t p = 0; p < count; p++)
        if ((parts[p].shards & sync->filled[f]) != 0)
            parts[kept++] = parts[p];
    return kept;
}

/* ---- members ---- */

uint32_t sync_core_slot(const struct sync *sync, uint32_t id)
{
    for (uint32_t i = 0; i < sync->conf.view.slots; i++)
        if (sync->ids[i] == id && bitset_has(&sync->conf.view.members, i))
            return i;
    return SYNC_NOBODY;
}

uint32_t sync_core_id(const struct sync *sync, uint32_t slot)
{
    return sync->ids[slot];
}

void sync_core_ask_anew(struct sync *sync, uint32_t f)
{
    struct sync_fragment *fragment = &sync->fragments[f];
    fragment->asked = (struct bitset){{0}};
    fragment->astray = 0;
    memset(fragment->asks, 0, sizeof fragment->asks);
    sync_core_forget_without(sync, f);
}

void sync_core_forget_without(struct sync *sync, uint32_t f)
{
    sync->fragments[f].without = 0;
    for (uint32_t i = 0; i < sync->slots_room; i++)
        if (sync->peers[i].without != NULL)
            sync->peers[i].without[f] = 0;
}

uint32_t sync_core_slots(const struct sync *sync)
{
    return sync->conf.view.slots;
}

uint32_t sync_core_self(const struct sync *sync)
{
    return sync->conf.view.self;
}

bool sync_core_other(const struct sync *sync, uint32_t slot)
{
    return slot != sync->conf.view.self && bitset_has(&sync->conf.view.members, slot);
}

bool sync_core_keeps(const struct sync *sync, uint32_t slot)
{
    return bitset_has(&sync->conf.view.members, slot) && !bitset_has(&sync->conf.view.witness, slot);
}

/* ---- actions ---- */

void sync_core_put(struct sync *sync, struct sync_action action)
{
    assert(sync->actions_count < sync->actions_room);
    size_t at = (sync->actions_head + sync->actions_count++) % sync->actions_room;
    sync->actions[at] = action;
}

bool sync_core_take(struct sync *sync, struct sync_action *action)
{
    if (sync->actions_count == 0)
        return false;
    *action = sync->actions[sync->actions_head];
    sync->actions_count--;
    /* From the start again when empty: room for the worst case need not be touched. */
    sync->actions_head = sync->actions_count > 0 ? (sync->actions_head + 1) % sync->actions_room : 0;
    return true;
}

void sync_core_put_version(struct sync *sync, enum sync_action_type type, uint32_t f, uint64_t version)
{
    sync_core_put(sync, (struct sync_action){.type = type, .fragment = f, .version = version});
}

void sync_core_report(struct sync *sync, enum sync_report what, uint32_t f, uint32_t member)
{
    sync_core_put(sync, (struct sync_action){.type = SYNC_DO_REPORT,
                                             .report = what,
                                             .fragment = f,
                                             .version = sync->fragments[f].own.version,
                                             .member = member});
}

void sync_core_announce(struct sync *sync)
{
    sync_core_put(sync, (struct sync_action){.type = SYNC_DO_ANNOUNCE});
}

/* ---- hashes ---- */

void sync_core_remember_hash(struct sync_fragment *fragment, uint64_t version, const struct digest *hash)
{
    fragment->hashes[version % SYNC_HASHES] =
        (struct sync_known_hash){.version = version, .hash = *hash, .known = true};
    fragment->own.hash = *hash;
    fragment->own.hash_known = true;
}

const struct digest *sync_core_hash_at(const struct sync_fragment *fragment, uint64_t version)
{
    const struct sync_known_hash *entry = &fragment->hashes[version % SYNC_HASHES];
    return entry->known && entry->version == version ? &entry->hash : NULL;
}

enum sync_proof sync_core_proof(const struct sync_fragment *fragment)
{
    return fragment->proof_version == fragment->own.version ? fragment->proof : SYNC_PROOF_NONE;
}

bool sync_core_most_agree(const struct sync *sync, uint32_t f)
{
    const struct sync_fragment *fragment = &sync->fragments[f];
    const struct bitset *keepers = &sync->conf.view.keepers;
    uint32_t agree = bitset_has(keepers, sync_core_self(sync));
    for (uint32_t i = 0; i < sync_core_slots(sync); i++) {
        if (!sync_core_other(sync, i) || !bitset_has(keepers, i))
            continue;
        const struct wire_standing *row = &sync->peers[i].fragments[f];
        agree += sync->peers[i].up && row->hash_known && row->version == fragment->own.version &&
                 digest_equal(&row->hash, &fragment->own.hash);
    }
    return 2 * agree > bitset_count(keepers);
}

uint32_t sync_core_differs(const struct sync *sync, uint32_t f)
{
    const struct sync_fragment *fragment = &sync->fragments[f];
    for (uint32_t i = 0; i < sync_core_slots(sync); i++) {
        if (!sync_core_other(sync, i))
            continue;
        const struct wire_standing *row = &sync->peers[i].fragments[f];
        if (sync->peers[i].up && row->hash_known && row->version == fragment->own.version &&
            !digest_equal(&row->hash, &fragment->own.hash))
            return i;
    }
    return SYNC_NOBODY;
}

bool sync_core_disputed(const struct sync *sync, uint32_t f)
{
    const struct sync_fragment *fragment = &sync->fragments[f];
    enum sync_proof proof = sync_core_proof(fragment);
    if (proof == SYNC_PROOF_NONE || proof == SYNC_PROOF_ASKED)
        return proof == SYNC_PROOF_ASKED;
    if (sync->now_ms >= fragment->proof_ms + SYNC_DISPUTE_MS || sync_core_most_agree(sync, f))
        return false;
    return sync_core_differs(sync, f) != SYNC_NOBODY;
}

/* ---- what others announce ---- */

bool sync_core_unproven(const struct sync *sync, uint32_t member)
{
    return sync->now_ms < sync->peers[member].conduct.unproven_until_ms;
}

bool sync_core_may_publish(const struct sync *sync, uint32_t f, uint32_t member)
{
    if (!sync_core_other(sync, member) || !sync->peers[member].up)
        return false;
    const struct wire_standing *row = &sync->peers[member].fragments[f];
    return row->hash_known && !row->repairing;
}

/* Whether the member's word counts: it has said something; and if its state is to be had, it is up and has one. */
static bool announces(const struct sync *sync, uint32_t f, uint32_t member, bool to_have)
{
    const struct sync_member *peer = &sync->peers[member];
    if (!sync_core_other(sync, member))
        return false;
    return peer->fragments[f].said && (sync_core_may_publish(sync, f, member) || !to_have);
}

/* Whether any of those who vote announces. */
static bool voters_announce(const struct sync *sync, uint32_t f, bool to_have)
{
    for (uint32_t i = 0; i < sync_core_slots(sync); i++)
        if (bitset_has(&sync->conf.view.keepers, i) && announces(sync, f, i, to_have))
            return true;
    return false;
}

uint64_t sync_core_announced(const struct sync *sync, uint32_t f, bool to_have)
{
    uint64_t most = 0;
    bool voters = voters_announce(sync, f, to_have);
    struct bitset counted = {{0}};
    for (uint32_t i = 0; i < sync_core_slots(sync); i++)
        if (announces(sync, f, i, to_have) && (!voters || bitset_has(&sync->conf.view.keepers, i)))
            bitset_add(&counted, i);
    uint32_t half = bitset_count(&counted) / 2;
    for (uint32_t i = 0; i < sync_core_slots(sync); i++) {
        uint64_t version = bitset_has(&counted, i) ? sync->peers[i].fragments[f].version : 0;
        uint32_t as_far = 0;
        for (uint32_t k = 0; k < sync_core_slots(sync) && version > most; k++)
            as_far += bitset_has(&counted, k) && sync->peers[k].fragments[f].version >= version;
        most = as_far > half ? version : most;
    }
    return most;
}
