/* SPDX-License-Identifier: Apache-2.0 */
#include "net/sync/sync_doubt.h"

#include "net/sync/sync_commit.h"
#include "net/sync/sync_fragment.h"
#include "net/sync/sync_owner.h"

/* Our disk is read for one fragment at most so often, whatever others say. */
enum { PROOF_AGAIN_MS = 10000 };

/* Those who are known to have a hash of a version. */
struct party {
    uint32_t votes, count, lowest; /* lowest: of their ids, which are the same for everyone */
};

static void party_add(const struct sync *sync, struct party *party, uint32_t slot)
{
    uint32_t id = sync_core_id(sync, slot);
    party->votes += bitset_has(&sync->conf.view.keepers, slot);
    party->count++;
    party->lowest = id < party->lowest ? id : party->lowest;
}

static struct party party_of(const struct sync *sync, uint32_t f, uint64_t version, const struct digest *hash)
{
    struct party party = {.lowest = SYNC_NOBODY};
    for (uint32_t i = 0; i < sync_core_slots(sync); i++) {
        if (!sync_core_other(sync, i))
            continue;
        const struct wire_standing *row = &sync->peers[i].fragments[f];
        if (sync->peers[i].heard && row->version == version && row->hash_known && digest_equal(&row->hash, hash))
            party_add(sync, &party, i);
    }
    return party;
}

static struct party our_party(const struct sync *sync, uint32_t f, uint64_t version)
{
    struct party ours = party_of(sync, f, version, sync_core_hash_at(&sync->fragments[f], version));
    party_add(sync, &ours, sync_core_self(sync));
    return ours;
}

/* The one with more votes: whatever is to count in the end has to be certified; then the larger one; between equals
 * the one with the lowest member. Both sides count alike. */
static bool outweighs(const struct party *them, const struct party *us)
{
    if (them->votes != us->votes)
        return them->votes > us->votes;
    return them->count > us->count || (them->count == us->count && them->lowest < us->lowest);
}

/* Initial tensors are nowhere but in memory: there is no disk to ask. */
static bool initial_wrong(const struct sync *sync, uint32_t f, const struct digest *theirs)
{
    struct party them = party_of(sync, f, 0, theirs), us = our_party(sync, f, 0);
    return outweighs(&them, &us);
}

/* Whether a certificate of their hash of our version can exist: as many full voters announce it as have to certify it.
 * Where we cannot say which one is right, our own signature need not be among these (sync_excused()). */
static bool can_be_certified(const struct sync *sync, uint32_t f, const struct party *them)
{
    uint64_t version = sync->fragments[f].own.version;
    bool excused = sync_doubt_excused(sync, f, version, sync_core_self(sync));
    return them->votes > 0 && them->votes + excused >= sync->conf.view.commit_quorum;
}

/* Whether to give way although our disk does not say that we are wrong. If it confirms us: to most of all who keep
 * bytes; and when others have had time to find that they are wrong, to a party that is no smaller and has the lowest
 * member, or two whose disks confirm them both would go different ways for ever. If it cannot tell: to a state that can
 * be committed; of two whose disks cannot, the one with the lower id waits, so that not both take the other's. */
static bool gives_way(const struct sync *sync, uint32_t f, const struct digest *theirs)
{
    const struct sync_fragment *fragment = &sync->fragments[f];
    struct party them = party_of(sync, f, fragment->own.version, theirs),
                 us = our_party(sync, f, fragment->own.version);
    bool late = sync->now_ms >= fragment->proof_ms + SYNC_YIELD_MS;
    if (sync_core_proof(fragment) == SYNC_PROOF_CONFIRMED)
        return 2 * them.votes > bitset_count(&sync->conf.view.keepers) || (late && outweighs(&them, &us));
    bool waits = !late && us.votes > 0 && them.lowest > us.lowest;
    return !waits && can_be_certified(sync, f, &them);
}

static void ask_our_disk(struct sync *sync, uint32_t f)
{
    struct sync_fragment *fragment = &sync->fragments[f];
    if (sync->now_ms < fragment->proof_next_ms)
        return;
    fragment->proof = SYNC_PROOF_ASKED;
    fragment->proof_version = fragment->own.version;
    fragment->proof_next_ms = sync->now_ms + PROOF_AGAIN_MS;
    sync_core_put_version(sync, SYNC_DO_REPLAY, f, fragment->own.version);
}

static void give_way(struct sync *sync, uint32_t f, uint32_t member)
{
    sync_core_report(sync, SYNC_REPORT_DIVERGED, f, member);
    sync_fragment_raise(sync, f, SYNC_EV_LOST, &(struct sync_event){.member = member});
}

bool sync_doubt_differs(const struct sync *sync, uint32_t f, uint32_t member)
{
    const struct wire_standing *row = &sync->peers[member].fragments[f];
    const struct digest *ours = sync_core_hash_at(&sync->fragments[f], row->version);
    return row->hash_known && ours != NULL && !digest_equal(ours, &row->hash);
}

bool sync_doubt_wrong(const struct sync *sync, uint32_t f, uint32_t member)
{
    const struct sync_fragment *fragment = &sync->fragments[f];
    const struct wire_standing *row = &sync->peers[member].fragments[f];
    return row->version == fragment->own.version && sync_doubt_differs(sync, f, member) &&
           sync_core_most_agree(sync, f);
}

void sync_doubt_compare(struct sync *sync, uint32_t f, uint32_t member)
{
    struct sync_fragment *fragment = &sync->fragments[f];
    const struct wire_standing *row = &sync->peers[member].fragments[f];
    if (!sync_doubt_differs(sync, f, member) || fragment->state == SYNC_REPAIR || fragment->lost)
        return;
    bool now = row->version == fragment->own.version;
    if (row->version == 0 && initial_wrong(sync, f, &row->hash)) {
        if (now)
            give_way(sync, f, member);
        return;
    }
    enum sync_proof proof = row->version > 0 ? sync_core_proof(fragment) : SYNC_PROOF_CONFIRMED;
    if (proof == SYNC_PROOF_NONE)
        ask_our_disk(sync, f);
    else if (proof != SYNC_PROOF_ASKED && now && row->version > 0 && gives_way(sync, f, &row->hash))
        give_way(sync, f, member);
    else if (proof != SYNC_PROOF_ASKED)
        sync_core_report(sync, SYNC_REPORT_PEER_DIVERGED, f, member);
}

/* Whether all results of the next version are here and count, so that it is one, whoever says so. */
static bool next_is_certain(const struct sync *sync, uint32_t f)
{
    const struct sync_parts *parts = &sync->fragments[f].parts;
    for (uint32_t p = 0; p < parts->count; p++)
        if (!sync_commit_counts(sync, f, p))
            return false;
    return parts->count > 0 && sync_commit_missing(parts) == 0;
}

/* We repair our state, and cannot say what this version is: ours, or the next one, whose results we have and cannot
 * apply. Of versions beyond we have the word of one alone. */
static bool cannot_come_to(const struct sync *sync, uint32_t f, uint64_t version)
{
    const struct sync_fragment *fragment = &sync->fragments[f];
    return fragment->state == SYNC_REPAIR &&
           (fragment->own.version == version || (fragment->own.version + 1 == version && next_is_certain(sync, f)));
}

/* Whether the member cannot say which state of `version` is right: it has none, its disk may have forgotten it, or does
 * not lead to what it has, or it has given way. Of another we see only that it has another one. */
static bool speechless(const struct sync *sync, uint32_t f, uint64_t version, uint32_t member)
{
    const struct sync_fragment *fragment = &sync->fragments[f];
    if (member == sync_core_self(sync))
        return !fragment->own.hash_known || !sync->conf.view.votes || sync_core_proof(fragment) == SYNC_PROOF_FAILED ||
               cannot_come_to(sync, f, version);
    const struct wire_standing *row = &sync->peers[member].fragments[f];
    return !row->hash_known || sync->peers[member].in_doubt ||
           (row->version == version && sync_doubt_differs(sync, f, member));
}

/* Voters but for this member that can be heard and have come so far: they have certified the version, or can. */
static uint32_t voices(const struct sync *sync, uint32_t f, uint64_t version, uint32_t except)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < sync_core_slots(sync); i++) {
        if (i == except || !bitset_has(&sync->conf.view.keepers, i))
            continue;
        bool self = i == sync_core_self(sync);
        const struct wire_standing *row = self ? &sync->fragments[f].own : &sync->peers[i].fragments[f];
        count += (self || sync->peers[i].up) && row->hash_known && row->version >= version;
    }
    return count;
}

bool sync_doubt_excused(const struct sync *sync, uint32_t f, uint64_t version, uint32_t member)
{
    return bitset_has(&sync->conf.view.keepers, member) && speechless(sync, f, version, member) &&
           voices(sync, f, version, member) < sync->conf.view.commit_quorum;
}

void sync_doubt_answered(struct sync *sync, const struct sync_event *event)
{
    uint32_t f = event->fragment;
    struct sync_fragment *fragment = &sync->fragments[f];
    bool found = event->type == SYNC_EV_REPLAYED;
    if (fragment->state == SYNC_REPAIR) {
        if (!found && event->version == fragment->own.version)
            sync_fragment_cannot_repair(sync, f);
        return;
    }
    if (sync_core_proof(fragment) != SYNC_PROOF_ASKED || event->version != fragment->own.version)
        return; /* of a version that is over */
    bool right = found && digest_equal(&event->hash, &fragment->own.hash);
    fragment->proof = right ? SYNC_PROOF_CONFIRMED : SYNC_PROOF_FAILED;
    fragment->proof_ms = sync->now_ms;
    if (found && !right) {
        sync_core_report(sync, SYNC_REPORT_DAMAGED, f, sync_core_self(sync));
        sync_fragment_raise(sync, f, SYNC_EV_LOST, &(struct sync_event){.member = sync_core_self(sync)});
    }
    sync_owner_check(sync, f);
}
