/* SPDX-License-Identifier: Apache-2.0 */
/* assign_roles: who takes part, votes and owns in the next epoch, by the shortest runs that break the rules. */
#include "tests/lib/testlib.h"

#include <string.h>

#include "common/bitset.h"
#include "net/membership/assign_roles.h"
#include "tests/lib/drafting.h"
#include "tests/lib/roster.h"
#include "tests/lib/sample_configs.h"

static void three_do_not_become_two(void **state)
{
    (void)state;
    drafting_seals(3, false);
    drafting_request(2)->silent = true;
    drafting_make();
    assert_int_equal(config_voters(&drafting.out.draft), 3);
    assert_true(drafting_votes(2));
    assert_int_equal(config_member(&drafting.out.draft, 2)->role, CONFIG_AWAY);
    assert_int_equal(drafting_slots_of(2), 0); /* its shards are lost at once */
    assert_int_equal(drafting_slots_of(0) + drafting_slots_of(1), SHARDMAP_SLOTS);
}

static void four_become_three_and_five_do_not_become_four(void **state)
{
    (void)state;
    drafting_seals(4, false);
    drafting_request(1)->silent = true;
    drafting_make();
    assert_int_equal(config_voters(&drafting.out.draft), 3);
    assert_false(drafting_votes(1));
    drafting_seals(5, false);
    drafting_request(1)->silent = true;
    drafting_make();
    assert_int_equal(config_voters(&drafting.out.draft), 5);
    drafting_request(2)->silent = true;
    drafting_make();
    assert_int_equal(config_voters(&drafting.out.draft), 3);
}

static void beside_a_witness_two_become_one(void **state)
{
    (void)state;
    drafting_seals(2, true);
    drafting_request(1)->silent = true;
    drafting_make();
    assert_int_equal(config_voters(&drafting.out.draft), 2);
    assert_int_equal(config_commit_quorum(&drafting.out.draft), 1);
    assert_true(drafting_votes(0) && drafting_votes(2) && !drafting_votes(1));
}

/* It votes on, since a majority hears it, but owns nothing; unless none but the witness is left to hand it the bytes.
 */
static void who_stands_back_votes_where_it_can_get_what_counts(void **state)
{
    (void)state;
    drafting_seals(3, false);
    drafting_request(1)->partitioned = true;
    drafting_make();
    assert_int_equal(config_member(&drafting.out.draft, 1)->role, CONFIG_AWAY);
    assert_true(drafting_votes(1));
    assert_int_equal(drafting_slots_of(1), 0);
    assert_int_equal(drafting_slots_of(0), 32);
    drafting_seals(3, false);
    drafting_request(1)->partitioned = true;
    drafting_request(2)->silent = true;
    drafting_make();
    assert_int_equal(config_voters(&drafting.out.draft), 3); /* not one alone, that would lose all with one disk */
    drafting_seals(2, true);
    drafting_request(1)->partitioned = true;
    drafting_make();
    assert_true(drafting_votes(0) && drafting_votes(2) && !drafting_votes(1));
    drafting_seals(2, true);
    drafting_request(1)->partitioned = true;
    drafting_request(2)->silent = true; /* then those two decide, so they do hear each other again */
    drafting_make();
    assert_true(drafting_votes(0) && drafting_votes(1));
    drafting_seals(3, true);
    drafting_request(1)->partitioned = true;
    drafting_make();
    assert_true(drafting_votes(0) && drafting_votes(1) && drafting_votes(2));
    drafting_seals(2, false);
    configs_add(&drafting.last, CONFIG_OBSERVER);
    drafting_request(2)->partitioned = true;
    drafting.requests[0].near = true;
    drafting_holds(2, false, 6);
    drafting_make();
    assert_int_equal(config_member(&drafting.out.draft, 2)->role, CONFIG_CONTRIBUTOR);
    assert_false(drafting_votes(2));
}

static void a_witness_votes_where_it_helps(void **state)
{
    (void)state;
    drafting_seals(3, true); /* of four it needs three, as without it of three two */
    drafting_make();
    assert_false(drafting_votes(3));
    assert_int_equal(config_member(&drafting.out.draft, 3)->role, CONFIG_WITNESS);
    drafting_seals(3, true);
    drafting.last.members[3].voter = false;
    drafting.answers[3].sealed = false;
    drafting_request(2)->silent = true;
    drafting_request(3);
    drafting_make();
    assert_true(drafting_votes(3) && !drafting_votes(2)); /* it takes its place */
}

/* Where all voters are needed, one that has never been there would be missed. */
static void a_witness_votes_when_its_disk_is_named(void **state)
{
    (void)state;
    drafting_seals(2, true);
    drafting.last.members[2].voter = false;
    drafting.answers[2].sealed = false;
    drafting_make();
    assert_false(drafting_votes(2)); /* nobody has heard it */
    drafting_request(2)->in_doubt = true;
    drafting_make();
    assert_false(drafting_votes(2));
    drafting.requests[0].incarnation = 77;
    drafting_make();
    assert_true(drafting_votes(2)); /* of {0, 1} and it, two decide, whoever is lost */
    assert_int_equal(config_member(&drafting.out.draft, 2)->incarnation, 77);
    drafting.requests[0].incarnation = drafting.last.members[2].incarnation;
    drafting.requests[0].in_doubt = false;
    drafting_make();
    assert_true(drafting_votes(2));
    drafting.last.members[2].voter = true; /* who votes already stays a voter: its doubt may end by itself */
    drafting.requests[0].in_doubt = true;
    drafting_make();
    assert_true(drafting_votes(2));
}

static void another_takes_its_place_when_it_has_caught_up(void **state)
{
    (void)state;
    drafting_seals(3, false);
    configs_add(&drafting.last, CONFIG_OBSERVER);
    drafting_request(2)->silent = true;
    drafting_request(3);
    drafting_make();
    assert_int_equal(config_member(&drafting.out.draft, 3)->role, CONFIG_OBSERVER); /* nobody knows what it holds */
    assert_true(drafting_votes(2));
    drafting_holds(3, false, 5);
    drafting_make();
    assert_false(drafting_votes(3)); /* it lacks a version */
    drafting.rows[3][0].version = 6;
    drafting_make();
    assert_false(drafting_votes(3)); /* of the other fragment */
    drafting.rows[3][1].version = 6;
    drafting_make();
    assert_true(drafting_votes(3) && !drafting_votes(2));
    assert_int_equal(drafting_slots_of(3), 21);
    drafting.rows[3][1].version = 6;
    drafting_word(3)->owner_choice = CONFIG_OWNER_NO;
    drafting_make();
    assert_int_equal(config_member(&drafting.out.draft, 3)->role, CONFIG_OBSERVER);
    drafting.requests[1].near = true; /* enough to contribute */
    drafting.rows[3][1].version = 4;
    drafting_make();
    assert_int_equal(config_member(&drafting.out.draft, 3)->role, CONFIG_CONTRIBUTOR);
}

/* Else an eviction would last for as long as a configuration takes, and each return cost two of them. */
static void who_is_back_is_away_until_it_has_caught_up(void **state)
{
    (void)state;
    drafting_seals(3, false);
    configs_add(&drafting.last, CONFIG_AWAY);
    drafting_request(3);
    drafting_holds(3, false, 5);
    drafting_make();
    assert_int_equal(config_member(&drafting.out.draft, 3)->role, CONFIG_AWAY);
    assert_false(config_differs(&drafting.last, &drafting.out.draft)); /* no reason for an epoch */
    drafting_word(3)->owner_choice = CONFIG_OWNER_NO;
    drafting_make();
    assert_int_equal(config_member(&drafting.out.draft, 3)->role, CONFIG_AWAY);
    drafting_word(3)->owner_choice = drafting.last.members[3].owner_choice;
    drafting.requests[0].partitioned = true;
    drafting_make();
    assert_int_equal(config_member(&drafting.out.draft, 3)->role, CONFIG_AWAY);
    drafting.requests[0].partitioned = false;
    for (uint32_t f = 0; f < DRAFTING_F; f++)
        drafting.rows[3][f].version = 6;
    drafting_make();
    assert_int_equal(config_member(&drafting.out.draft, 3)->role, CONFIG_OWNER);
}

static void a_disk_in_doubt_votes_again_when_it_has_caught_up(void **state)
{
    (void)state;
    drafting_seals(3, false);
    drafting.answers[2].sealed = false;
    drafting.answers[2].incarnation = 77;
    drafting.rows[2][0].version = 3;
    drafting_request(2)->incarnation = 77;
    drafting_make();
    assert_int_not_equal(config_member(&drafting.out.draft, 2)->incarnation, 77);
    assert_int_equal(drafting_slots_of(2), 0);
    assert_true(drafting_votes(2)); /* of three; it is one of those that cannot be asked now */
    drafting.rows[2][0].version = 6;
    drafting_make();
    assert_int_equal(config_member(&drafting.out.draft, 2)->incarnation, 77);
    assert_true(drafting_slots_of(2) > 0);
}

static void who_is_new_gets_an_id_of_its_own(void **state)
{
    (void)state;
    drafting_seals(3, false);
    uint32_t next = drafting.last.next_id;
    drafting_admit("new0", 50);
    struct order *witness = drafting_admit("new1", 51);
    witness->join.witness = true;
    wire_join_sign(configs_ident(51), drafting.last.nonce, &witness->join);
    drafting_admit("m1", 52); /* taken */
    drafting_order(ORDER_REVOKE, 2);
    drafting_make();
    assert_int_equal(drafting.out.draft.orders_count, 3);
    assert_int_equal(drafting.out.draft.next_id, next + 2);
    assert_int_equal(config_member(&drafting.out.draft, next)->role, CONFIG_OBSERVER);
    assert_int_equal(config_member(&drafting.out.draft, next + 1)->role, CONFIG_WITNESS);
    assert_false(drafting_votes(next + 1)); /* not before it has said something of its disk */
    assert_null(config_member(&drafting.out.draft, 2));
}

/* Two at a time, or one beside the one there is. */
static void there_is_one_witness(void **state)
{
    (void)state;
    for (int there = 0; there < 2; there++) {
        drafting_seals(2, there != 0);
        uint32_t next = drafting.last.next_id;
        for (uint32_t i = 0; i < 2; i++) {
            struct order *order = drafting_admit(i == 0 ? "new0" : "new1", 50 + i);
            order->join.witness = true;
            wire_join_sign(configs_ident(50 + i), drafting.last.nonce, &order->join);
        }
        drafting_make();
        assert_int_equal(drafting.out.draft.next_id, next + (there == 0));
        assert_int_equal(drafting.out.draft.members_count, 3);
        assert_int_equal(config_witness(&drafting.out.draft)->id, there == 0 ? next : 2);
    }
}

static void who_drains_or_wants_not_to_own_owns_nothing(void **state)
{
    (void)state;
    drafting_seals(4, false);
    drafting_request(1);
    drafting_word(1)->draining = true;
    drafting_make();
    assert_int_equal(config_member(&drafting.out.draft, 1)->role, CONFIG_DRAINING);
    assert_false(drafting_votes(1));
    for (int voter = 0; voter < 2; voter++) { /* away, since it was put out: until it resumes */
        drafting_seals(3, false);
        struct config_member *away = configs_add(&drafting.last, CONFIG_AWAY);
        away->draining = true;
        away->voter = voter != 0;
        drafting_request(3);
        drafting_holds(3, false, 6);
        drafting_make();
        assert_int_equal(config_member(&drafting.out.draft, 3)->role, CONFIG_AWAY);
    }
    drafting_seals(4, false);
    drafting_request(1);
    drafting_word(1)->owner_choice = CONFIG_OWNER_NO;
    drafting_make();
    assert_int_equal(config_member(&drafting.out.draft, 1)->role, CONFIG_CONTRIBUTOR);
    assert_int_equal(drafting_slots_of(1), 0);
    drafting_seals(3, false); /* of three it goes on voting, or nobody could be lost any more */
    drafting_request(1);
    drafting_word(1)->owner_choice = CONFIG_OWNER_NO;
    drafting_make();
    assert_true(drafting_votes(1));
    assert_int_equal(drafting_slots_of(1), 0);
    drafting_request(0);
    drafting_request(2);
    drafting_word(0)->owner_choice = drafting_word(2)->owner_choice = CONFIG_OWNER_NO;
    drafting_make();
    assert_true(drafting_slots_of(1) > 0); /* somebody has to */
    assert_int_equal(config_voters(&drafting.out.draft), 3);
}

/* Two that nobody can dial never meet. */
static void who_cannot_be_dialled_owns_only_beside_a_single_other(void **state)
{
    (void)state;
    drafting_seals(2, true);
    drafting_request(1);
    drafting_word(1)->owner_choice = CONFIG_OWNER_DIALS;
    drafting_make();
    assert_int_equal(config_member(&drafting.out.draft, 1)->role, CONFIG_OWNER);
    assert_int_equal(drafting_slots_of(1), SHARDMAP_SLOTS / 2);
    drafting_seals(2, false); /* and as soon as a third comes, which may be another one */
    drafting_request(1);
    drafting_word(1)->owner_choice = CONFIG_OWNER_DIALS;
    struct order *order = drafting_admit("new", 50);
    order->join.word.owner_choice = CONFIG_OWNER_DIALS;
    wire_join_sign(configs_ident(50), drafting.last.nonce, &order->join);
    drafting_make();
    assert_int_equal(config_member(&drafting.out.draft, 1)->role, CONFIG_CONTRIBUTOR);
    assert_false(drafting_votes(1));
    assert_int_equal(drafting_slots_of(0), SHARDMAP_SLOTS);
    drafting_seals(3, false); /* of three it goes on voting, and owns nothing */
    drafting_request(1);
    drafting_word(1)->owner_choice = CONFIG_OWNER_DIALS;
    drafting_make();
    assert_true(drafting_votes(1));
    assert_int_equal(drafting_slots_of(1), 0);
    drafting_seals(3, false); /* where the third is taken off the roster it may own again */
    drafting_request(1);
    drafting_word(1)->owner_choice = CONFIG_OWNER_DIALS;
    drafting_order(ORDER_REVOKE, 2);
    drafting_make();
    assert_int_equal(drafting_slots_of(1), SHARDMAP_SLOTS / 2);
}

static void who_is_lost_again_and_again_only_contributes_while_others_suffice(void **state)
{
    (void)state;
    drafting_seals(4, false);
    drafting.last.members[3].losses = 2;
    drafting_request(3)->silent = true;
    drafting_make();
    assert_int_equal(config_member(&drafting.out.draft, 3)->losses, 3);
    assert_int_equal(config_member(&drafting.out.draft, 3)->role, CONFIG_AWAY);
    drafting_seals(4, false);
    drafting.last.members[3].losses = CONFIG_LOSSES_MAX;
    drafting_request(3)->silent = true;
    drafting_make();
    assert_int_equal(config_member(&drafting.out.draft, 3)->losses, CONFIG_LOSSES_MAX);
    for (int more = 0; more < 2; more++) { /* back: beside three, and beside four steady ones */
        drafting_seals(3 + (uint32_t)more, false);
        struct config_member *back = configs_add(&drafting.last, CONFIG_AWAY);
        back->losses = 3;
        drafting_request(back->id);
        drafting_holds(back->id, false, 6);
        drafting_make();
        assert_int_equal(config_member(&drafting.out.draft, back->id)->role, CONFIG_CONTRIBUTOR);
        assert_int_equal(config_member(&drafting.out.draft, back->id)->losses, 3);
        drafting.requests[0].losses = 2; /* one is forgotten */
        drafting_make();
        assert_int_equal(config_member(&drafting.out.draft, back->id)->role, CONFIG_OWNER);
        assert_int_equal(config_member(&drafting.out.draft, back->id)->losses, 2);
        drafting.requests[0].losses = 4; /* whoever says so: a configuration alone adds to them */
        drafting_make();
        assert_int_equal(config_member(&drafting.out.draft, back->id)->losses, 3);
    }
    drafting_seals(2, false);
    configs_add(&drafting.last, CONFIG_AWAY)->losses = 6;
    drafting_request(2);
    drafting_holds(2, false, 6);
    drafting_make();
    assert_int_equal(config_member(&drafting.out.draft, 2)->role, CONFIG_OWNER); /* too few others */
    drafting_seals(4, false);
    drafting.last.members[1].losses = 3; /* one that owns, too */
    drafting_request(1);
    drafting_make();
    assert_int_equal(drafting_slots_of(1), 0);
    drafting_seals(4, false);
    drafting.last.members[0].losses = drafting.last.members[1].losses = drafting.last.members[2].losses =
        drafting.last.members[3].losses = 3;
    for (uint32_t id = 0; id < 4; id++)
        drafting_request(id);
    drafting_make();
    assert_int_equal(drafting_slots_of(1), 16); /* none is better */
}

/* Two of three own since nobody else would, the third one is lost, and somebody comes who would own. Each of the two
 * would leave, and so neither has a say about the other: without them as they are no draft would ever be agreed to. */
static void of_whom_no_majority_agrees_that_it_leaves_stays_as_it_is(void **state)
{
    (void)state;
    for (int held = 0; held < 2; held++) {
        drafting_seals(3, false);
        for (uint32_t id = 3; id < 6; id++)
            configs_add(&drafting.last, CONFIG_OBSERVER);
        for (uint32_t id = 0; id < 2; id++) {
            drafting_request(id)->held = held != 0;
            drafting_word(id)->owner_choice = CONFIG_OWNER_NO;
        }
        drafting_request(2)->silent = true;
        for (uint32_t id = 3; id < 6; id++) {
            drafting_request(id);
            drafting_holds(id, false, 6);
        }
        drafting_make();
        for (uint32_t id = 0; id < 2; id++) {
            assert_int_equal(config_member(&drafting.out.draft, id)->role, held ? CONFIG_OWNER : CONFIG_CONTRIBUTOR);
            assert_int_equal(drafting_votes(id), held);
            assert_int_equal(drafting_slots_of(id), 0); /* which takes nobody's agreement */
        }
        assert_int_equal(config_member(&drafting.out.draft, 2)->role, CONFIG_AWAY);
        assert_false(drafting_votes(2));
        for (uint32_t id = 3; id < 6; id++)
            assert_true(drafting_votes(id) && drafting_slots_of(id) > 0);
    }
}

static void where_nobody_wants_to_own_those_do_who_can(void **state)
{
    (void)state;
    drafting_seals(1, false);
    for (uint32_t i = 0; i < 2; i++)
        configs_add(&drafting.last, CONFIG_CONTRIBUTOR);
    drafting_request(0);
    drafting_word(0)->draining = true;
    for (uint32_t id = 1; id < 3; id++) {
        drafting_request(id);
        drafting_word(id)->owner_choice = CONFIG_OWNER_NO;
        drafting_holds(id, false, id == 1 ? 6 : 5);
    }
    drafting_make();
    assert_int_equal(drafting_slots_of(1), SHARDMAP_SLOTS);
    assert_true(drafting_votes(1));
    assert_int_equal(config_member(&drafting.out.draft, 2)->role, CONFIG_CONTRIBUTOR); /* it lacks a version */
    drafting_seals(2, false);
    configs_add(&drafting.last, CONFIG_CONTRIBUTOR);
    drafting_request(0);
    drafting_word(0)->draining = true;
    drafting_request(1);
    drafting_request(2);
    drafting_word(2)->owner_choice = CONFIG_OWNER_NO;
    drafting_holds(2, false, 6);
    drafting_make();
    assert_int_equal(drafting_slots_of(1), SHARDMAP_SLOTS);
    assert_int_equal(drafting_slots_of(2), 0);
}

/* Others that cannot be dialled would never get its results. */
static void where_nobody_wants_to_own_those_do_first_that_can_be_dialled(void **state)
{
    (void)state;
    static const uint8_t choices[3][2] = {{CONFIG_OWNER_NO_DIALS, CONFIG_OWNER_NO},
                                          {CONFIG_OWNER_DIALS, CONFIG_OWNER_NO},
                                          {CONFIG_OWNER_NO_DIALS, CONFIG_OWNER_DIALS}};
    for (int k = 0; k < 3; k++) {
        drafting_seals(1, false);
        for (uint32_t i = 0; i < 2; i++)
            configs_add(&drafting.last, CONFIG_CONTRIBUTOR);
        drafting_request(0);
        drafting_word(0)->draining = true;
        for (uint32_t id = 1; id < 3; id++) {
            drafting_request(id);
            drafting_word(id)->owner_choice = choices[k][id - 1];
            drafting_holds(id, false, 6);
        }
        drafting_make();
        assert_int_equal(drafting_slots_of(1), k < 2 ? 0 : SHARDMAP_SLOTS / 2); /* there is no other */
        assert_int_equal(drafting_slots_of(2), k < 2 ? SHARDMAP_SLOTS : SHARDMAP_SLOTS / 2);
        assert_int_equal(config_member(&drafting.out.draft, 1)->role, k < 2 ? CONFIG_CONTRIBUTOR : CONFIG_OWNER);
    }
    /* One that owns, and was left alone when it could be dialled, hands over. */
    drafting_seals(1, false);
    for (uint32_t i = 0; i < 2; i++)
        configs_add(&drafting.last, CONFIG_CONTRIBUTOR);
    drafting_request(0);
    drafting_word(0)->owner_choice = CONFIG_OWNER_DIALS;
    drafting_request(1);
    drafting_word(1)->owner_choice = CONFIG_OWNER_NO;
    drafting_request(2);
    drafting_word(2)->owner_choice = CONFIG_OWNER_NO_DIALS;
    for (uint32_t id = 1; id < 3; id++)
        drafting_holds(id, false, 6);
    drafting_make();
    assert_int_equal(drafting_slots_of(1), SHARDMAP_SLOTS);
    assert_false(drafting_votes(0));
}

static void uplinks_move_few_slots(void **state)
{
    (void)state;
    drafting_seals(3, false);
    for (uint32_t i = 0; i < 3; i++)
        drafting_word(i)->uplink = i == 0 ? 200 : 100;
    drafting_make();
    assert_int_equal(drafting_slots_of(0), 32);
    assert_int_equal(drafting_slots_of(1), 16);
}

/* It votes on as long as that helps, and owns nothing; a newcomer that is one never does either. */
static void who_is_a_contributor_by_order_owns_nothing(void **state)
{
    (void)state;
    for (uint32_t voters = 3; voters <= 4; voters++) {
        drafting_seals(voters, false);
        drafting_request(1);
        drafting_order(ORDER_CONTRIBUTOR, 1);
        drafting_make();
        assert_true(config_member(&drafting.out.draft, 1)->contributor);
        assert_int_equal(drafting_slots_of(1), 0);
        assert_int_equal(drafting_votes(1), voters == 3);
    }
    drafting_seals(3, false);
    configs_add(&drafting.last, CONFIG_OBSERVER)->contributor = true;
    drafting_request(3)->near = true;
    drafting_holds(3, false, 6);
    drafting_make();
    assert_int_equal(config_member(&drafting.out.draft, 3)->role, CONFIG_CONTRIBUTOR);
    drafting_order(ORDER_OWNER, 3);
    drafting_make();
    assert_int_equal(config_member(&drafting.out.draft, 3)->role, CONFIG_OWNER);
    assert_true(drafting_votes(3));
    drafting_seals(1, false); /* where nobody else is left it is not persuaded either */
    configs_add(&drafting.last, CONFIG_CONTRIBUTOR)->contributor = true;
    drafting_request(0);
    drafting_word(0)->draining = true;
    drafting_request(1)->near = true;
    drafting_holds(1, false, 6);
    drafting_make();
    assert_int_equal(drafting_slots_of(1), 0);
    assert_false(drafting_votes(1));
}

/* Of its members a configuration sends away a minority at a time, and never the last that keeps the bytes. */
static void orders_send_away_a_minority_at_a_time(void **state)
{
    (void)state;
    drafting_seals(5, false);
    for (uint32_t id = 1; id < 5; id++)
        drafting_order(id % 2 == 0 ? ORDER_EVICT : ORDER_REVOKE, id);
    for (uint32_t id = 0; id < 5; id++)
        drafting_request(id);
    drafting_make();
    assert_int_equal(drafting.out.draft.orders_count, 2);
    assert_null(config_member(&drafting.out.draft, 1));
    assert_int_equal(config_member(&drafting.out.draft, 2)->role, CONFIG_AWAY);
    assert_int_equal(config_member(&drafting.out.draft, 3)->role, CONFIG_OWNER);
    drafting_seals(2, true);
    drafting_order(ORDER_REVOKE, 0); /* of two, one */
    drafting_order(ORDER_REVOKE, 1);
    drafting_make();
    assert_int_equal(drafting.out.draft.orders_count, 1);
    assert_null(config_member(&drafting.out.draft, 0));
    drafting_seals(1, true);
    drafting_order(ORDER_REVOKE, 0);
    drafting_make();
    assert_int_equal(drafting.out.draft.orders_count, 0);
}

/* Whether each of `expected` owns in the next configuration, and nobody else; all are heard and have caught up. The
 * requests stand in another order than the members. */
static void assert_owners(uint32_t islands, uint32_t fast, uint32_t losses, const struct bitset *expected)
{
    struct config config = roster_config(islands);
    struct change_request requests[CONFIG_OWNERS_MAX + 4];
    for (uint32_t i = 0; i < islands; i++) {
        config.members[i].uplink = config.members[i].id == fast ? 200 : 100;
        config.members[i].losses = config.members[i].id == fast ? losses : 0;
    }
    for (uint32_t i = 0; i < islands; i++)
        requests[islands - 1 - i] = (struct change_request){
            .id = config.members[i].id, .losses = config.members[i].losses, .near = true, .caught_up = true};
    assert_ok(assign_roles(&config, requests, islands));
    for (uint32_t i = 0; i < islands; i++) {
        const struct config_member *member = &config.members[i];
        assert_int_equal(member->role, bitset_has(expected, i) ? CONFIG_OWNER : CONFIG_CONTRIBUTOR);
        assert_int_equal(member->voter, bitset_has(expected, i));
    }
    config_deinit(&config);
}

static void of_too_many_the_fast_and_old_own_and_nobody_keeps_a_place_that_it_may_not_have(void **state)
{
    (void)state;
    struct bitset first = {{0}};
    for (uint32_t i = 0; i < CONFIG_OWNERS_MAX; i++)
        bitset_add(&first, i);
    assert_owners(CONFIG_OWNERS_MAX, 0, 0, &first);
    uint32_t many = CONFIG_OWNERS_MAX + 4, last = CONFIG_OWNERS_MAX - 1;
    assert_owners(many, 0, 0, &first);
    assert_owners(many, roster_id(many - 1), 3, &first); /* lost too often */
    bitset_remove(&first, last);
    bitset_add(&first, many - 1);
    assert_owners(many, roster_id(many - 1), 0, &first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(three_do_not_become_two),
        cmocka_unit_test(four_become_three_and_five_do_not_become_four),
        cmocka_unit_test(beside_a_witness_two_become_one),
        cmocka_unit_test(who_stands_back_votes_where_it_can_get_what_counts),
        cmocka_unit_test(a_witness_votes_where_it_helps),
        cmocka_unit_test(a_witness_votes_when_its_disk_is_named),
        cmocka_unit_test(another_takes_its_place_when_it_has_caught_up),
        cmocka_unit_test(who_is_back_is_away_until_it_has_caught_up),
        cmocka_unit_test(a_disk_in_doubt_votes_again_when_it_has_caught_up),
        cmocka_unit_test(who_is_new_gets_an_id_of_its_own),
        cmocka_unit_test(there_is_one_witness),
        cmocka_unit_test(who_drains_or_wants_not_to_own_owns_nothing),
        cmocka_unit_test(who_cannot_be_dialled_owns_only_beside_a_single_other),
        cmocka_unit_test(who_is_lost_again_and_again_only_contributes_while_others_suffice),
        cmocka_unit_test(of_whom_no_majority_agrees_that_it_leaves_stays_as_it_is),
        cmocka_unit_test(where_nobody_wants_to_own_those_do_who_can),
        cmocka_unit_test(where_nobody_wants_to_own_those_do_first_that_can_be_dialled),
        cmocka_unit_test(uplinks_move_few_slots),
        cmocka_unit_test(who_is_a_contributor_by_order_owns_nothing),
        cmocka_unit_test(orders_send_away_a_minority_at_a_time),
        cmocka_unit_test(of_too_many_the_fast_and_old_own_and_nobody_keeps_a_place_that_it_may_not_have),
    };
    return cmocka_run_group_tests(tests, NULL, drafting_end);
}
