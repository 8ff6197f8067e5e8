/* SPDX-License-Identifier: Apache-2.0 */
/* numbers_file: what was given is known after a restart, and what may have been lost is known to be. */
#include "tests/lib/testlib.h"

#include <string.h>

#include "common/digest.h"
#include "common/fsio.h"
#include "common/mem.h"
#include "daemon/membership/numbers_file.h"

static const char *folder;
static struct voting_disk disk;

static int begin(void **state)
{
    (void)state;
    folder = testlib_folder("numbers_file");
    disk = (struct voting_disk){.doubt = VOTE_SURE, .incarnation = 77};
    return 0;
}

static struct said_numbers opened(void)
{
    struct said_numbers out;
    assert_ok(numbers_file_open(folder, &disk, &out));
    return out;
}

static void assert_numbers(uint64_t order, uint64_t word, bool lost)
{
    struct said_numbers is = opened();
    assert_true(is.order == order && is.word == word && is.order_lost == lost && is.word_lost == lost);
}

static void what_was_kept_comes_back(void **state)
{
    (void)state;
    struct said_numbers numbers = {.order = 7, .word = 1ull << 40};
    assert_numbers(0, 0, false); /* the first start */
    assert_ok(numbers_file_save(folder, disk.incarnation, &numbers));
    assert_numbers(7, 1ull << 40, false);
    numbers.word_lost = true; /* one of the two was given since */
    assert_ok(numbers_file_save(folder, disk.incarnation, &numbers));
    numbers = opened();
    assert_true(numbers.word_lost && !numbers.order_lost);
}

/* Until the next number is given, however often it is started. */
static void another_disk_may_have_lost_some(void **state)
{
    (void)state;
    struct said_numbers numbers = {.order = 7, .word = 9};
    assert_ok(numbers_file_save(folder, disk.incarnation, &numbers));
    disk.incarnation = 78;
    assert_numbers(7, 9, true);
    assert_numbers(7, 9, true);
    assert_ok(numbers_file_save(folder, disk.incarnation, &numbers));
    assert_numbers(7, 9, false);
}

static void an_emptied_folder_may_have_lost_some(void **state)
{
    (void)state;
    disk.doubt = VOTE_DOUBT;
    assert_numbers(0, 0, true);
    disk.doubt = VOTE_SURE; /* a configuration has named it since */
    assert_numbers(0, 0, true);
}

static void a_damaged_file_is_none(void **state)
{
    (void)state;
    char *data, path[400];
    size_t bytes;
    struct said_numbers numbers = {.order = 7, .word = 9};
    snprintf(path, sizeof path, "%s/numbers", folder);
    assert_ok(numbers_file_save(folder, disk.incarnation, &numbers));
    assert_ok(fsio_read(path, 4096, &data, &bytes));
    for (size_t at = 0; at <= bytes; at++) { /* at its end: cut short */
        if (at < bytes)
            data[at] ^= 4;
        assert_ok(fsio_replace(path, data, at < bytes ? bytes : bytes - 1, 0600));
        assert_numbers(0, 0, true);
        if (at < bytes)
            data[at] ^= 4;
    }
    mem_free(data);
}

#define CASE(name) cmocka_unit_test_setup(name, begin)

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        CASE(what_was_kept_comes_back),
        CASE(another_disk_may_have_lost_some),
        CASE(an_emptied_folder_may_have_lost_some),
        CASE(a_damaged_file_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
