/* SPDX-License-Identifier: Apache-2.0 */
/* Appending to a ledger, and its flushes: whoever reads or looks something up meanwhile does not wait for the disk. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/fsio.h"
#include "common/log.h"
#include "daemon/state/ledger.h"
#include "daemon/state/ledger_core.h"
#include "net/transport/wire_object.h"

/* On the stack of who waits. */
struct ledger_flush {
    struct ledger_flush *next;
    bool ended;
    int error; /* out: errno; 0: it is on the disk */
};

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
    ledger_index_drop_from(&ledger->index, (uint32_t)index, segment->durable);
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
    int error = ledger_core_flush(ledger);
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
    return what->commit ? ledger_index_commit(&ledger->index, what->key.fragment, what->key.version)
                        : ledger_index_find(&ledger->index, &what->key);
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
    ledger_record_put(entry->commit ? LEDGER_COMMIT : LEDGER_RESULT, body, bytes, header);
    if (lseek(segment->fd, (off_t)segment->bytes, SEEK_SET) < 0)
        return err_set_errno(ERR_IO, "the ledger in %s", ledger->folder);
    TRY(fsio_write_all(segment->fd, header, sizeof header, "the ledger"));
    TRY(fsio_write_all(segment->fd, body, bytes, "the ledger"));
    return fsio_write_all(segment->fd, zeros, (size_t)(ledger_record_end(0, bytes) - bytes), "the ledger");
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
    enum err err = ledger_core_create(ledger, last.number + 1, &fd);
    pthread_mutex_lock(&ledger->lock);
    TRY(err);
    err = ledger_core_add(ledger, last.number + 1, fd, LEDGER_SEGMENT_HEADER);
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
        return ledger_index_add(&ledger->index, entry);
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
    segment->bytes = ledger_record_end(entry->offset, entry->bytes);
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
    return entry != NULL && ledger_core_commit(ledger, entry, &there) == ERR_OK &&
           ledger_record_put_commit(&there, packed) == bytes && memcmp(packed, body, bytes) == 0;
}

enum err ledger_append_commit(struct ledger *ledger, const struct ledger_commit *commit, bool durable)
{
    uint8_t body[LEDGER_COMMIT_BYTES_MAX];
    struct ledger_entry entry = {.key = {.fragment = commit->fragment, .version = commit->version}, .commit = 1};
    enum err err = ERR_OK;
    if (commit->parts_count == 0 || commit->parts_count > LEDGER_PARTS_MAX)
        return err_set(ERR_ARG, "a commit of %" PRIu32 " parts", commit->parts_count);
    entry.bytes = ledger_record_put_commit(commit, body);
    take_turn(ledger);
    if (!says_the_same(ledger, find(ledger, &entry), body, (size_t)entry.bytes))
        err = append(ledger, &entry, body);
    return end_turn(ledger, &entry, durable, err);
}
