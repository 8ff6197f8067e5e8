/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/council.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/env.h"
#include "common/log.h"
#include "common/mem.h"
#include "daemon/peers/broken.h"
#include "daemon/peers/council_core.h"
#include "daemon/peers/holdings.h"
#include "daemon/peers/wishes.h"
#include "daemon/state/records.h"
#include "net/membership/compose.h"
#include "net/membership/epoch.h"

/* TURN: how long the next voter waits for the one before it. AGAIN: a message without an answer goes again. ASKED: so
 * long those who might join are waited for, once enough voters have sealed. OVERDUE: so long what only a few of them
 * show may take to be fetched. PROOFS: as long as one whose word is broken takes part, the others are told so often. */
enum { TURN_MS = 1000, AGAIN_MS = 250, ASKED_MS = 700, OVERDUE_MS = 4000, PROOFS_MS = 2000, SAID_MS = 10000 };
/* Records in answer to one question. */
enum { CHAIN_MOST = 64 };

static const struct record *last(const struct council *council)
{
    return chain_last(council->conf.chain);
}

static void failed(struct council *council, uint64_t now_ms, const char *what)
{
    if (log_limit_pass(&council->failed_said, now_ms, SAID_MS))
        log_error("%s: %s", what, err_text());
}

bool council_votes(const struct council *council)
{
    const struct view *view = council->conf.view;
    /* A record that we voted after is missing here: what we promised then is not known to those rules yet. */
    bool current = vote_last(council->conf.vote)->epoch <= last(council)->epoch;
    return view->self != VIEW_NOBODY && view->members[view->self].voter && current &&
           vote_doubt(council->conf.vote) == VOTE_SURE;
}

/* ---- out ---- */

/* To ourselves: it comes back when what is under way is done. */
static void say_own(struct council *council, uint32_t type, uint8_t *bytes, size_t bytes_count)
{
    if (council->own_count == OWN_MAX) { /* as if it were lost: everything is repeated */
        mem_free(bytes);
        return;
    }
    council->own[council->own_count++] = (struct own_message){type, bytes, bytes_count};
}

static void say(struct council *council, uint32_t to, const struct wire_epoch *message)
{
    uint8_t *bytes;
    size_t count;
    uint32_t slot = view_slot(council->conf.view, to);
    log_debug("epoch message %d, ballot %" PRIx64 ", to id %" PRIu32, (int)message->type, message->ballot, to);
    if (slot == VIEW_NOBODY)
        return;
    if (wire_epoch_pack(message, &bytes, &count) != ERR_OK) {
        log_error("cannot say something of the next epoch: %s", err_text());
        return;
    }
    if (slot == council->conf.view->self) {
        say_own(council, message->type, bytes, count);
        return;
    }
    enum err err = link_send(council->link, slot, (enum wire_type)message->type, bytes, count, NULL, 0);
    if (err != ERR_OK && err != ERR_AGAIN && err != ERR_CLOSED)
        log_error("cannot talk to island %s of the next epoch: %s", council->conf.view->members[slot].name, err_text());
    mem_free(bytes);
}

static void send_message(struct council *council, uint32_t to, const struct epoch_message *from)
{
    struct wire_epoch out;
    council_wire_out(&council->wire, from, &out);
    say(council, to, &out);
}

/* The records after `after`, as they were decided: some, since who knows those asks for the next. */
static void send_chain(struct council *council, uint32_t to, uint64_t after)
{
    uint64_t end = last(council)->epoch - after > CHAIN_MOST ? after + CHAIN_MOST : last(council)->epoch;
    for (uint64_t epoch = after + 1; epoch <= end; epoch++) {
        struct records_entry entry;
        if (records_read(council->conf.conf->state_folder, epoch, &entry) != ERR_OK)
            return; /* another member is asked next */
        struct wire_epoch out = {.type = WIRE_DECIDED};
        out.decided.record = entry.bytes;
        out.decided.record_bytes = entry.bytes_count;
        out.decided.votes = entry.votes;
        out.decided.votes_count = entry.votes_count;
        say(council, to, &out);
        records_entry_free(&entry);
    }
}

/* ---- composing ---- */

static enum err propose(struct council *council, const struct record *draft, bool safe, const uint32_t *asked,
                        uint32_t asked_count, uint64_t now_ms)
{
    uint8_t *bytes;
    size_t count;
    enum err err;
    TRY(record_check(draft)); /* what nobody would accept is not proposed, but said */
    TRY(record_pack(draft, &bytes, &count));
    struct digest digest = record_digest(bytes, count);
    if (safe)
        err = epoch_propose(council->epoch, bytes, count, &digest, now_ms);
    else
        err = epoch_draft(council->epoch, bytes, count, asked, asked_count, now_ms);
    mem_free(bytes);
    return err;
}

static enum err compose_next(struct council *council, uint64_t now_ms)
{
    enum err err;
    struct muster_wish *wishes = NULL;
    struct compose_out out = {0};
    struct compose_base base = council_wire_base(&council->wire);
    uint32_t count, holdings_count, asked[EPOCH_ASKED_MAX];
    const struct compose_holding *holdings = holdings_answered(council->holdings, council->epoch, &holdings_count);
    uint32_t asked_count = wishes_whom_to_ask(&council->seats, &council->asked, asked);
    base.overdue = council->asked_ms != 0 && now_ms >= council->asked_ms + OVERDUE_MS;
    TRY_OUT(wishes_gather(&council->wishes, &council->seats, true, &wishes, &count));
    TRY_OUT(compose(&base, holdings, holdings_count, wishes, count, &out));
    if (out.ask) {
        log_debug("next record: %" PRIu32 " answers do not suffice", holdings_count);
        TRY_OUT(epoch_draft(council->epoch, NULL, 0, asked, asked_count, now_ms));
        goto out;
    }
    if (council->wishes.steps != 0)
        out.draft.steps = council->wishes.steps;
    if (council->asked_ms == 0)
        council->asked_ms = now_ms;
    bool waits = now_ms < council->asked_ms + ASKED_MS && !wishes_all_there(wishes, count, asked, asked_count);
    bool safe = compose_safe(&out.draft, &base, holdings, holdings_count, council->lacking, &council->lacking_count);
    log_debug("next record: %s, %" PRIu32 " answers, %" PRIu32 " lack something of it%s",
              safe ? "safe" : "not safe yet", holdings_count, council->lacking_count,
              waits ? "; those who might join are waited for" : "");
    TRY_OUT(propose(council, &out.draft, safe && !waits, asked, asked_count, now_ms));
    for (uint32_t i = 0; i < out.suspects_count; i++)
        log_warn("two results of one part of island id %" PRIu32 " are shown; one of them stands", out.suspects[i]);
out:
    record_deinit(&out.draft);
    mem_free(wishes);
    return err;
}

/* What a draft starts from and carries is fetched, sealed or not. */
static void fetch(struct council *council, const uint8_t *bytes, size_t bytes_count)
{
    struct record draft;
    if (council->plan.sync == NULL || record_unpack(bytes, bytes_count, &draft) != ERR_OK)
        return;
    for (uint32_t f = 0; f < draft.starts_count; f++)
        sync_want_start(council->plan.sync, f, draft.starts[f]);
    for (uint32_t i = 0; i < draft.carried_count; i++) {
        const struct record_carried *carried = &draft.carried[i];
        sync_want_this(council->plan.sync, carried->fragment, carried->version, carried->epoch, carried->owner,
                       &carried->digest);
    }
    record_deinit(&draft);
    event_post_sync(council->conf.events, &(struct sync_event){.type = SYNC_EV_TICK});
}

/* ---- what net/membership/epoch orders ---- */

/* Until it is durable nothing is said of it. */
static void save_vote(struct council *council, const struct epoch_action *action)
{
    /* From here on nothing new is acknowledged: what the answer names is all. */
    if (action->vote.promised != 0 && council->plan.sync != NULL)
        sync_seal(council->plan.sync);
    council_keep_save(&council->keep, &action->vote, action->number);
}

static void tell_decided(struct council *council, const struct records_entry *entry)
{
    struct wire_epoch out = {.type = WIRE_DECIDED};
    out.decided.record = entry->bytes;
    out.decided.record_bytes = entry->bytes_count;
    out.decided.votes = entry->votes;
    out.decided.votes_count = entry->votes_count;
    for (uint32_t i = 0; i < council->conf.view->count; i++)
        if (i != council->conf.view->self && council->seats.seat[i].up &&
            council->seats.seat[i].epoch <= last(council)->epoch)
            say(council, council->conf.view->members[i].id, &out);
}

static void decided(struct council *council, const struct epoch_action *action, uint64_t now_ms)
{
    const struct records_entry entry = {.bytes = (uint8_t *)(uintptr_t)action->bytes,
                                        .bytes_count = action->bytes_count,
                                        .votes = (struct record_vote *)(uintptr_t)action->votes,
                                        .votes_count = action->votes_count};
    if (council_keep_decided(&council->keep, &entry) != ERR_OK)
        failed(council, now_ms, "a decided record cannot be kept");
}

/* It is durable: everyone may know it. */
static void take_decided(struct council *council)
{
    struct record record;
    struct records_entry entry;
    if (council->taken || !council_keep_record(&council->keep, &record, &entry))
        return;
    if (record.epoch == last(council)->epoch + 1) {
        record_deinit(&council->record);
        council->record = record;
        council->digest = record_digest(entry.bytes, entry.bytes_count);
        council->taken = true;
        tell_decided(council, &entry);
        event_post(council->conf.events, &(struct event){.type = EVENT_EPOCH});
    } else {
        record_deinit(&record);
    }
    records_entry_free(&entry);
}

/* Our disk is in doubt no more. */
static void end_doubt(struct council *council, uint64_t now_ms)
{
    if (vote_settle(council->conf.vote) != ERR_OK) {
        failed(council, now_ms, "this island does not vote");
        return;
    }
    log_info("this island votes: its disk is not in doubt");
    if (council->plan.sync != NULL)
        sync_set_votes(council->plan.sync, council_votes(council));
    event_post(council->conf.events, &(struct event){.type = EVENT_ANNOUNCE});
}

static void carry_out(struct council *council, uint64_t now_ms)
{
    struct epoch_action action;
    while (epoch_action(council->epoch, &action)) {
        switch (action.type) {
        case EPOCH_DO_SAVE: save_vote(council, &action); break;
        case EPOCH_DO_SEND: send_message(council, action.to, &action.message); break;
        case EPOCH_DO_COMPOSE: council->compose = true; break;
        case EPOCH_DO_FETCH: fetch(council, action.bytes, action.bytes_count); break;
        case EPOCH_DO_DECIDED: decided(council, &action, now_ms); break;
        case EPOCH_DO_CHAIN: send_chain(council, action.to, action.epoch); break;
        case EPOCH_DO_TAKE_OVER: council->take_over = true; break;
        case EPOCH_DO_VOTE: end_doubt(council, now_ms); break;
        }
    }
    if (council->sealed_ms == 0 && epoch_sealed(council->epoch))
        council->sealed_ms = now_ms;
}

static void step(struct council *council, const struct epoch_event *event, uint64_t now_ms)
{
    if (epoch_step(council->epoch, event, now_ms) != ERR_OK)
        failed(council, now_ms, "the next epoch");
    carry_out(council, now_ms);
}

static void take_in(struct council *council, uint32_t member, struct wire_epoch *message, uint64_t now_ms);

/* What was ordered of ourselves, until nothing is left. */
static void settle(struct council *council, uint64_t now_ms)
{
    while (council->saved != 0 || council->compose || council->take_over || council->own_count > 0) {
        if (council->saved != 0) {
            struct epoch_event event = {.type = EPOCH_EV_SAVED, .number = council->saved, .good = true};
            council->saved = 0;
            step(council, &event, now_ms);
        } else if (council->own_count > 0) {
            struct wire_epoch message;
            struct own_message own = council->own[0];
            memmove(council->own, council->own + 1, --council->own_count * sizeof own);
            if (wire_epoch_unpack(own.type, own.bytes, own.bytes_count, &message) == ERR_OK)
                take_in(council, council->conf.view->self, &message, now_ms);
            mem_free(own.bytes);
        } else if (council->take_over) {
            struct epoch_event event = {.type = EPOCH_EV_RECOVERED, .good = true};
            council->take_over = false;
            if (holdings_here(council->holdings, council->epoch, last(council),
                              council->conf.view->members[council->conf.view->self].id, council->plan.sync))
                step(council, &event, now_ms);
        } else {
            council->compose = false;
            if (compose_next(council, now_ms) != ERR_OK)
                failed(council, now_ms, "the next record cannot be composed");
            carry_out(council, now_ms);
        }
    }
}

/* ---- in ---- */

/* Proofs of broken words, to one member, or to all that are here. */
static void tell_proofs(struct council *council, uint32_t member)
{
    const struct view *view = council->conf.view;
    struct wire_epoch wish;
    uint8_t *proof;
    uint32_t slot = VIEW_NOBODY;
    while (broken_next(&council->seats, council->conf.conf->state_folder, &slot, &wish, &proof)) {
        for (uint32_t i = 0; i < view->count; i++)
            if (i != view->self && council->seats.seat[i].up && (member == VIEW_NOBODY || member == i))
                say(council, view->members[i].id, &wish);
        mem_free(proof);
    }
}

static enum err proof_in(struct council *council, const struct wire_epoch *in)
{
    bool news;
    TRY(broken_take(&council->seats, council->conf.conf->state_folder, in->wish.id, in->wish.proof,
                    in->wish.proof_bytes, &news));
    if (news)
        tell_proofs(council, VIEW_NOBODY);
    return ERR_OK;
}

static void wish_in(struct council *council, uint32_t member, const struct wire_epoch *in)
{
    uint32_t by = council->conf.view->members[member].id;
    enum err err;
    if (in->wish.proof_bytes > 0)
        err = proof_in(council, in);
    else if (in->wish.kind == WIRE_WISH_ENROL)
        err = wishes_enrol(&council->wishes, &council->seats, last(council), in->wish.member);
    else
        err = wishes_add(&council->wishes, &council->seats, by, in->wish.kind, in->wish.id, in->wish.number);
    if (err != ERR_OK)
        log_debug("a wish is passed over: %s", err_text());
}

/* Frees the message. */
static void take_in(struct council *council, uint32_t member, struct wire_epoch *message, uint64_t now_ms)
{
    log_debug("epoch message %d, ballot %" PRIx64 ", of slot %" PRIu32, (int)message->type, message->ballot, member);
    struct epoch_message translated;
    struct epoch_event event = {
        .type = EPOCH_EV_MESSAGE, .from = council->conf.view->members[member].id, .message = &translated};
    if (message->type == WIRE_WISH)
        wish_in(council, member, message);
    else if (!council->taken && council_wire_in(&council->wire, member, message, &translated, &event.good))
        step(council, &event, now_ms);
    wire_epoch_deinit(message);
}

enum err council_message_in(struct council *council, uint32_t member, uint32_t type, const void *payload, size_t bytes,
                            uint64_t now_ms)
{
    struct wire_epoch message;
    TRY(wire_epoch_unpack(type, payload, bytes, &message));
    take_in(council, member, &message, now_ms);
    settle(council, now_ms);
    return ERR_OK;
}

void council_kept(struct council *council, uint64_t now_ms)
{
    take_decided(council);
    council->saved = council_keep_saved(&council->keep);
    settle(council, now_ms);
}

void council_beat(struct council *council, const struct wire_heartbeat *beat, uint64_t now_ms)
{
    seats_said(&council->seats, beat, now_ms);
}

void council_heard(struct council *council, uint32_t member, const struct wire_heartbeat *beat, uint64_t now_ms)
{
    struct epoch_event event = {
        .type = EPOCH_EV_HEARD, .from = council->conf.view->members[member].id, .good = true, .epoch = beat->epoch};
    seats_heard(&council->seats, member, beat, now_ms);
    if (!council->taken)
        step(council, &event, now_ms);
    settle(council, now_ms);
}

void council_up(struct council *council, uint32_t member, bool up, uint64_t now_ms)
{
    struct epoch_event event = {
        .type = EPOCH_EV_UP, .from = council->conf.view->members[member].id, .good = true, .flag = up};
    council->seats.seat[member].up = up;
    if (!up)
        holdings_drop(council->holdings, council->conf.view->members[member].id);
    step(council, &event, now_ms);
    settle(council, now_ms);
    if (up)
        tell_proofs(council, member);
}

/* ---- a disk in doubt ---- */

static void look_at_doubt(struct council *council, uint64_t now_ms)
{
    struct epoch_event recover = {.type = EPOCH_EV_RECOVER, .good = true};
    /* The epoch begins anew then, by a vote that has to be on disk. */
    if (vote_doubt(council->conf.vote) == VOTE_SURE || council_keep_busy(&council->keep))
        return;
    if (!seats_doubt_is_over(&council->seats)) {
        if (seats_majority_in_doubt(&council->seats))
            step(council, &recover, now_ms);
        return;
    }
    end_doubt(council, now_ms);
    seats_doubt_anew(&council->seats);
    if (council_begin(council, now_ms) != ERR_OK)
        failed(council, now_ms, "the next epoch");
}

/* Once each time, on every island that sees it. */
static void tell_apart(struct council *council)
{
    const struct view *view = council->conf.view;
    for (uint32_t i = 0; i < view->count; i++) {
        uint32_t from = seats_apart_from(&council->seats, i);
        char text[300];
        bool new = from != VIEW_NOBODY && !council->seats.seat[i].apart_told;
        council->seats.seat[i].apart_told = from != VIEW_NOBODY;
        if (!new)
            continue;
        seats_apart_text(&council->seats, i, from, text, sizeof text);
        log_warn("%s: %s stands back until that is over", text, i == view->self ? "this one" : view->members[i].name);
    }
}

/* Likewise; our own disk says more itself. */
static void tell_disks(struct council *council)
{
    const struct view *view = council->conf.view;
    for (uint32_t i = 0; i < view->count; i++) {
        struct seat *seat = &council->seats.seat[i];
        bool fails = view->members[i].used && seat->up && seat->disk_fails;
        if (fails && !seat->disk_told)
            log_warn("island %s says that its disk keeps nothing: the run goes on without it until it does",
                     view->members[i].name);
        seat->disk_told = fails;
    }
}

void council_tick(struct council *council, const struct bitset *silent, uint64_t now_ms)
{
    struct epoch_event want = {.type = EPOCH_EV_WANT, .good = true}, tick = {.type = EPOCH_EV_TICK, .good = true};
    seats_tick(&council->seats, silent, now_ms);
    tell_apart(council);
    tell_disks(council);
    council_keep_tick(&council->keep);
    if (council->taken)
        return;
    look_at_doubt(council, now_ms);
    if (now_ms >= council->proofs_ms && broken_pending(&council->seats)) {
        council->proofs_ms = now_ms + PROOFS_MS;
        tell_proofs(council, VIEW_NOBODY);
    }
    wishes_tick(&council->wishes, &council->seats);
    want.flag = wishes_change(&council->wishes, &council->seats);
    council->wished_ms = !want.flag ? 0 : council->wished_ms != 0 ? council->wished_ms : now_ms;
    step(council, &want, now_ms);
    step(council, &tick, now_ms);
    settle(council, now_ms);
}

/* ---- wishes ---- */

static void tell_voters(struct council *council, const struct wire_epoch *wish)
{
    const struct view *view = council->conf.view;
    for (uint32_t i = 0; i < view->count; i++)
        if (i != view->self && council->seats.seat[i].up && view->members[i].voter)
            say(council, view->members[i].id, wish);
}

enum err council_wish(struct council *council, uint32_t kind, uint32_t id, uint64_t number)
{
    struct wire_epoch wish = {.type = WIRE_WISH, .wish = {.kind = kind, .id = id, .number = number}};
    const struct view *view = council->conf.view;
    TRY(wishes_add(&council->wishes, &council->seats, view->members[view->self].id, kind, id, number));
    tell_voters(council, &wish);
    return ERR_OK;
}

void council_rivals(struct council *council, uint32_t owner, uint32_t fragment, uint64_t version)
{
    const struct view *view = council->conf.view;
    uint32_t slot = view_slot(view, owner);
    if (slot == VIEW_NOBODY) /* it has gone since */
        return;
    if (broken_load(&council->seats, council->conf.conf->state_folder) == ERR_OK &&
        council->seats.seat[slot].broke_word) {
        tell_proofs(council, VIEW_NOBODY);
        return;
    }
    /* The proof could not be kept. */
    log_error("island %s has signed two different results of one part: fragment %" PRIu32 ", version %" PRIu64
              ". Its disk is older than it knows, or it lies: it is to be evicted",
              view->members[slot].name, fragment, version);
    if (slot != view->self && council_wish(council, WIRE_WISH_EVICT, owner, last(council)->epoch) != ERR_OK)
        log_error("island %s cannot be evicted: %s", view->members[slot].name, err_text());
}

enum err council_enrol(struct council *council, const struct record_member *as)
{
    struct wire_epoch wish = {.type = WIRE_WISH, .wish = {.kind = WIRE_WISH_ENROL, .member = as}};
    TRY(wishes_enrol(&council->wishes, &council->seats, last(council), as));
    tell_voters(council, &wish);
    return ERR_OK;
}

void council_said(struct council *council, uint32_t member, const struct council_said *said)
{
    struct seat *seat = &council->seats.seat[member];
    seat->said = true;
    snprintf(seat->address, sizeof seat->address, "%s", said->address);
    memset(seat->address + strlen(seat->address), 0, sizeof seat->address - strlen(seat->address));
    seat->uplink = said->uplink;
    seat->owner_wish = said->owner_wish;
    if (seat->drains != said->draining) /* else what others wish of it stands */
        seat->drain = said->draining;
    seat->drains = said->draining;
}

/* ---- epochs ---- */

enum err council_begin(struct council *council, uint64_t now_ms)
{
    const struct record *record = last(council);
    uint32_t voters[EPOCH_VOTERS_MAX], count = 0;
    for (uint32_t i = 0; i < record->members_count; i++)
        if (record->members[i].voter && count < EPOCH_VOTERS_MAX)
            voters[count++] = record->members[i].id;
    seats_begin(&council->seats, now_ms);
    TRY(broken_load(&council->seats, council->conf.conf->state_folder));
    wishes_fulfil(&council->wishes, &council->seats, record);
    council_keep_void(&council->keep);
    holdings_clear(council->holdings);
    council->asked_ms = council->sealed_ms = council->wished_ms = 0;
    council->asked = (struct bitset){{0}};
    council->lacking_count = 0;
    council->compose = council->take_over = false;
    council->saved = 0;
    const struct epoch_vote *vote = vote_last(council->conf.vote);
    TRY(epoch_begin(council->epoch, record->epoch, voters, count, council_votes(council),
                    vote->epoch == record->epoch ? vote : NULL, now_ms));
    for (uint32_t i = 0; i < council->conf.view->count; i++)
        if (council->seats.seat[i].used && council->seats.seat[i].up)
            council_up(council, i, true, now_ms);
    if (epoch_sealed(council->epoch)) {
        council->sealed_ms = now_ms;
        if (council->plan.sync != NULL)
            sync_seal(council->plan.sync);
    }
    return ERR_OK;
}

void council_tidy(struct council *council, uint64_t before)
{
    council_keep_pack(&council->keep, before);
}

bool council_take(struct council *council, struct record *record, struct digest *digest)
{
    if (!council->taken)
        return false;
    *record = council->record;
    *digest = council->digest;
    council->record = (struct record){0};
    council->taken = false;
    return true;
}

/* ---- life ---- */

enum err council_new(const struct peers_conf *conf, struct link *link, struct council **out)
{
    enum err err;
    struct council *council = NULL;
    *out = NULL;
    TRY_OUT(mem_new(1, sizeof *council, "the council", &council));
    council->conf = *conf;
    council->link = link;
    council_keep_init(&council->keep, conf->jobs, conf->vote, conf->events, conf->conf->state_folder);
    struct epoch_conf epoch = {.self = conf->view->members[conf->view->self].id,
                               .seed = env_random_u64(),
                               .turn_ms = TURN_MS,
                               .again_ms = AGAIN_MS};
    TRY_OUT(seats_init(conf->view, conf->chain, conf->vote, &council->seats));
    TRY_OUT(holdings_new(&council->holdings));
    council->wire =
        (struct council_wire){.ident = conf->ident, .seats = &council->seats, .holdings = council->holdings};
    TRY_OUT(epoch_new(&epoch, &council->epoch));
    TRY_OUT(council_begin(council, conf->start_ms));
out:
    if (err != ERR_OK)
        council_free(council);
    else
        *out = council;
    return err;
}

void council_free(struct council *council)
{
    if (council == NULL)
        return;
    for (uint32_t i = 0; i < council->own_count; i++)
        mem_free(council->own[i].bytes);
    record_deinit(&council->record);
    council_keep_deinit(&council->keep);
    epoch_free(council->epoch);
    holdings_free(council->holdings);
    seats_deinit(&council->seats);
    mem_free(council);
}

enum err council_plan_known(struct council *council, const struct council_plan *plan)
{
    TRY(holdings_reserve(council->holdings, plan->fragments_count));
    council->plan = *plan;
    council->seats.sync = plan->sync;
    council->seats.fragments_count = plan->fragments_count;
    council->wire.shards_counts = plan->shards_counts;
    if (epoch_sealed(council->epoch))
        sync_seal(plan->sync);
    return ERR_OK;
}
