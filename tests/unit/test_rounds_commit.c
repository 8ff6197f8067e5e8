/* SPDX-License-Identifier: Apache-2.0 */
/* rounds, as those who trust nobody's word and no memory: which results may make a version, and what of that is on the
 * disk before anyone hears of it. */
#include "tests/lib/testlib.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/digest.h"
#include "tests/lib/overhear.h"
#include "tests/lib/rig.h"
#include "tests/lib/roster.h"

enum { MEMBERS = 3, SELF = 1, VALUES_MAX = 4096, AGAIN_MS = 3000 };

static const char exact[] = "codec = fp32\n";
static const char coarse[] = "codec = uniform\nerror_feedback = yes\n";

/* The disk's cache is written out, or it says that it cannot be. */
static _Atomic int flushes;
static _Atomic bool flush_fails;
/* No file grows any more, from now on, or once it was flushed. */
static _Atomic bool full, flush_then_full;
int fdatasync(int fd)
{
    flushes++;
    if (flush_then_full)
        full = true;
    errno = EIO;
    return flush_fails ? -1 : fsync(fd);
}

ssize_t write(int fd, const void *bytes, size_t count)
{
    struct stat status;
    if (full && fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) {
        errno = ENOSPC;
        return -1;
    }
    return syscall(SYS_write, fd, bytes, count);
}

/* ---- what comes in ---- */

static enum wire_done judged(struct rig *rig, const struct rig_object *object)
{
    const struct event *event = NULL;
    rig_forget(rig);
    rig_bring(rig, roster_number(object->key.island), object);
    rig_settle(rig);
    for (size_t i = 0; i < rig->posted_count; i++)
        if (rig->posted[i].type == EVENT_JUDGED)
            event = &rig->posted[i];
    assert_non_null(event);
    return event->object.done;
}

static void another_epoch(struct wire_object *what)
{
    what->key.epoch++;
}
static void another_version(struct wire_object *what)
{
    what->key.version++;
}
static void another_fragment(struct wire_object *what)
{
    what->key.fragment = 0;
}
static void another_owner(struct wire_object *what)
{
    what->key.owner = what->key.island = rig_id(0);
}
static void another_run(struct wire_object *what)
{
    what->nonce[15] ^= 1;
}
static void other_shards(struct wire_object *what)
{
    what->shards ^= 1;
}

/* Whole and well signed, and not what its name was on the way, or of other shards than are its owner's. */
static void an_object_that_is_not_what_it_came_as_is_refused(void **state)
{
    (void)state;
    static void (*const changes[])(struct wire_object *) = {another_epoch, another_version, another_fragment,
                                                            another_owner, another_run,     other_shards};
    static struct rig_object good[2], bad;
    struct bitset all = bitset_first(MEMBERS);
    struct rig *rig = rig_new("commit-other", exact, MEMBERS, SELF, 0);
    rig->hold = ~0u;
    rig_result(rig, 1, 2, &all, 0.1f, &good[0]);
    rig_contribution(rig, 1, 2, 100, 0.1f, &good[1]);
    for (int kind = 0; kind < 2; kind++) {
        for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
            struct wire_object what;
            struct wire_meta meta;
            rig_open_object(&good[kind], &what, &meta);
            changes[i](&what);
            bad = good[kind];
            rig_seal_again(&bad, &what, &meta);
            assert_int_equal(judged(rig, &bad), WIRE_REFUSED);
            assert_int_equal(rig_told_count(rig, SYNC_EV_STORED), 0);
            assert_int_equal(ledger_stats(rig->ledger).records, 0);
        }
    }
    assert_int_equal(judged(rig, &good[0]), WIRE_RECEIVED);
    assert_int_equal(judged(rig, &good[1]), WIRE_RECEIVED);
    rig_close(rig);
}

static void a_result_that_its_owner_did_not_sign_is_refused(void **state)
{
    (void)state;
    enum { SIGNATURE_AT = 104 };
    static struct rig_object good, bad;
    struct bitset all = bitset_first(MEMBERS);
    struct rig *rig = rig_new("commit-signature", exact, MEMBERS, SELF, 0);
    struct wire_object what;
    struct wire_meta meta;
    rig_result(rig, 1, 2, &all, 0.1f, &good);
    bad = good;
    memset(bad.byte + SIGNATURE_AT, 0, IDENT_SIGNATURE_BYTES);
    assert_int_equal(judged(rig, &bad), WIRE_REFUSED);
    bad = good;
    bad.key.owner = rig_id(0); /* who signs it then */
    rig_open_object(&good, &what, &meta);
    rig_seal_again(&bad, &what, &meta);
    bad.key.owner = rig_id(2);
    assert_int_equal(judged(rig, &bad), WIRE_REFUSED);
    assert_int_equal(ledger_stats(rig->ledger).records, 0);
    assert_int_equal(judged(rig, &good), WIRE_RECEIVED);
    rig_close(rig);
}

static void our_results_are_signed_and_name_what_they_count(void **state)
{
    (void)state;
    static struct rig_object theirs[2];
    struct rig *rig = rig_new("commit-ours", exact, MEMBERS, SELF, 0);
    struct result_id key;
    struct result result;
    struct wire_object what;
    rig_contribution(rig, 0, 0, 100, 0.1f, &theirs[0]);
    rig_contribution(rig, 0, 2, 100, 0.2f, &theirs[1]);
    rig_contribute(rig, 0, 0.01f, 100);
    assert_int_equal(judged(rig, &theirs[0]), WIRE_RECEIVED);
    assert_int_equal(judged(rig, &theirs[1]), WIRE_RECEIVED);
    assert_true(rig_find(rig, 0, 1, SELF, &key));
    assert_ok(result_open(rig->ledger, &key, &result));
    assert_ok(wire_object_signed(&result.what, rig_ident(SELF)->key));
    assert_int_equal(result.meta.contributors_count, MEMBERS);
    for (int i = 0; i < 2; i++) {
        assert_ok(wire_object_peek(theirs[i].byte, theirs[i].bytes, &what));
        assert_true(result_counts(&result.meta, theirs[i].key.island, &what.digest));
    }
    const struct slot *own = slots_out(rig->slots, 0, SELF);
    assert_ok(wire_object_peek(own->data, own->bytes, &what));
    assert_true(result_counts(&result.meta, rig_id(SELF), &what.digest));
    result_close(&result);
    rig_close(rig);
}

/* Rule 6: what moves a residual is the very contribution that is counted, not one of the same island. */
static void a_residual_moves_for_the_contribution_that_is_named_alone(void **state)
{
    (void)state;
    static struct rig_object object;
    struct bitset all = bitset_first(MEMBERS);
    struct rig *rig = rig_new("commit-residual", coarse, MEMBERS, SELF, 0);
    rig_contribute(rig, 0, 0.01f, 100);
    rig_bring_contribution(rig, 0, 0, 100, 0.02f);
    rig_bring_contribution(rig, 0, 2, 100, 0.02f);
    rig_bring_result(rig, 0, 0, true);
    rig_result(rig, 0, 2, &all, 0.1f, &object);
    struct wire_object what;
    struct wire_meta meta;
    uint8_t rows[MEMBERS * WIRE_CONTRIBUTOR_BYTES];
    rig_open_object(&object, &what, &meta);
    memcpy(rows, meta.contributors, sizeof rows);
    struct wire_contributor ours = wire_meta_contributor(&meta, SELF);
    ours.digest.byte[0] ^= 1; /* one that we encoded before we were killed */
    wire_contributor_put(rows, SELF, &ours);
    meta.contributors = rows;
    rig_seal_again(&object, &what, &meta);
    assert_int_equal(judged(rig, &object), WIRE_RECEIVED);
    assert_int_equal(rounds_state(rig->rounds, 0)->version, 1);
    struct plan_shard named = rig_shard(rig, 0, 0), other = rig_shard(rig, 0, 2);
    const float *residual = replica_residual(rig->replica, 0);
    assert_false(rig_all_zero(residual + named.begin, (size_t)(named.end - named.begin)));
    assert_true(rig_all_zero(residual + other.begin, (size_t)(other.end - other.begin)));
    rig_close(rig);
}

/* ---- what made a version ---- */

static void assert_committed(const struct rig *rig, uint32_t f, uint64_t version)
{
    struct ledger_commit commit;
    assert_ok(ledger_commit_of(rig->ledger, f, version, &commit));
    assert_int_equal(commit.parts_count, rig->conf.members);
    for (uint32_t i = 0; i < commit.parts_count; i++) {
        struct result_id key;
        assert_int_equal(commit.parts[i].owner, rig_id(i));
        assert_true(rig_find(rig, f, version, i, &key));
        assert_true(digest_equal(&commit.parts[i].digest, &key.digest) && commit.parts[i].epoch == key.epoch);
    }
    struct digest hash = rig_hash(rig, f, version);
    assert_true(rounds_state(rig->rounds, f)->version != version || digest_equal(&hash, &commit.hash));
}

static void a_version_is_told_when_what_made_it_is_durable(void **state)
{
    (void)state;
    struct bitset all = bitset_first(MEMBERS);
    struct rig *rig = rig_new("commit-durable", exact, MEMBERS, SELF, 0);
    keep_checkpoint(rig->rounds->keep, 0);
    rig_settle(rig);
    rig_round(rig, 0, &all);
    rig_contribute(rig, 0, 0.01f, 2000);
    rig_bring_contribution(rig, 0, 0, 100, 0.02f);
    rig_bring_contribution(rig, 0, 2, 100, 0.02f);
    rig_bring_result(rig, 0, 0, true);
    rig->hold = 1u << SYNC_DO_APPLY;
    rig_bring_result(rig, 0, 2, true);
    rig->hold = 0;
    rig_forget(rig);
    int before = flushes;
    flush_fails = true;
    overhear_begin();
    apply_begin(rig->rounds->apply, 0, 2);
    rig_settle(rig);
    assert_non_null(strstr(overhear_end(), "cannot flush"));
    assert_true(flushes > before);
    assert_string_not_equal(rounds_info(rig->rounds).disk_note, "");
    for (int k = 0; k < 3; k++) {
        assert_int_equal(rig_told_count(rig, SYNC_EV_MADE), 0);
        assert_int_equal(rig_told_count(rig, SYNC_EV_APPLIED), 0);
        assert_int_equal(rig_posted_count(rig, EVENT_COUNTED), 0);
        assert_int_equal(rounds_state(rig->rounds, 0)->version, 1);
        rig_tick(rig, AGAIN_MS);
        rig_settle(rig);
    }
    flush_fails = false;
    rig_tick(rig, AGAIN_MS);
    rig_settle(rig);
    assert_int_equal(rig_told_count(rig, SYNC_EV_MADE), 1);
    assert_int_equal(rig_told_count(rig, SYNC_EV_APPLIED), 1);
    assert_string_equal(rounds_info(rig->rounds).disk_note, "");
    assert_int_equal(rounds_state(rig->rounds, 0)->version, 2);
    assert_committed(rig, 0, 1);
    assert_committed(rig, 0, 2);
    struct digest hash = rounds_state(rig->rounds, 0)->hash;
    rig = rig_again(rig);
    assert_int_equal(rounds_state(rig->rounds, 0)->version, 2);
    assert_true(digest_equal(&rounds_state(rig->rounds, 0)->hash, &hash));
    assert_committed(rig, 0, 2);
    rig_close(rig);
}

/* Killed when the trainer had the anchor and nobody else had heard of it: the hash is made anew, and nothing looks
 * damaged; one that was written and is another one does. */
static void a_version_without_its_hash_is_come_back_to(void **state)
{
    (void)state;
    struct bitset all = bitset_first(MEMBERS);
    struct rig *rig = rig_new("commit-unhashed", exact, MEMBERS, SELF, 0);
    struct ledger_commit commit;
    keep_checkpoint(rig->rounds->keep, 0);
    rig_settle(rig);
    rig_round(rig, 0, &all);
    const struct digest right = rounds_state(rig->rounds, 0)->hash;
    for (int damaged = 0; damaged < 2; damaged++) {
        assert_ok(ledger_commit_of(rig->ledger, 0, 1, &commit));
        commit.hash = (struct digest){{(uint8_t)damaged}};
        assert_ok(ledger_append_commit(rig->ledger, &commit, true));
        overhear_begin();
        rig = rig_again(rig);
        assert_int_equal(strstr(overhear_end(), "is another one, made from the checkpoint") != NULL, damaged);
        assert_int_equal(rounds_state(rig->rounds, 0)->version, 1);
        assert_true(digest_equal(&rounds_state(rig->rounds, 0)->hash, &right));
    }
    rig_close(rig);
}

/* What the disk refuses of the hash keeps nobody waiting: what made the version is durable. */
static void a_hash_that_cannot_be_noted_holds_nothing_up(void **state)
{
    (void)state;
    static const struct digest none;
    struct bitset all = bitset_first(MEMBERS);
    struct rig *rig = rig_new("commit-hash", exact, MEMBERS, SELF, 0);
    struct ledger_commit commit;
    keep_checkpoint(rig->rounds->keep, 0);
    rig_settle(rig);
    rig_round(rig, 0, &all);
    rig_contribute(rig, 0, 0.01f, 2000);
    rig_bring_contribution(rig, 0, 0, 100, 0.02f);
    rig_bring_contribution(rig, 0, 2, 100, 0.02f);
    rig_bring_result(rig, 0, 0, true);
    rig->hold = 1u << SYNC_DO_APPLY;
    rig_bring_result(rig, 0, 2, true);
    rig->hold = 0;
    rig_forget(rig);
    flush_then_full = true;
    apply_begin(rig->rounds->apply, 0, 2);
    rig_settle(rig);
    flush_then_full = full = false;
    assert_int_equal(rig_told_count(rig, SYNC_EV_APPLIED), 1);
    assert_non_null(strstr(rounds_info(rig->rounds).disk_note, "No space left"));
    assert_int_equal(rounds_state(rig->rounds, 0)->version, 2);
    const struct digest hash = rounds_state(rig->rounds, 0)->hash;
    assert_ok(ledger_commit_of(rig->ledger, 0, 2, &commit));
    assert_true(digest_equal(&commit.hash, &none));
    rig = rig_again(rig);
    assert_int_equal(rounds_state(rig->rounds, 0)->version, 2);
    assert_true(digest_equal(&rounds_state(rig->rounds, 0)->hash, &hash));
    rig_close(rig);
}

/* Killed between the last result and the commit: nobody heard of the version, so it is not taken for made; its results
 * are told as held, and make it when the core orders that. */
static void results_of_a_version_that_was_not_made_are_held_only(void **state)
{
    (void)state;
    struct bitset all = bitset_first(MEMBERS);
    struct rig *rig = rig_new("commit-killed", exact, MEMBERS, SELF, 0);
    struct ledger_commit commit;
    keep_checkpoint(rig->rounds->keep, 0);
    rig_settle(rig);
    rig_round(rig, 0, &all);
    rig->hold = 1u << SYNC_DO_APPLY;
    rig_contribute(rig, 0, 0.01f, 2000);
    rig_bring_contribution(rig, 0, 0, 100, 0.02f);
    rig_bring_contribution(rig, 0, 2, 100, 0.02f);
    rig_bring_result(rig, 0, 0, true);
    rig_bring_result(rig, 0, 2, true);
    struct rig_conf conf = rig->conf;
    rig_close(rig);
    rig = rig_open(&conf);
    assert_int_equal(rounds_state(rig->rounds, 0)->version, 1);
    rig_assert_held(rig, 0, bitset_first(MEMBERS));
    assert_int_equal(ledger_commit_of(rig->ledger, 0, 2, &commit), ERR_NOTFOUND);
    rig_greet(rig);
    rig_settle(rig);
    assert_int_equal(rounds_state(rig->rounds, 0)->version, 2);
    assert_committed(rig, 0, 2);
    rig_close(rig);
}

/* Two results of one owner's part: the one that made the version makes it again, whichever came first. */
static void a_replay_takes_the_results_that_made_the_version(void **state)
{
    (void)state;
    static struct rig_object first;
    struct bitset all = bitset_first(MEMBERS);
    struct rig *rig = rig_new("commit-two", exact, MEMBERS, SELF, 0);
    struct ledger_commit commit;
    struct wire_object what;
    keep_checkpoint(rig->rounds->keep, 0);
    rig_settle(rig);
    rig_result(rig, 0, 0, &all, 0.3f, &first);
    rig_round(rig, 0, &all);
    struct digest plain = rounds_state(rig->rounds, 0)->hash;
    rig_append(rig, &first);
    /* As if the round had been made with the other one. */
    assert_ok(ledger_commit_of(rig->ledger, 0, 1, &commit));
    assert_ok(wire_object_peek(first.byte, first.bytes, &what));
    commit.parts[0].digest = what.digest;
    assert_ok(ledger_append_commit(rig->ledger, &commit, true));
    overhear_begin();
    rig = rig_again(rig);
    assert_non_null(strstr(overhear_end(), "is another one, made from the checkpoint"));
    assert_int_equal(rounds_state(rig->rounds, 0)->version, 1);
    assert_false(digest_equal(&rounds_state(rig->rounds, 0)->hash, &plain));
    /* One that is not there any more, or a part that is named twice: the version cannot be made. */
    commit.parts[0].digest.byte[0] ^= 1;
    assert_ok(ledger_append_commit(rig->ledger, &commit, true));
    rig = rig_again(rig);
    assert_int_equal(rounds_state(rig->rounds, 0)->version, 0);
    commit.parts[0] = commit.parts[1];
    assert_ok(ledger_append_commit(rig->ledger, &commit, true));
    rig = rig_again(rig);
    assert_int_equal(rounds_state(rig->rounds, 0)->version, 0);
    commit.parts_count = 1;
    assert_ok(ledger_append_commit(rig->ledger, &commit, true));
    rig = rig_again(rig);
    assert_int_equal(rounds_state(rig->rounds, 0)->version, 0);
    rig_close(rig);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_object_that_is_not_what_it_came_as_is_refused),
        cmocka_unit_test(a_result_that_its_owner_did_not_sign_is_refused),
        cmocka_unit_test(our_results_are_signed_and_name_what_they_count),
        cmocka_unit_test(a_residual_moves_for_the_contribution_that_is_named_alone),
        cmocka_unit_test(a_version_is_told_when_what_made_it_is_durable),
        cmocka_unit_test(a_version_without_its_hash_is_come_back_to),
        cmocka_unit_test(a_hash_that_cannot_be_noted_holds_nothing_up),
        cmocka_unit_test(results_of_a_version_that_was_not_made_are_held_only),
        cmocka_unit_test(a_replay_takes_the_results_that_made_the_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
