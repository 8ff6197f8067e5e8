/*
 * The protocol's state machines, N islands in virtual time under a seeded network: delay, loss, repetition, broken
 * links, killed daemons (some with the unflushed end of their ledger lost), killed trainers, damaged memory. Held
 * against the promises, for every seed:
 *   - one truth: all islands that reach a version of a fragment have the same hash, every result is the same
 *     everywhere, and in the end all are at the same version;
 *   - no work counted twice, and none lost on islands nothing was killed on;
 *   - nobody stands still for ever.
 * A failure prints the seed; TEST_SEED=n repeats it, TEST_SEEDS=n changes how many are tried.
 */
#include "tests/lib/testlib.h"

#include <stdlib.h>
#include <string.h>

#include "common/digest.h"
#include "net/sync.h"

enum { N_MAX = 8, F_MAX = 3, V_MAX = 400, JOBS_MAX = 512, OBJECTS_MAX = 4096 };
enum { STEP_MS = 20, WORK_MS = 60000, HEAL_MS = 240000 };

/* Who contributed to a result, and which stretch (from, to] of each island's work it carries. */
struct record {
    bool there;
    uint64_t id; /* unique to the reduction that made it */
    uint64_t contributors;
    uint64_t from[N_MAX], to[N_MAX];
};

struct contribution {
    bool there;
    uint64_t version, from, to;
    struct digest base;
};

enum trainer_word { FREE, SNAPSHOT, ANCHOR };

struct trainer {
    bool up;
    enum trainer_word word;
    uint64_t work, snapshot_work; /* units done; at the snapshot */
    uint64_t next_due_ms;
    bool final, settled;
};

struct island {
    bool alive;
    uint64_t revive_ms, trainer_up_ms;
    struct sync *sync;
    uint64_t session;
    struct record ledger[F_MAX][V_MAX][N_MAX];
    uint64_t flushed[F_MAX]; /* versions up to here survive a loss of power */
    struct digest chain[F_MAX];
    uint64_t version[F_MAX];
    struct record next[F_MAX];             /* our shard's result, reduced and not yet stored */
    struct contribution out[F_MAX][N_MAX]; /* ours, per shard */
    struct contribution in[F_MAX][N_MAX];  /* for our shard, per member */
    uint64_t counted[F_MAX][N_MAX];        /* of our work, per shard */
    struct trainer trainer[F_MAX];
    uint64_t beat_ms;
    bool announce, disturbed; /* disturbed: something was killed or damaged here */
    bool blank;               /* its disk was lost: it starts from nothing */
};

struct job {
    bool used;
    uint64_t due_ms, session;
    uint32_t island;
    struct sync_event event;
};

struct object {
    bool used;
    uint32_t from, to;
    uint64_t from_session, to_session, try_ms;
    struct wire_key key;
};

struct world {
    uint64_t seed, now_ms;
    struct env_rng rng;
    uint32_t n, fragments;
    uint64_t shards[F_MAX];
    bool link_down[N_MAX][N_MAX];
    uint64_t link_ms[N_MAX][N_MAX];
    struct island island[N_MAX];
    struct job jobs[JOBS_MAX];
    struct object objects[OBJECTS_MAX];
    struct record truth[F_MAX][V_MAX][N_MAX];
    struct digest chain[F_MAX][V_MAX];
    bool chain_known[F_MAX][V_MAX];
    uint64_t ids;
    bool healing;
    unsigned loss_percent, kill_permille;
    uint32_t quorum;
    bool finishing;
    bool flips; /* memory is damaged and disks are lost now and then: then only agreement in the end is held */
};

static struct world *w;

#define HOLDS(condition, ...)                                                                                  \
    do {                                                                                                       \
        if (!(condition)) {                                                                                    \
            print_error("seed %llu at %llu ms: ", (unsigned long long)w->seed, (unsigned long long)w->now_ms); \
            print_error(__VA_ARGS__);                                                                          \
            fail_msg(" (repeat with TEST_SEED=%llu)", (unsigned long long)w->seed);                            \
        }                                                                                                      \
    } while (0)

static uint64_t below(uint64_t bound)
{
    return env_rng_below(&w->rng, bound);
}

static bool chance(unsigned percent)
{
    return below(100) < percent;
}

static void step_island(uint32_t i, const struct sync_event *event);

static void add_job(uint32_t i, uint64_t delay_ms, struct sync_event event)
{
    for (size_t k = 0; k < JOBS_MAX; k++) {
        if (w->jobs[k].used)
            continue;
        w->jobs[k] = (struct job){true, w->now_ms + delay_ms, w->island[i].session, i, event};
        return;
    }
    HOLDS(false, "too many jobs");
}

static void add_object(uint32_t from, uint32_t to, const struct wire_key *key)
{
    struct object *slot = NULL;
    for (size_t k = 0; k < OBJECTS_MAX; k++) {
        struct object *o = &w->objects[k];
        if (o->used && o->from == from && o->to == to && wire_key_equal(&o->key, key))
            return;
        if (!o->used && slot == NULL)
            slot = o;
    }
    HOLDS(slot != NULL, "too many objects");
    *slot = (struct object){true, from, to, w->island[from].session, w->island[to].session, w->now_ms + 5 + below(80),
                            *key};
}

/* ---- results ---- */

static void check_truth(const struct record *record, uint32_t f, uint64_t version, uint32_t shard)
{
    struct record *truth = &w->truth[f][version][shard];
    if (!truth->there) {
        *truth = *record;
        return;
    }
    HOLDS(w->flips || truth->id == record->id, "fragment %u version %llu shard %u has two different results\n", f,
          (unsigned long long)version, shard);
}

/* The next hash of a fragment: a digest of the last one and all shards' results. */
static struct digest next_hash(const struct island *island, uint32_t f, uint64_t version)
{
    struct digest_state state;
    digest_begin(&state);
    digest_add(&state, &island->chain[f], sizeof island->chain[f]);
    for (uint32_t s = 0; s < w->n; s++)
        if ((w->shards[f] >> s & 1) != 0)
            digest_add(&state, &island->ledger[f][version][s].id, sizeof(uint64_t));
    return digest_end(&state);
}

static void count_our_work(uint32_t i, uint32_t f, uint64_t version)
{
    struct island *island = &w->island[i];
    for (uint32_t s = 0; s < w->n; s++) {
        const struct record *record = &island->ledger[f][version][s];
        if ((w->shards[f] >> s & 1) != 0 && (record->contributors >> i & 1) != 0 &&
            record->to[i] > island->counted[f][s])
            island->counted[f][s] = record->to[i];
    }
}

static void arrive_at(uint32_t i, uint32_t f, uint64_t version)
{
    struct island *island = &w->island[i];
    island->chain[f] = next_hash(island, f, version);
    island->version[f] = version;
    count_our_work(i, f, version);
}

static void check_chain(uint32_t i, uint32_t f)
{
    struct island *island = &w->island[i];
    uint64_t version = island->version[f];
    if (!w->chain_known[f][version]) {
        w->chain[f][version] = island->chain[f];
        w->chain_known[f][version] = true;
    }
    HOLDS(w->flips || digest_equal(&w->chain[f][version], &island->chain[f]),
          "island %u has another version %llu of fragment %u\n", i, (unsigned long long)version, f);
}

static struct record reduce(uint32_t i, uint32_t f, uint64_t mask)
{
    struct record record = {.there = true, .id = ++w->ids, .contributors = mask};
    for (uint32_t k = 0; k < w->n; k++) {
        if ((mask >> k & 1) == 0)
            continue;
        const struct contribution *c = k == i ? &w->island[i].out[f][i] : &w->island[i].in[f][k];
        HOLDS(c->there, "island %u reduces a contribution of %u it does not have\n", i, k);
        record.from[k] = c->from;
        record.to[k] = c->to;
    }
    return record;
}

/* ---- actions ---- */

static void do_encode(uint32_t i, uint32_t f, uint64_t version)
{
    struct island *island = &w->island[i];
    for (uint32_t s = 0; s < w->n; s++)
        island->out[f][s] = (struct contribution){true, version, island->counted[f][s],
                                                  island->trainer[f].snapshot_work, island->chain[f]};
    bool refused = chance(2) && !w->healing;
    add_job(i, 1 + below(60), (struct sync_event){.type = refused ? SYNC_EV_REFUSED : SYNC_EV_ENCODED, .fragment = f});
}

static void do_fetch(uint32_t i, const struct sync_action *action)
{
    uint32_t from = action->member;
    struct island *other = &w->island[from];
    const struct wire_key *key = &action->key;
    if (!other->alive || w->link_down[i][from] || chance(w->loss_percent))
        return;
    bool has = key->kind == WIRE_STATE
                   ? other->version[key->fragment] == key->version && sync_known(other->sync, key->fragment)
                   : other->ledger[key->fragment][key->version][key->shard].there;
    if (has)
        add_object(from, i, key);
    else
        add_job(i, 5 + below(50), (struct sync_event){.type = SYNC_EV_NOT_AVAILABLE, .member = from, .key = *key});
}

static void do_action(uint32_t i, const struct sync_action *action)
{
    struct island *island = &w->island[i];
    uint32_t f = action->fragment;
    switch (action->type) {
    case SYNC_DO_ENCODE: do_encode(i, f, action->version); break;
    case SYNC_DO_RELEASE:
        if (island->trainer[f].word == SNAPSHOT)
            island->trainer[f].word = FREE;
        break;
    case SYNC_DO_SEND: add_object(i, action->member, &action->key); break;
    case SYNC_DO_REDUCE:
        island->next[f] = reduce(i, f, action->mask);
        add_job(i, 1 + below(40), (struct sync_event){.type = SYNC_EV_REDUCED, .fragment = f});
        break;
    case SYNC_DO_STORE:
        add_job(i, 1 + below(20),
                (struct sync_event){
                    .type = SYNC_EV_STORED, .fragment = f, .version = action->version, .shard = i, .member = i});
        break;
    case SYNC_DO_APPLY:
        HOLDS(action->version == island->version[f] + 1, "island %u applies out of order\n", i);
        add_job(i, 1 + below(40), (struct sync_event){.type = SYNC_EV_APPLIED, .fragment = f});
        break;
    case SYNC_DO_GIVE:
        HOLDS(island->trainer[f].up, "island %u gives an anchor to nobody\n", i);
        island->trainer[f].word = ANCHOR;
        add_job(i, 1 + below(100), (struct sync_event){.type = SYNC_EV_MIXED, .fragment = f});
        break;
    case SYNC_DO_TAKE_BACK: break; /* the trainer is always just about to take it: MIXED comes */
    case SYNC_DO_FETCH: do_fetch(i, action); break;
    case SYNC_DO_RETIRE:
        for (size_t k = 0; k < OBJECTS_MAX; k++) {
            struct object *o = &w->objects[k];
            if (o->from == i && o->key.kind == WIRE_CONTRIBUTION && o->key.fragment == f &&
                o->key.version <= action->version)
                o->used = false;
        }
        break;
    case SYNC_DO_ANNOUNCE: island->announce = true; break;
    case SYNC_DO_REPORT: HOLDS(action->report != SYNC_REPORT_ILLEGAL, "island %u: illegal event\n", i); break;
    }
}

static void step_island(uint32_t i, const struct sync_event *event)
{
    struct sync_action action;
    sync_step(w->island[i].sync, event, w->now_ms);
    while (sync_action(w->island[i].sync, &action))
        do_action(i, &action);
}

/* ---- jobs and objects come due ---- */

static void finish_job(struct job *job)
{
    struct island *island = &w->island[job->island];
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
        if (w->flips && chance(1) && !w->healing) {
            island->chain[f].byte[3] ^= 1; /* a bit of the anchor flips */
            island->disturbed = true;
        } else {
            check_chain(i, f);
        }
        event.hash = island->chain[f];
        break;
    case SYNC_EV_MIXED:
        if (!island->trainer[f].up || island->trainer[f].word != ANCHOR)
            return;
        island->trainer[f].word = FREE;
        break;
    default: break;
    }
    step_island(i, &event);
}

static void deliver_contribution(const struct object *o)
{
    struct island *to = &w->island[o->to];
    const struct contribution *c = &w->island[o->from].out[o->key.fragment][o->to];
    uint32_t f = o->key.fragment;
    if (c->version != o->key.version)
        return;
    struct sync_event event = {
        .type = SYNC_EV_CONTRIBUTION, .fragment = f, .version = o->key.version, .member = o->from};
    to->in[f][o->from] = *c;
    if (!sync_base_agrees(to->sync, f, o->key.version, &c->base))
        event.type = SYNC_EV_DROPPED;
    step_island(o->to, &event);
}

static void deliver_state(const struct object *o)
{
    struct island *from = &w->island[o->from];
    struct island *to = &w->island[o->to];
    uint32_t f = o->key.fragment;
    if (from->version[f] != o->key.version)
        return;
    to->chain[f] = from->chain[f];
    to->version[f] = from->version[f];
    /* So that counting sees what was skipped. */
    for (uint64_t v = 1; v <= to->version[f]; v++) {
        for (uint32_t s = 0; s < w->n; s++)
            if (!to->ledger[f][v][s].there)
                to->ledger[f][v][s] = from->ledger[f][v][s];
        count_our_work(o->to, f, v);
    }
    step_island(o->to, &(struct sync_event){
                           .type = SYNC_EV_INSTALLED, .fragment = f, .version = o->key.version, .hash = to->chain[f]});
}

static void try_object(struct object *o)
{
    struct island *from = &w->island[o->from];
    struct island *to = &w->island[o->to];
    if (!from->alive || from->session != o->from_session || !to->alive || to->session != o->to_session) {
        o->used = false;
        return;
    }
    o->try_ms = w->now_ms + 20 + below(200);
    if (w->link_down[o->from][o->to] || chance(w->loss_percent))
        return;
    enum sync_want want = sync_wants(to->sync, &o->key, o->from);
    if (want == SYNC_NOT_YET)
        return;
    struct object copy = *o;
    if (want != SYNC_WANT || !chance(5)) /* now and then it comes once more */
        o->used = false;
    if (want != SYNC_WANT)
        return;
    if (copy.key.kind == WIRE_CONTRIBUTION) {
        deliver_contribution(&copy);
    } else if (copy.key.kind == WIRE_STATE) {
        deliver_state(&copy);
    } else {
        struct record *slot = &to->ledger[copy.key.fragment][copy.key.version][copy.key.shard];
        *slot = from->ledger[copy.key.fragment][copy.key.version][copy.key.shard];
        HOLDS(slot->there, "island %u sends a result it does not have\n", copy.from);
        add_job(copy.to, 1 + below(20),
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
    struct trainer *t = &w->island[i].trainer[f];
    t->word = SNAPSHOT;
    t->snapshot_work = t->work;
    t->final = final;
    step_island(i, &(struct sync_event){.type = SYNC_EV_SNAPSHOT, .fragment = f});
}

static bool all_counted(uint32_t i, uint32_t f)
{
    for (uint32_t s = 0; s < w->n; s++)
        if ((w->shards[f] >> s & 1) != 0 && w->island[i].counted[f][s] < w->island[i].trainer[f].work)
            return false;
    return true;
}

static void run_trainer(uint32_t i, uint32_t f)
{
    struct trainer *t = &w->island[i].trainer[f];
    if (!t->up)
        return;
    if (!w->finishing)
        t->work++;
    if (t->word != FREE || t->settled)
        return;
    if (w->finishing && all_counted(i, f)) {
        t->settled = true;
        step_island(i, &(struct sync_event){.type = SYNC_EV_SETTLED, .fragment = f});
    } else if (w->finishing || w->now_ms >= t->next_due_ms) {
        t->next_due_ms = w->now_ms + 500 + below(300);
        trainer_take(i, f, w->finishing);
    }
}

static void trainers_up(uint32_t i)
{
    struct island *island = &w->island[i];
    for (uint32_t f = 0; f < w->fragments; f++) {
        struct trainer *t = &island->trainer[f];
        if (t->up || !sync_known(island->sync, f) || sync_state(island->sync, f) != SYNC_LISTENING)
            continue;
        /* It starts from the anchor: what was not counted is gone. */
        *t = (struct trainer){.up = true, .work = t->work, .next_due_ms = w->now_ms + 300 + below(300)};
        for (uint32_t s = 0; s < w->n; s++)
            island->counted[f][s] = t->work;
        step_island(i, &(struct sync_event){.type = SYNC_EV_TRAINER_UP, .fragment = f, .version = island->version[f]});
    }
}

static void kill_trainer(uint32_t i)
{
    struct island *island = &w->island[i];
    island->disturbed = true;
    island->trainer_up_ms = w->now_ms + 500 + below(3000);
    for (uint32_t f = 0; f < w->fragments; f++) {
        if (!island->trainer[f].up)
            continue;
        island->trainer[f].up = false;
        island->trainer[f].word = FREE;
        if (island->alive)
            step_island(i, &(struct sync_event){.type = SYNC_EV_TRAINER_DOWN, .fragment = f});
    }
}

/* ---- daemons ---- */

static void peer_event(uint32_t i, uint32_t member, enum sync_event_type type)
{
    if (w->island[i].alive)
        step_island(i, &(struct sync_event){.type = type, .member = member});
}

static void start(uint32_t i)
{
    struct island *island = &w->island[i];
    struct sync_conf conf = {.self = i,
                             .members_count = w->n,
                             .fragments_count = w->fragments,
                             .shards = w->shards,
                             .rule = {.quorum = w->quorum, .grace_ms = 400}};
    assert_ok(sync_new(&conf, &island->sync));
    island->alive = true;
    island->session = ++w->ids;
    for (uint32_t f = 0; f < w->fragments; f++) {
        memset(&island->chain[f], 0, sizeof island->chain[f]);
        island->version[f] = 0;
        for (; !island->blank;) { /* replay the ledger */
            uint64_t next = island->version[f] + 1;
            uint64_t have = 0;
            for (uint32_t s = 0; s < w->n; s++)
                have |= (uint64_t)island->ledger[f][next][s].there << s;
            if ((w->shards[f] & ~have) != 0) {
                sync_restore(island->sync, f, island->version[f], &island->chain[f], have);
                break;
            }
            arrive_at(i, f, next);
        }
    }
    island->blank = false;
    for (uint32_t k = 0; k < w->n; k++) {
        if (k == i || !w->island[k].alive || w->link_down[i][k])
            continue;
        peer_event(i, k, SYNC_EV_PEER_UP);
        peer_event(k, i, SYNC_EV_PEER_DOWN);
        peer_event(k, i, SYNC_EV_PEER_UP);
    }
}

static void crash(uint32_t i)
{
    struct island *island = &w->island[i];
    kill_trainer(i);
    sync_free(island->sync);
    island->sync = NULL;
    island->alive = false;
    island->revive_ms = w->now_ms + 200 + below(5000);
    for (uint32_t f = 0; f < w->fragments && chance(50); f++) /* power was lost: what was not flushed is gone */
        for (uint64_t v = island->flushed[f] + 1; v < V_MAX; v++)
            for (uint32_t s = 0; s < w->n; s++)
                if (s != i && chance(70))
                    island->ledger[f][v][s].there = false;
    if (w->flips && w->n > 1 && chance(15)) {
        memset(island->ledger, 0, sizeof island->ledger);
        island->blank = true;
    }
    for (uint32_t k = 0; k < w->n; k++)
        if (k != i)
            peer_event(k, i, SYNC_EV_PEER_DOWN);
}

static void set_link(uint32_t a, uint32_t b, bool down)
{
    if (w->link_down[a][b] == down)
        return;
    w->link_down[a][b] = w->link_down[b][a] = down;
    w->link_ms[a][b] = w->now_ms + 300 + below(8000);
    if (!w->island[a].alive || !w->island[b].alive)
        return;
    peer_event(a, b, down ? SYNC_EV_PEER_DOWN : SYNC_EV_PEER_UP);
    peer_event(b, a, down ? SYNC_EV_PEER_DOWN : SYNC_EV_PEER_UP);
}

static void send_heartbeat(uint32_t i)
{
    static struct wire_heartbeat beat;
    struct island *island = &w->island[i];
    memset(&beat, 0, sizeof beat);
    beat.taking_part = false;
    for (uint32_t f = 0; f < w->fragments; f++) {
        struct sync_peer_fragment own = sync_own(island->sync, f);
        beat.taking_part |= island->trainer[f].up;
        beat.fragments[beat.fragments_count++] = (struct wire_fragment){
            f, own.version, own.contributed, own.abstained, own.results, own.hash, own.hash_known};
    }
    for (uint32_t k = 0; k < w->n; k++) {
        if (k == i || !w->island[k].alive || w->link_down[i][k] || chance(w->loss_percent))
            continue;
        step_island(k, &(struct sync_event){.type = SYNC_EV_HEARTBEAT, .member = i, .beat = &beat});
    }
    island->announce = false;
    island->beat_ms = w->now_ms + 300;
}

/* ---- the run ---- */

static void disturb(void)
{
    if (below(1000) < w->kill_permille) {
        uint32_t i = (uint32_t)below(w->n);
        if (w->island[i].alive && chance(60))
            crash(i);
        else if (w->island[i].alive)
            kill_trainer(i);
    }
    if (below(1000) < 2 * w->kill_permille && w->n > 1) {
        uint32_t a = (uint32_t)below(w->n);
        uint32_t b = (uint32_t)below(w->n);
        if (a < b)
            set_link(a, b, true);
    }
}

static void mend(void)
{
    for (uint32_t i = 0; i < w->n; i++) {
        if (!w->island[i].alive && w->now_ms >= w->island[i].revive_ms)
            start(i);
        if (w->island[i].alive && w->now_ms >= w->island[i].trainer_up_ms)
            trainers_up(i);
        for (uint32_t k = i + 1; k < w->n; k++)
            if (w->link_down[i][k] && (w->healing || w->now_ms >= w->link_ms[i][k]))
                set_link(i, k, false);
    }
}

static void advance(void)
{
    w->now_ms += STEP_MS;
    mend();
    if (!w->healing)
        disturb();
    for (size_t k = 0; k < JOBS_MAX; k++)
        if (w->jobs[k].used && w->jobs[k].due_ms <= w->now_ms)
            finish_job(&w->jobs[k]);
    for (size_t k = 0; k < OBJECTS_MAX; k++)
        if (w->objects[k].used && w->objects[k].try_ms <= w->now_ms)
            try_object(&w->objects[k]);
    for (uint32_t i = 0; i < w->n; i++) {
        if (!w->island[i].alive)
            continue;
        for (uint32_t f = 0; f < w->fragments; f++)
            run_trainer(i, f);
        if (w->island[i].announce || w->now_ms >= w->island[i].beat_ms)
            send_heartbeat(i);
        step_island(i, &(struct sync_event){.type = SYNC_EV_TICK});
    }
}

static bool at_rest(void)
{
    for (uint32_t i = 0; i < w->n; i++) {
        for (uint32_t f = 0; f < w->fragments; f++) {
            if (!w->island[i].alive || !w->island[i].trainer[f].settled ||
                w->island[i].version[f] != w->island[0].version[f] ||
                !digest_equal(&w->island[i].chain[f], &w->island[0].chain[f]))
                return false;
        }
    }
    return true;
}

static void print_world(void)
{
    for (uint32_t i = 0; i < w->n; i++) {
        for (uint32_t f = 0; f < w->fragments; f++) {
            const struct island *island = &w->island[i];
            const struct trainer *t = &island->trainer[f];
            struct owner owner = sync_owner(island->sync, f);
            struct sync_peer_fragment own = sync_own(island->sync, f);
            print_message("island %u fragment %u shards %llx: version %llu %s results %llx contributed %llu abstained "
                          "%llu trainer %d word %d settled %d work %llu owner %s round %llu have %llx waits for %llx\n",
                          i, f, (unsigned long long)w->shards[f], (unsigned long long)own.version,
                          sync_state_name(sync_state(island->sync, f)), (unsigned long long)own.results,
                          (unsigned long long)own.contributed, (unsigned long long)own.abstained, t->up, (int)t->word,
                          t->settled, (unsigned long long)t->work, owner_state_name(owner.state),
                          (unsigned long long)owner.round, (unsigned long long)owner.have,
                          (unsigned long long)sync_waiting_for(island->sync, f));
        }
    }
}

/* Every unit of work is in at most one result of a shard; on an undisturbed island, in exactly one. */
static void check_work(uint32_t f, uint32_t s)
{
    for (uint32_t i = 0; i < w->n; i++) {
        uint64_t upto = 0;
        for (uint64_t v = 1; v < V_MAX && w->truth[f][v][s].there; v++) {
            const struct record *record = &w->truth[f][v][s];
            if ((record->contributors >> i & 1) == 0)
                continue;
            HOLDS(record->from[i] >= upto, "fragment %u shard %u version %llu counts work of island %u twice\n", f, s,
                  (unsigned long long)v, i);
            HOLDS(w->island[i].disturbed || record->from[i] == upto,
                  "fragment %u shard %u version %llu: work of island %u is missing\n", f, s, (unsigned long long)v, i);
            upto = record->to[i];
        }
        HOLDS(w->island[i].disturbed || upto == w->island[i].trainer[f].work,
              "fragment %u shard %u: the last work of island %u was lost\n", f, s, i);
    }
}

static void run_seed(uint64_t seed, uint32_t n, bool rough, uint32_t quorum)
{
    memset(w, 0, sizeof *w);
    w->seed = seed;
    w->rng = env_rng_init(seed, n);
    w->n = n;
    w->fragments = 1 + (uint32_t)below(F_MAX);
    w->loss_percent = rough ? (unsigned)below(40) : 0;
    w->kill_permille = rough ? (unsigned)below(8) : 0;
    w->quorum = quorum;
    w->flips = rough && seed % 2 == 0;
    for (uint32_t f = 0; f < w->fragments; f++) {
        w->shards[f] = (1 + below(((uint64_t)1 << n) - 1));
        w->shards[f] &= ((uint64_t)1 << n) - 1;
    }
    for (uint32_t i = 0; i < n; i++)
        start(i);
    while (w->now_ms < WORK_MS)
        advance();
    w->healing = true;
    w->loss_percent = 0;
    while (w->now_ms < WORK_MS + 20000) /* everyone is back and has worked a little more */
        advance();
    w->finishing = true;
    while (w->now_ms < HEAL_MS && !at_rest())
        advance();
    if (!at_rest())
        print_world();
    HOLDS(at_rest(), "the islands do not come to rest\n");
    for (uint32_t f = 0; f < w->fragments; f++) {
        HOLDS(w->island[0].version[f] > 5, "fragment %u made no progress\n", f);
        for (uint32_t s = 0; s < n && !w->flips; s++)
            if ((w->shards[f] >> s & 1) != 0)
                check_work(f, s);
    }
    for (uint32_t i = 0; i < n; i++)
        sync_free(w->island[i].sync);
}

static unsigned first_seed(unsigned *count, unsigned initial)
{
    const char *one = getenv("TEST_SEED");
    *count = one != NULL ? 1 : testlib_seeds(initial);
    return one != NULL ? (unsigned)strtoul(one, NULL, 10) : 1;
}

static void calm_islands_agree_and_lose_nothing(void **state)
{
    (void)state;
    unsigned count, first = first_seed(&count, 5);
    for (unsigned seed = first; seed < first + count; seed++)
        for (uint32_t n = 1; n <= N_MAX; n++)
            run_seed(seed, n, false, 0);
}

static void promises_hold_under_any_trouble(void **state)
{
    (void)state;
    unsigned count, first = first_seed(&count, 150);
    for (unsigned seed = first; seed < first + count; seed++)
        run_seed(seed, 2 + seed % (N_MAX - 1), true, 0);
}

static void promises_hold_with_a_quorum(void **state)
{
    (void)state;
    unsigned count, first = first_seed(&count, 150);
    for (unsigned seed = first; seed < first + count; seed++) {
        uint32_t n = 3 + seed % (N_MAX - 2);
        run_seed(seed, n, true, n / 2 + 1);
    }
}

int main(void)
{
    assert_ok(digest_init());
    w = calloc(1, sizeof *w);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calm_islands_agree_and_lose_nothing),
        cmocka_unit_test(promises_hold_under_any_trouble),
        cmocka_unit_test(promises_hold_with_a_quorum),
    };
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    free(w);
    return failures != 0;
}
