/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/tidings.h"

#include <inttypes.h>

#include "common/log.h"

static void tell_diverged(const struct sync_action *action, const char *peer)
{
    if (action->version == 0)
        log_warn("fragment %" PRIu32 ": our initial tensors differ from island %s's; taking over theirs",
                 action->fragment, peer);
    else
        log_error("fragment %" PRIu32 " has DIVERGED at version %" PRIu64
                  ": our hash differs from island %s's; fetching its state",
                  action->fragment, action->version, peer);
}

void tidings_tell(const struct sync *sync, const struct sync_action *action, const char *peer)
{
    switch (action->report) {
    case SYNC_REPORT_DIVERGED: tell_diverged(action, peer); break;
    case SYNC_REPORT_PEER_DIVERGED: break; /* its island is looked after elsewhere, which says it now and then only */
    case SYNC_REPORT_DAMAGED:
        log_error("fragment %" PRIu32 " has DIVERGED at version %" PRIu64
                  ": our memory does not hold what our own ledger leads to; mending it from there. Look at this "
                  "machine's memory",
                  action->fragment, action->version);
        break;
    case SYNC_REPORT_BEHIND:
        log_warn("fragment %" PRIu32 ": too far behind for results; fetching island %s's state", action->fragment,
                 peer);
        break;
    case SYNC_REPORT_REPAIRED:
        if (peer == NULL)
            log_info("fragment %" PRIu32 " now holds what our ledger leads to", action->fragment);
        else
            log_info("fragment %" PRIu32 " now holds island %s's state", action->fragment, peer);
        break;
    case SYNC_REPORT_ILLEGAL:
        log_error("fragment %" PRIu32 ": an event had no place in state %s; please report this", action->fragment,
                  sync_state_name(sync_state(sync, action->fragment)));
        break;
    }
}
