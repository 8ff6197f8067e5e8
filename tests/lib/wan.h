/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wan: a line between two network namespaces as it is between sites: slow (a token bucket at both ends of a veth pair),
 * or far and lossy (two TUN devices and a process that passes packets on late, or never).
 *
 * Needs root, or a kernel that lets users make user namespaces, and `ip` and `tc`. No cmocka here.
 */
#ifndef TESTS_LIB_WAN_H
#define TESTS_LIB_WAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wan_conf {
    uint64_t rate_bits; /* per second, each way */
    unsigned queue_ms;  /* what does not fit into a queue of so much is dropped */
    unsigned delay_ms;  /* one way; with loss_ppm 0 too, nothing but the rate is emulated */
    unsigned loss_ppm;  /* of packets, in millionths */
    unsigned number;    /* of the line, from 0: several lines lead from our namespace, which passes packets on */
};

struct wan {
    int far;    /* the process that holds the namespace of the far end */
    int middle; /* the process that passes packets on; 0: the kernel does */
    unsigned number;
    char log[256];
};

/* Puts this process, which must have one thread, into a network namespace of its own, with loopback up. False: `why`,
 * and it stays where it is. */
bool wan_enter(char *why, size_t why_bytes);

/* A line from our namespace to another one. False: `why`; what was begun is ended. `log`: a file for what goes wrong.
 * Ends a line of the same number that still stands, as a failed test leaves it. */
bool wan_begin(const struct wan_conf *conf, const char *log, struct wan *wan, char *why, size_t why_bytes);
void wan_end(struct wan *wan);
/* Cuts a line that is slow only, without a word to either end, or mends it. */
bool wan_cut(const struct wan *wan, bool cut);
/* Gives a line that is slow only another rate and queue, at both ends. */
bool wan_set_rate(const struct wan *wan, const struct wan_conf *conf);

/* The address of our end (0) and the far end (1) of line 0, and of any line; good until the next call. */
const char *wan_host(int end);
const char *wan_line_host(const struct wan *wan, int end);
/* Bytes that an end has put onto the line, headers included. */
uint64_t wan_sent_bytes(const struct wan *wan, int end);

#endif
