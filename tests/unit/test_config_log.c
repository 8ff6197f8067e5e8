/* SPDX-License-Identifier: Apache-2.0 */
/* config_log: configurations in order, the epoch of a version, and the parts of one: disjoint, of all shards, with what
 * is carried.
 */
#include "tests/lib/testlib.h"

#include <string.h>

#include "common/digest.h"
#include "net/config/config_log.h"
#include "tests/lib/outofmem.h"
#include "tests/lib/sample_configs.h"

enum { FRAGMENTS = 3 };

static void add(struct config_log *config_log, struct config config)
{
    struct digest digest = configs_digest(&config);
    assert_ok(config_log_add(config_log, &config, &digest));
    assert_null(config.members); /* taken over */
}

/* Epoch 0 of three owners; epoch 1 from versions 4, 0 and 7 without m2; epoch 2 from 4, 0 and 9 with all again. */
static struct config_log *of_three_epochs(void)
{
    static const uint32_t two[] = {0, 1}, three[] = {0, 1, 2};
    static const uint64_t starts[][FRAGMENTS] = {{4, 0, 7}, {4, 0, 9}};
    struct config_log *config_log;
    assert_ok(config_log_new(&config_log));
    add(config_log, configs_first(3, false));
    struct config next = configs_next(config_log_last(config_log));
    configs_map(&next, two, 2);
    for (uint32_t f = 0; f < FRAGMENTS; f++)
        configs_start(&next, f, starts[0][f]);
    configs_carry(&next, 0, 2, 0, 0xffffull << 48);
    configs_carry(&next, 0, 0, 0, 0xffff);
    add(config_log, next);
    next = configs_next(config_log_last(config_log));
    for (uint32_t f = 0; f < FRAGMENTS; f++)
        configs_start(&next, f, starts[1][f]);
    configs_map(&next, three, 3);
    configs_carry(&next, 0, 0, 1, 0xff0000);
    configs_carry(&next, 2, 1, 1, ~0ull);
    add(config_log, next);
    return config_log;
}

static void configs_stand_in_order(void **state)
{
    (void)state;
    struct config_log *empty;
    assert_ok(config_log_new(&empty));
    assert_null(config_log_last(empty));
    assert_null(config_log_last_digest(empty));
    assert_null(config_log_at(empty, 0));
    config_log_forget(empty, 5);
    config_log_free(empty);
    config_log_free(NULL);
    struct config_log *config_log = of_three_epochs();
    struct digest digest = configs_digest(config_log_last(config_log));
    assert_true(digest_equal(&digest, config_log_last_digest(config_log)));
    for (uint64_t e = 0; e < 3; e++)
        assert_true(config_log_at(config_log, e) != NULL && config_log_at(config_log, e)->epoch == e);
    assert_null(config_log_at(config_log, 3));
    assert_ptr_equal(config_log_at(config_log, 2), config_log_last(config_log));
    config_log_forget(config_log, 1);
    assert_null(config_log_at(config_log, 0));
    assert_int_equal(config_log_at(config_log, 1)->epoch, 1);
    config_log_forget(config_log, 99); /* the last one stays */
    assert_int_equal(config_log_last(config_log)->epoch, 2);
    assert_null(config_log_at(config_log, 1));
    for (int i = 0; i < 40; i++)
        add(config_log, configs_next(config_log_last(config_log)));
    assert_int_equal(config_log_last(config_log)->epoch, 42);
    config_log_forget(config_log, 30);
    assert_int_equal(config_log_at(config_log, 30)->epoch, 30);
    config_log_free(config_log);
}

static void a_configuration_that_does_not_follow_is_refused(void **state)
{
    (void)state;
    struct config_log *config_log = of_three_epochs();
#define REFUSED(text, change)                                              \
    do {                                                                   \
        struct config r = configs_next(config_log_last(config_log));       \
        change;                                                            \
        struct digest d = configs_digest(&r);                              \
        assert_fails(ERR_PROTO, text, config_log_add(config_log, &r, &d)); \
        assert_non_null(r.members); /* still the caller's */               \
        assert_int_equal(config_log_last(config_log)->epoch, 2);           \
        config_deinit(&r);                                                 \
    } while (0)
    REFUSED("configuration 4 where 3 is due", r.epoch = 4);
    REFUSED("configuration 2 where 3 is due", r.epoch = 2);
    REFUSED("follows another one", r.previous.byte[0] ^= 1);
    REFUSED("another run", r.nonce[0]++);
    REFUSED("goes back to version 8 of fragment 2", (r.starts[2] = 8, r.carried_count--));
    /* Version 5 of fragment 0 is not complete: what stands of it stands. */
    REFUSED("drops the result of 2 for fragment 0, version 5", (r.carried[2] = r.carried[3], r.carried_count--));
    REFUSED("drops the result of 0 for fragment 0, version 5", r.carried[1].shards = 0x0f0000);
    struct config next = configs_next(config_log_last(config_log));
    next.starts[0] = 5; /* complete */
    next.carried[0] = next.carried[3];
    next.carried_count = 1;
    add(config_log, next);
    config_log_free(config_log);
    /* The first one may be any. */
    struct config late = configs_first(2, false);
    late.epoch = 77;
    late.previous = digest_of("76", 2);
    assert_ok(config_log_new(&config_log));
    add(config_log, late);
    assert_int_equal(config_log_last(config_log)->epoch, 77);
    config_log_free(config_log);
}

static void assert_epoch(const struct config_log *config_log, uint32_t fragment, uint64_t version, uint64_t want)
{
    uint64_t epoch = 1000;
    assert_true(config_log_epoch(config_log, fragment, version, &epoch));
    assert_int_equal(epoch, want);
}

static void every_version_belongs_to_one_epoch(void **state)
{
    (void)state;
    uint64_t epoch;
    struct config_log *config_log = of_three_epochs();
    /* fragment, version, epoch: on both sides of every start */
    static const uint64_t cases[][3] = {{0, 0, 0},  {0, 1, 0},     {0, 4, 0}, {0, 5, 2}, {0, 6, 2},
                                        {1, 0, 0},  {1, 1, 2},     {2, 7, 0}, {2, 8, 1}, {2, 9, 1},
                                        {2, 10, 2}, {2, ~0ull, 2}, {9, 0, 0}, {9, 1, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_epoch(config_log, (uint32_t)cases[i][0], cases[i][1], cases[i][2]);
    config_log_forget(config_log, 1);
    assert_false(config_log_epoch(config_log, 2, 7, &epoch));
    assert_false(config_log_epoch(config_log, 2, 0, &epoch));
    assert_false(config_log_epoch(config_log, 0, 4, &epoch));
    assert_epoch(config_log, 2, 8, 1);
    assert_epoch(config_log, 1, 0, 1); /* it starts from there */
    config_log_free(config_log);
    assert_ok(config_log_new(&config_log));
    assert_false(config_log_epoch(config_log, 0, 0, &epoch));
    assert_false(config_log_epoch(config_log, 0, 1, &epoch));
    config_log_free(config_log);
}

/* ---- parts ---- */

static uint32_t parts_of(const struct config_log *config_log, uint32_t fragment, uint32_t shards_count,
                         uint64_t version, struct version_part *parts)
{
    uint32_t count = config_log_parts(config_log, fragment, shards_count, version, parts);
    uint64_t seen = 0;
    for (uint32_t i = 0; i < count; i++) {
        assert_true(parts[i].shards != 0 && (seen & parts[i].shards) == 0);
        seen |= parts[i].shards;
        if (i > 0 && !parts[i - 1].carried)
            assert_true(!parts[i].carried && parts[i].id.owner > parts[i - 1].id.owner);
    }
    if (count > 0)
        assert_true(seen == ~0ull >> (64 - shards_count));
    return count;
}

static void assert_part(const struct version_part *part, uint32_t owner, uint64_t epoch, uint64_t shards, bool carried)
{
    assert_int_equal(part->id.owner, owner);
    assert_int_equal(part->id.epoch, epoch);
    assert_true(part->shards == shards);
    assert_true(part->carried == carried);
}

/* m0 has slots 0 to 21, m1 to 42, m2 to 63; of two, m0 has 0 to 31. */
static void parts_are_the_owners_of_the_epoch_and_what_it_carries(void **state)
{
    (void)state;
    struct config_log *config_log = of_three_epochs();
    struct version_part parts[VERSION_PARTS_MAX];
    assert_int_equal(parts_of(config_log, 0, 64, 4, parts), 3);
    assert_part(&parts[0], 0, 0, 0x3fffffull, false);
    assert_part(&parts[1], 1, 0, 0x1fffffull << 22, false);
    assert_part(&parts[2], 2, 0, 0x1fffffull << 43, false);
    /* Version 5 of fragment 0: what m0 and m2 made in epoch 0 and m0 in epoch 1 stands; the rest is made in epoch 2,
     * by m1 and m2: all that m0 owns is there already. */
    assert_int_equal(parts_of(config_log, 0, 64, 5, parts), 5);
    assert_part(&parts[0], 0, 0, 0xffff, true);
    assert_part(&parts[1], 0, 1, 0xff0000, true);
    assert_part(&parts[2], 2, 0, 0xffffull << 48, true);
    assert_part(&parts[3], 1, 2, 0x7ffffull << 24, false);
    assert_part(&parts[4], 2, 2, 0x1full << 43, false);
    for (int i = 0; i < 3; i++)
        assert_true(digest_equal(&parts[i].id.digest, &config_log_last(config_log)->carried[i].id.digest));
    /* The version after that has nothing carried. */
    assert_int_equal(parts_of(config_log, 0, 64, 6, parts), 3);
    assert_part(&parts[0], 0, 2, 0x3fffff, false);
    /* All of it carried. */
    assert_int_equal(parts_of(config_log, 2, 64, 10, parts), 1);
    assert_part(&parts[0], 1, 1, ~0ull, true);
    /* In epoch 1. */
    assert_int_equal(parts_of(config_log, 2, 64, 9, parts), 2);
    assert_part(&parts[0], 0, 1, 0xffffffff, false);
    assert_part(&parts[1], 1, 1, 0xffffffffull << 32, false);
    assert_int_equal(parts_of(config_log, 2, 64, 0, parts), 0);
    assert_int_equal(parts_of(config_log, 2, 0, 9, parts), 0);
    assert_int_equal(parts_of(config_log, 2, 65, 9, parts), 0);
    config_log_forget(config_log, 1);
    assert_int_equal(parts_of(config_log, 2, 64, 7, parts), 0);
    config_log_free(config_log);
}

static void parts_of_any_number_of_shards_cover_them(void **state)
{
    (void)state;
    struct config_log *config_log;
    struct version_part parts[VERSION_PARTS_MAX];
    struct env_rng rng = env_rng_init(11, 12);
    for (uint32_t owners = 1; owners <= CONFIG_OWNERS_MAX; owners += 9) {
        assert_ok(config_log_new(&config_log));
        add(config_log, configs_first(owners, false));
        struct config next = configs_next(config_log_last(config_log));
        uint64_t free_shards = ~0ull;
        for (uint32_t i = 0; i < owners; i++) {
            uint64_t these = env_rng_u64(&rng) & env_rng_u64(&rng) & free_shards;
            free_shards &= ~these;
            if (these != 0)
                configs_carry(&next, i % 2, i, 0, these);
        }
        add(config_log, next);
        for (uint32_t shards = 1; shards <= 64; shards++)
            for (uint32_t fragment = 0; fragment < 5; fragment++)
                for (uint64_t version = 1; version < 3; version++)
                    assert_true(parts_of(config_log, fragment, shards, version, parts) > 0);
        config_log_free(config_log);
    }
}

static void nobody_makes_what_nobody_owns(void **state)
{
    (void)state;
    struct config_log *config_log;
    struct version_part parts[VERSION_PARTS_MAX];
    assert_ok(config_log_new(&config_log));
    add(config_log, configs_first(2, false));
    struct config next = configs_next(config_log_last(config_log));
    configs_map(&next, NULL, 0);
    next.members[0].role = CONFIG_AWAY;
    next.members[0].voter = true;
    configs_carry(&next, 0, 1, 0, ~0ull);
    configs_carry(&next, 1, 1, 0, ~1ull);
    assert_ok(config_check(&next));
    add(config_log, next);
    assert_int_equal(parts_of(config_log, 0, 64, 1, parts), 1);
    assert_int_equal(parts_of(config_log, 0, 64, 2, parts), 0);
    /* What is carried is told and kept; the other shard has to wait. */
    assert_int_equal(parts_of(config_log, 1, 64, 1, parts), 2);
    assert_part(&parts[0], 1, 0, ~1ull, true);
    assert_part(&parts[1], SHARDMAP_NOBODY, 1, 1, false);
    config_log_free(config_log);
}

static enum err make_config_log(void *user)
{
    const struct config *first = user;
    struct config_log *config_log;
    struct config config;
    struct digest digest = digest_of("any", 3);
    TRY(config_log_new(&config_log));
    enum err err = config_copy(first, &config);
    for (int i = 0; err == ERR_OK && i < 20; i++) {
        err = config_log_add(config_log, &config, &digest);
        if (err == ERR_OK)
            err = config_copy(config_log_last(config_log), &config);
        config.epoch++;
        config.previous = digest;
    }
    config_deinit(&config);
    config_log_free(config_log);
    return err;
}

static void every_path_without_memory_is_clean(void **state)
{
    (void)state;
    struct config first = configs_first(2, false);
    print_message("%zu allocations failed in turn\n", outofmem_walk(make_config_log, &first));
    config_deinit(&first);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(configs_stand_in_order),
        cmocka_unit_test(a_configuration_that_does_not_follow_is_refused),
        cmocka_unit_test(every_version_belongs_to_one_epoch),
        cmocka_unit_test(parts_are_the_owners_of_the_epoch_and_what_it_carries),
        cmocka_unit_test(parts_of_any_number_of_shards_cover_them),
        cmocka_unit_test(nobody_makes_what_nobody_owns),
        cmocka_unit_test(every_path_without_memory_is_clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
