/* SPDX-License-Identifier: Apache-2.0 */
/* What an island of a simulated world wants of the members, as daemon/peers has it. */
#include "tests/lib/simworld.h"

#include <stdio.h>
#include <string.h>

#include "net/membership/hearing.h"

/* As in daemon/peers: docs/PROTOCOL.md, "Epochs". */
enum { DOUBT_MS = 2000, GATHER_MS = 2000, APART_MS = 3000, YIELDS_MS = 3000, IDLE_MAX = 7 };

static struct sim_voice *voice_of(uint32_t i)
{
    return &sim->island[i].voice;
}

static const struct record *last(uint32_t i)
{
    return chain_last(sim->island[i].chain);
}

/* Who is lost, and who stands back, by what island i has heard. */
static void listen(uint32_t i, struct bitset *lost, struct bitset *apart, bool *all, bool *yields)
{
    const struct sim_voice *voice = voice_of(i);
    struct hearing members[SIM_N_MAX];
    struct bitset silent[SIM_N_MAX];
    for (uint32_t k = 0; k < sim->n; k++) {
        const struct record_member *member = sim_member_of(i, k);
        members[k] = (struct hearing){.used = member != NULL};
        silent[k] = bitset_of_word(k == i ? voice->silent : voice->seat[k].silent);
        if (member == NULL)
            continue;
        bool owner = member->role == RECORD_OWNER;
        members[k].id = member->id;
        members[k].uplink = member->uplink;
        members[k].voter = member->voter;
        members[k].owner = owner;
        members[k].candidate = !owner && member->role != RECORD_WITNESS;
        members[k].silent = k == i || voice->seat[k].up ? &silent[k] : NULL;
    }
    *lost = hearing_lost(members, sim->n);
    *apart = hearing_apart(members, sim->n);
    *all = hearing_all_owners(members, sim->n);
    *yields = hearing_yields(members, sim->n, i);
}

void sim_count_idle(uint32_t i)
{
    struct sim_voice *voice = voice_of(i);
    const struct record *before = last(i)->epoch > 0 ? chain_at(sim->island[i].chain, last(i)->epoch - 1) : NULL;
    bool idle = before != NULL && !record_differs(before, last(i));
    voice->idle = !idle ? 0 : voice->idle < IDLE_MAX ? voice->idle + 1 : IDLE_MAX;
}

void sim_look(uint32_t i)
{
    struct sim_voice *voice = voice_of(i);
    struct bitset lost, apart;
    bool yields;
    listen(i, &lost, &apart, &voice->hears_owners, &yields);
    voice->yields_ms = !yields ? 0 : voice->yields_ms != 0 ? voice->yields_ms : voice->now_ms;
    voice->lost = bitset_word(&lost);
    for (uint32_t k = 0; k < sim->n; k++) {
        uint64_t *since_ms = &voice->seat[k].apart_ms;
        *since_ms = !bitset_has(&apart, k) ? 0 : *since_ms != 0 ? *since_ms : voice->now_ms;
    }
}

static bool stands_back(uint32_t i, uint32_t k)
{
    uint64_t since_ms = voice_of(i)->seat[k].apart_ms;
    bool owner = sim_member_of(i, k)->role == RECORD_OWNER;
    return since_ms != 0 && (!owner || voice_of(i)->now_ms >= since_ms + APART_MS);
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
    wish.silent =
        k == i ? voice->yields_ms != 0 && voice->now_ms >= voice->yields_ms + YIELDS_MS : (voice->lost >> k & 1) != 0;
    wish.apart = stands_back(i, k);
    wish.evicted = sim->evicted && k == sim->liar;
    bool comes = wish.as.role != RECORD_OWNER || doubt;
    bool answers = k == i || (voice->seat[k].up && (voice->seat[k].silent >> i & 1) == 0);
    wish.near = answers && sim_caught_up(i, k) && (!comes || voice->hears_owners) &&
                (!comes || voice->now_ms >= voice->begun_ms + ((uint64_t)GATHER_MS << voice->idle));
    wish.caught_up = wish.near;
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
        if (k == i || voice_of(i)->seat[k].up || wish.silent || wish.apart || wish.evicted)
            wishes[count++] = wish;
    }
    return count;
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
    bool wanted = possible && record_differs(last(i), &next);
    record_deinit(&next);
    return wanted;
}
