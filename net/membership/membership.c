/* SPDX-License-Identifier: Apache-2.0 */
#include "net/membership/membership.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "common/mem.h"
#include "net/config/config_proof.h"
#include "net/config/endorsement.h"
#include "net/membership/endorse.h"
#include "net/membership/next_config.h"
#include "net/membership/own_said.h"
#include "net/membership/paxos.h"
#include "net/membership/promise_reports.h"
#include "net/membership/evidence.h"
#include "net/membership/member_progress.h"
#include "net/membership/change_requests.h"
#include "net/membership/order_pool.h"
#include "net/membership/received_config.h"
#include "net/config/config_orders.h"

/* TURN: how long the next voter waits for the one before it. ASKED: so long those who might join are waited for, once
 * enough voters have sealed. OVERDUE: so long what only a few of them show may take to be fetched. AGREED: so long
 * what no majority agrees to is waited for, before the next configuration does without. EVIDENCE_ALL: as
 * long as one whose word is broken takes part, the others are told so often. FAREWELL: so long the connection to one
 * that is off the roster stands, or it might never hear of it. */
enum { TURN_MS = 1000, ASKED_MS = 700, OVERDUE_MS = 4000, AGREED_MS = 2000, EVIDENCE_ALL_MS = 2000, FAREWELL_MS = 200 };
/* For each so many members we look that much less often whether another configuration would differ. */
enum { LOOK_MEMBERS = 128, LOOK_MS = 100 };
/* Configurations in answer to one question, and their bytes, but for the first. */
enum { CONFIG_LOG_MOST = 64, CONFIG_LOG_BYTES_MOST = 4 << 20 };

/* A message to ourselves, packed. */
struct own_message {
    uint32_t type;
    uint8_t *bytes;
    size_t bytes_count;
};
enum { OWN_MAX = 32 };

struct membership {
    struct membership_conf conf;
    struct sync *sync;             /* NULL: the run's plan is not known yet */
    const uint32_t *shards_counts; /* per fragment; likewise */
    struct paxos *paxos;
    struct promise_reports *reports; /* what members answered in our ballot */
    struct member_progress progress;
    struct change_requests requests;
    struct order_pool *orders;
    struct own_said said; /* for our greeting */
    struct own_message own[OWN_MAX];
    uint32_t own_count;
    struct config_endorsement endorsements[WIRE_ENDORSEMENTS_MAX]; /* of our last promise */
    uint64_t saving; /* number of the last vote that went to the disk in this epoch, until it is durable; 0: none */
    uint64_t saved;  /* number of a vote that is durable, to be told net/membership/paxos; 0: none */
    bool compose;    /* ordered */
    bool take_over;  /* ordered: what all voters hold together is to be here */
    uint32_t lacking[CONFIG_OWNERS_MAX + 1]; /* of the last draft, by id: who lacks some of what it rests on */
    uint32_t lacking_count;
    uint64_t sealed_ms;       /* since when we are sealed; 0: we are not */
    uint64_t requested_ms;    /* since when another configuration would say something else; 0: it would not */
    uint64_t look_ms;         /* when that is looked at again */
    uint64_t asked_ms;        /* since when those who might join are asked, in `asked_ballot`; 0: they are not */
    uint64_t asked_ballot;    /* of ours: in each all that is signed anew is waited for anew */
    uint64_t evidence_all_ms; /* when evidence is told again */
    struct bitset asked;
    bool taken;           /* `config` is decided and waits to be taken */
    uint64_t farewell_ms; /* before this the host is not told of it; 0: it is told */
    struct config config;
    struct digest digest;
};

static const struct config *last(const struct membership *m)
{
    return config_log_last(m->conf.config_log);
}

static uint32_t self_of(const struct membership *m)
{
    return m->conf.view->self;
}

static uint32_t id_of(const struct membership *m, uint32_t slot)
{
    return m->conf.view->members[slot].as.id;
}

/* Our disk forgot nothing, and yet the newest configuration names one that it neither is nor followed: a copy of it
 * runs somewhere with our key. That one votes then, so ours must not. */
static bool is_another_named(const struct membership *m)
{
    const struct view *view = m->conf.view;
    const struct voting_disk *disk = m->conf.disk;
    if (view->self == VIEW_NOBODY || disk->doubt != VOTE_SURE)
        return false;
    uint64_t named = view->members[view->self].as.incarnation;
    return named != disk->incarnation && named != disk->named && last(m)->epoch > disk->trusted_epoch;
}

bool membership_votes(const struct membership *m)
{
    const struct view *view = m->conf.view;
    /* A configuration that we voted after is missing here: paxos does not know yet what we promised then. */
    bool current = m->conf.disk->vote.epoch <= last(m)->epoch;
    return view->self != VIEW_NOBODY && view->members[view->self].as.voter && current &&
           m->conf.disk->doubt == VOTE_SURE && !is_another_named(m);
}

/* ---- to the host ---- */

static void tell(const struct membership *m, const struct membership_news *news)
{
    m->conf.host->tell(m->conf.user, news);
}

static void tell_of(const struct membership *m, enum membership_news_type type)
{
    tell(m, &(struct membership_news){.type = type});
}

/* Tells of a failure, if it is one. */
static bool failed(const struct membership *m, enum err err, const char *what)
{
    if (err == ERR_OK)
        return false;
    tell(m, &(struct membership_news){.type = MEMBERSHIP_FAILED, .err = err, .text = what});
    return true;
}

/* ---- out ---- */

/* To ourselves: it comes back when what is under way is done. */
static void say_own(struct membership *m, uint32_t type, uint8_t *bytes, size_t bytes_count)
{
    if (m->own_count == OWN_MAX) { /* as if it were lost: everything is repeated */
        mem_free(bytes);
        return;
    }
    m->own[m->own_count++] = (struct own_message){type, bytes, bytes_count};
}

static void say(struct membership *m, uint32_t to, const struct paxos_message *message)
{
    uint8_t *bytes;
    size_t count;
    uint32_t slot = view_slot(m->conf.view, to);
    log_debug("epoch message %d, ballot %" PRIx64 ", to id %" PRIu32, (int)message->type, message->ballot, to);
    if (slot == VIEW_NOBODY)
        return;
    if (failed(m, wire_paxos_pack(message, &bytes, &count), "a message of the next epoch"))
        return;
    if (slot == self_of(m)) {
        say_own(m, message->type, bytes, count);
        return;
    }
    m->conf.host->send(m->conf.user, slot, message->type, bytes, count);
    mem_free(bytes);
}

/* What we hold, as it is now. */
static void add_promise_reports(struct membership *m, struct paxos_message *out)
{
    /* A disk that is not in doubt is the one that the configuration names: the founder's first one, 0. */
    bool sure = m->conf.disk->doubt == VOTE_SURE;
    out->incarnation = sure ? m->conf.view->members[self_of(m)].as.incarnation : m->conf.disk->incarnation;
    promise_reports_own(m->reports, m->sync, &out->rows, &out->rows_count);
    out->step = m->sync != NULL ? sync_steps(m->sync).durable : 0;
}

/* What we agree to now; without it nothing that the others do not want anyhow comes to pass. */
static void add_endorsements(struct membership *m, struct paxos_message *out)
{
    if (!out->sealed || m->sync == NULL)
        return;
    enum err err = endorse_own(&m->requests, &m->progress, m->orders, m->conf.ident, out->ballot, m->endorsements,
                               &out->endorsements_count);
    if (!failed(m, err == ERR_STATE ? ERR_OK : err, "what this island agrees to"))
        out->endorsements = m->endorsements;
}

static void send_message(struct membership *m, uint32_t to, struct paxos_message *message)
{
    if (message->type == WIRE_PROMISE) {
        add_promise_reports(m, message);
        add_endorsements(m, message);
    } else if (message->type == WIRE_ACCEPTED)
        config_vote_sign(m->conf.ident, last(m)->nonce, message->epoch, message->ballot, &message->digest,
                         message->signature);
    say(m, to, message);
}

static struct paxos_message decided_message(const struct config_entry *entry)
{
    return (struct paxos_message){.type = WIRE_DECIDED,
                                  .bytes = entry->bytes,
                                  .bytes_count = entry->bytes_count,
                                  .votes = entry->votes,
                                  .votes_count = entry->votes_count};
}

/* Some of the configurations after `after`, as they were decided: the asker then asks for the next ones. */
static void send_config_log(struct membership *m, uint32_t to, uint64_t after, bool asked, uint64_t now_ms)
{
    uint64_t end = last(m)->epoch - after > CONFIG_LOG_MOST ? after + CONFIG_LOG_MOST : last(m)->epoch;
    size_t bytes = 0;
    uint32_t slot = view_slot(m->conf.view, to);
    if (slot == VIEW_NOBODY || !member_progress_may_be_sent(&m->progress, slot, asked, now_ms))
        return;
    for (uint64_t epoch = after + 1; epoch <= end && bytes < CONFIG_LOG_BYTES_MOST; epoch++) {
        struct config_entry entry;
        if (m->conf.host->read_config(m->conf.user, epoch, &entry) != ERR_OK)
            return; /* another member is asked next */
        struct paxos_message out = decided_message(&entry);
        say(m, to, &out);
        bytes += entry.bytes_count;
        config_entry_free(&entry);
    }
}

/* ---- members that broke their word: evidence, kept on disk and told the others ---- */

/* Whether it proves that this member broke its word. */
static enum err check_evidence(const struct membership *m, uint32_t slot, const uint8_t *evidence, size_t count,
                               struct wire_object *first)
{
    struct wire_object second;
    const struct view_member *member = &m->conf.view->members[slot];
    TRY(evidence_open(evidence, count, first, &second));
    if (first->key.owner != member->as.id)
        return err_set(ERR_PROTO, "evidence about id %" PRIu32 ", which is not island %s", first->key.owner,
                       member->as.name);
    return evidence_check_of(first, &second, m->conf.config_log);
}

static void mark_broken(struct membership *m, uint32_t slot, const struct wire_object *what)
{
    struct seat *seat = &m->progress.seat[slot];
    if (seat->broke_word)
        return;
    seat->broke_word = seat->evidence = true;
    tell(m, &(struct membership_news){.type = MEMBERSHIP_BROKE_WORD,
                                      .member = slot,
                                      .fragment = what->key.fragment,
                                      .version = what->key.version});
}

/* Of one member, if there is one. */
static enum err load_evidence(struct membership *m, uint32_t slot)
{
    const struct view_member *member = &m->conf.view->members[slot];
    struct wire_object what;
    uint8_t *evidence;
    size_t count;
    enum err err = m->conf.host->load_evidence(m->conf.user, member->as.id, &evidence, &count);
    if (err == ERR_NOTFOUND)
        return ERR_OK;
    if (err == ERR_OK)
        err = check_evidence(m, slot, evidence, count, &what);
    if (err == ERR_OK)
        mark_broken(m, slot, &what);
    else if (err != ERR_NOMEM)
        tell(m, &(struct membership_news){.type = MEMBERSHIP_NO_EVIDENCE, .member = slot});
    mem_free(evidence);
    return err == ERR_NOMEM ? err : ERR_OK;
}

/* Marks members of whom the host has evidence. Call it whenever members came. Reports a file that proves nothing
 * (MEMBERSHIP_NO_EVIDENCE). ERR_NOMEM. */
static enum err load_all_evidence(struct membership *m)
{
    for (uint32_t i = 0; i < m->conf.view->count; i++)
        if (m->conf.view->members[i].used && !m->progress.seat[i].broke_word)
            TRY(load_evidence(m, i));
    return ERR_OK;
}

/* Keeps evidence that somebody told, and marks its member. True: it is news. ERR_PROTO: it proves nothing. */
static enum err take_evidence(struct membership *m, uint32_t id, const uint8_t *evidence, size_t evidence_bytes,
                              bool *news)
{
    uint32_t slot = view_slot(m->conf.view, id);
    struct wire_object what;
    *news = false;
    if (slot == VIEW_NOBODY)
        return err_set(ERR_NOTFOUND, "no island of id %" PRIu32 " is on the roster", id);
    if (m->progress.seat[slot].broke_word)
        return ERR_OK;
    TRY(check_evidence(m, slot, evidence, evidence_bytes, &what));
    TRY(m->conf.host->save_evidence(m->conf.user, id, evidence,
                                    evidence_bytes)); /* it is told again where this fails */
    mark_broken(m, slot, &what);
    *news = true;
    return ERR_OK;
}

/* The message that tells the evidence about the next marked member after slot `*slot` (VIEW_NOBODY: the first): the
 * caller frees `*evidence` after it. False: there are no more. */
static bool next_evidence(const struct membership *m, uint32_t *slot, struct paxos_message *message, uint8_t **evidence)
{
    for (uint32_t i = *slot == VIEW_NOBODY ? 0 : *slot + 1; i < m->conf.view->count; i++) {
        uint32_t id = m->conf.view->members[i].as.id;
        size_t count;
        if (!m->conf.view->members[i].used || !m->progress.seat[i].broke_word ||
            m->conf.host->load_evidence(m->conf.user, id, evidence, &count) != ERR_OK)
            continue;
        *slot = i;
        *message = (struct paxos_message){.type = WIRE_EVIDENCE, .id = id, .bytes = *evidence, .bytes_count = count};
        return true;
    }
    return false;
}

/* Whether a marked member still takes part, by the newest configuration. */
static bool evidence_all_pending(const struct membership *m)
{
    for (uint32_t i = 0; i < m->conf.view->count; i++) {
        const struct view_member *member = &m->conf.view->members[i];
        bool takes_part = member->as.role == CONFIG_WITNESS ? member->as.voter : member->as.role != CONFIG_AWAY;
        if (member->used && m->progress.seat[i].broke_word && takes_part)
            return true;
    }
    return false;
}

/* ---- composing ---- */

/* The base of a draft (net/membership/next_config.h); `wanted`: NULL for judging one of another member. */
static struct next_config_base base_of(const struct membership *m, const struct wanted_changes *wanted)
{
    return (struct next_config_base){.config = last(m),
                                     .digest = config_log_last_digest(m->conf.config_log),
                                     .shards = m->shards_counts,
                                     .fragments_count = m->progress.fragments_count,
                                     .applied_step = m->sync != NULL ? sync_steps(m->sync).applied : 0,
                                     .orders = wanted != NULL ? wanted->orders : NULL,
                                     .orders_count = wanted != NULL ? wanted->orders_count : 0,
                                     .words = wanted != NULL ? wanted->words : NULL,
                                     .words_count = wanted != NULL ? wanted->words_count : 0};
}

static enum err propose(struct membership *m, const struct config *draft, bool safe, const uint32_t *asked,
                        uint32_t asked_count, uint64_t now_ms)
{
    uint8_t *bytes;
    size_t count;
    enum err err;
    TRY(config_check(draft)); /* nobody would accept it: say so instead of proposing it */
    TRY(config_keys_check(draft, last(m)));
    TRY(config_orders_follow(last(m), draft));
    if (safe)
        TRY(endorsements_follow(last(m), draft));
    TRY(config_pack(draft, &bytes, &count));
    struct digest digest = config_digest(bytes, count);
    if (safe)
        err = paxos_propose(m->paxos, bytes, count, &digest, now_ms);
    else
        err = paxos_draft(m->paxos, bytes, count, asked, asked_count, now_ms);
    mem_free(bytes);
    return err;
}

static enum err compose(struct membership *m, uint64_t now_ms)
{
    enum err err;
    struct change_request *requests = NULL;
    struct next_config_out out = {0};
    struct wanted_changes *wanted = NULL;
    struct next_config_base base;
    bool agreed;
    uint32_t count, answers_count, asked[PAXOS_ASKED_MAX];
    const struct next_config_answer *answers = promise_reports_answered(m->reports, m->paxos, &answers_count);
    uint32_t asked_count = change_requests_whom_to_ask(&m->progress, &m->asked, asked);
    TRY_OUT(mem_new_unset(1, sizeof *wanted, "changes", &wanted));
    TRY_OUT(change_requests_wanted(&m->progress, m->orders, WANTED_COMPOSE, wanted));
    base = base_of(m, wanted);
    m->asked_ms = m->asked_ballot == paxos_ballot(m->paxos) ? m->asked_ms : 0;
    m->asked_ballot = paxos_ballot(m->paxos);
    base.overdue = m->asked_ms != 0 && now_ms >= m->asked_ms + OVERDUE_MS;
    TRY_OUT(change_requests_gather(&m->requests, &m->progress, wanted, &requests, &count));
    TRY_OUT(next_config(&base, answers, answers_count, requests, count, &out));
    if (!out.ask && m->asked_ms == 0)
        m->asked_ms = now_ms;
    if (!out.ask)
        TRY_OUT(endorse_agree(&base, paxos_ballot(m->paxos), now_ms < m->asked_ms + AGREED_MS, answers, answers_count,
                              requests, count, &out, &agreed));
    if (out.ask) {
        log_debug("next configuration: %" PRIu32 " answers do not suffice", answers_count);
        TRY_OUT(paxos_draft(m->paxos, NULL, 0, asked, asked_count, now_ms));
        goto out;
    }
    bool waits = now_ms < m->asked_ms + ASKED_MS && !change_requests_all_there(requests, count, asked, asked_count);
    bool safe = next_config_safe(&out.draft, &base, answers, answers_count, m->lacking, &m->lacking_count);
    log_debug("next configuration: %s%s, %" PRIu32 " answers, %" PRIu32 " lack something of it%s",
              safe ? "safe" : "not safe yet", agreed ? "" : ", not agreed to yet", answers_count, m->lacking_count,
              waits ? "; those who might join are waited for" : "");
    TRY_OUT(propose(m, &out.draft, safe && agreed && !waits, asked, asked_count, now_ms));
    for (uint32_t i = 0; i < out.suspects_count; i++)
        tell(m, &(struct membership_news){.type = MEMBERSHIP_SUSPECT, .id = out.suspects[i]});
out:
    config_deinit(&out.draft);
    mem_free(requests);
    mem_free(wanted);
    return err;
}

/* What a draft starts from and carries is fetched, sealed or not. */
static void fetch(struct membership *m, const uint8_t *bytes, size_t bytes_count)
{
    struct config draft;
    if (m->sync == NULL || config_read(bytes, bytes_count, &draft) != ERR_OK)
        return;
    for (uint32_t f = 0; f < draft.starts_count; f++)
        sync_want_start(m->sync, f, draft.starts[f]);
    for (uint32_t i = 0; i < draft.carried_count; i++) {
        const struct part_result *carried = &draft.carried[i];
        sync_want_this(m->sync, carried->id.fragment, carried->id.version, carried->id.epoch, carried->id.owner,
                       &carried->id.digest);
    }
    config_deinit(&draft);
    tell_of(m, MEMBERSHIP_WANTS);
}

/* ---- what net/membership/paxos orders ---- */

/* Until it is durable nothing is said of it. */
static void save_vote(struct membership *m, const struct paxos_action *action)
{
    /* From here on nothing new is acknowledged: what the answer names is all. */
    if (action->vote.promised != 0 && m->sync != NULL)
        sync_seal(m->sync);
    m->saving = action->number;
    m->conf.host->save_vote(m->conf.user, &action->vote, action->number);
}

static void decided(struct membership *m, const struct paxos_action *action)
{
    const struct config_entry entry = {.bytes = (uint8_t *)(uintptr_t)action->bytes,
                                       .bytes_count = action->bytes_count,
                                       .votes = (struct config_vote *)(uintptr_t)action->votes,
                                       .votes_count = action->votes_count};
    (void)failed(m, m->conf.host->keep_config(m->conf.user, &entry), "keeping a configuration that was decided");
}

/* Our disk is in doubt no more; `trusted_epoch`: as in struct voting_disk. */
static void end_doubt(struct membership *m, uint64_t trusted_epoch)
{
    uint64_t named = m->conf.view->members[self_of(m)].as.incarnation;
    if (failed(m, m->conf.host->settle(m->conf.user, named, trusted_epoch), "telling the disk that it is not in doubt"))
        return;
    if (m->sync != NULL)
        sync_set_votes(m->sync, membership_votes(m));
    tell_of(m, MEMBERSHIP_VOTES);
}

static void carry_out(struct membership *m, uint64_t now_ms)
{
    struct paxos_action action;
    while (paxos_action(m->paxos, &action)) {
        switch (action.type) {
        case PAXOS_DO_SAVE: save_vote(m, &action); break;
        case PAXOS_DO_SEND: send_message(m, action.to, &action.message); break;
        case PAXOS_DO_COMPOSE: m->compose = true; break;
        case PAXOS_DO_FETCH: fetch(m, action.bytes, action.bytes_count); break;
        case PAXOS_DO_DECIDED: decided(m, &action); break;
        case PAXOS_DO_CONFIG_LOG: send_config_log(m, action.to, action.epoch, action.asked, now_ms); break;
        case PAXOS_DO_TAKE_OVER: m->take_over = true; break;
        /* The next configuration may have been proposed when our disk was another one. */
        case PAXOS_DO_VOTE: end_doubt(m, last(m)->epoch + 1); break;
        }
    }
    if (m->sealed_ms == 0 && paxos_sealed(m->paxos))
        m->sealed_ms = now_ms;
}

static void step(struct membership *m, const struct paxos_event *event, uint64_t now_ms)
{
    (void)failed(m, paxos_step(m->paxos, event, now_ms), "the next epoch");
    carry_out(m, now_ms);
}

static void take_in(struct membership *m, uint32_t member, struct paxos_message *message, uint64_t now_ms);

static void take_own(struct membership *m, uint64_t now_ms)
{
    struct paxos_message message;
    struct own_message own = m->own[0];
    memmove(m->own, m->own + 1, --m->own_count * sizeof own);
    if (wire_paxos_unpack(own.type, own.bytes, own.bytes_count, &message) == ERR_OK)
        take_in(m, self_of(m), &message, now_ms);
    mem_free(own.bytes);
}

static void take_over(struct membership *m, uint64_t now_ms)
{
    struct paxos_event event = {.type = PAXOS_EV_RECOVERED, .good = true};
    m->take_over = false;
    if (promise_reports_here(m->reports, m->paxos, last(m), id_of(m, self_of(m)), m->sync))
        step(m, &event, now_ms);
}

/* What was ordered of ourselves, until nothing is left. */
static void settle(struct membership *m, uint64_t now_ms)
{
    while (m->saved != 0 || m->compose || m->take_over || m->own_count > 0) {
        if (m->saved != 0) {
            struct paxos_event event = {.type = PAXOS_EV_SAVED, .number = m->saved, .good = true};
            m->saved = 0;
            step(m, &event, now_ms);
        } else if (m->own_count > 0) {
            take_own(m, now_ms);
        } else if (m->take_over) {
            take_over(m, now_ms);
        } else {
            m->compose = false;
            (void)failed(m, compose(m, now_ms), "composing the next configuration");
            carry_out(m, now_ms);
        }
    }
}

/* ---- in ---- */

/* Whether the configuration follows ours: it is checked before it is accepted, or believed to be decided. Who brings
 * one that breaks the rules is told people once in a while. */
static bool follows(struct membership *m, uint32_t member, const struct paxos_message *message)
{
    struct next_config_base base = base_of(m, NULL);
    enum err err = received_config_check(&base, message);
    if (err != ERR_OK)
        log_debug("a configuration of slot %" PRIu32 " is passed over: %s", member, err_text());
    if (err == ERR_PROTO && member_progress_misproposes(&m->progress, member))
        tell(m, &(struct membership_news){.type = MEMBERSHIP_CONFIG_REFUSED, .member = member, .text = err_text()});
    return err == ERR_OK;
}

static bool good_vote(const struct membership *m, uint32_t member, const struct paxos_message *message)
{
    struct config_vote vote = {.id = id_of(m, member), .ballot = message->ballot};
    memcpy(vote.signature, message->signature, sizeof vote.signature);
    return config_vote_good(m->conf.view->members[member].as.key, last(m)->nonce, message->epoch, &message->digest,
                            &vote);
}

/* Whether it brings a configuration that is good only if it follows ours, or is proved. */
static bool brings_config(const struct paxos_message *message)
{
    return message->type == WIRE_ACCEPT || message->type == WIRE_DECIDED ||
           (message->type == WIRE_PROMISE && message->bytes_count > 0);
}

/* What a promise says that the member holds is taken over, and what it points to goes on pointing to the same. `*good`:
 * as in struct paxos_event. False: it is of no use. */
static bool judge(struct membership *m, uint32_t member, struct paxos_message *message, uint64_t now_ms, bool *good)
{
    *good = paxos_matters(m->paxos, id_of(m, member), message, now_ms);
    if (!*good)
        return message->type != WIRE_DECIDED;
    if (message->type == WIRE_ACCEPTED)
        *good = good_vote(m, member, message);
    else if (brings_config(message))
        *good = follows(m, member, message);
    if (message->type == WIRE_PROMISE) {
        endorse_keep_signed(last(m), id_of(m, member), promise_reports_of(m->reports, id_of(m, member)),
                            &m->progress.seat[member].endorsement_checks, now_ms, message);
        promise_reports_answer(m->reports, m->sync, id_of(m, member), message);
    }
    return *good || message->type != WIRE_DECIDED;
}

/* Sends evidence of broken words to one member, or to all that are here. */
static void tell_all_evidence(struct membership *m, uint32_t member)
{
    const struct view *view = m->conf.view;
    struct paxos_message message;
    uint8_t *evidence;
    uint32_t slot = VIEW_NOBODY;
    while (next_evidence(m, &slot, &message, &evidence)) {
        for (uint32_t i = 0; i < view->count; i++)
            if (i != view->self && m->progress.seat[i].up && (member == VIEW_NOBODY || member == i))
                say(m, view->members[i].as.id, &message);
        mem_free(evidence);
    }
}

static enum err proof_in(struct membership *m, const struct paxos_message *in)
{
    bool news;
    TRY(take_evidence(m, in->id, in->bytes, in->bytes_count, &news));
    if (news)
        tell_all_evidence(m, VIEW_NOBODY);
    return ERR_OK;
}

/* To all voters that can be heard. */
static void tell_voters(struct membership *m, const struct paxos_message *message)
{
    const struct view *view = m->conf.view;
    for (uint32_t i = 0; i < view->count; i++)
        if (i != view->self && m->progress.seat[i].up && view->members[i].as.voter)
            say(m, view->members[i].as.id, message);
}

static void tell_orders(struct membership *m)
{
    const struct order *order;
    while ((order = order_pool_to_tell(m->orders, m->progress.now_ms)) != NULL) {
        struct paxos_message message = {.type = WIRE_ORDER, .order = order};
        tell_voters(m, &message);
    }
}

/* An order that its signer may not give is told people once in a while; who sends it is known by its link. */
static enum err order_in(struct membership *m, uint32_t member, const struct order *order)
{
    bool news;
    enum err err = order_pool_take(m->orders, last(m), member, order, m->progress.now_ms, &news);
    if (err == ERR_PROTO && refused_orders_tell(&m->progress.seat[member].refused, order, m->progress.now_ms))
        tell(m, &(struct membership_news){
                    .type = MEMBERSHIP_ORDER_REFUSED, .member = member, .order = order, .text = err_text()});
    return err;
}

static void ask_in(struct membership *m, uint32_t member, const struct paxos_message *in)
{
    enum err err = in->type == WIRE_EVIDENCE ? proof_in(m, in) : order_in(m, member, in->order);
    if (err != ERR_OK)
        log_debug("what a member asks is passed over: %s", err_text());
}

/* Frees the message. */
static void take_in(struct membership *m, uint32_t member, struct paxos_message *message, uint64_t now_ms)
{
    log_debug("epoch message %d, ballot %" PRIx64 ", of slot %" PRIu32, (int)message->type, message->ballot, member);
    struct paxos_event event = {.type = PAXOS_EV_MESSAGE, .from = id_of(m, member), .message = message};
    if (message->type == WIRE_ORDER || message->type == WIRE_EVIDENCE)
        ask_in(m, member, message);
    else if (!m->taken && judge(m, member, message, now_ms, &event.good))
        step(m, &event, now_ms);
    wire_paxos_deinit(message);
}

enum err membership_message_in(struct membership *m, uint32_t member, uint32_t type, const void *payload, size_t bytes,
                               uint64_t now_ms)
{
    struct paxos_message message;
    TRY(wire_paxos_unpack(type, payload, bytes, &message));
    take_in(m, member, &message, now_ms);
    settle(m, now_ms);
    return ERR_OK;
}

void membership_saved(struct membership *m, uint64_t number, uint64_t now_ms)
{
    m->saving = number >= m->saving ? 0 : m->saving;
    m->saved = number;
    settle(m, now_ms);
}

static void tell_decided(struct membership *m)
{
    m->farewell_ms = 0;
    tell_of(m, MEMBERSHIP_DECIDED);
}

/* Everyone may know it now. */
void membership_kept(struct membership *m, const struct config_entry *entry)
{
    const struct view *view = m->conf.view;
    struct config config;
    if (m->taken || config_read(entry->bytes, entry->bytes_count, &config) != ERR_OK)
        return;
    if (config.epoch != last(m)->epoch + 1) {
        config_deinit(&config);
        return;
    }
    config_deinit(&m->config);
    m->config = config;
    m->digest = config_digest(entry->bytes, entry->bytes_count);
    m->taken = true;
    for (uint32_t i = 0; i < m->config.orders_count; i++)
        tell(m,
             &(struct membership_news){.type = MEMBERSHIP_ORDERED, .order = &m->config.orders[i], .config = last(m)});
    struct paxos_message out = decided_message(entry);
    for (uint32_t i = 0; i < view->count; i++)
        if (i != view->self && m->progress.seat[i].up && m->progress.seat[i].epoch <= last(m)->epoch)
            say(m, view->members[i].as.id, &out);
    if (member_progress_cuts_off(&m->progress, &m->config))
        m->farewell_ms = m->progress.now_ms + FAREWELL_MS;
    else
        tell_decided(m);
}

void membership_beat(struct membership *m, const struct wire_heartbeat *beat, uint64_t now_ms)
{
    member_progress_said(&m->progress, beat, now_ms);
}

void membership_heard(struct membership *m, uint32_t member, const struct wire_heartbeat *beat, uint64_t now_ms)
{
    struct paxos_event event = {.type = PAXOS_EV_HEARD, .from = id_of(m, member), .good = true, .epoch = beat->epoch};
    member_progress_heard(&m->progress, member, beat, now_ms);
    if (!m->taken)
        step(m, &event, now_ms);
    settle(m, now_ms);
}

void membership_up(struct membership *m, uint32_t member, bool up, uint64_t now_ms)
{
    struct paxos_event event = {.type = PAXOS_EV_UP, .from = id_of(m, member), .good = true, .flag = up};
    member_progress_up(&m->progress, member, up);
    m->progress.seat[member].log_epoch = 0;
    if (!up)
        promise_reports_drop(m->reports, id_of(m, member));
    step(m, &event, now_ms);
    settle(m, now_ms);
    if (up)
        tell_all_evidence(m, member);
}

/* ---- time ---- */

static void look_at_doubt(struct membership *m, uint64_t now_ms)
{
    struct paxos_event recover = {.type = PAXOS_EV_RECOVER, .good = true};
    /* The epoch begins anew then, by a vote that has to be on disk. */
    if (m->conf.disk->doubt == VOTE_SURE || m->saving != 0)
        return;
    if (!member_progress_doubt_is_over(&m->progress)) {
        if (member_progress_majority_in_doubt(&m->progress))
            step(m, &recover, now_ms);
        return;
    }
    end_doubt(m, last(m)->epoch);
    member_progress_doubt_anew(&m->progress);
    (void)failed(m, membership_begin(m, now_ms), "the next epoch");
}

/* Once each time, on every island that sees it. */
static void tell_partitioned(struct membership *m)
{
    for (uint32_t i = 0; i < m->conf.view->count; i++) {
        uint32_t from = member_progress_partitioned_from(&m->progress, i);
        bool new = from != VIEW_NOBODY && !m->progress.seat[i].partitioned_told;
        m->progress.seat[i].partitioned_told = from != VIEW_NOBODY;
        if (new)
            tell(m, &(struct membership_news){.type = MEMBERSHIP_PARTITIONED, .member = i, .from = from});
    }
}

/* Likewise; our own disk says more itself. */
static void tell_disks(struct membership *m)
{
    for (uint32_t i = 0; i < m->conf.view->count; i++) {
        struct seat *seat = &m->progress.seat[i];
        bool fails = m->conf.view->members[i].used && seat->up && seat->disk_fails;
        if (fails && !seat->disk_told)
            tell(m, &(struct membership_news){.type = MEMBERSHIP_DISK_FAILS, .member = i});
        seat->disk_told = fails;
    }
}

/* Whether another configuration would differ. That takes the longer the more members there are, so we look less often
 * then; among many a member is lost for longer than this anyhow. */
static bool changes(struct membership *m, uint64_t now_ms)
{
    if (now_ms < m->look_ms)
        return m->requested_ms != 0;
    m->look_ms = now_ms + (uint64_t)m->conf.view->count / LOOK_MEMBERS * LOOK_MS;
    bool wanted = change_requests_change(&m->requests, &m->progress, m->orders);
    m->requested_ms = !wanted ? 0 : m->requested_ms != 0 ? m->requested_ms : now_ms;
    return wanted;
}

static bool hears_majority(const struct membership *m)
{
    return member_progress_voters_heard(&m->progress) >= config_majority(last(m));
}

static void order_ended(void *user, const struct order *order, const char *why)
{
    struct membership *m = user;
    if (order->kind != ORDER_ADMIT) /* who keeps the guests says it */
        tell(m, &(struct membership_news){.type = MEMBERSHIP_ORDER_ENDED, .order = order, .text = why});
}

void membership_tick(struct membership *m, const struct bitset *silent, uint64_t now_ms)
{
    struct paxos_event want = {.type = PAXOS_EV_WANT, .good = true}, tick = {.type = PAXOS_EV_TICK, .good = true};
    member_progress_tick(&m->progress, silent, now_ms);
    tell_partitioned(m);
    tell_disks(m);
    if (m->farewell_ms != 0 && now_ms >= m->farewell_ms)
        tell_decided(m);
    if (m->taken)
        return;
    look_at_doubt(m, now_ms);
    if (now_ms >= m->evidence_all_ms && evidence_all_pending(m)) {
        m->evidence_all_ms = now_ms + EVIDENCE_ALL_MS;
        tell_all_evidence(m, VIEW_NOBODY);
    }
    order_pool_tick(m->orders, m->conf.ident, last(m), hears_majority(m), now_ms, order_ended, m);
    tell_orders(m);
    want.flag = changes(m, now_ms);
    want.number = change_requests_left_out(&m->progress, m->orders);
    step(m, &want, now_ms);
    step(m, &tick, now_ms);
    settle(m, now_ms);
}

/* ---- orders ---- */

/* Before anybody waits for it in vain. */
static enum err check_decidable(const struct membership *m, enum err code)
{
    uint32_t heard = member_progress_voters_heard(&m->progress), needed = config_majority(last(m));
    if (heard >= needed)
        return ERR_OK;
    return err_set(code,
                   "nobody could decide it now: it takes %" PRIu32 " of the %" PRIu32 " islands that vote, and %" PRIu32
                   " are heard here; ask again when they are back, or at an island that hears them",
                   needed, config_voters(last(m)), heard);
}

static enum err order_number(void *user, uint64_t least, uint64_t *number)
{
    struct membership *m = user;
    return own_said_order(&m->said, least, number);
}

static enum err give(struct membership *m, const struct order *what, uint64_t *number)
{
    TRY(order_pool_give(m->orders, m->conf.ident, last(m), id_of(m, self_of(m)), what, m->progress.now_ms, number));
    tell_orders(m);
    return ERR_OK;
}

enum err membership_order(struct membership *m, uint32_t kind, uint32_t subject, uint64_t value, uint64_t *number)
{
    struct order what = {.kind = kind, .subject = subject, .value = value};
    const struct config_member *about = config_member(last(m), subject);
    if (kind == ORDER_REKEY && about != NULL)
        memcpy(what.key, about->next_key, sizeof what.key);
    TRY(check_decidable(m, ERR_STATE));
    return give(m, &what, number);
}

enum err membership_admit(struct membership *m, const struct wire_join *join, bool contributor)
{
    const struct order what = {.kind = ORDER_ADMIT, .join = *join, .value = contributor};
    TRY(check_decidable(m, ERR_AGAIN)); /* the guest asks on */
    return give(m, &what, NULL);
}

enum err membership_approve(struct membership *m, uint32_t signer, uint64_t number)
{
    TRY(order_pool_approve(m->orders, m->conf.ident, last(m), id_of(m, self_of(m)), signer, number));
    tell_orders(m);
    return ERR_OK;
}

enum err membership_withdraw(struct membership *m, uint64_t number)
{
    TRY(order_pool_withdraw(m->orders, m->conf.ident, last(m), id_of(m, self_of(m)), number));
    tell_orders(m);
    return ERR_OK;
}

void membership_shut_out(struct membership *m, const struct digest *invitation)
{
    order_pool_shut_out(m->orders, m->conf.ident, last(m), invitation);
    tell_orders(m);
}

void membership_equivocation(struct membership *m, uint32_t owner, uint32_t fragment, uint64_t version)
{
    const struct view *view = m->conf.view;
    uint32_t slot = view_slot(view, owner);
    if (slot == VIEW_NOBODY) /* it has gone since */
        return;
    if (load_all_evidence(m) == ERR_OK && m->progress.seat[slot].broke_word) {
        tell_all_evidence(m, VIEW_NOBODY);
        return;
    }
    /* The evidence could not be kept. */
    tell(m, &(struct membership_news){
                .type = MEMBERSHIP_EVIDENCE_LOST, .member = slot, .fragment = fragment, .version = version});
    /* As long as this process lives. What nobody else has seen is no reason to put it out: people have to. */
    m->progress.seat[slot].broke_word = true;
}

/* ---- words ---- */

enum err membership_word(struct membership *m, uint32_t member, const struct member_word *word)
{
    struct seat *seat = &m->progress.seat[member];
    const struct view_member *as = &m->conf.view->members[member];
    if (seat->said && memcmp(seat->word.signature, word->signature, sizeof word->signature) == 0 &&
        seat->word.number == word->number && member_word_same(&seat->word, word))
        return ERR_OK;
    TRY(member_word_check(word));
    if (!member_word_signed(as->as.key, last(m)->nonce, as->as.id, word))
        return config_word_of_other_key(last(m), as->as.id, word)
                   ? ERR_OK
                   : err_set(ERR_PROTO, "a word of island %s that it did not sign", as->as.name);
    if (seat->said && seat->word.number >= word->number) /* it has said another since */
        return ERR_OK;
    seat->said = true;
    seat->word = *word;
    return ERR_OK;
}

static void sign_own_word(struct membership *m)
{
    struct seat *seat = &m->progress.seat[self_of(m)];
    (void)failed(m, own_said_sign(&m->said, m->conf.ident, config_member(last(m), id_of(m, self_of(m)))),
                 "keeping the number of what this island says of itself");
    seat->said = true;
    seat->word = m->said.word;
}

void membership_say(struct membership *m, const struct member_word *what)
{
    m->said.what = *what;
    m->said.says = true;
    if (self_of(m) != VIEW_NOBODY)
        sign_own_word(m);
}

const struct member_word *membership_own_word(const struct membership *m)
{
    return &m->said.word;
}

/* ---- epochs ---- */

static void forget_epoch(struct membership *m)
{
    promise_reports_clear(m->reports);
    m->asked_ms = m->sealed_ms = m->requested_ms = m->look_ms = 0;
    m->asked = (struct bitset){{0}};
    m->lacking_count = 0;
    m->compose = m->take_over = false;
    m->saving = m->saved = 0;
}

/* What the newest configuration calls our disk, if that is not in doubt. */
static void judge_name(struct membership *m)
{
    const struct voting_disk *disk = m->conf.disk;
    if (is_another_named(m)) {
        m->conf.host->distrust(m->conf.user);
        return;
    }
    if (self_of(m) == VIEW_NOBODY || disk->doubt != VOTE_SURE || last(m)->epoch != disk->trusted_epoch)
        return;
    uint64_t named = m->conf.view->members[self_of(m)].as.incarnation;
    if (named == disk->incarnation || named == disk->named)
        return;
    (void)failed(m, m->conf.host->settle(m->conf.user, named, disk->trusted_epoch),
                 "keeping by which name the disk votes");
}

enum err membership_begin(struct membership *m, uint64_t now_ms)
{
    const struct config *config = last(m);
    uint32_t voters[PAXOS_VOTERS_MAX], count = 0;
    for (uint32_t i = 0; i < config->members_count; i++)
        if (config->members[i].voter && count < PAXOS_VOTERS_MAX)
            voters[count++] = config->members[i].id;
    judge_name(m);
    member_progress_begin(&m->progress, now_ms);
    TRY(load_all_evidence(m));
    change_requests_fulfil(&m->requests, &m->progress, config);
    order_pool_begin(m->orders, m->conf.ident, config_log_at(m->conf.config_log, config->epoch - 1), config, now_ms);
    if (m->said.says && self_of(m) != VIEW_NOBODY)
        sign_own_word(m);
    forget_epoch(m);
    TRY(paxos_begin(m->paxos, config->epoch, voters, count, membership_votes(m), &m->conf.disk->vote, now_ms));
    for (uint32_t i = 0; i < m->conf.view->count; i++)
        if (m->progress.seat[i].used && m->progress.seat[i].up)
            membership_up(m, i, true, now_ms);
    if (paxos_sealed(m->paxos)) {
        m->sealed_ms = now_ms;
        if (m->sync != NULL)
            sync_seal(m->sync);
    }
    return ERR_OK;
}

bool membership_take(struct membership *m, struct config *config, struct digest *digest)
{
    if (!m->taken || m->farewell_ms != 0)
        return false;
    *config = m->config;
    *digest = m->digest;
    m->config = (struct config){0};
    m->taken = false;
    return true;
}

/* ---- life ---- */

enum err membership_new(const struct membership_conf *conf, struct membership **out)
{
    enum err err;
    struct membership *m = NULL;
    *out = NULL;
    TRY_OUT(mem_new(1, sizeof *m, "membership", &m));
    m->conf = *conf;
    struct paxos_conf epoch = {.self = conf->view->members[conf->view->self].as.id,
                               .seed = conf->seed,
                               .turn_ms = TURN_MS,
                               .again_ms = MEMBERSHIP_AGAIN_MS};
    TRY_OUT(member_progress_init(conf->view, conf->config_log, conf->disk, &m->progress));
    TRY_OUT(promise_reports_new(&m->reports));
    m->said = (struct own_said){.host = conf->host,
                                .user = conf->user,
                                .config_log = conf->config_log,
                                .disk = conf->disk,
                                .next = conf->next,
                                .numbers = conf->numbers,
                                .seed = conf->seed};
    TRY_OUT(order_pool_new(&(struct order_pool_conf){order_number, m, conf->config_log}, &m->orders));
    TRY_OUT(paxos_new(&epoch, &m->paxos));
out:
    if (err != ERR_OK)
        membership_free(m);
    else
        *out = m;
    return err;
}

void membership_free(struct membership *m)
{
    if (m == NULL)
        return;
    for (uint32_t i = 0; i < m->own_count; i++)
        mem_free(m->own[i].bytes);
    config_deinit(&m->config);
    paxos_free(m->paxos);
    promise_reports_free(m->reports);
    order_pool_free(m->orders);
    member_progress_deinit(&m->progress);
    mem_free(m);
}

enum err membership_plan_known(struct membership *m, struct sync *sync, uint32_t fragments_count,
                               const uint32_t *shards_counts)
{
    TRY(promise_reports_reserve(m->reports, fragments_count));
    TRY(member_progress_plan_known(&m->progress, sync, fragments_count));
    m->sync = sync;
    m->shards_counts = shards_counts;
    if (paxos_sealed(m->paxos))
        sync_seal(sync);
    return ERR_OK;
}

/* ---- looking in ---- */

bool membership_may_vote(const struct membership *m, uint32_t member)
{
    const struct view *view = m->conf.view;
    if (member == view->self)
        return membership_votes(m);
    return view->members[member].used && view->members[member].as.voter && m->progress.seat[member].up &&
           !member_progress_in_doubt(&m->progress, member);
}

struct bitset membership_awaited(const struct membership *m)
{
    return member_progress_awaited(&m->progress);
}

bool membership_broke_word(const struct membership *m, uint32_t member)
{
    return m->progress.seat[member].broke_word;
}

bool membership_hears(const struct membership *m, bool *knows_ours)
{
    return member_progress_hears(&m->progress, knows_ours);
}

bool membership_misproposed(const struct membership *m, uint32_t member)
{
    return member_progress_misproposed(&m->progress, member);
}

bool membership_silent(const struct membership *m, uint32_t member)
{
    return member_progress_silent(&m->progress, member);
}

bool membership_disk_fails(const struct membership *m, uint32_t member)
{
    return m->progress.seat[member].up && member_progress_disk_fails(&m->progress, member);
}

bool membership_catches_up(const struct membership *m, uint32_t member)
{
    return change_requests_catches_up(&m->requests, &m->progress, member);
}

uint32_t membership_partitioned_from(const struct membership *m, uint32_t member)
{
    return member_progress_partitioned_from(&m->progress, member);
}

bool membership_partitioned_text(const struct membership *m, uint32_t member, uint32_t owner, char *text,
                                 size_t text_bytes)
{
    return member_progress_partitioned_text(&m->progress, member, owner, text, text_bytes);
}

uint64_t membership_sealed_ms(const struct membership *m)
{
    return m->sealed_ms;
}

uint64_t membership_requested_ms(const struct membership *m)
{
    return m->requested_ms;
}

bool membership_pending(const struct membership *m, uint32_t *at, struct membership_pending *out)
{
    const struct waiting_order *waiting = order_pool_next(m->orders, at);
    if (waiting == NULL)
        return false;
    const struct order *order = &waiting->order;
    const struct config_member *by = config_member(last(m), order->signer);
    const struct config_member *about = order_about_member(order->kind) ? config_member(last(m), order->subject) : NULL;
    *out = (struct membership_pending){.order = order,
                                       .by = by != NULL ? by->name : "one that is gone",
                                       .about = about != NULL ? about->name : NULL,
                                       .ours = waiting->ours,
                                       .takes_approval = config_order_takes_approval(last(m), order),
                                       .needed = config_majority(last(m)),
                                       .for_ms = m->progress.now_ms - waiting->since_ms};
    if (out->takes_approval)
        out->approvals = order_pool_agree(last(m), order);
    for (uint32_t i = 0; out->takes_approval && i < order->approvals_count; i++)
        out->agreed |= order->approvals[i].id == id_of(m, self_of(m));
    return true;
}

uint32_t membership_voters(const struct membership *m, uint32_t *heard)
{
    *heard = member_progress_voters_heard(&m->progress);
    return config_voters(last(m));
}

/* Appends the names of voters: of others who have not promised yet, or of those who lack something. */
static void add_names(const struct membership *m, bool lacking, char *text, size_t text_bytes)
{
    const struct view *view = m->conf.view;
    for (uint32_t i = 0; i < view->count; i++) {
        const struct view_member *member = &view->members[i];
        bool asked = member->used && member->as.voter && i != view->self;
        bool named = !lacking && asked && !paxos_promised(m->paxos, member->as.id);
        for (uint32_t k = 0; lacking && member->used && k < m->lacking_count; k++)
            named |= m->lacking[k] == member->as.id;
        size_t at = strlen(text);
        if (named)
            snprintf(text + at, text_bytes - at, " %s", member->as.name);
    }
}

void membership_waits(const struct membership *m, char *text, size_t text_bytes)
{
    uint32_t proposer = view_slot(m->conf.view, paxos_ballot_id(m->conf.disk->vote.promised));
    text[0] = '\0';
    if (m->sealed_ms == 0 && m->requested_ms == 0)
        return;
    switch (paxos_state(m->paxos)) {
    case PAXOS_PREPARING:
        snprintf(text, text_bytes, "an answer of");
        add_names(m, false, text, text_bytes);
        break;
    case PAXOS_COMPOSING:
        snprintf(text, text_bytes,
                 m->lacking_count > 0 ? "what the next configuration rests on to be fetched by"
                                      : "what those hold who might take part");
        add_names(m, true, text, text_bytes);
        break;
    case PAXOS_ACCEPTING: snprintf(text, text_bytes, "a majority to accept the next configuration"); break;
    default:
        if (!membership_votes(m))
            snprintf(text, text_bytes, "those that vote, of which this island is none now");
        else if (proposer != VIEW_NOBODY && proposer != self_of(m))
            snprintf(text, text_bytes, "island %s, which proposes it", m->conf.view->members[proposer].as.name);
        else
            snprintf(text, text_bytes, "our turn to propose it");
        break;
    }
}
