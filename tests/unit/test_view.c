/* SPDX-License-Identifier: Apache-2.0 */
/* view: members keep their slots while others come and go, and a slot is given anew only when it was let go of. Record
 * 0 is the same whoever writes it and in whatever order; what cannot be a membership is refused. */
#include "tests/lib/testlib.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "common/mem.h"
#include "net/config/view.h"
#include "net/transport/wire.h"

enum { ISLANDS = 3, MANY = RECORD_OWNERS_MAX + 1 };
enum { LIMA, PARIS, OSLO };

static char keys[MANY][IDENT_TEXT_BYTES], names[MANY][16];
static const struct digest run_id = {{7}};
static const struct view_entry given[ISLANDS] = {
    {.name = "lima", .address = "", .key_text = keys[LIMA], .uplink = 2500},
    {.name = "paris", .address = "p:1", .key_text = keys[PARIS], .uplink = 1000000000},
    {.name = "oslo", .address = "o:1", .key_text = keys[OSLO], .uplink = 7},
};

static struct digest id_of(const struct view_entry *entries, size_t count, const char *self)
{
    struct view view;
    assert_ok(view_new(entries, count, &run_id, self, &view));
    struct digest id = view.id;
    view_free(&view);
    return id;
}

static void members_are_numbered_by_name(void **state)
{
    (void)state;
    struct view view;
    assert_ok(view_new(given, ISLANDS, &run_id, "oslo", &view));
    assert_int_equal(view.count, ISLANDS);
    assert_int_equal(view.self, 1);
    assert_string_equal(view.members[0].name, "lima");
    assert_string_equal(view.members[1].name, "oslo");
    assert_string_equal(view.members[2].name, "paris");
    assert_string_equal(view.members[2].address, "p:1");
    assert_string_equal(view.members[2].key_text, keys[PARIS]);
    uint8_t key[IDENT_KEY_BYTES];
    assert_ok(ident_parse(keys[PARIS], key));
    assert_memory_equal(view.members[2].key, key, sizeof key);
    assert_int_equal(view.members[2].uplink, 1000000000);
    view_free(&view);
    assert_null(view.members);
    assert_int_equal(view.count, 0);
    view_free(&view);
}

/* docs/PROTOCOL.md says what the digest is made of; islands of another release must come to the same. */
static void the_id_is_what_it_always_was(void **state)
{
    (void)state;
    char hex[DIGEST_HEX_BYTES];
    struct digest id = id_of(given, ISLANDS, "oslo");
    assert_string_equal(digest_hex(&id, hex), "a3aa526c631cdeff8410db6355cf4afa381242249ee3341fadc25aaf2acc1747");
}

static void neither_order_nor_maker_nor_addresses_change_the_id(void **state)
{
    (void)state;
    static const int orders[][ISLANDS] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    struct digest id = id_of(given, ISLANDS, "lima");
    for (size_t k = 0; k < sizeof orders / sizeof orders[0]; k++) {
        struct view_entry entries[ISLANDS];
        for (int i = 0; i < ISLANDS; i++)
            entries[i] = given[orders[k][i]];
        entries[k % ISLANDS].address = "elsewhere:9";
        struct digest other = id_of(entries, ISLANDS, given[k % ISLANDS].name);
        assert_true(digest_equal(&id, &other));
    }
}

static void another_key_uplink_name_or_number_is_another_view(void **state)
{
    (void)state;
    struct digest ids[5];
    struct view_entry entries[ISLANDS];
    for (int k = 0; k < 4; k++) {
        memcpy(entries, given, sizeof entries);
        if (k == 1)
            entries[OSLO].key_text = keys[ISLANDS];
        else if (k == 2)
            entries[OSLO].uplink++;
        else if (k == 3)
            entries[OSLO].name = "oslp";
        ids[k] = id_of(entries, ISLANDS, "lima");
    }
    ids[4] = id_of(given, ISLANDS - 1, "lima");
    for (int k = 0; k < 5; k++)
        for (int l = 0; l < k; l++)
            assert_false(digest_equal(&ids[k], &ids[l]));
}

static void what_is_no_membership_is_refused(void **state)
{
    (void)state;
    struct view view;
    struct view_entry entries[ISLANDS];
    memcpy(entries, given, sizeof entries);
    entries[OSLO].key_text = keys[LIMA];
    assert_fails(ERR_CONF, "islands lima and oslo have the same public key",
                 view_new(entries, ISLANDS, &run_id, "lima", &view));
    assert_null(view.members);
    entries[OSLO] = given[OSLO];
    entries[OSLO].name = "lima";
    assert_fails(ERR_CONF, "two islands are called lima", view_new(entries, ISLANDS, &run_id, "lima", &view));
    entries[OSLO] = given[OSLO];
    entries[OSLO].key_text = "short";
    assert_fails(ERR_CONF, "island oslo: \"short\" is not a public key",
                 view_new(entries, ISLANDS, &run_id, "lima", &view));
    assert_fails(ERR_ARG, "island rome is not among the members", view_new(given, ISLANDS, &run_id, "rome", &view));
    assert_null(view.members);
}

static void as_many_as_fit_and_not_one_more(void **state)
{
    (void)state;
    struct view view;
    struct view_entry entries[MANY];
    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof names[i], "island-%d", i);
        entries[i] = (struct view_entry){.name = names[i], .address = "", .key_text = keys[i], .uplink = 1};
    }
    assert_fails(ERR_CONF, "65 islands; at most 64 are possible", view_new(entries, MANY, &run_id, names[0], &view));
    assert_null(view.members);
    assert_ok(view_new(entries, MANY - 1, &run_id, names[0], &view));
    assert_int_equal(view.count, RECORD_OWNERS_MAX);
    view_free(&view);
    for (long n = 0; n < 4; n++) {
        mem_fail_after(n);
        assert_int_equal(view_new(entries, MANY - 1, &run_id, names[0], &view), ERR_NOMEM);
        mem_fail_after(-1);
        assert_null(view.members);
    }
}

/* ---- record 0 ---- */

static void record_0_is_the_same_whoever_writes_it(void **state)
{
    (void)state;
    static const int orders[][ISLANDS] = {{0, 1, 2}, {2, 0, 1}, {1, 2, 0}};
    for (size_t k = 0; k < 3; k++) {
        struct view_entry entries[ISLANDS];
        struct record record;
        for (int i = 0; i < ISLANDS; i++)
            entries[i] = given[orders[k][i]];
        entries[k].address = "elsewhere:9";
        assert_ok(view_record0(entries, ISLANDS, &run_id, 500, &record));
        assert_int_equal(record.members_count, ISLANDS);
        assert_true(record.epoch == 0 && record.steps == 500 && record.next_id == ISLANDS && !record.paused);
        static const char *const in_order[] = {"lima", "oslo", "paris"};
        static const int index[] = {LIMA, OSLO, PARIS};
        uint64_t uplinks[ISLANDS];
        for (uint32_t i = 0; i < ISLANDS; i++) {
            const struct record_member *member = &record.members[i];
            uint8_t key[IDENT_KEY_BYTES];
            assert_string_equal(member->name, in_order[i]);
            assert_ok(ident_parse(keys[index[i]], key));
            assert_memory_equal(member->key, key, sizeof key);
            assert_true(member->id == i && member->voter && member->role == RECORD_OWNER);
            assert_string_equal(member->address, ""); /* it may differ from island to island */
            uplinks[i] = member->uplink;
        }
        struct shardmap map = shardmap_of(uplinks, ISLANDS);
        assert_memory_equal(&record.map, &map, sizeof map);
        static uint8_t nonce[RECORD_NONCE_BYTES];
        if (k == 0)
            memcpy(nonce, record.nonce, sizeof nonce);
        assert_memory_equal(record.nonce, nonce, sizeof nonce);
        mem_free(record.members);
    }
}

static void another_run_name_or_key_is_another_run(void **state)
{
    (void)state;
    uint8_t nonces[5][RECORD_NONCE_BYTES];
    for (int k = 0; k < 5; k++) {
        struct view_entry entries[ISLANDS];
        struct digest id = run_id;
        struct record record;
        memcpy(entries, given, sizeof entries);
        id.byte[31] ^= k == 1;
        if (k == 2)
            entries[OSLO].key_text = keys[ISLANDS];
        else if (k == 3)
            entries[OSLO].name = "oslp";
        assert_ok(view_record0(entries, k == 4 ? ISLANDS - 1 : ISLANDS, &id, 500, &record));
        memcpy(nonces[k], record.nonce, sizeof nonces[k]);
        mem_free(record.members);
        for (int l = 0; l < k; l++)
            assert_memory_not_equal(nonces[k], nonces[l], sizeof nonces[k]);
    }
}

/* It owns nothing, and votes where it makes the number of voters odd. */
static void of_record_0_a_witness_has_a_vote_and_no_slot(void **state)
{
    (void)state;
    for (size_t islands = 1; islands <= 2; islands++) {
        struct view_entry entries[ISLANDS];
        struct record record;
        uint8_t nonce[RECORD_NONCE_BYTES];
        memcpy(entries, given, sizeof entries);
        assert_ok(view_record0(entries, islands + 1, &run_id, 500, &record));
        memcpy(nonce, record.nonce, sizeof nonce);
        mem_free(record.members);
        entries[0].witness = true; /* lima, the first by name */
        assert_ok(view_record0(entries, islands + 1, &run_id, 500, &record));
        assert_memory_not_equal(record.nonce, nonce, sizeof nonce); /* who does not know it is of another run */
        assert_string_equal(record.members[0].name, "lima");
        assert_int_equal(record.members[0].role, RECORD_WITNESS);
        assert_int_equal(record.members[0].voter, islands == 2);
        for (uint32_t slot = 0; slot < SHARDMAP_SLOTS; slot++)
            assert_in_range(record.map.owner[slot], 1, islands);
        for (uint32_t i = 1; i <= islands; i++)
            assert_true(record.members[i].role == RECORD_OWNER && record.members[i].voter);
        mem_free(record.members);
    }
}

static void two_witnesses_or_nobody_else_is_no_run(void **state)
{
    (void)state;
    struct record record;
    struct view_entry entries[ISLANDS];
    memcpy(entries, given, sizeof entries);
    entries[LIMA].witness = entries[OSLO].witness = true;
    assert_fails(ERR_CONF, "islands lima and oslo are both witnesses",
                 view_record0(entries, ISLANDS, &run_id, 500, &record));
    assert_fails(ERR_CONF, "witness lima is alone", view_record0(entries, 1, &run_id, 500, &record));
}

static void islands_are_counted_without_the_witness(void **state)
{
    (void)state;
    struct view view;
    struct view_entry entries[ISLANDS];
    memcpy(entries, given, sizeof entries);
    entries[OSLO].witness = true;
    assert_ok(view_new(entries, ISLANDS, &run_id, "paris", &view)); /* lima, oslo, paris */
    assert_false(view_is_witness(&view));
    assert_int_equal(view_islands(&view, view.count), 2);
    assert_int_equal(view_islands(&view, view.self), 1);
    view_free(&view);
    assert_ok(view_new(entries, ISLANDS, &run_id, "oslo", &view));
    assert_true(view_is_witness(&view));
    view_free(&view);
}

/* ---- slots ---- */

static struct record_member roster[VIEW_SLOTS_MAX + 1];
static struct record record;

/* Puts a member of this id, with a name and a key that follow from it, at the end of the roster. */
static void enrol(uint32_t id)
{
    struct record_member *member = &roster[record.members_count++];
    *member = (struct record_member){.id = id, .uplink = 1000 + id, .role = RECORD_CONTRIBUTOR};
    snprintf(member->name, sizeof member->name, "m%u", id);
    snprintf(member->address, sizeof member->address, "m%u:7600", id);
    uint8_t seed[crypto_sign_SEEDBYTES] = {(uint8_t)id, (uint8_t)(id >> 8), 3}, secret[IDENT_SECRET_BYTES];
    crypto_sign_seed_keypair(member->key, secret, seed);
}

static void begin_record(uint64_t epoch)
{
    record = (struct record){.epoch = epoch, .nonce = {9}, .members = roster};
}

static struct view_changes update(struct view *view, const struct record_member *own)
{
    struct view_changes changes;
    struct digest digest = digest_of(&record.epoch, sizeof record.epoch);
    assert_ok(view_update(view, &record, &digest, own->key, &changes));
    assert_true(digest_equal(&view->id, &digest));
    assert_int_equal(view->epoch, record.epoch);
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
    begin_record(1);
    for (uint32_t id = 10; id < 15; id++)
        enrol(id);
    struct view_changes changes = update(&view, &roster[2]);
    assert_set(&changes.added, 5, (uint32_t[]){0, 1, 2, 3, 4});
    assert_true(bitset_empty(&changes.changed) && bitset_empty(&changes.removed));
    assert_true(view.count == 5 && view.self == 2 && view_slot(&view, 13) == 3);
    const char *name = view.members[3].name;

    begin_record(2); /* 11 and 14 leave, 20 and 21 come, and 13 moves */
    enrol(10);
    enrol(12);
    enrol(13);
    strcpy(roster[2].address, "new:1");
    enrol(20);
    enrol(21);
    changes = update(&view, &roster[1]);
    assert_set(&changes.added, 2, (uint32_t[]){5, 6});
    assert_set(&changes.changed, 1, (uint32_t[]){3});
    assert_set(&changes.removed, 2, (uint32_t[]){1, 4});
    assert_true(view.self == 2 && view.count == 7);
    assert_ptr_equal(name, view.members[3].name);
    assert_string_equal(name, "m13");
    assert_string_equal(view.members[3].address, "new:1");
    assert_int_equal(view_slot(&view, 11), VIEW_NOBODY);
    assert_true(view.members[1].used && view.members[1].leaving);
    assert_string_equal(view.members[1].name, "m11"); /* still to be told of */
    assert_int_equal(view_slot_named(&view, "m11"), VIEW_NOBODY);
    assert_int_equal(view_slot_named(&view, "m21"), 6);

    view_release(&view, 1);
    view_release(&view, 2); /* it does not leave: nothing happens */
    begin_record(3);
    enrol(10);
    enrol(12);
    enrol(30);
    enrol(31);
    changes = update(&view, &roster[1]);
    assert_set(&changes.added, 2, (uint32_t[]){1, 7}); /* 4 was not let go of */
    assert_set(&changes.removed, 3, (uint32_t[]){3, 5, 6});
    assert_int_equal(view_slot(&view, 30), 1);
    for (uint32_t slot = 3; slot < 7; slot++)
        view_release(&view, slot);
    assert_int_equal(view.count, 8);
    begin_record(4);
    enrol(10);
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
    begin_record(1);
    enrol(1);
    enrol(2);
    update(&view, &roster[1]);
    struct record_member before = roster[1];
    begin_record(2);
    enrol(1);
    enrol(2);
    memcpy(roster[1].key, roster[0].key, sizeof roster[1].key);
    enrol(3);
    memcpy(roster[0].key, roster[2].key, sizeof roster[0].key);
    record.members_count = 2;
    struct view_changes changes = update(&view, &before);
    assert_set(&changes.changed, 2, (uint32_t[]){0, 1});
    assert_int_equal(view.self, VIEW_NOBODY);
    char text[IDENT_TEXT_BYTES];
    ident_text(roster[1].key, text);
    assert_string_equal(view.members[1].key_text, text);
    for (int k = 0; k < 6; k++) { /* the same but for one thing */
        roster[0].uplink += k == 0;
        roster[0].role = k == 1 ? RECORD_OBSERVER : roster[0].role;
        roster[0].voter |= k == 2;
        roster[0].incarnation += k == 3;
        roster[0].owner_wish = k == 4 ? RECORD_OWNER_NO : roster[0].owner_wish;
        changes = update(&view, &before);
        assert_int_equal(bitset_count(&changes.changed), k < 5);
    }
    view_free(&view);
}

static void our_configuration_knows_a_nearer_way(void **state)
{
    (void)state;
    struct view view;
    static const struct view_entry known[] = {{.name = "m1", .address = "10.0.0.1:1"}, {.name = "m2", .address = ""}};
    assert_ok(view_init(known, 2, &view));
    begin_record(1);
    for (uint32_t id = 1; id < 4; id++)
        enrol(id);
    update(&view, &roster[2]);
    assert_string_equal(view.members[0].address, "10.0.0.1:1");
    assert_string_equal(view.members[1].address, "m2:7600");
    strcpy(roster[0].address, "far:1");
    struct view_changes changes = update(&view, &roster[2]);
    assert_true(bitset_empty(&changes.changed));
    view_free(&view);
}

static void a_thousand_fit_and_what_cannot_be_changes_nothing(void **state)
{
    (void)state;
    struct view view;
    struct view_changes changes;
    struct digest digest = {{1}};
    assert_ok(view_init(NULL, 0, &view));
    begin_record(1);
    for (uint32_t id = 0; id < VIEW_SLOTS_MAX; id++)
        enrol(3 * id);
    changes = update(&view, &roster[7]);
    assert_int_equal(bitset_count(&changes.added), VIEW_SLOTS_MAX);
    for (uint32_t i = 0; i < VIEW_SLOTS_MAX; i++)
        assert_true(view_slot(&view, 3 * i) == i && view_slot(&view, 3 * i + 1) == VIEW_NOBODY);
    begin_record(2);
    for (uint32_t id = 1; id < VIEW_SLOTS_MAX; id++)
        enrol(3 * id);
    enrol(3 * VIEW_SLOTS_MAX);
    /* One left and one came, but what is of the former is not let go of yet. */
    assert_fails(ERR_STATE, "1 new islands, and 0 of 1024 places are free",
                 view_update(&view, &record, &digest, roster[0].key, &changes));
    assert_int_equal(view_slot(&view, 0), 0);
    assert_true(view.epoch == 1 && !view.members[0].leaving);
    record.members_count--;
    changes = update(&view, &roster[0]);
    assert_set(&changes.removed, 1, (uint32_t[]){0});
    view_release(&view, 0);
    enrol(3 * VIEW_SLOTS_MAX);
    changes = update(&view, &roster[0]);
    assert_set(&changes.added, 1, (uint32_t[]){0});
    roster[5].id = roster[4].id;
    assert_fails(ERR_STATE, "not in order", view_update(&view, &record, &digest, roster[0].key, &changes));
    roster[5].id = roster[4].id + 3;
    memset(roster[5].key, 0, sizeof roster[5].key);
    assert_fails(ERR_STATE, "public key", view_update(&view, &record, &digest, roster[0].key, &changes));
    view_free(&view);
}

int main(void)
{
    assert_ok(digest_init());
    for (int i = 0; i < MANY; i++) {
        uint8_t seed[crypto_sign_SEEDBYTES], key[IDENT_KEY_BYTES], secret[IDENT_SECRET_BYTES];
        memset(seed, 'a' + i, sizeof seed);
        crypto_sign_seed_keypair(key, secret, seed);
        ident_text(key, keys[i]);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_are_numbered_by_name),
        cmocka_unit_test(the_id_is_what_it_always_was),
        cmocka_unit_test(neither_order_nor_maker_nor_addresses_change_the_id),
        cmocka_unit_test(another_key_uplink_name_or_number_is_another_view),

        cmocka_unit_test(what_is_no_membership_is_refused),
        cmocka_unit_test(as_many_as_fit_and_not_one_more),
        cmocka_unit_test(record_0_is_the_same_whoever_writes_it),
        cmocka_unit_test(another_run_name_or_key_is_another_run),
        cmocka_unit_test(of_record_0_a_witness_has_a_vote_and_no_slot),
        cmocka_unit_test(two_witnesses_or_nobody_else_is_no_run),
        cmocka_unit_test(islands_are_counted_without_the_witness),
        cmocka_unit_test(members_keep_their_slots_and_slots_in_use_are_not_given_anew),
        cmocka_unit_test(another_key_is_a_change_and_we_are_who_has_ours),
        cmocka_unit_test(our_configuration_knows_a_nearer_way),
        cmocka_unit_test(a_thousand_fit_and_what_cannot_be_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
