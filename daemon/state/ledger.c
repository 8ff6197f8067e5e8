#include "daemon/state/ledger.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/bytes.h"
#include "common/fsio.h"
#include "common/log.h"
#include "common/mem.h"

/*
 * Segment: "ledger-NUMBER.log"; 64 bytes of header (magic u32 "DLS1", version u32, number u64, run id 32 bytes, first
 * 16 bytes of the islands' shares), then records. Record: 64 bytes of header, the object, zeros to a multiple of 8:
 *    0  u32 magic "DLR1"   4  u32 shard   8  u32 fragment  12  u32 zero  16  u64 version  24  u64 object bytes
 *   32  32 bytes BLAKE2b over bytes 0..31 and the object
 */
#define SEGMENT_MAGIC 0x31534c44u
#define RECORD_MAGIC 0x31524c44u
enum { LEDGER_VERSION = 2, SEGMENT_HEADER = 64, RECORD_HEADER = 64, RECORD_DIGEST = 32, SEGMENTS_MAX = 65536 };
/* Of the digest over the islands' shares, so much stands in a segment's header. */
enum { SHARES_BYTES = 16 };
#define SEGMENT_NUMBER_MAX UINT64_C(999999999999) /* 12 digits */
/* Bytes: records begin on multiples of it. */
enum { RECORD_ALIGN = 8 };
/* Of the index, at first; both double, and slots are at least two for each entry. */
enum { ENTRIES_MIN = 1024, SLOTS_MIN = 2 * ENTRIES_MIN };

struct entry {
    uint32_t fragment, shard;
    uint64_t version;
    uint32_t segment;       /* index into segments */
    uint64_t offset, bytes; /* of the object in the file */
};

struct segment {
    uint64_t number;
    uint64_t bytes;
    int fd; /* -1: removed */
};

struct ledger {
    struct ledger_conf conf;
    char *folder, *lock_path;
    int lock_fd;
    pthread_mutex_t lock;
    struct segment *segments; /* oldest first */
    size_t segments_count, segments_room;
    /* Hash table of entries, open addressing; `slots` holds index + 1. */
    struct entry *entries;
    size_t entries_count, entries_room;
    uint32_t *slots;
    size_t slots_room; /* power of two */
    bool unsynced;
    bool doubtful; /* a flush of the last segment failed: nothing more goes there */
};

/* ---- index ---- */

static size_t slot_hash(uint32_t fragment, uint64_t version, uint32_t shard)
{
    uint64_t value = version * 0x9e3779b97f4a7c15u ^ ((uint64_t)fragment << 32 | shard);
    value = (value ^ value >> 29) * 0xbf58476d1ce4e5b9u;
    return (size_t)(value ^ value >> 32);
}

static struct entry *find(const struct ledger *ledger, uint32_t fragment, uint64_t version, uint32_t shard)
{
    if (ledger->slots_room == 0)
        return NULL;
    for (size_t at = slot_hash(fragment, version, shard);; at++) {
        uint32_t slot = ledger->slots[at & (ledger->slots_room - 1)];
        if (slot == 0)
            return NULL;
        struct entry *entry = &ledger->entries[slot - 1];
        if (entry->fragment == fragment && entry->version == version && entry->shard == shard)
            return entry;
    }
}

static void put_slot(struct ledger *ledger, uint32_t index)
{
    const struct entry *entry = &ledger->entries[index];
    size_t at = slot_hash(entry->fragment, entry->version, entry->shard);
    while (ledger->slots[at & (ledger->slots_room - 1)] != 0)
        at++;
    ledger->slots[at & (ledger->slots_room - 1)] = index + 1;
}

static enum err rebuild_slots(struct ledger *ledger, size_t room)
{
    uint32_t *slots = NULL;
    TRY(mem_new(room, sizeof *slots, "the ledger's index", &slots));
    mem_free(ledger->slots);
    ledger->slots = slots;
    ledger->slots_room = room;
    for (size_t i = 0; i < ledger->entries_count; i++)
        put_slot(ledger, (uint32_t)i);
    return ERR_OK;
}

static enum err add_entry(struct ledger *ledger, const struct entry *entry)
{
    if (ledger->entries_count == ledger->entries_room) {
        size_t room = ledger->entries_room > 0 ? 2 * ledger->entries_room : ENTRIES_MIN;
        TRY(mem_grow(&ledger->entries, ledger->entries_count, room, sizeof *ledger->entries, "the ledger's index"));
        ledger->entries_room = room;
    }
    if (2 * (ledger->entries_count + 1) > ledger->slots_room)
        TRY(rebuild_slots(ledger, ledger->slots_room > 0 ? 2 * ledger->slots_room : SLOTS_MIN));
    ledger->entries[ledger->entries_count] = *entry;
    put_slot(ledger, (uint32_t)ledger->entries_count++);
    return ERR_OK;
}

/* ---- segments ---- */

static enum err segment_path(const struct ledger *ledger, uint64_t number, char **path)
{
    return mem_printf(path, "%s/ledger-%012" PRIu64 ".log", ledger->folder, number);
}

static enum err add_segment(struct ledger *ledger, uint64_t number, int fd, uint64_t bytes)
{
    if (ledger->segments_count == ledger->segments_room) {
        size_t room = ledger->segments_room > 0 ? 2 * ledger->segments_room : 16;
        TRY(mem_grow(&ledger->segments, ledger->segments_count, room, sizeof *ledger->segments, "ledger segments"));
        ledger->segments_room = room;
    }
    ledger->segments[ledger->segments_count++] = (struct segment){.number = number, .bytes = bytes, .fd = fd};
    return ERR_OK;
}

static enum err begin_segment(struct ledger *ledger, uint64_t number)
{
    char *path;
    uint8_t header[SEGMENT_HEADER] = {0};
    struct bytes_writer writer = bytes_writer_init(header, sizeof header);
    bytes_put_u32(&writer, SEGMENT_MAGIC);
    bytes_put_u32(&writer, LEDGER_VERSION);
    bytes_put_u64(&writer, number);
    bytes_put(&writer, ledger->conf.run_id.byte, DIGEST_BYTES);
    bytes_put(&writer, ledger->conf.shares_id.byte, SHARES_BYTES);
    if (number > SEGMENT_NUMBER_MAX)
        return err_set(ERR_STATE, "%s: the ledger's last file has the last number there is", ledger->folder);
    TRY(segment_path(ledger, number, &path));
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    enum err err =
        fd >= 0 ? fsio_write_all(fd, header, sizeof header, path) : err_set_errno(ERR_IO, "cannot create %s", path);
    if (err == ERR_OK && fsync(fd) != 0)
        err = err_set_errno(ERR_IO, "cannot flush %s", path);
    if (err == ERR_OK)
        err = fsio_sync_folder_of(path);
    if (err == ERR_OK)
        err = add_segment(ledger, number, fd, SEGMENT_HEADER);
    if (err != ERR_OK && fd >= 0)
        close(fd);
    mem_free(path);
    return err;
}

static struct digest record_digest(const uint8_t *header, const uint8_t *object, size_t bytes)
{
    struct digest_state state;
    digest_begin(&state);
    digest_add(&state, header, RECORD_DIGEST);
    digest_add(&state, object, bytes);
    return digest_end(&state);
}

static size_t padded(size_t bytes)
{
    return (bytes + RECORD_ALIGN - 1) / RECORD_ALIGN * RECORD_ALIGN;
}

/* Reads the record at the reader's place; false at the end of what is whole. */
static bool scan_record(struct bytes_reader *reader, struct entry *entry)
{
    const uint8_t *header = bytes_get(reader, RECORD_HEADER);
    if (header == NULL)
        return false;
    struct bytes_reader fields = bytes_reader_init(header, RECORD_HEADER);
    uint32_t magic = bytes_get_u32(&fields);
    entry->shard = bytes_get_u32(&fields);
    entry->fragment = bytes_get_u32(&fields);
    (void)bytes_get_u32(&fields);
    entry->version = bytes_get_u64(&fields);
    entry->bytes = bytes_get_u64(&fields);
    entry->offset = reader->at;
    if (magic != RECORD_MAGIC || entry->bytes > bytes_left(reader))
        return false;
    const uint8_t *object = bytes_get(reader, padded(entry->bytes));
    if (object == NULL)
        return false;
    struct digest digest = record_digest(header, object, entry->bytes);
    return memcmp(digest.byte, header + RECORD_DIGEST, DIGEST_BYTES) == 0;
}

/* Moves the reader, which stands where a record is damaged or torn, to the next whole one; false if none follows. */
static bool find_whole_record(struct bytes_reader *reader, size_t damaged, struct entry *entry)
{
    for (size_t at = damaged + RECORD_ALIGN; at + RECORD_HEADER <= reader->bytes; at += RECORD_ALIGN) {
        struct bytes_reader here = *reader;
        here.at = at;
        here.failed = false;
        if (!scan_record(&here, entry))
            continue;
        *reader = here;
        return true;
    }
    return false;
}

/* Indexes the records of one mapped segment, passing over damaged ones; `*good` is where the last whole one ends. */
static enum err scan_records(struct ledger *ledger, const char *path, const uint8_t *map, uint64_t bytes,
                             uint64_t *good)
{
    struct bytes_reader reader = bytes_reader_init(map, bytes);
    struct entry entry = {.segment = (uint32_t)ledger->segments_count};
    (void)bytes_get(&reader, SEGMENT_HEADER);
    *good = reader.at;
    for (;;) {
        if (!scan_record(&reader, &entry)) {
            if (!find_whole_record(&reader, *good, &entry))
                return ERR_OK;
            log_warn("%s: %" PRIu64 " bytes at offset %" PRIu64 " are damaged and were passed over; what is missing is "
                     "fetched from the other islands. Check this machine's disk",
                     path, entry.offset - RECORD_HEADER - *good, *good);
        }
        if (find(ledger, entry.fragment, entry.version, entry.shard) == NULL)
            TRY(add_entry(ledger, &entry));
        *good = reader.at;
    }
}

static enum err check_segment_header(const struct ledger *ledger, const char *path, const uint8_t *map, uint64_t number)
{
    struct bytes_reader reader = bytes_reader_init(map, SEGMENT_HEADER);
    uint32_t magic = bytes_get_u32(&reader);
    uint32_t version = bytes_get_u32(&reader);
    uint64_t found = bytes_get_u64(&reader);
    if (magic != SEGMENT_MAGIC || found != number)
        return err_set(ERR_CORRUPT, "%s: not a ledger segment", path);
    if (version != LEDGER_VERSION)
        return err_set(ERR_CONF, "%s: ledger of version %" PRIu32 "; this program reads %d", path, version,
                       LEDGER_VERSION);
    if (memcmp(bytes_get(&reader, DIGEST_BYTES), ledger->conf.run_id.byte, DIGEST_BYTES) != 0)
        return err_set(
            ERR_CONF, "%s: belongs to another run; use another [island] state folder, or the run spec it was made with",
            path);
    if (memcmp(bytes_get(&reader, SHARES_BYTES), ledger->conf.shares_id.byte, SHARES_BYTES) != 0)
        return err_set(ERR_CONF,
                       "%s: was made by another list of islands, and a run keeps its islands: put their names and "
                       "uplinks and the [peer] sections back as they were, or begin anew, everywhere, with another "
                       "[island] state folder; nothing saved was changed",
                       path);
    return ERR_OK;
}

static enum err scan_segment(struct ledger *ledger, const char *path, uint64_t number, int fd, uint64_t bytes)
{
    uint64_t good = 0;
    if (bytes < SEGMENT_HEADER)
        return err_set(ERR_CORRUPT, "%s: shorter than its header", path);
    uint8_t *map = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED)
        return err_set_errno(ERR_IO, "%s: cannot map", path);
    enum err err = check_segment_header(ledger, path, map, number);
    if (err == ERR_OK)
        err = scan_records(ledger, path, map, bytes, &good);
    munmap(map, bytes);
    TRY(err);
    if (good < bytes) {
        log_warn("%s: %" PRIu64 " bytes at its end are no whole record (a crash while writing) and were cut off; "
                 "what is missing is fetched from the other islands",
                 path, bytes - good);
        if (ftruncate(fd, (off_t)good) != 0)
            return err_set_errno(ERR_IO, "%s: cannot cut off its torn end", path);
    }
    return add_segment(ledger, number, fd, good);
}

static int by_number(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left;
    uint64_t b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

/* With a head and nothing below it: begun for a run spec or a list of islands that was corrected since. */
static enum err drop_empty(const char *path)
{
    log_info("%s holds no result; the ledger is begun anew", err_text());
    return unlink(path) == 0 ? ERR_OK : err_set_errno(ERR_IO, "%s: cannot remove", path);
}

/* Nothing in it can be used; out of the way, but not thrown away. */
static enum err put_aside(const char *path)
{
    char *aside;
    log_warn("%s; it is put aside as .damaged", err_text());
    TRY(mem_printf(&aside, "%s.damaged", path));
    enum err err = rename(path, aside) == 0 ? ERR_OK : err_set_errno(ERR_IO, "%s: cannot put aside", path);
    mem_free(aside);
    return err;
}

static enum err open_segment(struct ledger *ledger, uint64_t number)
{
    char *path;
    struct stat status = {0};
    TRY(segment_path(ledger, number, &path));
    int fd = open(path, O_RDWR | O_CLOEXEC);
    enum err err = fd >= 0 && fstat(fd, &status) == 0 ? scan_segment(ledger, path, number, fd, (uint64_t)status.st_size)
                                                      : err_set_errno(ERR_IO, "%s: cannot open", path);
    if (err != ERR_OK && fd >= 0)
        close(fd);
    if (err == ERR_CONF && status.st_size == SEGMENT_HEADER)
        err = drop_empty(path);
    else if (err == ERR_CORRUPT)
        err = put_aside(path);
    mem_free(path);
    return err;
}

/* Of a file that is named as we name them. Another name for a number we read would make two segments of one file. */
static bool number_of(const char *name, uint64_t *number)
{
    char ours[64];
    if (sscanf(name, "ledger-%" SCNu64, number) != 1 || *number > SEGMENT_NUMBER_MAX)
        return false;
    snprintf(ours, sizeof ours, "ledger-%012" PRIu64 ".log", *number);
    return strcmp(name, ours) == 0;
}

static enum err open_segments(struct ledger *ledger)
{
    enum err err = ERR_OK;
    uint64_t *numbers = NULL;
    size_t count = 0;
    DIR *dir = opendir(ledger->folder);
    if (dir == NULL)
        return err_set_errno(ERR_IO, "%s: cannot open", ledger->folder);
    TRY_OUT(mem_new(SEGMENTS_MAX, sizeof *numbers, "ledger segments", &numbers));
    for (struct dirent *item; count < SEGMENTS_MAX && (item = readdir(dir)) != NULL;)
        count += number_of(item->d_name, &numbers[count]);
    qsort(numbers, count, sizeof *numbers, by_number);
    for (size_t i = 0; i < count; i++)
        TRY_OUT(open_segment(ledger, numbers[i]));
    if (ledger->segments_count == 0)
        err = begin_segment(ledger, count > 0 ? numbers[count - 1] + 1 : 1);
out:
    closedir(dir);
    mem_free(numbers);
    return err;
}

/* Two daemons in one folder would write over each other's results. The kernel drops the lock with the process. */
static enum err lock_folder(struct ledger *ledger)
{
    TRY(mem_printf(&ledger->lock_path, "%s/lock", ledger->folder));
    ledger->lock_fd = open(ledger->lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (ledger->lock_fd < 0)
        return err_set_errno(ERR_IO, "cannot open %s", ledger->lock_path);
    if (flock(ledger->lock_fd, LOCK_EX | LOCK_NB) != 0)
        return err_set(
            ERR_CONF,
            "the state folder %s is in use by another dilocod; stop it, or give this one a folder of its own "
            "([island] state)",
            ledger->folder);
    return ERR_OK;
}

enum err ledger_open(const struct ledger_conf *conf, struct ledger **out)
{
    enum err err;
    struct ledger *ledger = NULL;
    *out = NULL;
    TRY(mem_new(1, sizeof *ledger, "the ledger", &ledger));
    pthread_mutex_init(&ledger->lock, NULL);
    ledger->conf = *conf;
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
    if (ledger->unsynced && ledger_sync(ledger) != ERR_OK)
        log_error("%s", err_text());
    for (size_t i = 0; i < ledger->segments_count; i++)
        if (ledger->segments[i].fd >= 0)
            close(ledger->segments[i].fd);
    if (ledger->lock_fd >= 0)
        close(ledger->lock_fd);
    pthread_mutex_destroy(&ledger->lock);
    mem_free(ledger->segments);
    mem_free(ledger->entries);
    mem_free(ledger->slots);
    mem_free(ledger->folder);
    mem_free(ledger->lock_path);
    mem_free(ledger);
}

/* ---- appending ---- */

static enum err write_record(struct ledger *ledger, struct segment *segment, const struct entry *entry,
                             const uint8_t *object)
{
    static const uint8_t zeros[8];
    uint8_t header[RECORD_HEADER] = {0};
    struct bytes_writer writer = bytes_writer_init(header, sizeof header);
    bytes_put_u32(&writer, RECORD_MAGIC);
    bytes_put_u32(&writer, entry->shard);
    bytes_put_u32(&writer, entry->fragment);
    bytes_put_u32(&writer, 0);
    bytes_put_u64(&writer, entry->version);
    bytes_put_u64(&writer, entry->bytes);
    struct digest digest = record_digest(header, object, entry->bytes);
    bytes_put(&writer, digest.byte, DIGEST_BYTES);
    if (lseek(segment->fd, (off_t)segment->bytes, SEEK_SET) < 0)
        return err_set_errno(ERR_IO, "the ledger in %s", ledger->folder);
    TRY(fsio_write_all(segment->fd, header, sizeof header, "the ledger"));
    TRY(fsio_write_all(segment->fd, object, entry->bytes, "the ledger"));
    return fsio_write_all(segment->fd, zeros, padded(entry->bytes) - entry->bytes, "the ledger");
}

static enum err sync_locked(struct ledger *ledger)
{
    for (size_t i = 0; i < ledger->segments_count; i++)
        if (ledger->segments[i].fd >= 0 && i + 2 >= ledger->segments_count && fdatasync(ledger->segments[i].fd) != 0)
            return err_set_errno(ERR_IO, "cannot flush the ledger in %s", ledger->folder);
    ledger->unsynced = false;
    return ERR_OK;
}

static enum err append_locked(struct ledger *ledger, struct entry *entry, const uint8_t *object)
{
    struct segment *last = &ledger->segments[ledger->segments_count - 1];
    bool full = last->bytes > SEGMENT_HEADER && last->bytes + entry->bytes > ledger->conf.segment_bytes;
    if (full || ledger->doubtful) {
        if (!ledger->doubtful)
            TRY(sync_locked(ledger));
        TRY(begin_segment(ledger, last->number + 1));
        ledger->doubtful = false;
        last = &ledger->segments[ledger->segments_count - 1];
    }
    entry->segment = (uint32_t)(ledger->segments_count - 1);
    entry->offset = last->bytes + RECORD_HEADER;
    enum err err = write_record(ledger, last, entry, object);
    if (err == ERR_OK)
        err = add_entry(ledger, entry);
    if (err != ERR_OK) {
        /* The part that was written would hide what comes behind it. */
        if (ftruncate(last->fd, (off_t)last->bytes) != 0)
            log_error("the ledger in %s cannot be cut back after a failed write", ledger->folder);
        return err == ERR_NOSPACE ? err_suffix(err, "free some space; nothing that was saved is lost") : err;
    }
    last->bytes += RECORD_HEADER + padded(entry->bytes);
    ledger->unsynced = true;
    return ERR_OK;
}

/* After a failed flush the kernel may have dropped the bytes and report success the next time: what was to be durable
 * is written again, to another file. */
static void forget(struct ledger *ledger, uint32_t fragment, uint64_t version, uint32_t shard)
{
    struct entry *entry = find(ledger, fragment, version, shard);
    *entry = ledger->entries[--ledger->entries_count];
    memset(ledger->slots, 0, ledger->slots_room * sizeof *ledger->slots);
    for (size_t i = 0; i < ledger->entries_count; i++)
        put_slot(ledger, (uint32_t)i);
    ledger->doubtful = true;
}

enum err ledger_append(struct ledger *ledger, uint32_t fragment, uint64_t version, uint32_t shard,
                       const uint8_t *object, size_t bytes, bool durable)
{
    struct entry entry = {.fragment = fragment, .version = version, .shard = shard, .bytes = bytes};
    enum err err = ERR_OK;
    pthread_mutex_lock(&ledger->lock);
    if (find(ledger, fragment, version, shard) == NULL)
        err = append_locked(ledger, &entry, object);
    if (err == ERR_OK && durable) {
        err = sync_locked(ledger);
        if (err != ERR_OK)
            forget(ledger, fragment, version, shard);
    }
    pthread_mutex_unlock(&ledger->lock);
    return err;
}

enum err ledger_sync(struct ledger *ledger)
{
    pthread_mutex_lock(&ledger->lock);
    enum err err = sync_locked(ledger);
    pthread_mutex_unlock(&ledger->lock);
    return err;
}

/* ---- reading ---- */

bool ledger_has(struct ledger *ledger, uint32_t fragment, uint64_t version, uint32_t shard)
{
    pthread_mutex_lock(&ledger->lock);
    bool has = find(ledger, fragment, version, shard) != NULL;
    pthread_mutex_unlock(&ledger->lock);
    return has;
}

static enum err map_entry(struct ledger *ledger, const struct entry *entry, struct ledger_map *out)
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

enum err ledger_map(struct ledger *ledger, uint32_t fragment, uint64_t version, uint32_t shard, struct ledger_map *out)
{
    pthread_mutex_lock(&ledger->lock);
    const struct entry *entry = find(ledger, fragment, version, shard);
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

/* ---- pruning ---- */

static bool needed(const struct ledger *ledger, size_t segment, const uint64_t *versions, uint32_t fragments_count)
{
    for (size_t i = 0; i < ledger->entries_count; i++) {
        const struct entry *entry = &ledger->entries[i];
        if (entry->segment == segment && entry->fragment < fragments_count &&
            entry->version > versions[entry->fragment])
            return true;
    }
    return false;
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
    ledger->segments[index].bytes = 0;
    size_t kept = 0;
    for (size_t i = 0; i < ledger->entries_count; i++)
        if (ledger->entries[i].segment != index)
            ledger->entries[kept++] = ledger->entries[i];
    ledger->entries_count = kept;
    memset(ledger->slots, 0, ledger->slots_room * sizeof *ledger->slots);
    for (size_t i = 0; i < kept; i++)
        put_slot(ledger, (uint32_t)i);
}

void ledger_prune(struct ledger *ledger, const uint64_t *versions, uint32_t fragments_count)
{
    pthread_mutex_lock(&ledger->lock);
    uint64_t total = 0;
    for (size_t i = 0; i < ledger->segments_count; i++)
        total += ledger->segments[i].bytes;
    for (size_t i = 0; i + 1 < ledger->segments_count && total > ledger->conf.keep_bytes; i++) {
        if (ledger->segments[i].fd < 0)
            continue;
        if (needed(ledger, i, versions, fragments_count))
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
    stats.records = ledger->entries_count;
    for (size_t i = 0; i < ledger->segments_count; i++) {
        stats.bytes += ledger->segments[i].bytes;
        stats.segments += ledger->segments[i].fd >= 0;
    }
    stats.lost = is_lost(ledger);
    pthread_mutex_unlock(&ledger->lock);
    return stats;
}
