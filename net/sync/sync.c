/* SPDX-License-Identifier: Apache-2.0 */
#include "net/sync/sync.h"

#include <string.h>

#include "net/config/certificate.h"
#include "net/sync/sync_commit.h"
#include "net/sync/sync_core.h"
#include "net/sync/sync_doubt.h"
#include "net/sync/sync_fragment.h"
#include "net/sync/sync_owner.h"
#include "net/sync/sync_patience.h"
#include "net/sync/sync_peers.h"

/* ---- life ---- */

enum err sync_new(const struct sync_conf *conf, struct sync **out)
{
    return sync_core_new(conf, out);
}

void sync_free(struct sync *sync)
{
    sync_core_free(sync);
}

uint64_t sync_bytes(uint32_t slots, uint32_t fragments, uint32_t keepers)
{
    return sync_core_bytes(slots, fragments, keepers);
}

void sync_restore(struct sync *sync, uint32_t f, uint64_t version, const struct digest *hash)
{
    sync_fragment_restore(sync, f, version, hash);
}

static void count_step(uint64_t *most, uint64_t step)
{
    if (*most < step)
        *most = step;
}

void sync_restore_steps(struct sync *sync, uint64_t step, uint64_t applied)
{
    count_step(&sync->steps.durable, step);
    count_step(&sync->steps.applied, applied);
}

struct sync_steps sync_steps(const struct sync *sync)
{
    return sync->steps;
}

enum err sync_begin_epoch(struct sync *sync, const struct sync_view *view, uint64_t now_ms)
{
    TRY(sync_core_set_view(sync, view));
    sync->now_ms = now_ms;
    sync->sealed = false;
    for (uint32_t f = 0; f < sync->conf.fragments_count; f++)
        sync_fragment_epoch(sync, f);
    sync_owner_check_all(sync);
    sync_core_announce(sync);
    return ERR_OK;
}

void sync_set_votes(struct sync *sync, bool votes)
{
    struct sync_view *view = &sync->conf.view;
    view->votes = votes && bitset_has(&view->keepers, view->self);
}

void sync_seal(struct sync *sync)
{
    sync->sealed = true;
    for (uint32_t f = 0; f < sync->conf.fragments_count; f++)
        sync_patience_anew(sync, f);
}

/* `digest`: of this result of the owner's, or NULL. */
static void want(struct sync *sync, uint32_t f, uint64_t version, uint64_t epoch, uint32_t owner,
                 const struct digest *digest)
{
    if (f >= sync->conf.fragments_count)
        return;
    sync_beyond_want(sync, f, version, epoch, owner, digest);
    struct sync_parts *parts = &sync->fragments[f].parts;
    bool next = version == sync->fragments[f].own.version + 1;
    uint32_t p = next ? sync_commit_find(parts, epoch, owner) : VERSION_PARTS_MAX;
    if (p == VERSION_PARTS_MAX)
        return;
    if ((parts->wanted >> p & 1) == 0)
        sync_peers_fetch_now(sync, f);
    parts->wanted |= (uint64_t)1 << p;
    if (digest != NULL)
        sync_commit_prefer(parts, p, digest);
    if (digest != NULL && sync_commit_lacks(sync, f, p))
        sync_beyond_reset(sync, f); /* what is kept beyond it is reached again with the other one */
}

void sync_want(struct sync *sync, uint32_t f, uint64_t version, uint64_t epoch, uint32_t owner)
{
    want(sync, f, version, epoch, owner, NULL);
}

void sync_want_this(struct sync *sync, uint32_t f, uint64_t version, uint64_t epoch, uint32_t owner,
                    const struct digest *digest)
{
    want(sync, f, version, epoch, owner, digest);
}

void sync_expect(struct sync *sync, bool expecting, bool brings_initial)
{
    sync->expecting = expecting;
    sync->brings_initial = brings_initial;
}

/* ---- events in, actions out ---- */

static void tick(struct sync *sync)
{
    for (uint32_t f = 0; f < sync->conf.fragments_count; f++) {
        sync_peers_catch_up(sync, f, true);
        sync_fragment_look(sync, f);
        sync_fragment_offer_again(sync, f);
    }
    sync_patience_tick(sync);
    for (uint32_t f = 0; f < sync->conf.fragments_count; f++)
        sync_owner_tick(sync, f);
}

void sync_step(struct sync *sync, const struct sync_event *event, uint64_t now_ms)
{
    sync->now_ms = now_ms;
    if (event->type == SYNC_EV_STORED || event->type == SYNC_EV_APPLIED || event->type == SYNC_EV_INSTALLED)
        count_step(&sync->steps.durable, event->step);
    if (event->type == SYNC_EV_APPLIED)
        count_step(&sync->steps.applied, event->step);
    switch (event->type) {
    case SYNC_EV_OVERTAKEN: sync_owner_overtaken(sync, event->fragment); break;
    case SYNC_EV_REDUCED: sync_owner_reduced(sync, event->fragment); break;
    case SYNC_EV_CONTRIBUTION: sync_owner_contribution_in(sync, event); break;
    case SYNC_EV_CONTRIBUTION_REFUSED: sync_owner_contribution_refused(sync, event); break;
    case SYNC_EV_DROPPED: sync_owner_dropped(sync, event->fragment, event->member); break;
    case SYNC_EV_REPLAYED:
    case SYNC_EV_UNPROVEN: sync_doubt_answered(sync, event); break;
    case SYNC_EV_STORED:
        sync_fragment_result_stored(sync, event);
        sync_beyond_stored(sync, event);
        break;
    /* Who is behind asks for the next results as soon as a version is here: at one version a tick it would never be in
     * sync with a run that makes them faster. But not for what its own ledger has: where an epoch lets many versions
     * count that lie there, others would have all of them to send at once. */
    case SYNC_EV_LISTED: sync_peers_catch_up(sync, event->fragment, false); break;
    case SYNC_EV_PEER_UP: sync_peers_up(sync, event->member); break;
    case SYNC_EV_PEER_DOWN: sync_peers_down(sync, event->member); break;
    case SYNC_EV_HEARTBEAT: sync_peers_heartbeat_in(sync, event); break;
    case SYNC_EV_NOT_AVAILABLE: sync_peers_not_available(sync, event); break;
    case SYNC_EV_TURNED_DOWN: sync_fragment_turned_down(sync, event); break;
    case SYNC_EV_TICK: tick(sync); break;
    default: sync_fragment_raise(sync, event->fragment, event->type, event); break;
    }
}

bool sync_action(struct sync *sync, struct sync_action *action)
{
    return sync_core_take(sync, action);
}

/* ---- objects ---- */

enum sync_want sync_wants(const struct sync *sync, const struct wire_key *key, uint32_t from)
{
    if (key->fragment >= sync->conf.fragments_count || sync_is_witness(sync))
        return SYNC_NOT_NEEDED;
    if (key->kind == WIRE_STATE)
        return sync_fragment_wants_state(sync, key, from);
    return key->kind == WIRE_CONTRIBUTION ? sync_owner_wants(sync, key, from)
                                          : sync_fragment_wants_result(sync, key, from);
}

bool sync_base_agrees(const struct sync *sync, uint32_t f, uint64_t version, const struct digest *base_hash)
{
    const struct digest *ours = version > 0 ? sync_core_hash_at(&sync->fragments[f], version - 1) : NULL;
    return ours == NULL || digest_equal(ours, base_hash);
}

bool sync_fetching_state(const struct sync *sync, uint32_t f, struct wire_key *key)
{
    return sync_fragment_fetching_state(sync, f, key);
}

void sync_state_moves(struct sync *sync, uint32_t f, bool comes)
{
    sync_fragment_state_moves(sync, f, comes);
}

/* ---- looking in ---- */

bool sync_is_witness(const struct sync *sync)
{
    return !sync_core_keeps(sync, sync_core_self(sync));
}

bool sync_known(const struct sync *sync, uint32_t f)
{
    return sync->fragments[f].own.hash_known;
}

bool sync_in_doubt(const struct sync *sync, uint32_t f)
{
    return sync_core_proof(&sync->fragments[f]) == SYNC_PROOF_ASKED;
}

bool sync_excused(const struct sync *sync, uint32_t f, uint64_t version, uint32_t member)
{
    return sync_doubt_excused(sync, f, version, member);
}

enum sync_state sync_state(const struct sync *sync, uint32_t f)
{
    return sync->fragments[f].state;
}

struct wire_standing sync_own(const struct sync *sync, uint32_t f)
{
    struct wire_standing own = sync->fragments[f].own;
    own.repairing = sync->fragments[f].state == SYNC_REPAIR;
    return own;
}

uint64_t sync_anchor_version(const struct sync *sync, uint32_t f)
{
    return sync->fragments[f].own.version + (sync->fragments[f].made ? 1 : 0);
}

struct wire_standing sync_heard(const struct sync *sync, uint32_t member, uint32_t f)
{
    const struct wire_standing *rows = sync->peers[member].fragments;
    return rows != NULL ? rows[f] : (struct wire_standing){0};
}

bool sync_up(const struct sync *sync, uint32_t member)
{
    return sync->peers[member].up;
}

uint32_t sync_quorum(const struct sync *sync)
{
    return sync_owner_quorum(sync);
}

bool sync_awaits(const struct sync *sync, uint32_t member)
{
    const struct sync_view *view = &sync->conf.view;
    return bitset_has(&view->taking_part, member) && bitset_has(&view->keepers, member);
}

void sync_want_start(struct sync *sync, uint32_t f, uint64_t version)
{
    if (f >= sync->conf.fragments_count || version == sync->fragments[f].start_wanted)
        return;
    if (sync_beyond_reach(sync, f) > version)
        sync_beyond_reset(sync, f); /* what was kept for another draft: this one may carry some of it by digest */
    sync->fragments[f].start_wanted = version;
    sync_peers_fetch_now(sync, f);
}

void sync_take_over(struct sync *sync, uint32_t f, uint64_t version)
{
    if (f >= sync->conf.fragments_count || version <= sync->fragments[f].taken_over)
        return;
    sync->fragments[f].taken_over = version;
    sync_peers_fetch_now(sync, f);
}

uint32_t sync_parts(const struct sync *sync, uint32_t f, const struct version_part **parts)
{
    *parts = sync->fragments[f].parts.part;
    return sync->fragments[f].parts.count;
}

bool sync_held(const struct sync *sync, uint32_t f, uint32_t p, struct digest *digest, bool *acknowledged)
{
    const struct sync_parts *parts = &sync->fragments[f].parts;
    *digest = parts->digest[p];
    *acknowledged = sync->conf.view.votes && (parts->acknowledged >> p & 1) != 0;
    return (parts->held >> p & 1) != 0;
}

uint64_t sync_reach(const struct sync *sync, uint32_t f)
{
    return sync_beyond_reach(sync, f);
}

uint32_t sync_reach_parts(const struct sync *sync, uint32_t f, const struct version_part **parts)
{
    *parts = sync_beyond_parts(sync, f)->part;
    return sync_beyond_parts(sync, f)->count;
}

bool sync_reach_held(const struct sync *sync, uint32_t f, uint32_t p, struct digest *digest)
{
    const struct sync_parts *parts = sync_beyond_parts(sync, f);
    *digest = parts->digest[p];
    return (parts->held >> p & 1) != 0;
}

bool sync_has(const struct sync *sync, uint32_t f, uint64_t epoch, uint32_t owner, const struct digest *digest)
{
    const struct sync_parts *parts = &sync->fragments[f].parts;
    uint32_t p = sync_commit_find(parts, epoch, owner);
    return p == VERSION_PARTS_MAX || ((parts->held >> p & 1) != 0 && digest_equal(&parts->digest[p], digest));
}

uint32_t sync_uncommitted(const struct sync *sync, uint32_t f)
{
    uint32_t count = 0;
    for (uint32_t p = 0; p < sync->fragments[f].parts.count; p++)
        count += (sync->fragments[f].parts.held >> p & 1) && !sync_commit_counts(sync, f, p);
    return count;
}

uint32_t sync_stands_against(const struct sync *sync, uint32_t f)
{
    const struct sync_fragment *fragment = &sync->fragments[f];
    enum sync_proof proof = sync_core_proof(fragment);
    bool answered = proof == SYNC_PROOF_CONFIRMED || proof == SYNC_PROOF_FAILED;
    if (!answered || !fragment->own.hash_known || sync->now_ms < fragment->proof_ms + SYNC_DISPUTE_MS ||
        sync_core_most_agree(sync, f))
        return SYNC_NOBODY;
    return sync_core_differs(sync, f);
}

struct bitset sync_waiting_for(const struct sync *sync, uint32_t f)
{
    struct bitset waiting = sync_fragment_waiting_for(sync, f);
    struct bitset contributions = sync_owner_waiting_for(sync, f);
    bitset_add_all(&waiting, &contributions);
    return waiting;
}

const struct owner *sync_owner(const struct sync *sync, uint32_t f)
{
    return &sync->fragments[f].owner;
}

uint64_t sync_missed(const struct sync *sync, uint32_t member, bool *too_late)
{
    return sync_owner_missed(sync, member, too_late);
}

enum sync_fault sync_fault(const struct sync *sync, uint32_t member)
{
    enum sync_fault fault = sync->peers[member].up ? sync_patience_fault(sync, member) : SYNC_FAULT_NONE;
    for (uint32_t f = 0; fault == SYNC_FAULT_NONE && sync->peers[member].up && f < sync->conf.fragments_count; f++)
        if (sync_doubt_wrong(sync, f, member))
            fault = SYNC_FAULT_HASH;
    return fault;
}

bool sync_complains(const struct sync *sync, uint32_t member, bool in_doubt)
{
    return !in_doubt && sync_fault(sync, member) == SYNC_FAULT_NO_RESULT;
}

uint64_t sync_version_max(const struct sync *sync, uint32_t f)
{
    return sync_peers_version_max(sync, f);
}

const char *sync_state_name(enum sync_state state)
{
    static const char *const names[SYNC_STATES] = {
        [SYNC_LISTENING] = "listening",     [SYNC_IDLE] = "idle",         [SYNC_ENCODING] = "encoding",
        [SYNC_CONTRIBUTED] = "contributed", [SYNC_APPLYING] = "applying", [SYNC_MIXING] = "mixing",
        [SYNC_REPAIR] = "repair",
    };
    return (unsigned)state < SYNC_STATES ? names[state] : "unknown";
}

/* ---- heartbeats ---- */

/* Rows that are repeated though nothing changed, so that a lost heartbeat does not matter for long. */
enum { REFRESH = 16 };

static bool row_differs(const struct rows_said *a, const struct rows_said *b)
{
    const struct wire_standing *left = &a->row.at, *right = &b->row.at;
    return left->version != right->version || left->contributed != right->contributed ||
           left->abstained != right->abstained || a->epoch != b->epoch || a->held != b->held ||
           left->hash_known != right->hash_known || !digest_equal(&left->hash, &right->hash) ||
           a->row.certified != b->row.certified || left->repairing != right->repairing;
}

/* The results of the next version that we acknowledge. */
static uint64_t held_parts(const struct sync *sync, uint32_t f)
{
    const struct version_part *parts;
    struct digest digest;
    bool acknowledged;
    uint64_t held = 0;
    uint32_t count = sync_parts(sync, f, &parts);
    for (uint32_t p = 0; p < count; p++)
        if (sync_held(sync, f, p, &digest, &acknowledged) && acknowledged)
            held |= (uint64_t)1 << p;
    return held;
}

/* While it is open whether our state is right, nobody is to build on our word. */
static bool sure_of(const struct sync *sync, uint32_t f)
{
    return sync_known(sync, f) && sync_state(sync, f) != SYNC_REPAIR && !sync_in_doubt(sync, f);
}

static struct rows_said own_row(const struct sync *sync, struct certificates *certificates, uint32_t f, uint64_t epoch)
{
    struct rows_said said = {
        .row = {.fragment = f, .at = sync_own(sync, f)}, .epoch = epoch, .held = held_parts(sync, f)};
    const struct wire_standing *at = &said.row.at;
    said.row.certified = certificates != NULL && sure_of(sync, f) &&
                         certificates_own(certificates, f, at->version, &at->hash, said.row.signature);
    return said;
}

/* Whether there is room for one more, with all that it may hold. */
static bool room(const struct wire_heartbeat *beat, uint32_t rows_kept)
{
    return beat->fragments_count + rows_kept < WIRE_FRAGMENTS_MAX &&
           beat->held_count + WIRE_HELD_OF_ONE_MAX <= WIRE_HELD_MAX;
}

static void put(const struct sync *sync, const struct rows_said *said, struct wire_heartbeat *beat)
{
    const struct version_part *parts;
    struct digest digest;
    bool acknowledged;
    struct wire_fragment *row = &beat->fragments[beat->fragments_count++];
    *row = said->row;
    row->held_first = beat->held_count;
    uint32_t count = sync_parts(sync, row->fragment, &parts);
    for (uint32_t p = 0; p < count; p++) {
        if (!(said->held >> p & 1) || !sync_held(sync, row->fragment, p, &digest, &acknowledged))
            continue;
        struct wire_held *held = &beat->held[beat->held_count++];
        held->owner = parts[p].id.owner;
        memcpy(held->tag, digest.byte, sizeof held->tag);
        row->held_count++;
    }
}

/* Those that have not changed, in turn. */
static void repeat(const struct sync *sync, struct certificates *certificates, uint32_t fragments,
                   struct rows_said *said, uint32_t *refresh, struct wire_heartbeat *beat)
{
    uint32_t changed = beat->fragments_count;
    for (uint32_t k = 0; k < REFRESH && k < fragments && room(beat, 0); k++) {
        uint32_t f = (*refresh)++ % fragments;
        bool there = false;
        for (uint32_t i = 0; i < changed && !there; i++)
            there = beat->fragments[i].fragment == f;
        if (there)
            continue;
        said[f] = own_row(sync, certificates, f, beat->epoch);
        put(sync, &said[f], beat);
    }
}

bool rows_fill(const struct sync *sync, struct certificates *certificates, uint32_t fragments, struct rows_said *said,
               uint32_t *refresh, struct wire_heartbeat *beat)
{
    uint32_t f = 0;
    for (; f < fragments && room(beat, refresh != NULL ? REFRESH : 0); f++) {
        struct rows_said row = own_row(sync, certificates, f, beat->epoch);
        if (!row_differs(&row, &said[f]))
            continue;
        put(sync, &row, beat);
        said[f] = row;
    }
    if (refresh != NULL)
        repeat(sync, certificates, fragments, said, refresh, beat);
    return f == fragments;
}
