/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/trainer/tally.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include "common/fsio.h"
#include "common/log.h"
#include "common/mem.h"

/* SAVE_COUNTED: what a killed daemon's status may be short of; a round's results were flushed just before. */
enum { SAVE_EVERY_MS = 60000, SAVE_COUNTED_MS = 1000, FILE_BYTES_MAX = 256 };

static const char format[] = "diloco tokens 1\nbefore = %" PRIu64 "\nlast = %" PRIu64 "\ncounted = %.1f\n";
static const char scan_format[] = "diloco tokens 1\nbefore = %" SCNu64 "\nlast = %" SCNu64 "\ncounted = %lf\n";

/* False: there is none. What there is may be anything; its beginning is looked at. */
static bool read_file(const char *path, char *text, size_t text_bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, text, text_bytes - 1) : -1;
    if (fd >= 0)
        close(fd);
    text[got > 0 ? got : 0] = '\0';
    return fd >= 0;
}

enum err tally_init(struct tally *tally, const char *folder)
{
    struct tally found = {0};
    char text[FILE_BYTES_MAX];
    *tally = (struct tally){0};
    TRY(mem_printf(&tally->path, "%s/trainer.tokens", folder));
    if (!read_file(tally->path, text, sizeof text))
        return ERR_OK;
    if (sscanf(text, scan_format, &found.before, &found.last, &found.counted) != 3 || !(found.counted >= 0)) {
        log_warn("%s: damaged; tokens are counted from 0", tally->path);
        return ERR_OK;
    }
    tally->before = found.before;
    tally->last = found.last;
    tally->counted = found.counted;
    return ERR_OK;
}

void tally_deinit(struct tally *tally)
{
    mem_free(tally->path);
    tally->path = NULL;
}

void tally_begin(struct tally *tally, uint64_t kept)
{
    tally->before += tally->last > kept ? tally->last - kept : 0;
    tally->last = 0;
}

static const uint64_t tokens_most = 9000000000000000000;

uint64_t tally_trained(const struct tally *tally, uint64_t tokens)
{
    const uint64_t parts[] = {tally->before, tally->last, tokens};
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        sum = parts[i] < tokens_most - sum ? sum + parts[i] : tokens_most;
    return sum;
}

uint64_t tally_counted(const struct tally *tally)
{
    return tally->counted < (double)tokens_most ? (uint64_t)(tally->counted + 0.5) : tokens_most;
}

void tally_save(struct tally *tally, uint64_t tokens)
{
    char text[FILE_BYTES_MAX];
    int bytes = snprintf(text, sizeof text, format, tally->before, tally->last + tokens, tally->counted);
    if (fsio_replace(tally->path, text, (size_t)bytes, 0644) != ERR_OK)
        log_debug("%s", err_text()); /* the state folder's other files say so, too */
}

void tally_tick(struct tally *tally, uint64_t tokens, uint64_t now_ms)
{
    if (tally->saved_ms == 0) {
        tally->saved_ms = now_ms;
        tally->saved = tally->counted;
    }
    bool counted = tally->counted > tally->saved;
    if (now_ms < tally->saved_ms + (counted ? SAVE_COUNTED_MS : SAVE_EVERY_MS))
        return;
    tally->saved_ms = now_ms;
    tally->saved = tally->counted;
    tally_save(tally, tokens);
}
