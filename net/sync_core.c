#include "net/sync_core.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "common/mem.h"

static const char what_for[] = "the protocol";

/*
 * The most actions that one event can order, among M members:
 *
 *   a tick, of each fragment: the fetch of every shard's result (M), or a report, a retirement and the fetch of a state
 *   (3); one contribution that was refused is offered again (1); and its owner's check may close the round (1).
 *   a heartbeat, of each fragment: a report, a retirement, the fetch of a state, its owner's check (4); or a replay.
 *   "replayed": a report, a retirement, the mending, its owner's check (4).
 *   a peer that came up: of each fragment a contribution (1), and one announcement.
 *   "encoded": an announcement, a contribution to every other owner (M - 1), the owner's check (M + 1 in all).
 *   "stored": our result to every other member (M - 1), an announcement, the outer step (M + 1 in all).
 *   "installed": a report, a retirement, an announcement; "refused": a release, an announcement, the owner's check;
 *   either may then retire a contribution and fetch a state (5 in all).
 *   every other event: fewer.
 *
 * So no fragment takes more than the larger of M + 2 and 5, which is below M + 5 for every M; and one announcement
 * belongs to no fragment. What is left is for a caller that answers an action at once, while it drains: for a
 * SYNC_DO_TAKE_BACK taken out, SYNC_EV_TAKEN_BACK puts two in; a SYNC_DO_ENCODE that is answered with SYNC_EV_REFUSED
 * was alone.
 */
enum { ACTIONS_BESIDES_MEMBERS = 5, ACTIONS_OF_NO_FRAGMENT = 1 };

static size_t ring_room(const struct sync_conf *conf)
{
    size_t of_fragment = (size_t)conf->members_count + ACTIONS_BESIDES_MEMBERS;
    return conf->fragments_count * of_fragment + ACTIONS_OF_NO_FRAGMENT;
}

enum err sync_core_new(const struct sync_conf *conf, struct sync **out)
{
    enum err err;
    struct sync *sync = NULL;
    *out = NULL;
    if (conf->members_count == 0 || conf->members_count > SYNC_MEMBERS_MAX || conf->self >= conf->members_count)
        return err_set(ERR_ARG, "%" PRIu32 " members; 1 to %d are possible", conf->members_count, SYNC_MEMBERS_MAX);
    TRY_OUT(mem_new(1, sizeof *sync, what_for, &sync));
    sync->conf = *conf;
    sync->conf.shards = NULL; /* the caller's; our copy follows */
    TRY_OUT(mem_new(conf->fragments_count, sizeof *sync->fragments, what_for, &sync->fragments));
    TRY_OUT(mem_new(conf->fragments_count, sizeof *sync->shards, what_for, &sync->shards));
    memcpy(sync->shards, conf->shards, conf->fragments_count * sizeof *sync->shards);
    TRY_OUT(mem_new(conf->members_count, sizeof *sync->peers, what_for, &sync->peers));
    for (uint32_t i = 0; i < conf->members_count; i++)
        TRY_OUT(mem_new(conf->fragments_count, sizeof *sync->peers[i].fragments, what_for, &sync->peers[i].fragments));
    sync->actions_room = ring_room(conf);
    TRY_OUT(mem_new(sync->actions_room, sizeof *sync->actions, what_for, &sync->actions));
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
    for (uint32_t i = 0; sync->peers != NULL && i < sync->conf.members_count; i++)
        mem_free(sync->peers[i].fragments);
    mem_free(sync->peers);
    mem_free(sync->fragments);
    mem_free(sync->shards);
    mem_free(sync->actions);
    mem_free(sync);
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

bool sync_core_disputed(const struct sync *sync, uint32_t f)
{
    const struct sync_fragment *fragment = &sync->fragments[f];
    enum sync_proof proof = sync_core_proof(fragment);
    if (proof == SYNC_PROOF_NONE || proof == SYNC_PROOF_ASKED)
        return proof == SYNC_PROOF_ASKED;
    for (uint32_t i = 0; i < sync->conf.members_count && sync->now_ms < fragment->proof_ms + SYNC_DISPUTE_MS; i++) {
        const struct sync_peer_fragment *row = &sync->peers[i].fragments[f];
        if (i != sync->conf.self && sync->peers[i].up && row->hash_known && row->version == fragment->own.version &&
            !digest_equal(&row->hash, &fragment->own.hash))
            return true;
    }
    return false;
}

/* ---- who owns, who holds ---- */

/* Whether the member's word counts: it has said something; and if its state is to be had, it is up and has one. */
static bool announces(const struct sync *sync, uint32_t f, uint32_t member, bool to_have)
{
    const struct sync_member *peer = &sync->peers[member];
    bool has = peer->up && peer->fragments[f].hash_known;
    return member != sync->conf.self && peer->fragments[f].said && (has || !to_have);
}

uint64_t sync_core_announced(const struct sync *sync, uint32_t f, bool to_have)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < sync->conf.members_count; i++) {
        uint64_t version = sync->peers[i].fragments[f].version;
        uint32_t there = 0, as_far = 0;
        if (!announces(sync, f, i, to_have) || version <= most)
            continue;
        for (uint32_t k = 0; k < sync->conf.members_count; k++) {
            there += announces(sync, f, k, to_have);
            as_far += announces(sync, f, k, to_have) && sync->peers[k].fragments[f].version >= version;
        }
        most = 2 * as_far > there ? version : most;
    }
    return most;
}

bool sync_core_holds(const struct sync_peer_fragment *row, uint64_t version, uint32_t shard)
{
    return row->version >= version || (row->version + 1 == version && bitset_has(&row->results, shard));
}

bool sync_core_owns(const struct sync *sync, uint32_t f, uint32_t member)
{
    return bitset_has(&sync->shards[f], member);
}

bool sync_core_we_own(const struct sync *sync, uint32_t f)
{
    return sync_core_owns(sync, f, sync->conf.self);
}
