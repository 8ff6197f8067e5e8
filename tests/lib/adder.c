/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/adder.h"

#include "tests/lib/testlib.h"

#include <stdlib.h>

#include "tests/lib/patience.h"

float *adder_tensor[ADDER_TENSORS];
static struct patience patience; /* since something was done */

void adder_new(void)
{
    for (int i = 0; i < ADDER_TENSORS; i++) {
        adder_tensor[i] = calloc(ADDER_VALUES, sizeof *adder_tensor[i]);
        assert_non_null(adder_tensor[i]);
    }
}

void adder_free(void)
{
    for (int i = 0; i < ADDER_TENSORS; i++)
        free(adder_tensor[i]);
}

static int overdue(void *unused)
{
    (void)unused;
    return patience_over(&patience, ADDER_PATIENCE_MS);
}

struct diloco *adder_attach(const char *socket_path, const char *name)
{
    struct diloco *trainer;
    struct diloco_options options = {.size = sizeof(struct diloco_options),
                                     .socket_path = socket_path,
                                     .trainer = "test",
                                     .wait_ms = 100 * ADDER_PATIENCE_MS, /* it is patience that ends it */
                                     .interrupted = overdue};
    patience = (struct patience){0};
    assert_int_equal(diloco_attach(&options, &trainer), DILOCO_OK);
    for (int i = 0; i < ADDER_TENSORS; i++) {
        struct diloco_tensor what = {.size = sizeof(struct diloco_tensor),
                                     .name = i == 0 ? "embed" : name,
                                     .data = adder_tensor[i],
                                     .dims = 2,
                                     .shape = {ADDER_VALUES / 64, 64},
                                     .layer = i - 1};
        assert_int_equal(diloco_register(trainer, &what), DILOCO_OK);
    }
    return trainer;
}

int adder_train(struct diloco *trainer, int steps)
{
    int result = DILOCO_OK;
    for (int k = 0; k < steps && result == DILOCO_OK; k++) {
        for (int i = 0; i < ADDER_TENSORS; i++)
            for (size_t n = 0; n < ADDER_VALUES; n++)
                adder_tensor[i][n] += 1;
        patience = (struct patience){0};
        result = diloco_step(trainer,
                             &(struct diloco_report){.size = sizeof(struct diloco_report), .tokens = 10, .loss = 1.5});
    }
    if (result != DILOCO_OK && result != DILOCO_STOP)
        fail_msg("%s", diloco_error(trainer));
    return result;
}

void adder_assert_values(const float *values, size_t count, float value)
{
    for (size_t n = 0; n < count; n++)
        if (values[n] != value)
            fail_msg("value %zu is %g, not %g", n, (double)values[n], (double)value);
}

void adder_assert(float value)
{
    for (int i = 0; i < ADDER_TENSORS; i++)
        adder_assert_values(adder_tensor[i], ADDER_VALUES, value);
}
