/* SPDX-License-Identifier: Apache-2.0 */
/* home: where the files are; and the lock, which the kernel keeps and no number in a file. */
#include "tests/lib/testlib.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/mem.h"
#include "daemon/home.h"

static char folder[] = "/tmp/diloco-home-XXXXXX";
static bool marks_are_theirs; /* the folder of marks is another user's */

int lstat(const char *path, struct stat *out)
{
    int result = (int)syscall(SYS_newfstatat, AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
    if (marks_are_theirs && strncmp(path, "/dev/shm/", 9) == 0)
        out->st_uid = geteuid() + 1;
    return result;
}

static void an_option_wins_over_the_environment(void **state)
{
    (void)state;
    unsetenv("DILOCO_HOME");
    assert_null(home_chosen(NULL));
    assert_string_equal(home_chosen("a"), "a");
    setenv("DILOCO_HOME", "", 1);
    assert_null(home_chosen(NULL));
    setenv("DILOCO_HOME", "b", 1);
    assert_string_equal(home_chosen(NULL), "b");
    assert_string_equal(home_chosen("a"), "a");
    unsetenv("DILOCO_HOME");
}

static void assert_home(const char *given, const char *want)
{
    struct home home;
    assert_ok(home_find(given, &home));
    assert_string_equal(home.folder, want);
    assert_int_equal(strncmp(home.conf, want, strlen(want)), 0);
    home_free(&home);
}

static void a_folder_is_taken_from_the_root(void **state)
{
    (void)state;
    char here[PATH_MAX], below[PATH_MAX + 8];
    struct home home;
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(folder), 0);
    snprintf(below, sizeof below, "%s/a", folder);
    assert_home("a", below);
    assert_home("./a", below);
    assert_home(".//a//", below);
    assert_home(below, below);
    assert_home(".", folder);
    assert_home("./", folder);
    assert_int_equal(chdir(here), 0);
    assert_ok(home_find(NULL, &home));
    assert_null(home.folder);
    assert_null(home.pid);
    assert_string_equal(home.conf, "/etc/diloco/dilocod.conf");
    home_free(&home);
    assert_fails(ERR_ARG, "is empty", home_find("", &home));
    home_free(&home);
}

/* The value of a key in the unit file, which is there once. */
static void unit_value(const char *key, char value[200])
{
    char line[200];
    int found = 0;
    FILE *file = fopen("conf/dilocod.service", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, key, strlen(key)) == 0 && line[strlen(key)] == '=') {
            snprintf(value, 200, "%s", line + strlen(key) + 1);
            value[strcspn(value, "\n")] = '\0';
            found++;
        }
    fclose(file);
    assert_int_equal(found, 1);
}

/* There another key comes beside the present one: in a folder that the unit opens, and that reset does not move aside.
 * No more is opened: what stands beside the configuration is root's. */
static void a_service_may_write_where_its_key_is_and_nowhere_else_in_etc(void **state)
{
    (void)state;
    struct home home;
    char writable[200], want[200];
    assert_ok(home_find(NULL, &home));
    const char *slash = strrchr(home.key, '/');
    snprintf(want, sizeof want, "-%.*s", (int)(slash - home.key), home.key);
    unit_value("ReadWritePaths", writable);
    assert_string_equal(writable, want);
    assert_int_equal(strncmp(home.key, "/etc/diloco/", strlen("/etc/diloco/")), 0);
    assert_int_not_equal(strncmp(home.conf, want + 1, strlen(want + 1)), 0);
    assert_int_not_equal(strncmp(home.key, home.state, strlen(home.state)), 0);
    home_free(&home);
}

/* As long as the longest path of a socket that Linux takes, 107 bytes. */
static void a_folder_too_long_for_sockets_is_refused_at_once(void **state)
{
    (void)state;
    char path[120];
    struct home home;
    size_t bytes = 107 - strlen("/run/control.sock");
    memset(path, 'a', sizeof path);
    path[0] = '/';
    path[bytes] = '\0';
    assert_ok(home_find(path, &home));
    assert_int_equal(strlen(home.sockets) + strlen("/control.sock"), 107);
    home_free(&home);
    path[bytes] = 'a';
    path[bytes + 1] = '\0';
    assert_fails(ERR_ARG, "choose a shorter one", home_find(path, &home));
    home_free(&home);
}

/* A process that holds the lock until it is killed. */
static int holder_of(const struct home *home)
{
    int ready[2], pid;
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid = fork();
    if (pid == 0) {
        int fd;
        if (home_lock(home, &fd) != ERR_OK || write(ready[1], "r", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

static void one_runs_in_a_folder_and_the_kernel_says_which(void **state)
{
    (void)state;
    struct home home;
    int fd, pid, holder;
    char text[32];
    assert_ok(home_find(folder, &home));
    assert_ok(home_holder(&home, &holder));
    assert_int_equal(holder, 0);
    pid = holder_of(&home);
    assert_ok(home_holder(&home, &holder));
    assert_int_equal(holder, pid);
    snprintf(text, sizeof text, "(pid %d)", pid);
    assert_fails(ERR_STATE, text, home_lock(&home, &fd));
    assert_fails(ERR_STATE, " stop", home_lock(&home, &fd));
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    assert_int_equal(access(home.pid, F_OK), 0);
    assert_ok(home_holder(&home, &holder));
    assert_int_equal(holder, 0);
    assert_ok(home_lock(&home, &fd));
    close(fd);
    home_free(&home);
}

static void a_number_in_the_file_is_nobody(void **state)
{
    (void)state;
    struct home home;
    int holder;
    assert_ok(home_find(folder, &home));
    testlib_file(folder, "dilocod.pid", "%d\n", (int)getpid());
    assert_ok(home_holder(&home, &holder));
    assert_int_equal(holder, 0);
    home_free(&home);
}

static void a_folder_that_is_not_there_cannot_be_locked(void **state)
{
    (void)state;
    struct home home;
    int fd;
    assert_ok(home_find("/tmp/diloco-no-such-folder", &home));
    assert_fails(ERR_CONF, "is there such a folder", home_lock(&home, &fd));
    assert_ok(home_holder(&home, &fd));
    assert_int_equal(fd, 0);
    home_free(&home);
}

static int end(void **state)
{
    (void)state;
    rmdir(testlib_path(folder, "run"));
    testlib_clear(folder);
    return rmdir(folder);
}

/* Whoever may write to the folder could point it at another file of ours. */
static void no_link_is_followed(void **state)
{
    (void)state;
    struct home home;
    char theirs[64];
    int fd;
    snprintf(theirs, sizeof theirs, "%s/theirs", folder);
    assert_ok(home_find(folder, &home));
    unlink(home.pid);
    assert_int_equal(symlink(theirs, home.pid), 0);
    assert_fails(ERR_CONF, "a symbolic link is in its place", home_lock(&home, &fd));
    assert_int_equal(access(theirs, F_OK), -1);
    assert_int_equal(unlink(home.pid), 0);
    home_free(&home);
}

static void a_mark_in_a_folder_of_others_is_exposed(void **state)
{
    (void)state;
    char run[64], *path;
    bool exposed;
    snprintf(run, sizeof run, "%s/run", folder);
    for (int theirs = 0; theirs < 2; theirs++) {
        assert_ok(home_mark(true, "key", run, &path, &exposed));
        assert_int_equal(exposed, strncmp(path, run, strlen(run)) == 0);
        assert_true(exposed || theirs == 0);
        mem_free(path);
        marks_are_theirs = true;
    }
    assert_ok(home_mark(false, "key", run, &path, &exposed)); /* of a service */
    assert_false(exposed);
    mem_free(path);
    marks_are_theirs = false;
}

int main(void)
{
    if (mkdtemp(folder) == NULL)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_option_wins_over_the_environment),
        cmocka_unit_test(a_folder_is_taken_from_the_root),
        cmocka_unit_test(a_service_may_write_where_its_key_is_and_nowhere_else_in_etc),
        cmocka_unit_test(a_folder_too_long_for_sockets_is_refused_at_once),
        cmocka_unit_test(one_runs_in_a_folder_and_the_kernel_says_which),
        cmocka_unit_test(a_number_in_the_file_is_nobody),
        cmocka_unit_test(a_folder_that_is_not_there_cannot_be_locked),
        cmocka_unit_test(no_link_is_followed),
        cmocka_unit_test(a_mark_in_a_folder_of_others_is_exposed),
    };
    return cmocka_run_group_tests(tests, NULL, end);
}
