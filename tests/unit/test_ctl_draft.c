/* SPDX-License-Identifier: Apache-2.0 */
/* ctl_draft: what init writes loads, says what was asked for, and is the sample that is shipped. */
#include "tests/lib/testlib.h"

#include <stdlib.h>
#include <string.h>

#include "common/digest.h"
#include "common/fsio.h"
#include "common/mem.h"
#include "common/runspec.h"
#include "daemon/ctl/ctl_draft.h"
#include "daemon/dconf.h"

static const char *folder;
static struct ctl_draft good = {.name = "paris",
                                .data = "/srv/a text.txt",
                                .listen = "127.0.0.1:7654",
                                .key = "island.key",
                                .state = "state",
                                .sockets = "run"};

static void what_was_asked_for_is_in_the_configuration(void **state)
{
    (void)state;
    struct dconf conf;
    char *text;
    struct ctl_draft draft = good;
    draft.owner = "no";
    draft.address = "paris.example.org:7600";
    draft.uplink = "20Mbit";
    assert_ok(ctl_draft_conf(&draft, &text));
    const char *path = testlib_file(folder, "dilocod.conf", "%s", text);
    assert_ok(dconf_load(path, NULL, 0, &conf));
    assert_string_equal(conf.name, "paris");
    assert_string_equal(conf.data, "/srv/a text.txt");
    assert_string_equal(conf.listen, "127.0.0.1:7654");
    assert_true(conf.uplink == 20000000);
    assert_string_equal(conf.key_path, testlib_path(folder, "island.key"));
    assert_string_equal(conf.run_path, testlib_path(folder, "run.ini"));
    assert_string_equal(conf.state_folder, testlib_path(folder, "state"));
    assert_string_equal(conf.run_folder, testlib_path(folder, "run"));
    assert_string_equal(dconf_address(&conf), "paris.example.org:7600");
    assert_int_equal(conf.owner, CONFIG_OWNER_NO);
    assert_string_equal(conf.inviter, "");
    assert_string_equal(conf.joined, "");
    conf_deinit(&dconf_schema, &conf);
    /* Not all keys, and help for those there are. */
    assert_non_null(strstr(text, "# Corpus of this island"));
    assert_null(strstr(text, "ledger_segment"));
    mem_free(text);
}

static void a_trainer_is_sent_where_it_was_said(void **state)
{
    (void)state;
    static const struct {
        const char *device, *devices, *ranks, *tensor_parallel, *want;
    } rows[] = {{NULL, NULL, NULL, NULL, "cpu"},    {"auto", NULL, NULL, NULL, "auto"},
                {NULL, "0-3", NULL, "2", "cuda"}, /* devices are GPUs */
                {"auto", "0,1", "2", NULL, "auto"}, {NULL, "", NULL, NULL, "cpu"},
                {NULL, NULL, "4", "2", "cpu"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct dconf conf;
        char *text;
        struct ctl_draft draft = good;
        draft.device = rows[i].device;
        draft.devices = rows[i].devices;
        draft.ranks = rows[i].ranks;
        draft.tensor_parallel = rows[i].tensor_parallel;
        assert_ok(ctl_draft_conf(&draft, &text));
        const char *path = testlib_file(folder, "trainer.conf", "%s", text);
        mem_free(text);
        assert_ok(dconf_load(path, NULL, 0, &conf));
        assert_string_equal(conf.device, rows[i].want);
        assert_string_equal(conf.devices, rows[i].devices != NULL ? rows[i].devices : "");
        assert_int_equal(conf.ranks, rows[i].ranks != NULL ? atoi(rows[i].ranks) : 1);
        assert_int_equal(conf.tensor_parallel, rows[i].tensor_parallel != NULL ? 2 : 1);
        conf_deinit(&dconf_schema, &conf);
    }
}

static void a_trainer_of_one_s_own_is_named(void **state)
{
    (void)state;
    static const char *const programs[] = {"", "/srv/train", "python3 -u '/srv/my train.py' --lr 3e-4"};
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++) {
        struct dconf conf;
        char *text;
        struct ctl_draft draft = good;
        draft.program = programs[i];
        assert_ok(ctl_draft_conf(&draft, &text));
        const char *path = testlib_file(folder, "program.conf", "%s", text);
        mem_free(text);
        assert_ok(dconf_load(path, NULL, 0, &conf));
        assert_string_equal(conf.worker_program, programs[i]);
        conf_deinit(&dconf_schema, &conf);
    }
}

/* Not among the keys that most will want to change. */
static void another_base_is_allowed_where_that_was_said(void **state)
{
    (void)state;
    for (int allowed = 0; allowed < 2; allowed++) {
        struct dconf conf;
        char *text;
        struct ctl_draft draft = good;
        draft.other_base = allowed;
        assert_ok(ctl_draft_conf(&draft, &text));
        assert_int_equal(strstr(text, "allow_other_base") != NULL, allowed);
        const char *path = testlib_file(folder, "base.conf", "%s", text);
        mem_free(text);
        assert_ok(dconf_load(path, NULL, 0, &conf));
        assert_int_equal(conf.allow_other_base, allowed);
        conf_deinit(&dconf_schema, &conf);
    }
}

static void who_joins_knows_whom_it_joined(void **state)
{
    (void)state;
    struct dconf conf;
    char *text;
    struct ctl_draft draft = good;
    draft.joined = "joined";
    draft.inviter_name = "oslo";
    draft.inviter_address = "oslo.example.org:7600";
    assert_ok(ctl_draft_conf(&draft, &text));
    const char *path = testlib_file(folder, "joined.conf", "%s", text);
    mem_free(text);
    assert_ok(dconf_load(path, NULL, 0, &conf));
    assert_string_equal(conf.joined, testlib_path(folder, "joined"));
    assert_string_equal(dconf_address(&conf), "127.0.0.1:7654"); /* what it listens on, since nobody said */
    assert_string_equal(conf.inviter, "oslo=oslo.example.org:7600");
    assert_string_equal(conf.founded, "");
    conf_deinit(&dconf_schema, &conf);
}

static void a_witness_has_no_worker(void **state)
{
    (void)state;
    struct dconf conf;
    char *text;
    struct ctl_draft draft = good;
    draft.data = NULL;
    draft.witness = true;
    draft.owner = "no";
    draft.joined = "joined";
    draft.inviter_name = "oslo";
    draft.inviter_address = "oslo.example.org:7600";
    assert_ok(ctl_draft_conf(&draft, &text));
    assert_null(strstr(text, "\n[worker]\n"));
    assert_non_null(strstr(text, "\nwitness = yes\n"));
    const char *path = testlib_file(folder, "witness.conf", "%s", text);
    mem_free(text);
    assert_ok(dconf_load(path, NULL, 0, &conf));
    assert_true(conf.witness);
    assert_string_equal(conf.inviter, "oslo=oslo.example.org:7600");
    assert_string_equal(conf.joined, testlib_path(folder, "joined"));
    conf_deinit(&dconf_schema, &conf);
}

static void what_no_configuration_can_hold_is_refused(void **state)
{
    (void)state;
    char *text = NULL;
    struct ctl_draft draft;
#define REFUSES(field, value, part)                                  \
    do {                                                             \
        draft = good;                                                \
        draft.field = value;                                         \
        assert_fails(ERR_CONF, part, ctl_draft_conf(&draft, &text)); \
    } while (0)
    REFUSES(name, "", "1 to 63 letters");
    REFUSES(name, "two words", "1 to 63 letters");
    REFUSES(name, "a\n[worker]", "line break");
    REFUSES(data, "/srv/a\nprogram = /bin/rm", "line break");
    REFUSES(data, "/srv/a ;b", "would read \"/srv/a\"");
    REFUSES(data, "/srv/blank ", "would read \"/srv/blank\"");
    REFUSES(listen, "7600", "--listen 7600: not host:port");
    REFUSES(listen, "*:0", "not host:port");
    REFUSES(address, "paris", "--address paris: not host:port");
    REFUSES(uplink, "fast", "uplink");
    REFUSES(uplink, "1Gbit\nwindow = 1", "line break");
    REFUSES(program, "python3 a.py\n[peer x]", "--program: there is a line break");
    REFUSES(program, "python3 a.py ;b", "--program: \"python3 a.py ;b\" cannot stand");
    REFUSES(device, "gpu", "[worker] device: \"gpu\" is none; there are: cpu, cuda, auto");
    REFUSES(device, "cpu\nprogram = /bin/rm", "--device: there is a line break");
    REFUSES(device, "cuda ;", "--device: \"cuda ;\" cannot stand");
    REFUSES(devices, "0-x", "[worker] devices: 0-x: expected numbers");
    REFUSES(devices, "0 ;1", "--devices: \"0 ;1\" cannot stand");
    REFUSES(ranks, "0", "[worker] ranks: 0 is outside 1 .. 64");
    REFUSES(ranks, "many", "[worker] ranks");
    REFUSES(ranks, "2 ;3", "--ranks: \"2 ;3\" cannot stand");
    REFUSES(tensor_parallel, "2", "[worker] tensor_parallel: 2 processes cannot share each layer");
    REFUSES(tensor_parallel, "1\n", "--tensor-parallel: there is a line break");
    draft = good;
    draft.device = "cpu";
    draft.devices = "0-1";
    assert_fails(ERR_CONF, "[worker] devices: 0-1 names GPUs, but device is cpu", ctl_draft_conf(&draft, &text));
    draft = good;
    draft.listen = "";
    assert_ok(ctl_draft_conf(&draft, &text));
    mem_free(text);
}

/* Where the run spec is known, its batch and layers are those to be shared out. */
static void ranks_that_cannot_share_out_the_run_are_refused(void **state)
{
    (void)state;
    struct runspec spec;
    char *text;
    struct ctl_draft draft = good;
    assert_ok(runspec_parse("[run]\nname = x\nsteps = 9\n[train]\nbatch = 4\n", "test", &spec));
    draft.ranks = "3";
    assert_ok(ctl_draft_conf(&draft, &text));
    mem_free(text);
    draft.spec = &spec;
    assert_fails(ERR_CONF, "[worker] ranks: [train] batch 4 cannot be shared out evenly among 3 ranks",
                 ctl_draft_conf(&draft, &text));
    draft.ranks = "4";
    assert_ok(ctl_draft_conf(&draft, &text));
    mem_free(text);
    runspec_deinit(&spec);
}

static void the_run_spec_is_the_sample_that_is_shipped(void **state)
{
    (void)state;
    struct runspec spec, shipped;
    char *text, *file;
    size_t bytes;
    assert_ok(ctl_draft_run(&text));
    assert_ok(runspec_parse(text, "draft", &spec));
    assert_ok(runspec_load("conf/run.ini", NULL, 0, &shipped));
    assert_true(digest_equal(&spec.digest, &shipped.digest));
    assert_ok(fsio_read("conf/run.ini", 1 << 20, &file, &bytes));
    size_t body = strlen(strstr(file, "\n[run]"));
    assert_int_equal(strncmp(strstr(text, "\n[run]"), strstr(file, "\n[run]"), body - 1), 0);
    mem_free(file);
    mem_free(text);
    runspec_deinit(&spec);
    runspec_deinit(&shipped);
}

int main(void)
{
    assert_ok(digest_init());
    folder = testlib_folder("ctl-draft");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_asked_for_is_in_the_configuration),
        cmocka_unit_test(a_trainer_is_sent_where_it_was_said),
        cmocka_unit_test(a_trainer_of_one_s_own_is_named),
        cmocka_unit_test(another_base_is_allowed_where_that_was_said),
        cmocka_unit_test(who_joins_knows_whom_it_joined),
        cmocka_unit_test(a_witness_has_no_worker),
        cmocka_unit_test(what_no_configuration_can_hold_is_refused),
        cmocka_unit_test(ranks_that_cannot_share_out_the_run_are_refused),
        cmocka_unit_test(the_run_spec_is_the_sample_that_is_shipped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
