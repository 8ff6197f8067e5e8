/* SPDX-License-Identifier: Apache-2.0 */
/* dconf: the sample configuration is the manual; what cannot be meant is refused, with what to do. */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/fsio.h"
#include "common/mem.h"
#include "common/runspec.h"
#include "daemon/dconf.h"

static const char *folder;

static void the_sample_parses_and_documents_every_key(void **state)
{
    (void)state;
    struct dconf conf;
    assert_ok(dconf_load("conf/dilocod.conf", NULL, 0, &conf));
    assert_string_equal(conf.name, "paris");
    testlib_assert_manual(&dconf_schema, &conf, "conf/dilocod.conf");
    conf_deinit(&dconf_schema, &conf);
}

/* ---- an island in a folder ---- */

static void assert_below(const char *path, const char *name)
{
    char want[200];
    snprintf(want, sizeof want, "/srv/paris/%s", name);
    assert_string_equal(path, want);
}

static void what_is_not_said_lies_in_the_islands_folder(void **state)
{
    (void)state;
    char *text;
    size_t text_bytes;
    struct home home, service;
    struct dconf conf;
    const char *path = testlib_file(folder, "home.conf", "[island]\nname = a\n[worker]\ndata = d\n");
    assert_ok(home_find("/srv/paris", &home));
    assert_ok(home_find(NULL, &service));
    assert_ok(dconf_load_home(&home, path, NULL, 0, &conf));
    assert_below(conf.run_path, "run.ini");
    assert_below(conf.key_path, "island.key");
    assert_below(conf.state_folder, "state");
    assert_below(conf.run_folder, "run");
    FILE *file = open_memstream(&text, &text_bytes);
    dconf_print(&home, &conf, file);
    fclose(file);
    assert_non_null(strstr(text, "# Default: /srv/paris/state."));
    assert_null(strstr(text, "/var/lib/diloco"));
    free(text);
    conf_deinit(&dconf_schema, &conf);
    /* One that says otherwise is believed, and a service has nothing of a folder. */
    path = testlib_file(folder, "home.conf",
                        "[island]\nname = a\nrun = /r\nkey = /k\nstate = /s\nsockets = /u\n[worker]\ndata = d\n");
    assert_ok(dconf_load_home(&home, path, NULL, 0, &conf));
    assert_string_equal(conf.run_path, "/r");
    assert_string_equal(conf.key_path, "/k");
    assert_string_equal(conf.state_folder, "/s");
    assert_string_equal(conf.run_folder, "/u");
    conf_deinit(&dconf_schema, &conf);
    path = testlib_file(folder, "home.conf", "[island]\nname = a\nrun = /r\nkey = /k\n[worker]\ndata = d\n");
    assert_ok(dconf_load_home(&service, path, NULL, 0, &conf));
    assert_string_equal(conf.state_folder, "/var/lib/diloco");
    assert_string_equal(conf.run_folder, "/run/diloco");
    conf_deinit(&dconf_schema, &conf);
    assert_fails(ERR_CONF, "/srv/paris/dilocod.conf", dconf_load_home(&home, NULL, NULL, 0, &conf));
    home_free(&home);
    home_free(&service);
}

static void our_trainer_is_sent_to_a_device_that_there_can_be(void **state)
{
    (void)state;
    static const char form[] = "[island]\nname = a\nrun = r\nkey = k\n[worker]\ndata = d\nprogram = %s\ndevice = %s\n";
    static const char *const good[] = {"cpu", "cuda", "auto"}, *const bad[] = {"gpu", "CUDA", "cuda:1", ""};
    struct dconf conf;
    for (size_t i = 0; i < 3; i++) {
        assert_ok(dconf_load(testlib_file(folder, "d.conf", form, "diloco-worker", good[i]), NULL, 0, &conf));
        assert_string_equal(conf.device, good[i]);
        conf_deinit(&dconf_schema, &conf);
    }
    for (size_t i = 0; i < 4; i++)
        assert_fails(ERR_CONF, "there are: cpu, cuda, auto",
                     dconf_load(testlib_file(folder, "d.conf", form, "diloco-worker", bad[i]), NULL, 0, &conf));
    /* Another's program is told none. */
    assert_ok(dconf_load(testlib_file(folder, "d.conf", form, "train.py", "tpu"), NULL, 0, &conf));
    conf_deinit(&dconf_schema, &conf);
}

static enum err load_ranks(const char *program, const char *lines, struct dconf *conf)
{
    return dconf_load(testlib_file(folder, "r.conf",
                                   "[island]\nname = a\nrun = r\nkey = k\n[worker]\ndata = d\nprogram = %s\n%s",
                                   program, lines),
                      NULL, 0, conf);
}

static void ranks_that_share_layers_are_groups_of_one_size(void **state)
{
    (void)state;
    static const char *const good[] = {"", "ranks = 4\ntensor_parallel = 2\n", "ranks = 4\ntensor_parallel = 4\n",
                                       "device = cuda\ndevices = 0-2,7\ntensor_parallel = 2\n",
                                       "device = auto\nranks = 2\ndevices = 6,1\ntensor_parallel = 2\n"};
    static const struct {
        const char *lines, *says;
    } bad[] = {
        {"tensor_parallel = 2\n",
         "[worker] tensor_parallel: 2 processes cannot share each layer where ranks makes 1 in all"},
        {"ranks = 4\ntensor_parallel = 3\n",
         "3 processes cannot share each layer where ranks makes 4 in all; that has to be a multiple"},
        {"device = cuda\ndevices = 0-2\ntensor_parallel = 2\n",
         "2 processes cannot share each layer where devices makes 3 in all"},
        {"devices = 0-x\n", "r.conf: [worker] devices: 0-x: expected numbers and stretches of them"},
        {"devices = 0-1\n", "r.conf: [worker] devices: 0-1 names GPUs, but device is cpu; say device = cuda, or"},
        {"device = cuda\nranks = 2\ndevices = 0-2\n", "[worker] ranks: 2, but devices 0-2 makes 3; leave one"},
        {"tensor_parallel = 65\n", "tensor_parallel"},
        {"tensor_parallel = 0\n", "tensor_parallel"}};
    struct dconf conf;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_ok(load_ranks("diloco-worker", good[i], &conf));
        assert_int_equal(conf.tensor_parallel, i == 0 ? 1 : i == 2 ? 4 : 2);
        conf_deinit(&dconf_schema, &conf);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_fails(ERR_CONF, bad[i].says, load_ranks("diloco-worker", bad[i].lines, &conf));
    /* Another's program is told none. */
    assert_ok(load_ranks("train.py", bad[0].lines, &conf));
    conf_deinit(&dconf_schema, &conf);
}

/* As the trainer would, before it is started again and again. */
static void ranks_can_share_out_the_run(void **state)
{
    (void)state;
    static const struct {
        const char *program, *lines, *says;
    } rows[] = {
        {"diloco-worker", "", NULL},
        {"diloco-worker", "ranks = 4\ntensor_parallel = 2\n", NULL},
        {"diloco-worker", "ranks = 3\n", "[worker] ranks: [train] batch 4 cannot be shared out evenly among 3 ranks"},
        {"/opt/diloco-worker --rounding stochastic", "ranks = 3\n", "batch 4 cannot be shared"},
        {"diloco-worker", "device = cuda\ndevices = 0-2\n", "[worker] devices: [train] batch 4 cannot be shared out"},
        {"diloco-worker", "ranks = 8\ntensor_parallel = 8\n",
         "heads 4 cannot be shared out evenly among 8 tensor-parallel ranks; take a tensor_parallel that divides it"},
        {"diloco-worker", "ranks = 3\nautostart = no\n", NULL}, /* nothing is started by itself */
        {"train.py", "ranks = 3\n", NULL},
        {"", "ranks = 3\n", NULL},
    };
    struct runspec spec;
    assert_ok(runspec_parse("[run]\nname = x\nsteps = 9\n[model]\nheads = 4\n[train]\nbatch = 4\n", "test", &spec));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct dconf conf;
        assert_ok(load_ranks(rows[i].program, rows[i].lines, &conf));
        if (rows[i].says == NULL)
            assert_ok(dconf_check_grid(&conf, &spec));
        else
            assert_fails(ERR_CONF, rows[i].says, dconf_check_grid(&conf, &spec));
        conf_deinit(&dconf_schema, &conf);
    }
    runspec_deinit(&spec);
}

static enum err load_net(const char *lines, struct dconf *conf)
{
    const char *path =
        testlib_file(folder, "n.conf", "[island]\nname = a\nrun = r\nkey = k\n[worker]\ndata = d\n[net]\n%s", lines);
    return dconf_load(path, NULL, 0, conf);
}

static void ways_to_others_are_read_in_order(void **state)
{
    (void)state;
    struct dconf conf;
    struct view_way *ways;
    size_t count;
    assert_ok(load_net("inviter = lima=l:3\nreach = oslo=o.example.org:1  rome=[::1]:2\n", &conf));
    assert_ok(dconf_ways(&conf, &ways, &count));
    assert_int_equal(count, 3);
    assert_string_equal(ways[0].name, "oslo");
    assert_string_equal(ways[0].address, "o.example.org:1");
    assert_string_equal(ways[1].name, "rome");
    assert_string_equal(ways[1].address, "[::1]:2");
    assert_string_equal(ways[2].name, "lima");
    assert_true(ways[0].first && ways[1].first && !ways[2].first);
    mem_free(ways);
    conf_deinit(&dconf_schema, &conf);
    assert_ok(load_net("", &conf));
    assert_ok(dconf_ways(&conf, &ways, &count));
    assert_int_equal(count, 0);
    mem_free(ways);
    conf_deinit(&dconf_schema, &conf);
}

static void what_is_no_way_is_refused(void **state)
{
    (void)state;
    struct dconf conf;
    char lines[400], name[100];
    static const char *const bad[] = {"oslo", "oslo=", "=o:1", "oslo=o", "oslo=o:0", "os,lo=o:1", "rome=r:1 oslo"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        snprintf(lines, sizeof lines, "reach = %s\n", bad[i]);
        assert_fails(ERR_CONF, "\" is not NAME=HOST:PORT, as in oslo=", load_net(lines, &conf));
    }
    memset(name, 'n', DCONF_NAME_MAX + 1);
    name[DCONF_NAME_MAX + 1] = '\0';
    snprintf(lines, sizeof lines, "inviter = %s=o:1\n", name);
    assert_fails(ERR_CONF, "n.conf: [net] inviter: \"nnn", load_net(lines, &conf));
    snprintf(lines, sizeof lines, "inviter = %s=o:1\n", name + 1);
    assert_ok(load_net(lines, &conf));
    conf_deinit(&dconf_schema, &conf);
}

static void wrong_configurations_are_refused(void **state)
{
    (void)state;
    struct dconf conf;
    assert_fails(ERR_CONF, "n.conf:9: [peer b]: a configuration lists no other islands any more",
                 load_net("[peer b]\npublic_key = short\n", &conf));
    assert_non_null(strstr(err_text(), "dilococtl join TOKEN"));
    const char *spaced = testlib_file(folder, "s.conf", "[island]\nname = a b\nrun = r\nkey = k\n[worker]\ndata = d\n");
    assert_fails(ERR_CONF, "the name \"a b\" must be", dconf_load(spaced, NULL, 0, &conf));
    const char *path = testlib_file(folder, "d.conf", "[island]\nname = a\nrun = r\nkey = k\n");
    assert_fails(ERR_CONF, "[worker] data: missing; give the path of the corpus", dconf_load(path, NULL, 0, &conf));
    path = testlib_file(folder, "m.conf",
                        "[island]\nname = a\nrun = r\nkey = k\n[worker]\ndata = a=x:0@9\ndata = b=y:0\n");
    assert_fails(ERR_CONF, "[worker] data: all sources have weight 0 at step 9", dconf_load(path, NULL, 0, &conf));
    path =
        testlib_file(folder, "m.conf", "[island]\nname = a\nrun = r\nkey = k\n[worker]\ndata = a=x:1\ndata = a=y:1\n");
    assert_fails(ERR_CONF, "m.conf: [worker] data: source a: there are two of this name",
                 dconf_load(path, NULL, 0, &conf));
    path = testlib_file(folder, "m.conf",
                        "[island]\nname = a\nrun = r\nkey = k\n[worker]\nprogram = mine\ndata = sleep=40\n");
    assert_ok(dconf_load(path, NULL, 0, &conf)); /* a program of one's own may mean anything by it */
    assert_string_equal(conf.data, "sleep=40");
    conf_deinit(&dconf_schema, &conf);
}

static void a_witness_has_no_trainer(void **state)
{
    (void)state;
    struct dconf conf;
    const char *path =
        testlib_file(folder, "w.conf", "[island]\nname = w\nrun = r\nkey = k\nwitness = yes\n[worker]\ndata = d\n");
    assert_fails(ERR_CONF, "a witness trains on nothing", dconf_load(path, NULL, 0, &conf));
    path = testlib_file(folder, "w.conf", "[island]\nname = w\nrun = r\nkey = k\nwitness = yes\nowner = yes\n");
    assert_fails(ERR_CONF, "a witness owns nothing", dconf_load(path, NULL, 0, &conf));
    path = testlib_file(folder, "w.conf", "[island]\nname = w\nrun = r\nkey = k\nwitness = yes\n");
    assert_ok(dconf_load(path, NULL, 0, &conf));
    assert_string_equal(conf.worker_program, "");
    conf_deinit(&dconf_schema, &conf);
}

int main(void)
{
    assert_ok(digest_init());
    folder = testlib_folder("dconf");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_sample_parses_and_documents_every_key),
        cmocka_unit_test(what_is_not_said_lies_in_the_islands_folder),
        cmocka_unit_test(our_trainer_is_sent_to_a_device_that_there_can_be),
        cmocka_unit_test(ranks_that_share_layers_are_groups_of_one_size),
        cmocka_unit_test(ranks_can_share_out_the_run),
        cmocka_unit_test(ways_to_others_are_read_in_order),
        cmocka_unit_test(what_is_no_way_is_refused),
        cmocka_unit_test(wrong_configurations_are_refused),
        cmocka_unit_test(a_witness_has_no_trainer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
