/* SPDX-License-Identifier: Apache-2.0 */
/* peers: when heartbeats come, what they say, and what is read from one: news first, the rest in turn; round trips; the
 * trainer's phases in words. One island with all its parts, another played on a real link; the clock is the test's. */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/digest.h"
#include "daemon/rules.h"
#include "daemon/trainer/process.h"
#include "tests/lib/company.h"
#include "tests/lib/isle.h"
#include "tests/lib/overhear.h"
#include "tests/lib/played.h"
#include "tests/lib/played_trainer.h"

/* As the header and docs/PROTOCOL.md have them. */
enum { SILENT_MS = 2500, BEAT_MS = 1000, ANNOUNCE_MS = 3, REPEATED_ROWS = 16 };

/* ---- heartbeats ---- */

static void heartbeats_come_every_second_and_soon_after_news(void **state)
{
    (void)state;
    company_begin("peers-beats", 2, true);
    played_greet(company.b, company.a);
    uint64_t sequence = played_next_beat(company.b)->sequence;
    company.a->now_ms += BEAT_MS - 1;
    isle_tick(company.a);
    assert_int_equal(played_settle(company.b, A, WIRE_HEARTBEAT), 0);
    company.a->now_ms += 1;
    isle_tick(company.a);
    assert_int_equal(played_next_beat(company.b)->sequence, ++sequence); /* one, not two */
    /* News: at once, but what comes within the gap goes together. */
    peers_announce(company.a->peers);
    peers_flush(company.a->peers, company.a->now_ms);
    for (int k = 0; k < ANNOUNCE_MS; k++) {
        peers_announce(company.a->peers);
        peers_flush(company.a->peers, company.a->now_ms + (uint64_t)k);
        /* Nothing else may wake the loop. */
        assert_in_range(peers_wait_us(company.a->peers), 1, 1000 * (ANNOUNCE_MS - k));
    }
    assert_int_equal(played_next_beat(company.b)->sequence, ++sequence);
    peers_flush(company.a->peers, company.a->now_ms + ANNOUNCE_MS);
    assert_int_equal(played_next_beat(company.b)->sequence, ++sequence);
    peers_flush(company.a->peers, company.a->now_ms + 10 * ANNOUNCE_MS); /* nothing new */
    company.a->now_ms += BEAT_MS + 10 * ANNOUNCE_MS;
    isle_tick(company.a);
    assert_int_equal(played_next_beat(company.b)->sequence, ++sequence);
    company_end();
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
    played_greet(company.b, company.a);
    played_next_beat(company.b);
}

static const struct wire_heartbeat *announced_beat(void)
{
    company.a->now_ms += ANNOUNCE_MS;
    peers_announce(company.a->peers);
    isle_turn(company.a);
    return played_next_beat(company.b);
}

static void a_heartbeat_says_what_changed_first_and_the_rest_in_turn(void **state)
{
    (void)state;
    company_begin("peers-rows", 2, true);
    played_greet(company.b, company.a);
    /* Whoever is new is told everything. */
    assert_int_equal(played_next_beat(company.b)->fragments_count, ISLE_FRAGMENTS);
    bool told[ISLE_FRAGMENTS] = {false};
    for (int k = 0; k * REPEATED_ROWS < ISLE_FRAGMENTS; k++) {
        const struct wire_heartbeat *beat = announced_beat();
        assert_int_equal(beat->fragments_count, REPEATED_ROWS);
        for (uint32_t i = 0; i < beat->fragments_count; i++)
            told[beat->fragments[i].fragment] = true;
    }
    for (uint32_t f = 0; f < ISLE_FRAGMENTS; f++)
        assert_true(told[f]);
    company_end();
}

/* Changes one thing of a fragment that is at version 1. */
static void change(uint32_t f, int what)
{
    static const char texts[] = "xy";
    struct digest hash = digest_of(&texts[what == 1], 1);
    if (what < 2) {
        sync_restore(company.a->sync, f, what == 0 ? 2 : 1, &hash);
        return;
    }
    if (what == 2) {
        isle_step(
            company.a,
            &(struct sync_event){
                .type = SYNC_EV_STORED, .fragment = f, .member = SYNC_NOBODY, .owner = B, .version = 2, .hash = hash});
        return;
    }
    if (what == 5) {
        isle_step(company.a, &(struct sync_event){.type = SYNC_EV_LOST, .fragment = f, .member = B});
        return;
    }
    isle_step(company.a, &(struct sync_event){.type = SYNC_EV_TRAINER_UP, .fragment = f, .version = 1});
    isle_step(company.a, &(struct sync_event){.type = SYNC_EV_SNAPSHOT, .fragment = f});
    isle_step(company.a, &(struct sync_event){.type = what == 3 ? SYNC_EV_ENCODED : SYNC_EV_REFUSED, .fragment = f});
}

static void all_that_is_said_of_a_fragment_counts_as_news(void **state)
{
    (void)state;
    struct digest hash = digest_of("x", 1);
    for (int what = 0; what < 6; what++) {
        company_begin("peers-news", 2, true);
        greet_b();
        uint32_t f = (announced_beat()->fragments[0].fragment + 2 * REPEATED_ROWS + 3) % ISLE_FRAGMENTS;
        sync_restore(company.a->sync, f, 1, &hash);
        assert_int_equal(announced_beat()->fragments[0].fragment, f);
        change(f, what);
        const struct wire_fragment *row = &announced_beat()->fragments[0];
        struct wire_standing own = sync_own(company.a->sync, f);
        assert_int_equal(row->fragment, f);
        assert_int_equal(row->at.version, what == 0 ? 2 : 1);
        assert_true(row->at.hash_known && digest_equal(&row->at.hash, &own.hash));
        assert_int_equal(row->held_count, what == 2 ? 1 : 0);
        if (what == 2) {
            const struct wire_held *held = &company.b->in.heartbeat.held[row->held_first];
            assert_int_equal(held->owner, B);
            assert_memory_equal(held->tag, digest_of("x", 1).byte, sizeof held->tag);
        }
        assert_int_equal(row->at.contributed, what == 3 ? 2 : 0);
        assert_int_equal(row->at.abstained, what == 4 ? 2 : 0);
        assert_int_equal(row->at.repairing, what == 5);
        assert_int_equal(company.b->in.heartbeat.fragments_count, REPEATED_ROWS); /* it was its turn, too */
        company_end();
    }
}

static void a_heartbeat_that_is_lost_does_not_matter_for_long(void **state)
{
    (void)state;
    company_begin("peers-lost", 2, true);
    greet_b();
    uint32_t f = (announced_beat()->fragments[0].fragment + 2 * REPEATED_ROWS + 3) % ISLE_FRAGMENTS;
    struct digest hash = digest_of("x", 1);
    sync_restore(company.a->sync, f, 5, &hash);
    assert_true(has_row(announced_beat(), f)); /* that one is lost */
    bool again = false;
    for (int k = 0; k * REPEATED_ROWS < ISLE_FRAGMENTS; k++)
        again |= has_row(announced_beat(), f);
    assert_true(again);
    /* Away and back: everything is told again. */
    company.a->now_ms += SILENT_MS + 1;
    isle_tick(company.a);
    while (played_heard(company.b)) {
    }
    played_beat(company.b);
    played_say(company.b, A);
    isle_wait(company_info(B).up);
    isle_wait(played_heard_type(company.b, WIRE_HEARTBEAT) &&
              company.b->in.heartbeat.fragments_count == ISLE_FRAGMENTS);
    company_end();
}

static void a_round_trip_is_measured_by_echoes_of_our_own_heartbeats(void **state)
{
    (void)state;
    company_begin("peers-rtt", 2, false);
    played_greet(company.b, company.a);
    assert_int_equal(played_next_beat(company.b)->echo, 0);
    company.b->session++; /* restarted: it has heard nothing of us */
    played_greet(company.b, company.a);
    played_beat(company.b);
    company_say(company.b);
    assert_int_equal(company_info(B).rtt_ms, 0);
    uint64_t sequence = announced_beat()->sequence;
    assert_int_equal(company.b->in.heartbeat.echo, company.b->sequence);
    company.a->now_ms += 42;
    struct wire_heartbeat *beat = played_beat(company.b);
    beat->echo = sequence;
    beat->echo_delay_ms = 30;
    company_say(company.b);
    assert_int_equal(company_info(B).rtt_ms, 12);
    announced_beat();
    company.a->now_ms += 100;
    beat = played_beat(company.b);
    beat->echo = sequence; /* where the way is long others have gone meanwhile */
    beat->echo_delay_ms = 60;
    company_say(company.b);
    assert_int_equal(company_info(B).rtt_ms, 42 + 100 + ANNOUNCE_MS - 60);
    beat = played_beat(company.b);
    beat->echo = sequence + 1000; /* of one that was never sent */
    company_say(company.b);
    assert_int_equal(company_info(B).rtt_ms, 42 + 100 + ANNOUNCE_MS - 60);
    company.a->now_ms += 7;
    announced_beat();
    assert_int_equal(company.b->in.heartbeat.echo, company.b->sequence);
    assert_int_equal(company.b->in.heartbeat.echo_delay_ms, 7 + ANNOUNCE_MS);
    company_end();
}

/* A clock that has been running for days, and a first heartbeat that echoes none of ours. */
static void an_echo_of_nothing_is_no_round_trip(void **state)
{
    (void)state;
    company_begin("peers-noecho", 2, false);
    played_hello(company.b);
    played_say(company.b, A);
    played_beat(company.b);
    played_say(company.b, A);
    /* Both are taken in before anything of ours goes out. */
    peers_look(company.a->peers, company.a->now_ms);
    struct event event;
    isle_wait((peers_take(company.a->peers, company.a->now_ms), isle_took_sync(company.a, SYNC_EV_HEARTBEAT, &event)));
    assert_int_equal(company_info(B).rtt_ms, 0);
    company_end();
}

/* b and c, owners, say that they take a step in 10 ms; the line rises by it for ten seconds. */
static void they_train(uint64_t own_step)
{
    for (uint64_t trained = 1; trained <= 1001; trained += 1000, company.a->now_ms += 10000) {
        for (int k = 0; k < 2; k++) {
            struct played *one = k == 0 ? company.b : company.c;
            struct wire_heartbeat *beat = played_beat(one);
            beat->trainer = WIRE_TRAINER_TRAINING;
            beat->trained = trained;
            company_say(one);
        }
        peers_furthest(company.a->peers, own_step);
    }
    peers_furthest(company.a->peers, own_step);
}

static void the_furthest_island_is_known_but_nobody_is_beyond_the_end(void **state)
{
    (void)state;
    company_begin("peers-furthest", 3, false);
    assert_int_equal(peers_furthest(company.a->peers, 7), 7);
    played_greet(company.b, company.a);
    played_greet(company.c, company.a);
    they_train(7);
    played_beat(company.b)->step = 40;
    company_say(company.b);
    played_beat(company.c)->step = 30;
    company_say(company.c);
    assert_int_equal(peers_furthest(company.a->peers, 7), 40);
    assert_int_equal(peers_furthest(company.a->peers, 50), 50);
    assert_int_equal(peers_furthest(company.a->peers, (uint64_t)company.run->spec.steps + 9), company.run->spec.steps);
    company.b->out.type = WIRE_BYE;
    company.b->out.bye.reason[0] = '\0';
    played_say(company.b, A);
    isle_wait(!company_info(B).up);
    assert_int_equal(peers_furthest(company.a->peers, 7), 30); /* of those that can be heard */
    company_end();
}

/* Two intervals on from where we are no round can be outstanding. */
static void a_step_that_no_round_can_bring_is_not_believed(void **state)
{
    (void)state;
    static const struct digest hash = {.byte = {1}};
    company_begin("peers-too-far", 3, true);
    uint64_t interval = (uint64_t)company.run->spec.interval;
    assert_true((uint64_t)company.run->spec.steps > 8 * interval);
    played_greet(company.b, company.a);
    played_greet(company.c, company.a);
    overhear_begin();
    for (int k = 0; k < 2; k++, company.a->now_ms += 60000) {
        played_beat(company.b)->step = 8 * interval;
        company_say(company.b);
        assert_int_equal(peers_furthest(company.a->peers, 7), 7);
    }
    assert_string_equal(overhear_end(), ""); /* our state is not here: what rounds have done is not known */
    for (uint32_t f = 0; f < company.a->plan->plan->fragments_count; f++)
        sync_restore(company.a->sync, f, 0, &hash);
    overhear_begin();
    played_beat(company.b)->step = (uint64_t)1 << 62;
    company_say(company.b);
    assert_int_equal(peers_furthest(company.a->peers, 7), 7);
    assert_string_equal(overhear_end(), ""); /* we may have been away while rounds brought it there */
    overhear_begin();
    company.a->now_ms += 60000;
    played_beat(company.b)->step = (uint64_t)1 << 62;
    company_say(company.b);
    assert_int_equal(peers_furthest(company.a->peers, 7), 7);
    assert_int_equal(peers_furthest(company.a->peers, 7), 7);
    overhear_assert_once(overhear_end(), "island b says that it is at step 4611686018427387904");
    assert_int_equal(company_info(B).step, (uint64_t)1 << 62); /* status shows what it says */
    played_beat(company.b)->step = 8 * interval;
    company_say(company.b);
    assert_int_equal(peers_furthest(company.a->peers, 7), 7);
    they_train(7);
    played_beat(company.b)->step = 8 * interval;
    company_say(company.b);
    played_beat(company.c)->step = 7 + interval; /* as far as one round ahead of us */
    company_say(company.c);
    assert_int_equal(peers_furthest(company.a->peers, 7), 7 + interval);
    they_train(7 * interval);
    played_beat(company.b)->step = 8 * interval;
    company_say(company.b);
    assert_int_equal(peers_furthest(company.a->peers, 7 * interval), 8 * interval); /* near it, it may be true */
    company_end();
}

/* Two owners train at a hundredth of what the third says. */
static void who_says_more_than_it_can_train_is_followed_at_weight_max_times_the_others_pace(void **state)
{
    (void)state;
    static const struct digest hash = {.byte = {1}};
    company_begin("peers-too-fast", 3, true);
    assert_true(company.run->spec.weight_max == 4);
    played_greet(company.b, company.a);
    played_greet(company.c, company.a);
    for (uint32_t f = 0; f < company.a->plan->plan->fragments_count; f++)
        sync_restore(company.a->sync, f, 0, &hash);
    uint64_t most = rules_furthest(&company.run->spec, company.a->plan->plan->fragments_count, 7), before = 7;
    overhear_begin();
    for (uint64_t s = 0; s <= 90; s++, company.a->now_ms += 1000) {
        struct wire_heartbeat *beat = played_beat(company.b);
        beat->trainer = WIRE_TRAINER_TRAINING;
        beat->trained = s / 10;
        company_say(company.b);
        beat = played_beat(company.c);
        beat->trainer = WIRE_TRAINER_TRAINING;
        beat->trained = 10 * s;
        beat->step = most;
        company_say(company.c);
        uint64_t now = peers_furthest(company.a->peers, 7);
        assert_in_range(now, before, 7 + 4 * s / 10 + 1);
        assert_int_equal(peers_step_line(company.a->peers), now);
        before = now;
    }
    assert_in_range(before, 7 + 4 * 7, most - 1);
    overhear_assert_once(overhear_end(), "island c says that it is at step");
    assert_true(company_info(C).too_fast);
    assert_string_equal(company_info(C).fault, ""); /* it may be as fast */
    assert_false(company_info(B).too_fast);
    played_beat(company.c)->step = 7; /* it is not any more */
    company_say(company.c);
    (void)peers_furthest(company.a->peers, 7);
    assert_false(company_info(C).too_fast);
    played_beat(company.c)->step = most; /* for a moment */
    company_say(company.c);
    (void)peers_furthest(company.a->peers, 7);
    assert_false(company_info(C).too_fast);
    company_end();
}

static void a_heartbeat_that_was_overtaken_takes_nothing_back(void **state)
{
    (void)state;
    company_begin("peers-overtaken", 2, true);
    played_greet(company.b, company.a);
    for (uint64_t sequence = 1; sequence <= 3; sequence++) {
        struct wire_heartbeat *beat = played_beat(company.b);
        beat->sequence = sequence == 3 ? 1 : sequence + 1; /* 2, 3, and then the first */
        beat->step = beat->sequence;
        beat->fragments[0].at.version = beat->sequence;
        company.a->now_ms += 10;
        company_say(company.b);
        struct event event;
        assert_int_equal(isle_took_sync(company.a, SYNC_EV_HEARTBEAT, &event), sequence < 3);
    }
    assert_int_equal(company_info(B).step, 3);
    assert_int_equal(company_info(B).heard_ms, company.a->now_ms - 10); /* it may be said again and again */
    assert_int_equal(announced_beat()->echo, 3);
    company_end();
}

/* What may have been forgotten cannot be counted on: whoever hears it knows. */
static void a_heartbeat_says_whose_disk_it_is_and_whether_it_is_in_doubt(void **state)
{
    (void)state;
    company_begin("peers-incarnation", 3, true);
    greet_b();
    const struct wire_heartbeat *beat = announced_beat();
    assert_int_equal(beat->incarnation, vote_incarnation(company.a->vote));
    assert_false(beat->in_doubt);
    assert_int_equal(beat->epoch, 0);
    assert_int_equal(beat->silent_count, 0);
    /* Who is not heard for as long as the run allows is named by its id. */
    for (uint64_t until_ms = company.a->now_ms + company.a->conf.away_ms; company.a->now_ms < until_ms + 2 * BEAT_MS;
         company.a->now_ms += BEAT_MS) {
        played_beat(company.b);
        company_say(company.b);
        isle_tick(company.a);
    }
    beat = announced_beat();
    while (beat->silent_count == 0)
        beat = played_next_beat(company.b);
    assert_int_equal(beat->silent_count, 1);
    assert_int_equal(beat->silent[0], company.a->configs.view.members[C].as.id);
    company_end();
    company.run = isle_run_new("peers-doubt", 2, NULL);
    company.run->doubt = true;
    company.b = played_open(company.run, B, 0, NULL);
    company.c = NULL;
    company.a = isle_open(company.run, A, NULL, 0);
    greet_b();
    assert_true(announced_beat()->in_doubt);
    company_end();
}

/* ---- what the trainer does, in a word for the others ---- */

static const struct wire_heartbeat *beat_now(enum trainer_phase phase)
{
    assert_int_equal(trainer_phase(company.a->trainer), phase);
    return announced_beat();
}

static void assert_word(enum trainer_phase phase, enum wire_trainer word, bool taking_part)
{
    const struct wire_heartbeat *beat = beat_now(phase);
    assert_int_equal(beat->trainer, word);
    assert_int_equal(beat->taking_part, taking_part);
}

static void train_a_step(struct played_trainer *trainer)
{
    played_trainer_start(trainer);
    assert_false(beat_now(TRAINER_TRAINING)->unfinished); /* nobody has trained here */
    played_trainer_say(trainer, &(struct ipc_message){.type = IPC_REPORT, .report = {.step = 6, .trained = 6}});
    assert_true(beat_now(TRAINER_TRAINING)->unfinished);
}

static void gone(struct played_trainer *trainer)
{
    played_trainer_close(trainer);
    isle_wait(!trainer_info(company.a->trainer).attached);
}

/* Who waits for the run's end goes by it. */
static void whether_more_is_to_come_reaches_the_others(void **state)
{
    (void)state;
    company_begin("peers-done", 2, true);
    greet_b();
    assert_false(beat_now(TRAINER_NONE)->unfinished);
    struct played_trainer *trainer = played_trainer_open(company.a);
    train_a_step(trainer);
    played_trainer_say(trainer, &(struct ipc_message){.type = IPC_SETTLED});
    assert_false(beat_now(TRAINER_FINISHING)->unfinished);
    played_trainer_say(trainer, &(struct ipc_message){.type = IPC_FINISHED, .report = {.step = UINT32_MAX}});
    assert_false(beat_now(TRAINER_FINISHED)->unfinished);
    gone(trainer);
    assert_false(beat_now(TRAINER_FINISHED)->unfinished);
    company_end();
    company_begin("peers-killed", 2, true);
    greet_b();
    trainer = played_trainer_open(company.a);
    train_a_step(trainer);
    played_trainer_say(trainer, &(struct ipc_message){.type = IPC_SETTLED});
    gone(trainer);
    assert_true(beat_now(TRAINER_NONE)->unfinished);
    company_end();
}

static void one_that_ends_or_leaves_has_more(void **state)
{
    (void)state;
    for (int leaves = 0; leaves < 2; leaves++) {
        company_begin(leaves ? "peers-leaves" : "peers-ends", 2, true);
        greet_b();
        struct played_trainer *trainer = played_trainer_open(company.a);
        train_a_step(trainer);
        if (leaves)
            assert_ok(trainer_leave(company.a->trainer, &(struct trainer_leaving){0}));
        played_trainer_say(trainer, &(struct ipc_message){.type = IPC_SETTLED, .settled.ends = !leaves});
        assert_true(beat_now(TRAINER_FINISHING)->unfinished);
        if (leaves)
            played_trainer_say(trainer, &(struct ipc_message){.type = IPC_FINISHED});
        gone(trainer);
        assert_true(beat_now(TRAINER_NONE)->unfinished);
        company_end();
    }
}

static void what_an_attached_trainer_does_reaches_the_others(void **state)
{
    (void)state;
    company_begin("peers-phases", 2, true);
    greet_b();
    assert_word(TRAINER_NONE, WIRE_TRAINER_NONE, false);
    struct played_trainer *trainer = played_trainer_open(company.a);
    assert_word(TRAINER_STARTING, WIRE_TRAINER_STARTING, true);
    played_trainer_start(trainer);
    played_trainer_say(
        trainer,
        &(struct ipc_message){
            .type = IPC_REPORT,
            .report = {.step = 6, .tokens = 600, .loss = 1.25, .tokens_per_s = 33, .lr = 0.1, .grad_norm = 2}});
    assert_word(TRAINER_TRAINING, WIRE_TRAINER_TRAINING, true);
    assert_int_equal(company.b->in.heartbeat.step, 6);
    assert_int_equal(company.b->in.heartbeat.tokens, 600);
    assert_true(company.b->in.heartbeat.loss == 0x3ff4000000000000); /* 1.25 */
    assert_int_equal(company.b->in.heartbeat.tokens_per_s, 33);
    played_trainer_say(trainer, &(struct ipc_message){.type = IPC_SETTLED});
    assert_word(TRAINER_FINISHING, WIRE_TRAINER_FINISHING, true);
    played_trainer_say(trainer, &(struct ipc_message){.type = IPC_FINISHED});
    assert_word(TRAINER_FINISHED, WIRE_TRAINER_FINISHED, false);
    played_trainer_close(trainer);
    company_end();
    company_begin("peers-leaving", 2, true);
    greet_b();
    trainer = played_trainer_open(company.a);
    played_trainer_start(trainer);
    assert_ok(trainer_leave(company.a->trainer, &(struct trainer_leaving){0}));
    assert_word(TRAINER_FINISHING, WIRE_TRAINER_FINISHING, true);
    played_trainer_say(trainer, &(struct ipc_message){.type = IPC_FINISHED});
    assert_word(TRAINER_LEAVING, WIRE_TRAINER_NONE, false);
    played_trainer_close(trainer);
    company_end();
}

static void what_a_trainers_process_does_reaches_the_others(void **state)
{
    (void)state;
    company.run = isle_run_new("peers-process", 2, NULL);
    company.b = played_open(company.run, B, 0, NULL);
    company.c = NULL;
    const char *program = testlib_file(company.run->folder, "trainer",
                                       "#!/bin/sh\ntest -f go && exec sleep 100\nexit 3\n"); /* it runs there */
    char text[400];
    assert_int_equal(chmod(program, 0755), 0);
    snprintf(text, sizeof text, "worker.program=%s", program);
    struct conf_override overrides[] = {{text}, {"worker.data=d"}, {"worker.autostart=no"}};
    company.a = isle_open(company.run, A, overrides, 3);
    greet_b();
    assert_word(TRAINER_STOPPED, WIRE_TRAINER_NONE, false);
    assert_ok(trainer_join(company.a->trainer, company.a->now_ms));
    isle_wait(trainer_phase(company.a->trainer) == TRAINER_RESTARTING);
    assert_word(TRAINER_RESTARTING, WIRE_TRAINER_FAILED, false);
    testlib_file(company.run->folder, "go", "\n");
    assert_ok(trainer_join(company.a->trainer, company.a->now_ms));
    assert_word(TRAINER_STARTING, WIRE_TRAINER_STARTING, true);
    bool killed;
    assert_ok(trainer_leave_now(company.a->trainer, &killed));
    isle_wait(!process_running(company.a->trainer->process));
    assert_word(TRAINER_STOPPED, WIRE_TRAINER_NONE, false);
    company_end();
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
        cmocka_unit_test(who_says_more_than_it_can_train_is_followed_at_weight_max_times_the_others_pace),
        cmocka_unit_test(a_heartbeat_that_was_overtaken_takes_nothing_back),
        cmocka_unit_test(a_heartbeat_says_whose_disk_it_is_and_whether_it_is_in_doubt),
        cmocka_unit_test(what_an_attached_trainer_does_reaches_the_others),
        cmocka_unit_test(what_a_trainers_process_does_reaches_the_others),
        cmocka_unit_test(whether_more_is_to_come_reaches_the_others),
        cmocka_unit_test(one_that_ends_or_leaves_has_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
