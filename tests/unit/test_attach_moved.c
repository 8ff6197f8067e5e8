/* SPDX-License-Identifier: Apache-2.0 */
/* libdiloco against a daemon played by the test: tensors that lie elsewhere than where they were registered, and shared
 * memory that may go away. */
#include "tests/lib/testlib.h"

#include <pthread.h>
#include <string.h>

#include "common/ipc.h"
#include "tests/lib/counterpart.h"
#include "worker/libdiloco/diloco.h"

/* ---- memory that may go away ---- */

static void *welcome_alone(void *unused)
{
    hear_introduction(0);
    say_welcome(false);
    return unused;
}

static void memory_that_may_be_made_smaller_is_not_mapped(void **state)
{
    (void)state;
    const char *path = listen_here();
    pthread_t thread;
    struct diloco_options options = {.size = sizeof options, .socket_path = path, .wait_ms = 2000};
    struct diloco_start start = {.size = sizeof start};
    unsealed = true;
    make_shm();
    unsealed = false;
    assert_int_equal(pthread_create(&thread, NULL, welcome_alone, NULL), 0);
    assert_int_equal(diloco_attach(&options, &d), DILOCO_OK);
    assert_int_equal(diloco_register(d, &announced), DILOCO_OK);
    assert_int_equal(diloco_begin(d, &start), DILOCO_ERROR);
    assert_non_null(strstr(diloco_error(d), "shared memory is not sealed"));
    pthread_join(thread, NULL);
    end();
}

/* ---- tensors that got new storage ---- */

static float elsewhere[COUNT];
static bool moved, lost;
static int looks;

static int look(void *unused)
{
    (void)unused;
    looks++;
    return lost || (moved && diloco_place(d, 0, elsewhere) != DILOCO_OK) ? -1 : 0;
}

static void a_tensor_that_moved_is_looked_for_before_its_values_are_moved(void **state)
{
    (void)state;
    static const struct ipc_range all[] = {{0, VALUES, IPC_MIX, 0}};
    before_moves = look;
    moved = lost = false;
    looks = 0;
    begin();
    assert_int_equal(looks, 1);
    for (int i = 0; i < COUNT; i++)
        elsewhere[i] = 3 * (float)i;
    moved = true;
    fragment->due_step = 2;
    assert_int_equal(train(1), DILOCO_OK);
    assert_int_equal(looks, 1); /* nothing was due */
    assert_int_equal(train(1), DILOCO_OK);
    assert_int_equal(looks, 2);
    for (int i = 0; i < COUNT; i++)
        assert_true(ipc_area(shm, fragment)[i] == 3 * (float)i);
    fragment->due_step = UINT64_MAX;
    bring_anchor(1, 1000, all, 1);
    assert_int_equal(train(1), DILOCO_OK);
    assert_int_equal(looks, 3);
    for (int i = 0; i < COUNT; i++) {
        assert_true(elsewhere[i] == 0.25f * (3 * (float)i) + 0.75f * 1000);
        assert_true(tensor[i] == (float)i + 3);
    }
    end();
    before_moves = NULL;
}

static void the_anchor_is_read_whatever_was_trained_since(void **state)
{
    (void)state;
    static const struct ipc_range all[] = {{0, VALUES, IPC_MIX, 0}};
    static float values[COUNT];
    begin();
    assert_int_equal(train(5), DILOCO_OK);
    assert_int_equal(diloco_anchor(d, 0, values, COUNT), DILOCO_OK);
    for (int i = 0; i < COUNT; i++)
        assert_true(values[i] == (float)i && tensor[i] == (float)i + 5);
    bring_anchor(1, 1000, all, 1);
    assert_int_equal(train(0), DILOCO_OK);
    assert_int_equal(diloco_anchor(d, 0, values, COUNT), DILOCO_OK);
    for (int i = 0; i < COUNT; i++)
        assert_true(values[i] == 1000 && tensor[i] != 1000);
    assert_int_equal(diloco_anchor(d, 0, values, COUNT - 1), DILOCO_ERROR);
    assert_non_null(strstr(diloco_error(d), "of 499 values of tensor 0, which has 500"));
    assert_int_equal(diloco_anchor(d, 1, values, COUNT), DILOCO_ERROR);
    assert_int_equal(diloco_anchor(d, -1, values, COUNT), DILOCO_ERROR);
    assert_int_equal(diloco_anchor(d, 0, NULL, COUNT), DILOCO_ERROR);
    assert_int_equal(diloco_anchor(NULL, 0, values, COUNT), DILOCO_ERROR);
    end();
}

/* Of a matrix of 50 rows and 10 columns the columns 3 to 6, of which the first row is another process's. */
static void of_a_part_its_own_values_are_read(void **state)
{
    (void)state;
    enum { COLUMNS = 4, FIRST = COLUMNS, OWN = 49 * COLUMNS };
    const struct diloco_tensor whole = announced;
    static float values[OWN];
    announced.dims = 2;
    announced.shape[0] = 50;
    announced.shape[1] = 10;
    announced.part = (struct diloco_part){.column0 = 3, .columns = COLUMNS, .first = FIRST, .count = OWN};
    begin();
    announced = whole;
    assert_int_equal(diloco_anchor(d, 0, values, OWN), DILOCO_OK);
    for (int i = 0; i < OWN; i++)
        assert_true(values[i] == (float)((i / COLUMNS + 1) * 10 + 3 + i % COLUMNS));
    end();
}

static void a_tensor_that_is_not_found_is_not_moved_and_no_word_is_taken(void **state)
{
    (void)state;
    before_moves = look;
    moved = lost = false;
    begin();
    lost = true;
    fragment->due_step = 1;
    assert_int_equal(train(1), DILOCO_ERROR);
    assert_non_null(strstr(diloco_error(d), "does not find the tensors"));
    assert_int_equal(ipc_word(fragment), IPC_FREE);
    lost = false; /* whoever mends it may go on */
    assert_int_equal(train(1), DILOCO_OK);
    assert_int_equal(ipc_word(fragment), IPC_SNAPSHOT);
    assert_true(ipc_area(shm, fragment)[7] == 7 + 2);
    assert_int_equal(diloco_place(d, 1, elsewhere), DILOCO_ERROR);
    assert_int_equal(diloco_place(d, -1, elsewhere), DILOCO_ERROR);
    assert_int_equal(diloco_place(d, 0, NULL), DILOCO_ERROR);
    assert_int_equal(diloco_place(NULL, 0, elsewhere), DILOCO_ERROR);
    end();
    before_moves = NULL;
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_that_may_be_made_smaller_is_not_mapped),
        cmocka_unit_test(a_tensor_that_moved_is_looked_for_before_its_values_are_moved),
        cmocka_unit_test(the_anchor_is_read_whatever_was_trained_since),
        cmocka_unit_test(of_a_part_its_own_values_are_read),
        cmocka_unit_test(a_tensor_that_is_not_found_is_not_moved_and_no_word_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
