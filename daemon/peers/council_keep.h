/* SPDX-License-Identifier: Apache-2.0 */
/*
 * council_keep: what the council makes durable: this island's votes, and the records that were decided. Private to
 * council.
 *
 * Disks take from a millisecond to seconds over a flush, and the loop waits for none: each kind is one job at a time
 * (JOBS_VOTE). Of votes that come meanwhile only the newest is written next, since it says all that those before it
 * said. What fails is tried again at each tick, since a full disk does not stay full. EVENT_KEPT is posted whenever
 * something has become durable. Only the loop's thread.
 */
#ifndef DAEMON_PEERS_COUNCIL_KEEP_H
#define DAEMON_PEERS_COUNCIL_KEEP_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "common/log.h"
#include "daemon/event.h"
#include "daemon/jobs.h"
#include "daemon/state/records.h"
#include "daemon/state/vote.h"
#include "net/membership/epoch.h"
#include "net/config/record.h"

struct council_keep;

struct council_keep_vote {
    struct job job;
    struct council_keep *keep;
    struct vote_file file;
    uint64_t number; /* of net/membership/epoch; 0: none is being written */
};

struct council_keep_record {
    struct job job;
    struct council_keep *keep;
    uint64_t epoch;
    struct record_entry entry; /* empty: there is none */
    bool writing, durable;
};

struct council_keep_pack {
    struct job job;
    const char *folder;
    uint64_t before;
    bool busy;
};

struct council_keep {
    struct jobs *jobs;
    struct vote *vote;
    struct events *events;
    const char *folder;
    struct council_keep_vote writing;
    uint64_t unsaved; /* number of the newest vote, if it is neither durable nor being written; 0: it is */
    uint64_t saved;   /* number of the newest one that is durable and was not taken; 0: none */
    struct council_keep_record decided;
    struct council_keep_pack pack;
    char unkept[256]; /* why something could not be made durable last; "": it could */
    struct log_limit failed_said;
};

/* All borrowed. */
void council_keep_init(struct council_keep *keep, struct jobs *jobs, struct vote *vote, struct events *events,
                       const char *folder);
/* No job may be at work any more. */
void council_keep_deinit(struct council_keep *keep);

/* EPOCH_DO_SAVE. The vote is copied. */
void council_keep_save(struct council_keep *keep, const struct epoch_vote *vote, uint64_t number);
/* EPOCH_DO_DECIDED. The entry is copied. ERR_NOMEM: it is not kept; the others send it when this daemon is started
 * again. */
ERR_MUST_CHECK enum err council_keep_decided(struct council_keep *keep, const struct record_entry *entry);
/* Puts the records before that epoch into few files (records_pack()); one at a time, else at the next call. */
void council_keep_pack(struct council_keep *keep, uint64_t before);
/* What failed is tried again. */
void council_keep_tick(struct council_keep *keep);
/* Another record has begun, or this one anew: what net/membership/epoch waited for it does not wait for any more. */
void council_keep_void(struct council_keep *keep);

/* EPOCH_EV_SAVED's number; 0: nothing is new. */
uint64_t council_keep_saved(struct council_keep *keep);
/* The record that is durable now, which the caller owns. False: there is none. */
bool council_keep_record(struct council_keep *keep, struct record_entry *entry);

#endif
