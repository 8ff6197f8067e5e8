/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shard: one file of a corpus, mapped: which tokens it holds, and at which place each of them is.
 *
 * Owns the mapping and what is known of files of tokens: the headers that llm.c writes, files without a header, and
 * how many bytes a token has. A file that cannot be what the run spec says is refused when it is opened, by its name
 * and with the key to set. It knows neither windows nor streams (worker/data.h). One thread calls.
 */
#ifndef WORKER_SHARD_H
#define WORKER_SHARD_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/err.h"

struct shard {
    char *path; /* owned */
    uint8_t *map;
    size_t map_bytes;
    const uint8_t *tokens; /* after the header */
    uint64_t count;        /* tokens */
    unsigned token_bytes;  /* 1, 2 or 4 */
    dev_t device;          /* with `inode`: which file it is, by whatever name */
    ino_t inode;
};

/* `format`: enum runspec_format. ERR_CONF: no such file, empty, cut short, of another format, or one of its first
 * tokens is outside the vocabulary. After a failure, too, shard_close() is the caller's to call; a zeroed one is fine.
 */
ERR_MUST_CHECK enum err shard_open(struct shard *shard, const char *path, int format, int64_t vocab);
void shard_close(struct shard *shard);

/* Its token `at`, below `count`. */
static inline uint32_t shard_token(const struct shard *shard, uint64_t at)
{
    const uint8_t *bytes = shard->tokens + at * shard->token_bytes;
    uint32_t low = bytes[0];
    if (shard->token_bytes == 1)
        return low;
    low |= (uint32_t)bytes[1] << 8;
    return shard->token_bytes == 2 ? low : low | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

#endif
