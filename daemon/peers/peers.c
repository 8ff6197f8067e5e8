/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/peers.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "common/mem.h"
#include "daemon/peers/beat.h"
#include "daemon/membership/membership_host.h"
#include "daemon/membership/gate.h"
#include "daemon/transfer/objects.h"
#include "daemon/peers/peers_core.h"
#include "net/sync/rows.h"
#include "daemon/trainer/trainer.h"
#include "net/transport/link.h"
#include "net/config/vouch.h"

/* BEAT: heartbeats; an island that is silent for SILENT counts as away, which status shows within three seconds.
 * HELLO_AGAIN: greetings are repeated until both sides know the same of each other. */
enum { BEAT_MS = 1000, SILENT_MS = 2500, HELLO_AGAIN_MS = 1000, ANNOUNCE_GAP_MS = 3 };
/* UNDIALLED: several attempts, and the time that a restarted one takes to listen. */
enum { UNDIALLED_MS = 15000 };
/* The same complaint about one island, or about any, is logged once in so long. */
enum { REFUSED_SAID_MS = 10000, MALFORMED_SAID_MS = 5000, DIVERGED_SAID_MS = 5000, PLAN_SAID_MS = 60000 };

/* ---- set-up ---- */

/* Slots of the view have their places here. */
static enum err make_room(struct peers *peers)
{
    uint32_t room = members_of(peers);
    if (room > peers->room) {
        TRY(mem_grow(&peers->peers, peers->room, room, sizeof *peers->peers, "peers"));
        peers->room = room;
    }
    return ERR_OK;
}

static enum err set_member(struct peers *peers, uint32_t i)
{
    const struct view_member *from = &peers->conf.view->members[i];
    struct link_member member = {.name = from->name, .address = from->address};
    struct peer *peer = &peers->peers[i];
    memcpy(member.key, from->key, sizeof member.key);
    if (peer->since_ms == 0)
        peer->since_ms = peers->now_ms;
    if (peer->said == NULL && fragments_of(peers) > 0)
        TRY(mem_new(fragments_of(peers), sizeof *peer->said, "peers", &peer->said));
    enum err err = link_set(peers->link, i, &member);
    if (err != ERR_CONF && err != ERR_STATE)
        return err;
    /* Nothing that is said of a member ends a daemon, or keeps one from starting. */
    snprintf(peer->note, sizeof peer->note, "it cannot be dialled, so it has to dial us: %.150s", err_text());
    log_error("island %s cannot be dialled: %s", from->name, err_text());
    return ERR_OK;
}

static enum err open_links(struct peers *peers)
{
    const struct view *view = peers->conf.view;
    struct link_conf conf = {.ident = peers->conf.ident,
                             .listen = peers->conf.conf->listen,
                             .run_tag = wire_run_tag(view->nonce, &peers->conf.spec->digest),
                             .rate_limit = peers->conf.conf->rate_limit,
                             .congestion = peers->conf.conf->congestion,
                             .io_threads = (int)peers->conf.conf->io_threads};
    TRY(link_new(&conf, &peers->link));
    for (uint32_t i = 0; i < view->count; i++)
        if (view->members[i].used && i != view->self)
            TRY(set_member(peers, i));
    return ERR_OK;
}

static enum err open_membership(struct peers *peers)
{
    const struct peers_conf *from = &peers->conf;
    struct membership_host_conf host = {.folder = from->conf->state_folder,
                                        .view = from->view,
                                        .chain = from->chain,
                                        .ident = from->ident,
                                        .vote = from->vote,
                                        .events = from->events,
                                        .jobs = from->jobs,
                                        .start_ms = from->start_ms};
    TRY(membership_host_new(&host, peers->link, &peers->membership_host));
    struct gate_conf gate = {.conf = from->conf,
                             .spec = from->spec,
                             .view = from->view,
                             .chain = from->chain,
                             .ident = from->ident,
                             .trainer = from->trainer,
                             .link = peers->link,
                             .membership = peers_membership(peers)};
    return gate_open(&gate, peers->now_ms, &peers->gate);
}

enum err peers_new(const struct peers_conf *conf, struct peers **out)
{
    enum err err;
    struct peers *peers = NULL;
    *out = NULL;
    TRY_OUT(mem_new(1, sizeof *peers, "peers", &peers));
    peers->conf = *conf;
    peers->now_ms = conf->start_ms;
    peers->pause_ms = conf->conf->away_ms / 3 < BEAT_MS ? conf->conf->away_ms / 3 : BEAT_MS;
    peers->silent_ms = SILENT_MS < conf->conf->away_ms ? SILENT_MS : 3 * conf->conf->away_ms / 4;
    TRY_OUT(make_room(peers));
    TRY_OUT(open_links(peers));
    struct objects_conf objects = {.spec = conf->spec,
                                   .view = conf->view,
                                   .chain = conf->chain,
                                   .events = conf->events,
                                   .trainer = conf->trainer,
                                   .link = peers->link,
                                   .rate_limit = conf->conf->rate_limit};
    TRY_OUT(objects_new(&objects, &peers->objects));
    TRY_OUT(open_membership(peers));
out:
    if (err != ERR_OK)
        peers_free(peers);
    else
        *out = peers;
    return err;
}

enum err peers_begin(struct peers *peers, uint64_t now_ms)
{
    peers->now_ms = now_ms;
    for (uint32_t i = 0; i < members_of(peers); i++)
        peers->peers[i].since_ms = now_ms;
    return membership_host_begin(peers->membership_host, now_ms);
}

void peers_free(struct peers *peers)
{
    if (peers == NULL)
        return;
    gate_close(&peers->gate);
    membership_host_free(peers->membership_host);
    objects_free(peers->objects);
    vouches_free(peers->vouches);
    link_free(peers->link);
    for (uint32_t i = 0; i < peers->room; i++)
        mem_free(peers->peers[i].said);
    mem_free(peers->peers);
    mem_free(peers);
}

size_t peers_poll(const struct peers *peers, zmq_pollitem_t *items, size_t items_max)
{
    return link_poll_items(peers->link, items, items_max);
}

uint64_t peers_wait_us(const struct peers *peers)
{
    uint64_t wait_us = objects_wait_us(peers->objects);
    if (!peers->announce)
        return wait_us;
    uint64_t announce_us = peers->announce_ms > peers->now_ms ? 1000 * (peers->announce_ms - peers->now_ms) : 1;
    return wait_us == 0 || announce_us < wait_us ? announce_us : wait_us;
}

/* ---- greetings and heartbeats out ---- */

/* A message that cannot go now is dropped: everything here is repeated. */
static void say(struct peers *peers, uint32_t i)
{
    enum err err = link_say(peers->link, i, &peers->out);
    if (err != ERR_OK && err != ERR_AGAIN && err != ERR_CLOSED)
        log_error("cannot talk to island %s: %s", name_of(peers, i), err_text());
}

static void send_hello(struct peers *peers, uint32_t i)
{
    beat_hello(&peers->conf, &peers->plan, gate_owner_wish(&peers->gate), peers->gate.draining, &peers->out);
    say(peers, i);
    peers->peers[i].hello_ms = peers->now_ms + HELLO_AGAIN_MS;
}

static void send_heartbeat(struct peers *peers, uint32_t i)
{
    struct peer *peer = &peers->peers[i];
    struct wire_heartbeat *beat = &peers->out.heartbeat;
    beat_fill(&peers->conf, &peers->plan, &peers->silent, &peers->out);
    beat->disk_fails |= membership_host_unkept(peers->membership_host)[0] != '\0';
    beat->undialled = peer->up && link_undialled(peers->link, i, UNDIALLED_MS);
    membership_beat(peers_membership(peers), beat, peers->now_ms);
    pulse_out(&peer->pulse, beat, peers->now_ms);
    if (peers->plan.sync != NULL && !sync_is_witness(peers->plan.sync))
        rows_fill(peers->plan.sync, peers->vouches, fragments_of(peers), peer->said, &peer->refresh, beat);
    peer->beat_ms = peers->now_ms + peers->pause_ms;
    say(peers, i);
}

void peers_announce(struct peers *peers)
{
    peers->announce = true;
}

/* ---- who is there ---- */

/* True, and it is refused, if there is a reason. */
static bool refuse(struct peers *peers, uint32_t i, const char *reason)
{
    struct peer *peer = &peers->peers[i];
    if (reason == NULL)
        return false;
    if (log_limit_pass(&peer->refused_said, peers->now_ms, REFUSED_SAID_MS))
        log_error("island %s is refused: %s", name_of(peers, i), reason);
    snprintf(peer->note, sizeof peer->note, "%s", reason);
    peer->refused = true;
    peer->unadmitted = false;
    peer->greeted = false;
    return true;
}

static void peer_up(struct peers *peers, uint32_t i)
{
    struct peer *peer = &peers->peers[i];
    peer->up = true;
    if (peer->said != NULL)
        memset(peer->said, 0xff, fragments_of(peers) * sizeof *peer->said); /* nothing it was told counts any more */
    event_post_sync(peers->conf.events, &(struct sync_event){.type = SYNC_EV_PEER_UP, .member = i});
    membership_up(peers_membership(peers), i, true, peers->now_ms);
    peers->announce = true;
    peer->beat_ms = 0;
}

static void peer_gone(struct peers *peers, uint32_t i)
{
    struct peer *peer = &peers->peers[i];
    if (peer->up) {
        objects_lost_sight(peers->objects, i);
        event_post_sync(peers->conf.events, &(struct sync_event){.type = SYNC_EV_PEER_DOWN, .member = i});
        membership_up(peers_membership(peers), i, false, peers->now_ms);
    }
    peer->up = false;
}

enum err peers_plan_known(struct peers *peers, const struct transfer_plan *plan)
{
    uint32_t fragments = plan->plan->plan->fragments_count;
    for (uint32_t i = 0; i < peers->room; i++)
        TRY(mem_new(fragments, sizeof *peers->peers[i].said, "peers", &peers->peers[i].said));
    if (!sync_is_witness(plan->sync)) /* who never sends a state */
        TRY(beat_vouches_new(&peers->conf, fragments, &peers->vouches));
    TRY(objects_plan_known(peers->objects, plan, peers->vouches));
    TRY(membership_plan_known(peers_membership(peers), plan->sync, fragments, plan->shards_counts));
    peers->plan = *plan;
    peers->gate.planned = true;
    for (uint32_t i = 0; i < members_of(peers); i++) {
        struct peer *peer = &peers->peers[i];
        if (!peer->greeted || !is_other(peers, i) ||
            refuse(peers, i, beat_plan_misfit(&peers->plan, peer->plan_known, &peer->plan_id)))
            continue;
        send_hello(peers, i); /* again, now with the plan */
        if (peer->up)
            peer_up(peers, i);
    }
    return ERR_OK;
}

/* ---- a new epoch ---- */

static void drop_member(struct peers *peers, uint32_t i)
{
    struct peer *peer = &peers->peers[i];
    if (link_set(peers->link, i, NULL) != ERR_OK)
        log_error("cannot end the connection to island %s: %s", name_of(peers, i), err_text());
    objects_forget(peers->objects, i);
    peer_gone(peers, i);
    mem_free(peer->said);
    *peer = (struct peer){0};
}

enum err peers_members(struct peers *peers, const struct view_changes *changes)
{
    TRY(make_room(peers));
    TRY(objects_members(peers->objects, members_of(peers)));
    for (uint32_t i = 0; i < members_of(peers); i++) {
        if (i == self_of(peers))
            continue;
        if (bitset_has(&changes->removed, i))
            drop_member(peers, i);
        else if (bitset_has(&changes->added, i) || bitset_has(&changes->changed, i))
            TRY(set_member(peers, i));
    }
    objects_begin_epoch(peers->objects);
    return ERR_OK;
}

enum err peers_begin_epoch(struct peers *peers)
{
    if (peers->vouches != NULL)
        vouches_begin_epoch(peers->vouches);
    TRY(membership_host_begin(peers->membership_host, peers->now_ms));
    doorway_begin(peers->gate.doorway);
    return ERR_OK;
}

struct gate *peers_gate(struct peers *peers)
{
    return &peers->gate;
}

struct membership_host *peers_membership_host(const struct peers *peers)
{
    return peers->membership_host;
}

struct membership *peers_membership(const struct peers *peers)
{
    return membership_host_membership(peers->membership_host);
}

static void hello_in(struct peers *peers, uint32_t i, const struct wire_hello *hello)
{
    struct peer *peer = &peers->peers[i];
    if (refuse(peers, i, beat_misfit(&peers->conf, &peers->plan, i, hello)))
        return;
    gate_said(&peers->gate, i, hello);
    bool restarted = peer->session != hello->session;
    twins_note(&peer->twins, name_of(peers, i), hello->session, peers->now_ms);
    bool was_up = peer->up && peer->greeted, again = peer->greeted;
    objects_set_window(peers->objects, i, (uint64_t)hello->window_kib * 1024);
    peer->plan_known = hello->plan_known;
    peer->plan_id = hello->plan_id;
    peer->session = hello->session;
    peer->greeted = true;
    peer->refused = false;
    peer->note[0] = '\0';
    peer->heard_ms = peers->now_ms;
    if (restarted) {
        /* What it said before is void. */
        pulse_restart(&peer->pulse);
        report_restart(&peer->report);
        objects_reset(peers->objects, i);
        peer_gone(peers, i);
    }
    /* A repeated greeting means that the peer may not have ours; the pause keeps two answers from chasing each other.
     */
    if (restarted || (again && peers->now_ms >= peer->hello_ms))
        send_hello(peers, i);
    if (restarted || !was_up) {
        log_info("island %s is here (%s)", name_of(peers, i), hello->software);
        peer_up(peers, i);
    }
}

static void heartbeat_in(struct peers *peers, uint32_t i, const struct wire_heartbeat *beat)
{
    struct peer *peer = &peers->peers[i];
    if (!peer->greeted || beat->session != peer->session) {
        if (peers->now_ms >= peer->hello_ms)
            send_hello(peers, i);
        return;
    }
    peer->heard_ms = peers->now_ms;
    if (!pulse_in(&peer->pulse, beat, peers->now_ms))
        return;
    report_take(&peer->report, beat, trainer_info(peers->conf.trainer).step);
    peer->undialled = beat->undialled;
    if (!peer->up) {
        log_info("island %s is back", name_of(peers, i));
        peer_up(peers, i);
    }
    beat_vouches_heard(&peers->conf, peers->vouches, i, beat);
    membership_heard(peers_membership(peers), i, beat, peers->now_ms);
    event_post_sync(peers->conf.events, &(struct sync_event){.type = SYNC_EV_HEARTBEAT, .member = i, .beat = beat});
}

static void bye_in(struct peers *peers, uint32_t i, const char *reason)
{
    struct peer *peer = &peers->peers[i];
    log_info("island %s says goodbye: %s", name_of(peers, i), reason);
    snprintf(peer->note, sizeof peer->note, "%.200s", reason);
    peer_gone(peers, i);
    peer->greeted = false;
    peer->session = 0;
}

/* ---- dispatch ---- */

static void malformed(struct peers *peers, uint32_t i, const char *text)
{
    faults_dropped(&peers->peers[i].faults, peers->now_ms);
    if (log_limit_pass(&peers->peers[i].malformed_said, peers->now_ms, MALFORMED_SAID_MS))
        log_error("island %s sent something we drop: %s", name_of(peers, i), text);
}

static void control_in(struct peers *peers, const struct link_message *in)
{
    struct wire_message *message = &peers->in;
    uint32_t i = in->peer;
    if (wire_is_epoch(in->header.type)) {
        if (faults_floods(&peers->peers[i].faults, in->header.type, peers->now_ms))
            malformed(peers, i, "more messages about the next epoch than anybody needs");
        else if (peers->peers[i].greeted && membership_message_in(peers_membership(peers), i, in->header.type,
                                                                  in->payload, in->bytes, peers->now_ms) != ERR_OK)
            malformed(peers, i, err_text());
        return;
    }
    if (wire_unpack(in->header.type, in->payload, in->bytes, message) != ERR_OK) {
        malformed(peers, i, err_text());
        return;
    }
    switch (message->type) {
    case WIRE_HELLO: hello_in(peers, i, &message->hello); break;
    case WIRE_HEARTBEAT: heartbeat_in(peers, i, &message->heartbeat); break;
    case WIRE_BYE:
        if (peers->peers[i].greeted)
            bye_in(peers, i, message->bye.reason);
        break;
    case WIRE_ACK:
    case WIRE_DONE:
    case WIRE_FETCH:
        if (peers->peers[i].greeted)
            objects_message_in(peers->objects, i, message, peers->now_ms);
        break;
    case WIRE_CHUNK:
    case WIRE_BULK_HELLO:
    case WIRE_ENROL:
    case WIRE_ENROLLED:
    case WIRE_REFUSAL: break;
    }
}

static void bulk_in(struct peers *peers, const struct link_message *in)
{
    struct wire_chunk chunk;
    if (in->header.type == WIRE_BULK_HELLO)
        objects_reconnected(peers->objects, in->peer);
    if (in->header.type == WIRE_BULK_HELLO || !peers->peers[in->peer].greeted)
        return;
    if (wire_chunk_get(in->payload, in->bytes, &chunk) != ERR_OK)
        malformed(peers, in->peer, err_text());
    else
        objects_chunk_in(peers->objects, in->peer, &chunk, peers->now_ms);
}

bool peers_take(struct peers *peers, uint64_t now_ms)
{
    struct link_message message;
    peers->now_ms = now_ms;
    if (link_recv(peers->link, &message) != ERR_OK)
        return false;
    if (message.header.type == WIRE_CHUNK || message.header.type == WIRE_BULK_HELLO)
        bulk_in(peers, &message);
    else
        control_in(peers, &message);
    return true;
}

/* Our dialling came to nothing: it answered and would not, or it did not answer. */
static void not_through(struct peers *peers, uint32_t i, bool answered)
{
    struct peer *peer = &peers->peers[i];
    if (peer->up) /* it reaches us, so that does not matter */
        return;
    if (answered) {
        refuse(peers, i,
               "it does not admit our key, or its own is not the one on our roster: was this island revoked? Compare "
               "`dilococtl peers`");
        peer->unadmitted = true;
        return;
    }
    peer->refused = false;
    snprintf(peer->note, sizeof peer->note, "it does not answer: its daemon hangs, or its machine is overloaded");
}

void peers_look(struct peers *peers, uint64_t now_ms)
{
    struct link_event event;
    peers->now_ms = now_ms;
    while (link_event(peers->link, &event)) {
        switch (event.type) {
        case LINK_CONNECTED:
            if (event.bulk)
                objects_reconnected(peers->objects, event.peer);
            else
                send_hello(peers, event.peer);
            break;
        case LINK_DISCONNECTED: break; /* silence says the rest */
        case LINK_STRANGER: strangers_note(&peers->strangers, event.text, now_ms); break;
        case LINK_NOT_ADMITTED: not_through(peers, event.peer, true); break;
        case LINK_NO_ANSWER: not_through(peers, event.peer, false); break;
        case LINK_MISMATCH:
            if (event.peer < members_of(peers))
                refuse(peers, event.peer, event.text);
            else
                newcomers_note(&peers->newcomers, event.text, now_ms);
            break;
        case LINK_MALFORMED:
            if (event.peer < members_of(peers))
                malformed(peers, event.peer, event.text);
            else if (log_limit_pass(&peers->anyone_said, peers->now_ms, MALFORMED_SAID_MS))
                log_error("an island sent something we drop: %s", event.text);
            break;
        }
    }
}

void peers_flush(struct peers *peers, uint64_t now_ms)
{
    peers->now_ms = now_ms;
    if (peers->announce && now_ms >= peers->announce_ms) {
        peers->announce = false;
        peers->announce_ms = now_ms + ANNOUNCE_GAP_MS;
        for (uint32_t i = 0; i < members_of(peers); i++)
            if (is_other(peers, i) && peers->peers[i].greeted)
                send_heartbeat(peers, i);
    }
    gate_look(&peers->gate, now_ms);
    objects_flush(peers->objects, now_ms);
}

/* ---- the tick ---- */

static void look_after(struct peers *peers, uint32_t i)
{
    struct peer *peer = &peers->peers[i];
    bool settled = peer->greeted && peer->plan_known == (peers->plan.plan != NULL);
    if (!settled && link_up(peers->link, i, false) && peers->now_ms >= peer->hello_ms)
        send_hello(peers, i);
    uint64_t heard_ms = peer->heard_ms > peer->since_ms ? peer->heard_ms : peer->since_ms;
    bool useless = peer->up && peers->plan.sync != NULL &&
                   faults_look(&peer->faults, peers->plan.sync, i, name_of(peers, i), peers->now_ms);
    if (useless || peers->now_ms > heard_ms + peers->conf.conf->away_ms)
        bitset_add(&peers->silent, i);
    else
        bitset_remove(&peers->silent, i);
    if (peer->greeted && peers->now_ms >= peer->beat_ms)
        send_heartbeat(peers, i);
    if (peer->up && peers->now_ms > peer->heard_ms + peers->silent_ms) {
        log_warn("island %s has not been heard of for %.1f s; training goes on", name_of(peers, i),
                 (double)(peers->now_ms - peer->heard_ms) / 1000);
        snprintf(peer->note, sizeof peer->note, "silent");
        peer_gone(peers, i);
    }
}

/* Whether nobody who owns gets through to us. Those that are not heard know nothing of it; where there are none, it
 * stays as it was. */
static void look_whether_undialled(struct peers *peers)
{
    uint32_t owners = 0, in_vain = 0;
    const char *who = "";
    for (uint32_t i = 0; i < members_of(peers); i++) {
        const struct peer *peer = &peers->peers[i];
        if (!is_other(peers, i) || !peer->up || peers->conf.view->members[i].role != RECORD_OWNER)
            continue;
        owners++;
        in_vain += peer->undialled;
        who = name_of(peers, i);
    }
    bool undialled = owners > 0 ? in_vain == owners : peers->gate.undialled;
    if (undialled != peers->gate.undialled && undialled)
        log_warn(
            "not reachable from %s: this island contributes, and owns shards only beside a single other; let its port "
            "through ([net] listen), or say where it is reached ([net] address)",
            who);
    else if (undialled != peers->gate.undialled)
        log_info("reachable again from %s: this island may own shards", who);
    gate_undialled(&peers->gate, undialled);
}

/* One that does not know our key may lag behind, or have another key itself; most of them know what was decided. */
bool peers_shut_out(const struct peers *peers)
{
    uint32_t others = 0, unadmitted = 0;
    for (uint32_t i = 0; i < members_of(peers); i++) {
        const struct peer *peer = &peers->peers[i];
        if (!is_other(peers, i) || !peers->conf.view->members[i].voter)
            continue;
        others++;
        unadmitted += !peer->up && peer->refused && peer->unadmitted;
    }
    return unadmitted > others / 2;
}

void peers_tick(struct peers *peers, uint64_t now_ms)
{
    struct bitset with_plan = {{0}};
    peers->now_ms = now_ms;
    link_tick(peers->link);
    objects_tick(peers->objects, now_ms);
    peers->gate.shut_out = peers_shut_out(peers);
    look_whether_undialled(peers);
    bool news = gate_tick(&peers->gate, now_ms); /* of ourselves */
    for (uint32_t i = 0; i < members_of(peers); i++) {
        if (!is_other(peers, i))
            continue;
        look_after(peers, i);
        if (news && peers->peers[i].greeted)
            send_hello(peers, i);
        if (peers->peers[i].up && peers->peers[i].plan_known)
            bitset_add(&with_plan, i);
    }
    objects_want_plan(peers->objects, &with_plan, now_ms);
    membership_host_tick(peers->membership_host, &peers->silent, now_ms);
}

/* ---- orders ---- */

void peers_send(struct peers *peers, const struct wire_key *key, uint32_t member)
{
    objects_send(peers->objects, key, member, peers->now_ms);
}

void peers_fetch(struct peers *peers, const struct wire_key *key, uint32_t member)
{
    objects_fetch(peers->objects, key, member);
}

void peers_retire(struct peers *peers, uint32_t f, uint64_t version)
{
    objects_retire(peers->objects, f, version);
}

void peers_retire_results(struct peers *peers, uint32_t f, uint64_t version)
{
    objects_retire_results(peers->objects, f, version);
}

void peers_judged(struct peers *peers, uint32_t peer, const struct wire_key *key, enum wire_done done)
{
    objects_judged(peers->objects, peer, key, done);
}

void peers_lent(struct peers *peers, const struct state_loan *loan, enum err err)
{
    objects_lent(peers->objects, loan, err, peers->now_ms);
}

enum err peers_take_plan(struct peers *peers, uint32_t peer, const struct wire_key *key, uint64_t bytes,
                         struct model_plan **out)
{
    return objects_take_plan(peers->objects, peer, key, bytes, &peers->peers[peer].plan_id, out);
}

void peers_plan_refused(struct peers *peers, uint32_t peer, const char *text)
{
    if (log_limit_pass(&peers->peers[peer].plan_said, peers->now_ms, PLAN_SAID_MS))
        log_error("the plan of island %s cannot be used: %s", name_of(peers, peer), text);
}

void peers_diverged(struct peers *peers, uint32_t peer, uint32_t f)
{
    if (log_limit_pass(&peers->peers[peer].diverged_said, peers->now_ms, DIVERGED_SAID_MS))
        log_warn("island %s holds another state of fragment %" PRIu32 " than this one, whose disk confirms its own",
                 name_of(peers, peer), f);
}

void peers_bye(struct peers *peers, const char *reason)
{
    peers->out.type = WIRE_BYE;
    snprintf(peers->out.bye.reason, sizeof peers->out.bye.reason, "%s", reason);
    for (uint32_t i = 0; i < members_of(peers); i++)
        if (is_other(peers, i) && peers->peers[i].greeted)
            say(peers, i);
}
