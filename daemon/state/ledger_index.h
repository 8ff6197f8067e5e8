/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger_index: where the ledger's records are: a hash table by fragment and version, in memory. Private to ledger.c,
 * whose lock is held.
 *
 * The records of one version form a list in the order in which they were added. An entry takes 80 bytes, and 8 to 16
 * of the table; both grow by doubling.
 */
#ifndef DAEMON_STATE_LEDGER_INDEX_H
#define DAEMON_STATE_LEDGER_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "daemon/state/ledger_record.h"

struct ledger_entry {
    struct result_id key;  /* of a commit: fragment and version, else zeros */
    uint32_t segment : 30; /* index into the ledger's segments */
    uint32_t commit : 1;
    uint32_t unflushed : 1; /* a result that is to be durable, and is not yet: nobody hears of it */
    uint32_t next;          /* of its version: index + 1; the index's own */
    uint64_t offset, bytes; /* of the body in the file */
};

struct ledger_index {
    struct ledger_entry *entries;
    size_t count, room, results; /* results: entries that are no commits */
    uint32_t *slots;             /* open addressing: index + 1 of a version's first entry */
    size_t slots_room;           /* power of two */
};

/* Empty when zeroed. */
void ledger_index_deinit(struct ledger_index *index);

/* NULL: there is none. Borrowed until the next change. */
struct ledger_entry *ledger_index_find(const struct ledger_index *index, const struct result_id *key);
struct ledger_entry *ledger_index_commit(const struct ledger_index *index, uint32_t fragment, uint64_t version);
/* The first entry of a version, and the one after an entry; NULL: none. */
struct ledger_entry *ledger_index_first(const struct ledger_index *index, uint32_t fragment, uint64_t version);
struct ledger_entry *ledger_index_next(const struct ledger_index *index, const struct ledger_entry *entry);

/* Adds a record that is not there. ERR_NOMEM; ERR_STATE: the version has LEDGER_RESULTS_MAX results. */
ERR_MUST_CHECK enum err ledger_index_add(struct ledger_index *index, const struct ledger_entry *entry);
/* Takes out those of a segment whose bodies are at `offset` or further, or all of it. */
void ledger_index_drop_from(struct ledger_index *index, uint32_t segment, uint64_t offset);
void ledger_index_drop_segment(struct ledger_index *index, uint32_t segment);

#endif
