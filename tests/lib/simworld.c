#include "tests/lib/simworld.h"

#include <stdlib.h>
#include <string.h>

#include "common/digest.h"

struct sim_world *sim;

uint64_t sim_below(uint64_t bound)
{
    return env_rng_below(&sim->rng, bound);
}

bool sim_chance(unsigned percent)
{
    return sim_below(100) < percent;
}

static void step_island(uint32_t i, const struct sync_event *event);

static void add_job(uint32_t i, uint64_t delay_ms, struct sync_event event)
{
    for (size_t k = 0; k < SIM_JOBS_MAX; k++) {
        if (sim->jobs[k].used)
            continue;
        sim->jobs[k] = (struct sim_job){true, sim->now_ms + delay_ms, sim->island[i].session, i, event};
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
        struct sim_object *o = &sim->objects[k];
        waiting += o->used && o->from == from && o->to == to && o->key.fragment == key->fragment;
        if (o->used && o->from == from && o->to == to && wire_key_equal(&o->key, key))
            return;
        if (!o->used && slot == NULL)
            slot = o;
    }
    SIM_HOLDS(waiting < SIM_WAITING_MAX, "%u objects of fragment %u wait on the way from island %u to %u\n",
              waiting + 1, key->fragment, from, to);
    sim->waiting_most = waiting + 1 > sim->waiting_most ? waiting + 1 : sim->waiting_most;
    if (slot == NULL) {
        SIM_HOLDS(sim->objects_end < SIM_OBJECTS_MAX, "too many objects");
        slot = &sim->objects[sim->objects_end++];
    }
    *slot = (struct sim_object){
        true, from, to, sim->island[from].session, sim->island[to].session, sim->now_ms + 5 + sim_below(80), *key};
}

/* ---- results ---- */

static void check_truth(const struct sim_record *record, uint32_t f, uint64_t version, uint32_t shard)
{
    struct sim_record *truth = &sim->truth[f][version][shard];
    if (!truth->there) {
        *truth = *record;
        return;
    }
    SIM_HOLDS(sim->flips || truth->id == record->id, "fragment %u version %llu shard %u has two different results\n", f,
              (unsigned long long)version, shard);
}

/* The next hash of a fragment: a digest of the last one and all shards' results. */
static struct digest next_hash(const struct sim_island *island, uint32_t f, uint64_t version)
{
    struct digest_state state;
    digest_begin(&state);
    digest_add(&state, &island->chain[f], sizeof island->chain[f]);
    for (uint32_t s = 0; s < sim->n; s++)
        if ((sim->shards[f] >> s & 1) != 0)
            digest_add(&state, &island->ledger[f][version][s].id, sizeof(uint64_t));
    return digest_end(&state);
}

static void count_our_work(uint32_t i, uint32_t f, uint64_t version)
{
    struct sim_island *island = &sim->island[i];
    for (uint32_t s = 0; s < sim->n; s++) {
        const struct sim_record *record = &island->ledger[f][version][s];
        if ((sim->shards[f] >> s & 1) != 0 && (record->contributors >> i & 1) != 0 &&
            record->to[i] > island->counted[f][s])
            island->counted[f][s] = record->to[i];
    }
}

static void arrive_at(uint32_t i, uint32_t f, uint64_t version)
{
    struct sim_island *island = &sim->island[i];
    island->chain[f] = next_hash(island, f, version);
    island->version[f] = version;
    count_our_work(i, f, version);
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

static struct sim_record reduce(uint32_t i, uint32_t f, uint64_t mask)
{
    struct sim_record record = {.there = true, .id = ++sim->ids, .contributors = mask};
    for (uint32_t k = 0; k < sim->n; k++) {
        if ((mask >> k & 1) == 0)
            continue;
        const struct sim_contribution *c = k == i ? &sim->island[i].out[f][i] : &sim->island[i].in[f][k];
        SIM_HOLDS(c->there, "island %u reduces a contribution of %u it does not have\n", i, k);
        record.from[k] = c->from;
        record.to[k] = c->to;
    }
    return record;
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
    bool has = key->kind == WIRE_STATE
                   ? other->version[key->fragment] == key->version && sync_known(other->sync, key->fragment)
                   : other->ledger[key->fragment][key->version][key->shard].there;
    if (has)
        add_object(from, i, key);
    else
        add_job(i, 5 + sim_below(50), (struct sync_event){.type = SYNC_EV_NOT_AVAILABLE, .member = from, .key = *key});
}

/* Island i does not send these any more. */
static void retire(uint32_t i, uint32_t kind, uint32_t f, uint64_t version_max)
{
    for (size_t k = 0; k < sim->objects_end; k++) {
        struct sim_object *o = &sim->objects[k];
        if (o->from == i && o->key.kind == kind && o->key.fragment == f && o->key.version <= version_max)
            o->used = false;
    }
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
        SIM_HOLDS(action->key.kind != WIRE_RESULT || island->ledger[f][action->key.version][i].there,
                  "island %u publishes a result that is not stored\n", i);
        add_object(i, action->member, &action->key);
        break;
    case SYNC_DO_REDUCE:
        retire(i, WIRE_RESULT, f, action->version - 1); /* as the daemon does: who still lacks it asks for it */
        island->next[f] = reduce(i, f, bitset_word(&sync_owner(island->sync, f)->have));
        add_job(i, 1 + sim_below(40), (struct sync_event){.type = SYNC_EV_REDUCED, .fragment = f});
        break;
    case SYNC_DO_STORE:
        add_job(i, 1 + sim_below(20),
                (struct sync_event){
                    .type = SYNC_EV_STORED, .fragment = f, .version = action->version, .shard = i, .member = i});
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
    case SYNC_DO_RETIRE: retire(i, WIRE_CONTRIBUTION, f, action->version); break;
    case SYNC_DO_ANNOUNCE: island->announce = true; break;
    case SYNC_DO_REPORT: SIM_HOLDS(action->report != SYNC_REPORT_ILLEGAL, "island %u: illegal event\n", i); break;
    }
}

static void step_island(uint32_t i, const struct sync_event *event)
{
    struct sync_action action;
    sync_step(sim->island[i].sync, event, sim->now_ms);
    while (sync_action(sim->island[i].sync, &action))
        do_action(i, &action);
}

/* ---- jobs and objects come due ---- */

static void finish_job(struct sim_job *job)
{
    struct sim_island *island = &sim->island[job->island];
    uint32_t i = job->island;
    uint32_t f = job->event.fragment;
    struct sync_event event = job->event;
    job->used = false;
    if (!island->alive || island->session != job->session)
        return;
    switch (event.type) {
    case SYNC_EV_STORED:
        /* Another member's copy may have come first after a crash of ours: that one stands. */
        if (event.member == i && event.shard == i && !island->ledger[f][event.version][i].there)
            island->ledger[f][event.version][i] = island->next[f];
        check_truth(&island->ledger[f][event.version][event.shard], f, event.version, event.shard);
        if (event.shard == i)
            island->flushed[f] = event.version > island->flushed[f] ? event.version : island->flushed[f];
        break;
    case SYNC_EV_APPLIED:
        arrive_at(i, f, island->version[f] + 1);
        if (sim->flips && sim_chance(1) && !sim->healing) {
            island->chain[f].byte[3] ^= 1; /* a bit of the anchor flips */
            island->disturbed = true;
        } else {
            check_chain(i, f);
        }
        event.hash = island->chain[f];
        break;
    case SYNC_EV_MIXED:
        if (!island->trainer[f].up || island->trainer[f].word != SIM_ANCHOR)
            return;
        island->trainer[f].word = SIM_FREE;
        break;
    default: break;
    }
    step_island(i, &event);
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
    step_island(o->to, &event);
}

static void deliver_state(const struct sim_object *o)
{
    struct sim_island *from = &sim->island[o->from];
    struct sim_island *to = &sim->island[o->to];
    uint32_t f = o->key.fragment;
    if (from->version[f] != o->key.version)
        return;
    to->chain[f] = from->chain[f];
    to->version[f] = from->version[f];
    /* So that counting sees what was skipped. */
    for (uint64_t v = 1; v <= to->version[f]; v++) {
        for (uint32_t s = 0; s < sim->n; s++)
            if (!to->ledger[f][v][s].there)
                to->ledger[f][v][s] = from->ledger[f][v][s];
        count_our_work(o->to, f, v);
    }
    step_island(o->to, &(struct sync_event){
                           .type = SYNC_EV_INSTALLED, .fragment = f, .version = o->key.version, .hash = to->chain[f]});
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
    if (sim->link_down[o->from][o->to] || sim_chance(sim->loss_percent))
        return;
    enum sync_want want = sync_wants(to->sync, &o->key, o->from);
    if (want == SYNC_NOT_YET)
        return;
    struct sim_object copy = *o;
    if (want != SYNC_WANT || !sim_chance(5)) /* now and then it comes once more */
        o->used = false;
    if (want != SYNC_WANT)
        return;
    if (copy.key.kind == WIRE_CONTRIBUTION) {
        deliver_contribution(&copy);
    } else if (copy.key.kind == WIRE_STATE) {
        deliver_state(&copy);
    } else {
        struct sim_record *slot = &to->ledger[copy.key.fragment][copy.key.version][copy.key.shard];
        *slot = from->ledger[copy.key.fragment][copy.key.version][copy.key.shard];
        SIM_HOLDS(slot->there, "island %u sends a result it does not have\n", copy.from);
        add_job(copy.to, 1 + sim_below(20),
                (struct sync_event){.type = SYNC_EV_STORED,
                                    .fragment = copy.key.fragment,
                                    .version = copy.key.version,
                                    .shard = copy.key.shard,
                                    .member = UINT32_MAX});
    }
}

/* ---- trainers ---- */

static void trainer_take(uint32_t i, uint32_t f, bool final)
{
    struct sim_trainer *t = &sim->island[i].trainer[f];
    t->word = SIM_SNAPSHOT;
    t->snapshot_work = t->work;
    t->final = final;
    step_island(i, &(struct sync_event){.type = SYNC_EV_SNAPSHOT, .fragment = f});
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
    if (t->word != SIM_FREE || t->settled)
        return;
    if (sim->finishing && all_counted(i, f)) {
        t->settled = true;
        step_island(i, &(struct sync_event){.type = SYNC_EV_SETTLED, .fragment = f});
    } else if (sim->finishing || sim->now_ms >= t->next_due_ms) {
        t->next_due_ms = sim->now_ms + 500 + sim_below(300);
        trainer_take(i, f, sim->finishing);
    }
}

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
        step_island(i, &(struct sync_event){.type = SYNC_EV_TRAINER_UP, .fragment = f, .version = island->version[f]});
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
            step_island(i, &(struct sync_event){.type = SYNC_EV_TRAINER_DOWN, .fragment = f});
    }
}

/* ---- daemons ---- */

static void peer_event(uint32_t i, uint32_t member, enum sync_event_type type)
{
    if (sim->island[i].alive)
        step_island(i, &(struct sync_event){.type = type, .member = member});
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
    for (uint32_t f = 0; f < sim->fragments; f++) {
        memset(&island->chain[f], 0, sizeof island->chain[f]);
        island->version[f] = 0;
        for (; !island->blank;) { /* replay the ledger */
            uint64_t next = island->version[f] + 1;
            uint64_t have = 0;
            for (uint32_t s = 0; s < sim->n; s++)
                have |= (uint64_t)island->ledger[f][next][s].there << s;
            if ((sim->shards[f] & ~have) != 0) {
                struct bitset results = bitset_of_word(have);
                sync_restore(island->sync, f, island->version[f], &island->chain[f], &results);
                break;
            }
            arrive_at(i, f, next);
        }
    }
    island->blank = false;
    for (uint32_t k = 0; k < sim->n; k++) {
        if (k == i || !sim->island[k].alive || sim->link_down[i][k])
            continue;
        peer_event(i, k, SYNC_EV_PEER_UP);
        peer_event(k, i, SYNC_EV_PEER_DOWN);
        peer_event(k, i, SYNC_EV_PEER_UP);
    }
}

void sim_crash(uint32_t i)
{
    struct sim_island *island = &sim->island[i];
    sim_kill_trainer(i);
    sync_free(island->sync);
    island->sync = NULL;
    island->alive = false;
    island->revive_ms = sim->now_ms + 200 + sim_below(5000);
    for (uint32_t f = 0; f < sim->fragments && sim_chance(50); f++) /* power was lost: what was not flushed is gone */
        for (uint64_t v = island->flushed[f] + 1; v < SIM_V_MAX; v++)
            for (uint32_t s = 0; s < sim->n; s++)
                if (s != i && sim_chance(70))
                    island->ledger[f][v][s].there = false;
    if (sim->flips && sim->n > 1 && sim_chance(15)) {
        memset(island->ledger, 0, sizeof island->ledger);
        island->blank = true;
    }
    for (uint32_t k = 0; k < sim->n; k++)
        if (k != i)
            peer_event(k, i, SYNC_EV_PEER_DOWN);
}

void sim_set_link(uint32_t a, uint32_t b, bool down)
{
    if (sim->link_down[a][b] == down)
        return;
    sim->link_down[a][b] = sim->link_down[b][a] = down;
    sim->link_ms[a][b] = sim->now_ms + 300 + sim_below(8000);
    if (!sim->island[a].alive || !sim->island[b].alive)
        return;
    peer_event(a, b, down ? SYNC_EV_PEER_DOWN : SYNC_EV_PEER_UP);
    peer_event(b, a, down ? SYNC_EV_PEER_DOWN : SYNC_EV_PEER_UP);
}

static void send_heartbeat(uint32_t i)
{
    static struct wire_heartbeat beat;
    struct sim_island *island = &sim->island[i];
    memset(&beat, 0, sizeof beat);
    beat.taking_part = false;
    for (uint32_t f = 0; f < sim->fragments; f++) {
        struct sync_peer_fragment own = sync_own(island->sync, f);
        beat.taking_part |= island->trainer[f].up;
        beat.fragments[beat.fragments_count++] = (struct wire_fragment){
            f, own.version, own.contributed, own.abstained, own.results, own.hash, own.hash_known};
    }
    for (uint32_t k = 0; k < sim->n; k++) {
        if (k == i || !sim->island[k].alive || sim->link_down[i][k] || sim_chance(sim->loss_percent))
            continue;
        step_island(k, &(struct sync_event){.type = SYNC_EV_HEARTBEAT, .member = i, .beat = &beat});
    }
    island->announce = false;
    island->beat_ms = sim->now_ms + 300;
}

void sim_turn(void)
{
    for (size_t k = 0; k < sim->jobs_end; k++)
        if (sim->jobs[k].used && sim->jobs[k].due_ms <= sim->now_ms)
            finish_job(&sim->jobs[k]);
    for (size_t k = 0; k < sim->objects_end; k++)
        if (sim->objects[k].used && sim->objects[k].try_ms <= sim->now_ms)
            try_object(&sim->objects[k]);
    while (sim->jobs_end > 0 && !sim->jobs[sim->jobs_end - 1].used)
        sim->jobs_end--;
    while (sim->objects_end > 0 && !sim->objects[sim->objects_end - 1].used)
        sim->objects_end--;
    for (uint32_t i = 0; i < sim->n; i++) {
        if (!sim->island[i].alive)
            continue;
        for (uint32_t f = 0; f < sim->fragments; f++)
            run_trainer(i, f);
        if (sim->island[i].announce || sim->now_ms >= sim->island[i].beat_ms)
            send_heartbeat(i);
        step_island(i, &(struct sync_event){.type = SYNC_EV_TICK});
    }
}
