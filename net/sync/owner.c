/* SPDX-License-Identifier: Apache-2.0 */
#include "net/sync/owner.h"

#include <stddef.h>

typedef enum owner_order handler(struct owner *owner, const struct owner_rule *rule, const struct owner_input *input);

static void next_round(struct owner *owner, uint64_t round)
{
    owner->round = round;
    owner->have = owner->refused = owner->late = owner->early = (struct bitset){{0}};
    owner->quorum_ms = 0;
}

/* The job's outcome does not end the round: what came meanwhile is part of it. */
static void collect_on(struct owner *owner)
{
    owner->state = OWNER_COLLECTING;
    bitset_add_all(&owner->have, &owner->late);
    owner->late = (struct bitset){{0}};
    owner->drop = false;
}

static enum owner_order ignore(struct owner *owner, const struct owner_rule *rule, const struct owner_input *input)
{
    (void)owner;
    (void)rule;
    (void)input;
    return OWNER_NOTHING;
}

static void note_early(struct owner *owner, const struct owner_input *input)
{
    if (input->early)
        bitset_add(&owner->early, input->member);
    else
        bitset_remove(&owner->early, input->member);
}

static enum owner_order contributed(struct owner *owner, const struct owner_rule *rule, const struct owner_input *input)
{
    (void)rule;
    bitset_add(&owner->have, input->member);
    note_early(owner, input);
    bitset_remove(&owner->refused, input->member); /* it has mended itself and come again */
    return OWNER_NOTHING;
}

static enum owner_order refused(struct owner *owner, const struct owner_rule *rule, const struct owner_input *input)
{
    (void)rule;
    bitset_add(&owner->refused, input->member);
    return OWNER_NOTHING;
}

static enum owner_order contributed_late(struct owner *owner, const struct owner_rule *rule,
                                         const struct owner_input *input)
{
    (void)rule;
    bitset_add(&owner->late, input->member);
    note_early(owner, input);
    return OWNER_NOTHING;
}

static enum owner_order dropped(struct owner *owner, const struct owner_rule *rule, const struct owner_input *input)
{
    (void)rule;
    bool over = owner->drop; /* the round it was for */
    collect_on(owner);
    if (over)
        return OWNER_NOTHING;
    bitset_remove(&owner->have, input->member);
    bitset_add(&owner->refused, input->member);
    return OWNER_NOTHING;
}

static enum owner_order check(struct owner *owner, const struct owner_rule *rule, const struct owner_input *input)
{
    if (bitset_empty(&owner->have))
        return OWNER_NOTHING;
    bool close = !input->missing;
    if (rule->quorum > 0 && bitset_count(&owner->have) < rule->quorum)
        owner->quorum_ms = 0; /* not reached, or not any more: a contribution was of no use */
    else if (rule->quorum > 0) {
        if (owner->quorum_ms == 0)
            owner->quorum_ms = input->now_ms;
        close = close || input->now_ms >= owner->quorum_ms + input->grace_ms;
    }
    if (!close)
        return OWNER_NOTHING;
    owner->state = OWNER_REDUCING;
    return OWNER_REDUCE;
}

static enum owner_order reduced(struct owner *owner, const struct owner_rule *rule, const struct owner_input *input)
{
    (void)rule;
    (void)input;
    if (owner->drop) {
        collect_on(owner);
        return OWNER_NOTHING;
    }
    owner->state = OWNER_STORING;
    return OWNER_STORE;
}

static enum owner_order overtaken(struct owner *owner, const struct owner_rule *rule, const struct owner_input *input)
{
    (void)rule;
    (void)input;
    collect_on(owner);
    return OWNER_NOTHING;
}

static enum owner_order stored(struct owner *owner, const struct owner_rule *rule, const struct owner_input *input)
{
    (void)rule;
    (void)input;
    bool over = owner->drop;
    collect_on(owner);
    if (over)
        return OWNER_NOTHING;
    next_round(owner, owner->round + 1);
    return OWNER_PUBLISH;
}

static enum owner_order advanced(struct owner *owner, const struct owner_rule *rule, const struct owner_input *input)
{
    (void)rule;
    if (input->version >= owner->round)
        next_round(owner, input->version + 1);
    return OWNER_NOTHING;
}

/* A job is still at work on the old round: remember to drop what it brings. */
static enum owner_order advanced_in_job(struct owner *owner, const struct owner_rule *rule,
                                        const struct owner_input *input)
{
    if (input->version >= owner->round)
        owner->drop = true;
    return advanced(owner, rule, input);
}

static enum owner_order shown(struct owner *owner, const struct owner_rule *rule, const struct owner_input *input)
{
    (void)rule;
    (void)input;
    owner->drop = true;
    return OWNER_NOTHING;
}

static enum owner_order restarted(struct owner *owner, const struct owner_rule *rule, const struct owner_input *input)
{
    (void)rule;
    (void)input;
    struct bitset have = owner->have;
    bitset_add_all(&have, &owner->late);
    bitset_keep_all(&have, &owner->early); /* their senders were told that they have arrived */
    owner->drop = owner->state != OWNER_COLLECTING;
    next_round(owner, owner->round);
    owner->have = owner->early = have;
    return OWNER_NOTHING;
}

static enum owner_order begun(struct owner *owner, const struct owner_rule *rule, const struct owner_input *input)
{
    (void)rule;
    owner->drop = owner->state != OWNER_COLLECTING;
    next_round(owner, input->version + 1);
    return OWNER_NOTHING;
}

static handler *const handlers[OWNER_STATES][OWNER_EVENTS] = {
    [OWNER_COLLECTING] = {[OWNER_CONTRIBUTED] = contributed,
                          [OWNER_REFUSED] = refused,
                          [OWNER_DROPPED] = ignore,
                          [OWNER_CHECK] = check,
                          [OWNER_REDUCED] = ignore,
                          [OWNER_STORED] = ignore,
                          [OWNER_OVERTAKEN] = ignore,
                          [OWNER_ADVANCED] = advanced,
                          [OWNER_SHOWN] = ignore,
                          [OWNER_RESTARTED] = restarted,
                          [OWNER_BEGUN] = begun},
    [OWNER_REDUCING] = {[OWNER_CONTRIBUTED] = contributed_late,
                        [OWNER_REFUSED] = refused,
                        [OWNER_DROPPED] = dropped,
                        [OWNER_CHECK] = ignore,
                        [OWNER_REDUCED] = reduced,
                        [OWNER_STORED] = ignore,
                        [OWNER_OVERTAKEN] = overtaken,
                        [OWNER_ADVANCED] = advanced_in_job,
                        [OWNER_SHOWN] = shown,
                        [OWNER_RESTARTED] = restarted,
                        [OWNER_BEGUN] = begun},
    [OWNER_STORING] = {[OWNER_CONTRIBUTED] = contributed_late,
                       [OWNER_REFUSED] = refused,
                       [OWNER_DROPPED] = ignore,
                       [OWNER_CHECK] = ignore,
                       [OWNER_REDUCED] = ignore,
                       [OWNER_STORED] = stored,
                       [OWNER_OVERTAKEN] = ignore,
                       [OWNER_ADVANCED] = advanced_in_job,
                       [OWNER_SHOWN] = ignore, /* the disk has it: too late */
                       [OWNER_RESTARTED] = ignore,
                       [OWNER_BEGUN] = begun},
};

struct owner owner_init(uint64_t version)
{
    return (struct owner){.state = OWNER_COLLECTING, .round = version + 1};
}

enum owner_order owner_step(struct owner *owner, const struct owner_rule *rule, const struct owner_input *input)
{
    return handlers[owner->state][input->event](owner, rule, input);
}

const char *owner_state_name(enum owner_state state)
{
    static const char *const names[OWNER_STATES] = {
        [OWNER_COLLECTING] = "collecting", [OWNER_REDUCING] = "reducing", [OWNER_STORING] = "storing"};
    return (unsigned)state < OWNER_STATES ? names[state] : "unknown";
}

/* ---- grace ---- */

enum { PROBE_ROUNDS = 8, MARGIN_MS = 50 };
/* Lateness doubles with every round missed; from here on it stays: later than any grace, and no sum of it overflows. */
static const uint64_t late_ms_max = (uint64_t)1 << 40;

void grace_arrived(struct grace *grace, uint64_t late_ms)
{
    uint64_t off = late_ms > grace->late_ms ? late_ms - grace->late_ms : grace->late_ms - late_ms;
    /* What was assumed while it stayed away says nothing of it. */
    if (!grace->known || grace->missed > 0) {
        *grace = (struct grace){.known = true, .late_ms = late_ms, .deviation_ms = late_ms / 2};
        return;
    }
    grace->deviation_ms = (3 * grace->deviation_ms + off) / 4;
    grace->late_ms = (7 * grace->late_ms + late_ms) / 8;
}

void grace_missed(struct grace *grace, uint64_t waited_ms)
{
    uint64_t at_least = waited_ms > MARGIN_MS ? waited_ms : MARGIN_MS;
    grace->known = true;
    grace->missed++;
    grace->late_ms = 2 * (grace->late_ms > at_least ? grace->late_ms : at_least);
    if (grace->late_ms > late_ms_max)
        grace->late_ms = late_ms_max;
}

bool grace_probes(uint32_t fragment, uint64_t round)
{
    return (round + fragment) % PROBE_ROUNDS == 0;
}

uint64_t grace_wait(const struct grace *grace, uint64_t most_ms, bool probe)
{
    uint64_t usual_ms = grace->late_ms + 4 * grace->deviation_ms + MARGIN_MS;
    if (!grace->known || (probe && grace->missed > 0))
        return most_ms;
    if (grace->late_ms > most_ms)
        return 0;
    return usual_ms < most_ms ? usual_ms : most_ms;
}
