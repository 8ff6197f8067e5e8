/* SPDX-License-Identifier: Apache-2.0 */
/* membership: a majority that says so decides who is lost and who comes back, and no fewer do; beside a witness, too.
 */
#include "tests/lib/testlib.h"

#include "common/digest.h"
#include "daemon/membership/membership_host.h"
#include "tests/lib/isle.h"
#include "tests/lib/played.h"
#include "tests/lib/sitting.h"

/* ---- who is lost, and comes back ---- */

static void whom_a_majority_does_not_hear_is_lost_and_comes_back_by_itself(void **state)
{
    (void)state;
    sitting_begin_all("membership-lost");
    sitting_meet();
    sitting_pass(SITTING_LONG_MS / 2);
    assert_int_equal(sitting_epoch(A), 0); /* nothing is to be decided */
    sitting_close(C);
    sitting_pass(SITTING_AWAY_MS - 1000);
    assert_int_equal(sitting_epoch(A), 0);
    sitting_pass_until_epoch(A, 1);
    sitting_pass(1000);
    for (uint32_t i = A; i <= B; i++) {
        assert_int_equal(sitting_epoch(i), 1);
        assert_int_equal(sitting_member(i, C)->as.role, CONFIG_AWAY);
        assert_int_equal(sitting_member(i, A)->as.role, CONFIG_OWNER);
        struct version_part parts[VERSION_PARTS_MAX];
        uint32_t count = parts_of(&sitting_isle[i]->parts, 0, 1, parts);
        for (uint32_t p = 0; p < count; p++)
            assert_int_not_equal(parts[p].id.owner, C);
    }
    sitting_pass(SITTING_LONG_MS);
    assert_int_equal(sitting_epoch(A), 1); /* once is enough */
    sitting_open(C, 0);
    assert_int_equal(sitting_epoch(C), 0);
    sitting_pass_until_epoch(A, 2);
    sitting_pass(1000);
    for (uint32_t i = 0; i < ISLANDS; i++) {
        assert_int_equal(sitting_epoch(i), 2); /* and it has learned of epoch 1 */
        assert_int_equal(sitting_member(i, C)->as.role, CONFIG_OWNER);
        assert_true(digest_equal(config_log_last_digest(sitting_isle[i]->configs.config_log),
                                 config_log_last_digest(sitting_isle[A]->configs.config_log)));
    }
    sitting_end();
}

/* C is silent to a alone: it is not lost, but it stands back, and stays back until a hears it again. */
static void whom_one_alone_does_not_hear_stands_back(void **state)
{
    (void)state;
    sitting_begin("membership-one");
    sitting_played[C] = played_open(sitting_run, C, 0, NULL);
    sitting_open(A, 0);
    sitting_open(B, 0);
    isle_wait(peers_info(sitting_isle[A]->peers, B).up && peers_info(sitting_isle[B]->peers, A).up);
    played_greet(sitting_played[C], sitting_isle[B]);
    bool silent = false;
    for (uint64_t k = 0; k < SITTING_LONG_MS / 1000 || (k < 100 && (sitting_epoch(A) == 0 || sitting_epoch(B) == 0));
         k++) {
        played_beat(sitting_played[C])->step = k + 1;
        played_say(sitting_played[C], B);
        isle_wait(peers_info(sitting_isle[B]->peers, C).step ==
                  k + 1); /* b does hear it, however slow the machine is */
        sitting_pass(1000);
        while (played_heard(sitting_played[C])) {
        }
        silent |= membership_silent(sitting_isle[A]->membership, C);
    }
    assert_false(silent);
    assert_false(peers_info(sitting_isle[A]->peers, C).up);
    for (uint32_t i = A; i <= B; i++) {
        /* Once is enough; where b heard a's complaint too late for the first one, the second. */
        assert_in_range(sitting_epoch(i), 1, 2);
        assert_int_equal(sitting_member(i, A)->as.role, CONFIG_OWNER);
        assert_int_equal(sitting_member(i, B)->as.role, CONFIG_OWNER);
        assert_int_equal(sitting_member(i, C)->as.role, CONFIG_AWAY);
        assert_true(sitting_member(i, C)->as.voter);
    }
    sitting_end();
}

/* C dies; a misses it a while before b does. It is never a, whose uplink is slower, that has to stand back. */
static void who_dies_puts_nobody_back(void **state)
{
    (void)state;
    sitting_run = isle_run_new("membership-dies", ISLANDS, NULL);
    sitting_run->uplinks[C] = 2 * sitting_run->uplinks[A];
    for (uint32_t i = 0; i < ISLANDS; i++)
        isle_listen(sitting_run, i);
    sitting_played[C] = played_open(sitting_run, C, 0, NULL);
    sitting_open(A, 0);
    sitting_open(B, 0);
    isle_wait(peers_info(sitting_isle[A]->peers, B).up && peers_info(sitting_isle[B]->peers, A).up);
    for (uint32_t i = A; i <= B; i++)
        played_greet(sitting_played[C], sitting_isle[i]);
    for (int k = 0; k < 6; k++) {
        for (uint32_t to = A; to <= B && (to == B || k < 4); to++) {
            played_beat(sitting_played[C]);
            played_say(sitting_played[C], to);
        }
        sitting_pass(500);
        while (played_heard(sitting_played[C])) {
        }
    }
    sitting_pass_until_epoch(A, 1);
    sitting_pass(1000);
    for (uint32_t i = A; i <= B; i++) {
        assert_int_equal(sitting_epoch(i), 1);
        assert_int_equal(sitting_member(i, A)->as.role, CONFIG_OWNER);
        assert_int_equal(sitting_member(i, B)->as.role, CONFIG_OWNER);
        assert_int_equal(sitting_member(i, C)->as.role, CONFIG_AWAY);
    }
    sitting_end();
}

static void a_minority_decides_nothing(void **state)
{
    (void)state;
    char text[200];
    sitting_begin_all("membership-minority");
    sitting_meet();
    sitting_close(B);
    sitting_close(C);
    sitting_pass(2 * SITTING_LONG_MS);
    assert_int_equal(sitting_epoch(A), 0);
    uint32_t heard;
    assert_int_equal(membership_voters(sitting_isle[A]->membership, &heard), 3);
    assert_int_equal(heard, 1);
    membership_host_waits(sitting_isle[A]->host, text, sizeof text);
    assert_string_equal(text, ""); /* it has not even begun */
    sitting_end();
}

/* ---- a witness ---- */

static void beside_a_witness_one_goes_on(void **state)
{
    (void)state;
    sitting_begin_with_witness("membership-witness");
    sitting_close(B);
    sitting_pass(SITTING_LONG_MS / 2);
    sitting_pass_until_epoch(A, 1);
    assert_int_equal(sitting_member(A, B)->as.role, CONFIG_AWAY);
    assert_int_equal(sitting_member(C, C)->as.role, CONFIG_WITNESS);
    assert_true(sitting_member(A, C)->as.voter && !sitting_member(A, B)->as.voter);
    assert_int_equal(config_store_sync_view(&sitting_isle[A]->configs, true).commit_quorum, 1);
    sitting_open(B, 0);
    isle_wait(peers_info(sitting_isle[A]->peers, B).up && peers_info(sitting_isle[C]->peers, B).up);
    for (int k = 0; sitting_member(A, B)->as.role != CONFIG_OWNER && k < 20; k++)
        sitting_pass(1000);
    assert_int_equal(sitting_member(A, B)->as.role, CONFIG_OWNER);
    assert_true(sitting_member(A, B)->as.voter && sitting_member(A, C)->as.voter);
    sitting_end();
}

/* Without the witness the configuration would be no other, and nobody proposes one. */
static void a_witness_that_is_lost_costs_no_epoch(void **state)
{
    (void)state;
    sitting_begin_with_witness("membership-witness-lost");
    sitting_close(C);
    sitting_pass(SITTING_LONG_MS);
    assert_true(membership_silent(sitting_isle[A]->membership, C));
    assert_int_equal(sitting_epoch(A), 0);
    assert_int_equal(membership_sealed_ms(sitting_isle[A]->membership), 0);
    sitting_end();
}

/* Whether b hears within so many seconds that a proposes a configuration. Both others say that they do not hear a,
 * which hears them: who makes no result is named so, too. */
static bool a_proposes_within(int seconds)
{
    struct paxos_message message;
    bool proposes = false;
    for (int k = 0; k < 2 * seconds && !proposes; k++) {
        for (uint32_t from = B; from <= C; from++) {
            struct wire_heartbeat *beat = played_beat(sitting_played[from]);
            beat->silent[beat->silent_count++] = A;
            played_say(sitting_played[from], A);
        }
        sitting_pass(500);
        played_settle(sitting_played[B], A, WIRE_HELLO);
        while (played_heard_epoch(sitting_played[B], &message)) {
            proposes |= message.type == WIRE_PREPARE;
            wire_paxos_deinit(&message);
        }
    }
    return proposes;
}

static void who_makes_no_result_gives_its_shards_away_itself(void **state)
{
    (void)state;
    sitting_begin_played("membership-yields");
    assert_false(a_proposes_within(2)); /* a line that is back looks the same at first */
    assert_true(a_proposes_within(5));
    sitting_end();
}

/* One copy commits, so that island a goes on alone; to let b in again it needs the witness, and does not stop for
 * what nobody can decide. */
static void who_cannot_decide_does_not_seal_itself(void **state)
{
    (void)state;
    sitting_begin_with_witness("membership-witness-both");
    sitting_close(B);
    sitting_pass(SITTING_LONG_MS / 2);
    sitting_pass_until_epoch(A, 1);
    sitting_close(C);
    sitting_pass(SITTING_LONG_MS);
    sitting_open(B, 0);
    isle_wait(peers_info(sitting_isle[A]->peers, B).up && peers_info(sitting_isle[B]->peers, A).up);
    sitting_pass(SITTING_LONG_MS);
    assert_int_equal(sitting_epoch(A), 1);
    assert_int_equal(membership_sealed_ms(sitting_isle[A]->membership), 0);
    assert_int_equal(membership_requested_ms(sitting_isle[A]->membership), 0); /* nor is anybody asked in vain */
    sitting_open(C, 0);
    isle_wait(peers_info(sitting_isle[A]->peers, C).up);
    for (int k = 0; sitting_member(A, B)->as.role != CONFIG_OWNER && k < 20; k++)
        sitting_pass(1000);
    assert_int_equal(sitting_member(A, B)->as.role, CONFIG_OWNER);
    sitting_end();
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whom_a_majority_does_not_hear_is_lost_and_comes_back_by_itself),
        cmocka_unit_test(whom_one_alone_does_not_hear_stands_back),
        cmocka_unit_test(who_dies_puts_nobody_back),
        cmocka_unit_test(a_minority_decides_nothing),
        cmocka_unit_test(beside_a_witness_one_goes_on),
        cmocka_unit_test(a_witness_that_is_lost_costs_no_epoch),
        cmocka_unit_test(who_makes_no_result_gives_its_shards_away_itself),
        cmocka_unit_test(who_cannot_decide_does_not_seal_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
