/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control/complaints.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/human.h"
#include "daemon/control/complain.h"
#include "daemon/control/complaint_events.h"
#include "daemon/control/contribution_complaints.h"

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
        [COMPLAINT_PEER_DISK] = "peer-disk",
        [COMPLAINT_RESTARTING] = "restarting",
        [COMPLAINT_ENDED] = "ended",
        [COMPLAINT_ENDED_BADLY] = "ended-badly",
        [COMPLAINT_STOPPED] = "stopped",
        [COMPLAINT_NOT_ATTACHED] = "not-attached",
        [COMPLAINT_NO_PLAN] = "no-plan",
        [COMPLAINT_STALLED] = "stalled",
        [COMPLAINT_OUTLIER] = "outlier",
        [COMPLAINT_TURNED_AWAY] = "turned-away",
        [COMPLAINT_CLAIMS_MUCH] = "claims-much",
        [COMPLAINT_DIFFERS] = "differs",
        [COMPLAINT_RUNAWAY] = "runaway",
        [COMPLAINT_LOSS_NAN] = "loss-nan",
        [COMPLAINT_NAN] = "nan",
        [COMPLAINT_BLOCKED] = "blocked",
        [COMPLAINT_DUPLICATE_KEY] = "duplicate-key",
        [COMPLAINT_STATE_LOST] = "state-lost",
        [COMPLAINT_LOST] = "lost",
        [COMPLAINT_PARTITIONED] = "partitioned",
        [COMPLAINT_NO_MAJORITY] = "no-majority",
        [COMPLAINT_SEALED] = "sealed",
        [COMPLAINT_DOUBT] = "doubt",
        [COMPLAINT_MARK] = "mark",
        [COMPLAINT_SAME_BATCHES] = "same-batches",
        [COMPLAINT_FAULT] = "fault",
        [COMPLAINT_NOT_ADMITTED] = "not-admitted",
        [COMPLAINT_NO_PART] = "no-part",
        [COMPLAINT_DAEMON_DIES] = "daemon-dies",
        [COMPLAINT_UNSUPERVISED] = "unsupervised",
        [COMPLAINT_RECOVERING] = "recovering",
        [COMPLAINT_LOOP_LAG] = "loop-lag",
        [COMPLAINT_TOO_FAST] = "too-fast",
        [COMPLAINT_NOT_LISTENING] = "not-listening",
    };
    return (unsigned)code < COMPLAINT_CODES ? names[code] : "unknown";
}

/* Appends " a, b". */
static void complain_name(const struct status *status, const struct bitset *members, char *text, size_t text_bytes)
{
    const char *gap = " ";
    for (uint32_t i = 0; i < status->from->view->count; i++) {
        if (!bitset_has(members, i))
            continue;
        size_t at = strlen(text);
        snprintf(text + at, text_bytes - at, "%s%s", gap, status->peers[i].member->as.name);
        gap = ", ";
    }
}

/* The run spec says that late islands are waited for. */
static bool complaints_wait(const struct status *status)
{
    return status->from->spec->late == RUNSPEC_WAIT;
}

/* This island has left the run as its people asked. */
static bool complaints_drained(const struct status *status)
{
    return status->peers[status->from->view->self].drained && peers_draining(status->from->peers);
}

/* The trainer has contributions to make before it may end: it is its turn. */
static bool complaints_owes(const struct status *status)
{
    for (uint32_t f = 0; f < status->fragments_count; f++) {
        const struct wire_standing *own = &status->fragments[f].own;
        if (own->abstained != UINT64_MAX && own->contributed <= own->version)
            return true;
    }
    return false;
}

/* ---- of this island: its trainer, its disk, its part in the run ---- */

/* How long a trainer may not attach, and a step may take, at least; as a multiple of the slowest so far; and the first
 * one, in which programs are compiled. OFTEN: failures in a row that are not by chance. */
enum { STALLED_MS = 60000, SLOWEST_STEPS = 3, FIRST_STEP_MS = 600000, OFTEN = 2 };
/* Of the daemon, until it is complained of. */
enum { RESTARTS_TOLD = 3, LAG_TOLD_MS = 1000 };

static void complain_of_us(struct status *status, enum complaint_code code, const char *what, const char *remedy)
{
    complain_of(status, code, status->from->view->self, what, remedy);
}

/* Who stands back since a line is cut is told so in other words; who is back, and catches up, needs nobody's help. */
static void complain_no_part(struct status *status)
{
    const struct view *view = status->from->view;
    const struct status_peer *self = &status->peers[view->self];
    char text[200];
    if (complaints_drained(status) || self->member->as.role != CONFIG_AWAY || self->partitioned_from != NULL ||
        self->catches_up || status->epoch.shut_out)
        return;
    snprintf(text, sizeof text,
             "this island takes no part: by the configuration of epoch %" PRIu64 " it was lost or evicted",
             view->epoch);
    complain_of_us(
        status, COMPLAINT_NO_PART, text,
        "it comes back by itself when it has caught up, and what it trains meanwhile is merged then; if it lasts, "
        "see what dilococtl status says on the others");
}

static const char *remedy_for_doubt(const struct status *status)
{
    const struct status_epoch *epoch = &status->epoch;
    if (!epoch->majority && epoch->voters_heard == epoch->voters && !bitset_empty(&epoch->awaited))
        return "nothing to do: it votes again when the others are here, or in half a minute";
    if (!epoch->majority && epoch->voters_heard < epoch->voters)
        return "see to those that are missing: too few are sure of their disks to name this one anew, so it votes "
               "again when a majority that is, or all that vote, are here";
    return status->witness ? "nothing to do: it votes again from the next epoch on"
                           : "nothing to do: it trains and contributes, and votes again from the next epoch on";
}

static void complain_unattached(struct status *status)
{
    const struct trainer_info *trainer = &status->trainer;
    char text[200];
    if (status->phase == TRAINER_NONE)
        complain_of_us(status, COMPLAINT_NOT_ATTACHED, "no trainer is attached",
                       "start yours; it attaches through worker.sock");
    if (status->phase != TRAINER_STARTING || trainer->unattached_ms == 0 ||
        status->now_ms <= trainer->unattached_ms + STALLED_MS)
        return;
    snprintf(text, sizeof text, "the trainer (pid %" PRIu32 ") has not attached for %.0f s", trainer->pid,
             (double)(status->now_ms - trainer->unattached_ms) / 1000);
    complain_of_us(status, COMPLAINT_NOT_ATTACHED, text,
                   "look for its message in the log; {here} pause --now ends it, and {here} resume starts another");
}

static void complain_plan(struct status *status)
{
    if (status->from->plan == NULL && status->from->conf->allow_other_base && status->trainer.attached)
        complain_of_us(
            status, COMPLAINT_NO_PLAN,
            "the trainer may train upon another base than the run's ([worker] allow_other_base), and no "
            "island that has the run's is heard yet: it waits for one",
            "start an island whose base is to be the run's, with allow_other_base = no; or take the line out "
            "here, and restart the daemon");
}

static void complain_nan(struct status *status)
{
    const struct trainer_info *trainer = &status->trainer;
    char text[200];
    if (trainer->bad_fragments == 0)
        return;
    snprintf(text, sizeof text,
             "the last snapshots of %" PRIu32 " fragment%s NaN or Inf, %" PRIu64
             " times in a row; nothing of them is counted",
             trainer->bad_fragments, trainer->bad_fragments == 1 ? " holds" : "s hold", trainer->bad_most);
    complain_of_us(
        status, COMPLAINT_NAN, text,
        "the next anchor replaces them; if it lasts, lower the learning rate, or start the trainer anew: {here} "
        "pause --now, and resume");
}

static void complain_loss(struct status *status)
{
    char text[200];
    if (!status->trainer.training || !isnan(status->trainer.loss))
        return;
    snprintf(text, sizeof text, "the trainer's loss is NaN or Inf, at step %" PRIu64, status->trainer.step);
    complain_of_us(
        status, COMPLAINT_LOSS_NAN, text,
        "look at the data of that step and at the learning rate; if it stays so, start the trainer anew from the "
        "anchor: {here} pause --now, and resume");
}

/* A script may do an epoch, or so many steps of its own, and be content with itself. */
static void complain_ended(struct status *status)
{
    const struct trainer_info *trainer = &status->trainer;
    char text[600];
    if (status->phase == TRAINER_ENDED) {
        snprintf(text, sizeof text,
                 "%s at step %" PRIu64 " of the run's %" PRIu64 ", and had not said that it is done: it is not started "
                 "again",
                 trainer->process_note, trainer->step, runspec_length(status->from->spec));
        complain_of_us(
            status, COMPLAINT_ENDED, text,
            "let the script train until island.step() is False, whatever its own count of steps or epochs, then "
            "call island.finish(); a SIGTERM that was not the daemon's ends it so, too. {here} resume starts it again");
    }
    if (trainer->ended_badly) {
        snprintf(text, sizeof text, "%s; all that it had to contribute is counted", trainer->process_note);
        complain_of_us(status, COMPLAINT_ENDED_BADLY, text,
                       "what it does after its last step, as saving its model, did not end well: {trainer logs}; "
                       "{here} save writes the anchor");
    }
}

/* Whether the trainer should take steps, or be gone: one that waits for others' contributions may stand. */
static bool should_move(const struct status *status)
{
    bool waits = false;
    for (uint32_t f = 0; f < status->fragments_count && !complaints_owes(status); f++)
        waits |= !bitset_empty(&status->fragments[f].waiting);
    if (status->trainer.waits_ms > 0 || status->pause.is)
        return false;
    return status->phase == TRAINER_TRAINING || (status->phase == TRAINER_FINISHING && status->trainer.left && !waits);
}

static void complain_stalled(struct status *status)
{
    const struct trainer_info *trainer = &status->trainer;
    uint64_t moved_ms = trainer->report_ms > 0 ? trainer->report_ms : trainer->ready_ms;
    uint64_t usual_ms = trainer->slowest_ms > 0 ? SLOWEST_STEPS * trainer->slowest_ms : FIRST_STEP_MS;
    uint64_t limit_ms = usual_ms > STALLED_MS ? usual_ms : STALLED_MS;
    char text[200], since[HUMAN_BYTES], slowest[HUMAN_BYTES];
    if (!should_move(status) || moved_ms == 0 || status->now_ms <= moved_ms + limit_ms)
        return;
    human_duration((double)((status->now_ms - moved_ms) / 1000), since);
    human_duration((double)trainer->slowest_ms / 1000, slowest);
    if (trainer->slowest_ms > 0)
        snprintf(text, sizeof text, "the trainer has not finished a step for %s; its slowest so far took %s", since,
                 slowest);
    else
        snprintf(text, sizeof text, "the trainer has not finished its first step for %s", since);
    complain_of_us(status, COMPLAINT_STALLED, text,
                   "see what it says: {trainer logs}; if it hangs, {here} pause --now ends it, and so does the "
                   "time that [worker] hang states");
}

/* A name without a folder is the first of that name in PATH, which another shell or a service has otherwise: so a
 * Python that lacks a module ends at once, again and again. */
static void complain_restarting(struct status *status)
{
    const struct trainer_info *trainer = &status->trainer;
    const char *path = trainer->process_path, *name = strrchr(path, '/');
    char remedy[800];
    if (trainer->failures < OFTEN || name == NULL) {
        complain_of_us(status, COMPLAINT_RESTARTING, trainer->process_note, "read what it printed: {trainer logs}");
        return;
    }
    snprintf(remedy, sizeof remedy,
             "what it printed: {trainer logs}; it is %s, the first %s in this daemon's PATH: if it lacks a "
             "module, or another one is meant, write that one's whole path into [worker] program, as /srv/venv/bin/%s, "
             "and restart the daemon",
             path, name + 1, name + 1);
    complain_of_us(status, COMPLAINT_RESTARTING, trainer->process_note, remedy);
}

static void complain_trainer(struct status *status)
{
    const struct trainer_info *trainer = &status->trainer;
    if (status->witness)
        return;
    if (status->phase == TRAINER_RESTARTING)
        complain_restarting(status);
    complain_ended(status);
    if (status->phase == TRAINER_STOPPED && !trainer->process_left && !complaints_drained(status))
        complain_of_us(status, COMPLAINT_STOPPED, "no trainer is running", "start it with: {here} resume");
    complain_unattached(status);
    complain_plan(status);
    complain_loss(status);
    complain_nan(status);
    complain_stalled(status);
}

static void complain_disk(struct status *status)
{
    const char *unkept = status->epoch.unkept, *note = status->rounds.disk_note;
    char text[500];
    if (status->ledger.lost)
        complain_of_us(status, COMPLAINT_STATE_LOST,
                       "the state folder was removed or replaced: what is saved now is lost when the daemon ends",
                       "stop the daemon, put the folder back if it was moved, and start it again");
    if (note != NULL && note[0] != '\0')
        complain_of_us(status, COMPLAINT_DISK, note, "it is tried again every two seconds");
    if (unkept[0] == '\0')
        return;
    snprintf(text, sizeof text, "what is decided cannot be kept: %s", unkept);
    complain_of_us(status, COMPLAINT_DISK, text, "it is tried again, and no change is decided here until then");
}

static void complain_doubt(struct status *status)
{
    char text[500];
    if (status->epoch.doubt[0] == '\0')
        return;
    snprintf(text, sizeof text, "this island has no vote, for its disk is in doubt: %s", status->epoch.doubt);
    complain_of_us(status, COMPLAINT_DOUBT, text, remedy_for_doubt(status));
}

/* A third of the time after which an island is taken for lost, as [net] away has it by default. */
static void complain_lag(struct status *status)
{
    char text[300];
    if (status->load.lag_ms <= LAG_TOLD_MS)
        return;
    snprintf(text, sizeof text,
             "within the last minute the daemon stood for %.1f s at a stretch: it heard and answered nobody meanwhile, "
             "and the other islands take one that is silent for longer for lost",
             (double)status->load.lag_ms / 1000);
    complain_of_us(status, COMPLAINT_LOOP_LAG, text,
                   "see that this machine has a processor and memory to spare for the daemon: that nothing is swapped "
                   "out, the disk is not overloaded, and nobody stops the process; with [island] log = debug the log "
                   "names what took so long");
}

/* One that was killed once is back, and as it should be. */
static void complain_daemon(struct status *status)
{
    const struct supervised *by = &status->from->conf->supervised;
    char text[300];
    if (by->again >= RESTARTS_TOLD && status->now_ms < status->from->start_ms + STATUS_RESTARTED_MS) {
        snprintf(text, sizeof text, "the daemon was started again %" PRIu32 " times within an hour; the last one %s",
                 by->again, by->why);
        complain_of_us(status, COMPLAINT_DAEMON_DIES, text, "its log says more: {here} logs");
    }
    complain_lag(status);
    if (by->by == 0 || getppid() == by->by)
        return;
    snprintf(text, sizeof text,
             "the supervisor of the daemon (pid %d) was killed: nobody starts the daemon again if it dies", by->by);
    complain_of_us(status, COMPLAINT_UNSUPERVISED, text, "{here} stop, then {here} start, when that suits");
}

/* As one whose daemon is not there yet; so what is the matter with its part in the run is not known either. */
static void complain_recovering(struct status *status)
{
    const struct rounds_recovery *recovery = &status->recovery;
    char text[300];
    if (status->from->recovers == NULL)
        return;
    snprintf(text, sizeof text,
             "this island reads what it has saved, and takes part in nothing before it has: %" PRIu32 " of %" PRIu32
             " fragments are read, %" PRIu64 " version%s replayed",
             recovery->fragments_done, recovery->fragments, recovery->versions,
             recovery->versions == 1 ? " was" : "s were");
    complain_of_us(status, COMPLAINT_RECOVERING, text, "nothing to do: a trainer may attach meanwhile, and waits");
}

static void complain_not_listening(struct status *status)
{
    char text[600];
    if (status->deaf[0] == '\0')
        return;
    snprintf(text, sizeof text, "nobody can dial this island since its key changed: %s", status->deaf);
    complain_of_us(status, COMPLAINT_NOT_LISTENING, text,
                   "it is tried again all the time; with another port in dilocod.conf ([net] listen): {here} stop, and "
                   "{here} start");
}

static void complain_own(struct status *status)
{
    complain_recovering(status);
    complain_daemon(status);
    complain_not_listening(status);
    complain_disk(status);
    complain_trainer(status);
    complain_no_part(status);
    complain_doubt(status);
    if (status->epoch.exposed)
        complain_of_us(status, COMPLAINT_MARK,
                       "the mark of this island's votes lies in its own folder, since its folder in /dev/shm cannot be "
                       "made, is another user's, or lets others in: a copy of the folder that is put back would not be "
                       "noticed, and could vote twice",
                       "remove /dev/shm/diloco-UID, or make it this user's with mode 700, then start the daemon anew");
}

/* ---- of the others: who is away, who decides, who does not do what it should ---- */

/* So long a stranger is remembered. */
enum { STRANGER_MS = 60000 };
/* Of so many that are missing it is said since when. */
enum { MISSING_TOLD = 3 };
/* So long it may take to decide an epoch. */
enum { SEALED_MS = 2000, REQUESTED_MS = 10000 };

/* When and how it was last heard, behind `what`. */
static void tell_of_peer(const struct status_peer *peer, char *text, size_t text_bytes)
{
    const struct view_member *member = peer->member;
    const char *note = peer->note;
    if (note[0] == '\0' && member->as.address[0] == '\0')
        note = "no address is known here, so it has to dial us";
    const char *gap = note[0] != '\0' ? ": " : "";
    if (peer->heard)
        snprintf(text, text_bytes, "island %s was last heard of %.0f s ago%s%s", member->as.name, peer->heard_s, gap,
                 note);
    else
        snprintf(text, text_bytes, "island %s was not heard of yet%s%s", member->as.name, gap, note);
}

/* Whether nothing moves: no round closes, and nobody can be taken for lost. */
static bool all_stands(const struct status *status)
{
    return !status->epoch.majority && !status->epoch.enough;
}

static const char *remedy_for_away(const struct status *status, const struct status_peer *peer)
{
    unsigned role = peer->member->as.role;
    if (all_stands(status) && peer->member->as.voter)
        return "check its daemon, its address and the line: so few of those that vote are here, or sure of their "
               "disks, that nobody can be taken for lost, and rounds stand until a majority is back";
    if (role == CONFIG_WITNESS)
        return "check its daemon, its address and the line: rounds go on without the witness, but if an island is lost "
               "meanwhile, they stop until either is back";
    if (role == CONFIG_OWNER)
        return "check its daemon, its address and the line; rounds wait for its shards, until a majority of those that "
               "vote takes it for lost";
    return "check its daemon, its address and the line";
}

/* One that is here, trains, and could vote if an operator said so; NULL: there is none. */
static const struct status_peer *one_to_promote(const struct status *status)
{
    for (uint32_t i = 0; i < status->from->view->count; i++) {
        const struct view_member *member = &status->from->view->members[i];
        bool here = status->peers[i].up || status->peers[i].self;
        if (member->used && here && member->as.contributor && member->as.role == CONFIG_CONTRIBUTOR)
            return &status->peers[i];
    }
    return NULL;
}

/* While a majority lives it can take another one in; after the next loss nobody can. */
static void complain_lost(struct status *status, uint32_t i, const char *text)
{
    const struct status_epoch *epoch = &status->epoch;
    const struct status_peer *other = one_to_promote(status);
    bool last = status->peers[i].member->as.voter && epoch->majority && epoch->voters_sure == epoch->voters / 2 + 1;
    char remedy[400] = "start its daemon, or mend its line: it comes back by itself, and takes part again";
    size_t at = strlen(remedy);
    if (last && other != NULL)
        snprintf(remedy + at, sizeof remedy - at,
                 ". %" PRIu32 " of %" PRIu32
                 " that vote are left, and one more loss stops the run: if it does not come back, let %s vote, at an "
                 "operator: {here} owner %s",
                 epoch->voters_sure, epoch->voters, other->member->as.name, other->member->as.name);
    complain_of(status, COMPLAINT_LOST, i, text, remedy);
}

static void complain_of_peer(struct status *status, uint32_t i)
{
    const struct status_peer *peer = &status->peers[i];
    char text[400];
    tell_of_peer(peer, text, sizeof text);
    if (peer->unadmitted) {
        complain_of(
            status, COMPLAINT_REFUSED, i, text,
            "it may not know the newest configuration yet; if it lasts, compare the keys that dilococtl peers shows on "
            "both");
    } else if (peer->refused) {
        complain_of(status, COMPLAINT_REFUSED, i, text, "mend that at the island that differs, and restart its daemon");
    } else if (peer->member->as.role == CONFIG_AWAY) {
        snprintf(text, sizeof text, "island %s is lost%s", peer->member->as.name,
                 all_stands(status) ? "" : ": the run goes on without it");
        complain_lost(status, i, text);
    } else {
        complain_of(status, COMPLAINT_AWAY, i, text, remedy_for_away(status, peer));
    }
}

/* A majority hears both. */
static void complain_partitioned(struct status *status, uint32_t i)
{
    const struct status_peer *peer = &status->peers[i];
    char text[400];
    snprintf(text, sizeof text, "%s: %s stands back, and the run goes on", peer->partitioned,
             peer->self ? "this one" : peer->member->as.name);
    complain_of(
        status, COMPLAINT_PARTITIONED, i, text,
        peer->partitioned_by_line
            ? "mend the line between them, or give one an address that the other can dial: then both take part again"
            : "look at its daemon, disk and memory: when it makes results, both take part again");
}

static void complain_of_disk(struct status *status, uint32_t i)
{
    const struct status_peer *peer = &status->peers[i];
    char text[400];
    snprintf(text, sizeof text, "island %s says that its disk keeps nothing%s", peer->member->as.name,
             peer->member->as.role == CONFIG_AWAY ? ": the run goes on without it" : "");
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
        if (pair[k]->as.voter || (pair[k]->as.role != CONFIG_CONTRIBUTOR && pair[k]->as.role != CONFIG_OBSERVER))
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
        if (view->members[i].used && status->peers[i].partitioned_from != NULL)
            complain_partitioned(status, i);
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
        if (peer->member->used && peer->member->as.voter && !peer->up)
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
    if (epoch->founding || epoch->enough) /* it has just begun; or the witness is named anew in a moment */
        return;
    snprintf(text, sizeof text,
             "%" PRIu32 " of the %" PRIu32 " islands that vote are heard, but the disks of %" PRIu32
             " are in doubt, so the others are no majority",
             epoch->voters_heard, epoch->voters, epoch->voters_heard - epoch->voters_sure);
    if (epoch->voters_heard == epoch->voters && !bitset_empty(&epoch->awaited)) {
        size_t at = strlen(text);
        snprintf(text + at, sizeof text - at, ": whether the run went on without them would be known to");
        complain_name(status, &epoch->awaited, text, sizeof text);
        complain(status, COMPLAINT_NO_MAJORITY, &epoch->awaited, text,
                 "nothing to do: it waits for them for half a minute, then it goes on alone");
        return;
    }
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
        if (view->members[i].used && view->members[i].as.role == CONFIG_WITNESS)
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

/* The next configuration is long in coming; rounds close meanwhile unless this island is sealed. */
static void complain_next_epoch(struct status *status)
{
    const struct status_epoch *epoch = &status->epoch;
    bool closing = epoch->closing || epoch->sealed_ms == 0;
    char text[400];
    if (epoch->sealed_ms <= SEALED_MS && epoch->requested_ms <= REQUESTED_MS)
        return;
    snprintf(text, sizeof text, "%s for %.0f s; it waits for %s",
             closing ? "a requested change of members has not been decided" : "the next epoch is being decided",
             (double)(epoch->sealed_ms > 0 ? epoch->sealed_ms : epoch->requested_ms) / 1000, epoch->waits);
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
static void complain_duplicate_key(struct status *status)
{
    for (uint32_t i = 0; i < status->from->view->count; i++) {
        char text[200];
        if (!status->peers[i].duplicate_key)
            continue;
        snprintf(text, sizeof text, "two machines speak with the key of island %s, in turn",
                 status->peers[i].member->as.name);
        complain_of(status, COMPLAINT_DUPLICATE_KEY, i, text,
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
                 peer->member->as.name, peer->alike);
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
    case PEER_FAULT_FLOOD:
        return "see what runs there with its key, and its log; if it goes on, {here} revoke takes its key off "
               "the roster";
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
        snprintf(text, sizeof text, "island %s: %s", peer->member->as.name, peer->fault);
        complain_of(status, COMPLAINT_FAULT, i, text, remedy_for_fault(peer->fault_kind));
    }
}

static void complain_all_peers(struct status *status)
{
    complain_peers(status);
    complain_majority(status);
    complain_next_epoch(status);
    complain_strangers(status);
    complain_newcomers(status);
    complain_duplicate_key(status);
    complain_faults(status);
    complain_alike(status);
    contribution_complaints(status);
}

/* ---- of rounds ---- */

/* How long a finishing trainer may stand still, where an island that it waits for is away, and where all are heard; and
 * one that waits as late = wait has it. */
enum { FINISHING_TOLD_MS = 3000, LAST_ROUND_MS = 20000, STANDING_TOLD_MS = 3000 };
/* Versions behind the newest: one is on its way in every round. */
enum { VERSIONS_BEHIND = 1 };
/* Until it is told that nothing comes of a state that is fetched. */
enum { ARRIVING_STILL_MS = 10000 };
/* Until it is told that an island which is behind comes no nearer. */
enum { OUTRUN_MS = 60000 };

/* With late = wait it does so in every round, for a moment. */
static void complain_standing(struct status *status)
{
    char text[400] = "the trainer stands still, as late = wait has it, until a round closes that waits for",
         since[HUMAN_BYTES];
    if (status->pause.is || status->trainer.waits_ms == 0 ||
        status->now_ms < status->trainer.waits_ms + STANDING_TOLD_MS)
        return;
    complain_name(status, &status->awaited, text, sizeof text);
    human_duration((double)((status->now_ms - status->trainer.waits_ms) / 1000), since);
    snprintf(text + strlen(text), sizeof text - strlen(text), ", for %s", since);
    complain(
        status, COMPLAINT_WAITING, &status->awaited, text,
        "see to those islands: it goes on when they are back, or the run goes on without them; late = merge in the "
        "run spec would not wait");
}

/* Islands that are heard come to the step of the last round within an interval, and then the round takes its time. */
static struct bitset waited_too_long(const struct status *status, struct bitset waiting)
{
    const struct progress *progress = status->from->progress;
    uint64_t stands_ms = status->now_ms - status->trainer.report_ms;
    uint64_t interval_ms = progress != NULL ? progress_steps_ms(progress, (uint64_t)status->from->spec->interval) : 0;
    bool usual = stands_ms < (interval_ms > LAST_ROUND_MS ? interval_ms : LAST_ROUND_MS);
    for (uint32_t i = 0; i < status->islands; i++)
        if (stands_ms < FINISHING_TOLD_MS || (usual && status->peers[i].up))
            bitset_remove(&waiting, i);
    return waiting;
}

/* Where its own contributions are still to come, it is not the others that it waits for. */
static void complain_waiting(struct status *status)
{
    struct bitset waiting = {{0}};
    char text[400] = "the trainer stands still until its last contributions are counted; it waits for";
    for (uint32_t f = 0; f < status->fragments_count; f++)
        bitset_add_all(&waiting, &status->fragments[f].waiting);
    bitset_remove(&waiting, status->from->view->self);
    waiting = waited_too_long(status, waiting);
    if (status->pause.is || status->phase != TRAINER_FINISHING || bitset_empty(&waiting) || complaints_owes(status))
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

/* Results come, and the others make versions at least as fast: for a minute, and two intervals. */
static uint64_t outrun_ms(const struct status *status, uint32_t f)
{
    const struct progress *progress = status->from->progress;
    if (progress == NULL || progress_stands_ms(progress, f) >= OUTRUN_MS)
        return 0;
    uint64_t no_nearer_ms = progress_no_nearer_ms(progress, f);
    uint64_t interval_ms = progress_steps_ms(progress, (uint64_t)status->from->spec->interval);
    return no_nearer_ms >= OUTRUN_MS && no_nearer_ms >= 2 * interval_ms ? no_nearer_ms : 0;
}

static void complain_behind(struct status *status, uint32_t behind)
{
    uint64_t longest_ms = 0, most = 0;
    char text[240], since[HUMAN_BYTES];
    for (uint32_t f = 0; f < status->fragments_count; f++) {
        const struct status_fragment *fragment = &status->fragments[f];
        uint64_t no_nearer_ms = outrun_ms(status, f);
        longest_ms = no_nearer_ms > longest_ms ? no_nearer_ms : longest_ms;
        if (fragment->newest > fragment->own.version && fragment->newest - fragment->own.version > most)
            most = fragment->newest - fragment->own.version;
    }
    snprintf(text, sizeof text, "%" PRIu32 " fragments are more than one version behind", behind);
    if (longest_ms == 0) {
        complain(status, COMPLAINT_BEHIND, NULL, text, "they are being fetched; nothing to do unless it lasts");
        return;
    }
    human_duration((double)(longest_ms / 1000), since);
    snprintf(text, sizeof text,
             "this island does not come in step: the others make versions as fast as results come here, or faster; it "
             "is %" PRIu64 " versions behind, and no nearer than %s ago",
             most, since);
    complain(status, COMPLAINT_BEHIND, NULL, text,
             "its line, or its disk, is too slow for this run: give it a faster one (dilococtl plan says what a run "
             "takes), or have the others wait once: at an operator, dilococtl pause --run, and resume --run when peers "
             "shows this one as owner or contributor; from then on rounds wait for it");
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
    if (behind > 0)
        complain_behind(status, behind);
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
    struct version_part usual[VERSION_PARTS_MAX];
    const struct version_part *parts;
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
        bool asked = peer->member->as.role == CONFIG_OWNER || peer->member->as.role == CONFIG_CONTRIBUTOR;
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

/* Needs no cause: whatever keeps rounds from closing, here or elsewhere, shows on every island that has the state. */
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

/* Who sent most outliers lately; NULL: nobody did. */
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
             worst->member->as.name, worst->outliers_lately);
    snprintf(
        action, sizeof action,
        "stop the trainer of island %s and look at its loss, data and learning rate (dilococtl revoke %s, if nobody "
        "is there); then begin again from an earlier anchor",
        worst->member->as.name, worst->member->as.name);
    complain(status, COMPLAINT_RUNAWAY, NULL, text, action);
}

void complaints_all(struct status *status)
{
    complain_own(status);
    if (status->from->recovers == NULL) /* else nobody was listened to yet */
        complain_all_peers(status);
    complain_waiting(status);
    complain_standing(status);
    complain_arriving(status);
    complain_fragments(status);
    complain_blocked(status);
    complain_differs(status);
    complain_runaway(status);
    complaint_events_find(status);
}
