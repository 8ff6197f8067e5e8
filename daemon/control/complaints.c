/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control/complaints.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/human.h"
#include "daemon/as_typed.h"
#include "daemon/peers/gate.h"

/* Per member at most so many complaints, and so many besides. */
enum { PER_MEMBER = 6, BESIDES = 24 };
/* When something that may pass is worth a complaint: rounds missed in a row; intervals a peer is behind; how long a
 * finishing trainer may stand still, and a training one; how long a stranger is remembered. */
enum {
    MISSED_TOLD = 3,
    INTERVALS_BEHIND = 2,
    FINISHING_TOLD_MS = 3000,
    STANDING_TOLD_MS = 3000,
    STALLED_MS = 60000,
    STRANGER_MS = 60000
};
/* So long it may take to decide an epoch. */
enum { SEALED_MS = 2000, WISHED_MS = 10000 };
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
        [COMPLAINT_STATE_LOST] = "state-lost",
        [COMPLAINT_LOST] = "lost",
        [COMPLAINT_APART] = "apart",
        [COMPLAINT_NO_MAJORITY] = "no-majority",
        [COMPLAINT_SEALED] = "sealed",
        [COMPLAINT_DOUBT] = "doubt",
        [COMPLAINT_ROSTER] = "roster",
        [COMPLAINT_FAULT] = "fault",
        [COMPLAINT_NOT_ADMITTED] = "not-admitted",
        [COMPLAINT_NO_PART] = "no-part",
    };
    return (unsigned)code < COMPLAINT_CODES ? names[code] : "unknown";
}

/* ---- what is wrong ---- */

size_t complaints_max(const struct status *status)
{
    return (size_t)PER_MEMBER * status->from->view->count + BESIDES;
}

/* In the remedy, {here} is what a command of this island begins with. */
static void complain(struct status *status, enum complaint_code code, const char *what, const char *remedy)
{
    assert(status->complaints_count < complaints_max(status));
    struct complaint *complaint = &status->complaints[status->complaints_count++];
    complaint->code = code;
    snprintf(complaint->what, sizeof complaint->what, "%s", what);
    as_typed_fill(remedy, complaint->remedy, sizeof complaint->remedy);
}

/* When and how it was last heard, behind `what`. */
static void tell_of_peer(const struct status_peer *peer, char *text, size_t text_bytes)
{
    const struct view_member *member = peer->member;
    const char *note = peer->note;
    if (note[0] == '\0' && member->address[0] == '\0')
        note = "no address is known here, so it has to dial us";
    const char *gap = note[0] != '\0' ? ": " : "";
    if (peer->heard)
        snprintf(text, text_bytes, "island %s was last heard of %.0f s ago%s%s", member->name, peer->heard_s, gap,
                 note);
    else
        snprintf(text, text_bytes, "island %s was not heard of yet%s%s", member->name, gap, note);
}

/* Whether nothing moves: no round closes, and nobody can be taken for lost. */
static bool all_stands(const struct status *status)
{
    return !status->epoch.majority && !status->epoch.enough;
}

static const char *remedy_for_away(const struct status *status, const struct status_peer *peer)
{
    unsigned role = peer->member->role;
    if (status->epoch.unmet)
        return "check its daemon, its address and the line: the first round closes when all that vote have met once";
    if (all_stands(status) && peer->member->voter)
        return "check its daemon, its address and the line: so few of those that vote are here, or sure of their "
               "disks, that nobody can be taken for lost, and rounds stand until a majority is back";
    if (role == RECORD_WITNESS)
        return "check its daemon, its address and the line: rounds go on without the witness, but if an island is lost "
               "meanwhile, they stop until either is back";
    if (role == RECORD_OWNER)
        return "check its daemon, its address and the line; rounds wait for its shards, until a majority of those that "
               "vote takes it for lost";
    return "check its daemon, its address and the line";
}

static void complain_of_peer(struct status *status, uint32_t i)
{
    const struct status_peer *peer = &status->peers[i];
    char text[400];
    tell_of_peer(peer, text, sizeof text);
    if (peer->unadmitted) {
        complain(status, COMPLAINT_REFUSED, text,
                 "it may not know the newest record yet; if it lasts, compare the keys that dilococtl peers shows on "
                 "both");
    } else if (peer->refused) {
        complain(status, COMPLAINT_REFUSED, text,
                 "make the two configurations agree and restart the daemon that changed");
    } else if (peer->member->role == RECORD_AWAY) {
        snprintf(text, sizeof text, "island %s is lost%s", peer->member->name,
                 all_stands(status) ? "" : ": the run goes on without it");
        complain(status, COMPLAINT_LOST, text,
                 "start its daemon, or mend its line: it comes back by itself, and takes part again");
    } else {
        complain(status, COMPLAINT_AWAY, text, remedy_for_away(status, peer));
    }
}

/* A majority hears both. */
static void complain_apart(struct status *status, uint32_t i)
{
    const struct status_peer *peer = &status->peers[i];
    char text[400];
    snprintf(text, sizeof text, "%s: %s stands back, and the run goes on", peer->apart,
             peer->self ? "this one" : peer->member->name);
    complain(
        status, COMPLAINT_APART, text,
        peer->apart_by_line
            ? "mend the line between them, or give one an address that the other can dial: then both take part again"
            : "look at its daemon, disk and memory: when it makes results, both take part again");
}

/* Whoever is away, or does not talk, has nothing to do with it then: they may be fine together, without us. */
static void complain_shut_out(struct status *status)
{
    uint32_t unadmitted = 0;
    char text[200];
    for (uint32_t i = 0; i < status->from->view->count; i++)
        unadmitted += status->peers[i].unadmitted;
    snprintf(text, sizeof text, "%" PRIu32 " of the %" PRIu32 " other islands do not know this island's key",
             unadmitted, status->islands - 1);
    complain(status, COMPLAINT_NOT_ADMITTED, text,
             "it was probably revoked; if so: {here} reset, then join with a new invitation of another island; else "
             "compare the keys that dilococtl peers shows here and there");
}

static bool waits(const struct status *status)
{
    return status->from->spec->late == RUNSPEC_WAIT;
}

static void complain_peers(struct status *status)
{
    const struct view *view = status->from->view;
    if (status->epoch.shut_out) {
        complain_shut_out(status);
        return;
    }
    for (uint32_t i = 0; i < view->count; i++)
        if (view->members[i].used && status->peers[i].apart_from != NULL)
            complain_apart(status, i);
        else if (view->members[i].used && !status->peers[i].up && !status->peers[i].drained)
            complain_of_peer(status, i);
    if (status->islands_up == 1 && status->islands - status->islands_drained > 1)
        complain(status, COMPLAINT_ALONE, "this island is alone",
                 status->witness ? "check this machine's line"
                 : waits(status)
                     ? "it trains until a round is due, and then waits for the others, as late = wait has it"
                     : "what it trains meanwhile is not lost");
}

static bool has_drained(const struct status *status)
{
    return status->peers[status->from->view->self].drained && peers_gate(status->from->peers)->draining;
}

/* Who stands back since a line is cut is told so in other words. */
static void complain_no_part(struct status *status)
{
    const struct view *view = status->from->view;
    const struct status_peer *self = &status->peers[view->self];
    char text[200];
    if (has_drained(status)) {
        complain(status, COMPLAINT_NO_PART, "this island has left the run: it drained, and owns nothing",
                 "{here} join to take part again, or {here} stop: nobody waits for it");
        return;
    }
    if (self->member->role != RECORD_AWAY || self->apart_from != NULL || status->epoch.shut_out)
        return;
    snprintf(text, sizeof text, "this island takes no part: by the record of epoch %" PRIu64 " it was lost or evicted",
             view->epoch);
    complain(status, COMPLAINT_NO_PART, text,
             "it comes back by itself when it has caught up, and what it trains meanwhile is merged then; if it lasts, "
             "see what dilococtl status says on the others");
}

/* Appends the names of those that vote and are not heard. */
static void add_missing(const struct status *status, char *text, size_t text_bytes)
{
    for (uint32_t i = 0; i < status->from->view->count; i++) {
        const struct status_peer *peer = &status->peers[i];
        if (peer->member->used && peer->member->voter && !peer->up)
            snprintf(text + strlen(text), text_bytes - strlen(text), " %s", peer->member->name);
    }
}

/* How many of those that are missing have to come back, which may be all: with fewer than a majority of disks that are
 * not in doubt, only all voters together can go on (docs/PROTOCOL.md, 9, rule 9). */
static void tell_who_is_missing(const struct status *status, char *text, size_t text_bytes)
{
    const struct status_epoch *epoch = &status->epoch;
    uint32_t missing = epoch->voters - epoch->voters_heard, needed = epoch->voters / 2 + 1 - epoch->voters_sure;
    size_t at = strlen(text);
    if (missing == 1)
        snprintf(text + at, text_bytes - at, ": no round closes until it is back:");
    else if (needed == 1)
        snprintf(text + at, text_bytes - at, ": no round closes until one of these is back:");
    else if (needed < missing)
        snprintf(text + at, text_bytes - at, ": no round closes until %" PRIu32 " of these are back:", needed);
    else
        snprintf(text + at, text_bytes - at, ": no round closes until all of these are back:");
    add_missing(status, text, text_bytes);
}

/* A majority is heard, and too many of them have disks that are in doubt. */
static void complain_doubts(struct status *status)
{
    const struct status_epoch *epoch = &status->epoch;
    char text[400];
    if (epoch->unmet || epoch->enough) /* that is advised; or the witness is named anew in a moment */
        return;
    snprintf(text, sizeof text,
             "%" PRIu32 " of the %" PRIu32 " islands that vote are heard, but the disks of %" PRIu32
             " are in doubt, so the others are no majority",
             epoch->voters_heard, epoch->voters, epoch->voters_heard - epoch->voters_sure);
    if (epoch->voters_heard == epoch->voters) {
        complain(status, COMPLAINT_NO_MAJORITY, text,
                 "nothing to do: all are here, tell each other what they hold, and vote again in some seconds");
        return;
    }
    tell_who_is_missing(status, text, sizeof text);
    complain(status, COMPLAINT_NO_MAJORITY, text,
             "bring them back, with the disks that they had: what was promised is known only to enough of them "
             "together; nothing that is trained meanwhile is lost");
}

static void complain_majority(struct status *status)
{
    const struct status_epoch *epoch = &status->epoch;
    char text[400];
    if (epoch->majority || epoch->shut_out)
        return;
    if (epoch->voters_heard > epoch->voters / 2) {
        complain_doubts(status);
        return;
    }
    if (epoch->enough) {
        snprintf(text, sizeof text,
                 "%" PRIu32 " of the %" PRIu32 " that vote are heard, no majority: rounds close, but nobody can be let "
                 "in again",
                 epoch->voters_heard, epoch->voters);
        complain(status, COMPLAINT_NO_MAJORITY, text, "start the witness's daemon, or mend its line");
        return;
    }
    snprintf(text, sizeof text, "%" PRIu32 " of the %" PRIu32 " islands that vote are heard, no majority",
             epoch->voters_heard, epoch->voters);
    tell_who_is_missing(status, text, sizeof text);
    complain(status, COMPLAINT_NO_MAJORITY, text,
             status->witness ? "see to the islands: nothing is lost, and rounds go on when they are back"
             : waits(status) ? "training stands still until they are back, as late = wait has it"
                             : "training goes on alone, and nothing of it is lost: it is merged when they are back");
}

static const char *remedy_for_doubt(const struct status *status)
{
    const struct status_epoch *epoch = &status->epoch;
    if (!epoch->majority && epoch->voters_heard < epoch->voters)
        return "see to those that are missing: too few are sure of their disks to name this one anew, so it votes "
               "again when a majority that is, or all that vote, are here";
    return status->witness ? "nothing to do: it votes again from the next epoch on"
                           : "nothing to do: it trains and contributes, and votes again from the next epoch on";
}

/* The next record is long in coming; rounds close meanwhile unless this island is sealed. */
static void complain_next_epoch(struct status *status)
{
    const struct status_epoch *epoch = &status->epoch;
    bool closing = epoch->closing || epoch->sealed_ms == 0;
    char text[400];
    if (epoch->sealed_ms <= SEALED_MS && epoch->wished_ms <= WISHED_MS)
        return;
    snprintf(text, sizeof text, "%s for %.0f s; it waits for %s",
             closing ? "a change of who takes part is wished, and not decided" : "the next epoch is being decided",
             (double)(epoch->sealed_ms > 0 ? epoch->sealed_ms : epoch->wished_ms) / 1000, epoch->waits);
    complain(status, COMPLAINT_SEALED, text,
             closing ? "rounds close all the same; see to those that it waits for"
                     : "rounds go on when it is decided; see to those that it waits for");
}

/* The record that rules, the next one, and whether this island has a say in it. */
static void complain_epoch(struct status *status)
{
    const struct status_epoch *epoch = &status->epoch;
    char text[400];
    complain_next_epoch(status);
    if (epoch->unkept[0] != '\0') {
        snprintf(text, sizeof text, "what is decided cannot be kept: %s", epoch->unkept);
        complain(status, COMPLAINT_DISK, text, "it is tried again, and no change is decided here until then");
    }
    if (epoch->doubt[0] != '\0') {
        snprintf(text, sizeof text, "this island has no vote, for its disk is in doubt: %s", epoch->doubt);
        complain(status, COMPLAINT_DOUBT, text, remedy_for_doubt(status));
    }
    if (epoch->difference[0] != '\0')
        complain(status, COMPLAINT_ROSTER, epoch->difference,
                 "take the section out of the configuration, or make it agree with {here} peers");
}

static void complain_strangers(struct status *status)
{
    const struct peers_totals *totals = &status->totals;
    char text[400];
    if (totals->strangers == 0 || status->now_ms >= totals->stranger_ms + STRANGER_MS)
        return;
    snprintf(text, sizeof text, "a connection with unknown key %s was refused", totals->stranger);
    complain(status, COMPLAINT_STRANGER, text,
             "if it is an island of the run, it was revoked, and comes in again by dilococtl reset there and a new "
             "invitation, or it uses another key than dilococtl peers shows");
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

/* It lies, or its machine is broken: people have to look. */
static void complain_faults(struct status *status)
{
    for (uint32_t i = 0; i < status->from->view->count; i++) {
        const struct status_peer *peer = &status->peers[i];
        char text[300];
        if (!peer->member->used || peer->self || peer->fault[0] == '\0')
            continue;
        snprintf(text, sizeof text, "island %s: %s", peer->member->name, peer->fault);
        complain(status, COMPLAINT_FAULT, text,
                 "look at its daemon, disk and memory; {here} revoke takes its key off the roster");
    }
}

/* With late = merge a fast island does not wait; it should be known that it runs ahead: of where the other was when it
 * last said so, since steps may be many in the time from one heartbeat to the next. */
static void complain_pace(struct status *status)
{
    uint64_t behind = INTERVALS_BEHIND * (uint64_t)status->from->spec->interval;
    for (uint32_t i = 0; i < status->from->view->count; i++) {
        const struct status_peer *peer = &status->peers[i];
        char text[200];
        bool both = status->trainer.training && peer->training;
        if (peer->self || !peer->up || !both || peer->own_step <= peer->step + behind)
            continue;
        snprintf(text, sizeof text, "island %s is %" PRIu64 " steps behind this one", peer->member->name,
                 peer->own_step - peer->step);
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

/* With late = wait it does so in every round, for a moment. */
static void complain_standing(struct status *status)
{
    char text[400] = "the trainer stands still, as late = wait has it, until a round closes that waits for",
         since[HUMAN_BYTES];
    if (status->trainer.waits_ms == 0 || status->now_ms < status->trainer.waits_ms + STANDING_TOLD_MS)
        return;
    for (uint32_t i = 0; i < status->from->view->count; i++)
        if (bitset_has(&status->awaited, i))
            snprintf(text + strlen(text), sizeof text - strlen(text), " %s", status->peers[i].member->name);
    human_duration((double)((status->now_ms - status->trainer.waits_ms) / 1000), since);
    snprintf(text + strlen(text), sizeof text - strlen(text), ", for %s", since);
    complain(
        status, COMPLAINT_WAITING, text,
        "see to those islands: it goes on when they are back, or the run goes on without them; late = merge in the "
        "run spec would not wait");
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
             "see to those islands; or {here} leave --now (drain --now, where it drains), which gives the "
             "uncounted work up");
}

static void complain_fragments(struct status *status)
{
    uint32_t behind = 0, repairing = 0;
    char text[128];
    for (uint32_t f = 0; f < status->fragments_count && !status->witness; f++) {
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

/* Owners of parts of the next version that there is no result of here; of one that has no state yet, all. */
static struct bitset without_result(const struct status *status, uint32_t f)
{
    const struct status_conf *from = status->from;
    struct bitset owners = {{0}};
    struct chain_part usual[CHAIN_PARTS_MAX];
    const struct chain_part *parts;
    uint32_t count = sync_parts(from->sync, f, &parts);
    bool known = count > 0;
    if (!known) {
        count = parts_of(from->parts, f, status->fragments[f].own.version + 1, usual);
        parts = usual;
    }
    for (uint32_t p = 0; p < count; p++) {
        struct digest digest;
        bool acknowledged;
        uint32_t owner = view_slot(from->view, parts[p].owner);
        if (owner != VIEW_NOBODY && !(known && sync_held(from->sync, f, p, &digest, &acknowledged)))
            bitset_add(&owners, owner);
    }
    return owners;
}

struct bitset complaints_blockers(const struct status *status, uint32_t f)
{
    const struct status_conf *from = status->from;
    const struct status_fragment *fragment = &status->fragments[f];
    uint64_t round = fragment->own.version + 1;
    struct bitset late = {{0}}, owners;
    for (uint32_t i = 0; i < from->view->count; i++) {
        const struct status_peer *peer = &status->peers[i];
        struct sync_peer_fragment said = peer->self ? fragment->own : sync_heard(from->sync, i, f);
        bool asked = peer->member->role == RECORD_OWNER || peer->member->role == RECORD_CONTRIBUTOR;
        if (asked && (peer->training || !peer->up) && said.contributed < round && said.abstained < round)
            bitset_add(&late, i);
    }
    owners = without_result(status, f);
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
        snprintf(text, sizeof text, "no round has closed for %d intervals, and no anchor moves",
                 STATUS_INTERVALS_BLOCKED);
    else
        snprintf(text, sizeof text, "no round of %" PRIu32 " out of %" PRIu32 " fragments has closed for %d intervals",
                 count, status->fragments_count, STATUS_INTERVALS_BLOCKED);
    struct bitset waited = complaints_blockers(status, first);
    snprintf(text + strlen(text), sizeof text - strlen(text), "; fragment %" PRIu32 " waits for", first);
    for (uint32_t i = 0; i < status->from->view->count; i++)
        if (bitset_has(&waited, i))
            snprintf(text + strlen(text), sizeof text - strlen(text), " %s", status->peers[i].member->name);
    complain(status, COMPLAINT_BLOCKED, text,
             status->epoch.shut_out
                 ? "no round closes here any more unless the others let this island in"
                 : "see what `dilococtl status` and the log say there; what is trained meanwhile goes out later");
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
             "look for its message in the log; {here} leave --now ends it, and {here} join starts another");
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
    complain(status, COMPLAINT_NAN, text,
             "the next anchor replaces them; if it lasts, lower the learning rate, or start the trainer anew: {here} "
             "leave --now, and join");
}

/* Whether the trainer should take steps, or be gone: one that waits for others' contributions may stand. */
static bool should_move(const struct status *status)
{
    bool waits = false;
    for (uint32_t f = 0; f < status->fragments_count; f++)
        waits |= !bitset_empty(&status->fragments[f].waiting);
    if (status->trainer.waits_ms > 0)
        return false;
    return status->phase == TRAINER_TRAINING || (status->phase == TRAINER_FINISHING && status->trainer.left && !waits);
}

static void complain_trainer(struct status *status)
{
    const struct trainer_info *trainer = &status->trainer;
    if (status->witness)
        return;
    if (status->phase == TRAINER_RESTARTING)
        complain(status, COMPLAINT_RESTARTING, trainer->process_note, "read what it printed: {here} logs --trainer");
    if (status->phase == TRAINER_STOPPED && !has_drained(status))
        complain(status, COMPLAINT_STOPPED, "no trainer is running", "start it with: {here} join");
    complain_unattached(status);
    complain_nan(status);
    uint64_t moved_ms = trainer->report_ms > 0 ? trainer->report_ms : trainer->ready_ms;
    if (should_move(status) && moved_ms > 0 && status->now_ms > moved_ms + STALLED_MS)
        complain(status, COMPLAINT_STALLED, "the trainer has not finished a step for over a minute",
                 "see what it says: {here} logs --trainer; if it hangs, {here} leave --now ends it, and so does the "
                 "time that [worker] hang states");
}

void complaints_all(struct status *status)
{
    complain_peers(status);
    complain_no_part(status);
    complain_majority(status);
    complain_epoch(status);
    complain_strangers(status);
    complain_twins(status);
    complain_faults(status);
    complain_pace(status);
    complain_missed(status);
    complain_outliers(status);
    complain_waiting(status);
    complain_standing(status);
    complain_fragments(status);
    complain_blocked(status);
    complain_runaway(status);
    if (status->ledger.lost)
        complain(status, COMPLAINT_STATE_LOST,
                 "the state folder was removed or replaced: what is saved now is lost when the daemon ends",
                 "stop the daemon, put the folder back if it was moved, and start it again");
    if (status->rounds.disk_note != NULL && status->rounds.disk_note[0] != '\0')
        complain(status, COMPLAINT_DISK, status->rounds.disk_note, "it is tried again every two seconds");
    complain_trainer(status);
}
