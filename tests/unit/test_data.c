/* SPDX-License-Identifier: Apache-2.0 */
/* data: formats, held-out part, disjoint deterministic streams, one clear error per kind of bad file. */
#include "tests/lib/testlib.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/fsio.h"
#include "common/runspec.h"
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

/* `count` tokens of `width` bytes from `first` on, behind `header_bytes` of room. */
static size_t put_tokens(uint8_t *to, unsigned width, uint32_t count, uint32_t first)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t token = first + i;
        memcpy(to + (size_t)width * i, &token, width); /* the machine is little-endian, as the files are */
    }
    return (size_t)width * count;
}

struct shard_said {
    uint32_t magic, version, announced, real, first;
    unsigned width;
};

static const char *shard_file(const char *name, struct shard_said said)
{
    const char *path = testlib_path(folder, name);
    unsigned width = said.width == 0 ? 2 : said.width;
    size_t bytes = 1024 + width * (size_t)said.real;
    uint8_t *data = calloc(1, bytes);
    memcpy(data, &said.magic, 4);
    memcpy(data + 4, &said.version, 4);
    memcpy(data + 8, &said.announced, 4);
    put_tokens(data + 1024, width, said.real, said.first);
    assert_ok(fsio_replace(path, data, bytes, 0600));
    free(data);
    return path;
}

/* Tokens and nothing else; `more` bytes behind the last. */
static const char *raw_file(const char *name, unsigned width, uint32_t count, uint32_t first, size_t more)
{
    const char *path = testlib_path(folder, name);
    uint8_t *data = calloc(1, width * (size_t)count + more);
    size_t bytes = put_tokens(data, width, count, first);
    assert_ok(fsio_replace(path, data, bytes + more, 0600));
    free(data);
    return path;
}

/* Opens, and expects that every window goes on counting; the smallest and the largest token of the first 40. */
static void counts_up(const struct data_conf *conf, int32_t *least, int32_t *most)
{
    struct data *data;
    assert_ok(data_open(conf, &data));
    *least = INT32_MAX;
    *most = 0;
    for (uint64_t k = 0; k < 40; k++) {
        int32_t tokens[8], targets[8];
        assert_ok(data_batch(data, k, 1, tokens, targets));
        for (int i = 0; i < 8; i++) {
            assert_int_equal(targets[i], tokens[i] + 1);
            *least = tokens[i] < *least ? tokens[i] : *least;
            *most = tokens[i] > *most ? tokens[i] : *most;
        }
    }
    data_close(data);
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
    shard_file("s_0.bin", (struct shard_said){20240520, 1, 100, 100, 1000, 2});
    shard_file("s_1.bin", (struct shard_said){20240520, 1, 300, 300, 5000, 2});
    struct data_conf conf = conf_of(testlib_path(folder, "s_*.bin"));
    conf.format = RUNSPEC_TOKENS;
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

static void tokens_of_32_bits_are_read_to_the_largest_vocabulary(void **state)
{
    (void)state;
    int32_t least, most;
    uint32_t end = 1 << 20;
    struct data_conf conf = conf_of(
        shard_file("l3.bin", (struct shard_said){20240801, 7, 400, 400, end - 400, 4})); /* the last ones of 2^20 */
    conf.format = RUNSPEC_TOKENS;
    conf.vocab = end;
    conf.held_out = 0;
    counts_up(&conf, &least, &most);
    assert_true(least >= (int32_t)end - 400 && least < (int32_t)end - 300);
    assert_true(most < (int32_t)end && most >= (int32_t)end - 100);
    conf.vocab = end - 400;
    struct data *data;
    assert_fails(ERR_CONF, "token 1048176 at place 0 is outside the vocabulary of 1048176; set [model] vocab",
                 data_open(&conf, &data));
}

static void files_without_a_header_are_tokens_from_the_first_byte(void **state)
{
    (void)state;
    int32_t least, most;
    struct data_conf conf = conf_of(raw_file("raw16", 2, 400, 60000, 0));
    conf.format = RUNSPEC_UINT16;
    conf.vocab = 65536;
    conf.held_out = 0;
    counts_up(&conf, &least, &most);
    assert_true(least >= 60000 && least < 60008);
    conf.path = raw_file("raw32", 4, 400, 200000, 0);
    conf.format = RUNSPEC_UINT32;
    conf.vocab = 1 << 20;
    counts_up(&conf, &least, &most);
    assert_true(least >= 200000 && least < 200008);
}

static void what_a_file_without_a_header_cannot_be_is_refused(void **state)
{
    (void)state;
    struct data *data;
    struct data_conf conf = conf_of(raw_file("odd16", 2, 400, 100, 1));
    conf.format = RUNSPEC_UINT16;
    conf.vocab = 50257;
    assert_fails(ERR_CONF, "odd16: 801 bytes are no whole number of 16-bit tokens: cut short", data_open(&conf, &data));
    conf.path = raw_file("wide16", 4, 400, 100, 0);
    assert_fails(ERR_CONF,
                 "wide16: these are 32-bit tokens (every second 16 bits are next to nothing); set [data] format",
                 data_open(&conf, &data));
    conf.path = shard_file("headed", (struct shard_said){20240520, 1, 400, 400, 100, 2});
    assert_fails(ERR_CONF, "headed: a token shard with a header (20240520); set [data] format = tokens",
                 data_open(&conf, &data));
    conf.format = RUNSPEC_UINT32;
    conf.vocab = 1 << 20;
    conf.path = raw_file("odd32", 4, 400, 100, 2);
    assert_fails(ERR_CONF, "odd32: 1602 bytes are no whole number of 32-bit tokens", data_open(&conf, &data));
    conf.path = raw_file("narrow32", 2, 400, 100, 0);
    assert_fails(ERR_CONF,
                 "is outside the vocabulary of 1048576; set [model] vocab of the run spec to the tokenizer's size, "
                 "or [data] format = uint16",
                 data_open(&conf, &data));
    conf.path = shard_file("headed32", (struct shard_said){20240801, 7, 400, 400, 100, 4});
    assert_fails(ERR_CONF, "headed32: a token shard with a header (20240801); set [data] format = tokens",
                 data_open(&conf, &data));
}

/* Two headers are two tokenizers. */
static void shards_of_two_widths_do_not_mix(void **state)
{
    (void)state;
    shard_file("mix_0.bin", (struct shard_said){20240520, 1, 100, 100, 1000, 2});
    shard_file("mix_1.bin", (struct shard_said){20240801, 7, 100, 100, 1000, 4});
    struct data_conf conf = conf_of(testlib_path(folder, "mix_*.bin"));
    struct data *data;
    conf.format = RUNSPEC_TOKENS;
    conf.vocab = 200000;
    assert_fails(ERR_CONF, "mix_1.bin: tokens of 32 bits, and those of", data_open(&conf, &data));
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
    conf = conf_of(shard_file("m.bin", (struct shard_said){7, 1, 100, 100, 0, 2}));
    conf.format = RUNSPEC_TOKENS;
    assert_fails(ERR_CONF, "it starts with 7, not 20240520 or 20240801); set [data] format", data_open(&conf, &data));
    conf.path = shard_file("v.bin", (struct shard_said){20240520, 2, 100, 100, 0, 2});
    assert_fails(ERR_CONF, "version 2; this program reads 1", data_open(&conf, &data));
    conf.path = shard_file("v7.bin", (struct shard_said){20240801, 1, 100, 100, 0, 4});
    assert_fails(ERR_CONF, "version 1; this program reads 7", data_open(&conf, &data));
    conf.path = shard_file("c.bin", (struct shard_said){20240520, 1, 101, 100, 0, 2});
    assert_fails(ERR_CONF, "cut short: its header announces 101", data_open(&conf, &data));
    conf.path = shard_file("c7.bin", (struct shard_said){20240801, 7, 101, 100, 0, 4});
    assert_fails(ERR_CONF, "cut short: its header announces 101 tokens of 4 bytes", data_open(&conf, &data));
    conf.path = testlib_path(folder, "h.bin");
    assert_ok(fsio_replace(conf.path, (const uint32_t[]){20240520, 1, 5}, 12, 0600)); /* and then the end */
    assert_fails(ERR_CONF, "h.bin: cut short: its header announces 5 tokens", data_open(&conf, &data));
    conf.path = shard_file("z.bin", (struct shard_said){20240520, 1, 0, 100, 0, 2});
    assert_fails(ERR_CONF, "empty: its header announces no token; take it out", data_open(&conf, &data));
}

/* What is wrong near the beginning is said at once, and what lies further back where it is used. */
static void tokens_beyond_the_vocabulary_are_refused(void **state)
{
    (void)state;
    struct data *data;
    struct data_conf conf = conf_of(shard_file("w.bin", (struct shard_said){20240520, 1, 100, 100, 200, 2}));
    conf.format = RUNSPEC_TOKENS;
    assert_fails(ERR_CONF, "token 256 at place 56 is outside the vocabulary of 256", data_open(&conf, &data));
    conf.path = shard_file("x.bin", (struct shard_said){20240520, 1, 6000, 6000, 0, 2});
    conf.vocab = 5900;
    conf.held_out = 0;
    assert_ok(data_open(&conf, &data));
    int32_t tokens[8], targets[8];
    enum err err = ERR_OK;
    for (uint64_t k = 0; k < 749 && err == ERR_OK; k++)
        err = data_batch(data, k, 1, tokens, targets);
    assert_fails(ERR_CORRUPT, "is outside the vocabulary of 5900", err);
    data_close(data);
}

/* What data_look() logs of one file, or of a pattern. */
static const char *seen(const char *path, int format)
{
    static char text[2000];
    struct data *data;
    struct data_conf conf = conf_of(path);
    conf.format = format;
    conf.vocab = format == RUNSPEC_BYTES ? 256 : 65536;
    assert_ok(data_open(&conf, &data));
    fflush(stderr);
    int kept = dup(STDERR_FILENO), fd = open(testlib_path(folder, "log"), O_CREAT | O_TRUNC | O_RDWR, 0600);
    assert_true(kept >= 0 && fd >= 0);
    dup2(fd, STDERR_FILENO);
    data_look(data);
    dup2(kept, STDERR_FILENO);
    ssize_t bytes = pread(fd, text, sizeof text - 1, 0);
    text[bytes > 0 ? bytes : 0] = '\0';
    close(kept);
    close(fd);
    data_close(data);
    return text;
}

/* `head` at `at` of a file that else is of letters. */
static const char *file_with(const char *name, size_t at, const void *head, size_t head_bytes)
{
    char text[1000];
    memset(text, 'a', sizeof text);
    memcpy(text + at, head, head_bytes);
    const char *path = testlib_path(folder, name);
    assert_ok(fsio_replace(path, text, sizeof text, 0600));
    return path;
}

static void a_corpus_that_is_no_text_is_named_in_one_warning(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t at, bytes;
        const char *head, *what;
    } cases[] = {
        {"x.gz", 0, 2, "\x1f\x8b", "gzip data"},
        {"x.zst", 0, 4, "\x28\xb5\x2f\xfd", "zstd data"},
        {"x.xz", 0, 6, "\xfd\x37zXZ\0", "xz data"},
        {"x.bz2", 0, 10, "BZh91AY&SY", "bzip2 data"},
        {"x.zip", 0, 4, "PK\x03\x04", "a zip archive"},
        {"x.tar", 257, 5, "ustar", "a tar archive"},
        {"x.parquet", 0, 4, "PAR1", "a Parquet file"},
        {"x.npy", 0, 6, "\x93NUMPY", "a NumPy array"},
        {"x.safetensors", 0, 10, "\x10\0\0\0\0\0\0\0{\"", "a safetensors file"},
        {"x.out", 0, 4, "\x7f\x45LF", "a program (ELF)"},
        {"x.utf16", 0, 2, "\xff\xfe", "text in UTF-16"},
        {"x.gpt2", 0, 8, "\x88\xd8\x34\x01\x01\0\0\0", "a shard of GPT-2 tokens"},
        {"x.llama", 0, 8, "\xa1\xd9\x34\x01\x07\0\0\0", "a shard of Llama-3 tokens"},
        {"x.zeros", 500, 12, "\0\0\0\0\0\0\0\0\0\0\0\0", "binary: 1 % of its bytes are 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *log = seen(file_with(cases[i].name, cases[i].at, cases[i].head, cases[i].bytes), RUNSPEC_BYTES);
        if (strstr(log, cases[i].name) == NULL || strstr(log, cases[i].what) == NULL ||
            strchr(log, '\n') != log + strlen(log) - 1)
            fail_msg("%s: \"%s\"", cases[i].name, log);
    }
    assert_string_equal(seen(file_with("plain", 0, "BZh", 3), RUNSPEC_BYTES), "");
    assert_string_equal(seen(file_with("nine", 500, "\0\0\0\0\0\0\0\0\0", 9), RUNSPEC_BYTES),
                        ""); /* below a hundredth */
    assert_string_equal(seen("common/mem.c", RUNSPEC_BYTES), "");
    assert_string_equal(seen(raw_file("many0", 2, 400, 100, 0), RUNSPEC_UINT16), ""); /* numbers have zeros */
    assert_non_null(strstr(seen(file_with("y.npy", 0, "\x93NUMPY", 6), RUNSPEC_UINT16), "takes every number as it is"));
    file_with("many.1", 0, "plain", 5);
    file_with("many.2", 0, "PK\x03\x04", 4);
    file_with("many.3", 0, "PK\x03\x04", 4);
    const char *log = seen(testlib_path(folder, "many.*"), RUNSPEC_BYTES);
    assert_non_null(strstr(log, "many.2, and 1 more like it: looks like a zip archive"));
}

/* ---- mixtures ---- */

enum { LOW = 100, MIDDLE = 400, HIGH = 700, EACH = 250 }; /* tokens of the three sources begin there: 27 windows each */

/* Three files of counting 16-bit tokens, and a mixture of them with these weights; NULL leaves one out. */
static struct data_conf mixed(const char *low, const char *middle, const char *high)
{
    static char line[3][1500];
    static int turn;
    const char *weights[] = {low, middle, high}, *names[] = {"low", "middle", "high"};
    char *text = line[turn++ % 3];
    text[0] = '\0';
    for (int i = 0; i < 3; i++) {
        const char *path = raw_file(names[i], 2, EACH, (uint32_t)(LOW + 300 * i), 0);
        if (weights[i] != NULL)
            snprintf(text + strlen(text), sizeof line[0] - strlen(text), "%s=%s:%s ", names[i], path, weights[i]);
    }
    struct data_conf conf = conf_of(text);
    conf.format = RUNSPEC_UINT16;
    conf.vocab = 1000;
    return conf;
}

static int source_of(int32_t token)
{
    return token < MIDDLE ? 0 : token < HIGH ? 1 : 2;
}

/* Draws `count` windows from `position` on, one by one; how many of each source. */
static void draw(const struct data_conf *conf, uint64_t position, uint64_t count, uint64_t *of, int32_t *first)
{
    struct data *data;
    assert_ok(data_open(conf, &data));
    memset(of, 0, 3 * sizeof *of);
    for (uint64_t k = 0; k < count; k++) {
        int32_t tokens[8], targets[8];
        assert_ok(data_batch(data, position + k, 1, tokens, targets));
        assert_int_equal(source_of(tokens[0]), source_of(targets[7]));
        of[source_of(tokens[0])]++;
        if (first != NULL)
            first[k] = tokens[0];
    }
    data_close(data);
}

static void a_mixture_is_drawn_by_its_weights(void **state)
{
    (void)state;
    uint64_t of[3];
    struct data_conf conf = mixed("0.5", "0.3", "0.2");
    for (uint64_t n = 1; n < 200; n += 7) {
        draw(&conf, 0, n, of, NULL);
        assert_true(fabs((double)of[0] - 0.5 * (double)n) <= 1);
        assert_true(fabs((double)of[1] - 0.3 * (double)n) <= 1);
        assert_true(fabs((double)of[2] - 0.2 * (double)n) <= 1);
    }
    /* By the steps of the run, of which each is 4 windows here. */
    conf = mixed("1@50,0@51", "0@50,1@51", NULL);
    conf.windows_per_step = 4;
    draw(&conf, 0, 200, of, NULL);
    assert_int_equal(of[0], 200);
    draw(&conf, 204, 200, of, NULL);
    assert_int_equal(of[1], 200);
}

static void a_mixture_goes_on_where_it_was_and_in_any_pieces(void **state)
{
    (void)state;
    uint64_t of[3];
    int32_t whole[300], rest[200], batch[8 * 300], targets[8 * 300];
    struct data_conf conf = mixed("0.7@0,0.2@40", "0.3@0,0.8@40", "0.1@10,0@20");
    conf.windows_per_step = 4;
    draw(&conf, 0, 300, of, whole);
    draw(&conf, 100, 200, of, rest);
    assert_memory_equal(whole + 100, rest, sizeof rest);
    struct data *data;
    assert_ok(data_open(&conf, &data));
    assert_ok(data_batch(data, 0, 300, batch, targets));
    for (int k = 0; k < 300; k++)
        assert_int_equal(batch[8 * k], whole[k]);
    data_close(data);
}

/* Islands may mix the same sources each in its own way: of each source no window is drawn twice in an epoch. */
static void streams_of_mixtures_are_disjoint(void **state)
{
    (void)state;
    int seen[1000] = {0};
    const char *weights[3][3] = {{"1", "1", "1"}, {"5", "3", "1"}, {"1@0,5@20", "4", "2@0,1@9"}};
    for (uint32_t stream = 0; stream < 3; stream++) {
        int32_t first[18];
        uint64_t of[3], left[3] = {9, 9, 9};
        struct data_conf conf = mixed(weights[stream][0], weights[stream][1], weights[stream][2]);
        conf.stream = stream;
        conf.streams_count = 3;
        draw(&conf, 0, 18, of, first);
        for (int k = 0; k < 18; k++)
            if (left[source_of(first[k])] > 0) { /* of 27 windows 9 are a stream's in the first epoch */
                left[source_of(first[k])]--;
                seen[first[k]]++;
            }
    }
    int sum = 0;
    for (int i = 0; i < 1000; i++) {
        assert_true(seen[i] <= 1);
        sum += seen[i];
    }
    assert_true(sum > 45);
}

static void each_source_is_used_up_before_it_begins_anew(void **state)
{
    (void)state;
    uint64_t of[3];
    int32_t first[54];
    bool seen[1000 / 8] = {false};
    struct data_conf conf = mixed("0.5", NULL, "0.5");
    draw(&conf, 0, 54, of, first);
    for (int k = 0; k < 54; k++) {
        int32_t window = (first[k] - LOW - 300 * source_of(first[k])) / 8 + 40 * source_of(first[k]);
        assert_false(seen[window]);
        seen[window] = true;
    }
    assert_true(of[0] == 27 && of[2] == 27);
}

/* Whatever is dealt or kept in reserve: of each source no window is drawn twice in a pass. */
static void dealt_windows_are_distinct_in_a_pass(void **state)
{
    (void)state;
    const char *path = counting_file("dealt", 250); /* 27 windows, of which one is kept in reserve */
    struct data_conf conf = conf_of(path);
    struct data *data;
    int seen[256] = {0};
    int32_t tokens[8], targets[8], again[8];
    assert_ok(data_open(&conf, &data));
    assert_true(data_deals(data));
    for (uint64_t k = 0; k < 27; k++) {
        struct deal_place place = {.dealt = k < 26, .position = k < 26 ? k : 0, .id = 4000};
        assert_ok(data_batch_dealt(data, &place, 1, tokens, targets));
        assert_int_equal(seen[tokens[0]]++, 0);
        assert_ok(data_batch(data, k, 1, again, targets)); /* the same order as a stream's, in the first pass */
        assert_true(k == 26 || memcmp(tokens, again, sizeof tokens) == 0);
    }
    data_close(data);
}

static void dealt_windows_of_mixtures_are_distinct(void **state)
{
    (void)state;
    int seen[1000] = {0}, of[3] = {0};
    struct data_conf conf = mixed("5", "3", "1");
    struct data *data;
    int32_t tokens[8], targets[8];
    assert_ok(data_open(&conf, &data));
    assert_true(data_deals(data));
    for (uint64_t position = 0; position < 45; position++) { /* 25 of the first source, of 26 in a pass */
        struct deal_place place = {.dealt = true, .position = position};
        assert_ok(data_batch_dealt(data, &place, 1, tokens, targets));
        assert_int_equal(seen[tokens[0]]++, 0);
        of[source_of(tokens[0])]++;
    }
    assert_true(of[0] == 25 && of[1] == 15 && of[2] == 5);
    for (uint64_t turn = 0; turn < 100; turn++) { /* of the pass that the others are in */
        struct deal_place place = {.position = 44, .turn = turn, .id = 1};
        assert_ok(data_batch_dealt(data, &place, 1, tokens, targets));
        assert_int_equal(seen[tokens[0]], 0);
    }
    memset(seen, 0, sizeof seen);
    int others = 0;
    for (uint64_t turn = 0; turn < 45; turn++) { /* then of those to come, where they are other windows of a source */
        struct deal_place place = {.position = 44, .turn = 20 + turn, .since = turn, .id = 1};
        assert_ok(data_batch_dealt(data, &place, 1, tokens, targets));
        others += seen[tokens[0]]++ == 0;
    }
    assert_true(others > 30);
    data_close(data);
    conf = mixed("5@0,1@20", "3", "1"); /* what was drawn before a position depends on who drew when */
    assert_ok(data_open(&conf, &data));
    assert_false(data_deals(data));
    data_close(data);
}

static void a_source_alone_is_drawn_as_its_file(void **state)
{
    (void)state;
    uint64_t of[3];
    int32_t named[100], plain[100];
    struct data_conf conf = mixed(NULL, "0.3", NULL);
    draw(&conf, 0, 100, of, named);
    conf.path = testlib_path(folder, "middle");
    draw(&conf, 0, 100, of, plain);
    assert_memory_equal(named, plain, sizeof plain);
    conf = mixed("0", "0.3", NULL); /* as beside one that is switched off */
    draw(&conf, 0, 100, of, named);
    assert_memory_equal(named, plain, sizeof plain);
}

/* The end of each: 25 tokens, three windows. */
static void validation_has_the_sources_as_the_run_does(void **state)
{
    (void)state;
    struct data *data;
    int32_t tokens[8 * 40], targets[8 * 40];
    struct data_conf conf = mixed("0@100,1@200", "1@100,0@200", NULL); /* half and half over 300 steps, middle first */
    conf.windows_per_step = 4;
    conf.steps = 300;
    assert_ok(data_open(&conf, &data));
    assert_true(data_holds_out(data));
    assert_int_equal(data_held_out_tokens(data), 50);
    assert_ok(data_held_out(data, 0, 40, 40, tokens, targets));
    int low = 0;
    for (int i = 0; i < 40; i++) {
        low += source_of(tokens[8 * i]) == 0;
        assert_true((tokens[8 * i] - LOW) % 300 >= EACH - 25); /* held out in either */
    }
    assert_int_equal(low, 20);
    data_close(data);
    /* One of which nothing is held out is left out. */
    conf = mixed("1", NULL, NULL);
    char line[1000];
    snprintf(line, sizeof line, "%s tiny=%s:9", conf.path, raw_file("tiny", 2, 40, HIGH, 0));
    conf.path = line;
    assert_ok(data_open(&conf, &data));
    assert_ok(data_held_out(data, 0, 40, 40, tokens, targets));
    for (int i = 0; i < 40; i++)
        assert_int_equal(source_of(tokens[8 * i]), 0);
    data_close(data);
}

static void a_bad_source_is_named(void **state)
{
    (void)state;
    struct data *data;
    char line[1500];
    const char *web = raw_file("web", 2, EACH, LOW, 0), *code = raw_file("code", 2, 10, LOW, 0);
    struct data_conf conf = conf_of(line);
    conf.format = RUNSPEC_UINT16;
    conf.vocab = 1000;
    snprintf(line, sizeof line, "web=%s:1 code=%s:1", web, code);
    conf.streams_count = 2;
    assert_fails(ERR_CONF, "data source code: ", data_open(&conf, &data));
    assert_fails(ERR_CONF, "9 tokens for training are too few: 2 island(s) need at least 24", data_open(&conf, &data));
    snprintf(line, sizeof line, "web=%s:1 code=/no/such/*.bin:1", web);
    assert_fails(ERR_CONF, "data source code: /no/such/*.bin: no such file", data_open(&conf, &data));
    snprintf(line, sizeof line, "web=%s:1 all=%s:1", web, testlib_path(folder, "w*b"));
    assert_fails(ERR_CONF, "web is in another source, too (data source web:", data_open(&conf, &data));
    snprintf(line, sizeof line, "web=%s:1 web=%s:1", web, web);
    assert_fails(ERR_CONF, "source web: there are two of this name", data_open(&conf, &data));
    snprintf(line, sizeof line, "web=%s:0", web);
    assert_fails(ERR_CONF, "all sources have weight 0 at step 0", data_open(&conf, &data));
    snprintf(line, sizeof line, "web=%s:much", web);
    assert_fails(ERR_CONF, "source web: weight \"much\" is not a number", data_open(&conf, &data));
    snprintf(line, sizeof line, "gpt=%s:1 llama=%s:1",
             shard_file("mix_2.bin", (struct shard_said){20240520, 1, 100, 100, 0, 2}),
             shard_file("mix_3.bin", (struct shard_said){20240801, 7, 100, 100, 0, 4}));
    conf.format = RUNSPEC_TOKENS;
    assert_fails(ERR_CONF, "mix_3.bin: tokens of 32 bits", data_open(&conf, &data));
}

static void what_a_mixture_will_draw_is_told(void **state)
{
    (void)state;
    struct data_conf conf = mixed("0.75", "0.25", NULL);
    const char *log = seen(conf.path, RUNSPEC_UINT16);
    assert_non_null(
        strstr(log, "data source low: 75.0 % of the run's windows, 225 tokens for training, used 0.03 times"));
}

int main(void)
{
    folder = testlib_folder("data");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(targets_follow_tokens),
        cmocka_unit_test(streams_are_disjoint_complete_and_repeatable),
        cmocka_unit_test(epochs_and_seeds_reorder),
        cmocka_unit_test(held_out_is_never_trained_on),
        cmocka_unit_test(shards_are_read_across_files),
        cmocka_unit_test(tokens_of_32_bits_are_read_to_the_largest_vocabulary),
        cmocka_unit_test(files_without_a_header_are_tokens_from_the_first_byte),
        cmocka_unit_test(what_a_file_without_a_header_cannot_be_is_refused),
        cmocka_unit_test(shards_of_two_widths_do_not_mix),
        cmocka_unit_test(bad_files_are_named_with_the_remedy),
        cmocka_unit_test(tokens_beyond_the_vocabulary_are_refused),
        cmocka_unit_test(a_corpus_that_is_no_text_is_named_in_one_warning),
        cmocka_unit_test(a_mixture_is_drawn_by_its_weights),
        cmocka_unit_test(a_mixture_goes_on_where_it_was_and_in_any_pieces),
        cmocka_unit_test(streams_of_mixtures_are_disjoint),
        cmocka_unit_test(each_source_is_used_up_before_it_begins_anew),
        cmocka_unit_test(dealt_windows_are_distinct_in_a_pass),
        cmocka_unit_test(dealt_windows_of_mixtures_are_distinct),
        cmocka_unit_test(a_source_alone_is_drawn_as_its_file),
        cmocka_unit_test(validation_has_the_sources_as_the_run_does),
        cmocka_unit_test(a_bad_source_is_named),
        cmocka_unit_test(what_a_mixture_will_draw_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
