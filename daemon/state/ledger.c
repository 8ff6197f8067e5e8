/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/state/ledger.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/fsio.h"
#include "common/log.h"
#include "common/mem.h"
#include "daemon/state/ledger_core.h"

enum { SEGMENTS_MAX = 65536 };
/* A place in the ledger: the number of a segment and the bytes in it. */
enum { AT_BITS = 40 };

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
    struct ledger_entry *there = commit ? ledger_index_commit(&ledger->index, entry.key.fragment, entry.key.version)
                                        : ledger_index_find(&ledger->index, &entry.key);
    if (there == NULL)
        return ledger_index_add(&ledger->index, &entry);
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
        enum ledger_found found = ledger_record_at(map, bytes, at, &record);
        if (found != LEDGER_WHOLE) {
            at = found == LEDGER_DAMAGED ? record.end : at + LEDGER_RECORD_ALIGN;
            continue;
        }
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
    enum err err = ledger_record_get_segment(map, number, &ledger->run, path);
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
    return ledger_core_add(ledger, number, fd, good);
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
    TRY(ledger_core_path(ledger, number, &path));
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
        TRY_OUT(ledger_core_create(ledger, first, &fd));
        err = ledger_core_add(ledger, first, fd, LEDGER_SEGMENT_HEADER);
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
    int error = ledger->segments_count > 0 ? ledger_core_flush(ledger) : 0;
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
    ledger_index_deinit(&ledger->index);
    mem_free(ledger->folder);
    mem_free(ledger->lock_path);
    mem_free(ledger);
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
    const struct ledger_entry *entry = ledger_index_find(&ledger->index, key);
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
    const struct ledger_entry *entry = ledger_index_first(&ledger->index, fragment, version);
    for (; entry != NULL && count < max; entry = ledger_index_next(&ledger->index, entry))
        if (!entry->commit && !entry->unflushed)
            out[count++] = entry->key;
    pthread_mutex_unlock(&ledger->lock);
    return count;
}

uint64_t ledger_version_bytes(struct ledger *ledger, uint32_t fragment, uint64_t version)
{
    uint64_t bytes = 0;
    pthread_mutex_lock(&ledger->lock);
    const struct ledger_entry *entry = ledger_index_first(&ledger->index, fragment, version);
    for (; entry != NULL; entry = ledger_index_next(&ledger->index, entry))
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
    const struct ledger_entry *entry = ledger_index_commit(&ledger->index, fragment, version);
    enum err err = entry != NULL
                       ? ledger_core_commit(ledger, entry, out)
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
    if (ledger_core_path(ledger, ledger->segments[index].number, &path) != ERR_OK)
        return;
    unlink(path);
    mem_free(path);
    close(ledger->segments[index].fd);
    ledger->segments[index].fd = -1;
    ledger->segments[index].bytes = ledger->segments[index].durable = 0;
    ledger_index_drop_segment(&ledger->index, (uint32_t)index);
}

void ledger_prune(struct ledger *ledger, const struct ledger_reach *reach, uint32_t fragments_count)
{
    pthread_mutex_lock(&ledger->lock);
    uint64_t total = 0;
    for (size_t i = 0; i < ledger->segments_count; i++)
        total += ledger->segments[i].bytes;
    for (size_t i = 0; i + 1 < ledger->segments_count; i++) {
        if (ledger->segments[i].fd < 0)
            continue;
        enum use use = use_of(ledger, i, reach, fragments_count);
        if (use == USE_NEEDED || (use == USE_SERVED && total <= ledger->conf.keep_bytes))
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
