/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/membership/dial_server.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "common/env.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/quota.h"
#include "net/transport/dial_back.h"
#include "net/transport/invite.h"

/* For members that invite: a network's ports are not looked through by way of us. */
static const struct quota_rule asked_rule = {.every_ms = DIALS_ASKED_MS, .at_once = DIALS_ASKED_MAX};
static const struct quota_rule dials_rule = {.every_ms = DIALS_EVERY_MS, .at_once = DIALS_BURST};
/* Questions that are remembered: those under way, and what came of those before them, for who asks again. */
enum { PLACES = 4 * DIALS_AT_ONCE };

/* A dialling of our own. */
struct dialling {
    struct job job;
    struct dial_server *server;
    uint64_t serial; /* of its question */
    struct wire_join join;
    enum wire_dial_outcome outcome;
    uint32_t took_ms;
};

/* A question. */
struct question {
    bool used;
    struct wire_join join;
    uint64_t serial;     /* higher: asked later */
    uint32_t member;     /* id of the operator that asks for its guest; CONFIG_NOBODY: a guest asks */
    uint64_t connection; /* of the guest */
    bool under_way;      /* we dial */
    uint32_t other;      /* id of the owner that was asked to dial, too; CONFIG_NOBODY: none was */
    uint64_t other_ms;   /* until when it is waited for */
    bool other_waits;    /* it has not answered */
    bool answered;       /* the answer is known, and was sent */
    struct wire_dial_report own, others;
};

/* How often an invitation has made us dial. */
struct token {
    struct digest invitation;
    uint32_t dials; /* 0: a free place */
};

struct dial_server {
    struct dial_server_conf conf;
    struct job_pool jobs;
    struct question questions[PLACES];
    struct token tokens[INVITES_MAX];
    struct quota quota;
    struct quota asked; /* by other members */
    atomic_bool stops;  /* looked at by the jobs, too */
    struct bitset silent;
    uint64_t serial;
    uint32_t turn; /* of owners that are asked */
};

/* ---- life ---- */

enum err dial_server_new(const struct dial_server_conf *conf, struct dial_server **out)
{
    struct dial_server *server;
    *out = NULL;
    TRY(mem_new(1, sizeof *server, "membership", &server));
    server->conf = *conf;
    server->jobs.job_bytes = sizeof(struct dialling);
    *out = server;
    return ERR_OK;
}

void dial_server_free(struct dial_server *server)
{
    if (server == NULL)
        return;
    job_pool_deinit(&server->jobs);
    mem_free(server);
}

/* ---- answers ---- */

static void send_member(struct dial_server *server, uint32_t id, enum wire_type type, const uint8_t *bytes,
                        size_t bytes_count)
{
    uint32_t slot = view_slot(server->conf.view, id);
    if (slot == VIEW_NOBODY || link_send(server->conf.link, slot, type, bytes, bytes_count, NULL, 0) != ERR_OK)
        log_debug("about dialling a newcomer island id %" PRIu32 " is not told", id);
}

static void answer(struct dial_server *server, const struct question *question)
{
    uint8_t bytes[WIRE_JOIN_BYTES_MAX];
    struct wire_dial_response response = {.reports = {question->own, question->others}, .reports_count = 1};
    wire_dial_tag(&question->join, response.request);
    if (question->member == CONFIG_NOBODY && question->other != CONFIG_NOBODY && !question->other_waits)
        response.reports_count = 2;
    size_t count = wire_dial_response_pack(&response, bytes);
    if (question->member != CONFIG_NOBODY)
        send_member(server, question->member, WIRE_DIAL_RESPONSE, bytes, count);
    else if (link_guest_send(server->conf.link, question->connection, WIRE_DIAL_RESPONSE, bytes, count) != ERR_OK)
        log_debug("guest %s is gone: %s", question->join.name, err_text()); /* it asks again */
}

static void answer_if_known(struct dial_server *server, struct question *question)
{
    if (!question->used || question->answered || question->under_way || question->other_waits)
        return;
    question->answered = true;
    if (question->member == CONFIG_NOBODY)
        log_info("guest %s states the address %s: %s", question->join.name, question->join.word.address,
                 dial_outcome_text(question->own.outcome));
    answer(server, question);
}

/* ---- questions ---- */

/* `member`: who asked, as in struct question. */
static struct question *question_of(struct dial_server *server, uint32_t member, const uint8_t tag[WIRE_DIAL_TAG_BYTES])
{
    for (uint32_t i = 0; i < PLACES; i++) {
        struct question *question = &server->questions[i];
        if (question->used && question->member == member &&
            memcmp(question->join.signature, tag, WIRE_DIAL_TAG_BYTES) == 0)
            return question;
    }
    return NULL;
}

static struct question *question_by_serial(struct dial_server *server, uint64_t serial)
{
    for (uint32_t i = 0; i < PLACES; i++)
        if (server->questions[i].used && server->questions[i].serial == serial)
            return &server->questions[i];
    return NULL;
}

/* The place of a new one: a free one, or that of the oldest that is answered; NULL: as many as can be are open. */
static struct question *place(struct dial_server *server)
{
    struct question *oldest = NULL;
    uint32_t open = 0;
    for (uint32_t i = 0; i < PLACES; i++) {
        struct question *question = &server->questions[i];
        open += question->used && !question->answered;
        if (question->used && !question->answered)
            continue;
        if (oldest == NULL || (oldest->used && (!question->used || question->serial < oldest->serial)))
            oldest = question;
    }
    return open < DIALS_AT_ONCE ? oldest : NULL;
}

static struct token *token_of(struct dial_server *server, const struct digest *invitation)
{
    struct token *free = NULL;
    for (uint32_t i = 0; i < INVITES_MAX; i++) {
        struct token *token = &server->tokens[i];
        if (token->dials > 0 && digest_equal(&token->invitation, invitation))
            return token;
        if (token->dials == 0)
            free = token;
    }
    return free;
}

void dial_server_stop(struct dial_server *server)
{
    atomic_store(&server->stops, true);
}

void dial_server_forget(struct dial_server *server, const struct digest *invitation)
{
    for (uint32_t i = 0; i < INVITES_MAX; i++)
        if (digest_equal(&server->tokens[i].invitation, invitation))
            server->tokens[i].dials = 0;
}

/* A member that asks has a budget of its own (daemon/peers/budget.h) beside this. */
static bool may_dial(struct dial_server *server, const struct question *question, uint64_t now_ms)
{
    struct token *token = question->member == CONFIG_NOBODY ? token_of(server, &question->join.invitation) : NULL;
    const struct view *view = server->conf.view;
    if (atomic_load(&server->stops) ||
        (question->member == CONFIG_NOBODY && (token == NULL || token->dials >= DIALS_TOKEN_MAX)))
        return false;
    if (question->member != CONFIG_NOBODY &&
        (view->members[view->self].as.role != CONFIG_OWNER || !quota_take(&server->asked, asked_rule, now_ms)))
        return false;
    if (!quota_take(&server->quota, dials_rule, now_ms))
        return false;
    if (token != NULL) {
        token->invitation = question->join.invitation;
        token->dials++;
    }
    return true;
}

/* ---- dialling ---- */

static enum err run_dial(struct job *job, struct jobs_scratch *scratch)
{
    struct dialling *j = (struct dialling *)job;
    (void)scratch;
    j->outcome = WIRE_DIAL_UNTESTED;
    if (!atomic_load(&j->server->stops)) /* nor of those that have waited for the one before */
        j->outcome = dial_back(&j->join, &j->took_ms);
    return ERR_OK;
}

static void done_dial(struct job *job)
{
    struct dialling *j = (struct dialling *)job;
    struct dial_server *server = j->server;
    struct question *question = question_by_serial(server, j->serial);
    if (question != NULL) {
        question->under_way = false;
        question->own.outcome = (uint8_t)j->outcome;
        question->own.took_ms = j->took_ms;
        answer_if_known(server, question);
    }
    job_pool_give(&server->jobs, j);
}

static void begin_dial(struct dial_server *server, struct question *question)
{
    struct dialling *j = job_pool_take(&server->jobs);
    if (j == NULL)
        return; /* it is not tested */
    j->job.work = JOBS_DIAL;
    j->job.run = run_dial;
    j->job.done = done_dial;
    j->server = server;
    j->join = question->join;
    j->serial = question->serial;
    question->under_way = true;
    jobs_submit(server->conf.jobs, &j->job);
}

/* ---- another owner ---- */

/* Who is heard; in turn. */
static uint32_t other_owner(struct dial_server *server)
{
    const struct view *view = server->conf.view;
    for (uint32_t k = 0; k < view->count; k++) {
        uint32_t slot = (server->turn + k) % view->count;
        const struct view_member *member = &view->members[slot];
        if (slot == view->self || !member->used || member->leaving || member->as.role != CONFIG_OWNER ||
            bitset_has(&server->silent, slot) || !link_up(server->conf.link, slot, false))
            continue;
        server->turn = slot + 1;
        return slot;
    }
    return VIEW_NOBODY;
}

static void ask_other(struct dial_server *server, struct question *question, uint64_t now_ms)
{
    uint8_t bytes[WIRE_JOIN_BYTES_MAX];
    uint32_t slot = other_owner(server);
    if (slot == VIEW_NOBODY)
        return;
    size_t count = wire_join_pack(&question->join, bytes);
    if (link_send(server->conf.link, slot, WIRE_DIAL_REQUEST, bytes, count, NULL, 0) != ERR_OK)
        return;
    const struct config_member *as = &server->conf.view->members[slot].as;
    question->other = as->id;
    question->other_waits = true;
    question->other_ms = now_ms + DIALS_OTHER_MS;
    snprintf(question->others.island, sizeof question->others.island, "%s", as->name);
}

/* ---- what comes in ---- */

static const char *own_name(const struct dial_server *server)
{
    const struct view *view = server->conf.view;
    return view->self != VIEW_NOBODY ? view->members[view->self].as.name : "";
}

/* One that is too much is answered at once, and not remembered. */
static void begin(struct dial_server *server, const struct wire_join *join, uint32_t member, uint64_t connection,
                  uint64_t now_ms)
{
    struct question *at = place(server), question = {.used = true,
                                                     .join = *join,
                                                     .serial = ++server->serial,
                                                     .member = member,
                                                     .connection = connection,
                                                     .other = CONFIG_NOBODY};
    if (member == CONFIG_NOBODY)
        snprintf(question.own.island, sizeof question.own.island, "%s", own_name(server));
    if (at == NULL || join->word.address[0] == '\0' || !may_dial(server, &question, now_ms)) {
        answer(server, &question);
        return;
    }
    *at = question;
    begin_dial(server, at);
    if (member == CONFIG_NOBODY && at->under_way)
        ask_other(server, at, now_ms);
    answer_if_known(server, at);
}

void dial_server_ask(struct dial_server *server, const struct wire_join *join, uint64_t connection, uint64_t now_ms)
{
    struct question *question = question_of(server, CONFIG_NOBODY, join->signature);
    if (question == NULL) {
        begin(server, join, CONFIG_NOBODY, connection, now_ms);
        return;
    }
    question->connection = connection;
    if (question->answered)
        answer(server, question);
}

static enum err request_in(struct dial_server *server, const struct config_member *from, const void *bytes,
                           size_t bytes_count, uint64_t now_ms)
{
    struct wire_join join;
    TRY(wire_join_unpack(bytes, bytes_count, &join));
    if (!from->operates) /* nobody else invites */
        return err_set(ERR_PROTO, "it asks for a newcomer to be dialled, and is no operator");
    if (question_of(server, from->id, join.signature) != NULL)
        return ERR_OK;
    if (!wire_dial_request_signed(&join, server->conf.view->nonce))
        return err_set(ERR_PROTO, "it asks for a newcomer to be dialled that has not asked for it");
    begin(server, &join, from->id, 0, now_ms);
    return ERR_OK;
}

static enum err response_in(struct dial_server *server, const struct config_member *from, const void *bytes,
                            size_t bytes_count)
{
    struct wire_dial_response response;
    TRY(wire_dial_response_unpack(bytes, bytes_count, &response));
    struct question *question = question_of(server, CONFIG_NOBODY, response.request);
    if (question == NULL || !question->other_waits || question->other != from->id)
        return ERR_OK; /* it comes too late */
    question->other_waits = false;
    question->others.outcome = response.reports[0].outcome;
    question->others.took_ms = response.reports[0].took_ms;
    answer_if_known(server, question);
    return ERR_OK;
}

enum err dial_server_message_in(struct dial_server *server, uint32_t slot, uint32_t type, const void *bytes,
                                size_t bytes_count, uint64_t now_ms)
{
    const struct config_member *from = &server->conf.view->members[slot].as;
    return type == WIRE_DIAL_REQUEST ? request_in(server, from, bytes, bytes_count, now_ms)
                                     : response_in(server, from, bytes, bytes_count);
}

void dial_server_tick(struct dial_server *server, const struct bitset *silent, uint64_t now_ms)
{
    server->silent = *silent;
    for (uint32_t i = 0; i < PLACES; i++) {
        struct question *question = &server->questions[i];
        if (!question->used || !question->other_waits || now_ms < question->other_ms)
            continue;
        question->other_waits = false;
        question->other = CONFIG_NOBODY; /* of one that says nothing there is nothing to say */
        answer_if_known(server, question);
    }
}
