/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/presence.h"

#include <stdio.h>
#include <string.h>

#include "common/mem.h"
#include "daemon/peers/undialled.h"

/* BEAT: heartbeats; an island that is silent for SILENT counts as away, which status shows within three seconds.
 * HELLO_AGAIN: greetings are repeated until both sides know the same of each other. */
enum { BEAT_MS = 1000, SILENT_MS = 2500, HELLO_AGAIN_MS = 1000, ANNOUNCE_GAP_MS = 3 };
/* The same complaint about one island is logged once in so long. */
enum { REFUSED_SAID_MS = 10000 };

static const char *name_of(const struct presence *presence, uint32_t slot)
{
    return presence->conf.view->members[slot].as.name;
}

static bool is_up(const struct presence *presence, uint32_t slot)
{
    return bitset_has(&presence->up, slot);
}

/* Whether a slot is another member's. */
static bool is_other(const struct presence *presence, uint32_t slot)
{
    return slot != presence->conf.view->self && presence->conf.view->members[slot].used;
}

/* ---- out ---- */

void presence_greet(struct presence *presence, uint32_t i, uint64_t now_ms)
{
    announcer_hello(presence->conf.announcer, i);
    presence->peers[i].hello_ms = now_ms + HELLO_AGAIN_MS;
}

static void send_heartbeat(struct presence *presence, uint32_t i, uint64_t now_ms)
{
    struct peer *peer = &presence->peers[i];
    bool undialled = peer->vain_ms != 0 && now_ms >= peer->vain_ms + UNDIALLED_MS;
    announcer_heartbeat(presence->conf.announcer, i, &peer->beats, undialled, now_ms);
    peer->beat_ms = now_ms + presence->pause_ms;
}

uint64_t presence_wait_us(const struct presence *presence, uint64_t now_ms)
{
    if (!presence->announce)
        return 0;
    return presence->announce_ms > now_ms ? 1000 * (presence->announce_ms - now_ms) : 1;
}

void presence_flush(struct presence *presence, uint64_t now_ms)
{
    if (presence->announce && now_ms >= presence->announce_ms) {
        presence->announce = false;
        presence->announce_ms = now_ms + ANNOUNCE_GAP_MS;
        for (uint32_t i = 0; i < presence->conf.view->count; i++)
            if (is_other(presence, i) && presence->peers[i].greeted)
                send_heartbeat(presence, i, now_ms);
    }
}

/* ---- who comes and goes ---- */

bool presence_refuse(struct presence *presence, uint32_t i, const char *reason, uint64_t now_ms)
{
    struct peer *peer = &presence->peers[i];
    if (reason == NULL)
        return false;
    if (log_limit_pass(&peer->refused_said, now_ms, REFUSED_SAID_MS))
        log_error("island %s is refused: %s", name_of(presence, i), reason);
    snprintf(peer->note, sizeof peer->note, "%s", reason);
    peer->refused = true;
    peer->unadmitted = false;
    peer->greeted = false;
    return true;
}

static void peer_up(struct presence *presence, uint32_t i, uint64_t now_ms)
{
    bitset_add(&presence->up, i);
    announcer_anew(presence->conf.announcer, i);
    event_post_sync(presence->conf.events, &(struct sync_event){.type = SYNC_EV_PEER_UP, .member = i});
    membership_up(presence->conf.membership, i, true, now_ms);
    presence->announce = true;
    presence->peers[i].beat_ms = 0;
}

static void peer_gone(struct presence *presence, uint32_t i, uint64_t now_ms)
{
    if (is_up(presence, i)) {
        objects_lost_sight(presence->conf.objects, i);
        event_post_sync(presence->conf.events, &(struct sync_event){.type = SYNC_EV_PEER_DOWN, .member = i});
        membership_up(presence->conf.membership, i, false, now_ms);
    }
    bitset_remove(&presence->up, i);
    presence->peers[i].vain_ms = 0; /* where a line is cut, dialling in vain says nothing */
}

/* Why the plan that it has, if it knows one, is not ours; NULL: it may be. */
static const char *plan_misfit(const struct presence *presence, bool known, const struct digest *theirs)
{
    const struct model_plan *plan = presence->conf.plan->plan;
    if (!known || plan == NULL || digest_equal(theirs, &plan->id))
        return NULL;
    return "its model has other tensors, or another frozen base; the trainers of all islands must register the same";
}

/* Why the member in that slot, which greets so, cannot be talked to; NULL: it can. In a buffer of the thread, good
 * until the next call. */
static const char *misfit(const struct presence *presence, uint32_t slot, const struct wire_hello *hello)
{
    const struct presence_conf *conf = &presence->conf;
    const struct view_member *member = &conf->view->members[slot];
    if (!digest_equal(&hello->run_id, &conf->spec->digest))
        return "it has another run spec; give every island the same file";
    if (hello->island != member->as.id || strcmp(hello->name, member->as.name) != 0)
        return "its name is not the one its key stands for";
    return plan_misfit(presence, hello->plan_known, &hello->plan_id);
}

void presence_plan_known(struct presence *presence, uint64_t now_ms)
{
    const struct announced_plans *plans = presence->conf.plans;
    for (uint32_t i = 0; i < presence->conf.view->count; i++) {
        if (!presence->peers[i].greeted || !is_other(presence, i) ||
            presence_refuse(presence, i, plan_misfit(presence, bitset_has(&plans->known, i), &plans->of[i]), now_ms))
            continue;
        presence_greet(presence, i, now_ms); /* again, now with the plan */
        if (is_up(presence, i))
            peer_up(presence, i, now_ms);
    }
}

/* Its link was closed: nothing of it is heard for a while. */
static void shut_out(struct presence *presence, uint32_t i, uint64_t now_ms)
{
    struct peer *peer = &presence->peers[i];
    snprintf(peer->note, sizeof peer->note, "%s", charges_text(presence->conf.charges, i, now_ms));
    peer_gone(presence, i, now_ms);
    peer->greeted = false;
}

bool presence_charged(struct presence *presence, uint32_t i, enum charge charge, uint64_t now_ms)
{
    if (charge == CHARGE_SHUT)
        shut_out(presence, i, now_ms);
    return charge == CHARGE_GOOD;
}

bool presence_charge(struct presence *presence, uint32_t i, enum budget_kind kind, uint32_t count, uint64_t now_ms)
{
    return presence_charged(presence, i, charges_add(presence->conf.charges, i, kind, count, now_ms), now_ms);
}

/* ---- members ---- */

/* Slots of the view have their places here. */
static enum err make_room(struct presence *presence)
{
    uint32_t room = presence->conf.view->count;
    if (room > presence->room) {
        TRY(mem_grow(&presence->peers, presence->room, room, sizeof *presence->peers, "peers"));
        presence->room = room;
    }
    TRY(charges_reserve(presence->conf.charges, room));
    return furthest_step_reserve(presence->conf.furthest, room);
}

static enum err set_member(struct presence *presence, uint32_t i, uint64_t now_ms)
{
    const struct view_member *from = &presence->conf.view->members[i];
    struct link_member member = {.name = from->as.name, .address = from->as.address};
    struct peer *peer = &presence->peers[i];
    memcpy(member.key, from->as.key, sizeof member.key);
    memcpy(member.next, from->as.next_key, sizeof member.next);
    if (peer->since_ms == 0)
        peer->since_ms = now_ms;
    TRY(announcer_reserve(presence->conf.announcer, i));
    enum err err = link_set(presence->conf.link, i, &member);
    if (err != ERR_CONF && err != ERR_STATE)
        return err;
    /* Nothing that is said of a member ends a daemon, or keeps one from starting. */
    snprintf(peer->note, sizeof peer->note, "it cannot be dialled, so it has to dial us: %.150s", err_text());
    log_error("island %s cannot be dialled: %s", from->as.name, err_text());
    return ERR_OK;
}

static void drop_member(struct presence *presence, uint32_t i, uint64_t now_ms)
{
    if (link_set(presence->conf.link, i, NULL) != ERR_OK)
        log_error("cannot end the connection to island %s: %s", name_of(presence, i), err_text());
    peer_gone(presence, i, now_ms);
    announcer_forget(presence->conf.announcer, i);
    furthest_step_forget(presence->conf.furthest, i);
    charges_forget(presence->conf.charges, i);
    announced_plans_note(presence->conf.plans, i, false, &(struct digest){{0}});
    presence->peers[i] = (struct peer){0};
}

enum err presence_members(struct presence *presence, const struct view_changes *changes, uint64_t now_ms)
{
    TRY(make_room(presence));
    for (uint32_t i = 0; i < presence->conf.view->count; i++) {
        if (i == presence->conf.view->self)
            continue;
        if (bitset_has(&changes->removed, i))
            drop_member(presence, i, now_ms);
        else if (bitset_has(&changes->added, i) || bitset_has(&changes->changed, i))
            TRY(set_member(presence, i, now_ms));
    }
    return ERR_OK;
}

enum err presence_init(struct presence *presence, const struct presence_conf *conf, uint64_t now_ms)
{
    uint64_t away_ms = conf->conf->away_ms;
    presence->conf = *conf;
    presence->pause_ms = away_ms / 3 < BEAT_MS ? away_ms / 3 : BEAT_MS;
    presence->silent_ms = SILENT_MS < away_ms ? SILENT_MS : 3 * away_ms / 4;
    TRY(make_room(presence));
    for (uint32_t i = 0; i < conf->view->count; i++)
        if (is_other(presence, i))
            TRY(set_member(presence, i, now_ms));
    return ERR_OK;
}

void presence_deinit(struct presence *presence)
{
    mem_free(presence->peers);
    presence->peers = NULL;
}

void presence_begin(struct presence *presence, uint64_t now_ms)
{
    for (uint32_t i = 0; i < presence->conf.view->count; i++)
        presence->peers[i].since_ms = now_ms;
}

/* ---- greetings and heartbeats in ---- */

void presence_hello(struct presence *presence, uint32_t i, const struct wire_hello *hello, uint64_t now_ms)
{
    struct peer *peer = &presence->peers[i];
    bool restarted = peer->session != hello->session;
    if (presence_refuse(presence, i, misfit(presence, i, hello), now_ms) ||
        (restarted && !presence_charge(presence, i, BUDGET_SESSIONS, 1, now_ms)))
        return;
    if (membership_word(presence->conf.membership, i, &hello->word) != ERR_OK &&
        log_limit_pass(&peer->word_said, now_ms, REFUSED_SAID_MS))
        log_warn("what island %s says of itself is passed over: %s", name_of(presence, i), err_text());
    duplicate_key_note(&peer->duplicate_key, name_of(presence, i), hello->session, now_ms);
    bool again = peer->greeted;
    objects_set_window(presence->conf.objects, i, (uint64_t)hello->window_kib * 1024);
    announced_plans_note(presence->conf.plans, i, hello->plan_known, &hello->plan_id);
    peer->session = hello->session;
    peer->greeted = true;
    peer->refused = false;
    peer->note[0] = '\0';
    if (restarted || !again) /* greetings alone say nothing of how it stands: who is silent is back with a heartbeat */
        peer->heard_ms = now_ms;
    if (restarted) {
        /* What it said before is void. */
        beats_restart(&peer->beats);
        furthest_step_restart(presence->conf.furthest, i);
        objects_reset(presence->conf.objects, i);
        peer_gone(presence, i, now_ms);
    }
    /* A repeated greeting means that the peer may not have ours; the pause keeps two answers from chasing each other.
     */
    if (restarted || (again && now_ms >= peer->hello_ms))
        presence_greet(presence, i, now_ms);
    if (restarted || !again) {
        if (log_line_of_one(&peer->comings, now_ms))
            log_info("island %s is here (%s)", name_of(presence, i), hello->software);
        peer_up(presence, i, now_ms);
    }
}

/* What the member in that slot certifies. What was none of its signatures is charged to it when that is found out. */
static void certificates_in(struct presence *presence, uint32_t slot, const struct wire_heartbeat *beat,
                            uint64_t now_ms)
{
    const struct view *view = presence->conf.view;
    struct certificates *certificates = presence->conf.plan->certificates;
    uint32_t id = view->members[slot].as.id, failed = certificates_take_false(certificates, id);
    charges_false(presence->conf.charges, slot, failed, now_ms);
    if (!presence_charge(presence, slot, BUDGET_FALSE, 0, now_ms))
        return;
    for (uint32_t k = 0; certificates != NULL && k < beat->fragments_count; k++) {
        const struct wire_fragment *row = &beat->fragments[k];
        const struct certificate_subject subject = {
            .nonce = view->nonce, .fragment = row->fragment, .version = row->at.version, .hash = row->at.hash};
        if (row->certified)
            certificates_heard(certificates, id, &subject, row->signature);
    }
}

void presence_heartbeat(struct presence *presence, uint32_t i, const struct wire_heartbeat *beat, uint64_t now_ms)
{
    struct peer *peer = &presence->peers[i];
    if (!peer->greeted || beat->session != peer->session) {
        if (now_ms >= peer->hello_ms)
            presence_greet(presence, i, now_ms);
        return;
    }
    if (!beats_in(&peer->beats, beat, now_ms))
        return;
    peer->heard_ms = now_ms;
    furthest_step_heard(presence->conf.furthest, i, beat, now_ms);
    peer->undialled = beat->undialled;
    if (!is_up(presence, i)) {
        if (log_line_of_one(&peer->comings, now_ms))
            log_info("island %s is back", name_of(presence, i));
        peer_up(presence, i, now_ms);
    }
    certificates_in(presence, i, beat, now_ms);
    membership_heard(presence->conf.membership, i, beat, now_ms);
    event_post_sync(presence->conf.events, &(struct sync_event){.type = SYNC_EV_HEARTBEAT, .member = i, .beat = beat});
}

void presence_bye(struct presence *presence, uint32_t i, const char *reason, uint64_t now_ms)
{
    struct peer *peer = &presence->peers[i];
    if (log_line_of_one(&peer->comings, now_ms))
        log_info("island %s says goodbye: %s", name_of(presence, i), reason);
    snprintf(peer->note, sizeof peer->note, "%.200s", reason);
    peer_gone(presence, i, now_ms);
    peer->greeted = false;
    peer->session = 0;
}

void presence_not_through(struct presence *presence, uint32_t i, bool answered, uint64_t now_ms)
{
    struct peer *peer = &presence->peers[i];
    if (is_up(presence, i)) /* it reaches us, so that does not matter */
        return;
    if (answered) {
        presence_refuse(
            presence, i,
            "it does not admit our key, or its own is not the one on our roster: was this island revoked, or did it "
            "send too much? Compare `dilococtl peers`, and its log",
            now_ms);
        peer->unadmitted = true;
        return;
    }
    peer->refused = false;
    snprintf(peer->note, sizeof peer->note, "it does not answer: its daemon hangs, or its machine is overloaded");
}

/* ---- time ---- */

void presence_look(struct presence *presence, uint32_t i, uint64_t now_ms)
{
    struct peer *peer = &presence->peers[i];
    bool in_vain = is_up(presence, i) && link_undialled(presence->conf.link, i);
    peer->vain_ms = !in_vain ? 0 : peer->vain_ms != 0 ? peer->vain_ms : now_ms;
    bool settled = peer->greeted && bitset_has(&presence->conf.plans->known, i) == (presence->conf.plan->plan != NULL);
    if (!settled && link_up(presence->conf.link, i, false) && now_ms >= peer->hello_ms)
        presence_greet(presence, i, now_ms);
    uint64_t heard_ms = peer->heard_ms > peer->since_ms ? peer->heard_ms : peer->since_ms;
    const struct sync *sync = is_up(presence, i) ? presence->conf.plan->sync : NULL;
    bool in_doubt = vote_doubt(presence->conf.announcer->conf.vote) != VOTE_SURE;
    if (sync != NULL)
        faults_look(&peer->faults, sync, i, name_of(presence, i), now_ms);
    bool useless = sync != NULL && sync_complains(sync, i, in_doubt);
    bool shut = charges_is_shut(presence->conf.charges, i, now_ms); /* nobody need wait for it first */
    if (useless || shut || now_ms > heard_ms + presence->conf.conf->away_ms)
        bitset_add(&presence->silent, i);
    else
        bitset_remove(&presence->silent, i);
    if (peer->greeted && now_ms >= peer->beat_ms)
        send_heartbeat(presence, i, now_ms);
    if (is_up(presence, i) && now_ms > peer->heard_ms + presence->silent_ms) {
        if (log_line_of_one(&peer->comings, now_ms))
            log_warn("island %s has not been heard of for %.1f s", name_of(presence, i),
                     (double)(now_ms - peer->heard_ms) / 1000);
        snprintf(peer->note, sizeof peer->note, "silent");
        peer_gone(presence, i, now_ms);
    }
}

bool presence_all_heard(const struct presence *presence)
{
    for (uint32_t i = 0; i < presence->conf.view->count; i++)
        if (is_other(presence, i) && presence->conf.view->members[i].as.role != CONFIG_WITNESS &&
            (!is_up(presence, i) || presence->peers[i].beats.in == 0))
            return false;
    return true;
}
