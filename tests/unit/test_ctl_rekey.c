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
static const char *folder, *key_path, *next_path, *dropped_path;
static int listener;

/* The daemon that is played. */
static struct {
    const char *answer;         /* to all requests; NULL: as below */
    char key[IDENT_TEXT_BYTES]; /* that it has */
    char next[IDENT_TEXT_BYTES];
    bool blind, takes; /* it cannot read .next; it is given that when it is told */
    atomic_bool over;
} played;

static int begin(void **state)
{
    (void)state;
    struct sockaddr_un address;
    struct ident ident;
    folder = testlib_folder("ctl-rekey");
    key_path = testlib_path(folder, "island.key");
    dropped_path = testlib_path(folder, "island.key.dropped");
    next_path = testlib_path(folder, "island.key.next");
    unlink(key_path);
    unlink(next_path);
    unlink(dropped_path);
    assert_ok(ident_generate(&ident));
    assert_ok(ident_save(&ident, key_path));
    memset(&played, 0, sizeof played);
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

static void key_in(const char *path, char text[IDENT_TEXT_BYTES])
{
    struct ident ident;
    assert_ok(ident_load(path, &ident));
    snprintf(text, IDENT_TEXT_BYTES, "%s", ident.public_text);
}

static void make_key(const char *path, char text[IDENT_TEXT_BYTES])
{
    struct ident ident;
    assert_ok(ident_generate(&ident));
    assert_ok(ident_save(&ident, path));
    snprintf(text, IDENT_TEXT_BYTES, "%s", ident.public_text);
}

/* ---- a played daemon ---- */

static void answer_rekey(char *answer, size_t bytes)
{
    char asked[IDENT_TEXT_BYTES] = "";
    struct ident ident;
    if (!played.blind && ident_load(next_path, &ident) == ERR_OK)
        snprintf(asked, sizeof asked, "%s", ident.public_text);
    if (played.takes)
        snprintf(played.key, sizeof played.key, "%s", played.next);
    snprintf(answer, bytes, "{\"ok\":\"\",\"next_key\":\"%s\"}\n", asked);
}

static void *serve(void *unused)
{
    char request[256], answer[400];
    struct pollfd poll_fd = {.fd = listener, .events = POLLIN};
    while (!atomic_load(&played.over)) {
        if (poll(&poll_fd, 1, 10) != 1)
            continue;
        int fd = accept(listener, NULL, NULL);
        ssize_t bytes = recv(fd, request, sizeof request - 1, 0);
        request[bytes > 0 ? bytes : 0] = '\0';
        if (played.answer != NULL)
            snprintf(answer, sizeof answer, "%s", played.answer);
        else if (strncmp(request, "rekey", 5) == 0)
            answer_rekey(answer, sizeof answer);
        else
            snprintf(answer, sizeof answer, "{\"peers\":[{\"name\":\"a\",\"self\":true,\"public_key\":\"%s\"}]}\n",
                     played.key);
        if (bytes > 0)
            (void)!send(fd, answer, strlen(answer), MSG_NOSIGNAL);
        close(fd);
    }
    return unused;
}

static enum err call(enum err (*act)(const struct ctl_rekey *rekey), const char *says)
{
    pthread_t thread;
    played.answer = says;
    atomic_store(&played.over, false);
    assert_int_equal(pthread_create(&thread, NULL, serve, NULL), 0);
    enum err err = act(&rekey);
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
    assert_fails(ERR_STATE, "it cannot write beside its key", call(ctl_rekey_begin, refused));
    assert_false(is_there(next_path));
    assert_ok(call(ctl_rekey_begin, NULL));
    assert_true(is_there(next_path));
    /* One that was there may have been told to the run: it is looked whether the daemon has it, and asked again. */
    assert_fails(ERR_STATE, "it cannot write beside its key", call(ctl_rekey_begin, refused));
    assert_true(is_there(next_path));
}

/* As one that was made by root, and never given to the daemon's user. */
static void a_key_that_the_daemon_cannot_read_is_not_asked_for(void **state)
{
    (void)state;
    played.blind = true;
    assert_fails(ERR_STATE, "the daemon does not ask for the key in", call(ctl_rekey_begin, NULL));
    assert_false(is_there(next_path));
    make_key(next_path, played.next);
    assert_fails(ERR_STATE, "have its user own it", call(ctl_rekey_begin, NULL));
    assert_true(is_there(next_path)); /* it may have been told to the run before */
    played.takes = true;
    assert_fails(ERR_AGAIN, "has just been given the key", call(ctl_rekey_begin, NULL));
}

/* By hand, at the instant in which the daemon would have renamed it. */
static void a_key_that_was_taken_back_too_late_takes_its_place(void **state)
{
    (void)state;
    char key[IDENT_TEXT_BYTES], is[IDENT_TEXT_BYTES];
    key_in(key_path, key);
    memcpy(played.key, key, sizeof key);
    make_key(next_path, played.next);
    played.takes = true;
    assert_fails(ERR_STATE, "too late: the run has given this island the key", call(ctl_rekey_cancel, NULL));
    key_in(key_path, is);
    assert_string_equal(is, played.next);
    assert_false(is_there(next_path) || is_there(dropped_path));
    /* As one that was ended before it could look. */
    played.takes = false;
    make_key(dropped_path, played.key);
    assert_ok(call(ctl_rekey_begin, NULL));
    key_in(key_path, is);
    assert_string_equal(is, played.key);
    assert_true(is_there(next_path) && !is_there(dropped_path));
    /* In time. */
    assert_ok(call(ctl_rekey_cancel, NULL));
    key_in(key_path, is);
    assert_string_equal(is, played.key);
    assert_true(is_there(dropped_path));
    assert_fails(ERR_STATE, "may still be ordered", call(ctl_rekey_begin, NULL));
}

static enum err order(const struct ctl_rekey *conf)
{
    const struct ctl_members ctl = {.socket = conf->socket, .json = true};
    return ctl_rekey_order(&ctl, "a", conf->old, true);
}

/* As a play does that is run again: the second time nothing is left to do. */
static void a_key_that_was_changed_is_not_changed_again(void **state)
{
    (void)state;
    char key[IDENT_TEXT_BYTES], next[IDENT_TEXT_BYTES], is[IDENT_TEXT_BYTES];
    key_in(key_path, key);
    memcpy(played.key, key, sizeof key);
    rekey.old = key;
    assert_fails(ERR_STATE, "asks for no other key", call(order, NULL));
    for (int times = 0; times < 2; times++) {
        assert_ok(call(ctl_rekey_begin, NULL));
        key_in(next_path, times == 0 ? next : is);
    }
    assert_string_equal(is, next);
    memcpy(played.key, next, sizeof next); /* it is given that */
    assert_ok(call(ctl_rekey_begin, NULL));
    key_in(key_path, is);
    assert_string_equal(is, next);
    assert_ok(call(ctl_rekey_begin, NULL));
    assert_false(is_there(next_path));
    assert_ok(call(order, NULL));
    rekey.old = "oslo";
    assert_fails(ERR_ARG, "--old oslo: no public key, which has 43 characters", ctl_rekey_begin(&rekey));
    assert_fails(ERR_ARG, "--old oslo: no public key", order(&rekey));
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
    struct stat status;
    if (geteuid() != 0)
        skip_because("only root can give files to another user");
    char *secret = realpath(testlib_file(folder, "secret", "of root's\n"), NULL);
    assert_int_equal(chown(key_path, THEIRS, THEIRS + 1), 0);
    assert_ok(call(ctl_rekey_begin, NULL));
    assert_int_equal(stat(next_path, &status), 0);
    assert_true(status.st_uid == THEIRS && status.st_gid == THEIRS + 1 && (status.st_mode & 0777) == 0600);
    assert_int_equal(unlink(next_path), 0);
    not_theirs = secret;
    (void)!call(ctl_rekey_begin, NULL);
    not_theirs = NULL;
    assert_int_equal(stat(secret, &status), 0);
    assert_int_equal(status.st_uid, 0);
    free(secret);
}

static void a_daemon_that_says_nothing_may_ask_for_it(void **state)
{
    (void)state;
    assert_ok(call(ctl_rekey_begin, ""));
    assert_true(is_there(next_path));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_key_that_the_daemon_refuses_is_not_left_there),
        CASE(a_daemon_that_says_nothing_may_ask_for_it),
        CASE(a_key_that_the_daemon_cannot_read_is_not_asked_for),
        CASE(a_key_that_was_taken_back_too_late_takes_its_place),
        CASE(a_key_that_was_changed_is_not_changed_again),
        CASE(the_new_key_is_its_user_s_and_no_other_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
