/*
 * Bytes that earlier versions wrote still decode to the same values, and damaged ones are still refused. A new format
 * version adds files beside the old ones; GOLDEN_WRITE=1 writes those of the present version, once, when it is made.
 */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/fsio.h"
#include "common/mem.h"
#include "common/tensorfile.h"
#include "daemon/state/ledger.h"
#include "net/wire.h"
#include "outer_opt/codec.h"

enum { VALUES = 2048 };
static const struct {
    enum codec_id id;
    const char *file, *decoded;
} frames[] = {
    {CODEC_FP32, "tests/golden/v1/fp32.frame", "1052cb38aa3fb24aad06afcefe009058ab0e51743d2434581a0b7883a414769c"},
    {CODEC_BF16, "tests/golden/v1/bf16.frame", "85f8931f421849e6e7e4f31a1e6e72625afded469c4bb4ff65ea4e347c5c2292"},
    {CODEC_INT8, "tests/golden/v1/int8.frame", "ff2ca2ecfaee451fe5dd1fd2f82adbeab697f725a1c4f7f07bca486f6b07eda9"},
    {CODEC_E3M0, "tests/golden/v1/e3m0.frame", "2e1b8d17ec5ffefa2351befa43ae466b542add5a7df4f7a0297cb813763f4695"},
};
/* Version 2: every codec, in parts. */
static const struct codec_choice choices_2[] = {
    {CODEC_FP32, 0, 0},         {CODEC_BF16, 0, 0},     {CODEC_INT8, 0, 0},    {CODEC_E3M0, 0, 0},
    {CODEC_INT4, 0, 0},         {CODEC_INT2, 0, 0},     {CODEC_TERNARY, 0, 0}, {CODEC_UNIFORM, 1.4f, 0},
    {CODEC_TOPK, 0.015625f, 0}, {CODEC_POWERSGD, 0, 2},
};
enum { CODECS_2 = sizeof choices_2 / sizeof choices_2[0] };
static const char decoded_2[CODECS_2][DIGEST_HEX_BYTES] = {
    "ddfb569ec0266157d7692b642b1bf8e9fe2117a33d98591dc8ff6cfcf7cc7a9e",
    "85f8931f421849e6e7e4f31a1e6e72625afded469c4bb4ff65ea4e347c5c2292",
    "601ea0ff90644fd68e0bd89a64c41d24b880c125e12eddc248c46d6854bfbd82",
    "d221f7402e793b8ece6acd8bd6237369c5c46d0dfe36706b95b90e0019a3b5b4",
    "cb1da86069732457258241bbe3e7a0ff3faa962462569efa1df475c56a1a1812",
    "8c9a3c24b0feb2edb454f3f35cc9b4d61528d3c51ba0e166937892adf3e73f29",
    "284142239364d53b03511cf4429da0a52b2041254b28b1e94135e636c172b48f",
    "4f82fff54dc8f04e3380eb0b57d15c645b412df51a2830c989bf2e11fc42ee44",
    "0b9a86c94fe498108a8144a2c04fa915e866d315d70fabc60f109a2dc70c376a",
    "c8d288dec474f2e49bfec479966d9841021d29dd555d8499ca1ed47f6330ee59",
};

static const char contribution_file[] = "tests/golden/v1/contribution.object";
static const char result_file[] = "tests/golden/v1/result.object";
static const char tensor_file[] = "tests/golden/v1/fragment.safetensors";
static const char ledger_file[] = "tests/golden/v1/ledger-000000000001.log";

static float values[VALUES];

/* ---- writing, when a format is made ---- */

static const char *file_2(size_t i)
{
    static char path[64];
    snprintf(path, sizeof path, "tests/golden/v2/%s.frame", codec_name(choices_2[i].id));
    return path;
}

/* The codec's part, and one in bf16 behind it. */
static void write_frames(void)
{
    static uint8_t frame[1 << 16];
    static float factor[32 * 2];
    size_t bytes, fault;
    struct codec *codec;
    struct vec_source source = {.minuend = values};
    assert_ok(codec_new(1, &codec));
    assert_ok(codec_reserve_factors(codec, (48 + 32) * 2));
    for (size_t i = 0; i < CODECS_2; i++) {
        struct codec_part parts[] = {
            {.count = 1536, .choice = choices_2[i], .rows = 48, .cols = 32, .factor = factor},
            {.count = VALUES - 1536, .choice = {.id = CODEC_BF16}},
        };
        assert_ok(codec_encode(codec, parts, 2, &source, NULL, frame, &bytes, &fault));
        assert_ok(fsio_replace(file_2(i), frame, bytes, 0644));
    }
    codec_free(codec);
}

/* ---- reading ---- */

static void check_frame(const char *file, const char *hash)
{
    char *frame;
    size_t bytes;
    struct codec *codec;
    static float decoded[VALUES];
    char hex[DIGEST_HEX_BYTES];
    assert_ok(codec_new(1, &codec)); /* a frame says itself what it is */
    assert_ok(fsio_read(file, 1 << 20, &frame, &bytes));
    assert_ok(codec_check((const uint8_t *)frame, bytes, VALUES));
    assert_ok(codec_decode(codec, (const uint8_t *)frame, bytes, decoded, VALUES));
    struct digest digest = digest_of(decoded, sizeof decoded);
    if (strcmp(digest_hex(&digest, hex), hash) != 0)
        fail_msg("%s decodes to %s", file, hex);
    for (size_t at = 0; at < bytes; at += 1 + at / 64) {
        frame[at] ^= 1;
        assert_int_equal(codec_check((const uint8_t *)frame, bytes, VALUES), ERR_PROTO);
        frame[at] ^= 1;
    }
    codec_free(codec);
    mem_free(frame);
}

static void frames_of_version_1_decode(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4; i++)
        check_frame(frames[i].file, frames[i].decoded);
}

static void frames_of_version_2_decode(void **state)
{
    (void)state;
    for (size_t i = 0; i < CODECS_2; i++)
        check_frame(file_2(i), decoded_2[i]);
}

static void objects_of_version_1_open(void **state)
{
    (void)state;
    struct wire_meta meta;
    char *object;
    const uint8_t *frame;
    size_t bytes, frame_bytes;
    assert_ok(fsio_read(contribution_file, 1 << 20, &object, &bytes));
    assert_ok(wire_object_open(WIRE_CONTRIBUTION, (const uint8_t *)object, bytes, &meta, &frame, &frame_bytes));
    assert_true(meta.tokens == 4096 && meta.step == 100);
    assert_ok(codec_check(frame, frame_bytes, VALUES));
    mem_free(object);
    assert_ok(fsio_read(result_file, 1 << 20, &object, &bytes));
    assert_ok(wire_object_open(WIRE_RESULT, (const uint8_t *)object, bytes, &meta, &frame, &frame_bytes));
    assert_true(meta.contributors_count == 2 && meta.contributors[1].island == 3);
    object[20] ^= 1;
    assert_int_equal(wire_object_open(WIRE_RESULT, (const uint8_t *)object, bytes, &meta, &frame, &frame_bytes),
                     ERR_PROTO);
    mem_free(object);
}

static void a_ledger_of_version_1_opens(void **state)
{
    (void)state;
    const char *folder = testlib_folder("golden");
    char *segment;
    size_t bytes;
    struct ledger *ledger;
    struct ledger_map map;
    struct ledger_conf conf = {
        .folder = folder, .run_id = digest_of("run", 3), .segment_bytes = 1 << 20, .keep_bytes = 1 << 20};
    assert_ok(fsio_read(ledger_file, 1 << 20, &segment, &bytes));
    assert_ok(fsio_replace(testlib_path(folder, "ledger-000000000001.log"), segment, bytes, 0644));
    assert_ok(ledger_open(&conf, &ledger));
    assert_int_equal(ledger_stats(ledger).records, 1);
    assert_ok(ledger_map(ledger, 2, 7, 1, &map));
    char *object;
    size_t object_bytes;
    assert_ok(fsio_read(result_file, 1 << 20, &object, &object_bytes));
    assert_int_equal(map.bytes, object_bytes);
    assert_memory_equal(map.object, object, object_bytes);
    ledger_unmap(&map);
    assert_int_equal(ledger_map(ledger, 2, 8, 1, &map), ERR_NOTFOUND);
    ledger_close(ledger);
    conf.run_id = digest_of("other", 5);
    assert_fails(ERR_CONF, "belongs to another run", ledger_open(&conf, &ledger));
    mem_free(segment);
    mem_free(object);
}

static void tensor_files_of_version_1_open(void **state)
{
    (void)state;
    struct tensorfile *file;
    const float *anchor;
    uint64_t version;
    assert_ok(tensorfile_open(tensor_file, true, &file));
    assert_ok(tensorfile_values(file, "anchor", VALUES, &anchor));
    assert_memory_equal(anchor, values, sizeof values);
    assert_ok(tensorfile_meta_u64(file, "version", &version));
    assert_int_equal(version, 7);
    tensorfile_close(file);
}

int main(void)
{
    struct env_rng rng = env_rng_init(77, 7);
    assert_ok(digest_init());
    testlib_fill_normal(&rng, values, VALUES, 1e-3);
    if (getenv("GOLDEN_WRITE") != NULL) {
        assert_ok(fsio_mkdirs("tests/golden/v2", 0755));
        write_frames();
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_of_version_1_decode),     cmocka_unit_test(frames_of_version_2_decode),
        cmocka_unit_test(objects_of_version_1_open),      cmocka_unit_test(a_ledger_of_version_1_opens),
        cmocka_unit_test(tensor_files_of_version_1_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
