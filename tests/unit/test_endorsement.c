/* SPDX-License-Identifier: Apache-2.0 */
/* Endorsements: who has to agree to what a configuration says of a member's vote and shards. */
#include "net/config/endorsement.h"
#include "net/membership/endorse.h"

#include "tests/lib/drafting.h"
#include "tests/lib/endorsed.h"
#include "tests/lib/sample_configs.h"
#include "tests/lib/testlib.h"

#include <string.h>

#include "common/mem.h"
#include "net/config/owners.h"

static struct config last, next;

static void begin(uint32_t owners, bool witness)
{
    config_deinit(&last);
    config_deinit(&next);
    last = configs_first(owners, witness);
    next = configs_next(&last);
}

/* With one more member, behind the owners. */
static void begin_beside(uint32_t owners, enum config_role role)
{
    begin(owners, false);
    configs_add(&last, role);
    config_deinit(&next);
    next = configs_next(&last);
}

static int end(void **state)
{
    (void)state;
    config_deinit(&last);
    config_deinit(&next);
    return 0;
}

static struct config_member *row(uint32_t id)
{
    return &next.members[id];
}

/* Takes part no more, with or without its vote. */
static void put_out(uint32_t id, bool votes)
{
    row(id)->role = CONFIG_AWAY;
    row(id)->voter = votes;
    next.map = last.map;
    owners_share_out(&next);
}

/* What it needs is signed by members `first` to `first` + `count` - 1. */
static void sign(uint32_t first, uint32_t count)
{
    uint32_t ids[CONFIGS_IDENTS];
    const struct ident *idents[CONFIGS_IDENTS];
    for (uint32_t i = 0; i < count; i++) {
        ids[i] = first + i;
        idents[i] = configs_ident(first + i);
    }
    endorsed(&last, &next, ids, idents, count);
}

#define REFUSED(text) assert_fails(ERR_PROTO, text, endorsements_follow(&last, &next))

static void a_signature_is_of_one_statement_in_one_ballot(void **state)
{
    (void)state;
    uint8_t nonce[CONFIG_NONCE_BYTES] = "a run";
    struct config_endorsement one = {.member = 3, .says = CONFIG_COMES, .incarnation = 9};
    endorsement_sign(configs_ident(1), nonce, 5, 7, &one);
    const uint8_t *key = configs_ident(1)->key;
    assert_true(endorsement_signed(key, nonce, 5, 7, &one));
    assert_false(endorsement_signed(configs_ident(2)->key, nonce, 5, 7, &one));
    assert_false(endorsement_signed(key, nonce, 6, 7, &one));
    assert_false(endorsement_signed(key, nonce, 5, 8, &one));
    struct config_endorsement other = one;
    other.member++;
    assert_false(endorsement_signed(key, nonce, 5, 7, &other));
    other = one;
    other.says = CONFIG_LEAVES;
    assert_false(endorsement_signed(key, nonce, 5, 7, &other));
    other = one;
    other.incarnation++;
    assert_false(endorsement_signed(key, nonce, 5, 7, &other));
    nonce[0]++;
    assert_false(endorsement_signed(key, nonce, 5, 7, &one));
}

static void what_changes_nothing_needs_nobody(void **state)
{
    (void)state;
    begin(3, true);
    assert_ok(endorsements_follow(&last, &next));
    configs_start(&next, 0, 5);
    assert_ok(endorsements_follow(&last, &next));
    end(state);
}

static void who_votes_or_owns_loses_it_by_a_majority_s_word(void **state)
{
    (void)state;
    begin(5, false);
    put_out(4, true); /* its shards alone */
    REFUSED("takes vote, shards or part from m4, and no majority");
    sign(0, 2);
    REFUSED("and no majority");
    sign(0, 3);
    assert_ok(endorsements_follow(&last, &next));
    begin(4, false);
    put_out(3, false);
    sign(0, 2);
    REFUSED("and no majority");
    sign(0, 3);
    assert_ok(endorsements_follow(&last, &next));
    /* A voter that keeps its role and loses its vote. */
    begin(3, true);
    row(3)->voter = false;
    REFUSED("takes vote, shards or part from m3");
    sign(0, 3);
    assert_ok(endorsements_follow(&last, &next));
    end(state);
}

static void who_contributes_is_put_out_by_a_majority_s_word(void **state)
{
    (void)state;
    begin_beside(3, CONFIG_CONTRIBUTOR);
    row(3)->role = CONFIG_AWAY;
    REFUSED("from m3, and no majority");
    row(3)->role = CONFIG_OBSERVER;
    REFUSED("from m3, and no majority");
    row(3)->role = CONFIG_AWAY;
    sign(0, 2);
    assert_ok(endorsements_follow(&last, &next));
    end(state);
}

static void an_order_or_its_own_word_needs_nobody_else(void **state)
{
    (void)state;
    struct order evict = {.kind = ORDER_EVICT, .subject = 2};
    begin(3, false);
    put_out(2, true);
    REFUSED("no majority");
    next.orders = &evict;
    next.orders_count = 1;
    assert_ok(endorsements_follow(&last, &next));
    evict.subject = 1;
    REFUSED("no majority");
    evict = (struct order){.kind = ORDER_GRANT, .subject = 2};
    REFUSED("no majority");
    next.orders = NULL;
    next.orders_count = 0;
    row(2)->draining = true;
    assert_ok(endorsements_follow(&last, &next));
    row(2)->draining = false;
    row(2)->contributor = true;
    assert_ok(endorsements_follow(&last, &next));
    end(state);
}

static void who_comes_needs_a_majority_by_the_disk_that_it_has(void **state)
{
    (void)state;
    begin_beside(3, CONFIG_OBSERVER);
    row(3)->role = CONFIG_OWNER;
    row(3)->voter = true;
    owners_share_out(&next);
    REFUSED("gives a vote or shards to m3, and no majority");
    sign(0, 2);
    assert_ok(endorsements_follow(&last, &next));
    row(3)->incarnation++; /* another disk than they said */
    REFUSED("for which there is no need");
    /* A voter's disk is exchanged likewise: else all but one could be made unable to vote. */
    begin(3, false);
    row(1)->incarnation++;
    REFUSED("gives a vote or shards to m1");
    sign(1, 2);
    assert_ok(endorsements_follow(&last, &next));
    /* Who was away and has its vote still comes back to its shards. */
    begin(3, false);
    last.members[2].role = CONFIG_AWAY;
    owners_share_out(&last);
    next.map = last.map;
    owners_share_out(&next);
    REFUSED("gives a vote or shards to m2");
    sign(0, 2);
    assert_ok(endorsements_follow(&last, &next));
    end(state);
}

static void only_good_signatures_of_voters_that_are_needed_are_there(void **state)
{
    (void)state;
    begin_beside(5, CONFIG_CONTRIBUTOR);
    put_out(4, true);
    sign(0, 3);
    next.endorsements[1].signature[0] ^= 1;
    REFUSED("an endorsement of m4 that m1 did not sign");
    sign(0, 3);
    next.ballot++; /* said in another ballot */
    REFUSED("did not sign");
    sign(0, 3);
    endorsed_by(&next, 5, configs_ident(5), 4, CONFIG_LEAVES, 0);
    REFUSED("by m5, who does not vote");
    sign(0, 3);
    endorsed_by(&next, 0, configs_ident(0), 3, CONFIG_LEAVES, 0);
    REFUSED("that m3 goes, for which there is no need");
    /* One that says it twice counts once: such a configuration makes no sense by itself. */
    sign(0, 2);
    endorsed_by(&next, 0, configs_ident(0), 4, CONFIG_LEAVES, 0);
    assert_fails(ERR_PROTO, "an endorsement of 4 that is out of place", config_check(&next));
    sign(0, 3);
    assert_ok(config_check(&next));
    next.ballot = 0;
    assert_fails(ERR_PROTO, "3 endorsements in ballot 0", config_check(&next));
    end(state);
}

static void votes_go_where_that_lowers_the_majority(void **state)
{
    (void)state;
    begin(5, false);
    put_out(4, false);
    sign(0, 3);
    REFUSED("takes the votes of 1 of 5, which lowers no majority");
    put_out(3, false);
    sign(0, 3);
    assert_ok(endorsements_follow(&last, &next));
    begin(3, false);
    put_out(2, false);
    sign(0, 2);
    REFUSED("lowers no majority");
    /* Beside a witness they do, and where another takes the place. */
    begin(2, true);
    put_out(1, false);
    sign(0, 3);
    assert_ok(endorsements_follow(&last, &next));
    begin_beside(3, CONFIG_OBSERVER);
    row(3)->role = CONFIG_OWNER;
    row(3)->voter = true;
    put_out(2, false);
    sign(0, 2);
    assert_ok(endorsements_follow(&last, &next));
    /* Who is sent away is one of them; who is off the roster is not. */
    begin(3, false);
    row(1)->draining = true;
    put_out(1, false);
    REFUSED("lowers no majority");
    put_out(1, true);
    assert_ok(endorsements_follow(&last, &next));
    begin(3, false);
    next.members_count--;
    next.map = last.map;
    owners_share_out(&next);
    assert_ok(endorsements_follow(&last, &next));
    end(state);
}

static void a_loss_is_counted_once_and_of_who_is_lost(void **state)
{
    (void)state;
    begin(3, false);
    row(1)->losses = 1;
    REFUSED("counts losses of m1 that there were not");
    put_out(1, true);
    sign(0, 2);
    assert_ok(endorsements_follow(&last, &next));
    row(1)->losses = 2;
    REFUSED("counts losses of m1");
    end(state);
}

static void the_map_is_nobody_s_choice(void **state)
{
    (void)state;
    begin(3, false);
    next.map.owner[0] = next.map.owner[0] == 1 ? 2 : 1;
    REFUSED("shares the slots out otherwise");
    begin(3, false);
    row(1)->uplink *= 4;
    REFUSED("shares the slots out otherwise");
    owners_share_out(&next);
    assert_ok(endorsements_follow(&last, &next));
    end(state);
}

/* b and c do not hear each other; a, who lies, signs of both that they may go: each would be sent away by the word of
 * the other, and a would vote alone. */
static void nobody_s_word_counts_that_goes_by_it_itself(void **state)
{
    (void)state;
    begin(3, false);
    put_out(1, false);
    put_out(2, false);
    endorsed_by(&next, 0, configs_ident(0), 1, CONFIG_LEAVES, 0);
    endorsed_by(&next, 2, configs_ident(2), 1, CONFIG_LEAVES, 0);
    endorsed_by(&next, 0, configs_ident(0), 2, CONFIG_LEAVES, 0);
    endorsed_by(&next, 1, configs_ident(1), 2, CONFIG_LEAVES, 0);
    assert_ok(config_check(&next));
    REFUSED("from m1, and no majority");
    begin(5, false); /* two lie, and of the others two do not hear each other */
    put_out(2, false);
    put_out(3, false);
    for (uint32_t liar = 0; liar < 2; liar++) {
        endorsed_by(&next, liar, configs_ident(liar), 2, CONFIG_LEAVES, 0);
        endorsed_by(&next, liar, configs_ident(liar), 3, CONFIG_LEAVES, 0);
    }
    endorsed_by(&next, 3, configs_ident(3), 2, CONFIG_LEAVES, 0);
    endorsed_by(&next, 2, configs_ident(2), 3, CONFIG_LEAVES, 0);
    REFUSED("from m2, and no majority");
    /* Of itself anybody may say it. */
    begin(3, false);
    put_out(2, true);
    endorsed_by(&next, 0, configs_ident(0), 2, CONFIG_LEAVES, 0);
    endorsed_by(&next, 2, configs_ident(2), 2, CONFIG_LEAVES, 0);
    assert_ok(endorsements_follow(&last, &next));
    end(state);
}

static void a_contributor_by_order_takes_part_as_any_other(void **state)
{
    (void)state;
    struct order evict = {.kind = ORDER_EVICT, .subject = 3};
    begin_beside(3, CONFIG_CONTRIBUTOR);
    last.members[3].contributor = row(3)->contributor = true;
    row(3)->role = CONFIG_AWAY;
    REFUSED("from m3, and no majority");
    next.orders = &evict;
    next.orders_count = 1;
    assert_ok(endorsements_follow(&last, &next));
    next.orders = NULL;
    next.orders_count = 0;
    end(state);
}

/* Beside a witness that cannot hear who comes, the one with the bytes suffices: as for results. */
static void who_comes_needs_as_many_as_commit(void **state)
{
    (void)state;
    begin(2, true);
    last.members[1].role = CONFIG_AWAY;
    last.members[1].voter = false;
    last.map = shardmap_empty();
    owners_share_out(&last);
    config_deinit(&next);
    next = configs_next(&last);
    row(1)->role = CONFIG_OWNER;
    row(1)->voter = true;
    owners_share_out(&next);
    REFUSED("gives a vote or shards to m1");
    endorsed_by(&next, 0, configs_ident(0), 1, CONFIG_COMES, row(1)->incarnation);
    assert_ok(endorsements_follow(&last, &next));
    end(state);
}

/* ---- a proposer gathers them ---- */

/* Of `drafting`, member by member. */
static struct config_endorsement said[DRAFTING_ISLANDS];

enum { DRAFT_BALLOT = 3 };

/* In its promise; `well`: its signature is one. */
static void agrees(uint32_t answer, uint32_t member, bool well)
{
    struct paxos_message promise = {.ballot = DRAFT_BALLOT, .endorsements = &said[answer], .endorsements_count = 1};
    said[answer] = (struct config_endorsement){.member = member, .says = CONFIG_LEAVES};
    endorsement_sign(configs_ident(drafting.answers[answer].id), drafting.last.nonce, drafting.last.epoch + 1,
                     DRAFT_BALLOT, &said[answer]);
    said[answer].signature[3] ^= well ? 0 : 1;
    endorse_keep_signed(&drafting.last, drafting.answers[answer].id, NULL, &(struct quota){0}, 1, &promise);
    drafting.answers[answer].endorsements = promise.endorsements;
    drafting.answers[answer].endorsements_count = promise.endorsements_count;
}

static bool agree(bool waits)
{
    struct next_config_base base = *drafting_base();
    bool agreed;
    assert_ok(endorse_agree(&base, DRAFT_BALLOT, waits, drafting.answers, drafting.answers_count, drafting.requests,
                            drafting.change_requests_count, &drafting.out, &agreed));
    return agreed;
}

static enum config_role role_of(uint32_t id)
{
    return (enum config_role)config_member(&drafting.out.draft, id)->role;
}

/* What is bad is gone, the rest stays in order; of who does not vote nothing stays. What was kept is not checked again
 * in its ballot, and nobody has more checked than so many. */
static void of_a_promise_stays_what_was_signed(void **state)
{
    struct config_endorsement list[3], kept_list[3];
    struct quota checks = {0};
    drafting_seals(4, false);
    for (uint32_t i = 0; i < 3; i++) {
        list[i] = (struct config_endorsement){.member = i, .says = CONFIG_LEAVES};
        endorsement_sign(configs_ident(3), drafting.last.nonce, drafting.last.epoch + 1, i == 1 ? 4 : 3, &list[i]);
    }
    memcpy(kept_list, list, sizeof list);
    struct paxos_message promise = {.ballot = 3, .endorsements = list, .endorsements_count = 3};
    struct paxos_message kept = {.ballot = 3, .endorsements = kept_list, .endorsements_count = 3};
    endorse_keep_signed(&drafting.last, 3, NULL, &checks, 1, &promise);
    assert_int_equal(promise.endorsements_count, 2);
    assert_int_equal(list[0].member, 0);
    assert_int_equal(list[1].member, 2);
    endorse_keep_signed(&drafting.last, 2, NULL, &checks, 1, &promise); /* another's */
    assert_int_equal(promise.endorsements_count, 0);
    promise.endorsements_count = 2;
    drafting.last.members[3].voter = false;
    endorse_keep_signed(&drafting.last, 3, NULL, &checks, 1, &promise);
    assert_int_equal(promise.endorsements_count, 0);
    drafting.last.members[3].voter = true;

    memcpy(list, kept_list, sizeof list);
    promise.endorsements_count = 3;
    endorse_keep_signed(&drafting.last, 3, &kept, &checks, 1, &promise);
    assert_int_equal(promise.endorsements_count, 3);
    kept.ballot = 4; /* what was kept then says nothing of this one */
    endorse_keep_signed(&drafting.last, 3, &kept, &checks, 1, &promise);
    assert_int_equal(promise.endorsements_count, 2);
    for (int i = 0; i < ENDORSE_CHECKS; i++) {
        promise.endorsements_count = 1;
        endorse_keep_signed(&drafting.last, 3, NULL, &checks, 1, &promise);
    }
    assert_int_equal(promise.endorsements_count, 0);
    promise.endorsements_count = 1;
    endorse_keep_signed(&drafting.last, 3, NULL, &checks, 1 + ENDORSE_CHECK_MS, &promise);
    assert_int_equal(promise.endorsements_count, 1);
    drafting_end(state);
}

/* As it is wanted first, and while there is time; then without what too few signed. */
static void a_draft_does_without_what_no_majority_signed(void **state)
{
    (void)state;
    drafting_seals(4, false);
    drafting_request(3)->silent = true;
    drafting_make();
    assert_int_equal(role_of(3), CONFIG_AWAY);
    agrees(0, 3, true);
    agrees(2, 3, true);
    assert_false(agree(true));
    assert_int_equal(role_of(3), CONFIG_AWAY);
    agrees(1, 3, false);
    assert_false(agree(true));
    assert_true(agree(false));
    assert_int_equal(role_of(3), CONFIG_OWNER);
    assert_true(drafting_votes(3));
    assert_int_equal(drafting.out.draft.endorsements_count, 0);
    assert_ok(endorsements_follow(&drafting.last, &drafting.out.draft));
    /* With all of them it stands. */
    drafting.requests[0].held = false;
    drafting_make();
    agrees(1, 3, true);
    assert_true(agree(false));
    assert_int_equal(role_of(3), CONFIG_AWAY);
    assert_false(drafting_votes(3));
    assert_int_equal(drafting.out.draft.endorsements_count, 3);
    assert_int_equal(drafting.out.draft.ballot, DRAFT_BALLOT);
    assert_ok(endorsements_follow(&drafting.last, &drafting.out.draft));
    drafting_end(state);
}

/* Who would rather not own leaves for no reason of its own but that rule 5 lets it: where that is not agreed to,
 * nothing changes but what is ordered. */
static void where_nothing_is_agreed_to_orders_alone_are_carried_out(void **state)
{
    (void)state;
    drafting_seals(5, false);
    drafting.last.members[4].owner_choice = CONFIG_OWNER_NO;
    owners_share_out(&drafting.last);
    drafting_order(ORDER_EVICT, 3);
    drafting_request(3);
    drafting_make();
    assert_false(drafting_votes(4));
    assert_true(agree(false));
    assert_true(drafting_votes(4));
    assert_int_equal(role_of(4), CONFIG_OWNER);
    assert_int_equal(drafting_slots_of(4), 0);
    assert_int_equal(role_of(3), CONFIG_AWAY);
    assert_int_equal(drafting_slots_of(3), 0);
    assert_ok(config_check(&drafting.out.draft));
    assert_ok(next_config_follows(drafting_base(), &drafting.out.draft));
    assert_ok(endorsements_follow(&drafting.last, &drafting.out.draft));
    drafting_end(state);
}

/* One that an order puts out goes whatever the others say. */
static void what_is_ordered_is_in_the_draft_that_nobody_agrees_to(void **state)
{
    (void)state;
    drafting_seals(5, false);
    drafting_order(ORDER_EVICT, 4);
    drafting_request(3)->silent = true;
    drafting_request(4);
    drafting_make();
    assert_true(agree(false));
    assert_int_equal(role_of(3), CONFIG_OWNER);
    assert_int_equal(role_of(4), CONFIG_AWAY);
    assert_ok(endorsements_follow(&drafting.last, &drafting.out.draft));
    drafting_end(state);
}

/* ---- as large as can be ---- */

/* Of OWNERS those of the highest ids are lost, LOST of them; more have come than there are places. Of so many fragments
 * each owner has made a part of the next version. With so many members, and texts as long as can be, not all
 * endorsements have room. */
enum { OWNERS = 64, LOST = 31, SEALS = OWNERS - LOST, COME = 115, FRAGMENTS = 128, LARGE_ANSWERS = SEALS + COME };
/* Ids: owners, some who come, owners who are lost, the others who come, and who is away. */
enum { COME_ID = SEALS, LOST_ID = COME_ID + 20, MORE_ID = LOST_ID + LOST, AWAY_ID = MORE_ID + COME - 20 };

static struct large {
    struct config last;
    struct digest digest;
    uint32_t shards[FRAGMENTS];
    struct part_result results[FRAGMENTS][OWNERS];
    struct holding rows[FRAGMENTS], bare[FRAGMENTS];
    struct next_config_answer answers[LARGE_ANSWERS];
    struct config_endorsement said[SEALS][LOST + COME];
    struct change_request requests[LOST + COME];
    struct next_config_base base;
    struct next_config_out out;
} large;

/* `n`: of those who seal first, then of those who come. */
static uint32_t large_id(uint32_t n)
{
    return n < LOST_ID ? n : n + LOST;
}

static void large_members(void)
{
    uint32_t owners[OWNERS];
    large.last = configs_first(1, false);
    large.last.epoch = 4;
    for (uint32_t id = 1; id < SEALS; id++)
        configs_add(&large.last, CONFIG_OBSERVER);
    for (uint32_t i = 0; i < OWNERS; i++)
        owners[i] = i < SEALS ? i : LOST_ID + i - SEALS;
    while (large.last.members_count < CONFIG_MEMBERS_MAX) {
        uint32_t id = large.last.members_count;
        struct config_member *member = configs_row(&large.last, id, id < AWAY_ID ? CONFIG_OBSERVER : CONFIG_AWAY);
        snprintf(member->name, sizeof member->name, "%0*u", (int)sizeof member->name - 1, id);
        memset(member->key, (int)(id & 0xff), sizeof member->key);
        memcpy(member->key, &id, sizeof id);
        member->word = (uint64_t)1 << 62;
        member->uplink = 1000000000;
        member->incarnation = 7;
        memset(member->address, 'a', sizeof member->address - 1);
        memset(member->next_key, (int)(id & 0xff), sizeof member->next_key);
    }
    large.last.next_id = CONFIG_MEMBERS_MAX;
    configs_map(&large.last, owners, OWNERS);
}

static void large_holdings(void)
{
    for (uint32_t f = 0; f < FRAGMENTS; f++) {
        large.shards[f] = OWNERS;
        for (uint32_t i = 0; i < OWNERS; i++) {
            uint32_t owner = i < SEALS ? i : LOST_ID + i - SEALS;
            uint64_t mask = 0;
            for (uint32_t s = 0; s < OWNERS; s++)
                mask |= (uint64_t)(large.last.map.owner[shardmap_slot(f, OWNERS, s)] == owner) << s;
            large.results[f][i] = (struct part_result){
                .id = {.fragment = f, .owner = owner, .version = 7, .epoch = 4, .digest = digest_of(&i, sizeof i)},
                .shards = mask};
        }
        large.bare[f] = large.rows[f] = (struct holding){.fragment = f, .version = 6};
        large.rows[f].held = large.results[f];
        large.rows[f].held_count = OWNERS;
    }
}

static void large_answers(void)
{
    for (uint32_t i = 0; i < LARGE_ANSWERS; i++) {
        uint32_t id = large_id(i);
        large.answers[i] = (struct next_config_answer){.id = id,
                                                       .incarnation = config_member(&large.last, id)->incarnation,
                                                       .sealed = i < SEALS,
                                                       .rows = i < 2 ? large.rows : large.bare,
                                                       .rows_count = FRAGMENTS};
    }
    for (uint32_t k = 0; k < LOST + COME; k++) {
        uint32_t id = SEALS + k;
        bool lost = id >= LOST_ID && id < MORE_ID;
        const struct config_member *member = config_member(&large.last, id);
        large.requests[k] =
            (struct change_request){.id = id, .incarnation = member->incarnation, .silent = lost, .near = !lost};
        for (uint32_t i = 0; i < SEALS; i++) {
            struct config_endorsement *one = &large.said[i][k];
            *one = (struct config_endorsement){.member = id,
                                               .says = lost ? CONFIG_LEAVES : CONFIG_COMES,
                                               .incarnation = lost ? 0 : member->incarnation};
            endorsement_sign(configs_ident(i), large.last.nonce, 5, DRAFT_BALLOT, one);
            large.answers[i].endorsements = large.said[i];
            large.answers[i].endorsements_count = LOST + COME;
        }
    }
}

/* Who is lost goes; of those who come so many as have room, and the others with a later configuration. */
static void what_has_no_room_waits_for_another_configuration(void **state)
{
    (void)state;
    bool agreed;
    uint8_t *bytes;
    size_t count;
    uint32_t gone = 0, come = 0;
    large_members();
    large_holdings();
    large_answers();
    large.digest = configs_digest(&large.last);
    large.base = (struct next_config_base){
        .config = &large.last, .digest = &large.digest, .shards = large.shards, .fragments_count = FRAGMENTS};
    assert_ok(next_config(&large.base, large.answers, LARGE_ANSWERS, large.requests, LOST + COME, &large.out));
    assert_int_equal(large.out.draft.carried_count, FRAGMENTS * OWNERS);
    assert_ok(endorse_agree(&large.base, DRAFT_BALLOT, false, large.answers, LARGE_ANSWERS, large.requests, LOST + COME,
                            &large.out, &agreed));
    assert_true(agreed);
    for (uint32_t id = 0; id < AWAY_ID; id++) {
        bool lost = id >= LOST_ID && id < MORE_ID;
        gone += lost && !config_member(&large.out.draft, id)->voter;
        come += !lost && id >= COME_ID && config_member(&large.out.draft, id)->voter;
    }
    assert_int_equal(gone, LOST);
    assert_in_range(come, 1, LOST - 1);
    assert_ok(config_pack(&large.out.draft, &bytes, &count));
    assert_in_range(count, CONFIG_BYTES_MAX - (64 << 10), CONFIG_BYTES_MAX);
    assert_ok(endorsements_follow(&large.last, &large.out.draft));
    mem_free(bytes);
    config_deinit(&large.out.draft);
    config_deinit(&large.last);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_signature_is_of_one_statement_in_one_ballot),
        cmocka_unit_test(what_changes_nothing_needs_nobody),
        cmocka_unit_test(who_votes_or_owns_loses_it_by_a_majority_s_word),
        cmocka_unit_test(who_contributes_is_put_out_by_a_majority_s_word),
        cmocka_unit_test(an_order_or_its_own_word_needs_nobody_else),
        cmocka_unit_test(who_comes_needs_a_majority_by_the_disk_that_it_has),
        cmocka_unit_test(only_good_signatures_of_voters_that_are_needed_are_there),
        cmocka_unit_test(votes_go_where_that_lowers_the_majority),
        cmocka_unit_test(a_loss_is_counted_once_and_of_who_is_lost),
        cmocka_unit_test(the_map_is_nobody_s_choice),
        cmocka_unit_test(nobody_s_word_counts_that_goes_by_it_itself),
        cmocka_unit_test(a_contributor_by_order_takes_part_as_any_other),
        cmocka_unit_test(who_comes_needs_as_many_as_commit),
        cmocka_unit_test(of_a_promise_stays_what_was_signed),
        cmocka_unit_test(a_draft_does_without_what_no_majority_signed),
        cmocka_unit_test(where_nothing_is_agreed_to_orders_alone_are_carried_out),
        cmocka_unit_test(what_is_ordered_is_in_the_draft_that_nobody_agrees_to),
        cmocka_unit_test(what_has_no_room_waits_for_another_configuration),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
