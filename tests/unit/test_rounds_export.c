/* SPDX-License-Identifier: Apache-2.0 */
/* rounds, the file for people: all anchors, whole and of versions that were there at one time, again when they change.
 */
#include "tests/lib/testlib.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/tensorfile.h"
#include "tests/lib/rig.h"

static const char exact[] = "codec = fp32\n";
enum { QUIET_MS = 1000, AGAIN_MS = 60000 };

static const char *path_of(const struct rig *rig)
{
    return testlib_path(rig->conf.folder, "anchor.safetensors");
}

/* The file holds the anchors of the replica, and says which. */
static void assert_file_holds(const struct rig *rig, struct replica *replica, const char *versions)
{
    struct tensorfile *file;
    const struct plan *plan = rig->plan->plan;
    assert_ok(tensorfile_open(path_of(rig), true, &file));
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

static void assert_saving(const struct rig *rig, enum rounds_export_state state, const char *saved)
{
    struct rounds_info info = rounds_info(rig->rounds);
    assert_int_equal(info.saving, state);
    assert_non_null(strstr(info.saved, saved));
    assert_true(saved[0] != '\0' || info.saved[0] == '\0');
}

static void all_anchors_are_written(void **state)
{
    (void)state;
    struct bitset all = bitset_first(3);
    struct rig *rig = rig_new("export-all", exact, 3, 1, 0);
    rig_round(rig, 1, &all);
    assert_saving(rig, ROUNDS_EXPORT_NONE, "");
    rig_forget(rig);
    keep_export(rig->rounds->keep);
    assert_saving(rig, ROUNDS_EXPORT_WRITING, "");
    rig_settle(rig);
    assert_saving(rig, ROUNDS_EXPORT_DONE, path_of(rig));
    assert_file_holds(rig, rig->replica, "0,1");
    assert_int_equal(rig_posted_count(rig, EVENT_UNREAD), RIG_FRAGMENTS);
    rig_round(rig, 0, &all);
    for (int i = 0; i < 2; i++)
        rig_tick(rig, 2 * AGAIN_MS); /* not asked to follow */
    assert_int_equal(jobs_pending(rig->jobs), 0);
    rig_close(rig);
}

/* All results are there; the order to apply them is held back. */
static void begin_applying(struct rig *rig, uint32_t f)
{
    rig->hold = 1u << SYNC_DO_APPLY;
    rig_contribute(rig, f, 0.01f, 1000);
    rig_bring_contribution(rig, f, 0, 100, 0.02f);
    rig_bring_contribution(rig, f, 2, 100, 0.02f);
    rig_bring_result(rig, f, 0, true);
    rig_bring_result(rig, f, 2, true);
    rig->hold = 0;
    assert_int_equal(sync_state(rig->sync, f), SYNC_APPLYING);
}

/* The other fragment is in the file by then. */
static void an_export_waits_for_the_fragment_that_changes(void **state)
{
    (void)state;
    struct rig *rig = rig_new("export-waits", exact, 3, 1, 0);
    begin_applying(rig, 1);
    keep_export(rig->rounds->keep);
    assert_int_equal(jobs_pending(rig->jobs), 1);
    rig_settle(rig);
    rig_tick(rig, 100);
    assert_int_equal(jobs_pending(rig->jobs), 0);
    assert_saving(rig, ROUNDS_EXPORT_WRITING, "");
    apply_begin(rig->rounds->apply, 1, 1);
    size_t applying = jobs_pending(rig->jobs);
    rig_tick(rig, 100);
    assert_int_equal(jobs_pending(rig->jobs), applying);
    rig_settle(rig);
    assert_int_equal(access(path_of(rig), F_OK), -1);
    rig_tick(rig, 100);
    rig_settle(rig);
    assert_saving(rig, ROUNDS_EXPORT_DONE, path_of(rig));
    assert_file_holds(rig, rig->replica, "0,1");
    rig_close(rig);
}

static void what_is_not_known_or_under_repair_is_not_exported(void **state)
{
    (void)state;
    struct rig_conf conf = {.folder = testlib_folder("export-blank"), .sync = exact, .members = 3, .self = 2};
    struct rig *rig = rig_open(&conf);
    keep_export(rig->rounds->keep);
    rig_tick(rig, 100);
    assert_int_equal(jobs_pending(rig->jobs), 0);
    rig_begin(rig);
    for (uint32_t i = 0; i < 2; i++) { /* two others hold another state */
        rig->said[i][0].at.hash.byte[0] ^= 1;
        rig_hear(rig, i);
    }
    assert_int_equal(sync_state(rig->sync, 0), SYNC_REPAIR);
    rig_tick(rig, 100);
    assert_int_equal(jobs_pending(rig->jobs), 0);
    assert_saving(rig, ROUNDS_EXPORT_WRITING, "");
    rig_close(rig);
}

/* A second one is asked for while the first is written and an outer step waits for it: the file ends with the newer
 * versions, and until then nobody is told that it is done. */
static void a_second_save_ends_with_the_newer_versions(void **state)
{
    (void)state;
    static struct rig_object object;
    struct bitset all = bitset_first(3);
    struct rig *rig = rig_new("export-second", exact, 3, 1, 0);
    struct replica *before = rig_twin(rig);
    rig_contribute(rig, 0, 0.01f, 1000);
    rig_bring_contribution(rig, 0, 0, 100, 0.02f);
    rig_bring_contribution(rig, 0, 2, 100, 0.02f);
    rig_bring_result(rig, 0, 0, true);
    rig_result(rig, 0, 2, &all, 0.1f, &object);
    rig_bring(rig, 2, &object);
    rig_wait_ended(rig);
    keep_export(rig->rounds->keep);
    rig_withdraw(rig); /* the last result; the step waits for the reader */
    assert_int_equal(sync_state(rig->sync, 0), SYNC_APPLYING);
    keep_export(rig->rounds->keep);
    rig_tick(rig, 100);
    assert_int_equal(jobs_pending(rig->jobs), 1); /* one at a time */
    rig->hold_unread = true;
    for (uint32_t f = 0; f < RIG_FRAGMENTS; f++)
        rig_withdraw(rig);
    rig_withdraw(rig); /* the file's end */
    assert_saving(rig, ROUNDS_EXPORT_WRITING, "");
    assert_file_holds(rig, before, "0,0");
    rig->hold_unread = false;
    rounds_unread(rig->rounds, 0);
    rig_settle(rig);
    assert_int_equal(rounds_state(rig->rounds, 0)->version, 1);
    rig_tick(rig, 100);
    rig_settle(rig);
    assert_saving(rig, ROUNDS_EXPORT_DONE, path_of(rig));
    assert_file_holds(rig, rig->replica, "1,0");
    rig_tick(rig, 100);
    assert_int_equal(jobs_pending(rig->jobs), 0);
    replica_free(before);
    rig_close(rig);
}

/* The step that waits for another reader leaves the anchor as it is: it may be written meanwhile. */
static void a_step_that_waits_keeps_no_export_back(void **state)
{
    (void)state;
    struct rig *rig = rig_new("export-beside", exact, 3, 1, 0);
    begin_applying(rig, 0);
    copy_publish(rig->rounds->copy, 0, rig->area[0]);
    apply_begin(rig->rounds->apply, 0, 1);
    keep_export(rig->rounds->keep);
    assert_int_equal(jobs_pending(rig->jobs), 2);
    rig_settle(rig);
    assert_saving(rig, ROUNDS_EXPORT_DONE, path_of(rig));
    assert_int_equal(rounds_state(rig->rounds, 0)->version, 1);
    rig_close(rig);
}

static void an_export_follows_when_all_is_quiet(void **state)
{
    (void)state;
    struct bitset all = bitset_first(3);
    struct rig *rig = rig_new("export-follow", exact, 3, 1, 0);
    struct replica *before = rig_twin(rig);
    keep_follow(rig->rounds->keep);
    keep_export(rig->rounds->keep);
    rig_settle(rig);
    rig_round(rig, 0, &all);
    rig_tick(rig, 100);
    rig_tick(rig, QUIET_MS - 1);
    assert_int_equal(jobs_pending(rig->jobs), 0);
    rig_round(rig, 1, &all);
    rig_tick(rig, 1); /* something has changed again */
    rig_tick(rig, QUIET_MS - 1);
    assert_int_equal(jobs_pending(rig->jobs), 0);
    assert_file_holds(rig, before, "0,0");
    rig_tick(rig, 1);
    assert_int_equal(jobs_pending(rig->jobs), 1);
    rig_settle(rig);
    assert_file_holds(rig, rig->replica, "1,1");
    rig_tick(rig, 2 * AGAIN_MS); /* nothing has changed since */
    assert_int_equal(jobs_pending(rig->jobs), 0);
    replica_free(before);
    rig_close(rig);
}

/* Something changes all the time. */
static void an_export_follows_now_and_then(void **state)
{
    (void)state;
    struct bitset all = bitset_first(3);
    struct rig *rig = rig_new("export-again", exact, 3, 1, 0);
    keep_follow(rig->rounds->keep);
    keep_export(rig->rounds->keep);
    rig_settle(rig);
    rig_round(rig, 0, &all);
    rig_tick(rig, AGAIN_MS - 1);
    assert_int_equal(jobs_pending(rig->jobs), 0);
    rig_round(rig, 0, &all);
    rig_tick(rig, 1);
    rig_settle(rig);
    assert_file_holds(rig, rig->replica, "2,0");
    rig_close(rig);
}

static void an_export_that_fails_says_so_and_is_tried_again(void **state)
{
    (void)state;
    struct bitset all = bitset_first(3);
    struct rig *rig = rig_new("export-fails", exact, 3, 1, 0);
    const char *in_the_way = testlib_path(rig->conf.folder, "anchor.safetensors.new");
    assert_int_equal(mkdir(in_the_way, 0755), 0);
    keep_follow(rig->rounds->keep);
    rig_round(rig, 0, &all);
    rig_tick(rig, 100);
    keep_export(rig->rounds->keep);
    rig_settle(rig);
    assert_saving(rig, ROUNDS_EXPORT_FAILED, "failed: ");
    assert_int_equal(rig_posted_count(rig, EVENT_FATAL), 0);
    assert_int_equal(rmdir(in_the_way), 0);
    rig_tick(rig, AGAIN_MS - 1); /* not all the time */
    assert_int_equal(jobs_pending(rig->jobs), 0);
    rig_tick(rig, QUIET_MS + 1);
    rig_settle(rig);
    assert_saving(rig, ROUNDS_EXPORT_DONE, path_of(rig));
    assert_file_holds(rig, rig->replica, "1,0");
    rig_close(rig);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_anchors_are_written),
        cmocka_unit_test(an_export_waits_for_the_fragment_that_changes),
        cmocka_unit_test(what_is_not_known_or_under_repair_is_not_exported),
        cmocka_unit_test(a_second_save_ends_with_the_newer_versions),
        cmocka_unit_test(a_step_that_waits_keeps_no_export_back),
        cmocka_unit_test(an_export_follows_when_all_is_quiet),
        cmocka_unit_test(an_export_follows_now_and_then),
        cmocka_unit_test(an_export_that_fails_says_so_and_is_tried_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
