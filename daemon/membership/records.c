/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/membership/records.h"

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
/* File "records-EPOCH": so many epochs from that one on, which is a multiple of it, as far as they were here: their
 * files as they were, one after the other. AT_ONCE: a disk that has thousands of files is tidied little by little. */
enum { PACK_EPOCHS = 256, PACKS_AT_ONCE = 4 };
enum { FILE_BYTES_MAX = HEAD_BYTES + RECORD_BYTES_MAX + VOTES_MAX * VOTE_BYTES + DIGEST_BYTES };

#define PACK_BYTES_MAX ((size_t)PACK_EPOCHS * FILE_BYTES_MAX)

static enum err path_of(const char *folder, uint64_t epoch, char **path)
{
    return mem_printf(path, "%s/record-%012" PRIu64, folder, epoch);
}

static enum err pack_path_of(const char *folder, uint64_t epoch, char **path)
{
    return mem_printf(path, "%s/records-%012" PRIu64, folder, epoch / PACK_EPOCHS * PACK_EPOCHS);
}

/* ---- one file ---- */

static void write_entry(struct bytes_writer *writer, uint64_t epoch, const struct record_entry *entry)
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

typedef enum err put_file(const char *path, const void *data, size_t bytes, mode_t mode);

static enum err put(const char *folder, uint64_t epoch, const struct record_entry *entry, put_file *file)
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
        err = file(path, data, bytes, 0644);
        mem_free(path);
    }
    mem_free(data);
    return err;
}

enum err records_save(const char *folder, uint64_t epoch, const struct record_entry *entry)
{
    return put(folder, epoch, entry, fsio_replace);
}

enum err records_copy(const char *folder, uint64_t epoch, const struct record_entry *entry)
{
    return put(folder, epoch, entry, fsio_put);
}

static enum err read_entry(const char *path, uint64_t epoch, const char *data, size_t bytes, struct record_entry *entry)
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

/* Bytes of the record that begins here, by its head; `*epoch`: its own. 0: it is no whole one. */
static size_t bytes_of(const char *data, size_t bytes, uint64_t *epoch)
{
    struct bytes_reader reader = bytes_reader_init(data, bytes);
    uint32_t magic = bytes_get_u32(&reader), version = bytes_get_u32(&reader);
    *epoch = bytes_get_u64(&reader);
    uint64_t count = bytes_get_u64(&reader);
    uint32_t votes = bytes_get_u32(&reader);
    if (reader.failed || magic != RECORD_MAGIC || version != FILE_VERSION || count > RECORD_BYTES_MAX ||
        votes > VOTES_MAX)
        return 0;
    size_t whole = HEAD_BYTES + (size_t)count + votes * (size_t)VOTE_BYTES + DIGEST_BYTES;
    return whole <= bytes ? whole : 0;
}

static enum err read_alone(const char *folder, uint64_t epoch, struct record_entry *entry)
{
    char *path = NULL, *data = NULL;
    size_t bytes;
    enum err err;
    TRY_OUT(path_of(folder, epoch, &path));
    TRY_OUT(fsio_read(path, FILE_BYTES_MAX, &data, &bytes));
    err = read_entry(path, epoch, data, bytes, entry);
out:
    mem_free(path);
    mem_free(data);
    return err;
}

static enum err read_packed(const char *folder, uint64_t epoch, struct record_entry *entry)
{
    char *path = NULL, *data = NULL;
    size_t bytes, whole;
    uint64_t said;
    enum err err;
    TRY_OUT(pack_path_of(folder, epoch, &path));
    TRY_OUT(fsio_read(path, PACK_BYTES_MAX, &data, &bytes));
    err = err_set(ERR_NOTFOUND, "%s does not hold the record of epoch %" PRIu64, path, epoch);
    for (size_t at = 0; at < bytes; at += whole) {
        whole = bytes_of(data + at, bytes - at, &said);
        if (whole == 0) {
            err = err_set(ERR_CORRUPT, "%s is damaged", path);
            break;
        }
        if (said == epoch) {
            err = read_entry(path, epoch, data + at, whole, entry);
            break;
        }
    }
out:
    mem_free(path);
    mem_free(data);
    return err;
}

enum err records_read(const char *folder, uint64_t epoch, struct record_entry *entry)
{
    *entry = (struct record_entry){0};
    enum err err = read_alone(folder, epoch, entry);
    if (err == ERR_NOTFOUND)
        err = read_packed(folder, epoch, entry);
    if (err != ERR_OK)
        record_entry_free(entry);
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
    struct record_entry entry = {0};
    struct record record = {0};
    enum err err;
    TRY_OUT(read_alone(folder, epoch, &entry));
    struct digest digest = record_digest(entry.bytes, entry.bytes_count);
    TRY_OUT(record_unpack(entry.bytes, entry.bytes_count, &record));
    TRY_OUT(check_run(folder, &record, nonce, nonce_known));
    if (chain_last(chain) != NULL)
        TRY_OUT(record_proved(chain_last(chain), chain_last_digest(chain), &record, &digest, entry.votes,
                              entry.votes_count));
    TRY_OUT(chain_add(chain, &record, &digest));
out:
    record_deinit(&record);
    record_entry_free(&entry);
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

static void remove_alone(const char *folder, uint64_t epoch)
{
    char *path;
    if (path_of(folder, epoch, &path) != ERR_OK)
        return;
    unlink(path);
    mem_free(path);
}

void records_forget(const char *folder, uint64_t epoch)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    uint64_t old;
    while (dir != NULL && (entry = readdir(dir)) != NULL)
        if (epoch_of(entry->d_name, &old) && old < epoch)
            remove_alone(folder, old);
    if (dir != NULL)
        closedir(dir);
}

/* ---- those that a restart does not need ---- */

/* Behind what is in the pack so far; one that is damaged is left out: nobody can use it. */
static enum err add_to_pack(const char *folder, uint64_t epoch, char **pack, size_t *bytes)
{
    char *path = NULL, *data = NULL;
    size_t count;
    struct record_entry checked = {0};
    enum err err;
    TRY_OUT(path_of(folder, epoch, &path));
    err = fsio_read(path, FILE_BYTES_MAX, &data, &count);
    if (err == ERR_OK)
        err = read_entry(path, epoch, data, count, &checked);
    if (err == ERR_OK)
        err = mem_grow(pack, *bytes, *bytes + count, 1, "view records");
    if (err == ERR_OK) {
        memcpy(*pack + *bytes, data, count);
        *bytes += count;
    } else if (err == ERR_CORRUPT) {
        log_warn("%s; it is removed, as no restart needs it", err_text());
        err = ERR_OK;
    } else if (err == ERR_NOTFOUND) {
        err = ERR_OK;
    }
out:
    record_entry_free(&checked);
    mem_free(path);
    mem_free(data);
    return err;
}

/* All from `first` on, which begins a pack, into one file. What is in that file already, since a crash came before the
 * others were removed, is the same. */
static enum err pack_one(const char *folder, uint64_t first)
{
    char *pack = NULL, *path = NULL;
    size_t bytes = 0;
    enum err err;
    TRY_OUT(pack_path_of(folder, first, &path));
    for (uint64_t epoch = first; epoch < first + PACK_EPOCHS; epoch++)
        TRY_OUT(add_to_pack(folder, epoch, &pack, &bytes));
    if (access(path, F_OK) != 0)
        TRY_OUT(fsio_replace(path, pack, bytes, 0644));
    for (uint64_t epoch = first; epoch < first + PACK_EPOCHS; epoch++)
        remove_alone(folder, epoch);
out:
    mem_free(pack);
    mem_free(path);
    return err;
}

enum err records_pack(const char *folder, uint64_t before)
{
    uint64_t epoch;
    for (int i = 0; i < PACKS_AT_ONCE && oldest(folder, 0, &epoch); i++) {
        uint64_t first = epoch / PACK_EPOCHS * PACK_EPOCHS;
        if (first + PACK_EPOCHS > before)
            break;
        TRY(pack_one(folder, first));
    }
    return ERR_OK;
}
