/* peers: when heartbeats come, what they say, and what is read from one: news first, the rest in turn; round trips; the
 * trainer's phases in words. One island with all its parts, another played on a real link; the clock is the test's. */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/digest.h"
#include "tests/lib/company.h"
#include "tests/lib/isle.h"
#include "tests/lib/overhear.h"
#include "tests/lib/played.h"
#include "tests/lib/played_trainer.h"

/* As the header and docs/PROTOCOL.md have them. */
enum { SILENT_MS = 2500, BEAT_MS = 1000, ANNOUNCE_MS = 3, REPEATED_ROWS = 16 };

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

static const struct wire_heartbeat *next_beat(struct played *played)
{
    isle_wait(played_heard_type(played, WIRE_HEARTBEAT));
    return &played->in.heartbeat;
}

/* ---- heartbeats ---- */

static void heartbeats_come_every_second_and_soon_after_news(void **state)
{
    (void)state;
    begin("peers-beats", 2, true);
    played_greet(b, a);
    uint64_t sequence = next_beat(b)->sequence;
    a->now_ms += BEAT_MS - 1;
    isle_tick(a);
    assert_int_equal(played_settle(b, A, WIRE_HEARTBEAT), 0);
    a->now_ms += 1;
    isle_tick(a);
    assert_int_equal(next_beat(b)->sequence, ++sequence); /* one, not two */
    /* News: at once, but what comes within the gap goes together. */
    peers_announce(a->peers);
    peers_flush(a->peers, a->now_ms);
    for (int k = 0; k < ANNOUNCE_MS; k++) {
        peers_announce(a->peers);
        peers_flush(a->peers, a->now_ms + (uint64_t)k);
        assert_in_range(peers_wait_us(a->peers), 1, 1000 * (ANNOUNCE_MS - k)); /* nothing else may wake the loop */
    }
    assert_int_equal(next_beat(b)->sequence, ++sequence);
    peers_flush(a->peers, a->now_ms + ANNOUNCE_MS);
    assert_int_equal(next_beat(b)->sequence, ++sequence);
    peers_flush(a->peers, a->now_ms + 10 * ANNOUNCE_MS); /* nothing new */
    a->now_ms += BEAT_MS + 10 * ANNOUNCE_MS;
    isle_tick(a);
    assert_int_equal(next_beat(b)->sequence, ++sequence);
    end();
}

static bool has_row(const struct wire_heartbeat *beat, uint32_t f)
{
    for (uint32_t i = 0; i < beat->fragments_count; i++)
        if (beat->fragments[i].fragment == f)
            return true;
    return false;
}

/* Greets, and hears the heartbeat that answers it. */
static void greet_b(void)
{
    played_greet(b, a);
    next_beat(b);
}

static const struct wire_heartbeat *announced_beat(void)
{
    a->now_ms += ANNOUNCE_MS;
    peers_announce(a->peers);
    isle_turn(a);
    return next_beat(b);
}

static void a_heartbeat_says_what_changed_first_and_the_rest_in_turn(void **state)
{
    (void)state;
    begin("peers-rows", 2, true);
    played_greet(b, a);
    /* Whoever is new is told everything. */
    assert_int_equal(next_beat(b)->fragments_count, ISLE_FRAGMENTS);
    bool told[ISLE_FRAGMENTS] = {false};
    for (int k = 0; k * REPEATED_ROWS < ISLE_FRAGMENTS; k++) {
        const struct wire_heartbeat *beat = announced_beat();
        assert_int_equal(beat->fragments_count, REPEATED_ROWS);
        for (uint32_t i = 0; i < beat->fragments_count; i++)
            told[beat->fragments[i].fragment] = true;
    }
    for (uint32_t f = 0; f < ISLE_FRAGMENTS; f++)
        assert_true(told[f]);
    end();
}

/* Changes one thing of a fragment that is at version 1. */
static void change(uint32_t f, int what)
{
    static const char texts[] = "xy";
    struct digest hash = digest_of(&texts[what == 1], 1);
    if (what < 2) {
        sync_restore(a->sync, f, what == 0 ? 2 : 1, &hash);
        return;
    }
    if (what == 2) {
        isle_step(
            a,
            &(struct sync_event){
                .type = SYNC_EV_STORED, .fragment = f, .member = SYNC_NOBODY, .owner = B, .version = 2, .hash = hash});
        return;
    }
    isle_step(a, &(struct sync_event){.type = SYNC_EV_TRAINER_UP, .fragment = f, .version = 1});
    isle_step(a, &(struct sync_event){.type = SYNC_EV_SNAPSHOT, .fragment = f});
    isle_step(a, &(struct sync_event){.type = what == 3 ? SYNC_EV_ENCODED : SYNC_EV_REFUSED, .fragment = f});
}

static void all_that_is_said_of_a_fragment_counts_as_news(void **state)
{
    (void)state;
    struct digest hash = digest_of("x", 1);
    for (int what = 0; what < 5; what++) {
        begin("peers-news", 2, true);
        greet_b();
        uint32_t f = (announced_beat()->fragments[0].fragment + 2 * REPEATED_ROWS + 3) % ISLE_FRAGMENTS;
        sync_restore(a->sync, f, 1, &hash);
        assert_int_equal(announced_beat()->fragments[0].fragment, f);
        change(f, what);
        const struct wire_fragment *row = &announced_beat()->fragments[0];
        struct sync_peer_fragment own = sync_own(a->sync, f);
        assert_int_equal(row->fragment, f);
        assert_int_equal(row->version, what == 0 ? 2 : 1);
        assert_true(row->hash_known && digest_equal(&row->hash, &own.hash));
        assert_int_equal(row->held_count, what == 2 ? 1 : 0);
        if (what == 2) {
            const struct wire_held *held = &b->in.heartbeat.held[row->held_first];
            assert_int_equal(held->owner, B);
            assert_memory_equal(held->tag, digest_of("x", 1).byte, sizeof held->tag);
        }
        assert_int_equal(row->contributed, what == 3 ? 2 : 0);
        assert_int_equal(row->abstained, what == 4 ? 2 : 0);
        assert_int_equal(b->in.heartbeat.fragments_count, REPEATED_ROWS); /* it was its turn, too */
        end();
    }
}

static void a_heartbeat_that_is_lost_does_not_matter_for_long(void **state)
{
    (void)state;
    begin("peers-lost", 2, true);
    greet_b();
    uint32_t f = (announced_beat()->fragments[0].fragment + 2 * REPEATED_ROWS + 3) % ISLE_FRAGMENTS;
    struct digest hash = digest_of("x", 1);
    sync_restore(a->sync, f, 5, &hash);
    assert_true(has_row(announced_beat(), f)); /* that one is lost */
    bool again = false;
    for (int k = 0; k * REPEATED_ROWS < ISLE_FRAGMENTS; k++)
        again |= has_row(announced_beat(), f);
    assert_true(again);
    /* Away and back: everything is told again. */
    a->now_ms += SILENT_MS + 1;
    isle_tick(a);
    while (played_heard(b)) {
    }
    played_beat(b);
    played_say(b, A);
    isle_wait(info(B).up);
    isle_wait(played_heard_type(b, WIRE_HEARTBEAT) && b->in.heartbeat.fragments_count == ISLE_FRAGMENTS);
    end();
}

static void a_round_trip_is_measured_by_echoes_of_our_own_heartbeats(void **state)
{
    (void)state;
    begin("peers-rtt", 2, false);
    played_greet(b, a);
    assert_int_equal(next_beat(b)->echo, 0);
    b->session++; /* restarted: it has heard nothing of us */
    played_greet(b, a);
    played_beat(b);
    company_say(b);
    assert_int_equal(info(B).rtt_ms, 0);
    uint64_t sequence = announced_beat()->sequence;
    assert_int_equal(b->in.heartbeat.echo, b->sequence);
    a->now_ms += 42;
    struct wire_heartbeat *beat = played_beat(b);
    beat->echo = sequence;
    beat->echo_delay_ms = 30;
    company_say(b);
    assert_int_equal(info(B).rtt_ms, 12);
    announced_beat();
    a->now_ms += 100;
    beat = played_beat(b);
    beat->echo = sequence; /* where the way is long others have gone meanwhile */
    beat->echo_delay_ms = 60;
    company_say(b);
    assert_int_equal(info(B).rtt_ms, 42 + 100 + ANNOUNCE_MS - 60);
    beat = played_beat(b);
    beat->echo = sequence + 1000; /* of one that was never sent */
    company_say(b);
    assert_int_equal(info(B).rtt_ms, 42 + 100 + ANNOUNCE_MS - 60);
    a->now_ms += 7;
    announced_beat();
    assert_int_equal(b->in.heartbeat.echo, b->sequence);
    assert_int_equal(b->in.heartbeat.echo_delay_ms, 7 + ANNOUNCE_MS);
    end();
}

/* A clock that has been running for days, and a first heartbeat that echoes none of ours. */
static void an_echo_of_nothing_is_no_round_trip(void **state)
{
    (void)state;
    begin("peers-noecho", 2, false);
    played_hello(b);
    played_say(b, A);
    played_beat(b);
    played_say(b, A);
    /* Both are taken in before anything of ours goes out. */
    peers_look(a->peers, a->now_ms);
    struct event event;
    isle_wait((peers_take(a->peers, a->now_ms), isle_took_sync(a, SYNC_EV_HEARTBEAT, &event)));
    assert_int_equal(info(B).rtt_ms, 0);
    end();
}

static void the_furthest_island_is_known_but_nobody_is_beyond_the_end(void **state)
{
    (void)state;
    begin("peers-furthest", 3, false);
    assert_int_equal(peers_furthest(a->peers, 7), 7);
    played_greet(b, a);
    played_greet(c, a);
    played_beat(b)->step = 40;
    company_say(b);
    played_beat(c)->step = 30;
    company_say(c);
    assert_int_equal(peers_furthest(a->peers, 7), 40);
    assert_int_equal(peers_furthest(a->peers, 50), 50);
    assert_int_equal(peers_furthest(a->peers, (uint64_t)run->spec.steps + 9), run->spec.steps);
    b->out.type = WIRE_BYE;
    b->out.bye.reason[0] = '\0';
    played_say(b, A);
    isle_wait(!info(B).up);
    assert_int_equal(peers_furthest(a->peers, 7), 30); /* of those that can be heard */
    end();
}

/* Two intervals on from where we are no round can be outstanding. */
static void a_step_that_no_round_can_bring_is_not_believed(void **state)
{
    (void)state;
    begin("peers-too-far", 3, true);
    uint64_t interval = (uint64_t)run->spec.interval;
    assert_true((uint64_t)run->spec.steps > 8 * interval);
    played_greet(b, a);
    played_greet(c, a);
    overhear_begin();
    played_beat(b)->step = (uint64_t)1 << 62;
    company_say(b);
    assert_int_equal(peers_furthest(a->peers, 7), 7);
    assert_string_equal(overhear_end(), ""); /* we may have been away while rounds brought it there */
    overhear_begin();
    a->now_ms += 60000;
    played_beat(b)->step = (uint64_t)1 << 62;
    company_say(b);
    assert_int_equal(peers_furthest(a->peers, 7), 7);
    assert_int_equal(peers_furthest(a->peers, 7), 7);
    overhear_assert_once(overhear_end(), "island b says that it is at step 4611686018427387904");
    assert_int_equal(info(B).step, (uint64_t)1 << 62); /* status shows what it says */
    played_beat(b)->step = 8 * interval;
    company_say(b);
    assert_int_equal(peers_furthest(a->peers, 7), 7);
    played_beat(c)->step = 7 + interval; /* as far as one round ahead of us */
    company_say(c);
    assert_int_equal(peers_furthest(a->peers, 7), 7 + interval);
    assert_int_equal(peers_furthest(a->peers, 7 * interval), 8 * interval); /* near it, it may be true */
    end();
}

static void a_heartbeat_that_was_overtaken_takes_nothing_back(void **state)
{
    (void)state;
    begin("peers-overtaken", 2, true);
    played_greet(b, a);
    for (uint64_t sequence = 1; sequence <= 3; sequence++) {
        struct wire_heartbeat *beat = played_beat(b);
        beat->sequence = sequence == 3 ? 1 : sequence + 1; /* 2, 3, and then the first */
        beat->step = beat->sequence;
        beat->fragments[0].version = beat->sequence;
        a->now_ms += 10;
        company_say(b);
        struct event event;
        assert_int_equal(isle_took_sync(a, SYNC_EV_HEARTBEAT, &event), sequence < 3);
    }
    assert_int_equal(info(B).step, 3);
    assert_int_equal(info(B).heard_ms, a->now_ms); /* but it is a sign of life */
    assert_int_equal(announced_beat()->echo, 3);
    end();
}

/* What may have been forgotten cannot be counted on: whoever hears it knows. */
static void a_heartbeat_says_whose_disk_it_is_and_whether_it_is_in_doubt(void **state)
{
    (void)state;
    begin("peers-incarnation", 3, true);
    greet_b();
    const struct wire_heartbeat *beat = announced_beat();
    assert_int_equal(beat->incarnation, vote_incarnation(a->vote));
    assert_false(beat->in_doubt);
    assert_int_equal(beat->epoch, 0);
    assert_int_equal(beat->silent_count, 0);
    /* Who is not heard for as long as the run allows is named by its id. */
    for (uint64_t until_ms = a->now_ms + a->conf.away_ms; a->now_ms < until_ms + 2 * BEAT_MS; a->now_ms += BEAT_MS) {
        played_beat(b);
        company_say(b);
        isle_tick(a);
    }
    beat = announced_beat();
    while (beat->silent_count == 0)
        beat = next_beat(b);
    assert_int_equal(beat->silent_count, 1);
    assert_int_equal(beat->silent[0], a->charter.view.members[C].id);
    end();
    run = isle_run_new("peers-doubt", 2, NULL);
    run->doubt = true;
    b = played_open(run, B, 0, NULL);
    c = NULL;
    a = isle_open(run, A, NULL, 0);
    greet_b();
    assert_true(announced_beat()->in_doubt);
    end();
}

/* ---- what the trainer does, in a word for the others ---- */

static const struct wire_heartbeat *beat_now(enum trainer_phase phase)
{
    assert_int_equal(trainer_phase(a->trainer), phase);
    return announced_beat();
}

static void assert_word(enum trainer_phase phase, enum wire_trainer word, bool taking_part)
{
    const struct wire_heartbeat *beat = beat_now(phase);
    assert_int_equal(beat->trainer, word);
    assert_int_equal(beat->taking_part, taking_part);
}

static void what_an_attached_trainer_does_reaches_the_others(void **state)
{
    (void)state;
    begin("peers-phases", 2, true);
    greet_b();
    assert_word(TRAINER_NONE, WIRE_TRAINER_NONE, false);
    struct played_trainer *trainer = played_trainer_open(a);
    assert_word(TRAINER_STARTING, WIRE_TRAINER_STARTING, true);
    played_trainer_start(trainer);
    played_trainer_say(
        trainer,
        &(struct ipc_message){
            .type = IPC_REPORT,
            .report = {.step = 6, .tokens = 600, .loss = 1.25, .tokens_per_s = 33, .lr = 0.1, .grad_norm = 2}});
    assert_word(TRAINER_TRAINING, WIRE_TRAINER_TRAINING, true);
    assert_int_equal(b->in.heartbeat.step, 6);
    assert_int_equal(b->in.heartbeat.tokens, 600);
    assert_int_equal(b->in.heartbeat.loss_milli, 1250);
    assert_int_equal(b->in.heartbeat.tokens_per_s, 33);
    played_trainer_say(trainer, &(struct ipc_message){.type = IPC_SETTLED});
    assert_word(TRAINER_FINISHING, WIRE_TRAINER_FINISHING, true);
    played_trainer_say(trainer, &(struct ipc_message){.type = IPC_FINISHED});
    assert_word(TRAINER_FINISHED, WIRE_TRAINER_FINISHED, false);
    played_trainer_close(trainer);
    end();
    begin("peers-leaving", 2, true);
    greet_b();
    trainer = played_trainer_open(a);
    played_trainer_start(trainer);
    assert_ok(trainer_leave(a->trainer, &(struct trainer_leaving){0}));
    assert_word(TRAINER_FINISHING, WIRE_TRAINER_FINISHING, true);
    played_trainer_say(trainer, &(struct ipc_message){.type = IPC_FINISHED});
    assert_word(TRAINER_LEAVING, WIRE_TRAINER_NONE, false);
    played_trainer_close(trainer);
    end();
}

static void what_a_trainers_process_does_reaches_the_others(void **state)
{
    (void)state;
    run = isle_run_new("peers-process", 2, NULL);
    b = played_open(run, B, 0, NULL);
    c = NULL;
    const char *program =
        testlib_file(run->folder, "trainer", "#!/bin/sh\ntest -f %s/go && exec sleep 100\nexit 3\n", run->folder);
    char text[400];
    assert_int_equal(chmod(program, 0755), 0);
    snprintf(text, sizeof text, "worker.program=%s", program);
    struct conf_override overrides[] = {{text}, {"worker.data=d"}, {"worker.autostart=no"}};
    a = isle_open(run, A, overrides, 3);
    greet_b();
    assert_word(TRAINER_STOPPED, WIRE_TRAINER_NONE, false);
    assert_ok(trainer_join(a->trainer, a->now_ms));
    isle_wait(trainer_phase(a->trainer) == TRAINER_RESTARTING);
    assert_word(TRAINER_RESTARTING, WIRE_TRAINER_FAILED, false);
    testlib_file(run->folder, "go", "\n");
    assert_ok(trainer_join(a->trainer, a->now_ms));
    assert_word(TRAINER_STARTING, WIRE_TRAINER_STARTING, true);
    bool killed;
    assert_ok(trainer_leave_now(a->trainer, &killed));
    isle_wait(!trainer_running(a->trainer));
    assert_word(TRAINER_STOPPED, WIRE_TRAINER_NONE, false);
    end();
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heartbeats_come_every_second_and_soon_after_news),
        cmocka_unit_test(a_heartbeat_says_what_changed_first_and_the_rest_in_turn),
        cmocka_unit_test(all_that_is_said_of_a_fragment_counts_as_news),
        cmocka_unit_test(a_heartbeat_that_is_lost_does_not_matter_for_long),
        cmocka_unit_test(a_round_trip_is_measured_by_echoes_of_our_own_heartbeats),
        cmocka_unit_test(an_echo_of_nothing_is_no_round_trip),
        cmocka_unit_test(the_furthest_island_is_known_but_nobody_is_beyond_the_end),
        cmocka_unit_test(a_step_that_no_round_can_bring_is_not_believed),
        cmocka_unit_test(a_heartbeat_that_was_overtaken_takes_nothing_back),
        cmocka_unit_test(a_heartbeat_says_whose_disk_it_is_and_whether_it_is_in_doubt),
        cmocka_unit_test(what_an_attached_trainer_does_reaches_the_others),
        cmocka_unit_test(what_a_trainers_process_does_reaches_the_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
