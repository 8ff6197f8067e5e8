#include "daemon/control/status.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/mem.h"
#include "daemon/peers/council.h"
#include "daemon/rules.h"

/* Per member at most so many complaints, and so many besides. */
enum { PER_MEMBER = 5, BESIDES = 16 };
/* When something that may pass is worth a complaint: rounds missed in a row; intervals a peer is behind; how long a
 * finishing trainer may stand still, and a training one; how long a stranger is remembered. */
enum { MISSED_TOLD = 3, INTERVALS_BEHIND = 2, FINISHING_TOLD_MS = 3000, STALLED_MS = 60000, STRANGER_MS = 60000 };
enum { TWINS_MS = 60000 };
/* Intervals without a round that closes; and what is no matter of intervals while they are short. */
enum { INTERVALS_BLOCKED = 3, BLOCKED_MS = 60000 };
/* Versions behind the newest: one is on its way in every round. */
enum { VERSIONS_BEHIND = 1 };

const char *complaint_name(enum complaint_code code)
{
    static const char *const names[COMPLAINT_CODES] = {
        [COMPLAINT_AWAY] = "away",
        [COMPLAINT_REFUSED] = "refused",
        [COMPLAINT_ALONE] = "alone",
        [COMPLAINT_STRANGER] = "stranger",
        [COMPLAINT_SLOW_PEER] = "slow-peer",
        [COMPLAINT_MISSED] = "missed",
        [COMPLAINT_WAITING] = "waiting",
        [COMPLAINT_BEHIND] = "behind",
        [COMPLAINT_REPAIR] = "repair",
        [COMPLAINT_DISK] = "disk",
        [COMPLAINT_RESTARTING] = "restarting",
        [COMPLAINT_STOPPED] = "stopped",
        [COMPLAINT_NOT_ATTACHED] = "not-attached",
        [COMPLAINT_STALLED] = "stalled",
        [COMPLAINT_OUTLIER] = "outlier",
        [COMPLAINT_RUNAWAY] = "runaway",
        [COMPLAINT_NAN] = "nan",
        [COMPLAINT_BLOCKED] = "blocked",
        [COMPLAINT_TWINS] = "twins",
        [COMPLAINT_DOUBT] = "doubt",
        [COMPLAINT_STATE_LOST] = "state-lost",
    };
    return (unsigned)code < COMPLAINT_CODES ? names[code] : "unknown";
}

/* ---- what is wrong ---- */

static size_t complaints_max(const struct status *status)
{
    return (size_t)PER_MEMBER * status->from->view->count + BESIDES;
}

static void complain(struct status *status, enum complaint_code code, const char *what, const char *remedy)
{
    assert(status->complaints_count < complaints_max(status));
    struct complaint *complaint = &status->complaints[status->complaints_count++];
    complaint->code = code;
    complaint->remedy = remedy;
    snprintf(complaint->what, sizeof complaint->what, "%s", what);
}

static void complain_of_peer(struct status *status, uint32_t i)
{
    const struct status_peer *peer = &status->peers[i];
    const struct view_member *member = peer->member;
    const char *note = peer->note;
    char text[400];
    if (note[0] == '\0' && member->address[0] == '\0')
        note = "no address is known here, so it has to dial us";
    const char *gap = note[0] != '\0' ? ": " : "";
    if (peer->heard)
        snprintf(text, sizeof text, "island %s was last heard of %.0f s ago%s%s", member->name, peer->heard_s, gap,
                 note);
    else
        snprintf(text, sizeof text, "island %s was not heard of yet%s%s", member->name, gap, note);
    if (peer->refused)
        complain(status, COMPLAINT_REFUSED, text,
                 "make the two configurations agree and restart the daemon that changed");
    else if (member->role == RECORD_OWNER)
        complain(status, COMPLAINT_AWAY, text,
                 "check its daemon, its address and the line; rounds wait for its shards");
    else
        complain(status, COMPLAINT_AWAY, text,
                 "check its daemon, its address and the line; rounds close without it, and it comes back by itself");
}

/* It trains on as if nothing were, so it would not be noticed. */
static void complain_doubt(struct status *status)
{
    const char *why = council_doubt(peers_council(status->from->peers));
    char text[400];
    if (why[0] == '\0')
        return;
    snprintf(text, sizeof text, "this disk is in doubt, and has no vote: %s", why);
    complain(status, COMPLAINT_DOUBT, text,
             "nothing to do unless it lasts: it votes again once most islands are here and know it again");
}

static void complain_peers(struct status *status)
{
    const struct view *view = status->from->view;
    for (uint32_t i = 0; i < view->count; i++)
        if (!status->peers[i].up)
            complain_of_peer(status, i);
    if (status->islands_up == 1 && view->count > 1)
        complain(status, COMPLAINT_ALONE, "this island is alone",
                 "no round can close; what it trains meanwhile goes out later");
}

static void complain_strangers(struct status *status)
{
    const struct peers_totals *totals = &status->totals;
    char text[400];
    if (totals->strangers == 0 || status->now_ms >= totals->stranger_ms + STRANGER_MS)
        return;
    snprintf(text, sizeof text, "a connection with unknown key %s was refused", totals->stranger);
    complain(status, COMPLAINT_STRANGER, text,
             "if it is an island of the run, its public_key here is not the one it uses");
}

/* Both are let in, and undo what the other says. */
static void complain_twins(struct status *status)
{
    for (uint32_t i = 0; i < status->from->view->count; i++) {
        char text[200];
        if (!status->peers[i].twins)
            continue;
        snprintf(text, sizeof text, "two machines speak with the key of island %s, in turn",
                 status->peers[i].member->name);
        complain(status, COMPLAINT_TWINS, text, "stop one of them; each island needs a key and a name of its own");
    }
}

/* With late = merge a fast island does not wait; it should be known that it runs ahead. */
static void complain_pace(struct status *status)
{
    uint64_t behind = INTERVALS_BEHIND * (uint64_t)status->from->spec->interval;
    for (uint32_t i = 0; i < status->from->view->count; i++) {
        const struct status_peer *peer = &status->peers[i];
        char text[200];
        bool both = status->trainer.training && peer->training;
        if (peer->self || !peer->up || !both || status->trainer.step <= peer->step + behind)
            continue;
        snprintf(text, sizeof text, "island %s is %" PRIu64 " steps behind this one", peer->member->name,
                 status->trainer.step - peer->step);
        complain(status, COMPLAINT_SLOW_PEER, text,
                 "rounds close at its pace; late = wait in the run spec keeps islands in step");
    }
}

/* With a quorum: work that is trained and not counted. */
static void complain_missed(struct status *status)
{
    for (uint32_t i = 0; i < status->from->view->count; i++) {
        const struct status_peer *peer = &status->peers[i];
        char text[200];
        if (peer->missed < MISSED_TOLD || !peer->too_late || !peer->up || peer->self)
            continue;
        snprintf(text, sizeof text, "the last %" PRIu64 " rounds of our shards closed without island %s", peer->missed,
                 peer->member->name);
        complain(status, COMPLAINT_MISSED, text,
                 "it comes later than [sync] grace allows; make grace longer, or look at its line");
    }
}

/* As an owner: whose contributions do not count as they came. */
static void complain_outliers(struct status *status)
{
    for (uint32_t i = 0; i < status->from->view->count; i++) {
        unsigned lately = status->peers[i].outliers_lately;
        char text[200];
        if (lately == 0)
            continue;
        snprintf(text, sizeof text, "of the last 8 contributions of island %s to our shards %u were outliers, and %s",
                 status->peers[i].member->name, lately,
                 status->from->spec->outliers == RUNSPEC_OUTLIERS_DROP ? "left out" : "scaled down");
        complain(status, COMPLAINT_OUTLIER, text, "look at its loss, its data and its learning rate");
    }
}

static void complain_waiting(struct status *status)
{
    struct bitset waiting = {{0}};
    char text[400] = "the trainer stands still until its last contributions are counted; it waits for";
    for (uint32_t f = 0; f < status->fragments_count; f++)
        bitset_add_all(&waiting, &status->fragments[f].waiting);
    bitset_remove(&waiting, status->from->view->self);
    if (status->phase != TRAINER_FINISHING || bitset_empty(&waiting) ||
        status->now_ms < status->trainer.report_ms + FINISHING_TOLD_MS)
        return;
    for (uint32_t i = 0; i < status->from->view->count; i++)
        if (bitset_has(&waiting, i))
            snprintf(text + strlen(text), sizeof text - strlen(text), " %s", status->peers[i].member->name);
    complain(status, COMPLAINT_WAITING, text,
             "see to those islands; or dilococtl leave --now, which gives the uncounted work up");
}

static void complain_fragments(struct status *status)
{
    uint32_t behind = 0, repairing = 0;
    char text[128];
    for (uint32_t f = 0; f < status->fragments_count; f++) {
        const struct status_fragment *fragment = &status->fragments[f];
        behind += fragment->own.version + VERSIONS_BEHIND < fragment->newest;
        repairing += fragment->state == SYNC_REPAIR;
    }
    if (behind > 0) {
        snprintf(text, sizeof text, "%" PRIu32 " fragments are more than one version behind", behind);
        complain(status, COMPLAINT_BEHIND, text, "they are being fetched; nothing to do unless it lasts");
    }
    if (repairing > 0) {
        snprintf(text, sizeof text, "%" PRIu32 " fragments are being repaired from other islands", repairing);
        complain(status, COMPLAINT_REPAIR, text, "if it happens again, test this machine's memory");
    }
}

/* Whom a round of the fragment that does not close waits for: those who take part, or may, and have not contributed;
 * or, if everybody has, the owners of parts that there is no result of; or else those who do not say that they hold
 * results that are here. */
static struct bitset blockers(const struct status *status, uint32_t f)
{
    const struct status_conf *from = status->from;
    const struct status_fragment *fragment = &status->fragments[f];
    uint64_t round = fragment->own.version + 1;
    struct bitset late = {{0}}, owners = {{0}};
    const struct chain_part *parts;
    uint32_t count = sync_parts(from->sync, f, &parts);
    for (uint32_t i = 0; i < from->view->count; i++) {
        const struct status_peer *peer = &status->peers[i];
        struct sync_peer_fragment said = peer->self ? fragment->own : sync_heard(from->sync, i, f);
        bool asked = peer->member->role == RECORD_OWNER || peer->member->role == RECORD_CONTRIBUTOR;
        if (asked && (peer->training || !peer->up) && said.contributed < round && said.abstained < round)
            bitset_add(&late, i);
    }
    for (uint32_t p = 0; p < count; p++) {
        struct digest digest;
        bool acknowledged;
        uint32_t owner = view_slot(from->view, parts[p].owner);
        if (owner != VIEW_NOBODY && !sync_held(from->sync, f, p, &digest, &acknowledged))
            bitset_add(&owners, owner);
    }
    if (bitset_empty(&owners))
        owners = sync_waiting_for(from->sync, f);
    if (bitset_empty(&owners)) /* all results are here and count, and the outer step is not taken */
        bitset_add(&owners, from->view->self);
    return bitset_empty(&late) ? owners : late;
}

/* Needs no cause: whatever keeps rounds from closing, here or elsewhere, shows on every island. */
static void complain_blocked(struct status *status)
{
    uint32_t count = 0, first = 0;
    char text[400];
    for (uint32_t f = status->fragments_count; f-- > 0;) {
        count += status->fragments[f].blocked;
        first = status->fragments[f].blocked ? f : first;
    }
    if (count == 0)
        return;
    if (count == status->fragments_count)
        snprintf(text, sizeof text, "no round has closed for %d intervals, and no anchor moves", INTERVALS_BLOCKED);
    else
        snprintf(text, sizeof text, "no round of %" PRIu32 " out of %" PRIu32 " fragments has closed for %d intervals",
                 count, status->fragments_count, INTERVALS_BLOCKED);
    struct bitset waited = blockers(status, first);
    snprintf(text + strlen(text), sizeof text - strlen(text), "; fragment %" PRIu32 " waits for", first);
    for (uint32_t i = 0; i < status->from->view->count; i++)
        if (bitset_has(&waited, i))
            snprintf(text + strlen(text), sizeof text - strlen(text), " %s", status->peers[i].member->name);
    complain(status, COMPLAINT_BLOCKED, text,
             "see what `dilococtl status` and the log say there; what is trained meanwhile goes out later");
}

/* Once, with the fragment that has grown most. */
static void complain_runaway(struct status *status)
{
    uint32_t most = 0;
    char text[200];
    for (uint32_t f = 1; f < status->fragments_count; f++)
        most = status->fragments[f].grown > status->fragments[most].grown ? f : most;
    if (status->fragments_count == 0 || status->fragments[most].grown == 0)
        return;
    snprintf(text, sizeof text, "the run diverges: fragment %" PRIu32 " of the anchor is %.3g times as large as it was",
             most, status->fragments[most].grown);
    complain(status, COMPLAINT_RUNAWAY, text,
             "stop the run, and begin again from an earlier anchor with lower learning rates or a finer codec");
}

static void complain_unattached(struct status *status)
{
    const struct trainer_info *trainer = &status->trainer;
    char text[200];
    if (status->phase == TRAINER_NONE)
        complain(status, COMPLAINT_NOT_ATTACHED, "no trainer is attached",
                 "start yours; it attaches through worker.sock");
    if (status->phase != TRAINER_STARTING || trainer->unattached_ms == 0 ||
        status->now_ms <= trainer->unattached_ms + STALLED_MS)
        return;
    snprintf(text, sizeof text, "the trainer (pid %" PRIu32 ") has not attached for %.0f s", trainer->pid,
             (double)(status->now_ms - trainer->unattached_ms) / 1000);
    complain(status, COMPLAINT_NOT_ATTACHED, text,
             "look for its message in the log; dilococtl leave --now ends it, and dilococtl join starts another");
}

static void complain_nan(struct status *status)
{
    const struct trainer_info *trainer = &status->trainer;
    char text[200];
    if (trainer->bad_fragments == 0)
        return;
    snprintf(text, sizeof text,
             "the last snapshots of %" PRIu32 " fragments hold NaN or Inf, %" PRIu64
             " times in a row; nothing of them is counted",
             trainer->bad_fragments, trainer->bad_most);
    complain(
        status, COMPLAINT_NAN, text,
        "the next anchor replaces them; if it lasts, lower the learning rate, or start the trainer anew: dilococtl "
        "leave --now, and join");
}

/* Whether the trainer should take steps, or be gone: one that waits for others' contributions may stand. */
static bool should_move(const struct status *status)
{
    bool waits = false;
    for (uint32_t f = 0; f < status->fragments_count; f++)
        waits |= !bitset_empty(&status->fragments[f].waiting);
    return status->phase == TRAINER_TRAINING || (status->phase == TRAINER_FINISHING && status->trainer.left && !waits);
}

static void complain_trainer(struct status *status)
{
    const struct trainer_info *trainer = &status->trainer;
    if (status->phase == TRAINER_RESTARTING)
        complain(status, COMPLAINT_RESTARTING, trainer->process_note, "read the trainer's message in the log");
    if (status->phase == TRAINER_STOPPED)
        complain(status, COMPLAINT_STOPPED, "no trainer is running", "start it with: dilococtl join");
    complain_unattached(status);
    complain_nan(status);
    if (should_move(status) && trainer->report_ms > 0 && status->now_ms > trainer->report_ms + STALLED_MS)
        complain(status, COMPLAINT_STALLED, "the trainer has not finished a step for over a minute",
                 "with late = wait it may stand waiting for a round, see `dilococtl fragments`; if it hangs, dilococtl "
                 "leave --now ends it");
}

static void complain_all(struct status *status)
{
    complain_peers(status);
    complain_doubt(status);
    complain_strangers(status);
    complain_twins(status);
    complain_pace(status);
    complain_missed(status);
    complain_outliers(status);
    complain_waiting(status);
    complain_fragments(status);
    complain_blocked(status);
    complain_runaway(status);
    if (status->ledger.lost)
        complain(status, COMPLAINT_STATE_LOST,
                 "the state folder was removed or replaced: what is saved now is lost when the daemon ends",
                 "stop the daemon, put the folder back if it was moved, and start it again");
    if (status->rounds.disk_note != NULL && status->rounds.disk_note[0] != '\0')
        complain(status, COMPLAINT_DISK, status->rounds.disk_note,
                 "free space in the state folder; it is tried again every two seconds");
    complain_trainer(status);
}

/* ---- taking it ---- */

static void take_self(struct status *status, struct status_peer *row)
{
    row->self = row->up = true;
    row->note = "";
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
    if (from->sync != NULL) {
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
    row->note = peer.note;
    row->twins = peer.twins_ms > 0 && status->now_ms < peer.twins_ms + TWINS_MS;
    row->trainer = wire_trainer_name(peer.trainer);
    row->training = peer.trainer == WIRE_TRAINER_TRAINING;
    row->step = peer.step;
    row->tokens = peer.tokens;
    row->loss = (double)peer.loss_milli / 1000;
    row->tokens_per_s = peer.tokens_per_s;
    row->rtt_ms = peer.rtt_ms;
    row->heard = peer.heard_ms > 0;
    row->heard_s = row->heard ? (double)(status->now_ms - peer.heard_ms) / 1000 : 0;
    row->sent_bytes = peer.sent;
    row->received_bytes = peer.received;
    row->unacknowledged_bytes = peer.unacknowledged;
    status->islands_up += peer.up;
    status->sent_bytes += peer.sent;
    status->received_bytes += peer.received;
}

/* A round that is under way has taken as long as all these intervals. */
static bool takes_too_long(const struct status *status, uint32_t f)
{
    const struct progress *progress = status->from->progress;
    if (progress == NULL)
        return false;
    uint64_t limit_ms = progress_steps_ms(progress, INTERVALS_BLOCKED * (uint64_t)status->from->spec->interval);
    return progress_waits_ms(progress, f) > (limit_ms > BLOCKED_MS ? limit_ms : BLOCKED_MS);
}

/* A round was due, and so many intervals after it have gone by. */
static bool is_overdue(const struct status *status, uint32_t f)
{
    const struct status_conf *from = status->from;
    const struct status_fragment *row = &status->fragments[f];
    uint64_t step = rounds_state(from->rounds, f)->step;
    bool closed_elsewhere = row->newest > row->own.version;
    /* The rest is worth computing where it may be so. */
    if (closed_elsewhere || status->furthest <= step + INTERVALS_BLOCKED * (uint64_t)from->spec->interval)
        return false;
    struct schedule schedule = rules_schedule(from->spec, status->fragments_count);
    for (int k = 0; k <= INTERVALS_BLOCKED; k++)
        step = schedule_next_due(&schedule, f, step);
    return status->furthest >= step;
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
                                    .feedback_cuts = replica_feedback_cuts(from->replica, f),
                                    .grown = rounds_grown(from->rounds, f)};
    row->blocked = takes_too_long(status, f) || is_overdue(status, f);
    uint64_t version = row->own.version;
    status->versions += version;
    status->version_min = f == 0 || version < status->version_min ? version : status->version_min;
    status->version_max = version > status->version_max ? version : status->version_max;
    status->anchors_known &= sync_known(from->sync, f);
    digest_add(anchors, row->own.hash.byte, DIGEST_BYTES);
}

static enum err take(struct status *status)
{
    const struct status_conf *from = status->from;
    struct digest_state anchors;
    status->fragments_count = from->plan != NULL ? from->plan->plan->fragments_count : 0;
    TRY(mem_new(from->view->count, sizeof *status->peers, "the status", &status->peers));
    TRY(mem_new(status->fragments_count, sizeof *status->fragments, "the status", &status->fragments));
    TRY(mem_new(complaints_max(status), sizeof *status->complaints, "the status", &status->complaints));
    peers_sample(from->peers);
    status->phase = trainer_phase(from->trainer);
    status->trainer = trainer_info(from->trainer);
    status->ledger = ledger_stats(from->ledger);
    status->totals = peers_totals(from->peers);
    status->uplink_bits = peers_uplink_bits(from->peers);
    status->islands_up = 1;
    if (from->rounds != NULL) {
        status->rounds = rounds_info(from->rounds);
        status->step = rounds_step(from->rounds);
    }
    for (uint32_t i = 0; i < from->view->count; i++)
        take_peer(status, i);
    status->furthest = peers_furthest_said(from->peers, status->trainer.training ? status->trainer.step : 0);
    status->anchors_known = status->fragments_count > 0;
    digest_begin(&anchors);
    for (uint32_t f = 0; f < status->fragments_count; f++)
        take_fragment(status, f, &anchors);
    status->anchors = digest_end(&anchors);
    complain_all(status);
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
    bool wrong = status->complaints_count > 0;
    snprintf(line, line_bytes, "step %" PRIu64 "/%" PRId64 "%s%s",
             status->trainer.training ? status->trainer.step : status->step, status->from->spec->steps,
             wrong ? "; degraded: " : "", wrong ? status->complaints[0].what : "");
}
