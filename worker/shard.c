/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/shard.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/bytes.h"
#include "common/mem.h"
#include "common/runspec.h"

enum { HEADER_BYTES = 1024 };
/* Tokens at the beginning that are looked at: enough to know a wrong width or vocabulary, and read in no time. */
enum { PROBE_TOKENS = 4096, PROBE_TOKENS_MIN = 64 };
/* Above the low half of a 32-bit token there is less than this: vocabularies end at 2^20. */
enum { HIGH_HALF_END = 16 };

/* As llm.c writes them. A magic number stands for a tokenizer, too. */
static const struct header {
    uint32_t magic, version;
    unsigned token_bytes;
} headers[] = {
    {20240520, 1, 2}, /* GPT-2's */
    {20240801, 7, 4}, /* Llama 3's */
};
enum { HEADERS = sizeof headers / sizeof headers[0] };

static const struct header *header_of(uint32_t magic)
{
    for (size_t i = 0; i < HEADERS; i++)
        if (headers[i].magic == magic)
            return &headers[i];
    return NULL;
}

static enum err map_file(struct shard *shard)
{
    struct stat status;
    int fd = open(shard->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set_errno(ERR_IO, "data file %s: cannot open", shard->path);
    enum err err = ERR_OK;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
        err = err_set(ERR_CONF, "data file %s: not a regular file", shard->path);
    else if (status.st_size == 0)
        err = err_set(ERR_CONF, "data file %s: empty; give a file with text or tokens", shard->path);
    if (err == ERR_OK) {
        void *map = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (map == MAP_FAILED) {
            err = err_set_errno(ERR_IO, "data file %s: cannot map", shard->path);
        } else {
            shard->map = map;
            shard->map_bytes = (size_t)status.st_size;
            shard->device = status.st_dev;
            shard->inode = status.st_ino;
        }
    }
    close(fd);
    return err;
}

static enum err read_header(struct shard *shard)
{
    struct bytes_reader reader = bytes_reader_init(shard->map, shard->map_bytes);
    uint32_t magic = bytes_get_u32(&reader);
    uint32_t version = bytes_get_u32(&reader);
    uint32_t count = bytes_get_u32(&reader);
    const struct header *header = header_of(magic);
    if (header == NULL)
        return err_set(ERR_CONF,
                       "data file %s: no token shard (it starts with %" PRIu32 ", not %" PRIu32 " or %" PRIu32
                       "); set [data] format in the run spec: bytes for text, uint16 or uint32 for tokens without a "
                       "header",
                       shard->path, magic, headers[0].magic, headers[1].magic);
    if (version != header->version)
        return err_set(ERR_CONF,
                       "data file %s: token shard %" PRIu32 " of version %" PRIu32 "; this program reads %" PRIu32
                       ": write it anew with llm.c's scripts",
                       shard->path, magic, version, header->version);
    if (count == 0)
        return err_set(ERR_CONF, "data file %s: empty: its header announces no token; take it out", shard->path);
    if (shard->map_bytes < HEADER_BYTES || (shard->map_bytes - HEADER_BYTES) / header->token_bytes < count)
        return err_set(ERR_CONF,
                       "data file %s: cut short: its header announces %" PRIu32 " tokens of %u bytes, and the file has "
                       "%zu bytes in all; copy it again",
                       shard->path, count, header->token_bytes, shard->map_bytes);
    shard->tokens = shard->map + HEADER_BYTES;
    shard->count = count;
    shard->token_bytes = header->token_bytes;
    return ERR_OK;
}

/* Two tokens of 16 bits that are one of 32: every second one then is the high half, which is next to nothing. */
static bool looks_like_halves(const struct shard *shard)
{
    uint64_t looked = shard->count < PROBE_TOKENS ? shard->count : PROBE_TOKENS;
    bool low_is_more = false;
    for (uint64_t i = 0; i + 1 < looked; i += 2) {
        low_is_more = low_is_more || shard_token(shard, i) >= HIGH_HALF_END;
        if (shard_token(shard, i + 1) >= HIGH_HALF_END)
            return false;
    }
    return low_is_more && looked >= PROBE_TOKENS_MIN;
}

/* Files of nothing but tokens do not say what they are: what cannot be meant is refused. */
static enum err take_as_raw(struct shard *shard, int format)
{
    struct bytes_reader reader = bytes_reader_init(shard->map, shard->map_bytes);
    const struct header *header = header_of(bytes_get_u32(&reader));
    shard->token_bytes = format == RUNSPEC_UINT16 ? 2 : 4;
    if (header != NULL && bytes_get_u32(&reader) == header->version)
        return err_set(ERR_CONF,
                       "data file %s: a token shard with a header (%" PRIu32 "); set [data] format = tokens in the run "
                       "spec",
                       shard->path, header->magic);
    if (shard->map_bytes % shard->token_bytes != 0)
        return err_set(ERR_CONF,
                       "data file %s: %zu bytes are no whole number of %u-bit tokens: cut short, or of another [data] "
                       "format",
                       shard->path, shard->map_bytes, 8 * shard->token_bytes);
    shard->count = shard->map_bytes / shard->token_bytes;
    if (shard->token_bytes == 2 && looks_like_halves(shard))
        return err_set(ERR_CONF,
                       "data file %s: these are 32-bit tokens (every second 16 bits are next to nothing); set [data] "
                       "format = uint32 in the run spec",
                       shard->path);
    return ERR_OK;
}

/* Later tokens are looked at when they are used. */
static enum err check_vocabulary(const struct shard *shard, int format, int64_t vocab)
{
    for (uint64_t i = 0; i < shard->count && i < PROBE_TOKENS; i++) {
        uint32_t token = shard_token(shard, i);
        if (token >= vocab)
            return err_set(ERR_CONF,
                           "data file %s: token %" PRIu32 " at place %" PRIu64 " is outside the vocabulary of %" PRId64
                           "; set [model] vocab of the run spec to the tokenizer's size%s",
                           shard->path, token, i, vocab,
                           format == RUNSPEC_UINT32 ? ", or [data] format = uint16 if these are 16-bit tokens" : "");
    }
    return ERR_OK;
}

enum err shard_open(struct shard *shard, const char *path, int format, int64_t vocab)
{
    TRY(mem_strdup(path, &shard->path));
    TRY(map_file(shard));
    shard->tokens = shard->map;
    shard->count = shard->map_bytes;
    shard->token_bytes = 1;
    if (format == RUNSPEC_BYTES)
        return ERR_OK;
    TRY(format == RUNSPEC_TOKENS ? read_header(shard) : take_as_raw(shard, format));
    return check_vocabulary(shard, format, vocab);
}

void shard_close(struct shard *shard)
{
    if (shard->map != NULL)
        munmap(shard->map, shard->map_bytes);
    mem_free(shard->path);
    *shard = (struct shard){0};
}
