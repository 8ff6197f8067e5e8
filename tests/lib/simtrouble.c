#include "tests/lib/simworld.h"

#include <string.h>

#include "common/digest.h"

/* ---- trainers ---- */

void sim_trainers_up(uint32_t i)
{
    struct sim_island *island = &sim->island[i];
    for (uint32_t f = 0; f < sim->fragments; f++) {
        struct sim_trainer *t = &island->trainer[f];
        if (t->up || !sync_known(island->sync, f) || sync_state(island->sync, f) != SYNC_LISTENING)
            continue;
        /* It starts from the anchor: what was not counted is gone. */
        *t = (struct sim_trainer){.up = true, .work = t->work, .next_due_ms = sim->now_ms + 300 + sim_below(300)};
        for (uint32_t s = 0; s < sim->n; s++)
            island->counted[f][s] = t->work;
        sim_step(i, &(struct sync_event){.type = SYNC_EV_TRAINER_UP, .fragment = f, .version = island->version[f]});
    }
}

void sim_kill_trainer(uint32_t i)
{
    struct sim_island *island = &sim->island[i];
    island->disturbed = true;
    island->trainer_up_ms = sim->now_ms + 500 + sim_below(3000);
    for (uint32_t f = 0; f < sim->fragments; f++) {
        if (!island->trainer[f].up)
            continue;
        island->trainer[f].up = false;
        island->trainer[f].word = SIM_FREE;
        if (island->alive)
            sim_step(i, &(struct sync_event){.type = SYNC_EV_TRAINER_DOWN, .fragment = f});
    }
}

/* ---- disks ---- */

static void copy_disk(struct sim_disk *to, const struct sim_disk *from)
{
    uint32_t *ledger = to->ledger;
    *to = *from;
    to->ledger = ledger;
    memcpy(ledger, from->ledger, (size_t)SIM_F_MAX * SIM_V_MAX * sim->n * sizeof *ledger);
}

/* Whether nobody else has this record, and somebody has still to come past its version. Who lacks what is lost
 * everywhere can only take a state, which takes a majority; no trouble here goes that far. */
static bool last_copy(uint32_t i, uint32_t f, uint64_t version, uint32_t shard)
{
    uint32_t number = *sim_held(&sim->island[i].disk, f, version, shard);
    bool needed = false;
    for (uint32_t k = 0; k < sim->n && number != 0; k++) {
        if (k != i && *sim_held(&sim->island[k].disk, f, version, shard) == number)
            return false;
        needed |= k != i && sim->island[k].version[f] < version;
    }
    return needed;
}

/* Power was lost: from somewhere behind what was flushed on, the ledger is gone. */
static void lose_power(uint32_t i)
{
    struct sim_island *island = &sim->island[i];
    for (uint32_t f = 0; f < sim->fragments && sim_chance(50); f++) {
        uint64_t kept = island->flushed[f];
        for (uint64_t v = kept + 1; v < SIM_V_MAX; v++)
            for (uint32_t s = 0; s < sim->n; s++)
                kept = last_copy(i, f, v, s) ? v : kept;
        uint64_t cut = kept + 1 + (island->version[f] > kept ? sim_below(island->version[f] - kept + 1) : 0);
        for (uint64_t v = cut; v < SIM_V_MAX; v++)
            for (uint32_t s = 0; s < sim->n; s++)
                if (v > cut || sim_chance(70))
                    *sim_held(&island->disk, f, v, s) = 0;
    }
}

/* One disk at a time, and the next when that island has caught up: an older state that most of them have is what they
 * go on from. */
static bool can_be_lost(uint32_t i)
{
    for (uint32_t f = 0; f < sim->fragments; f++) {
        for (uint32_t k = 0; k < sim->n; k++)
            if (k != i && (!sim->island[k].alive || !sync_known(sim->island[k].sync, f) ||
                           sim->island[k].version[f] < sim->island[i].version[f]))
                return false;
        for (uint64_t v = 1; v < SIM_V_MAX; v++)
            for (uint32_t s = 0; s < sim->n; s++)
                if (last_copy(i, f, v, s))
                    return false;
    }
    return true;
}

/* It comes back as it was some time ago, or empty. */
static void lose_disk(uint32_t i)
{
    struct sim_island *island = &sim->island[i];
    memset(island->flushed, 0, sizeof island->flushed);
    if (sim_chance(60)) {
        copy_disk(&island->disk, &island->older);
    } else {
        memset(island->disk.ledger, 0, (size_t)SIM_F_MAX * SIM_V_MAX * sim->n * sizeof *island->disk.ledger);
        memset(island->disk.version, 0, sizeof island->disk.version);
        memset(island->disk.blank, true, sizeof island->disk.blank);
    }
}

/* ---- daemons ---- */

static void restore(uint32_t i, uint32_t f)
{
    struct sim_island *island = &sim->island[i];
    island->chain[f] = island->disk.chain[f];
    island->version[f] = island->disk.version[f];
    for (;;) {
        uint64_t next = island->version[f] + 1;
        uint64_t have = 0;
        for (uint32_t s = 0; s < sim->n; s++)
            have |= (uint64_t)(*sim_held(&island->disk, f, next, s) != 0) << s;
        if ((sim->shards[f] & ~have) != 0) {
            struct bitset results = bitset_of_word(have);
            sync_restore(island->sync, f, island->version[f], &island->chain[f], &results);
            return;
        }
        sim_arrive_at(i, f, next);
    }
}

void sim_start(uint32_t i)
{
    struct sim_island *island = &sim->island[i];
    struct bitset shards[SIM_F_MAX];
    for (uint32_t f = 0; f < sim->fragments; f++)
        shards[f] = bitset_of_word(sim->shards[f]);
    struct sync_conf conf = {.self = i,
                             .members_count = sim->n,
                             .fragments_count = sim->fragments,
                             .shards = shards,
                             .rule = {.quorum = sim->quorum, .grace_ms = 400}};
    assert_ok(sync_new(&conf, &island->sync));
    island->alive = true;
    island->session = ++sim->ids;
    island->sequence = 0;
    memset(island->greeted, 0, sizeof island->greeted);
    memset(island->greeted_last, 0, sizeof island->greeted_last);
    for (uint32_t f = 0; f < sim->fragments; f++) {
        island->version[f] = 0;
        memset(&island->chain[f], 0, sizeof island->chain[f]);
        if (!island->disk.blank[f])
            restore(i, f);
    }
}

void sim_crash(uint32_t i)
{
    struct sim_island *island = &sim->island[i];
    sim_kill_trainer(i);
    sync_free(island->sync);
    island->sync = NULL;
    island->alive = false;
    island->go_on_ms = 0;
    island->revive_ms = sim->now_ms + 200 + sim_below(5000);
    lose_power(i);
    if (sim->disks && sim->n > 1 && sim_chance(40) && can_be_lost(i))
        lose_disk(i);
}

void sim_stop(uint32_t i)
{
    sim->island[i].go_on_ms = sim->now_ms + 100 + sim_below(8000);
}

void sim_cut(uint32_t from, uint32_t to)
{
    if (sim->link_down[from][to])
        return;
    sim->link_down[from][to] = true;
    sim->link_ms[from][to] = sim->now_ms + 300 + sim_below(8000);
}

/* ---- when ---- */

static void disturb_island(uint32_t i)
{
    struct sim_island *island = &sim->island[i];
    if (!island->alive)
        return;
    if (sim_chance(60))
        sim_crash(i);
    else if (sim_chance(50))
        sim_kill_trainer(i);
    else
        sim_stop(i);
}

void sim_disturb(void)
{
    if (sim_below(1000) < sim->kill_permille)
        disturb_island((uint32_t)sim_below(sim->n));
    if (sim->disks && sim_below(1000) < 2) {
        struct sim_island *island = &sim->island[sim_below(sim->n)];
        copy_disk(&island->older, &island->disk);
    }
    if (sim_below(1000) < 2 * sim->kill_permille && sim->n > 1) {
        uint32_t a = (uint32_t)sim_below(sim->n);
        uint32_t b = (uint32_t)sim_below(sim->n);
        if (a != b)
            sim_cut(a, b);
        if (a != b && sim_chance(70))
            sim_cut(b, a);
    }
}

void sim_mend(void)
{
    for (uint32_t i = 0; i < sim->n; i++) {
        if (!sim->island[i].alive && sim->now_ms >= sim->island[i].revive_ms)
            sim_start(i);
        if (sim->island[i].alive && !sim_stopped(i) && sim->now_ms >= sim->island[i].trainer_up_ms)
            sim_trainers_up(i);
        for (uint32_t k = 0; k < sim->n; k++)
            if (sim->healing || sim->now_ms >= sim->link_ms[i][k])
                sim->link_down[i][k] = false;
    }
}
