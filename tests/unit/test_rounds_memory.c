/* SPDX-License-Identifier: Apache-2.0 */
/* rounds, out of memory at every allocation: the daemon is told to end, nothing is told that did not happen, no version
 * without a shard is taken for applied, and what is on disk leads back. */
#include "tests/lib/testlib.h"

#include <string.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/mem.h"
#include "tests/lib/rig.h"
#include "tests/lib/roster.h"

enum { MEMBERS = 3, SELF = 2, ALLOCATIONS_MAX = 100 };

static const char exact[] = "codec = fp32\n";
static const char coarse[] = "codec = uniform\nerror_feedback = yes\n";
static const char penalty[] = "codec = fp32\noverlap = 10\n[outer]\noptimizer = heavyball\nlr = 0.5\n"
                              "momentum = 0.3\nstaleness_penalty = yes\n";

static struct rig_object object; /* what the order under test is about */
static struct replica *twin;

/* Gives the order with the n-th allocation failing; whether the daemon has to end. */
typedef void order(struct rig *rig);
static bool starve(struct rig *rig, order *give, long n)
{
    rig_forget(rig);
    mem_fail_after(n);
    give(rig);
    rig_settle(rig);
    mem_fail_after(-1);
    bool fatal = events_fatal(rig->events)[0] != '\0';
    assert_int_equal(rig_posted_count(rig, EVENT_FATAL), fatal);
    if (fatal)
        assert_non_null(strstr(events_fatal(rig->events), "out of memory"));
    return fatal;
}

static void rounds_that_cannot_be_made_leave_nothing(void **state)
{
    (void)state;
    struct rig *rig = rig_new("memory-new", coarse, MEMBERS, SELF, 0);
    struct rounds_conf conf = rig_rounds_conf(rig);
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
    rig_close(rig);
}

static void order_encode(struct rig *rig)
{
    rig_snapshot(rig, 0, 10, 100);
}

static void an_encoding_ends_as_refused(void **state)
{
    (void)state;
    bool fatal = true;
    long n = 0;
    for (; fatal && n < ALLOCATIONS_MAX; n++) {
        struct rig *rig = rig_new("memory-encode", exact, MEMBERS, SELF, 0);
        rig_train(rig, 0, 1, 0.1f);
        fatal = starve(rig, order_encode, n);
        assert_int_equal(rig_posted_count(rig, EVENT_ENCODED), 1);
        assert_int_equal(rig_posted(rig, EVENT_ENCODED, 0)->err, fatal ? ERR_NOMEM : ERR_OK);
        assert_int_equal(rig_ordered_count(rig, SYNC_DO_SEND), fatal ? 0 : MEMBERS - 1);
        for (uint32_t s = 0; s < MEMBERS; s++)
            assert_false(slots_out(rig->slots, 0, s)->busy);
        rig_close(rig);
    }
    assert_int_equal(n, 2 * MEMBERS + 1); /* a slot and a job for each shard */
}

static void order_object_in(struct rig *rig)
{
    uint32_t peer = roster_number(object.key.kind == WIRE_RESULT ? object.key.owner : object.key.island);
    rounds_object_in(rig->rounds, peer, &object.key, object.bytes, false);
}

static void what_comes_in_is_not_yet_received(void **state)
{
    (void)state;
    struct bitset all = bitset_first(MEMBERS);
    for (uint32_t kind = WIRE_CONTRIBUTION; kind <= WIRE_RESULT; kind++) {
        struct rig *rig = rig_new("memory-in", exact, MEMBERS, SELF, 0);
        if (kind == WIRE_CONTRIBUTION)
            rig_contribution(rig, 0, 1, 100, 0.1f, &object);
        else
            rig_result(rig, 0, 1, &all, 0.1f, &object);
        assert_true(starve(rig, order_object_in, 0));
        assert_int_equal(rig_posted_count(rig, EVENT_JUDGED), 1);
        assert_int_equal(rig_posted_count(rig, EVENT_SYNC), 0);
        for (size_t i = 0; i < rig->posted_count; i++)
            if (rig->posted[i].type == EVENT_JUDGED)
                assert_int_equal(rig->posted[i].object.done, WIRE_NOT_YET);
        assert_false(slots_in(rig->slots, 0, 1)->busy);
        assert_false(slots_result(rig->slots, 0, 1)->busy);
        rig_close(rig);
    }
}

static void order_reduce(struct rig *rig)
{
    reduce_begin(rig->rounds->reduce, 0, 1, &sync_owner(rig->sync, 0)->have);
}

static void order_store(struct rig *rig)
{
    reduce_store(rig->rounds->reduce, 0, 1);
}

/* All contributions to our shard are there, and the order to reduce, or to store, is held back. */
static struct rig *with_contributions(enum sync_action_type hold)
{
    struct rig *rig = rig_new("memory-reduce", exact, MEMBERS, SELF, 0);
    rig->hold = 1u << hold | 1u << SYNC_DO_STORE;
    rig_contribute(rig, 0, 0.01f, 100);
    for (uint32_t i = 0; i < SELF; i++)
        rig_bring_contribution(rig, 0, i, 100, 0.02f);
    return rig;
}

static void no_mean_is_told_that_was_not_made(void **state)
{
    (void)state;
    bool fatal = true;
    long n = 0;
    for (; fatal && n < ALLOCATIONS_MAX; n++) {
        struct rig *rig = with_contributions(SYNC_DO_REDUCE);
        fatal = starve(rig, order_reduce, n);
        assert_int_equal(rig_told_count(rig, SYNC_EV_REDUCED), fatal ? 0 : 1);
        rig_close(rig);
    }
    assert_int_equal(n, 6); /* slot, job, what reads the contributions, what is found of them and of their directions */
}

/* What the ledger takes is as if the disk had refused: it is tried again. */
static void no_result_is_told_that_is_not_stored(void **state)
{
    (void)state;
    bool stored = false;
    long n = 0;
    for (; !stored && n < ALLOCATIONS_MAX; n++) {
        struct rig *rig = with_contributions(SYNC_DO_STORE);
        bool fatal = starve(rig, order_store, n);
        stored = rig_told_count(rig, SYNC_EV_STORED) == 1;
        assert_int_equal(rig_has(rig, 0, 1, SELF), stored);
        assert_int_equal(fatal, n == 0);
        if (!fatal && !stored) {
            rig_tick(rig, 2000);
            rig_settle(rig);
            assert_int_equal(rig_told_count(rig, SYNC_EV_STORED), 1);
            assert_true(rig_has(rig, 0, 1, SELF));
        }
        rig_close(rig);
    }
    assert_true(n > 1);
}

static void order_apply(struct rig *rig)
{
    apply_begin(rig->rounds->apply, 0, 2);
}

/* Version 1 on disk, all results of version 2, and the order to apply them held back. */
static struct rig *before_applying(const char *sync)
{
    struct bitset all = bitset_first(MEMBERS);
    struct rig *rig = rig_new("memory-apply", sync, MEMBERS, SELF, 0);
    rig_round(rig, 0, &all);
    keep_checkpoint(rig->rounds->keep, 0);
    rig_settle(rig);
    rig->hold = 1u << SYNC_DO_APPLY | 1u << SYNC_DO_PUBLISH;
    rig_contribute(rig, 0, 0.01f, 5000);
    for (uint32_t i = 0; i < SELF; i++)
        rig_bring_contribution(rig, 0, i, 100, 0.02f);
    for (uint32_t s = 0; s < SELF; s++)
        rig_bring_result(rig, 0, s, true);
    assert_int_equal(sync_state(rig->sync, 0), SYNC_APPLYING);
    return rig;
}

/* The pools have the first round's jobs, so this round takes none: the pools of another rounds are empty. */
static void renew(struct rig *rig)
{
    struct rounds_conf conf = rig_rounds_conf(rig);
    struct store_fragment state = *rounds_state(rig->rounds, 0);
    rounds_free(rig->rounds);
    assert_ok(rounds_new(&conf, &rig->rounds));
    round_context_begin(rig->rounds->context, 0, &state.hash);
}

static void no_version_without_a_shard_is_applied(void **state)
{
    (void)state;
    static const char *const specs[] = {exact, penalty};
    for (size_t k = 0; k < 2; k++) {
        struct rig *rig = before_applying(specs[k]);
        apply_begin(rig->rounds->apply, 0, 2);
        rig_settle(rig);
        const struct digest right = rounds_state(rig->rounds, 0)->hash;
        rig_close(rig);
        bool fatal = true, all_but_hashed = false;
        long n = 0;
        for (; fatal && n < ALLOCATIONS_MAX; n++) {
            rig = before_applying(specs[k]);
            renew(rig);
            fatal = starve(rig, order_apply, n);
            size_t made = rig_told_count(rig, SYNC_EV_MADE);
            assert_int_equal(rig_told_count(rig, SYNC_EV_APPLIED), fatal ? 0 : 1);
            assert_int_equal(rig_posted_count(rig, EVENT_COUNTED), made);
            assert_true(made == 1 || (made == 0 && fatal)); /* memory may end with the hash, too */
            all_but_hashed |= fatal && made == 1;
            assert_int_equal(rounds_state(rig->rounds, 0)->version, fatal ? 0 : 2);
            if (fatal) { /* as the daemon ends: a half stepped anchor reaches no file */
                keep_checkpoint(rig->rounds->keep, 0);
                assert_int_equal(jobs_pending(rig->jobs), 0);
                keep_export(rig->rounds->keep);
                rig_tick(rig, 100);
                rig_settle(rig);
                assert_int_equal(access(testlib_path(rig->conf.folder, "anchor.safetensors"), F_OK), -1);
            }
            rig = rig_again(rig);
            /* A version that was told, were it the trainer alone, is come back to; the results of one that was not are
             * there, and make it now. */
            assert_int_equal(rounds_state(rig->rounds, 0)->version, made == 1 ? 2 : 1);
            rig_greet(rig);
            rig_settle(rig);
            assert_int_equal(rounds_state(rig->rounds, 0)->version, 2);
            assert_true(digest_equal(&rounds_state(rig->rounds, 0)->hash, &right));
            rig_close(rig);
        }
        /* The parts' jobs, whom each counts, from the ledger and in the anchor; the hash's job, and two more. */
        assert_int_equal(n, 3 * MEMBERS + 1 + 2 + 1);
        assert_true(all_but_hashed);
    }
}

static void order_publish(struct rig *rig)
{
    copy_publish(rig->rounds->copy, 0, rig->area[0]);
}

static void order_start(struct rig *rig)
{
    copy_start(rig->rounds->copy, 0, rig->base[0], true);
}

static void no_anchor_is_told_that_was_not_copied(void **state)
{
    (void)state;
    for (int initial = 0; initial < 2; initial++) {
        bool fatal = true;
        long n = 0;
        for (; fatal && n < ALLOCATIONS_MAX; n++) {
            struct rig_conf conf = {
                .folder = testlib_folder("memory-copy"), .sync = exact, .members = MEMBERS, .self = SELF};
            struct rig *rig = rig_open(&conf);
            fatal = starve(rig, initial ? order_start : order_publish, n);
            assert_int_equal(rig_posted_count(rig, initial ? EVENT_STARTED : EVENT_PUBLISHED), fatal ? 0 : 1);
            assert_int_equal(sync_known(rig->sync, 0), initial && !fatal);
            rig_close(rig);
        }
        assert_int_equal(n, initial ? 5 : 2);
    }
}

/* The job is the daemon's end; what it takes to verify the state is as if the state were of no use: it comes again. */
static void a_state_is_not_taken_over(void **state)
{
    (void)state;
    bool installed = false;
    long n = 0;
    int unkept_times = 0;
    for (; !installed && n < ALLOCATIONS_MAX; n++) {
        struct rig *rig = rig_new("memory-install", coarse, MEMBERS, SELF, 0);
        struct replica *before = rig_twin(rig);
        uint8_t *memory;
        rig_make_state(rig, 0, 0.5f, &twin, &object);
        rig_diverge(rig, 0, twin);
        assert_ok(slots_take_state(rig->slots, 0, object.bytes, &memory));
        memcpy(memory, object.byte, object.bytes);
        rig->hold = ~0u;
        bool fatal = starve(rig, order_object_in, n);
        installed = rig_told_count(rig, SYNC_EV_INSTALLED) == 1;
        bool unkept = fatal && n > 0; /* taken over, and no job is to be had that writes it: the daemon ends */
        assert_int_equal(rig_posted_count(rig, EVENT_JUDGED), unkept ? 0 : 1);
        for (size_t i = 0; i < rig->posted_count; i++)
            if (rig->posted[i].type == EVENT_JUDGED)
                assert_int_equal(rig->posted[i].object.done, installed ? WIRE_RECEIVED
                                                             : fatal   ? WIRE_NOT_YET
                                                                       : WIRE_REFUSED);
        unkept_times += unkept;
        assert_int_equal(rig_told_count(rig, SYNC_EV_NOT_AVAILABLE), !fatal && !installed);
        assert_memory_equal(replica_anchor(rig->replica, 0), replica_anchor(installed || unkept ? twin : before, 0),
                            rig_values(rig, 0) * sizeof(float));
        replica_free(before);
        replica_free(twin);
        rig_close(rig);
    }
    assert_int_equal(n, 4);
    assert_int_equal(unkept_times, 1);
}

static void order_checkpoint(struct rig *rig)
{
    keep_checkpoint(rig->rounds->keep, 0);
}

static void order_export(struct rig *rig)
{
    keep_export(rig->rounds->keep);
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
            struct rig *rig = rig_new("memory-write", exact, MEMBERS, SELF, 0);
            const char *path =
                testlib_path(rig->conf.folder, exporting ? "anchor.safetensors" : "fragment-0000.safetensors");
            bool fatal = starve(rig, exporting ? order_export : order_checkpoint, n);
            struct rounds_info info = rounds_info(rig->rounds);
            written = exporting ? info.saving == ROUNDS_EXPORT_DONE : !fatal && info.disk_note[0] == '\0';
            assert_int_equal(fatal, n == 0);
            assert_true(!written || access(path, F_OK) == 0);
            rig_tick(rig, 100);
            rig_settle(rig);
            if (!exporting || info.saving == ROUNDS_EXPORT_FAILED) /* one that was not begun is begun by itself */
                (exporting ? order_export : order_checkpoint)(rig);
            rig_settle(rig);
            assert_int_equal(access(path, F_OK), 0);
            assert_string_equal(rounds_info(rig->rounds).disk_note, "");
            rig_close(rig);
        }
        assert_true(n > 3 && n < ALLOCATIONS_MAX);
    }
}

static void a_recovery_fails_whole(void **state)
{
    (void)state;
    struct bitset all = bitset_first(MEMBERS);
    struct rig *rig = rig_new("memory-recover", coarse, MEMBERS, SELF, 0);
    for (int k = 0; k < 3; k++) {
        rig_round(rig, 0, &all);
        if (k == 0)
            keep_checkpoint(rig->rounds->keep, 0);
        rig_settle(rig);
    }
    const struct digest right = rounds_state(rig->rounds, 0)->hash;
    struct rounds_conf conf = rig_rounds_conf(rig);
    enum err err = ERR_NOMEM;
    long n = 0;
    for (; err == ERR_NOMEM && n < ALLOCATIONS_MAX; n++) {
        rounds_free(rig->rounds);
        assert_ok(rounds_new(&conf, &rig->rounds));
        mem_fail_after(n);
        err = rig_recover(rig);
        mem_fail_after(-1);
    }
    assert_int_equal(err, ERR_OK);
    assert_true(n > 5);
    assert_int_equal(rounds_state(rig->rounds, 0)->version, 3);
    assert_true(digest_equal(&rounds_state(rig->rounds, 0)->hash, &right));
    rig_close(rig);
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
