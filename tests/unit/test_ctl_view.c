/* SPDX-License-Identifier: Apache-2.0 */
/* ctl_view: what watch shows, from played answers, at several sizes; ctl_screen: text cut to a terminal's columns. */
#include "tests/lib/testlib.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ctl/ctl_screen.h"
#include "daemon/ctl/ctl_view.h"

static struct ctl_view *view;
static char *shown;
static uint64_t now_ms;

static int begin(void **state)
{
    (void)state;
    assert_ok(ctl_view_new(&view));
    now_ms = 1000000;
    return 0;
}

static int end(void **state)
{
    (void)state;
    ctl_view_free(view);
    free(shown);
    shown = NULL;
    return 0;
}

static json_t *parse(const char *text)
{
    json_error_t error;
    json_t *json = json_loads(text, 0, &error);
    if (json == NULL)
        fail_msg("%s in %s", error.text, text);
    return json;
}

static void take(const char *status, const char *peers, const char *fragments)
{
    json_t *parts[] = {parse(status), parse(peers), parse(fragments)};
    ctl_view_take(view, parts[0], parts[1], parts[2], now_ms);
    for (int i = 0; i < 3; i++)
        json_decref(parts[i]);
}

/* An island that is at this step, has sent so many bytes, and has this wrong with it. */
static void take_at(long long step, double loss, long long sent, const char *degraded, const char *waiting)
{
    char status[2000], peers[1000], fragments[600];
    snprintf(status, sizeof status,
             "{\"island\":\"paris\",\"run\":{\"name\":\"big\",\"steps\":2000},\"trainer\":{\"state\":\"training\","
             "\"step\":%lld,\"loss\":%f,\"tokens_per_s\":12345,\"machine\":{\"device\":\"CPU\",\"ranks\":2,"
             "\"memory_bytes\":1048576}},\"islands\":2,\"islands_up\":1,\"uptime_s\":8040,\"bytes_sent\":%lld,"
             "\"bytes_received\":0,\"version_min\":3,\"version_max\":4,\"degraded\":%s}",
             step, loss, sent, degraded);
    snprintf(peers, sizeof peers,
             "{\"peers\":[{\"name\":\"paris\",\"self\":true,\"up\":true,\"trainer\":\"training\",\"step\":%lld,"
             "\"loss\":2.5,\"tokens_per_s\":12345,\"uplink_bit_s\":1000000},{\"name\":\"oslo\",\"self\":false,"
             "\"up\":false,\"heard_s\":72.0,\"trainer\":\"training\",\"step\":7,\"loss\":2.5,\"tokens_per_s\":99,"
             "\"rtt_ms\":31,\"missed\":4,\"note\":\"a \\u001b[31mred note\"}]}",
             step);
    snprintf(fragments, sizeof fragments,
             "{\"fragments\":[{\"fragment\":0,\"version\":3,\"state\":\"contributed\",\"waiting_for\":[%s]},"
             "{\"fragment\":1,\"version\":4,\"state\":\"idle\",\"waiting_for\":[]}]}",
             waiting);
    take(status, peers, fragments);
}

static void show(struct ctl_view_look look)
{
    size_t bytes;
    free(shown);
    FILE *stream = open_memstream(&shown, &bytes);
    ctl_view_print(view, &look, now_ms, stream);
    fclose(stream);
    int lines = 0;
    for (const char *at = shown; *at != '\0'; at++) {
        lines += *at == '\n';
        assert_true(*at != '\033'); /* whatever others call themselves */
    }
    assert_int_equal(lines, look.rows);
}

static void assert_shows(const char *part)
{
    if (strstr(shown, part) == NULL)
        fail_msg("\"%s\" is not in:\n%s", part, shown);
}

static const struct ctl_view_look usual = {.rows = 30, .columns = 80, .utf8 = true, .interval_ms = 1000};

static void rates_time_left_and_the_lines_share_follow_from_two_answers(void **state)
{
    (void)state;
    take_at(1000, 2.5, 0, "[]", "");
    show(usual);
    assert_shows("50 %, ? left, step 1000 of 2000");
    now_ms += 10000;
    take_at(1040, 2.4, 125000, "[]", "");
    show(usual);
    assert_shows(" paris ");
    assert_shows("1 of 2 islands here, up 2 h 14 min");
    assert_shows("52 %, 4 min 0 s left, step 1040 of 2000");
    assert_shows("12.3k tokens/s");
    assert_shows(", 4 steps/s; all 12.3k tokens/s, 4 steps/s"); /* who is away adds nothing */
    assert_shows("out 100 kbit/s, 10 % of 1.00 Mbit/s; in 0 bit/s; sent 125 kB");
    assert_shows("2.4000");
    assert_shows("█▁"); /* it fell */
    assert_shows("machine    2 ranks on CPU, 1.00 MiB each");
    assert_shows("away 1 min 12 s");
    assert_shows("late: 4 rounds closed without it");
    assert_shows("a [31mred note");
    assert_shows("1 of 2 fragments under way, versions 3 to 4");
    now_ms += 1000;
    take_at(5, 2.4, 0, "[]", ""); /* started anew: nothing is compared with what was before */
    show(usual);
    assert_shows("0 %, ? left");
    struct ctl_view_look ascii = usual;
    ascii.utf8 = false;
    show(ascii);
    for (const char *at = shown; *at != '\0'; at++)
        assert_true((unsigned char)*at < 0x80);
}

static void it_says_since_when_a_round_waits_for_whom(void **state)
{
    (void)state;
    take_at(10, 2, 0, "[]", "\"oslo\"");
    now_ms += 2000;
    take_at(11, 2, 0, "[]", "\"oslo\"");
    show(usual);
    assert_null(strstr(shown, "rounds wait")); /* as all do for a moment */
    assert_shows("contributed  waits for oslo");
    now_ms += 70000;
    take_at(12, 2, 0, "[]", "\"oslo\"");
    show(usual);
    assert_shows("rounds wait for it, for 1 min 12 s; late: 4 rounds");
    take_at(13, 2, 0, "[]", "");
    now_ms += 1000;
    take_at(14, 2, 0, "[]", "\"oslo\"");
    show(usual);
    assert_null(strstr(shown, "rounds wait"));
}

static void complaints_and_remedies_are_whole_at_any_width(void **state)
{
    (void)state;
    static const char degraded[] =
        "[{\"code\":\"x\",\"what\":\"the first thing that is wrong has a long text, which needs more than one line\","
        "\"remedy\":\"and a remedy that does not fit in one either, unless the window is a wide one\"}]";
    take_at(10, 2, 0, degraded, "");
    for (int columns = 40; columns <= 200; columns += 40) {
        struct ctl_view_look look = usual;
        look.columns = columns;
        show(look);
        assert_shows("! the first thing that is wrong");
        assert_shows("-> and a remedy");
        /* the last words of both */
        assert_shows(" line" CTL_TEXT_PLAIN "\n");
        assert_shows(" one" CTL_TEXT_PLAIN "\n");
        for (const char *line = strstr(shown, "! the"); strncmp(line, CTL_TEXT_FAINT "1 of 2", 7) != 0;) {
            size_t bytes = strcspn(line, "\n");
            assert_true(bytes <= (size_t)columns + 2); /* and its looks */
            line += bytes + 1;
        }
    }
}

static void what_has_no_room_can_be_scrolled_to(void **state)
{
    (void)state;
    struct ctl_view_look look = {.rows = 10, .columns = 80, .utf8 = true, .interval_ms = 500, .first = -3};
    take_at(10, 2, 0, "[{\"code\":\"x\",\"what\":\"it is wrong\",\"remedy\":\"mend it\"}]", "");
    show(look);
    assert_shows("machine    2 ranks");
    assert_shows("q end   ? help   space now   every 500 ms   up, down: lines 1 to 4 of 12");
    assert_null(strstr(shown, "mend it"));
    look.first = 1000;
    show(look);
    assert_shows("lines 9 to 12 of 12");
    assert_shows("mend it");
    assert_shows("step 10 of 2000"); /* the head stays */
    for (look.rows = 1; look.rows < 8; look.rows++) {
        show(look);
        assert_shows("q end");
    }
    look = usual;
    look.help = true;
    show(look);
    assert_shows("q, Ctrl-C     end");
}

static void a_daemon_that_has_gone_is_said_above_what_was_seen_last(void **state)
{
    (void)state;
    take_at(10, 2, 0, "[]", "");
    now_ms += 8000;
    ctl_view_fail(view, "no daemon answers at /x/control.sock: Connection refused", now_ms);
    show(usual);
    assert_shows("no answer for 8 s, asked again:");
    assert_shows("Connection refused");
    assert_shows("step 10 of 2000");
    take_at(11, 2, 0, "[]", "");
    show(usual);
    assert_null(strstr(shown, "no answer"));
}

static void a_witness_trains_nothing(void **state)
{
    (void)state;
    take("{\"island\":\"w\",\"role\":\"witness\",\"degraded\":[]}", "{\"peers\":[]}", "{\"fragments\":[]}");
    show(usual);
    assert_shows("this is its witness");
    assert_null(strstr(shown, "loss  "));
}

/* What a daemon of another version may answer breaks nothing. */
static void an_answer_that_says_nothing_is_shown(void **state)
{
    (void)state;
    take("{}", "{}", "{}");
    show(usual);
    now_ms += 1000;
    take("{\"trainer\":{\"step\":\"x\"},\"degraded\":[3]}", "{\"peers\":[1,{}]}",
         "{\"fragments\":[null,{\"waiting_for\":[5]}]}");
    show(usual);
}

/* ---- ctl_screen ---- */

static void text_is_cut_by_columns_not_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        int columns;
        bool utf8, colours;
        const char *text;
        int width;
    } rows[] = {
        {"plain", 10, true, false, "plain", 5},
        {"plain", 3, true, false, "pla", 3},
        {"\u00e9t\u00e9", 2, true, false, "\u00e9t", 2},
        {"\u65e5\u672c", 3, true, false, "\u65e5", 2}, /* the second needs two columns */
        {"\u65e5\u672c", 4, true, false, "\u65e5\u672c", 4},
        {"e\u0301x", 1, true, false, "e\u0301", 1}, /* an accent that joins what stands before it */
        {"a\u2581b", 3, false, false, "a??", 3},
        {"a\xff\xfe", 5, true, false, "a??", 3}, /* no characters at all */
        {"a\tb\033[2J", 20, true, false, "a?b?[2J", 7},
        {CTL_TEXT_WARN "x" CTL_TEXT_PLAIN "y", 9, true, false, "xy", 2},
        {CTL_TEXT_BOLD "xyz", 2, true, true, "\033[1mxy\033[0m", 2},
        {"", 5, true, false, "", 0},
    };
    setlocale(LC_CTYPE, "C.UTF-8");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[100];
        int width = ctl_screen_clip(rows[i].line, strlen(rows[i].line), rows[i].columns, rows[i].utf8, rows[i].colours,
                                    text, sizeof text);
        if (strcmp(text, rows[i].text) != 0 || width != rows[i].width)
            fail_msg("\"%s\" in %d columns is \"%s\", %d", rows[i].line, rows[i].columns, text, width);
    }
    char tiny[4]; /* without a piece of a character */
    ctl_screen_clip("\u65e5\u672c", 6, 9, true, false, tiny, sizeof tiny);
    assert_string_equal(tiny, "\u65e5");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(rates_time_left_and_the_lines_share_follow_from_two_answers, begin, end),
        cmocka_unit_test_setup_teardown(it_says_since_when_a_round_waits_for_whom, begin, end),
        cmocka_unit_test_setup_teardown(complaints_and_remedies_are_whole_at_any_width, begin, end),
        cmocka_unit_test_setup_teardown(what_has_no_room_can_be_scrolled_to, begin, end),
        cmocka_unit_test_setup_teardown(a_daemon_that_has_gone_is_said_above_what_was_seen_last, begin, end),
        cmocka_unit_test_setup_teardown(a_witness_trains_nothing, begin, end),
        cmocka_unit_test_setup_teardown(an_answer_that_says_nothing_is_shown, begin, end),
        cmocka_unit_test(text_is_cut_by_columns_not_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
