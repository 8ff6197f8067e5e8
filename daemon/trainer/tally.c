/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/trainer/tally.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/fsio.h"
#include "common/log.h"
#include "common/mem.h"
#include "outer_opt/plan.h"

/* SAVE_COUNTED: what a killed daemon's status may be short of; a round's results were flushed just before. */
enum { SAVE_EVERY_MS = 60000, SAVE_COUNTED_MS = 1000 };

/* A line of a fragment, and all of a plan's. */
enum { LINE_BYTES = 64, TEXT_BYTES_MAX = 256 + PLAN_FRAGMENTS_MAX * LINE_BYTES };

static const char format[] =
    "diloco tokens 3\nbefore = %" PRIu64 "\nlast = %" PRIu64 "\ncounted = %.1f\nunfinished = %d\n";
static const char scan_format[] = "diloco tokens 3\nbefore = %" SCNu64 "\nlast = %" SCNu64 "\ncounted = %lf\n"
                                  "unfinished = %" SCNu32 "\n";
static const char line_format[] = "noted = %" PRIu32 " %" PRIu64 " %" PRIx64 "\n";
static const char scan_line_format[] = "noted = %" SCNu32 " %" SCNu64 " %" SCNx64 "\n";

static enum err room_for(struct tally *tally, uint32_t fragment)
{
    if (fragment < tally->fragments_count)
        return ERR_OK;
    TRY(mem_grow(&tally->fragments, tally->fragments_count, fragment + 1, sizeof *tally->fragments, "a tally"));
    tally->fragments_count = fragment + 1;
    return ERR_OK;
}

static enum err parse(struct tally *found, const char *text)
{
    struct tally_fragment one;
    uint32_t f, unfinished;
    if (sscanf(text, scan_format, &found->before, &found->last, &found->counted, &unfinished) != 4 ||
        !(found->counted >= 0) || unfinished > 1)
        return ERR_CORRUPT;
    found->unfinished = unfinished == 1;
    for (const char *line = text; (line = strstr(line, "\nnoted = ")) != NULL;) {
        line++;
        if (sscanf(line, scan_line_format, &f, &one.version, &one.shards) != 3 || f >= PLAN_FRAGMENTS_MAX)
            return ERR_CORRUPT;
        TRY(room_for(found, f));
        found->fragments[f] = one;
    }
    return ERR_OK;
}

enum err tally_init(struct tally *tally, const char *folder)
{
    struct tally found = {0};
    char *text;
    size_t bytes;
    *tally = (struct tally){0};
    TRY(mem_printf(&tally->path, "%s/trainer.tokens", folder));
    enum err err = fsio_read(tally->path, TEXT_BYTES_MAX, &text, &bytes);
    if (err == ERR_NOTFOUND)
        return ERR_OK;
    if (err == ERR_OK) {
        err = parse(&found, text);
        mem_free(text);
    }
    found.path = tally->path;
    if (err == ERR_OK) {
        *tally = found;
        return ERR_OK;
    }
    mem_free(found.fragments);
    if (err == ERR_NOMEM)
        return err;
    log_warn("%s: damaged; tokens are counted from 0", tally->path);
    return ERR_OK;
}

/* ---- the file ---- */

struct tally_job {
    struct job job;
    struct tally *tally;
    char *text; /* its own */
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
    *j = (struct tally_job){
        .job = {.work = JOBS_SAVE, .run = run_write, .done = done_write}, .tally = tally, .text = tally->text};
    tally->text = NULL;
    tally->writing = true;
    tally->again = false;
    jobs_submit(tally->jobs, &j->job);
}

static void done_write(struct job *job)
{
    struct tally *tally = ((struct tally_job *)(void *)job)->tally;
    tally->writing = false;
    mem_free(tally->job->text);
    tally->job->text = NULL;
    if (tally->again)
        begin_write(tally);
}

void tally_deinit(struct tally *tally)
{
    /* The job was dropped, or what it has written is old. */
    const char *text = tally->text != NULL ? tally->text : tally->writing ? tally->job->text : NULL;
    if (text != NULL && tally->path != NULL)
        write_text(tally->path, text);
    if (tally->job != NULL)
        mem_free(tally->job->text);
    mem_free(tally->job);
    mem_free(tally->text);
    mem_free(tally->path);
    mem_free(tally->fragments);
    *tally = (struct tally){0};
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
    else
        tally->begun.kept = UINT64_MAX; /* how it began is not known to this daemon, or long ago */
    tally->last = 0;
    tally->begun.there = true;
}

void tally_note(struct tally *tally, uint32_t fragment, uint64_t version, uint64_t shards)
{
    if (fragment >= PLAN_FRAGMENTS_MAX || room_for(tally, fragment) != ERR_OK)
        return;
    struct tally_fragment *one = &tally->fragments[fragment];
    one->shards = one->version == version ? one->shards | shards : shards;
    one->version = version;
}

uint64_t tally_noted(const struct tally *tally, uint32_t fragment, uint64_t version)
{
    if (fragment >= tally->fragments_count || tally->fragments[fragment].version < version)
        return 0;
    return tally->fragments[fragment].version > version ? UINT64_MAX : tally->fragments[fragment].shards;
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

void tally_unfinished(struct tally *tally, bool unfinished, uint64_t tokens)
{
    if (tally->unfinished == unfinished)
        return;
    tally->unfinished = unfinished;
    tally_save(tally, tokens);
}

static char *text_of(const struct tally *tally, uint64_t tokens)
{
    const size_t room = 256 + (size_t)tally->fragments_count * LINE_BYTES;
    char *text;
    if (mem_new(room, 1, "a tally", &text) != ERR_OK)
        return NULL;
    int at = snprintf(text, room, format, tally->before, tally->last + tokens, tally->counted, tally->unfinished);
    for (uint32_t f = 0; f < tally->fragments_count; f++) {
        const struct tally_fragment *one = &tally->fragments[f];
        if (one->version > 0)
            at += snprintf(text + at, room - (size_t)at, line_format, f, one->version, one->shards);
    }
    return text;
}

void tally_save(struct tally *tally, uint64_t tokens)
{
    char *text = text_of(tally, tokens);
    if (text == NULL)
        return;
    mem_free(tally->text);
    tally->text = text;
    if (tally->writing) {
        tally->again = true;
    } else if (tally->jobs != NULL &&
               (tally->job != NULL || mem_new(1, sizeof *tally->job, "a tally", &tally->job) == ERR_OK)) {
        begin_write(tally);
    } else {
        write_text(tally->path, tally->text);
        mem_free(tally->text);
        tally->text = NULL;
    }
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
