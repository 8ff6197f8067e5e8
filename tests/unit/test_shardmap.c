/* SPDX-License-Identifier: Apache-2.0 */
/* shardmap: slots in proportion to weights, as few changes of hands as can be, what one owns beside each other, and the
 * slots on which the shards of a fragment lie. */
#include "tests/lib/testlib.h"

#include <string.h>

#include "common/shardmap.h"

static uint32_t slots_of(const struct shardmap *map, uint32_t id)
{
    uint32_t count = 0;
    for (int i = 0; i < SHARDMAP_SLOTS; i++)
        count += map->owner[i] == id;
    return count;
}

/* How often the owner changes from one slot to the next. */
static uint32_t borders_of(const struct shardmap *map)
{
    uint32_t count = 0;
    for (int i = 1; i < SHARDMAP_SLOTS; i++)
        count += map->owner[i] != map->owner[i - 1];
    return count;
}

static uint32_t moved(const struct shardmap *before, const struct shardmap *after)
{
    uint32_t count = 0;
    for (int i = 0; i < SHARDMAP_SLOTS; i++)
        count += before->owner[i] != after->owner[i];
    return count;
}

static void slots_are_given_in_proportion(void **state)
{
    (void)state;
    static const uint64_t weights[] = {1000000000, 10000000000, 0, 2500000000};
    struct shardmap map = shardmap_of(weights, 4);
    /* 4.74, 47.41, 0 and 11.85 of 64 */
    assert_int_equal(slots_of(&map, 0), 5);
    assert_int_equal(slots_of(&map, 1), 47);
    assert_int_equal(slots_of(&map, 2), 0);
    assert_int_equal(slots_of(&map, 3), 12);
    assert_int_equal(borders_of(&map), 2); /* each has one run, in order */
    assert_int_equal(map.owner[0], 0);
    assert_int_equal(map.owner[SHARDMAP_SLOTS - 1], 3);
    static const uint64_t huge[] = {UINT64_MAX, UINT64_MAX, UINT64_MAX};
    map = shardmap_of(huge, 3);
    assert_int_equal(slots_of(&map, 0), 22); /* of equal remainders the first */
    assert_int_equal(slots_of(&map, 1), 21);
    assert_int_equal(slots_of(&map, 2), 21);
    static const uint64_t none[] = {0, 0, 0, 0};
    map = shardmap_of(none, 4);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(slots_of(&map, i), 16);
}

static void who_leaves_loses_its_slots_and_nobody_else_any(void **state)
{
    (void)state;
    struct shardmap_owner owners[] = {{7, 10}, {300000, 10}, {12, 20}, {5, 24}};
    struct shardmap before = shardmap_empty(), after;
    shardmap_assign(&before, owners, 4);
    after = before;
    shardmap_assign(&after, owners, 4);
    assert_memory_equal(&before, &after, sizeof before);
    struct shardmap_owner left[] = {owners[0], owners[2], owners[3]};
    shardmap_assign(&after, left, 3);
    assert_int_equal(slots_of(&after, 300000), 0);
    assert_int_equal(moved(&before, &after), slots_of(&before, 300000));
    assert_int_equal(slots_of(&after, 7), 12); /* 11.9, 23.7 and 28.4 of 64 */
    assert_int_equal(slots_of(&after, 12), 24);
    assert_int_equal(slots_of(&after, 5), 28);
    assert_true(borders_of(&after) <= 4);
}

static void who_comes_takes_no_more_than_its_part(void **state)
{
    (void)state;
    struct shardmap_owner owners[] = {{1, 1}, {2, 1}, {3, 2}};
    struct shardmap before = shardmap_empty(), after;
    shardmap_assign(&before, owners, 2);
    after = before;
    shardmap_assign(&after, owners, 3);
    assert_int_equal(slots_of(&after, 3), 32);
    assert_int_equal(moved(&before, &after), 32);
    assert_int_equal(slots_of(&after, 1), 16);
    assert_int_equal(slots_of(&after, 2), 16);
}

/* Many come and go: nobody ever has more or less than its part, no slot is lost, and as few move as can be. */
static void any_sequence_keeps_to_the_quotas(void **state)
{
    (void)state;
    struct env_rng rng = env_rng_init(11, 0);
    struct shardmap map = shardmap_empty();
    for (int round = 0; round < 2000; round++) {
        struct shardmap_owner owners[SHARDMAP_OWNERS_MAX];
        uint32_t count = 1 + (uint32_t)(env_rng_u64(&rng) % SHARDMAP_OWNERS_MAX), needed = 0, given = 0;
        struct shardmap before = map;
        for (uint32_t i = 0; i < count; i++)
            owners[i] = (struct shardmap_owner){.id = 10 + i * 3 + (uint32_t)(env_rng_u64(&rng) % 3),
                                                .weight = env_rng_u64(&rng) % 1000};
        shardmap_assign(&map, owners, count);
        double total = 0;
        for (uint32_t i = 0; i < count; i++)
            total += (double)owners[i].weight;
        for (uint32_t i = 0; i < count; i++) {
            uint32_t has = slots_of(&map, owners[i].id), had = slots_of(&before, owners[i].id);
            double part =
                total > 0 ? (double)owners[i].weight * SHARDMAP_SLOTS / total : SHARDMAP_SLOTS / (double)count;
            assert_true((double)has > part - 1 && (double)has < part + 1);
            needed += has > had ? has - had : 0;
            given += has;
        }
        assert_int_equal(given, SHARDMAP_SLOTS);
        assert_int_equal(moved(&before, &map), needed);
    }
}

static void shards_lie_on_slots_of_their_own_and_in_order(void **state)
{
    (void)state;
    for (uint32_t fragment = 0; fragment < 130; fragment++)
        for (uint32_t count = 1; count <= SHARDMAP_SLOTS; count++)
            for (uint32_t s = 0; s < count; s++) {
                uint32_t slot = shardmap_slot(fragment, count, s);
                assert_true(slot < SHARDMAP_SLOTS);
                assert_true(s == 0 || slot > shardmap_slot(fragment, count, s - 1));
                assert_true(count < SHARDMAP_SLOTS || slot == s);
            }
    uint32_t fragments[2] = {0, 0}; /* one shard each: as many on either half */
    for (uint32_t fragment = 0; fragment < 16; fragment++)
        fragments[shardmap_slot(fragment, 1, 0) / (SHARDMAP_SLOTS / 2)]++;
    assert_int_equal(fragments[0], 8);
    assert_int_equal(fragments[1], 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_are_given_in_proportion),
        cmocka_unit_test(who_leaves_loses_its_slots_and_nobody_else_any),
        cmocka_unit_test(who_comes_takes_no_more_than_its_part),
        cmocka_unit_test(any_sequence_keeps_to_the_quotas),
        cmocka_unit_test(shards_lie_on_slots_of_their_own_and_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
