/* SPDX-License-Identifier: Apache-2.0 */
/* config_store: which configurations rule: those on disk, or the first one of a run that this island founds; whose key
 * is on the roster; which way leads to whom; and what changes when the next configuration is adopted. */
#include "tests/lib/endorsed.h"
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/mem.h"
#include "daemon/founding.h"
#include "daemon/membership/config_store.h"
#include "net/config/config_deal.h"
#include "net/config/config_orders.h"
#include "net/config/config_proof.h"
#include "tests/lib/begun.h"
#include "tests/lib/overhear.h"

enum { A, B, C, ISLANDS };
static const char *const names[ISLANDS] = {"a", "b", "c"};

static const char *folder;
static struct ident idents[ISLANDS], stranger;
static struct keyring keyring;
static struct runspec spec;
static struct dconf conf;
static struct config_store configs;

static int set_up(void **state)
{
    (void)state;
    folder = testlib_folder("config-store");
    assert_ok(runspec_parse("[run]\nname = r\nsteps = 77\n", "r", &spec));
    for (int i = 0; i < ISLANDS; i++)
        assert_ok(ident_generate(&idents[i]));
    assert_ok(ident_generate(&stranger));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    config_store_close(&configs);
    conf_deinit(&dconf_schema, &conf);
    runspec_deinit(&spec);
    return 0;
}

/* Island a's; `more`: lines of [net]. */
static void configure(const char *more)
{
    const char *path = testlib_file(
        folder, "a.conf", "[island]\nname = a\nrun = r\nkey = k\nstate = state\n[worker]\ndata = d\n[net]\n%s", more);
    conf_deinit(&dconf_schema, &conf);
    assert_ok(dconf_load(path, NULL, 0, &conf));
}

/* All three are in the run that lies on disk; with a witness, a is that. */
static void put_down(bool witness)
{
    struct begun_island islands[ISLANDS];
    static const uint8_t nonce[CONFIG_NONCE_BYTES] = "the nonce of it";
    for (int i = 0; i < ISLANDS; i++)
        islands[i] = (struct begun_island){.name = names[i],
                                           .address = i == C ? "c:1" : "",
                                           .ident = &idents[i],
                                           .uplink = 1000000000,
                                           .witness = witness && i == A,
                                           .state = conf.state_folder};
    assert_ok(begun_at_once(islands, ISLANDS, &spec, nonce));
}

static void configure_three(void)
{
    configure("");
    put_down(false);
}

static enum err open_as(const struct ident *ident)
{
    config_store_close(&configs);
    keyring = (struct keyring){.ident = *ident};
    return config_store_open(&conf, &keyring, &spec, &configs);
}

/* Configuration e + 1, changed by the test. */
static struct config next_config(void)
{
    struct config config;
    assert_ok(config_copy(config_log_last(configs.config_log), &config));
    config.epoch++;
    config.previous = *config_log_last_digest(configs.config_log);
    return config;
}

/* Keeps it as one that b and c decided. */
static void keep(const struct config *config)
{
    struct config_entry entry = {0};
    struct config_vote votes[2] = {{.id = B, .ballot = 5}, {.id = C, .ballot = 5}};
    assert_ok(config_pack(config, &entry.bytes, &entry.bytes_count));
    struct digest digest = config_digest(entry.bytes, entry.bytes_count);
    for (int i = 0; i < 2; i++)
        config_vote_sign(&idents[B + i], config->nonce, config->epoch, 5, &digest, votes[i].signature);
    entry.votes = votes;
    entry.votes_count = 2;
    assert_ok(config_store_save(conf.state_folder, config->epoch, &entry));
    mem_free(entry.bytes);
}

static struct digest config_digest_of(const struct config *config)
{
    uint8_t *bytes;
    size_t count;
    assert_ok(config_pack(config, &bytes, &count));
    struct digest digest = config_digest(bytes, count);
    mem_free(bytes);
    return digest;
}

/* ---- which configurations rule ---- */

static void the_first_configuration_is_the_founders_alone_and_is_kept(void **state)
{
    (void)state;
    struct config_entry entry;
    struct config kept;
    configure("address = a.example.org:7\nuplink = 3Mbit\nlisten =\n");
    assert_ok(open_as(&idents[A]));
    const struct config *config = config_log_last(configs.config_log);
    assert_int_equal(config->epoch, 0);
    assert_int_equal(config->members_count, 1);
    assert_int_equal(config->next_id, 1);
    assert_int_equal(config->steps, 77);
    assert_int_equal(configs.view.self, A);
    const struct config_member *self = &config->members[0];
    assert_true(self->role == CONFIG_OWNER && self->voter && self->owner_choice == CONFIG_OWNER_DIALS);
    assert_string_equal(self->name, "a");
    assert_string_equal(self->address, "a.example.org:7");
    assert_int_equal(self->uplink, 3000000);
    for (uint32_t slot = 0; slot < SHARDMAP_SLOTS; slot++)
        assert_int_equal(config->map.owner[slot], 0);
    assert_ok(config_check(config));
    assert_ok(config_store_read(conf.state_folder, 0, &entry));
    assert_ok(config_unpack(entry.bytes, entry.bytes_count, &kept));
    struct digest digest = config_digest(entry.bytes, entry.bytes_count);
    assert_true(digest_equal(&digest, config_log_last_digest(configs.config_log)));
    config_deinit(&kept);
    config_entry_free(&entry);
}

/* It may be corrected until then. */
static void a_founder_that_has_made_nothing_founds_what_its_configuration_says_now(void **state)
{
    (void)state;
    uint8_t nonce[CONFIG_NONCE_BYTES];
    configure("uplink = 3Mbit\n");
    assert_ok(open_as(&idents[A]));
    memcpy(nonce, configs.view.nonce, sizeof nonce);
    configure("uplink = 5Mbit\n");
    assert_ok(open_as(&idents[A]));
    assert_int_equal(config_log_last(configs.config_log)->members[0].uplink, 5000000);
    assert_memory_equal(nonce, configs.view.nonce, sizeof nonce); /* whoever has a token of it comes in */
    runspec_deinit(&spec);
    assert_ok(runspec_parse("[run]\nname = r\nsteps = 78\n", "r", &spec));
    assert_ok(open_as(&idents[A]));
    assert_int_equal(config_log_last(configs.config_log)->steps, 78);
    assert_memory_not_equal(nonce, configs.view.nonce, sizeof nonce);
    /* With others in it, it is what it is. */
    put_down(false);
    assert_ok(open_as(&idents[A]));
    assert_int_equal(configs.view.count, ISLANDS);
}

static void a_configuration_on_disk_rules(void **state)
{
    (void)state;
    configure_three();
    assert_ok(open_as(&idents[A]));
    struct config config = next_config();
    static const uint32_t voters[] = {B, C};
    const struct ident *const signers[] = {&idents[B], &idents[C]};
    config.members[B].incarnation = 88;
    endorsed(config_log_last(configs.config_log), &config, voters, signers, 2);
    keep(&config);
    config_deinit(&config);
    configure("uplink = 5Mbit\n");
    assert_ok(open_as(&idents[A]));
    assert_int_equal(configs.view.epoch, 1);
    assert_int_equal(configs.view.count, ISLANDS);
    assert_int_equal(config_log_last(configs.config_log)->members[B].incarnation, 88);
    assert_int_equal(configs.view.members[A].as.uplink, 1000000000);
}

/* What people wrote goes before what the configuration says, and that before what the token said. */
static void a_way_that_the_configuration_knows_is_taken(void **state)
{
    (void)state;
    configure_three();
    configure("inviter = b=there:2\nreach = nobody=x:1 c=near:2\n");
    assert_ok(open_as(&idents[A]));
    assert_string_equal(configs.view.members[B].as.address, "there:2");
    assert_string_equal(configs.view.members[C].as.address, "near:2");
    configure("inviter = c=there:2\n");
    assert_ok(open_as(&idents[A]));
    assert_string_equal(configs.view.members[B].as.address, "");
    assert_string_equal(configs.view.members[C].as.address, "c:1");
}

static void a_configuration_that_nobody_decided_does_not_rule(void **state)
{
    (void)state;
    configure_three();
    assert_ok(open_as(&idents[A]));
    struct config config = next_config();
    struct config_entry entry = {0};
    assert_ok(config_pack(&config, &entry.bytes, &entry.bytes_count));
    assert_ok(config_store_save(conf.state_folder, 1, &entry));
    mem_free(entry.bytes);
    config_deinit(&config);
    overhear_begin();
    assert_ok(open_as(&idents[A]));
    assert_true(strlen(overhear_end()) > 0);
    assert_int_equal(configs.view.epoch, 0);
}

static void whose_key_is_not_on_the_roster_is_told_what_to_do(void **state)
{
    (void)state;
    configure_three();
    assert_ok(open_as(&idents[A]));
    struct config config = next_config();
    keep(&config);
    config_deinit(&config);
    assert_fails(ERR_CONF, "is not on the roster of epoch 1", open_as(&stranger));
    assert_null(configs.config_log);
    assert_null(configs.view.members);
    assert_ok(open_as(&idents[A]));
}

/* What the configuration says a member is, it stays: a configuration that says otherwise is wrong. */
static void who_is_no_witness_does_not_begin_as_one(void **state)
{
    (void)state;
    configure_three();
    assert_ok(open_as(&idents[A]));
    struct config config = next_config();
    keep(&config);
    config_deinit(&config);
    conf.witness = true;
    assert_fails(ERR_CONF, "as one that trains, which it stays", open_as(&idents[A]));
    conf.witness = false;
    assert_ok(open_as(&idents[A]));
    /* And the other way round, in a run of its own, which it has not begun. */
    config_store_close(&configs);
    folder = testlib_folder("config-store-witness");
    configure("");
    conf.witness = true;
    assert_fails(ERR_CONF, "a witness joins it: ", open_as(&idents[A]));
    put_down(true);
    assert_ok(open_as(&idents[A]));
    assert_int_equal(configs.view.members[configs.view.self].as.role, CONFIG_WITNESS);
    struct sync_view view = config_store_sync_view(&configs, true);
    assert_false(view.votes); /* of results */
    assert_true(bitset_has(&view.witness, configs.view.self) && bitset_count(&view.witness) == 1);
    assert_int_equal(bitset_count(&view.keepers), 2);
    assert_int_equal(bitset_count(&view.taking_part), 2);
    assert_int_equal(view.commit_quorum, 2);
    config = next_config();
    keep(&config);
    config_deinit(&config);
    conf.witness = false;
    assert_fails(ERR_CONF, "as its witness: set [island] witness = yes", open_as(&idents[A]));
}

/* ---- the next configuration ---- */

static void a_configuration_that_is_adopted_changes_who_takes_part(void **state)
{
    (void)state;
    struct view_changes changes;
    configure_three();
    assert_ok(open_as(&idents[A]));
    struct sync_view before = config_store_sync_view(&configs, true);
    assert_true(before.votes && bitset_has(&before.keepers, C) && bitset_has(&before.taking_part, C));
    assert_int_equal(before.commit_quorum, 2);
    struct config config = next_config();
    struct shardmap_owner owners[2] = {{.id = A, .weight = 1}, {.id = B, .weight = 1}};
    shardmap_assign(&config.map, owners, 2);
    config.members[C].role = CONFIG_AWAY;
    config_deal_next(config_log_last(configs.config_log), 0, &config);
    struct digest digest = digest_of("r", 1);
    overhear_begin();
    assert_ok(config_store_adopt(&configs, &config, &digest, &changes));
    overhear_assert_once(overhear_end(), "island c is lost: the run goes on without it, and it comes back by itself");
    assert_true(bitset_has(&changes.changed, C) && !bitset_has(&changes.changed, A));
    struct sync_view view = config_store_sync_view(&configs, true);
    assert_int_equal(view.epoch, 1);
    assert_false(bitset_has(&view.taking_part, C));                            /* rounds do not wait for it */
    assert_true(bitset_has(&view.keepers, C) && bitset_has(&view.members, C)); /* but it may still vote */
    assert_int_equal(view.self, A);
    assert_false(config_store_sync_view(&configs, false).votes);
    /* Who is taken off the roster is told, and how to come back. */
    config = next_config();
    for (uint32_t i = A; i < C; i++)
        config.members[i] = config.members[i + 1];
    config.members_count--;
    shardmap_assign(&config.map, owners + 1, 1);
    assert_fails(ERR_STATE, "taken off the roster", config_store_adopt(&configs, &config, &digest, &changes));
    config_deinit(&config);
}

/* By the same name, key and run spec: what is drawn makes it another run. Without a file beside the configuration it is
 * kept in the state folder. */
static void a_run_that_is_founded_anew_has_another_nonce(void **state)
{
    (void)state;
    uint8_t nonce[4][CONFIG_NONCE_BYTES];
    const char *drawn = testlib_path(folder, "founded");
    for (int i = 0; i < 4; i++) {
        testlib_folder("config-store");
        configure("");
        mem_free(conf.founded);
        assert_ok(mem_strdup(i > 1 ? drawn : "", &conf.founded));
        if (i > 1)
            assert_ok(founding_draw(drawn));
        assert_ok(open_as(&idents[A]));
        memcpy(nonce[i], configs.view.nonce, CONFIG_NONCE_BYTES);
        assert_ok(open_as(&idents[A])); /* as on disk */
        assert_memory_equal(nonce[i], configs.view.nonce, CONFIG_NONCE_BYTES);
        for (int k = 0; k < i; k++)
            assert_memory_not_equal(nonce[k], nonce[i], CONFIG_NONCE_BYTES);
    }
    /* Whose state folder is lost is in the run that it founded, which others can tell it of. */
    config_store_close(&configs);
    testlib_clear(conf.state_folder);
    assert_ok(open_as(&idents[A]));
    assert_memory_equal(nonce[3], configs.view.nonce, CONFIG_NONCE_BYTES);
    assert_int_equal(unlink(drawn), 0);
    testlib_clear(conf.state_folder);
    assert_fails(ERR_CONF, "as [island] founded says", open_as(&idents[A]));
}

/* ---- a state folder from before another key ---- */

/* It rules from now on. */
static void go_on(struct config *config)
{
    struct view_changes changes;
    keep(config);
    struct digest digest = config_digest_of(config);
    assert_ok(config_store_adopt(&configs, config, &digest, &changes));
}

/* a asks for the key `next` in epoch 1, and has it in epoch 2, by an order of its own: it is the founder. */
static void rekey(const struct ident *next)
{
    const struct config *last = config_log_last(configs.config_log);
    const struct config_member *as = &last->members[A];
    struct config config = next_config();
    struct member_word word = {
        .number = as->word + 1, .uplink = as->uplink, .owner_choice = as->owner_choice, .units = as->units};
    member_word_state_next(next, as->key, last->nonce, A, &word);
    member_word_sign(&idents[A], last->nonce, A, &word);
    assert_ok(config_word_apply(last, &config, A, &word));
    assert_int_equal(config.words_count, 1);
    go_on(&config);
    last = config_log_last(configs.config_log);
    struct order order = {.kind = ORDER_REKEY, .signer = A, .subject = A, .number = 1, .epoch = last->epoch};
    memcpy(order.key, next->key, sizeof order.key);
    order_sign(&idents[A], last->nonce, &order);
    config = next_config();
    assert_ok(config_order_apply(last, &config, &order));
    go_on(&config);
}

static void remove_config(uint64_t epoch)
{
    char name[64];
    snprintf(name, sizeof name, "config-%012u", (unsigned)epoch);
    assert_int_equal(unlink(testlib_path(conf.state_folder, name)), 0);
}

static enum err open_with(const struct ident *ident, const struct ident *before, const char *config_path)
{
    config_store_close(&configs);
    keyring = (struct keyring){.ident = *ident, .before = *before, .config_path = (char *)(uintptr_t)config_path};
    return config_store_open(&conf, &keyring, &spec, &configs);
}

/* This island has another key, and a copy of its folder from before that: its first configuration alone. */
static struct ident rekeyed_with_an_older_folder(const char *beside)
{
    struct ident next;
    assert_ok(ident_generate(&next));
    configure_three();
    assert_ok(open_with(&idents[A], &(struct ident){0}, beside));
    keyring.next = next;
    rekey(&next);
    assert_string_equal(keyring.ident.public_text, next.public_text);
    remove_config(1);
    remove_config(2);
    return next;
}

/* Nobody has to delete anything: the configuration beside the key leads from there to the others. */
static void a_copy_from_before_another_key_is_gone_on_from(void **state)
{
    (void)state;
    const char *beside = testlib_path(folder, "k.config");
    struct ident next = rekeyed_with_an_older_folder(beside);
    overhear_begin();
    assert_ok(open_with(&next, &idents[A], beside));
    overhear_assert_once(overhear_end(), "is from before this island had its key");
    for (int starts = 0; starts < 2; starts++) { /* and goes on from there, without a gap */
        assert_int_equal(configs.view.epoch, 2);
        assert_int_equal(configs.view.self, A);
        assert_ok(open_with(&next, &idents[A], NULL));
    }
}

static void a_copy_that_nothing_leads_on_from_says_what_to_do(void **state)
{
    (void)state;
    static const char says[] = "is from before this island had the key ";
    const char *beside = testlib_path(folder, "k.config");
    struct ident next = rekeyed_with_an_older_folder(beside);
    /* One that is there, and of this island, but not of this key: it is another copy that is older. */
    assert_fails(ERR_CONF, "is not on the roster of epoch 0", open_with(&stranger, &next, beside));
    assert_fails(ERR_CONF, says, open_with(&next, &idents[A], testlib_file(folder, "k.config", "damaged")));
    assert_int_equal(unlink(beside), 0);
    assert_fails(ERR_CONF, says, open_with(&next, &idents[A], beside));
    assert_ok(open_with(&idents[A], &(struct ident){0}, beside)); /* the copy is as it was */
    assert_int_equal(configs.view.epoch, 0);
}

/* ---- old configurations ---- */

static bool is_alone(uint64_t epoch)
{
    char name[64];
    snprintf(name, sizeof name, "config-%012u", (unsigned)epoch);
    return access(testlib_path(conf.state_folder, name), F_OK) == 0;
}

static void tidy(uint64_t needed)
{
    assert_ok(config_store_pack(conf.state_folder, config_store_old(&configs, needed)));
}

/* Of neither what a restart needs nor what is new: those are files of their own. */
static void old_configurations_are_put_together_as_far_as_nobody_needs_them(void **state)
{
    (void)state;
    enum { LAST = 700 };
    configure_three();
    assert_ok(open_as(&idents[A]));
    while (config_log_last(configs.config_log)->epoch < LAST) {
        struct view_changes changes;
        struct config next = next_config();
        keep(&next);
        struct digest digest = config_digest_of(&next);
        assert_ok(config_store_adopt(&configs, &next, &digest, &changes));
    }
    tidy(0);
    assert_true(is_alone(0));
    tidy(255);
    assert_true(is_alone(0));
    tidy(300);
    assert_false(is_alone(0) || is_alone(255));
    assert_true(is_alone(256));
    tidy(UINT64_MAX); /* those of the last 256 stay */
    assert_true(is_alone(256));
    assert_ok(open_as(&idents[A]));
    assert_int_equal(config_log_last(configs.config_log)->epoch, LAST);
}

int main(void)
{
    assert_ok(digest_init());
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(the_first_configuration_is_the_founders_alone_and_is_kept),
        CASE(a_founder_that_has_made_nothing_founds_what_its_configuration_says_now),
        CASE(a_configuration_on_disk_rules),
        CASE(a_way_that_the_configuration_knows_is_taken),
        CASE(a_configuration_that_nobody_decided_does_not_rule),
        CASE(who_is_no_witness_does_not_begin_as_one),
        CASE(whose_key_is_not_on_the_roster_is_told_what_to_do),
        CASE(a_configuration_that_is_adopted_changes_who_takes_part),
        CASE(a_copy_from_before_another_key_is_gone_on_from),
        CASE(a_copy_that_nothing_leads_on_from_says_what_to_do),
        cmocka_unit_test_setup_teardown(old_configurations_are_put_together_as_far_as_nobody_needs_them, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_run_that_is_founded_anew_has_another_nonce, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
