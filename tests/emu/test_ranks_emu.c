/* SPDX-License-Identifier: Apache-2.0 */
/* As num/test_ranks, with emulated CUDA kernels in bf16 and queues as late as a GPU's may be: what a collective must
 * wait for, and what must wait for it, is said by order() alone. */
#include "tests/lib/testlib.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/emu/emu.h"
#include "tests/emu/kern_emu.h"
#include "tests/kern/ranked.h"

static enum err train(void *story, const struct launch_rank *rank)
{
    emu_clear();
    kern_emu_hurry(rank->rank % 2 == 1); /* ranks are not equally fast */
    enum err err = ranked_train(story, rank);
    return err == ERR_OK && emu_error()[0] != '\0' ? err_set(ERR_STATE, "%s", emu_error()) : err;
}

static void ranks_are_one_trainer_with(bool muon, bool stochastic)
{
    const struct launch_conf alone = {.ranks = 1, .device = "emu"}, all = {.ranks = 2, .device = "emu"};
    struct ranked_story story = {
        .kern = &kern_emu, .rows = 2, .tied = true, .muon = muon, .stochastic = stochastic, .result = ranked_memory()};
    struct ranked_result *want = malloc(sizeof *want);
    assert_non_null(story.result);
    assert_ok(launch_run(&alone, train, &story));
    *want = story.result[0];
    size_t bytes = (size_t)want->count * sizeof(float);
    assert_true(want->loss[RANKED_STEPS - 1] < want->loss[0] - 0.2);
    assert_ok(launch_run(&all, train, &story));
    for (int r = 0; r < 2; r++) {
        const struct ranked_result *got = &story.result[r];
        assert_memory_equal(got->w, want->w, bytes);
        assert_memory_equal(got->m, want->m, bytes);
        assert_memory_equal(got->v, want->v, bytes);
        assert_true(got->end_loss == want->end_loss);
    }
    free(want);
}

static void ranks_are_one_trainer(void **state)
{
    (void)state;
    ranks_are_one_trainer_with(false, false);
}

static void ranks_that_use_muon_are_one_trainer(void **state)
{
    (void)state;
    ranks_are_one_trainer_with(true, false);
}

/* With Muon, which leaves some tensors to AdamW. */
static void ranks_that_round_by_chance_are_one_trainer(void **state)
{
    (void)state;
    ranks_are_one_trainer_with(true, true);
}

/* In bf16 sums of the parts are rounded once more than those of the whole. */
static void ranks_that_share_layers_train_the_same(void **state)
{
    (void)state;
    struct ranked_story story = {.kern = &kern_emu, .tp = 2, .result = ranked_memory()};
    struct ranked_result *want = malloc(sizeof *want);
    assert_non_null(story.result);
    for (int rows = 1; rows <= 2; rows++) {
        story.rows = rows;
        story.muon = rows == 1;
        const struct launch_conf alone = {.ranks = 1, .device = "emu"}, all = {.ranks = 2 * rows, .device = "emu"};
        assert_ok(launch_run(&alone, train, &story));
        *want = story.result[0];
        assert_ok(launch_run(&all, train, &story));
        for (int r = 0; r < all.ranks; r++) {
            const struct ranked_result *got = &story.result[r];
            if (!(ranked_loss_distance(want, got) < 0.05 && ranked_distance(want, got) < 0.05))
                fail_msg("%d rows, rank %d: losses differ by %g, weights by %g", rows, r,
                         ranked_loss_distance(want, got), ranked_distance(want, got));
            assert_memory_equal(got->w, story.result[0].w, (size_t)got->count * sizeof(float));
            assert_true(got->end_loss == story.result[r / 2 * 2].end_loss); /* products' copies of norms, too */
        }
    }
    free(want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranks_are_one_trainer),
                                       cmocka_unit_test(ranks_that_use_muon_are_one_trainer),
                                       cmocka_unit_test(ranks_that_round_by_chance_are_one_trainer),
                                       cmocka_unit_test(ranks_that_share_layers_train_the_same)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
