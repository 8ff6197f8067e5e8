/* peers: who is greeted, who is refused and why, who is away, whose word counts. One island with all its parts, others
 * played on real links; the clock is the test's. */
#include "tests/lib/testlib.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/mem.h"
#include "tests/lib/company.h"
#include "tests/lib/isle.h"
#include "tests/lib/overhear.h"
#include "tests/lib/played.h"

/* As the header and docs/PROTOCOL.md have them. */
enum { SILENT_MS = 2500, BEAT_MS = 1000, HELLO_MS = 1000 };

static struct company company;
static struct isle_run *run;
static struct isle *a;
static struct played *b, *c;

static void begin(const char *name, uint32_t count, bool plan)
{
    company = company_begin(name, count, plan);
    run = company.run;
    a = company.a;
    b = company.b;
    c = company.c;
}

static void end(void)
{
    company = (struct company){run, a, b, c}; /* some tests open the others themselves */
    company_end(&company);
}

static struct peer_info info(uint32_t peer)
{
    return peers_info(a->peers, peer);
}

static void assert_posted(enum sync_event_type type, uint32_t member)
{
    struct event event;
    if (!isle_took_sync(a, type, &event))
        fail_msg("no event %d of member %u", (int)type, member);
    assert_int_equal(event.sync.member, member);
}

static void assert_nothing_posted(enum sync_event_type type)
{
    struct event event;
    assert_false(isle_took_sync(a, type, &event));
}

static const struct wire_heartbeat *next_beat(struct played *played)
{
    isle_wait(played_heard_type(played, WIRE_HEARTBEAT));
    return &played->in.heartbeat;
}

/* ---- greetings ---- */

static void islands_greet_each_other_and_are_up(void **state)
{
    (void)state;
    begin("peers-greet", 2, false);
    const struct wire_hello *hello = &b->in.hello;
    assert_true(digest_equal(&hello->run_id, &run->spec.digest));
    assert_false(hello->plan_known);
    assert_int_equal(hello->session, 1000);
    assert_int_equal(hello->island, A);
    assert_string_equal(hello->name, "a");
    assert_int_equal(hello->window_kib, 16 * 1024);
    assert_false(info(B).up || info(B).refused || peers_heard(a->peers));
    assert_string_equal(info(B).note, "");
    assert_int_equal(info(B).heard_ms, 0);
    played_greet(b, a);
    assert_posted(SYNC_EV_PEER_UP, B);
    assert_int_equal(info(B).heard_ms, a->now_ms);
    assert_false(peers_heard(a->peers)); /* it has not said yet how it stands */
    assert_int_equal(next_beat(b)->session, 1000);
    assert_int_equal(b->in.heartbeat.sequence, 1);
    played_beat(b);
    company_say(b);
    assert_posted(SYNC_EV_HEARTBEAT, B);
    assert_true(peers_heard(a->peers));
    end();
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
    begin("peers-refuse", 2, true);
    for (int how = 0; how < 4; how++) {
        b->session++;
        spoil_hello(how, played_hello(b));
        played_say(b, A);
        isle_wait(info(B).refused && strstr(info(B).note, notes[how]) != NULL);
        /* Nothing else is heard of it, and time does not mend it. */
        played_beat(b);
        played_say(b, A);
        a->now_ms += 3600 * 1000;
        isle_tick(a);
        isle_wait(played_heard_type(b, WIRE_HELLO)); /* the answer to a heartbeat of somebody unknown, or the tick's */
        assert_true(info(B).refused && !info(B).up);
        assert_nothing_posted(SYNC_EV_PEER_UP);
        assert_nothing_posted(SYNC_EV_HEARTBEAT);
        assert_non_null(strstr(info(B).note, notes[how]));
    }
    played_greet(b, a);
    assert_false(info(B).refused);
    assert_string_equal(info(B).note, "");
    assert_posted(SYNC_EV_PEER_UP, B);
    /* One who was here, and is refused now, is not heard any more. */
    spoil_hello(0, played_hello(b));
    played_say(b, A);
    isle_wait(info(B).refused);
    while (played_heard(b)) {
    }
    a->now_ms += HELLO_MS;
    played_beat(b);
    played_say(b, A);
    isle_wait(played_heard_type(b, WIRE_HELLO));
    assert_nothing_posted(SYNC_EV_HEARTBEAT);
    end();
}

static void a_plan_that_becomes_known_is_compared_with_those_announced(void **state)
{
    (void)state;
    begin("peers-plans", 3, false);
    struct model_plan *plan = isle_model_plan(run);
    played_hello(b)->plan_known = true;
    b->out.hello.plan_id = plan->plan->digest;
    played_say(b, A);
    isle_wait(info(B).up);
    played_hello(c)->plan_known = true; /* another one */
    played_say(c, A);
    isle_wait(info(C).up);
    assert_posted(SYNC_EV_PEER_UP, B);
    struct event event;
    while (isle_took_sync(a, SYNC_EV_PEER_UP, &event)) {
    }
    isle_know_plan(a);
    assert_posted(SYNC_EV_PEER_UP, B); /* the core is new and has heard nothing */
    assert_nothing_posted(SYNC_EV_PEER_UP);
    assert_true(info(B).up && !info(B).refused);
    assert_true(info(C).refused);
    assert_non_null(strstr(info(C).note, "other tensors"));
    isle_wait(played_heard_type(b, WIRE_HELLO) && b->in.hello.plan_known);
    assert_true(digest_equal(&b->in.hello.plan_id, &plan->plan->digest));
    model_plan_free(plan);
    end();
}

/* Away is away: the core waits for nobody who is silent, and is told when that one is heard again. */
static void a_plan_that_becomes_known_brings_nobody_back(void **state)
{
    (void)state;
    begin("peers-plan-silent", 2, false);
    played_greet(b, a);
    assert_posted(SYNC_EV_PEER_UP, B);
    a->now_ms += SILENT_MS + 1;
    isle_tick(a);
    assert_posted(SYNC_EV_PEER_DOWN, B);
    while (played_heard(b)) {
    }
    isle_know_plan(a);
    isle_wait(played_heard_type(b, WIRE_HELLO) && b->in.hello.plan_known);
    assert_nothing_posted(SYNC_EV_PEER_UP);
    assert_false(info(B).up);
    played_beat(b);
    company_say(b);
    assert_posted(SYNC_EV_PEER_UP, B);
    assert_true(info(B).up);
    end();
}

static void another_run_in_the_header_and_a_key_that_is_not_admitted_are_told(void **state)
{
    (void)state;
    run = isle_run_new("peers-tags", 3, NULL);
    b = played_open(run, B, 12345, NULL);
    struct ident ours = run->idents[A], other;
    assert_ok(ident_generate(&other));
    run->idents[A] = other; /* c has another key for a */
    c = played_open(run, C, 0, NULL);
    run->idents[A] = ours;
    a = isle_open(run, A, NULL, 0);
    isle_wait(info(C).refused);
    assert_non_null(strstr(info(C).note, "it does not admit our key"));
    struct link_event event;
    struct link_message message;
    while (!link_up(b->link, A, false)) {
        (void)!link_recv(b->link, &message);
        while (link_event(b->link, &event)) {
        }
        isle_turn_all();
    }
    played_hello(b);
    played_say(b, A);
    isle_wait(info(B).refused);
    assert_non_null(strstr(info(B).note, "another run spec"));
    assert_false(info(B).up || info(C).up);
    end();
}

static void strangers_are_counted_and_named(void **state)
{
    (void)state;
    run = isle_run_new("peers-strangers", 2, NULL);
    isle_listen(run, A);
    b = played_open(run, B, 0, NULL);
    run->addresses[B][0] = '\0'; /* b dials */
    c = NULL;
    a = isle_open(run, A, NULL, 0);
    assert_int_equal(peers_totals(a->peers).strangers, 0);
    struct ident other;
    assert_ok(ident_generate(&other));
    struct played *mallory = played_open(run, B, 0, &other);
    a->now_ms += 17;
    isle_wait(peers_totals(a->peers).strangers > 0);
    assert_non_null(strstr(peers_totals(a->peers).stranger, played_connection_key(&other)));
    assert_int_equal(peers_totals(a->peers).stranger_ms, a->now_ms);
    assert_false(info(B).up);
    played_close(mallory);
    played_greet(b, a); /* the real one gets through */
    end();
}

static void a_greeting_goes_on_until_both_know_the_same(void **state)
{
    (void)state;
    begin("peers-again", 2, true);
    /* Not greeted: every second. */
    for (int k = 0; k < 2; k++) {
        a->now_ms += HELLO_MS;
        isle_tick(a);
        isle_wait(played_heard_type(b, WIRE_HELLO));
    }
    played_greet(b, a); /* it has no plan yet, and is answered */
    isle_wait(played_heard_type(b, WIRE_HELLO));
    a->now_ms += HELLO_MS;
    isle_tick(a);
    isle_wait(played_heard_type(b, WIRE_HELLO));
    played_hello(b)->plan_known = true;
    b->out.hello.plan_id = a->plan->plan->digest;
    company_say(b);
    /* Settled: no more of them, but in answer to one, and not for every one of a flood. */
    for (int k = 0; k < 5; k++) {
        a->now_ms += HELLO_MS;
        isle_tick(a);
        peers_announce(a->peers);
    }
    int hellos = 0;
    isle_turn(a);
    isle_wait(played_heard(b) &&
              (hellos += b->in.type == WIRE_HELLO, b->in.type == WIRE_HEARTBEAT && b->in.heartbeat.sequence >= 6));
    assert_int_equal(hellos, 0);
    for (int k = 0; k < 5; k++) {
        played_hello(b)->plan_known = true;
        b->out.hello.plan_id = a->plan->plan->digest;
        played_say(b, A);
    }
    assert_int_equal(played_settle(b, A, WIRE_HELLO), 1);
    end();
}

/* ---- what is logged ---- */

/* Who sends nonsense all the time must not keep from sight that it has diverged. */
static void each_complaint_about_an_island_is_logged_and_none_is_repeated(void **state)
{
    (void)state;
    begin("peers-complaints", 2, true);
    played_greet(b, a);
    overhear_begin();
    for (int k = 0; k < 2; k++) {
        played_hello(b)->window_kib = 0;
        company_say(b);
        peers_diverged(a->peers, B, 3);
        peers_plan_refused(a->peers, B, "nothing in it");
        spoil_hello(0, played_hello(b));
        played_say(b, A);
        isle_wait(info(B).refused);
        played_greet(b, a);
        isle_wait(!info(B).refused);
    }
    const char *log = overhear_end();
    overhear_assert_once(log, "island b sent something we drop: window of 0 KiB");
    overhear_assert_once(log, "island b has diverged in fragment 3");
    overhear_assert_once(log, "the plan of island b cannot be used: nothing in it");
    overhear_assert_once(log, "island b is refused: it has another run spec");
    end();
}

/* ---- up, away, back, gone ---- */

static void say_wishes(const struct wire_epoch *wish, int count)
{
    for (int k = 1; k <= count; k++) {
        played_say_epoch(b, A, wish);
        if (k % 10 == 0) /* a queue does not hold them all */
            (void)played_settle(b, A, WIRE_ACK);
    }
}

/* Far more than anybody has to say: what is beyond is not looked at, and named. */
static void messages_about_the_next_epoch_have_a_quota(void **state)
{
    (void)state;
    struct wire_epoch wish = {.type = WIRE_WISH, .wish = {.kind = WIRE_WISH_EVICT, .id = 1, .number = 99}};
    begin("peers-flood", 2, true);
    played_greet(b, a);
    assert_string_equal(info(B).fault, "");
    overhear_begin();
    say_wishes(&wish, 90);
    assert_string_equal(info(B).fault, "");
    say_wishes(&wish, 30);
    overhear_assert_once(overhear_end(), "more messages about the next epoch than anybody needs");
    assert_string_equal(info(B).fault, "it sends what nobody can use");
    end();
}

static void who_is_silent_is_away_and_comes_back_with_a_word(void **state)
{
    (void)state;
    begin("peers-silent", 2, true);
    played_greet(b, a);
    assert_posted(SYNC_EV_PEER_UP, B);
    uint64_t heard_ms = a->now_ms;
    a->now_ms = heard_ms + SILENT_MS;
    isle_tick(a);
    assert_true(info(B).up);
    a->now_ms++;
    isle_tick(a);
    assert_false(info(B).up || info(B).refused);
    assert_string_equal(info(B).note, "silent");
    assert_int_equal(info(B).heard_ms, heard_ms);
    assert_posted(SYNC_EV_PEER_DOWN, B);
    a->now_ms += 10000;
    isle_tick(a);
    assert_nothing_posted(SYNC_EV_PEER_DOWN); /* said once */
    played_beat(b);
    company_say(b);
    isle_wait(info(B).up);
    assert_posted(SYNC_EV_PEER_UP, B);
    assert_posted(SYNC_EV_HEARTBEAT, B); /* in this order: up forgets what was said before */
    end();
}

static void a_goodbye_is_an_end_until_the_next_greeting(void **state)
{
    (void)state;
    begin("peers-bye", 2, true);
    played_greet(b, a);
    played_settle(b, A, WIRE_HELLO);
    b->out.type = WIRE_BYE;
    snprintf(b->out.bye.reason, sizeof b->out.bye.reason, "going home");
    played_say(b, A);
    isle_wait(!info(B).up);
    assert_string_equal(info(B).note, "going home");
    assert_false(info(B).refused);
    assert_posted(SYNC_EV_PEER_DOWN, B);
    a->now_ms += HELLO_MS;
    struct wire_key key = {.kind = WIRE_RESULT, .version = 9};
    played_say_fetch(b, A, &key);
    played_beat(b); /* one that was still on its way */
    played_say(b, A);
    isle_wait(played_heard(b) && (assert_int_not_equal(b->in.type, WIRE_DONE), b->in.type == WIRE_HELLO));
    assert_nothing_posted(SYNC_EV_HEARTBEAT);
    assert_false(info(B).up);
    played_greet(b, a);
    assert_posted(SYNC_EV_PEER_UP, B);
    peers_bye(a->peers, "enough");
    isle_wait(played_heard_type(b, WIRE_BYE));
    assert_string_equal(b->in.bye.reason, "enough");
    end();
}

static void a_restart_is_seen_and_what_was_said_before_is_void(void **state)
{
    (void)state;
    begin("peers-restart", 2, true);
    played_greet(b, a);
    struct wire_heartbeat *beat = played_beat(b);
    beat->step = 77;
    beat->trainer = WIRE_TRAINER_TRAINING;
    company_say(b);
    assert_true(peers_heard(a->peers));
    assert_int_equal(info(B).step, 77);
    struct event event;
    while (isle_took(a, EVENT_SYNC, &event)) {
    }
    b->session++;
    played_hello(b);
    company_say(b);
    assert_posted(SYNC_EV_PEER_DOWN, B);
    assert_posted(SYNC_EV_PEER_UP, B);
    assert_false(peers_heard(a->peers)); /* the new one has not said how it stands */
    assert_int_equal(info(B).step, 0);
    assert_int_equal(info(B).trainer, WIRE_TRAINER_NONE);
    /* A heartbeat of the session before is not believed; it is answered by a greeting, not too often. */
    while (played_heard(b)) {
    }
    a->now_ms += HELLO_MS;
    for (int k = 0; k < 3; k++) {
        beat = played_beat(b);
        beat->session = b->session - 1;
        beat->step = 99;
        beat->fragments[0].version = 9;
        played_say(b, A);
    }
    played_beat(b)->step = 5;
    played_say(b, A);
    assert_int_equal(played_settle(b, A, WIRE_HELLO), 1);
    assert_int_equal(info(B).step, 5);
    assert_posted(SYNC_EV_HEARTBEAT, B);
    assert_nothing_posted(SYNC_EV_HEARTBEAT); /* one of four */
    end();
}

/* ---- the plan, and what is refused ---- */

/* The one whose plan cannot be used would be asked again and again. */
static void the_plan_is_asked_of_all_who_have_it_in_turn(void **state)
{
    (void)state;
    begin("peers-plan-turns", 3, false);
    struct digest plan_id = digest_of("a plan", 6);
    for (uint32_t i = B; i <= C; i++) {
        struct played *played = i == B ? b : c;
        struct wire_hello *hello = played_hello(played);
        hello->plan_known = true;
        hello->plan_id = plan_id;
        played_say(played, A);
        isle_wait(info(i).up);
    }
    bool asked[ISLE_MAX] = {false};
    for (int k = 0; k < 2; k++) {
        isle_tick(a);
        asked[B] |= played_settle(b, A, WIRE_FETCH) > 0;
        asked[C] |= played_settle(c, A, WIRE_FETCH) > 0;
        a->now_ms += 2000;
    }
    assert_true(asked[B] && asked[C]);
    end();
}

static void that_a_contribution_of_ours_is_refused_is_told(void **state)
{
    (void)state;
    struct event event;
    struct wire_key key = {.kind = WIRE_CONTRIBUTION, .fragment = 1, .version = 3, .owner = B, .island = A};
    begin("peers-refused", 2, true);
    played_greet(b, a);
    played_say_done(b, A, &key, WIRE_RECEIVED);
    played_settle(b, A, WIRE_DONE);
    assert_nothing_posted(SYNC_EV_TURNED_DOWN);
    played_say_done(b, A, &key, WIRE_REFUSED);
    played_settle(b, A, WIRE_DONE);
    assert_true(isle_took_sync(a, SYNC_EV_TURNED_DOWN, &event));
    assert_int_equal(event.sync.member, B);
    assert_true(wire_key_equal(&event.sync.key, &key));
    end();
}

static void greet_as(uint64_t session)
{
    b->session = session;
    played_hello(b);
    company_say(b);
}

/* A copy of a disk, or of a configuration: both machines are let in, and each undoes what the other said. */
static void two_machines_with_one_key_are_told(void **state)
{
    (void)state;
    begin("peers-twins", 2, true);
    played_greet(b, a);
    for (uint64_t k = 0; k < 6; k++) /* however often it is started again */
        greet_as(1000 + k);
    greet_as(1004); /* a greeting of the session before was long on its way */
    greet_as(1005);
    assert_int_equal(info(B).twins_ms, 0);
    a->now_ms += 60000; /* and once more, much later */
    greet_as(1004);
    greet_as(1005);
    assert_int_equal(info(B).twins_ms, 0);
    overhear_begin();
    for (int k = 0; k < 3; k++) {
        a->now_ms += 1000;
        greet_as(1004);
        greet_as(1005);
    }
    assert_int_equal(info(B).twins_ms, a->now_ms);
    overhear_assert_once(overhear_end(), "two machines speak with the key of island b");
    end();
}

/* As a stopped daemon: the kernel takes connections for it, and nobody answers. That its key is wrong is no more likely
 * than before. */
static void who_does_not_answer_is_not_taken_for_one_with_a_wrong_key(void **state)
{
    (void)state;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&address, bytes), 0);
    assert_int_equal(listen(fd, 5), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &bytes), 0);
    run = isle_run_new("peers-hung", 2, NULL);
    snprintf(run->addresses[B], sizeof run->addresses[B], "127.0.0.1:%u", ntohs(address.sin_port));
    b = c = NULL;
    a = isle_open(run, A, NULL, 0);
    isle_wait(info(B).note[0] != '\0'); /* the time of a handshake */
    assert_non_null(strstr(info(B).note, "does not answer"));
    assert_false(info(B).refused);
    close(fd);
    end();
}

/* ---- out of memory ---- */

static void without_memory_there_are_no_peers_and_nothing_is_left(void **state)
{
    (void)state;
    begin("peers-memory", 2, false);
    struct peers_conf conf = isle_peers_conf(a, 5);
    struct peers *peers = NULL;
    enum err err = ERR_NOMEM;
    int n = 0;
    for (; err != ERR_OK; n++) {
        mem_fail_after(n);
        err = peers_new(&conf, &peers);
        mem_fail_after(-1);
        if (err != ERR_OK)
            assert_int_equal(err, ERR_NOMEM);
        assert_true((peers == NULL) == (err != ERR_OK));
    }
    print_message("%d allocations\n", n - 1);
    assert_true(n > 5);
    peers_free(peers);
    end();
}

/* The engine then ends in order, with turns and ticks to the last. */
static void without_memory_for_the_plan_peers_go_on_without_it(void **state)
{
    (void)state;
    enum err err = ERR_NOMEM;
    int n = 0;
    for (; err != ERR_OK; n++) {
        begin("peers-plan-memory", 2, false);
        played_greet(b, a);
        isle_make_plan(a);
        struct peers_plan plan = isle_peers_plan(a);
        mem_fail_after(n);
        err = peers_plan_known(a->peers, &plan);
        mem_fail_after(-1);
        assert_true(err == ERR_OK || err == ERR_NOMEM);
        peers_announce(a->peers);
        isle_turn(a);
        a->now_ms += BEAT_MS;
        isle_tick(a);
        next_beat(b);
        end();
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
        cmocka_unit_test(messages_about_the_next_epoch_have_a_quota),
        cmocka_unit_test(who_is_silent_is_away_and_comes_back_with_a_word),
        cmocka_unit_test(a_goodbye_is_an_end_until_the_next_greeting),
        cmocka_unit_test(a_restart_is_seen_and_what_was_said_before_is_void),
        cmocka_unit_test(the_plan_is_asked_of_all_who_have_it_in_turn),
        cmocka_unit_test(that_a_contribution_of_ours_is_refused_is_told),
        cmocka_unit_test(two_machines_with_one_key_are_told),
        cmocka_unit_test(who_does_not_answer_is_not_taken_for_one_with_a_wrong_key),
        cmocka_unit_test(without_memory_there_are_no_peers_and_nothing_is_left),
        cmocka_unit_test(without_memory_for_the_plan_peers_go_on_without_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
