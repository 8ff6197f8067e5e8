/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Directions of real contributions: small models trained by tests/bench/lab.h, with the arithmetic that daemons use.
 * Honest islands are never turned away, however different their texts are; who sends the opposite of its work is, after
 * five rounds, and the others learn as if it were not there.
 */
#include "tests/lib/testlib.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/digest.h"
#include "common/env.h"
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

/* A play; it in other letters; sums; it backwards; random hexadecimals: nothing of one helps with the other. All come
 * of one file and a seed, so that only what is tested changes what is measured. */
enum kind { AS_IT_IS, OTHER_LETTERS, SUMS, BACKWARDS, HEXADECIMALS };

static char other_letter(char c)
{
    char first = c >= 'a' && c <= 'z' ? 'a' : c >= 'A' && c <= 'Z' ? 'A' : '\0';
    return first != '\0' ? (char)(first + (c - first + 13) % 26) : c;
}

static void write_sums(char *text, struct env_rng *rng)
{
    for (size_t have = 0; have < PART_BYTES;) {
        char line[64];
        uint64_t x = env_rng_below(rng, 1000), y = env_rng_below(rng, 1000);
        size_t length = (size_t)snprintf(line, sizeof line, "%" PRIu64 " + %" PRIu64 " = %" PRIu64 "\n", x, y, x + y);
        length = length < PART_BYTES - have ? length : PART_BYTES - have;
        memcpy(text + have, line, length);
        have += length;
    }
}

static void write_kind(enum kind kind, const char *play, char *text)
{
    struct env_rng rng = env_rng_init(3, kind);
    if (kind == SUMS)
        write_sums(text, &rng);
    for (size_t i = 0; i < PART_BYTES && kind != SUMS; i++)
        text[i] = kind == OTHER_LETTERS  ? other_letter(play[i])
                  : kind == BACKWARDS    ? play[PART_BYTES - 1 - i]
                  : kind == HEXADECIMALS ? "0123456789abcdef"[env_rng_below(&rng, 16)]
                                         : play[i];
}

/* One of each of the first `count` kinds, and what is held out. */
static void write_texts(uint32_t count)
{
    char *play, *text = malloc((size_t)count * PART_BYTES + PART_BYTES);
    size_t play_bytes;
    assert_ok(fsio_read(PLAY, (size_t)1 << 24, &play, &play_bytes));
    assert_true(play_bytes >= PART_BYTES);
    for (uint32_t k = 0; k < count; k++)
        write_kind((enum kind)k, play, text + (size_t)k * PART_BYTES);
    write_kind(AS_IT_IS, play, text + (size_t)count * PART_BYTES);
    size_t bytes = (size_t)((double)count * PART_BYTES / 0.95); /* so that each part is of one kind */
    assert_ok(fsio_replace(MIXED, text, bytes, 0644));
    mem_free(play);
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
