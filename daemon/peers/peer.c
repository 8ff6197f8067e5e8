/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/peer.h"

/* ---- heartbeats ---- */

void beats_restart(struct beats *beats)
{
    beats->in = beats->in_ms = 0;
}

void beats_out(struct beats *beats, struct wire_heartbeat *beat, uint64_t now_ms)
{
    beat->sequence = ++beats->out;
    beat->echo = beats->in;
    beat->echo_delay_ms = (uint32_t)(now_ms - beats->in_ms);
    beats->sent_ms[beats->out % BEATS_KEPT] = now_ms;
}

bool beats_in(struct beats *beats, const struct wire_heartbeat *beat, uint64_t now_ms)
{
    if (beat->sequence <= beats->in)
        return false;
    beats->in = beat->sequence;
    beats->in_ms = now_ms;
    uint64_t ago = beats->out - beat->echo; /* many are on their way at a time where that is long */
    uint64_t sent_ms = beats->sent_ms[beat->echo % BEATS_KEPT];
    if (beat->echo > 0 && ago < BEATS_KEPT && now_ms >= sent_ms + beat->echo_delay_ms)
        beats->rtt_ms = (uint32_t)(now_ms - sent_ms - beat->echo_delay_ms);
    return true;
}

/* ---- one key on two machines ---- */

enum { DUPLICATE_KEY_SAID_MS = 60000 };
/* A greeting of the session before may have been on its way for long, and be answered by one of the new; more than that
 * does not happen to one machine. */
enum { TURNS_TOLD = 4, TURNS_WITHIN_MS = 60000 };

void duplicate_key_note(struct duplicate_key *duplicate_key, const char *name, uint64_t session, uint64_t now_ms)
{
    if (session == duplicate_key->session)
        return;
    bool back = session == duplicate_key->before;
    duplicate_key->before = duplicate_key->session;
    duplicate_key->session = session;
    if (!back || now_ms >= duplicate_key->turned_ms + TURNS_WITHIN_MS)
        duplicate_key->turns = 0;
    if (!back)
        return;
    duplicate_key->turned_ms = now_ms;
    if (++duplicate_key->turns < TURNS_TOLD)
        return;
    duplicate_key->seen_ms = now_ms;
    if (log_limit_pass(&duplicate_key->said, now_ms, DUPLICATE_KEY_SAID_MS))
        log_error("two machines speak with the key of island %s, in turn; stop one, and give it a key of its own",
                  name);
}

/* ---- faults ---- */

enum { FAULT_SAID_MS = 30000 };

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

void faults_look(struct faults *faults, const struct sync *sync, uint32_t member, const char *name, uint64_t now_ms)
{
    enum sync_fault fault = sync_fault(sync, member), before = faults->now;
    faults->now = fault;
    /* That its state is another is said by peers_diverged(). */
    if (fault != before && fault != SYNC_FAULT_HASH && log_limit_pass(&faults->said, now_ms, FAULT_SAID_MS)) {
        if (fault == SYNC_FAULT_NONE)
            log_info("island %s does its part again", name);
        else
            log_warn("island %s: %s", name, text_of(fault));
    }
}

enum sync_fault faults_now(const struct faults *faults)
{
    return faults->now;
}

const char *faults_text(const struct faults *faults)
{
    return text_of(faults->now);
}
