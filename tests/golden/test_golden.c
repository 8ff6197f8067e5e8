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
#include "daemon/ledger.h"
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
static const char contribution_file[] = "tests/golden/v1/contribution.object";
static const char result_file[] = "tests/golden/v1/result.object";
static const char tensor_file[] = "tests/golden/v1/fragment.safetensors";
static const char ledger_file[] = "tests/golden/v1/ledger-000000000001.log";

static float values[VALUES];

/* ---- writing, when a format is made ---- */

static void write_frames(void)
{
    static uint8_t frame[1 << 16];
    size_t bytes, fault;
    for (size_t i = 0; i < 4; i++) {
        struct codec *codec;
        struct codec_conf conf = {.id = frames[i].id, .zstd_level = 1};
        struct vec_source source = {.minuend = values};
        assert_ok(codec_new(&conf, &codec));
        assert_ok(codec_encode(codec, &source, VALUES, NULL, frame, &bytes, &fault));
        assert_ok(fsio_replace(frames[i].file, frame, bytes, 0644));
        codec_free(codec);
    }
}

static void write_objects(void)
{
    static uint8_t object[1 << 16];
    char *frame;
    size_t frame_bytes, bytes;
    assert_ok(fsio_read(frames[3].file, 1 << 16, &frame, &frame_bytes));
    memcpy(wire_object_frame(object), frame, frame_bytes);
    struct wire_meta meta = {.tokens = 4096, .step = 100, .base_hash = digest_of("base", 4)};
    assert_ok(wire_object_seal(WIRE_CONTRIBUTION, &meta, object, frame_bytes, &bytes));
    assert_ok(fsio_replace(contribution_file, object, bytes, 0644));
    meta = (struct wire_meta){.step = 100, .contributors_count = 2, .contributors = {{0, 4096}, {3, 2048}}};
    assert_ok(wire_object_seal(WIRE_RESULT, &meta, object, frame_bytes, &bytes));
    assert_ok(fsio_replace(result_file, object, bytes, 0644));
    struct ledger *ledger;
    struct ledger_conf conf = {
        .folder = "tests/golden/v1", .run_id = digest_of("run", 3), .segment_bytes = 1 << 20, .keep_bytes = 1 << 20};
    assert_ok(ledger_open(&conf, &ledger));
    assert_ok(ledger_append(ledger, 2, 7, 1, object, bytes, true));
    ledger_close(ledger);
    mem_free(frame);
}

static void write_tensors(void)
{
    struct tensorfile_writer *writer;
    const struct tensorfile_tensor tensor = {.name = "anchor", .dims = 1, .shape = {VALUES}};
    const struct tensorfile_meta meta[] = {{"format", "diloco fragment 1"}, {"version", "7"}};
    assert_ok(tensorfile_create(tensor_file, &tensor, 1, meta, 2, &writer));
    assert_ok(tensorfile_write(writer, values, VALUES));
    assert_ok(tensorfile_commit(writer));
}

/* ---- reading ---- */

static void frames_of_version_1_decode(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        char *frame;
        size_t bytes;
        struct codec *codec;
        struct codec_conf conf = {.id = CODEC_FP32}; /* a frame says itself what it is */
        static float decoded[VALUES];
        char hex[DIGEST_HEX_BYTES];
        assert_ok(codec_new(&conf, &codec));
        assert_ok(fsio_read(frames[i].file, 1 << 20, &frame, &bytes));
        assert_ok(codec_check((const uint8_t *)frame, bytes, VALUES));
        assert_ok(codec_decode(codec, (const uint8_t *)frame, bytes, decoded, VALUES));
        struct digest digest = digest_of(decoded, sizeof decoded);
        assert_string_equal(digest_hex(&digest, hex), frames[i].decoded);
        for (size_t at = 0; at < bytes; at += 1 + at / 64) {
            frame[at] ^= 1;
            assert_int_equal(codec_check((const uint8_t *)frame, bytes, VALUES), ERR_PROTO);
            frame[at] ^= 1;
        }
        codec_free(codec);
        mem_free(frame);
    }
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
        assert_ok(fsio_mkdirs("tests/golden/v1", 0755));
        write_frames();
        write_objects();
        write_tensors();
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_of_version_1_decode),
        cmocka_unit_test(objects_of_version_1_open),
        cmocka_unit_test(a_ledger_of_version_1_opens),
        cmocka_unit_test(tensor_files_of_version_1_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
