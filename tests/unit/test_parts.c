/* parts: which parts make a version: they cover it once, none is empty, and everybody finds the same. */
#include "tests/lib/testlib.h"

#include "common/digest.h"
#include "daemon/state/parts.h"
#include "tests/lib/smallrun.h"

enum { MANY = 20 };

static struct parts many_owners(const struct smallrun *run)
{
    uint64_t weights[MANY];
    for (uint64_t i = 0; i < MANY; i++)
        weights[i] = i == 7 || i == MANY - 1 ? 0 : 1 + i % 3;
    return (struct parts){.plan = run->plan->plan, .map = shardmap_of(weights, MANY)};
}

static void the_parts_of_a_version_cover_it_once(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "", "codec = powersgd\nerror_feedback = yes\n"}; /* whose shards end between tensors: some are empty */
    for (size_t k = 0; k < 2; k++) {
        struct smallrun run = smallrun_new(lines[k]);
        const struct parts parts = many_owners(&run);
        for (uint32_t f = 0; f < SMALLRUN_FRAGMENTS; f++) {
            struct chain_part all[CHAIN_PARTS_MAX];
            uint64_t seen = 0, values = 0;
            uint32_t count = parts_of(&parts, f, 3, all);
            assert_in_range(count, 1, MANY - 2); /* two have nothing */
            for (uint32_t p = 0; p < count; p++) {
                struct plan_share share;
                plan_share(parts.plan, f, all[p].shards, &share);
                assert_true(share.values_count > 0);
                assert_true((seen & all[p].shards) == 0);
                assert_true(p == 0 || all[p].owner > all[p - 1].owner);
                assert_true(all[p].owner != 7 && all[p].owner != MANY - 1);
                assert_true(all[p].epoch == 0 && !all[p].carried);
                seen |= all[p].shards;
                values += share.values_count;
            }
            assert_int_equal(values, parts.plan->fragments[f].values_count);
            assert_true((seen & ~plan_shards(parts.plan, f)) == 0);
        }
        smallrun_free(&run);
    }
}

static void a_part_is_found_by_its_epoch_and_owner(void **state)
{
    (void)state;
    struct smallrun run = smallrun_new("");
    const struct parts parts = many_owners(&run);
    struct chain_part all[CHAIN_PARTS_MAX], found;
    uint32_t count = parts_of(&parts, 0, 1, all);
    struct bitset owners = parts_owners(&parts, 0, 1), two = {{0}};
    assert_int_equal(bitset_count(&owners), count);
    for (uint32_t p = 0; p < count; p++) {
        assert_true(bitset_has(&owners, all[p].owner));
        assert_int_equal(parts_find(&parts, 0, 1, 0, all[p].owner, &found), p);
        assert_true(found.shards == all[p].shards && found.owner == all[p].owner);
        assert_int_equal(parts_find(&parts, 0, 1, 1, all[p].owner, &found), CHAIN_PARTS_MAX);
    }
    assert_int_equal(parts_find(&parts, 0, 1, 0, 7, &found), CHAIN_PARTS_MAX);
    assert_int_equal(parts_find(&parts, 0, 1, 0, UINT32_MAX, &found), CHAIN_PARTS_MAX);
    bitset_add(&two, all[0].owner);
    bitset_add(&two, all[2].owner);
    assert_true(parts_shards(&parts, 0, 1, &two) == (all[0].shards | all[2].shards));
    assert_true(parts_shards(&parts, 0, 1, &(struct bitset){{0}}) == 0);
    smallrun_free(&run);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_parts_of_a_version_cover_it_once),
        cmocka_unit_test(a_part_is_found_by_its_epoch_and_owner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
