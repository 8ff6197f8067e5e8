/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger: the results of a run and which of them made each version, on disk, appended and never changed.
 *
 * Anchor and momentum at any version are a function of the last checkpoint and the results since, so the ledger is
 * what makes a killed daemon come back, an island that was away catch up, and a run provable. A result is kept under
 * all that names it, its digest included: two of one part that differ are both kept. A commit says which results made a
 * version; a result that no commit names was only received. It is a folder of segment files of records
 * (docs/FORMATS.md, 7). Opening checks every byte of every record: damaged ones are passed over, a torn end is cut off,
 * both are reported. Objects are hashed then and never again: that an object which is appended is whole is the caller's
 * to know. The folder is locked against a second daemon.
 * Any thread may call; a lock inside orders appends. Several that wait for the disk at a time wait for one flush, and
 * who looks something up waits for none: a result that is to be durable is found when it is. Lookups use an index in
 * memory, 96 bytes per record and up to twice that, as it grows by doubling.
 */
#ifndef DAEMON_STATE_LEDGER_H
#define DAEMON_STATE_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/digest.h"
#include "common/err.h"
#include "net/transport/result_id.h"

struct ledger;

enum {
    LEDGER_PARTS_MAX = 64,    /* of one version */
    LEDGER_RESULTS_MAX = 256, /* of one version: each part's in a few epochs, and a few that were made twice */
};

/* Which results made a version, and what came of it. */
struct ledger_commit {
    uint32_t fragment, parts_count;
    uint64_t version;
    struct digest hash;                       /* of the version they made; zeros: it was not known yet */
    struct result_id parts[LEDGER_PARTS_MAX]; /* of this fragment and version */
};

struct ledger_conf {
    const char *folder;     /* created if need be */
    struct digest run_id;   /* results of another run are refused */
    const uint8_t *nonce;   /* 16 bytes: and those of another run of the same spec; borrowed until it is open */
    uint64_t segment_bytes; /* a new file is begun beyond this */
    uint64_t keep_bytes;    /* results kept at most although a checkpoint covers them */
};

/* Whether a ledger in the folder, of whatever run, holds anything. */
bool ledger_in(const char *folder);

/* ERR_CONF: the folder belongs to another run, or another daemon uses it. */
ERR_MUST_CHECK enum err ledger_open(const struct ledger_conf *conf, struct ledger **out);
void ledger_close(struct ledger *ledger);

/* How far it reaches on the disk: a later flush reaches further, and a folder that has lost records at its end, or a
 * whole file, reaches less far; after the latter nowhere, 0, until something is appended. */
uint64_t ledger_at(struct ledger *ledger);

/* Whether damaged records were passed over when it was opened, with whole ones behind them: what it acknowledged once
 * may be missing. */
bool ledger_passed_over(const struct ledger *ledger);

/* Flushes everything appended so far. A flush that fails, here or below, fails all that was appended since the last
 * good one: the ledger forgets it, and every caller that waits for any of it gets ERR_IO or ERR_NOSPACE. */
ERR_MUST_CHECK enum err ledger_sync(struct ledger *ledger);

/* ---- results ---- */

/* Appends a result that wire_object_open() and codec_check() found whole: it is on the disk when this returns. One that
 * is there already is left as it is. ERR_ARG: its header says another name than `key`; ERR_STATE: the version has
 * LEDGER_RESULTS_MAX results. */
ERR_MUST_CHECK enum err ledger_append(struct ledger *ledger, const struct result_id *key, const uint8_t *object,
                                      size_t bytes);

/* A result's bytes, mapped; valid until ledger_unmap(). ERR_NOTFOUND. */
struct ledger_map {
    const uint8_t *object;
    size_t bytes;
    void *map;
    size_t map_bytes;
};
ERR_MUST_CHECK enum err ledger_map(struct ledger *ledger, const struct result_id *key, struct ledger_map *out);
void ledger_unmap(struct ledger_map *map);

bool ledger_has(struct ledger *ledger, const struct result_id *key);
/* All results of a version, in the order in which they came; returns how many are in `out`, at most `max`. */
size_t ledger_list(struct ledger *ledger, uint32_t fragment, uint64_t version, struct result_id *out, size_t max);

/* Bytes of all results of a version. */
uint64_t ledger_version_bytes(struct ledger *ledger, uint32_t fragment, uint64_t version);

/* ---- commits ---- */

/* Says which results made a version; `durable`: on the disk before it returns. One that says the same is left as it is;
 * another takes its place. ERR_ARG: no parts, or too many. */
ERR_MUST_CHECK enum err ledger_append_commit(struct ledger *ledger, const struct ledger_commit *commit, bool durable);
/* ERR_NOTFOUND: nothing says what made this version. ERR_CORRUPT: it cannot be read any more. */
ERR_MUST_CHECK enum err ledger_commit_of(struct ledger *ledger, uint32_t fragment, uint64_t version,
                                         struct ledger_commit *out);

/* ---- all of it ---- */

/* Of a fragment: the version that a checkpoint holds, and the newest of those that nobody is served any more. */
struct ledger_reach {
    uint64_t saved, served;
};
/* Removes segments, oldest first, whose records are all of saved versions: those beyond the last keep_bytes, or
 * `at_least` bytes if that is more, and those of which nobody is served anything. `reach`: by fragment. */
void ledger_prune(struct ledger *ledger, const struct ledger_reach *reach, uint32_t fragments_count, uint64_t at_least);

struct ledger_stats {
    uint64_t records, bytes, segments; /* records: results */
    bool lost; /* the folder, or the file that is appended to, is not there any more: writes go nowhere */
};
struct ledger_stats ledger_stats(struct ledger *ledger);

#endif
