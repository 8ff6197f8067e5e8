/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control/status.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/env.h"
#include "common/mem.h"
#include "daemon/as_typed.h"
#include "daemon/control/complaint_events.h"
#include "daemon/control/complain.h"
#include "daemon/control/complaints.h"
#include "daemon/membership/membership_host.h"
#include "daemon/rounds/apply.h"
#include "daemon/rounds/recover.h"
#include "daemon/rules.h"
#include "daemon/trainer/attachment.h"
#include "net/config/config_orders.h"
#include "net/membership/wire_paxos.h"

enum { DUPLICATE_KEY_MS = 60000 };
/* What is no matter of intervals while they are short. */
enum { BLOCKED_MS = 60000, STANDS_MS = 5000 };
/* What was committed before a seal may be applied so long after it. */
enum { APPLIED_MS = 1000 };

static void take_self(struct status *status, struct status_peer *row)
{
    row->self = row->up = true;
    row->note = row->fault = "";
    row->trainer = trainer_phase_name(status->phase);
    row->training = status->trainer.training;
    row->step = status->trainer.step;
    row->tokens = status->trainer.tokens;
    row->loss = status->trainer.loss;
    row->tokens_per_s = status->trainer.tokens_per_s;
}

static void take_peer(struct status *status, uint32_t i)
{
    const struct status_conf *from = status->from;
    struct status_peer *row = &status->peers[i];
    row->member = &from->view->members[i];
    row->note = row->fault = row->trainer = "";
    if (!row->member->used)
        return;
    status->islands++;
    uint32_t partitioned = membership_partitioned_from(from->membership, i);
    row->partitioned_from = partitioned != VIEW_NOBODY ? &from->view->members[partitioned] : NULL;
    if (row->partitioned_from != NULL)
        row->partitioned_by_line =
            membership_partitioned_text(from->membership, i, partitioned, row->partitioned, sizeof row->partitioned);
    row->disk_fails = membership_disk_fails(from->membership, i);
    row->drained = config_store_drained(from->configs, row->member->as.id);
    row->catches_up = membership_catches_up(from->membership, i);
    row->may_vote = membership_may_vote(from->membership, i);
    if (from->rounds != NULL) {
        row->missed = sync_missed(from->sync, i, &row->too_late);
        row->outliers = rounds_outliers(from->rounds, i, &row->outliers_lately);
        row->turned_away = rounds_turned_away(from->rounds, i);
        row->claims_much = rounds_claims_much(from->rounds, i);
    }
    if (i == from->view->self) {
        take_self(status, row);
        return;
    }
    struct peer_info peer = peers_info(from->peers, i);
    row->up = peer.up;
    row->refused = peer.refused;
    row->unadmitted = peer.unadmitted && !peer.up;
    row->note = peer.note;
    bool begins = peer.fault_kind == PEER_FAULT_LATE && peer.trainer == WIRE_TRAINER_STARTING;
    row->fault = begins ? "" : peer.fault; /* nothing can come of it yet */
    row->fault_kind = begins ? PEER_FAULT_NONE : peer.fault_kind;
    row->too_fast = peer.too_fast;
    row->alike = from->alike != NULL ? alike_count(from->alike, from->view, i) : 0;
    row->duplicate_key = peer.duplicate_key_ms > 0 && status->now_ms < peer.duplicate_key_ms + DUPLICATE_KEY_MS;
    row->trainer = wire_trainer_name(peer.trainer);
    row->training = peer.trainer == WIRE_TRAINER_TRAINING;
    row->step = peer.step;
    row->own_step = peer.own_step;
    row->tokens = peer.tokens;
    row->loss = peer.loss;
    row->tokens_per_s = peer.tokens_per_s;
    row->rtt_ms = peer.rtt_ms;
    row->heard = peer.heard_ms > 0;
    row->heard_s = row->heard ? (double)(status->now_ms - peer.heard_ms) / 1000 : 0;
    row->sent_bytes = peer.sent;
    row->received_bytes = peer.received;
    row->unacknowledged_bytes = objects_unacknowledged(from->objects, i);
    status->islands_up += peer.up;
    status->islands_drained += row->drained && !row->up;
    status->sent_bytes += peer.sent;
    status->received_bytes += peer.received;
}

/* A round that is under way has taken as long as all these intervals. */
static bool takes_too_long(const struct status *status, uint32_t f)
{
    const struct progress *progress = status->from->progress;
    if (progress == NULL)
        return false;
    uint64_t limit_ms = progress_steps_ms(progress, STATUS_INTERVALS_BLOCKED * (uint64_t)status->from->spec->interval);
    return progress_waits_ms(progress, f) > (limit_ms > BLOCKED_MS ? limit_ms : BLOCKED_MS);
}

/* A round was due, and so many intervals after it have gone by; where those take no time at all, some time, too. */
static bool is_overdue(const struct status *status, uint32_t f)
{
    const struct status_conf *from = status->from;
    const struct status_fragment *row = &status->fragments[f];
    uint64_t step = rounds_state(from->rounds, f)->step;
    bool closed_elsewhere = row->newest > row->own.version;
    if (from->progress != NULL && progress_stands_ms(from->progress, f) < STANDS_MS)
        return false;
    /* The rest is worth computing where it may be so. */
    if (closed_elsewhere || status->furthest <= step + STATUS_INTERVALS_BLOCKED * (uint64_t)from->spec->interval)
        return false;
    struct schedule schedule = rules_schedule(from->spec, status->fragments_count);
    for (int k = 0; k <= STATUS_INTERVALS_BLOCKED; k++)
        step = schedule_next_due(&schedule, f, step);
    return status->furthest >= step;
}

/* Its state is not here, and others have one: what is missing is told as that, and holds up nobody's round. */
static bool is_to_come(const struct status *status, uint32_t f)
{
    const struct status_conf *from = status->from;
    bool offered = false;
    for (uint32_t i = 0; i < from->view->count && !offered; i++)
        offered = sync_up(from->sync, i) && sync_heard(from->sync, i, f).hash_known;
    return offered && !sync_known(from->sync, f);
}

static void take_arriving(struct status *status, uint32_t f)
{
    const struct status_conf *from = status->from;
    struct status_arriving *arriving = &status->arriving;
    bool known = sync_known(from->sync, f);
    uint64_t due = replica_state_bytes(from->replica, f);
    arriving->fragments += !known;
    arriving->bytes += known ? due : objects_state_bytes(from->objects, f);
    arriving->bytes_due += due;
    arriving->offered = arriving->offered || is_to_come(status, f);
}

static void take_fragment(struct status *status, uint32_t f, struct digest_state *anchors)
{
    const struct status_conf *from = status->from;
    const struct plan_fragment *plan = &from->plan->plan->fragments[f];
    struct status_fragment *row = &status->fragments[f];
    *row = (struct status_fragment){.params = plan->params_count,
                                    .tensors = plan->tensors_count,
                                    .own = sync_own(from->sync, f),
                                    .newest = sync_version_max(from->sync, f),
                                    .state = sync_state(from->sync, f),
                                    .owner = *sync_owner(from->sync, f),
                                    .waiting = sync_waiting_for(from->sync, f),
                                    .against = sync_stands_against(from->sync, f)};
    if (!status->witness) {
        row->feedback_cuts = replica_feedback_cuts(from->replica, f);
        row->grown = apply_grown(from->rounds->apply, f);
        row->blocked =
            !status->pause.is && !is_to_come(status, f) && (takes_too_long(status, f) || is_overdue(status, f));
    }
    if (!status->witness)
        take_arriving(status, f);
    uint64_t version = status->witness ? row->newest : row->own.version;
    status->versions += version;
    status->version_min = f == 0 || version < status->version_min ? version : status->version_min;
    status->version_max = version > status->version_max ? version : status->version_max;
    status->anchors_known &= sync_known(from->sync, f);
    digest_add(anchors, row->own.hash.byte, DIGEST_BYTES);
}

/* Halves of an even number of voters are well together, and neither can do without the other. */
static const char two_vote[] =
    "two islands vote: if one is lost, no round closes until it is back, and the other trains on alone. So that the "
    "run outlives the loss of either, let a third one in ({here} invite): an island, by dilococtl join TOKEN --data "
    "FILE, or a witness, by dilococtl join TOKEN --witness on any small machine: it votes and trains nothing";
static const char two_wait[] =
    "two islands vote: if one is lost, no round closes until it is back, and the other stands still and "
    "waits for it, as late = wait has it. So that the "
    "run outlives the loss of either, let a third one in ({here} invite): an island, by dilococtl join TOKEN --data "
    "FILE, or a witness, by dilococtl join TOKEN --witness on any small machine: it votes and trains nothing";
static const char halves_vote[] =
    "an even number of islands votes: if the line between two halves of them is cut, no round closes on either side. "
    "So that one side goes on, let a witness in ({here} invite, and dilococtl join TOKEN --witness on any small "
    "machine, which votes and trains nothing), or one more island";

static const char one_orders[] =
    "one island alone gives orders to the run: if it is lost for good, nobody can let others in, or shut them out, "
    "until a majority of those that vote has put another in its place. Let a second one give orders: dilococtl grant "
    "NAME, at the one that does";

static uint32_t operators(const struct view *view)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < view->count; i++)
        count += view->members[i].used && view->members[i].as.operates;
    return count;
}

static const char *advice_on_orders(const struct status *status)
{
    return status->islands >= 3 && operators(status->from->view) == 1 ? one_orders : "";
}

static const char *advice_on_voters(const struct status *status)
{
    const struct view *view = status->from->view;
    uint32_t voters = status->epoch.voters;
    for (uint32_t i = 0; i < view->count; i++)
        if (view->members[i].used && view->members[i].as.role == CONFIG_WITNESS)
            return "";
    if (voters == 0 || voters % 2 != 0)
        return "";
    if (voters > 2)
        return halves_vote;
    return status->from->spec->late == RUNSPEC_WAIT ? two_wait : two_vote;
}

/* At the pace of the run as it was lately; nobody trains: it does not come nearer. */
static double time_left_s(const struct status *status)
{
    const struct status_conf *from = status->from;
    uint64_t steps = runspec_length(from->spec), ms;
    bool trains = status->trainer.training;
    for (uint32_t i = 0; i < from->view->count; i++)
        trains |= status->peers[i].up && status->peers[i].training;
    if (!trains || status->pause.is || from->progress == NULL || status->furthest >= steps)
        return -1;
    ms = progress_steps_ms(from->progress, steps - status->furthest);
    return ms > 0 ? (double)ms / 1000 : -1;
}

/* Beside a witness one island may be enough, whoever else is away. */
static bool enough_copies(const struct status *status)
{
    const struct view *view = status->from->view;
    uint32_t keepers = 0, sure = 0, majority = status->epoch.voters / 2 + 1;
    for (uint32_t i = 0; i < view->count; i++) {
        const struct view_member *member = &view->members[i];
        if (!member->used || !member->as.voter || member->as.role == CONFIG_WITNESS)
            continue;
        keepers++;
        sure += status->peers[i].may_vote;
    }
    return sure >= (majority < keepers ? majority : keepers);
}

static void take_epoch(struct status *status)
{
    const struct status_conf *from = status->from;
    const struct membership *membership = from->membership;
    struct status_epoch *epoch = &status->epoch;
    uint64_t sealed_ms = membership_sealed_ms(membership), requested_ms = membership_requested_ms(membership);
    bool voter = from->view->members[from->view->self].as.voter;
    epoch->voters = membership_voters(membership, &epoch->voters_heard);
    epoch->votes = membership_votes(membership);
    for (uint32_t i = 0; i < from->view->count; i++)
        epoch->voters_sure += status->peers[i].may_vote;
    epoch->majority = epoch->voters_sure > epoch->voters / 2;
    epoch->shut_out = peers_shut_out(from->peers);
    epoch->founding = voter && vote_doubt(from->vote) == VOTE_FRESH;
    epoch->enough = enough_copies(status);
    epoch->doubt = voter && !epoch->votes ? vote_why(from->vote) : "";
    epoch->awaited = membership_awaited(membership);
    if (sealed_ms > 0 && status->now_ms > sealed_ms)
        epoch->sealed_ms = status->now_ms - sealed_ms;
    epoch->closing =
        epoch->sealed_ms > 0 && from->progress != NULL && progress_moved_ms(from->progress) > sealed_ms + APPLIED_MS;
    if (sealed_ms == 0 && requested_ms > 0 && status->now_ms > requested_ms)
        epoch->requested_ms = status->now_ms - requested_ms;
    epoch->unkept = membership_host_unkept(from->host);
    epoch->exposed = vote_exposed(from->vote);
    membership_host_waits(from->host, epoch->waits, sizeof epoch->waits);
    for (uint32_t at = 0; epoch->orders_count < STATUS_ORDERS_MAX &&
                          membership_pending(membership, &at, &epoch->orders[epoch->orders_count]);)
        epoch->orders_count++;
    as_typed_fill(advice_on_voters(status), epoch->advice, sizeof epoch->advice);
    as_typed_fill(advice_on_orders(status), epoch->orders_advice, sizeof epoch->orders_advice);
}

/* The loop's thread is the caller's; what is neither its own nor the jobs' is the links'. */
static void take_load(struct status *status)
{
    struct status_load *load = &status->load;
    double others_s;
    load->seconds = (double)env_process_cpu_ns() * 1e-9;
    load->loop_s = (double)env_thread_cpu_ns() * 1e-9;
    others_s = load->seconds - load->loop_s;
    for (int work = 0; work < JOBS_WORKS; work++) {
        load->jobs_s[work] = (double)status->rounds.cpu_ns[work] * 1e-9;
        others_s -= load->jobs_s[work];
    }
    load->links_s = others_s > 0 ? others_s : 0;
    load->cores = status->from->load != NULL ? load_cores(status->from->load) : 0;
    if (status->from->lag == NULL)
        return;
    load->lag_ms = lag_lately_ms(status->from->lag, status->now_ms);
    load->lag_ms_max = status->from->lag->most_ms;
}

/* The last order to pause, as far back as configurations are known here. */
static void take_pause(struct status *status)
{
    const struct config_log *config_log = status->from->configs->config_log;
    const struct config *config = config_log_last(config_log);
    struct status_pause *pause = &status->pause;
    pause->is = config->paused;
    for (; pause->is && config != NULL && pause->order == 0; config = config_log_at(config_log, config->epoch - 1))
        for (uint32_t i = 0; i < config->orders_count; i++) {
            if (config->orders[i].kind != ORDER_PAUSE)
                continue;
            snprintf(pause->by, sizeof pause->by, "%s", config_name_of(config, config->orders[i].signer));
            pause->order = config->orders[i].number;
        }
}

static enum err take(struct status *status)
{
    const struct status_conf *from = status->from;
    struct digest_state anchors;
    status->witness = view_is_witness(from->view);
    status->fragments_count = from->plan != NULL ? from->plan->plan->fragments_count : 0;
    TRY(mem_new(from->view->count, sizeof *status->peers, "the status", &status->peers));
    TRY(mem_new(status->fragments_count, sizeof *status->fragments, "the status", &status->fragments));
    TRY(mem_new(complaints_max(status), sizeof *status->complaints, "the status", &status->complaints));
    link_sample(from->link);
    status->deaf = link_deaf(from->link);
    status->phase = trainer_phase(from->trainer);
    status->trainer = trainer_info(from->trainer);
    status->ledger = ledger_stats(from->ledger);
    status->refused = peers_refused(from->peers);
    status->objects_sent_bytes = objects_sent_bytes(from->objects);
    status->objects_wasted_bytes = objects_wasted_bytes(from->objects);
    status->undialled = peers_undialled(from->peers);
    status->uplink_bits = objects_uplink_bits(from->objects);
    (void)peers_capped(from->peers, status->capped);
    status->islands_up = 1;
    if (from->rounds != NULL) {
        status->rounds = rounds_info(from->rounds);
        status->step = rounds_step(from->rounds);
    }
    if (from->recovers != NULL)
        status->recovery = recover_info(from->recovers->recover);
    take_load(status);
    for (uint32_t i = 0; i < from->view->count; i++)
        take_peer(status, i);
    take_epoch(status);
    take_pause(status);
    status->furthest = peers_furthest_said(from->peers, status->trainer.training ? status->trainer.step : 0);
    status->quorum = from->sync != NULL ? sync_quorum(from->sync) : 0;
    for (uint32_t i = 0; i < from->view->count; i++)
        status->contributors +=
            status->peers[i].member->as.role == CONFIG_OWNER || status->peers[i].member->as.role == CONFIG_CONTRIBUTOR;
    status->left_s = time_left_s(status);
    uint64_t moved_ms = objects_state_moved_ms(from->objects);
    status->arriving.still_ms = status->now_ms - (moved_ms > from->start_ms ? moved_ms : from->start_ms);
    status->anchors_known = status->fragments_count > 0;
    digest_begin(&anchors);
    for (uint32_t f = 0; f < status->fragments_count; f++)
        take_fragment(status, f, &anchors);
    status->anchors = digest_end(&anchors);
    for (uint32_t f = 0; f < status->fragments_count && status->trainer.waits_ms > 0; f++)
        if (attachment_stands(from->trainer->attachment, f)) {
            struct bitset blockers = complaints_blockers(status, f);
            bitset_add_all(&status->awaited, &blockers);
        }
    complaints_all(status);
    return ERR_OK;
}

enum err status_take(const struct status_conf *from, uint64_t now_ms, struct status *out)
{
    *out = (struct status){.from = from, .now_ms = now_ms};
    enum err err = take(out);
    if (err != ERR_OK)
        status_deinit(out);
    return err;
}

void status_deinit(struct status *status)
{
    mem_free(status->peers);
    mem_free(status->fragments);
    mem_free(status->complaints);
    *status = (struct status){.from = NULL};
}

void status_line(const struct status *status, char *line, size_t line_bytes)
{
    uint32_t first = 0;
    while (first < status->complaints_count && !complaint_is_event(status, first))
        first++;
    bool wrong = first < status->complaints_count;
    if (status->witness)
        snprintf(line, line_bytes, "witness, epoch %" PRIu64 "%s%s", status->from->view->epoch,
                 wrong ? "; degraded: " : "", wrong ? status->complaints[first].what : "");
    else
        snprintf(line, line_bytes, "step %" PRIu64 "/%" PRIu64 "%s%s%s",
                 status->trainer.training ? status->trainer.step : status->step, runspec_length(status->from->spec),
                 status->pause.is ? ", the run is paused" : "", wrong ? "; degraded: " : "",
                 wrong ? status->complaints[first].what : "");
}

/* ---- as JSON ---- */

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
            json_array_append_new(names, json_string(status->peers[i].member->as.name));
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
        const char *of = complaint_is_event(status, i) ? "" : complaint_name(status->complaints[complaint->of].code);
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
    return json_pack("{s:s, s:I, s:o, s:I, s:I, s:s, s:b, s:I}", "name", spec->name, "steps",
                     (json_int_t)runspec_length(spec), "id", hash_json(&spec->digest, true), "interval",
                     (json_int_t)spec->interval, "overlap", (json_int_t)spec->overlap, "codec", rules_codec_name(spec),
                     "error_feedback", spec->error_feedback, "quorum", (json_int_t)spec->quorum);
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

json_t *status_json_order(const struct membership_pending *pending)
{
    const struct order *order = pending->order;
    const char *about = order->kind == ORDER_ADMIT ? order->join.name : pending->about != NULL ? pending->about : "";
    char text[200];
    order_text(order, pending->about, text, sizeof text);
    json_t *row = json_pack("{s:I, s:s, s:s, s:s, s:s, s:b, s:I}", "number", (json_int_t)order->number, "by",
                            pending->by, "kind", order_kind_name(order->kind), "island", about, "text", text, "ours",
                            pending->ours, "for_ms", (json_int_t)pending->for_ms);
    if (pending->takes_approval) {
        json_object_set_new(row, "approvals", number(pending->approvals));
        json_object_set_new(row, "needed", number(pending->needed));
        json_object_set_new(row, "agreed", json_boolean(pending->agreed));
    }
    return row;
}

json_t *status_json_rekeys(const struct view *view)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < view->count; i++) {
        const struct config_member *as = &view->members[i].as;
        char next[IDENT_TEXT_BYTES];
        if (!view->members[i].used || !config_has_next(as))
            continue;
        ident_text(as->next_key, next);
        json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "island", as->name, "public_key",
                                              view->members[i].key_text, "next_key", next));
    }
    return list;
}

static json_t *orders_json(const struct status_epoch *epoch)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < epoch->orders_count; i++)
        json_array_append_new(list, status_json_order(&epoch->orders[i]));
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
    json_object_set_new(json, "requested_ms", number(epoch->requested_ms));
    json_object_set_new(json, "waits", json_string(epoch->waits));
    json_object_set_new(json, "advice", json_string(epoch->advice));
    json_object_set_new(json, "orders_advice", json_string(epoch->orders_advice));
    json_object_set_new(json, "orders", orders_json(epoch));
    json_object_set_new(json, "rekeys", status_json_rekeys(status->from->view));
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

static json_t *paused_json(const struct status_pause *pause)
{
    return pause->is ? json_pack("{s:s, s:I}", "by", pause->by, "order", (json_int_t)pause->order) : json_null();
}

json_t *status_json(const struct status *status)
{
    const struct status_conf *from = status->from;
    json_t *json =
        json_pack("{s:s, s:s, s:o, s:o, s:o}", "island", from->conf->name, "software", "diloco " DILOCO_VERSION, "run",
                  run_json(from->spec), "trainer", trainer_json(status), "degraded", complaints_json(status));
    json_object_set_new(json, "paused", paused_json(&status->pause));
    json_object_set_new(json, "role", json_string(config_role_name(from->view->members[from->view->self].as.role)));
    json_object_set_new(json, "catches_up", json_boolean(status->peers[from->view->self].catches_up));
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

static json_t *peer_json(const struct status_peer *peer, const struct view *view)
{
    const struct view_member *member = peer->member;
    json_t *row = json_pack("{s:s, s:s, s:s, s:I, s:b, s:b, s:s}", "name", member->as.name, "public_key",
                            member->key_text, "address", member->as.address, "uplink_bit_s",
                            (json_int_t)member->as.uplink, "self", peer->self, "up", peer->up, "note", peer->note);
    char next[IDENT_TEXT_BYTES] = "";
    if (config_has_next(&member->as))
        ident_text(member->as.next_key, next);
    json_object_set_new(row, "next_key", json_string(next));
    json_object_set_new(row, "fault", json_string(peer->fault));
    json_object_set_new(row, "id", json_integer(member->as.id));
    json_object_set_new(row, "role", json_string(config_role_name(member->as.role)));
    json_object_set_new(row, "catches_up", json_boolean(peer->catches_up));
    json_object_set_new(row, "voter", json_boolean(member->as.voter));
    json_object_set_new(row, "contributor", json_boolean(member->as.contributor));
    json_object_set_new(row, "operator", json_boolean(member->as.operates));
    json_object_set_new(row, "founder", json_boolean(member->as.id == view->founder));
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
    json_object_set_new(row, "turned_away", json_boolean(peer->turned_away));
    json_object_set_new(row, "claims_much", json_boolean(peer->claims_much));
    json_object_set_new(row, "missed", number(peer->missed));
    json_object_set_new(row, "unacknowledged", number(peer->unacknowledged_bytes));
    return row;
}

json_t *status_json_peers(const struct status *status)
{
    json_t *peers = json_array();
    for (uint32_t i = 0; i < status->from->view->count; i++)
        if (status->peers[i].member->used)
            json_array_append_new(peers, peer_json(&status->peers[i], status->from->view));
    return json_pack("{s:I, s:I, s:b, s:o}", "epoch", (json_int_t)status->from->view->epoch, "steps",
                     (json_int_t)runspec_length(status->from->spec), "paused", status->pause.is, "peers", peers);
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
