/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control/control.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/env.h"
#include "common/ipc.h"
#include "common/log.h"
#include "common/mem.h"
#include "daemon/as_typed.h"
#include "daemon/control/status.h"
#include "daemon/rounds/keep.h"
#include "daemon/rounds/rounds.h"
#include "net/membership/wire_paxos.h"
#include "net/transport/address.h"

/* KEPT: of all places, for root and the user the daemon runs as. Who has neither asked anything nor taken of its answer
 * for IDLE loses its place; dilococtl asks once. */
enum { CLIENTS_MAX = 32, CLIENTS_KEPT = 8, REQUEST_BYTES_MAX = 1024, IDLE_MS = 30000 };

enum { INVITE_DAYS_MAX = 30, INVITE_SECONDS_MIN = 1, DAY_S = 86400 };
static const uint64_t STEPS_MAX = UINT64_C(1000000000000); /* as a run spec may say */

struct client {
    int fd; /* -1: free */
    bool privileged;
    uint64_t heard_ms; /* when something last came from it, or went to it */
    char request[REQUEST_BYTES_MAX];
    size_t request_bytes;
    char *answer; /* malloc'ed by jansson */
    size_t answer_bytes, answer_at;
};

struct control {
    struct control_conf conf;
    struct rounds *rounds; /* NULL: the plan is not known yet */
    uint64_t now_ms;
    int listen_fd;
    char *path;
    struct progress *progress;
    struct alike *alike;
    struct load load;
    bool draining; /* the trainer is leaving; when it has, the others are told */
    struct client clients[CLIENTS_MAX];
};

/* ---- commands ---- */

/* `words`: what stands after the command. `*answer`, as in docs/FORMATS.md, is the caller's; after a failure there is
 * none, and the text is fit to be told. */
typedef enum err command_fn(struct control *control, const char *words, json_t **answer);

static json_t *done(const char *text)
{
    return json_pack("{s:s}", "ok", text);
}

static enum err print_status(const struct control *control, json_t *(*print)(const struct status *status),
                             json_t **answer)
{
    struct status status;
    TRY(status_take(&control->conf.status, control->now_ms, &status));
    *answer = print(&status);
    status_deinit(&status);
    return ERR_OK;
}

static enum err command_status(struct control *control, const char *words, json_t **answer)
{
    (void)words;
    return print_status(control, status_json, answer);
}

static enum err command_peers(struct control *control, const char *words, json_t **answer)
{
    (void)words;
    return print_status(control, status_json_peers, answer);
}

static enum err command_fragments(struct control *control, const char *words, json_t **answer)
{
    (void)words;
    return print_status(control, status_json_fragments, answer);
}

/* What a witness has no part in. */
static enum err check_no_witness(const struct control *control)
{
    if (!view_is_witness(control->conf.status.view))
        return ERR_OK;
    return err_set(ERR_STATE, "this is the run's witness: it trains nothing and has no parameters; ask another island");
}

/* This island takes part (again). */
static void take_part_again(struct control *control)
{
    control->draining = false;
    if (peers_draining(control->conf.peers))
        peers_drain(control->conf.peers, false);
}

static enum err command_resume(struct control *control, const char *words, json_t **answer)
{
    (void)words;
    TRY(check_no_witness(control));
    TRY(trainer_join(control->conf.trainer, control->now_ms));
    take_part_again(control);
    *answer = done("the trainer is starting");
    return ERR_OK;
}

static enum err command_pause(struct control *control, const char *words, json_t **answer)
{
    char text[200] = "the trainer sends its last contributions and stops";
    struct trainer_leaving leaving;
    (void)words;
    TRY(check_no_witness(control));
    TRY(trainer_leave(control->conf.trainer, &leaving));
    if (leaving.steps > 0)
        snprintf(
            text, sizeof text,
            "the trainer trains on for %llu steps (about %.0f s), until its last contributions are due, and stops when "
            "they are counted",
            (unsigned long long)leaving.steps, leaving.seconds);
    *answer = done(text);
    return ERR_OK;
}

static enum err command_pause_now(struct control *control, const char *words, json_t **answer)
{
    char text[200];
    bool killed;
    (void)words;
    TRY(check_no_witness(control));
    TRY(trainer_leave_now(control->conf.trainer, &killed));
    snprintf(text, sizeof text,
             killed ? "the trainer is killed; what it has trained since its last checkpoint is lost"
                    : "the trainer saves and stops; if it does not within %.0f s it is killed, and at once if this is "
                      "said again",
             (double)control->conf.status.conf->stop_ms / 1000);
    *answer = done(text);
    return ERR_OK;
}

static enum err command_save(struct control *control, const char *words, json_t **answer)
{
    (void)words;
    TRY(check_no_witness(control));
    if (control->conf.status.recovers != NULL)
        return err_set(ERR_STATE, "this island still reads what it has saved: ask again when it has");
    if (control->rounds == NULL)
        return err_set(ERR_STATE,
                       "there is no anchor yet, for no trainer has been attached: ask again when it trains, as %s "
                       "status shows",
                       as_typed());
    keep_export(control->rounds->keep);
    *answer = done("the anchor is being written; status shows where");
    return ERR_OK;
}

/* ---- commands: invitations ---- */

/* Where a guest is to knock: as it was asked, as the configuration says, or what this machine can guess. */
static enum err find_addresses(const struct control *control, const char *asked, struct join_server_ask *ask)
{
    unsigned port = link_port(control->conf.status.link);
    const char *own = strcmp(asked, "-") != 0 ? asked : dconf_address(control->conf.status.conf);
    if (own[0] != '\0' && !address_good(own))
        return err_set(ERR_ARG, "\"%s\" is not host:port, as in oslo.example.org:7600", own);
    if (port == 0)
        return err_set(ERR_STATE, "this island does not listen ([net] listen is empty), so that nobody can knock here: "
                                  "invite from another island");
    if (own[0] != '\0') {
        snprintf(ask->addresses[0], sizeof ask->addresses[0], "%s", own);
        ask->addresses_count = 1;
        return ERR_OK;
    }
    ask->addresses_count = here_addresses(port, ask->addresses, INVITE_ADDRESSES_MAX);
    return ask->addresses_count > 0
               ? ERR_OK
               : err_set(ERR_STATE, "nobody has said where this island is reached: %s invite --address HOST:PORT",
                         as_typed());
}

/* INVITE_AS: it is none. */
static enum invite_as parse_as(const char *text)
{
    static const char *const names[INVITE_AS] = {
        [INVITE_AUTO] = "auto", [INVITE_OWNER] = "owner", [INVITE_CONTRIBUTOR] = "contributor"};
    enum invite_as as = INVITE_AUTO;
    while (as < INVITE_AS && strcmp(names[as], text) != 0)
        as++;
    return as;
}

/* `island`, DCONF_NAME_MAX + 1 bytes: the name that was said, or "". */
static enum err parse_ask(const struct control *control, const char *words, char *island, struct join_server_ask *ask)
{
    char address[WIRE_ADDRESS_BYTES] = "", as[16] = "";
    int used = 0;
    unsigned long long seconds = 0;
    _Static_assert(DCONF_NAME_MAX == 63, "the width below");
    if (sscanf(words, "%llu %255s %63s %15s%n", &seconds, address, island, as, &used) != 4 || parse_as(as) == INVITE_AS)
        return err_set(ERR_ARG, "invite SECONDS ADDRESS|- ISLAND|- auto|owner|contributor NOTE");
    if (seconds < INVITE_SECONDS_MIN || seconds > (unsigned long long)INVITE_DAYS_MAX * DAY_S)
        return err_set(ERR_ARG, "an invitation is good for %d second to %d days", INVITE_SECONDS_MIN, INVITE_DAYS_MAX);
    if (strcmp(island, "-") == 0)
        island[0] = '\0';
    else if (!dconf_name_good(island))
        return err_set(ERR_ARG, "\"%s\" is no island's name: 1 to %d letters, digits, '-' or '_'", island,
                       DCONF_NAME_MAX);
    *ask = (struct join_server_ask){
        .seconds = seconds, .island = island, .as = parse_as(as), .note = words + used + strspn(words + used, " ")};
    return find_addresses(control, address, ask);
}

static enum err invite(struct control *control, const struct join_server_ask *ask, json_t **answer)
{
    struct digest id;
    char text[INVITE_TEXT_BYTES], hex[DIGEST_HEX_BYTES];
    uint64_t wall_s = env_wall_ms() / 1000;
    TRY(join_server_invite(control->conf.join_server, ask, control->now_ms, wall_s, text, &id));
    json_t *addresses = json_array();
    for (uint32_t i = 0; i < ask->addresses_count; i++)
        json_array_append_new(addresses, json_string(ask->addresses[i]));
    *answer = json_pack("{s:s, s:s, s:s, s:s, s:I, s:o}", "ok", "the invitation is open", "token", text, "id",
                        digest_hex(&id, hex), "island", ask->island, "expires", (json_int_t)(wall_s + ask->seconds),
                        "addresses", addresses);
    return ERR_OK;
}

static enum err command_invite(struct control *control, const char *words, json_t **answer)
{
    struct join_server_ask ask;
    char island[DCONF_NAME_MAX + 1];
    TRY(parse_ask(control, words, island, &ask));
    if (island[0] == '\0' || view_slot_named(control->conf.status.view, island) == VIEW_NOBODY)
        return invite(control, &ask, answer);
    *answer = json_pack("{s:s, s:s, s:b}", "ok", "it is in the run already, and needs no token", "island", island,
                        "member", 1);
    return ERR_OK;
}

static enum err command_invites(struct control *control, const char *words, json_t **answer)
{
    (void)words;
    const struct invites *invites = join_server_invites(control->conf.join_server);
    uint64_t wall_s = env_wall_ms() / 1000;
    json_t *list = json_array();
    for (uint32_t i = 0; i < invites->count; i++) {
        const struct invite_row *row = &invites->rows[i];
        char hex[DIGEST_HEX_BYTES], by[IDENT_TEXT_BYTES] = "";
        if (row->redeemed)
            ident_text(row->by, by);
        json_int_t left = row->expiry_s > wall_s ? (json_int_t)(row->expiry_s - wall_s) : 0;
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:I, s:b, s:s}", "id", digest_hex(&row->id, hex),
                                              "island", row->island, "note", row->note, "seconds_left", left,
                                              "redeemed", row->redeemed, "by", by));
    }
    *answer = json_pack("{s:o}", "invites", list);
    return ERR_OK;
}

static enum err command_uninvite(struct control *control, const char *words, json_t **answer)
{
    TRY(join_server_revoke(control->conf.join_server, words));
    *answer = json_pack("{s:s}", "ok", "the invitation is revoked: nobody comes in by its token");
    return ERR_OK;
}

/* ---- commands: orders, which the voters carry out: `status` and `peers` show when ---- */

static uint32_t voters_of(const struct view *view)
{
    uint32_t voters = 0;
    for (uint32_t i = 0; i < view->count; i++)
        voters += view->members[i].used && view->members[i].as.voter;
    return voters;
}

/* What `peers` shows when it is done, and since when: for who waits. */
static json_t *ordered(const struct control *control, const char *text)
{
    uint32_t voters = voters_of(control->conf.status.view);
    return json_pack("{s:s, s:I, s:i, s:i}", "ok", text, "epoch", (json_int_t)control->conf.status.view->epoch,
                     "voters", (int)voters, "needed", (int)(voters / 2 + 1));
}

/* One of ours, which waits. */
static bool find_order(const struct control *control, uint64_t number, struct membership_pending *out)
{
    for (uint32_t at = 0; membership_pending(control->conf.membership, &at, out);)
        if (out->ours && out->order->number == number)
            return true;
    return false;
}

static enum err give(struct control *control, uint32_t kind, uint32_t subject, uint64_t value, const char *text,
                     json_t **answer)
{
    struct membership_pending pending;
    uint64_t number;
    char approved[300];
    TRY(membership_order(control->conf.membership, kind, subject, value, &number));
    bool takes_approval = find_order(control, number, &pending) && pending.takes_approval;
    if (takes_approval)
        snprintf(approved, sizeof approved,
                 "it takes the founder, or %" PRIu32 " of the islands that vote: at the others of these, dilococtl "
                 "approve %" PRIu64 " %s",
                 pending.needed, number, pending.by);
    *answer = ordered(control, takes_approval ? approved : text);
    json_object_set_new(*answer, "order", json_integer((json_int_t)number));
    json_object_set_new(*answer, "takes_approval", json_boolean(takes_approval));
    return ERR_OK;
}

/* ---- commands: orders about the run ---- */

/* The step that a result names, as far as is known here, or that this island's trainer has taken: what is counted
 * stays. A witness has only what others say. */
static uint64_t step_reached(const struct control *control)
{
    const struct status_conf *from = &control->conf.status;
    struct trainer_info trainer = trainer_info(from->trainer);
    uint64_t own = trainer.training ? trainer.step : 0;
    if (control->rounds == NULL)
        return view_is_witness(from->view) ? peers_furthest_said(from->peers, own) : own;
    uint64_t counted = rounds_step(control->rounds);
    return counted > own ? counted : own;
}

static enum err command_set(struct control *control, const char *words, json_t **answer)
{
    static const char key[] = "steps=";
    const char *number = words + strlen(key);
    char *end = NULL;
    if (strncmp(words, key, strlen(key)) != 0)
        return err_set(ERR_ARG, "set what? %s set steps=N is how many steps the run has", as_typed());
    errno = 0;
    unsigned long long steps = number[0] >= '0' && number[0] <= '9' ? strtoull(number, &end, 10) : 0;
    if (end == NULL || *end != '\0' || errno != 0 || steps < 1 || steps > STEPS_MAX)
        return err_set(ERR_ARG, "steps=%s: not a number of steps from 1 to %" PRIu64, number, STEPS_MAX);
    uint64_t reached = step_reached(control);
    if (steps <= reached)
        return err_set(ERR_STATE,
                       "steps=%llu: the run is at step %" PRIu64 " of %" PRIu64
                       ", and what is counted stays; take more "
                       "than that",
                       steps, reached, runspec_length(control->conf.status.spec));
    return give(control, ORDER_STEPS, 0, steps, "the voters are asked to have the run end there", answer);
}

static enum err command_pause_run(struct control *control, const char *words, json_t **answer)
{
    (void)words;
    return give(control, ORDER_PAUSE, 0, 0, "the voters are asked to have all trainers stand still", answer);
}

static enum err command_resume_run(struct control *control, const char *words, json_t **answer)
{
    (void)words;
    return give(control, ORDER_RESUME, 0, 0, "the voters are asked to let all trainers go on", answer);
}

/* ---- commands: orders about one member ---- */

static enum err find_member(const struct control *control, const char *name, uint32_t *slot)
{
    *slot = view_slot_named(control->conf.status.view, name);
    if (*slot != VIEW_NOBODY)
        return ERR_OK;
    return err_set(ERR_NOTFOUND, "no island called \"%.63s\" is on the roster; %s peers lists them", name, as_typed());
}

/* Orders about one member, by the command's name. */
static const struct about_member {
    const char *name;
    uint32_t kind;
    const char *text;
} about_members[] = {
    {"evict", ORDER_EVICT,
     "the voters are asked to go on without it; its key stays on the roster, so it comes back by itself once it has "
     "caught up"},
    {"revoke", ORDER_REVOKE,
     "the voters are asked to take its key off the roster; it comes back only with a new invitation"},
    {"owner", ORDER_OWNER, "the voters are asked to let it own shards and vote, as the run needs it"},
    {"contributor", ORDER_CONTRIBUTOR,
     "the voters are asked to take shards and vote from it; its work goes on counting"},
    {"grant", ORDER_GRANT, "the voters are asked to let it give orders"},
    {"ungrant", ORDER_UNGRANT, "the voters are asked to take no more orders from it"},
    {"founder", ORDER_FOUNDER, "the voters are asked to let it grant, in the founder's place"},
};

/* What it takes elsewhere, or would say nothing. */
static enum err check_subject(const struct control *control, const struct about_member *about, uint32_t slot)
{
    const struct view *view = control->conf.status.view;
    const char *name = view->members[slot].as.name;
    bool sends_away = about->kind == ORDER_EVICT || about->kind == ORDER_REVOKE;
    if (sends_away && slot == view->self)
        return err_set(ERR_ARG, "%s is this island itself; to leave the run, %s leave%s", name, as_typed(),
                       about->kind == ORDER_REVOKE ? ", and then revoke it at another island" : "");
    if (about->kind == ORDER_EVICT && view->members[slot].as.role == CONFIG_AWAY)
        return err_set(ERR_STATE, "%s takes no part just now; %s revoke %s takes its key off the roster", name,
                       as_typed(), name);
    if (about->kind == ORDER_EVICT && view->members[slot].as.role == CONFIG_WITNESS)
        return err_set(ERR_STATE,
                       "%s is the witness, which no round waits for; %s revoke %s takes its key off the roster", name,
                       as_typed(), name);
    return ERR_OK;
}

static enum err order_about(struct control *control, const char *name, const char *words, json_t **answer)
{
    const struct about_member *about = about_members;
    uint32_t slot;
    while (strcmp(about->name, name) != 0)
        about++;
    TRY(find_member(control, words, &slot));
    TRY(check_subject(control, about, slot));
    return give(control, about->kind, control->conf.status.view->members[slot].as.id, 0, about->text, answer);
}

static enum err command_evict(struct control *control, const char *words, json_t **answer)
{
    return order_about(control, "evict", words, answer);
}

static enum err command_revoke(struct control *control, const char *words, json_t **answer)
{
    return order_about(control, "revoke", words, answer);
}

static enum err command_owner(struct control *control, const char *words, json_t **answer)
{
    return order_about(control, "owner", words, answer);
}

static enum err command_contributor(struct control *control, const char *words, json_t **answer)
{
    return order_about(control, "contributor", words, answer);
}

static enum err command_grant(struct control *control, const char *words, json_t **answer)
{
    return order_about(control, "grant", words, answer);
}

static enum err command_ungrant(struct control *control, const char *words, json_t **answer)
{
    return order_about(control, "ungrant", words, answer);
}

static enum err command_founder(struct control *control, const char *words, json_t **answer)
{
    return order_about(control, "founder", words, answer);
}

/* ---- commands: another key ---- */

/* Somebody has made one for this island, or taken it back. */
static enum err state_key(struct control *control, json_t **answer)
{
    struct keyring *keyring = control->conf.keyring;
    enum err err = keyring_reload(keyring);
    peers_say(control->conf.peers);
    TRY(err);
    if (keyring_has(&keyring->asked))
        log_info("this island asks for the key %s; an operator has to order it", keyring->next.public_text);
    *answer = done(keyring_has(&keyring->asked) ? "this island asks for another key" : "this island keeps its key");
    json_object_set_new(*answer, "next_key", json_string(keyring->next.public_text));
    return ERR_OK;
}

/* "NAME KEY": that key alone is meant, though the island may ask for another one meanwhile. */
static enum err order_key(struct control *control, const char *words, json_t **answer)
{
    char name[DCONF_NAME_MAX + 1] = "", key[IDENT_TEXT_BYTES] = "", stated[IDENT_TEXT_BYTES];
    uint32_t slot;
    if (sscanf(words, "%63s %43s", name, key) != 2)
        return err_set(ERR_ARG, "rekey whom, to which key? %s rekey NAME shows it", as_typed());
    TRY(find_member(control, name, &slot));
    const struct config_member *as = &control->conf.status.view->members[slot].as;
    if (config_has_next(as))
        ident_text(as->next_key, stated);
    if (!config_has_next(as) || strcmp(stated, key) != 0)
        return err_set(ERR_STATE, "%s does not ask for this key, or not any more; %s rekey %s shows which", name,
                       as_typed(), name);
    return give(control, ORDER_REKEY, as->id, 0, "the voters are asked to give it the key that it asked for", answer);
}

static enum err command_rekey(struct control *control, const char *words, json_t **answer)
{
    return words[0] == '\0' ? state_key(control, answer) : order_key(control, words, answer);
}

/* "NUMBER", of this island, or "NUMBER ISLAND". `*signer`: its id. */
static enum err parse_order(const struct control *control, const char *words, uint64_t *number, uint32_t *signer)
{
    const struct view *view = control->conf.status.view;
    char island[DCONF_NAME_MAX + 1] = "";
    unsigned long long value = 0;
    uint32_t slot = view->self;
    if (sscanf(words, "%llu %63s", &value, island) < 1 || value == 0)
        return err_set(ERR_ARG, "an order is known by its number, and by the island that gave it: %s orders lists them",
                       as_typed());
    if (island[0] != '\0')
        TRY(find_member(control, island, &slot));
    *number = value;
    *signer = view->members[slot].as.id;
    return ERR_OK;
}

static enum err command_approve(struct control *control, const char *words, json_t **answer)
{
    uint64_t number;
    uint32_t signer;
    TRY(parse_order(control, words, &number, &signer));
    TRY(membership_approve(control->conf.membership, signer, number));
    *answer = ordered(control, "this island agrees; it is carried out when a majority of the islands that vote does");
    return ERR_OK;
}

static enum err command_withdraw(struct control *control, const char *words, json_t **answer)
{
    uint64_t number;
    uint32_t signer;
    TRY(parse_order(control, words, &number, &signer));
    if (signer != control->conf.status.view->members[control->conf.status.view->self].as.id)
        return err_set(ERR_ARG, "only the island that gave an order takes it back");
    TRY(membership_withdraw(control->conf.membership, number));
    *answer = ordered(
        control,
        "it is withdrawn: nobody can carry it out once the next configuration, which is asked for, says so; until then "
        "what is being decided, or an island that has not heard of this, may have it still");
    return ERR_OK;
}

static enum err command_orders(struct control *control, const char *words, json_t **answer)
{
    struct membership_pending pending;
    (void)words;
    json_t *list = json_array();
    for (uint32_t at = 0; membership_pending(control->conf.membership, &at, &pending);)
        json_array_append_new(list, status_json_order(&pending));
    *answer = json_pack("{s:o, s:o}", "orders", list, "rekeys", status_json_rekeys(control->conf.status.view));
    return ERR_OK;
}

/* ---- commands: leaving ---- */

static bool trains(const struct control *control)
{
    switch (trainer_phase(control->conf.trainer)) {
    case TRAINER_STARTING:
    case TRAINER_TRAINING:
    case TRAINER_FINISHING:
    case TRAINER_LEAVING:
    case TRAINER_RESTARTING: return true;
    default: return false;
    }
}

/* Whoever is left has to be able to go on. */
static enum err check_others(const struct control *control)
{
    const struct view *view = control->conf.status.view;
    for (uint32_t i = 0; i < view->count; i++)
        if (i != view->self && view->members[i].used && view->members[i].as.voter &&
            view->members[i].as.role != CONFIG_WITNESS)
            return ERR_OK;
    return err_set(ERR_STATE,
                   "no other island votes, so that the run would end with this one: invite another first; to "
                   "stop training here, %s pause",
                   as_typed());
}

static enum err pause_trainer(struct control *control, bool now)
{
    struct trainer_leaving leaving;
    bool killed;
    if (!trains(control))
        return ERR_OK;
    return now ? trainer_leave_now(control->conf.trainer, &killed) : trainer_leave(control->conf.trainer, &leaving);
}

static enum err command_leave(struct control *control, const char *words, json_t **answer)
{
    bool now = strcmp(words, "now") == 0;
    if (words[0] != '\0' && !now)
        return err_set(ERR_ARG, "leave, or leave now");
    if (view_is_witness(control->conf.status.view))
        return err_set(ERR_STATE, "a witness has nothing to hand over: stop it, or take it off the roster with "
                                  "dilococtl revoke at another island");
    TRY(check_others(control));
    TRY(pause_trainer(control, now));
    control->draining = true;
    *answer =
        ordered(control, trains(control) ? "the trainer's last contributions are counted, then this island leaves "
                                           "the run"
                                         : "this island leaves the run");
    return ERR_OK;
}

/* The trainer has left: now the others are told. */
static void go_on_leaving(struct control *control)
{
    if (!control->draining || trains(control) || peers_draining(control->conf.peers))
        return;
    log_info("this island leaves the run: the others take over what it owns");
    peers_drain(control->conf.peers, true);
}

/* ---- a line ---- */

struct command {
    const char *name;
    bool privileged, words;
    command_fn *run;
};

static const struct command commands[] = {
    {"status", false, false, command_status},
    {"peers", false, false, command_peers},
    {"fragments", false, false, command_fragments},
    {"resume", true, false, command_resume},
    {"pause", true, false, command_pause},
    {"pause now", true, false, command_pause_now},
    {"pause run", true, false, command_pause_run},
    {"resume run", true, false, command_resume_run},
    {"set", true, true, command_set},
    {"save", true, false, command_save},
    {"invite", true, true, command_invite},
    {"invites", true, false, command_invites},
    {"uninvite", true, true, command_uninvite},
    {"leave", true, true, command_leave},
    {"evict", true, true, command_evict},
    {"revoke", true, true, command_revoke},
    {"owner", true, true, command_owner},
    {"contributor", true, true, command_contributor},
    {"grant", true, true, command_grant},
    {"ungrant", true, true, command_ungrant},
    {"founder", true, true, command_founder},
    {"rekey", true, true, command_rekey},
    {"approve", true, true, command_approve},
    {"withdraw", true, true, command_withdraw},
    {"orders", false, false, command_orders},
};

/* What stands after the command; NULL: it is another one. */
static const char *words_after(const struct command *command, const char *line)
{
    size_t length = strlen(command->name);
    if (strcmp(line, command->name) == 0)
        return "";
    return command->words && strncmp(line, command->name, length) == 0 && line[length] == ' ' ? line + length + 1
                                                                                              : NULL;
}

static enum err run_command(struct control *control, const struct client *client, const char *line, json_t **answer)
{
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        const char *words = words_after(&commands[i], line);
        if (words == NULL)
            continue;
        if (commands[i].privileged && !client->privileged)
            return err_set(ERR_STATE, "%s is for root and the user the daemon runs as", commands[i].name);
        return commands[i].run(control, words, answer);
    }
    return err_set(ERR_ARG, "no command \"%.40s\"", line);
}

/* ---- clients ---- */

static void close_client(struct client *client)
{
    if (client->fd >= 0)
        close(client->fd);
    free(client->answer);
    *client = (struct client){.fd = -1};
}

static bool is_privileged(int fd)
{
    struct ucred who;
    socklen_t bytes = sizeof who;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) == 0 && (who.uid == 0 || who.uid == getuid());
}

/* A place for one more; NULL: there is none, or the last ones are kept for others. */
static struct client *find_place(struct control *control, bool privileged)
{
    struct client *place = NULL;
    size_t places = 0;
    for (size_t i = 0; i < CLIENTS_MAX; i++) {
        if (control->clients[i].fd >= 0)
            continue;
        if (places++ == 0)
            place = &control->clients[i];
    }
    return privileged || places > CLIENTS_KEPT ? place : NULL;
}

static void accept_client(struct control *control)
{
    static const char full[] = "{\"error\":\"too many programs ask at the same time; try again\",\"code\":\"again\"}\n";
    int fd = accept4(control->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    bool privileged = is_privileged(fd);
    struct client *client = find_place(control, privileged);
    if (client == NULL) {
        (void)!send(fd, full, sizeof full - 1, MSG_NOSIGNAL);
        close(fd);
        return;
    }
    client->fd = fd;
    client->privileged = privileged;
    client->heard_ms = control->now_ms;
}

static void write_answer(struct client *client, uint64_t now_ms)
{
    while (client->answer != NULL) {
        ssize_t put = send(client->fd, client->answer + client->answer_at, client->answer_bytes - client->answer_at,
                           MSG_NOSIGNAL);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0 && errno == EAGAIN)
            return;
        if (put < 0) {
            close_client(client);
            return;
        }
        client->answer_at += (size_t)put;
        client->heard_ms = now_ms;
        if (client->answer_at < client->answer_bytes)
            continue;
        free(client->answer);
        client->answer = NULL;
        client->answer_at = client->answer_bytes = 0;
    }
}

static void answer_request(struct control *control, struct client *client)
{
    json_t *json = NULL;
    enum err err = run_command(control, client, client->request, &json);
    if (err != ERR_OK)
        json = json_pack("{s:s, s:s}", "error", err_text(), "code", err_name(err));
    char *text = json != NULL ? json_dumps(json, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
    json_decref(json);
    if (text == NULL) {
        close_client(client);
        return;
    }
    size_t bytes = strlen(text);
    text[bytes] = '\n'; /* in place of the NUL: a line is what ends an answer */
    client->answer = text;
    client->answer_bytes = bytes + 1;
    client->answer_at = 0;
    write_answer(client, control->now_ms);
}

static void read_requests(struct control *control, struct client *client)
{
    while (client->fd >= 0 && client->answer == NULL) {
        char *end = memchr(client->request, '\n', client->request_bytes);
        if (end != NULL) {
            size_t used = (size_t)(end - client->request) + 1;
            *end = '\0';
            answer_request(control, client);
            if (client->fd < 0)
                return;
            client->request_bytes -= used;
            memmove(client->request, client->request + used, client->request_bytes);
            continue;
        }
        if (client->request_bytes == sizeof client->request) {
            close_client(client);
            return;
        }
        ssize_t got = recv(client->fd, client->request + client->request_bytes,
                           sizeof client->request - client->request_bytes, 0);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (got <= 0) {
            close_client(client);
            return;
        }
        client->request_bytes += (size_t)got;
        client->heard_ms = control->now_ms;
    }
}

/* ---- the interface ---- */

static enum err open_socket(struct control *control)
{
    TRY(mem_printf(&control->path, "%s/control.sock", control->conf.folder));
    TRY(ipc_listen(control->path, SOCK_STREAM, &control->listen_fd));
    /* Who may do what is judged by the peer's user. */
    return chmod(control->path, 0666) == 0 ? ERR_OK : err_set_errno(ERR_CONF, "%s: cannot open it", control->path);
}

enum err control_new(const struct control_conf *conf, struct control **out)
{
    struct control *control;
    *out = NULL;
    TRY(mem_new(1, sizeof *control, "the control socket", &control));
    control->conf = *conf;
    control->listen_fd = -1;
    for (size_t i = 0; i < CLIENTS_MAX; i++)
        control->clients[i].fd = -1;
    enum err err = progress_new(&control->progress);
    if (err == ERR_OK)
        err = alike_new(&control->alike);
    control->conf.status.progress = control->progress;
    control->conf.status.alike = control->alike;
    control->conf.status.load = &control->load;
    if (err == ERR_OK)
        err = open_socket(control);
    if (err != ERR_OK)
        control_free(control);
    else
        *out = control;
    return err;
}

void control_free(struct control *control)
{
    if (control == NULL)
        return;
    for (size_t i = 0; i < CLIENTS_MAX; i++)
        close_client(&control->clients[i]);
    if (control->listen_fd >= 0) {
        close(control->listen_fd);
        unlink(control->path);
    }
    progress_free(control->progress);
    alike_free(control->alike);
    mem_free(control->path);
    mem_free(control);
}

void control_recovers(struct control *control, const struct rounds *rounds)
{
    control->conf.status.recovers = rounds;
}

void control_plan_known(struct control *control, const struct control_plan *plan)
{
    struct status_conf *status = &control->conf.status;
    status->recovers = NULL;
    control->rounds = plan->rounds;
    status->plan = plan->plan;
    status->sync = plan->sync;
    status->rounds = plan->rounds;
    status->replica = plan->replica;
    status->parts = plan->parts;
    status->memory_bytes = plan->memory_bytes;
}

size_t control_poll(const struct control *control, struct pollfd *items, size_t items_max)
{
    size_t count = 0;
    if (items_max == 0)
        return 0;
    items[count++] = (struct pollfd){.fd = control->listen_fd, .events = POLLIN};
    for (size_t i = 0; i < CLIENTS_MAX && count < items_max; i++)
        if (control->clients[i].fd >= 0)
            items[count++] = (struct pollfd){.fd = control->clients[i].fd,
                                             .events = control->clients[i].answer != NULL ? POLLOUT : POLLIN};
    return count;
}

void control_run(struct control *control, uint64_t now_ms)
{
    control->now_ms = now_ms;
    go_on_leaving(control);
    accept_client(control);
    for (size_t i = 0; i < CLIENTS_MAX; i++) {
        struct client *client = &control->clients[i];
        if (client->fd >= 0)
            write_answer(client, now_ms);
        if (client->fd >= 0)
            read_requests(control, client);
        if (client->fd >= 0 && now_ms >= client->heard_ms + IDLE_MS)
            close_client(client);
    }
}

void control_sample(struct control *control, uint64_t now_ms)
{
    const struct status_conf *from = &control->conf.status;
    struct trainer_info trainer = trainer_info(from->trainer);
    load_note(&control->load, now_ms, env_process_cpu_ns());
    alike_note(control->alike, from->view, from->peers, from->trainer);
    if (from->sync != NULL)
        progress_note(control->progress, from->sync, from->plan->plan->fragments_count, from->view->count,
                      peers_furthest_said(from->peers, trainer.training ? trainer.step : 0), now_ms);
}

void control_line(const struct control *control, uint64_t now_ms, char *line, size_t line_bytes)
{
    struct status status;
    if (status_take(&control->conf.status, now_ms, &status) != ERR_OK) {
        snprintf(line, line_bytes, "degraded: %s", err_text());
        return;
    }
    status_line(&status, line, line_bytes);
    status_deinit(&status);
}
