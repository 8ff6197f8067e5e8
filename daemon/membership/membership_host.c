/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/membership/membership_host.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/env.h"
#include "common/log.h"
#include "common/mem.h"
#include "daemon/membership/membership_disk.h"
#include "daemon/membership/proofs.h"
#include "daemon/membership/records.h"

enum { SAID_MS = 10000 };

struct membership_host {
    struct membership_host_conf conf;
    struct link *link;
    struct membership_disk keep;
    struct membership *membership;
    struct log_limit failed_said;
};

/* ---- the network ---- */

static void send(void *user, uint32_t slot, uint32_t type, const uint8_t *bytes, size_t bytes_count)
{
    struct membership_host *host = user;
    enum err err = link_send(host->link, slot, (enum wire_type)type, bytes, bytes_count, NULL, 0);
    if (err != ERR_OK && err != ERR_AGAIN && err != ERR_CLOSED)
        log_error("cannot talk to island %s of the next epoch: %s", host->conf.view->members[slot].name, err_text());
}

/* ---- the disk ---- */

static void save_vote(void *user, const struct epoch_vote *vote, uint64_t number)
{
    struct membership_host *host = user;
    membership_disk_save(&host->keep, vote, number);
}

static enum err keep_record(void *user, const struct record_entry *entry)
{
    struct membership_host *host = user;
    return membership_disk_decided(&host->keep, entry);
}

static enum err read_record(void *user, uint64_t epoch, struct record_entry *out)
{
    const struct membership_host *host = user;
    return records_read(host->conf.folder, epoch, out);
}

static enum err save_proof(void *user, uint32_t id, const uint8_t *bytes, size_t bytes_count)
{
    const struct membership_host *host = user;
    return proofs_save(host->conf.folder, id, bytes, bytes_count);
}

static enum err load_proof(void *user, uint32_t id, uint8_t **bytes, size_t *bytes_count)
{
    const struct membership_host *host = user;
    return proofs_load(host->conf.folder, id, bytes, bytes_count);
}

static enum err settle(void *user)
{
    const struct membership_host *host = user;
    return vote_settle(host->conf.vote);
}

/* ---- people, and the engine ---- */

static void tell_apart(struct membership_host *host, const struct membership_news *news)
{
    const struct view *view = host->conf.view;
    char text[300];
    (void)membership_apart_text(host->membership, news->member, news->from, text, sizeof text);
    log_warn("%s: %s stands back until that is over", text,
             news->member == view->self ? "this one" : view->members[news->member].name);
}

static void tell(void *user, const struct membership_news *news)
{
    struct membership_host *host = user;
    const char *name = host->conf.view->members[news->member].name;
    switch (news->type) {
    case MEMBERSHIP_DECIDED: event_post(host->conf.events, &(struct event){.type = EVENT_EPOCH}); break;
    case MEMBERSHIP_VOTES:
        log_info("this island votes: its disk is not in doubt");
        event_post(host->conf.events, &(struct event){.type = EVENT_ANNOUNCE});
        break;
    case MEMBERSHIP_WANTS: event_post_sync(host->conf.events, &(struct sync_event){.type = SYNC_EV_TICK}); break;
    case MEMBERSHIP_APART: tell_apart(host, news); break;
    case MEMBERSHIP_DISK_FAILS:
        log_warn("island %s says that its disk keeps nothing: the run goes on without it until it does", name);
        break;
    case MEMBERSHIP_BROKE_WORD:
        log_error("island %s has signed two different results of one part: fragment %" PRIu32 ", version %" PRIu64
                  ". Its disk is older than it knew, or it lies: it is evicted, and stays so until its key is revoked",
                  name, news->fragment, news->version);
        break;
    case MEMBERSHIP_PROOF_LOST:
        log_error("island %s has signed two different results of one part: fragment %" PRIu32 ", version %" PRIu64
                  ". The proof of it could not be kept here, and is shown to nobody later: revoke keeps it out",
                  name, news->fragment, news->version);
        break;
    case MEMBERSHIP_NO_PROOF: log_error("a proof about island %s is none, and not used: %s", name, err_text()); break;
    case MEMBERSHIP_SUSPECT:
        log_warn("two results of one part of island id %" PRIu32 " are shown; one of them stands", news->id);
        break;
    case MEMBERSHIP_FAILED:
        if (log_limit_pass(&host->failed_said, env_mono_ms(), SAID_MS))
            log_error("%s failed, and is tried again: %s", news->text, err_text());
        break;
    }
}

static const struct membership_io calls = {.send = send,
                                           .save_vote = save_vote,
                                           .keep_record = keep_record,
                                           .read_record = read_record,
                                           .save_proof = save_proof,
                                           .load_proof = load_proof,
                                           .settle = settle,
                                           .tell = tell};

/* ---- life ---- */

enum err membership_host_begin(struct membership_host *host, uint64_t now_ms)
{
    membership_disk_void(&host->keep);
    return membership_begin(host->membership, now_ms);
}

enum err membership_host_new(const struct membership_host_conf *conf, struct link *link, struct membership_host **out)
{
    enum err err;
    struct membership_host *host = NULL;
    *out = NULL;
    TRY_OUT(mem_new(1, sizeof *host, "membership", &host));
    host->conf = *conf;
    host->link = link;
    membership_disk_init(&host->keep, conf->jobs, conf->vote, conf->events, conf->folder);
    struct membership_conf membership = {.view = conf->view,
                                         .chain = conf->chain,
                                         .ident = conf->ident,
                                         .disk = vote_disk(conf->vote),
                                         .host = &calls,
                                         .user = host,
                                         .seed = env_random_u64()};
    TRY_OUT(membership_new(&membership, &host->membership));
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
    membership_free(host->membership);
    membership_disk_deinit(&host->keep);
    mem_free(host);
}

struct membership *membership_host_membership(struct membership_host *host)
{
    return host->membership;
}

/* ---- the loop ---- */

void membership_host_tidy(struct membership_host *host, uint64_t before)
{
    membership_disk_pack(&host->keep, before);
}

void membership_host_kept(struct membership_host *host, uint64_t now_ms)
{
    struct record_entry entry;
    if (membership_disk_record(&host->keep, &entry)) {
        membership_kept(host->membership, &entry);
        record_entry_free(&entry);
    }
    uint64_t saved = membership_disk_saved(&host->keep);
    if (saved != 0)
        membership_saved(host->membership, saved, now_ms);
}

void membership_host_tick(struct membership_host *host, const struct bitset *silent, uint64_t now_ms)
{
    membership_disk_tick(&host->keep);
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
