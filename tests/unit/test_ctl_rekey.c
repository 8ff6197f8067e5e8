/* SPDX-License-Identifier: Apache-2.0 */
/* ctl_rekey: what lies beside the key after a daemon that is played has answered. */
#include "tests/lib/testlib.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/ipc.h"
#include "daemon/ctl/ctl_rekey.h"
#include "net/transport/ident.h"

static struct home home;
static struct ctl_rekey rekey;
static const char *folder, *next_path;
static int listener;

static int begin(void **state)
{
    (void)state;
    struct sockaddr_un address;
    struct ident ident;
    folder = testlib_folder("ctl-rekey");
    const char *key = testlib_path(folder, "island.key");
    next_path = testlib_path(folder, "island.key.next");
    unlink(key);
    unlink(next_path);
    assert_ok(ident_generate(&ident));
    assert_ok(ident_save(&ident, key));
    rekey = (struct ctl_rekey){
        .home = &home,
        .json = true,
        .socket = testlib_path(folder, "control.sock"),
        .config = testlib_file(folder, "a.conf",
                               "[island]\nname = a\nrun = r\nkey = island.key\nstate = state\n[worker]\ndata = d\n")};
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_ok(ipc_address(rekey.socket, &address));
    assert_int_equal(bind(listener, (const struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listener, 4), 0);
    return 0;
}

static int end(void **state)
{
    (void)state;
    close(listener);
    return 0;
}

/* ---- a played daemon ---- */

static struct {
    const char *answer; /* to whatever it is asked */
    atomic_bool over;
} played;

static void *serve(void *unused)
{
    char request[256];
    struct pollfd poll_fd = {.fd = listener, .events = POLLIN};
    while (!atomic_load(&played.over)) {
        if (poll(&poll_fd, 1, 10) != 1)
            continue;
        int fd = accept(listener, NULL, NULL);
        if (recv(fd, request, sizeof request, 0) > 0)
            (void)!send(fd, played.answer, strlen(played.answer), MSG_NOSIGNAL);
        close(fd);
    }
    return unused;
}

static enum err call(const char *says)
{
    pthread_t thread;
    played.answer = says;
    atomic_store(&played.over, false);
    assert_int_equal(pthread_create(&thread, NULL, serve, NULL), 0);
    enum err err = ctl_rekey_begin(&rekey);
    atomic_store(&played.over, true);
    pthread_join(thread, NULL);
    return err;
}

static bool is_there(const char *path)
{
    return access(path, F_OK) == 0;
}

static void a_key_that_the_daemon_refuses_is_not_left_there(void **state)
{
    (void)state;
    static const char refused[] = "{\"error\":\"it cannot write beside its key\",\"code\":\"conf\"}\n";
    assert_fails(ERR_STATE, "it cannot write beside its key", call(refused));
    assert_false(is_there(next_path));
    assert_ok(call("{\"ok\":\"it asks\"}\n"));
    assert_true(is_there(next_path));
    /* One that was there may have been told to the run: it is looked whether the daemon has it, and asked again. */
    assert_fails(ERR_STATE, "it cannot write beside its key", call(refused));
    assert_true(is_there(next_path));
}

/* ---- a daemon's user, who may write to the folder ---- */

enum { THEIRS = 4711 };

/* Put in the place of the new key when it is given away; NULL: nothing. */
static const char *not_theirs;

static void put_link(void)
{
    if (not_theirs != NULL && is_there(next_path)) {
        assert_int_equal(unlink(next_path), 0);
        assert_int_equal(symlink(not_theirs, next_path), 0);
    }
}

/* In the C library's place, so that the link is there at the worst moment. */
int chown(const char *path, uid_t user, gid_t group)
{
    put_link();
    return fchownat(AT_FDCWD, path, user, group, 0);
}

int fchown(int fd, uid_t user, gid_t group)
{
    put_link();
    return (int)syscall(SYS_fchown, fd, user, group);
}

static void the_new_key_is_its_user_s_and_no_other_file(void **state)
{
    (void)state;
    static const char asks[] = "{\"ok\":\"it asks\"}\n";
    struct stat status;
    if (geteuid() != 0)
        skip_because("only root can give files to another user");
    char *secret = realpath(testlib_file(folder, "secret", "of root's\n"), NULL);
    assert_int_equal(chown(testlib_path(folder, "island.key"), THEIRS, THEIRS + 1), 0);
    assert_ok(call(asks));
    assert_int_equal(stat(next_path, &status), 0);
    assert_true(status.st_uid == THEIRS && status.st_gid == THEIRS + 1 && (status.st_mode & 0777) == 0600);
    assert_int_equal(unlink(next_path), 0);
    not_theirs = secret;
    (void)!call(asks);
    not_theirs = NULL;
    assert_int_equal(stat(secret, &status), 0);
    assert_int_equal(status.st_uid, 0);
    free(secret);
}

static void a_daemon_that_says_nothing_may_ask_for_it(void **state)
{
    (void)state;
    assert_ok(call(""));
    assert_true(is_there(next_path));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_key_that_the_daemon_refuses_is_not_left_there),
        CASE(a_daemon_that_says_nothing_may_ask_for_it),
        CASE(the_new_key_is_its_user_s_and_no_other_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
