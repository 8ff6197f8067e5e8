/* SPDX-License-Identifier: Apache-2.0 */
/* plot: decades have names, the line one asked for is marked, and the legend covers no curve. */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/fsio.h"
#include "common/mem.h"
#include "common/plot.h"

static const char *tick(double x, char *text, size_t text_bytes)
{
    snprintf(text, text_bytes, "<%g>", x);
    return text;
}

static char *drawn(const struct plot *plot)
{
    const char *path = testlib_path(testlib_folder("plot"), "p.svg");
    char *text;
    size_t bytes;
    assert_true(plot_write(plot, path));
    assert_ok(fsio_read(path, 1 << 20, &text, &bytes));
    return text;
}

static const double x[] = {1e6, 1e7, 1e8, 1e9}, y[] = {0, 10, 50, 100};

static void decades_are_named_and_the_line_is_marked(void **state)
{
    (void)state;
    struct plot plot = {.title = "t", .subtitle = "s", .x_label = "x", .y_label = "y", .series_count = 1};
    plot.series[0] = (struct plot_series){.name = "one", .color = "#123", .x = x, .y = y, .count = 4, .width = 2};
    plot.x_tick = tick;
    plot.x_mark = 3e7;
    plot.x_mark_name = "ours";
    char *text = drawn(&plot);
    for (double at = 1e6; at < 2e9; at *= 10) {
        char name[32];
        assert_non_null(strstr(text, tick(at, name, sizeof name)));
    }
    assert_null(strstr(text, "<2e+06>"));
    assert_non_null(strstr(text, ">ours</text>"));
    mem_free(text);
    plot.x_mark_name = NULL;
    plot.x_tick = NULL;
    text = drawn(&plot);
    assert_null(strstr(text, "ours"));
    mem_free(text);
}

/* The last point of a curve lies left of where the legend begins. */
static void the_legend_stands_beside_the_curves(void **state)
{
    (void)state;
    struct plot plot = {.title = "t", .subtitle = "s", .x_label = "x", .y_label = "y", .series_count = 1};
    plot.series[0] = (struct plot_series){.color = "#123", .x = x, .y = y, .count = 4, .width = 2};
    char *alone = drawn(&plot);
    plot.series[0].name = "one";
    char *named = drawn(&plot);
    const char *points = strstr(named, "points='"), *legend = strstr(named, "width='16'");
    assert_true(points != NULL && legend != NULL);
    const char *last = strstr(points, "'/>");
    while (last[-1] == ' ')
        last--;
    while (last[-1] != ' ')
        last--;
    while (strncmp(legend, "x='", 3) != 0)
        legend--;
    assert_true(strtod(last, NULL) < strtod(legend + 3, NULL));
    assert_null(strstr(alone, "width='16'"));
    mem_free(alone);
    mem_free(named);
}

/* The picture is as wide as its longest name needs: a letter of 13 pixels is about 7 wide. */
static void the_legend_is_not_cut_off(void **state)
{
    (void)state;
    static const char *const names[] = {"one", "a name that is longer than those that are usual, by far"};
    for (size_t k = 0; k < 2; k++) {
        struct plot plot = {.title = "t", .subtitle = "s", .x_label = "x", .y_label = "y", .series_count = 1};
        plot.series[0] =
            (struct plot_series){.name = names[k], .color = "#123", .x = x, .y = y, .count = 4, .width = 2};
        char *text = drawn(&plot);
        const char *width = strstr(text, "width='"), *name = strstr(text, names[k]);
        assert_true(width != NULL && name != NULL);
        while (strncmp(name, "x='", 3) != 0)
            name--;
        assert_true(strtod(width + 7, NULL) >= strtod(name + 3, NULL) + 7 * (double)strlen(names[k]));
        mem_free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decades_are_named_and_the_line_is_marked),
        cmocka_unit_test(the_legend_stands_beside_the_curves),
        cmocka_unit_test(the_legend_is_not_cut_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
