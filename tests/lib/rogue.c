/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/rogue.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/env.h"
#include "common/mem.h"
#include "daemon/membership/config_store.h"
#include "daemon/state/store.h"
#include "net/transport/wire_object.h"
#include "outer_opt/codec.h"
#include "tests/lib/begun.h"
#include "tests/lib/testlib.h"

enum { BEAT_MS = 100 };

static void open_link(struct rogue *rogue)
{
    struct link_member members[CLUSTER_MAX] = {{.name = NULL}};
    for (uint32_t i = 0; i < rogue->view.count; i++) {
        members[i].name = rogue->view.members[i].as.name;
        members[i].address = rogue->view.members[i].as.address;
        memcpy(members[i].key, rogue->view.members[i].as.key, IDENT_KEY_BYTES);
    }
    struct link_conf conf = {.ident = &rogue->ident,
                             .members = members,
                             .members_count = rogue->view.count,
                             .self = rogue->self,
                             .run_tag = wire_run_tag(rogue->view.nonce, &rogue->spec.digest),
                             .io_threads = 1};
    assert_ok(link_new(&conf, &rogue->link));
}

/* Whose disk it looks at, as everybody's says the same. */
static uint32_t other_of(const struct rogue *rogue)
{
    return rogue->self == 0 ? 1 : 0;
}

static void load_plan(struct rogue *rogue)
{
    if (rogue->plan == NULL)
        assert_ok(store_load_plan(rogue->cluster->island[other_of(rogue)].state, &rogue->spec, &rogue->plan));
}

static enum err read_config(struct rogue *rogue, uint64_t epoch, struct config *config)
{
    struct config_entry entry;
    TRY(config_store_read(rogue->cluster->island[other_of(rogue)].state, epoch, &entry));
    enum err err = config_unpack(entry.bytes, entry.bytes_count, config);
    config_entry_free(&entry);
    return err;
}

struct config rogue_config(struct rogue *rogue)
{
    struct config config;
    uint64_t epoch = rogue->heard_epoch[other_of(rogue)];
    assert_ok(read_config(rogue, epoch, &config));
    for (struct config next; read_config(rogue, ++epoch, &next) == ERR_OK; config = next)
        config_deinit(&config);
    return config;
}

/* By the configuration that rules, as far as it is there. */
static void follow_map(struct rogue *rogue)
{
    struct config config;
    uint64_t epoch = rogue->heard_epoch[other_of(rogue)];
    if (epoch == rogue->map_epoch || read_config(rogue, epoch, &config) != ERR_OK)
        return;
    rogue->map = config.map;
    rogue->map_epoch = epoch;
    config_deinit(&config);
}

static bool all_moved(const struct rogue *rogue)
{
    for (uint32_t i = 0; i < rogue->view.count; i++)
        for (uint32_t f = 0; i != rogue->self && f < rogue->fragments; f++)
            if (!rogue->connected[i] || rogue->heard[i][f].at.version == 0)
                return false;
    return true;
}

struct rogue *rogue_open(struct cluster *cluster, uint32_t self, uint32_t fragments)
{
    struct rogue *rogue = calloc(1, sizeof *rogue);
    assert_non_null(rogue);
    rogue->cluster = cluster;
    rogue->self = self;
    rogue->fragments = fragments;
    rogue->session = 77;
    rogue->pause_ms = BEAT_MS;
    assert_ok(dconf_load(cluster->island[self].conf, NULL, 0, &rogue->conf));
    assert_ok(ident_load(rogue->conf.key_path, &rogue->ident));
    assert_ok(runspec_load(rogue->conf.run_path, NULL, 0, &rogue->spec));
    cluster_begin(cluster);
    assert_ok(begun_view(rogue->conf.state_folder, rogue->ident.key, &rogue->view));
    rogue->map = shardmap_empty();
    open_link(rogue);
    rogue->works = true;
    for (int k = 0; k < 300 && !all_moved(rogue); k++)
        rogue_pass(rogue, 50);
    if (!all_moved(rogue)) {
        cluster_print_logs(cluster);
        fail_msg("the run does not begin");
    }
    return rogue;
}

void rogue_close(struct rogue *rogue)
{
    for (size_t k = 0; k < rogue->taped; k++)
        free(rogue->tape[k].payload);
    link_free(rogue->link);
    model_plan_free(rogue->plan);
    runspec_deinit(&rogue->spec);
    view_free(&rogue->view);
    conf_deinit(&dconf_schema, &rogue->conf);
    free(rogue);
}

void rogue_end(struct rogue *rogue)
{
    struct cluster *cluster = rogue->cluster;
    rogue_close(rogue);
    cluster->count--; /* the one that was played has no log */
    for (uint32_t i = 0; i < cluster->count; i++) {
        assert_false(cluster_log_has(cluster, i, "please report", 0));
        (void)cluster_end(cluster, i, SIGKILL);
    }
    cluster->count++;
    cluster_free(cluster);
}

/* ---- saying ---- */

void rogue_say_raw(struct rogue *rogue, uint32_t to, uint32_t type, const void *payload, size_t bytes)
{
    for (uint32_t i = 0; i < rogue->view.count; i++)
        if (i != rogue->self && (to == CLUSTER_MAX || to == i))
            (void)!link_send(rogue->link, i, (enum wire_type)type, payload, bytes, NULL, 0);
}

void rogue_say(struct rogue *rogue, uint32_t to, const struct wire_message *message)
{
    static uint8_t payload[WIRE_CONTROL_BYTES_MAX];
    size_t bytes;
    assert_ok(wire_pack(message, payload, &bytes));
    rogue_say_raw(rogue, to, message->type, payload, bytes);
}

void rogue_say_paxos(struct rogue *rogue, uint32_t to, const struct paxos_message *message)
{
    uint8_t *payload;
    size_t bytes;
    assert_ok(wire_paxos_pack(message, &payload, &bytes));
    rogue_say_raw(rogue, to, message->type, payload, bytes);
    mem_free(payload);
}

void rogue_as_far(struct rogue *rogue, uint32_t to, struct wire_heartbeat *beat)
{
    for (uint32_t f = 0; f < rogue->fragments; f++) {
        struct wire_fragment *row = &beat->fragments[f];
        row->at.version = rogue->heard[to][f].at.version;
        row->at.hash = rogue->heard[to][f].at.hash;
        row->at.hash_known = rogue->heard[to][f].at.hash_known;
    }
}

static void says_that_it_contributes(struct rogue *rogue, uint32_t to, struct wire_heartbeat *beat)
{
    rogue_as_far(rogue, to, beat);
    beat->taking_part = true;
    beat->trainer = WIRE_TRAINER_TRAINING;
    for (uint32_t f = 0; f < rogue->fragments; f++) {
        beat->fragments[f].at.abstained = 0;
        beat->fragments[f].at.contributed = beat->fragments[f].at.version + 1;
    }
}

/* As an island without a trainer would: here, well, and waited for by nobody. */
static void behave(struct rogue *rogue)
{
    static struct wire_message message;
    const struct view_member *self = &rogue->view.members[rogue->self];
    message = (struct wire_message){.type = WIRE_HELLO};
    message.hello =
        (struct wire_hello){.run_id = rogue->spec.digest,
                            .session = rogue->session,
                            .island = rogue->self,
                            .word = {.number = self->as.word + 1, .uplink = self->as.uplink, .units = self->as.units},
                            .software = "nonsense",
                            .window_kib = 1024};
    snprintf(message.hello.name, sizeof message.hello.name, "%s", self->as.name);
    snprintf(message.hello.word.address, sizeof message.hello.word.address, "%s", self->as.address);
    member_word_sign(&rogue->ident, rogue->view.nonce, rogue->view.members[rogue->self].as.id, &message.hello.word);
    if (rogue->sequence % 10 == 0)
        rogue_say(rogue, CLUSTER_MAX, &message);
    rogue->sequence++;
    for (uint32_t i = 0; i < rogue->view.count; i++) {
        if (i == rogue->self)
            continue;
        message = (struct wire_message){.type = WIRE_HEARTBEAT};
        message.heartbeat.session = rogue->session;
        message.heartbeat.sequence = rogue->sequence;
        message.heartbeat.epoch = rogue->heard_epoch[i];
        message.heartbeat.incarnation = self->as.incarnation;
        for (uint32_t f = 0; f < rogue->fragments; f++)
            message.heartbeat.fragments[message.heartbeat.fragments_count++] =
                (struct wire_fragment){.fragment = f, .at.abstained = UINT64_MAX};
        if (rogue->contributes != NULL)
            says_that_it_contributes(rogue, i, &message.heartbeat);
        if (rogue->beat != NULL)
            rogue->beat(rogue, i, &message.heartbeat);
        rogue_say(rogue, i, &message);
    }
}

void rogue_send(struct rogue *rogue, uint32_t to, const struct wire_key *key, uint64_t total, const uint8_t *data,
                size_t bytes)
{
    uint8_t head[WIRE_CHUNK_HEADER_BYTES];
    struct wire_chunk chunk = {.key = *key, .total = total};
    assert_true(bytes <= WIRE_CHUNK_BYTES_MAX);
    wire_chunk_put(&chunk, head);
    for (int i = 0; i < 500 && link_send(rogue->link, to, WIRE_CHUNK, head, sizeof head, data, bytes) != ERR_OK; i++)
        rogue_pass(rogue, 10);
}

/* ---- results ---- */

size_t rogue_part_values(const struct rogue *rogue, uint32_t f, uint32_t owner, uint64_t *shards)
{
    const struct plan *plan = rogue->plan->plan;
    uint32_t count = plan->fragments[f].shards_count;
    size_t values = 0;
    *shards = 0;
    for (uint32_t s = 0; s < count; s++) {
        if (rogue->map.owner[shardmap_slot(f, count, s)] != owner)
            continue;
        struct plan_shard shard = plan_shard(plan, f, s);
        *shards |= (uint64_t)1 << s;
        values += (size_t)(shard.end - shard.begin);
    }
    return values;
}

/* These values for the part of an owner, signed or not. */
static size_t seal(struct rogue *rogue, const struct wire_key *key, const float *values, const struct wire_meta *meta,
                   const struct ident *signer, uint8_t *object)
{
    struct wire_object what = {.key = *key};
    struct codec *codec;
    struct vec_source source = {.minuend = values};
    struct codec_part part = {.count = rogue_part_values(rogue, key->fragment, key->owner, &what.shards),
                              .choice = {.id = CODEC_E3M0}};
    size_t frame_bytes, bytes, fault;
    memcpy(what.nonce, rogue->view.nonce, sizeof what.nonce);
    assert_true(part.count > 0 &&
                wire_object_bytes_max(codec_frame_bytes_max(&part, 1), what.shards, 1) <= ROGUE_OBJECT_BYTES);
    assert_ok(codec_new(1, &codec));
    assert_ok(codec_encode(codec, &part, 1, &source, NULL, wire_object_frame(object), &frame_bytes, &fault));
    codec_free(codec);
    assert_ok(wire_object_seal(&what, meta, signer, object, frame_bytes, &bytes, &what.digest));
    return bytes;
}

size_t rogue_result(struct rogue *rogue, const struct wire_key *key, const float *values, uint8_t *object)
{
    static const float outer[WIRE_OUTER_NUMBERS] = {1, 0, 0.1f};
    uint8_t contributors[WIRE_CONTRIBUTOR_BYTES];
    struct wire_contributor self = {.id = rogue->self, .tokens = 1};
    struct wire_meta meta = {.step = 1, .contributors_count = 1, .contributors = contributors};
    wire_contributor_put(contributors, 0, &self);
    memcpy(meta.outer, outer, sizeof outer);
    return seal(rogue, key, values, &meta, &rogue->ident, object);
}

/* The result of our part, for everybody who is there. */
static void make(struct rogue *rogue, uint32_t f, uint64_t version)
{
    static uint8_t object[ROGUE_OBJECT_BYTES];
    static float values[1 << 16];
    uint64_t shards;
    size_t count = rogue_part_values(rogue, f, rogue->self, &shards);
    if (count == 0)
        return;
    assert_true(count <= sizeof values / sizeof values[0]);
    for (uint32_t i = 0; i < rogue->view.count; i++) {
        struct wire_key key = {.kind = WIRE_RESULT,
                               .fragment = f,
                               .version = version,
                               .epoch = rogue->heard_epoch[i],
                               .owner = rogue->self,
                               .island = rogue->self};
        if (i == rogue->self)
            continue;
        memset(values, 0, sizeof values);
        if (rogue->result != NULL)
            rogue->result(rogue, i, version, values, count);
        size_t bytes = rogue_result(rogue, &key, values, object);
        rogue_send(rogue, i, &key, bytes, object, bytes);
    }
}

/* When everybody says that it has contributed, or at least has come so far. */
static void work(struct rogue *rogue)
{
    for (uint32_t f = 0; f < rogue->fragments; f++) {
        uint64_t least = UINT64_MAX;
        for (uint32_t i = 0; i < rogue->view.count; i++)
            if (i != rogue->self && rogue->heard[i][f].at.version < least)
                least = rogue->heard[i][f].at.version;
        bool all = least != UINT64_MAX && least >= rogue->made[f];
        for (uint32_t i = 0; i < rogue->view.count; i++)
            all = all && (i == rogue->self || (rogue->connected[i] && rogue->heard[i][f].at.hash_known &&
                                               rogue->heard[i][f].at.contributed > least));
        if (!all)
            continue;
        load_plan(rogue);
        rogue->made[f] = least + 1;
        make(rogue, f, least + 1);
    }
}

/* ---- contributions ---- */

/* To the part of one owner; false: it has nothing to give. */
static bool contribute(struct rogue *rogue, uint32_t f, uint32_t owner, uint64_t version)
{
    static uint8_t object[ROGUE_OBJECT_BYTES];
    static float values[1 << 16];
    const struct digest *base = &rogue->hash[f][version - 1];
    struct wire_meta meta = {.step = 1, .base_hash = *base};
    struct wire_key key = {.kind = WIRE_CONTRIBUTION,
                           .fragment = f,
                           .version = version,
                           .epoch = rogue->heard_epoch[owner],
                           .owner = owner,
                           .island = rogue->self};
    uint64_t shards;
    float value = 0;
    load_plan(rogue);
    size_t count = rogue_part_values(rogue, f, owner, &shards);
    assert_true(count <= sizeof values / sizeof values[0]);
    if (count == 0 || !rogue->contributes(rogue, f, version, &value, &meta.tokens))
        return false;
    for (size_t k = 0; k < count; k++)
        values[k] = value;
    size_t bytes = seal(rogue, &key, values, &meta, NULL, object);
    rogue_send(rogue, owner, &key, bytes, object, bytes);
    return true;
}

/* To all owners, as soon as they have come to the version before; once more after a "not yet", or in another epoch. */
static void contribute_to_all(struct rogue *rogue)
{
    for (uint32_t f = 0; f < rogue->fragments; f++) {
        for (uint32_t i = 0; i < rogue->view.count; i++) {
            struct rogue_contributed *last = &rogue->contributed[f][i];
            uint64_t at = rogue->heard[i][f].at.version, epoch = rogue->heard_epoch[i];
            bool due = last->again_ms != 0 && env_mono_ms() >= last->again_ms;
            if (i == rogue->self || at + 1 >= ROGUE_VERSIONS || !rogue->hash_known[f][at] || epoch != rogue->map_epoch)
                continue;
            if (last->version == at + 1 && last->epoch == epoch && !due)
                continue;
            *last = (struct rogue_contributed){.version = at + 1, .epoch = epoch};
            (void)contribute(rogue, f, i, at + 1);
        }
    }
}

/* ---- hearing ---- */

static void heartbeat_in(struct rogue *rogue, uint32_t from, const struct wire_heartbeat *beat)
{
    rogue->heard_epoch[from] = beat->epoch;
    rogue->heard_step[from] = beat->step;
    rogue->heard_trained[from] = beat->trained;
    for (uint32_t f = 0; beat->session != rogue->heard_session[from] && f < rogue->fragments; f++)
        rogue->contributed[f][from] = (struct rogue_contributed){0}; /* what a daemon before got is gone */
    rogue->heard_session[from] = beat->session;
    for (uint32_t k = 0; k < beat->fragments_count; k++) {
        const struct wire_fragment *row = &beat->fragments[k];
        uint32_t f = row->fragment;
        if (f >= rogue->fragments || row->at.version >= ROGUE_VERSIONS)
            continue;
        rogue->heard[from][f] = *row;
        for (uint32_t h = 0; from == 0 && h < row->held_count && h < ROGUE_HELD_MAX; h++)
            rogue->held[f][h] = beat->held[row->held_first + h];
        if (from == 0)
            rogue->held_count[f] = row->held_count < ROGUE_HELD_MAX ? row->held_count : ROGUE_HELD_MAX;
        if (!row->at.hash_known)
            continue;
        if (!rogue->hash_known[f][row->at.version])
            rogue->hash[f][row->at.version] = row->at.hash;
        rogue->hash_known[f][row->at.version] = true;
        if (!digest_equal(&rogue->hash[f][row->at.version], &row->at.hash)) {
            cluster_print_logs(rogue->cluster);
            fail_msg("version %llu of fragment %u is not the same everywhere", (unsigned long long)row->at.version, f);
        }
    }
}

static void tape(struct rogue *rogue, const struct link_message *in)
{
    if (!rogue->taping || rogue->taped == ROGUE_TAPE)
        return;
    struct rogue_taped *to = &rogue->tape[rogue->taped++];
    *to = (struct rogue_taped){.type = in->header.type, .bytes = in->bytes, .payload = malloc(in->bytes + 1)};
    assert_non_null(to->payload);
    memcpy(to->payload, in->payload, in->bytes);
}

static void done_in(struct rogue *rogue, uint32_t from, const struct wire_key *key, uint32_t status)
{
    enum { AGAIN_MS = 300 };
    rogue->done_status = status;
    if (status == WIRE_NOT_YET && key->kind == WIRE_CONTRIBUTION && key->fragment < rogue->fragments &&
        rogue->contributed[key->fragment][from].version == key->version)
        rogue->contributed[key->fragment][from].again_ms = env_mono_ms() + AGAIN_MS;
}

static void take_in(struct rogue *rogue, const struct link_message *in)
{
    static struct wire_message message;
    if (in->header.type == WIRE_CHUNK || in->header.type == WIRE_BULK_HELLO)
        return;
    tape(rogue, in);
    if (wire_is_epoch(in->header.type)) {
        struct paxos_message epoch;
        if (rogue->epoch_in != NULL && wire_paxos_unpack(in->header.type, in->payload, in->bytes, &epoch) == ERR_OK) {
            rogue->epoch_in(rogue, in->peer, &epoch);
            wire_paxos_deinit(&epoch);
        }
        return;
    }
    if (wire_unpack(in->header.type, in->payload, in->bytes, &message) != ERR_OK)
        return;
    if (message.type == WIRE_DONE)
        done_in(rogue, in->peer, &message.done.key, message.done.status);
    if (message.type == WIRE_FETCH && rogue->fetched != NULL)
        rogue->fetched(rogue, in->peer, &message.fetch.key);
    if (message.type == WIRE_HEARTBEAT)
        heartbeat_in(rogue, in->peer, &message.heartbeat);
}

static void turn(struct rogue *rogue)
{
    struct link_event event;
    struct link_message message;
    while (link_event(rogue->link, &event))
        if (event.type == LINK_CONNECTED)
            rogue->connected[event.peer] = true;
    for (int k = 0; k < 1000 && link_recv(rogue->link, &message) == ERR_OK; k++)
        take_in(rogue, &message);
    link_tick(rogue->link);
    if (env_mono_ms() < rogue->beat_ms)
        return;
    rogue->beat_ms = env_mono_ms() + rogue->pause_ms;
    behave(rogue);
}

void rogue_pass(struct rogue *rogue, unsigned ms)
{
    static bool within;
    uint64_t end_ms = env_mono_ms() + ms;
    do {
        turn(rogue);
        if (!within) { /* what it sends waits for its connection, and passes time itself */
            within = true;
            follow_map(rogue);
            if (rogue->works)
                work(rogue);
            if (rogue->contributes != NULL)
                contribute_to_all(rogue);
            within = false;
        }
        usleep(1000);
    } while (env_mono_ms() < end_ms);
}

/* ---- looking ---- */

static bool reached(const struct rogue *rogue, const uint64_t *goal)
{
    for (uint32_t i = 0; i < rogue->view.count; i++)
        for (uint32_t f = 0; i != rogue->self && f < rogue->fragments; f++)
            if (rogue->heard[i][f].at.version < goal[f])
                return false;
    return true;
}

void rogue_moves(struct rogue *rogue, uint64_t versions, double seconds, const char *what)
{
    uint64_t goal[ROGUE_FRAGMENTS_MAX];
    rogue_pass(rogue, 2 * BEAT_MS); /* what has come meanwhile */
    double since_s = env_mono_s();
    for (uint32_t f = 0; f < rogue->fragments; f++) {
        goal[f] = 0;
        for (uint32_t i = 0; i < rogue->view.count; i++)
            if (i != rogue->self && rogue->heard[i][f].at.version + versions > goal[f])
                goal[f] = rogue->heard[i][f].at.version + versions;
    }
    while (!reached(rogue, goal) && env_mono_s() < since_s + seconds)
        rogue_pass(rogue, 20);
    if (!reached(rogue, goal)) {
        cluster_print_logs(rogue->cluster);
        fail_msg("%s: the others are held up for more than %.0f s", what, seconds);
    }
    print_message("%s: %llu versions in %.1f s\n", what, (unsigned long long)versions, env_mono_s() - since_s);
}

long rogue_memory_kib(const struct cluster *cluster, uint32_t i)
{
    char path[64], *text, *at;
    size_t bytes;
    snprintf(path, sizeof path, "/proc/%d/status", cluster->island[i].pid);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text = calloc(1, 8192);
    assert_non_null(text);
    bytes = fread(text, 1, 8191, file);
    assert_true(bytes > 0);
    assert_int_equal(fclose(file), 0);
    at = strstr(text, "VmRSS:");
    assert_non_null(at);
    long kib = strtol(at + 6, NULL, 10);
    free(text);
    return kib;
}

bool rogue_named(struct rogue *rogue, uint32_t by, const char *words, double seconds)
{
    double end_s = env_mono_s() + seconds;
    bool named = false;
    do {
        json_t *status = cluster_ask(rogue->cluster, by, "status"), *item;
        size_t k;
        json_array_foreach (json_object_get(status, "degraded"), k, item) {
            const char *code = json_string_value(json_object_get(item, "code"));
            const char *what = json_string_value(json_object_get(item, "what"));
            named |= code != NULL && what != NULL && strcmp(code, "fault") == 0 && strstr(what, words) != NULL;
        }
        json_decref(status);
        rogue_pass(rogue, named ? 1 : 50);
    } while (!named && env_mono_s() < end_s);
    return named;
}

bool rogue_logged(struct rogue *rogue, uint32_t by, const char *words, double seconds)
{
    double end_s = env_mono_s() + seconds;
    while (!cluster_log_has(rogue->cluster, by, words, 0)) {
        if (env_mono_s() >= end_s)
            return false;
        rogue_pass(rogue, 20);
    }
    return true;
}
