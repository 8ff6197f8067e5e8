/* SPDX-License-Identifier: Apache-2.0 */
/* peers: who is greeted, who is refused and why, who is away, whose word counts. One island with all its parts, others
 * played on real links; the clock is the test's. */
#include "tests/lib/testlib.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/log.h"
#include "common/mem.h"
#include "daemon/peers/announced_plans.h"
#include "daemon/peers/own_uplink.h"
#include "net/transport/wire_join.h"
#include "tests/lib/company.h"
#include "tests/lib/isle.h"
#include "tests/lib/overhear.h"
#include "tests/lib/played.h"

/* As the header and docs/PROTOCOL.md have them. */
enum { SILENT_MS = 2500, BEAT_MS = 1000, HELLO_MS = 1000 };

static void assert_posted(enum sync_event_type type, uint32_t member)
{
    struct event event;
    if (!isle_took_sync(company.a, type, &event))
        fail_msg("no event %d of member %u", (int)type, member);
    assert_int_equal(event.sync.member, member);
}

static void assert_nothing_posted(enum sync_event_type type)
{
    struct event event;
    assert_false(isle_took_sync(company.a, type, &event));
}

/* ---- greetings ---- */

static void islands_greet_each_other_and_are_up(void **state)
{
    (void)state;
    company_begin("peers-greet", 2, false);
    const struct wire_hello *hello = &company.b->in.hello;
    assert_true(digest_equal(&hello->run_id, &company.run->spec.digest));
    assert_false(hello->plan_known);
    assert_int_equal(hello->session, 1000);
    assert_int_equal(hello->island, A);
    assert_string_equal(hello->name, "a");
    assert_int_equal(hello->window_kib, 16 * 1024);
    assert_false(company_info(B).up || company_info(B).refused || peers_heard(company.a->peers));
    assert_string_equal(company_info(B).note, "");
    assert_int_equal(company_info(B).heard_ms, 0);
    played_greet(company.b, company.a);
    assert_posted(SYNC_EV_PEER_UP, B);
    assert_int_equal(company_info(B).heard_ms, company.a->now_ms);
    assert_false(peers_heard(company.a->peers)); /* it has not said yet how it stands */
    assert_int_equal(played_next_beat(company.b)->session, 1000);
    assert_int_equal(company.b->in.heartbeat.sequence, 1);
    played_beat(company.b);
    company_say(company.b);
    assert_posted(SYNC_EV_HEARTBEAT, B);
    assert_true(peers_heard(company.a->peers));
    company_end();
}

static void spoil_hello(int how, struct wire_hello *hello)
{
    if (how == 0)
        hello->run_id.byte[31] ^= 1;
    else if (how == 1)
        snprintf(hello->name, sizeof hello->name, "c");
    else if (how == 2)
        hello->island = A;
    else
        hello->plan_known = true; /* of a plan that is not ours: all zeros */
}

static void who_is_of_another_run_is_refused_with_the_reason_until_that_changes(void **state)
{
    (void)state;
    static const char *const notes[] = {"another run spec", "name is not the one", "name is not the one",
                                        "its model has other tensors"};
    company_begin("peers-refuse", 2, true);
    for (int how = 0; how < 4; how++) {
        company.b->session++;
        spoil_hello(how, played_hello(company.b));
        played_say(company.b, A);
        isle_wait(company_info(B).refused && strstr(company_info(B).note, notes[how]) != NULL);
        /* Nothing else is heard of it, and time does not mend it. */
        played_beat(company.b);
        played_say(company.b, A);
        company.a->now_ms += 3600 * 1000;
        isle_tick(company.a);
        isle_wait(played_heard_type(company.b,
                                    WIRE_HELLO)); /* the answer to a heartbeat of somebody unknown, or the tick's */
        assert_true(company_info(B).refused && !company_info(B).up);
        assert_nothing_posted(SYNC_EV_PEER_UP);
        assert_nothing_posted(SYNC_EV_HEARTBEAT);
        assert_non_null(strstr(company_info(B).note, notes[how]));
    }
    played_greet(company.b, company.a);
    assert_false(company_info(B).refused);
    assert_string_equal(company_info(B).note, "");
    assert_posted(SYNC_EV_PEER_UP, B);
    /* One who was here, and is refused now, is not heard any more. */
    spoil_hello(0, played_hello(company.b));
    played_say(company.b, A);
    isle_wait(company_info(B).refused);
    while (played_heard(company.b)) {
    }
    company.a->now_ms += HELLO_MS;
    played_beat(company.b);
    played_say(company.b, A);
    isle_wait(played_heard_type(company.b, WIRE_HELLO));
    assert_nothing_posted(SYNC_EV_HEARTBEAT);
    company_end();
}

static void a_plan_that_becomes_known_is_compared_with_those_announced(void **state)
{
    (void)state;
    company_begin("peers-plans", 3, false);
    struct model_plan *plan = isle_model_plan(company.run);
    played_hello(company.b)->plan_known = true;
    company.b->out.hello.plan_id = plan->id;
    played_say(company.b, A);
    isle_wait(company_info(B).up);
    played_hello(company.c)->plan_known = true; /* another one */
    played_say(company.c, A);
    isle_wait(company_info(C).up);
    assert_posted(SYNC_EV_PEER_UP, B);
    struct event event;
    while (isle_took_sync(company.a, SYNC_EV_PEER_UP, &event)) {
    }
    isle_know_plan(company.a);
    assert_posted(SYNC_EV_PEER_UP, B); /* the core is new and has heard nothing */
    assert_nothing_posted(SYNC_EV_PEER_UP);
    assert_true(company_info(B).up && !company_info(B).refused);
    assert_true(company_info(C).refused);
    assert_non_null(strstr(company_info(C).note, "other tensors"));
    isle_wait(played_heard_type(company.b, WIRE_HELLO) && company.b->in.hello.plan_known);
    assert_true(digest_equal(&company.b->in.hello.plan_id, &plan->id));
    model_plan_free(plan);
    company_end();
}

/* Away is away: the core waits for nobody who is silent, and is told when that one is heard again. */
static void a_plan_that_becomes_known_brings_nobody_back(void **state)
{
    (void)state;
    company_begin("peers-plan-silent", 2, false);
    played_greet(company.b, company.a);
    assert_posted(SYNC_EV_PEER_UP, B);
    company.a->now_ms += SILENT_MS + 1;
    isle_tick(company.a);
    assert_posted(SYNC_EV_PEER_DOWN, B);
    while (played_heard(company.b)) {
    }
    isle_know_plan(company.a);
    isle_wait(played_heard_type(company.b, WIRE_HELLO) && company.b->in.hello.plan_known);
    assert_nothing_posted(SYNC_EV_PEER_UP);
    assert_false(company_info(B).up);
    played_beat(company.b);
    company_say(company.b);
    assert_posted(SYNC_EV_PEER_UP, B);
    assert_true(company_info(B).up);
    company_end();
}

static void another_run_in_the_header_and_a_key_that_is_not_admitted_are_told(void **state)
{
    (void)state;
    company.run = isle_run_new("peers-tags", 3, NULL);
    company.b = played_open(company.run, B, 12345, NULL);
    struct ident ours = company.run->idents[A], other;
    assert_ok(ident_generate(&other));
    company.run->idents[A] = other; /* c has another key for a */
    company.c = played_open(company.run, C, 0, NULL);
    company.run->idents[A] = ours;
    company.a = isle_open(company.run, A, NULL, 0);
    isle_wait(company_info(C).refused);
    assert_non_null(strstr(company_info(C).note, "it does not admit our key"));
    struct link_event event;
    struct link_message message;
    while (!link_up(company.b->link, A, false)) {
        (void)!link_recv(company.b->link, &message);
        while (link_event(company.b->link, &event)) {
        }
        isle_turn_all();
    }
    played_hello(company.b);
    played_say(company.b, A);
    isle_wait(company_info(B).refused);
    assert_non_null(strstr(company_info(B).note, "another run spec"));
    assert_false(company_info(B).up || company_info(C).up);
    company_end();
}

static void strangers_are_counted_and_named(void **state)
{
    (void)state;
    company.run = isle_run_new("peers-strangers", 2, NULL);
    isle_listen(company.run, A);
    company.b = played_open(company.run, B, 0, NULL);
    company.run->addresses[B][0] = '\0'; /* b dials */
    company.c = NULL;
    company.a = isle_open(company.run, A, NULL, 0);
    assert_int_equal(peers_refused(company.a->peers).strangers, 0);
    struct ident other;
    assert_ok(ident_generate(&other));
    struct played *mallory = played_open(company.run, B, 0, &other);
    company.a->now_ms += 17;
    isle_wait(peers_refused(company.a->peers).strangers > 0);
    assert_non_null(strstr(peers_refused(company.a->peers).stranger, played_connection_key(&other)));
    assert_int_equal(peers_refused(company.a->peers).stranger_ms, company.a->now_ms);
    assert_false(company_info(B).up);
    played_close(mallory);
    played_greet(company.b, company.a); /* the real one gets through */
    company_end();
}

static void a_greeting_goes_on_until_both_know_the_same(void **state)
{
    (void)state;
    company_begin("peers-again", 2, true);
    /* Not greeted: every second. */
    for (int k = 0; k < 2; k++) {
        company.a->now_ms += HELLO_MS;
        isle_tick(company.a);
        isle_wait(played_heard_type(company.b, WIRE_HELLO));
    }
    played_greet(company.b, company.a); /* it has no plan yet, and is answered */
    isle_wait(played_heard_type(company.b, WIRE_HELLO));
    company.a->now_ms += HELLO_MS;
    isle_tick(company.a);
    isle_wait(played_heard_type(company.b, WIRE_HELLO));
    played_hello(company.b)->plan_known = true;
    company.b->out.hello.plan_id = company.a->plan->id;
    company_say(company.b);
    /* Settled: no more of them, but in answer to one, and not for every one of a flood. */
    for (int k = 0; k < 5; k++) {
        company.a->now_ms += HELLO_MS;
        isle_tick(company.a);
        peers_announce(company.a->peers);
    }
    int hellos = 0;
    isle_turn(company.a);
    isle_wait(played_heard(company.b) &&
              (hellos += company.b->in.type == WIRE_HELLO,
               company.b->in.type == WIRE_HEARTBEAT && company.b->in.heartbeat.sequence >= 6));
    assert_int_equal(hellos, 0);
    for (int k = 0; k < 5; k++) {
        played_hello(company.b)->plan_known = true;
        company.b->out.hello.plan_id = company.a->plan->id;
        played_say(company.b, A);
    }
    assert_int_equal(played_settle(company.b, A, WIRE_HELLO), 1);
    company_end();
}

/* ---- what is logged ---- */

/* Who sends nonsense all the time must not keep from sight that it has diverged. */
static void each_complaint_about_an_island_is_logged_and_none_is_repeated(void **state)
{
    (void)state;
    company_begin("peers-complaints", 2, true);
    played_greet(company.b, company.a);
    overhear_begin();
    for (int k = 0; k < 2; k++) {
        played_hello(company.b)->window_kib = 0;
        company_say(company.b);
        peers_diverged(company.a->peers, B, 3);
        peers_plan_refused(company.a->peers, B, "nothing in it");
        spoil_hello(0, played_hello(company.b));
        played_say(company.b, A);
        isle_wait(company_info(B).refused);
        played_greet(company.b, company.a);
        isle_wait(!company_info(B).refused);
    }
    const char *log = overhear_end();
    overhear_assert_once(log, "island b sent something we drop: window of 0 KiB");
    overhear_assert_once(log, "island b holds another state of fragment 3 than this one");
    overhear_assert_once(log, "the plan of island b cannot be used: nothing in it");
    overhear_assert_once(log, "island b is refused: it has another run spec");
    company_end();
}

/* With a session that is not new, so that it costs no greeting of a new one. */
static void who_comes_and_goes_fills_no_log(void **state)
{
    (void)state;
    company_begin("peers-flapping", 2, true);
    overhear_begin();
    for (int k = 0; k < 15; k++) {
        played_greet(company.b, company.a);
        company.b->out.type = WIRE_BYE;
        snprintf(company.b->out.bye.reason, sizeof company.b->out.bye.reason, "and back");
        played_say(company.b, A);
        isle_wait(!company_info(B).up);
        company.a->now_ms += 100; /* so that its messages are within its budget */
    }
    const char *log = overhear_end();
    assert_int_equal(overhear_count(log, "island b is here") + overhear_count(log, "island b says goodbye"),
                     LOG_LINES_OF_ONE);
    company.a->now_ms += LOG_LINES_OF_ONE_MS;
    overhear_begin();
    played_greet(company.b, company.a);
    overhear_assert_once(overhear_end(), "island b is here");
    company_end();
}

/* ---- up, away, back, gone ---- */

static void say_orders(const struct paxos_message *message, int count)
{
    for (int k = 1; k <= count; k++) {
        played_say_epoch(company.b, A, message);
        if (k % 10 == 0) /* a queue does not hold them all */
            (void)played_settle(company.b, A, WIRE_ACK);
    }
}

/* Far more than anybody has to say: what is beyond is not looked at, and named. */
static void messages_about_the_next_epoch_have_a_quota(void **state)
{
    (void)state;
    static const struct order order = {.kind = ORDER_EVICT, .subject = 1, .number = 99};
    struct paxos_message message = {.type = WIRE_ORDER, .order = &order};
    company_begin("peers-flood", 2, true);
    played_greet(company.b, company.a);
    assert_string_equal(company_info(B).fault, "");
    overhear_begin();
    say_orders(&message, 90);
    assert_string_equal(company_info(B).fault, "");
    say_orders(&message, 30);
    overhear_assert_once(overhear_end(), "more orders and evidence than anybody needs");
    assert_string_equal(company_info(B).fault, "it sends what nobody can use");
    company_end();
}

/* To no question of ours: it is passed over. */
static void answer_about_addresses(int times)
{
    struct wire_dial_response response = {.reports_count = 1};
    uint8_t bytes[WIRE_JOIN_BYTES_MAX];
    size_t count = wire_dial_response_pack(&response, bytes);
    for (int k = 0; k < times; k++) {
        assert_ok(link_send(company.b->link, A, WIRE_DIAL_RESPONSE, bytes, count, NULL, 0));
        (void)played_settle(company.b, A, WIRE_ACK);
    }
}

static void questions_about_newcomers_have_a_quota(void **state)
{
    (void)state;
    company_begin("peers-dials", 2, true);
    played_greet(company.b, company.a);
    answer_about_addresses(20);
    assert_string_equal(company_info(B).fault, "");
    overhear_begin();
    answer_about_addresses(3);
    overhear_assert_once(overhear_end(), "more questions about newcomers' addresses than anybody needs");
    company_end();
}

/* B says that it signed that this version of each fragment has a hash of zeros. */
static void certify(uint64_t version, bool well)
{
    struct certificate_subject subject = {.nonce = company.run->nonce, .version = version, .hash = {{0}}};
    struct wire_heartbeat *beat = played_beat(company.b);
    for (uint32_t f = 0; f < ISLE_FRAGMENTS; f++) {
        subject.fragment = f;
        beat->fragments[f].at = (struct wire_standing){.version = version, .hash_known = true};
        beat->fragments[f].certified = true;
        certificate_row_sign(&company.run->idents[B], &subject, beat->fragments[f].signature);
        beat->fragments[f].signature[5] ^= well ? 0 : 1;
    }
    company_say(company.b);
}

/* How many are good that are known of it. */
static uint32_t certified(uint64_t version)
{
    struct certificate known;
    uint32_t count = 0;
    for (uint32_t f = 0; f < ISLE_FRAGMENTS; f++) {
        certificates_known(
            company.a->certificates,
            &(struct certificate_subject){.nonce = company.run->nonce, .fragment = f, .version = version}, &known);
        count += known.count;
    }
    return count;
}

/* Each costs a check when the state is asked for: beyond its quota of those that are none no more are kept. */
static void false_signatures_of_versions_have_a_quota(void **state)
{
    (void)state;
    enum { ALLOWED = 200 / ISLE_FRAGMENTS };
    company_begin("peers-false", 2, true);
    played_greet(company.b, company.a);
    for (uint64_t version = 1; version <= ALLOWED; version++) {
        certify(version, false);
        assert_int_equal(certified(version), 0);
    }
    certify(1000, true);
    assert_int_equal(certified(1000), ISLE_FRAGMENTS);
    certify(1001, false);
    assert_int_equal(certified(1001), 0);
    overhear_begin();
    certify(1002, true);
    overhear_assert_once(overhear_end(), "more signatures that are none than anybody needs");
    assert_int_equal(certified(1002), 0);
    company.a->now_ms += 60000;
    isle_turn(company.a);
    certify(1003, true);
    assert_int_equal(certified(1003), ISLE_FRAGMENTS);
    company_end();
}

/* Nothing of it is heard for a while, and people are told what it did. */
static void who_sends_too_much_has_its_link_closed(void **state)
{
    (void)state;
    enum { ALLOWED = 30, MORE = 25 };
    company_begin("peers-closed", 3, true);
    played_greet(company.b, company.a);
    played_greet(company.c, company.a);
    for (uint64_t session = 1; session <= ALLOWED + 10; session++) {
        played_hello(company.b)->session = 5000 + session;
        company_say(company.b);
    }
    assert_true(company_info(B).up); /* some too many: they are passed over */
    assert_string_equal(company_info(B).fault, "it sends what nobody can use");
    overhear_begin();
    for (uint64_t session = ALLOWED + 11; session <= ALLOWED + MORE; session++) {
        played_hello(company.b)->session = 5000 + session;
        (void)!link_say(company.b->link, A, &company.b->out);
        for (int i = 0; i < 20; i++)
            isle_turn(company.a);
    }
    isle_wait(!company_info(B).up);
    overhear_assert_once(overhear_end(), "island b: it sends more greetings of new sessions than anybody needs");
    assert_int_equal(company_info(B).fault_kind, PEER_FAULT_FLOOD);
    assert_non_null(strstr(company_info(B).fault, "its link is closed for 30 s"));
    assert_string_equal(company_info(B).note, company_info(B).fault);
    isle_tick(company.a); /* it is told the others at once as one that is not heard */
    assert_true(bitset_has(peers_silent(company.a->peers), B) && !bitset_has(peers_silent(company.a->peers), C));
    assert_true(company_info(C).up);
    assert_int_equal(peers_refused(company.a->peers).strangers, 0);
    company.a->now_ms += 30000 + 60000;
    isle_turn(company.a);
    assert_string_equal(company_info(B).fault, ""); /* not for ever */
    company_end();
}

static void who_is_silent_is_away_and_comes_back_with_a_word(void **state)
{
    (void)state;
    company_begin("peers-silent", 2, true);
    played_greet(company.b, company.a);
    assert_posted(SYNC_EV_PEER_UP, B);
    uint64_t heard_ms = company.a->now_ms;
    company.a->now_ms = heard_ms + SILENT_MS;
    isle_tick(company.a);
    assert_true(company_info(B).up);
    company.a->now_ms++;
    isle_tick(company.a);
    assert_false(company_info(B).up || company_info(B).refused);
    assert_string_equal(company_info(B).note, "silent");
    assert_int_equal(company_info(B).heard_ms, heard_ms);
    assert_posted(SYNC_EV_PEER_DOWN, B);
    company.a->now_ms += 10000;
    isle_tick(company.a);
    assert_nothing_posted(SYNC_EV_PEER_DOWN); /* said once */
    played_beat(company.b);
    company_say(company.b);
    isle_wait(company_info(B).up);
    assert_posted(SYNC_EV_PEER_UP, B);
    assert_posted(SYNC_EV_HEARTBEAT, B); /* in this order: up forgets what was said before */
    company_end();
}

/* Who would be heard, and not say how it stands, would have others wait for it for ever. */
static void greetings_and_old_words_are_no_sign_of_life(void **state)
{
    (void)state;
    for (int old = 0; old < 2; old++) {
        company_begin("peers-greets-on", 2, true);
        struct event event;
        played_greet(company.b, company.a);
        uint64_t heard_ms = company.a->now_ms, sequence = played_beat(company.b)->sequence;
        company_say(company.b);
        isle_wait(isle_took_sync(company.a, SYNC_EV_HEARTBEAT, &event));
        while (company.a->now_ms <= heard_ms + 10 * SILENT_MS) {
            company.a->now_ms += 1000;
            if (old)
                played_beat(company.b)->sequence = sequence;
            else
                played_hello(company.b);
            company_say(company.b);
            isle_tick(company.a);
        }
        assert_false(company_info(B).up);
        assert_int_equal(company_info(B).heard_ms, heard_ms);
        assert_true(bitset_has(peers_silent(company.a->peers), B));
        company_end();
    }
}

static void a_goodbye_is_an_end_until_the_next_greeting(void **state)
{
    (void)state;
    company_begin("peers-bye", 2, true);
    played_greet(company.b, company.a);
    played_settle(company.b, A, WIRE_HELLO);
    company.b->out.type = WIRE_BYE;
    snprintf(company.b->out.bye.reason, sizeof company.b->out.bye.reason, "going home");
    played_say(company.b, A);
    isle_wait(!company_info(B).up);
    assert_string_equal(company_info(B).note, "going home");
    assert_false(company_info(B).refused);
    assert_posted(SYNC_EV_PEER_DOWN, B);
    company.a->now_ms += HELLO_MS;
    struct wire_key key = {.kind = WIRE_RESULT, .version = 9};
    played_say_fetch(company.b, A, &key);
    played_beat(company.b); /* one that was still on its way */
    played_say(company.b, A);
    isle_wait(played_heard(company.b) &&
              (assert_int_not_equal(company.b->in.type, WIRE_DONE), company.b->in.type == WIRE_HELLO));
    assert_nothing_posted(SYNC_EV_HEARTBEAT);
    assert_false(company_info(B).up);
    played_greet(company.b, company.a);
    assert_posted(SYNC_EV_PEER_UP, B);
    peers_bye(company.a->peers, "enough");
    isle_wait(played_heard_type(company.b, WIRE_BYE));
    assert_string_equal(company.b->in.bye.reason, "enough");
    company_end();
}

static void a_restart_is_seen_and_what_was_said_before_is_void(void **state)
{
    (void)state;
    company_begin("peers-restart", 2, true);
    played_greet(company.b, company.a);
    struct wire_heartbeat *beat = played_beat(company.b);
    beat->step = 77;
    beat->trainer = WIRE_TRAINER_TRAINING;
    company_say(company.b);
    assert_true(peers_heard(company.a->peers));
    assert_int_equal(company_info(B).step, 77);
    struct event event;
    while (isle_took(company.a, EVENT_SYNC, &event)) {
    }
    company.b->session++;
    played_hello(company.b);
    company_say(company.b);
    assert_posted(SYNC_EV_PEER_DOWN, B);
    assert_posted(SYNC_EV_PEER_UP, B);
    assert_false(peers_heard(company.a->peers)); /* the new one has not said how it stands */
    assert_int_equal(company_info(B).step, 0);
    assert_int_equal(company_info(B).trainer, WIRE_TRAINER_NONE);
    /* A heartbeat of the session before is not believed; it is answered by a greeting, not too often. */
    while (played_heard(company.b)) {
    }
    company.a->now_ms += HELLO_MS;
    for (int k = 0; k < 3; k++) {
        beat = played_beat(company.b);
        beat->session = company.b->session - 1;
        beat->step = 99;
        beat->fragments[0].at.version = 9;
        played_say(company.b, A);
    }
    played_beat(company.b)->step = 5;
    played_say(company.b, A);
    assert_int_equal(played_settle(company.b, A, WIRE_HELLO), 1);
    assert_int_equal(company_info(B).step, 5);
    assert_posted(SYNC_EV_HEARTBEAT, B);
    assert_nothing_posted(SYNC_EV_HEARTBEAT); /* one of four */
    company_end();
}

/* ---- the plan, and what is refused ---- */

/* The one whose plan cannot be used would be asked again and again. */
static void the_plan_is_asked_of_all_who_have_it_in_turn(void **state)
{
    (void)state;
    company_begin("peers-plan-turns", 3, false);
    struct digest plan_id = digest_of("a plan", 6);
    for (uint32_t i = B; i <= C; i++) {
        struct played *played = i == B ? company.b : company.c;
        struct wire_hello *hello = played_hello(played);
        hello->plan_known = true;
        hello->plan_id = plan_id;
        played_say(played, A);
        isle_wait(company_info(i).up);
        played_beat(played);
        company_say(played);
    }
    bool asked[ISLE_MAX] = {false};
    for (int k = 0; k < 2; k++) {
        isle_tick(company.a);
        asked[B] |= played_settle(company.b, A, WIRE_FETCH) > 0;
        asked[C] |= played_settle(company.c, A, WIRE_FETCH) > 0;
        company.a->now_ms += 2000;
    }
    assert_true(asked[B] && asked[C]);
    company_end();
}

static void announce_plan(struct played *played, const char *name)
{
    played_hello(played)->plan_known = true;
    played->out.hello.plan_id = digest_of(name, strlen(name));
    company_say(played);
}

/* Whoever is heard first: the others have their time to say another one. */
static void no_plan_is_asked_for_before_others_could_be_heard(void **state)
{
    (void)state;
    company_begin("peers-plan-first", 3, false);
    announce_plan(company.b, "one");
    isle_wait(company_info(B).up);
    isle_tick(company.a);
    company.a->now_ms += 1999;
    isle_tick(company.a);
    assert_int_equal(played_settle(company.b, A, WIRE_FETCH), 0);
    company.a->now_ms++;
    isle_tick(company.a);
    assert_int_equal(played_settle(company.b, A, WIRE_FETCH), 1);
    struct bitset holders = peers_plan_holders(company.a->peers);
    assert_true(bitset_has(&holders, B));
    /* Of as many, the one that the lower id announces. */
    announce_plan(company.c, "another");
    holders = peers_plan_holders(company.a->peers);
    assert_true(bitset_has(&holders, B) && !bitset_has(&holders, C));
    company_end();
}

static void the_plan_of_most_voters_is_the_runs(void **state)
{
    (void)state;
    const struct digest one = digest_of("one", 3), two = digest_of("two", 3);
    struct plan_said said[] = {
        {.id = 7, .plan = one}, {.id = 3, .voter = true, .plan = two}, {.id = 5, .voter = true, .plan = one},
        {.id = 9, .plan = two}, {.id = 4, .voter = true, .plan = one},
    };
    const struct plan_said many[] = {
        {.id = 1, .plan = one}, {.id = 2, .plan = one}, {.id = 3, .voter = true, .plan = two}};
    assert_int_equal(plan_of_most(many, 3), 2); /* who does not vote has less to say */
    assert_int_equal(plan_of_most(said, 0), 0);
    assert_int_equal(plan_of_most(said, 1), 0);
    assert_int_equal(plan_of_most(said + 1, 1), 0);
    assert_true(digest_equal(&said[plan_of_most(said, 2)].plan, &two)); /* a voter more than who is none */
    assert_true(digest_equal(&said[plan_of_most(said, 3)].plan, &one)); /* as many voters; more members */
    assert_true(digest_equal(&said[plan_of_most(said, 4)].plan, &two)); /* as many of both: the lowest id */
    assert_true(digest_equal(&said[plan_of_most(said, 5)].plan, &one));
}

static void that_a_contribution_of_ours_is_refused_is_told(void **state)
{
    (void)state;
    struct event event;
    struct wire_key key = {.kind = WIRE_CONTRIBUTION, .fragment = 1, .version = 3, .owner = B, .island = A};
    company_begin("peers-refused", 2, true);
    played_greet(company.b, company.a);
    played_say_done(company.b, A, &key, WIRE_RECEIVED);
    played_settle(company.b, A, WIRE_DONE);
    assert_nothing_posted(SYNC_EV_TURNED_DOWN);
    played_say_done(company.b, A, &key, WIRE_REFUSED);
    played_settle(company.b, A, WIRE_DONE);
    assert_true(isle_took_sync(company.a, SYNC_EV_TURNED_DOWN, &event));
    assert_int_equal(event.sync.member, B);
    assert_true(wire_key_equal(&event.sync.key, &key));
    company_end();
}

static void greet_as(uint64_t session)
{
    company.b->session = session;
    played_hello(company.b);
    company_say(company.b);
}

/* A copy of a disk, or of a configuration: both machines are let in, and each undoes what the other said. */
static void two_machines_with_one_key_are_told(void **state)
{
    (void)state;
    company_begin("peers-duplicate", 2, true);
    played_greet(company.b, company.a);
    for (uint64_t k = 0; k < 6; k++) /* however often it is started again */
        greet_as(1000 + k);
    greet_as(1004); /* a greeting of the session before was long on its way */
    greet_as(1005);
    assert_int_equal(company_info(B).duplicate_key_ms, 0);
    company.a->now_ms += 60000; /* and once more, much later */
    greet_as(1004);
    greet_as(1005);
    assert_int_equal(company_info(B).duplicate_key_ms, 0);
    overhear_begin();
    for (int k = 0; k < 3; k++) {
        company.a->now_ms += 1000;
        greet_as(1004);
        greet_as(1005);
    }
    assert_int_equal(company_info(B).duplicate_key_ms, company.a->now_ms);
    overhear_assert_once(overhear_end(), "two machines speak with the key of island b");
    company_end();
}

/* As a stopped daemon: the kernel takes connections for it, and nobody answers. That its key is wrong is no more likely
 * than before. */
/* As all who own say. It asks to own again when one of them gets through. */
static void who_is_dialled_in_vain_says_so_and_need_not_own(void **state)
{
    (void)state;
    company_begin("peers-in-vain", 2, false);
    mem_free(company.a->conf.listen); /* it would, as far as it knows */
    assert_ok(mem_strdup("*:7600", &company.a->conf.listen));
    played_greet(company.b, company.a);
    assert_false(peers_undialled(company.a->peers));
    static const uint8_t says[2][2] = {{CONFIG_OWNER_AUTO, CONFIG_OWNER_DIALS},
                                       {CONFIG_OWNER_NO, CONFIG_OWNER_NO_DIALS}};
    for (int k = 0; k < 4; k++) {
        bool no = k / 2 != 0, in_vain = k % 2 == 0;
        company.a->conf.owner = no ? CONFIG_OWNER_NO : CONFIG_OWNER_AUTO;
        played_beat(company.b);
        company.b->out.heartbeat.undialled = in_vain;
        company_say(company.b);
        isle_tick(company.a);
        assert_int_equal(peers_undialled(company.a->peers), in_vain);
        uint8_t request = says[no][in_vain];
        isle_wait(played_heard_type(company.b, WIRE_HELLO) && company.b->in.hello.word.owner_choice == request);
    }
    company_end();
}

/* What is configured stands in its word until its line was seen to carry far less. */
static void an_uplink_that_the_line_has_not_is_not_stated(void **state)
{
    (void)state;
    char text[CAPS_TEXT_BYTES];
    company_begin("peers-uplink", 2, false);
    played_greet(company.b, company.a);
    isle_wait(played_heard_type(company.b, WIRE_HELLO));
    assert_int_equal(company.b->in.hello.word.uplink, company.a->conf.uplink);
    for (uint64_t i = 0; i < 70; i++) {
        company.a->now_ms += OWN_UPLINK_WINDOW_MS / 32;
        company.a->uplink_bits = company.a->conf.uplink / 100 - i;
        isle_tick(company.a);
    }
    isle_wait(played_heard_type(company.b, WIRE_HELLO) &&
              company.b->in.hello.word.uplink == company.a->conf.uplink / 100 * 2);
    assert_true(peers_capped(company.a->peers, text));
    assert_non_null(strstr(text, "[net] uplink says"));
    company_end();
}

static void beat_for(uint64_t ms)
{
    for (uint64_t until_ms = company.a->now_ms + ms; company.a->now_ms < until_ms;) {
        company.a->now_ms += 500;
        (void)played_beat(company.b);
        company_say(company.b);
        isle_tick(company.a);
    }
}

/* B is heard for so long, and then says nothing; the last that a told it. */
static bool told_in_vain(uint64_t heard_for_ms)
{
    beat_for(heard_for_ms);
    isle_wait(played_heard_type(company.b, WIRE_HEARTBEAT));
    while (played_heard_type(company.b, WIRE_HEARTBEAT))
        continue;
    return company.b->in.heartbeat.undialled;
}

/* By dialling before it joined, or before it was stopped. An owner that is heard needs some time to say whether it gets
 * through; one that does proves it. */
static void what_was_found_out_before_holds_until_an_owner_knows_better(void **state)
{
    (void)state;
    for (int through = 0; through < 2; through++) {
        company.run = isle_run_new("peers-foretold", 2, NULL);
        company.b = through ? NULL : played_open(company.run, B, 0, NULL); /* one dials the other */
        company.c = NULL;
        isle_listen(company.run, A);
        company.a = isle_open(company.run, A, NULL, 0);
        assert_false(peers_undialled(company.a->peers));
        isle_close_islands(company.a);
        company.a->configs.view.members[A].as.owner_choice = CONFIG_OWNER_DIALS;
        assert_ok(isle_open_islands(company.a, 5));
        isle_tick(company.a);
        assert_true(peers_undialled(company.a->peers));
        if (through)
            company.b = played_open(company.run, B, 0, NULL);
        played_greet(company.b, company.a);
        isle_tick(company.a);
        assert_int_equal(peers_undialled(company.a->peers), !through);
        beat_for(through ? 0 : 19000);
        assert_int_equal(peers_undialled(company.a->peers), !through);
        beat_for(through ? 0 : 2000);
        assert_false(peers_undialled(company.a->peers));
        company_end();
    }
}

/* As after a cut, when our dialling needs a moment longer than its own. */
static void only_who_is_heard_is_told_that_it_is_dialled_in_vain(void **state)
{
    (void)state;
    company.run = isle_run_new("peers-behind", 2, NULL);
    isle_listen(company.run, A);
    company.b = played_open(company.run, B, 0, NULL);
    company.c = NULL;
    snprintf(company.run->addresses[B], sizeof company.run->addresses[B], "127.0.0.1:1"); /* nobody is there */
    company.a = isle_open(company.run, A, NULL, 0);
    for (int cuts = 0; cuts < 2; cuts++) {
        if (cuts == 0)
            played_greet(company.b, company.a);
        played_beat(company.b);
        company_say(company.b);
        isle_wait(company_info(B).up);
        assert_false(told_in_vain(13000));
        if (cuts == 1)
            assert_true(told_in_vain(4000));
        company.a->now_ms += 20000;
        isle_tick(company.a);
        assert_false(company_info(B).up);
    }
    company_end();
}

/* Of what a configuration says of a member nothing ends us. Its own greeting brings it back. */
static void a_member_that_cannot_be_dialled_is_said_to_be_and_may_dial_us(void **state)
{
    (void)state;
    company_begin("peers-undialled", 3, false);
    struct view_member *member = &company.a->configs.view.members[C];
    struct view_changes changes = {.changed = {{0}}};
    snprintf(member->as.address, sizeof member->as.address, "*:7600");
    bitset_add(&changes.changed, C);
    assert_ok(peers_members(company.a->peers, &changes));
    assert_non_null(strstr(company_info(C).note, "it cannot be dialled, so it has to dial us: "));
    assert_non_null(strstr(company_info(C).note, "*:7600"));
    played_greet(company.b, company.a);
    assert_posted(SYNC_EV_PEER_UP, B);
    company_end();
}

static void who_does_not_answer_is_not_taken_for_one_with_a_wrong_key(void **state)
{
    (void)state;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&address, bytes), 0);
    assert_int_equal(listen(fd, 5), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &bytes), 0);
    company.run = isle_run_new("peers-hung", 2, NULL);
    snprintf(company.run->addresses[B], sizeof company.run->addresses[B], "127.0.0.1:%u", ntohs(address.sin_port));
    company.b = company.c = NULL;
    company.a = isle_open(company.run, A, NULL, 0);
    isle_wait(company_info(B).note[0] != '\0'); /* the time of a handshake */
    assert_non_null(strstr(company_info(B).note, "does not answer"));
    assert_false(company_info(B).refused);
    close(fd);
    company_end();
}

/* ---- out of memory ---- */

static void without_memory_there_are_no_peers_and_nothing_is_left(void **state)
{
    (void)state;
    company_begin("peers-memory", 2, false);
    isle_close_islands(company.a);
    enum err err = ERR_NOMEM;
    int n = 0;
    for (; err != ERR_OK; n++) {
        mem_fail_after(n);
        err = isle_open_islands(company.a, 5);
        mem_fail_after(-1);
        if (err != ERR_OK)
            assert_int_equal(err, ERR_NOMEM);
        assert_true((company.a->peers == NULL) == (err != ERR_OK));
    }
    print_message("%d allocations\n", n - 1);
    assert_true(n > 5);
    company_end();
}

/* The engine then ends in order, with turns and ticks to the last. */
static void without_memory_for_the_plan_peers_go_on_without_it(void **state)
{
    (void)state;
    enum err err = ERR_NOMEM;
    int n = 0;
    for (; err != ERR_OK; n++) {
        company_begin("peers-plan-memory", 2, false);
        played_greet(company.b, company.a);
        isle_make_plan(company.a);
        mem_fail_after(n);
        err = isle_tell_plan(company.a);
        mem_fail_after(-1);
        assert_true(err == ERR_OK || err == ERR_NOMEM);
        peers_announce(company.a->peers);
        isle_turn(company.a);
        company.a->now_ms += BEAT_MS;
        isle_tick(company.a);
        played_next_beat(company.b);
        company_end();
    }
    assert_true(n > 4);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(islands_greet_each_other_and_are_up),
        cmocka_unit_test(who_is_of_another_run_is_refused_with_the_reason_until_that_changes),
        cmocka_unit_test(a_plan_that_becomes_known_is_compared_with_those_announced),
        cmocka_unit_test(a_plan_that_becomes_known_brings_nobody_back),
        cmocka_unit_test(another_run_in_the_header_and_a_key_that_is_not_admitted_are_told),
        cmocka_unit_test(strangers_are_counted_and_named),
        cmocka_unit_test(a_greeting_goes_on_until_both_know_the_same),
        cmocka_unit_test(each_complaint_about_an_island_is_logged_and_none_is_repeated),
        cmocka_unit_test(who_comes_and_goes_fills_no_log),
        cmocka_unit_test(messages_about_the_next_epoch_have_a_quota),
        cmocka_unit_test(questions_about_newcomers_have_a_quota),
        cmocka_unit_test(false_signatures_of_versions_have_a_quota),
        cmocka_unit_test(who_sends_too_much_has_its_link_closed),
        cmocka_unit_test(who_is_silent_is_away_and_comes_back_with_a_word),
        cmocka_unit_test(greetings_and_old_words_are_no_sign_of_life),
        cmocka_unit_test(a_goodbye_is_an_end_until_the_next_greeting),
        cmocka_unit_test(a_restart_is_seen_and_what_was_said_before_is_void),
        cmocka_unit_test(the_plan_is_asked_of_all_who_have_it_in_turn),
        cmocka_unit_test(no_plan_is_asked_for_before_others_could_be_heard),
        cmocka_unit_test(the_plan_of_most_voters_is_the_runs),
        cmocka_unit_test(that_a_contribution_of_ours_is_refused_is_told),
        cmocka_unit_test(two_machines_with_one_key_are_told),
        cmocka_unit_test(who_is_dialled_in_vain_says_so_and_need_not_own),
        cmocka_unit_test(an_uplink_that_the_line_has_not_is_not_stated),
        cmocka_unit_test(what_was_found_out_before_holds_until_an_owner_knows_better),
        cmocka_unit_test(only_who_is_heard_is_told_that_it_is_dialled_in_vain),
        cmocka_unit_test(a_member_that_cannot_be_dialled_is_said_to_be_and_may_dial_us),
        cmocka_unit_test(who_does_not_answer_is_not_taken_for_one_with_a_wrong_key),
        cmocka_unit_test(without_memory_there_are_no_peers_and_nothing_is_left),
        cmocka_unit_test(without_memory_for_the_plan_peers_go_on_without_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
