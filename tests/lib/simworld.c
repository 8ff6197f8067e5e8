/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/simworld.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/digest.h"

struct sim_world *sim;

/* Large, and used from the start up: never cleared as a whole. */
static struct sim_job jobs[SIM_JOBS_MAX];
/* A liar that makes no result looks again now and then whether it still lies. */
enum { IDLE_MS = 1000 };

static struct sim_result results[SIM_RESULTS_MAX];

static size_t ledger_places(void)
{
    return (size_t)SIM_F_MAX * SIM_V_MAX * sim->places;
}

void sim_begin(uint64_t seed, uint32_t n)
{
    if (sim == NULL)
        sim = calloc(1, sizeof *sim);
    memset(sim, 0, offsetof(struct sim_world, island) + n * sizeof sim->island[0]);
    sim->seed = seed;
    sim->rng = env_rng_init(seed, n);
    sim->n = n;
    sim->places = 2 * n + 4;
    sim->line_ms = SIM_LINE_MS;
    sim->results_end = 1; /* 0: none */
    for (uint32_t i = 0; i < n; i++) {
        sim_new_disk(&sim->island[i].disk);
        sim_new_disk(&sim->island[i].older);
    }
}

void sim_new_disk(struct sim_disk *disk)
{
    disk->ledger = calloc(ledger_places(), sizeof(uint32_t));
    disk->commits = calloc((size_t)SIM_F_MAX * SIM_V_MAX * SIM_SHARDS_MAX, sizeof(uint32_t));
}

static void end_island(uint32_t i)
{
    struct sim_island *island = &sim->island[i];
    sim_voice_end(i);
    sync_free(island->sync);
    config_log_free(island->config_log);
    view_free(&island->view);
    free(island->disk.ledger);
    free(island->disk.commits);
    free(island->older.ledger);
    free(island->older.commits);
}

void sim_end(void)
{
    for (uint32_t i = 0; i < sim->n; i++)
        end_island(i);
    if (sim->copied) {
        sim->island[sim->liar] = sim->other;
        end_island(sim->liar);
    }
    for (size_t k = 1; k < sim->results_end; k++)
        free(results[k].spans);
    sim_configs_end();
}

void sim_free(void)
{
    free(sim);
    sim = NULL;
}

void sim_tell(const char *format, ...)
{
    static int wanted = -1;
    va_list args;
    if (wanted < 0)
        wanted = getenv("TEST_TRACE") != NULL;
    if (wanted == 0)
        return;
    printf("%llu ", (unsigned long long)sim->now_ms);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
}

/* ---- chance, and who is who ---- */

uint64_t sim_below(uint64_t bound)
{
    return env_rng_below(&sim->rng, bound);
}

bool sim_chance(unsigned percent)
{
    return sim_below(100) < percent;
}

bool sim_stopped(uint32_t i)
{
    return sim->now_ms < sim->island[i].go_on_ms;
}

uint64_t sim_clock(uint32_t i)
{
    return sim->now_ms + sim->island[i].clock_ms;
}

uint32_t sim_slot(uint32_t i, uint32_t k)
{
    return view_slot(&sim->island[i].view, sim_id(k));
}

uint32_t sim_at(uint32_t i, uint32_t slot)
{
    const struct view *view = &sim->island[i].view;
    return slot < view->count && view->members[slot].used ? sim_of(view->members[slot].as.id) : sim->n;
}

bool sim_knows(uint32_t i, uint32_t k)
{
    return (sim->island[i].known >> k & 1) != 0;
}

bool sim_meet(uint32_t i, uint32_t k)
{
    return !sim->island[i].dials || !sim->island[k].dials;
}

uint8_t sim_owner_choice(uint32_t i)
{
    const struct sim_island *island = &sim->island[i];
    uint8_t choice = island->wants_shards ? CONFIG_OWNER_AUTO : CONFIG_OWNER_NO;
    return island->dials ? config_owner_undialled(choice) : choice;
}

bool sim_linked(uint32_t i, uint32_t k)
{
    return !sim->link_down[i][k] && !sim->link_down[k][i];
}

/* ---- jobs ---- */

void sim_add_job(uint32_t i, uint64_t delay_ms, struct sync_event event, uint32_t result)
{
    size_t k = 0;
    while (k < sim->jobs_end && jobs[k].used)
        k++;
    SIM_HOLDS(k < SIM_JOBS_MAX, "too many jobs");
    jobs[k] = (struct sim_job){true, sim->now_ms + delay_ms, sim->island[i].session, i, result, event};
    sim->jobs_end = k >= sim->jobs_end ? k + 1 : sim->jobs_end;
}

/* ---- disks ---- */

uint32_t *sim_ledger(const struct sim_disk *disk, uint32_t f, uint64_t version)
{
    return &disk->ledger[((size_t)f * SIM_V_MAX + version) * sim->places];
}

uint32_t *sim_commit(const struct sim_disk *disk, uint32_t f, uint64_t version)
{
    return &disk->commits[((size_t)f * SIM_V_MAX + version) * SIM_SHARDS_MAX];
}

uint32_t sim_find(const struct sim_disk *disk, uint32_t f, uint64_t version, uint64_t epoch, uint32_t owner)
{
    const uint32_t *held = sim_ledger(disk, f, version);
    for (uint32_t p = 0; p < sim->places && held[p] != 0; p++)
        if (results[held[p]].epoch == epoch && results[held[p]].owner == owner)
            return held[p];
    return 0;
}

bool sim_keeps(const struct sim_disk *disk, uint32_t number)
{
    const uint32_t *held = sim_ledger(disk, results[number].fragment, results[number].version);
    for (uint32_t p = 0; p < sim->places && held[p] != 0; p++)
        if (held[p] == number)
            return true;
    return false;
}

void sim_keep(uint32_t i, uint32_t number)
{
    struct sim_island *island = &sim->island[i];
    struct sim_disk *disk = &island->disk;
    uint32_t *held = sim_ledger(disk, results[number].fragment, results[number].version), p = 0;
    if (sim_lies(i, SIM_LIE_LOSES) && results[number].owner != i)
        return;
    while (p < sim->places && held[p] != 0 && held[p] != number)
        p++;
    SIM_HOLDS(p < sim->places, "too many results of one version");
    if (held[p] == 0)
        sim_tell("island %u keeps result %u of island %u, epoch %llu, fragment %u version %llu shards %llx of %llx", i,
                 number, results[number].owner, (unsigned long long)results[number].epoch, results[number].fragment,
                 (unsigned long long)results[number].version, (unsigned long long)results[number].shards,
                 (unsigned long long)results[number].contributors);
    for (uint32_t f = 0; f < sim->fragments && held[p] == 0; f++)
        disk->flushed[f] = island->version[f];
    disk->stored += held[p] == 0;
    held[p] = number;
    sim_mark(i);
}

/* ---- results ---- */

const struct sim_result *sim_result(uint32_t number)
{
    return &results[number];
}

uint32_t sim_to(const struct sim_result *result, uint32_t island)
{
    return result->spans[island * (1 + sim->shards_counts[result->fragment])];
}

uint32_t sim_from(const struct sim_result *result, uint32_t island, uint32_t shard)
{
    return result->spans[island * (1 + sim->shards_counts[result->fragment]) + 1 + shard];
}

struct digest sim_digest(uint32_t number)
{
    struct digest digest = digest_of(&number, sizeof number);
    memcpy(digest.byte + DIGEST_BYTES - sizeof number, &number, sizeof number);
    return digest;
}

uint32_t sim_number(const struct digest *digest)
{
    uint32_t number;
    memcpy(&number, digest->byte + DIGEST_BYTES - sizeof number, sizeof number);
    return number;
}

/* Two daemons of one key may each make a result of one part. */
static void look_for_other(struct sim_result *result, uint32_t number)
{
    for (uint32_t k = number; sim->copied && result->owner == sim->liar && k-- > 1;) {
        struct sim_result *other = &results[k];
        if (other->owner != result->owner || other->fragment != result->fragment || other->version != result->version ||
            other->epoch != result->epoch || other->twin != 0)
            continue;
        other->twin = number;
        result->twin = k;
        return;
    }
}

/* The mean over these members' contributions (by slot) for our part. */
static uint32_t reduce(uint32_t i, uint32_t f, uint64_t version, const struct bitset *have)
{
    struct sim_island *island = &sim->island[i];
    uint32_t shards_count = sim->shards_counts[f], number = (uint32_t)sim->results_end;
    const struct version_part *parts;
    SIM_HOLDS(number < SIM_RESULTS_MAX, "too many results");
    struct sim_result *result = &results[sim->results_end++];
    *result = (struct sim_result){.fragment = f, .owner = i, .version = version, .epoch = island->epoch};
    result->spans = calloc((size_t)sim->n * (1 + shards_count), sizeof *result->spans);
    look_for_other(result, number);
    uint32_t count = sync_parts(island->sync, f, &parts);
    for (uint32_t p = 0; p < count; p++)
        if (!parts[p].carried && parts[p].id.owner == sim_id(i) && parts[p].id.epoch == island->epoch)
            result->shards = parts[p].shards;
    SIM_HOLDS(result->shards != 0, "island %u reduces a part that is not its own\n", i);
    for (uint32_t k = 0; k < sim->n; k++) {
        if (!sim_knows(i, k) || !bitset_has(have, sim_slot(i, k)))
            continue;
        const struct sim_contribution *c = k == i ? &island->out[f] : &island->in[f][k];
        SIM_HOLDS(c->there && c->version == version && c->epoch == island->epoch,
                  "island %u reduces version %llu with a contribution of island %u to version %llu, epoch %llu\n", i,
                  (unsigned long long)version, k, (unsigned long long)c->version, (unsigned long long)c->epoch);
        result->contributors |= (uint64_t)1 << k;
        result->spans[k * (1 + shards_count)] = c->to;
        memcpy(&result->spans[k * (1 + shards_count) + 1], c->from, shards_count * sizeof *c->from);
    }
    return number;
}

/* The next hash of a fragment: a digest of the last one and all shards' results. */
static struct digest next_hash(const struct sim_disk *disk, const struct digest *last, uint32_t f, uint64_t version)
{
    struct digest_state state;
    digest_begin(&state);
    digest_add(&state, last, sizeof *last);
    digest_add(&state, sim_commit(disk, f, version), sim->shards_counts[f] * sizeof(uint32_t));
    return digest_end(&state);
}

static void count_our_work(uint32_t i, uint32_t f, uint32_t s, uint32_t number)
{
    uint32_t *counted = &sim->island[i].counted[f][s];
    const struct sim_result *result = &results[number];
    if ((result->contributors >> i & 1) != 0 && sim_to(result, i) > *counted)
        *counted = sim_to(result, i);
}

void sim_arrive_at(uint32_t i, uint32_t f, uint64_t version)
{
    struct sim_island *island = &sim->island[i];
    island->hash[f] = next_hash(&island->disk, &island->hash[f], f, version);
    island->version[f] = version;
    for (uint32_t s = 0; s < sim->shards_counts[f]; s++)
        count_our_work(i, f, s, sim_commit(&island->disk, f, version)[s]);
}

uint32_t sim_twin(uint32_t number)
{
    uint32_t shards_count = sim->shards_counts[results[number].fragment], twin = (uint32_t)sim->results_end;
    size_t spans = (size_t)sim->n * (1 + shards_count);
    if (results[number].twin != 0)
        return results[number].twin;
    SIM_HOLDS(twin < SIM_RESULTS_MAX, "too many results");
    results[sim->results_end++] = results[number];
    results[twin].spans = calloc(spans, sizeof *results[twin].spans);
    memcpy(results[twin].spans, results[number].spans, spans * sizeof *results[twin].spans);
    results[twin].acknowledged = 0;
    results[twin].committed = false;
    results[twin].twin = number;
    results[number].twin = twin;
    return twin;
}

/* ---- actions ---- */

static void do_encode(uint32_t i, uint32_t f, uint64_t version)
{
    struct sim_island *island = &sim->island[i];
    island->out[f] = (struct sim_contribution){.there = true,
                                               .version = version,
                                               .epoch = island->epoch,
                                               .to = island->trainer[f].snapshot_work,
                                               .base = island->hash[f]};
    memcpy(island->out[f].from, island->counted[f], sizeof island->counted[f]);
    SIM_HOLDS(!island->trainer[f].up || island->trainer[f].word == SIM_SNAPSHOT, "island %u encodes no snapshot\n", i);
    bool refused = sim_chance(2) && !sim->healing;
    sim_add_job(i, 1 + sim_below(60),
                (struct sync_event){.type = refused ? SYNC_EV_REFUSED : SYNC_EV_ENCODED, .fragment = f}, 0);
}

static void do_fetch(uint32_t i, const struct sync_action *action)
{
    uint32_t from = sim_at(i, action->member);
    struct sim_island *other = &sim->island[from];
    const struct wire_key *key = &action->key;
    SIM_HOLDS(!sim->island[i].witness && !other->witness,
              "island %u asks island %u for bytes, and one is the witness\n", i, from);
    sim_tell("island %u asks island %u for a %s: fragment %u version %llu", i, from,
             key->kind == WIRE_STATE ? "state" : "result", key->fragment, (unsigned long long)key->version);
    if (!other->alive || sim->link_down[i][from] || sim_chance(sim->loss_percent) || !sim_lets_in(from, i))
        return;
    if (sim_stopped(from) || sim_lies(from, SIM_LIE_DRAFT))
        return; /* it is as if the request were lost */
    bool has = key->kind == WIRE_STATE
                   ? other->version[key->fragment] == key->version && sync_known(other->sync, key->fragment)
                   : sim_find(&other->disk, key->fragment, key->version, key->epoch, sim_of(key->owner)) != 0;
    if (has)
        sim_add_object(from, i, key);
    else
        sim_add_job(i, 5 + sim_below(50),
                    (struct sync_event){.type = SYNC_EV_NOT_AVAILABLE, .member = action->member, .key = *key}, 0);
}

/* Where checkpoint and commits lead: the hash of `version`, if they go so far. */
static struct sync_event replay(uint32_t i, uint32_t f, uint64_t version)
{
    struct sim_disk *disk = &sim->island[i].disk;
    struct sync_event event = {.type = SYNC_EV_REPLAYED, .fragment = f, .version = version, .hash = disk->hash[f]};
    bool leads = disk->version[f] <= version;
    for (uint64_t v = disk->version[f] + 1; v <= version && leads; v++) {
        leads = sim_commit(disk, f, v)[0] != 0;
        event.hash = next_hash(disk, &event.hash, f, v);
    }
    if (!leads)
        event.type = SYNC_EV_UNPROVEN;
    return event;
}

static void do_repair(uint32_t i, uint32_t f, uint64_t version)
{
    struct sync_event event = replay(i, f, version);
    if (event.type == SYNC_EV_REPLAYED)
        event.type = SYNC_EV_INSTALLED;
    sim_add_job(i, 20 + sim_below(200), event, 0);
}

static void do_store(uint32_t i, uint32_t f, uint64_t version)
{
    const struct sim_result *result = &results[sim->island[i].next[f]];
    SIM_HOLDS(result->version == version, "island %u stores another version than it made\n", i);
    sim_add_job(i, 1 + sim_below(20),
                (struct sync_event){.type = SYNC_EV_STORED,
                                    .fragment = f,
                                    .version = version,
                                    .epoch = result->epoch,
                                    .owner = sim_id(i),
                                    .hash = sim_digest(sim->island[i].next[f]),
                                    .member = sim_slot(i, i)},
                sim->island[i].next[f]);
}

/* With the results that count now. */
static void do_apply(uint32_t i, uint32_t f, uint64_t version)
{
    struct sim_island *island = &sim->island[i];
    const struct version_part *parts;
    struct digest digest;
    bool acknowledged;
    uint64_t shards = 0;
    SIM_HOLDS(version == island->version[f] + 1, "island %u applies out of order\n", i);
    uint32_t count = sync_parts(island->sync, f, &parts);
    for (uint32_t p = 0; p < count; p++) {
        SIM_HOLDS(sync_held(island->sync, f, p, &digest, &acknowledged), "island %u applies what it lacks\n", i);
        const struct sim_result *result = &results[sim_number(&digest)];
        SIM_HOLDS(result->shards == parts[p].shards && (shards & parts[p].shards) == 0,
                  "island %u applies result %u to the wrong shards\n", i, sim_number(&digest));
        shards |= parts[p].shards;
        for (uint32_t s = 0; s < sim->shards_counts[f]; s++)
            if ((parts[p].shards >> s & 1) != 0)
                island->applying[f][s] = sim_number(&digest);
    }
    SIM_HOLDS(shards == UINT64_MAX >> (64 - sim->shards_counts[f]), "island %u applies some shards only\n", i);
    sim_add_job(i, 1 + sim_below(40), (struct sync_event){.type = SYNC_EV_MADE, .fragment = f}, 0);
}

static void do_send(uint32_t i, const struct sync_action *action)
{
    const struct wire_key *key = &action->key;
    SIM_HOLDS(key->kind != WIRE_RESULT ||
                  sim_find(&sim->island[i].disk, key->fragment, key->version, key->epoch, i) != 0,
              "island %u publishes a result that is not stored\n", i);
    SIM_HOLDS(key->kind != WIRE_CONTRIBUTION || sim_of(key->owner) == sim_at(i, action->member),
              "island %u sends a contribution to somebody else than its owner\n", i);
    SIM_HOLDS(!sim->island[sim_at(i, action->member)].witness, "island %u sends bytes to the witness\n", i);
    if (key->kind == WIRE_CONTRIBUTION && sim_lies(i, SIM_LIE_MUTE))
        return;
    sim_add_object(i, sim_at(i, action->member), key);
}

static void do_action(uint32_t i, const struct sync_action *action)
{
    struct sim_island *island = &sim->island[i];
    uint32_t f = action->fragment;
    switch (action->type) {
    case SYNC_DO_ENCODE: do_encode(i, f, action->version); break;
    case SYNC_DO_RELEASE:
        if (island->trainer[f].word == SIM_SNAPSHOT)
            island->trainer[f].word = SIM_FREE;
        break;
    case SYNC_DO_SEND: do_send(i, action); break;
    case SYNC_DO_REDUCE:
        sim_retire(i, WIRE_RESULT, f, action->version - 1); /* as the daemon does: who still lacks it asks for it */
        island->next[f] = reduce(i, f, action->version, &sync_owner(island->sync, f)->have);
        sim_add_job(i, sim_lies(i, SIM_LIE_IDLE) ? IDLE_MS : 1 + sim_below(40),
                    (struct sync_event){.type = SYNC_EV_REDUCED, .fragment = f}, 0);
        break;
    case SYNC_DO_STORE: do_store(i, f, action->version); break;
    case SYNC_DO_APPLY: do_apply(i, f, action->version); break;
    case SYNC_DO_PUBLISH:
        SIM_HOLDS(island->trainer[f].up, "island %u gives an anchor to nobody\n", i);
        island->trainer[f].word = SIM_ANCHOR;
        sim_add_job(i, 1 + sim_below(100), (struct sync_event){.type = SYNC_EV_MIXED, .fragment = f}, 0);
        break;
    case SYNC_DO_WITHDRAW: break; /* the trainer is always just about to take it: MIXED comes */
    case SYNC_DO_FETCH: do_fetch(i, action); break;
    case SYNC_DO_REPLAY: sim_add_job(i, 20 + sim_below(200), replay(i, f, action->version), 0); break;
    case SYNC_DO_REPAIR: do_repair(i, f, action->version); break;
    case SYNC_DO_RETIRE: sim_retire(i, WIRE_CONTRIBUTION, f, action->version); break;
    case SYNC_DO_ANNOUNCE: island->announce = true; break;
    case SYNC_DO_REPORT:
        SIM_HOLDS(action->report != SYNC_REPORT_ILLEGAL, "island %u: illegal event\n", i);
        sim->tally.named += action->report == SYNC_REPORT_DIVERGED || action->report == SYNC_REPORT_PEER_DIVERGED;
        break;
    }
}

void sim_drain(uint32_t i)
{
    struct sync_action action;
    while (sync_action(sim->island[i].sync, &action))
        do_action(i, &action);
}

uint32_t sim_units(uint32_t i)
{
    return sim->island[i].witness ? 0 : 1 + (uint32_t)(sim->island[i].uplink % 7);
}

uint64_t sim_run_step(uint32_t f, uint64_t version)
{
    return 10 * version + f;
}

void sim_step(uint32_t i, const struct sync_event *event)
{
    struct sync_event stepped = *event;
    bool applied_it = event->type == SYNC_EV_APPLIED;
    stepped.step = sim_run_step(event->fragment, applied_it ? sim->island[i].version[event->fragment] : event->version);
    sync_step(sim->island[i].sync, &stepped, sim_clock(i));
    if (applied_it)
        sim_check_deal(i);
    sim_drain(i);
}

/* ---- jobs come due ---- */

/* Now and then nothing is told before the hash. */
static bool made(uint32_t i, uint32_t f)
{
    struct sim_island *island = &sim->island[i];
    memcpy(sim_commit(&island->disk, f, island->version[f] + 1), island->applying[f], sizeof island->applying[f]);
    sim_check_applied(i, f, island->version[f] + 1);
    sim_add_job(i, 1 + sim_below(sim_chance(20) ? 400 : 40),
                (struct sync_event){.type = SYNC_EV_APPLIED, .fragment = f}, 0);
    return !sim_chance(20);
}

/* As the daemon does, of each result that came in: whether another one of its part is on the disk, too. */
static void look_for_equivocation(uint32_t i, uint32_t number)
{
    uint32_t twin = results[number].twin;
    if (twin != 0 && sim_keeps(&sim->island[i].disk, twin))
        sim_prove(i, number);
}

static void applied(uint32_t i, uint32_t f, struct digest *hash)
{
    struct sim_island *island = &sim->island[i];
    uint64_t version = island->version[f] + 1;
    sim_tell("island %u applies fragment %u version %llu, of %u ...", i, f, (unsigned long long)version,
             island->applying[f][0]);
    island->step_by_step[f] = true;
    sim_arrive_at(i, f, version);
    if (sim->flips && sim_chance(1) && !sim->healing) {
        island->hash[f].byte[3] ^= 1; /* a bit of the anchor flips */
        island->disturbed = true;
    } else {
        sim_check_hash(i, f);
    }
    *hash = island->hash[f];
}

/* As the daemon does: the ledger may have results of the next version already. */
void sim_tell_held(uint32_t i, uint32_t f)
{
    uint64_t version = sim->island[i].version[f] + 1;
    const uint32_t *held = sim_ledger(&sim->island[i].disk, f, version);
    for (uint32_t p = 0; p < sim->places && held[p] != 0; p++)
        sim_step(i, &(struct sync_event){.type = SYNC_EV_STORED,
                                         .fragment = f,
                                         .version = version,
                                         .epoch = results[held[p]].epoch,
                                         .owner = sim_id(results[held[p]].owner),
                                         .hash = sim_digest(held[p]),
                                         .member = SYNC_NOBODY});
}

void sim_tell_listed(uint32_t i, uint32_t f)
{
    sim_tell_held(i, f);
    sim_step(i, &(struct sync_event){.type = SYNC_EV_LISTED, .fragment = f});
}

static void finish_job(struct sim_job *job)
{
    uint32_t i = job->island;
    struct sim_island *island = &sim->island[i];
    uint32_t f = job->event.fragment;
    struct sync_event event = job->event;
    if (island->alive && island->session == job->session && sim_stopped(i))
        return; /* later */
    if (sim->copied && i == sim->liar && sim->other.alive && sim->other.session == job->session)
        return; /* when that daemon is heard again */
    job->used = false;
    if (!island->alive || island->session != job->session)
        return;
    if (event.type == SYNC_EV_REDUCED && sim_lies(i, SIM_LIE_IDLE)) {
        sim_add_job(i, IDLE_MS, event, 0);
        return;
    }
    switch (event.type) {
    case SYNC_EV_STORED: sim_keep(i, job->result); break;
    case SYNC_EV_MADE:
        if (!made(i, f))
            return;
        break;
    case SYNC_EV_APPLIED: applied(i, f, &event.hash); break;
    case SYNC_EV_INSTALLED: island->hash[f] = event.hash; break;
    case SYNC_EV_MIXED:
        if (!island->trainer[f].up || island->trainer[f].word != SIM_ANCHOR)
            return;
        island->trainer[f].word = SIM_FREE;
        break;
    default: break;
    }
    sim_step(i, &event);
    if (event.type == SYNC_EV_STORED)
        sim_note_acknowledged(i, f);
    if (event.type == SYNC_EV_STORED && event.member != sim_slot(i, i))
        look_for_equivocation(i, job->result);
    if (event.type == SYNC_EV_APPLIED || event.type == SYNC_EV_INSTALLED)
        sim_tell_listed(i, f);
}

/* ---- time ---- */

void sim_turn(void)
{
    sim_beats_in();
    sim_letters_in();
    for (size_t k = 0; k < sim->jobs_end; k++)
        if (jobs[k].used && jobs[k].due_ms <= sim->now_ms)
            finish_job(&jobs[k]);
    while (sim->jobs_end > 0 && !jobs[sim->jobs_end - 1].used)
        sim->jobs_end--;
    sim_try_objects();
    for (uint32_t i = 0; i < sim->n; i++)
        if (sim->island[i].alive)
            sim_run_island(i);
    for (uint32_t i = 0; i < sim->n; i++)
        if (sim->island[i].alive && sim->island[i].die)
            sim_crash(i);
}
