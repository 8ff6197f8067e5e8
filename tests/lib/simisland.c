/* SPDX-License-Identifier: Apache-2.0 */
/* What goes from one island to another, objects and heartbeats, and what trainers do. */
#include "tests/lib/simworld.h"

#include <string.h>

#include "net/sync/sync.h"

struct sim_beat {
    bool taking_part, in_doubt, disk_fails;
    uint64_t incarnation, step;
    uint32_t silent[SIM_N_MAX], silent_count; /* ids */
    uint32_t from, to;
    uint64_t session, sequence, epoch;
    uint32_t held_count;
    struct wire_fragment rows[SIM_F_MAX];
    struct wire_held held[SIM_F_MAX * VERSION_PARTS_MAX];
};

/* Large, and used from the start up: never cleared as a whole. */
static struct sim_object objects[SIM_OBJECTS_MAX];
static struct sim_beat beats[SIM_BEATS_MAX];
static uint64_t beats_due_ms[SIM_BEATS_MAX]; /* 0: not used */

/* ---- objects ---- */

/* How much of a fragment it is, in slots of shards: a state is all of it, with its momentum. */
static uint32_t slots_of(uint32_t from, const struct wire_key *key)
{
    const struct shardmap *map = &config_log_last(sim->island[from].config_log)->map;
    uint32_t slots = 0;
    if (key->kind == WIRE_STATE)
        return 2 * SHARDMAP_SLOTS;
    for (uint32_t k = 0; k < SHARDMAP_SLOTS; k++)
        slots += map->owner[k] == key->owner;
    return slots;
}

/* It takes its turn on the sender's uplink and the receiver's downlink together, as it does for dilococtl plan
 * (daemon/ctl/simulate.c). */
static void pass_lines(struct sim_object *o)
{
    uint64_t *up_ms = &sim->island[o->from].up_free_ms, *down_ms = &sim->island[o->to].down_free_ms;
    uint64_t start_ms = sim->now_ms > *up_ms ? sim->now_ms : *up_ms;
    start_ms = *down_ms > start_ms ? *down_ms : start_ms;
    *up_ms = *down_ms = start_ms + (uint64_t)sim->fragment_ms * slots_of(o->from, &o->key) / SHARDMAP_SLOTS;
    sim->tally.line_ms += *up_ms - start_ms;
    o->try_ms = *up_ms + o->delay_ms;
    o->sent = true;
}

/* It waits for its turn, behind all that wait already; where objects take no time on a line, it has it at once. */
static void await_lines(struct sim_object *o, uint64_t delay_ms)
{
    o->delay_ms = delay_ms;
    o->number = ++sim->objects_count;
    o->sent = false;
    if (sim->fragment_ms == 0)
        pass_lines(o);
}

static bool is_over(const struct sim_object *o)
{
    const struct sim_island *from = &sim->island[o->from], *to = &sim->island[o->to];
    return !from->alive || from->session != o->from_session || !to->alive || to->session != o->to_session;
}

/* Whether both lines are free before the next step. */
static bool may_pass(const struct sim_object *o)
{
    uint64_t next_ms = sim->now_ms + SIM_STEP_MS;
    return sim->island[o->from].up_free_ms < next_ms && sim->island[o->to].down_free_ms < next_ms;
}

/* What is given up while it waits has held no line. */
static void fill_lines(void)
{
    struct sim_object *first;
    do {
        first = NULL;
        for (size_t k = 0; k < sim->objects_end; k++) {
            struct sim_object *o = &objects[k];
            o->used = o->used && (o->sent || !is_over(o));
            if (o->used && !o->sent && may_pass(o) && (first == NULL || o->number < first->number))
                first = o;
        }
        if (first != NULL)
            pass_lines(first);
    } while (first != NULL);
}

void sim_add_object(uint32_t from, uint32_t to, const struct wire_key *key)
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
    *slot = (struct sim_object){.used = true,
                                .from = from,
                                .to = to,
                                .from_session = sim->island[from].session,
                                .to_session = sim->island[to].session,
                                .key = *key};
    await_lines(slot, 5 + sim_below(sim->line_ms));
}

void sim_retire(uint32_t i, uint32_t kind, uint32_t f, uint64_t version_max)
{
    for (size_t k = 0; k < sim->objects_end; k++) {
        struct sim_object *o = &objects[k];
        if (o->from == i && o->key.kind == kind && o->key.fragment == f && o->key.version <= version_max)
            o->used = false;
    }
}

static void deliver_contribution(const struct sim_object *o)
{
    struct sim_island *to = &sim->island[o->to];
    uint32_t f = o->key.fragment;
    const struct sim_contribution *c = &sim->island[o->from].out[f];
    if (c->version != o->key.version || c->epoch != o->key.epoch)
        return;
    struct sync_event event = {.type = SYNC_EV_CONTRIBUTION,
                               .fragment = f,
                               .version = o->key.version,
                               .epoch = o->key.epoch,
                               .member = sim_slot(o->to, o->from)};
    to->in[f][o->from] = *c;
    if (!sync_base_agrees(to->sync, f, o->key.version, &c->base))
        event.type = SYNC_EV_CONTRIBUTION_REFUSED;
    SIM_HOLDS(event.type == SYNC_EV_CONTRIBUTION_REFUSED || !sync_known(to->sync, f) ||
                  to->version[f] + 1 != o->key.version || digest_equal(&c->base, &to->hash[f]),
              "island %u takes a contribution of island %u from another base\n", o->to, o->from);
    if (event.type == SYNC_EV_CONTRIBUTION_REFUSED)
        sim_add_job(o->from, 5 + sim_below(80),
                    (struct sync_event){.type = SYNC_EV_TURNED_DOWN, .member = sim_slot(o->from, o->to), .key = o->key},
                    0);
    sim_step(o->to, &event);
}

/* Whether so many voters signed the state's hash, by what its sender has of them and who asks has heard itself. */
static bool committed(const struct sim_object *o)
{
    struct sim_island *from = &sim->island[o->from];
    struct sim_island *to = &sim->island[o->to];
    uint32_t f = o->key.fragment;
    const struct certificate_subject subject = {
        .nonce = from->view.nonce, .fragment = f, .version = o->key.version, .hash = from->hash[f]};
    struct certificate certificate;
    struct certificate_rule rule;
    if (o->key.version == 0)
        return true;
    certificates_known(from->certificates, &subject, &certificate);
    certificates_complete(to->certificates, &subject, &certificate);
    certificate_rule_of(to->config_log, f, o->key.version, &rule);
    bool excused = sync_excused(to->sync, f, o->key.version, to->view.self);
    return certificate_check(&rule, &subject, &certificate, excused ? sim_id(o->to) : CERTIFICATE_NOBODY) == ERR_OK;
}

/* A state names, per member and shard, the last work that was counted. */
static void deliver_state(const struct sim_object *o)
{
    struct sim_island *from = &sim->island[o->from];
    struct sim_island *to = &sim->island[o->to];
    uint32_t f = o->key.fragment;
    if (from->version[f] != o->key.version)
        return;
    if (!committed(o)) {
        sim->tally.uncommitted++;
        sim_add_job(
            o->to, 5 + sim_below(50),
            (struct sync_event){.type = SYNC_EV_NOT_AVAILABLE, .member = sim_slot(o->to, o->from), .key = o->key}, 0);
        return;
    }
    for (uint64_t v = to->version[f] + 1; v <= from->version[f]; v++)
        for (uint32_t s = 0; s < sim->shards_counts[f]; s++) {
            const struct sim_result *result = sim_result(sim->truth[f][v][s]);
            if ((result->contributors >> o->to & 1) != 0 && sim_to(result, o->to) > to->counted[f][s])
                to->counted[f][s] = sim_to(result, o->to);
        }
    to->hash[f] = to->disk.hash[f] = from->hash[f]; /* and a checkpoint is written at once */
    to->version[f] = to->disk.version[f] = from->version[f];
    to->disk.blank[f] = false;
    to->step_by_step[f] = false;
    sim->tally.named += sim->split; /* who has fallen far behind is mended before it could notice */
    sim_tell("island %u takes over the state of island %u: fragment %u version %llu", o->to, o->from, f,
             (unsigned long long)o->key.version);
    sim_step(o->to, &(struct sync_event){
                        .type = SYNC_EV_INSTALLED, .fragment = f, .version = o->key.version, .hash = to->hash[f]});
    sim_tell_listed(o->to, f);
}

/* Of two results of one part it gives the one that its core holds. */
static uint32_t one_that_counts(const struct sim_object *o, uint32_t number)
{
    const struct sim_island *from = &sim->island[o->from];
    const struct version_part *parts;
    struct digest digest;
    bool acknowledged;
    uint32_t f = o->key.fragment;
    uint32_t count = o->key.version == from->version[f] + 1 ? sync_parts(from->sync, f, &parts) : 0;
    for (uint32_t p = 0; p < count; p++)
        if (parts[p].id.owner == o->key.owner && parts[p].id.epoch == o->key.epoch &&
            sync_held(from->sync, f, p, &digest, &acknowledged))
            return sim_number(&digest);
    return number;
}

static void deliver_result(const struct sim_object *o)
{
    const struct wire_key *key = &o->key;
    uint32_t number = sim_find(&sim->island[o->from].disk, key->fragment, key->version, key->epoch, sim_of(key->owner));
    SIM_HOLDS(number != 0, "island %u sends a result it does not have\n", o->from);
    number = one_that_counts(o, number);
    if (sim_lies(o->from, SIM_LIE_TWO) || sim_lies(o->from, SIM_LIE_TWO_ACKS))
        number = sim_lie_result(o->to, number);
    sim_add_job(o->to, 1 + sim_below(20),
                (struct sync_event){.type = SYNC_EV_STORED,
                                    .fragment = key->fragment,
                                    .version = key->version,
                                    .epoch = key->epoch,
                                    .owner = key->owner,
                                    .hash = sim_digest(number),
                                    .member = sim_slot(o->to, o->from)},
                number);
}

static void try_object(struct sim_object *o)
{
    struct sim_island *to = &sim->island[o->to];
    if (is_over(o)) {
        o->used = false;
        return;
    }
    uint64_t again_ms = 20 + sim_below(2 * sim->line_ms);
    o->try_ms = sim->now_ms + again_ms;
    if (!sim_linked(o->from, o->to) || sim_stopped(o->from) || sim_stopped(o->to) || !sim_lets_in(o->to, o->from))
        return;
    if (sim_chance(sim->loss_percent)) { /* it goes once more: what comes is acknowledged */
        await_lines(o, again_ms);
        return;
    }
    enum sync_want want = sync_wants(to->sync, &o->key, sim_slot(o->to, o->from));
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

void sim_try_objects(void)
{
    if (sim->fragment_ms != 0)
        fill_lines();
    for (size_t k = 0; k < sim->objects_end; k++)
        if (objects[k].used && objects[k].sent && objects[k].try_ms <= sim->now_ms)
            try_object(&objects[k]);
    while (sim->objects_end > 0 && !objects[sim->objects_end - 1].used)
        sim->objects_end--;
}

/* ---- trainers ---- */

static bool all_counted(uint32_t i, uint32_t f)
{
    for (uint32_t s = 0; s < sim->shards_counts[f]; s++)
        if (sim->island[i].counted[f][s] < sim->island[i].trainer[f].work)
            return false;
    return true;
}

static void run_trainer(uint32_t i, uint32_t f)
{
    struct sim_trainer *t = &sim->island[i].trainer[f];
    if (!t->up || sim_stands(i))
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
        t->word = SIM_SNAPSHOT;
        t->snapshot_work = t->work;
        sim_step(i, &(struct sync_event){.type = SYNC_EV_SNAPSHOT, .fragment = f});
    }
}

/* ---- peers ---- */

static void peer_event(uint32_t i, uint32_t member, enum sync_event_type type)
{
    sim_step(i, &(struct sync_event){.type = type, .member = sim_slot(i, member)});
}

/* Who greets whom, and who has been silent for too long. */
static void look_after_peers(uint32_t i)
{
    struct sim_island *island = &sim->island[i];
    for (uint32_t k = 0; k < sim->n; k++) {
        if (k == i || !sim_knows(i, k))
            continue;
        const struct sim_island *other = &sim->island[k];
        bool speaks =
            other->alive && !sim_stopped(k) && !sim->link_down[k][i] && sim_lets_in(i, k) && !sim_lie_hides(k, i);
        if (speaks)
            island->heard_ms[k] = sim_clock(i);
        bool again = speaks && island->greeted[k] != other->session;
        bool gone = island->greeted[k] != 0 && (again || sim_clock(i) > island->heard_ms[k] + SIM_SILENT_MS);
        if (gone) {
            island->greeted[k] = 0;
            peer_event(i, k, SYNC_EV_PEER_DOWN);
            sim_voice_up(i, k, false);
        }
        if (!again)
            continue;
        if (island->greeted_last[k] != other->session)
            island->taken_in[k] = 0;
        island->greeted[k] = island->greeted_last[k] = other->session;
        peer_event(i, k, SYNC_EV_PEER_UP);
        sim_voice_up(i, k, true);
    }
}

/* ---- heartbeats ---- */

static void add_beat(const struct sim_beat *beat, uint64_t due_ms)
{
    size_t k = sim->beats_free;
    while (k < sim->beats_end && beats_due_ms[k] != 0)
        k++;
    SIM_HOLDS(k < SIM_BEATS_MAX, "too many heartbeats");
    memcpy(&beats[k], beat, offsetof(struct sim_beat, held) + beat->held_count * sizeof beat->held[0]);
    beats_due_ms[k] = due_ms;
    sim->beats_free = k + 1;
    sim->beats_end = k >= sim->beats_end ? k + 1 : sim->beats_end;
}

/* Most come soon, some late, and then after those that were sent later. */
static uint64_t beat_delay_ms(void)
{
    return sim->loss_percent > 0 && sim_chance(5) ? sim_below(1500) : 1 + sim_below(60);
}

void sim_note_acknowledged(uint32_t i, uint32_t f)
{
    const struct version_part *parts;
    struct digest digest;
    bool acknowledged;
    uint32_t count = sync_parts(sim->island[i].sync, f, &parts);
    for (uint32_t p = 0; p < count; p++)
        if (sync_held(sim->island[i].sync, f, p, &digest, &acknowledged) && acknowledged)
            sim_check_acknowledged(i, f, sim_number(&digest));
}

/* As the daemon says it, all of it each time. */
static void put_rows(uint32_t i, struct sim_beat *beat)
{
    static struct wire_heartbeat heartbeat;
    struct sim_island *island = &sim->island[i];
    struct rows_said said[SIM_F_MAX];
    uint32_t refresh = 0;
    heartbeat.epoch = island->epoch;
    heartbeat.fragments_count = heartbeat.held_count = 0;
    memset(said, 0xff, sizeof said);
    rows_fill(island->sync, island->certificates, sim->fragments, said, &refresh, &heartbeat);
    SIM_HOLDS(heartbeat.fragments_count == sim->fragments, "island %u says nothing of a fragment\n", i);
    memcpy(beat->rows, heartbeat.fragments, sim->fragments * sizeof beat->rows[0]);
    memcpy(beat->held, heartbeat.held, heartbeat.held_count * sizeof beat->held[0]);
    beat->held_count = heartbeat.held_count;
}

/* What it acknowledges is on its disk. */
static void look_at_held(uint32_t i, uint32_t f)
{
    const struct sim_island *island = &sim->island[i];
    const struct version_part *parts;
    struct digest digest;
    bool acknowledged;
    uint32_t count = sync_parts(island->sync, f, &parts);
    for (uint32_t p = 0; p < count; p++) {
        if (!sync_held(island->sync, f, p, &digest, &acknowledged) || !acknowledged)
            continue;
        SIM_HOLDS(sim_is_liar(i) || sim_keeps(&island->disk, sim_number(&digest)),
                  "island %u acknowledges a result that is not on its disk\n", i);
        sim_check_acknowledged(i, f, sim_number(&digest));
    }
}

/* As it is on the wire; until the next call. */
static struct wire_heartbeat *heartbeat_of(const struct sim_beat *beat)
{
    static struct wire_heartbeat heartbeat;
    heartbeat.taking_part = beat->taking_part;
    heartbeat.epoch = beat->epoch;
    heartbeat.step = beat->step;
    heartbeat.in_doubt = beat->in_doubt;
    heartbeat.disk_fails = beat->disk_fails;
    heartbeat.incarnation = beat->incarnation;
    heartbeat.silent_count = beat->silent_count;
    memcpy(heartbeat.silent, beat->silent, beat->silent_count * sizeof beat->silent[0]);
    heartbeat.fragments_count = sim->island[beat->from].witness ? 0 : sim->fragments;
    heartbeat.held_count = beat->held_count;
    memcpy(heartbeat.fragments, beat->rows, sim->fragments * sizeof beat->rows[0]);
    memcpy(heartbeat.held, beat->held, beat->held_count * sizeof beat->held[0]);
    return &heartbeat;
}

static void send_heartbeat(uint32_t i)
{
    static struct sim_beat beat;
    struct sim_island *island = &sim->island[i];
    beat.taking_part = false;
    beat.from = i;
    beat.session = island->session;
    beat.sequence = ++island->sequence;
    beat.epoch = island->epoch;
    beat.in_doubt = sim_in_doubt(i);
    beat.incarnation = island->disk.incarnation;
    beat.disk_fails = sim_disk_full(i) || (sim_lies(i, SIM_LIE_DISK) &&
                                           sim->now_ms / 1500 % 2 == 0); /* twice as long as it takes to see it */
    beat.step = island->trainer[0].work;
    beat.silent_count = 0;
    for (uint32_t slot = 0; slot < island->view.count; slot++)
        if (bitset_has(&island->voice.silent, slot))
            beat.silent[beat.silent_count++] = island->view.members[slot].as.id;
    beat.held_count = 0;
    for (uint32_t f = 0; f < sim->fragments; f++) {
        beat.taking_part |= island->trainer[f].up;
        look_at_held(i, f);
    }
    if (!island->witness)
        put_rows(i, &beat);
    struct wire_heartbeat *own = heartbeat_of(&beat);
    sim_voice_beat(i, own);
    for (beat.to = 0; beat.to < sim->n; beat.to++) {
        if (beat.to == i || !sim_knows(i, beat.to) || sim->link_down[i][beat.to] || sim_chance(sim->loss_percent))
            continue;
        static struct sim_beat lie;
        bool lies = sim_is_liar(i);
        if (lies && sim_lie_hides(i, beat.to))
            continue;
        if (lies) {
            lie = beat;
            sim_lie_beat(i, lie.to, lie.rows, lie.held, &lie.held_count);
            sim_lie_silent(i, lie.silent, &lie.silent_count);
        }
        add_beat(lies ? &lie : &beat, sim->now_ms + beat_delay_ms());
    }
    island->announce = false;
    island->beat_ms = sim->now_ms + 300;
}

static void take_certificates(uint32_t i, uint32_t from, const struct wire_heartbeat *beat)
{
    const struct sim_island *island = &sim->island[i];
    for (uint32_t k = 0; island->certificates != NULL && k < beat->fragments_count; k++) {
        const struct wire_fragment *row = &beat->fragments[k];
        const struct certificate_subject subject = {
            .nonce = island->view.nonce, .fragment = row->fragment, .version = row->at.version, .hash = row->at.hash};
        if (row->certified)
            certificates_heard(island->certificates, sim_id(from), &subject, row->signature);
    }
}

/* As the daemon does: one of another session than the greeted one is not looked at, nor one that was overtaken. */
static void beat_in(size_t k)
{
    const struct sim_beat *beat = &beats[k];
    struct sim_island *to = &sim->island[beat->to];
    if (to->alive && sim_stopped(beat->to))
        return; /* later */
    beats_due_ms[k] = 0;
    sim->beats_free = k < sim->beats_free ? k : sim->beats_free;
    if (!to->alive || !sim_lets_in(beat->to, beat->from) || to->greeted[beat->from] != beat->session ||
        beat->sequence <= to->taken_in[beat->from])
        return;
    to->taken_in[beat->from] = beat->sequence;
    struct wire_heartbeat *heartbeat = heartbeat_of(beat);
    take_certificates(beat->to, beat->from, heartbeat);
    sim_step(beat->to, &(struct sync_event){
                           .type = SYNC_EV_HEARTBEAT, .member = sim_slot(beat->to, beat->from), .beat = heartbeat});
    sim_voice_heard(beat->to, beat->from, heartbeat);
}

void sim_beats_in(void)
{
    for (size_t k = 0; k < sim->beats_end; k++)
        if (beats_due_ms[k] != 0 && beats_due_ms[k] <= sim->now_ms)
            beat_in(k);
    while (sim->beats_end > 0 && beats_due_ms[sim->beats_end - 1] == 0)
        sim->beats_end--;
}

/* ---- time ---- */

/* As the daemon does: a state that is asked for, or on its way, is not asked for anew. */
static void watch_states(uint32_t i)
{
    struct sim_island *island = &sim->island[i];
    struct wire_key key;
    for (uint32_t f = 0; f < sim->fragments; f++) {
        if (!sync_fetching_state(island->sync, f, &key))
            continue;
        for (size_t k = 0; k < sim->objects_end; k++) {
            const struct sim_object *o = &objects[k];
            if (o->used && o->to == i && !is_over(o) && wire_key_equal(&o->key, &key))
                sync_state_moves(island->sync, f, committed(o));
        }
    }
}

void sim_run_island(uint32_t i)
{
    for (uint32_t f = 0; f < sim->fragments; f++)
        run_trainer(i, f);
    if (sim_stopped(i))
        return;
    look_after_peers(i);
    if (sim->island[i].announce || sim->now_ms >= sim->island[i].beat_ms)
        send_heartbeat(i);
    watch_states(i);
    sim_step(i, &(struct sync_event){.type = SYNC_EV_TICK});
    sim_voice_tick(i);
}
