/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/simworld.h"

#include <string.h>

#include "common/digest.h"

/* ---- trainers ---- */

void sim_trainers_up(uint32_t i)
{
    struct sim_island *island = &sim->island[i];
    for (uint32_t f = 0; f < sim->fragments && !island->witness; f++) {
        struct sim_trainer *t = &island->trainer[f];
        if (t->up || !sync_known(island->sync, f) || sync_state(island->sync, f) != SYNC_LISTENING)
            continue;
        /* It starts from the anchor: what was not counted is gone. */
        *t = (struct sim_trainer){.up = true, .work = t->work, .next_due_ms = sim->now_ms + 300 + sim_below(300)};
        for (uint32_t s = 0; s < sim->shards_counts[f]; s++)
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
    uint32_t *ledger = to->ledger, *commits = to->commits;
    *to = *from;
    to->ledger = ledger;
    to->commits = commits;
    memcpy(ledger, from->ledger, (size_t)SIM_F_MAX * SIM_V_MAX * sim->places * sizeof *ledger);
    memcpy(commits, from->commits, (size_t)SIM_F_MAX * SIM_V_MAX * SIM_SHARDS_MAX * sizeof *commits);
}

/* Results are on the disk before anybody is told of them, and all that was written before them; that a version was
 * made of them may not be. */
static void lose_commits(uint32_t i)
{
    struct sim_island *island = &sim->island[i];
    for (uint32_t f = 0; f < sim->fragments && sim_chance(50); f++) {
        uint64_t first = island->disk.version[f] + 1, version = island->version[f];
        first = island->disk.flushed[f] + 1 > first ? island->disk.flushed[f] + 1 : first;
        for (uint64_t v = version; v >= first && v + sim_below(3) >= version; v--)
            memset(sim_commit(&island->disk, f, v), 0, SIM_SHARDS_MAX * sizeof(uint32_t));
    }
}

/* It comes back as it was some time ago, or empty. */
static void lose_disk(uint32_t i)
{
    struct sim_island *island = &sim->island[i];
    struct sim_disk *disk = &island->disk;
    sim->tally.witness_disks += island->witness;
    island->forgot = true;
    if (disk->incarnation > island->forgot_upto)
        island->forgot_upto = disk->incarnation;
    if (sim_chance(60)) {
        copy_disk(disk, &island->older);
        sim_tell("island %u has an older disk", i);
        sim->tally.older++;
        return;
    }
    struct sim_disk empty = {.ledger = disk->ledger,
                             .commits = disk->commits,
                             .epoch = disk->epoch_first,
                             .epoch_first = disk->epoch_first,
                             .fresh = true};
    memset(disk->ledger, 0, (size_t)SIM_F_MAX * SIM_V_MAX * sim->places * sizeof *disk->ledger);
    memset(disk->commits, 0, (size_t)SIM_F_MAX * SIM_V_MAX * SIM_SHARDS_MAX * sizeof *disk->commits);
    memset(empty.blank, true, sizeof empty.blank);
    *disk = empty;
    sim->tally.emptied++;
}

/* Whether the disk may have forgotten something: as daemon/membership/vote.c finds out. It is another disk then. */
static void judge_disk(uint32_t i)
{
    struct sim_island *island = &sim->island[i];
    struct sim_disk *disk = &island->disk;
    const struct sim_mark *mark = &island->mark;
    if (disk->fresh)
        island->voting.doubt = mark->there ? VOTE_DOUBT : VOTE_FRESH;
    else if (!mark->there || mark->number != disk->number || mark->incarnation != disk->incarnation ||
             disk->stored < mark->stored)
        island->voting.doubt = VOTE_DOUBT;
    else
        island->voting.doubt = mark->doubt;
    island->voting.named = mark->named;
    island->voting.trusted_epoch = mark->trusted_epoch;
    bool same = mark->there && mark->number == disk->number && mark->incarnation == disk->incarnation &&
                disk->stored >= mark->stored;
    if (same)
        return; /* a disk in doubt that has forgotten nothing more is no other one */
    disk->incarnation = ++sim->incarnations;
    disk->number++;
    disk->fresh = false;
    sim_mark(i);
}

/* ---- daemons ---- */

static void restore(uint32_t i, uint32_t f)
{
    struct sim_island *island = &sim->island[i];
    island->hash[f] = island->disk.hash[f];
    island->version[f] = island->disk.version[f];
    while (sim_commit(&island->disk, f, island->version[f] + 1)[0] != 0)
        sim_arrive_at(i, f, island->version[f] + 1);
    sync_restore(island->sync, f, island->version[f], &island->hash[f]);
    sync_restore_steps(island->sync, sim_run_step(f, island->version[f]), 0);
}

void sim_start(uint32_t i)
{
    struct sim_island *island = &sim->island[i];
    judge_disk(i);
    sim_load_config_log(i);
    sim_voice_start(i);
    struct sync_conf conf = {.config_log = island->config_log,
                             .fragments_count = sim->fragments,
                             .shards_counts = sim->shards_counts,
                             .rule = {.quorum = sim->quorum, .grace_ms = 400},
                             .patience_ms = SIM_AWAY_MS,
                             .view = sim_view(i)};
    assert_ok(sync_new(&conf, &island->sync));
    sim_tell("island %u starts, disk %llu, doubt %d, epoch %llu", i, (unsigned long long)island->disk.incarnation,
             (int)island->voting.doubt, (unsigned long long)island->epoch);
    island->alive = true;
    island->session = ++sim->sessions;
    island->sequence = 0;
    memset(island->greeted, 0, sizeof island->greeted);
    memset(island->greeted_last, 0, sizeof island->greeted_last);
    for (uint32_t k = 0; k < sim->n; k++)
        island->heard_ms[k] = sim_clock(i);
    sim_voice_plan_known(i);
    for (uint32_t f = 0; f < sim->fragments; f++) {
        island->version[f] = 0;
        island->step_by_step[f] = false;
        memset(&island->hash[f], 0, sizeof island->hash[f]);
        if (!island->disk.blank[f] && !island->witness)
            restore(i, f);
    }
    for (uint32_t f = 0; f < sim->fragments; f++)
        if (!island->disk.blank[f] && !island->witness)
            sim_tell_held(i, f);
}

static void end_daemon(uint32_t i)
{
    sim_tell("island %u is killed", i);
    struct sim_island *island = &sim->island[i];
    sim_kill_trainer(i);
    sim_voice_end(i);
    sync_free(island->sync);
    island->sync = NULL;
    island->alive = island->die = false;
    island->go_on_ms = 0;
}

/* Whether all others could tell the island of the newest epoch: with one that has forgotten it, too, or never learned
 * of it, it may make a majority of the epoch that both know, whatever the run does. */
static bool others_remember(uint32_t i)
{
    for (uint32_t k = 0; k < sim->n; k++) {
        const struct sim_island *other = &sim->island[k];
        if (k != i && other->joined && !other->gone && other->disk.epoch < sim->newest)
            return false;
    }
    return true;
}

void sim_crash(uint32_t i)
{
    struct sim_island *island = &sim->island[i];
    end_daemon(i);
    island->revive_ms = sim->now_ms + 200 + sim_below(sim_chance(20) ? 20000 : 5000);
    if (!sim->disks || sim_chance(50) || !sim_can_spare(i))
        return; /* the process ended, the machine did not */
    if (sim_chance(40) && others_remember(i))
        lose_disk(i); /* with or without the machine */
    if (sim_chance(70)) {
        island->mark.there = false;
        lose_commits(i);
    }
}

/* Whether what the island held is also held by another, for all that counts. */
static bool is_spare_copy(uint32_t i)
{
    return config_commit_quorum(sim_newest()) >= 2 && others_remember(i);
}

/* Everywhere, or everywhere but at one; and one of the disks may come back older or empty, as long as others have what
 * it held: who recovers asks all of them. */
void sim_blackout(void)
{
    for (uint32_t i = 0; i < sim->n; i++) {
        if (sim->island[i].gone || !sim->island[i].joined)
            return; /* all voters have to come back */
        if (!sim->island[i].alive || sim_in_doubt(i))
            return;
    }
    sim->tally.blackouts++;
    uint32_t spared = sim_chance(30) ? (uint32_t)sim_below(sim->n) : sim->n;
    uint32_t loses = sim->disks && sim_chance(50) ? (uint32_t)sim_below(sim->n) : sim->n;
    for (uint32_t i = 0; i < sim->n; i++) {
        if (i == spared)
            continue;
        end_daemon(i);
        sim->island[i].revive_ms = sim->now_ms + 200 + sim_below(8000);
        if (i == loses && is_spare_copy(i))
            lose_disk(i);
        sim->island[i].mark.there = false;
        lose_commits(i);
    }
}

static void die(uint32_t i)
{
    if (!sim_can_spare(i))
        return;
    end_daemon(i);
    sim->island[i].gone = true;
    sim->tally.deaths++;
}

void sim_stop(uint32_t i)
{
    sim->island[i].go_on_ms = sim->now_ms + 100 + sim_below(sim_chance(20) ? 20000 : 8000);
}

void sim_cut(uint32_t from, uint32_t to)
{
    if (sim->link_down[from][to])
        return;
    sim->link_down[from][to] = true;
    sim->link_ms[from][to] = sim->now_ms + 300 + sim_below(8000);
}

void sim_sever(uint32_t from, uint32_t to)
{
    sim_tell("islands %u and %u are severed", from, to);
    sim->link_down[from][to] = sim->severed[from][to] = true;
}

/* ---- when ---- */

static void disturb_island(uint32_t i)
{
    struct sim_island *island = &sim->island[i];
    if (!island->alive)
        return;
    if (sim->deaths && sim_chance(10))
        die(i);
    else if (sim_chance(60))
        sim_crash(i);
    else if (sim_chance(50))
        sim_kill_trainer(i);
    else
        sim_stop(i);
}

/* Somebody at one island asks that the run goes on without another one; or drains it for a while. */
static void people_intervene(uint32_t i, uint32_t whom)
{
    struct sim_island *island = &sim->island[whom];
    sim->tally.asked++;
    if (sim_chance(50))
        island->drains_ms = sim->now_ms + 1000 + sim_below(20000);
    else if (sim->island[i].alive && i != whom)
        sim_voice_order_out(i, whom);
}

/* One whose people may order it. */
static void order_pause(bool pause)
{
    uint32_t i = (uint32_t)sim_below(sim->n);
    if (sim->island[i].alive && sim->island[i].joined)
        sim_voice_order_pause(i, pause);
}

/* Each lies in the world's array while it is heard: what points into it goes on pointing to its own. */
static void swap_daemons(void)
{
    struct sim_island *island = &sim->island[sim->liar], copy = sim->other;
    copy.wants_shards = island->wants_shards; /* these are its people's */
    copy.uplink = island->uplink;
    copy.drains_ms = island->drains_ms;
    copy.clock_ms = island->clock_ms; /* of both machines, so that one count holds for both */
    sim->other = *island;
    *island = copy;
}

/* The other machine has no mark: the copy is in doubt there, and another disk. */
static void copy_island(void)
{
    struct sim_island *island = &sim->island[sim->liar];
    sim->other = *island;
    *island = (struct sim_island){.joined = true, .disturbed = true, .clock_ms = sim->other.clock_ms};
    sim->other.disturbed = true;
    sim_new_disk(&island->disk);
    sim_new_disk(&island->older);
    copy_disk(&island->disk, &sim->other.disk);
    memcpy(island->counted, sim->other.counted, sizeof island->counted);
    for (uint32_t f = 0; f < sim->fragments; f++)
        island->trainer[f].work = sim->other.trainer[f].work;
    island->wants_shards = sim->other.wants_shards;
    island->uplink = sim->other.uplink;
    sim->copied = true;
}

void sim_take_turns(void)
{
    if (!sim->copied && (!sim->island[sim->liar].alive || sim_in_doubt(sim->liar)))
        return;
    if (!sim_can_spare(sim->liar)) /* a daemon that is not heard is as good as killed */
        return;
    sim_tell("island %u: the other daemon of its key speaks", sim->liar);
    sim->tally.turns++;
    if (sim->copied)
        swap_daemons();
    else
        copy_island();
}

/* A long time passes without anything, for all or, as far as their clocks can tell, for some. */
static void pass_long(void)
{
    bool all = sim_chance(50);
    uint64_t long_ms = SIM_FORGIVE_MS / 2 + sim_below(2 * SIM_FORGIVE_MS);
    for (uint32_t i = 0; i < sim->n; i++)
        if (all || sim_chance(50))
            sim->island[i].clock_ms += long_ms;
}

void sim_disturb(void)
{
    if (sim_below(1000) < sim->kill_permille)
        disturb_island((uint32_t)sim_below(sim->n));
    if (sim->blackouts && sim_below(3000) < 2)
        sim_blackout();
    if (sim_below(1000) < sim->shuffle_permille) {
        struct sim_island *island = &sim->island[sim_below(sim->n)];
        sim->tally.swaps++;
        island->wants_shards ^= sim_chance(50);
        island->uplink = 1000000 * (1 + sim_below(8));
        if (island->alive && sim_chance(50)) /* soon: of what a member says of itself an epoch hears later */
            sim_voice_order_steps((uint32_t)(island - sim->island));
    }
    if (sim->rekeys && sim_below(1000) < 3)
        sim_rekey();
    if (sim->people && sim_below(4000) < 4)
        people_intervene((uint32_t)sim_below(sim->n), (uint32_t)sim_below(sim->n));
    if (sim->pauses && sim->now_ms >= sim->pause_ms) {
        sim->pause_ms = sim->now_ms + 2000 + sim_below(8000);
        order_pause(!sim_newest()->paused);
    }
    if (sim->jumps && sim_below(4000) < 2)
        sim->island[sim_below(sim->n)].clock_ms += sim_below(40000);
    if (sim->lie == SIM_LIE_COPY && sim_below(1000) < 1 + sim->seed % 8)
        sim_take_turns();
    if (sim->forgives && sim_below(1000) < 2)
        pass_long();
    if (sim->full && sim_below(4000) < 2) {
        sim->island[sim_below(sim->n)].full_ms = sim->now_ms + 500 + sim_below(10000);
        sim->tally.full++;
    }
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

void sim_repair(void)
{
    if (sim->pauses && sim->healing && sim_newest()->paused && sim->now_ms >= sim->pause_ms) {
        sim->pause_ms = sim->now_ms + 500;
        order_pause(false);
    }
    for (uint32_t i = 0; i < sim->n; i++) {
        if (sim->island[i].joined && !sim->island[i].gone && !sim->island[i].alive &&
            sim->now_ms >= sim->island[i].revive_ms)
            sim_start(i);
        if (sim->island[i].alive && !sim_stopped(i) && sim->now_ms >= sim->island[i].trainer_up_ms)
            sim_trainers_up(i);
        for (uint32_t k = 0; k < sim->n; k++)
            if (!sim_meet(i, k))
                sim->link_down[i][k] = true;
            else if (sim->severed[i][k] ? sim->finishing : sim->healing || sim->now_ms >= sim->link_ms[i][k])
                sim->link_down[i][k] = sim->severed[i][k] = false;
    }
}
