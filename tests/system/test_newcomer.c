/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An island joins a run that has hardly begun, with a trainer whose own initial tensors are others than the run's, and
 * a line on which the state takes its time: nobody waits for it, nobody calls it wrong, and it trains on the run's.
 */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <string.h>

#include "common/fsio.h"
#include "common/mem.h"
#include "tests/lib/homes.h"
#include "tests/lib/proc.h"
#include "tests/lib/village.h"

/* Five fragments, each synchronised every INTERVAL steps, in turn, and not before the INTERVALth; SLEEP_MS a step. A
 * state is two arrays of VALUES. */
enum { LAYERS = 4, FRAGMENTS = 5, INTERVAL = 250, SLEEP_MS = 20, VALUES = 300000, PATIENCE_S = 120 };

static const char *text, *spec, *lyon, *turin;

static const char *trainer(const char *name, int seed)
{
    char data[100];
    snprintf(data, sizeof data, "size=%d sleep=%d seed=%d", VALUES, SLEEP_MS, seed);
    return village_synth(spec, name, data);
}

static json_t *degraded(const char *home)
{
    json_t *status = homes_ask(home, "status");
    json_t *list = json_incref(json_object_get(status, "degraded"));
    json_decref(status);
    return list;
}

/* Of what there is to complain of in one that is only new, nothing says that something is wrong with it. */
static void assert_only_new(const char *home)
{
    json_t *list = degraded(home);
    char *said = json_dumps(list, 0);
    for (size_t i = 0; said != NULL && i < 3; i++) {
        static const char *const wrong[] = {"memory", "repair", "diverged"};
        if (strstr(said, wrong[i]) != NULL)
            fail_msg("%s says of one that is only new: %s", home, said);
    }
    free(said);
    json_decref(list);
}

static void assert_never_logged(const char *home, const char *words)
{
    char *log;
    size_t bytes;
    char path[300];
    snprintf(path, sizeof path, "%s/dilocod.log", home);
    assert_ok(fsio_read(path, 1u << 30, &log, &bytes));
    const char *at = strstr(log, words);
    if (at != NULL)
        fail_msg("%s has logged: %.200s", home, at);
    mem_free(log);
}

/* Rounds that the founder's steps have made due, which it closes alone, each within some steps: but for one that is
 * under way, and one that the last look came too early for. */
static void assert_kept_pace(void)
{
    long long due = (homes_number(lyon, "trainer", "step") - INTERVAL) * FRAGMENTS / INTERVAL - 2;
    long long made = homes_number(lyon, NULL, "versions");
    print_message("%lld rounds were due, %lld were made\n", due, made);
    assert_true(made >= due);
}

static void at_version_0_nobody_waits_for_it_and_it_trains_on_the_run_s_tensors(void **state)
{
    (void)state;
    char remark[64];
    GOOD(lyon, "init", "--name", "lyon", "--data", text, "--run", spec, "--listen", homes_somewhere(), "--no-start",
         "--program", trainer("lyon", 7));
    assert_true(homes_configure(lyon, "net", "rate_limit", "8Mbit"));
    GOOD(lyon, "start");
    assert_true(homes_wait_versions(lyon, 0, PATIENCE_S));
    const char *token = homes_invite(lyon, NULL);
    for (int k = 0; token == NULL && k < PATIENCE_S; k++) { /* before the trainer has registered nobody comes in */
        proc_sleep_ms(1000);
        token = homes_invite(lyon, NULL);
    }
    assert_non_null(token);
    GOOD(turin, "join", token, "--name", "turin", "--data", text, "--listen", homes_somewhere(), "--program",
         trainer("turin", 8));
    /* Else it joined a run that is under way, which is another test. */
    assert_true(homes_number(lyon, NULL, "versions") < FRAGMENTS);
    int looks = 0;
    for (; strcmp(homes_role(lyon, "turin"), "owner") != 0 && looks < PATIENCE_S * 5; looks++) {
        assert_only_new(turin);
        assert_only_new(lyon);
        proc_sleep_ms(200);
    }
    snprintf(remark, sizeof remark, "%s", homes_role(lyon, "turin"));
    print_message("after %d looks it is %s\n", looks, remark);
    assert_string_equal(remark, "owner");
    assert_kept_pace();
    long long versions = homes_number(turin, NULL, "versions");
    assert_true(homes_wait_versions(turin, versions + FRAGMENTS, PATIENCE_S));
    assert_true(homes_number(turin, "trainer", "tokens_counted") > 0);
    static const char *const wrong[] = {"diverged", "DIVERGED", "refuses our", "initial tensors differ"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_never_logged(lyon, wrong[i]);
        assert_never_logged(turin, wrong[i]);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(at_version_0_nobody_waits_for_it_and_it_trains_on_the_run_s_tensors),
    };
    if (!village_open("new"))
        return 1;
    text = village_text();
    spec = testlib_file(village_folder(), "new.ini",
                        "[run]\nname = new\nsteps = 1000000\n[model]\nlayers = %d\n"
                        "[sync]\ninterval = %d\nlayers_per_fragment = 1\noverlap = 4\n",
                        LAYERS, INTERVAL);
    lyon = village_home("lyon");
    turin = village_home("turin");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
