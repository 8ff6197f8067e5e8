/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/peers.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "common/mem.h"
#include "daemon/founding.h"
#include "daemon/peers/announced_plans.h"
#include "daemon/peers/announcer.h"
#include "daemon/peers/charges.h"
#include "daemon/peers/furthest_step.h"
#include "daemon/peers/line_caps.h"
#include "daemon/peers/own_uplink.h"
#include "daemon/peers/presence.h"
#include "daemon/peers/strangers.h"
#include "daemon/peers/undialled.h"
#include "net/membership/membership.h"

/* The same complaint about one island, or about any, is logged once in so long. */
enum { MALFORMED_SAID_MS = 5000, DIVERGED_SAID_MS = 5000, PLAN_SAID_MS = 60000 };

struct peers {
    struct peers_conf conf;
    struct transfer_plan plan; /* all zero until it is known */
    uint64_t now_ms;
    struct membership *membership;
    bool draining; /* we are leaving the run, or have left it */
    struct undialled undialled;
    struct own_uplink uplink;
    bool news; /* all others are to be greeted again */
    struct presence presence;
    struct charges charges;
    struct announced_plans plans;
    struct announcer announcer;
    struct furthest_step furthest;
    struct line_caps_conf line_caps;
    struct strangers strangers, newcomers; /* with a key that nobody knows; with a token, and not to be talked to */
    struct log_limit anyone_said;
    bool capped_said;       /* what caps a line, in the log */
    struct wire_message in; /* taken in; large, so not on the stack */
};

static uint32_t members_of(const struct peers *peers)
{
    return peers->conf.view->count;
}

static const char *name_of(const struct peers *peers, uint32_t peer)
{
    return peers->conf.view->members[peer].as.name;
}

static struct peer *peer_of(struct peers *peers, uint32_t peer)
{
    return &peers->presence.peers[peer];
}

static bool is_up(const struct peers *peers, uint32_t peer)
{
    return bitset_has(&peers->presence.up, peer);
}

static bool has_greeted(const struct peers *peers, uint32_t peer)
{
    return peers->presence.peers[peer].greeted;
}

/* Whether a slot is another member's. */
static bool is_other(const struct peers *peers, uint32_t i)
{
    return i != peers->conf.view->self && peers->conf.view->members[i].used;
}

/* ---- what this island says of itself ---- */

static uint8_t owner_choice(const struct peers *peers)
{
    uint8_t choice = (uint8_t)dconf_owner_choice(peers->conf.conf);
    return peers->undialled.is ? config_owner_undialled(choice) : choice;
}

/* What others learn by our greeting. */
static void say_of_ourselves(struct peers *peers)
{
    const struct dconf *conf = peers->conf.conf;
    struct member_word word = {.uplink = peers->uplink.stated,
                               .owner_choice = owner_choice(peers),
                               .draining = peers->draining,
                               .units = founding_units(conf, peers->conf.spec)};
    snprintf(word.address, sizeof word.address, "%s", dconf_address(conf));
    membership_say(peers->membership, &word);
}

void peers_drain(struct peers *peers, bool draining)
{
    peers->news |= peers->draining != draining;
    peers->draining = draining;
    say_of_ourselves(peers);
}

void peers_say(struct peers *peers)
{
    peers->news = true;
    say_of_ourselves(peers);
}

/* ---- set-up ---- */

/* All but presence: they have no members yet. */
static void init_parts(struct peers *peers, const struct peers_conf *conf)
{
    const struct announcer_conf announcer = {.conf = conf->conf,
                                             .spec = conf->spec,
                                             .view = conf->view,
                                             .vote = conf->vote,
                                             .link = conf->link,
                                             .host = conf->host,
                                             .trainer = conf->trainer,
                                             .plan = &peers->plan,
                                             .silent = &peers->presence.silent,
                                             .session = conf->session};
    announcer_init(&peers->announcer, &announcer);
    furthest_step_init(&peers->furthest,
                       &(struct furthest_step_conf){conf->spec, conf->view, conf->trainer, &peers->plan});
    charges_init(&peers->charges, conf->view, conf->link);
    peers->line_caps = (struct line_caps_conf){conf->conf, conf->view, conf->link, conf->objects};
    peers->uplink = own_uplink_init(conf->conf->uplink, conf->start_ms);
}

/* With it dialling begins. */
static enum err init_presence(struct peers *peers, const struct peers_conf *conf)
{
    const struct presence_conf presence = {.conf = conf->conf,
                                           .spec = conf->spec,
                                           .view = conf->view,
                                           .plan = &peers->plan,
                                           .link = conf->link,
                                           .objects = conf->objects,
                                           .membership = peers->membership,
                                           .events = conf->events,
                                           .charges = &peers->charges,
                                           .plans = &peers->plans,
                                           .announcer = &peers->announcer,
                                           .furthest = &peers->furthest};
    return presence_init(&peers->presence, &presence, conf->start_ms);
}

enum err peers_new(const struct peers_conf *conf, struct peers **out)
{
    enum err err;
    struct peers *peers = NULL;
    *out = NULL;
    TRY_OUT(mem_new(1, sizeof *peers, "peers", &peers));
    peers->conf = *conf;
    peers->now_ms = conf->start_ms;
    peers->membership = membership_host_membership(conf->host);
    init_parts(peers, conf);
    TRY_OUT(init_presence(peers, conf));
    undialled_begin(&peers->undialled, conf->conf, conf->view);
    say_of_ourselves(peers);
out:
    if (err != ERR_OK)
        peers_free(peers);
    else
        *out = peers;
    return err;
}

void peers_free(struct peers *peers)
{
    if (peers == NULL)
        return;
    charges_deinit(&peers->charges);
    furthest_step_deinit(&peers->furthest);
    announcer_deinit(&peers->announcer);
    presence_deinit(&peers->presence);
    mem_free(peers);
}

void peers_begin(struct peers *peers, uint64_t now_ms)
{
    peers->now_ms = now_ms;
    presence_begin(&peers->presence, now_ms);
}

enum err peers_plan_known(struct peers *peers, const struct transfer_plan *plan)
{
    TRY(announcer_plan_known(&peers->announcer, plan->plan->plan->fragments_count));
    peers->plan = *plan;
    presence_plan_known(&peers->presence, peers->now_ms);
    return ERR_OK;
}

enum err peers_members(struct peers *peers, const struct view_changes *changes)
{
    return presence_members(&peers->presence, changes, peers->now_ms);
}

/* ---- dispatch ---- */

/* Charges so many to the member; false: that is beyond its budget, and what it is for is dropped. */
static bool charge(struct peers *peers, uint32_t i, enum budget_kind kind, uint32_t count)
{
    return presence_charge(&peers->presence, i, kind, count, peers->now_ms);
}

static void malformed(struct peers *peers, uint32_t i, const char *text)
{
    charges_dropped(&peers->charges, i, text, peers->now_ms);
    (void)charge(peers, i, BUDGET_UNUSABLE, 1);
}

/* What the link has dropped of it. */
static void charge_unusable(struct peers *peers, uint32_t i)
{
    enum charge charge = charges_unusable(&peers->charges, i, peers->now_ms);
    (void)presence_charged(&peers->presence, i, charge, peers->now_ms);
}

static void done_in(struct peers *peers, uint32_t i, const struct wire_message *message)
{
    if (message->done.status == WIRE_REFUSED && log_line_of_one(&peer_of(peers, i)->refusals, peers->now_ms))
        log_error("island %s refuses our %s", name_of(peers, i), wire_key_text(&message->done.key));
    objects_message_in(peers->conf.objects, i, message, peers->now_ms);
}

static void dial_in(struct peers *peers, const struct link_message *in)
{
    struct dial_server *dials = membership_host_dial_server(peers->conf.host);
    if (has_greeted(peers, in->peer) &&
        dial_server_message_in(dials, in->peer, in->header.type, in->payload, in->bytes, peers->now_ms) != ERR_OK)
        malformed(peers, in->peer, err_text());
}

static void take_control(struct peers *peers, const struct link_message *in)
{
    struct wire_message *message = &peers->in;
    uint32_t i = in->peer;
    if (wire_is_epoch(in->header.type)) {
        if (has_greeted(peers, i) && membership_message_in(peers->membership, i, in->header.type, in->payload,
                                                           in->bytes, peers->now_ms) != ERR_OK)
            malformed(peers, i, err_text());
        return;
    }
    if (wire_is_dial(in->header.type)) {
        dial_in(peers, in);
        return;
    }
    if (wire_unpack(in->header.type, in->payload, in->bytes, message) != ERR_OK) {
        malformed(peers, i, err_text());
        return;
    }
    switch (message->type) {
    case WIRE_HELLO: presence_hello(&peers->presence, i, &message->hello, peers->now_ms); break;
    case WIRE_HEARTBEAT: presence_heartbeat(&peers->presence, i, &message->heartbeat, peers->now_ms); break;
    case WIRE_BYE:
        if (has_greeted(peers, i))
            presence_bye(&peers->presence, i, message->bye.reason, peers->now_ms);
        break;
    case WIRE_ACK:
    case WIRE_FETCH:
        if (has_greeted(peers, i))
            objects_message_in(peers->conf.objects, i, message, peers->now_ms);
        break;
    case WIRE_DONE:
        if (has_greeted(peers, i))
            done_in(peers, i, message);
        break;
    case WIRE_CHUNK:
    case WIRE_BULK_HELLO:
    case WIRE_JOIN:
    case WIRE_JOINED:
    case WIRE_REFUSAL:
    case WIRE_DIAL_REQUEST:
    case WIRE_DIAL_RESPONSE: break;
    }
}

static void control_in(struct peers *peers, const struct link_message *in)
{
    uint64_t failed = ident_checks_failed();
    enum charge charge = charges_control(&peers->charges, in, peers->now_ms);
    if (!presence_charged(&peers->presence, in->peer, charge, peers->now_ms))
        return;
    take_control(peers, in);
    failed = ident_checks_failed() - failed;
    if (failed > 0)
        charges_false(&peers->charges, in->peer, failed, peers->now_ms);
}

static void chunk_in(struct peers *peers, uint32_t i, const struct link_message *in)
{
    struct wire_chunk chunk;
    uint32_t cost =
        in->bytes > WIRE_CHUNK_HEADER_BYTES ? BUDGET_CHUNK + (uint32_t)(in->bytes / 1024) : BUDGET_CHUNK_QUESTION;
    if (!charge(peers, i, BUDGET_CHUNKS, cost))
        return;
    if (wire_chunk_get(in->payload, in->bytes, &chunk) != ERR_OK)
        malformed(peers, i, err_text());
    else if (objects_chunk_in(peers->conf.objects, i, &chunk, peers->now_ms))
        charges_earn_chunk(&peers->charges, i, cost);
}

static void bulk_in(struct peers *peers, const struct link_message *in)
{
    if (in->header.type == WIRE_BULK_HELLO) {
        if (charge(peers, in->peer, BUDGET_GREETINGS, 1))
            objects_reconnected(peers->conf.objects, in->peer);
    } else if (has_greeted(peers, in->peer)) {
        chunk_in(peers, in->peer, in);
    } else {
        (void)charge(peers, in->peer, BUDGET_CHUNKS, BUDGET_CHUNK);
    }
}

bool peers_take(struct peers *peers, uint64_t now_ms)
{
    struct link_message message;
    peers->now_ms = now_ms;
    if (link_recv(peers->conf.link, &message) != ERR_OK)
        return false;
    if (message.header.type == WIRE_CHUNK || message.header.type == WIRE_BULK_HELLO)
        bulk_in(peers, &message);
    else
        control_in(peers, &message);
    return true;
}

void peers_look(struct peers *peers, uint64_t now_ms)
{
    struct link_event event;
    charges_look(&peers->charges, now_ms);
    peers->now_ms = now_ms;
    while (link_event(peers->conf.link, &event)) {
        switch (event.type) {
        case LINK_CONNECTED:
            if (event.bulk)
                objects_reconnected(peers->conf.objects, event.peer);
            else
                presence_greet(&peers->presence, event.peer, now_ms);
            break;
        case LINK_DISCONNECTED: break; /* silence says the rest */
        case LINK_STRANGER: strangers_unknown(&peers->strangers, event.text, now_ms); break;
        case LINK_NOT_ADMITTED: presence_not_through(&peers->presence, event.peer, true, now_ms); break;
        case LINK_NO_ANSWER: presence_not_through(&peers->presence, event.peer, false, now_ms); break;
        case LINK_MISMATCH:
            if (event.peer >= members_of(peers)) {
                strangers_newcomer(&peers->newcomers, event.text, now_ms);
                break;
            }
            (void)presence_refuse(&peers->presence, event.peer, event.text, now_ms);
            charge_unusable(peers, event.peer);
            break;
        case LINK_MALFORMED:
            if (event.peer < members_of(peers)) {
                charges_dropped(&peers->charges, event.peer, event.text, now_ms);
                charge_unusable(peers, event.peer);
            } else if (log_limit_pass(&peers->anyone_said, peers->now_ms, MALFORMED_SAID_MS))
                log_error("an island sent something we drop: %s", event.text);
            break;
        }
    }
}

void peers_flush(struct peers *peers, uint64_t now_ms)
{
    peers->now_ms = now_ms;
    presence_flush(&peers->presence, now_ms);
}

/* ---- the tick ---- */

static void look_whether_undialled(struct peers *peers)
{
    struct undialled_said said = {.who = ""};
    for (uint32_t i = 0; i < members_of(peers); i++) {
        const struct peer *peer = &peers->presence.peers[i];
        const struct config_member *as = &peers->conf.view->members[i].as;
        said.islands += is_other(peers, i) && as->role != CONFIG_WITNESS;
        if (!is_other(peers, i) || !is_up(peers, i))
            continue;
        said.voices += peer->undialled;
        if (as->role != CONFIG_OWNER)
            continue;
        said.owners++;
        said.in_vain += peer->undialled;
        said.through |= link_is_dialled(peers->conf.link, i);
        said.who = name_of(peers, i);
    }
    if (!undialled_look(&peers->undialled, &said, peers->now_ms))
        return;
    peers->news = true;
    say_of_ourselves(peers);
}

void peers_tick(struct peers *peers, uint64_t uplink_bits, uint64_t now_ms)
{
    peers->now_ms = now_ms;
    link_tick(peers->conf.link);
    look_whether_undialled(peers);
    if (own_uplink_look(&peers->uplink, uplink_bits, now_ms)) /* our line carries less than it was configured to */
        peers_say(peers);
    /* By a new configuration our word may have another number. */
    bool news = peers->news || membership_own_word(peers->membership)->number != peers->announcer.word;
    peers->news = false;
    for (uint32_t i = 0; i < members_of(peers); i++) {
        if (!is_other(peers, i))
            continue;
        presence_look(&peers->presence, i, now_ms);
        if (news && has_greeted(peers, i))
            presence_greet(&peers->presence, i, now_ms);
    }
}

/* ---- orders ---- */

void peers_announce(struct peers *peers)
{
    peers->presence.announce = true;
}

void peers_plan_refused(struct peers *peers, uint32_t peer, const char *text)
{
    if (log_limit_pass(&peer_of(peers, peer)->plan_said, peers->now_ms, PLAN_SAID_MS))
        log_error("the plan of island %s cannot be used: %s", name_of(peers, peer), text);
}

void peers_diverged(struct peers *peers, uint32_t peer, uint32_t f)
{
    if (log_limit_pass(&peer_of(peers, peer)->diverged_said, peers->now_ms, DIVERGED_SAID_MS))
        log_warn("island %s holds another state of fragment %" PRIu32 " than this one, whose disk confirms its own",
                 name_of(peers, peer), f);
}

void peers_bye(struct peers *peers, const char *reason)
{
    for (uint32_t i = 0; i < members_of(peers); i++)
        if (is_other(peers, i) && has_greeted(peers, i))
            announcer_bye(&peers->announcer, i, reason);
}

/* ---- looking in ---- */

uint64_t peers_wait_us(const struct peers *peers)
{
    return presence_wait_us(&peers->presence, peers->now_ms);
}

bool peers_heard(const struct peers *peers)
{
    return presence_all_heard(&peers->presence);
}

const struct bitset *peers_silent(const struct peers *peers)
{
    return &peers->presence.silent;
}

struct bitset peers_with_plan(const struct peers *peers)
{
    struct bitset with_plan = peers->presence.up;
    bitset_keep_all(&with_plan, &peers->plans.known);
    return with_plan;
}

const struct digest *peers_plan_id(const struct peers *peers, uint32_t peer)
{
    return &peers->plans.of[peer];
}

struct bitset peers_plan_holders(struct peers *peers)
{
    if (peers->plan.plan != NULL)
        return (struct bitset){{0}};
    return announced_plans_holders(&peers->plans, peers->conf.view, &peers->presence.up, peers_heard(peers),
                                   peers->now_ms);
}

uint64_t peers_furthest(struct peers *peers, uint64_t own_step)
{
    return furthest_step_look(&peers->furthest, own_step, &peers->presence.up, peers->now_ms);
}

uint64_t peers_step_line(const struct peers *peers)
{
    return furthest_step_line(&peers->furthest);
}

uint64_t peers_furthest_said(const struct peers *peers, uint64_t own_step)
{
    return furthest_step_said(&peers->furthest, own_step, &peers->presence.up);
}

bool peers_draining(const struct peers *peers)
{
    return peers->draining;
}

bool peers_undialled(const struct peers *peers)
{
    return peers->undialled.is;
}

/* One that does not know our key may lag behind, or have another key itself; most of them know what was decided. */
bool peers_shut_out(const struct peers *peers)
{
    uint32_t others = 0, unadmitted = 0;
    for (uint32_t i = 0; i < members_of(peers); i++) {
        const struct peer *peer = &peers->presence.peers[i];
        if (!is_other(peers, i) || !peers->conf.view->members[i].as.voter)
            continue;
        others++;
        unadmitted += !is_up(peers, i) && peer->refused && peer->unadmitted;
    }
    return unadmitted > others / 2;
}

static const char *fault_of(const struct peers *peers, uint32_t i, enum peer_fault *kind)
{
    const struct peer *peer = &peers->presence.peers[i];
    bool up = is_up(peers, i);
    *kind = PEER_FAULT_FALSE;
    if (membership_broke_word(peers->membership, i))
        return "it has signed two results of one part: it is evicted, and stays so";
    *kind = PEER_FAULT_FLOOD;
    if (charges_text(&peers->charges, i, peers->now_ms)[0] != '\0')
        return charges_text(&peers->charges, i, peers->now_ms);
    *kind = PEER_FAULT_FALSE;
    if (membership_misproposed(peers->membership, i))
        return "it proposes configurations that may not follow ours: they are refused";
    if (objects_lied(peers->conf.objects, i))
        return "it has sent a state that is not the one a majority signed";
    const struct report *report = furthest_step_report(&peers->furthest, i);
    if (up && report_doubted(report)[0] != '\0')
        return report_doubted(report);
    enum sync_fault now = faults_now(&peer->faults);
    if (up && now != SYNC_FAULT_NONE) {
        if (now == SYNC_FAULT_LATE || now == SYNC_FAULT_NO_RESULT)
            *kind = now == SYNC_FAULT_LATE ? PEER_FAULT_LATE : PEER_FAULT_STUCK;
        return faults_text(&peer->faults);
    }
    if (up && charges_dropped_lately(&peers->charges, i, peers->now_ms))
        return "it sends what nobody can use";
    *kind = PEER_FAULT_NONE;
    return "";
}

struct peer_info peers_info(const struct peers *peers, uint32_t i)
{
    const struct peer *peer = &peers->presence.peers[i];
    const struct report *report = furthest_step_report(&peers->furthest, i);
    struct link_counters counters = link_counters(peers->conf.link, i);
    enum peer_fault kind;
    const char *fault = fault_of(peers, i, &kind);
    return (struct peer_info){.up = is_up(peers, i),
                              .refused = peer->refused,
                              .unadmitted = peer->refused && peer->unadmitted,
                              .note = peer->note,
                              .fault = fault,
                              .fault_kind = kind,
                              .too_fast = is_up(peers, i) && report_too_fast(report),
                              .heard_ms = peer->heard_ms,
                              .duplicate_key_ms = peer->duplicate_key.seen_ms,
                              .rtt_ms = peer->beats.rtt_ms,
                              .step = report->step,
                              .own_step = report->own_step,
                              .tokens = report->tokens,
                              .loss = report->loss,
                              .tokens_per_s = report->tokens_per_s,
                              .trainer = report->trainer,
                              .unfinished = report->unfinished,
                              .sent = counters.sent,
                              .received = counters.received};
}

struct peers_refused peers_refused(const struct peers *peers)
{
    return (struct peers_refused){.strangers = peers->strangers.count,
                                  .stranger_ms = peers->strangers.last_ms,
                                  .stranger = peers->strangers.last,
                                  .newcomer_ms = peers->newcomers.last_ms,
                                  .newcomer = peers->newcomers.last};
}

bool peers_capped(struct peers *peers, char text[CAPS_TEXT_BYTES])
{
    if (own_uplink_tell(&peers->uplink, text, CAPS_TEXT_BYTES))
        return true; /* the line itself is what keeps it */
    bool capped = line_caps_tell(&peers->line_caps, &peers->presence.up, text);
    if (capped && !peers->capped_said)
        log_warn("%s", text);
    peers->capped_said |= capped;
    return capped;
}
