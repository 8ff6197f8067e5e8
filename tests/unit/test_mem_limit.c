/* SPDX-License-Identifier: Apache-2.0 */
/* mem_limit: a process may have what the least of its control groups may, of either version, and of those above it. */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <string.h>
#include <sys/sysinfo.h>

#include "common/fsio.h"
#include "common/mem_limit.h"

enum { MACHINE = 1000000 };

static const char *root;

static void group(const char *path, const char *file, const char *text)
{
    char folder[600];
    snprintf(folder, sizeof folder, "%s%s", root, path);
    assert_ok(fsio_mkdirs(folder, 0755));
    testlib_file(folder, file, "%s\n", text);
}

static void assert_limit(const char *groups, uint64_t bytes, bool by_group)
{
    const struct mem_limit limit = mem_limit_of(groups, root, MACHINE);
    assert_int_equal(limit.bytes, bytes);
    assert_int_equal(limit.group, by_group);
}

static void the_least_of_a_group_and_those_above_it_counts(void **state)
{
    (void)state;
    root = testlib_folder("groups-2");
    group("/system.slice/dilocod.service", "memory.max", "max");
    assert_limit("0::/system.slice/dilocod.service\n", MACHINE, false);
    group("/system.slice", "memory.max", "300000");
    assert_limit("0::/system.slice/dilocod.service\n", 300000, true);
    group("/system.slice/dilocod.service", "memory.max", "200000");
    assert_limit("0::/system.slice/dilocod.service\n", 200000, true);
    assert_limit("0::/system.slice/dilocod.service", 200000, true);
    assert_limit("0::/user.slice/session.scope\n", MACHINE, false);
    assert_limit("0::/\n", MACHINE, false);
    group("/system.slice/dilocod.service", "memory.max", "2000000");
    group("/system.slice", "memory.max", "max");
    assert_limit("0::/system.slice/dilocod.service\n", MACHINE, false);
}

static void in_a_container_the_root_may_be_the_group(void **state)
{
    (void)state;
    root = testlib_folder("groups-container");
    group("", "memory.max", "400000");
    assert_limit("0::/\n", 400000, true);
    assert_limit("0::/docker/0123456789abcdef\n", 400000, true);
}

static void groups_of_the_first_version_count_where_they_are_of_memory(void **state)
{
    (void)state;
    static const char some[] = "9:name=systemd:/a\n4:cpu,memory:/a/b\n3:cpuset:/tight\n0::/\n";
    root = testlib_folder("groups-1");
    group("/memory/tight", "memory.limit_in_bytes", "1");
    group("/memory/a/b", "memory.limit_in_bytes", "9223372036854771712");
    assert_limit(some, MACHINE, false);
    group("/memory/a/b", "memory.limit_in_bytes", "500000");
    assert_limit(some, 500000, true);
    assert_limit("4:memory,cpu:/a/b\n", 500000, true);
    assert_limit("4:memoryless:/a/b\n", MACHINE, false);
    assert_limit("4:memoryless,less:/a/b\n", MACHINE, false);
}

static void what_cannot_be_read_limits_nothing(void **state)
{
    (void)state;
    char longest[9000];
    root = testlib_folder("groups-odd");
    group("", "memory.max", "many");
    static const char *const odd[] = {"", "\n", "\n\n0", "0", "0:", "0::", ":::", "4:memory", "4:memory\n:/a\n"};
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++)
        assert_limit(odd[i], MACHINE, false);
    memset(longest, 'x', sizeof longest);
    memcpy(longest, "0::/", 4);
    longest[sizeof longest - 1] = '\0';
    assert_limit(longest, MACHINE, false);
}

static void this_process_has_what_the_kernel_says_or_less(void **state)
{
    (void)state;
    struct sysinfo info;
    assert_int_equal(sysinfo(&info), 0);
    uint64_t there = (uint64_t)info.totalram * info.mem_unit;
    const struct mem_limit limit = mem_limit();
    if (limit.group)
        assert_true(limit.bytes > 0 && limit.bytes < there + there / 100);
    else
        assert_in_range(limit.bytes, there - there / 100, there + there / 100);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_of_a_group_and_those_above_it_counts),
        cmocka_unit_test(in_a_container_the_root_may_be_the_group),
        cmocka_unit_test(groups_of_the_first_version_count_where_they_are_of_memory),
        cmocka_unit_test(what_cannot_be_read_limits_nothing),
        cmocka_unit_test(this_process_has_what_the_kernel_says_or_less),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
