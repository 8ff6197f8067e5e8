/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU's kernels, in every variant that this machine runs: the cases of tests/kern, and one result whatever the
 * number of threads. */
#include "tests/lib/testlib.h"

#include <string.h>

#include "common/env.h"
#include "kernels/kern.h"
#include "tests/kern/arrays.h"
#include "tests/kern/cases.h"

static void threads_do_not_change_a_bit(const struct kern *table)
{
    struct digest seen[2];
    for (int t = 0; t < 2; t++) {
        enum { R = 100, C = 200 };
        struct kern_dev *device;
        struct kern_step *step;
        assert_ok(table->open(&(struct kern_place){.threads = 1 + t}, &device));
        arrays_begin(table, device);
        struct array x = array_new(ARRAY_ACT, R * C, 1), w = array_new(ARRAY_ACT, C, 1);
        struct array dout = array_new(ARRAY_ACT, R * C, 1), out = array_out(ARRAY_ACT, R * C);
        struct array dx = array_new(ARRAY_ACT, R * C, 1), dw = array_new(ARRAY_FLOAT, C, 1);
        struct array rstd = array_out(ARRAY_FLOAT, R), norm = array_out(ARRAY_FLOAT, sizeof *step / sizeof(float));
        step = norm.dev;
        table->zero(device, step, sizeof *step);
        table->rmsnorm_fwd(device, out.dev, rstd.dev, NULL, x.dev, NULL, w.dev, R, C, 1e-5f);
        table->rmsnorm_bwd(device, dx.dev, dw.dev, dout.dev, x.dev, w.dev, rstd.dev, R, C);
        table->sum_squares(device, step, x.dev, R * C);
        array_read(&out);
        array_read(&dx);
        array_read(&dw);
        array_read(&norm);
        seen[t] = arrays_digest();
        arrays_free(&x, &w, &dout, &out, &dx, &dw, &rstd, &norm, NULL);
        table->close(device);
    }
    assert_true(digest_equal(&seen[0], &seen[1]));
}

static void each_variant_alike(void **state)
{
    (void)state;
    const struct kern *tables[3], *none;
    size_t count = kern_all(tables, 3);
    for (size_t t = 0; t < count; t++)
        threads_do_not_change_a_bit(tables[t]);
    assert_fails(ERR_NOTFOUND, "no device \"tpu\"", kern_find("tpu", &none));
}

int main(void)
{
    const struct kern *tables[3];
    size_t count = kern_all(tables, 3);
    int failures = 0;
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_variant_alike)};
    assert_ok(digest_init());
    for (size_t t = 0; t < count; t++) {
        char name[64];
        struct kern_dev *device;
        snprintf(name, sizeof name, "variant %zu of %zu", t + 1, count);
        assert_ok(tables[t]->open(&(struct kern_place){.threads = 2}, &device));
        failures += cases_run(name, tables[t], device);
        tables[t]->close(device);
    }
    failures += cmocka_run_group_tests(tests, NULL, NULL);
    return failures != 0;
}
