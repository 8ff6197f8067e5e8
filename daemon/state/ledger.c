/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/state/ledger.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/bytes.h"
#include "common/fsio.h"
#include "common/log.h"
#include "common/mem.h"
#include "net/transport/wire_object.h"
#include "outer_opt/codec.h"

/* ---- bytes of segments and records ---- */

/* Of docs/FORMATS.md, 7. What reads them may find them damaged, or made by others: none of it reaches an assert.
 *
 * Segment header: 0  u32 magic "DLS1"   4  u32 version   8  u64 number   16  32 bytes run id   48  16 bytes nonce
 * Record:         0  u32 magic "DLR1"   4  u32 kind   8  u64 bytes of the body
 *                 16  32 bytes BLAKE2b over bytes 0..15 and the object's header (commit: the body)
 *                 48  body, zeros to a multiple of 8
 * Commit:         0  u32 fragment   4  u32 parts   8  u64 version   16  32 bytes hash of the version
 *                 48  for each part: u64 epoch, u32 owner, 32 bytes digest of its result
 *
 * A result's header says all that the key has, and its own digests cover its bytes: they are not hashed a second time.
 */
enum {
    LEDGER_VERSION = 5, /* it rises with WIRE_OBJECT_VERSION, too */
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

enum ledger_kind { LEDGER_RESULT = 1, LEDGER_COMMIT = 2 };
struct ledger_record {
    enum ledger_kind kind;
    struct result_id key; /* commit: fragment and version */
    uint64_t at, bytes;   /* of the body: the result's object, or the packed commit */
    uint64_t end;         /* where the next record begins */
};

/* What stands at `at` of a segment of `bytes`. A head is looked at in constant time, and the body of one that is right
 * once, whole or not: so scanning any bytes takes time in proportion to their number. */
enum ledger_found {
    LEDGER_NO_HEAD, /* no record begins here */
    LEDGER_DAMAGED, /* one begins and reaches to `out->end`, and its body was damaged */
    LEDGER_WHOLE,
};

#define SEGMENT_MAGIC 0x31534c44u
#define RECORD_MAGIC 0x31524c44u
enum { RECORD_DIGEST = 16, COMMIT_HEADER = 48, PART_BYTES = 44 };
_Static_assert(LEDGER_COMMIT_BYTES_MAX == COMMIT_HEADER + LEDGER_PARTS_MAX * PART_BYTES, "a commit's parts");
_Static_assert((int)LEDGER_NONCE_BYTES == (int)WIRE_NONCE_BYTES, "a run has one nonce");
/* A ledger whose results cannot be opened would be replayed to its checkpoint and no further, and nobody told. */
_Static_assert((int)WIRE_OBJECT_VERSION == 5, "a new version of objects needs one of the ledger: raise LEDGER_VERSION");

static void record_put_segment(uint64_t number, const struct ledger_run *run, uint8_t out[LEDGER_SEGMENT_HEADER])
{
    struct bytes_writer writer = bytes_writer_init(out, LEDGER_SEGMENT_HEADER);
    bytes_put_u32(&writer, SEGMENT_MAGIC);
    bytes_put_u32(&writer, LEDGER_VERSION);
    bytes_put_u64(&writer, number);
    bytes_put(&writer, run->id.byte, DIGEST_BYTES);
    bytes_put(&writer, run->nonce, LEDGER_NONCE_BYTES);
}

/* ERR_CORRUPT: it is none. ERR_CONF: of another version, or another run. `path` is for the text. */
static enum err record_get_segment(const uint8_t *header, uint64_t number, const struct ledger_run *run,
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

/* The header of a record over `body`, which for a result is an object, whose own digests cover all of it. */
static void record_put(enum ledger_kind kind, const uint8_t *body, uint64_t bytes, uint8_t out[LEDGER_RECORD_HEADER])
{
    struct bytes_writer writer = bytes_writer_init(out, LEDGER_RECORD_HEADER);
    bytes_put_u32(&writer, RECORD_MAGIC);
    bytes_put_u32(&writer, (uint32_t)kind);
    bytes_put_u64(&writer, bytes);
    struct digest digest = record_digest(out, kind, body, bytes);
    bytes_put(&writer, digest.byte, DIGEST_BYTES);
}

/* Where a record ends whose body of `bytes` begins at `at`. */
static uint64_t record_end(uint64_t at, uint64_t bytes)
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
    out->end = record_end(out->at, out->bytes);
    bool fits = kind == LEDGER_RESULT ? out->bytes >= WIRE_OBJECT_HEADER_BYTES : out->bytes <= LEDGER_COMMIT_BYTES_MAX;
    if (!fits || out->end > bytes)
        return false;
    struct digest digest = record_digest(header, out->kind, segment + out->at, out->bytes);
    return memcmp(header + RECORD_DIGEST, digest.byte, DIGEST_BYTES) == 0;
}

/* Packs a commit; returns its bytes. */
static size_t record_put_commit(const struct ledger_commit *commit, uint8_t out[LEDGER_COMMIT_BYTES_MAX])
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

/* ERR_CORRUPT: it is none. */
static enum err record_get_commit(const uint8_t *body, size_t bytes, struct ledger_commit *out)
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

static bool result_key(const uint8_t *body, struct ledger_record *out)
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

static bool commit_key(const uint8_t *body, struct ledger_record *out)
{
    struct ledger_commit commit;
    if (record_get_commit(body, (size_t)out->bytes, &commit) != ERR_OK)
        return false;
    out->key = (struct result_id){.fragment = commit.fragment, .version = commit.version};
    return true;
}

static enum ledger_found record_at(const uint8_t *segment, uint64_t bytes, uint64_t at, struct ledger_record *out)
{
    if (at > bytes || bytes - at < LEDGER_RECORD_HEADER || !read_head(segment, bytes, at, out))
        return LEDGER_NO_HEAD;
    for (uint64_t i = out->at + out->bytes; i < out->end; i++)
        if (segment[i] != 0)
            return LEDGER_DAMAGED;
    const uint8_t *body = segment + out->at;
    bool whole = out->kind == LEDGER_RESULT ? result_key(body, out) : commit_key(body, out);
    return whole ? LEDGER_WHOLE : LEDGER_DAMAGED;
}

/* ---- index ---- */

/* Where the records are: a hash table by fragment and version, in memory, under the ledger's lock. The records of one
 * version form a list in the order in which they were added. An entry takes 80 bytes, and 8 to 16 of the table; both
 * grow by doubling. */
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

/* At first; both double, and slots are at least two for each entry. */
enum { ENTRIES_MIN = 1024, SLOTS_MIN = 2 * ENTRIES_MIN };

/* Empty when zeroed. */
static void index_deinit(struct ledger_index *index)
{
    mem_free(index->entries);
    mem_free(index->slots);
    *index = (struct ledger_index){0};
}

static size_t hash_of(uint32_t fragment, uint64_t version)
{
    uint64_t value = version * 0x9e3779b97f4a7c15u ^ ((uint64_t)fragment << 32);
    value = (value ^ value >> 29) * 0xbf58476d1ce4e5b9u;
    return (size_t)(value ^ value >> 32);
}

/* The slot of a version, or the free one where it would be. */
static uint32_t *slot_of(const struct ledger_index *index, uint32_t fragment, uint64_t version)
{
    for (size_t at = hash_of(fragment, version);; at++) {
        uint32_t *slot = &index->slots[at & (index->slots_room - 1)];
        if (*slot == 0)
            return slot;
        const struct result_id *key = &index->entries[*slot - 1].key;
        if (key->fragment == fragment && key->version == version)
            return slot;
    }
}

/* The first entry of a version, and the one after an entry; NULL: none. */
static struct ledger_entry *index_first(const struct ledger_index *index, uint32_t fragment, uint64_t version)
{
    if (index->slots_room == 0)
        return NULL;
    uint32_t slot = *slot_of(index, fragment, version);
    return slot != 0 ? &index->entries[slot - 1] : NULL;
}

static struct ledger_entry *index_next(const struct ledger_index *index, const struct ledger_entry *entry)
{
    return entry->next != 0 ? &index->entries[entry->next - 1] : NULL;
}

/* NULL: there is none. Borrowed until the next change. */
static struct ledger_entry *index_find(const struct ledger_index *index, const struct result_id *key)
{
    struct ledger_entry *entry = index_first(index, key->fragment, key->version);
    while (entry != NULL && (entry->commit || !result_id_equal(&entry->key, key)))
        entry = index_next(index, entry);
    return entry;
}

static struct ledger_entry *index_commit(const struct ledger_index *index, uint32_t fragment, uint64_t version)
{
    struct ledger_entry *entry = index_first(index, fragment, version);
    while (entry != NULL && !entry->commit)
        entry = index_next(index, entry);
    return entry;
}

/* Puts an entry at the end of its version's list. */
static void link_entry(struct ledger_index *index, uint32_t i)
{
    struct ledger_entry *entry = &index->entries[i];
    uint32_t *link = slot_of(index, entry->key.fragment, entry->key.version);
    while (*link != 0)
        link = &index->entries[*link - 1].next;
    entry->next = 0;
    *link = i + 1;
}

static void link_all(struct ledger_index *index)
{
    for (size_t i = 0; i < index->slots_room; i++)
        index->slots[i] = 0;
    index->results = 0;
    for (size_t i = 0; i < index->count; i++) {
        index->entries[i].next = 0;
        index->results += !index->entries[i].commit;
    }
    for (size_t i = 0; i < index->count; i++)
        link_entry(index, (uint32_t)i);
}

static enum err index_grow(struct ledger_index *index)
{
    if (index->count == index->room) {
        size_t room = index->room > 0 ? 2 * index->room : ENTRIES_MIN;
        TRY(mem_grow(&index->entries, index->count, room, sizeof *index->entries, "the ledger's index"));
        index->room = room;
    }
    if (2 * (index->count + 1) > index->slots_room) {
        size_t room = index->slots_room > 0 ? 2 * index->slots_room : SLOTS_MIN;
        uint32_t *slots = NULL;
        TRY(mem_new(room, sizeof *slots, "the ledger's index", &slots));
        mem_free(index->slots);
        index->slots = slots;
        index->slots_room = room;
        link_all(index);
    }
    return ERR_OK;
}

/* Adds a record that is not there. ERR_NOMEM; ERR_STATE: the version has LEDGER_RESULTS_MAX results. */
static enum err index_add(struct ledger_index *index, const struct ledger_entry *entry)
{
    size_t results = 0;
    const struct ledger_entry *there = index_first(index, entry->key.fragment, entry->key.version);
    for (; there != NULL; there = index_next(index, there))
        results += !there->commit;
    if (!entry->commit && results >= LEDGER_RESULTS_MAX)
        return err_set(ERR_STATE, "the ledger has %d results of fragment %" PRIu32 ", version %" PRIu64 " already",
                       LEDGER_RESULTS_MAX, entry->key.fragment, entry->key.version);
    TRY(index_grow(index));
    index->entries[index->count] = *entry;
    index->results += !entry->commit;
    link_entry(index, (uint32_t)index->count++);
    return ERR_OK;
}

/* Takes out those of a segment whose bodies are at `offset` or further, or all of it. */
static void index_drop_from(struct ledger_index *index, uint32_t segment, uint64_t offset)
{
    size_t kept = 0;
    for (size_t i = 0; i < index->count; i++)
        if (index->entries[i].segment != segment || index->entries[i].offset < offset)
            index->entries[kept++] = index->entries[i];
    index->count = kept;
    link_all(index);
}

static void index_drop_segment(struct ledger_index *index, uint32_t segment)
{
    index_drop_from(index, segment, 0);
}

/* ---- a ledger ---- */

enum { SEGMENTS_MAX = 65536 };
/* A place in the ledger: the number of a segment and the bytes in it. */
enum { AT_BITS = 40 };

/* Files are named "ledger-NUMBER.log". */
#define LEDGER_SEGMENT_NUMBER_MAX UINT64_C(999999999999) /* 12 digits */

struct segment {
    uint64_t number;
    uint64_t bytes;
    uint64_t durable; /* of these, from the beginning: a flush that followed them succeeded, or they were there */
    int fd;           /* -1: removed */
};

/* Who waits for what was appended to be durable; on its stack. */
struct ledger_flush {
    struct ledger_flush *next;
    bool ended;
    int error; /* out: errno; 0: it is on the disk */
};

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
    bool passed_over;  /* damaged records were, when it was opened */
};

/* ---- segments ---- */

static enum err segment_path(const struct ledger *ledger, uint64_t number, char **path)
{
    return mem_printf(path, "%s/ledger-%012" PRIu64 ".log", ledger->folder, number);
}

/* A new segment's file, durably, with its header in it. */
static enum err create_segment(const struct ledger *ledger, uint64_t number, int *fd)
{
    char *path;
    uint8_t header[LEDGER_SEGMENT_HEADER];
    record_put_segment(number, &ledger->run, header);
    if (number > LEDGER_SEGMENT_NUMBER_MAX)
        return err_set(ERR_STATE, "%s: the ledger's last file has the last number there is", ledger->folder);
    TRY(segment_path(ledger, number, &path));
    *fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
    enum err err =
        *fd >= 0 ? fsio_write_all(*fd, header, sizeof header, path) : fsio_failed(ERR_IO, "cannot create %s", path);
    if (err == ERR_OK && fsync(*fd) != 0)
        err = fsio_failed(ERR_IO, "cannot flush %s", path);
    if (err == ERR_OK)
        err = fsio_sync_folder_of(path);
    if (err != ERR_OK && *fd >= 0)
        close(*fd);
    mem_free(path);
    return err;
}

/* The ledger's last segment from now on, with `bytes` in it. ERR_NOMEM: it is the caller's to close. */
static enum err add_segment(struct ledger *ledger, uint64_t number, int fd, uint64_t bytes)
{
    if (ledger->segments_count == ledger->segments_room) {
        size_t room = ledger->segments_room > 0 ? 2 * ledger->segments_room : 16;
        TRY(mem_grow(&ledger->segments, ledger->segments_count, room, sizeof *ledger->segments, "ledger segments"));
        ledger->segments_room = room;
    }
    ledger->segments[ledger->segments_count++] =
        (struct segment){.number = number, .bytes = bytes, .durable = bytes, .fd = fd};
    return ERR_OK;
}

/* Flushes what was appended by now. With the lock, which is not held while the disk takes its time, and `flushing` set:
 * of two at a time one would hear nothing of a failure. Returns errno; 0: it is on the disk.
 * A segment is left only when all of it is on the disk, or after a failed flush has cut it back: what is not on the
 * disk is in the last one. */
static int flush_segment(struct ledger *ledger)
{
    size_t last = ledger->segments_count - 1;
    uint64_t bytes = ledger->segments[last].bytes;
    int fd = fcntl(ledger->segments[last].fd, F_DUPFD_CLOEXEC, 0), error = 0;
    if (fd < 0)
        return errno;
    pthread_mutex_unlock(&ledger->lock);
    if (fdatasync(fd) != 0)
        error = errno;
    close(fd);
    pthread_mutex_lock(&ledger->lock);
    if (error == 0)
        ledger->segments[last].durable = bytes;
    return error;
}

/* A commit's bytes as they are on the disk now; the head is checked once more. With the lock. */
static enum err read_commit(const struct ledger *ledger, const struct ledger_entry *entry, struct ledger_commit *out)
{
    uint8_t record[LEDGER_RECORD_HEADER + LEDGER_COMMIT_BYTES_MAX + LEDGER_RECORD_ALIGN] = {0};
    struct ledger_record found;
    uint64_t bytes = record_end(LEDGER_RECORD_HEADER, entry->bytes);
    off_t at = (off_t)(entry->offset - LEDGER_RECORD_HEADER);
    ssize_t got = pread(ledger->segments[entry->segment].fd, record, (size_t)bytes, at);
    if (got < 0)
        return err_set_errno(ERR_IO, "the ledger in %s", ledger->folder);
    if (record_at(record, (uint64_t)got, 0, &found) != LEDGER_WHOLE || found.bytes != entry->bytes)
        return err_set(ERR_CORRUPT, "the ledger in %s: a commit was damaged since it was opened", ledger->folder);
    return record_get_commit(record + LEDGER_RECORD_HEADER, (size_t)entry->bytes, out);
}

/* ---- opening: every record is looked at ---- */

/* Of two commits of a version the later one stands; of two equal results the first. */
static enum err note_record(struct ledger *ledger, const struct ledger_record *record)
{
    bool commit = record->kind == LEDGER_COMMIT;
    struct ledger_entry entry = {.key = record->key,
                                 .segment = (uint32_t)ledger->segments_count,
                                 .commit = commit,
                                 .offset = record->at,
                                 .bytes = record->bytes};
    struct ledger_entry *there = commit ? index_commit(&ledger->index, entry.key.fragment, entry.key.version)
                                        : index_find(&ledger->index, &entry.key);
    if (there == NULL)
        return index_add(&ledger->index, &entry);
    if (commit) {
        entry.next = there->next;
        *there = entry;
    }
    return ERR_OK;
}

/* Indexes the records of one mapped segment, passing over damaged ones; `*good` is where the last whole one ends. */
static enum err scan_records(struct ledger *ledger, const char *path, const uint8_t *map, uint64_t bytes,
                             uint64_t *good)
{
    struct ledger_record record;
    *good = LEDGER_SEGMENT_HEADER;
    for (uint64_t at = *good; at < bytes;) {
        enum ledger_found found = record_at(map, bytes, at, &record);
        if (found != LEDGER_WHOLE) {
            at = found == LEDGER_DAMAGED ? record.end : at + LEDGER_RECORD_ALIGN;
            continue;
        }
        ledger->passed_over |= at > *good;
        if (at > *good)
            log_warn("%s: %" PRIu64 " bytes at offset %" PRIu64 " are damaged and were passed over; what is missing is "
                     "fetched from the other islands. Check this machine's disk",
                     path, at - *good, *good);
        enum err err = note_record(ledger, &record);
        if (err == ERR_STATE)
            log_warn("%s: %s; one more is passed over", path, err_text());
        else
            TRY(err);
        at = *good = record.end;
    }
    return ERR_OK;
}

static enum err scan_segment(struct ledger *ledger, const char *path, uint64_t number, int fd, uint64_t bytes)
{
    uint64_t good = 0;
    if (bytes < LEDGER_SEGMENT_HEADER)
        return err_set(ERR_CORRUPT, "%s: shorter than its header", path);
    uint8_t *map = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED)
        return err_set_errno(ERR_IO, "%s: cannot map", path);
    enum err err = record_get_segment(map, number, &ledger->run, path);
    if (err == ERR_OK)
        err = scan_records(ledger, path, map, bytes, &good);
    munmap(map, bytes);
    TRY(err);
    if (good < bytes) {
        log_warn("%s: %" PRIu64 " bytes at its end are no whole record (a crash while writing) and were cut off; "
                 "what is missing is fetched from the other islands",
                 path, bytes - good);
        if (ftruncate(fd, (off_t)good) != 0)
            return fsio_failed(ERR_IO, "%s: cannot cut off its torn end", path);
    }
    return add_segment(ledger, number, fd, good);
}

static int by_number(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left;
    uint64_t b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

/* With a head and nothing below it: begun for a run spec that was corrected since. */
static enum err drop_empty(const char *path)
{
    log_info("%s holds no result; the ledger is begun anew", err_text());
    return unlink(path) == 0 ? ERR_OK : fsio_failed(ERR_IO, "%s: cannot remove", path);
}

/* Nothing in it can be used; out of the way, but not thrown away. */
static enum err put_aside(const char *path)
{
    char *aside;
    log_warn("%s; it is put aside as .damaged", err_text());
    TRY(mem_printf(&aside, "%s.damaged", path));
    enum err err = rename(path, aside) == 0 ? ERR_OK : fsio_failed(ERR_IO, "%s: cannot put aside", path);
    mem_free(aside);
    return err;
}

static enum err open_segment(struct ledger *ledger, uint64_t number)
{
    char *path;
    struct stat status = {0};
    TRY(segment_path(ledger, number, &path));
    int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    enum err err = fd >= 0 && fstat(fd, &status) == 0 ? scan_segment(ledger, path, number, fd, (uint64_t)status.st_size)
                                                      : err_set_errno(ERR_IO, "%s: cannot open", path);
    if (err != ERR_OK && fd >= 0)
        close(fd);
    if (err == ERR_CONF && status.st_size == LEDGER_SEGMENT_HEADER) {
        err = drop_empty(path);
    } else if (err == ERR_CORRUPT) {
        ledger->lost |= status.st_size > LEDGER_SEGMENT_HEADER;
        err = put_aside(path);
    }
    mem_free(path);
    return err;
}

/* Of a file that is named as we name them. Another name for a number we read would make two segments of one file. */
static bool number_of(const char *name, uint64_t *number)
{
    char ours[64];
    if (sscanf(name, "ledger-%" SCNu64, number) != 1 || *number > LEDGER_SEGMENT_NUMBER_MAX)
        return false;
    snprintf(ours, sizeof ours, "ledger-%012" PRIu64 ".log", *number);
    return strcmp(name, ours) == 0;
}

bool ledger_in(const char *folder)
{
    uint64_t number;
    struct stat status;
    bool found = false;
    DIR *dir = opendir(folder);
    for (struct dirent *item; dir != NULL && !found && (item = readdir(dir)) != NULL;)
        found = number_of(item->d_name, &number) && fstatat(dirfd(dir), item->d_name, &status, 0) == 0 &&
                status.st_size > LEDGER_SEGMENT_HEADER;
    if (dir != NULL)
        closedir(dir);
    return found;
}

static enum err open_segments(struct ledger *ledger)
{
    enum err err = ERR_OK;
    uint64_t *numbers = NULL;
    size_t count = 0;
    int fd;
    DIR *dir = opendir(ledger->folder);
    if (dir == NULL)
        return err_set_errno(ERR_IO, "%s: cannot open", ledger->folder);
    TRY_OUT(mem_new(SEGMENTS_MAX, sizeof *numbers, "ledger segments", &numbers));
    for (struct dirent *item; count < SEGMENTS_MAX && (item = readdir(dir)) != NULL;)
        count += number_of(item->d_name, &numbers[count]);
    qsort(numbers, count, sizeof *numbers, by_number);
    for (size_t i = 0; i < count; i++)
        TRY_OUT(open_segment(ledger, numbers[i]));
    if (ledger->segments_count == 0) {
        uint64_t first = count > 0 ? numbers[count - 1] + 1 : 1;
        TRY_OUT(create_segment(ledger, first, &fd));
        err = add_segment(ledger, first, fd, LEDGER_SEGMENT_HEADER);
        if (err != ERR_OK)
            close(fd);
    }
    /* A daemon that was killed may have left what it had not flushed yet: from here on it is told to others. */
    if (err == ERR_OK && fdatasync(ledger->segments[ledger->segments_count - 1].fd) != 0)
        err = fsio_failed(ERR_IO, "cannot flush the ledger in %s", ledger->folder);
out:
    closedir(dir);
    mem_free(numbers);
    return err;
}

/* Two daemons in one folder would write over each other's results. The kernel drops the lock with the process. */
static enum err lock_folder(struct ledger *ledger)
{
    bool held;
    TRY(mem_printf(&ledger->lock_path, "%s/lock", ledger->folder));
    ledger->lock_fd = open(ledger->lock_path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (ledger->lock_fd < 0)
        return fsio_failed(ERR_IO, "cannot open %s", ledger->lock_path);
    enum err err = fsio_lock(ledger->lock_fd, ledger->lock_path, &held);
    if (err != ERR_OK)
        return err_suffix(err, "set [island] state, and sockets, to such folders");
    return held ? ERR_OK
                : err_set(ERR_CONF,
                          "the state folder %s is in use by another dilocod; stop it, or give this one a folder of its "
                          "own ([island] state)",
                          ledger->folder);
}

enum err ledger_open(const struct ledger_conf *conf, struct ledger **out)
{
    enum err err;
    struct ledger *ledger = NULL;
    *out = NULL;
    TRY(mem_new(1, sizeof *ledger, "the ledger", &ledger));
    pthread_mutex_init(&ledger->writing, NULL);
    pthread_mutex_init(&ledger->lock, NULL);
    pthread_cond_init(&ledger->flushed, NULL);
    ledger->conf = *conf;
    ledger->run.id = conf->run_id;
    memcpy(ledger->run.nonce, conf->nonce, LEDGER_NONCE_BYTES);
    ledger->conf.nonce = NULL;
    ledger->lock_fd = -1;
    TRY_OUT(mem_strdup(conf->folder, &ledger->folder));
    TRY_OUT(fsio_mkdirs(conf->folder, 0755));
    TRY_OUT(lock_folder(ledger));
    TRY_OUT(open_segments(ledger));
out:
    if (err != ERR_OK)
        ledger_close(ledger);
    else
        *out = ledger;
    return err;
}

void ledger_close(struct ledger *ledger)
{
    if (ledger == NULL)
        return;
    pthread_mutex_lock(&ledger->lock);
    int error = ledger->segments_count > 0 ? flush_segment(ledger) : 0;
    pthread_mutex_unlock(&ledger->lock);
    if (error != 0)
        log_error("cannot flush the ledger in %s: %s", ledger->folder, strerror(error));
    for (size_t i = 0; i < ledger->segments_count; i++)
        if (ledger->segments[i].fd >= 0)
            close(ledger->segments[i].fd);
    if (ledger->lock_fd >= 0)
        close(ledger->lock_fd);
    pthread_cond_destroy(&ledger->flushed);
    pthread_mutex_destroy(&ledger->lock);
    pthread_mutex_destroy(&ledger->writing);
    mem_free(ledger->segments);
    index_deinit(&ledger->index);
    mem_free(ledger->folder);
    mem_free(ledger->lock_path);
    mem_free(ledger);
}

bool ledger_passed_over(const struct ledger *ledger)
{
    return ledger->passed_over;
}

uint64_t ledger_at(struct ledger *ledger)
{
    uint64_t at = 0;
    pthread_mutex_lock(&ledger->lock);
    if (ledger->segments_count > 0 && !ledger->lost) {
        const struct segment *last = &ledger->segments[ledger->segments_count - 1];
        at = last->number << AT_BITS | (last->durable & (((uint64_t)1 << AT_BITS) - 1));
    }
    pthread_mutex_unlock(&ledger->lock);
    return at;
}

/* ---- reading ---- */

/* Of what is on its way to the disk nobody hears yet. */
static const struct ledger_entry *told(const struct ledger *ledger, const struct result_id *key)
{
    const struct ledger_entry *entry = index_find(&ledger->index, key);
    return entry != NULL && !entry->unflushed ? entry : NULL;
}

bool ledger_has(struct ledger *ledger, const struct result_id *key)
{
    pthread_mutex_lock(&ledger->lock);
    bool has = told(ledger, key) != NULL;
    pthread_mutex_unlock(&ledger->lock);
    return has;
}

size_t ledger_list(struct ledger *ledger, uint32_t fragment, uint64_t version, struct result_id *out, size_t max)
{
    size_t count = 0;
    pthread_mutex_lock(&ledger->lock);
    const struct ledger_entry *entry = index_first(&ledger->index, fragment, version);
    for (; entry != NULL && count < max; entry = index_next(&ledger->index, entry))
        if (!entry->commit && !entry->unflushed)
            out[count++] = entry->key;
    pthread_mutex_unlock(&ledger->lock);
    return count;
}

uint64_t ledger_version_bytes(struct ledger *ledger, uint32_t fragment, uint64_t version)
{
    uint64_t bytes = 0;
    pthread_mutex_lock(&ledger->lock);
    const struct ledger_entry *entry = index_first(&ledger->index, fragment, version);
    for (; entry != NULL; entry = index_next(&ledger->index, entry))
        bytes += entry->commit ? 0 : entry->bytes;
    pthread_mutex_unlock(&ledger->lock);
    return bytes;
}

static enum err map_entry(struct ledger *ledger, const struct ledger_entry *entry, struct ledger_map *out)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t begin = entry->offset / page * page;
    size_t skip = (size_t)(entry->offset - begin);
    out->map_bytes = skip + (size_t)entry->bytes;
    out->map = mmap(NULL, out->map_bytes, PROT_READ, MAP_SHARED, ledger->segments[entry->segment].fd, (off_t)begin);
    if (out->map == MAP_FAILED)
        return err_set_errno(ERR_IO, "cannot map the ledger in %s", ledger->folder);
    out->object = (const uint8_t *)out->map + skip;
    out->bytes = (size_t)entry->bytes;
    return ERR_OK;
}

enum err ledger_map(struct ledger *ledger, const struct result_id *key, struct ledger_map *out)
{
    pthread_mutex_lock(&ledger->lock);
    const struct ledger_entry *entry = told(ledger, key);
    enum err err = entry != NULL ? map_entry(ledger, entry, out)
                                 : err_set(ERR_NOTFOUND, "the ledger has no such result (any more)");
    pthread_mutex_unlock(&ledger->lock);
    return err;
}

void ledger_unmap(struct ledger_map *map)
{
    if (map->map != NULL && map->map != MAP_FAILED)
        munmap(map->map, map->map_bytes);
    *map = (struct ledger_map){0};
}

/* ---- commits ---- */

enum err ledger_commit_of(struct ledger *ledger, uint32_t fragment, uint64_t version, struct ledger_commit *out)
{
    pthread_mutex_lock(&ledger->lock);
    const struct ledger_entry *entry = index_commit(&ledger->index, fragment, version);
    enum err err = entry != NULL
                       ? read_commit(ledger, entry, out)
                       : err_set(ERR_NOTFOUND, "the ledger does not know what made version %" PRIu64, version);
    pthread_mutex_unlock(&ledger->lock);
    return err;
}

/* ---- pruning ---- */

enum use { USE_NONE, USE_SERVED, USE_NEEDED };

static enum use use_of(const struct ledger *ledger, size_t segment, const struct ledger_reach *reach,
                       uint32_t fragments_count)
{
    enum use use = USE_NONE;
    for (size_t i = 0; i < ledger->index.count && use != USE_NEEDED; i++) {
        const struct ledger_entry *entry = &ledger->index.entries[i];
        if (entry->segment != segment || entry->key.fragment >= fragments_count)
            continue;
        if (entry->key.version > reach[entry->key.fragment].saved)
            use = USE_NEEDED;
        else if (entry->key.version > reach[entry->key.fragment].served)
            use = USE_SERVED;
    }
    return use;
}

static void remove_segment(struct ledger *ledger, size_t index)
{
    char *path;
    if (segment_path(ledger, ledger->segments[index].number, &path) != ERR_OK)
        return;
    unlink(path);
    mem_free(path);
    close(ledger->segments[index].fd);
    ledger->segments[index].fd = -1;
    ledger->segments[index].bytes = ledger->segments[index].durable = 0;
    index_drop_segment(&ledger->index, (uint32_t)index);
}

void ledger_prune(struct ledger *ledger, const struct ledger_reach *reach, uint32_t fragments_count, uint64_t at_least)
{
    uint64_t total = 0, most = ledger->conf.keep_bytes > at_least ? ledger->conf.keep_bytes : at_least;
    pthread_mutex_lock(&ledger->lock);
    for (size_t i = 0; i < ledger->segments_count; i++)
        total += ledger->segments[i].bytes;
    for (size_t i = 0; i + 1 < ledger->segments_count; i++) {
        if (ledger->segments[i].fd < 0)
            continue;
        enum use use = use_of(ledger, i, reach, fragments_count);
        if (use == USE_NEEDED || (use == USE_SERVED && total <= most))
            break;
        total -= ledger->segments[i].bytes;
        remove_segment(ledger, i);
    }
    pthread_mutex_unlock(&ledger->lock);
}

/* Files that were unlinked take everything that is written to them, and nobody finds it again. */
static bool is_lost(const struct ledger *ledger)
{
    struct stat ours, there;
    int last = ledger->segments[ledger->segments_count - 1].fd;
    if (fstat(last, &ours) == 0 && ours.st_nlink == 0)
        return true;
    if (fstat(ledger->lock_fd, &ours) != 0)
        return false;
    if (stat(ledger->lock_path, &there) != 0)
        return errno == ENOENT || errno == ENOTDIR;
    return ours.st_dev != there.st_dev || ours.st_ino != there.st_ino;
}

struct ledger_stats ledger_stats(struct ledger *ledger)
{
    struct ledger_stats stats = {0};
    pthread_mutex_lock(&ledger->lock);
    stats.records = ledger->index.results;
    for (size_t i = 0; i < ledger->segments_count; i++) {
        stats.bytes += ledger->segments[i].bytes;
        stats.segments += ledger->segments[i].fd >= 0;
    }
    stats.lost = is_lost(ledger);
    pthread_mutex_unlock(&ledger->lock);
    return stats;
}

/* ---- appending: who reads or looks something up meanwhile does not wait for the disk ---- */

/* ---- flushing ---- */

static void answer(struct ledger_flush *waiting, int error)
{
    for (struct ledger_flush *next; waiting != NULL; waiting = next) {
        next = waiting->next;
        waiting->error = error;
        waiting->ended = true;
    }
}

/* After a failed flush the kernel may have dropped any bytes that were written since the last good one, and it tells
 * that once: the next flush of this file succeeds. So all of them are cut off, those too that came while the flush was
 * under way, and whoever waits for them hears that they are not kept. What comes next goes to another file. */
static void lose(struct ledger *ledger, size_t index, struct ledger_flush *waiting, int error)
{
    struct segment *segment = &ledger->segments[index];
    index_drop_from(&ledger->index, (uint32_t)index, segment->durable);
    if (ftruncate(segment->fd, (off_t)segment->durable) != 0 && !ledger->doubtful)
        log_error("the ledger in %s cannot be cut back after a failed flush: %s", ledger->folder, strerror(errno));
    segment->bytes = segment->durable;
    ledger->failures++;
    ledger->doubtful |= index + 1 == ledger->segments_count;
    answer(waiting, error);
    answer(ledger->flushes, error);
    ledger->flushes = NULL;
}

/* For all who wait by now; who comes meanwhile waits for the next one, unless this one fails. */
static void flush_for_all(struct ledger *ledger)
{
    struct ledger_flush *waiting = ledger->flushes;
    ledger->flushes = NULL;
    ledger->flushing = true;
    size_t index = ledger->segments_count - 1;
    int error = flush_segment(ledger);
    ledger->flushing = false;
    if (error != 0)
        lose(ledger, index, waiting, error);
    else
        answer(waiting, 0);
    pthread_cond_broadcast(&ledger->flushed);
}

static enum err flush_failed(const struct ledger *ledger, int error)
{
    errno = error;
    return fsio_failed(ERR_IO, "cannot flush the ledger in %s", ledger->folder);
}

/* With the lock: what was appended by now is on the disk. */
static enum err flush(struct ledger *ledger)
{
    struct ledger_flush mine = {.next = NULL}, **last = &ledger->flushes;
    while (*last != NULL)
        last = &(*last)->next;
    *last = &mine;
    while (!mine.ended) {
        if (ledger->flushing)
            pthread_cond_wait(&ledger->flushed, &ledger->lock);
        else
            flush_for_all(ledger);
    }
    return mine.error == 0 ? ERR_OK : flush_failed(ledger, mine.error);
}

enum err ledger_sync(struct ledger *ledger)
{
    pthread_mutex_lock(&ledger->lock);
    enum err err = flush(ledger);
    pthread_mutex_unlock(&ledger->lock);
    return err;
}

static struct ledger_entry *find(const struct ledger *ledger, const struct ledger_entry *what)
{
    return what->commit ? index_commit(&ledger->index, what->key.fragment, what->key.version)
                        : index_find(&ledger->index, &what->key);
}

/* With the lock. */
static enum err flush_and_tell(struct ledger *ledger, const struct ledger_entry *what)
{
    TRY(flush(ledger));
    struct ledger_entry *there = find(ledger, what);
    if (there != NULL)
        there->unflushed = 0;
    return ERR_OK;
}

/* ---- appending: whoever's turn it is ---- */

static enum err write_record(const struct ledger *ledger, const struct segment *segment,
                             const struct ledger_entry *entry, const uint8_t *body)
{
    static const uint8_t zeros[LEDGER_RECORD_ALIGN];
    uint8_t header[LEDGER_RECORD_HEADER];
    size_t bytes = (size_t)entry->bytes;
    record_put(entry->commit ? LEDGER_COMMIT : LEDGER_RESULT, body, bytes, header);
    if (lseek(segment->fd, (off_t)segment->bytes, SEEK_SET) < 0)
        return err_set_errno(ERR_IO, "the ledger in %s", ledger->folder);
    TRY(fsio_write_all(segment->fd, header, sizeof header, "the ledger"));
    TRY(fsio_write_all(segment->fd, body, bytes, "the ledger"));
    return fsio_write_all(segment->fd, zeros, (size_t)(record_end(0, bytes) - bytes), "the ledger");
}

/* A full segment is left for a new one; so is one whose flush has failed. With the lock. */
static enum err make_room(struct ledger *ledger, uint64_t bytes)
{
    const struct segment last = ledger->segments[ledger->segments_count - 1];
    bool full = last.bytes > LEDGER_SEGMENT_HEADER && last.bytes + bytes > ledger->conf.segment_bytes;
    if (!full && !ledger->doubtful)
        return ERR_OK;
    if (!ledger->doubtful)
        TRY(flush(ledger)); /* a file is left only when all of it is on the disk */
    pthread_mutex_unlock(&ledger->lock);
    int fd;
    enum err err = create_segment(ledger, last.number + 1, &fd);
    pthread_mutex_lock(&ledger->lock);
    TRY(err);
    err = add_segment(ledger, last.number + 1, fd, LEDGER_SEGMENT_HEADER);
    if (err != ERR_OK)
        close(fd);
    else
        ledger->doubtful = false;
    return err;
}

/* In the place of an older one of the same name. With the lock. */
static enum err note(struct ledger *ledger, struct ledger_entry *entry)
{
    struct ledger_entry *there = find(ledger, entry);
    if (there == NULL)
        return index_add(&ledger->index, entry);
    entry->next = there->next;
    *there = *entry;
    return ERR_OK;
}

/* The part of a record that was written would hide what comes behind it. On a disk that takes nothing there is none. */
static enum err cut_back(const struct segment *segment, enum err err)
{
    struct stat status;
    bool longer = fstat(segment->fd, &status) != 0 || (uint64_t)status.st_size > segment->bytes;
    if (longer && ftruncate(segment->fd, (off_t)segment->bytes) != 0)
        return err_suffix(err, "nor can what was written of it be cut off");
    return err;
}

/* Writes a record and notes where it is. With the lock, which is not held while it is written. */
static enum err append(struct ledger *ledger, struct ledger_entry *entry, const uint8_t *body)
{
    TRY(make_room(ledger, entry->bytes));
    const struct segment last = ledger->segments[ledger->segments_count - 1];
    uint64_t failures = ledger->failures;
    entry->segment = (uint32_t)(ledger->segments_count - 1);
    entry->offset = last.bytes + LEDGER_RECORD_HEADER;
    pthread_mutex_unlock(&ledger->lock);
    enum err err = write_record(ledger, &last, entry, body);
    pthread_mutex_lock(&ledger->lock);
    struct segment *segment = &ledger->segments[entry->segment];
    if (err == ERR_OK && ledger->failures != failures)
        err = err_set(ERR_IO, "the ledger in %s: a flush failed while this was written", ledger->folder);
    if (err == ERR_OK)
        err = note(ledger, entry);
    if (err != ERR_OK)
        return cut_back(segment, err);
    segment->bytes = record_end(entry->offset, entry->bytes);
    ledger->lost = false;
    return ERR_OK;
}

static void take_turn(struct ledger *ledger)
{
    pthread_mutex_lock(&ledger->writing);
    pthread_mutex_lock(&ledger->lock);
}

/* The next one may write while this one's bytes are flushed. */
static enum err end_turn(struct ledger *ledger, const struct ledger_entry *what, bool durable, enum err err)
{
    pthread_mutex_unlock(&ledger->writing);
    if (err == ERR_OK && durable)
        err = flush_and_tell(ledger, what);
    pthread_mutex_unlock(&ledger->lock);
    return err;
}

/* ---- results ---- */

static enum err check_name(const struct result_id *key, const uint8_t *object, size_t bytes)
{
    struct wire_object what;
    TRY(wire_object_peek(object, bytes, &what));
    struct result_id name = wire_object_result(&what);
    if (what.key.kind != WIRE_RESULT || !result_id_equal(&name, key))
        return err_set(ERR_ARG, "the %s is not what the ledger was to have it under", wire_key_text(&what.key));
    return ERR_OK;
}

enum err ledger_append(struct ledger *ledger, const struct result_id *key, const uint8_t *object, size_t bytes)
{
    struct ledger_entry entry = {.key = *key, .bytes = bytes, .unflushed = 1};
    enum err err = ERR_OK;
    TRY(check_name(key, object, bytes));
    take_turn(ledger);
    if (find(ledger, &entry) == NULL)
        err = append(ledger, &entry, object);
    return end_turn(ledger, &entry, true, err);
}

/* ---- commits ---- */

/* Whether the entry, which may be NULL, says the same as these bytes. */
static bool says_the_same(const struct ledger *ledger, const struct ledger_entry *entry, const uint8_t *body,
                          size_t bytes)
{
    struct ledger_commit there;
    uint8_t packed[LEDGER_COMMIT_BYTES_MAX];
    return entry != NULL && read_commit(ledger, entry, &there) == ERR_OK &&
           record_put_commit(&there, packed) == bytes && memcmp(packed, body, bytes) == 0;
}

enum err ledger_append_commit(struct ledger *ledger, const struct ledger_commit *commit, bool durable)
{
    uint8_t body[LEDGER_COMMIT_BYTES_MAX];
    struct ledger_entry entry = {.key = {.fragment = commit->fragment, .version = commit->version}, .commit = 1};
    enum err err = ERR_OK;
    if (commit->parts_count == 0 || commit->parts_count > LEDGER_PARTS_MAX)
        return err_set(ERR_ARG, "a commit of %" PRIu32 " parts", commit->parts_count);
    entry.bytes = record_put_commit(commit, body);
    take_turn(ledger);
    if (!says_the_same(ledger, find(ledger, &entry), body, (size_t)entry.bytes))
        err = append(ledger, &entry, body);
    return end_turn(ledger, &entry, durable, err);
}
