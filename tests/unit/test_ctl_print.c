/* SPDX-License-Identifier: Apache-2.0 */
/* ctl_print: answers as people see them: everything is there, and the tables fit a terminal. */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ctl/ctl_print.h"

enum { COLUMNS_MAX = 80 };

static char *printed; /* as last printed */

static struct ctl_text_look look; /* as on a pipe, unless a test says so */

static void print(void (*how)(const json_t *, const struct ctl_text_look *, FILE *), const char *answer)
{
    size_t bytes;
    json_error_t error;
    json_t *json = json_loads(answer, 0, &error);
    if (json == NULL)
        fail_msg("%s", error.text);
    free(printed);
    FILE *stream = open_memstream(&printed, &bytes);
    how(json, &look, stream);
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

#define STATUS(degraded, anchors, saved)                                                                           \
    "{\"island\":\"paris\",\"software\":\"diloco\",\"run\":{\"name\":\"big\",\"steps\":900,\"id\":\"x\","          \
    "\"interval\":30,\"overlap\":5,\"codec\":\"int8\",\"error_feedback\":false},"                                  \
    "\"trainer\":{\"state\":\"training\",\"process\":\"running\",\"pid\":7,\"step\":123,\"tokens\":4567,"          \
    "\"tokens_counted\":4321,\"loss\":2.345678,\"tokens_per_s\":890.4,\"lr\":0.1,\"grad_norm\":1,\"failures\":0}," \
    "\"degraded\":" degraded ",\"uptime_s\":61.4,\"islands\":3,\"islands_up\":2,\"params\":1234567,"               \
    "\"epoch\":7,\"voters\":3,\"voters_heard\":2,\"voters_sure\":2,\"votes\":true,\"doubt\":\"\","                 \
    "\"sealed_ms\":0,\"waits\":\"\",\"advice\":\"\",\"fragments\":4,\"versions\":40,"                              \
    "\"version_min\":9,\"version_max\":11,\"step\":120,\"left_s\":3720,"                                           \
    "\"anchors\":" anchors ",\"bytes_sent\":1500000,\"bytes_received\":2500,"                                      \
    "\"ledger_bytes\":12345,\"memory_bytes\":2000000000,"                                                          \
    "\"processor\":{\"cores\":0.251,\"seconds\":20,\"loop\":1.9,\"encode\":6,"                                     \
    "\"links\":11,\"hash\":1.1},\"loop_lag_ms\":12,\"loop_lag_ms_max\":800,\"saved\":" saved "}"

static void a_status_shows_everything_and_each_complaint_with_its_remedy(void **state)
{
    (void)state;
    print(ctl_print_status, STATUS("[]", "\"0123456789abcdef0123\"", "\"\""));
    assert_string_equal(
        printed, "island     paris, 2 of 3 islands here, up 1 min 1 s\n"
                 "run        big, 1.23M parameters, each fragment every 30 steps, overlap 5, codec int8\n"
                 "trainer    training, step 123 of 900 (13 %), 1 h 2 min left, loss 2.3457, 890 tokens/s\n"
                 "           4.57k tokens trained, 4.32k counted in the anchors\n"
                 "anchor     4 fragments at versions 9 to 11, step 120, hash 0123456789abcdef\n"
                 "epoch      7, 2 of 3 islands that vote heard\n"
                 "traffic    sent 1.50 MB, received 2.50 kB; ledger 12.3 kB; memory 2.00 GB\n"
                 "processor  0.25 cores in the last minute; links 55 %, encode 30 %; its loop stood for 12 ms at "
                 "most\n"
                 "degraded   no\n");
    print(ctl_print_status, STATUS("[{\"code\":\"away\",\"what\":\"one\",\"remedy\":\"first\"},"
                                   "{\"code\":\"disk\",\"what\":\"two\",\"remedy\":\"second\"}]",
                                   "null", "\"/x/anchor.safetensors\""));
    assert_prints("hash not known yet\n");
    assert_prints("saved      /x/anchor.safetensors\n");
    assert_prints(CTL_TEXT_WARN "degraded   one" CTL_TEXT_PLAIN "\n           -> first\n" CTL_TEXT_WARN
                                "degraded   two" CTL_TEXT_PLAIN "\n           -> second\n");
    assert_null(strstr(printed, "degraded   no"));
}

/* The last rate it told is not one of now. */
static void one_that_stands_still_for_others_has_no_rate(void **state)
{
    (void)state;
    print(ctl_print_status, "{\"trainer\":{\"state\":\"training\",\"step\":9,\"loss\":2,\"tokens_per_s\":890,"
                            "\"waits_s\":2.9,\"waits_for\":[\"b\"]},\"run\":{\"steps\":90}}");
    assert_prints("trainer    training, step 9 of 90 (10 %), loss 2.0000, 890 tokens/s\n");
    print(ctl_print_status, "{\"trainer\":{\"state\":\"training\",\"step\":9,\"loss\":2,\"tokens_per_s\":890,"
                            "\"waits_s\":3,\"waits_for\":[\"b\"]},\"run\":{\"steps\":90}}");
    assert_prints("trainer    waits for b (for 3 s, as late = wait has it), step 9 of 90 (10 %)\n");
}

static void a_daemon_that_was_started_again_is_told(void **state)
{
    (void)state;
    setenv("TZ", "UTC", 1);
    print(ctl_print_status, "{\"island\":\"paris\",\"restarts\":{\"count\":0,\"at\":0,\"why\":\"\"}}");
    assert_null(strstr(printed, "started again"));
    print(ctl_print_status, "{\"restarts\":{\"count\":1,\"at\":1700000000,\"why\":\"ended with status 1\"}}");
    assert_prints("\n           the daemon ended with status 1 and was started again at 22:13\n");
    print(ctl_print_status, "{\"restarts\":{\"count\":4,\"at\":1700000000,\"why\":\"ended with status 1\"}}");
    assert_prints(" and was started again at 22:13 (4 times within an hour)\n");
}

/* Of a terminal's columns: long ones go on below where they began. */
static void a_status_fits_its_terminal(void **state)
{
    (void)state;
    static const char degraded[] =
        "[{\"code\":\"no-majority\",\"what\":\"1 of the 2 islands that vote are heard, no majority: no round closes "
        "until oslo is back; island oslo was last heard of 60 s ago: silent\",\"remedy\":\"training goes on alone, and "
        "nothing of it is lost: it is merged when they are back; with a witness one half would go on\",\"of\":\"\"},"
        "{\"code\":\"away\",\"what\":\"island oslo\",\"remedy\":\"mend it\",\"of\":\"no-majority\"}]";
    char answer[4000];
    snprintf(answer, sizeof answer, STATUS("%s", "null", "\"\""), degraded);
    look.columns = COLUMNS_MAX;
    print(ctl_print_status, answer);
    assert_fits(COLUMNS_MAX + 2); /* and marks */
    assert_prints("codec\n           int8\n");
    assert_prints(CTL_TEXT_WARN
                  "degraded   1 of the 2 islands that vote are heard, no majority: no round closes" CTL_TEXT_PLAIN
                  "\n" CTL_TEXT_WARN "           until oslo is back;");
    assert_prints("           -> training goes on alone, and nothing of it is lost: it is merged\n"
                  "              when they are back; with a witness one half would go on\n");
    assert_null(strstr(printed, "mend it")); /* it is the same event */
    look.verbose = true;
    print(ctl_print_status, answer);
    assert_prints("follows    island oslo\n           -> mend it\n");
    look = (struct ctl_text_look){.columns = 0};
    print(ctl_print_check, answer);
    assert_prints("degraded: 1 of the 2");
    assert_null(strstr(printed, "island oslo\n"));
}

static void a_quorum_is_told_with_what_it_comes_to(void **state)
{
    (void)state;
    print(ctl_print_status, "{\"run\":{\"quorum\":3},\"quorum\":2,\"contributors\":2,\"degraded\":[]}");
    assert_prints("\nquorum     3, 2 contributors take part: a round closes with 2\n");
    print(ctl_print_status, "{\"run\":{\"quorum\":0},\"quorum\":0,\"contributors\":2,\"degraded\":[]}");
    assert_null(strstr(printed, "quorum"));
}

static void what_is_not_known_is_a_dash(void **state)
{
    (void)state;
    print(ctl_print_status,
          "{\"trainer\":{\"state\":\"training\",\"step\":3,\"loss\":null,\"tokens_per_s\":5},\"run\":{"
          "\"steps\":6},\"left_s\":null,\"degraded\":[]}");
    assert_prints("trainer    training, step 3 of 6 (50 %), loss -, 5 tokens/s\n");
    print(ctl_print_status, "{\"trainer\":{\"state\":\"stopped\",\"step\":3},\"run\":{\"steps\":6},\"degraded\":[]}");
    assert_prints("trainer    stopped (resume starts it), step 3 of 6");
}

#define MACHINE(text) "{\"trainer\":{\"state\":\"training\",\"machine\":{" text "}},\"degraded\":[]}"

static void what_the_trainer_runs_on_is_one_line(void **state)
{
    (void)state;
    print(ctl_print_status,
          MACHINE("\"device\":\"NVIDIA H100 80GB HBM3\",\"ranks\":4,\"tensor_parallel\":2,\"memory_bytes\":44238163148,"
                  "\"memory_total_bytes\":84932978278,\"flops_per_s\":1.5432e15,\"mfu\":0.391"));
    assert_prints(
        "\nmachine    4 ranks (dp 2 x tp 2) on NVIDIA H100 80GB HBM3, 41.2 GiB of 79.1 GiB each, 1.54 PFLOP/s "
        "(39 % MFU)\n");
    print(ctl_print_status,
          MACHINE("\"device\":\"CPU (avx512)\",\"ranks\":1,\"tensor_parallel\":1,\"memory_bytes\":44040192,"
                  "\"memory_total_bytes\":25125558682,\"flops_per_s\":21.4e9,\"mfu\":0"));
    assert_prints("\nmachine    1 rank on CPU (avx512), 42.0 MiB of 23.4 GiB, 21.4 GFLOP/s\n");
    /* A trainer that says less has less; one that says nothing has no line. */
    print(ctl_print_status, MACHINE("\"device\":\"\",\"ranks\":2,\"tensor_parallel\":1,\"memory_bytes\":2147483648,"
                                    "\"memory_total_bytes\":0,\"flops_per_s\":999.6e12,\"mfu\":0"));
    assert_prints("\nmachine    2 ranks, 2.00 GiB each, 1.00 PFLOP/s\n");
    print(ctl_print_status, MACHINE("\"device\":\"x\",\"ranks\":1,\"memory_bytes\":0,\"flops_per_s\":0"));
    assert_prints("\nmachine    1 rank on x\n");
    print(ctl_print_status, MACHINE("\"device\":\"\",\"ranks\":0"));
    assert_null(strstr(printed, "machine"));
}

static void what_an_island_is_to_the_run_is_said_in_words(void **state)
{
    (void)state;
    static const char *const roles[][2] = {
        {"owner", "role       owner: it contributes what it trains, and makes its part of each result\n"},
        {"contributor", "role       contributor: what it trains is merged; it owns nothing\n"},
        {"observer", "role       observer: it catches up; what it trains is merged when it takes part"},
        {"draining",
         "role       it has left: it owns nothing, and nobody waits for it; resume takes part again, stop ends it\n"},
        {"away", "role       put out: the others go on without it"}};
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
        char answer[200];
        snprintf(answer, sizeof answer, "{\"role\":\"%s\",\"left\":[\"rome\"],\"degraded\":[]}", roles[i][0]);
        print(ctl_print_status, answer);
        assert_prints(roles[i][1]);
        assert_prints("           rome has left the run\n");
    }
    print(ctl_print_status, "{\"role\":\"away\",\"catches_up\":true,\"degraded\":[]}");
    assert_prints(roles[2][1]); /* it is back */
}

static void of_a_newcomer_it_says_how_much_is_here(void **state)
{
    (void)state;
    print(ctl_print_status, "{\"role\":\"observer\",\"degraded\":[],\"arriving\":{\"fragments\":3,\"bytes\":"
                            "149000000,\"bytes_due\":672000000}}");
    assert_prints("\n           149 MB of the state's 672 MB are here, 22 %\n");
    print(ctl_print_status, "{\"role\":\"owner\",\"degraded\":[],\"arriving\":{\"fragments\":0,\"bytes\":672,"
                            "\"bytes_due\":672}}");
    assert_null(strstr(printed, "are here,"));
}

static void of_the_epoch_it_says_who_votes_and_what_the_next_one_waits_for(void **state)
{
    (void)state;
    print(ctl_print_status,
          "{\"epoch\":3,\"voters\":2,\"voters_heard\":1,\"voters_sure\":0,\"votes\":false,\"sealed_ms\":2500,"
          "\"waits\":\"an answer of oslo\",\"advice\":\"take a third\",\"degraded\":[]}");
    assert_prints("epoch      3, 1 of 2 islands that vote heard, 0 may vote; this one has no vote\n"
                  "           the next one is being decided; it waits for an answer of oslo\n");
    assert_null(strstr(printed, "advice")); /* nothing is wrong */
    static const char advice[] =
        "{\"advice\":\"take a third\",\"orders_advice\":\"grant\",\"capped\":\"modprobe tcp_bbr\","
        "\"degraded\":[]}";
    print(ctl_print_status, advice);
    assert_prints("advice     modprobe tcp_bbr\ndegraded   no\n");
    look.verbose = true;
    print(ctl_print_status, advice);
    look.verbose = false;
    assert_prints("advice     take a third\nadvice     grant\nadvice     modprobe tcp_bbr\ndegraded   no\n");
    print(ctl_print_status,
          "{\"epoch\":3,\"sealed_ms\":0,\"requested_ms\":900,\"waits\":\"the others\",\"degraded\":[]}");
    assert_prints("           a change of members is not decided; it waits for the others\n");
    print(ctl_print_status, "{\"epoch\":3,\"orders\":["
                            "{\"number\":7,\"text\":\"revoke oslo\",\"by\":\"paris\",\"for_ms\":12000},"
                            "{\"number\":2,\"text\":\"grant lima\",\"by\":\"rome\",\"for_ms\":0,"
                            "\"approvals\":1,\"needed\":2}],\"degraded\":[]}");
    assert_prints("           order 7 of paris waits: revoke oslo, since 12 s\n"
                  "           order 2 of rome waits: grant lima, since 0 s; 1 of 2 voters agree\n");
}

static void a_witness_is_shown_as_one(void **state)
{
    (void)state;
    print(ctl_print_status, "{\"role\":\"witness\",\"fragments\":4,\"version_min\":9,\"version_max\":11,\"epoch\":3,"
                            "\"voters\":3,\"voters_heard\":3,\"voters_sure\":3,\"votes\":true,\"degraded\":[]}");
    assert_prints("trainer    none: this is the run's witness, which votes and keeps no parameters\n"
                  "anchor     4 fragments, elsewhere, at versions 9 to 11\n"
                  "epoch      3, 3 of 3 islands that vote heard\n");
    print(ctl_print_check, "{\"role\":\"witness\",\"islands\":3,\"islands_up\":3,\"degraded\":[]}");
    assert_prints("good: 3 of 3 islands, of which this is the witness\n");
}

#define PEER(name, self, up, trainer, note) PEER_AS(name, self, up, trainer, note, "owner")
#define PEER_AS(name, self, up, trainer, note, role)                                                            \
    "{\"name\":\"" name "\",\"public_key\":\"0123456789012345678901234567890123456789\",\"address\":"           \
    "\"host.example:7600\",\"uplink_bit_s\":1500000000,\"self\":" self ",\"up\":" up ",\"note\":\"" note        \
    "\",\"trainer\":\"" trainer "\",\"step\":1234567,\"tokens\":5,\"loss\":12.34567,\"tokens_per_s\":12345678," \
    "\"rtt_ms\":1234,\"heard_s\":0.5,\"bytes_sent\":123456789012,\"bytes_received\":999999,"                    \
    "\"unacknowledged\":0,\"outliers\":0,\"missed\":0,\"voter\":true,\"role\":\"" role "\"}"

static void peers_are_a_table_of_eighty_columns_with_notes_below(void **state)
{
    (void)state;
    static const char *const states[] = {"none",     "stopped", "starting",   "training", "finishing",
                                         "finished", "leaving", "restarting", "failed"};
    print(ctl_print_peers, "{\"peers\":[" PEER("paris", "true", "true", "training", "") "," PEER(
                               "oslo", "false", "true", "finishing", "") "," PEER("a-long-name1", "false", "false",
                                                                                  "failed", "silent") "]}");
    assert_fits(COLUMNS_MAX);
    assert_prints("island       state trainer ");
    assert_prints("paris        self  training");
    assert_prints(" 1234567 12.3457    12.3M       -        -        -\n"); /* there is no way to ourselves */
    assert_prints("oslo         up    finishing");
    assert_prints(" 1234567 12.3457    12.3M 1234 ms   123 GB  1.00 MB\n");
    assert_prints("a-long-name1 away  failed");
    assert_prints("\n             silent\n");
    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++) {
        char answer[1024], word[32];
        snprintf(answer, sizeof answer, "{\"peers\":[" PEER("a-long-name1", "true", "true", "%s", "") "]}", states[i]);
        print(ctl_print_peers, answer);
        assert_fits(COLUMNS_MAX);
        snprintf(word, sizeof word, " self  %s ", states[i]);
        assert_prints(word);
    }
    print(ctl_print_peers, "{\"peers\":[" PEER_AS("oslo", "false", "true", "none", "", "witness") "]}");
    assert_fits(COLUMNS_MAX);
    assert_prints("\n             witness\n");
    assert_true(strstr(printed, "owner") == NULL);
    print(ctl_print_peers, "{\"peers\":[]}");
    assert_fits(COLUMNS_MAX);
}

static void members_are_listed_with_all_that_configurations_must_agree_on(void **state)
{
    (void)state;
    print(ctl_print_members,
          "{\"peers\":[" PEER("paris", "true", "true", "training",
                              "") ",{\"name\":\"oslo\","
                                  "\"public_key\":\"k\",\"address\":\"\",\"uplink_bit_s\":10000000,"
                                  "\"operator\":true,\"founder\":false},{\"name\":\"rome\",\"public_key\":\"r\","
                                  "\"address\":\"\",\"operator\":true,\"founder\":true}]}");
    char row[200];
    snprintf(row, sizeof row, "%-12s %-40s %12s  -         %s\n", "paris", "0123456789012345678901234567890123456789",
             "1.50 Gbit/s", "host.example:7600");
    assert_prints(row);
    snprintf(row, sizeof row, "%-12s %-40s %12s  operator  %s\n", "oslo", "k", "10.0 Mbit/s", "-"); /* it dials */
    assert_prints(row);
    assert_prints("  founder   -\n");
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
    assert_prints("4095            12.3B 12345678 12345679  contributed  0123456789abcdef paris, oslo\n");
    assert_prints("1                   2        3        4  repair");
    assert_fits(COLUMNS_MAX + 3); /* the last column is as long as the names */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_status_shows_everything_and_each_complaint_with_its_remedy),
        cmocka_unit_test(one_that_stands_still_for_others_has_no_rate),
        cmocka_unit_test(a_daemon_that_was_started_again_is_told),
        cmocka_unit_test(a_status_fits_its_terminal),
        cmocka_unit_test(what_is_not_known_is_a_dash),
        cmocka_unit_test(a_quorum_is_told_with_what_it_comes_to),
        cmocka_unit_test(a_witness_is_shown_as_one),
        cmocka_unit_test(what_the_trainer_runs_on_is_one_line),
        cmocka_unit_test(what_an_island_is_to_the_run_is_said_in_words),
        cmocka_unit_test(of_a_newcomer_it_says_how_much_is_here),
        cmocka_unit_test(of_the_epoch_it_says_who_votes_and_what_the_next_one_waits_for),
        cmocka_unit_test(peers_are_a_table_of_eighty_columns_with_notes_below),
        cmocka_unit_test(members_are_listed_with_all_that_configurations_must_agree_on),
        cmocka_unit_test(fragments_are_a_table_with_whom_they_wait_for),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(printed);
    return failed;
}
