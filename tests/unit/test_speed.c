/* SPDX-License-Identifier: Apache-2.0 */
/* speed: tokens by the time that goes by, whatever it goes by with; and that the training loop tells that one. */
#include "tests/lib/testlib.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/digest.h"
#include "common/runspec.h"
#include "worker/speed.h"
#include "worker/train.h"

enum { STEPS = 8, STEP_TOKENS = 2 * 16, PAUSE_MS = 30, TEXT_BYTES = 4096 };

/* ---- the count ---- */

static void assert_near(double got, double want)
{
    if (!(fabs(got / want - 1) < 0.02))
        fail_msg("%g tokens/s, expected %g", got, want);
}

static void an_even_pace_is_told_as_it_is(void **state)
{
    (void)state;
    struct speed speed = speed_init(1000);
    for (int i = 1; i <= 500; i++)
        assert_near(speed_count(&speed, 640, 1000 + 0.1 * i), 6400);
}

/* Fifty steps of 1 ms and one of 950 ms make 51 steps a second. The mean of their speeds would be nearly 1000 steps. */
static void quick_steps_do_not_hide_the_slow_ones(void **state)
{
    (void)state;
    struct speed speed = speed_init(0);
    double now_s = 0, told = 0;
    for (int i = 1; i <= 51 * 60; i++) {
        now_s += i % 51 == 0 ? 0.950 : 0.001;
        told = speed_count(&speed, 100, now_s);
    }
    if (!(fabs(told / 5100 - 1) < 0.1))
        fail_msg("%g tokens/s, expected some 5100", told);
}

static void another_pace_shows_within_seconds(void **state)
{
    (void)state;
    struct speed speed = speed_init(0);
    double now_s = 0, told = 0;
    for (int i = 0; i < 1000; i++)
        speed_count(&speed, 100, now_s += 0.1);
    told = speed_count(&speed, 100, now_s += 60); /* stood still */
    assert_true(told < 10);
    for (int i = 0; i < 400; i++)
        told = speed_count(&speed, 100, now_s += 0.1);
    assert_near(told, 1000);
}

static void a_clock_that_stands_still_divides_nothing_by_0(void **state)
{
    (void)state;
    struct speed speed = speed_init(5);
    assert_true(isfinite(speed_count(&speed, 100, 5)));
}

/* ---- the training loop ---- */

/* Asked between any two steps: so this is time that no step takes. */
static bool pause_between(void)
{
    struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000L};
    nanosleep(&pause, NULL);
    return false;
}

static double told_last(const char *path)
{
    static const char key[] = "\"tokens_per_s\":";
    char line[512];
    double told = -1;
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        const char *at = strstr(line, key);
        if (at != NULL)
            assert_int_equal(sscanf(at + strlen(key), "%lf", &told), 1);
    }
    fclose(file);
    return told;
}

static void what_goes_by_between_steps_counts(void **state)
{
    (void)state;
    char text[TEXT_BYTES];
    struct runspec spec;
    const char *folder = testlib_folder("speed");
    for (size_t i = 0; i + 1 < sizeof text; i++)
        text[i] = (char)('a' + i * i % 23);
    text[sizeof text - 1] = '\0';
    assert_ok(runspec_parse("[run]\nname = small\nsteps = 8\n[model]\nwidth = 16\nlayers = 1\nheads = 2\nff = 32\n"
                            "context = 16\n[train]\nbatch = 2\n",
                            "the small run", &spec));
    struct train_options options = {.spec = &spec,
                                    .data_path = testlib_file(folder, "corpus", "%s", text),
                                    .folder = testlib_path(folder, "out"),
                                    .device = "cpu",
                                    .threads = 1,
                                    .interrupted = pause_between};
    double begin_s = env_mono_s();
    assert_ok(train_run(&options));
    double all_s = env_mono_s() - begin_s;
    double told = told_last(testlib_path(options.folder, "train.jsonl"));
    if (!(told <= 1000.0 * STEP_TOKENS / PAUSE_MS))
        fail_msg("%g tokens/s; the pauses alone leave %g at most", told, 1000.0 * STEP_TOKENS / PAUSE_MS);
    if (!(told >= 0.5 * STEPS * STEP_TOKENS / all_s))
        fail_msg("%g tokens/s; even with all that came before it is %g", told, STEPS * STEP_TOKENS / all_s);
    runspec_deinit(&spec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_even_pace_is_told_as_it_is),
        cmocka_unit_test(quick_steps_do_not_hide_the_slow_ones),
        cmocka_unit_test(another_pace_shows_within_seconds),
        cmocka_unit_test(a_clock_that_stands_still_divides_nothing_by_0),
        cmocka_unit_test(what_goes_by_between_steps_counts),
    };
    if (digest_init() != ERR_OK)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
