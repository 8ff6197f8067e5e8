/* SPDX-License-Identifier: Apache-2.0 */
/* next_config: where the next epoch starts and what it carries, and when that is safe, by the shortest runs that break
 * the rules. */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <string.h>

#include "common/mem.h"
#include "net/config/config_deal.h"
#include "tests/lib/drafting.h"
#include "tests/lib/outofmem.h"
#include "tests/lib/sample_configs.h"

/* ---- start and carried results ---- */

static void the_highest_version_with_its_bytes_is_the_start(void **state)
{
    (void)state;
    drafting_start(2, true);
    drafting_holds(0, true, 6);
    drafting_holds(2, true, 9); /* the witness: digests are no copies */
    drafting_make();
    assert_false(drafting.out.ask);
    assert_int_equal(config_start(&drafting.out.draft, 0), 6);
    drafting_holds(1, false, 7);
    drafting_make();
    assert_int_equal(config_start(&drafting.out.draft, 1), 7);
}

/* What one of three alone says is taken for a while; what it cannot have, if the others are enough, never. */
static void no_claim_of_one_alone_holds_a_configuration_up(void **state)
{
    (void)state;
    drafting_start(3, false);
    drafting_holds(0, true, 6);
    drafting_holds(1, true, 6);
    drafting_holds(2, true, 7);
    drafting_make();
    assert_int_equal(config_start(&drafting.out.draft, 0), 7);
    drafting.overdue = true;
    drafting_make();
    assert_int_equal(config_start(&drafting.out.draft, 0), 6);
    drafting_start(3, false);
    drafting_holds(0, true, 6);
    drafting_holds(1, true, 6);
    drafting_holds(2, true, 1000000);
    drafting_make();
    assert_int_equal(config_start(&drafting.out.draft, 0), 6);
    drafting_start(3, false);
    drafting_holds(0, true, 6);
    drafting_holds(2, true, 9); /* without it there are too few seals: the two are all there is to go by */
    drafting.overdue = true;
    drafting_make();
    assert_int_equal(config_start(&drafting.out.draft, 0), 9);
}

/* A result that one of three alone shows was committed nowhere, if the others are enough: it is left out in time. */
static void no_result_of_one_alone_holds_a_configuration_up(void **state)
{
    (void)state;
    drafting_start(3, false);
    drafting_holds(0, true, 6);
    drafting_with(0, 4, "shown by two");
    drafting_holds(1, true, 6);
    drafting_with(0, 4, "shown by two");
    drafting_holds(2, true, 6);
    drafting_with(1, 4, "shown by one");
    drafting_make();
    assert_int_equal(drafting.out.draft.carried_count, 2);
    drafting.overdue = true;
    drafting_make();
    assert_int_equal(drafting.out.draft.carried_count, 1);
    assert_true(drafting_carries("shown by two"));
}

static void too_few_seals_say_nothing(void **state)
{
    (void)state;
    drafting_start(3, false);
    drafting_holds(0, true, 6);
    drafting_holds(1, false, 6);
    drafting_make();
    assert_true(drafting.out.ask);
    drafting_holds(2, true, 6)->incarnation = 99; /* a seal of a disk that the configuration does not name */
    drafting_make();
    assert_true(drafting.out.ask);
}

static void a_configuration_never_starts_below_the_one_before(void **state)
{
    (void)state;
    drafting_start(3, false);
    configs_start(&drafting.last, 0, 5);
    drafting_holds(0, true, 4);
    drafting_holds(1, true, 4);
    drafting_make();
    assert_true(drafting.out.ask);
    drafting_holds(2, false, 5);
    drafting_make();
    assert_false(drafting.out.ask);
    assert_int_equal(config_start(&drafting.out.draft, 0), 5);
}

static void a_sealed_result_of_the_next_version_is_carried(void **state)
{
    (void)state;
    drafting_start(3, false);
    drafting_holds(0, true, 6);
    drafting_with(1, 4, "sealed");
    drafting_with(2, 3, "of an older epoch");
    drafting_holds(1, true, 5);
    drafting_with(2, 4, "of version 6");
    drafting_holds(2, false, 6);
    drafting_with(2, 4, "not sealed");
    drafting_make();
    assert_int_equal(drafting.out.draft.carried_count, 1);
    assert_true(drafting_carries("sealed"));
    assert_int_equal(drafting.out.draft.carried[0].id.version, 7);
    assert_int_equal(drafting.out.draft.carried[0].id.epoch, 4);
    assert_int_equal(drafting.out.suspects_count, 0);
}

static void a_result_of_a_wrong_owner_is_not_carried(void **state)
{
    (void)state;
    drafting_start(3, false);
    drafting_holds(0, true, 6);
    drafting_with(1, 4, "of other shards")->shards = drafting_mask_of(2);
    drafting_with(2, 4, "of some of its shards")->shards &= drafting_mask_of(2) - 1;
    drafting_with(70000, 4, "of nobody")->shards = 1;
    drafting_holds(1, true, 6);
    drafting_make();
    assert_int_equal(drafting.out.draft.carried_count, 0);
    configs_carry(&drafting.out.draft, 0, 1, 4, drafting_mask_of(2)); /* an acceptor looks as well */
    assert_fails(ERR_PROTO, "does not count", next_config_follows(drafting_base(), &drafting.out.draft));
}

static void a_result_that_only_a_witness_holds_was_committed_nowhere(void **state)
{
    (void)state;
    drafting_start(2, true);
    drafting_holds(1, true, 6);
    drafting_holds(2, true, 6);
    drafting_with(0, 4, "digest");
    drafting_make();
    assert_false(drafting.out.ask);
    assert_int_equal(drafting.out.draft.carried_count, 0);
}

/* A alone holds r, e2 carries it; B and C never fetched it and seal e3. */
static void what_was_carried_into_an_unfinished_version_stands(void **state)
{
    (void)state;
    drafting_start(3, false);
    configs_start(&drafting.last, 0, 6);
    configs_carry(&drafting.last, 0, 0, 3, 3);
    struct part_result old = drafting.last.carried[0];
    drafting_holds(1, true, 6);
    drafting_holds(2, true, 6);
    drafting_make();
    assert_true(drafting.out.ask); /* its bytes are at somebody else */
    drafting_holds(0, false, 6);
    struct part_result *has = drafting_with(0, 3, "");
    has->shards = old.shards;
    has->id.digest = old.id.digest;
    drafting_make();
    assert_false(drafting.out.ask);
    assert_int_equal(drafting.out.draft.carried_count, 1);
    assert_memory_equal(&drafting.out.draft.carried[0], &old, sizeof old);
    drafting.rows[1][0].version = 7; /* the version is complete */
    drafting_make();
    assert_int_equal(drafting.out.draft.carried_count, 0);
}

static void of_two_results_the_one_at_more_voters_stands_and_its_owner_is_named(void **state)
{
    (void)state;
    drafting_start(4, false);
    drafting_holds(0, true, 6);
    drafting_with(3, 4, "one");
    drafting_holds(1, true, 6);
    drafting_with(3, 4, "other");
    drafting_holds(2, true, 6);
    drafting_with(3, 4, "other");
    drafting_make();
    assert_int_equal(drafting.out.draft.carried_count, 1);
    assert_true(drafting_carries("other"));
    assert_int_equal(drafting.out.suspects_count, 1);
    assert_int_equal(drafting.out.suspects[0], 3);
    drafting_holds(3, true, 6);
    drafting_with(3, 4, "one"); /* now they are equal: everyone has to choose the same one */
    drafting_make();
    struct digest chosen = drafting.out.draft.carried[0].id.digest;
    drafting.rows[0][0].held = drafting.results[1][0];
    drafting.rows[1][0].held = drafting.results[0][0];
    drafting_make();
    assert_memory_equal(&chosen, &drafting.out.draft.carried[0].id.digest, sizeof chosen);
}

/* ---- rule 2 ---- */

static void a_draft_is_safe_when_its_own_voters_hold_it(void **state)
{
    (void)state;
    uint32_t lacking[CONFIG_OWNERS_MAX + 1], count;
    drafting_start(3, false);
    drafting_holds(0, true, 6);
    drafting_with(0, 4, "r");
    drafting_holds(1, true, 5);
    drafting_make();
    assert_true(drafting_carries("r"));
    assert_false(next_config_safe(&drafting.out.draft, drafting_base(), drafting.answers, drafting.answers_count,
                                  lacking, &count));
    assert_int_equal(count, 2);
    assert_int_equal(lacking[0], 1);
    assert_int_equal(lacking[1], 2); /* has not answered */
    struct next_config_lack lack;
    assert_true(next_config_lacks(&drafting.out.draft, 0, &drafting.rows[1][0], &lack));
    assert_true(lack.start);
    drafting.rows[1][0].version = 6;
    assert_true(next_config_lacks(&drafting.out.draft, 0, &drafting.rows[1][0], &lack));
    assert_false(lack.start);
    assert_int_equal(lack.carried, 0);
    drafting.rows[1][1].version = 6;
    assert_false(drafting_safe());
    drafting_with(0, 4, "r"); /* fetched, sealed as it is */
    assert_true(drafting_safe());
    drafting.answers[1].incarnation++; /* a receipt of another disk */
    assert_false(drafting_safe());
}

/* One who is below the start has all that leads there, and of what is carried beyond it what it names. */
/* 0 drains, 2 is lost, and 1 says what it likes: it would begin alone with a version that nobody else has seen. */
static void what_the_only_voter_left_says_another_one_holds(void **state)
{
    (void)state;
    drafting_start(3, false);
    drafting_holds(0, true, 6);
    drafting_holds(1, true, 7);
    drafting_request(0);
    drafting_word(0)->draining = true;
    drafting_request(2)->silent = true;
    for (int overdue = 0; overdue < 2; overdue++) { /* without it there are too few seals, however long it takes */
        drafting.overdue = overdue != 0;
        drafting_make();
        assert_int_equal(config_voters(&drafting.out.draft), 1);
        assert_int_equal(config_start(&drafting.out.draft, 0), 7);
        assert_false(drafting_safe());
    }
    for (uint32_t f = 0; f < DRAFTING_F; f++)
        drafting.rows[0][f].reach = 7; /* it has fetched what makes it */
    drafting_make();
    assert_true(drafting_safe());
    drafting_start(2, true);
    drafting_holds(0, true, 6);
    drafting_holds(1, true, 7);
    drafting_holds(2, true, 0);
    drafting_request(0);
    drafting_word(0)->draining = true;
    drafting_make();
    assert_true(drafting_votes(1) && !drafting_votes(0));
    assert_false(drafting_safe());
    drafting_start(2, true); /* what it does not get, those two may do without, as if it were lost */
    configs_start(&drafting.last, 0, 6);
    configs_carry(&drafting.last, 0, 0, 3, 3);
    drafting_holds(0, true, 6);
    drafting_holds(2, true, 0);
    drafting_holds(1, true, 6);
    drafting_with(0, 3, "")->shards = drafting.last.carried[0].shards;
    drafting.results[2][0][0].id.digest = drafting.last.carried[0].id.digest;
    drafting.rows[0][1].version = drafting.rows[2][1].version = 6;
    drafting_request(0);
    drafting_word(0)->draining = true;
    drafting_make();
    assert_int_equal(drafting.out.draft.carried_count, 1);
    assert_false(drafting_safe());
    drafting.overdue = true;
    drafting_make();
    assert_int_equal(drafting.out.draft.carried_count, 1);
    assert_true(drafting_safe());
}

static void what_is_kept_for_a_draft_is_a_copy(void **state)
{
    (void)state;
    struct next_config_lack lack;
    drafting_start(3, false);
    drafting_holds(0, true, 6);
    drafting_with(0, 4, "r");
    drafting_holds(1, true, 4);
    struct holding *kept = drafting.rows[1];
    kept[0].reach = kept[1].reach = 5;
    drafting_make();
    assert_int_equal(drafting.out.draft.starts[0], 6);
    assert_true(next_config_lacks(&drafting.out.draft, 0, &kept[0], &lack));
    assert_true(lack.start);
    kept[0].reach = kept[1].reach = 6;
    assert_true(next_config_lacks(&drafting.out.draft, 0, &kept[0], &lack));
    assert_false(lack.start);
    assert_false(drafting_safe());
    struct part_result has = drafting.out.draft.carried[0];
    has.id.version = kept[0].version + 1;
    kept[0].held = &has; /* as one of the version after its own: that is another one */
    kept[0].held_count = 1;
    assert_false(drafting_safe());
    kept[0].held_count = 0;
    has.id.version = kept[0].reach + 1;
    kept[0].beyond = &has;
    kept[0].beyond_count = 1;
    assert_true(drafting_safe());
    has.id.digest.byte[0] ^= 1;
    assert_false(drafting_safe());
    has.id.digest.byte[0] ^= 1;
    kept[0].reach = 7; /* kept for another draft: which result of that version it has, it does not say */
    assert_false(drafting_safe());
}

/* A start is what somebody is at: what is only kept may count nowhere. */
static void no_start_is_composed_from_what_is_kept(void **state)
{
    (void)state;
    drafting_seals(3, false);
    for (uint32_t i = 0; i < 3; i++)
        drafting.rows[i][0].reach = 7;
    drafting_make();
    assert_int_equal(drafting.out.draft.starts[0], 6);
}

static void a_witness_is_no_copy(void **state)
{
    (void)state;
    drafting_start(2, true);
    drafting_holds(0, true, 6);
    drafting_holds(2, true, 6);
    drafting_make();
    assert_false(drafting_safe());
    drafting_request(1)->silent = true; /* {A, W}: A commits alone */
    drafting_make();
    assert_true(drafting_safe());
}

/* What is committed enough seals show; one that claims more than these is not believed. */
static void data_is_dealt_from_beyond_what_seals_show(void **state)
{
    (void)state;
    drafting_start(3, false);
    drafting.last.deal.horizon = 20;
    drafting.last.deal.counted_step = 50;
    for (uint32_t id = 0; id < 3; id++) {
        drafting.last.members[id].units = 4;
        drafting_holds(id, true, 6)->step = id == 1 ? 1000000 : 100 + 10 * id;
    }
    drafting_make();
    assert_int_equal(drafting.out.draft.deal.counted_step, 120);
    assert_int_equal(drafting.out.draft.deal.start.step, 0); /* the list is the same */
    drafting_word(2)->units = 5;
    drafting_make();
    assert_int_equal(drafting.out.draft.deal.start.step, 141);
    assert_int_equal(drafting.out.draft.deal.start.position, 141 * 12);
    drafting.answers_count = 2; /* both are needed: it may be so */
    drafting_make();
    assert_int_equal(drafting.out.draft.deal.counted_step, 1000); /* but no run goes beyond its end */
    assert_ok(next_config_follows(drafting_base(), &drafting.out.draft));
    drafting.answers[1].step = drafting.answers[0].step = 10;
    drafting_make();
    assert_int_equal(drafting.out.draft.deal.counted_step, 50);
}

/* What is counted goes by the seals, so that an order may make sense where it was given, and none where it is due. */
static void no_order_ends_the_run_below_what_the_seals_show(void **state)
{
    (void)state;
    drafting_seals(3, false);
    for (uint32_t k = 0; k < 3; k++)
        drafting.answers[k].step = 100;
    drafting_order(ORDER_STEPS, 0)->value = 100;
    drafting_make();
    assert_int_equal(drafting.out.draft.orders_count, 0);
    drafting.orders[0].value = 101;
    drafting_make();
    assert_int_equal(drafting.out.draft.steps, 101);
    assert_ok(next_config_follows(drafting_base(), &drafting.out.draft));
    drafting.out.draft.deal.counted_step = 101;
    assert_fails(ERR_PROTO, "results of steps up to 101 are counted",
                 next_config_follows(drafting_base(), &drafting.out.draft));
}

static void a_voter_accepts_no_dealing_from_below_what_it_applied(void **state)
{
    (void)state;
    drafting_seals(3, false);
    for (uint32_t k = 0; k < 3; k++)
        drafting.answers[k].step = 100;
    drafting_make();
    struct next_config_base base = *drafting_base();
    base.applied_step = 100;
    assert_ok(next_config_follows(&base, &drafting.out.draft));
    base.applied_step = 101;
    /* Its maker is not to blame, if one that answered it has lied. */
    assert_fails(ERR_STATE, "a result of step 101 is", next_config_follows(&base, &drafting.out.draft));
}

/* Data would be dealt by the last list for ever. */
static void a_voter_accepts_no_dealing_from_beyond_the_run(void **state)
{
    (void)state;
    drafting_seals(3, false);
    drafting_make();
    struct config *draft = &drafting.out.draft;
    config_deal_next(&drafting.last, drafting.last.steps, draft);
    assert_ok(next_config_follows(drafting_base(), draft));
    config_deal_next(&drafting.last, drafting.last.steps + 1, draft);
    assert_fails(ERR_PROTO, "a result of step 1001 were applied, in a run of 1000",
                 next_config_follows(drafting_base(), draft));
}

/* All that may stand in the config log; a voter looks at what orders and words say, too. */
static void what_no_order_says_is_not_accepted(void **state)
{
    (void)state;
    drafting_seals(3, false);
    drafting_make();
    assert_ok(next_config_follows(drafting_base(), &drafting.out.draft));
    drafting.out.draft.steps++;
    assert_fails(ERR_PROTO, "no order or word says", next_config_follows(drafting_base(), &drafting.out.draft));
}

/* So that about so many bytes are left. */
static void fill_up(struct config *config, size_t left)
{
    enum { MEMBERS = 950 };
    uint8_t *bytes;
    assert_ok(mem_grow(&config->members, config->members_count, MEMBERS, sizeof *config->members, "members"));
    while (config->members_count < MEMBERS) {
        struct config_member *member = &config->members[config->members_count++];
        *member = (struct config_member){.id = config->next_id++, .role = CONFIG_AWAY, .incarnation = UINT64_MAX};
        memset(member->address, 'a', 250);
        snprintf(member->name, sizeof member->name, "a-member-of-a-large-run-with-a-long-name-%u", member->id);
    }
    assert_ok(mem_new(CONFIG_CARRIED_MAX, sizeof *config->carried, "carried", &config->carried));
    for (size_t count = 0; count + left < CONFIG_BYTES_MAX; mem_free(bytes)) {
        for (uint32_t i = 0; i < 64; i++)
            config->carried[config->carried_count++] = (struct part_result){
                .id = {.fragment = 4095, .owner = UINT32_MAX, .version = UINT64_MAX, .epoch = UINT64_MAX},
                .shards = UINT64_MAX};
        assert_ok(config_pack(config, &bytes, &count));
    }
}

/* A configuration that is too large can never be decided: with part of what is asked it can. */
static void what_does_not_fit_waits(void **state)
{
    (void)state;
    enum { ORDERS = 60, LEFT_BYTES = 80000 };
    static struct order orders[ORDERS];
    const struct order *at[ORDERS];
    uint8_t *bytes;
    size_t count;
    struct config last = configs_first(3, false), next;
    struct next_config_base base = {.config = &last, .orders = at, .orders_count = ORDERS};
    for (uint32_t i = 0; i < ORDERS; i++) {
        orders[i] = (struct order){.kind = ORDER_ADMIT, .number = i + 1};
        orders[i].join.word = (struct member_word){.number = 1, .uplink = 1 << 30};
        memset(orders[i].join.word.address, 'a', 250);
        snprintf(orders[i].join.name, sizeof orders[i].join.name, "newcomer-%u", i);
        orders[i].join.key[0] = (uint8_t)(1 + i);
        at[i] = &orders[i];
    }
    fill_up(&last, LEFT_BYTES);
    assert_ok(config_copy(&last, &next));
    assert_ok(next_config_obey(&base, &next, NULL, 0));
    assert_true(next.orders_count > 0 && next.orders_count < ORDERS);
    assert_int_equal(next.members_count, last.members_count + next.orders_count);
    assert_ok(config_pack(&next, &bytes, &count));
    mem_free(bytes);
    config_deinit(&next);
    last.carried_count = 10; /* there is room */
    assert_ok(config_copy(&last, &next));
    assert_ok(next_config_obey(&base, &next, NULL, 0));
    assert_int_equal(next.orders_count, ORDERS);
    config_deinit(&next);
    config_deinit(&last);
}

/* What a majority agreed to before is no part of the next one. */
static void what_was_agreed_to_before_takes_no_room(void **state)
{
    (void)state;
    enum { LEFT_BYTES = 80000, ENDORSEMENTS = 600 };
    const struct order order = {.kind = ORDER_STEPS, .number = 1, .value = 4321}, *at = &order;
    uint8_t *bytes;
    size_t count;
    struct config last = configs_first(3, false), next;
    struct next_config_base base = {.config = &last, .orders = &at, .orders_count = 1};
    fill_up(&last, LEFT_BYTES);
    assert_ok(mem_new(ENDORSEMENTS, sizeof *last.endorsements, "endorsements", &last.endorsements));
    last.endorsements_count = ENDORSEMENTS;
    last.ballot = 1;
    assert_ok(config_pack(&last, &bytes, &count)); /* it could be decided itself */
    mem_free(bytes);
    assert_ok(config_copy(&last, &next));
    assert_ok(next_config_obey(&base, &next, NULL, 0));
    assert_int_equal(next.orders_count, 1);
    assert_int_equal(next.steps, 4321);
    assert_int_equal(next.endorsements_count, 0);
    assert_int_equal(next.ballot, 0);
    config_deinit(&next);
    config_deinit(&last);
}

static enum err compose_once(void *context)
{
    struct next_config_out once;
    enum err err = next_config(context, drafting.answers, drafting.answers_count, drafting.requests,
                               drafting.change_requests_count, &once);
    config_deinit(&once.draft);
    return err;
}

static void every_path_without_memory_is_clean(void **state)
{
    (void)state;
    drafting_seals(3, false);
    drafting_with(1, 4, "r");
    assert_true(outofmem_walk(compose_once, (void *)drafting_base()) > 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_highest_version_with_its_bytes_is_the_start),
        cmocka_unit_test(no_claim_of_one_alone_holds_a_configuration_up),
        cmocka_unit_test(no_result_of_one_alone_holds_a_configuration_up),
        cmocka_unit_test(too_few_seals_say_nothing),
        cmocka_unit_test(a_configuration_never_starts_below_the_one_before),
        cmocka_unit_test(a_sealed_result_of_the_next_version_is_carried),
        cmocka_unit_test(a_result_of_a_wrong_owner_is_not_carried),
        cmocka_unit_test(a_result_that_only_a_witness_holds_was_committed_nowhere),
        cmocka_unit_test(what_was_carried_into_an_unfinished_version_stands),
        cmocka_unit_test(of_two_results_the_one_at_more_voters_stands_and_its_owner_is_named),
        cmocka_unit_test(a_draft_is_safe_when_its_own_voters_hold_it),
        cmocka_unit_test(what_the_only_voter_left_says_another_one_holds),
        cmocka_unit_test(what_is_kept_for_a_draft_is_a_copy),
        cmocka_unit_test(no_start_is_composed_from_what_is_kept),
        cmocka_unit_test(a_witness_is_no_copy),
        cmocka_unit_test(data_is_dealt_from_beyond_what_seals_show),
        cmocka_unit_test(a_voter_accepts_no_dealing_from_below_what_it_applied),
        cmocka_unit_test(no_order_ends_the_run_below_what_the_seals_show),
        cmocka_unit_test(a_voter_accepts_no_dealing_from_beyond_the_run),
        cmocka_unit_test(what_no_order_says_is_not_accepted),
        cmocka_unit_test(what_does_not_fit_waits),
        cmocka_unit_test(what_was_agreed_to_before_takes_no_room),
        cmocka_unit_test(every_path_without_memory_is_clean),
    };
    return cmocka_run_group_tests(tests, NULL, drafting_end);
}
