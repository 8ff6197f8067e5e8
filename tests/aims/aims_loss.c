/* SPDX-License-Identifier: Apache-2.0 */
/* Islands that are lost for good, and how soon the others go on. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "daemon/ctl/ctl_client.h"
#include "tests/aims/aims.h"
#include "tests/lib/cluster.h"
#include "tests/lib/proc.h"
#include "tests/lib/said.h"
#include "tests/lib/testlib.h"

enum { ISLANDS = 3, TIMES = 4, LOOK_MS = 10, WARM_VERSIONS = 30, PATIENCE_S = 30 };

/* A round of each fragment takes 200 ms. */
static const char run_spec[] = "[run]\nname = aims\nsteps = 100000000\n[model]\nlayers = 2\n"
                               "[sync]\ninterval = 10\nlayers_per_fragment = 1\noverlap = 2\nlate = merge\n";
static const char trainer[] = "sleep=20";

/* What an island says of one that it does not hear: since when, and whether `status` says so. */
static double heard_ago_s(struct cluster *cluster, uint32_t i, const char *name)
{
    json_t *peers = cluster_ask(cluster, i, "peers"), *row;
    size_t index;
    double ago_s = -1;
    json_array_foreach (json_object_get(peers, "peers"), index, row)
        if (strcmp(ctl_text(row, "name"), name) == 0)
            ago_s = json_number_value(json_object_get(row, "heard_s"));
    json_decref(peers);
    return ago_s;
}

static bool complains(struct cluster *cluster, uint32_t i, const char *code)
{
    json_t *status = cluster_ask(cluster, i, "status"), *row;
    size_t index;
    bool does = false;
    json_array_foreach (json_object_get(status, "degraded"), index, row)
        does |= strcmp(ctl_text(row, "code"), code) == 0;
    json_decref(status);
    return does;
}

/* Since the last word of who is lost, until one of the others complains; they all have to have missed it for `away`. */
static double watch_silence(struct cluster *cluster, uint32_t lost, double *last_s)
{
    uint32_t other = (lost + 1) % ISLANDS;
    const char *name = cluster->island[lost].name;
    double until_s = said_now_s() + PATIENCE_S;
    while (!complains(cluster, other, "away") && !complains(cluster, other, "lost")) {
        assert_true(said_now_s() < until_s);
        proc_sleep_ms(LOOK_MS);
    }
    double at_s = said_now_s();
    *last_s = 0;
    for (uint32_t i = 0; i < ISLANDS; i++)
        if (i != lost)
            *last_s = fmax(*last_s, said_now_s() - heard_ago_s(cluster, i, name));
    return at_s - (said_now_s() - heard_ago_s(cluster, other, name));
}

struct loss {
    double moved_s, not_heard_s, decided_s;
};

/* The worst of those who are left. */
static struct loss lose(struct cluster *cluster, uint32_t lost, double away_s)
{
    struct loss loss = {0};
    double last_s;
    double kill_s = said_now_s();
    assert_int_equal(cluster_end(cluster, lost, SIGKILL), 128 + SIGKILL);
    proc_kill_trainer(cluster->island[lost].state);
    loss.not_heard_s = watch_silence(cluster, lost, &last_s);
    for (uint32_t i = 0; i < ISLANDS; i++) {
        const char *log = cluster->island[i].log;
        if (i == lost)
            continue;
        double begun_s = said_wait(log, kill_s, " has begun, with ", NULL, PATIENCE_S);
        double moved_s = said_wait(log, begun_s, "debug: fragment ", " hash ", PATIENCE_S);
        assert_true(begun_s > 0 && moved_s > 0);
        assert_true(said_first(log, kill_s, " is lost: ", cluster->island[lost].name) > 0);
        loss.moved_s = fmax(loss.moved_s, moved_s - kill_s);
        loss.decided_s = fmax(loss.decided_s, begun_s - last_s - away_s);
    }
    return loss;
}

/* Whether all islands are owners, as this one knows them. */
static bool all_own(struct cluster *cluster, uint32_t i, long long unused)
{
    (void)unused;
    json_t *peers = cluster_ask(cluster, i, "peers"), *row;
    size_t index, owners = 0;
    json_array_foreach (json_object_get(peers, "peers"), index, row)
        owners += strcmp(ctl_text(row, "role"), "owner") == 0;
    json_decref(peers);
    return owners == ISLANDS;
}

/* Everybody trains; and, where `all`, is an owner again. */
static void warm_up(struct cluster *cluster, bool all)
{
    long long most = 0;
    for (uint32_t i = 0; i < ISLANDS; i++) {
        cluster_wait(cluster, i, cluster_training, 0, "training");
        cluster_wait(cluster, i, cluster_peers_up, ISLANDS, "all to be heard");
        if (all)
            cluster_wait(cluster, i, all_own, 0, "all to be owners");
        long long own = cluster_status_number(cluster, i, "versions");
        most = own > most ? own : most;
    }
    if (!all)
        return;
    for (uint32_t i = 0; i < ISLANDS; i++)
        cluster_wait(cluster, i, cluster_versions_reach, most + WARM_VERSIONS, "versions");
}

struct set {
    const char *name, *more;
    double away_s;
    enum aim owner, proposer, returning, not_heard;
};

/* In turn: the last one; the first, who proposes, as the voter of the lowest id; and the last, when the first has just
 * come back and owns nothing yet. */
static void lose_each(const struct set *set)
{
    struct cluster_options options = {.run = run_spec, .data = trainer, .more = set->more};
    struct cluster *cluster = cluster_new(set->name, ISLANDS, &options);
    const enum aim aim[] = {set->owner, set->proposer, set->returning};
    cluster_start_all(cluster);
    for (int k = 0; k < 3 * TIMES; k++) {
        uint32_t lost = k % 3 == 1 ? 0 : ISLANDS - 1;
        warm_up(cluster, k % 3 != 2);
        struct loss loss = lose(cluster, lost, set->away_s);
        print_message("%s is lost: not heard after %.3f s, decided %.3f s after %.1f s, anchors move after %.3f s\n",
                      cluster->island[lost].name, loss.not_heard_s, loss.decided_s, set->away_s, loss.moved_s);
        aims_note(aim[k % 3], loss.moved_s);
        aims_note(set->not_heard, loss.not_heard_s);
        aims_note(AIM_DECIDED, loss.decided_s);
        cluster_start(cluster, lost);
    }
    cluster_free(cluster);
}

void aims_loss(void **state)
{
    (void)state;
    lose_each(&(struct set){"loss", NULL, 3, AIM_OWNER_LOST, AIM_PROPOSER_LOST, AIM_LOST_AT_RETURN, AIM_NOT_HEARD});
}

void aims_loss_soon(void **state)
{
    (void)state;
    lose_each(&(struct set){"losssoon", "[net]\naway = 500ms", 0.5, AIM_OWNER_LOST_SOON, AIM_PROPOSER_LOST_SOON,
                            AIM_LOST_AT_RETURN_SOON, AIM_NOT_HEARD_SOON});
}
