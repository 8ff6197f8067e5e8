/* SPDX-License-Identifier: Apache-2.0 */
/* calibrate: it measures what is there, and what it comes to for a run adds up. That the sum is what daemons take is
 * measured in make bench (part exchange). */
#include "tests/lib/testlib.h"

#include <math.h>

#include "common/digest.h"
#include "daemon/ctl/calibrate.h"

static void everything_takes_some_time(void **state)
{
    (void)state;
    struct calibration machine;
    struct calibrate_codec fp32, uniform;
    assert_ok(calibrate_measure(testlib_folder("calibrate"), &machine));
    const double taken[] = {machine.step_ns,   machine.hash_ns,   machine.copy_ns,
                            machine.digest_ns, machine.cipher_ns, machine.disk_ns};
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++)
        assert_true(isfinite(taken[i]) && taken[i] > 0);
    assert_ok(calibrate_measure_codec(&(struct codec_choice){.id = CODEC_FP32}, &fp32));
    assert_ok(calibrate_measure_codec(&(struct codec_choice){.id = CODEC_UNIFORM, .ratio = 1.4f}, &uniform));
    assert_true(fp32.encode_ns > 0 && fp32.add_ns > 0 && fp32.look_ns > 0 && isfinite(fp32.encode_ns));
    assert_true(uniform.encode_ns > 0 && uniform.add_ns > 0 && uniform.look_ns > 0 && isfinite(uniform.add_ns));
    assert_fails(ERR_IO, "/nowhere/at/all", calibrate_measure("/nowhere/at/all", &machine));
    assert_fails(ERR_ARG, "", calibrate_measure_codec(&(struct codec_choice){.id = CODEC_TOPK, .ratio = 2}, &fp32));
}

static void what_it_comes_to_adds_up(void **state)
{
    (void)state;
    static const struct calibration machine = {
        .step_ns = 1, .hash_ns = 8, .copy_ns = 4, .digest_ns = 1, .cipher_ns = 2};
    static const struct calibrate_codec codec = {.encode_ns = 16, .add_ns = 32, .look_ns = 64};
    struct calibrate_run run = {.islands = 2, .owners = 2, .bits = 8};
    struct calibrate_cost cost = calibrate_cost(&machine, &codec, &run);
    assert_float_equal(cost.encode_ns, 16, 1e-9);
    assert_float_equal(cost.reduce_ns, 2 * 33 + 16,
                       1e-9); /* two contributions, checked and added; the mean's encoding */
    assert_float_equal(cost.store_ns, 64 + 1 + 1, 1e-9);
    assert_float_equal(cost.apply_ns, 1 + 32 + 1 + 4, 1e-9);
    assert_float_equal(cost.hash_ns, 8, 1e-9);
    assert_float_equal(cost.link_ns, 2 + 3, 1e-9);
    /* One byte goes out and one comes in a parameter: half a contribution and half the results each. */
    assert_float_equal(cost.all_ns, 16 + 82 / 2.0 + 66 + 46 + 2 * 5, 1e-9);
    assert_float_equal(cost.memory_bytes, 16 + 2 + 1.5, 1e-9);
    run.error_feedback = true;
    assert_float_equal(calibrate_cost(&machine, &codec, &run).memory_bytes, 24 + 3.5, 1e-9);
    /* Many more than own shards: an owner averages what all send. */
    run = (struct calibrate_run){.islands = 640, .owners = 64, .bits = 8};
    assert_float_equal(calibrate_cost(&machine, &codec, &run).reduce_ns, 640 * 33 + 16, 1e-9);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_takes_some_time),
        cmocka_unit_test(what_it_comes_to_adds_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
