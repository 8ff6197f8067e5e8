/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that share out a batch train, to the bit, what one process does that adds up their gradients in order. */
#include "tests/lib/testlib.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kern.h"
#include "tests/kern/ranked.h"

static void same_bits(const struct ranked_result *want, const struct ranked_result *got)
{
    size_t bytes = (size_t)want->count * sizeof(float);
    assert_true(want->count > 0 && got->count == want->count);
    for (int i = 0; i < RANKED_STEPS; i++) {
        assert_true(fabs(got->loss[i] / want->loss[i] - 1) < 1e-12);
        assert_true(fabs(got->norm[i] / want->norm[i] - 1) < 1e-12);
    }
    assert_memory_equal(got->w, want->w, bytes);
    assert_memory_equal(got->m, want->m, bytes);
    assert_memory_equal(got->v, want->v, bytes);
    assert_true(got->end_loss == want->end_loss); /* by copies of the weights that came from all ranks */
}

static void ranks_are_one_trainer(void **state)
{
    (void)state;
    struct ranked_story story = {.result = ranked_memory()};
    struct ranked_result *want = malloc(sizeof *want);
    assert_ok(kern_find("cpu", &story.kern));
    assert_non_null(story.result);
    for (int ranks = 2; ranks <= 4; ranks *= 2)
        for (int kind = 0; kind < 6; kind++) {
            const struct launch_conf alone = {.ranks = 1, .device = "cpu"};
            const struct launch_conf all = {.ranks = ranks, .device = "cpu"};
            story.rows = ranks;
            story.tied = kind % 2 == 1;
            story.muon = kind / 2 == 1;
            story.bf16 = kind / 2 == 2;
            assert_ok(launch_run(&alone, ranked_train, &story));
            *want = story.result[0];
            assert_true(want->loss[RANKED_STEPS - 1] < want->loss[0] - 0.2);
            assert_ok(launch_run(&all, ranked_train, &story));
            for (int r = 0; r < ranks; r++)
                same_bits(want, &story.result[r]);
        }
    free(want);
}

/* How far the story's losses and weights may be from those of one process that adds up in another order. In bf16, which
 * has 8 bits, half as far as they are from those of float: how far that is depends on compiler and processor. */
static void may_differ(struct ranked_story *story, const struct ranked_result *alone, double *losses, double *weights)
{
    const struct launch_conf one = {.ranks = 1, .device = "cpu"};
    *losses = 1e-5;
    *weights = 1e-3;
    if (!story->bf16)
        return;
    story->bf16 = false;
    assert_ok(launch_run(&one, ranked_train, story));
    story->bf16 = true;
    *losses = ranked_loss_distance(alone, &story->result[0]) / 2;
    *weights = ranked_distance(alone, &story->result[0]) / 2;
    assert_true(*losses < 5e-2 && *weights < 5e-2);
}

/* Ranks that share layers train what one process trains, but for the order in which it adds up: in rows alone and in
 * several, with what is made again and what is not. All see the same. */
static void ranks_that_share_layers_train_the_same(void **state)
{
    (void)state;
    struct ranked_story story = {.result = ranked_memory(), .tp = 2};
    struct ranked_result *want = malloc(sizeof *want);
    assert_ok(kern_find("cpu", &story.kern));
    assert_non_null(story.result);
    for (int kind = 0; kind < 10; kind++) {
        story.rows = 1 + kind % 2;
        story.tied = kind / 2 % 2 == 1;
        story.muon = kind / 4 == 1;
        story.bf16 = kind / 4 == 2;
        double near, far; /* losses, weights */
        story.recompute = (enum model_recompute)(kind % MODEL_RECOMPUTES);
        const struct launch_conf alone = {.ranks = 1, .device = "cpu"};
        const struct launch_conf all = {.ranks = story.rows * story.tp, .device = "cpu"};
        assert_ok(launch_run(&alone, ranked_train, &story));
        *want = story.result[0];
        may_differ(&story, want, &near, &far);
        assert_ok(launch_run(&all, ranked_train, &story));
        for (int r = 0; r < all.ranks; r++) {
            const struct ranked_result *got = &story.result[r];
            if (!(ranked_loss_distance(want, got) < near && ranked_distance(want, got) < far))
                fail_msg("kind %d, rank %d: losses differ by %g, weights by %g", kind, r,
                         ranked_loss_distance(want, got), ranked_distance(want, got));
            assert_memory_equal(got->norm, story.result[0].norm, sizeof got->norm);
            assert_memory_equal(got->loss, story.result[0].loss, sizeof got->loss);
            assert_memory_equal(got->w, story.result[0].w, (size_t)got->count * sizeof(float));
        }
    }
    free(want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranks_are_one_trainer),
                                       cmocka_unit_test(ranks_that_share_layers_train_the_same)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
