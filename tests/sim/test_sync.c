/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The protocol of N islands in virtual time under a seeded network: the core (net/sync) and the membership
 * (net/membership) that the daemon has, joined as the daemon joins them. Faults in swarms drawn from the seed: delay,
 * loss, repetition, reordering, lines on which objects take turns, as in dilococtl plan, links broken both ways or one
 * way; daemons killed, some for good, proposers killed half-way, daemons stopped; what was not flushed lost, disks
 * full, slow, older or empty, power lost everywhere; killed trainers, damaged memory; islands that join, owners that
 * change, two proposers at once; a witness; a member that lies. After every event that could break it
 * (tests/lib/simcheck.c), for every seed:
 *   - I1: one result of a shard is ever applied, by whomever, and at most one ever committed; all islands that reach a
 *     version of a fragment have the same hash, and in the end all are at the same version;
 *   - I2, I3: no work is counted twice, and none is lost on islands nothing was killed on;
 *   - I5, I6: one configuration of an epoch; starts never fall; what an island applied is what the next configuration
 * names;
 *   - L: PROGRESS_MS after the last trouble every fragment has moved on, or, where memory was damaged or somebody lied
 *     and it is open whose state is right, DISPUTE_MS after it; of more than a FEW islands DOUBTS_MS later. The premise
 * is kept by the faults themselves (sim_can_spare()): a majority of the voters of the newest configuration, and of
 * every one proposed since, stays, with disks that are not in doubt; or all voters come back. One exception is counted:
 * a configuration may be decided that rests on a disk which was lost while it was, before anyone could know;
 *   - two daemons of one key, the second on a copy of the first one's disk, which take turns, harm nobody else: never
 *     do both vote in one epoch;
 *   - nobody believes a liar: what the bound is, simcheck.c says. One that made two results of one part is evicted in
 *     the end;
 *   - while all know that the run is paused no version is made but what was begun, and once it goes on all do;
 *   - what waits to be sent is bounded, however long a link is away.
 * A failure prints the seed. TEST_SEED=n repeats it, with TEST_TRACE=1 it tells what happened; TEST_SEEDS=n changes how
 * many are tried, from TEST_SEED_FIRST=n on; TEST_FILTER names the case, and TEST_MIX one of its mixes ("?" lists
 * them). make sim SEEDS=n FIRST=n runs so many of each mix, on all processors.
 */
#include "tests/lib/simworld.h"

#include <stdlib.h>
#include <string.h>

#include "common/digest.h"
#include "common/log.h"
#include "net/sync/sync.h"

enum {
    BACK_MS = 5000,
    WORK_MS = 60000,
    LOOK_MS = 20000,
    TURNS_MS = 70000, /* who hears but a few takes its other key after 40 s, and another one may do so after it */
    CALM_MS = 30000,
    CALM_EPOCHS = 5, /* somebody may be let in who has caught up only now */
    PROGRESS_MS = 45000,
    DOUBTS_MS = 40000, /* longer where many vote: after power loss disks leave doubt one after the other */
    FEW = 4,
    DISPUTE_MS = 120000, /* a contribution that was refused is offered again after a minute at most */
    MANY_WORK_MS = 20000,
    HEAL_MS = 240000,
    STEADY_FROM_MS = 10000,
    ORDERED_MS = 60000,
    STEADY_MS = 110000,
    STEADY_VERSIONS = 45,
    STEADY_STILL_MS = 30000 /* one that proposes takes longest: 26.9 s in one of a thousand worlds */
};

enum { PROGRESS_SEEDS = 1000 };

static uint32_t most_waiting;
static uint64_t epochs, versions, most_still_ms;
static unsigned worlds;
static struct sim_tally tally;
/* Of a steady world: since when each fragment stands at its version, and the longest that one did. */
static struct {
    uint64_t version[SIM_F_MAX], since_ms[SIM_F_MAX], most_ms;
} still;

/* The highest version anyone has. */
static uint64_t reached(uint32_t f)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < sim->n; i++)
        most = sim->island[i].version[f] > most ? sim->island[i].version[f] : most;
    return most;
}

/* Whether all that are alive know that the run is paused. */
static bool is_paused(void)
{
    bool any = false;
    for (uint32_t i = 0; i < sim->n; i++) {
        if (sim->island[i].alive && !sim_stands(i))
            return false;
        any = any || sim->island[i].alive;
    }
    return any;
}

/* What was contributed, or a result was made of, counts, wherever it is; and what trainers have given, also those of
 * islands that are down, may still be contributed, at worst one to a version. */
static uint64_t begun(uint32_t f)
{
    uint64_t version = reached(f), given = 0;
    for (uint32_t i = 0; i < sim->n; i++) {
        const struct sim_island *island = &sim->island[i];
        uint64_t contributed = island->out[f].version;
        version = contributed > version ? contributed : version;
        given += island->joined && island->trainer[f].word == SIM_SNAPSHOT;
    }
    for (size_t k = 1; k < sim->results_end; k++) {
        const struct sim_result *result = sim_result((uint32_t)k);
        if (result->fragment == f && result->version > version)
            version = result->version;
    }
    return version + given;
}

/* While all stand nothing is made but what was begun. */
static void check_paused(void)
{
    bool paused = sim->pauses && is_paused();
    if (paused && sim->paused_ms == 0) {
        sim->tally.paused++;
        for (uint32_t f = 0; f < sim->fragments; f++)
            sim->begun[f] = begun(f);
    }
    sim->paused_ms = !paused ? 0 : sim->paused_ms != 0 ? sim->paused_ms : sim->now_ms;
    for (uint32_t f = 0; paused && f < sim->fragments; f++)
        SIM_HOLDS(reached(f) <= sim->begun[f], "fragment %u reaches version %llu while the run is paused\n", f,
                  (unsigned long long)reached(f));
}

static void advance(void)
{
    sim->now_ms += SIM_STEP_MS;
    sim_repair();
    if (!sim->healing)
        sim_disturb();
    sim_turn();
    check_paused();
}

/* All that have not gone for good; and one of them. */
static bool stays(uint32_t i)
{
    /* All whom it ever knew may have gone: it needs another invitation, unless there is nobody else: a configuration
     * that it has just decided by itself is on its disk in a moment. */
    bool touch = sim->newest == sim->island[i].disk.epoch, alone = true;
    for (uint32_t k = 0; k < sim->n; k++) {
        bool other = k != i && !sim->island[k].gone;
        touch = touch || (other && sim_knows(i, k));
        alone = alone && !(other && sim->island[k].joined);
    }
    return (touch || alone) && sim->island[i].joined && !sim->island[i].gone && !(sim->evicted && i == sim->liar);
}

static uint32_t one_that_stays(void)
{
    uint32_t i = 0;
    while (!stays(i) || sim->island[i].witness)
        i++;
    return i;
}

static bool at_rest(void)
{
    uint32_t one = one_that_stays();
    for (uint32_t i = 0; i < sim->n; i++) {
        for (uint32_t f = 0; stays(i) && f < sim->fragments; f++) {
            if (sim->island[i].alive && sim->island[i].witness)
                continue;
            bool settled = sim->island[i].trainer[f].settled;
            if (!sim->island[i].alive || !settled || sim->island[i].version[f] != sim->island[one].version[f] ||
                !digest_equal(&sim->island[i].hash[f], &sim->island[one].hash[f]))
                return false;
        }
    }
    return true;
}

/* How many full voters of the newest configuration have the state that this one has. */
static uint32_t voters_like(uint32_t i, uint32_t f)
{
    const struct config *config = sim_newest();
    uint32_t count = 0;
    for (uint32_t k = 0; k < sim->n; k++) {
        const struct config_member *as = config_member(config, sim_id(k));
        count += as != NULL && as->voter && as->role != CONFIG_WITNESS && sim->island[k].alive &&
                 sim->island[k].version[f] == sim->island[i].version[f] &&
                 digest_equal(&sim->island[k].hash[f], &sim->island[i].hash[f]);
    }
    return count;
}

/* By a liar's fault two results of one part were applied, and no state that anybody has is had by so many that they
 * could certify it: nobody can take another's. Each has all its results proved; which is to stand, only people or
 * evidence can say (docs/FAILURES.md, "An island that lies"). */
static bool apart_for_good(void)
{
    bool apart = false;
    for (uint32_t f = 0; f < sim->fragments && sim->forked && sim->split; f++) {
        uint32_t most = 0;
        for (uint32_t i = 0; i < sim->n; i++) {
            uint32_t like = sim->island[i].alive ? voters_like(i, f) : 0;
            most = like > most ? like : most;
        }
        apart = apart || most < config_commit_quorum(sim_newest());
    }
    return apart;
}

static void print_fragment(uint32_t i, uint32_t f)
{
    const struct sim_island *island = &sim->island[i];
    const struct sim_trainer *t = &island->trainer[f];
    const struct owner *owner = sync_owner(island->sync, f);
    struct wire_standing own = sync_own(island->sync, f);
    struct bitset waiting = sync_waiting_for(island->sync, f);
    const struct version_part *parts;
    struct digest digest;
    bool acknowledged;
    uint32_t count = sync_parts(island->sync, f, &parts);
    print_message(
        "island %u fragment %u epoch %llu%s%s: version %llu %s contributed %llu abstained %llu trainer %d "
        "word %d settled %d work %u owner %s round %llu have %llx waits for",
        i, f, (unsigned long long)island->epoch, membership_sealed_ms(island->voice.membership) != 0 ? " sealed" : "",
        sim_in_doubt(i) ? " in doubt" : "", (unsigned long long)own.version,
        sync_state_name(sync_state(island->sync, f)), (unsigned long long)own.contributed,
        (unsigned long long)own.abstained, t->up, (int)t->word, t->settled, t->work, owner_state_name(owner->state),
        (unsigned long long)owner->round, (unsigned long long)bitset_word(&owner->have));
    for (uint32_t k = 0; k < sim->n; k++)
        if (sim_knows(i, k) && bitset_has(&waiting, sim_slot(i, k)))
            print_message(" %u", k);
    print_message(", parts");
    for (uint32_t p = 0; p < count; p++) {
        bool held = sync_held(island->sync, f, p, &digest, &acknowledged);
        print_message(" %u:%llu%s%s", sim_of(parts[p].id.owner), (unsigned long long)parts[p].id.epoch,
                      parts[p].carried ? " carried" : "", held ? acknowledged ? " acknowledged" : " held" : "");
    }
    print_message(", %u uncommitted, hash %02x%02x", sync_uncommitted(island->sync, f), own.hash.byte[0],
                  own.hash.byte[3]);
    if (sync_stands_against(island->sync, f) != SYNC_NOBODY)
        print_message(", stands against another");
    print_message("\n");
}

static const char *waits_of(uint32_t i)
{
    static char text[300];
    membership_waits(sim->island[i].voice.membership, text, sizeof text);
    return text;
}

static void print_world(void)
{
    const struct config *config = sim_newest();
    for (uint32_t k = 0; k < config->members_count; k++) {
        uint32_t i = sim_of(config->members[k].id);
        const struct sim_island *island = &sim->island[i];
        print_message("island %u: role %u%s, disk %llu%s, of epoch %llu, promised %llx, accepted %llx in %llu%s%s, the "
                      "configuration names %llu, %s\n",
                      i, config->members[k].role, config->members[k].voter ? " votes" : "",
                      (unsigned long long)island->disk.incarnation, sim_in_doubt(i) ? " in doubt" : "",
                      (unsigned long long)island->disk.epoch, (unsigned long long)island->disk.promised,
                      (unsigned long long)island->disk.accepted, (unsigned long long)island->disk.vote_epoch,
                      island->gone ? ", gone" : "", island->alive ? "" : ", down",
                      (unsigned long long)config->members[k].incarnation, island->alive ? waits_of(i) : "");
    }
    if (sim->lie != SIM_HONEST)
        print_message("island %u lied, in the way %d%s\n", sim->liar, (int)sim->lie, sim->forked ? ": a fork" : "");
    if (sim->second_lie != SIM_HONEST)
        print_message("island %u lied, in the way %d\n", sim->second, (int)sim->second_lie);
    for (uint32_t f = 0; f < sim->fragments; f++)
        print_message("epoch %llu starts fragment %u from %llu\n", (unsigned long long)config->epoch, f,
                      (unsigned long long)config_start(config, f));
    for (uint32_t i = 0; i < sim->n; i++)
        for (uint32_t f = 0; sim->island[i].alive && f < sim->fragments; f++)
            print_fragment(i, f);
}

/* In the end every unit of work of an undisturbed island is in exactly one result of a shard; that none is in two is
 * checked as results are applied. */
static void check_work(uint32_t f, uint32_t s)
{
    for (uint32_t i = 0; i < sim->n; i++) {
        uint64_t upto = 0;
        for (uint64_t v = 1; v < SIM_V_MAX && sim->truth[f][v][s] != 0; v++) {
            const struct sim_result *result = sim_result(sim->truth[f][v][s]);
            if ((result->contributors >> i & 1) == 0)
                continue;
            SIM_HOLDS(sim->island[i].disturbed || sim_from(result, i, s) == upto,
                      "fragment %u shard %u version %llu: work of island %u is missing\n", f, s, (unsigned long long)v,
                      i);
            upto = sim_to(result, i);
        }
        bool evicted = sim->evicted && i == sim->liar;
        SIM_HOLDS(sim->island[i].disturbed || evicted || upto == sim->island[i].trainer[f].work,
                  "fragment %u shard %u: the last work of island %u was lost\n", f, s, i);
    }
}

static bool everyone_heard_of(uint32_t i)
{
    for (uint32_t k = 0; k < sim->n; k++)
        if (k != i && stays(k) && sim_meet(i, k) && sim->island[k].greeted[i] != sim->island[i].session)
            return false;
    return true;
}

/* Who stands back is not let in and put out in turns. */
static void check_calm(void)
{
    uint64_t newest = sim->newest, until_ms = sim->now_ms + CALM_MS;
    while (sim->now_ms < until_ms)
        advance();
    if (sim->newest > newest + CALM_EPOCHS)
        print_world();
    SIM_HOLDS(sim->newest <= newest + CALM_EPOCHS, "epochs come and go for a line that is cut\n");
}

static bool moved_on(const uint64_t *before)
{
    for (uint32_t f = 0; f < sim->fragments; f++)
        if (reached(f) <= before[f])
            return false;
    return true;
}

static void add_up(void)
{
    const struct sim_tally *t = &sim->tally;
    worlds++;
    epochs += sim->newest;
    for (uint32_t f = 0; f < sim->fragments; f++)
        versions += reached(f);
    tally.blackouts += t->blackouts;
    tally.recoveries += t->recoveries;
    tally.older += t->older;
    tally.emptied += t->emptied;
    tally.witness_disks += t->witness_disks;
    tally.deaths += t->deaths;
    tally.joined += t->joined;
    tally.proposers_died += t->proposers_died;
    tally.forks += t->forks;
    tally.named += t->named > 0;
    tally.stuck += t->stuck;
    tally.apart += t->apart;
    tally.equivocated += t->equivocated > 0;
    tally.misproposed += t->misproposed > 0;
    tally.full += t->full;
    tally.uncommitted += t->uncommitted;
    tally.asked += t->asked;
    tally.rekeyed += t->rekeyed;
    tally.paused += t->paused;
    tally.forgiven += t->forgiven;
    tally.turns += t->turns;
    tally.distrusted += t->distrusted;
    tally.line_ms += t->line_ms;
}

static void print_tally(const char *name)
{
    print_message(
        "%s: %u worlds, %llu epochs, %llu versions; power lost everywhere %u, disks older %u, emptied %u "
        "(a witness's %u), doubts ended %u, islands gone %u, joined %u, proposers dead half-way %u, disks full %u, "
        "people ask %u, losses forgiven %u, turns of two daemons of one key %u (doubts %u), objects held lines for "
        "%llu s, forks by liars %u (for good %u), liars proved %u, states not committed %u, too much lost to go on %u, "
        "keys changed %u, the run paused %u, proposers named %u\n",
        name, worlds, (unsigned long long)epochs, (unsigned long long)versions, tally.blackouts, tally.older,
        tally.emptied, tally.witness_disks, tally.recoveries, tally.deaths, tally.joined, tally.proposers_died,
        tally.full, tally.asked, tally.forgiven, tally.turns, tally.distrusted,
        (unsigned long long)tally.line_ms / 1000, tally.forks, tally.apart, tally.equivocated, tally.uncommitted,
        tally.stuck, tally.rekeyed, tally.paused, tally.misproposed);
}

/* Two who are on the roster do not hear each other any more, or one of them does not hear the other one. Not the
 * witness: who votes with it alone, while a third one is lost, can decide nothing without it. */
static bool sever(void)
{
    uint32_t a = (uint32_t)sim_below(sim->n), b = (uint32_t)sim_below(sim->n);
    if (config_voters(sim_newest()) < 3) /* nothing could be decided between two that do not hear each other */
        return false;
    if (a == b || !sim->island[a].joined || !sim->island[b].joined || sim->island[a].witness || sim->island[b].witness)
        return false;
    if (sim->island[a].disk.epoch < sim->newest || sim->island[b].disk.epoch < sim->newest)
        return false; /* by what these know, nothing could be decided without them, and who knows better may be dead */
    sim_sever(a, b);
    if (sim_chance(60))
        sim_sever(b, a);
    return true;
}

static void begin_to_lie(void)
{
    bool sure = sim->steady && sim->now_ms >= STEADY_FROM_MS;
    for (uint32_t i = 0; sure && i < sim->n; i++)
        sure = !sim_in_doubt(i);
    sim->lying = sim->lying || sure;
}

static void note_standstill(void)
{
    for (uint32_t f = 0; sim->lying && f < sim->fragments; f++) {
        uint64_t version = reached(f);
        if (version != still.version[f] || still.since_ms[f] == 0) {
            still.version[f] = version;
            still.since_ms[f] = sim->now_ms;
        }
        uint64_t ms = sim->now_ms - still.since_ms[f];
        still.most_ms = ms > still.most_ms ? ms : still.most_ms;
    }
}

/* One that lies, and goes on lying, holds nobody up for long. */
static void check_steady(void)
{
    if (!sim->steady)
        return;
    for (uint32_t f = 0; f < sim->fragments; f++) {
        if (reached(f) < STEADY_VERSIONS)
            print_world();
        SIM_HOLDS(reached(f) >= STEADY_VERSIONS, "fragment %u is held up by lie %d of island %u: version %llu\n", f,
                  (int)sim->lie, sim->liar, (unsigned long long)reached(f));
    }
    most_still_ms = still.most_ms > most_still_ms ? still.most_ms : most_still_ms;
    if (still.most_ms > STEADY_STILL_MS)
        print_world();
    SIM_HOLDS(still.most_ms <= STEADY_STILL_MS, "lie %d of island %u holds a fragment up for %llu ms\n", (int)sim->lie,
              sim->liar, (unsigned long long)still.most_ms);
}

/* The premise of L: a configuration that was proposed while nobody knew yet that a disk was lost may rest on that disk
 * (`beyond`); and a liar may have split the voters so that only people can join them. True: it is counted, and no more
 * is asked of this world. */
static bool premise_is_gone(bool beyond)
{
    bool apart = !beyond && apart_for_good();
    if (!beyond && !apart)
        return false;
    sim->tally.stuck += beyond;
    sim->tally.apart += apart;
    add_up();
    return true;
}

static bool all_are_heard(void)
{
    for (uint32_t i = 0; i < sim->n; i++)
        if (stays(i) && !everyone_heard_of(i))
            return false;
    return true;
}

static void run_world(uint64_t work_ms)
{
    bool severed = false;
    uint64_t before[SIM_F_MAX], progress_ms = sim->flips || sim->lie != SIM_HONEST ? DISPUTE_MS : PROGRESS_MS;
    progress_ms += sim->n > FEW ? DOUBTS_MS : 0;
    sim_found();
    for (uint32_t i = 0; i < sim->n; i++)
        if (sim->island[i].joined)
            sim_start(i);
    while (sim->now_ms < work_ms) {
        if (sim->sever_ms != 0 && sim->now_ms >= sim->sever_ms && !severed)
            severed = sever();
        advance();
        begin_to_lie();
        note_standstill();
    }
    check_steady();
    sim->healing = true;
    sim->evicted = sim->lie == SIM_LIE_TWO || sim->lie == SIM_LIE_TWO_ACKS || sim->lie == SIM_LIE_COPY;
    for (uint32_t i = 0; i < sim->n && sim->evicted; i++)
        sim->island[i].wants_shards = true; /* somebody has to own what it did */
    sim->loss_percent = 0;
    for (uint32_t i = 0; i < sim->n; i++) {
        if (sim->island[i].revive_ms > sim->now_ms + BACK_MS)
            sim->island[i].revive_ms = sim->now_ms + BACK_MS;
        if (sim->island[i].go_on_ms > sim->now_ms + BACK_MS)
            sim->island[i].go_on_ms = sim->now_ms + BACK_MS;
    }
    for (uint32_t f = 0; f < sim->fragments; f++)
        before[f] = reached(f);
    while (sim->now_ms < work_ms + LOOK_MS || (sim->now_ms < work_ms + progress_ms && !moved_on(before)) ||
           (sim->rekeys && sim->now_ms < work_ms + TURNS_MS && !all_are_heard()))
        advance(); /* everyone is back and works a little more */
    if (!moved_on(before) && premise_is_gone(sim->beyond))
        return;
    if (!moved_on(before))
        print_world();
    SIM_HOLDS(moved_on(before), "a fragment does not move on\n");
    for (uint32_t i = 0; i < sim->n && sim->sever_ms == 0; i++)
        SIM_HOLDS(!stays(i) || everyone_heard_of(i), "island %u is not heard by everyone\n", i);
    if (sim->sever_ms != 0)
        check_calm();
    sim->finishing = true;
    while (sim->now_ms < work_ms + HEAL_MS && !at_rest())
        advance();
    if (!at_rest() && premise_is_gone(false))
        return;
    if (!at_rest())
        print_world();
    SIM_HOLDS(at_rest(), "the islands do not come to rest\n");
    /* Of two daemons the one that stands alone may be heard no more. */
    SIM_HOLDS(!sim->split || sim->tally.named > 0 || sim->copied, "nobody noticed a fork\n");
    for (uint32_t f = 0; f < sim->fragments; f++) {
        /* That it goes on at the pace it should was held above; a world may have begun late, with all disks in doubt.
         */
        SIM_HOLDS(sim->lie != SIM_HONEST || sim->island[one_that_stays()].version[f] > 0,
                  "fragment %u made no progress\n", f);
        for (uint32_t s = 0; s < sim->shards_counts[f] && !sim->forked; s++)
            check_work(f, s);
    }
    most_waiting = sim->waiting_most > most_waiting ? sim->waiting_most : most_waiting;
    add_up();
}

struct mix {
    const char *name;
    uint32_t n_min, n_max;
    bool rough, witness, quorum, liars, two, disks, sever, steady, copy, nat, rekeys, pauses;
    enum sim_lie lie; /* this one; SIM_HONEST: it is drawn */
};

/* Some of the islands are there from the beginning, and some of these own shards. */
static void join(uint32_t joiners)
{
    uint32_t owners = 0;
    for (uint32_t i = 0; i < sim->n; i++) {
        struct sim_island *island = &sim->island[i];
        island->joined = i + joiners < sim->n;
        island->wants_shards = sim_chance(70);
        island->uplink = 1000000;
        island->revive_ms = island->joined ? 0 : 5000 + sim_below(WORK_MS / 2);
        owners += island->joined && island->wants_shards;
    }
    if (owners == 0)
        sim->island[0].wants_shards = true;
}

/* One that owns shards lies. It is the one fault of disks then: whatever it says that it keeps may be lost. */
static void choose_liar(bool copy)
{
    enum sim_lie drawn = (enum sim_lie)(1 + sim_below(SIM_LIES - 2));
    drawn += drawn >= SIM_LIE_DRAFT;
    sim->lie = copy ? SIM_LIE_COPY : sim->seed % 11 == 0 ? SIM_LIE_DRAFT : drawn;
    sim->liar = (uint32_t)sim_below(sim->n);
    for (uint32_t i = 0; i < sim->n; i++)
        sim->island[i].wants_shards = sim->island[i].joined = true;
    sim->flips = sim->disks = sim->deaths = sim->blackouts = sim->full = false;
}

/* None of these is an acknowledgement by which a result counts, so disks may fail, too, and two may lie. */
static const enum sim_lie lies_without_evidence[] = {SIM_LIE_VERSION, SIM_LIE_HASH,   SIM_LIE_HELD,  SIM_LIE_MUTE,
                                                     SIM_LIE_IDLE,    SIM_LIE_DRAINS, SIM_LIE_FLAPS, SIM_LIE_DISK,
                                                     SIM_LIE_NAMES,   SIM_LIE_HIDES};
enum { LIES_WITHOUT_EVIDENCE = sizeof lies_without_evidence / sizeof lies_without_evidence[0] };

static enum sim_lie lie_without_evidence(void)
{
    return lies_without_evidence[sim_below(LIES_WITHOUT_EVIDENCE)];
}

static void choose_two_liars(void)
{
    choose_liar(false);
    sim->lie = lie_without_evidence();
    sim->second = (sim->liar + 1 + (uint32_t)sim_below(sim->n - 1)) % sim->n;
    sim->second_lie = lie_without_evidence();
}

/* Whatever else happens to disks. */
static void choose_liar_beside_disks(void)
{
    choose_liar(false);
    sim->lie = lie_without_evidence();
    sim->disks = true;
}

/* A line is cut for good. With one more out of the way there may be no majority that hears each other, nor where no
 * more than two vote. */
static void sever_later(void)
{
    sim->sever_ms = 1 + sim_below(WORK_MS);
    sim->disks = sim->deaths = sim->blackouts = false;
    sim->shuffle_permille = 0;
    for (uint32_t i = 0; i < sim->n; i++)
        sim->island[i].wants_shards = !sim->island[i].witness;
}

static void draw(const struct mix *mix)
{
    uint64_t seed = sim->seed;
    sim->fragments = 1 + (uint32_t)sim_below(SIM_F_MAX);
    sim->loss_percent = mix->rough ? (unsigned)sim_below(40) : 0;
    sim->kill_permille = mix->rough ? (unsigned)sim_below(8) : 0;
    sim->shuffle_permille = sim_chance(50) ? (unsigned)sim_below(3) : 0;
    sim->quorum = mix->quorum ? sim->n / 2 + 1 : 0;
    sim->flips = mix->rough && seed % 4 == 0;
    sim->disks = mix->rough && seed % 3 != 0;
    sim->deaths = mix->rough && seed % 5 < 3;
    sim->blackouts = mix->rough && seed % 7 < 2;
    sim->disk_ms = sim_chance(50) ? 1 + (uint32_t)sim_below(300) : 0;
    sim->full = mix->rough && sim_chance(30);
    sim->jumps = mix->rough && sim_chance(20);
    sim->forgives = mix->rough && seed % 9 == 2;
    sim->people = mix->rough && !mix->sever && sim_chance(30);
    sim->line_ms = mix->rough && sim_chance(20) ? SIM_LINE_MS + (uint32_t)sim_below(3000) : SIM_LINE_MS;
    sim->fragment_ms = mix->rough && seed % 4 == 1 ? 1 + (uint32_t)(seed % 150) : 0;
    for (uint32_t f = 0; f < sim->fragments; f++)
        sim->shards_counts[f] = 1 + (uint32_t)sim_below(SIM_SHARDS_FEW);
    uint32_t joiners = mix->sever ? sim->n - 3 : sim->n / 2; /* at most */
    if (mix->witness)                                        /* it is the last one, and joins later now and then */
        join(!mix->sever && sim_chance(30));
    else
        join(sim->n > 2 && sim_chance(50) ? (uint32_t)sim_below(joiners + 1) : 0);
    if (mix->witness) {
        sim->island[sim->n - 1].witness = true;
        sim->island[sim->n - 1].wants_shards = false;
        sim->island[0].wants_shards = sim->island[1].wants_shards = true;
    }
    for (uint32_t i = 1; i < sim->n && mix->nat; i += 2)
        sim->island[i].dials = true;
    if (mix->nat) /* else those that nobody can dial would be all that is left to own */
        sim->island[0].joined = sim->island[0].wants_shards = true;
    if (mix->two)
        choose_two_liars();
    else if (mix->disks)
        choose_liar_beside_disks();
    else if (mix->liars)
        choose_liar(mix->copy);
    if (mix->liars && mix->lie != SIM_HONEST)
        sim->lie = mix->lie;
    if (mix->sever)
        sever_later();
    sim->rekeys = mix->rekeys;
    sim->pauses = mix->pauses;
    if (mix->rekeys) /* whose folder is older than its key is let in anew by people */
        sim->disks = sim->deaths = sim->blackouts = false;
    sim->steady = mix->steady;
    if (!mix->steady)
        return;
    sim->lie = (enum sim_lie)(1 + sim_below(SIM_LIE_LOSES - 1));
    sim->lie = mix->lie != SIM_HONEST ? mix->lie : sim->lie;
    /* now and then an epoch */
    sim->shuffle_permille = sim->lie == SIM_LIE_PROMISE || sim->lie == SIM_LIE_ORDER;
    if (sim->lie == SIM_LIE_DRAFT && seed % 2 == 0)
        sim->island[sim->liar].uplink = 1; /* it owns next to nothing */
}

static void run_seed(uint64_t seed, const struct mix *mix)
{
    memset(&still, 0, sizeof still);
    sim_begin(seed, mix->n_min + (uint32_t)(seed % (mix->n_max - mix->n_min + 1)));
    draw(mix);
    run_world(mix->steady ? STEADY_MS : WORK_MS);
    sim_end();
}

/* With many, every now and then a line says how far it has come. */
static void run_mix(const struct mix *mix, unsigned initial)
{
    const char *one = getenv("TEST_SEED"), *from = getenv("TEST_SEED_FIRST"), *only = getenv("TEST_MIX");
    if (only != NULL && strcmp(only, mix->name) != 0) {
        if (strcmp(only, "?") == 0)
            print_message("mix: %s\n", mix->name);
        return;
    }
    unsigned count = one != NULL ? 1 : testlib_seeds(initial);
    uint64_t first = one != NULL ? strtoull(one, NULL, 10) : from != NULL ? strtoull(from, NULL, 10) : 1;
    memset(&tally, 0, sizeof tally);
    worlds = 0;
    epochs = versions = 0;
    for (unsigned k = 0; k < count; k++) {
        run_seed(first + k, mix);
        if ((k + 1) % PROGRESS_SEEDS == 0 && k + 1 < count)
            print_tally(mix->name);
    }
    print_tally(mix->name);
}

static void calm_islands_agree_and_lose_nothing(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= SIM_SMALL; n++)
        run_mix(&(struct mix){.name = "calm", .n_min = n, .n_max = n}, 8);
}

static void promises_hold_under_any_trouble(void **state)
{
    (void)state;
    run_mix(&(struct mix){.name = "trouble", .n_min = 2, .n_max = SIM_SMALL, .rough = true}, 500);
}

static void promises_hold_for_three_and_four(void **state)
{
    (void)state;
    run_mix(&(struct mix){.name = "three or four", .n_min = 3, .n_max = 4, .rough = true}, 400);
}

static void promises_hold_with_a_witness(void **state)
{
    (void)state;
    run_mix(&(struct mix){.name = "two and a witness", .n_min = 3, .n_max = 3, .rough = true, .witness = true}, 200);
    run_mix(&(struct mix){.name = "more and a witness", .n_min = 4, .n_max = 6, .rough = true, .witness = true}, 100);
}

static void promises_hold_with_a_quorum(void **state)
{
    (void)state;
    run_mix(&(struct mix){.name = "quorum", .n_min = 3, .n_max = SIM_SMALL, .rough = true, .quorum = true}, 200);
}

static void promises_hold_for_nine(void **state)
{
    (void)state;
    run_mix(&(struct mix){.name = "nine", .n_min = SIM_NINE, .n_max = SIM_NINE, .rough = true}, 40);
}

/* Keys change while islands are down, cut off, stopped, join and drain, also of the witness; and are taken back. Who
 * hears nobody by one of its keys tries the other. */
static void promises_hold_while_keys_change(void **state)
{
    (void)state;
    run_mix(&(struct mix){.name = "new keys, calm", .n_min = 1, .n_max = 5, .rekeys = true}, 30);
    run_mix(&(struct mix){.name = "new keys", .n_min = 2, .n_max = SIM_SMALL, .rough = true, .rekeys = true}, 150);
    run_mix(
        &(struct mix){
            .name = "new keys, and a witness", .n_min = 3, .n_max = 4, .rough = true, .witness = true, .rekeys = true},
        50);
}

/* By order, again and again; whoever comes, or comes back, meanwhile stands, too. */
static void promises_hold_while_the_run_is_paused_and_goes_on(void **state)
{
    (void)state;
    run_mix(&(struct mix){.name = "paused, calm", .n_min = 1, .n_max = 5, .pauses = true}, 50);
    run_mix(&(struct mix){.name = "paused", .n_min = 2, .n_max = SIM_SMALL, .rough = true, .pauses = true}, 150);
}

/* Every second one cannot be dialled, so that no two of these meet. */
static void promises_hold_behind_nat(void **state)
{
    (void)state;
    run_mix(&(struct mix){.name = "behind NAT", .n_min = 3, .n_max = 7, .rough = true, .nat = true}, 100);
}

static void a_line_that_is_cut_stops_nobody(void **state)
{
    (void)state;
    run_mix(&(struct mix){.name = "a line cut", .n_min = 3, .n_max = SIM_SMALL, .rough = true, .sever = true}, 75);
    run_mix(&(struct mix){.name = "a line cut, three", .n_min = 3, .n_max = 3, .rough = true, .sever = true}, 50);
    run_mix(
        &(struct mix){
            .name = "a line cut, and a witness", .n_min = 3, .n_max = 4, .rough = true, .sever = true, .witness = true},
        50);
}

static void nobody_believes_a_liar(void **state)
{
    (void)state;
    run_mix(&(struct mix){.name = "liars", .n_min = 3, .n_max = 6, .rough = true, .liars = true}, 225);
}

static void two_of_five_that_lie_are_not_believed(void **state)
{
    (void)state;
    run_mix(&(struct mix){.name = "two liars", .n_min = 5, .n_max = 7, .rough = true, .liars = true, .two = true}, 50);
}

static void a_liar_does_no_more_where_disks_fail(void **state)
{
    (void)state;
    run_mix(
        &(struct mix){
            .name = "a liar, older disks", .n_min = 3, .n_max = 6, .rough = true, .liars = true, .disks = true},
        50);
}

static void who_is_silent_to_some_ends_nothing(void **state)
{
    (void)state;
    run_mix(
        &(struct mix){
            .name = "names others", .n_min = 3, .n_max = 6, .rough = true, .liars = true, .lie = SIM_LIE_NAMES},
        40);
    run_mix(
        &(struct mix){
            .name = "silent to some", .n_min = 3, .n_max = 6, .rough = true, .liars = true, .lie = SIM_LIE_HIDES},
        40);
}

static void who_is_no_operator_orders_nothing(void **state)
{
    (void)state;
    run_mix(
        &(struct mix){
            .name = "false orders", .n_min = 3, .n_max = 6, .rough = true, .liars = true, .lie = SIM_LIE_ORDER},
        100);
    run_mix(
        &(struct mix){
            .name = "false orders, one", .n_min = 3, .n_max = 5, .liars = true, .steady = true, .lie = SIM_LIE_ORDER},
        20);
}

/* The voter whose turn is always first makes one configuration after another, and no order gets into any. */
static void who_leaves_orders_out_is_passed_over(void **state)
{
    (void)state;
    if (getenv("TEST_MIX") != NULL)
        return;
    uint64_t most_ms[2] = {0};
    for (uint64_t seed = 1; seed <= testlib_seeds(12); seed++) {
        sim_begin(seed, 3 + (uint32_t)seed % 4);
        sim->fragments = sim->shards_counts[0] = 1;
        sim->lie = SIM_LIE_LEAVES_OUT;
        sim->steady = true;
        join(0);
        sim_found();
        for (uint32_t i = 0; i < sim->n; i++) {
            sim->island[i].wants_shards = true;
            sim_start(i);
        }
        while (sim->now_ms < STEADY_FROM_MS + ORDERED_MS) {
            advance();
            begin_to_lie();
        }
        uint64_t epoch = sim->newest, from_ms = sim->now_ms;
        uint64_t uplink = sim->island[sim->n - 1].uplink += 7;
        bool said = false, carried_out = false;
        while (!said && sim->now_ms < from_ms + ORDERED_MS) {
            advance();
            said = config_member(sim_newest(), sim_id(sim->n - 1))->uplink == uplink;
        }
        SIM_HOLDS(sim->newest >= epoch + 2, "island 0 changes nothing: epochs %llu to %llu\n",
                  (unsigned long long)epoch, (unsigned long long)sim->newest);
        SIM_HOLDS(said, "a word waits for %d ms: epochs %llu to %llu\n", ORDERED_MS, (unsigned long long)epoch,
                  (unsigned long long)sim->newest);
        most_ms[0] = sim->now_ms - from_ms > most_ms[0] ? sim->now_ms - from_ms : most_ms[0];
        epoch = sim->newest;
        from_ms = sim->now_ms;
        sim_voice_order_steps(sim->n - 1);
        while (!carried_out && sim->now_ms < from_ms + ORDERED_MS) {
            advance();
            carried_out = sim_newest()->steps >= SIM_ORDERED_FROM && sim_newest()->steps < SIM_ORDERED_STEPS;
        }
        SIM_HOLDS(carried_out, "an order waits for %d ms: epochs %llu to %llu\n", ORDERED_MS, (unsigned long long)epoch,
                  (unsigned long long)sim->newest);
        most_ms[1] = sim->now_ms - from_ms > most_ms[1] ? sim->now_ms - from_ms : most_ms[1];
        sim_end();
    }
    print_message("a voter that leaves them out delayed a word by %llu ms, an order by %llu ms at most\n",
                  (unsigned long long)most_ms[0], (unsigned long long)most_ms[1]);
}

static void two_daemons_of_one_key_harm_nobody(void **state)
{
    (void)state;
    run_mix(&(struct mix){.name = "a copied disk", .n_min = 3, .n_max = 6, .rough = true, .liars = true, .copy = true},
            100);
}

static void a_liar_holds_nobody_up(void **state)
{
    (void)state;
    run_mix(&(struct mix){.name = "one liar", .n_min = 3, .n_max = 5, .liars = true, .steady = true}, 75);
    print_message("one liar: a fragment stood still for %llu ms at most\n", (unsigned long long)most_still_ms);
}

/* Whom one that lies may cost its shards, as long as it goes on: nobody, or one by its silence. It may cost nobody its
 * vote. */
static void check_nobody_is_out(void)
{
    uint32_t out = 0, may = 0, slots = 0;
    may += sim->lie == SIM_LIE_NAMES || sim->lie == SIM_LIE_HIDES;
    may += sim->second_lie == SIM_LIE_NAMES || sim->second_lie == SIM_LIE_HIDES;
    const struct config *config = sim_newest();
    for (uint32_t k = 0; k < sim->n; k++) {
        const struct config_member *member = config_member(config, sim_id(k));
        if (sim_is_liar(k))
            continue;
        SIM_HOLDS(member != NULL && member->voter, "island %u votes no more beside lie %d of island %u\n", k,
                  (int)sim->lie, sim->liar);
        out += member->role != CONFIG_OWNER;
    }
    for (uint32_t s = 0; s < SHARDMAP_SLOTS; s++)
        slots += sim->lie != SIM_HONEST && config->map.owner[s] == sim_id(sim->liar);
    if (out > may)
        print_world();
    SIM_HOLDS(out <= may, "%u islands own no more beside lie %d of island %u, which has %u slots\n", out, (int)sim->lie,
              sim->liar, slots);
}

/* Versions that are made from when it begins to lie until STEADY_MS. */
static uint64_t versions_beside(uint32_t n, enum sim_lie lie, enum sim_lie second, uint64_t seed)
{
    uint64_t at = 0, made = 0;
    sim_begin(seed, n);
    sim->fragments = 1 + (uint32_t)sim_below(SIM_F_MAX);
    for (uint32_t f = 0; f < sim->fragments; f++)
        sim->shards_counts[f] = 1 + (uint32_t)sim_below(SIM_SHARDS_FEW);
    sim->liar = (uint32_t)sim_below(sim->n);
    sim->lie = lie;
    sim->second = (sim->liar + 1 + (uint32_t)sim_below(sim->n - 1)) % sim->n;
    sim->second_lie = second;
    sim->steady = true;
    join(0);
    for (uint32_t i = 0; i < sim->n; i++)
        sim->island[i].wants_shards = true; /* one that is the only voter could end the run */
    sim_found();
    for (uint32_t i = 0; i < sim->n; i++)
        sim_start(i);
    while (sim->now_ms < STEADY_MS) {
        bool before = sim->lying;
        advance();
        begin_to_lie();
        for (uint32_t f = 0; !before && sim->lying && f < sim->fragments; f++)
            at += reached(f);
    }
    for (uint32_t f = 0; f < sim->fragments; f++)
        made += reached(f);
    check_nobody_is_out();
    sim_end();
    return made - at;
}

/* Without evidence against it: what it says costs the others a fifth of their rounds at most, while it goes on. */
static void a_liar_costs_a_fifth_of_the_rounds_at_most(void **state)
{
    (void)state;
    enum { FEWEST = 15 };
    static const struct {
        enum sim_lie lie;
        const char *does;
    } lies[] = {
        {SIM_LIE_VERSION, "says that it is a million versions ahead"},
        {SIM_LIE_HASH, "says that it has another state"},
        {SIM_LIE_HELD, "holds results that there are not"},
        {SIM_LIE_MUTE, "says that it contributes, and does not"},
        {SIM_LIE_IDLE, "makes no result of its part"},
        {SIM_LIE_DRAFT, "drafts an epoch far ahead, and refuses all others"},
        {SIM_LIE_PROMISE, "seals what there is not"},
        {SIM_LIE_LOSES, "keeps nothing of what it acknowledges"},
        {SIM_LIE_SEAL, "goes on acknowledging when it has sealed"},
        {SIM_LIE_ORDER, "is no operator, and orders and proposes what it may not"},
        {SIM_LIE_DRAINS, "is about to leave, and is not"},
        {SIM_LIE_FLAPS, "is heard, and is not"},
        {SIM_LIE_LEAVES_OUT, "proposes for ever, and leaves orders out"},
        {SIM_LIE_DISK, "says that its disk keeps nothing, and does again, by turns"},
        {SIM_LIE_NAMES, "says that it does not hear one after the other"},
        {SIM_LIE_HIDES, "is silent to one after the other"},
    };
    if (getenv("TEST_MIX") != NULL)
        return;
    unsigned asked = testlib_seeds(FEWEST), seeds = asked > FEWEST ? asked : FEWEST; /* fewer say nothing */
    uint64_t honest = 0;
    for (uint64_t seed = 1; seed <= seeds; seed++)
        honest += versions_beside(3 + (uint32_t)seed % 3, SIM_HONEST, SIM_HONEST, seed);
    for (size_t k = 0; k < sizeof lies / sizeof *lies; k++) {
        uint64_t beside = 0;
        for (uint64_t seed = 1; seed <= seeds; seed++)
            beside += versions_beside(3 + (uint32_t)seed % 3, lies[k].lie, SIM_HONEST, seed);
        print_message("%5.1f %% of the rounds beside one that %s\n", 100.0 * (double)beside / (double)honest,
                      lies[k].does);
        SIM_HOLDS(10 * beside >= 8 * honest, "it costs more: %llu versions, %llu without it\n",
                  (unsigned long long)beside, (unsigned long long)honest);
    }
}

/* Each kind beside itself, and beside others. Nobody honest is out by it, but one for each that is silent to some. */
static void two_liars_of_five_cost_a_fifth_of_the_rounds_at_most(void **state)
{
    (void)state;
    if (getenv("TEST_MIX") != NULL)
        return;
    uint64_t honest = 0, beside = 0;
    for (uint64_t seed = 1; seed <= testlib_seeds(2 * LIES_WITHOUT_EVIDENCE); seed++) {
        uint64_t kind = seed % LIES_WITHOUT_EVIDENCE,
                 other = (seed + seed / LIES_WITHOUT_EVIDENCE - 1) % LIES_WITHOUT_EVIDENCE;
        honest += versions_beside(5, SIM_HONEST, SIM_HONEST, seed);
        beside += versions_beside(5, lies_without_evidence[kind], lies_without_evidence[other], seed);
    }
    print_message("%5.1f %% of the rounds beside two of five that lie\n", 100.0 * (double)beside / (double)honest);
    SIM_HOLDS(5 * beside >= 4 * honest, "it costs more: %llu versions, %llu without them\n", (unsigned long long)beside,
              (unsigned long long)honest);
}

/* Worlds in which a fault was found that few others show. */
static const struct {
    struct mix mix;
    uint64_t seed;
} worlds_kept[] = {
    /* A disk recovers, and a configuration proposed before that names the one before it. */
    {{.name = "three or four", .n_min = 3, .n_max = 4, .rough = true}, 60039},
    {{.name = "two and a witness", .n_min = 3, .n_max = 3, .rough = true, .witness = true}, 60040},
    /* A disk forgets the configuration by which it votes. */
    {{.name = "quorum", .n_min = 3, .n_max = SIM_SMALL, .rough = true, .quorum = true}, 60208},
    /* A disk forgets that another island has the only vote, and was away where it believes to be. */
    {{.name = "trouble", .n_min = 2, .n_max = SIM_SMALL, .rough = true}, 5237},
    /* Power is lost everywhere in an epoch in which nobody takes part. */
    {{.name = "trouble", .n_min = 2, .n_max = SIM_SMALL, .rough = true}, 6748},
    /* An empty disk recovers when power was lost, and has no state yet of a fragment of which results are
       committed. */
    {{.name = "trouble", .n_min = 2, .n_max = SIM_SMALL, .rough = true}, 34945},
    /* A proposal waits for the voice of one whose disk is in doubt, which left it to that one. */
    {{.name = "trouble", .n_min = 2, .n_max = SIM_SMALL, .rough = true}, 53957},
    /* An empty disk asks the only one that still has what most have come to, and who cannot prove it. */
    {{.name = "trouble", .n_min = 2, .n_max = SIM_SMALL, .rough = true}, 83371},
    /* Who is far behind is left with one that has forgotten what a third one, gone since, signed. */
    {{.name = "quorum", .n_min = 3, .n_max = SIM_SMALL, .rough = true, .quorum = true}, 501210},
    /* Two have come so far; of these one's disk is another one, and the other has forgotten what it signed. */
    {{.name = "a copied disk", .n_min = 3, .n_max = 6, .rough = true, .liars = true, .copy = true}, 511540},
    /* Who is far behind is left with the only one that had come to a version when another one went for good. */
    {{.name = "more and a witness", .n_min = 4, .n_max = 6, .rough = true, .witness = true}, 515112},
    /* No state comes over a line that is cut; when it is mended, results still come one by one. */
    {{.name = "a line cut, three", .n_min = 3, .n_max = 3, .rough = true, .sever = true}, 520481},
    /* One asks for a result of an epoch that it does not know yet, and then for a state that nobody can prove. */
    {{.name = "three or four", .n_min = 3, .n_max = 4, .rough = true}, 531327},
    /* The only voter takes back what it lied, and everybody else has begun to ask for a state. */
    {{.name = "liars", .n_min = 3, .n_max = 6, .rough = true, .liars = true}, 514853},
    /* The only island that is left drains, is evicted, and resumes. */
    {{.name = "two and a witness", .n_min = 3, .n_max = 3, .rough = true, .witness = true}, 521},
    /* Of two who know the newest configuration one does not hear whoever asks for it. */
    {{.name = "a line cut, three", .n_min = 3, .n_max = 3, .rough = true, .sever = true}, 1245},
    /* The last that would own drains, and of those who would not one cannot be dialled. */
    {{.name = "behind NAT", .n_min = 3, .n_max = 7, .rough = true, .nat = true}, 701649},
    /* Two, and a witness: each one's disk confirms a state that the other does not have. */
    {{.name = "two and a witness", .n_min = 3, .n_max = 3, .rough = true, .witness = true}, 600112},
    /* A disk that is older than its last numbers recovers by itself: a word's came again, and an order's. */
    {{.name = "more and a witness", .n_min = 4, .n_max = 6, .rough = true, .witness = true}, 1693},
    {{.name = "more and a witness", .n_min = 4, .n_max = 6, .rough = true, .witness = true}, 850036},
    /* configurations without end that changed nothing: of what is not known yet, and of what others hear otherwise
     */
    {{.name = "quorum", .n_min = 3, .n_max = SIM_SMALL, .rough = true, .quorum = true}, 900526},
    {{.name = "a line cut, three", .n_min = 3, .n_max = 3, .rough = true, .sever = true}, 900497},
    {{.name = "false orders", .n_min = 3, .n_max = 6, .rough = true, .liars = true, .lie = SIM_LIE_ORDER}, 900993},
    /* One that is silent claims all results, and others lack some each. */
    {{.name = "one liar", .n_min = 3, .n_max = 5, .liars = true, .steady = true, .lie = SIM_LIE_DRAFT}, 452},
    /* It is asked for the state of a start to which results lead. */
    {{.name = "one liar", .n_min = 3, .n_max = 5, .liars = true, .steady = true, .lie = SIM_LIE_DRAFT}, 510},
    /* What each sends the other takes longer than it once did, and than it was waited for. */
    {{.name = "two and a witness", .n_min = 3, .n_max = 3, .rough = true, .witness = true}, 940081},
    /* An epoch starts many versions further on, all results of which are here. */
    {{.name = "a line cut, and a witness", .n_min = 3, .n_max = 4, .rough = true, .sever = true, .witness = true},
     940161},
    /* One is heard by a newcomer with a key that it stated, and not by one that was away and knows the other alone.
     */
    {{.name = "new keys", .n_min = 2, .n_max = SIM_SMALL, .rough = true, .rekeys = true}, 940276},
    /* Two of three voters would rather not own, the third is gone, and others come who would. */
    {{.name = "nine", .n_min = SIM_NINE, .n_max = SIM_NINE, .rough = true}, 950146},
    /* Two results split four voters evenly, and a request for the other one is lost. */
    {{.name = "liars", .n_min = 3, .n_max = 6, .rough = true, .liars = true}, 900013},
    /* Three complained of each other, are all out, and let nobody in. */
    {{.name = "a line cut, three", .n_min = 3, .n_max = 3, .rough = true, .sever = true}, 1010351},
    /* Three disks in doubt complain that those make no result who are sealed, to name them. */
    {{.name = "more and a witness", .n_min = 4, .n_max = 6, .rough = true, .witness = true}, 1010099},
    /* A majority has accepted a configuration, and one of it goes on acknowledging what the others make. */
    {{.name = "liars", .n_min = 3, .n_max = 6, .rough = true, .liars = true}, 1000106},
    /* Two do not know the configuration that changes both their keys, and hear each other. */
    {{.name = "new keys, and a witness", .n_min = 3, .n_max = 4, .rough = true, .witness = true, .rekeys = true},
     1000100},
};

static void worlds_that_once_broke_hold(void **state)
{
    (void)state;
    if (getenv("TEST_MIX") != NULL)
        return;
    for (size_t k = 0; k < sizeof worlds_kept / sizeof worlds_kept[0]; k++)
        run_seed(worlds_kept[k].seed, &worlds_kept[k].mix);
}

/* As many islands as a run may have. */
static void promises_hold_for_many_islands(void **state)
{
    (void)state;
    if (getenv("TEST_MIX") != NULL)
        return;
    static const uint32_t sizes[] = {16, 33, SIM_N_MAX};
    for (uint64_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        sim_begin(k + 1, sizes[k]);
        sim->fragments = 1;
        sim->loss_percent = 5;
        sim->kill_permille = 3;
        sim->deaths = true;
        sim->shards_counts[0] = SIM_SHARDS_MAX;
        join(4);
        run_world(MANY_WORK_MS);
        sim_end();
    }
}

int main(void)
{
    assert_ok(digest_init());
    const char *trace = getenv("TEST_TRACE");
    log_init("sim", trace != NULL && strcmp(trace, "debug") == 0 ? LOG_LEVEL_DEBUG : LOG_LEVEL_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calm_islands_agree_and_lose_nothing),
        cmocka_unit_test(promises_hold_under_any_trouble),
        cmocka_unit_test(promises_hold_for_three_and_four),
        cmocka_unit_test(promises_hold_with_a_witness),
        cmocka_unit_test(promises_hold_with_a_quorum),
        cmocka_unit_test(promises_hold_for_nine),
        cmocka_unit_test(promises_hold_while_keys_change),
        cmocka_unit_test(promises_hold_while_the_run_is_paused_and_goes_on),
        cmocka_unit_test(promises_hold_behind_nat),
        cmocka_unit_test(nobody_believes_a_liar),
        cmocka_unit_test(two_of_five_that_lie_are_not_believed),
        cmocka_unit_test(a_liar_does_no_more_where_disks_fail),
        cmocka_unit_test(who_is_silent_to_some_ends_nothing),
        cmocka_unit_test(who_is_no_operator_orders_nothing),
        cmocka_unit_test(who_leaves_orders_out_is_passed_over),
        cmocka_unit_test(two_daemons_of_one_key_harm_nobody),
        cmocka_unit_test(a_line_that_is_cut_stops_nobody),
        cmocka_unit_test(a_liar_holds_nobody_up),
        cmocka_unit_test(promises_hold_for_many_islands),
        cmocka_unit_test(a_liar_costs_a_fifth_of_the_rounds_at_most),
        cmocka_unit_test(two_liars_of_five_cost_a_fifth_of_the_rounds_at_most),
        cmocka_unit_test(worlds_that_once_broke_hold),
    };
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    print_message("at most %u objects of a fragment from one island to another\n", most_waiting);
    sim_free();
    return failures != 0;
}
