/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA kernels, emulated: the cases of tests/kern, in several orders of threads and blocks, which must not change a
 * bit. */
#include "tests/lib/testlib.h"

#include <stdio.h>

#include "tests/emu/emu.h"
#include "tests/emu/kern_emu.h"
#include "tests/kern/arrays.h"
#include "tests/kern/cases.h"

enum { ORDERS = 3 };

static struct digest seen[ORDERS];

static void orders_do_not_change_a_bit(void **state)
{
    (void)state;
    for (int i = 1; i < ORDERS; i++)
        assert_true(digest_equal(&seen[0], &seen[i]));
}

static void what_does_not_fit_scratch_is_a_fault(void **state)
{
    (void)state;
    struct kern_dev *device;
    emu_clear();
    assert_ok(kern_emu.open(&(struct kern_place){0}, &device));
    assert_ok(kern_emu.reserve(device, 8, 8, 0));
    arrays_begin(&kern_emu, device);
    struct array x = array_new(ARRAY_ACT, 500 * 700, 1), w = array_new(ARRAY_ACT, 700, 1);
    struct array dw = array_new(ARRAY_FLOAT, 700, 1), rstd = array_new(ARRAY_FLOAT, 500, 1);
    kern_emu.rmsnorm_bwd(device, x.dev, dw.dev, x.dev, x.dev, w.dev, rstd.dev, 500, 700);
    assert_fails(ERR_STATE, "reserve", kern_emu.fault(device));
    emu_clear();
    arrays_free(&x, &w, &dw, &rstd, NULL);
    kern_emu.close(device);
}

int main(void)
{
    int failures = 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(orders_do_not_change_a_bit),
        cmocka_unit_test(what_does_not_fit_scratch_is_a_fault),
    };
    assert_ok(digest_init());
    for (uint64_t order = 0; order < ORDERS; order++) {
        char name[64];
        struct kern_dev *device;
        emu_clear();
        emu_set_order(order);
        snprintf(name, sizeof name, "order %d of %d", (int)order + 1, ORDERS);
        assert_ok(kern_emu.open(&(struct kern_place){0}, &device));
        failures += cases_run(name, &kern_emu, device);
        seen[order] = arrays_digest();
        kern_emu.close(device);
        if (emu_error()[0] != '\0') {
            fprintf(stderr, "%s: %s\n", name, emu_error());
            failures++;
        }
    }
    failures += cmocka_run_group_tests(tests, NULL, NULL);
    return failures != 0;
}
