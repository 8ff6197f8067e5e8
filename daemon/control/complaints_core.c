/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control/complaints_core.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "daemon/as_typed.h"

/* Per member at most so many complaints, and so many besides. */
enum { PER_MEMBER = 7, BESIDES = 24 };

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
        [COMPLAINT_DIFFERS] = "differs",
        [COMPLAINT_RUNAWAY] = "runaway",
        [COMPLAINT_LOSS_NAN] = "loss-nan",
        [COMPLAINT_NAN] = "nan",
        [COMPLAINT_BLOCKED] = "blocked",
        [COMPLAINT_TWINS] = "twins",
        [COMPLAINT_STATE_LOST] = "state-lost",
        [COMPLAINT_LOST] = "lost",
        [COMPLAINT_APART] = "apart",
        [COMPLAINT_NO_MAJORITY] = "no-majority",
        [COMPLAINT_SEALED] = "sealed",
        [COMPLAINT_DOUBT] = "doubt",
        [COMPLAINT_MARK] = "mark",
        [COMPLAINT_ROSTER] = "roster",
        [COMPLAINT_SAME_BATCHES] = "same-batches",
        [COMPLAINT_FAULT] = "fault",
        [COMPLAINT_NOT_ADMITTED] = "not-admitted",
        [COMPLAINT_NO_PART] = "no-part",
        [COMPLAINT_DAEMON_DIES] = "daemon-dies",
        [COMPLAINT_UNSUPERVISED] = "unsupervised",
        [COMPLAINT_RECOVERING] = "recovering",
        [COMPLAINT_LOOP_LAG] = "loop-lag",
    };
    return (unsigned)code < COMPLAINT_CODES ? names[code] : "unknown";
}

size_t complaints_max(const struct status *status)
{
    return (size_t)PER_MEMBER * status->from->view->count + BESIDES;
}

void complain(struct status *status, enum complaint_code code, const struct bitset *about, const char *what,
              const char *remedy)
{
    assert(status->complaints_count < complaints_max(status));
    struct complaint *complaint = &status->complaints[status->complaints_count++];
    *complaint = (struct complaint){.code = code, .of = status->complaints_count - 1};
    if (about != NULL)
        complaint->about = *about;
    snprintf(complaint->what, sizeof complaint->what, "%s", what);
    as_typed_fill(remedy, complaint->remedy, sizeof complaint->remedy);
}

void complain_of(struct status *status, enum complaint_code code, uint32_t member, const char *what, const char *remedy)
{
    struct bitset about = {{0}};
    bitset_add(&about, member);
    complain(status, code, &about, what, remedy);
}

void complain_name(const struct status *status, const struct bitset *members, char *text, size_t text_bytes)
{
    const char *gap = " ";
    for (uint32_t i = 0; i < status->from->view->count; i++) {
        if (!bitset_has(members, i))
            continue;
        size_t at = strlen(text);
        snprintf(text + at, text_bytes - at, "%s%s", gap, status->peers[i].member->name);
        gap = ", ";
    }
}

bool complaints_wait(const struct status *status)
{
    return status->from->spec->late == RUNSPEC_WAIT;
}

bool complaints_drained(const struct status *status)
{
    return status->peers[status->from->view->self].drained && peers_draining(status->from->peers);
}

bool complaints_owes(const struct status *status)
{
    for (uint32_t f = 0; f < status->fragments_count; f++) {
        const struct wire_standing *own = &status->fragments[f].own;
        if (own->abstained != UINT64_MAX && own->contributed <= own->version)
            return true;
    }
    return false;
}
