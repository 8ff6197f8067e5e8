/* SPDX-License-Identifier: Apache-2.0 */
/* mixture: what a line says, what is refused and how, that it reads back, and a weight between two points. */
#include "tests/lib/testlib.h"

#include <math.h>
#include <string.h>

#include "common/mem.h"
#include "common/mixture.h"

static void a_path_is_what_it_was(void **state)
{
    (void)state;
    static const char *const paths[] = {"/srv/a.txt",  "book.txt", "/srv/my book: part 1.txt",
                                        "./web=a:0.5", "",         "/a=b:c"};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        struct mixture mixture;
        char *text;
        assert_false(mixture_is(paths[i]));
        assert_ok(mixture_parse(paths[i], NULL, &mixture));
        assert_ok(mixture_check(&mixture));
        assert_int_equal(mixture.count, 1);
        assert_string_equal(mixture.sources[0].name, "");
        assert_string_equal(mixture.sources[0].path, paths[i]);
        assert_ok(mixture_text(&mixture, " ", &text));
        assert_string_equal(text, paths[i]);
        mem_free(text);
        mixture_free(&mixture);
    }
}

static void sources_have_names_paths_and_weights(void **state)
{
    (void)state;
    struct mixture mixture;
    char *text;
    assert_ok(mixture_parse(" web=/srv/web-*.bin:0.7@0,0.5@10000  code='/srv/my code:x.bin':3", NULL, &mixture));
    assert_ok(mixture_check(&mixture));
    assert_int_equal(mixture.count, 2);
    assert_string_equal(mixture.sources[0].name, "web");
    assert_string_equal(mixture.sources[0].path, "/srv/web-*.bin");
    assert_int_equal(mixture.sources[0].points_count, 2);
    assert_int_equal(mixture.sources[0].points[1].step, 10000);
    assert_string_equal(mixture.sources[1].path, "/srv/my code:x.bin");
    assert_true(mixture.sources[1].points[0].weight == 3);
    assert_ok(mixture_text(&mixture, "\ndata = ", &text));
    assert_string_equal(text, "web=/srv/web-*.bin:0.7@0,0.5@10000\ndata = code=/srv/my\\ code:x.bin:3");
    mem_free(text);
    mixture_free(&mixture);
}

static void what_is_written_reads_back(void **state)
{
    (void)state;
    static const char line[] = "a=/x\\ y\\\\\\'\\\":0.1@5 b=z:1e-07 c=*:0.3333333333333333@1,0@2,7@999999999999";
    struct mixture mixture;
    char *first, *second;
    assert_ok(mixture_parse(line, NULL, &mixture));
    assert_ok(mixture_text(&mixture, " ", &first));
    assert_string_equal(first, line);
    mixture_free(&mixture);
    assert_ok(mixture_parse(first, NULL, &mixture));
    assert_ok(mixture_text(&mixture, " ", &second));
    assert_string_equal(first, second);
    mem_free(first);
    mem_free(second);
    mixture_free(&mixture);
}

static void relative_paths_are_of_the_folder(void **state)
{
    (void)state;
    struct mixture mixture;
    assert_ok(mixture_parse("a=web/*.bin:1 b=/srv/b:1", "/etc/diloco", &mixture));
    assert_string_equal(mixture.sources[0].path, "/etc/diloco/web/*.bin");
    assert_string_equal(mixture.sources[1].path, "/srv/b");
    mixture_free(&mixture);
    assert_ok(mixture_parse("book.txt", "/etc/diloco", &mixture));
    assert_string_equal(mixture.sources[0].path, "/etc/diloco/book.txt");
    mixture_free(&mixture);
}

static void a_weight_goes_straight_from_point_to_point(void **state)
{
    (void)state;
    struct mixture mixture;
    assert_ok(mixture_parse("a=x:0.5@100,0@200,0.25@300", NULL, &mixture));
    static const struct {
        uint64_t step;
        double weight;
    } want[] = {{0, 0.5}, {100, 0.5}, {150, 0.25}, {200, 0}, {240, 0.1}, {300, 0.25}, {1000000, 0.25}};
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++)
        assert_true(fabs(mixture_weight(&mixture.sources[0], want[i].step) - want[i].weight) < 1e-12);
    mixture_free(&mixture);
}

static void senseless_lines_are_refused_with_the_reason(void **state)
{
    (void)state;
    static const struct {
        const char *line, *part;
    } cases[] = {
        {"web=/a:0.7 code=/b", "source code: \"/b\" is not FILE:WEIGHT"},
        {"web=/a", "a file whose name begins with \"web=\" is written ./web="},
        {"web=:1", "source web: \":1\" is not FILE:WEIGHT"},
        {"web=/a:0.7 /b:0.3", "\"/b:0.3\" is no source of a mixture, as NAME=FILE:WEIGHT is"},
        {"web=/a:0.7 web=/b:0.3", "source web: there are two of this name"},
        {"web=/a:x", "source web: weight \"x\" is not a number"},
        {"web=/a:", "weight \"\" is not a number"},
        {"web=/a:-1", "weight \"-1\" is not a number"},
        {"web=/a:nan", "weight \"nan\" is not a number"},
        {"web=/a:inf", "weight \"inf\" is not a number"},
        {"web=/a:0x1", "weight \"0x1\" is not a number"},
        {"web=/a:.", "weight \".\" is not a number"},
        {"web=/a:1e10", "is not a number from 0 to 1e9"},
        {"web=/a:1%", "each needs a step of the run"},
        {"web=/a:0.7,0.5@100", "each needs a step of the run"},
        {"web=/a:0.7@0,0.5", "each needs a step of the run"},
        {"web=/a:0.7@,0.5@1", "each needs a step of the run"},
        {"web=/a:0.7@1e3", "each needs a step of the run"},
        {"web=/a:0.7@1000000000001", "each needs a step of the run up to 1e12"},
        {"web=/a:0.7@99999999999999999999", "each needs a step of the run up to 1e12"},
        {"web=/a:0.7@0,", "is not a number"},
        {"web=/a:0.7@5,0.6@5", "steps have to ascend"},
        {"web='/a:1", "without the one that ends it"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mixture mixture;
        assert_fails(ERR_CONF, cases[i].part, mixture_parse(cases[i].line, NULL, &mixture));
        assert_null(mixture.sources);
    }
}

static void there_is_a_limit_to_everything(void **state)
{
    (void)state;
    struct mixture mixture;
    char line[4000] = "";
    for (int i = 0; i < MIXTURE_SOURCES_MAX; i++)
        snprintf(line + strlen(line), sizeof line - strlen(line), "s%d=f:1 ", i);
    assert_ok(mixture_parse(line, NULL, &mixture));
    mixture_free(&mixture);
    strcat(line, "more=f:1");
    assert_fails(ERR_CONF, "33 sources; a mixture has at most 32", mixture_parse(line, NULL, &mixture));
    strcpy(line, "a=f:");
    for (int i = 0; i < MIXTURE_POINTS_MAX; i++)
        snprintf(line + strlen(line), sizeof line - strlen(line), "%s1@%d", i > 0 ? "," : "", i);
    assert_ok(mixture_parse(line, NULL, &mixture));
    mixture_free(&mixture);
    strcat(line, ",1@99");
    assert_fails(ERR_CONF, "source a: more than 32 weights", mixture_parse(line, NULL, &mixture));
    memset(line, 'n', 64);
    strcpy(line + 64, "=f:1");
    assert_fails(ERR_CONF, "a source's name has at most 63 letters", mixture_parse(line, NULL, &mixture));
}

static void nothing_to_draw_from_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *line, *part;
    } cases[] = {
        {"a=x:0", "all sources have weight 0 at step 0 of the run"},
        {"a=x:0 b=y:0", "weight 0 at step 0"},
        {"a=x:1@0,0@100 b=y:1@0,0@50,0@100,1@200", "weight 0 at step 100"},
        {"a=x:1@7,0@8", "weight 0 at step 8"},
        {"a=x:1@0,0@100 b=y:0@99,1@200", NULL}, /* never both at once */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mixture mixture;
        assert_ok(mixture_parse(cases[i].line, NULL, &mixture));
        if (cases[i].part != NULL)
            assert_fails(ERR_CONF, cases[i].part, mixture_check(&mixture));
        else
            assert_ok(mixture_check(&mixture));
        mixture_free(&mixture);
    }
}

static void out_of_memory_is_said(void **state)
{
    (void)state;
    for (long n = 0; n < 6; n++) {
        struct mixture mixture;
        mem_fail_after(n);
        enum err err = mixture_parse("a=x:1 b=y:1", "/srv", &mixture);
        mem_fail_after(-1);
        assert_int_equal(err, ERR_NOMEM);
        assert_null(mixture.sources);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_path_is_what_it_was),
        cmocka_unit_test(sources_have_names_paths_and_weights),
        cmocka_unit_test(what_is_written_reads_back),
        cmocka_unit_test(relative_paths_are_of_the_folder),
        cmocka_unit_test(a_weight_goes_straight_from_point_to_point),
        cmocka_unit_test(senseless_lines_are_refused_with_the_reason),
        cmocka_unit_test(there_is_a_limit_to_everything),
        cmocka_unit_test(nothing_to_draw_from_is_refused),
        cmocka_unit_test(out_of_memory_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
