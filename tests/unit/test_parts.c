/* SPDX-License-Identifier: Apache-2.0 */
/* parts: which parts make a version: they cover it once, none is empty, and everybody finds the same; and those of an
 * epoch whose configuration carries results. */
#include "tests/lib/testlib.h"

#include "common/digest.h"
#include "daemon/state/parts.h"
#include "tests/lib/roster.h"
#include "tests/lib/sample_configs.h"
#include "tests/lib/shares.h"
#include "tests/lib/smallrun.h"

enum { MANY = 20, START = 4 };

static struct config_log *many_owners(void)
{
    uint64_t weights[MANY];
    for (uint64_t i = 0; i < MANY; i++)
        weights[i] = i == 7 || i == MANY - 1 ? 0 : 1 + i % 3;
    return shares_config_log(weights, MANY);
}

/* Codecs whose shards end between tensors: some are empty. */
static const char with_empty_shards[] = "codec = powersgd\nerror_feedback = yes\n";

static void the_parts_of_a_version_cover_it_once(void **state)
{
    (void)state;
    static const char *const lines[] = {"", with_empty_shards};
    for (size_t k = 0; k < 2; k++) {
        struct smallrun run = smallrun_new(lines[k]);
        struct config_log *config_log = many_owners();
        const struct parts parts = {.plan = run.plan->plan, .config_log = config_log};
        for (uint32_t f = 0; f < SMALLRUN_FRAGMENTS; f++) {
            struct version_part all[VERSION_PARTS_MAX];
            uint64_t seen = 0, values = 0;
            uint32_t count = parts_of(&parts, f, 3, all);
            assert_in_range(count, 1, MANY - 2); /* two have nothing */
            for (uint32_t p = 0; p < count; p++) {
                struct plan_share share;
                plan_share(parts.plan, f, all[p].shards, &share);
                assert_true(share.values_count > 0);
                assert_true((seen & all[p].shards) == 0);
                assert_true(p == 0 || all[p].id.owner > all[p - 1].id.owner);
                assert_true(all[p].id.owner != roster_id(7) && all[p].id.owner != roster_id(MANY - 1));
                assert_true(all[p].id.epoch == 0 && !all[p].carried);
                seen |= all[p].shards;
                values += share.values_count;
            }
            assert_int_equal(values, parts.plan->fragments[f].values_count);
            assert_true((seen & ~plan_shards(parts.plan, f)) == 0);
            assert_true((parts_filled(parts.plan, f) & ~seen) == 0);
        }
        config_log_free(config_log);
        smallrun_free(&run);
    }
}

static void a_part_is_found_by_its_epoch_and_owner(void **state)
{
    (void)state;
    struct smallrun run = smallrun_new("");
    struct config_log *config_log = many_owners();
    const struct parts parts = {.plan = run.plan->plan, .config_log = config_log};
    struct version_part all[VERSION_PARTS_MAX], found;
    uint32_t count = parts_of(&parts, 0, 1, all);
    for (uint32_t p = 0; p < count; p++) {
        assert_int_equal(parts_find(&parts, 0, 1, 0, all[p].id.owner, &found), p);
        assert_true(found.shards == all[p].shards && found.id.owner == all[p].id.owner);
        assert_int_equal(parts_find(&parts, 0, 1, 1, all[p].id.owner, &found), VERSION_PARTS_MAX);
    }
    assert_int_equal(parts_find(&parts, 0, 1, 0, roster_id(7), &found), VERSION_PARTS_MAX);
    assert_int_equal(parts_find(&parts, 0, 1, 0, UINT32_MAX, &found), VERSION_PARTS_MAX);
    config_log_free(config_log);
    smallrun_free(&run);
}

static void shards_without_values_are_not_filled(void **state)
{
    (void)state;
    static const char *const lines[] = {"", with_empty_shards};
    bool empty[2] = {false, false};
    for (size_t k = 0; k < 2; k++) {
        struct smallrun run = smallrun_new(lines[k]);
        const struct plan *plan = run.plan->plan;
        for (uint32_t f = 0; f < SMALLRUN_FRAGMENTS; f++) {
            uint64_t filled = parts_filled(plan, f), values = 0;
            for (uint32_t s = 0; s < plan->fragments[f].shards_count; s++) {
                struct plan_shard shard = plan_shard(plan, f, s);
                assert_true((filled >> s & 1) == (shard.end > shard.begin));
                values += (filled >> s & 1) != 0 ? shard.end - shard.begin : 0;
            }
            assert_int_equal(values, plan->fragments[f].values_count);
            assert_true((filled & ~plan_shards(plan, f)) == 0);
            empty[k] |= filled != plan_shards(plan, f);
        }
        smallrun_free(&run);
    }
    assert_true(!empty[0] && empty[1]); /* else nothing was looked at */
}

/* ---- an epoch that begins with results of the one before ---- */

/* Member 1 owns no more from START on; of fragment 0 its result of version START + 1 is carried. */
static void begin_epoch(const struct smallrun *run, struct config_log *config_log, struct digest *digest)
{
    const struct parts parts = {.plan = run->plan->plan, .config_log = config_log};
    struct config next = roster_next(config_log);
    *digest = digest_of("carried", 7);
    for (uint32_t f = 0; f < SMALLRUN_FRAGMENTS; f++)
        configs_start(&next, f, START);
    roster_carry(&next, 0, 1, 0, shares_mask(&parts, 0, 1), digest);
    roster_role(&next, 1, CONFIG_AWAY, false);
    roster_map_owners(&next);
    roster_add(config_log, &next);
}

static void assert_same(const struct version_part *got, const struct version_part *want, uint32_t count)
{
    for (uint32_t p = 0; p < count; p++) {
        assert_true(result_id_equal(&got[p].id, &want[p].id));
        assert_true(got[p].shards == want[p].shards && got[p].carried == want[p].carried);
    }
}

static void what_is_carried_is_of_the_first_version_alone(void **state)
{
    (void)state;
    struct smallrun run = smallrun_new("");
    const struct parts parts = run.parts;
    struct version_part before[VERSION_PARTS_MAX], all[VERSION_PARTS_MAX], usual[VERSION_PARTS_MAX], found;
    struct digest digest;
    uint32_t before_count = parts_of(&parts, 0, START, before);
    begin_epoch(&run, run.config_log, &digest);
    /* What is over stays what it was. */
    assert_int_equal(parts_of(&parts, 0, START, all), before_count);
    assert_same(all, before, before_count);
    uint64_t seen = 0, carried = 0;
    uint32_t count = parts_of(&parts, 0, START + 1, all);
    for (uint32_t p = 0; p < count; p++) {
        assert_true((seen & all[p].shards) == 0);
        assert_int_equal(all[p].carried, all[p].id.epoch == 0);
        assert_int_equal(all[p].carried, all[p].id.owner == roster_id(1));
        seen |= all[p].shards;
        carried |= all[p].carried ? all[p].shards : 0;
    }
    assert_true(seen == plan_shards(parts.plan, 0));
    assert_true(carried == shares_mask(&parts, 0, 1));
    assert_int_not_equal(parts_find(&parts, 0, START + 1, 0, roster_id(1), &found), VERSION_PARTS_MAX);
    assert_true(found.carried && digest_equal(&found.id.digest, &digest));
    assert_int_equal(parts_find(&parts, 0, START + 2, 0, roster_id(1), &found), VERSION_PARTS_MAX);
    /* Later versions, and those of the first where nothing is carried, are the usual ones. */
    for (uint32_t f = 0; f < SMALLRUN_FRAGMENTS; f++) {
        uint32_t usual_count = parts_usual(&parts, f, usual);
        for (uint64_t version = f == 0 ? START + 2 : START + 1; version < START + 5; version++) {
            assert_int_equal(parts_of(&parts, f, version, all), usual_count);
            for (uint32_t p = 0; p < usual_count; p++)
                usual[p].id.version = version;
            assert_same(all, usual, usual_count);
        }
        for (uint32_t p = 0; p < usual_count; p++)
            assert_true(usual[p].id.epoch == 1 && !usual[p].carried && usual[p].id.owner != roster_id(1));
    }
    smallrun_free(&run);
}

/* Results are checked against the key of an owner that may have left since. */
static void an_owners_key_is_known_as_long_as_its_epoch_is(void **state)
{
    (void)state;
    struct smallrun run = smallrun_new("");
    struct config_log *config_log;
    struct parts parts = {.plan = run.plan->plan};
    struct digest digest;
    assert_ok(config_log_new(&config_log));
    parts.config_log = config_log;
    assert_null(parts_owner_key(&parts, 0, 0));
    struct config first = configs_first(3, false), next = configs_next(&first);
    configs_map(&next, (const uint32_t[]){0, 1}, 2);
    next.members_count = 2;
    digest = configs_digest(&first);
    assert_ok(config_log_add(config_log, &first, &digest));
    digest = configs_digest(&next);
    assert_ok(config_log_add(config_log, &next, &digest));
    assert_memory_equal(parts_owner_key(&parts, 0, 2), configs_ident(2)->key, IDENT_KEY_BYTES);
    assert_null(parts_owner_key(&parts, 1, 2));
    assert_memory_equal(parts_owner_key(&parts, 1, 1), configs_ident(1)->key, IDENT_KEY_BYTES);
    assert_null(parts_owner_key(&parts, 1, UINT32_MAX));
    assert_null(parts_owner_key(&parts, 2, 1));
    config_log_forget(config_log, 1);
    assert_null(parts_owner_key(&parts, 0, 2));
    config_log_free(config_log);
    smallrun_free(&run);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_parts_of_a_version_cover_it_once),
        cmocka_unit_test(a_part_is_found_by_its_epoch_and_owner),
        cmocka_unit_test(shards_without_values_are_not_filled),
        cmocka_unit_test(what_is_carried_is_of_the_first_version_alone),
        cmocka_unit_test(an_owners_key_is_known_as_long_as_its_epoch_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
