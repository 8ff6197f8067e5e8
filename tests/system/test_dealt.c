/* SPDX-License-Identifier: Apache-2.0 */
/* Real daemons and our own trainers on one corpus: islands join, and one is killed and comes back. Every window that is
 * drawn is written down; no two islands draw the same one of a pass, nor does one island that was not killed. */
#include "tests/lib/testlib.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/digest.h"
#include "common/mem.h"
#include "tests/lib/homes.h"
#include "tests/lib/proc.h"
#include "tests/lib/village.h"

enum { PATIENCE_S = 90, ISLANDS = 3, PASSES = 1024, WINDOWS = 1 << 16, TRAINED_VERSIONS = 24, DEALT_MIN = 200 };

static const char *spec, *home[ISLANDS], *names[ISLANDS] = {"paris", "oslo", "rome"};
static char corpus[PATH_MAX];

struct seen {
    uint8_t by; /* 1 + island */
    bool dealt;
};

struct drawn {
    uint64_t dealt, own, again, twice;
};

/* A trainer whose debug lines go into a file of its own, all of them: the daemon lets so many a second pass. */
static const char *trainer(const char *name)
{
    char real[PATH_MAX], folder[300];
    assert_non_null(
        realpath(testlib_path(getenv("BUILD") != NULL ? getenv("BUILD") : "build/gcc", "diloco-worker"), real));
    snprintf(folder, sizeof folder, "%s/%s-bin", village_folder(), name);
    assert_int_equal(mkdir(folder, 0755), 0);
    const char *path =
        testlib_file(folder, "diloco-worker", "#!/bin/sh\nexec %s \"$@\" --verbose 2>>%s/drawn\n", real, folder);
    assert_int_equal(chmod(path, 0755), 0);
    return path;
}

static void join(uint32_t i)
{
    const char *token = homes_invite(home[0], NULL);
    assert_non_null(token);
    GOOD(home[i], "join", token, "--name", names[i], "--data", corpus, "--listen", homes_somewhere(), "--program",
         trainer(names[i]));
    if (!homes_wait_role(home[0], names[i], "owner", PATIENCE_S))
        fail_msg("%s does not become an owner:\n%s", names[i], homes_out);
}

static void train(const char *at)
{
    if (!homes_wait_versions(at, homes_number(at, NULL, "versions") + TRAINED_VERSIONS, PATIENCE_S)) {
        HOMES_RUN(at, "logs");
        fail_msg("no versions are made at %s:\n%s", at, homes_out);
    }
}

static void note(struct seen *seen, uint32_t i, uint64_t pass, uint64_t window, bool own, struct drawn *drawn)
{
    assert_true(pass < PASSES && window < WINDOWS);
    struct seen *there = &seen[pass * WINDOWS + window];
    drawn->dealt += !own;
    drawn->own += own;
    if (there->by != 0 && there->by != 1 + i) {
        print_message("window %llu of pass %llu: %s, and %s before\n", (unsigned long long)window,
                      (unsigned long long)pass, names[i], names[there->by - 1]);
        drawn->twice++;
    } else if (there->by != 0 && !own) {
        drawn->again++;
    }
    *there = (struct seen){.by = (uint8_t)(1 + i), .dealt = !own};
}

static struct drawn read_drawn(uint32_t i, struct seen *seen)
{
    char path[400], line[400];
    struct drawn drawn = {0};
    snprintf(path, sizeof path, "%s/%s-bin/drawn", village_folder(), names[i]);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        unsigned long long window, pass;
        const char *at = strstr(line, "draws window ");
        if (at != NULL && sscanf(at, "draws window %llu of pass %llu", &window, &pass) == 2)
            note(seen, i, pass, window, strstr(at, "of its own") != NULL, &drawn);
    }
    fclose(file);
    print_message("%s: %llu windows dealt, %llu of its own, %llu dealt again\n", names[i],
                  (unsigned long long)drawn.dealt, (unsigned long long)drawn.own, (unsigned long long)drawn.again);
    return drawn;
}

static void no_two_islands_draw_the_same_window(void **state)
{
    (void)state;
    struct seen *seen;
    GOOD(home[0], "init", "--name", names[0], "--data", corpus, "--run", spec, "--listen", homes_somewhere(),
         "--program", trainer(names[0]));
    train(home[0]);
    join(1);
    train(home[0]);
    join(2);
    train(home[0]);
    homes_kill(home[2]);
    train(home[0]);
    GOOD(home[2], "start");
    if (!homes_wait_role(home[0], names[2], "owner", PATIENCE_S))
        fail_msg("rome does not come back:\n%s", homes_out);
    train(home[0]);
    for (uint32_t i = 0; i < ISLANDS; i++)
        homes_kill(home[i]);
    assert_ok(mem_new((size_t)PASSES * WINDOWS, sizeof *seen, "windows", &seen));
    for (uint32_t i = 0; i < ISLANDS; i++) {
        struct drawn drawn = read_drawn(i, seen);
        assert_int_equal(drawn.twice, 0);
        assert_true(drawn.dealt > DEALT_MIN);
        assert_true(i == 2 || drawn.again == 0); /* what died with rome it may draw again */
    }
    mem_free(seen);
}

int main(void)
{
    assert_ok(digest_init());
    if (!village_open("dealt"))
        return EXIT_FAILURE;
    assert_non_null(realpath("tests/demo/shakespeare.txt", corpus));
    spec =
        testlib_file(village_folder(), "run.conf",
                     "[run]\nname = dealt\nsteps = 1000000\n[model]\nwidth = 32\nlayers = 2\nheads = 2\ncontext = 32\n"
                     "[train]\nbatch = 2\n[sync]\ninterval = 300\nlayers_per_fragment = 1\n");
    for (uint32_t i = 0; i < ISLANDS; i++)
        home[i] = village_home(names[i]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_two_islands_draw_the_same_window)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
