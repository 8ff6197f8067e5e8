/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two islands and a witness, which votes and keeps nothing: with real daemons. Whichever is lost, the others go on; two
 * of three at once, and the one that is left decides nothing. The witness stays small, whatever the model.
 */
#include "tests/lib/testlib.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/env.h"
#include "daemon/ctl/ctl_client.h"
#include "tests/lib/cluster.h"
#include "tests/lib/homes.h"
#include "tests/lib/proc.h"
#include "tests/lib/village.h"

enum { A, B, WITNESS, ISLANDS };
/* Every fragment may have one more version on its way, which closes without anybody who is lost after it. */
enum { FRAGMENTS = 3, NEW_ROUND = FRAGMENTS + 1, PATIENCE_S = 60, TOKEN_BYTES = 4096, AWAY_MS = 500 };
static const char *const away = "[net]\naway = 500ms";

/* What a witness may have beyond what its programs and libraries take: no more for a larger model. */
enum { WITNESS_KIB_MAX = 32768, LARGE = 2 << 20 };

/* A round of each fragment takes 200 ms. */
static const char spec[] = "[run]\nname = witness\nsteps = 1000000\n[model]\nlayers = 2\n"
                           "[sync]\ninterval = 10\nlayers_per_fragment = 1\noverlap = 2\nlate = merge\n";

static const char *paris, *oslo, *bern;

/* ---- a cluster ---- */

static struct cluster *begin(const char *name, const char *data)
{
    struct cluster_options options = {.run = spec, .data = data, .more = away, .witness = true};
    struct cluster *cluster = cluster_new(name, ISLANDS, &options);
    cluster_start_all(cluster);
    for (uint32_t i = 0; i < ISLANDS; i++) /* of the witness: what it hears */
        cluster_wait(cluster, i, cluster_versions_reach, NEW_ROUND, "some versions");
    return cluster;
}

/* As when the machine burns: daemon and trainer end at once, without a word. */
static void burn(struct cluster *cluster, uint32_t i)
{
    assert_int_equal(cluster_end(cluster, i, SIGKILL), 128 + SIGKILL);
    proc_kill_trainer(cluster->island[i].state);
}

static long long versions(struct cluster *cluster, uint32_t i)
{
    return cluster_status_number(cluster, i, "versions");
}

static long long epoch(struct cluster *cluster, uint32_t i)
{
    return cluster_status_number(cluster, i, "epoch");
}

static void assert_moves(struct cluster *cluster, uint32_t i, const char *when)
{
    double since_s = env_mono_s();
    cluster_wait(cluster, i, cluster_versions_reach, versions(cluster, i) + NEW_ROUND, when);
    print_message("%s: anchors of %s move again after %.1f s\n", when, cluster->island[i].name, env_mono_s() - since_s);
}

static bool has_role(struct cluster *cluster, uint32_t i, uint32_t of, const char *role)
{
    json_t *answer = cluster_ask(cluster, i, "peers"), *row;
    size_t index;
    bool has = false;
    json_array_foreach (json_object_get(answer, "peers"), index, row)
        has |= strcmp(ctl_text(row, "name"), cluster->island[of].name) == 0 && strcmp(ctl_text(row, "role"), role) == 0;
    json_decref(answer);
    return has;
}

static void wait_role(struct cluster *cluster, uint32_t i, uint32_t of, const char *role)
{
    for (int k = 0; k < PATIENCE_S * 20 && !has_role(cluster, i, of, role); k++)
        proc_sleep_ms(50);
    if (!has_role(cluster, i, of, role)) {
        cluster_print_logs(cluster);
        fail_msg("to island %s, %s is no %s", cluster->island[i].name, cluster->island[of].name, role);
    }
}

/* Its own words: no fragment has a state there, and what it hears is what the others have. */
static void assert_keeps_nothing(struct cluster *cluster)
{
    char path[300];
    json_t *answer = cluster_ask(cluster, WITNESS, "fragments"), *row;
    size_t index;
    json_array_foreach (json_object_get(answer, "fragments"), index, row) {
        assert_int_equal(ctl_integer(row, "version"), 0);
        assert_true(json_is_null(json_object_get(row, "hash")));
    }
    assert_int_equal(json_array_size(json_object_get(answer, "fragments")), FRAGMENTS);
    json_decref(answer);
    assert_int_equal(cluster_status_number(cluster, WITNESS, "ledger_records"), 0);
    snprintf(path, sizeof path, "%s/anchor.safetensors", cluster->island[WITNESS].state);
    assert_int_equal(access(path, F_OK), -1);
}

static void end_well(struct cluster *cluster)
{
    char anchors[ISLANDS][80];
    for (uint32_t i = A; i <= B; i++)
        json_decref(cluster_ask(cluster, i, "pause"));
    for (uint32_t i = A; i <= B; i++)
        for (int k = 0; k < PATIENCE_S * 20 && strcmp(cluster_trainer(cluster, i), "stopped") != 0; k++)
            proc_sleep_ms(50);
    for (int k = 0; k < PATIENCE_S * 20; k++) {
        for (uint32_t i = A; i <= B; i++) {
            json_t *status = cluster_ask(cluster, i, "status");
            snprintf(anchors[i], sizeof anchors[i], "%s", ctl_text(status, "anchors"));
            json_decref(status);
        }
        if (strcmp(anchors[A], anchors[B]) == 0)
            break;
        proc_sleep_ms(50);
    }
    cluster_assert_one_truth(cluster);
    for (uint32_t i = 0; i < ISLANDS; i++) {
        assert_false(cluster_log_has(cluster, i, "please report", 0));
        assert_false(cluster_log_has(cluster, i, "DIVERGED", 0));
        assert_int_equal(cluster_end(cluster, i, SIGTERM), 0);
    }
    cluster_free(cluster);
}

/* ---- who is lost ---- */

static void lose_and_find(struct cluster *cluster, uint32_t lost)
{
    uint32_t left = lost == A ? B : A;
    burn(cluster, lost);
    wait_role(cluster, left, lost, "away");
    assert_moves(cluster, left, "with the witness alone");
    assert_int_equal(cluster_status_number(cluster, left, "voters"), 2);
    cluster_start(cluster, lost);
    wait_role(cluster, left, lost, "owner");
    assert_int_equal(cluster_status_number(cluster, left, "voters"), 3);
    assert_moves(cluster, lost, "back again");
}

static void whoever_of_three_is_lost_the_others_go_on(void **state)
{
    (void)state;
    struct cluster *cluster = begin("witness", "sleep=20 keep=1");
    for (uint32_t i = 0; i < ISLANDS; i++)
        assert_true(has_role(cluster, i, WITNESS, "witness"));
    assert_int_equal(cluster_status_number(cluster, A, "voters"), 3);
    lose_and_find(cluster, A);
    lose_and_find(cluster, B);
    /* Nobody needs the witness as long as both are here, and an epoch would gain nothing. */
    long long before = epoch(cluster, A);
    burn(cluster, WITNESS);
    assert_true(cluster_log_has(cluster, A, "island c has not been heard of", 5));
    assert_moves(cluster, A, "without the witness");
    assert_moves(cluster, B, "without the witness");
    assert_int_equal(epoch(cluster, A), before);
    cluster_start(cluster, WITNESS);
    cluster_wait(cluster, A, cluster_peers_up, ISLANDS, "the witness");
    cluster_wait(cluster, WITNESS, cluster_degraded, 0, "the witness to be well");
    assert_keeps_nothing(cluster);
    end_well(cluster);
}

/* The one that is left is a minority: it closes no round, decides nothing, and cannot tell who of the two is gone. */
static void two_of_three_at_once_stop_the_run_until_either_is_back(void **state)
{
    (void)state;
    struct cluster *cluster = begin("witness-two", "sleep=20 keep=1");
    for (int first = 0; first < 2; first++) {
        uint32_t back = first == 0 ? WITNESS : B, later = first == 0 ? B : WITNESS;
        burn(cluster, B);
        burn(cluster, WITNESS);
        proc_sleep_ms(2 * AWAY_MS); /* what had gone out is committed, or not */
        long long stands = versions(cluster, A), decided = epoch(cluster, A);
        proc_sleep_ms(4 * AWAY_MS);
        assert_int_equal(versions(cluster, A), stands);
        assert_int_equal(epoch(cluster, A), decided);
        cluster_start(cluster, back);
        assert_moves(cluster, A, first == 0 ? "the witness is back" : "the island is back");
        cluster_start(cluster, later);
        wait_role(cluster, A, B, "owner");
        assert_moves(cluster, B, "all are back");
    }
    end_well(cluster);
}

/* ---- how large it is ---- */

static long resident_kib(int pid)
{
    char path[64], line[200];
    long kib = 0;
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (kib == 0 && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, "VmRSS:", 6) == 0)
            kib = strtol(line + 6, NULL, 10);
    fclose(file);
    return kib;
}

/* Whoever brings one, it is turned away. */
static void assert_no_trainer(struct cluster *cluster)
{
    char program[300], path[400], log[300];
    snprintf(program, sizeof program, "%s/tests/system/tool_synth",
             getenv("BUILD") != NULL ? getenv("BUILD") : "build/gcc");
    snprintf(path, sizeof path, "%s/worker.sock", cluster->island[WITNESS].sockets);
    snprintf(log, sizeof log, "%s/stray.log", cluster->folder);
    setenv("DILOCO_SOCKET", path, 1);
    int pid = proc_start(
        (const char *const[]){program, "--run", cluster->run, "--mark", "c", "--data", "sleep=20", NULL}, log);
    unsetenv("DILOCO_SOCKET");
    int status = proc_wait(pid, PATIENCE_S);
    assert_true(status > 0 && status < 128);
    assert_true(cluster_log_has(cluster, WITNESS, "this is the run's witness, which trains nothing", 5));
}

static void the_witness_does_not_grow_with_the_model(void **state)
{
    (void)state;
    char data[64];
    snprintf(data, sizeof data, "sleep=20 size=%d", LARGE);
    struct cluster *cluster = begin("witness-large", data);
    long island = resident_kib(cluster->island[A].pid), witness = resident_kib(cluster->island[WITNESS].pid);
    print_message("of %lld parameters an island's daemon has %ld MiB, the witness %ld MiB\n",
                  cluster_status_number(cluster, WITNESS, "params"), island / 1024, witness / 1024);
    assert_true(cluster_status_number(cluster, WITNESS, "params") > 2 * LARGE);
    assert_true(island > 2 * LARGE / 1024 * 8);
    assert_true(cluster_status_number(cluster, A, "memory_bytes") > 2 * LARGE * 8);
    assert_int_equal(cluster_status_number(cluster, WITNESS, "memory_bytes"), 0); /* what it might come to take */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true(witness < WITNESS_KIB_MAX);
#endif
    assert_keeps_nothing(cluster);
    assert_no_trainer(cluster);
    cluster_free(cluster);
}

/* ---- by a token ---- */

static void assert_refused(int status, int wanted, const char *reason)
{
    assert_int_equal(status, wanted);
    assert_told(reason);
}

static void one_command_makes_a_witness(void **state)
{
    (void)state;
    char token[TOKEN_BYTES];
    const char *run = village_spec(20), *text = village_text();
    GOOD(paris, "init", "--name", "paris", "--data", text, "--run", run, "--listen", homes_somewhere());
    assert_true(homes_wait_versions(paris, 2, PATIENCE_S));
    snprintf(token, sizeof token, "%s", homes_invite(paris, NULL));
    assert_refused(HOMES_RUN(oslo, "join", token, "--witness", "--data", text), 2, "a witness trains on nothing");
    assert_refused(HOMES_RUN(oslo, "join", token, "--witness", "--owner", "yes"), 2, "a witness owns nothing");
    assert_refused(HOMES_RUN(oslo, "join", "--witness"), 2, "needs a token");
    assert_refused(HOMES_RUN(oslo, "init", "--witness"), 2, "a witness joins it");
    assert_int_equal(access(oslo, F_OK), -1);
    GOOD(oslo, "join", token, "--witness", "--listen", homes_somewhere());
    assert_told("Witness witness is made");
    assert_true(homes_wait_role(paris, "witness", "witness", PATIENCE_S));
    GOOD(oslo, "status");
    assert_told("votes and keeps no parameters");
    GOOD(paris, "grant", "witness");
    snprintf(token, sizeof token, "%s", homes_invite(oslo, NULL)); /* then it may invite, too */
    assert_refused(HOMES_RUN(bern, "join", token, "--witness", "--name", "bern", "--listen", homes_somewhere()), 1,
                   "witness is the run's witness already, and there is at most one");
    assert_int_equal(access(bern, F_OK), -1);
    assert_refused(HOMES_RUN(oslo, "save"), 1, "has no parameters");
    assert_refused(HOMES_RUN(oslo, "resume"), 1, "trains nothing");
    assert_refused(HOMES_RUN(oslo, "leave"), 1, "nothing to hand over");
    assert_refused(HOMES_RUN(paris, "evict", "witness"), 1, "no round waits for");
    assert_refused(HOMES_RUN(oslo, "evict", "paris"), 1, "nobody could go on");
    GOOD(paris, "revoke", "witness");
    snprintf(token, sizeof token, "%s", homes_invite(paris, NULL));
    GOOD(bern, "join", token, "--witness", "--name", "bern", "--listen", homes_somewhere(), "--no-start");
    assert_true(homes_wait_role(paris, "bern", "witness", PATIENCE_S));
}

int main(void)
{
    assert_ok(digest_init());
    if (!village_open("witness"))
        return 1;
    paris = village_home("paris");
    oslo = village_home("oslo");
    bern = village_home("bern");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whoever_of_three_is_lost_the_others_go_on),
        cmocka_unit_test(two_of_three_at_once_stop_the_run_until_either_is_back),
        cmocka_unit_test(the_witness_does_not_grow_with_the_model),
        cmocka_unit_test(one_command_makes_a_witness),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
