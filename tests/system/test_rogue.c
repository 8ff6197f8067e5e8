/* SPDX-License-Identifier: Apache-2.0 */
/* A member of the run that has a valid key and sends nonsense, to real daemons: each piece is named and dropped, memory
 * stays bounded, and the others train to the end as if it were not there. */
#include "tests/lib/testlib.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/conf.h"
#include "common/digest.h"
#include "common/runspec.h"
#include "common/shardmap.h"
#include "daemon/dconf.h"
#include "net/transport/link.h"
#include "net/transport/wire_object.h"
#include "outer_opt/codec.h"
#include "tests/lib/begun.h"
#include "tests/lib/cluster.h"

/* The rogue comes first by name and has next to no uplink, so it owns no shard: rounds do not need it. */
enum { ROGUE, TARGET, OTHER, ISLANDS, FRAGMENTS = 3 };

static const char spec[] = "[run]\nname = rogue\nsteps = 300\n[model]\nlayers = 2\n"
                           "[sync]\ninterval = 10\nlayers_per_fragment = 1\noverlap = 2\n";

struct rogue {
    struct link *link;
    struct dconf conf;
    struct view view;
    struct ident ident;
    struct runspec spec;
    bool connected;
    uint32_t done_status; /* of the last Done we got */
    struct wire_key done_key;
    uint64_t epoch; /* as island b says; so of fragment 0: */
    uint64_t base_version;
    struct digest base_hash;
};

static void open_rogue(struct rogue *rogue, struct cluster *cluster)
{
    struct link_member members[ISLANDS] = {{.name = NULL}};
    *rogue = (struct rogue){0};
    assert_ok(dconf_load(cluster->island[ROGUE].conf, NULL, 0, &rogue->conf));
    assert_ok(ident_load(rogue->conf.key_path, &rogue->ident));
    assert_ok(runspec_load(rogue->conf.run_path, NULL, 0, &rogue->spec));
    assert_ok(begun_view(rogue->conf.state_folder, rogue->ident.key, &rogue->view));
    for (uint32_t i = 0; i < rogue->view.count; i++) {
        members[i].name = rogue->view.members[i].as.name;
        members[i].address = rogue->view.members[i].as.address;
        memcpy(members[i].key, rogue->view.members[i].as.key, IDENT_KEY_BYTES);
    }
    struct link_conf conf = {.ident = &rogue->ident,
                             .members = members,
                             .members_count = rogue->view.count,
                             .self = rogue->view.self,
                             .run_tag = wire_run_tag(rogue->view.nonce, &rogue->spec.digest),
                             .io_threads = 1};
    assert_ok(link_new(&conf, &rogue->link));
}

static void close_rogue(struct rogue *rogue)
{
    link_free(rogue->link);
    runspec_deinit(&rogue->spec);
    view_free(&rogue->view);
    conf_deinit(&dconf_schema, &rogue->conf);
}

static void say(struct rogue *rogue, const struct wire_message *message)
{
    static uint8_t payload[WIRE_CONTROL_BYTES_MAX];
    size_t bytes;
    assert_ok(wire_pack(message, payload, &bytes));
    for (uint32_t i = TARGET; i < ISLANDS; i++)
        (void)!link_send(rogue->link, i, message->type, payload, bytes, NULL, 0);
}

/* As an island without a trainer would: here, well, and waited for by nobody. */
static void behave(struct rogue *rogue)
{
    static struct wire_message message;
    static uint64_t sequence;
    message = (struct wire_message){.type = WIRE_HELLO};
    message.hello = (struct wire_hello){
        .run_id = rogue->spec.digest,
        .session = 77,
        .island = ROGUE,
        .name = "a",
        .word = {.number = rogue->view.members[ROGUE].as.word + 1, .uplink = rogue->view.members[ROGUE].as.uplink},
        .software = "nonsense",
        .window_kib = 1024};
    snprintf(message.hello.word.address, sizeof message.hello.word.address, "%s",
             rogue->view.members[ROGUE].as.address);
    member_word_sign(&rogue->ident, rogue->view.nonce, rogue->view.members[ROGUE].as.id, &message.hello.word);
    say(rogue, &message);
    message = (struct wire_message){.type = WIRE_HEARTBEAT};
    message.heartbeat.session = 77;
    message.heartbeat.sequence = ++sequence;
    message.heartbeat.epoch = rogue->epoch;
    message.heartbeat.incarnation = rogue->view.members[ROGUE].as.incarnation;
    for (uint32_t f = 0; f < FRAGMENTS; f++)
        message.heartbeat.fragments[message.heartbeat.fragments_count++] =
            (struct wire_fragment){.fragment = f, .at.abstained = UINT64_MAX};
    say(rogue, &message);
}

static void take_in(struct rogue *rogue, const struct link_message *in)
{
    static struct wire_message message;
    if (in->header.type == WIRE_CHUNK || in->header.type == WIRE_BULK_HELLO ||
        wire_unpack(in->header.type, in->payload, in->bytes, &message) != ERR_OK || in->peer != TARGET)
        return;
    if (message.type == WIRE_DONE) {
        rogue->done_status = message.done.status;
        rogue->done_key = message.done.key;
    }
    if (message.type == WIRE_HEARTBEAT)
        rogue->epoch = message.heartbeat.epoch;
    for (uint32_t i = 0; message.type == WIRE_HEARTBEAT && i < message.heartbeat.fragments_count; i++) {
        const struct wire_fragment *row = &message.heartbeat.fragments[i];
        if (row->fragment != 0 || !row->at.hash_known)
            continue;
        rogue->base_version = row->at.version;
        rogue->base_hash = row->at.hash;
    }
}

static void listen_for(struct rogue *rogue, unsigned ms)
{
    for (unsigned i = 0; i < ms; i++) {
        struct link_event event;
        struct link_message message;
        link_tick(rogue->link);
        while (link_event(rogue->link, &event))
            rogue->connected |= event.type == LINK_CONNECTED;
        while (link_recv(rogue->link, &message) == ERR_OK)
            take_in(rogue, &message);
        usleep(1000);
    }
}

static void send_bulk(struct rogue *rogue, const struct wire_key *key, uint64_t total, const uint8_t *data,
                      size_t bytes)
{
    uint8_t head[WIRE_CHUNK_HEADER_BYTES];
    struct wire_chunk chunk = {.key = *key, .total = total};
    wire_chunk_put(&chunk, head);
    for (int i = 0; i < 500 && link_send(rogue->link, TARGET, WIRE_CHUNK, head, sizeof head, data, bytes) != ERR_OK;
         i++)
        listen_for(rogue, 10);
}

/* Every type with random bytes, empty, and cut in its middle. */
static void send_noise(struct rogue *rogue)
{
    static uint8_t noise[2000];
    struct env_rng rng = env_rng_init(4, 4);
    for (uint32_t type = 0; type < 14; type++) {
        for (size_t length = 0; length < sizeof noise; length = 3 * length + 1) {
            for (size_t i = 0; i < length; i++)
                noise[i] = (uint8_t)env_rng_u64(&rng);
            (void)!link_send(rogue->link, TARGET, (enum wire_type)type, noise, length, NULL, 0);
        }
        listen_for(rogue, 2);
    }
}

/* What a good contribution to island b's shards says: of fragment 0, which has a shard for each of its three blocks. */
static struct wire_object object_of(const struct rogue *rogue, const struct wire_key *key)
{
    enum { SHARDS = 3 };
    uint64_t uplinks[ISLANDS];
    struct wire_object what = {.key = *key};
    for (uint32_t i = 0; i < ISLANDS; i++)
        uplinks[i] = rogue->view.members[i].as.uplink;
    struct shardmap map = shardmap_of(uplinks, ISLANDS);
    for (uint32_t s = 0; s < SHARDS; s++)
        if (map.owner[shardmap_slot(key->fragment, SHARDS, s)] == key->owner)
            what.shards |= (uint64_t)1 << s;
    memcpy(what.nonce, rogue->view.nonce, sizeof what.nonce);
    return what;
}

/* A contribution to island b's shard of fragment 0 that is right in everything but for what `spoil` does to it; returns
 * how b ends the transfer. A round may close in between, so it is tried again as long as b says that it came late. */
static uint32_t contribute(struct rogue *rogue, void (*spoil)(uint8_t *object, size_t *bytes))
{
    static uint8_t object[1 << 16];
    struct codec *codec;
    /* 700 values in three blocks: one for b, two for c. */
    static float values[CODEC_BLOCK];
    struct vec_source source = {.minuend = values};
    const struct codec_part part = {.count = CODEC_BLOCK, .choice = {.id = CODEC_E3M0}};
    size_t frame_bytes, bytes, fault;
    assert_ok(codec_new(1, &codec));
    for (int attempt = 0; attempt < 100; attempt++) {
        struct wire_meta meta = {.tokens = 10, .step = 1, .base_hash = rogue->base_hash};
        struct wire_key key = {.kind = WIRE_CONTRIBUTION,
                               .version = rogue->base_version + 1,
                               .epoch = rogue->epoch,
                               .owner = TARGET,
                               .island = ROGUE};
        struct wire_object what = object_of(rogue, &key);
        assert_ok(codec_encode(codec, &part, 1, &source, NULL, wire_object_frame(object), &frame_bytes, &fault));
        assert_ok(wire_object_seal(&what, &meta, NULL, object, frame_bytes, &bytes, &what.digest));
        spoil(object, &bytes);
        rogue->done_status = 0;
        send_bulk(rogue, &key, bytes, object, bytes);
        for (int i = 0; i < 100 && rogue->done_status == 0; i++)
            listen_for(rogue, 10);
        behave(rogue);
        listen_for(rogue, 20);
        if (rogue->done_status != 0 && rogue->done_status != WIRE_NOT_NEEDED && rogue->done_status != WIRE_NOT_YET)
            break;
    }
    codec_free(codec);
    return rogue->done_status;
}

static void cut_it(uint8_t *object, size_t *bytes)
{
    (void)object;
    *bytes -= 5;
}

static void flip_payload(uint8_t *object, size_t *bytes)
{
    (void)bytes;
    object[WIRE_OBJECT_HEADER_BYTES + CODEC_HEADER_BYTES + 20] ^= 4;
}

static void flip_base(uint8_t *object, size_t *bytes)
{
    object[*bytes - 3] ^= 4;
}

/* Whole, from a step that no run has. */
static void claim_a_step(uint8_t *object, size_t *bytes)
{
    struct wire_object what;
    struct wire_meta meta;
    const uint8_t *frame;
    size_t frame_bytes;
    assert_ok(wire_object_open(object, *bytes, &what, &meta, &frame, &frame_bytes));
    meta.step = (uint64_t)1 << 62;
    assert_ok(wire_object_seal(&what, &meta, NULL, object, frame_bytes, bytes, &what.digest));
}

static void nonsense_is_named_dropped_and_survived(void **state)
{
    (void)state;
    struct cluster_options options = {.run = spec, .data = "sleep=30"};
    struct cluster *cluster = cluster_new("rogue", ISLANDS, &options);
    struct rogue rogue;
    cluster_configure_after(cluster, ROGUE, "[net]\n", "uplink = 1kbit\n");
    cluster_start(cluster, TARGET);
    cluster_start(cluster, OTHER);
    open_rogue(&rogue, cluster);
    for (int i = 0; i < 200 && (!rogue.connected || rogue.base_version == 0); i++) {
        behave(&rogue);
        listen_for(&rogue, 50);
    }
    assert_true(rogue.connected && rogue.base_version > 0);
    send_noise(&rogue);
    assert_true(cluster_log_has(cluster, TARGET, "island a sent something we drop", 5));
    assert_int_equal(contribute(&rogue, cut_it), WIRE_REFUSED);
    assert_true(cluster_log_has(cluster, TARGET, "the contribution of island a to fragment 0", 1));
    assert_int_equal(contribute(&rogue, flip_payload), WIRE_REFUSED);
    assert_int_equal(contribute(&rogue, flip_base), WIRE_REFUSED);
    assert_int_equal(contribute(&rogue, claim_a_step), WIRE_REFUSED);
    assert_true(cluster_log_has(cluster, TARGET, "step 4611686018427387904 of a run of", 1));
    /* Nothing of this size is ever allocated. */
    struct wire_key big = {
        .kind = WIRE_RESULT, .version = rogue.base_version + 1, .epoch = rogue.epoch, .owner = OTHER, .island = OTHER};
    static const uint8_t data[1000];
    for (uint32_t kind = WIRE_CONTRIBUTION; kind < WIRE_KINDS; kind++) {
        big.kind = kind;
        send_bulk(&rogue, &big, (uint64_t)1 << 60, data, sizeof data);
    }
    for (uint32_t i = TARGET; i < ISLANDS; i++)
        for (int k = 0; k < 3000 && strcmp(cluster_trainer(cluster, i), "finished") != 0; k++) {
            behave(&rogue);
            listen_for(&rogue, 100);
        }
    for (uint32_t i = TARGET; i < ISLANDS; i++)
        cluster_wait(cluster, i, cluster_trainer_finished, 0, "the end of training");
    close_rogue(&rogue);
    char hash[128];
    for (uint32_t i = TARGET; i < ISLANDS; i++) {
        json_t *status = cluster_ask(cluster, i, "status");
        const char *own = json_string_value(json_object_get(status, "anchors"));
        assert_non_null(own);
        if (i == TARGET)
            snprintf(hash, sizeof hash, "%s", own);
        assert_string_equal(own, hash);
        json_decref(status);
    }
    for (uint32_t i = TARGET; i < ISLANDS; i++) {
        assert_false(cluster_log_has(cluster, i, "please report", 0));
        assert_int_equal(cluster_end(cluster, i, SIGTERM), 0);
    }
    cluster_free(cluster);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nonsense_is_named_dropped_and_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
