/* SPDX-License-Identifier: Apache-2.0 */
/* ctl_init: an island is made whole or not at all, and what was there before is not touched. */
#include "tests/lib/testlib.h"

#include <netinet/in.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/fsio.h"
#include "common/mem.h"
#include "common/runspec.h"
#include "daemon/ctl/ctl_init.h"
#include "net/transport/ident.h"
#include "tests/lib/proc.h"
#include "tests/lib/published.h"

static const char *tools;
static char listen_on[40]; /* where nobody does */
static char folder[] = "/tmp/diloco-init-XXXXXX";
static struct home home;
static struct ctl_init init;

/* What is called dilocod in PATH, and is asked whether the configuration is good. */
static void play_check(const char *script)
{
    const char *path = testlib_file(tools, "dilocod", "#!/bin/sh\necho \"$*\" >%s/asked\n%s", tools, script);
    assert_int_equal(chmod(path, 0755), 0);
}

static bool there(const char *path)
{
    return access(path, F_OK) == 0;
}

static const char *inside(const char *name)
{
    return testlib_path(home.folder, name);
}

static char *read_file(const char *path)
{
    char *text;
    size_t bytes;
    assert_ok(fsio_read(path, 1 << 20, &text, &bytes));
    return text;
}

static int begin(void **state)
{
    (void)state;
    assert_ok(home_find(testlib_path(folder, "paris"), &home));
    testlib_file(folder, "text", "some text\n");
    init = (struct ctl_init){.name = "paris", .data = testlib_path(folder, "text"), .listen = listen_on};
    snprintf(listen_on, sizeof listen_on, "127.0.0.1:%u", proc_free_port());
    play_check("exit 0\n");
    return 0;
}

static int end(void **state)
{
    (void)state;
    char command[200];
    home_free(&home);
    snprintf(command, sizeof command, "rm -rf %s/*", folder);
    return system(command);
}

static void all_is_made_and_checked_before_it_counts(void **state)
{
    (void)state;
    struct stat status;
    struct ident ident;
    assert_ok(ctl_init(&home, &init));
    assert_true(there(home.conf) && there(home.run) && there(home.state) && there(home.sockets));
    assert_false(there(inside("dilocod.conf.draft")));
    assert_int_equal(stat(home.key, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    assert_ok(ident_load(home.key, &ident));
    char *asked = read_file(testlib_path(tools, "asked"));
    assert_non_null(strstr(asked, "--check-config --config "));
    assert_non_null(strstr(asked, "dilocod.conf.draft --home "));
    mem_free(asked);
}

/* As in an active Python environment, which the shell that starts the daemon need not have. */
static void a_program_is_the_one_that_is_found_now(void **state)
{
    (void)state;
    char want[700], before[4096], path[5000], name[] = "my-python train.py --lr 1";
    const char *tool = testlib_file(tools, "my-python", "#!/bin/sh\n");
    assert_int_equal(chmod(tool, 0755), 0);
    snprintf(before, sizeof before, "%s", getenv("PATH"));
    snprintf(path, sizeof path, "%s:%s", tools, before);
    setenv("PATH", path, 1);
    init.program = name;
    assert_ok(ctl_init(&home, &init));
    setenv("PATH", before, 1);
    char *conf = read_file(home.conf);
    snprintf(want, sizeof want, "\nprogram = %s train.py --lr 1\n", tool);
    assert_non_null(strstr(conf, want));
    mem_free(conf);
}

/* What such a program trains on is its own business. */
static void a_program_of_ones_own_needs_no_text(void **state)
{
    (void)state;
    static const char *const programs[] = {"", "python3 train.py", "'/srv/my trainer' --lr 1"};
    init.data = NULL;
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++) {
        init.program = programs[i];
        assert_ok(ctl_init(&home, &init));
        char *conf = read_file(home.conf);
        assert_non_null(strstr(conf, "\ndata =\n"));
        mem_free(conf);
        assert_int_equal(end(state), 0);
        init.listen = listen_on;
        assert_ok(home_find(testlib_path(folder, "paris"), &home));
    }
    init.program = "/usr/bin/diloco-worker --threads 2";
    assert_fails(ERR_ARG, "--data FILE", ctl_init(&home, &init));
    assert_fails(ERR_ARG, "a program of your own needs no text", ctl_init(&home, &init));
    assert_false(there(home.folder));
}

static void a_second_one_changes_nothing(void **state)
{
    (void)state;
    assert_ok(ctl_init(&home, &init));
    char *conf = read_file(home.conf), *key = read_file(home.key);
    init.name = "oslo";
    assert_fails(ERR_STATE, "an island is here already", ctl_init(&home, &init));
    assert_fails(ERR_STATE, "dilococtl start starts it", ctl_init(&home, &init));
    char *conf_now = read_file(home.conf), *key_now = read_file(home.key);
    assert_string_equal(conf, conf_now);
    assert_string_equal(key, key_now);
    mem_free(conf);
    mem_free(key);
    mem_free(conf_now);
    mem_free(key_now);
}

/* As a try leaves it that was killed, or somebody who has called keygen. */
static void a_key_that_is_there_is_taken_up(void **state)
{
    (void)state;
    struct ident ident, now;
    assert_ok(fsio_mkdirs(home.folder, 0755));
    assert_ok(ident_generate(&ident));
    assert_ok(ident_save(&ident, home.key));
    assert_ok(ctl_init(&home, &init));
    assert_ok(ident_load(home.key, &now));
    assert_string_equal(ident.public_text, now.public_text);
}

static void a_run_spec_is_fitted_to_the_model_that_it_begins_from(void **state)
{
    (void)state;
    const struct published what = {.config = published_small};
    const char *model = published_write("init-model", &what);
    struct runspec spec;
    char *place = realpath(model, NULL);
    init.from = model;
    init.run = testlib_file(folder, "given.ini", "[run]\nname = given\nsteps = 9\n[model]\nwidth = 512\n");
    assert_ok(ctl_init(&home, &init));
    assert_ok(runspec_load(home.run, NULL, 0, &spec));
    assert_string_equal(spec.name, "given");
    assert_string_equal(spec.init, place);
    assert_int_equal(strlen(spec.init_digest), 64);
    assert_true(spec.width == 32 && spec.kv_heads == 2);
    runspec_deinit(&spec);
    free(place);
}

static void a_model_that_cannot_be_begun_from_makes_no_island(void **state)
{
    (void)state;
    const struct published what = {.config = published_small, .less = "model.norm.weight"};
    init.from = published_write("init-less", &what);
    assert_fails(ERR_CORRUPT, "tensor model.norm.weight is missing", ctl_init(&home, &init));
    init.from = folder;
    assert_fails(ERR_CONF, "no config.json is in it", ctl_init(&home, &init));
    init.from = published_write("init ;odd", &(struct published){.config = published_small});
    assert_fails(ERR_CONF, "cannot stand in a run spec", ctl_init(&home, &init));
    assert_false(there(home.folder));
}

/* The island keeps its own copy, elsewhere. */
static void a_place_that_a_run_spec_names_is_a_whole_path(void **state)
{
    (void)state;
    init.run = testlib_file(folder, "moves.ini", "[run]\nname=m\nsteps=9\ninit=model\ninit_digest=%064d\n", 7);
    assert_fails(ERR_CONF, "init is relative to its folder", ctl_init(&home, &init));
    assert_false(there(home.conf));
    init.run = testlib_file(folder, "stays.ini", "[run]\nname=m\nsteps=9\ninit=/model\ninit_digest=%064d\n", 7);
    assert_ok(ctl_init(&home, &init));
}

static void a_run_spec_that_is_there_is_kept_or_in_the_way(void **state)
{
    (void)state;
    const char *given = testlib_file(folder, "given.ini", "[run]\nname = given\nsteps = 9\n");
    assert_ok(fsio_mkdirs(home.folder, 0755));
    testlib_file(home.folder, "run.ini", "[run]\nname = there\nsteps = 9\n");
    init.run = given;
    assert_fails(ERR_STATE, "leave --run out", ctl_init(&home, &init));
    assert_false(there(home.conf) || there(home.key));
    init.run = NULL;
    assert_ok(ctl_init(&home, &init));
    char *run = read_file(home.run);
    assert_string_equal(run, "[run]\nname = there\nsteps = 9\n");
    mem_free(run);
}

static void assert_run_has(const char *line)
{
    char *run = read_file(home.run);
    if (strstr(run, line) == NULL)
        fail_msg("no %s in %s", line, run);
    mem_free(run);
}

static void a_run_is_as_long_as_was_said(void **state)
{
    (void)state;
    init.steps = "300";
    assert_ok(ctl_init(&home, &init));
    assert_run_has("\nsteps = 300\n");
    assert_run_has("\nname = my-run\n");
    assert_int_equal(end(NULL), 0);
    assert_int_equal(begin(NULL), 0);
    init.run = testlib_file(folder, "given.ini", "[run]\nname = given\n  steps=9\n[sync]\ninterval = 8\n");
    init.steps = "400";
    assert_ok(ctl_init(&home, &init));
    assert_run_has("[run]\nname = given\n  steps=400\n[sync]\ninterval = 8\n");
}

static void a_length_that_will_not_do_makes_no_island(void **state)
{
    (void)state;
    init.steps = "many";
    assert_fails(ERR_CONF, "steps", ctl_init(&home, &init));
    assert_false(there(home.conf));
    init.run = testlib_file(folder, "given.ini", "[run]\nname = given\nsteps\t= 9\n");
    init.steps = "400";
    assert_fails(ERR_CONF, "--steps 400: the run spec has no line", ctl_init(&home, &init));
    assert_false(there(home.conf));
    init.run = NULL;
    assert_ok(fsio_mkdirs(home.folder, 0755));
    testlib_file(home.folder, "run.ini", "[run]\nname = there\nsteps = 9\n");
    assert_fails(ERR_STATE, "leave --steps out", ctl_init(&home, &init));
    assert_false(there(home.conf));
}

static void assert_nothing_was_made(void)
{
    assert_false(there(home.conf) || there(inside("dilocod.conf.draft")) || there(home.key) || there(home.run) ||
                 there(home.state));
}

static void a_failure_takes_back_what_was_made(void **state)
{
    (void)state;
    play_check("echo no >&2\nexit 2\n");
    assert_fails(ERR_CONF, "nothing was made", ctl_init(&home, &init));
    assert_false(there(home.folder));
    /* Also where the folder was there, and something stands in the way late. */
    play_check("exit 0\n");
    assert_ok(fsio_mkdirs(home.folder, 0755));
    testlib_file(home.folder, "run", "in the way\n");
    assert_fails(ERR_CONF, "/run: not a folder", ctl_init(&home, &init));
    assert_nothing_was_made();
    assert_true(there(home.folder) && there(home.sockets));
    assert_int_equal(unlink(home.sockets), 0);
    assert_ok(ctl_init(&home, &init));
}

static void a_failure_leaves_what_was_there(void **state)
{
    (void)state;
    struct ident ident, now;
    assert_ok(fsio_mkdirs(home.state, 0755));
    assert_ok(ident_generate(&ident));
    assert_ok(ident_save(&ident, home.key));
    testlib_file(home.folder, "run.ini", "[run]\nname = there\nsteps = 9\n");
    play_check("exit 2\n");
    assert_fails(ERR_CONF, "nothing was made", ctl_init(&home, &init));
    assert_ok(ident_load(home.key, &now));
    assert_string_equal(ident.public_text, now.public_text);
    assert_true(there(home.run) && there(home.state));
    assert_false(there(home.conf));
}

/* At any of its steps, as when the machine goes down. */
static void one_that_is_killed_does_not_stop_the_next(void **state)
{
    (void)state;
    play_check("kill -KILL $PPID\n");
    int status, pid = fork();
    if (pid == 0)
        _exit(ctl_init(&home, &init) == ERR_OK);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_true(there(home.key) && !there(home.conf));
    char *key = read_file(home.key);
    play_check("exit 0\n");
    assert_ok(ctl_init(&home, &init));
    char *now = read_file(home.key);
    assert_string_equal(key, now);
    mem_free(key);
    mem_free(now);
}

static void what_makes_no_sense_is_refused_before_anything_is_made(void **state)
{
    (void)state;
#define REFUSES(field, value, code, part)                    \
    do {                                                     \
        struct ctl_init bad = init;                          \
        bad.field = value;                                   \
        assert_fails((code), (part), ctl_init(&home, &bad)); \
        assert_false(there(home.folder));                    \
    } while (0)
    REFUSES(name, NULL, ERR_ARG, "--name NAME");
    REFUSES(data, NULL, ERR_ARG, "--data FILE");
    REFUSES(name, "two words", ERR_CONF, "letters, digits");
    REFUSES(data, "/no/such/text", ERR_CONF, "--data /no/such/text: there is no such file");
    REFUSES(data, "/no/such/*.txt", ERR_CONF, "there is no such file");
    REFUSES(data, folder, ERR_CONF, "a folder");
    REFUSES(data, "a=/no/such/text:1", ERR_CONF, "--data /no/such/text: there is no such file");
    REFUSES(data, "a=/no/such/text:x", ERR_CONF, "--data: source a: weight \"x\" is not a number");
    REFUSES(data, "a=/no/such/text:0", ERR_CONF, "--data: all sources have weight 0");
    REFUSES(data, "/dev/null", ERR_CONF, "--data /dev/null: no file but a device");
    REFUSES(data, testlib_file(folder, "empty", "%s", ""), ERR_CONF, "there is nothing in it");
    REFUSES(run, "/no/such/run.ini", ERR_CONF, "/no/such/run.ini");
    REFUSES(run, testlib_file(tools, "bad.ini", "[run]\nname = x\nsteps = many\n"), ERR_CONF, "bad.ini:3");
    REFUSES(listen, "7600", ERR_CONF, "--listen");
    REFUSES(address, "oslo", ERR_CONF, "--address");
    REFUSES(device, "gpu", ERR_CONF, "[worker] device: \"gpu\" is none");
    REFUSES(devices, "0,0", ERR_CONF, "device 0 is there twice");
    REFUSES(tensor_parallel, "2", ERR_CONF, "[worker] tensor_parallel: 2 processes");
    init.run = testlib_file(tools, "batch.ini", "[run]\nname = x\nsteps = 9\n[train]\nbatch = 4\n");
    REFUSES(ranks, "3", ERR_CONF, "batch 4 cannot be shared out evenly among 3 ranks");
}

/* Those that it may write to a configuration, but that would not do: nobody is asked, and no program either. */
static void what_the_trainer_would_refuse_is_found_before(void **state)
{
    (void)state;
    play_check("exit 0\n");
    init.ranks = "3";
    assert_ok(fsio_mkdirs(home.folder, 0755));
    testlib_file(home.folder, "run.ini", "[run]\nname = there\nsteps = 9\n[train]\nbatch = 4\n");
    assert_fails(ERR_CONF, "batch 4 cannot be shared out evenly among 3 ranks", ctl_init(&home, &init));
    assert_false(there(home.conf) || there(home.key) || there(home.state));
    init.ranks = "2";
    assert_ok(ctl_init(&home, &init));
    char *conf = read_file(home.conf);
    assert_non_null(strstr(conf, "\nranks = 2\n"));
    mem_free(conf);
}

static bool asked;

static enum err note_asked(void *user, const struct ident *ident, const char *listen, struct ctl_admission *admission)
{
    (void)user, (void)ident, (void)listen, (void)admission;
    asked = true;
    return err_set(ERR_STATE, "refused");
}

/* It is from that file that an island with an emptied state folder goes on. */
static void a_failure_leaves_what_lies_beside_the_key(void **state)
{
    (void)state;
    struct ident ident;
    assert_ok(fsio_mkdirs(home.folder, 0755));
    assert_ok(ident_generate(&ident));
    assert_ok(ident_save(&ident, home.key));
    testlib_file(home.folder, "island.key.config", "of the run before\n");
    init.redeem = note_asked;
    assert_fails(ERR_STATE, "refused", ctl_init(&home, &init));
    assert_true(there(inside("island.key.config")));
    init.redeem = NULL;
    play_check("exit 2\n");
    assert_fails(ERR_CONF, "nothing was made", ctl_init(&home, &init));
    assert_true(there(inside("island.key.config")));
    play_check("exit 0\n");
    assert_ok(ctl_init(&home, &init));
    assert_false(there(inside("island.key.config")));
    char *aside = read_file(inside("island.key.config.before"));
    assert_string_equal(aside, "of the run before\n");
    mem_free(aside);
}

static struct ident admitted;

static enum err admit(void *user, const struct ident *ident, const char *listen, struct ctl_admission *admission)
{
    (void)user, (void)listen;
    admitted = *ident;
    admission->config_bytes = 4;
    snprintf(admission->inviter_name, sizeof admission->inviter_name, "oslo");
    snprintf(admission->inviter_address, sizeof admission->inviter_address, "127.0.0.1:7600");
    assert_ok(mem_new(1, admission->config_bytes, "a configuration", &admission->config));
    return mem_strdup("[run]\nname = theirs\nsteps = 9\n", &admission->run_text);
}

static void assert_conf_has(const char *format, const char *value)
{
    char line[300];
    char *conf = read_file(home.conf);
    snprintf(line, sizeof line, format, value);
    if (strstr(conf, line) == NULL)
        fail_msg("no %s in %s", line, conf);
    mem_free(conf);
}

/* After reset, with settings of one's own: else it would be another island, and its old name be left on the roster. */
static void who_joins_anew_keeps_the_key_that_its_settings_name(void **state)
{
    (void)state;
    struct ident ident;
    const char *key = testlib_path(folder, "elsewhere.key");
    assert_ok(fsio_mkdirs(home.folder, 0755));
    assert_ok(ident_generate(&ident));
    assert_ok(ident_save(&ident, key));
    testlib_file(home.folder, "dilocod.conf",
                 "[island]\nname = paris\nrun = run.ini\nkey = %s\n[worker]\ndata = text\n", key);
    testlib_file(folder, "elsewhere.key.config", "of the run before\n");
    init.redeem = admit;
    assert_ok(ctl_init(&home, &init));
    assert_string_equal(admitted.public_text, ident.public_text);
    assert_conf_has("\nkey = %s\n", key);
    assert_false(there(home.key) || there(testlib_path(folder, "elsewhere.key.config")));
    assert_true(there(inside("dilocod.conf.before")));
    /* It is taken away, so that a new one is made. */
    assert_int_equal(unlink(key), 0);
    assert_ok(ctl_init(&home, &init));
    assert_string_not_equal(admitted.public_text, ident.public_text);
    assert_conf_has("\nkey = %s\n", "island.key");
    assert_ok(ident_load(home.key, &ident));
    assert_string_equal(admitted.public_text, ident.public_text);
    testlib_file(home.folder, "dilocod.conf", "nonsense\n");
    assert_fails(ERR_CONF, "it says where this island's key is: mend it, or move it away", ctl_init(&home, &init));
}

/* A new island would ask for them at once; whoever has a copy of the old folder has them, too. */
static void keys_of_a_change_before_are_not_asked_for(void **state)
{
    (void)state;
    static const char *const ends[] = {".next", ".dropped", ".before"};
    char path[300], aside[310];
    struct ident ident;
    assert_ok(fsio_mkdirs(home.folder, 0755));
    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s%s", home.key, ends[i]);
        assert_ok(ident_generate(&ident));
        assert_ok(ident_save(&ident, path));
    }
    assert_ok(ctl_init(&home, &init));
    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s%s", home.key, ends[i]);
        snprintf(aside, sizeof aside, "%s.before", path);
        assert_true(!there(path) && there(aside));
    }
}

/* A run that has let it in has used its token up. */
static void where_it_cannot_listen_nothing_is_made_and_nobody_asked(void **state)
{
    (void)state;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    char used[40], all[40];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &bytes), 0);
    snprintf(used, sizeof used, "127.0.0.1:%u", ntohs(address.sin_port));
    snprintf(all, sizeof all, "*:%u", ntohs(address.sin_port));
    for (int joins = 0; joins < 2; joins++) {
        asked = false;
        init.redeem = joins ? note_asked : NULL;
        REFUSES(listen, used, ERR_CONF, "127.0.0.1:");
        REFUSES(listen, used, ERR_CONF, "the port is in use; choose another with --listen");
        REFUSES(listen, all, ERR_CONF, "the port is in use");
        REFUSES(listen, "192.0.2.1:7600", ERR_CONF, "192.0.2.1:7600: this machine has no such address");
        REFUSES(listen, "7600", ERR_CONF, "--listen 7600: not host:port");
        REFUSES(name, "two words", ERR_CONF, "letters, digits");
        REFUSES(device, "gpu", ERR_CONF, "[worker] device: \"gpu\" is none");
        REFUSES(devices, "0-x", ERR_CONF, "expected numbers");
        REFUSES(ranks, "0", ERR_CONF, "[worker] ranks: 0 is outside");
        assert_false(asked);
    }
    close(fd);
    assert_fails(ERR_STATE, "refused", ctl_init(&home, &init)); /* the port is free again after a try, too */
    assert_true(asked);
}

static void relative_names_are_of_here(void **state)
{
    (void)state;
    char here[4096], *conf;
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(folder), 0);
    init.data = "t*t";
    enum err err = ctl_init(&home, &init);
    assert_int_equal(chdir(here), 0);
    assert_ok(err);
    conf = read_file(home.conf);
    char want[200];
    snprintf(want, sizeof want, "\ndata = %s/t*t\n", folder);
    assert_non_null(strstr(conf, want));
    mem_free(conf);
}

static void a_mixture_is_written_with_a_line_for_each_source(void **state)
{
    (void)state;
    char here[4096], *conf;
    testlib_file(folder, "my book", "some text\n");
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(folder), 0);
    init.data = "a=text:0.7 b='my book':0.3@0,1@10";
    enum err err = ctl_init(&home, &init);
    assert_int_equal(chdir(here), 0);
    assert_ok(err);
    conf = read_file(home.conf);
    char want[300];
    snprintf(want, sizeof want, "\ndata = a=%s/text:0.7\ndata = b=%s/my\\ book:0.3@0,1@10\n", folder, folder);
    assert_non_null(strstr(conf, want));
    mem_free(conf);
}

static void assert_listens(const char *want)
{
    char line[64];
    assert_ok(ctl_init(&home, &init));
    char *conf = read_file(home.conf);
    snprintf(line, sizeof line, "\nlisten = %s\n", want);
    if (strstr(conf, line) == NULL)
        fail_msg("it does not listen on %s:\n%s", want, conf);
    mem_free(conf);
    assert_int_equal(unlink(home.conf), 0);
}

/* As a daemon does, where old connections of that port may still be known. -1: another process was faster. */
static int listen_at(unsigned port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address.sin_port = htons((uint16_t)port);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 1) == 0)
        return fd;
    close(fd);
    return -1;
}

/* Ports of the whole machine are chosen from, on which other tests listen, too. */
static void a_port_is_chosen_on_which_nobody_listens(void **state)
{
    (void)state;
    unsigned port = 0;
    int fd = -1;
    for (int tries = 0; fd < 0 && tries < 20; tries++) {
        port = ctl_init_port();
        assert_in_range(port, 7600, 7699);
        fd = listen_at(port);
    }
    assert_true(fd >= 0);
    assert_int_not_equal(ctl_init_port(), port);
    close(fd);
    assert_listens(listen_on);
    char reached[64], want[16];
    unsigned free_port = proc_free_port();
    snprintf(reached, sizeof reached, "paris.example.org:%u", free_port);
    snprintf(want, sizeof want, "*:%u", free_port);
    init.listen = NULL;
    init.address = reached;
    assert_listens(want);
}

static struct home service_home(void)
{
    return (struct home){.conf = (char *)(uintptr_t)testlib_path(folder, "etc/dilocod.conf"),
                         .key = (char *)(uintptr_t)testlib_path(folder, "etc/key/island.key"),
                         .run = (char *)(uintptr_t)testlib_path(folder, "etc/run.ini"),
                         .state = (char *)(uintptr_t)testlib_path(folder, "var/state"),
                         .sockets = (char *)(uintptr_t)testlib_path(folder, "run")};
}

/* By root, for another: who can read what was made is not only root. And another key comes beside the present one. */
static void the_service_s_user_owns_key_and_state(void **state)
{
    (void)state;
    struct stat status;
    const struct passwd *nobody = getpwnam("nobody");
    if (geteuid() != 0 || nobody == NULL)
        skip_because("only root can give files to another user");
    const struct home service = service_home();
    init.user = "nobody";
    mode_t mask = umask(077);
    assert_ok(ctl_init(&service, &init));
    umask(mask);
    assert_int_equal(stat(service.key, &status), 0);
    assert_true(status.st_uid == nobody->pw_uid && (status.st_mode & 0777) == 0600);
    assert_int_equal(stat(testlib_path(folder, "etc/key"), &status), 0);
    assert_true(status.st_uid == nobody->pw_uid && (status.st_mode & 0777) == 0700);
    char *conf = read_file(service.conf);
    assert_non_null(strstr(conf, "/etc/key/island.key\n"));
    mem_free(conf);
    assert_int_equal(stat(service.state, &status), 0);
    assert_true(status.st_uid == nobody->pw_uid && (status.st_mode & 0777) == 0750);
    assert_int_equal(stat(service.conf, &status), 0);
    assert_true(status.st_uid == 0 && (status.st_mode & 0777) == 0644);
    assert_false(there(service.sockets));
}

/* As `make install` leaves it, or keygen by hand. */
static void a_folder_of_the_key_that_is_there_is_given_to_the_service_s_user(void **state)
{
    (void)state;
    struct stat status;
    struct ident ident, now;
    const char *of_key = testlib_path(folder, "etc/key");
    const struct passwd *nobody = getpwnam("nobody");
    if (geteuid() != 0 || nobody == NULL)
        skip_because("only root can give files to another user");
    const struct home service = service_home();
    init.user = "nobody";
    assert_ok(fsio_mkdirs(of_key, 0700));
    play_check("exit 2\n");
    assert_fails(ERR_CONF, "nothing was made", ctl_init(&service, &init));
    assert_true(there(of_key) && !there(service.key));
    assert_ok(ident_generate(&ident));
    assert_ok(ident_save(&ident, service.key));
    play_check("exit 0\n");
    assert_ok(ctl_init(&service, &init));
    assert_int_equal(stat(of_key, &status), 0);
    assert_int_equal(status.st_uid, nobody->pw_uid);
    assert_ok(ident_load(service.key, &now));
    assert_string_equal(ident.public_text, now.public_text);
}

static int end_all(void **state)
{
    (void)state;
    free((void *)(uintptr_t)tools);
    return rmdir(folder);
}

/* What root starts from there another user could change. */
static void root_makes_no_island_where_others_can_write(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip_because("not root");
    char *shared = home.folder;
    assert_int_equal(mkdir(shared, 0755), 0);
    static const struct {
        mode_t mode;
        uid_t owner;
    } cases[] = {{0777, 0}, {0775, 0}, {0755, 4711}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(chown(shared, cases[i].owner, 0), 0);
        assert_int_equal(chmod(shared, cases[i].mode), 0);
        assert_fails(ERR_CONF, "a user other than root can write to it", ctl_init(&home, &init));
        assert_int_equal(access(home.key, F_OK), -1);
    }
    assert_int_equal(chown(shared, 0, 0), 0);
    assert_int_equal(chmod(shared, 01777), 0);
    assert_fails(ERR_CONF, "a user other than root can write to it", ctl_init(&home, &init));
    assert_int_equal(chmod(shared, 0700), 0);
    assert_ok(ctl_init(&home, &init));
}

int main(void)
{
    char path[4096];
    if (mkdtemp(folder) == NULL)
        return 1;
    assert_ok(digest_init());
    tools = realpath(testlib_folder("ctl-init"), NULL);
    snprintf(path, sizeof path, "%s:%s", tools, getenv("PATH"));
    setenv("PATH", path, 1);
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        CASE(all_is_made_and_checked_before_it_counts),
        CASE(a_program_is_the_one_that_is_found_now),
        CASE(a_program_of_ones_own_needs_no_text),
        CASE(a_second_one_changes_nothing),
        CASE(a_key_that_is_there_is_taken_up),
        CASE(a_run_spec_that_is_there_is_kept_or_in_the_way),
        CASE(a_run_is_as_long_as_was_said),
        CASE(a_length_that_will_not_do_makes_no_island),
        CASE(a_run_spec_is_fitted_to_the_model_that_it_begins_from),
        CASE(a_model_that_cannot_be_begun_from_makes_no_island),
        CASE(a_place_that_a_run_spec_names_is_a_whole_path),
        CASE(a_failure_takes_back_what_was_made),
        CASE(a_failure_leaves_what_was_there),
        CASE(a_failure_leaves_what_lies_beside_the_key),
        CASE(keys_of_a_change_before_are_not_asked_for),
        CASE(who_joins_anew_keeps_the_key_that_its_settings_name),
        CASE(one_that_is_killed_does_not_stop_the_next),
        CASE(what_makes_no_sense_is_refused_before_anything_is_made),
        CASE(what_the_trainer_would_refuse_is_found_before),
        CASE(where_it_cannot_listen_nothing_is_made_and_nobody_asked),
        CASE(relative_names_are_of_here),
        CASE(a_mixture_is_written_with_a_line_for_each_source),
        CASE(a_port_is_chosen_on_which_nobody_listens),
        CASE(the_service_s_user_owns_key_and_state),
        CASE(a_folder_of_the_key_that_is_there_is_given_to_the_service_s_user),
        CASE(root_makes_no_island_where_others_can_write),
    };
    return cmocka_run_group_tests(tests, NULL, end_all);
}
