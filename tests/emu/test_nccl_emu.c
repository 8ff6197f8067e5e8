/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks with an emulated GPU each, whose sums go through a played NCCL: they are queued, and no host waits for them.
 * What they train has the same bits as where sums go through memory that the hosts share. */
#include "tests/lib/testlib.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/emu/emu.h"
#include "tests/emu/kern_emu.h"
#include "tests/kern/ranked.h"

static enum err train(void *story, const struct launch_rank *rank)
{
    emu_clear();
    kern_emu_hurry(rank->rank % 2 == 1);
    enum err err = ranked_train(story, rank);
    return err == ERR_OK && emu_error()[0] != '\0' ? err_set(ERR_STATE, "%s", emu_error()) : err;
}

static void queued_sums_are_those_of_shared_memory(void **state)
{
    (void)state;
    static const int number[] = {0, 1, 2, 3};
    struct ranked_story story = {.kern = &kern_emu, .result = ranked_memory()};
    struct ranked_result *want = malloc(sizeof *want);
    assert_non_null(story.result);
    assert_non_null(want);
#ifdef __SANITIZE_THREAD__
    const int kinds = 1; /* each takes a minute there */
#else
    const int kinds = 3;
#endif
    for (int kind = 0; kind < kinds; kind++) {
        story.rows = kind == 0 ? 1 : 2;
        story.tp = kind == 1 ? 1 : 2;
        story.muon = kind == 2;
        int ranks = story.rows * story.tp;
        const struct launch_conf shared = {.ranks = ranks, .device = "emu"};
        const struct launch_conf each = {.ranks = ranks, .device = "emu", .number = number};
        assert_ok(launch_run(&shared, train, &story));
        *want = story.result[0];
        memset(story.result, 0, (size_t)ranks * sizeof *story.result);
        assert_ok(launch_run(&each, train, &story));
        for (int r = 0; r < ranks; r++) {
            const struct ranked_result *got = &story.result[r];
            assert_memory_equal(got->loss, want->loss, sizeof got->loss);
            assert_memory_equal(got->norm, want->norm, sizeof got->norm);
            assert_memory_equal(got->w, want->w, (size_t)want->count * sizeof(float));
            assert_memory_equal(got->m, want->m, (size_t)want->count * sizeof(float));
        }
    }
    free(want);
}

/* The loader looks for libraries where it was told to before main(). */
static void begin_with_played_library(char **argv)
{
    const char *build = getenv("BUILD"), *said = getenv("LD_LIBRARY_PATH");
    char self[PATH_MAX];
    ssize_t bytes = readlink("/proc/self/exe", self, sizeof self - 1);
    const char *path = testlib_path(build != NULL ? build : "build/gcc", "tests/fakes/nccl");
    if (bytes <= 0 || (said != NULL && strcmp(said, path) == 0))
        return;
    self[bytes] = '\0';
    setenv("LD_LIBRARY_PATH", path, 1);
    execv(self, argv);
}

int main(int argc, char **argv)
{
    (void)argc;
    const struct CMUnitTest tests[] = {cmocka_unit_test(queued_sums_are_those_of_shared_memory)};
    begin_with_played_library(argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
