/* SPDX-License-Identifier: Apache-2.0 */
/* zstd_choice: whether zstd pays on a link. */
#include "tests/lib/testlib.h"

#include "daemon/rounds/round_context.h"

/* zstd here: 400 MB/s of raw codes, saves a tenth of them. */
static unsigned share_with(double bits_per_s)
{
    struct zstd_choice zstd_choice = {0};
    unsigned with = 0;
    for (int i = 0; i < 640; i++) {
        bool on = zstd_choice_next(&zstd_choice, bits_per_s);
        zstd_choice_note(&zstd_choice, on, 1 << 20, on ? 0.0013 + 0.0005 : 0.0005, on ? 471859 : 524288);
        zstd_choice_note(&zstd_choice, !on, 100, 1, 1); /* a tiny tensor says nothing */
        with += on;
        (void)zstd_choice_best(&zstd_choice, bits_per_s); /* a look is no trial */
    }
    return with;
}

static void zstd_is_used_where_it_shortens_the_transfer(void **state)
{
    (void)state;
    assert_int_equal(share_with(0), 640);
    assert_in_range(share_with(50e6), 600, 632);  /* all but the trials */
    assert_in_range(share_with(300e6), 600, 632); /* break-even lies at 323 Mbit/s */
    assert_in_range(share_with(350e6), 8, 40);
    assert_in_range(share_with(10e9), 8, 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zstd_is_used_where_it_shortens_the_transfer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
