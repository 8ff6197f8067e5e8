/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_choices: what one process has chosen another one finds, of the same kind of GPU; whatever is in the file. */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/env.h"
#include "common/fsio.h"
#include "common/mem.h"
#include "kernels/cuda/cuda_choices.h"

static const char *folder, *path;

static const int64_t key_a[CUDA_CHOICE_KEYS] = {1, 2, -3, INT64_MAX, 5, 6, 7, 8, 9, INT64_MIN};
static const int64_t key_b[CUDA_CHOICE_KEYS] = {1, 2, -3, INT64_MAX, 5, 6, 7, 8, 9, 10};

static void fill(unsigned char *algorithm, int seed)
{
    for (int i = 0; i < CUDA_CHOICE_BYTES; i++)
        algorithm[i] = (unsigned char)(seed + 37 * i);
}

static struct cuda_choices *open_as(const char *identity)
{
    struct cuda_choices *choices;
    assert_ok(cuda_choices_open(path, identity, &choices));
    return choices;
}

static void finds(struct cuda_choices *choices, const int64_t *key, int seed)
{
    unsigned char want[CUDA_CHOICE_BYTES], got[CUDA_CHOICE_BYTES];
    fill(want, seed);
    assert_true(cuda_choices_find(choices, key, got));
    assert_memory_equal(got, want, sizeof want);
}

static void has_not(struct cuda_choices *choices, const int64_t *key)
{
    unsigned char got[CUDA_CHOICE_BYTES];
    assert_false(cuda_choices_find(choices, key, got));
}

static void add(struct cuda_choices *choices, const int64_t *key, int seed)
{
    unsigned char algorithm[CUDA_CHOICE_BYTES];
    fill(algorithm, seed);
    cuda_choices_add(choices, key, algorithm);
}

static int set_up(void **state)
{
    (void)state;
    folder = testlib_folder("choices");
    path = testlib_path(folder, "algorithms.txt");
    return 0;
}

static void another_process_finds_them(void **state)
{
    (void)state;
    struct cuda_choices *choices = open_as("GPU one");
    has_not(choices, key_a);
    add(choices, key_a, 1);
    finds(choices, key_a, 1);
    has_not(choices, key_b);
    add(choices, key_b, 2);
    add(choices, key_a, 3);
    cuda_choices_close(choices);
    for (int time = 0; time < 2; time++) { /* also after one that adds nothing */
        choices = open_as("GPU one");
        finds(choices, key_a, 3);
        finds(choices, key_b, 2);
        cuda_choices_close(choices);
    }
}

static void of_another_gpu_they_do_not_hold(void **state)
{
    (void)state;
    struct cuda_choices *choices = open_as("GPU one");
    add(choices, key_a, 1);
    cuda_choices_close(choices);
    choices = open_as("GPU");
    has_not(choices, key_a);
    add(choices, key_b, 2);
    cuda_choices_close(choices);
    choices = open_as("GPU one");
    has_not(choices, key_a);
    has_not(choices, key_b);
    cuda_choices_close(choices);
    cuda_choices_close(NULL);
}

/* Cut off anywhere: what is found is what was chosen, or nothing. With a byte changed: the library looks at what is
 * found. And more can be added. */
static void a_damaged_file_does_no_harm(void **state)
{
    (void)state;
    struct cuda_choices *choices = open_as("GPU one");
    add(choices, key_a, 1);
    add(choices, key_b, 2);
    cuda_choices_close(choices);
    char *whole;
    size_t bytes;
    unsigned char got[CUDA_CHOICE_BYTES], want[CUDA_CHOICE_BYTES];
    assert_ok(fsio_read(path, 1 << 20, &whole, &bytes));
    struct env_rng rng = env_rng_init(3, 0);
    for (size_t cut = 0; cut < bytes; cut += 7) {
        assert_ok(fsio_replace(path, whole, cut, 0600));
        choices = open_as("GPU one");
        fill(want, 1);
        if (cuda_choices_find(choices, key_a, got))
            assert_memory_equal(got, want, sizeof want);
        add(choices, key_b, 7);
        cuda_choices_close(choices);
        choices = open_as("GPU one");
        finds(choices, key_b, 7);
        cuda_choices_close(choices);
    }
    for (int i = 0; i < 60; i++) {
        char *changed = malloc(bytes);
        assert_non_null(changed);
        memcpy(changed, whole, bytes);
        changed[env_rng_below(&rng, bytes)] = (char)env_rng_below(&rng, 256);
        assert_ok(fsio_replace(path, changed, bytes, 0600));
        free(changed);
        choices = open_as("GPU one");
        add(choices, key_a, 9);
        finds(choices, key_a, 9);
        cuda_choices_close(choices);
    }
    mem_free(whole);
}

static void without_a_file_all_goes_on(void **state)
{
    (void)state;
    struct cuda_choices *choices;
    assert_ok(cuda_choices_open(NULL, "GPU one", &choices));
    add(choices, key_a, 1);
    finds(choices, key_a, 1);
    cuda_choices_close(choices);
    assert_ok(cuda_choices_open("/nonexistent/algorithms.txt", "GPU one", &choices));
    add(choices, key_a, 1);
    finds(choices, key_a, 1);
    for (int64_t i = 0; i < 10000; i++) /* a bound, not a fault */
        add(choices, (int64_t[CUDA_CHOICE_KEYS]){i}, 1);
    finds(choices, key_a, 1);
    cuda_choices_close(choices);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(another_process_finds_them, set_up),
        cmocka_unit_test_setup(of_another_gpu_they_do_not_hold, set_up),
        cmocka_unit_test_setup(a_damaged_file_does_no_harm, set_up),
        cmocka_unit_test_setup(without_a_file_all_goes_on, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
