/* SPDX-License-Identifier: Apache-2.0 */
/* What peers tells of the members, to status and to the engine. */
#include <string.h>

#include "daemon/membership/membership_host.h"
#include "daemon/transfer/objects.h"
#include "daemon/peers/peers.h"
#include "daemon/peers/peers_core.h"
#include "daemon/rules.h"
#include "net/transport/link.h"

bool peers_heard(const struct peers *peers)
{
    for (uint32_t i = 0; i < members_of(peers); i++)
        if (is_other(peers, i) && peers->conf.view->members[i].role != RECORD_WITNESS &&
            (!peers->peers[i].up || peers->peers[i].pulse.in == 0))
            return false;
    return true;
}

bool peers_receiving(const struct peers *peers, const struct wire_key *key)
{
    return objects_receiving(peers->objects, key);
}

uint64_t peers_furthest(struct peers *peers, uint64_t own_step)
{
    uint64_t last = (uint64_t)peers->conf.spec->steps, furthest = own_step;
    uint64_t known = peers->plan.rounds != NULL ? rounds_step(peers->plan.rounds) : 0;
    uint64_t most = rules_furthest(peers->conf.spec, fragments_of(peers), known > own_step ? known : own_step);
    bool judges = !view_is_witness(peers->conf.view); /* which cannot tell how far rounds bring anybody */
    for (uint32_t i = 0; i < members_of(peers); i++)
        if (is_other(peers, i) && judges)
            furthest = report_furthest(&peers->peers[i].report, name_of(peers, i), peers->peers[i].up, furthest, most,
                                       peers->now_ms);
    return furthest < last ? furthest : last;
}

uint64_t peers_furthest_said(const struct peers *peers, uint64_t own_step)
{
    uint64_t last = (uint64_t)peers->conf.spec->steps, furthest = own_step;
    for (uint32_t i = 0; i < members_of(peers); i++)
        if (is_other(peers, i) && peers->peers[i].up && peers->peers[i].report.step > furthest)
            furthest = peers->peers[i].report.step;
    return furthest < last ? furthest : last;
}

bool peers_undialled(const struct peers *peers)
{
    return peers->gate.undialled;
}

uint64_t peers_state_bytes(const struct peers *peers, uint32_t f)
{
    return objects_state_bytes(peers->objects, f);
}

uint64_t peers_state_moved_ms(const struct peers *peers)
{
    return objects_state_moved_ms(peers->objects);
}

uint64_t peers_uplink_bits(const struct peers *peers)
{
    return objects_uplink_bits(peers->objects);
}

static const char *fault_of(const struct peers *peers, uint32_t i, enum peer_fault *kind)
{
    const struct peer *peer = &peers->peers[i];
    *kind = PEER_FAULT_FALSE;
    if (membership_broke_word(membership_host_membership(peers->membership_host), i))
        return "it has signed two results of one part: it is evicted, and stays so";
    if (objects_lied(peers->objects, i))
        return "it has sent a state that is not the one a majority signed";
    if (peer->up && peer->report.too_far_said && peer->report.too_far_ms != 0)
        return "it says that it is further than it can be: not followed";
    const char *text = peer->up ? faults_text(&peer->faults, peers->now_ms) : "";
    enum sync_fault now = faults_now(&peer->faults);
    if (text[0] == '\0')
        *kind = PEER_FAULT_NONE;
    else if (now == SYNC_FAULT_LATE || now == SYNC_FAULT_NO_RESULT)
        *kind = now == SYNC_FAULT_LATE ? PEER_FAULT_LATE : PEER_FAULT_STUCK;
    return text;
}

struct peer_info peers_info(const struct peers *peers, uint32_t i)
{
    const struct peer *peer = &peers->peers[i];
    struct link_counters counters = link_counters(peers->link, i);
    enum peer_fault kind;
    const char *fault = fault_of(peers, i, &kind);
    return (struct peer_info){.up = peer->up,
                              .refused = peer->refused,
                              .unadmitted = peer->refused && peer->unadmitted,
                              .note = peer->note,
                              .fault = fault,
                              .fault_kind = kind,
                              .heard_ms = peer->heard_ms,
                              .twins_ms = peer->twins.seen_ms,
                              .rtt_ms = peer->pulse.rtt_ms,
                              .step = peer->report.step,
                              .own_step = peer->report.own_step,
                              .tokens = peer->report.tokens,
                              .loss = peer->report.loss,
                              .tokens_per_s = peer->report.tokens_per_s,
                              .trainer = peer->report.trainer,
                              .sent = counters.sent,
                              .received = counters.received,
                              .unacknowledged = objects_unacknowledged(peers->objects, i)};
}

struct peers_totals peers_totals(const struct peers *peers)
{
    return (struct peers_totals){.objects_sent_bytes = objects_sent_bytes(peers->objects),
                                 .objects_wasted_bytes = objects_wasted_bytes(peers->objects),
                                 .strangers = peers->strangers.count,
                                 .stranger_ms = peers->strangers.last_ms,
                                 .stranger = peers->strangers.last,
                                 .newcomer_ms = peers->newcomers.last_ms,
                                 .newcomer = peers->newcomers.last};
}

void peers_sample(struct peers *peers)
{
    link_sample(peers->link);
}

/* The line to one island, as configured and measured. */
static struct caps_line line_to(const struct peers *peers, uint32_t i)
{
    const struct dconf *conf = peers->conf.conf;
    const struct view *view = peers->conf.view;
    uint64_t limit = conf->rate_limit > 0 ? conf->rate_limit : UINT64_MAX;
    return (struct caps_line){.island = name_of(peers, i),
                              .rtt_us = link_counters(peers->link, i).rtt_min_us,
                              .up_bits = conf->uplink < limit ? conf->uplink : limit,
                              .down_bits = view->members[i].uplink,
                              .window_out = objects_window(peers->objects, i),
                              .window_in = conf->window,
                              .connections = 1};
}

bool peers_capped(struct peers *peers, char text[CAPS_TEXT_BYTES])
{
    uint64_t longest_us = 0;
    char of_line[CAPS_TEXT_BYTES];
    text[0] = '\0';
    for (uint32_t i = 0; i < members_of(peers); i++) {
        bool sends = is_other(peers, i) && peers->peers[i].up && peers->conf.view->members[i].role != RECORD_WITNESS;
        if (!sends || view_is_witness(peers->conf.view))
            continue;
        struct caps_line line = line_to(peers, i);
        if (line.rtt_us <= longest_us || !caps_tell(link_caps(peers->link), &line, of_line))
            continue;
        longest_us = line.rtt_us;
        memcpy(text, of_line, CAPS_TEXT_BYTES);
    }
    if (text[0] != '\0' && !peers->capped_said)
        log_warn("%s", text);
    peers->capped_said |= text[0] != '\0';
    return text[0] != '\0';
}
