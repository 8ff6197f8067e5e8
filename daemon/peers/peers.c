/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/peers.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "common/mem.h"
#include "common/quota.h"
#include "daemon/peers/budget.h"
#include "daemon/founding.h"
#include "daemon/peers/own_uplink.h"
#include "daemon/peers/pace.h"
#include "daemon/peers/peer.h"
#include "daemon/peers/undialled.h"
#include "daemon/rounds/round_context.h"
#include "daemon/rules.h"
#include "net/membership/membership.h"
#include "net/sync/sync.h"

/* BEAT: heartbeats; an island that is silent for SILENT counts as away, which status shows within three seconds.
 * HELLO_AGAIN: greetings are repeated until both sides know the same of each other. */
enum { BEAT_MS = 1000, SILENT_MS = 2500, HELLO_AGAIN_MS = 1000, ANNOUNCE_GAP_MS = 3 };
/* The same complaint about one island, or about any, is logged once in so long. */
enum { REFUSED_SAID_MS = 10000, MALFORMED_SAID_MS = 5000, DIVERGED_SAID_MS = 5000, PLAN_SAID_MS = 60000 };
enum { STRANGER_SAID_MS = 5000 };
/* SLEPT: who takes nothing in for so long was stopped, or its machine was: what others said has gathered. PLAN_HEARD:
 * once one has announced the run's plan, the others have so long to announce theirs. DROPPED: of a text about that. */
enum { SLEPT_MS = 500, PLAN_HEARD_MS = 2000, DROPPED_BYTES = 120 };

struct peer {
    bool greeted; /* a hello of the present session was accepted */
    bool up;      /* greeted and heard from lately */
    uint64_t session, heard_ms, hello_ms, beat_ms;
    uint64_t since_ms; /* its slot is its own */
    uint64_t vain_ms;  /* since when we dial it in vain, though we hear it; 0: we do not */
    struct beats beats;
    bool plan_known;
    struct digest plan_id;
    struct report report;
    struct pace pace;       /* of its trainer */
    struct rows_said *said; /* [fragments]: what we last told it */
    uint32_t refresh;       /* next fragment to repeat */
    struct log_limit refused_said, malformed_said, diverged_said, plan_said, word_said;
    struct duplicate_key duplicate_key;
    struct faults faults;
    struct budget budget;
    struct quota refusals, comings; /* lines in the log: that it refuses something; that it comes and goes */
    uint64_t messages_out;          /* of the link, as far as answers to them were earned */
    bool undialled;                 /* as it says: it dials us in vain */
    bool refused;                   /* it, or we, would not talk: not a matter of time */
    bool unadmitted;                /* refused, since it does not know our key, or has another than we think */
    char note[WIRE_REASON_BYTES];   /* why it is not up, for status; "" if nothing is known */
};

/* Connections with a key that nobody knows. */
struct strangers {
    uint64_t count, last_ms;
    char last[WIRE_REASON_BYTES]; /* its key and address */
    struct log_limit said;
};

/* Who came with a token, and cannot be talked to. */
struct newcomers {
    uint64_t last_ms; /* 0: never */
    char last[WIRE_REASON_BYTES];
    struct log_limit said;
};

struct peers {
    struct peers_conf conf;
    struct transfer_plan plan; /* .plan NULL: not known yet */
    struct budget_credit credit;
    uint64_t looked_ms;     /* when connections were last looked at */
    uint64_t plan_heard_ms; /* since when another one has announced one; 0: nobody has */
    uint64_t now_ms;
    struct membership *membership;
    struct peer *peers; /* [room], by slot */
    uint32_t room;
    struct bitset silent; /* not heard for as long as the configuration allows */
    uint64_t pause_ms;    /* between heartbeats */
    uint64_t silent_ms;   /* one who is silent so long is not up */
    bool announce;
    uint64_t announce_ms;
    bool draining; /* we are leaving the run, or have left it */
    struct undialled undialled;
    struct own_uplink uplink;
    bool news;        /* all others are to be greeted again */
    uint64_t word;    /* number of our word in the last greeting */
    struct pace pace; /* of our own trainer */
    struct step_line line;
    struct pace_said paces[VIEW_SLOTS_MAX];
    struct report_bounds bounds;
    struct strangers strangers;
    struct newcomers newcomers;
    struct log_limit anyone_said;
    bool capped_said;            /* what caps a line, in the log */
    struct wire_message in, out; /* taken in, and being said; large, so not on the stack */
};

static uint32_t self_of(const struct peers *peers)
{
    return peers->conf.view->self;
}

static uint32_t members_of(const struct peers *peers)
{
    return peers->conf.view->count;
}

static uint32_t fragments_of(const struct peers *peers)
{
    return peers->plan.plan != NULL ? peers->plan.plan->plan->fragments_count : 0;
}

static const char *name_of(const struct peers *peers, uint32_t peer)
{
    return peers->conf.view->members[peer].as.name;
}

/* Whether a slot is another member's. */
static bool is_other(const struct peers *peers, uint32_t i)
{
    return i != self_of(peers) && peers->conf.view->members[i].used;
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
    struct link_member member = {.name = from->as.name, .address = from->as.address};
    struct peer *peer = &peers->peers[i];
    memcpy(member.key, from->as.key, sizeof member.key);
    memcpy(member.next, from->as.next_key, sizeof member.next);
    if (peer->since_ms == 0)
        peer->since_ms = peers->now_ms;
    if (peer->said == NULL && fragments_of(peers) > 0)
        TRY(mem_new(fragments_of(peers), sizeof *peer->said, "peers", &peer->said));
    enum err err = link_set(peers->conf.link, i, &member);
    if (err != ERR_CONF && err != ERR_STATE)
        return err;
    /* Nothing that is said of a member ends a daemon, or keeps one from starting. */
    snprintf(peer->note, sizeof peer->note, "it cannot be dialled, so it has to dial us: %.150s", err_text());
    log_error("island %s cannot be dialled: %s", from->as.name, err_text());
    return ERR_OK;
}

enum err peers_new(const struct peers_conf *conf, struct peers **out)
{
    enum err err;
    struct peers *peers = NULL;
    *out = NULL;
    TRY_OUT(mem_new(1, sizeof *peers, "peers", &peers));
    peers->conf = *conf;
    peers->now_ms = conf->start_ms;
    peers->uplink = own_uplink_init(conf->conf->uplink, conf->start_ms);
    peers->pause_ms = conf->conf->away_ms / 3 < BEAT_MS ? conf->conf->away_ms / 3 : BEAT_MS;
    peers->silent_ms = SILENT_MS < conf->conf->away_ms ? SILENT_MS : 3 * conf->conf->away_ms / 4;
    peers->membership = membership_host_membership(conf->host);
    TRY_OUT(make_room(peers));
    for (uint32_t i = 0; i < members_of(peers); i++)
        if (is_other(peers, i))
            TRY_OUT(set_member(peers, i));
    undialled_begin(&peers->undialled, conf->conf, conf->view);
    say_of_ourselves(peers);
out:
    if (err != ERR_OK)
        peers_free(peers);
    else
        *out = peers;
    return err;
}

void peers_begin(struct peers *peers, uint64_t now_ms)
{
    peers->now_ms = now_ms;
    for (uint32_t i = 0; i < members_of(peers); i++)
        peers->peers[i].since_ms = now_ms;
}

/* How near to its limits a member ever came. */
static void log_budget(const struct peers *peers, uint32_t i)
{
    for (unsigned kind = 0; kind < BUDGET_KINDS; kind++) {
        uint64_t percent = budget_percent(&peers->peers[i].budget, (enum budget_kind)kind);
        if (percent > 0)
            log_debug("island %s: %s at most %" PRIu64 " %% of what may come at once", name_of(peers, i),
                      budget_name((enum budget_kind)kind), percent);
    }
}

void peers_free(struct peers *peers)
{
    if (peers == NULL)
        return;
    for (uint32_t i = 0; i < peers->room; i++)
        if (is_other(peers, i))
            log_budget(peers, i);
    for (uint32_t i = 0; i < peers->room; i++)
        mem_free(peers->peers[i].said);
    mem_free(peers->peers);
    mem_free(peers);
}

uint64_t peers_wait_us(const struct peers *peers)
{
    if (!peers->announce)
        return 0;
    return peers->announce_ms > peers->now_ms ? 1000 * (peers->announce_ms - peers->now_ms) : 1;
}

/* ---- greetings and heartbeats out ---- */

/* A message that cannot go now is dropped: everything here is repeated. */
static void say(struct peers *peers, uint32_t i)
{
    enum err err = link_say(peers->conf.link, i, &peers->out);
    if (err != ERR_OK && err != ERR_AGAIN && err != ERR_CLOSED)
        log_error("cannot talk to island %s: %s", name_of(peers, i), err_text());
}

static void fill_hello(struct peers *peers)
{
    const struct peers_conf *conf = &peers->conf;
    const struct model_plan *plan = peers->plan.plan;
    struct wire_hello *hello = &peers->out.hello;
    peers->out.type = WIRE_HELLO;
    *hello = (struct wire_hello){.run_id = conf->spec->digest,
                                 .plan_known = plan != NULL,
                                 .session = conf->session,
                                 .island = conf->view->members[conf->view->self].as.id,
                                 .window_kib = (uint32_t)(conf->conf->window / 1024),
                                 .word = *membership_own_word(peers->membership)};
    peers->word = hello->word.number;
    if (hello->plan_known)
        hello->plan_id = plan->id;
    snprintf(hello->name, sizeof hello->name, "%s", conf->conf->name);
    snprintf(hello->software, sizeof hello->software, "diloco " DILOCO_VERSION);
}

static void send_hello(struct peers *peers, uint32_t i)
{
    fill_hello(peers);
    say(peers, i);
    peers->peers[i].hello_ms = peers->now_ms + HELLO_AGAIN_MS;
}

static uint32_t trainer_word(enum trainer_phase phase)
{
    static const uint32_t words[TRAINER_PHASES] = {
        [TRAINER_NONE] = WIRE_TRAINER_NONE,           [TRAINER_STOPPED] = WIRE_TRAINER_NONE,
        [TRAINER_STARTING] = WIRE_TRAINER_STARTING,   [TRAINER_TRAINING] = WIRE_TRAINER_TRAINING,
        [TRAINER_FINISHING] = WIRE_TRAINER_FINISHING, [TRAINER_FINISHED] = WIRE_TRAINER_FINISHED,
        [TRAINER_LEAVING] = WIRE_TRAINER_NONE,        [TRAINER_RESTARTING] = WIRE_TRAINER_FAILED,
        [TRAINER_ENDED] = WIRE_TRAINER_NONE};
    return words[phase];
}

static uint32_t bounded(double value)
{
    return value > 0 && value < (double)UINT32_MAX ? (uint32_t)value : 0;
}

static void put_silent(const struct view *view, const struct bitset *silent, struct wire_heartbeat *beat)
{
    beat->silent_count = 0;
    for (uint32_t i = 0; i < view->count; i++)
        if (bitset_has(silent, i) && view->members[i].used)
            beat->silent[beat->silent_count++] = view->members[i].as.id;
}

/* A heartbeat without rows, and without what is each member's own: sequence and echo. */
static void fill_beat(struct peers *peers)
{
    const struct peers_conf *conf = &peers->conf;
    const struct rounds *rounds = peers->plan.rounds;
    struct wire_heartbeat *beat = &peers->out.heartbeat;
    struct trainer_info trainer = trainer_info(conf->trainer);
    enum trainer_phase phase = trainer_phase(conf->trainer);
    bool training = phase == TRAINER_TRAINING || phase == TRAINER_FINISHING;
    peers->out.type = WIRE_HEARTBEAT;
    beat->session = conf->session;
    beat->taking_part = training || phase == TRAINER_STARTING;
    beat->step = training ? trainer.step : rounds != NULL ? rounds_step(rounds) : 0;
    beat->trained = training ? trainer.trained : 0;
    beat->tokens = trainer.tokens;
    memcpy(&beat->loss, &trainer.loss, sizeof beat->loss);
    beat->tokens_per_s = bounded(trainer.tokens_per_s);
    beat->trainer = trainer_word(phase);
    beat->epoch = conf->view->epoch;
    beat->incarnation = vote_incarnation(conf->vote);
    beat->disk_fails =
        (rounds != NULL && round_context_refuses(rounds->context)) || membership_host_unkept(conf->host)[0] != '\0';
    beat->in_doubt = vote_doubt(conf->vote) != VOTE_SURE;
    beat->fragments_count = beat->held_count = 0;
    put_silent(conf->view, &peers->silent, beat);
}

static void send_heartbeat(struct peers *peers, uint32_t i)
{
    struct peer *peer = &peers->peers[i];
    struct wire_heartbeat *beat = &peers->out.heartbeat;
    fill_beat(peers);
    beat->undialled = peer->vain_ms != 0 && peers->now_ms >= peer->vain_ms + UNDIALLED_MS;
    membership_beat(peers->membership, beat, peers->now_ms);
    beats_out(&peer->beats, beat, peers->now_ms);
    if (peers->plan.sync != NULL && !sync_is_witness(peers->plan.sync))
        rows_fill(peers->plan.sync, peers->plan.certificates, fragments_of(peers), peer->said, &peer->refresh, beat);
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
    membership_up(peers->membership, i, true, peers->now_ms);
    peers->announce = true;
    peer->beat_ms = 0;
}

static void peer_gone(struct peers *peers, uint32_t i)
{
    struct peer *peer = &peers->peers[i];
    if (peer->up) {
        objects_lost_sight(peers->conf.objects, i);
        event_post_sync(peers->conf.events, &(struct sync_event){.type = SYNC_EV_PEER_DOWN, .member = i});
        membership_up(peers->membership, i, false, peers->now_ms);
    }
    peer->up = false;
    peer->vain_ms = 0; /* where a line is cut, dialling in vain says nothing */
}

/* Why the plan that it has, if it knows one, is not ours; NULL: it may be. */
static const char *plan_misfit(const struct peers *peers, bool known, const struct digest *theirs)
{
    const struct model_plan *plan = peers->plan.plan;
    if (!known || plan == NULL || digest_equal(theirs, &plan->id))
        return NULL;
    return "its model has other tensors, or another frozen base; the trainers of all islands must register the same";
}

/* Why the member in that slot, which greets so, cannot be talked to; NULL: it can. In a buffer of the thread, good
 * until the next call. */
static const char *misfit(const struct peers *peers, uint32_t slot, const struct wire_hello *hello)
{
    const struct peers_conf *conf = &peers->conf;
    const struct view_member *member = &conf->view->members[slot];
    if (!digest_equal(&hello->run_id, &conf->spec->digest))
        return "it has another run spec; give every island the same file";
    if (hello->island != member->as.id || strcmp(hello->name, member->as.name) != 0)
        return "its name is not the one its key stands for";
    return plan_misfit(peers, hello->plan_known, &hello->plan_id);
}

enum err peers_plan_known(struct peers *peers, const struct transfer_plan *plan)
{
    uint32_t fragments = plan->plan->plan->fragments_count;
    for (uint32_t i = 0; i < peers->room; i++)
        TRY(mem_new(fragments, sizeof *peers->peers[i].said, "peers", &peers->peers[i].said));
    peers->plan = *plan;
    for (uint32_t i = 0; i < members_of(peers); i++) {
        struct peer *peer = &peers->peers[i];
        if (!peer->greeted || !is_other(peers, i) ||
            refuse(peers, i, plan_misfit(peers, peer->plan_known, &peer->plan_id)))
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
    if (link_set(peers->conf.link, i, NULL) != ERR_OK)
        log_error("cannot end the connection to island %s: %s", name_of(peers, i), err_text());
    peer_gone(peers, i);
    mem_free(peer->said);
    *peer = (struct peer){0};
}

enum err peers_members(struct peers *peers, const struct view_changes *changes)
{
    TRY(make_room(peers));
    for (uint32_t i = 0; i < members_of(peers); i++) {
        if (i == self_of(peers))
            continue;
        if (bitset_has(&changes->removed, i))
            drop_member(peers, i);
        else if (bitset_has(&changes->added, i) || bitset_has(&changes->changed, i))
            TRY(set_member(peers, i));
    }
    return ERR_OK;
}

/* ---- what members may cost ---- */

/* It goes on and on: nothing of it is heard for a while. */
static void shut_out(struct peers *peers, uint32_t i)
{
    struct peer *peer = &peers->peers[i];
    link_shut(peers->conf.link, i, budget_close(&peer->budget, peers->now_ms));
    log_warn("island %s: %s", name_of(peers, i), budget_text(&peer->budget, peers->now_ms));
    snprintf(peer->note, sizeof peer->note, "%s", budget_text(&peer->budget, peers->now_ms));
    peer_gone(peers, i);
    peer->greeted = false;
}

/* Something that it sent is passed over. */
static void drop(struct peers *peers, uint32_t i, const char *text)
{
    faults_dropped(&peers->peers[i].faults, peers->now_ms);
    if (log_limit_pass(&peers->peers[i].malformed_said, peers->now_ms, MALFORMED_SAID_MS))
        log_error("island %s sent something we drop: %s", name_of(peers, i), text);
}

/* Charges so many to the member. False: that is beyond its budget, so they are dropped. */
static bool charge(struct peers *peers, uint32_t i, enum budget_kind kind, uint32_t count)
{
    struct peer *peer = &peers->peers[i];
    char text[DROPPED_BYTES];
    if (budget_take(&peer->budget, &peers->credit, kind, count, peers->now_ms))
        return true;
    snprintf(text, sizeof text, "more %s than anybody needs", budget_name(kind));
    drop(peers, i, text);
    if (budget_is_exceeded(&peer->budget, &peers->credit, peers->now_ms))
        shut_out(peers, i);
    return false;
}

/* ---- greetings and heartbeats in ---- */

static void hello_in(struct peers *peers, uint32_t i, const struct wire_hello *hello)
{
    struct peer *peer = &peers->peers[i];
    bool restarted = peer->session != hello->session;
    if (refuse(peers, i, misfit(peers, i, hello)) || (restarted && !charge(peers, i, BUDGET_SESSIONS, 1)))
        return;
    if (membership_word(peers->membership, i, &hello->word) != ERR_OK &&
        log_limit_pass(&peer->word_said, peers->now_ms, REFUSED_SAID_MS))
        log_warn("what island %s says of itself is passed over: %s", name_of(peers, i), err_text());
    duplicate_key_note(&peer->duplicate_key, name_of(peers, i), hello->session, peers->now_ms);
    bool again = peer->greeted;
    objects_set_window(peers->conf.objects, i, (uint64_t)hello->window_kib * 1024);
    peer->plan_known = hello->plan_known;
    peer->plan_id = hello->plan_id;
    peer->session = hello->session;
    peer->greeted = true;
    peer->refused = false;
    peer->note[0] = '\0';
    if (restarted || !again) /* greetings alone say nothing of how it stands: who is silent is back with a heartbeat */
        peer->heard_ms = peers->now_ms;
    if (restarted) {
        /* What it said before is void. */
        beats_restart(&peer->beats);
        report_restart(&peer->report);
        peer->pace = (struct pace){0};
        objects_reset(peers->conf.objects, i);
        peer_gone(peers, i);
    }
    /* A repeated greeting means that the peer may not have ours; the pause keeps two answers from chasing each other.
     */
    if (restarted || (again && peers->now_ms >= peer->hello_ms))
        send_hello(peers, i);
    if (restarted || !again) {
        if (log_line_of_one(&peer->comings, peers->now_ms))
            log_info("island %s is here (%s)", name_of(peers, i), hello->software);
        peer_up(peers, i);
    }
}

/* What the member in that slot certifies. What was none of its signatures is charged to it when that is found out. */
static void certificates_in(struct peers *peers, uint32_t slot, const struct wire_heartbeat *beat)
{
    const struct view *view = peers->conf.view;
    struct certificates *certificates = peers->plan.certificates;
    uint32_t id = view->members[slot].as.id, failed = certificates_take_false(certificates, id);
    budget_spend(&peers->peers[slot].budget, BUDGET_FALSE, failed, peers->now_ms);
    if (!charge(peers, slot, BUDGET_FALSE, 0))
        return;
    for (uint32_t k = 0; certificates != NULL && k < beat->fragments_count; k++) {
        const struct wire_fragment *row = &beat->fragments[k];
        const struct certificate_subject subject = {
            .nonce = view->nonce, .fragment = row->fragment, .version = row->at.version, .hash = row->at.hash};
        if (row->certified)
            certificates_heard(certificates, id, &subject, row->signature);
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
    if (!beats_in(&peer->beats, beat, peers->now_ms))
        return;
    peer->heard_ms = peers->now_ms;
    report_take(&peer->report, beat, trainer_info(peers->conf.trainer).step);
    pace_note(&peer->pace, beat->trained, peers->now_ms);
    peer->undialled = beat->undialled;
    if (!peer->up) {
        if (log_line_of_one(&peer->comings, peers->now_ms))
            log_info("island %s is back", name_of(peers, i));
        peer_up(peers, i);
    }
    certificates_in(peers, i, beat);
    membership_heard(peers->membership, i, beat, peers->now_ms);
    event_post_sync(peers->conf.events, &(struct sync_event){.type = SYNC_EV_HEARTBEAT, .member = i, .beat = beat});
}

static void bye_in(struct peers *peers, uint32_t i, const char *reason)
{
    struct peer *peer = &peers->peers[i];
    if (log_line_of_one(&peer->comings, peers->now_ms))
        log_info("island %s says goodbye: %s", name_of(peers, i), reason);
    snprintf(peer->note, sizeof peer->note, "%.200s", reason);
    peer_gone(peers, i);
    peer->greeted = false;
    peer->session = 0;
}

/* ---- dispatch ---- */

static void malformed(struct peers *peers, uint32_t i, const char *text)
{
    drop(peers, i, text);
    (void)charge(peers, i, BUDGET_UNUSABLE, 1);
}

/* What the link has dropped of it, until it is shut out. */
static void charge_unusable(struct peers *peers, uint32_t i)
{
    uint64_t left = link_take_unusable(peers->conf.link, i);
    for (; left > 0 && peers->now_ms >= peers->peers[i].budget.open_ms; left--)
        (void)charge(peers, i, BUDGET_UNUSABLE, 1);
}

static bool charge_epoch(struct peers *peers, uint32_t i, const struct link_message *in)
{
    uint32_t type = in->header.type;
    if (!charge(peers, i, BUDGET_EPOCH, 1) || !charge(peers, i, BUDGET_EPOCH_KIB, (uint32_t)(in->bytes / 1024)) ||
        !charge(peers, i, BUDGET_FALSE, 0))
        return false;
    if (type == WIRE_ORDER || type == WIRE_EVIDENCE)
        return charge(peers, i, BUDGET_ORDERS, 1);
    return type != WIRE_CONFIG_LOG || charge(peers, i, BUDGET_QUESTIONS, 1);
}

/* Each message that we have sent it may be answered twice. */
static bool charge_answer(struct peers *peers, uint32_t i)
{
    struct peer *peer = &peers->peers[i];
    uint64_t out = link_messages_out(peers->conf.link, i);
    if (out > peer->messages_out)
        budget_earn(&peer->budget, BUDGET_ANSWERS, 2 * (out - peer->messages_out));
    peer->messages_out = out;
    return charge(peers, i, BUDGET_ANSWERS, 1);
}

/* Before anything else is done about a message. */
static bool charge_control(struct peers *peers, uint32_t i, const struct link_message *in)
{
    switch (in->header.type) {
    case WIRE_HEARTBEAT: return charge(peers, i, BUDGET_HEARTBEATS, 1);
    case WIRE_ACK:
    case WIRE_DONE: return charge_answer(peers, i);
    case WIRE_FETCH: return charge(peers, i, BUDGET_FETCHES, 1);
    case WIRE_DIAL_REQUEST:
    case WIRE_DIAL_RESPONSE: return charge(peers, i, BUDGET_DIALS, 1);
    default: return wire_is_epoch(in->header.type) ? charge_epoch(peers, i, in) : charge(peers, i, BUDGET_GREETINGS, 1);
    }
}

static void done_in(struct peers *peers, uint32_t i, const struct wire_message *message)
{
    if (message->done.status == WIRE_REFUSED && log_line_of_one(&peers->peers[i].refusals, peers->now_ms))
        log_error("island %s refuses our %s", name_of(peers, i), wire_key_text(&message->done.key));
    objects_message_in(peers->conf.objects, i, message, peers->now_ms);
}

static void dial_in(struct peers *peers, const struct link_message *in)
{
    struct dial_server *dials = membership_host_dial_server(peers->conf.host);
    if (peers->peers[in->peer].greeted &&
        dial_server_message_in(dials, in->peer, in->header.type, in->payload, in->bytes, peers->now_ms) != ERR_OK)
        malformed(peers, in->peer, err_text());
}

static void take_control(struct peers *peers, const struct link_message *in)
{
    struct wire_message *message = &peers->in;
    uint32_t i = in->peer;
    if (wire_is_epoch(in->header.type)) {
        if (peers->peers[i].greeted && membership_message_in(peers->membership, i, in->header.type, in->payload,
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
    case WIRE_HELLO: hello_in(peers, i, &message->hello); break;
    case WIRE_HEARTBEAT: heartbeat_in(peers, i, &message->heartbeat); break;
    case WIRE_BYE:
        if (peers->peers[i].greeted)
            bye_in(peers, i, message->bye.reason);
        break;
    case WIRE_ACK:
    case WIRE_FETCH:
        if (peers->peers[i].greeted)
            objects_message_in(peers->conf.objects, i, message, peers->now_ms);
        break;
    case WIRE_DONE:
        if (peers->peers[i].greeted)
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
    if (!charge_control(peers, in->peer, in))
        return;
    take_control(peers, in);
    failed = ident_checks_failed() - failed;
    if (failed > 0)
        budget_spend(&peers->peers[in->peer].budget, BUDGET_FALSE, (uint32_t)failed, peers->now_ms);
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
        budget_earn(&peers->peers[i].budget, BUDGET_CHUNKS, 2 * cost); /* this one, and one that comes in vain */
}

static void bulk_in(struct peers *peers, const struct link_message *in)
{
    if (in->header.type == WIRE_BULK_HELLO) {
        if (charge(peers, in->peer, BUDGET_GREETINGS, 1))
            objects_reconnected(peers->conf.objects, in->peer);
    } else if (peers->peers[in->peer].greeted) {
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

static void strangers_note(struct strangers *strangers, const char *who, uint64_t now_ms)
{
    strangers->count++;
    strangers->last_ms = now_ms;
    snprintf(strangers->last, sizeof strangers->last, "%s", who);
    if (log_limit_pass(&strangers->said, now_ms, STRANGER_SAID_MS))
        log_warn(
            "refused a connection with unknown key %s; if it is an island of the run, it was revoked, and comes in "
            "again by dilococtl reset there and a new invitation, or it has another key than dilococtl peers shows",
            who);
}

static void newcomers_note(struct newcomers *newcomers, const char *why, uint64_t now_ms)
{
    newcomers->last_ms = now_ms;
    snprintf(newcomers->last, sizeof newcomers->last, "%s", why);
    if (log_limit_pass(&newcomers->said, now_ms, STRANGER_SAID_MS))
        log_warn("a newcomer with a token was refused: %s; install the same release on both, the token stays good",
                 why);
}

/* Our dialling came to nothing: it answered and would not, or it did not answer. */
static void not_through(struct peers *peers, uint32_t i, bool answered)
{
    struct peer *peer = &peers->peers[i];
    if (peer->up) /* it reaches us, so that does not matter */
        return;
    if (answered) {
        refuse(peers, i,
               "it does not admit our key, or its own is not the one on our roster: was this island revoked, or did it "
               "send too much? Compare `dilococtl peers`, and its log");
        peer->unadmitted = true;
        return;
    }
    peer->refused = false;
    snprintf(peer->note, sizeof peer->note, "it does not answer: its daemon hangs, or its machine is overloaded");
}

void peers_look(struct peers *peers, uint64_t now_ms)
{
    struct link_event event;
    if (peers->looked_ms != 0 && now_ms >= peers->looked_ms + SLEPT_MS)
        budget_credit(&peers->credit, now_ms - peers->looked_ms, now_ms);
    peers->now_ms = peers->looked_ms = now_ms;
    while (link_event(peers->conf.link, &event)) {
        switch (event.type) {
        case LINK_CONNECTED:
            if (event.bulk)
                objects_reconnected(peers->conf.objects, event.peer);
            else
                send_hello(peers, event.peer);
            break;
        case LINK_DISCONNECTED: break; /* silence says the rest */
        case LINK_STRANGER: strangers_note(&peers->strangers, event.text, now_ms); break;
        case LINK_NOT_ADMITTED: not_through(peers, event.peer, true); break;
        case LINK_NO_ANSWER: not_through(peers, event.peer, false); break;
        case LINK_MISMATCH:
            if (event.peer >= members_of(peers)) {
                newcomers_note(&peers->newcomers, event.text, now_ms);
                break;
            }
            refuse(peers, event.peer, event.text);
            charge_unusable(peers, event.peer);
            break;
        case LINK_MALFORMED:
            if (event.peer < members_of(peers)) {
                drop(peers, event.peer, event.text);
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
    if (peers->announce && now_ms >= peers->announce_ms) {
        peers->announce = false;
        peers->announce_ms = now_ms + ANNOUNCE_GAP_MS;
        for (uint32_t i = 0; i < members_of(peers); i++)
            if (is_other(peers, i) && peers->peers[i].greeted)
                send_heartbeat(peers, i);
    }
}

/* ---- the tick ---- */

static void look_after(struct peers *peers, uint32_t i)
{
    struct peer *peer = &peers->peers[i];
    bool in_vain = peer->up && link_undialled(peers->conf.link, i);
    peer->vain_ms = !in_vain ? 0 : peer->vain_ms != 0 ? peer->vain_ms : peers->now_ms;
    bool settled = peer->greeted && peer->plan_known == (peers->plan.plan != NULL);
    if (!settled && link_up(peers->conf.link, i, false) && peers->now_ms >= peer->hello_ms)
        send_hello(peers, i);
    uint64_t heard_ms = peer->heard_ms > peer->since_ms ? peer->heard_ms : peer->since_ms;
    bool useless = peer->up && peers->plan.sync != NULL &&
                   faults_look(&peer->faults, peers->plan.sync, i, name_of(peers, i), peers->now_ms);
    bool shut = peers->now_ms < peer->budget.open_ms; /* nobody need wait for it first */
    if (useless || shut || peers->now_ms > heard_ms + peers->conf.conf->away_ms)
        bitset_add(&peers->silent, i);
    else
        bitset_remove(&peers->silent, i);
    if (peer->greeted && peers->now_ms >= peer->beat_ms)
        send_heartbeat(peers, i);
    if (peer->up && peers->now_ms > peer->heard_ms + peers->silent_ms) {
        if (log_line_of_one(&peer->comings, peers->now_ms))
            log_warn("island %s has not been heard of for %.1f s", name_of(peers, i),
                     (double)(peers->now_ms - peer->heard_ms) / 1000);
        snprintf(peer->note, sizeof peer->note, "silent");
        peer_gone(peers, i);
    }
}

static void look_whether_undialled(struct peers *peers)
{
    struct undialled_said said = {.who = ""};
    for (uint32_t i = 0; i < members_of(peers); i++) {
        const struct peer *peer = &peers->peers[i];
        const struct config_member *as = &peers->conf.view->members[i].as;
        said.islands += is_other(peers, i) && as->role != CONFIG_WITNESS;
        if (!is_other(peers, i) || !peer->up)
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
    bool news = peers->news || membership_own_word(peers->membership)->number != peers->word;
    peers->news = false;
    for (uint32_t i = 0; i < members_of(peers); i++) {
        if (!is_other(peers, i))
            continue;
        look_after(peers, i);
        if (news && peers->peers[i].greeted)
            send_hello(peers, i);
    }
}

/* ---- orders ---- */

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

/* ---- looking in ---- */

bool peers_heard(const struct peers *peers)
{
    for (uint32_t i = 0; i < members_of(peers); i++)
        if (is_other(peers, i) && peers->conf.view->members[i].as.role != CONFIG_WITNESS &&
            (!peers->peers[i].up || peers->peers[i].beats.in == 0))
            return false;
    return true;
}

const struct bitset *peers_silent(const struct peers *peers)
{
    return &peers->silent;
}

struct bitset peers_with_plan(const struct peers *peers)
{
    struct bitset with_plan = {{0}};
    for (uint32_t i = 0; i < members_of(peers); i++)
        if (is_other(peers, i) && peers->peers[i].up && peers->peers[i].plan_known)
            bitset_add(&with_plan, i);
    return with_plan;
}

const struct digest *peers_plan_id(const struct peers *peers, uint32_t peer)
{
    return &peers->peers[peer].plan_id;
}

/* Whether all have had their time to say which plan the run has: one who lies may be the first to be heard. */
static bool plans_are_said(struct peers *peers, const struct bitset *with_plan)
{
    if (bitset_empty(with_plan))
        peers->plan_heard_ms = 0;
    else if (peers->plan_heard_ms == 0)
        peers->plan_heard_ms = peers->now_ms;
    return peers->plan_heard_ms != 0 && (peers_heard(peers) || peers->now_ms >= peers->plan_heard_ms + PLAN_HEARD_MS);
}

struct bitset peers_plan_holders(struct peers *peers)
{
    struct bitset with_plan = peers_with_plan(peers), holders = {{0}};
    struct plan_said said[VIEW_SLOTS_MAX];
    uint32_t count = 0;
    if (peers->plan.plan != NULL || !plans_are_said(peers, &with_plan))
        return holders;
    for (uint32_t i = 0; i < members_of(peers); i++) {
        const struct config_member *as = &peers->conf.view->members[i].as;
        if (bitset_has(&with_plan, i))
            said[count++] = (struct plan_said){.id = as->id, .voter = as->voter, .plan = peers->peers[i].plan_id};
    }
    const struct digest *plan = &said[plan_of_most(said, count)].plan;
    for (uint32_t i = 0; i < members_of(peers); i++)
        if (bitset_has(&with_plan, i) && digest_equal(&peers->peers[i].plan_id, plan))
            bitset_add(&holders, i);
    return holders;
}

/* A witness never does, nor who waits for its state: neither can tell how far rounds bring anybody. */
static bool knows_rounds(const struct peers *peers)
{
    bool knows = !view_is_witness(peers->conf.view);
    for (uint32_t f = 0; knows && peers->plan.sync != NULL && f < fragments_of(peers); f++)
        knows = sync_known(peers->plan.sync, f);
    return knows;
}

/* Rounds that we lack have brought the others further than those that we know of. A few are on their way to everybody.
 */
static bool is_behind(const struct peers *peers)
{
    enum { ON_THEIR_WAY = 3 };
    bool behind = false;
    for (uint32_t f = 0; peers->plan.sync != NULL && f < fragments_of(peers) && !behind; f++)
        behind = sync_own(peers->plan.sync, f).version + ON_THEIR_WAY < sync_version_max(peers->plan.sync, f);
    return behind;
}

/* Of all that train, as they say: how fast most owners do. */
static double usual_pace(struct peers *peers)
{
    struct trainer_info own = trainer_info(peers->conf.trainer);
    size_t count = 0;
    for (uint32_t i = 0; i < members_of(peers); i++) {
        const struct peer *peer = &peers->peers[i];
        bool self = i == self_of(peers), owner = peers->conf.view->members[i].as.role == CONFIG_OWNER;
        if (self)
            pace_note(&peers->pace, own.trained, peers->now_ms);
        bool trains =
            self ? own.training : is_other(peers, i) && peer->up && peer->report.trainer == WIRE_TRAINER_TRAINING;
        if (trains)
            peers->paces[count++] =
                (struct pace_said){pace_now(self ? &peers->pace : &peer->pace, peers->now_ms), owner};
    }
    return pace_usual(peers->paces, count);
}

static void set_bounds(struct peers *peers, uint64_t own_step)
{
    uint64_t last = runspec_length(peers->conf.spec);
    uint64_t known = peers->plan.rounds != NULL ? rounds_step(peers->plan.rounds) : 0;
    known = known < last ? known : last; /* a result may be of before the run was made shorter */
    uint64_t sure = known > own_step ? known : own_step;
    double fast_most = peers->conf.spec->weight_max;
    peers->bounds = (struct report_bounds){.most = rules_furthest(peers->conf.spec, fragments_of(peers), sure),
                                           .fast_most = fast_most};
    peers->bounds.line =
        step_line_move(&peers->line, sure, peers->bounds.most, fast_most * usual_pace(peers), peers->now_ms);
}

uint64_t peers_step_line(const struct peers *peers)
{
    return peers->bounds.line;
}

uint64_t peers_furthest(struct peers *peers, uint64_t own_step)
{
    uint64_t last = runspec_length(peers->conf.spec), furthest = own_step;
    bool knows = knows_rounds(peers);
    set_bounds(peers, own_step);
    peers->bounds.judges = knows && !is_behind(peers);
    for (uint32_t i = 0; i < members_of(peers); i++)
        if (is_other(peers, i) && knows)
            furthest = report_furthest(&peers->peers[i].report, name_of(peers, i), peers->peers[i].up, &peers->bounds,
                                       furthest, peers->now_ms);
    return furthest < last ? furthest : last;
}

uint64_t peers_furthest_said(const struct peers *peers, uint64_t own_step)
{
    uint64_t last = runspec_length(peers->conf.spec), furthest = own_step;
    for (uint32_t i = 0; i < members_of(peers); i++)
        if (is_other(peers, i) && peers->peers[i].up && peers->peers[i].report.step > furthest)
            furthest = peers->peers[i].report.step;
    return furthest < last ? furthest : last;
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
        const struct peer *peer = &peers->peers[i];
        if (!is_other(peers, i) || !peers->conf.view->members[i].as.voter)
            continue;
        others++;
        unadmitted += !peer->up && peer->refused && peer->unadmitted;
    }
    return unadmitted > others / 2;
}

static const char *fault_of(const struct peers *peers, uint32_t i, enum peer_fault *kind)
{
    const struct peer *peer = &peers->peers[i];
    *kind = PEER_FAULT_FALSE;
    if (membership_broke_word(peers->membership, i))
        return "it has signed two results of one part: it is evicted, and stays so";
    *kind = PEER_FAULT_FLOOD;
    if (budget_text(&peer->budget, peers->now_ms)[0] != '\0')
        return budget_text(&peer->budget, peers->now_ms);
    *kind = PEER_FAULT_FALSE;
    if (membership_misproposed(peers->membership, i))
        return "it proposes configurations that may not follow ours: they are refused";
    if (objects_lied(peers->conf.objects, i))
        return "it has sent a state that is not the one a majority signed";
    if (peer->up && report_doubted(&peer->report)[0] != '\0')
        return report_doubted(&peer->report);
    const char *text = peer->up ? faults_text(&peer->faults, peers->now_ms) : "";
    enum sync_fault now = faults_now(&peer->faults);
    if (text[0] == '\0')
        *kind = PEER_FAULT_NONE;
    else if (now == SYNC_FAULT_LATE || now == SYNC_FAULT_NO_RESULT)
        *kind = now == SYNC_FAULT_LATE ? PEER_FAULT_LATE : PEER_FAULT_STUCK;
    return text;
}

struct peer_info peers_info(const struct peers *peers, uint32_t i)
{
    const struct peer *peer = &peers->peers[i];
    struct link_counters counters = link_counters(peers->conf.link, i);
    enum peer_fault kind;
    const char *fault = fault_of(peers, i, &kind);
    return (struct peer_info){.up = peer->up,
                              .refused = peer->refused,
                              .unadmitted = peer->refused && peer->unadmitted,
                              .note = peer->note,
                              .fault = fault,
                              .fault_kind = kind,
                              .too_fast = peer->up && report_too_fast(&peer->report),
                              .heard_ms = peer->heard_ms,
                              .duplicate_key_ms = peer->duplicate_key.seen_ms,
                              .rtt_ms = peer->beats.rtt_ms,
                              .step = peer->report.step,
                              .own_step = peer->report.own_step,
                              .tokens = peer->report.tokens,
                              .loss = peer->report.loss,
                              .tokens_per_s = peer->report.tokens_per_s,
                              .trainer = peer->report.trainer,
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

/* The line to one island, as configured and measured. */
static struct caps_line line_to(const struct peers *peers, uint32_t i)
{
    const struct dconf *conf = peers->conf.conf;
    const struct view *view = peers->conf.view;
    uint64_t limit = conf->rate_limit > 0 ? conf->rate_limit : UINT64_MAX;
    return (struct caps_line){.island = name_of(peers, i),
                              .rtt_us = link_counters(peers->conf.link, i).rtt_min_us,
                              .up_bits = conf->uplink < limit ? conf->uplink : limit,
                              .down_bits = view->members[i].as.uplink,
                              .window_out = objects_window(peers->conf.objects, i),
                              .window_in = conf->window,
                              .connections = 1};
}

bool peers_capped(struct peers *peers, char text[CAPS_TEXT_BYTES])
{
    uint64_t longest_us = 0;
    char of_line[CAPS_TEXT_BYTES];
    if (own_uplink_tell(&peers->uplink, text, CAPS_TEXT_BYTES))
        return true; /* the line itself is what keeps it */
    for (uint32_t i = 0; i < members_of(peers); i++) {
        bool sends = is_other(peers, i) && peers->peers[i].up && peers->conf.view->members[i].as.role != CONFIG_WITNESS;
        if (!sends || view_is_witness(peers->conf.view))
            continue;
        struct caps_line line = line_to(peers, i);
        if (line.rtt_us <= longest_us || !caps_tell(link_caps(peers->conf.link), &line, of_line))
            continue;
        longest_us = line.rtt_us;
        memcpy(text, of_line, CAPS_TEXT_BYTES);
    }
    if (text[0] != '\0' && !peers->capped_said)
        log_warn("%s", text);
    peers->capped_said |= text[0] != '\0';
    return text[0] != '\0';
}
