/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/council.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/env.h"
#include "common/log.h"
#include "common/mem.h"
#include "daemon/peers/council_keep.h"
#include "daemon/state/proofs.h"
#include "daemon/state/records.h"

enum { SAID_MS = 10000 };

struct council {
    struct peers_conf conf;
    struct link *link;
    struct council_keep keep;
    struct membership *membership;
    struct log_limit failed_said;
};

/* ---- the network ---- */

static void send(void *user, uint32_t slot, uint32_t type, const uint8_t *bytes, size_t bytes_count)
{
    struct council *council = user;
    enum err err = link_send(council->link, slot, (enum wire_type)type, bytes, bytes_count, NULL, 0);
    if (err != ERR_OK && err != ERR_AGAIN && err != ERR_CLOSED)
        log_error("cannot talk to island %s of the next epoch: %s", council->conf.view->members[slot].name, err_text());
}

/* ---- the disk ---- */

static void save_vote(void *user, const struct epoch_vote *vote, uint64_t number)
{
    struct council *council = user;
    council_keep_save(&council->keep, vote, number);
}

static enum err keep_record(void *user, const struct record_entry *entry)
{
    struct council *council = user;
    return council_keep_decided(&council->keep, entry);
}

static enum err read_record(void *user, uint64_t epoch, struct record_entry *out)
{
    const struct council *council = user;
    return records_read(council->conf.conf->state_folder, epoch, out);
}

static enum err save_proof(void *user, uint32_t id, const uint8_t *bytes, size_t bytes_count)
{
    const struct council *council = user;
    return proofs_save(council->conf.conf->state_folder, id, bytes, bytes_count);
}

static enum err load_proof(void *user, uint32_t id, uint8_t **bytes, size_t *bytes_count)
{
    const struct council *council = user;
    return proofs_load(council->conf.conf->state_folder, id, bytes, bytes_count);
}

static enum err settle(void *user)
{
    const struct council *council = user;
    return vote_settle(council->conf.vote);
}

/* ---- people, and the engine ---- */

static void tell_apart(struct council *council, const struct membership_news *news)
{
    const struct view *view = council->conf.view;
    char text[300];
    (void)membership_apart_text(council->membership, news->member, news->from, text, sizeof text);
    log_warn("%s: %s stands back until that is over", text,
             news->member == view->self ? "this one" : view->members[news->member].name);
}

static void tell(void *user, const struct membership_news *news)
{
    struct council *council = user;
    const char *name = council->conf.view->members[news->member].name;
    switch (news->type) {
    case MEMBERSHIP_DECIDED: event_post(council->conf.events, &(struct event){.type = EVENT_EPOCH}); break;
    case MEMBERSHIP_VOTES:
        log_info("this island votes: its disk is not in doubt");
        event_post(council->conf.events, &(struct event){.type = EVENT_ANNOUNCE});
        break;
    case MEMBERSHIP_WANTS: event_post_sync(council->conf.events, &(struct sync_event){.type = SYNC_EV_TICK}); break;
    case MEMBERSHIP_APART: tell_apart(council, news); break;
    case MEMBERSHIP_DISK_FAILS:
        log_warn("island %s says that its disk keeps nothing: the run goes on without it until it does", name);
        break;
    case MEMBERSHIP_BROKE_WORD:
        log_error("island %s has signed two different results of one part: fragment %" PRIu32 ", version %" PRIu64
                  ". Its disk is older than it knew, or it lies: it is evicted, and stays so until its key is revoked",
                  name, news->fragment, news->version);
        break;
    case MEMBERSHIP_NO_PROOF: log_error("a proof about island %s is none, and not used: %s", name, err_text()); break;
    case MEMBERSHIP_SUSPECT:
        log_warn("two results of one part of island id %" PRIu32 " are shown; one of them stands", news->id);
        break;
    case MEMBERSHIP_FAILED:
        if (log_limit_pass(&council->failed_said, env_mono_ms(), SAID_MS))
            log_error("%s failed, and is tried again: %s", news->text, err_text());
        break;
    }
}

static const struct membership_host host = {.send = send,
                                            .save_vote = save_vote,
                                            .keep_record = keep_record,
                                            .read_record = read_record,
                                            .save_proof = save_proof,
                                            .load_proof = load_proof,
                                            .settle = settle,
                                            .tell = tell};

/* ---- life ---- */

enum err council_begin(struct council *council, uint64_t now_ms)
{
    council_keep_void(&council->keep);
    return membership_begin(council->membership, now_ms);
}

enum err council_new(const struct peers_conf *conf, struct link *link, struct council **out)
{
    enum err err;
    struct council *council = NULL;
    *out = NULL;
    TRY_OUT(mem_new(1, sizeof *council, "the council", &council));
    council->conf = *conf;
    council->link = link;
    council_keep_init(&council->keep, conf->jobs, conf->vote, conf->events, conf->conf->state_folder);
    struct membership_conf membership = {.view = conf->view,
                                         .chain = conf->chain,
                                         .ident = conf->ident,
                                         .disk = vote_disk(conf->vote),
                                         .host = &host,
                                         .user = council,
                                         .seed = env_random_u64()};
    TRY_OUT(membership_new(&membership, &council->membership));
    TRY_OUT(council_begin(council, conf->start_ms));
out:
    if (err != ERR_OK)
        council_free(council);
    else
        *out = council;
    return err;
}

void council_free(struct council *council)
{
    if (council == NULL)
        return;
    membership_free(council->membership);
    council_keep_deinit(&council->keep);
    mem_free(council);
}

struct membership *council_membership(struct council *council)
{
    return council->membership;
}

/* ---- the loop ---- */

void council_tidy(struct council *council, uint64_t before)
{
    council_keep_pack(&council->keep, before);
}

void council_kept(struct council *council, uint64_t now_ms)
{
    struct record_entry entry;
    if (council_keep_record(&council->keep, &entry)) {
        membership_kept(council->membership, &entry);
        record_entry_free(&entry);
    }
    uint64_t saved = council_keep_saved(&council->keep);
    if (saved != 0)
        membership_saved(council->membership, saved, now_ms);
}

void council_tick(struct council *council, const struct bitset *silent, uint64_t now_ms)
{
    council_keep_tick(&council->keep);
    membership_tick(council->membership, silent, now_ms);
}

/* ---- looking in ---- */

const char *council_unkept(const struct council *council)
{
    return council->keep.unkept;
}

void council_waits(const struct council *council, char *text, size_t text_bytes)
{
    membership_waits(council->membership, text, text_bytes);
    if (text[0] != '\0' && council->keep.unkept[0] != '\0')
        snprintf(text, text_bytes, "this island's disk: %s", council->keep.unkept);
}
