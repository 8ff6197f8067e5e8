/* SPDX-License-Identifier: Apache-2.0 */
/* founding: what is drawn is read back, another each time; what is no founding is refused with what to do. */
#include "tests/lib/testlib.h"

#include <string.h>
#include <unistd.h>

#include "common/digest.h"
#include "daemon/founding.h"

static void what_is_drawn_is_read_and_another_each_time(void **state)
{
    (void)state;
    uint8_t first[FOUNDING_BYTES], again[FOUNDING_BYTES], second[FOUNDING_BYTES];
    const char *path = testlib_path(testlib_folder("founding"), "founded");
    assert_ok(founding_draw(path));
    assert_ok(founding_read(path, first));
    assert_ok(founding_read(path, again));
    assert_memory_equal(first, again, sizeof first);
    assert_ok(founding_draw(path));
    assert_ok(founding_read(path, second));
    assert_memory_not_equal(first, second, sizeof first);
}

static void digits_are_read_as_they_stand(void **state)
{
    (void)state;
    static const uint8_t want[FOUNDING_BYTES] = {0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef,
                                                 0,    0,    0,    0,    0,    0,    0,    0xf0};
    uint8_t got[FOUNDING_BYTES];
    const char *folder = testlib_folder("founding-digits");
    assert_ok(founding_read(testlib_file(folder, "good", "%s", "0123456789abcdef00000000000000f0\r\n"), got));
    assert_memory_equal(got, want, sizeof want);
}

static void what_is_no_founding_is_refused_with_what_to_do(void **state)
{
    (void)state;
    uint8_t got[FOUNDING_BYTES];
    const char *folder = testlib_folder("founding-bad");
    static const char *const texts[] = {"",
                                        "0123456789abcdef00000000000000f",
                                        "0123456789abcdef00000000000000f0 ",
                                        "0123456789abcdef00000000000000g0",
                                        "0123456789ABCDEF00000000000000f0",
                                        "0123456789abcdef00000000000000f00"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        assert_fails(ERR_CONF, "does not hold 32 hexadecimal digits; put back what was drawn",
                     founding_read(testlib_file(folder, "bad", "%s", texts[i]), got));
    assert_fails(ERR_CONF, "as [island] founded says", founding_read(testlib_path(folder, "none"), got));
    assert_non_null(strstr(err_text(), "reset"));
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_drawn_is_read_and_another_each_time),
        cmocka_unit_test(digits_are_read_as_they_stand),
        cmocka_unit_test(what_is_no_founding_is_refused_with_what_to_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
