/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Directions of real contributions: small models trained by tests/bench/lab.h, with the arithmetic that daemons use.
 * Honest islands are never turned away, however different their texts are; who sends the opposite of its work is, after
 * five rounds, and the others learn as if it were not there.
 */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/digest.h"
#include "common/fsio.h"
#include "common/mem.h"
#include "outer_opt/direction.h"
#include "tests/bench/lab.h"

#define FOLDER "build/bench"
#define MIXED FOLDER "/direction-texts"
#define PLAY "tests/demo/shakespeare.txt"

static const char spec[] = "[run]\nname = direction\nsteps = 480\n"
                           "[model]\nwidth = 32\nlayers = 2\nheads = 2\nff = 88\ncontext = 64\n"
                           "[data]\nformat = bytes\nheld_out = 0.05\n"
                           "[train]\nbatch = 4\nlr = 3e-3\nlr_final = 0.1\nwarmup = 20\n"
                           "[sync]\ninterval = 20\nlayers_per_fragment = 1\noverlap = 1\nmix = 0.5\n";

static struct lab_result run(struct lab_conf conf)
{
    struct lab_result result;
    assert_ok(runspec_parse(spec, "direction", &conf.spec));
    assert_ok(lab_run(&conf, &result));
    runspec_deinit(&conf.spec);
    printf("%u islands, %u liars, %u without: held-out %.4f, %llu versions of shards; weightless", conf.islands,
           conf.liars, conf.without, result.val_loss, (unsigned long long)result.shard_versions);
    for (uint32_t i = 0; i < conf.islands; i++)
        printf(" %llu (from %llu)", (unsigned long long)result.weightless[i],
               (unsigned long long)result.first_weightless[i]);
    printf("\n");
    return result;
}

/* ---- texts ---- */

enum { PART_BYTES = 60000, KINDS = 5 };

/* A play, a protocol in English, C, numbers, Python: nothing of one helps with the other. */
static const char *const kinds[KINDS][4] = {
    {PLAY},
    {"docs/PROTOCOL.md", "docs/FORMATS.md"},
    {"daemon/state/ledger.c", "net/transport/link.c"},
    {"tests/vectors/tokenizer-llama3.json", "tests/vectors/schedule.json", "tests/vectors/utilisation.json",
     "tests/vectors/nesterov.json"},
    {"tests/python/test_ranks.py", "tests/python/test_torch.py", "tests/python/test_hf.py", "tests/docs/static.py"},
};

static void append_kind(char *text, const char *const *paths)
{
    size_t have = 0;
    for (int k = 0; have < PART_BYTES; k = k < 3 && paths[k + 1] != NULL ? k + 1 : 0) {
        char *data;
        size_t bytes;
        assert_ok(fsio_read(paths[k], (size_t)1 << 24, &data, &bytes));
        bytes = bytes < PART_BYTES - have ? bytes : PART_BYTES - have;
        memcpy(text + have, data, bytes);
        have += bytes;
        mem_free(data);
    }
}

/* One of each of the first `count` kinds, and what is held out. */
static void write_texts(uint32_t count)
{
    char *text = malloc((size_t)count * PART_BYTES + PART_BYTES);
    for (uint32_t k = 0; k < count; k++)
        append_kind(text + (size_t)k * PART_BYTES, kinds[k]);
    append_kind(text + (size_t)count * PART_BYTES, kinds[0]);
    size_t bytes = (size_t)((double)count * PART_BYTES / 0.95); /* so that each part is of one kind */
    assert_ok(fsio_replace(MIXED, text, bytes, 0644));
    free(text);
}

/* ---- cases ---- */

static void honest_islands_with_other_texts_always_weigh(void **state)
{
    (void)state;
    for (uint32_t islands = 3; islands <= KINDS; islands++) {
        write_texts(islands);
        struct lab_result result = run((struct lab_conf){.islands = islands, .data = MIXED, .own_parts = true});
        for (uint32_t i = 0; i < islands; i++)
            assert_int_equal(result.weightless[i], 0);
    }
}

/* In the sixth round of the fragment with which most of the model has been through five. */
static void who_lies_weighs_nothing(uint32_t islands)
{
    struct lab_conf conf = {.islands = islands, .data = PLAY, .own_parts = true, .liars = 1};
    struct lab_result lied = run(conf), missed;
    conf.liars = 0;
    conf.without = 1;
    missed = run(conf);
    for (uint32_t i = 0; i + 1 < islands; i++)
        assert_int_equal(lied.weightless[i], 0);
    assert_in_range(lied.first_weightless[islands - 1], DIRECTION_ROUNDS, DIRECTION_ROUNDS + 1);
    assert_true(lied.weightless[islands - 1] > lied.shard_versions / 2);
    assert_true(lied.val_loss < 1.05 * missed.val_loss);
}

static void who_turns_its_sign_weighs_nothing_after_five_rounds(void **state)
{
    (void)state;
    who_lies_weighs_nothing(3);
    who_lies_weighs_nothing(5);
}

int main(void)
{
    assert_ok(digest_init());
    (void)mkdir(FOLDER, 0755);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(honest_islands_with_other_texts_always_weigh),
        cmocka_unit_test(who_turns_its_sign_weighs_nothing_after_five_rounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
