/* SPDX-License-Identifier: Apache-2.0 */
/* blake2b, blake2b_lanes: the same bytes as libsodium's, however the input is cut, and in every lane. */
#include "tests/lib/testlib.h"

#include <stdint.h>
#include <string.h>

#include "common/blake2b.h"
#include "common/blake2b_lanes.h"
#include "common/digest.h"
#include "common/env.h"
#include "common/isa.h"

enum { LENGTH_MAX = 4 * BLAKE2B_BLOCK_BYTES + 3, PIECES = 200 };

static uint8_t data[64 << 10];

static int fill(void **state)
{
    (void)state;
    struct env_rng rng = env_rng_init(5, 0);
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)env_rng_u64(&rng);
    return digest_init() == ERR_OK ? 0 : 1;
}

static void assert_same(const struct blake2b *after, size_t bytes)
{
    struct blake2b state = *after;
    struct digest want = digest_of(data, bytes);
    uint8_t got[BLAKE2B_BYTES];
    blake2b_end(&state, got);
    assert_memory_equal(got, want.byte, sizeof got);
}

static void every_length_at_once_is_as_libsodiums(void **state)
{
    (void)state;
    for (size_t bytes = 0; bytes <= LENGTH_MAX; bytes++) {
        struct blake2b own;
        blake2b_begin(&own);
        blake2b_add(&own, data, bytes);
        assert_same(&own, bytes);
    }
}

static void what_comes_in_pieces_is_the_same(void **state)
{
    (void)state;
    struct env_rng rng = env_rng_init(6, 0);
    struct blake2b own;
    size_t at = 0;
    blake2b_begin(&own);
    for (int i = 0; i < PIECES; i++) {
        size_t bytes = (size_t)env_rng_below(&rng, i % 3 == 0 ? 2 * BLAKE2B_BLOCK_BYTES + 1 : 70);
        blake2b_add(&own, data + at, bytes);
        at += bytes;
        assert_same(&own, at);
    }
    assert_true(at > 8 * BLAKE2B_BLOCK_BYTES && at < sizeof data);
}

static void assert_lanes(const struct blake2b_lanes *table, size_t bytes)
{
    static const uint8_t head[BLAKE2B_HEAD_BYTES] = "fifteen letters";
    const uint8_t *messages[BLAKE2B_LANES_MAX];
    uint8_t got[BLAKE2B_LANES_MAX][BLAKE2B_BYTES], *digests[BLAKE2B_LANES_MAX];
    assert_true(table->lanes >= 2 && table->lanes <= BLAKE2B_LANES_MAX);
    for (size_t i = 0; i < table->lanes; i++) {
        messages[i] = data + i * (bytes + i % 3); /* need not be aligned, nor follow closely */
        digests[i] = got[i];
    }
    table->hash(head, messages, bytes, digests);
    for (size_t i = 0; i < table->lanes; i++) {
        struct digest_state state;
        digest_begin(&state);
        digest_add(&state, head, sizeof head);
        digest_add(&state, messages[i], bytes);
        struct digest want = digest_end(&state);
        assert_memory_equal(got[i], want.byte, sizeof want.byte);
    }
}

static void every_lane_is_as_libsodiums(void **state)
{
    (void)state;
#if defined(__x86_64__)
    static const struct blake2b_lanes *const tables[ISA_LEVELS_MAX] = {NULL, &blake2b_lanes_avx2,
                                                                       &blake2b_lanes_avx512};
    if (isa_levels() < ISA_LEVELS_MAX)
        print_message("skip: this processor has no AVX-512; its lanes were not compared\n");
    for (size_t level = 1; level < isa_levels(); level++)
        for (size_t bytes = BLAKE2B_BLOCK_BYTES; bytes <= 48 * BLAKE2B_BLOCK_BYTES; bytes += BLAKE2B_BLOCK_BYTES)
            assert_lanes(tables[level], bytes);
#else
    print_message("skip: lanes are compiled for x86-64 alone\n");
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_length_at_once_is_as_libsodiums),
        cmocka_unit_test(what_comes_in_pieces_is_the_same),
        cmocka_unit_test(every_lane_is_as_libsodiums),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}
