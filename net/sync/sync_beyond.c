/* SPDX-License-Identifier: Apache-2.0 */
#include "net/sync/sync_beyond.h"

#include "net/sync/sync_certify.h"

/* An unanswered request is made again, to another member; and so soon, where one has answered that it has none. */
enum { FETCH_AGAIN_MS = 2000, NEXT_ONE_MS = 250 };

static uint64_t bit(uint32_t p)
{
    return (uint64_t)1 << p;
}

void sync_beyond_reset(struct sync *sync, uint32_t f)
{
    sync->fragments[f].beyond = (struct sync_beyond){0};
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
    return sync->fragments[f].own.hash_known && parts->count > 0 && sync_certify_missing(parts) == 0;
}

/* On as far as a draft starts. */
static void advance(struct sync *sync, uint32_t f)
{
    struct sync_fragment *fragment = &sync->fragments[f];
    struct sync_beyond *beyond = &fragment->beyond;
    while (sync_beyond_reach(sync, f) < fragment->start_wanted && whole(sync, f)) {
        uint64_t version = sync_beyond_reach(sync, f) + 2;
        *beyond = (struct sync_beyond){.version = version};
        beyond->parts.count = sync_core_parts(sync, f, version, beyond->parts.part);
    }
}

void sync_beyond_want(struct sync *sync, uint32_t f, uint64_t version, uint64_t epoch, uint32_t owner,
                      const struct digest *digest)
{
    struct sync_beyond *beyond = &sync->fragments[f].beyond;
    uint32_t p = version == beyond->version ? sync_certify_find(&beyond->parts, epoch, owner) : CHAIN_PARTS_MAX;
    if (p == CHAIN_PARTS_MAX)
        return;
    if ((beyond->parts.wanted & bit(p)) == 0)
        beyond->fetch_ms = 0;
    beyond->parts.wanted |= bit(p);
    if (digest != NULL)
        sync_certify_prefer(&beyond->parts, p, digest);
}

void sync_beyond_stored(struct sync *sync, const struct sync_event *event)
{
    struct sync_beyond *beyond = &sync->fragments[event->fragment].beyond;
    uint32_t p = event->version == beyond->version ? sync_certify_find(&beyond->parts, event->epoch, event->owner)
                                                   : CHAIN_PARTS_MAX;
    if (p < CHAIN_PARTS_MAX)
        sync_certify_keep(&beyond->parts, p, &event->hash);
    advance(sync, event->fragment);
}

enum sync_want sync_beyond_wants(const struct sync *sync, const struct wire_key *key, uint32_t from)
{
    const struct sync_beyond *beyond = &sync->fragments[key->fragment].beyond;
    uint32_t p =
        key->version == beyond->version ? sync_certify_find(&beyond->parts, key->epoch, key->owner) : CHAIN_PARTS_MAX;
    if (p == CHAIN_PARTS_MAX || !bitset_has(&beyond->asked, from))
        return SYNC_NOT_YET;
    return sync_certify_missing(&beyond->parts) & bit(p) ? SYNC_WANT : SYNC_HAVE;
}

/* ---- fetching ---- */

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
    uint64_t missing = sync_certify_missing(&fragment->beyond.parts);
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
        const struct chain_part *part = &beyond->parts.part[__builtin_ctzll(left)];
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
