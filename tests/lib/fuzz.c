/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/env.h"
#include "common/fsio.h"
#include "common/mem.h"

/* A few changes of the kinds that break parsers: bits, bytes, extreme numbers, cuts, doubled pieces. */
static size_t mutate(struct env_rng *rng, uint8_t *data, size_t bytes, size_t room)
{
    static const uint64_t extremes[] = {0, 1, 0x7f, 0x80, 0xff, 0x7fffffff, 0x80000000, 0xffffffff, UINT64_MAX};
    unsigned changes = 1 + (unsigned)env_rng_below(rng, 6);
    while (changes-- > 0 && bytes > 0) {
        size_t at = (size_t)env_rng_below(rng, bytes);
        size_t width = (size_t)1 << env_rng_below(rng, 4);
        uint64_t kind = env_rng_below(rng, 16);
        if (kind < 5) {
            data[at] ^= (uint8_t)(1u << env_rng_below(rng, 8));
        } else if (kind < 9) {
            data[at] = (uint8_t)env_rng_u64(rng);
        } else if (kind < 13) {
            memcpy(data + at, &extremes[env_rng_below(rng, 9)], bytes - at < width ? bytes - at : width);
        } else if (kind == 13) {
            bytes = at;
        } else {
            size_t piece = (size_t)env_rng_below(rng, bytes - at) + 1;
            if (bytes + piece <= room) {
                memmove(data + at + piece, data + at, bytes - at);
                bytes += piece;
            }
        }
    }
    return bytes;
}

static void replay_file(const char *path, fuzz_target *target, unsigned mutations, struct env_rng *rng)
{
    char *data;
    size_t bytes;
    if (fsio_read(path, 1 << 20, &data, &bytes) != ERR_OK)
        return;
    target((const uint8_t *)data, bytes);
    size_t room = 2 * bytes + 64;
    for (unsigned i = 0; i < mutations; i++) {
        /* Exactly as large as the input, so that a sanitizer sees the first byte read behind it. */
        uint8_t *scratch = malloc(room);
        memcpy(scratch, data, bytes);
        size_t length = mutate(rng, scratch, bytes, room);
        uint8_t *exact = malloc(length > 0 ? length : 1);
        memcpy(exact, scratch, length);
        target(exact, length);
        free(exact);
        free(scratch);
    }
    mem_free(data);
}

int fuzz_replay(const char *name, fuzz_target *target, unsigned mutations)
{
    char folder[256], path[600];
    unsigned files = 0;
    struct env_rng rng = env_rng_init(20260101, 0);
    snprintf(folder, sizeof folder, "tests/fuzz/corpus/%s", name);
    DIR *dir = opendir(folder);
    for (struct dirent *item; dir != NULL && (item = readdir(dir)) != NULL;) {
        if (item->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, item->d_name);
        replay_file(path, target, mutations, &rng);
        files++;
    }
    if (dir != NULL)
        closedir(dir);
    printf("%s: %u inputs and %u changed copies of each\n", name, files, mutations);
    if (files == 0)
        printf("no corpus in %s\n", folder);
    return files > 0 ? 0 : 1;
}
