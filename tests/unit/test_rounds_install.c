/* rounds, where anchors come from and go to: the trainer's memory, its initial tensors, and the state of a peer. */
#include "tests/lib/testlib.h"

#include <stdlib.h>
#include <string.h>

#include "common/digest.h"
#include "tests/lib/roundsrun.h"

/* Two others outweigh the last member. */
enum { MEMBERS = 3, SELF = 2 };

static const char coarse[] = "codec = uniform\nerror_feedback = yes\n";

/* ---- the trainer's memory ---- */

static void an_anchor_is_copied_for_the_trainer(void **state)
{
    (void)state;
    struct roundsrun *isle = roundsrun_new("install-give", coarse, MEMBERS, SELF, 0);
    size_t bytes = roundsrun_values(isle, 1) * sizeof(float);
    roundsrun_round(isle, 1, &(struct bitset){{0}});
    memset(isle->area[1], 0, bytes);
    roundsrun_forget(isle);
    rounds_give(isle->rounds, 1, isle->area[1]);
    roundsrun_settle(isle);
    assert_memory_equal(isle->area[1], replica_anchor(isle->replica, 1), bytes);
    assert_int_equal(roundsrun_posted_count(isle, EVENT_GIVEN), 1);
    assert_true(roundsrun_posted(isle, EVENT_GIVEN, 1) < roundsrun_posted(isle, EVENT_UNREAD, 1));
    memset(isle->base[1], 0, bytes);
    rounds_start(isle->rounds, 1, isle->base[1], false);
    roundsrun_settle(isle);
    assert_memory_equal(isle->base[1], replica_anchor(isle->replica, 1), bytes);
    assert_false(roundsrun_posted(isle, EVENT_STARTED, 1)->start.initial);
    assert_int_equal(rounds_state(isle->rounds, 1)->version, 1);
    roundsrun_close(isle);
}

static void initial_tensors_are_version_0(void **state)
{
    (void)state;
    struct roundsrun_conf conf = {
        .folder = testlib_folder("install-initial"), .sync = coarse, .members = MEMBERS, .self = SELF};
    struct roundsrun *isle = roundsrun_open(&conf);
    size_t count = roundsrun_values(isle, 0);
    roundsrun_pattern(isle->base[0], count, 5, 3);
    rounds_start(isle->rounds, 0, isle->base[0], true);
    roundsrun_settle(isle);
    const struct event *started = roundsrun_posted(isle, EVENT_STARTED, 0);
    struct digest hash = roundsrun_hash(isle, 0, 0);
    assert_non_null(started);
    assert_true(started->start.initial);
    assert_memory_equal(replica_anchor(isle->replica, 0), isle->base[0], count * sizeof(float));
    assert_true(roundsrun_all_zero(replica_momentum(isle->replica, 0), count));
    assert_true(digest_equal(&started->start.hash, &hash));
    /* As the engine answers. */
    assert_true(digest_equal(&rounds_state(isle->rounds, 0)->hash, &hash));
    assert_int_equal(rounds_state(isle->rounds, 0)->version, 0);
    assert_true(sync_known(isle->sync, 0));
    roundsrun_close(isle);
}

/* ---- a peer's state ---- */

static void assert_holds(const struct roundsrun *isle, struct replica *twin, uint32_t f)
{
    size_t bytes = roundsrun_values(isle, f) * sizeof(float);
    assert_memory_equal(replica_anchor(isle->replica, f), replica_anchor(twin, f), bytes);
    assert_memory_equal(replica_momentum(isle->replica, f), replica_momentum(twin, f), bytes);
}

/* The only one that was judged. */
static const struct event *judged(const struct roundsrun *isle)
{
    const struct event *found = NULL;
    for (size_t i = 0; i < isle->posted_count; i++)
        if (isle->posted[i].type == EVENT_JUDGED)
            found = &isle->posted[i];
    assert_int_equal(roundsrun_posted_count(isle, EVENT_JUDGED), 1);
    return found;
}

static void assert_installed(const struct roundsrun *isle, struct replica *twin, const struct roundsrun_object *object)
{
    uint32_t f = object->key.fragment;
    const struct store_fragment *state = rounds_state(isle->rounds, f);
    const struct event *installed = roundsrun_told(isle, SYNC_EV_INSTALLED, f);
    struct digest hash = roundsrun_hash(isle, f, object->key.version);
    assert_int_equal(judged(isle)->object.done, WIRE_RECEIVED);
    assert_int_equal(judged(isle)->member, 0);
    assert_int_equal(roundsrun_told_count(isle, SYNC_EV_INSTALLED), 1);
    assert_int_equal(installed->sync.version, object->key.version);
    assert_true(digest_equal(&installed->sync.hash, &hash));
    assert_true(digest_equal(&state->hash, &hash));
    assert_int_equal(state->version, object->key.version);
    assert_int_equal(state->step, ROUNDSRUN_STATE_STEP);
    assert_holds(isle, twin, f);
    assert_true(roundsrun_all_zero(replica_residual(isle->replica, f), roundsrun_values(isle, f)));
    assert_null(slots_state(isle->slots, f));
}

static void a_state_of_a_peer_takes_the_place_of_ours(void **state)
{
    (void)state;
    static struct roundsrun_object object;
    struct replica *twin;
    struct bitset all = bitset_first(MEMBERS);
    struct roundsrun *isle = roundsrun_new("install-good", coarse, MEMBERS, SELF, 0);
    for (int k = 0; k < 2; k++)
        roundsrun_round(isle, 1, &all);
    assert_false(roundsrun_all_zero(replica_residual(isle->replica, 1), roundsrun_values(isle, 1)));
    roundsrun_make_state(isle, 1, 0.5f, &twin, &object);
    roundsrun_diverge(isle, 1, twin);
    roundsrun_bring(isle, 0, &object);
    roundsrun_settle(isle);
    assert_installed(isle, twin, &object);
    assert_int_equal(roundsrun_posted_count(isle, EVENT_COUNTED), 0); /* nothing of ours was on its way */
    replica_free(twin);
    roundsrun_close(isle);
}

/* What the state counts of a contribution on its way is not known: to count it twice would be worse than to lose it. */
static void what_was_on_its_way_is_taken_for_counted(void **state)
{
    (void)state;
    static struct roundsrun_object object;
    struct replica *twin;
    struct bitset all = bitset_first(MEMBERS);
    struct roundsrun *isle = roundsrun_new("install-flight", coarse, MEMBERS, SELF, 0);
    roundsrun_round(isle, 1, &all);
    roundsrun_contribute(isle, 1, 0.02f, 5000);
    roundsrun_make_state(isle, 1, 0.5f, &twin, &object);
    roundsrun_diverge(isle, 1, twin);
    roundsrun_bring(isle, 0, &object);
    roundsrun_settle(isle);
    assert_installed(isle, twin, &object);
    const struct event *counted = roundsrun_posted(isle, EVENT_COUNTED, 1);
    assert_int_equal(roundsrun_posted_count(isle, EVENT_COUNTED), 1);
    assert_memory_equal(&counted->shards, &all, sizeof all);
    assert_true(counted < roundsrun_told(isle, SYNC_EV_INSTALLED, 1)); /* after which the anchor is given */
    replica_free(twin);
    roundsrun_close(isle);
}

static void assert_refused(struct roundsrun *isle, struct replica *before, const struct roundsrun_object *object)
{
    roundsrun_forget(isle);
    roundsrun_bring(isle, 0, object);
    roundsrun_settle(isle);
    assert_int_equal(judged(isle)->object.done, WIRE_REFUSED);
    assert_int_equal(roundsrun_told_count(isle, SYNC_EV_INSTALLED), 0);
    const struct event *asked = roundsrun_told(isle, SYNC_EV_NOT_AVAILABLE, 1);
    assert_non_null(asked);
    assert_int_equal(asked->sync.member, 0);
    assert_true(wire_key_equal(&asked->sync.key, &object->key));
    assert_null(slots_state(isle->slots, 1));
    assert_holds(isle, before, 1);
    assert_int_equal(rounds_state(isle->rounds, 1)->step, 10);
    assert_false(roundsrun_all_zero(replica_residual(isle->replica, 1), roundsrun_values(isle, 1)));
}

static void a_state_that_is_not_as_announced_is_refused(void **state)
{
    (void)state;
    static struct roundsrun_object good, other, bad;
    struct replica *twin, *stranger;
    struct bitset all = bitset_first(MEMBERS);
    struct roundsrun *isle = roundsrun_new("install-other", coarse, MEMBERS, SELF, 0);
    roundsrun_round(isle, 1, &all);
    struct replica *before = roundsrun_twin(isle);
    roundsrun_make_state(isle, 1, 0.5f, &twin, &good);
    roundsrun_make_state(isle, 1, 0.25f, &stranger, &other);
    roundsrun_diverge(isle, 1, twin);
    assert_refused(isle, before, &other); /* whole, and of another hash than that island has said */
    /* Magic, fragment, version, number of values, hash, anchor, momentum. */
    const size_t where[] = {0, 4, 8, 24, 40, 64 + 4 * 100, good.bytes - 1};
    for (size_t i = 0; i < sizeof where / sizeof where[0]; i++) {
        bad = good;
        bad.byte[where[i]] ^= 0x02;
        assert_refused(isle, before, &bad);
    }
    bad = good;
    bad.bytes -= 4;
    assert_refused(isle, before, &bad);
    roundsrun_forget(isle);
    roundsrun_bring(isle, 0, &good);
    roundsrun_settle(isle);
    assert_installed(isle, twin, &good);
    replica_free(before);
    replica_free(stranger);
    replica_free(twin);
    roundsrun_close(isle);
}

static void a_state_waits_for_readers(void **state)
{
    (void)state;
    static struct roundsrun_object object;
    struct replica *twin;
    struct bitset all = bitset_first(MEMBERS);
    struct roundsrun *isle = roundsrun_new("install-waits", coarse, MEMBERS, SELF, 0);
    roundsrun_round(isle, 1, &all);
    struct replica *before = roundsrun_twin(isle);
    roundsrun_make_state(isle, 1, 0.5f, &twin, &object);
    rounds_checkpoint(isle->rounds, 1);
    roundsrun_diverge(isle, 1, twin);
    roundsrun_bring(isle, 0, &object);
    assert_int_equal(jobs_pending(isle->jobs), 1);
    isle->hold_unread = true;
    roundsrun_take_back(isle);
    assert_int_equal(roundsrun_posted_count(isle, EVENT_UNREAD), 1);
    assert_int_equal(jobs_pending(isle->jobs), 0);
    assert_holds(isle, before, 1);
    for (int i = 0; i < 2; i++)
        rounds_unread(isle->rounds, 1);
    assert_int_equal(jobs_pending(isle->jobs), 1); /* once */
    roundsrun_settle(isle);
    assert_installed(isle, twin, &object);
    /* What the checkpoint has is the state before. */
    size_t count = roundsrun_values(isle, 1);
    float *anchor = calloc(count, sizeof *anchor);
    memcpy(anchor, replica_anchor(before, 1), count * sizeof *anchor);
    replica_free(before);
    replica_free(twin);
    isle = roundsrun_again(isle);
    assert_memory_equal(replica_anchor(isle->replica, 1), anchor, count * sizeof *anchor);
    free(anchor);
    roundsrun_close(isle);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_anchor_is_copied_for_the_trainer),
        cmocka_unit_test(initial_tensors_are_version_0),
        cmocka_unit_test(a_state_of_a_peer_takes_the_place_of_ours),
        cmocka_unit_test(what_was_on_its_way_is_taken_for_counted),
        cmocka_unit_test(a_state_that_is_not_as_announced_is_refused),
        cmocka_unit_test(a_state_waits_for_readers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
