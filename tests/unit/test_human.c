/* SPDX-License-Identifier: Apache-2.0 */
/* human: numbers for people, at the borders of their units; and nearest: which name was meant. */
#include "tests/lib/testlib.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/human.h"
#include "common/nearest.h"

struct row {
    double value;
    const char *text;
};

static void assert_rows(const char *(*how)(double, char *), const struct row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char text[HUMAN_BYTES];
        const char *said = how(rows[i].value, text);
        if (strcmp(said, rows[i].text) != 0)
            fail_msg("%.17g is \"%s\", not \"%s\"", rows[i].value, said, rows[i].text);
    }
}
#define ASSERT_ROWS(how, ...)                                 \
    do {                                                      \
        const struct row rows[] = {__VA_ARGS__};              \
        assert_rows(how, rows, sizeof rows / sizeof rows[0]); \
    } while (0)

static void bytes_have_three_digits_and_a_unit(void **state)
{
    (void)state;
    ASSERT_ROWS(human_bytes, {0, "0 B"}, {-0.0, "0 B"}, {0.4, "0 B"}, {1, "1 B"}, {999, "999 B"}, {999.4, "999 B"},
                {999.5, "1.00 kB"}, {1000, "1.00 kB"}, {1234, "1.23 kB"}, {9994, "9.99 kB"}, {9995, "10.0 kB"},
                {99949, "99.9 kB"}, {99950, "100 kB"}, {999499, "999 kB"}, {999500, "1.00 MB"}, {1.07e13, "10.7 TB"},
                {4e18, "4.00 EB"}, {5e21, "5000 EB"}, {1e40, "1.00e+22 EB"}, {-1500, "-1.50 kB"}, {NAN, "?"},
                {INFINITY, "inf"}, {-INFINITY, "-inf"});
    ASSERT_ROWS(human_memory, {0, "0 B"}, {999, "999 B"}, {1023, "1.00 KiB"}, {1536, "1.50 KiB"}, {1048576, "1.00 MiB"},
                {44238163148, "41.2 GiB"}, {1e300, "8.67e+281 EiB"});
}

static void rates_have_three_digits_and_a_unit(void **state)
{
    (void)state;
    ASSERT_ROWS(human_rate, {0, "0 bit/s"}, {812e3, "812 kbit/s"}, {940e6, "940 Mbit/s"}, {1e9, "1.00 Gbit/s"},
                {999.5e6, "1.00 Gbit/s"}, {1e13, "10.0 Tbit/s"}, {3e16, "30000 Tbit/s"}, {NAN, "?"});
    ASSERT_ROWS(human_flops, {21.4e9, "21.4 GFLOP/s"}, {1.5432e15, "1.54 PFLOP/s"}, {999.6e12, "1.00 PFLOP/s"});
}

static void counts_are_short(void **state)
{
    (void)state;
    ASSERT_ROWS(human_count, {0, "0"}, {-0.1, "0"}, {890.4, "890"}, {999.4, "999"}, {999.5, "1k"}, {1000, "1k"},
                {1200, "1.2k"}, {12345, "12.3k"}, {100000, "100k"}, {999500, "1M"}, {1.2e9, "1.2B"}, {1e9, "1B"},
                {1.234e9, "1.23B"}, {70e9, "70B"}, {10e9, "10B"}, {3e12, "3T"}, {9e15, "9000T"}, {1e30, "1.00e+18T"},
                {-2500, "-2.5k"}, {NAN, "?"}, {INFINITY, "inf"});
}

static void durations_have_two_units(void **state)
{
    (void)state;
    ASSERT_ROWS(human_duration, {0, "0 s"}, {0.0004, "0 ms"}, {0.85, "850 ms"}, {0.9994, "999 ms"}, {0.9995, "1 s"},
                {1.04, "1 s"}, {1.06, "1.1 s"}, {4, "4 s"}, {4.25, "4.2 s"}, {9.94, "9.9 s"}, {9.96, "10 s"},
                {59.4, "59 s"}, {59.5, "1 min 0 s"}, {61, "1 min 1 s"}, {303, "5 min 3 s"}, {3599.4, "59 min 59 s"},
                {3599.6, "1 h 0 min"}, {8040, "2 h 14 min"}, {86369, "23 h 59 min"}, {86370, "1 d 0 h"},
                {273600, "3 d 4 h"}, {1e9, "11574 d 2 h"}, {1e12, "over 100 years"}, {-61, "-1 min 1 s"}, {NAN, "?"},
                {INFINITY, "inf"});
}

/* ---- nearest ---- */

static const char *meant(const char *name, const char *const *names)
{
    struct nearest nearest = nearest_to(name);
    for (; *names != NULL; names++)
        nearest_try(&nearest, *names, false);
    return nearest_found(&nearest);
}

static void a_slip_is_understood_and_a_guess_is_not_made(void **state)
{
    (void)state;
    static const char *const names[] = {"status", "start",     "stop", "join", "init",    "leave", "logs",
                                        "peers",  "fragments", "plan", "save", "overlap", NULL};
    static const char *const rows[][2] = {{"statsu", "status"},  {"stauts", "status"}, {"statu", "status"},
                                          {"STATUS", "status"},  {"sttop", "stop"},    {"jion", "join"},
                                          {"frag", "fragments"}, {"peer", "peers"},    {"ovrelap", "overlap"}};
    static const char *const strange[] = {"",
                                          "x",
                                          "zzz",
                                          "sta",
                                          "st",
                                          "pln2x",
                                          "a-name-that-is-like-none-of-them",
                                          "a-name-that-is-longer-than-any-name-that-anybody-would-give-to-anything-x"};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *found = meant(rows[i][0], names);
        if (found == NULL || strcmp(found, rows[i][1]) != 0)
            fail_msg("%s is taken for %s, not %s", rows[i][0], found != NULL ? found : "none", rows[i][1]);
    }
    for (size_t i = 0; i < sizeof strange / sizeof strange[0]; i++)
        if (meant(strange[i], names) != NULL)
            fail_msg("\"%s\" is taken for %s", strange[i], meant(strange[i], names));
    static const char *const alike[] = {"rank", "ranks", "tanks", NULL};
    assert_null(meant("banks", alike)); /* two are one slip away */
}

static void of_equally_near_names_the_unlikely_one_stands_back(void **state)
{
    (void)state;
    struct nearest nearest = nearest_to("wait");
    nearest_try(&nearest, "waits", true);
    nearest_try(&nearest, "await", false);
    assert_string_equal(nearest_found(&nearest), "await");
    nearest_try(&nearest, "await", false); /* the same name again is no other one */
    assert_string_equal(nearest_found(&nearest), "await");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_have_three_digits_and_a_unit),
        cmocka_unit_test(rates_have_three_digits_and_a_unit),
        cmocka_unit_test(counts_are_short),
        cmocka_unit_test(durations_have_two_units),
        cmocka_unit_test(a_slip_is_understood_and_a_guess_is_not_made),
        cmocka_unit_test(of_equally_near_names_the_unlikely_one_stands_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
