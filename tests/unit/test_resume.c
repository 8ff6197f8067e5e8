/* SPDX-License-Identifier: Apache-2.0 */
/* trainer: one that trained on while its daemon was away attaches again: what its words tell in each state, what has to
 * come first, and whose memory is refused. */
#include "tests/lib/testlib.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/mem.h"
#include "tests/lib/shares.h"
#include "tests/lib/trainerstage.h"

/* BASE: the version of the trainer's tensors. PATIENCE_MS: of a daemon for islands that have a state. */
enum { BASE = 5, PATIENCE_MS = 3000, TOKENS = 60 };

static struct stage stage;
static const struct bitset none;

/* Trains; its tensors hold version 5 of everything. */
static int begin(void **state)
{
    (void)state;
    stage_open(&stage, TRAINERRUN_ISLANDS, "", "");
    for (uint32_t f = 0; f < TRAINERRUN_FRAGMENTS; f++)
        trainerrun_restore(&stage.run, f, BASE);
    stage_train(&stage, false);
    return 0;
}

static int end(void **state)
{
    (void)state;
    stage_close(&stage);
    return 0;
}

/* Descriptors of memory shared with trainers; one that a program started from here would inherit fails. */
static unsigned descriptors(void)
{
    unsigned count = 0;
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char target[256] = "";
        if (readlinkat(dirfd(folder), entry->d_name, target, sizeof target - 1) <= 0)
            continue;
        if (strstr(target, "memfd:diloco") == NULL)
            continue;
        count++;
        assert_int_equal(fcntl((int)strtol(entry->d_name, NULL, 10), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    }
    closedir(folder);
    return count;
}

static void assert_resumed(void)
{
    struct ipc_welcome welcome = stage_hear(&stage, IPC_WELCOME).welcome;
    assert_true(welcome.resumed);
    assert_true(welcome.session == stage.session);
}

/* ---- what the words tell ---- */

/* Fragment 0 has this word when the daemon dies; the others are at rest and up to date. */
static void leave_with(uint32_t word, uint64_t version)
{
    struct ipc_fragment *fragment = stage_fragment(&stage, 0);
    stage_restart(&stage);
    fragment->snapshot_step = 36;
    fragment->snapshot_tokens = TOKENS;
    fragment->anchor_version = BASE + 1;
    fragment->mix_step = 37;
    fragment->ranges_count = 1;
    fragment->ranges[0] = (struct ipc_range){.begin = 0, .end = 256, .mode = IPC_MIX};
    for (uint32_t f = 0; f < TRAINERRUN_FRAGMENTS; f++) {
        trainerrun_restore(&stage.run, f, version);
        stage_fragment(&stage, f)->base_version = f == 0 ? BASE : version;
    }
    stage_put_word(&stage, 0, word);
}

static void die_with(uint32_t word, uint64_t version)
{
    leave_with(word, version);
    stage_attach_again(&stage, 38, 100);
    stage_tick(&stage, 1);
}

static void where_nothing_was_missed_things_go_on_as_they_were(void **state)
{
    (void)state;
    for (uint32_t word = IPC_FREE; word < IPC_WORDS; word++) {
        die_with(word, BASE);
        assert_posted(&stage, word == IPC_SNAPSHOT ? "registered, up 0@5, snapshot 0, up 1@5, up 2@5"
                                                   : "registered, up 0@5, up 1@5, up 2@5");
        /* An anchor half written is no anchor; everything else is left to whom it belongs to. */
        assert_int_equal(stage_word(&stage, 0), word == IPC_FILLING ? IPC_FREE : word);
        assert_int_equal(sync_state(stage.run.sync, 0), word == IPC_SNAPSHOT ? SYNC_CONTRIBUTED : SYNC_IDLE);
        assert_int_equal(stage_fragment(&stage, 0)->ranges_count, 1);
        assert_resumed();
        stage_hear_nothing(&stage); /* no GO */
        assert_int_equal(trainer_phase(stage.trainer), TRAINER_TRAINING);
    }
}

static void what_was_under_way_is_said_when_it_is_done(void **state)
{
    (void)state;
    die_with(IPC_COPYING, BASE);
    stage_forget(&stage);
    stage_put_word(&stage, 0, IPC_SNAPSHOT);
    stage_say(&stage, IPC_TAKEN, 0);
    assert_posted(&stage, "snapshot 0");
    assert_int_equal(stage.snapshot[0].tokens, TOKENS);
    die_with(IPC_MIXING, BASE);
    stage_forget(&stage);
    stage_put_word(&stage, 0, IPC_FREE);
    stage_say(&stage, IPC_MIXED, 0);
    assert_posted(&stage, "mixed 0");
    assert_int_equal(sync_state(stage.run.sync, 0), SYNC_IDLE);
}

/* Version 6 counts us in the first member's shards alone. */
static void put_results(void)
{
    struct bitset others = bitset_first(1), both = bitset_first(2);
    assert_int_equal(stage.run.view.self, 1);
    trainerrun_result(&stage.run, 0, BASE + 1, 0, &both);
    trainerrun_result(&stage.run, 0, BASE + 1, 1, &others);
    trainerrun_result(&stage.run, 0, BASE + 1, 2, &others);
    trainerrun_commit(&stage.run, 0, BASE + 1);
}

static void assert_ranges(uint32_t first, uint32_t second, uint32_t third)
{
    assert_int_equal(stage_word(&stage, 0), IPC_ANCHOR);
    assert_int_equal(stage_mode(&stage, 0, 0), first);
    assert_int_equal(stage_mode(&stage, 0, 1), second);
    assert_int_equal(stage_mode(&stage, 0, 2), third);
}

static void assert_counted(uint64_t first, uint64_t second, uint64_t third)
{
    const uint64_t *counted = stage_fragment(&stage, 0)->counted_tokens;
    assert_int_equal(counted[0], first);
    assert_int_equal(counted[shares_first(&stage.run.parts, 0, 1)], second);
    assert_int_equal(counted[shares_first(&stage.run.parts, 0, 2)], third);
}

static void work_that_a_round_may_have_counted_is_looked_for_in_the_anchor(void **state)
{
    (void)state;
    static const uint32_t words[] = {IPC_SNAPSHOT, IPC_FILLING};
    put_results();
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        memset(stage_fragment(&stage, 0)->counted_tokens, 0, sizeof stage_fragment(&stage, 0)->counted_tokens);
        die_with(words[i], BASE + 1);
        assert_posted(&stage, "registered, up 0@5, up 1@6, up 2@6, fill 0");
        assert_ranges(IPC_MIX, IPC_SHIFT, IPC_SHIFT);
        assert_counted(TOKENS, 0, 0);
        assert_int_equal(stage_fragment(&stage, 0)->anchor_version, BASE + 1);
        assert_resumed();
        assert_int_equal(stage_hear(&stage, IPC_WAKE).fragment, 0);
        stage_mix(&stage, 0);
        assert_posted(&stage, "mixed 0");
    }
}

static void who_sent_nothing_is_shifted(void **state)
{
    (void)state;
    put_results();
    die_with(IPC_FREE, BASE + 1);
    assert_posted(&stage, "registered, up 0@5, up 1@6, up 2@6, fill 0");
    assert_ranges(IPC_SHIFT, IPC_SHIFT, IPC_SHIFT);
    assert_counted(0, 0, 0);
    assert_int_equal(stage_fragment(&stage, 0)->mix_step, 0); /* at once */
}

/* An anchor that was given before is given anew: the trainer could take that one in as soon as it is welcomed, and
 * leave its next snapshot there, of which nothing is counted. */
static void it_moves_nothing_until_what_is_there_was_dealt_with(void **state)
{
    (void)state;
    static const uint32_t words[] = {IPC_FREE, IPC_SNAPSHOT, IPC_FILLING, IPC_ANCHOR};
    put_results();
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        struct ipc_fragment *fragment = stage_fragment(&stage, 0);
        memset(fragment->counted_tokens, 0, sizeof fragment->counted_tokens);
        leave_with(words[i], BASE + 1);
        stage.held = 1 << EVENT_SYNC;
        stage_attach_again(&stage, 38, 100);
        assert_resumed(); /* from here on it moves words; the core has not heard of it yet */
        assert_false(ipc_move(fragment, IPC_TRAINER, IPC_ANCHOR, IPC_MIXING));
        assert_false(ipc_move(fragment, IPC_TRAINER, IPC_FREE, IPC_COPYING));
        stage_answer(&stage);
        bool sent = words[i] != IPC_FREE;
        assert_ranges(sent ? IPC_MIX : IPC_SHIFT, IPC_SHIFT, IPC_SHIFT);
        assert_counted(sent ? TOKENS : 0, 0, 0);
        assert_int_equal(stage_hear(&stage, IPC_WAKE).fragment, 0);
        stage_forget(&stage);
        stage_mix(&stage, 0);
        assert_posted(&stage, "mixed 0");
    }
}

static void an_anchor_that_is_too_old_is_replaced(void **state)
{
    (void)state;
    put_results();
    die_with(IPC_ANCHOR, BASE + 2);
    assert_posted(&stage, "registered, up 0@5, up 1@7, up 2@7, fill 0");
    assert_ranges(IPC_MIX, IPC_SHIFT, IPC_SHIFT); /* by the round that its snapshot went into */
    assert_int_equal(stage_fragment(&stage, 0)->anchor_version, BASE + 2);
}

static void void_work_stays_void(void **state)
{
    (void)state;
    struct ipc_fragment *fragment = stage_fragment(&stage, 0);
    die_with(IPC_ANCHOR, BASE + 1);
    fragment->ranges[0].mode = IPC_RESET;
    trainerrun_restore(&stage.run, 0, BASE + 2);
    stage_restart(&stage);
    stage_attach_again(&stage, 38, 100);
    stage_tick(&stage, 1);
    assert_posted(&stage, "registered, up 0@5, up 1@6, up 2@6, fill 0");
    assert_ranges(IPC_RESET, IPC_RESET, IPC_RESET);
}

static void a_newer_anchor_waits_for_what_the_trainer_is_at(void **state)
{
    (void)state;
    die_with(IPC_COPYING, BASE + 1);
    assert_posted(&stage, "registered, up 0@5, up 1@6, up 2@6");
    stage_put_word(&stage, 0, IPC_SNAPSHOT);
    stage_say(&stage, IPC_TAKEN, 0);
    assert_posted(&stage, "fill 0");
    assert_ranges(IPC_SHIFT, IPC_SHIFT, IPC_SHIFT);
    die_with(IPC_MIXING, BASE + 1);
    assert_posted(&stage, "registered, up 0@5, up 1@6, up 2@6");
    stage_put_word(&stage, 0, IPC_FREE);
    stage_say(&stage, IPC_MIXED, 0);
    assert_posted(&stage, "fill 0");
}

static void step_and_tokens_are_as_it_says(void **state)
{
    (void)state;
    struct ipc_message report = {.type = IPC_REPORT};
    report.report.tokens = 100;
    stage_send(&stage, &report, -1);
    for (int daemon = 0; daemon < 2; daemon++) { /* the same daemon, and another */
        if (daemon == 1)
            stage_restart(&stage);
        stage_attach_again(&stage, 38, 120);
        assert_int_equal(trainer_info(stage.trainer).step, 38);
        assert_int_equal(trainer_info(stage.trainer).tokens, 120); /* those of before among them */
        assert_int_equal(trainer_info(stage.trainer).report_ms, 0);
        report.report = (struct ipc_report){.step = 39, .tokens = 130};
        stage_send(&stage, &report, -1);
        assert_int_equal(trainer_info(stage.trainer).tokens, 130);
    }
}

/* ---- what comes first ---- */

static void what_is_being_applied_comes_first(void **state)
{
    (void)state;
    stage_restart(&stage);
    stage.applies = false;
    stage_results(&stage, 1, &none);
    assert_int_equal(sync_state(stage.run.sync, 1), SYNC_APPLYING);
    stage_attach_again(&stage, 38, 100);
    stage_tick(&stage, 10 * PATIENCE_MS); /* however long that takes */
    assert_posted(&stage, "registered");
    stage_hear_nothing(&stage);
    assert_int_equal(trainer_phase(stage.trainer), TRAINER_STARTING);
    stage_step(&stage,
               &(struct sync_event){.type = SYNC_EV_APPLIED, .fragment = 1, .hash = trainerrun_hash(1, BASE + 1)});
    assert_posted(&stage, "");
    stage_tick(&stage, 1);
    assert_posted(&stage, "up 0@5, up 1@5, up 2@5, fill 1");
    assert_resumed();
}

static void gone_while_it_waits_nothing_is_left_of_it(void **state)
{
    (void)state;
    stage_restart(&stage);
    stage.applies = false;
    stage_results(&stage, 1, &none);
    stage_attach_again(&stage, 38, 100);
    stage_hang_up(&stage, true);
    stage_turn(&stage);
    assert_posted(&stage, "registered, announce");
    assert_int_equal(descriptors(), 1); /* the test's */
    assert_int_equal(stage_memories(), 1);
    stage_step(&stage,
               &(struct sync_event){.type = SYNC_EV_APPLIED, .fragment = 1, .hash = trainerrun_hash(1, BASE + 1)});
    stage_tick(&stage, 1);
    assert_posted(&stage, "");
}

static void jobs_at_the_memory_of_before_come_first(void **state)
{
    (void)state;
    struct bitset all = shares_owners(&stage.run.parts, 0);
    stage.held = 1 << EVENT_ENCODED;
    stage_take_snapshot(&stage, 0, 36, TOKENS, 2);
    stage_hang_up(&stage, true);
    stage_turn(&stage);
    assert_posted(&stage, "snapshot 0, down 0, down 1, down 2, announce");
    stage_connect(&stage);
    stage_tick(&stage, 1);
    assert_false(trainer_info(stage.trainer).attached);
    assert_int_equal(stage_memories(), 2);
    stage_answer(&stage); /* its contribution goes out though it is away */
    stage_attach_again(&stage, 38, 100);
    assert_posted(&stage, "announce, registered"); /* of the connection that was given up just now */
    stage_results(&stage, 0, &all);
    stage_tick(&stage, 1);
    assert_posted(&stage, "up 0@5, up 1@5, up 2@5, fill 0");
    assert_ranges(IPC_MIX, IPC_MIX, IPC_MIX);
    assert_counted(TOKENS, TOKENS, TOKENS);
    assert_int_equal(stage_memories(), 2);
    assert_int_equal(descriptors(), 2);
}

/* ---- a daemon without a state ---- */

static void lose_the_disk(void)
{
    stage_restart(&stage);
    trainerrun_new_sync(&stage.run); /* blank */
    stage_forget_plan(&stage);
    stage.peers_heard = true;
}

static void without_a_state_anywhere_it_has_to_begin_anew(void **state)
{
    (void)state;
    lose_the_disk();
    stage_attach_again(&stage, 38, 100);
    stage_tick(&stage, PATIENCE_MS - 1);
    assert_posted(&stage, "registered"); /* someone may have one */
    stage_hear_nothing(&stage);
    stage_tick(&stage, 1);
    stage_hear_refusal(&stage, "no state to go on from; start the trainer anew");
    assert_posted(&stage, "announce");
    assert_int_equal(descriptors(), 1);
    stage_hang_up(&stage, false);
    stage_train(&stage, true);
}

static void a_state_that_another_island_has_is_waited_for(void **state)
{
    (void)state;
    lose_the_disk();
    trainerrun_restore(&stage.run, 0, BASE);
    trainerrun_restore(&stage.run, 1, BASE);
    trainerrun_hear(&stage.run, 2, 2, BASE, true);
    stage_attach_again(&stage, 38, 100);
    stage_tick(&stage, 10 * PATIENCE_MS);
    assert_posted(&stage, "registered");
    stage_step(&stage, &(struct sync_event){.type = SYNC_EV_LOST, .fragment = 2, .member = 2});
    stage_tick(&stage, 1);
    assert_posted(&stage, "");
    stage_step(&stage,
               &(struct sync_event){
                   .type = SYNC_EV_INSTALLED, .fragment = 2, .version = BASE, .hash = trainerrun_hash(2, BASE)});
    stage_tick(&stage, 1);
    assert_posted(&stage, "up 0@5, up 1@5, up 2@5");
    assert_resumed();
}

/* ---- whose memory ---- */

static void refused_with(uint64_t session, const char *part)
{
    stage_restart(&stage);
    stage.session = session;
    stage_attach_again(&stage, 38, 100);
    stage_hear_refusal(&stage, part);
    assert_posted(&stage, "registered, announce");
    stage_tick(&stage, 1);
    assert_int_equal(descriptors(), 1);
    assert_int_equal(stage_memories(), 1);
}

static void a_memory_that_is_not_the_runs_is_refused(void **state)
{
    (void)state;
    uint64_t session = stage.session;
    refused_with(session ^ 2, "of another run or plan");
    stage.shm->overlap++;
    refused_with(session, "of another run or plan");
    stage.shm->overlap--;
    stage_put_word(&stage, 1, IPC_WORDS);
    refused_with(session, "unknown word");
    stage_put_word(&stage, 1, IPC_FREE);
    stage_attach_again(&stage, 38, 100); /* as it was, it does */
    assert_resumed();
}

static void without_its_memory_it_is_a_new_trainer(void **state)
{
    (void)state;
    uint64_t session = stage.session;
    for (int i = 0; i < 2; i++) {
        stage_hang_up(&stage, true);
        stage_turn(&stage);
        stage_connect(&stage);
        stage_hello(&stage, i == 0 ? session : 0, 38, 100, i == 0 ? -1 : stage.memfd);
        for (uint32_t t = 0; t < TRAINERRUN_TENSORS; t++) {
            struct ipc_message message = {.type = IPC_TENSOR};
            message.tensor = trainerrun_tensors[t];
            stage_send(&stage, &message, -1);
        }
        stage_say(&stage, IPC_REGISTERED, 0);
        struct ipc_welcome welcome = stage_hear(&stage, IPC_WELCOME).welcome;
        assert_false(welcome.resumed);
        assert_true(welcome.session != session);
        assert_int_equal(trainer_phase(stage.trainer), TRAINER_STARTING);
    }
}

static void out_of_memory_it_is_refused_and_nothing_stays_open(void **state)
{
    (void)state;
    for (long n = 0; n < 3; n++) {
        stage_restart(&stage);
        trainerrun_new_sync(&stage.run);
        for (uint32_t f = 0; f < TRAINERRUN_FRAGMENTS; f++)
            trainerrun_restore(&stage.run, f, BASE);
        stage_forget_plan(&stage);
        stage.applies = false;
        stage_results(&stage, 1, &none); /* it has to wait, so that what fails is known */
        stage_attach_again(&stage, 38, 100);
        stage_step(&stage,
                   &(struct sync_event){.type = SYNC_EV_APPLIED, .fragment = 1, .hash = trainerrun_hash(1, BASE + 1)});
        stage_forget(&stage);
        mem_fail_after(n);
        stage_tick(&stage, 1);
        mem_fail_after(-1);
        stage_hear_refusal(&stage, "out of memory");
        assert_posted(&stage, "announce");
        stage_tick(&stage, 1);
        assert_int_equal(descriptors(), 1);
        assert_int_equal(stage_memories(), 1);
    }
}

#define on_stage(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        on_stage(where_nothing_was_missed_things_go_on_as_they_were),
        on_stage(what_was_under_way_is_said_when_it_is_done),
        on_stage(work_that_a_round_may_have_counted_is_looked_for_in_the_anchor),
        on_stage(who_sent_nothing_is_shifted),
        on_stage(it_moves_nothing_until_what_is_there_was_dealt_with),
        on_stage(an_anchor_that_is_too_old_is_replaced),
        on_stage(void_work_stays_void),
        on_stage(a_newer_anchor_waits_for_what_the_trainer_is_at),
        on_stage(step_and_tokens_are_as_it_says),
        on_stage(what_is_being_applied_comes_first),
        on_stage(gone_while_it_waits_nothing_is_left_of_it),
        on_stage(jobs_at_the_memory_of_before_come_first),
        on_stage(without_a_state_anywhere_it_has_to_begin_anew),
        on_stage(a_state_that_another_island_has_is_waited_for),
        on_stage(a_memory_that_is_not_the_runs_is_refused),
        on_stage(without_its_memory_it_is_a_new_trainer),
        on_stage(out_of_memory_it_is_refused_and_nothing_stays_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
