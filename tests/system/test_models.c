/* SPDX-License-Identifier: Apache-2.0 */
/* Models in and out, by commands, with real daemons and trainers: a run that begins from a published model, on an
 * island that has it and on one that has not; and what a running island exports. */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/mem.h"
#include "common/modelfiles.h"
#include "tests/lib/homes.h"
#include "tests/lib/proc.h"
#include "tests/lib/published.h"
#include "tests/lib/village.h"

/* Sanitizers and a busy machine take their time. */
enum { PATIENCE_S = 60, MOST_VALUES = 256 * 32, NO_ROUNDS = 1000000, SOME_ROUNDS = 20 };

static const char *text, *model, *paris, *oslo, *rome, *bern, *lund, *bonn;
static struct published what;

/* Whether a folder or file holds the model that the run has begun from. */
static bool holds_beginning(const char *path)
{
    struct modelfiles *files;
    struct llama_tensor *tensors;
    size_t count, index;
    bool same = true;
    static float values[MOST_VALUES];
    assert_ok(modelfiles_open(path, true, &files));
    assert_ok(llama_tensors(&what.config, &tensors, &count));
    for (size_t t = 0; t < count; t++) {
        assert_ok(modelfiles_find(files, &tensors[t], &index));
        assert_ok(modelfiles_read(files, index, 0, tensors[t].count, values));
        for (uint64_t i = 0; i < tensors[t].count; i++)
            same &= values[i] == published_value(tensors[t].name, i);
    }
    mem_free(tensors);
    modelfiles_close(files);
    return same;
}

static const char *exported(const char *home, const char *name)
{
    const char *folder = testlib_path(village_folder(), name);
    GOOD(home, "export", "--format", "hf", folder);
    assert_told(folder);
    return folder;
}

static void begin_run(const char *home, const char *name, int interval)
{
    GOOD(home, "init", "--name", name, "--data", text, "--run", village_spec(interval), "--from", model, "--listen",
         homes_somewhere());
    assert_told("run.ini (for the model)");
}

/* With nothing but the token. */
static void join_run(const char *home, const char *inviter, const char *name)
{
    const char *token = homes_invite(inviter, NULL);
    if (token == NULL)
        fail_msg("no invitation:\n%s", homes_out);
    GOOD(home, "join", token, "--name", name, "--data", text, "--listen", homes_somewhere());
}

static void wait_training(const char *home)
{
    for (int k = 0; strcmp(homes_trainer(home), "training") != 0; k++) {
        if (k > PATIENCE_S * 10) {
            HOMES_RUN(home, "logs");
            fail_msg("%s does not train:\n%s", home, homes_out);
        }
        proc_sleep_ms(100);
    }
}

/* No round closes here, so all that an island has is what it began from. */
static void who_has_not_the_model_begins_from_it_too(void **state)
{
    (void)state;
    begin_run(paris, "paris", NO_ROUNDS);
    wait_training(paris);
    join_run(oslo, paris, "oslo");
    wait_training(oslo);
    GOOD(oslo, "logs");
    assert_told("[run] init does not say where it is here: the parameters come from the other islands");
    assert_int_equal(homes_number(oslo, NULL, "versions"), 0);
    assert_true(holds_beginning(exported(paris, "paris-model")));
    assert_true(holds_beginning(exported(oslo, "oslo-model")));
    const char *const both[] = {paris, oslo};
    assert_true(homes_wait_same(both, 2, PATIENCE_S));
}

/* Its trainer comes before anybody has a state: what it could bring must not count. */
static void who_has_not_the_model_waits_for_one_who_has(void **state)
{
    (void)state;
    GOOD(paris, "stop");
    GOOD(oslo, "stop");
    homes_empty_state(oslo);
    homes_empty_state(paris);
    GOOD(oslo, "start", "--no-wait");
    for (int k = 0; strstr(homes_out, "the trainer has no parameters to begin with") == NULL; k++) {
        if (k > PATIENCE_S * 10)
            fail_msg("it does not say what it waits for:\n%s", homes_out);
        proc_sleep_ms(100);
        HOMES_RUN(oslo, "logs");
    }
    assert_string_not_equal(homes_trainer(oslo), "training");
    GOOD(paris, "start", "--no-wait");
    wait_training(paris);
    wait_training(oslo);
    assert_true(holds_beginning(exported(oslo, "oslo-again")));
    assert_true(holds_beginning(exported(paris, "paris-again")));
    GOOD(paris, "stop");
    GOOD(oslo, "stop");
}

/* It has nothing left, and the other one, which may know the model, is not heard for as long as that is waited for. */
static void who_brings_its_model_late_may_go_on(void **state)
{
    (void)state;
    GOOD(lund, "init", "--name", "lund", "--data", text, "--run", village_spec(SOME_ROUNDS), "--listen",
         homes_somewhere());
    join_run(bonn, lund, "bonn");
    assert_true(homes_wait_role(lund, "bonn", "owner", PATIENCE_S));
    assert_true(homes_wait_versions(bonn, 3, PATIENCE_S));
    GOOD(lund, "stop");
    GOOD(bonn, "stop");
    homes_empty_state(bonn);
    GOOD(bonn, "start", "--no-wait");
    wait_training(bonn);
    GOOD(bonn, "stop");
}

static void a_running_island_is_exported(void **state)
{
    (void)state;
    begin_run(rome, "rome", SOME_ROUNDS);
    join_run(bern, rome, "bern");
    assert_true(homes_wait_versions(rome, 6, PATIENCE_S));
    assert_true(homes_wait_versions(bern, 6, PATIENCE_S));
    const char *folder = exported(bern, "bern-model");
    assert_false(holds_beginning(folder));
    assert_int_equal(HOMES_RUN(bern, "export", "--format", "hf", folder), 1);
    assert_told("is there already; --force replaces it");
    GOOD(bern, "export", "--format", "hf", "--force", "--dtype", "bf16", "--shard-size", "20kB", folder);
    assert_false(holds_beginning(folder));
    GOOD(bern, "stop");
    GOOD(rome, "stop");
    const char *other = testlib_path(village_folder(), "other");
    assert_int_equal(HOMES_RUN(rome, "export", "--format", "hf", other), 3);
    assert_told("no daemon answers");
    GOOD(rome, "export", "--format", "hf", "--from", folder, other); /* needs none */
    GOOD(rome, "export", "--force", "--from", folder, other);        /* there is one format */
    assert_int_equal(HOMES_RUN(rome, "export", "--format", "hf"), 2);
    assert_told("needs a folder to make");
}

int main(void)
{
    assert_ok(digest_init());
    if (!village_open("models"))
        return 1;
    what = (struct published){.config = published_small, .dtype = DTYPE_BF16, .shards = 2};
    what.config.heads = what.config.kv_heads = 2;
    text = village_text();
    model = published_write("published", &what);
    paris = village_home("paris");
    oslo = village_home("oslo");
    rome = village_home("rome");
    bern = village_home("bern");
    lund = village_home("lund");
    bonn = village_home("bonn");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_has_not_the_model_begins_from_it_too),
        cmocka_unit_test(who_has_not_the_model_waits_for_one_who_has),
        cmocka_unit_test(who_brings_its_model_late_may_go_on),
        cmocka_unit_test(a_running_island_is_exported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
