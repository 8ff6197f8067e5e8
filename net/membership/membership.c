/* SPDX-License-Identifier: Apache-2.0 */
#include "net/membership/membership.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "common/mem.h"
#include "net/config/config_orders.h"
#include "net/config/config_proof.h"
#include "net/membership/change_requests.h"
#include "net/membership/evidence_pool.h"
#include "net/membership/member_progress.h"
#include "net/membership/order_pool.h"
#include "net/membership/outbox.h"
#include "net/membership/own_answer.h"
#include "net/membership/own_said.h"
#include "net/membership/own_vote.h"
#include "net/membership/paxos.h"
#include "net/membership/promise_reports.h"
#include "net/membership/proposer.h"
#include "net/membership/received_message.h"

/* TURN: how long the next voter waits for the one before it. FAREWELL: so long the connection to one that is off the
 * roster stands, or it might never hear of it. */
enum { TURN_MS = 1000, FAREWELL_MS = 200 };
/* For each so many members we look that much less often whether another configuration would differ. */
enum { LOOK_MEMBERS = 128, LOOK_MS = 100 };
/* Configurations in answer to one question, and their bytes, but for the first. */
enum { CONFIG_LOG_MOST = 64, CONFIG_LOG_BYTES_MOST = 4 << 20 };

struct membership {
    struct membership_conf conf;
    struct sync *sync; /* NULL: the run's plan is not known yet */
    struct paxos *paxos;
    struct promise_reports *reports; /* what members answered in our ballot */
    struct member_progress progress;
    struct change_requests requests;
    struct order_pool *orders;
    struct evidence_pool evidence;
    struct proposer proposer;
    struct received_message_conf received;
    struct own_answer answer;
    struct own_said said; /* for our greeting */
    struct outbox outbox;
    uint64_t saving;    /* number of the last vote that went to the disk in this epoch, until it is durable; 0: none */
    uint64_t saved;     /* number of a vote that is durable, to be told net/membership/paxos; 0: none */
    bool compose;       /* ordered */
    bool take_over;     /* ordered: what all voters hold together is to be here */
    uint64_t sealed_ms; /* since when we are sealed; 0: we are not */
    uint64_t requested_ms; /* since when another configuration would say something else; 0: it would not */
    uint64_t look_ms;      /* when that is looked at again */
    bool taken;            /* `config` is decided and waits to be taken */
    uint64_t farewell_ms;  /* before this the host is not told of it; 0: it is told */
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

bool membership_votes(const struct membership *m)
{
    return own_vote_may(&m->progress);
}

/* ---- out ---- */

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
        outbox_send(&m->outbox, to, &out);
        bytes += entry.bytes_count;
        config_entry_free(&entry);
    }
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
    outbox_tell_of(&m->outbox, MEMBERSHIP_WANTS);
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
    (void)outbox_failed(&m->outbox, m->conf.host->keep_config(m->conf.user, &entry),
                        "keeping a configuration that was decided");
}

static void end_doubt(struct membership *m, uint64_t trusted_epoch)
{
    if (!own_vote_settle(&m->progress, &m->outbox, trusted_epoch))
        return;
    if (m->sync != NULL)
        sync_set_votes(m->sync, membership_votes(m));
    outbox_tell_of(&m->outbox, MEMBERSHIP_VOTES);
}

static void carry_out(struct membership *m, uint64_t now_ms)
{
    struct paxos_action action;
    while (paxos_action(m->paxos, &action)) {
        switch (action.type) {
        case PAXOS_DO_SAVE: save_vote(m, &action); break;
        case PAXOS_DO_SEND:
            own_answer_complete(&m->answer, &action.message);
            outbox_send(&m->outbox, action.to, &action.message);
            break;
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
    (void)outbox_failed(&m->outbox, paxos_step(m->paxos, event, now_ms), "the next epoch");
    carry_out(m, now_ms);
}

static void take_in(struct membership *m, uint32_t member, struct paxos_message *message, uint64_t now_ms);

static void take_own(struct membership *m, uint64_t now_ms)
{
    struct paxos_message message;
    struct own_message own = outbox_take_own(&m->outbox);
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
    while (m->saved != 0 || m->compose || m->take_over || m->outbox.own_count > 0) {
        if (m->saved != 0) {
            struct paxos_event event = {.type = PAXOS_EV_SAVED, .number = m->saved, .good = true};
            m->saved = 0;
            step(m, &event, now_ms);
        } else if (m->outbox.own_count > 0) {
            take_own(m, now_ms);
        } else if (m->take_over) {
            take_over(m, now_ms);
        } else {
            m->compose = false;
            (void)outbox_failed(&m->outbox, proposer_compose(&m->proposer, now_ms), "composing the next configuration");
            carry_out(m, now_ms);
        }
    }
}

/* ---- in ---- */

/* To all voters that can be heard. */
static void tell_voters(struct membership *m, const struct paxos_message *message)
{
    const struct view *view = m->conf.view;
    for (uint32_t i = 0; i < view->count; i++)
        if (i != view->self && m->progress.seat[i].up && view->members[i].as.voter)
            outbox_send(&m->outbox, view->members[i].as.id, message);
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
        outbox_tell(&m->outbox,
                    &(struct membership_news){
                        .type = MEMBERSHIP_ORDER_REFUSED, .member = member, .order = order, .text = err_text()});
    return err;
}

static void ask_in(struct membership *m, uint32_t member, const struct paxos_message *in)
{
    enum err err = in->type == WIRE_EVIDENCE ? evidence_pool_take(&m->evidence, in->id, in->bytes, in->bytes_count)
                                             : order_in(m, member, in->order);
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
    else if (!m->taken && received_message_judge(&m->received, member, message, now_ms, &event.good))
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
    outbox_tell_of(&m->outbox, MEMBERSHIP_DECIDED);
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
        outbox_tell(&m->outbox, &(struct membership_news){
                                    .type = MEMBERSHIP_ORDERED, .order = &m->config.orders[i], .config = last(m)});
    struct paxos_message out = decided_message(entry);
    for (uint32_t i = 0; i < view->count; i++)
        if (i != view->self && m->progress.seat[i].up && m->progress.seat[i].epoch <= last(m)->epoch)
            outbox_send(&m->outbox, view->members[i].as.id, &out);
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
        evidence_pool_tell(&m->evidence, member);
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
    (void)outbox_failed(&m->outbox, membership_begin(m, now_ms), "the next epoch");
}

/* Once each time, on every island that sees it. */
static void tell_partitioned(struct membership *m)
{
    for (uint32_t i = 0; i < m->conf.view->count; i++) {
        uint32_t from = member_progress_partitioned_from(&m->progress, i);
        bool new = from != VIEW_NOBODY && !m->progress.seat[i].partitioned_told;
        m->progress.seat[i].partitioned_told = from != VIEW_NOBODY;
        if (new)
            outbox_tell(&m->outbox,
                        &(struct membership_news){.type = MEMBERSHIP_PARTITIONED, .member = i, .from = from});
    }
}

/* Likewise; our own disk says more itself. */
static void tell_disks(struct membership *m)
{
    for (uint32_t i = 0; i < m->conf.view->count; i++) {
        struct seat *seat = &m->progress.seat[i];
        bool fails = m->conf.view->members[i].used && seat->up && seat->disk_fails;
        if (fails && !seat->disk_told)
            outbox_tell(&m->outbox, &(struct membership_news){.type = MEMBERSHIP_DISK_FAILS, .member = i});
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
        outbox_tell(&m->outbox, &(struct membership_news){.type = MEMBERSHIP_ORDER_ENDED, .order = order, .text = why});
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
    evidence_pool_tick(&m->evidence, now_ms);
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
    evidence_pool_equivocation(&m->evidence, owner, fragment, version);
}

/* ---- words ---- */

enum err membership_word(struct membership *m, uint32_t member, const struct member_word *word)
{
    return member_progress_word(&m->progress, member, word);
}

static void sign_own_word(struct membership *m)
{
    struct seat *seat = &m->progress.seat[self_of(m)];
    (void)outbox_failed(&m->outbox,
                        own_said_sign(&m->said, m->conf.ident, config_member(last(m), id_of(m, self_of(m)))),
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
    proposer_begin(&m->proposer);
    m->sealed_ms = m->requested_ms = m->look_ms = 0;
    m->compose = m->take_over = false;
    m->saving = m->saved = 0;
}

enum err membership_begin(struct membership *m, uint64_t now_ms)
{
    const struct config *config = last(m);
    uint32_t voters[PAXOS_VOTERS_MAX], count = 0;
    for (uint32_t i = 0; i < config->members_count; i++)
        if (config->members[i].voter && count < PAXOS_VOTERS_MAX)
            voters[count++] = config->members[i].id;
    own_vote_begin(&m->progress, &m->outbox);
    member_progress_begin(&m->progress, now_ms);
    TRY(evidence_pool_load(&m->evidence));
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

/* The parts that rest on the others. */
static void join_parts(struct membership *m)
{
    m->evidence = (struct evidence_pool){.progress = &m->progress, .outbox = &m->outbox};
    m->proposer = (struct proposer){.progress = &m->progress,
                                    .requests = &m->requests,
                                    .orders = m->orders,
                                    .reports = m->reports,
                                    .paxos = m->paxos,
                                    .outbox = &m->outbox};
    m->received = (struct received_message_conf){.progress = &m->progress,
                                                 .paxos = m->paxos,
                                                 .proposer = &m->proposer,
                                                 .reports = m->reports,
                                                 .outbox = &m->outbox,
                                                 .sealed_ms = &m->sealed_ms};
    m->answer.ident = m->conf.ident;
    m->answer.progress = &m->progress;
    m->answer.requests = &m->requests;
    m->answer.orders = m->orders;
    m->answer.reports = m->reports;
    m->answer.outbox = &m->outbox;
}

enum err membership_new(const struct membership_conf *conf, struct membership **out)
{
    enum err err;
    struct membership *m = NULL;
    *out = NULL;
    TRY_OUT(mem_new(1, sizeof *m, "membership", &m));
    m->conf = *conf;
    m->outbox = (struct outbox){.view = conf->view, .host = conf->host, .user = conf->user};
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
    join_parts(m);
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
    outbox_deinit(&m->outbox);
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
    m->proposer.shards_counts = shards_counts;
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

struct key_turns_heard membership_hears(const struct membership *m)
{
    return member_progress_hears(&m->progress);
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

void membership_waits(const struct membership *m, char *text, size_t text_bytes)
{
    uint32_t proposer = view_slot(m->conf.view, paxos_ballot_id(m->conf.disk->vote.promised));
    text[0] = '\0';
    if (m->sealed_ms == 0 && m->requested_ms == 0)
        return;
    if (proposer_waits(&m->proposer, text, text_bytes))
        return;
    if (!membership_votes(m))
        snprintf(text, text_bytes, "those that vote, of which this island is none now");
    else if (proposer != VIEW_NOBODY && proposer != self_of(m))
        snprintf(text, text_bytes, "island %s, which proposes it", m->conf.view->members[proposer].as.name);
    else
        snprintf(text, text_bytes, "our turn to propose it");
}
