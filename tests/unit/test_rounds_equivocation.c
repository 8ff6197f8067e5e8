/* SPDX-License-Identifier: Apache-2.0 */
/* rounds, when islands cannot be believed: an owner signs two results of one part, and a voter that lost its disk takes
 * over the state of the only other one. */
#include "tests/lib/testlib.h"

#include "common/digest.h"
#include "tests/lib/rig.h"

enum { F = 1 };
static const char coarse[] = "codec = uniform\nerror_feedback = yes\n";

static void two_results_of_a_part_name_their_owner(void **state)
{
    (void)state;
    static struct rig_object first, second;
    struct bitset all = bitset_first(3);
    struct rig *rig = rig_new("equivocation-two", coarse, 3, 0, 0);
    rig_contribute(rig, F, 0.01f, 1000);
    rig_result(rig, F, 2, &all, 0.01f, &first);
    rig_result(rig, F, 2, &all, 0.02f, &second);
    rig_bring(rig, 2, &first);
    rig_settle(rig);
    assert_int_equal(rig_posted_count(rig, EVENT_EQUIVOCATION), 0);
    rig_bring(rig, 1, &first);
    rig_settle(rig);
    assert_int_equal(rig_posted_count(rig, EVENT_EQUIVOCATION), 0); /* the same again */
    rig_bring(rig, 1, &second);
    rig_settle(rig);
    const struct event *event = rig_posted(rig, EVENT_EQUIVOCATION, F);
    assert_int_equal(rig_posted_count(rig, EVENT_EQUIVOCATION), 1);
    assert_int_equal(event->equivocation.owner, rig_id(2));
    assert_int_equal(event->equivocation.version, 1);
    rig_close(rig);
}

/* The other's voice alone is no majority of two; ours cannot be given, since our disk does not lead to what we had. */
static void of_two_islands_one_helps_the_other(void **state)
{
    (void)state;
    static struct rig_object good, alone;
    struct replica *twin;
    struct bitset all = bitset_first(2), none = {{0}};
    struct rig *rig = rig_new("equivocation-help", coarse, 2, 1, 0);
    rig_round(rig, F, &all);
    rig_make_state(rig, F, 0.5f, &twin, &good);
    rig_diverge(rig, F, twin);
    alone = good;
    rig_certify(rig, &rounds_state(rig->rounds, F)->hash, &none, &alone);
    rig_bring(rig, 0, &alone);
    rig_settle(rig);
    assert_int_equal(rig_told_count(rig, SYNC_EV_INSTALLED), 0);
    assert_int_equal(rig_told_count(rig, SYNC_EV_NOT_AVAILABLE), 1);
    rig_bring(rig, 0, &good);
    rig_settle(rig);
    assert_int_equal(rig_told_count(rig, SYNC_EV_INSTALLED), 1);
    replica_free(twin);
    rig_close(rig);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_results_of_a_part_name_their_owner),
        cmocka_unit_test(of_two_islands_one_helps_the_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
