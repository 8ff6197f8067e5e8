/* SPDX-License-Identifier: Apache-2.0 */
/* config_orders: what an order changes, who may give it, and that a configuration which says more follows nothing. */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <string.h>

#include "common/digest.h"
#include "common/mem.h"
#include "net/config/config_orders.h"
#include "tests/lib/outofmem.h"
#include "tests/lib/sample_configs.h"

/* Five owners and a witness; 0 is the founder, 1 another operator, 5 the witness. */
enum { FOUNDER, OPERATOR, PLAIN, OTHER, LAST_OWNER, WITNESS, NEWCOMER = 40, EPOCH = 9 };

static struct config last, next;

static int begin(void **state)
{
    (void)state;
    last = configs_first(5, true);
    last.members[OPERATOR].operates = true;
    last.epoch = EPOCH;
    next = configs_next(&last);
    return 0;
}

static int end(void **state)
{
    (void)state;
    config_deinit(&last);
    config_deinit(&next);
    return 0;
}

static void again(void)
{
    config_deinit(&next);
    next = configs_next(&last);
}

static struct order order_of(uint32_t kind, uint32_t signer, uint32_t subject)
{
    struct order order = {.kind = kind, .signer = signer, .subject = subject, .number = 1, .epoch = last.epoch};
    order.value = kind == ORDER_STEPS ? 4321 : 0;
    if (kind == ORDER_ADMIT) {
        order.join.word = (struct member_word){.number = 1, .uplink = 5};
        snprintf(order.join.name, sizeof order.join.name, "oslo");
        wire_join_sign(configs_ident(NEWCOMER), last.nonce, &order.join);
    }
    order_sign(configs_ident(signer), last.nonce, &order);
    return order;
}

/* As a proposer does. */
static void carry_out(const struct order *order)
{
    assert_ok(config_order_apply(&last, &next, order));
}

/* Whom an order puts out has no part, whatever assign_roles() makes of the others. */
static void let_go(uint32_t id)
{
    for (uint32_t i = 0; i < next.members_count; i++)
        if (next.members[i].id == id)
            next.members[i].role = CONFIG_AWAY;
}

static void assert_follows(void)
{
    assert_ok(config_orders_follow(&last, &next));
}

/* A configuration with this change in it, and no order or word for it, does not follow. */
#define REFUSED(text, change)                                                                      \
    do {                                                                                           \
        again();                                                                                   \
        change;                                                                                    \
        assert_fails(ERR_PROTO, text, config_orders_follow(&last, &next));                         \
        assert_fails(ERR_PROTO, "what no order or word says", config_orders_follow(&last, &next)); \
    } while (0)

static void orders_do_what_they_say(void **state)
{
    (void)state;
    struct order order = order_of(ORDER_STEPS, OPERATOR, 0);
    assert_follows(); /* nothing was ordered */
    carry_out(&order);
    assert_int_equal(next.steps, 4321);
    assert_int_equal(next.marks[0].id, OPERATOR);
    assert_follows();
    struct order same = order_of(ORDER_STEPS, FOUNDER, 0);
    assert_fails(ERR_STATE, "ends at step 4321 already", config_order_apply(&last, &next, &same));
    assert_int_equal(next.steps_before, 0); /* it had 1000 */
    assert_int_equal(config_steps_most(&next), 4321);
    again();
    order = order_of(ORDER_PAUSE, OPERATOR, 0);
    carry_out(&order);
    assert_true(next.paused);
    assert_follows();
    again();
    order = order_of(ORDER_RESUME, OPERATOR, 0);
    assert_fails(ERR_STATE, "the run is not paused", config_order_apply(&last, &next, &order));
    order = order_of(ORDER_REVOKE, OPERATOR, PLAIN);
    carry_out(&order);
    assert_null(config_member(&next, PLAIN));
    assert_follows();
    again();
    order = order_of(ORDER_EVICT, OPERATOR, PLAIN);
    carry_out(&order);
    assert_fails(ERR_PROTO, "m2 was to be put out", config_orders_follow(&last, &next));
    let_go(PLAIN);
    assert_follows();
    again();
    order = order_of(ORDER_CONTRIBUTOR, OPERATOR, PLAIN);
    carry_out(&order);
    assert_true(config_member(&next, PLAIN)->contributor);
    assert_fails(ERR_PROTO, "slots of m2, who is a contributor", config_orders_follow(&last, &next));
    configs_map(&next, (const uint32_t[]){0, 1, 3, 4}, 4);
    assert_follows();
    again();
    order = order_of(ORDER_ADMIT, OPERATOR, 0);
    carry_out(&order);
    const struct config_member *newcomer = config_member(&next, last.next_id);
    assert_string_equal(newcomer->name, "oslo");
    assert_true(newcomer->role == CONFIG_OBSERVER && newcomer->word == 1 && newcomer->uplink == 5);
    assert_follows();
    again();
    order = order_of(ORDER_GRANT, FOUNDER, PLAIN);
    carry_out(&order);
    assert_true(config_member(&next, PLAIN)->operates);
    assert_follows();
    again();
    order = order_of(ORDER_UNGRANT, FOUNDER, OPERATOR);
    carry_out(&order);
    assert_false(config_member(&next, OPERATOR)->operates);
    assert_follows();
    again();
    order = order_of(ORDER_FOUNDER, FOUNDER, OPERATOR);
    carry_out(&order);
    assert_int_equal(next.founder, OPERATOR);
    assert_follows();
}

/* Several at a time, in any order, and words beside them. */
static void orders_stand_beside_each_other(void **state)
{
    (void)state;
    struct order orders[] = {order_of(ORDER_STEPS, OPERATOR, 0), order_of(ORDER_ADMIT, FOUNDER, 0),
                             order_of(ORDER_REVOKE, OPERATOR, PLAIN)};
    struct member_word word = {.number = 4, .uplink = 77, .address = "o.example:1"};
    orders[2].number = 2;
    order_sign(configs_ident(OPERATOR), last.nonce, &orders[2]);
    for (int k = 2; k >= 0; k--)
        carry_out(&orders[k]);
    member_word_sign(configs_ident(OTHER), last.nonce, OTHER, &word);
    assert_ok(config_word_apply(&last, &next, OTHER, &word));
    assert_int_equal(next.words_count, 1);
    assert_int_equal(next.orders_count, 3);
    assert_int_equal(next.orders[0].signer, FOUNDER);
    configs_map(&next, (const uint32_t[]){0, 1, 3, 4}, 4);
    assert_ok(config_check(&next));
    assert_follows();
    assert_fails(ERR_STATE, "two orders of number 1", config_order_apply(&last, &next, &orders[0]));
}

static struct order steps_of(uint64_t steps)
{
    struct order order = {.kind = ORDER_STEPS, .signer = OPERATOR, .number = 1, .epoch = last.epoch, .value = steps};
    order_sign(configs_ident(OPERATOR), last.nonce, &order);
    return order;
}

/* Results may name any step that the run had before it was made shorter. */
static void the_most_steps_that_a_run_had_are_kept(void **state)
{
    (void)state;
    struct order order = steps_of(400);
    carry_out(&order);
    assert_true(next.steps == 400 && next.steps_before == 1000);
    assert_int_equal(config_steps_most(&next), 1000);
    assert_ok(config_check(&next));
    assert_follows();
    last.steps = 400;
    last.steps_before = 1000;
    again();
    order = steps_of(700);
    carry_out(&order);
    assert_true(next.steps == 700 && next.steps_before == 1000);
    assert_follows();
    next.steps_before = 0; /* results of steps up to 1000 would be refused */
    assert_fails(ERR_PROTO, "steps, a pause or a founder", config_orders_follow(&last, &next));
    again();
    order = steps_of(1000);
    carry_out(&order);
    assert_true(next.steps == 1000 && next.steps_before == 0);
    assert_follows();
    next.steps_before = 999;
    assert_fails(ERR_PROTO, "1000 steps, and 999 before", config_check(&next));
}

/* By what is counted when the order is carried out: its giver may not have known. */
static void no_order_ends_the_run_where_it_has_been(void **state)
{
    (void)state;
    struct order order = steps_of(400);
    next.deal.counted_step = 399;
    carry_out(&order);
    assert_follows();
    next.deal.counted_step = 400;
    assert_fails(ERR_PROTO, "results of steps up to 400 are counted", config_orders_follow(&last, &next));
    again();
    next.deal.counted_step = 400;
    assert_fails(ERR_STATE, "take more than that", config_order_apply(&last, &next, &order));
    assert_true(next.steps == 1000 && next.orders_count == 0);
}

static void what_no_order_says_is_refused(void **state)
{
    (void)state;
    REFUSED("steps, a pause or a founder", next.steps++);
    REFUSED("steps, a pause or a founder", next.steps_before = next.steps + 1);
    REFUSED("steps, a pause or a founder", next.paused = true);
    REFUSED("steps, a pause or a founder", next.founder = OPERATOR);
    REFUSED("steps, a pause or a founder", next.founder = CONFIG_NOBODY);
    REFUSED("another power of m2", next.members[PLAIN].operates = true);
    REFUSED("another power of m1", next.members[OPERATOR].operates = false);
    REFUSED("another power of m2", next.members[PLAIN].contributor = true);
    REFUSED("another word of m2", next.members[PLAIN].uplink++);
    REFUSED("another word of m2", next.members[PLAIN].address[0]++);
    REFUSED("another word of m2", next.members[PLAIN].owner_choice = CONFIG_OWNER_NO);
    REFUSED("another word of m2", next.members[PLAIN].draining = true);
    REFUSED("another word of m2", next.members[PLAIN].word++);
    REFUSED("5 members", next.members_count = 5);
    REFUSED("7 members and next id 7", configs_add(&next, CONFIG_OBSERVER));
    REFUSED("next id 7", next.next_id++);
    REFUSED("a roster with oslo", strcpy(next.members[PLAIN].name, "oslo"));
    REFUSED("a roster with m2", next.members[PLAIN].key[3] ^= 1);
    const struct order order = order_of(ORDER_STEPS, OPERATOR, 0);
    REFUSED("marks of orders", (carry_out(&order), next.marks[0].number++));
    REFUSED("marks of orders", (carry_out(&order), next.marks[0].below++));
    REFUSED("marks of orders", (carry_out(&order), next.marks_count = 0));
    REFUSED("steps, a pause or a founder", (carry_out(&order), next.steps++));
    const struct order admit = order_of(ORDER_ADMIT, OPERATOR, 0);
    REFUSED("another word of oslo", (carry_out(&admit), next.members[6].uplink++));
    REFUSED("another power of oslo", (carry_out(&admit), next.members[6].contributor = true));
    /* What is for the proposer to say is. */
    again();
    next.members[PLAIN].role = CONFIG_AWAY;
    next.members[PLAIN].losses = 1;
    next.members[OTHER].incarnation = 1234;
    assert_follows();
}

static void assert_not_allowed(const char *text, const struct order *order)
{
    assert_fails(ERR_STATE, text, config_order_allowed(&last, order, false));
    again();
    if (config_order_apply(&last, &next, order) != ERR_OK)
        return;
    let_go(order->subject);
    assert_fails(ERR_PROTO, text, config_orders_follow(&last, &next)); /* nor may a configuration carry it out */
}

static void who_is_no_operator_orders_nothing(void **state)
{
    (void)state;
    for (uint32_t kind = ORDER_ADMIT; kind < ORDER_KINDS; kind++) {
        struct order order = order_of(kind, PLAIN, order_about_member(kind) ? OTHER : 0);
        bool approvable = kind == ORDER_GRANT || kind == ORDER_UNGRANT || kind == ORDER_FOUNDER;
        if (kind == ORDER_VOID)
            continue;
        assert_not_allowed(approvable ? "approval of 0 of 6 voters, and takes 4" : "m2 is no operator", &order);
    }
    struct order order = order_of(ORDER_STEPS, PLAIN, 0);
    order.signer = OPERATOR; /* signed by another one */
    assert_not_allowed("the signature is not of m1", &order);
    order = order_of(ORDER_STEPS, OPERATOR, 0);
    order.value++;
    assert_not_allowed("the signature is not of m1", &order);
    order = order_of(ORDER_STEPS, OPERATOR, 0);
    order_sign(configs_ident(OPERATOR), (const uint8_t[WIRE_NONCE_BYTES]){1}, &order); /* of another run */
    assert_not_allowed("the signature is not of m1", &order);
    order = order_of(ORDER_STEPS, NEWCOMER, 0);
    assert_not_allowed("its signer, id 40, is not on the roster", &order);
}

static void an_order_is_of_its_epoch(void **state)
{
    (void)state;
    for (int later = -1; later <= 1; later += 2) {
        struct order order = order_of(ORDER_REVOKE, OPERATOR, PLAIN);
        order.epoch = (uint64_t)(EPOCH + later);
        order_sign(configs_ident(OPERATOR), last.nonce, &order);
        assert_not_allowed(later < 0 ? "was signed in epoch 8, and this is epoch 9"
                                     : "was signed in epoch 10, and this is epoch 9",
                           &order);
    }
}

/* By the newcomer itself: nobody enrols a key that is not there. */
/* What is gathered for a configuration is of members of the one before. */
static void about_whom_it_admits_a_configuration_has_no_other_order(void **state)
{
    (void)state;
    static const uint32_t kinds[] = {ORDER_EVICT, ORDER_REVOKE, ORDER_CONTRIBUTOR, ORDER_GRANT};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        again();
        struct order order = order_of(ORDER_ADMIT, FOUNDER, 0);
        carry_out(&order);
        order = order_of(kinds[k], FOUNDER, last.next_id);
        order.number = 2;
        order_sign(configs_ident(FOUNDER), last.nonce, &order);
        assert_fails(ERR_STATE, "is not on the roster", config_order_apply(&last, &next, &order));
        assert_follows();
    }
}

static void a_newcomer_has_signed_that_it_comes(void **state)
{
    (void)state;
    struct order order = order_of(ORDER_ADMIT, OPERATOR, 0);
    memcpy(order.join.key, configs_ident(NEWCOMER + 1)->key, IDENT_KEY_BYTES);
    order_sign(configs_ident(OPERATOR), last.nonce, &order);
    assert_fails(ERR_STATE, "oslo did not sign that it comes", config_order_apply(&last, &next, &order));
    order = order_of(ORDER_ADMIT, OPERATOR, 0);
    order.join.word.uplink++;
    order_sign(configs_ident(OPERATOR), last.nonce, &order);
    assert_fails(ERR_STATE, "oslo did not sign that it comes", config_order_apply(&last, &next, &order));
    order = order_of(ORDER_ADMIT, OPERATOR, 0);
    order.join.witness = true;
    wire_join_sign(configs_ident(NEWCOMER), last.nonce, &order.join);
    order_sign(configs_ident(OPERATOR), last.nonce, &order);
    assert_fails(ERR_STATE, "m5 is the run's witness already", config_order_apply(&last, &next, &order));
}

/* ---- what takes the founder, or a majority ---- */

static void approve(struct order *order, uint32_t id)
{
    assert_ok(order_approve(configs_ident(id), last.nonce, id, order));
}

static void of_operators_the_founder_or_a_majority_disposes(void **state)
{
    (void)state;
    static const struct {
        uint32_t kind, subject;
    } rows[] = {{ORDER_GRANT, PLAIN},   {ORDER_UNGRANT, FOUNDER}, {ORDER_FOUNDER, OPERATOR},
                {ORDER_EVICT, FOUNDER}, {ORDER_REVOKE, FOUNDER},  {ORDER_CONTRIBUTOR, FOUNDER}};
    uint32_t contributor = configs_add(&last, CONFIG_CONTRIBUTOR)->id;
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        struct order order = order_of(rows[k].kind, OPERATOR, rows[k].subject);
        assert_true(config_order_takes_approval(&last, &order));
        assert_ok(config_order_allowed(&last, &order, true)); /* it may wait for them */
        assert_not_allowed("approval of 0 of 6 voters, and takes 4", &order);
        approve(&order, OPERATOR);
        approve(&order, OPERATOR); /* twice the same */
        approve(&order, PLAIN);
        approve(&order, WITNESS);
        assert_not_allowed("approval of 3 of 6 voters, and takes 4", &order);
        struct order false_one = order;
        assert_true(order_add_approval(&false_one, &(struct order_approval){.id = OTHER}));
        assert_not_allowed("approval of 3 of 6 voters, and takes 4", &false_one);
        false_one = order;
        approve(&false_one, contributor); /* which does not vote */
        assert_not_allowed("approval of 3 of 6 voters, and takes 4", &false_one);
        approve(&order, OTHER);
        assert_ok(config_order_allowed(&last, &order, false));
        again();
        carry_out(&order);
        let_go(rows[k].subject);
        if (rows[k].kind == ORDER_CONTRIBUTOR)
            configs_map(&next, (const uint32_t[]){1, 2, 3, 4}, 4);
        assert_follows();
    }
    struct order own = order_of(ORDER_EVICT, OPERATOR, OPERATOR);
    assert_false(config_order_takes_approval(&last, &own));
    struct order founder = order_of(ORDER_REVOKE, FOUNDER, OPERATOR);
    assert_false(config_order_takes_approval(&last, &founder));
}

/* People take days, in which epochs pass. */
static void what_gathers_approvals_lives_for_many_epochs(void **state)
{
    (void)state;
    struct order order = order_of(ORDER_GRANT, OPERATOR, PLAIN);
    for (uint32_t id = 0; id < 4; id++)
        approve(&order, id);
    last.epoch = EPOCH + CONFIG_ORDER_EPOCHS - 1;
    assert_ok(config_order_allowed(&last, &order, false));
    last.epoch++;
    assert_not_allowed("was signed in epoch 9, and this is epoch 73", &order);
}

/* ---- withdrawn ---- */

static struct order void_of(const struct order *order)
{
    struct order out = {.kind = ORDER_VOID, .signer = order->signer, .number = order->number, .epoch = order->epoch};
    out.value = config_order_takes_approval(&last, order);
    order_sign(configs_ident(order->signer), last.nonce, &out);
    return out;
}

static void what_is_withdrawn_is_carried_out_never(void **state)
{
    (void)state;
    struct order order = order_of(ORDER_STEPS, OPERATOR, 0), withdrawal = void_of(&order);
    uint64_t steps = last.steps;
    assert_ok(config_order_allowed(&last, &withdrawal, false));
    carry_out(&withdrawal);
    assert_int_equal(next.steps, steps);
    assert_true(next.marks_count == 1 && next.marks[0].number == order.number);
    assert_fails(ERR_STATE, "two orders of number 1", config_order_apply(&last, &next, &order));
    assert_follows();
    next.epoch = order.epoch; /* as if it were good for longer */
    assert_fails(ERR_STATE, "order 1 of m1 was carried out, or withdrawn", config_order_allowed(&next, &order, true));
    struct order of_another = void_of(&order); /* nobody withdraws another's */
    of_another.signer = FOUNDER;
    assert_not_allowed("the signature is not of m0", &of_another);
    of_another = order_of(ORDER_VOID, PLAIN, 0); /* who votes may have given one that takes approvals */
    assert_ok(config_order_allowed(&last, &of_another, false));
    uint32_t contributor = configs_add(&last, CONFIG_CONTRIBUTOR)->id;
    of_another = order_of(ORDER_VOID, contributor, 0);
    assert_not_allowed("m6 is no operator", &of_another);
}

/* As long as what it withdraws. */
static void a_void_lives_as_long_as_its_order(void **state)
{
    (void)state;
    struct order grant = order_of(ORDER_GRANT, OPERATOR, PLAIN), steps = order_of(ORDER_STEPS, OPERATOR, 0);
    struct order lasts = void_of(&grant), ends = void_of(&steps);
    assert_int_equal(lasts.value, 1);
    last.epoch = EPOCH + CONFIG_ORDER_EPOCHS - 1;
    assert_ok(config_order_allowed(&last, &lasts, false));
    assert_not_allowed("was signed in epoch 9", &ends);
    last.epoch++;
    assert_not_allowed("was signed in epoch 9", &lasts);
}

/* ---- once ---- */

static void a_number_counts_once(void **state)
{
    (void)state;
    static const uint64_t numbers[] = {5, 3, 9, 8, 72, 73, 200};
    for (size_t k = 0; k < sizeof numbers / sizeof numbers[0]; k++) {
        struct order order = order_of(ORDER_STEPS, OPERATOR, 0);
        order.number = numbers[k];
        order.epoch = last.epoch;
        order.value = 100 + k;
        order_sign(configs_ident(OPERATOR), last.nonce, &order);
        assert_ok(config_order_allowed(&last, &order, false));
        carry_out(&order);
        assert_follows();
        next.previous = last.previous;
        config_deinit(&last);
        assert_ok(config_copy(&next, &last));
        again();
        order.epoch = last.epoch; /* signed anew, and told again */
        order_sign(configs_ident(OPERATOR), last.nonce, &order);
        assert_not_allowed("of m1 was carried out", &order);
        again();
        for (size_t j = 0; j <= k; j++)
            assert_true(config_order_done(&last, &(struct order){.signer = OPERATOR, .number = numbers[j]}));
    }
    for (uint64_t number = 1; number <= 201; number++) {
        struct order order = {.signer = OPERATOR, .number = number};
        bool done = number == 200 || number < 200 - 64; /* further back nobody can tell */
        assert_int_equal(config_order_done(&last, &order), done);
        order.signer = FOUNDER;
        assert_false(config_order_done(&last, &order));
    }
}

/* ---- words ---- */

static void a_word_is_new_and_its_own(void **state)
{
    (void)state;
    last.members[PLAIN].word = 6;
    again();
    struct member_word word = {.number = 7, .uplink = 77, .draining = true};
    for (int k = 0; k < 6; k++) {
        struct member_word said = word;
        said.number -= k == 1;
        /* One that it said as the member of an earlier id of its, or when it came, is of no use any more. */
        member_word_sign(configs_ident(k == 2 ? OTHER : PLAIN), last.nonce, k == 0 ? MEMBER_WORD_NEWCOMER : PLAIN,
                         &said);
        said.uplink += k == 3;
        assert_ok(config_word_apply(&last, &next, k == 4 ? NEWCOMER : PLAIN, &said));
        assert_int_equal(next.words_count, k == 5);
    }
    assert_true(next.members[PLAIN].draining && next.members[PLAIN].word == 7);
    assert_follows();
    next.words[0].signature[3] ^= 1;
    assert_fails(ERR_PROTO, "a word of m2 that is not its own", config_orders_follow(&last, &next));
    next.words_count = 0;
    assert_fails(ERR_PROTO, "another word of m2", config_orders_follow(&last, &next));
}

/* So that one of a lower number, by which it said something else in between, counts no more. */
static void a_word_that_says_the_same_counts(void **state)
{
    (void)state;
    last.members[PLAIN].word = 6;
    again();
    struct member_word word = {.number = 8, .uplink = last.members[PLAIN].uplink};
    memcpy(word.address, last.members[PLAIN].address, sizeof word.address);
    member_word_sign(configs_ident(PLAIN), last.nonce, PLAIN, &word);
    assert_ok(config_word_apply(&last, &next, PLAIN, &word));
    assert_int_equal(next.members[PLAIN].word, 8);
    assert_follows();
    config_deinit(&last);
    last = next;
    next = (struct config){0};
    again();
    word = (struct member_word){.number = 7, .uplink = 77, .draining = true}; /* overheard in between */
    member_word_sign(configs_ident(PLAIN), last.nonce, PLAIN, &word);
    assert_ok(config_word_apply(&last, &next, PLAIN, &word));
    assert_int_equal(next.words_count, 0);
}

static enum err follow(void *context)
{
    (void)context;
    return config_orders_follow(&last, &next);
}

static void every_path_without_memory_is_clean(void **state)
{
    (void)state;
    struct order admit = order_of(ORDER_ADMIT, OPERATOR, 0), revoke = order_of(ORDER_REVOKE, FOUNDER, PLAIN);
    carry_out(&admit);
    carry_out(&revoke);
    outofmem_walk(follow, NULL);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        CASE(orders_do_what_they_say),
        CASE(orders_stand_beside_each_other),
        CASE(the_most_steps_that_a_run_had_are_kept),
        CASE(no_order_ends_the_run_where_it_has_been),
        CASE(what_no_order_says_is_refused),
        CASE(who_is_no_operator_orders_nothing),
        CASE(an_order_is_of_its_epoch),
        CASE(about_whom_it_admits_a_configuration_has_no_other_order),
        CASE(a_newcomer_has_signed_that_it_comes),
        CASE(of_operators_the_founder_or_a_majority_disposes),
        CASE(what_gathers_approvals_lives_for_many_epochs),
        CASE(what_is_withdrawn_is_carried_out_never),
        CASE(a_void_lives_as_long_as_its_order),
        CASE(a_number_counts_once),
        CASE(a_word_is_new_and_its_own),
        CASE(a_word_that_says_the_same_counts),
        CASE(every_path_without_memory_is_clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
