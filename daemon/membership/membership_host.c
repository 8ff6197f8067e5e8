/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/membership/membership_host.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/env.h"
#include "common/log.h"
#include "common/mem.h"
#include "daemon/membership/config_store.h"
#include "daemon/membership/numbers_file.h"
#include "net/config/config_orders.h"
#include "net/config/config_proof.h"

enum { SAID_MS = 10000 };

/* ---- what is made durable: this island's votes, and the configurations that were decided ---- */

/*
 * Disks take from a millisecond to seconds over a flush, and the loop waits for none: each kind is one job at a time
 * (JOBS_VOTE). Of votes that come meanwhile only the newest is written next, since it says all that those before it
 * said. What fails is tried again at each tick, since a full disk does not stay full. EVENT_KEPT is posted whenever
 * something has become durable.
 */
struct disk;

struct disk_vote {
    struct job job;
    struct disk *keep;
    struct vote_file file;
    uint64_t number; /* of net/membership/paxos; 0: none is being written */
};

struct disk_config {
    struct job job;
    struct disk *keep;
    uint64_t epoch;
    struct config_entry entry; /* empty: there is none */
    bool writing, durable;
};

struct disk_pack {
    struct job job;
    const char *folder;
    uint64_t before;
    bool busy;
};

struct disk {
    struct jobs *jobs;
    struct vote *vote;
    struct events *events;
    const char *folder;
    struct disk_vote writing;
    uint64_t unsaved; /* number of the newest vote, if it is neither durable nor being written; 0: it is */
    uint64_t saved;   /* number of the newest one that is durable and was not taken; 0: none */
    struct disk_config decided;
    struct disk_pack pack;
    char unkept[256]; /* why something could not be made durable last; "": it could */
    struct log_limit failed_said;
};

static void disk_init(struct disk *keep, struct jobs *jobs, struct vote *vote, struct events *events,
                      const char *folder)
{
    *keep = (struct disk){.jobs = jobs, .vote = vote, .events = events, .folder = folder};
}

/* No job may be at work any more. */
static void disk_deinit(struct disk *keep)
{
    vote_file_deinit(&keep->writing.file);
    config_entry_free(&keep->decided.entry);
}

/* Remembered for status until it succeeds. */
static void failed(struct disk *keep, const char *what, const char *text)
{
    snprintf(keep->unkept, sizeof keep->unkept, "%s", text);
    if (log_limit_pass(&keep->failed_said, env_mono_ms(), SAID_MS))
        log_error("%s: %s", what, text);
}

static void kept(struct disk *keep)
{
    keep->unkept[0] = '\0';
    event_post(keep->events, &(struct event){.type = EVENT_KEPT});
}

/* ---- votes ---- */

static enum err run_vote(struct job *job, struct jobs_scratch *scratch)
{
    const struct disk_vote *j = (const struct disk_vote *)(const void *)job;
    (void)scratch;
    return vote_write(j->keep->vote, &j->file);
}

static void write_vote(struct disk *keep);

static void done_vote(struct job *job)
{
    struct disk_vote *j = (struct disk_vote *)(void *)job;
    struct disk *keep = j->keep;
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

static void write_vote(struct disk *keep)
{
    struct disk_vote *j = &keep->writing;
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

/* The vote is copied. */
static void disk_save(struct disk *keep, const struct paxos_vote *vote, uint64_t number)
{
    if (vote_take(keep->vote, vote) != ERR_OK) { /* as if what asked for it were lost: it is asked again */
        failed(keep, "a vote is not given", err_text());
        return;
    }
    keep->unsaved = number;
    write_vote(keep);
}

/* ---- configurations ---- */

static enum err run_config(struct job *job, struct jobs_scratch *scratch)
{
    const struct disk_config *j = (const struct disk_config *)(const void *)job;
    (void)scratch;
    return config_store_save(j->keep->folder, j->epoch, &j->entry);
}

static void done_config(struct job *job)
{
    struct disk_config *j = (struct disk_config *)(void *)job;
    j->writing = false;
    j->durable = job->err == ERR_OK;
    if (j->durable)
        kept(j->keep);
    else
        failed(j->keep, "a decided configuration cannot be kept", job->text);
}

static void write_config(struct disk *keep)
{
    struct disk_config *j = &keep->decided;
    if (j->entry.bytes == NULL || j->writing || j->durable)
        return;
    j->job = (struct job){.work = JOBS_VOTE, .run = run_config, .done = done_config};
    j->keep = keep;
    j->writing = true;
    jobs_submit(keep->jobs, &j->job);
}

/* The entry is copied. ERR_NOMEM: it is not kept; the others send it when this daemon is started again. */
static enum err disk_decided(struct disk *keep, const struct config_entry *entry)
{
    struct disk_config *j = &keep->decided;
    struct config config;
    if (j->entry.bytes != NULL) /* net/membership/paxos decides an epoch once: it is that one */
        return ERR_OK;
    TRY(config_unpack(entry->bytes, entry->bytes_count, &config));
    j->epoch = config.epoch;
    config_deinit(&config);
    TRY(config_entry_copy(entry, &j->entry));
    write_config(keep);
    return ERR_OK;
}

/* ---- old configurations ---- */

static enum err run_pack(struct job *job, struct jobs_scratch *scratch)
{
    const struct disk_pack *j = (const struct disk_pack *)(const void *)job;
    (void)scratch;
    return config_store_pack(j->folder, j->before);
}

static void done_pack(struct job *job)
{
    ((struct disk_pack *)(void *)job)->busy = false;
    if (job->err != ERR_OK)
        log_warn("old configurations stay in files of their own: %s", job->text);
}

/* Puts the configurations before that epoch into few files; one at a time, else at the next call. */
static void disk_pack(struct disk *keep, uint64_t before)
{
    struct disk_pack *j = &keep->pack;
    if (j->busy || before == 0)
        return;
    *j = (struct disk_pack){.job = {.work = JOBS_VOTE, .run = run_pack, .done = done_pack},
                            .folder = keep->folder,
                            .before = before,
                            .busy = true};
    jobs_submit(keep->jobs, &j->job);
}

/* ---- votes and configurations ---- */

/* What failed is tried again. */
static void disk_tick(struct disk *keep)
{
    write_vote(keep);
    write_config(keep);
}

/* Another configuration has begun, or this one anew: nobody waits any more for what is being written. A configuration
 * that is decided stays so: only one that has begun is not needed any more, and that was taken from here. */
static void disk_void(struct disk *keep)
{
    keep->saved = keep->unsaved = 0;
}

/* The number of the vote that has become durable; 0: nothing is new. */
static uint64_t disk_saved(struct disk *keep)
{
    uint64_t saved = keep->saved;
    keep->saved = 0;
    return saved;
}

/* The configuration that is durable now, which the caller owns. False: there is none. */
static bool disk_config(struct disk *keep, struct config_entry *entry)
{
    struct disk_config *j = &keep->decided;
    if (!j->durable)
        return false;
    *entry = j->entry;
    j->entry = (struct config_entry){0};
    j->durable = false;
    return true;
}

/* ---- the host ---- */

struct membership_host {
    struct membership_host_conf conf;
    struct disk keep;
    struct membership *membership;
    struct dial_server *dial_server;
    struct join_server *join_server;
    bool shut_out; /* most of the others that vote do not know our key */
    bool planned;  /* the run's plan is known here */
    struct log_limit failed_said;
    struct quota lines[VIEW_SLOTS_MAX]; /* in the log: that a member's disk fails, that it stands
                                         * back, or of its two results */
};

/* ---- the network ---- */

static void send(void *user, uint32_t slot, uint32_t type, const uint8_t *bytes, size_t bytes_count)
{
    struct membership_host *host = user;
    enum err err = link_send(host->conf.link, slot, (enum wire_type)type, bytes, bytes_count, NULL, 0);
    if (err != ERR_OK && err != ERR_AGAIN && err != ERR_CLOSED)
        log_error("cannot talk to island %s of the next epoch: %s", host->conf.view->members[slot].as.name, err_text());
}

/* ---- the disk ---- */

static void save_vote(void *user, const struct paxos_vote *vote, uint64_t number)
{
    struct membership_host *host = user;
    disk_save(&host->keep, vote, number);
}

static enum err keep_config(void *user, const struct config_entry *entry)
{
    struct membership_host *host = user;
    return disk_decided(&host->keep, entry);
}

static enum err read_config(void *user, uint64_t epoch, struct config_entry *out)
{
    const struct membership_host *host = user;
    return config_store_read(host->conf.folder, epoch, out);
}

static enum err save_evidence(void *user, uint32_t id, const uint8_t *bytes, size_t bytes_count)
{
    const struct membership_host *host = user;
    return config_store_save_evidence(host->conf.folder, id, bytes, bytes_count);
}

static enum err load_evidence(void *user, uint32_t id, uint8_t **bytes, size_t *bytes_count)
{
    const struct membership_host *host = user;
    return config_store_load_evidence(host->conf.folder, id, bytes, bytes_count);
}

static enum err save_numbers(void *user, const struct said_numbers *numbers)
{
    const struct membership_host *host = user;
    return numbers_file_save(host->conf.folder, vote_incarnation(host->conf.vote), numbers);
}

static enum err settle(void *user, uint64_t named, uint64_t trusted_epoch)
{
    const struct membership_host *host = user;
    return vote_settle(host->conf.vote, named, trusted_epoch);
}

static void distrust(void *user)
{
    const struct membership_host *host = user;
    vote_distrust(host->conf.vote);
    log_warn("this disk is in doubt: %s. It has no vote until the others know it again", vote_why(host->conf.vote));
}

/* ---- people, and the engine ---- */

static void tell_partitioned(struct membership_host *host, const struct membership_news *news)
{
    const struct view *view = host->conf.view;
    char text[300];
    if (!log_line_of_one(&host->lines[news->member], env_mono_ms()))
        return;
    (void)membership_partitioned_text(host->membership, news->member, news->from, text, sizeof text);
    log_warn("%s: %s stands back until that is over", text,
             news->member == view->self ? "this one" : view->members[news->member].as.name);
}

/* NULL: nobody of that id. */
static const char *name_by_id(const struct membership_host *host, uint32_t id)
{
    uint32_t slot = view_slot(host->conf.view, id);
    return slot != VIEW_NOBODY ? host->conf.view->members[slot].as.name : NULL;
}

/* With each draft, while one is composed. */
static void tell_suspect(struct membership_host *host, uint32_t id)
{
    uint32_t slot = view_slot(host->conf.view, id);
    if (slot != VIEW_NOBODY && log_line_of_one(&host->lines[slot], env_mono_ms()))
        log_warn("two results of one part of island %s are shown; one of them stands", name_by_id(host, id));
}

/* The log of every island has who asked for what. */
static void tell_ordered(const struct membership_news *news)
{
    char text[200];
    if (news->order->kind == ORDER_VOID) {
        log_info("decided: order %" PRIu64 " of %s is withdrawn", news->order->number,
                 config_name_of(news->config, news->order->signer));
        return;
    }
    order_text(news->order, config_name_of(news->config, news->order->subject), text, sizeof text);
    log_info("decided: %s, by order %" PRIu64 " of %s", text, news->order->number,
             config_name_of(news->config, news->order->signer));
}

static void tell(void *user, const struct membership_news *news)
{
    struct membership_host *host = user;
    char text[200];
    const char *name = host->conf.view->members[news->member].as.name;
    switch (news->type) {
    case MEMBERSHIP_DECIDED: event_post(host->conf.events, &(struct event){.type = EVENT_EPOCH}); break;
    case MEMBERSHIP_VOTES:
        log_info("this island votes: its disk is not in doubt");
        event_post(host->conf.events, &(struct event){.type = EVENT_ANNOUNCE});
        break;
    case MEMBERSHIP_WANTS: event_post_sync(host->conf.events, &(struct sync_event){.type = SYNC_EV_TICK}); break;
    case MEMBERSHIP_PARTITIONED: tell_partitioned(host, news); break;
    case MEMBERSHIP_DISK_FAILS:
        if (log_line_of_one(&host->lines[news->member], env_mono_ms()))
            log_warn("island %s says that its disk keeps nothing: the run goes on without it until it does", name);
        break;
    case MEMBERSHIP_BROKE_WORD:
        log_error("island %s has signed two different results of one part: fragment %" PRIu32 ", version %" PRIu64
                  ". Its disk is older than it knew, or it lies: it is evicted, and stays so until its key is revoked",
                  name, news->fragment, news->version);
        break;
    case MEMBERSHIP_EVIDENCE_LOST:
        log_error("island %s has signed two different results of one part: fragment %" PRIu32 ", version %" PRIu64
                  ". The evidence of it could not be kept here, and is shown to nobody later: revoke keeps it out",
                  name, news->fragment, news->version);
        break;
    case MEMBERSHIP_NO_EVIDENCE:
        log_error("evidence about island %s is none, and not used: %s", name, err_text());
        break;
    case MEMBERSHIP_ORDERED: tell_ordered(news); break;
    case MEMBERSHIP_ORDER_ENDED:
        order_text(news->order, name_by_id(host, news->order->subject), text, sizeof text);
        log_warn("to %s (order %" PRIu64 " of this island) is asked no more: %s", text, news->order->number,
                 news->text);
        break;
    case MEMBERSHIP_ORDER_REFUSED:
        order_text(news->order, name_by_id(host, news->order->subject), text, sizeof text);
        log_warn("island %s sends an order that is refused, to %s: %s", name, text, news->text);
        break;
    case MEMBERSHIP_CONFIG_REFUSED:
        log_warn("island %s proposes a configuration that may not follow ours, and is refused: %s", name, news->text);
        break;
    case MEMBERSHIP_SUSPECT: tell_suspect(host, news->id); break;
    case MEMBERSHIP_FAILED:
        if (log_limit_pass(&host->failed_said, env_mono_ms(), SAID_MS))
            log_error("%s failed, and is tried again: %s", news->text, err_text());
        break;
    }
}

static const struct membership_io calls = {.send = send,
                                           .save_vote = save_vote,
                                           .keep_config = keep_config,
                                           .read_config = read_config,
                                           .save_evidence = save_evidence,
                                           .load_evidence = load_evidence,
                                           .save_numbers = save_numbers,
                                           .settle = settle,
                                           .distrust = distrust,
                                           .tell = tell};

/* ---- the door ---- */

static enum err join(void *user, const struct wire_join *join, bool contributor)
{
    struct membership_host *host = user;
    return membership_admit(host->membership, join, contributor);
}

static void shut_out(void *user, const struct digest *invitation)
{
    struct membership_host *host = user;
    membership_shut_out(host->membership, invitation);
}

static enum err may_invite(void *user)
{
    const struct membership_host *host = user;
    const struct view *view = host->conf.view;
    char operators[256] = "";
    if (view->self != VIEW_NOBODY && view->members[view->self].as.operates)
        return ERR_OK;
    for (uint32_t i = 0; i < view->count; i++)
        if (view->members[i].used && view->members[i].as.operates)
            snprintf(operators + strlen(operators), sizeof operators - strlen(operators), "%s%s",
                     operators[0] != '\0' ? ", " : "", view->members[i].as.name);
    return err_set(ERR_STATE, "this island is no operator of the run, so its tokens would let nobody in: invite at %s",
                   operators[0] != '\0' ? operators : "one that is (there is none now)");
}

/* Before a trainer has ever run nobody knows the model, so no configuration can be made that lets anyone in. */
static enum err look_at_trainer(const struct membership_host *host)
{
    enum trainer_phase phase = trainer_phase(host->conf.trainer);
    struct trainer_info trainer = trainer_info(host->conf.trainer);
    if (host->planned || (phase != TRAINER_RESTARTING && phase != TRAINER_ENDED))
        return ERR_OK;
    return err_set(ERR_STATE,
                   "nobody can come in before a trainer has run there, and its own does not: %.120s; once it does, use "
                   "this token again",
                   trainer.process_note);
}

static enum err is_open(void *user, bool begun)
{
    const struct membership_host *host = user;
    if (host->shut_out)
        return err_set(ERR_STATE, "the island that gave out this token was probably revoked itself: the others do not "
                                  "know its key; ask another island for a token");
    return begun ? ERR_OK : look_at_trainer(host);
}

static enum err open_join_server(struct membership_host *host)
{
    const struct membership_host_conf *from = &host->conf;
    struct dial_server_conf dials = {.jobs = from->jobs, .link = from->link, .view = from->view};
    TRY(dial_server_new(&dials, &host->dial_server));
    struct join_server_conf conf = {.folder = from->folder,
                                    .spec = from->spec,
                                    .ident = &from->keyring->ident,
                                    .config_log = from->config_log,
                                    .link = from->link,
                                    .dials = host->dial_server,
                                    .join = join,
                                    .shut_out = shut_out,
                                    .may_invite = may_invite,
                                    .open = is_open,
                                    .user = host};
    return join_server_new(&conf, from->start_ms, env_wall_ms() / 1000, &host->join_server);
}

/* ---- life ---- */

enum err membership_host_begin(struct membership_host *host, uint64_t now_ms)
{
    disk_void(&host->keep);
    TRY(membership_begin(host->membership, now_ms));
    join_server_begin(host->join_server);
    return ERR_OK;
}

enum err membership_host_new(const struct membership_host_conf *conf, struct membership_host **out)
{
    enum err err;
    struct membership_host *host = NULL;
    *out = NULL;
    TRY_OUT(mem_new(1, sizeof *host, "membership", &host));
    host->conf = *conf;
    disk_init(&host->keep, conf->jobs, conf->vote, conf->events, conf->folder);
    struct membership_conf membership = {.view = conf->view,
                                         .config_log = conf->config_log,
                                         .ident = &conf->keyring->ident,
                                         .next = &conf->keyring->asked,
                                         .disk = vote_disk(conf->vote),
                                         .host = &calls,
                                         .user = host,
                                         .seed = env_random_u64()};
    TRY_OUT(numbers_file_open(conf->folder, membership.disk, &membership.numbers));
    TRY_OUT(membership_new(&membership, &host->membership));
    TRY_OUT(open_join_server(host));
    TRY_OUT(membership_host_begin(host, conf->start_ms));
out:
    if (err != ERR_OK)
        membership_host_free(host);
    else
        *out = host;
    return err;
}

void membership_host_free(struct membership_host *host)
{
    if (host == NULL)
        return;
    join_server_free(host->join_server);
    dial_server_free(host->dial_server);
    membership_free(host->membership);
    disk_deinit(&host->keep);
    mem_free(host);
}

struct membership *membership_host_membership(struct membership_host *host)
{
    return host->membership;
}

struct join_server *membership_host_join_server(struct membership_host *host)
{
    return host->join_server;
}

struct dial_server *membership_host_dial_server(struct membership_host *host)
{
    return host->dial_server;
}

enum err membership_host_plan_known(struct membership_host *host, struct sync *sync, uint32_t fragments,
                                    const uint32_t *shards_counts)
{
    TRY(membership_plan_known(host->membership, sync, fragments, shards_counts));
    host->planned = true;
    return ERR_OK;
}

/* ---- the loop ---- */

void membership_host_tidy(struct membership_host *host, uint64_t before)
{
    disk_pack(&host->keep, before);
}

void membership_host_kept(struct membership_host *host, uint64_t now_ms)
{
    struct config_entry entry;
    if (disk_config(&host->keep, &entry)) {
        membership_kept(host->membership, &entry);
        config_entry_free(&entry);
    }
    uint64_t saved = disk_saved(&host->keep);
    if (saved != 0)
        membership_saved(host->membership, saved, now_ms);
}

void membership_host_look(struct membership_host *host, uint64_t now_ms)
{
    join_server_look(host->join_server, now_ms, env_wall_ms() / 1000);
}

void membership_host_tick(struct membership_host *host, const struct bitset *silent, bool shut_out, uint64_t now_ms)
{
    host->shut_out = shut_out;
    join_server_tick(host->join_server, now_ms, env_wall_ms() / 1000);
    dial_server_tick(host->dial_server, silent, now_ms);
    disk_tick(&host->keep);
    membership_tick(host->membership, silent, now_ms);
}

/* ---- looking in ---- */

const char *membership_host_unkept(const struct membership_host *host)
{
    return host->keep.unkept;
}

void membership_host_waits(const struct membership_host *host, char *text, size_t text_bytes)
{
    membership_waits(host->membership, text, text_bytes);
    if (text[0] != '\0' && host->keep.unkept[0] != '\0')
        snprintf(text, text_bytes, "this island's disk: %s", host->keep.unkept);
}
