/* What dilococtl shows, as JSON; and the list of what is not as it should be, each with what to do. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "daemon/engine.h"
#include "daemon/rules.h"

enum { MISSED_TOLD = 3 };

static json_t *hash_json(const struct digest *hash, bool known)
{
    char hex[DIGEST_HEX_BYTES];
    return known ? json_string(digest_hex(hash, hex)) : json_null();
}

/* One hash over all fragments' versions: equal on two islands exactly when all anchors and momenta are. */
static json_t *anchors_hash(const struct engine *engine)
{
    struct digest_state state;
    digest_begin(&state);
    for (uint32_t f = 0; f < engine_fragments(engine); f++) {
        if (!sync_known(engine->sync, f))
            return json_null();
        digest_add(&state, engine->fragments[f].state.hash.byte, DIGEST_BYTES);
    }
    struct digest hash = digest_end(&state);
    return hash_json(&hash, engine_fragments(engine) > 0);
}

static json_t *names_of(const struct engine *engine, const struct bitset *members)
{
    json_t *names = json_array();
    for (uint32_t i = 0; i < engine->view.count; i++)
        if (bitset_has(members, i))
            json_array_append_new(names, json_string(engine->view.members[i].name));
    return names;
}

/* ---- what is wrong ---- */

static void complain(json_t *list, const char *what, const char *remedy)
{
    json_array_append_new(list, json_pack("{s:s, s:s}", "what", what, "remedy", remedy));
}

static void complain_peers(const struct engine *engine, json_t *list)
{
    uint32_t up = 1;
    for (uint32_t i = 0; i < engine->view.count; i++) {
        const struct engine_peer *peer = &engine->peers[i];
        char text[400];
        if (i == engine->view.self || peer->up) {
            up += i != engine->view.self;
            continue;
        }
        const char *note = peer->note;
        if (note[0] == '\0' && engine->view.members[i].address[0] == '\0')
            note = "no address is known here, so it has to dial us";
        if (peer->heard_ms > 0)
            snprintf(text, sizeof text, "island %s was last heard of %.0f s ago%s%s", engine->view.members[i].name,
                     (double)(engine->now_ms - peer->heard_ms) / 1000, note[0] != '\0' ? ": " : "", note);
        else
            snprintf(text, sizeof text, "island %s was not heard of yet%s%s", engine->view.members[i].name,
                     note[0] != '\0' ? ": " : "", note);
        complain(list, text,
                 peer->refused ? "make the two configurations agree and restart the daemon that changed"
                               : "check its daemon, its address and the line; rounds wait for its shards");
    }
    if (up == 1 && engine->view.count > 1)
        complain(list, "this island is alone", "no round can close; what it trains meanwhile goes out later");
}

/* With late = merge a fast island does not wait; it should be known that it runs ahead. */
static void complain_pace(const struct engine *engine, json_t *list)
{
    struct port_info port = port_info(engine);
    for (uint32_t i = 0; i < engine->view.count; i++) {
        const struct wire_heartbeat *last = engine->peers[i].last;
        char text[200];
        if (i == engine->view.self || !engine->peers[i].up || !port.training ||
            last->trainer != WIRE_TRAINER_TRAINING || port.step <= last->step + 2 * (uint64_t)engine->spec.interval)
            continue;
        snprintf(text, sizeof text, "island %s is %" PRIu64 " steps behind this one", engine->view.members[i].name,
                 port.step - last->step);
        complain(list, text, "rounds close at its pace; late = wait in the run spec keeps islands in step");
    }
}

/* With a quorum: work that is trained and not counted. */
static void complain_missed(const struct engine *engine, json_t *list)
{
    for (uint32_t i = 0; engine->sync != NULL && i < engine->view.count; i++) {
        bool too_late;
        uint64_t missed = sync_missed(engine->sync, i, &too_late);
        char text[200];
        if (missed < MISSED_TOLD || !too_late || !engine->peers[i].up)
            continue;
        snprintf(text, sizeof text, "the last %" PRIu64 " rounds of our shards closed without island %s", missed,
                 engine->view.members[i].name);
        complain(list, text, "it comes later than [sync] grace allows; make grace longer, or look at its line");
    }
}

static void complain_waiting(struct engine *engine, json_t *list)
{
    struct port_info port = port_info(engine);
    struct bitset waiting = {{0}};
    char text[400] = "the trainer stands still until its last contributions are counted; it waits for";
    for (uint32_t f = 0; f < engine_fragments(engine); f++) {
        struct bitset more = sync_waiting_for(engine->sync, f);
        bitset_add_all(&waiting, &more);
    }
    bitset_remove(&waiting, engine->view.self);
    if (!port.finishing || port.finished || bitset_empty(&waiting) || engine->now_ms < port.report_ms + 3000)
        return;
    for (uint32_t i = 0; i < engine->view.count; i++)
        if (bitset_has(&waiting, i))
            snprintf(text + strlen(text), sizeof text - strlen(text), " %s", engine->view.members[i].name);
    complain(list, text, "see to those islands; or dilococtl leave --now, which gives the uncounted work up");
}

static void complain_strangers(const struct engine *engine, json_t *list)
{
    if (engine->stranger_count > 0 && engine->now_ms < engine->stranger_ms + 60000)
        complain(list, engine->stranger_note,
                 "if it is an island of the run, its public_key here is not the one it uses");
}

static void complain_fragments(const struct engine *engine, json_t *list)
{
    uint32_t behind = 0, repairing = 0;
    for (uint32_t f = 0; f < engine_fragments(engine); f++) {
        behind += sync_own(engine->sync, f).version + 1 < sync_version_max(engine->sync, f);
        repairing += sync_state(engine->sync, f) == SYNC_REPAIR;
    }
    char text[128];
    if (behind > 0) {
        snprintf(text, sizeof text, "%" PRIu32 " fragments are more than one version behind", behind);
        complain(list, text, "they are being fetched; nothing to do unless it lasts");
    }
    if (repairing > 0) {
        snprintf(text, sizeof text, "%" PRIu32 " fragments are being repaired from other islands", repairing);
        complain(list, text, "if it happens again, test this machine's memory");
    }
}

static json_t *complaints(struct engine *engine)
{
    json_t *list = json_array();
    struct workers_info workers = workers_info(engine);
    struct port_info port = port_info(engine);
    complain_peers(engine, list);
    complain_strangers(engine, list);
    complain_pace(engine, list);
    complain_missed(engine, list);
    complain_waiting(engine, list);
    complain_fragments(engine, list);
    if (engine->disk_note[0] != '\0')
        complain(list, engine->disk_note, "free space in the state folder; it is tried again every two seconds");
    if (workers.state == WORKERS_WAITING)
        complain(list, workers.note, "read the trainer's message in the log");
    if (workers.state == WORKERS_STOPPED)
        complain(list, "no trainer is running", "start it with: dilococtl join");
    if (workers.state == WORKERS_OFF && !port.attached && !port.finished)
        complain(list, "no trainer is attached", "start yours; it attaches through worker.sock");
    if (port.training && !port.finishing && engine->now_ms > port.report_ms + 60000 && port.report_ms > 0)
        complain(list, "the trainer has not finished a step for over a minute",
                 "with late = wait it may stand waiting for a round; see `dilococtl fragments`");
    return list;
}

/* ---- status ---- */

static const char *trainer_state(const struct engine *engine)
{
    struct port_info port = port_info(engine);
    if (port.finished)
        return "finished";
    if (port.attached && port.finishing)
        return "finishing";
    if (port.training)
        return "training";
    return port.attached ? "starting" : workers_state_name(workers_info(engine).state);
}

static json_t *trainer_json(const struct engine *engine)
{
    struct port_info port = port_info(engine);
    struct workers_info workers = workers_info(engine);
    return json_pack("{s:s, s:s, s:i, s:I, s:I, s:f, s:f, s:f, s:f, s:i}", "state", trainer_state(engine), "process",
                     workers_state_name(workers.state), "pid",
                     port.attached && port.pid != 0 ? (int)port.pid : workers.pid, "step", (json_int_t)port.step,
                     "tokens", (json_int_t)port.tokens, "loss", port.loss, "tokens_per_s", port.tokens_per_s, "lr",
                     port.lr, "grad_norm", port.grad_norm, "failures", (int)workers.failures);
}

static void sum_counters(const struct engine *engine, uint64_t *sent, uint64_t *received)
{
    *sent = *received = 0;
    for (uint32_t i = 0; i < engine->view.count; i++) {
        if (i == engine->view.self)
            continue;
        struct link_counters counters = link_counters(engine->link, i);
        *sent += counters.sent;
        *received += counters.received;
    }
}

static json_t *run_json(const struct engine *engine)
{
    const struct runspec *spec = &engine->spec;
    return json_pack("{s:s, s:I, s:o, s:I, s:I, s:s, s:b}", "name", spec->name, "steps", (json_int_t)spec->steps, "id",
                     hash_json(&spec->digest, true), "interval", (json_int_t)spec->interval, "overlap",
                     (json_int_t)spec->overlap, "codec", rules_codec_name(&engine->spec), "error_feedback",
                     spec->error_feedback);
}

json_t *status_json(struct engine *engine)
{
    uint64_t versions = 0, lowest = UINT64_MAX, highest = 0, sent, received;
    link_sample(engine->link);
    sum_counters(engine, &sent, &received);
    for (uint32_t f = 0; f < engine_fragments(engine); f++) {
        uint64_t version = engine->fragments[f].state.version;
        versions += version;
        lowest = version < lowest ? version : lowest;
        highest = version > highest ? version : highest;
    }
    uint32_t up = 0;
    for (uint32_t i = 0; i < engine->view.count; i++)
        up += i == engine->view.self || engine->peers[i].up;
    struct ledger_stats ledger = ledger_stats(engine->ledger);
    json_t *status =
        json_pack("{s:s, s:s, s:o, s:o, s:o}", "island", engine->conf->name, "software", "diloco " DILOCO_VERSION,
                  "run", run_json(engine), "trainer", trainer_json(engine), "degraded", complaints(engine));
    json_object_set_new(status, "uptime_s", json_real((double)(engine->now_ms - engine->start_ms) / 1000));
    json_object_set_new(status, "islands", json_integer(engine->view.count));
    json_object_set_new(status, "islands_up", json_integer(up));
    json_object_set_new(status, "params",
                        json_integer(engine->plan != NULL ? (json_int_t)engine->plan->plan->params_count : 0));
    json_object_set_new(status, "fragments", json_integer(engine_fragments(engine)));
    json_object_set_new(status, "versions", json_integer((json_int_t)versions));
    json_object_set_new(status, "version_min", json_integer(lowest == UINT64_MAX ? 0 : (json_int_t)lowest));
    json_object_set_new(status, "version_max", json_integer((json_int_t)highest));
    json_object_set_new(status, "step", json_integer((json_int_t)engine_step(engine)));
    json_object_set_new(status, "anchors", anchors_hash(engine));
    json_object_set_new(status, "bytes_sent", json_integer((json_int_t)sent));
    json_object_set_new(status, "bytes_received", json_integer((json_int_t)received));
    json_object_set_new(status, "payload_sent", json_integer((json_int_t)engine->objects_sent_bytes));
    json_object_set_new(status, "uplink_bit_s", json_integer((json_int_t)engine->meter.bits_per_s));
    json_object_set_new(status, "compressing",
                        json_boolean(engine->spec.zstd_level > 0 &&
                                     (!engine->conf->compress_auto ||
                                      squeeze_best(&engine->squeeze, (double)engine->meter.bits_per_s))));
    json_object_set_new(status, "ledger_bytes", json_integer((json_int_t)ledger.bytes));
    json_object_set_new(status, "ledger_records", json_integer((json_int_t)ledger.records));
    json_object_set_new(status, "memory_bytes", json_integer((json_int_t)engine->memory_bytes));
    json_object_set_new(status, "strangers_refused", json_integer((json_int_t)engine->stranger_count));
    json_object_set_new(status, "saved", json_string(engine->export_note));
    return status;
}

/* ---- peers ---- */

static json_t *peer_json(struct engine *engine, uint32_t i)
{
    const struct view_member *member = &engine->view.members[i];
    const struct engine_peer *peer = &engine->peers[i];
    bool self = i == engine->view.self;
    struct link_counters counters = self ? (struct link_counters){0} : link_counters(engine->link, i);
    const struct wire_heartbeat *last = peer->last;
    struct port_info port = port_info(engine);
    json_t *row = json_pack("{s:s, s:s, s:s, s:I, s:b, s:b, s:s}", "name", member->name, "public_key", member->key_text,
                            "address", member->address, "uplink_bit_s", (json_int_t)member->uplink, "self", self, "up",
                            self || peer->up, "note", peer->note);
    json_object_set_new(row, "trainer", json_string(self ? trainer_state(engine) : wire_trainer_name(last->trainer)));
    json_object_set_new(row, "step", json_integer((json_int_t)(self ? port.step : last->step)));
    json_object_set_new(row, "tokens", json_integer((json_int_t)(self ? port.tokens : last->tokens)));
    json_object_set_new(row, "loss", json_real(self ? port.loss : (double)last->loss_milli / 1000));
    json_object_set_new(row, "tokens_per_s", json_real(self ? port.tokens_per_s : last->tokens_per_s));
    json_object_set_new(row, "rtt_ms", json_integer(peer->rtt_ms));
    json_object_set_new(row, "heard_s",
                        self || peer->heard_ms == 0 ? json_null()
                                                    : json_real((double)(engine->now_ms - peer->heard_ms) / 1000));
    json_object_set_new(row, "bytes_sent", json_integer((json_int_t)counters.sent));
    json_object_set_new(row, "bytes_received", json_integer((json_int_t)counters.received));
    json_object_set_new(row, "outliers", json_integer((json_int_t)peer->outliers));
    bool too_late;
    json_object_set_new(row, "missed",
                        json_integer(engine->sync != NULL ? (json_int_t)sync_missed(engine->sync, i, &too_late) : 0));
    json_object_set_new(row, "unacknowledged", json_integer((json_int_t)xfer_outstanding(engine->xfer, i)));
    return row;
}

json_t *status_peers_json(struct engine *engine)
{
    json_t *peers = json_array();
    link_sample(engine->link);
    for (uint32_t i = 0; i < engine->view.count; i++)
        json_array_append_new(peers, peer_json(engine, i));
    return json_pack("{s:o}", "peers", peers);
}

/* ---- fragments ---- */

static json_t *fragment_json(struct engine *engine, uint32_t f)
{
    const struct plan_fragment *plan = &engine->plan->plan->fragments[f];
    struct sync_peer_fragment own = sync_own(engine->sync, f);
    const struct owner *owner = sync_owner(engine->sync, f);
    struct bitset waiting = sync_waiting_for(engine->sync, f);
    return json_pack("{s:i, s:I, s:i, s:I, s:I, s:s, s:o, s:s, s:I, s:o, s:o, s:I}", "fragment", (int)f, "params",
                     (json_int_t)plan->params_count, "tensors", (int)plan->tensors_count, "version",
                     (json_int_t)own.version, "newest", (json_int_t)sync_version_max(engine->sync, f), "state",
                     sync_state_name(sync_state(engine->sync, f)), "hash", hash_json(&own.hash, own.hash_known),
                     "owner", owner_state_name(owner->state), "round", (json_int_t)owner->round, "have",
                     names_of(engine, &owner->have), "waiting_for", names_of(engine, &waiting), "feedback_cuts",
                     (json_int_t)replica_feedback_cuts(engine->replica, f));
}

json_t *status_fragments_json(struct engine *engine)
{
    json_t *fragments = json_array();
    for (uint32_t f = 0; f < engine_fragments(engine); f++)
        json_array_append_new(fragments, fragment_json(engine, f));
    return json_pack("{s:o}", "fragments", fragments);
}

void status_line(struct engine *engine, char *line, size_t line_bytes)
{
    struct port_info port = port_info(engine);
    json_t *list = complaints(engine);
    const char *what = json_string_value(json_object_get(json_array_get(list, 0), "what"));
    snprintf(line, line_bytes, "step %" PRIu64 "/%" PRId64 "%s%s", port.training ? port.step : engine_step(engine),
             engine->spec.steps, what != NULL ? "; degraded: " : "", what != NULL ? what : "");
    json_decref(list);
}
