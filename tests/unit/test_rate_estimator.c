/* SPDX-License-Identifier: Apache-2.0 */
/* rate_estimator: what a link is measured to carry. */
#include "tests/lib/testlib.h"

#include <math.h>

#include "net/transfer/token_bucket.h"

/* A line of `rate` bytes a microsecond that has `total` bytes to carry; then nothing to do for as long again. */
static void carry(struct rate_estimator *meter, uint64_t *now_us, uint64_t *arrived, double rate, uint64_t total)
{
    uint64_t begin_us = *now_us, begin = *arrived;
    for (;;) {
        uint64_t done = (uint64_t)(rate * (double)(*now_us - begin_us));
        done = done < total ? done : total;
        *arrived = begin + done;
        rate_estimator_update(meter, *arrived, total - done, *now_us);
        if (done == total)
            break;
        *now_us += 1000;
    }
    uint64_t end_us = *now_us + (*now_us - begin_us);
    for (; *now_us < end_us; *now_us += 1000)
        rate_estimator_update(meter, *arrived, 0, *now_us);
}

static void a_link_is_measured_while_it_is_busy(void **state)
{
    (void)state;
    struct rate_estimator meter = {0};
    uint64_t now_us = 1000, arrived = 0;
    carry(&meter, &now_us, &arrived, 12.5, 1000); /* too little to tell */
    assert_true(meter.bits_per_s == 0);
    for (int i = 0; i < 5; i++)
        carry(&meter, &now_us, &arrived, 12.5, 5000000); /* 100 Mbit/s; half of the time idle */
    assert_true(fabs((double)meter.bits_per_s / 100e6 - 1) < 0.02);
    for (int i = 0; i < 20; i++)
        carry(&meter, &now_us, &arrived, 1.25, 5000000); /* it became slower; longer than one sample */
    assert_true(fabs((double)meter.bits_per_s / 10e6 - 1) < 0.02);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_link_is_measured_while_it_is_busy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
