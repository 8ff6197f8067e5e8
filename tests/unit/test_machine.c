/* SPDX-License-Identifier: Apache-2.0 */
/* machine: what the trainer tells of what it runs on: the device's name alone, and what all its devices can do. */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <string.h>

#include "worker/machine.h"

static struct kern kern;
static const char *description;
static enum err memory_err;

static void describe(struct kern_dev *dev, char *text, size_t bytes)
{
    (void)dev;
    snprintf(text, bytes, "%s", description);
}

static enum err memory(struct kern_dev *dev, size_t *free_bytes, size_t *total)
{
    (void)dev;
    if (memory_err != ERR_OK)
        return memory_err;
    *free_bytes = 1;
    *total = 80;
    return ERR_OK;
}

static double peak_flops(struct kern_dev *dev)
{
    (void)dev;
    return 1e15;
}

static struct diloco_machine of(const char *said, int ranks, int devices, char name[MACHINE_NAME_BYTES])
{
    description = said;
    return machine_of(&(struct machine_conf){.kern = &kern,
                                             .ranks = ranks,
                                             .tensor_parallel = 2,
                                             .devices = devices,
                                             .memory_bytes = 41,
                                             .flops_per_token = 6e9},
                      name);
}

static void it_tells_what_the_table_says_and_what_all_can_do(void **state)
{
    (void)state;
    char name[MACHINE_NAME_BYTES];
    struct diloco_machine machine = of("NVIDIA H100 80GB HBM3, driver 580.1, compute 9.0", 4, 4, name);
    assert_int_equal(machine.size, sizeof machine);
    assert_string_equal(machine.device, "NVIDIA H100 80GB HBM3");
    assert_true(machine.ranks == 4 && machine.tensor_parallel == 2);
    assert_true(machine.memory_bytes == 41 && machine.memory_total_bytes == 80);
    assert_true(machine.flops_per_token == 6e9 && machine.peak_flops == 4e15);
    /* Ranks that have one device together can do no more than it. */
    machine = of("emulated", 4, 1, name);
    assert_string_equal(machine.device, "emulated");
    assert_true(machine.ranks == 4 && machine.peak_flops == 1e15);
}

static void what_a_device_does_not_say_is_left_out(void **state)
{
    (void)state;
    char name[MACHINE_NAME_BYTES], endless[2 * MACHINE_NAME_BYTES];
    memset(endless, 'x', sizeof endless - 1);
    endless[sizeof endless - 1] = '\0';
    memory_err = ERR_STATE;
    struct diloco_machine machine = of(endless, 1, 1, name);
    memory_err = ERR_OK;
    assert_int_equal(strlen(machine.device), MACHINE_NAME_BYTES - 1);
    assert_true(machine.memory_total_bytes == 0 && machine.memory_bytes == 41);
}

int main(void)
{
    kern = (struct kern){.name = "test", .describe = describe, .memory = memory, .peak_flops = peak_flops};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_tells_what_the_table_says_and_what_all_can_do),
        cmocka_unit_test(what_a_device_does_not_say_is_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
