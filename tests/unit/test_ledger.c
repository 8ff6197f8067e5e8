/* ledger: what was appended is there after any crash; damage costs the damaged record alone; old segments go. */
#include "tests/lib/testlib.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/fsio.h"
#include "common/mem.h"
#include "daemon/state/ledger.h"

enum { OBJECT_BYTES = 1000, RECORD_BYTES = 64 + 1000, HEADER_BYTES = 64 };

static struct digest run_id;

static struct ledger *open_ledger(const char *folder)
{
    struct ledger *ledger;
    struct ledger_conf conf = {.folder = folder, .run_id = run_id, .segment_bytes = 64 << 10, .keep_bytes = 100 << 10};
    assert_ok(ledger_open(&conf, &ledger));
    return ledger;
}

/* An object that says which one it is, in every byte. */
static void fill(uint8_t *object, uint32_t fragment, uint64_t version, uint32_t shard)
{
    struct env_rng rng = env_rng_init(version, (uint64_t)fragment << 32 | shard);
    for (size_t i = 0; i < OBJECT_BYTES; i++)
        object[i] = (uint8_t)env_rng_u64(&rng);
}

static void append(struct ledger *ledger, uint32_t fragment, uint64_t version, uint32_t shard)
{
    uint8_t object[OBJECT_BYTES];
    fill(object, fragment, version, shard);
    assert_ok(ledger_append(ledger, fragment, version, shard, object, sizeof object, version % 7 == 0));
}

static void assert_holds(struct ledger *ledger, uint32_t fragment, uint64_t version, uint32_t shard)
{
    uint8_t object[OBJECT_BYTES];
    struct ledger_map map = {0};
    fill(object, fragment, version, shard);
    assert_true(ledger_has(ledger, fragment, version, shard));
    assert_ok(ledger_map(ledger, fragment, version, shard, &map));
    assert_int_equal(map.bytes, sizeof object);
    assert_memory_equal(map.object, object, sizeof object);
    ledger_unmap(&map);
}

static void assert_lacks(struct ledger *ledger, uint32_t fragment, uint64_t version, uint32_t shard)
{
    struct ledger_map map = {0};
    assert_false(ledger_has(ledger, fragment, version, shard));
    assert_fails(ERR_NOTFOUND, "no such result", ledger_map(ledger, fragment, version, shard, &map));
    ledger_unmap(&map);
}

static const char *segment(const char *folder, unsigned number)
{
    char name[64];
    snprintf(name, sizeof name, "ledger-%012u.log", number);
    return testlib_path(folder, name);
}

static void change(const char *path, off_t at)
{
    unsigned char byte = 0;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static off_t size_of(const char *path)
{
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    return status.st_size;
}

static void results_outlive_the_process(void **state)
{
    (void)state;
    const char *folder = testlib_folder("ledger-keep");
    struct ledger *ledger = open_ledger(folder);
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
        ledger = open_ledger(folder);
    }
    /* The first of two for the same place stands. */
    uint8_t other[OBJECT_BYTES] = {0};
    assert_ok(ledger_append(ledger, 1, 1, 0, other, sizeof other, true));
    assert_holds(ledger, 1, 1, 0);
    ledger_close(ledger);
}

static void a_torn_end_is_cut_at_every_length(void **state)
{
    (void)state;
    const char *folder = testlib_folder("ledger-torn");
    const char *path = segment(folder, 1);
    struct ledger *ledger = open_ledger(folder);
    for (uint64_t v = 1; v <= 4; v++)
        append(ledger, 0, v, 0);
    ledger_close(ledger);
    /* The last record cut anywhere: in its header, at its border, in the object, in the last byte. */
    static const off_t left[] = {0, 1, 8, 63, 64, 65, 500, RECORD_BYTES - 1};
    for (size_t i = 0; i < sizeof left / sizeof left[0]; i++) {
        assert_int_equal(truncate(path, HEADER_BYTES + 3 * RECORD_BYTES + left[i]), 0);
        ledger = open_ledger(folder);
        for (uint64_t v = 1; v <= 3; v++)
            assert_holds(ledger, 0, v, 0);
        assert_lacks(ledger, 0, 4, 0);
        assert_int_equal(size_of(path), HEADER_BYTES + 3 * RECORD_BYTES);
        append(ledger, 0, 4, 0); /* what follows is found again */
        append(ledger, 0, 5, 0);
        ledger_close(ledger);
        ledger = open_ledger(folder);
        assert_holds(ledger, 0, 4, 0);
        assert_holds(ledger, 0, 5, 0);
        ledger_close(ledger);
    }
}

static void damage_costs_the_damaged_record_alone(void **state)
{
    (void)state;
    static const off_t where[] = {0, 8, 16, 24, 31, 40, 64, 600, RECORD_BYTES - 1};
    for (size_t i = 0; i < sizeof where / sizeof where[0]; i++) {
        char name[32];
        snprintf(name, sizeof name, "ledger-rot%zu", i);
        const char *folder = testlib_folder(name);
        struct ledger *ledger = open_ledger(folder);
        for (uint64_t v = 1; v <= 6; v++)
            append(ledger, 0, v, 0);
        ledger_close(ledger);
        change(segment(folder, 1), HEADER_BYTES + 2 * RECORD_BYTES + where[i]);
        ledger = open_ledger(folder);
        assert_lacks(ledger, 0, 3, 0);
        for (uint64_t v = 1; v <= 6; v++)
            if (v != 3)
                assert_holds(ledger, 0, v, 0);
        append(ledger, 0, 3, 0); /* as fetched from another island */
        append(ledger, 0, 7, 0);
        ledger_close(ledger);
        ledger = open_ledger(folder);
        for (uint64_t v = 1; v <= 7; v++)
            assert_holds(ledger, 0, v, 0);
        ledger_close(ledger);
    }
}

/* Rounded up to whole words, such lengths come to nothing. */
static void a_length_without_end_costs_the_record_alone(void **state)
{
    (void)state;
    enum { LENGTH_AT = 24, LENGTHS = 9 };
    for (uint64_t less = 1; less <= LENGTHS; less++) {
        const char *folder = testlib_folder("ledger-length");
        struct ledger *ledger = open_ledger(folder);
        uint64_t length = 0 - less;
        for (uint64_t v = 1; v <= 3; v++)
            append(ledger, 0, v, 0);
        ledger_close(ledger);
        int fd = open(segment(folder, 1), O_WRONLY | O_CLOEXEC);
        assert_int_equal(pwrite(fd, &length, sizeof length, HEADER_BYTES + RECORD_BYTES + LENGTH_AT), sizeof length);
        close(fd);
        ledger = open_ledger(folder);
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
    struct ledger *ledger = open_ledger(folder);
    for (uint64_t v = 1; v <= 100; v++)
        append(ledger, 0, v, 0);
    ledger_close(ledger);
    change(segment(folder, 1), 1);
    ledger = open_ledger(folder);
    assert_lacks(ledger, 0, 1, 0);
    assert_holds(ledger, 0, 100, 0);
    ledger_close(ledger);
    char aside[300];
    snprintf(aside, sizeof aside, "%s.damaged", segment(folder, 1));
    assert_int_equal(access(aside, F_OK), 0);
    /* A file shorter than a header: the machine died while it was begun. */
    assert_int_equal(truncate(segment(folder, 2), 10), 0);
    ledger = open_ledger(folder);
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
    struct ledger *ledger = open_ledger(folder);
    append(ledger, 0, 1, 0);
    ledger_close(ledger);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        testlib_file(folder, names[i], "a stranger's");
    ledger = open_ledger(folder);
    assert_int_equal(ledger_stats(ledger).segments, 1);
    for (uint64_t v = 2; v <= 100; v++) /* over two segments */
        append(ledger, 0, v, 0);
    ledger_close(ledger);
    ledger = open_ledger(folder);
    for (uint64_t v = 1; v <= 100; v++)
        assert_holds(ledger, 0, v, 0);
    ledger_close(ledger);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_int_equal(size_of(testlib_path(folder, names[i])), strlen("a stranger's"));
}

static void another_run_is_refused_and_left_alone(void **state)
{
    (void)state;
    const char *folder = testlib_folder("ledger-other");
    struct ledger *ledger = open_ledger(folder);
    append(ledger, 0, 1, 0);
    ledger_close(ledger);
    off_t before = size_of(segment(folder, 1));
    struct ledger_conf conf = {.folder = folder, .run_id = digest_of("other", 5), .segment_bytes = 1 << 20};
    assert_fails(ERR_CONF, "belongs to another run", ledger_open(&conf, &ledger));
    assert_int_equal(size_of(segment(folder, 1)), before);
}

/* Their shards are cut and numbered otherwise: no result would fit. */
static void other_islands_are_refused_and_their_results_left_alone(void **state)
{
    (void)state;
    const char *folder = testlib_folder("ledger-islands");
    struct ledger *ledger = open_ledger(folder);
    append(ledger, 0, 1, 0);
    ledger_close(ledger);
    off_t before = size_of(segment(folder, 1));
    struct ledger_conf conf = {
        .folder = folder, .run_id = run_id, .shares_id = digest_of("others", 6), .segment_bytes = 1 << 20};
    assert_fails(ERR_CONF, "another list of islands", ledger_open(&conf, &ledger));
    assert_int_equal(size_of(segment(folder, 1)), before);
    ledger = open_ledger(folder);
    assert_holds(ledger, 0, 1, 0);
    ledger_close(ledger);
}

/* Nothing is lost where nothing was saved; a run spec that was wrong at first can be corrected. */
static void what_others_left_empty_is_begun_anew(void **state)
{
    (void)state;
    const char *folder = testlib_folder("ledger-empty");
    struct ledger *ledger;
    struct ledger_conf conf = {.folder = folder, .run_id = digest_of("other", 5), .segment_bytes = 1 << 20};
    assert_ok(ledger_open(&conf, &ledger));
    ledger_close(ledger);
    ledger = open_ledger(folder);
    append(ledger, 0, 1, 0);
    ledger_close(ledger);
    assert_fails(ERR_CONF, "belongs to another run", ledger_open(&conf, &ledger));
    /* Even a part of a record was something. */
    assert_int_equal(access(segment(folder, 1), F_OK), -1);
    assert_int_equal(truncate(segment(folder, 2), HEADER_BYTES + 8), 0);
    assert_fails(ERR_CONF, "belongs to another run", ledger_open(&conf, &ledger));
    ledger = open_ledger(folder);
    ledger_close(ledger);
    conf.run_id = run_id;
    conf.shares_id = digest_of("others", 6);
    assert_ok(ledger_open(&conf, &ledger));
    append(ledger, 0, 1, 0);
    ledger_close(ledger);
}

static void old_segments_go_and_needed_ones_stay(void **state)
{
    (void)state;
    const char *folder = testlib_folder("ledger-prune");
    struct ledger *ledger = open_ledger(folder);
    for (uint64_t v = 1; v <= 300; v++) {
        append(ledger, 0, v, 0);
        append(ledger, 1, v, 0);
    }
    uint64_t before = ledger_stats(ledger).bytes;
    uint64_t versions[2] = {300, 10};
    ledger_prune(ledger, versions, 2); /* fragment 1 still needs nearly all */
    assert_true(ledger_stats(ledger).bytes > before - (64 << 10));
    for (uint64_t v = 11; v <= 300; v++)
        assert_holds(ledger, 1, v, 0);
    versions[1] = 300;
    ledger_prune(ledger, versions, 2);
    struct ledger_stats after = ledger_stats(ledger);
    assert_in_range(after.bytes, 1, 100 << 10); /* keep_bytes */
    assert_lacks(ledger, 0, 1, 0);
    assert_holds(ledger, 0, 300, 0);
    append(ledger, 0, 301, 0);
    ledger_close(ledger);
    ledger = open_ledger(folder);
    assert_int_equal(ledger_stats(ledger).records, after.records + 1);
    assert_holds(ledger, 0, 301, 0);
    ledger_close(ledger);
}

static void one_folder_serves_one_daemon(void **state)
{
    (void)state;
    const char *folder = testlib_folder("ledger-lock");
    struct ledger *ledger = open_ledger(folder), *second;
    struct ledger_conf conf = {.folder = folder, .run_id = run_id, .segment_bytes = 1 << 20};
    assert_fails(ERR_CONF, "in use by another dilocod", ledger_open(&conf, &second));
    ledger_close(ledger);
    assert_ok(ledger_open(&conf, &second));
    ledger_close(second);
}

int main(void)
{
    assert_ok(digest_init());
    run_id = digest_of("run", 3);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_outlive_the_process),
        cmocka_unit_test(a_torn_end_is_cut_at_every_length),
        cmocka_unit_test(damage_costs_the_damaged_record_alone),
        cmocka_unit_test(a_length_without_end_costs_the_record_alone),
        cmocka_unit_test(a_segment_without_a_head_is_put_aside),
        cmocka_unit_test(files_of_other_names_are_left_alone),
        cmocka_unit_test(another_run_is_refused_and_left_alone),
        cmocka_unit_test(other_islands_are_refused_and_their_results_left_alone),
        cmocka_unit_test(what_others_left_empty_is_begun_anew),
        cmocka_unit_test(old_segments_go_and_needed_ones_stay),
        cmocka_unit_test(one_folder_serves_one_daemon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
