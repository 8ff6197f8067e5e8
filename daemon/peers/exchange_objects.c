/* Which objects go out and come in: contributions and results from their slots, old results from the ledger, states and
 * the plan as copies. */
#include <inttypes.h>
#include <string.h>

#include "common/mem.h"
#include "daemon/peers/exchange_parts.h"
#include "daemon/state/state_object.h"

enum { PLAN_AGAIN_MS = 2000, STATES_MAX = 2 };

static uint32_t self_of(const struct engine *engine)
{
    return engine->view.self;
}

static void answer(struct engine *engine, uint32_t peer, const struct wire_key *key, enum wire_done status)
{
    static struct wire_message message;
    message.type = WIRE_DONE;
    message.done.key = *key;
    message.done.status = (uint32_t)status;
    exchange_control(engine, peer, &message);
}

/* ---- going out ---- */

static void send_or_say(struct engine *engine, uint32_t peer, const struct wire_key *key, const uint8_t *data,
                        uint64_t bytes)
{
    if (xfer_send(engine->xfer, peer, key, data, bytes, engine->now_ms) != ERR_OK)
        log_error("cannot send the %s: %s", wire_key_text(key), err_text());
}

void exchange_send(struct engine *engine, const struct wire_key *key, uint32_t member)
{
    const struct engine_fragment *fragment = &engine->fragments[key->fragment];
    const struct slot *slot = key->kind == WIRE_CONTRIBUTION ? &fragment->out[key->shard] : &fragment->own;
    if (slot->version == key->version && !slot->busy)
        send_or_say(engine, member, key, slot->data, slot->bytes);
}

void exchange_fetch(struct engine *engine, const struct wire_key *key, uint32_t member)
{
    static struct wire_message message;
    if (xfer_receiving(engine->xfer, key))
        return;
    message.type = WIRE_FETCH;
    message.fetch.key = *key;
    exchange_control(engine, member, &message);
}

/* Contributions up to `version` have done their work. */
void exchange_retire(struct engine *engine, uint32_t f, uint64_t version)
{
    xfer_cancel(engine->xfer, WIRE_CONTRIBUTION, f, version);
}

static void end_entry(struct served *entry)
{
    ledger_unmap(&entry->map);
    mem_free(entry->copy);
    *entry = (struct served){0};
}

void exchange_retire_results(struct engine *engine, uint32_t f, uint64_t version)
{
    xfer_cancel(engine->xfer, WIRE_RESULT, f, version);
    for (size_t i = 0; i < ENGINE_SERVED_MAX; i++) {
        struct served *entry = &engine->served[i];
        if (entry->used && entry->key.kind == WIRE_RESULT && entry->key.fragment == f && entry->key.version <= version)
            end_entry(entry);
    }
}

void exchange_end_served(struct engine *engine, uint32_t peer, const struct wire_key *key)
{
    for (size_t i = 0; i < ENGINE_SERVED_MAX; i++) {
        struct served *entry = &engine->served[i];
        if (entry->used && (peer == UINT32_MAX || entry->peer == peer) &&
            (key == NULL || wire_key_equal(&entry->key, key)))
            end_entry(entry);
    }
}

/* A free place to serve from; NULL if there is none, or if this is being served to the peer already. */
static struct served *new_served(struct engine *engine, uint32_t peer, const struct wire_key *key, bool *already)
{
    struct served *slot = NULL;
    *already = false;
    for (size_t i = 0; i < ENGINE_SERVED_MAX; i++) {
        struct served *entry = &engine->served[i];
        if (entry->used && entry->peer == peer && wire_key_equal(&entry->key, key))
            *already = true;
        if (!entry->used && slot == NULL)
            slot = entry;
    }
    return *already ? NULL : slot;
}

static void serve_result(struct engine *engine, uint32_t peer, const struct wire_key *key, struct served *slot)
{
    const struct slot *own = &engine->fragments[key->fragment].own;
    if (key->shard == self_of(engine) && own->version == key->version && !own->busy &&
        ledger_has(engine->ledger, key->fragment, key->version, key->shard)) {
        send_or_say(engine, peer, key, own->data, own->bytes);
        return;
    }
    if (ledger_map(engine->ledger, key->fragment, key->version, key->shard, &slot->map) != ERR_OK) {
        answer(engine, peer, key, WIRE_NOT_AVAILABLE);
        return;
    }
    slot->used = true;
    slot->peer = peer;
    slot->key = *key;
    send_or_say(engine, peer, key, slot->map.object, slot->map.bytes);
}

static void serve_state(struct engine *engine, uint32_t peer, const struct wire_key *key, struct served *slot)
{
    const struct engine_fragment *fragment = &engine->fragments[key->fragment];
    uint64_t bytes = state_object_bytes(engine->replica, engine->plan->plan, key->fragment);
    size_t others = 0;
    for (size_t i = 0; i < ENGINE_SERVED_MAX; i++)
        others += engine->served[i].used && engine->served[i].copy != NULL;
    bool steady = sync_state(engine->sync, key->fragment) != SYNC_APPLYING &&
                  sync_state(engine->sync, key->fragment) != SYNC_REPAIR && sync_known(engine->sync, key->fragment);
    if (!steady || key->version != fragment->state.version || others >= STATES_MAX ||
        mem_new((size_t)bytes, 1, "a state to send", &slot->copy) != ERR_OK) {
        answer(engine, peer, key, WIRE_NOT_AVAILABLE);
        return;
    }
    slot->used = true;
    slot->peer = peer;
    slot->key = *key;
    state_object_make(engine->replica, engine->plan->plan, key->fragment, &fragment->state, slot->copy);
    send_or_say(engine, peer, key, slot->copy, bytes);
}

void exchange_serve(struct engine *engine, uint32_t peer, const struct wire_key *key)
{
    bool already;
    struct served *slot = new_served(engine, peer, key, &already);
    if (already)
        return;
    if (engine->plan == NULL || slot == NULL ||
        (key->kind != WIRE_PLAN && (key->fragment >= engine_fragments(engine) || key->shard >= engine->view.count))) {
        answer(engine, peer, key, WIRE_NOT_AVAILABLE);
        return;
    }
    if (key->kind == WIRE_RESULT)
        serve_result(engine, peer, key, slot);
    else if (key->kind == WIRE_STATE)
        serve_state(engine, peer, key, slot);
    else if (key->kind == WIRE_PLAN)
        send_or_say(engine, peer, key, (const uint8_t *)engine->plan->text, strlen(engine->plan->text));
    else
        answer(engine, peer, key, WIRE_NOT_AVAILABLE);
}

/* ---- coming in ---- */

static enum xfer_verdict offer_slot(struct engine *engine, struct slot *slot, uint32_t f, uint32_t shard,
                                    struct xfer_offer *offer)
{
    offer->answer = WIRE_NOT_YET;
    if (slot->busy)
        return XFER_ANSWER;
    if (rounds_slot_room(engine, slot, f, shard) != ERR_OK) {
        log_error("%s", err_text());
        return XFER_ANSWER;
    }
    slot->version = 0;
    offer->buffer = slot->data;
    offer->bytes_max = slot->bytes_max;
    return XFER_TAKE;
}

static enum xfer_verdict offer_state(struct engine *engine, const struct wire_key *key, struct xfer_offer *offer)
{
    struct engine_fragment *fragment = &engine->fragments[key->fragment];
    uint64_t bytes = state_object_bytes(engine->replica, engine->plan->plan, key->fragment);
    /* What an earlier attempt left is taken over; xfer lets in nobody while it is being verified. */
    if (fragment->state_in == NULL &&
        mem_new((size_t)bytes, 1, "a state on its way in", &fragment->state_in) != ERR_OK) {
        log_error("%s", err_text());
        return XFER_ANSWER;
    }
    offer->buffer = fragment->state_in;
    offer->bytes_max = bytes;
    return XFER_TAKE;
}

static enum xfer_verdict offer_plan(struct engine *engine, uint64_t total, struct xfer_offer *offer)
{
    offer->answer = WIRE_NOT_NEEDED;
    if (engine->plan != NULL || total > MODEL_PLAN_TEXT_MAX)
        return XFER_ANSWER;
    mem_free(engine->plan_in);
    engine->plan_in = NULL;
    offer->answer = WIRE_NOT_YET;
    if (mem_new((size_t)total, 1, "a plan on its way in", &engine->plan_in) != ERR_OK)
        return XFER_ANSWER;
    offer->buffer = engine->plan_in;
    offer->bytes_max = total;
    return XFER_TAKE;
}

enum xfer_verdict exchange_offer(void *user, uint32_t peer, const struct wire_key *key, uint64_t total,
                                 struct xfer_offer *offer)
{
    struct engine *engine = user;
    if (key->kind == WIRE_PLAN)
        return offer_plan(engine, total, offer);
    offer->answer = WIRE_NOT_YET;
    if (engine->sync == NULL || (key->kind == WIRE_STATE && port_initialising(engine)))
        return XFER_ANSWER;
    switch (sync_wants(engine->sync, key, peer)) {
    case SYNC_WANT: break;
    case SYNC_HAVE: offer->answer = WIRE_RECEIVED; return XFER_ANSWER;
    case SYNC_NOT_NEEDED: offer->answer = WIRE_NOT_NEEDED; return XFER_ANSWER;
    case SYNC_NOT_YET: return XFER_ANSWER;
    }
    struct engine_fragment *fragment = &engine->fragments[key->fragment];
    if (key->kind == WIRE_STATE)
        return offer_state(engine, key, offer);
    if (key->kind == WIRE_CONTRIBUTION)
        return offer_slot(engine, &fragment->in[peer], key->fragment, self_of(engine), offer);
    return offer_slot(engine, &fragment->result[key->shard], key->fragment, key->shard, offer);
}

/* ---- the plan ---- */

void exchange_plan_in(struct engine *engine, uint32_t peer, const struct wire_key *key, uint64_t bytes)
{
    struct model_plan *plan = NULL;
    enum err err = ERR_STATE;
    xfer_finish(engine->xfer, peer, key, WIRE_RECEIVED);
    if (engine->plan == NULL)
        err = model_plan_parse(&engine->spec, (const char *)engine->plan_in, (size_t)bytes, &plan);
    mem_free(engine->plan_in);
    engine->plan_in = NULL;
    if (err == ERR_STATE)
        return;
    if (err == ERR_OK && !digest_equal(&plan->plan->digest, &engine->peers[peer].plan_id))
        err = err_set(ERR_PROTO, "it is not the one its digest stands for");
    if (err != ERR_OK) {
        log_error("the plan of island %s cannot be used: %s", engine->view.members[peer].name, err_text());
        model_plan_free(plan);
        return;
    }
    err = engine_set_plan(engine, plan);
    if (err == ERR_OK) {
        log_info("the model's plan came from island %s", engine->view.members[peer].name);
    } else if (engine->plan != NULL) {
        engine_fail(engine, err_text());
    } else {
        if (log_limit_pass(&engine->peers[peer].trouble, engine->now_ms, 60000))
            log_error("the plan of island %s cannot be used: %s", engine->view.members[peer].name, err_text());
        model_plan_free(plan);
    }
}

void exchange_want_plan(struct engine *engine)
{
    static const struct wire_key key = {.kind = WIRE_PLAN};
    if (engine->plan != NULL || engine->now_ms < engine->plan_ms)
        return;
    for (uint32_t i = 0; i < engine->view.count; i++) {
        if (i == self_of(engine) || !engine->peers[i].up || !engine->peers[i].plan_known)
            continue;
        engine->plan_ms = engine->now_ms + PLAN_AGAIN_MS;
        exchange_fetch(engine, &key, i);
        return;
    }
}
