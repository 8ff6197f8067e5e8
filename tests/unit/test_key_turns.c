/* SPDX-License-Identifier: Apache-2.0 */
/* key_turns: an island that asks for another key is heard by whoever knows either. */
#include "tests/lib/testlib.h"

#include "net/membership/key_turns.h"

enum { BEGIN_MS = 1000, TURN_MS = 5000, MOST_MS = 40000, LOOK_MS = 100 };

/* How long it has the key. */
static uint64_t turn_ms(struct key_turns *turns, struct key_turns_facts *facts, uint64_t *now_ms)
{
    uint64_t begin_ms = *now_ms;
    while (!key_turns_due(turns, facts, *now_ms)) {
        *now_ms += LOOK_MS;
        assert_in_range(*now_ms, begin_ms, begin_ms + 2 * MOST_MS);
    }
    facts->by_other = !facts->by_other;
    return *now_ms - begin_ms;
}

/* Ever more seldom, since all connections begin anew; the other one for a moment, so that two that do so find each
 * other. */
static void who_hears_nobody_tries_its_keys_by_turns(void **state)
{
    (void)state;
    struct key_turns turns = {0};
    struct key_turns_facts alone = {.two = true};
    uint64_t now_ms = BEGIN_MS;
    for (uint64_t expected_ms = TURN_MS, i = 0; i < 20; i++, expected_ms *= expected_ms < MOST_MS ? 2 : 1) {
        assert_int_equal(turn_ms(&turns, &alone, &now_ms), expected_ms);
        assert_int_equal(turns.tries, i + 1);
        assert_int_equal(turn_ms(&turns, &alone, &now_ms), TURN_MS);
    }
    alone.heard.any = alone.heard.most = true; /* for a moment */
    assert_false(key_turns_due(&turns, &alone, now_ms));
    alone.heard = (struct key_turns_heard){0};
    assert_int_equal(turn_ms(&turns, &alone, &now_ms), TURN_MS);
}

static void who_has_one_key_keeps_it(void **state)
{
    (void)state;
    struct key_turns turns = {0};
    struct key_turns_facts facts = {0};
    for (uint64_t now_ms = BEGIN_MS; now_ms < BEGIN_MS + 4 * TURN_MS; now_ms += LOOK_MS)
        assert_false(key_turns_due(&turns, &facts, now_ms));
    facts.two = true; /* it counts from when it has two */
    assert_false(key_turns_due(&turns, &facts, BEGIN_MS + 5 * TURN_MS - LOOK_MS - 1));
    /* The other one, which it tried last, was taken back. */
    facts = (struct key_turns_facts){.by_other = true};
    assert_true(key_turns_due(&turns, &facts, BEGIN_MS + 5 * TURN_MS));
}

/* Whom it hears by the present key, it hears. */
static void who_is_heard_by_its_own_key_keeps_it(void **state)
{
    (void)state;
    struct key_turns turns = {0};
    struct key_turns_facts facts = {.two = true, .heard = {true, true, true}};
    for (uint64_t now_ms = BEGIN_MS; now_ms < BEGIN_MS + 4 * TURN_MS; now_ms += LOOK_MS)
        assert_false(key_turns_due(&turns, &facts, now_ms));
    /* Counted from when nobody was heard any more. */
    facts.heard = (struct key_turns_heard){0};
    assert_false(key_turns_due(&turns, &facts, BEGIN_MS + 5 * TURN_MS - LOOK_MS - 1));
    assert_true(key_turns_due(&turns, &facts, BEGIN_MS + 5 * TURN_MS));
}

/* A newcomer knows both keys, and one that was away knows the first alone. */
static void who_is_heard_by_the_other_key_goes_back_to_its_own(void **state)
{
    (void)state;
    struct key_turns turns = {0};
    struct key_turns_facts facts = {.two = true, .by_other = true};
    assert_false(key_turns_due(&turns, &facts, BEGIN_MS));
    /* By somebody who may know that the other one is its own by now: what it lacks it is told. */
    facts.heard.any = facts.heard.most = true;
    for (uint64_t now_ms = BEGIN_MS; now_ms < BEGIN_MS + 4 * TURN_MS; now_ms += LOOK_MS)
        assert_false(key_turns_due(&turns, &facts, now_ms));
    facts.heard.most_know_ours = true;
    assert_true(key_turns_due(&turns, &facts, BEGIN_MS + 4 * TURN_MS));
    facts.by_other = false;
    assert_false(key_turns_due(&turns, &facts, BEGIN_MS + 4 * TURN_MS));
    /* While the connections are made anew it is alone for a moment. */
    facts.heard = (struct key_turns_heard){0};
    assert_false(key_turns_due(&turns, &facts, BEGIN_MS + 5 * TURN_MS - 1));
}

/* They let it in by a key that it has no more, and speak of an epoch that is over: it looks for the others, more
 * seldom, since these may just be away. */
static void whom_a_few_hear_looks_for_the_others(void **state)
{
    (void)state;
    struct key_turns turns = {0};
    struct key_turns_facts facts = {.two = true, .heard.any = true};
    uint64_t now_ms = BEGIN_MS;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(turn_ms(&turns, &facts, &now_ms), MOST_MS);
        assert_int_equal(turn_ms(&turns, &facts, &now_ms), TURN_MS);
    }
    assert_int_equal(turn_ms(&turns, &facts, &now_ms), MOST_MS);
    /* It is found by the other key: a few who speak of no later epoch do not send it back. */
    facts.heard.most = true;
    for (uint64_t end_ms = now_ms + 4 * MOST_MS; now_ms < end_ms; now_ms += LOOK_MS)
        assert_false(key_turns_due(&turns, &facts, now_ms));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_hears_nobody_tries_its_keys_by_turns),
        cmocka_unit_test(who_has_one_key_keeps_it),
        cmocka_unit_test(who_is_heard_by_its_own_key_keeps_it),
        cmocka_unit_test(whom_a_few_hear_looks_for_the_others),
        cmocka_unit_test(who_is_heard_by_the_other_key_goes_back_to_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
