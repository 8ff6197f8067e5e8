/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control/complaints_peers.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/bitset.h"
#include "daemon/control/complaints_core.h"

/* When something that may pass is worth a complaint: rounds missed in a row; intervals a peer is behind; how long a
 * stranger is remembered. */
enum { MISSED_TOLD = 3, INTERVALS_BEHIND = 2, STRANGER_MS = 60000 };
/* Of so many that are missing it is said since when. */
enum { MISSING_TOLD = 3 };
/* So long it may take to decide an epoch. */
enum { SEALED_MS = 2000, WISHED_MS = 10000 };

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
        complain_of(
            status, COMPLAINT_REFUSED, i, text,
            "it may not know the newest record yet; if it lasts, compare the keys that dilococtl peers shows on "
            "both");
    } else if (peer->refused) {
        complain_of(status, COMPLAINT_REFUSED, i, text,
                    "make the two configurations agree and restart the daemon that changed");
    } else if (peer->member->role == RECORD_AWAY) {
        snprintf(text, sizeof text, "island %s is lost%s", peer->member->name,
                 all_stands(status) ? "" : ": the run goes on without it");
        complain_of(status, COMPLAINT_LOST, i, text,
                    "start its daemon, or mend its line: it comes back by itself, and takes part again");
    } else {
        complain_of(status, COMPLAINT_AWAY, i, text, remedy_for_away(status, peer));
    }
}

/* A majority hears both. */
static void complain_apart(struct status *status, uint32_t i)
{
    const struct status_peer *peer = &status->peers[i];
    char text[400];
    snprintf(text, sizeof text, "%s: %s stands back, and the run goes on", peer->apart,
             peer->self ? "this one" : peer->member->name);
    complain_of(
        status, COMPLAINT_APART, i, text,
        peer->apart_by_line
            ? "mend the line between them, or give one an address that the other can dial: then both take part again"
            : "look at its daemon, disk and memory: when it makes results, both take part again");
}

static void complain_of_disk(struct status *status, uint32_t i)
{
    const struct status_peer *peer = &status->peers[i];
    char text[400];
    snprintf(text, sizeof text, "island %s says that its disk keeps nothing%s", peer->member->name,
             peer->member->role == RECORD_AWAY ? ": the run goes on without it" : "");
    complain_of(status, COMPLAINT_PEER_DISK, i, text,
                "its own status says why, and what to do there; it takes part again by itself");
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
    complain(status, COMPLAINT_NOT_ADMITTED, NULL, text,
             "it was probably revoked; if so: {here} reset, then join with a new invitation of another island; else "
             "compare the keys that dilococtl peers shows here and there");
}

/* Two that only contribute have nothing to say to each other: what they need comes from the owners. */
static bool is_needed(const struct view *view, uint32_t i)
{
    const struct view_member *pair[] = {&view->members[view->self], &view->members[i]};
    for (size_t k = 0; k < 2; k++)
        if (pair[k]->voter || (pair[k]->role != RECORD_CONTRIBUTOR && pair[k]->role != RECORD_OBSERVER))
            return true;
    return false;
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
        else if (view->members[i].used && !status->peers[i].up && !status->peers[i].drained && is_needed(view, i))
            complain_of_peer(status, i);
        else if (view->members[i].used && status->peers[i].disk_fails)
            complain_of_disk(status, i);
    if (status->islands_up == 1 && status->islands - status->islands_drained > 1)
        complain(status, COMPLAINT_ALONE, NULL, "this island is alone",
                 status->witness ? "check this machine's line"
                 : complaints_wait(status)
                     ? "it trains until a round is due, and then waits for the others, as late = wait has it"
                     : "what it trains meanwhile is not lost");
}

static struct bitset missing_voters(const struct status *status)
{
    struct bitset missing = {{0}};
    for (uint32_t i = 0; i < status->from->view->count; i++) {
        const struct status_peer *peer = &status->peers[i];
        if (peer->member->used && peer->member->voter && !peer->up)
            bitset_add(&missing, i);
    }
    return missing;
}

/* How many of those that are missing have to come back, which may be all: with fewer than a majority of disks that are
 * not in doubt, only all voters together can go on (docs/PROTOCOL.md, 9, rule 9). Of a few it says since when. */
static void tell_who_is_missing(const struct status *status, const struct bitset *missing, char *text,
                                size_t text_bytes)
{
    const struct status_epoch *epoch = &status->epoch;
    uint32_t count = bitset_count(missing), needed = epoch->voters / 2 + 1 - epoch->voters_sure;
    size_t at = strlen(text);
    if (needed >= count)
        snprintf(text + at, text_bytes - at, ": no round closes until");
    else if (needed == 1)
        snprintf(text + at, text_bytes - at, ": no round closes until one of");
    else
        snprintf(text + at, text_bytes - at, ": no round closes until %" PRIu32 " of", needed);
    complain_name(status, missing, text, text_bytes);
    at = strlen(text);
    snprintf(text + at, text_bytes - at, needed > 1 && count > 1 ? " are back" : " is back");
    for (uint32_t i = 0; i < status->from->view->count && count <= MISSING_TOLD; i++) {
        if (!bitset_has(missing, i))
            continue;
        at = strlen(text);
        snprintf(text + at, text_bytes - at, "; ");
        tell_of_peer(&status->peers[i], text + strlen(text), text_bytes - strlen(text));
    }
}

/* A majority is heard, and too many of them have disks that are in doubt. */
static void complain_doubts(struct status *status)
{
    const struct status_epoch *epoch = &status->epoch;
    const struct bitset missing = missing_voters(status);
    char text[COMPLAINT_BYTES];
    if (epoch->unmet || epoch->enough) /* that is advised; or the witness is named anew in a moment */
        return;
    snprintf(text, sizeof text,
             "%" PRIu32 " of the %" PRIu32 " islands that vote are heard, but the disks of %" PRIu32
             " are in doubt, so the others are no majority",
             epoch->voters_heard, epoch->voters, epoch->voters_heard - epoch->voters_sure);
    if (epoch->voters_heard == epoch->voters) {
        complain(status, COMPLAINT_NO_MAJORITY, &missing, text,
                 "nothing to do: all are here, tell each other what they hold, and vote again in some seconds");
        return;
    }
    tell_who_is_missing(status, &missing, text, sizeof text);
    complain(status, COMPLAINT_NO_MAJORITY, &missing, text,
             "bring them back, with the disks that they had: what was promised is known only to enough of them "
             "together; nothing that is trained meanwhile is lost");
}

/* An even number of voters has two halves, neither of which is a majority. */
static bool is_half(const struct status *status)
{
    const struct view *view = status->from->view;
    for (uint32_t i = 0; i < view->count; i++)
        if (view->members[i].used && view->members[i].role == RECORD_WITNESS)
            return false;
    return 2 * status->epoch.voters_heard == status->epoch.voters;
}

static void complain_minority(struct status *status)
{
    const struct status_epoch *epoch = &status->epoch;
    const struct bitset missing = missing_voters(status);
    char text[COMPLAINT_BYTES], remedy[400];
    snprintf(text, sizeof text, "%" PRIu32 " of the %" PRIu32 " islands that vote are heard, no majority",
             epoch->voters_heard, epoch->voters);
    tell_who_is_missing(status, &missing, text, sizeof text);
    snprintf(remedy, sizeof remedy, "%s%s",
             status->witness           ? "see to the islands: nothing is lost, and rounds go on when they are back"
             : complaints_wait(status) ? "training stands still until they are back, as late = wait has it"
                                       : "training goes on alone, and nothing of it is lost: it is merged when rounds "
                                         "close again",
             is_half(status) ? "; with a witness one half would go on ({here} status -v says more)" : "");
    complain(status, COMPLAINT_NO_MAJORITY, &missing, text, remedy);
}

static void complain_majority(struct status *status)
{
    const struct status_epoch *epoch = &status->epoch;
    const struct bitset missing = missing_voters(status);
    char text[COMPLAINT_BYTES];
    if (epoch->majority || epoch->shut_out)
        return;
    if (epoch->voters_heard > epoch->voters / 2) {
        complain_doubts(status);
    } else if (epoch->enough) {
        snprintf(text, sizeof text,
                 "%" PRIu32 " of the %" PRIu32 " that vote are heard, no majority: rounds close, but nobody can be let "
                 "in again",
                 epoch->voters_heard, epoch->voters);
        complain(status, COMPLAINT_NO_MAJORITY, &missing, text, "start the witness's daemon, or mend its line");
    } else {
        complain_minority(status);
    }
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
    complain(status, COMPLAINT_SEALED, NULL, text,
             closing ? "rounds close all the same; see to those that it waits for"
                     : "rounds go on when it is decided; see to those that it waits for");
}

static void complain_strangers(struct status *status)
{
    const struct peers_refused *refused = &status->refused;
    char text[400];
    if (refused->strangers == 0 || status->now_ms >= refused->stranger_ms + STRANGER_MS)
        return;
    snprintf(text, sizeof text, "a connection with unknown key %s was refused", refused->stranger);
    complain(status, COMPLAINT_STRANGER, NULL, text,
             "if it is an island of the run, it was revoked, and comes in again by dilococtl reset there and a new "
             "invitation, or it uses another key than dilococtl peers shows");
}

static void complain_newcomers(struct status *status)
{
    const struct peers_refused *refused = &status->refused;
    char text[400];
    if (refused->newcomer_ms == 0 || status->now_ms >= refused->newcomer_ms + STRANGER_MS)
        return;
    snprintf(text, sizeof text, "a newcomer with a token was refused: %s", refused->newcomer);
    complain(status, COMPLAINT_REFUSED, NULL, text, "install the same release on both; the token stays good");
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
        complain_of(status, COMPLAINT_TWINS, i, text,
                    "stop one of them; each island needs a key and a name of its own");
    }
}

/* A fixed seed on both: one of them adds nothing to the other. */
static void complain_alike(struct status *status)
{
    for (uint32_t i = 0; i < status->from->view->count; i++) {
        const struct status_peer *peer = &status->peers[i];
        char text[200];
        if (!peer->member->used || peer->alike < ALIKE_TOLD)
            continue;
        snprintf(text, sizeof text,
                 "this island and island %s train the same batches: in the last %" PRIu32
                 " reports their losses agree to six "
                 "digits",
                 peer->member->name, peer->alike);
        complain_of(status, COMPLAINT_SAME_BATCHES, i, text,
                    "give each island's generators a seed of their own: island.seed() in Python, diloco_seed() in C; "
                    "or data of its own");
    }
}

/* Only whose word is false loses its key; who is late or stuck has something to be mended. */
static const char *remedy_for_fault(enum peer_fault kind)
{
    switch (kind) {
    case PEER_FAULT_NONE: break;
    case PEER_FAULT_LATE:
        return "see what dilococtl status says there of its trainer, and at its line; what it trains is counted later";
    case PEER_FAULT_STUCK:
        return "see what dilococtl status says there, and at its disk and memory; it comes back by itself";
    case PEER_FAULT_FALSE: break;
    }
    return "look at its daemon, disk and memory; {here} revoke takes its key off the roster";
}

static void complain_faults(struct status *status)
{
    for (uint32_t i = 0; i < status->from->view->count; i++) {
        const struct status_peer *peer = &status->peers[i];
        char text[300];
        if (!peer->member->used || peer->self || peer->fault[0] == '\0')
            continue;
        snprintf(text, sizeof text, "island %s: %s", peer->member->name, peer->fault);
        complain_of(status, COMPLAINT_FAULT, i, text, remedy_for_fault(peer->fault_kind));
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
        complain_of(status, COMPLAINT_SLOW_PEER, i, text,
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
        complain_of(status, COMPLAINT_MISSED, i, text,
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
        snprintf(text, sizeof text, "of the last 8 contributions of island %s %u were outliers, and %s",
                 status->peers[i].member->name, lately,
                 status->from->spec->outliers == RUNSPEC_OUTLIERS_DROP ? "left out" : "scaled down");
        complain_of(status, COMPLAINT_OUTLIER, i, text, "look at its loss, its data and its learning rate");
    }
}

void complaints_peers(struct status *status)
{
    complain_peers(status);
    complain_majority(status);
    complain_next_epoch(status);
    complain_strangers(status);
    complain_newcomers(status);
    complain_twins(status);
    complain_faults(status);
    complain_alike(status);
    complain_pace(status);
    complain_missed(status);
    complain_outliers(status);
}
