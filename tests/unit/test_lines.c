/* SPDX-License-Identifier: Apache-2.0 */
/* lines: what a program prints becomes lines for a log, whole, few and short; spool: by way of a file that outlives
 * both. Time is the test's. */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/fsio.h"
#include "common/mem.h"
#include "daemon/trainer/lines.h"
#include "daemon/trainer/spool.h"

static struct lines *lines;
static char said[1 << 20]; /* "LEVEL text\n" each */
static uint64_t now_ms;

static void hear(void *user, enum log_level level, const char *text)
{
    (void)user;
    size_t at = strlen(said);
    snprintf(said + at, sizeof said - at, "%d %s\n", (int)level, text);
}

static int begin(void **state)
{
    (void)state;
    assert_ok(lines_new(hear, NULL, &lines));
    now_ms = 1000000;
    said[0] = '\0';
    return 0;
}

static int end(void **state)
{
    (void)state;
    lines_free(lines);
    return 0;
}

static void take(const char *text)
{
    lines_take(lines, text, strlen(text), now_ms);
}

/* All that was said since, whose levels are as usual unless they are written. */
static void assert_said(const char *text)
{
    if (strcmp(said, text) != 0)
        fail_msg("it said:\n%s\nnot:\n%s", said, text);
    said[0] = '\0';
}

static void lines_are_whole_in_whatever_pieces_they_come(void **state)
{
    (void)state;
    static const char text[] = "one\ntwo words\r\n\nthr\xc3\xa9"
                               "e\t!\n";
    for (size_t piece = 1; piece < sizeof text; piece++) {
        for (size_t at = 0; at < sizeof text - 1; at += piece)
            lines_take(lines, text + at, piece < sizeof text - 1 - at ? piece : sizeof text - 1 - at, now_ms);
        assert_int_equal(lines_unfinished(lines), 0);
        assert_said("2 one\n2 two words\n2 \n2 thr\xc3\xa9"
                    "e !\n");
        now_ms += 60000;
    }
    take("half");
    assert_int_equal(lines_unfinished(lines), 4);
    lines_tick(lines, now_ms + 60000);
    assert_said("");
    take(" and half\n");
    assert_said("2 half and half\n");
    take("the end");
    lines_end(lines, now_ms);
    assert_said("2 the end\n");
}

static void what_steers_a_terminal_is_taken_out_and_priorities_are_heeded(void **state)
{
    (void)state;
    take("\033[1;31mred\033[0m \033]0;title\a\033(plain\x01\x7f\n<3>bad\n<4>odd\n<6>well\n<7>small\n<9>none\n<3\n");
    assert_said("2 red plain\n0 bad\n1 odd\n2 well\n3 small\n2 <9>none\n2 <3\n");
}

static void a_long_line_is_cut_between_characters(void **state)
{
    (void)state;
    char text[3000], want[600];
    memset(text, 'x', sizeof text);
    memcpy(text + LINES_BYTES - 1, "\xc3\xa9", 2); /* half of it has room */
    strcpy(text + 1999, "\nnext\n");
    take(text);
    snprintf(want, sizeof want, "2 %.*s... (and 1.60 kB more)\n2 next\n", LINES_BYTES - 1, text);
    assert_said(want);
}

/* Numbered lines. */
static void flood(int from, int to)
{
    for (int i = from; i < to; i++) {
        char text[32];
        snprintf(text, sizeof text, "line %d\n", i);
        take(text);
    }
}

static int count_said(void)
{
    int count = 0;
    for (const char *c = said; *c != '\0'; c++)
        count += *c == '\n';
    return count;
}

static void of_a_flood_a_burst_passes_and_the_rest_is_counted(void **state)
{
    (void)state;
    flood(0, 5000);
    assert_int_equal(count_said(), LINES_BURST);
    said[0] = '\0';
    now_ms += 1000;
    take("after a second\n");
    assert_said("1 (4800 lines are left out: 20 a second are logged)\n2 after a second\n");
    for (int s = 0; s < 100; s++) { /* and so on */
        flood(0, 1000);
        now_ms += 1000;
    }
    assert_in_range(count_said(), 100 * LINES_A_SECOND - 40, 100 * (LINES_A_SECOND + 1) + 40);
}

static void the_last_words_of_one_that_floods_are_heard(void **state)
{
    (void)state;
    flood(0, 5000);
    said[0] = '\0';
    take("Traceback\n");
    lines_end(lines, now_ms);
    assert_int_equal(count_said(), 1 + LINES_KEPT);
    assert_non_null(strstr(said, "1 (4781 lines are left out"));
    assert_non_null(strstr(said, "2 line 4999\n2 Traceback\n"));
    said[0] = '\0';
    flood(0, 10); /* the next trainer begins anew */
    assert_int_equal(count_said(), 10);
}

static void of_a_progress_bar_the_newest_state_passes_now_and_then(void **state)
{
    (void)state;
    for (int i = 0; i < 1000; i++) {
        char text[32];
        snprintf(text, sizeof text, "\r %d of 1000", i);
        take(text);
        now_ms += 100;
    }
    assert_in_range(count_said(), 100000 / LINES_STATE_MS - 1, 100000 / LINES_STATE_MS + 1);
    assert_non_null(strstr(said, "2  0 of 1000\n2  50 of 1000\n2  100 of 1000\n"));
    said[0] = '\0';
    take("\r done\nand on\n");
    assert_said("2  done\n2 and on\n");
    lines_tick(lines, now_ms + 60000); /* the state before is no news */
    assert_said("");
    take("a\rb\rc");
    lines_end(lines, now_ms);
    assert_said("2 c\n");
}

/* ---- spool ---- */

static const char *folder, *log_path;
static struct spool *spool;
static int writer;

/* What the log says from here on goes into a file. */
static int divert(void)
{
    fflush(NULL);
    int before = dup(STDERR_FILENO);
    unlink(log_path);
    FILE *to = fopen(log_path, "ae");
    dup2(fileno(to), STDERR_FILENO);
    fclose(to);
    return before;
}

static void restore(int before)
{
    dup2(before, STDERR_FILENO);
    close(before);
}

/* A tick, and how often its log says this. */
static int logs(const char *part, bool ended)
{
    char *text;
    size_t bytes;
    int count = 0, before = divert();
    now_ms += 1000;
    if (ended)
        spool_end(spool, now_ms);
    else
        spool_tick(spool, now_ms);
    restore(before);
    assert_ok(fsio_read(log_path, 8 << 20, &text, &bytes));
    for (const char *at = text; (at = strstr(at, part)) != NULL; at += strlen(part))
        count++;
    mem_free(text);
    return count;
}

static int begin_spool(void **state)
{
    (void)state;
    folder = testlib_folder("spool");
    log_path = testlib_path(folder, "said");
    now_ms = 1000000;
    assert_ok(spool_new(folder, &spool));
    writer = spool_open(spool);
    assert_true(writer >= 0);
    return 0;
}

static int end_spool(void **state)
{
    (void)state;
    close(writer);
    spool_free(spool);
    testlib_clear(folder);
    return 0;
}

static void print(const char *text)
{
    assert_int_equal(write(writer, text, strlen(text)), strlen(text));
}

static void what_is_printed_is_logged_once(void **state)
{
    (void)state;
    print("one\ntwo\nhalf");
    assert_int_equal(logs("info: trainer: two\n", false), 1);
    assert_int_equal(logs("trainer: ", false), 0);
    print(" of it\n");
    assert_int_equal(logs("trainer: half of it\n", false), 1);
    print("last");
    assert_int_equal(logs("trainer: last\n", true), 1);
    assert_int_equal(logs("trainer: ", true), 0);
}

/* A daemon that was killed has not said goodbye to its spool; the trainer prints on meanwhile. */
static void the_next_daemon_goes_on_where_the_last_one_stopped(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        char text[6000];
        memset(text, 'x', sizeof text); /* over borders of blocks */
        snprintf(text, 32, "old %d\n", i);
        strcpy(text + 5990, "\nhalf");
        text[6] = 'x';
        print(text);
        assert_int_equal(logs("old ", false), 1);
        struct spool *killed = spool;
        assert_ok(spool_new(folder, &spool));
        print(" a line\nnew\n");
        int before = divert();
        spool_tick(spool, now_ms + 1000);
        restore(before);
        char *said_now;
        size_t bytes;
        assert_ok(fsio_read(log_path, 1 << 20, &said_now, &bytes));
        assert_null(strstr(said_now, "old"));
        assert_non_null(strstr(said_now, "trainer: half a line\n"));
        assert_non_null(strstr(said_now, "trainer: new\n"));
        mem_free(said_now);
        spool_free(killed);
    }
}

static void what_was_logged_takes_no_room(void **state)
{
    (void)state;
    static char much[1 << 20];
    struct stat status;
    memset(much, 'x', sizeof much - 1);
    for (size_t i = 99; i < sizeof much - 1; i += 100)
        much[i] = '\n';
    much[sizeof much - 2] = '\n';
    for (int i = 0; i < 80; i++) { /* and over the border at which the file is made short */
        print(much);
        logs("x", false);
    }
    assert_int_equal(stat(testlib_path(folder, "trainer.log"), &status), 0);
    assert_true(status.st_size < 70 << 20);
    assert_true(status.st_blocks * 512 < 4 << 20);
    print("\nafter all that\n");
    assert_int_equal(logs("trainer: after all that\n", true), 1);
}

static void what_nobody_could_read_is_left_out_and_said(void **state)
{
    (void)state;
    static char much[8 << 20];
    memset(much, 'x', sizeof much - 1);
    for (size_t i = 99; i < sizeof much - 1; i += 100)
        much[i] = '\n';
    print("begun");
    assert_int_equal(logs("begun", false), 0);
    print(much);
    print("\nthe end\n");
    int before = divert();
    spool_tick(spool, now_ms += 1000);
    restore(before);
    char *text;
    size_t bytes;
    assert_ok(fsio_read(log_path, 8 << 20, &text, &bytes));
    assert_non_null(strstr(text, "are left out: it printed them faster"));
    assert_null(strstr(text, "begun")); /* its end is not here */
    mem_free(text);
    now_ms += 60000;
    print("and on\n");
    assert_int_equal(logs("trainer: and on\n", false), 1);
}

static void without_a_file_the_output_goes_where_ours_goes(void **state)
{
    (void)state;
    spool_free(spool);
    assert_ok(spool_new("no/such/folder", &spool));
    assert_int_equal(spool_open(spool), -1);
    spool_tick(spool, now_ms);
    spool_end(spool, now_ms);
}

int main(void)
{
    log_init("test", LOG_LEVEL_INFO);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(lines_are_whole_in_whatever_pieces_they_come, begin, end),
        cmocka_unit_test_setup_teardown(what_steers_a_terminal_is_taken_out_and_priorities_are_heeded, begin, end),
        cmocka_unit_test_setup_teardown(a_long_line_is_cut_between_characters, begin, end),
        cmocka_unit_test_setup_teardown(of_a_flood_a_burst_passes_and_the_rest_is_counted, begin, end),
        cmocka_unit_test_setup_teardown(the_last_words_of_one_that_floods_are_heard, begin, end),
        cmocka_unit_test_setup_teardown(of_a_progress_bar_the_newest_state_passes_now_and_then, begin, end),
        cmocka_unit_test_setup_teardown(what_is_printed_is_logged_once, begin_spool, end_spool),
        cmocka_unit_test_setup_teardown(the_next_daemon_goes_on_where_the_last_one_stopped, begin_spool, end_spool),
        cmocka_unit_test_setup_teardown(what_was_logged_takes_no_room, begin_spool, end_spool),
        cmocka_unit_test_setup_teardown(what_nobody_could_read_is_left_out_and_said, begin_spool, end_spool),
        cmocka_unit_test_setup_teardown(without_a_file_the_output_goes_where_ours_goes, begin_spool, end_spool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
