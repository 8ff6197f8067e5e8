/* SPDX-License-Identifier: Apache-2.0 */
/* Islands that join by commands: how soon they count, what that costs the others, and the loss of the first of them. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/fsio.h"
#include "tests/aims/aims.h"
#include "tests/lib/homes.h"
#include "tests/lib/proc.h"
#include "tests/lib/said.h"
#include "tests/lib/testlib.h"

enum { ISLANDS_MAX = 6, PATIENCE_S = 60, WARM_VERSIONS = 30, SPAN_S = 10, TIMES = 3 };

static const char *const names[ISLANDS_MAX] = {"paris", "oslo", "rome", "bern", "lima", "cairo"};
static const char real_spec[] =
    "[run]\nname = aims\nsteps = 100000000\n[model]\nwidth = 32\nlayers = 2\nheads = 2\ncontext = 32\n"
    "[train]\nbatch = 2\n[sync]\ninterval = 20\nlayers_per_fragment = 1\noverlap = 2\n";
/* A round of each fragment takes 200 ms. */
static const char paced_spec[] = "[run]\nname = aims\nsteps = 100000000\n[model]\nlayers = 2\n"
                                 "[sync]\ninterval = 10\nlayers_per_fragment = 1\noverlap = 2\nlate = merge\n";

/* The same at half as many steps. */
static const char slow_spec[] = "[run]\nname = aims\nsteps = 100000000\n[model]\nlayers = 2\n"
                                "[sync]\ninterval = 5\nlayers_per_fragment = 1\noverlap = 1\nlate = merge\n";

/* As deep as GPT-2, in four fragments and its embedding. */
static const char large_spec[] = "[run]\nname = aims\nsteps = 100000000\n[model]\nlayers = 12\n"
                                 "[sync]\ninterval = 20\nlayers_per_fragment = 3\noverlap = 4\nlate = merge\n";

/* Islands in folders of their own. */
static struct camp {
    char spec[96], text[PATH_MAX], build[PATH_MAX];
    const char *home[ISLANDS_MAX], *log[ISLANDS_MAX];
    const char *trainer; /* options of the synthetic one, whose steps take a fixed time; NULL: our own */
    int count;
} camp;
static char folder[64];

static void camp_end(void)
{
    char command[128];
    for (int i = 0; i < camp.count; i++)
        HOMES_RUN(camp.home[i], "stop");
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (camp.count > 0 && system(command) != 0)
        print_message("%s stays\n", folder);
    camp.count = 0;
}

static void good(int status)
{
    if (status != 0)
        fail_msg("it fails:\n%s", homes_out);
}

/* Logs say everything; another trainer where wished. Then it starts. */
static void start(int i)
{
    char program[2 * PATH_MAX];
    assert_true(homes_configure(camp.home[i], "island", "log", "debug"));
    if (camp.trainer != NULL) {
        snprintf(program, sizeof program, "%s/tests/system/tool_synth --run %s --mark %s --data '%s'", camp.build,
                 camp.spec, names[i], camp.trainer);
        assert_true(homes_configure(camp.home[i], "worker", "program", program));
    }
    good(HOMES_RUN(camp.home[i], "start"));
}

static void place(int i)
{
    camp.home[i] = testlib_path(folder, names[i]);
    camp.log[i] = testlib_path(camp.home[i], "dilocod.log");
    camp.count = i + 1;
}

static void camp_begin(const char *spec, const char *trainer)
{
    static bool once;
    if (!once)
        atexit(camp_end);
    once = true;
    const char *build = getenv("BUILD");
    snprintf(folder, sizeof folder, "/tmp/diloco-aims-XXXXXX");
    assert_non_null(mkdtemp(folder));
    assert_non_null(realpath(build != NULL ? build : "build/gcc", camp.build));
    assert_non_null(realpath("tests/demo/shakespeare.txt", camp.text));
    snprintf(camp.spec, sizeof camp.spec, "%s/run.ini", folder);
    assert_ok(fsio_replace(camp.spec, spec, strlen(spec), 0644));
    homes_init(camp.build);
    camp.trainer = trainer;
    place(0);
    good(HOMES_RUN(camp.home[0], "init", "--name", names[0], "--data", camp.text, "--run", camp.spec, "--listen",
                   homes_somewhere(), "--no-start"));
    start(0);
    assert_true(homes_wait_versions(camp.home[0], 3, PATIENCE_S));
}

/* The next one, by a token of the first. Until its first contribution is counted; returns when it began. */
static double join(void)
{
    int i = camp.count;
    char token[4096];
    const char *made = homes_invite(camp.home[0], NULL);
    assert_non_null(made);
    snprintf(token, sizeof token, "%s", made);
    place(i);
    double begin_s = said_now_s();
    good(HOMES_RUN(camp.home[i], "join", token, "--name", names[i], "--data", camp.text, "--listen", homes_somewhere(),
                   "--no-start"));
    start(i);
    while (homes_number(camp.home[i], "trainer", "tokens_counted") <= 0) {
        if (said_now_s() > begin_s + PATIENCE_S)
            fail_msg("no contribution of %s is counted", names[i]);
        proc_sleep_ms(20);
    }
    return begin_s;
}

static void wait_for_owner(int i)
{
    if (!homes_wait_role(camp.home[0], names[i], "owner", PATIENCE_S))
        fail_msg("%s owns nothing", names[i]);
}

void aims_join(void **state)
{
    (void)state;
    camp_begin(real_spec, NULL);
    for (int i = 1; i <= TIMES; i++) {
        double begin_s = join();
        aims_note(AIM_JOINED, said_now_s() - begin_s);
        print_message("%s: counted %.2f s after `join`\n", names[i], said_now_s() - begin_s);
        wait_for_owner(i);
    }
    camp_end();
}

/* Trainers hold the model, and leave the processors to the daemons. Each joins from all who are there. */
void aims_join_large(void **state)
{
    (void)state;
    camp_begin(large_spec, "params=64M sleep=500 touch=1000");
    for (int i = 1; i <= TIMES; i++) {
        double begin_s = join(), counted_s = said_now_s() - begin_s;
        double registered_s = said_first(camp.log[i], begin_s, " registered ", NULL);
        double trains_s = said_first(camp.log[i], begin_s, "training goes on", NULL);
        assert_true(registered_s > 0 && trains_s > 0);
        aims_note(AIM_JOINED_LARGE, trains_s - registered_s);
        print_message("%s: 64M parameters: trains %.2f s after its trainer was there, counted %.2f s after `join`\n",
                      names[i], trains_s - registered_s, counted_s);
        wait_for_owner(i);
    }
    camp_end();
}

struct token_bucket {
    double rate, longest_s; /* versions a second; and the longest time without any */
};

/* By the log's stamps, between the first and the last version of the time. */
static struct token_bucket pace_between(const char *log, double from_s, double to_s)
{
    struct token_bucket pace = {0};
    double first_s = said_first(log, from_s, "debug: fragment ", " hash "), last_s = first_s;
    unsigned count = 0;
    for (double at_s = first_s; at_s > 0 && at_s < to_s; count++) {
        pace.longest_s = fmax(pace.longest_s, at_s - last_s);
        last_s = at_s;
        at_s = said_first(log, at_s + 0.0005, "debug: fragment ", " hash ");
    }
    assert_true(count > 1);
    pace.rate = (count - 1) / (last_s - first_s);
    return pace;
}

/* Trainers have a fixed pace that leaves the processor time: what is measured is the protocol. */
void aims_join_cost(void **state)
{
    (void)state;
    camp_begin(slow_spec, "sleep=40 size=20000");
    for (int i = 1; i < 3; i++) {
        join();
        wait_for_owner(i);
    }
    for (int k = 0; k < TIMES; k++) {
        proc_sleep_ms((SPAN_S + 3) * 1000);
        double begin_s = said_now_s();
        join();
        wait_for_owner(camp.count - 1);
        double owner_s = said_now_s() - begin_s;
        assert_true(owner_s < SPAN_S);
        proc_sleep_ms((long)((SPAN_S - owner_s) * 1000));
        struct token_bucket before = pace_between(camp.log[0], begin_s - SPAN_S, begin_s);
        struct token_bucket during = pace_between(camp.log[0], begin_s, begin_s + SPAN_S);
        print_message("%s owns after %.1f s; versions a second: %.2f before, %.2f in %d s from `join`; longest time "
                      "without one %.2f and %.2f s\n",
                      names[camp.count - 1], owner_s, before.rate, during.rate, SPAN_S, before.longest_s,
                      during.longest_s);
        aims_note(AIM_JOIN_COST, 100 * (1 - during.rate / before.rate));
    }
    camp_end();
}

/* All joined by tokens of the first, so its address is the only one that they were told by people. */
void aims_dialled(void **state)
{
    (void)state;
    for (int k = 0; k < TIMES; k++) {
        camp_begin(paced_spec, "sleep=20");
        for (int i = 1; i < 3; i++) {
            join();
            wait_for_owner(i);
        }
        assert_true(homes_wait_versions(camp.home[0], homes_number(camp.home[0], NULL, "versions") + WARM_VERSIONS,
                                        PATIENCE_S));
        double kill_s = said_now_s(), worst_s = 0;
        homes_kill(camp.home[0]);
        for (int i = 1; i < 3; i++) {
            double begun_s = said_wait(camp.log[i], kill_s, " has begun, with ", NULL, PATIENCE_S);
            double moved_s = said_wait(camp.log[i], begun_s, "debug: fragment ", " hash ", PATIENCE_S);
            assert_true(begun_s > 0 && moved_s > 0);
            worst_s = fmax(worst_s, moved_s - kill_s);
        }
        print_message("the first is lost: anchors move after %.3f s\n", worst_s);
        aims_note(AIM_DIALLED_LOST, worst_s);
        camp_end();
    }
}
