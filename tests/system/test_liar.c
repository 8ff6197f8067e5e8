/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A member of the run that lies, with a good key, to real daemons: whatever it says, the others' rounds go on, their
 * anchors are the same everywhere, their memory does not grow, and it is named. Where there is evidence, it is evicted,
 * and stays so whoever is started again.
 */
#include "tests/lib/testlib.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "common/digest.h"
#include "common/env.h"
#include "common/mem.h"
#include "daemon/membership/config_store.h"
#include "daemon/rules.h"
#include "net/config/config.h"
#include "net/config/certificate.h"
#include "net/config/config_log.h"
#include "net/config/owners.h"
#include "tests/lib/endorsed.h"
#include "tests/lib/lies.h"
#include "tests/lib/proc.h"
#include "tests/lib/rogue.h"

enum { FRAGMENTS = 3, NEW_ROUNDS = 2 };
/* Of `away` = 500 ms, and the rest of a round of 200 ms, with all that is waited for before somebody is complained of;
 * on a busy machine. */
static const double held_up_s = 12;
#ifdef __SANITIZE_ADDRESS__ /* what is freed is kept for a while */
static const long memory_more_kib = 512 << 10;
#else
static const long memory_more_kib = 24 << 10;
#endif
static const char spec[] = "[run]\nname = liar\nsteps = 9000\n[model]\nlayers = 2\n"
                           "[sync]\ninterval = 10\nlayers_per_fragment = 1\noverlap = 2\nlate = merge\n";
static const struct cluster_options options = {.run = spec, .data = "sleep=20", .more = "[net]\naway = 500ms"};

/* The last island is played. With next to no uplink it owns no shard. */
static struct rogue *begin(const char *name, uint32_t islands, bool owns)
{
    struct cluster *cluster = cluster_new(name, islands, &options);
    uint32_t self = islands - 1;
    if (!owns)
        cluster_configure_after(cluster, self, "[net]\n", "uplink = 1kbit\n");
    for (uint32_t i = 0; i < self; i++)
        cluster_start(cluster, i);
    struct rogue *rogue = rogue_open(cluster, self, FRAGMENTS);
    rogue_moves(rogue, NEW_ROUNDS, held_up_s, "nobody lies");
    return rogue;
}

/* ---- what it says in heartbeats ---- */

static void far_step(struct rogue *rogue, uint32_t to, struct wire_heartbeat *beat)
{
    (void)rogue;
    (void)to;
    beat->step = (uint64_t)1 << 62;
    beat->tokens = UINT64_MAX;
}

/* As far as rounds can have brought anybody, and more whenever somebody follows. */
static void ever_further(struct rogue *rogue, uint32_t to, struct wire_heartbeat *beat)
{
    uint64_t step = 0;
    for (uint32_t i = 0; i < rogue->self; i++)
        step = rogue->heard_step[i] > step ? rogue->heard_step[i] : step;
    beat->step = rules_furthest(&rogue->spec, FRAGMENTS, step);
    beat->trainer = WIRE_TRAINER_TRAINING;
    beat->trained = beat->sequence * 1000000;
    (void)to;
}

/* Signed with its own good key. */
static void other_hash(struct rogue *rogue, uint32_t to, struct wire_heartbeat *beat)
{
    for (uint32_t f = 0; f < FRAGMENTS; f++) {
        struct wire_fragment *row = &beat->fragments[f];
        struct certificate_subject subject = {.nonce = rogue->view.nonce, .fragment = f};
        row->at.version = subject.version = rogue->heard[to][f].at.version;
        row->at.hash = rogue->heard[to][f].at.hash;
        row->at.hash.byte[0] ^= 1;
        row->at.hash_known = row->certified = true;
        subject.hash = row->at.hash;
        certificate_row_sign(&rogue->ident, &subject, row->signature);
    }
}

/* A result of the first island's part that there is not. */
static void made_up_result(struct rogue *rogue, uint32_t to, struct wire_heartbeat *beat)
{
    rogue_as_far(rogue, to, beat);
    for (uint32_t f = 0; f < FRAGMENTS; f++) {
        beat->fragments[f].held_first = beat->held_count;
        beat->fragments[f].held_count = 1;
        beat->held[beat->held_count] = (struct wire_held){.owner = 0};
        memset(beat->held[beat->held_count++].tag, 0xaa, sizeof beat->held[0].tag);
    }
}

/* Its disk is in doubt, and every time another one. */
static void other_disks(struct rogue *rogue, uint32_t to, struct wire_heartbeat *beat)
{
    rogue_as_far(rogue, to, beat);
    beat->in_doubt = true;
    beat->incarnation = rogue->sequence;
}

/* It takes part, says that it contributes, and sends nothing. */
static void no_contribution(struct rogue *rogue, uint32_t to, struct wire_heartbeat *beat)
{
    beat->taking_part = true;
    for (uint32_t f = 0; f < FRAGMENTS; f++) {
        beat->fragments[f].at.abstained = 0;
        beat->fragments[f].at.contributed = rogue->heard[to][f].at.version + 1;
    }
}

/* What it is asked for it gives: signed with its own key, for it has no other. */
static void forged(struct rogue *rogue, uint32_t from, const struct wire_key *key)
{
    static uint8_t object[ROGUE_OBJECT_BYTES];
    static const float values[1 << 16];
    if (key->kind != WIRE_RESULT || key->owner == rogue->self)
        return;
    size_t bytes = rogue_result(rogue, key, values, object);
    rogue_send(rogue, from, key, bytes, object, bytes);
}

/* ---- what it says of the next epoch ---- */

static uint64_t storm_counter;

/* Whatever it has sealed, it says that it holds what the first one holds, for ever in the same epoch. */
static void broken_seal(struct rogue *rogue, uint32_t to, struct wire_heartbeat *beat)
{
    rogue_as_far(rogue, to, beat);
    beat->epoch = rogue->view.epoch;
    for (uint32_t f = 0; f < FRAGMENTS; f++) {
        beat->fragments[f].held_first = beat->held_count;
        beat->fragments[f].held_count = rogue->held_count[f];
        for (uint32_t h = 0; h < rogue->held_count[f]; h++)
            beat->held[beat->held_count++] = rogue->held[f][h];
    }
}

static void storm(struct rogue *rogue, uint32_t to, struct wire_heartbeat *beat)
{
    broken_seal(rogue, to, beat);
    for (int k = 0; k < 20; k++) {
        struct paxos_message message = {.type = WIRE_PREPARE, .epoch = rogue->heard_epoch[to] + 1};
        message.ballot = ++storm_counter << 32 | rogue->self;
        rogue_say_paxos(rogue, to, &message);
    }
}

static void assert_nobody_repairs(const struct rogue *rogue)
{
    for (uint32_t i = 0; i < rogue->self; i++)
        for (uint32_t f = 0; f < FRAGMENTS; f++)
            assert_false(rogue->heard[i][f].at.repairing);
}

/* Its seal says that it is far ahead, and it refuses every ballot. */
static void false_seal(struct rogue *rogue, uint32_t from, struct paxos_message *in)
{
    struct holding rows[FRAGMENTS];
    if (in->type != WIRE_PREPARE)
        return;
    struct paxos_message message = {.type = WIRE_PROMISE, .epoch = in->epoch, .ballot = in->ballot};
    for (uint32_t f = 0; f < FRAGMENTS; f++)
        rows[f] =
            (struct holding){.fragment = f, .version = rogue->heard[from][f].at.version + 1000000, .hash_known = true};
    message.sealed = true;
    message.incarnation = rogue->view.members[rogue->self].as.incarnation;
    message.rows = rows;
    message.rows_count = FRAGMENTS;
    rogue_say_paxos(rogue, from, &message);
    message = (struct paxos_message){.type = WIRE_REJECT, .epoch = in->epoch};
    message.ballot = (in->ballot >> 32) + 5;
    message.ballot = message.ballot << 32 | rogue->self;
    rogue_say_paxos(rogue, from, &message);
}

/* Signed by it, which is no operator; of every other one the signature is somebody else's. Not so many that its link is
 * closed (test_flood). */
static void flood_of_orders(struct rogue *rogue)
{
    for (uint32_t k = 0; k < 400; k++) {
        struct order order = {.kind = ORDER_REVOKE, .subject = k % 5, .number = k + 1, .epoch = rogue->heard_epoch[0]};
        order.signer = k % 2 == 0 ? rogue->self : 0;
        order_sign(&rogue->ident, rogue->view.nonce, &order);
        struct paxos_message message = {.type = WIRE_ORDER, .order = &order};
        struct paxos_message config_log = {.type = WIRE_CONFIG_LOG};
        rogue_say_paxos(rogue, 0, &message);
        rogue_say_paxos(rogue, 0, &config_log);
        if (k % 100 == 0)
            rogue_pass(rogue, 1);
    }
}

/* A configuration that nobody has voted for, as decided, and as one to be accepted in a ballot that is another's. */
static void forged_configs(struct rogue *rogue)
{
    struct paxos_message message = {.type = WIRE_DECIDED};
    static const uint8_t bytes[200] = {8, 1};
    message.bytes = bytes;
    message.bytes_count = sizeof bytes;
    rogue_say_paxos(rogue, CLUSTER_MAX, &message);
    message =
        (struct paxos_message){.type = WIRE_ACCEPT, .epoch = rogue->heard_epoch[0] + 1, .ballot = (uint64_t)7 << 32};
    message.bytes = bytes;
    message.bytes_count = sizeof bytes;
    rogue_say_paxos(rogue, CLUSTER_MAX, &message);
}

static void huge_objects(struct rogue *rogue)
{
    static const uint8_t data[1000];
    for (uint32_t kind = WIRE_CONTRIBUTION; kind < WIRE_KINDS; kind++) {
        struct wire_key key = {.kind = kind, .version = rogue->heard[0][0].at.version + 1, .island = 1, .owner = 1};
        key.epoch = rogue->heard_epoch[0];
        rogue_send(rogue, 0, &key, (uint64_t)1 << 60, data, sizeof data);
    }
}

/* A state that nobody asked for. */
static void unasked_state(struct rogue *rogue)
{
    static const uint8_t data[4000];
    struct wire_key key = {.kind = WIRE_STATE, .version = rogue->heard[0][0].at.version + 50, .island = rogue->self};
    for (uint32_t i = 0; i < rogue->self; i++)
        rogue_send(rogue, i, &key, sizeof data, data, sizeof data);
}

static void replay(struct rogue *rogue)
{
    for (int times = 0; times < 3; times++)
        for (size_t k = 0; k < rogue->taped; k++)
            rogue_say_raw(rogue, CLUSTER_MAX, rogue->tape[k].type, rogue->tape[k].payload, rogue->tape[k].bytes);
}

/* Greets until one answers in its log: a greeting behind all that was replayed may be dropped, as any message. */
static bool refused_as_of_another_run(struct rogue *rogue)
{
    struct wire_message message = {.type = WIRE_HELLO};
    message.hello = (struct wire_hello){.session = 78,
                                        .island = rogue->self,
                                        .software = "of another run",
                                        .window_kib = 1024,
                                        .word = {.number = 1, .uplink = 1}};
    snprintf(message.hello.name, sizeof message.hello.name, "%s", rogue->view.members[rogue->self].as.name);
    memset(message.hello.run_id.byte, 7, sizeof message.hello.run_id.byte);
    for (uint32_t k = 0; k < 40; k++) {
        rogue_say(rogue, CLUSTER_MAX, &message);
        if (rogue_logged(rogue, 0, "island d is refused: it has another run spec", 0.5))
            return true;
    }
    return false;
}

/* ---- three honest islands, and one that lies ---- */

static void lies_hold_nobody_up(void **state)
{
    (void)state;
    struct rogue *rogue = begin("liar", 4, false);
    struct cluster *cluster = rogue->cluster;
    rogue->taping = true;
    long before[CLUSTER_MAX];
    for (uint32_t i = 0; i < rogue->self; i++)
        before[i] = rogue_memory_kib(cluster, i);
    rogue->beat = lie_far_ahead;
    rogue_moves(rogue, NEW_ROUNDS, held_up_s, "it says that it is a million versions ahead");
    assert_true(rogue_named(rogue, 0, "island d: it says that it has what it does not show", 5));
    assert_true(rogue_logged(rogue, 0, "island d: it says that it has what it does not show", 1));
    for (uint32_t i = 0; i < rogue->self; i++)
        lie_invented_draft(rogue, i);
    rogue_moves(rogue, 4 * NEW_ROUNDS, 2 * held_up_s, "it proposes an epoch that starts there");
    assert_nobody_repairs(rogue);
    rogue->beat = far_step;
    rogue_moves(rogue, NEW_ROUNDS, held_up_s, "it says that it is at step 2^62");
    rogue->beat = other_hash;
    rogue_moves(rogue, NEW_ROUNDS, held_up_s, "it signs another hash");
    assert_true(rogue_logged(rogue, 0, "island d holds another state of fragment", 5));
    rogue->beat = made_up_result;
    rogue->fetched = forged;
    rogue->pause_ms = 10; /* others hold a result for a moment only before they apply it */
    rogue_moves(rogue, NEW_ROUNDS, held_up_s, "it says that it has a result that there is not, and forges it");
    bool seen = false;
    for (uint32_t k = 0; k < 1200 && !seen; k++)
        seen = rogue_logged(rogue, k % rogue->self, "owner 0 from island d is damaged and not used", 0.05);
    assert_true(seen);
    rogue->pause_ms = 100;
    rogue->beat = no_contribution;
    rogue_moves(rogue, 2 * NEW_ROUNDS, held_up_s, "it says that it contributes, and does not");
    assert_true(rogue_named(rogue, 0, "island d: its contributions do not come", 5));
    rogue->epoch_in = false_seal;
    rogue->beat = storm;
    rogue_pass(rogue, 500);
    rogue_moves(rogue, 4 * NEW_ROUNDS, 2 * held_up_s, "ballot after ballot, false seals and broken ones");
    rogue->epoch_in = NULL;
    rogue->beat = other_disks;
    rogue_pass(rogue, 2500); /* so long a doubt may end by itself */
    rogue_moves(rogue, NEW_ROUNDS, held_up_s, "its disk is always another one");
    rogue->beat = NULL;
    forged_configs(rogue);
    huge_objects(rogue);
    unasked_state(rogue);
    flood_of_orders(rogue);
    rogue_moves(rogue, NEW_ROUNDS, held_up_s, "it sends nonsense");
    assert_true(rogue_logged(rogue, 0, "island d sends an order that is refused, to revoke ", 5));
    assert_true(rogue_logged(rogue, 0, "island d sent something we drop", 5));
    assert_true(rogue_named(rogue, 0, "island d: ", 5));
    rogue->taping = false;
    replay(rogue);
    rogue_moves(rogue, NEW_ROUNDS, held_up_s, "it says once more what others said in old epochs");
    assert_true(refused_as_of_another_run(rogue));
    rogue_moves(rogue, NEW_ROUNDS, held_up_s, "it is of another run");
    for (uint32_t i = 0; i < rogue->self; i++)
        assert_in_range(rogue_memory_kib(cluster, i), 0, before[i] + memory_more_kib);
    rogue_end(rogue);
}

/* The run is 9000 steps long: as fast as it says they would be through with it in a second or two. */
static void who_is_ever_further_brings_the_end_no_nearer_than_four_times_as_fast(void **state)
{
    (void)state;
    struct rogue *rogue = begin("liar-step", 4, false);
    uint64_t step[CLUSTER_MAX], trained[CLUSTER_MAX];
    rogue->beat = ever_further;
    for (uint32_t i = 0; i < rogue->self; i++) {
        step[i] = rogue->heard_step[i];
        trained[i] = rogue->heard_trained[i];
    }
    rogue_pass(rogue, 15000);
    for (uint32_t i = 0; i < rogue->self; i++) {
        uint64_t steps = rogue->heard_step[i] - step[i], took = rogue->heard_trained[i] - trained[i];
        print_message("island %u: %" PRIu64 " steps of the run on, of which it trained %" PRIu64 "\n", i, steps, took);
        assert_in_range(took, 50, 1000);
        assert_in_range(steps, 2 * took, 5 * took); /* paces are those of ten seconds */
    }
    rogue_moves(rogue, NEW_ROUNDS, held_up_s, "it says that it is ever further");
    rogue_end(rogue);
}

/* ---- it proposes, and would be the only one that votes ---- */

/* The next configuration as it would have it; mem_free() the bytes. */
static struct paxos_message alone(struct rogue *rogue, uint8_t **bytes)
{
    struct paxos_message message = {.type = WIRE_ACCEPT};
    struct config_log *config_log;
    struct config config;
    assert_ok(config_log_new(&config_log));
    assert_ok(config_store_load(rogue->cluster->island[0].state, NULL, false, config_log));
    assert_ok(config_copy(config_log_last(config_log), &config));
    config.epoch++;
    config.previous = *config_log_last_digest(config_log);
    config.orders_count = config.words_count = config.endorsements_count = 0;
    config.ballot = 0;
    for (uint32_t i = 0; i < config.members_count; i++) {
        struct config_member *member = &config.members[i];
        member->voter = i == rogue->self;
        member->role = i == rogue->self ? CONFIG_OWNER : CONFIG_AWAY;
        if (i != rogue->self)
            endorsed_by(&config, rogue->self, &rogue->ident, i, CONFIG_LEAVES, 0);
    }
    owners_share_out(&config);
    assert_ok(config_check(&config));
    assert_ok(config_pack(&config, bytes, &message.bytes_count));
    message.bytes = *bytes;
    message.epoch = config.epoch;
    config_deinit(&config);
    config_log_free(config_log);
    return message;
}

static void who_proposes_takes_nobody_s_vote(void **state)
{
    (void)state;
    struct rogue *rogue = begin("alone", 4, false);
    struct cluster *cluster = rogue->cluster;
    for (uint64_t counter = 100; counter < 103; counter++) { /* later ones come too fast */
        uint8_t *bytes;
        struct paxos_message accept = alone(rogue, &bytes);
        struct paxos_message prepare = {.type = WIRE_PREPARE, .epoch = accept.epoch};
        accept.ballot = prepare.ballot = counter << 32 | rogue->self;
        rogue_say_paxos(rogue, CLUSTER_MAX, &prepare);
        rogue_pass(rogue, 300);
        for (int k = 0; k < 3; k++) {
            rogue_say_paxos(rogue, CLUSTER_MAX, &accept);
            rogue_pass(rogue, 300);
        }
        mem_free(bytes);
    }
    rogue_moves(rogue, 4 * NEW_ROUNDS, 2 * held_up_s, "it proposes to be the only one that votes");
    for (uint32_t i = 0; i < rogue->self; i++) {
        assert_int_equal(cluster_status_number(cluster, i, "voters"), 4);
        assert_false(cluster_log_has(cluster, i, "is lost", 0));
        assert_true(rogue_logged(rogue, i, "island d proposes a configuration that may not follow ours, and is", 1));
        assert_true(rogue_named(rogue, i, "island d: it proposes configurations that may not follow ours", 1));
    }
    rogue_end(rogue);
}

/* ---- two honest islands, and one that owns shards ---- */

static void one_that_makes_no_result_is_taken_for_lost(void **state)
{
    (void)state;
    struct rogue *rogue = begin("idle", 3, true);
    rogue->works = false;
    rogue_moves(rogue, NEW_ROUNDS, 2 * held_up_s, "it makes no result");
    assert_true(rogue_named(rogue, 0, "island c: it makes no result of its shards", 5));
    assert_true(rogue_logged(rogue, 1, "island c is lost: the run goes on without it", 5));
    rogue_end(rogue);
}

/* To each of the others another one. */
static void two_results(struct rogue *rogue, uint32_t to, uint64_t version, float *values, size_t count)
{
    (void)rogue;
    (void)version;
    for (size_t i = 0; i < count; i++)
        values[i] = (float)(to + 1) * 1e-4f;
}

static bool is_away(struct cluster *cluster, uint32_t by, const char *name)
{
    bool away = false;
    json_t *answer = cluster_ask(cluster, by, "peers"), *row;
    size_t k;
    json_array_foreach (json_object_get(answer, "peers"), k, row)
        if (strcmp(json_string_value(json_object_get(row, "name")), name) == 0)
            away = strcmp(json_string_value(json_object_get(row, "role")), "away") == 0;
    json_decref(answer);
    return away;
}

static void who_signs_two_results_stays_evicted(void **state)
{
    (void)state;
    struct rogue *rogue = begin("two", 3, true);
    struct cluster *cluster = rogue->cluster;
    rogue->result = two_results;
    for (int k = 0; k < 400 && !(is_away(cluster, 0, "c") && is_away(cluster, 1, "c")); k++)
        rogue_pass(rogue, 50);
    assert_true(is_away(cluster, 0, "c") && is_away(cluster, 1, "c"));
    rogue->result = NULL;
    rogue_moves(rogue, NEW_ROUNDS, held_up_s, "it signed two results");
    for (uint32_t i = 0; i < rogue->self; i++)
        assert_true(rogue_named(rogue, i, "island c: it has signed two results of one part", 5));
    for (uint32_t i = 0; i < rogue->self; i++) {
        assert_int_equal(cluster_end(cluster, i, SIGKILL), 128 + SIGKILL);
        proc_kill_trainer(cluster->island[i].state);
    }
    for (uint32_t i = 0; i < rogue->self; i++)
        cluster_start(cluster, i);
    rogue->beat = rogue_as_far; /* it might come back */
    rogue_pass(rogue, 1000);
    rogue_moves(rogue, 3 * NEW_ROUNDS, 2 * held_up_s, "everybody else was started again");
    for (uint32_t i = 0; i < rogue->self; i++) {
        assert_true(is_away(cluster, i, "c"));
        assert_true(rogue_named(rogue, i, "island c: it has signed two results of one part", 5));
    }
    rogue_end(rogue);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lies_hold_nobody_up),
        cmocka_unit_test(who_is_ever_further_brings_the_end_no_nearer_than_four_times_as_fast),
        cmocka_unit_test(who_proposes_takes_nobody_s_vote),
        cmocka_unit_test(one_that_makes_no_result_is_taken_for_lost),
        cmocka_unit_test(who_signs_two_results_stays_evicted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
