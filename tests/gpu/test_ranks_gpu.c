/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that share one GPU, in bf16: those that share out a batch (dp) train, to the bit, what one process does that
 * adds up their gradients in order; those that share layers (tp) train nearly the same. Sums go through memory of the
 * host.
 *
 *   test_ranks_gpu [dp | tp | both]      one of them; all where nothing is said
 */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/fsio.h"
#include "common/mem.h"
#include "tests/gpu/gpu.h"
#include "tests/kern/ranked.h"

static const char *folder;

/* In the rank's process: the table is opened where the GPU is. */
static enum err train(void *user, const struct launch_rank *rank)
{
    struct ranked_story story = *(const struct ranked_story *)user;
    TRY(gpu_find(&story.kern));
    return ranked_train(&story, rank);
}

static void run(struct ranked_story *story, int ranks)
{
    int number[GROUP_RANKS_MAX];
    for (int r = 0; r < ranks; r++)
        number[r] = gpu_number();
    const struct launch_conf conf = {.ranks = ranks, .device = "cuda", .number = number};
    assert_ok(launch_run(&conf, train, story));
}

/* What the first one has chosen, for all: algorithms that differ add up in another order. */
static void share_choices(int ranks)
{
    char *text;
    size_t bytes;
    assert_ok(fsio_read(testlib_path(folder, "algorithms-0.txt"), 1 << 20, &text, &bytes));
    for (int r = 1; r < ranks; r++) {
        char name[32];
        snprintf(name, sizeof name, "algorithms-%d.txt", r);
        assert_ok(fsio_replace(testlib_path(folder, name), text, bytes, 0600));
    }
    mem_free(text);
}

static void train_nearly_the_same(int rows, int tp)
{
    for (int muon = 0; muon < 2; muon++) {
        struct ranked_story story = {.rows = rows, .tp = tp, .muon = muon == 1, .result = ranked_memory()};
        struct ranked_result *want = malloc(sizeof *want);
        assert_non_null(story.result);
        assert_non_null(want);
        run(&story, 1);
        *want = story.result[0];
        assert_true(want->loss[RANKED_STEPS - 1] < want->loss[0] - 0.2);
        run(&story, rows * tp);
        for (int r = 0; r < rows * tp; r++) {
            const struct ranked_result *got = &story.result[r];
            if (!(ranked_loss_distance(want, got) < 0.05 && ranked_distance(want, got) < 0.05))
                fail_msg("%d rows, rank %d: losses differ by %g, weights by %g", rows, r,
                         ranked_loss_distance(want, got), ranked_distance(want, got));
            assert_memory_equal(got->w, story.result[0].w, (size_t)got->count * sizeof(float));
        }
        free(want);
    }
}

static void dp_is_one_trainer_to_the_bit(void **state)
{
    (void)state;
    folder = testlib_folder("ranks_gpu");
    struct ranked_story story = {.rows = 2, .tied = true, .folder = folder, .result = ranked_memory()};
    struct ranked_result *want = malloc(sizeof *want);
    assert_non_null(story.result);
    assert_non_null(want);
    run(&story, 1);
    *want = story.result[0];
    share_choices(2);
    run(&story, 2);
    size_t bytes = (size_t)want->count * sizeof(float);
    for (int r = 0; r < 2; r++) {
        assert_memory_equal(story.result[r].w, want->w, bytes);
        assert_memory_equal(story.result[r].m, want->m, bytes);
        assert_memory_equal(story.result[r].v, want->v, bytes);
    }
    free(want);
}

static void tp_trains_nearly_the_same(void **state)
{
    (void)state;
    train_nearly_the_same(1, 2);
}

static void dp_and_tp_train_nearly_the_same(void **state)
{
    (void)state;
    train_nearly_the_same(2, 2);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dp_is_one_trainer_to_the_bit),
        cmocka_unit_test(tp_trains_nearly_the_same),
        cmocka_unit_test(dp_and_tp_train_nearly_the_same),
    };
    int status = gpu_there();
    if (status != 0)
        return status;
    if (argc > 1)
        cmocka_set_test_filter(strcmp(argv[1], "dp") == 0 ? "dp_is*" : strcmp(argv[1], "tp") == 0 ? "tp_*" : "dp_and*");
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
