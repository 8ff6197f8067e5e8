/* What an island of a simulated world wants of the members, as daemon/peers has it. */
#include "tests/lib/simworld.h"

#include <stdio.h>
#include <string.h>

/* As in daemon/peers: docs/PROTOCOL.md, "Epochs". */
enum { DOUBT_MS = 2000, GATHER_MS = 2000 };

static struct sim_voice *voice_of(uint32_t i)
{
    return &sim->island[i].voice;
}

static const struct record *last(uint32_t i)
{
    return chain_last(sim->island[i].chain);
}

static bool silent(uint32_t i, uint32_t k)
{
    const struct sim_voice *voice = voice_of(i);
    uint32_t voters = 0, deaf = 0;
    for (uint32_t w = 0; w < sim->n; w++) {
        const struct record_member *voter = sim_member_of(i, w);
        if (voter == NULL || !voter->voter)
            continue;
        voters++;
        if (w == i)
            deaf += voice->silent >> k & 1;
        else if (w != k && (voice->silent >> w & 1) == 0)
            deaf += voice->seat[w].silent >> k & 1;
    }
    return deaf > voters / 2;
}

bool sim_caught_up(uint32_t i, uint32_t k)
{
    const struct sync *sync = sim->island[i].sync;
    for (uint32_t f = 0; f < sim->fragments; f++) {
        struct sync_peer_fragment row = k == i ? sync_own(sync, f) : sync_heard(sync, sim_slot(i, k), f);
        bool known = k == i ? sync_known(sync, f) : row.hash_known;
        if (!known || row.version + 1 < sync_version_max(sync, f))
            return false;
    }
    return true;
}

bool sim_doubted(uint32_t i, uint32_t k)
{
    const struct sim_voice *voice = voice_of(i);
    if (k == i)
        return sim_in_doubt(i);
    return voice->seat[k].doubt_ms != 0 && voice->now_ms >= voice->seat[k].doubt_ms + DOUBT_MS;
}

static struct muster_wish wish_of(uint32_t i, uint32_t k)
{
    const struct sim_voice *voice = voice_of(i);
    struct muster_wish wish = {.as = *sim_member_of(i, k)};
    bool doubt = sim_doubted(i, k);
    uint64_t incarnation = k == i ? sim->island[i].disk.incarnation : voice->seat[k].incarnation;
    wish.as.uplink = sim->island[k].uplink;
    wish.as.owner_wish = sim->island[k].wants_shards ? RECORD_OWNER_AUTO : RECORD_OWNER_NO;
    if (doubt && incarnation != 0)
        wish.as.incarnation = incarnation;
    wish.in_doubt = k == i ? doubt : voice->seat[k].doubt_ms != 0 || voice->seat[k].incarnation == 0;
    wish.silent = k != i && silent(i, k);
    wish.evicted = sim->evicted && k == sim->liar;
    bool comes = wish.as.role != RECORD_OWNER || doubt;
    wish.caught_up = (k == i || voice->seat[k].up) && sim_caught_up(i, k) &&
                     (!comes || voice->now_ms >= voice->begun_ms + GATHER_MS);
    return wish;
}

static struct muster_wish enrolment(uint32_t k)
{
    struct muster_wish wish = {.enrol = true, .as = {.uplink = sim->island[k].uplink}};
    wish.as.role = sim->island[k].witness ? RECORD_WITNESS : RECORD_OBSERVER;
    snprintf(wish.as.name, sizeof wish.as.name, "m%u", k);
    memset(wish.as.key, (int)k + 1, sizeof wish.as.key);
    wish.as.owner_wish = sim->island[k].wants_shards ? RECORD_OWNER_AUTO : RECORD_OWNER_NO;
    return wish;
}

uint32_t sim_gather(uint32_t i, struct muster_wish *wishes)
{
    uint32_t count = 0;
    for (uint32_t k = 0; k < sim->n; k++) {
        if (!sim_knows(i, k)) {
            if (!sim->island[k].enrolled && sim->now_ms >= sim->island[k].revive_ms)
                wishes[count++] = enrolment(k);
            continue;
        }
        struct muster_wish wish = wish_of(i, k);
        if (k == i || voice_of(i)->seat[k].up || wish.silent || wish.evicted)
            wishes[count++] = wish;
    }
    return count;
}

static bool same_member(const struct record_member *a, const struct record_member *b)
{
    return a->id == b->id && a->role == b->role && a->voter == b->voter && a->incarnation == b->incarnation &&
           a->uplink == b->uplink && a->owner_wish == b->owner_wish;
}

static bool majority_heard(uint32_t i)
{
    uint32_t here = 0;
    for (uint32_t k = 0; k < sim->n; k++) {
        const struct record_member *voter = sim_member_of(i, k);
        here += voter != NULL && voter->voter && (k == i || voice_of(i)->seat[k].up);
    }
    return here >= record_majority(last(i));
}

bool sim_change_wanted(uint32_t i)
{
    struct muster_wish wishes[SIM_N_MAX];
    struct record next;
    if (!majority_heard(i))
        return false;
    uint32_t count = sim_gather(i, wishes);
    assert_ok(record_copy(last(i), &next));
    bool possible = muster(&next, wishes, count) == ERR_OK;
    bool same = next.members_count == last(i)->members_count;
    for (uint32_t k = 0; same && k < next.members_count; k++)
        same = same_member(&next.members[k], &last(i)->members[k]);
    same = same && memcmp(&next.map, &last(i)->map, sizeof next.map) == 0;
    record_deinit(&next);
    return possible && !same;
}
