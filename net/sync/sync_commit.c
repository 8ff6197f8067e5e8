/* SPDX-License-Identifier: Apache-2.0 */
#include "net/sync/sync_commit.h"

#include <string.h>

static uint64_t bit(uint32_t p)
{
    return (uint64_t)1 << p;
}

static uint64_t all_parts(const struct sync_parts *parts)
{
    return parts->count == 64 ? UINT64_MAX : bit(parts->count) - 1;
}

/* ---- the parts ---- */

uint32_t sync_commit_find(const struct sync_parts *parts, uint64_t epoch, uint32_t owner)
{
    for (uint32_t p = 0; p < parts->count; p++)
        if (parts->part[p].id.owner == owner && parts->part[p].id.epoch == epoch)
            return p;
    return VERSION_PARTS_MAX;
}

uint64_t sync_commit_missing(const struct sync_parts *parts)
{
    return parts->count > 0 ? all_parts(parts) & (~parts->held | parts->other) : 0;
}

void sync_commit_prefer(struct sync_parts *parts, uint32_t p, const struct digest *digest)
{
    if (!(parts->held & bit(p)))
        return;
    parts->wanted_digest[p] = *digest;
    if (digest_equal(digest, &parts->digest[p]))
        parts->other &= ~bit(p);
    else
        parts->other |= bit(p);
}

/* The other result of a part, which a proposed configuration wants: its owner signed both. */
static bool take_other(struct sync_parts *parts, uint32_t p, const struct digest *digest)
{
    if (!(parts->other & bit(p)) || !digest_equal(digest, &parts->wanted_digest[p]))
        return false;
    parts->digest[p] = *digest;
    parts->other &= ~bit(p);
    parts->acknowledged &= ~bit(p);
    parts->committed &= ~bit(p);
    return true;
}

bool sync_commit_keep(struct sync_parts *parts, uint32_t p, const struct digest *digest)
{
    if (parts->held & bit(p))
        return take_other(parts, p, digest);
    if (parts->part[p].carried && !digest_equal(&parts->part[p].id.digest, digest))
        return false;
    parts->digest[p] = *digest;
    parts->held |= bit(p);
    return true;
}

static void find_parts(struct sync *sync, uint32_t f)
{
    struct sync_fragment *fragment = &sync->fragments[f];
    fragment->parts = (struct sync_parts){0};
    fragment->parts.count = sync_core_parts(sync, f, fragment->own.version + 1, fragment->parts.part);
}

void sync_commit_arrive(struct sync *sync, uint32_t f)
{
    find_parts(sync, f);
}

/* What is held for a part of an epoch counts in the next as the same part: carried, or of a version that is over. */
static void keep_result(struct sync *sync, uint32_t f, const struct version_part *part, const struct digest *digest)
{
    struct sync_parts *parts = &sync->fragments[f].parts;
    uint32_t p = sync_commit_part(sync, f, part->id.epoch, part->id.owner);
    if (p == VERSION_PARTS_MAX || (parts->part[p].carried && !digest_equal(&parts->part[p].id.digest, digest)))
        return;
    parts->digest[p] = *digest;
    parts->held |= bit(p);
    parts->acknowledged |= bit(p);
}

void sync_commit_epoch(struct sync *sync, uint32_t f)
{
    struct sync_parts before = sync->fragments[f].parts;
    find_parts(sync, f);
    for (uint32_t p = 0; p < before.count; p++)
        if (before.held & bit(p))
            keep_result(sync, f, &before.part[p], &before.digest[p]);
}

uint32_t sync_commit_part(const struct sync *sync, uint32_t f, uint64_t epoch, uint32_t owner)
{
    return sync_commit_find(&sync->fragments[f].parts, epoch, owner);
}

uint32_t sync_commit_ours(const struct sync *sync, uint32_t f)
{
    const struct sync_view *view = &sync->conf.view;
    uint32_t p = sync_commit_part(sync, f, view->epoch, sync_core_id(sync, view->self));
    return p < VERSION_PARTS_MAX && !sync->fragments[f].parts.part[p].carried ? p : VERSION_PARTS_MAX;
}

/* ---- who holds what ---- */

/* Whether the member says that it has applied the next version, made of the parts that we know. One that is an epoch
 * ahead of us may have made it of others, as long as we have not heard what that epoch's configuration says. */
static bool has_applied(const struct sync *sync, uint32_t f, uint32_t member)
{
    const struct sync_member *peer = &sync->peers[member];
    return peer->fragments[f].version > sync->fragments[f].own.version && peer->epoch <= sync->conf.view.epoch;
}

bool sync_commit_applied(const struct sync *sync, uint32_t f)
{
    for (uint32_t i = 0; i < sync_core_slots(sync); i++)
        if (sync_core_other(sync, i) && bitset_has(&sync->conf.view.keepers, i) && has_applied(sync, f, i))
            return true;
    return false;
}

/* Whether so many say so that one of them would have to be certain: a seal is not loosened by one member's word. */
static bool surely_applied(const struct sync *sync, uint32_t f)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < sync_core_slots(sync); i++)
        count += sync_core_other(sync, i) && bitset_has(&sync->conf.view.keepers, i) && has_applied(sync, f, i);
    return count >= sync->conf.view.commit_quorum;
}

bool sync_commit_lacks(const struct sync *sync, uint32_t f, uint32_t p)
{
    return (sync_commit_missing(&sync->fragments[f].parts) & bit(p)) != 0;
}

bool sync_commit_stored(struct sync *sync, uint32_t f, const struct sync_event *event)
{
    struct sync_parts *parts = &sync->fragments[f].parts;
    if (event->version != sync->fragments[f].own.version + 1)
        return false;
    uint32_t p = sync_commit_part(sync, f, event->epoch, event->owner);
    if (p == VERSION_PARTS_MAX)
        return false;
    bool other = (parts->held & bit(p)) != 0; /* it was not in our seal */
    if (other && !digest_equal(&event->hash, &parts->digest[p]))
        parts->seconds |= bit(p);
    if (!sync_commit_keep(parts, p, &event->hash))
        return false;
    if (other)
        return true;
    /* Our seal does not name it, so by our word it must not come to count; what counts already may be told. */
    if (!sync->sealed || surely_applied(sync, f))
        parts->acknowledged |= bit(p);
    return true;
}

/* From the last one on, so that those of one owner are found in the order they were said. */
static void hold(struct sync_tags *holding, const struct wire_held *held, uint32_t count)
{
    holding->count = count;
    memset(holding->first, 0, sizeof holding->first);
    for (uint32_t k = count; k-- > 0;) {
        uint8_t *first = &holding->first[held[k].owner % VERSION_PARTS_MAX];
        holding->held[k] = held[k];
        holding->next[k] = *first;
        *first = (uint8_t)(k + 1);
    }
}

void sync_commit_heard(struct sync *sync, uint32_t f, uint32_t member, const struct wire_held *held, uint32_t count)
{
    struct sync_tags *holding = sync->peers[member].reports;
    struct sync_parts *parts = &sync->fragments[f].parts;
    if (parts->acknowledged != parts->held && surely_applied(sync, f))
        parts->acknowledged = parts->held;
    if (holding == NULL)
        return;
    hold(&holding[f], held, count < VERSION_PARTS_MAX ? count : VERSION_PARTS_MAX);
}

void sync_commit_forget(struct sync *sync, uint32_t member)
{
    struct sync_tags *holding = sync->peers[member].reports;
    for (uint32_t f = 0; holding != NULL && f < sync->conf.fragments_count; f++)
        holding[f].count = 0;
}

/* What the member says it holds of an owner's results of the version after its own; NULL: nothing. `nth`: of several.
 */
static const struct wire_held *said(const struct sync *sync, uint32_t f, uint32_t member, uint32_t owner, uint32_t nth)
{
    const struct sync_tags *holding = sync->peers[member].reports;
    if (holding == NULL || holding[f].count == 0)
        return NULL;
    holding += f;
    for (uint32_t at = holding->first[owner % VERSION_PARTS_MAX]; at != 0; at = holding->next[at - 1])
        if (holding->held[at - 1].owner == owner && nth-- == 0)
            return &holding->held[at - 1];
    return NULL;
}

static bool tags(const struct wire_held *held, const struct digest *digest)
{
    return memcmp(held->tag, digest->byte, sizeof held->tag) == 0;
}

/* Whether what a member of our version holds is of part `p`: an owner may have made one part of it in an epoch before,
 * which the configuration carries, and makes another in this one. */
static bool is_of_part(const struct sync_parts *parts, const struct wire_held *held, uint32_t p)
{
    if (parts->part[p].carried)
        return tags(held, &parts->part[p].id.digest);
    for (uint32_t k = 0; k < parts->count; k++)
        if (parts->part[k].carried && tags(held, &parts->part[k].id.digest))
            return false;
    return true;
}

bool sync_commit_has(const struct sync *sync, uint32_t f, uint32_t member, uint32_t p)
{
    const struct sync_fragment *fragment = &sync->fragments[f];
    const struct wire_standing *row = &sync->peers[member].fragments[f];
    const struct wire_held *held;
    if (row->version != fragment->own.version)
        return row->version > fragment->own.version;
    for (uint32_t nth = 0; (held = said(sync, f, member, fragment->parts.part[p].id.owner, nth)) != NULL; nth++)
        if (is_of_part(&fragment->parts, held, p))
            return true;
    return false;
}

bool sync_commit_has_any(const struct sync *sync, uint32_t f, uint32_t member, uint64_t parts)
{
    const struct sync_member *peer = &sync->peers[member];
    if (peer->fragments[f].version != sync->fragments[f].own.version)
        return parts != 0 && peer->fragments[f].version > sync->fragments[f].own.version;
    for (; parts != 0 && peer->reports != NULL && peer->reports[f].count > 0; parts &= parts - 1)
        if (sync_commit_has(sync, f, member, (uint32_t)__builtin_ctzll(parts)))
            return true;
    return false;
}

bool sync_commit_claims(const struct sync *sync, uint32_t f, uint64_t version, uint32_t member)
{
    const struct sync_fragment *fragment = &sync->fragments[f];
    uint32_t id = sync_core_id(sync, sync_core_self(sync)), ours = sync_commit_ours(sync, f);
    bool next = version == fragment->own.version + 1 && ours < VERSION_PARTS_MAX;
    const struct wire_standing *row = &sync->peers[member].fragments[f];
    return row->version >= version || (next && sync_commit_has(sync, f, member, ours)) ||
           (!next && row->version + 1 == version && said(sync, f, member, id, 0) != NULL);
}

bool sync_commit_surely_lost(const struct sync *sync, uint32_t f, uint64_t version)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < sync_core_slots(sync); i++)
        count += sync_core_other(sync, i) && bitset_has(&sync->conf.view.keepers, i) &&
                 sync_commit_claims(sync, f, version, i);
    return count >= sync->conf.view.commit_quorum;
}

bool sync_commit_lost(const struct sync *sync, uint32_t f, uint64_t version)
{
    for (uint32_t i = 0; i < sync_core_slots(sync); i++)
        if (sync_core_other(sync, i) && !sync_core_unproven(sync, i) && sync_commit_claims(sync, f, version, i))
            return true;
    return sync_commit_surely_lost(sync, f, version);
}

/* ---- what counts ---- */

/* Whether the voter has this very result: two of one owner are told apart. */
static bool confirms(const struct sync *sync, uint32_t f, uint32_t member, uint32_t p)
{
    const struct sync_fragment *fragment = &sync->fragments[f];
    const struct wire_standing *row = &sync->peers[member].fragments[f];
    const struct wire_held *held;
    if (row->version != fragment->own.version)
        return has_applied(sync, f, member);
    for (uint32_t nth = 0; (held = said(sync, f, member, fragment->parts.part[p].id.owner, nth)) != NULL; nth++)
        if (tags(held, &fragment->parts.digest[p]))
            return true;
    return false;
}

static bool holds_another(const struct sync *sync, uint32_t f, uint32_t member, uint32_t p)
{
    const struct sync_fragment *fragment = &sync->fragments[f];
    const struct wire_held *held;
    if (sync->peers[member].fragments[f].version != fragment->own.version)
        return false;
    for (uint32_t nth = 0; (held = said(sync, f, member, fragment->parts.part[p].id.owner, nth)) != NULL; nth++)
        if (is_of_part(&fragment->parts, held, p) && !tags(held, &fragment->parts.digest[p]))
            return true;
    return false;
}

bool sync_commit_rivals(const struct sync *sync, uint32_t f, uint32_t p, uint32_t member)
{
    const struct sync_parts *parts = &sync->fragments[f].parts;
    return (parts->held & bit(p)) != 0 && !parts->part[p].carried &&
           sync_core_id(sync, member) != parts->part[p].id.owner && sync_core_other(sync, member) &&
           sync->peers[member].up && holds_another(sync, f, member, p);
}

uint32_t sync_commit_rival(const struct sync *sync, uint32_t f, uint32_t p, uint32_t first)
{
    uint32_t slots = sync_core_slots(sync);
    for (uint32_t k = 0; k < slots; k++)
        if (sync_commit_rivals(sync, f, p, (first + k) % slots))
            return (first + k) % slots;
    return SYNC_NOBODY;
}

/* Members that are known to have it durably, of those whose copies count. */
static struct bitset confirming(const struct sync *sync, uint32_t f, uint32_t p)
{
    const struct sync_view *view = &sync->conf.view;
    struct bitset found = {{0}};
    if (view->votes && bitset_has(&view->keepers, view->self) && (sync->fragments[f].parts.acknowledged & bit(p)))
        bitset_add(&found, view->self);
    for (uint32_t i = 0; i < view->slots; i++)
        if (bitset_has(&view->keepers, i) && sync_core_other(sync, i) && confirms(sync, f, i, p))
            bitset_add(&found, i);
    return found;
}

uint64_t sync_commit_start(const struct sync *sync, uint32_t f)
{
    uint64_t start = config_start(config_log_last(sync->conf.config_log), f),
             taken_over = sync->fragments[f].taken_over;
    return taken_over > start ? taken_over : start;
}

bool sync_commit_counts(const struct sync *sync, uint32_t f, uint32_t p)
{
    const struct sync_parts *parts = &sync->fragments[f].parts;
    if (!(parts->held & bit(p)) || (parts->committed & bit(p)))
        return (parts->committed & bit(p)) != 0;
    /* Named by the configuration of the epoch, or of a version that it takes for granted. What is only proposed commits
     * nothing: it may never be decided. */
    if (parts->part[p].carried || sync->fragments[f].own.version < sync_commit_start(sync, f))
        return true;
    struct bitset found = confirming(sync, f, p);
    return bitset_count(&found) >= sync->conf.view.commit_quorum;
}

bool sync_commit_complete(struct sync *sync, uint32_t f)
{
    struct sync_parts *parts = &sync->fragments[f].parts;
    if (parts->count == 0 || parts->held != all_parts(parts))
        return false;
    for (uint32_t p = 0; p < parts->count; p++) {
        if (!sync_commit_counts(sync, f, p))
            return false;
        parts->committed |= bit(p);
    }
    return true;
}

struct bitset sync_commit_waiting_for(const struct sync *sync, uint32_t f)
{
    const struct sync_parts *parts = &sync->fragments[f].parts;
    struct bitset waiting = {{0}};
    for (uint32_t p = 0; p < parts->count; p++) {
        if (!(parts->held & bit(p)) || sync_commit_counts(sync, f, p))
            continue;
        struct bitset found = confirming(sync, f, p), missing = sync->conf.view.keepers;
        bitset_remove_all(&missing, &found);
        bitset_remove(&missing, sync_core_self(sync));
        bitset_add_all(&waiting, &missing);
    }
    return waiting;
}

/* ---- beyond the next version ---- */

/* An unanswered request is made again, to another member; and so soon, where one has answered that it has none. */
enum { FETCH_AGAIN_MS = 2000, NEXT_ONE_MS = 250 };

void sync_beyond_reset(struct sync *sync, uint32_t f)
{
    /* The next one is asked next: or the first of those that have it would bring all versions. */
    sync->fragments[f].beyond = (struct sync_beyond){.tries = sync->fragments[f].beyond.tries};
}

uint64_t sync_beyond_reach(const struct sync *sync, uint32_t f)
{
    const struct sync_fragment *fragment = &sync->fragments[f];
    return fragment->beyond.version != 0 ? fragment->beyond.version - 1 : fragment->own.version;
}

const struct sync_parts *sync_beyond_parts(const struct sync *sync, uint32_t f)
{
    const struct sync_fragment *fragment = &sync->fragments[f];
    return fragment->beyond.version != 0 ? &fragment->beyond.parts : &fragment->parts;
}

/* A blank fragment has nothing that results could be applied to. */
static bool whole(const struct sync *sync, uint32_t f)
{
    const struct sync_parts *parts = sync_beyond_parts(sync, f);
    return sync->fragments[f].own.hash_known && parts->count > 0 && sync_commit_missing(parts) == 0;
}

/* On as far as a draft starts. */
static void advance(struct sync *sync, uint32_t f)
{
    struct sync_fragment *fragment = &sync->fragments[f];
    struct sync_beyond *beyond = &fragment->beyond;
    while (sync_beyond_reach(sync, f) < fragment->start_wanted && whole(sync, f)) {
        uint64_t version = sync_beyond_reach(sync, f) + 2;
        *beyond = (struct sync_beyond){.version = version, .tries = beyond->tries};
        beyond->parts.count = sync_core_parts(sync, f, version, beyond->parts.part);
    }
}

void sync_beyond_want(struct sync *sync, uint32_t f, uint64_t version, uint64_t epoch, uint32_t owner,
                      const struct digest *digest)
{
    struct sync_beyond *beyond = &sync->fragments[f].beyond;
    uint32_t p = version == beyond->version ? sync_commit_find(&beyond->parts, epoch, owner) : VERSION_PARTS_MAX;
    if (p == VERSION_PARTS_MAX)
        return;
    if ((beyond->parts.wanted & bit(p)) == 0)
        beyond->fetch_ms = 0;
    beyond->parts.wanted |= bit(p);
    if (digest != NULL)
        sync_commit_prefer(&beyond->parts, p, digest);
}

void sync_beyond_stored(struct sync *sync, const struct sync_event *event)
{
    struct sync_beyond *beyond = &sync->fragments[event->fragment].beyond;
    uint32_t p = event->version == beyond->version ? sync_commit_find(&beyond->parts, event->epoch, event->owner)
                                                   : VERSION_PARTS_MAX;
    if (p < VERSION_PARTS_MAX)
        sync_commit_keep(&beyond->parts, p, &event->hash);
    advance(sync, event->fragment);
}

enum sync_want sync_beyond_wants(const struct sync *sync, const struct wire_key *key, uint32_t from)
{
    const struct sync_beyond *beyond = &sync->fragments[key->fragment].beyond;
    uint32_t p =
        key->version == beyond->version ? sync_commit_find(&beyond->parts, key->epoch, key->owner) : VERSION_PARTS_MAX;
    if (p == VERSION_PARTS_MAX || !bitset_has(&beyond->asked, from))
        return SYNC_NOT_YET;
    return sync_commit_missing(&beyond->parts) & bit(p) ? SYNC_WANT : SYNC_HAVE;
}

/* Whoever has come to the version before may have results of this one, whether it says so or not. */
static bool may_have(const struct sync *sync, uint32_t f, uint32_t member)
{
    const struct sync_member *peer = &sync->peers[member];
    return sync_core_other(sync, member) && sync_core_keeps(sync, member) && peer->up &&
           peer->fragments[f].version + 1 >= sync->fragments[f].beyond.version;
}

/* In turn, since one may be silent, or lack it. */
static uint32_t source(const struct sync *sync, uint32_t f)
{
    uint32_t slots = sync_core_slots(sync), holders = 0;
    for (uint32_t i = 0; i < slots; i++)
        holders += may_have(sync, f, i);
    uint32_t turn = holders > 0 ? sync->fragments[f].beyond.tries % holders : 0;
    for (uint32_t i = 0; i < slots; i++)
        if (may_have(sync, f, i) && turn-- == 0)
            return i;
    return SYNC_NOBODY;
}

/* All of a version on the way to the start; after it what the draft carries. */
static uint64_t to_fetch(const struct sync *sync, uint32_t f)
{
    const struct sync_fragment *fragment = &sync->fragments[f];
    uint64_t missing = sync_commit_missing(&fragment->beyond.parts);
    return fragment->beyond.version <= fragment->start_wanted ? missing : missing & fragment->beyond.parts.wanted;
}

void sync_beyond_catch_up(struct sync *sync, uint32_t f)
{
    struct sync_beyond *beyond = &sync->fragments[f].beyond;
    advance(sync, f);
    if (beyond->version == 0 || to_fetch(sync, f) == 0 || sync->now_ms < beyond->fetch_ms)
        return;
    uint32_t from = source(sync, f);
    if (from == SYNC_NOBODY)
        return;
    beyond->fetch_ms = sync->now_ms + FETCH_AGAIN_MS;
    beyond->tries++;
    bitset_add(&beyond->asked, from);
    for (uint64_t left = to_fetch(sync, f); left != 0; left &= left - 1) {
        const struct version_part *part = &beyond->parts.part[__builtin_ctzll(left)];
        struct wire_key key = {.kind = WIRE_RESULT,
                               .fragment = f,
                               .version = beyond->version,
                               .epoch = part->id.epoch,
                               .owner = part->id.owner,
                               .island = part->id.owner};
        sync_core_put(sync, (struct sync_action){.type = SYNC_DO_FETCH, .fragment = f, .key = key, .member = from});
    }
}

void sync_beyond_not_available(struct sync *sync, const struct sync_event *event)
{
    struct sync_beyond *beyond = &sync->fragments[event->key.fragment].beyond;
    if (event->key.version == beyond->version && bitset_has(&beyond->asked, event->member))
        beyond->fetch_ms = sync->now_ms + NEXT_ONE_MS;
}
