/* SPDX-License-Identifier: Apache-2.0 */
/* The abstract data plane of epochworld: results are made, fetched, acknowledged, committed and applied. */
#include "tests/lib/epochworld.h"

#include <string.h>

static struct ew_held *held_of(uint32_t i, uint32_t f, uint32_t result)
{
    struct ew_holds *holds = &ew->island[i].disk.holds;
    for (uint32_t k = 0; k < holds->held_count[f]; k++)
        if (holds->held[f][k].result == result)
            return &holds->held[f][k];
    return NULL;
}

bool ew_keeps(uint32_t i, uint32_t f, uint32_t result)
{
    return held_of(i, f, result) != NULL;
}

static void written(uint32_t i)
{
    ew->island[i].mark = ++ew->island[i].disk.number;
}

void ew_store(uint32_t i, uint32_t result, bool acked)
{
    uint32_t f = ew->results[result].id.fragment;
    struct ew_holds *holds = &ew->island[i].disk.holds;
    if (ew_keeps(i, f, result) || holds->held_count[f] == EW_HELD_MAX)
        return;
    holds->held[f][holds->held_count[f]++] = (struct ew_held){.result = result, .acked = acked};
    written(i);
}

static uint32_t parts_of(uint32_t i, uint32_t f, struct version_part parts[VERSION_PARTS_MAX])
{
    return config_log_parts(ew->island[i].config_log, f, EW_SHARDS, ew->island[i].disk.holds.version[f] + 1, parts);
}

static bool is_of(const struct part_result *result, const struct version_part *part)
{
    return result->id.owner == part->id.owner && result->id.epoch == part->id.epoch && result->shards == part->shards &&
           (!part->carried || digest_equal(&result->id.digest, &part->id.digest));
}

/* The part of the island's next version that a result makes; NULL: none. */
static const struct version_part *part_of(uint32_t i, uint32_t result, struct version_part parts[VERSION_PARTS_MAX])
{
    const struct part_result *r = &ew->results[result];
    if (r->id.version != ew->island[i].disk.holds.version[r->id.fragment] + 1)
        return NULL;
    uint32_t count = parts_of(i, r->id.fragment, parts);
    for (uint32_t k = 0; k < count; k++)
        if (is_of(r, &parts[k]))
            return &parts[k];
    return NULL;
}

/* ---- committed? ---- */

static bool committed(uint32_t i, uint32_t result)
{
    const struct part_result *r = &ew->results[result];
    const struct config *config = config_log_at(ew->island[i].config_log, r->id.epoch);
    const struct ew_held *own = held_of(i, r->id.fragment, result);
    uint32_t copies = 0;
    for (uint32_t k = 0; config != NULL && k < config->members_count; k++) {
        const struct config_member *member = &config->members[k];
        uint32_t m = member->id - 1;
        bool acked = m == i ? own != NULL && own->acked : (ew->island[i].acks[result] >> m & 1) != 0;
        copies += member->voter && member->role != CONFIG_WITNESS && acked;
    }
    return config != NULL && copies >= config_commit_quorum(config);
}

static uint32_t result_for(uint32_t i, uint32_t f, const struct version_part *part)
{
    const struct ew_holds *holds = &ew->island[i].disk.holds;
    for (uint32_t k = 0; k < holds->held_count[f]; k++) {
        uint32_t result = holds->held[f][k].result;
        if (ew->results[result].id.version == holds->version[f] + 1 && is_of(&ew->results[result], part) &&
            (part->carried || committed(i, result)))
            return result;
    }
    return 0;
}

/* Another version: what was held for it is part of it now. */
static void advance(uint32_t i, uint32_t f, uint64_t version)
{
    struct ew_holds *holds = &ew->island[i].disk.holds;
    uint32_t kept = 0;
    EW_HOLDS(version < EW_V_MAX, "too many versions\n");
    holds->version[f] = version;
    for (uint32_t k = 0; k < holds->held_count[f]; k++)
        if (ew->results[holds->held[f][k].result].id.version > version)
            holds->held[f][kept++] = holds->held[f][k];
    holds->held_count[f] = kept;
    written(i);
}

static void apply(uint32_t i, uint32_t f)
{
    struct version_part parts[VERSION_PARTS_MAX];
    uint32_t results[VERSION_PARTS_MAX];
    uint32_t count = parts_of(i, f, parts);
    uint64_t version = ew->island[i].disk.holds.version[f] + 1;
    for (uint32_t k = 0; k < count; k++) {
        results[k] = result_for(i, f, &parts[k]);
        if (results[k] == 0)
            return;
    }
    if (count == 0)
        return;
    for (uint32_t k = 0; k < count && !ew->island[i].witness; k++) {
        for (uint32_t s = 0; s < EW_SHARDS; s++) {
            uint32_t *truth = &ew->truth[f][version][s];
            if ((parts[k].shards >> s & 1) == 0)
                continue;
            EW_HOLDS(*truth == 0 || *truth == results[k],
                     "I1: island %u applies another result of fragment %u version %llu shard %u: of epoch %llu and of "
                     "%llu\n",
                     i + 1, f, (unsigned long long)version, s, (unsigned long long)ew->results[*truth].id.epoch,
                     (unsigned long long)ew->results[results[k]].id.epoch);
            *truth = results[k];
        }
    }
    advance(i, f, version);
}

/* ---- owners ---- */

/* Whether results may be made and acknowledged here: the island votes, and is not sealed. */
static bool is_open(uint32_t i)
{
    const struct ew_island *island = &ew->island[i];
    const struct config_member *self = config_member(ew_newest(i), i + 1);
    return self->voter && self->incarnation == island->disk.holds.incarnation && !paxos_sealed(island->table) &&
           paxos_state(island->table) != PAXOS_DECIDED;
}

static void make(uint32_t i, uint32_t f)
{
    struct version_part parts[VERSION_PARTS_MAX];
    const struct ew_holds *holds = &ew->island[i].disk.holds;
    uint32_t count = is_open(i) ? parts_of(i, f, parts) : 0;
    for (uint32_t k = 0; k < count; k++) {
        if (parts[k].carried || parts[k].id.owner != i + 1 || parts[k].id.epoch != holds->epoch || !ew_chance(15))
            continue;
        bool made = false;
        for (uint32_t h = 0; h < holds->held_count[f]; h++)
            made = made || is_of(&ew->results[holds->held[f][h].result], &parts[k]);
        if (made || ew->results_count == EW_RESULTS_MAX)
            continue;
        uint32_t result = ew->results_count++;
        struct part_result *r = &ew->results[result];
        *r = (struct part_result){.id.fragment = f,
                                  .id.owner = i + 1,
                                  .id.version = holds->version[f] + 1,
                                  .id.epoch = holds->epoch,
                                  .shards = parts[k].shards};
        uint64_t noise[4] = {ew->seed, result, env_rng_u64(&ew->rng), 0};
        r->id.digest = digest_of(noise, sizeof noise);
        ew_store(i, result, true);
    }
}

/* ---- fetching ---- */

static void ask(uint32_t i, uint32_t from, enum ew_kind kind, uint32_t f, uint32_t result)
{
    ew_send(&(struct ew_message){.kind = kind, .from = i, .to = from, .fragment = f, .result = result});
}

/* What the draft rests on and this island lacks, from anyone. */
static void fetch_draft(uint32_t i)
{
    struct ew_island *island = &ew->island[i];
    const struct config *draft = &ew->configs[island->draft].config;
    for (uint32_t f = 0; island->draft != 0 && f < ew->fragments; f++) {
        const struct ew_holds *holds = &island->disk.holds;
        struct part_result results[EW_HELD_MAX];
        struct holding has = {
            .fragment = f, .version = holds->version[f], .held = results, .held_count = holds->held_count[f]};
        struct next_config_lack lack;
        uint32_t from = (uint32_t)ew_below(ew->n), result = 0;
        for (uint32_t k = 0; k < holds->held_count[f]; k++)
            results[k] = ew->results[holds->held[f][k].result];
        if (island->witness || from == i || !ew_chance(30) || !next_config_lacks(draft, f, &has, &lack))
            continue;
        for (uint32_t k = 1; !lack.start && k < ew->results_count; k++)
            if (digest_equal(&ew->results[k].id.digest, &draft->carried[lack.carried].id.digest))
                result = k;
        ask(i, from, lack.start ? EW_FETCH_STATE : EW_FETCH, f, result);
    }
}

bool ew_take_over(uint32_t i)
{
    const struct ew_island *island = &ew->island[i];
    struct version_part parts[VERSION_PARTS_MAX];
    bool lacks = false;
    for (uint32_t k = 0; k < ew->n; k++) {
        const struct ew_answer *answer = &island->answer[k];
        if (!answer->there || answer->ballot != paxos_ballot(island->table) ||
            (ew->island[k].witness && !island->witness))
            continue;
        for (uint32_t f = 0; f < ew->fragments; f++) {
            bool behind = island->disk.holds.version[f] < answer->holds.version[f];
            lacks = lacks || behind;
            if (behind)
                ask(i, k, EW_FETCH_STATE, f, 0);
            for (uint32_t h = 0; h < answer->holds.held_count[f]; h++) {
                uint32_t result = answer->holds.held[f][h].result;
                if (ew_keeps(i, f, result) || part_of(i, result, parts) == NULL)
                    continue;
                lacks = true;
                ask(i, k, EW_FETCH, f, result);
            }
        }
    }
    return lacks;
}

static bool draft_wants(uint32_t i, const struct part_result *r)
{
    const struct config *draft = &ew->configs[ew->island[i].draft].config;
    for (uint32_t k = 0; ew->island[i].draft != 0 && k < draft->carried_count; k++)
        if (draft->carried[k].id.fragment == r->id.fragment &&
            digest_equal(&draft->carried[k].id.digest, &r->id.digest))
            return true;
    return false;
}

/* A voter stores and acknowledges only results of its own version + 1 (rule 1), one of each part. */
static void take_result(uint32_t i, uint32_t result)
{
    struct version_part parts[VERSION_PARTS_MAX];
    const struct part_result *r = &ew->results[result];
    const struct ew_holds *holds = &ew->island[i].disk.holds;
    if (r->id.version != holds->version[r->id.fragment] + 1)
        return;
    const struct version_part *part = part_of(i, result, parts);
    bool other = false;
    for (uint32_t k = 0; part != NULL && k < holds->held_count[r->id.fragment]; k++)
        other = other || is_of(&ew->results[holds->held[r->id.fragment][k].result], part);
    if ((part == NULL || other) && !draft_wants(i, r) && !(part != NULL && ew->island[i].taking))
        return;
    bool acked = part != NULL && !other && !part->carried && part->id.epoch == holds->epoch && is_open(i);
    ew_store(i, result, acked);
}

static void take_state(const struct ew_message *m)
{
    const struct ew_holds *own = &ew->island[m->to].disk.holds;
    if (m->holds.epoch <= own->epoch && m->holds.version[m->fragment] > own->version[m->fragment])
        advance(m->to, m->fragment, m->holds.version[m->fragment]);
}

static void take_beat(const struct ew_message *m)
{
    struct ew_island *island = &ew->island[m->to];
    struct version_part parts[VERSION_PARTS_MAX];
    bool digests_only = ew->island[m->from].witness && !island->witness;
    for (uint32_t f = 0; f < ew->fragments; f++) {
        if (m->holds.version[f] > island->disk.holds.version[f] && !digests_only && ew_chance(30))
            ask(m->to, m->from, EW_FETCH_STATE, f, 0);
        for (uint32_t k = 0; k < m->holds.held_count[f]; k++) {
            const struct ew_held *held = &m->holds.held[f][k];
            if (held->acked)
                island->acks[held->result] |= (uint8_t)(1 << m->from);
            if (!digests_only && !ew_keeps(m->to, f, held->result) && part_of(m->to, held->result, parts) != NULL)
                ask(m->to, m->from, EW_FETCH, f, held->result);
        }
    }
}

void ew_data_message(const struct ew_message *m)
{
    const struct ew_island *island = &ew->island[m->to];
    bool can_publish = !island->witness || ew->island[m->from].witness;
    switch (m->kind) {
    case EW_BEAT: take_beat(m); break;
    case EW_RESULT: take_result(m->to, m->result); break;
    case EW_STATE: take_state(m); break;
    case EW_FETCH:
        if (can_publish && ew_keeps(m->to, m->fragment, m->result))
            ask(m->to, m->from, EW_RESULT, m->fragment, m->result);
        break;
    case EW_FETCH_STATE:
        if (can_publish)
            ew_send(&(struct ew_message){
                .kind = EW_STATE, .from = m->to, .to = m->from, .fragment = m->fragment, .holds = island->disk.holds});
        break;
    default: fail_msg("message of kind %d", (int)m->kind);
    }
}

void ew_data_turn(uint32_t i)
{
    for (uint32_t f = 0; f < ew->fragments; f++) {
        apply(i, f);
        make(i, f);
    }
    fetch_draft(i);
}

/* A new configuration: what it does not carry counts nowhere beyond its start. */
void ew_learned(uint32_t i, uint32_t number)
{
    const struct config *config = &ew->configs[number].config;
    struct ew_holds *holds = &ew->island[i].disk.holds;
    for (uint32_t f = 0; f < ew->fragments; f++) {
        uint64_t start = config_start(config, f);
        uint32_t carried_count, kept = 0;
        const struct part_result *carried = config_carried(config, f, &carried_count);
        EW_HOLDS(ew->island[i].witness || holds->version[f] <= start + 1,
                 "I5: island %u is at version %llu of fragment %u, and epoch %llu starts from %llu\n", i + 1,
                 (unsigned long long)holds->version[f], f, (unsigned long long)config->epoch,
                 (unsigned long long)start);
        for (uint32_t s = 0; s < EW_SHARDS && holds->version[f] == start + 1 && !ew->island[i].witness; s++) {
            bool same = false;
            for (uint32_t k = 0; k < carried_count; k++)
                same =
                    same || ((carried[k].shards >> s & 1) != 0 &&
                             digest_equal(&carried[k].id.digest, &ew->results[ew->truth[f][start + 1][s]].id.digest));
            EW_HOLDS(same, "I5: island %u has applied a result that epoch %llu does not carry\n", i + 1,
                     (unsigned long long)config->epoch);
        }
        for (uint32_t k = 0; k < holds->held_count[f]; k++) {
            bool stands = false; /* even while there is no owner who could make the other parts */
            for (uint32_t c = 0; c < carried_count; c++)
                stands =
                    stands || digest_equal(&carried[c].id.digest, &ew->results[holds->held[f][k].result].id.digest);
            holds->held[f][k].acked = false;
            if (holds->version[f] + 1 <= start || stands)
                holds->held[f][kept++] = holds->held[f][k];
        }
        holds->held_count[f] = kept;
    }
    written(i);
}
