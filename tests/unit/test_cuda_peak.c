/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_peak: NVIDIA's own figures come out for the boards that they are given for. */
#include "tests/lib/testlib.h"

#include <math.h>

#include "kernels/cuda/cuda_peak.h"

static void the_peak_is_what_nvidia_says_of_its_boards(void **state)
{
    (void)state;
    static const struct {
        int capability, processors, clock_khz;
        double teraflops; /* bf16, dense */
    } boards[] = {
        {80, 108, 1410000, 312}, /* A100, PCIe and SXM */
        {90, 132, 1980000, 989}, /* H100 SXM, H200 */
        {90, 114, 1755000, 756}, /* H100 PCIe */
    };
    for (size_t i = 0; i < sizeof boards / sizeof boards[0]; i++) {
        double peak = cuda_peak_of(boards[i].capability, boards[i].processors, boards[i].clock_khz);
        if (fabs(peak / 1e12 / boards[i].teraflops - 1) > 0.003)
            fail_msg("%.1f TFLOP/s, and NVIDIA says %.0f", peak / 1e12, boards[i].teraflops);
    }
    assert_true(cuda_peak_of(100, 148, 1000000) == 2 * 4096.0 * 148 * 1e9);
}

/* A wrong share of the peak would be worse than none. */
static void of_other_chips_nothing_is_known(void **state)
{
    (void)state;
    static const int others[] = {0, 75, 81, 86, 87, 89, 91, 103, 110, 120, 121};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_true(cuda_peak_of(others[i], 100, 1500000) == 0);
    assert_true(cuda_peak_of(90, 0, 1500000) == 0);
    assert_true(cuda_peak_of(90, 132, 0) == 0);
    assert_true(cuda_peak_of(90, -1, -1) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_peak_is_what_nvidia_says_of_its_boards),
        cmocka_unit_test(of_other_chips_nothing_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
