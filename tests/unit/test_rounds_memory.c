/* rounds, out of memory at every allocation: the daemon is told to end, nothing is told that did not happen, no version
 * without a shard is taken for applied, and what is on disk leads back. */
#include "tests/lib/testlib.h"

#include <string.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/mem.h"
#include "tests/lib/roundsrun.h"

enum { MEMBERS = 3, SELF = 2, ALLOCATIONS_MAX = 100 };

static const char exact[] = "codec = fp32\n";
static const char coarse[] = "codec = uniform\nerror_feedback = yes\n";
static const char penalty[] = "codec = fp32\noverlap = 10\n[outer]\noptimizer = heavyball\nlr = 0.5\n"
                              "momentum = 0.3\nstaleness_penalty = yes\n";

static struct roundsrun_object object; /* what the order under test is about */
static struct replica *twin;

/* Gives the order with the n-th allocation failing; whether the daemon has to end. */
typedef void order(struct roundsrun *isle);
static bool starve(struct roundsrun *isle, order *give, long n)
{
    roundsrun_forget(isle);
    mem_fail_after(n);
    give(isle);
    roundsrun_settle(isle);
    mem_fail_after(-1);
    bool fatal = events_fatal(isle->events)[0] != '\0';
    assert_int_equal(roundsrun_posted_count(isle, EVENT_FATAL), fatal);
    if (fatal)
        assert_non_null(strstr(events_fatal(isle->events), "out of memory"));
    return fatal;
}

static void rounds_that_cannot_be_made_leave_nothing(void **state)
{
    (void)state;
    struct roundsrun *isle = roundsrun_new("memory-new", coarse, MEMBERS, SELF, 0);
    struct rounds_conf conf = roundsrun_rounds_conf(isle);
    struct rounds *rounds;
    enum err err = ERR_NOMEM;
    long n = 0;
    for (; err == ERR_NOMEM && n < ALLOCATIONS_MAX; n++) {
        mem_fail_after(n);
        err = rounds_new(&conf, &rounds);
        mem_fail_after(-1);
        assert_int_equal(rounds == NULL, err != ERR_OK);
    }
    assert_int_equal(err, ERR_OK);
    assert_true(n > 10);
    rounds_free(rounds);
    roundsrun_close(isle);
}

static void order_encode(struct roundsrun *isle)
{
    roundsrun_snapshot(isle, 0, 10, 100);
}

static void an_encoding_ends_as_refused(void **state)
{
    (void)state;
    bool fatal = true;
    long n = 0;
    for (; fatal && n < ALLOCATIONS_MAX; n++) {
        struct roundsrun *isle = roundsrun_new("memory-encode", exact, MEMBERS, SELF, 0);
        roundsrun_train(isle, 0, 1, 0.1f);
        fatal = starve(isle, order_encode, n);
        assert_int_equal(roundsrun_posted_count(isle, EVENT_ENCODED), 1);
        assert_int_equal(roundsrun_posted(isle, EVENT_ENCODED, 0)->err, fatal ? ERR_NOMEM : ERR_OK);
        assert_int_equal(roundsrun_ordered_count(isle, SYNC_DO_SEND), fatal ? 0 : MEMBERS - 1);
        for (uint32_t s = 0; s < MEMBERS; s++)
            assert_false(slots_out(isle->slots, 0, s)->busy);
        roundsrun_close(isle);
    }
    assert_int_equal(n, 2 * MEMBERS + 1); /* a slot and a job for each shard */
}

static void order_object_in(struct roundsrun *isle)
{
    uint32_t peer = object.key.kind == WIRE_RESULT ? object.key.shard : object.key.island;
    rounds_object_in(isle->rounds, peer, &object.key, object.bytes);
}

static void what_comes_in_is_not_yet_received(void **state)
{
    (void)state;
    struct bitset all = bitset_first(MEMBERS);
    for (uint32_t kind = WIRE_CONTRIBUTION; kind <= WIRE_RESULT; kind++) {
        struct roundsrun *isle = roundsrun_new("memory-in", exact, MEMBERS, SELF, 0);
        if (kind == WIRE_CONTRIBUTION)
            roundsrun_contribution(isle, 0, 1, 100, 0.1f, &object);
        else
            roundsrun_result(isle, 0, 1, &all, 0.1f, &object);
        assert_true(starve(isle, order_object_in, 0));
        assert_int_equal(roundsrun_posted_count(isle, EVENT_JUDGED), 1);
        assert_int_equal(roundsrun_posted_count(isle, EVENT_SYNC), 0);
        for (size_t i = 0; i < isle->posted_count; i++)
            if (isle->posted[i].type == EVENT_JUDGED)
                assert_int_equal(isle->posted[i].object.done, WIRE_NOT_YET);
        assert_false(slots_in(isle->slots, 0, 1)->busy);
        assert_false(slots_result(isle->slots, 0, 1)->busy);
        roundsrun_close(isle);
    }
}

static void order_reduce(struct roundsrun *isle)
{
    rounds_reduce(isle->rounds, 0, 1, &sync_owner(isle->sync, 0)->have);
}

static void order_store(struct roundsrun *isle)
{
    rounds_store(isle->rounds, 0, 1);
}

/* All contributions to our shard are there, and the order to reduce, or to store, is held back. */
static struct roundsrun *with_contributions(enum sync_action_type hold)
{
    struct roundsrun *isle = roundsrun_new("memory-reduce", exact, MEMBERS, SELF, 0);
    isle->hold = 1u << hold | 1u << SYNC_DO_STORE;
    roundsrun_contribute(isle, 0, 0.01f, 100);
    for (uint32_t i = 0; i < SELF; i++)
        roundsrun_bring_contribution(isle, 0, i, 100, 0.02f);
    return isle;
}

static void no_mean_is_told_that_was_not_made(void **state)
{
    (void)state;
    bool fatal = true;
    long n = 0;
    for (; fatal && n < ALLOCATIONS_MAX; n++) {
        struct roundsrun *isle = with_contributions(SYNC_DO_REDUCE);
        fatal = starve(isle, order_reduce, n);
        assert_int_equal(roundsrun_told_count(isle, SYNC_EV_REDUCED), fatal ? 0 : 1);
        roundsrun_close(isle);
    }
    assert_int_equal(n, 3); /* slot, job */
}

/* What the ledger takes is as if the disk had refused: it is tried again. */
static void no_result_is_told_that_is_not_stored(void **state)
{
    (void)state;
    bool stored = false;
    long n = 0;
    for (; !stored && n < ALLOCATIONS_MAX; n++) {
        struct roundsrun *isle = with_contributions(SYNC_DO_STORE);
        bool fatal = starve(isle, order_store, n);
        stored = roundsrun_told_count(isle, SYNC_EV_STORED) == 1;
        assert_int_equal(ledger_has(isle->ledger, 0, 1, SELF), stored);
        assert_int_equal(fatal, n == 0);
        if (!fatal && !stored) {
            roundsrun_tick(isle, 2000);
            roundsrun_settle(isle);
            assert_int_equal(roundsrun_told_count(isle, SYNC_EV_STORED), 1);
            assert_true(ledger_has(isle->ledger, 0, 1, SELF));
        }
        roundsrun_close(isle);
    }
    assert_true(n > 1);
}

static void order_apply(struct roundsrun *isle)
{
    rounds_apply(isle->rounds, 0, 2);
}

/* Version 1 on disk, all results of version 2, and the order to apply them held back. */
static struct roundsrun *before_applying(const char *sync)
{
    struct bitset all = bitset_first(MEMBERS);
    struct roundsrun *isle = roundsrun_new("memory-apply", sync, MEMBERS, SELF, 0);
    roundsrun_round(isle, 0, &all);
    rounds_checkpoint(isle->rounds, 0);
    roundsrun_settle(isle);
    isle->hold = 1u << SYNC_DO_APPLY | 1u << SYNC_DO_GIVE;
    roundsrun_contribute(isle, 0, 0.01f, 5000);
    for (uint32_t i = 0; i < SELF; i++)
        roundsrun_bring_contribution(isle, 0, i, 100, 0.02f);
    for (uint32_t s = 0; s < SELF; s++)
        roundsrun_bring_result(isle, 0, s, true);
    assert_int_equal(sync_state(isle->sync, 0), SYNC_APPLYING);
    return isle;
}

/* The pools have the first round's jobs, so this round takes none: the pools of another rounds are empty. */
static void renew(struct roundsrun *isle)
{
    struct rounds_conf conf = roundsrun_rounds_conf(isle);
    struct store_fragment state = *rounds_state(isle->rounds, 0);
    rounds_free(isle->rounds);
    assert_ok(rounds_new(&conf, &isle->rounds));
    rounds_begin(isle->rounds, 0, &state.hash);
}

static void no_version_without_a_shard_is_applied(void **state)
{
    (void)state;
    static const char *const specs[] = {exact, penalty};
    for (size_t k = 0; k < 2; k++) {
        struct roundsrun *isle = before_applying(specs[k]);
        rounds_apply(isle->rounds, 0, 2);
        roundsrun_settle(isle);
        const struct digest right = rounds_state(isle->rounds, 0)->hash;
        roundsrun_close(isle);
        bool fatal = true;
        long n = 0;
        for (; fatal && n < ALLOCATIONS_MAX; n++) {
            isle = before_applying(specs[k]);
            renew(isle);
            fatal = starve(isle, order_apply, n);
            assert_int_equal(roundsrun_told_count(isle, SYNC_EV_APPLIED), fatal ? 0 : 1);
            assert_int_equal(roundsrun_posted_count(isle, EVENT_COUNTED), fatal ? 0 : 1);
            assert_int_equal(rounds_state(isle->rounds, 0)->version, fatal ? 0 : 2);
            if (fatal) { /* as the daemon ends: a half stepped anchor reaches no file */
                rounds_checkpoint(isle->rounds, 0);
                rounds_export(isle->rounds);
                roundsrun_tick(isle, 100);
                assert_int_equal(jobs_pending(isle->jobs), 0);
            }
            isle = roundsrun_again(isle);
            assert_int_equal(rounds_state(isle->rounds, 0)->version, 2);
            assert_true(digest_equal(&rounds_state(isle->rounds, 0)->hash, &right));
            roundsrun_close(isle);
        }
        assert_int_equal(n, MEMBERS + 2 + 1); /* the shards' jobs, the hash's, and what it takes */
    }
}

static void order_give(struct roundsrun *isle)
{
    rounds_give(isle->rounds, 0, isle->area[0]);
}

static void order_start(struct roundsrun *isle)
{
    rounds_start(isle->rounds, 0, isle->base[0], true);
}

static void no_anchor_is_told_that_was_not_copied(void **state)
{
    (void)state;
    for (int initial = 0; initial < 2; initial++) {
        bool fatal = true;
        long n = 0;
        for (; fatal && n < ALLOCATIONS_MAX; n++) {
            struct roundsrun_conf conf = {
                .folder = testlib_folder("memory-copy"), .sync = exact, .members = MEMBERS, .self = SELF};
            struct roundsrun *isle = roundsrun_open(&conf);
            fatal = starve(isle, initial ? order_start : order_give, n);
            assert_int_equal(roundsrun_posted_count(isle, initial ? EVENT_STARTED : EVENT_GIVEN), fatal ? 0 : 1);
            assert_int_equal(sync_known(isle->sync, 0), initial && !fatal);
            roundsrun_close(isle);
        }
        assert_int_equal(n, initial ? 3 : 2);
    }
}

/* The job is the daemon's end; what it takes to verify the state is as if the state were of no use: it comes again. */
static void a_state_is_not_taken_over(void **state)
{
    (void)state;
    bool installed = false;
    long n = 0;
    for (; !installed && n < ALLOCATIONS_MAX; n++) {
        struct roundsrun *isle = roundsrun_new("memory-install", coarse, MEMBERS, SELF, 0);
        struct replica *before = roundsrun_twin(isle);
        uint8_t *memory;
        roundsrun_make_state(isle, 0, 0.5f, &twin, &object);
        roundsrun_diverge(isle, 0, twin);
        assert_ok(slots_take_state(isle->slots, 0, object.bytes, &memory));
        memcpy(memory, object.byte, object.bytes);
        isle->hold = ~0u;
        bool fatal = starve(isle, order_object_in, n);
        installed = roundsrun_told_count(isle, SYNC_EV_INSTALLED) == 1;
        assert_int_equal(roundsrun_posted_count(isle, EVENT_JUDGED), 1);
        for (size_t i = 0; i < isle->posted_count; i++)
            if (isle->posted[i].type == EVENT_JUDGED)
                assert_int_equal(isle->posted[i].object.done, installed ? WIRE_RECEIVED
                                                              : fatal   ? WIRE_NOT_YET
                                                                        : WIRE_REFUSED);
        assert_int_equal(fatal, n == 0);
        assert_int_equal(roundsrun_told_count(isle, SYNC_EV_NOT_AVAILABLE), !fatal && !installed);
        assert_memory_equal(replica_anchor(isle->replica, 0), replica_anchor(installed ? twin : before, 0),
                            roundsrun_values(isle, 0) * sizeof(float));
        replica_free(before);
        replica_free(twin);
        roundsrun_close(isle);
    }
    assert_int_equal(n, 3);
}

static void order_checkpoint(struct roundsrun *isle)
{
    rounds_checkpoint(isle->rounds, 0);
}

static void order_export(struct roundsrun *isle)
{
    rounds_export(isle->rounds);
}

/* What cannot be written for want of memory is said and written later; only a job that cannot be made ends the daemon.
 */
static void what_is_not_written_is_not_taken_for_written(void **state)
{
    (void)state;
    for (int exporting = 0; exporting < 2; exporting++) {
        bool written = false;
        long n = 0;
        for (; !written && n < ALLOCATIONS_MAX; n++) {
            struct roundsrun *isle = roundsrun_new("memory-write", exact, MEMBERS, SELF, 0);
            const char *path =
                testlib_path(isle->conf.folder, exporting ? "anchor.safetensors" : "fragment-0000.safetensors");
            bool fatal = starve(isle, exporting ? order_export : order_checkpoint, n);
            struct rounds_info info = rounds_info(isle->rounds);
            written = exporting ? info.saving == ROUNDS_EXPORT_DONE : !fatal && info.disk_note[0] == '\0';
            assert_int_equal(fatal, n == 0);
            assert_true(!written || access(path, F_OK) == 0);
            roundsrun_tick(isle, 100);
            roundsrun_settle(isle);
            if (!exporting || info.saving == ROUNDS_EXPORT_FAILED) /* one that was not begun is begun by itself */
                (exporting ? order_export : order_checkpoint)(isle);
            roundsrun_settle(isle);
            assert_int_equal(access(path, F_OK), 0);
            assert_string_equal(rounds_info(isle->rounds).disk_note, "");
            roundsrun_close(isle);
        }
        assert_true(n > 3 && n < ALLOCATIONS_MAX);
    }
}

static void a_recovery_fails_whole(void **state)
{
    (void)state;
    struct bitset all = bitset_first(MEMBERS);
    struct roundsrun *isle = roundsrun_new("memory-recover", coarse, MEMBERS, SELF, 0);
    for (int k = 0; k < 3; k++) {
        roundsrun_round(isle, 0, &all);
        if (k == 0)
            rounds_checkpoint(isle->rounds, 0);
        roundsrun_settle(isle);
    }
    const struct digest right = rounds_state(isle->rounds, 0)->hash;
    struct rounds_conf conf = roundsrun_rounds_conf(isle);
    enum err err = ERR_NOMEM;
    long n = 0;
    for (; err == ERR_NOMEM && n < ALLOCATIONS_MAX; n++) {
        bool known;
        struct bitset results;
        rounds_free(isle->rounds);
        assert_ok(rounds_new(&conf, &isle->rounds));
        mem_fail_after(n);
        err = rounds_recover(isle->rounds, 0, &known, &results);
        mem_fail_after(-1);
    }
    assert_int_equal(err, ERR_OK);
    assert_true(n > 5);
    assert_int_equal(rounds_state(isle->rounds, 0)->version, 3);
    assert_true(digest_equal(&rounds_state(isle->rounds, 0)->hash, &right));
    roundsrun_close(isle);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounds_that_cannot_be_made_leave_nothing),
        cmocka_unit_test(an_encoding_ends_as_refused),
        cmocka_unit_test(what_comes_in_is_not_yet_received),
        cmocka_unit_test(no_mean_is_told_that_was_not_made),
        cmocka_unit_test(no_result_is_told_that_is_not_stored),
        cmocka_unit_test(no_version_without_a_shard_is_applied),
        cmocka_unit_test(no_anchor_is_told_that_was_not_copied),
        cmocka_unit_test(a_state_is_not_taken_over),
        cmocka_unit_test(what_is_not_written_is_not_taken_for_written),
        cmocka_unit_test(a_recovery_fails_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
