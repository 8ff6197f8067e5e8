/* SPDX-License-Identifier: Apache-2.0 */
/* fsio and tensorfile: files that are whole or not there; damage is seen. */
#include "tests/lib/testlib.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/fsio.h"
#include "common/mem.h"
#include "common/tensorfile.h"

static const char *folder;

static void replace_keeps_the_old_until_the_new_is_whole(void **state)
{
    (void)state;
    const char *path = testlib_path(folder, "r");
    assert_ok(fsio_replace(path, "old", 3, 0600));
    struct fsio_writer writer;
    assert_ok(fsio_begin(&writer, path, 0600));
    assert_ok(fsio_write(&writer, "half", 4));
    char *data;
    size_t bytes;
    assert_ok(fsio_read(path, 100, &data, &bytes));
    assert_string_equal(data, "old");
    mem_free(data);
    fsio_abort(&writer);
    assert_ok(fsio_read(path, 100, &data, &bytes));
    assert_string_equal(data, "old");
    mem_free(data);
    assert_int_equal(access(testlib_path(folder, "r.new"), F_OK), -1);
    assert_ok(fsio_replace(path, "newer", 5, 0600));
    assert_ok(fsio_read(path, 100, &data, &bytes));
    assert_int_equal(bytes, 5);
    mem_free(data);
    assert_fails(ERR_NOMEM, "more than the 4 allowed", fsio_read(path, 4, &data, &bytes));
    assert_fails(ERR_NOTFOUND, "cannot open", fsio_read(testlib_path(folder, "none"), 4, &data, &bytes));
    assert_fails(ERR_IO, "cannot create", fsio_replace(testlib_path(folder, "no/such"), "x", 1, 0600));
    assert_ok(fsio_mkdirs(testlib_path(folder, "a/b/c"), 0755));
    assert_ok(fsio_mkdirs(testlib_path(folder, "a/b/c"), 0755));
}

static void a_full_disk_is_named_and_loses_nothing(void **state)
{
    (void)state;
    /* /dev/full refuses every write with ENOSPC. */
    int fd = open("/dev/full", O_WRONLY);
    assert_true(fd >= 0);
    assert_fails(ERR_NOSPACE, "ckpt: cannot write 3 bytes: No space left", fsio_write_all(fd, "abc", 3, "ckpt"));
    close(fd);
}

static void assert_remedy(int error, enum err code, const char *remedy)
{
    errno = error;
    assert_fails(code, remedy, fsio_failed(ERR_IO, "%s: cannot write", "ckpt"));
    assert_true(strncmp(err_text(), "ckpt: cannot write: ", 20) == 0);
}

/* Each calls for something else. */
static void what_a_disk_says_comes_with_what_to_do(void **state)
{
    (void)state;
    assert_remedy(ENOSPC, ERR_NOSPACE, "No space left on device; free some space; nothing that was saved is lost");
    assert_remedy(EDQUOT, ERR_NOSPACE, "let its quota be raised");
    assert_remedy(EIO, ERR_IO, "Input/output error; the disk fails: look at what the kernel says of it (dmesg)");
    assert_remedy(EROFS, ERR_IO, "Read-only file system; this file system may only be read");
    assert_remedy(EROFS, ERR_IO, "mount -o remount,rw");
    assert_remedy(EACCES, ERR_IO, "Permission denied; let the user that the program runs as write there (chown)");
    errno = EFBIG;
    assert_fails(ERR_IO, "ckpt: cannot write: File too large", fsio_failed(ERR_IO, "ckpt: cannot write"));
    assert_null(strstr(err_text(), ";"));
}

static const struct tensorfile_tensor tensors[] = {{.name = "a.weight", .dims = 2, .shape = {3, 5}},
                                                   {.name = "scalar", .dims = 0},
                                                   {.name = "b", .dims = 1, .shape = {1000}}};

static const char *write_sample(const char *name)
{
    const char *path = testlib_path(folder, name);
    const struct tensorfile_meta meta[] = {{"step", "42"}, {"kind", "test"}};
    struct tensorfile_writer *writer;
    float values[1016];
    for (int i = 0; i < 1016; i++)
        values[i] = (float)i * 0.5f;
    assert_ok(tensorfile_create(path, tensors, 3, meta, 2, &writer));
    assert_ok(tensorfile_write(writer, values, 10));
    assert_ok(tensorfile_write(writer, values + 10, 1006));
    assert_fails(ERR_STATE, "more values", tensorfile_write(writer, values, 1));
    assert_ok(tensorfile_commit(writer));
    return path;
}

static void tensors_come_back(void **state)
{
    (void)state;
    struct tensorfile *file;
    assert_ok(tensorfile_open(write_sample("t"), true, &file));
    assert_int_equal(tensorfile_count(file), 3);
    const float *values;
    assert_ok(tensorfile_values(file, "b", 1000, &values));
    assert_true(values[0] == 8.0f && values[999] == 507.5f);
    assert_ok(tensorfile_values(file, "scalar", 1, &values));
    assert_true(values[0] == 7.5f);
    assert_fails(ERR_NOTFOUND, "no tensor c", tensorfile_values(file, "c", 1, &values));
    assert_fails(ERR_CORRUPT, "has 1000 values where 7 are needed", tensorfile_values(file, "b", 7, &values));
    uint64_t step;
    assert_ok(tensorfile_meta_u64(file, "step", &step));
    assert_int_equal(step, 42);
    assert_fails(ERR_CORRUPT, "not a number",
                 tensorfile_meta_u64(file, "kind", &step) == ERR_CORRUPT ? err_set(ERR_CORRUPT, "not a number")
                                                                         : ERR_OK);
    struct tensorfile_tensor t = tensorfile_at(file, 0);
    assert_int_equal(t.shape[1], 5);
    tensorfile_close(file);
}

static void unfinished_files_do_not_appear(void **state)
{
    (void)state;
    const char *path = testlib_path(folder, "u");
    struct tensorfile_writer *writer;
    float value = 1;
    assert_ok(tensorfile_create(path, tensors, 3, NULL, 0, &writer));
    assert_ok(tensorfile_write(writer, &value, 1));
    assert_fails(ERR_STATE, "values are missing", tensorfile_commit(writer));
    assert_int_equal(access(path, F_OK), -1);
}

static void every_cut_and_every_changed_byte_is_seen(void **state)
{
    (void)state;
    const char *path = write_sample("d");
    char *data;
    size_t bytes;
    assert_ok(fsio_read(path, 1 << 20, &data, &bytes));
    const char *copy = testlib_path(folder, "d2");
    struct tensorfile *file;
    for (size_t cut = 0; cut < bytes; cut += cut < 400 ? 1 : 97) {
        assert_ok(fsio_replace(copy, data, cut, 0600));
        assert_int_equal(tensorfile_open(copy, true, &file), ERR_CORRUPT);
    }
    for (size_t at = 0; at < bytes; at += at < 400 ? 1 : 97) {
        data[at] ^= 0x10;
        assert_ok(fsio_replace(copy, data, bytes, 0600));
        assert_int_equal(tensorfile_open(copy, true, &file), ERR_CORRUPT);
        data[at] ^= 0x10;
    }
    mem_free(data);
}

static void foreign_headers_are_checked(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,16]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[16,32]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[-4],\"data_offsets\":[0,16]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]}}",
        "{\"a\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[0,16]}}",
        "{\"a\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[14,18]}}",
        "{\"\\u001b[2J\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}",
        "{\"a\":{\"shape\":[4],\"data_offsets\":[0,4]}}",
        "{\"a\":7}",
        "[]",
        "{",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}",
    };
    const char *path = testlib_path(folder, "f");
    for (size_t i = 0; i <= sizeof bad / sizeof bad[0]; i++) {
        const char *good = "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}";
        const char *header = i < sizeof bad / sizeof bad[0] ? bad[i] : good;
        char raw[512];
        uint64_t length = (strlen(header) + 3) / 4 * 4;
        memset(raw, ' ', sizeof raw);
        memcpy(raw, &length, 8);
        memcpy(raw + 8, header, strlen(header));
        memset(raw + 8 + length, 0, 16);
        assert_ok(fsio_replace(path, raw, 8 + length + 16, 0600));
        struct tensorfile *file = NULL;
        enum err err = tensorfile_open(path, false, &file);
        assert_int_equal(err, header == good ? ERR_OK : ERR_CORRUPT);
        tensorfile_close(file);
    }
    struct tensorfile *file;
    assert_fails(ERR_CORRUPT, "no checksum", tensorfile_open(path, true, &file));
}

/* A file of others: any length of the header, and tensors that nobody here reads. */
static void values_are_floats_whatever_they_are_kept_as(void **state)
{
    (void)state;
    static const char header[] = "{\"b\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[0,6]},"
                                 "\"h\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[6,10]},"
                                 "\"f\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[10,14]},"
                                 "\"i\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[14,22]}} ";
    static const uint8_t data[] = {0x80, 0x3f, 0x00, 0xc0, 0x01, 0x00, 0x00, 0x3c, 0x01, 0x00, 0,
                                   0,    0xc0, 0x3f, 1,    2,    3,    4,    5,    6,    7,    8};
    uint64_t length = sizeof header - 1;
    char raw[512];
    memcpy(raw, &length, 8);
    memcpy(raw + 8, header, length);
    memcpy(raw + 8 + length, data, sizeof data);
    const char *path = testlib_path(folder, "kinds");
    assert_ok(fsio_replace(path, raw, 8 + length + sizeof data, 0600));
    struct tensorfile *file;
    float values[3];
    const float *borrowed;
    assert_ok(tensorfile_open(path, false, &file));
    assert_int_not_equal((8 + length + 10) % 4, 0);
    assert_ok(tensorfile_read(file, 0, 0, 3, values));
    assert_true(values[0] == 1.0f && values[1] == -2.0f && values[2] == 0x1p-133f);
    assert_ok(tensorfile_read(file, 1, 1, 1, values));
    assert_true(values[0] == 0x1p-24f);
    assert_ok(tensorfile_read(file, 2, 0, 1, values));
    assert_true(values[0] == 1.5f);
    assert_fails(ERR_ARG, "no values beyond 3", tensorfile_read(file, 0, 1, 3, values));
    assert_fails(ERR_CORRUPT, "tensor i is I64; only F32, BF16 and F16", tensorfile_read(file, 3, 0, 1, values));
    assert_fails(ERR_CORRUPT, "tensor b is BF16; only F32 can", tensorfile_values(file, "b", 3, &borrowed));
    assert_fails(ERR_CORRUPT, "not aligned to four bytes", tensorfile_values(file, "f", 1, &borrowed));
    tensorfile_close(file);
    assert_ok(fsio_replace(path, raw, 8 + length + sizeof data - 1, 0600));
    assert_fails(ERR_CORRUPT, "tensor i ends after the file does; copy or download it again",
                 tensorfile_open(path, false, &file));
}

static void shorter_values_are_written_rounded(void **state)
{
    (void)state;
    static const float from[] = {1.00390625f, 1.01171875f, -0x1p-140f, 3e38f};
    static const struct tensorfile_tensor short_tensor = {.name = "s", .dims = 1, .shape = {4}, .dtype = DTYPE_BF16};
    struct tensorfile_writer *writer;
    struct tensorfile *file;
    float values[4];
    const char *path = testlib_path(folder, "short");
    assert_ok(tensorfile_create(path, &short_tensor, 1, NULL, 0, &writer));
    assert_ok(tensorfile_write(writer, from, 4));
    assert_ok(tensorfile_commit(writer));
    assert_ok(tensorfile_open(path, true, &file));
    assert_ok(tensorfile_read(file, 0, 0, 4, values));
    assert_true(values[0] == 1.0f && values[1] == 1.015625f); /* ties go to even */
    assert_true(values[2] == 0 && testlib_float_bits(values[2]) == 0x80000000u);
    tensorfile_close(file);
    assert_ok(tensorfile_create(path, &short_tensor, 1, NULL, 0, &writer));
    assert_fails(ERR_NONFINITE, "1 values are too large for bf16", tensorfile_write(writer, &(float){3.4e38f}, 1));
    tensorfile_abort(writer);
}

/* As the definition has it: a sign, five bits of exponent, ten of fraction. */
static double half_value(uint16_t half)
{
    int exponent = half >> 10 & 31;
    double fraction = (half & 1023) / 1024.0;
    double value = exponent == 0 ? ldexp(fraction, -14) : ldexp(1 + fraction, exponent - 15);
    return (half & 0x8000) != 0 ? -value : value;
}

static void every_half_comes_back_and_others_go_to_the_nearest(void **state)
{
    (void)state;
    for (uint32_t h = 0; h <= UINT16_MAX; h++) {
        uint16_t half = (uint16_t)h, again;
        float value;
        dtype_decode(DTYPE_F16, &half, 1, &value);
        dtype_encode(DTYPE_F16, &value, 1, &again);
        if ((half & 0x7c00) == 0x7c00) {
            assert_true((half & 0x3ff) == 0 ? isinf(value) && again == half : isnan(value) && (again & 0x3ff) != 0);
            continue;
        }
        assert_true((double)value == half_value(half) && again == half);
    }
    struct env_rng rng = env_rng_init(3, 0);
    for (int i = 0; i < 200000; i++) {
        float value = ldexpf((float)env_rng_uniform(&rng) + 1, (int)env_rng_below(&rng, 44) - 28);
        uint16_t half;
        size_t lost = dtype_encode(DTYPE_F16, &value, 1, &half);
        assert_int_equal(lost, value >= 65520.0f);
        if (lost > 0)
            continue;
        double error = fabs(half_value(half) - (double)value);
        double below = half > 0 ? fabs(half_value((uint16_t)(half - 1)) - (double)value) : INFINITY;
        double above = half < 0x7bff ? fabs(half_value((uint16_t)(half + 1)) - (double)value) : INFINITY;
        assert_true(error <= below && error <= above);
        assert_true((error < below && error < above) || half % 2 == 0);
    }
}

/* ---- what another digest certifies, and what comes in any order ---- */

static void what_is_certified_is_left_out_of_the_checksum(void **state)
{
    (void)state;
    static float values[1016];
    const char *path = testlib_path(testlib_folder("files-certified"), "t");
    const struct tensorfile_meta meta[] = {{"certified_bytes", "60"}};
    struct tensorfile_writer *writer;
    struct tensorfile *file;
    for (size_t i = 0; i < 1016; i++)
        values[i] = (float)i;
    assert_ok(tensorfile_create(path, tensors, 3, meta, 1, &writer));
    for (size_t at = 0; at < 1016; at += 8) /* in pieces: the border is within one */
        assert_ok(tensorfile_write(writer, values + at, 8));
    assert_ok(tensorfile_commit(writer));
    long data = (long)testlib_file_bytes(path) - (long)sizeof values;
    assert_ok(tensorfile_open(path, true, &file));
    tensorfile_close(file);
    testlib_damage(path, data + 59);
    assert_ok(tensorfile_open(path, true, &file));
    tensorfile_close(file);
    testlib_damage(path, data + 60);
    assert_fails(ERR_CORRUPT, "checksum", tensorfile_open(path, true, &file));
    testlib_damage(path, data + 60);
    testlib_damage(path, data - 1); /* the header */
    assert_int_equal(tensorfile_open(path, true, &file), ERR_CORRUPT);
    const struct tensorfile_meta more[] = {{"certified_bytes", "4065"}};
    assert_ok(tensorfile_create(path, tensors, 3, more, 1, &writer));
    assert_ok(tensorfile_write(writer, values, 1016));
    assert_ok(tensorfile_commit(writer));
    assert_fails(ERR_CORRUPT, "more than there is", tensorfile_open(path, true, &file));
}

static void tensors_may_come_in_any_order_and_the_metadata_last(void **state)
{
    (void)state;
    static float values[1016];
    const char *path = testlib_path(testlib_folder("files-order"), "t");
    const struct tensorfile_meta longest[] = {{"versions", "18446744073709551615,18446744073709551615"}},
                                 true_ones[] = {{"versions", "7,8"}},
                                 too_long[] = {{"versions", "18446744073709551615,18446744073709551615, and these are "
                                                            "more words than there is padding at the end for"}};
    struct tensorfile_writer *writer;
    struct tensorfile *file;
    const float *there;
    for (size_t i = 0; i < 1016; i++)
        values[i] = (float)i;
    assert_ok(tensorfile_create(path, tensors, 3, longest, 1, &writer));
    assert_ok(tensorfile_write_at(writer, 15, values + 15, 1001));
    assert_fails(ERR_STATE, "announces none", tensorfile_write_at(writer, 1010, values, 7));
    assert_ok(tensorfile_write_at(writer, 0, values, 15));
    assert_int_equal(access(path, F_OK), -1);
    assert_ok(tensorfile_commit_as(writer, tensors, 3, true_ones, 1));
    assert_ok(tensorfile_open(path, true, &file));
    assert_string_equal(tensorfile_meta(file, "versions"), "7,8");
    assert_ok(tensorfile_values(file, "b", 1000, &there));
    assert_memory_equal(there, values + 16, 1000 * sizeof *there);
    tensorfile_close(file);
    assert_ok(tensorfile_create(path, tensors, 3, longest, 1, &writer));
    assert_ok(tensorfile_write_at(writer, 0, values, 15));
    assert_fails(ERR_STATE, "values are missing", tensorfile_commit_as(writer, tensors, 3, true_ones, 1));
    assert_ok(tensorfile_create(path, tensors, 3, longest, 1, &writer));
    assert_ok(tensorfile_write_at(writer, 0, values, 1016));
    assert_fails(ERR_STATE, "more room", tensorfile_commit_as(writer, tensors, 3, too_long, 1));
    assert_ok(tensorfile_open(path, true, &file)); /* the one before */
    tensorfile_close(file);
}

/* ---- a large file is flushed in pieces; the kernel's call is the tests' ---- */

static int pieces, piece_error;
static off_t piece_end;

int sync_file_range(int fd, off_t at, off_t bytes, unsigned flags)
{
    (void)fd;
    assert_int_equal(at, piece_end);
    assert_int_equal(bytes, FSIO_FLUSH_BYTES);
    assert_true((flags & SYNC_FILE_RANGE_WRITE) != 0 && (flags & SYNC_FILE_RANGE_WAIT_AFTER) != 0);
    piece_end += bytes;
    pieces++;
    errno = piece_error;
    return piece_error != 0 ? -1 : 0;
}

static enum err write_large(const char *path, uint64_t bytes)
{
    struct fsio_writer writer;
    pieces = 0;
    piece_end = 0;
    TRY(fsio_begin(&writer, path, 0600));
    assert_ok(fsio_rewrite(&writer, bytes - 1, "x", 1));
    return fsio_commit(&writer);
}

static void a_large_file_is_flushed_in_pieces(void **state)
{
    (void)state;
    const char *path = testlib_path(testlib_folder("files-large"), "t");
    assert_ok(write_large(path, FSIO_FLUSH_BYTES));
    assert_int_equal(pieces, 0);
    assert_ok(write_large(path, 3 * (uint64_t)FSIO_FLUSH_BYTES + 1));
    assert_int_equal(pieces, 3);
    assert_int_equal(unlink(path), 0);
    /* The kernel tells a failure once, and here it did; a file system may not know the call. */
    piece_error = EIO;
    assert_fails(ERR_IO, "cannot flush", write_large(path, 3 * (uint64_t)FSIO_FLUSH_BYTES));
    assert_int_equal(access(path, F_OK), -1);
    piece_error = ENOSYS;
    assert_ok(write_large(path, 3 * (uint64_t)FSIO_FLUSH_BYTES));
    assert_int_equal(pieces, 1);
    piece_error = 0;
}

int main(void)
{
    assert_ok(digest_init());
    folder = testlib_folder("files");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replace_keeps_the_old_until_the_new_is_whole),
        cmocka_unit_test(a_full_disk_is_named_and_loses_nothing),
        cmocka_unit_test(what_a_disk_says_comes_with_what_to_do),
        cmocka_unit_test(tensors_come_back),
        cmocka_unit_test(unfinished_files_do_not_appear),
        cmocka_unit_test(every_cut_and_every_changed_byte_is_seen),
        cmocka_unit_test(foreign_headers_are_checked),
        cmocka_unit_test(values_are_floats_whatever_they_are_kept_as),
        cmocka_unit_test(shorter_values_are_written_rounded),
        cmocka_unit_test(every_half_comes_back_and_others_go_to_the_nearest),
        cmocka_unit_test(what_is_certified_is_left_out_of_the_checksum),
        cmocka_unit_test(tensors_may_come_in_any_order_and_the_metadata_last),
        cmocka_unit_test(a_large_file_is_flushed_in_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
