/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load: how many of the machine's processors this daemon takes, lately.
 *
 * It is told now and then what the process has taken since it began. Plain struct, zero at birth; only the loop's
 * thread calls.
 */
#ifndef DAEMON_CONTROL_LOAD_H
#define DAEMON_CONTROL_LOAD_H

#include <stddef.h>
#include <stdint.h>

enum { LOAD_SAMPLES = 13, LOAD_EVERY_MS = 5000 };

struct load {
    uint64_t at_ms[LOAD_SAMPLES], cpu_ns[LOAD_SAMPLES]; /* a ring */
    size_t count;                                       /* of all samples so far */
};

/* `cpu_ns`: of all threads, since the process began. Time may only go on. */
void load_note(struct load *load, uint64_t now_ms, uint64_t cpu_ns);
/* Processors taken in the mean of the last minute, or since the first note; 0: there were not two yet. */
double load_cores(const struct load *load);

#endif
