/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/state/records.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/as_typed.h"
#include "common/bytes.h"
#include "common/fsio.h"
#include "common/log.h"
#include "common/mem.h"

/*
 * File "record-EPOCH", 12 digits: magic u32 "DLE1", version u32, epoch u64, record bytes u64, votes u32, zero u32, the
 * record, for each vote id u32, zero u32, ballot u64 and signature; then 32 bytes BLAKE2b over all before.
 */
#define RECORD_MAGIC 0x31454c44u
enum { FILE_VERSION = 1, HEAD_BYTES = 32, VOTE_BYTES = 16 + IDENT_SIGNATURE_BYTES, VOTES_MAX = RECORD_OWNERS_MAX + 1 };
enum { FILE_BYTES_MAX = HEAD_BYTES + RECORD_BYTES_MAX + VOTES_MAX * VOTE_BYTES + DIGEST_BYTES };

static enum err path_of(const char *folder, uint64_t epoch, char **path)
{
    return mem_printf(path, "%s/record-%012" PRIu64, folder, epoch);
}

void records_entry_free(struct records_entry *entry)
{
    mem_free(entry->bytes);
    mem_free(entry->votes);
    *entry = (struct records_entry){0};
}

/* ---- one file ---- */

static void write_entry(struct bytes_writer *writer, uint64_t epoch, const struct records_entry *entry)
{
    bytes_put_u32(writer, RECORD_MAGIC);
    bytes_put_u32(writer, FILE_VERSION);
    bytes_put_u64(writer, epoch);
    bytes_put_u64(writer, entry->bytes_count);
    bytes_put_u32(writer, entry->votes_count);
    bytes_put_u32(writer, 0);
    bytes_put(writer, entry->bytes, entry->bytes_count);
    for (uint32_t i = 0; i < entry->votes_count; i++) {
        bytes_put_u32(writer, entry->votes[i].id);
        bytes_put_u32(writer, 0);
        bytes_put_u64(writer, entry->votes[i].ballot);
        bytes_put(writer, entry->votes[i].signature, IDENT_SIGNATURE_BYTES);
    }
    struct digest digest = digest_of(writer->data, writer->at);
    bytes_put(writer, digest.byte, DIGEST_BYTES);
}

enum err records_save(const char *folder, uint64_t epoch, const struct records_entry *entry)
{
    char *path;
    uint8_t *data;
    if (entry->bytes_count > RECORD_BYTES_MAX || entry->votes_count > VOTES_MAX)
        return err_set(ERR_ARG, "a record of %zu bytes with %" PRIu32 " votes", entry->bytes_count, entry->votes_count);
    size_t bytes = HEAD_BYTES + entry->bytes_count + entry->votes_count * (size_t)VOTE_BYTES + DIGEST_BYTES;
    TRY(mem_new(bytes, 1, "a view record", &data));
    struct bytes_writer writer = bytes_writer_init(data, bytes);
    write_entry(&writer, epoch, entry);
    enum err err = path_of(folder, epoch, &path);
    if (err == ERR_OK) {
        err = fsio_replace(path, data, bytes, 0644);
        mem_free(path);
    }
    mem_free(data);
    return err;
}

static enum err read_entry(const char *path, uint64_t epoch, const char *data, size_t bytes,
                           struct records_entry *entry)
{
    struct bytes_reader reader = bytes_reader_init(data, bytes);
    uint32_t magic = bytes_get_u32(&reader), version = bytes_get_u32(&reader);
    uint64_t said = bytes_get_u64(&reader), count = bytes_get_u64(&reader);
    uint32_t votes = bytes_get_u32(&reader);
    (void)bytes_get_u32(&reader);
    bool whole = !reader.failed && magic == RECORD_MAGIC && version == FILE_VERSION && said == epoch &&
                 count <= RECORD_BYTES_MAX && votes <= VOTES_MAX &&
                 bytes == HEAD_BYTES + count + votes * (uint64_t)VOTE_BYTES + DIGEST_BYTES;
    if (whole) {
        struct digest digest = digest_of(data, bytes - DIGEST_BYTES);
        whole = memcmp(data + bytes - DIGEST_BYTES, digest.byte, DIGEST_BYTES) == 0;
    }
    if (!whole)
        return err_set(ERR_CORRUPT, "%s is damaged", path);
    entry->bytes_count = (size_t)count;
    entry->votes_count = votes;
    TRY(mem_new(entry->bytes_count, 1, "a view record", &entry->bytes));
    TRY(mem_new(votes, sizeof *entry->votes, "a view record", &entry->votes));
    memcpy(entry->bytes, bytes_get(&reader, entry->bytes_count), entry->bytes_count);
    for (uint32_t i = 0; i < votes; i++) {
        entry->votes[i].id = bytes_get_u32(&reader);
        (void)bytes_get_u32(&reader);
        entry->votes[i].ballot = bytes_get_u64(&reader);
        memcpy(entry->votes[i].signature, bytes_get(&reader, IDENT_SIGNATURE_BYTES), IDENT_SIGNATURE_BYTES);
    }
    return ERR_OK;
}

enum err records_read(const char *folder, uint64_t epoch, struct records_entry *entry)
{
    enum err err;
    char *path = NULL, *data = NULL;
    size_t bytes;
    *entry = (struct records_entry){0};
    TRY_OUT(path_of(folder, epoch, &path));
    TRY_OUT(fsio_read(path, FILE_BYTES_MAX, &data, &bytes));
    TRY_OUT(read_entry(path, epoch, data, bytes, entry));
out:
    if (err != ERR_OK)
        records_entry_free(entry);
    mem_free(path);
    mem_free(data);
    return err;
}

/* ---- all of them ---- */

static bool epoch_of(const char *name, uint64_t *epoch)
{
    char *end;
    static const char head[] = "record-";
    if (strncmp(name, head, sizeof head - 1) != 0 || name[sizeof head - 1] < '0' || name[sizeof head - 1] > '9')
        return false;
    *epoch = strtoull(name + sizeof head - 1, &end, 10);
    return *end == '\0' && end - name == (long)sizeof head - 1 + 12;
}

/* The lowest epoch from `least` on that there is a file of. */
static bool oldest(const char *folder, uint64_t least, uint64_t *out)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    uint64_t epoch;
    bool found = false;
    while (dir != NULL && (entry = readdir(dir)) != NULL)
        if (epoch_of(entry->d_name, &epoch) && epoch >= least && (!found || epoch < *out)) {
            *out = epoch;
            found = true;
        }
    if (dir != NULL)
        closedir(dir);
    return found;
}

static enum err check_run(const char *folder, const struct record *record, const uint8_t *nonce, bool nonce_known)
{
    if (!nonce_known || memcmp(record->nonce, nonce, RECORD_NONCE_BYTES) == 0)
        return ERR_OK;
    return err_set(ERR_CONF,
                   "the records in %s are of another run; give this run a state folder of its own, or empty that "
                   "one with: %s reset",
                   folder, as_typed());
}

static enum err add(const char *folder, uint64_t epoch, struct chain *chain, const uint8_t *nonce, bool nonce_known)
{
    struct records_entry entry;
    struct record record = {0};
    enum err err;
    TRY(records_read(folder, epoch, &entry));
    struct digest digest = record_digest(entry.bytes, entry.bytes_count);
    TRY_OUT(record_unpack(entry.bytes, entry.bytes_count, &record));
    TRY_OUT(check_run(folder, &record, nonce, nonce_known));
    if (chain_last(chain) != NULL)
        TRY_OUT(record_proved(chain_last(chain), chain_last_digest(chain), &record, &digest, entry.votes,
                              entry.votes_count));
    TRY_OUT(chain_add(chain, &record, &digest));
out:
    record_deinit(&record);
    records_entry_free(&entry);
    return err;
}

enum err records_load(const char *folder, const uint8_t nonce[RECORD_NONCE_BYTES], bool nonce_known,
                      struct chain *chain)
{
    uint64_t epoch;
    if (!oldest(folder, 0, &epoch))
        return err_set(ERR_NOTFOUND, "no view record in %s", folder);
    for (;; epoch++) {
        enum err err = add(folder, epoch, chain, nonce, nonce_known);
        if (err == ERR_CONF || err == ERR_NOMEM)
            return err;
        if (err == ERR_OK)
            continue;
        if (err != ERR_NOTFOUND)
            log_error("view record %" PRIu64 " is not used: %s; the others send it again", epoch, err_text());
        if (chain_last(chain) != NULL)
            return ERR_OK;
        /* The oldest is of no use: what follows the gap is as good a beginning. */
        if (!oldest(folder, epoch + 1, &epoch))
            return err_set(ERR_NOTFOUND, "no view record in %s", folder);
        epoch--;
    }
}

void records_forget(const char *folder, uint64_t epoch)
{
    uint64_t old;
    char *path;
    while (oldest(folder, 0, &old) && old < epoch) {
        if (path_of(folder, old, &path) != ERR_OK)
            return;
        bool gone = unlink(path) == 0;
        mem_free(path);
        if (!gone)
            return;
    }
}
