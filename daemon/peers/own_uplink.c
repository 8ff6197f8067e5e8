/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/own_uplink.h"

#include <stdio.h>

#include "common/human.h"
#include "common/log.h"

/* A window lasts until it has so many samples. STATED: so many times what is measured is stated, for it was seldom all
 * that the line can carry; FAR: only from so many times on is what was stated before too much; TOLD: and from so many
 * on it is worth telling people, since others may have been what was waited for. */
enum { SAMPLES_MIN = 32, STATED = 2, FAR = 4, TOLD = 16, TEXT_BYTES = 300 };

struct own_uplink own_uplink_init(uint64_t bits, uint64_t now_ms)
{
    return (struct own_uplink){.configured = bits, .stated = bits, .begun_ms = now_ms};
}

static uint64_t stated_for(const struct own_uplink *uplink, uint64_t fastest)
{
    bool far = uplink->stated / FAR > fastest;
    bool little = uplink->stated < fastest;
    if (!far && !little)
        return uplink->stated;
    return uplink->configured / STATED > fastest ? STATED * fastest : uplink->configured;
}

bool own_uplink_look(struct own_uplink *uplink, uint64_t measured, uint64_t now_ms)
{
    struct own_uplink_window *now = &uplink->now, *before = &uplink->before;
    if (measured != uplink->last) { /* a smoothed figure that stays the same is no new one */
        now->samples++;
        now->fastest = measured > now->fastest ? measured : now->fastest;
    }
    uplink->last = measured;
    if (now_ms < uplink->begun_ms + OWN_UPLINK_WINDOW_MS || now->samples < SAMPLES_MIN)
        return false;
    uint64_t fastest = now->fastest > before->fastest ? now->fastest : before->fastest;
    uint64_t stated = before->samples > 0 ? stated_for(uplink, fastest) : uplink->stated;
    bool changed = stated != uplink->stated;
    char text[TEXT_BYTES];
    uplink->stated = stated;
    if (changed && own_uplink_tell(uplink, text, sizeof text))
        log_warn("%s", text);
    else if (changed)
        log_info("the others are told of an uplink of %.3g Mbit/s", (double)stated / 1e6);
    uplink->before = uplink->now;
    uplink->now = (struct own_uplink_window){0};
    uplink->begun_ms = now_ms;
    return changed;
}

bool own_uplink_tell(const struct own_uplink *uplink, char *text, size_t text_bytes)
{
    char configured[HUMAN_BYTES], stated[HUMAN_BYTES];
    text[0] = '\0';
    if (uplink->stated > uplink->configured / TOLD)
        return false;
    snprintf(text, text_bytes,
             "[net] uplink says %s, and no more than %s got through when that was last measured, so this island has "
             "shards for the latter. Say there what the line can send",
             human_rate((double)uplink->configured, configured), human_rate((double)uplink->stated, stated));
    return true;
}
