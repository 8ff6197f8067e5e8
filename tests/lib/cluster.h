/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cluster: real daemons on loopback for system tests: keys, configurations, processes, questions over their control
 * sockets. Everything lies in one folder under the build folder; everything started is ended by cluster_free().
 * A helper that fails fails the running test.
 */
#ifndef TESTS_LIB_CLUSTER_H
#define TESTS_LIB_CLUSTER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CLUSTER_MAX = 8, CLUSTER_EPOCH = 1 }; /* in which a run of several islands begins */

struct cluster_island {
    char name[16], conf[256], log[256], state[256], sockets[256], control[300];
    char key[256], public_key[64];
    char host[64]; /* where the others find it; loopback unless a test says otherwise */
    unsigned port;
    int space; /* process in whose network namespace it runs; 0: ours */
    int pid;   /* 0: not running */
};

struct cluster {
    const char *folder;
    char run[256];
    uint32_t count;
    bool witness; /* the last one is */
    bool begun;   /* its configurations are on disk: of several islands from the first start on */
    struct cluster_island island[CLUSTER_MAX];
};

struct cluster_options {
    const char *run;     /* text of the run spec */
    const char *program; /* [worker] program, under the build folder; NULL: the synthetic trainer */
    const char *data;    /* [worker] data of every island; for the synthetic trainer, its options */
    const char *more;    /* more configuration lines, for every island; may be NULL */
    bool witness;        /* the last island is the run's witness */
};

/* Makes `count` islands, named a, b, c, ...; nothing runs yet. One alone founds its run when it starts. */
struct cluster *cluster_new(const char *name, uint32_t count, const struct cluster_options *options);
void cluster_free(struct cluster *cluster);

/* Rewrites island i's configuration: other data and more lines, or after hosts have changed. */
void cluster_configure(struct cluster *cluster, uint32_t i, const struct cluster_options *options);
/* Puts more lines into it, behind the first one that is `line`. Both end in a new line. */
void cluster_configure_after(struct cluster *cluster, uint32_t i, const char *line, const char *more);

/* Puts the run down as the configurations are now, with all islands as members (tests/lib/begun.h), if it is not there:
 * before the first start, or before what looks at its configurations. */
void cluster_begin(struct cluster *cluster);
void cluster_start(struct cluster *cluster, uint32_t i);
void cluster_start_all(struct cluster *cluster);
/* Sends a signal and waits for the end; returns the exit status, or 128 + the signal that ended it. */
int cluster_end(struct cluster *cluster, uint32_t i, int signal);
/* Waits for an end that was not asked for; -1 if it does not come within `seconds`. */
int cluster_wait_end(struct cluster *cluster, uint32_t i, double seconds);

/* An answer of island i; the caller decrefs. NULL if it does not answer. */
json_t *cluster_ask(struct cluster *cluster, uint32_t i, const char *request);
/* A request that it takes, whatever it answers; and one that it refuses with these words. */
void cluster_orders(struct cluster *cluster, uint32_t i, const char *request);
void cluster_refuses(struct cluster *cluster, uint32_t i, const char *request, const char *why);
/* "trainer.state" of a status, as text valid until the next call. */
const char *cluster_trainer(struct cluster *cluster, uint32_t i);
long long cluster_status_number(struct cluster *cluster, uint32_t i, const char *key);
/* The same within its trainer's part. */
long long cluster_trainer_number(struct cluster *cluster, uint32_t i, const char *key);
int cluster_trainer_pid(struct cluster *cluster, uint32_t i);

/* Waits until the predicate holds for island i; fails with the logs otherwise. */
typedef bool cluster_predicate(struct cluster *cluster, uint32_t i, long long value);
void cluster_wait(struct cluster *cluster, uint32_t i, cluster_predicate *predicate, long long value, const char *what);
bool cluster_trainer_finished(struct cluster *cluster, uint32_t i, long long unused);
bool cluster_training(struct cluster *cluster, uint32_t i, long long unused);
bool cluster_versions_reach(struct cluster *cluster, uint32_t i, long long versions);
bool cluster_peers_up(struct cluster *cluster, uint32_t i, long long islands);
bool cluster_degraded(struct cluster *cluster, uint32_t i, long long wanted);

/* Whether the island's log contains `text`; waits up to `seconds`. */
bool cluster_log_has(struct cluster *cluster, uint32_t i, const char *text, double seconds);
/* Fails unless all islands hold the same anchors, but for a witness, and every version of every fragment had one hash
 * everywhere. */
void cluster_assert_one_truth(struct cluster *cluster);
/* The second half of that, of the first `count` islands, whose logs say what they have come to; how many versions there
 * were. */
size_t cluster_assert_one_history(struct cluster *cluster, uint32_t count);
/* How many of them have parameters: all but a witness. */
uint32_t cluster_keepers(const struct cluster *cluster);
/* Fails unless every island's exported anchor becomes the same file, byte for byte. */
void cluster_assert_one_model(struct cluster *cluster);
/* Prints the end of every log. */
void cluster_print_logs(struct cluster *cluster);

#endif
