/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory: the memory and disk that a run takes on this island, stated before anything is taken. Pure but for asking for
 * the free disk.
 */
#ifndef DAEMON_STATE_MEMORY_H
#define DAEMON_STATE_MEMORY_H

#include <stdint.h>

#include "common/err.h"
#include "common/mem_limit.h"
#include "daemon/state/parts.h"
#include "daemon/state/replica.h"

/* States that are copied for other islands at a time, and that come in at a time. */
enum { MEMORY_STATES_SERVED = 3, MEMORY_STATES_FETCHED = 2 };

/* Bytes at most. */
struct memory {
    uint64_t replica; /* anchors, momentum, residuals */
    uint64_t shared;  /* with the trainer */
    uint64_t frames;  /* encoded: contributions out and in, results, our own; and job threads' scratch */
    uint64_t states;  /* on their way in, and copies for others; with the digests of their leaves */
};

/* Whose memory: that of the member with the id `self`, of so many, with the parts there are at first. Where others
 * leave, and their shards come to us, our own part grows, and with it the figures for own shards here. */
struct memory_conf {
    const struct replica_conf *replica;
    const struct parts *parts;
    uint32_t members_count, self, job_threads;
};
struct memory memory_of(const struct memory_conf *conf);
uint64_t memory_sum(const struct memory *memory);

/* ERR_NOMEM: the run needs more all the time than there is, by mem_limit(). */
ERR_MUST_CHECK enum err memory_check(const struct memory *memory, uint64_t params_count, const struct mem_limit *there);

/* ---- the disk ---- */

/* Bytes that a run needs to go on, all at once. Where the disk is slow for the rounds the ledger has more, up to
 * ledger_keep or all checkpoints together, whichever is more. */
struct memory_disk {
    uint64_t checkpoints; /* with residuals; and the largest fragment once more, while it is written */
    uint64_t ledger;      /* results that no checkpoint covers, and those kept for others */
    uint64_t exported;    /* the anchors for people; and once more, while they are written */
};
/* `versions`: results of so many are kept for others; 0: as rules_versions() has it. */
struct memory_disk memory_disk_of(const struct replica_conf *conf, uint64_t ledger_keep, uint64_t versions);
/* ERR_NOSPACE: the file system of `folder` has less. A folder that cannot be asked is left to who writes there. */
ERR_MUST_CHECK enum err memory_disk_check(const struct memory_disk *disk, uint64_t params_count, const char *folder);

#endif
