/* SPDX-License-Identifier: Apache-2.0 */
/* shared: what each order does in each state of a fragment's word, and what becomes of an anchor's ranges and a
 * snapshot's tokens. The test is the trainer, with a mapping of its own. How the memory lies and whose is taken over is
 * tested in test_shared_memory.c. */
#include "tests/lib/testlib.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/trainer/shared.h"
#include "tests/lib/shares.h"
#include "tests/lib/trainerrun.h"

/* F: the fragment with a shard for every island. THIN: the one that has a shard for one island alone. */
enum { F = 0, THIN = 1, OUTSIDE = 77 };

static struct trainerrun run;
static struct shared *shared;
static struct ipc_shm *shm; /* as the trainer sees it */

static struct shared *make_shared(void)
{
    struct shared_conf conf = trainerrun_shared_conf(&run);
    struct shared *made;
    assert_ok(shared_make(&conf, &made));
    return made;
}

static int begin(void **state)
{
    (void)state;
    shared = make_shared();
    shm = trainerrun_map(shared_fd(shared));
    return 0;
}

static int end(void **state)
{
    (void)state;
    munmap(shm, shared_bytes(shared));
    shared_free(shared);
    return 0;
}

/* ---- the trainer's side ---- */

static void put_word(uint32_t f, uint32_t word)
{
    atomic_store(&ipc_fragment(shm, f)->word, word);
}

static uint32_t word_of(uint32_t f)
{
    return ipc_word(ipc_fragment(shm, f));
}

static void take_snapshot(uint32_t f, uint64_t step, uint64_t tokens)
{
    struct ipc_fragment *fragment = ipc_fragment(shm, f);
    assert_true(ipc_move(fragment, IPC_TRAINER, IPC_FREE, IPC_COPYING));
    fragment->snapshot_step = step;
    fragment->snapshot_tokens = tokens;
    fragment->mix_step = step + shm->overlap;
    assert_true(ipc_move(fragment, IPC_TRAINER, IPC_COPYING, IPC_SNAPSHOT));
}

static void take_anchor(uint32_t f)
{
    struct ipc_fragment *fragment = ipc_fragment(shm, f);
    assert_true(ipc_move(fragment, IPC_TRAINER, IPC_ANCHOR, IPC_MIXING));
    fragment->base ^= 1;
    fragment->base_version = fragment->anchor_version;
    assert_true(ipc_move(fragment, IPC_TRAINER, IPC_MIXING, IPC_FREE));
}

/* ---- orders for all fragments, and small ones ---- */

static void orders_for_all_fragments_reach_the_trainer(void **state)
{
    (void)state;
    assert_int_equal(atomic_load(&shm->leave), 0);
    assert_int_equal(shared_leave(shared, 20), 26); /* fragments are due after 24, 26 and 22 */
    assert_int_equal(shm->leave_step, 26);
    assert_int_equal(atomic_load(&shm->leave), 1);
    shared_run_step(shared, 700);
    assert_int_equal(atomic_load(&shm->run_step), 700);
    for (uint64_t step = 0; step < 40; step++) {
        shared_go(shared, step);
        for (uint32_t f = 0; f < TRAINERRUN_FRAGMENTS; f++)
            assert_int_equal(ipc_fragment(shm, f)->due_step, trainerrun_due(f, step));
    }
    shared_based(shared, 2, 19);
    assert_int_equal(ipc_fragment(shm, 2)->base_version, 19);
    assert_int_equal(ipc_fragment(shm, 1)->base_version, 0);
}

/* ---- snapshots ---- */

static uint64_t shards_of(uint32_t f)
{
    return plan_shards(run.plan->plan, f);
}

/* The n-th part of a fragment: its shards. */
static uint64_t part(uint32_t f, uint32_t n)
{
    struct version_part parts[VERSION_PARTS_MAX];
    assert_in_range(n, 0, parts_of(&run.parts, f, 1, parts) - 1);
    return parts[n].shards;
}

static uint64_t counted_tokens(uint64_t part)
{
    return ipc_fragment(shm, F)->counted_tokens[__builtin_ctzll(part)];
}

static void a_snapshot_is_news_once_it_is_there(void **state)
{
    (void)state;
    for (uint32_t word = IPC_FREE; word < IPC_WORDS; word++) {
        put_word(F, word);
        assert_int_equal(shared_taken(shared, F), word == IPC_SNAPSHOT ? SHARED_SNAPSHOT : SHARED_NOTHING);
        assert_int_equal(word_of(F), word);
    }
}

static void a_snapshot_is_what_the_trainer_left(void **state)
{
    (void)state;
    struct replica_snapshot snapshot;
    uint64_t first = part(F, 0);
    ipc_fragment(shm, F)->base = 1;
    ipc_base(shm, ipc_fragment(shm, F))[9] = 1;
    ipc_area(shm, ipc_fragment(shm, F))[9] = 2;
    take_snapshot(F, 12, 100);
    shared_counted(shared, F, first);
    ipc_fragment(shm, F)->snapshot_tokens = 150;
    shared_snapshot(shared, F, &snapshot);
    assert_true(snapshot.base[9] == 1 && snapshot.theta[9] == 2);
    assert_int_equal(snapshot.step, 12);
    assert_int_equal(snapshot.tokens, 150);
    ipc_fragment(shm, F)->snapshot_step = TRAINERRUN_STEPS + 1; /* the run has no such step, and others refuse it */
    shared_snapshot(shared, F, &snapshot);
    assert_int_equal(snapshot.step, TRAINERRUN_STEPS);
    ipc_fragment(shm, F)->snapshot_step = 12;
    for (uint32_t s = 0; s < IPC_RANGES_MAX; s++)
        assert_int_equal(snapshot.counted_tokens[s], (first >> s & 1) != 0 ? 100 : 0);
}

static void tokens_are_counted_for_the_shards_whose_result_counts_us(void **state)
{
    (void)state;
    struct ipc_fragment *fragment = ipc_fragment(shm, F);
    uint64_t a = part(F, 0), b = part(F, 1), c = part(F, 2), two = a | c, last = c;
    take_snapshot(F, 6, 60);
    shared_counted(shared, F, two);
    assert_int_equal(counted_tokens(a), 60);
    assert_int_equal(counted_tokens(b), 0);
    assert_int_equal(counted_tokens(c), 60);
    fragment->snapshot_tokens = 80;
    shared_counted(shared, F, last);
    assert_int_equal(counted_tokens(a), 60);
    assert_int_equal(counted_tokens(c), 80);
    fragment->snapshot_tokens = 20; /* never less: they were counted */
    shared_counted(shared, F, two);
    assert_int_equal(counted_tokens(a), 60);
    assert_int_equal(counted_tokens(c), 80);
    for (uint32_t f = 1; f < TRAINERRUN_FRAGMENTS; f++)
        for (uint32_t s = 0; s < IPC_RANGES_MAX; s++)
            assert_int_equal(ipc_fragment(shm, f)->counted_tokens[s], 0);
}

static void a_snapshot_is_released_and_nothing_else(void **state)
{
    (void)state;
    for (uint32_t word = IPC_FREE; word < IPC_WORDS; word++) {
        struct ipc_fragment *fragment = ipc_fragment(shm, F);
        bool wake = word != IPC_SNAPSHOT;
        fragment->due_step = 5;
        fragment->snapshot_step = 13;
        put_word(F, word);
        assert_ok(shared_release(shared, F, &wake));
        assert_int_equal(wake, word == IPC_SNAPSHOT);
        assert_int_equal(word_of(F), word == IPC_SNAPSHOT ? IPC_FREE : word);
        assert_int_equal(fragment->due_step, word == IPC_SNAPSHOT ? trainerrun_due(F, 13) : 5);
    }
}

/* ---- anchors ---- */

static void assert_modes(uint32_t f, uint64_t counted, bool is_void)
{
    const struct ipc_fragment *fragment = ipc_fragment(shm, f);
    uint32_t r = 0;
    for (uint32_t s = 0; s < run.plan->plan->fragments[f].shards_count; s++) {
        struct plan_shard shard = plan_shard(run.plan->plan, f, s);
        while (r < fragment->ranges_count && fragment->ranges[r].end <= shard.begin)
            r++;
        assert_in_range(r, 0, fragment->ranges_count - 1);
        assert_in_range(shard.begin, fragment->ranges[r].begin, fragment->ranges[r].end);
        assert_in_range(shard.end, fragment->ranges[r].begin, fragment->ranges[r].end);
        assert_int_equal(fragment->ranges[r].mode, is_void ? IPC_RESET : (counted >> s & 1) != 0 ? IPC_MIX : IPC_SHIFT);
    }
    uint64_t at = 0;
    for (r = 0; r < fragment->ranges_count; r++) {
        assert_true(fragment->ranges[r].begin == at && fragment->ranges[r].end > at);
        assert_true(r == 0 || fragment->ranges[r].mode != fragment->ranges[r - 1].mode); /* as few as can be */
        at = fragment->ranges[r].end;
    }
    assert_int_equal(at, fragment->values_count); /* every value is told of, once */
}

static void an_anchor_is_mixed_where_it_counts_us_and_shifted_elsewhere(void **state)
{
    (void)state;
    for (uint32_t subset = 0; subset < 8; subset++) {
        uint64_t counted = 0;
        for (uint32_t n = 0; n < TRAINERRUN_ISLANDS; n++)
            counted |= (subset >> n & 1) != 0 ? part(F, n) : 0;
        take_snapshot(F, 6, 60);
        shared_counted(shared, F, counted);
        assert_true(shared_publish(shared, F));
        assert_ok(shared_published(shared, F, subset + 1));
        assert_int_equal(word_of(F), IPC_ANCHOR);
        assert_int_equal(ipc_fragment(shm, F)->anchor_version, subset + 1);
        assert_modes(F, counted, false);
        take_anchor(F);
        assert_int_equal(shared_mixed(shared, F), SHARED_MIXED);
        /* What was taken in is done with: nothing of ours is in the next one. */
        assert_true(shared_publish(shared, F));
        assert_ok(shared_published(shared, F, subset + 2));
        assert_modes(F, 0, false);
        take_anchor(F);
        assert_int_equal(shared_mixed(shared, F), SHARED_MIXED);
    }
}

static void only_shards_that_hold_values_are_named(void **state)
{
    (void)state;
    uint64_t all = shards_of(F);
    uint64_t thin = shards_of(THIN);
    assert_int_equal(__builtin_popcountll(thin), 1);
    take_snapshot(THIN, 8, 60);
    shared_counted(shared, THIN, all);
    assert_true(shared_publish(shared, THIN));
    assert_ok(shared_published(shared, THIN, 1));
    assert_modes(THIN, thin, false);
}

/* A round that is counted in two steps: a result that came while the anchor lay there joins what was known. */
static void what_is_counted_adds_up_until_the_anchor_is_taken_in(void **state)
{
    (void)state;
    uint64_t first = part(F, 0), both = part(F, 1);
    take_snapshot(F, 6, 60);
    shared_counted(shared, F, first);
    assert_true(shared_publish(shared, F));
    assert_ok(shared_published(shared, F, 1));
    assert_true(shared_withdraw(shared, F));
    shared_counted(shared, F, both);
    both |= first;
    assert_true(shared_publish(shared, F));
    assert_ok(shared_published(shared, F, 2));
    assert_modes(F, both, false);
}

static void void_work_is_replaced_by_the_next_anchor_alone(void **state)
{
    (void)state;
    uint64_t all = shards_of(F);
    bool wake;
    take_snapshot(F, 6, 60);
    shared_void(shared, F, true);
    assert_ok(shared_release(shared, F, &wake));
    take_snapshot(F, 12, 120);
    shared_counted(shared, F, all);
    assert_true(shared_publish(shared, F));
    assert_ok(shared_published(shared, F, 1));
    assert_modes(F, all, true);
    take_anchor(F);
    assert_int_equal(shared_mixed(shared, F), SHARED_MIXED);
    assert_true(shared_publish(shared, F));
    assert_ok(shared_published(shared, F, 2));
    assert_modes(F, 0, false);
    /* A good snapshot makes up for a bad one before it. */
    assert_true(shared_withdraw(shared, F));
    shared_void(shared, F, true);
    shared_void(shared, F, false);
    assert_ok(shared_published(shared, F, 3));
    assert_modes(F, 0, false);
}

static void what_a_trainer_before_left_is_forgotten(void **state)
{
    (void)state;
    uint64_t all = shards_of(F);
    shared_counted(shared, F, all);
    shared_void(shared, F, true);
    shared_forget(shared, F);
    assert_true(shared_publish(shared, F));
    assert_ok(shared_published(shared, F, 1));
    assert_modes(F, 0, false);
}

static void an_anchor_is_given_as_the_word_allows(void **state)
{
    (void)state;
    for (uint32_t word = IPC_FREE; word < IPC_WORDS; word++) {
        struct shared *fresh = make_shared();
        struct ipc_shm *map = trainerrun_map(shared_fd(fresh));
        struct ipc_fragment *fragment = ipc_fragment(map, F);
        *fragment = (struct ipc_fragment){.word = word,
                                          .snapshot_step = 13,
                                          .due_step = 7,
                                          .mix_step = 14,
                                          .anchor_version = 3,
                                          .values_count = fragment->values_count,
                                          .area_offset = {fragment->area_offset[0], fragment->area_offset[1]}};
        bool busy = word == IPC_COPYING || word == IPC_MIXING;
        assert_int_equal(shared_publish(fresh, F), !busy);
        assert_int_equal(ipc_word(fragment), busy ? word : (uint32_t)IPC_FILLING);
        /* After a snapshot it is taken in when that was due to come back, and the next one is due an interval on; where
         * nothing was sent it is taken in at once. */
        assert_int_equal(fragment->due_step, word == IPC_SNAPSHOT ? trainerrun_due(F, 13) : 7);
        assert_int_equal(fragment->mix_step, word == IPC_FREE ? 0 : 14);
        munmap(map, shared_bytes(fresh));
        shared_free(fresh);
    }
}

static void an_anchor_that_had_to_wait_is_asked_for_once(void **state)
{
    (void)state;
    struct ipc_fragment *fragment = ipc_fragment(shm, F);
    assert_true(ipc_move(fragment, IPC_TRAINER, IPC_FREE, IPC_COPYING));
    assert_false(shared_publish(shared, F));
    assert_int_equal(shared_taken(shared, F), SHARED_NOTHING); /* not yet */
    assert_true(ipc_move(fragment, IPC_TRAINER, IPC_COPYING, IPC_SNAPSHOT));
    assert_int_equal(shared_taken(shared, F), SHARED_PUBLISH);
    assert_int_equal(shared_taken(shared, F), SHARED_SNAPSHOT);
    assert_true(shared_publish(shared, F));
    assert_ok(shared_published(shared, F, 1));
    assert_true(ipc_move(fragment, IPC_TRAINER, IPC_ANCHOR, IPC_MIXING));
    assert_false(shared_publish(shared, F));
    assert_int_equal(shared_mixed(shared, F), SHARED_NOTHING);
    assert_true(ipc_move(fragment, IPC_TRAINER, IPC_MIXING, IPC_FREE));
    assert_int_equal(shared_mixed(shared, F), SHARED_PUBLISH);
    assert_int_equal(shared_mixed(shared, F), SHARED_MIXED);
    assert_true(shared_publish(shared, F));
    /* What waits for one fragment is not asked for by another. */
    put_word(F, IPC_COPYING);
    assert_false(shared_publish(shared, F));
    put_word(THIN, IPC_SNAPSHOT);
    assert_int_equal(shared_taken(shared, THIN), SHARED_SNAPSHOT);
}

static void an_anchor_is_taken_back_until_the_trainer_begins_with_it(void **state)
{
    (void)state;
    for (uint32_t word = IPC_FREE; word < IPC_WORDS; word++) {
        put_word(F, word);
        assert_int_equal(shared_withdraw(shared, F), word == IPC_ANCHOR);
        assert_int_equal(word_of(F), word == IPC_ANCHOR ? IPC_FILLING : word);
    }
}

static void an_anchor_is_mixed_once_the_word_says_so(void **state)
{
    (void)state;
    for (uint32_t word = IPC_FREE; word < IPC_WORDS; word++) {
        bool another = word == IPC_FILLING || word == IPC_ANCHOR || word == IPC_MIXING;
        put_word(F, word);
        assert_int_equal(shared_mixed(shared, F), another ? SHARED_NOTHING : SHARED_MIXED);
        assert_int_equal(word_of(F), word);
    }
}

static void a_word_written_over_is_named_and_left_as_it_is(void **state)
{
    (void)state;
    for (uint32_t word = IPC_FREE; word <= IPC_WORDS; word++) {
        char part[128];
        uint32_t found = word == IPC_WORDS ? OUTSIDE : word;
        if (word == IPC_FILLING)
            continue;
        assert_true(shared_publish(shared, THIN));
        put_word(THIN, found);
        snprintf(part, sizeof part, "fragment 1: the trainer, or another process, wrote %s over the daemon's FILLING",
                 ipc_word_name(found));
        assert_fails(ERR_PROTO, part, shared_published(shared, THIN, 1));
        assert_int_equal(word_of(THIN), found);
        put_word(THIN, IPC_FREE);
    }
}

/* ---- attaching again ---- */

/* The trainer's base against the version this island stands at. */
enum { BEHIND = -1, EQUAL = 0, AHEAD = 1 };

static void a_word_tells_what_was_under_way(void **state)
{
    (void)state;
    for (uint32_t word = IPC_FREE; word < IPC_WORDS; word++)
        for (int base = BEHIND; base <= AHEAD; base++) {
            struct shared_resumed resumed;
            bool sent = word == IPC_SNAPSHOT || word == IPC_FILLING || word == IPC_ANCHOR;
            put_word(F, word);
            ipc_fragment(shm, F)->base_version = (uint64_t)(7 + base);
            assert_ok(shared_resume(shared, F, 7, &resumed));
            assert_int_equal(resumed.base_version, 7 + base);
            assert_int_equal(resumed.in_flight, base == BEHIND && sent);
            assert_int_equal(resumed.snapshot, base != BEHIND && word == IPC_SNAPSHOT);
            /* An anchor half written by a daemon that died is no anchor. Where one comes the area is ours already, but
             * for what the trainer itself is at. */
            bool busy = word == IPC_COPYING || word == IPC_MIXING;
            assert_int_equal(word_of(F), base == BEHIND        ? (busy ? word : (uint32_t)IPC_FILLING)
                                         : word == IPC_FILLING ? IPC_FREE
                                                               : word);
        }
}

static void void_work_stays_void_for_the_next_daemon(void **state)
{
    (void)state;
    struct shared_conf conf = trainerrun_shared_conf(&run);
    struct shared_resumed resumed;
    struct shared *again;
    for (uint32_t word = IPC_FREE; word < IPC_WORDS; word++) {
        bool is_void = word == IPC_ANCHOR;
        assert_true(shared_publish(shared, F));
        shared_void(shared, F, true);
        assert_ok(shared_published(shared, F, 1));
        put_word(F, word); /* only in an anchor that was not taken in, the ranges are news */
        assert_ok(shared_adopt(&conf, dup(shared_fd(shared)), shared_session(shared), &again));
        assert_ok(shared_resume(again, F, 2, &resumed));
        put_word(F, IPC_FILLING);
        assert_ok(shared_published(again, F, 2));
        assert_modes(F, 0, is_void);
        shared_free(again);
        put_word(F, IPC_FREE);
    }
}

static void what_was_counted_is_asked_of_the_ledger_again(void **state)
{
    (void)state;
    uint64_t all = shards_of(F);
    struct shared_resumed resumed;
    take_snapshot(F, 6, 60);
    shared_counted(shared, F, all);
    assert_ok(shared_resume(shared, F, 1, &resumed));
    assert_true(resumed.in_flight);
    assert_true(shared_publish(shared, F));
    assert_ok(shared_published(shared, F, 1));
    assert_modes(F, 0, false);
    assert_int_equal(counted_tokens(part(F, 0)), 60); /* those outlive the daemon */
}

/* ---- a trainer that means harm ---- */

static atomic_bool scribbling;

/* Writes over what the daemon is writing, all the time. */
static void *scribble(void *user)
{
    struct ipc_fragment *fragment = ipc_fragment(shm, F);
    (void)user;
    while (atomic_load(&scribbling))
        *(volatile uint32_t *)&fragment->ranges_count = 1u << 24;
    return NULL;
}

static void a_trainer_that_writes_meanwhile_moves_no_write_of_ours(void **state)
{
    (void)state;
    enum { GIFTS = 100000 };
    pthread_t thread;
    atomic_store(&scribbling, true);
    assert_int_equal(pthread_create(&thread, NULL, scribble, NULL), 0);
    for (uint64_t v = 1; v <= GIFTS; v++) {
        assert_true(shared_publish(shared, F));
        assert_ok(shared_published(shared, F, v)); /* one that is moved is written outside of the memory */
    }
    atomic_store(&scribbling, false);
    pthread_join(thread, NULL);
}

/* Where intervals grow, due steps are found one after the other. */
static void a_step_beyond_the_run_is_no_long_way(void **state)
{
    (void)state;
    struct trainerrun grown;
    struct shared *its;
    bool wake;
    trainerrun_open(&grown, testlib_folder("shared-grown"), TRAINERRUN_ISLANDS, "growth = 0.0175\n");
    struct shared_conf conf = trainerrun_shared_conf(&grown);
    assert_ok(shared_make(&conf, &its));
    struct ipc_shm *memory = trainerrun_map(shared_fd(its));
    struct ipc_fragment *fragment = ipc_fragment(memory, F);
    alarm(60); /* else it ends in years */
    assert_int_equal(shared_leave(its, UINT64_MAX), TRAINERRUN_STEPS);
    shared_go(its, UINT64_MAX);
    fragment->snapshot_step = UINT64_MAX;
    atomic_store(&fragment->word, IPC_SNAPSHOT);
    assert_ok(shared_release(its, F, &wake));
    assert_true(fragment->due_step > TRAINERRUN_STEPS);
    atomic_store(&fragment->word, IPC_SNAPSHOT);
    assert_true(shared_publish(its, F));
    assert_true(fragment->due_step > TRAINERRUN_STEPS);
    alarm(0);
    munmap(memory, shared_bytes(its));
    shared_free(its);
    trainerrun_close(&grown);
}

#define with_memory(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_memory(orders_for_all_fragments_reach_the_trainer),
        with_memory(a_snapshot_is_news_once_it_is_there),
        with_memory(a_snapshot_is_what_the_trainer_left),
        with_memory(tokens_are_counted_for_the_shards_whose_result_counts_us),
        with_memory(a_snapshot_is_released_and_nothing_else),
        with_memory(an_anchor_is_mixed_where_it_counts_us_and_shifted_elsewhere),
        with_memory(only_shards_that_hold_values_are_named),
        with_memory(what_is_counted_adds_up_until_the_anchor_is_taken_in),
        with_memory(void_work_is_replaced_by_the_next_anchor_alone),
        with_memory(what_a_trainer_before_left_is_forgotten),
        with_memory(an_anchor_is_given_as_the_word_allows),
        with_memory(an_anchor_that_had_to_wait_is_asked_for_once),
        with_memory(an_anchor_is_taken_back_until_the_trainer_begins_with_it),
        with_memory(an_anchor_is_mixed_once_the_word_says_so),
        with_memory(a_word_written_over_is_named_and_left_as_it_is),
        with_memory(a_word_tells_what_was_under_way),
        with_memory(void_work_stays_void_for_the_next_daemon),
        with_memory(what_was_counted_is_asked_of_the_ledger_again),
        with_memory(a_trainer_that_writes_meanwhile_moves_no_write_of_ours),
        with_memory(a_step_beyond_the_run_is_no_long_way),
    };
    trainerrun_open(&run, testlib_folder("shared"), TRAINERRUN_ISLANDS, "");
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    trainerrun_close(&run);
    return failed;
}
