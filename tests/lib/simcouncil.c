/*
 * Who decides on epochs in a simulated world: an oracle that keeps to the rules of a correct record. It seals enough
 * voters one by one, takes what they hold, composes the next record from that, waits until what the record rests on is
 * durable at its own voters, and then decides it at once; every island learns of it when it meets one that knows.
 */
#include "tests/lib/simworld.h"

#include <string.h>

#include "tests/lib/roster.h"

/* Who is not in touch for so long is away; how long others are waited for that have nearly caught up; at least so long
 * between two epochs. */
enum { AWAY_MS = 3000, GATHER_MS = 2000, PAUSE_MS = 500, TURN_MS = 1000 };

static const struct record *newest(void)
{
    return chain_last(sim->council.chain);
}

static const struct record_member *member_of(const struct record *record, uint32_t w)
{
    return record_member(record, roster_id(w));
}

/* Witnesses are behind all islands. */
static uint32_t witness(void)
{
    return sim->n;
}

static bool keeps(const struct record *record, uint32_t w)
{
    const struct record_member *member = member_of(record, w);
    return member != NULL && member->voter && member->role != RECORD_WITNESS;
}

/* ---- who is there ---- */

static bool reachable(uint32_t p, uint32_t w)
{
    return sim->island[w].alive && !sim_stopped(w) && (p == w || sim_linked(p, w));
}

static bool away(uint32_t w)
{
    return sim->now_ms > sim->island[w].joined_ms + AWAY_MS;
}

/* In touch: with more than half of all that are alive, itself among them. */
static void look_who_is_there(void)
{
    for (uint32_t w = 0; w < sim->n; w++) {
        uint32_t alive = 0, linked = 0;
        for (uint32_t k = 0; k < sim->n; k++) {
            alive += sim->island[k].alive;
            linked += reachable(w, k);
        }
        if (sim->island[w].alive && !sim_stopped(w) && 2 * linked > alive)
            sim->island[w].joined_ms = sim->now_ms;
    }
}

static bool doubted(const struct record *record, uint32_t w)
{
    return member_of(record, w)->incarnation != sim->island[w].incarnation;
}

bool sim_in_doubt(uint32_t i)
{
    return doubted(newest(), i);
}

/* Whether it has every fragment at this version or later. */
static bool caught_up(uint32_t w, const uint64_t *versions)
{
    const struct sim_island *island = &sim->island[w];
    for (uint32_t f = 0; f < sim->fragments; f++)
        if (!island->alive || !sync_known(island->sync, f) || island->version[f] < versions[f])
            return false;
    return true;
}

static bool nearly_caught_up(uint32_t w)
{
    uint64_t versions[SIM_F_MAX] = {0};
    for (uint32_t f = 0; f < sim->fragments; f++)
        for (uint32_t k = 0; k < sim->n; k++)
            if (sim->island[k].alive && sim->island[k].version[f] > versions[f] + 1)
                versions[f] = sim->island[k].version[f] - 1;
    return caught_up(w, versions);
}

static bool enough(const struct record *record, uint32_t voters, uint32_t keepers_without)
{
    return voters >= record_majority(record) && keepers_without < record_certifying(record);
}

bool sim_can_spare(uint32_t i)
{
    const struct record *record = newest();
    uint32_t voters = sim->council.witness, without = 0;
    for (uint32_t w = 0; w < sim->n; w++) {
        if (!keeps(record, w))
            continue;
        bool good = w != i && !sim->island[w].gone && !doubted(record, w);
        voters += good;
        without += !good;
    }
    return enough(record, voters, without);
}

/* ---- islands and their records ---- */

struct sync_view sim_view(uint32_t i)
{
    static uint32_t ids[SIM_N_MAX];
    struct sim_island *island = &sim->island[i];
    for (uint32_t k = 0; k < sim->n; k++)
        ids[sim_slot(i, k)] = roster_id(k);
    struct sync_view view = roster_view(island->chain, sim_slot(i, i), ids, sim->n);
    view.votes = view.votes && !doubted(chain_last(island->chain), i);
    return view;
}

static void take_record(uint32_t i, uint64_t epoch)
{
    struct sim_island *island = &sim->island[i];
    struct record record;
    assert_ok(record_copy(chain_at(sim->council.chain, epoch), &record));
    assert_ok(chain_add(island->chain, &record, &sim->council.digests[epoch]));
    island->epoch = epoch;
    island->known = 0;
    for (uint32_t k = 0; k < sim->n; k++)
        if (member_of(chain_last(island->chain), k) != NULL)
            island->known |= (uint64_t)1 << k;
}

void sim_load_chain(uint32_t i)
{
    struct sim_island *island = &sim->island[i];
    chain_free(island->chain);
    assert_ok(chain_new(&island->chain));
    for (uint64_t epoch = 0; epoch <= island->disk.epoch; epoch++)
        take_record(i, epoch);
}

static void begin_epoch(uint32_t i, uint64_t epoch)
{
    struct sim_island *island = &sim->island[i];
    take_record(i, epoch);
    island->disk.epoch = epoch;
    island->disk.sealed = false;
    struct sync_view view = sim_view(i);
    assert_ok(sync_begin_epoch(island->sync, &view, sim->now_ms));
    sim_drain(i);
}

/* Whether all who know the newest record are gone for good. Those who accepted it are a majority, and find it. */
static bool only_accepted(void)
{
    for (uint32_t k = 0; k < sim->n; k++)
        if (!sim->island[k].gone && sim->island[k].disk.epoch == sim->council.epoch)
            return false;
    return true;
}

void sim_learn(uint32_t i)
{
    struct sim_island *island = &sim->island[i];
    if (island->epoch == sim->council.epoch || !sim_chance(10))
        return;
    for (uint32_t k = 0; k < sim->n; k++)
        if ((k != i && reachable(i, k) && sim->island[k].epoch > island->epoch) || only_accepted()) {
            begin_epoch(i, island->epoch + 1);
            return;
        }
}

static void add_record(struct record *record)
{
    struct sim_council *council = &sim->council;
    uint64_t epoch = record->epoch;
    SIM_HOLDS(epoch < SIM_EPOCHS_MAX, "too many epochs");
    roster_add(council->chain, record);
    council->digests[epoch] = *chain_last_digest(council->chain);
    council->epoch = epoch;
}

void sim_found(void)
{
    struct record record = {.nonce = "simulated world", .map = shardmap_empty()};
    assert_ok(chain_new(&sim->council.chain));
    for (uint32_t i = 0; i < sim->n; i++)
        if (sim->island[i].enrolled)
            roster_join(&record, i, sim->island[i].wants_shards ? RECORD_OWNER : RECORD_CONTRIBUTOR);
    roster_map_owners(&record);
    if (sim->council.witness)
        roster_join(&record, witness(), RECORD_WITNESS);
    add_record(&record);
}

void sim_council_end(void)
{
    chain_free(sim->council.chain);
}

/* ---- why they meet ---- */

static bool due_to_join(uint32_t w)
{
    return !sim->island[w].enrolled && !sim->council.witness && sim->now_ms >= sim->island[w].revive_ms;
}

static bool wants_change(uint32_t w)
{
    const struct record_member *member = member_of(newest(), w);
    if (member == NULL)
        return due_to_join(w);
    bool out = member->role == RECORD_AWAY || member->role == RECORD_OBSERVER, gone = away(w);
    if (out || gone || sim_in_doubt(w))
        return out ? !gone && nearly_caught_up(w) : true;
    return (member->role == RECORD_OWNER) != sim->island[w].wants_shards;
}

static bool reason(void)
{
    bool any = false;
    if (!sim->healing && sim_below(1000) < sim->shuffle_permille) {
        uint32_t w = (uint32_t)sim_below(sim->n), owners = 0;
        sim->island[w].wants_shards ^= true;
        for (uint32_t k = 0; k < sim->n; k++)
            owners += sim->island[k].wants_shards && !sim->island[k].gone;
        if (owners == 0)
            sim->island[w].wants_shards = true;
        any = true; /* also if nothing changes */
    }
    for (uint32_t w = 0; w < sim->n && !any; w++)
        any = wants_change(w);
    return any;
}

/* ---- seals ---- */

static void give_seal(uint32_t w)
{
    struct sim_seal *seal = &sim->council.seals[w];
    struct sim_island *island = &sim->island[w];
    const struct chain_part *parts;
    struct digest digest;
    bool acknowledged;
    sync_seal(island->sync);
    island->disk.sealed = true;
    *seal = (struct sim_seal){.given = true};
    for (uint32_t f = 0; f < sim->fragments; f++) {
        uint32_t count = sync_parts(island->sync, f, &parts);
        seal->version[f] = island->version[f];
        for (uint32_t p = 0; p < count; p++)
            if (sync_held(island->sync, f, p, &digest, &acknowledged) && acknowledged)
                seal->held[f][seal->held_count[f]++] = sim_number(&digest);
    }
}

/* Those whom the proposer reaches seal one after the other; a disk in doubt does not, and what it said before is void.
 * So is what one said who is gone for good: it may have named a result whose bytes are nowhere else, and which the
 * others, who are enough without it, did not make count. */
static bool seal_enough(uint32_t p)
{
    const struct record *record = newest();
    uint32_t voters = sim->council.witness, without = 0;
    for (uint32_t w = 0; w < sim->n; w++) {
        struct sim_seal *seal = &sim->council.seals[w];
        if (!keeps(record, w))
            continue;
        if (doubted(record, w) || sim->island[w].gone)
            seal->given = false;
        else if (!seal->given && reachable(p, w) && sim->island[w].epoch == sim->council.epoch && sim_chance(20))
            give_seal(w);
        voters += seal->given;
        without += !seal->given;
    }
    return enough(record, voters, without);
}

/* ---- what the record says ---- */

static bool carries(const struct record *record, uint32_t f, uint32_t owner, uint64_t epoch)
{
    uint32_t count;
    const struct record_carried *carried = record_carried(record, f, &count);
    for (uint32_t k = 0; k < count; k++)
        if (carried[k].owner == roster_id(owner) && carried[k].epoch == epoch)
            return true;
    return false;
}

static void carry(struct record *draft, uint32_t f, uint32_t number)
{
    const struct sim_result *result = sim_result(number);
    struct digest digest = sim_digest(number);
    if (!carries(draft, f, result->owner, result->epoch))
        roster_carry(draft, f, result->owner, result->epoch, result->shards, &digest);
}

/* The highest version that any sealed voter has, and all results of the next one that any acknowledged. */
static void compose_fragment(struct record *draft, uint32_t f)
{
    const struct record *record = newest();
    uint64_t start = record_start(record, f);
    uint32_t count;
    for (uint32_t w = 0; w < sim->n; w++) {
        struct sim_seal *seal = &sim->council.seals[w];
        if (seal->given && sim->island[w].alive && sim->island[w].version[f] > seal->version[f])
            seal->version[f] = sim->island[w].version[f];
        if (seal->given && seal->version[f] > start)
            start = seal->version[f];
    }
    roster_start(draft, f, start);
    const struct record_carried *carried = record_carried(record, f, &count);
    for (uint32_t k = 0; k < count && start == record_start(record, f); k++)
        carry(draft, f, sim_number(&carried[k].digest));
    for (uint32_t w = 0; w < sim->n; w++) {
        const struct sim_seal *seal = &sim->council.seals[w];
        for (uint32_t k = 0; seal->given && k < seal->held_count[f]; k++)
            if (sim_result(seal->held[f][k])->version == start + 1)
                carry(draft, f, seal->held[f][k]);
    }
}

static enum record_role role_of(const struct record *draft, uint32_t p, uint32_t w)
{
    enum record_role now = (enum record_role)member_of(draft, w)->role;
    enum record_role wish = sim->island[w].wants_shards ? RECORD_OWNER : RECORD_CONTRIBUTOR;
    if (away(w))
        return RECORD_AWAY;
    bool ready = reachable(p, w) && caught_up(w, draft->starts);
    if (doubted(draft, w))
        return ready ? wish : RECORD_AWAY;
    return (now == RECORD_AWAY || now == RECORD_OBSERVER) && !ready ? now : wish;
}

/* Who is lost leaves the voters where another takes its place, where that lowers the majority, or beside a witness. */
static void drop_voters(struct record *draft, uint32_t added)
{
    uint32_t lost[SIM_N_MAX], count = 0, dropped = added, total = record_voters(draft);
    for (uint32_t w = 0; w < sim->n; w++)
        if (keeps(draft, w) && member_of(draft, w)->role == RECORD_AWAY)
            lost[count++] = w;
    while (dropped < count) {
        uint32_t left = total - dropped;
        if (left % 2 == 0 || sim->council.witness)
            dropped++;
        else if (dropped + 2 <= count)
            dropped += 2;
        else
            break;
    }
    for (uint32_t k = 0; k < count && k < dropped; k++)
        roster_role(draft, lost[k], RECORD_AWAY, false);
}

static void compose_members(struct record *draft, uint32_t p)
{
    uint32_t owners = 0, added = 0;
    for (uint32_t w = 0; w < sim->n; w++) {
        const struct record_member *old = member_of(draft, w);
        if (old == NULL)
            continue;
        enum record_role role = role_of(draft, p, w);
        bool voted = old->voter;
        if (role == RECORD_OWNER || role == RECORD_CONTRIBUTOR)
            for (uint32_t k = 0; k < draft->members_count; k++)
                if (draft->members[k].id == roster_id(w))
                    draft->members[k].incarnation = sim->island[w].incarnation;
        roster_role(draft, w, role, role == RECORD_OWNER || (role == RECORD_AWAY && voted));
        owners += role == RECORD_OWNER;
        added += role == RECORD_OWNER && !voted;
    }
    if (owners == 0)
        roster_role(draft, p, RECORD_OWNER, true);
    drop_voters(draft, added);
    roster_map_owners(draft);
    for (uint32_t w = 0; w < sim->n; w++) { /* new ones, in order */
        if (member_of(draft, w) != NULL)
            continue;
        if (!due_to_join(w))
            break;
        roster_join(draft, w, RECORD_OBSERVER);
    }
}

/* ---- when it may be decided ---- */

/* Whether it holds, on its disk, all that the record rests on. */
static bool has_what_it_rests_on(const struct record *draft, uint32_t w)
{
    const struct sim_island *island = &sim->island[w];
    if (!caught_up(w, draft->starts))
        return false;
    for (uint32_t k = 0; k < draft->carried_count; k++) {
        const struct record_carried *carried = &draft->carried[k];
        if (island->version[carried->fragment] < carried->version &&
            sim_find(&island->disk, carried->fragment, carried->version, carried->epoch,
                     roster_number(carried->owner)) != sim_number(&carried->digest))
            return false;
    }
    return true;
}

/* Somebody who has nearly caught up is waited for a little. */
static bool someone_gathers(const struct record *draft, uint32_t p)
{
    for (uint32_t w = 0; w < sim->n && sim->now_ms < sim->council.since_ms + GATHER_MS; w++) {
        const struct record_member *member = member_of(draft, w);
        bool out = member != NULL && (member->role == RECORD_AWAY || member->role == RECORD_OBSERVER);
        if (out && reachable(p, w) && !away(w) && nearly_caught_up(w))
            return true;
    }
    return false;
}

static bool may_decide(const struct record *draft, uint32_t p)
{
    uint32_t there = sim->council.witness, durable = 0;
    for (uint32_t w = 0; w < sim->n; w++) {
        bool good = keeps(draft, w) && reachable(p, w) && !doubted(draft, w);
        there += good;
        durable += good && has_what_it_rests_on(draft, w);
    }
    return there >= record_majority(draft) && durable >= record_certifying(draft) && !someone_gathers(draft, p);
}

/* Who lacks what the record rests on fetches it, sealed or not. */
static void want(const struct record *draft, uint32_t p)
{
    for (uint32_t k = 0; k < draft->carried_count; k++) {
        const struct record_carried *carried = &draft->carried[k];
        for (uint32_t w = 0; w < sim->n; w++)
            if (member_of(draft, w) != NULL && reachable(p, w) && sim->island[w].epoch == sim->council.epoch)
                sync_want(sim->island[w].sync, carried->fragment, carried->version, carried->epoch, carried->owner);
    }
}

static void decide(struct record *draft, uint32_t p)
{
    struct sim_council *council = &sim->council;
    for (uint32_t w = 0; w < sim->n; w++) {
        struct sim_island *island = &sim->island[w];
        if (island->enrolled || member_of(draft, w) == NULL)
            continue;
        island->enrolled = true;
        island->disk.epoch = island->older.epoch = draft->epoch;
        memset(island->disk.blank, true, sizeof island->disk.blank);
        memset(island->older.blank, true, sizeof island->older.blank);
    }
    add_record(draft);
    begin_epoch(p, council->epoch);
    memset(council->seals, 0, sizeof council->seals);
    council->sitting = false;
    council->next_ms = sim->now_ms + PAUSE_MS;
}

/* One of those who may speak: another one after a while, for it may be the one who reaches enough. */
static uint32_t proposer(void)
{
    uint32_t first = (uint32_t)((sim->now_ms - sim->council.since_ms) / TURN_MS);
    for (uint32_t k = 0; k < sim->n; k++) {
        uint32_t w = (first + k) % sim->n;
        if (keeps(newest(), w) && sim->island[w].alive && !sim_stopped(w) && !sim_in_doubt(w) &&
            sim->island[w].epoch == sim->council.epoch)
            return w;
    }
    return sim->n;
}

void sim_council(void)
{
    struct sim_council *council = &sim->council;
    look_who_is_there();
    if (!council->sitting) {
        if (sim->now_ms < council->next_ms || !reason())
            return;
        council->sitting = true;
        council->since_ms = sim->now_ms;
    }
    uint32_t p = proposer();
    if (p == sim->n || !seal_enough(p))
        return;
    struct record draft = roster_next(council->chain);
    for (uint32_t f = 0; f < sim->fragments; f++)
        compose_fragment(&draft, f);
    compose_members(&draft, p);
    want(&draft, p);
    if (may_decide(&draft, p))
        decide(&draft, p);
    record_deinit(&draft);
}
