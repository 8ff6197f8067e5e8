/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/faults.h"

#include "net/membership/wire_epoch.h"

enum { SAID_MS = 30000, DROPPED_MS = 60000 };

/* Far more than anybody has to say. A proposer says something to everybody with each answer that it gets; all wishes
 * are told again every second; who asks for records waits a quarter of a second. */
static const struct quota_rule messages_rule = {.every_ms = 5, .at_once = 1000};
static const struct quota_rule chains_rule = {.every_ms = 200, .at_once = 10};
static const struct quota_rule wishes_rule = {.every_ms = 30, .at_once = 100};

static const char *text_of(enum sync_fault fault)
{
    static const char *const texts[] = {
        [SYNC_FAULT_NONE] = "",
        [SYNC_FAULT_LATE] = ("its contributions do not come in time: rounds go on without them, and its work is "
                             "counted later"),
        [SYNC_FAULT_NO_RESULT] = "it makes no result of its shards: to be taken for lost, if a majority says the same",
        [SYNC_FAULT_UNPROVEN] = "it says that it has what it does not show: that is believed no more",
        [SYNC_FAULT_HASH] = "its state is another than ours, which most have",
    };
    return texts[fault];
}

bool faults_look(struct faults *faults, const struct sync *sync, uint32_t member, const char *name, uint64_t now_ms)
{
    enum sync_fault fault = sync_fault(sync, member), before = faults->now;
    faults->now = fault;
    /* That its state is another is said by peers_diverged(). */
    if (fault != before && fault != SYNC_FAULT_HASH && log_limit_pass(&faults->said, now_ms, SAID_MS)) {
        if (fault == SYNC_FAULT_NONE)
            log_info("island %s does its part again", name);
        else
            log_warn("island %s: %s", name, text_of(fault));
    }
    return fault == SYNC_FAULT_NO_RESULT;
}

void faults_dropped(struct faults *faults, uint64_t now_ms)
{
    faults->dropped_ms = now_ms;
}

bool faults_floods(struct faults *faults, uint32_t type, uint64_t now_ms)
{
    if (type == WIRE_CHAIN && !quota_take(&faults->chains, chains_rule, now_ms))
        return true;
    if (type == WIRE_WISH && !quota_take(&faults->wishes, wishes_rule, now_ms))
        return true;
    return !quota_take(&faults->messages, messages_rule, now_ms);
}

enum sync_fault faults_now(const struct faults *faults)
{
    return faults->now;
}

const char *faults_text(const struct faults *faults, uint64_t now_ms)
{
    if (faults->now != SYNC_FAULT_NONE)
        return text_of(faults->now);
    return faults->dropped_ms != 0 && now_ms < faults->dropped_ms + DROPPED_MS ? "it sends what nobody can use" : "";
}
