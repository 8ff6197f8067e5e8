/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger_record: the bytes of the ledger's segments: their header, and records (docs/FORMATS.md, 7). The functions are
 * for ledger.c alone.
 *
 * Pure; reads what may be damaged or made by others: none of it reaches an assert.
 */
#ifndef DAEMON_STATE_LEDGER_RECORD_H
#define DAEMON_STATE_LEDGER_RECORD_H

#include <stddef.h>
#include <stdint.h>

#include "common/digest.h"
#include "common/err.h"
#include "net/transport/result_id.h"

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

enum {
    LEDGER_VERSION = 4, /* it rises with WIRE_OBJECT_VERSION, too */
    LEDGER_SEGMENT_HEADER = 64,
    LEDGER_RECORD_HEADER = 48,
    LEDGER_RECORD_ALIGN = 8, /* records begin on multiples of it */
    LEDGER_NONCE_BYTES = 16,
    LEDGER_COMMIT_BYTES_MAX = 48 + LEDGER_PARTS_MAX * 44,
};

/* Whose ledger it is. */
struct ledger_run {
    struct digest id;
    uint8_t nonce[LEDGER_NONCE_BYTES];
};
void ledger_record_put_segment(uint64_t number, const struct ledger_run *run, uint8_t out[LEDGER_SEGMENT_HEADER]);
/* ERR_CORRUPT: it is none. ERR_CONF: of another version, or another run. `path` is for the text. */
ERR_MUST_CHECK enum err ledger_record_get_segment(const uint8_t *header, uint64_t number, const struct ledger_run *run,
                                                  const char *path);

enum ledger_kind { LEDGER_RESULT = 1, LEDGER_COMMIT = 2 };
struct ledger_record {
    enum ledger_kind kind;
    struct result_id key; /* commit: fragment and version */
    uint64_t at, bytes;   /* of the body: the result's object, or the packed commit */
    uint64_t end;         /* where the next record begins */
};

/* The header of a record over `body`, which for a result is an object, whose own digests cover all of it. */
void ledger_record_put(enum ledger_kind kind, const uint8_t *body, uint64_t bytes, uint8_t out[LEDGER_RECORD_HEADER]);
/* Where a record ends whose body of `bytes` begins at `at`. */
uint64_t ledger_record_end(uint64_t at, uint64_t bytes);

/* What stands at `at` of a segment of `bytes`. A head is looked at in constant time, and the body of one that is right
 * once, whole or not: so scanning any bytes takes time in proportion to their number. */
enum ledger_found {
    LEDGER_NO_HEAD, /* no record begins here */
    LEDGER_DAMAGED, /* one begins and reaches to `out->end`, and its body was damaged */
    LEDGER_WHOLE,
};
enum ledger_found ledger_record_at(const uint8_t *segment, uint64_t bytes, uint64_t at, struct ledger_record *out);

/* Packs a commit; returns its bytes. */
size_t ledger_record_put_commit(const struct ledger_commit *commit, uint8_t out[LEDGER_COMMIT_BYTES_MAX]);
/* ERR_CORRUPT: it is none. */
ERR_MUST_CHECK enum err ledger_record_get_commit(const uint8_t *body, size_t bytes, struct ledger_commit *out);

#endif
