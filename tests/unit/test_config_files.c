/* SPDX-License-Identifier: Apache-2.0 */
/* config_store: a config log on disk is believed as far as each configuration is proved by the one before. */
#include "tests/lib/endorsed.h"
#include "tests/lib/testlib.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/fsio.h"
#include "common/mem.h"
#include "daemon/membership/config_store.h"
#include "net/config/config_proof.h"
#include "tests/lib/outofmem.h"
#include "tests/lib/overhear.h"
#include "tests/lib/sample_configs.h"

enum { MEMBERS = 3, EPOCHS = 5, BALLOT = 7, RECORD_AT = 32, VOTE_BYTES = 16 + IDENT_SIGNATURE_BYTES };

static const char *folder;

/* Of every epoch: who left or joined is no matter here, only who voted. */
static struct config config_log_configs[EPOCHS];

static void make_configs(void)
{
    static const uint32_t voters[] = {0, 1};
    const struct ident *const signers[] = {configs_ident(0), configs_ident(1)};
    config_log_configs[0] = configs_first(MEMBERS, false);
    for (uint32_t e = 1; e < EPOCHS; e++) {
        config_log_configs[e] = configs_next(&config_log_configs[e - 1]);
        config_log_configs[e].members[1].incarnation += e;
        endorsed(&config_log_configs[e - 1], &config_log_configs[e], voters, signers, 2);
    }
}

static void free_configs(void)
{
    for (uint32_t e = 0; e < EPOCHS; e++)
        config_deinit(&config_log_configs[e]);
}

/* A configuration with the votes of members 0 to `count` - 1. */
static struct config_entry entry_of(const struct config *config, uint32_t count)
{
    struct config_entry entry = {.votes_count = count};
    assert_ok(config_pack(config, &entry.bytes, &entry.bytes_count));
    assert_ok(mem_new(MEMBERS, sizeof *entry.votes, "votes", &entry.votes));
    for (uint32_t i = 0; i < count; i++)
        entry.votes[i] = configs_vote(i, config, BALLOT);
    return entry;
}

static void save(const struct config *config, uint64_t epoch, uint32_t votes)
{
    struct config_entry entry = entry_of(config, votes);
    assert_ok(config_store_save(folder, epoch, &entry));
    config_entry_free(&entry);
}

static void save_all(const char *name)
{
    folder = testlib_folder(name);
    for (uint32_t e = 0; e < EPOCHS; e++)
        save(&config_log_configs[e], e, e == 0 ? 0 : 2 + e % 2);
}

static const char *path_of(uint64_t epoch)
{
    char name[64];
    snprintf(name, sizeof name, "config-%012u", (unsigned)epoch);
    return testlib_path(folder, name);
}

static enum err load(struct config_log **config_log)
{
    assert_ok(config_log_new(config_log));
    return config_store_load(folder, config_log_configs[0].nonce, true, *config_log);
}

/* Fails unless epochs `first` to `last` are what is loaded. */
static void assert_loads(uint64_t first, uint64_t last)
{
    struct config_log *config_log;
    assert_ok(load(&config_log));
    assert_int_equal(config_log_last(config_log)->epoch, last);
    for (uint64_t e = 0; e < EPOCHS; e++) {
        const struct config *config = config_log_at(config_log, e);
        assert_int_equal(config != NULL, e >= first && e <= last);
        assert_true(config == NULL || config->members[1].incarnation == config_log_configs[e].members[1].incarnation);
    }
    struct digest digest = configs_digest(&config_log_configs[last]);
    assert_true(digest_equal(config_log_last_digest(config_log), &digest));
    config_log_free(config_log);
}

static void what_was_saved_is_read_as_it_was(void **state)
{
    (void)state;
    save_all("configs-read");
    struct config_entry got, entry = entry_of(&config_log_configs[2], 3);
    assert_ok(config_store_save(folder, 2, &entry)); /* in the place of what was there */
    assert_ok(config_store_read(folder, 2, &got));
    assert_int_equal(got.bytes_count, entry.bytes_count);
    assert_memory_equal(got.bytes, entry.bytes, entry.bytes_count);
    assert_int_equal(got.votes_count, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(got.votes[i].id == entry.votes[i].id && got.votes[i].ballot == BALLOT);
        assert_memory_equal(got.votes[i].signature, entry.votes[i].signature, IDENT_SIGNATURE_BYTES);
    }
    config_entry_free(&got);
    assert_ok(config_store_read(folder, 0, &got)); /* of which nobody voted */
    assert_int_equal(got.votes_count, 0);
    config_entry_free(&got);
    assert_int_equal(config_store_read(folder, EPOCHS, &got), ERR_NOTFOUND);
    assert_null(got.bytes);
    entry.votes_count = CONFIG_OWNERS_MAX + 2;
    assert_fails(ERR_ARG, "a configuration of", config_store_save(folder, 2, &entry));
    entry.votes_count = 3;
    size_t bytes_count = entry.bytes_count;
    entry.bytes_count = (size_t)CONFIG_BYTES_MAX + 1;
    assert_fails(ERR_ARG, "a configuration of", config_store_save(folder, 2, &entry));
    entry.bytes_count = bytes_count;
    config_entry_free(&entry);
}

static void the_whole_config_log_is_loaded(void **state)
{
    (void)state;
    save_all("configs-log");
    testlib_file(folder, "config-7", "a stranger's");
    testlib_file(folder, "config-000000000009.new", "what a crash left");
    testlib_file(folder, "config-0000000000011", "thirteen digits");
    assert_loads(0, EPOCHS - 1);
    struct config_log *config_log;
    folder = testlib_folder("configs-none");
    assert_fails(ERR_NOTFOUND, "no configuration", load(&config_log));
    config_log_free(config_log);
    folder = testlib_path(folder, "nowhere");
    assert_fails(ERR_NOTFOUND, "no configuration", load(&config_log));
    config_log_free(config_log);
}

/* ---- what is damaged, or missing ---- */

static void flip(const char *path, size_t at)
{
    char *data;
    size_t bytes;
    assert_ok(fsio_read(path, 1 << 20, &data, &bytes));
    assert_true(at < bytes);
    data[at] ^= 0x40;
    assert_ok(fsio_replace(path, data, bytes, 0644));
    mem_free(data);
}

static void a_damaged_one_ends_the_config_log(void **state)
{
    (void)state;
    static const size_t where[] = {0, 4, 8, 16, 24, RECORD_AT, RECORD_AT + 300};
    for (size_t i = 0; i < sizeof where / sizeof where[0]; i++) {
        struct config_entry got;
        save_all("configs-damaged");
        flip(path_of(3), where[i]);
        assert_fails(ERR_CORRUPT, "is damaged", config_store_read(folder, 3, &got));
        overhear_begin();
        assert_loads(0, 2);
        assert_non_null(strstr(overhear_end(), "configuration 3 is not used"));
        save(&config_log_configs[3], 3, 2); /* as others send it again */
        assert_loads(0, EPOCHS - 1);
    }
    for (long left = 0; left < RECORD_AT + 100; left += 13) {
        assert_int_equal(truncate(path_of(3), left), 0);
        assert_loads(0, 2);
        save(&config_log_configs[3], 3, 2);
    }
    assert_int_equal(unlink(path_of(3)), 0); /* a hole is no more than an end */
    assert_loads(0, 2);
}

/* Who has forgotten the first ones, or lost the oldest, goes on from what follows. */
static void the_config_log_begins_with_the_oldest_that_is_whole(void **state)
{
    (void)state;
    save_all("configs-oldest");
    flip(path_of(0), RECORD_AT);
    overhear_begin();
    assert_loads(1, EPOCHS - 1);
    assert_non_null(strstr(overhear_end(), "configuration 0 is not used"));
    assert_int_equal(unlink(path_of(0)), 0);
    assert_loads(1, EPOCHS - 1);
    for (uint64_t e = 1; e < EPOCHS; e++)
        flip(path_of(e), RECORD_AT);
    struct config_log *config_log;
    overhear_begin();
    assert_fails(ERR_NOTFOUND, "no configuration", load(&config_log));
    overhear_end();
    assert_null(config_log_last(config_log));
    config_log_free(config_log);
}

static void old_ones_are_forgotten(void **state)
{
    (void)state;
    save_all("configs-forget");
    testlib_file(folder, "recorded", "a stranger's");
    config_store_forget(folder, 0);
    assert_loads(0, EPOCHS - 1);
    config_store_forget(folder, 3);
    for (uint64_t e = 0; e < EPOCHS; e++)
        assert_int_equal(access(path_of(e), F_OK), e < 3 ? -1 : 0);
    assert_loads(3, EPOCHS - 1);
    config_store_forget(folder, 3);
    assert_loads(3, EPOCHS - 1);
    assert_int_equal(access(testlib_path(folder, "recorded"), F_OK), 0);
}

/* ---- what is not proved ---- */

static void assert_unproved(const struct config_entry *entry)
{
    assert_ok(config_store_save(folder, 3, entry));
    overhear_begin();
    assert_loads(0, 2);
    assert_non_null(strstr(overhear_end(), "configuration 3 is not used"));
}

static void a_configuration_without_a_majority_of_the_one_before_is_refused(void **state)
{
    (void)state;
    save_all("configs-votes");
    struct config_entry entry = entry_of(&config_log_configs[3], 3);
    for (uint32_t count = 0; count < 2; count++) {
        entry.votes_count = count;
        assert_unproved(&entry);
    }
    entry.votes_count = 2;
    struct config_vote good = entry.votes[1];
    entry.votes[1] = entry.votes[0]; /* twice the same voter */
    assert_unproved(&entry);
    entry.votes[1] = good;
    entry.votes[1].signature[5] ^= 1;
    assert_unproved(&entry);
    entry.votes[1] = good;
    entry.votes[1].ballot++;
    assert_unproved(&entry);
    entry.votes[1] = configs_vote(1, &config_log_configs[3], BALLOT + 1); /* good, and in another ballot */
    assert_unproved(&entry);
    entry.votes[1] = configs_vote(5, &config_log_configs[3], BALLOT); /* of nobody on the roster */
    assert_unproved(&entry);
    entry.votes[1] = configs_vote(1, &config_log_configs[2], BALLOT); /* for another configuration */
    assert_unproved(&entry);
    entry.votes[1] = good;
    assert_ok(config_store_save(folder, 3, &entry));
    assert_loads(0, EPOCHS - 1);
    config_entry_free(&entry);
}

/* Well signed, and it does not follow. */
static void a_configuration_of_another_config_log_is_refused(void **state)
{
    (void)state;
    save_all("configs-other");
    struct config other;
    assert_ok(config_copy(&config_log_configs[3], &other));
    other.previous = configs_digest(&config_log_configs[1]);
    struct config_entry entry = entry_of(&other, 3);
    assert_unproved(&entry);
    config_entry_free(&entry);
    config_deinit(&other);
    /* The right one of the next epoch, in its place: a file is what its name says. */
    entry = entry_of(&config_log_configs[4], 3);
    assert_unproved(&entry);
    config_entry_free(&entry);
}

static void another_run_is_refused_and_left_alone(void **state)
{
    (void)state;
    struct config_log *config_log;
    uint8_t nonce[CONFIG_NONCE_BYTES];
    save_all("configs-run");
    memcpy(nonce, config_log_configs[0].nonce, sizeof nonce);
    nonce[CONFIG_NONCE_BYTES - 1] ^= 1;
    assert_ok(config_log_new(&config_log));
    assert_fails(ERR_CONF, "of another run", config_store_load(folder, nonce, true, config_log));
    config_log_free(config_log);
    assert_ok(config_log_new(&config_log)); /* who does not know which run it is takes what is there */
    assert_ok(config_store_load(folder, nonce, false, config_log));
    assert_int_equal(config_log_last(config_log)->epoch, EPOCHS - 1);
    config_log_free(config_log);
    assert_loads(0, EPOCHS - 1);
}

static enum err load_once(void *user)
{
    struct config_log *config_log;
    (void)user;
    enum err err = config_log_new(&config_log);
    if (err == ERR_OK) {
        err = config_store_load(folder, config_log_configs[0].nonce, true, config_log);
        assert_true(err != ERR_OK || config_log_last(config_log)->epoch == EPOCHS - 1);
        config_log_free(config_log);
    }
    return err;
}

/* A config log that ended early for want of memory would be taken for all there is. */
static void without_memory_no_shorter_config_log_is_loaded(void **state)
{
    (void)state;
    save_all("configs-memory");
    print_message("%zu allocations failed in turn\n", outofmem_walk(load_once, NULL));
}

/* ---- many ---- */

enum { MANY = 600, PACK = 256 };

static void save_many(const char *name)
{
    struct config config = configs_first(MEMBERS, false);
    folder = testlib_folder(name);
    for (uint32_t e = 0; e < MANY; e++) {
        save(&config, e, e == 0 ? 0 : 2);
        struct config next = configs_next(&config);
        config_deinit(&config);
        config = next;
    }
    config_deinit(&config);
}

static size_t files(void)
{
    size_t count = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *item; (item = readdir(dir)) != NULL;)
        count += strncmp(item->d_name, "config", 6) == 0;
    closedir(dir);
    return count;
}

/* Epochs from `first` on can be read, and those from `loaded` on are what a restart goes on from. */
static void assert_many(uint64_t first, uint64_t loaded)
{
    struct config_log *config_log;
    struct config_entry entry;
    struct config config;
    for (uint64_t e = first; e < MANY; e++) {
        assert_ok(config_store_read(folder, e, &entry));
        assert_ok(config_unpack(entry.bytes, entry.bytes_count, &config));
        assert_true(config.epoch == e && entry.votes_count == (e == 0 ? 0 : 2));
        config_deinit(&config);
        config_entry_free(&entry);
    }
    assert_int_equal(config_store_read(folder, MANY, &entry), ERR_NOTFOUND);
    assert_ok(load(&config_log));
    assert_int_equal(config_log_last(config_log)->epoch, MANY - 1);
    assert_true(loaded == 0 || config_log_at(config_log, loaded - 1) == NULL);
    assert_non_null(config_log_at(config_log, loaded));
    config_log_free(config_log);
}

static void old_configurations_are_few_files_and_can_be_passed_on(void **state)
{
    (void)state;
    save_many("configs-many");
    assert_int_equal(files(), MANY);
    assert_ok(config_store_pack(folder, PACK - 1)); /* not all of a file's are old */
    assert_int_equal(files(), MANY);
    assert_ok(config_store_pack(folder, PACK + 10));
    assert_int_equal(files(), MANY - PACK + 1);
    assert_many(0, PACK);
    assert_ok(config_store_pack(folder, MANY));
    assert_int_equal(files(), MANY - 2 * PACK + 2);
    assert_many(0, 2 * PACK);
    assert_ok(config_store_pack(folder, MANY)); /* nothing is left to do */
    assert_int_equal(files(), MANY - 2 * PACK + 2);
}

/* An island that joined later begins in the middle. */
static void a_pack_holds_those_that_were_there(void **state)
{
    (void)state;
    save_many("configs-late");
    config_store_forget(folder, 100);
    assert_int_equal(files(), MANY - 100);
    assert_ok(config_store_pack(folder, PACK));
    assert_int_equal(files(), MANY - PACK + 1);
    assert_many(100, PACK);
    assert_int_equal(config_store_read(folder, 99, &(struct config_entry){0}), ERR_NOTFOUND);
}

/* The file with all of them is whole, and some are not removed yet. */
static void a_crash_while_packing_loses_nothing(void **state)
{
    (void)state;
    save_many("configs-crash");
    char *bytes;
    size_t count;
    assert_ok(fsio_read(path_of(40), 1 << 20, &bytes, &count));
    assert_ok(config_store_pack(folder, PACK));
    assert_ok(fsio_replace(path_of(40), bytes, count, 0644));
    mem_free(bytes);
    assert_ok(config_store_pack(folder, PACK));
    assert_int_equal(files(), MANY - PACK + 1);
    assert_many(0, PACK);
}

static void damage_costs_what_it_hits(void **state)
{
    (void)state;
    const char *pack;
    struct config_entry entry;
    save_many("configs-damage");
    testlib_damage(path_of(7), 50);
    assert_ok(config_store_pack(folder, PACK));
    assert_int_equal(config_store_read(folder, 7, &entry), ERR_NOTFOUND);
    assert_ok(config_store_read(folder, 6, &entry));
    config_entry_free(&entry);
    pack = testlib_path(folder, "configs-000000000000");
    testlib_damage(pack, testlib_file_bytes(pack) - 5);
    assert_int_equal(config_store_read(folder, PACK - 1, &entry), ERR_CORRUPT);
    assert_ok(config_store_read(folder, PACK - 2, &entry));
    config_entry_free(&entry);
    assert_many(PACK, PACK);
}

int main(void)
{
    assert_ok(digest_init());
    make_configs();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_saved_is_read_as_it_was),
        cmocka_unit_test(the_whole_config_log_is_loaded),
        cmocka_unit_test(a_damaged_one_ends_the_config_log),
        cmocka_unit_test(the_config_log_begins_with_the_oldest_that_is_whole),
        cmocka_unit_test(old_ones_are_forgotten),
        cmocka_unit_test(a_configuration_without_a_majority_of_the_one_before_is_refused),
        cmocka_unit_test(a_configuration_of_another_config_log_is_refused),
        cmocka_unit_test(another_run_is_refused_and_left_alone),
        cmocka_unit_test(without_memory_no_shorter_config_log_is_loaded),
        cmocka_unit_test(old_configurations_are_few_files_and_can_be_passed_on),
        cmocka_unit_test(a_pack_holds_those_that_were_there),
        cmocka_unit_test(a_crash_while_packing_loses_nothing),
        cmocka_unit_test(damage_costs_what_it_hits),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free_configs();
    return failed;
}
