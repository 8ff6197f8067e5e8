/* SPDX-License-Identifier: Apache-2.0 */
/* mem: arrays as large as a model: no page of them is taken before somebody touches it, and what is cleared is given
 * back. Counted by what the kernel says of the pages, not by a clock. */
#include "tests/lib/testlib.h"

#include <stdint.h>

#include "common/mem.h"
#include "tests/lib/outofmem.h"
#include "tests/lib/pages.h"

enum { VALUES = 16 << 20 }; /* 64 MiB */

static void a_large_array_is_zero_and_takes_no_page_before_it_is_touched(void **state)
{
    (void)state;
    float *values;
    if (pages_cleared_at_once()) {
        print_message("skip: the sanitizer's allocator fills what it gives\n");
        skip();
    }
    assert_ok(mem_pages_new(VALUES, sizeof *values, "an array", &values));
    assert_int_equal(mem_pages_bytes(), VALUES * sizeof *values);
    assert_int_equal((uintptr_t)values % MEM_ALIGN, 0);
    assert_int_equal(pages_resident(values, VALUES * sizeof *values), 0);
    values[VALUES - 1] = 1;
    assert_in_range(pages_resident(values, VALUES * sizeof *values), 1, 512); /* a page of either kind */
    for (size_t i = 0; i + 1 < VALUES; i += 1021)
        assert_true(values[i] == 0);
    mem_pages_free(values, VALUES, sizeof *values);
    assert_int_equal(mem_pages_bytes(), 0);
}

static void what_is_cleared_is_zero_to_its_borders_and_no_further(void **state)
{
    (void)state;
    enum { FIRST = 1000003, COUNT = 9000001 };
    float *values;
    assert_ok(mem_pages_new(VALUES, sizeof *values, "an array", &values));
    for (size_t i = 0; i < VALUES; i++)
        values[i] = 1;
    size_t before = pages_resident(values, VALUES * sizeof *values);
    mem_pages_clear(values + FIRST, COUNT * sizeof *values);
    if (mem_pages_bytes() > 0)
        assert_true(pages_resident(values, VALUES * sizeof *values) < before / 2); /* nobody wrote the zeros */
    for (size_t i = 0; i < VALUES; i++)
        assert_true(values[i] == (i >= FIRST && i < FIRST + COUNT ? 0 : 1));
    mem_pages_clear(values + 5, 3 * sizeof *values);
    assert_true(values[4] == 1 && values[5] == 0 && values[7] == 0 && values[8] == 1);
    mem_pages_free(values, VALUES, sizeof *values);
}

static void a_small_array_is_one_of_the_allocators(void **state)
{
    (void)state;
    uint8_t *bytes;
    for (size_t count = 0; count < 2000; count += 999) {
        assert_ok(mem_pages_new(count, 1, "an array", &bytes));
        assert_int_equal(mem_pages_bytes(), 0);
        assert_int_equal((uintptr_t)bytes % MEM_ALIGN, 0);
        for (size_t i = 0; i < count; i++)
            assert_int_equal(bytes[i], 0);
        mem_pages_free(bytes, count, 1);
    }
    mem_pages_free(NULL, 0, 1);
    mem_pages_free(NULL, VALUES, sizeof(float));
}

static enum err attempt(void *user)
{
    float *large = NULL, *small = NULL;
    (void)user;
    enum err err = mem_pages_new(VALUES, sizeof *large, "an array", &large);
    if (err == ERR_OK)
        err = mem_pages_new(10, sizeof *small, "an array", &small);
    mem_pages_free(large, VALUES, sizeof *large);
    mem_pages_free(small, 10, sizeof *small);
    return err;
}

static void without_memory_an_array_is_refused_with_its_size(void **state)
{
    (void)state;
    float *values;
    char text[80];
    assert_int_equal(outofmem_walk(attempt, NULL), 2);
    assert_fails(ERR_NOMEM, "more than an address space holds", mem_pages_new(SIZE_MAX / 2, 4, "an array", &values));
    assert_null(values);
    assert_fails(ERR_NOMEM, "for an array", mem_pages_new((size_t)1 << 46, 4, "an array", &values));
    assert_null(values);
    mem_fail_after(0);
    snprintf(text, sizeof text, "out of memory: %zu bytes for an array", VALUES * sizeof *values);
    assert_fails(ERR_NOMEM, text, mem_pages_new(VALUES, sizeof *values, "an array", &values));
    assert_null(values);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(a_large_array_is_zero_and_takes_no_page_before_it_is_touched),
        cmocka_unit_test(what_is_cleared_is_zero_to_its_borders_and_no_further),
        cmocka_unit_test(a_small_array_is_one_of_the_allocators),
        cmocka_unit_test(without_memory_an_array_is_refused_with_its_size),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
