/* SPDX-License-Identifier: Apache-2.0 */
/* libdiloco's memory: what is shared with the daemon is there before training begins, and a checkpoint asks for no more
 * room than it may take. */
#include "tests/lib/testlib.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "common/ipc.h"
#include "tests/lib/counterpart.h"
#include "worker/libdiloco/diloco.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* Whether this kernel gives memory that is asked for before it is touched; Linux 5.14 does. */
static bool kernel_populates(void)
{
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(page != MAP_FAILED);
    bool does = madvise(page, 4096, MADV_POPULATE_WRITE) == 0 || errno != EINVAL;
    munmap(page, 4096);
    return does;
}

static void shared_memory_is_there_before_the_first_step(void **state)
{
    (void)state;
    struct stat status;
    if (!kernel_populates())
        skip();
    begin();
    assert_int_equal(fstat(memfd, &status), 0);
    assert_true(status.st_blocks * 512 >= SHM_BYTES);
    for (int i = 0; i < COUNT; i++) /* and what the daemon has put there stays */
        assert_true(ipc_base(shm, fragment)[i] == (float)i);
    end();
}

/* With a snapshot on its way, which is when a checkpoint has most in it. */
static void assert_room(size_t parts)
{
    const size_t values = parts * VALUES * sizeof(float);
    begin();
    fragment->due_step = 1;
    assert_int_equal(train(0.5f), DILOCO_OK);
    assert_int_equal(ipc_word(fragment), IPC_SNAPSHOT);
    size_t room = diloco_keep_bytes(d);
    assert_in_range(room, values, values + sizeof(struct ipc_fragment));
    void *kept = malloc(room);
    assert_non_null(kept);
    assert_int_equal(diloco_keep(d, kept, room - 1), 0);
    assert_int_equal(diloco_keep(d, kept, room), room);
    free(kept);
    end();
}

static void a_checkpoint_asks_for_the_room_that_it_may_take(void **state)
{
    (void)state;
    const struct ipc_shm before = make_conf;
    const struct diloco_tensor wide = announced;
    static uint16_t half[COUNT];
    assert_room(2);
    announced.type = DILOCO_BF16;
    announced.data = half;
    assert_room(3);
    announced = wide;
    make_conf.set_aside = 1;
    assert_room(3);
    make_conf.eager_fresh = 0.5;
    assert_room(4);
    make_conf = before;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shared_memory_is_there_before_the_first_step),
        cmocka_unit_test(a_checkpoint_asks_for_the_room_that_it_may_take),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
