/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control/status_json.h"

#include <math.h>

#include "daemon/control/complaints.h"
#include "daemon/rules.h"
#include "net/membership/wire_epoch.h"

static json_t *hash_json(const struct digest *hash, bool known)
{
    char hex[DIGEST_HEX_BYTES];
    return known ? json_string(digest_hex(hash, hex)) : json_null();
}

static json_t *number(uint64_t value)
{
    return json_integer((json_int_t)value);
}

/* 0 is not said, and JSON has no NaN. */
static json_t *real_if_known(double value)
{
    return isfinite(value) && value != 0 ? json_real(value) : json_null();
}

static json_t *names_of(const struct status *status, const struct bitset *members)
{
    json_t *names = json_array();
    for (uint32_t i = 0; i < status->from->view->count; i++)
        if (bitset_has(members, i))
            json_array_append_new(names, json_string(status->peers[i].member->name));
    return names;
}

/* Who left the run as people asked, and is away now. */
static json_t *drained_json(const struct status *status)
{
    struct bitset drained = {{0}};
    for (uint32_t i = 0; i < status->from->view->count; i++)
        if (status->peers[i].drained && !status->peers[i].up)
            bitset_add(&drained, i);
    return names_of(status, &drained);
}

static json_t *complaints_json(const struct status *status)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < status->complaints_count; i++) {
        const struct complaint *complaint = &status->complaints[i];
        const char *of = complaints_is_event(status, i) ? "" : complaint_name(status->complaints[complaint->of].code);
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s}", "code", complaint_name(complaint->code), "what",
                                              complaint->what, "remedy", complaint->remedy, "of", of));
    }
    return list;
}

static json_t *machine_json(const struct trainer_info *trainer)
{
    const struct ipc_machine *machine = &trainer->machine;
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f}", "device", machine->device, "ranks",
                     (json_int_t)machine->ranks, "tensor_parallel", (json_int_t)machine->tensor_parallel,
                     "memory_bytes", (json_int_t)machine->memory_bytes, "memory_total_bytes",
                     (json_int_t)machine->memory_total_bytes, "flops_per_token", machine->flops_per_token, "peak_flops",
                     machine->peak_flops, "flops_per_s", trainer->flops_per_s, "mfu", trainer->mfu);
}

static json_t *trainer_json(const struct status *status)
{
    const struct trainer_info *trainer = &status->trainer;
    double waits_s = trainer->waits_ms > 0 ? (double)(status->now_ms - trainer->waits_ms) / 1000 : 0;
    return json_pack("{s:s, s:s, s:i, s:I, s:I, s:I, s:o, s:f, s:f, s:o, s:i, s:o, s:f, s:o, s:s}", "state",
                     trainer_phase_name(status->phase), "process", trainer->process_name, "pid", (int)trainer->pid,
                     "step", (json_int_t)trainer->step, "tokens", (json_int_t)trainer->tokens, "tokens_counted",
                     (json_int_t)trainer->tokens_counted, "loss", real_if_known(trainer->loss), "tokens_per_s",
                     trainer->tokens_per_s, "lr", trainer->lr, "grad_norm", real_if_known(trainer->grad_norm),
                     "failures", (int)trainer->failures, "machine", machine_json(trainer), "waits_s", waits_s,
                     "waits_for", names_of(status, &status->awaited), "other_base", trainer->other_base);
}

static json_t *run_json(const struct runspec *spec)
{
    return json_pack("{s:s, s:I, s:o, s:I, s:I, s:s, s:b, s:I}", "name", spec->name, "steps", (json_int_t)spec->steps,
                     "id", hash_json(&spec->digest, true), "interval", (json_int_t)spec->interval, "overlap",
                     (json_int_t)spec->overlap, "codec", rules_codec_name(spec), "error_feedback", spec->error_feedback,
                     "quorum", (json_int_t)spec->quorum);
}

static const char *saving_name(enum rounds_export_state state)
{
    static const char *const names[] = {[ROUNDS_EXPORT_NONE] = "none",
                                        [ROUNDS_EXPORT_WRITING] = "writing",
                                        [ROUNDS_EXPORT_DONE] = "done",
                                        [ROUNDS_EXPORT_FAILED] = "failed"};
    return names[state];
}

static void add_versions(json_t *json, const struct status *status)
{
    const struct model_plan *plan = status->from->plan;
    json_object_set_new(json, "params", number(plan != NULL ? plan->plan->params_count : 0));
    json_object_set_new(json, "fragments", number(status->fragments_count));
    json_object_set_new(json, "versions", number(status->versions));
    json_object_set_new(json, "version_min", number(status->version_min));
    json_object_set_new(json, "version_max", number(status->version_max));
    json_object_set_new(json, "step", number(status->step));
    json_object_set_new(json, "quorum", number(status->quorum));
    json_object_set_new(json, "contributors", number(status->contributors));
    json_object_set_new(json, "left_s", status->left_s >= 0 ? json_real(status->left_s) : json_null());
    json_object_set_new(json, "anchors", hash_json(&status->anchors, status->anchors_known));
    json_object_set_new(json, "arriving",
                        json_pack("{s:I, s:I, s:I}", "fragments", (json_int_t)status->arriving.fragments, "bytes",
                                  (json_int_t)status->arriving.bytes, "bytes_due",
                                  (json_int_t)status->arriving.bytes_due));
}

/* What was asked of members, and by whom: not decided yet. */
static json_t *wishes_json(const struct status *status)
{
    const struct status_epoch *epoch = &status->epoch;
    json_t *list = json_array();
    for (uint32_t i = 0; i < epoch->wishes_count; i++) {
        const struct membership_pending *wish = &epoch->wishes[i];
        const char *kind = wish->kind == WIRE_WISH_EVICT ? "evict" : "revoke";
        const char *island = status->from->view->members[wish->member].name;
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:I}", "kind", kind, "island", island, "by", wish->by,
                                              "for_ms", (json_int_t)wish->for_ms));
    }
    return list;
}

static void add_epoch(json_t *json, const struct status *status)
{
    const struct status_epoch *epoch = &status->epoch;
    json_object_set_new(json, "epoch", number(status->from->view->epoch));
    json_object_set_new(json, "voters", number(epoch->voters));
    json_object_set_new(json, "voters_heard", number(epoch->voters_heard));
    json_object_set_new(json, "voters_sure", number(epoch->voters_sure));
    json_object_set_new(json, "votes", json_boolean(epoch->votes));
    json_object_set_new(json, "doubt", json_string(epoch->doubt));
    json_object_set_new(json, "sealed_ms", number(epoch->sealed_ms));
    json_object_set_new(json, "wished_ms", number(epoch->wished_ms));
    json_object_set_new(json, "waits", json_string(epoch->waits));
    json_object_set_new(json, "advice", json_string(epoch->advice));
    json_object_set_new(json, "wishes", wishes_json(status));
}

static void add_traffic(json_t *json, const struct status *status)
{
    json_object_set_new(json, "bytes_sent", number(status->sent_bytes));
    json_object_set_new(json, "bytes_received", number(status->received_bytes));
    json_object_set_new(json, "payload_sent", number(status->objects_sent_bytes));
    json_object_set_new(json, "payload_wasted", number(status->objects_wasted_bytes));
    json_object_set_new(json, "uplink_bit_s", number(status->uplink_bits));
    json_object_set_new(json, "capped", json_string(status->capped));
    json_object_set_new(json, "compressing", json_boolean(status->rounds.compressing));
}

static json_t *processor_json(const struct status_load *load)
{
    json_t *json = json_pack("{s:f, s:f, s:f, s:f}", "cores", load->cores, "seconds", load->seconds, "loop",
                             load->loop_s, "links", load->links_s);
    for (int work = 0; work < JOBS_WORKS; work++)
        json_object_set_new(json, jobs_work_name((enum jobs_work)work), json_real(load->jobs_s[work]));
    return json;
}

/* Of the daemon, and the last of them; 0 when that is long ago. */
static json_t *restarts_json(const struct status *status)
{
    const struct supervised *by = &status->from->conf->supervised;
    bool lately = status->now_ms < status->from->start_ms + STATUS_RESTARTED_MS;
    return json_pack("{s:I, s:I, s:s}", "count", (json_int_t)(lately ? by->again : 0), "at", (json_int_t)by->at_s,
                     "why", by->why);
}

json_t *status_json(const struct status *status)
{
    const struct status_conf *from = status->from;
    json_t *json =
        json_pack("{s:s, s:s, s:o, s:o, s:o}", "island", from->conf->name, "software", "diloco " DILOCO_VERSION, "run",
                  run_json(from->spec), "trainer", trainer_json(status), "degraded", complaints_json(status));
    json_object_set_new(json, "role", json_string(record_role_name(from->view->members[from->view->self].role)));
    json_object_set_new(json, "undialled", json_boolean(status->undialled));
    json_object_set_new(json, "uptime_s", json_real((double)(status->now_ms - from->start_ms) / 1000));
    json_object_set_new(json, "restarts", restarts_json(status));
    json_object_set_new(json, "islands", number(status->islands));
    json_object_set_new(json, "islands_up", number(status->islands_up));
    json_object_set_new(json, "left", drained_json(status));
    add_epoch(json, status);
    add_versions(json, status);
    add_traffic(json, status);
    json_object_set_new(json, "ledger_bytes", number(status->ledger.bytes));
    json_object_set_new(json, "ledger_records", number(status->ledger.records));
    json_object_set_new(json, "memory_bytes", number(from->memory_bytes));
    json_object_set_new(json, "processor", processor_json(&status->load));
    json_object_set_new(json, "recovering",
                        json_pack("{s:I, s:I, s:I}", "fragments", (json_int_t)status->recovery.fragments, "read",
                                  (json_int_t)status->recovery.fragments_done, "versions",
                                  (json_int_t)status->recovery.versions));
    json_object_set_new(json, "loop_lag_ms", number(status->load.lag_ms));
    json_object_set_new(json, "loop_lag_ms_max", number(status->load.lag_ms_max));
    json_object_set_new(json, "strangers_refused", number(status->refused.strangers));
    json_object_set_new(json, "saving", json_string(saving_name(status->rounds.saving)));
    json_object_set_new(json, "saved", json_string(status->rounds.saved != NULL ? status->rounds.saved : ""));
    return json;
}

static json_t *peer_json(const struct status_peer *peer)
{
    const struct view_member *member = peer->member;
    json_t *row = json_pack("{s:s, s:s, s:s, s:I, s:b, s:b, s:s}", "name", member->name, "public_key", member->key_text,
                            "address", member->address, "uplink_bit_s", (json_int_t)member->uplink, "self", peer->self,
                            "up", peer->up, "note", peer->note);
    json_object_set_new(row, "fault", json_string(peer->fault));
    json_object_set_new(row, "id", json_integer(member->id));
    json_object_set_new(row, "role", json_string(record_role_name(member->role)));
    json_object_set_new(row, "voter", json_boolean(member->voter));
    json_object_set_new(row, "trainer", json_string(peer->trainer));
    json_object_set_new(row, "step", number(peer->step));
    json_object_set_new(row, "tokens", number(peer->tokens));
    json_object_set_new(row, "loss", real_if_known(peer->loss));
    json_object_set_new(row, "tokens_per_s", json_real(peer->tokens_per_s));
    json_object_set_new(row, "rtt_ms", number(peer->rtt_ms));
    json_object_set_new(row, "heard_s", peer->heard ? json_real(peer->heard_s) : json_null());
    json_object_set_new(row, "bytes_sent", number(peer->sent_bytes));
    json_object_set_new(row, "bytes_received", number(peer->received_bytes));
    json_object_set_new(row, "outliers", number(peer->outliers));
    json_object_set_new(row, "missed", number(peer->missed));
    json_object_set_new(row, "unacknowledged", number(peer->unacknowledged_bytes));
    return row;
}

json_t *status_json_peers(const struct status *status)
{
    json_t *peers = json_array();
    for (uint32_t i = 0; i < status->from->view->count; i++)
        if (status->peers[i].member->used)
            json_array_append_new(peers, peer_json(&status->peers[i]));
    return json_pack("{s:I, s:o}", "epoch", (json_int_t)status->from->view->epoch, "peers", peers);
}

static json_t *fragment_json(const struct status *status, uint32_t f)
{
    const struct status_fragment *row = &status->fragments[f];
    return json_pack("{s:i, s:I, s:i, s:I, s:I, s:s, s:o, s:s, s:I, s:o, s:o, s:I}", "fragment", (int)f, "params",
                     (json_int_t)row->params, "tensors", (int)row->tensors, "version", (json_int_t)row->own.version,
                     "newest", (json_int_t)row->newest, "state", sync_state_name(row->state), "hash",
                     hash_json(&row->own.hash, row->own.hash_known), "owner", owner_state_name(row->owner.state),
                     "round", (json_int_t)row->owner.round, "have", names_of(status, &row->owner.have), "waiting_for",
                     names_of(status, &row->waiting), "feedback_cuts", (json_int_t)row->feedback_cuts);
}

json_t *status_json_fragments(const struct status *status)
{
    json_t *fragments = json_array();
    for (uint32_t f = 0; f < status->fragments_count; f++)
        json_array_append_new(fragments, fragment_json(status, f));
    return json_pack("{s:o}", "fragments", fragments);
}
