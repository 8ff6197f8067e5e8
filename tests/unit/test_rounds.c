/* SPDX-License-Identifier: Apache-2.0 */
/* rounds, as an island that contributes and owns: what goes out, what comes in, what is made of it and when it is told.
 */
#include "tests/lib/testlib.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/log.h"
#include "daemon/rules.h"
#include "tests/lib/overhear.h"
#include "tests/lib/rig.h"
#include "tests/lib/roster.h"
#include "tests/lib/shares.h"

static const char exact[] = "codec = fp32\n";
static const char coarse[] = "codec = uniform\nerror_feedback = yes\n";

/* The ledger's flushes, counted; or refused, as by a disk that has failed. */
static _Atomic int flushes;
static _Atomic bool flush_fails;

int fdatasync(int fd)
{
    flushes++;
    if (!flush_fails)
        return (int)syscall(SYS_fdatasync, fd);
    errno = EIO;
    return -1;
}

int fsync(int fd)
{
    errno = EIO;
    return flush_fails ? -1 : (int)syscall(SYS_fsync, fd);
}

/* ---- encode ---- */

static void a_contribution_is_base_minus_theta(void **state)
{
    (void)state;
    struct rig *rig = rig_new("rounds-encode", exact, 3, 1, 0);
    for (uint32_t f = 0; f < RIG_FRAGMENTS; f++) {
        rig_train(rig, f, 5, 0.25f);
        rig_snapshot(rig, f, 17, 900);
        assert_true(slots_out(rig->slots, f, 0)->busy);
        rig_settle(rig);
        const struct event *encoded = rig_posted(rig, EVENT_ENCODED, f);
        assert_non_null(encoded);
        assert_int_equal(encoded->err, ERR_OK);
        for (uint32_t s = 0; s < 3; s++) {
            struct wire_meta meta;
            size_t frame_bytes;
            const struct slot *slot = slots_out(rig->slots, f, s);
            const uint8_t *frame = rig_open_slot(slot, WIRE_CONTRIBUTION, &meta, &frame_bytes);
            struct plan_shard range = rig_shard(rig, f, s);
            size_t count = (size_t)(range.end - range.begin);
            float *values = calloc(count, sizeof *values);
            rig_decode(frame, frame_bytes, values, count);
            for (size_t i = 0; i < count; i++)
                assert_true(values[i] == rig->base[f][range.begin + i] - rig->theta[f][range.begin + i]);
            free(values);
            assert_int_equal(slot->version, 1);
            assert_int_equal(meta.step, 17);
            assert_int_equal(meta.tokens, 900);
            assert_true(digest_equal(&meta.base_hash, &rounds_state(rig->rounds, f)->hash));
        }
    }
    assert_int_equal(rig_posted_count(rig, EVENT_ENCODED), RIG_FRAGMENTS);
    assert_int_equal(rig_ordered_count(rig, SYNC_DO_SEND), 2 * RIG_FRAGMENTS);
    rig_close(rig);
}

static void a_contribution_weighs_the_tokens_not_counted_yet(void **state)
{
    (void)state;
    static const uint64_t counted[] = {400, 1000, 1500}, weight[] = {600, 1, 1};
    struct rig *rig = rig_new("rounds-weight", exact, 3, 0, 0);
    for (uint32_t s = 0; s < rig->plan->plan->fragments[1].shards_count; s++)
        for (uint32_t i = 0; i < 3; i++)
            if ((shares_mask(&rig->parts, 1, i) >> s & 1) != 0)
                rig->snapshot[1].counted_tokens[s] = counted[i];
    rig_contribute(rig, 1, 0.1f, 1000);
    for (uint32_t s = 0; s < 3; s++) {
        struct wire_meta meta;
        size_t frame_bytes;
        rig_open_slot(slots_out(rig->slots, 1, s), WIRE_CONTRIBUTION, &meta, &frame_bytes);
        assert_int_equal(meta.tokens, weight[s]);
    }
    rig_close(rig);
}

static void a_nan_is_refused_and_its_tensor_named(void **state)
{
    (void)state;
    struct rig *rig = rig_new("rounds-nan", exact, 3, 0, 0);
    rig_train(rig, 1, 5, 0.25f);
    rig->theta[1][8 * 128 + 300] = NAN; /* beyond the fragment's first tensor */
    overhear_begin();
    rig_snapshot(rig, 1, 10, 100);
    rig_settle(rig);
    assert_non_null(strstr(overhear_end(), "tensor second holds NaN or Inf"));
    assert_int_equal(rig_posted_count(rig, EVENT_ENCODED), 1);
    assert_int_equal(rig_posted(rig, EVENT_ENCODED, 1)->err, ERR_NONFINITE);
    assert_int_equal(rig_ordered_count(rig, SYNC_DO_SEND), 0);
    assert_non_null(rig_ordered(rig, SYNC_DO_RELEASE, 1));
    /* The next one is judged by itself. */
    rig_forget(rig);
    rig_contribute(rig, 1, 0.25f, 200);
    assert_int_equal(rig_posted(rig, EVENT_ENCODED, 1)->err, ERR_OK);
    assert_int_equal(rig_ordered_count(rig, SYNC_DO_SEND), 2);
    rig_close(rig);
}

/* ---- contributions to our shard ---- */

/* What became of the last object of that member, told before the core learns of it. */
static enum wire_done judged(const struct rig *rig, const struct rig_object *object, enum sync_event_type told)
{
    const struct event *judged = rig_posted(rig, EVENT_JUDGED, 0);
    const struct event *core = rig_told(rig, told, object->key.fragment);
    for (size_t i = 0; i < rig->posted_count; i++)
        if (rig->posted[i].type == EVENT_JUDGED)
            judged = &rig->posted[i];
    assert_int_equal(rig_posted_count(rig, EVENT_JUDGED), 1);
    assert_true(wire_key_equal(&judged->object.key, &object->key));
    assert_int_equal(rig_id(judged->member), object->key.island);
    assert_non_null(core);
    assert_true(core > judged);
    assert_int_equal(core->sync.version, object->key.version);
    assert_int_equal(rig_id(core->sync.member), object->key.island);
    return judged->object.done;
}

static void assert_refused(struct rig *rig, const struct rig_object *object)
{
    rig_forget(rig);
    rig_bring(rig, roster_number(object->key.island), object);
    assert_true(slots_in(rig->slots, object->key.fragment, roster_number(object->key.island))->busy);
    rig_settle(rig);
    assert_false(slots_in(rig->slots, object->key.fragment, roster_number(object->key.island))->busy);
    assert_int_equal(judged(rig, object, SYNC_EV_CONTRIBUTION_REFUSED), WIRE_REFUSED);
    assert_int_equal(rig_told_count(rig, SYNC_EV_CONTRIBUTION), 0);
    assert_false(bitset_has(&sync_owner(rig->sync, object->key.fragment)->have, roster_number(object->key.island)));
}

static void a_good_contribution_is_received_and_told(void **state)
{
    (void)state;
    static struct rig_object object;
    struct rig *rig = rig_new("rounds-good", exact, 3, 1, 0);
    rig_contribution(rig, 1, 2, 500, 0.1f, &object);
    rig_bring(rig, 2, &object);
    assert_int_equal(rig_posted_count(rig, EVENT_JUDGED), 0); /* not before it was looked at */
    rig_settle(rig);
    assert_int_equal(judged(rig, &object, SYNC_EV_CONTRIBUTION), WIRE_RECEIVED);
    assert_int_equal(slots_in(rig->slots, 1, 2)->version, 1);
    assert_true(bitset_has(&sync_owner(rig->sync, 1)->have, 2));
    rig_close(rig);
}

static void a_damaged_contribution_is_refused(void **state)
{
    (void)state;
    static struct rig_object good, bad;
    struct rig *rig = rig_new("rounds-damaged", exact, 3, 1, 0);
    rig_contribution(rig, 0, 2, 500, 0.1f, &good);
    /* Magic, kind, frame's length, digest; the frame's own header and payload; metadata. */
    const size_t where[] = {0, 4, 9, 20, 50, 90, 48 + 48 + 700, good.bytes - 1};
    for (size_t i = 0; i < sizeof where / sizeof where[0]; i++) {
        bad = good;
        bad.byte[where[i]] ^= 0x04;
        assert_refused(rig, &bad);
    }
    bad = good;
    bad.bytes -= 7;
    assert_refused(rig, &bad);
    bad.bytes = 3;
    assert_refused(rig, &bad);
    /* It may come again. */
    rig_forget(rig);
    rig_bring(rig, 2, &good);
    rig_settle(rig);
    assert_int_equal(judged(rig, &good, SYNC_EV_CONTRIBUTION), WIRE_RECEIVED);
    rig_close(rig);
}

/* Each is refused; people are told of some. */
static void who_sends_many_damaged_ones_fills_no_log(void **state)
{
    (void)state;
    enum { TIMES = 2 * LOG_LINES_OF_ONE };
    static struct rig_object bad;
    struct rig *rig = rig_new("rounds-lines", exact, 3, 1, 0);
    rig_contribution(rig, 0, 2, 500, 0.1f, &bad);
    bad.byte[9] ^= 0x04;
    overhear_begin();
    for (int i = 0; i < TIMES; i++)
        assert_refused(rig, &bad);
    assert_int_equal(overhear_count(overhear_end(), "is damaged and not counted"), LOG_LINES_OF_ONE);
    rig_close(rig);
}

static void a_contribution_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    static struct rig_object object;
    static float values[4096];
    struct rig *rig = rig_new("rounds-unfit", exact, 3, 1, 0);
    const struct digest ours = rounds_state(rig->rounds, 0)->hash;
    struct digest other = ours;
    other.byte[7] ^= 1;
    struct plan_shard range = rig_shard(rig, 0, 1);
    size_t count = (size_t)(range.end - range.begin);
    const struct {
        struct wire_meta meta;
        size_t count;
        const char *why;
    } unfit[] = {
        {{.tokens = 5, .step = 10, .base_hash = other}, count, "from another version 0 than ours"},
        {{.tokens = 5, .step = 1001, .base_hash = ours}, count, "step 1001 of a run of 1000"},
        {{.tokens = 5, .step = 10, .base_hash = ours}, count - 256, "values where"},
    };
    const struct wire_key key = {.kind = WIRE_CONTRIBUTION, .version = 1, .owner = rig_id(1), .island = rig_id(2)};
    for (size_t i = 0; i < sizeof unfit / sizeof unfit[0]; i++) {
        rig_seal(rig, &key, &unfit[i].meta, values, unfit[i].count, &object);
        overhear_begin();
        assert_refused(rig, &object);
        const char *said = overhear_end();
        assert_non_null(strstr(said, "cedar")); /* whose it was */
        assert_non_null(strstr(said, unfit[i].why));
    }
    rig_close(rig);
}

/* It was made when the run was longer, or where that is known already. */
static void a_contribution_may_name_any_step_that_the_run_has_had(void **state)
{
    (void)state;
    static struct rig_object object;
    static float values[4096];
    struct rig *rig = rig_new("rounds-longer", exact, 3, 1, 0);
    struct wire_meta meta = {.tokens = 5, .step = 1001, .base_hash = rounds_state(rig->rounds, 0)->hash};
    struct plan_shard range = rig_shard(rig, 0, 1);
    const struct wire_key key = {.kind = WIRE_CONTRIBUTION, .version = 1, .owner = rig_id(1), .island = rig_id(2)};
    rig_seal(rig, &key, &meta, values, (size_t)(range.end - range.begin), &object);
    assert_refused(rig, &object);
    rounds_steps_most(rig->rounds, 1001);
    rig_forget(rig);
    rig_bring(rig, 2, &object);
    rig_settle(rig);
    assert_int_equal(judged(rig, &object, SYNC_EV_CONTRIBUTION), WIRE_RECEIVED);
    rig_close(rig);
}

/* ---- reduce ---- */

/* The values and metadata of our shard's result as it lies in its slot. */
static size_t own_result(const struct rig *rig, uint32_t f, struct wire_meta *meta, float *values)
{
    size_t frame_bytes;
    const uint8_t *frame = rig_open_slot(slots_own(rig->slots, f), WIRE_RESULT, meta, &frame_bytes);
    struct plan_shard range = rig_shard(rig, f, rig->conf.self);
    rig_decode(frame, frame_bytes, values, (size_t)(range.end - range.begin));
    return (size_t)(range.end - range.begin);
}

/* What a member's contribution in our slots says. */
static void contribution_of(const struct rig *rig, uint32_t f, uint32_t member, float *values)
{
    struct wire_meta meta;
    size_t frame_bytes;
    bool ours = member == rig->conf.self;
    const struct slot *slot = ours ? slots_out(rig->slots, f, member) : slots_in(rig->slots, f, member);
    const uint8_t *frame = rig_open_slot(slot, WIRE_CONTRIBUTION, &meta, &frame_bytes);
    struct plan_shard range = rig_shard(rig, f, rig->conf.self);
    rig_decode(frame, frame_bytes, values, (size_t)(range.end - range.begin));
}

/* The weighted mean in the members' order, one rounding an operation. */
static void assert_mean(const struct rig *rig, uint32_t f, const uint32_t *members, const float *weights,
                        size_t members_count)
{
    static float sum[4096], values[4096], got[4096];
    struct wire_meta meta;
    size_t count = own_result(rig, f, &meta, got);
    memset(sum, 0, sizeof sum);
    for (size_t k = 0; k < members_count; k++) {
        contribution_of(rig, f, members[k], values);
        for (size_t i = 0; i < count; i++)
            sum[i] = sum[i] + weights[k] * values[i];
    }
    outer_mean_finish(sum, count, weights, members_count);
    assert_memory_equal(sum, got, count * sizeof *got);
}

/* Own step: 10, of three owners. The run is 1000 steps long. */
static uint64_t step_named(const char *name, uint64_t line, uint64_t one, uint64_t other)
{
    static struct rig_object object;
    static float values[4096];
    struct wire_meta meta;
    struct rig *rig = rig_new(name, exact, 3, 1, 0);
    rig->hold = 1u << SYNC_DO_STORE;
    rig->step_line = line;
    rig_tick(rig, 1);
    rig_contribute(rig, 0, 0.3f, 100);
    for (uint32_t member = 0; member < 3; member++) {
        struct wire_meta theirs = {
            .tokens = 100, .step = member == 0 ? one : other, .base_hash = rounds_state(rig->rounds, 0)->hash};
        struct plan_shard range = rig_shard(rig, 0, 1);
        const struct wire_key key = {
            .kind = WIRE_CONTRIBUTION, .version = 1, .owner = rig_id(1), .island = rig_id(member)};
        if (member == rig->conf.self)
            continue;
        rig_seal(rig, &key, &theirs, values, (size_t)(range.end - range.begin), &object);
        rig_bring(rig, member, &object);
        rig_settle(rig);
    }
    own_result(rig, 0, &meta, values);
    assert_int_equal(meta.contributors_count, 3);
    uint64_t step = meta.step;
    rig_close(rig);
    return step;
}

/* A contributor that lies would else have everybody believe that the run is near its end. */
static void one_contribution_alone_moves_the_run_no_further_than_it_can_be(void **state)
{
    (void)state;
    assert_int_equal(step_named("rounds-step-small", 0, 3, 7), 10);
    assert_int_equal(step_named("rounds-step-near", 40, 40, 7), 40);
    assert_int_equal(step_named("rounds-step-far", 40, 999, 7), 40);
    assert_int_equal(step_named("rounds-step-last", 40, 7, 999), 40);
    assert_int_equal(step_named("rounds-step-own", 0, 999, 7), 10);
    assert_int_equal(step_named("rounds-step-two", 40, 998, 999), 998); /* most owners say so */
}

/* Where the round closed without all others, us too. */
static void who_contributes_alone_is_no_measure_of_itself(void **state)
{
    (void)state;
    static struct rig_object object;
    static float values[4096];
    struct wire_meta meta;
    struct rig *rig = rig_new("rounds-step-alone", exact, 3, 1, 0);
    rig->hold = 1u << SYNC_DO_REDUCE;
    rig->step_line = 40;
    rig_tick(rig, 1);
    rig_contribute(rig, 0, 0.3f, 100);
    struct wire_meta theirs = {.tokens = 100, .step = 999, .base_hash = rounds_state(rig->rounds, 0)->hash};
    struct plan_shard range = rig_shard(rig, 0, 1);
    const struct wire_key key = {.kind = WIRE_CONTRIBUTION, .version = 1, .owner = rig_id(1), .island = rig_id(0)};
    rig_seal(rig, &key, &theirs, values, (size_t)(range.end - range.begin), &object);
    rig_bring(rig, 0, &object);
    rig_settle(rig);
    struct bitset have = RIG_SET(0);
    reduce_begin(rig->rounds->reduce, 0, 1, &have);
    rig_settle(rig);
    own_result(rig, 0, &meta, values);
    assert_int_equal(meta.contributors_count, 1);
    assert_int_equal(meta.step, 40);
    rig_close(rig);
}

static void a_result_is_the_mean_weighted_by_tokens(void **state)
{
    (void)state;
    static float values[4096];
    struct wire_meta meta;
    struct rig *rig = rig_new("rounds-mean", exact, 2, 1, 0);
    rig->hold = 1u << SYNC_DO_STORE;
    rig_contribute(rig, 1, 0.3f, 301);
    rig_bring_contribution(rig, 1, 0, 99, 0.1f);
    assert_int_equal(rig_told_count(rig, SYNC_EV_REDUCED), 1);
    assert_mean(rig, 1, (uint32_t[]){0, 1}, (float[]){99, 301}, 2);
    own_result(rig, 1, &meta, values);
    assert_int_equal(meta.contributors_count, 2);
    assert_int_equal(wire_meta_contributor(&meta, 0).id, rig_id(0));
    assert_int_equal(wire_meta_contributor(&meta, 0).tokens, 99);
    assert_int_equal(wire_meta_contributor(&meta, 1).id, rig_id(1));
    assert_int_equal(wire_meta_contributor(&meta, 1).tokens, 301);
    assert_int_equal(meta.step, 10);
    struct outer_round round = rules_round(&rig->spec, RIG_FRAGMENTS, 1, 1, 0, 10);
    assert_memory_equal(meta.outer, ((float[]){round.scale, round.momentum, round.lr}), sizeof meta.outer);
    rig_close(rig);
}

static void a_result_holds_those_it_was_ordered_from(void **state)
{
    (void)state;
    static float values[4096];
    struct wire_meta meta;
    struct rig *rig = rig_new("rounds-have", exact, 3, 0, 0);
    rig->hold = 1u << SYNC_DO_REDUCE;
    rig_contribute(rig, 0, 0.3f, 300);
    rig_bring_contribution(rig, 0, 1, 100, 0.1f);
    rig_bring_contribution(rig, 0, 2, 200, 0.2f);
    struct bitset have = RIG_SET(0, 2);
    reduce_begin(rig->rounds->reduce, 0, 1, &have);
    rig_settle(rig);
    assert_mean(rig, 0, (uint32_t[]){0, 2}, (float[]){300, 200}, 2);
    own_result(rig, 0, &meta, values);
    assert_int_equal(meta.contributors_count, 2);
    assert_int_equal(wire_meta_contributor(&meta, 1).id, rig_id(2));
    rig_close(rig);
}

/* It came when our own hash was not known yet, and was taken in. */
static void a_base_that_could_not_be_compared_is_compared_before_the_mean(void **state)
{
    (void)state;
    static struct rig_object object;
    static float values[4096];
    struct wire_object what;
    struct wire_meta meta;
    struct rig *rig = rig_new("rounds-early", exact, 3, 0, 0);
    rig->hold = 1u << SYNC_DO_REDUCE;
    rig_contribute(rig, 0, 0.3f, 300);
    rig_bring_contribution(rig, 0, 1, 100, 0.1f);
    rig_bring_contribution(rig, 0, 2, 200, 0.2f);
    rig_contribution(rig, 0, 2, 200, 0.2f, &object);
    rig_open_object(&object, &what, &meta);
    meta.base_hash.byte[7] ^= 1;
    rig_seal_again(&object, &what, &meta);
    struct slot *slot = slots_in(rig->slots, 0, 2);
    assert_int_equal(slot->bytes, object.bytes);
    memcpy(slot->data, object.byte, object.bytes);
    rig->hold = 1u << SYNC_DO_STORE;
    struct bitset have = RIG_SET(0, 1, 2);
    reduce_begin(rig->rounds->reduce, 0, 1, &have);
    rig_settle(rig);
    const struct event *dropped = rig_told(rig, SYNC_EV_DROPPED, 0);
    assert_non_null(dropped);
    assert_int_equal(dropped->sync.member, 2);
    assert_mean(rig, 0, (uint32_t[]){0, 1}, (float[]){300, 100}, 2); /* the round goes on with the others */
    own_result(rig, 0, &meta, values);
    assert_int_equal(meta.contributors_count, 2);
    rig_close(rig);
}

/* What is lossless behind the codec changes bytes, and no value. */
static void zstd_is_used_where_the_run_has_it(void **state)
{
    (void)state;
    size_t bytes[2];
    for (int level = 0; level < 2; level++) {
        struct rig_conf conf = {
            .folder = testlib_folder("rounds-zstd"), .sync = exact, .members = 2, .zstd_level = level};
        struct rig *rig = rig_open(&conf);
        rig_begin(rig);
        assert_int_equal(rounds_info(rig->rounds).compressing, level > 0);
        rig_contribute(rig, 0, 0.5f, 100);
        rig_bring_contribution(rig, 0, 1, 100, 0.5f);
        bytes[level] = slots_out(rig->slots, 0, 1)->bytes + slots_own(rig->slots, 0)->bytes;
        assert_mean(rig, 0, (uint32_t[]){0, 1}, (float[]){100, 100}, 2);
        rig_close(rig);
    }
    assert_true(bytes[1] < bytes[0]);
}

static void assert_outliers(const struct rig *rig, uint32_t member, uint64_t all, unsigned lately)
{
    unsigned said;
    assert_int_equal(rounds_outliers(rig->rounds, member, &said), all);
    assert_int_equal(said, lately);
}

static void what_runs_away_is_left_out_and_counted(void **state)
{
    (void)state;
    static float values[4096];
    struct wire_meta meta;
    struct rig *rig = rig_new("rounds-outlier", "codec = fp32\noutliers = drop\n", 3, 0, 0);
    rig_contribute(rig, 0, 0.01f, 300);
    rig_bring_contribution(rig, 0, 1, 100, 0.012f);
    rig_bring_contribution(rig, 0, 2, 200, 10);
    assert_mean(rig, 0, (uint32_t[]){0, 1}, (float[]){150, 100}, 2); /* half of what the others weigh */
    own_result(rig, 0, &meta, values);
    assert_int_equal(meta.contributors_count, 3); /* counted, with no weight */
    assert_int_equal(wire_meta_contributor(&meta, 1).tokens, 100);
    struct wire_contributor left_out = wire_meta_contributor(&meta, 2), counts = wire_meta_contributor(&meta, 1);
    assert_int_equal(left_out.tokens, 200);
    assert_true(left_out.factor == 0 && testlib_bits_float(left_out.weight) == 200 &&
                testlib_bits_float(left_out.norm) > 100);
    assert_true(testlib_bits_float(counts.factor) == 1 && testlib_bits_float(counts.weight) == 100);
    assert_true(testlib_bits_float(counts.norm) > 0 && testlib_bits_float(counts.norm) < 1);
    overhear_begin();
    rig_bring_result(rig, 0, 1, true);
    rig_bring_result(rig, 0, 2, true);
    assert_non_null(strstr(overhear_end(), "is far larger than the others'; left out"));
    /* Of our part three fifths, of the others' a third: what Eager takes ahead. */
    double own = (double)(rig_shard(rig, 0, 0).end - rig_shard(rig, 0, 0).begin), all = (double)rig_values(rig, 0);
    assert_float_equal(rig_posted(rig, EVENT_COUNTED, 0)->share, (0.6 * own + (all - own) / 3) / all, 1e-6);
    assert_outliers(rig, 0, 0, 0);
    assert_outliers(rig, 1, 0, 0);
    assert_outliers(rig, 2, 1, 1);
    rig_close(rig);
}

/* What weighs nothing is counted all the same; and comes back. */
static void who_points_elsewhere_in_five_rounds_weighs_nothing(void **state)
{
    (void)state;
    static float values[4096];
    struct wire_meta meta;
    struct bitset all = bitset_first(3);
    struct rig *rig = rig_new("rounds-turned", "codec = fp32\n", 3, 0, 0);
    rig->cosine[2] = -0.3f; /* by the owners of most of it */
    for (int version = 1; version <= 5; version++)
        for (uint32_t f = 0; f < RIG_FRAGMENTS; f++) {
            bool before = rounds_turned_away(rig->rounds, 2); /* one fragment may be most of the model */
            assert_true(!before || (version == 5 && f > 0));
            overhear_begin();
            rig_round(rig, f, &all);
            bool said = strstr(overhear_end(), "have pointed away from the others' in 5 rounds running; they") != NULL;
            assert_true(said == (rounds_turned_away(rig->rounds, 2) && !before));
        }
    assert_true(rounds_turned_away(rig->rounds, 2) && !rounds_turned_away(rig->rounds, 1));
    rig->cosine[2] = -0.19f;
    for (int version = 6; version <= 10; version++)
        for (uint32_t f = 0; f < RIG_FRAGMENTS; f++) {
            rig_contribute(rig, f, 0.01f, 100);
            rig_bring_contribution(rig, f, 1, 300, 0.012f);
            rig_bring_contribution(rig, f, 2, 200, 0.012f);
            own_result(rig, f, &meta, values);
            bool away = rounds_turned_away(rig->rounds, 2);
            assert_int_equal(meta.contributors_count, 3);
            struct wire_contributor two = wire_meta_contributor(&meta, 2);
            assert_true((testlib_bits_float(two.weight) == 0) == away && two.tokens == 200);
            rig_bring_result(rig, f, 1, true);
            rig_bring_result(rig, f, 2, true);
            rig_mixed(rig, f);
        }
    assert_false(rounds_turned_away(rig->rounds, 2));
    rig_close(rig);
}

static void less_than_half_of_the_model_turns_nobody_away(void **state)
{
    (void)state;
    struct bitset all = bitset_first(3);
    struct rig *rig = rig_new("rounds-turned-half", "codec = fp32\n", 3, 0, 0);
    uint32_t smaller = rig_values(rig, 0) < rig_values(rig, 1) ? 0 : 1;
    assert_true(rig_values(rig, smaller) < rig_values(rig, 1 - smaller));
    for (int version = 1; version <= 7; version++) {
        rig->cosine[2] = -0.19f;
        rig_round(rig, 1 - smaller, &all);
        rig->cosine[2] = -0.3f;
        rig_round(rig, smaller, &all);
    }
    assert_false(rounds_turned_away(rig->rounds, 2));
    for (int version = 1; version <= 5; version++)
        rig_round(rig, 1 - smaller, &all);
    assert_true(rounds_turned_away(rig->rounds, 2));
    rig_close(rig);
}

/* A part of it from the checkpoint, a part from the ledger. */
static void who_points_elsewhere_is_known_after_a_restart(void **state)
{
    (void)state;
    struct bitset all = bitset_first(3);
    struct rig *rig = rig_new("rounds-turned-again", "codec = fp32\n", 3, 0, 0);
    rig->cosine[2] = -0.3f;
    for (int version = 1; version <= 5; version++)
        for (uint32_t f = 0; f < RIG_FRAGMENTS; f++) {
            rig_round(rig, f, &all);
            if (version == 3)
                keep_checkpoint(rig->rounds->keep, f);
            rig_settle(rig);
        }
    struct digest hash = rounds_state(rig->rounds, 0)->hash;
    rig = rig_again(rig);
    assert_true(rounds_turned_away(rig->rounds, 2) && !rounds_turned_away(rig->rounds, 1));
    assert_int_equal(rounds_state(rig->rounds, 0)->version, 5);
    assert_true(digest_equal(&rounds_state(rig->rounds, 0)->hash, &hash));
    rig_close(rig);
}

/* A wrong token counter in one loop; its work is accounted for as it says. */
static void a_wrong_token_counter_does_not_own_the_mean(void **state)
{
    (void)state;
    static float values[4096];
    struct wire_meta meta;
    struct rig *rig = rig_new("rounds-tokens", "codec = fp32\n", 3, 0, 0);
    rig_contribute(rig, 0, 0.01f, 100);
    rig_bring_contribution(rig, 0, 1, 100, 0.012f);
    rig_bring_contribution(rig, 0, 2, (uint64_t)1 << 62, 0.011f);
    assert_mean(rig, 0, (uint32_t[]){0, 1, 2}, (float[]){100, 100, 100}, 3);
    own_result(rig, 0, &meta, values);
    assert_true(wire_meta_contributor(&meta, 2).tokens == (uint64_t)1 << 62);
    assert_true(testlib_bits_float(wire_meta_contributor(&meta, 2).weight) == 100);
    assert_true(wire_meta_contributor(&meta, 2).factor == WIRE_FACTOR_ONE);
    rig_close(rig);
}

/* How many rounds a member missed is what results say, up to the last version. */
static void who_missed_a_round_may_weigh_as_two(void **state)
{
    (void)state;
    struct bitset naming_us = bitset_first(2);
    struct rig *rig = rig_new("rounds-missed", "codec = fp32\n", 2, 0, 0);
    rig_round(rig, 0, &naming_us);
    rig_round(rig, 0, &naming_us);
    uint8_t row[WIRE_CONTRIBUTOR_BYTES];
    struct wire_meta only_first = {.contributors = row, .contributors_count = 1};
    wire_contributor_put(row, 0, &(struct wire_contributor){.id = rig_id(1)});
    assert_ok(dedup_note(replica_counted(rig->replica, 0), ~0ull, 1, &only_first));
    rig_contribute(rig, 0, 0.01f, 100);
    struct wire_meta meta;
    static float values[4096];
    rig_bring_contribution(rig, 0, 1, 100000, 0.012f);
    own_result(rig, 0, &meta, values);
    struct wire_contributor ours = wire_meta_contributor(&meta, 0), theirs = wire_meta_contributor(&meta, 1);
    assert_true(testlib_bits_float(theirs.weight) == 8 * testlib_bits_float(ours.weight) && theirs.tokens == 100000);
    rig_close(rig);
}

/* Without a word in the run spec it is scaled down, from the first round on; and a daemon that starts again finds in
 * the ledger who was. */
static void an_outlier_is_known_after_a_restart(void **state)
{
    (void)state;
    struct rig *rig = rig_new("rounds-lately", "codec = fp32\n", 3, 0, 0);
    rig_contribute(rig, 0, 0.01f, 100);
    rig_bring_contribution(rig, 0, 1, 100, 0.012f);
    rig_bring_contribution(rig, 0, 2, 100, 10);
    overhear_begin();
    rig_bring_result(rig, 0, 1, true);
    rig_bring_result(rig, 0, 2, true);
    assert_non_null(strstr(overhear_end(), "is far larger than the others'; scaled down"));
    assert_outliers(rig, 2, 1, 1);
    keep_checkpoint(rig->rounds->keep, 0);
    rig_settle(rig);
    rig = rig_again(rig);
    assert_outliers(rig, 2, 1, 1);
    assert_outliers(rig, 1, 0, 0);
    rig_close(rig);
}

static void whose_frame_is_of_no_use_is_dropped_by_name(void **state)
{
    (void)state;
    static struct rig_object object;
    static float values[4096];
    struct wire_meta meta;
    for (int huge = 0; huge < 2; huge++) {
        struct rig *rig =
            rig_new(huge ? "rounds-huge" : "rounds-undecodable", "codec = fp32\noutliers = keep\n", 3, 0, 0);
        rig_contribute(rig, 0, 0.01f, 300);
        rig_bring_contribution(rig, 0, 2, 200, 0.02f);
        rig_contribution(rig, 0, 1, 5000, huge ? 1.5e38f : 0.01f, &object);
        if (!huge)
            rig_spoil(&object);
        overhear_begin();
        rig_bring(rig, 1, &object);
        rig_settle(rig);
        assert_non_null(strstr(overhear_end(), "the contribution of island birch cannot be used"));
        assert_int_equal(rig_told_count(rig, SYNC_EV_DROPPED), 1);
        assert_int_equal(rig_told(rig, SYNC_EV_DROPPED, 0)->sync.member, 1);
        /* The round goes on without it. */
        assert_int_equal(rig_ordered_count(rig, SYNC_DO_REDUCE), 2);
        assert_int_equal(rig_told_count(rig, SYNC_EV_REDUCED), 1);
        assert_mean(rig, 0, (uint32_t[]){0, 2}, (float[]){300, 200}, 2);
        own_result(rig, 0, &meta, values);
        assert_int_equal(meta.contributors_count, 2);
        assert_int_equal(wire_meta_contributor(&meta, 1).id, rig_id(2));
        rig_close(rig);
    }
}

/* ---- store ---- */

/* Our shard's mean of version 1 is made, and its order to store it is kept back. */
static struct rig *with_a_mean(const char *folder, const char *sync, int threads)
{
    struct rig *rig = rig_new(folder, sync, 2, 0, threads);
    rig->hold = 1u << SYNC_DO_STORE;
    rig_contribute(rig, 0, 0.3f, 300);
    rig_bring_contribution(rig, 0, 1, 100, 0.1f);
    assert_non_null(rig_ordered(rig, SYNC_DO_STORE, 0));
    rig_forget(rig);
    return rig;
}

static void assert_stored_told(const struct rig *rig)
{
    assert_int_equal(rig_told_count(rig, SYNC_EV_STORED), 1);
    const struct sync_event *stored = &rig_told(rig, SYNC_EV_STORED, 0)->sync;
    assert_int_equal(stored->version, 1);
    assert_int_equal(stored->owner, rig_id(0));
}

/* The ledger has, for our shard of version 1, what `object` holds. */
static void assert_ledger_holds(struct rig *rig, const uint8_t *object, size_t bytes)
{
    struct ledger_map map;
    struct result_id there;
    assert_true(rig_find(rig, 0, 1, 0, &there));
    assert_ok(ledger_map(rig->ledger, &there, &map));
    assert_int_equal(map.bytes, bytes);
    assert_memory_equal(map.object, object, bytes);
    ledger_unmap(&map);
}

static void a_result_is_told_when_it_is_durable(void **state)
{
    (void)state;
    static uint8_t object[RIG_OBJECT_BYTES];
    struct rig *rig = with_a_mean("rounds-store", exact, 0);
    const struct slot *own = slots_own(rig->slots, 0);
    size_t bytes = own->bytes;
    memcpy(object, own->data, bytes);
    int before = flushes;
    reduce_store(rig->rounds->reduce, 0, 1);
    rig_drain(rig);
    assert_int_equal(rig_told_count(rig, SYNC_EV_STORED), 0);
    assert_true(own->busy);
    rig_settle(rig);
    assert_stored_told(rig);
    assert_true(flushes > before);
    assert_non_null(rig_ordered(rig, SYNC_DO_SEND, 0)); /* only then does anyone hear of it */
    assert_int_equal(own->version, 1);
    assert_false(own->busy);
    rig = rig_again(rig);
    assert_ledger_holds(rig, object, bytes);
    rig_close(rig);
}

/* No file may grow: as root, too, and whatever the file system. */
static void refuse_writes(const struct rig *rig, bool refuse)
{
    struct rlimit limit;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = refuse ? ledger_stats(rig->ledger).bytes + 100 : limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void refuse(const struct rig *rig, bool at_flush, bool refused)
{
    if (at_flush)
        flush_fails = refused;
    else
        refuse_writes(rig, refused);
}

static void a_disk_that_refuses_is_tried_again(void **state)
{
    (void)state;
    for (int at_flush = 0; at_flush < 2; at_flush++) {
        struct rig *rig = with_a_mean(at_flush ? "rounds-flush" : "rounds-full", exact, 0);
        const struct slot *own = slots_own(rig->slots, 0);
        assert_string_equal(rounds_info(rig->rounds).disk_note, "");
        refuse(rig, at_flush, true);
        for (int attempt = 0; attempt < 3; attempt++) {
            if (attempt == 0)
                reduce_store(rig->rounds->reduce, 0, 1);
            rig_settle(rig);
            assert_string_not_equal(rounds_info(rig->rounds).disk_note, "");
            assert_int_equal(rig_told_count(rig, SYNC_EV_STORED), 0);
            assert_int_equal(rig_ordered_count(rig, SYNC_DO_SEND), 0);
            assert_false(own->busy);
            assert_int_equal(round_context_refuses(rig->rounds->context),
                             attempt > 0); /* not for a moment's lack of room */
            rig_tick(rig, 1999);
            assert_false(own->busy);
            if (attempt == 2)
                refuse(rig, at_flush, false);
            rig_tick(rig, 1);
            assert_true(own->busy);
        }
        rig_settle(rig);
        assert_stored_told(rig);
        assert_string_equal(rounds_info(rig->rounds).disk_note, "");
        assert_ledger_holds(rig, own->data, own->bytes);
        rig_tick(rig, 2000);
        assert_false(own->busy); /* once */
        rig_settle(rig);
        assert_false(round_context_refuses(rig->rounds->context));
        rig_close(rig);
    }
}

/* What a result leaves over counts when that result is applied, which it need not be: an epoch may begin. */
static void the_owners_residual_waits_until_its_result_is_applied(void **state)
{
    (void)state;
    struct rig *rig = with_a_mean("rounds-owner", coarse, 1);
    struct plan_shard range = rig_shard(rig, 0, rig->conf.self);
    size_t count = (size_t)(range.end - range.begin);
    reduce_store(rig->rounds->reduce, 0, 1);
    rig_settle(rig);
    assert_stored_told(rig);
    assert_true(rig_has(rig, 0, 1, 0));
    assert_true(rig_all_zero(replica_owner_residual(rig->replica, 0), count));
    assert_true(replica_owner_pending(rig->replica, 0));
    rig_bring_result(rig, 0, 1, true);
    assert_int_equal(rounds_state(rig->rounds, 0)->version, 1);
    assert_false(replica_owner_pending(rig->replica, 0));
    assert_false(rig_all_zero(replica_owner_residual(rig->replica, 0), count));
    rig_close(rig);
}

static void fill_owner_residual(struct rig *rig)
{
    float *residual = replica_owner_residual(rig->replica, 0);
    rig_pattern(residual, replica_values(rig->replica, 0, replica_owner_shards(rig->replica, 0)), 3, 0.001f);
}

/* We had published a result before our disk was lost, and a member still has it: that one stands. What we have made
 * since is not to be sent from its slot, and what its encoding left over belongs to nothing; nor does what we had left
 * over before, which the other one may hold. */
static void a_result_that_stands_already_is_not_ours(void **state)
{
    (void)state;
    static struct rig_object earlier;
    struct rig *rig = with_a_mean("rounds-stands", coarse, 0);
    struct plan_shard range = rig_shard(rig, 0, rig->conf.self);
    struct bitset members = RIG_SET(0);
    rig_result(rig, 0, 0, &members, 0.5f, &earlier);
    rig_bring(rig, 1, &earlier);
    rig_settle(rig);
    reduce_store(rig->rounds->reduce, 0, 1);
    rig_settle(rig);
    assert_non_null(rig_told(rig, SYNC_EV_STORED, 0));
    assert_ledger_holds(rig, earlier.byte, earlier.bytes);
    assert_int_not_equal(slots_own(rig->slots, 0)->version, 1);
    fill_owner_residual(rig);
    rig_bring_result(rig, 0, 1, true);
    assert_int_equal(rounds_state(rig->rounds, 0)->version, 1);
    assert_true(rig_all_zero(replica_owner_residual(rig->replica, 0), (size_t)(range.end - range.begin)));
    rig_close(rig);
}

/* Our result of an epoch before is applied, and another mean was made since: what is pending is not its residual. */
static void a_mean_that_is_not_the_one_applied_leaves_nothing(void **state)
{
    (void)state;
    static struct rig_object stored;
    struct wire_object what;
    struct rig *rig = with_a_mean("rounds-anew", coarse, 0);
    struct plan_shard range = rig_shard(rig, 0, rig->conf.self);
    struct bitset have = bitset_first(2);
    reduce_store(rig->rounds->reduce, 0, 1);
    rig_settle(rig);
    stored.bytes = slots_own(rig->slots, 0)->bytes;
    memcpy(stored.byte, slots_own(rig->slots, 0)->data, stored.bytes);
    assert_ok(wire_object_peek(stored.byte, stored.bytes, &what));
    bitset_remove(&have, 1);
    fill_owner_residual(rig);
    reduce_begin(rig->rounds->reduce, 0, 1, &have); /* of others, so it is another one */
    rig_settle(rig);
    reduce_store(rig->rounds->reduce, 0, 1);
    rig_settle(rig);
    assert_true(replica_owner_pending(rig->replica, 0));
    rig_bring_result(rig, 0, 1, true);
    assert_int_equal(rounds_state(rig->rounds, 0)->version, 1);
    assert_ledger_holds(rig, stored.byte, stored.bytes);
    assert_true(rig_all_zero(replica_owner_residual(rig->replica, 0), (size_t)(range.end - range.begin)));
    rig_close(rig);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_contribution_is_base_minus_theta),
        cmocka_unit_test(a_contribution_weighs_the_tokens_not_counted_yet),
        cmocka_unit_test(a_nan_is_refused_and_its_tensor_named),
        cmocka_unit_test(a_good_contribution_is_received_and_told),
        cmocka_unit_test(a_damaged_contribution_is_refused),
        cmocka_unit_test(a_contribution_may_name_any_step_that_the_run_has_had),
        cmocka_unit_test(who_sends_many_damaged_ones_fills_no_log),
        cmocka_unit_test(a_contribution_that_does_not_fit_is_refused),
        cmocka_unit_test(one_contribution_alone_moves_the_run_no_further_than_it_can_be),
        cmocka_unit_test(who_contributes_alone_is_no_measure_of_itself),
        cmocka_unit_test(a_result_is_the_mean_weighted_by_tokens),
        cmocka_unit_test(a_result_holds_those_it_was_ordered_from),
        cmocka_unit_test(a_base_that_could_not_be_compared_is_compared_before_the_mean),
        cmocka_unit_test(zstd_is_used_where_the_run_has_it),
        cmocka_unit_test(what_runs_away_is_left_out_and_counted),
        cmocka_unit_test(who_points_elsewhere_in_five_rounds_weighs_nothing),
        cmocka_unit_test(less_than_half_of_the_model_turns_nobody_away),
        cmocka_unit_test(who_points_elsewhere_is_known_after_a_restart),
        cmocka_unit_test(a_wrong_token_counter_does_not_own_the_mean),
        cmocka_unit_test(who_missed_a_round_may_weigh_as_two),
        cmocka_unit_test(an_outlier_is_known_after_a_restart),
        cmocka_unit_test(whose_frame_is_of_no_use_is_dropped_by_name),
        cmocka_unit_test(a_result_is_told_when_it_is_durable),
        cmocka_unit_test(a_disk_that_refuses_is_tried_again),
        cmocka_unit_test(the_owners_residual_waits_until_its_result_is_applied),
        cmocka_unit_test(a_result_that_stands_already_is_not_ours),
        cmocka_unit_test(a_mean_that_is_not_the_one_applied_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
