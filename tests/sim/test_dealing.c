/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dealing of data (common/deal.h) among islands that join, are lost, cut off, restarted, late and of unequal
 * batches and speeds: every window that is drawn is counted. No window of a pass is drawn twice but from one's own
 * reserve, or where the work was lost with a trainer and was never contributed. What nobody draws is reported.
 *
 * Epochs are a model here: results, seals, acknowledgements and configurations by the rules of docs/PROTOCOL.md, 9,
 * without messages (tests/sim/test_epochs holds the shipped membership against those rules). What is dealt, and when,
 * is the shipped code. Worlds that break one of the rules that deal.c rests on are run as well: the count has to see
 * it.
 *
 * A failure prints the seed; TEST_SEED=n repeats it; TEST_SEEDS, TEST_SEED_FIRST, TEST_FILTER and TEST_MIX as in
 * test_sync.c.
 */
#include "tests/lib/testlib.h"

#include <stdlib.h>
#include <string.h>

#include "common/deal.h"
#include "common/mem.h"

enum {
    MEMBERS = 40, /* more than have a piece of the reserve's first half */
    FRAGMENTS = 3,
    EPOCHS = 200,
    VERSIONS = 600,
    RESULTS = 2 * FRAGMENTS * VERSIONS,
    PASSES = 1 << 16,
    TICKS = 600,
    DEPTH_MAX = 24, /* steps drawn ahead */
    JUDGED_MIN = 200,
    NONE = -1,
};

/* Rules left out, for the worlds that have to break. */
enum fault {
    FAULT_NONE,
    FAULT_JUDGED_AT_USE,     /* how far one may draw is looked at when a window is trained on */
    FAULT_STATE_COUNTS,      /* the step of a state that was taken over counts */
    FAULT_OWN_CLAIM,         /* the counted step is the proposer's own */
    FAULT_CHECKPOINT_ALONE,  /* a trainer goes on after its checkpoint, whatever it has contributed */
    FAULT_COUNTED_BEFORE_ADD /* a member counts results of an epoch before it adds its list */
};

struct result {
    uint32_t fragment;
    int belongs;   /* the epoch that made it, or carries it now */
    int committed; /* the epoch in which it was first applied; NONE: nowhere */
    uint64_t version, step;
    uint64_t acks; /* members that held it, unsealed, in epoch `belongs` */
};

struct epoch {
    struct deal_list list;
    struct deal_share shares[MEMBERS];
    uint64_t voters; /* mask */
    uint64_t starts[FRAGMENTS];
    int carried[FRAGMENTS]; /* result; NONE */
};

struct member {
    bool enrolled, up, training, sealed, own_corpus, old_disk;
    uint32_t group;
    int epoch; /* newest that it knows; NONE: it has just joined */
    struct deal deal;
    uint64_t version[FRAGMENTS], state_step[FRAGMENTS];
    int held[FRAGMENTS];         /* of version + 1 */
    uint64_t made[FRAGMENTS];    /* version that it made in its epoch */
    uint64_t offered[FRAGMENTS]; /* the last step that it contributed at */
    /* its trainer */
    uint64_t step, checkpoint, sent, drawn; /* drawn: ahead, up to this step */
    uint32_t units, says, depth, speed;     /* says: of its units; speed: steps in 100 ticks */
    int listed;                             /* newest epoch whose list was added */
    int since;                              /* first one */
    int drawn_in[DEPTH_MAX + 1];            /* FAULT_JUDGED_AT_USE: by step, the epoch in which it was drawn */
};

struct taken {
    uint8_t id; /* + 1; 0: nobody */
    bool dealt;
    uint16_t step, unit;
};

static struct {
    struct env_rng rng;
    uint64_t seed, interval, windows;
    uint32_t fragments;
    uint32_t quick, gossip, trouble; /* chances in 100: a move of a round, hearing of a configuration, trouble */
    uint32_t members;
    enum fault fault;
    bool calm;
    struct member member[MEMBERS];
    struct epoch epoch[EPOCHS];
    int newest;
    bool pending;
    uint64_t decide_at, now;
    uint64_t deciders;
    struct result result[RESULTS];
    int results;
    int applied[FRAGMENTS][VERSIONS];
    struct taken *pass[PASSES];
    uint64_t dealt_end; /* beyond all positions that were dealt */
    uint64_t violations, dealt, reserve, repeated, again, again_old_disk, lists, states, joins, losses;
    char first[256]; /* the first violation */
} w;

static struct {
    uint64_t worlds, dealt, reserve, repeated, again, again_old_disk, lists, states, joins, losses, holes, places,
        broken;
} sum;

static uint64_t below(uint64_t bound)
{
    return env_rng_below(&w.rng, bound);
}

static bool chance(uint64_t in_1000)
{
    return below(1000) < in_1000;
}

static bool quick(void)
{
    return below(100) < w.quick;
}

static uint64_t bit(uint32_t i)
{
    return (uint64_t)1 << i;
}

static uint32_t bits_of(uint64_t mask)
{
    return (uint32_t)__builtin_popcountll(mask);
}

static bool majority(uint64_t of, uint64_t voters)
{
    return bits_of(of & voters) * 2 > bits_of(voters);
}

static bool hear(uint32_t a, uint32_t b)
{
    return w.member[a].up && w.member[b].up && w.member[a].group == w.member[b].group;
}

/* ---- what is drawn ---- */

static void violated(const char *what, uint32_t id, const struct deal_window *window, uint64_t step,
                     const struct taken *before)
{
    if (w.violations++ == 0)
        snprintf(w.first, sizeof w.first,
                 "%s: window %llu of pass %llu, by %u for step %llu; before by %u for step %u, at tick %llu", what,
                 (unsigned long long)window->index, (unsigned long long)window->pass, id, (unsigned long long)step,
                 before->id - 1U, before->step, (unsigned long long)w.now);
}

static struct taken *slot_of(const struct deal_window *window)
{
    assert_true(window->pass < PASSES && window->index < w.windows);
    if (w.pass[window->pass] == NULL)
        assert_ok(mem_new(w.windows, sizeof **w.pass, "a pass", &w.pass[window->pass]));
    return &w.pass[window->pass][window->index];
}

static void count(uint32_t id, uint64_t step, uint32_t unit, const struct deal_place *place)
{
    const struct member *m = &w.member[id];
    struct deal_window window = deal_window(place, w.windows);
    struct taken *taken = slot_of(&window), now = {(uint8_t)(id + 1), place->dealt, (uint16_t)step, (uint16_t)unit};
    if (place->dealt && w.dealt_end <= place->position)
        w.dealt_end = place->position + 1;
    w.dealt += place->dealt;
    w.reserve += !place->dealt;
    if (window.shared)
        violated("a reserve of nobody", id, &window, step, taken);
    else if (taken->id != 0 && taken->id != now.id)
        violated("drawn by two", id, &window, step, taken);
    else if (taken->id != 0 && taken->dealt != now.dealt)
        violated("of the reserve and dealt", id, &window, step, taken);
    else if (taken->id != 0 && !now.dealt)
        w.repeated++;
    else if (taken->id != 0 && (taken->step != now.step || taken->unit != now.unit))
        violated("dealt twice to one", id, &window, step, taken);
    else if (taken->id != 0 && m->old_disk)
        w.again_old_disk++;
    else if (taken->id != 0 && step <= m->sent)
        violated("contributed, and drawn again", id, &window, step, taken);
    else if (taken->id != 0)
        w.again++;
    *taken = now;
}

/* The place by the lists that the member knew in an epoch, however far ahead the step is. */
static struct deal_place unjudged(uint32_t id, int epoch, uint64_t step, uint32_t unit)
{
    struct member *m = &w.member[id];
    struct deal deal = deal_of(id, UINT32_MAX);
    for (int e = m->since; e <= epoch; e++)
        assert_ok(deal_add(&deal, &w.epoch[e].list));
    return deal_place(&deal, step, unit, m->units);
}

static void draw_step(uint32_t id, uint64_t step, int epoch)
{
    struct member *m = &w.member[id];
    for (uint32_t unit = 0; !m->own_corpus && unit < m->units; unit++) {
        struct deal_place place = deal_place(&m->deal, step, unit, m->units);
        if (epoch != NONE && step <= deal_last_step(&m->deal))
            place = unjudged(id, epoch, step, unit);
        count(id, step, unit, &place);
    }
}

/* A data loader: it draws the windows of some steps ahead, each judged now. */
static void draw(uint32_t id)
{
    struct member *m = &w.member[id];
    if (m->drawn < m->step)
        m->drawn = m->step;
    for (; m->drawn < m->step + 1 + m->depth; m->drawn++) {
        m->drawn_in[(m->drawn + 1) % (DEPTH_MAX + 1)] = m->listed;
        if (w.fault != FAULT_JUDGED_AT_USE)
            draw_step(id, m->drawn + 1, NONE);
    }
    if (w.fault == FAULT_JUDGED_AT_USE)
        draw_step(id, m->step + 1, m->drawn_in[(m->step + 1) % (DEPTH_MAX + 1)]);
}

/* ---- trainers ---- */

static uint64_t furthest(uint32_t id)
{
    uint64_t step = 0;
    for (uint32_t i = 0; i < w.members; i++)
        if (hear(id, i) && w.member[i].training && w.member[i].step > step)
            step = w.member[i].step;
    return step;
}

static void train(uint32_t id)
{
    struct member *m = &w.member[id];
    if (!m->training) {
        if (!m->up || m->epoch == NONE || !chance(100))
            return;
        m->training = true; /* it begins where the run is, or goes on */
        m->step = m->checkpoint;
        if (w.fault != FAULT_CHECKPOINT_ALONE && m->step < m->sent)
            m->step = m->sent;
        for (uint32_t f = 0; m->checkpoint == 0 && f < w.fragments; f++)
            if (m->step < m->state_step[f])
                m->step = m->state_step[f];
        m->drawn = m->step;
        if (chance(200))
            m->units = m->says = 1 + (uint32_t)below(8);
        return;
    }
    if (below(100) >= m->speed)
        return;
    draw(id);
    m->step++;
    if (m->step + 6 * w.interval < furthest(id)) /* pace = run: it leaves steps out */
        m->step = furthest(id);
    if (chance(30))
        m->checkpoint = m->step;
}

/* ---- rounds ---- */

static uint32_t owner_of(const struct epoch *epoch, uint32_t fragment, uint64_t version)
{
    uint64_t left = (fragment + version) % bits_of(epoch->voters);
    uint32_t i = 0;
    for (;; i++)
        if ((epoch->voters & bit(i)) != 0 && left-- == 0)
            return i;
}

/* The last step at which the fragment was due. */
static uint64_t due(uint32_t fragment, uint64_t step)
{
    uint64_t offset = fragment * (w.interval / w.fragments);
    return step > offset ? step - (step - offset) % w.interval : 0;
}

static void acknowledge(uint32_t id, int result)
{
    struct member *m = &w.member[id];
    m->held[w.result[result].fragment] = result;
    if (!m->sealed && w.result[result].belongs == m->epoch)
        w.result[result].acks |= bit(id);
}

static void make(uint32_t id, uint32_t f)
{
    struct member *m = &w.member[id];
    const struct epoch *epoch = &w.epoch[m->epoch];
    uint64_t version = m->version[f] + 1, step = 0;
    if (m->sealed || (epoch->voters & bit(id)) == 0 || owner_of(epoch, f, version) != id || m->made[f] >= version ||
        m->held[f] != NONE || (epoch->carried[f] != NONE && w.result[epoch->carried[f]].version == version) ||
        version <= epoch->starts[f] || w.results == RESULTS)
        return;
    for (uint32_t i = 0; i < w.members; i++) {
        struct member *by = &w.member[i];
        uint64_t at = due(f, by->step);
        if (!hear(id, i) || !by->training || by->epoch != m->epoch || by->version[f] != m->version[f] ||
            at <= by->offered[f] || chance(300))
            continue;
        by->offered[f] = at;
        by->sent = by->sent < at ? at : by->sent;
        step = step < at ? at : step;
    }
    if (step == 0)
        return;
    m->made[f] = version;
    w.result[w.results] =
        (struct result){.fragment = f, .belongs = m->epoch, .committed = NONE, .version = version, .step = step};
    acknowledge(id, w.results++);
}

static void apply(uint32_t id, int number)
{
    struct member *m = &w.member[id];
    struct result *r = &w.result[number];
    int *applied = &w.applied[r->fragment][r->version];
    assert_true(*applied == NONE || *applied == number); /* or the model of epochs is wrong */
    *applied = number;
    if (r->committed == NONE)
        r->committed = r->belongs;
    m->version[r->fragment]++;
    if (m->state_step[r->fragment] < r->step)
        m->state_step[r->fragment] = r->step;
    m->held[r->fragment] = NONE;
    deal_counted(&m->deal, r->step);
}

/* Another one's result of the next version, held or applied; and what is committed is applied. */
static void receive(uint32_t id, uint32_t f)
{
    struct member *m = &w.member[id];
    int past = w.applied[f][m->version[f] + 1];
    for (uint32_t i = 0; i < w.members && m->held[f] == NONE; i++) {
        const struct member *from = &w.member[i];
        if (i == id || !hear(id, i))
            continue;
        if (past != NONE && from->version[f] > m->version[f] && w.result[past].committed <= m->epoch)
            acknowledge(id, past);
        else if (from->epoch == m->epoch && from->version[f] == m->version[f] && from->held[f] != NONE && quick())
            acknowledge(id, from->held[f]);
    }
    int held = m->held[f];
    if (held == NONE || !quick())
        return;
    const struct result *r = &w.result[held];
    if (past == held ? r->committed <= m->epoch
                     : r->belongs == m->epoch && majority(r->acks, w.epoch[r->belongs].voters))
        apply(id, held);
}

/* A state of somebody who is ahead, at a version that a majority of the voters known here has come to, in whatever
 * epoch they are by now. */
static void take_state(uint32_t id)
{
    struct member *m = &w.member[id];
    for (uint32_t f = 0; f < w.fragments; f++)
        for (uint32_t i = 0; i < w.members; i++) {
            const struct member *from = &w.member[i];
            uint64_t have = 0;
            for (uint32_t k = 0; k < w.members; k++)
                have |= w.member[k].enrolled && w.member[k].version[f] >= from->version[f] ? bit(k) : 0;
            if (!hear(id, i) || from->version[f] < m->version[f] + 2 || !majority(have, w.epoch[m->epoch].voters))
                continue;
            m->version[f] = from->version[f];
            m->state_step[f] = from->state_step[f];
            m->held[f] = NONE;
            w.states++;
            if (w.fault == FAULT_STATE_COUNTS)
                deal_counted(&m->deal, m->state_step[f]);
        }
}

/* ---- epochs ---- */

static void add_lists(struct member *m)
{
    while (m->listed < m->epoch)
        assert_ok(deal_add(&m->deal, &w.epoch[++m->listed].list));
}

static void learn(uint32_t id, int number)
{
    struct member *m = &w.member[id];
    const struct epoch *epoch = &w.epoch[number];
    if (m->epoch == NONE)
        m->since = number, m->listed = number - 1;
    m->epoch = number;
    m->sealed = false;
    if (w.fault != FAULT_COUNTED_BEFORE_ADD)
        add_lists(m);
    for (uint32_t f = 0; f < w.fragments; f++) {
        m->made[f] = 0;
        if (m->held[f] != NONE && m->held[f] != epoch->carried[f] && w.applied[f][m->version[f] + 1] != m->held[f])
            m->held[f] = NONE; /* it counts nowhere */
        if (m->held[f] != NONE)
            acknowledge(id, m->held[f]);
    }
}

static void gossip(uint32_t id)
{
    const struct member *m = &w.member[id];
    for (uint32_t i = 0; i < w.members; i++) {
        const struct member *from = &w.member[i];
        if (!hear(id, i) || from->epoch <= m->epoch || below(100) >= w.gossip)
            continue;
        learn(id, m->epoch == NONE ? from->epoch : m->epoch + 1); /* a newcomer is told the newest alone */
        return;
    }
}

static bool enough_claims(void *user, const struct deal_claim *claims, uint32_t count)
{
    const uint64_t *voters = user;
    uint64_t mask = 0;
    for (uint32_t i = 0; i < count; i++)
        mask |= bit(claims[i].id);
    return majority(mask, *voters);
}

static uint64_t claim_of(const struct member *m)
{
    uint64_t step = 0;
    for (uint32_t f = 0; f < w.fragments; f++) {
        uint64_t held = m->held[f] != NONE ? w.result[m->held[f]].step : 0;
        step = step < m->state_step[f] ? m->state_step[f] : step;
        step = step < held ? held : step;
    }
    return step;
}

static uint64_t counted_step(const struct epoch *before, uint64_t sealed, uint32_t proposer)
{
    struct deal_claim claims[MEMBERS];
    uint32_t claims_count = 0;
    uint64_t voters = before->voters;
    if (w.fault == FAULT_OWN_CLAIM)
        return claim_of(&w.member[proposer]);
    for (uint32_t i = 0; i < w.members; i++)
        if ((sealed & bit(i)) != 0)
            claims[claims_count++] = (struct deal_claim){claim_of(&w.member[i]), i};
    deal_sort(claims, claims_count);
    return deal_counted_step(before->list.counted_step, claims, claims_count, enough_claims, &voters);
}

/* Where the fragment starts, and what is carried, with every reachable voter-to-be brought there (rule 2). False: too
 * few have it. */
static bool rest_on(struct epoch *next, uint64_t sealed, uint32_t proposer, uint32_t f)
{
    uint64_t there = 0;
    next->starts[f] = 0;
    next->carried[f] = NONE;
    for (uint32_t i = 0; i < w.members; i++)
        if ((sealed & bit(i)) != 0 && w.member[i].version[f] > next->starts[f])
            next->starts[f] = w.member[i].version[f];
    for (uint32_t i = 0; i < w.members; i++)
        if ((sealed & bit(i)) != 0 && w.member[i].version[f] == next->starts[f] && w.member[i].held[f] != NONE)
            next->carried[f] = w.member[i].held[f];
    for (uint32_t i = 0; i < w.members; i++) {
        struct member *m = &w.member[i];
        if ((next->voters & bit(i)) == 0 || !hear(proposer, i) || m->epoch != w.newest)
            continue;
        while (m->version[f] < next->starts[f] && w.applied[f][m->version[f] + 1] != NONE &&
               w.result[w.applied[f][m->version[f] + 1]].committed <= w.newest)
            apply(i, w.applied[f][m->version[f] + 1]);
        if (m->version[f] < next->starts[f])
            continue;
        if (next->carried[f] != NONE && m->version[f] == next->starts[f])
            m->held[f] = next->carried[f];
        there |= bit(i);
    }
    return majority(there, next->voters);
}

static uint64_t next_voters(uint64_t voters, uint32_t proposer)
{
    for (uint32_t i = 0; i < w.members; i++) {
        bool votes = (voters & bit(i)) != 0, here = hear(proposer, i) && w.member[i].epoch == w.newest;
        if (votes && !here && bits_of(voters) > 3 && chance(500))
            voters &= ~bit(i);
        if (!votes && here && bits_of(voters) < 5 && !w.member[i].old_disk && chance(500))
            voters |= bit(i);
    }
    return voters;
}

static void deal_to(struct epoch *next, uint32_t proposer)
{
    next->list.shares = next->shares;
    next->list.count = 0;
    for (uint32_t i = 0; i < w.members; i++) {
        const struct member *m = &w.member[i];
        if (m->enrolled && !m->own_corpus && (hear(proposer, i) || chance(200)))
            next->shares[next->list.count++] = (struct deal_share){i, m->says};
    }
    deal_limit(next->shares, next->list.count);
}

static void propose(uint32_t proposer)
{
    struct epoch *before = &w.epoch[w.newest], *next = &w.epoch[w.newest + 1];
    uint64_t sealed = 0;
    for (uint32_t i = 0; i < w.members; i++)
        if ((before->voters & bit(i)) != 0 && w.member[i].epoch == w.newest && hear(proposer, i) &&
            (i == proposer || chance(800))) {
            w.member[i].sealed = true;
            sealed |= bit(i);
        }
    if (!majority(sealed, before->voters))
        return;
    *next = (struct epoch){.voters = next_voters(before->voters, proposer)};
    uint64_t counted = counted_step(before, sealed, proposer);
    for (uint32_t f = 0; f < w.fragments; f++)
        if (!rest_on(next, sealed, proposer, f))
            return;
    deal_to(next, proposer);
    next->list.counted_step = counted;
    next->list.start = before->list.start;
    if (!deal_same(before->shares, before->list.count, next->shares, next->list.count)) {
        next->list.start = deal_start_next(&before->list, counted, 2 * w.interval);
        w.lists++;
    }
    w.pending = true;
    w.decide_at = w.now + below(20);
    w.deciders = bit(proposer) | (sealed & env_rng_u64(&w.rng));
}

static void decide(void)
{
    w.pending = false;
    w.newest++;
    const struct epoch *epoch = &w.epoch[w.newest];
    for (uint32_t f = 0; f < w.fragments; f++) {
        if (epoch->carried[f] == NONE)
            continue;
        struct result *r = &w.result[epoch->carried[f]];
        r->belongs = w.newest;
        r->acks = 0;
        for (uint32_t i = 0; i < w.members; i++)
            if ((epoch->voters & bit(i)) != 0 &&
                (w.member[i].version[f] >= r->version || w.member[i].held[f] == epoch->carried[f]))
                r->acks |= bit(i);
    }
    for (uint32_t i = 0; i < w.members; i++)
        if ((w.deciders & bit(i)) != 0 && w.member[i].epoch == w.newest - 1)
            learn(i, w.newest);
}

static void epochs(void)
{
    if (w.pending && w.now >= w.decide_at)
        decide();
    uint32_t by = (uint32_t)below(w.members);
    const struct member *m = &w.member[by];
    if (!w.pending && w.newest + 1 < EPOCHS && m->up && m->epoch == w.newest &&
        (w.epoch[w.newest].voters & bit(by)) != 0 && (m->sealed || chance(100)))
        propose(by);
}

/* ---- trouble ---- */

static void enrol(uint32_t id)
{
    struct member *m = &w.member[id];
    *m = (struct member){.enrolled = true, .up = true, .epoch = NONE};
    m->units = 1 + (uint32_t)below(8);
    m->says = !w.calm && chance(10) ? m->units * 80 : m->units; /* more than it should */
    m->speed = w.calm ? 90 : 20 + (uint32_t)below(76);
    m->depth = (uint32_t)below(w.calm ? w.interval / 2 : DEPTH_MAX);
    m->own_corpus = chance(50);
    for (uint32_t f = 0; f < FRAGMENTS; f++)
        m->held[f] = NONE;
    m->deal = deal_of(id, 2 * w.interval);
}

/* The folder of one that does not vote, as it was some time ago: all that it has learned since is forgotten. */
static void bring_back_older(uint32_t id)
{
    struct member *m = &w.member[id];
    for (int e = 0; e <= w.newest; e++)
        if ((w.epoch[e].voters & bit(id)) != 0)
            return;
    if (m->epoch < 2 || w.pending)
        return;
    m->deal = deal_of(id, 2 * w.interval);
    m->epoch -= 1 + (int)below(2);
    m->since = m->listed = m->epoch;
    m->old_disk = true;
    m->sent /= 2;
    m->checkpoint /= 2;
    assert_ok(deal_add(&m->deal, &w.epoch[m->epoch].list));
    for (uint32_t f = 0; f < w.fragments; f++) {
        m->version[f] = m->version[f] > 3 ? m->version[f] - 3 : 0;
        m->state_step[f] = w.applied[f][m->version[f]] != NONE ? w.result[w.applied[f][m->version[f]]].step : 0;
        m->held[f] = NONE;
    }
    m->training = false;
}

static void disturb(void)
{
    uint32_t id = (uint32_t)below(w.members);
    struct member *m = &w.member[id];
    if (w.members < MEMBERS && chance(w.members < 6 ? 12 : 4)) {
        enrol(w.members++);
        w.joins++;
    }
    if (w.calm)
        return;
    if (chance(40))
        for (uint32_t i = 0; i < w.members; i++)
            w.member[i].group = 0;
    if (m->up ? chance(2 + w.trouble / 8) : chance(150)) /* the daemon: its trainer goes on, by what it knew */
        m->up = !m->up;
    if (m->up && m->epoch != NONE && chance(100))
        take_state(id);
    if (m->epoch != NONE && chance(100))
        add_lists(m);
    if (below(100) >= w.trouble)
        return;
    if (chance(15))
        for (uint32_t i = 0; i < w.members; i++)
            w.member[i].group = (uint32_t)below(3);
    if (chance(30)) { /* the trainer */
        w.losses += m->training;
        m->training = false;
    }
    if (chance(10)) { /* both, for some time */
        m->up = m->training = false;
        w.losses++;
    }
    if (chance(5))
        bring_back_older(id);
}

/* ---- worlds ---- */

struct mix {
    const char *name;
    enum fault fault;
    bool calm; /* none is lost or cut off, and all are about as fast */
};

static void begin(uint64_t seed, const struct mix *mix)
{
    memset(&w, 0, sizeof w);
    w.rng = env_rng_init(seed, 34);
    w.seed = seed;
    w.fault = mix->fault;
    w.calm = mix->calm;
    w.interval = 4 + below(16);
    w.windows = 4096 + below(8192);
    w.fragments = 1 + (uint32_t)below(FRAGMENTS);
    w.quick = 10 + (uint32_t)below(80);
    w.gossip = chance(300) ? 1 + (uint32_t)below(5) : 10 + (uint32_t)below(80);
    w.trouble = 5 + (uint32_t)below(96);
    if (w.calm)
        w.quick = w.gossip = 80;
    w.members = 1 + (uint32_t)below(5);
    memset(w.applied, 0xff, sizeof w.applied);
    struct epoch *epoch = &w.epoch[0];
    for (uint32_t i = 0; i < w.members; i++) {
        enrol(i);
        epoch->voters |= bit(i);
    }
    for (uint32_t f = 0; f < FRAGMENTS; f++)
        epoch->carried[f] = NONE;
    deal_to(epoch, 0);
    epoch->list.start.step = 1;
    for (uint32_t i = 0; i < w.members; i++)
        learn(i, 0);
}

static void count_holes(void)
{
    uint64_t dealt = w.windows - w.windows / DEAL_RESERVE;
    for (uint32_t p = 0; p < w.dealt_end / dealt; p++) /* those that are over */
        for (uint64_t i = 0; i < dealt; i++) {
            sum.places++;
            sum.holes += w.pass[p] == NULL || w.pass[p][i].id == 0;
        }
}

static void end(void)
{
    count_holes();
    sum.worlds++;
    sum.dealt += w.dealt;
    sum.reserve += w.reserve;
    sum.repeated += w.repeated;
    sum.again += w.again;
    sum.again_old_disk += w.again_old_disk;
    sum.lists += w.lists;
    sum.states += w.states;
    sum.joins += w.joins;
    sum.losses += w.losses;
    sum.broken += w.violations > 0;
    for (uint32_t p = 0; p < PASSES; p++)
        mem_free(w.pass[p]);
}

static void run(uint64_t seed, const struct mix *mix)
{
    begin(seed, mix);
    for (w.now = 0; w.now < TICKS; w.now++) {
        disturb();
        epochs();
        for (uint32_t i = 0; i < w.members; i++) {
            if (w.member[i].up) {
                gossip(i);
                for (uint32_t f = 0; w.member[i].epoch != NONE && f < w.fragments; f++) {
                    make(i, f);
                    receive(i, f);
                }
            }
            train(i);
        }
    }
    end();
    if (mix->fault != FAULT_NONE || w.violations == 0)
        return;
    print_message("seed %llu: %llu windows, the first: %s\n", (unsigned long long)seed,
                  (unsigned long long)w.violations, w.first);
    fail_msg("repeat with TEST_SEED=%llu", (unsigned long long)seed);
}

static void run_mix(unsigned initial, const struct mix *mix)
{
    const char *one = getenv("TEST_SEED"), *from = getenv("TEST_SEED_FIRST"), *only = getenv("TEST_MIX");
    if (only != NULL && strcmp(only, mix->name) != 0) {
        if (strcmp(only, "?") == 0 && mix->fault == FAULT_NONE)
            print_message("mix: %s\n", mix->name);
        return;
    }
    unsigned count = one != NULL ? 1 : testlib_seeds(initial);
    uint64_t first = one != NULL ? strtoull(one, NULL, 10) : from != NULL ? strtoull(from, NULL, 10) : 1;
    memset(&sum, 0, sizeof sum);
    for (unsigned k = 0; k < count; k++)
        run(first + k, mix);
    print_message(
        "%s: %llu worlds, %llu lists, %llu states taken over, %llu joined, %llu lost; %llu windows dealt, %llu "
        "of reserves, %llu of them again; drawn again, as their work was lost: %llu, after an older disk: "
        "%llu; of those dealt in passes that are over nobody drew %.1f %%; worlds with a window of two: %llu\n",
        mix->name, (unsigned long long)sum.worlds, (unsigned long long)sum.lists, (unsigned long long)sum.states,
        (unsigned long long)sum.joins, (unsigned long long)sum.losses, (unsigned long long)sum.dealt,
        (unsigned long long)sum.reserve, (unsigned long long)sum.repeated, (unsigned long long)sum.again,
        (unsigned long long)sum.again_old_disk, sum.places > 0 ? 100.0 * (double)sum.holes / (double)sum.places : 0.0,
        (unsigned long long)sum.broken);
    assert_true(count < JUDGED_MIN || mix->fault != FAULT_NONE || sum.dealt > sum.reserve);
    assert_true(count < JUDGED_MIN || !mix->calm || (sum.reserve * 5 < sum.dealt && sum.holes * 10 < sum.places));
    assert_true(count < JUDGED_MIN || !mix->calm || sum.repeated * 5 < sum.reserve * 3);
    assert_true(count < JUDGED_MIN || (mix->fault == FAULT_NONE) == (sum.broken == 0));
}

static void no_window_is_drawn_twice(void **state)
{
    (void)state;
    run_mix(3000, &(struct mix){"dealing", FAULT_NONE, false});
}

/* Nor is much left out, where there is no reason for it. */
static void nearly_all_are_drawn_in_calm(void **state)
{
    (void)state;
    run_mix(600, &(struct mix){"dealing, calm", FAULT_NONE, true});
}

/* Each of the rules is needed, and the count sees that. */
static void without_a_rule_some_are(void **state)
{
    (void)state;
    run_mix(400, &(struct mix){"dealing, judged at use", FAULT_JUDGED_AT_USE, false});
    run_mix(400, &(struct mix){"dealing, states count", FAULT_STATE_COUNTS, false});
    run_mix(400, &(struct mix){"dealing, a proposer's own step", FAULT_OWN_CLAIM, false});
    run_mix(400, &(struct mix){"dealing, checkpoints alone", FAULT_CHECKPOINT_ALONE, false});
    run_mix(400, &(struct mix){"dealing, counted before added", FAULT_COUNTED_BEFORE_ADD, false});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_window_is_drawn_twice),
        cmocka_unit_test(nearly_all_are_drawn_in_calm),
        cmocka_unit_test(without_a_rule_some_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
