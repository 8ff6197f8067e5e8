/* SPDX-License-Identifier: Apache-2.0 */
/* memory: what a run is said to take, against what it takes when everything is in use. */
#include "tests/lib/testlib.h"

#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>

#include "common/mem.h"
#include "daemon/jobs.h"
#include "daemon/rules.h"
#include "daemon/state/memory.h"
#include "daemon/state/model_plan.h"
#include "daemon/state/slots.h"
#include "daemon/state/state_object.h"
#include "tests/lib/outofmem.h"
#include "tests/lib/shares.h"

enum { MEMBERS = 4, SELF = 2, THREADS = 3, LAYERS = 4, TENSORS = 1 + 3 * LAYERS };

/* What is not said, because it does not grow with the parameters: tables for each fragment and member, and what the
 * allocator rounds up. */
enum { TABLE_BYTES = 768 };

/* What the run spec chooses and memory depends on. */
static const struct row {
    const char *name, *lines;
} rows[] = {
    {"fp32", "codec = fp32\n"},
    {"uniform", ""},
    {"e3m0", "codec = e3m0\nerror_feedback = yes\n"},
    {"topk", "codec = topk\nerror_feedback = yes\n"},
    {"powersgd", "codec = powersgd\nrank = 8\nerror_feedback = yes\n"},
    {"adaptive", "codec = adaptive\n"},
    {"average", "codec = int4\n[outer]\noptimizer = average\n"},
    {"median", "codec = int8\noutliers = median\n"},
};

static struct model_plan *plan_of(const struct runspec *spec)
{
    static struct ipc_tensor tensors[TENSORS];
    struct model_plan *plan;
    uint32_t n = 0;
    tensors[n++] = (struct ipc_tensor){.name = "embedding", .layer = -1, .dims = 2, .shape = {1000, 160}};
    for (int32_t layer = 0; layer < LAYERS; layer++) {
        struct ipc_tensor *at = &tensors[n];
        at[0] = (struct ipc_tensor){.layer = layer, .dims = 2, .shape = {160, 160}};
        at[1] = (struct ipc_tensor){.layer = layer, .dims = 2, .shape = {600, 160}};
        at[2] = (struct ipc_tensor){.layer = layer, .dims = 1, .shape = {160}};
        for (int i = 0; i < 3; i++)
            snprintf(at[i].name, sizeof at[i].name, "%d.%d", layer, i);
        n += 3;
    }
    assert_ok(model_plan_new(spec, tensors, n, &plan));
    return plan;
}

struct world {
    struct runspec spec;
    struct model_plan *plan;
    struct replica_conf conf;
    struct config_log *config_log;
    struct parts parts;
    struct memory_conf whole;
    uint64_t tables; /* at most */
    struct replica *replica;
    struct slots *slots;
    struct jobs *jobs;
};

static void world_init(struct world *w, const struct row *row)
{
    static const uint64_t weights[MEMBERS] = {3, 1, 2, 1};
    char text[1000];
    *w = (struct world){.replica = NULL};
    snprintf(text, sizeof text, "[run]\nname = r\nsteps = 100\n[sync]\nlayers_per_fragment = 2\n%s", row->lines);
    assert_ok(runspec_parse(text, "text", &w->spec));
    w->plan = plan_of(&w->spec);
    w->conf = (struct replica_conf){.plan = w->plan->plan,
                                    .outer = rules_outer(&w->spec),
                                    .choice = rules_codec(&w->spec),
                                    .adaptive = w->spec.codec == CODEC_ADAPTIVE,
                                    .error_feedback = w->spec.error_feedback,
                                    .feedback_decay = 1,
                                    .outliers = rules_outliers(&w->spec)};
    w->config_log = shares_config_log(weights, MEMBERS);
    w->parts = (struct parts){.plan = w->plan->plan, .config_log = w->config_log};
    w->whole = (struct memory_conf){.replica = &w->conf,
                                    .parts = &w->parts,
                                    .members_count = MEMBERS,
                                    .self = shares_id(&w->parts, SELF),
                                    .job_threads = THREADS};
    w->tables = (uint64_t)TABLE_BYTES * w->plan->plan->fragments_count * MEMBERS;
}

static void world_deinit(struct world *w)
{
    slots_free(w->slots);
    jobs_free(w->jobs);
    replica_free(w->replica);
    config_log_free(w->config_log);
    model_plan_free(w->plan);
    runspec_deinit(&w->spec);
}

/* Bytes at most: never less than what is taken, and no machine is refused for much more than that. */
static void assert_said(const struct world *w, const char *what, const char *row, uint64_t said, size_t before)
{
    uint64_t taken = outofmem_allocated() - before;
    print_message("%-9s %s: %" PRIu64 " bytes said, %" PRIu64 " taken\n", row, what, said, taken);
    if (taken > said + w->tables || said > taken + taken / 20)
        fail_msg("%s: %s take %" PRIu64 " bytes, not %" PRIu64, row, what, taken, said);
}

static void skip_where_nothing_can_be_counted(void)
{
    if (outofmem_allocated() == 0)
        skip_because("the allocator does not say what is allocated");
}

static void make_replica(struct world *w)
{
    assert_ok(replica_new(&w->conf, &w->replica));
    assert_ok(shares_cut(&w->parts, w->replica, SELF));
}

/* Of what is said, what is not taken before there is a mean: contributions that are looked at all at once. */
static uint64_t trimmed(const struct world *w)
{
    uint64_t bytes = 0;
    for (uint32_t f = 0; f < w->plan->plan->fragments_count; f++)
        if (w->conf.outliers.action == OUTLIER_TRIMMED || w->conf.outliers.action == OUTLIER_MEDIAN)
            bytes += MEMBERS * sizeof(float) * replica_values(w->replica, f, shares_mask(&w->parts, f, SELF));
    return bytes;
}

static void a_replica_takes_what_is_said(void **state)
{
    (void)state;
    skip_where_nothing_can_be_counted();
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        struct world w;
        world_init(&w, &rows[r]);
        size_t before = outofmem_allocated();
        make_replica(&w);
        assert_said(&w, "anchors, momentum and residuals", rows[r].name, memory_of(&w.whole).replica - trimmed(&w),
                    before);
        world_deinit(&w);
    }
}

static void fill_slots(struct world *w)
{
    struct slots_conf conf = {
        .replica = w->replica, .fragments_count = w->plan->plan->fragments_count, .members_count = MEMBERS};
    assert_ok(slots_new(&conf, &w->slots));
    for (uint32_t f = 0; f < conf.fragments_count; f++) {
        uint64_t own = shares_mask(&w->parts, f, SELF);
        for (uint32_t i = 0; i < MEMBERS; i++) {
            uint64_t shards = shares_mask(&w->parts, f, i);
            uint32_t p = shares_part(&w->parts, f, i);
            if (shards != 0) {
                assert_ok(slots_room(w->slots, slots_out(w->slots, f, p), f, shards));
                assert_ok(slots_room(w->slots, slots_result(w->slots, f, p), f, shards));
            }
            if (own != 0 && i != SELF) /* ours to our own part is sent to nobody */
                assert_ok(slots_room(w->slots, slots_in(w->slots, f, i), f, own));
        }
        if (own != 0)
            assert_ok(slots_room(w->slots, slots_own(w->slots, f), f, own));
    }
}

/* A round of every fragment at once: all contributions and results there are, and every thread at work. */
static void full_slots_and_threads_at_work_take_what_is_said(void **state)
{
    (void)state;
    skip_where_nothing_can_be_counted();
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        struct world w;
        world_init(&w, &rows[r]);
        make_replica(&w);
        assert_ok(jobs_new(&(struct jobs_conf){.threads = THREADS, .zstd_level = 1}, &w.jobs));
        size_t before = outofmem_allocated();
        const struct jobs_room room = {.values = replica_piece_values(replica_conf(w.replica)),
                                       .factor_values = replica_factor_values(w.replica),
                                       .segment_values = replica_segment_values(w.replica)};
        assert_ok(jobs_set_scratch(w.jobs, &room));
        fill_slots(&w);
        assert_said(&w, "encoded frames and scratch", rows[r].name, memory_of(&w.whole).frames, before);
        world_deinit(&w);
    }
}

/* As many states are on their way in as come at a time, and others ask for the largest. */
static void states_on_their_way_take_no_more_than_is_said(void **state)
{
    (void)state;
    skip_where_nothing_can_be_counted();
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        struct world w;
        uint8_t *in, *served[MEMORY_STATES_SERVED];
        uint64_t largest = 0;
        world_init(&w, &rows[r]);
        make_replica(&w);
        fill_slots(&w);
        size_t before = outofmem_allocated();
        for (uint32_t f = 0; f < w.plan->plan->fragments_count; f++) {
            uint64_t bytes = state_object_bytes(w.replica, f);
            largest = bytes > largest ? bytes : largest;
        }
        for (uint32_t f = 0; f < MEMORY_STATES_FETCHED; f++)
            assert_ok(slots_take_state(w.slots, f, largest, &in));
        for (int i = 0; i < MEMORY_STATES_SERVED; i++)
            assert_ok(mem_pages_new((size_t)largest, 1, "a state for others", &served[i]));
        uint64_t taken = outofmem_allocated() - before, said = memory_of(&w.whole).states;
        /* Half of it where there is no momentum; and digests of leaves are said, and not made here. */
        assert_in_range(taken, said / 2 - said / 64 - w.tables, said + w.tables);
        for (int i = 0; i < MEMORY_STATES_SERVED; i++)
            mem_pages_free(served[i], (size_t)largest, 1);
        world_deinit(&w);
    }
}

static void the_areas_shared_with_the_trainer_are_two_of_every_fragment(void **state)
{
    (void)state;
    struct world w;
    uint64_t values = 0;
    world_init(&w, &rows[0]);
    for (uint32_t f = 0; f < w.plan->plan->fragments_count; f++)
        values += w.plan->plan->fragments[f].values_count;
    assert_true(values >= w.plan->plan->params_count);
    assert_int_equal(memory_of(&w.whole).shared, 2 * values * sizeof(float));
    world_deinit(&w);
}

static void more_threads_take_more(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, &rows[0]);
    uint64_t each = CODEC_SEGMENT * sizeof(float); /* whatever the fragments' size */
    assert_true(each < w.plan->plan->values_count_max * sizeof(float));
    struct memory_conf one = w.whole, eight = w.whole;
    one.job_threads = 1;
    eight.job_threads = 8;
    assert_int_equal(memory_of(&eight).frames - memory_of(&one).frames, 7 * each);
    world_deinit(&w);
}

static void a_model_that_does_not_fit_is_refused_with_both_numbers(void **state)
{
    (void)state;
    const uint64_t gib = (uint64_t)1 << 30;
    struct memory memory = {.replica = 20 * gib, .shared = 8 * gib, .frames = 2 * gib, .states = 100 * gib};
    assert_int_equal(memory_sum(&memory), 130 * gib);
    const struct mem_limit small = {.bytes = 16 * gib}, group = {.bytes = 16 * gib, .group = true},
                           enough = {.bytes = 30 * gib}, short_of = {.bytes = 30 * gib - 1};
    assert_ok(memory_check(&memory, 1000000007, &enough)); /* states are not there all the time */
    assert_fails(ERR_NOMEM,
                 "the model's 1000000007 parameters need 30.0 GiB here, and this machine has 16.0 GiB: a machine with "
                 "more memory is needed, or a smaller model",
                 memory_check(&memory, 1000000007, &small));
    assert_fails(ERR_NOMEM, "the daemon's control group is limited to 16.0 GiB: raise that limit (MemoryMax= of",
                 memory_check(&memory, 1000000007, &group));
    assert_fails(ERR_NOMEM, "need 30.0 GiB", memory_check(&memory, 7, &short_of));
    /* Each of the three counts. */
    memory.replica++;
    assert_fails(ERR_NOMEM, "need 30.0 GiB", memory_check(&memory, 7, &enough));
    memory.replica--;
    memory.shared++;
    assert_fails(ERR_NOMEM, "need 30.0 GiB", memory_check(&memory, 7, &enough));
    memory.shared--;
    memory.frames++;
    assert_fails(ERR_NOMEM, "need 30.0 GiB", memory_check(&memory, 7, &enough));
}

/* ---- the disk ---- */

static void a_disk_that_is_too_small_is_refused_with_what_is_needed(void **state)
{
    (void)state;
    const char *folder = testlib_folder("memory-disk");
    struct memory_disk disk = {.checkpoints = 3 << 20, .ledger = 2 << 20, .exported = 1 << 20};
    assert_ok(memory_disk_check(&disk, 7, folder));
    disk.ledger = UINT64_MAX / 2;
    assert_fails(ERR_NOSPACE, "the model's 7 parameters need ", memory_disk_check(&disk, 7, folder));
    assert_non_null(strstr(err_text(), "3.0 for checkpoints"));
    assert_non_null(strstr(err_text(), "1.0 for exported anchors"));
    assert_non_null(strstr(err_text(), "set [island] state to a folder on a larger disk"));
    assert_ok(memory_disk_check(&disk, 7, testlib_path(folder, "no-such-folder")));
}

/* Checkpoints and one more of a fragment, results up to a checkpoint's bytes, anchors twice. */
static void the_disk_that_is_said_follows_what_is_saved(void **state)
{
    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        struct world w;
        world_init(&w, &rows[r]);
        uint64_t values = 0, largest = w.plan->plan->values_count_max, frames = 0;
        make_replica(&w);
        for (uint32_t f = 0; f < w.plan->plan->fragments_count; f++) {
            values += w.plan->plan->fragments[f].values_count;
            frames += replica_frame_bytes_max(w.replica, f, parts_filled(w.plan->plan, f));
        }
        uint64_t arrays = w.conf.outer.kind == OUTER_AVERAGE ? 1 : 2;
        uint64_t state_bytes = arrays * sizeof(float) * values, rest = w.conf.error_feedback ? 2 * sizeof(float) : 0;
        struct memory_disk disk = memory_disk_of(&w.conf, UINT64_MAX, 1);
        assert_int_equal(disk.exported, 2 * sizeof(float) * values);
        assert_int_equal(disk.checkpoints, state_bytes + rest * values + (arrays * sizeof(float) + rest) * largest);
        assert_int_equal(disk.ledger, state_bytes + frames);
        assert_int_equal(memory_disk_of(&w.conf, UINT64_MAX, 1000).ledger, 1000 * frames);
        assert_int_equal(memory_disk_of(&w.conf, state_bytes, 1000).ledger, state_bytes + frames);
        world_deinit(&w);
    }
}

int main(void)
{
    mallopt(M_MMAP_THRESHOLD, 32 << 20); /* from the heap, so that nothing is rounded up to pages */
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_replica_takes_what_is_said),
        cmocka_unit_test(full_slots_and_threads_at_work_take_what_is_said),
        cmocka_unit_test(states_on_their_way_take_no_more_than_is_said),
        cmocka_unit_test(the_areas_shared_with_the_trainer_are_two_of_every_fragment),
        cmocka_unit_test(more_threads_take_more),
        cmocka_unit_test(a_model_that_does_not_fit_is_refused_with_both_numbers),
        cmocka_unit_test(a_disk_that_is_too_small_is_refused_with_what_is_needed),
        cmocka_unit_test(the_disk_that_is_said_follows_what_is_saved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
