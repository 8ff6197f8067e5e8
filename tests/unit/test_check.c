/* SPDX-License-Identifier: Apache-2.0 */
/* check: what a start would stumble over is found before it, by the eyes of the user that will start it. */
#include "tests/lib/testlib.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/digest.h"
#include "daemon/check.h"

static const char *folder;

/* Of island a, which has a key, a run spec and a corpus of two files. */
static struct dconf load(const char *more)
{
    struct dconf conf;
    const char *path = testlib_file(folder, "a.conf",
                                    "[island]\nname = a\nrun = run.ini\nkey = a.key\nstate = state\nsockets = s\n"
                                    "[worker]\n%s",
                                    more);
    assert_ok(dconf_load(path, NULL, 0, &conf));
    return conf;
}

static void assert_finds(const char *part, const char *more)
{
    struct dconf conf = load(more);
    if (part != NULL)
        assert_fails(ERR_CONF, part, check_start(&conf));
    else
        assert_ok(check_start(&conf));
    conf_deinit(&dconf_schema, &conf);
}

static int begin(void **state)
{
    (void)state;
    struct ident ident;
    folder = testlib_folder("check");
    assert_ok(ident_generate(&ident));
    assert_ok(ident_save(&ident, testlib_path(folder, "a.key")));
    testlib_file(folder, "run.ini", "[run]\nname = x\nsteps = 9\n");
    testlib_file(folder, "text.1", "some text\n");
    testlib_file(folder, "text.2", "some text\n");
    assert_int_equal(chmod(testlib_file(folder, "diloco-worker", "#!/bin/sh\n"), 0755), 0);
    return 0;
}

static void a_program_is_there_and_can_be_started(void **state)
{
    (void)state;
    char text[700];
    assert_finds(NULL, "program =\n");
    assert_finds(NULL, "program = sh -c 'exit 0'\n");
    assert_finds("there is no group no-such-group", "program =\ngroup = no-such-group\n");
    assert_finds(NULL, "program = sh\ndata = d\n"); /* in PATH; its corpus is its own business */
    assert_finds("there is no program no-such-program beside dilocod or in PATH; write its whole path there, as "
                 "/srv/venv/bin/no-such-program",
                 "program = no-such-program\ndata = d\n");
    snprintf(text, sizeof text, "program = %s/nowhere\ndata = d\n", folder);
    assert_finds("finds no program at", text);
    snprintf(text, sizeof text, "program = %s/text.1\ndata = d\n", folder);
    assert_finds("finds no program at", text);
    snprintf(text, sizeof text, "program = %s\ndata = d\n", folder);
    assert_finds("finds no program at", text);
}

static const char *with_corpus(const char *pattern)
{
    static char text[700];
    snprintf(text, sizeof text, "program = %s/diloco-worker\ndata = %s\n", folder, pattern);
    return text;
}

static void a_corpus_is_there(void **state)
{
    (void)state;
    assert_finds(NULL, with_corpus("text.*"));
    assert_finds(NULL, with_corpus("text.1"));
    assert_finds("novel.*: there is no such file", with_corpus("novel.*"));
    assert_finds(NULL, with_corpus("a=text.1:0.5 b=text.*:0.5@0,0@9"));
    assert_finds("novel: there is no such file", with_corpus("a=text.1:0.5 b=novel:0.5"));
}

/* It is founded by one, and others join. */
static void a_quorum_may_be_more_than_there_are(void **state)
{
    (void)state;
    testlib_file(folder, "run.ini", "[run]\nname = x\nsteps = 9\n[sync]\nquorum = 2\n");
    assert_finds(NULL, "program =\n");
}

static void ranks_can_share_out_the_run(void **state)
{
    (void)state;
    char text[800];
    testlib_file(folder, "run.ini", "[run]\nname = x\nsteps = 9\n[train]\nbatch = 4\n");
    snprintf(text, sizeof text, "%sranks = 2\n", with_corpus("text.*"));
    assert_finds(NULL, text);
    snprintf(text, sizeof text, "%sranks = 3\n", with_corpus("text.*"));
    assert_finds("run.ini: [worker] ranks: [train] batch 4 cannot be shared out evenly among 3 ranks", text);
}

/* Whether everybody may look into the folder that tests write to. */
static bool open_to_all(void)
{
    char path[4096];
    struct stat status;
    if (realpath(folder, path) == NULL)
        return false;
    for (char *slash = path; slash != NULL && *path != '\0'; slash = strrchr(path, '/'), *slash = '\0')
        if (stat(path, &status) != 0 || (status.st_mode & S_IXOTH) == 0)
            return false;
    return true;
}

/* Root may read everything; the user that the daemon runs as may not. */
static void root_looks_with_the_eyes_of_another(void **state)
{
    (void)state;
    const struct passwd *nobody = getpwnam("nobody");
    struct dconf conf = load(with_corpus("text.*"));
    if (geteuid() != 0) {
        assert_fails(ERR_ARG, "only root", check_as("nobody"));
        conf_deinit(&dconf_schema, &conf);
        skip_because("only root can look as another user");
    }
    if (nobody == NULL || !open_to_all()) {
        conf_deinit(&dconf_schema, &conf);
        skip_because("there is no user nobody, or the build folder is closed to it");
    }
    uid_t uid = nobody->pw_uid;
    static const char *const says[] = {NULL, "cannot read", "[island] state: user nobody cannot write to"};
    assert_fails(ERR_ARG, "no such user", check_as("no-such-user"));
    assert_int_equal(chown(testlib_path(folder, "a.key"), uid, (gid_t)-1), 0);
    for (size_t k = 0; k < 3; k++) {
        if (k == 1)
            assert_int_equal(chmod(testlib_path(folder, "text.2"), 0600), 0);
        if (k == 2) {
            assert_int_equal(chmod(testlib_path(folder, "text.2"), 0644), 0);
            assert_int_equal(mkdir(testlib_path(folder, "state"), 0755), 0);
        }
        assert_ok(check_start(&conf)); /* root sees nothing wrong */
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            enum err err = check_as("nobody");
            if (err == ERR_OK)
                err = check_start(&conf);
            bool right = says[k] == NULL ? err == ERR_OK : err == ERR_CONF && strstr(err_text(), says[k]) != NULL;
            if (!right)
                print_error("%s\n", err_text());
            _exit(right ? 0 : 1);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    conf_deinit(&dconf_schema, &conf);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_program_is_there_and_can_be_started, begin),
        cmocka_unit_test_setup(a_corpus_is_there, begin),
        cmocka_unit_test_setup(a_quorum_may_be_more_than_there_are, begin),
        cmocka_unit_test_setup(ranks_can_share_out_the_run, begin),
        cmocka_unit_test_setup(root_looks_with_the_eyes_of_another, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
