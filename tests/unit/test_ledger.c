/* SPDX-License-Identifier: Apache-2.0 */
/* ledger: what was appended is there after any crash; damage costs the damaged record alone; old segments go. */
#include "tests/lib/testlib.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/env.h"
#include "common/fsio.h"
#include "common/log.h"
#include "common/mem.h"
#include "daemon/state/ledger.h"
#include "net/transport/wire_object.h"
#include "tests/lib/ledgers.h"
#include "tests/lib/made.h"

enum { OBJECT_BYTES = 1000, RECORD_HEADER = 48, RECORD_BYTES = RECORD_HEADER + 1000, HEADER_BYTES = 64 };

static const uint8_t other_nonce[16] = "begun at night";

/* The same object for the same name, again and again; `variant`: another one of that name. */
static struct result_id make(uint8_t *object, uint32_t fragment, uint64_t version, uint32_t owner, uint64_t epoch,
                             uint64_t variant)
{
    struct env_rng rng = env_rng_init(version + variant, (uint64_t)fragment << 32 | owner);
    for (size_t i = 0; i < OBJECT_BYTES; i++)
        object[i] = (uint8_t)env_rng_u64(&rng);
    return made_result(fragment, version, epoch, owner, object, OBJECT_BYTES);
}

static void append(struct ledger *ledger, uint32_t fragment, uint64_t version, uint32_t owner)
{
    uint8_t object[OBJECT_BYTES];
    struct result_id key = make(object, fragment, version, owner, 0, 0);
    assert_ok(ledger_append(ledger, &key, object, sizeof object));
}

static void assert_holds(struct ledger *ledger, uint32_t fragment, uint64_t version, uint32_t owner)
{
    uint8_t object[OBJECT_BYTES];
    struct ledger_map map = {0};
    struct result_id key = make(object, fragment, version, owner, 0, 0);
    assert_true(ledger_has(ledger, &key));
    assert_ok(ledger_map(ledger, &key, &map));
    assert_int_equal(map.bytes, sizeof object);
    assert_memory_equal(map.object, object, sizeof object);
    ledger_unmap(&map);
}

static void assert_lacks(struct ledger *ledger, uint32_t fragment, uint64_t version, uint32_t owner)
{
    uint8_t object[OBJECT_BYTES];
    struct ledger_map map = {0};
    struct result_id key = make(object, fragment, version, owner, 0, 0);
    assert_false(ledger_has(ledger, &key));
    assert_fails(ERR_NOTFOUND, "no such result", ledger_map(ledger, &key, &map));
    ledger_unmap(&map);
}

static void results_outlive_the_process(void **state)
{
    (void)state;
    const char *folder = testlib_folder("ledger-keep");
    struct ledger *ledger = ledgers_open(folder);
    for (uint64_t v = 1; v <= 100; v++) /* over two segments */
        for (uint32_t s = 0; s < 2; s++)
            append(ledger, (uint32_t)(v % 3), v, s);
    for (int again = 0; again < 2; again++) {
        for (uint64_t v = 1; v <= 100; v++)
            for (uint32_t s = 0; s < 2; s++)
                assert_holds(ledger, (uint32_t)(v % 3), v, s);
        assert_lacks(ledger, 1, 101, 0);
        assert_lacks(ledger, 2, 1, 0);
        struct ledger_stats stats = ledger_stats(ledger);
        assert_int_equal(stats.records, 200);
        assert_true(stats.segments >= 3);
        ledger_close(ledger);
        ledger = ledgers_open(folder);
    }
    append(ledger, 1, 1, 0); /* there already */
    assert_int_equal(ledger_stats(ledger).records, 200);
    ledger_close(ledger);
}

static void a_torn_end_is_cut_at_every_length(void **state)
{
    (void)state;
    const char *folder = testlib_folder("ledger-torn");
    const char *path = ledgers_segment(folder, 1);
    struct ledger *ledger = ledgers_open(folder);
    for (uint64_t v = 1; v <= 4; v++)
        append(ledger, 0, v, 0);
    ledger_close(ledger);
    /* The last record cut anywhere: in its header, at its border, in the object, in the last byte. */
    static const off_t left[] = {0, 1, 8, 47, 48, 49, 500, RECORD_BYTES - 1};
    for (size_t i = 0; i < sizeof left / sizeof left[0]; i++) {
        assert_int_equal(truncate(path, HEADER_BYTES + 3 * RECORD_BYTES + left[i]), 0);
        ledger = ledgers_open(folder);
        for (uint64_t v = 1; v <= 3; v++)
            assert_holds(ledger, 0, v, 0);
        assert_lacks(ledger, 0, 4, 0);
        assert_int_equal(testlib_file_bytes(path), HEADER_BYTES + 3 * RECORD_BYTES);
        append(ledger, 0, 4, 0); /* what follows is found again */
        append(ledger, 0, 5, 0);
        ledger_close(ledger);
        ledger = ledgers_open(folder);
        assert_holds(ledger, 0, 4, 0);
        assert_holds(ledger, 0, 5, 0);
        ledger_close(ledger);
    }
}

static void damage_costs_the_damaged_record_alone(void **state)
{
    (void)state;
    static const off_t where[] = {0, 4, 8, 12, 16, 40, 48, 600, RECORD_BYTES - 1};
    for (size_t i = 0; i < sizeof where / sizeof where[0]; i++) {
        char name[32];
        snprintf(name, sizeof name, "ledger-rot%zu", i);
        const char *folder = testlib_folder(name);
        struct ledger *ledger = ledgers_open(folder);
        for (uint64_t v = 1; v <= 6; v++)
            append(ledger, 0, v, 0);
        ledger_close(ledger);
        ledger = ledgers_open(folder);
        assert_false(ledger_passed_over(ledger));
        ledger_close(ledger);
        testlib_damage(ledgers_segment(folder, 1), HEADER_BYTES + 2 * RECORD_BYTES + where[i]);
        ledger = ledgers_open(folder);
        assert_true(ledger_passed_over(ledger));
        assert_lacks(ledger, 0, 3, 0);
        for (uint64_t v = 1; v <= 6; v++)
            if (v != 3)
                assert_holds(ledger, 0, v, 0);
        append(ledger, 0, 3, 0); /* as fetched from another island */
        append(ledger, 0, 7, 0);
        ledger_close(ledger);
        ledger = ledgers_open(folder);
        for (uint64_t v = 1; v <= 7; v++)
            assert_holds(ledger, 0, v, 0);
        ledger_close(ledger);
    }
}

/* Rounded up to whole words, such lengths come to nothing. */
static void a_length_without_end_costs_the_record_alone(void **state)
{
    (void)state;
    enum { LENGTH_AT = 8, DIGEST_AT = 16, LENGTHS = 9 };
    for (uint64_t less = 1; less <= LENGTHS; less++) {
        const char *folder = testlib_folder("ledger-length");
        struct ledger *ledger = ledgers_open(folder);
        uint64_t length = 0 - less;
        uint8_t record[RECORD_HEADER + WIRE_OBJECT_HEADER_BYTES];
        struct digest_state state_of;
        for (uint64_t v = 1; v <= 3; v++)
            append(ledger, 0, v, 0);
        ledger_close(ledger);
        int fd = open(ledgers_segment(folder, 1), O_RDWR | O_CLOEXEC);
        assert_int_equal(pread(fd, record, sizeof record, HEADER_BYTES + RECORD_BYTES), sizeof record);
        memcpy(record + LENGTH_AT, &length, sizeof length);
        digest_begin(&state_of);
        digest_add(&state_of, record, DIGEST_AT);
        digest_add(&state_of, record + RECORD_HEADER, WIRE_OBJECT_HEADER_BYTES);
        struct digest right = digest_end(&state_of); /* who wants to harm us can make it so, too */
        memcpy(record + DIGEST_AT, right.byte, DIGEST_BYTES);
        assert_int_equal(pwrite(fd, record, sizeof record, HEADER_BYTES + RECORD_BYTES), sizeof record);
        close(fd);
        ledger = ledgers_open(folder);
        assert_holds(ledger, 0, 1, 0);
        assert_lacks(ledger, 0, 2, 0);
        assert_holds(ledger, 0, 3, 0);
        ledger_close(ledger);
    }
}

static void a_segment_without_a_head_is_put_aside(void **state)
{
    (void)state;
    const char *folder = testlib_folder("ledger-head");
    struct ledger *ledger = ledgers_open(folder);
    for (uint64_t v = 1; v <= 100; v++)
        append(ledger, 0, v, 0);
    ledger_close(ledger);
    testlib_damage(ledgers_segment(folder, 1), 1);
    ledger = ledgers_open(folder);
    assert_lacks(ledger, 0, 1, 0);
    assert_holds(ledger, 0, 100, 0);
    ledger_close(ledger);
    char aside[300];
    snprintf(aside, sizeof aside, "%s.damaged", ledgers_segment(folder, 1));
    assert_int_equal(access(aside, F_OK), 0);
    /* A file shorter than a header: the machine died while it was begun. */
    assert_int_equal(truncate(ledgers_segment(folder, 2), 10), 0);
    ledger = ledgers_open(folder);
    append(ledger, 0, 1, 0);
    assert_holds(ledger, 0, 1, 0);
    ledger_close(ledger);
}

/* A copy that somebody made, or a number that no daemon comes to: neither is read, written over or a reason to stop. */
static void files_of_other_names_are_left_alone(void **state)
{
    (void)state;
    static const char *const names[] = {"ledger-1.log",
                                        "ledger-0000000000001.log",
                                        "ledger-+00000000001.log",
                                        "ledger--1.log",
                                        "ledger-18446744073709551614.log",
                                        "ledger-18446744073709551615.log",
                                        "ledger-99999999999999999999.log"};
    const char *folder = testlib_folder("ledger-names");
    struct ledger *ledger = ledgers_open(folder);
    append(ledger, 0, 1, 0);
    ledger_close(ledger);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        testlib_file(folder, names[i], "a stranger's");
    ledger = ledgers_open(folder);
    assert_int_equal(ledger_stats(ledger).segments, 1);
    for (uint64_t v = 2; v <= 100; v++) /* over two segments */
        append(ledger, 0, v, 0);
    ledger_close(ledger);
    ledger = ledgers_open(folder);
    for (uint64_t v = 1; v <= 100; v++)
        assert_holds(ledger, 0, v, 0);
    ledger_close(ledger);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_int_equal(testlib_file_bytes(testlib_path(folder, names[i])), strlen("a stranger's"));
}

static void another_run_is_refused_and_left_alone(void **state)
{
    (void)state;
    const char *folder = testlib_folder("ledger-other");
    struct ledger *ledger = ledgers_open(folder);
    append(ledger, 0, 1, 0);
    ledger_close(ledger);
    off_t before = testlib_file_bytes(ledgers_segment(folder, 1));
    struct ledger_conf conf = ledgers_conf(folder);
    conf.run_id = digest_of("other", 5);
    assert_fails(ERR_CONF, "belongs to another run", ledger_open(&conf, &ledger));
    assert_int_equal(testlib_file_bytes(ledgers_segment(folder, 1)), before);
}

/* Of the version before, whose objects are of another form: it would open and lead nowhere. */
static void another_version_is_refused_and_left_alone(void **state)
{
    (void)state;
    enum { VERSION_AT = 4 };
    const char *folder = testlib_folder("ledger-version");
    struct ledger_conf conf = ledgers_conf(folder);
    struct ledger *ledger = ledgers_open(folder);
    append(ledger, 0, 1, 0);
    ledger_close(ledger);
    const char *path = ledgers_segment(folder, 1);
    char *written, *left;
    size_t bytes, left_bytes;
    assert_ok(fsio_read(path, 1 << 20, &written, &bytes));
    char said[120];
    snprintf(said, sizeof said, "ledger of version %d, and this release reads version %d; go on with the release that",
             written[VERSION_AT] - 1, written[VERSION_AT]);
    written[VERSION_AT]--;
    assert_ok(fsio_replace(path, written, bytes, 0644));
    assert_fails(ERR_CONF, said, ledger_open(&conf, &ledger));
    assert_ok(fsio_read(path, 1 << 20, &left, &left_bytes));
    assert_int_equal(left_bytes, bytes);
    assert_memory_equal(left, written, bytes);
    mem_free(left);
    mem_free(written);
}

/* The same run spec, begun once more: its results are those of other weights. */
static void a_run_begun_again_is_refused_and_left_alone(void **state)
{
    (void)state;
    const char *folder = testlib_folder("ledger-again");
    struct ledger *ledger = ledgers_open(folder);
    append(ledger, 0, 1, 0);
    ledger_close(ledger);
    off_t before = testlib_file_bytes(ledgers_segment(folder, 1));
    struct ledger_conf conf = ledgers_conf(folder);
    conf.nonce = other_nonce;
    assert_fails(ERR_CONF, "another run that was begun with the same run spec", ledger_open(&conf, &ledger));
    assert_int_equal(testlib_file_bytes(ledgers_segment(folder, 1)), before);
    ledger = ledgers_open(folder);
    assert_holds(ledger, 0, 1, 0);
    ledger_close(ledger);
}

/* Nothing is lost where nothing was saved; a run spec that was wrong at first can be corrected. */
static void what_others_left_empty_is_begun_anew(void **state)
{
    (void)state;
    const char *folder = testlib_folder("ledger-empty");
    struct ledger *ledger;
    struct ledger_conf conf = ledgers_conf(folder);
    conf.run_id = digest_of("other", 5);
    assert_ok(ledger_open(&conf, &ledger));
    ledger_close(ledger);
    ledger = ledgers_open(folder);
    append(ledger, 0, 1, 0);
    ledger_close(ledger);
    assert_fails(ERR_CONF, "belongs to another run", ledger_open(&conf, &ledger));
    /* Even a part of a record was something. */
    assert_int_equal(access(ledgers_segment(folder, 1), F_OK), -1);
    assert_int_equal(truncate(ledgers_segment(folder, 2), HEADER_BYTES + 8), 0);
    assert_fails(ERR_CONF, "belongs to another run", ledger_open(&conf, &ledger));
    ledger = ledgers_open(folder);
    ledger_close(ledger);
    conf = ledgers_conf(folder);
    conf.nonce = other_nonce;
    assert_ok(ledger_open(&conf, &ledger));
    append(ledger, 0, 1, 0);
    ledger_close(ledger);
}

static void old_segments_go_and_needed_ones_stay(void **state)
{
    (void)state;
    const char *folder = testlib_folder("ledger-prune");
    struct ledger *ledger = ledgers_open(folder);
    for (uint64_t v = 1; v <= 300; v++) {
        append(ledger, 0, v, 0);
        append(ledger, 1, v, 0);
    }
    uint64_t before = ledger_stats(ledger).bytes;
    struct ledger_reach reach[2] = {{.saved = 300}, {.saved = 10}};
    ledger_prune(ledger, reach, 2, 0); /* fragment 1 still needs nearly all */
    assert_true(ledger_stats(ledger).bytes > before - (64 << 10));
    for (uint64_t v = 11; v <= 300; v++)
        assert_holds(ledger, 1, v, 0);
    reach[1].saved = 300;
    ledger_prune(ledger, reach, 2, 0);
    struct ledger_stats after = ledger_stats(ledger);
    assert_in_range(after.bytes, 1, 100 << 10); /* keep_bytes */
    assert_lacks(ledger, 0, 1, 0);
    assert_holds(ledger, 0, 300, 0);
    append(ledger, 0, 301, 0);
    ledger_close(ledger);
    ledger = ledgers_open(folder);
    assert_int_equal(ledger_stats(ledger).records, after.records + 1);
    assert_holds(ledger, 0, 301, 0);
    ledger_close(ledger);
}

static void one_folder_serves_one_daemon(void **state)
{
    (void)state;
    const char *folder = testlib_folder("ledger-lock");
    struct ledger *ledger = ledgers_open(folder), *second;
    struct ledger_conf conf = ledgers_conf(folder);
    assert_fails(ERR_CONF, "in use by another dilocod", ledger_open(&conf, &second));
    ledger_close(ledger);
    assert_ok(ledger_open(&conf, &second));
    ledger_close(second);
}

/* ---- results that share a name but for the digest ---- */

static void two_results_of_one_part_are_told_apart(void **state)
{
    (void)state;
    enum { VARIANTS = 3, EPOCHS = 2 };
    static uint8_t object[EPOCHS][VARIANTS][OBJECT_BYTES];
    struct result_id key[EPOCHS][VARIANTS], list[LEDGER_RESULTS_MAX];
    const char *folder = testlib_folder("ledger-two");
    struct ledger *ledger = ledgers_open(folder);
    for (uint64_t e = 0; e < EPOCHS; e++)
        for (uint64_t k = 0; k < VARIANTS; k++) {
            key[e][k] = make(object[e][k], 2, 9, 70000, e, k);
            assert_ok(ledger_append(ledger, &key[e][k], object[e][k], OBJECT_BYTES));
            assert_ok(ledger_append(ledger, &key[e][k], object[e][k], OBJECT_BYTES));
        }
    append(ledger, 2, 8, 1);
    append(ledger, 1, 9, 1);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(ledger_stats(ledger).records, EPOCHS * VARIANTS + 2);
        assert_int_equal(ledger_list(ledger, 2, 9, list, LEDGER_RESULTS_MAX), EPOCHS * VARIANTS);
        assert_int_equal(ledger_list(ledger, 2, 9, list, 2), 2);
        assert_int_equal(ledger_list(ledger, 2, 7, list, LEDGER_RESULTS_MAX), 0);
        ledger_list(ledger, 2, 9, list, LEDGER_RESULTS_MAX);
        for (size_t i = 0; i < EPOCHS * VARIANTS; i++) {
            struct ledger_map map;
            struct result_id *want = &key[i / VARIANTS][i % VARIANTS]; /* in the order in which they came */
            assert_true(digest_equal(&list[i].digest, &want->digest) && list[i].epoch == want->epoch);
            assert_true(list[i].fragment == 2 && list[i].version == 9 && list[i].owner == 70000);
            assert_ok(ledger_map(ledger, want, &map));
            assert_memory_equal(map.object, object[i / VARIANTS][i % VARIANTS], OBJECT_BYTES);
            ledger_unmap(&map);
        }
        struct result_id none = key[0][0];
        none.epoch = 1;
        assert_false(ledger_has(ledger, &none));
        ledger_close(ledger);
        ledger = ledgers_open(folder);
    }
    ledger_close(ledger);
}

static void a_result_goes_under_its_own_name_only(void **state)
{
    (void)state;
    uint8_t object[OBJECT_BYTES];
    struct ledger *ledger = ledgers_open(testlib_folder("ledger-names-itself"));
    const struct result_id key = make(object, 1, 5, 3, 2, 0);
    struct result_id wrong[5] = {key, key, key, key, key};
    wrong[0].fragment++;
    wrong[1].version++;
    wrong[2].epoch++;
    wrong[3].owner++;
    wrong[4].digest.byte[31] ^= 1;
    for (int i = 0; i < 5; i++)
        assert_fails(ERR_ARG, "is not what the ledger was to have it under",
                     ledger_append(ledger, &wrong[i], object, sizeof object));
    assert_fails(ERR_PROTO, "cut short", ledger_append(ledger, &key, object, 100));
    assert_int_equal(ledger_stats(ledger).records, 0);
    assert_ok(ledger_append(ledger, &key, object, sizeof object));
    ledger_close(ledger);
}

static void a_version_has_so_many_results_and_no_more(void **state)
{
    (void)state;
    uint8_t object[OBJECT_BYTES];
    struct result_id key, list[LEDGER_RESULTS_MAX + 1];
    const char *folder = testlib_folder("ledger-most");
    struct ledger *ledger = ledgers_open(folder);
    for (uint32_t i = 0; i < LEDGER_RESULTS_MAX; i++)
        append(ledger, 0, 1, i);
    key = make(object, 0, 1, LEDGER_RESULTS_MAX, 0, 0);
    assert_fails(ERR_STATE, "has 256 results", ledger_append(ledger, &key, object, sizeof object));
    append(ledger, 0, 2, 0);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(ledger_list(ledger, 0, 1, list, LEDGER_RESULTS_MAX + 1), LEDGER_RESULTS_MAX);
        assert_holds(ledger, 0, 1, LEDGER_RESULTS_MAX - 1);
        assert_holds(ledger, 0, 2, 0);
        ledger_close(ledger);
        ledger = ledgers_open(folder);
    }
    ledger_close(ledger);
}

/* ---- commits ---- */

static struct ledger_commit commit_of(uint32_t fragment, uint64_t version, uint32_t parts, uint64_t variant)
{
    struct ledger_commit commit = {.fragment = fragment, .version = version, .parts_count = parts};
    commit.hash = digest_of(&version, sizeof version);
    for (uint32_t i = 0; i < parts; i++)
        commit.parts[i] = (struct result_id){.fragment = fragment,
                                             .owner = ~0u - i,
                                             .version = version,
                                             .epoch = ~0ull - i,
                                             .digest = digest_of(&(uint64_t){variant + i}, sizeof(uint64_t))};
    return commit;
}

static void assert_committed(struct ledger *ledger, const struct ledger_commit *want)
{
    struct ledger_commit got;
    assert_ok(ledger_commit_of(ledger, want->fragment, want->version, &got));
    assert_true(got.fragment == want->fragment && got.version == want->version);
    assert_true(digest_equal(&got.hash, &want->hash));
    assert_int_equal(got.parts_count, want->parts_count);
    for (uint32_t i = 0; i < got.parts_count; i++)
        assert_true(result_id_equal(&got.parts[i], &want->parts[i]));
}

static void a_commit_says_what_made_a_version(void **state)
{
    (void)state;
    const char *folder = testlib_folder("ledger-commit");
    struct ledger *ledger = ledgers_open(folder);
    struct ledger_commit got, changed = commit_of(1, 2, 3, 99);
    for (uint64_t v = 1; v <= 64; v++) { /* of every size */
        struct ledger_commit commit = commit_of(1, v, (uint32_t)v, v);
        append(ledger, 1, v, 0);
        assert_ok(ledger_append_commit(ledger, &commit, v % 2 == 0));
    }
    off_t before = (off_t)ledger_stats(ledger).bytes;
    struct ledger_commit same = commit_of(1, 64, 64, 64);
    assert_ok(ledger_append_commit(ledger, &same, true)); /* said already */
    assert_int_equal(ledger_stats(ledger).bytes, before);
    assert_ok(ledger_append_commit(ledger, &changed, true));
    for (int again = 0; again < 2; again++) {
        struct result_id list[4];
        for (uint64_t v = 1; v <= 64; v++) {
            struct ledger_commit commit = v == 2 ? changed : commit_of(1, v, (uint32_t)v, v);
            assert_committed(ledger, &commit);
            assert_holds(ledger, 1, v, 0);
            assert_int_equal(ledger_list(ledger, 1, v, list, 4), 1);
        }
        assert_int_equal(ledger_stats(ledger).records, 64);
        assert_fails(ERR_NOTFOUND, "what made version 65", ledger_commit_of(ledger, 1, 65, &got));
        assert_fails(ERR_NOTFOUND, "what made version 1", ledger_commit_of(ledger, 0, 1, &got));
        ledger_close(ledger);
        ledger = ledgers_open(folder);
    }
    struct ledger_commit none = commit_of(1, 70, 0, 0), many = commit_of(1, 70, 64, 0);
    many.parts_count = 65;
    assert_fails(ERR_ARG, "0 parts", ledger_append_commit(ledger, &none, true));
    assert_fails(ERR_ARG, "65 parts", ledger_append_commit(ledger, &many, true));
    ledger_close(ledger);
}

static void a_commit_goes_with_its_segment(void **state)
{
    (void)state;
    const char *folder = testlib_folder("ledger-commit-prune");
    struct ledger *ledger = ledgers_open(folder);
    struct ledger_commit got;
    for (uint64_t v = 1; v <= 300; v++) {
        struct ledger_commit commit = commit_of(0, v, 1, v);
        append(ledger, 0, v, 0);
        assert_ok(ledger_append_commit(ledger, &commit, false));
    }
    ledger_prune(ledger, &(struct ledger_reach){.saved = 300}, 1, 0);
    assert_fails(ERR_NOTFOUND, "what made version 1", ledger_commit_of(ledger, 0, 1, &got));
    assert_lacks(ledger, 0, 1, 0);
    struct ledger_commit last = commit_of(0, 300, 1, 300);
    assert_committed(ledger, &last);
    ledger_close(ledger);
}

/* A byte of the disk turns while it is open. */
static void a_commit_that_rots_is_not_believed(void **state)
{
    (void)state;
    const char *folder = testlib_folder("ledger-commit-rot");
    const char *path = ledgers_segment(folder, 1);
    struct ledger *ledger = ledgers_open(folder);
    struct ledger_commit commit = commit_of(0, 1, 2, 7), got;
    assert_ok(ledger_append_commit(ledger, &commit, true));
    for (off_t at = HEADER_BYTES; at < testlib_file_bytes(path); at++) {
        testlib_damage(path, at);
        assert_int_equal(ledger_commit_of(ledger, 0, 1, &got), ERR_CORRUPT);
        testlib_damage(path, at);
    }
    assert_committed(ledger, &commit);
    ledger_close(ledger);
}

/* ---- damage, anywhere ---- */

/* Every byte: of heads, names, signatures, frames, metadata and padding. What is damaged is not there, and all else is.
 */
static void a_bit_flipped_anywhere_is_found(void **state)
{
    (void)state;
    enum { ODD_BYTES = 1003 };
    const char *folder = testlib_folder("ledger-flip");
    const char *path = ledgers_segment(folder, 1), *next = ledgers_segment(folder, 2);
    struct ledger *ledger = ledgers_open(folder);
    uint8_t object[ODD_BYTES] = {0};
    struct ledger_commit commit = commit_of(0, 2, 1, 5), got;
    append(ledger, 0, 1, 0);
    struct result_id odd = made_append(ledger, 0, 2, 0, object, sizeof object);
    assert_ok(ledger_append_commit(ledger, &commit, false));
    append(ledger, 0, 3, 0);
    ledger_close(ledger);
    off_t second = HEADER_BYTES + RECORD_BYTES, third = second + RECORD_HEADER + 1008;
    off_t fourth = third + RECORD_HEADER + 48 + 48, end = fourth + RECORD_BYTES;
    assert_int_equal(testlib_file_bytes(path), end);
    log_set_level(LOG_LEVEL_ERROR);
    for (off_t at = HEADER_BYTES; at < fourth; at++) {
        testlib_damage(path, at);
        ledger = ledgers_open(folder);
        uint8_t first_object[OBJECT_BYTES];
        struct result_id first = make(first_object, 0, 1, 0, 0, 0);
        if (ledger_has(ledger, &first) == (at < second))
            fail_msg("byte %ld: the first result", (long)at);
        if (ledger_has(ledger, &odd) == (at >= second && at < third))
            fail_msg("byte %ld: the second result", (long)at);
        if ((ledger_commit_of(ledger, 0, 2, &got) == ERR_OK) == (at >= third))
            fail_msg("byte %ld: the commit", (long)at);
        assert_holds(ledger, 0, 3, 0);
        ledger_close(ledger);
        testlib_damage(path, at);
    }
    for (off_t at = 0; at < HEADER_BYTES; at++) {
        struct ledger_conf conf = ledgers_conf(folder);
        testlib_damage(path, at);
        if (ledger_open(&conf, &ledger) == ERR_OK) { /* put aside */
            char aside[300];
            assert_int_equal(ledger_stats(ledger).records, 0);
            ledger_close(ledger);
            snprintf(aside, sizeof aside, "%s.damaged", path);
            assert_int_equal(rename(aside, path), 0);
            (void)unlink(next);
        }
        testlib_damage(path, at);
    }
    log_set_level(LOG_LEVEL_WARN);
    ledger = ledgers_open(folder);
    assert_int_equal(ledger_stats(ledger).records, 3);
    assert_committed(ledger, &commit);
    ledger_close(ledger);
}

/* The head of a result that reaches to the end of `bytes`, all digests of it right but for that of its values. */
static void put_hostile_head(uint8_t *segment, size_t at, size_t bytes, const struct ident *ident)
{
    enum { META_BYTES = 24 + WIRE_CONTRIBUTOR_BYTES };
    static const uint8_t contributor[WIRE_CONTRIBUTOR_BYTES];
    uint8_t *record = segment + at, *object = record + RECORD_HEADER;
    struct wire_meta meta = {.contributors_count = 1, .contributors = contributor};
    struct wire_object what = {.key = {.kind = WIRE_RESULT, .version = 2}, .shards = 1};
    size_t object_bytes, frame_bytes = bytes - at - RECORD_HEADER - WIRE_OBJECT_HEADER_BYTES - META_BYTES;
    struct digest_state digest;
    assert_ok(wire_object_seal(&what, &meta, ident, object, frame_bytes, &object_bytes, &what.digest));
    memcpy(record, (uint32_t[]){0x31524c44, 1}, 8);
    memcpy(record + 8, &(uint64_t){object_bytes}, 8);
    digest_begin(&digest);
    digest_add(&digest, record, 16);
    digest_add(&digest, object, WIRE_OBJECT_HEADER_BYTES);
    struct digest right = digest_end(&digest);
    memcpy(record + 16, right.byte, DIGEST_BYTES);
}

/* A segment full of heads that claim all that follows them: were each hashed to its end, this would take minutes. */
static void scanning_takes_time_in_proportion_to_bytes(void **state)
{
    (void)state;
    enum { BYTES = 16 << 20, HALF = BYTES / 2, APART = 512, MOST_S = 15 };
    const char *folder = testlib_folder("ledger-heads");
    const char *path = ledgers_segment(folder, 1);
    struct ledger *ledger = ledgers_open(folder);
    struct ident ident;
    uint8_t *hostile = calloc(1, BYTES);
    assert_non_null(hostile);
    assert_ok(ident_generate(&ident));
    append(ledger, 0, 1, 0);
    ledger_close(ledger);
    /* False digests, every other word; then right ones. */
    for (size_t at = 0; at < HALF; at += 16) {
        memcpy(hostile + at, (uint32_t[]){0x31524c44, 1}, 8);
        memcpy(hostile + at + 8, &(uint64_t){HALF - at}, 8);
    }
    for (size_t at = HALF; at + 4 * APART <= BYTES; at += APART)
        put_hostile_head(hostile, at, BYTES, &ident);
    int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    assert_int_equal(write(fd, hostile, BYTES), BYTES);
    close(fd);
    double before = env_mono_s();
    ledger = ledgers_open(folder);
    assert_true(env_mono_s() - before < MOST_S);
    assert_holds(ledger, 0, 1, 0);
    assert_int_equal(ledger_stats(ledger).records, 1);
    ledger_close(ledger);
    free(hostile);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_outlive_the_process),
        cmocka_unit_test(a_torn_end_is_cut_at_every_length),
        cmocka_unit_test(damage_costs_the_damaged_record_alone),
        cmocka_unit_test(a_length_without_end_costs_the_record_alone),
        cmocka_unit_test(a_segment_without_a_head_is_put_aside),
        cmocka_unit_test(files_of_other_names_are_left_alone),
        cmocka_unit_test(another_run_is_refused_and_left_alone),
        cmocka_unit_test(another_version_is_refused_and_left_alone),
        cmocka_unit_test(a_run_begun_again_is_refused_and_left_alone),
        cmocka_unit_test(what_others_left_empty_is_begun_anew),
        cmocka_unit_test(old_segments_go_and_needed_ones_stay),
        cmocka_unit_test(one_folder_serves_one_daemon),
        cmocka_unit_test(two_results_of_one_part_are_told_apart),
        cmocka_unit_test(a_result_goes_under_its_own_name_only),
        cmocka_unit_test(a_version_has_so_many_results_and_no_more),
        cmocka_unit_test(a_commit_says_what_made_a_version),
        cmocka_unit_test(a_commit_goes_with_its_segment),
        cmocka_unit_test(a_commit_that_rots_is_not_believed),
        cmocka_unit_test(a_bit_flipped_anywhere_is_found),
        cmocka_unit_test(scanning_takes_time_in_proportion_to_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
