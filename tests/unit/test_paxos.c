/* SPDX-License-Identifier: Apache-2.0 */
/* paxos: seal and vote, one island's table against what others may say: the shortest runs that break the rules. */
#include "tests/lib/testlib.h"

#include <string.h>

#include "common/mem.h"
#include "net/membership/paxos.h"

enum { A = 1, B = 2, C = 3, TURN = 100, AGAIN = 50 };

static const uint32_t three[] = {A, B, C};
static struct paxos *paxos;
static struct paxos_action done[512];
static uint32_t done_count;
static uint64_t now_ms;

static uint64_t ballot(uint64_t counter, uint32_t id)
{
    return counter << 32 | id;
}

static struct digest digest_of_text(const char *text)
{
    return digest_of(text, strlen(text));
}

static void drain(void)
{
    done_count = 0;
    while (paxos_action(paxos, &done[done_count]))
        done_count++;
}

static void step(struct paxos_event event)
{
    assert_ok(paxos_step(paxos, &event, now_ms));
    drain();
}

static void begin(uint32_t self, bool may_vote, const struct paxos_vote *vote)
{
    struct paxos_conf conf = {.self = self, .seed = 7, .turn_ms = TURN, .again_ms = AGAIN};
    now_ms = 1000;
    paxos_free(paxos);
    assert_ok(paxos_new(&conf, &paxos));
    assert_ok(paxos_begin(paxos, 5, three, 3, may_vote, vote, now_ms));
    for (uint32_t i = 0; i < 3; i++)
        step((struct paxos_event){.type = PAXOS_EV_UP, .from = three[i], .flag = true});
}

static const struct paxos_action *did(enum paxos_action_type type)
{
    for (uint32_t i = 0; i < done_count; i++)
        if (done[i].type == type)
            return &done[i];
    return NULL;
}

/* A PROMISE that is no seal. */
enum { HOLDINGS = WIRE_EVIDENCE + 1 };

static bool is(const struct paxos_action *action, unsigned type)
{
    const struct paxos_message *m = &action->message;
    bool seal = m->type == WIRE_PROMISE && m->sealed;
    return action->type == PAXOS_DO_SEND &&
           (type == HOLDINGS ? m->type == WIRE_PROMISE && !seal : m->type == type && seal == (type == WIRE_PROMISE));
}

static const struct paxos_action *said(unsigned type)
{
    for (uint32_t i = 0; i < done_count; i++)
        if (is(&done[i], type))
            return &done[i];
    return NULL;
}

static uint32_t times_said(unsigned type)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < done_count; i++)
        count += is(&done[i], type);
    return count;
}

static void hear(uint32_t from, unsigned type, uint64_t in, const char *config, uint64_t accepted, bool good)
{
    struct paxos_message m = {.type = type == HOLDINGS ? WIRE_PROMISE : type,
                              .epoch = 6,
                              .ballot = in,
                              .accepted = accepted,
                              .sealed = type == WIRE_PROMISE};
    if (config != NULL) {
        m.digest = digest_of_text(config);
        m.bytes = (const uint8_t *)config;
        m.bytes_count = type == WIRE_ACCEPTED ? 0 : strlen(config);
    }
    step((struct paxos_event){.type = PAXOS_EV_MESSAGE, .from = from, .good = good, .message = &m});
}

/* Makes durable what was ordered last, and says so. */
static struct paxos_vote saved(void)
{
    const struct paxos_action *save = did(PAXOS_DO_SAVE);
    assert_non_null(save);
    static uint8_t disk[16];
    struct paxos_vote vote = save->vote;
    if (vote.bytes_count > 0)
        memcpy(disk, vote.bytes, vote.bytes_count);
    vote.bytes = disk;
    step((struct paxos_event){.type = PAXOS_EV_SAVED, .number = save->number});
    return vote;
}

/* We propose: the ballot, saved and said. */
static uint64_t propose_now(void)
{
    step((struct paxos_event){.type = PAXOS_EV_WANT, .flag = true});
    saved();
    assert_int_equal(paxos_state(paxos), PAXOS_PREPARING);
    return paxos_ballot(paxos);
}

static void next_config_with(uint64_t in)
{
    hear(A, WIRE_PROMISE, in, NULL, 0, true);
    assert_null(did(PAXOS_DO_COMPOSE));
    hear(B, WIRE_PROMISE, in, NULL, 0, true);
    assert_non_null(did(PAXOS_DO_COMPOSE));
}

static void propose(const char *config)
{
    struct digest digest = digest_of_text(config);
    assert_ok(paxos_propose(paxos, (const uint8_t *)config, strlen(config), &digest, now_ms));
    drain();
}

static void a_seal_is_said_when_it_is_durable(void **state)
{
    (void)state;
    begin(B, true, NULL);
    assert_false(paxos_sealed(paxos));
    hear(A, WIRE_PREPARE, ballot(1, A), NULL, 0, true);
    assert_null(said(WIRE_PROMISE));
    assert_true(paxos_sealed(paxos)); /* from now on nothing is made that the seal would not show */
    struct paxos_vote vote = saved();
    assert_int_equal(vote.promised, ballot(1, A));
    assert_int_equal(said(WIRE_PROMISE)->to, A);
    hear(A, WIRE_PREPARE, ballot(1, A), NULL, 0, true); /* again: what it holds may be more now */
    assert_non_null(said(WIRE_PROMISE));
    assert_null(did(PAXOS_DO_SAVE));
    begin(B, true, &vote); /* killed, and back */
    assert_true(paxos_sealed(paxos));
    assert_ok(paxos_begin(paxos, 6, three, 3, true, NULL, now_ms)); /* the next configuration is known */
    assert_false(paxos_sealed(paxos));
}

static void a_seal_is_for_the_highest_ballot(void **state)
{
    (void)state;
    begin(B, true, NULL);
    hear(A, WIRE_PREPARE, ballot(1, A), NULL, 0, true);
    hear(C, WIRE_PREPARE, ballot(1, C), NULL, 0, true); /* while the first is on its way to disk */
    saved();
    assert_int_equal(times_said(WIRE_PROMISE), 1);
    assert_int_equal(said(WIRE_PROMISE)->to, C);
    hear(A, WIRE_PREPARE, ballot(1, A), "draft", 0, true);
    assert_int_equal(said(WIRE_REJECT)->message.ballot, ballot(1, C));
    assert_null(did(PAXOS_DO_FETCH));
}

static void nothing_is_accepted_below_a_promise(void **state)
{
    (void)state;
    begin(B, true, NULL);
    hear(C, WIRE_PREPARE, ballot(2, C), NULL, 0, true);
    saved();
    hear(A, WIRE_ACCEPT, ballot(1, A), "x", 0, true);
    assert_null(did(PAXOS_DO_SAVE));
    assert_int_equal(said(WIRE_REJECT)->message.ballot, ballot(2, C));
}

static void one_configuration_is_accepted_in_a_ballot(void **state)
{
    (void)state;
    begin(B, true, NULL);
    hear(A, WIRE_ACCEPT, ballot(1, A), "x", 0, true);
    assert_null(said(WIRE_ACCEPTED)); /* not before it is durable */
    assert_true(paxos_sealed(paxos)); /* to accept is to be sealed */
    struct paxos_vote vote = saved();
    assert_int_equal(vote.accepted, ballot(1, A));
    assert_int_equal(said(WIRE_ACCEPTED)->message.ballot, ballot(1, A));
    hear(A, WIRE_ACCEPT, ballot(1, A), "y", 0, true);
    assert_int_equal(done_count, 0);
    hear(A, WIRE_ACCEPT, ballot(1, A), "x", 0, true); /* its answer was lost */
    assert_non_null(said(WIRE_ACCEPTED));
    hear(C, WIRE_ACCEPT, ballot(1, C), "z", 0, false); /* it does not follow our configuration */
    assert_int_equal(done_count, 0);
    hear(C, WIRE_ACCEPT, ballot(3, A), "z", 0, true); /* the ballot is another's */
    assert_int_equal(done_count, 0);
    hear(9, WIRE_ACCEPT, ballot(3, 9), "z", 0, true); /* no voter */
    assert_int_equal(done_count, 0);
}

static void a_promise_names_what_was_accepted(void **state)
{
    (void)state;
    begin(B, true, NULL);
    hear(A, WIRE_ACCEPT, ballot(1, A), "x", 0, true);
    struct paxos_vote vote = saved();
    begin(B, true, &vote);
    hear(C, WIRE_PREPARE, ballot(2, C), NULL, 0, true);
    saved();
    const struct paxos_message *m = &said(WIRE_PROMISE)->message;
    assert_int_equal(m->accepted, ballot(1, A));
    assert_memory_equal(m->bytes, "x", 1);
}

static void an_accepted_configuration_is_proposed_as_it_is(void **state)
{
    (void)state;
    begin(A, true, NULL);
    uint64_t in = propose_now();
    hear(A, WIRE_PROMISE, in, NULL, 0, true);
    hear(C, WIRE_PROMISE, in, "z", ballot(1, C) > in ? in : ballot(1, C), false); /* no configuration at all */
    assert_int_equal(paxos_state(paxos), PAXOS_PREPARING);
    hear(B, WIRE_PROMISE, in, "x", 7, true);
    assert_int_equal(paxos_state(paxos), PAXOS_ACCEPTING);
    assert_null(did(PAXOS_DO_COMPOSE));
    assert_memory_equal(said(WIRE_ACCEPT)->message.bytes, "x", 1);
    assert_int_equal(times_said(WIRE_ACCEPT), 3);
}

static void the_highest_of_the_accepted_configurations_is_taken(void **state)
{
    (void)state;
    static const uint32_t five[] = {1, 2, 3, 4, 5};
    begin(A, true, NULL);
    assert_ok(paxos_begin(paxos, 5, five, 5, true, NULL, now_ms));
    uint64_t in = propose_now();
    hear(2, WIRE_PROMISE, in, "x", 7, true);
    hear(3, WIRE_PROMISE, in, "y", 9, true);
    hear(4, WIRE_PROMISE, in, "z", 8, true);
    assert_memory_equal(said(WIRE_ACCEPT)->message.bytes, "y", 1);
}

static void a_ballot_is_durable_before_it_is_said_and_never_used_twice(void **state)
{
    (void)state;
    begin(A, true, NULL);
    step((struct paxos_event){.type = PAXOS_EV_WANT, .flag = true});
    assert_int_equal(paxos_state(paxos), PAXOS_CLAIMING);
    assert_null(said(WIRE_PREPARE));
    struct paxos_vote vote = saved();
    uint64_t first = paxos_ballot(paxos);
    assert_int_equal(times_said(WIRE_PREPARE), 2);
    begin(A, true, &vote); /* killed before its own seal */
    assert_true(propose_now() > first);
}

/* A, which nobody answers, or which no longer wants a change before anybody answers, makes and acknowledges as ever. */
static void who_proposes_promises_last(void **state)
{
    (void)state;
    begin(A, true, NULL);
    uint64_t in = propose_now();
    assert_int_equal(times_said(WIRE_PREPARE), 2); /* to the others */
    now_ms += AGAIN;
    step((struct paxos_event){.type = PAXOS_EV_TICK});
    assert_int_equal(times_said(WIRE_PREPARE), 2);
    assert_false(paxos_sealed(paxos));
    hear(C, WIRE_PROMISE, in, NULL, 0, true);
    assert_int_equal(times_said(WIRE_PREPARE), 1);
    assert_int_equal(said(WIRE_PREPARE)->to, A); /* with ours it is a majority */
    hear(A, WIRE_PREPARE, in, NULL, 0, true);
    assert_true(paxos_sealed(paxos));

    begin(A, true, NULL);
    in = propose_now();
    step((struct paxos_event){.type = PAXOS_EV_WANT, .flag = false});
    hear(C, WIRE_PROMISE, in, NULL, 0, true);
    step((struct paxos_event){.type = PAXOS_EV_TICK});
    assert_int_equal(paxos_state(paxos), PAXOS_PREPARING); /* C is sealed, and would be for nothing */

    begin(A, true, NULL);
    propose_now();
    step((struct paxos_event){.type = PAXOS_EV_WANT, .flag = false});
    step((struct paxos_event){.type = PAXOS_EV_TICK});
    assert_int_equal(paxos_state(paxos), PAXOS_IDLE);
    step((struct paxos_event){.type = PAXOS_EV_WANT, .flag = true}); /* and it may want another one */
    assert_int_equal(paxos_state(paxos), PAXOS_CLAIMING);
}

/* Of C: whether it proposes now, where so many configurations left out what waits. */
static bool proposes(uint64_t left_out)
{
    step((struct paxos_event){.type = PAXOS_EV_WANT, .flag = true, .number = left_out});
    return paxos_state(paxos) == PAXOS_CLAIMING;
}

/* A makes each configuration, and leaves out what waits: turns begin with B, with C, and with A again, as the epoch
 * says. Who is before A waits neither for its ballot, which is at work, nor because it has promised. */
static void where_what_waits_is_left_out_turns_begin_with_another(void **state)
{
    (void)state;
    static const struct {
        uint64_t epoch, left_out, turns;
    } cases[] = {{4, 0, 2}, {4, 2, 2}, {4, 3, 1}, {5, 2, 2}, {5, 3, 0}, {5, 7, 0}, {6, 3, 2}, {6, UINT64_MAX, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        begin(C, true, NULL);
        assert_ok(paxos_begin(paxos, cases[i].epoch, three, 3, true, NULL, now_ms));
        for (uint64_t turn = 0; turn < cases[i].turns; turn++, now_ms += TURN)
            assert_false(proposes(cases[i].left_out));
        assert_true(proposes(cases[i].left_out));
    }
    for (int waits = 0; waits < 2; waits++) {
        begin(C, true, NULL);
        hear(A, WIRE_PREPARE, ballot(1, A), NULL, 0, true);
        saved();
        assert_int_equal(proposes(waits ? 0 : 3), !waits);
    }
    begin(A, true, NULL); /* C's turn is before A's, and A's before B's */
    assert_false(proposes(3));
    hear(B, WIRE_PREPARE, ballot(1, B), NULL, 0, true);
    now_ms += TURN;
    assert_true(proposes(3));
    begin(C, true, NULL);
    assert_true(proposes(3));
    saved();
    hear(A, WIRE_REJECT, ballot(9, A), NULL, 0, true);
    hear(B, WIRE_REJECT, ballot(9, A), NULL, 0, true);
    assert_int_equal(paxos_state(paxos), PAXOS_IDLE);
    hear(A, WIRE_PREPARE, ballot(9, A), NULL, 0, true);
    saved();
    now_ms += 2 * TURN + 1;    /* longer than the pause after it */
    assert_false(proposes(3)); /* its first ballot came to nothing: it gives way */
}

static void a_majority_in_one_ballot_decides(void **state)
{
    (void)state;
    begin(A, true, NULL);
    uint64_t in = propose_now();
    next_config_with(in);
    assert_true(paxos_promised(paxos, B) && !paxos_promised(paxos, C));
    propose("x");
    hear(B, WIRE_ACCEPTED, in, "x", 0, false); /* a bad signature */
    hear(B, WIRE_ACCEPTED, in, "y", 0, true);  /* another configuration */
    hear(9, WIRE_ACCEPTED, in, "x", 0, true);  /* no voter */
    hear(A, WIRE_ACCEPTED, in, "x", 0, true);
    hear(A, WIRE_ACCEPTED, in, "x", 0, true); /* once more */
    assert_int_equal(paxos_state(paxos), PAXOS_ACCEPTING);
    hear(C, WIRE_ACCEPTED, in, "x", 0, true);
    assert_int_equal(paxos_state(paxos), PAXOS_DECIDED);
    const struct paxos_action *decided = did(PAXOS_DO_DECIDED);
    assert_memory_equal(decided->bytes, "x", 1);
    assert_int_equal(decided->votes_count, 2);
    assert_int_equal(decided->votes[0].ballot, decided->votes[1].ballot);
}

/* The configuration is the same one, but a vote of the ballot before says nothing in this one. */
static void votes_of_two_ballots_decide_nothing(void **state)
{
    (void)state;
    begin(A, true, NULL);
    uint64_t first = propose_now();
    next_config_with(first);
    propose("x");
    hear(A, WIRE_ACCEPTED, first, "x", 0, true);
    hear(C, WIRE_REJECT, ballot(4, C), NULL, 0, true);
    hear(B, WIRE_REJECT, ballot(4, C), NULL, 0, true);
    assert_int_equal(paxos_state(paxos), PAXOS_IDLE);
    now_ms += 100 * TURN;
    step((struct paxos_event){.type = PAXOS_EV_TICK});
    saved();
    uint64_t second = paxos_ballot(paxos);
    assert_true(second > ballot(4, C));
    hear(A, WIRE_PROMISE, second, "x", first, true);
    hear(B, WIRE_PROMISE, second, NULL, 0, true);
    assert_int_equal(paxos_state(paxos), PAXOS_ACCEPTING);
    hear(B, WIRE_ACCEPTED, first, "x", 0, true);  /* late */
    hear(C, WIRE_ACCEPTED, second, "x", 0, true); /* one in each ballot, and A's of the first */
    assert_int_equal(paxos_state(paxos), PAXOS_ACCEPTING);
    hear(B, WIRE_ACCEPTED, second, "x", 0, true);
    assert_int_equal(paxos_state(paxos), PAXOS_DECIDED);
}

static void a_disk_in_doubt_does_not_vote(void **state)
{
    (void)state;
    begin(B, false, NULL);
    hear(A, WIRE_PREPARE, ballot(1, A), "draft", 0, true);
    assert_null(did(PAXOS_DO_SAVE));
    assert_null(said(WIRE_PROMISE));
    assert_non_null(did(PAXOS_DO_FETCH)); /* it catches up */
    assert_non_null(said(HOLDINGS));
    hear(A, WIRE_ACCEPT, ballot(1, A), "x", 0, true);
    assert_int_equal(done_count, 0);
    step((struct paxos_event){.type = PAXOS_EV_WANT, .flag = true});
    now_ms += 100 * TURN;
    step((struct paxos_event){.type = PAXOS_EV_TICK});
    assert_int_equal(done_count, 0);
    hear(A, WIRE_DECIDED, 0, "x", 0, false); /* not proved */
    assert_int_equal(done_count, 0);
    hear(A, WIRE_DECIDED, 0, "x", 0, true);
    assert_non_null(did(PAXOS_DO_DECIDED));
}

/* Power was lost everywhere: B asks all voters, and votes again with what they had accepted. */
static void a_lost_vote_is_what_all_voters_know(void **state)
{
    (void)state;
    begin(B, false, NULL);
    step((struct paxos_event){.type = PAXOS_EV_RECOVER});
    now_ms += 10 * TURN;
    step((struct paxos_event){.type = PAXOS_EV_TICK});
    saved();
    uint64_t in = paxos_ballot(paxos);
    assert_true(said(WIRE_PREPARE)->message.recover);
    hear(A, WIRE_PROMISE, in, "x", 7, true);
    hear(B, WIRE_PROMISE, in, NULL, 0, true);
    assert_null(did(PAXOS_DO_TAKE_OVER)); /* C may be the one that knows */
    hear(C, WIRE_PROMISE, in, "y", 8, true);
    assert_non_null(did(PAXOS_DO_TAKE_OVER));
    assert_null(said(WIRE_ACCEPT)); /* it does not propose */
    propose("z");
    assert_int_equal(done_count, 0);
    step((struct paxos_event){.type = PAXOS_EV_RECOVERED});
    assert_null(did(PAXOS_DO_VOTE));
    struct paxos_vote vote = saved();
    assert_non_null(did(PAXOS_DO_VOTE));
    assert_int_equal(vote.accepted, 8);
    assert_int_equal(vote.promised, in);
    assert_memory_equal(vote.bytes, "y", 1);
    hear(A, WIRE_PREPARE, ballot(9, A), NULL, 0, true);
    saved();
    assert_int_equal(said(WIRE_PROMISE)->message.accepted, 8);
}

/* A's ballot needs B, whose disk is in doubt, and is said again and again: B does not leave it to A. */
static void who_recovers_does_not_wait_for_who_waits_for_it(void **state)
{
    (void)state;
    static const uint32_t types[] = {WIRE_PREPARE, WIRE_ACCEPT};
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        begin(B, false, NULL);
        step((struct paxos_event){.type = PAXOS_EV_RECOVER});
        bool asks = false;
        for (uint64_t ms = 0; ms < 3 * TURN && !asks; ms += TURN / 5) {
            now_ms += TURN / 5;
            hear(A, types[t], ballot(3, A), "x", 0, true);
            step((struct paxos_event){.type = PAXOS_EV_TICK});
            asks = did(PAXOS_DO_SAVE) != NULL;
        }
        assert_true(asks);
    }
}

static void a_ballot_that_was_said_bars_lower_ones(void **state)
{
    (void)state;
    struct paxos_vote vote = {.epoch = 5, .own = ballot(6, A)};
    struct paxos_message m = {.type = WIRE_PREPARE, .epoch = 6, .ballot = ballot(5, B), .recover = true};
    begin(A, false, &vote); /* in doubt, too */
    step((struct paxos_event){.type = PAXOS_EV_MESSAGE, .from = B, .good = true, .message = &m});
    assert_int_equal(said(WIRE_REJECT)->message.ballot, ballot(6, A)); /* B may have promised it */
    m.ballot = ballot(7, B);
    now_ms += TURN;
    step((struct paxos_event){.type = PAXOS_EV_MESSAGE, .from = B, .good = true, .message = &m});
    saved();
    assert_int_equal(said(WIRE_PROMISE)->to, B);
    hear(C, WIRE_PREPARE, ballot(8, C), NULL, 0, true); /* any other is still answered without a vote */
    assert_null(said(WIRE_PROMISE));
    assert_non_null(said(HOLDINGS));
}

/* Of three, C refuses whatever A proposes: with B it is a majority. */
static void one_refusal_ends_no_ballot(void **state)
{
    (void)state;
    begin(A, true, NULL);
    uint64_t in = propose_now();
    hear(C, WIRE_REJECT, ballot(in >> 32, C), NULL, 0, true);
    assert_int_equal(paxos_state(paxos), PAXOS_PREPARING);
    next_config_with(in);
    propose("x");
    hear(C, WIRE_REJECT, ballot(in >> 32, C), NULL, 0, true);
    hear(A, WIRE_ACCEPTED, in, "x", 0, true);
    hear(B, WIRE_ACCEPTED, in, "x", 0, true);
    assert_int_equal(paxos_state(paxos), PAXOS_DECIDED);
}

static void a_refused_ballot_ends_where_nobody_else_answers(void **state)
{
    (void)state;
    begin(A, true, NULL);
    uint64_t in = propose_now();
    hear(C, WIRE_REJECT, ballot(in >> 32, C), NULL, 0, true);
    now_ms += 5 * TURN;
    step((struct paxos_event){.type = PAXOS_EV_TICK});
    assert_int_equal(paxos_state(paxos), PAXOS_IDLE);
}

/* C raises its ballot as fast as it can, and answers nobody. A gets its own through, and soon. */
static void a_storm_of_ballots_starves_nobody(void **state)
{
    (void)state;
    uint64_t counter = 1, since_ms, promises = 0;
    begin(A, true, NULL);
    step((struct paxos_event){.type = PAXOS_EV_WANT, .flag = false});
    for (since_ms = now_ms; now_ms < since_ms + 10 * TURN && paxos_state(paxos) == PAXOS_IDLE; now_ms += TURN / 20) {
        hear(C, WIRE_PREPARE, ballot(++counter, C), NULL, 0, true);
        if (did(PAXOS_DO_SAVE) != NULL)
            saved();
        promises += said(WIRE_PROMISE) != NULL;
        step((struct paxos_event){.type = PAXOS_EV_TICK});
    }
    assert_int_equal(paxos_state(paxos), PAXOS_CLAIMING);
    assert_in_range(promises, 1, 5);
    saved();
    uint64_t in = paxos_ballot(paxos);
    hear(C, WIRE_PREPARE, ballot(++counter, C), NULL, 0, true);
    next_config_with(in); /* what C has begun meanwhile was not taken in */
    propose("x");
    hear(A, WIRE_ACCEPTED, in, "x", 0, true);
    hear(B, WIRE_ACCEPTED, in, "x", 0, true);
    assert_int_equal(paxos_state(paxos), PAXOS_DECIDED);
}

/* A counter that nobody could go beyond is not taken in. */
static void no_ballot_uses_the_counters_up(void **state)
{
    (void)state;
    begin(A, true, NULL);
    hear(C, WIRE_PREPARE, ballot(UINT32_MAX, C), NULL, 0, true);
    hear(C, WIRE_REJECT, ballot(UINT32_MAX, C), NULL, 0, true);
    assert_null(said(WIRE_PROMISE));
    assert_true(propose_now() >> 32 < 100);
}

/* Nobody decides, and C says what it may: with each answer to a ballot of A that it has promised a far higher one, and
 * far higher ballots of its own, as often as they are taken in. */
static void who_jumps_takes_months_to_use_the_counters_up(void **state)
{
    (void)state;
    enum { HOURS = 4, HOUR = 3600, STEP = 1 << 10, JUMP = 1 << 20 };
    begin(A, true, NULL);
    uint64_t highest = propose_now(), told = 0, begun_ms;
    for (begun_ms = now_ms; now_ms < begun_ms + (uint64_t)HOURS * HOUR * TURN; now_ms += TURN / 4) {
        told += STEP;
        hear(C, WIRE_REJECT, ballot((highest >> 32) + told, C), NULL, 0, true);
        hear(C, WIRE_REJECT, ballot((highest >> 32) + JUMP, C), NULL, 0, true);
        for (uint64_t jump = STEP; jump <= JUMP; jump *= STEP) {
            hear(C, WIRE_PREPARE, ballot((highest >> 32) + jump, C), NULL, 0, true);
            if (did(PAXOS_DO_SAVE) != NULL)
                saved();
        }
        step((struct paxos_event){.type = PAXOS_EV_TICK});
        if (did(PAXOS_DO_SAVE) != NULL)
            saved();
        if (paxos_ballot(paxos) > highest) {
            highest = paxos_ballot(paxos);
            told = 0;
        }
    }
    print_message("%llu counters are used up after %d hours\n", (unsigned long long)(highest >> 32), HOURS);
    assert_true(highest >> 32 > (uint64_t)(HOURS - 1) << 20); /* it was not deaf */
    assert_true(highest >> 32 < (uint64_t)(2 * HOURS) << 20);
}

/* What nobody here wants seals us now and then, in whatever epoch. */
static void unwanted_seals_are_rare(void **state)
{
    (void)state;
    uint32_t seals = 0;
    static const uint32_t voters[] = {A, B, C};
    begin(A, true, NULL);
    for (uint64_t number = 5; number < 105; number++) {
        struct paxos_message m = {.type = WIRE_PREPARE, .epoch = number + 1, .ballot = ballot(1, C)};
        assert_ok(paxos_begin(paxos, number, voters, 3, true, NULL, now_ms));
        step((struct paxos_event){.type = PAXOS_EV_MESSAGE, .from = C, .good = true, .message = &m});
        seals += paxos_sealed(paxos);
        now_ms += 3 * TURN;
    }
    assert_in_range(seals, 2, 5); /* in 300 turns: at 0, 30, 90, 210 */
}

static void a_draft_is_sent_until_it_is_safe(void **state)
{
    (void)state;
    static const uint32_t further[] = {B, 9};
    begin(A, true, NULL);
    uint64_t in = propose_now();
    next_config_with(in);
    assert_ok(paxos_draft(paxos, (const uint8_t *)"d", 1, further, 2, now_ms));
    drain();
    assert_int_equal(times_said(WIRE_PREPARE), 4); /* voters, and who is none, once each */
    assert_memory_equal(said(WIRE_PREPARE)->message.bytes, "d", 1);
    hear(9, HOLDINGS, in, NULL, 0, true);
    assert_non_null(did(PAXOS_DO_COMPOSE));
    now_ms += AGAIN;
    step((struct paxos_event){.type = PAXOS_EV_TICK});
    assert_int_equal(times_said(WIRE_PREPARE), 4);
    assert_non_null(did(PAXOS_DO_COMPOSE));
}

static void the_islands_take_turns(void **state)
{
    (void)state;
    begin(C, true, NULL);
    step((struct paxos_event){.type = PAXOS_EV_UP, .from = A, .flag = false});
    step((struct paxos_event){.type = PAXOS_EV_WANT, .flag = true});
    assert_int_equal(paxos_state(paxos), PAXOS_IDLE);
    now_ms += TURN - 1;
    step((struct paxos_event){.type = PAXOS_EV_TICK});
    assert_int_equal(paxos_state(paxos), PAXOS_IDLE);
    now_ms += 1; /* one that is up stands before us, and has decided nothing */
    step((struct paxos_event){.type = PAXOS_EV_TICK});
    assert_int_equal(paxos_state(paxos), PAXOS_CLAIMING);
}

static void a_seal_comes_to_an_end_without_its_proposer(void **state)
{
    (void)state;
    begin(B, true, NULL);
    hear(A, WIRE_PREPARE, ballot(1, A), NULL, 0, true);
    saved();
    for (int i = 0; i < 100 && paxos_state(paxos) == PAXOS_IDLE; i++) {
        now_ms += TURN / 4;
        step((struct paxos_event){.type = PAXOS_EV_TICK});
    }
    assert_int_equal(paxos_state(paxos), PAXOS_CLAIMING); /* nobody wanted a change here */
}

/* It seals us, and asks us to accept what may not follow, again and again: we are next, as if it were not there. */
static void who_proposes_what_may_not_follow_is_not_waited_for(void **state)
{
    (void)state;
    begin(B, true, NULL);
    for (uint64_t counter = 1; counter < 20 && paxos_state(paxos) == PAXOS_IDLE; counter++) {
        hear(A, WIRE_PREPARE, ballot(counter, A), NULL, 0, true);
        if (did(PAXOS_DO_SAVE) != NULL)
            saved();
        hear(A, WIRE_ACCEPT, ballot(counter, A), "false", 0, false);
        now_ms += TURN;
        step((struct paxos_event){.type = PAXOS_EV_TICK});
        assert_true(counter < 3); /* with patience it were twice as long */
    }
    assert_int_equal(paxos_state(paxos), PAXOS_CLAIMING);
}

/* Else it would propose it for ever, and never what may follow. */
static void who_proposes_what_may_not_follow_hears_that_others_went_on(void **state)
{
    (void)state;
    begin(B, true, NULL);
    hear(C, WIRE_PREPARE, ballot(2, C), NULL, 0, true);
    saved();
    hear(A, WIRE_ACCEPT, ballot(1, A), "false", 0, false);
    assert_int_equal(said(WIRE_REJECT)->message.ballot, ballot(2, C));
    assert_int_equal(said(WIRE_REJECT)->to, A);
    hear(C, WIRE_ACCEPT, ballot(2, C), "false", 0, false);
    assert_null(said(WIRE_REJECT));
}

static void who_is_behind_is_told_and_who_is_ahead_is_asked(void **state)
{
    (void)state;
    begin(B, true, NULL);
    struct paxos_message m = {.type = WIRE_PREPARE, .epoch = 4, .ballot = ballot(1, A)};
    step((struct paxos_event){.type = PAXOS_EV_MESSAGE, .from = A, .good = true, .message = &m});
    assert_int_equal(did(PAXOS_DO_CONFIG_LOG)->epoch, 3);
    m.epoch = 7;
    step((struct paxos_event){.type = PAXOS_EV_MESSAGE, .from = A, .good = true, .message = &m});
    assert_int_equal(said(WIRE_CONFIG_LOG)->message.epoch, 5);
    assert_false(paxos_sealed(paxos));
    step((struct paxos_event){.type = PAXOS_EV_HEARD, .from = C, .epoch = 6});
    assert_null(said(WIRE_CONFIG_LOG)); /* it has just asked */
    now_ms += AGAIN;
    step((struct paxos_event){.type = PAXOS_EV_HEARD, .from = C, .epoch = 6});
    assert_int_equal(said(WIRE_CONFIG_LOG)->to, C);
}

/* Whoever asks, and whatever is the matter with its disk: our vote of a later epoch would be gone. */
static void nothing_is_promised_below_a_vote_of_a_later_epoch(void **state)
{
    (void)state;
    const struct paxos_vote later = {.epoch = 9, .promised = ballot(1, C)};
    for (int may_vote = 0; may_vote < 2; may_vote++) {
        begin(B, may_vote == 1, &later);
        struct paxos_message m = {.type = WIRE_PREPARE, .epoch = 6, .ballot = ballot(5, A), .recover = true};
        step((struct paxos_event){.type = PAXOS_EV_MESSAGE, .from = A, .good = true, .message = &m});
        assert_null(did(PAXOS_DO_SAVE));
        assert_null(said(WIRE_PROMISE));
        m = (struct paxos_message){.type = WIRE_PREPARE, .epoch = 6, .ballot = ballot(6, A)};
        now_ms += 20 * TURN;
        step((struct paxos_event){.type = PAXOS_EV_MESSAGE, .from = A, .good = true, .message = &m});
        hear(A, WIRE_ACCEPT, ballot(6, A), "x", 0, true);
        assert_null(did(PAXOS_DO_SAVE));
        step((struct paxos_event){.type = PAXOS_EV_WANT, .flag = true});
        step((struct paxos_event){.type = PAXOS_EV_RECOVER});
        now_ms += 20 * TURN;
        step((struct paxos_event){.type = PAXOS_EV_TICK});
        assert_null(did(PAXOS_DO_SAVE));
        assert_false(paxos_sealed(paxos));
    }
}

static bool matters(uint32_t from, unsigned type, uint64_t epoch, uint64_t in, const char *config)
{
    struct paxos_message m = {.type = type, .epoch = epoch, .ballot = in, .sealed = true};
    m.digest = digest_of_text(config);
    m.bytes = (const uint8_t *)config;
    m.bytes_count = type == WIRE_ACCEPTED ? 0 : strlen(config);
    return paxos_matters(paxos, from, &m, now_ms);
}

/* So nobody checks signatures, or keeps what is held, for a message that changes nothing whatever they say. */
static void what_makes_no_difference_does_not_matter(void **state)
{
    (void)state;
    static const uint32_t further[] = {8};
    begin(A, true, NULL);
    assert_false(matters(B, WIRE_PROMISE, 6, ballot(1, A), "x")); /* we have asked nobody */
    uint64_t in = propose_now();
    assert_true(matters(B, WIRE_PROMISE, 6, in, "x"));
    assert_false(matters(B, WIRE_PROMISE, 7, in, "x"));
    assert_false(matters(B, WIRE_PROMISE, 6, ballot(9, C), "x")); /* of another ballot */
    assert_false(matters(8, WIRE_PROMISE, 6, in, "x"));           /* no voter, and not asked */
    assert_false(matters(B, WIRE_ACCEPTED, 6, in, "x"));
    next_config_with(in);
    assert_ok(paxos_draft(paxos, (const uint8_t *)"d", 1, further, 1, now_ms));
    drain();
    assert_true(matters(8, WIRE_PROMISE, 6, in, "x"));
    assert_false(matters(9, WIRE_PROMISE, 6, in, "x"));
    propose("x");
    assert_false(matters(B, WIRE_PROMISE, 6, in, "x"));
    assert_true(matters(B, WIRE_ACCEPTED, 6, in, "x"));
    assert_false(matters(B, WIRE_ACCEPTED, 6, in, "y"));
    assert_false(matters(B, WIRE_ACCEPTED, 6, in + 1, "x"));
    assert_false(matters(8, WIRE_ACCEPTED, 6, in, "x"));
    hear(B, WIRE_ACCEPTED, in, "x", 0, true);
    assert_false(matters(B, WIRE_ACCEPTED, 6, in, "x")); /* it has said so */
    assert_true(matters(B, WIRE_DECIDED, 0, 0, "x"));
    hear(B, WIRE_DECIDED, 0, "x", 0, true);
    assert_false(matters(B, WIRE_DECIDED, 0, 0, "x"));
}

static void what_may_not_be_accepted_does_not_matter(void **state)
{
    (void)state;
    begin(A, true, NULL);
    hear(B, WIRE_PREPARE, ballot(3, B), NULL, 0, true);
    saved();
    assert_true(matters(B, WIRE_ACCEPT, 6, ballot(3, B), "x"));
    assert_false(matters(C, WIRE_ACCEPT, 6, ballot(3, B), "x")); /* its ballots are its own */
    assert_false(matters(C, WIRE_ACCEPT, 6, ballot(2, C), "x"));
    assert_false(matters(8, WIRE_ACCEPT, 6, ballot(4, 8), "x"));
    hear(B, WIRE_ACCEPT, ballot(3, B), "x", 0, true);
    saved();
    assert_false(matters(B, WIRE_ACCEPT, 6, ballot(3, B), "x")); /* it was checked; asked again, it is answered: */
    hear(B, WIRE_ACCEPT, ballot(3, B), "x", 0, false);
    assert_non_null(said(WIRE_ACCEPTED));
    hear(B, WIRE_ACCEPT, ballot(3, B), "y", 0, false);
    assert_null(said(WIRE_ACCEPTED));
    for (int i = 0; i < 1000; i++)
        hear(C, WIRE_ACCEPT, ballot(5, C), "x", 0, false);
    assert_false(matters(C, WIRE_ACCEPT, 6, ballot(5, C), "x")); /* it says too much */
    begin(A, false, NULL);
    assert_false(matters(B, WIRE_ACCEPT, 6, ballot(3, B), "x"));
}

static uint32_t asked_on_hearing(uint32_t from)
{
    step((struct paxos_event){.type = PAXOS_EV_HEARD, .from = from, .epoch = 6});
    const struct paxos_action *asks = said(WIRE_CONFIG_LOG);
    return asks != NULL ? asks->to : 0;
}

/* C is always heard just behind A, which does not hear us; then C is gone. */
static void who_does_not_answer_does_not_keep_others_from_being_asked(void **state)
{
    (void)state;
    begin(B, true, NULL);
    assert_int_equal(asked_on_hearing(A), A);
    now_ms += AGAIN / 5;
    assert_int_equal(asked_on_hearing(C), 0); /* it has just asked */
    now_ms += TURN;
    assert_int_equal(asked_on_hearing(A), 0);
    now_ms += AGAIN / 5;
    assert_int_equal(asked_on_hearing(C), C);
    now_ms += TURN;
    assert_int_equal(asked_on_hearing(A), A);
    assert_int_equal(asked_on_hearing(C), 0);
    for (uint64_t ms = 0; ms < 2 * TURN; ms += AGAIN) {
        now_ms += AGAIN;
        assert_int_equal(asked_on_hearing(A), 0);
    }
    now_ms += 2 * TURN;
    assert_int_equal(asked_on_hearing(A), A);
}

static void without_memory_an_event_is_as_lost(void **state)
{
    (void)state;
    begin(B, true, NULL);
    struct paxos_message m = {
        .type = WIRE_ACCEPT, .epoch = 6, .ballot = ballot(1, A), .bytes = (const uint8_t *)"x", .bytes_count = 1};
    struct paxos_event event = {.type = PAXOS_EV_MESSAGE, .from = A, .good = true, .message = &m};
    mem_fail_after(0);
    assert_int_equal(paxos_step(paxos, &event, now_ms), ERR_NOMEM);
    mem_fail_after(-1);
    drain();
    assert_int_equal(done_count, 0);
    assert_false(paxos_sealed(paxos));
}

static int end(void **state)
{
    (void)state;
    paxos_free(paxos);
    paxos = NULL;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_seal_is_said_when_it_is_durable),
        cmocka_unit_test(a_seal_is_for_the_highest_ballot),
        cmocka_unit_test(nothing_is_accepted_below_a_promise),
        cmocka_unit_test(one_configuration_is_accepted_in_a_ballot),
        cmocka_unit_test(a_promise_names_what_was_accepted),
        cmocka_unit_test(an_accepted_configuration_is_proposed_as_it_is),
        cmocka_unit_test(the_highest_of_the_accepted_configurations_is_taken),
        cmocka_unit_test(a_ballot_is_durable_before_it_is_said_and_never_used_twice),
        cmocka_unit_test(who_proposes_promises_last),
        cmocka_unit_test(where_what_waits_is_left_out_turns_begin_with_another),
        cmocka_unit_test(a_majority_in_one_ballot_decides),
        cmocka_unit_test(votes_of_two_ballots_decide_nothing),
        cmocka_unit_test(a_disk_in_doubt_does_not_vote),
        cmocka_unit_test(a_lost_vote_is_what_all_voters_know),
        cmocka_unit_test(who_recovers_does_not_wait_for_who_waits_for_it),
        cmocka_unit_test(a_ballot_that_was_said_bars_lower_ones),
        cmocka_unit_test(one_refusal_ends_no_ballot),
        cmocka_unit_test(a_refused_ballot_ends_where_nobody_else_answers),
        cmocka_unit_test(a_storm_of_ballots_starves_nobody),
        cmocka_unit_test(no_ballot_uses_the_counters_up),
        cmocka_unit_test(who_jumps_takes_months_to_use_the_counters_up),
        cmocka_unit_test(unwanted_seals_are_rare),
        cmocka_unit_test(a_draft_is_sent_until_it_is_safe),
        cmocka_unit_test(the_islands_take_turns),
        cmocka_unit_test(a_seal_comes_to_an_end_without_its_proposer),
        cmocka_unit_test(who_proposes_what_may_not_follow_is_not_waited_for),
        cmocka_unit_test(who_proposes_what_may_not_follow_hears_that_others_went_on),
        cmocka_unit_test(who_is_behind_is_told_and_who_is_ahead_is_asked),
        cmocka_unit_test(nothing_is_promised_below_a_vote_of_a_later_epoch),
        cmocka_unit_test(what_makes_no_difference_does_not_matter),
        cmocka_unit_test(what_may_not_be_accepted_does_not_matter),
        cmocka_unit_test(who_does_not_answer_does_not_keep_others_from_being_asked),
        cmocka_unit_test(without_memory_an_event_is_as_lost),
    };
    return cmocka_run_group_tests(tests, NULL, end);
}
