/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_dnn: which cuDNN is taken, of libraries that are played: one that is not there, lacks a function or is too old
 * is refused in words that name the remedy.
 */
#include "tests/lib/testlib.h"

#include <string.h>

#include "kernels/cuda/cuda_dnn.h"
#include "kernels/cuda/cuda_library.h"

static struct {
    bool missing;
    const char *lacks;
    size_t version;
} played;

static size_t played_version(void)
{
    return played.version;
}

void *cuda_library_open(const char *name)
{
    assert_string_equal(name, "libcudnn.so.9");
    return played.missing ? NULL : &played;
}

const char *cuda_library_lacks(void *library, const struct cuda_symbol *wanted, size_t count)
{
    size_t (*version)(void) = played_version;
    assert_ptr_equal(library, &played);
    for (size_t i = 0; i < count; i++)
        if (strcmp(wanted[i].name, "cudnnGetVersion") == 0)
            memcpy(wanted[i].function, &version, sizeof version);
    return played.lacks;
}

/* "": it is taken. */
static const char *load(void)
{
    static char why[600];
    struct cuda_dnn_calls calls;
    size_t version;
    bool taken = cuda_dnn_load(&calls, &version, why, sizeof why);
    assert_int_equal(taken, why[0] == '\0');
    if (taken)
        assert_int_equal(version, played.version);
    return why;
}

static void from_9_15_1_on_it_is_taken(void **state)
{
    (void)state;
    memset(&played, 0, sizeof played);
    played.version = 91501;
    assert_string_equal(load(), "");
    played.version = 92600;
    assert_string_equal(load(), "");
    played.version = 91500;
    assert_string_equal(load(), "libcudnn.so.9 is version 9.15.0, and 9.15.1 or newer is needed");
    played.version = 91400;
    assert_string_equal(load(), "libcudnn.so.9 is version 9.14.0, and 9.15.1 or newer is needed");
}

static void what_is_missing_is_named(void **state)
{
    (void)state;
    memset(&played, 0, sizeof played);
    played.missing = true;
    assert_non_null(strstr(load(), "libcudnn.so.9 not found; install cuDNN 9"));
    played.missing = false;
    played.version = 91900;
    played.lacks = "cudnnBackendExecute";
    assert_string_equal(load(), "libcudnn.so.9 has no cudnnBackendExecute; install cuDNN again");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(from_9_15_1_on_it_is_taken),
        cmocka_unit_test(what_is_missing_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
