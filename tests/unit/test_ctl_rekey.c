/* SPDX-License-Identifier: Apache-2.0 */
/* ctl_rekey: what lies beside the key after a daemon that is played has answered. */
#include "tests/lib/testlib.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/ipc.h"
#include "daemon/ctl/ctl_rekey.h"
#include "net/transport/ident.h"

static struct home home;
static struct ctl_rekey rekey;
static const char *next_path;
static int listener;

static int begin(void **state)
{
    (void)state;
    struct sockaddr_un address;
    struct ident ident;
    const char *folder = testlib_folder("ctl-rekey");
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

/* ---- a played daemon: the same answer to each of so many requests ---- */

static const char *answer;
static int requests;

static void *serve(void *unused)
{
    char request[256];
    for (int i = 0; i < requests; i++) {
        int fd = accept(listener, NULL, NULL);
        if (recv(fd, request, sizeof request, 0) > 0)
            (void)!send(fd, answer, strlen(answer), MSG_NOSIGNAL);
        close(fd);
    }
    return unused;
}

static enum err call(const char *says, int times)
{
    pthread_t thread;
    answer = says;
    requests = times;
    assert_int_equal(pthread_create(&thread, NULL, serve, NULL), 0);
    enum err err = ctl_rekey_begin(&rekey);
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
    assert_fails(ERR_STATE, "it cannot write beside its key", call(refused, 1));
    assert_false(is_there(next_path));
    assert_ok(call("{\"ok\":\"it asks\"}\n", 1));
    assert_true(is_there(next_path));
    /* One that was there may have been told to the run: it is looked whether the daemon has it, and asked again. */
    assert_fails(ERR_STATE, "it cannot write beside its key", call(refused, 2));
    assert_true(is_there(next_path));
}

static void a_daemon_that_says_nothing_may_ask_for_it(void **state)
{
    (void)state;
    assert_ok(call("", 1));
    assert_true(is_there(next_path));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_key_that_the_daemon_refuses_is_not_left_there),
        CASE(a_daemon_that_says_nothing_may_ask_for_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
