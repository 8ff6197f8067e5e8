/* SPDX-License-Identifier: Apache-2.0 */
#include "net/membership/own_vote.h"

static const struct config *last(const struct member_progress *progress)
{
    return config_log_last(progress->config_log);
}

/* What the newest configuration calls our disk. */
static uint64_t named(const struct member_progress *progress)
{
    return progress->view->members[progress->view->self].as.incarnation;
}

/* Our disk forgot nothing, and yet the newest configuration names one that it neither is nor followed: a copy of it
 * runs somewhere with our key. That one votes then, so ours must not. */
static bool is_another_named(const struct member_progress *progress)
{
    const struct voting_disk *disk = progress->disk;
    if (progress->view->self == VIEW_NOBODY || disk->doubt != VOTE_SURE)
        return false;
    uint64_t name = named(progress);
    return name != disk->incarnation && name != disk->named && last(progress)->epoch > disk->trusted_epoch;
}

bool own_vote_may(const struct member_progress *progress)
{
    const struct view *view = progress->view;
    const struct voting_disk *disk = progress->disk;
    /* A configuration that we voted after is missing here: paxos does not know yet what we promised then. */
    bool current = disk->vote.epoch <= last(progress)->epoch;
    return view->self != VIEW_NOBODY && view->members[view->self].as.voter && current && disk->doubt == VOTE_SURE &&
           !is_another_named(progress);
}

void own_vote_begin(const struct member_progress *progress, const struct outbox *outbox)
{
    const struct voting_disk *disk = progress->disk;
    if (is_another_named(progress)) {
        outbox->host->distrust(outbox->user);
        return;
    }
    if (progress->view->self == VIEW_NOBODY || disk->doubt != VOTE_SURE || last(progress)->epoch != disk->trusted_epoch)
        return;
    uint64_t name = named(progress);
    if (name == disk->incarnation || name == disk->named)
        return;
    (void)outbox_failed(outbox, outbox->host->settle(outbox->user, name, disk->trusted_epoch),
                        "keeping by which name the disk votes");
}

bool own_vote_settle(const struct member_progress *progress, const struct outbox *outbox, uint64_t trusted_epoch)
{
    return !outbox_failed(outbox, outbox->host->settle(outbox->user, named(progress), trusted_epoch),
                          "telling the disk that it is not in doubt");
}
