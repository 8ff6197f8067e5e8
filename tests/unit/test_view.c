/* view: the same members are the same view whoever makes it and in whatever order, others are another, and what cannot
 * be a membership is refused. */
#include "tests/lib/testlib.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "common/mem.h"
#include "net/view.h"
#include "net/wire.h"

enum { ISLANDS = 3, MANY = WIRE_MEMBERS_MAX + 1 };
enum { LIMA, PARIS, OSLO };

static char keys[MANY][IDENT_TEXT_BYTES], names[MANY][16];
static const struct view_entry given[ISLANDS] = {
    {.name = "lima", .address = "", .key_text = keys[LIMA], .uplink = 2500},
    {.name = "paris", .address = "p:1", .key_text = keys[PARIS], .uplink = 1000000000},
    {.name = "oslo", .address = "o:1", .key_text = keys[OSLO], .uplink = 7},
};

static struct digest id_of(const struct view_entry *entries, size_t count, const char *self)
{
    struct view view;
    assert_ok(view_new(entries, count, self, &view));
    struct digest id = view.id;
    view_free(&view);
    return id;
}

static void members_are_numbered_by_name(void **state)
{
    (void)state;
    struct view view;
    assert_ok(view_new(given, ISLANDS, "oslo", &view));
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

static struct digest shares_of(const struct view_entry *entries, size_t count)
{
    struct view view;
    assert_ok(view_new(entries, count, "lima", &view));
    struct digest shares = view.shares;
    view_free(&view);
    return shares;
}

/* What was saved goes by them: a key may be lost and made anew in the middle of a run. */
static void shares_go_by_names_and_uplinks_alone(void **state)
{
    (void)state;
    struct view_entry entries[ISLANDS];
    struct digest shares = shares_of(given, ISLANDS), other;
    for (int k = 0; k < 3; k++) {
        memcpy(entries, given, sizeof entries);
        if (k == 0)
            entries[OSLO].key_text = keys[ISLANDS];
        else if (k == 1)
            entries[OSLO].uplink++;
        else
            entries[OSLO].name = "oslp";
        other = shares_of(entries, ISLANDS);
        assert_int_equal(digest_equal(&shares, &other), k == 0);
    }
    other = shares_of(given, ISLANDS - 1);
    assert_false(digest_equal(&shares, &other));
    shares = shares_of(given, 1); /* alone */
    entries[LIMA].uplink++;
    other = shares_of(entries, 1);
    assert_true(digest_equal(&shares, &other));
}

static void what_is_no_membership_is_refused(void **state)
{
    (void)state;
    struct view view;
    struct view_entry entries[ISLANDS];
    memcpy(entries, given, sizeof entries);
    entries[OSLO].key_text = keys[LIMA];
    assert_fails(ERR_CONF, "islands lima and oslo have the same public key", view_new(entries, ISLANDS, "lima", &view));
    assert_null(view.members);
    entries[OSLO] = given[OSLO];
    entries[OSLO].name = "lima";
    assert_fails(ERR_CONF, "two islands are called lima", view_new(entries, ISLANDS, "lima", &view));
    entries[OSLO] = given[OSLO];
    entries[OSLO].key_text = "short";
    assert_fails(ERR_CONF, "island oslo: \"short\" is not a public key", view_new(entries, ISLANDS, "lima", &view));
    assert_fails(ERR_ARG, "island rome is not among the members", view_new(given, ISLANDS, "rome", &view));
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
    assert_fails(ERR_CONF, "65 islands; at most 64 are possible", view_new(entries, MANY, names[0], &view));
    assert_null(view.members);
    assert_ok(view_new(entries, MANY - 1, names[0], &view));
    assert_int_equal(view.count, WIRE_MEMBERS_MAX);
    view_free(&view);
    mem_fail_after(0);
    assert_int_equal(view_new(entries, MANY - 1, names[0], &view), ERR_NOMEM);
    mem_fail_after(-1);
    assert_null(view.members);
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
        cmocka_unit_test(shares_go_by_names_and_uplinks_alone),
        cmocka_unit_test(what_is_no_membership_is_refused),
        cmocka_unit_test(as_many_as_fit_and_not_one_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
