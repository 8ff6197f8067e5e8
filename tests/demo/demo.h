/* SPDX-License-Identifier: Apache-2.0 */
/*
 * demo: the main job on one machine, for people: two daemons, two trainers, one model. demo.c runs it and shows it
 * live; demo_parallel.c trains on the same tokens without islands; demo_report.c makes table, picture, sample and
 * summary of what is left in the folder.
 */
#ifndef TESTS_DEMO_DEMO_H
#define TESTS_DEMO_DEMO_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DEMO_ISLANDS = 2, DEMO_STEPS_MAX = 100000 };
/* While it trains, the held-out loss is measured so often in a run, on all that the run spec holds out of DEMO_TEXT. */
enum { DEMO_EVALS = 10, DEMO_EVAL_BATCHES = 54 };

struct demo_island {
    const char *name;
    char home[64], log[64], state[80], control[96];
    size_t log_from; /* what stood there before is looked at no more */
    int pid;
    bool finished;
    /* as last told by its daemon */
    char trainer[32], anchors[80], saved[256];
    long long step, tokens, versions, bytes_sent, bytes_received, payload_sent, version_min, version_max;
    double loss, tokens_per_s;
};

/* What a trainer has measured on text that was held out, last. */
struct demo_held_out {
    long long step;
    double loss; /* NAN: nothing yet */
};

struct demo {
    const char *programs, *data;
    char run_id[80], codec[16];
    long long steps, params, fragments, interval;
    long long eval_every;
    struct demo_held_out held_out; /* by the first island's trainer */
    long threads;                  /* of each trainer */
    bool parallel;                 /* demo_parallel() has trained */
    struct demo_island island[DEMO_ISLANDS];
    double begin_s, took_s;
};

#define DEMO_FOLDER "build/demo"
#define DEMO_PARALLEL DEMO_FOLDER "/data-parallel"
/* The same on every machine, so that everyone sees the same figures; tests/demo/README.md says whose it is. */
#define DEMO_TEXT "tests/demo/shakespeare.txt"

/* A line on the screen: what comes now, and how many seconds after the start. */
void demo_say(const struct demo *demo, const char *what);

/* The newest held-out loss in a trainer's folder. */
struct demo_held_out demo_held_out(const char *folder);

/* What the islands are measured by: as many ranks as there were islands train the same model on as many tokens, and
 * add up their gradients at every step. After the run, whose demo->steps and ->threads it takes. False if it failed or
 * was interrupted. */
bool demo_parallel(const struct demo *demo, const volatile sig_atomic_t *interrupted);

/* Reads what the run left, prints table and sample, writes the picture and the summary. Returns the exit status: 0 only
 * if the anchors are identical and the loss fell. */
int demo_report(const struct demo *demo);

#endif
