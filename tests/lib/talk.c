/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/talk.h"

#include <string.h>

#include "common/digest.h"
#include "tests/lib/roster.h"
#include "tests/lib/sample_configs.h"

enum { ACTIONS_MAX = 256 };

struct sync *talk_sync;
struct config_log *talk_config_log;
uint64_t talk_now_ms;
struct wire_fragment talk_said[TALK_MEMBERS_MAX];
uint64_t talk_epoch_of[TALK_MEMBERS_MAX];
bool talk_takes_part[TALK_MEMBERS_MAX];
bool talk_witness;
bool talk_empty;
uint64_t talk_patience_ms;
static struct wire_held holds[TALK_MEMBERS_MAX][VERSION_PARTS_MAX];
static struct bitset deaf_to[TALK_MEMBERS_MAX];
static uint32_t ids[TALK_MEMBERS_MAX], self_slot;
static struct sync_action got[ACTIONS_MAX]; /* what the last event ordered */
static size_t got_count;

static void drain(void)
{
    while (sync_action(talk_sync, &got[got_count]))
        assert_true(++got_count < ACTIONS_MAX);
}

struct digest talk_hash_named(char name, uint64_t version)
{
    return digest_of((char[]){name, (char)version}, 2);
}

void talk_happens(struct sync_event event)
{
    got_count = 0;
    sync_step(talk_sync, &event, talk_now_ms);
    drain();
}

void talk_tick(uint64_t later_ms)
{
    talk_now_ms += later_ms;
    talk_happens((struct sync_event){.type = SYNC_EV_TICK});
}

const struct sync_action *talk_ordered(enum sync_action_type type)
{
    for (size_t i = 0; i < got_count; i++)
        if (got[i].type == type)
            return &got[i];
    return NULL;
}

const struct sync_action *talk_reported(enum sync_report what)
{
    for (size_t i = 0; i < got_count; i++)
        if (got[i].type == SYNC_DO_REPORT && got[i].report == what)
            return &got[i];
    return NULL;
}

void talk_hear(uint32_t member)
{
    static struct wire_heartbeat beat;
    beat.taking_part = talk_takes_part[member];
    beat.epoch = talk_epoch_of[member];
    beat.fragments_count = 1;
    beat.fragments[0] = talk_said[member];
    beat.held_count = talk_said[member].held_count;
    memcpy(beat.held, holds[member], sizeof holds[member]);
    beat.silent_count = 0;
    for (uint32_t k = 0; k < TALK_MEMBERS_MAX; k++)
        if (bitset_has(&deaf_to[member], k))
            beat.silent[beat.silent_count++] = roster_id(k);
    talk_happens((struct sync_event){.type = SYNC_EV_HEARTBEAT, .member = member, .beat = &beat});
}

void talk_does_not_hear(uint32_t member, uint32_t whom)
{
    bitset_add(&deaf_to[member], whom);
    talk_hear(member);
}

void talk_comes_up(uint32_t member)
{
    talk_happens((struct sync_event){.type = SYNC_EV_PEER_UP, .member = member});
}

void talk_goes_away(uint32_t member)
{
    talk_happens((struct sync_event){.type = SYNC_EV_PEER_DOWN, .member = member});
}

/* The digest of the result that `owner` made of its part in an epoch; `name`: of several. */
struct digest talk_result_named(char name, uint32_t owner, uint64_t version, uint64_t epoch)
{
    return digest_of((char[]){'r', name, (char)owner, (char)version, (char)epoch}, 5);
}

/* It says that it has this result of `owner`, for the version after its own. */
void talk_shows_digest(uint32_t member, uint32_t owner, const struct digest *digest)
{
    struct wire_held *held = &holds[member][talk_said[member].held_count++];
    held->owner = roster_id(owner);
    memcpy(held->tag, digest->byte, sizeof held->tag);
}

void talk_shows(uint32_t member, uint32_t owner)
{
    struct digest digest = talk_result_named('a', owner, talk_said[member].at.version + 1, talk_epoch_of[member]);
    talk_shows_digest(member, owner, &digest);
    talk_hear(member);
}

/* It has made versions up to this one since. */
void talk_is_at(uint32_t member, uint64_t version)
{
    talk_said[member] =
        (struct wire_fragment){.at.version = version, .at.hash = talk_hash_named('a', version), .at.hash_known = true};
}

static struct sync_view view_of(uint32_t self)
{
    uint32_t slots = 0;
    self_slot = self;
    for (uint32_t i = 0; i < TALK_MEMBERS_MAX; i++)
        if (config_member(config_log_last(talk_config_log), ids[i]) != NULL)
            slots = i + 1; /* of one that has left there is none */
    return roster_view(talk_config_log, self, ids, slots);
}

/* We are member `self` of `count`, all of whom vote, at `version` with hash 'a'; all are up and say the same of
 * themselves. Members whose bit is in `owners` own a part of the one fragment. */
void talk_among(uint32_t count, uint32_t self, uint64_t owners, uint64_t version, struct owner_rule rule)
{
    memset(deaf_to, 0, sizeof deaf_to);
    static const uint32_t shards_count = 16;
    uint32_t numbers[TALK_MEMBERS_MAX], numbers_count = 0;
    struct digest hash = talk_hash_named('a', version);
    struct config config = roster_config(count);
    for (uint32_t i = 0; i < count; i++)
        if ((owners >> i & 1) != 0)
            numbers[numbers_count++] = i;
    if (talk_witness)
        roster_role(&config, count - 1, CONFIG_WITNESS, true);
    config.map = shardmap_empty();
    roster_map(&config, numbers, numbers_count);
    assert_ok(config_log_new(&talk_config_log));
    roster_add(talk_config_log, &config);
    for (uint32_t i = 0; i < TALK_MEMBERS_MAX; i++)
        ids[i] = roster_id(i);
    struct sync_conf conf = {.config_log = talk_config_log,
                             .fragments_count = 1,
                             .shards_counts = &shards_count,
                             .rule = rule,
                             .patience_ms = talk_patience_ms,
                             .view = view_of(self)};
    talk_now_ms = 1000;
    assert_ok(sync_new(&conf, &talk_sync));
    if (!sync_is_witness(talk_sync) && !talk_empty)
        sync_restore(talk_sync, 0, version, &hash);
    for (uint32_t i = 0; i < count; i++) {
        talk_takes_part[i] = true;
        talk_epoch_of[i] = 0;
        talk_is_at(i, version);
        if (i == self)
            continue;
        talk_comes_up(i);
        talk_hear(i);
    }
}

void talk_contributes(uint32_t member, uint64_t version)
{
    talk_happens((struct sync_event){.type = SYNC_EV_CONTRIBUTION,
                                     .member = member,
                                     .version = version,
                                     .epoch = config_log_last(talk_config_log)->epoch});
}

/* A result of this owner, made in an epoch, is on our disk. */
void talk_stored_of(uint32_t owner, uint64_t version, uint64_t epoch, uint32_t from)
{
    talk_happens((struct sync_event){.type = SYNC_EV_STORED,
                                     .version = version,
                                     .epoch = epoch,
                                     .owner = roster_id(owner),
                                     .hash = talk_result_named('a', owner, version, epoch),
                                     .member = from});
}

void talk_stored(uint32_t owner, uint64_t version, uint32_t from)
{
    talk_stored_of(owner, version, config_log_last(talk_config_log)->epoch, from);
}

void talk_we_contribute(void)
{
    talk_happens((struct sync_event){.type = SYNC_EV_TRAINER_UP, .version = sync_own(talk_sync, 0).version});
    talk_happens((struct sync_event){.type = SYNC_EV_SNAPSHOT});
    talk_happens((struct sync_event){.type = SYNC_EV_ENCODED});
}

int talk_ends(void **state)
{
    (void)state;
    sync_free(talk_sync);
    talk_sync = NULL;
    config_log_free(talk_config_log);
    talk_config_log = NULL;
    talk_witness = talk_empty = false;
    return 0;
}

struct wire_key talk_result_key(uint64_t version, uint32_t owner)
{
    return (struct wire_key){.kind = WIRE_RESULT,
                             .version = version,
                             .epoch = config_log_last(talk_config_log)->epoch,
                             .owner = roster_id(owner),
                             .island = roster_id(owner)};
}

struct wire_key talk_contribution_key(uint64_t version, uint32_t owner, uint32_t island)
{
    return (struct wire_key){.kind = WIRE_CONTRIBUTION,
                             .version = version,
                             .epoch = config_log_last(talk_config_log)->epoch,
                             .owner = roster_id(owner),
                             .island = roster_id(island)};
}

/* Whom we asked for a result of this owner; UINT32_MAX: nobody. */
uint32_t talk_asked_for(uint32_t owner)
{
    for (size_t i = 0; i < got_count; i++)
        if (got[i].type == SYNC_DO_FETCH && got[i].key.kind == WIRE_RESULT && got[i].key.owner == roster_id(owner))
            return got[i].member;
    return UINT32_MAX;
}

struct config talk_draft(void)
{
    return roster_next(talk_config_log);
}

void talk_begin_epoch(struct config *config)
{
    roster_add(talk_config_log, config);
    struct sync_view view = view_of(self_slot);
    got_count = 0;
    assert_ok(sync_begin_epoch(talk_sync, &view, talk_now_ms));
    drain();
}

void talk_follows(uint32_t member)
{
    talk_epoch_of[member] = config_log_last(talk_config_log)->epoch;
    talk_said[member].held_count = 0;
    talk_hear(member);
}

const struct sync_action *talk_sent_to(uint32_t member)
{
    for (size_t i = 0; i < got_count; i++)
        if (got[i].type == SYNC_DO_SEND && got[i].member == member)
            return &got[i];
    return NULL;
}

/* ---- what is held ---- */

void talk_applied(uint64_t version)
{
    talk_happens((struct sync_event){.type = SYNC_EV_APPLIED, .hash = talk_hash_named('a', version)});
    talk_listed();
}

void talk_listed(void)
{
    sync_step(talk_sync, &(struct sync_event){.type = SYNC_EV_LISTED}, talk_now_ms);
    drain();
}

/* The shards of an owner's part in the present configuration. */
uint64_t talk_shards_of(uint32_t owner)
{
    const struct version_part *parts;
    uint32_t count = sync_parts(talk_sync, 0, &parts);
    for (uint32_t p = 0; p < count; p++)
        if (parts[p].id.owner == roster_id(owner))
            return parts[p].shards;
    return 0;
}

/* Whether the result of that owner's part is here, and whether we say so. */
static bool held(uint32_t owner, uint64_t epoch, bool *told)
{
    const struct version_part *parts;
    struct digest digest;
    uint32_t count = sync_parts(talk_sync, 0, &parts);
    *told = false;
    for (uint32_t p = 0; p < count; p++)
        if (parts[p].id.owner == roster_id(owner) && parts[p].id.epoch == epoch)
            return sync_held(talk_sync, 0, p, &digest, told);
    return false;
}

bool talk_held_and_told(uint32_t owner, uint64_t epoch)
{
    bool told;
    return held(owner, epoch, &told) && told;
}

bool talk_held_in_silence(uint32_t owner, uint64_t epoch)
{
    bool told;
    return held(owner, epoch, &told) && !told;
}

void talk_epoch_later(void)
{
    struct config config = talk_draft();
    configs_start(&config, 0, 4);
    talk_begin_epoch(&config);
}

struct config talk_draft_with_one(char name)
{
    struct config config = talk_draft();
    struct digest digest = talk_result_named(name, 0, 5, 0);
    configs_start(&config, 0, 4);
    roster_carry(&config, 0, 0, 0, talk_shards_of(0), &digest);
    return config;
}
