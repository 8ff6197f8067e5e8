/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segment header:  0  u32 magic "DLS1"   4  u32 version   8  u64 number   16  32 bytes run id   48  16 bytes run's
 * nonce Record:  0  u32 magic "DLR1"   4  u32 kind   8  u64 bytes of the body 16  32 bytes BLAKE2b over bytes 0..15 and
 * the object's header (commit: the body) 48  body, zeros to a multiple of 8 Commit:  0  u32 fragment   4  u32 parts   8
 * u64 version   16  32 bytes hash of the version 48  for each part: u64 epoch, u32 owner, 32 bytes digest of its result
 *
 * A result's header says all that the key has, and its own digests cover its bytes: they are not hashed a second time.
 */
#include "daemon/state/ledger_record.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "common/bytes.h"
#include "net/transport/wire_object.h"
#include "outer_opt/codec.h"

#define SEGMENT_MAGIC 0x31534c44u
#define RECORD_MAGIC 0x31524c44u
enum { RECORD_DIGEST = 16, COMMIT_HEADER = 48, PART_BYTES = 44 };
_Static_assert(LEDGER_COMMIT_BYTES_MAX == COMMIT_HEADER + LEDGER_PARTS_MAX * PART_BYTES, "a commit's parts");
_Static_assert((int)LEDGER_NONCE_BYTES == (int)WIRE_NONCE_BYTES, "a run has one nonce");
/* A ledger whose results cannot be opened would be replayed to its checkpoint and no further, and nobody told. */
_Static_assert((int)WIRE_OBJECT_VERSION == 4, "a new version of objects needs one of the ledger: raise LEDGER_VERSION");

/* ---- segments ---- */

void ledger_record_put_segment(uint64_t number, const struct ledger_run *run, uint8_t out[LEDGER_SEGMENT_HEADER])
{
    struct bytes_writer writer = bytes_writer_init(out, LEDGER_SEGMENT_HEADER);
    bytes_put_u32(&writer, SEGMENT_MAGIC);
    bytes_put_u32(&writer, LEDGER_VERSION);
    bytes_put_u64(&writer, number);
    bytes_put(&writer, run->id.byte, DIGEST_BYTES);
    bytes_put(&writer, run->nonce, LEDGER_NONCE_BYTES);
}

enum err ledger_record_get_segment(const uint8_t *header, uint64_t number, const struct ledger_run *run,
                                   const char *path)
{
    struct bytes_reader reader = bytes_reader_init(header, LEDGER_SEGMENT_HEADER);
    uint32_t magic = bytes_get_u32(&reader);
    uint32_t version = bytes_get_u32(&reader);
    uint64_t found = bytes_get_u64(&reader);
    if (magic != SEGMENT_MAGIC || found != number)
        return err_set(ERR_CORRUPT, "%s: not a ledger segment", path);
    if (version != LEDGER_VERSION)
        return err_set(ERR_CONF,
                       "%s: ledger of version %" PRIu32 ", and this release reads version %d; go on with the release "
                       "that wrote it, or begin anew in another folder; nothing saved was changed",
                       path, version, LEDGER_VERSION);
    if (memcmp(bytes_get(&reader, DIGEST_BYTES), run->id.byte, DIGEST_BYTES) != 0)
        return err_set(
            ERR_CONF, "%s: belongs to another run; use another [island] state folder, or the run spec it was made with",
            path);
    if (memcmp(bytes_get(&reader, LEDGER_NONCE_BYTES), run->nonce, LEDGER_NONCE_BYTES) != 0)
        return err_set(ERR_CONF,
                       "%s: belongs to another run that was begun with the same run spec; use another [island] state "
                       "folder; nothing saved was changed",
                       path);
    return ERR_OK;
}

/* ---- records ---- */

/* Of a body, what the record's own digest covers. */
static uint64_t covered(enum ledger_kind kind, uint64_t bytes)
{
    return kind == LEDGER_RESULT && bytes > WIRE_OBJECT_HEADER_BYTES ? WIRE_OBJECT_HEADER_BYTES : bytes;
}

static struct digest record_digest(const uint8_t *header, enum ledger_kind kind, const uint8_t *body, uint64_t bytes)
{
    struct digest_state state;
    digest_begin(&state);
    digest_add(&state, header, RECORD_DIGEST);
    digest_add(&state, body, (size_t)covered(kind, bytes));
    return digest_end(&state);
}

void ledger_record_put(enum ledger_kind kind, const uint8_t *body, uint64_t bytes, uint8_t out[LEDGER_RECORD_HEADER])
{
    struct bytes_writer writer = bytes_writer_init(out, LEDGER_RECORD_HEADER);
    bytes_put_u32(&writer, RECORD_MAGIC);
    bytes_put_u32(&writer, (uint32_t)kind);
    bytes_put_u64(&writer, bytes);
    struct digest digest = record_digest(out, kind, body, bytes);
    bytes_put(&writer, digest.byte, DIGEST_BYTES);
}

uint64_t ledger_record_end(uint64_t at, uint64_t bytes)
{
    return at + (bytes + LEDGER_RECORD_ALIGN - 1) / LEDGER_RECORD_ALIGN * LEDGER_RECORD_ALIGN;
}

/* The head alone. Lengths are compared in a way that no length overflows. */
static bool read_head(const uint8_t *segment, uint64_t bytes, uint64_t at, struct ledger_record *out)
{
    const uint8_t *header = segment + at;
    struct bytes_reader reader = bytes_reader_init(header, LEDGER_RECORD_HEADER);
    uint32_t magic = bytes_get_u32(&reader);
    uint32_t kind = bytes_get_u32(&reader);
    out->bytes = bytes_get_u64(&reader);
    out->at = at + LEDGER_RECORD_HEADER;
    if (magic != RECORD_MAGIC || (kind != LEDGER_RESULT && kind != LEDGER_COMMIT) || out->bytes > bytes - out->at)
        return false;
    out->kind = (enum ledger_kind)kind;
    out->end = ledger_record_end(out->at, out->bytes);
    bool fits = kind == LEDGER_RESULT ? out->bytes >= WIRE_OBJECT_HEADER_BYTES : out->bytes <= LEDGER_COMMIT_BYTES_MAX;
    if (!fits || out->end > bytes)
        return false;
    struct digest digest = record_digest(header, out->kind, segment + out->at, out->bytes);
    return memcmp(header + RECORD_DIGEST, digest.byte, DIGEST_BYTES) == 0;
}

static bool read_result(const uint8_t *body, struct ledger_record *out)
{
    struct wire_object what;
    struct wire_meta meta;
    const uint8_t *frame;
    size_t frame_bytes;
    if (wire_object_open(body, (size_t)out->bytes, &what, &meta, &frame, &frame_bytes) != ERR_OK ||
        what.key.kind != WIRE_RESULT || codec_intact(frame, frame_bytes) != ERR_OK)
        return false;
    out->key = wire_object_result(&what);
    return true;
}

static bool read_commit(const uint8_t *body, struct ledger_record *out)
{
    struct ledger_commit commit;
    if (ledger_record_get_commit(body, (size_t)out->bytes, &commit) != ERR_OK)
        return false;
    out->key = (struct result_id){.fragment = commit.fragment, .version = commit.version};
    return true;
}

enum ledger_found ledger_record_at(const uint8_t *segment, uint64_t bytes, uint64_t at, struct ledger_record *out)
{
    if (at > bytes || bytes - at < LEDGER_RECORD_HEADER || !read_head(segment, bytes, at, out))
        return LEDGER_NO_HEAD;
    for (uint64_t i = out->at + out->bytes; i < out->end; i++)
        if (segment[i] != 0)
            return LEDGER_DAMAGED;
    const uint8_t *body = segment + out->at;
    bool whole = out->kind == LEDGER_RESULT ? read_result(body, out) : read_commit(body, out);
    return whole ? LEDGER_WHOLE : LEDGER_DAMAGED;
}

/* ---- commits ---- */

size_t ledger_record_put_commit(const struct ledger_commit *commit, uint8_t out[LEDGER_COMMIT_BYTES_MAX])
{
    struct bytes_writer writer = bytes_writer_init(out, LEDGER_COMMIT_BYTES_MAX);
    bytes_put_u32(&writer, commit->fragment);
    bytes_put_u32(&writer, commit->parts_count);
    bytes_put_u64(&writer, commit->version);
    bytes_put(&writer, commit->hash.byte, DIGEST_BYTES);
    for (uint32_t i = 0; i < commit->parts_count; i++) {
        bytes_put_u64(&writer, commit->parts[i].epoch);
        bytes_put_u32(&writer, commit->parts[i].owner);
        bytes_put(&writer, commit->parts[i].digest.byte, DIGEST_BYTES);
    }
    return writer.at;
}

enum err ledger_record_get_commit(const uint8_t *body, size_t bytes, struct ledger_commit *out)
{
    struct bytes_reader reader = bytes_reader_init(body, bytes);
    memset(out, 0, sizeof *out);
    out->fragment = bytes_get_u32(&reader);
    uint32_t parts = bytes_get_u32(&reader);
    out->version = bytes_get_u64(&reader);
    const uint8_t *hash = bytes_get(&reader, DIGEST_BYTES);
    if (hash == NULL || parts == 0 || parts > LEDGER_PARTS_MAX || bytes_left(&reader) != (size_t)parts * PART_BYTES)
        return err_set(ERR_CORRUPT, "a commit of %" PRIu32 " parts in %zu bytes", parts, bytes);
    memcpy(out->hash.byte, hash, DIGEST_BYTES);
    for (uint32_t i = 0; i < parts; i++) {
        out->parts[i].fragment = out->fragment;
        out->parts[i].version = out->version;
        out->parts[i].epoch = bytes_get_u64(&reader);
        out->parts[i].owner = bytes_get_u32(&reader);
        memcpy(out->parts[i].digest.byte, bytes_get(&reader, DIGEST_BYTES), DIGEST_BYTES);
    }
    out->parts_count = parts;
    return ERR_OK;
}
