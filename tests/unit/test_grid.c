/* SPDX-License-Identifier: Apache-2.0 */
/* grid: which ranks can share out a model and a batch, and what is said of those that cannot. */
#include "tests/lib/testlib.h"

#include "common/digest.h"
#include "common/grid.h"

/* heads 12, kv_heads 6, ff 24, vocab and batch as given. */
static struct runspec spec_of(const char *vocab, const char *batch)
{
    struct runspec spec;
    char text[300];
    snprintf(text, sizeof text,
             "[run]\nname = x\nsteps = 9\n[model]\nvocab = %s\nwidth = 96\nheads = 12\nkv_heads = 6\nff = 24\n"
             "[data]\nformat = tokens\n[train]\nbatch = %s\n",
             vocab, batch);
    assert_ok(runspec_parse(text, "test", &spec));
    return spec;
}

static enum err check(const struct runspec *spec, int64_t ranks, int64_t tensor_parallel)
{
    const struct grid grid = {.ranks = ranks,
                              .tensor_parallel = tensor_parallel,
                              .ranks_name = "ranks or devices",
                              .tensor_parallel_name = "tensor_parallel"};
    return grid_check(&grid, spec);
}

static void ranks_share_out_batch_and_layers_evenly(void **state)
{
    (void)state;
    static const int64_t good[][2] = {{1, 1}, {2, 1}, {4, 1}, {4, 2}, {8, 2}, {3, 3}, {12, 3}, {6, 6}, {24, 6}};
    struct runspec spec = spec_of("256", "4");
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        assert_ok(check(&spec, good[i][0], good[i][1]));
    runspec_deinit(&spec);
}

static void what_cannot_be_shared_out_is_named_with_the_remedy(void **state)
{
    (void)state;
    struct runspec spec = spec_of("256", "4");
    assert_fails(ERR_CONF, "tensor_parallel 3 does not divide 4 ranks; ranks or devices say how many",
                 check(&spec, 4, 3));
    assert_fails(ERR_CONF, "tensor_parallel 2 does not divide 1 rank; ", check(&spec, 1, 2));
    assert_fails(ERR_CONF, "tensor_parallel 0 does not divide 4 ranks", check(&spec, 4, 0));
    assert_fails(ERR_CONF, "does not divide 0 ranks", check(&spec, 0, 1));
    assert_fails(ERR_CONF,
                 "[model] heads 12 cannot be shared out evenly among 8 tensor-parallel ranks; take a "
                 "tensor_parallel that divides it",
                 check(&spec, 8, 8));
    assert_fails(ERR_CONF, "[model] kv_heads 6 cannot be shared out evenly among 4", check(&spec, 4, 4));
    assert_fails(ERR_CONF, "[train] batch 4 cannot be shared out evenly among 3 ranks; make it a multiple",
                 check(&spec, 3, 1));
    assert_fails(ERR_CONF, "[train] batch 4 cannot be shared out evenly among 8 ranks of each column",
                 check(&spec, 16, 2));
    spec.ff = 25;
    assert_fails(ERR_CONF, "[model] ff 25 cannot be shared out evenly among 2", check(&spec, 2, 2));
    spec.ff = 24;
    spec.vocab = 5;
    assert_fails(ERR_CONF, "[model] vocab 5 is less than 6 tensor-parallel ranks; take a smaller tensor_parallel",
                 check(&spec, 6, 6));
    runspec_deinit(&spec);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_share_out_batch_and_layers_evenly),
        cmocka_unit_test(what_cannot_be_shared_out_is_named_with_the_remedy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
