/* SPDX-License-Identifier: Apache-2.0 */
/* The protocol's core between an outer step and the hash of what it made: the trainer has the anchor, and nobody else
 * hears of it. */
#include "tests/lib/talk.h"

#include "common/digest.h"

static const struct owner_rule everyone = {0};

/* Version 5 is being made of our result and member 0's. */
static void applying(void)
{
    talk_among(3, 2, 1, 4, everyone);
    talk_we_contribute();
    talk_stored(0, 5, 0);
    talk_shows(0, 0);
    assert_int_equal(sync_state(talk_sync, 0), SYNC_APPLYING);
}

static void made(void)
{
    talk_happens((struct sync_event){.type = SYNC_EV_MADE});
}

static void the_trainer_does_not_wait_for_the_hash(void **state)
{
    (void)state;
    applying();
    assert_int_equal(sync_anchor_version(talk_sync, 0), 4);
    made();
    const struct sync_action *give = talk_ordered(SYNC_DO_PUBLISH);
    assert_true(give != NULL && give->version == 5);
    assert_int_equal(sync_anchor_version(talk_sync, 0), 5);
    assert_null(talk_ordered(SYNC_DO_ANNOUNCE));
    assert_int_equal(sync_own(talk_sync, 0).version, 4); /* as others hear it, with its own hash */
    struct digest before = talk_hash_named('a', 4), after = talk_hash_named('a', 5);
    struct digest hash = sync_own(talk_sync, 0).hash;
    assert_true(digest_equal(&hash, &before));
    assert_int_equal(sync_state(talk_sync, 0), SYNC_APPLYING);
    talk_tick(100);
    assert_null(talk_ordered(SYNC_DO_APPLY));
    talk_applied(5);
    assert_null(talk_ordered(SYNC_DO_PUBLISH)); /* once is enough */
    assert_non_null(talk_ordered(SYNC_DO_ANNOUNCE));
    assert_int_equal(sync_own(talk_sync, 0).version, 5);
    assert_int_equal(sync_anchor_version(talk_sync, 0), 5);
    hash = sync_own(talk_sync, 0).hash;
    assert_true(digest_equal(&hash, &after));
    assert_int_equal(sync_state(talk_sync, 0), SYNC_MIXING);
    talk_happens((struct sync_event){.type = SYNC_EV_MIXED});
    assert_int_equal(sync_state(talk_sync, 0), SYNC_IDLE);
    talk_ends(NULL);
}

static void a_trainer_that_is_quicker_than_the_hash_goes_on(void **state)
{
    (void)state;
    applying();
    made();
    talk_happens((struct sync_event){.type = SYNC_EV_MIXED});
    assert_int_equal(sync_state(talk_sync, 0), SYNC_APPLYING);
    talk_applied(5);
    assert_null(talk_ordered(SYNC_DO_PUBLISH));
    assert_null(talk_ordered(SYNC_DO_ENCODE));
    assert_int_equal(sync_state(talk_sync, 0), SYNC_IDLE);
    talk_happens((struct sync_event){.type = SYNC_EV_SNAPSHOT});
    assert_int_equal(talk_ordered(SYNC_DO_ENCODE)->version, 6);
    talk_ends(NULL);
}

/* Its contribution names the hash it starts from. */
static void a_snapshot_waits_for_the_hash(void **state)
{
    (void)state;
    applying();
    made();
    talk_happens((struct sync_event){.type = SYNC_EV_MIXED});
    talk_happens((struct sync_event){.type = SYNC_EV_SNAPSHOT});
    assert_null(talk_ordered(SYNC_DO_ENCODE));
    talk_happens((struct sync_event){.type = SYNC_EV_MIXED}); /* said twice */
    talk_applied(5);
    assert_non_null(talk_ordered(SYNC_DO_ENCODE));
    assert_int_equal(talk_ordered(SYNC_DO_ENCODE)->version, 6);
    assert_int_equal(sync_state(talk_sync, 0), SYNC_ENCODING);
    talk_happens((struct sync_event){.type = SYNC_EV_ENCODED});
    assert_int_equal(sync_own(talk_sync, 0).contributed, 6);
    talk_ends(NULL);
}

/* One that was taken before the anchor came, or before there was one, is of another base; the word of an anchor before
 * is not this one's. */
static void what_is_said_before_its_time_is_not_heard(void **state)
{
    (void)state;
    applying();
    talk_happens((struct sync_event){.type = SYNC_EV_MIXED});
    talk_happens((struct sync_event){.type = SYNC_EV_SNAPSHOT});
    made();
    talk_happens((struct sync_event){.type = SYNC_EV_SNAPSHOT});
    talk_applied(5);
    assert_null(talk_ordered(SYNC_DO_ENCODE));
    assert_int_equal(sync_state(talk_sync, 0), SYNC_MIXING);
    talk_ends(NULL);
    /* One that could not be made, and is only hashed, was not given before. */
    applying();
    talk_happens((struct sync_event){.type = SYNC_EV_MIXED});
    talk_applied(5);
    assert_non_null(talk_ordered(SYNC_DO_PUBLISH));
    assert_int_equal(sync_state(talk_sync, 0), SYNC_MIXING);
    talk_ends(NULL);
    /* Nor does anything of one version's hash last until the next one's. */
    applying();
    made();
    talk_happens((struct sync_event){.type = SYNC_EV_MIXED});
    talk_applied(5);
    talk_is_at(0, 5);
    talk_hear(0);
    talk_stored(0, 6, 0);
    talk_shows(0, 0);
    assert_int_equal(sync_state(talk_sync, 0), SYNC_APPLYING);
    assert_int_equal(sync_anchor_version(talk_sync, 0), 5);
    talk_happens((struct sync_event){.type = SYNC_EV_SNAPSHOT});
    talk_applied(6);
    assert_non_null(talk_ordered(SYNC_DO_PUBLISH));
    assert_int_equal(sync_state(talk_sync, 0), SYNC_MIXING);
    talk_ends(NULL);
}

static void a_trainer_that_goes_meanwhile_is_given_nothing(void **state)
{
    (void)state;
    for (int when = 0; when < 4; when++) {
        applying();
        if (when == 0)
            talk_happens((struct sync_event){.type = SYNC_EV_TRAINER_DOWN});
        made();
        assert_int_equal(talk_ordered(SYNC_DO_PUBLISH) != NULL, when > 0);
        if (when > 1)
            talk_happens((struct sync_event){.type = SYNC_EV_MIXED});
        if (when > 2)
            talk_happens((struct sync_event){.type = SYNC_EV_SNAPSHOT});
        if (when > 0)
            talk_happens((struct sync_event){.type = SYNC_EV_TRAINER_DOWN});
        talk_applied(5);
        assert_null(talk_ordered(SYNC_DO_PUBLISH));
        assert_null(talk_ordered(SYNC_DO_ENCODE));
        assert_int_equal(sync_state(talk_sync, 0), SYNC_LISTENING);
        /* The next one starts from what is there. */
        talk_happens((struct sync_event){.type = SYNC_EV_TRAINER_UP, .version = 5});
        assert_null(talk_ordered(SYNC_DO_PUBLISH));
        assert_int_equal(sync_state(talk_sync, 0), SYNC_IDLE);
        talk_ends(NULL);
    }
}

/* What is being made stands, and the trainer's word is kept. */
static void an_epoch_that_begins_meanwhile_changes_nothing(void **state)
{
    (void)state;
    applying();
    made();
    talk_happens((struct sync_event){.type = SYNC_EV_MIXED});
    talk_happens((struct sync_event){.type = SYNC_EV_SNAPSHOT});
    struct config config = talk_draft();
    talk_begin_epoch(&config);
    assert_null(talk_ordered(SYNC_DO_ENCODE));
    assert_null(talk_ordered(SYNC_DO_PUBLISH));
    assert_int_equal(sync_anchor_version(talk_sync, 0), 5);
    talk_applied(5);
    assert_int_equal(talk_ordered(SYNC_DO_ENCODE)->version, 6);
    talk_ends(NULL);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(the_trainer_does_not_wait_for_the_hash, talk_ends),
        cmocka_unit_test_teardown(a_trainer_that_is_quicker_than_the_hash_goes_on, talk_ends),
        cmocka_unit_test_teardown(a_snapshot_waits_for_the_hash, talk_ends),
        cmocka_unit_test_teardown(what_is_said_before_its_time_is_not_heard, talk_ends),
        cmocka_unit_test_teardown(a_trainer_that_goes_meanwhile_is_given_nothing, talk_ends),
        cmocka_unit_test_teardown(an_epoch_that_begins_meanwhile_changes_nothing, talk_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
