/* SPDX-License-Identifier: Apache-2.0 */
/* conf: a table of keys, files, overrides; every refusal names file, line, key and remedy. */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/conf.h"
#include "common/fsio.h"
#include "common/mem.h"

struct sample {
    char *title, *path;
    bool flag;
    int64_t count;
    double ratio;
    int kind;
    uint64_t memory, rate, wait_ms;
    char *data;
};

static const char *const kinds[] = {"red", "green", NULL};
static const struct conf_key keys[] = {
    {"main", "title", CONF_STRING, offsetof(struct sample, title), NULL, 0, 0, NULL, NULL, "give the title."},
    {"main", "path", CONF_PATH, offsetof(struct sample, path), "", 0, 0, NULL, NULL, "A path."},
    {"main", "flag", CONF_BOOL, offsetof(struct sample, flag), "no", 0, 0, NULL, NULL, "A flag."},
    {"main", "count", CONF_INT, offsetof(struct sample, count), "7", 1, 100, NULL, "things", "A number."},
    {"extra", "ratio", CONF_REAL, offsetof(struct sample, ratio), "0.5", 0, 1, NULL, NULL, "A ratio."},
    {"extra", "kind", CONF_ENUM, offsetof(struct sample, kind), "red", 0, 0, kinds, NULL, "A kind."},
    {"extra", "memory", CONF_BYTES, offsetof(struct sample, memory), "1MiB", 0, 0, NULL, "B", "Memory."},
    {"extra", "rate", CONF_RATE, offsetof(struct sample, rate), "0", 0, 0, NULL, "bit/s", "A rate."},
    {"extra", "wait", CONF_DURATION, offsetof(struct sample, wait_ms), "2s", 0, 60e3, NULL, "ms", "A time."},
    {"extra", "data", CONF_MIXTURE, offsetof(struct sample, data), "", 0, 0, NULL, NULL, "A corpus."},
};
static const struct conf_schema schema = {.keys = keys,
                                          .keys_count = sizeof keys / sizeof keys[0],
                                          .struct_bytes = sizeof(struct sample),
                                          .gone_section = "peer",
                                          .gone_remedy = "no more of these; leave it out"};

static const char *folder;

static enum err load(const char *text, struct sample *sample)
{
    return conf_load(&schema, testlib_file(folder, "a.ini", "%s", text), NULL, 0, sample);
}

static char *read_text(const char *path)
{
    char *text;
    size_t bytes;
    assert_ok(fsio_read(path, 1 << 20, &text, &bytes));
    return text;
}

static void reads_every_type(void **state)
{
    (void)state;
    struct sample s;
    assert_ok(load("# comment\n[main]\n  title = hello there  ; remark\npath = data/x\nflag=on\ncount = 12\n"
                   "[extra]\nratio = 0.25\nkind = green\nmemory = 1.5 GiB\nrate = 10Mbit\nwait = 250ms\n",
                   &s));
    assert_string_equal(s.title, "hello there");
    assert_string_equal(s.path, testlib_path(folder, "data/x"));
    assert_true(s.flag);
    assert_int_equal(s.count, 12);
    assert_true(s.ratio == 0.25);
    assert_int_equal(s.kind, 1);
    assert_true(s.memory == 1610612736u);
    assert_true(s.rate == 10000000);
    assert_int_equal(s.wait_ms, 250);
    conf_deinit(&schema, &s);
}

static void printed_text_reads_back_the_same(void **state)
{
    (void)state;
    struct sample s;
    struct sample again;
    assert_ok(load("[main]\ntitle = t\n[extra]\nratio = 0.1\nwait = 45s\nmemory = 1000\tkB\nrate=1234bit\n", &s));
    for (int help = 0; help < 2; help++) {
        char *text = NULL;
        size_t bytes;
        FILE *stream = open_memstream(&text, &bytes);
        conf_print(&schema, &s, help == 1, stream);
        fclose(stream);
        assert_ok(load(text, &again));
        assert_int_equal(again.wait_ms, 45000);
        assert_true(again.ratio == s.ratio && again.memory == s.memory && again.rate == s.rate);
        conf_deinit(&schema, &again);
        free(text);
    }
    conf_deinit(&schema, &s);
}

static void only_the_keys_that_are_named_are_printed(void **state)
{
    (void)state;
    static const char *const some[] = {"extra.wait", "main.title", NULL};
    struct sample s;
    char *text = NULL;
    size_t bytes;
    assert_ok(load("[main]\ntitle = t\n", &s));
    FILE *stream = open_memstream(&text, &bytes);
    conf_print_some(&schema, &s, some, stream);
    fclose(stream);
    assert_string_equal(text,
                        "[main]\n# Give the title.\n# Must be given.\ntitle = t\n\n"
                        "[extra]\n# A time.\n# Units: ms, min, s, h. Range: 0 .. 1min. Default: 2s.\nwait = 2s\n\n");
    free(text);
    conf_deinit(&schema, &s);
}

struct refusal {
    const char *text, *part;
};

static void refusals_name_line_key_and_remedy(void **state)
{
    (void)state;
    static const struct refusal refusals[] = {
        {"[main]\ntitle = x\ncuont = 3\n", "a.ini:3: [main] cuont: no such key; did you mean [main] count?"},
        {"[main]\ntitle = x\na_key_with_a_name_of_far_more_characters_than_any_key_of_any_table_could_have = 1\n",
         "a.ini:3: [main] a_key_with_a_name_of_far_more_characters...: no such key"},
        {"[main]\ntitle = x\nqqqq = 1\n", "a.ini:3: [main] qqqq: no such key; there are: title, "},
        {"[qqqq]\ntitle = x\n", "a.ini:2: [qqqq]: no such section; there are: [main], [extra]"},
        {"[main]\ntitle = x\nkind = red\n", "did you mean [extra] kind?"},
        {"[mian]\ntitle = x\n", "a.ini:2: [mian]: no such section; did you mean [main]?"},
        {"[main]\ntitle = x\ncount = many\n", "a.ini:3: [main] count: \"many\" is not a whole number of things"},
        {"[main]\ntitle = x\ncount = 101\n", "101 is outside 1 .. 100 things"},
        {"[main]\ntitle = x\ncount = 1\ncount = 2\n", "a.ini:4: [main] count: given twice, first on line 3"},
        {"[main]\nflag = maybe\n", "neither yes nor no"},
        {"[main]\ncount = 3\n", "[main] title: missing; give the title."},
        {"[extra]\nkind = blue\n", "\"blue\" is not one of red, green"},
        {"[extra]\nmemory = 12\n", "\"12\" has no unit; write one of KiB, MiB, GiB, kB, MB, GB, B after it"},
        {"[extra]\nrate = 12 MB\n", "unknown unit \"MB\"; use one of kbit, Mbit, Gbit, bit"},
        {"[extra]\nwait = 2min\n", "outside 0 .. 60000 ms"},
        {"[extra]\nratio = nan\n", "is not a number"},
        {"[extra]\nratio = 1e400\n", "is not a number"},
        {"[main]\ntitle\n", "a.ini:2: expected [section] or key = value"},
        {"[main]\ntitle = x\n[peer]\naddress = y\n", "a.ini:4: [peer]: no more of these; leave it out"},
        {"[main]\ntitle = x\n[peer a]\nuplink = 1bit\n", "a.ini:4: [peer a]: no more of these; leave it out"},
        {"title = x\n[main]\n", "a.ini:1: title: it stands in no section; put one of these before it: [main], [extra]"},
        {"[main]\ntitle = x\n[peers]\na = b\n", "a.ini:4: [peers]: no such section; there are: [main], [extra]"},
    };
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        struct sample s;
        assert_fails(ERR_CONF, refusals[i].part, load(refusals[i].text, &s));
    }
    struct sample s;
    assert_fails(ERR_CONF, "nowhere.ini: cannot open", conf_load(&schema, "nowhere.ini", NULL, 0, &s));
}

/* A file that a power cut left with zeros in it, or another one: what stands before them is not all. */
static void a_file_with_bytes_that_are_no_text_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
        size_t bytes;
    } files[] = {
        {"[main]\ntitle = x\0\0\0\0", "a.ini:2: a byte that is no text (0x00); this file is damaged", 20},
        {"[main]\ntitle = x\n\0\0\0\n", "a.ini:3: a byte that is no text (0x00)", 21},
        {"\177ELF\2\1\n[main]\n", "a.ini:1: a byte that is no text (0x7f)", 14},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        struct sample s;
        FILE *file = fopen(testlib_path(folder, "a.ini"), "we");
        assert_non_null(file);
        assert_int_equal(fwrite(files[i].text, 1, files[i].bytes, file), files[i].bytes);
        assert_int_equal(fclose(file), 0);
        assert_fails(ERR_CONF, files[i].part, conf_load(&schema, testlib_path(folder, "a.ini"), NULL, 0, &s));
    }
    struct sample s;
    /* Letters of any language are text. */
    assert_ok(load("# \xc3\xa9t\xc3\xa9\r\n[main]\r\n\ttitle = \xc3\xa9\t\r\n", &s));
    assert_string_equal(s.title, "\xc3\xa9");
    conf_deinit(&schema, &s);
}

/* inih's end at 198 bytes: a command line, or a comment, may be longer. */
static void long_lines_are_whole(void **state)
{
    (void)state;
    enum { LONG = 5000 };
    static char text[3 * LONG + 100], want[LONG + 20];
    struct sample s;
    memset(want, 'x', LONG);
    snprintf(want + LONG, sizeof want - LONG, " ;y = z # %s", "u");
    char *behind = strchr(want, ';');
    snprintf(text, sizeof text, "; %s\n[main]\n  # %s\n\ttitle \t= \t%s \t; %s\ncount = 7\n", want, want, want, "c");
    assert_ok(load(text, &s));
    *(behind - 1) = '\0'; /* a comment begins after a space, as in short lines */
    assert_string_equal(s.title, want);
    assert_int_equal(s.count, 7);
    conf_deinit(&schema, &s);
    memset(want, 'x', LONG);
    snprintf(want + LONG, sizeof want - LONG, ";y=z # u");
    snprintf(text, sizeof text, "[main]\ntitle:;%s", want); /* the file's last line has no end */
    assert_ok(load(text, &s));
    assert_int_equal(s.title[0], ';');
    assert_string_equal(s.title + 1, want);
    conf_deinit(&schema, &s);
}

static void lines_without_end_are_refused_not_cut(void **state)
{
    (void)state;
    static char text[10000];
    struct sample s;
    static const struct {
        const char *before, *after, *part;
        int bytes;
    } refusals[] = {
        {"[main]\ntitle = ", "\n", "a.ini:2: the line is longer than 8190 bytes; shorten it", 9000},
        {"[main]\ntitle = ", "", "a.ini:2: the line is longer than 8190 bytes; shorten it", 9000},
        {"[", "]\ntitle = y\n", "a.ini:1: the line is longer than 198 bytes; shorten it", 1000},
        {"[main]\n", " = y\n", "a.ini:2: the line is longer than 198 bytes; shorten it", 1000},
        {"[main]\n", "\n", "a.ini:2: the line is longer than 198 bytes; shorten it", 1000},
    };
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        int head = snprintf(text, sizeof text, "%s", refusals[i].before);
        memset(text + head, 'x', (size_t)refusals[i].bytes);
        strcpy(text + head + refusals[i].bytes, refusals[i].after);
        assert_fails(ERR_CONF, refusals[i].part, load(text, &s));
    }
}

static void a_mixture_may_stand_in_several_lines(void **state)
{
    (void)state;
    struct sample s, again;
    char want[4000];
    assert_ok(load("[main]\ntitle = x\n[extra]\ndata = web=w*.bin:0.7@0,0.5@9\ndata = a=/a:1 b='/my b':2\n", &s));
    snprintf(want, sizeof want, "web=%s/w*.bin:0.7@0,0.5@9 a=/a:1 b=/my\\ b:2", folder);
    assert_string_equal(s.data, want);
    FILE *file = fopen(testlib_path(folder, "printed.ini"), "w");
    conf_print(&schema, &s, true, file);
    fclose(file);
    char *text = read_text(testlib_path(folder, "printed.ini"));
    assert_ok(conf_parse(&schema, text, "printed", &again));
    assert_string_equal(again.data, want);
    conf_deinit(&schema, &again);
    conf_deinit(&schema, &s);
    assert_non_null(strstr(text, "w*.bin:0.7@0,0.5@9\ndata = a=/a:1\ndata = b=/my\\ b:2\n"));
    mem_free(text);
    static const struct {
        const char *lines, *part;
    } refusals[] = {
        {"data = web=w:1\ndata = book.txt\n", "a.ini:5: [extra] data: given twice, first on line 4"},
        {"data = book.txt\ndata = web=w:1\n", "a.ini:5: [extra] data: given twice, first on line 4"},
    };
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        snprintf(want, sizeof want, "[main]\ntitle = x\n[extra]\n%s", refusals[i].lines);
        assert_fails(ERR_CONF, refusals[i].part, load(want, &s));
    }
    assert_ok(load("[main]\ntitle = x\n[extra]\ndata = sleep=40\ndata = b=y:x\n", &s)); /* whatever that is */
    assert_string_equal(s.data, "sleep=40 b=y:x");
    conf_deinit(&schema, &s);
    const struct conf_override other[] = {{"extra.data=b=/b:1"}}; /* in place of all of them */
    assert_ok(
        conf_load(&schema, testlib_file(folder, "o.ini", "[main]\ntitle = x\n[extra]\ndata = a=/a:1\n"), other, 1, &s));
    assert_string_equal(s.data, "b=/b:1");
    conf_deinit(&schema, &s);
}

static void overrides_win_and_are_checked(void **state)
{
    (void)state;
    struct sample s;
    const char *path = testlib_file(folder, "o.ini", "[main]\ntitle = x\ncount = 5\n");
    const struct conf_override good[] = {{"main.count=9"}, {"main.path=rel"}};
    assert_ok(conf_load(&schema, path, good, 2, &s));
    assert_int_equal(s.count, 9);
    assert_string_equal(s.path, "rel");
    conf_deinit(&schema, &s);
    const struct conf_override bad[] = {{"main.count=many"}};
    assert_fails(ERR_CONF, "--set: [main] count", conf_load(&schema, path, bad, 1, &s));
    const struct conf_override worse[] = {{"count"}};
    assert_fails(ERR_ARG, "expected section.key=value", conf_load(&schema, path, worse, 1, &s));
}

static void every_failing_allocation_is_survived(void **state)
{
    (void)state;
    const char *path = testlib_file(folder, "m.ini", "[main]\ntitle = x\npath = y\n");
    long n = 0;
    for (;; n++) {
        struct sample s;
        mem_fail_after(n);
        enum err err = conf_load(&schema, path, NULL, 0, &s);
        mem_fail_after(-1);
        if (err == ERR_OK) {
            conf_deinit(&schema, &s);
            break;
        }
        assert_int_equal(err, ERR_NOMEM);
    }
    assert_true(n > 8);
}

int main(void)
{
    folder = testlib_folder("conf");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_every_type),
        cmocka_unit_test(printed_text_reads_back_the_same),
        cmocka_unit_test(only_the_keys_that_are_named_are_printed),
        cmocka_unit_test(refusals_name_line_key_and_remedy),
        cmocka_unit_test(a_file_with_bytes_that_are_no_text_is_refused),
        cmocka_unit_test(long_lines_are_whole),
        cmocka_unit_test(lines_without_end_are_refused_not_cut),
        cmocka_unit_test(a_mixture_may_stand_in_several_lines),
        cmocka_unit_test(overrides_win_and_are_checked),
        cmocka_unit_test(every_failing_allocation_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
