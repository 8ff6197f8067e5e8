/* SPDX-License-Identifier: Apache-2.0 */
/* door: who may attach a trainer. Other users are played by children of this test, which need root to become them. */
#include "tests/lib/testlib.h"

#include <errno.h>
#include <grp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/ipc.h"
#include "common/mem.h"
#include "daemon/trainer/door.h"
#include "worker/libdiloco/diloco.h"

/* STRANGER, FRIEND: nobody's users. A child ends with the errno of its connect(), or 0. */
enum { STRANGER = 64001, FRIEND = 64002, DEADLINE_MS = 10000 };

static struct dconf conf;
static char *path, folder[64];
static int listen_fd;

static int begin(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/diloco-door-XXXXXX"); /* where everybody can go */
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chmod(folder, 0755), 0);
    conf = (struct dconf){.run_folder = folder, .worker_group = ""};
    path = NULL;
    listen_fd = -1;
    return 0;
}

static int end(void **state)
{
    (void)state;
    if (listen_fd >= 0)
        close(listen_fd);
    if (path != NULL)
        unlink(path);
    mem_free(path);
    rmdir(folder);
    return 0;
}

/* A group that is there, and is not ours. */
static struct group *some_group(void)
{
    struct group *group;
    setgrent();
    while ((group = getgrent()) != NULL && group->gr_gid == getgid())
        continue;
    endgrent();
    if (group == NULL || geteuid() != 0)
        skip_because("other users and groups can be played by root only");
    return group;
}

/* What a user of this group gets from connect(). */
static int dial_as(uid_t user, gid_t group)
{
    struct sockaddr_un address;
    int status, pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        bool ok = setgroups(1, &group) == 0 && setgid(user) == 0 && setuid(user) == 0 &&
                  ipc_address(path, &address) == ERR_OK;
        _exit(!ok ? 255 : connect(fd, (const struct sockaddr *)&address, sizeof address) == 0 ? 0 : errno);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static bool admitted(void)
{
    uint32_t pid = 0;
    int fd = accept(listen_fd, NULL, NULL);
    assert_true(fd >= 0);
    bool yes = door_admits(&conf, fd, &pid);
    assert_true(pid > 0);
    close(fd);
    return yes;
}

static void without_a_group_it_is_for_root_and_the_daemons_user(void **state)
{
    (void)state;
    struct stat status;
    umask(0);
    enum err err = door_open(&conf, &path, &listen_fd);
    umask(022);
    assert_ok(err);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    gid_t group = some_group()->gr_gid;
    assert_int_equal(dial_as(STRANGER, group), EACCES);
    assert_int_equal(dial_as(0, 0), 0);
    assert_true(admitted());
    assert_int_equal(chmod(path, 0777), 0); /* somebody opened it wide: it is asked who comes */
    assert_int_equal(dial_as(STRANGER, group), 0);
    assert_false(admitted());
}

static void with_a_group_whoever_is_in_it_may_attach(void **state)
{
    (void)state;
    struct stat status;
    struct group *group = some_group();
    gid_t gid = group->gr_gid;
    conf.worker_group = group->gr_name;
    assert_ok(door_open(&conf, &path, &listen_fd));
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0660);
    assert_int_equal(status.st_gid, gid);
    assert_int_equal(dial_as(STRANGER, STRANGER), EACCES);
    assert_int_equal(dial_as(FRIEND, gid), 0);
    assert_true(admitted());
}

static void a_group_that_is_not_there_is_named(void **state)
{
    (void)state;
    conf.worker_group = "no-such-group";
    assert_fails(ERR_CONF, "no group no-such-group; make it with: groupadd", door_open(&conf, &path, &listen_fd));
}

/* What libdiloco says to a trainer that may not; nothing is gained by waiting. */
static void a_trainer_that_may_not_is_told_why_at_once(void **state)
{
    (void)state;
    int status;
    struct group *group = some_group();
    conf.worker_group = group->gr_name;
    assert_ok(door_open(&conf, &path, &listen_fd));
    int pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct diloco *d;
        struct diloco_options options = {.size = sizeof(struct diloco_options), .socket_path = path, .wait_ms = 60000};
        gid_t own = STRANGER;
        bool ok = setgroups(1, &own) == 0 && setgid(own) == 0 && setuid(STRANGER) == 0;
        alarm(DEADLINE_MS / 1000);
        ok = ok && diloco_attach(&options, &d) == DILOCO_UNREACHABLE && d == NULL;
        const char *said = diloco_error(NULL);
        fprintf(stderr, "%s\n", said);
        _exit(!ok || strstr(said, "permission denied") == NULL || strstr(said, "[worker] group") == NULL ||
              strstr(said, group->gr_name) == NULL);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

#define at_a_door(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        at_a_door(without_a_group_it_is_for_root_and_the_daemons_user),
        at_a_door(with_a_group_whoever_is_in_it_may_attach),
        at_a_door(a_group_that_is_not_there_is_named),
        at_a_door(a_trainer_that_may_not_is_told_why_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
