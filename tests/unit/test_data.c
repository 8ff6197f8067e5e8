/* data: formats, held-out part, disjoint deterministic streams, one clear error per kind of bad file. */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/fsio.h"
#include "worker/data.h"

static const char *folder;

static struct data_conf conf_of(const char *path)
{
    return (struct data_conf){
        .path = path, .vocab = 256, .context = 8, .held_out = 0.1, .seed = 5, .stream = 0, .streams_count = 1};
}

/* A file whose token at place i tells i: i mod 251. */
static const char *counting_file(const char *name, size_t bytes)
{
    const char *path = testlib_path(folder, name);
    char *data = malloc(bytes);
    for (size_t i = 0; i < bytes; i++)
        data[i] = (char)(i % 251);
    assert_ok(fsio_replace(path, data, bytes, 0600));
    free(data);
    return path;
}

static const char *shard_file(const char *name, uint32_t magic, uint32_t version, uint32_t announced, uint32_t real,
                              uint16_t first)
{
    const char *path = testlib_path(folder, name);
    size_t bytes = 1024 + 2 * (size_t)real;
    uint8_t *data = calloc(1, bytes);
    memcpy(data, &magic, 4);
    memcpy(data + 4, &version, 4);
    memcpy(data + 8, &announced, 4);
    for (uint32_t i = 0; i < real; i++) {
        uint16_t token = (uint16_t)(first + i);
        memcpy(data + 1024 + 2 * i, &token, 2);
    }
    assert_ok(fsio_replace(path, data, bytes, 0600));
    free(data);
    return path;
}

static void targets_follow_tokens(void **state)
{
    (void)state;
    struct data_conf conf = conf_of(counting_file("a", 1000));
    struct data *data;
    assert_ok(data_open(&conf, &data));
    assert_int_equal(data_train_tokens(data), 900);
    int32_t tokens[8 * 20], targets[8 * 20];
    assert_ok(data_batch(data, 0, 20, tokens, targets));
    for (int i = 0; i < 160; i++)
        assert_int_equal(targets[i], (tokens[i] + 1) % 251);
    data_close(data);
}

static void streams_are_disjoint_complete_and_repeatable(void **state)
{
    (void)state;
    const char *path = counting_file("b", 250); /* 225 for training: 27 windows, each known by its first token */
    int seen[256] = {0};
    uint64_t windows = 27;
    for (uint32_t s = 0; s < 3; s++) {
        struct data_conf conf = conf_of(path);
        conf.stream = s;
        conf.streams_count = 3;
        struct data *data, *again;
        assert_ok(data_open(&conf, &data));
        assert_ok(data_open(&conf, &again));
        for (uint64_t k = 0; k < windows / 3; k++) {
            int32_t a[8], b[8], targets[8];
            assert_ok(data_batch(data, k, 1, a, targets));
            assert_ok(data_batch(again, k, 1, b, targets));
            assert_memory_equal(a, b, sizeof a);
            seen[a[0]]++;
        }
        data_close(data);
        data_close(again);
    }
    /* One epoch over all streams visits every window once: 27 different beginnings, one shift. */
    int distinct = 0;
    for (int i = 0; i < 256; i++) {
        assert_true(seen[i] <= 1);
        distinct += seen[i];
    }
    assert_int_equal(distinct, 27);
}

static void epochs_and_seeds_reorder(void **state)
{
    (void)state;
    struct data_conf conf = conf_of(counting_file("c", 4000));
    struct data *data, *other;
    assert_ok(data_open(&conf, &data));
    conf.seed = 6;
    assert_ok(data_open(&conf, &other));
    int32_t a[800], b[800], c[800], targets[800];
    uint64_t windows = (3600 - 8) / 8;
    assert_ok(data_batch(data, 0, 100, a, targets));
    assert_ok(data_batch(data, windows, 100, b, targets));
    assert_ok(data_batch(other, 0, 100, c, targets));
    assert_true(memcmp(a, b, sizeof a) != 0);
    assert_true(memcmp(a, c, sizeof a) != 0);
    data_close(data);
    data_close(other);
}

static void held_out_is_never_trained_on(void **state)
{
    (void)state;
    /* Training tokens are below 200, held-out ones above. */
    const char *path = testlib_path(folder, "h");
    uint8_t raw[1000];
    memset(raw, 100, 900);
    memset(raw + 900, 201, 100);
    assert_ok(fsio_replace(path, raw, sizeof raw, 0600));
    struct data_conf conf = conf_of(path);
    struct data *data;
    assert_ok(data_open(&conf, &data));
    int32_t tokens[8], targets[8];
    for (uint64_t k = 0; k < 1000; k++) {
        assert_ok(data_batch(data, k, 1, tokens, targets));
        for (int i = 0; i < 8; i++)
            assert_true(tokens[i] == 100 && targets[i] == 100);
    }
    for (uint64_t k = 0; k < 12; k++) {
        assert_ok(data_held_out(data, k, 12, 1, tokens, targets));
        for (int i = 0; i < 8; i++)
            assert_true(tokens[i] == 201 && targets[i] == 201);
    }
    data_close(data);
    conf.held_out = 0;
    assert_ok(data_open(&conf, &data));
    assert_fails(ERR_NOTFOUND, "raise [data] held_out", data_held_out(data, 0, 1, 1, tokens, targets));
    data_close(data);
}

static void shards_are_read_across_files(void **state)
{
    (void)state;
    shard_file("s_0.bin", 20240520, 1, 100, 100, 1000);
    shard_file("s_1.bin", 20240520, 1, 300, 300, 5000);
    struct data_conf conf = conf_of(testlib_path(folder, "s_*.bin"));
    conf.tokens = true;
    conf.vocab = 50257;
    struct data *data;
    assert_ok(data_open(&conf, &data));
    assert_int_equal(data_train_tokens(data), 360);
    int low = 0, high = 0;
    for (uint64_t k = 0; k < 42; k++) {
        int32_t tokens[8], targets[8];
        assert_ok(data_batch(data, k, 1, tokens, targets));
        low += tokens[0] < 2000;
        high += tokens[0] >= 5000;
        for (int i = 0; i < 8; i++)
            assert_int_equal(targets[i], tokens[i] + 1); /* no window straddles two files */
    }
    assert_int_equal(low, 11);
    assert_int_equal(high, 31);
    data_close(data);
}

static void bad_files_are_named_with_the_remedy(void **state)
{
    (void)state;
    struct data *data;
    struct data_conf conf = conf_of("no/such/file");
    assert_fails(ERR_CONF, "no/such/file: no such file; set the path", data_open(&conf, &data));
    conf = conf_of(counting_file("e", 0));
    assert_fails(ERR_CONF, "empty; give a file", data_open(&conf, &data));
    conf = conf_of(counting_file("t", 8));
    assert_fails(ERR_CONF, "use a larger file or a shorter context", data_open(&conf, &data));
    conf = conf_of(folder);
    assert_fails(ERR_CONF, "not a regular file", data_open(&conf, &data));
    conf = conf_of(shard_file("m.bin", 7, 1, 100, 100, 0));
    conf.tokens = true;
    assert_fails(ERR_CONF, "it starts with 7, not 20240520", data_open(&conf, &data));
    conf.path = shard_file("v.bin", 20240520, 2, 100, 100, 0);
    assert_fails(ERR_CONF, "version 2; this program reads 1", data_open(&conf, &data));
    conf.path = shard_file("c.bin", 20240520, 1, 101, 100, 0);
    assert_fails(ERR_CONF, "cut short: its header announces 101", data_open(&conf, &data));
    conf.path = shard_file("w.bin", 20240520, 1, 100, 100, 200);
    assert_ok(data_open(&conf, &data));
    int32_t tokens[8], targets[8];
    enum err err = ERR_OK;
    for (uint64_t k = 0; k < 11 && err == ERR_OK; k++)
        err = data_batch(data, k, 1, tokens, targets);
    assert_fails(ERR_CORRUPT, "is outside the vocabulary of 256", err);
    data_close(data);
}

int main(void)
{
    folder = testlib_folder("data");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(targets_follow_tokens),        cmocka_unit_test(streams_are_disjoint_complete_and_repeatable),
        cmocka_unit_test(epochs_and_seeds_reorder),     cmocka_unit_test(held_out_is_never_trained_on),
        cmocka_unit_test(shards_are_read_across_files), cmocka_unit_test(bad_files_are_named_with_the_remedy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
