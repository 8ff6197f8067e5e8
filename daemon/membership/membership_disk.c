/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/membership/membership_disk.h"

#include <stdio.h>
#include <string.h>

#include "common/env.h"
#include "common/mem.h"

enum { SAID_MS = 10000 };

void membership_disk_init(struct membership_disk *keep, struct jobs *jobs, struct vote *vote, struct events *events,
                          const char *folder)
{
    *keep = (struct membership_disk){.jobs = jobs, .vote = vote, .events = events, .folder = folder};
}

void membership_disk_deinit(struct membership_disk *keep)
{
    vote_file_deinit(&keep->writing.file);
    record_entry_free(&keep->decided.entry);
}

/* Remembered for status until it succeeds. */
static void failed(struct membership_disk *keep, const char *what, const char *text)
{
    snprintf(keep->unkept, sizeof keep->unkept, "%s", text);
    if (log_limit_pass(&keep->failed_said, env_mono_ms(), SAID_MS))
        log_error("%s: %s", what, text);
}

static void kept(struct membership_disk *keep)
{
    keep->unkept[0] = '\0';
    event_post(keep->events, &(struct event){.type = EVENT_KEPT});
}

/* ---- votes ---- */

static enum err run_vote(struct job *job, struct jobs_scratch *scratch)
{
    const struct membership_disk_vote *j = (const struct membership_disk_vote *)(const void *)job;
    (void)scratch;
    return vote_write(j->keep->vote, &j->file);
}

static void write_vote(struct membership_disk *keep);

static void done_vote(struct job *job)
{
    struct membership_disk_vote *j = (struct membership_disk_vote *)(void *)job;
    struct membership_disk *keep = j->keep;
    uint64_t number = j->number;
    bool newer = keep->unsaved != 0;
    vote_file_deinit(&j->file);
    j->number = 0;
    if (job->err == ERR_OK) {
        keep->saved = number;
        kept(keep);
    } else {
        failed(keep, "a vote is not given, since it cannot be made durable", job->text);
        keep->unsaved = newer ? keep->unsaved : number;
    }
    if (newer)
        write_vote(keep);
}

static void write_vote(struct membership_disk *keep)
{
    struct membership_disk_vote *j = &keep->writing;
    if (j->number != 0 || keep->unsaved == 0)
        return;
    if (vote_pack(keep->vote, &j->file) != ERR_OK) {
        failed(keep, "a vote is not given", err_text());
        return;
    }
    j->job = (struct job){.work = JOBS_VOTE, .run = run_vote, .done = done_vote};
    j->keep = keep;
    j->number = keep->unsaved;
    keep->unsaved = 0;
    jobs_submit(keep->jobs, &j->job);
}

void membership_disk_save(struct membership_disk *keep, const struct epoch_vote *vote, uint64_t number)
{
    if (vote_take(keep->vote, vote) != ERR_OK) { /* as if what asked for it were lost: it is asked again */
        failed(keep, "a vote is not given", err_text());
        return;
    }
    keep->unsaved = number;
    write_vote(keep);
}

/* ---- records ---- */

static enum err run_record(struct job *job, struct jobs_scratch *scratch)
{
    const struct membership_disk_record *j = (const struct membership_disk_record *)(const void *)job;
    (void)scratch;
    return records_save(j->keep->folder, j->epoch, &j->entry);
}

static void done_record(struct job *job)
{
    struct membership_disk_record *j = (struct membership_disk_record *)(void *)job;
    j->writing = false;
    j->durable = job->err == ERR_OK;
    if (j->durable)
        kept(j->keep);
    else
        failed(j->keep, "a decided record cannot be kept", job->text);
}

static void write_record(struct membership_disk *keep)
{
    struct membership_disk_record *j = &keep->decided;
    if (j->entry.bytes == NULL || j->writing || j->durable)
        return;
    j->job = (struct job){.work = JOBS_VOTE, .run = run_record, .done = done_record};
    j->keep = keep;
    j->writing = true;
    jobs_submit(keep->jobs, &j->job);
}

enum err membership_disk_decided(struct membership_disk *keep, const struct record_entry *entry)
{
    struct membership_disk_record *j = &keep->decided;
    struct record record;
    if (j->entry.bytes != NULL) /* net/membership/epoch decides an epoch once: it is that one */
        return ERR_OK;
    TRY(record_unpack(entry->bytes, entry->bytes_count, &record));
    j->epoch = record.epoch;
    record_deinit(&record);
    TRY(record_entry_copy(entry, &j->entry));
    write_record(keep);
    return ERR_OK;
}

/* ---- old records ---- */

static enum err run_pack(struct job *job, struct jobs_scratch *scratch)
{
    const struct membership_disk_pack *j = (const struct membership_disk_pack *)(const void *)job;
    (void)scratch;
    return records_pack(j->folder, j->before);
}

static void done_pack(struct job *job)
{
    ((struct membership_disk_pack *)(void *)job)->busy = false;
    if (job->err != ERR_OK)
        log_warn("old view records stay in files of their own: %s", job->text);
}

void membership_disk_pack(struct membership_disk *keep, uint64_t before)
{
    struct membership_disk_pack *j = &keep->pack;
    if (j->busy || before == 0)
        return;
    *j = (struct membership_disk_pack){.job = {.work = JOBS_VOTE, .run = run_pack, .done = done_pack},
                                       .folder = keep->folder,
                                       .before = before,
                                       .busy = true};
    jobs_submit(keep->jobs, &j->job);
}

/* ---- votes and records ---- */

void membership_disk_tick(struct membership_disk *keep)
{
    write_vote(keep);
    write_record(keep);
}

/* A record that is decided stays so: only one that has begun is not needed any more, and that was taken from here. */
void membership_disk_void(struct membership_disk *keep)
{
    keep->saved = keep->unsaved = 0;
}

uint64_t membership_disk_saved(struct membership_disk *keep)
{
    uint64_t saved = keep->saved;
    keep->saved = 0;
    return saved;
}

bool membership_disk_record(struct membership_disk *keep, struct record_entry *entry)
{
    struct membership_disk_record *j = &keep->decided;
    if (!j->durable)
        return false;
    *entry = j->entry;
    j->entry = (struct record_entry){0};
    j->durable = false;
    return true;
}
