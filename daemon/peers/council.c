#include "daemon/peers/council.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/env.h"
#include "common/log.h"
#include "common/mem.h"
#include "daemon/peers/holdings.h"
#include "daemon/state/records.h"
#include "net/compose.h"
#include "net/epoch.h"

/* TURN: how long the next voter waits for the one before it. AGAIN: a message without an answer goes again. ASKED: so
 * long those who might join are waited for, once enough voters have sealed. */
enum { TURN_MS = 1000, AGAIN_MS = 400, ASKED_MS = 700, ENROL_MAX = 16, SAID_MS = 10000 };
/* A disk that is in doubt for so long needs a record to name it. */
enum { DOUBT_MS = 2000 };
/* Those who come are gathered for so long: each costs an epoch. */
enum { GATHER_MS = 2000 };

/* A message to ourselves, packed. */
struct own_message {
    uint32_t type;
    uint8_t *bytes;
    size_t bytes_count;
};
enum { OWN_MAX = 32 };

/* What is known of a member, by slot. */
struct seat {
    uint32_t id;
    bool used, up;
    bool drain, evict, revoke; /* wished */
    uint64_t doubt_ms;         /* since when it says that its disk is in doubt; 0: it does not */
    uint64_t incarnation;      /* as it says; 0: it has not */
    uint64_t epoch;            /* of its last heartbeat */
    bool said;                 /* the three below are its own words */
    char address[RECORD_ADDRESS_BYTES];
    uint64_t uplink;
    uint8_t owner_wish;
    struct bitset silent;      /* whom it does not hear */
};

struct council {
    struct council_conf conf;
    struct council_plan plan; /* .sync NULL: not known yet */
    struct epoch *epoch;
    struct holdings *holdings; /* what members answered in our ballot */
    struct seat *seats;        /* [VIEW_SLOTS_MAX] */
    struct bitset silent;      /* to us */
    uint64_t now_ms;           /* of the last tick */
    uint64_t begun_ms;         /* when the epoch began here */
    struct record_member enrol[ENROL_MAX];
    uint32_t enrol_count;
    uint64_t steps; /* wished; 0: as they are */
    struct own_message own[OWN_MAX];
    uint32_t own_count;
    uint64_t saved;    /* number of a vote that is durable, to be told; 0: none */
    bool compose;      /* ordered */
    bool take_over;    /* ordered: what all voters hold together is to be here */
    uint64_t asked_ms; /* since when those who might join are asked; 0: they are not */
    bool taken;        /* `record` is decided and waits for the engine */
    struct record record;
    struct digest digest;
    struct log_limit failed_said;
};

static const struct record *last(const struct council *council)
{
    return chain_last(council->conf.chain);
}

static struct compose_base base_of(const struct council *council)
{
    return (struct compose_base){.record = last(council),
                                 .digest = chain_last_digest(council->conf.chain),
                                 .shards = council->plan.shards_counts,
                                 .fragments_count = council->plan.fragments_count};
}

static void failed(struct council *council, uint64_t now_ms, const char *what)
{
    if (log_limit_pass(&council->failed_said, now_ms, SAID_MS))
        log_error("%s: %s", what, err_text());
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
    enum err err = link_send(council->conf.link, slot, (enum wire_type)message->type, bytes, count, NULL, 0);
    if (err != ERR_OK && err != ERR_AGAIN && err != ERR_CLOSED)
        log_error("cannot talk to island %s of the next epoch: %s", council->conf.view->members[slot].name, err_text());
    mem_free(bytes);
}

/* What we hold, as it is now. */
static void add_holdings(struct council *council, bool sealed, struct wire_epoch *out)
{
    /* A disk that is not in doubt is the one that the record names: the first one of hand-written members, 0. */
    bool sure = vote_doubt(council->conf.vote) == VOTE_SURE;
    out->promise.incarnation = sure ? council->conf.view->members[council->conf.view->self].incarnation
                                    : vote_incarnation(council->conf.vote);
    out->promise.sealed = sealed;
    holdings_own(council->holdings, council->plan.sync, &out->promise.rows, &out->promise.rows_count);
}

static void sign(const struct council *council, const struct epoch_message *from, struct wire_epoch *out)
{
    out->accepted.digest = from->digest;
    record_vote_sign(council->conf.ident, last(council)->nonce, from->epoch + 1, from->ballot, &from->digest,
                     out->accepted.signature);
}

static void send_message(struct council *council, uint32_t to, const struct epoch_message *from)
{
    static const enum wire_epoch_type types[EPOCH_MESSAGES] = {
        [EPOCH_PREPARE] = WIRE_PREPARE,   [EPOCH_PROMISE] = WIRE_PROMISE, [EPOCH_HOLDINGS] = WIRE_PROMISE,
        [EPOCH_REJECT] = WIRE_REJECT,     [EPOCH_ACCEPT] = WIRE_ACCEPT,   [EPOCH_ACCEPTED] = WIRE_ACCEPTED,
        [EPOCH_RECORD] = WIRE_DECIDED,    [EPOCH_CHAIN] = WIRE_CHAIN,
    };
    struct wire_epoch out = {.type = types[from->type], .epoch = from->epoch + 1, .ballot = from->ballot};
    switch (from->type) {
    case EPOCH_PREPARE:
        out.prepare.draft = from->bytes;
        out.prepare.draft_bytes = from->bytes_count;
        out.prepare.recover = from->recover;
        break;
    case EPOCH_PROMISE:
        out.promise.accepted_ballot = from->accepted;
        out.promise.accepted = from->bytes;
        out.promise.accepted_bytes = from->bytes_count;
        add_holdings(council, true, &out);
        break;
    case EPOCH_HOLDINGS: add_holdings(council, false, &out); break;
    case EPOCH_ACCEPT:
        out.accept.record = from->bytes;
        out.accept.record_bytes = from->bytes_count;
        break;
    case EPOCH_ACCEPTED: sign(council, from, &out); break;
    case EPOCH_CHAIN: out.epoch = from->epoch; break;
    default: break;
    }
    say(council, to, &out);
}

/* The records after `after`, as they were decided. */
static void send_chain(struct council *council, uint32_t to, uint64_t after)
{
    for (uint64_t epoch = after + 1; epoch <= last(council)->epoch; epoch++) {
        struct records_entry entry;
        if (records_read(council->conf.folder, epoch, &entry) != ERR_OK)
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

/* ---- what is wanted ---- */

bool council_silent(const struct council *council, uint32_t member)
{
    const struct view *view = council->conf.view;
    uint32_t voters = 0, deaf = 0;
    for (uint32_t i = 0; i < view->count; i++) {
        const struct view_member *voter = &view->members[i];
        if (!voter->used || !voter->voter)
            continue;
        voters++;
        if (i == view->self)
            deaf += bitset_has(&council->silent, member);
        else if (i != member && !bitset_has(&council->silent, i))
            deaf += bitset_has(&council->seats[i].silent, member);
    }
    return deaf > voters / 2;
}

/* Whether the member has come as far as any of those it could learn from: a guess, which the holdings confirm. */
static bool caught_up(const struct council *council, uint32_t member)
{
    const struct view *view = council->conf.view;
    for (uint32_t f = 0; f < council->plan.fragments_count; f++) {
        struct sync_peer_fragment row = member == view->self ? sync_own(council->plan.sync, f)
                                                             : sync_heard(council->plan.sync, member, f);
        bool known = member == view->self ? sync_known(council->plan.sync, f) : row.hash_known;
        if (!known || row.version + 1 < sync_own(council->plan.sync, f).version)
            return false;
    }
    return council->plan.sync != NULL;
}

/* One that has just begun may find by itself that it cannot have forgotten anything. */
static bool in_doubt(const struct council *council, uint32_t member)
{
    uint64_t since_ms = council->seats[member].doubt_ms;
    return since_ms != 0 && council->now_ms >= since_ms + DOUBT_MS;
}

/* `said`: with what it says of itself, which alone is no reason for a record. */
static struct muster_wish wish_of(const struct council *council, const struct record_member *member, bool said)
{
    uint32_t slot = view_slot(council->conf.view, member->id);
    struct muster_wish wish = {.as = *member};
    if (slot == VIEW_NOBODY)
        return wish;
    const struct seat *seat = &council->seats[slot];
    bool self = slot == council->conf.view->self;
    bool doubt = self ? vote_doubt(council->conf.vote) != VOTE_SURE : in_doubt(council, slot);
    uint64_t incarnation = self ? vote_incarnation(council->conf.vote) : seat->incarnation;
    if (doubt && incarnation != 0)
        wish.as.incarnation = incarnation;
    if (said && seat->said) {
        memcpy(wish.as.address, seat->address, sizeof wish.as.address);
        wish.as.uplink = seat->uplink != 0 ? seat->uplink : member->uplink;
        wish.as.owner_wish = seat->owner_wish;
    }
    wish.silent = !self && council_silent(council, slot);
    /* Who is neither heard nor known to be silent stays as it is: there is nothing to go by. */
    wish.evicted = seat->evict;
    wish.revoked = seat->revoke;
    wish.draining = seat->drain;
    /* Who owns already stays one; who comes, or comes back, is let in when an epoch has stood for a while. */
    bool comes = member->role != RECORD_OWNER || doubt;
    wish.caught_up = (self || seat->up) && caught_up(council, slot) &&
                     (!comes || council->now_ms >= council->begun_ms + GATHER_MS);
    return wish;
}

/* Wishes of all members and of those to be enrolled; mem_free() them. Members that we do not hear, while a majority may,
 * stay as they are. */
static enum err gather(const struct council *council, bool said, struct muster_wish **out, uint32_t *count)
{
    const struct record *record = last(council);
    TRY(mem_new((size_t)record->members_count + council->enrol_count, sizeof **out, "wishes", out));
    *count = 0;
    for (uint32_t i = 0; i < record->members_count; i++) {
        uint32_t slot = view_slot(council->conf.view, record->members[i].id);
        struct muster_wish wish = wish_of(council, &record->members[i], said);
        bool heard = slot == council->conf.view->self || (slot != VIEW_NOBODY && council->seats[slot].up);
        if (heard || wish.silent || wish.evicted || wish.revoked)
            (*out)[(*count)++] = wish;
    }
    for (uint32_t k = 0; k < council->enrol_count; k++)
        (*out)[(*count)++] = (struct muster_wish){.as = council->enrol[k], .enrol = true};
    return ERR_OK;
}

static bool same_member(const struct record_member *a, const struct record_member *b)
{
    return a->id == b->id && a->role == b->role && a->voter == b->voter && a->incarnation == b->incarnation &&
           a->uplink == b->uplink && a->owner_wish == b->owner_wish && strcmp(a->address, b->address) == 0;
}

static bool differs(const struct record *a, const struct record *b)
{
    bool same = a->members_count == b->members_count && a->steps == b->steps && a->paused == b->paused;
    for (uint32_t i = 0; same && i < a->members_count; i++)
        same = same_member(&a->members[i], &b->members[i]);
    return !same || memcmp(&a->map, &b->map, sizeof a->map) != 0;
}

/* Whether the next record would say anything that the last one does not. */
static bool change_wanted(struct council *council)
{
    struct record next = {0};
    struct muster_wish *wishes = NULL;
    uint32_t count;
    if (council->plan.sync == NULL)
        return false;
    enum err err = gather(council, false, &wishes, &count);
    if (err == ERR_OK)
        err = record_copy(last(council), &next);
    if (err == ERR_OK && council->steps != 0)
        next.steps = council->steps;
    if (err == ERR_OK)
        err = muster(&next, wishes, count);
    bool wanted = err == ERR_OK && differs(last(council), &next);
    record_deinit(&next);
    mem_free(wishes);
    return wanted;
}

/* ---- composing ---- */

/* Those who do not own and might, or whose state the next record has to know: they are asked what they hold. */
static uint32_t whom_to_ask(const struct council *council, uint32_t *ids)
{
    const struct view *view = council->conf.view;
    uint32_t count = 0;
    for (uint32_t i = 0; i < view->count && count < EPOCH_ASKED_MAX; i++) {
        const struct view_member *member = &view->members[i];
        if (member->used && !member->leaving && i != view->self && council->seats[i].up &&
            (!member->voter || member->role != RECORD_OWNER || in_doubt(council, i)) && caught_up(council, i))
            ids[count++] = member->id;
    }
    return count;
}

/* Whether all who were asked hold what the draft starts from: rounds stand still, so they soon do. */
static bool all_there(const struct muster_wish *wishes, uint32_t count, const uint32_t *asked, uint32_t asked_count)
{
    for (uint32_t k = 0; k < asked_count; k++)
        for (uint32_t i = 0; i < count; i++)
            if (!wishes[i].enrol && wishes[i].as.id == asked[k] && !wishes[i].caught_up)
                return false;
    return true;
}

static enum err propose(struct council *council, const struct record *draft, bool safe, const uint32_t *asked,
                        uint32_t asked_count, uint64_t now_ms)
{
    uint8_t *bytes;
    size_t count;
    enum err err;
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
    struct compose_base base = base_of(council);
    uint32_t count, holdings_count, lacking[RECORD_OWNERS_MAX + 1], lacking_count = 0, asked[EPOCH_ASKED_MAX];
    const struct compose_holding *holdings = holdings_answered(council->holdings, council->epoch, &holdings_count);
    uint32_t asked_count = whom_to_ask(council, asked);
    TRY_OUT(gather(council, true, &wishes, &count));
    TRY_OUT(compose(&base, holdings, holdings_count, wishes, count, &out));
    if (out.ask) {
        log_debug("next record: %" PRIu32 " answers do not suffice", holdings_count);
        TRY_OUT(epoch_draft(council->epoch, NULL, 0, asked, asked_count, now_ms));
        goto out;
    }
    if (council->steps != 0)
        out.draft.steps = council->steps;
    if (council->asked_ms == 0)
        council->asked_ms = now_ms;
    bool waits = now_ms < council->asked_ms + ASKED_MS && !all_there(wishes, count, asked, asked_count);
    bool safe = compose_safe(&out.draft, &base, holdings, holdings_count, lacking, &lacking_count);
    log_debug("next record: %s, %" PRIu32 " answers, %" PRIu32 " lack something of it%s", safe ? "safe" : "not safe yet",
              holdings_count, lacking_count, waits ? "; those who might join are waited for" : "");
    TRY_OUT(propose(council, &out.draft, safe && !waits, asked, asked_count, now_ms));
    for (uint32_t i = 0; i < out.suspects_count; i++)
        log_error("island id %" PRIu32 " signed two results of one part; one of them stands", out.suspects[i]);
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
        sync_want(council->plan.sync, carried->fragment, carried->version, carried->epoch, carried->owner);
    }
    record_deinit(&draft);
    event_post_sync(council->conf.events, &(struct sync_event){.type = SYNC_EV_TICK});
}

/* ---- what net/epoch orders ---- */

static void save_vote(struct council *council, const struct epoch_action *action, uint64_t now_ms)
{
    /* From here on nothing new is acknowledged: what the answer names is all. */
    if (action->vote.promised != 0 && council->plan.sync != NULL)
        sync_seal(council->plan.sync);
    if (vote_save(council->conf.vote, &action->vote) == ERR_OK)
        council->saved = action->number;
    else
        failed(council, now_ms, "a vote is not given, since it cannot be made durable");
}

static void decided(struct council *council, const struct epoch_action *action, uint64_t now_ms)
{
    struct record record;
    struct records_entry entry = {.bytes = (uint8_t *)(uintptr_t)action->bytes,
                                  .bytes_count = action->bytes_count,
                                  .votes = (struct record_vote *)(uintptr_t)action->votes,
                                  .votes_count = action->votes_count};
    enum err err = record_unpack(action->bytes, action->bytes_count, &record);
    if (err == ERR_OK) {
        err = records_save(council->conf.folder, record.epoch, &entry);
        if (err != ERR_OK)
            record_deinit(&record);
    }
    if (err != ERR_OK) {
        failed(council, now_ms, "a decided record cannot be kept");
        return;
    }
    record_deinit(&council->record);
    council->record = record;
    council->digest = record_digest(action->bytes, action->bytes_count);
    council->taken = true;
    struct wire_epoch out = {.type = WIRE_DECIDED};
    out.decided.record = action->bytes;
    out.decided.record_bytes = action->bytes_count;
    out.decided.votes = action->votes;
    out.decided.votes_count = action->votes_count;
    for (uint32_t i = 0; i < council->conf.view->count; i++)
        if (i != council->conf.view->self && council->seats[i].up && council->seats[i].epoch <= last(council)->epoch)
            say(council, council->conf.view->members[i].id, &out);
    event_post(council->conf.events, &(struct event){.type = EVENT_EPOCH});
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
        case EPOCH_DO_SAVE: save_vote(council, &action, now_ms); break;
        case EPOCH_DO_SEND: send_message(council, action.to, &action.message); break;
        case EPOCH_DO_COMPOSE: council->compose = true; break;
        case EPOCH_DO_FETCH: fetch(council, action.bytes, action.bytes_count); break;
        case EPOCH_DO_DECIDED: decided(council, &action, now_ms); break;
        case EPOCH_DO_CHAIN: send_chain(council, action.to, action.epoch); break;
        case EPOCH_DO_TAKE_OVER: council->take_over = true; break;
        case EPOCH_DO_VOTE: end_doubt(council, now_ms); break;
        }
    }
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
            if (holdings_here(council->holdings, council->epoch, council->plan.sync))
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

/* Whether the record follows ours: what it says is checked before it is accepted, or believed to be decided. */
static bool follows(const struct council *council, const uint8_t *bytes, size_t bytes_count, struct digest *digest,
                    const struct record_vote *votes, uint32_t votes_count, bool proved)
{
    struct record record;
    struct compose_base base = base_of(council);
    *digest = record_digest(bytes, bytes_count);
    if (record_unpack(bytes, bytes_count, &record) != ERR_OK) {
        log_debug("a record is passed over: %s", err_text());
        return false;
    }
    enum err err = proved ? record_proved(last(council), chain_last_digest(council->conf.chain), &record, digest, votes,
                                          votes_count)
                          : compose_follows(&base, &record);
    if (err != ERR_OK)
        log_debug("record %" PRIu64 " is passed over: %s", record.epoch, err_text());
    record_deinit(&record);
    return err == ERR_OK;
}

static bool good_vote(const struct council *council, uint32_t member, const struct wire_epoch *message)
{
    struct record_vote vote = {.id = council->conf.view->members[member].id, .ballot = message->ballot};
    memcpy(vote.signature, message->accepted.signature, sizeof vote.signature);
    return record_vote_good(council->conf.view->members[member].key, last(council)->nonce, message->epoch,
                            &message->accepted.digest, &vote);
}

/* A wire message as net/epoch's; false: it is of no use. */
static bool translate(struct council *council, uint32_t member, struct wire_epoch *in, struct epoch_message *out,
                      bool *good)
{
    *good = true;
    *out = (struct epoch_message){.epoch = in->epoch - 1, .ballot = in->ballot};
    switch (in->type) {
    case WIRE_PREPARE:
        out->type = EPOCH_PREPARE;
        out->bytes = in->prepare.draft;
        out->bytes_count = in->prepare.draft_bytes;
        out->recover = in->prepare.recover;
        return true;
    case WIRE_PROMISE:
        out->type = in->promise.sealed ? EPOCH_PROMISE : EPOCH_HOLDINGS;
        out->accepted = in->promise.accepted_ballot;
        out->bytes = in->promise.accepted;
        out->bytes_count = in->promise.accepted_bytes;
        if (out->bytes_count > 0)
            *good = follows(council, out->bytes, out->bytes_count, &out->digest, NULL, 0, false);
        if (out->epoch == last(council)->epoch)
            holdings_answer(council->holdings, council->conf.view->members[member].id, in);
        return true;
    case WIRE_REJECT: out->type = EPOCH_REJECT; return true;
    case WIRE_ACCEPT:
        out->type = EPOCH_ACCEPT;
        out->bytes = in->accept.record;
        out->bytes_count = in->accept.record_bytes;
        *good = follows(council, out->bytes, out->bytes_count, &out->digest, NULL, 0, false);
        return true;
    case WIRE_ACCEPTED:
        out->type = EPOCH_ACCEPTED;
        out->digest = in->accepted.digest;
        memcpy(out->signature, in->accepted.signature, sizeof out->signature);
        *good = good_vote(council, member, in);
        return true;
    case WIRE_DECIDED:
        out->type = EPOCH_RECORD;
        out->bytes = in->decided.record;
        out->bytes_count = in->decided.record_bytes;
        out->votes = in->decided.votes;
        out->votes_count = in->decided.votes_count;
        out->epoch = last(council)->epoch;
        *good = follows(council, out->bytes, out->bytes_count, &out->digest, out->votes, out->votes_count, true);
        return *good;
    case WIRE_CHAIN:
        out->type = EPOCH_CHAIN;
        out->epoch = in->epoch;
        return true;
    default: return false;
    }
}

static enum err take_wish(struct council *council, uint32_t kind, uint32_t id, uint64_t number);
static enum err take_newcomer(struct council *council, const struct record_member *as);

static void wish_in(struct council *council, const struct wire_epoch *in)
{
    enum err err = in->wish.kind == WIRE_WISH_ENROL
                       ? take_newcomer(council, in->wish.member)
                       : take_wish(council, in->wish.kind, in->wish.id, in->wish.number);
    if (err != ERR_OK)
        log_debug("a wish is passed over: %s", err_text());
}

/* Frees the message. */
static void take_in(struct council *council, uint32_t member, struct wire_epoch *message, uint64_t now_ms)
{
    log_debug("epoch message %d, ballot %" PRIx64 ", of slot %" PRIu32, (int)message->type, message->ballot, member);
    struct epoch_message translated;
    struct epoch_event event = {.type = EPOCH_EV_MESSAGE,
                                .from = council->conf.view->members[member].id,
                                .message = &translated};
    if (message->type == WIRE_WISH)
        wish_in(council, message);
    else if (!council->taken && translate(council, member, message, &translated, &event.good))
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

void council_heard(struct council *council, uint32_t member, const struct wire_heartbeat *beat, uint64_t now_ms)
{
    struct seat *seat = &council->seats[member];
    struct epoch_event event = {.type = EPOCH_EV_HEARD,
                                .from = council->conf.view->members[member].id,
                                .good = true,
                                .epoch = beat->epoch};
    seat->epoch = beat->epoch;
    seat->incarnation = beat->incarnation;
    seat->doubt_ms = !beat->in_doubt ? 0 : seat->doubt_ms != 0 ? seat->doubt_ms : now_ms;
    seat->silent = (struct bitset){{0}};
    for (uint32_t i = 0; i < beat->silent_count; i++) {
        uint32_t slot = view_slot(council->conf.view, beat->silent[i]);
        if (slot != VIEW_NOBODY)
            bitset_add(&seat->silent, slot);
    }
    if (!council->taken)
        step(council, &event, now_ms);
    settle(council, now_ms);
}

void council_up(struct council *council, uint32_t member, bool up, uint64_t now_ms)
{
    struct epoch_event event = {
        .type = EPOCH_EV_UP, .from = council->conf.view->members[member].id, .good = true, .flag = up};
    council->seats[member].up = up;
    step(council, &event, now_ms);
    settle(council, now_ms);
}

/* ---- a disk in doubt ---- */

/* Whether a majority of the voters, us among them, is here, and none of those who are has made a version: then nothing
 * was ever acknowledged that we could have forgotten. */
static bool nothing_made(const struct council *council)
{
    const struct view *view = council->conf.view;
    uint32_t here = 0;
    for (uint32_t i = 0; i < view->count; i++) {
        const struct view_member *member = &view->members[i];
        if (!member->used || (i != view->self && !council->seats[i].up))
            continue;
        here += member->voter;
        for (uint32_t f = 0; f < council->plan.fragments_count; f++) {
            struct sync_peer_fragment row =
                i == view->self ? sync_own(council->plan.sync, f) : sync_heard(council->plan.sync, i, f);
            if (row.version > 0 || (i != view->self && !row.said))
                return false;
        }
    }
    return council->plan.sync != NULL && 2 * here > record_voters(last(council));
}

/* Whether our disk may vote: a record names it, or it cannot have forgotten anything. */
static bool doubt_is_over(const struct council *council)
{
    const struct view_member *self = &council->conf.view->members[council->conf.view->self];
    if (self->incarnation == vote_incarnation(council->conf.vote))
        return true;
    return vote_doubt(council->conf.vote) == VOTE_FRESH && last(council)->epoch == 0 && self->incarnation == 0 &&
           nothing_made(council);
}

/* Power was lost everywhere: every voter is here, in this epoch, and so many of their disks are in doubt that no majority
 * is left. What they know together is all there is. */
static bool majority_in_doubt(const struct council *council)
{
    const struct view *view = council->conf.view;
    uint32_t sure = 0;
    for (uint32_t i = 0; i < view->count; i++) {
        const struct view_member *member = &view->members[i];
        if (!member->used || !member->voter || i == view->self)
            continue;
        if (!council->seats[i].up || council->seats[i].epoch != last(council)->epoch)
            return false;
        sure += council->seats[i].doubt_ms == 0;
    }
    return council->plan.sync != NULL && view->members[view->self].voter && sure < record_majority(last(council));
}

static void look_at_doubt(struct council *council, uint64_t now_ms)
{
    struct epoch_event recover = {.type = EPOCH_EV_RECOVER, .good = true};
    if (vote_doubt(council->conf.vote) == VOTE_SURE)
        return;
    if (!doubt_is_over(council)) {
        if (majority_in_doubt(council))
            step(council, &recover, now_ms);
        return;
    }
    end_doubt(council, now_ms);
    if (council_begin(council, now_ms) != ERR_OK)
        failed(council, now_ms, "the next epoch");
}

void council_tick(struct council *council, const struct bitset *silent, uint64_t now_ms)
{
    struct epoch_event want = {.type = EPOCH_EV_WANT, .good = true}, tick = {.type = EPOCH_EV_TICK, .good = true};
    council->silent = *silent;
    council->now_ms = now_ms;
    if (council->taken)
        return;
    look_at_doubt(council, now_ms);
    want.flag = change_wanted(council);
    step(council, &want, now_ms);
    step(council, &tick, now_ms);
    settle(council, now_ms);
}

/* ---- wishes ---- */

static void tell_voters(struct council *council, const struct wire_epoch *wish)
{
    const struct view *view = council->conf.view;
    for (uint32_t i = 0; i < view->count; i++)
        if (i != view->self && council->seats[i].up && view->members[i].voter)
            say(council, view->members[i].id, wish);
}

static enum err take_wish(struct council *council, uint32_t kind, uint32_t id, uint64_t number)
{
    uint32_t slot = view_slot(council->conf.view, id);
    struct seat *seat = slot != VIEW_NOBODY ? &council->seats[slot] : NULL;
    bool about = kind != WIRE_WISH_STEPS && kind != WIRE_WISH_PAUSE;
    if (about && seat == NULL)
        return err_set(ERR_NOTFOUND, "no island of id %" PRIu32 " is on the roster", id);
    switch (kind) {
    case WIRE_WISH_DRAIN: seat->drain = true; break;
    case WIRE_WISH_EVICT: seat->evict |= number == last(council)->epoch; break;
    case WIRE_WISH_REVOKE: seat->revoke = true; break;
    case WIRE_WISH_STEPS: council->steps = number; break;
    default: return err_set(ERR_ARG, "a wish of kind %" PRIu32, kind);
    }
    return ERR_OK;
}

enum err council_wish(struct council *council, uint32_t kind, uint32_t id, uint64_t number)
{
    struct wire_epoch wish = {.type = WIRE_WISH, .wish = {.kind = kind, .id = id, .number = number}};
    TRY(take_wish(council, kind, id, number));
    tell_voters(council, &wish);
    return ERR_OK;
}

/* Whether an island of that name or key is on the roster; of both, it is the one. */
static enum err look_up(const struct record *record, const struct record_member *as, bool *there)
{
    *there = false;
    for (uint32_t i = 0; i < record->members_count; i++) {
        const struct record_member *member = &record->members[i];
        bool key = memcmp(member->key, as->key, sizeof as->key) == 0, name = strcmp(member->name, as->name) == 0;
        *there |= key && name;
        if (name && !key)
            return err_set(ERR_STATE, "an island called %s is on the roster already; take another name", as->name);
        if (key && !name)
            return err_set(ERR_STATE, "that key is on the roster already, as island %s", member->name);
    }
    return ERR_OK;
}

static enum err take_newcomer(struct council *council, const struct record_member *as)
{
    bool there;
    TRY(look_up(last(council), as, &there));
    for (uint32_t k = 0; k < council->enrol_count && !there; k++)
        there = memcmp(council->enrol[k].key, as->key, sizeof as->key) == 0;
    if (there)
        return ERR_OK;
    if (council->enrol_count == ENROL_MAX)
        return err_set(ERR_STATE, "%d islands are being enrolled; try again in a moment", ENROL_MAX);
    council->enrol[council->enrol_count++] = *as;
    return ERR_OK;
}

enum err council_enrol(struct council *council, const struct record_member *as)
{
    struct wire_epoch wish = {.type = WIRE_WISH, .wish = {.kind = WIRE_WISH_ENROL, .member = as}};
    TRY(take_newcomer(council, as));
    tell_voters(council, &wish);
    return ERR_OK;
}

void council_said(struct council *council, uint32_t member, const struct council_said *said)
{
    struct seat *seat = &council->seats[member];
    seat->said = true;
    snprintf(seat->address, sizeof seat->address, "%s", said->address);
    memset(seat->address + strlen(seat->address), 0, sizeof seat->address - strlen(seat->address));
    seat->uplink = said->uplink;
    seat->owner_wish = said->owner_wish;
    seat->drain = said->draining;
}

/* What the new record says is wished no more. */
static void fulfil(struct council *council)
{
    const struct record *record = last(council);
    uint32_t kept = 0;
    for (uint32_t k = 0; k < council->enrol_count; k++) {
        bool there;
        if (look_up(record, &council->enrol[k], &there) == ERR_OK && !there)
            council->enrol[kept++] = council->enrol[k];
    }
    council->enrol_count = kept;
    for (uint32_t i = 0; i < record->members_count; i++) {
        uint32_t slot = view_slot(council->conf.view, record->members[i].id);
        if (slot != VIEW_NOBODY) /* it may come back from now on */
            council->seats[slot].evict = false;
    }
    if (record->steps == council->steps)
        council->steps = 0;
}

/* Slots are who the view says; one that is another member's now begins anew. */
static void take_seats(struct council *council)
{
    for (uint32_t i = 0; i < VIEW_SLOTS_MAX; i++) {
        const struct view_member *member = i < council->conf.view->count ? &council->conf.view->members[i] : NULL;
        bool used = member != NULL && member->used;
        struct seat *seat = &council->seats[i];
        if (!used || !seat->used || seat->id != member->id)
            *seat = (struct seat){.used = used, .id = used ? member->id : 0};
    }
}

enum err council_begin(struct council *council, uint64_t now_ms)
{
    const struct record *record = last(council);
    uint32_t voters[EPOCH_VOTERS_MAX], count = 0;
    for (uint32_t i = 0; i < record->members_count; i++)
        if (record->members[i].voter && count < EPOCH_VOTERS_MAX)
            voters[count++] = record->members[i].id;
    take_seats(council);
    fulfil(council);
    holdings_clear(council->holdings);
    council->asked_ms = 0;
    council->begun_ms = council->now_ms = now_ms;
    council->compose = false;
    council->saved = 0;
    const struct epoch_vote *vote = vote_last(council->conf.vote);
    TRY(epoch_begin(council->epoch, record->epoch, voters, count, council_votes(council),
                    vote->epoch == record->epoch ? vote : NULL, now_ms));
    for (uint32_t i = 0; i < council->conf.view->count; i++)
        if (council->seats[i].used && council->seats[i].up)
            council_up(council, i, true, now_ms);
    if (epoch_sealed(council->epoch) && council->plan.sync != NULL)
        sync_seal(council->plan.sync);
    return ERR_OK;
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

enum err council_new(const struct council_conf *conf, uint64_t now_ms, struct council **out)
{
    enum err err;
    struct council *council = NULL;
    *out = NULL;
    TRY_OUT(mem_new(1, sizeof *council, "the council", &council));
    council->conf = *conf;
    struct epoch_conf epoch = {.self = conf->view->members[conf->view->self].id,
                               .seed = env_random_u64(),
                               .turn_ms = TURN_MS,
                               .again_ms = AGAIN_MS};
    TRY_OUT(mem_new(VIEW_SLOTS_MAX, sizeof *council->seats, "the council", &council->seats));
    TRY_OUT(holdings_new(&council->holdings));
    TRY_OUT(epoch_new(&epoch, &council->epoch));
    TRY_OUT(council_begin(council, now_ms));
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
    epoch_free(council->epoch);
    holdings_free(council->holdings);
    mem_free(council->seats);
    mem_free(council);
}

enum err council_plan_known(struct council *council, const struct council_plan *plan)
{
    TRY(holdings_reserve(council->holdings, plan->fragments_count));
    council->plan = *plan;
    if (epoch_sealed(council->epoch))
        sync_seal(plan->sync);
    return ERR_OK;
}

/* ---- looking in ---- */

bool council_votes(const struct council *council)
{
    const struct view *view = council->conf.view;
    return view->self != VIEW_NOBODY && view->members[view->self].voter &&
           vote_doubt(council->conf.vote) == VOTE_SURE;
}

bool council_sealed(const struct council *council)
{
    return epoch_sealed(council->epoch);
}

const char *council_doing(const struct council *council)
{
    return epoch_state_name(epoch_state(council->epoch));
}
