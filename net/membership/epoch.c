/* SPDX-License-Identifier: Apache-2.0 */
#include "net/membership/epoch.h"

#include <assert.h>
#include <string.h>

#include "common/env.h"
#include "common/mem.h"

enum {
    ACTIONS_MAX = 2 * (EPOCH_VOTERS_MAX + EPOCH_ASKED_MAX) + 16, /* of one step; drained after each */
    PAUSE_DOUBLINGS_MAX = 5,
    /* turns that a ballot is held on to which somebody refused: with a majority still to be had, and while composing */
    REFUSED_TURNS = 2,
    REFUSED_COMPOSING_TURNS = 20,
};

/* ---- a copy of bytes that somebody else owned ---- */

/* All zero at first; kept_drop() it in the end. */
struct kept_bytes {
    uint8_t *bytes;
    size_t count;
};

static void kept_drop(struct kept_bytes *kept)
{
    mem_free(kept->bytes);
    *kept = (struct kept_bytes){0};
}

/* Replaces the kept bytes. ERR_NOMEM: these are still there. */
static enum err kept_set(struct kept_bytes *kept, const uint8_t *bytes, size_t count)
{
    uint8_t *copy = NULL;
    if (count > 0) {
        TRY(mem_new(count, 1, "bytes of a record", &copy));
        memcpy(copy, bytes, count);
    }
    kept_drop(kept);
    *kept = (struct kept_bytes){.bytes = copy, .count = count};
    return ERR_OK;
}

/* ---- the voters as the one who proposes sees them: who can be heard, and what each answered to the ballot at hand
 * ----
 */

struct voter {
    uint32_t id;
    bool up;
    bool promised, accepted, rejected; /* our ballot */
    struct record_vote vote;           /* `accepted`: signed */
};

/* All zero at first. */
struct voters {
    struct voter all[EPOCH_VOTERS_MAX];
    uint32_t count;
};

static bool was_up(const struct voters *before, uint32_t id)
{
    for (uint32_t i = 0; i < before->count; i++)
        if (before->all[i].id == id)
            return before->all[i].up;
    return false;
}

/* A new epoch, with these voters in order of id, at most EPOCH_VOTERS_MAX: who stays is as up as before. */
static void voters_set(struct voters *voters, const uint32_t *ids, uint32_t count)
{
    const struct voters before = *voters;
    *voters = (struct voters){.count = count};
    for (uint32_t i = 0; i < count; i++)
        voters->all[i] = (struct voter){.id = ids[i], .up = was_up(&before, ids[i])};
}

/* Borrowed; NULL: it does not vote. */
static struct voter *voters_find(struct voters *voters, uint32_t id)
{
    for (uint32_t i = 0; i < voters->count; i++)
        if (voters->all[i].id == id)
            return &voters->all[i];
    return NULL;
}

static uint32_t voters_majority(const struct voters *voters)
{
    return voters->count / 2 + 1;
}

/* How many that are up stand before this one. */
static uint32_t voters_up_before(const struct voters *voters, uint32_t id)
{
    uint32_t before = 0;
    for (uint32_t i = 0; i < voters->count && voters->all[i].id != id; i++)
        before += voters->all[i].up;
    return before;
}

/* A new ballot, to which nobody has answered. */
static void voters_begin_ballot(struct voters *voters)
{
    for (uint32_t i = 0; i < voters->count; i++)
        voters->all[i].promised = voters->all[i].accepted = voters->all[i].rejected = false;
}

static uint32_t voters_promised(const struct voters *voters)
{
    uint32_t promised = 0;
    for (uint32_t i = 0; i < voters->count; i++)
        promised += voters->all[i].promised;
    return promised;
}

static bool voters_has_promised(const struct voters *voters, uint32_t id)
{
    bool promised = false;
    for (uint32_t i = 0; i < voters->count; i++)
        promised = promised || (voters->all[i].id == id && voters->all[i].promised);
    return promised;
}

/* How many have not refused. */
static uint32_t voters_left(const struct voters *voters)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < voters->count; i++)
        left += !voters->all[i].rejected;
    return left;
}

/* The votes of those who accepted; how many. */
static uint32_t voters_accepted(const struct voters *voters, struct record_vote votes[EPOCH_VOTERS_MAX])
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < voters->count; i++)
        if (voters->all[i].accepted)
            votes[count++] = voters->all[i].vote;
    return count;
}

/*
 * ---- ballots: which of others' a voter takes in, and how long it leaves the next record to them ----
 *
 * So one who begins ballot after ballot seals nobody for long. A voter that has not promised takes a ballot of a member
 * in that begins what the voter itself does not want only now and then, and less often each time; within an epoch, a
 * member's ballots at growing distances, which whoever backs off after a refusal keeps anyway. A ballot that is not
 * taken in is as if it had been lost: it is safe, and who means it says it again.
 */

/* Of one member. */
struct ballots_member {
    uint32_t id;
    bool used;
    uint64_t ballot;   /* the last one taken in, of this epoch; 0: none */
    uint32_t count;    /* so many were */
    uint64_t next_ms;  /* none before this */
    uint64_t began_ms; /* when the first one was */
    bool unwanted;     /* and whether nobody here wanted it */
    uint32_t unwanted_count;
    uint64_t unwanted_ms; /* of any epoch: none that is not wanted before this */
    uint64_t said_ms;     /* how far it has used up what it may say */
};

/* All zero at first, but for turn_ms. */
struct ballots {
    uint64_t turn_ms;
    struct ballots_member members[EPOCH_VOTERS_MAX];
};

/*
 * In turns. PATIENCE: so long another may work on the next record, in an epoch; HASTE: if nobody here wanted it.
 * UNWANTED: between two that are not wanted, at first; twice as long after each, DOUBLINGS at most. A member's ballots
 * in one epoch: half a turn between the first two, twice as long each time. SAID, BURST: a message, repeated or not, in
 * a twentieth of a turn, and so many at once, since a proposer asks anew with every draft.
 */
enum { PATIENCE = 20, HASTE = 3, UNWANTED = 30, UNWANTED_DOUBLINGS = 6, DOUBLINGS = 5, SAID = 20, BURST = 64 };
/* Counters go up one by one. Who has missed some is far below this; from here on it is a member that wants to use them
 * up. */
static const uint64_t jump_max = (uint64_t)1 << 20;

static struct ballots_member *ballots_of(struct ballots *ballots, uint32_t id)
{
    for (uint32_t i = 0; i < EPOCH_VOTERS_MAX; i++)
        if (ballots->members[i].used && ballots->members[i].id == id)
            return &ballots->members[i];
    return NULL;
}

static bool votes(const uint32_t *voters, uint32_t voters_count, uint32_t id)
{
    for (uint32_t i = 0; i < voters_count; i++)
        if (voters[i] == id)
            return true;
    return false;
}

/* A new epoch, with these voters: what is remembered of others is forgotten. */
static void ballots_begin(struct ballots *ballots, const uint32_t *voters, uint32_t voters_count)
{
    uint32_t free = 0;
    for (uint32_t i = 0; i < EPOCH_VOTERS_MAX; i++) {
        struct ballots_member *member = &ballots->members[i];
        if (!member->used || !votes(voters, voters_count, member->id))
            *member = (struct ballots_member){0};
        member->ballot = member->next_ms = member->began_ms = 0;
        member->count = 0;
    }
    for (uint32_t k = 0; k < voters_count && k < EPOCH_VOTERS_MAX; k++) {
        if (ballots_of(ballots, voters[k]) != NULL)
            continue;
        while (ballots->members[free].used)
            free++;
        ballots->members[free] = (struct ballots_member){.id = voters[k], .used = true};
    }
}

/* Whether it is no further above the highest one than ballots can be that were taken in one by one. */
static bool ballots_near(uint64_t ballot, uint64_t highest)
{
    return ballot >> 32 <= (highest >> 32) + jump_max;
}

static bool says_too_much(struct ballots_member *member, uint64_t turn_ms, uint64_t now_ms)
{
    uint64_t step_ms = turn_ms / SAID, from_ms = member->said_ms > now_ms ? member->said_ms : now_ms;
    if (from_ms > now_ms + BURST * step_ms)
        return true;
    member->said_ms = from_ms + step_ms;
    return false;
}

static uint32_t at_most(uint32_t count, uint32_t most)
{
    return count < most ? count : most;
}

/* One that seals us, and that we do not want. */
static bool take_unwanted(struct ballots_member *member, uint64_t turn_ms, uint64_t now_ms)
{
    uint64_t longest_ms = (UNWANTED * turn_ms) << UNWANTED_DOUBLINGS;
    if (now_ms < member->unwanted_ms)
        return false;
    if (now_ms >= member->unwanted_ms + longest_ms)
        member->unwanted_count = 0;
    member->unwanted_ms = now_ms + ((UNWANTED * turn_ms) << at_most(member->unwanted_count, UNWANTED_DOUBLINGS));
    member->unwanted_count++;
    return true;
}

/* Whether this ballot of the member is taken in. `highest`: heard of so far; `wanted`: we want the next record, or are
 * sealed already. */
static bool ballots_take(struct ballots *ballots, uint32_t id, uint64_t ballot, uint64_t highest, bool wanted,
                         uint64_t now_ms)
{
    struct ballots_member *member = ballots_of(ballots, id);
    if (member == NULL || !ballots_near(ballot, highest) || says_too_much(member, ballots->turn_ms, now_ms))
        return false;
    if (ballot <= member->ballot) /* again, or late */
        return true;
    if (now_ms < member->next_ms || (!wanted && !take_unwanted(member, ballots->turn_ms, now_ms)))
        return false;
    if (member->count == 0) {
        member->began_ms = now_ms;
        member->unwanted = !wanted;
    }
    member->next_ms = now_ms + ((ballots->turn_ms / 2) << at_most(member->count, DOUBLINGS));
    member->count++;
    member->ballot = ballot;
    return true;
}

/* Until when to leave the next record to the member, of which a ballot was taken in; 0: none was. `doublings`: of our
 * patience. */
static uint64_t ballots_give_way(struct ballots *ballots, uint32_t id, unsigned doublings)
{
    const struct ballots_member *member = ballots_of(ballots, id);
    if (member == NULL || member->count == 0)
        return 0;
    return member->began_ms + (((member->unwanted ? HASTE : PATIENCE) * ballots->turn_ms) << doublings);
}

/* ---- the table ---- */

struct epoch {
    struct epoch_conf conf;
    struct env_rng rng;
    enum epoch_state state;
    uint64_t number;
    struct voters voters;
    bool may_vote, wanted;
    bool recovering;    /* our disk is in doubt, and we ask all voters for what it may have lost */
    uint64_t recovered; /* number of the save after which we vote again; 0: none */

    /* acceptor */
    struct epoch_vote vote; /* bytes: in `accepted` */
    struct kept_bytes accepted;
    uint64_t save, saved;           /* numbers: of the newest vote, and of the newest that is durable */
    bool owe_promise, owe_accepted; /* to the proposers of vote.promised and vote.accepted, once all is durable */

    /* proposer */
    uint64_t ballot;  /* ours */
    uint64_t claimed; /* number of the save that makes it durable */
    uint64_t seen;    /* the highest ballot heard of */
    uint64_t best;    /* the highest ballot in which one who promised had accepted a record: it is `proposal` */
    struct kept_bytes proposal, draft;
    struct digest proposal_digest;
    uint32_t asked[EPOCH_ASKED_MAX], asked_count; /* further members that get the draft */
    uint64_t again_ms;
    uint64_t refused_ms; /* since when somebody refuses our ballot; 0: nobody does */

    /* turns */
    bool due_set;
    uint64_t due_ms;                            /* when we propose */
    struct ballots others;                      /* which of theirs are taken in */
    unsigned failures;                          /* ballots of ours that came to nothing */
    uint64_t chain_ms;                          /* not before that do we ask for the chain again */
    struct record_vote votes[EPOCH_VOTERS_MAX]; /* decided */
    struct epoch_action actions[ACTIONS_MAX];
    uint32_t actions_count, actions_next;
};

/* ---- small things ---- */

static struct voter *voter_of(struct epoch *epoch, uint32_t id)
{
    return voters_find(&epoch->voters, id);
}

/* How many have to promise our ballot. */
static uint32_t needed(const struct epoch *epoch)
{
    return epoch->recovering ? epoch->voters.count : voters_majority(&epoch->voters);
}

static struct epoch_action *order(struct epoch *epoch, enum epoch_action_type type)
{
    assert(epoch->actions_count < ACTIONS_MAX);
    struct epoch_action *action = &epoch->actions[epoch->actions_count++];
    *action = (struct epoch_action){.type = type};
    return action;
}

static struct epoch_message *send_to(struct epoch *epoch, uint32_t to, enum wire_epoch_type type, uint64_t ballot)
{
    struct epoch_action *action = order(epoch, EPOCH_DO_SEND);
    action->to = to;
    action->message = (struct epoch_message){.type = type, .epoch = epoch->number + 1, .ballot = ballot};
    return &action->message;
}

/* ---- acceptor ---- */

static void save(struct epoch *epoch)
{
    struct epoch_action *action = order(epoch, EPOCH_DO_SAVE);
    epoch->vote.bytes = epoch->accepted.bytes;
    epoch->vote.bytes_count = epoch->accepted.count;
    action->number = ++epoch->save;
    action->vote = epoch->vote;
}

/* What is owed is said when everything is durable, and says what is. */
static void answer(struct epoch *epoch)
{
    if (epoch->saved < epoch->save)
        return;
    const struct epoch_vote *vote = &epoch->vote;
    if (epoch->owe_promise) {
        struct epoch_message *m = send_to(epoch, epoch_ballot_id(vote->promised), WIRE_PROMISE, vote->promised);
        m->sealed = true;
        m->accepted = vote->accepted;
        m->digest = vote->digest;
        m->bytes = vote->bytes;
        m->bytes_count = vote->bytes_count;
    }
    if (epoch->owe_accepted)
        send_to(epoch, epoch_ballot_id(vote->accepted), WIRE_ACCEPTED, vote->accepted)->digest = vote->digest;
    epoch->owe_promise = epoch->owe_accepted = false;
}

/* The first voter that is up proposes at once, each other one a turn later than the one before it. */
static uint64_t our_turn(const struct epoch *epoch)
{
    return voters_up_before(&epoch->voters, epoch->conf.self) * epoch->conf.turn_ms;
}

/* Somebody else is at work: leave it to that one, but not for ever. False: it is none of that member's ballots, or one
 * too many. */
static bool take_ballot(struct epoch *epoch, const struct epoch_event *event, bool waits, uint64_t now_ms)
{
    uint64_t ballot = event->message->ballot;
    bool ours = event->from == epoch->conf.self, refused = event->message->recover && ballot < epoch->vote.own;
    bool wanted = epoch->wanted || epoch->vote.promised != 0 || refused; /* or it does not seal us */
    if (ballot == 0 || epoch_ballot_id(ballot) != event->from || voter_of(epoch, event->from) == NULL)
        return false; /* a ballot belongs to the voter whose id is in it */
    if (ours)
        return true;
    if (!ballots_take(&epoch->others, event->from, ballot, epoch->seen, wanted, now_ms))
        return false;
    if (ballot > epoch->seen)
        epoch->seen = ballot;
    uint64_t turn = epoch->conf.turn_ms;
    unsigned doublings = epoch->failures < PAUSE_DOUBLINGS_MAX ? epoch->failures : PAUSE_DOUBLINGS_MAX;
    uint64_t due = now_ms + 2 * turn + env_rng_below(&epoch->rng, turn * epoch->voters.count + 1);
    uint64_t until = ballots_give_way(&epoch->others, event->from, doublings) + our_turn(epoch);
    bool ahead = ballot >= epoch->vote.promised; /* else it comes to nothing, and that one will learn it */
    due = due < until ? due : until;
    if (waits && ahead && epoch->due_set && due > epoch->due_ms)
        epoch->due_ms = due;
    return true;
}

static enum err on_prepare(struct epoch *epoch, const struct epoch_event *event, uint64_t now_ms)
{
    const struct epoch_message *m = event->message;
    bool waits = !epoch->recovering || m->recover; /* who proposes without us waits for our voice */
    if (!take_ballot(epoch, event, waits, now_ms))
        return ERR_OK;
    bool answers = epoch->may_vote || (m->recover && voter_of(epoch, epoch->conf.self) != NULL);
    uint64_t bar = epoch->vote.promised;
    if (m->recover && epoch->vote.own > bar)
        bar = epoch->vote.own; /* what we said is what another may have promised, and lost */
    if (answers && m->ballot < bar) {
        send_to(epoch, event->from, WIRE_REJECT, bar);
        return ERR_OK;
    }
    if (m->bytes_count > 0) {
        struct epoch_action *action = order(epoch, EPOCH_DO_FETCH);
        action->bytes = m->bytes;
        action->bytes_count = m->bytes_count;
    }
    if (!answers) {
        send_to(epoch, event->from, WIRE_PROMISE, m->ballot);
        return ERR_OK;
    }
    epoch->owe_promise = true;
    if (m->ballot > epoch->vote.promised) {
        epoch->vote.promised = m->ballot;
        save(epoch);
    }
    answer(epoch);
    return ERR_OK;
}

static enum err on_accept(struct epoch *epoch, const struct epoch_event *event, uint64_t now_ms)
{
    const struct epoch_message *m = event->message;
    if (!take_ballot(epoch, event, true, now_ms))
        return ERR_OK;
    if (!epoch->may_vote || !event->good || m->bytes_count == 0)
        return ERR_OK;
    if (m->ballot < epoch->vote.promised) {
        send_to(epoch, event->from, WIRE_REJECT, epoch->vote.promised);
        return ERR_OK;
    }
    if (m->ballot == epoch->vote.accepted) { /* one record per ballot */
        if (!digest_equal(&m->digest, &epoch->vote.digest))
            return ERR_OK;
    } else {
        TRY(kept_set(&epoch->accepted, m->bytes, m->bytes_count));
        epoch->vote.promised = epoch->vote.accepted = m->ballot; /* to accept is to be sealed */
        epoch->vote.digest = m->digest;
        epoch->owe_promise = false; /* it was a lower ballot's, or this one's, which is beyond that */
        save(epoch);
    }
    epoch->owe_accepted = true;
    answer(epoch);
    return ERR_OK;
}

/* ---- proposer ---- */

static bool proposing(const struct epoch *epoch)
{
    return epoch->state == EPOCH_PREPARING || epoch->state == EPOCH_COMPOSING || epoch->state == EPOCH_ACCEPTING;
}

static void say_prepare(struct epoch *epoch, uint32_t to)
{
    struct epoch_message *m = send_to(epoch, to, WIRE_PREPARE, epoch->ballot);
    m->bytes = epoch->draft.bytes;
    m->bytes_count = epoch->draft.count;
    m->recover = epoch->recovering;
}

/* We promise when it needs nobody else any more: who is sealed makes and acknowledges nothing in this epoch, and where
 * the others do not want another one, or can't be reached, that would hold them up for nothing. */
static bool our_promise_is_due(const struct epoch *epoch)
{
    return voters_promised(&epoch->voters) + 1 >= needed(epoch);
}

static bool asks_to_promise(const struct epoch *epoch, const struct voter *voter)
{
    return !voter->promised && (voter->id != epoch->conf.self || our_promise_is_due(epoch));
}

/* To everyone whose answer can still matter. */
static void ask(struct epoch *epoch, uint64_t now_ms)
{
    epoch->again_ms = now_ms + epoch->conf.again_ms;
    for (uint32_t i = 0; i < epoch->voters.count; i++) {
        const struct voter *voter = &epoch->voters.all[i];
        if (epoch->state == EPOCH_ACCEPTING && !voter->accepted) {
            struct epoch_message *m = send_to(epoch, voter->id, WIRE_ACCEPT, epoch->ballot);
            m->bytes = epoch->proposal.bytes;
            m->bytes_count = epoch->proposal.count;
            m->digest = epoch->proposal_digest;
        }
        if (epoch->state == EPOCH_COMPOSING || (epoch->state == EPOCH_PREPARING && asks_to_promise(epoch, voter)))
            say_prepare(epoch, voter->id);
    }
    for (uint32_t i = 0; epoch->state == EPOCH_COMPOSING && i < epoch->asked_count; i++)
        if (voter_of(epoch, epoch->asked[i]) == NULL)
            say_prepare(epoch, epoch->asked[i]);
}

/* A new ballot of ours: durable before it is said. */
static void claim(struct epoch *epoch)
{
    uint64_t counter = (epoch->seen >> 32) + 1;
    if (counter > UINT32_MAX)
        return;
    epoch->ballot = epoch->seen = counter << 32 | epoch->conf.self;
    epoch->vote.own = epoch->ballot;
    epoch->state = EPOCH_CLAIMING;
    epoch->best = epoch->refused_ms = 0;
    epoch->due_set = false;
    epoch->asked_count = 0;
    kept_drop(&epoch->draft);
    kept_drop(&epoch->proposal);
    voters_begin_ballot(&epoch->voters);
    save(epoch);
    epoch->claimed = epoch->save;
}

/* Growing pauses of random length, so that two proposers do not duel for ever. */
static void back_off(struct epoch *epoch, uint64_t now_ms)
{
    unsigned doublings = epoch->failures < PAUSE_DOUBLINGS_MAX ? epoch->failures : PAUSE_DOUBLINGS_MAX;
    uint64_t pause = epoch->conf.turn_ms << doublings;
    epoch->failures++;
    epoch->state = EPOCH_IDLE;
    epoch->due_set = true;
    epoch->due_ms = now_ms + pause + env_rng_below(&epoch->rng, pause + 1);
}

static void accept_asked(struct epoch *epoch, uint64_t now_ms)
{
    epoch->state = EPOCH_ACCEPTING;
    kept_drop(&epoch->draft);
    ask(epoch, now_ms);
}

static void take_in(struct epoch *epoch)
{
    order(epoch, epoch->recovering ? EPOCH_DO_TAKE_OVER : EPOCH_DO_COMPOSE);
}

static enum err on_seal(struct epoch *epoch, const struct epoch_event *event, uint64_t now_ms)
{
    const struct epoch_message *m = event->message;
    struct voter *voter = voter_of(epoch, event->from);
    if (voter == NULL || m->ballot != epoch->ballot || !event->good ||
        (epoch->state != EPOCH_PREPARING && epoch->state != EPOCH_COMPOSING))
        return ERR_OK;
    if (m->accepted > epoch->best && m->accepted <= m->ballot && m->bytes_count > 0) {
        TRY(kept_set(&epoch->proposal, m->bytes, m->bytes_count));
        epoch->proposal_digest = m->digest;
        epoch->best = m->accepted;
    }
    bool first = !voter->promised;
    voter->promised = true;
    if (voters_promised(&epoch->voters) < needed(epoch)) {
        const struct voter *self = voter_of(epoch, epoch->conf.self);
        if (first && self != NULL && asks_to_promise(epoch, self))
            say_prepare(epoch, self->id);
        return ERR_OK;
    }
    if (epoch->best > 0 && !epoch->recovering) { /* it may have been decided: it is proposed as it is */
        accept_asked(epoch, now_ms);
        return ERR_OK;
    }
    epoch->state = EPOCH_COMPOSING;
    take_in(epoch);
    return ERR_OK;
}

static enum err on_promise(struct epoch *epoch, const struct epoch_event *event, uint64_t now_ms)
{
    if (event->message->sealed)
        return on_seal(epoch, event, now_ms);
    if (epoch->state == EPOCH_COMPOSING && event->message->ballot == epoch->ballot)
        take_in(epoch);
    return ERR_OK;
}

/* It is over only when no majority is left for it: one voter alone ends nothing. */
static enum err on_reject(struct epoch *epoch, const struct epoch_event *event, uint64_t now_ms)
{
    const struct epoch_message *m = event->message;
    struct voter *voter = voter_of(epoch, event->from);
    if (voter == NULL || !ballots_near(m->ballot, epoch->seen))
        return ERR_OK;
    if (m->ballot > epoch->seen)
        epoch->seen = m->ballot;
    if (!proposing(epoch) || m->ballot <= epoch->ballot)
        return ERR_OK;
    voter->rejected = true;
    if (epoch->refused_ms == 0)
        epoch->refused_ms = now_ms;
    if (voters_left(&epoch->voters) < needed(epoch))
        back_off(epoch, now_ms);
    return ERR_OK;
}

static enum err on_accepted(struct epoch *epoch, const struct epoch_event *event, uint64_t now_ms)
{
    (void)now_ms;
    const struct epoch_message *m = event->message;
    struct voter *voter = voter_of(epoch, event->from);
    if (voter == NULL || epoch->state != EPOCH_ACCEPTING || m->ballot != epoch->ballot || !event->good ||
        !digest_equal(&m->digest, &epoch->proposal_digest))
        return ERR_OK;
    voter->accepted = true;
    voter->vote = (struct record_vote){.id = voter->id, .ballot = m->ballot};
    memcpy(voter->vote.signature, m->signature, sizeof voter->vote.signature);
    uint32_t count = voters_accepted(&epoch->voters, epoch->votes);
    if (count < voters_majority(&epoch->voters))
        return ERR_OK;
    epoch->state = EPOCH_DECIDED;
    struct epoch_action *action = order(epoch, EPOCH_DO_DECIDED);
    action->bytes = epoch->proposal.bytes;
    action->bytes_count = epoch->proposal.count;
    action->votes = epoch->votes;
    action->votes_count = count;
    return ERR_OK;
}

static enum err on_decided(struct epoch *epoch, const struct epoch_event *event, uint64_t now_ms)
{
    (void)now_ms;
    const struct epoch_message *m = event->message;
    if (!event->good || m->bytes_count == 0)
        return ERR_OK;
    epoch->state = EPOCH_DECIDED;
    struct epoch_action *action = order(epoch, EPOCH_DO_DECIDED);
    action->bytes = m->bytes;
    action->bytes_count = m->bytes_count;
    action->votes = m->votes;
    action->votes_count = m->votes_count;
    return ERR_OK;
}

/* ---- events ---- */

typedef enum err handler(struct epoch *epoch, const struct epoch_event *event, uint64_t now_ms);

static handler *const message_handlers[] = {
    [WIRE_PREPARE - WIRE_PREPARE] = on_prepare,   [WIRE_PROMISE - WIRE_PREPARE] = on_promise,
    [WIRE_REJECT - WIRE_PREPARE] = on_reject,     [WIRE_ACCEPT - WIRE_PREPARE] = on_accept,
    [WIRE_ACCEPTED - WIRE_PREPARE] = on_accepted, [WIRE_DECIDED - WIRE_PREPARE] = on_decided,
};

static enum err heard(struct epoch *epoch, const struct epoch_event *event, uint64_t now_ms)
{
    if (event->epoch > epoch->number && now_ms >= epoch->chain_ms) {
        epoch->chain_ms = now_ms + epoch->conf.again_ms;
        send_to(epoch, event->from, WIRE_CHAIN, 0)->epoch = epoch->number;
    }
    return ERR_OK;
}

/* The newest record that its sender knew. */
static uint64_t known_to(const struct epoch *epoch, const struct epoch_message *m)
{
    if (m->type == WIRE_DECIDED) /* it is good only after ours, whoever tells of it */
        return epoch->number;
    return m->type == WIRE_CHAIN || m->epoch == 0 ? m->epoch : m->epoch - 1;
}

static enum err message(struct epoch *epoch, const struct epoch_event *event, uint64_t now_ms)
{
    const struct epoch_message *m = event->message;
    uint64_t known = known_to(epoch, m);
    size_t type = (size_t)m->type - WIRE_PREPARE;
    if (known < epoch->number) {
        struct epoch_action *action = order(epoch, EPOCH_DO_CHAIN);
        action->to = event->from;
        action->epoch = known;
        return ERR_OK;
    }
    if (known > epoch->number && m->type != WIRE_CHAIN) {
        struct epoch_event newer = {.from = event->from, .epoch = known};
        return heard(epoch, &newer, now_ms);
    }
    if (epoch->state == EPOCH_DECIDED || type >= sizeof message_handlers / sizeof message_handlers[0])
        return ERR_OK; /* a CHAIN of who knows as much, among others */
    return message_handlers[type](epoch, event, now_ms);
}

static enum err saved(struct epoch *epoch, const struct epoch_event *event, uint64_t now_ms)
{
    if (event->number > epoch->saved && event->number <= epoch->save)
        epoch->saved = event->number;
    if (epoch->state == EPOCH_DECIDED)
        return ERR_OK;
    if (epoch->state == EPOCH_CLAIMING && epoch->saved >= epoch->claimed) {
        epoch->state = EPOCH_PREPARING;
        ask(epoch, now_ms);
    }
    if (epoch->recovered > 0 && epoch->saved >= epoch->recovered) {
        epoch->recovered = 0;
        epoch->may_vote = true;
        order(epoch, EPOCH_DO_VOTE);
    }
    answer(epoch);
    return ERR_OK;
}

/* Whether there is to be another epoch: a seal has to come to an end. */
static bool goes_on(const struct epoch *epoch)
{
    return epoch->recovering || (epoch->may_vote && (epoch->wanted || epoch->vote.promised != 0));
}

/* Nobody wants the ballot any more, and nobody that we know of is sealed by it. */
static void let_go(struct epoch *epoch)
{
    if (epoch->state == EPOCH_PREPARING && !goes_on(epoch) && voters_promised(&epoch->voters) == 0)
        epoch->state = EPOCH_IDLE;
}

static void take_turn(struct epoch *epoch, uint64_t now_ms)
{
    bool due = goes_on(epoch);
    epoch->due_set = epoch->due_set && due;
    if (!due || epoch->state != EPOCH_IDLE)
        return;
    if (!epoch->due_set) {
        epoch->due_set = true;
        epoch->due_ms = now_ms + our_turn(epoch);
        if (epoch->vote.promised != 0) /* by the ballot of somebody who is at work */
            epoch->due_ms += 2 * epoch->conf.turn_ms;
    }
    if (now_ms >= epoch->due_ms)
        claim(epoch);
}

/* Those who have not refused may not be there: a ballot that is refused comes to an end all the same. */
static bool given_up(const struct epoch *epoch, uint64_t now_ms)
{
    uint64_t turns = epoch->state == EPOCH_COMPOSING ? REFUSED_COMPOSING_TURNS : REFUSED_TURNS;
    return proposing(epoch) && epoch->refused_ms != 0 && now_ms >= epoch->refused_ms + turns * epoch->conf.turn_ms;
}

static enum err tick(struct epoch *epoch, const struct epoch_event *event, uint64_t now_ms)
{
    (void)event;
    if (given_up(epoch, now_ms))
        back_off(epoch, now_ms);
    let_go(epoch);
    if (proposing(epoch) && now_ms >= epoch->again_ms) {
        ask(epoch, now_ms);
        if (epoch->state == EPOCH_COMPOSING)
            take_in(epoch);
    }
    take_turn(epoch, now_ms);
    return ERR_OK;
}

static enum err want(struct epoch *epoch, const struct epoch_event *event, uint64_t now_ms)
{
    epoch->wanted = event->flag;
    take_turn(epoch, now_ms);
    return ERR_OK;
}

static enum err up(struct epoch *epoch, const struct epoch_event *event, uint64_t now_ms)
{
    (void)now_ms;
    struct voter *voter = voter_of(epoch, event->from);
    if (voter != NULL)
        voter->up = event->flag;
    return ERR_OK;
}

/* Power was lost everywhere: what we may have forgotten is what the voters, all of them, know together. */
static enum err recover(struct epoch *epoch, const struct epoch_event *event, uint64_t now_ms)
{
    (void)event;
    if (epoch->may_vote || epoch->recovered > 0 || epoch->state != EPOCH_IDLE ||
        voter_of(epoch, epoch->conf.self) == NULL)
        return ERR_OK;
    epoch->recovering = true;
    take_turn(epoch, now_ms);
    return ERR_OK;
}

/* From now on we are a voter that has promised our ballot and accepted what the others had: durably, then we vote. */
static enum err recovered(struct epoch *epoch, const struct epoch_event *event, uint64_t now_ms)
{
    (void)event;
    (void)now_ms;
    if (!epoch->recovering || epoch->state != EPOCH_COMPOSING)
        return ERR_OK;
    if (epoch->best > epoch->vote.accepted) {
        TRY(kept_set(&epoch->accepted, epoch->proposal.bytes, epoch->proposal.count));
        epoch->vote.accepted = epoch->best;
        epoch->vote.digest = epoch->proposal_digest;
    }
    if (epoch->ballot > epoch->vote.promised)
        epoch->vote.promised = epoch->ballot;
    epoch->recovering = false;
    epoch->state = EPOCH_IDLE;
    save(epoch);
    epoch->recovered = epoch->save;
    return ERR_OK;
}

static handler *const handlers[EPOCH_EVENTS] = {
    [EPOCH_EV_TICK] = tick,       [EPOCH_EV_MESSAGE] = message,
    [EPOCH_EV_SAVED] = saved,     [EPOCH_EV_WANT] = want,
    [EPOCH_EV_UP] = up,           [EPOCH_EV_HEARD] = heard,
    [EPOCH_EV_RECOVER] = recover, [EPOCH_EV_RECOVERED] = recovered,
};

enum err epoch_step(struct epoch *epoch, const struct epoch_event *event, uint64_t now_ms)
{
    epoch->actions_count = epoch->actions_next = 0;
    return handlers[event->type](epoch, event, now_ms);
}

bool epoch_action(struct epoch *epoch, struct epoch_action *action)
{
    if (epoch->actions_next == epoch->actions_count)
        return false;
    *action = epoch->actions[epoch->actions_next++];
    return true;
}

/* ---- life ---- */

enum err epoch_new(const struct epoch_conf *conf, struct epoch **out)
{
    TRY(mem_new(1, sizeof **out, "epoch", out));
    (*out)->conf = *conf;
    (*out)->rng = env_rng_init(conf->seed, conf->self);
    (*out)->others.turn_ms = conf->turn_ms;
    (*out)->state = EPOCH_DECIDED; /* until epoch_begin() */
    return ERR_OK;
}

void epoch_free(struct epoch *epoch)
{
    if (epoch == NULL)
        return;
    kept_drop(&epoch->accepted);
    kept_drop(&epoch->proposal);
    kept_drop(&epoch->draft);
    mem_free(epoch);
}

enum err epoch_begin(struct epoch *epoch, uint64_t number, const uint32_t *voters, uint32_t voters_count, bool may_vote,
                     const struct epoch_vote *vote, uint64_t now_ms)
{
    (void)now_ms; /* turns are counted from the first tick */
    if (voters_count > EPOCH_VOTERS_MAX)
        return err_set(ERR_ARG, "%u voters; at most %d can decide an epoch", voters_count, EPOCH_VOTERS_MAX);
    if (vote != NULL && vote->epoch > number)
        return err_set(ERR_STATE, "we voted in epoch %llu, and the newest record here is %llu: fetch the chain first",
                       (unsigned long long)vote->epoch, (unsigned long long)number);
    bool ours = vote != NULL && vote->epoch == number;
    TRY(kept_set(&epoch->accepted, ours ? vote->bytes : NULL, ours ? vote->bytes_count : 0));
    kept_drop(&epoch->proposal);
    kept_drop(&epoch->draft);
    epoch->actions_count = epoch->actions_next = 0;
    voters_set(&epoch->voters, voters, voters_count);
    epoch->number = number;
    epoch->state = EPOCH_IDLE;
    epoch->may_vote = may_vote && voter_of(epoch, epoch->conf.self) != NULL;
    epoch->vote = ours ? *vote : (struct epoch_vote){.epoch = number};
    epoch->vote.bytes = epoch->accepted.bytes;
    epoch->saved = epoch->save; /* what was on its way to disk is void, and numbers are not used again */
    epoch->owe_promise = epoch->owe_accepted = false;
    uint64_t seen = epoch->vote.promised > epoch->vote.own ? epoch->vote.promised : epoch->vote.own;
    epoch->seen = seen;
    epoch->ballot = epoch->best = epoch->chain_ms = 0;
    epoch->asked_count = epoch->failures = 0;
    epoch->wanted = epoch->due_set = epoch->recovering = false;
    epoch->recovered = 0;
    ballots_begin(&epoch->others, voters, voters_count);
    return ERR_OK;
}

enum err epoch_draft(struct epoch *epoch, const uint8_t *bytes, size_t bytes_count, const uint32_t *asked,
                     uint32_t asked_count, uint64_t now_ms)
{
    epoch->actions_count = epoch->actions_next = 0;
    if (epoch->state != EPOCH_COMPOSING || epoch->recovering)
        return ERR_OK;
    bool same =
        bytes_count == epoch->draft.count && (bytes_count == 0 || memcmp(bytes, epoch->draft.bytes, bytes_count) == 0);
    if (!same)
        TRY(kept_set(&epoch->draft, bytes, bytes_count));
    epoch->asked_count = asked_count < EPOCH_ASKED_MAX ? asked_count : EPOCH_ASKED_MAX;
    memcpy(epoch->asked, asked, epoch->asked_count * sizeof asked[0]);
    if (!same)
        ask(epoch, now_ms);
    return ERR_OK;
}

enum err epoch_propose(struct epoch *epoch, const uint8_t *bytes, size_t bytes_count, const struct digest *digest,
                       uint64_t now_ms)
{
    epoch->actions_count = epoch->actions_next = 0;
    if (epoch->state != EPOCH_COMPOSING || epoch->recovering)
        return ERR_OK;
    TRY(kept_set(&epoch->proposal, bytes, bytes_count));
    epoch->proposal_digest = *digest;
    accept_asked(epoch, now_ms);
    return ERR_OK;
}

enum epoch_state epoch_state(const struct epoch *epoch)
{
    return epoch->state;
}

uint64_t epoch_ballot(const struct epoch *epoch)
{
    return epoch->ballot;
}

bool epoch_promised(const struct epoch *epoch, uint32_t id)
{
    return voters_has_promised(&epoch->voters, id);
}

bool epoch_sealed(const struct epoch *epoch)
{
    return epoch->vote.promised != 0;
}
