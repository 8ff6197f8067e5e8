/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simulate: how much of its time a run would train, on links one describes: N islands with the protocol's real state
 * machines (net/sync/sync.h) in virtual time, trainers that only count steps, and objects that only have a size.
 *
 * The link: every island has an uplink and a downlink of bits_per_s, or one line for both; an object takes its turn on
 * the sender's uplink and the receiver's downlink together, and arrives half a round trip later; lost bytes are sent
 * again and so take that much longer. Its work every daemon does on a few threads, a job on one of them at a time, and
 * means on all of them. Deterministic.
 */
#ifndef DAEMON_CTL_SIMULATE_H
#define DAEMON_CTL_SIMULATE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

enum { SIMULATE_THREADS_MAX = 64 };

/* What the daemons' work takes; all zero: no time at all. */
struct simulate_work {
    uint32_t threads;                    /* 1 .. SIMULATE_THREADS_MAX; 0: nothing below takes time, but the cipher */
    double encode_ns, apply_ns, hash_ns; /* a parameter of the fragment */
    double reduce_ns, store_ns;          /* a parameter of what an owner has of it */
    double link_ns;                      /* a byte, at each end */
};

struct simulate_conf {
    uint32_t islands;   /* 2 .. SYNC_MEMBERS_MAX */
    double params;      /* of the model */
    uint32_t fragments; /* of equal size; 1: all at once */
    uint64_t interval;  /* H, steps */
    uint64_t overlap;   /* tau, steps */
    double step_s;      /* one inner step */
    /* Steps a result may be late without holding up the next step: the first part of a step, which does not need it,
     * and the last part, which does not change the outer gradient. The paper's model has 2/3. */
    double slack;
    double bits; /* per parameter, encoded */
    double bits_per_s;
    bool half_duplex;
    double rtt_s;
    double loss; /* share of the bytes that has to be sent again */
    struct simulate_work work;
    uint64_t steps; /* to simulate: four intervals or more; the second half is measured */
};

/* The same run with fewer islands, of which one sends as an owner and averages what it would among all. */
struct simulate_conf simulate_fewer(const struct simulate_conf *conf, uint32_t islands);
/* How many of so many islands own shards; and what one of these sends in a round, of one encoded copy of the model:
 * contributions to the others, its results to all. */
uint32_t simulate_owners(uint32_t islands);
double simulate_owner_share(uint32_t islands);

struct simulate_result {
    double utilisation;    /* time in which islands train over all time */
    double bytes_per_step; /* sent by one island, on average */
};

/* Memory it takes; ERR_NOMEM from simulate_run() where this machine has less. */
double simulate_bytes(const struct simulate_conf *conf);

ERR_MUST_CHECK enum err simulate_run(const struct simulate_conf *conf, struct simulate_result *result);

#endif
