/* SPDX-License-Identifier: Apache-2.0 */
/* undialled: whether an island holds itself for one that others dial in vain. */
#include "tests/lib/testlib.h"

#include "daemon/peers/undialled.h"

static bool is(struct undialled *undialled, struct undialled_said said)
{
    said.who = "b";
    (void)undialled_look(undialled, &said, 1000);
    return undialled->is;
}

static void of_two_islands_the_other_ones_word_is_enough(void **state)
{
    (void)state;
    struct undialled undialled = {0};
    assert_false(is(&undialled, (struct undialled_said){.owners = 1, .islands = 1}));
    assert_true(is(&undialled, (struct undialled_said){.owners = 1, .in_vain = 1, .voices = 1, .islands = 1}));
    assert_false(is(&undialled, (struct undialled_said){.owners = 1, .islands = 1}));
}

/* It would have all shards and the only vote: beside a contributor, or when the third one that owns is just lost. */
static void one_owner_takes_nobodys_shards_by_its_word(void **state)
{
    (void)state;
    struct undialled undialled = {0};
    assert_false(is(&undialled, (struct undialled_said){.owners = 1, .in_vain = 1, .voices = 1, .islands = 2}));
    assert_false(is(&undialled, (struct undialled_said){.owners = 2, .in_vain = 1, .voices = 1, .islands = 2}));
    assert_false(is(&undialled, (struct undialled_said){.owners = 2, .in_vain = 1, .voices = 2, .islands = 3}));
    assert_true(is(&undialled, (struct undialled_said){.owners = 1, .in_vain = 1, .voices = 2, .islands = 2}));
}

/* One alone does not take it back either, for nobody proves anything by being away. */
static void what_two_have_said_holds_until_an_owner_gets_through(void **state)
{
    (void)state;
    struct undialled undialled = {0};
    assert_true(is(&undialled, (struct undialled_said){.owners = 2, .in_vain = 2, .voices = 2, .islands = 2}));
    assert_true(is(&undialled, (struct undialled_said){.owners = 1, .in_vain = 1, .voices = 1, .islands = 2}));
    assert_true(is(&undialled, (struct undialled_said){.islands = 2}));
    assert_false(is(&undialled, (struct undialled_said){.owners = 1, .voices = 0, .islands = 2}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_two_islands_the_other_ones_word_is_enough),
        cmocka_unit_test(one_owner_takes_nobodys_shards_by_its_word),
        cmocka_unit_test(what_two_have_said_holds_until_an_owner_gets_through),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
