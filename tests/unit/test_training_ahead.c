/* SPDX-License-Identifier: Apache-2.0 */
/* trainer: an anchor that it is given while its hash is being made. */
#include "tests/lib/testlib.h"

#include "tests/lib/shares.h"
#include "tests/lib/trainerstage.h"

static struct stage stage;

static int begin(void **state)
{
    (void)state;
    stage_open(&stage, TRAINERRUN_ISLANDS, "", "");
    stage_train(&stage, true);
    return 0;
}

static int end(void **state)
{
    (void)state;
    stage_close(&stage);
    return 0;
}

/* Version 1 of fragment 0 is made, counts all of the trainer's work, and has no hash. */
static void make_version(void)
{
    struct bitset all = shares_owners(&stage.run.parts, 0);
    stage_take_snapshot(&stage, 0, 6, 60, 3);
    assert_posted(&stage, "snapshot 0");
    stage_hear_nothing(&stage);
    stage.hashes = false;
    stage_results(&stage, 0, &all);
    assert_posted(&stage, "fill 0");
    assert_int_equal(stage_hear(&stage, IPC_WAKE).fragment, 0);
    assert_int_equal(sync_state(stage.run.sync, 0), SYNC_APPLYING);
}

static void hash_it(void)
{
    stage.hashes = true;
    stage_step(&stage, &(struct sync_event){.type = SYNC_EV_APPLIED, .fragment = 0, .hash = trainerrun_hash(0, 1)});
}

static void an_anchor_comes_before_its_hash(void **state)
{
    (void)state;
    make_version();
    assert_int_equal(sync_own(stage.run.sync, 0).version, 0);
    assert_int_equal(stage_word(&stage, 0), IPC_ANCHOR);
    assert_int_equal(stage_fragment(&stage, 0)->anchor_version, 1);
    assert_true(ipc_area(stage.shm, stage_fragment(&stage, 0))[9] == 1000);
    assert_int_equal(stage_mode(&stage, 0, 0), IPC_MIX); /* it holds the trainer's work */
    hash_it();
    assert_posted(&stage, ""); /* once is enough */
    assert_int_equal(sync_state(stage.run.sync, 0), SYNC_MIXING);
    stage_mix(&stage, 0);
    assert_int_equal(sync_state(stage.run.sync, 0), SYNC_IDLE);
}

/* What it sends next starts from that version, and is encoded when the version has its hash. */
static void a_trainer_goes_on_from_it(void **state)
{
    (void)state;
    make_version();
    stage_mix(&stage, 0);
    assert_posted(&stage, "mixed 0");
    stage_take_snapshot(&stage, 0, 12, 100, 4);
    assert_posted(&stage, "snapshot 0");
    assert_int_equal(stage.snapshot[0].tokens, 60);
    assert_int_equal(sync_state(stage.run.sync, 0), SYNC_APPLYING);
    hash_it();
    assert_int_equal(stage.snapshot[0].tokens, 100);
    assert_int_equal(stage.snapshot[0].counted_tokens[0], 60);
    assert_true(stage.snapshot[0].base[9] == 1000);
    assert_int_equal(sync_own(stage.run.sync, 0).contributed, 2);
}

/* With the anchor in its tensors, or on its way there. */
static void a_trainer_that_comes_back_meanwhile_waits_for_the_hash(void **state)
{
    (void)state;
    for (int mixed = 0; mixed < 2; mixed++) {
        make_version();
        if (mixed) {
            stage_mix(&stage, 0);
            stage_fragment(&stage, 0)->base ^= 1;
            stage_fragment(&stage, 0)->base_version = 1;
        }
        stage_hang_up(&stage, true);
        stage_turn(&stage);
        stage_forget(&stage);
        stage_attach_again(&stage, 8, 80);
        stage_tick(&stage, 100);
        assert_posted(&stage, "registered");
        hash_it();
        stage_tick(&stage, 1);
        assert_posted(&stage, mixed ? "up 0@1, up 1@0, up 2@0" : "up 0@0, up 1@0, up 2@0, fill 0");
        assert_int_equal(sync_state(stage.run.sync, 0), mixed ? SYNC_IDLE : SYNC_MIXING);
        end(NULL);
        begin(NULL);
    }
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_anchor_comes_before_its_hash, begin, end),
        cmocka_unit_test_setup_teardown(a_trainer_goes_on_from_it, begin, end),
        cmocka_unit_test_setup_teardown(a_trainer_that_comes_back_meanwhile_waits_for_the_hash, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
