/* SPDX-License-Identifier: Apache-2.0 */
/* run_end: the run is over when everybody has contributed all and our trainer has the newest anchors; while somebody is
 * away who has not said so, that is not known. */
#include "tests/lib/testlib.h"

#include "daemon/trainer/run_end.h"
#include "tests/lib/trainerrun.h"

enum { ANA, BOB, CYD };

static struct trainerrun run;
static struct run_said said[TRAINERRUN_ISLANDS];

static int begin(void **state)
{
    (void)state;
    trainerrun_open(&run, testlib_folder("end"), TRAINERRUN_ISLANDS, "");
    assert_int_equal(run.view.self, BOB);
    for (uint32_t i = 0; i < TRAINERRUN_ISLANDS; i++)
        said[i] = (struct run_said){.trainer = WIRE_TRAINER_TRAINING};
    for (uint32_t f = 0; f < TRAINERRUN_FRAGMENTS; f++)
        trainerrun_restore(&run, f, 4);
    return 0;
}

static int end(void **state)
{
    (void)state;
    trainerrun_close(&run);
    return 0;
}

static void assert_end(enum run_end want)
{
    assert_int_equal(run_end_of(run.sync, &run.view, TRAINERRUN_FRAGMENTS, said, false).end, want);
}

static void own(enum sync_event_type type, uint32_t f)
{
    trainerrun_step(&run, &(struct sync_event){.type = type, .fragment = f, .version = 4});
}

/* Our trainer contributes nothing more. */
static void settle_ourselves(void)
{
    for (uint32_t f = 0; f < TRAINERRUN_FRAGMENTS; f++) {
        own(SYNC_EV_TRAINER_UP, f);
        own(SYNC_EV_SETTLED, f);
    }
}

/* A member is heard, at this version; `settled`: of so many fragments it says that nothing more comes. */
static void hear(uint32_t member, uint64_t version, uint32_t settled)
{
    struct wire_heartbeat beat = {.fragments_count = TRAINERRUN_FRAGMENTS, .taking_part = true};
    for (uint32_t f = 0; f < TRAINERRUN_FRAGMENTS; f++)
        beat.fragments[f] = (struct wire_fragment){.fragment = f,
                                                   .at.version = version,
                                                   .at.abstained = f < settled ? UINT64_MAX : 0,
                                                   .at.hash = trainerrun_hash(f, version),
                                                   .at.hash_known = true};
    if (!sync_up(run.sync, member))
        trainerrun_step(&run, &(struct sync_event){.type = SYNC_EV_PEER_UP, .member = member});
    trainerrun_step(&run, &(struct sync_event){.type = SYNC_EV_HEARTBEAT, .member = member, .beat = &beat});
}

static void everybody_has_to_have_contributed_all(void **state)
{
    (void)state;
    settle_ourselves();
    hear(ANA, 4, TRAINERRUN_FRAGMENTS);
    hear(CYD, 4, TRAINERRUN_FRAGMENTS - 1);
    assert_end(RUN_GOES_ON);
    hear(CYD, 4, TRAINERRUN_FRAGMENTS);
    assert_end(RUN_OVER);
    trainerrun_step(&run, &(struct sync_event){.type = SYNC_EV_PEER_DOWN, .member = CYD});
    assert_end(RUN_OVER); /* it was done before it went */
}

static void so_have_we_and_have_the_newest(void **state)
{
    (void)state;
    hear(ANA, 4, TRAINERRUN_FRAGMENTS);
    hear(CYD, 4, TRAINERRUN_FRAGMENTS);
    for (uint32_t f = 0; f < TRAINERRUN_FRAGMENTS; f++)
        own(SYNC_EV_TRAINER_UP, f);
    assert_end(RUN_GOES_ON);
    settle_ourselves();
    assert_end(RUN_OVER);
    hear(ANA, 5, TRAINERRUN_FRAGMENTS); /* a round closed there that we have not applied */
    assert_end(RUN_GOES_ON);
}

static void one_that_is_away_leaves_it_open(void **state)
{
    (void)state;
    settle_ourselves();
    assert_end(RUN_OPEN); /* nobody was heard of yet */
    hear(ANA, 4, TRAINERRUN_FRAGMENTS);
    hear(CYD, 4, 0);
    trainerrun_step(&run, &(struct sync_event){.type = SYNC_EV_PEER_DOWN, .member = CYD});
    assert_end(RUN_OPEN);
    hear(ANA, 4, 0); /* but who is here and trains is waited for */
    assert_end(RUN_GOES_ON);
}

static void one_without_a_trainer_is_not_waited_for(void **state)
{
    (void)state;
    settle_ourselves();
    hear(ANA, 4, TRAINERRUN_FRAGMENTS);
    hear(CYD, 4, 0);
    static const struct {
        uint32_t trainer;
        enum run_end want;
    } cases[] = {{WIRE_TRAINER_NONE, RUN_OVER},        {WIRE_TRAINER_STARTING, RUN_GOES_ON},
                 {WIRE_TRAINER_TRAINING, RUN_GOES_ON}, {WIRE_TRAINER_FINISHING, RUN_GOES_ON},
                 {WIRE_TRAINER_FINISHED, RUN_OVER},    {WIRE_TRAINER_FAILED, RUN_GOES_ON}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        said[CYD].trainer = cases[i].trainer;
        assert_end(cases[i].want);
    }
}

/* What is found when cyd has said this last, and ana is done. */
static struct run_end_found found_of(uint32_t trainer, bool unfinished)
{
    said[ANA].trainer = WIRE_TRAINER_FINISHED;
    said[CYD] = (struct run_said){trainer, unfinished};
    return run_end_of(run.sync, &run.view, TRAINERRUN_FRAGMENTS, said, false);
}

/* As after a SIGTERM: it has said of all fragments that nothing more comes, and its daemon that it is not done. It may
 * come again, and contribute. */
static void one_whose_trainer_ends_before_the_run_leaves_it_open(void **state)
{
    (void)state;
    static const uint32_t states[] = {WIRE_TRAINER_FINISHING, WIRE_TRAINER_NONE, WIRE_TRAINER_FAILED};
    settle_ourselves();
    hear(ANA, 4, TRAINERRUN_FRAGMENTS);
    hear(CYD, 4, TRAINERRUN_FRAGMENTS);
    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++) {
        struct run_end_found found = found_of(states[i], true);
        assert_int_equal(found.end, RUN_OPEN);
        assert_true(bitset_has(&found.open, CYD) && !bitset_has(&found.open, ANA));
        assert_int_equal(found_of(states[i], false).end, RUN_OVER);
    }
    hear(CYD, 4, 0); /* it went, and trained not to the end */
    assert_int_equal(found_of(WIRE_TRAINER_NONE, true).end, RUN_OPEN);
    assert_int_equal(found_of(WIRE_TRAINER_NONE, false).end, RUN_OVER);
    assert_int_equal(found_of(WIRE_TRAINER_STARTING, true).end, RUN_GOES_ON); /* and comes again */
    trainerrun_step(&run, &(struct sync_event){.type = SYNC_EV_PEER_DOWN, .member = CYD});
    assert_int_equal(found_of(WIRE_TRAINER_FINISHED, false).end, RUN_OVER);
}

/* One that takes no part in rounds is not waited for. It may come back to them; but who was lost and is not here may be
 * gone for good, and would leave the end open for everybody. */
static void one_that_rounds_do_not_wait_for_leaves_it_open_while_it_is_here(void **state)
{
    static const struct {
        enum config_role role;
        bool revoked, here, unfinished;
        enum run_end want;
    } cases[] = {{CONFIG_AWAY, false, true, true, RUN_OPEN},      {CONFIG_AWAY, false, true, false, RUN_OVER},
                 {CONFIG_AWAY, false, false, true, RUN_OVER},     {CONFIG_OBSERVER, false, true, true, RUN_OPEN},
                 {CONFIG_OBSERVER, false, true, false, RUN_OVER}, {CONFIG_DRAINING, false, true, true, RUN_OVER},
                 {CONFIG_CONTRIBUTOR, true, true, true, RUN_OVER}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++, end(state), begin(state)) {
        trainerrun_epoch(&run, CYD, cases[i].role, false, cases[i].revoked);
        settle_ourselves();
        hear(ANA, 4, TRAINERRUN_FRAGMENTS);
        if (cases[i].here && !cases[i].revoked)
            hear(CYD, 4, cases[i].role == CONFIG_DRAINING ? TRAINERRUN_FRAGMENTS : 0);
        struct run_end_found found = found_of(WIRE_TRAINER_NONE, cases[i].unfinished);
        assert_int_equal(found.end, cases[i].want);
        assert_int_equal(bitset_has(&found.open, CYD), cases[i].want == RUN_OPEN);
    }
}

static bool closes(struct run_close *close, bool finished, uint64_t now_ms)
{
    struct run_end_found found = run_end_of(run.sync, &run.view, TRAINERRUN_FRAGMENTS, said, true);
    return run_close_due(close, &found, finished, run.sync, &run.view, said, now_ms);
}

static void a_daemon_may_end_when_no_other_trainer_needs_it(void **state)
{
    (void)state;
    struct run_close close = {0};
    settle_ourselves();
    hear(ANA, 4, TRAINERRUN_FRAGMENTS);
    hear(CYD, 4, TRAINERRUN_FRAGMENTS);
    said[CYD].trainer = WIRE_TRAINER_FINISHED;
    assert_end(RUN_OVER);
    said[ANA].trainer = WIRE_TRAINER_FINISHED;
    assert_false(closes(&close, true, 1000)); /* ours is done, and still attached */
    assert_false(closes(&close, true, 3600000));
    for (uint32_t f = 0; f < TRAINERRUN_FRAGMENTS; f++)
        own(SYNC_EV_TRAINER_DOWN, f);
    assert_end(RUN_GOES_ON);                    /* to one that comes, nothing of that is told */
    said[ANA].trainer = WIRE_TRAINER_FINISHING; /* it may still fetch the last results from us */
    assert_false(closes(&close, true, 1000));
    assert_false(closes(&close, true, 3600000));
    said[ANA].trainer = WIRE_TRAINER_FINISHED;
    assert_false(closes(&close, false, 3601000)); /* our trainer saves */
    assert_false(closes(&close, true, 3602000));
    assert_false(closes(&close, true, 3611999));
    assert_true(closes(&close, true, 3612000));
    said[ANA].trainer = WIRE_TRAINER_TRAINING; /* the run was made longer */
    assert_false(closes(&close, true, 3613000));
    said[ANA].trainer = WIRE_TRAINER_FINISHED;
    assert_false(closes(&close, true, 3614000));
    assert_true(closes(&close, true, 3624000));
}

static void it_waits_longer_for_one_that_is_away(void **state)
{
    (void)state;
    struct run_close close = {0};
    settle_ourselves();
    hear(ANA, 4, TRAINERRUN_FRAGMENTS);
    said[ANA].trainer = WIRE_TRAINER_FINISHED;
    assert_end(RUN_OPEN);
    for (uint32_t f = 0; f < TRAINERRUN_FRAGMENTS; f++)
        own(SYNC_EV_TRAINER_DOWN, f);
    assert_false(closes(&close, true, 1000));
    assert_false(closes(&close, true, 600999));
    assert_true(closes(&close, true, 601000));
    hear(CYD, 4, TRAINERRUN_FRAGMENTS); /* it comes, and has contributed all */
    said[CYD].trainer = WIRE_TRAINER_FINISHED;
    assert_false(closes(&close, true, 602000));
    assert_true(closes(&close, true, 612000));
}

#define in_a_run(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        in_a_run(everybody_has_to_have_contributed_all),
        in_a_run(so_have_we_and_have_the_newest),
        in_a_run(one_that_is_away_leaves_it_open),
        in_a_run(one_without_a_trainer_is_not_waited_for),
        in_a_run(one_whose_trainer_ends_before_the_run_leaves_it_open),
        in_a_run(one_that_rounds_do_not_wait_for_leaves_it_open_while_it_is_here),
        in_a_run(a_daemon_may_end_when_no_other_trainer_needs_it),
        in_a_run(it_waits_longer_for_one_that_is_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
