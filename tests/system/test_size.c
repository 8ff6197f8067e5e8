/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model of 64 million parameters: an island joins by command over a line of 100 Mbit/s, on which the state takes
 * three quarters of a minute, while the founder's rounds go on. Nothing of the state comes twice, no round is missed,
 * and the newcomer trains.
 */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <string.h>

#include "common/fsio.h"
#include "common/mem.h"
#include "tests/lib/homes.h"
#include "tests/lib/proc.h"
#include "tests/lib/said.h"
#include "tests/lib/village.h"
#include "tests/lib/wan.h"

/* A sanitizer multiplies memory and time, so the model and the line are an eighth there. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { MILLIONS = 8, RATE_BITS = 12500000 };
#else
enum { MILLIONS = 64, RATE_BITS = 100000000 };
#endif
/* Five fragments, each synchronised every INTERVAL steps, in turn, and not before the INTERVALth; SLEEP_MS a step.
 * STATE_BYTES: of a parameter, its anchor and its momentum. */
enum { LAYERS = 12, FRAGMENTS = 5, INTERVAL = 20, SLEEP_MS = 500, STATE_BYTES = 8, PATIENCE_S = 300 };

static const char *lyon, *turin, *spec;
static char no_namespaces[300];
static struct wan line;

static const char *trainer(const char *name, int seed)
{
    char data[100];
    snprintf(data, sizeof data, "params=%dM touch=1000 sleep=%d seed=%d", MILLIONS, SLEEP_MS, seed);
    return village_synth(spec, name, data);
}

static const char *address(int end)
{
    static char text[80];
    snprintf(text, sizeof text, "%s:%u", wan_host(end), proc_free_port());
    return text;
}

/* Of all states that came, and of what of them had to come again, by the log. */
static double bytes_in(const char *path)
{
    char *log;
    size_t length;
    double sum = 0;
    assert_ok(fsio_read(path, 1u << 30, &log, &length));
    for (const char *at = log; (at = strstr(at, " is here after ")) != NULL; at++) {
        double s, bytes, again;
        unsigned givers;
        assert_int_equal(
            sscanf(at, " is here after %lf s: %lf bytes from %u islands, and %lf bytes", &s, &bytes, &givers, &again),
            4);
        sum += bytes + again;
    }
    mem_free(log);
    return sum;
}

/* Rounds that the founder's steps have made due, which it closes alone: but for one that is under way, and one that the
 * last look came too early for. */
static long long rounds_due(void)
{
    return (homes_number(lyon, "trainer", "step") - INTERVAL) * FRAGMENTS / INTERVAL - 2;
}

static void a_model_of_64_million_parameters_joins_over_a_line_while_rounds_go_on(void **state)
{
    (void)state;
    char log[300];
    if (no_namespaces[0] != '\0')
        skip_because(no_namespaces);
    GOOD(lyon, "init", "--name", "lyon", "--data", village_text(), "--run", spec, "--listen", address(0), "--no-start",
         "--program", trainer("lyon", 7));
    GOOD(lyon, "start");
    assert_true(homes_wait_versions(lyon, 2, PATIENCE_S));
    const char *token = homes_invite(lyon, NULL);
    assert_non_null(token);
    homes_place(turin, line.far);
    snprintf(log, sizeof log, "%s/dilocod.log", turin);
    double since_s = said_now_s();
    GOOD(turin, "join", token, "--name", "turin", "--data", village_text(), "--listen", address(1), "--program",
         trainer("turin", 8));

    long long before = homes_number(lyon, NULL, "versions");
    while (said_first(log, since_s, "training goes on", NULL) < 0 && said_now_s() < since_s + PATIENCE_S)
        proc_sleep_ms(500);
    long long due = rounds_due(), made = homes_number(lyon, NULL, "versions");
    double bytes = bytes_in(log), most = (double)STATE_BYTES * MILLIONS * (1 << 20);
    print_message("it trains after %.1f s; %lld rounds were due by then, %lld were made, %lld of them meanwhile; "
                  "%.3f times the state's bytes came\n",
                  said_now_s() - since_s, due, made, made - before, bytes / most);
    assert_true(said_first(log, since_s, "training goes on", NULL) > 0);
    assert_true(made >= due && made > before + FRAGMENTS);
    assert_true(bytes > 0.9 * most && bytes < 1.05 * most);

    assert_true(homes_wait_role(lyon, "turin", "owner", PATIENCE_S));
    assert_true(homes_wait_versions(turin, homes_number(turin, NULL, "versions") + FRAGMENTS, PATIENCE_S));
    assert_true(homes_number(turin, "trainer", "tokens_counted") > 0);
}

static int begin(void **state)
{
    const struct wan_conf conf = {.rate_bits = RATE_BITS, .queue_ms = 200};
    (void)state;
    if (no_namespaces[0] != '\0')
        return 0;
    if (!wan_begin(&conf, testlib_path(village_folder(), "line.log"), &line, no_namespaces, sizeof no_namespaces))
        fail_msg("%s", no_namespaces);
    return 0;
}

static int end(void **state)
{
    (void)state;
    if (no_namespaces[0] != '\0')
        return 0;
    HOMES_RUN(lyon, "stop");
    HOMES_RUN(turin, "stop");
    wan_end(&line);
    return 0;
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_model_of_64_million_parameters_joins_over_a_line_while_rounds_go_on, begin,
                                        end),
    };
    if (!wan_enter(no_namespaces, sizeof no_namespaces) && no_namespaces[0] == '\0')
        snprintf(no_namespaces, sizeof no_namespaces, "no network namespaces");
    if (!village_open("size"))
        return 1;
    spec = testlib_file(village_folder(), "size.ini",
                        "[run]\nname = size\nsteps = 1000000\n[model]\nlayers = %d\n"
                        "[sync]\ninterval = %d\nlayers_per_fragment = 3\noverlap = 4\nlate = merge\n",
                        LAYERS, INTERVAL);
    lyon = village_home("lyon");
    turin = village_home("turin");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
