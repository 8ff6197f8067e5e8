/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger_core: what an open ledger remembers, and its segments. Private to daemon/state/ledger*.c.
 */
#ifndef DAEMON_STATE_LEDGER_CORE_H
#define DAEMON_STATE_LEDGER_CORE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "daemon/state/ledger_index.h"
#include "daemon/state/ledger_record.h"
#include "daemon/state/ledger_types.h"

/* Files are named "ledger-NUMBER.log". */
#define LEDGER_SEGMENT_NUMBER_MAX UINT64_C(999999999999) /* 12 digits */

struct segment {
    uint64_t number;
    uint64_t bytes;
    uint64_t durable; /* of these, from the beginning: a flush that followed them succeeded, or they were there */
    int fd;           /* -1: removed */
};

/* Who waits for what was appended to be durable. */
struct ledger_flush;

struct ledger {
    struct ledger_conf conf;
    struct ledger_run run;
    char *folder, *lock_path;
    int lock_fd;
    /* Whose turn it is to append: held while the disk takes its time, and taken before `lock`. Segments are added, and
     * the last one changed, with both. */
    pthread_mutex_t writing;
    pthread_mutex_t lock;     /* of all that follows; nobody waits for the disk with it */
    struct segment *segments; /* oldest first */
    size_t segments_count, segments_room;
    struct ledger_index index;
    struct ledger_flush *flushes;
    bool flushing; /* one of those who wait is at it, for all */
    pthread_cond_t flushed;
    uint64_t failures; /* flushes that failed */
    bool doubtful;     /* one of the last segment did: nothing more goes there */
    bool lost;         /* a segment with records was put aside, and nothing was appended since */
};

ERR_MUST_CHECK enum err ledger_core_path(const struct ledger *ledger, uint64_t number, char **path);
/* A new segment's file, durably, with its header in it. */
ERR_MUST_CHECK enum err ledger_core_create(const struct ledger *ledger, uint64_t number, int *fd);
/* The ledger's last segment from now on, with `bytes` in it. ERR_NOMEM: it is the caller's to close. */
ERR_MUST_CHECK enum err ledger_core_add(struct ledger *ledger, uint64_t number, int fd, uint64_t bytes);
/* Flushes what was appended by now. With the lock, which is not held while the disk takes its time, and `flushing` set:
 * of two at a time one would hear nothing of a failure. Returns errno; 0: it is on the disk. */
int ledger_core_flush(struct ledger *ledger);
/* A commit's bytes as they are on the disk now; the head is checked once more. With the lock. */
ERR_MUST_CHECK enum err ledger_core_commit(const struct ledger *ledger, const struct ledger_entry *entry,
                                           struct ledger_commit *out);

#endif
