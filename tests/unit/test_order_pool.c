/* SPDX-License-Identifier: Apache-2.0 */
/* order_pool: which orders wait, how long, and which of them may be carried out. */
#include "tests/lib/testlib.h"

#include <string.h>

#include "common/digest.h"
#include "common/mem.h"
#include "net/membership/order_pool.h"
#include "net/membership/refused_orders.h"
#include "tests/lib/sample_configs.h"

/* Three owners: 0 is the founder, 1 another operator. We are 1 unless said otherwise. */
enum { FOUNDER, SELF, PLAIN, FROM = 2, EPOCH = 9, MINUTE_MS = 60000, DAY_MS = 24 * 60 * MINUTE_MS };

static struct config last;
static struct order_pool *pool;
static char ended[200];
static unsigned ended_count;
static uint64_t given; /* highest number, as the disk has it */
static bool disk_full;

static enum err number(void *user, uint64_t least, uint64_t *out)
{
    assert_ptr_equal(user, &given);
    if (disk_full)
        return err_set(ERR_NOSPACE, "the disk is full");
    given = *out = given + 1 > least ? given + 1 : least;
    return ERR_OK;
}

static int begin(void **state)
{
    (void)state;
    last = configs_first(3, false);
    last.members[SELF].operates = true;
    last.epoch = EPOCH;
    assert_ok(order_pool_new(&(struct order_pool_conf){.number = number, .user = &given}, &pool));
    ended_count = 0;
    given = 0;
    disk_full = false;
    return 0;
}

static int end(void **state)
{
    (void)state;
    order_pool_free(pool);
    config_deinit(&last);
    return 0;
}

static const struct waiting_order *nth(uint32_t n)
{
    uint32_t at = n;
    return order_pool_next(pool, &at);
}

static void tell_ended(void *user, const struct order *order, const char *why)
{
    assert_null(user);
    (void)order;
    snprintf(ended, sizeof ended, "%s", why);
    ended_count++;
}

static void tick(bool majority, uint64_t now_ms)
{
    order_pool_tick(pool, configs_ident(SELF), &last, majority, now_ms, tell_ended, NULL);
}

static enum err give(uint32_t kind, uint32_t subject, uint64_t value, uint64_t now_ms, uint64_t *number)
{
    const struct order what = {.kind = kind, .subject = subject, .value = value};
    return order_pool_give(pool, configs_ident(SELF), &last, SELF, &what, now_ms, number);
}

static struct order of_another(uint32_t signer, uint32_t kind, uint32_t subject, uint64_t number)
{
    struct order order = {.kind = kind, .signer = signer, .subject = subject, .number = number, .epoch = last.epoch};
    order.value = kind == ORDER_STEPS ? number : 0;
    order_sign(configs_ident(signer), last.nonce, &order);
    return order;
}

static uint32_t allowed_at(uint64_t now_ms)
{
    const struct order *out[CONFIG_ORDERS_MAX];
    uint32_t count;
    assert_ok(order_pool_allowed(pool, &last, true, now_ms, out, &count));
    return count;
}

static uint32_t allowed(void)
{
    return allowed_at(0);
}

static void new_epoch(void)
{
    struct config next = configs_next(&last);
    config_deinit(&last);
    last = next;
    order_pool_begin(pool, configs_ident(SELF), NULL, &last, 0);
}

/* Of ours, and of another's, which comes again signed anew: as often as it might have been carried out. */
static void what_configurations_leave_out_is_counted(void **state)
{
    (void)state;
    bool news;
    for (int ours = 0; ours < 2; ours++) {
        for (uint32_t times = 0; times < 5; times++) {
            struct order theirs = of_another(FOUNDER, ORDER_STEPS, 0, 50);
            if (!ours)
                assert_ok(order_pool_take(pool, &last, FOUNDER, &theirs, 1000, &news));
            else if (times == 0)
                assert_ok(give(ORDER_STEPS, 0, 60, 1000, NULL));
            assert_int_equal(order_pool_left_out(pool), 0);
            tick(true, 1000);
            assert_int_equal(order_pool_left_out(pool), times < 4 ? times : 0);
            new_epoch();
            for (int k = 0; times == 3 && k < 3; k++) /* it was not due in these: nobody had looked */
                new_epoch();
        }
    }
    tick(true, 1000);
    assert_int_equal(order_pool_left_out(pool), 1);
    struct config_mark mark = {.id = SELF, .number = 1};
    last.marks = &mark;
    last.marks_count = 1;
    order_pool_begin(pool, configs_ident(SELF), NULL, &last, 0); /* carried out */
    last.marks = NULL;
    last.marks_count = 0;
    assert_int_equal(order_pool_left_out(pool), 0);
    assert_ok(give(ORDER_STEPS, 0, 70, 1000, NULL));
    tick(true, 1000);
    assert_int_equal(order_pool_left_out(pool), 0); /* another one */
}

static void what_is_given_has_a_number_and_is_told(void **state)
{
    (void)state;
    uint64_t number;
    assert_ok(give(ORDER_STEPS, 0, 50, 1000, &number));
    assert_int_equal(number, 1);
    assert_ok(give(ORDER_REVOKE, PLAIN, 0, 1000, &number));
    assert_int_equal(number, 2);
    assert_ok(give(ORDER_STEPS, 0, 50, 2000, &number)); /* the same waits */
    assert_int_equal(number, 1);
    assert_int_equal(allowed(), 2);
    assert_true(allowed() > 0);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(order_pool_to_tell(pool, 5000 + 1000 * (uint64_t)round)->number, 1);
        assert_int_equal(order_pool_to_tell(pool, 5000 + 1000 * (uint64_t)round)->number, 2);
        assert_null(order_pool_to_tell(pool, 5999 + 1000 * (uint64_t)round));
    }
    struct config_mark mark = {.id = SELF, .number = 70};
    last.marks = &mark;
    last.marks_count = 1;
    assert_ok(give(ORDER_STEPS, 0, 51, 1000, &number)); /* above those that a configuration has carried out */
    assert_int_equal(number, 71);
    last.marks = NULL;
    last.marks_count = 0;
    assert_ok(order_pool_withdraw(pool, configs_ident(SELF), &last, SELF, 71));
    assert_fails(ERR_NOTFOUND, "no order 71", order_pool_withdraw(pool, configs_ident(SELF), &last, SELF, 71));
    assert_ok(give(ORDER_STEPS, 0, 52, 1000, &number)); /* others may have 71 still */
    assert_int_equal(number, 72);
}

static void what_makes_no_sense_is_told_at_once(void **state)
{
    (void)state;
    assert_fails(ERR_STATE, "m0 is the founder already", give(ORDER_FOUNDER, FOUNDER, 0, 0, NULL));
    assert_fails(ERR_STATE, "id 77 is not on the roster", give(ORDER_REVOKE, 77, 0, 0, NULL));
    assert_fails(ERR_STATE, "the run is not paused", give(ORDER_RESUME, 0, 0, 0, NULL));
    assert_fails(ERR_PROTO, "with value 0", give(ORDER_STEPS, 0, 0, 0, NULL));
    last.members[SELF].operates = false;
    assert_fails(ERR_STATE, "m1 is no operator", give(ORDER_STEPS, 0, 5, 0, NULL));
    assert_null(nth(0));
}

static void what_another_may_not_order_is_refused(void **state)
{
    (void)state;
    bool news;
    struct order order = of_another(PLAIN, ORDER_STEPS, 0, 7);
    assert_fails(ERR_PROTO, "m2 is no operator", order_pool_take(pool, &last, FROM, &order, 0, &news));
    order = of_another(FOUNDER, ORDER_STEPS, 0, 7);
    order.value++;
    assert_fails(ERR_PROTO, "the signature is not of m0", order_pool_take(pool, &last, FROM, &order, 0, &news));
    order = of_another(FOUNDER, ORDER_STEPS, 0, 7);
    order.epoch--;
    order_sign(configs_ident(FOUNDER), last.nonce, &order);
    assert_fails(ERR_STATE, "signed in epoch 8", order_pool_take(pool, &last, FROM, &order, 0, &news));
    order = of_another(FOUNDER, ORDER_STEPS, 0, 7);
    assert_ok(order_pool_take(pool, &last, FROM, &order, 0, &news));
    assert_true(news);
    assert_ok(order_pool_take(pool, &last, FROM, &order, 0, &news));
    assert_false(news);
    assert_int_equal(allowed(), 1);
    assert_null(order_pool_to_tell(pool, 99999)); /* its signer tells it */
    struct order ours = of_another(SELF, ORDER_STEPS, 0, 1);
    assert_ok(give(ORDER_PAUSE, 0, 0, 0, NULL));
    assert_fails(ERR_STATE, "the number of one of ours", order_pool_take(pool, &last, FROM, &ours, 0, &news));
}

static void nobody_fills_it_alone(void **state)
{
    (void)state;
    bool news;
    for (uint64_t number = 1; number <= ORDER_POOL_OF_ONE; number++) {
        struct order order = of_another(FOUNDER, ORDER_STEPS, 0, number);
        assert_ok(order_pool_take(pool, &last, FROM, &order, 0, &news));
    }
    struct order more = of_another(FOUNDER, ORDER_STEPS, 0, 999);
    assert_fails(ERR_AGAIN, "20 orders of m0 wait", order_pool_take(pool, &last, FROM, &more, 0, &news));
    for (uint64_t number = 1; number <= ORDER_POOL_APPROVED_OF_ONE; number++) { /* of one that is no operator */
        struct order order = of_another(PLAIN, ORDER_GRANT, PLAIN, number);
        assert_ok(order_pool_take(pool, &last, FROM, &order, 0, &news));
    }
    more = of_another(PLAIN, ORDER_GRANT, PLAIN, 999);
    assert_fails(ERR_AGAIN, "2 orders of m2 wait", order_pool_take(pool, &last, FROM, &more, 0, &news));
    assert_ok(give(ORDER_PAUSE, 0, 0, 0, NULL));
}

/* What waits is the void of this order. */
static void assert_void(const struct waiting_order *waiting, uint64_t number)
{
    assert_non_null(waiting);
    assert_int_equal(waiting->order.kind, ORDER_VOID);
    assert_int_equal(waiting->order.number, number);
    assert_ok(config_order_allowed(&last, &waiting->order, false));
}

static void ours_ends_after_ten_minutes_or_without_a_majority(void **state)
{
    (void)state;
    assert_ok(give(ORDER_REVOKE, PLAIN, 0, 1000, NULL));
    assert_ok(give(ORDER_REVOKE, PLAIN, 0, 2000, NULL)); /* asked for again: another ten minutes */
    tick(true, 2000 + 10 * MINUTE_MS);
    assert_int_equal(nth(0)->order.kind, ORDER_REVOKE);
    tick(true, 2001 + 10 * MINUTE_MS);
    assert_void(nth(0), 1);
    assert_string_equal(ended, "it was not decided within ten minutes");
    assert_ok(give(ORDER_REVOKE, PLAIN, 0, 1000, NULL));
    tick(false, 1001); /* cut off: what a minority asks is not done when it is back */
    assert_void(nth(1), 2);
    assert_string_equal(ended, "no majority of the voters is heard");
    tick(false, 1001 + 100ull * DAY_MS);
    assert_int_equal(ended_count, 2);
    assert_int_equal(order_pool_to_tell(pool, 5000)->number, 1); /* whoever heard the order hears this */
    new_epoch();                                                 /* in which the orders mean nothing */
    assert_null(nth(0));
}

static void a_guest_s_ends_when_it_is_asked_no_more(void **state)
{
    (void)state;
    struct order what = {.kind = ORDER_ADMIT, .join = {.name = "oslo", .word = {.number = 1, .uplink = 5}}};
    what.join.invitation = digest_of("one", 3);
    wire_join_sign(configs_ident(50), last.nonce, &what.join);
    for (uint64_t now_ms = 1000; now_ms <= 21000; now_ms += 5000) {
        assert_ok(order_pool_give(pool, configs_ident(SELF), &last, SELF, &what, now_ms, NULL));
        tick(true, now_ms + ORDER_POOL_JOIN_MS);
        assert_int_equal(nth(0)->order.kind, ORDER_ADMIT);
        assert_null(nth(1));
    }
    tick(true, 21001 + ORDER_POOL_JOIN_MS);
    assert_void(nth(0), 1);
    /* Or when the invitation is taken back. */
    assert_ok(order_pool_give(pool, configs_ident(SELF), &last, SELF, &what, 1000, NULL));
    struct digest other = digest_of("two", 3);
    order_pool_shut_out(pool, configs_ident(SELF), &last, &other);
    assert_int_equal(nth(1)->order.kind, ORDER_ADMIT);
    order_pool_shut_out(pool, configs_ident(SELF), &last, &what.join.invitation);
    assert_void(nth(1), 2);
}

/* Another operator was faster. */
static void what_would_change_nothing_any_more_ends(void **state)
{
    (void)state;
    assert_ok(give(ORDER_STEPS, 0, 50, 1000, NULL));
    last.steps = 50;
    new_epoch();
    assert_int_equal(allowed(), 0);
    assert_null(order_pool_to_tell(pool, 5000));
    tick(true, 1001);
    assert_string_equal(ended, "the run is that long already, or results name that step");
    assert_null(nth(0)); /* it was signed in an epoch before */
    last.founder = CONFIG_NOBODY;
    assert_ok(give(ORDER_GRANT, PLAIN, 0, 1000, NULL));
    last.members[PLAIN].operates = true;
    new_epoch();
    tick(true, 1001);
    assert_int_equal(ended_count, 2);
    assert_void(nth(0), 2); /* which is good for many epochs */
}

/* ---- withdrawn ---- */

/* Whoever has overheard an order repeats it: where its void was heard that is of no use. */
static void a_void_keeps_its_order_out(void **state)
{
    (void)state;
    bool news;
    uint64_t number;
    struct order order = of_another(FOUNDER, ORDER_STEPS, 0, 7), withdrawal = of_another(FOUNDER, ORDER_VOID, 0, 7);
    assert_ok(order_pool_take(pool, &last, FROM, &order, 1000, &news));
    assert_ok(order_pool_take(pool, &last, FROM, &withdrawal, 1000, &news));
    assert_true(news);
    for (int round = 0; round < 2; round++) {
        assert_void(nth(0), 7);
        assert_null(nth(1));
        assert_fails(ERR_STATE, "order 7 of m0 was withdrawn", order_pool_take(pool, &last, FROM, &order, 2000, &news));
        tick(true, 100ull * DAY_MS); /* though nobody repeats it */
    }
    assert_int_equal(allowed(), 1); /* the void: with it that number is done */
    struct config_mark mark = {.id = FOUNDER, .number = 7};
    last.marks = &mark;
    last.marks_count = 1;
    order_pool_begin(pool, configs_ident(SELF), NULL, &last, 0);
    assert_null(nth(0));
    last.marks = NULL;
    last.marks_count = 0;
    assert_ok(give(ORDER_REVOKE, PLAIN, 0, 1000, &number));
    order = nth(0)->order;
    assert_ok(order_pool_withdraw(pool, configs_ident(SELF), &last, SELF, number));
    assert_void(nth(0), number);
    assert_fails(ERR_STATE, "was withdrawn", order_pool_take(pool, &last, FROM, &order, 2000, &news));
    assert_fails(ERR_NOTFOUND, "waits here", order_pool_approve(pool, configs_ident(SELF), &last, SELF, SELF, number));
    assert_int_equal(order_pool_to_tell(pool, 5000)->kind, ORDER_VOID);
}

/* Those who approved it repeat it, for seven days: they hear that it is void, however full the signer's room is. */
static void what_was_approved_is_withdrawn_for_as_long_as_it_could_live(void **state)
{
    (void)state;
    bool news;
    uint64_t number;
    last.founder = CONFIG_NOBODY;
    struct order grant = of_another(PLAIN, ORDER_GRANT, PLAIN, 3), withdrawal = of_another(PLAIN, ORDER_VOID, 0, 3);
    const struct order *out[CONFIG_ORDERS_MAX];
    uint32_t count;
    withdrawal.value = 1;
    order_sign(configs_ident(PLAIN), last.nonce, &withdrawal);
    assert_ok(order_pool_take(pool, &last, FROM, &grant, 1000, &news));
    assert_ok(order_pool_approve(pool, configs_ident(SELF), &last, SELF, PLAIN, 3));
    for (uint64_t other = 100; other < 100 + ORDER_POOL_OF_ONE; other++) {
        struct order more = of_another(PLAIN, ORDER_VOID, 0, other);
        assert_ok(order_pool_take(pool, &last, FROM, &more, 1000, &news));
    }
    assert_ok(order_pool_take(pool, &last, FROM, &withdrawal, 1000, &news));
    assert_null(order_pool_to_tell(pool, 99999)); /* its signer tells it */
    assert_ok(order_pool_allowed(pool, &last, false, 0, out, &count));
    assert_int_equal(count, 0); /* of one that is no operator it is no reason for a configuration */
    new_epoch();
    assert_void(nth(0), 3);
    assert_null(nth(1));
    assert_ok(give(ORDER_GRANT, PLAIN, 0, 1000, &number));
    assert_ok(order_pool_withdraw(pool, configs_ident(SELF), &last, SELF, number));
    uint64_t epoch = last.epoch;
    new_epoch();
    assert_void(nth(0), number); /* nor is it signed anew */
    assert_int_equal(nth(0)->order.epoch, epoch);
    last.epoch = epoch + CONFIG_ORDER_EPOCHS;
    order_pool_begin(pool, configs_ident(SELF), NULL, &last, 0);
    assert_null(nth(0));
}

/* Those who approved an order of ours tell it us after a restart. */
static void what_was_given_before_a_restart_is_withdrawn(void **state)
{
    (void)state;
    bool news;
    last.founder = CONFIG_NOBODY;
    struct order grant = of_another(SELF, ORDER_GRANT, PLAIN, 3);
    assert_ok(order_pool_take(pool, &last, FROM, &grant, 1000, &news));
    assert_ok(order_pool_withdraw(pool, configs_ident(SELF), &last, SELF, 3));
    assert_void(nth(0), 3);
    assert_int_equal(order_pool_to_tell(pool, 5000)->number, 3);
}

static void what_cannot_be_numbered_is_not_given(void **state)
{
    (void)state;
    disk_full = true;
    assert_fails(ERR_NOSPACE, "the disk is full", give(ORDER_STEPS, 0, 50, 1000, NULL));
    assert_null(nth(0));
}

/* ---- many ---- */

static const struct order *chosen(uint32_t n)
{
    const struct order *out[CONFIG_ORDERS_MAX];
    uint32_t count;
    assert_ok(order_pool_allowed(pool, &last, true, 0, out, &count));
    return n < count ? out[n] : NULL;
}

/* Ten operators; those of low ids give all that they can. */
static void everyone_has_its_share_of_a_configuration(void **state)
{
    (void)state;
    bool news;
    uint32_t of_last = 0;
    for (uint32_t i = 0; i < 7; i++)
        configs_add(&last, CONFIG_OBSERVER)->operates = true;
    last.members[PLAIN].operates = true;
    for (uint32_t signer = 2; signer < 10; signer++)
        for (uint64_t number = 1; number <= (signer < 9 ? ORDER_POOL_OF_ONE : 2); number++) {
            struct order order = of_another(signer, ORDER_STEPS, 0, number);
            order.value = 1000 * signer + number;
            order_sign(configs_ident(signer), last.nonce, &order);
            assert_ok(order_pool_take(pool, &last, signer, &order, 1000, &news));
        }
    assert_int_equal(allowed(), CONFIG_ORDERS_MAX);
    for (uint32_t n = 0; n < CONFIG_ORDERS_MAX; n++)
        of_last += chosen(n)->signer == 9;
    assert_int_equal(of_last, 2);
    /* And of the room, too: who has most makes way. */
    for (uint64_t number = 0; number < 50; number++) {
        struct order order = of_another(FOUNDER, ORDER_STEPS, 0, 1 + number);
        order.value = 77777 + number;
        order_sign(configs_ident(FOUNDER), last.nonce, &order);
        assert_int_equal(order_pool_take(pool, &last, FOUNDER, &order, 1000, &news),
                         number < ORDER_POOL_OF_ONE ? ERR_OK : ERR_AGAIN);
    }
    for (uint32_t i = 0; i < 3; i++)
        configs_add(&last, CONFIG_OBSERVER)->operates = true;
    for (uint32_t signer = 10; signer < 13; signer++)
        for (uint64_t number = 1; number <= ORDER_POOL_OF_ONE; number++) {
            struct order order = of_another(signer, ORDER_STEPS, 0, number);
            order.value = 1000 * signer + number;
            order_sign(configs_ident(signer), last.nonce, &order);
            enum err err = order_pool_take(pool, &last, signer, &order, 1000, &news);
            assert_true(err == ERR_OK || (err == ERR_AGAIN && number > 10));
        }
}

/* Whoever sends much that cannot be done takes nobody's place. */
static void what_would_fail_takes_no_place(void **state)
{
    (void)state;
    bool news;
    struct order pause = of_another(FOUNDER, ORDER_PAUSE, 0, 1), resume = of_another(FOUNDER, ORDER_RESUME, 0, 2);
    assert_fails(ERR_STATE, "the run is not paused", order_pool_take(pool, &last, FROM, &resume, 0, &news));
    assert_null(nth(0));
    assert_ok(order_pool_take(pool, &last, FROM, &pause, 0, &news));
    struct order again = of_another(SELF, ORDER_PAUSE, 0, 1);
    assert_ok(order_pool_take(pool, &last, FROM, &again, 0, &news));
    assert_int_equal(allowed(), 1); /* beside the first one it changes nothing */
}

/* ---- what it costs ---- */

static struct order of_epoch(uint32_t signer, uint64_t number, uint64_t epoch)
{
    struct order order = of_another(signer, ORDER_STEPS, 0, number);
    order.epoch = epoch;
    order_sign(configs_ident(signer), last.nonce, &order);
    return order;
}

/* PLAIN was an operator in the epoch before this one, and another island is not. */
static void who_might_order_it_in_its_own_epoch_is_not_blamed(void **state)
{
    (void)state;
    static const struct digest digest = {{1}};
    struct config_log *config_log;
    struct config before;
    bool news;
    order_pool_free(pool);
    assert_ok(config_log_new(&config_log));
    assert_ok(config_copy(&last, &before));
    before.members[PLAIN].operates = true;
    assert_ok(config_log_add(config_log, &before, &digest));
    assert_ok(
        order_pool_new(&(struct order_pool_conf){.number = number, .user = &given, .config_log = config_log}, &pool));
    last.epoch++;
    struct order order = of_epoch(PLAIN, 7, EPOCH);
    assert_fails(ERR_STATE, "m2 is no operator", order_pool_take(pool, &last, FROM, &order, 0, &news));
    order.value++;
    assert_fails(ERR_PROTO, "the signature is not of m2", order_pool_take(pool, &last, FROM, &order, 0, &news));
    order = of_epoch(PLAIN, 7, EPOCH + 1);
    assert_fails(ERR_PROTO, "m2 is no operator", order_pool_take(pool, &last, FROM, &order, 0, &news));
    order_pool_free(pool);
    config_log_free(config_log);
    assert_ok(order_pool_new(&(struct order_pool_conf){.number = number, .user = &given}, &pool));
}

/* Another epoch is no excuse. */
static void who_may_order_nothing_is_blamed_in_any_epoch(void **state)
{
    (void)state;
    bool news;
    struct order order = of_epoch(PLAIN, 7, EPOCH - 1);
    assert_fails(ERR_PROTO, "m2 is no operator", order_pool_take(pool, &last, FROM, &order, 0, &news));
    order = of_epoch(77, 7, EPOCH - 1);
    assert_fails(ERR_PROTO, "id 77, is not on the roster", order_pool_take(pool, &last, FROM, &order, 0, &news));
    order = of_epoch(FOUNDER, 7, EPOCH - 1);
    assert_fails(ERR_STATE, "signed in epoch 8", order_pool_take(pool, &last, FROM, &order, 0, &news));
    order.value++;
    assert_fails(ERR_PROTO, "the signature is not of m0", order_pool_take(pool, &last, FROM, &order, 0, &news));
    order = of_epoch(PLAIN, 7, EPOCH + 1); /* it may be one by then */
    assert_fails(ERR_STATE, "m2 is no operator", order_pool_take(pool, &last, FROM, &order, 0, &news));
}

/* What has become pointless may be repeated by whoever has not heard so; what was never right is a lie. */
static void only_who_cannot_be_honest_is_blamed(void **state)
{
    (void)state;
    bool news;
    struct order order = of_another(FOUNDER, ORDER_STEPS, 0, 7);
    struct config_mark mark = {.id = FOUNDER, .number = 7};
    last.marks = &mark;
    last.marks_count = 1;
    assert_fails(ERR_STATE, "was carried out", order_pool_take(pool, &last, FROM, &order, 0, &news));
    last.marks = NULL;
    last.marks_count = 0;
    order.value++;
    assert_fails(ERR_PROTO, "the signature is not of m0", order_pool_take(pool, &last, FROM, &order, 0, &news));
    order = of_another(FOUNDER, ORDER_STEPS, 0, 7);
    assert_ok(order_pool_take(pool, &last, FROM, &order, 0, &news));
}

static void a_sender_has_so_many_checks_and_no_more(void **state)
{
    (void)state;
    bool news;
    struct order order = of_another(FOUNDER, ORDER_STEPS, 0, 7), good = order;
    for (uint32_t k = 0; k < ORDER_POOL_CHECKS; k++) {
        order.signature[0] = (uint8_t)k;
        order.signature[1] = (uint8_t)(1 + k / 256);
        order.value = 100;
        assert_fails(ERR_PROTO, "the signature is not of m0", order_pool_take(pool, &last, FROM, &order, 0, &news));
    }
    assert_fails(ERR_AGAIN, "more signatures", order_pool_take(pool, &last, FROM, &good, 0, &news));
    assert_fails(ERR_PROTO, "as before", order_pool_take(pool, &last, FROM, &order, 0, &news)); /* that costs none */
    assert_ok(order_pool_take(pool, &last, FROM + 1, &good, 0, &news)); /* another's are its own */
    order_pool_begin(pool, configs_ident(SELF), NULL, &last, 0);
    struct order later = of_another(FOUNDER, ORDER_STEPS, 0, 8);
    assert_ok(order_pool_take(pool, &last, FROM, &later, ORDER_POOL_CHECK_MS, &news));
}

/* An approval that is false is looked at once, and so is one that is good. */
static void approvals_are_checked_once(void **state)
{
    (void)state;
    bool news;
    last.founder = CONFIG_NOBODY;
    struct order grant = of_another(PLAIN, ORDER_GRANT, PLAIN, 3);
    assert_ok(order_approve(configs_ident(SELF), last.nonce, SELF, &grant));
    assert_true(order_add_approval(&grant, &(struct order_approval){.id = PLAIN, .signature = {1}}));
    for (uint32_t k = 0; k < 2 * ORDER_POOL_CHECKS; k++)
        assert_ok(order_pool_take(pool, &last, FROM, &grant, 0, &news));
    struct order more = of_another(PLAIN, ORDER_GRANT, PLAIN, 4);
    assert_ok(order_pool_take(pool, &last, FROM, &more, 0, &news)); /* there are checks left */
    assert_int_equal(nth(0)->order.approvals_count, 1);
}

static void another_s_ends_when_nobody_repeats_it(void **state)
{
    (void)state;
    bool news;
    struct order order = of_another(FOUNDER, ORDER_STEPS, 0, 7);
    assert_ok(order_pool_take(pool, &last, FROM, &order, 1000, &news));
    tick(false, 1000 + ORDER_POOL_HEARD_MS); /* whose majority that is is for its signer to say */
    assert_ok(order_pool_take(pool, &last, FROM, &order, 1000 + ORDER_POOL_HEARD_MS, &news));
    tick(true, 1000 + 2 * ORDER_POOL_HEARD_MS);
    assert_non_null(nth(0));
    tick(true, 1001 + 2 * ORDER_POOL_HEARD_MS);
    assert_null(nth(0));
    assert_int_equal(ended_count, 0);
}

static void ours_is_signed_anew_in_each_epoch(void **state)
{
    (void)state;
    bool news;
    struct order theirs = of_another(FOUNDER, ORDER_STEPS, 0, 7);
    assert_ok(give(ORDER_STEPS, 0, 50, 1000, NULL));
    assert_ok(order_pool_take(pool, &last, FROM, &theirs, 1000, &news));
    (void)order_pool_to_tell(pool, 1000);
    new_epoch();
    assert_int_equal(nth(0)->order.signer, SELF);
    assert_null(nth(1)); /* its signer signs it anew */
    assert_int_equal(nth(0)->order.epoch, EPOCH + 1);
    assert_ok(config_order_allowed(&last, &nth(0)->order, false));
    assert_non_null(order_pool_to_tell(pool, 1001)); /* at once */
    struct config_mark mark = {.id = SELF, .number = 1};
    last.marks = &mark;
    last.marks_count = 1;
    order_pool_begin(pool, configs_ident(SELF), NULL, &last, 0); /* carried out */
    assert_null(nth(0));
    last.marks = NULL;
    last.marks_count = 0;
}

static void what_takes_a_majority_waits_for_its_approvals(void **state)
{
    (void)state;
    uint64_t number;
    bool news;
    last.founder = CONFIG_NOBODY; /* lost */
    assert_ok(give(ORDER_FOUNDER, SELF, 0, 1000, &number));
    assert_int_equal(nth(0)->order.approvals_count, 1); /* our own */
    assert_int_equal(allowed(), 0);
    assert_false(allowed() > 0);
    struct order approved = nth(0)->order, false_one = nth(0)->order;
    assert_true(order_add_approval(&false_one, &(struct order_approval){.id = PLAIN}));
    assert_ok(order_pool_take(pool, &last, FROM, &false_one, 1000, &news));
    assert_false(news);
    new_epoch(); /* it is the same order: approvals are of this one */
    assert_int_equal(nth(0)->order.epoch, EPOCH);
    tick(false, 1000 + 7ull * DAY_MS);
    assert_non_null(nth(0));
    assert_ok(order_approve(configs_ident(PLAIN), last.nonce, PLAIN, &approved));
    assert_ok(order_pool_take(pool, &last, FROM, &approved, 1000, &news));
    assert_true(news);
    assert_int_equal(allowed(), 1);
    assert_true(allowed() > 0);
    tick(true, 1001 + 7ull * DAY_MS);
    assert_void(nth(0), number);
    assert_string_equal(ended, "it was not approved within seven days");
}

/* Who gave it has no vote for a while, so nobody may carry it out; then it may be again, as it was. */
static void set_vote(uint32_t id, bool votes)
{
    last.members[id].role = votes ? CONFIG_OWNER : CONFIG_AWAY;
    last.members[id].voter = votes;
    new_epoch();
}

static void what_takes_a_majority_outlives_the_vote_of_its_signer(void **state)
{
    (void)state;
    uint64_t number, later;
    bool news;
    last.founder = CONFIG_NOBODY;
    last.members[SELF].operates = false;
    assert_ok(give(ORDER_FOUNDER, SELF, 0, 1000, &number));
    assert_ok(give(ORDER_GRANT, PLAIN, 0, 1000, &later));
    struct order approved = nth(0)->order, withdrawn = nth(1)->order;
    assert_ok(order_approve(configs_ident(FOUNDER), last.nonce, FOUNDER, &approved));
    assert_ok(order_pool_take(pool, &last, FROM, &approved, 1000, &news));
    assert_int_equal(allowed(), 1);
    set_vote(SELF, false);
    tick(true, 1000);
    assert_int_equal(ended_count, 0);
    assert_int_equal(nth(0)->order.number, number);
    assert_int_equal(allowed(), 0);
    assert_null(order_pool_to_tell(pool, 5000)); /* it would be refused, and we be blamed */
    assert_fails(ERR_STATE, "m1 is no operator", give(ORDER_FOUNDER, SELF, 0, 1000, NULL));
    assert_ok(order_pool_withdraw(pool, configs_ident(SELF), &last, SELF, later));
    set_vote(SELF, false);
    assert_int_equal(nth(1)->order.kind, ORDER_VOID);
    set_vote(SELF, true);
    assert_void(nth(1), later);
    assert_int_equal(allowed(), 2); /* with its approvals; and the void */
    assert_int_equal(order_pool_to_tell(pool, 5000)->number, number);
    assert_int_equal(order_pool_to_tell(pool, 5000)->number, later);
    assert_fails(ERR_STATE, "was withdrawn", order_pool_take(pool, &last, FROM, &withdrawn, 2000, &news));
    set_vote(SELF, false);
    tick(true, 1001 + 7ull * DAY_MS);
    assert_string_equal(ended, "it was not approved within seven days");
    set_vote(SELF, true);
    assert_void(nth(0), number); /* nor then is it just forgotten */
    set_vote(SELF, false);
    last.epoch = EPOCH + CONFIG_ORDER_EPOCHS;
    new_epoch();
    assert_null(nth(0)); /* it never may be again */
}

/* At others, too: or whoever has kept the order would have it carried out after all. */
static void a_void_outlives_the_vote_of_its_signer(void **state)
{
    (void)state;
    bool news;
    last.founder = CONFIG_NOBODY;
    struct order grant = of_another(PLAIN, ORDER_GRANT, PLAIN, 3), withdrawal = of_another(PLAIN, ORDER_VOID, 0, 3);
    withdrawal.value = 1;
    order_sign(configs_ident(PLAIN), last.nonce, &withdrawal);
    assert_ok(order_pool_take(pool, &last, FROM, &grant, 1000, &news));
    assert_ok(order_pool_take(pool, &last, FROM, &withdrawal, 1000, &news));
    set_vote(PLAIN, false);
    assert_int_equal(nth(0)->order.kind, ORDER_VOID);
    set_vote(PLAIN, true);
    assert_void(nth(0), 3);
    assert_fails(ERR_STATE, "was withdrawn", order_pool_take(pool, &last, FROM, &grant, 2000, &news));
    set_vote(PLAIN, false);
    last.epoch = EPOCH + CONFIG_ORDER_EPOCHS;
    new_epoch();
    assert_null(nth(0));
}

/* The next configuration sends these away. */
static void send_away(uint32_t first, uint32_t end, uint64_t now_ms)
{
    struct config next = configs_next(&last);
    assert_ok(mem_grow(&next.orders, 0, end - first, sizeof *next.orders, "orders"));
    for (uint32_t id = first; id < end; id++) {
        next.orders[next.orders_count++] = of_another(FOUNDER, ORDER_EVICT, id, 90 + id);
        next.members[id].role = CONFIG_AWAY;
        next.members[id].voter = false;
    }
    order_pool_begin(pool, configs_ident(SELF), &last, &next, now_ms);
    order_pool_begin(pool, configs_ident(SELF), &last, &next, now_ms); /* begun anew: it is one removal */
    config_deinit(&last);
    last = next;
}

/* Of five voters two at a time, and within ten minutes: what an operator's key is worth that somebody has stolen. */
static void a_minority_is_sent_away_within_ten_minutes(void **state)
{
    (void)state;
    enum { AT = 5 * MINUTE_MS, THEN = AT + MINUTE_MS, FREE = THEN + 10 * MINUTE_MS };
    bool news;
    config_deinit(&last);
    last = configs_first(5, false);
    last.members[SELF].operates = true;
    last.epoch = EPOCH;
    new_epoch();
    send_away(2, 3, AT);
    send_away(3, 4, THEN);
    assert_fails(ERR_STATE, "only 2 of 5 voters can be sent away within ten minutes; ask again in 600 s",
                 give(ORDER_EVICT, 4, 0, THEN, NULL));
    struct order order = of_another(FOUNDER, ORDER_REVOKE, 4, 7);
    assert_ok(order_pool_take(pool, &last, FROM, &order, THEN, &news)); /* it waits, as no reason for anything */
    assert_int_equal(allowed_at(FREE - 1), 0);
    tick(true, THEN);
    new_epoch();
    assert_int_equal(order_pool_left_out(pool), 0);
    order = of_another(FOUNDER, ORDER_REVOKE, 4, 7);
    assert_ok(order_pool_take(pool, &last, FROM, &order, THEN, &news));
    struct order pause = of_another(FOUNDER, ORDER_PAUSE, 0, 8);
    assert_ok(order_pool_take(pool, &last, FROM, &pause, THEN, &news));
    assert_int_equal(allowed_at(FREE - 1), 1); /* all else goes on; and of the four that there were one may go */
    assert_int_equal(allowed_at(FREE), 2);
    /* One of them is back: to send it away again makes no fewer. */
    set_vote(2, true);
    assert_ok(give(ORDER_EVICT, 2, 0, THEN, NULL));
    assert_int_equal(allowed_at(THEN), 1);
}

/* Else whoever sends the same one away every nine minutes would keep all others from being sent away, for ever. */
static void who_is_sent_away_again_and_again_holds_nobody_else_up(void **state)
{
    (void)state;
    enum { AT = 5 * MINUTE_MS, AGAIN = 9 * MINUTE_MS };
    config_deinit(&last);
    last = configs_first(4, false);
    last.members[SELF].operates = true;
    last.epoch = EPOCH;
    new_epoch();
    for (int times = 0; times < 3; times++) {
        uint64_t now_ms = AT + (uint64_t)times * 10 * MINUTE_MS;
        send_away(PLAIN, PLAIN + 1, now_ms);
        set_vote(PLAIN, true);
        send_away(PLAIN, PLAIN + 1, now_ms + AGAIN);
        set_vote(PLAIN, true);
        assert_fails(ERR_STATE, "only 1 of 4 voters can be sent away within ten minutes; ask again in 60 s",
                     give(ORDER_REVOKE, 3, 0, now_ms + AGAIN, NULL));
        assert_ok(give(ORDER_REVOKE, 3, 0, now_ms + 10 * MINUTE_MS, NULL));
        assert_ok(order_pool_withdraw(pool, configs_ident(SELF), &last, SELF, given));
    }
}

/* At an island that did not give it. */
/* The next configuration gives a member the key of `key`. */
static void rekey(uint32_t id, uint32_t key)
{
    static struct order order;
    struct config next = configs_next(&last);
    config_deinit(&last);
    last = next;
    order =
        (struct order){.kind = ORDER_REKEY, .signer = FOUNDER, .subject = id, .number = 90, .epoch = last.epoch - 1};
    memcpy(order.key, configs_ident(key)->key, sizeof order.key);
    memcpy(last.members[id].key, configs_ident(key)->key, sizeof order.key);
    assert_ok(mem_grow(&last.orders, 0, 1, sizeof *last.orders, "orders"));
    last.orders[0] = order;
    last.orders_count = 1;
    order_pool_begin(pool, configs_ident(id == SELF ? key : SELF), NULL, &last, 0);
}

/* By a key that is a voter's no more nobody agrees, and nobody orders: else what is proposed would not follow. */
static void who_has_another_key_signs_again(void **state)
{
    (void)state;
    enum { NEXT = 40, NEXT_OWN };
    struct order theirs = of_another(PLAIN, ORDER_GRANT, PLAIN, 3);
    uint64_t number;
    bool news;
    assert_ok(give(ORDER_GRANT, PLAIN, 0, 1000, &number));
    struct order approved = nth(0)->order;
    assert_ok(order_approve(configs_ident(PLAIN), last.nonce, PLAIN, &approved));
    assert_ok(order_pool_take(pool, &last, FROM, &approved, 1000, &news));
    assert_ok(order_pool_take(pool, &last, FROM, &theirs, 1000, &news));
    assert_int_equal(order_pool_agree(&last, &nth(0)->order), 2);
    rekey(PLAIN, NEXT);
    assert_null(nth(1)); /* theirs */
    assert_int_equal(order_pool_agree(&last, &nth(0)->order), 1);
    assert_int_equal(config_order_approvals(&last, &nth(0)->order), 1);
    assert_int_equal(allowed(), 0);
    assert_ok(order_approve(configs_ident(NEXT), last.nonce, PLAIN, &approved));
    rekey(SELF, NEXT_OWN); /* ours begins anew */
    assert_int_equal(config_order_approvals(&last, &nth(0)->order), 1);
    assert_ok(config_order_allowed(&last, &nth(0)->order, true));
    assert_int_equal(nth(0)->order.epoch, last.epoch);
    assert_ok(order_pool_withdraw(pool, configs_ident(NEXT_OWN), &last, SELF, number));
    rekey(SELF, SELF); /* nobody can carry out what the void is of */
    assert_null(nth(0));
}

/* When a doubt ends the epoch begins anew: what happened in it stands. */
static void an_epoch_that_begins_anew_is_counted_once(void **state)
{
    (void)state;
    enum { NEXT = 40 };
    bool news;
    assert_ok(give(ORDER_STEPS, 0, 50, 1000, NULL));
    tick(true, 1000);
    new_epoch();
    tick(true, 1000);
    assert_int_equal(order_pool_left_out(pool), 1);
    order_pool_begin(pool, configs_ident(SELF), NULL, &last, 0);
    tick(true, 1000);
    assert_int_equal(order_pool_left_out(pool), 1);
    assert_ok(give(ORDER_GRANT, PLAIN, 0, 1000, NULL));
    rekey(PLAIN, NEXT);
    struct order approved = nth(1)->order;
    assert_ok(order_approve(configs_ident(NEXT), last.nonce, PLAIN, &approved));
    assert_ok(order_pool_take(pool, &last, FROM, &approved, 1000, &news));
    assert_int_equal(order_pool_agree(&last, &nth(1)->order), 2);
    order_pool_begin(pool, configs_ident(SELF), NULL, &last, 0);
    assert_int_equal(order_pool_agree(&last, &nth(1)->order), 2);
}

static void people_elsewhere_approve(void **state)
{
    (void)state;
    bool news;
    struct order order = of_another(FOUNDER, ORDER_STEPS, 0, 7), grant;
    last.founder = CONFIG_NOBODY;
    grant = of_another(PLAIN, ORDER_GRANT, PLAIN, 3);
    assert_ok(order_pool_take(pool, &last, FROM, &order, 1000, &news));
    assert_ok(order_pool_take(pool, &last, FROM, &grant, 1000, &news));
    assert_fails(ERR_NOTFOUND, "no order 4 of m2",
                 order_pool_approve(pool, configs_ident(SELF), &last, SELF, PLAIN, 4));
    assert_fails(ERR_STATE, "order 7 of m0 takes no approval",
                 order_pool_approve(pool, configs_ident(SELF), &last, SELF, FOUNDER, 7));
    assert_null(order_pool_to_tell(pool, 1000));
    assert_ok(order_pool_approve(pool, configs_ident(SELF), &last, SELF, PLAIN, 3));
    assert_int_equal(order_pool_to_tell(pool, 1000)->number, 3); /* from now on we tell it, too */
    assert_int_equal(nth(1)->order.approvals_count, 1);
    struct order other = of_another(PLAIN, ORDER_FOUNDER, PLAIN, 3); /* this is not what people read */
    assert_fails(ERR_STATE, "the number of another order of m2",
                 order_pool_take(pool, &last, FROM, &other, 1000, &news));
    tick(true, 1001 + ORDER_POOL_HEARD_MS);
    assert_int_equal(nth(0)->order.number, 3);
    assert_ok(order_pool_take(pool, &last, FROM, &grant, 1000 + 7ull * DAY_MS, &news));
    tick(true, 1000 + 7ull * DAY_MS);
    assert_non_null(nth(0));
    tick(true, 1001 + 7ull * DAY_MS); /* it is asked no more here, either */
    assert_null(nth(0));
    assert_ok(order_pool_take(pool, &last, FROM, &grant, 1001 + 7ull * DAY_MS, &news));
    last.members[SELF].role = CONFIG_CONTRIBUTOR;
    last.members[SELF].voter = false;
    assert_fails(ERR_STATE, "does not vote", order_pool_approve(pool, configs_ident(SELF), &last, SELF, PLAIN, 3));
}

/* One that is sent without end hides no other, and many of them fill no log. */
static void each_that_is_refused_is_told_and_not_without_end(void **state)
{
    (void)state;
    struct refused_orders refused = {0};
    struct order revoke = {.kind = ORDER_REVOKE, .subject = 2, .signer = 1}, other = revoke;
    uint32_t told = 0;
    assert_true(refused_orders_tell(&refused, &revoke, 1000));
    for (uint64_t now_ms = 1000; now_ms < 1000 + MINUTE_MS; now_ms += 10)
        assert_false(refused_orders_tell(&refused, &revoke, now_ms));
    other.kind = ORDER_EVICT;
    assert_true(refused_orders_tell(&refused, &other, 1001));
    other.subject = 3;
    assert_true(refused_orders_tell(&refused, &other, 1001));
    other.signer = 0;
    assert_true(refused_orders_tell(&refused, &other, 1001));
    assert_true(refused_orders_tell(&refused, &revoke, 1000 + MINUTE_MS));
    for (uint32_t k = 0; k < 10000; k++) {
        other.subject = 100 + k;
        told += refused_orders_tell(&refused, &other, 1000 + MINUTE_MS + k);
    }
    assert_in_range(told, REFUSED_ORDERS_SAID - 1, REFUSED_ORDERS_SAID + 1);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        CASE(what_is_given_has_a_number_and_is_told),
        CASE(what_configurations_leave_out_is_counted),
        CASE(what_makes_no_sense_is_told_at_once),
        CASE(what_another_may_not_order_is_refused),
        CASE(nobody_fills_it_alone),
        CASE(ours_ends_after_ten_minutes_or_without_a_majority),
        CASE(a_guest_s_ends_when_it_is_asked_no_more),
        CASE(another_s_ends_when_nobody_repeats_it),
        CASE(what_would_change_nothing_any_more_ends),
        CASE(a_void_keeps_its_order_out),
        CASE(what_was_approved_is_withdrawn_for_as_long_as_it_could_live),
        CASE(what_was_given_before_a_restart_is_withdrawn),
        CASE(what_cannot_be_numbered_is_not_given),
        CASE(everyone_has_its_share_of_a_configuration),
        CASE(what_would_fail_takes_no_place),
        CASE(only_who_cannot_be_honest_is_blamed),
        CASE(who_may_order_nothing_is_blamed_in_any_epoch),
        CASE(who_might_order_it_in_its_own_epoch_is_not_blamed),
        CASE(a_sender_has_so_many_checks_and_no_more),
        CASE(approvals_are_checked_once),
        CASE(ours_is_signed_anew_in_each_epoch),
        CASE(what_takes_a_majority_waits_for_its_approvals),
        CASE(who_has_another_key_signs_again),
        CASE(an_epoch_that_begins_anew_is_counted_once),
        CASE(people_elsewhere_approve),
        CASE(what_takes_a_majority_outlives_the_vote_of_its_signer),
        CASE(a_void_outlives_the_vote_of_its_signer),
        CASE(a_minority_is_sent_away_within_ten_minutes),
        CASE(who_is_sent_away_again_and_again_holds_nobody_else_up),
        CASE(each_that_is_refused_is_told_and_not_without_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
