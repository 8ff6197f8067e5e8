/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/transfer/objects.h"

#include <string.h>

#include "common/log.h"
#include "common/mem.h"
#include "daemon/transfer/state_transfer.h"
#include "daemon/transfer/state_server.h"
#include "daemon/transfer/send_scheduler.h"
#include "daemon/state/results.h"

/* STATES: heads and leaves that go out or come in at a time. */
enum { SERVED_MAX = 64, STATES_MAX = 64, PLAN_AGAIN_MS = 2000 };

/* Something served from outside the slots: a mapped ledger record. */
struct served {
    bool used;
    uint32_t peer;
    struct wire_key key;
    struct ledger_map map;
};

struct objects {
    struct objects_conf conf;
    struct transfer_plan plan; /* .plan NULL: not known yet */
    struct xfer *xfer;
    struct send_scheduler *scheduler;
    struct state_server *server;           /* NULL before the plan is known, as is */
    struct state_transfer *state_transfer; /* this */
    struct served served[SERVED_MAX];
    uint8_t *plan_in;        /* one on its way in */
    uint64_t plan_ms;        /* when to ask for one (again) */
    uint32_t plan_from;      /* whom first */
    struct wire_message out; /* being said; large, so not on the stack */
};

static enum xfer_verdict offered(void *user, uint32_t peer, const struct wire_key *key, uint64_t total,
                                 struct xfer_offer *offer);
static void end_served(struct objects *objects, uint32_t peer, const struct wire_key *key);
static void say_not_available(void *user, uint32_t peer, const struct wire_key *key);
static void say_fetch(void *user, uint32_t peer, const struct wire_key *key);

/* ---- set-up ---- */

/* Of each fragment what two rounds have under way with every member, and what is served beside that. */
static uint32_t transfers_of(uint32_t fragments, uint32_t slots)
{
    return 2 * fragments * slots + SERVED_MAX + STATES_MAX;
}

static uint32_t transfers_before_plan(uint32_t slots)
{
    return 4 * slots + SERVED_MAX;
}

static bool is_maker(void *user, uint32_t peer, const struct wire_key *key)
{
    const struct objects *objects = user;
    return key->island == objects->conf.view->members[peer].as.id;
}

static enum err new_xfer(struct objects *objects, uint32_t transfers)
{
    struct xfer_conf conf = {.peers_count = objects->conf.view->count,
                             .outgoing_max = transfers,
                             .incoming_max = transfers,
                             .offer = offered,
                             .maker = is_maker,
                             .user = objects};
    struct xfer *xfer;
    TRY(xfer_new(&conf, &xfer));
    send_scheduler_carry(objects->scheduler, xfer);
    xfer_free(objects->xfer);
    objects->xfer = xfer;
    return ERR_OK;
}

enum err objects_new(const struct objects_conf *conf, struct objects **out)
{
    struct objects *objects;
    *out = NULL;
    TRY(mem_new(1, sizeof *objects, "objects", &objects));
    objects->conf = *conf;
    struct send_scheduler_conf scheduler = {
        .link = conf->link, .members_count = conf->view->count, .rate_limit = conf->rate_limit};
    enum err err = send_scheduler_new(&scheduler, &objects->scheduler);
    if (err == ERR_OK)
        err = new_xfer(objects, transfers_before_plan(conf->view->count));
    if (err != ERR_OK)
        objects_free(objects);
    else
        *out = objects;
    return err;
}

void objects_free(struct objects *objects)
{
    if (objects == NULL)
        return;
    end_served(objects, UINT32_MAX, NULL);
    state_transfer_free(objects->state_transfer);
    state_server_free(objects->server);
    xfer_free(objects->xfer);
    send_scheduler_free(objects->scheduler);
    mem_free(objects->plan_in);
    mem_free(objects);
}

/* Makes the state server and the state transfer. */
static enum err begin_states(struct objects *objects)
{
    const struct transfer_plan *run = &objects->plan;
    struct state_server_conf server = {.fragments_count = run->plan->plan->fragments_count,
                                       .replica = run->replica,
                                       .sync = run->sync,
                                       .rounds = run->rounds,
                                       .view = objects->conf.view,
                                       .certificates = run->certificates,
                                       .events = objects->conf.events,
                                       .xfer = objects->xfer,
                                       .not_available = say_not_available,
                                       .user = objects};
    struct state_transfer_conf state_transfer = {.plan = run->plan->plan,
                                                 .replica = run->replica,
                                                 .slots = run->slots,
                                                 .sync = run->sync,
                                                 .rounds = run->rounds,
                                                 .view = objects->conf.view,
                                                 .config_log = objects->conf.config_log,
                                                 .spec = objects->conf.spec,
                                                 .trainer = objects->conf.trainer,
                                                 .certificates = run->certificates,
                                                 .events = objects->conf.events,
                                                 .xfer = objects->xfer,
                                                 .fetch = say_fetch,
                                                 .user = objects};
    TRY(state_server_new(&server, &objects->server));
    enum err err = state_transfer_new(&state_transfer, &objects->state_transfer);
    if (err != ERR_OK) {
        state_server_free(objects->server);
        objects->server = NULL;
    }
    return err;
}

enum err objects_plan_known(struct objects *objects, const struct transfer_plan *plan)
{
    uint32_t fragments = plan->plan->plan->fragments_count;
    end_served(objects, UINT32_MAX, NULL);
    TRY(new_xfer(objects, transfers_of(fragments, objects->conf.view->count)));
    objects->plan = *plan;
    enum err err = begin_states(objects);
    if (err != ERR_OK)
        objects->plan = (struct transfer_plan){0};
    return err;
}

/* Its slot is another's from now on. */
static void forget(struct objects *objects, uint32_t peer)
{
    objects_reset(objects, peer);
    if (objects->state_transfer != NULL)
        state_transfer_forget(objects->state_transfer, peer, true);
    send_scheduler_forget(objects->scheduler, peer); /* and what it had of transfers */
}

enum err objects_members(struct objects *objects, const struct view_changes *changes)
{
    const struct view *view = objects->conf.view;
    uint32_t transfers = objects->plan.plan != NULL
                             ? transfers_of(objects->plan.plan->plan->fragments_count, view->count)
                             : transfers_before_plan(view->count);
    TRY(send_scheduler_grow(objects->scheduler, view->count));
    TRY(xfer_grow(objects->xfer, view->count, transfers, transfers));
    for (uint32_t i = 0; i < view->count; i++)
        if (i != view->self && bitset_has(&changes->removed, i))
            forget(objects, i);
    xfer_drop_incoming(objects->xfer);
    return ERR_OK;
}

void objects_set_window(struct objects *objects, uint32_t peer, uint64_t window_bytes)
{
    send_scheduler_set_window(objects->scheduler, peer, window_bytes);
}

uint64_t objects_window(const struct objects *objects, uint32_t peer)
{
    return send_scheduler_window(objects->scheduler, peer);
}

void objects_lost_sight(struct objects *objects, uint32_t peer)
{
    xfer_lost_sight(objects->xfer, peer);
}

void objects_reset(struct objects *objects, uint32_t peer)
{
    xfer_reset_peer(objects->xfer, peer);
    end_served(objects, peer, NULL);
    if (objects->state_transfer == NULL)
        return;
    state_transfer_forget(objects->state_transfer, peer, false);
    state_server_forget(objects->server, peer);
}

void objects_reconnected(struct objects *objects, uint32_t peer)
{
    send_scheduler_reconnected(objects->scheduler, peer);
}

/* ---- saying something of an object ---- */

/* A message that cannot go now is dropped: everything here is repeated. */
static void say(struct objects *objects, uint32_t peer)
{
    enum err err = link_say(objects->conf.link, peer, &objects->out);
    if (err != ERR_OK && err != ERR_AGAIN && err != ERR_CLOSED)
        log_error("cannot say something of an object: %s", err_text());
}

static void say_done(struct objects *objects, uint32_t peer, const struct wire_key *key, enum wire_done status)
{
    objects->out.type = WIRE_DONE;
    objects->out.done.key = *key;
    objects->out.done.status = (uint32_t)status;
    say(objects, peer);
}

static void say_not_available(void *user, uint32_t peer, const struct wire_key *key)
{
    say_done(user, peer, key, WIRE_NOT_AVAILABLE);
}

static void send_messages(struct objects *objects)
{
    struct wire_message *message = &objects->out;
    struct xfer_message out;
    while (xfer_message(objects->xfer, &out)) {
        message->type = out.type;
        if (out.type == WIRE_ACK) {
            message->ack = (struct wire_ack){
                .key = out.key, .have = out.have, .ask = out.ask, .pass = out.pass, .delay_us = out.delay_us};
        } else {
            message->done.key = out.key;
            message->done.status = (uint32_t)out.status;
        }
        say(objects, out.peer);
    }
}

/* Behind all that xfer has to say: who hears that we want more has to know first what we have, or it would take it for
 * too much at a time. */
static void say_fetch(void *user, uint32_t peer, const struct wire_key *key)
{
    struct objects *objects = user;
    send_messages(objects);
    objects->out.type = WIRE_FETCH;
    objects->out.fetch.key = *key;
    say(objects, peer);
}

static bool of_a_state(const struct wire_key *key)
{
    return key->kind == WIRE_STATE || key->kind == WIRE_LEAVES;
}

static void post_not_available(struct objects *objects, uint32_t peer, const struct wire_key *key)
{
    event_post_sync(
        objects->conf.events,
        &(struct sync_event){.type = SYNC_EV_NOT_AVAILABLE, .member = peer, .key = *key, .fragment = key->fragment});
}

/* ---- going out ---- */

static void send_or_log(struct objects *objects, uint32_t peer, const struct wire_key *key, const uint8_t *data,
                        uint64_t bytes, bool ask_first, uint64_t now_ms)
{
    if (xfer_send(objects->xfer, peer, key, data, bytes, ask_first, now_ms) != ERR_OK)
        log_error("cannot send the %s: %s", wire_key_text(key), err_text());
}

/* By what it last said: one that is not there yet, or is past it, is asked before a slow line is filled for nothing. */
static bool surely_wanted(const struct objects *objects, const struct wire_key *key, uint32_t member)
{
    struct wire_standing row = sync_heard(objects->plan.sync, member, key->fragment);
    return row.version + 1 == key->version;
}

/* The part that a key names, and its index; VERSION_PARTS_MAX: there is none. */
static uint32_t part_of(const struct objects *objects, const struct wire_key *key, struct version_part *part)
{
    return parts_find(objects->plan.parts, key->fragment, key->version, key->epoch, key->owner, part);
}

void objects_send(struct objects *objects, const struct wire_key *key, uint32_t member, uint64_t now_ms)
{
    const struct slots *slots = objects->plan.slots;
    struct version_part part;
    uint32_t p = part_of(objects, key, &part);
    if (p == VERSION_PARTS_MAX)
        return;
    const struct slot *slot =
        key->kind == WIRE_CONTRIBUTION ? slots_out(slots, key->fragment, p) : slots_own(slots, key->fragment);
    if (slot->version == key->version && slot->epoch == key->epoch && !slot->busy)
        send_or_log(objects, member, key, slot->data, slot->bytes, !surely_wanted(objects, key, member), now_ms);
}

void objects_fetch(struct objects *objects, const struct wire_key *key, uint32_t member)
{
    if (key->kind == WIRE_STATE)
        state_transfer_want(objects->state_transfer, key, member);
    else if (!xfer_receiving(objects->xfer, key))
        say_fetch(objects, member, key);
}

void objects_retire(struct objects *objects, uint32_t f, uint64_t version)
{
    xfer_cancel(objects->xfer, WIRE_CONTRIBUTION, f, version);
}

static void want_plan(struct objects *objects, const struct bitset *with_plan, uint64_t now_ms)
{
    static const struct wire_key key = {.kind = WIRE_PLAN};
    uint32_t count = objects->conf.view->count;
    if (objects->plan.plan != NULL || now_ms < objects->plan_ms)
        return;
    for (uint32_t k = 0; k < count; k++) {
        uint32_t i = (objects->plan_from + k) % count;
        if (!bitset_has(with_plan, i))
            continue;
        objects->plan_ms = now_ms + PLAN_AGAIN_MS;
        objects->plan_from = i + 1;
        objects_fetch(objects, &key, i);
        return;
    }
}

static void end_entry(struct served *entry)
{
    ledger_unmap(&entry->map);
    *entry = (struct served){0};
}

void objects_retire_results(struct objects *objects, uint32_t f, uint64_t version)
{
    xfer_cancel(objects->xfer, WIRE_RESULT, f, version);
    for (size_t i = 0; i < SERVED_MAX; i++) {
        struct served *entry = &objects->served[i];
        if (entry->used && entry->key.kind == WIRE_RESULT && entry->key.fragment == f && entry->key.version <= version)
            end_entry(entry);
    }
}

/* Ends what is served outside the slots: to one peer (UINT32_MAX: all), one object (NULL: all). */
static void end_served(struct objects *objects, uint32_t peer, const struct wire_key *key)
{
    for (size_t i = 0; i < SERVED_MAX; i++) {
        struct served *entry = &objects->served[i];
        if (entry->used && (peer == UINT32_MAX || entry->peer == peer) &&
            (key == NULL || wire_key_equal(&entry->key, key)))
            end_entry(entry);
    }
}

/* A free place to serve from; NULL if there is none for this peer, or if this is being served to it already. A peer has
 * one more as long as it has fewer than are free (as buffers of a switch are shared out: Choudhury and Hahne, "Dynamic
 * queue length thresholds", 1998): so one alone has half of them, and whoever comes next finds some. */
static struct served *new_served(struct objects *objects, uint32_t peer, const struct wire_key *key, bool *already)
{
    struct served *slot = NULL;
    uint32_t its = 0, free = 0;
    *already = false;
    for (size_t i = 0; i < SERVED_MAX; i++) {
        struct served *entry = &objects->served[i];
        if (entry->used && entry->peer == peer && wire_key_equal(&entry->key, key))
            *already = true;
        if (!entry->used && slot == NULL)
            slot = entry;
        its += entry->used && entry->peer == peer;
        free += !entry->used;
    }
    return *already || its >= free ? NULL : slot;
}

static void use_served(struct served *slot, uint32_t peer, const struct wire_key *key)
{
    slot->used = true;
    slot->peer = peer;
    slot->key = *key;
}

/* Of the version after ours, the result that counts here: its owner may have made two, and this one has been taken for
 * what is to be carried. */
static bool held_here(const struct objects *objects, const struct wire_key *key, struct result_id *out)
{
    const struct sync *sync = objects->plan.sync;
    const struct version_part *parts;
    bool acknowledged;
    uint32_t count =
        key->version == sync_own(sync, key->fragment).version + 1 ? sync_parts(sync, key->fragment, &parts) : 0;
    for (uint32_t p = 0; p < count; p++) {
        *out = parts[p].id;
        if (out->owner == key->owner && out->epoch == key->epoch &&
            sync_held(sync, key->fragment, p, &out->digest, &acknowledged))
            return true;
    }
    return false;
}

/* The result that a key asks for: of a version that we have made, the one that it is made of. */
static bool which_result(const struct objects *objects, const struct wire_key *key, struct result_id *out)
{
    struct ledger *ledger = objects->plan.ledger;
    struct ledger_commit commit;
    struct result_id like = {
        .fragment = key->fragment, .owner = key->owner, .version = key->version, .epoch = key->epoch};
    if (ledger_commit_of(ledger, key->fragment, key->version, &commit) != ERR_OK)
        return held_here(objects, key, out) || results_find(ledger, &like, out);
    for (uint32_t p = 0; p < commit.parts_count; p++) {
        *out = commit.parts[p];
        if (result_id_same_part(out, &like))
            return true;
    }
    return false;
}

static void serve_result(struct objects *objects, uint32_t peer, const struct wire_key *key, struct served *served,
                         uint64_t now_ms)
{
    struct result_id there;
    if (!which_result(objects, key, &there) || ledger_map(objects->plan.ledger, &there, &served->map) != ERR_OK) {
        say_done(objects, peer, key, WIRE_NOT_AVAILABLE);
        return;
    }
    use_served(served, peer, key);
    send_or_log(objects, peer, key, served->map.object, served->map.bytes, false, now_ms);
}

static bool servable(const struct objects *objects, const struct wire_key *key)
{
    if (objects->plan.plan == NULL)
        return false;
    if (key->kind != WIRE_PLAN && sync_is_witness(objects->plan.sync))
        return false; /* it has nothing else */
    return key->kind == WIRE_PLAN || key->fragment < objects->plan.plan->plan->fragments_count;
}

/* A peer asks for an object. */
static void serve(struct objects *objects, uint32_t peer, const struct wire_key *key, uint64_t now_ms)
{
    bool already;
    if (of_a_state(key) && objects->server != NULL) {
        state_server_fetch(objects->server, peer, key, now_ms);
        return;
    }
    struct served *served = new_served(objects, peer, key, &already);
    if (already)
        return;
    if (served == NULL || !servable(objects, key)) {
        say_done(objects, peer, key, WIRE_NOT_AVAILABLE);
        return;
    }
    const char *text = objects->plan.plan->text;
    if (key->kind == WIRE_RESULT)
        serve_result(objects, peer, key, served, now_ms);
    else if (key->kind == WIRE_PLAN)
        send_or_log(objects, peer, key, (const uint8_t *)text, strlen(text), false, now_ms);
    else
        say_done(objects, peer, key, WIRE_NOT_AVAILABLE);
}

/* ---- coming in ---- */

/* A slot takes one version after another in. It gets other memory where a part is larger than the one before. */
static enum xfer_verdict offer_slot(struct objects *objects, struct slot *slot, uint32_t f, uint64_t shards,
                                    struct xfer_offer *offer)
{
    offer->answer = WIRE_NOT_YET;
    if (slot->busy || (slot->data != NULL && !xfer_take_back(objects->xfer, slot->data)))
        return XFER_ANSWER;
    if (slots_room(objects->plan.slots, slot, f, shards) != ERR_OK) {
        log_error("%s", err_text());
        return XFER_ANSWER;
    }
    slot->version = 0;
    offer->buffer = slot->data;
    offer->bytes_max = slot->bytes_max;
    return XFER_TAKE;
}

static enum xfer_verdict offer_plan(struct objects *objects, uint64_t total, struct xfer_offer *offer)
{
    offer->answer = WIRE_NOT_NEEDED;
    if (objects->plan.plan != NULL || total > MODEL_PLAN_TEXT_MAX)
        return XFER_ANSWER;
    mem_free(objects->plan_in);
    objects->plan_in = NULL;
    offer->answer = WIRE_NOT_YET;
    if (mem_new((size_t)total, 1, "a plan on its way in", &objects->plan_in) != ERR_OK)
        return XFER_ANSWER;
    offer->buffer = objects->plan_in;
    offer->bytes_max = total;
    return XFER_TAKE;
}

/* xfer's question: is this object wanted, and where does it go? */
static enum xfer_verdict offered(void *user, uint32_t peer, const struct wire_key *key, uint64_t total,
                                 struct xfer_offer *offer)
{
    struct objects *objects = user;
    struct version_part part;
    if (key->kind == WIRE_PLAN)
        return offer_plan(objects, total, offer);
    offer->answer = WIRE_NOT_YET;
    if (objects->plan.sync == NULL)
        return XFER_ANSWER;
    if (of_a_state(key))
        return state_transfer_offered(objects->state_transfer, peer, key, total, offer);
    switch (sync_wants(objects->plan.sync, key, peer)) {
    case SYNC_WANT: break;
    case SYNC_HAVE: offer->answer = WIRE_RECEIVED; return XFER_ANSWER;
    case SYNC_NOT_NEEDED: offer->answer = WIRE_NOT_NEEDED; return XFER_ANSWER;
    case SYNC_NOT_YET: return XFER_ANSWER;
    }
    uint32_t p = part_of(objects, key, &part);
    if (p == VERSION_PARTS_MAX)
        return XFER_ANSWER;
    struct slot *slot = key->kind == WIRE_CONTRIBUTION ? slots_in(objects->plan.slots, key->fragment, peer)
                                                       : slots_result(objects->plan.slots, key->fragment, p);
    return offer_slot(objects, slot, key->fragment, part.shards, offer);
}

void objects_judged(struct objects *objects, uint32_t peer, const struct wire_key *key, enum wire_done done)
{
    if (key->kind == WIRE_STATE)
        state_transfer_judged(objects->state_transfer, key);
    else
        xfer_finish(objects->xfer, peer, key, done);
}

void objects_state_served(struct objects *objects, const struct served_state *served, enum err err, uint64_t now_ms)
{
    state_server_made(objects->server, served, err, now_ms);
}

bool objects_lied(const struct objects *objects, uint32_t peer)
{
    return objects->state_transfer != NULL && state_transfer_lied(objects->state_transfer, peer);
}

bool objects_receiving(const struct objects *objects, const struct wire_key *key)
{
    return key->kind == WIRE_STATE ? state_transfer_has_begun(objects->state_transfer, key)
                                   : xfer_receiving(objects->xfer, key);
}

bool objects_state_comes(const struct objects *objects, const struct wire_key *key)
{
    return state_transfer_comes(objects->state_transfer, key);
}

enum err objects_take_plan(struct objects *objects, uint32_t peer, const struct wire_key *key, uint64_t bytes,
                           const struct digest *plan_id, struct model_plan **out)
{
    *out = NULL;
    xfer_finish(objects->xfer, peer, key, WIRE_RECEIVED);
    enum err err = objects->plan.plan == NULL
                       ? model_plan_parse(objects->conf.spec, (const char *)objects->plan_in, (size_t)bytes, out)
                       : err_set(ERR_STATE, "a plan is known already");
    mem_free(objects->plan_in);
    objects->plan_in = NULL;
    if (err == ERR_OK && !digest_equal(&(*out)->id, plan_id))
        err = err_set(ERR_PROTO, "it is not the one its digest stands for");
    if (err != ERR_OK) {
        model_plan_free(*out);
        *out = NULL;
    }
    return err;
}

/* ---- messages ---- */

/* A peer's last word on a head or leaves: of ours, or of its own. */
static void state_done_in(struct objects *objects, uint32_t peer, const struct wire_key *key, uint32_t status,
                          uint64_t now_ms)
{
    bool ends = key->kind == WIRE_STATE && (status == WIRE_NOT_NEEDED || status == WIRE_REFUSED);
    if (objects->state_transfer == NULL)
        return;
    state_server_heard(objects->server, peer, key, ends, now_ms);
    if (status == WIRE_NOT_AVAILABLE || status == WIRE_GONE)
        state_transfer_not_available(objects->state_transfer, peer, key);
}

static void done_in(struct objects *objects, uint32_t peer, const struct wire_key *key, uint32_t status,
                    uint64_t now_ms)
{
    if (status == WIRE_GONE)
        (void)xfer_gone(objects->xfer, peer, key);
    else if (xfer_done_in(objects->xfer, peer, key, (enum wire_done)status, now_ms))
        end_served(objects, peer, key);
    if (of_a_state(key))
        state_done_in(objects, peer, key, status, now_ms);
    else if (status == WIRE_NOT_AVAILABLE)
        post_not_available(objects, peer, key);
    if (status != WIRE_REFUSED)
        return;
    event_post_sync(objects->conf.events,
                    &(struct sync_event){.type = SYNC_EV_TURNED_DOWN, .member = peer, .key = *key});
}

void objects_message_in(struct objects *objects, uint32_t peer, const struct wire_message *message, uint64_t now_ms)
{
    switch (message->type) {
    case WIRE_ACK:
        /* It waits for more of an object that we do not send any more: it may ask again. */
        send_scheduler_note_delay(objects->scheduler, peer, message->ack.delay_us);
        if (!xfer_ack_in(objects->xfer, peer, &message->ack, now_ms))
            say_done(objects, peer, &message->ack.key, WIRE_GONE);
        if (of_a_state(&message->ack.key) && objects->server != NULL)
            state_server_heard(objects->server, peer, &message->ack.key, false, now_ms);
        break;
    case WIRE_DONE: done_in(objects, peer, &message->done.key, message->done.status, now_ms); break;
    case WIRE_FETCH: serve(objects, peer, &message->fetch.key, now_ms); break;
    default: break; /* not about an object */
    }
}

bool objects_chunk_in(struct objects *objects, uint32_t peer, const struct wire_chunk *chunk, uint64_t now_ms)
{
    uint64_t bytes = 0;
    uint32_t delay_us = send_scheduler_clock_us() - chunk->stamp_us;
    enum xfer_progress progress = xfer_chunk_in(objects->xfer, peer, chunk, delay_us, now_ms, &bytes);
    bool whole = progress == XFER_COMPLETE;
    if (of_a_state(&chunk->key) && objects->state_transfer != NULL) {
        uint64_t have = whole ? bytes : xfer_have(objects->xfer, &chunk->key);
        if (have > 0)
            state_transfer_in(objects->state_transfer, peer, &chunk->key, have, whole, now_ms);
    } else if (whole) {
        event_post(objects->conf.events, &(struct event){.type = EVENT_OBJECT,
                                                         .fragment = chunk->key.fragment,
                                                         .member = peer,
                                                         .object = {.key = chunk->key, .bytes = bytes}});
    }
    return progress != XFER_NOTHING;
}

/* ---- moving ---- */

void objects_flush(struct objects *objects, uint64_t now_ms)
{
    if (objects->state_transfer != NULL)
        state_transfer_run(objects->state_transfer, now_ms);
    send_messages(objects);
    send_scheduler_flush(objects->scheduler, now_ms);
}

void objects_tick(struct objects *objects, const struct bitset *with_plan, uint64_t now_ms)
{
    xfer_tick(objects->xfer, now_ms);
    if (objects->server != NULL)
        state_server_tick(objects->server, now_ms);
    want_plan(objects, with_plan, now_ms);
}

uint64_t objects_wait_us(const struct objects *objects)
{
    return send_scheduler_wait_us(objects->scheduler);
}

/* ---- looking in ---- */

uint64_t objects_state_bytes(const struct objects *objects, uint32_t f)
{
    return objects->state_transfer != NULL ? state_transfer_bytes(objects->state_transfer, f) : 0;
}

uint64_t objects_state_moved_ms(const struct objects *objects)
{
    return objects->state_transfer != NULL ? state_transfer_moved_ms(objects->state_transfer) : 0;
}

uint64_t objects_sent_bytes(const struct objects *objects)
{
    return send_scheduler_sent_bytes(objects->scheduler);
}

uint64_t objects_wasted_bytes(const struct objects *objects)
{
    return send_scheduler_wasted_bytes(objects->scheduler);
}

uint64_t objects_unacknowledged(const struct objects *objects, uint32_t peer)
{
    return xfer_outstanding(objects->xfer, peer);
}

uint64_t objects_uplink_bits(const struct objects *objects)
{
    return send_scheduler_uplink_bits(objects->scheduler);
}
