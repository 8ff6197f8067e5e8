/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives on arrays of an emulated GPU whose copies are as late as they may be: what is not ordered, or waited for,
 * is seen as a wrong value. */
#include "tests/lib/testlib.h"

#include <string.h>
#include <unistd.h>

#include "tests/emu/emu.h"
#include "tests/emu/kern_emu.h"
#include "tests/lib/ranks.h"

static enum err all_of_them(void *user, const struct launch_rank *rank)
{
    static const int64_t counts[] = {1, 127, 1025, 4999};
    struct ranks ranks;
    emu_clear();
    TRY(ranks_open(rank, &kern_emu, &ranks));
    TRY(ranks_check_all(&ranks, *(enum kern_queue *)user, counts, 4));
    ranks_close(&ranks);
    CHECK(emu_error()[0] == '\0');
    return ERR_OK;
}

static void collectives_on_any_queue(void **state)
{
    const struct launch_conf conf = {.ranks = 3, .device = "emu", .stage_bytes = 8192};
    (void)state;
    for (int queue = KERN_MAIN; queue < KERN_QUEUES; queue++)
        assert_ok(launch_run(&conf, all_of_them, &queue));
}

/* Operations on MAIN make what goes around, and use it: nothing but order() says what waits for what. */
static enum err between_operations(void *user, const struct launch_rank *rank)
{
    enum { COUNT = 3000 };
    static float values[COUNT], want[COUNT], got[COUNT];
    struct ranks ranks;
    float *master;
    void *act;
    (void)user;
    emu_clear();
    TRY(ranks_open(rank, &kern_emu, &ranks));
    struct comm *comm = ranks.comm;
    TRY(kern_emu.alloc(ranks.dev, sizeof values, "a test's floats", (void **)&master));
    TRY(kern_emu.alloc(ranks.dev, COUNT * kern_emu.act_bytes, "a test's bf16", &act));
    for (int i = 0; i < COUNT; i++) { /* sums of small whole numbers are exact in bf16 */
        values[i] = (float)((i + 7 * rank->rank) % 50);
        want[i] = (float)(i % 50 + (i + 7) % 50 + (i + 14) % 50);
    }
    kern_emu.copy(ranks.dev, KERN_MAIN, master, values, sizeof values);
    kern_emu.to_act(ranks.dev, act, master, COUNT);
    kern_emu.order(ranks.dev, KERN_COMM, KERN_MAIN);
    TRY(comm->calls->all_reduce(comm, KERN_COMM, act, COUNT, COMM_BF16));
    kern_emu.order(ranks.dev, KERN_MAIN, KERN_COMM);
    kern_emu.from_act(ranks.dev, master, act, COUNT);
    kern_emu.copy(ranks.dev, KERN_MAIN, got, master, sizeof got);
    TRY(kern_emu.sync(ranks.dev));
    CHECK(memcmp(got, want, sizeof want) == 0);
    kern_emu.free(ranks.dev, master);
    kern_emu.free(ranks.dev, act);
    ranks_close(&ranks);
    CHECK(emu_error()[0] == '\0');
    return ERR_OK;
}

static void what_operations_make_goes_around(void **state)
{
    const struct launch_conf conf = {.ranks = 3, .device = "emu", .stage_bytes = 4096};
    (void)state;
    assert_ok(launch_run(&conf, between_operations, NULL));
}

/* Rank 1 cancels when it has sent its second piece on its way, and gives the others time to see it before it comes to
 * where they wait for it. Nothing stays pinned that is still being copied. */
static struct kern cancelling;
static struct comm *to_cancel;
static int copies;

static void cancelling_copy(struct kern_dev *dev, enum kern_queue queue, void *to, const void *from, size_t bytes)
{
    kern_emu.copy(dev, queue, to, from, bytes);
    if (++copies != 2)
        return;
    to_cancel->calls->cancel(to_cancel);
    usleep(300000);
}

static enum err cancelled_on_the_way(void *user, const struct launch_rank *rank)
{
    enum { COUNT = 20000 };
    struct ranks ranks;
    void *array;
    (void)user;
    emu_clear();
    cancelling = kern_emu;
    if (rank->rank == 1)
        cancelling.copy = cancelling_copy;
    TRY(ranks_open(rank, &cancelling, &ranks));
    to_cancel = ranks.comm;
    TRY(kern_emu.alloc(ranks.dev, COUNT * 4, "a test's array", &array));
    CHECK(ranks.comm->calls->all_reduce(ranks.comm, KERN_COMM, array, COUNT, COMM_F32) == ERR_CLOSED);
    ranks.comm->calls->free(ranks.comm);
    CHECK(emu_error()[0] == '\0');
    kern_emu.free(ranks.dev, array);
    kern_emu.close(ranks.dev);
    CHECK(emu_error()[0] == '\0');
    return ERR_OK;
}

static void a_failure_leaves_no_copy_behind(void **state)
{
    const struct launch_conf conf = {.ranks = 3, .device = "emu", .stage_bytes = 4096};
    (void)state;
    assert_ok(launch_run(&conf, cancelled_on_the_way, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_on_any_queue),
        cmocka_unit_test(what_operations_make_goes_around),
        cmocka_unit_test(a_failure_leaves_no_copy_behind),
    };
    int failed = cmocka_run_group_tests_name("late queues", tests, NULL, NULL);
    kern_emu_hurry(true);
    return failed + cmocka_run_group_tests_name("COMM and COPY in a hurry", tests, NULL, NULL);
}
