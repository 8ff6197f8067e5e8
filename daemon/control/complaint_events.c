/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control/complaint_events.h"

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
    {COMPLAINT_BLOCKED, COMPLAINT_PARTITIONED, ABOUT},
    {COMPLAINT_BLOCKED, COMPLAINT_FAULT, ABOUT},
    {COMPLAINT_BLOCKED, COMPLAINT_SLOW_PEER, ABOUT},
    {COMPLAINT_BLOCKED, COMPLAINT_WAITING, ABOUT},
    {COMPLAINT_WAITING, COMPLAINT_NO_MAJORITY, ALWAYS},
    {COMPLAINT_WAITING, COMPLAINT_DIFFERS, ALWAYS},
    {COMPLAINT_WAITING, COMPLAINT_REFUSED, ABOUT},
    {COMPLAINT_WAITING, COMPLAINT_AWAY, ABOUT},
    {COMPLAINT_WAITING, COMPLAINT_LOST, ABOUT},
    {COMPLAINT_WAITING, COMPLAINT_PEER_DISK, ABOUT},
    {COMPLAINT_WAITING, COMPLAINT_PARTITIONED, ABOUT},
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
void complaint_events_find(struct status *status)
{
    for (uint32_t i = 0; i < status->complaints_count; i++)
        find_event(status, &status->complaints[i]);
    for (uint32_t i = 0; i < status->complaints_count; i++)
        for (uint32_t k = 0; k < status->complaints_count; k++)
            status->complaints[i].of = status->complaints[status->complaints[i].of].of;
}

bool complaint_is_event(const struct status *status, uint32_t i)
{
    return status->complaints[i].of == i;
}
