/* SPDX-License-Identifier: Apache-2.0 */
/* status: each complaint has a situation that gives it and one that does not; numbers and names are those of the parts;
 * the JSON form has exactly the keys that docs/FORMATS.md names. */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/mem.h"
#include "daemon/control/complaints.h"
#include "daemon/control/status.h"
#include "daemon/rounds/keep.h"
#include "tests/lib/complains.h"
#include "tests/lib/look.h"
#include "tests/lib/made.h"
#include "tests/lib/overhear.h"
#include "tests/lib/rig.h"
#include "tests/lib/squat.h"

enum { SILENT_MS = 2500, MEMORY = 12345678 };

static const struct rig *other_rig; /* whose rounds are looked at in place of the island's; NULL: none */

static struct status_conf conf_of(void)
{
    struct status_conf conf = look_conf();
    conf.start_ms = 1000000;
    conf.memory_bytes = look.a->plan != NULL ? MEMORY : 0;
    if (other_rig != NULL) {
        conf.plan = other_rig->plan;
        conf.sync = other_rig->sync;
        conf.rounds = other_rig->rounds;
        conf.replica = other_rig->replica;
        conf.parts = &other_rig->parts;
    }
    return conf;
}

static const struct status *take(void)
{
    struct status_conf conf = conf_of();
    return look_take_of(&conf);
}

/* b says how it stands, and is heard. */
static void beat_b(void)
{
    struct event event;
    played_say(look.b, LOOK_A);
    isle_wait(isle_took_sync(look.a, SYNC_EV_HEARTBEAT, &event));
}

static void train(uint64_t step)
{
    look_report(&(struct ipc_report){
        .step = step, .tokens = 10 * step, .loss = 2.5, .tokens_per_s = 99, .lr = 0.5, .grad_norm = 3});
}

/* ---- complaints ---- */

static void every_code_has_a_name_of_its_own(void **state)
{
    (void)state;
    for (unsigned i = 0; i < COMPLAINT_CODES; i++)
        for (unsigned k = 0; k < i; k++)
            assert_string_not_equal(complaint_name((enum complaint_code)i), complaint_name((enum complaint_code)k));
    static const char *const names[COMPLAINT_CODES] = {
        "away",        "refused",      "alone",        "stranger",    "slow-peer",    "missed",        "waiting",
        "behind",      "repair",       "differs",      "disk",        "peer-disk",    "restarting",    "ended",
        "ended-badly", "stopped",      "not-attached", "no-plan",     "stalled",      "outlier",       "turned-away",
        "claims-much", "runaway",      "loss-nan",     "nan",         "blocked",      "duplicate-key", "state-lost",
        "lost",        "partitioned",  "no-majority",  "sealed",      "doubt",        "mark",          "same-batches",
        "fault",       "not-admitted", "no-part",      "daemon-dies", "unsupervised", "recovering",    "loop-lag",
        "too-fast",    "not-listening"};
    for (unsigned i = 0; i < COMPLAINT_CODES; i++)
        assert_string_equal(complaint_name((enum complaint_code)i), names[i]);
    assert_string_equal(complaint_name(COMPLAINT_CODES), "unknown");
}

static void an_island_that_trains_alone_by_design_has_nothing_to_complain_of(void **state)
{
    (void)state;
    char line[128];
    look_begin("status-fine", 1, NULL);
    train(6);
    assert_int_equal(take()->complaints_count, 0);
    status_line(&look.status, line, sizeof line);
    assert_string_equal(line, "step 6/1000");
    look_end();
}

/* Somebody else took it while our key changed. */
static void a_port_that_is_gone_is_told_until_it_is_back(void **state)
{
    (void)state;
    struct ident keys[2];
    look_begin_run("status-deaf", 1, NULL);
    isle_listen(look.run, LOOK_A);
    look_open();
    struct link *link = look.a->link;
    assert_silent(take(), COMPLAINT_NOT_LISTENING);
    for (int i = 0; i < 2; i++)
        assert_ok(ident_generate(&keys[i]));
    bool got = false;
    for (int tries = 0; tries < 20 && !got; tries++) { /* our own may be quicker */
        squat_begin(link_port(link));
        link_rekey(link, &keys[tries % 2], NULL);
        got = squat_got();
    }
    assert_true(got);
    overhear_begin();
    isle_wait((link_tick(link), link_deaf(link)[0] != '\0'));
    link_tick(link);
    overhear_assert_once(overhear_end(), "nobody can dial this island since its key changed: listen = ");
    assert_complains(take(), COMPLAINT_NOT_LISTENING, "nobody can dial this island since its key changed: listen = ");
    squat_end();
    isle_wait((link_tick(link), link_deaf(link)[0] == '\0'));
    assert_silent(take(), COMPLAINT_NOT_LISTENING);
    look_end();
}

/* Once is told elsewhere, and no degradation; a supervisor is known by being our parent. */
static void a_daemon_that_dies_again_and_again_is_complained_of(void **state)
{
    (void)state;
    look_begin("status-again", 1, NULL);
    train(6);
    look.a->conf.supervised = (struct supervised){.by = getppid(), .again = 2, .at_s = 1, .why = "ended with status 1"};
    assert_int_equal(take()->complaints_count, 0);
    look.a->conf.supervised.again = 3;
    assert_complains(take(), COMPLAINT_DAEMON_DIES,
                     "the daemon was started again 3 times within an hour; the last one ended with status 1");
    struct status_conf conf = look_conf();
    look.a->now_ms = conf.start_ms + STATUS_RESTARTED_MS - 1;
    assert_complains(look_take_of(&conf), COMPLAINT_DAEMON_DIES, "");
    look.a->now_ms++;
    assert_silent(look_take_of(&conf), COMPLAINT_DAEMON_DIES);
    look.a->conf.supervised = (struct supervised){.by = getpid()}; /* not our parent any more */
    assert_complains(take(), COMPLAINT_UNSUPERVISED, "nobody starts the daemon again if it dies");
    look.a->conf.supervised.by = 0; /* of a service, or by hand */
    assert_silent(take(), COMPLAINT_UNSUPERVISED);
    look_end();
}

static void a_loop_that_stood_is_told_for_a_minute(void **state)
{
    (void)state;
    const uint64_t ms = 1000000;
    look_begin("status-lag", 1, NULL);
    train(6);
    struct lag lag = {.turn_ns = 0};
    struct status_conf conf = look_conf();
    conf.lag = &lag;
    lag_turn(&lag, look.a->now_ms * ms);
    lag_end(&lag, (look.a->now_ms + 1000) * ms);
    assert_silent(look_take_of(&conf), COMPLAINT_LOOP_LAG);
    lag_turn(&lag, look.a->now_ms * ms);
    lag_end(&lag, (look.a->now_ms + 2600) * ms);
    assert_complains(look_take_of(&conf), COMPLAINT_LOOP_LAG, "the daemon stood for 2.6 s at a stretch");
    assert_int_equal(look.status.load.lag_ms, 2600);
    assert_int_equal(look.status.load.lag_ms_max, 2600);
    look.a->now_ms += 70 * 1000;
    assert_silent(look_take_of(&conf), COMPLAINT_LOOP_LAG);
    assert_int_equal(look.status.load.lag_ms, 0);
    assert_int_equal(look.status.load.lag_ms_max, 2600);
    look_end();
}

static void who_is_not_heard_is_away_and_without_anyone_the_island_is_alone(void **state)
{
    (void)state;
    char line[160];
    look_begin("status-away", 3, NULL);
    assert_complains(take(), COMPLAINT_AWAY, "island b was not heard of yet");
    assert_complains(take(), COMPLAINT_ALONE, "this island is alone");
    assert_int_equal(look.status.islands_up, 1);
    played_greet(look.b, look.a);
    assert_complains(take(), COMPLAINT_AWAY, "island c was not heard of yet");
    assert_silent(take(), COMPLAINT_ALONE);
    played_greet(look.c, look.a);
    assert_silent(take(), COMPLAINT_AWAY);
    assert_int_equal(look.status.islands_up, 3);
    look.a->now_ms += SILENT_MS + 1;
    isle_tick(look.a);
    look.a->now_ms += 500;
    assert_complains(take(), COMPLAINT_AWAY, "island b was last heard of 3 s ago: silent");
    assert_complains(take(), COMPLAINT_ALONE, "");
    assert_silent(take(), COMPLAINT_REFUSED);
    status_line(&look.status, line, sizeof line);
    assert_string_equal(line, "step 0/1000; degraded: no trainer is attached");
    look_end();
    /* One that has to dial us. */
    look.run = isle_run_new("status-dials", 2, NULL);
    isle_listen(look.run, LOOK_A);
    look.b = look.c = NULL;
    look.a = isle_open(look.run, LOOK_A, NULL, 0);
    assert_complains(take(), COMPLAINT_AWAY, "not heard of yet: no address is known here, so it has to dial us");
    look_end();
}

static void who_would_not_talk_is_refused_and_not_just_away(void **state)
{
    (void)state;
    look_begin("status-refused", 2, NULL);
    played_hello(look.b)->run_id.byte[0] ^= 1;
    played_say(look.b, LOOK_A);
    isle_wait(peers_info(look.a->peers, LOOK_B).refused);
    assert_complains(take(), COMPLAINT_REFUSED, "island b was not heard of yet: it has another run spec");
    assert_silent(take(), COMPLAINT_AWAY);
    played_greet(look.b, look.a);
    assert_silent(take(), COMPLAINT_REFUSED);
    look_end();
}

static void a_stranger_is_told_for_a_minute(void **state)
{
    (void)state;
    struct ident other;
    look.run = isle_run_new("status-stranger", 2, NULL);
    isle_listen(look.run, LOOK_A);
    look.b = look.c = NULL;
    look.a = isle_open(look.run, LOOK_A, NULL, 0);
    assert_silent(take(), COMPLAINT_STRANGER);
    assert_ok(ident_generate(&other));
    look.b = played_open(look.run, LOOK_B, 0, &other);
    isle_wait(peers_refused(look.a->peers).strangers > 0);
    played_close(look.b);
    look.b = NULL;
    while (peers_take(look.a->peers, look.a->now_ms)) {
    }
    assert_complains(take(), COMPLAINT_STRANGER, played_connection_key(&other));
    look.a->now_ms = peers_refused(look.a->peers).stranger_ms + 60000 - 1;
    assert_complains(take(), COMPLAINT_STRANGER, "was refused");
    look.a->now_ms++;
    assert_silent(take(), COMPLAINT_STRANGER);
    look_end();
}

static void two_machines_with_one_key_are_told_for_a_minute(void **state)
{
    (void)state;
    look_begin("status-duplicate", 2, NULL);
    uint64_t session = look.b->session;
    for (uint64_t k = 0; k < 8; k++) {
        look.b->session = session + k % 2;
        played_greet(look.b, look.a);
        played_settle(look.b, LOOK_A, WIRE_HELLO);
    }
    assert_complains(take(), COMPLAINT_DUPLICATE_KEY, "two machines speak with the key of island b");
    look.a->now_ms += 60000 - 1;
    assert_complains(take(), COMPLAINT_DUPLICATE_KEY, "");
    look.a->now_ms++;
    assert_silent(take(), COMPLAINT_DUPLICATE_KEY);
    look_end();
}

static void who_is_two_intervals_behind_is_slow(void **state)
{
    (void)state;
    look_begin("status-slow", 2, "interval = 10\n");
    played_greet(look.b, look.a);
    train(120);
    struct wire_heartbeat *beat = played_beat(look.b);
    beat->trainer = WIRE_TRAINER_TRAINING;
    beat->step = 100;
    beat_b();
    assert_silent(take(), COMPLAINT_SLOW_PEER); /* two intervals: not more */
    train(121);                                 /* since it spoke */
    assert_silent(take(), COMPLAINT_SLOW_PEER);
    beat = played_beat(look.b);
    beat->trainer = WIRE_TRAINER_TRAINING;
    beat->step = 100;
    beat_b();
    assert_complains(take(), COMPLAINT_SLOW_PEER, "island b is 21 steps behind this one");
    played_beat(look.b)->trainer = WIRE_TRAINER_FINISHED;
    beat_b();
    assert_silent(take(), COMPLAINT_SLOW_PEER);
    played_beat(look.b)->trainer = WIRE_TRAINER_TRAINING;
    beat_b();
    assert_complains(take(), COMPLAINT_SLOW_PEER, "");
    look.a->now_ms += SILENT_MS + 1;
    isle_tick(look.a);
    assert_silent(take(), COMPLAINT_SLOW_PEER); /* away says more */
    look_end();
}

static void rounds_that_close_without_an_island_are_told_after_the_third(void **state)
{
    (void)state;
    look_begin("status-missed", 2, "interval = 100\nquorum = 1\ngrace = 50ms\n");
    played_greet(look.b, look.a);
    train(1);
    played_beat(look.b)->taking_part = true;
    beat_b();
    for (uint32_t f = 1; f <= 3; f++) {
        assert_silent(take(), COMPLAINT_MISSED);
        look_contribute(f);
        look.a->now_ms += 50; /* its grace */
        isle_step(look.a, &(struct sync_event){.type = SYNC_EV_TICK});
        assert_int_equal(sync_owner(look.a->sync, f)->state, OWNER_REDUCING);
        assert_int_equal(take()->peers[LOOK_B].missed, f);
    }
    assert_complains(take(), COMPLAINT_MISSED, "the last 3 rounds of our shards closed without island b");
    isle_step(look.a,
              &(struct sync_event){.type = SYNC_EV_CONTRIBUTION, .fragment = 4, .version = 1, .member = LOOK_B});
    assert_silent(take(), COMPLAINT_MISSED);
    assert_int_equal(look.status.peers[LOOK_B].missed, 0);
    look_end();
}

static void the_quorum_in_force_is_that_of_who_takes_part(void **state)
{
    (void)state;
    look_begin("status-quorum", 2, "quorum = 3\n");
    assert_int_equal(take()->quorum, 2);
    assert_int_equal(look.status.contributors, 2);
    look_end();
    look_begin("status-no-quorum", 2, NULL);
    assert_int_equal(take()->quorum, 0);
    look_end();
}

static void whose_contributions_are_scaled_down_is_named(void **state)
{
    (void)state;
    look_begin("status-outlier", 3, NULL);
    struct rig *rig = rig_new("status-outlier-rounds", "codec = fp32\n", 3, 0, 0);
    other_rig = rig;
    rig_contribute(rig, 0, 0.01f, 100);
    rig_bring_contribution(rig, 0, 1, 100, 10);
    assert_silent(take(), COMPLAINT_OUTLIER);
    rig_bring_contribution(rig, 0, 2, 100, 0.01f);
    rig_bring_result(rig, 0, 1, true);
    rig_bring_result(rig, 0, 2, true);
    char what[200];
    snprintf(what, sizeof what, "of the last 8 contributions of island %s 1 were outliers, and scaled down",
             look.status.peers[LOOK_B].member->as.name);
    assert_complains(take(), COMPLAINT_OUTLIER, what);
    assert_int_equal(look.status.peers[LOOK_B].outliers, 1);
    assert_int_equal(look.status.peers[LOOK_C].outliers, 0);
    other_rig = NULL;
    rig_close(rig);
    look_end();
}

static void who_claims_far_more_tokens_than_count_is_named(void **state)
{
    (void)state;
    struct bitset all = bitset_first(3);
    look_begin("status-claims", 3, NULL);
    struct rig *rig = rig_new("status-claims-rounds", "codec = fp32\n", 3, 0, 0);
    other_rig = rig;
    rig->claims[2] = 1000000;
    for (int version = 1; version <= 5; version++) {
        if (version < 3)
            assert_silent(take(), COMPLAINT_CLAIMS_MUCH);
        rig_round(rig, 0, &all);
    }
    char what[200];
    snprintf(what, sizeof what,
             "island %s says that it trains more than 16 times as many tokens a round as most others: at most 4 times",
             look.status.peers[LOOK_C].member->as.name);
    assert_complains(take(), COMPLAINT_CLAIMS_MUCH, what);
    assert_true(look.status.peers[LOOK_C].claims_much && !look.status.peers[LOOK_B].claims_much);
    other_rig = NULL;
    rig_close(rig);
    look_end();
}

static void whose_contributions_weigh_nothing_is_named(void **state)
{
    (void)state;
    struct bitset all = bitset_first(3);
    look_begin("status-turned", 3, NULL);
    struct rig *rig = rig_new("status-turned-rounds", "codec = fp32\n", 3, 0, 0);
    other_rig = rig;
    rig->cosine[2] = -0.3f;
    for (int version = 1; version <= 5; version++)
        for (uint32_t f = 0; f < RIG_FRAGMENTS; f++) {
            if (version < 5)
                assert_silent(take(), COMPLAINT_TURNED_AWAY);
            rig_round(rig, f, &all);
        }
    char what[200];
    snprintf(what, sizeof what, "the contributions of island %s have pointed away from the others' in 5 rounds running",
             look.status.peers[LOOK_C].member->as.name);
    assert_complains(take(), COMPLAINT_TURNED_AWAY, what);
    assert_true(look.status.peers[LOOK_C].turned_away && !look.status.peers[LOOK_B].turned_away);
    other_rig = NULL;
    rig_close(rig);
    look_end();
}

static void an_anchor_that_runs_away_is_told(void **state)
{
    (void)state;
    enum { ROUNDS = 12 };
    struct bitset naming_us = bitset_first(2);
    look_begin("status-runaway", 2, NULL);
    struct rig *rig = rig_new("status-runaway-rounds", "codec = fp32\n", 2, 0, 0);
    other_rig = rig;
    for (unsigned version = 1; version <= ROUNDS; version++) {
        assert_silent(take(), COMPLAINT_RUNAWAY);
        if (version == ROUNDS)
            replica_anchor(rig->replica, 1)[0] = 1e6f;
        overhear_begin();
        rig_round(rig, 1, &naming_us);
        bool said = strstr(overhear_end(), "fragment 1, version 12: the anchor runs away: its norm is 1e+06") != NULL;
        assert_int_equal(said, version == ROUNDS);
    }
    assert_complains(take(), COMPLAINT_RUNAWAY, "the run diverges: fragment 1 of the anchor is ");
    other_rig = NULL;
    rig_close(rig);
    look_end();
}

/* Of three or more it is known whose work may have done it. */
static void an_anchor_that_runs_away_names_the_outlier(void **state)
{
    (void)state;
    look_begin("status-runaway-of", 3, NULL);
    struct rig *rig = rig_new("status-runaway-of-rounds", "codec = fp32\n", 3, 0, 0);
    struct bitset naming_us = bitset_first(3);
    char what[200];
    other_rig = rig;
    for (unsigned version = 1; version <= 11; version++)
        rig_round(rig, 0, &naming_us);
    assert_silent(take(), COMPLAINT_RUNAWAY);
    rig_contribute(rig, 0, 0.01f, 100);
    rig_bring_contribution(rig, 0, 1, 100, 10);
    rig_bring_contribution(rig, 0, 2, 100, 0.01f);
    replica_anchor(rig->replica, 0)[0] = 1e6f;
    rig_bring_result(rig, 0, 1, true);
    rig_bring_result(rig, 0, 2, true);
    snprintf(what, sizeof what, "; of the last 8 contributions of island %s 1 were outliers",
             look.status.peers[LOOK_B].member->as.name);
    assert_complains(take(), COMPLAINT_RUNAWAY, what);
    snprintf(what, sizeof what, "stop the trainer of island %s and look at its loss, data and learning rate",
             look.status.peers[LOOK_B].member->as.name);
    bool advised = false;
    for (size_t i = 0; i < look.status.complaints_count; i++)
        advised |= strstr(look.status.complaints[i].remedy, what) != NULL;
    assert_true(advised);
    other_rig = NULL;
    rig_close(rig);
    look_end();
}

static void fragments_more_than_one_version_behind_are_told(void **state)
{
    (void)state;
    struct digest hash = digest_of("x", 1);
    look_begin("status-behind", 2, NULL);
    played_greet(look.b, look.a);
    for (uint32_t f = 0; f < ISLE_FRAGMENTS; f++)
        sync_restore(look.a->sync, f, 5, &hash);
    played_beat(look.b)->fragments[3].at.version = 6; /* one is on its way in every round */
    beat_b();
    assert_silent(take(), COMPLAINT_BEHIND);
    struct wire_heartbeat *beat = played_beat(look.b);
    beat->fragments[3].at.version = 7;
    beat->fragments[9].at.version = 70;
    beat_b();
    assert_complains(take(), COMPLAINT_BEHIND, "2 fragments are more than one version behind");
    assert_int_equal(look.status.fragments[3].newest, 7);
    assert_int_equal(look.status.fragments[9].newest, 70);
    assert_int_equal(look.status.fragments[4].newest, 5);
    look_end();
}

/* All of our fragments are, and what has passed is noted. */
static void look_at_version_5(const char *name)
{
    struct digest hash = digest_of("x", 1);
    look_begin(name, 2, "interval = 10\n");
    assert_ok(progress_new(&look.progress));
    played_greet(look.b, look.a);
    for (uint32_t f = 0; f < ISLE_FRAGMENTS; f++)
        sync_restore(look.a->sync, f, 5, &hash);
}

/* Ten seconds later our fragment 3 is at `own`, and b's at `theirs`; b is far on in the run. */
static const struct status *later(uint64_t own, uint64_t theirs)
{
    struct digest hash = digest_of("x", 1);
    look.a->now_ms += 10000;
    sync_restore(look.a->sync, 3, own, &hash);
    struct wire_heartbeat *beat = played_beat(look.b);
    beat->fragments[3].at.version = theirs;
    beat->step = 500;
    beat_b();
    progress_note(look.progress, look.a->sync, ISLE_FRAGMENTS, 2, 0, look.a->now_ms);
    return take();
}

/* Results come, but no faster than the others make versions: that does not pass by itself. */
static void who_comes_no_nearer_says_so(void **state)
{
    (void)state;
    static const char outrun[] = "this island does not come in step";
    look_at_version_5("status-outrun");
    for (uint64_t k = 0; k < 6; k++)
        assert_complains(later(10 + 10 * k, 100 + 20 * k), COMPLAINT_BEHIND, "1 fragments are more than one version");
    assert_complains(later(70, 220), COMPLAINT_BEHIND, outrun);
    assert_complains(later(80, 240), COMPLAINT_BEHIND, "it is 160 versions behind, and no nearer than 1 min 10 s ago");
    for (uint64_t k = 0; k < 8; k++) /* nearer, however little */
        assert_complains(later(160 + k, 249), COMPLAINT_BEHIND, "1 fragments are more than one version");
    for (uint64_t k = 0; k < 8; k++) /* nothing comes: that is another matter */
        assert_complains(later(167, 250 + k), COMPLAINT_BEHIND, "1 fragments are more than one version");
    assert_silent(later(257, 258), COMPLAINT_BEHIND);
    look_end();
}

/* The rounds that have brought the others so far are not here yet. */
static void who_is_behind_blames_nobody_for_being_ahead(void **state)
{
    (void)state;
    look_at_version_5("status-ahead");
    for (uint64_t theirs = 70; theirs > 0; theirs = theirs == 70 ? 6 : 0)
        for (uint64_t k = 0; k < 8; k++) {
            const struct status *status = later(5, theirs);
            assert_int_equal(peers_furthest(look.a->peers, 7), 7);
            if (theirs == 70 || k < 6)
                assert_silent(status, COMPLAINT_FAULT);
        }
    assert_complains(take(), COMPLAINT_FAULT, "it says that it is further than it can be");
    look_end();
}

static void fragments_in_repair_are_told(void **state)
{
    (void)state;
    look_begin("status-repair", 2, NULL);
    played_greet(look.b, look.a);
    struct digest mine = digest_of("y", 1);
    sync_restore(look.a->sync, 7, 2, &mine);
    assert_silent(take(), COMPLAINT_REPAIR);
    isle_step(look.a, &(struct sync_event){.type = SYNC_EV_LOST, .fragment = 7, .member = LOOK_B});
    assert_complains(take(), COMPLAINT_REPAIR, "1 fragments are being repaired");
    assert_int_equal(look.status.fragments[7].state, SYNC_REPAIR);
    struct digest hash = digest_of("x", 1);
    isle_step(look.a, &(struct sync_event){.type = SYNC_EV_INSTALLED, .fragment = 7, .version = 2, .hash = hash});
    assert_silent(take(), COMPLAINT_REPAIR);
    look_end();
}

/* Two states that both disks confirm: it is for people to find out which one is wrong. */
static void a_state_that_stands_against_another_is_told(void **state)
{
    (void)state;
    struct digest mine = digest_of("y", 1);
    look_begin("status-differs", 2, NULL);
    played_greet(look.b, look.a);
    sync_restore(look.a->sync, 7, 2, &mine);
    struct wire_heartbeat *beat = played_beat(look.b);
    beat->fragments[7].at.version = 2;
    beat->fragments[7].at.hash_known = true;
    beat->fragments[7].at.hash = digest_of("x", 1);
    beat_b();
    isle_step(look.a, &(struct sync_event){.type = SYNC_EV_REPLAYED, .fragment = 7, .version = 2, .hash = mine});
    assert_silent(take(), COMPLAINT_DIFFERS); /* it asks its own disk meanwhile */
    look.a->now_ms += 46000;
    isle_step(look.a, &(struct sync_event){.type = SYNC_EV_TICK});
    assert_complains(take(), COMPLAINT_DIFFERS,
                     "fragment 7, at version 2, is not the same here as at b; what is saved");
    isle_step(look.a, &(struct sync_event){.type = SYNC_EV_PEER_DOWN, .member = LOOK_B});
    assert_silent(take(), COMPLAINT_DIFFERS);
    look_end();
}

/* Who has only joined is not wrong and not behind: it is told how much is here, and complains when nothing comes. */
static void a_newcomer_s_fragments_arrive(void **state)
{
    (void)state;
    const uint64_t long_ms = 11000;
    look_begin("status-arriving", 2, NULL);
    played_greet(look.b, look.a);
    struct status_conf conf = conf_of();
    conf.start_ms = look.a->now_ms - long_ms;
    assert_silent(look_take_of(&conf), COMPLAINT_BEHIND); /* nobody has anything yet */
    assert_int_equal(look.status.arriving.fragments, ISLE_FRAGMENTS);
    assert_false(look.status.arriving.offered);
    struct wire_heartbeat *beat = played_beat(look.b);
    for (uint32_t f = 0; f < ISLE_FRAGMENTS; f++) {
        beat->fragments[f].at.version = 5;
        beat->fragments[f].at.hash = digest_of("x", 1);
        beat->fragments[f].at.hash_known = true;
    }
    beat_b();
    assert_silent(take(), COMPLAINT_BEHIND);
    assert_silent(take(), COMPLAINT_REPAIR);
    assert_int_equal(look.status.arriving.fragments, ISLE_FRAGMENTS);
    uint64_t due = look.status.arriving.bytes_due;
    assert_true(due > 0 && look.status.arriving.bytes == 0);
    struct digest hash = digest_of("x", 1);
    sync_restore(look.a->sync, 1, 5, &hash);
    assert_int_equal(take()->arriving.fragments, ISLE_FRAGMENTS - 1);
    assert_true(look.status.arriving.bytes > 0 && look.status.arriving.bytes_due == due);
    assert_complains(look_take_of(&conf), COMPLAINT_BEHIND, "fragments is not here, and nothing of it has come for 1");
    look_end();
}

static void run_jobs(void)
{
    isle_wait(jobs_pending(look.a->jobs) == 0);
}

static void a_disk_that_cannot_be_written_is_told_until_it_can(void **state)
{
    (void)state;
    struct digest hash = digest_of("x", 1);
    char aside[300];
    look_begin("status-disk", 1, NULL);
    round_context_begin(look.a->rounds->context, 1, &hash);
    sync_restore(look.a->sync, 1, 0, &hash);
    assert_silent(take(), COMPLAINT_DISK);
    snprintf(aside, sizeof aside, "%s-aside", look.a->conf.state_folder);
    assert_int_equal(rename(look.a->conf.state_folder, aside), 0);
    keep_checkpoint(look.a->rounds->keep, 1);
    run_jobs();
    assert_complains(take(), COMPLAINT_DISK, "checkpoint of fragment 1 failed: ");
    assert_int_equal(rename(aside, look.a->conf.state_folder), 0);
    keep_checkpoint(look.a->rounds->keep, 1);
    run_jobs();
    assert_silent(take(), COMPLAINT_DISK);
    look_end();
}

/* ---- numbers and names ---- */

static void what_peers_say_stands_in_their_rows(void **state)
{
    (void)state;
    look_begin("status-peers", 3, NULL);
    played_greet(look.c, look.a);
    train(6);
    played_settle(look.c, LOOK_A, WIRE_HEARTBEAT);
    look.a->now_ms += 10;
    peers_announce(look.a->peers);
    isle_wait(played_heard_type(look.c, WIRE_HEARTBEAT)); /* the last one */
    struct event event;
    struct wire_heartbeat *beat = played_beat(look.c);
    beat->step = 11;
    beat->tokens = 12;
    beat->loss = 0x3ffc000000000000; /* 1.75 */
    beat->tokens_per_s = 13;
    beat->trainer = WIRE_TRAINER_FINISHING;
    beat->echo = look.c->in.heartbeat.sequence;
    look.a->now_ms += 40;
    played_say(look.c, LOOK_A);
    isle_wait(isle_took_sync(look.a, SYNC_EV_HEARTBEAT, &event));
    look.a->now_ms += 1500;
    isle_wait((take(), look.status.peers[LOOK_C].received_bytes > 1000 && look.status.peers[LOOK_C].sent_bytes > 1000));
    const struct status_peer *rows = look.status.peers;
    assert_string_equal(rows[LOOK_A].member->as.name, "a");
    assert_true(rows[LOOK_A].self && rows[LOOK_A].up && !rows[LOOK_B].self && !rows[LOOK_C].self);
    assert_string_equal(rows[LOOK_A].trainer, "training");
    assert_int_equal(rows[LOOK_A].step, 6);
    assert_int_equal(rows[LOOK_A].tokens, 60);
    assert_true(rows[LOOK_A].loss == 2.5 && rows[LOOK_A].tokens_per_s == 99);
    assert_false(rows[LOOK_B].up || rows[LOOK_B].heard);
    assert_string_equal(rows[LOOK_B].trainer, "none");
    assert_true(rows[LOOK_C].up && rows[LOOK_C].heard && rows[LOOK_C].heard_s == 1.5);
    assert_string_equal(rows[LOOK_C].member->as.name, "c");
    assert_string_equal(rows[LOOK_C].trainer, "finishing");
    assert_int_equal(rows[LOOK_C].step, 11);
    assert_int_equal(rows[LOOK_C].tokens, 12);
    assert_true(rows[LOOK_C].loss == 1.75 && rows[LOOK_C].tokens_per_s == 13);
    assert_int_equal(rows[LOOK_C].rtt_ms, 40);
    assert_int_equal(rows[LOOK_C].unacknowledged_bytes, 0);
    assert_int_equal(look.status.sent_bytes, rows[LOOK_B].sent_bytes + rows[LOOK_C].sent_bytes);
    assert_int_equal(look.status.received_bytes, rows[LOOK_B].received_bytes + rows[LOOK_C].received_bytes);
    look_end();
}

static void each_fragments_row_is_its_own(void **state)
{
    (void)state;
    struct digest_state all;
    look_begin("status-fragments", 2, NULL);
    assert_false(take()->anchors_known);
    assert_int_equal(look.status.version_max, 0);
    digest_begin(&all);
    for (uint32_t f = 0; f < ISLE_FRAGMENTS; f++) {
        struct digest hash = digest_of(&f, sizeof f);
        assert_false(take()->anchors_known);
        sync_restore(look.a->sync, f, 100 + f, &hash);
        digest_add(&all, hash.byte, DIGEST_BYTES);
    }
    struct digest anchors = digest_end(&all);
    uint8_t result[MADE_BYTES_MIN] = {0};
    made_append(look.a->ledger, 0, 1, 0, result, sizeof result);
    take();
    assert_int_equal(look.status.fragments_count, ISLE_FRAGMENTS);
    for (uint32_t f = 0; f < ISLE_FRAGMENTS; f++) {
        const struct status_fragment *row = &look.status.fragments[f];
        struct digest hash = digest_of(&f, sizeof f);
        assert_int_equal(row->params, f == 0 ? ISLE_LARGE_VALUES : ISLE_SMALL_VALUES);
        assert_int_equal(row->tensors, 1);
        assert_int_equal(row->own.version, 100 + f);
        assert_true(digest_equal(&row->own.hash, &hash));
        assert_int_equal(row->newest, 100 + f);
        assert_int_equal(row->state, SYNC_LISTENING);
        assert_int_equal(row->owner.round, 101 + f);
    }
    assert_int_equal(look.status.version_min, 100);
    assert_int_equal(look.status.version_max, 100 + ISLE_FRAGMENTS - 1);
    assert_int_equal(look.status.versions, ISLE_FRAGMENTS * 100 + ISLE_FRAGMENTS * (ISLE_FRAGMENTS - 1) / 2);
    assert_true(look.status.anchors_known && digest_equal(&look.status.anchors, &anchors));
    assert_int_equal(look.status.ledger.records, 1);
    assert_int_equal(look.status.ledger.bytes, ledger_stats(look.a->ledger).bytes);
    look_end();
}

static void without_memory_there_is_no_status_and_nothing_is_left(void **state)
{
    (void)state;
    look_begin("status-memory", 2, NULL);
    struct status_conf conf = conf_of();
    enum err err = ERR_NOMEM;
    int n = 0;
    for (; err != ERR_OK; n++) {
        mem_fail_after(n);
        err = status_take(&conf, look.a->now_ms, &look.status);
        mem_fail_after(-1);
        assert_true(err == ERR_OK || err == ERR_NOMEM);
        assert_true((look.status.peers != NULL) == (err == ERR_OK));
    }
    assert_int_equal(n, 4);
    look_end();
}

/* Before the plan there is a status, too. */
static void before_the_plan_there_is_nothing_of_fragments(void **state)
{
    (void)state;
    look_begin_run("status-plan", 2, NULL);
    look.a = isle_open(look.run, LOOK_A, NULL, 0);
    take();
    assert_int_equal(look.status.fragments_count, 0);
    assert_false(look.status.anchors_known);
    assert_int_equal(look.status.step, 0);
    json_t *json = status_json(&look.status);
    assert_true(json_is_null(json_object_get(json, "anchors")));
    assert_int_equal(json_integer_value(json_object_get(json, "params")), 0);
    assert_string_equal(json_string_value(json_object_get(json, "saving")), "none");
    json_decref(json);
    json = status_json_fragments(&look.status);
    assert_int_equal(json_array_size(json_object_get(json, "fragments")), 0);
    json_decref(json);
    look_end();
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_has_a_name_of_its_own),
        cmocka_unit_test(an_island_that_trains_alone_by_design_has_nothing_to_complain_of),
        cmocka_unit_test(a_daemon_that_dies_again_and_again_is_complained_of),
        cmocka_unit_test(a_port_that_is_gone_is_told_until_it_is_back),
        cmocka_unit_test(a_loop_that_stood_is_told_for_a_minute),
        cmocka_unit_test(who_is_not_heard_is_away_and_without_anyone_the_island_is_alone),
        cmocka_unit_test(who_would_not_talk_is_refused_and_not_just_away),
        cmocka_unit_test(a_stranger_is_told_for_a_minute),
        cmocka_unit_test(two_machines_with_one_key_are_told_for_a_minute),
        cmocka_unit_test(who_is_two_intervals_behind_is_slow),
        cmocka_unit_test(rounds_that_close_without_an_island_are_told_after_the_third),
        cmocka_unit_test(the_quorum_in_force_is_that_of_who_takes_part),
        cmocka_unit_test(whose_contributions_are_scaled_down_is_named),
        cmocka_unit_test(who_claims_far_more_tokens_than_count_is_named),
        cmocka_unit_test(whose_contributions_weigh_nothing_is_named),
        cmocka_unit_test(an_anchor_that_runs_away_is_told),
        cmocka_unit_test(an_anchor_that_runs_away_names_the_outlier),
        cmocka_unit_test(fragments_more_than_one_version_behind_are_told),
        cmocka_unit_test(who_comes_no_nearer_says_so),
        cmocka_unit_test(who_is_behind_blames_nobody_for_being_ahead),
        cmocka_unit_test(fragments_in_repair_are_told),
        cmocka_unit_test(a_newcomer_s_fragments_arrive),
        cmocka_unit_test(a_disk_that_cannot_be_written_is_told_until_it_can),
        cmocka_unit_test(a_state_that_stands_against_another_is_told),
        cmocka_unit_test(what_peers_say_stands_in_their_rows),
        cmocka_unit_test(each_fragments_row_is_its_own),
        cmocka_unit_test(without_memory_there_is_no_status_and_nothing_is_left),
        cmocka_unit_test(before_the_plan_there_is_nothing_of_fragments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
