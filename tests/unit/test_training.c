/* SPDX-License-Identifier: Apache-2.0 */
/* trainer: what is said, ordered and counted while a trainer trains. Whole runs: test_trainer_runs.c. */
#include "tests/lib/testlib.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "daemon/trainer/attachment.h"
#include "tests/lib/overhear.h"
#include "tests/lib/shares.h"
#include "tests/lib/trainerstage.h"

enum { OPEN_PATIENCE_MS = 30000, CYD = 2 };

static struct stage stage;
static const struct bitset none;

static int begin(void **state)
{
    (void)state;
    stage_open(&stage, TRAINERRUN_ISLANDS, "", "");
    stage_train(&stage, true);
    return 0;
}

static int end(void **state)
{
    (void)state;
    stage_close(&stage);
    return 0;
}

static struct bitset all_shards(uint32_t f)
{
    return shares_owners(&stage.run.parts, f);
}

/* The daemon wakes the trainer for this fragment, and says nothing else. */
static void assert_woken(uint32_t f)
{
    assert_int_equal(stage_hear(&stage, IPC_WAKE).fragment, f);
    stage_hear_nothing(&stage);
}

static void assert_mode(uint32_t f, uint32_t mode)
{
    assert_true(stage_fragment(&stage, f)->ranges_count > 0);
    for (uint32_t r = 0; r < stage_fragment(&stage, f)->ranges_count; r++)
        assert_int_equal(stage_fragment(&stage, f)->ranges[r].mode, mode);
}

/* ---- snapshots ---- */

static void a_snapshot_is_encoded_and_its_anchor_mixed(void **state)
{
    (void)state;
    struct bitset all = all_shards(0);
    stage_take_snapshot(&stage, 0, 6, 60, 3);
    assert_posted(&stage, "snapshot 0");
    assert_int_equal(sync_state(stage.run.sync, 0), SYNC_CONTRIBUTED);
    assert_true(stage.contribution[0][9] == 3);
    assert_int_equal(stage.snapshot[0].step, 6);
    assert_int_equal(stage.snapshot[0].tokens, 60);
    assert_int_equal(stage.snapshot[0].counted_tokens[0], 0);
    stage_hear_nothing(&stage);
    stage_results(&stage, 0, &all);
    assert_posted(&stage, "fill 0");
    assert_woken(0);
    assert_int_equal(stage_word(&stage, 0), IPC_ANCHOR);
    assert_int_equal(stage_fragment(&stage, 0)->anchor_version, 1);
    assert_true(ipc_area(stage.shm, stage_fragment(&stage, 0))[9] == 1000);
    assert_mode(0, IPC_MIX);
    stage_mix(&stage, 0);
    assert_posted(&stage, "mixed 0");
    assert_int_equal(sync_state(stage.run.sync, 0), SYNC_IDLE);
    /* What was counted is not contributed again. */
    stage_take_snapshot(&stage, 0, 12, 100, 4);
    assert_int_equal(stage.snapshot[0].tokens, 100);
    assert_int_equal(stage.snapshot[0].counted_tokens[0], 60);
    assert_int_equal(stage.snapshot[0].counted_tokens[shares_first(&stage.run.parts, 0, 2)], 60);
    assert_true(stage.snapshot[0].base[9] == 1000);
}

static void work_that_missed_its_round_stays_in_the_tensors(void **state)
{
    (void)state;
    struct bitset first = bitset_first(1);
    stage_take_snapshot(&stage, 0, 6, 60, 3);
    stage_results(&stage, 0, &first);
    const struct ipc_fragment *fragment = stage_fragment(&stage, 0);
    assert_int_equal(fragment->ranges_count, 2);
    assert_int_equal(stage_mode(&stage, 0, 0), IPC_MIX);
    assert_int_equal(stage_mode(&stage, 0, 1), IPC_SHIFT);
    assert_int_equal(stage_mode(&stage, 0, 2), IPC_SHIFT);
    assert_int_equal(fragment->counted_tokens[0], 60);
    assert_int_equal(fragment->counted_tokens[shares_first(&stage.run.parts, 0, 1)], 0);
    assert_int_equal(fragment->counted_tokens[shares_first(&stage.run.parts, 0, 2)], 0);
}

/* A NaN: it comes back without an anchor, and what it held is replaced when one comes. */
static void a_snapshot_that_cannot_be_sent_comes_back(void **state)
{
    (void)state;
    stage.held = 1 << EVENT_ENCODED;
    stage_take_snapshot(&stage, 1, 8, 60, NAN);
    stage.waiting[0].err = ERR_NONFINITE;
    stage_answer(&stage);
    assert_posted(&stage, "snapshot 1");
    assert_int_equal(stage_word(&stage, 1), IPC_FREE);
    assert_int_equal(stage_fragment(&stage, 1)->due_step, trainerrun_due(1, 8));
    assert_woken(1);
    stage_results(&stage, 1, &none);
    assert_mode(1, IPC_RESET);
    stage_hear(&stage, IPC_WAKE);
    stage_mix(&stage, 1);
    stage_results(&stage, 1, &none);
    assert_mode(1, IPC_SHIFT); /* once */
}

static void a_good_snapshot_makes_up_for_a_bad_one(void **state)
{
    (void)state;
    stage.held = 1 << EVENT_ENCODED;
    stage_take_snapshot(&stage, 1, 8, 60, NAN);
    stage.waiting[0].err = ERR_NONFINITE;
    stage_answer(&stage);
    stage_take_snapshot(&stage, 1, 14, 90, 3);
    stage_results(&stage, 1, &none);
    assert_mode(1, IPC_SHIFT);
}

static void what_was_not_moved_is_no_news(void **state)
{
    (void)state;
    for (uint32_t word = IPC_FREE; word < IPC_WORDS; word++) {
        stage_put_word(&stage, 0, word);
        if (word != IPC_SNAPSHOT)
            stage_say(&stage, IPC_TAKEN, 0);
        if (word == IPC_FILLING || word == IPC_ANCHOR || word == IPC_MIXING)
            stage_say(&stage, IPC_MIXED, 0);
    }
    stage_say(&stage, IPC_INITIAL, 0);
    stage_say(&stage, IPC_REGISTERED, 0);
    assert_posted(&stage, "");
    assert_false(attachment_initialising(stage.trainer->attachment));
    stage_hear_nothing(&stage);
}

/* ---- anchors ---- */

/* The core calls what has no place in its state a bug of ours; a trainer that says anything at any time is none. */
static void what_is_said_out_of_turn_is_not_heard(void **state)
{
    (void)state;
    struct bitset all = all_shards(0);
    stage.held = 1u << EVENT_ENCODED;
    stage_take_snapshot(&stage, 0, 6, 60, 3);
    assert_int_equal(sync_state(stage.run.sync, 0), SYNC_ENCODING);
    stage_say(&stage, IPC_SETTLED, 0);
    stage_answer(&stage);
    assert_int_equal(sync_state(stage.run.sync, 0), SYNC_CONTRIBUTED);
    stage_say(&stage, IPC_SETTLED, 0);
    stage.applies = false;
    stage_results(&stage, 0, &all);
    assert_int_equal(sync_state(stage.run.sync, 0), SYNC_APPLYING);
    stage_put_word(&stage, 0, IPC_FREE);
    stage_say(&stage, IPC_MIXED, 0);
    stage_forget(&stage);
    stage_step(&stage, &(struct sync_event){.type = SYNC_EV_APPLIED, .fragment = 0, .hash = trainerrun_hash(0, 1)});
    assert_int_equal(sync_state(stage.run.sync, 0), SYNC_MIXING);
    stage_put_word(&stage, 0, IPC_SNAPSHOT);
    stage_say(&stage, IPC_TAKEN, 0);
    assert_posted(&stage, "fill 0");
    assert_int_equal(sync_state(stage.run.sync, 0), SYNC_MIXING);
    stage_put_word(&stage, 0, IPC_ANCHOR);
    stage_mix(&stage, 0);
    assert_posted(&stage, "mixed 0");
    stage_say(&stage, IPC_SETTLED, 0);
    assert_posted(&stage, "settled 0");
}

static void an_anchor_waits_for_a_snapshot_being_taken(void **state)
{
    (void)state;
    struct ipc_fragment *fragment = stage_fragment(&stage, 0);
    assert_true(ipc_move(fragment, IPC_TRAINER, IPC_FREE, IPC_COPYING));
    stage_results(&stage, 0, &none); /* a round closed without us */
    assert_posted(&stage, "");
    assert_int_equal(stage_word(&stage, 0), IPC_COPYING);
    assert_true(ipc_move(fragment, IPC_TRAINER, IPC_COPYING, IPC_SNAPSHOT));
    stage_say(&stage, IPC_TAKEN, 0);
    assert_posted(&stage, "fill 0");
    assert_int_equal(stage_word(&stage, 0), IPC_ANCHOR);
    assert_mode(0, IPC_SHIFT); /* nobody has seen that snapshot */
    assert_woken(0);
}

static void a_newer_anchor_waits_for_the_one_being_mixed(void **state)
{
    (void)state;
    struct ipc_fragment *fragment = stage_fragment(&stage, 0);
    stage_results(&stage, 0, &none);
    assert_posted(&stage, "fill 0");
    stage_hear(&stage, IPC_WAKE);
    assert_true(ipc_move(fragment, IPC_TRAINER, IPC_ANCHOR, IPC_MIXING));
    stage_results(&stage, 0, &none);
    assert_posted(&stage, ""); /* not taken back */
    assert_int_equal(sync_state(stage.run.sync, 0), SYNC_MIXING);
    fragment->base ^= 1;
    fragment->base_version = 1;
    assert_true(ipc_move(fragment, IPC_TRAINER, IPC_MIXING, IPC_FREE));
    stage_say(&stage, IPC_MIXED, 0);
    assert_posted(&stage, "mixed 0, fill 0");
    assert_int_equal(fragment->anchor_version, 2);
    assert_woken(0);
}

static void an_anchor_that_was_not_begun_is_taken_back_for_a_newer_one(void **state)
{
    (void)state;
    struct bitset all = all_shards(0);
    stage_take_snapshot(&stage, 0, 6, 60, 3);
    stage_results(&stage, 0, &all);
    stage_forget(&stage);
    stage_results(&stage, 0, &none);
    assert_posted(&stage, "taken-back 0, fill 0");
    assert_int_equal(stage_fragment(&stage, 0)->anchor_version, 2);
    assert_mode(0, IPC_MIX); /* its work is in the one that was taken back, and so in this one */
    stage_mix(&stage, 0);
    assert_posted(&stage, "mixed 0");
}

static void an_anchor_that_was_repaired_is_put_there_anew(void **state)
{
    (void)state;
    stage_results(&stage, 0, &none);
    stage_hear(&stage, IPC_WAKE);
    stage_forget(&stage);
    trainer_publish(stage.trainer, 0); /* of the same version */
    stage_turn(&stage);
    assert_posted(&stage, "fill 0");
    assert_woken(0);
    assert_int_equal(stage_word(&stage, 0), IPC_ANCHOR);
}

static void orders_reach_the_memory(void **state)
{
    (void)state;
    trainer_run_step(stage.trainer, 321);
    assert_int_equal(atomic_load(&stage.shm->run_step), 321);
    trainer_release(stage.trainer, 0); /* there is none */
    trainer_withdraw(stage.trainer, 0);
    stage_turn(&stage);
    assert_posted(&stage, "");
    stage_hear_nothing(&stage);
}

static void a_word_written_over_ends_the_attachment_and_says_where(void **state)
{
    (void)state;
    stage.held = 1 << EVENT_FILL;
    stage_results(&stage, 2, &none);
    assert_posted(&stage, "fill 2");
    stage_put_word(&stage, 2, IPC_SNAPSHOT);
    stage_answer(&stage);
    assert_posted(&stage, "down 0, down 1, down 2, announce");
    stage_hear_refusal(&stage, "fragment 2: the trainer, or another process, wrote SNAPSHOT over the daemon's FILLING");
}

/* ---- what it reports ---- */

static void report(uint64_t step, uint64_t tokens, double number)
{
    struct ipc_message message = {.type = IPC_REPORT};
    message.report = (struct ipc_report){
        .step = step, .tokens = tokens, .loss = number, .tokens_per_s = number, .lr = number, .grad_norm = number};
    stage_send(&stage, &message, -1);
}

static void a_report_is_what_the_island_shows(void **state)
{
    (void)state;
    assert_int_equal(trainer_info(stage.trainer).report_ms, 0);
    stage.now_ms += 50;
    report(7, 70, 2.5);
    struct trainer_info info = trainer_info(stage.trainer);
    assert_true(info.attached && info.training && !info.left && !info.finishing && !info.counted);
    assert_int_equal(info.pid, getpid());
    assert_int_equal(info.step, 7);
    assert_int_equal(info.tokens, 70);
    assert_true(info.loss == 2.5 && info.tokens_per_s == 2.5 && info.lr == 2.5 && info.grad_norm == 2.5);
    assert_int_equal(info.report_ms, stage.now_ms);
    assert_posted(&stage, "");
}

static void numbers_that_are_none_do_not_get_out(void **state)
{
    (void)state;
    static const double numbers[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        report(7, 70, 2.5);
        report(8, 80, numbers[i]);
        struct trainer_info info = trainer_info(stage.trainer);
        assert_int_equal(info.step, 8);
        assert_int_equal(info.tokens, 80);
        assert_true(isnan(info.loss) && isnan(info.grad_norm)); /* who prints them looks */
        assert_true(info.tokens_per_s == 0 && info.lr == 0);
    }
}

static struct trainer_info rated(double flops_per_token, double peak_flops, double tokens_per_s)
{
    stage.machine = (struct ipc_machine){
        .device = "a device", .ranks = 2, .flops_per_token = flops_per_token, .peak_flops = peak_flops};
    stage_attach_again(&stage, 7, 70);
    stage_tick(&stage, 1);
    report(8, 80, tokens_per_s);
    return trainer_info(stage.trainer);
}

static void a_rate_and_its_share_of_the_peak_follow_from_what_it_reports(void **state)
{
    (void)state;
    struct trainer_info info = trainer_info(stage.trainer);
    assert_true(info.machine.ranks == 0 && info.flops_per_s == 0 && info.mfu == 0); /* it has not said */
    info = rated(6e9, 2e15, 1e5);
    assert_string_equal(info.machine.device, "a device");
    assert_int_equal(info.machine.ranks, 2);
    assert_true(info.flops_per_s == 6e14 && info.mfu == 0.3);
    info = rated(6e9, 0, 1e5); /* no peak is known */
    assert_true(info.flops_per_s == 6e14 && info.mfu == 0);
    info = rated(0, 2e15, 1e5);
    assert_true(info.flops_per_s == 0 && info.mfu == 0);
}

/* Each factor is a number, and the product is none. */
static void a_rate_beyond_all_numbers_is_not_known(void **state)
{
    (void)state;
    struct trainer_info info = rated(1e200, 1, 1e200);
    assert_true(info.flops_per_s == 0 && info.mfu == 0);
    info = rated(1e200, 1e-200, 1);
    assert_true(info.flops_per_s == 1e200 && info.mfu == 0);
    info = rated(1, 1, -5);
    assert_true(info.flops_per_s == 0 && info.mfu == 0);
}

/* Other islands skip to where the furthest is, and the next trainer begins where this one was. */
static void a_step_beyond_the_run_is_its_last(void **state)
{
    (void)state;
    report(UINT64_MAX, 70, 2.5);
    assert_int_equal(trainer_info(stage.trainer).step, TRAINERRUN_STEPS);
    stage_attach_again(&stage, UINT64_MAX, 70);
    stage_tick(&stage, 1);
    assert_int_equal(trainer_info(stage.trainer).step, TRAINERRUN_STEPS);
}

/* Tokens are the trainer's word: none is more than the island can show. */
static void tokens_without_end_are_shown_as_very_many(void **state)
{
    (void)state;
    struct bitset all = all_shards(0);
    for (uint64_t v = 1; v <= 3; v++) {
        memset(stage_fragment(&stage, 0)->counted_tokens, 0, sizeof stage_fragment(&stage, 0)->counted_tokens);
        stage_take_snapshot(&stage, 0, trainerrun_due(0, 6 * v), UINT64_MAX, 3);
        stage_results(&stage, 0, &all);
        stage_mix(&stage, 0);
    }
    assert_true(trainer_info(stage.trainer).tokens_counted == 9000000000000000000);
    assert_true(trainer_info(stage.trainer).tokens == 9000000000000000000);
    stage_forget(&stage);
}

/* Reports may be lost, words are not. */
static void what_is_counted_was_trained_whatever_reports_are_lost(void **state)
{
    (void)state;
    report(5, 50, 1);
    for (uint64_t v = 1; v <= 3; v++) {
        for (uint32_t f = 0; f < TRAINERRUN_FRAGMENTS; f++) {
            struct bitset all = all_shards(f);
            stage_take_snapshot(&stage, f, trainerrun_due(f, 6 * v), 1000 * v + f, 3);
            stage_results(&stage, f, &all);
            stage_mix(&stage, f);
            struct trainer_info info = trainer_info(stage.trainer);
            assert_int_equal(info.tokens, 1000 * v + f);
            assert_in_range(info.tokens_counted, v > 1 ? 1 : 0, info.tokens);
            stage_forget(&stage);
        }
    }
}

static void next_trainer(void)
{
    stage_hang_up(&stage, false);
    stage_turn(&stage);
    stage_connect(&stage);
    stage_register(&stage);
    stage_hear(&stage, IPC_WELCOME);
    stage_tick(&stage, 1);
    stage_tick(&stage, 1);
    stage_hear(&stage, IPC_GO);
}

static uint64_t tokens(void)
{
    return trainer_info(stage.trainer).tokens;
}

static void tokens_add_up_over_all_trainers_of_the_island(void **state)
{
    (void)state;
    report(10, 100, 1);
    next_trainer();
    assert_int_equal(tokens(), 100);
    report(11, 10, 1);
    assert_int_equal(tokens(), 110);
    next_trainer();
    next_trainer(); /* one that never reported */
    report(12, 5, 1);
    assert_int_equal(tokens(), 115);
}

static void tokens_do_not_go_down_while_the_next_one_comes(void **state)
{
    (void)state;
    report(10, 100, 1);
    stage_hang_up(&stage, false);
    stage_turn(&stage);
    assert_int_equal(tokens(), 100);
    stage_connect(&stage);
    stage_hello(&stage, 0, 0, 0, -1);
    assert_int_equal(tokens(), 100);
    /* It is refused: what was trained before it was trained all the same. */
    stage_say(&stage, IPC_GO, 0);
    stage_hear_refusal(&stage, "does not send");
    assert_int_equal(tokens(), 100);
    next_trainer();
    report(11, 10, 1);
    assert_int_equal(tokens(), 110);
}

static void tokens_outlive_the_daemon(void **state)
{
    (void)state;
    report(10, 100, 1);
    next_trainer();
    report(11, 10, 1);
    stage_hang_up(&stage, false);
    stage_turn(&stage);
    stage_restart(&stage); /* both have gone */
    assert_int_equal(tokens(), 110);
    stage_train(&stage, false);
    report(12, 5, 1);
    assert_int_equal(tokens(), 115);
    stage_tick(&stage, 1);
    stage_tick(&stage, 60000); /* killed, it knows what it knew a minute ago; the trainer knows its own */
    report(13, 7, 1);
    stage_restart(&stage);
    assert_int_equal(tokens(), 115);
    stage_attach_again(&stage, 14, 9);
    stage_tick(&stage, 1);
    assert_int_equal(tokens(), 119);
    /* What makes no sense is not believed. */
    stage_restart(&stage);
    static const char *const texts[] = {
        "",
        "x",
        "diloco tokens 2\nbefore = 1\nlast = 1\ncounted = 1\nunfinished = 0\n",
        "diloco tokens 3\nbefore = 1\nlast = 1\ncounted = 1\n",
        "diloco tokens 3\nbefore = 1\nlast = 1\ncounted = -1\nunfinished = 0\n",
        "diloco tokens 3\nbefore = 1\nlast = 1\ncounted = 1\nunfinished = 2\n",
        "diloco tokens 3\nbefore = 1\nlast = 1\ncounted = 1\nunfinished = 0\nnoted = 1 x\n"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        testlib_file(stage.conf.state_folder, "trainer.tokens", "%s", texts[i]);
        stage_forget_plan(&stage);
        assert_int_equal(tokens(), 0);
    }
}

/* A shard counts for as much as it holds of the parameters. */
static void counted_tokens_are_those_that_results_name(void **state)
{
    (void)state;
    const struct plan *plan = stage.run.plan->plan;
    struct bitset some = {{0}}, all = all_shards(0);
    double total = 0, part = 0;
    for (uint32_t f = 0; f < TRAINERRUN_FRAGMENTS; f++)
        total += (double)plan->fragments[f].values_count;
    bitset_add(&some, 0);
    part = (double)(shares_run(&stage.run.parts, 0, 0).end - shares_run(&stage.run.parts, 0, 0).begin);
    assert_true(part > 0 && part < (double)plan->fragments[0].values_count);
    stage_take_snapshot(&stage, 0, 6, 6000, 3);
    assert_true(trainer_info(stage.trainer).tokens_counted == 0);
    stage_results(&stage, 0, &some);
    stage_mix(&stage, 0);
    assert_int_equal(trainer_info(stage.trainer).tokens_counted, (uint64_t)(6000 * part / total + 0.5));
    stage_take_snapshot(&stage, 0, 12, 9000, 3);
    stage_results(&stage, 0, &all);
    stage_mix(&stage, 0);
    uint64_t want = (uint64_t)(9000 * (double)plan->fragments[0].values_count / total + 0.5);
    assert_int_equal(trainer_info(stage.trainer).tokens_counted, want);
    stage_hang_up(&stage, false);
    stage_turn(&stage);
    stage_restart(&stage);
    assert_in_range(trainer_info(stage.trainer).tokens_counted, want - 1, want + 1);
}

/* ---- the end ---- */

static void the_runs_end_is_said_once_and_to_each_trainer(void **state)
{
    (void)state;
    stage_tick(&stage, 1000000);
    stage_hear_nothing(&stage); /* it goes on */
    stage.end.end = RUN_OVER;
    stage_tick(&stage, 1);
    assert_int_equal(stage_hear(&stage, IPC_END).end.over, 1);
    stage_tick(&stage, 1000000);
    stage_hear_nothing(&stage);
    stage_attach_again(&stage, 3, 30);
    stage_tick(&stage, 1);
    stage_hear(&stage, IPC_WELCOME);
    assert_int_equal(stage_hear(&stage, IPC_END).end.over, 1);
    stage_hang_up(&stage, false);
    stage.peers_heard = false; /* one that does not train yet is not told */
    stage_turn(&stage);
    stage_connect(&stage);
    stage_tick(&stage, 1);
    stage_tick(&stage, 1);
    stage_hear_nothing(&stage);
}

/* It would take that for the end of its own work. */
static void one_that_ends_before_is_not_told_that_the_run_is_over(void **state)
{
    (void)state;
    stage_send(&stage, &(struct ipc_message){.type = IPC_SETTLED, .settled.ends = 1}, -1);
    stage_turn(&stage);
    stage.end.end = RUN_OVER;
    stage_tick(&stage, 1);
    stage_tick(&stage, 1000000);
    stage_hear_nothing(&stage);
    stage_attach_again(&stage, 3, 30); /* and it trains on */
    stage_tick(&stage, 1);
    stage_hear(&stage, IPC_WELCOME);
    assert_int_equal(stage_hear(&stage, IPC_END).end.over, 1);
}

static void an_end_that_is_not_known_is_said_when_nobody_came_in_time(void **state)
{
    (void)state;
    stage.end.end = RUN_OPEN;
    stage_tick(&stage, 1);
    stage_tick(&stage, OPEN_PATIENCE_MS - 1);
    stage.end.end = RUN_GOES_ON; /* they came, and train */
    stage_tick(&stage, 1);
    stage.end.end = RUN_OPEN;
    stage_tick(&stage, 1);
    stage_tick(&stage, OPEN_PATIENCE_MS - 1);
    stage_hear_nothing(&stage);
    bitset_add(&stage.end.open, 2);
    stage_tick(&stage, 1);
    struct ipc_message message = stage_hear(&stage, IPC_END);
    assert_int_equal(message.end.over, 0);
    assert_string_equal(message.end.why, "not done when last heard: cyd");
}

/* ---- who is away ---- */

/* Cyd is away in each of these ways, and ana for good: what a trainer's start says. */
static void only_islands_that_rounds_wait_for_are_missed(void **state)
{
    (void)state;
    static const struct {
        enum config_role role;
        bool voter, revoked, missed;
    } cases[] = {{CONFIG_OWNER, true, false, true},      {CONFIG_DRAINING, true, false, true},
                 {CONFIG_AWAY, true, false, false},      {CONFIG_CONTRIBUTOR, false, false, false},
                 {CONFIG_OBSERVER, false, false, false}, {CONFIG_CONTRIBUTOR, false, true, false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++, end(state), begin(state)) {
        trainerrun_epoch(&stage.run, CYD, cases[i].role, cases[i].voter, cases[i].revoked);
        overhear_begin();
        next_trainer();
        const char *logged = overhear_end();
        overhear_assert_once(logged, "island ana is not here; no round closes without it");
        assert_null(strstr(logged, "island  is not here"));
        assert_int_equal(strstr(logged, "island cyd is not here") != NULL, cases[i].missed);
    }
}

static void report_step(uint64_t step)
{
    struct ipc_message message = {.type = IPC_REPORT, .report = {.step = step, .tokens = 10 * step}};
    stage_send(&stage, &message, -1);
}

static void leaving_again_does_not_take_longer_and_says_how_long(void **state)
{
    (void)state;
    struct trainer_leaving leaving;
    assert_ok(trainer_leave(stage.trainer, &leaving));
    assert_int_equal(leaving.steps, 10); /* the last fragment is due after step 10 */
    assert_true(leaving.seconds == 0);   /* no step was seen yet */
    for (uint64_t step = 1; step <= 4; step++) {
        stage.now_ms += 500;
        report_step(step);
    }
    assert_ok(trainer_leave(stage.trainer, &leaving));
    assert_int_equal(leaving.steps, 6);
    assert_true(leaving.seconds > 2.9 && leaving.seconds < 3.1);
    stage.now_ms += 500;
    report_step(8);
    assert_ok(trainer_leave(stage.trainer, &leaving));
    assert_int_equal(leaving.steps, 2);
    report_step(11);
    assert_ok(trainer_leave(stage.trainer, &leaving));
    assert_int_equal(leaving.steps, 0);
}

/* ---- what is ordered of the run ---- */

static void in_a_paused_run_its_standing_is_no_step(void **state)
{
    (void)state;
    struct trainer_leaving leaving;
    for (uint64_t step = 1; step <= 3; step++) {
        stage.now_ms += 500;
        report_step(step);
    }
    stage_tick(&stage, 1);
    trainer_run(stage.trainer, true);
    assert_int_equal(stage.shm->paused, 1);
    assert_true(trainer_info(stage.trainer).paused);
    assert_fails(ERR_STATE, "the run is paused", trainer_leave(stage.trainer, &leaving));
    report_step(4); /* it was under way */
    stage_tick(&stage, 600000);
    trainer_run(stage.trainer, false);
    assert_int_equal(stage.shm->paused, 0);
    report_step(5);
    stage_tick(&stage, 1);
    assert_in_range(trainer_info(stage.trainer).slowest_ms, 1, 501); /* its longest step */
    stage.now_ms += 500;
    report_step(6);
    stage_tick(&stage, 1);
    assert_ok(trainer_leave(stage.trainer, &leaving));
    assert_true(leaving.steps > 0);
    assert_true(fabs(leaving.seconds - 0.5 * (double)leaving.steps) < 0.1);
}

static void whoever_begins_in_a_pause_is_told(void **state)
{
    (void)state;
    trainer_run(stage.trainer, true);
    stage_hang_up(&stage, false);
    stage_train(&stage, false);
    assert_int_equal(stage.shm->paused, 1);
    assert_int_equal(stage.shm->steps, TRAINERRUN_STEPS);
    stage.shm->paused = 0; /* as of a daemon before the pause */
    stage_attach_again(&stage, 1, 10);
    stage_tick(&stage, 1);
    assert_int_equal(stage.shm->paused, 1);
}

/* As it says itself: a report may be lost. */
static void whoever_is_done_is_not_when_the_run_is_longer(void **state)
{
    (void)state;
    struct ipc_message message = {.type = IPC_FINISHED, .report = {.step = TRAINERRUN_STEPS}};
    stage_send(&stage, &message, -1);
    stage_tick(&stage, 1);
    assert_int_equal(trainer_phase(stage.trainer), TRAINER_FINISHED);
    assert_false(trainer_outgrown(stage.trainer));
    stage.run.spec.length = TRAINERRUN_STEPS + 1;
    assert_true(trainer_outgrown(stage.trainer));
    assert_int_equal(trainer_phase(stage.trainer), TRAINER_LEAVING); /* it is to end first */
    trainer_run(stage.trainer, false);
    assert_int_equal(stage.shm->steps, TRAINERRUN_STEPS + 1);
    stage.run.spec.length = TRAINERRUN_STEPS - 1; /* shorter it may be */
    assert_false(trainer_outgrown(stage.trainer));
}

/* What was shorter than it had trained is longer again, and still not longer than that. */
static void whoever_was_beyond_the_end_is_where_the_run_ends(void **state)
{
    (void)state;
    struct ipc_message message = {.type = IPC_FINISHED, .report = {.step = 15}};
    stage.run.spec.length = 9;
    report_step(15);
    stage_send(&stage, &message, -1);
    stage_tick(&stage, 1);
    assert_int_equal(trainer_info(stage.trainer).step, 9);
    stage.run.spec.length = 12;
    assert_false(trainer_outgrown(stage.trainer));
    assert_int_equal(trainer_info(stage.trainer).step, 12);
    stage.run.spec.length = 20;
    assert_true(trainer_outgrown(stage.trainer));
    assert_int_equal(trainer_info(stage.trainer).step, 15);
}

/* ---- a trainer that does not listen ---- */

static void one_that_does_not_read_is_not_waited_for(void **state)
{
    (void)state;
    for (int i = 0; i < 3000; i++)
        assert_ok(trainer_leave(stage.trainer, &(struct trainer_leaving){0})); /* far more than a socket holds */
    assert_true(trainer_info(stage.trainer).attached);
    assert_int_equal(atomic_load(&stage.shm->leave), 1); /* the memory has the truth */
    stage_take_snapshot(&stage, 0, 6, 60, 3);
    assert_posted(&stage, "snapshot 0");
    stage_results(&stage, 0, &none);
    assert_int_equal(stage_word(&stage, 0), IPC_ANCHOR);
}

#define on_stage(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        on_stage(a_snapshot_is_encoded_and_its_anchor_mixed),
        on_stage(work_that_missed_its_round_stays_in_the_tensors),
        on_stage(a_snapshot_that_cannot_be_sent_comes_back),
        on_stage(a_good_snapshot_makes_up_for_a_bad_one),
        on_stage(what_was_not_moved_is_no_news),
        on_stage(what_is_said_out_of_turn_is_not_heard),
        on_stage(an_anchor_waits_for_a_snapshot_being_taken),
        on_stage(a_newer_anchor_waits_for_the_one_being_mixed),
        on_stage(an_anchor_that_was_not_begun_is_taken_back_for_a_newer_one),
        on_stage(an_anchor_that_was_repaired_is_put_there_anew),
        on_stage(orders_reach_the_memory),
        on_stage(a_word_written_over_ends_the_attachment_and_says_where),
        on_stage(a_report_is_what_the_island_shows),
        on_stage(numbers_that_are_none_do_not_get_out),
        on_stage(a_rate_and_its_share_of_the_peak_follow_from_what_it_reports),
        on_stage(a_rate_beyond_all_numbers_is_not_known),
        on_stage(a_step_beyond_the_run_is_its_last),
        on_stage(tokens_without_end_are_shown_as_very_many),
        on_stage(what_is_counted_was_trained_whatever_reports_are_lost),
        on_stage(tokens_add_up_over_all_trainers_of_the_island),
        on_stage(tokens_do_not_go_down_while_the_next_one_comes),
        on_stage(tokens_outlive_the_daemon),
        on_stage(counted_tokens_are_those_that_results_name),
        on_stage(the_runs_end_is_said_once_and_to_each_trainer),
        on_stage(one_that_ends_before_is_not_told_that_the_run_is_over),
        on_stage(an_end_that_is_not_known_is_said_when_nobody_came_in_time),
        on_stage(only_islands_that_rounds_wait_for_are_missed),
        on_stage(leaving_again_does_not_take_longer_and_says_how_long),
        on_stage(in_a_paused_run_its_standing_is_no_step),
        on_stage(whoever_begins_in_a_pause_is_told),
        on_stage(whoever_is_done_is_not_when_the_run_is_longer),
        on_stage(whoever_was_beyond_the_end_is_where_the_run_ends),
        on_stage(one_that_does_not_read_is_not_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
