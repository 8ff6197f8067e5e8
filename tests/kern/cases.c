/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/kern/cases.h"

#include <stdio.h>

#include "tests/kern/arrays.h"

int cases_run(const char *name, const struct kern *table, struct kern_dev *device)
{
    char group[64];
    int failures = 0;
    arrays_begin(table, device);
    assert_ok(table->reserve(device, CASES_ROWS, CASES_COLUMNS, 0)); /* once for all */
    snprintf(group, sizeof group, "%s: the passes", name);
    failures += _cmocka_run_group_tests(group, cases_pass, cases_pass_count, NULL, NULL);
    snprintf(group, sizeof group, "%s: the loss", name);
    failures += _cmocka_run_group_tests(group, cases_loss, cases_loss_count, NULL, NULL);
    snprintf(group, sizeof group, "%s: the optimizers", name);
    failures += _cmocka_run_group_tests(group, cases_optim, cases_optim_count, NULL, NULL);
    snprintf(group, sizeof group, "%s: copies and moves", name);
    failures += _cmocka_run_group_tests(group, cases_move, cases_move_count, NULL, NULL);
    return failures;
}
