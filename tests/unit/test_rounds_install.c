/* SPDX-License-Identifier: Apache-2.0 */
/* rounds, where anchors come from and go to: the trainer's memory, its initial tensors, and the state of a peer. */
#include "tests/lib/testlib.h"

#include <stdlib.h>
#include <string.h>

#include "common/digest.h"
#include "common/log.h"
#include "daemon/state/state_object.h"
#include "common/mem.h"
#include "tests/lib/aborts.h"
#include "tests/lib/overhear.h"
#include "tests/lib/rig.h"
#include "tests/lib/shares.h"

/* Two others outweigh the last member. */
enum { MEMBERS = 3, SELF = 2 };

static const char coarse[] = "codec = uniform\nerror_feedback = yes\n";

/* ---- the trainer's memory ---- */

static void an_anchor_is_copied_for_the_trainer(void **state)
{
    (void)state;
    struct rig *rig = rig_new("install-give", coarse, MEMBERS, SELF, 0);
    size_t bytes = rig_values(rig, 1) * sizeof(float);
    rig_round(rig, 1, &(struct bitset){{0}});
    memset(rig->area[1], 0, bytes);
    rig_forget(rig);
    copy_publish(rig->rounds->copy, 1, rig->area[1]);
    rig_settle(rig);
    assert_memory_equal(rig->area[1], replica_anchor(rig->replica, 1), bytes);
    assert_int_equal(rig_posted_count(rig, EVENT_PUBLISHED), 1);
    assert_true(rig_posted(rig, EVENT_PUBLISHED, 1) < rig_posted(rig, EVENT_UNREAD, 1));
    memset(rig->base[1], 0, bytes);
    copy_start(rig->rounds->copy, 1, rig->base[1], false);
    rig_settle(rig);
    assert_memory_equal(rig->base[1], replica_anchor(rig->replica, 1), bytes);
    assert_false(rig_posted(rig, EVENT_STARTED, 1)->start.initial);
    assert_int_equal(rounds_state(rig->rounds, 1)->version, 1);
    rig_close(rig);
}

static void initial_tensors_are_version_0(void **state)
{
    (void)state;
    struct rig_conf conf = {
        .folder = testlib_folder("install-initial"), .sync = coarse, .members = MEMBERS, .self = SELF};
    struct rig *rig = rig_open(&conf);
    size_t count = rig_values(rig, 0);
    rig_pattern(rig->base[0], count, 5, 3);
    copy_start(rig->rounds->copy, 0, rig->base[0], true);
    rig_settle(rig);
    const struct event *started = rig_posted(rig, EVENT_STARTED, 0);
    struct digest hash = rig_hash(rig, 0, 0);
    assert_non_null(started);
    assert_true(started->start.initial);
    assert_memory_equal(replica_anchor(rig->replica, 0), rig->base[0], count * sizeof(float));
    assert_true(rig_all_zero(replica_momentum(rig->replica, 0), count));
    assert_true(digest_equal(&started->start.hash, &hash));
    /* As the engine answers. */
    assert_true(digest_equal(&rounds_state(rig->rounds, 0)->hash, &hash));
    assert_int_equal(rounds_state(rig->rounds, 0)->version, 0);
    assert_true(sync_known(rig->sync, 0));
    rig_close(rig);
}

/* Else what counts on top of them would be lost with them, and nobody would know. */
static void initial_tensors_count_when_they_are_on_disk(void **state)
{
    (void)state;
    struct rig_conf conf = {
        .folder = testlib_folder("install-first"), .sync = coarse, .members = MEMBERS, .self = SELF};
    struct rig *rig = rig_open(&conf);
    rig_pattern(rig->base[0], rig_values(rig, 0), 5, 3);
    copy_start(rig->rounds->copy, 0, rig->base[0], true);
    rig_withdraw(rig); /* the anchor is there, and on its way to the disk */
    assert_int_equal(rig_posted_count(rig, EVENT_STARTED), 0);
    assert_false(sync_known(rig->sync, 0));
    rig_settle(rig);
    assert_true(sync_known(rig->sync, 0));
    struct digest hash = rounds_state(rig->rounds, 0)->hash;
    rig = rig_again(rig);
    assert_true(sync_known(rig->sync, 0));
    assert_true(digest_equal(&rounds_state(rig->rounds, 0)->hash, &hash));
    rig_close(rig);
}

/* ---- a peer's state ---- */

static void assert_holds(const struct rig *rig, struct replica *twin, uint32_t f)
{
    size_t bytes = rig_values(rig, f) * sizeof(float);
    assert_memory_equal(replica_anchor(rig->replica, f), replica_anchor(twin, f), bytes);
    assert_memory_equal(replica_momentum(rig->replica, f), replica_momentum(twin, f), bytes);
}

/* The only one that was judged. */
static const struct event *judged(const struct rig *rig)
{
    const struct event *found = NULL;
    for (size_t i = 0; i < rig->posted_count; i++)
        if (rig->posted[i].type == EVENT_JUDGED)
            found = &rig->posted[i];
    assert_int_equal(rig_posted_count(rig, EVENT_JUDGED), 1);
    return found;
}

static void assert_installed(const struct rig *rig, struct replica *twin, const struct rig_object *object)
{
    uint32_t f = object->key.fragment;
    const struct store_fragment *state = rounds_state(rig->rounds, f);
    const struct event *installed = rig_told(rig, SYNC_EV_INSTALLED, f);
    struct digest hash = rig_hash(rig, f, object->key.version);
    assert_int_equal(judged(rig)->object.done, WIRE_RECEIVED);
    assert_int_equal(judged(rig)->member, 0);
    assert_int_equal(rig_told_count(rig, SYNC_EV_INSTALLED), 1);
    assert_int_equal(installed->sync.version, object->key.version);
    assert_true(digest_equal(&installed->sync.hash, &hash));
    assert_true(digest_equal(&state->hash, &hash));
    assert_int_equal(state->version, object->key.version);
    assert_int_equal(state->step, RIG_STATE_STEP);
    assert_holds(rig, twin, f);
    assert_true(rig_all_zero(replica_residual(rig->replica, f), rig_values(rig, f)));
    assert_null(slots_state(rig->slots, f));
}

static void a_state_of_a_peer_takes_the_place_of_ours(void **state)
{
    (void)state;
    static struct rig_object object;
    struct replica *twin;
    struct bitset all = bitset_first(MEMBERS);
    struct rig *rig = rig_new("install-good", coarse, MEMBERS, SELF, 0);
    for (int k = 0; k < 2; k++)
        rig_round(rig, 1, &all);
    assert_false(rig_all_zero(replica_residual(rig->replica, 1), rig_values(rig, 1)));
    rig_make_state(rig, 1, 0.5f, &twin, &object);
    rig_diverge(rig, 1, twin);
    rig_bring(rig, 0, &object);
    rig_settle(rig);
    assert_installed(rig, twin, &object);
    assert_int_equal(rig_posted_count(rig, EVENT_COUNTED), 0); /* nothing of ours was on its way */
    replica_free(twin);
    rig_close(rig);
}

/* Another state, which counts work of ours in these shards in the version after ours. */
static void count_ours(struct rig *rig, struct replica *twin, uint64_t shards, struct rig_object *object)
{
    uint8_t row[WIRE_CONTRIBUTOR_BYTES];
    struct wire_meta meta = {.contributors_count = 1, .contributors = row};
    struct store_fragment state = {.version = rounds_state(rig->rounds, 1)->version, .step = RIG_STATE_STEP};
    wire_contributor_put(row, 0, &(struct wire_contributor){.id = rig_id(SELF), .digest = {{1}}});
    assert_ok(dedup_note(replica_counted(twin, 1), shards, state.version + 1, &meta));
    assert_ok(replica_hash(twin, 1, state.version, state.step, &state.hash));
    object->bytes = (size_t)state_object_bytes(twin, 1);
    state_object_make(twin, rig->plan->plan, 1, &state, object->byte);
    struct bitset others = RIG_SET(0, 1);
    rig_certify(rig, &state.hash, &others, object);
}

/* Another state, which counts work of all and in which this member is turned away. */
static void turn_away(struct rig *rig, struct replica *twin, uint32_t f, uint32_t id, struct rig_object *object)
{
    struct store_fragment state = {.version = rounds_state(rig->rounds, f)->version, .step = RIG_STATE_STEP};
    struct dedup *counted = replica_counted(twin, f);
    uint8_t rows[MEMBERS * WIRE_CONTRIBUTOR_BYTES];
    struct wire_meta meta = {.contributors_count = MEMBERS, .contributors = rows};
    for (uint32_t i = 0; i < MEMBERS; i++)
        wire_contributor_put(rows, i, &(struct wire_contributor){.id = rig_id(i), .digest = {{1}}});
    assert_ok(dedup_note(counted, plan_shards(rig->plan->plan, f), state.version, &meta));
    for (size_t i = 0; i < counted->count; i++)
        counted->rows[i].direction = counted->rows[i].id == id ? DIRECTION_ROUNDS : 0;
    assert_ok(replica_hash(twin, f, state.version, state.step, &state.hash));
    object->bytes = (size_t)state_object_bytes(twin, f);
    state_object_make(twin, rig->plan->plan, f, &state, object->byte);
    struct bitset others = RIG_SET(0, 1);
    rig_certify(rig, &state.hash, &others, object);
}

/* Who comes, or has been away, knows it by the states alone. */
static void who_is_turned_away_comes_with_the_states(void **state)
{
    (void)state;
    static struct rig_object object;
    struct bitset all = bitset_first(MEMBERS);
    struct rig *rig = rig_new("install-turned", coarse, MEMBERS, SELF, 0);
    for (uint32_t f = 0; f < RIG_FRAGMENTS; f++) {
        struct replica *twin;
        rig_round(rig, f, &all);
        rig_make_state(rig, f, 0.5f, &twin, &object);
        turn_away(rig, twin, f, rig_id(1), &object);
        assert_false(rounds_turned_away(rig->rounds, 1) && f == 0);
        rig_diverge(rig, f, twin);
        rig_bring(rig, 0, &object);
        rig_settle(rig);
        assert_holds(rig, twin, f);
        replica_free(twin);
    }
    assert_true(rounds_turned_away(rig->rounds, 1));
    assert_false(rounds_turned_away(rig->rounds, 0));
    rig_close(rig);
}

/* The state says what it counts: of a contribution on its way, the shards in which it was counted, or another that we
 * do not know any more; what it does not count goes out again. */
static void assert_taken_for_counted(uint32_t counts)
{
    static struct rig_object object;
    struct replica *twin;
    struct bitset all = bitset_first(MEMBERS);
    struct rig *rig = rig_new("install-flight", coarse, MEMBERS, SELF, 0);
    uint64_t shards = counts < MEMBERS ? shares_mask(&rig->parts, 1, counts) : 0;
    rig_round(rig, 1, &all);
    rig_contribute(rig, 1, 0.02f, 5000);
    rig_make_state(rig, 1, 0.5f, &twin, &object);
    if (shards != 0)
        count_ours(rig, twin, shards, &object);
    rig_diverge(rig, 1, twin);
    rig_bring(rig, 0, &object);
    rig_settle(rig);
    assert_installed(rig, twin, &object);
    assert_int_equal(rig_posted_count(rig, EVENT_COUNTED), shards != 0);
    if (shards != 0) {
        const struct event *counted = rig_posted(rig, EVENT_COUNTED, 1);
        assert_true(counted->shards == shards);
        assert_true(counted < rig_told(rig, SYNC_EV_INSTALLED, 1)); /* after which the anchor is given */
    }
    replica_free(twin);
    rig_close(rig);
}

static void what_was_on_its_way_is_counted_where_the_state_says_so(void **state)
{
    (void)state;
    assert_taken_for_counted(0);
    assert_taken_for_counted(2);
    assert_taken_for_counted(MEMBERS); /* nothing */
}

static void assert_refused(struct rig *rig, struct replica *before, const struct rig_object *object)
{
    rig_forget(rig);
    rig_bring(rig, 0, object);
    rig_settle(rig);
    assert_int_equal(judged(rig)->object.done, WIRE_REFUSED);
    assert_int_equal(rig_told_count(rig, SYNC_EV_INSTALLED), 0);
    const struct event *asked = rig_told(rig, SYNC_EV_NOT_AVAILABLE, 1);
    assert_non_null(asked);
    assert_int_equal(asked->sync.member, 0);
    assert_true(wire_key_equal(&asked->sync.key, &object->key));
    assert_null(slots_state(rig->slots, 1));
    assert_holds(rig, before, 1);
    assert_int_equal(rounds_state(rig->rounds, 1)->step, 10);
    assert_false(rig_all_zero(replica_residual(rig->replica, 1), rig_values(rig, 1)));
}

/* Ours was excused when its head came; others that are there since are no reason to throw all of it away. */
static void a_state_is_judged_as_its_head_was(void **state)
{
    (void)state;
    static struct rig_object good;
    struct bitset one = RIG_SET(0), all = bitset_first(MEMBERS);
    struct replica *twin;
    struct digest hash;
    struct rig *rig = rig_new("install-excused", coarse, MEMBERS, SELF, 0);
    rig_round(rig, 1, &all);
    rig_make_state(rig, 1, 0.5f, &twin, &good);
    assert_ok(replica_hash(twin, 1, 1, RIG_STATE_STEP, &hash));
    rig_diverge(rig, 1, twin);
    rig_certify(rig, &hash, &one, &good);
    for (int excused = 0; excused < 2; excused++) {
        rig_forget(rig);
        rig->excused = excused != 0;
        rig_bring(rig, 0, &good);
        rig_settle(rig);
        assert_int_equal(rig_told_count(rig, SYNC_EV_INSTALLED), excused);
    }
    replica_free(twin);
    rig_close(rig);
}

static void a_state_that_no_majority_certifies_is_refused(void **state)
{
    (void)state;
    static struct rig_object good, other, bad;
    struct bitset liar = RIG_SET(0), none = {{0}}, two = RIG_SET(0, 1);
    struct replica *twin, *stranger;
    struct digest hash, lie;
    struct bitset all = bitset_first(MEMBERS);
    struct rig *rig = rig_new("install-other", coarse, MEMBERS, SELF, 0);
    rig_round(rig, 1, &all);
    struct replica *before = rig_twin(rig);
    rig_make_state(rig, 1, 0.5f, &twin, &good);
    rig_make_state(rig, 1, 0.25f, &stranger, &other);
    assert_ok(replica_hash(stranger, 1, 1, RIG_STATE_STEP, &lie));
    assert_ok(replica_hash(twin, 1, 1, RIG_STATE_STEP, &hash));
    /* What the sender announces is its own affair: member 0 says now that it holds the other one. */
    rig_diverge(rig, 1, twin);
    rig->said[0][1].at.hash = lie;
    rig_hear(rig, 0);
    rig_certify(rig, &lie, &none, &other);
    assert_refused(rig, before, &other);
    rig_certify(rig, &lie, &liar, &other);
    assert_refused(rig, before, &other);
    rig_certify(rig, &hash, &two, &other); /* good signatures, of the right one */
    assert_refused(rig, before, &other);
    bad = good;
    rig_certify(rig, &hash, &liar, &bad); /* and the right one with too few: our own voice is not taken for given */
    assert_refused(rig, before, &bad);
    /* Magic, fragment, version, number of values, hash, anchor, momentum, signature. */
    const size_t where[] = {
        0, 4, 8, 24, 40, 128 + 4 * 100, 128 + 8 * rig_values(rig, 1) - 1, good.bytes - 1,
    };
    for (size_t i = 0; i < sizeof where / sizeof where[0]; i++) {
        bad = good;
        bad.byte[where[i]] ^= 0x02;
        assert_refused(rig, before, &bad);
    }
    bad = good;
    bad.bytes -= 4;
    assert_refused(rig, before, &bad);
    bad.bytes += 8;
    assert_refused(rig, before, &bad);
    rig_forget(rig);
    rig_bring(rig, 0, &good);
    rig_settle(rig);
    assert_installed(rig, twin, &good);
    replica_free(before);
    replica_free(stranger);
    replica_free(twin);
    rig_close(rig);
}

/* They come as fast as they are asked for. */
static void states_that_cannot_be_used_fill_no_log(void **state)
{
    (void)state;
    static struct rig_object bad;
    struct bitset all = bitset_first(MEMBERS);
    struct replica *twin;
    struct rig *rig = rig_new("install-flood", coarse, MEMBERS, SELF, 0);
    rig_round(rig, 1, &all);
    struct replica *before = rig_twin(rig);
    rig_make_state(rig, 1, 0.5f, &twin, &bad);
    rig_diverge(rig, 1, twin);
    bad.byte[0] ^= 0x02;
    overhear_begin();
    for (int i = 0; i < 2 * LOG_LINES_OF_ONE; i++)
        assert_refused(rig, before, &bad);
    assert_int_equal(overhear_count(overhear_end(), "the state of fragment 1 from island"), LOG_LINES_OF_ONE);
    replica_free(before);
    replica_free(twin);
    rig_close(rig);
}

static void a_state_waits_for_readers(void **state)
{
    (void)state;
    static struct rig_object object;
    struct replica *twin;
    struct bitset all = bitset_first(MEMBERS);
    struct rig *rig = rig_new("install-waits", coarse, MEMBERS, SELF, 0);
    rig_round(rig, 1, &all);
    struct replica *before = rig_twin(rig);
    rig_make_state(rig, 1, 0.5f, &twin, &object);
    keep_checkpoint(rig->rounds->keep, 1);
    rig_diverge(rig, 1, twin);
    rig_bring(rig, 0, &object);
    assert_int_equal(jobs_pending(rig->jobs), 1);
    rig->hold_unread = true;
    rig_withdraw(rig);
    assert_int_equal(rig_posted_count(rig, EVENT_UNREAD), 1);
    rig_withdraw(rig); /* the checkpoint is flushed */
    assert_int_equal(jobs_pending(rig->jobs), 0);
    assert_holds(rig, before, 1);
    for (int i = 0; i < 2; i++)
        rounds_unread(rig->rounds, 1);
    assert_int_equal(jobs_pending(rig->jobs), 1); /* once */
    rig_settle(rig);
    assert_installed(rig, twin, &object);
    /* The checkpoint that was written meanwhile has the state before; it is not the last one. */
    size_t count = rig_values(rig, 1);
    float *anchor = calloc(count, sizeof *anchor);
    memcpy(anchor, replica_anchor(twin, 1), count * sizeof *anchor);
    replica_free(before);
    replica_free(twin);
    rig = rig_again(rig);
    assert_memory_equal(replica_anchor(rig->replica, 1), anchor, count * sizeof *anchor);
    free(anchor);
    rig_close(rig);
}

struct both {
    struct rig *rig;
    const struct rig_object *state;
};

/* While the anchor is read, a state has come, and an outer step is ordered. */
static void let_both_wait(void *user)
{
    const struct both *both = user;
    rig_bring(both->rig, 0, both->state);
    apply_begin(both->rig->rounds->apply, 1, 2);
    rounds_unread(both->rig->rounds, 1);
}

static void a_state_and_an_outer_step_never_wait_for_the_same_anchor(void **state)
{
    (void)state;
    static struct rig_object object;
    struct replica *twin;
    struct bitset all = bitset_first(MEMBERS);
    struct rig *rig = rig_new("install-both", coarse, MEMBERS, SELF, 0);
    rig_round(rig, 1, &all);
    rig_make_state(rig, 1, 0.5f, &twin, &object);
    keep_checkpoint(rig->rounds->keep, 1);
    rig_diverge(rig, 1, twin);
    struct both both = {rig, &object};
    assert_aborts(let_both_wait, &both);
    replica_free(twin);
    rig_close(rig);
}

/* ---- where our own disk leads ---- */

/* One bit of an anchor has flipped since it was made. */
static void flip(struct rig *rig, uint32_t f)
{
    uint32_t *word = (uint32_t *)(void *)replica_anchor(rig->replica, f);
    word[77] ^= 1u << 12;
}

/* A fragment with a checkpoint at version 1 and results of two more. */
static struct rig *with_a_history(const char *name)
{
    struct bitset all = bitset_first(MEMBERS);
    struct rig *rig = rig_new(name, coarse, MEMBERS, SELF, 0);
    rig_round(rig, 1, &all);
    keep_checkpoint(rig->rounds->keep, 1);
    rig_settle(rig);
    rig_round(rig, 1, &all);
    rig_round(rig, 1, &all);
    rig_forget(rig);
    return rig;
}

static void a_replay_tells_where_the_ledger_leads(void **state)
{
    (void)state;
    struct rig *rig = with_a_history("install-replay");
    struct digest good = rig_hash(rig, 1, 3);
    flip(rig, 1);
    struct replica *damaged = rig_twin(rig);
    install_replay(rig->rounds->install, 1, 3);
    rig_settle(rig);
    const struct event *told = rig_told(rig, SYNC_EV_REPLAYED, 1);
    assert_non_null(told);
    assert_int_equal(told->sync.version, 3);
    assert_true(digest_equal(&told->sync.hash, &good));
    assert_holds(rig, damaged, 1); /* nothing was touched */
    install_replay(rig->rounds->install, 1, 4);
    rig_settle(rig);
    told = rig_told(rig, SYNC_EV_UNPROVEN, 1);
    assert_non_null(told);
    assert_int_equal(told->sync.version, 4);
    replica_free(damaged);
    rig_close(rig);
}

static void a_damaged_memory_is_mended_from_the_ledger(void **state)
{
    (void)state;
    struct rig *rig = with_a_history("install-mend");
    struct replica *good = rig_twin(rig);
    flip(rig, 1);
    rig_step(rig, &(struct sync_event){.type = SYNC_EV_LOST, .fragment = 1, .member = SELF});
    assert_null(rig_ordered(rig, SYNC_DO_FETCH, 1));
    rig_settle(rig);
    const struct event *installed = rig_told(rig, SYNC_EV_INSTALLED, 1);
    assert_non_null(installed);
    assert_int_equal(installed->sync.version, 3);
    assert_holds(rig, good, 1);
    assert_true(rig_all_zero(replica_residual(rig->replica, 1), rig_values(rig, 1)));
    assert_int_equal(rounds_state(rig->rounds, 1)->version, 3);
    assert_non_null(rig_ordered(rig, SYNC_DO_PUBLISH, 1)); /* the trainer takes it in again */
    replica_free(good);
    rig_close(rig);
}

static void a_disk_that_does_not_lead_to_our_version_mends_nothing(void **state)
{
    (void)state;
    struct rig *rig = with_a_history("install-unproven");
    struct replica *before = rig_twin(rig);
    char *path;
    assert_ok(mem_printf(&path, "%s/fragment-0001.safetensors", rig->conf.folder));
    testlib_damage(path, 3000);
    mem_free(path);
    rig_step(rig, &(struct sync_event){.type = SYNC_EV_LOST, .fragment = 1, .member = SELF});
    rig_settle(rig);
    assert_non_null(rig_told(rig, SYNC_EV_UNPROVEN, 1));
    assert_null(rig_told(rig, SYNC_EV_INSTALLED, 1));
    assert_holds(rig, before, 1);
    for (uint32_t i = 0; i < MEMBERS; i++) { /* then others are asked, who have come as far */
        rig->said[i][1].at.version = 3;
        rig->said[i][1].at.hash = rounds_state(rig->rounds, 1)->hash;
        if (i != SELF)
            rig_hear(rig, i);
    }
    rig_tick(rig, 100);
    assert_non_null(rig_ordered(rig, SYNC_DO_FETCH, 1));
    replica_free(before);
    rig_close(rig);
}

/* It would certify itself from then on. */
static void a_fragment_in_doubt_is_not_written(void **state)
{
    (void)state;
    struct bitset all = bitset_first(MEMBERS);
    struct rig *rig = rig_new("install-doubt", coarse, MEMBERS, SELF, 0);
    rig_round(rig, 1, &all);
    rig->hold = 1u << SYNC_DO_REPLAY;
    rig->said[0][1].at.version = 1;
    rig->said[0][1].at.hash = digest_of("another", 7);
    rig_hear(rig, 0);
    assert_true(sync_in_doubt(rig->sync, 1));
    keep_checkpoint(rig->rounds->keep, 1);
    assert_int_equal(jobs_pending(rig->jobs), 0);
    rig_step(rig, &(struct sync_event){.type = SYNC_EV_UNPROVEN, .fragment = 1, .version = 1});
    keep_checkpoint(rig->rounds->keep, 1);
    assert_int_equal(jobs_pending(rig->jobs), 1);
    rig_settle(rig);
    rig_close(rig);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_anchor_is_copied_for_the_trainer),
        cmocka_unit_test(initial_tensors_are_version_0),
        cmocka_unit_test(initial_tensors_count_when_they_are_on_disk),
        cmocka_unit_test(a_state_of_a_peer_takes_the_place_of_ours),
        cmocka_unit_test(who_is_turned_away_comes_with_the_states),
        cmocka_unit_test(what_was_on_its_way_is_counted_where_the_state_says_so),
        cmocka_unit_test(a_state_is_judged_as_its_head_was),
        cmocka_unit_test(a_state_that_no_majority_certifies_is_refused),
        cmocka_unit_test(states_that_cannot_be_used_fill_no_log),
        cmocka_unit_test(a_state_waits_for_readers),
        cmocka_unit_test(a_state_and_an_outer_step_never_wait_for_the_same_anchor),
        cmocka_unit_test(a_replay_tells_where_the_ledger_leads),
        cmocka_unit_test(a_damaged_memory_is_mended_from_the_ledger),
        cmocka_unit_test(a_disk_that_does_not_lead_to_our_version_mends_nothing),
        cmocka_unit_test(a_fragment_in_doubt_is_not_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
