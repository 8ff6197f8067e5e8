/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control/members.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/as_typed.h"
#include "common/env.h"
#include "common/log.h"
#include "net/transport/address.h"
#include "net/transport/here.h"
#include "net/membership/wire_epoch.h"

enum { INVITE_DAYS_MAX = 30, INVITE_SECONDS_MIN = 1, DAY_S = 86400, TEXT_BYTES = 512 };

/* ---- invitations ---- */

/* Where a guest is to knock: as it was asked, as the configuration says, or what this machine can guess. */
static enum err find_addresses(const struct members *members, const char *asked, struct doorway_ask *ask)
{
    unsigned port = link_port(members->link);
    const char *own = strcmp(asked, "-") != 0 ? asked : dconf_address(members->conf);
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

static enum err parse_ask(const struct members *members, const char *words, struct doorway_ask *ask)
{
    char address[WIRE_ADDRESS_BYTES] = "";
    int used = 0;
    unsigned long long seconds = 0;
    if (sscanf(words, "%llu %255s%n", &seconds, address, &used) != 2)
        return err_set(ERR_ARG, "invite SECONDS ADDRESS|- NOTE");
    if (seconds < INVITE_SECONDS_MIN || seconds > (unsigned long long)INVITE_DAYS_MAX * DAY_S)
        return err_set(ERR_ARG, "an invitation is good for %d second to %d days", INVITE_SECONDS_MIN, INVITE_DAYS_MAX);
    *ask = (struct doorway_ask){.seconds = seconds, .note = words + used + strspn(words + used, " ")};
    return find_addresses(members, address, ask);
}

enum err members_invite(struct members *members, const char *words, json_t **answer)
{
    struct doorway_ask ask;
    struct digest id;
    char text[INVITE_TEXT_BYTES], hex[DIGEST_HEX_BYTES];
    uint64_t wall_s = env_wall_ms() / 1000;
    TRY(parse_ask(members, words, &ask));
    TRY(doorway_invite(members->doorway, &ask, members->now_ms, wall_s, text, &id));
    json_t *addresses = json_array();
    for (uint32_t i = 0; i < ask.addresses_count; i++)
        json_array_append_new(addresses, json_string(ask.addresses[i]));
    *answer = json_pack("{s:s, s:s, s:s, s:I, s:o}", "ok", "the invitation is open", "token", text, "id",
                        digest_hex(&id, hex), "expires", (json_int_t)(wall_s + ask.seconds), "addresses", addresses);
    return ERR_OK;
}

json_t *members_invites(const struct members *members)
{
    const struct invites *invites = doorway_invites(members->doorway);
    uint64_t wall_s = env_wall_ms() / 1000;
    json_t *list = json_array();
    for (uint32_t i = 0; i < invites->count; i++) {
        const struct invite_row *row = &invites->rows[i];
        char hex[DIGEST_HEX_BYTES], by[IDENT_TEXT_BYTES] = "";
        if (row->redeemed)
            ident_text(row->by, by);
        json_int_t left = row->expiry_s > wall_s ? (json_int_t)(row->expiry_s - wall_s) : 0;
        json_array_append_new(list, json_pack("{s:s, s:s, s:I, s:b, s:s}", "id", digest_hex(&row->id, hex), "note",
                                              row->note, "seconds_left", left, "redeemed", row->redeemed, "by", by));
    }
    return json_pack("{s:o}", "invites", list);
}

enum err members_uninvite(struct members *members, const char *words, json_t **answer)
{
    TRY(doorway_revoke(members->doorway, words));
    *answer = json_pack("{s:s}", "ok", "the invitation is revoked: nobody comes in by its token");
    return ERR_OK;
}

/* ---- members ---- */

static uint32_t voters_of(const struct view *view)
{
    uint32_t voters = 0;
    for (uint32_t i = 0; i < view->count; i++)
        voters += view->members[i].used && view->members[i].voter;
    return voters;
}

static uint32_t keepers_of(const struct view *view)
{
    uint32_t keepers = 0;
    for (uint32_t i = 0; i < view->count; i++)
        keepers += view->members[i].used && view->members[i].voter && view->members[i].role != RECORD_WITNESS;
    return keepers;
}

/* What `peers` shows when it is done, and since when: for who waits. */
static json_t *ordered(const struct members *members, const char *text)
{
    uint32_t voters = voters_of(members->view);
    return json_pack("{s:s, s:I, s:i, s:i}", "ok", text, "epoch", (json_int_t)members->view->epoch, "voters",
                     (int)voters, "needed", (int)(voters / 2 + 1));
}

static enum err find_member(const struct members *members, const char *name, uint32_t kind, uint32_t *slot)
{
    const struct view *view = members->view;
    *slot = view_slot_named(view, name);
    if (*slot == VIEW_NOBODY)
        return err_set(ERR_NOTFOUND, "no island called \"%.63s\" is on the roster; %s peers lists them", name,
                       as_typed());
    if (*slot == view->self)
        return err_set(ERR_ARG, "%s is this island itself; to leave the run, %s leave%s", name, as_typed(),
                       kind == WIRE_WISH_REVOKE ? ", and then revoke it at another island" : "");
    if (view->members[*slot].voter && view->members[*slot].role != RECORD_WITNESS && keepers_of(view) < 2)
        return err_set(ERR_STATE, "%s is the only island that votes and has the run's parameters: nobody could go on",
                       name);
    return ERR_OK;
}

static enum err order(struct members *members, const char *name, uint32_t kind, const char *text, json_t **answer)
{
    uint32_t slot;
    TRY(find_member(members, name, kind, &slot));
    if (kind == WIRE_WISH_EVICT && members->view->members[slot].role == RECORD_AWAY)
        return err_set(ERR_STATE, "%s takes no part just now; %s revoke %s takes its key off the roster", name,
                       as_typed(), name);
    if (kind == WIRE_WISH_EVICT && members->view->members[slot].role == RECORD_WITNESS)
        return err_set(ERR_STATE,
                       "%s is the witness, which no round waits for; %s revoke %s takes its key off the roster", name,
                       as_typed(), name);
    TRY(doorway_order(members->doorway, kind, members->view->members[slot].id, members->now_ms));
    *answer = ordered(members, text);
    return ERR_OK;
}

enum err members_evict(struct members *members, const char *words, json_t **answer)
{
    return order(
        members, words, WIRE_WISH_EVICT,
        "the voters are asked to go on without it; its key stays on the roster, so it comes back by itself once "
        "it has caught up",
        answer);
}

enum err members_revoke(struct members *members, const char *words, json_t **answer)
{
    return order(members, words, WIRE_WISH_REVOKE,
                 "the voters are asked to take its key off the roster; it comes back only with a new invitation",
                 answer);
}

/* ---- leaving ---- */

static bool trains(const struct members *members)
{
    switch (trainer_phase(members->trainer)) {
    case TRAINER_STARTING:
    case TRAINER_TRAINING:
    case TRAINER_FINISHING:
    case TRAINER_LEAVING:
    case TRAINER_RESTARTING: return true;
    default: return false;
    }
}

/* Whoever is left has to be able to go on. */
static enum err check_others(const struct members *members)
{
    const struct view *view = members->view;
    for (uint32_t i = 0; i < view->count; i++)
        if (i != view->self && view->members[i].used && view->members[i].voter &&
            view->members[i].role != RECORD_WITNESS)
            return ERR_OK;
    return err_set(ERR_STATE,
                   "no other island votes, so that the run would end with this one: invite another first; to "
                   "stop training here, %s pause",
                   as_typed());
}

static enum err pause_trainer(struct members *members, bool now)
{
    struct trainer_leaving leaving;
    bool killed;
    if (!trains(members))
        return ERR_OK;
    return now ? trainer_leave_now(members->trainer, &killed) : trainer_leave(members->trainer, &leaving);
}

enum err members_leave(struct members *members, const char *words, json_t **answer)
{
    bool now = strcmp(words, "now") == 0;
    if (words[0] != '\0' && !now)
        return err_set(ERR_ARG, "leave, or leave now");
    if (view_is_witness(members->view))
        return err_set(ERR_STATE, "a witness has nothing to hand over: stop it, or take it off the roster with "
                                  "dilococtl revoke at another island");
    TRY(check_others(members));
    TRY(pause_trainer(members, now));
    members->draining = true;
    *answer =
        ordered(members, trains(members) ? "the trainer's last contributions are counted, then this island leaves "
                                           "the run"
                                         : "this island leaves the run");
    return ERR_OK;
}

void members_return(struct members *members)
{
    members->draining = false;
    if (peers_draining(members->peers))
        peers_drain(members->peers, false);
}

void members_run(struct members *members)
{
    if (!members->draining || trains(members) || peers_draining(members->peers))
        return;
    log_info("this island leaves the run: the others take over what it owns");
    peers_drain(members->peers, true);
}
