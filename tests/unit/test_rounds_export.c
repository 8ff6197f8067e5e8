/* rounds, the file for people: all anchors, whole and of versions that were there at one time, again when they change.
 */
#include "tests/lib/testlib.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/tensorfile.h"
#include "tests/lib/roundsrun.h"

static const char exact[] = "codec = fp32\n";
enum { QUIET_MS = 1000, AGAIN_MS = 60000 };

static const char *path_of(const struct roundsrun *isle)
{
    return testlib_path(isle->conf.folder, "anchor.safetensors");
}

/* The file holds the anchors of the replica, and says which. */
static void assert_file_holds(const struct roundsrun *isle, struct replica *replica, const char *versions)
{
    struct tensorfile *file;
    const struct plan *plan = isle->plan->plan;
    assert_ok(tensorfile_open(path_of(isle), true, &file));
    assert_int_equal(tensorfile_count(file), plan->tensors_count);
    assert_string_equal(tensorfile_meta(file, "versions"), versions);
    for (uint32_t i = 0; i < plan->tensors_count; i++) {
        const struct plan_tensor *tensor = &plan->tensors[i];
        const float *values;
        assert_ok(tensorfile_values(file, tensor->name, tensor->count, &values));
        assert_memory_equal(values, replica_anchor(replica, tensor->fragment) + tensor->offset,
                            tensor->count * sizeof *values);
    }
    tensorfile_close(file);
}

static void assert_saving(const struct roundsrun *isle, enum rounds_export_state state, const char *saved)
{
    struct rounds_info info = rounds_info(isle->rounds);
    assert_int_equal(info.saving, state);
    assert_non_null(strstr(info.saved, saved));
    assert_true(saved[0] != '\0' || info.saved[0] == '\0');
}

static void all_anchors_are_written(void **state)
{
    (void)state;
    struct bitset all = bitset_first(3);
    struct roundsrun *isle = roundsrun_new("export-all", exact, 3, 1, 0);
    roundsrun_round(isle, 1, &all);
    assert_saving(isle, ROUNDS_EXPORT_NONE, "");
    roundsrun_forget(isle);
    rounds_export(isle->rounds);
    assert_saving(isle, ROUNDS_EXPORT_WRITING, "");
    roundsrun_settle(isle);
    assert_saving(isle, ROUNDS_EXPORT_DONE, path_of(isle));
    assert_file_holds(isle, isle->replica, "0,1");
    assert_int_equal(roundsrun_posted_count(isle, EVENT_UNREAD), ROUNDSRUN_FRAGMENTS);
    roundsrun_round(isle, 0, &all);
    for (int i = 0; i < 2; i++)
        roundsrun_tick(isle, 2 * AGAIN_MS); /* not asked to follow */
    assert_int_equal(jobs_pending(isle->jobs), 0);
    roundsrun_close(isle);
}

/* All results are there; the order to apply them is held back. */
static void begin_applying(struct roundsrun *isle, uint32_t f)
{
    isle->hold = 1u << SYNC_DO_APPLY;
    roundsrun_contribute(isle, f, 0.01f, 1000);
    roundsrun_bring_contribution(isle, f, 0, 100, 0.02f);
    roundsrun_bring_contribution(isle, f, 2, 100, 0.02f);
    roundsrun_bring_result(isle, f, 0, true);
    roundsrun_bring_result(isle, f, 2, true);
    isle->hold = 0;
    assert_int_equal(sync_state(isle->sync, f), SYNC_APPLYING);
}

static void an_export_waits_until_nothing_changes(void **state)
{
    (void)state;
    struct roundsrun *isle = roundsrun_new("export-waits", exact, 3, 1, 0);
    begin_applying(isle, 1);
    rounds_export(isle->rounds);
    roundsrun_tick(isle, 100);
    assert_int_equal(jobs_pending(isle->jobs), 0);
    assert_saving(isle, ROUNDS_EXPORT_WRITING, "");
    rounds_apply(isle->rounds, 1, 1);
    size_t applying = jobs_pending(isle->jobs);
    roundsrun_tick(isle, 100);
    assert_int_equal(jobs_pending(isle->jobs), applying);
    roundsrun_settle(isle);
    assert_int_equal(access(path_of(isle), F_OK), -1);
    roundsrun_tick(isle, 100);
    roundsrun_settle(isle);
    assert_saving(isle, ROUNDS_EXPORT_DONE, path_of(isle));
    assert_file_holds(isle, isle->replica, "0,1");
    roundsrun_close(isle);
}

static void what_is_not_known_or_under_repair_is_not_exported(void **state)
{
    (void)state;
    struct roundsrun_conf conf = {.folder = testlib_folder("export-blank"), .sync = exact, .members = 3, .self = 2};
    struct roundsrun *isle = roundsrun_open(&conf);
    rounds_export(isle->rounds);
    roundsrun_tick(isle, 100);
    assert_int_equal(jobs_pending(isle->jobs), 0);
    roundsrun_begin(isle);
    for (uint32_t i = 0; i < 2; i++) { /* two others hold another state */
        isle->said[i][0].hash.byte[0] ^= 1;
        roundsrun_hear(isle, i);
    }
    assert_int_equal(sync_state(isle->sync, 0), SYNC_REPAIR);
    roundsrun_tick(isle, 100);
    assert_int_equal(jobs_pending(isle->jobs), 0);
    assert_saving(isle, ROUNDS_EXPORT_WRITING, "");
    roundsrun_close(isle);
}

/* A second one is asked for while the first is written and an outer step waits for it: the file ends with the newer
 * versions, and until then nobody is told that it is done. */
static void a_second_save_ends_with_the_newer_versions(void **state)
{
    (void)state;
    static struct roundsrun_object object;
    struct bitset all = bitset_first(3);
    struct roundsrun *isle = roundsrun_new("export-second", exact, 3, 1, 0);
    struct replica *before = roundsrun_twin(isle);
    roundsrun_contribute(isle, 1, 0.01f, 1000);
    roundsrun_bring_contribution(isle, 1, 0, 100, 0.02f);
    roundsrun_bring_contribution(isle, 1, 2, 100, 0.02f);
    roundsrun_bring_result(isle, 1, 0, true);
    roundsrun_result(isle, 1, 2, &all, 0.1f, &object);
    roundsrun_bring(isle, 2, &object);
    roundsrun_wait_ended(isle);
    rounds_export(isle->rounds);
    roundsrun_take_back(isle); /* the last result; the step waits for the reader */
    assert_int_equal(sync_state(isle->sync, 1), SYNC_APPLYING);
    rounds_export(isle->rounds);
    roundsrun_tick(isle, 100);
    assert_int_equal(jobs_pending(isle->jobs), 1); /* one at a time */
    isle->hold_unread = true;
    roundsrun_take_back(isle);
    assert_saving(isle, ROUNDS_EXPORT_WRITING, "");
    assert_file_holds(isle, before, "0,0");
    isle->hold_unread = false;
    rounds_unread(isle->rounds, 1);
    roundsrun_settle(isle);
    assert_int_equal(rounds_state(isle->rounds, 1)->version, 1);
    roundsrun_tick(isle, 100);
    roundsrun_settle(isle);
    assert_saving(isle, ROUNDS_EXPORT_DONE, path_of(isle));
    assert_file_holds(isle, isle->replica, "0,1");
    roundsrun_tick(isle, 100);
    assert_int_equal(jobs_pending(isle->jobs), 0);
    replica_free(before);
    roundsrun_close(isle);
}

/* The step that waits for another reader leaves the anchor as it is: it may be written meanwhile. */
static void a_step_that_waits_keeps_no_export_back(void **state)
{
    (void)state;
    struct roundsrun *isle = roundsrun_new("export-beside", exact, 3, 1, 0);
    begin_applying(isle, 1);
    rounds_give(isle->rounds, 1, isle->area[1]);
    rounds_apply(isle->rounds, 1, 1);
    rounds_export(isle->rounds);
    assert_int_equal(jobs_pending(isle->jobs), 2);
    roundsrun_settle(isle);
    assert_saving(isle, ROUNDS_EXPORT_DONE, path_of(isle));
    assert_int_equal(rounds_state(isle->rounds, 1)->version, 1);
    roundsrun_close(isle);
}

static void an_export_follows_when_all_is_quiet(void **state)
{
    (void)state;
    struct bitset all = bitset_first(3);
    struct roundsrun *isle = roundsrun_new("export-follow", exact, 3, 1, 0);
    struct replica *before = roundsrun_twin(isle);
    rounds_export_follow(isle->rounds);
    rounds_export(isle->rounds);
    roundsrun_settle(isle);
    roundsrun_round(isle, 0, &all);
    roundsrun_tick(isle, 100);
    roundsrun_tick(isle, QUIET_MS - 1);
    assert_int_equal(jobs_pending(isle->jobs), 0);
    roundsrun_round(isle, 1, &all);
    roundsrun_tick(isle, 1); /* something has changed again */
    roundsrun_tick(isle, QUIET_MS - 1);
    assert_int_equal(jobs_pending(isle->jobs), 0);
    assert_file_holds(isle, before, "0,0");
    roundsrun_tick(isle, 1);
    assert_int_equal(jobs_pending(isle->jobs), 1);
    roundsrun_settle(isle);
    assert_file_holds(isle, isle->replica, "1,1");
    roundsrun_tick(isle, 2 * AGAIN_MS); /* nothing has changed since */
    assert_int_equal(jobs_pending(isle->jobs), 0);
    replica_free(before);
    roundsrun_close(isle);
}

/* Something changes all the time. */
static void an_export_follows_now_and_then(void **state)
{
    (void)state;
    struct bitset all = bitset_first(3);
    struct roundsrun *isle = roundsrun_new("export-again", exact, 3, 1, 0);
    rounds_export_follow(isle->rounds);
    rounds_export(isle->rounds);
    roundsrun_settle(isle);
    roundsrun_round(isle, 0, &all);
    roundsrun_tick(isle, AGAIN_MS - 1);
    assert_int_equal(jobs_pending(isle->jobs), 0);
    roundsrun_round(isle, 0, &all);
    roundsrun_tick(isle, 1);
    roundsrun_settle(isle);
    assert_file_holds(isle, isle->replica, "2,0");
    roundsrun_close(isle);
}

static void an_export_that_fails_says_so_and_is_tried_again(void **state)
{
    (void)state;
    struct bitset all = bitset_first(3);
    struct roundsrun *isle = roundsrun_new("export-fails", exact, 3, 1, 0);
    const char *in_the_way = testlib_path(isle->conf.folder, "anchor.safetensors.new");
    assert_int_equal(mkdir(in_the_way, 0755), 0);
    rounds_export_follow(isle->rounds);
    roundsrun_round(isle, 0, &all);
    roundsrun_tick(isle, 100);
    rounds_export(isle->rounds);
    roundsrun_settle(isle);
    assert_saving(isle, ROUNDS_EXPORT_FAILED, "failed: ");
    assert_int_equal(roundsrun_posted_count(isle, EVENT_FATAL), 0);
    assert_int_equal(rmdir(in_the_way), 0);
    roundsrun_tick(isle, AGAIN_MS - 1); /* not all the time */
    assert_int_equal(jobs_pending(isle->jobs), 0);
    roundsrun_tick(isle, QUIET_MS + 1);
    roundsrun_settle(isle);
    assert_saving(isle, ROUNDS_EXPORT_DONE, path_of(isle));
    assert_file_holds(isle, isle->replica, "1,0");
    roundsrun_close(isle);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_anchors_are_written),
        cmocka_unit_test(an_export_waits_until_nothing_changes),
        cmocka_unit_test(what_is_not_known_or_under_repair_is_not_exported),
        cmocka_unit_test(a_second_save_ends_with_the_newer_versions),
        cmocka_unit_test(a_step_that_waits_keeps_no_export_back),
        cmocka_unit_test(an_export_follows_when_all_is_quiet),
        cmocka_unit_test(an_export_follows_now_and_then),
        cmocka_unit_test(an_export_that_fails_says_so_and_is_tried_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
