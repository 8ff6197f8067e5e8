/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks, each a process, and the gateway's end, here: every byte where it belongs, an end to all waiting that says who,
 * and nobody in without the site's key. */
#include "tests/lib/testlib.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/proc.h"
#include "worker/gate/gate_door.h"
#include "worker/gate/gate_key_pair.h"
#include "worker/gate/gate_link.h"

enum { RANKS = 3, WAIT_MS = 20000, LARGE = 5 * GATE_PIECE_BYTES + 77, FORM_MS = 1500 };
enum { TAG_ONE = 1, TAG_TWO = 2 };
static const char build[] = "1.2.3";

struct site {
    const struct gate_zmq *zmq;
    const char *gateway_key, *site_key;
    char listen[64], address[64];
    struct gate_door *door;
};

static struct site site_of(const char *name)
{
    struct site site = {0};
    struct gate_key key;
    const char *folder = testlib_folder(name);
    unsigned port = proc_free_port();
    assert_ok(gate_zmq_open(&site.zmq));
    site.gateway_key = testlib_path(folder, "gateway.key");
    site.site_key = testlib_path(folder, "site.key");
    snprintf(site.listen, sizeof site.listen, "127.0.0.1:%u", port);
    snprintf(site.address, sizeof site.address, "tcp://127.0.0.1:%u", port);
    assert_ok(gate_key_of_gateway(site.zmq, site.gateway_key, site.site_key, &key));
    return site;
}

static void open_door(struct site *site)
{
    struct gate_key key;
    assert_ok(gate_key_of_gateway(site->zmq, site->gateway_key, site->site_key, &key));
    assert_ok(gate_door_open(site->zmq, site->listen, build, &key, FORM_MS, &site->door));
}

static struct gate_link_conf link_conf(const struct site *site, uint32_t rank)
{
    static const char *const names[] = {"rank 0 on a", "rank 1 on a", "rank 2 on b"};
    return (struct gate_link_conf){.address = site->address,
                                   .key_path = site->site_key,
                                   .build = build,
                                   .name = names[rank],
                                   .group = 7,
                                   .rank = rank,
                                   .count = RANKS,
                                   .wait_ms = WAIT_MS};
}

/* In a rank: its process ends with the line that is not so, which the test says. */
#define CHECK(condition)                                                            \
    do {                                                                            \
        if (!(condition)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            _exit(1);                                                               \
        }                                                                           \
    } while (0)

typedef void rank_fn(struct gate_link *link, uint32_t rank);

static struct gate_link *opened(const struct gate_link_conf *conf)
{
    struct gate_link *link;
    enum err err = gate_link_open(conf, &link);
    if (err != ERR_OK)
        fprintf(stderr, "%s\n", err_text());
    CHECK(err == ERR_OK);
    return link;
}

static void start_ranks(const struct site *site, rank_fn *work, pid_t pids[RANKS])
{
    for (uint32_t r = 0; r < RANKS; r++) {
        pids[r] = fork();
        if (pids[r] != 0)
            continue;
        struct gate_link_conf conf = link_conf(site, r);
        struct gate_link *link = opened(&conf);
        work(link, r);
        gate_link_close(link);
        _exit(0);
    }
}

static void ended_well(const pid_t pids[], size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
}

static void await_all(struct site *site)
{
    uint64_t until_ms = env_mono_ms() + WAIT_MS;
    while (gate_door_count(site->door) == 0 && gate_door_lost(site->door) == NULL && env_mono_ms() < until_ms)
        gate_door_turn(site->door, 50);
    assert_int_equal(gate_door_count(site->door), RANKS);
}

static void await_parted(struct site *site)
{
    uint64_t until_ms = env_mono_ms() + WAIT_MS;
    while (!gate_door_parted(site->door) && gate_door_lost(site->door) == NULL && env_mono_ms() < until_ms)
        gate_door_turn(site->door, 50);
    assert_null(gate_door_lost(site->door));
    assert_true(gate_door_parted(site->door));
}

static void fill(uint8_t *bytes, size_t count, uint32_t seed)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)(env_mix64(i / 8 + ((uint64_t)seed << 40)) >> (i % 8 * 8));
}

/* ---- keys ---- */

static void keys_are_made_once_and_are_read_by_their_owner_alone(void **state)
{
    (void)state;
    struct site site = site_of("gate-keys");
    struct gate_key made, again, rank;
    struct stat status;
    assert_ok(gate_key_of_gateway(site.zmq, site.gateway_key, site.site_key, &made));
    assert_int_equal(stat(site.gateway_key, &status), 0);
    assert_int_equal(status.st_mode & 07777, 0600);
    assert_int_equal(stat(site.site_key, &status), 0);
    assert_int_equal(status.st_mode & 07777, 0600);
    assert_ok(gate_key_of_rank(site.zmq, site.site_key, &rank));
    assert_string_equal(rank.other_public, made.own_public);
    assert_string_equal(rank.own_public, made.other_public);

    /* What ranks have is written anew where it is gone, and is the same. */
    assert_int_equal(unlink(site.site_key), 0);
    assert_ok(gate_key_of_gateway(site.zmq, site.gateway_key, site.site_key, &again));
    assert_memory_equal(&again, &made, sizeof made);
    assert_ok(gate_key_of_rank(site.zmq, site.site_key, &rank));
    assert_string_equal(rank.own_public, made.other_public);

    assert_int_equal(chmod(site.site_key, 0640), 0);
    assert_fails(ERR_CONF, "others may read this key", gate_key_of_rank(site.zmq, site.site_key, &rank));
    assert_int_equal(chmod(site.site_key, 0600), 0);
    assert_fails(ERR_CONF, "is no key of this kind", gate_key_of_rank(site.zmq, site.gateway_key, &rank));
    assert_fails(ERR_NOTFOUND, "No such file", gate_key_of_rank(site.zmq, "nowhere.key", &rank));
}

/* ---- what is said ---- */

static const uint8_t early[] = {1, 2, 3};

static void answer_all(struct gate_link *link, uint32_t rank)
{
    uint8_t *large = malloc(LARGE), *back = malloc(LARGE), small[3] = {9, 9, (uint8_t)rank};
    uint8_t heard[100], want[100];
    CHECK(large != NULL && back != NULL);
    fill(large, LARGE, rank);
    /* In an order that is not the one they are asked for in. */
    uint64_t two = gate_link_send(link, TAG_TWO, small, sizeof small);
    uint64_t one = gate_link_send(link, TAG_ONE, large, LARGE);
    uint64_t returns = gate_link_receive(link, TAG_ONE, back, LARGE);
    CHECK(two != 0 && one != 0 && returns != 0);
    for (uint32_t i = 0; i < 3; i++) {
        fill(want, sizeof want, i);
        CHECK(gate_link_hear(link, heard, sizeof heard) && memcmp(heard, want, sizeof heard) == 0);
    }
    CHECK(gate_link_arrived(link, two, true) == 1 && gate_link_arrived(link, one, true) == 1);
    CHECK(gate_link_arrived(link, returns, true) == 1 && memcmp(back, large, LARGE) == 0);
    CHECK(gate_link_arrived(link, returns, false) == -1); /* it is gone */
    /* This came before, when that alone was waited for. */
    returns = gate_link_receive(link, TAG_TWO, back, sizeof early);
    CHECK(gate_link_arrived(link, returns, true) == 1 && memcmp(back, early, sizeof early) == 0);
    if (rank == 0) {
        gate_link_ask(link, GATE_ASKED_ENDING, 1234);
        CHECK(gate_link_call(link, 6, "ab", 2) && gate_link_call(link, 7, NULL, 0));
    } else {
        CHECK(gate_link_call(link, 5, "x", 1)); /* is not listened to */
    }
    CHECK(gate_link_meet(link));
    free(large);
    free(back);
}

static void every_byte_arrives_where_it_was_asked_for(void **state)
{
    (void)state;
    struct site site = site_of("gate-bytes");
    pid_t pids[RANKS];
    uint8_t *large[RANKS], small[RANKS][3], said[100], call_bytes[GATE_CALL_BYTES_MAX];
    uint64_t one[RANKS], two[RANKS], first[RANKS], back[RANKS], value;
    uint32_t call;
    size_t count;
    start_ranks(&site, answer_all, pids);
    open_door(&site);
    await_all(&site);
    assert_string_equal(gate_door_name(site.door, 2), "rank 2 on b");
    for (uint32_t r = 0; r < RANKS; r++) {
        large[r] = malloc(LARGE);
        assert_non_null(large[r]);
        one[r] = gate_door_receive(site.door, r, TAG_ONE, large[r], LARGE);
        two[r] = gate_door_receive(site.door, r, TAG_TWO, small[r], sizeof small[r]);
    }
    for (uint32_t i = 0; i < 3; i++) {
        fill(said, sizeof said, i);
        assert_true(gate_door_broadcast(site.door, RANKS, said, sizeof said));
    }
    for (uint32_t r = 0; r < RANKS; r++) {
        assert_int_equal(gate_door_arrived(site.door, two[r], true), 1);
        assert_int_equal(small[r][2], r);
        assert_int_equal(gate_door_arrived(site.door, one[r], true), 1);
        first[r] = gate_door_send(site.door, r, TAG_TWO, early, sizeof early);
        back[r] = gate_door_send(site.door, r, TAG_ONE, large[r], LARGE);
        assert_true(first[r] != 0 && back[r] != 0);
    }
    assert_true(gate_door_meet(site.door, RANKS));
    assert_true(gate_door_call(site.door, &call, call_bytes, &count));
    assert_int_equal(call, 6);
    assert_int_equal(count, 2);
    assert_true(gate_door_call(site.door, &call, call_bytes, &count));
    assert_int_equal(call, 7);
    assert_false(gate_door_call(site.door, &call, call_bytes, &count)); /* another rank's is none */
    assert_true(gate_door_asked(site.door, GATE_ASKED_ENDING, &value));
    assert_int_equal(value, 1234);
    assert_false(gate_door_asked(site.door, GATE_ASKED_ENDING, &value));
    await_parted(&site);
    for (uint32_t r = 0; r < RANKS; r++) {
        assert_int_equal(gate_door_arrived(site.door, first[r], true), 1);
        assert_int_equal(gate_door_arrived(site.door, back[r], true), 1);
        free(large[r]);
    }
    ended_well(pids, RANKS);
    gate_door_close(site.door);
}

static atomic_int *gateway_comes; /* all processes see it */

static void meet_and_look(struct gate_link *link, uint32_t rank)
{
    proc_sleep_ms(100 * rank);
    CHECK(gate_link_meet(link));
    CHECK(atomic_load(gateway_comes) == 1);
}

static void nobody_goes_on_before_all_have_come_and_the_gateway_has(void **state)
{
    (void)state;
    struct site site = site_of("gate-meet");
    pid_t pids[RANKS];
    gateway_comes = mmap(NULL, sizeof *gateway_comes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(gateway_comes, MAP_FAILED);
    start_ranks(&site, meet_and_look, pids);
    open_door(&site);
    await_all(&site);
    for (uint64_t until_ms = env_mono_ms() + 500; env_mono_ms() < until_ms;)
        gate_door_turn(site.door, 50);
    atomic_store(gateway_comes, 1);
    assert_true(gate_door_meet(site.door, RANKS));
    await_parted(&site);
    ended_well(pids, RANKS);
    gate_door_close(site.door);
    munmap(gateway_comes, sizeof *gateway_comes);
}

/* ---- who is not let in ---- */

/* A gateway of its own process, as the thread sanitizer wants no fork() of one that has threads. It ends when its group
 * does. */
static pid_t gateway_process(struct site *site)
{
    pid_t pid = fork();
    if (pid == 0) {
        open_door(site);
        while (gate_door_lost(site->door) == NULL)
            gate_door_turn(site->door, 20);
        gate_door_close(site->door);
        _exit(0);
    }
    return pid;
}

/* What a rank is told, in another process. */
static pid_t told(const struct gate_link_conf *conf, enum err want, const char *part)
{
    pid_t pid = fork();
    if (pid == 0) {
        struct gate_link *link;
        enum err err = gate_link_open(conf, &link);
        bool so = err == want && strstr(err_text(), part) != NULL;
        if (!so)
            fprintf(stderr, "%s: %s; not: %s\n", err_name(err), err_text(), part);
        _exit(so ? 0 : 1);
    }
    return pid;
}

static void is_refused(const struct gate_link_conf *conf, enum err want, const char *part)
{
    pid_t pid = told(conf, want, part);
    ended_well(&pid, 1);
}

/* Until it is there; a probe that goes again is nobody. */
static void await_listening(const struct site *site)
{
    struct gate_link_conf conf = link_conf(site, 0);
    conf.build = "none";
    is_refused(&conf, ERR_STATE, "libdiloco none");
}

static void nobody_comes_in_without_the_sites_key(void **state)
{
    (void)state;
    struct site other = site_of("gate-other"), site = site_of("gate-site");
    char word[32], public[64], secret[64], their_public[64], theirs[64];
    struct gate_link_conf conf = link_conf(&site, 0);
    pid_t gateway = gateway_process(&site);
    await_listening(&site);
    conf.wait_ms = 0;
    FILE *file = fopen(site.site_key, "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%31s %63s %63s", word, public, secret), 3);
    fclose(file);
    file = fopen(other.site_key, "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%31s %63s %63s", word, their_public, theirs), 3);
    fclose(file);
    const char *folder = testlib_folder("gate-mixed");
    conf.key_path = testlib_file(folder, "one", "%s %s %s\n", word, public, theirs);
    assert_int_equal(chmod(conf.key_path, 0600), 0);
    is_refused(&conf, ERR_CLOSED, "hung up before it had said a word: the key in");
    conf.key_path = testlib_file(folder, "two", "%s %s %s\n", word, their_public, secret);
    assert_int_equal(chmod(conf.key_path, 0600), 0);
    is_refused(&conf, ERR_CLOSED, "hung up before it had said a word: the key in");
    conf.key_path = site.site_key; /* and with it, it is */
    conf.build = "1.2.2";
    is_refused(&conf, ERR_STATE, "rank 0 on a has libdiloco 1.2.2, and the gateway has 1.2.3: install the same");
    conf.build = build;
    conf.address = "tcp://127.0.0.1";
    is_refused(&conf, ERR_CONF, "it is written tcp://HOST:PORT");
    kill(gateway, SIGKILL);
    assert_int_equal(waitpid(gateway, NULL, 0), gateway);
}

static void a_gateway_has_one_trainer_whose_ranks_all_come(void **state)
{
    (void)state;
    struct site site = site_of("gate-one");
    struct gate_link_conf conf = link_conf(&site, 1), second = link_conf(&site, 0), twice = conf;
    pid_t gateway = gateway_process(&site);
    await_listening(&site);
    pid_t pid = told(&conf, ERR_STATE, "of 3 ranks 1 came to the gateway within 2 s; rank 0 did not");
    proc_sleep_ms(FORM_MS / 3);
    second.group = 8;
    second.wait_ms = twice.wait_ms = 0;
    is_refused(&second, ERR_CLOSED, "the gateway has a trainer: one whose first rank is on its way and others");
    is_refused(&twice, ERR_STATE, "rank 1 on a: is rank 1 of 3, which this group has not, or has already");
    twice.rank = 3;
    is_refused(&twice, ERR_STATE, "is rank 3 of 3");
    ended_well(&pid, 1);
    ended_well(&gateway, 1);
}

/* ---- who is lost ---- */

static void hear_of_the_loss(struct gate_link *link, uint32_t rank)
{
    uint8_t said;
    if (rank == 2)
        for (;;)
            pause(); /* it is killed */
    CHECK(!gate_link_hear(link, &said, sizeof said));
    CHECK(strstr(gate_link_why(link), "rank 2 on b is gone") != NULL);
    CHECK(gate_link_send(link, TAG_ONE, &said, 1) == 0 && !gate_link_meet(link));
}

static void a_rank_that_is_killed_is_named_to_all(void **state)
{
    (void)state;
    struct site site = site_of("gate-killed");
    pid_t pids[RANKS];
    uint8_t never;
    start_ranks(&site, hear_of_the_loss, pids);
    open_door(&site);
    await_all(&site);
    uint64_t number = gate_door_receive(site.door, 2, TAG_ONE, &never, sizeof never);
    kill(pids[2], SIGKILL);
    assert_int_equal(gate_door_arrived(site.door, number, true), -1);
    assert_string_equal(gate_door_lost(site.door), "rank 2 on b is gone, or the way from it to the gateway");
    assert_false(gate_door_broadcast(site.door, RANKS, &never, 1));
    assert_false(gate_door_meet(site.door, RANKS));
    gate_door_close(site.door);
    ended_well(pids, 2);
    assert_int_equal(waitpid(pids[2], NULL, 0), pids[2]);
}

static void hear_that_it_is_gone(struct gate_link *link, uint32_t rank)
{
    uint8_t said;
    (void)rank;
    proc_sleep_ms(1000); /* until it is gone */
    CHECK(gate_link_hear(link, &said, sizeof said) && said == 5);
    CHECK(!gate_link_hear(link, &said, sizeof said));
    CHECK(strstr(gate_link_why(link), "is gone, or the way to it") != NULL);
}

static void a_gateway_that_is_gone_is_known_to_all_and_what_it_said_counts(void **state)
{
    (void)state;
    struct site site = site_of("gate-gone");
    pid_t pids[RANKS], gateway;
    start_ranks(&site, hear_that_it_is_gone, pids);
    gateway = fork();
    if (gateway == 0) {
        const uint8_t said = 5;
        open_door(&site);
        await_all(&site);
        CHECK(gate_door_broadcast(site.door, RANKS, &said, sizeof said));
        proc_sleep_ms(300);
        _exit(0); /* without a word */
    }
    ended_well(&gateway, 1);
    ended_well(pids, RANKS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_made_once_and_are_read_by_their_owner_alone),
        cmocka_unit_test(every_byte_arrives_where_it_was_asked_for),
        cmocka_unit_test(nobody_goes_on_before_all_have_come_and_the_gateway_has),
        cmocka_unit_test(nobody_comes_in_without_the_sites_key),
        cmocka_unit_test(a_gateway_has_one_trainer_whose_ranks_all_come),
        cmocka_unit_test(a_rank_that_is_killed_is_named_to_all),
        cmocka_unit_test(a_gateway_that_is_gone_is_known_to_all_and_what_it_said_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
