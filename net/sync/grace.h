/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grace: how long an owner that has its quorum waits for one more island, learnt from how late that one usually is.
 *
 * As TCP does for round trips (RFC 6298): a smoothed lateness and its deviation; an island is waited for so long that
 * it is very probably there, and one that was not there in spite of it is taken to be twice as late. One that is later
 * than the run allows is not waited for at all but in rounds that probe, or nobody would see that it has mended.
 */
#ifndef NET_SYNC_GRACE_H
#define NET_SYNC_GRACE_H

#include <stdbool.h>
#include <stdint.h>

struct grace {
    bool known;
    uint64_t late_ms, deviation_ms;
    uint64_t missed; /* rounds in a row that closed without it, though it takes part */
};

/* Its contribution came so long after the quorum was there; 0 if it was part of it. */
void grace_arrived(struct grace *grace, uint64_t late_ms);
/* A round closed without it, that long after the quorum was there. */
void grace_missed(struct grace *grace, uint64_t waited_ms);
/* Whether a round probes: one in eight, the same ones for the owners of all shards, since a version waits for each. */
bool grace_probes(uint32_t fragment, uint64_t round);
/* How long after the quorum it is worth waiting for; at most `most_ms`. */
uint64_t grace_wait(const struct grace *grace, uint64_t most_ms, bool probe);

#endif
