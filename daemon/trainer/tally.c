/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/trainer/tally.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/fsio.h"
#include "common/log.h"
#include "common/mem.h"

/* SAVE_COUNTED: what a killed daemon's status may be short of; a round's results were flushed just before. */
enum { SAVE_EVERY_MS = 60000, SAVE_COUNTED_MS = 1000 };

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
    char text[TALLY_BYTES];
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

/* ---- the file ---- */

struct tally_job {
    struct job job;
    struct tally *tally;
    char text[TALLY_BYTES];
};

/* That it fails the state folder's other files say, too. */
static void write_text(const char *path, const char *text)
{
    if (fsio_replace(path, text, strlen(text), 0644) != ERR_OK)
        log_debug("%s", err_text());
}

static enum err run_write(struct job *job, struct jobs_scratch *scratch)
{
    const struct tally_job *j = (const struct tally_job *)(const void *)job;
    (void)scratch;
    write_text(j->tally->path, j->text);
    return ERR_OK;
}

static void done_write(struct job *job);

static void begin_write(struct tally *tally)
{
    struct tally_job *j = tally->job;
    *j = (struct tally_job){.job = {.work = JOBS_SAVE, .run = run_write, .done = done_write}, .tally = tally};
    memcpy(j->text, tally->text, sizeof j->text);
    tally->writing = true;
    tally->again = false;
    jobs_submit(tally->jobs, &j->job);
}

static void done_write(struct job *job)
{
    struct tally *tally = ((struct tally_job *)(void *)job)->tally;
    tally->writing = false;
    if (tally->again)
        begin_write(tally);
}

void tally_deinit(struct tally *tally)
{
    if (tally->writing && tally->path != NULL) /* the job was dropped, or what it has written is old */
        write_text(tally->path, tally->text);
    mem_free(tally->job);
    mem_free(tally->path);
    tally->path = NULL;
    tally->job = NULL;
}

/* ---- counting ---- */

void tally_begin(struct tally *tally, uint64_t kept)
{
    tally->begun.there = true;
    tally->begun.idle = false;
    tally->begun.kept = kept;
    tally->begun.before = tally->before;
    tally->begun.last = tally->last;
    tally->before += tally->last > kept ? tally->last - kept : 0;
    tally->last = 0;
}

void tally_end(struct tally *tally, uint64_t tokens)
{
    if (!tally->begun.there)
        return;
    tally->begun.idle = tokens == tally->begun.kept;
    tally->before = tally->begun.idle ? tally->begun.before : tally->before;
    tally->last = tally->begun.idle ? tally->begun.last : tokens;
    tally->begun.there = false;
}

void tally_resume(struct tally *tally)
{
    if (tally->begun.idle)
        tally_begin(tally, tally->begun.kept);
    tally->last = 0;
    tally->begun.there = true;
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
    snprintf(tally->text, sizeof tally->text, format, tally->before, tally->last + tokens, tally->counted);
    if (tally->writing)
        tally->again = true;
    else if (tally->jobs != NULL &&
             (tally->job != NULL || mem_new(1, sizeof *tally->job, "a tally", &tally->job) == ERR_OK))
        begin_write(tally);
    else
        write_text(tally->path, tally->text);
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
