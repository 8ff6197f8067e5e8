/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/membership/numbers_file.h"

#include <string.h>

#include "common/bytes.h"
#include "common/digest.h"
#include "common/fsio.h"
#include "common/log.h"
#include "common/mem.h"

/* File "numbers": magic u32 "DLN1", version u32, incarnation u64 of the disk, order u64, word u64, order lost u8, word
 * lost u8; then 32 bytes BLAKE2b over all before. */
#define NUMBERS_MAGIC 0x314e4c44u
enum {
    NUMBERS_VERSION = 1,
    BODY_BYTES = 4 + 4 + 3 * 8 + 2,
    FILE_BYTES = BODY_BYTES + DIGEST_BYTES,
    READ_BYTES_MAX = 4096
};

static enum err path_of(const char *folder, char **path)
{
    return mem_printf(path, "%s/numbers", folder);
}

static bool parse(const char *data, size_t bytes, uint64_t *incarnation, struct said_numbers *out)
{
    struct bytes_reader reader = bytes_reader_init(data, bytes);
    if (bytes != FILE_BYTES)
        return false;
    struct digest digest = digest_of(data, BODY_BYTES);
    if (memcmp(data + BODY_BYTES, digest.byte, DIGEST_BYTES) != 0 || bytes_get_u32(&reader) != NUMBERS_MAGIC ||
        bytes_get_u32(&reader) != NUMBERS_VERSION)
        return false;
    *incarnation = bytes_get_u64(&reader);
    *out = (struct said_numbers){.order = bytes_get_u64(&reader)};
    out->word = bytes_get_u64(&reader);
    out->order_lost = bytes_get_u8(&reader) != 0;
    out->word_lost = bytes_get_u8(&reader) != 0;
    return true;
}

static enum err load(const char *folder, bool *there, bool *damaged, uint64_t *incarnation, struct said_numbers *out)
{
    char *path, *data = NULL;
    size_t bytes;
    TRY(path_of(folder, &path));
    enum err err = fsio_read(path, READ_BYTES_MAX, &data, &bytes);
    *there = err == ERR_OK && parse(data, bytes, incarnation, out);
    *damaged = !*there && err == ERR_OK;
    if (*damaged)
        log_error("%s is damaged: orders and words of this island go on with higher numbers", path);
    mem_free(path);
    mem_free(data);
    return err == ERR_NOTFOUND ? ERR_OK : err;
}

enum err numbers_file_open(const char *folder, const struct voting_disk *disk, struct said_numbers *out)
{
    bool there, damaged;
    uint64_t incarnation = 0;
    *out = (struct said_numbers){0};
    TRY(load(folder, &there, &damaged, &incarnation, out));
    bool lost = damaged || (there ? incarnation != disk->incarnation : disk->doubt == VOTE_DOUBT);
    if (!lost)
        return ERR_OK;
    out->order_lost = out->word_lost = true;
    return numbers_file_save(folder, disk->incarnation, out);
}

enum err numbers_file_save(const char *folder, uint64_t incarnation, const struct said_numbers *numbers)
{
    uint8_t data[FILE_BYTES];
    char *path;
    struct bytes_writer writer = bytes_writer_init(data, sizeof data);
    bytes_put_u32(&writer, NUMBERS_MAGIC);
    bytes_put_u32(&writer, NUMBERS_VERSION);
    bytes_put_u64(&writer, incarnation);
    bytes_put_u64(&writer, numbers->order);
    bytes_put_u64(&writer, numbers->word);
    bytes_put_u8(&writer, numbers->order_lost);
    bytes_put_u8(&writer, numbers->word_lost);
    struct digest digest = digest_of(data, BODY_BYTES);
    bytes_put(&writer, digest.byte, DIGEST_BYTES);
    TRY(path_of(folder, &path));
    enum err err = fsio_replace(path, data, sizeof data, 0600);
    mem_free(path);
    return err;
}
