/* SPDX-License-Identifier: Apache-2.0 */
/* libdiloco with tensors on a device that is behind the host: words are ours until what they stand for is done, and
 * training goes on meanwhile. */
#include "tests/lib/testlib.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/counterpart.h"
#include "tests/lib/late.h"

static struct late late;

static int start(void **state)
{
    (void)state;
    device = late_device(&late, true);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    bool sound = late.memory == 0 && late.pins == 0 && !late.broken;
    late_end(&late);
    device = (struct diloco_device){0};
    return sound ? 0 : -1;
}

static void assert_area(float more)
{
    for (int i = 0; i < COUNT; i++)
        assert_true(ipc_area(shm, fragment)[i] == (float)i + more);
}

static void a_snapshot_goes_out_when_it_has_arrived(void **state)
{
    (void)state;
    begin();
    fragment->due_step = 1;
    late.refuse = 2;
    assert_int_equal(train(1), DILOCO_OK);
    assert_int_equal(ipc_word(fragment), IPC_COPYING);
    assert_int_equal(train(1), DILOCO_OK);
    assert_int_equal(ipc_word(fragment), IPC_COPYING);
    assert_int_equal(train(1), DILOCO_OK);
    assert_int_equal(ipc_word(fragment), IPC_SNAPSHOT);
    assert_hears(IPC_TAKEN);
    assert_area(1); /* as it was then, though training went on */
    assert_int_equal(fragment->snapshot_step, 1);
    assert_int_equal(fragment->snapshot_tokens, 10);
    end();
}

static void an_anchor_is_ours_until_it_has_been_taken_in(void **state)
{
    (void)state;
    static const struct ipc_range ranges[] = {{0, 200, IPC_MIX, 0}, {200, VALUES, IPC_SHIFT, 0}};
    begin();
    fragment->due_step = 1;
    assert_int_equal(train(1), DILOCO_OK);
    assert_int_equal(ipc_word(fragment), IPC_SNAPSHOT);
    fragment->due_step = UINT64_MAX;
    bring_anchor(1, 1000, ranges, 2);
    late.refuse = 1;
    assert_int_equal(train(1), DILOCO_OK);
    assert_int_equal(ipc_word(fragment), IPC_MIXING);
    assert_int_equal(fragment->base, 0); /* both areas are still being read */
    assert_int_equal(fragment->base_version, 0);
    assert_int_equal(train(1), DILOCO_OK);
    assert_int_equal(ipc_word(fragment), IPC_FREE);
    assert_hears(IPC_TAKEN);
    assert_hears(IPC_MIXED);
    assert_int_equal(fragment->base, 1);
    assert_int_equal(fragment->base_version, 1);
    for (int i = 0; i < COUNT; i++) {
        float live = (float)i + 2;
        assert_true(tensor[i] == (i < 200 ? 0.25f * live + 0.75f * 1000 : live + (1000 - (float)i)) + 1);
    }
    end();
}

/* Nor is a word given away while a daemon looks at what it finds. */
static void attaching_again_finds_words_that_are_ours(void **state)
{
    (void)state;
    begin();
    fragment->due_step = 1;
    late.refuse = 1;
    assert_int_equal(train(1), DILOCO_OK);
    assert_int_equal(ipc_word(fragment), IPC_COPYING);
    close(connection);
    late.refuse = 1; /* for the step that finds out */
    assert_int_equal(train(0), DILOCO_OK);
    for (int i = 0; i < 40 && diloco_attached(d) == 0; i++) {
        usleep(50000);
        late.refuse = 1;
        assert_int_equal(train(0), DILOCO_OK);
    }
    late.refuse = 0;
    hear_introduction(SESSION);
    assert_int_equal(train(0), DILOCO_OK);
    assert_int_equal(ipc_word(fragment), IPC_COPYING);
    say_welcome(true);
    assert_int_equal(train(0), DILOCO_OK);
    assert_int_equal(ipc_word(fragment), IPC_SNAPSHOT);
    assert_hears(IPC_TAKEN); /* to this daemon, which found it under way */
    assert_area(1);
    end();
}

static bool holds(const char *bytes, size_t count, float value)
{
    for (size_t i = 0; i + sizeof value <= count; i += sizeof value)
        if (memcmp(bytes + i, &value, sizeof value) == 0)
            return true;
    return false;
}

static void hold_the_line(void)
{
    close(connection);
    for (int i = 0; i < 40; i++) {
        late.refuse = 1;
        assert_int_equal(train(0), DILOCO_OK);
        if (diloco_attached(d) != 0)
            break;
        usleep(50000);
    }
}

/* A checkpoint has it whole, and while words must not move, too. */
static void what_is_under_way_is_kept(void **state)
{
    (void)state;
    for (int connecting = 0; connecting < 2; connecting++) {
        begin();
        fragment->due_step = 1;
        late.refuse = 1;
        assert_int_equal(train(0.5f), DILOCO_OK);
        assert_int_equal(ipc_word(fragment), IPC_COPYING);
        if (connecting)
            hold_the_line();
        size_t bytes = diloco_keep_bytes(d);
        char *kept = calloc(1, bytes);
        late.refuse = 3;
        bytes = diloco_keep(d, kept, bytes);
        assert_true(bytes > 0);
        assert_int_equal(ipc_word(fragment), connecting ? IPC_COPYING : IPC_SNAPSHOT);
        assert_true(holds(kept, bytes, 499.5f) && holds(kept, bytes, 0.5f));
        free(kept);
        end();
    }
}

/* The same a tensor at a time: an anchor that is being taken in while no word may move is the anchor, and what is on
 * its way out is on its way. */
static void what_is_under_way_is_kept_a_tensor_at_a_time(void **state)
{
    (void)state;
    static const struct ipc_range all[] = {{0, VALUES, IPC_MIX, 0}};
    static float values[COUNT];
    for (int mixing = 0; mixing < 2; mixing++) {
        begin();
        fragment->due_step = 1;
        late.refuse = mixing ? 0 : 1;
        assert_int_equal(train(0.5f), DILOCO_OK);
        fragment->due_step = UINT64_MAX;
        if (mixing) {
            bring_anchor(1, 1000, all, 1);
            late.refuse = 1;
            assert_int_equal(train(0), DILOCO_OK);
        }
        assert_int_equal(ipc_word(fragment), mixing ? IPC_MIXING : IPC_COPYING);
        hold_the_line();
        late.refuse = 3;
        assert_int_equal(diloco_keep_begin(d), DILOCO_OK);
        assert_int_equal(diloco_keep_values(d, 0, DILOCO_KEPT_ANCHOR, values, COUNT), DILOCO_OK);
        for (int i = 0; i < COUNT; i++)
            assert_true(values[i] == (mixing ? 1000 : (float)i));
        assert_int_equal(diloco_keep_values(d, 0, DILOCO_KEPT_SENT, values, COUNT), DILOCO_OK);
        for (int i = 0; i < COUNT; i++)
            assert_true(values[i] == (mixing ? 0 : (float)i + 0.5f));
        end();
    }
}

/* The daemon's side of an end, for finish(). */
static int answer(int slice)
{
    static const struct ipc_range all = {0, VALUES, IPC_MIX, 0};
    if (ipc_word(fragment) == IPC_SNAPSHOT) {
        assert_area(1);
        bring_anchor(1, 7, &all, 1);
        late.refuse = 3; /* it is waited for before the end is said */
        say_end(true, "");
    }
    return slice > 400;
}

static void the_end_waits_for_the_device(void **state)
{
    (void)state;
    begin();
    assert_int_equal(train(1), DILOCO_OK);
    while_waiting = answer;
    slices = 0;
    late.refuse = 20;
    assert_int_equal(diloco_finish(d), DILOCO_OK);
    while_waiting = NULL;
    assert_int_equal(ipc_word(fragment), IPC_FREE);
    for (int i = 0; i < COUNT; i++)
        assert_true(tensor[i] == 7);
    end();
}

static void a_device_that_fails_is_told(void **state)
{
    (void)state;
    begin();
    fragment->due_step = 1;
    late.fails = true;
    assert_int_equal(train(1), DILOCO_ERROR);
    assert_non_null(strstr(diloco_error(d), "device that the tensors are on has failed"));
    end();
}

static void refused_options(struct diloco_options options, const char *part)
{
    struct diloco *none;
    assert_int_equal(diloco_attach(&options, &none), DILOCO_ERROR);
    assert_null(none);
    if (strstr(diloco_error(NULL), part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", diloco_error(NULL), part);
}

static void what_a_struct_lacks_is_said(void **state)
{
    (void)state;
    struct diloco_device lacking = device;
    struct diloco_options options = {.size = sizeof options, .socket_path = "x", .device = &lacking};
    lacking.reached = NULL;
    refused_options(options, "mark, alloc and pin only with reached");
    lacking.size = 8;
    refused_options(options, "struct diloco_device has no size");
    options.device = NULL;
    options.machine = &(struct diloco_machine){.ranks = 1};
    refused_options(options, "struct diloco_machine has no size");
    options.machine = &(struct diloco_machine){.size = sizeof(struct diloco_machine), .ranks = -1};
    refused_options(options, "options.machine: -1 ranks");
    options.size = 0;
    refused_options(options, "struct diloco_options has no size");
    begin();
    assert_int_equal(diloco_step(d, &(struct diloco_report){.tokens = 1}), DILOCO_ERROR);
    assert_non_null(strstr(diloco_error(d), "struct diloco_report has no size"));
    /* Of a later version, with something in it that this one does not know. */
    struct {
        struct diloco_report known;
        uint64_t more;
    } later = {.known = {.size = sizeof later, .tokens = 10}, .more = 1};
    assert_int_equal(diloco_step(d, &later.known), DILOCO_ERROR);
    later.more = 0;
    assert_int_equal(diloco_step(d, &later.known), DILOCO_OK);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_snapshot_goes_out_when_it_has_arrived, start, stop),
        cmocka_unit_test_setup_teardown(an_anchor_is_ours_until_it_has_been_taken_in, start, stop),
        cmocka_unit_test_setup_teardown(attaching_again_finds_words_that_are_ours, start, stop),
        cmocka_unit_test_setup_teardown(what_is_under_way_is_kept, start, stop),
        cmocka_unit_test_setup_teardown(what_is_under_way_is_kept_a_tensor_at_a_time, start, stop),
        cmocka_unit_test_setup_teardown(the_end_waits_for_the_device, start, stop),
        cmocka_unit_test_setup_teardown(a_device_that_fails_is_told, start, stop),
        cmocka_unit_test_setup_teardown(what_a_struct_lacks_is_said, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
