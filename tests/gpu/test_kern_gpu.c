/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA kernels on a GPU: the cases of tests/kern, twice: the same inputs give the same bits. (Within a process:
 * which algorithm multiplies is found out by timing, once in each.)
 *
 *   test_kern_gpu [SECONDS]     once, and no case is begun after so many: for tools that make everything slow
 */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/digest.h"
#include "common/env.h"
#include "tests/gpu/gpu.h"
#include "tests/kern/arrays.h"
#include "tests/kern/cases.h"

enum { RUNS = 2 };

static struct digest seen[RUNS];

static void the_same_inputs_give_the_same_bits(void **state)
{
    (void)state;
    assert_true(digest_equal(&seen[0], &seen[1]));
}

static int run_twice(const struct kern *table, struct kern_dev *device)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_same_inputs_give_the_same_bits)};
    int failures = 0;
    for (int i = 0; i < RUNS; i++) {
        failures += cases_run(i == 0 ? "GPU" : "GPU again", table, device);
        seen[i] = arrays_digest();
    }
    return failures + cmocka_run_group_tests(tests, NULL, NULL);
}

static int run_for(double seconds, const struct kern *table, struct kern_dev *device)
{
    const struct {
        const struct CMUnitTest *cases;
        size_t count;
    } groups[] = {{cases_pass, cases_pass_count},
                  {cases_loss, cases_loss_count},
                  {cases_optim, cases_optim_count},
                  {cases_move, cases_move_count}};
    double until_s = env_mono_s() + seconds;
    size_t done = 0, all = 0;
    int failures = 0;
    arrays_begin(table, device);
    assert_ok(table->reserve(device, CASES_ROWS, CASES_COLUMNS, 0));
    for (size_t g = 0; g < sizeof groups / sizeof groups[0]; g++)
        for (size_t i = 0; i < groups[g].count; i++, all++) {
            if (env_mono_s() > until_s)
                continue;
            failures += _cmocka_run_group_tests(groups[g].cases[i].name, &groups[g].cases[i], 1, NULL, NULL);
            done++;
        }
    printf("%zu of %zu cases\n", done, all);
    if (done < all)
        printf("skip: %zu cases: no time left after %.0f s\n", all - done, seconds);
    return failures;
}

int main(int argc, char **argv)
{
    const struct kern *table;
    struct kern_dev *device;
    int status = gpu_open(&table, &device);
    if (status != 0)
        return status;
    assert_ok(digest_init());
    int failures = argc > 1 ? run_for(strtod(argv[1], NULL), table, device) : run_twice(table, device);
    if (table->sync(device) != ERR_OK) {
        fprintf(stderr, "%s\n", err_text());
        failures++;
    }
    table->close(device);
    return failures != 0;
}
