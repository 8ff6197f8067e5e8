/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control/complaints.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/human.h"
#include "daemon/control/complaints_core.h"
#include "daemon/control/complaints_own.h"
#include "daemon/control/complaints_peers.h"

/* How long a finishing trainer may stand still, and one that waits as late = wait has it. */
enum { FINISHING_TOLD_MS = 3000, STANDING_TOLD_MS = 3000 };
/* Versions behind the newest: one is on its way in every round. */
enum { VERSIONS_BEHIND = 1 };
/* Until it is told that nothing comes of a state that is fetched. */
enum { ARRIVING_STILL_MS = 10000 };

/* With late = wait it does so in every round, for a moment. */
static void complain_standing(struct status *status)
{
    char text[400] = "the trainer stands still, as late = wait has it, until a round closes that waits for",
         since[HUMAN_BYTES];
    if (status->trainer.waits_ms == 0 || status->now_ms < status->trainer.waits_ms + STANDING_TOLD_MS)
        return;
    complain_name(status, &status->awaited, text, sizeof text);
    human_duration((double)((status->now_ms - status->trainer.waits_ms) / 1000), since);
    snprintf(text + strlen(text), sizeof text - strlen(text), ", for %s", since);
    complain(
        status, COMPLAINT_WAITING, &status->awaited, text,
        "see to those islands: it goes on when they are back, or the run goes on without them; late = merge in the "
        "run spec would not wait");
}

/* Where its own contributions are still to come, it is not the others that it waits for. */
static void complain_waiting(struct status *status)
{
    struct bitset waiting = {{0}};
    char text[400] = "the trainer stands still until its last contributions are counted; it waits for";
    for (uint32_t f = 0; f < status->fragments_count; f++)
        bitset_add_all(&waiting, &status->fragments[f].waiting);
    bitset_remove(&waiting, status->from->view->self);
    if (status->phase != TRAINER_FINISHING || bitset_empty(&waiting) || complaints_owes(status) ||
        status->now_ms < status->trainer.report_ms + FINISHING_TOLD_MS)
        return;
    complain_name(status, &waiting, text, sizeof text);
    complain(status, COMPLAINT_WAITING, &waiting, text,
             "see to those islands; or {here} pause --now (leave --now, where it leaves the run), which gives the "
             "uncounted work up");
}

/* Who has only joined is neither behind nor wrong, as long as what it needs comes. */
static void complain_arriving(struct status *status)
{
    const struct status_arriving *arriving = &status->arriving;
    char text[128], since[HUMAN_BYTES];
    if (arriving->fragments == 0 || !arriving->offered || arriving->still_ms < ARRIVING_STILL_MS)
        return;
    human_duration((double)(arriving->still_ms / 1000), since);
    snprintf(text, sizeof text, "the state of %" PRIu32 " fragment%s is not here, and nothing of it has come for %s",
             arriving->fragments, arriving->fragments == 1 ? "" : "s", since);
    complain(status, COMPLAINT_BEHIND, NULL, text,
             "an island that has it brings it when it can be heard: see {here} peers, and the line to them");
}

static void complain_fragments(struct status *status)
{
    uint32_t behind = 0, repairing = 0;
    char text[128];
    for (uint32_t f = 0; f < status->fragments_count && !status->witness; f++) {
        const struct status_fragment *fragment = &status->fragments[f];
        if (!fragment->own.hash_known)
            continue;
        behind += fragment->own.version + VERSIONS_BEHIND < fragment->newest;
        repairing += fragment->state == SYNC_REPAIR;
    }
    if (behind > 0) {
        snprintf(text, sizeof text, "%" PRIu32 " fragments are more than one version behind", behind);
        complain(status, COMPLAINT_BEHIND, NULL, text, "they are being fetched; nothing to do unless it lasts");
    }
    if (repairing > 0) {
        snprintf(text, sizeof text, "%" PRIu32 " fragments are being repaired from other islands", repairing);
        complain(status, COMPLAINT_REPAIR, NULL, text, "if it happens again, test this machine's memory");
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
        uint32_t owner = view_slot(from->view, parts[p].id.owner);
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
        struct wire_standing said = peer->self ? fragment->own : sync_heard(from->sync, i, f);
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
    complain_name(status, &waited, text, sizeof text);
    struct bitset others = waited;
    bitset_remove(&others, status->from->view->self);
    complain(status, COMPLAINT_BLOCKED, &waited, text,
             status->epoch.shut_out  ? "no round closes here any more unless the others let this island in"
             : bitset_empty(&others) ? "its own trainer, or its disk, holds it up: {logs}"
                                     : "see what `dilococtl status` and the log say there; what is trained meanwhile "
                                       "goes out later");
}

/* Who sent most outliers lately; NULL: nobody did. */
/* Once, with all whose states stand against ours. */
static void complain_differs(struct status *status)
{
    struct bitset about = {{0}};
    uint32_t first = status->fragments_count;
    char text[400];
    for (uint32_t f = 0; f < status->fragments_count; f++) {
        if (status->fragments[f].against == SYNC_NOBODY)
            continue;
        bitset_add(&about, status->fragments[f].against);
        first = first < status->fragments_count ? first : f;
    }
    if (first == status->fragments_count)
        return;
    const struct status_fragment *row = &status->fragments[first];
    snprintf(text, sizeof text, "fragment %" PRIu32 ", at version %" PRIu64 ", is not the same here as at", first,
             row->own.version);
    complain_name(status, &about, text, sizeof text);
    snprintf(text + strlen(text), sizeof text - strlen(text),
             "; what is saved here does not say that this island is wrong, no majority says who is, and nobody has "
             "given way");
    complain(
        status, COMPLAINT_DIFFERS, &about, text,
        "find out which machine computes wrongly, or whose saved files were changed (memory tests, the log); there, or "
        "on all but one if nobody knows, stop the daemon, move the state folder away and start it: it takes over the "
        "state of the others");
}

static const struct status_peer *worst_outlier(const struct status *status)
{
    const struct status_peer *worst = NULL;
    for (uint32_t i = 0; i < status->from->view->count; i++) {
        const struct status_peer *peer = &status->peers[i];
        if (peer->member->used && peer->outliers_lately > (worst != NULL ? worst->outliers_lately : 0))
            worst = peer;
    }
    return worst;
}

/* Once, with the fragment that has grown most, and whose work it may be. */
static void complain_runaway(struct status *status)
{
    const struct status_peer *worst = worst_outlier(status);
    uint32_t most = 0;
    char text[320], action[320];
    for (uint32_t f = 1; f < status->fragments_count; f++)
        most = status->fragments[f].grown > status->fragments[most].grown ? f : most;
    if (status->fragments_count == 0 || status->fragments[most].grown == 0)
        return;
    snprintf(text, sizeof text, "the run diverges: fragment %" PRIu32 " of the anchor is %.3g times as large as it was",
             most, status->fragments[most].grown);
    if (worst == NULL) {
        complain(status, COMPLAINT_RUNAWAY, NULL, text,
                 "stop the run, and begin again from an earlier anchor with lower learning rates or a finer codec");
        return;
    }
    size_t used = strlen(text);
    snprintf(text + used, sizeof text - used, "; of the last 8 contributions of island %s %u were outliers",
             worst->member->name, worst->outliers_lately);
    snprintf(
        action, sizeof action,
        "stop the trainer of island %s and look at its loss, data and learning rate (dilococtl evict %s, if nobody "
        "is there); then begin again from an earlier anchor",
        worst->member->name, worst->member->name);
    complain(status, COMPLAINT_RUNAWAY, NULL, text, action);
}

/* ---- one event, one entry ---- */

/* What a complaint follows from. ABOUT: if causes like this one are about all members that it is about; ALWAYS. */
enum follows { ABOUT, ALWAYS };
static const struct {
    enum complaint_code what, from;
    enum follows if_;
} consequences[] = {
    /* of who is not heard */
    {COMPLAINT_NO_MAJORITY, COMPLAINT_REFUSED, ABOUT},
    {COMPLAINT_AWAY, COMPLAINT_NO_MAJORITY, ABOUT},
    {COMPLAINT_ALONE, COMPLAINT_NO_MAJORITY, ALWAYS},
    {COMPLAINT_ALONE, COMPLAINT_REFUSED, ALWAYS},
    {COMPLAINT_ALONE, COMPLAINT_AWAY, ALWAYS},
    {COMPLAINT_ALONE, COMPLAINT_LOST, ALWAYS},
    {COMPLAINT_DOUBT, COMPLAINT_NO_MAJORITY, ALWAYS},
    /* an epoch that is long in coming */
    {COMPLAINT_SEALED, COMPLAINT_DISK, ALWAYS},
    {COMPLAINT_SEALED, COMPLAINT_NO_MAJORITY, ALWAYS},
    {COMPLAINT_SEALED, COMPLAINT_REFUSED, ALWAYS},
    {COMPLAINT_SEALED, COMPLAINT_AWAY, ALWAYS},
    {COMPLAINT_SEALED, COMPLAINT_LOST, ALWAYS},
    /* rounds that do not close, and what waits for them */
    {COMPLAINT_BLOCKED, COMPLAINT_NOT_ADMITTED, ALWAYS},
    {COMPLAINT_BLOCKED, COMPLAINT_NO_PART, ALWAYS},
    {COMPLAINT_BLOCKED, COMPLAINT_NO_MAJORITY, ALWAYS},
    {COMPLAINT_BLOCKED, COMPLAINT_SEALED, ALWAYS},
    {COMPLAINT_BLOCKED, COMPLAINT_DIFFERS, ALWAYS},
    {COMPLAINT_BLOCKED, COMPLAINT_STATE_LOST, ABOUT},
    {COMPLAINT_BLOCKED, COMPLAINT_DISK, ABOUT},
    {COMPLAINT_BLOCKED, COMPLAINT_RESTARTING, ABOUT},
    {COMPLAINT_BLOCKED, COMPLAINT_NOT_ATTACHED, ABOUT},
    {COMPLAINT_BLOCKED, COMPLAINT_STALLED, ABOUT},
    {COMPLAINT_BLOCKED, COMPLAINT_REFUSED, ABOUT},
    {COMPLAINT_BLOCKED, COMPLAINT_AWAY, ABOUT},
    {COMPLAINT_BLOCKED, COMPLAINT_LOST, ABOUT},
    {COMPLAINT_BLOCKED, COMPLAINT_PEER_DISK, ABOUT},
    {COMPLAINT_BLOCKED, COMPLAINT_APART, ABOUT},
    {COMPLAINT_BLOCKED, COMPLAINT_FAULT, ABOUT},
    {COMPLAINT_BLOCKED, COMPLAINT_SLOW_PEER, ABOUT},
    {COMPLAINT_BLOCKED, COMPLAINT_WAITING, ABOUT},
    {COMPLAINT_WAITING, COMPLAINT_NO_MAJORITY, ALWAYS},
    {COMPLAINT_WAITING, COMPLAINT_DIFFERS, ALWAYS},
    {COMPLAINT_WAITING, COMPLAINT_REFUSED, ABOUT},
    {COMPLAINT_WAITING, COMPLAINT_AWAY, ABOUT},
    {COMPLAINT_WAITING, COMPLAINT_LOST, ABOUT},
    {COMPLAINT_WAITING, COMPLAINT_PEER_DISK, ABOUT},
    {COMPLAINT_WAITING, COMPLAINT_APART, ABOUT},
    {COMPLAINT_WAITING, COMPLAINT_FAULT, ABOUT},
    /* who is late */
    {COMPLAINT_SLOW_PEER, COMPLAINT_FAULT, ABOUT},
    {COMPLAINT_SLOW_PEER, COMPLAINT_MISSED, ABOUT},
    {COMPLAINT_MISSED, COMPLAINT_FAULT, ABOUT},
    {COMPLAINT_BEHIND, COMPLAINT_NOT_ADMITTED, ALWAYS},
    {COMPLAINT_BEHIND, COMPLAINT_NO_PART, ALWAYS},
    {COMPLAINT_BEHIND, COMPLAINT_REPAIR, ALWAYS},
    /* of our own */
    {COMPLAINT_DISK, COMPLAINT_STATE_LOST, ALWAYS},
    {COMPLAINT_DISK, COMPLAINT_DISK, ALWAYS},
    {COMPLAINT_REPAIR, COMPLAINT_DISK, ALWAYS}, /* it keeps no results, and takes over states */
    {COMPLAINT_LOSS_NAN, COMPLAINT_NAN, ALWAYS},
};

/* Where one island suffices for a round, one that no majority is heard of explains nothing but who is away; nor does it
 * say anything of our disk, unless it is disks that are in doubt. */
static bool may_explain(const struct status *status, const struct complaint *what, const struct complaint *from)
{
    const struct status_epoch *epoch = &status->epoch;
    if (from->code != COMPLAINT_NO_MAJORITY)
        return from < what || from->code != what->code;
    if (what->code == COMPLAINT_DOUBT)
        return epoch->voters_heard > epoch->voters / 2;
    return !epoch->enough || what->code == COMPLAINT_AWAY || what->code == COMPLAINT_ALONE;
}

/* Whom a complaint may follow from, by its row; VIEW_NOBODY: there is none. */
static uint32_t find_cause(const struct status *status, const struct complaint *what, size_t row)
{
    for (uint32_t k = 0; k < status->complaints_count; k++) {
        const struct complaint *from = &status->complaints[k];
        struct bitset shared = from->about;
        bitset_keep_all(&shared, &what->about);
        if (from != what && from->code == consequences[row].from && may_explain(status, what, from) &&
            (consequences[row].if_ == ALWAYS || !bitset_empty(&shared)))
            return k;
    }
    return VIEW_NOBODY;
}

static void find_event(const struct status *status, struct complaint *what)
{
    struct bitset covered = {{0}};
    uint32_t first = VIEW_NOBODY;
    for (size_t row = 0; row < sizeof consequences / sizeof consequences[0]; row++) {
        uint32_t cause = consequences[row].what == what->code ? find_cause(status, what, row) : VIEW_NOBODY;
        if (cause == VIEW_NOBODY)
            continue;
        if (consequences[row].if_ == ALWAYS) {
            what->of = cause;
            return;
        }
        first = first == VIEW_NOBODY ? cause : first;
        for (uint32_t k = 0; k < status->complaints_count; k++)
            if (status->complaints[k].code == consequences[row].from)
                bitset_add_all(&covered, &status->complaints[k].about);
    }
    if (first != VIEW_NOBODY && bitset_within(&what->about, &covered))
        what->of = first;
}

/* The table has no circle, so that each ends at what it all follows from. */
static void find_events(struct status *status)
{
    for (uint32_t i = 0; i < status->complaints_count; i++)
        find_event(status, &status->complaints[i]);
    for (uint32_t i = 0; i < status->complaints_count; i++)
        for (uint32_t k = 0; k < status->complaints_count; k++)
            status->complaints[i].of = status->complaints[status->complaints[i].of].of;
}

bool complaints_is_event(const struct status *status, uint32_t i)
{
    return status->complaints[i].of == i;
}

void complaints_all(struct status *status)
{
    complaints_own(status);
    if (status->from->recovers == NULL) /* else nobody was listened to yet */
        complaints_peers(status);
    complain_waiting(status);
    complain_standing(status);
    complain_arriving(status);
    complain_fragments(status);
    complain_blocked(status);
    complain_differs(status);
    complain_runaway(status);
    find_events(status);
}
