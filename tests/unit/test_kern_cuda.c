/* SPDX-License-Identifier: Apache-2.0 */
/* kern_cuda: the library of the CUDA table, absent, of another version, damaged, and on a machine without a driver. */
#include "tests/lib/testlib.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/kern.h"
#include "kernels/kern_cuda.h"

static bool driver_is_there(void)
{
    return dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) != NULL;
}

static void assert_one_line(void)
{
    assert_null(strchr(err_text(), '\n'));
    assert_non_null(strstr(err_text(), "--device cpu"));
}

static const char *build_folder(void)
{
    const char *build = getenv("BUILD");
    return build != NULL ? build : "build/gcc";
}

static void a_library_that_is_not_there_is_told_with_its_folders(void **state)
{
    (void)state;
    const struct kern *kern;
    const char *folder = testlib_folder("no_library");
    char folders[512];
    snprintf(folders, sizeof folders, "%s::%s/no/such", folder, folder);
    assert_fails(ERR_NOTFOUND, "libdiloco-cuda.so is not there (looked in", kern_cuda_find_in(folders, false, &kern));
    assert_null(kern);
    assert_non_null(strstr(err_text(), folders));
    assert_one_line();
    assert_fails(ERR_NOTFOUND, "without the CUDA toolkit", kern_cuda_find_in("", false, &kern));
}

static void one_of_another_version_is_refused(void **state)
{
    (void)state;
    const struct kern *kern;
    const char *fakes = testlib_path(build_folder(), "tests/fakes");
    assert_fails(ERR_NOTFOUND, "of another version", kern_cuda_find_in(fakes, true, &kern));
    assert_null(kern);
    assert_one_line();
    /* The first folder that has one decides: what stands behind is another installation's. */
    char folders[512];
    snprintf(folders, sizeof folders, "%s:%s", fakes, build_folder());
    assert_fails(ERR_NOTFOUND, "of another version", kern_cuda_find_in(folders, true, &kern));
}

static void one_that_does_not_load_says_why(void **state)
{
    (void)state;
    const struct kern *kern;
    const char *folder = testlib_folder("damaged_library");
    testlib_file(folder, "libdiloco-cuda.so", "not a library\n");
    assert_fails(ERR_NOTFOUND, "does not load", kern_cuda_find_in(folder, true, &kern));
    assert_one_line();
}

static void without_a_driver_it_loads_and_says_so(void **state)
{
    (void)state;
    const struct kern *kern, *again;
    struct kern_dev *dev;
    if (access(testlib_path(build_folder(), "libdiloco-cuda.so"), F_OK) != 0)
        skip_because("libdiloco-cuda.so is not built here (no CUDA toolkit, or a sanitizer)");
    assert_ok(kern_cuda_find_in(build_folder(), false, &kern));
    assert_string_equal(kern->name, "cuda");
    assert_int_equal(kern->act_bytes, 2);
    assert_ok(kern_cuda_find_in(build_folder(), false, &again));
    assert_ptr_equal(kern, again);
    /* A table without a hole: the trainer asks for none. */
    for (const char *at = (const char *)&kern->open; at < (const char *)(kern + 1); at += sizeof(void *)) {
        void *operation;
        memcpy(&operation, at, sizeof operation);
        assert_non_null(operation);
    }
    if (driver_is_there())
        skip_because("this machine has an NVIDIA driver, so what is said without one is not seen");
    assert_fails(ERR_NOTFOUND, "no NVIDIA driver on this machine", kern->open(&(struct kern_place){0}, &dev));
    assert_one_line();
    assert_fails(ERR_NOTFOUND, "no NVIDIA driver", kern_cuda_present());
}

static void names_stand_for_tables(void **state)
{
    (void)state;
    const struct kern *kern;
    assert_ok(kern_find("cpu", &kern));
    assert_string_equal(kern->name, "cpu");
    assert_fails(ERR_NOTFOUND, "no device \"gpu\"; there are: cpu, cuda, auto", kern_find("gpu", &kern));
    /* Beside this test there is none, but the loader may have an installed one. */
    if (kern_find("cuda", &kern) == ERR_OK)
        skip_because("the loader finds an installed libdiloco-cuda.so");
    assert_fails(ERR_NOTFOUND, "libdiloco-cuda.so is not there (looked in /", kern_find("cuda", &kern));
    assert_one_line();
    assert_ok(kern_find("auto", &kern));
    assert_string_equal(kern->name, "cpu");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_stand_for_tables), /* first: what is loaded once is found by its name */
        cmocka_unit_test(a_library_that_is_not_there_is_told_with_its_folders),
        cmocka_unit_test(one_of_another_version_is_refused),
        cmocka_unit_test(one_that_does_not_load_says_why),
        cmocka_unit_test(without_a_driver_it_loads_and_says_so),
    };
    return cmocka_run_group_tests_name("kern_cuda", tests, NULL, NULL);
}
