/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/state/ledger_core.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <unistd.h>

#include "common/fsio.h"
#include "common/mem.h"

enum err ledger_core_path(const struct ledger *ledger, uint64_t number, char **path)
{
    return mem_printf(path, "%s/ledger-%012" PRIu64 ".log", ledger->folder, number);
}

enum err ledger_core_create(const struct ledger *ledger, uint64_t number, int *fd)
{
    char *path;
    uint8_t header[LEDGER_SEGMENT_HEADER];
    ledger_record_put_segment(number, &ledger->run, header);
    if (number > LEDGER_SEGMENT_NUMBER_MAX)
        return err_set(ERR_STATE, "%s: the ledger's last file has the last number there is", ledger->folder);
    TRY(ledger_core_path(ledger, number, &path));
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

enum err ledger_core_add(struct ledger *ledger, uint64_t number, int fd, uint64_t bytes)
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

/* A segment is left only when all of it is on the disk, or after a failed flush has cut it back: what is not on the
 * disk is in the last one. */
int ledger_core_flush(struct ledger *ledger)
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

enum err ledger_core_commit(const struct ledger *ledger, const struct ledger_entry *entry, struct ledger_commit *out)
{
    uint8_t record[LEDGER_RECORD_HEADER + LEDGER_COMMIT_BYTES_MAX + LEDGER_RECORD_ALIGN] = {0};
    struct ledger_record found;
    uint64_t bytes = ledger_record_end(LEDGER_RECORD_HEADER, entry->bytes);
    off_t at = (off_t)(entry->offset - LEDGER_RECORD_HEADER);
    ssize_t got = pread(ledger->segments[entry->segment].fd, record, (size_t)bytes, at);
    if (got < 0)
        return err_set_errno(ERR_IO, "the ledger in %s", ledger->folder);
    if (ledger_record_at(record, (uint64_t)got, 0, &found) != LEDGER_WHOLE || found.bytes != entry->bytes)
        return err_set(ERR_CORRUPT, "the ledger in %s: a commit was damaged since it was opened", ledger->folder);
    return ledger_record_get_commit(record + LEDGER_RECORD_HEADER, (size_t)entry->bytes, out);
}
