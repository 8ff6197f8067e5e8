/* SPDX-License-Identifier: Apache-2.0 */
#include "net/membership/paxos.h"

#include <assert.h>
#include <string.h>

#include "common/env.h"
#include "common/mem.h"
#include "net/config/config_proof.h"

enum {
    ACTIONS_MAX = 2 * (PAXOS_VOTERS_MAX + PAXOS_ASKED_MAX) + 16, /* of one step; drained after each */
    PAUSE_DOUBLINGS_MAX = 5,
    /* turns that a ballot is held on to which somebody refused: with a majority still to be had, and while composing */
    REFUSED_TURNS = 2,
    REFUSED_COMPOSING_TURNS = 20,
    LEFT_OUT = 3,     /* configurations that left out what waits here, before turns begin with another voter */
    OTHERS_TURNS = 3, /* for so long those who have come as far are heard again, if they are there */
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
        TRY(mem_new(count, 1, "bytes of a configuration", &copy));
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
    struct config_vote vote;           /* `accepted`: signed */
};

/* All zero at first. */
struct voters {
    struct voter all[PAXOS_VOTERS_MAX];
    uint32_t count;
};

static bool was_up(const struct voters *before, uint32_t id)
{
    for (uint32_t i = 0; i < before->count; i++)
        if (before->all[i].id == id)
            return before->all[i].up;
    return false;
}

/* A new epoch, with these voters in order of id, at most PAXOS_VOTERS_MAX: who stays is as up as before. */
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

/* How many of those that are up, and of `self`, come before this one, where turns begin with the one after the first
 * `shift` of them. */
static uint32_t voters_before(const struct voters *voters, uint32_t self, uint32_t id, uint64_t shift)
{
    uint32_t before = 0, all = 0;
    for (uint32_t i = 0; i < voters->count; i++) {
        bool counts = voters->all[i].up || voters->all[i].id == self;
        before += counts && voters->all[i].id < id;
        all += counts;
    }
    return all == 0 ? before : (before + all - (uint32_t)(shift % all)) % all;
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

static bool voters_has(const struct voters *voters, uint32_t id)
{
    bool has = false;
    for (uint32_t i = 0; i < voters->count; i++)
        has = has || voters->all[i].id == id;
    return has;
}

static bool voters_has_promised(const struct voters *voters, uint32_t id)
{
    bool promised = false;
    for (uint32_t i = 0; i < voters->count; i++)
        promised = promised || (voters->all[i].id == id && voters->all[i].promised);
    return promised;
}

static bool voters_has_accepted(const struct voters *voters, uint32_t id)
{
    bool accepted = false;
    for (uint32_t i = 0; i < voters->count; i++)
        accepted = accepted || (voters->all[i].id == id && voters->all[i].accepted);
    return accepted;
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
static uint32_t voters_accepted(const struct voters *voters, struct config_vote votes[PAXOS_VOTERS_MAX])
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < voters->count; i++)
        if (voters->all[i].accepted)
            votes[count++] = voters->all[i].vote;
    return count;
}

/*
 * ---- ballots: which of others' a voter takes in, and how long it leaves the next configuration to them ----
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
    uint64_t far_ms;      /* none that is far above the highest before this; of this epoch */
    bool broken;          /* it has proposed what may not follow: nothing is left to it in this epoch */
};

/* All zero at first, but for turn_ms. */
struct ballots {
    uint64_t turn_ms;
    struct ballots_member members[PAXOS_VOTERS_MAX];
};

/*
 * In turns. PATIENCE: so long another may work on the next configuration, in an epoch; HASTE: if nobody here wanted it.
 * UNWANTED: between two that are not wanted, at first; twice as long after each, DOUBLINGS at most. A member's ballots
 * in one epoch: half a turn between the first two, twice as long each time. SAID, BURST: a message, repeated or not, in
 * a twentieth of a turn, and so many at once, since a proposer asks anew with every draft.
 */
enum { PATIENCE = 20, HASTE = 3, UNWANTED = 30, UNWANTED_DOUBLINGS = 6, DOUBLINGS = 5, SAID = 20, BURST = 64 };
/* Counters go up one by one, so who has missed some is below these, in an epoch that has lasted for months: at once
 * NEAR, and JUMP once in FAR turns. From there on it is a member that wants to use them up. It can't: of the 2^32 that
 * an epoch has, one that jumps as far as it may uses 2^20 an hour, and so needs 4096 hours in which nobody decides; by
 * steps of NEAR, each a ballot that is taken in once in 16 turns, or a refusal of a ballot of ours, two years. In the
 * next epoch they begin anew. */
enum { NEAR = 1 << 10, JUMP = 1 << 20, FAR = 3600 };

static struct ballots_member *ballots_of(struct ballots *ballots, uint32_t id)
{
    for (uint32_t i = 0; i < PAXOS_VOTERS_MAX; i++)
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
    for (uint32_t i = 0; i < PAXOS_VOTERS_MAX; i++) {
        struct ballots_member *member = &ballots->members[i];
        if (!member->used || !votes(voters, voters_count, member->id))
            *member = (struct ballots_member){0};
        member->ballot = member->next_ms = member->began_ms = member->far_ms = 0;
        member->count = 0;
        member->broken = false;
    }
    for (uint32_t k = 0; k < voters_count && k < PAXOS_VOTERS_MAX; k++) {
        if (ballots_of(ballots, voters[k]) != NULL)
            continue;
        while (ballots->members[free].used)
            free++;
        ballots->members[free] = (struct ballots_member){.id = voters[k], .used = true};
    }
}

static bool is_far(uint64_t ballot, uint64_t highest)
{
    return ballot >> 32 > (highest >> 32) + NEAR;
}

/* Whether it is no further above the highest one than ballots can be that were taken in one by one. */
static bool may_be(const struct ballots_member *member, uint64_t ballot, uint64_t highest, uint64_t now_ms)
{
    return !is_far(ballot, highest) || (ballot >> 32 <= (highest >> 32) + JUMP && now_ms >= member->far_ms);
}

/* It is believed. */
static void note_far(struct ballots_member *member, uint64_t ballot, uint64_t highest, uint64_t turn_ms,
                     uint64_t now_ms)
{
    if (is_far(ballot, highest))
        member->far_ms = now_ms + FAR * turn_ms;
}

/* Whether this ballot may be one that the member has promised. `highest`: heard of so far. */
static bool ballots_believe(struct ballots *ballots, uint32_t id, uint64_t ballot, uint64_t highest, uint64_t now_ms)
{
    struct ballots_member *member = ballots_of(ballots, id);
    if (member == NULL || !may_be(member, ballot, highest, now_ms))
        return false;
    note_far(member, ballot, highest, ballots->turn_ms, now_ms);
    return true;
}

static bool has_said_too_much(const struct ballots_member *member, uint64_t turn_ms, uint64_t now_ms)
{
    return member->said_ms > now_ms + BURST * (turn_ms / SAID);
}

static bool says_too_much(struct ballots_member *member, uint64_t turn_ms, uint64_t now_ms)
{
    if (has_said_too_much(member, turn_ms, now_ms))
        return true;
    member->said_ms = (member->said_ms > now_ms ? member->said_ms : now_ms) + turn_ms / SAID;
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

/* Whether this ballot of the member is taken in. `highest`: heard of so far; `wanted`: we want the next configuration,
 * or are sealed already. */
static bool ballots_take(struct ballots *ballots, uint32_t id, uint64_t ballot, uint64_t highest, bool wanted,
                         uint64_t now_ms)
{
    struct ballots_member *member = ballots_of(ballots, id);
    if (member == NULL || !may_be(member, ballot, highest, now_ms) || says_too_much(member, ballots->turn_ms, now_ms))
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
    note_far(member, ballot, highest, ballots->turn_ms, now_ms);
    return true;
}

/* Whether nothing that the member says about its ballots is taken in just now. */
static bool ballots_deaf(const struct ballots *ballots, uint32_t id, uint64_t now_ms)
{
    for (uint32_t i = 0; i < PAXOS_VOTERS_MAX; i++)
        if (ballots->members[i].used && ballots->members[i].id == id)
            return has_said_too_much(&ballots->members[i], ballots->turn_ms, now_ms);
    return true;
}

/* Until when to leave the next configuration to the member, of which a ballot was taken in; 0: none was. `doublings`:
 * of our patience. */
static uint64_t ballots_give_way(struct ballots *ballots, uint32_t id, unsigned doublings)
{
    const struct ballots_member *member = ballots_of(ballots, id);
    if (member == NULL || member->count == 0 || member->broken)
        return 0;
    return member->began_ms + (((member->unwanted ? HASTE : PATIENCE) * ballots->turn_ms) << doublings);
}

static void ballots_break(struct ballots *ballots, uint32_t id)
{
    struct ballots_member *member = ballots_of(ballots, id);
    if (member != NULL)
        member->broken = true;
}

/* ---- the table ---- */

struct paxos {
    struct paxos_conf conf;
    struct env_rng rng;
    enum paxos_state state;
    uint64_t number;
    struct voters voters;
    bool may_vote, wanted;
    uint64_t left_out;  /* how many configurations have left out what waits here */
    bool behind;        /* we voted in a later epoch: nothing is promised that would take the place of that on disk */
    bool recovering;    /* our disk is in doubt, and we ask all voters for what it may have lost */
    uint64_t recovered; /* number of the save after which we vote again; 0: none */

    /* acceptor */
    struct paxos_vote vote; /* bytes: in `accepted` */
    struct kept_bytes accepted;
    uint64_t save, saved;           /* numbers: of the newest vote, and of the newest that is durable */
    bool owe_promise, owe_accepted; /* to the proposers of vote.promised and vote.accepted, once all is durable */

    /* proposer */
    uint64_t ballot;  /* ours */
    uint64_t claimed; /* number of the save that makes it durable */
    uint64_t seen;    /* the highest ballot heard of */
    uint64_t best;    /* the highest ballot in which one who promised had accepted a configuration: it is `proposal` */
    struct kept_bytes proposal, draft;
    struct digest proposal_digest;
    uint32_t asked[PAXOS_ASKED_MAX], asked_count; /* further members that get the draft */
    uint64_t again_ms;
    uint64_t refused_ms; /* since when somebody refuses our ballot; 0: nobody does */

    /* turns */
    bool due_set;
    uint64_t due_ms;                            /* when we propose */
    struct ballots others;                      /* which of theirs are taken in */
    unsigned failures;                          /* ballots of ours that came to nothing */
    uint64_t config_log_ms;                     /* not before that do we ask for the config log again */
    uint32_t config_log_from;                   /* whom we asked last: it may not hear us */
    bool config_log_others;                     /* others know as much: they have their turn first */
    struct config_vote votes[PAXOS_VOTERS_MAX]; /* decided */
    struct paxos_action actions[ACTIONS_MAX];
    uint32_t actions_count, actions_next;
};

/* ---- small things ---- */

static struct voter *voter_of(struct paxos *paxos, uint32_t id)
{
    return voters_find(&paxos->voters, id);
}

/* How many have to promise our ballot. */
static uint32_t needed(const struct paxos *paxos)
{
    return paxos->recovering ? paxos->voters.count : voters_majority(&paxos->voters);
}

static struct paxos_action *order(struct paxos *paxos, enum paxos_action_type type)
{
    assert(paxos->actions_count < ACTIONS_MAX);
    struct paxos_action *action = &paxos->actions[paxos->actions_count++];
    *action = (struct paxos_action){.type = type};
    return action;
}

static struct paxos_message *send_to(struct paxos *paxos, uint32_t to, enum wire_paxos_type type, uint64_t ballot)
{
    struct paxos_action *action = order(paxos, PAXOS_DO_SEND);
    action->to = to;
    action->message = (struct paxos_message){.type = type, .epoch = paxos->number + 1, .ballot = ballot};
    return &action->message;
}

/* ---- acceptor ---- */

static void save(struct paxos *paxos)
{
    struct paxos_action *action = order(paxos, PAXOS_DO_SAVE);
    paxos->vote.bytes = paxos->accepted.bytes;
    paxos->vote.bytes_count = paxos->accepted.count;
    action->number = ++paxos->save;
    action->vote = paxos->vote;
}

/* What is owed is said when everything is durable, and says what is. */
static void answer(struct paxos *paxos)
{
    if (paxos->saved < paxos->save)
        return;
    const struct paxos_vote *vote = &paxos->vote;
    if (paxos->owe_promise) {
        struct paxos_message *m = send_to(paxos, paxos_ballot_id(vote->promised), WIRE_PROMISE, vote->promised);
        m->sealed = true;
        m->accepted = vote->accepted;
        m->digest = vote->digest;
        m->bytes = vote->bytes;
        m->bytes_count = vote->bytes_count;
    }
    if (paxos->owe_accepted)
        send_to(paxos, paxos_ballot_id(vote->accepted), WIRE_ACCEPTED, vote->accepted)->digest = vote->digest;
    paxos->owe_promise = paxos->owe_accepted = false;
}

/* The first voter that is up proposes at once, each other one a turn later than the one before it. Where configurations
 * have left out what waits here, turns begin with another voter in each epoch: whoever made them may leave it out for
 * ever. The epoch says with which one, as each voter counts for itself how many there were. */
static uint64_t turn_of(const struct paxos *paxos, uint32_t id)
{
    uint64_t shift = paxos->left_out >= LEFT_OUT ? paxos->number : 0;
    return voters_before(&paxos->voters, paxos->conf.self, id, shift) * paxos->conf.turn_ms;
}

static uint64_t our_turn(const struct paxos *paxos)
{
    return turn_of(paxos, paxos->conf.self);
}

/* Whether we need not give way to it, since our turn is before its; until a ballot of ours came to nothing. */
static bool goes_before(const struct paxos *paxos, uint32_t id)
{
    return paxos->left_out >= LEFT_OUT && paxos->failures == 0 && our_turn(paxos) < turn_of(paxos, id);
}

/* Somebody else is at work: leave it to that one, but not for ever. False: it is none of that member's ballots, or one
 * too many. */
static bool take_ballot(struct paxos *paxos, const struct paxos_event *event, bool waits, uint64_t now_ms)
{
    uint64_t ballot = event->message->ballot;
    bool ours = event->from == paxos->conf.self, refused = event->message->recover && ballot < paxos->vote.own;
    bool wanted = paxos->wanted || paxos->vote.promised != 0 || refused; /* or it does not seal us */
    if (ballot == 0 || paxos_ballot_id(ballot) != event->from || voter_of(paxos, event->from) == NULL)
        return false; /* a ballot belongs to the voter whose id is in it */
    if (ours)
        return true;
    if (!ballots_take(&paxos->others, event->from, ballot, paxos->seen, wanted, now_ms))
        return false;
    if (ballot > paxos->seen)
        paxos->seen = ballot;
    uint64_t turn = paxos->conf.turn_ms;
    unsigned doublings = paxos->failures < PAUSE_DOUBLINGS_MAX ? paxos->failures : PAUSE_DOUBLINGS_MAX;
    uint64_t due = now_ms + 2 * turn + env_rng_below(&paxos->rng, turn * paxos->voters.count + 1);
    uint64_t until = ballots_give_way(&paxos->others, event->from, doublings) + our_turn(paxos);
    bool ahead = ballot >= paxos->vote.promised; /* else it comes to nothing, and that one will learn it */
    due = due < until ? due : until;
    if (waits && ahead && paxos->due_set && due > paxos->due_ms && !goes_before(paxos, event->from))
        paxos->due_ms = due;
    return true;
}

static enum err on_prepare(struct paxos *paxos, const struct paxos_event *event, uint64_t now_ms)
{
    const struct paxos_message *m = event->message;
    /* Who recovers goes on: whoever proposes may be waiting for its voice. */
    if (!take_ballot(paxos, event, !paxos->recovering || m->recover, now_ms))
        return ERR_OK;
    bool recovers = m->recover && voter_of(paxos, paxos->conf.self) != NULL && !paxos->behind;
    bool answers = paxos->may_vote || recovers;
    uint64_t bar = paxos->vote.promised;
    if (m->recover && paxos->vote.own > bar)
        bar = paxos->vote.own; /* what we said is what another may have promised, and lost */
    if (answers && m->ballot < bar) {
        send_to(paxos, event->from, WIRE_REJECT, bar);
        return ERR_OK;
    }
    if (m->bytes_count > 0) {
        struct paxos_action *action = order(paxos, PAXOS_DO_FETCH);
        action->bytes = m->bytes;
        action->bytes_count = m->bytes_count;
    }
    if (!answers) {
        send_to(paxos, event->from, WIRE_PROMISE, m->ballot);
        return ERR_OK;
    }
    paxos->owe_promise = true;
    if (m->ballot > paxos->vote.promised) {
        paxos->vote.promised = m->ballot;
        save(paxos);
    }
    answer(paxos);
    return ERR_OK;
}

static enum err on_accept(struct paxos *paxos, const struct paxos_event *event, uint64_t now_ms)
{
    const struct paxos_message *m = event->message;
    if (!take_ballot(paxos, event, !paxos->recovering, now_ms))
        return ERR_OK;
    if (!paxos->may_vote || m->bytes_count == 0)
        return ERR_OK;
    if (m->ballot < paxos->vote.promised) {
        send_to(paxos, event->from, WIRE_REJECT, paxos->vote.promised);
        return ERR_OK;
    }
    if (m->ballot == paxos->vote.accepted) { /* one configuration per ballot, and this one was good */
        paxos->owe_accepted = digest_equal(&m->digest, &paxos->vote.digest);
        answer(paxos);
        return ERR_OK;
    }
    if (!event->good) { /* it seals us for nothing: whoever is next need not wait for it */
        ballots_break(&paxos->others, event->from);
        if (paxos->due_set && paxos->due_ms > now_ms + our_turn(paxos))
            paxos->due_ms = now_ms + our_turn(paxos);
        return ERR_OK;
    }
    TRY(kept_set(&paxos->accepted, m->bytes, m->bytes_count));
    paxos->vote.promised = paxos->vote.accepted = m->ballot; /* to accept is to be sealed */
    paxos->vote.digest = m->digest;
    paxos->owe_promise = false; /* it was a lower ballot's, or this one's, which is beyond that */
    save(paxos);
    paxos->owe_accepted = true;
    answer(paxos);
    return ERR_OK;
}

/* ---- proposer ---- */

static bool proposing(const struct paxos *paxos)
{
    return paxos->state == PAXOS_PREPARING || paxos->state == PAXOS_COMPOSING || paxos->state == PAXOS_ACCEPTING;
}

static void say_prepare(struct paxos *paxos, uint32_t to)
{
    struct paxos_message *m = send_to(paxos, to, WIRE_PREPARE, paxos->ballot);
    m->bytes = paxos->draft.bytes;
    m->bytes_count = paxos->draft.count;
    m->recover = paxos->recovering;
}

/* We promise when it needs nobody else any more: who is sealed makes and acknowledges nothing in this epoch, and where
 * the others do not want another one, or can't be reached, that would hold them up for nothing. */
static bool our_promise_is_due(const struct paxos *paxos)
{
    return voters_promised(&paxos->voters) + 1 >= needed(paxos);
}

static bool asks_to_promise(const struct paxos *paxos, const struct voter *voter)
{
    return !voter->promised && (voter->id != paxos->conf.self || our_promise_is_due(paxos));
}

/* To everyone whose answer can still matter. */
static void ask(struct paxos *paxos, uint64_t now_ms)
{
    paxos->again_ms = now_ms + paxos->conf.again_ms;
    for (uint32_t i = 0; i < paxos->voters.count; i++) {
        const struct voter *voter = &paxos->voters.all[i];
        if (paxos->state == PAXOS_ACCEPTING && !voter->accepted) {
            struct paxos_message *m = send_to(paxos, voter->id, WIRE_ACCEPT, paxos->ballot);
            m->bytes = paxos->proposal.bytes;
            m->bytes_count = paxos->proposal.count;
            m->digest = paxos->proposal_digest;
        }
        if (paxos->state == PAXOS_COMPOSING || (paxos->state == PAXOS_PREPARING && asks_to_promise(paxos, voter)))
            say_prepare(paxos, voter->id);
    }
    for (uint32_t i = 0; paxos->state == PAXOS_COMPOSING && i < paxos->asked_count; i++)
        if (voter_of(paxos, paxos->asked[i]) == NULL)
            say_prepare(paxos, paxos->asked[i]);
}

/* A new ballot of ours: durable before it is said. */
static void claim(struct paxos *paxos)
{
    uint64_t counter = (paxos->seen >> 32) + 1;
    if (counter > UINT32_MAX)
        return;
    paxos->ballot = paxos->seen = counter << 32 | paxos->conf.self;
    paxos->vote.own = paxos->ballot;
    paxos->state = PAXOS_CLAIMING;
    paxos->best = paxos->refused_ms = 0;
    paxos->due_set = false;
    paxos->asked_count = 0;
    kept_drop(&paxos->draft);
    kept_drop(&paxos->proposal);
    voters_begin_ballot(&paxos->voters);
    save(paxos);
    paxos->claimed = paxos->save;
}

/* Growing pauses of random length, so that two proposers do not duel for ever. */
static void back_off(struct paxos *paxos, uint64_t now_ms)
{
    unsigned doublings = paxos->failures < PAUSE_DOUBLINGS_MAX ? paxos->failures : PAUSE_DOUBLINGS_MAX;
    uint64_t pause = paxos->conf.turn_ms << doublings;
    paxos->failures++;
    paxos->state = PAXOS_IDLE;
    paxos->due_set = true;
    paxos->due_ms = now_ms + pause + env_rng_below(&paxos->rng, pause + 1);
}

static void accept_asked(struct paxos *paxos, uint64_t now_ms)
{
    paxos->state = PAXOS_ACCEPTING;
    kept_drop(&paxos->draft);
    ask(paxos, now_ms);
}

static void take_in(struct paxos *paxos)
{
    order(paxos, paxos->recovering ? PAXOS_DO_TAKE_OVER : PAXOS_DO_COMPOSE);
}

static enum err on_seal(struct paxos *paxos, const struct paxos_event *event, uint64_t now_ms)
{
    const struct paxos_message *m = event->message;
    struct voter *voter = voter_of(paxos, event->from);
    if (voter == NULL || m->ballot != paxos->ballot || !event->good ||
        (paxos->state != PAXOS_PREPARING && paxos->state != PAXOS_COMPOSING))
        return ERR_OK;
    if (m->accepted > paxos->best && m->accepted <= m->ballot && m->bytes_count > 0) {
        TRY(kept_set(&paxos->proposal, m->bytes, m->bytes_count));
        paxos->proposal_digest = m->digest;
        paxos->best = m->accepted;
    }
    bool first = !voter->promised;
    voter->promised = true;
    if (voters_promised(&paxos->voters) < needed(paxos)) {
        const struct voter *self = voter_of(paxos, paxos->conf.self);
        if (first && self != NULL && asks_to_promise(paxos, self))
            say_prepare(paxos, self->id);
        return ERR_OK;
    }
    if (paxos->best > 0 && !paxos->recovering) { /* it may have been decided: it is proposed as it is */
        accept_asked(paxos, now_ms);
        return ERR_OK;
    }
    paxos->state = PAXOS_COMPOSING;
    take_in(paxos);
    return ERR_OK;
}

static enum err on_promise(struct paxos *paxos, const struct paxos_event *event, uint64_t now_ms)
{
    if (event->message->sealed)
        return on_seal(paxos, event, now_ms);
    if (paxos->state == PAXOS_COMPOSING && event->message->ballot == paxos->ballot)
        take_in(paxos);
    return ERR_OK;
}

/* It is over only when no majority is left for it: one voter alone ends nothing. A voter refuses a ballot once, so it
 * can't raise ours by saying so again and again. */
static enum err on_reject(struct paxos *paxos, const struct paxos_event *event, uint64_t now_ms)
{
    const struct paxos_message *m = event->message;
    struct voter *voter = voter_of(paxos, event->from);
    if (voter == NULL || voter->rejected || m->ballot <= paxos->ballot ||
        !ballots_believe(&paxos->others, event->from, m->ballot, paxos->seen, now_ms))
        return ERR_OK;
    voter->rejected = true;
    if (m->ballot > paxos->seen)
        paxos->seen = m->ballot;
    if (!proposing(paxos))
        return ERR_OK;
    if (paxos->refused_ms == 0)
        paxos->refused_ms = now_ms;
    if (voters_left(&paxos->voters) < needed(paxos))
        back_off(paxos, now_ms);
    return ERR_OK;
}

static enum err on_accepted(struct paxos *paxos, const struct paxos_event *event, uint64_t now_ms)
{
    (void)now_ms;
    const struct paxos_message *m = event->message;
    struct voter *voter = voter_of(paxos, event->from);
    if (voter == NULL || paxos->state != PAXOS_ACCEPTING || m->ballot != paxos->ballot || !event->good ||
        !digest_equal(&m->digest, &paxos->proposal_digest))
        return ERR_OK;
    voter->accepted = true;
    voter->vote = (struct config_vote){.id = voter->id, .ballot = m->ballot};
    memcpy(voter->vote.signature, m->signature, sizeof voter->vote.signature);
    uint32_t count = voters_accepted(&paxos->voters, paxos->votes);
    if (count < voters_majority(&paxos->voters))
        return ERR_OK;
    paxos->state = PAXOS_DECIDED;
    struct paxos_action *action = order(paxos, PAXOS_DO_DECIDED);
    action->bytes = paxos->proposal.bytes;
    action->bytes_count = paxos->proposal.count;
    action->votes = paxos->votes;
    action->votes_count = count;
    return ERR_OK;
}

static enum err on_decided(struct paxos *paxos, const struct paxos_event *event, uint64_t now_ms)
{
    (void)now_ms;
    const struct paxos_message *m = event->message;
    if (!event->good || m->bytes_count == 0)
        return ERR_OK;
    paxos->state = PAXOS_DECIDED;
    struct paxos_action *action = order(paxos, PAXOS_DO_DECIDED);
    action->bytes = m->bytes;
    action->bytes_count = m->bytes_count;
    action->votes = m->votes;
    action->votes_count = m->votes_count;
    return ERR_OK;
}

/* ---- events ---- */

typedef enum err handler(struct paxos *paxos, const struct paxos_event *event, uint64_t now_ms);

static handler *const message_handlers[] = {
    [WIRE_PREPARE - WIRE_PREPARE] = on_prepare,   [WIRE_PROMISE - WIRE_PREPARE] = on_promise,
    [WIRE_REJECT - WIRE_PREPARE] = on_reject,     [WIRE_ACCEPT - WIRE_PREPARE] = on_accept,
    [WIRE_ACCEPTED - WIRE_PREPARE] = on_accepted, [WIRE_DECIDED - WIRE_PREPARE] = on_decided,
};

static enum err heard(struct paxos *paxos, const struct paxos_event *event, uint64_t now_ms)
{
    if (event->epoch <= paxos->number)
        return ERR_OK;
    bool other = event->from != paxos->config_log_from, due = now_ms >= paxos->config_log_ms;
    bool waits = paxos->config_log_others && now_ms < paxos->config_log_ms + OTHERS_TURNS * paxos->conf.turn_ms;
    if (!due || (!other && waits)) {
        paxos->config_log_others |= other;
        return ERR_OK;
    }
    paxos->config_log_from = event->from;
    paxos->config_log_others = false;
    paxos->config_log_ms = now_ms + paxos->conf.again_ms;
    send_to(paxos, event->from, WIRE_CONFIG_LOG, 0)->epoch = paxos->number;
    return ERR_OK;
}

/* The newest configuration that its sender knew. */
static uint64_t known_to(const struct paxos *paxos, const struct paxos_message *m)
{
    if (m->type == WIRE_DECIDED) /* it is good only after ours, whoever tells of it */
        return paxos->number;
    return m->type == WIRE_CONFIG_LOG || m->epoch == 0 ? m->epoch : m->epoch - 1;
}

static enum err message(struct paxos *paxos, const struct paxos_event *event, uint64_t now_ms)
{
    const struct paxos_message *m = event->message;
    uint64_t known = known_to(paxos, m);
    size_t type = (size_t)m->type - WIRE_PREPARE;
    if (known < paxos->number) {
        struct paxos_action *action = order(paxos, PAXOS_DO_CONFIG_LOG);
        action->to = event->from;
        action->epoch = known;
        action->asked = m->type == WIRE_CONFIG_LOG;
        return ERR_OK;
    }
    if (known > paxos->number && m->type != WIRE_CONFIG_LOG) {
        struct paxos_event newer = {.from = event->from, .epoch = known};
        return heard(paxos, &newer, now_ms);
    }
    if (paxos->state == PAXOS_DECIDED || type >= sizeof message_handlers / sizeof message_handlers[0])
        return ERR_OK; /* a CONFIG_LOG of who knows as much, among others */
    return message_handlers[type](paxos, event, now_ms);
}

static bool asked(const struct paxos *paxos, uint32_t id)
{
    bool found = voters_has(&paxos->voters, id);
    for (uint32_t i = 0; i < paxos->asked_count; i++)
        found = found || paxos->asked[i] == id;
    return found;
}

/* As the handlers have it, without what they do. */
bool paxos_matters(const struct paxos *paxos, uint32_t from, const struct paxos_message *m, uint64_t now_ms)
{
    bool composes = paxos->state == PAXOS_PREPARING || paxos->state == PAXOS_COMPOSING;
    if (paxos->state == PAXOS_DECIDED || known_to(paxos, m) != paxos->number)
        return false;
    switch (m->type) {
    case WIRE_DECIDED: return m->bytes_count > 0;
    case WIRE_PROMISE: return composes && m->ballot == paxos->ballot && asked(paxos, from);
    case WIRE_ACCEPTED:
        return paxos->state == PAXOS_ACCEPTING && m->ballot == paxos->ballot && voters_has(&paxos->voters, from) &&
               !voters_has_accepted(&paxos->voters, from) && digest_equal(&m->digest, &paxos->proposal_digest);
    case WIRE_ACCEPT:
        return paxos->may_vote && paxos_ballot_id(m->ballot) == from && voters_has(&paxos->voters, from) &&
               m->ballot >= paxos->vote.promised && m->ballot != paxos->vote.accepted &&
               (from == paxos->conf.self || !ballots_deaf(&paxos->others, from, now_ms));
    default: return true;
    }
}

static enum err saved(struct paxos *paxos, const struct paxos_event *event, uint64_t now_ms)
{
    if (event->number > paxos->saved && event->number <= paxos->save)
        paxos->saved = event->number;
    if (paxos->state == PAXOS_DECIDED)
        return ERR_OK;
    if (paxos->state == PAXOS_CLAIMING && paxos->saved >= paxos->claimed) {
        paxos->state = PAXOS_PREPARING;
        ask(paxos, now_ms);
    }
    if (paxos->recovered > 0 && paxos->saved >= paxos->recovered) {
        paxos->recovered = 0;
        paxos->may_vote = true;
        order(paxos, PAXOS_DO_VOTE);
    }
    answer(paxos);
    return ERR_OK;
}

/* Whether there is to be another epoch: a seal has to come to an end. */
static bool goes_on(const struct paxos *paxos)
{
    return paxos->recovering || (paxos->may_vote && (paxos->wanted || paxos->vote.promised != 0));
}

/* Nobody wants the ballot any more, and nobody that we know of is sealed by it. */
static void let_go(struct paxos *paxos)
{
    if (paxos->state == PAXOS_PREPARING && !goes_on(paxos) && voters_promised(&paxos->voters) == 0)
        paxos->state = PAXOS_IDLE;
}

static void take_turn(struct paxos *paxos, uint64_t now_ms)
{
    bool due = goes_on(paxos);
    paxos->due_set = paxos->due_set && due;
    if (!due || paxos->state != PAXOS_IDLE)
        return;
    if (!paxos->due_set) {
        paxos->due_set = true;
        paxos->due_ms = now_ms + our_turn(paxos);
        /* By the ballot of somebody who is at work. */
        if (paxos->vote.promised != 0 && !goes_before(paxos, paxos_ballot_id(paxos->vote.promised)))
            paxos->due_ms += 2 * paxos->conf.turn_ms;
    }
    if (now_ms >= paxos->due_ms)
        claim(paxos);
}

/* Those who have not refused may not be there: a ballot that is refused comes to an end all the same. */
static bool given_up(const struct paxos *paxos, uint64_t now_ms)
{
    uint64_t turns = paxos->state == PAXOS_COMPOSING ? REFUSED_COMPOSING_TURNS : REFUSED_TURNS;
    return proposing(paxos) && paxos->refused_ms != 0 && now_ms >= paxos->refused_ms + turns * paxos->conf.turn_ms;
}

static enum err tick(struct paxos *paxos, const struct paxos_event *event, uint64_t now_ms)
{
    (void)event;
    if (given_up(paxos, now_ms))
        back_off(paxos, now_ms);
    let_go(paxos);
    if (proposing(paxos) && now_ms >= paxos->again_ms) {
        ask(paxos, now_ms);
        if (paxos->state == PAXOS_COMPOSING)
            take_in(paxos);
    }
    take_turn(paxos, now_ms);
    return ERR_OK;
}

static enum err want(struct paxos *paxos, const struct paxos_event *event, uint64_t now_ms)
{
    paxos->wanted = event->flag;
    paxos->left_out = event->number;
    take_turn(paxos, now_ms);
    return ERR_OK;
}

static enum err up(struct paxos *paxos, const struct paxos_event *event, uint64_t now_ms)
{
    (void)now_ms;
    struct voter *voter = voter_of(paxos, event->from);
    if (voter != NULL)
        voter->up = event->flag;
    return ERR_OK;
}

/* Power was lost everywhere: what we may have forgotten is what the voters, all of them, know together. */
static enum err recover(struct paxos *paxos, const struct paxos_event *event, uint64_t now_ms)
{
    (void)event;
    if (paxos->may_vote || paxos->behind || paxos->recovered > 0 || paxos->state != PAXOS_IDLE ||
        voter_of(paxos, paxos->conf.self) == NULL)
        return ERR_OK;
    paxos->recovering = true;
    take_turn(paxos, now_ms);
    return ERR_OK;
}

/* From now on we are a voter that has promised our ballot and accepted what the others had: durably, then we vote. */
static enum err recovered(struct paxos *paxos, const struct paxos_event *event, uint64_t now_ms)
{
    (void)event;
    (void)now_ms;
    if (!paxos->recovering || paxos->state != PAXOS_COMPOSING)
        return ERR_OK;
    if (paxos->best > paxos->vote.accepted) {
        TRY(kept_set(&paxos->accepted, paxos->proposal.bytes, paxos->proposal.count));
        paxos->vote.accepted = paxos->best;
        paxos->vote.digest = paxos->proposal_digest;
    }
    if (paxos->ballot > paxos->vote.promised)
        paxos->vote.promised = paxos->ballot;
    paxos->recovering = false;
    paxos->state = PAXOS_IDLE;
    save(paxos);
    paxos->recovered = paxos->save;
    return ERR_OK;
}

static handler *const handlers[PAXOS_EVENTS] = {
    [PAXOS_EV_TICK] = tick,       [PAXOS_EV_MESSAGE] = message,
    [PAXOS_EV_SAVED] = saved,     [PAXOS_EV_WANT] = want,
    [PAXOS_EV_UP] = up,           [PAXOS_EV_HEARD] = heard,
    [PAXOS_EV_RECOVER] = recover, [PAXOS_EV_RECOVERED] = recovered,
};

enum err paxos_step(struct paxos *paxos, const struct paxos_event *event, uint64_t now_ms)
{
    paxos->actions_count = paxos->actions_next = 0;
    return handlers[event->type](paxos, event, now_ms);
}

bool paxos_action(struct paxos *paxos, struct paxos_action *action)
{
    if (paxos->actions_next == paxos->actions_count)
        return false;
    *action = paxos->actions[paxos->actions_next++];
    return true;
}

/* ---- life ---- */

enum err paxos_new(const struct paxos_conf *conf, struct paxos **out)
{
    TRY(mem_new(1, sizeof **out, "epoch", out));
    (*out)->conf = *conf;
    (*out)->rng = env_rng_init(conf->seed, conf->self);
    (*out)->others.turn_ms = conf->turn_ms;
    (*out)->state = PAXOS_DECIDED; /* until paxos_begin() */
    return ERR_OK;
}

void paxos_free(struct paxos *paxos)
{
    if (paxos == NULL)
        return;
    kept_drop(&paxos->accepted);
    kept_drop(&paxos->proposal);
    kept_drop(&paxos->draft);
    mem_free(paxos);
}

enum err paxos_begin(struct paxos *paxos, uint64_t number, const uint32_t *voters, uint32_t voters_count, bool may_vote,
                     const struct paxos_vote *vote, uint64_t now_ms)
{
    (void)now_ms; /* turns are counted from the first tick */
    if (voters_count > PAXOS_VOTERS_MAX)
        return err_set(ERR_ARG, "%u voters; at most %d can decide an epoch", voters_count, PAXOS_VOTERS_MAX);
    bool ours = vote != NULL && vote->epoch == number;
    TRY(kept_set(&paxos->accepted, ours ? vote->bytes : NULL, ours ? vote->bytes_count : 0));
    kept_drop(&paxos->proposal);
    kept_drop(&paxos->draft);
    paxos->actions_count = paxos->actions_next = 0;
    voters_set(&paxos->voters, voters, voters_count);
    paxos->number = number;
    paxos->state = PAXOS_IDLE;
    paxos->behind = vote != NULL && vote->epoch > number;
    paxos->may_vote = may_vote && !paxos->behind && voter_of(paxos, paxos->conf.self) != NULL;
    paxos->vote = ours ? *vote : (struct paxos_vote){.epoch = number};
    paxos->vote.bytes = paxos->accepted.bytes;
    paxos->saved = paxos->save; /* what was on its way to disk is void, and numbers are not used again */
    paxos->owe_promise = paxos->owe_accepted = false;
    uint64_t seen = paxos->vote.promised > paxos->vote.own ? paxos->vote.promised : paxos->vote.own;
    paxos->seen = seen;
    paxos->ballot = paxos->best = paxos->config_log_ms = paxos->config_log_from = 0;
    paxos->config_log_others = false;
    paxos->asked_count = paxos->failures = 0;
    paxos->wanted = paxos->due_set = paxos->recovering = false;
    paxos->left_out = 0;
    paxos->recovered = 0;
    ballots_begin(&paxos->others, voters, voters_count);
    return ERR_OK;
}

enum err paxos_draft(struct paxos *paxos, const uint8_t *bytes, size_t bytes_count, const uint32_t *asked,
                     uint32_t asked_count, uint64_t now_ms)
{
    paxos->actions_count = paxos->actions_next = 0;
    if (paxos->state != PAXOS_COMPOSING || paxos->recovering)
        return ERR_OK;
    bool same =
        bytes_count == paxos->draft.count && (bytes_count == 0 || memcmp(bytes, paxos->draft.bytes, bytes_count) == 0);
    if (!same)
        TRY(kept_set(&paxos->draft, bytes, bytes_count));
    paxos->asked_count = asked_count < PAXOS_ASKED_MAX ? asked_count : PAXOS_ASKED_MAX;
    memcpy(paxos->asked, asked, paxos->asked_count * sizeof asked[0]);
    if (!same)
        ask(paxos, now_ms);
    return ERR_OK;
}

enum err paxos_propose(struct paxos *paxos, const uint8_t *bytes, size_t bytes_count, const struct digest *digest,
                       uint64_t now_ms)
{
    paxos->actions_count = paxos->actions_next = 0;
    if (paxos->state != PAXOS_COMPOSING || paxos->recovering)
        return ERR_OK;
    TRY(kept_set(&paxos->proposal, bytes, bytes_count));
    paxos->proposal_digest = *digest;
    accept_asked(paxos, now_ms);
    return ERR_OK;
}

enum paxos_state paxos_state(const struct paxos *paxos)
{
    return paxos->state;
}

uint64_t paxos_ballot(const struct paxos *paxos)
{
    return paxos->ballot;
}

bool paxos_promised(const struct paxos *paxos, uint32_t id)
{
    return voters_has_promised(&paxos->voters, id);
}

bool paxos_sealed(const struct paxos *paxos)
{
    return paxos->vote.promised != 0;
}
