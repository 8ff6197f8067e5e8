/* SPDX-License-Identifier: Apache-2.0 */
/* control: whatever comes through the socket is a line, and every line has one answer; nobody holds the others up. */
#include "tests/lib/testlib.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/ipc.h"
#include "common/mem.h"
#include "daemon/control/control.h"
#include "daemon/trainer/process.h"
#include "tests/lib/isle.h"

enum { A, CLIENTS_MAX = 32, CLIENTS_KEPT = 8, IDLE_MS = 30000, REQUEST_MAX = 1024, ANSWER_MAX = 1 << 22 };

static struct isle_run *run;
static struct isle *a;
static struct control *control;
static char path[300];
static char answer[ANSWER_MAX];

static struct control_conf conf_of(void)
{
    return (struct control_conf){.folder = a->conf.run_folder,
                                 .keyring = &a->keyring,
                                 .trainer = a->trainer,
                                 .peers = a->peers,
                                 .join_server = membership_host_join_server(a->host),
                                 .status = {.conf = &a->conf,
                                            .spec = &run->spec,
                                            .view = &a->configs.view,
                                            .configs = &a->configs,
                                            .vote = a->vote,
                                            .ledger = a->ledger,
                                            .link = a->link,
                                            .objects = a->objects,
                                            .host = a->host,
                                            .membership = a->membership,
                                            .peers = a->peers,
                                            .trainer = a->trainer,
                                            .start_ms = a->now_ms}};
}

static int begin(void **state)
{
    (void)state;
    run = isle_run_new("control", 1, NULL);
    a = isle_open(run, A, NULL, 0);
    struct control_conf conf = conf_of();
    assert_ok(control_new(&conf, &control));
    snprintf(path, sizeof path, "%s/control.sock", a->conf.run_folder);
    return 0;
}

static int end(void **state)
{
    (void)state;
    control_free(control);
    isle_close(a);
    isle_run_free(run);
    return 0;
}

static void know_plan(void)
{
    isle_know_plan(a);
    struct control_plan plan = {.plan = a->plan,
                                .sync = a->sync,
                                .rounds = a->rounds,
                                .replica = a->replica,
                                .parts = &a->parts,
                                .memory_bytes = 77};
    control_plan_known(control, &plan);
}

/* ---- a client ---- */

static int client(void)
{
    struct sockaddr_un address;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_ok(ipc_address(path, &address));
    assert_int_equal(connect(fd, (const struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static void say(int fd, const char *text, size_t bytes)
{
    assert_int_equal(send(fd, text, bytes, MSG_NOSIGNAL), bytes);
    control_run(control, a->now_ms);
}

/* What has been answered: bytes; 0: nothing; -1: the connection was closed. */
static ssize_t heard(int fd)
{
    ssize_t got = recv(fd, answer, sizeof answer - 1, MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN)
        return 0;
    if (got <= 0)
        return -1;
    answer[got] = '\0';
    return got;
}

static bool is_open(int fd)
{
    return recv(fd, answer, 1, MSG_DONTWAIT | MSG_PEEK) > 0 || errno == EAGAIN;
}

/* The one line that is the answer. */
static json_t *answer_to(int fd, const char *request)
{
    say(fd, request, strlen(request));
    ssize_t got = heard(fd);
    assert_true(got > 1);
    assert_ptr_equal(strchr(answer, '\n'), answer + got - 1);
    json_t *json = json_loads(answer, 0, NULL);
    assert_non_null(json);
    return json;
}

static void assert_refused(int fd, const char *request, const char *code, const char *part)
{
    json_t *json = answer_to(fd, request);
    const char *error = json_string_value(json_object_get(json, "error"));
    assert_non_null(error);
    if (strstr(error, part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", error, part);
    assert_string_equal(json_string_value(json_object_get(json, "code")), code);
    json_decref(json);
}

static void assert_answers(int fd, const char *request, const char *key)
{
    json_t *json = answer_to(fd, request);
    assert_non_null(json_object_get(json, key));
    json_decref(json);
}

/* The kernel takes as much as it likes of what is sent. */
static size_t taken_max = SIZE_MAX;

ssize_t send(int fd, const void *data, size_t bytes, int flags)
{
    return syscall(SYS_sendto, fd, data, bytes < taken_max ? bytes : taken_max, flags | MSG_DONTWAIT, NULL, 0);
}

/* Whose the next clients are: ours, or somebody's. */
static bool somebody;

int getsockopt(int fd, int level, int option, void *value, socklen_t *bytes)
{
    int result = (int)syscall(SYS_getsockopt, fd, level, option, value, bytes);
    if (result == 0 && somebody && level == SOL_SOCKET && option == SO_PEERCRED)
        ((struct ucred *)value)->uid = getuid() + 1000;
    return result;
}

/* ---- requests ---- */

static void each_line_has_an_answer_in_order(void **state)
{
    (void)state;
    static const char *const keys[] = {"island", "peers", "fragments", "error", "island"};
    static const char requests[] = "status\npeers\nfragments\nnonsense\nstatus\n";
    int fd = client();
    say(fd, requests, strlen(requests));
    assert_true(heard(fd) > 0);
    char *line = answer;
    for (int i = 0; i < 5; i++) {
        char *stop = strchr(line, '\n');
        assert_non_null(stop);
        json_t *json = json_loadb(line, (size_t)(stop - line), 0, NULL);
        assert_non_null(json_object_get(json, keys[i]));
        json_decref(json);
        line = stop + 1;
    }
    assert_int_equal(*line, '\0');
    close(fd);
}

static void a_request_in_pieces_is_one_request(void **state)
{
    (void)state;
    int fd = client();
    for (const char *at = "peer"; *at != '\0'; at++) {
        say(fd, at, 1);
        assert_int_equal(heard(fd), 0);
    }
    assert_answers(fd, "s\n", "peers");
    say(fd, "status\nfra", 10);
    assert_true(heard(fd) > 0);
    assert_answers(fd, "gments\n", "fragments");
    close(fd);
}

static void an_answer_that_goes_out_in_pieces_is_whole(void **state)
{
    (void)state;
    int fd = client();
    know_plan();
    say(fd, "fragments\n", 10);
    ssize_t whole = heard(fd);
    assert_true(whole > 1000);
    char *first = strdup(answer);
    say(fd, "fragments", 9);
    taken_max = 7;
    assert_int_equal(write(fd, "\n", 1), 1);
    for (ssize_t have = 0, got; have < whole; have += got) {
        control_run(control, a->now_ms);
        got = heard(fd);
        assert_true(got > 0 && have + got <= whole);
        assert_memory_equal(answer, first + have, got);
    }
    taken_max = SIZE_MAX;
    free(first);
    close(fd);
}

static void a_line_that_is_too_long_ends_the_connection(void **state)
{
    (void)state;
    char text[REQUEST_MAX];
    memset(text, 'x', sizeof text);
    int fd = client(), other = client();
    control_run(control, a->now_ms);
    text[REQUEST_MAX - 1] = '\n';
    say(fd, text, sizeof text); /* the longest there is */
    assert_true(heard(fd) > 0);
    assert_non_null(strstr(answer, "no command"));
    assert_in_range(strlen(answer), 10, 150); /* it is not said back at length */
    text[REQUEST_MAX - 1] = 'x';
    say(fd, text, sizeof text);
    assert_int_equal(heard(fd), -1);
    assert_answers(other, "status\n", "island");
    close(fd);
    close(other);
}

static void an_unknown_command_and_an_impossible_one_say_why(void **state)
{
    (void)state;
    int fd = client();
    assert_refused(fd, "\n", "argument", "no command \"\"");
    assert_refused(fd, "statu\n", "argument", "no command \"statu\"");
    assert_refused(fd, "status \n", "argument", "no command \"status \"");
    assert_refused(fd, "STATUS\n", "argument", "no command \"STATUS\"");
    assert_refused(fd, "pause now please\n", "argument", "no command");
    assert_refused(fd, "resume\n", "state", "no trainer is configured");
    assert_refused(fd, "pause\n", "state", "no trainer is running");
    assert_refused(fd, "pause now\n", "state", "no trainer that this daemon started is running");
    assert_refused(fd, "save\n", "state", "ask again when it trains");
    close(fd);
}

static void once_the_plan_is_known_it_is_shown_and_saved(void **state)
{
    (void)state;
    int fd = client();
    json_t *json = answer_to(fd, "fragments\n");
    assert_int_equal(json_array_size(json_object_get(json, "fragments")), 0);
    json_decref(json);
    know_plan();
    json = answer_to(fd, "fragments\n");
    assert_int_equal(json_array_size(json_object_get(json, "fragments")), ISLE_FRAGMENTS);
    json_decref(json);
    json = answer_to(fd, "status\n");
    assert_int_equal(json_integer_value(json_object_get(json, "memory_bytes")), 77);
    assert_string_equal(json_string_value(json_object_get(json, "saving")), "none");
    json_decref(json);
    assert_answers(fd, "save\n", "ok");
    json = answer_to(fd, "status\n");
    assert_string_equal(json_string_value(json_object_get(json, "saving")), "writing");
    json_decref(json);
    close(fd);
}

/* A command is carried out, not only answered. */
static void resuming_and_pausing_reach_the_trainer(void **state)
{
    (void)state;
    struct conf_override overrides[] = {{"worker.program=/bin/cat"}, {"worker.data=d"}, {"worker.autostart=no"}};
    control_free(control);
    isle_close(a);
    a = isle_open(run, A, overrides, 3);
    struct control_conf conf = conf_of();
    assert_ok(control_new(&conf, &control));
    int fd = client();
    assert_int_equal(trainer_phase(a->trainer), TRAINER_STOPPED);
    assert_answers(fd, "resume\n", "ok");
    assert_int_equal(trainer_phase(a->trainer), TRAINER_STARTING);
    assert_refused(fd, "resume\n", "state", "running already");
    assert_answers(fd, "pause now\n", "ok");
    assert_int_equal(trainer_phase(a->trainer), TRAINER_LEAVING);
    isle_wait(!process_running(a->trainer->process));
    close(fd);
}

/* Nobody is asked for a key whose files the daemon could not keep: it is said at once. */
static void a_new_key_is_refused_where_none_could_be_kept(void **state)
{
    (void)state;
    struct ident next;
    int fd = client();
    const char *folder = testlib_folder("control-keys");
    struct dconf nowhere = {.key_path = (char *)(uintptr_t) "/proc/self/no/such/folder/island.key"};
    a->keyring.conf = &nowhere;
    a->keyring.next_path = (char *)(uintptr_t)testlib_path(folder, "island.key.next");
    a->keyring.dropped_path = (char *)(uintptr_t)testlib_path(folder, "island.key.dropped");
    assert_ok(ident_generate(&next));
    assert_ok(ident_save(&next, a->keyring.next_path));
    assert_refused(fd, "rekey\n", "config", "cannot write beside its key /proc/self/no/such/folder/island.key");
    assert_false(member_word_has_next(membership_own_word(a->membership)));
    a->keyring.conf = NULL;
    close(fd);
}

/* The daemon asks for the key that lies beside its own; an operator orders that one and no other. */
static void a_new_key_is_asked_for_and_named(void **state)
{
    (void)state;
    int fd = client();
    assert_answers(fd, "rekey\n", "ok");
    assert_non_null(strstr(answer, "this island keeps its key"));
    assert_ok(ident_generate(&a->keyring.next));
    assert_answers(fd, "rekey\n", "ok");
    assert_non_null(strstr(answer, a->keyring.next.public_text));
    assert_memory_equal(membership_own_word(a->membership)->next_key, a->keyring.next.key, IDENT_KEY_BYTES);
    assert_refused(fd, "rekey a\n", "argument", "rekey whom, to which key?");
    assert_refused(fd, "rekey nobody KEY\n", "notfound", "no island called");
    assert_refused(fd, "rekey a KEY\n", "state", "does not ask for this key"); /* no configuration says it yet */
    close(fd);
}

/* ---- clients ---- */

static int join(bool as_somebody)
{
    somebody = as_somebody;
    int fd = client();
    control_run(control, a->now_ms);
    somebody = false;
    return fd;
}

static void the_thirty_third_client_is_turned_away_and_the_others_are_served(void **state)
{
    (void)state;
    int fds[CLIENTS_MAX + 1];
    for (int i = 0; i <= CLIENTS_MAX; i++)
        fds[i] = join(false);
    for (int i = 0; i < CLIENTS_MAX; i++)
        assert_answers(fds[i], "peers\n", "peers");
    assert_true(heard(fds[CLIENTS_MAX]) > 0);
    assert_non_null(strstr(answer, "too many programs ask"));
    assert_int_equal(heard(fds[CLIENTS_MAX]), -1);
    struct pollfd items[CLIENTS_MAX + 2];
    assert_int_equal(control_poll(control, items, CLIENTS_MAX + 2), 1 + CLIENTS_MAX);
    assert_int_equal(control_poll(control, items, 5), 5);
    assert_int_equal(control_poll(control, items, 0), 0);
    close(fds[7]);
    control_run(control, a->now_ms); /* sees that it has gone */
    close(fds[CLIENTS_MAX]);
    fds[7] = join(false);
    assert_answers(fds[7], "peers\n", "peers");
    for (int i = 0; i < CLIENTS_MAX; i++)
        close(fds[i]);
}

/* Whoever may open the socket may not lock those out who steer the daemon. */
static void places_are_kept_for_root_and_our_own_user(void **state)
{
    (void)state;
    int fds[CLIENTS_MAX], own[CLIENTS_KEPT];
    for (int i = 0; i < CLIENTS_MAX; i++)
        fds[i] = join(true);
    for (int i = 0; i < CLIENTS_MAX - CLIENTS_KEPT; i++)
        assert_answers(fds[i], "peers\n", "peers");
    for (int i = CLIENTS_MAX - CLIENTS_KEPT; i < CLIENTS_MAX; i++) {
        assert_true(heard(fds[i]) > 0);
        assert_int_equal(heard(fds[i]), -1);
    }
    for (int i = 0; i < CLIENTS_KEPT; i++)
        own[i] = join(false);
    for (int i = 0; i < CLIENTS_KEPT; i++)
        assert_answers(own[i], "status\n", "island");
    assert_refused(fds[0], "pause\n", "state", "for root and the user");
    for (int i = 0; i < CLIENTS_MAX; i++)
        close(fds[i]);
    for (int i = 0; i < CLIENTS_KEPT; i++)
        close(own[i]);
}

/* One that asks nothing, or does not take its answer, keeps its place for so long only. */
static void a_client_that_is_idle_is_closed(void **state)
{
    (void)state;
    int idle = join(false), deaf = join(false), busy = join(false);
    know_plan();
    for (int i = 0; i < 100; i++)
        say(deaf, "fragments\n", 10);
    a->now_ms += IDLE_MS - 1;
    assert_answers(busy, "status\n", "island");
    assert_true(is_open(idle));
    a->now_ms++;
    control_run(control, a->now_ms);
    assert_int_equal(heard(idle), -1);
    while (heard(deaf) > 0) {
    }
    assert_int_equal(heard(deaf), -1);
    assert_answers(busy, "status\n", "island");
    close(idle);
    close(deaf);
    close(busy);
}

static short events_of(int index)
{
    struct pollfd items[CLIENTS_MAX + 1];
    assert_true(control_poll(control, items, CLIENTS_MAX + 1) > (size_t)index);
    return items[index].events;
}

/* Its answers wait, its requests are read no further, and the others are served. */
static void a_client_that_does_not_read_its_answers_holds_nobody_up(void **state)
{
    (void)state;
    enum { REQUESTS = 100 };
    int slow = client(), other;
    know_plan();
    control_run(control, a->now_ms);
    other = client();
    control_run(control, a->now_ms);
    assert_int_equal(events_of(1), POLLIN);
    for (int i = 0; i < REQUESTS; i++)
        say(slow, "fragments\n", 10); /* each some 10 kB */
    assert_int_equal(events_of(1), POLLOUT);
    assert_int_equal(events_of(2), POLLIN);
    assert_answers(other, "status\n", "island");
    size_t total = 0, lines = 0;
    for (ssize_t got; lines < REQUESTS; control_run(control, a->now_ms)) {
        got = heard(slow);
        assert_true(got > 0);
        for (ssize_t i = 0; i < got; i++)
            lines += answer[i] == '\n';
        total += (size_t)got;
    }
    print_message("%zu bytes in %zu answers\n", total, lines);
    assert_int_equal(heard(slow), 0);
    assert_true(total > 400000); /* more than a socket takes */
    assert_int_equal(events_of(1), POLLIN);
    assert_answers(slow, "status\n", "island");
    close(slow);
    close(other);
}

static void a_client_that_leaves_without_its_answer_is_forgotten(void **state)
{
    (void)state;
    int fd = client();
    struct pollfd items[4];
    assert_int_equal(send(fd, "status\nstatus\n", 14, 0), 14);
    close(fd);
    control_run(control, a->now_ms);
    control_run(control, a->now_ms);
    assert_int_equal(control_poll(control, items, 4), 1);
    fd = client();
    assert_int_equal(send(fd, "sta", 3, 0), 3);
    control_run(control, a->now_ms);
    assert_int_equal(control_poll(control, items, 4), 2);
    assert_true(is_open(fd));
    close(fd);
    control_run(control, a->now_ms);
    assert_int_equal(control_poll(control, items, 4), 1);
}

/* ---- the socket ---- */

static void the_socket_is_open_to_all_and_goes_with_the_daemon(void **state)
{
    (void)state;
    struct stat status;
    struct control_conf conf = conf_of();
    struct control *second;
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0666); /* who may do what is judged by the peer's user */
    assert_fails(ERR_CONF, "another dilocod is running", control_new(&conf, &second));
    assert_null(second);
    assert_int_equal(stat(path, &status), 0);
    control_free(control);
    assert_int_equal(stat(path, &status), -1);
    assert_ok(control_new(&conf, &control));
    conf.folder = "no/such/folder";
    assert_fails(ERR_CONF, "cannot listen", control_new(&conf, &second));
    assert_null(second);
}

static void without_memory_a_client_is_told_so_and_the_daemon_goes_on(void **state)
{
    (void)state;
    char line[200];
    int fd = client();
    control_run(control, a->now_ms);
    for (int n = 0; n < 3; n++) {
        mem_fail_after(n);
        assert_refused(fd, "status\n", "memory", "out of memory");
        mem_fail_after(n);
        control_line(control, a->now_ms, line, sizeof line);
        mem_fail_after(-1);
        assert_non_null(strstr(line, "degraded: out of memory"));
    }
    assert_answers(fd, "status\n", "island");
    control_line(control, a->now_ms, line, sizeof line);
    assert_string_equal(line, "step 0/1000; degraded: no trainer is attached");
    close(fd);
    struct control_conf conf = conf_of();
    struct control *second = NULL;
    control_free(control);
    enum err err = ERR_NOMEM;
    int n = 0;
    for (; err != ERR_OK; n++) {
        mem_fail_after(n);
        err = control_new(&conf, &second);
        mem_fail_after(-1);
        assert_true(err == ERR_OK || err == ERR_NOMEM);
        assert_true((second == NULL) == (err != ERR_OK));
    }
    assert_int_equal(n, 5);
    control = second;
}

int main(void)
{
    assert_ok(digest_init());
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        CASE(each_line_has_an_answer_in_order),
        CASE(a_request_in_pieces_is_one_request),
        CASE(an_answer_that_goes_out_in_pieces_is_whole),
        CASE(a_line_that_is_too_long_ends_the_connection),
        CASE(an_unknown_command_and_an_impossible_one_say_why),
        CASE(once_the_plan_is_known_it_is_shown_and_saved),
        CASE(resuming_and_pausing_reach_the_trainer),
        CASE(a_new_key_is_asked_for_and_named),
        CASE(a_new_key_is_refused_where_none_could_be_kept),
        CASE(the_thirty_third_client_is_turned_away_and_the_others_are_served),
        CASE(places_are_kept_for_root_and_our_own_user),
        CASE(a_client_that_is_idle_is_closed),
        CASE(a_client_that_does_not_read_its_answers_holds_nobody_up),
        CASE(a_client_that_leaves_without_its_answer_is_forgotten),
        CASE(the_socket_is_open_to_all_and_goes_with_the_daemon),
        CASE(without_memory_a_client_is_told_so_and_the_daemon_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
