/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An island's voice in who takes part, in a simulated world: as daemon/peers joins net/membership/epoch,
 * net/membership/compose and net/membership/muster to the protocol core, with a disk, a network and a clock that are
 * simulated. Its own additions: a proposer dies now and then, before it composes, before its ACCEPT is said, or when it
 * has just decided.
 */
#include "tests/lib/simworld.h"

#include <string.h>

#include "common/mem.h"
#include "net/membership/compose.h"
#include "net/membership/epoch_wire.h"

/* As in daemon/peers: docs/PROTOCOL.md, "Epochs". */
enum { TURN_MS = 1000, AGAIN_MS = 400, ASKED_MS = 700, OVERDUE_MS = 4000, TICK_MS = 100 };

static struct sim_voice *voice_of(uint32_t i)
{
    return &sim->island[i].voice;
}

static const struct record *last(uint32_t i)
{
    return chain_last(sim->island[i].chain);
}

static struct compose_base base_of(uint32_t i)
{
    return (struct compose_base){.record = last(i),
                                 .digest = chain_last_digest(sim->island[i].chain),
                                 .shards = sim->shards_counts,
                                 .fragments_count = sim->fragments};
}

const struct record_member *sim_member_of(uint32_t i, uint32_t k)
{
    return sim_knows(i, k) ? record_member(last(i), sim_id(k)) : NULL;
}

bool sim_in_doubt(uint32_t i)
{
    return sim->island[i].doubt != SIM_SURE;
}

bool sim_votes(uint32_t i)
{
    const struct record_member *self = sim_member_of(i, i);
    return self != NULL && self->voter && !sim_in_doubt(i);
}

/* A proposer is killed at a moment when it hurts. */
static void die_now_and_then(uint32_t i, unsigned percent)
{
    if (sim->healing || sim->kill_permille == 0 || !sim_chance(percent))
        return;
    sim->tally.proposers_died += !sim->island[i].die;
    sim->island[i].die = true;
}

/* ---- out ---- */

static void say(uint32_t i, uint32_t k, const struct wire_epoch *message)
{
    struct sim_voice *voice = voice_of(i);
    uint8_t *bytes;
    size_t count;
    if (k == sim->n || !sim_knows(i, k) || sim->island[i].die)
        return;
    enum err err = wire_epoch_pack(message, &bytes, &count);
    SIM_HOLDS(err == ERR_OK, "island %u: %s\n", i, err_text());
    if (k == i && voice->own_count < SIM_OWN_MAX) {
        voice->own[voice->own_count++] =
            (struct sim_letter){.from = i, .to = i, .type = message->type, .bytes = bytes, .bytes_count = count};
        return;
    }
    if (k != i && sim->island[i].greeted[k] != 0)
        sim_send_letter(i, k, message->type, bytes, count);
    mem_free(bytes);
}

static void add_holdings(uint32_t i, struct wire_epoch *out)
{
    const struct sim_island *island = &sim->island[i];
    out->promise.incarnation = sim_in_doubt(i) ? island->disk.incarnation : sim_member_of(i, i)->incarnation;
    holdings_own(island->voice.holdings, island->sync, &out->promise.rows, &out->promise.rows_count);
    if (out->promise.sealed && sim_lies(i, SIM_LIE_PROMISE))
        sim_lie_promise(i, out);
}

static void send_message(uint32_t i, uint32_t to, const struct epoch_message *from)
{
    struct wire_epoch out = epoch_wire_out(from);
    if (out.type == WIRE_PROMISE)
        add_holdings(i, &out);
    else if (out.type == WIRE_ACCEPTED) /* the signature is what it signs */
        memcpy(out.accepted.signature, from->digest.byte, DIGEST_BYTES);
    if (out.type == WIRE_ACCEPT) {
        struct digest digest = record_digest(from->bytes, from->bytes_count);
        sim_record(sim_record_of(&digest))->proposed = true;
    }
    say(i, sim_of(to), &out);
}

static void say_decided(uint32_t i, uint32_t k, uint64_t epoch)
{
    const struct sim_record *record = sim_record(sim->decided[epoch]);
    struct wire_epoch out = {.type = WIRE_DECIDED};
    out.decided.record = record->bytes;
    out.decided.record_bytes = record->bytes_count;
    out.decided.votes = record->votes;
    out.decided.votes_count = record->votes_count;
    say(i, k, &out);
}

/* ---- composing ---- */

static uint32_t whom_to_ask(uint32_t i, uint32_t *ids)
{
    uint32_t count = 0;
    for (uint32_t k = 0; k < sim->n; k++) {
        const struct record_member *member = sim_member_of(i, k);
        if (member != NULL && (k == i || voice_of(i)->seat[k].up) &&
            (!member->voter || member->role != RECORD_OWNER || sim_doubted(i, k)) && sim_caught_up(i, k))
            ids[count++] = member->id;
    }
    return count;
}

static bool all_there(const struct muster_wish *wishes, uint32_t count, const uint32_t *asked, uint32_t asked_count)
{
    for (uint32_t k = 0; k < asked_count; k++)
        for (uint32_t w = 0; w < count; w++)
            if (!wishes[w].enrol && wishes[w].as.id == asked[k] && !wishes[w].caught_up)
                return false;
    return true;
}

static void compose_next(uint32_t i)
{
    struct sim_voice *voice = voice_of(i);
    struct muster_wish wishes[SIM_N_MAX];
    struct compose_out out;
    struct compose_base base = base_of(i);
    uint32_t holdings_count, lacking[RECORD_OWNERS_MAX + 1], lacking_count, asked[SIM_N_MAX];
    const struct compose_holding *holdings = holdings_answered(voice->holdings, voice->epoch, &holdings_count);
    uint32_t asked_count = whom_to_ask(i, asked), count = sim_gather(i, wishes);
    base.overdue = voice->asked_ms != 0 && sim->now_ms >= voice->asked_ms + OVERDUE_MS;
    enum err err = compose(&base, holdings, holdings_count, wishes, count, &out);
    SIM_HOLDS(err == ERR_OK || err == ERR_STATE, "island %u cannot compose: %s\n", i, err_text());
    SIM_HOLDS(err != ERR_OK || out.suspects_count == 0 || sim->lie >= SIM_LIE_PROMISE,
              "island %u suspects an honest island of two results of one part\n", i);
    if (err != ERR_OK || out.ask) {
        assert_ok(epoch_draft(voice->epoch, NULL, 0, asked, asked_count, sim->now_ms));
        record_deinit(&out.draft);
        return;
    }
    if (voice->asked_ms == 0)
        voice->asked_ms = sim->now_ms;
    bool waits = sim->now_ms < voice->asked_ms + ASKED_MS && !all_there(wishes, count, asked, asked_count);
    bool safe = compose_safe(&out.draft, &base, holdings, holdings_count, lacking, &lacking_count);
    const struct sim_record *draft = sim_record(sim_record_add(&out.draft));
    if (safe && !waits)
        assert_ok(epoch_propose(voice->epoch, draft->bytes, draft->bytes_count, &draft->digest, sim->now_ms));
    else
        assert_ok(epoch_draft(voice->epoch, draft->bytes, draft->bytes_count, asked, asked_count, sim->now_ms));
    record_deinit(&out.draft);
}

/* What a draft starts from and carries is fetched, sealed or not. */
static void fetch(uint32_t i, const uint8_t *bytes, size_t bytes_count)
{
    struct sim_island *island = &sim->island[i];
    struct digest digest = record_digest(bytes, bytes_count);
    const struct record *draft = &sim_record(sim_record_of(&digest))->record;
    for (uint32_t f = 0; f < draft->starts_count; f++)
        sync_want_start(island->sync, f, draft->starts[f]);
    for (uint32_t k = 0; k < draft->carried_count; k++) {
        const struct record_carried *carried = &draft->carried[k];
        sync_want_this(island->sync, carried->fragment, carried->version, carried->epoch, carried->owner,
                       &carried->digest);
    }
    sim_step(i, &(struct sync_event){.type = SYNC_EV_TICK});
}

/* ---- what net/membership/epoch orders ---- */

static void save_vote(uint32_t i, const struct epoch_action *action)
{
    struct sim_island *island = &sim->island[i];
    struct sim_disk *disk = &island->disk;
    if (action->vote.promised != 0 && !sim_lies(i, SIM_LIE_SEAL))
        sync_seal(island->sync);
    sim_tell("island %u saves its vote in epoch %llu: promised %llx accepted %llx", i,
             (unsigned long long)action->vote.epoch, (unsigned long long)action->vote.promised,
             (unsigned long long)action->vote.accepted);
    disk->number++;
    disk->fresh = false;
    disk->vote_epoch = action->vote.epoch;
    disk->promised = action->vote.promised;
    disk->accepted = action->vote.accepted;
    disk->own = action->vote.own;
    disk->accepted_record = action->vote.accepted != 0 ? sim_record_of(&action->vote.digest) : 0;
    sim_mark(i);
    island->voice.saved = action->number;
    die_now_and_then(i, 1);
}

static void decided(uint32_t i, const struct epoch_action *action)
{
    struct sim_island *island = &sim->island[i];
    struct digest digest = record_digest(action->bytes, action->bytes_count);
    uint32_t number = sim_record_of(&digest);
    uint64_t before = island->epoch;
    sim_decided(i, number, action->votes, action->votes_count);
    island->disk.epoch = before + 1; /* durably, before anyone is told */
    island->voice.taken = number;
    die_now_and_then(i, 2);
    for (uint32_t k = 0; k < sim->n; k++)
        if (k != i && island->voice.seat[k].up && island->voice.seat[k].epoch <= before)
            say_decided(i, k, before + 1);
}

static void end_doubt(uint32_t i)
{
    struct sim_island *island = &sim->island[i];
    sim_tell("island %u votes: its disk is not in doubt", i);
    sim->tally.recoveries++;
    island->doubt = SIM_SURE;
    sim_mark(i);
    sync_set_votes(island->sync, sim_votes(i));
    island->announce = true;
}

static void carry_out(uint32_t i)
{
    struct sim_voice *voice = voice_of(i);
    struct epoch_action action;
    while (epoch_action(voice->epoch, &action)) {
        switch (action.type) {
        case EPOCH_DO_SAVE: save_vote(i, &action); break;
        case EPOCH_DO_SEND: send_message(i, action.to, &action.message); break;
        case EPOCH_DO_COMPOSE: voice->compose = true; break;
        case EPOCH_DO_FETCH: fetch(i, action.bytes, action.bytes_count); break;
        case EPOCH_DO_DECIDED: decided(i, &action); break;
        case EPOCH_DO_CHAIN:
            for (uint64_t epoch = action.epoch + 1; epoch <= last(i)->epoch; epoch++)
                say_decided(i, sim_of(action.to), epoch);
            break;
        case EPOCH_DO_TAKE_OVER: voice->take_over = true; break;
        case EPOCH_DO_VOTE: end_doubt(i); break;
        }
    }
}

static void step(uint32_t i, const struct epoch_event *event)
{
    if (voice_of(i)->taken != 0)
        return;
    assert_ok(epoch_step(voice_of(i)->epoch, event, sim->now_ms));
    carry_out(i);
}

/* ---- in ---- */

/* As record_proved() has it, with signatures that are what they sign. */
static bool proved(uint32_t i, const struct sim_record *record, const struct wire_epoch *in)
{
    const struct record *previous = last(i);
    uint32_t good = 0;
    for (uint32_t k = 0; k < previous->members_count; k++) {
        bool voted = false;
        for (uint32_t v = 0; previous->members[k].voter && v < in->decided.votes_count; v++) {
            const struct record_vote *vote = &in->decided.votes[v];
            voted = voted || (vote->id == previous->members[k].id && vote->ballot == in->decided.votes[0].ballot &&
                              memcmp(vote->signature, record->digest.byte, DIGEST_BYTES) == 0);
        }
        good += voted;
    }
    return good >= record_majority(previous) &&
           record_follows(previous, chain_last_digest(sim->island[i].chain), &record->record) == ERR_OK;
}

static bool follows(uint32_t i, const struct epoch_message *message, const struct wire_epoch *in)
{
    struct compose_base base = base_of(i);
    uint32_t number = sim_record_of(&message->digest);
    if (number == 0)
        return false;
    return message->type == EPOCH_RECORD ? proved(i, sim_record(number), in)
                                         : compose_follows(&base, &sim_record(number)->record) == ERR_OK;
}

static bool translate(uint32_t i, uint32_t k, struct wire_epoch *in, struct epoch_message *out, bool *good)
{
    *good = true;
    if (!epoch_wire_in(in, last(i)->epoch, out))
        return false;
    if (out->type == EPOCH_ACCEPTED)
        *good = memcmp(out->signature, out->digest.byte, DIGEST_BYTES) == 0;
    else if (epoch_wire_brings_record(out))
        *good = follows(i, out, in);
    if (in->type == WIRE_PROMISE && out->epoch == last(i)->epoch)
        holdings_answer(voice_of(i)->holdings, sim->island[i].sync, sim_id(k), in);
    return *good || out->type != EPOCH_RECORD;
}

static void take_in(uint32_t i, const struct sim_letter *letter)
{
    struct wire_epoch message;
    struct epoch_message translated;
    struct epoch_event event = {.type = EPOCH_EV_MESSAGE, .from = sim_id(letter->from), .message = &translated};
    enum err err = wire_epoch_unpack(letter->type, letter->bytes, letter->bytes_count, &message);
    SIM_HOLDS(err == ERR_OK, "island %u cannot read what island %u says: %s\n", i, letter->from, err_text());
    if (voice_of(i)->taken == 0 && translate(i, letter->from, &message, &translated, &event.good))
        step(i, &event);
    wire_epoch_deinit(&message);
}

/* The engine takes what was decided, and changes over. */
static void adopt(uint32_t i)
{
    struct sim_island *island = &sim->island[i];
    island->voice.taken = 0;
    sim_extend(i);
    sim_tell("island %u begins epoch %llu", i, (unsigned long long)island->epoch);
    struct sync_view view = sim_view(i);
    assert_ok(sync_begin_epoch(island->sync, &view, sim->now_ms));
    sim_drain(i);
    sim_check_epoch(i);
    for (uint32_t f = 0; f < sim->fragments; f++)
        if (sync_known(island->sync, f))
            sim_tell_held(i, f);
    sim_voice_begin(i);
}

static void compose_or_die(uint32_t i)
{
    struct sim_voice *voice = voice_of(i);
    voice->compose = false;
    die_now_and_then(i, 2);
    if (sim->island[i].die || voice->taken != 0)
        return;
    compose_next(i);
    if (epoch_state(voice->epoch) == EPOCH_ACCEPTING)
        die_now_and_then(i, 2);
    carry_out(i);
}

/* What was ordered of ourselves, until nothing is left. */
static void settle(uint32_t i)
{
    struct sim_voice *voice = voice_of(i);
    while (!sim->island[i].die && voice->taken == 0 &&
           (voice->saved != 0 || voice->compose || voice->take_over || voice->own_count > 0)) {
        if (voice->saved != 0) {
            struct epoch_event event = {.type = EPOCH_EV_SAVED, .number = voice->saved, .good = true};
            voice->saved = 0;
            step(i, &event);
        } else if (voice->own_count > 0) {
            struct sim_letter own = voice->own[0];
            memmove(voice->own, voice->own + 1, --voice->own_count * sizeof own);
            take_in(i, &own);
            mem_free(own.bytes);
        } else if (voice->take_over) {
            voice->take_over = false;
            if (holdings_here(voice->holdings, voice->epoch, last(i), sim_id(i), sim->island[i].sync))
                step(i, &(struct epoch_event){.type = EPOCH_EV_RECOVERED, .good = true});
        } else {
            compose_or_die(i);
        }
    }
    if (!sim->island[i].die && voice->taken != 0)
        adopt(i);
}

void sim_voice_letter(uint32_t i, const struct sim_letter *letter)
{
    take_in(i, letter);
    settle(i);
}

void sim_voice_up(uint32_t i, uint32_t k, bool up)
{
    struct sim_voice *voice = voice_of(i);
    voice->seat[k].up = up;
    if (!up)
        holdings_drop(voice->holdings, sim_id(k));
    step(i, &(struct epoch_event){.type = EPOCH_EV_UP, .from = sim_id(k), .good = true, .flag = up});
    settle(i);
}

void sim_voice_heard(uint32_t i, uint32_t k, const struct wire_heartbeat *beat)
{
    struct sim_seat *seat = &voice_of(i)->seat[k];
    seat->epoch = beat->epoch;
    seat->incarnation = beat->incarnation;
    seat->doubt_ms = !beat->in_doubt ? 0 : seat->doubt_ms != 0 ? seat->doubt_ms : sim->now_ms;
    seat->silent = 0;
    for (uint32_t s = 0; s < beat->silent_count; s++)
        if (sim_of(beat->silent[s]) < sim->n)
            seat->silent |= (uint64_t)1 << sim_of(beat->silent[s]);
    step(i, &(struct epoch_event){.type = EPOCH_EV_HEARD, .from = sim_id(k), .good = true, .epoch = beat->epoch});
    settle(i);
}

/* ---- a disk in doubt ---- */

/* Whether more than half of all members that take part are here, us among them, and none knows a later record: a disk
 * that has forgotten the last records believes in voters who are none any more, and may be the only one of them. */
static bool nothing_newer(uint32_t i)
{
    uint32_t members = 0, here = 0;
    for (uint32_t k = 0; k < sim->n; k++) {
        const struct record_member *member = sim_member_of(i, k);
        const struct sim_seat *seat = &voice_of(i)->seat[k];
        if (member == NULL)
            continue;
        if (k != i && seat->up && seat->epoch > last(i)->epoch)
            return false;
        members += member->role != RECORD_AWAY;
        here += member->role != RECORD_AWAY && (k == i || (seat->up && seat->incarnation != 0));
    }
    return 2 * here > members;
}

/* A disk on which nothing ever was is no other case: it may be one that replaced another. At the first start all are in
 * doubt, and recover. */
static bool doubt_is_over(uint32_t i)
{
    return sim_member_of(i, i)->incarnation == sim->island[i].disk.incarnation;
}

static bool majority_in_doubt(uint32_t i)
{
    uint32_t sure = 0;
    for (uint32_t k = 0; k < sim->n; k++) {
        const struct record_member *member = sim_member_of(i, k);
        const struct sim_seat *seat = &voice_of(i)->seat[k];
        if (member == NULL || !member->voter || k == i)
            continue;
        if (!seat->up || seat->epoch != last(i)->epoch)
            return false;
        sure += seat->doubt_ms == 0;
    }
    return sim_member_of(i, i)->voter && sure < record_majority(last(i)) && nothing_newer(i);
}

static void look_at_doubt(uint32_t i)
{
    if (!sim_in_doubt(i))
        return;
    if (!doubt_is_over(i)) {
        if (majority_in_doubt(i))
            step(i, &(struct epoch_event){.type = EPOCH_EV_RECOVER, .good = true});
        return;
    }
    end_doubt(i);
    sim_voice_begin(i);
}

void sim_voice_tick(uint32_t i)
{
    struct sim_island *island = &sim->island[i];
    struct sim_voice *voice = &island->voice;
    if (sim->now_ms < voice->tick_ms || island->die)
        return;
    voice->tick_ms = sim->now_ms + TICK_MS;
    voice->now_ms = sim->now_ms;
    voice->silent = 0;
    for (uint32_t k = 0; k < sim->n; k++)
        if (k != i && sim_knows(i, k) &&
            (sim->now_ms > island->heard_ms[k] + SIM_AWAY_MS ||
             sync_fault(island->sync, sim_slot(i, k)) == SYNC_FAULT_NO_RESULT))
            voice->silent |= (uint64_t)1 << k;
    sim_look(i);
    look_at_doubt(i);
    step(i, &(struct epoch_event){.type = EPOCH_EV_WANT, .good = true, .flag = sim_change_wanted(i)});
    step(i, &(struct epoch_event){.type = EPOCH_EV_TICK, .good = true});
    settle(i);
}

/* ---- life ---- */

void sim_voice_begin(uint32_t i)
{
    struct sim_island *island = &sim->island[i];
    struct sim_voice *voice = &island->voice;
    const struct sim_disk *disk = &island->disk;
    const struct sim_record *accepted = sim_record(disk->accepted_record);
    bool has = disk->accepted_record != 0;
    uint32_t voters[RECORD_VOTERS_MAX], count = 0;
    for (uint32_t k = 0; k < last(i)->members_count; k++)
        if (last(i)->members[k].voter)
            voters[count++] = last(i)->members[k].id;
    holdings_clear(voice->holdings);
    voice->begun_ms = voice->now_ms = sim->now_ms;
    voice->asked_ms = voice->saved = 0;
    sim_count_idle(i);
    voice->compose = voice->take_over = false;
    struct epoch_vote vote = {.epoch = disk->vote_epoch,
                              .promised = disk->promised,
                              .accepted = disk->accepted,
                              .own = disk->own,
                              .digest = has ? accepted->digest : (struct digest){{0}},
                              .bytes = has ? accepted->bytes : NULL,
                              .bytes_count = has ? accepted->bytes_count : 0};
    assert_ok(epoch_begin(voice->epoch, last(i)->epoch, voters, count, sim_votes(i),
                          vote.epoch == last(i)->epoch ? &vote : NULL, sim->now_ms));
    for (uint32_t k = 0; k < sim->n; k++)
        if (sim_knows(i, k) && voice->seat[k].up)
            step(i, &(struct epoch_event){.type = EPOCH_EV_UP, .from = sim_id(k), .good = true, .flag = true});
    if (epoch_sealed(voice->epoch) && !sim_lies(i, SIM_LIE_SEAL))
        sync_seal(island->sync);
}

void sim_voice_start(uint32_t i)
{
    struct sim_voice *voice = voice_of(i);
    struct epoch_conf conf = {
        .self = sim_id(i), .seed = env_rng_u64(&sim->rng), .turn_ms = TURN_MS, .again_ms = AGAIN_MS};
    memset(voice, 0, sizeof *voice);
    assert_ok(holdings_new(&voice->holdings));
    assert_ok(holdings_reserve(voice->holdings, sim->fragments));
    assert_ok(epoch_new(&conf, &voice->epoch));
    voice->tick_ms = sim->now_ms + sim_below(TICK_MS);
    sim_voice_begin(i);
}

void sim_voice_end(uint32_t i)
{
    struct sim_voice *voice = voice_of(i);
    for (uint32_t k = 0; k < voice->own_count; k++)
        mem_free(voice->own[k].bytes);
    epoch_free(voice->epoch);
    holdings_free(voice->holdings);
    memset(voice, 0, sizeof *voice);
}
