/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control/complaints_own.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/human.h"
#include "daemon/control/complaints_core.h"

/* How long a trainer may not attach, and a step may take, at least; as a multiple of the slowest so far; and the first
 * one, in which programs are compiled. OFTEN: failures in a row that are not by chance. */
enum { STALLED_MS = 60000, SLOWEST_STEPS = 3, FIRST_STEP_MS = 600000, OFTEN = 2 };
/* Of the daemon, until it is complained of. */
enum { RESTARTS_TOLD = 3, LAG_TOLD_MS = 1000 };

static void complain_of_us(struct status *status, enum complaint_code code, const char *what, const char *remedy)
{
    complain_of(status, code, status->from->view->self, what, remedy);
}

/* Who stands back since a line is cut is told so in other words. */
static void complain_no_part(struct status *status)
{
    const struct view *view = status->from->view;
    const struct status_peer *self = &status->peers[view->self];
    char text[200];
    if (complaints_drained(status) || self->member->role != RECORD_AWAY || self->apart_from != NULL ||
        status->epoch.shut_out)
        return;
    snprintf(text, sizeof text, "this island takes no part: by the record of epoch %" PRIu64 " it was lost or evicted",
             view->epoch);
    complain_of_us(
        status, COMPLAINT_NO_PART, text,
        "it comes back by itself when it has caught up, and what it trains meanwhile is merged then; if it lasts, "
        "see what dilococtl status says on the others");
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
                 "%s at step %" PRIu64 " of the run's %" PRId64 ", and had not said that it is done: it is not started "
                 "again",
                 trainer->process_note, trainer->step, status->from->spec->steps);
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
    if (status->trainer.waits_ms > 0)
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

void complaints_own(struct status *status)
{
    complain_recovering(status);
    complain_daemon(status);
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
    if (status->epoch.difference[0] != '\0')
        complain_of_us(status, COMPLAINT_ROSTER, status->epoch.difference,
                       "take the section out of the configuration, or make it agree with {here} peers");
}
