#include "tests/lib/simworld.h"

#include <stdlib.h>
#include <string.h>

#include "common/digest.h"

struct sim_world *sim;

/* Large, and used from the start up: never cleared as a whole. */
static struct sim_job jobs[SIM_JOBS_MAX];
static struct sim_object objects[SIM_OBJECTS_MAX];
static struct sim_beat beats[SIM_BEATS_MAX];
static struct sim_record records[SIM_RECORDS_MAX];

static size_t ledger_places(void)
{
    return (size_t)SIM_F_MAX * SIM_V_MAX * sim->n;
}

void sim_begin(uint64_t seed, uint32_t n)
{
    if (sim == NULL)
        sim = calloc(1, sizeof *sim);
    memset(sim, 0, sizeof *sim);
    sim->seed = seed;
    sim->rng = env_rng_init(seed, n);
    sim->n = n;
    sim->records_end = 1; /* 0: none */
    for (uint32_t i = 0; i < n; i++) {
        sim->island[i].disk.ledger = calloc(ledger_places(), sizeof(uint32_t));
        sim->island[i].older.ledger = calloc(ledger_places(), sizeof(uint32_t));
    }
}

void sim_end(void)
{
    for (uint32_t i = 0; i < sim->n; i++) {
        sync_free(sim->island[i].sync);
        free(sim->island[i].disk.ledger);
        free(sim->island[i].older.ledger);
    }
}

void sim_free(void)
{
    free(sim);
    sim = NULL;
}

uint32_t *sim_held(struct sim_disk *disk, uint32_t f, uint64_t version, uint32_t shard)
{
    return &disk->ledger[((size_t)f * SIM_V_MAX + version) * sim->n + shard];
}

const struct sim_record *sim_record(uint32_t number)
{
    return &records[number];
}

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

static void add_job(uint32_t i, uint64_t delay_ms, struct sync_event event)
{
    for (size_t k = 0; k < SIM_JOBS_MAX; k++) {
        if (k < sim->jobs_end && jobs[k].used)
            continue;
        jobs[k] = (struct sim_job){true, sim->now_ms + delay_ms, sim->island[i].session, i, event};
        sim->jobs_end = k >= sim->jobs_end ? k + 1 : sim->jobs_end;
        return;
    }
    SIM_HOLDS(false, "too many jobs");
}

static void add_object(uint32_t from, uint32_t to, const struct wire_key *key)
{
    struct sim_object *slot = NULL;
    uint32_t waiting = 0;
    for (size_t k = 0; k < sim->objects_end; k++) {
        struct sim_object *o = &objects[k];
        bool between = o->used && o->from == from && o->to == to && o->from_session == sim->island[from].session &&
                       o->to_session == sim->island[to].session;
        if (between && wire_key_equal(&o->key, key))
            return;
        waiting += between && o->key.fragment == key->fragment;
        if (!o->used && slot == NULL)
            slot = o;
    }
    SIM_HOLDS(waiting < SIM_WAITING_MAX, "%u objects of fragment %u wait on the way from island %u to %u\n",
              waiting + 1, key->fragment, from, to);
    sim->waiting_most = waiting + 1 > sim->waiting_most ? waiting + 1 : sim->waiting_most;
    if (slot == NULL) {
        SIM_HOLDS(sim->objects_end < SIM_OBJECTS_MAX, "too many objects");
        slot = &objects[sim->objects_end++];
    }
    *slot = (struct sim_object){
        true, from, to, sim->island[from].session, sim->island[to].session, sim->now_ms + 5 + sim_below(80), *key};
}

/* ---- results ---- */

/* A result that was made and then lost everywhere may be made anew; one that anybody still holds may not. */
static void check_truth(uint32_t i, uint32_t f, uint64_t version, uint32_t shard)
{
    uint32_t *truth = &sim->truth[f][version][shard];
    uint32_t held = *sim_held(&sim->island[i].disk, f, version, shard);
    bool elsewhere = false;
    if (*truth == held)
        return;
    for (uint32_t k = 0; k < sim->n && *truth != 0; k++)
        elsewhere |= *sim_held(&sim->island[k].disk, f, version, shard) == *truth;
    SIM_HOLDS(!elsewhere, "fragment %u version %llu shard %u has two different results\n", f,
              (unsigned long long)version, shard);
    *truth = held;
    for (uint64_t v = version; v < SIM_V_MAX; v++)
        sim->chain_known[f][v] = false;
}

/* The next hash of a fragment: a digest of the last one and all shards' results. */
static struct digest next_hash(struct sim_disk *disk, const struct digest *last, uint32_t f, uint64_t version)
{
    struct digest_state state;
    digest_begin(&state);
    digest_add(&state, last, sizeof *last);
    for (uint32_t s = 0; s < sim->n; s++)
        if ((sim->shards[f] >> s & 1) != 0)
            digest_add(&state, sim_held(disk, f, version, s), sizeof(uint32_t));
    return digest_end(&state);
}

static void count_our_work(uint32_t i, uint32_t f, uint32_t s, uint32_t number)
{
    struct sim_island *island = &sim->island[i];
    const struct sim_record *record = &records[number];
    if ((sim->shards[f] >> s & 1) != 0 && (record->contributors >> i & 1) != 0 && record->to[i] > island->counted[f][s])
        island->counted[f][s] = record->to[i];
}

void sim_arrive_at(uint32_t i, uint32_t f, uint64_t version)
{
    struct sim_island *island = &sim->island[i];
    island->chain[f] = next_hash(&island->disk, &island->chain[f], f, version);
    island->version[f] = version;
    for (uint32_t s = 0; s < sim->n; s++)
        count_our_work(i, f, s, *sim_held(&island->disk, f, version, s));
}

static void check_chain(uint32_t i, uint32_t f)
{
    struct sim_island *island = &sim->island[i];
    uint64_t version = island->version[f];
    if (!sim->chain_known[f][version]) {
        sim->chain[f][version] = island->chain[f];
        sim->chain_known[f][version] = true;
    }
    SIM_HOLDS(sim->flips || digest_equal(&sim->chain[f][version], &island->chain[f]),
              "island %u has another version %llu of fragment %u\n", i, (unsigned long long)version, f);
}

static uint32_t reduce(uint32_t i, uint32_t f, uint64_t version, uint64_t mask)
{
    SIM_HOLDS(sim->records_end < SIM_RECORDS_MAX, "too many results");
    struct sim_record *record = &records[sim->records_end];
    *record = (struct sim_record){.contributors = mask};
    for (uint32_t k = 0; k < sim->n; k++) {
        if ((mask >> k & 1) == 0)
            continue;
        const struct sim_contribution *c = k == i ? &sim->island[i].out[f][i] : &sim->island[i].in[f][k];
        SIM_HOLDS(c->there && c->version == version,
                  "island %u reduces version %llu with a contribution of island %u to version %llu\n", i,
                  (unsigned long long)version, k, (unsigned long long)c->version);
        record->from[k] = c->from;
        record->to[k] = c->to;
    }
    return (uint32_t)sim->records_end++;
}

/* ---- actions ---- */

static void do_encode(uint32_t i, uint32_t f, uint64_t version)
{
    struct sim_island *island = &sim->island[i];
    for (uint32_t s = 0; s < sim->n; s++)
        island->out[f][s] = (struct sim_contribution){true, version, island->counted[f][s],
                                                      island->trainer[f].snapshot_work, island->chain[f]};
    bool refused = sim_chance(2) && !sim->healing;
    add_job(i, 1 + sim_below(60),
            (struct sync_event){.type = refused ? SYNC_EV_REFUSED : SYNC_EV_ENCODED, .fragment = f});
}

static void do_fetch(uint32_t i, const struct sync_action *action)
{
    uint32_t from = action->member;
    struct sim_island *other = &sim->island[from];
    const struct wire_key *key = &action->key;
    if (!other->alive || sim->link_down[i][from] || sim_chance(sim->loss_percent))
        return;
    if (sim_stopped(from))
        return; /* it is as if the request were lost */
    bool has = key->kind == WIRE_STATE
                   ? other->version[key->fragment] == key->version && sync_known(other->sync, key->fragment)
                   : *sim_held(&other->disk, key->fragment, key->version, key->owner) != 0;
    if (has)
        add_object(from, i, key);
    else
        add_job(i, 5 + sim_below(50), (struct sync_event){.type = SYNC_EV_NOT_AVAILABLE, .member = from, .key = *key});
}

/* Island i does not send these any more. */
static void retire(uint32_t i, uint32_t kind, uint32_t f, uint64_t version_max)
{
    for (size_t k = 0; k < sim->objects_end; k++) {
        struct sim_object *o = &objects[k];
        if (o->from == i && o->key.kind == kind && o->key.fragment == f && o->key.version <= version_max)
            o->used = false;
    }
}

/* Where checkpoint and ledger lead: the hash of `version`, if they go so far. */
static struct sync_event replay(uint32_t i, uint32_t f, uint64_t version)
{
    struct sim_disk *disk = &sim->island[i].disk;
    struct sync_event event = {.type = SYNC_EV_REPLAYED, .fragment = f, .version = version, .hash = disk->chain[f]};
    bool leads = disk->version[f] <= version;
    for (uint64_t v = disk->version[f] + 1; v <= version && leads; v++) {
        for (uint32_t s = 0; s < sim->n; s++)
            leads &= (sim->shards[f] >> s & 1) == 0 || *sim_held(disk, f, v, s) != 0;
        event.hash = next_hash(disk, &event.hash, f, v);
    }
    if (!leads)
        event.type = SYNC_EV_UNPROVEN;
    return event;
}

static void do_mend(uint32_t i, uint32_t f, uint64_t version)
{
    struct sync_event event = replay(i, f, version);
    if (event.type == SYNC_EV_REPLAYED)
        event.type = SYNC_EV_INSTALLED;
    add_job(i, 20 + sim_below(200), event);
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
    case SYNC_DO_SEND:
        SIM_HOLDS(action->key.kind != WIRE_RESULT || *sim_held(&island->disk, f, action->key.version, i) != 0,
                  "island %u publishes a result that is not stored\n", i);
        add_object(i, action->member, &action->key);
        break;
    case SYNC_DO_REDUCE:
        retire(i, WIRE_RESULT, f, action->version - 1); /* as the daemon does: who still lacks it asks for it */
        island->next[f] = reduce(i, f, action->version, bitset_word(&sync_owner(island->sync, f)->have));
        add_job(i, 1 + sim_below(40), (struct sync_event){.type = SYNC_EV_REDUCED, .fragment = f});
        break;
    case SYNC_DO_STORE:
        add_job(i, 1 + sim_below(20),
                (struct sync_event){
                    .type = SYNC_EV_STORED, .fragment = f, .version = action->version, .owner = i, .member = i});
        break;
    case SYNC_DO_APPLY:
        SIM_HOLDS(action->version == island->version[f] + 1, "island %u applies out of order\n", i);
        add_job(i, 1 + sim_below(40), (struct sync_event){.type = SYNC_EV_APPLIED, .fragment = f});
        break;
    case SYNC_DO_GIVE:
        SIM_HOLDS(island->trainer[f].up, "island %u gives an anchor to nobody\n", i);
        island->trainer[f].word = SIM_ANCHOR;
        add_job(i, 1 + sim_below(100), (struct sync_event){.type = SYNC_EV_MIXED, .fragment = f});
        break;
    case SYNC_DO_TAKE_BACK: break; /* the trainer is always just about to take it: MIXED comes */
    case SYNC_DO_FETCH: do_fetch(i, action); break;
    case SYNC_DO_REPLAY: add_job(i, 20 + sim_below(200), replay(i, f, action->version)); break;
    case SYNC_DO_MEND: do_mend(i, f, action->version); break;
    case SYNC_DO_RETIRE: retire(i, WIRE_CONTRIBUTION, f, action->version); break;
    case SYNC_DO_ANNOUNCE: island->announce = true; break;
    case SYNC_DO_REPORT: SIM_HOLDS(action->report != SYNC_REPORT_ILLEGAL, "island %u: illegal event\n", i); break;
    }
}

void sim_step(uint32_t i, const struct sync_event *event)
{
    struct sync_action action;
    sync_step(sim->island[i].sync, event, sim->now_ms);
    while (sync_action(sim->island[i].sync, &action))
        do_action(i, &action);
}

/* ---- jobs and objects come due ---- */

static void stored(uint32_t i, const struct sync_event *event)
{
    struct sim_island *island = &sim->island[i];
    uint32_t f = event->fragment;
    uint32_t *held = sim_held(&island->disk, f, event->version, event->owner);
    /* Another member's copy may have come first after a crash of ours: that one stands. */
    if (event->member == i && *held == 0)
        *held = island->next[f];
    check_truth(i, f, event->version, event->owner);
    if (event->owner == i)
        island->flushed[f] = event->version > island->flushed[f] ? event->version : island->flushed[f];
}

static void applied(uint32_t i, uint32_t f, struct digest *hash)
{
    struct sim_island *island = &sim->island[i];
    sim_arrive_at(i, f, island->version[f] + 1);
    if (sim->flips && sim_chance(1) && !sim->healing) {
        island->chain[f].byte[3] ^= 1; /* a bit of the anchor flips */
        island->disturbed = true;
    } else {
        check_chain(i, f);
    }
    *hash = island->chain[f];
}

/* As the daemon does: the ledger may have results of the next version already. */
static void tell_held(uint32_t i, uint32_t f)
{
    struct sync_event event = {
        .type = SYNC_EV_STORED, .fragment = f, .version = sim->island[i].version[f] + 1, .member = SYNC_NOBODY};
    for (event.owner = 0; event.owner < sim->n; event.owner++)
        if (*sim_held(&sim->island[i].disk, f, event.version, event.owner) != 0)
            sim_step(i, &event);
}

static void finish_job(struct sim_job *job)
{
    uint32_t i = job->island;
    struct sim_island *island = &sim->island[i];
    uint32_t f = job->event.fragment;
    struct sync_event event = job->event;
    if (island->alive && island->session == job->session && sim_stopped(i))
        return; /* later */
    job->used = false;
    if (!island->alive || island->session != job->session)
        return;
    switch (event.type) {
    case SYNC_EV_STORED: stored(i, &event); break;
    case SYNC_EV_APPLIED: applied(i, f, &event.hash); break;
    case SYNC_EV_INSTALLED: island->chain[f] = event.hash; break;
    case SYNC_EV_MIXED:
        if (!island->trainer[f].up || island->trainer[f].word != SIM_ANCHOR)
            return;
        island->trainer[f].word = SIM_FREE;
        break;
    default: break;
    }
    sim_step(i, &event);
    if (event.type == SYNC_EV_APPLIED || event.type == SYNC_EV_INSTALLED)
        tell_held(i, f);
}

static void deliver_contribution(const struct sim_object *o)
{
    struct sim_island *to = &sim->island[o->to];
    const struct sim_contribution *c = &sim->island[o->from].out[o->key.fragment][o->to];
    uint32_t f = o->key.fragment;
    if (c->version != o->key.version)
        return;
    struct sync_event event = {
        .type = SYNC_EV_CONTRIBUTION, .fragment = f, .version = o->key.version, .member = o->from};
    to->in[f][o->from] = *c;
    if (!sync_base_agrees(to->sync, f, o->key.version, &c->base))
        event.type = SYNC_EV_CONTRIBUTION_REFUSED;
    SIM_HOLDS(event.type == SYNC_EV_CONTRIBUTION_REFUSED || !sync_known(to->sync, f) ||
                  to->version[f] + 1 != o->key.version || digest_equal(&c->base, &to->chain[f]),
              "island %u takes a contribution of island %u from another base\n", o->to, o->from);
    if (event.type == SYNC_EV_CONTRIBUTION_REFUSED)
        add_job(o->from, 5 + sim_below(80),
                (struct sync_event){.type = SYNC_EV_TURNED_DOWN, .member = o->to, .key = o->key});
    sim_step(o->to, &event);
}

static void deliver_state(const struct sim_object *o)
{
    struct sim_island *from = &sim->island[o->from];
    struct sim_island *to = &sim->island[o->to];
    uint32_t f = o->key.fragment;
    if (from->version[f] != o->key.version)
        return;
    for (uint64_t v = to->version[f] + 1; v <= from->version[f]; v++) /* what it counts without our seeing it */
        for (uint32_t s = 0; s < sim->n; s++)
            count_our_work(o->to, f, s, sim->truth[f][v][s]);
    to->chain[f] = to->disk.chain[f] = from->chain[f]; /* and a checkpoint is written at once */
    to->version[f] = to->disk.version[f] = from->version[f];
    to->disk.blank[f] = false;
    sim_step(o->to, &(struct sync_event){
                        .type = SYNC_EV_INSTALLED, .fragment = f, .version = o->key.version, .hash = to->chain[f]});
    tell_held(o->to, f);
}

static void deliver_result(const struct sim_object *o)
{
    const struct wire_key *key = &o->key;
    uint32_t number = *sim_held(&sim->island[o->from].disk, key->fragment, key->version, key->owner);
    uint32_t *held = sim_held(&sim->island[o->to].disk, key->fragment, key->version, key->owner);
    SIM_HOLDS(number != 0, "island %u sends a result it does not have\n", o->from);
    if (*held == 0)
        *held = number; /* one that is in a ledger stays */
    add_job(o->to, 1 + sim_below(20),
            (struct sync_event){.type = SYNC_EV_STORED,
                                .fragment = key->fragment,
                                .version = key->version,
                                .owner = key->owner,
                                .member = o->from});
}

static void try_object(struct sim_object *o)
{
    struct sim_island *from = &sim->island[o->from];
    struct sim_island *to = &sim->island[o->to];
    if (!from->alive || from->session != o->from_session || !to->alive || to->session != o->to_session) {
        o->used = false;
        return;
    }
    o->try_ms = sim->now_ms + 20 + sim_below(200);
    bool cut = sim->link_down[o->from][o->to] || sim->link_down[o->to][o->from]; /* what comes is acknowledged */
    if (cut || sim_stopped(o->from) || sim_stopped(o->to) || sim_chance(sim->loss_percent))
        return;
    enum sync_want want = sync_wants(to->sync, &o->key, o->from);
    if (want == SYNC_NOT_YET)
        return;
    struct sim_object copy = *o;
    if (want != SYNC_WANT || !sim_chance(5)) /* now and then it comes once more */
        o->used = false;
    if (want != SYNC_WANT)
        return;
    if (copy.key.kind == WIRE_CONTRIBUTION)
        deliver_contribution(&copy);
    else if (copy.key.kind == WIRE_STATE)
        deliver_state(&copy);
    else
        deliver_result(&copy);
}

/* ---- trainers ---- */

static void trainer_take(uint32_t i, uint32_t f, bool final)
{
    struct sim_trainer *t = &sim->island[i].trainer[f];
    t->word = SIM_SNAPSHOT;
    t->snapshot_work = t->work;
    t->final = final;
    sim_step(i, &(struct sync_event){.type = SYNC_EV_SNAPSHOT, .fragment = f});
}

static bool all_counted(uint32_t i, uint32_t f)
{
    for (uint32_t s = 0; s < sim->n; s++)
        if ((sim->shards[f] >> s & 1) != 0 && sim->island[i].counted[f][s] < sim->island[i].trainer[f].work)
            return false;
    return true;
}

static void run_trainer(uint32_t i, uint32_t f)
{
    struct sim_trainer *t = &sim->island[i].trainer[f];
    if (!t->up)
        return;
    if (!sim->finishing)
        t->work++;
    if (t->word != SIM_FREE || t->settled || sim_stopped(i))
        return;
    if (sim->finishing && all_counted(i, f)) {
        t->settled = true;
        sim_step(i, &(struct sync_event){.type = SYNC_EV_SETTLED, .fragment = f});
    } else if (sim->finishing || sim->now_ms >= t->next_due_ms) {
        t->next_due_ms = sim->now_ms + 500 + sim_below(300);
        trainer_take(i, f, sim->finishing);
    }
}

/* ---- peers and heartbeats ---- */

static void peer_event(uint32_t i, uint32_t member, enum sync_event_type type)
{
    sim_step(i, &(struct sync_event){.type = type, .member = member});
}

/* Who greets whom, and who has been silent for too long. */
static void look_after_peers(uint32_t i)
{
    struct sim_island *island = &sim->island[i];
    for (uint32_t k = 0; k < sim->n; k++) {
        if (k == i)
            continue;
        const struct sim_island *other = &sim->island[k];
        bool speaks = other->alive && !sim_stopped(k) && !sim->link_down[k][i];
        if (speaks)
            island->heard_ms[k] = sim->now_ms;
        bool again = speaks && island->greeted[k] != other->session;
        bool gone = island->greeted[k] != 0 && (again || sim->now_ms > island->heard_ms[k] + SIM_SILENT_MS);
        if (gone) {
            island->greeted[k] = 0;
            peer_event(i, k, SYNC_EV_PEER_DOWN);
        }
        if (!again)
            continue;
        if (island->greeted_last[k] != other->session)
            island->taken_in[k] = 0;
        island->greeted[k] = island->greeted_last[k] = other->session;
        peer_event(i, k, SYNC_EV_PEER_UP);
    }
}

static void add_beat(const struct sim_beat *beat)
{
    size_t k = 0;
    while (k < sim->beats_end && beats[k].used)
        k++;
    SIM_HOLDS(k < SIM_BEATS_MAX, "too many heartbeats");
    beats[k] = *beat;
    sim->beats_end = k >= sim->beats_end ? k + 1 : sim->beats_end;
}

/* Most come soon, some late, and then after those that were sent later. */
static uint64_t beat_delay_ms(void)
{
    return sim->loss_percent > 0 && sim_chance(5) ? sim_below(1500) : 1 + sim_below(60);
}

static void send_heartbeat(uint32_t i)
{
    struct sim_island *island = &sim->island[i];
    struct sim_beat beat = {.used = true, .from = i, .session = island->session, .sequence = ++island->sequence};
    for (uint32_t f = 0; f < sim->fragments; f++) {
        struct sync_peer_fragment own = sync_own(island->sync, f);
        beat.taking_part |= island->trainer[f].up;
        beat.rows[f] = (struct wire_fragment){f,           own.version, own.contributed, own.abstained,
                                              own.results, own.hash,    own.hash_known};
    }
    for (beat.to = 0; beat.to < sim->n; beat.to++) {
        if (beat.to == i || sim->link_down[i][beat.to] || sim_chance(sim->loss_percent))
            continue;
        beat.due_ms = sim->now_ms + beat_delay_ms();
        add_beat(&beat);
    }
    island->announce = false;
    island->beat_ms = sim->now_ms + 300;
}

/* As the daemon does: one of another session than the greeted one is not looked at, nor one that was overtaken. */
static void beat_in(struct sim_beat *beat)
{
    static struct wire_heartbeat heartbeat;
    struct sim_island *to = &sim->island[beat->to];
    if (to->alive && sim_stopped(beat->to))
        return; /* later */
    beat->used = false;
    if (!to->alive || to->greeted[beat->from] != beat->session || beat->sequence <= to->taken_in[beat->from])
        return;
    to->taken_in[beat->from] = beat->sequence;
    heartbeat.taking_part = beat->taking_part;
    heartbeat.fragments_count = sim->fragments;
    memcpy(heartbeat.fragments, beat->rows, sim->fragments * sizeof beat->rows[0]);
    sim_step(beat->to, &(struct sync_event){.type = SYNC_EV_HEARTBEAT, .member = beat->from, .beat = &heartbeat});
}

/* ---- time ---- */

static void run_island(uint32_t i)
{
    for (uint32_t f = 0; f < sim->fragments; f++)
        run_trainer(i, f);
    if (sim_stopped(i))
        return;
    look_after_peers(i);
    if (sim->island[i].announce || sim->now_ms >= sim->island[i].beat_ms)
        send_heartbeat(i);
    sim_step(i, &(struct sync_event){.type = SYNC_EV_TICK});
}

void sim_turn(void)
{
    for (size_t k = 0; k < sim->beats_end; k++)
        if (beats[k].used && beats[k].due_ms <= sim->now_ms)
            beat_in(&beats[k]);
    for (size_t k = 0; k < sim->jobs_end; k++)
        if (jobs[k].used && jobs[k].due_ms <= sim->now_ms)
            finish_job(&jobs[k]);
    for (size_t k = 0; k < sim->objects_end; k++)
        if (objects[k].used && objects[k].try_ms <= sim->now_ms)
            try_object(&objects[k]);
    while (sim->beats_end > 0 && !beats[sim->beats_end - 1].used)
        sim->beats_end--;
    while (sim->jobs_end > 0 && !jobs[sim->jobs_end - 1].used)
        sim->jobs_end--;
    while (sim->objects_end > 0 && !objects[sim->objects_end - 1].used)
        sim->objects_end--;
    for (uint32_t i = 0; i < sim->n; i++)
        if (sim->island[i].alive)
            run_island(i);
}
