/* SPDX-License-Identifier: Apache-2.0 */
/* view: members keep their slots while others come and go, and a slot is given anew only when it was let go of; whom
 * our own configuration reaches another way; what cannot be a membership is refused. */
#include "tests/lib/testlib.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "common/mem.h"
#include "net/config/view.h"
#include "net/transport/wire.h"

/* ---- slots ---- */

static struct config_member roster[VIEW_SLOTS_MAX + 1];
static struct config config;

/* Puts a member of this id, with a name and a key that follow from it, at the end of the roster. */
static void join(uint32_t id)
{
    struct config_member *member = &roster[config.members_count++];
    *member = (struct config_member){.id = id, .uplink = 1000 + id, .role = CONFIG_CONTRIBUTOR};
    snprintf(member->name, sizeof member->name, "m%u", id);
    snprintf(member->address, sizeof member->address, "m%u:7600", id);
    uint8_t seed[crypto_sign_SEEDBYTES] = {(uint8_t)id, (uint8_t)(id >> 8), 3}, secret[IDENT_SECRET_BYTES];
    crypto_sign_seed_keypair(member->key, secret, seed);
}

static void begin_config(uint64_t epoch)
{
    config = (struct config){.epoch = epoch, .nonce = {9}, .members = roster};
}

static struct view_changes update(struct view *view, const struct config_member *own)
{
    struct view_changes changes;
    struct digest digest = digest_of(&config.epoch, sizeof config.epoch);
    assert_ok(view_update(view, &config, &digest, own->key, &changes));
    assert_true(digest_equal(&view->id, &digest));
    assert_int_equal(view->epoch, config.epoch);
    return changes;
}

static void assert_set(const struct bitset *set, uint32_t count, const uint32_t *members)
{
    assert_int_equal(bitset_count(set), count);
    for (uint32_t i = 0; i < count; i++)
        assert_true(bitset_has(set, members[i]));
}

static void members_keep_their_slots_and_slots_in_use_are_not_given_anew(void **state)
{
    (void)state;
    struct view view;
    assert_ok(view_init(NULL, 0, &view));
    begin_config(1);
    for (uint32_t id = 10; id < 15; id++)
        join(id);
    struct view_changes changes = update(&view, &roster[2]);
    assert_set(&changes.added, 5, (uint32_t[]){0, 1, 2, 3, 4});
    assert_true(bitset_empty(&changes.changed) && bitset_empty(&changes.removed));
    assert_true(view.count == 5 && view.self == 2 && view_slot(&view, 13) == 3);
    const char *name = view.members[3].as.name;

    begin_config(2); /* 11 and 14 leave, 20 and 21 come, and 13 moves */
    join(10);
    join(12);
    join(13);
    strcpy(roster[2].address, "new:1");
    join(20);
    join(21);
    changes = update(&view, &roster[1]);
    assert_set(&changes.added, 2, (uint32_t[]){5, 6});
    assert_set(&changes.changed, 1, (uint32_t[]){3});
    assert_set(&changes.removed, 2, (uint32_t[]){1, 4});
    assert_true(view.self == 2 && view.count == 7);
    assert_ptr_equal(name, view.members[3].as.name);
    assert_string_equal(name, "m13");
    assert_string_equal(view.members[3].as.address, "new:1");
    assert_int_equal(view_slot(&view, 11), VIEW_NOBODY);
    assert_true(view.members[1].used && view.members[1].leaving);
    assert_string_equal(view.members[1].as.name, "m11"); /* still to be told of */
    assert_int_equal(view_slot_named(&view, "m11"), VIEW_NOBODY);
    assert_int_equal(view_slot_named(&view, "m21"), 6);

    view_release(&view, 1);
    view_release(&view, 2); /* it does not leave: nothing happens */
    begin_config(3);
    join(10);
    join(12);
    join(30);
    join(31);
    changes = update(&view, &roster[1]);
    assert_set(&changes.added, 2, (uint32_t[]){1, 7}); /* 4 was not let go of */
    assert_set(&changes.removed, 3, (uint32_t[]){3, 5, 6});
    assert_int_equal(view_slot(&view, 30), 1);
    for (uint32_t slot = 3; slot < 7; slot++)
        view_release(&view, slot);
    assert_int_equal(view.count, 8);
    begin_config(4);
    join(10);
    changes = update(&view, &roster[0]);
    for (uint32_t slot = 1; slot < 8; slot++)
        view_release(&view, slot);
    assert_true(view.count == 1 && view.self == 0);
    view_free(&view);
}

static void another_key_is_a_change_and_we_are_who_has_ours(void **state)
{
    (void)state;
    struct view view;
    assert_ok(view_init(NULL, 0, &view));
    begin_config(1);
    join(1);
    join(2);
    update(&view, &roster[1]);
    struct config_member before = roster[1];
    begin_config(2);
    join(1);
    join(2);
    memcpy(roster[1].key, roster[0].key, sizeof roster[1].key);
    join(3);
    memcpy(roster[0].key, roster[2].key, sizeof roster[0].key);
    config.members_count = 2;
    struct view_changes changes = update(&view, &before);
    assert_set(&changes.changed, 2, (uint32_t[]){0, 1});
    assert_int_equal(view.self, VIEW_NOBODY);
    char text[IDENT_TEXT_BYTES];
    ident_text(roster[1].key, text);
    assert_string_equal(view.members[1].key_text, text);
    for (int k = 0; k < 6; k++) { /* the same but for one thing */
        roster[0].uplink += k == 0;
        roster[0].role = k == 1 ? CONFIG_OBSERVER : roster[0].role;
        roster[0].voter |= k == 2;
        roster[0].incarnation += k == 3;
        roster[0].owner_choice = k == 4 ? CONFIG_OWNER_NO : roster[0].owner_choice;
        changes = update(&view, &before);
        assert_int_equal(bitset_count(&changes.changed), k < 5);
    }
    view_free(&view);
}

static void our_configuration_knows_another_way(void **state)
{
    (void)state;
    struct view view;
    static const struct view_way ways[] = {{"m1", "10.0.0.1:1", true}, {"m2", "inviter:2", false}};
    assert_ok(view_init(ways, 2, &view));
    begin_config(1);
    for (uint32_t id = 1; id < 4; id++)
        join(id);
    update(&view, &roster[2]);
    assert_string_equal(view.members[0].as.address, "10.0.0.1:1");
    assert_string_equal(view.members[1].as.address, "m2:7600"); /* it says one itself */
    strcpy(roster[0].address, "far:1");
    struct view_changes changes = update(&view, &roster[2]);
    assert_true(bitset_empty(&changes.changed));
    roster[0].address[0] = roster[1].address[0] = '\0';
    changes = update(&view, &roster[2]);
    assert_set(&changes.changed, 1, (uint32_t[]){1});
    assert_string_equal(view.members[0].as.address, "10.0.0.1:1");
    assert_string_equal(view.members[1].as.address, "inviter:2");
    view_free(&view);
    for (long n = 0; n < 3; n++) {
        mem_fail_after(n);
        assert_int_equal(view_init(ways, 2, &view), ERR_NOMEM);
        mem_fail_after(-1);
        assert_null(view.members);
    }
}

static void islands_are_counted_without_the_witness(void **state)
{
    (void)state;
    struct view view;
    assert_ok(view_init(NULL, 0, &view));
    begin_config(1);
    for (uint32_t id = 0; id < 3; id++)
        join(id);
    roster[1].role = CONFIG_WITNESS;
    update(&view, &roster[2]);
    assert_false(view_is_witness(&view));
    assert_int_equal(view_islands(&view, view.count), 2);
    assert_int_equal(view_islands(&view, view.self), 1);
    update(&view, &roster[1]);
    assert_true(view_is_witness(&view));
    view_free(&view);
}

static void a_thousand_fit_and_what_cannot_be_changes_nothing(void **state)
{
    (void)state;
    struct view view;
    struct view_changes changes;
    struct digest digest = {{1}};
    assert_ok(view_init(NULL, 0, &view));
    begin_config(1);
    for (uint32_t id = 0; id < VIEW_SLOTS_MAX; id++)
        join(3 * id);
    changes = update(&view, &roster[7]);
    assert_int_equal(bitset_count(&changes.added), VIEW_SLOTS_MAX);
    for (uint32_t i = 0; i < VIEW_SLOTS_MAX; i++)
        assert_true(view_slot(&view, 3 * i) == i && view_slot(&view, 3 * i + 1) == VIEW_NOBODY);
    begin_config(2);
    for (uint32_t id = 1; id < VIEW_SLOTS_MAX; id++)
        join(3 * id);
    join(3 * VIEW_SLOTS_MAX);
    /* One left and one came, but what is of the former is not let go of yet. */
    assert_fails(ERR_STATE, "1 new islands, and 0 of 1024 places are free",
                 view_update(&view, &config, &digest, roster[0].key, &changes));
    assert_int_equal(view_slot(&view, 0), 0);
    assert_true(view.epoch == 1 && !view.members[0].leaving);
    config.members_count--;
    changes = update(&view, &roster[0]);
    assert_set(&changes.removed, 1, (uint32_t[]){0});
    view_release(&view, 0);
    join(3 * VIEW_SLOTS_MAX);
    changes = update(&view, &roster[0]);
    assert_set(&changes.added, 1, (uint32_t[]){0});
    roster[5].id = roster[4].id;
    assert_fails(ERR_STATE, "not in order", view_update(&view, &config, &digest, roster[0].key, &changes));
    roster[5].id = roster[4].id + 3;
    memset(roster[5].key, 0, sizeof roster[5].key);
    assert_fails(ERR_STATE, "public key", view_update(&view, &config, &digest, roster[0].key, &changes));
    view_free(&view);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(islands_are_counted_without_the_witness),
        cmocka_unit_test(members_keep_their_slots_and_slots_in_use_are_not_given_anew),
        cmocka_unit_test(another_key_is_a_change_and_we_are_who_has_ours),
        cmocka_unit_test(our_configuration_knows_another_way),
        cmocka_unit_test(a_thousand_fit_and_what_cannot_be_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
