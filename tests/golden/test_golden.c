/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes that a version wrote are still read to the same values, and damaged ones are still refused.
 *
 * A folder is named after the version of the program that wrote it. Nothing is released yet: until the first release a
 * changed format replaces the bytes of the present version (GOLDEN_WRITE=1 writes them) and the old ones are not read
 * any more. From the first release on, a folder stays as it was released, and a changed format makes a new one.
 */
#include "tests/lib/testlib.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/fsio.h"
#include "common/mem.h"
#include "common/tensorfile.h"
#include "daemon/state/ledger.h"
#include "daemon/state/results.h"
#include "net/transport/wire_object.h"
#include "outer_opt/codec.h"

enum { VALUES = 2048 };
#define PRESENT "tests/golden/present/"

/* Every codec, and the digest of what its frame decodes to. */
static const struct {
    struct codec_choice choice;
    const char *decoded;
} frames[] = {
    {{CODEC_FP32, 0, 0}, "77b5d5d735a8432f95414cbba944e84214fc587a95d4bd751d990aadc8060202"},
    {{CODEC_BF16, 0, 0}, "6f86b6e7f4cad758ae00c9128c22e1a1818c22c15d74c5f2e087adf4e9c3f375"},
    {{CODEC_INT8, 0, 0}, "81830213b70d2cb9a44efffa15b607e0e83590b1b1d48f1a692b8182d8735fa7"},
    {{CODEC_E3M0, 0, 0}, "d617f9f84acf27b9bec71ffea4a9562ff75a713a774d6f5bd2e7d8785646d222"},
    {{CODEC_INT4, 0, 0}, "879a7d60e64f20d3c9b4b01998027ebec4dfd5845b1845a39f86d2e2b4c5bced"},
    {{CODEC_INT2, 0, 0}, "d83c5abc25ab9842b197254d403452a0ebea07745f080963cdc1f7fcb3089a43"},
    {{CODEC_TERNARY, 0, 0}, "ab3fbbd61e250ea77a953450864c1e25d7e017a7af730b1f465fe61fbf2bf0df"},
    {{CODEC_UNIFORM, 1.4f, 0}, "fa8b01ee5f16e004cde06c228df41862319686efa3f2ada7a6124e4ccce8a970"},
    {{CODEC_TOPK, 0.015625f, 0}, "e116f1c71e4d14e3ce05cd8ca27c3d40fbd307476f6ef6b8c7e89c7174e10399"},
    {{CODEC_POWERSGD, 0, 2}, "fb874dad329b40c62461fe4f35573247d33e4fe806acd24e01b669bcfecaa9ab"},
};
enum { FRAMES = sizeof frames / sizeof frames[0] };

static const char object_frame_file[] = PRESENT "uniform.frame"; /* what stands in the objects: the default codec's */
static const char contribution_file[] = PRESENT "contribution.object";
static const char result_file[] = PRESENT "result.object";
static const char tensor_file[] = PRESENT "fragment.safetensors";
static const char ledger_file[] = PRESENT "ledger-000000000001.log";
static const char owner_file[] = PRESENT "owner.key"; /* the public one, with which the result is signed */

static float values[VALUES];

/* ---- writing, when a format is made ---- */

static const char *frame_file(size_t i)
{
    static char path[64];
    snprintf(path, sizeof path, PRESENT "%s.frame", codec_name(frames[i].choice.id));
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
    assert_ok(codec_reserve(codec, (48 + 32) * 2, 0));
    for (size_t i = 0; i < FRAMES; i++) {
        struct codec_part parts[] = {
            {.count = 1536, .choice = frames[i].choice, .rows = 48, .cols = 32, .factor = factor},
            {.count = VALUES - 1536, .choice = {.id = CODEC_BF16}},
        };
        assert_ok(codec_encode(codec, parts, 2, &source, NULL, frame, &bytes, &fault));
        assert_ok(fsio_replace(frame_file(i), frame, bytes, 0644));
    }
    codec_free(codec);
}

static const float outer_numbers[WIRE_OUTER_NUMBERS] = {1, 0.9f, 0.7f};

static const uint8_t nonce[WIRE_NONCE_BYTES] = "golden";

/* What the result in the ledger made. */
static struct ledger_commit commit_of(const struct wire_object *what)
{
    struct ledger_commit commit = {
        .fragment = what->key.fragment, .version = what->key.version, .hash = digest_of("hash", 4), .parts_count = 1};
    commit.parts[0] = wire_object_result(what);
    return commit;
}

static struct ledger_conf ledger_conf(const char *folder)
{
    return (struct ledger_conf){.folder = folder,
                                .run_id = digest_of("run", 3),
                                .nonce = nonce,
                                .segment_bytes = 1 << 20,
                                .keep_bytes = 1 << 20};
}

static const struct wire_key contribution_key = {
    .kind = WIRE_CONTRIBUTION, .fragment = 2, .version = 7, .epoch = 5, .owner = 1, .island = 70000};
static const struct wire_key result_name = {
    .kind = WIRE_RESULT, .fragment = 2, .version = 7, .epoch = 5, .owner = 1, .island = 1};
static const uint64_t shards_mask = 0x8000000000000003;

static void write_objects(void)
{
    static uint8_t object[1 << 16];
    char *frame, *segment;
    size_t frame_bytes, bytes, segment_bytes;
    assert_ok(fsio_read(object_frame_file, 1 << 15, &frame, &frame_bytes));
    memcpy(wire_object_frame(object), frame, frame_bytes);
    static uint8_t spans[WIRE_SHARDS_MAX * WIRE_SPAN_BYTES];
    const uint64_t tokens[WIRE_SHARDS_MAX] = {[0] = 1024, [1] = 4096, [63] = 1024}; /* two thirds missed nothing */
    const uint32_t weights[WIRE_SHARDS_MAX] = {
        [0] = testlib_float_bits(1000), [1] = testlib_float_bits(4000), [63] = testlib_float_bits(1000)};
    struct wire_meta meta = {.step = 100, .base_hash = digest_of("base", 4), .spans = spans};
    struct wire_object what = {.key = contribution_key, .shards = shards_mask};
    meta.spans_count = wire_spans_put(spans, 0, WIRE_SHARDS_MAX, contribution_key.island, shards_mask, tokens, NULL);
    struct ident ident;
    uint8_t rows[2 * WIRE_CONTRIBUTOR_BYTES];
    memcpy(what.nonce, nonce, sizeof nonce);
    assert_ok(wire_object_seal(&what, &meta, NULL, object, frame_bytes, &bytes, &what.digest));
    assert_ok(fsio_replace(contribution_file, object, bytes, 0644));
    wire_contributor_put(rows, 0,
                         &(struct wire_contributor){.id = 0,
                                                    .tokens = 4096,
                                                    .weight = testlib_float_bits(4096),
                                                    .norm = testlib_float_bits(0.5f),
                                                    .factor = WIRE_FACTOR_ONE,
                                                    .digest = meta.base_hash});
    wire_contributor_put(rows, 1,
                         &(struct wire_contributor){.id = 70000,
                                                    .tokens = 2048, /* on average */
                                                    .weight = testlib_float_bits(2000),
                                                    .norm = testlib_float_bits(40),
                                                    .factor = testlib_float_bits(0.0125f),
                                                    .digest = what.digest});
    meta = (struct wire_meta){.step = 100, .contributors_count = 2, .contributors = rows, .spans = spans};
    meta.spans_count = wire_spans_put(spans, 0, WIRE_SHARDS_MAX, 70000, shards_mask, tokens, weights);
    memcpy(meta.outer, outer_numbers, sizeof meta.outer);
    what.key = result_name;
    assert_ok(ident_generate(&ident));
    assert_ok(fsio_replace(owner_file, ident.public_text, strlen(ident.public_text), 0644));
    assert_ok(wire_object_seal(&what, &meta, &ident, object, frame_bytes, &bytes, &what.digest));
    assert_ok(fsio_replace(result_file, object, bytes, 0644));

    const char *folder = testlib_folder("golden-write"); /* a ledger leaves its lock behind, which is no format */
    struct ledger *ledger;
    struct ledger_conf conf = ledger_conf(folder);
    assert_ok(ledger_open(&conf, &ledger));
    struct result_id key = wire_object_result(&what);
    struct ledger_commit commit = commit_of(&what);
    assert_ok(ledger_append(ledger, &key, object, bytes));
    assert_ok(ledger_append_commit(ledger, &commit, true));
    ledger_close(ledger);
    assert_ok(fsio_read(testlib_path(folder, "ledger-000000000001.log"), 1 << 20, &segment, &segment_bytes));
    assert_ok(fsio_replace(ledger_file, segment, segment_bytes, 0644));
    mem_free(segment);
    mem_free(frame);
}

static void write_tensors(void)
{
    struct tensorfile_writer *writer;
    const struct tensorfile_tensor tensor = {.name = "anchor", .dims = 1, .shape = {VALUES}};
    const struct tensorfile_meta meta[] = {{"format", "diloco fragment 2"}, {"version", "7"}};
    assert_ok(tensorfile_create(tensor_file, &tensor, 1, meta, 2, &writer));
    assert_ok(tensorfile_write(writer, values, VALUES));
    assert_ok(tensorfile_commit(writer));
}

/* ---- reading ---- */

static void frames_decode(void **state)
{
    (void)state;
    struct codec *codec;
    static float decoded[VALUES];
    assert_ok(codec_new(1, &codec)); /* a frame says itself what it is */
    for (size_t i = 0; i < FRAMES; i++) {
        char *frame;
        size_t bytes;
        char hex[DIGEST_HEX_BYTES];
        assert_ok(fsio_read(frame_file(i), 1 << 20, &frame, &bytes));
        assert_ok(codec_check((const uint8_t *)frame, bytes, VALUES));
        assert_ok(codec_decode(codec, (const uint8_t *)frame, bytes, decoded, VALUES));
        struct digest digest = digest_of(decoded, sizeof decoded);
        if (strcmp(digest_hex(&digest, hex), frames[i].decoded) != 0)
            fail_msg("%s decodes to %s", frame_file(i), hex);
        for (size_t at = 0; at < bytes; at += 1 + at / 64) {
            frame[at] ^= 1;
            assert_int_equal(codec_check((const uint8_t *)frame, bytes, VALUES), ERR_PROTO);
            frame[at] ^= 1;
        }
        mem_free(frame);
    }
    codec_free(codec);
}

static void objects_open(void **state)
{
    (void)state;
    struct wire_object what;
    struct wire_meta meta;
    struct wire_span span;
    char *object, *text;
    const uint8_t *frame;
    uint8_t owner[IDENT_KEY_BYTES];
    size_t bytes, frame_bytes, text_bytes;
    assert_ok(fsio_read(contribution_file, 1 << 20, &object, &bytes));
    assert_ok(wire_object_open((const uint8_t *)object, bytes, &what, &meta, &frame, &frame_bytes));
    assert_ok(wire_object_is(&what, &contribution_key, nonce));
    assert_true(meta.tokens == 0 && meta.step == 100 && what.shards == shards_mask);
    assert_true(wire_meta_span(&meta, 70000, 1, &span) && span.shards == 2 && span.tokens == 4096);
    assert_ok(codec_check(frame, frame_bytes, VALUES));
    struct digest contribution = what.digest;
    mem_free(object);
    assert_ok(fsio_read(result_file, 1 << 20, &object, &bytes));
    assert_ok(wire_object_open((const uint8_t *)object, bytes, &what, &meta, &frame, &frame_bytes));
    assert_ok(wire_object_is(&what, &result_name, nonce));
    assert_ok(fsio_read(owner_file, 1 << 10, &text, &text_bytes));
    assert_int_equal(sodium_base642bin(owner, sizeof owner, text, text_bytes, NULL, NULL, NULL,
                                       sodium_base64_VARIANT_URLSAFE_NO_PADDING),
                     0);
    assert_ok(wire_object_signed(&what, owner));
    assert_true(meta.contributors_count == 2 && wire_meta_contributor(&meta, 1).id == 70000);
    assert_true(result_counts(&meta, 70000, &contribution) && !wire_meta_span(&meta, 0, 0, &span));
    assert_true(wire_meta_span(&meta, 70000, 63, &span) && span.tokens == 1024);
    assert_true(testlib_bits_float(span.weight) == 1000 && span.shards == (shards_mask & ~2ull));
    assert_memory_equal(meta.outer, outer_numbers, sizeof meta.outer);
    object[20] ^= 1;
    assert_int_equal(wire_object_open((const uint8_t *)object, bytes, &what, &meta, &frame, &frame_bytes), ERR_PROTO);
    mem_free(text);
    mem_free(object);
}

static void a_ledger_opens(void **state)
{
    (void)state;
    const char *folder = testlib_folder("golden");
    char *segment, *object;
    size_t bytes, object_bytes;
    struct ledger *ledger;
    struct ledger_map map;
    struct wire_object what;
    struct ledger_commit commit;
    struct ledger_conf conf = ledger_conf(folder);
    assert_ok(fsio_read(ledger_file, 1 << 20, &segment, &bytes));
    assert_ok(fsio_replace(testlib_path(folder, "ledger-000000000001.log"), segment, bytes, 0644));
    assert_ok(fsio_read(result_file, 1 << 20, &object, &object_bytes));
    assert_ok(wire_object_peek((const uint8_t *)object, object_bytes, &what));
    assert_ok(ledger_open(&conf, &ledger));
    assert_int_equal(ledger_stats(ledger).records, 1);
    struct result_id key = wire_object_result(&what);
    assert_ok(ledger_map(ledger, &key, &map));
    assert_int_equal(map.bytes, object_bytes);
    assert_memory_equal(map.object, object, object_bytes);
    ledger_unmap(&map);
    const struct ledger_commit want = commit_of(&what);
    assert_ok(ledger_commit_of(ledger, 2, 7, &commit));
    assert_memory_equal(&commit, &want, sizeof want);
    key.version++;
    assert_int_equal(ledger_map(ledger, &key, &map), ERR_NOTFOUND);
    ledger_close(ledger);
    conf.nonce = (const uint8_t *)"not that golden one";
    assert_fails(ERR_CONF, "begun with the same run spec", ledger_open(&conf, &ledger));
    conf.run_id = digest_of("other", 5);
    assert_fails(ERR_CONF, "belongs to another run", ledger_open(&conf, &ledger));
    mem_free(segment);
    mem_free(object);
}

static void tensor_files_open(void **state)
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

/* Older or newer: a reader that guesses reads nonsense. The versions are told apart before any digest is looked at. */
static void bytes_of_another_version_are_refused(void **state)
{
    (void)state;
    enum { FRAME_VERSION_AT = 4, OBJECT_VERSION_AT = 5, LEDGER_VERSION_AT = 4 };
    const char *folder = testlib_folder("golden-versions");
    char *frame, *object, *segment;
    size_t frame_bytes, object_bytes, segment_bytes;
    static float decoded[VALUES];
    struct codec *codec;
    struct ledger *ledger;
    struct ledger_conf conf = ledger_conf(folder);
    assert_ok(codec_new(1, &codec));
    assert_ok(fsio_read(object_frame_file, 1 << 20, &frame, &frame_bytes));
    assert_ok(fsio_read(result_file, 1 << 20, &object, &object_bytes));
    assert_ok(fsio_read(ledger_file, 1 << 20, &segment, &segment_bytes));
    const char written[] = {frame[FRAME_VERSION_AT], object[OBJECT_VERSION_AT], segment[LEDGER_VERSION_AT]};
    for (int version = 0; version < 256; version++) {
        struct wire_object what;
        struct wire_meta meta;
        const uint8_t *in_object;
        size_t in_object_bytes;
        const uint8_t *f = (const uint8_t *)frame, *o = (const uint8_t *)object;
        frame[FRAME_VERSION_AT] = (char)version;
        object[OBJECT_VERSION_AT] = (char)version;
        segment[LEDGER_VERSION_AT] = (char)version;
        if ((char)version != written[0]) {
            assert_fails(ERR_PROTO, "frame of version", codec_check(f, frame_bytes, VALUES));
            assert_fails(ERR_PROTO, "frame of version", codec_decode(codec, f, frame_bytes, decoded, VALUES));
            assert_fails(ERR_PROTO, "frame of version", codec_decode_add(codec, f, frame_bytes, 1, decoded, VALUES));
        }
        if ((char)version != written[1])
            assert_fails(ERR_PROTO, "object of version",
                         wire_object_open(o, object_bytes, &what, &meta, &in_object, &in_object_bytes));
        if ((char)version != written[2]) {
            assert_ok(fsio_replace(testlib_path(folder, "ledger-000000000001.log"), segment, segment_bytes, 0644));
            assert_fails(ERR_CONF, "ledger of version", ledger_open(&conf, &ledger));
        }
    }
    codec_free(codec);
    mem_free(frame);
    mem_free(object);
    mem_free(segment);
}

/* Else fuzzing begins with bytes that are refused at their version. */
static void fuzzing_begins_with_these(void **state)
{
    (void)state;
    for (size_t i = 0; i < FRAMES + 2; i++) {
        const char *path = i < FRAMES ? frame_file(i) : i == FRAMES ? contribution_file : result_file;
        char *ours, *theirs, *other;
        size_t ours_bytes, theirs_bytes;
        assert_ok(mem_printf(&other, "tests/fuzz/corpus/object/%s", strrchr(path, '/') + 1));
        assert_ok(fsio_read(path, 1 << 20, &ours, &ours_bytes));
        assert_ok(fsio_read(other, 1 << 20, &theirs, &theirs_bytes));
        if (ours_bytes != theirs_bytes || memcmp(ours, theirs, ours_bytes) != 0)
            fail_msg("%s is another than %s; copy that there", other, path);
        mem_free(ours);
        mem_free(theirs);
        mem_free(other);
    }
}

int main(void)
{
    struct env_rng rng = env_rng_init(77, 7);
    assert_ok(digest_init());
    testlib_fill_normal(&rng, values, VALUES, 1e-3);
    if (getenv("GOLDEN_WRITE") != NULL) {
        assert_ok(fsio_mkdirs(PRESENT, 0755));
        write_frames();
        write_objects();
        write_tensors();
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_decode),     cmocka_unit_test(fuzzing_begins_with_these),
        cmocka_unit_test(objects_open),      cmocka_unit_test(a_ledger_opens),
        cmocka_unit_test(tensor_files_open), cmocka_unit_test(bytes_of_another_version_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
