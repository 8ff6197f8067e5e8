/* SPDX-License-Identifier: Apache-2.0 */
/* rounds and the disk: when a checkpoint is written, and that checkpoint and ledger lead back to what was lived
 * through.
 */
#include "tests/lib/testlib.h"

#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/mem.h"
#include "tests/lib/rig.h"
#include "tests/lib/overhear.h"

enum { MEMBERS = 3, SELF = 2, VALUES_MAX = 4096 };

static const char exact[] = "codec = fp32\n";
static const char coarse[] = "codec = uniform\nerror_feedback = yes\n";

static const char *path_of(const struct rig *rig, uint32_t f)
{
    return testlib_path(rig->conf.folder, f == 0 ? "fragment-0000.safetensors" : "fragment-0001.safetensors");
}

/* ---- checkpoints ---- */

/* Whether the order makes a job. */
static bool begins_checkpoint(struct rig *rig, uint32_t f)
{
    size_t before = jobs_pending(rig->jobs);
    keep_checkpoint(rig->rounds->keep, f);
    return jobs_pending(rig->jobs) > before;
}

static void a_version_is_written_once(void **state)
{
    (void)state;
    struct bitset all = bitset_first(MEMBERS);
    struct rig *rig = rig_new("disk-once", exact, MEMBERS, SELF, 0);
    for (uint64_t version = 0; version < 3; version++) {
        assert_true(begins_checkpoint(rig, 0));
        assert_false(begins_checkpoint(rig, 0)); /* one is under way */
        rig_settle(rig);
        assert_int_equal(access(path_of(rig, 0), F_OK), 0);
        assert_false(begins_checkpoint(rig, 0)); /* it is on disk */
        rig_round(rig, 0, &all);
    }
    assert_int_equal(access(path_of(rig, 1), F_OK), -1);
    rig_close(rig);
}

/* An anchor that is not known, half stepped or about to be replaced is not written. */
static void a_fragment_that_does_not_stand_still_is_not_written(void **state)
{
    (void)state;
    static struct rig_object object;
    struct replica *twin;
    struct rig_conf conf = {.folder = testlib_folder("disk-steady"), .sync = exact, .members = MEMBERS, .self = SELF};
    struct rig *rig = rig_open(&conf);
    assert_false(begins_checkpoint(rig, 0));
    rig_begin(rig);
    rig->hold = 1u << SYNC_DO_APPLY;
    rig_contribute(rig, 0, 0.01f, 1000);
    assert_true(begins_checkpoint(rig, 1)); /* another fragment */
    for (uint32_t i = 0; i < SELF; i++)
        rig_bring_contribution(rig, 0, i, 100, 0.02f);
    for (uint32_t s = 0; s < SELF; s++)
        rig_bring_result(rig, 0, s, true);
    assert_int_equal(sync_state(rig->sync, 0), SYNC_APPLYING);
    assert_false(begins_checkpoint(rig, 0));
    apply_begin(rig->rounds->apply, 0, 1);
    rig_settle(rig);
    rig_make_state(rig, 0, 0.5f, &twin, &object);
    rig_mixed(rig, 0);
    rig_diverge(rig, 0, twin);
    assert_false(begins_checkpoint(rig, 0));
    replica_free(twin);
    rig_close(rig);
}

/* A state of a peer has the version that is on disk already, and is another one: the ledger does not lead there. */
static void a_state_of_a_peer_is_always_written(void **state)
{
    (void)state;
    static struct rig_object object;
    static float theirs[VALUES_MAX];
    struct replica *twin;
    struct bitset all = bitset_first(MEMBERS);
    struct rig *rig = rig_new("disk-installed", coarse, MEMBERS, SELF, 0);
    size_t bytes = rig_values(rig, 0) * sizeof *theirs;
    rig_round(rig, 0, &all);
    keep_checkpoint(rig->rounds->keep, 0);
    rig_settle(rig);
    rig_make_state(rig, 0, 0.5f, &twin, &object);
    rig_diverge(rig, 0, twin);
    rig_bring(rig, 0, &object);
    rig_settle(rig);
    rig_mixed(rig, 0);
    assert_int_equal(rounds_state(rig->rounds, 0)->version, 1);
    assert_true(begins_checkpoint(rig, 0));
    rig_settle(rig);
    assert_false(begins_checkpoint(rig, 0));
    memcpy(theirs, replica_anchor(twin, 0), bytes);
    replica_free(twin);
    rig = rig_again(rig);
    assert_memory_equal(replica_anchor(rig->replica, 0), theirs, bytes);
    assert_int_equal(rounds_state(rig->rounds, 0)->step, RIG_STATE_STEP);
    assert_false(begins_checkpoint(rig, 0)); /* as recovered, so it stands on disk */
    rig_close(rig);
}

/* The same where the disk refuses it first: what is on disk has its version, and is another state. */
static void a_state_of_a_peer_that_the_disk_refused_is_written_later(void **state)
{
    (void)state;
    static struct rig_object object;
    struct replica *twin;
    struct rlimit limit;
    struct bitset all = bitset_first(MEMBERS);
    struct rig *rig = rig_new("disk-refused", exact, MEMBERS, SELF, 0);
    rig_round(rig, 0, &all);
    keep_checkpoint(rig->rounds->keep, 0);
    rig_settle(rig);
    rig_make_state(rig, 0, 0.5f, &twin, &object);
    rig_diverge(rig, 0, twin);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = 1000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    rig_bring(rig, 0, &object);
    rig_settle(rig);
    limit.rlim_cur = limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    rig_mixed(rig, 0);
    assert_int_equal(rounds_state(rig->rounds, 0)->version, 1);
    assert_non_null(strstr(rounds_info(rig->rounds).disk_note, "checkpoint of fragment 0 failed"));
    assert_true(begins_checkpoint(rig, 0));
    rig_settle(rig);
    replica_free(twin);
    rig = rig_again(rig);
    assert_int_equal(rounds_state(rig->rounds, 0)->step, RIG_STATE_STEP);
    rig_close(rig);
}

static void a_checkpoint_that_fails_is_said_and_tried_again(void **state)
{
    (void)state;
    struct rlimit limit;
    struct rig *rig = rig_new("disk-full", exact, MEMBERS, SELF, 0);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = 1000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_true(begins_checkpoint(rig, 0));
    rig_settle(rig);
    assert_non_null(strstr(rounds_info(rig->rounds).disk_note, "checkpoint of fragment 0 failed"));
    assert_int_equal(access(path_of(rig, 0), F_OK), -1);
    limit.rlim_cur = limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_true(begins_checkpoint(rig, 0));
    rig_settle(rig);
    assert_string_equal(rounds_info(rig->rounds).disk_note, "");
    assert_int_equal(access(path_of(rig, 0), F_OK), 0);
    rig_close(rig);
}

static bool ledger_holds(const struct rig *rig, uint32_t f, uint64_t version)
{
    for (uint32_t s = 0; s < MEMBERS; s++)
        if (!rig_has(rig, f, version, s))
            return false;
    return true;
}

/* The last fragment's checkpoint lets go of results; never of one that a restart would need. */
static void results_go_when_checkpoints_cover_them(void **state)
{
    (void)state;
    static struct rig_object object;
    struct replica *twin;
    struct bitset all = bitset_first(MEMBERS);
    struct rig_conf conf = {.folder = testlib_folder("disk-prune"),
                            .sync = exact,
                            .members = MEMBERS,
                            .self = SELF,
                            .segment_bytes = 4096,
                            .kept_bytes = 1};
    struct rig *rig = rig_open(&conf);
    rig_begin(rig);
    for (int k = 0; k < 6; k++)
        for (uint32_t f = 0; f < RIG_FRAGMENTS; f++)
            rig_round(rig, f, &all);
    keep_checkpoint(rig->rounds->keep, 1);
    rig_settle(rig);
    for (uint64_t version = 1; version <= 6; version++)
        assert_true(ledger_holds(rig, 0, version)); /* its fragment is on no disk yet */
    keep_checkpoint(rig->rounds->keep, 0);
    rig_settle(rig);
    rig_round(rig, 1, &all);
    keep_checkpoint(rig->rounds->keep, 1);
    rig_settle(rig);
    assert_false(rig_has(rig, 0, 1, 0));
    assert_false(rig_has(rig, 1, 1, 0));
    /* A peer's state came, and is on disk before the core hears of it: a restart begins with it. */
    for (int k = 0; k < 6; k++)
        rig_round(rig, 0, &all);
    assert_true(ledger_holds(rig, 0, 7));
    rig_make_state(rig, 0, 0.5f, &twin, &object);
    rig_diverge(rig, 0, twin);
    rig_bring(rig, 0, &object);
    rig_settle(rig);
    rig_mixed(rig, 0);
    rig_round(rig, 1, &all);
    keep_checkpoint(rig->rounds->keep, 1);
    rig_settle(rig);
    assert_false(ledger_holds(rig, 0, 7));
    replica_free(twin);
    rig = rig_again(rig);
    assert_int_equal(rounds_state(rig->rounds, 0)->step, RIG_STATE_STEP);
    rig_close(rig);
}

/* Of the epochs that versions after the checkpoints belong to. */
static void configurations_are_needed_from_the_oldest_checkpoint_on(void **state)
{
    (void)state;
    struct bitset all = bitset_first(MEMBERS);
    struct rig *rig = rig_new("disk-records", exact, MEMBERS, SELF, 0);
    for (uint64_t epoch = 1; epoch <= 2; epoch++) {
        struct config next;
        for (uint32_t f = 0; f < RIG_FRAGMENTS; f++)
            rig_round(rig, f, &all);
        assert_ok(config_copy(config_log_last(rig->config_log), &next));
        next.epoch++;
        next.previous = *config_log_last_digest(rig->config_log);
        uint64_t starts[RIG_FRAGMENTS];
        for (uint32_t f = 0; f < RIG_FRAGMENTS; f++)
            starts[f] = epoch;
        mem_free(next.starts);
        assert_ok(mem_new(RIG_FRAGMENTS, sizeof *next.starts, "starts", &next.starts));
        memcpy(next.starts, starts, sizeof starts);
        next.starts_count = RIG_FRAGMENTS;
        rig_epoch(rig, &next);
    }
    assert_int_equal(keep_first_epoch(rig->rounds->keep), 0); /* nothing is on disk */
    keep_checkpoint(rig->rounds->keep, 0);
    rig_settle(rig);
    assert_int_equal(keep_first_epoch(rig->rounds->keep), 0); /* one fragment is not */
    for (uint32_t f = 1; f < RIG_FRAGMENTS; f++)
        keep_checkpoint(rig->rounds->keep, f);
    rig_settle(rig);
    assert_int_equal(keep_first_epoch(rig->rounds->keep), 2);
    rig_close(rig);
}

/* ---- recovery ---- */

static size_t owned(const struct rig *rig, uint32_t f)
{
    return replica_values(rig->replica, f, replica_owner_shards(rig->replica, f));
}

static void assert_replay_leads_there(const char *sync)
{
    static float anchor[VALUES_MAX], momentum[VALUES_MAX];
    struct bitset all = bitset_first(MEMBERS), some = RIG_SET(0);
    struct rig *rig = rig_new("disk-replay", sync, MEMBERS, SELF, 0);
    rig_round(rig, 0, &all);
    keep_checkpoint(rig->rounds->keep, 0);
    rig_settle(rig);
    for (int k = 0; k < 3; k++)
        rig_round(rig, 0, k == 1 ? &some : &all);
    struct store_fragment lived = *rounds_state(rig->rounds, 0);
    size_t bytes = rig_values(rig, 0) * sizeof *anchor;
    memcpy(anchor, replica_anchor(rig->replica, 0), bytes);
    memcpy(momentum, replica_momentum(rig->replica, 0), bytes);
    assert_int_equal(lived.version, 4);
    rig_bring_result(rig, 0, 1, true); /* of the version after it */
    rig = rig_again(rig);
    const struct store_fragment *recovered = rounds_state(rig->rounds, 0);
    assert_int_equal(recovered->version, 4);
    assert_int_equal(recovered->step, lived.step);
    assert_true(digest_equal(&recovered->hash, &lived.hash));
    assert_memory_equal(replica_anchor(rig->replica, 0), anchor, bytes);
    assert_memory_equal(replica_momentum(rig->replica, 0), momentum, bytes);
    rig_assert_held(rig, 0, RIG_SET(1));
    assert_int_equal(rounds_step(rig->rounds), lived.step);
    assert_true(begins_checkpoint(rig, 0)); /* what is on disk is older */
    assert_false(sync_known(rig->sync, 1)); /* the other fragment was never written */
    /* Results were made of the checkpoint's residuals: they are used up. */
    if (rig->spec.error_feedback) {
        assert_true(rig_all_zero(replica_residual(rig->replica, 0), rig_values(rig, 0)));
        assert_true(rig_all_zero(replica_owner_residual(rig->replica, 0), owned(rig, 0)));
    }
    rig_close(rig);
}

static void a_replay_leads_where_life_has_led(void **state)
{
    (void)state;
    assert_replay_leads_there(coarse);
    /* Norms over the whole fragment in every step. */
    assert_replay_leads_there("codec = fp32\noverlap = 10\n[outer]\noptimizer = heavyball\nlr = 0.5\n"
                              "momentum = 0.3\nstaleness_penalty = yes\n");
}

/* Nothing was made of the checkpoint's residuals since: they go on. But a result of our own shard was made of the
 * owner's, even if its version is not complete. */
static void residuals_outlive_a_restart_if_nothing_used_them(void **state)
{
    (void)state;
    static float before[VALUES_MAX], owner_before[VALUES_MAX];
    struct bitset all = bitset_first(MEMBERS);
    struct rig *rig = rig_new("disk-residual", coarse, MEMBERS, SELF, 0);
    rig_round(rig, 0, &all);
    keep_checkpoint(rig->rounds->keep, 0);
    rig_settle(rig);
    memcpy(before, replica_residual(rig->replica, 0), rig_values(rig, 0) * sizeof *before);
    memcpy(owner_before, replica_owner_residual(rig->replica, 0), owned(rig, 0) * sizeof *before);
    assert_false(rig_all_zero(before, rig_values(rig, 0)));
    assert_false(rig_all_zero(owner_before, owned(rig, 0)));
    rig_bring_result(rig, 0, 1, true);
    rig = rig_again(rig);
    assert_int_equal(rounds_state(rig->rounds, 0)->version, 1);
    assert_memory_equal(replica_residual(rig->replica, 0), before, rig_values(rig, 0) * sizeof *before);
    assert_memory_equal(replica_owner_residual(rig->replica, 0), owner_before, owned(rig, 0) * sizeof *before);
    for (uint32_t f = 0; f < RIG_FRAGMENTS; f++) /* our trainer, and the others, as before */
        rig->said[0][f] = rig->said[1][f] = (struct wire_fragment){.fragment = f};
    rig_hear(rig, 0);
    rig_hear(rig, 1);
    rig_attach(rig);
    rig_contribute(rig, 0, 0.01f, 100);
    rig_bring_contribution(rig, 0, 0, 100, 0.02f);
    rig_bring_contribution(rig, 0, 1, 100, 0.02f);
    assert_true(rig_has(rig, 0, 2, SELF));
    rig = rig_again(rig);
    assert_int_equal(rounds_state(rig->rounds, 0)->version, 1);
    rig_assert_held(rig, 0, RIG_SET(1, SELF));
    assert_true(rig_all_zero(replica_owner_residual(rig->replica, 0), owned(rig, 0)));
    assert_true(rig_all_zero(replica_residual(rig->replica, 0), rig_values(rig, 0)));
    rig_close(rig);
}

struct lived {
    struct store_fragment first; /* after version 1 */
    float anchor[VALUES_MAX], momentum[VALUES_MAX];
    long last_of_second; /* bytes of the ledger before version 2's last result */
};

/* Three versions on a checkpoint of version 0; `useless`: version 2's last result is in the ledger, and nonsense. */
/* Says of version 2 that this was member 1's result. */
static void say_made_of(const struct rig *rig, const struct rig_object *object)
{
    struct ledger_commit commit;
    struct wire_object what;
    assert_ok(ledger_commit_of(rig->ledger, 0, 2, &commit));
    assert_ok(wire_object_peek(object->byte, object->bytes, &what));
    for (uint32_t p = 0; p < commit.parts_count; p++)
        if (commit.parts[p].owner == rig_id(1))
            commit.parts[p].digest = what.digest;
    assert_ok(ledger_append_commit(rig->ledger, &commit, true));
}

static struct rig *live_three_versions(const char *folder, bool useless, struct lived *lived)
{
    static struct rig_object nonsense;
    struct bitset all = bitset_first(MEMBERS);
    struct rig *rig = rig_new(folder, exact, MEMBERS, SELF, 0);
    keep_checkpoint(rig->rounds->keep, 0);
    rig_settle(rig);
    rig_round(rig, 0, &all);
    lived->first = *rounds_state(rig->rounds, 0);
    memcpy(lived->anchor, replica_anchor(rig->replica, 0), rig_values(rig, 0) * sizeof(float));
    memcpy(lived->momentum, replica_momentum(rig->replica, 0), rig_values(rig, 0) * sizeof(float));
    if (useless) {
        rig_result(rig, 0, 1, &all, 0.015f, &nonsense);
        rig_spoil(&nonsense);
        rig_append(rig, &nonsense);
    }
    rig_contribute(rig, 0, 0.01f, 2000);
    rig_bring_contribution(rig, 0, 0, 100, 0.02f);
    rig_bring_contribution(rig, 0, 1, 100, 0.02f);
    rig_bring_result(rig, 0, 0, true);
    lived->last_of_second = (long)ledger_stats(rig->ledger).bytes;
    rig_bring_result(rig, 0, 1, true);
    if (useless)
        say_made_of(rig, &nonsense);
    rig_mixed(rig, 0);
    rig_round(rig, 0, &all);
    assert_int_equal(rounds_state(rig->rounds, 0)->version, 3);
    return rig;
}

static void assert_at_first(const struct rig *rig, const struct lived *lived)
{
    const struct store_fragment *state = rounds_state(rig->rounds, 0);
    assert_int_equal(state->version, 1);
    assert_int_equal(state->step, lived->first.step);
    assert_true(digest_equal(&state->hash, &lived->first.hash));
    assert_memory_equal(replica_anchor(rig->replica, 0), lived->anchor, rig_values(rig, 0) * sizeof(float));
    assert_memory_equal(replica_momentum(rig->replica, 0), lived->momentum, rig_values(rig, 0) * sizeof(float));
}

/* A damaged result in the middle: the versions before it stand, and no shard of its own version was changed. */
static void a_replay_stops_before_a_version_that_is_not_whole(void **state)
{
    (void)state;
    static struct lived lived;
    enum { RECORD_HEADER = 48, INSIDE = 300 };
    struct rig *rig = live_three_versions("disk-hole", false, &lived);
    struct rig_conf conf = rig->conf;
    rig_close(rig);
    testlib_damage(testlib_path(conf.folder, "ledger-000000000001.log"), lived.last_of_second + RECORD_HEADER + INSIDE);
    rig = rig_open(&conf);
    assert_false(rig_has(rig, 0, 2, 1));
    assert_at_first(rig, &lived);
    rig_assert_held(rig, 0, RIG_SET(0, SELF));
    rig_close(rig);
}

/* The configuration is whole, and what it holds is not: the version that is said to be made of it is not made again,
 * and its state is fetched once the others are found ahead. */
static void a_replay_stops_before_a_result_of_no_use(void **state)
{
    (void)state;
    static struct lived lived;
    struct rig *rig = live_three_versions("disk-useless", true, &lived);
    struct rig_conf conf = rig->conf;
    rig_close(rig);
    overhear_begin();
    rig = rig_open(&conf);
    assert_non_null(strstr(overhear_end(), "fragment 0, version 2, owner 13 cannot be used"));
    assert_true(rig_has(rig, 0, 2, 1));
    assert_at_first(rig, &lived);
    rig_close(rig);
}

/* A checkpoint of fragment 0 that says this of it. */
static void save_as(const struct rig *rig, const struct store_fragment *state)
{
    const struct store_at at = {rig->conf.folder, &rig->spec, &rig->view.nonce_id, rig->plan};
    struct tensorfile_writer *writer;
    assert_ok(store_write_fragment(&at, rig->replica, 0, state, true, &writer));
    assert_ok(tensorfile_commit(writer));
}

/* `rotten`: bytes have changed on the disk; else they are those that were written, and not what their hash says. */
static void assert_no_state(bool rotten)
{
    struct bitset all = bitset_first(MEMBERS);
    struct rig *rig = rig_new(rotten ? "disk-rotten" : "disk-untrue", coarse, MEMBERS, SELF, 0);
    rig_round(rig, 0, &all);
    for (uint32_t f = 0; f < RIG_FRAGMENTS; f++)
        keep_checkpoint(rig->rounds->keep, f);
    rig_settle(rig);
    struct rig_conf conf = rig->conf;
    struct store_fragment untrue = *rounds_state(rig->rounds, 0);
    untrue.hash.byte[3] ^= 1;
    if (rotten)
        testlib_damage(path_of(rig, 0), testlib_file_bytes(path_of(rig, 0)) / 2);
    else
        save_as(rig, &untrue);
    rig_close(rig);
    overhear_begin();
    rig = rig_open(&conf);
    assert_non_null(strstr(overhear_end(), "the fragment is fetched from another island"));
    assert_false(sync_known(rig->sync, 0));
    assert_true(sync_known(rig->sync, 1));
    assert_int_equal(rounds_state(rig->rounds, 0)->version, 0);
    assert_int_equal(rounds_step(rig->rounds), 0);
    assert_true(rig_all_zero(replica_anchor(rig->replica, 0), rig_values(rig, 0)));
    assert_true(rig_all_zero(replica_momentum(rig->replica, 0), rig_values(rig, 0)));
    assert_true(rig_all_zero(replica_residual(rig->replica, 0), rig_values(rig, 0)));
    rig_assert_held(rig, 0, (struct bitset){{0}});
    rig_close(rig);
}

/* Ours is not all that can write a right digest: what no peer could bring is not replayed either. */
static void a_replay_believes_no_more_than_a_peer_is_believed(void **state)
{
    (void)state;
    enum { STEPS = 1000 };
    static const float bad_numbers[][WIRE_OUTER_NUMBERS] = {{NAN, 0.9f, 0.7f}, {1, 2, 0.7f}, {1, 0.9f, -1}};
    for (size_t i = 0; i <= sizeof bad_numbers / sizeof bad_numbers[0]; i++) {
        static struct rig_object object;
        struct bitset all = bitset_first(MEMBERS);
        struct rig *rig = rig_new("disk-believes", exact, MEMBERS, SELF, 0);
        keep_checkpoint(rig->rounds->keep, 0);
        rig_settle(rig);
        for (uint32_t s = 0; s < MEMBERS; s++) {
            struct wire_object what;
            struct wire_meta meta;
            rig_result(rig, 0, s, &all, 0.015f, &object);
            rig_open_object(&object, &what, &meta);
            if (s == 1 && i == 0)
                meta.step = STEPS + 1;
            else if (s == 1)
                memcpy(meta.outer, bad_numbers[i - 1], sizeof meta.outer);
            rig_seal_again(&object, &what, &meta);
            rig_append(rig, &object);
        }
        rig_commit(rig, 0, 1);
        rig = rig_again(rig);
        assert_int_equal(rounds_state(rig->rounds, 0)->version, 0);
        assert_int_equal(rounds_state(rig->rounds, 0)->step, 0);
        rig_assert_held(rig, 0, RIG_SET(0, SELF)); /* that one is fetched */
        rig_close(rig);
    }
}

static void a_damaged_checkpoint_is_no_state(void **state)
{
    (void)state;
    assert_no_state(true);
    assert_no_state(false);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_version_is_written_once),
        cmocka_unit_test(a_fragment_that_does_not_stand_still_is_not_written),
        cmocka_unit_test(a_state_of_a_peer_is_always_written),
        cmocka_unit_test(a_state_of_a_peer_that_the_disk_refused_is_written_later),
        cmocka_unit_test(a_checkpoint_that_fails_is_said_and_tried_again),
        cmocka_unit_test(results_go_when_checkpoints_cover_them),
        cmocka_unit_test(configurations_are_needed_from_the_oldest_checkpoint_on),
        cmocka_unit_test(a_replay_leads_where_life_has_led),
        cmocka_unit_test(residuals_outlive_a_restart_if_nothing_used_them),
        cmocka_unit_test(a_replay_stops_before_a_version_that_is_not_whole),
        cmocka_unit_test(a_replay_stops_before_a_result_of_no_use),
        cmocka_unit_test(a_replay_believes_no_more_than_a_peer_is_believed),
        cmocka_unit_test(a_damaged_checkpoint_is_no_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
