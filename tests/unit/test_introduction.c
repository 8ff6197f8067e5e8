/* SPDX-License-Identifier: Apache-2.0 */
/* introduction: what a trainer says of itself is checked as it comes; the memory it brings is ours to close. */
#include "tests/lib/testlib.h"

#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "common/mem.h"
#include "daemon/trainer/door.h"

static struct introduction said;

static int begin(void **state)
{
    (void)state;
    introduction_init(&said);
    return 0;
}

static int end(void **state)
{
    (void)state;
    introduction_deinit(&said);
    return 0;
}

static struct ipc_hello hello(uint32_t version, uint64_t session)
{
    return (struct ipc_hello){.version = version, .pid = 7, .session = session, .trainer = "t"};
}

static enum err say_hello(uint32_t version, uint64_t session, int fd)
{
    struct ipc_hello now = hello(version, session);
    return introduction_hello(&said, &now, fd);
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

/* ---- who it is ---- */

static void one_version_is_spoken_and_silence_is_none(void **state)
{
    (void)state;
    static const uint32_t others[] = {0, IPC_VERSION - 1, IPC_VERSION + 1, UINT32_MAX};
    assert_fails(ERR_PROTO, "version 0 of the daemon's interface", introduction_end(&said));
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        assert_fails(ERR_PROTO, "install the same release", say_hello(others[i], 0, -1));
        assert_fails(ERR_PROTO, "install the same release", introduction_end(&said));
    }
    assert_ok(say_hello(IPC_VERSION, 0, -1));
    assert_ok(introduction_end(&said));
    introduction_forget(&said); /* the next one has said nothing yet */
    assert_fails(ERR_PROTO, "version 0", introduction_end(&said));
}

static void a_name_without_an_end_is_cut(void **state)
{
    (void)state;
    struct ipc_hello now = hello(IPC_VERSION, 0);
    memset(now.trainer, 'x', sizeof now.trainer);
    assert_ok(introduction_hello(&said, &now, -1));
    assert_int_equal(strlen(said.hello.trainer), sizeof now.trainer - 1);
}

/* For status alone: a trainer that says nonsense of its machine trains all the same. */
static struct ipc_machine heard_of(struct ipc_machine machine)
{
    struct ipc_hello now = hello(IPC_VERSION, 0);
    now.machine = machine;
    assert_ok(introduction_hello(&said, &now, -1));
    return said.hello.machine;
}

static void what_it_runs_on_is_kept_as_it_says(void **state)
{
    (void)state;
    const struct ipc_machine all = {.device = "NVIDIA H100 80GB HBM3",
                                    .ranks = 64,
                                    .tensor_parallel = 8,
                                    .memory_bytes = (uint64_t)1 << 60,
                                    .memory_total_bytes = 5,
                                    .flops_per_token = 1e300,
                                    .peak_flops = 1e-300};
    struct ipc_machine kept = heard_of(all);
    assert_memory_equal(&kept, &all, sizeof all);
    kept = heard_of((struct ipc_machine){0});
    assert_memory_equal(&kept, &(struct ipc_machine){0}, sizeof kept);
    heard_of(all);
    introduction_forget(&said); /* of the next one nothing is known */
    assert_memory_equal(&said.hello.machine, &(struct ipc_machine){0}, sizeof kept);
}

static void of_a_machine_what_makes_no_sense_counts_as_not_said(void **state)
{
    (void)state;
    static const double numbers[] = {NAN, INFINITY, -INFINITY, -1, -0.0};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        struct ipc_machine kept =
            heard_of((struct ipc_machine){.flops_per_token = numbers[i], .peak_flops = numbers[i]});
        assert_true(kept.flops_per_token == 0 && kept.peak_flops == 0);
    }
    struct ipc_machine kept =
        heard_of((struct ipc_machine){.ranks = UINT32_MAX, .tensor_parallel = 1, .memory_bytes = UINT64_MAX});
    assert_true(kept.ranks == 0 && kept.tensor_parallel == 0 && kept.memory_bytes == 0);
    kept = heard_of((struct ipc_machine){.memory_total_bytes = ((uint64_t)1 << 60) + 1});
    assert_true(kept.memory_total_bytes == 0);
    /* Ranks that share a layer are among the others. */
    static const uint32_t shared[] = {0, 3, 8, UINT32_MAX};
    for (size_t i = 0; i < sizeof shared / sizeof shared[0]; i++) {
        kept = heard_of((struct ipc_machine){.ranks = 4, .tensor_parallel = shared[i]});
        assert_true(kept.ranks == 4 && kept.tensor_parallel == 1);
    }
}

/* It goes into JSON, and to a terminal. */
static void a_devices_name_ends_and_can_be_printed(void **state)
{
    (void)state;
    struct ipc_machine machine = {.ranks = 1};
    memset(machine.device, 'x', sizeof machine.device);
    assert_int_equal(strlen(heard_of(machine).device), IPC_DEVICE_BYTES - 1);
    memcpy(machine.device, "a\x1b[31m\xff\x7f\n", 10);
    assert_string_equal(heard_of(machine).device, "a?[31m???");
}

/* ---- the memory of before ---- */

static void the_descriptor_stays_the_callers_and_a_copy_is_handed_over(void **state)
{
    (void)state;
    int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    assert_ok(say_hello(IPC_VERSION, 5, fd));
    assert_true(introduction_again(&said));
    assert_int_not_equal(said.memory_fd, fd);
    int ours = introduction_take_memory(&said);
    assert_false(introduction_again(&said));
    introduction_deinit(&said);
    introduction_init(&said);
    assert_true(is_open(fd) && is_open(ours));
    close(ours);
    close(fd);
}

static void what_was_not_handed_over_is_closed(void **state)
{
    (void)state;
    int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    assert_ok(say_hello(IPC_VERSION, 5, fd));
    int first = said.memory_fd;
    assert_ok(say_hello(IPC_VERSION, 5, fd)); /* says it twice: one copy is held */
    assert_true(said.memory_fd == first || !is_open(first));
    int held = said.memory_fd;
    introduction_close_memory(&said);
    assert_false(is_open(held) || introduction_again(&said));
    assert_int_equal(said.hello.session, 5); /* what it said may still be looked at */
    assert_ok(say_hello(IPC_VERSION, 5, fd));
    held = said.memory_fd;
    introduction_forget(&said);
    assert_false(is_open(held));
    assert_int_equal(said.hello.session, 0);
    close(fd);
}

static void it_attaches_again_with_a_session_and_its_memory(void **state)
{
    (void)state;
    int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    assert_ok(say_hello(IPC_VERSION, 0, fd));
    assert_false(introduction_again(&said));
    assert_ok(say_hello(IPC_VERSION, 5, -1));
    assert_false(introduction_again(&said));
    assert_ok(say_hello(IPC_VERSION, 5, fd));
    assert_true(introduction_again(&said));
    close(fd);
}

/* ---- its tensors ---- */

static struct ipc_tensor tensor(const char *name)
{
    struct ipc_tensor it = {.dims = 1, .shape = {5}, .layer = -1};
    memcpy(it.name, name, strlen(name));
    return it;
}

static void tensors_are_kept_in_order_until_another_trainer_comes(void **state)
{
    (void)state;
    enum { MANY = 200 }; /* the memory for them grows on the way */
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < MANY; i++) {
            struct ipc_tensor it = tensor("w");
            it.layer = i;
            assert_ok(introduction_tensor(&said, &it));
        }
        assert_int_equal(said.tensors_count, MANY);
        for (int i = 0; i < MANY; i++)
            assert_int_equal(said.tensors[i].layer, i);
        introduction_forget(&said);
        assert_int_equal(said.tensors_count, 0);
    }
}

static void a_tensor_that_makes_no_sense_is_refused(void **state)
{
    (void)state;
    struct ipc_tensor wrong[] = {tensor("w"), tensor("w"), tensor("w\tx"), tensor("w\n")};
    wrong[0].dims = IPC_DIMS_MAX + 1;
    wrong[1].layer = -2;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_fails(ERR_PROTO, "makes no sense", introduction_tensor(&said, &wrong[i]));
    struct ipc_tensor endless = tensor("");
    memset(endless.name, 'w', sizeof endless.name);
    assert_ok(introduction_tensor(&said, &endless));
    assert_int_equal(strlen(said.tensors[said.tensors_count - 1].name), IPC_NAME_BYTES - 1);
}

static void a_frozen_one_has_a_type_that_can_be_told(void **state)
{
    (void)state;
    struct ipc_tensor it = tensor("base");
    it.frozen = 7;
    assert_fails(ERR_PROTO, "makes no sense", introduction_tensor(&said, &it)); /* none */
    memcpy(it.type, "a\tb", 3);
    assert_fails(ERR_PROTO, "makes no sense", introduction_tensor(&said, &it));
    memset(it.type, 't', sizeof it.type); /* and no end */
    it.sum = 9;
    assert_ok(introduction_tensor(&said, &it));
    const struct ipc_tensor *kept = &said.tensors[said.tensors_count - 1];
    assert_int_equal(strlen(kept->type), IPC_TYPE_BYTES - 1);
    assert_int_equal(kept->frozen, 1);
    assert_int_equal(kept->sum, 9);
}

static void there_are_no_more_of_them_than_a_plan_may_have(void **state)
{
    (void)state;
    struct ipc_tensor it = tensor("w");
    for (uint32_t i = 0; i < IPC_TENSORS_MAX; i++)
        assert_ok(introduction_tensor(&said, &it));
    assert_fails(ERR_PROTO, "more than 65536 tensors", introduction_tensor(&said, &it));
    assert_int_equal(said.tensors_count, IPC_TENSORS_MAX);
}

static void without_memory_for_a_tensor_the_others_stay(void **state)
{
    (void)state;
    struct ipc_tensor it = tensor("w");
    while (said.tensors_count == 0 || said.tensors_count < said.tensors_room)
        assert_ok(introduction_tensor(&said, &it));
    uint32_t before = said.tensors_count;
    mem_fail_after(0);
    enum err err = introduction_tensor(&said, &it);
    mem_fail_after(-1);
    assert_int_equal(err, ERR_NOMEM);
    assert_int_equal(said.tensors_count, before);
    assert_ok(introduction_tensor(&said, &it));
}

#define about(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        about(one_version_is_spoken_and_silence_is_none),
        about(a_name_without_an_end_is_cut),
        about(what_it_runs_on_is_kept_as_it_says),
        about(of_a_machine_what_makes_no_sense_counts_as_not_said),
        about(a_devices_name_ends_and_can_be_printed),
        about(the_descriptor_stays_the_callers_and_a_copy_is_handed_over),
        about(what_was_not_handed_over_is_closed),
        about(it_attaches_again_with_a_session_and_its_memory),
        about(tensors_are_kept_in_order_until_another_trainer_comes),
        about(a_frozen_one_has_a_type_that_can_be_told),
        about(a_tensor_that_makes_no_sense_is_refused),
        about(there_are_no_more_of_them_than_a_plan_may_have),
        about(without_memory_for_a_tensor_the_others_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
