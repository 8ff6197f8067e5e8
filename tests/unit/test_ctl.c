/* dilococtl's parts: asking a daemon that is played and does as it likes; and answers as people see them: everything is
 * there, and the tables fit a terminal. */
#include "tests/lib/testlib.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/ipc.h"
#include "daemon/ctl/ctl_client.h"
#include "daemon/ctl/ctl_plan.h"
#include "daemon/ctl/ctl_print.h"

enum { COLUMNS_MAX = 80 };

/* ---- a played daemon: one request, one answer, in pieces ---- */

static struct {
    int listener;
    const char *path, *answer;
    size_t answer_bytes, piece_bytes; /* of the answer; sent so many at a time */
    bool endless;                     /* and then on and on, without an end of line */
    char request[64];
} played;

static void read_request(int fd)
{
    size_t have = 0;
    memset(played.request, 0, sizeof played.request);
    while (have + 1 < sizeof played.request && memchr(played.request, '\n', have) == NULL) {
        ssize_t got = recv(fd, played.request + have, sizeof played.request - 1 - have, 0);
        if (got <= 0)
            return;
        have += (size_t)got;
    }
}

static bool send_all(int fd, const char *data, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        ssize_t put = send(fd, data + at, bytes - at, MSG_NOSIGNAL);
        if (put <= 0)
            return false;
        at += (size_t)put;
    }
    return true;
}

static void *serve(void *unused)
{
    static char nothing[1 << 16];
    int fd = accept(played.listener, NULL, NULL);
    read_request(fd);
    for (size_t at = 0; at < played.answer_bytes; at += played.piece_bytes) {
        size_t left = played.answer_bytes - at;
        if (!send_all(fd, played.answer + at, left < played.piece_bytes ? left : played.piece_bytes))
            break;
    }
    memset(nothing, ' ', sizeof nothing);
    while (played.endless && send_all(fd, nothing, sizeof nothing)) {
    }
    close(fd);
    return unused;
}

static enum err ask(const char *answer, size_t piece_bytes, json_t **json)
{
    pthread_t thread;
    played.answer = answer;
    played.answer_bytes = strlen(answer);
    played.piece_bytes = piece_bytes;
    assert_int_equal(pthread_create(&thread, NULL, serve, NULL), 0);
    enum err err = ctl_ask(played.path, "status", json);
    pthread_join(thread, NULL);
    assert_string_equal(played.request, "status\n");
    return err;
}

static int begin(void **state)
{
    (void)state;
    struct sockaddr_un address;
    played.path = testlib_path(testlib_folder("ctl"), "control.sock");
    played.endless = false;
    played.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_ok(ipc_address(played.path, &address));
    assert_int_equal(bind(played.listener, (const struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(played.listener, 4), 0);
    return 0;
}

static int end(void **state)
{
    (void)state;
    close(played.listener);
    return 0;
}

static void an_answer_in_any_pieces_is_one_answer(void **state)
{
    (void)state;
    static const size_t pieces[] = {1, 2, 7, 1000};
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        json_t *json;
        assert_ok(ask("{\"island\":\"a\",\"step\":12,\"loss\":1.5,\"list\":[1,2,3]}\n", pieces[i], &json));
        assert_string_equal(ctl_text(json, "island"), "a");
        assert_int_equal(ctl_integer(json, "step"), 12);
        assert_true(ctl_number(json, "loss") == 1.5 && ctl_number(json, "step") == 12);
        assert_int_equal(json_array_size(json_object_get(json, "list")), 3);
        json_decref(json);
    }
}

static void no_answer_or_half_of_one_is_a_daemon_that_has_gone(void **state)
{
    (void)state;
    json_t *json;
    assert_fails(ERR_CLOSED, "does not answer", ask("", 1, &json));
    assert_null(json);
    assert_fails(ERR_CLOSED, "does not answer", ask("{\"island\":\"a\"", 5, &json));
    assert_null(json);
}

static void an_answer_without_an_end_is_not_read_for_ever(void **state)
{
    (void)state;
    json_t *json;
    played.endless = true;
    assert_fails(ERR_PROTO, "longer than", ask("", 1, &json));
    assert_null(json);
}

static void what_is_no_json_is_said_to_be_none(void **state)
{
    (void)state;
    static const char *const answers[] = {"hello\n", "\n", "{\"island\":}\n", "{\"a\":1} {\"b\":2}\n",
                                          "{\"a\":\"\xff\"}\n"};
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        json_t *json;
        assert_fails(ERR_PROTO, "no JSON", ask(answers[i], 1000, &json));
        assert_null(json);
    }
}

static void an_error_in_the_answer_becomes_one(void **state)
{
    (void)state;
    json_t *json;
    assert_fails(ERR_STATE, "no trainer is running",
                 ask("{\"error\":\"no trainer is running\",\"code\":\"state\"}\n", 1000, &json));
    assert_null(json);
}

static void without_a_daemon_it_is_said_where_one_was_looked_for(void **state)
{
    (void)state;
    json_t *json;
    char path[200];
    assert_fails(ERR_CLOSED, "no daemon answers at no/such.sock", ctl_ask("no/such.sock", "status", &json));
    assert_null(json);
    memset(path, 'a', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    assert_fails(ERR_CONF, "a shorter folder", ctl_ask(path, "status", &json));
    assert_null(json);
}

static void what_is_not_there_is_empty_or_nothing(void **state)
{
    (void)state;
    json_t *json = json_pack("{s:s, s:i, s:n}", "text", "t", "number", 3, "null");
    assert_string_equal(ctl_text(json, "none"), "");
    assert_string_equal(ctl_text(json, "number"), "");
    assert_string_equal(ctl_text(json, "null"), "");
    assert_string_equal(ctl_text(NULL, "text"), "");
    assert_int_equal(ctl_integer(json, "none"), 0);
    assert_int_equal(ctl_integer(json, "text"), 0);
    assert_true(ctl_number(json, "null") == 0);
    json_decref(json);
}

static void bytes_are_written_for_people(void **state)
{
    (void)state;
    static const struct {
        double bytes;
        const char *text;
    } rows[] = {{0, "0 B"},        {999, "999 B"},      {1000, "1.0 kB"}, {12345, "12.3 kB"}, {123456, "123 kB"},
                {1.5e6, "1.5 MB"}, {9.99e9, "10.0 GB"}, {2e12, "2.0 TB"}, {3e15, "3.0 PB"},   {4e18, "4000 PB"}};
    char text[32];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_string_equal(ctl_bytes(rows[i].bytes, text, sizeof text), rows[i].text);
}

/* ---- answers as people see them ---- */

static char *printed; /* as last printed */

static void print(void (*how)(const json_t *, FILE *), const char *answer)
{
    size_t bytes;
    json_error_t error;
    json_t *json = json_loads(answer, 0, &error);
    if (json == NULL)
        fail_msg("%s", error.text);
    free(printed);
    FILE *stream = open_memstream(&printed, &bytes);
    how(json, stream);
    fclose(stream);
    json_decref(json);
}

static void assert_prints(const char *text)
{
    if (strstr(printed, text) == NULL)
        fail_msg("\"%s\" is not in:\n%s", text, printed);
}

static void assert_fits(size_t columns_max)
{
    for (const char *line = printed; *line != '\0';) {
        size_t columns = strcspn(line, "\n");
        if (columns > columns_max)
            fail_msg("%zu columns: %.*s", columns, (int)columns, line);
        line += columns + (line[columns] == '\n');
    }
}

#define STATUS(degraded, anchors, saved)                                                                  \
    "{\"island\":\"paris\",\"software\":\"diloco\",\"run\":{\"name\":\"big\",\"steps\":900,\"id\":\"x\"," \
    "\"interval\":30,\"overlap\":5,\"codec\":\"int8\",\"error_feedback\":false},"                         \
    "\"trainer\":{\"state\":\"training\",\"process\":\"running\",\"pid\":7,\"step\":123,\"tokens\":4567," \
    "\"loss\":2.345678,\"tokens_per_s\":890.4,\"lr\":0.1,\"grad_norm\":1,\"failures\":0},"                \
    "\"degraded\":" degraded ",\"uptime_s\":61.4,\"islands\":3,\"islands_up\":2,\"params\":1234567,"      \
    "\"fragments\":4,\"versions\":40,\"version_min\":9,\"version_max\":11,\"step\":120,"                  \
    "\"anchors\":" anchors ",\"bytes_sent\":1500000,\"bytes_received\":2500,"                             \
    "\"ledger_bytes\":12345,\"memory_bytes\":2000000000,\"saved\":" saved "}"

static void a_status_shows_everything_and_each_complaint_with_its_remedy(void **state)
{
    (void)state;
    print(ctl_print_status, STATUS("[]", "\"0123456789abcdef0123\"", "\"\""));
    assert_string_equal(printed,
                        "island     paris, 2 of 3 islands here, up 61 s\n"
                        "run        big, 1234567 parameters, each fragment every 30 steps, overlap 5, codec int8\n"
                        "trainer    training, step 123 of 900, loss 2.3457, 890 tokens/s, 4567 tokens\n"
                        "anchor     4 fragments at versions 9 to 11, step 120, hash 0123456789abcdef\n"
                        "traffic    sent 1.5 MB, received 2.5 kB; ledger 12.3 kB; memory 2.0 GB\n"
                        "degraded   no\n");
    print(ctl_print_status, STATUS("[{\"code\":\"away\",\"what\":\"one\",\"remedy\":\"first\"},"
                                   "{\"code\":\"disk\",\"what\":\"two\",\"remedy\":\"second\"}]",
                                   "null", "\"/x/anchor.safetensors\""));
    assert_prints("hash not known yet\n");
    assert_prints("saved      /x/anchor.safetensors\n");
    assert_prints("degraded   one\n           -> first\ndegraded   two\n           -> second\n");
    assert_null(strstr(printed, "degraded   no"));
}

#define PEER(name, self, up, trainer, note)                                                                     \
    "{\"name\":\"" name "\",\"public_key\":\"0123456789012345678901234567890123456789\",\"address\":"           \
    "\"host.example:7600\",\"uplink_bit_s\":1500000000,\"self\":" self ",\"up\":" up ",\"note\":\"" note        \
    "\",\"trainer\":\"" trainer "\",\"step\":1234567,\"tokens\":5,\"loss\":12.34567,\"tokens_per_s\":12345678," \
    "\"rtt_ms\":1234,\"heard_s\":0.5,\"bytes_sent\":123456789012,\"bytes_received\":999999,"                    \
    "\"unacknowledged\":0,\"outliers\":0,\"missed\":0}"

static void peers_are_a_table_of_eighty_columns_with_notes_below(void **state)
{
    (void)state;
    static const char *const states[] = {"none configured", "stopped", "starting",   "training", "finishing",
                                         "finished",        "leaving", "restarting", "none",     "failed"};
    print(ctl_print_peers, "{\"peers\":[" PEER("paris", "true", "true", "training", "") "," PEER(
                               "oslo", "false", "true", "finishing", "") "," PEER("a-long-name1", "false", "false",
                                                                                  "failed", "silent") "]}");
    assert_fits(COLUMNS_MAX);
    assert_prints("island       state trainer ");
    assert_prints("paris        self  training");
    assert_prints(" 1234567 12.3457 12345678       -        -        -\n"); /* there is no way to ourselves */
    assert_prints("oslo         up    finishing");
    assert_prints(" 1234567 12.3457 12345678 1234 ms   123 GB  1000 kB\n");
    assert_prints("a-long-name1 away  failed");
    assert_prints("\n             silent\n");
    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++) {
        char answer[1024], word[32];
        snprintf(answer, sizeof answer, "{\"peers\":[" PEER("a-long-name1", "true", "true", "%s", "") "]}", states[i]);
        print(ctl_print_peers, answer);
        assert_fits(COLUMNS_MAX);
        snprintf(word, sizeof word, " self  %.*s ", (int)strcspn(states[i], " "), states[i]);
        assert_prints(word);
    }
    print(ctl_print_peers, "{\"peers\":[]}");
    assert_fits(COLUMNS_MAX);
}

static void members_are_listed_with_all_that_configurations_must_agree_on(void **state)
{
    (void)state;
    print(ctl_print_members,
          "{\"peers\":[" PEER("paris", "true", "true", "training",
                              "") ",{\"name\":\"oslo\","
                                  "\"public_key\":\"k\",\"address\":\"\",\"uplink_bit_s\":10000000}]}");
    char row[200];
    snprintf(row, sizeof row, "%-12s %-40s %12s  %s\n", "paris", "0123456789012345678901234567890123456789",
             "1500 Mbit/s", "host.example:7600");
    assert_prints(row);
    snprintf(row, sizeof row, "%-12s %-40s %12s  %s\n", "oslo", "k", "10 Mbit/s", "-"); /* it dials */
    assert_prints(row);
}

static void fragments_are_a_table_with_whom_they_wait_for(void **state)
{
    (void)state;
    print(ctl_print_fragments,
          "{\"fragments\":[{\"fragment\":4095,\"params\":12345678901,\"tensors\":3,\"version\":12345678,\"newest\":"
          "12345679,\"state\":\"contributed\",\"hash\":\"0123456789abcdef0123456789abcdef\",\"owner\":\"collecting\","
          "\"round\":3,\"have\":[],\"waiting_for\":[\"paris\",\"oslo\"],\"feedback_cuts\":0},"
          "{\"fragment\":1,\"params\":2,\"tensors\":1,\"version\":3,\"newest\":4,\"state\":\"repair\",\"hash\":null,"
          "\"owner\":\"collecting\",\"round\":4,\"have\":[],\"waiting_for\":[],\"feedback_cuts\":0}]}");
    assert_prints("4095      12345678901 12345678 12345679  contributed  0123456789abcdef paris, oslo\n");
    assert_prints("1                   2        3        4  repair");
    assert_fits(COLUMNS_MAX + 3); /* the last column is as long as the names */
}

/* ---- a plan that makes no sense ---- */

static void a_plan_that_makes_no_sense_is_refused_with_the_reason(void **state)
{
    (void)state;
    static const struct ctl_plan good = {.params = 1e6,
                                         .step_s = 1,
                                         .layers = 4,
                                         .islands = 2,
                                         .interval = 100,
                                         .overlap = 1,
                                         .bandwidth = "1Mbit",
                                         .rtt_ms = 10};
    struct ctl_plan plan;
#define REFUSES(field, value, part)                   \
    do {                                              \
        plan = good;                                  \
        plan.field = value;                           \
        assert_fails(ERR_ARG, part, ctl_plan(&plan)); \
    } while (0)
    REFUSES(params, 0, "--params");
    REFUSES(step_s, 0, "--step-time");
    REFUSES(bandwidth, NULL, "--bandwidth");
    REFUSES(bandwidth, "fast", "is no rate");
    REFUSES(bandwidth, "-1Mbit", "is no rate");
    REFUSES(bandwidth, "1Mb", "is no rate");
    REFUSES(islands, 1, "--islands");
    REFUSES(islands, 1025, "--islands");
    REFUSES(layers, 0, "--layers");
    REFUSES(overlap, 101, "--overlap");
    REFUSES(interval, 0, "--overlap");
    REFUSES(loss, 0.95, "--loss");
    REFUSES(rtt_ms, -1, "--rtt");
}

int main(void)
{
    assert_ok(digest_init());
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_answer_in_any_pieces_is_one_answer, begin, end),
        cmocka_unit_test_setup_teardown(no_answer_or_half_of_one_is_a_daemon_that_has_gone, begin, end),
        cmocka_unit_test_setup_teardown(an_answer_without_an_end_is_not_read_for_ever, begin, end),
        cmocka_unit_test_setup_teardown(what_is_no_json_is_said_to_be_none, begin, end),
        cmocka_unit_test_setup_teardown(an_error_in_the_answer_becomes_one, begin, end),
        cmocka_unit_test(without_a_daemon_it_is_said_where_one_was_looked_for),
        cmocka_unit_test(what_is_not_there_is_empty_or_nothing),
        cmocka_unit_test(bytes_are_written_for_people),
        cmocka_unit_test(a_status_shows_everything_and_each_complaint_with_its_remedy),
        cmocka_unit_test(peers_are_a_table_of_eighty_columns_with_notes_below),
        cmocka_unit_test(members_are_listed_with_all_that_configurations_must_agree_on),
        cmocka_unit_test(fragments_are_a_table_with_whom_they_wait_for),
        cmocka_unit_test(a_plan_that_makes_no_sense_is_refused_with_the_reason),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(printed);
    return failed;
}
