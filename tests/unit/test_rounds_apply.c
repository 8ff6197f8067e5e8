/* SPDX-License-Identifier: Apache-2.0 */
/* rounds, as everyone who takes results in: what enters the ledger, the outer step, who is counted by it, and when. */
#include "tests/lib/testlib.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "common/digest.h"
#include "common/log.h"
#include "daemon/rules.h"
#include "daemon/state/results.h"
#include "tests/lib/overhear.h"
#include "tests/lib/rig.h"
#include "tests/lib/roster.h"
#include "tests/lib/shares.h"

enum { VALUES_MAX = 4096 };

static const char exact[] = "codec = fp32\n";
static const char coarse[] = "codec = uniform\nerror_feedback = yes\n";

/* ---- results that come in ---- */

static void assert_judged(struct rig *rig, const struct rig_object *object, enum wire_done done)
{
    const struct event *judged = NULL;
    const struct slot *slot =
        slots_result(rig->slots, object->key.fragment,
                     shares_part(&rig->parts, object->key.fragment, roster_number(object->key.owner)));
    rig_forget(rig);
    rig_bring(rig, roster_number(object->key.owner), object);
    assert_int_equal(rig->posted_count, 0);
    assert_true(slot->busy);
    rig_settle(rig);
    assert_false(slot->busy);
    for (size_t i = 0; i < rig->posted_count; i++)
        if (rig->posted[i].type == EVENT_JUDGED)
            judged = &rig->posted[i];
    assert_non_null(judged);
    assert_int_equal(rig_posted_count(rig, EVENT_JUDGED), 1);
    assert_true(wire_key_equal(&judged->object.key, &object->key));
    assert_int_equal(judged->member, roster_number(object->key.owner));
    assert_int_equal(judged->object.done, done);
    bool good = done == WIRE_RECEIVED;
    assert_int_equal(rig_told_count(rig, SYNC_EV_STORED), good);
    assert_int_equal(rig_has(rig, object->key.fragment, object->key.version, roster_number(object->key.owner)), good);
    if (!good)
        return;
    const struct event *stored = rig_told(rig, SYNC_EV_STORED, object->key.fragment);
    assert_true(stored > judged);
    assert_int_equal(stored->sync.version, object->key.version);
    assert_int_equal(stored->sync.owner, object->key.owner);
}

static void a_result_goes_into_the_ledger_and_is_told(void **state)
{
    (void)state;
    static struct rig_object object;
    struct ledger_map map;
    struct rig *rig = rig_new("apply-in", exact, 3, 1, 0);
    struct bitset members = bitset_first(3);
    rig_result(rig, 1, 2, &members, 0.1f, &object);
    assert_judged(rig, &object, WIRE_RECEIVED);
    struct result_id there;
    assert_true(rig_find(rig, 1, 1, 2, &there));
    assert_ok(ledger_map(rig->ledger, &there, &map));
    assert_int_equal(map.bytes, object.bytes);
    assert_memory_equal(map.object, object.byte, object.bytes);
    ledger_unmap(&map);
    rig_close(rig);
}

static void a_damaged_result_is_refused(void **state)
{
    (void)state;
    static struct rig_object good, bad;
    struct rig *rig = rig_new("apply-damaged", exact, 3, 1, 0);
    struct bitset members = bitset_first(3);
    rig_result(rig, 1, 2, &members, 0.1f, &good);
    const size_t where[] = {0, 4, 9, 20, 30, 50, 66, 90, 120, 168 + 40, 168 + 64 + 700, good.bytes - 1};
    for (size_t i = 0; i < sizeof where / sizeof where[0]; i++) {
        bad = good;
        bad.byte[where[i]] ^= 0x04;
        assert_judged(rig, &bad, WIRE_REFUSED);
    }
    bad = good;
    bad.bytes -= 7;
    assert_judged(rig, &bad, WIRE_REFUSED);
    assert_judged(rig, &good, WIRE_RECEIVED);
    rig_close(rig);
}

static void who_sends_many_damaged_results_fills_no_log(void **state)
{
    (void)state;
    static struct rig_object bad;
    struct rig *rig = rig_new("apply-lines", exact, 3, 1, 0);
    struct bitset members = bitset_first(3);
    rig_result(rig, 1, 2, &members, 0.1f, &bad);
    bad.byte[9] ^= 0x04;
    overhear_begin();
    for (int i = 0; i < 2 * LOG_LINES_OF_ONE; i++)
        assert_judged(rig, &bad, WIRE_REFUSED);
    assert_int_equal(overhear_count(overhear_end(), "is damaged and not used"), LOG_LINES_OF_ONE);
    rig_close(rig);
}

/* Nothing enters the ledger that a restart could not apply. */
static void a_result_that_makes_no_sense_is_refused(void **state)
{
    (void)state;
    static struct rig_object object;
    static float values[VALUES_MAX];
    struct rig *rig = rig_new("apply-nonsense", exact, 3, 1, 0);
    struct plan_shard range = rig_shard(rig, 1, 2);
    size_t count = (size_t)(range.end - range.begin);
    const struct {
        uint64_t step;
        size_t count;
        struct outer_round round;
    } bad[] = {
        {1001, count, {1, 0.9f, 0.4f}}, {10, count - 256, {1, 0.9f, 0.4f}}, {10, count, {0, 0.9f, 0.4f}},
        {10, count, {-1, 0.9f, 0.4f}},  {10, count, {2e6f, 0.9f, 0.4f}},    {10, count, {NAN, 0.9f, 0.4f}},
        {10, count, {1, 1, 0.4f}},      {10, count, {1, -0.1f, 0.4f}},      {10, count, {1, NAN, 0.4f}},
        {10, count, {1, 0.9f, -0.1f}},  {10, count, {1, 0.9f, 2e6f}},       {10, count, {1, 0.9f, INFINITY}},
    };
    const struct wire_key key = {
        .kind = WIRE_RESULT, .fragment = 1, .version = 1, .owner = rig_id(2), .island = rig_id(2)};
    uint8_t contributors[WIRE_CONTRIBUTOR_BYTES];
    struct wire_meta meta = {.contributors_count = 1, .contributors = contributors};
    wire_contributor_put(contributors, 0, &(struct wire_contributor){.tokens = 5});
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        meta.step = bad[i].step;
        memcpy(meta.outer, (float[]){bad[i].round.scale, bad[i].round.momentum, bad[i].round.lr}, sizeof meta.outer);
        rig_seal(rig, &key, &meta, values, bad[i].count, &object);
        assert_judged(rig, &object, WIRE_REFUSED);
    }
    /* A segment of a codec that there is not, in a frame whose digests are right. */
    memcpy(meta.outer, (float[]){1, 0.9f, 0.4f}, sizeof meta.outer);
    meta.step = 10;
    rig_seal(rig, &key, &meta, values, count, &object);
    rig_spoil(&object);
    assert_judged(rig, &object, WIRE_REFUSED);
    rig_seal(rig, &key, &meta, values, count, &object);
    assert_judged(rig, &object, WIRE_RECEIVED);
    rig_close(rig);
}

static void a_result_that_the_disk_refuses_may_come_again(void **state)
{
    (void)state;
    static struct rig_object object;
    struct rlimit limit;
    struct rig *rig = rig_new("apply-full", exact, 3, 1, 0);
    struct bitset members = bitset_first(3);
    rig_result(rig, 1, 2, &members, 0.1f, &object);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = ledger_stats(rig->ledger).bytes + 100;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_judged(rig, &object, WIRE_NOT_YET);
    assert_string_not_equal(rounds_info(rig->rounds).disk_note, "");
    limit.rlim_cur = limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_judged(rig, &object, WIRE_RECEIVED);
    assert_string_equal(rounds_info(rig->rounds).disk_note, "");
    rig_close(rig);
}

/* ---- the outer step ---- */

/* What the ledger's results make of the twin, shard by shard, by outer_opt alone. `round`: the numbers, or NULL for
 * those that came with each. */
static void step_twin(const struct rig *rig, struct replica *twin, uint32_t f, uint64_t version,
                      const struct outer_round *round)
{
    static float delta[VALUES_MAX];
    struct outer_conf conf = rules_outer(&rig->spec);
    for (uint32_t s = 0; s < rig->conf.members; s++) {
        struct plan_shard range = rig_shard(rig, f, s);
        size_t count = (size_t)(range.end - range.begin);
        struct result result;
        float number[WIRE_OUTER_NUMBERS];
        struct result_id there;
        assert_true(rig_find(rig, f, version, s, &there));
        assert_ok(result_open(rig->ledger, &there, &result));
        rig_decode(result.frame, result.frame_bytes, delta, count);
        memcpy(number, result.meta.outer, sizeof number);
        struct outer_round own = {.scale = number[0], .momentum = number[1], .lr = number[2]};
        float *momentum = replica_momentum(twin, f);
        outer_step(&conf, round != NULL ? round : &own, replica_anchor(twin, f) + range.begin,
                   momentum != NULL ? momentum + range.begin : NULL, delta, count);
        result_close(&result);
    }
}

static void assert_same_state(const struct rig *rig, struct replica *twin, uint32_t f)
{
    size_t bytes = rig_values(rig, f) * sizeof(float);
    assert_memory_equal(replica_anchor(rig->replica, f), replica_anchor(twin, f), bytes);
    if (replica_momentum(twin, f) != NULL)
        assert_memory_equal(replica_momentum(rig->replica, f), replica_momentum(twin, f), bytes);
}

/* One thread: a hash taken too early would be taken before the shards. */
static void an_outer_step_is_outer_opts(void **state)
{
    (void)state;
    static const char *const outers[] = {"[outer]\noptimizer = nesterov\nlr = 0.7\nmomentum = 0.8\n",
                                         "[outer]\noptimizer = heavyball\nlr = 0.5\n",
                                         "[outer]\noptimizer = average\n"};
    struct bitset all = bitset_first(3);
    for (size_t k = 0; k < 3; k++) {
        char sync[128];
        snprintf(sync, sizeof sync, "%s%s", exact, outers[k]);
        struct rig *rig = rig_new("apply-step", sync, 3, 1, 1);
        struct replica *twin = rig_twin(rig);
        for (uint64_t version = 1; version <= 3; version++) {
            rig_forget(rig);
            rig_round(rig, 1, &all);
            step_twin(rig, twin, 1, version, NULL);
            assert_same_state(rig, twin, 1);
            const struct event *applied = rig_told(rig, SYNC_EV_APPLIED, 1);
            const struct store_fragment *at = rounds_state(rig->rounds, 1);
            struct digest hash = rig_hash(rig, 1, version);
            assert_non_null(applied);
            assert_true(digest_equal(&applied->sync.hash, &hash));
            assert_true(digest_equal(&at->hash, &hash));
            assert_int_equal(at->version, version);
            assert_int_equal(at->step, 10 * version);
            assert_int_equal(rig_told_count(rig, SYNC_EV_APPLIED), 1);
        }
        assert_int_equal(rounds_step(rig->rounds), 30);
        assert_int_equal(rounds_state(rig->rounds, 0)->version, 0);
        replica_free(twin);
        rig_close(rig);
    }
}

/* CO2's penalty takes the norms of the mean and of the momentum over the whole fragment. */
static void a_penalty_takes_its_norms_over_all_shards(void **state)
{
    (void)state;
    static float mean[VALUES_MAX];
    struct rig *rig = rig_new("apply-penalty",
                              "codec = fp32\noverlap = 10\n[outer]\noptimizer = heavyball\nlr = 0.5\n"
                              "momentum = 0.3\nstaleness_penalty = yes\n",
                              3, 1, 0);
    struct replica *twin = rig_twin(rig);
    struct bitset all = bitset_first(3);
    struct outer_conf conf = rules_outer(&rig->spec);
    for (uint64_t version = 1; version <= 3; version++) {
        double delta = 0, momentum = 0;
        rig_round(rig, 0, &all);
        for (uint32_t s = 0; s < 3; s++) {
            struct result result;
            struct plan_shard range = rig_shard(rig, 0, s);
            size_t count = (size_t)(range.end - range.begin);
            struct result_id there;
            assert_true(rig_find(rig, 0, version, s, &there));
            assert_ok(result_open(rig->ledger, &there, &result));
            rig_decode(result.frame, result.frame_bytes, mean, count);
            delta += outer_square_sum(mean, NULL, count);
            momentum += outer_square_sum(replica_momentum(twin, 0) + range.begin, NULL, count);
            result_close(&result);
        }
        struct outer_round plain = outer_round_of(&conf, version);
        struct outer_round round = outer_round_penalised(plain, (double)plain.lr * sqrt(momentum), sqrt(delta));
        assert_true(version == 1 || round.scale < plain.scale);
        step_twin(rig, twin, 0, version, &round);
        assert_same_state(rig, twin, 0);
    }
    replica_free(twin);
    rig_close(rig);
}

/* A result of our own ledger that is of no use leaves its shard as it was, and counts nobody there: the hash will
 * differ from the others', and the comparison mends it. */
static void a_result_that_cannot_be_applied_leaves_its_shard(void **state)
{
    (void)state;
    static struct rig_object nonsense;
    struct wire_object what;
    struct bitset all = bitset_first(3);
    struct rig *rig = rig_new("apply-useless", exact, 3, 1, 0);
    struct replica *twin = rig_twin(rig);
    struct plan_shard range = rig_shard(rig, 0, 2);
    rig_contribute(rig, 0, 0.01f, 100);
    rig_result(rig, 0, 2, &all, 0.015f, &nonsense);
    rig_spoil(&nonsense);
    rig_append(rig, &nonsense);
    assert_ok(wire_object_peek(nonsense.byte, nonsense.bytes, &what));
    event_post_sync(
        rig->events,
        &(struct sync_event){
            .type = SYNC_EV_STORED, .fragment = 0, .version = 1, .owner = rig_id(2), .hash = what.digest, .member = 2});
    rig_drain(rig);
    rig_bring_contribution(rig, 0, 0, 100, 0.02f);
    rig_bring_contribution(rig, 0, 2, 100, 0.02f);
    overhear_begin();
    rig_bring_result(rig, 0, 0, true);
    assert_non_null(strstr(overhear_end(), "fragment 0, version 1, owner 23 cannot be applied"));
    assert_non_null(rig_told(rig, SYNC_EV_APPLIED, 0));
    assert_int_equal(rig_told_count(rig, SYNC_EV_MADE), 0); /* a restart would not come back to it */
    assert_true((rig_posted(rig, EVENT_COUNTED, 0)->shards & shares_mask(&rig->parts, 0, 2)) == 0);
    assert_memory_equal(replica_anchor(rig->replica, 0) + range.begin, replica_anchor(twin, 0) + range.begin,
                        (range.end - range.begin) * sizeof(float));
    assert_true(replica_anchor(rig->replica, 0)[0] != replica_anchor(twin, 0)[0]);
    struct ledger_commit commit; /* nor is it made again from that */
    assert_int_equal(ledger_commit_of(rig->ledger, 0, 1, &commit), ERR_NOTFOUND);
    replica_free(twin);
    rig_close(rig);
}

/* Of two that the ledger has of one part the one counts that is committed, not the one that came first. */
static void the_result_that_the_core_holds_is_applied(void **state)
{
    (void)state;
    static struct rig_object other;
    struct wire_object what;
    struct ledger_commit commit;
    struct bitset all = bitset_first(3);
    struct rig *rig = rig_new("apply-two", exact, 3, 1, 0);
    rig_contribute(rig, 0, 0.01f, 100);
    rig_result(rig, 0, 2, &all, 0.5f, &other);
    rig_append(rig, &other);
    assert_ok(wire_object_peek(other.byte, other.bytes, &what));
    rig_bring_contribution(rig, 0, 0, 100, 0.02f);
    rig_bring_contribution(rig, 0, 2, 100, 0.02f);
    rig_bring_result(rig, 0, 0, true);
    rig_bring_result(rig, 0, 2, true);
    assert_int_equal(rounds_state(rig->rounds, 0)->version, 1);
    assert_ok(ledger_commit_of(rig->ledger, 0, 1, &commit));
    assert_int_equal(commit.parts_count, 3);
    for (uint32_t p = 0; p < 3; p++)
        assert_false(digest_equal(&commit.parts[p].digest, &what.digest));
    rig_close(rig);
}

/* ---- who is counted ---- */

/* Two islands know what one has trained: it may be told that something counts only where a result says so. */
static void exactly_the_shards_that_name_us_are_counted(void **state)
{
    (void)state;
    const struct bitset naming[] = {{{0}}, RIG_SET(0), RIG_SET(2), RIG_SET(0, 2), {{0}}};
    struct rig *rig = rig_new("apply-counted", exact, 3, 1, 0);
    for (size_t k = 0; k < sizeof naming / sizeof naming[0]; k++) {
        struct bitset named = naming[k];
        rig_forget(rig);
        rig_round(rig, 1, &named);
        bitset_add(&named, 1); /* our own shard's result is made of what we have contributed */
        const struct event *counted = rig_posted(rig, EVENT_COUNTED, 1);
        assert_non_null(counted);
        assert_int_equal(rig_posted_count(rig, EVENT_COUNTED), 1);
        assert_true(counted->shards == shares_masks(&rig->parts, 1, &named));
        /* Nothing is given to the trainer before it is known what of its work the anchor holds. */
        const struct event *made = rig_told(rig, SYNC_EV_MADE, 1);
        assert_true(counted < made && made < rig_told(rig, SYNC_EV_APPLIED, 1));
        assert_non_null(rig_ordered(rig, SYNC_DO_PUBLISH, 1));
    }
    rig_close(rig);
}

/* An older state beside a ledger that goes further, with a gap: what follows the gap is there, and nobody fetches it or
 * makes it again. */
static void results_of_the_next_version_that_are_there_are_told(void **state)
{
    (void)state;
    static struct rig_object later;
    struct bitset all = bitset_first(3);
    struct rig *rig = rig_new("apply-held", coarse, 3, 0, 0);
    rig_result(rig, 1, 1, &all, 0.5f, &later);
    struct wire_object what;
    struct wire_meta meta;
    rig_open_object(&later, &what, &meta);
    what.key.version = 2;
    rig_seal_again(&later, &what, &meta);
    rig_append(rig, &later);
    rig_round(rig, 1, &all);
    struct wire_standing own = sync_own(rig->sync, 1);
    assert_int_equal(own.version, 1);
    rig_assert_held(rig, 1, RIG_SET(1));
    /* Before that is told, nothing is asked for. */
    assert_int_equal(rig_told_count(rig, SYNC_EV_LISTED), 1);
    const struct event *listed = rig_told(rig, SYNC_EV_LISTED, 1), *told = rig_told(rig, SYNC_EV_STORED, 1);
    assert_true(rig_told(rig, SYNC_EV_APPLIED, 1) < told && told < listed && told->sync.version == 2);
    rig_close(rig);
}

static void who_has_not_contributed_is_not_counted(void **state)
{
    (void)state;
    struct rig *rig = rig_new("apply-absent", exact, 3, 1, 0);
    static struct rig_object object;
    struct bitset others = RIG_SET(0, 2);
    for (uint32_t s = 0; s < 3; s++) {
        rig_result(rig, 0, s, &others, 0.1f, &object);
        rig_bring(rig, 0, &object);
        rig_settle(rig);
    }
    assert_int_equal(rounds_state(rig->rounds, 0)->version, 1);
    assert_true(rig_posted(rig, EVENT_COUNTED, 0)->shards == 0);
    rig_close(rig);
}

/* ---- residuals ---- */

/* The twin encodes what the rig has just encoded: the same bytes, if both hold the same residual. */
static void encode_alike(const struct rig *rig, struct replica *twin, uint32_t f)
{
    static uint8_t frame[RIG_OBJECT_BYTES];
    struct codec *codec;
    assert_ok(codec_new(0, &codec));
    for (uint32_t s = 0; s < rig->conf.members; s++) {
        struct wire_meta meta;
        size_t bytes, ours_bytes;
        const uint8_t *ours = rig_open_slot(slots_out(rig->slots, f, s), WIRE_CONTRIBUTION, &meta, &ours_bytes);
        assert_ok(replica_encode(twin, f, shares_mask(&rig->parts, f, s), rig->base[f], rig->theta[f], 1000, codec,
                                 frame, &bytes));
        assert_int_equal(bytes, ours_bytes);
        assert_memory_equal(frame, ours, bytes);
    }
    codec_free(codec);
}

static void a_residual_moves_where_a_result_counts_us(void **state)
{
    (void)state;
    struct rig *rig = rig_new("apply-residual", coarse, 3, 1, 0);
    struct replica *twin = rig_twin(rig);
    size_t count = rig_values(rig, 0);
    const struct bitset naming[] = {{{0}}, RIG_SET(0), RIG_SET(2), RIG_SET(0, 2)};
    for (size_t k = 0; k < sizeof naming / sizeof naming[0]; k++) {
        struct bitset named = naming[k];
        rig_contribute(rig, 0, 0.01f, 1000 * (k + 1));
        encode_alike(rig, twin, 0);
        /* Encoding alone moves nothing. */
        assert_memory_equal(replica_residual(rig->replica, 0), replica_residual(twin, 0), count * sizeof(float));
        rig_bring_contribution(rig, 0, 0, 100, 0.02f);
        rig_bring_contribution(rig, 0, 2, 100, 0.02f);
        rig_bring_result(rig, 0, 0, bitset_has(&named, 0));
        rig_bring_result(rig, 0, 2, bitset_has(&named, 2));
        rig_mixed(rig, 0);
        for (uint32_t s = 0; s < 3; s++)
            if (s == 1 || bitset_has(&named, s))
                replica_commit(twin, 0, shares_mask(&rig->parts, 0, s));
        assert_memory_equal(replica_residual(rig->replica, 0), replica_residual(twin, 0), count * sizeof(float));
        assert_false(rig_all_zero(replica_residual(rig->replica, 0), count));
    }
    rig_contribute(rig, 0, 0.01f, 9000);
    encode_alike(rig, twin, 0);
    replica_free(twin);
    rig_close(rig);
}

/* A result counts a contribution that this process did not encode: we were killed after it went out. What its encoding
 * left over is not known any more, so where it is counted there is none; and where it is not, the one before it holds.
 */
static void assert_forgotten_where_counted(bool killed)
{
    static struct rig_object object;
    static float before[VALUES_MAX];
    struct bitset all = bitset_first(3);
    struct rig *rig = rig_new("apply-forgotten", coarse, 3, 1, 0);
    rig_round(rig, 0, &all);
    rig_round(rig, 0, &all); /* there is a residual before the one that was committed last, too */
    keep_checkpoint(rig->rounds->keep, 0);
    rig_settle(rig);
    if (killed) {
        rig_contribute(rig, 0, 0.03f, 5000);
        rig = rig_again(rig);
        rig_greet(rig);
    }
    assert_int_equal(rounds_state(rig->rounds, 0)->version, 2);
    memcpy(before, replica_residual(rig->replica, 0), rig_values(rig, 0) * sizeof *before);
    assert_false(rig_all_zero(before, rig_values(rig, 0)));
    for (uint32_t s = 0; s < 3; s++) {
        struct bitset members = all;
        if (s == 2)
            bitset_remove(&members, 1);
        rig_result(rig, 0, s, &members, 0.1f, &object);
        rig_bring(rig, 0, &object);
        rig_settle(rig);
    }
    assert_int_equal(rounds_state(rig->rounds, 0)->version, 3);
    const float *after = replica_residual(rig->replica, 0);
    struct plan_shard kept = rig_shard(rig, 0, 2);
    assert_true(rig_all_zero(after, (size_t)kept.begin));
    assert_memory_equal(after + kept.begin, before + kept.begin, (kept.end - kept.begin) * sizeof *after);
    assert_false(rig_all_zero(after + kept.begin, (size_t)(kept.end - kept.begin)));
    rig_close(rig);
}

static void what_is_not_known_any_more_is_not_added(void **state)
{
    (void)state;
    assert_forgotten_where_counted(true);
    assert_forgotten_where_counted(false);
}

/* ---- readers ---- */

enum reader { CHECKPOINT, EXPORT, GIVE, TWO_OF_THEM, READERS };

static void read_anchor(struct rig *rig, enum reader reader)
{
    if (reader == CHECKPOINT || reader == TWO_OF_THEM)
        keep_checkpoint(rig->rounds->keep, 0);
    if (reader == EXPORT)
        keep_export(rig->rounds->keep);
    if (reader == GIVE || reader == TWO_OF_THEM)
        copy_publish(rig->rounds->copy, 0, rig->area[0]);
}

/* All results are there; the last one's job has ended, and the core does not know it yet. */
static struct rig *before_the_last_result(const char *folder)
{
    static struct rig_object object;
    struct bitset all = bitset_first(3);
    struct rig *rig = rig_new(folder, exact, 3, 1, 0);
    rig_contribute(rig, 0, 0.01f, 1000);
    rig_bring_contribution(rig, 0, 0, 100, 0.02f);
    rig_bring_contribution(rig, 0, 2, 100, 0.02f);
    rig_bring_result(rig, 0, 0, true);
    rig_result(rig, 0, 2, &all, 0.1f, &object);
    rig_bring(rig, 2, &object);
    rig_wait_ended(rig);
    return rig;
}

static void an_outer_step_waits_for_readers(void **state)
{
    (void)state;
    for (enum reader reader = 0; reader < READERS; reader++) {
        struct rig *rig = before_the_last_result("apply-readers");
        struct replica *twin = rig_twin(rig);
        rig_forget(rig);
        read_anchor(rig, reader);
        rig_withdraw(rig); /* the last result, and the order to apply */
        assert_int_equal(rig_ordered_count(rig, SYNC_DO_APPLY), 1);
        assert_int_equal(rig_posted_count(rig, EVENT_UNREAD), 0);
        assert_int_equal(jobs_pending(rig->jobs), reader == TWO_OF_THEM ? 2 : 1);
        assert_same_state(rig, twin, 0);
        rig->hold_unread = true;
        rig_settle(rig);
        assert_int_equal(rig_posted_count(rig, EVENT_UNREAD), reader == EXPORT ? RIG_FRAGMENTS : 1);
        assert_int_equal(jobs_pending(rig->jobs), 0); /* not before it is told that it may */
        assert_same_state(rig, twin, 0);
        rig->hold_unread = false;
        for (int i = 0; i < 2; i++)
            rounds_unread(rig->rounds, 0);
        rig_settle(rig);
        rounds_unread(rig->rounds, 0);
        rig_settle(rig);
        step_twin(rig, twin, 0, 1, NULL);
        assert_same_state(rig, twin, 0); /* once */
        assert_int_equal(rig_told_count(rig, SYNC_EV_APPLIED), 1);
        assert_int_equal(rig_posted_count(rig, EVENT_COUNTED), 1);
        replica_free(twin);
        rig_close(rig);
    }
}

/* Another reader came between EVENT_UNREAD and its answer. */
static void an_outer_step_waits_for_a_reader_that_came_later(void **state)
{
    (void)state;
    struct rig *rig = before_the_last_result("apply-later");
    struct replica *twin = rig_twin(rig);
    rig->hold_unread = true;
    keep_checkpoint(rig->rounds->keep, 0);
    rig_withdraw(rig);
    rig_withdraw(rig);
    assert_int_equal(rig_posted_count(rig, EVENT_UNREAD), 1);
    rig_withdraw(rig); /* the checkpoint is flushed */
    copy_publish(rig->rounds->copy, 0, rig->area[0]);
    rounds_unread(rig->rounds, 0);
    assert_int_equal(jobs_pending(rig->jobs), 1);
    rig->hold_unread = false;
    rig_settle(rig);
    assert_memory_equal(rig->area[0], replica_anchor(rig->replica, 0), 4); /* given anew after the step */
    step_twin(rig, twin, 0, 1, NULL);
    assert_same_state(rig, twin, 0);
    replica_free(twin);
    rig_close(rig);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_result_goes_into_the_ledger_and_is_told),
        cmocka_unit_test(a_damaged_result_is_refused),
        cmocka_unit_test(who_sends_many_damaged_results_fills_no_log),
        cmocka_unit_test(a_result_that_makes_no_sense_is_refused),
        cmocka_unit_test(a_result_that_the_disk_refuses_may_come_again),
        cmocka_unit_test(an_outer_step_is_outer_opts),
        cmocka_unit_test(a_penalty_takes_its_norms_over_all_shards),
        cmocka_unit_test(a_result_that_cannot_be_applied_leaves_its_shard),
        cmocka_unit_test(the_result_that_the_core_holds_is_applied),
        cmocka_unit_test(exactly_the_shards_that_name_us_are_counted),
        cmocka_unit_test(results_of_the_next_version_that_are_there_are_told),
        cmocka_unit_test(who_has_not_contributed_is_not_counted),
        cmocka_unit_test(a_residual_moves_where_a_result_counts_us),
        cmocka_unit_test(what_is_not_known_any_more_is_not_added),
        cmocka_unit_test(an_outer_step_waits_for_readers),
        cmocka_unit_test(an_outer_step_waits_for_a_reader_that_came_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
