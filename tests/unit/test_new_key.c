/* SPDX-License-Identifier: Apache-2.0 */
/* A member's new key: what states it, what gives it, and what was signed with the key before. */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <string.h>

#include "common/digest.h"
#include "common/mem.h"
#include "net/config/certificate.h"
#include "net/config/config_log.h"
#include "net/config/config_orders.h"
#include "tests/lib/outofmem.h"
#include "tests/lib/sample_configs.h"

/* Five owners and a witness; 0 is the founder, 1 another operator, 5 the witness. NEXT: keys of nobody. */
enum { FOUNDER, OPERATOR, PLAIN, OTHER, LAST_OWNER, WITNESS, NEXT = 40, NEXT_OTHER, EPOCH = 9 };

static struct config last, next;

static int begin(void **state)
{
    (void)state;
    last = configs_first(5, true);
    last.members[OPERATOR].operates = true;
    last.members[PLAIN].word = 6;
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

/* `next` is the newest one from now on. */
static void go_on(void)
{
    config_deinit(&last);
    last = next;
    next = configs_next(&last);
}

/* As the member says it that has the key of `signer`, with the new one of `next_signer`. */
static struct member_word stated(uint32_t id, uint32_t signer, uint32_t next_signer, uint64_t number)
{
    const struct config_member *as = config_member(&last, id);
    struct member_word word = {.number = number, .uplink = as->uplink, .owner_choice = as->owner_choice};
    memcpy(word.address, as->address, sizeof word.address);
    member_word_state_next(configs_ident(next_signer), as->key, last.nonce, id, &word);
    member_word_sign(configs_ident(signer), last.nonce, id, &word);
    return word;
}

static void take(uint32_t id, const struct member_word *word, bool counts)
{
    uint32_t before = next.words_count;
    assert_ok(config_word_apply(&last, &next, id, word));
    assert_int_equal(next.words_count, before + counts);
}

/* The configuration after this one says that PLAIN asks for the key NEXT. */
static void state_plain(void)
{
    struct member_word word = stated(PLAIN, PLAIN, NEXT, 7);
    take(PLAIN, &word, true);
    assert_ok(config_orders_follow(&last, &next));
    assert_ok(config_check(&next));
    go_on();
    assert_true(config_has_next(config_member(&last, PLAIN)));
}

static struct order rekey_of(uint32_t signer, uint32_t subject, uint32_t key)
{
    struct order order = {.kind = ORDER_REKEY, .signer = signer, .subject = subject, .number = 1, .epoch = last.epoch};
    memcpy(order.key, configs_ident(key)->key, sizeof order.key);
    order_sign(configs_ident(signer), last.nonce, &order);
    return order;
}

static void carry_out(const struct order *order)
{
    assert_ok(config_order_allowed(&last, order, false));
    assert_ok(config_order_apply(&last, &next, order));
    assert_ok(config_orders_follow(&last, &next));
    assert_ok(config_check(&next));
}

static void assert_key(const struct config *config, uint32_t id, uint32_t key)
{
    assert_memory_equal(config_member(config, id)->key, configs_ident(key)->key, IDENT_KEY_BYTES);
}

static void old_key_new_key_and_an_operator_sign(void **state)
{
    (void)state;
    struct order order = rekey_of(OPERATOR, PLAIN, NEXT);
    assert_fails(ERR_STATE, "m2 does not ask for this key", config_order_apply(&last, &next, &order));
    state_plain();
    assert_key(&last, PLAIN, PLAIN); /* a word alone gives nothing */
    order = rekey_of(OPERATOR, PLAIN, NEXT_OTHER);
    assert_fails(ERR_STATE, "m2 does not ask for this key", config_order_apply(&last, &next, &order));
    order = rekey_of(OTHER, PLAIN, NEXT);
    assert_fails(ERR_STATE, "m3 is no operator", config_order_allowed(&last, &order, false));
    order = rekey_of(OPERATOR, PLAIN, NEXT);
    order.key[3] ^= 1;
    assert_fails(ERR_STATE, "the signature is not of m1", config_order_allowed(&last, &order, false));
    order = rekey_of(OPERATOR, PLAIN, NEXT);
    carry_out(&order);
    assert_key(&next, PLAIN, NEXT);
    assert_false(config_has_next(config_member(&next, PLAIN)));
    assert_int_equal(next.retired_count, 1);
    assert_int_equal(next.retired[0].id, PLAIN);
    assert_false(next.retired[0].revoked);
    assert_int_equal(next.retired[0].epoch, next.epoch);
    assert_string_equal(config_member(&next, PLAIN)->name, "m2");
    struct digest digest = {{0}};
    next.previous = digest;
    assert_ok(config_follows(&last, &digest, &next));
    /* Nor does a configuration follow that says so without one of them. */
    next.orders_count = 0;
    assert_fails(ERR_PROTO, "the id 2 of somebody else", config_follows(&last, &digest, &next));
    assert_fails(ERR_PROTO, "a roster with m2 that no order names", config_orders_follow(&last, &next));
    again();
    next.members[PLAIN].next_key[0] ^= 1;
    assert_fails(ERR_PROTO, "another word of m2", config_orders_follow(&last, &next));
    again();
    next.previous = digest;
    memcpy(next.members[PLAIN].key, next.members[PLAIN].next_key, IDENT_KEY_BYTES);
    assert_fails(ERR_PROTO, "of somebody else", config_follows(&last, &digest, &next));
}

static void a_new_key_signs_that_it_is_there(void **state)
{
    (void)state;
    struct member_word good = stated(PLAIN, PLAIN, NEXT, 7), word = good;
    word.next_signature[5] ^= 1; /* the key is somebody's who does not know of it */
    member_word_sign(configs_ident(PLAIN), last.nonce, PLAIN, &word);
    take(PLAIN, &word, false);
    word = good; /* another one than it signed */
    memcpy(word.next_key, configs_ident(NEXT_OTHER)->key, sizeof word.next_key);
    member_word_sign(configs_ident(PLAIN), last.nonce, PLAIN, &word);
    take(PLAIN, &word, false);
    word = good; /* by a later number the new key has to sign again */
    word.number++;
    member_word_sign(configs_ident(PLAIN), last.nonce, PLAIN, &word);
    take(PLAIN, &word, false);
    word = stated(OTHER, OTHER, NEXT, 7); /* what it signed for another member */
    memcpy(good.next_signature, word.next_signature, sizeof good.next_signature);
    member_word_sign(configs_ident(PLAIN), last.nonce, PLAIN, &good);
    take(PLAIN, &good, false);
    uint8_t nonce[CONFIG_NONCE_BYTES] = {9}; /* or of another run */
    member_word_state_next(configs_ident(NEXT), last.members[PLAIN].key, nonce, PLAIN, &good);
    member_word_sign(configs_ident(PLAIN), last.nonce, PLAIN, &good);
    take(PLAIN, &good, false);
    word = stated(PLAIN, OTHER, NEXT, 7); /* without the key that it has */
    take(PLAIN, &word, false);
    word = stated(PLAIN, PLAIN, NEXT, 6); /* an old word */
    take(PLAIN, &word, false);
    word = stated(PLAIN, PLAIN, NEXT, 7);
    take(PLAIN, &word, true);
    assert_ok(config_orders_follow(&last, &next));
    next.words[0].next_signature[0] ^= 1;
    assert_fails(ERR_PROTO, "a word of m2 that is not its own", config_orders_follow(&last, &next));
    memset(next.words[0].next_signature, 0, sizeof next.words[0].next_signature);
    assert_fails(ERR_PROTO, "states a new key by half", config_check(&next));
}

/* Of two the later one; and none any more, where it is taken back. */
static void the_last_word_counts(void **state)
{
    (void)state;
    state_plain();
    struct member_word first = stated(PLAIN, PLAIN, NEXT, 7), second = stated(PLAIN, PLAIN, NEXT_OTHER, 8);
    take(PLAIN, &second, true);
    assert_ok(config_orders_follow(&last, &next));
    go_on();
    take(PLAIN, &first, false);
    struct order order = rekey_of(OPERATOR, PLAIN, NEXT); /* given before the second word was known */
    assert_fails(ERR_STATE, "m2 does not ask for this key", config_order_apply(&last, &next, &order));
    struct member_word back = second;
    back.number = 9;
    memset(back.next_key, 0, sizeof back.next_key);
    memset(back.next_signature, 0, sizeof back.next_signature);
    member_word_sign(configs_ident(PLAIN), last.nonce, PLAIN, &back);
    take(PLAIN, &back, true);
    assert_ok(config_orders_follow(&last, &next));
    assert_ok(config_check(&next));
    go_on();
    assert_false(config_has_next(config_member(&last, PLAIN)));
    take(PLAIN, &second, false);
    order = rekey_of(OPERATOR, PLAIN, NEXT_OTHER);
    assert_fails(ERR_STATE, "m2 does not ask for this key", config_order_apply(&last, &next, &order));
}

/* A word that was signed with the old key is of no use beside the order that takes that key, nor after it. */
static void what_the_old_key_signed_counts_no_more(void **state)
{
    (void)state;
    state_plain();
    struct order order = rekey_of(FOUNDER, PLAIN, NEXT);
    struct member_word word = stated(PLAIN, PLAIN, NEXT_OTHER, 8);
    carry_out(&order);
    take(PLAIN, &word, false);
    assert_ok(config_orders_follow(&last, &next));
    go_on();
    take(PLAIN, &word, false);
    struct order again_order = rekey_of(FOUNDER, PLAIN, NEXT);
    again_order.number = 2;
    order_sign(configs_ident(FOUNDER), last.nonce, &again_order);
    assert_fails(ERR_STATE, "m2 does not ask for this key", config_order_apply(&last, &next, &again_order));
    last.members[PLAIN].operates = true;
    order = (struct order){.kind = ORDER_PAUSE, .signer = PLAIN, .number = 1, .epoch = last.epoch};
    order_sign(configs_ident(PLAIN), last.nonce, &order);
    assert_fails(ERR_STATE, "the signature is not of m2", config_order_allowed(&last, &order, false));
    order_sign(configs_ident(NEXT), last.nonce, &order);
    assert_ok(config_order_allowed(&last, &order, false));
    word = (struct member_word){.number = 8, .uplink = 5};
    member_word_sign(configs_ident(PLAIN), last.nonce, PLAIN, &word);
    assert_true(config_word_of_other_key(&last, PLAIN, &word)); /* which is no lie */
    assert_false(config_word_of_other_key(&last, OTHER, &word));
    member_word_sign(configs_ident(NEXT_OTHER), last.nonce, PLAIN, &word);
    assert_false(config_word_of_other_key(&last, PLAIN, &word));
}

static void a_key_is_one_member_s(void **state)
{
    (void)state;
    struct member_word word = stated(PLAIN, PLAIN, OTHER, 7); /* whoever has both keys */
    take(PLAIN, &word, false);
    word = stated(PLAIN, PLAIN, PLAIN, 7); /* its own */
    take(PLAIN, &word, false);
    state_plain();
    word = stated(OTHER, OTHER, NEXT, 1); /* that another one asks for */
    take(OTHER, &word, false);
    memcpy(next.members[OTHER].next_key, configs_ident(NEXT)->key, IDENT_KEY_BYTES);
    assert_fails(ERR_PROTO, "one key", config_check(&next));
    again();
    memcpy(next.members[OTHER].next_key, configs_ident(PLAIN)->key, IDENT_KEY_BYTES);
    next.members[OTHER].next_key[IDENT_KEY_BYTES - 1] ^= 0x80; /* its connections would have the same */
    assert_fails(ERR_PROTO, "one key", config_check(&next));
    again();
    struct order order = {.kind = ORDER_ADMIT, .signer = OPERATOR, .number = 1, .epoch = last.epoch};
    order.join.word = (struct member_word){.number = 1, .uplink = 5};
    snprintf(order.join.name, sizeof order.join.name, "oslo");
    wire_join_sign(configs_ident(NEXT), last.nonce, &order.join);
    assert_fails(ERR_STATE, "that key is on the roster already, as island m2", config_order_try(&last, &next, &order));
    struct order rekey = rekey_of(FOUNDER, PLAIN, NEXT), revoke = rekey;
    carry_out(&rekey);
    go_on();
    wire_join_sign(configs_ident(PLAIN), last.nonce, &order.join); /* the key that it left */
    assert_fails(ERR_STATE, "that key was left by an island, id 2", config_order_try(&last, &next, &order));
    word = stated(OTHER, OTHER, PLAIN, 1);
    take(OTHER, &word, false);
    word = stated(PLAIN, NEXT, PLAIN, 8); /* nor may it come back to it */
    take(PLAIN, &word, false);
    memcpy(next.members[OTHER].key, configs_ident(PLAIN)->key, IDENT_KEY_BYTES);
    assert_fails(ERR_PROTO, "one key", config_check(&next));
    again();
    revoke =
        (struct order){.kind = ORDER_REVOKE, .signer = FOUNDER, .subject = OTHER, .number = 2, .epoch = last.epoch};
    order_sign(configs_ident(FOUNDER), last.nonce, &revoke);
    assert_ok(config_order_apply(&last, &next, &revoke));
    assert_int_equal(next.retired_count, 2);
    assert_true(next.retired[1].revoked);
    configs_map(&next, (const uint32_t[]){0, 1, 2, 4}, 4);
    go_on();
    word = stated(PLAIN, NEXT, OTHER, 8); /* revoked: no new key of anybody, but an operator may admit it anew */
    take(PLAIN, &word, false);
    wire_join_sign(configs_ident(OTHER), last.nonce, &order.join);
    order.epoch = last.epoch;
    assert_ok(config_order_try(&last, &next, &order));
    assert_ok(config_check(&next));
}

/* As evict and revoke; but of itself, too: whoever stole an operator's key would shut out its owner. */
static void of_an_operator_the_founder_or_a_majority_disposes(void **state)
{
    (void)state;
    struct member_word word = stated(OPERATOR, OPERATOR, NEXT, 7), own = stated(FOUNDER, FOUNDER, NEXT_OTHER, 7);
    take(FOUNDER, &own, true);
    take(OPERATOR, &word, true);
    assert_ok(config_orders_follow(&last, &next));
    go_on();
    struct order order = rekey_of(OPERATOR, OPERATOR, NEXT);
    assert_true(config_order_takes_approval(&last, &order));
    assert_fails(ERR_STATE, "it has the approval of 0 of 6 voters", config_order_allowed(&last, &order, false));
    for (uint32_t i = OPERATOR; i <= LAST_OWNER; i++)
        assert_ok(order_approve(configs_ident(i), last.nonce, i, &order));
    carry_out(&order);
    again();
    order = rekey_of(OPERATOR, FOUNDER, NEXT_OTHER);
    assert_true(config_order_takes_approval(&last, &order));
    order = rekey_of(FOUNDER, OPERATOR, NEXT);
    carry_out(&order);
    again();
    order = rekey_of(FOUNDER, FOUNDER, NEXT_OTHER);
    carry_out(&order);
    assert_key(&next, FOUNDER, NEXT_OTHER);
    assert_int_equal(next.founder, FOUNDER);
}

/* The oldest gives way, and nothing else is lost. */
static void so_many_retired_keys_are_kept(void **state)
{
    (void)state;
    state_plain();
    assert_ok(mem_grow(&last.retired, last.retired_count, CONFIG_RETIRED_MAX, sizeof *last.retired, "retired keys"));
    for (uint32_t i = 0; i < CONFIG_RETIRED_MAX; i++) {
        last.retired[i] = (struct config_retired){.id = i, .epoch = 1 + i / 100};
        struct ident ident;
        assert_ok(ident_generate(&ident));
        memcpy(last.retired[i].key, ident.key, sizeof ident.key);
    }
    last.retired_count = CONFIG_RETIRED_MAX;
    again();
    struct order order = rekey_of(FOUNDER, PLAIN, NEXT);
    carry_out(&order);
    assert_int_equal(next.retired_count, CONFIG_RETIRED_MAX);
    assert_int_equal(next.retired[0].id, 1);
    assert_int_equal(next.retired[CONFIG_RETIRED_MAX - 1].id, PLAIN);
    uint8_t *bytes;
    size_t bytes_count;
    struct config read;
    assert_ok(config_pack(&next, &bytes, &bytes_count));
    assert_ok(config_unpack(bytes, bytes_count, &read));
    assert_memory_equal(read.retired, next.retired, sizeof *next.retired * CONFIG_RETIRED_MAX);
    next.retired[7].revoked = true;
    assert_fails(ERR_PROTO, "other retired keys than orders leave", config_orders_follow(&last, &next));
    next.retired[7].revoked = false;
    assert_ok(config_orders_follow(&last, &next));
    next.retired[7].epoch++;
    assert_fails(ERR_PROTO, "other retired keys than orders leave", config_orders_follow(&last, &next));
    assert_fails(ERR_PROTO, "whose retired keys are not in order of epoch", config_check(&next));
    config_deinit(&read);
    mem_free(bytes);
}

/* ---- certificates ---- */

static struct digest hash_of(uint8_t byte)
{
    return (struct digest){.byte = {byte}};
}

/* Version 3 of fragment 0 is of the epoch before PLAIN changed its key. */
static struct config_log *log_across(void)
{
    struct config_log *log;
    state_plain();
    struct order order = rekey_of(FOUNDER, PLAIN, NEXT);
    carry_out(&order);
    struct digest digest = {.byte = {1}};
    next.previous = digest;
    mem_free(next.starts);
    assert_ok(mem_new(1, sizeof *next.starts, "starts", &next.starts));
    next.starts_count = 1;
    next.starts[0] = 3;
    assert_ok(config_log_new(&log));
    assert_ok(config_log_add(log, &last, &digest));
    assert_ok(config_log_add(log, &next, &(struct digest){.byte = {2}}));
    return log;
}

static void what_the_old_key_certified_stands(void **state)
{
    (void)state;
    struct config_log *log = log_across();
    struct certificate_rule rule;
    struct certificate certificate = {.count = 3};
    const uint8_t *nonce = config_log_last(log)->nonce;
    struct certificate_subject subject = {.nonce = nonce, .version = 3, .hash = hash_of(7)};
    const uint32_t signers[] = {FOUNDER, PLAIN, OTHER};
    for (int i = 0; i < 3; i++) {
        certificate.rows[i].id = signers[i];
        certificate_row_sign(configs_ident(signers[i]), &subject, certificate.rows[i].signature);
    }
    certificate_rule_of(log, 0, 3, &rule);
    assert_int_equal(rule.count, 2);
    assert_false(certificate_forged(&rule, &subject, &certificate));
    certificate.count = 4; /* of the six voters; PLAIN may have signed it again */
    certificate.rows[3] = certificate.rows[0];
    certificate.rows[3].id = LAST_OWNER;
    certificate_row_sign(configs_ident(LAST_OWNER), &subject, certificate.rows[3].signature);
    assert_ok(certificate_check(&rule, &subject, &certificate, CERTIFICATE_NOBODY));
    certificate_row_sign(configs_ident(NEXT), &subject, certificate.rows[1].signature);
    assert_ok(certificate_check(&rule, &subject, &certificate, CERTIFICATE_NOBODY));
    assert_false(certificate_forged(&rule, &subject, &certificate));
    certificate.rows[3] = certificate.rows[1]; /* and by its old key: it is one voter */
    certificate_row_sign(configs_ident(PLAIN), &subject, certificate.rows[3].signature);
    assert_fails(ERR_PROTO, "certified by 3 voters",
                 certificate_check(&rule, &subject, &certificate, CERTIFICATE_NOBODY));
    certificate_row_sign(configs_ident(NEXT_OTHER), &subject, certificate.rows[1].signature);
    assert_true(certificate_forged(&rule, &subject, &certificate));
    subject.version = 5; /* of the newest epoch: the key before says nothing of it */
    certificate_rule_of(log, 0, 5, &rule);
    certificate_row_sign(configs_ident(PLAIN), &subject, certificate.rows[3].signature);
    certificate.count = 1;
    certificate.rows[0] = certificate.rows[3];
    assert_true(certificate_forged(&rule, &subject, &certificate));
    config_log_free(log);
    memset(&last, 0, sizeof last);
    memset(&next, 0, sizeof next);
}

/* Whether this signature, by the key of `signer`, of version `version` in the name of PLAIN is forged. */
static bool is_forged(const struct config_log *log, uint64_t version, uint32_t signer)
{
    struct certificate_rule rule;
    struct certificate certificate = {.count = 1, .rows = {{.id = PLAIN}}};
    const struct certificate_subject subject = {
        .nonce = config_log_last(log)->nonce, .version = version, .hash = hash_of(7)};
    certificate_row_sign(configs_ident(signer), &subject, certificate.rows[0].signature);
    certificate_rule_of(log, 0, version, &rule);
    assert_fails(ERR_PROTO, "certified by",
                 certificate_check(&rule, &subject, &certificate, CERTIFICATE_NOBODY)); /* one is not enough */
    return certificate_forged(&rule, &subject, &certificate);
}

/* A voter may have come to the first version of an epoch in the one before, while the others had not. */
static void who_came_to_a_version_an_epoch_early_forges_nothing(void **state)
{
    (void)state;
    struct config_log *log = log_across(), *late;
    struct config third, copy;
    assert_false(is_forged(log, 4, PLAIN));
    assert_false(is_forged(log, 4, NEXT));
    assert_true(is_forged(log, 4, NEXT_OTHER));
    assert_true(is_forged(log, 5, PLAIN)); /* nobody was so far ahead */
    assert_ok(config_copy(config_log_last(log), &copy));
    third = configs_next(&copy); /* another epoch that starts from the same version: the voter slept meanwhile */
    third.previous = *config_log_last_digest(log);
    assert_ok(config_log_add(log, &third, &(struct digest){.byte = {3}}));
    assert_false(is_forged(log, 4, PLAIN));
    assert_true(is_forged(log, 5, PLAIN));
    assert_ok(config_log_new(&late)); /* which cannot say when a voter came to it */
    assert_ok(config_log_add(late, &copy, &(struct digest){.byte = {2}}));
    assert_false(is_forged(late, 4, PLAIN));
    assert_true(is_forged(late, 5, PLAIN));
    config_log_free(late);
    config_log_free(log);
    memset(&last, 0, sizeof last);
    memset(&next, 0, sizeof next);
}

/* Who gives a state may know the configuration that gives a voter the key which it states, before we do. */
static void a_signature_by_the_key_that_is_stated_is_not_forged(void **state)
{
    (void)state;
    struct config_log *log;
    struct config copy;
    state_plain();
    assert_ok(config_copy(&last, &copy));
    assert_ok(config_log_new(&log));
    assert_ok(config_log_add(log, &copy, &(struct digest){.byte = {1}}));
    assert_false(is_forged(log, 3, PLAIN));
    assert_false(is_forged(log, 3, NEXT));
    assert_true(is_forged(log, 3, NEXT_OTHER));
    assert_true(is_forged(log, 3, OTHER));
    config_log_free(log);
}

/* A voter of the version's epoch, that votes no more, has the last key all the same. */
static void who_votes_no_more_forges_nothing_by_the_key_that_it_has(void **state)
{
    (void)state;
    struct config_log *log = log_across();
    struct config third, copy;
    assert_ok(config_copy(config_log_last(log), &copy));
    third = configs_next(&copy);
    third.previous = *config_log_last_digest(log);
    configs_map(&third, (const uint32_t[]){FOUNDER, OPERATOR, OTHER, LAST_OWNER}, 4);
    assert_ok(config_log_add(log, &third, &(struct digest){.byte = {3}}));
    config_deinit(&copy);
    assert_false(is_forged(log, 3, NEXT));
    assert_false(is_forged(log, 3, PLAIN));
    assert_true(is_forged(log, 3, NEXT_OTHER));
    config_log_free(log);
    memset(&last, 0, sizeof last);
    memset(&next, 0, sizeof next);
}

/* The newest configuration of log_across() has these two owners, and the witness. */
static void add_two_owners(struct config_log *log, uint32_t one, uint32_t other)
{
    struct config third = configs_next(config_log_last(log));
    third.previous = *config_log_last_digest(log);
    configs_map(&third, (const uint32_t[]){one, other}, 2);
    assert_ok(config_log_add(log, &third, &(struct digest){.byte = {3}}));
}

static void put_row(struct certificate *certificate, uint32_t id, uint32_t signer,
                    const struct certificate_subject *subject)
{
    struct certificate_row *row = &certificate->rows[certificate->count++];
    row->id = id;
    certificate_row_sign(configs_ident(signer), subject, row->signature);
}

/* Who has signed again by its new key is still a voter of the version's epoch, and one only; by the key that it left
 * then it is none of the newest configuration's. */
static void a_new_key_counts_in_the_epoch_of_the_version(void **state)
{
    (void)state;
    static const uint32_t newest[] = {PLAIN, OTHER}; /* beside OPERATOR: PLAIN votes on, and does not */
    for (int i = 0; i < 2; i++) {
        struct config_log *log = log_across();
        struct certificate_rule rule;
        struct certificate certificate = {.count = 0};
        add_two_owners(log, OPERATOR, newest[i]);
        const struct certificate_subject subject = {
            .nonce = config_log_last(log)->nonce, .version = 3, .hash = hash_of(7)};
        certificate_rule_of(log, 0, 3, &rule);
        put_row(&certificate, FOUNDER, FOUNDER, &subject);
        put_row(&certificate, OTHER, OTHER, &subject);
        put_row(&certificate, PLAIN, NEXT, &subject);
        put_row(&certificate, PLAIN, PLAIN, &subject);
        assert_fails(ERR_PROTO, "certified by 3 voters",
                     certificate_check(&rule, &subject, &certificate, CERTIFICATE_NOBODY));
        put_row(&certificate, LAST_OWNER, LAST_OWNER, &subject);
        certificate.rows[3] = certificate.rows[4];
        certificate.count = 4;
        assert_ok(certificate_check(&rule, &subject, &certificate, CERTIFICATE_NOBODY));
        certificate.count = 0;
        put_row(&certificate, OPERATOR, OPERATOR, &subject);
        put_row(&certificate, PLAIN, PLAIN, &subject);
        assert_fails(ERR_PROTO, "certified by 2 voters; 2 of 2",
                     certificate_check(&rule, &subject, &certificate, CERTIFICATE_NOBODY));
        config_log_free(log);
        memset(&last, 0, sizeof last);
        memset(&next, 0, sizeof next);
        end(NULL);
        begin(NULL);
    }
}

/* PLAIN has changed its key once more since log_across(). */
static void change_again(struct config_log *log)
{
    struct config first = {0}, second = {0};
    assert_ok(config_copy(config_log_last(log), &first));
    config_deinit(&last);
    last = first; /* whose key NEXT is PLAIN's, and whose word states another */
    next = configs_next(&last);
    struct member_word word = stated(PLAIN, NEXT, NEXT_OTHER, config_member(&last, PLAIN)->word + 1);
    take(PLAIN, &word, true);
    next.previous = *config_log_last_digest(log);
    assert_ok(config_copy(&next, &second));
    assert_ok(config_log_add(log, &second, &(struct digest){.byte = {3}}));
    go_on();
    struct order order = rekey_of(FOUNDER, PLAIN, NEXT_OTHER);
    order.number = 2;
    order_sign(configs_ident(FOUNDER), last.nonce, &order);
    carry_out(&order);
    next.previous = *config_log_last_digest(log);
    assert_ok(config_copy(&next, &second));
    assert_ok(config_log_add(log, &second, &(struct digest){.byte = {4}}));
}

/* Who gives a state may not know of the last change yet, nor have the signature by the last key. */
static void who_has_a_signature_by_a_key_in_between_forges_nothing(void **state)
{
    (void)state;
    struct config_log *log = log_across(), *late;
    struct certificate_rule rule;
    struct certificate certificate = {.count = 2};
    memset(&last, 0, sizeof last); /* the log's */
    memset(&next, 0, sizeof next);
    change_again(log);
    struct certificate_subject subject = {.nonce = config_log_last(log)->nonce, .version = 3, .hash = hash_of(7)};
    certificate.rows[0].id = FOUNDER;
    certificate_row_sign(configs_ident(FOUNDER), &subject, certificate.rows[0].signature);
    certificate.rows[1].id = PLAIN;
    certificate_rule_of(log, 0, 3, &rule);
    const uint32_t all[] = {PLAIN, NEXT, NEXT_OTHER};
    for (int i = 0; i < 3; i++) {
        certificate_row_sign(configs_ident(all[i]), &subject, certificate.rows[1].signature);
        assert_false(certificate_forged(&rule, &subject, &certificate));
    }
    certificate_row_sign(configs_ident(NEXT), &subject, certificate.rows[1].signature);
    assert_fails(ERR_PROTO, "certified by 1 voters",
                 certificate_check(&rule, &subject, &certificate, CERTIFICATE_NOBODY)); /* nor does it count */
    certificate_row_sign(configs_ident(OTHER), &subject, certificate.rows[1].signature);
    assert_true(certificate_forged(&rule, &subject, &certificate));
    /* Who came later does not know the version's epoch. */
    struct config copy;
    assert_ok(config_copy(config_log_last(log), &copy));
    assert_ok(config_log_new(&late));
    assert_ok(config_log_add(late, &copy, &(struct digest){.byte = {4}}));
    certificate_rule_of(late, 0, 3, &rule);
    assert_int_equal(rule.count, 1);
    assert_true(certificate_forged(&rule, &subject, &certificate));
    certificate_row_sign(configs_ident(PLAIN), &subject, certificate.rows[1].signature);
    assert_false(certificate_forged(&rule, &subject, &certificate));
    config_log_free(late);
    config_log_free(log);
}

/* Who has changed its key twice may be heard late with the first one. */
static void no_key_that_a_member_had_is_a_lie(void **state)
{
    (void)state;
    struct config_log *log = log_across();
    struct certificates *certificates;
    struct certificate known;
    uint8_t signature[IDENT_SIGNATURE_BYTES];
    memset(&last, 0, sizeof last); /* the log's */
    memset(&next, 0, sizeof next);
    change_again(log);
    const struct config *newest = config_log_last(log);
    const struct certificates_conf conf = {
        .config_log = log, .ident = configs_ident(OTHER), .nonce = newest->nonce, .id = OTHER, .fragments_count = 1};
    const struct certificate_subject subject = {.nonce = newest->nonce, .version = 100, .hash = hash_of(7)};
    static const struct {
        uint32_t signer;
        bool had;
    } rows[] = {{PLAIN, true}, {NEXT, true}, {OTHER, false}};
    assert_ok(certificates_new(&conf, &certificates));
    for (int i = 0; i < 3; i++) {
        struct member_word word = {.number = 8, .uplink = 5};
        member_word_sign(configs_ident(rows[i].signer), newest->nonce, PLAIN, &word);
        assert_int_equal(config_word_of_other_key(newest, PLAIN, &word), rows[i].had);
        certificate_row_sign(configs_ident(rows[i].signer), &subject, signature);
        certificates_heard(certificates, PLAIN, &subject, signature);
        certificates_known(certificates, &subject, &known);
        assert_int_equal(known.count, 0);
        assert_int_equal(certificates_take_false(certificates, PLAIN), rows[i].had ? 0 : 1);
    }
    certificates_free(certificates);
    config_log_free(log);
}

/* Each costs the check of a signature, whoever says so. */
static void of_the_keys_that_a_member_had_the_last_few_are_tried(void **state)
{
    (void)state;
    enum { LEFT = CONFIG_LEFT_MAX + 2 };
    state_plain();
    assert_ok(mem_grow(&last.retired, last.retired_count, 2 * LEFT, sizeof *last.retired, "retired keys"));
    for (uint32_t i = 0; i < 2 * LEFT; i++) {
        last.retired[i] = (struct config_retired){.id = i % 2 == 0 ? PLAIN : OTHER, .epoch = 1};
        memcpy(last.retired[i].key, configs_ident(50 + i)->key, IDENT_KEY_BYTES);
    }
    last.retired_count = 2 * LEFT;
    assert_memory_equal(config_other_key(&last, PLAIN, 0), configs_ident(NEXT)->key, IDENT_KEY_BYTES);
    for (uint32_t k = 0; k < CONFIG_LEFT_MAX; k++) {
        const uint8_t *key = configs_ident(50 + 2 * (LEFT - 1 - k))->key;
        assert_memory_equal(config_other_key(&last, PLAIN, 1 + k), key, IDENT_KEY_BYTES);
        key = configs_ident(51 + 2 * (LEFT - 1 - k))->key; /* who states none */
        assert_memory_equal(config_other_key(&last, OTHER, k), key, IDENT_KEY_BYTES);
    }
    assert_null(config_other_key(&last, PLAIN, 1 + CONFIG_LEFT_MAX));
    assert_null(config_other_key(&last, OTHER, CONFIG_LEFT_MAX));
    assert_null(config_other_key(&last, FOUNDER, 0));
    last.retired_count = 2 * LEFT - 1; /* one of another is the last */
    assert_memory_equal(config_other_key(&last, OTHER, 0), configs_ident(51 + 2 * (LEFT - 2))->key, IDENT_KEY_BYTES);
}

/* Others take our version's signature by the key that the newest configuration names. */
static void our_own_are_signed_again(void **state)
{
    (void)state;
    struct config_log *log, *across;
    struct certificates *certificates;
    struct config_log *before;
    uint8_t old[IDENT_SIGNATURE_BYTES], new[IDENT_SIGNATURE_BYTES];
    struct digest hash = hash_of(7);
    struct ident ident = *configs_ident(PLAIN);
    struct config first;
    across = log_across();
    assert_ok(config_copy(config_log_at(across, EPOCH + 1), &first));
    assert_ok(config_log_new(&before));
    assert_ok(config_log_add(before, &first, &(struct digest){.byte = {1}}));
    log = before;
    struct certificates_conf conf = {
        .config_log = log, .ident = &ident, .nonce = config_log_last(across)->nonce, .id = PLAIN, .fragments_count = 1};
    assert_ok(certificates_new(&conf, &certificates));
    assert_true(certificates_own(certificates, 0, 3, &hash, old));
    struct config second;
    assert_ok(config_copy(config_log_last(across), &second));
    assert_ok(config_log_add(log, &second, &(struct digest){.byte = {2}}));
    ident = *configs_ident(NEXT);
    certificates_begin_epoch(certificates);
    assert_true(certificates_own(certificates, 0, 3, &hash, new));
    const struct certificate_subject subject = {.nonce = conf.nonce, .version = 3, .hash = hash};
    assert_true(certificate_row_good(configs_ident(PLAIN)->key, &subject, old));
    assert_true(certificate_row_good(configs_ident(NEXT)->key, &subject, new));
    struct certificate known;
    certificates_heard(certificates, OTHER, &subject, old); /* somebody else's, forged */
    certificates_known(certificates, &subject, &known);
    assert_int_equal(known.count, 1);
    assert_int_equal(certificates_take_false(certificates, OTHER), 1); /* it is to blame */
    assert_int_equal(certificates_take_false(certificates, OTHER), 0);
    certificates_free(certificates);
    /* Nor is who has signed by its key before, of a version of the epoch that gives it another one. */
    const struct certificate_subject later = {.nonce = conf.nonce, .version = 100, .hash = hash};
    conf.id = OTHER;
    assert_ok(certificates_new(&conf, &certificates));
    certificate_row_sign(configs_ident(PLAIN), &later, old);
    certificates_heard(certificates, PLAIN, &later, old);
    certificates_known(certificates, &later, &known);
    assert_int_equal(known.count, 0);
    assert_int_equal(certificates_take_false(certificates, PLAIN), 0);
    certificate_row_sign(configs_ident(OTHER), &later, old);
    certificates_heard(certificates, PLAIN, &later, old);
    certificates_known(certificates, &later, &known);
    assert_int_equal(certificates_take_false(certificates, PLAIN), 1);
    certificates_free(certificates);
    config_log_free(log);
    config_log_free(across);
    memset(&last, 0, sizeof last);
    memset(&next, 0, sizeof next);
}

/* By either key that it has in the two configurations, and by the last one that it said. */
static void of_a_voter_both_keys_are_kept(void **state)
{
    (void)state;
    struct config_log *log = log_across();
    struct certificates *certificates;
    struct certificate known;
    uint8_t signature[IDENT_SIGNATURE_BYTES];
    const struct certificate_subject subject = {.nonce = config_log_last(log)->nonce, .version = 3, .hash = hash_of(7)};
    const struct certificates_conf conf = {
        .config_log = log, .ident = configs_ident(OTHER), .nonce = subject.nonce, .id = OTHER, .fragments_count = 1};
    assert_ok(certificates_new(&conf, &certificates));
    const uint32_t both[] = {PLAIN, NEXT};
    for (int i = 0; i < 2; i++) {
        certificate_row_sign(configs_ident(both[i]), &subject, signature);
        certificates_heard(certificates, PLAIN, &subject, signature);
        certificates_known(certificates, &subject, &known);
        assert_int_equal(known.count, 1);
        assert_memory_equal(known.rows[0].signature, signature, sizeof signature);
        assert_int_equal(certificates_take_false(certificates, PLAIN), 0);
    }
    certificates_free(certificates);
    config_log_free(log);
    memset(&last, 0, sizeof last);
    memset(&next, 0, sizeof next);
}

static enum err follow(void *context)
{
    (void)context;
    return config_orders_follow(&last, &next);
}

static void every_path_without_memory_is_clean(void **state)
{
    (void)state;
    state_plain();
    struct order order = rekey_of(FOUNDER, PLAIN, NEXT);
    carry_out(&order);
    outofmem_walk(follow, NULL);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        CASE(old_key_new_key_and_an_operator_sign),
        CASE(a_new_key_signs_that_it_is_there),
        CASE(the_last_word_counts),
        CASE(what_the_old_key_signed_counts_no_more),
        CASE(a_key_is_one_member_s),
        CASE(of_an_operator_the_founder_or_a_majority_disposes),
        CASE(so_many_retired_keys_are_kept),
        CASE(what_the_old_key_certified_stands),
        CASE(who_came_to_a_version_an_epoch_early_forges_nothing),
        CASE(a_signature_by_the_key_that_is_stated_is_not_forged),
        CASE(who_votes_no_more_forges_nothing_by_the_key_that_it_has),
        CASE(a_new_key_counts_in_the_epoch_of_the_version),
        CASE(who_has_a_signature_by_a_key_in_between_forges_nothing),
        CASE(no_key_that_a_member_had_is_a_lie),
        CASE(of_the_keys_that_a_member_had_the_last_few_are_tried),
        CASE(our_own_are_signed_again),
        CASE(of_a_voter_both_keys_are_kept),
        CASE(every_path_without_memory_is_clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
