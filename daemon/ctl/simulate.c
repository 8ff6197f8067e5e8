/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/ctl/simulate.h"

#include <inttypes.h>
#include <string.h>

#include "common/mem.h"
#include "common/mem_limit.h"
#include "net/config/config_log.h"
#include "net/config/config.h"
#include "net/sync/sync.h"
#include "outer_opt/schedule.h"

/* With many islands heartbeats and ticks become rarer, as they would have to on real lines. */
enum { EVENTS_MAX = 1 << 24, LATER_US = 20000, TICK_US_MIN = 100000, ISLANDS_FEW = 16 };
enum { BEAT_GAP_US = 3000, BEAT_GAP_US_MAX = 2000000 };
/* The share of this machine's memory that a simulation may take. */
static const double memory_share_most = 0.8;

enum word { FREE, SNAPSHOT, ANCHOR };

struct trainer_fragment {
    enum word word;
    bool sent; /* contributed, and its result not taken in */
    uint64_t due, mix;
};

struct island {
    struct sync *sync;
    struct trainer_fragment *trainer; /* by fragment */
    uint64_t *version;
    struct rows_said *said; /* by fragment: in its last heartbeats */
    uint64_t step, waiting_since_us, stalled_us;
    bool waiting, announce;
    uint64_t up_free_us, down_free_us, beat_us;
    uint64_t thread_free_us[SIMULATE_THREADS_MAX];
    double sent;
};

enum kind { STEP_END, JOB, OBJECT, BEAT, TICK };

struct happening {
    uint64_t at_us, order; /* order: among those of one moment */
    enum kind kind;
    uint32_t island, from;
    enum sync_event_type job;
    struct wire_key key; /* OBJECT; JOB: fragment, version, shard */
    struct beat *beat;   /* BEAT: on its way to everyone; NULL: to be sent. Owned */
};

struct beat {
    uint32_t count, held_count;
    struct wire_held *held; /* behind the rows */
    struct wire_fragment rows[];
};

struct world {
    const struct simulate_conf *conf;
    struct schedule schedule;
    uint64_t now_us, orders, step_us, slack_us, tick_us, beat_gap_us;
    struct config_log *config_log;
    uint32_t *ids;                       /* by slot: its number */
    uint32_t *shards_counts;             /* by fragment */
    uint32_t owned[SHARDMAP_OWNERS_MAX]; /* shards, by owner */
    struct island *island;
    struct happening *heap;
    size_t heap_count, heap_room;
    struct wire_heartbeat *beat;
    enum err err;
};

/* ---- the queue ---- */

static bool before(const struct happening *a, const struct happening *b)
{
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->order < b->order;
}

static void push(struct world *w, uint64_t delay_us, struct happening event)
{
    if (w->heap_count == w->heap_room && w->err == ERR_OK) {
        size_t room = w->heap_room > 0 ? 2 * w->heap_room : 1024;
        w->err = room > EVENTS_MAX ? err_set(ERR_NOMEM, "a simulation of this size has too many messages under way")
                                   : mem_grow(&w->heap, w->heap_room, room, sizeof *w->heap, "the simulation");
        w->heap_room = w->err == ERR_OK ? room : w->heap_room;
    }
    if (w->err != ERR_OK) {
        mem_free(event.beat);
        return;
    }
    event.at_us = w->now_us + delay_us;
    event.order = w->orders++;
    size_t at = w->heap_count++;
    for (; at > 0 && before(&event, &w->heap[(at - 1) / 2]); at = (at - 1) / 2)
        w->heap[at] = w->heap[(at - 1) / 2];
    w->heap[at] = event;
}

static struct happening pop(struct world *w)
{
    struct happening top = w->heap[0];
    struct happening last = w->heap[--w->heap_count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= w->heap_count)
            break;
        child += child + 1 < w->heap_count && before(&w->heap[child + 1], &w->heap[child]);
        if (!before(&w->heap[child], &last))
            break;
        w->heap[at] = w->heap[child];
        at = child;
    }
    if (w->heap_count > 0)
        w->heap[at] = last;
    return top;
}

/* ---- the line ---- */

uint32_t simulate_owners(uint32_t islands)
{
    return islands < SHARDMAP_OWNERS_MAX ? islands : SHARDMAP_OWNERS_MAX;
}

static double fragment_params(const struct world *w)
{
    return w->conf->params / w->conf->fragments;
}

/* Shards of a fragment are alike; contribution to a part and its result are as large. */
static double part_params(const struct world *w, uint32_t owner)
{
    return owner < SHARDMAP_OWNERS_MAX ? fragment_params(w) * w->owned[owner] / SHARDMAP_SLOTS : 0;
}

static uint64_t half_trip_us(const struct world *w)
{
    return (uint64_t)(w->conf->rtt_s * 0.5e6);
}

static void send_object(struct world *w, uint32_t from, uint32_t to, const struct wire_key *key)
{
    struct island *a = &w->island[from], *b = &w->island[to];
    double bytes = part_params(w, key->owner) * w->conf->bits / 8 / (1 - w->conf->loss);
    uint64_t *line[2] = {&a->up_free_us, w->conf->half_duplex ? &b->up_free_us : &b->down_free_us};
    uint64_t start = w->now_us;
    start = *line[0] > start ? *line[0] : start;
    start = *line[1] > start ? *line[1] : start;
    double line_us = 8e6 * bytes / w->conf->bits_per_s, cipher_us = 1e-3 * w->conf->work.link_ns * bytes;
    uint64_t end = start + (uint64_t)(line_us > cipher_us ? line_us : cipher_us) + 1;
    *line[0] = *line[1] = end;
    if (a->step > w->conf->steps / 2)
        a->sent += bytes;
    push(w, end - w->now_us + half_trip_us(w),
         (struct happening){.kind = OBJECT, .island = to, .from = from, .key = *key});
}

static double job_ns(const struct world *w, const struct sync_event *event)
{
    const struct simulate_work *work = &w->conf->work;
    switch (event->type) {
    case SYNC_EV_ENCODED: return work->encode_ns * fragment_params(w);
    case SYNC_EV_MADE: return work->apply_ns * fragment_params(w);
    case SYNC_EV_APPLIED: return work->hash_ns * fragment_params(w);
    case SYNC_EV_REDUCED: return work->reduce_ns * part_params(w, event->owner);
    default: return work->store_ns * part_params(w, event->owner);
    }
}

/* All but a write is done in pieces, of which there are enough for all threads. */
static uint32_t jobs_of(const struct world *w, const struct sync_event *event)
{
    uint32_t threads = w->conf->work.threads;
    return event->type == SYNC_EV_STORED ? threads > 0 : threads;
}

/* Each job when the first thread is free. Done when all are. */
static void job(struct world *w, uint32_t i, struct sync_event event)
{
    uint64_t *free_us = w->island[i].thread_free_us, end_us = w->now_us + 1;
    const uint32_t jobs = jobs_of(w, &event);
    for (uint32_t k = 0; k < jobs; k++) {
        uint64_t *first = free_us;
        for (uint32_t t = 1; t < w->conf->work.threads; t++)
            first = free_us[t] < *first ? &free_us[t] : first;
        *first = (*first > w->now_us ? *first : w->now_us) + (uint64_t)(1e-3 * job_ns(w, &event) / jobs);
        end_us = *first > end_us ? *first : end_us;
    }
    push(w, end_us - w->now_us,
         (struct happening){.kind = JOB,
                            .island = i,
                            .job = event.type,
                            .key = {.fragment = event.fragment, .version = event.version, .owner = event.owner}});
}

static void announce(struct world *w, uint32_t i)
{
    struct island *island = &w->island[i];
    if (island->announce)
        return;
    island->announce = true;
    uint64_t at = island->beat_us > w->now_us ? island->beat_us : w->now_us;
    push(w, at - w->now_us, (struct happening){.kind = BEAT, .island = i, .from = i});
}

/* ---- what the state machine orders ---- */

static void step_island(struct world *w, uint32_t i, const struct sync_event *event);

static void carry_out(struct world *w, uint32_t i, const struct sync_action *action)
{
    struct island *island = &w->island[i];
    uint32_t f = action->fragment;
    struct sync_event event = {.fragment = f, .version = action->version, .owner = i};
    switch (action->type) {
    case SYNC_DO_ENCODE: event.type = SYNC_EV_ENCODED; break;
    case SYNC_DO_REDUCE: event.type = SYNC_EV_REDUCED; break;
    case SYNC_DO_STORE: event.type = SYNC_EV_STORED; break;
    case SYNC_DO_APPLY: event.type = SYNC_EV_MADE; break;
    case SYNC_DO_SEND: send_object(w, i, action->member, &action->key); return;
    case SYNC_DO_RELEASE: island->trainer[f].word = FREE; return;
    case SYNC_DO_PUBLISH: island->trainer[f].word = ANCHOR; return;
    case SYNC_DO_ANNOUNCE: announce(w, i); return;
    case SYNC_DO_FETCH: /* nothing is lost for good here: it is under way */
    case SYNC_DO_WITHDRAW:
    case SYNC_DO_REPLAY: /* nor damaged */
    case SYNC_DO_REPAIR:
    case SYNC_DO_RETIRE:
    case SYNC_DO_REPORT: return;
    }
    job(w, i, event);
}

static void step_island(struct world *w, uint32_t i, const struct sync_event *event)
{
    struct sync_action action;
    sync_step(w->island[i].sync, event, w->now_us / 1000);
    while (sync_action(w->island[i].sync, &action))
        carry_out(w, i, &action);
}

/* ---- trainers ---- */

/* Takes in what is due and sends what is due; true if a result is lacking that the next step needs. */
static bool exchange(struct world *w, uint32_t i)
{
    struct island *island = &w->island[i];
    bool lacking = false;
    for (uint32_t f = 0; f < w->conf->fragments; f++) {
        struct trainer_fragment *t = &island->trainer[f];
        if (t->word == ANCHOR && island->step >= t->mix) {
            t->word = FREE;
            t->sent = false;
            step_island(w, i, &(struct sync_event){.type = SYNC_EV_MIXED, .fragment = f});
        }
        if (t->word == FREE && !t->sent && island->step >= t->due) {
            t->word = SNAPSHOT;
            t->sent = true;
            t->mix = island->step + w->conf->overlap;
            t->due = schedule_next_due(&w->schedule, f, island->step);
            step_island(w, i, &(struct sync_event){.type = SYNC_EV_SNAPSHOT, .fragment = f});
        }
        lacking |= t->sent && island->step >= t->mix;
    }
    return lacking;
}

/* The next step begins when nothing is lacking; a result within the slack has cost nothing. */
static void go_on(struct world *w, uint32_t i)
{
    struct island *island = &w->island[i];
    bool lacking = exchange(w, i);
    if (!island->waiting && lacking)
        island->waiting_since_us = w->now_us;
    if (lacking) {
        island->waiting = true;
        return;
    }
    uint64_t waited_us = island->waiting ? w->now_us - island->waiting_since_us : 0;
    uint64_t free_us = waited_us < w->slack_us ? waited_us : w->slack_us;
    island->waiting = false;
    if (island->step > w->conf->steps / 2) /* the first half fills the pipe */
        island->stalled_us += waited_us - free_us;
    if (island->step < w->conf->steps)
        push(w, w->step_us - (free_us < w->step_us ? free_us : w->step_us),
             (struct happening){.kind = STEP_END, .island = i});
}

/* ---- things that happen ---- */

static void object_in(struct world *w, const struct happening *event)
{
    struct island *island = &w->island[event->island];
    const struct wire_key *key = &event->key;
    enum sync_want want = sync_wants(island->sync, key, event->from);
    if (want == SYNC_NOT_YET) {
        struct happening again = *event;
        push(w, LATER_US, again);
        return;
    }
    if (want != SYNC_WANT)
        return;
    if (key->kind == WIRE_CONTRIBUTION)
        step_island(w, event->island,
                    &(struct sync_event){.type = SYNC_EV_CONTRIBUTION,
                                         .fragment = key->fragment,
                                         .version = key->version,
                                         .epoch = key->epoch,
                                         .member = event->from});
    else
        job(w, event->island,
            (struct sync_event){
                .type = SYNC_EV_STORED, .fragment = key->fragment, .version = key->version, .owner = key->owner});
}

static void job_done(struct world *w, const struct happening *event)
{
    struct island *island = &w->island[event->island];
    struct sync_event done = {.type = event->job,
                              .fragment = event->key.fragment,
                              .version = event->key.version,
                              .owner = event->key.owner,
                              .hash = {{(uint8_t)event->key.owner}},
                              .member = event->key.owner}; /* a result: its owner made it */
    if (done.type == SYNC_EV_APPLIED) {
        uint64_t version = ++island->version[done.fragment];
        memcpy(done.hash.byte, &version, sizeof version);
    }
    step_island(w, event->island, &done);
    if (done.type == SYNC_EV_APPLIED) /* nobody holds a result of a version that it has not come to */
        step_island(w, event->island, &(struct sync_event){.type = SYNC_EV_LISTED, .fragment = done.fragment});
    if (done.type == SYNC_EV_MADE) /* its hash, while the trainer goes on */
        job(w, event->island, (struct sync_event){.type = SYNC_EV_APPLIED, .fragment = done.fragment});
}

/* What has changed since its last one, as far as it fits; all get it at the same time. */
static void send_beat(struct world *w, uint32_t i)
{
    struct island *island = &w->island[i];
    struct wire_heartbeat *all = w->beat;
    struct beat *beat;
    island->announce = false;
    island->beat_us = w->now_us + w->beat_gap_us;
    all->fragments_count = all->held_count = 0;
    if (!rows_fill(island->sync, NULL, w->conf->fragments, island->said, NULL, all))
        announce(w, i); /* the next one has the rest */
    size_t rows_bytes = all->fragments_count * sizeof *beat->rows, held_bytes = all->held_count * sizeof *beat->held;
    if (mem_new(1, sizeof *beat + rows_bytes + held_bytes, "the simulation", &beat) != ERR_OK) {
        w->err = ERR_NOMEM;
        return;
    }
    beat->count = all->fragments_count;
    beat->held_count = all->held_count;
    beat->held = (struct wire_held *)(beat->rows + beat->count);
    memcpy(beat->rows, all->fragments, rows_bytes);
    memcpy(beat->held, all->held, held_bytes);
    push(w, half_trip_us(w), (struct happening){.kind = BEAT, .island = i, .beat = beat});
}

static void beat_in(struct world *w, const struct happening *event)
{
    memcpy(w->beat->fragments, event->beat->rows, event->beat->count * sizeof *event->beat->rows);
    memcpy(w->beat->held, event->beat->held, event->beat->held_count * sizeof *event->beat->held);
    w->beat->fragments_count = event->beat->count;
    w->beat->held_count = event->beat->held_count;
    w->beat->taking_part = true;
    mem_free(event->beat);
    for (uint32_t k = 0; k < w->conf->islands; k++) {
        if (k == event->island)
            continue;
        step_island(w, k, &(struct sync_event){.type = SYNC_EV_HEARTBEAT, .member = event->island, .beat = w->beat});
        if (w->island[k].waiting)
            go_on(w, k);
    }
}

static void happen(struct world *w, const struct happening *event)
{
    struct island *island = &w->island[event->island];
    w->now_us = event->at_us;
    switch (event->kind) {
    case STEP_END:
        island->step++;
        go_on(w, event->island);
        return;
    case JOB: job_done(w, event); break;
    case OBJECT: object_in(w, event); break;
    case BEAT:
        if (event->beat == NULL)
            send_beat(w, event->island);
        else
            beat_in(w, event);
        break;
    case TICK:
        step_island(w, event->island, &(struct sync_event){.type = SYNC_EV_TICK});
        push(w, w->step_us / 2 > w->tick_us ? w->step_us / 2 : w->tick_us, *event);
        break;
    }
    if (island->waiting)
        go_on(w, event->island);
}

/* ---- set-up ---- */

double simulate_owner_share(uint32_t islands)
{
    const double owners = simulate_owners(islands);
    return (owners - 1) / owners + (islands - 1) / owners;
}

struct simulate_conf simulate_fewer(const struct simulate_conf *conf, uint32_t islands)
{
    struct simulate_conf fewer = *conf;
    fewer.islands = islands;
    fewer.bits *= simulate_owner_share(conf->islands) / simulate_owner_share(islands);
    fewer.work.reduce_ns *= (double)simulate_owners(islands) / simulate_owners(conf->islands);
    return fewer;
}

/* One configuration for the whole run: all are owners and vote, or the first ones, if they are too many. */
static enum err make_config_log(struct world *w)
{
    const struct simulate_conf *conf = w->conf;
    struct shardmap_owner owners[SHARDMAP_OWNERS_MAX];
    struct config config = {.next_id = conf->islands, .map = shardmap_empty()};
    struct digest digest = {{0}};
    enum err err;
    TRY_OUT(mem_new(conf->islands, sizeof *config.members, "the simulation", &config.members));
    config.members_count = conf->islands;
    for (uint32_t i = 0; i < conf->islands; i++) {
        bool owner = i < simulate_owners(conf->islands);
        config.members[i] = (struct config_member){.id = i,
                                                   .role = owner ? CONFIG_OWNER : CONFIG_CONTRIBUTOR,
                                                   .voter = owner,
                                                   .owner_choice = CONFIG_OWNER_AUTO};
        if (owner)
            owners[i] = (struct shardmap_owner){.id = i, .weight = 1};
    }
    shardmap_assign(&config.map, owners, simulate_owners(conf->islands));
    for (uint32_t slot = 0; slot < SHARDMAP_SLOTS; slot++)
        w->owned[config.map.owner[slot]]++;
    TRY_OUT(config_log_new(&w->config_log));
    TRY_OUT(config_log_add(w->config_log, &config, &digest));
    TRY_OUT(mem_new(conf->islands, sizeof *w->ids, "the simulation", &w->ids));
    for (uint32_t i = 0; i < conf->islands; i++)
        w->ids[i] = i;
    TRY_OUT(mem_new(conf->fragments, sizeof *w->shards_counts, "the simulation", &w->shards_counts));
    for (uint32_t f = 0; f < conf->fragments; f++)
        w->shards_counts[f] = SHARDMAP_SLOTS;
out:
    config_deinit(&config);
    return err;
}

static enum err start_island(struct world *w, uint32_t i)
{
    const struct simulate_conf *conf = w->conf;
    struct island *island = &w->island[i];
    struct sync_conf sync = {.config_log = w->config_log,
                             .fragments_count = conf->fragments,
                             .shards_counts = w->shards_counts,
                             .view = {.self = i,
                                      .slots = conf->islands,
                                      .ids = w->ids,
                                      .members = bitset_first(conf->islands),
                                      .taking_part = bitset_first(conf->islands),
                                      .keepers = bitset_first(simulate_owners(conf->islands)),
                                      .commit_quorum = config_commit_quorum(config_log_last(w->config_log)),
                                      .votes = i < simulate_owners(conf->islands)}};
    TRY(mem_new(conf->fragments, sizeof *island->trainer, "the simulation", &island->trainer));
    TRY(mem_new(conf->fragments, sizeof *island->version, "the simulation", &island->version));
    TRY(mem_new(conf->fragments, sizeof *island->said, "the simulation", &island->said));
    TRY(sync_new(&sync, &island->sync));
    for (uint32_t f = 0; f < conf->fragments; f++) {
        sync_restore(island->sync, f, 0, &(struct digest){{0}});
        island->trainer[f].due = schedule_next_due(&w->schedule, f, 0);
    }
    return ERR_OK;
}

static void begin(struct world *w)
{
    for (uint32_t i = 0; i < w->conf->islands; i++) {
        for (uint32_t k = 0; k < w->conf->islands; k++)
            if (k != i)
                step_island(w, i, &(struct sync_event){.type = SYNC_EV_PEER_UP, .member = k});
        for (uint32_t f = 0; f < w->conf->fragments; f++)
            step_island(w, i, &(struct sync_event){.type = SYNC_EV_TRAINER_UP, .fragment = f});
        announce(w, i);
        push(w, w->step_us, (struct happening){.kind = STEP_END, .island = i});
        push(w, w->tick_us * (i + 1) / w->conf->islands, (struct happening){.kind = TICK, .island = i});
    }
}

static bool all_done(const struct world *w)
{
    for (uint32_t i = 0; i < w->conf->islands; i++)
        if (w->island[i].step < w->conf->steps || w->island[i].waiting)
            return false;
    return true;
}

static void sum_up(const struct world *w, struct simulate_result *result)
{
    double trained = 0, all = 0, sent = 0;
    for (uint32_t i = 0; i < w->conf->islands; i++) {
        const struct island *island = &w->island[i];
        double stretch = (double)(w->conf->steps - w->conf->steps / 2) * (double)w->step_us;
        trained += stretch;
        all += stretch + (double)island->stalled_us;
        sent += island->sent;
    }
    *result = (struct simulate_result){.utilisation = trained / all,
                                       .bytes_per_step =
                                           sent / w->conf->islands / (double)(w->conf->steps - w->conf->steps / 2)};
}

static void clean_up(struct world *w)
{
    for (size_t k = 0; k < w->heap_count; k++)
        mem_free(w->heap[k].beat);
    mem_free(w->heap);
    mem_free(w->beat);
    for (uint32_t i = 0; w->island != NULL && i < w->conf->islands; i++) {
        sync_free(w->island[i].sync);
        mem_free(w->island[i].trainer);
        mem_free(w->island[i].version);
        mem_free(w->island[i].said);
    }
    mem_free(w->island);
    config_log_free(w->config_log);
    mem_free(w->ids);
    mem_free(w->shards_counts);
    mem_free(w);
}

static enum err check(const struct simulate_conf *conf)
{
    if (conf->islands < 2 || conf->islands > SYNC_MEMBERS_MAX)
        return err_set(ERR_ARG, "%" PRIu32 " islands; 2 to %d are possible", conf->islands, SYNC_MEMBERS_MAX);
    if (conf->fragments < 1 || conf->fragments > WIRE_FRAGMENTS_MAX || conf->interval < 1 || conf->steps < 1)
        return err_set(ERR_ARG, "%" PRIu32 " fragments, an interval of %" PRIu64 " steps", conf->fragments,
                       conf->interval);
    if (!(conf->params > 0 && conf->step_s > 0 && conf->bits > 0 && conf->bits_per_s > 0) ||
        !(conf->loss >= 0 && conf->loss < 1) || !(conf->rtt_s >= 0) || conf->work.threads > SIMULATE_THREADS_MAX)
        return err_set(ERR_ARG, "parameters, step time, bits and bandwidth must be above 0, loss from 0 to below 1");
    return ERR_OK;
}

/* What every island knows of every other; and what is under way at a time at most: a heartbeat or an object from each
 * to each that owns shards, and back. The queue has room for twice as much as was ever in it. */
double simulate_bytes(const struct simulate_conf *conf)
{
    uint32_t owners = simulate_owners(conf->islands);
    double island =
        (double)sync_bytes(conf->islands, conf->fragments, owners) + sizeof(struct island) +
        conf->fragments * (double)(sizeof(struct trainer_fragment) + sizeof(uint64_t) + sizeof(struct rows_said));
    double under_way = 2.0 * conf->islands * owners;
    return conf->islands * island + 2 * under_way * sizeof(struct happening);
}

static enum err check_memory(const struct simulate_conf *conf)
{
    double there = (double)mem_limit().bytes;
    if (simulate_bytes(conf) < memory_share_most * there)
        return ERR_OK;
    return err_set(ERR_NOMEM,
                   "%" PRIu32 " islands with %" PRIu32 " fragments take %.1f GiB to simulate, and this machine has "
                   "%.1f GiB; fewer islands tell as much",
                   conf->islands, conf->fragments, simulate_bytes(conf) / (1 << 30), there / (1 << 30));
}

enum err simulate_run(const struct simulate_conf *conf, struct simulate_result *result)
{
    enum err err;
    struct world *w = NULL;
    TRY(check(conf));
    TRY(check_memory(conf));
    TRY(mem_new(1, sizeof *w, "the simulation", &w));
    w->conf = conf;
    w->schedule = (struct schedule){.interval = conf->interval, .fragments = conf->fragments, .spread = true};
    w->step_us = (uint64_t)(1e6 * conf->step_s);
    w->step_us = w->step_us > 0 ? w->step_us : 1;
    w->slack_us = (uint64_t)(1e6 * conf->step_s * conf->slack);
    uint64_t many = conf->islands > ISLANDS_FEW ? conf->islands : ISLANDS_FEW;
    w->tick_us = TICK_US_MIN * many / ISLANDS_FEW;
    w->beat_gap_us = BEAT_GAP_US * many * many / ISLANDS_FEW / ISLANDS_FEW;
    w->beat_gap_us = w->beat_gap_us < BEAT_GAP_US_MAX ? w->beat_gap_us : BEAT_GAP_US_MAX;
    TRY_OUT(mem_new(conf->islands, sizeof *w->island, "the simulation", &w->island));
    TRY_OUT(mem_new(1, sizeof *w->beat, "the simulation", &w->beat));
    TRY_OUT(make_config_log(w));
    for (uint32_t i = 0; i < conf->islands; i++)
        TRY_OUT(start_island(w, i));
    begin(w);
    while (w->err == ERR_OK && w->heap_count > 0 && !all_done(w)) {
        struct happening event = pop(w);
        happen(w, &event);
    }
    err = w->err;
    if (err == ERR_OK && !all_done(w))
        err = err_set(ERR_STATE, "the simulation came to a stand");
    sum_up(w, result);
out:
    clean_up(w);
    return err;
}
