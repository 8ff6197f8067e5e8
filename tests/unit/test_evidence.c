/* SPDX-License-Identifier: Apache-2.0 */
/* evidence: two signed results of one part, as bytes that anybody can check; and kept on disk. */
#include "tests/lib/testlib.h"

#include <string.h>

#include "common/digest.h"
#include "common/mem.h"
#include "daemon/membership/config_store.h"
#include "net/membership/evidence.h"
#include "tests/lib/sample_configs.h"

enum { FRAME_BYTES = 3000, OBJECT_BYTES = 4096 };

static struct ident owner, other;
static uint8_t nonce[WIRE_NONCE_BYTES];

/* A result of the owner's part: the frame need not be one. */
static size_t result_of(const struct ident *ident, uint64_t version, uint8_t content, uint8_t *object)
{
    uint8_t contributors[WIRE_CONTRIBUTOR_BYTES];
    struct wire_contributor one = {.id = 3, .tokens = 10};
    struct wire_meta meta = {.step = 5, .contributors = contributors, .contributors_count = 1};
    struct wire_object what = {
        .key = {.kind = WIRE_RESULT, .fragment = 1, .version = version, .epoch = 2, .owner = 9, .island = 9},
        .shards = 6};
    size_t bytes;
    struct digest digest;
    wire_contributor_put(contributors, 0, &one);
    memcpy(what.nonce, nonce, sizeof nonce);
    memset(wire_object_frame(object), content, FRAME_BYTES);
    assert_ok(wire_object_seal(&what, &meta, ident, object, FRAME_BYTES, &bytes, &digest));
    return bytes;
}

static size_t make(const struct ident *first, const struct ident *second, uint64_t version, uint8_t content,
                   uint8_t **evidence)
{
    static uint8_t a[OBJECT_BYTES], b[OBJECT_BYTES];
    size_t a_bytes = result_of(first, 7, 1, a), b_bytes = result_of(second, version, content, b), count;
    assert_ok(evidence_make(a, a_bytes, b, b_bytes, evidence, &count));
    return count;
}

static enum err check(const uint8_t *evidence, size_t count)
{
    struct wire_object first, second;
    TRY(evidence_open(evidence, count, &first, &second));
    return evidence_check(&first, &second, nonce, owner.key);
}

static void two_signed_results_of_one_part_are_evidence(void **state)
{
    (void)state;
    uint8_t *evidence;
    size_t count = make(&owner, &owner, 7, 2, &evidence);
    assert_true(count < 1000); /* without their payloads */
    assert_ok(check(evidence, count));
    mem_free(evidence);
}

static void anything_else_is_none(void **state)
{
    (void)state;
    uint8_t *evidence;
    size_t count = make(&owner, &owner, 7, 1, &evidence);
    assert_fails(ERR_PROTO, "one result", check(evidence, count)); /* the same twice */
    mem_free(evidence);
    count = make(&owner, &owner, 8, 2, &evidence);
    assert_fails(ERR_PROTO, "another object", check(evidence, count)); /* of two versions */
    mem_free(evidence);
    count = make(&owner, &other, 7, 2, &evidence);
    assert_fails(ERR_PROTO, "sign", check(evidence, count)); /* one is somebody else's */
    mem_free(evidence);
    count = make(&owner, &owner, 7, 2, &evidence);
    nonce[0] ^= 1;
    assert_fails(ERR_PROTO, "another run", check(evidence, count));
    nonce[0] ^= 1;
    for (size_t k = 0; k < count; k++) { /* every byte of it counts */
        evidence[k] ^= 4;
        assert_int_equal(check(evidence, count), ERR_PROTO);
        evidence[k] ^= 4;
        assert_int_equal(check(evidence, k), ERR_PROTO);
    }
    mem_free(evidence);
}

/* An owner with another key has not got rid of what it signed by the one before. */
static void another_key_takes_nothing_back(void **state)
{
    (void)state;
    struct config_log *log;
    struct wire_object first, second;
    struct ident next;
    uint8_t *evidence;
    size_t count = make(&owner, &owner, 7, 2, &evidence);
    assert_ok(evidence_open(evidence, count, &first, &second));
    for (int known = 0; known < 2; known++) {
        struct config config = configs_first(10, false);
        memcpy(config.nonce, nonce, sizeof nonce);
        assert_ok(ident_generate(&next));
        assert_ok(config_log_new(&log));
        if (known) { /* the epoch of the results */
            struct config then = configs_first(10, false);
            memcpy(then.nonce, nonce, sizeof nonce);
            memcpy(then.members[9].key, owner.key, sizeof owner.key);
            then.epoch = 2;
            assert_ok(config_log_add(log, &then, &(struct digest){.byte = {1}}));
            config.previous = (struct digest){.byte = {1}};
            config.epoch = 3;
            memcpy(config.members[9].key, owner.key, sizeof owner.key);
        } else {
            config.epoch = 30;
            memcpy(config.members[9].key, next.key, sizeof next.key);
            assert_ok(mem_new(2, sizeof *config.retired, "retired keys", &config.retired));
            config.retired[0].id = 9;
            config.retired[0].epoch = 3;
            memcpy(config.retired[0].key, owner.key, sizeof owner.key);
            config.retired[1].id = 8;
            config.retired[1].epoch = 4;
            memcpy(config.retired[1].key, other.key, sizeof other.key);
            config.retired_count = 2;
        }
        assert_ok(config_log_add(log, &config, &(struct digest){.byte = {2}}));
        assert_ok(evidence_check_of(&first, &second, log));
        config_log_free(log);
    }
    struct config early = configs_first(10, false); /* and with it nobody signs for an epoch that is to come */
    memcpy(early.nonce, nonce, sizeof nonce);
    early.epoch = 1;
    assert_ok(mem_new(1, sizeof *early.retired, "retired keys", &early.retired));
    early.retired[0].id = 9;
    early.retired[0].epoch = 1;
    memcpy(early.retired[0].key, owner.key, sizeof owner.key);
    early.retired_count = 1;
    assert_ok(config_log_new(&log));
    assert_ok(config_log_add(log, &early, &(struct digest){.byte = {2}}));
    assert_fails(ERR_PROTO, "not signed by its owner", evidence_check_of(&first, &second, log));
    config_log_free(log);
    mem_free(evidence);
    count = make(&other, &other, 7, 2, &evidence); /* the key that another member had */
    assert_ok(evidence_open(evidence, count, &first, &second));
    struct config config = configs_first(10, false);
    memcpy(config.nonce, nonce, sizeof nonce);
    assert_ok(mem_new(1, sizeof *config.retired, "retired keys", &config.retired));
    config.retired[0].id = 8;
    config.retired[0].epoch = 3;
    memcpy(config.retired[0].key, other.key, sizeof other.key);
    config.retired_count = 1;
    config.epoch = 30;
    assert_ok(config_log_new(&log));
    assert_ok(config_log_add(log, &config, &(struct digest){.byte = {2}}));
    assert_fails(ERR_PROTO, "sign", evidence_check_of(&first, &second, log));
    config_log_free(log);
    mem_free(evidence);
}

/* Somebody has found a key that the owner has left: of epochs after that it is worth nothing, whoever does not know
 * them any more. */
static void a_key_that_was_left_proves_nothing_of_epochs_after_that(void **state)
{
    (void)state;
    struct wire_object first, second;
    uint8_t *evidence;
    size_t count = make(&owner, &owner, 7, 2, &evidence); /* of epoch 2 */
    assert_ok(evidence_open(evidence, count, &first, &second));
    static const struct {
        uint64_t left[2]; /* the epochs in which it left two keys */
        int found;        /* which of them, the third one being its present one, signed this */
        bool proves;
    } rows[] = {{{2, 9}, 0, false}, {{2, 9}, 1, true},  {{1, 2}, 1, false}, {{1, 2}, 2, true},
                {{3, 9}, 0, true},  {{3, 9}, 1, false}, {{3, 9}, 2, false}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct config_log *log;
        struct config config = configs_first(10, false);
        memcpy(config.nonce, nonce, sizeof nonce);
        config.epoch = 30;
        assert_ok(mem_new(2, sizeof *config.retired, "retired keys", &config.retired));
        config.retired_count = 2;
        for (int k = 0; k < 3; k++) {
            uint8_t *key = k < 2 ? config.retired[k].key : config.members[9].key;
            memcpy(key, k == rows[i].found ? owner.key : configs_ident(60 + (uint32_t)k)->key, sizeof owner.key);
        }
        for (int k = 0; k < 2; k++) {
            config.retired[k].id = 9;
            config.retired[k].epoch = rows[i].left[k];
        }
        assert_ok(config_log_new(&log));
        assert_ok(config_log_add(log, &config, &(struct digest){.byte = {2}}));
        assert_int_equal(evidence_check_of(&first, &second, log), rows[i].proves ? ERR_OK : ERR_PROTO);
        config_log_free(log);
    }
    mem_free(evidence);
}

/* Whoever came later made no result of that epoch, whatever its key signs: as one that was found might. */
static void who_was_not_there_yet_made_nothing(void **state)
{
    (void)state;
    struct wire_object first, second;
    struct config_log *log;
    uint8_t *evidence;
    size_t count = make(&owner, &owner, 7, 2, &evidence); /* of epoch 2 */
    assert_ok(evidence_open(evidence, count, &first, &second));
    for (int left = 0; left < 2; left++) {
        struct config then = configs_first(9, false), config = configs_first(10, false);
        memcpy(then.nonce, nonce, sizeof nonce);
        memcpy(config.nonce, nonce, sizeof nonce);
        then.epoch = 2;
        config.epoch = 3;
        config.previous = (struct digest){.byte = {1}};
        if (left) { /* it has left the key since */
            assert_ok(mem_new(1, sizeof *config.retired, "retired keys", &config.retired));
            config.retired[0] = (struct config_retired){.id = 9, .epoch = 3};
            memcpy(config.retired[0].key, owner.key, sizeof owner.key);
            config.retired_count = 1;
        } else {
            memcpy(config.members[9].key, owner.key, sizeof owner.key);
        }
        assert_ok(config_log_new(&log));
        assert_ok(config_log_add(log, &then, &(struct digest){.byte = {1}}));
        assert_ok(config_log_add(log, &config, &(struct digest){.byte = {2}}));
        assert_fails(ERR_PROTO, "was not on the roster in epoch 2", evidence_check_of(&first, &second, log));
        config_log_free(log);
    }
    mem_free(evidence);
}

static void it_is_kept(void **state)
{
    (void)state;
    const char *folder = testlib_folder("evidence");
    uint8_t *evidence, *back;
    size_t count = make(&owner, &owner, 7, 2, &evidence), back_count;
    assert_int_equal(config_store_load_evidence(folder, 9, &back, &back_count), ERR_NOTFOUND);
    assert_ok(config_store_save_evidence(folder, 9, evidence, count));
    assert_ok(config_store_load_evidence(folder, 9, &back, &back_count));
    assert_int_equal(back_count, count);
    assert_memory_equal(back, evidence, count);
    mem_free(back);
    assert_int_equal(config_store_load_evidence(folder, 8, &back, &back_count), ERR_NOTFOUND);
    mem_free(evidence);
}

int main(void)
{
    assert_ok(digest_init());
    assert_ok(ident_generate(&owner));
    assert_ok(ident_generate(&other));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_signed_results_of_one_part_are_evidence),
        cmocka_unit_test(anything_else_is_none),
        cmocka_unit_test(another_key_takes_nothing_back),
        cmocka_unit_test(a_key_that_was_left_proves_nothing_of_epochs_after_that),
        cmocka_unit_test(who_was_not_there_yet_made_nothing),
        cmocka_unit_test(it_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
