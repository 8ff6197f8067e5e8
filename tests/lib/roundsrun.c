#include "tests/lib/roundsrun.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/rules.h"
#include "daemon/state/state_object.h"

enum { DEADLINE_MS = 10000, STEPS_A_ROUND = 10, TOKENS_A_ROUND = 1000, LEDGER_BYTES = 16 << 20 };

/* A fragment of one matrix and one of three; whole codec blocks all of them. */
static const struct ipc_tensor tensors[] = {
    {.name = "embed", .layer = -1, .dims = 2, .shape = {18, 128}},
    {.name = "first", .layer = -1, .dims = 2, .shape = {8, 128}},
    {.name = "second", .layer = -1, .dims = 2, .shape = {6, 128}},
    {.name = "third", .layer = -1, .dims = 2, .shape = {2, 128}},
};
static const char *const names[ROUNDSRUN_MEMBERS_MAX] = {"alder", "birch", "cedar"};

/* ---- life ---- */

static void read_spec(struct roundsrun *isle)
{
    char text[2048];
    snprintf(text, sizeof text, "[run]\nname = isle\nsteps = 1000\n[sync]\npattern = balanced\nfragments = %d\n%s%s",
             ROUNDSRUN_FRAGMENTS, "zstd_level = 0\ninterval = 10\n", isle->conf.sync);
    assert_ok(runspec_parse(text, "isle", &isle->spec));
}

static void make_view(struct roundsrun *isle)
{
    assert_in_range(isle->conf.members, 1, ROUNDSRUN_MEMBERS_MAX);
    for (uint32_t i = 0; i < isle->conf.members; i++)
        isle->members[i] = (struct view_member){.name = names[i], .uplink = 1};
    isle->view = (struct view){.members = isle->members, .count = isle->conf.members, .self = isle->conf.self};
}

static struct replica *new_replica(const struct roundsrun *isle)
{
    static const uint64_t weights[ROUNDSRUN_MEMBERS_MAX] = {1, 1, 1};
    struct replica *replica;
    struct replica_conf conf = {.plan = isle->plan->plan,
                                .outer = rules_outer(&isle->spec),
                                .choice = rules_codec(&isle->spec),
                                .error_feedback = isle->spec.error_feedback,
                                .feedback_decay = (float)isle->spec.feedback_decay,
                                .feedback_limit = (float)isle->spec.feedback_limit,
                                .outliers = rules_outliers(&isle->spec),
                                .weights = weights,
                                .members_count = isle->conf.members,
                                .self = isle->conf.self};
    assert_ok(replica_new(&conf, &replica));
    return replica;
}

static void open_sync(struct roundsrun *isle)
{
    struct bitset shards[ROUNDSRUN_FRAGMENTS];
    for (uint32_t f = 0; f < ROUNDSRUN_FRAGMENTS; f++)
        shards[f] = replica_shards(isle->replica, f);
    struct sync_conf conf = {.self = isle->conf.self,
                             .members_count = isle->conf.members,
                             .fragments_count = ROUNDSRUN_FRAGMENTS,
                             .shards = shards,
                             .rule = {.quorum = (uint32_t)isle->spec.quorum, .grace_ms = isle->spec.grace_ms}};
    assert_ok(sync_new(&conf, &isle->sync));
}

struct rounds_conf roundsrun_rounds_conf(const struct roundsrun *isle)
{
    return (struct rounds_conf){.spec = &isle->spec,
                                .view = &isle->view,
                                .plan = isle->plan,
                                .folder = isle->conf.folder,
                                .replica = isle->replica,
                                .ledger = isle->ledger,
                                .slots = isle->slots,
                                .jobs = isle->jobs,
                                .events = isle->events,
                                .sync = isle->sync};
}

static void open_rounds(struct roundsrun *isle)
{
    struct slots_conf slots = {.replica = isle->replica,
                               .fragments_count = ROUNDSRUN_FRAGMENTS,
                               .members_count = isle->conf.members};
    assert_ok(slots_new(&slots, &isle->slots));
    struct rounds_conf conf = roundsrun_rounds_conf(isle);
    assert_ok(rounds_new(&conf, &isle->rounds));
}

static void recover(struct roundsrun *isle, uint32_t f)
{
    bool known;
    assert_ok(rounds_recover(isle->rounds, f, &known, &isle->results[f]));
    if (!known)
        return;
    const struct store_fragment *state = rounds_state(isle->rounds, f);
    sync_restore(isle->sync, f, state->version, &state->hash, &isle->results[f]);
}

struct roundsrun *roundsrun_open(const struct roundsrun_conf *conf)
{
    struct roundsrun *isle = calloc(1, sizeof *isle);
    assert_non_null(isle);
    isle->conf = *conf;
    isle->now_ms = 1000;
    read_spec(isle);
    make_view(isle);
    struct ledger_conf ledger = {.folder = conf->folder,
                                 .run_id = isle->spec.digest,
                                 .segment_bytes = conf->segment_bytes > 0 ? conf->segment_bytes : LEDGER_BYTES,
                                 .keep_bytes = conf->segment_bytes > 0 ? conf->kept_bytes : LEDGER_BYTES};
    assert_ok(events_new(&isle->events));
    assert_ok(ledger_open(&ledger, &isle->ledger));
    assert_ok(jobs_new(conf->threads > 0 ? conf->threads : 2, 0, &isle->jobs));
    assert_ok(model_plan_new(&isle->spec, tensors, sizeof tensors / sizeof tensors[0], &isle->plan));
    assert_int_equal(isle->plan->plan->fragments_count, ROUNDSRUN_FRAGMENTS);
    assert_ok(events_reserve(isle->events, ROUNDSRUN_FRAGMENTS, conf->members));
    isle->replica = new_replica(isle);
    open_sync(isle);
    open_rounds(isle);
    for (uint32_t f = 0; f < ROUNDSRUN_FRAGMENTS; f++) {
        isle->base[f] = calloc(roundsrun_values(isle, f), sizeof(float));
        isle->theta[f] = calloc(roundsrun_values(isle, f), sizeof(float));
        isle->area[f] = calloc(roundsrun_values(isle, f), sizeof(float));
        recover(isle, f);
    }
    rounds_tick(isle->rounds, isle->now_ms, 0);
    return isle;
}

struct roundsrun *roundsrun_new(const char *name, const char *sync, uint32_t members, uint32_t self, int threads)
{
    struct roundsrun_conf conf = {
        .folder = testlib_folder(name), .sync = sync, .members = members, .self = self, .threads = threads};
    struct roundsrun *isle = roundsrun_open(&conf);
    roundsrun_begin(isle);
    return isle;
}

void roundsrun_close(struct roundsrun *isle)
{
    isle->hold = ~0u;
    isle->hold_unread = true;
    roundsrun_settle(isle);
    jobs_free(isle->jobs);
    rounds_free(isle->rounds);
    sync_free(isle->sync);
    slots_free(isle->slots);
    replica_free(isle->replica);
    model_plan_free(isle->plan);
    ledger_close(isle->ledger);
    events_free(isle->events);
    runspec_deinit(&isle->spec);
    for (uint32_t f = 0; f < ROUNDSRUN_FRAGMENTS; f++) {
        free(isle->base[f]);
        free(isle->theta[f]);
        free(isle->area[f]);
    }
    free(isle);
}

struct roundsrun *roundsrun_again(struct roundsrun *isle)
{
    struct roundsrun_conf conf = isle->conf;
    roundsrun_close(isle);
    return roundsrun_open(&conf);
}

static void copy_values(float *to, const float *from, size_t count)
{
    if (to != NULL)
        memcpy(to, from, count * sizeof *to);
}

struct replica *roundsrun_twin(const struct roundsrun *isle)
{
    struct replica *twin = new_replica(isle);
    for (uint32_t f = 0; f < ROUNDSRUN_FRAGMENTS; f++) {
        struct plan_shard own = replica_own_shard(twin, f);
        copy_values(replica_anchor(twin, f), replica_anchor(isle->replica, f), roundsrun_values(isle, f));
        copy_values(replica_momentum(twin, f), replica_momentum(isle->replica, f), roundsrun_values(isle, f));
        copy_values(replica_residual(twin, f), replica_residual(isle->replica, f), roundsrun_values(isle, f));
        copy_values(replica_owner_residual(twin, f), replica_owner_residual(isle->replica, f),
                    (size_t)(own.end - own.begin));
    }
    return twin;
}

/* ---- the engine ---- */

static void carry_out(struct roundsrun *isle, const struct sync_action *action)
{
    uint32_t f = action->fragment;
    assert_true(isle->ordered_count < ROUNDSRUN_KEPT);
    isle->ordered[isle->ordered_count++] = *action;
    if ((isle->hold >> action->type & 1) != 0)
        return;
    switch (action->type) {
    case SYNC_DO_ENCODE: rounds_encode(isle->rounds, f, action->version, &isle->snapshot[f]); break;
    case SYNC_DO_REDUCE: rounds_reduce(isle->rounds, f, action->version, &sync_owner(isle->sync, f)->have); break;
    case SYNC_DO_STORE: rounds_store(isle->rounds, f, action->version); break;
    case SYNC_DO_APPLY: rounds_apply(isle->rounds, f, action->version); break;
    case SYNC_DO_GIVE: rounds_give(isle->rounds, f, isle->area[f]); break;
    default: break; /* other parts' */
    }
}

void roundsrun_step(struct roundsrun *isle, const struct sync_event *event)
{
    struct sync_action action;
    sync_step(isle->sync, event, isle->now_ms);
    while (sync_action(isle->sync, &action))
        carry_out(isle, &action);
}

static void started(struct roundsrun *isle, const struct event *event)
{
    uint32_t f = event->fragment;
    if (!event->start.initial || sync_known(isle->sync, f))
        return;
    rounds_begin(isle->rounds, f, &event->start.hash);
    sync_restore(isle->sync, f, 0, &event->start.hash, &(struct bitset){{0}});
}

/* As the trainer's memory remembers it. */
static void counted(struct roundsrun *isle, const struct event *event)
{
    struct replica_snapshot *snapshot = &isle->snapshot[event->fragment];
    for (uint32_t s = 0; s < isle->conf.members; s++)
        if (bitset_has(&event->shards, s))
            snapshot->counted_tokens[s] = snapshot->tokens;
}

static void handle(struct roundsrun *isle, const struct event *event)
{
    uint32_t f = event->fragment;
    switch (event->type) {
    case EVENT_SYNC: roundsrun_step(isle, &event->sync); break;
    case EVENT_ENCODED:
        roundsrun_step(isle, &(struct sync_event){.type = event->err == ERR_OK ? SYNC_EV_ENCODED : SYNC_EV_REFUSED,
                                                  .fragment = f});
        break;
    case EVENT_COUNTED: counted(isle, event); break;
    case EVENT_STARTED: started(isle, event); break;
    case EVENT_UNREAD:
        if (!isle->hold_unread)
            rounds_unread(isle->rounds, f);
        break;
    default: break; /* for the trainer and the peers, or looked at in events_fatal() */
    }
}

void roundsrun_drain(struct roundsrun *isle)
{
    struct event event;
    while (event_take(isle->events, &event)) {
        assert_true(isle->posted_count < ROUNDSRUN_KEPT);
        isle->posted[isle->posted_count++] = event;
        handle(isle, &event);
    }
}

void roundsrun_wait_ended(struct roundsrun *isle)
{
    struct pollfd ready = {.fd = jobs_fd(isle->jobs), .events = POLLIN};
    assert_int_equal(poll(&ready, 1, DEADLINE_MS), 1);
}

void roundsrun_take_back(struct roundsrun *isle)
{
    roundsrun_wait_ended(isle);
    assert_true(jobs_take_back(isle->jobs));
    roundsrun_drain(isle);
}

void roundsrun_settle(struct roundsrun *isle)
{
    roundsrun_drain(isle);
    while (jobs_pending(isle->jobs) > 0)
        roundsrun_take_back(isle);
}

void roundsrun_tick(struct roundsrun *isle, uint64_t later_ms)
{
    isle->now_ms += later_ms;
    roundsrun_step(isle, &(struct sync_event){.type = SYNC_EV_TICK});
    roundsrun_drain(isle);
    rounds_tick(isle->rounds, isle->now_ms, 0);
    roundsrun_drain(isle);
}

/* ---- what was posted and ordered ---- */

void roundsrun_forget(struct roundsrun *isle)
{
    isle->posted_count = isle->ordered_count = 0;
}

const struct event *roundsrun_posted(const struct roundsrun *isle, enum event_type type, uint32_t f)
{
    for (size_t i = isle->posted_count; i-- > 0;)
        if (isle->posted[i].type == type && isle->posted[i].fragment == f)
            return &isle->posted[i];
    return NULL;
}

const struct event *roundsrun_told(const struct roundsrun *isle, enum sync_event_type type, uint32_t f)
{
    for (size_t i = isle->posted_count; i-- > 0;)
        if (isle->posted[i].type == EVENT_SYNC && isle->posted[i].sync.type == type && isle->posted[i].fragment == f)
            return &isle->posted[i];
    return NULL;
}

size_t roundsrun_posted_count(const struct roundsrun *isle, enum event_type type)
{
    size_t count = 0;
    for (size_t i = 0; i < isle->posted_count; i++)
        count += isle->posted[i].type == type;
    return count;
}

size_t roundsrun_told_count(const struct roundsrun *isle, enum sync_event_type type)
{
    size_t count = 0;
    for (size_t i = 0; i < isle->posted_count; i++)
        count += isle->posted[i].type == EVENT_SYNC && isle->posted[i].sync.type == type;
    return count;
}

const struct sync_action *roundsrun_ordered(const struct roundsrun *isle, enum sync_action_type type, uint32_t f)
{
    for (size_t i = isle->ordered_count; i-- > 0;)
        if (isle->ordered[i].type == type && isle->ordered[i].fragment == f)
            return &isle->ordered[i];
    return NULL;
}

size_t roundsrun_ordered_count(const struct roundsrun *isle, enum sync_action_type type)
{
    size_t count = 0;
    for (size_t i = 0; i < isle->ordered_count; i++)
        count += isle->ordered[i].type == type;
    return count;
}

/* ---- the trainer ---- */

void roundsrun_pattern(float *out, size_t count, uint64_t seed, float amount)
{
    for (size_t i = 0; i < count; i++)
        out[i] = amount * (1 + (float)((i * 37 + seed * 11) % 101) / 101.0f);
}

void roundsrun_begin(struct roundsrun *isle)
{
    for (uint32_t f = 0; f < ROUNDSRUN_FRAGMENTS; f++) {
        roundsrun_pattern(isle->base[f], roundsrun_values(isle, f), f, 1);
        rounds_start(isle->rounds, f, isle->base[f], true);
    }
    roundsrun_settle(isle);
    for (uint32_t f = 0; f < ROUNDSRUN_FRAGMENTS; f++)
        for (uint32_t i = 0; i < isle->conf.members; i++)
            isle->said[i][f] =
                (struct wire_fragment){.fragment = f, .hash = rounds_state(isle->rounds, f)->hash, .hash_known = true};
    roundsrun_attach(isle);
    for (uint32_t i = 0; i < isle->conf.members; i++)
        if (i != isle->conf.self)
            roundsrun_hear(isle, i);
    roundsrun_forget(isle);
}

void roundsrun_attach(struct roundsrun *isle)
{
    for (uint32_t f = 0; f < ROUNDSRUN_FRAGMENTS; f++) {
        rounds_start(isle->rounds, f, isle->base[f], false);
        roundsrun_settle(isle);
        memcpy(isle->theta[f], isle->base[f], roundsrun_values(isle, f) * sizeof(float));
        isle->snapshot[f] = (struct replica_snapshot){.base = isle->base[f], .theta = isle->theta[f]};
        event_post_sync(isle->events, &(struct sync_event){.type = SYNC_EV_TRAINER_UP,
                                                           .fragment = f,
                                                           .version = rounds_state(isle->rounds, f)->version});
        roundsrun_settle(isle);
    }
}

void roundsrun_train(struct roundsrun *isle, uint32_t f, uint64_t seed, float amount)
{
    size_t count = roundsrun_values(isle, f);
    roundsrun_pattern(isle->theta[f], count, seed, amount);
    for (size_t i = 0; i < count; i++)
        isle->theta[f][i] = isle->base[f][i] - isle->theta[f][i];
}

void roundsrun_snapshot(struct roundsrun *isle, uint32_t f, uint64_t step, uint64_t tokens)
{
    isle->snapshot[f].step = step;
    isle->snapshot[f].tokens = tokens;
    event_post_sync(isle->events, &(struct sync_event){.type = SYNC_EV_SNAPSHOT, .fragment = f});
    roundsrun_drain(isle);
}

void roundsrun_contribute(struct roundsrun *isle, uint32_t f, float amount, uint64_t tokens)
{
    uint64_t version = rounds_state(isle->rounds, f)->version + 1;
    roundsrun_train(isle, f, version, amount);
    roundsrun_snapshot(isle, f, version * STEPS_A_ROUND, tokens);
    roundsrun_settle(isle);
    assert_int_equal(sync_state(isle->sync, f), SYNC_CONTRIBUTED);
}

void roundsrun_mixed(struct roundsrun *isle, uint32_t f)
{
    memcpy(isle->base[f], isle->area[f], roundsrun_values(isle, f) * sizeof(float));
    memcpy(isle->theta[f], isle->area[f], roundsrun_values(isle, f) * sizeof(float));
    event_post_sync(isle->events, &(struct sync_event){.type = SYNC_EV_MIXED, .fragment = f});
    roundsrun_drain(isle);
}

/* ---- the other islands ---- */

void roundsrun_hear(struct roundsrun *isle, uint32_t member)
{
    static struct wire_heartbeat beat;
    memset(&beat, 0, sizeof beat);
    beat.taking_part = true;
    beat.fragments_count = ROUNDSRUN_FRAGMENTS;
    memcpy(beat.fragments, isle->said[member], sizeof isle->said[member]);
    if (!sync_up(isle->sync, member))
        roundsrun_step(isle, &(struct sync_event){.type = SYNC_EV_PEER_UP, .member = member});
    roundsrun_step(isle, &(struct sync_event){.type = SYNC_EV_HEARTBEAT, .member = member, .beat = &beat});
    roundsrun_drain(isle);
}

void roundsrun_seal(const struct roundsrun *isle, const struct wire_key *key, const struct wire_meta *meta,
                    const float *values, size_t count, struct roundsrun_object *out)
{
    struct codec *codec;
    size_t frame_bytes, fault;
    struct codec_part part = {.count = count, .choice = rules_codec(&isle->spec)};
    struct vec_source source = {.minuend = values};
    assert_true(wire_object_bytes_max(codec_frame_bytes_max(&part, 1)) <= sizeof out->byte);
    assert_ok(codec_new(0, &codec));
    assert_ok(codec_encode(codec, &part, 1, &source, NULL, wire_object_frame(out->byte), &frame_bytes, &fault));
    codec_free(codec);
    out->key = *key;
    assert_ok(wire_object_seal(key->kind, meta, out->byte, frame_bytes, &out->bytes));
}

void roundsrun_spoil(struct roundsrun_object *object)
{
    enum { DIGEST_AT = 32, DIGEST_SHORT = 16, NO_CODEC = 99 }; /* docs/FORMATS.md, 2 */
    struct wire_meta meta;
    const uint8_t *inside;
    size_t frame_bytes;
    struct digest_state state;
    assert_ok(wire_object_open(object->key.kind, object->byte, object->bytes, &meta, &inside, &frame_bytes));
    uint8_t *frame = wire_object_frame(object->byte);
    frame[CODEC_HEADER_BYTES] = NO_CODEC;
    digest_begin(&state);
    digest_add(&state, frame, DIGEST_AT);
    digest_add(&state, frame + CODEC_HEADER_BYTES, frame_bytes - CODEC_HEADER_BYTES);
    struct digest digest = digest_end(&state);
    memcpy(frame + DIGEST_AT, digest.byte, DIGEST_SHORT);
    assert_ok(wire_object_seal(object->key.kind, &meta, object->byte, frame_bytes, &object->bytes));
}

static void seal_pattern(const struct roundsrun *isle, const struct wire_key *key, const struct wire_meta *meta,
                         float amount, struct roundsrun_object *out)
{
    struct plan_shard range = roundsrun_shard(isle, key->fragment, key->shard);
    size_t count = (size_t)(range.end - range.begin);
    float *values = calloc(count, sizeof *values);
    assert_non_null(values);
    roundsrun_pattern(values, count, key->version * 7 + key->island, amount);
    roundsrun_seal(isle, key, meta, values, count, out);
    free(values);
}

void roundsrun_contribution(const struct roundsrun *isle, uint32_t f, uint32_t member, uint64_t tokens, float amount,
                            struct roundsrun_object *out)
{
    const struct store_fragment *state = rounds_state(isle->rounds, f);
    struct wire_key key = {.kind = WIRE_CONTRIBUTION,
                           .fragment = f,
                           .version = state->version + 1,
                           .shard = isle->conf.self,
                           .island = member};
    struct wire_meta meta = {.tokens = tokens, .step = key.version * STEPS_A_ROUND, .base_hash = state->hash};
    seal_pattern(isle, &key, &meta, amount, out);
}

void roundsrun_result(const struct roundsrun *isle, uint32_t f, uint32_t shard, const struct bitset *members,
                      float amount, struct roundsrun_object *out)
{
    const struct store_fragment *state = rounds_state(isle->rounds, f);
    struct wire_key key = {
        .kind = WIRE_RESULT, .fragment = f, .version = state->version + 1, .shard = shard, .island = shard};
    struct wire_meta meta = {.step = key.version * STEPS_A_ROUND, .outer_known = true};
    for (uint32_t i = 0; i < isle->conf.members; i++)
        if (bitset_has(members, i))
            meta.contributors[meta.contributors_count++] =
                (struct wire_contributor){.island = i, .tokens = TOKENS_A_ROUND};
    struct outer_round round = rules_round(&isle->spec, ROUNDSRUN_FRAGMENTS, f, key.version, state->step, meta.step);
    memcpy(meta.outer, (float[]){round.scale, round.momentum, round.lr}, sizeof meta.outer);
    seal_pattern(isle, &key, &meta, amount, out);
}

static void lay(struct roundsrun *isle, struct slot *slot, uint32_t shard, const struct roundsrun_object *object)
{
    assert_ok(slots_room(isle->slots, slot, object->key.fragment, shard));
    assert_true(object->bytes <= slot->bytes_max);
    memcpy(slot->data, object->byte, object->bytes);
    slot->version = 0;
}

void roundsrun_bring(struct roundsrun *isle, uint32_t peer, const struct roundsrun_object *object)
{
    const struct wire_key *key = &object->key;
    uint8_t *state;
    if (key->kind == WIRE_CONTRIBUTION) {
        lay(isle, slots_in(isle->slots, key->fragment, peer), isle->conf.self, object);
    } else if (key->kind == WIRE_RESULT) {
        lay(isle, slots_result(isle->slots, key->fragment, key->shard), key->shard, object);
    } else {
        assert_ok(slots_take_state(isle->slots, key->fragment, object->bytes, &state));
        memcpy(state, object->byte, object->bytes);
    }
    rounds_object_in(isle->rounds, peer, key, object->bytes);
    roundsrun_drain(isle);
}

void roundsrun_bring_contribution(struct roundsrun *isle, uint32_t f, uint32_t member, uint64_t tokens, float amount)
{
    static struct roundsrun_object object;
    roundsrun_contribution(isle, f, member, tokens, amount, &object);
    roundsrun_bring(isle, member, &object);
    roundsrun_settle(isle);
}

void roundsrun_bring_result(struct roundsrun *isle, uint32_t f, uint32_t shard, bool naming_us)
{
    static struct roundsrun_object object;
    struct bitset members = bitset_first(isle->conf.members);
    if (!naming_us)
        bitset_remove(&members, isle->conf.self);
    roundsrun_result(isle, f, shard, &members, 0.015f, &object);
    roundsrun_bring(isle, shard, &object);
    roundsrun_settle(isle);
}

void roundsrun_make_state(const struct roundsrun *isle, uint32_t f, float more, struct replica **twin,
                          struct roundsrun_object *out)
{
    struct store_fragment state = {.version = rounds_state(isle->rounds, f)->version, .step = ROUNDSRUN_STATE_STEP};
    const struct plan *plan = isle->plan->plan;
    *twin = roundsrun_twin(isle);
    for (size_t i = 0; i < roundsrun_values(isle, f); i++) {
        replica_anchor(*twin, f)[i] += more;
        replica_momentum(*twin, f)[i] -= more;
    }
    assert_ok(replica_hash(*twin, f, state.version, &state.hash));
    out->key = (struct wire_key){.kind = WIRE_STATE, .fragment = f, .version = state.version};
    out->bytes = (size_t)state_object_bytes(*twin, plan, f);
    assert_true(out->bytes <= sizeof out->byte);
    state_object_make(*twin, plan, f, &state, out->byte);
}

void roundsrun_diverge(struct roundsrun *isle, uint32_t f, struct replica *theirs)
{
    uint64_t version = rounds_state(isle->rounds, f)->version;
    for (uint32_t i = 0; i < isle->conf.members; i++) {
        if (i == isle->conf.self)
            continue;
        isle->said[i][f].version = version;
        assert_ok(replica_hash(theirs, f, version, &isle->said[i][f].hash));
        roundsrun_hear(isle, i);
    }
    assert_int_equal(sync_state(isle->sync, f), SYNC_REPAIR);
    assert_int_equal(roundsrun_ordered(isle, SYNC_DO_FETCH, f)->key.kind, WIRE_STATE);
    roundsrun_forget(isle);
}

void roundsrun_round(struct roundsrun *isle, uint32_t f, const struct bitset *naming_us)
{
    uint64_t version = rounds_state(isle->rounds, f)->version + 1;
    roundsrun_contribute(isle, f, 0.01f, version * TOKENS_A_ROUND);
    for (uint32_t i = 0; i < isle->conf.members; i++)
        if (i != isle->conf.self)
            roundsrun_bring_contribution(isle, f, i, TOKENS_A_ROUND, 0.02f);
    for (uint32_t s = 0; s < isle->conf.members; s++)
        if (s != isle->conf.self)
            roundsrun_bring_result(isle, f, s, bitset_has(naming_us, s));
    assert_int_equal(rounds_state(isle->rounds, f)->version, version);
    roundsrun_mixed(isle, f);
}

/* ---- looking in ---- */

size_t roundsrun_values(const struct roundsrun *isle, uint32_t f)
{
    return (size_t)isle->plan->plan->fragments[f].values_count;
}

struct plan_shard roundsrun_shard(const struct roundsrun *isle, uint32_t f, uint32_t shard)
{
    return replica_shard(isle->replica, f, shard);
}

void roundsrun_damage(const char *path, long at)
{
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    int byte = fgetc(file);
    assert_true(byte != EOF);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    assert_int_equal(fputc(byte ^ 0x10, file), byte ^ 0x10);
    assert_int_equal(fclose(file), 0);
}

void roundsrun_decode(const uint8_t *frame, size_t frame_bytes, float *values, size_t count)
{
    struct codec *codec;
    assert_ok(codec_check(frame, frame_bytes, count));
    assert_ok(codec_new(0, &codec));
    assert_ok(codec_decode(codec, frame, frame_bytes, values, count));
    codec_free(codec);
}

const uint8_t *roundsrun_open_slot(const struct slot *slot, uint32_t kind, struct wire_meta *meta, size_t *frame_bytes)
{
    const uint8_t *frame;
    assert_false(slot->busy);
    assert_ok(wire_object_open(kind, slot->data, slot->bytes, meta, &frame, frame_bytes));
    return frame;
}

bool roundsrun_all_zero(const float *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (values[i] != 0)
            return false;
    return true;
}

struct digest roundsrun_hash(const struct roundsrun *isle, uint32_t f, uint64_t version)
{
    struct digest hash;
    assert_ok(replica_hash(isle->replica, f, version, &hash));
    return hash;
}
