/* SPDX-License-Identifier: Apache-2.0 */
/*
 * toll: what one member of a cluster that misbehaves costs the others: how fast they go on, epochs, memory, lines in
 * their logs, who ended, who was put out, and who named it and when.
 *
 * The member is the cluster's last island. A helper that fails fails the running test.
 */
#ifndef TESTS_LIB_TOLL_H
#define TESTS_LIB_TOLL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/lib/cluster.h"

struct toll {
    struct cluster *cluster;
    uint32_t rogue;
    double since_s, looked_s;
    long long versions, epoch;
    long memory_kib[CLUSTER_MAX];
    long read_bytes[CLUSTER_MAX]; /* of its log, so far */
    long lines[CLUSTER_MAX];      /* in its log since the beginning, but for those of level debug */
    bool put_out[CLUSTER_MAX];    /* somebody's log says that it is lost */
    const char *told;             /* complaints count that say this; NULL: any. The test's to set */
    uint32_t named_by;            /* bit i: island i has named the rogue */
    double named_s;               /* when the first one did; 0: nobody has */
    char named[400];              /* in these words */
};

/* From now on. */
void toll_begin(struct toll *toll, struct cluster *cluster);
/* Looks at what all others say; at most four times a second, however often it is called. Fails where one has ended. */
void toll_look(struct toll *toll);
/* Versions a second since the beginning, of all fragments together, as the island before the rogue counts them. */
double toll_rate(const struct toll *toll);
long long toll_epochs(const struct toll *toll);
/* By how much the memory of any of the others grew at most. */
long toll_memory_kib(const struct toll *toll);
/* How many lines the log of any of the others grew by at most. */
long toll_lines(const struct toll *toll);
/* How many of the others were put out. */
uint32_t toll_put_out(const struct toll *toll);

#endif
