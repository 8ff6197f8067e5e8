/* SPDX-License-Identifier: Apache-2.0 */
/*
 * membership_disk: what is made durable of membership: this island's votes, and the records that were decided. Private
 * to membership_host.
 *
 * Disks take from a millisecond to seconds over a flush, and the loop waits for none: each kind is one job at a time
 * (JOBS_VOTE). Of votes that come meanwhile only the newest is written next, since it says all that those before it
 * said. What fails is tried again at each tick, since a full disk does not stay full. EVENT_KEPT is posted whenever
 * something has become durable. Only the loop's thread.
 */
#ifndef DAEMON_MEMBERSHIP_MEMBERSHIP_DISK_H
#define DAEMON_MEMBERSHIP_MEMBERSHIP_DISK_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "common/log.h"
#include "daemon/event.h"
#include "daemon/jobs.h"
#include "daemon/membership/records.h"
#include "daemon/membership/vote.h"
#include "net/membership/epoch.h"
#include "net/config/record.h"

struct membership_disk;

struct membership_disk_vote {
    struct job job;
    struct membership_disk *keep;
    struct vote_file file;
    uint64_t number; /* of net/membership/epoch; 0: none is being written */
};

struct membership_disk_record {
    struct job job;
    struct membership_disk *keep;
    uint64_t epoch;
    struct record_entry entry; /* empty: there is none */
    bool writing, durable;
};

struct membership_disk_pack {
    struct job job;
    const char *folder;
    uint64_t before;
    bool busy;
};

struct membership_disk {
    struct jobs *jobs;
    struct vote *vote;
    struct events *events;
    const char *folder;
    struct membership_disk_vote writing;
    uint64_t unsaved; /* number of the newest vote, if it is neither durable nor being written; 0: it is */
    uint64_t saved;   /* number of the newest one that is durable and was not taken; 0: none */
    struct membership_disk_record decided;
    struct membership_disk_pack pack;
    char unkept[256]; /* why something could not be made durable last; "": it could */
    struct log_limit failed_said;
};

/* All borrowed. */
void membership_disk_init(struct membership_disk *keep, struct jobs *jobs, struct vote *vote, struct events *events,
                          const char *folder);
/* No job may be at work any more. */
void membership_disk_deinit(struct membership_disk *keep);

/* EPOCH_DO_SAVE. The vote is copied. */
void membership_disk_save(struct membership_disk *keep, const struct epoch_vote *vote, uint64_t number);
/* EPOCH_DO_DECIDED. The entry is copied. ERR_NOMEM: it is not kept; the others send it when this daemon is started
 * again. */
ERR_MUST_CHECK enum err membership_disk_decided(struct membership_disk *keep, const struct record_entry *entry);
/* Puts the records before that epoch into few files (records_pack()); one at a time, else at the next call. */
void membership_disk_pack(struct membership_disk *keep, uint64_t before);
/* What failed is tried again. */
void membership_disk_tick(struct membership_disk *keep);
/* Another record has begun, or this one anew: what net/membership/epoch waited for it does not wait for any more. */
void membership_disk_void(struct membership_disk *keep);

/* EPOCH_EV_SAVED's number; 0: nothing is new. */
uint64_t membership_disk_saved(struct membership_disk *keep);
/* The record that is durable now, which the caller owns. False: there is none. */
bool membership_disk_record(struct membership_disk *keep, struct record_entry *entry);

#endif
