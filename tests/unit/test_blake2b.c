/* blake2b: the same bytes as libsodium's, however the input is cut. */
#include "tests/lib/testlib.h"

#include <stdint.h>
#include <string.h>

#include "common/blake2b.h"
#include "common/digest.h"
#include "common/env.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_length_at_once_is_as_libsodiums),
        cmocka_unit_test(what_comes_in_pieces_is_the_same),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}
