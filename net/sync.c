#include "net/sync.h"

#include <stddef.h>
#include <string.h>

#include "common/mem.h"
#include "net/sync_parts.h"

/* ---- actions ---- */

/* The ring is sized for the most one event can cause (see sync_new); a heartbeat is asked for at most once. */
void sync_put(struct sync *sync, struct sync_action action)
{
    if (sync->actions_count == sync->actions_room)
        return;
    size_t at = (sync->actions_head + sync->actions_count++) % sync->actions_room;
    sync->actions[at] = action;
}

bool sync_action(struct sync *sync, struct sync_action *action)
{
    if (sync->actions_count == 0)
        return false;
    *action = sync->actions[sync->actions_head];
    sync->actions_count--;
    /* From the start again when empty: room for the worst case need not be touched. */
    sync->actions_head = sync->actions_count > 0 ? (sync->actions_head + 1) % sync->actions_room : 0;
    return true;
}

void sync_put_version(struct sync *sync, enum sync_action_type type, uint32_t f, uint64_t version)
{
    sync_put(sync, (struct sync_action){.type = type, .fragment = f, .version = version});
}

void sync_report(struct sync *sync, enum sync_report what, uint32_t f, uint32_t member)
{
    sync_put(sync, (struct sync_action){.type = SYNC_DO_REPORT,
                                        .report = what,
                                        .fragment = f,
                                        .version = sync->fragments[f].own.version,
                                        .member = member});
}

void sync_announce(struct sync *sync)
{
    sync_put(sync, (struct sync_action){.type = SYNC_DO_ANNOUNCE});
}

/* ---- the owner's side ---- */

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

static void publish(struct sync *sync, uint32_t f, uint64_t version)
{
    struct wire_key key = {.kind = WIRE_RESULT, .fragment = f, .version = version, .shard = sync->conf.self};
    key.island = sync->conf.self;
    for (uint32_t i = 0; i < sync->conf.members_count; i++)
        if (i != sync->conf.self && sync->peers[i].up)
            sync_put(sync, (struct sync_action){.type = SYNC_DO_SEND, .fragment = f, .key = key, .member = i});
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

void sync_step_owner(struct sync *sync, uint32_t f, struct owner_input input)
{
    struct owner *owner = &sync->fragments[f].owner;
    bool idle = owner->state != OWNER_COLLECTING || bitset_empty(&owner->have);
    if (!sync_owns(sync, f) || (input.event == OWNER_CHECK && idle))
        return; /* and nobody needs to know who is missing */
    uint64_t round = owner->round;
    input.now_ms = sync->now_ms;
    if (input.event == OWNER_CHECK) {
        input.missing = someone_missing(sync, f);
        input.grace_ms = sync->conf.rule.quorum > 0 ? grace_for(sync, f) : 0;
    }
    if (input.event == OWNER_CONTRIBUTED && owner->state == OWNER_COLLECTING)
        grace_arrived(&sync->peers[input.member].grace, owner->quorum_ms > 0 ? sync->now_ms - owner->quorum_ms : 0);
    switch (owner_step(owner, &sync->conf.rule, &input)) {
    case OWNER_REDUCE:
        if (owner->quorum_ms > 0)
            note_missing(sync, f);
        sync_put_version(sync, SYNC_DO_REDUCE, f, round);
        break;
    case OWNER_STORE: sync_put_version(sync, SYNC_DO_STORE, f, round); break;
    case OWNER_PUBLISH: publish(sync, f, round); break;
    case OWNER_NOTHING: break;
    }
}

void sync_check_owner(struct sync *sync, uint32_t f)
{
    sync_step_owner(sync, f, (struct owner_input){.event = OWNER_CHECK});
}

void sync_check_owners(struct sync *sync)
{
    for (uint32_t f = 0; f < sync->conf.fragments_count; f++)
        sync_check_owner(sync, f);
}

/* ---- results and contributions ---- */

static void result_stored(struct sync *sync, const struct sync_event *event)
{
    struct sync_fragment *fragment = &sync->fragments[event->fragment];
    uint32_t f = event->fragment;
    if (event->shard == sync->conf.self) {
        struct owner *owner = &fragment->owner;
        if (owner->state == OWNER_STORING && owner->round == event->version)
            sync_step_owner(sync, f, (struct owner_input){.event = OWNER_STORED});
        else
            sync_step_owner(sync, f, (struct owner_input){.event = OWNER_ADVANCED, .version = event->version});
    }
    if (event->version != fragment->own.version + 1 || bitset_has(&fragment->own.results, event->shard))
        return;
    bitset_add(&fragment->own.results, event->shard);
    sync_announce(sync);
    if (!bitset_within(&sync->shards[f], &fragment->own.results))
        return;
    fragment->complete = true;
    sync_raise(sync, f, SYNC_EV_COMPLETE, event);
}

static void contribution_in(struct sync *sync, const struct sync_event *event)
{
    if (event->version != sync->fragments[event->fragment].owner.round)
        return;
    sync_step_owner(sync, event->fragment, (struct owner_input){.event = OWNER_CONTRIBUTED, .member = event->member});
    sync_check_owner(sync, event->fragment);
}

static void contribution_refused(struct sync *sync, const struct sync_event *event)
{
    if (event->version != sync->fragments[event->fragment].owner.round)
        return;
    sync_step_owner(sync, event->fragment, (struct owner_input){.event = OWNER_REFUSED, .member = event->member});
    sync_check_owner(sync, event->fragment);
}

static void tick(struct sync *sync)
{
    for (uint32_t f = 0; f < sync->conf.fragments_count; f++)
        sync_catch_up(sync, f);
    sync_check_owners(sync);
}

/* ---- the interface ---- */

void sync_step(struct sync *sync, const struct sync_event *event, uint64_t now_ms)
{
    sync->now_ms = now_ms;
    switch (event->type) {
    case SYNC_EV_REDUCED: sync_step_owner(sync, event->fragment, (struct owner_input){.event = OWNER_REDUCED}); break;
    case SYNC_EV_CONTRIBUTION_REFUSED: contribution_refused(sync, event); break;
    case SYNC_EV_DROPPED:
        sync_step_owner(sync, event->fragment, (struct owner_input){.event = OWNER_DROPPED, .member = event->member});
        sync_check_owner(sync, event->fragment);
        break;
    case SYNC_EV_STORED: result_stored(sync, event); break;
    case SYNC_EV_CONTRIBUTION: contribution_in(sync, event); break;
    case SYNC_EV_PEER_UP: sync_peer_up(sync, event->member); break;
    case SYNC_EV_PEER_DOWN: sync_peer_down(sync, event->member); break;
    case SYNC_EV_HEARTBEAT: sync_heartbeat_in(sync, event); break;
    case SYNC_EV_NOT_AVAILABLE: sync_not_available(sync, event); break;
    case SYNC_EV_TICK: tick(sync); break;
    default: sync_raise(sync, event->fragment, event->type, event); break;
    }
}

enum err sync_new(const struct sync_conf *conf, struct sync **out)
{
    enum err err;
    struct sync *sync = NULL;
    *out = NULL;
    if (conf->members_count == 0 || conf->members_count > SYNC_MEMBERS_MAX || conf->self >= conf->members_count)
        return err_set(ERR_ARG, "%u members; 1 to %d are possible", conf->members_count, SYNC_MEMBERS_MAX);
    TRY_OUT(mem_new(1, sizeof *sync, "the protocol", &sync));
    sync->conf = *conf;
    TRY_OUT(mem_new(conf->fragments_count, sizeof *sync->fragments, "the protocol", &sync->fragments));
    TRY_OUT(mem_new(conf->fragments_count, sizeof *sync->shards, "the protocol", &sync->shards));
    memcpy(sync->shards, conf->shards, conf->fragments_count * sizeof *sync->shards);
    TRY_OUT(mem_new(conf->members_count, sizeof *sync->peers, "the protocol", &sync->peers));
    for (uint32_t i = 0; i < conf->members_count; i++)
        TRY_OUT(mem_new(conf->fragments_count, sizeof *sync->peers[i].fragments, "the protocol",
                        &sync->peers[i].fragments));
    /* A tick or a heartbeat touches every fragment, and each may send to every member and report. */
    sync->actions_room = (size_t)conf->fragments_count * (2 * (size_t)conf->members_count + 8) + 64;
    TRY_OUT(mem_new(sync->actions_room, sizeof *sync->actions, "the protocol", &sync->actions));
    for (uint32_t f = 0; f < conf->fragments_count; f++)
        sync->fragments[f].owner = owner_init(0);
out:
    if (err != ERR_OK)
        sync_free(sync);
    else
        *out = sync;
    return err;
}

void sync_free(struct sync *sync)
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

void sync_restore(struct sync *sync, uint32_t f, uint64_t version, const struct digest *hash,
                  const struct bitset *results)
{
    struct sync_fragment *fragment = &sync->fragments[f];
    fragment->own.version = version;
    sync_remember_hash(fragment, version, hash);
    fragment->own.results = *results;
    bitset_keep_all(&fragment->own.results, &sync->shards[f]);
    bool ours_stands = bitset_has(results, sync->conf.self);
    struct owner owner = owner_init(version + (ours_stands ? 1 : 0));
    /* Contributions to this round may be here already, and their senders were told so. */
    if (fragment->owner.round < owner.round)
        fragment->owner = owner;
}

void sync_expect(struct sync *sync, bool expecting, bool brings_initial)
{
    sync->expecting = expecting;
    sync->brings_initial = brings_initial;
}

enum sync_want sync_wants(const struct sync *sync, const struct wire_key *key, uint32_t from)
{
    if (key->fragment >= sync->conf.fragments_count)
        return SYNC_NOT_NEEDED;
    const struct sync_fragment *fragment = &sync->fragments[key->fragment];
    if (key->kind == WIRE_STATE) {
        bool asked = fragment->state == SYNC_REPAIR && wire_key_equal(key, &fragment->state_key);
        return asked && fragment->state_from == from ? SYNC_WANT : SYNC_NOT_NEEDED;
    }
    if (key->shard >= sync->conf.members_count || !bitset_has(&sync->shards[key->fragment], key->shard))
        return SYNC_NOT_NEEDED;
    if (key->kind == WIRE_CONTRIBUTION) {
        if (key->shard != sync->conf.self || key->island != from || key->version < fragment->owner.round)
            return SYNC_NOT_NEEDED;
        if (key->version > fragment->owner.round)
            return SYNC_NOT_YET;
        if (bitset_has(&fragment->owner.have, from))
            return SYNC_HAVE;
        /* While a reduction runs it is not known whether this round is over: it may fail and collect on. */
        return fragment->owner.state == OWNER_COLLECTING ? SYNC_WANT : SYNC_NOT_YET;
    }
    if (key->version <= fragment->own.version)
        return SYNC_HAVE;
    if (key->version > fragment->own.version + 1)
        return SYNC_NOT_YET;
    return bitset_has(&fragment->own.results, key->shard) ? SYNC_HAVE : SYNC_WANT;
}

bool sync_known(const struct sync *sync, uint32_t f)
{
    return sync->fragments[f].own.hash_known;
}

bool sync_base_agrees(const struct sync *sync, uint32_t f, uint64_t version, const struct digest *base_hash)
{
    const struct digest *ours = version > 0 ? sync_hash_at(&sync->fragments[f], version - 1) : NULL;
    return ours == NULL || digest_equal(ours, base_hash);
}

enum sync_state sync_state(const struct sync *sync, uint32_t f)
{
    return sync->fragments[f].state;
}

struct sync_peer_fragment sync_own(const struct sync *sync, uint32_t f)
{
    return sync->fragments[f].own;
}

struct sync_peer_fragment sync_heard(const struct sync *sync, uint32_t member, uint32_t f)
{
    return sync->peers[member].fragments[f];
}

struct bitset sync_waiting_for(const struct sync *sync, uint32_t f)
{
    const struct sync_fragment *fragment = &sync->fragments[f];
    struct bitset waiting = {{0}};
    if (fragment->state == SYNC_CONTRIBUTED) {
        waiting = sync->shards[f];
        bitset_remove_all(&waiting, &fragment->own.results);
        bitset_remove(&waiting, sync->conf.self);
    }
    bool collects = fragment->owner.state == OWNER_COLLECTING && !bitset_empty(&fragment->owner.have);
    for (uint32_t i = 0; collects && i < sync->conf.members_count; i++)
        if (missing(sync, f, i))
            bitset_add(&waiting, i);
    return waiting;
}

uint64_t sync_missed(const struct sync *sync, uint32_t member, bool *too_late)
{
    const struct grace *grace = &sync->peers[member].grace;
    *too_late = grace->missed > 0 && grace->late_ms > sync->conf.rule.grace_ms;
    return grace->missed;
}

const struct owner *sync_owner(const struct sync *sync, uint32_t f)
{
    return &sync->fragments[f].owner;
}

uint64_t sync_version_max(const struct sync *sync, uint32_t f)
{
    uint64_t most = sync->fragments[f].own.version;
    for (uint32_t i = 0; i < sync->conf.members_count; i++)
        if (sync->peers[i].fragments[f].version > most)
            most = sync->peers[i].fragments[f].version;
    return most;
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
