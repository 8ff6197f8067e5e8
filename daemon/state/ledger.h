/*
 * ledger: the sequence of results of a run, on disk, appended and never changed.
 *
 * Anchor and momentum at any version are a function of the last checkpoint and the results since, so the ledger is
 * what makes a killed daemon come back, an island that was away catch up, and a run provable. It is a folder of
 * segment files of records (docs/FORMATS.md). Opening checks every record: damaged ones are passed over, a
 * torn end is cut off, both are reported. The folder is locked against a second daemon.
 * Any thread may call; a lock inside orders appends. Lookups use an index in memory, 40 bytes per result.
 */
#ifndef DAEMON_STATE_LEDGER_H
#define DAEMON_STATE_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/digest.h"
#include "common/err.h"

struct ledger;

struct ledger_conf {
    const char *folder;      /* created if need be */
    struct digest run_id;    /* results of another run are refused */
    struct digest shares_id; /* and those of other islands, whose shards are cut and numbered otherwise */
    uint64_t segment_bytes;  /* a new file is begun beyond this */
    uint64_t keep_bytes;     /* results kept although a checkpoint covers them */
};

/* ERR_CONF: the folder belongs to another run or other islands, or another daemon uses it. */
ERR_MUST_CHECK enum err ledger_open(const struct ledger_conf *conf, struct ledger **out);
void ledger_close(struct ledger *ledger);

/* Appends a result; `durable`: on the disk before it returns. A result that is there already is left as it is. */
ERR_MUST_CHECK enum err ledger_append(struct ledger *ledger, uint32_t fragment, uint64_t version, uint32_t shard,
                                      const uint8_t *object, size_t bytes, bool durable);

/* Flushes everything appended so far. */
ERR_MUST_CHECK enum err ledger_sync(struct ledger *ledger);

/* A result's bytes, mapped; valid until ledger_unmap(). ERR_NOTFOUND. */
struct ledger_map {
    const uint8_t *object;
    size_t bytes;
    void *map;
    size_t map_bytes;
};
ERR_MUST_CHECK enum err ledger_map(struct ledger *ledger, uint32_t fragment, uint64_t version, uint32_t shard,
                                   struct ledger_map *out);
void ledger_unmap(struct ledger_map *map);

bool ledger_has(struct ledger *ledger, uint32_t fragment, uint64_t version, uint32_t shard);

/* Checkpoints hold fragment f at versions[f]: removes segments whose results are all older, except the last keep_bytes.
 */
void ledger_prune(struct ledger *ledger, const uint64_t *versions, uint32_t fragments_count);

struct ledger_stats {
    uint64_t records, bytes, segments;
    bool lost; /* the folder, or the file that is appended to, is not there any more: what is written goes nowhere */
};
struct ledger_stats ledger_stats(struct ledger *ledger);

#endif
