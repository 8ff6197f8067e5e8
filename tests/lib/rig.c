/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/rig.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/membership/config_store.h"
#include "daemon/rules.h"
#include "daemon/state/state_object.h"
#include "tests/lib/roster.h"
#include "tests/lib/shares.h"

enum { DEADLINE_MS = 10000, STEPS_A_ROUND = 10, TOKENS_A_ROUND = 1000, LEDGER_BYTES = 16 << 20 };

/* A fragment of one matrix and one of three; whole codec blocks all of them. */
static const struct ipc_tensor all_tensors[] = {
    {.name = "embed", .layer = -1, .dims = 2, .shape = {18, 128}},
    {.name = "first", .layer = -1, .dims = 2, .shape = {8, 128}},
    {.name = "second", .layer = -1, .dims = 2, .shape = {6, 128}},
    {.name = "third", .layer = -1, .dims = 2, .shape = {2, 128}},
};
enum { TENSORS = sizeof all_tensors / sizeof all_tensors[0] };
static const char *const names[RIG_MEMBERS_MAX] = {"alder", "birch", "cedar"};

/* ---- life ---- */

static void read_spec(struct rig *rig)
{
    char text[2048];
    snprintf(text, sizeof text,
             "[run]\nname = rig\nsteps = 1000\n[sync]\npattern = balanced\nfragments = %d\ninterval = 10\n"
             "zstd_level = %d\n%s",
             RIG_FRAGMENTS, rig->conf.zstd_level, rig->conf.sync);
    assert_ok(runspec_parse(text, "rig", &rig->spec));
}

static void update_view(struct rig *rig)
{
    struct view_changes changes;
    assert_ok(view_update(&rig->view, config_log_last(rig->config_log), config_log_last_digest(rig->config_log),
                          rig_ident(rig->conf.self)->key, &changes));
    assert_int_equal(rig->view.self, rig->conf.self);
}

static void make_view(struct rig *rig)
{
    assert_in_range(rig->conf.members, 1, RIG_MEMBERS_MAX);
    struct config config = shares_config((const uint64_t[RIG_MEMBERS_MAX]){1, 1, 1}, rig->conf.members);
    for (uint32_t i = 0; i < rig->conf.members; i++) {
        rig->ids[i] = rig_id(i);
        snprintf(config.members[i].name, sizeof config.members[i].name, "%s", names[i]);
        memcpy(config.members[i].key, rig_ident(i)->key, IDENT_KEY_BYTES);
    }
    if (rig->conf.map != NULL)
        config.map = *rig->conf.map;
    assert_ok(config_log_new(&rig->config_log));
    assert_ok(view_init(NULL, 0, &rig->view));
    roster_add(rig->config_log, &config);
    update_view(rig);
    rig->view.nonce_id = rig->spec.digest;
}

static struct replica *new_replica(const struct rig *rig)
{
    struct replica *replica;
    struct replica_conf conf = {.plan = rig->plan->plan,
                                .outer = rules_outer(&rig->spec),
                                .choice = rules_codec(&rig->spec),
                                .error_feedback = rig->spec.error_feedback,
                                .feedback_decay = (float)rig->spec.feedback_decay,
                                .feedback_limit = (float)rig->spec.feedback_limit,
                                .outliers = rules_outliers(&rig->spec)};
    assert_ok(replica_new(&conf, &replica));
    assert_ok(shares_cut(&rig->parts, replica, rig->conf.self));
    return replica;
}

static void open_sync(struct rig *rig)
{
    uint32_t shards[RIG_FRAGMENTS];
    for (uint32_t f = 0; f < RIG_FRAGMENTS; f++)
        shards[f] = rig->plan->plan->fragments[f].shards_count;
    struct sync_conf conf = {.config_log = rig->config_log,
                             .fragments_count = RIG_FRAGMENTS,
                             .shards_counts = shards,
                             .rule = {.quorum = (uint32_t)rig->spec.quorum, .grace_ms = rig->spec.grace_ms},
                             .view = roster_view(rig->config_log, rig->conf.self, rig->ids, rig->conf.members)};
    assert_ok(sync_new(&conf, &rig->sync));
}

struct rounds_conf rig_rounds_conf(const struct rig *rig)
{
    return (struct rounds_conf){.spec = &rig->spec,
                                .view = &rig->view,
                                .ident = rig_ident(rig->conf.self),
                                .nonce = rig->spec.digest.byte,
                                .plan = rig->plan,
                                .parts = &rig->parts,
                                .folder = rig->conf.folder,
                                .save_evidence = config_store_save_evidence,
                                .checkpoint_ms = rig->conf.checkpoint_ms,
                                .ledger_keep = rig->conf.kept_bytes,
                                .ledger_versions = rig->conf.versions,
                                .replica = rig->replica,
                                .ledger = rig->ledger,
                                .slots = rig->slots,
                                .jobs = rig->jobs,
                                .events = rig->events,
                                .sync = rig->sync};
}

static void open_rounds(struct rig *rig)
{
    struct slots_conf slots = {
        .replica = rig->replica, .fragments_count = RIG_FRAGMENTS, .members_count = rig->conf.members};
    assert_ok(slots_new(&slots, &rig->slots));
    struct rounds_conf conf = rig_rounds_conf(rig);
    assert_ok(rounds_new(&conf, &rig->rounds));
}

enum err rig_recover(struct rig *rig)
{
    struct event event = {.type = EVENT_TYPES};
    enum err err = recover_begin(rig->rounds->recover);
    while (err != ERR_OK && jobs_pending(rig->jobs) > 0)
        if (!jobs_take_back(rig->jobs))
            sched_yield();
    TRY(err);
    while (event.type != EVENT_RECOVERED)
        if (!jobs_take_back(rig->jobs) || !event_take(rig->events, &event))
            sched_yield();
    return recover_end(rig->rounds->recover, rig->rounds->keep);
}

static void recover(struct rig *rig)
{
    assert_ok(rig_recover(rig));
    for (uint32_t f = 0; f < RIG_FRAGMENTS; f++) {
        if (!recover_known(rig->rounds->recover, f))
            continue;
        const struct store_fragment *state = rounds_state(rig->rounds, f);
        sync_restore(rig->sync, f, state->version, &state->hash);
        recover_tell_held(rig->rounds->recover, f);
    }
}

static void make_plan(struct rig *rig)
{
    struct ipc_tensor tensors[TENSORS];
    memcpy(tensors, all_tensors, sizeof tensors);
    for (size_t i = 0; i < TENSORS && rig->conf.times > 0; i++)
        tensors[i].shape[0] *= rig->conf.times;
    assert_ok(model_plan_new(&rig->spec, tensors, TENSORS, &rig->plan));
}

struct rig *rig_open(const struct rig_conf *conf)
{
    struct rig *rig = calloc(1, sizeof *rig);
    assert_non_null(rig);
    rig->conf = *conf;
    rig->now_ms = 1000;
    read_spec(rig);
    make_view(rig);
    struct ledger_conf ledger = {.folder = conf->folder,
                                 .run_id = rig->spec.digest,
                                 .nonce = rig->spec.digest.byte,
                                 .segment_bytes = conf->segment_bytes > 0 ? conf->segment_bytes : LEDGER_BYTES,
                                 .keep_bytes = conf->segment_bytes > 0 ? conf->kept_bytes : LEDGER_BYTES};
    assert_ok(events_new(&rig->events));
    assert_ok(ledger_open(&ledger, &rig->ledger));
    assert_ok(jobs_new(&(struct jobs_conf){.threads = conf->threads > 0 ? conf->threads : 2}, &rig->jobs));
    make_plan(rig);
    assert_int_equal(rig->plan->plan->fragments_count, RIG_FRAGMENTS);
    assert_ok(events_reserve(rig->events, RIG_FRAGMENTS, conf->members));
    rig->parts = (struct parts){.plan = rig->plan->plan, .config_log = rig->config_log};
    rig->replica = new_replica(rig);
    open_sync(rig);
    open_rounds(rig);
    for (uint32_t f = 0; f < RIG_FRAGMENTS; f++) {
        rig->base[f] = calloc(rig_values(rig, f), sizeof(float));
        rig->theta[f] = calloc(rig_values(rig, f), sizeof(float));
        rig->area[f] = calloc(rig_values(rig, f), sizeof(float));
    }
    recover(rig);
    rig->step_line = UINT64_MAX;
    rounds_tick(rig->rounds, rig->now_ms, 0, rig->step_line);
    rig_drain(rig);
    return rig;
}

struct rig *rig_new(const char *name, const char *sync, uint32_t members, uint32_t self, int threads)
{
    struct rig_conf conf = {
        .folder = testlib_folder(name), .sync = sync, .members = members, .self = self, .threads = threads};
    struct rig *rig = rig_open(&conf);
    rig_begin(rig);
    return rig;
}

void rig_close(struct rig *rig)
{
    rig->hold = ~0u;
    rig->hold_unread = true;
    rig_settle(rig);
    jobs_free(rig->jobs);
    rounds_free(rig->rounds);
    sync_free(rig->sync);
    view_free(&rig->view);
    config_log_free(rig->config_log);
    slots_free(rig->slots);
    replica_free(rig->replica);
    model_plan_free(rig->plan);
    ledger_close(rig->ledger);
    events_free(rig->events);
    runspec_deinit(&rig->spec);
    for (uint32_t f = 0; f < RIG_FRAGMENTS; f++) {
        free(rig->base[f]);
        free(rig->theta[f]);
        free(rig->area[f]);
    }
    free(rig);
}

struct rig *rig_again(struct rig *rig)
{
    struct rig_conf conf = rig->conf;
    rig_close(rig);
    return rig_open(&conf);
}

static void copy_values(float *to, const float *from, size_t count)
{
    if (to != NULL)
        memcpy(to, from, count * sizeof *to);
}

struct replica *rig_twin(const struct rig *rig)
{
    struct replica *twin = new_replica(rig);
    for (uint32_t f = 0; f < RIG_FRAGMENTS; f++) {
        copy_values(replica_anchor(twin, f), replica_anchor(rig->replica, f), rig_values(rig, f));
        copy_values(replica_momentum(twin, f), replica_momentum(rig->replica, f), rig_values(rig, f));
        copy_values(replica_residual(twin, f), replica_residual(rig->replica, f), rig_values(rig, f));
        assert_ok(replica_set_owner_residual(twin, f, replica_owner_shards(rig->replica, f),
                                             replica_owner_residual(rig->replica, f)));
    }
    return twin;
}

/* ---- the engine ---- */

static void carry_out(struct rig *rig, const struct sync_action *action)
{
    uint32_t f = action->fragment;
    assert_true(rig->ordered_count < RIG_KEPT);
    rig->ordered[rig->ordered_count++] = *action;
    if ((rig->hold >> action->type & 1) != 0)
        return;
    switch (action->type) {
    case SYNC_DO_ENCODE: encode_begin(rig->rounds->encode, f, action->version, &rig->snapshot[f]); break;
    case SYNC_DO_REDUCE: reduce_begin(rig->rounds->reduce, f, action->version, &sync_owner(rig->sync, f)->have); break;
    case SYNC_DO_STORE: reduce_store(rig->rounds->reduce, f, action->version); break;
    case SYNC_DO_APPLY: apply_begin(rig->rounds->apply, f, action->version); break;
    case SYNC_DO_PUBLISH: copy_publish(rig->rounds->copy, f, rig->area[f]); break;
    case SYNC_DO_REPLAY: install_replay(rig->rounds->install, f, action->version); break;
    case SYNC_DO_REPAIR: install_repair(rig->rounds->install, f, action->version); break;
    default: break; /* other parts' */
    }
}

void rig_step(struct rig *rig, const struct sync_event *event)
{
    struct sync_action action;
    sync_step(rig->sync, event, rig->now_ms);
    while (sync_action(rig->sync, &action))
        carry_out(rig, &action);
}

static void started(struct rig *rig, const struct event *event)
{
    uint32_t f = event->fragment;
    if (!event->start.initial || sync_known(rig->sync, f))
        return;
    sync_restore(rig->sync, f, 0, &event->start.hash);
}

/* As the trainer's memory remembers it. */
static void counted(struct rig *rig, const struct event *event)
{
    struct replica_snapshot *snapshot = &rig->snapshot[event->fragment];
    for (uint32_t s = 0; s < rig->plan->plan->fragments[event->fragment].shards_count; s++)
        if ((event->shards >> s & 1) != 0)
            snapshot->counted_tokens[s] = snapshot->tokens;
}

/* All others say that they hold what we hold of the version after ours. */
static void confirm(struct rig *rig, uint32_t f)
{
    static struct wire_heartbeat beat;
    struct wire_standing own = sync_own(rig->sync, f);
    const struct version_part *parts;
    uint32_t count = sync_parts(rig->sync, f, &parts), held = 0;
    struct digest digest;
    bool acknowledged;
    memset(&beat, 0, sizeof beat);
    for (uint32_t p = 0; p < count; p++) {
        if (!sync_held(rig->sync, f, p, &digest, &acknowledged))
            continue;
        beat.held[held].owner = parts[p].id.owner;
        memcpy(beat.held[held++].tag, digest.byte, WIRE_TAG_BYTES);
    }
    for (uint32_t i = 0; i < rig->conf.members; i++) {
        struct wire_fragment *said = &rig->said[i][f];
        if (i == rig->conf.self || !sync_up(rig->sync, i) || sync_own(rig->sync, f).version != own.version)
            continue;
        if (said->at.version != own.version)
            *said = (struct wire_fragment){
                .fragment = f, .at.version = own.version, .at.hash = own.hash, .at.hash_known = true};
        beat.taking_part = true;
        beat.epoch = rig->view.epoch;
        beat.fragments_count = 1;
        beat.fragments[0] = *said;
        beat.fragments[0].held_first = 0;
        beat.fragments[0].held_count = beat.held_count = held;
        rig_step(rig, &(struct sync_event){.type = SYNC_EV_HEARTBEAT, .member = i, .beat = &beat});
    }
}

static void handle(struct rig *rig, const struct event *event)
{
    uint32_t f = event->fragment;
    switch (event->type) {
    case EVENT_SYNC:
        rig_step(rig, &event->sync);
        if (event->sync.type == SYNC_EV_STORED && !rig->alone)
            confirm(rig, f);
        break;
    case EVENT_ENCODED:
        rig_step(rig,
                 &(struct sync_event){.type = event->err == ERR_OK ? SYNC_EV_ENCODED : SYNC_EV_REFUSED, .fragment = f});
        break;
    case EVENT_COUNTED: counted(rig, event); break;
    case EVENT_STARTED: started(rig, event); break;
    case EVENT_UNREAD:
        if (!rig->hold_unread)
            rounds_unread(rig->rounds, f);
        break;
    case EVENT_ON_DISK: rounds_on_disk(rig->rounds, f); break;
    default: break; /* for the trainer and the peers, or looked at in events_fatal() */
    }
}

void rig_drain(struct rig *rig)
{
    struct event event;
    while (event_take(rig->events, &event)) {
        assert_true(rig->posted_count < RIG_KEPT);
        rig->posted[rig->posted_count++] = event;
        handle(rig, &event);
    }
}

void rig_wait_ended(struct rig *rig)
{
    struct pollfd ready = {.fd = jobs_fd(rig->jobs), .events = POLLIN};
    int count;
    do
        count = poll(&ready, 1, DEADLINE_MS);
    while (count < 0 && errno == EINTR); /* libFuzzer's watch */
    assert_int_equal(count, 1);
}

void rig_withdraw(struct rig *rig)
{
    rig_wait_ended(rig);
    assert_true(jobs_take_back(rig->jobs));
    rig_drain(rig);
}

void rig_settle(struct rig *rig)
{
    rig_drain(rig);
    while (jobs_pending(rig->jobs) > 0)
        rig_withdraw(rig);
}

void rig_tick(struct rig *rig, uint64_t later_ms)
{
    rig->now_ms += later_ms;
    rig_step(rig, &(struct sync_event){.type = SYNC_EV_TICK});
    rig_drain(rig);
    rounds_tick(rig->rounds, rig->now_ms, 0, rig->step_line);
    rig_drain(rig);
}

void rig_epoch(struct rig *rig, struct config *config)
{
    struct sync_action action;
    roster_add(rig->config_log, config);
    update_view(rig);
    struct sync_view view = roster_view(rig->config_log, rig->conf.self, rig->ids, rig->conf.members);
    assert_ok(sync_begin_epoch(rig->sync, &view, rig->now_ms));
    while (sync_action(rig->sync, &action))
        carry_out(rig, &action);
    for (uint32_t f = 0; f < RIG_FRAGMENTS; f++)
        apply_post_held(rig->rounds->context, f);
    rig_drain(rig);
}

/* ---- the trainer ---- */

void rig_pattern(float *out, size_t count, uint64_t seed, float amount)
{
    for (size_t i = 0; i < count; i++)
        out[i] = amount * (1 + (float)((i * 37 + seed * 11) % 101) / 101.0f);
}

/* Without checkpoints of version 0: tests say when one is written. */
void rig_begin(struct rig *rig)
{
    for (uint32_t f = 0; f < RIG_FRAGMENTS; f++) {
        rig_pattern(rig->base[f], rig_values(rig, f), f, 1);
        memcpy(replica_anchor(rig->replica, f), rig->base[f], rig_values(rig, f) * sizeof(float));
        struct digest hash = rig_hash(rig, f, 0);
        round_context_begin(rig->rounds->context, f, &hash);
        sync_restore(rig->sync, f, 0, &hash);
    }
    rig_settle(rig);
    for (uint32_t f = 0; f < RIG_FRAGMENTS; f++)
        for (uint32_t i = 0; i < rig->conf.members; i++)
            rig->said[i][f] = (struct wire_fragment){
                .fragment = f, .at.hash = rounds_state(rig->rounds, f)->hash, .at.hash_known = true};
    rig_attach(rig);
    for (uint32_t i = 0; i < rig->conf.members; i++)
        if (i != rig->conf.self)
            rig_hear(rig, i);
    rig_forget(rig);
}

void rig_attach(struct rig *rig)
{
    for (uint32_t f = 0; f < RIG_FRAGMENTS; f++) {
        copy_start(rig->rounds->copy, f, rig->base[f], false);
        rig_settle(rig);
        memcpy(rig->theta[f], rig->base[f], rig_values(rig, f) * sizeof(float));
        rig->snapshot[f] = (struct replica_snapshot){.base = rig->base[f], .theta = rig->theta[f]};
        event_post_sync(rig->events, &(struct sync_event){.type = SYNC_EV_TRAINER_UP,
                                                          .fragment = f,
                                                          .version = rounds_state(rig->rounds, f)->version});
        rig_settle(rig);
    }
}

void rig_train(struct rig *rig, uint32_t f, uint64_t seed, float amount)
{
    size_t count = rig_values(rig, f);
    rig_pattern(rig->theta[f], count, seed, amount);
    for (size_t i = 0; i < count; i++)
        rig->theta[f][i] = rig->base[f][i] - rig->theta[f][i];
}

void rig_snapshot(struct rig *rig, uint32_t f, uint64_t step, uint64_t tokens)
{
    rig->snapshot[f].step = step;
    rig->snapshot[f].tokens = tokens;
    event_post_sync(rig->events, &(struct sync_event){.type = SYNC_EV_SNAPSHOT, .fragment = f});
    rig_drain(rig);
}

void rig_contribute(struct rig *rig, uint32_t f, float amount, uint64_t tokens)
{
    uint64_t version = rounds_state(rig->rounds, f)->version + 1;
    rig_train(rig, f, version, amount);
    rig_snapshot(rig, f, version * STEPS_A_ROUND, tokens);
    rig_settle(rig);
    assert_int_equal(sync_state(rig->sync, f), SYNC_CONTRIBUTED);
}

void rig_mixed(struct rig *rig, uint32_t f)
{
    memcpy(rig->base[f], rig->area[f], rig_values(rig, f) * sizeof(float));
    memcpy(rig->theta[f], rig->area[f], rig_values(rig, f) * sizeof(float));
    event_post_sync(rig->events, &(struct sync_event){.type = SYNC_EV_MIXED, .fragment = f});
    rig_drain(rig);
}

/* ---- the other islands ---- */

void rig_hear(struct rig *rig, uint32_t member)
{
    static struct wire_heartbeat beat;
    memset(&beat, 0, sizeof beat);
    beat.taking_part = true;
    beat.epoch = rig->view.epoch;
    beat.fragments_count = RIG_FRAGMENTS;
    memcpy(beat.fragments, rig->said[member], sizeof rig->said[member]);
    if (!sync_up(rig->sync, member))
        rig_step(rig, &(struct sync_event){.type = SYNC_EV_PEER_UP, .member = member});
    rig_step(rig, &(struct sync_event){.type = SYNC_EV_HEARTBEAT, .member = member, .beat = &beat});
    rig_drain(rig);
}

void rig_greet(struct rig *rig)
{
    for (uint32_t i = 0; i < rig->conf.members; i++) {
        for (uint32_t f = 0; f < RIG_FRAGMENTS; f++) {
            struct wire_standing own = sync_own(rig->sync, f);
            rig->said[i][f] = (struct wire_fragment){
                .fragment = f, .at.version = own.version, .at.hash = own.hash, .at.hash_known = own.hash_known};
        }
        if (i != rig->conf.self)
            rig_hear(rig, i);
    }
    for (uint32_t f = 0; f < RIG_FRAGMENTS; f++)
        confirm(rig, f);
    rig_drain(rig);
}

static void seal_pattern(const struct rig *rig, const struct wire_key *key, const struct wire_meta *meta, float amount,
                         struct rig_object *out)
{
    struct version_part part;
    assert_true(parts_find(&rig->parts, key->fragment, key->version, key->epoch, key->owner, &part) <
                VERSION_PARTS_MAX);
    size_t count = replica_values(rig->replica, key->fragment, part.shards);
    float *values = calloc(count, sizeof *values);
    assert_non_null(values);
    rig_pattern(values, count, key->version * 7 + roster_number(key->island), amount);
    rig_seal(rig, key, meta, values, count, out);
    free(values);
}

void rig_contribution(const struct rig *rig, uint32_t f, uint32_t member, uint64_t tokens, float amount,
                      struct rig_object *out)
{
    const struct store_fragment *state = rounds_state(rig->rounds, f);
    struct wire_key key = {.kind = WIRE_CONTRIBUTION,
                           .fragment = f,
                           .version = state->version + 1,
                           .epoch = rig->view.epoch,
                           .owner = rig_id(rig->conf.self),
                           .island = rig_id(member)};
    struct wire_meta meta = {.tokens = tokens, .step = key.version * STEPS_A_ROUND, .base_hash = state->hash};
    seal_pattern(rig, &key, &meta, amount, out);
}

/* Of what a member contributed to a part: ours is the one we encoded last; the others' we never see. */
static struct digest contribution_digest(const struct rig *rig, const struct wire_key *key, uint32_t member)
{
    struct version_part part;
    uint32_t p = parts_find(&rig->parts, key->fragment, key->version, key->epoch, key->owner, &part);
    const struct slot *slot = slots_out(rig->slots, key->fragment, p);
    struct wire_object what;
    if (member == rig->conf.self && slot->version == key->version &&
        wire_object_peek(slot->data, slot->bytes, &what) == ERR_OK)
        return what.digest;
    return digest_of(&member, sizeof member);
}

void rig_result(const struct rig *rig, uint32_t f, uint32_t shard, const struct bitset *members, float amount,
                struct rig_object *out)
{
    const struct store_fragment *state = rounds_state(rig->rounds, f);
    struct wire_key key = {.kind = WIRE_RESULT, .fragment = f, .version = state->version + 1, .epoch = rig->view.epoch};
    key.owner = key.island = rig_id(shard);
    uint8_t contributors[RIG_MEMBERS_MAX * WIRE_CONTRIBUTOR_BYTES];
    struct wire_meta meta = {.step = key.version * STEPS_A_ROUND, .contributors = contributors};
    for (uint32_t i = 0; i < rig->conf.members; i++) {
        struct wire_contributor contributor = {.id = rig_id(i),
                                               .tokens = TOKENS_A_ROUND * (rig->claims[i] > 0 ? rig->claims[i] : 1),
                                               .weight = testlib_float_bits(TOKENS_A_ROUND),
                                               .factor = WIRE_FACTOR_ONE,
                                               .cosine = testlib_float_bits(rig->cosine[i]),
                                               .digest = contribution_digest(rig, &key, i)};
        if (bitset_has(members, i))
            wire_contributor_put(contributors, meta.contributors_count++, &contributor);
    }
    struct outer_round round = rules_round(&rig->spec, RIG_FRAGMENTS, f, key.version, state->step, meta.step);
    memcpy(meta.outer, (float[]){round.scale, round.momentum, round.lr}, sizeof meta.outer);
    seal_pattern(rig, &key, &meta, amount, out);
}

static void lay(struct rig *rig, struct slot *slot, const struct rig_object *object)
{
    const struct wire_key *key = &object->key;
    struct version_part part;
    assert_true(parts_find(&rig->parts, key->fragment, key->version, key->epoch, key->owner, &part) <
                VERSION_PARTS_MAX);
    assert_ok(slots_room(rig->slots, slot, key->fragment, part.shards));
    assert_true(object->bytes <= slot->bytes_max);
    memcpy(slot->data, object->byte, object->bytes);
    slot->version = 0;
}

void rig_bring(struct rig *rig, uint32_t peer, const struct rig_object *object)
{
    const struct wire_key *key = &object->key;
    uint8_t *state;
    if (key->kind == WIRE_CONTRIBUTION) {
        lay(rig, slots_in(rig->slots, key->fragment, peer), object);
    } else if (key->kind == WIRE_RESULT) {
        struct version_part part;
        uint32_t p = parts_find(&rig->parts, key->fragment, key->version, key->epoch, key->owner, &part);
        assert_true(p < VERSION_PARTS_MAX);
        lay(rig, slots_result(rig->slots, key->fragment, p), object);
    } else {
        assert_ok(slots_take_state(rig->slots, key->fragment, object->bytes, &state));
        memcpy(state, object->byte, object->bytes);
    }
    rounds_object_in(rig->rounds, peer, key, object->bytes, rig->excused);
    rig_drain(rig);
}

void rig_bring_contribution(struct rig *rig, uint32_t f, uint32_t member, uint64_t tokens, float amount)
{
    static struct rig_object object;
    rig_contribution(rig, f, member, tokens, amount, &object);
    rig_bring(rig, member, &object);
    rig_settle(rig);
}

void rig_bring_result(struct rig *rig, uint32_t f, uint32_t shard, bool naming_us)
{
    static struct rig_object object;
    struct bitset members = bitset_first(rig->conf.members);
    if (!naming_us)
        bitset_remove(&members, rig->conf.self);
    rig_result(rig, f, shard, &members, 0.015f, &object);
    rig_bring(rig, shard, &object);
    rig_settle(rig);
}

void rig_make_state(const struct rig *rig, uint32_t f, float more, struct replica **twin, struct rig_object *out)
{
    struct store_fragment state = {.version = rounds_state(rig->rounds, f)->version, .step = RIG_STATE_STEP};
    const struct plan *plan = rig->plan->plan;
    *twin = rig_twin(rig);
    for (size_t i = 0; i < rig_values(rig, f); i++) {
        replica_anchor(*twin, f)[i] += more;
        replica_momentum(*twin, f)[i] -= more;
    }
    assert_ok(replica_hash(*twin, f, state.version, state.step, &state.hash));
    out->key = (struct wire_key){.kind = WIRE_STATE, .fragment = f, .version = state.version};
    out->bytes = (size_t)state_object_bytes(*twin, f);
    assert_true(out->bytes <= sizeof out->byte);
    state_object_make(*twin, plan, f, &state, out->byte);
    struct bitset others = bitset_first(rig->conf.members);
    bitset_remove(&others, rig->conf.self);
    rig_certify(rig, &state.hash, &others, out);
}

void rig_diverge(struct rig *rig, uint32_t f, struct replica *theirs)
{
    uint64_t version = rounds_state(rig->rounds, f)->version;
    unsigned hold = rig->hold;
    rig->hold |= 1u << SYNC_DO_REPLAY;
    for (int k = 0; k < 2; k++) {
        for (uint32_t i = 0; i < rig->conf.members; i++) {
            if (i == rig->conf.self)
                continue;
            rig->said[i][f].at.version = version;
            assert_ok(replica_hash(theirs, f, version, RIG_STATE_STEP, &rig->said[i][f].at.hash));
            rig_hear(rig, i);
        }
        rig_step(rig, &(struct sync_event){.type = SYNC_EV_UNPROVEN, .fragment = f, .version = version});
    }
    rig->hold = hold;
    assert_int_equal(sync_state(rig->sync, f), SYNC_REPAIR);
    assert_int_equal(rig_ordered(rig, SYNC_DO_FETCH, f)->key.kind, WIRE_STATE);
    rig_forget(rig);
}

void rig_round(struct rig *rig, uint32_t f, const struct bitset *naming_us)
{
    uint64_t version = rounds_state(rig->rounds, f)->version + 1;
    rig_contribute(rig, f, 0.01f, version * TOKENS_A_ROUND);
    for (uint32_t i = 0; i < rig->conf.members; i++)
        if (i != rig->conf.self)
            rig_bring_contribution(rig, f, i, TOKENS_A_ROUND, 0.02f);
    for (uint32_t s = 0; s < rig->conf.members; s++)
        if (s != rig->conf.self)
            rig_bring_result(rig, f, s, bitset_has(naming_us, s));
    assert_int_equal(rounds_state(rig->rounds, f)->version, version);
    rig_mixed(rig, f);
}
