#include "daemon/engine.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/mem.h"
#include "daemon/peers/exchange_parts.h"

/*
 * BEAT: heartbeats; an island that is silent for SILENT counts as away, which status shows within three seconds.
 * HELLO_AGAIN: greetings are repeated until both sides know the same of each other. REFRESH: rows of a heartbeat that
 * are repeated though nothing changed, so that a lost one does not matter for long.
 */
enum { BEAT_MS = 1000, SILENT_MS = 2500, HELLO_AGAIN_MS = 1000, REFRESH = 16, ANNOUNCE_GAP_MS = 3 };
enum { MESSAGES_PER_TURN = 512, CHUNKS_PER_TURN = 64, BURST_BYTES = 256 << 10 };
enum { TRANSFERS_BEFORE_PLAN = 4 * WIRE_MEMBERS_MAX };

static uint32_t self_of(const struct engine *engine)
{
    return engine->view.self;
}

static const char *name_of(const struct engine *engine, uint32_t peer)
{
    return engine->view.members[peer].name;
}

/* ---- set-up ---- */

static enum err new_xfer(struct engine *engine, uint32_t transfers)
{
    struct xfer_conf conf = {.peers_count = engine->view.count,
                             .outgoing_max = transfers,
                             .incoming_max = transfers,
                             .window_bytes = engine->conf->window,
                             .offer = exchange_offer,
                             .user = engine};
    struct xfer *xfer;
    TRY(xfer_new(&conf, &xfer));
    xfer_free(engine->xfer);
    engine->xfer = xfer;
    for (uint32_t i = 0; i < engine->view.count; i++)
        if (engine->peers[i].window_bytes > 0)
            xfer_set_window(xfer, i, engine->peers[i].window_bytes);
    return ERR_OK;
}

enum err exchange_new(struct engine *engine)
{
    struct link_member members[WIRE_MEMBERS_MAX];
    uint32_t count = engine->view.count;
    for (uint32_t i = 0; i < count; i++) {
        members[i].name = engine->view.members[i].name;
        members[i].address = engine->view.members[i].address;
        memcpy(members[i].key, engine->view.members[i].key, IDENT_KEY_BYTES);
    }
    struct link_conf conf = {.ident = &engine->ident,
                             .listen = engine->conf->listen,
                             .members = members,
                             .members_count = count,
                             .self = engine->view.self,
                             .run_tag = digest_tag(&engine->spec.digest),
                             .view_tag = digest_tag(&engine->view.id),
                             .io_threads = (int)engine->conf->io_threads};
    TRY(mem_new(count, sizeof *engine->peers, "peers", &engine->peers));
    for (uint32_t i = 0; i < count; i++)
        TRY(mem_new(1, sizeof *engine->peers[i].last, "peers", &engine->peers[i].last));
    engine->pace = pace_init(engine->conf->rate_limit, BURST_BYTES, 0);
    TRY(link_new(&conf, &engine->link));
    return new_xfer(engine, TRANSFERS_BEFORE_PLAN);
}

void exchange_free(struct engine *engine)
{
    exchange_end_served(engine, UINT32_MAX, NULL);
    xfer_free(engine->xfer);
    link_free(engine->link);
    for (uint32_t i = 0; engine->peers != NULL && i < engine->view.count; i++) {
        mem_free(engine->peers[i].last);
        mem_free(engine->peers[i].said);
    }
    mem_free(engine->peers);
}

/* ---- sending control messages ---- */

/* A message that cannot go now is dropped: everything here is repeated. */
void exchange_control(struct engine *engine, uint32_t peer, const struct wire_message *message)
{
    if (link_say(engine->link, peer, message) == ERR_ARG)
        log_error("cannot pack a message: %s", err_text());
}

static void send_hello(struct engine *engine, uint32_t peer)
{
    static struct wire_message message;
    message.type = WIRE_HELLO;
    struct wire_hello *hello = &message.hello;
    *hello = (struct wire_hello){.run_id = engine->spec.digest,
                                 .view_id = engine->view.id,
                                 .plan_known = engine->plan != NULL,
                                 .session = engine->session,
                                 .island = self_of(engine),
                                 .window_kib = (uint32_t)(engine->conf->window / 1024)};
    if (engine->plan != NULL)
        hello->plan_id = engine->plan->plan->digest;
    snprintf(hello->name, sizeof hello->name, "%s", engine->conf->name);
    snprintf(hello->software, sizeof hello->software, "diloco " DILOCO_VERSION);
    exchange_control(engine, peer, &message);
    engine->peers[peer].hello_ms = engine->now_ms + HELLO_AGAIN_MS;
}

static bool row_differs(const struct wire_fragment *a, const struct wire_fragment *b)
{
    return a->version != b->version || a->contributed != b->contributed || a->abstained != b->abstained ||
           memcmp(&a->results, &b->results, sizeof a->results) != 0 || a->hash_known != b->hash_known ||
           !digest_equal(&a->hash, &b->hash);
}

static struct wire_fragment own_row(const struct engine *engine, uint32_t f)
{
    struct sync_peer_fragment own = sync_own(engine->sync, f);
    return (struct wire_fragment){.fragment = f,
                                  .version = own.version,
                                  .contributed = own.contributed,
                                  .abstained = own.abstained,
                                  .results = own.results,
                                  .hash = own.hash,
                                  .hash_known = own.hash_known};
}

/* What changed since this peer was last told, then some of the others in turn. */
static void fill_rows(struct engine *engine, struct engine_peer *peer, struct wire_heartbeat *beat)
{
    uint32_t fragments = engine_fragments(engine);
    for (uint32_t f = 0; f < fragments && beat->fragments_count + REFRESH < WIRE_FRAGMENTS_MAX; f++) {
        struct wire_fragment row = own_row(engine, f);
        if (!row_differs(&row, &peer->said[f]))
            continue;
        beat->fragments[beat->fragments_count++] = row;
        peer->said[f] = row;
    }
    uint32_t changed = beat->fragments_count;
    for (uint32_t k = 0; k < REFRESH && k < fragments; k++) {
        uint32_t f = peer->refresh++ % fragments;
        bool there = false;
        for (uint32_t i = 0; i < changed && !there; i++)
            there = beat->fragments[i].fragment == f;
        if (there)
            continue;
        beat->fragments[beat->fragments_count++] = own_row(engine, f);
        peer->said[f] = beat->fragments[beat->fragments_count - 1];
    }
}

static uint32_t trainer_state(const struct engine *engine, const struct port_info *port)
{
    struct workers_info workers = workers_info(engine);
    if (port->finished || workers.state == WORKERS_FINISHED)
        return WIRE_TRAINER_FINISHED;
    if (port->training)
        return port->finishing ? WIRE_TRAINER_FINISHING : WIRE_TRAINER_TRAINING;
    if (workers.state == WORKERS_WAITING)
        return WIRE_TRAINER_FAILED;
    return port->attached || workers.state == WORKERS_RUNNING ? WIRE_TRAINER_STARTING : WIRE_TRAINER_NONE;
}

/* A trainer is on its way: rounds wait for it as for one that trains. */
static bool expecting(const struct engine *engine, const struct port_info *port)
{
    uint32_t state = trainer_state(engine, port);
    return state == WIRE_TRAINER_STARTING;
}

/* No island has more than initial tensors: a trainer that is on its way brings the same. */
static void tell_expectation(struct engine *engine, const struct port_info *port)
{
    bool begun = false;
    for (uint32_t f = 0; f < engine_fragments(engine); f++)
        for (uint32_t i = 0; i < engine->view.count; i++)
            begun |= i != self_of(engine) && sync_heard(engine->sync, i, f).version > 0;
    bool expected = expecting(engine, port);
    sync_expect(engine->sync, expected, expected && !begun);
}

static uint32_t bounded(double value, double scale)
{
    double scaled = value * scale;
    return scaled > 0 && scaled < 4e9 ? (uint32_t)scaled : 0;
}

static void send_heartbeat(struct engine *engine, uint32_t i)
{
    static struct wire_message message;
    struct engine_peer *peer = &engine->peers[i];
    struct port_info port = port_info(engine);
    message.type = WIRE_HEARTBEAT;
    struct wire_heartbeat *beat = &message.heartbeat;
    beat->sequence = ++peer->sequence_out;
    beat->session = engine->session;
    beat->echo = peer->sequence_in;
    beat->echo_delay_ms = (uint32_t)(engine->now_ms - peer->sequence_in_ms);
    beat->taking_part = expecting(engine, &port) || port.training;
    beat->step = port.training ? port.step : engine_step(engine);
    beat->tokens = port.tokens;
    beat->loss_milli = bounded(port.loss, 1000);
    beat->tokens_per_s = bounded(port.tokens_per_s, 1);
    beat->trainer = trainer_state(engine, &port);
    beat->fragments_count = 0;
    if (engine->sync != NULL)
        fill_rows(engine, peer, beat);
    peer->sequence_out_ms = engine->now_ms;
    peer->beat_ms = engine->now_ms + BEAT_MS;
    exchange_control(engine, i, &message);
}

/* ---- greetings ---- */

static void refuse(struct engine *engine, uint32_t i, const char *reason)
{
    struct engine_peer *peer = &engine->peers[i];
    if (log_limit_pass(&peer->trouble, engine->now_ms, 10000))
        log_error("island %s is refused: %s", name_of(engine, i), reason);
    snprintf(peer->note, sizeof peer->note, "%s", reason);
    peer->refused = true;
    peer->greeted = false;
}

static bool plan_agrees(struct engine *engine, uint32_t i, bool known, const struct digest *theirs)
{
    if (!known || engine->plan == NULL || digest_equal(theirs, &engine->plan->plan->digest))
        return true;
    refuse(engine, i, "its model has other tensors; the trainers must register the same in the same order");
    return false;
}

static bool hello_fits(struct engine *engine, uint32_t i, const struct wire_hello *hello)
{
    if (!digest_equal(&hello->run_id, &engine->spec.digest))
        refuse(engine, i, "it has another run spec; give every island the same file");
    else if (!digest_equal(&hello->view_id, &engine->view.id))
        refuse(engine, i, "it has another list of members; compare `dilococtl peers` on both");
    else if (hello->island != i || strcmp(hello->name, name_of(engine, i)) != 0)
        refuse(engine, i, "its name is not the one its key stands for");
    else
        return plan_agrees(engine, i, hello->plan_known, &hello->plan_id);
    return false;
}

void exchange_peer_up(struct engine *engine, uint32_t i)
{
    struct engine_peer *peer = &engine->peers[i];
    if (engine->sync != NULL)
        memset(peer->said, 0xff, engine_fragments(engine) * sizeof *peer->said);
    engine_event(engine, &(struct sync_event){.type = SYNC_EV_PEER_UP, .member = i});
    engine->announce = true;
    peer->beat_ms = 0;
}

enum err exchange_plan_known(struct engine *engine)
{
    uint32_t fragments = engine_fragments(engine);
    struct port_info port = port_info(engine);
    tell_expectation(engine, &port); /* before any peer's word is taken in */
    for (uint32_t i = 0; i < engine->view.count; i++)
        TRY(mem_new(fragments, sizeof *engine->peers[i].said, "peers", &engine->peers[i].said));
    exchange_end_served(engine, UINT32_MAX, NULL);
    TRY(new_xfer(engine, 2 * fragments * engine->view.count + ENGINE_SERVED_MAX));
    for (uint32_t i = 0; i < engine->view.count; i++) {
        struct engine_peer *peer = &engine->peers[i];
        if (!peer->greeted || i == self_of(engine) || !plan_agrees(engine, i, peer->plan_known, &peer->plan_id))
            continue;
        send_hello(engine, i); /* again, now with the plan */
        exchange_peer_up(engine, i);
    }
    return ERR_OK;
}

static void peer_gone(struct engine *engine, uint32_t i)
{
    struct engine_peer *peer = &engine->peers[i];
    if (peer->up)
        engine_event(engine, &(struct sync_event){.type = SYNC_EV_PEER_DOWN, .member = i});
    peer->up = false;
}

static void hello_in(struct engine *engine, uint32_t i, const struct wire_hello *hello)
{
    struct engine_peer *peer = &engine->peers[i];
    if (!hello_fits(engine, i, hello))
        return;
    bool restarted = peer->session != hello->session;
    bool was_up = peer->up && peer->greeted, again = peer->greeted;
    peer->window_bytes = (uint64_t)hello->window_kib * 1024;
    xfer_set_window(engine->xfer, i, peer->window_bytes);
    peer->plan_known = hello->plan_known;
    peer->plan_id = hello->plan_id;
    peer->session = hello->session;
    peer->greeted = true;
    peer->refused = false;
    peer->note[0] = '\0';
    peer->heard_ms = engine->now_ms;
    if (restarted) {
        xfer_reset_peer(engine->xfer, i);
        exchange_end_served(engine, i, NULL);
        peer_gone(engine, i);
    }
    /* A repeated greeting means that the peer may not have ours; the pause keeps two answers from chasing each other.
     */
    if (restarted || (again && engine->now_ms >= peer->hello_ms))
        send_hello(engine, i);
    if (restarted || !was_up) {
        peer->up = true;
        log_info("island %s is here (%s)", name_of(engine, i), hello->software);
        exchange_peer_up(engine, i);
    }
}

static void heartbeat_in(struct engine *engine, uint32_t i, const struct wire_heartbeat *beat)
{
    struct engine_peer *peer = &engine->peers[i];
    if (!peer->greeted || beat->session != peer->session) {
        if (engine->now_ms >= peer->hello_ms)
            send_hello(engine, i);
        return;
    }
    peer->heard_ms = engine->now_ms;
    peer->sequence_in = beat->sequence;
    peer->sequence_in_ms = engine->now_ms;
    if (beat->echo == peer->sequence_out && engine->now_ms >= peer->sequence_out_ms + beat->echo_delay_ms)
        peer->rtt_ms = (uint32_t)(engine->now_ms - peer->sequence_out_ms - beat->echo_delay_ms);
    *peer->last = *beat;
    if (!peer->up) {
        peer->up = true;
        log_info("island %s is back", name_of(engine, i));
        exchange_peer_up(engine, i);
    }
    engine_event(engine, &(struct sync_event){.type = SYNC_EV_HEARTBEAT, .member = i, .beat = beat});
}

/* ---- dispatch ---- */

static void malformed(struct engine *engine, uint32_t i, const char *text)
{
    struct engine_peer *peer = &engine->peers[i];
    if (log_limit_pass(&peer->trouble, engine->now_ms, 5000))
        log_error("island %s sent something we drop: %s", name_of(engine, i), text);
}

/* It waits for more of an object that we do not send any more: it may ask again. */
static void answer_gone(struct engine *engine, uint32_t i, const struct wire_key *key)
{
    static struct wire_message message;
    message.type = WIRE_DONE;
    message.done.key = *key;
    message.done.status = WIRE_GONE;
    exchange_control(engine, i, &message);
}

static void done_in(struct engine *engine, uint32_t i, const struct wire_key *key, uint32_t status)
{
    if (status == WIRE_GONE) {
        if (xfer_gone(engine->xfer, i, key) && key->kind == WIRE_STATE)
            engine_event(engine,
                         &(struct sync_event){
                             .type = SYNC_EV_NOT_AVAILABLE, .member = i, .key = *key, .fragment = key->fragment});
        return;
    }
    if (xfer_done_in(engine->xfer, i, key, (enum wire_done)status, engine->now_ms))
        exchange_end_served(engine, i, key);
    if (status == WIRE_NOT_AVAILABLE)
        engine_event(engine, &(struct sync_event){
                                 .type = SYNC_EV_NOT_AVAILABLE, .member = i, .key = *key, .fragment = key->fragment});
    if (status == WIRE_REFUSED)
        log_error("island %s refuses our %s", name_of(engine, i), wire_key_text(key));
}

static void control_in(struct engine *engine, const struct link_message *in)
{
    static struct wire_message message;
    uint32_t i = in->peer;
    if (wire_unpack(in->header.type, in->payload, in->bytes, &message) != ERR_OK) {
        malformed(engine, i, err_text());
        return;
    }
    if (message.type == WIRE_HELLO) {
        hello_in(engine, i, &message.hello);
        return;
    }
    if (message.type == WIRE_HEARTBEAT) {
        heartbeat_in(engine, i, &message.heartbeat);
        return;
    }
    if (!engine->peers[i].greeted)
        return;
    switch (message.type) {
    case WIRE_ACK:
        if (!xfer_ack_in(engine->xfer, i, &message.ack.key, message.ack.have, message.ack.resume, engine->now_ms))
            answer_gone(engine, i, &message.ack.key);
        break;
    case WIRE_DONE: done_in(engine, i, &message.done.key, message.done.status); break;
    case WIRE_FETCH: exchange_serve(engine, i, &message.fetch.key); break;
    case WIRE_PROBE: xfer_probe_in(engine->xfer, i, &message.probe.key, message.probe.bytes, engine->now_ms); break;
    case WIRE_BYE:
        log_info("island %s says goodbye: %s", name_of(engine, i), message.bye.reason);
        snprintf(engine->peers[i].note, sizeof engine->peers[i].note, "%.200s", message.bye.reason);
        peer_gone(engine, i);
        engine->peers[i].greeted = false;
        engine->peers[i].session = 0;
        break;
    case WIRE_HELLO:
    case WIRE_HEARTBEAT:
    case WIRE_CHUNK:
    case WIRE_BULK_HELLO: break;
    }
}

static void bulk_in(struct engine *engine, const struct link_message *in)
{
    struct wire_chunk chunk;
    uint64_t bytes;
    if (in->header.type == WIRE_BULK_HELLO || !engine->peers[in->peer].greeted)
        return;
    if (wire_chunk_get(in->payload, in->bytes, &chunk) != ERR_OK) {
        malformed(engine, in->peer, err_text());
        return;
    }
    if (xfer_chunk_in(engine->xfer, in->peer, &chunk, engine->now_ms, &bytes) != XFER_COMPLETE)
        return;
    switch (chunk.key.kind) {
    case WIRE_CONTRIBUTION: rounds_contribution_in(engine, in->peer, &chunk.key, bytes); break;
    case WIRE_RESULT: rounds_result_in(engine, in->peer, &chunk.key, bytes); break;
    case WIRE_STATE: rounds_state_in(engine, in->peer, &chunk.key, bytes); break;
    default: exchange_plan_in(engine, in->peer, &chunk.key, bytes); break;
    }
}

static void link_events(struct engine *engine)
{
    static struct log_limit strangers;
    struct link_event event;
    while (link_event(engine->link, &event)) {
        switch (event.type) {
        case LINK_CONNECTED:
            if (!event.bulk)
                send_hello(engine, event.peer);
            break;
        case LINK_DISCONNECTED: break; /* silence says the rest */
        case LINK_STRANGER:
            engine->stranger_count++;
            engine->stranger_ms = engine->now_ms;
            snprintf(engine->stranger_note, sizeof engine->stranger_note,
                     "a connection with unknown key %.200s was refused", event.text);
            if (log_limit_pass(&strangers, engine->now_ms, 5000))
                log_warn("refused a connection with unknown key %s; if it belongs to the run, add a [peer] section",
                         event.text);
            break;
        case LINK_NOT_ADMITTED:
            if (engine->peers[event.peer].up) /* it reaches us, so our dialling does not matter */
                break;
            refuse(
                engine, event.peer,
                "it does not admit our key, or its own is not the one in our configuration; compare `dilococtl peers`");
            break;
        case LINK_MISMATCH: refuse(engine, event.peer, event.text); break;
        case LINK_MALFORMED:
            if (event.peer < engine->view.count)
                malformed(engine, event.peer, event.text);
            break;
        }
    }
}

/* ---- moving ---- */

static void send_xfer_messages(struct engine *engine)
{
    static struct wire_message message;
    struct xfer_message out;
    while (xfer_message(engine->xfer, &out)) {
        message.type = out.type;
        if (out.type == WIRE_ACK) {
            message.ack.key = out.key;
            message.ack.have = out.bytes;
            message.ack.resume = out.resume;
        } else if (out.type == WIRE_DONE) {
            message.done.key = out.key;
            message.done.status = (uint32_t)out.status;
        } else {
            message.probe.key = out.key;
            message.probe.bytes = out.bytes;
        }
        exchange_control(engine, out.peer, &message);
    }
}

static void send_chunks(struct engine *engine)
{
    struct bitset blocked = {{0}};
    struct xfer_chunk chunk;
    engine->chunk_wait_us = 0;
    for (int i = 0; i < CHUNKS_PER_TURN; i++) {
        if (!xfer_next(engine->xfer, &blocked, &chunk)) {
            if (!bitset_empty(&blocked))
                engine->chunk_wait_us = 1000;
            return;
        }
        uint64_t now_us = (uint64_t)(env_mono_s() * 1e6);
        uint64_t wait_us = pace_wait_us(&engine->pace, chunk.bytes, now_us);
        if (wait_us > 0) {
            engine->chunk_wait_us = wait_us;
            return;
        }
        uint8_t head[WIRE_CHUNK_HEADER_BYTES];
        wire_chunk_put(&chunk.key, chunk.total, chunk.offset, head);
        if (link_send(engine->link, chunk.peer, WIRE_CHUNK, head, sizeof head, chunk.data, chunk.bytes) != ERR_OK) {
            bitset_add(&blocked, chunk.peer);
            continue;
        }
        pace_take(&engine->pace, chunk.bytes, now_us);
        engine->objects_sent_bytes += chunk.bytes;
        xfer_sent(engine->xfer, &chunk, engine->now_ms);
    }
    engine->chunk_wait_us = 1;
}

void exchange_run(struct engine *engine)
{
    struct link_message message;
    link_events(engine);
    for (int i = 0; i < MESSAGES_PER_TURN && link_recv(engine->link, &message) == ERR_OK; i++) {
        if (message.header.type == WIRE_CHUNK || message.header.type == WIRE_BULK_HELLO)
            bulk_in(engine, &message);
        else
            control_in(engine, &message);
    }
    if (engine->announce && engine->now_ms >= engine->announce_ms) {
        engine->announce = false;
        engine->announce_ms = engine->now_ms + ANNOUNCE_GAP_MS;
        for (uint32_t i = 0; i < engine->view.count; i++)
            if (i != self_of(engine) && engine->peers[i].greeted)
                send_heartbeat(engine, i);
    }
    send_xfer_messages(engine);
    send_chunks(engine);
    uint64_t arrived, left;
    xfer_progress(engine->xfer, &arrived, &left);
    meter_update(&engine->meter, arrived, left, (uint64_t)(env_mono_s() * 1e6));
}

/* The run is where the furthest island is that can be heard. */
static void tell_run_step(struct engine *engine, uint64_t own)
{
    uint64_t furthest = own;
    for (uint32_t i = 0; i < engine->view.count; i++) {
        const struct engine_peer *peer = &engine->peers[i];
        if (i != self_of(engine) && peer->up && peer->last->step > furthest)
            furthest = peer->last->step;
    }
    if (furthest > (uint64_t)engine->spec.steps)
        furthest = (uint64_t)engine->spec.steps;
    port_run_step(engine, furthest);
}

void exchange_tick(struct engine *engine)
{
    struct port_info port = port_info(engine);
    if (engine->sync != NULL)
        tell_expectation(engine, &port);
    xfer_tick(engine->xfer, engine->now_ms);
    for (uint32_t f = 0; f < engine_fragments(engine); f++) {
        struct wire_key key;
        if (sync_fetching_state(engine->sync, f, &key) && xfer_receiving(engine->xfer, &key))
            sync_state_moves(engine->sync, f);
    }
    for (uint32_t i = 0; i < engine->view.count; i++) {
        struct engine_peer *peer = &engine->peers[i];
        if (i == self_of(engine))
            continue;
        bool settled = peer->greeted && peer->plan_known == (engine->plan != NULL);
        if (!settled && link_up(engine->link, i, false) && engine->now_ms >= peer->hello_ms)
            send_hello(engine, i);
        if (peer->greeted && engine->now_ms >= peer->beat_ms)
            send_heartbeat(engine, i);
        if (peer->up && engine->now_ms > peer->heard_ms + SILENT_MS) {
            log_warn("island %s has not been heard of for %.1f s; training goes on, its shards wait for it",
                     name_of(engine, i), (double)(engine->now_ms - peer->heard_ms) / 1000);
            snprintf(peer->note, sizeof peer->note, "silent");
            peer_gone(engine, i);
        }
    }
    exchange_want_plan(engine);
    tell_run_step(engine, port.step);
}

void exchange_bye(struct engine *engine, const char *reason)
{
    static struct wire_message message;
    message.type = WIRE_BYE;
    snprintf(message.bye.reason, sizeof message.bye.reason, "%s", reason);
    for (uint32_t i = 0; i < engine->view.count; i++)
        if (i != self_of(engine) && engine->peers[i].greeted)
            exchange_control(engine, i, &message);
}
