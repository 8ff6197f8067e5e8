/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control/status.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/env.h"
#include "common/mem.h"
#include "daemon/as_typed.h"
#include "daemon/control/complaints.h"
#include "daemon/membership/membership_host.h"
#include "daemon/rounds/apply.h"
#include "daemon/rounds/recover.h"
#include "daemon/rules.h"
#include "daemon/trainer/attachment.h"

enum { TWINS_MS = 60000 };
/* What is no matter of intervals while they are short. */
enum { BLOCKED_MS = 60000, STANDS_MS = 5000 };
/* What was certified before a seal may be applied so long after it. */
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
    uint32_t apart = membership_apart_from(from->membership, i);
    row->apart_from = apart != VIEW_NOBODY ? &from->view->members[apart] : NULL;
    if (row->apart_from != NULL)
        row->apart_by_line = membership_apart_text(from->membership, i, apart, row->apart, sizeof row->apart);
    row->disk_fails = membership_disk_fails(from->membership, i);
    row->drained = config_store_drained(from->configs, row->member->id);
    row->may_vote = membership_may_vote(from->membership, i);
    if (from->rounds != NULL) {
        row->missed = sync_missed(from->sync, i, &row->too_late);
        row->outliers = rounds_outliers(from->rounds, i, &row->outliers_lately);
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
    row->alike = from->alike != NULL ? alike_count(from->alike, from->view, i) : 0;
    row->twins = peer.twins_ms > 0 && status->now_ms < peer.twins_ms + TWINS_MS;
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

static void take_arriving(struct status *status, uint32_t f)
{
    const struct status_conf *from = status->from;
    struct status_arriving *arriving = &status->arriving;
    bool known = sync_known(from->sync, f);
    uint64_t due = replica_state_bytes(from->replica, f);
    arriving->fragments += !known;
    arriving->bytes += known ? due : objects_state_bytes(from->objects, f);
    arriving->bytes_due += due;
    for (uint32_t i = 0; i < from->view->count && !known; i++)
        arriving->offered = arriving->offered || (sync_up(from->sync, i) && sync_heard(from->sync, i, f).hash_known);
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
        row->blocked = takes_too_long(status, f) || is_overdue(status, f);
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

static const char *advice(const struct status *status)
{
    const struct view *view = status->from->view;
    uint32_t voters = status->epoch.voters;
    for (uint32_t i = 0; i < view->count; i++)
        if (view->members[i].used && view->members[i].role == RECORD_WITNESS)
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
    uint64_t steps = (uint64_t)from->spec->steps, ms;
    bool trains = status->trainer.training;
    for (uint32_t i = 0; i < from->view->count; i++)
        trains |= status->peers[i].up && status->peers[i].training;
    if (!trains || from->progress == NULL || status->furthest >= steps)
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
        if (!member->used || !member->voter || member->role == RECORD_WITNESS)
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
    uint64_t sealed_ms = membership_sealed_ms(membership), wished_ms = membership_wished_ms(membership);
    bool voter = from->view->members[from->view->self].voter;
    epoch->voters = membership_voters(membership, &epoch->voters_heard);
    epoch->votes = membership_votes(membership);
    for (uint32_t i = 0; i < from->view->count; i++)
        epoch->voters_sure += status->peers[i].may_vote;
    epoch->majority = epoch->voters_sure > epoch->voters / 2;
    epoch->shut_out = peers_shut_out(from->peers);
    epoch->founding = voter && vote_doubt(from->vote) == VOTE_FRESH;
    epoch->enough = enough_copies(status);
    epoch->doubt = voter && !epoch->votes ? vote_why(from->vote) : "";
    if (sealed_ms > 0 && status->now_ms > sealed_ms)
        epoch->sealed_ms = status->now_ms - sealed_ms;
    epoch->closing =
        epoch->sealed_ms > 0 && from->progress != NULL && progress_moved_ms(from->progress) > sealed_ms + APPLIED_MS;
    if (sealed_ms == 0 && wished_ms > 0 && status->now_ms > wished_ms)
        epoch->wished_ms = status->now_ms - wished_ms;
    epoch->unkept = membership_host_unkept(from->host);
    epoch->exposed = vote_exposed(from->vote);
    membership_host_waits(from->host, epoch->waits, sizeof epoch->waits);
    for (uint32_t at = 0; epoch->wishes_count < STATUS_WISHES_MAX &&
                          membership_pending(membership, &at, &epoch->wishes[epoch->wishes_count]);)
        epoch->wishes_count++;
    as_typed_fill(advice(status), epoch->advice, sizeof epoch->advice);
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
    status->furthest = peers_furthest_said(from->peers, status->trainer.training ? status->trainer.step : 0);
    status->quorum = from->sync != NULL ? sync_quorum(from->sync) : 0;
    for (uint32_t i = 0; i < from->view->count; i++)
        status->contributors +=
            status->peers[i].member->role == RECORD_OWNER || status->peers[i].member->role == RECORD_CONTRIBUTOR;
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
    while (first < status->complaints_count && !complaints_is_event(status, first))
        first++;
    bool wrong = first < status->complaints_count;
    if (status->witness)
        snprintf(line, line_bytes, "witness, epoch %" PRIu64 "%s%s", status->from->view->epoch,
                 wrong ? "; degraded: " : "", wrong ? status->complaints[first].what : "");
    else
        snprintf(line, line_bytes, "step %" PRIu64 "/%" PRId64 "%s%s",
                 status->trainer.training ? status->trainer.step : status->step, status->from->spec->steps,
                 wrong ? "; degraded: " : "", wrong ? status->complaints[first].what : "");
}
