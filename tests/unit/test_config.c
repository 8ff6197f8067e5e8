/* SPDX-License-Identifier: Apache-2.0 */
/* config: there and back in one form of bytes, every rule of what makes sense by itself and after another, votes, and
 * proofs by a majority. */
#include "tests/lib/testlib.h"

#include <string.h>

#include "common/digest.h"
#include "common/mem.h"
#include "net/config/config.h"
#include "net/config/config_proof.h"
#include "net/config/owners.h"
#include "tests/lib/outofmem.h"
#include "tests/lib/sample_configs.h"

static void assert_same(const struct config *left, const struct config *right)
{
    struct digest l = configs_digest(left), r = configs_digest(right);
    assert_true(digest_equal(&l, &r));
}

/* Three owners, a witness and one of each other role, in an epoch of some age. */
static struct config of_many_kinds(void)
{
    struct config config = configs_first(3, true);
    configs_add(&config, CONFIG_CONTRIBUTOR);
    configs_add(&config, CONFIG_OBSERVER)->address[0] = '\0';
    configs_add(&config, CONFIG_DRAINING)->owner_choice = CONFIG_OWNER_NO;
    config.members[6].draining = config.members[4].contributor = true;
    config.members[6].word = 9;
    configs_add(&config, CONFIG_AWAY)->voter = true;
    config.members[7].losses = CONFIG_LOSSES_MAX;
    config.epoch = 7;
    config.previous = digest_of("6", 1);
    config.paused = true;
    config.members[4].units = DEAL_UNITS_MAX;
    config.deal = (struct config_deal){.horizon = 40, .counted_step = 77, .start = {90, ~0ull}};
    configs_start(&config, 1, 40);
    configs_carry(&config, 0, 2, 5, 0xf0);
    configs_carry(&config, 0, 2, 6, 0x0f);
    configs_carry(&config, 0, 0, 6, 0xff00);
    configs_carry(&config, 1, 7, 6, ~0ull);
    return config;
}

static void a_configuration_comes_back_as_it_was(void **state)
{
    (void)state;
    struct config config = of_many_kinds(), back, copy;
    uint8_t *bytes;
    size_t count;
    assert_ok(config_check(&config));
    assert_ok(config_pack(&config, &bytes, &count));
    assert_ok(config_unpack(bytes, count, &back));
    assert_memory_equal(back.nonce, config.nonce, sizeof back.nonce);
    assert_memory_equal(&back.map, &config.map, sizeof back.map);
    assert_true(back.epoch == 7 && digest_equal(&back.previous, &config.previous) && back.steps == 1000);
    assert_true(back.next_id == 8 && back.paused && back.members_count == 8 && back.starts_count == 2);
    assert_memory_equal(back.starts, config.starts, 2 * sizeof back.starts[0]);
    for (uint32_t i = 0; i < 8; i++) {
        const struct config_member *m = &config.members[i], *b = &back.members[i];
        assert_true(m->id == b->id && m->uplink == b->uplink && m->incarnation == b->incarnation);
        assert_true(m->role == b->role && m->owner_choice == b->owner_choice && m->voter == b->voter &&
                    m->losses == b->losses);
        assert_true(m->word == b->word && m->draining == b->draining && m->contributor == b->contributor &&
                    m->operates == b->operates && m->units == b->units);
        assert_string_equal(m->name, b->name);
        assert_string_equal(m->address, b->address);
        assert_memory_equal(m->key, b->key, sizeof m->key);
    }
    assert_true(back.deal.horizon == 40 && back.deal.counted_step == 77);
    assert_true(back.deal.start.step == 90 && back.deal.start.position == ~0ull);
    assert_int_equal(back.carried_count, 4);
    for (uint32_t i = 0; i < 4; i++) {
        const struct part_result *c = &config.carried[i], *b = &back.carried[i];
        assert_true(c->id.fragment == b->id.fragment && c->id.owner == b->id.owner && c->id.version == b->id.version);
        assert_true(c->id.epoch == b->id.epoch && c->shards == b->shards && digest_equal(&c->id.digest, &b->id.digest));
    }
    assert_ok(config_copy(&config, &copy));
    config_deinit(&config);
    assert_null(config.members);
    assert_same(&copy, &back);
    struct digest digest = configs_digest(&copy), of_bytes = config_digest(bytes, count);
    assert_true(digest_equal(&digest, &of_bytes));
    mem_free(bytes);
    config_deinit(&copy);
    config_deinit(&back);
    config_deinit(&back);
}

static void a_configuration_without_owners_has_an_empty_map(void **state)
{
    (void)state;
    struct config config = configs_first(2, false), back;
    uint8_t *bytes;
    size_t count;
    configs_map(&config, NULL, 0);
    config.members[0].role = CONFIG_AWAY;
    config.members[0].voter = true;
    assert_ok(config_pack(&config, &bytes, &count));
    assert_ok(config_unpack(bytes, count, &back));
    assert_int_equal(back.map.owner[63], SHARDMAP_NOBODY);
    assert_null(back.starts);
    mem_free(bytes);
    config_deinit(&back);
    config_deinit(&config);
}

static uint32_t slots_of(const struct config *config, uint32_t i)
{
    uint32_t slots = 0;
    for (int k = 0; k < SHARDMAP_SLOTS; k++)
        slots += config->map.owner[k] == config->members[i].id;
    return slots;
}

/* Slots of the first owner, when the owners state these uplinks. */
static uint32_t first_has(const uint64_t *uplinks, uint32_t owners)
{
    struct config config = configs_first(owners, false);
    for (uint32_t i = 0; i < owners; i++)
        config.members[i].uplink = uplinks[i];
    config.map = shardmap_empty();
    owners_share_out(&config);
    uint32_t slots = slots_of(&config, 0);
    config_deinit(&config);
    return slots;
}

/* It is its member's own word. */
static void an_uplink_counts_no_more_than_twice_another_and_four_medians(void **state)
{
    (void)state;
    const uint64_t m = 2000000, t = 10000000000000;
    assert_int_equal(first_has((uint64_t[]){t, m, m}, 3), 32); /* 2 of 4 */
    assert_int_equal(first_has((uint64_t[]){t, m, m, m, m}, 5), 21);
    assert_int_equal(first_has((uint64_t[]){t, t, m, m, m}, 5), 23); /* 4 of 11: a minority does not move it */
    assert_int_equal(first_has((uint64_t[]){t, t, m, m}, 4), 26);    /* nor does half of them */
    assert_int_equal(first_has((uint64_t[]){t, m}, 2), 43);
    assert_int_equal(first_has((uint64_t[]){m, t, t}, 3), 0); /* two lines may well be that much faster than a third */
    assert_int_equal(first_has((uint64_t[]){UINT64_MAX, UINT64_MAX, UINT64_MAX / 2 + 1}, 3), 26); /* 2 of 5 */
    assert_int_equal(first_has((uint64_t[]){2 * m, m, m}, 3), 32); /* within it they count as they are */
    assert_int_equal(first_has((uint64_t[]){m, m, 2 * m}, 3), 16);
    assert_int_equal(first_has((uint64_t[]){3 * m, 3 * m, m, m}, 4), 24);
    assert_int_equal(first_has((uint64_t[]){t}, 1), SHARDMAP_SLOTS);
}

/* ---- bytes ---- */

static void assert_refused(const char *text, const uint8_t *bytes, size_t count)
{
    struct config back;
    memset(&back, 0xee, sizeof back);
    assert_fails(ERR_PROTO, text, config_unpack(bytes, count, &back));
    assert_true(back.members == NULL && back.carried == NULL && back.members_count == 0);
}

/* What a liberal reader takes for the same configuration would have another digest. */
static void a_configuration_has_one_form_of_bytes(void **state)
{
    (void)state;
    static const char form[] = "not packed in its one form";
    struct config config = configs_first(3, false), back;
    uint8_t *bytes, other[8192];
    size_t count;
    config.epoch = 1;
    assert_ok(config_pack(&config, &bytes, &count));
    assert_true(count + 64 < sizeof other);
    memcpy(other, bytes, count);
    static const uint8_t unknown[] = {0xa0, 6, 1}; /* field 100 */
    static const uint8_t doubled[] = {2 << 3, 1}, zero[] = {6 << 3, 0}, yes[] = {6 << 3, 2};
    static const uint8_t *const more[] = {doubled, zero, yes};
    memcpy(other + count, unknown, sizeof unknown);
    assert_refused(form, other, count + sizeof unknown);
    for (int i = 0; i < 3; i++) {
        memcpy(other + count, more[i], 2);
        assert_refused(form, other, count + 2);
    }
    /* The epoch, behind the nonce, in a longer form. */
    assert_true(bytes[18] == 2 << 3 && bytes[19] == 1);
    memcpy(other, bytes, 19);
    other[19] = 0x81;
    other[20] = 0;
    memcpy(other + 21, bytes + 20, count - 20);
    assert_refused(form, other, count + 1);
    /* Fields in another order: the epoch first. */
    memcpy(other, bytes + 18, 2);
    memcpy(other + 2, bytes, 18);
    memcpy(other + 20, bytes + 20, count - 20);
    assert_refused(form, other, count);
    /* A zero in a name. */
    memcpy(other, bytes, count);
    uint8_t *name = memmem(other, count, "\x12\x02m1", 4);
    assert_non_null(name);
    name[3] = '\0';
    assert_refused(form, other, count);
    assert_ok(config_unpack(bytes, count, &back));
    config_deinit(&back);
    for (size_t cut = 0; cut < count; cut++)
        assert_int_equal(config_unpack(bytes, cut, &back), ERR_PROTO);
    mem_free(bytes);
    config_deinit(&config);
}

static struct config largest(uint32_t members, uint32_t carried)
{
    struct config config = configs_first(64, true);
    assert_ok(mem_grow(&config.members, 65, members, sizeof config.members[0], "members"));
    for (uint32_t i = config.members_count; i < members; i++) {
        struct ident ident;
        assert_ok(ident_generate(&ident));
        config.members[i] = (struct config_member){
            .id = i, .role = CONFIG_CONTRIBUTOR, .uplink = UINT64_MAX, .incarnation = UINT64_MAX};
        snprintf(config.members[i].name, WIRE_NAME_BYTES, "%063u", i);
        snprintf(config.members[i].address, CONFIG_ADDRESS_BYTES, "%063u.%063u.%063u.m%056u:65535", i, i, i, i);
        memcpy(config.members[i].key, ident.key, IDENT_KEY_BYTES);
    }
    config.members_count = config.next_id = members;
    config.epoch = 1;
    configs_start(&config, CONFIG_FRAGMENTS_MAX - 1, 1ull << 62);
    assert_ok(mem_new(carried, sizeof config.carried[0], "carried", &config.carried));
    config.carried_count = carried;
    for (uint32_t i = 0; i < carried; i++)
        config.carried[i] =
            (struct part_result){.id.fragment = i / 64, .id.owner = i % 64, .id.version = 1, .shards = 1ull << i % 64};
    return config;
}

static void the_most_that_is_allowed_passes_and_more_is_refused(void **state)
{
    (void)state;
    struct config config = largest(CONFIG_MEMBERS_MAX, CONFIG_CARRIED_MAX), back;
    uint8_t *bytes;
    size_t count;
    assert_ok(config_pack(&config, &bytes, &count));
    print_message("the largest configuration here has %zu bytes\n", count);
    assert_ok(config_unpack(bytes, count, &back));
    mem_free(bytes);
    config_deinit(&back);
    config.carried_count++;
    assert_int_equal(config_pack(&config, &bytes, &count), ERR_ARG);
    config.carried_count--;
    config.members_count++;
    assert_int_equal(config_pack(&config, &bytes, &count), ERR_ARG);
    config.members_count--;
    config.starts_count++;
    assert_int_equal(config_pack(&config, &bytes, &count), ERR_ARG);
    config.starts_count--;
    for (uint32_t i = 0; i < CONFIG_CARRIED_MAX; i++)
        config.carried[i] = (struct part_result){.id.fragment = UINT32_MAX,
                                                 .id.owner = UINT32_MAX,
                                                 .id.version = UINT64_MAX,
                                                 .id.epoch = UINT64_MAX,
                                                 .shards = 1};
    for (uint32_t i = 0; i < CONFIG_FRAGMENTS_MAX; i++)
        config.starts[i] = UINT64_MAX;
    assert_fails(ERR_ARG, "too many members", config_pack(&config, &bytes, &count));
    config_deinit(&config);
}

/* Bytes that announce more than there may be: `bytes_each` of one field, again and again. */
static void assert_flood_refused(const char *text, const uint8_t *row, size_t row_bytes, size_t bytes_count)
{
    uint8_t *bytes;
    assert_ok(mem_new(bytes_count, 1, "a flood", &bytes));
    for (size_t at = 0; at + row_bytes <= bytes_count; at += row_bytes)
        memcpy(bytes + at, row, row_bytes);
    assert_refused(text, bytes, bytes_count / row_bytes * row_bytes);
    mem_free(bytes);
}

static void floods_are_refused(void **state)
{
    (void)state;
    static const uint8_t member[] = {8 << 3 | 2, 0}, carried[] = {10 << 3 | 2, 0}, start[] = {9 << 3, 1};
    static const uint8_t slot[] = {7 << 3, 0}, unknown[] = {15 << 3, 1};
    assert_flood_refused("holds too much", member, 2, CONFIG_BYTES_MAX);
    assert_flood_refused("holds too much", carried, 2, CONFIG_BYTES_MAX);
    assert_flood_refused("holds too much", unknown, 2, CONFIG_BYTES_MAX);
    assert_flood_refused("1025 members", member, 2, 2050);
    assert_flood_refused("8193 carried", carried, 2, 2 * 8193);
    assert_flood_refused("4097 starts", start, 2, 2 * 4097);
    assert_flood_refused("65 slots", slot, 2, 2 * 65);
    assert_flood_refused("63 slots", slot, 2, 2 * 63);
    assert_flood_refused("more than", member, 2, CONFIG_BYTES_MAX + 2);
    assert_refused("nonce of 0 bytes", NULL, 0);
}

static void any_bytes_are_survived(void **state)
{
    (void)state;
    struct config config = of_many_kinds(), back;
    struct env_rng rng = env_rng_init(3, 4);
    uint8_t *bytes;
    size_t count, passed = 0;
    assert_ok(config_pack(&config, &bytes, &count));
    for (int i = 0; i < 5000; i++) {
        size_t at = env_rng_below(&rng, count);
        uint8_t old = bytes[at];
        bytes[at] = (uint8_t)env_rng_u64(&rng);
        if (config_unpack(bytes, count, &back) == ERR_OK) {
            passed++;
            config_deinit(&back);
        }
        bytes[at] = old;
    }
    print_message("%zu of 5000 changed configurations are configurations still\n", passed);
    assert_true(passed > 100 && passed < 4000);
    mem_free(bytes);
    config_deinit(&config);
}

/* ---- what makes sense ---- */

/* Refused by itself, and in bytes. */
static void assert_senseless(const char *text, struct config *config)
{
    uint8_t *bytes;
    size_t count;
    assert_fails(ERR_PROTO, text, config_check(config));
    if (config_pack(config, &bytes, &count) == ERR_OK) {
        assert_refused(text, bytes, count);
        mem_free(bytes);
    }
    config_deinit(config);
}

#define SENSELESS(text, change)                    \
    do {                                           \
        struct config r = of_many_kinds();         \
        struct config_member *const m = r.members; \
        struct part_result *const c = r.carried;   \
        (void)m, (void)c;                          \
        change;                                    \
        assert_senseless(text, &r);                \
    } while (0)

static void members_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    SENSELESS("not in order of id", m[4].id = 3);
    SENSELESS("not in order of id", m[4].id = 6);
    SENSELESS("before that id was given", r.next_id = 7);
    SENSELESS("name that is not", m[1].name[0] = '\0');
    SENSELESS("name that is not", m[1].name[0] = ' ');
    SENSELESS("name that is not", memset(m[1].name, 'a', sizeof m[1].name));
    SENSELESS("members 1 and 4 have one name", strcpy(m[4].name, m[1].name));
    SENSELESS("members 1 and 4 have one key", memcpy(m[4].key, m[1].key, IDENT_KEY_BYTES));
    SENSELESS("members 1 and 4 have one key", (memcpy(m[4].key, m[1].key, IDENT_KEY_BYTES), m[4].key[31] ^= 0x80));
    static const char *const addresses[] = {"m1",       ":7",
                                            "m1:",      "m1:0",
                                            "m1:65536", "m1:+7",
                                            "m1: 7",    "m 1:7",
                                            "m1:07",    "m1:7\x1b",
                                            "m1:7\n",   "\xc3:700",
                                            "m1:7x",    "m1:99999999999999999999",
                                            "*:7600",   "http://m1:7600"};
    for (size_t i = 0; i < sizeof addresses / sizeof addresses[0]; i++)
        SENSELESS("not host:port", strcpy(m[1].address, addresses[i]));
    SENSELESS("not host:port", memset(m[1].address, '1', sizeof m[1].address));
    SENSELESS("role 0", m[4].role = 0);
    SENSELESS("role 7", m[4].role = CONFIG_ROLES);
    SENSELESS("owner choice 5", m[4].owner_choice = CONFIG_OWNER_CHOICES);
    SENSELESS("7 losses", m[4].losses = CONFIG_LOSSES_MAX + 1);
    SENSELESS("drains without having said so", m[6].draining = false);
    SENSELESS("a word of number 9223372036854775808", m[6].word = MEMBER_WORD_NUMBER_MAX);
    SENSELESS("founder 4 is no operator", r.founder = 4);
    SENSELESS("founder 99 is no operator", r.founder = 99);
    SENSELESS("9223372036854775808 steps", r.steps = CONFIG_NUMBER_MAX);
    SENSELESS("does not vote", m[1].voter = false);
    SENSELESS("role 2 and votes", m[4].voter = true);
    SENSELESS("role 3 and votes", m[5].voter = true);
    SENSELESS("2 witnesses", (m[4].role = CONFIG_WITNESS, m[4].voter = true));
    struct config good = of_many_kinds();
    good.members[3].voter = false; /* a witness that would help nobody */
    good.members[6].voter = true;  /* draining */
    good.members[7].voter = false;
    assert_ok(config_check(&good));
    config_deinit(&good);
}

/* What costs most is not done for whoever sends a configuration: keys are looked at last, and those of strangers. */
static void keys_are_looked_at_apart(void **state)
{
    (void)state;
    struct config config = of_many_kinds(), known, got;
    uint8_t *bytes;
    size_t bytes_count;
    assert_ok(config_keys_check(&config, NULL));
    memset(config.members[4].key, 0, IDENT_KEY_BYTES);
    assert_ok(config_check(&config));
    assert_fails(ERR_PROTO, "no public key", config_keys_check(&config, NULL));
    assert_ok(config_pack(&config, &bytes, &bytes_count));
    assert_fails(ERR_PROTO, "no public key", config_unpack(bytes, bytes_count, &got));
    assert_null(got.members);
    assert_ok(config_read(bytes, bytes_count, &got));
    assert_ok(config_copy(&config, &known));
    assert_ok(config_keys_check(&got, &known)); /* it was looked at when it came */
    known.members[4].key[0] ^= 1;
    assert_fails(ERR_PROTO, "no public key", config_keys_check(&got, &known));
    known.members_count = 4;
    assert_fails(ERR_PROTO, "no public key", config_keys_check(&got, &known));
    known.members_count = config.members_count;
    config_deinit(&known);
    config_deinit(&got);
    config_deinit(&config);
    mem_free(bytes);
}

static void owners_voters_and_map_fit_each_other(void **state)
{
    (void)state;
    SENSELESS("no owner", r.map.owner[5] = 4);
    SENSELESS("no owner", r.map.owner[5] = 99);
    SENSELESS("slots of nobody", r.map.owner[5] = SHARDMAP_NOBODY);
    SENSELESS("slots of nobody", r.map = shardmap_empty());
    struct config idle = of_many_kinds();
    for (int i = 0; i < SHARDMAP_SLOTS; i++)
        idle.map.owner[i] = 1; /* the other owners own nothing */
    assert_ok(config_check(&idle));
    config_deinit(&idle);
    struct config alone = configs_first(0, true);
    assert_senseless("without a full voter", &alone);
    struct config nobody = configs_first(0, false);
    assert_senseless("without a full voter", &nobody);
    struct config many = configs_first(64, true);
    assert_ok(config_check(&many));
    configs_add(&many, CONFIG_AWAY)->voter = true;
    assert_senseless("66 voters", &many);
    many = configs_first(64, true);
    configs_add(&many, CONFIG_OWNER);
    assert_senseless("65 owners", &many);
}

static void heads_and_carried_results_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    SENSELESS("configuration 0 names one before", r.epoch = 0);
    SENSELESS("epoch 9223372036854775808", r.epoch = CONFIG_NUMBER_MAX);
    SENSELESS("starts from version 9223372036854775808", r.starts[1] = CONFIG_NUMBER_MAX);
    SENSELESS("not the first one", c[0].id.version = 2);
    SENSELESS("not the first one", c[0].id.version = 0);
    SENSELESS("not the first one", c[3].id.fragment = CONFIG_FRAGMENTS_MAX);
    SENSELESS("of epoch 7 carried into epoch 7", c[3].id.epoch = 7);
    SENSELESS("not in order", c[2].id.epoch = 5);
    SENSELESS("not in order", c[0].id.owner = 3);
    SENSELESS("with no shards", c[3].shards = 0);
    SENSELESS("with shards of another one", c[1].shards |= c[0].shards & -c[0].shards);
    SENSELESS("before that id was given", c[3].id.owner = 8);
    struct config first = configs_first(2, false);
    configs_carry(&first, 0, 0, 0, 1);
    assert_senseless("of epoch 0 carried into epoch 0", &first);
}

static void lookups_and_counts(void **state)
{
    (void)state;
    struct config config = of_many_kinds();
    uint32_t count;
    assert_ptr_equal(config_member(&config, 5), &config.members[5]);
    assert_null(config_member(&config, 8));
    assert_ptr_equal(config_member_named(&config, "m6"), &config.members[6]);
    assert_null(config_member_named(&config, "m8"));
    assert_true(config_start(&config, 1) == 40 && config_start(&config, 0) == 0 && config_start(&config, 9) == 0);
    assert_ptr_equal(config_carried(&config, 0, &count), config.carried);
    assert_int_equal(count, 3);
    assert_ptr_equal(config_carried(&config, 1, &count), config.carried + 3);
    assert_int_equal(count, 1);
    assert_null(config_carried(&config, 2, &count));
    assert_int_equal(count, 0);
    config_deinit(&config);
    /* owners, witness: voters, majority, and where a result has to be durable */
    static const uint32_t cases[][5] = {{1, 0, 1, 1, 1}, {2, 0, 2, 2, 2}, {3, 0, 3, 2, 2}, {4, 0, 4, 3, 3},
                                        {1, 1, 2, 2, 1}, {2, 1, 3, 2, 2}, {3, 1, 4, 3, 3}, {64, 1, 65, 33, 33}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        config = configs_first(cases[i][0], cases[i][1] == 1);
        assert_int_equal(config_voters(&config), cases[i][2]);
        assert_int_equal(config_majority(&config), cases[i][3]);
        assert_int_equal(config_commit_quorum(&config), cases[i][4]);
        config_deinit(&config);
    }
}

/* ---- one after the other ---- */

#define FOLLOWS_NOT(text, change)                                             \
    do {                                                                      \
        struct config n = configs_next(&old);                                 \
        change;                                                               \
        assert_fails(ERR_PROTO, text, config_follows(&old, &old_digest, &n)); \
        config_deinit(&n);                                                    \
    } while (0)
#define FOLLOWS(change)                                   \
    do {                                                  \
        struct config n = configs_next(&old);             \
        change;                                           \
        assert_ok(config_follows(&old, &old_digest, &n)); \
        config_deinit(&n);                                \
    } while (0)

static void only_what_fits_the_one_before_follows_it(void **state)
{
    (void)state;
    struct config old = of_many_kinds();
    struct digest old_digest = configs_digest(&old);
    FOLLOWS((void)n);
    FOLLOWS_NOT("configuration 9 where 8 is due", n.epoch++);
    FOLLOWS_NOT("configuration 7 where 8 is due", n.epoch--);
    FOLLOWS_NOT("of another run", n.nonce[15] ^= 1);
    FOLLOWS_NOT("follows another one", n.previous.byte[31] ^= 1);
    FOLLOWS_NOT("gives ids a second time", (n.next_id = 7, n.members_count = 7));
    FOLLOWS_NOT("gives m99 the id 4 of somebody else", strcpy(n.members[4].name, "m99"));
    FOLLOWS_NOT("the id 4 of somebody else", memcpy(n.members[4].key, configs_ident(40)->key, IDENT_KEY_BYTES));
    FOLLOWS(n.members[4].uplink = n.members[4].incarnation = 5);
    /* Who is the witness has no bytes, and who is not has; each stays that. */
    FOLLOWS_NOT("makes m3, who was the witness, observer", n.members[3].role = CONFIG_OBSERVER);
    FOLLOWS_NOT("makes m5, who was no witness, witness", n.members[5].role = CONFIG_WITNESS);
    FOLLOWS(n.members[3].voter = false);
    FOLLOWS(configs_add(&n, CONFIG_OBSERVER));
    FOLLOWS(n.members_count = 7); /* revoked */
    FOLLOWS_NOT("goes back to version 39 of fragment 1", n.starts[1] = 39);
    FOLLOWS_NOT("goes back to version 0 of fragment 1", n.starts_count = 1);
    FOLLOWS(configs_start(&n, 70, 3));
    config_deinit(&old);
}

static void a_carried_result_stays_until_its_version_is_complete(void **state)
{
    (void)state;
    struct config old = of_many_kinds();
    struct digest old_digest = configs_digest(&old);
    FOLLOWS_NOT("drops the result of 7 for fragment 1, version 41", n.carried_count = 3);
    FOLLOWS((n.carried_count = 3, configs_start(&n, 1, 41)));
    FOLLOWS_NOT("drops the result of 0 for fragment 0, version 1", n.carried[0].id.digest.byte[0] ^= 1);
    FOLLOWS_NOT("drops the result of 2 for fragment 0", n.carried[1].shards |= 1ull << 60);
    FOLLOWS(configs_carry(&n, 0, 1, 7, 1ull << 40));
    /* What nobody carried before is new, and made in the epoch before by who was an owner there. */
    FOLLOWS_NOT("who was no owner", configs_carry(&n, 0, 1, 6, 1ull << 40));
    FOLLOWS_NOT("who was no owner", configs_carry(&n, 0, 4, 7, 1ull << 40));
    FOLLOWS_NOT("who was no owner", configs_carry(&n, 0, 50, 7, 1ull << 40));
    config_deinit(&old);
}

/* ---- votes ---- */

static void a_vote_is_for_one_configuration_in_one_ballot(void **state)
{
    (void)state;
    struct config config = configs_first(3, false);
    struct digest digest = configs_digest(&config), other = digest_of("other", 5);
    struct config_vote vote = configs_vote(1, &config, 9);
    const uint8_t *key = config.members[1].key;
    uint8_t other_nonce[CONFIG_NONCE_BYTES] = {1};
    assert_true(config_vote_good(key, config.nonce, 0, &digest, &vote));
    assert_false(config_vote_good(config.members[2].key, config.nonce, 0, &digest, &vote));
    assert_false(config_vote_good(key, other_nonce, 0, &digest, &vote));
    assert_false(config_vote_good(key, config.nonce, 1, &digest, &vote));
    assert_false(config_vote_good(key, config.nonce, 0, &other, &vote));
    vote.ballot = 8;
    assert_false(config_vote_good(key, config.nonce, 0, &digest, &vote));
    vote.ballot = 9;
    vote.signature[63] ^= 1;
    assert_false(config_vote_good(key, config.nonce, 0, &digest, &vote));
    /* What is signed, word for word (docs/PROTOCOL.md): another implementation signs the same. */
    uint8_t message[18 + 16 + 8 + 8 + 32] = "diloco record vote";
    memcpy(message + 18, config.nonce, 16);
    message[18 + 16 + 8] = 9;
    memcpy(message + 18 + 32, digest.byte, 32);
    ident_sign(configs_ident(1), message, sizeof message, vote.signature);
    assert_true(config_vote_good(key, config.nonce, 0, &digest, &vote));
    config_deinit(&config);
}

static enum err prove(const struct config *old, const struct config *next, const struct config_vote *votes,
                      uint32_t count)
{
    struct digest old_digest = configs_digest(old), next_digest = configs_digest(next);
    return config_proved(old, &old_digest, next, &next_digest, votes, count);
}

/* Whoever has voted for it. */
static void what_no_order_says_no_votes_prove(void **state)
{
    (void)state;
    struct config old = configs_first(3, false), next = configs_next(&old);
    struct config_vote votes[3];
    next.members[1].operates = true;
    for (uint32_t i = 0; i < 3; i++)
        votes[i] = configs_vote(i, &next, 6);
    assert_fails(ERR_PROTO, "another power of m1 than orders give it", prove(&old, &next, votes, 3));
    config_deinit(&old);
    config_deinit(&next);
}

static void what_no_majority_signed_no_votes_prove(void **state)
{
    (void)state;
    struct config old = configs_first(3, false), next = configs_next(&old);
    struct config_vote votes[3];
    next.members[1].incarnation++;
    for (uint32_t i = 0; i < 3; i++)
        votes[i] = configs_vote(i, &next, 6);
    assert_fails(ERR_PROTO, "gives a vote or shards to m1, and no majority", prove(&old, &next, votes, 3));
    config_deinit(&old);
    config_deinit(&next);
}

static void what_deals_data_by_no_rule_no_votes_prove(void **state)
{
    (void)state;
    struct config old = configs_first(3, false), next = configs_next(&old);
    struct config_vote votes[3];
    next.deal.start.position++;
    for (uint32_t i = 0; i < 3; i++)
        votes[i] = configs_vote(i, &next, 6);
    assert_fails(ERR_PROTO, "and by the rule from step", prove(&old, &next, votes, 3));
    config_deinit(&old);
    config_deinit(&next);
}

static void a_majority_of_the_voters_before_proves_a_configuration(void **state)
{
    (void)state;
    struct config old = configs_first(3, true);
    configs_add(&old, CONFIG_CONTRIBUTOR);
    struct config next = configs_next(&old);
    struct config_vote votes[CONFIG_VOTERS_MAX + 1];
    memset(votes, 0, sizeof votes);
    for (uint32_t i = 0; i < 5; i++)
        votes[i] = configs_vote(i, &next, 6); /* the fourth is the witness, the fifth has no vote */
    assert_ok(prove(&old, &next, votes, 5));
    assert_ok(prove(&old, &next, votes + 1, 3)); /* three of four */
    assert_fails(ERR_PROTO, "the votes of 2 of the 4 voters before it in one ballot; 3 are needed",
                 prove(&old, &next, votes, 2));
    assert_fails(ERR_PROTO, "the votes of 2 of", prove(&old, &next, votes + 2, 3)); /* one is no voter */
    assert_fails(ERR_PROTO, "the votes of 0 of", prove(&old, &next, NULL, 0));
    votes[1] = votes[2] = votes[0];
    assert_fails(ERR_PROTO, "the votes of 2 of", prove(&old, &next, votes, 4)); /* one of them voted twice */
    votes[1] = configs_vote(1, &next, 7);
    assert_fails(ERR_PROTO, "the votes of 2 of", prove(&old, &next, votes, 4)); /* in another ballot */
    votes[1].ballot = 6;
    assert_fails(ERR_PROTO, "the votes of 2 of", prove(&old, &next, votes, 4)); /* and said to be in this one */
    votes[1] = configs_vote(1, &old, 6);
    assert_fails(ERR_PROTO, "the votes of 2 of", prove(&old, &next, votes, 4)); /* for another configuration */
    votes[1] = configs_vote(2, &next, 6);
    votes[1].id = 1;
    assert_fails(ERR_PROTO, "the votes of 2 of", prove(&old, &next, votes, 4)); /* of somebody else */
    votes[1] = configs_vote(1, &next, 6);
    votes[4].id = 77; /* what counts nowhere does no harm */
    assert_ok(prove(&old, &next, votes, 5));
    assert_fails(ERR_PROTO, "with 66 votes", prove(&old, &next, votes, CONFIG_VOTERS_MAX + 1));
    next.previous.byte[0] ^= 1;
    assert_fails(ERR_PROTO, "follows another one", prove(&old, &next, votes, 4));
    config_deinit(&next);
    config_deinit(&old);
}

/* However many votes a message has, in however many ballots. */
static void a_message_takes_one_check_a_voter_at_most(void **state)
{
    (void)state;
    struct config old = configs_first(3, true), next = configs_next(&old);
    struct config_vote votes[CONFIG_VOTERS_MAX];
    for (uint32_t i = 0; i < CONFIG_VOTERS_MAX; i++) /* signatures of the right form, of something else */
        votes[i] = configs_vote(i % 4, &old, 6 + i / 4);
    uint64_t before = ident_checks();
    assert_fails(ERR_PROTO, "are needed", prove(&old, &next, votes, CONFIG_VOTERS_MAX));
    assert_in_range(ident_checks() - before, 1, 4);
    /* Each alone in its ballot: that is no majority of anything. */
    for (uint32_t i = 0; i < CONFIG_VOTERS_MAX; i++)
        votes[i].ballot = 6 + i;
    before = ident_checks();
    assert_fails(ERR_PROTO, "the votes of 1 of", prove(&old, &next, votes, CONFIG_VOTERS_MAX));
    assert_int_equal(ident_checks() - before, 0);
    /* Between all that the good ones are found, and the others are not looked at. */
    for (uint32_t i = 0; i < 3; i++)
        votes[20 + 7 * i] = configs_vote(i, &next, 500);
    before = ident_checks();
    assert_ok(prove(&old, &next, votes, CONFIG_VOTERS_MAX));
    assert_int_equal(ident_checks() - before, 3);
    config_deinit(&old);
    config_deinit(&next);
}

/* ---- memory ---- */

static enum err make_all(void *user)
{
    const struct config *config = user;
    struct config copy, back;
    uint8_t *bytes;
    size_t count;
    TRY(config_copy(config, &copy));
    enum err err = config_pack(&copy, &bytes, &count);
    config_deinit(&copy);
    TRY(err);
    err = config_unpack(bytes, count, &back);
    mem_free(bytes);
    if (err == ERR_OK)
        config_deinit(&back);
    else
        assert_true(back.members == NULL && back.starts == NULL && back.carried == NULL);
    return err;
}

static void every_path_without_memory_is_clean(void **state)
{
    (void)state;
    struct config config = of_many_kinds();
    print_message("%zu allocations failed in turn\n", outofmem_walk(make_all, &config));
    config_deinit(&config);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_configuration_comes_back_as_it_was),
        cmocka_unit_test(a_configuration_without_owners_has_an_empty_map),
        cmocka_unit_test(an_uplink_counts_no_more_than_twice_another_and_four_medians),
        cmocka_unit_test(a_configuration_has_one_form_of_bytes),
        cmocka_unit_test(the_most_that_is_allowed_passes_and_more_is_refused),
        cmocka_unit_test(floods_are_refused),
        cmocka_unit_test(any_bytes_are_survived),
        cmocka_unit_test(members_that_make_no_sense_are_refused),
        cmocka_unit_test(keys_are_looked_at_apart),
        cmocka_unit_test(owners_voters_and_map_fit_each_other),
        cmocka_unit_test(heads_and_carried_results_that_make_no_sense_are_refused),
        cmocka_unit_test(lookups_and_counts),
        cmocka_unit_test(only_what_fits_the_one_before_follows_it),
        cmocka_unit_test(a_carried_result_stays_until_its_version_is_complete),
        cmocka_unit_test(a_vote_is_for_one_configuration_in_one_ballot),
        cmocka_unit_test(a_majority_of_the_voters_before_proves_a_configuration),
        cmocka_unit_test(a_message_takes_one_check_a_voter_at_most),
        cmocka_unit_test(what_no_order_says_no_votes_prove),
        cmocka_unit_test(what_no_majority_signed_no_votes_prove),
        cmocka_unit_test(what_deals_data_by_no_rule_no_votes_prove),
        cmocka_unit_test(every_path_without_memory_is_clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
