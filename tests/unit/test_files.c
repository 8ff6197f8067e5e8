/* fsio and tensorfile: files that are whole or not there; damage is seen. */
#include "tests/lib/testlib.h"

#include <fcntl.h>
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
        "{\"a\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
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

int main(void)
{
    assert_ok(digest_init());
    folder = testlib_folder("files");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replace_keeps_the_old_until_the_new_is_whole),
        cmocka_unit_test(a_full_disk_is_named_and_loses_nothing),
        cmocka_unit_test(tensors_come_back),
        cmocka_unit_test(unfinished_files_do_not_appear),
        cmocka_unit_test(every_cut_and_every_changed_byte_is_seen),
        cmocka_unit_test(foreign_headers_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
