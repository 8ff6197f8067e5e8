/* SPDX-License-Identifier: Apache-2.0 */
#include "common/tensorfile.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/bytes.h"
#include "common/digest.h"
#include "common/fsio.h"
#include "common/mem.h"

static const char digest_key[] = "blake2b", certified_key[] = "certified_bytes";
enum {
    READ_AT_A_TIME = 64 << 10,
    LENGTH_BYTES = 8,
    HEADER_BYTES_MAX = 100000000,
    ENCODED_AT_A_TIME = 4096,
    VALUE_BYTES_MAX = 2
};

/* ---- writing ---- */

struct tensorfile_writer {
    struct fsio_writer file;
    struct digest_state digest;
    enum dtype dtype;
    uint64_t digest_offset; /* in the file, of the hexadecimal digits */
    uint64_t data_offset;
    uint64_t data_at;         /* bytes that were written one after another */
    uint64_t certified_bytes; /* of the data that are still to come: the digest is not of them */
    uint64_t values_expected;
    uint64_t values_written;
};

static json_t *tensor_json(const struct tensorfile_tensor *tensor, uint64_t begin, uint64_t *end)
{
    uint64_t count = 1;
    json_t *shape = json_array();
    for (uint32_t d = 0; d < tensor->dims; d++) {
        count *= tensor->shape[d];
        json_array_append_new(shape, json_integer((json_int_t)tensor->shape[d]));
    }
    *end = begin + count * dtype_bytes(tensor->dtype);
    return json_pack("{s:s, s:o, s:[I,I]}", "dtype", dtype_tag(tensor->dtype), "shape", shape, "data_offsets",
                     (json_int_t)begin, (json_int_t)*end);
}

static enum err header_text(const struct tensorfile_tensor *tensors, size_t tensors_count,
                            const struct tensorfile_meta *meta, size_t meta_count, char **text, uint64_t *data_bytes)
{
    char zeros[DIGEST_HEX_BYTES];
    memset(zeros, '0', sizeof zeros - 1);
    zeros[sizeof zeros - 1] = '\0';
    json_t *root = json_object();
    json_t *meta_json = json_object();
    for (size_t i = 0; i < meta_count; i++)
        json_object_set_new(meta_json, meta[i].key, json_string(meta[i].value));
    json_object_set_new(meta_json, digest_key, json_string(zeros));
    json_object_set_new(root, "__metadata__", meta_json);
    *data_bytes = 0;
    for (size_t i = 0; i < tensors_count; i++)
        json_object_set_new(root, tensors[i].name, tensor_json(&tensors[i], *data_bytes, data_bytes));
    char *dump = json_dumps(root, JSON_COMPACT | JSON_PRESERVE_ORDER);
    json_decref(root);
    if (dump == NULL)
        return err_set(ERR_NOMEM, "out of memory for a tensor file's header");
    /* The data starts on a multiple of 64 so that a map of the file is aligned; spaces are allowed padding. */
    size_t length = strlen(dump);
    size_t padding = (MEM_ALIGN - (LENGTH_BYTES + length) % MEM_ALIGN) % MEM_ALIGN;
    enum err err = mem_printf(text, "%s%*s", dump, (int)padding, "");
    free(dump);
    return err;
}

/* What the metadata say of it; 0: nothing. */
static uint64_t certified_of(const struct tensorfile_meta *meta, size_t meta_count)
{
    for (size_t i = 0; i < meta_count; i++)
        if (strcmp(meta[i].key, certified_key) == 0)
            return strtoull(meta[i].value, NULL, 10);
    return 0;
}

/* Length and header, with zeros for the digest, which is begun with them. */
static enum err write_header(struct tensorfile_writer *writer, const char *text)
{
    uint8_t raw[LENGTH_BYTES];
    size_t length = strlen(text);
    struct bytes_writer bytes = bytes_writer_init(raw, sizeof raw);
    bytes_put_u64(&bytes, length);
    digest_begin(&writer->digest);
    digest_add(&writer->digest, raw, sizeof raw);
    digest_add(&writer->digest, text, length);
    writer->digest_offset = LENGTH_BYTES + (uint64_t)(strstr(text, digest_key) - text) + sizeof digest_key + 2;
    writer->data_offset = LENGTH_BYTES + length;
    TRY(fsio_rewrite(&writer->file, 0, raw, sizeof raw));
    return fsio_rewrite(&writer->file, LENGTH_BYTES, text, length);
}

enum err tensorfile_create(const char *path, const struct tensorfile_tensor *tensors, size_t tensors_count,
                           const struct tensorfile_meta *meta, size_t meta_count, struct tensorfile_writer **out)
{
    enum err err;
    char *text = NULL;
    uint64_t data_bytes;
    struct tensorfile_writer *writer = NULL;
    *out = NULL;
    TRY_OUT(mem_new(1, sizeof *writer, "a tensor file", &writer));
    writer->file.fd = -1;
    writer->dtype = tensors_count > 0 ? tensors[0].dtype : DTYPE_F32;
    TRY_OUT(header_text(tensors, tensors_count, meta, meta_count, &text, &data_bytes));
    TRY_OUT(fsio_begin(&writer->file, path, 0644));
    TRY_OUT(write_header(writer, text));
    writer->values_expected = data_bytes / dtype_bytes(writer->dtype);
    writer->certified_bytes = certified_of(meta, meta_count);
    *out = writer;
out:
    mem_free(text);
    if (err != ERR_OK)
        tensorfile_abort(writer);
    return err;
}

static enum err write_bytes(struct tensorfile_writer *writer, const void *data, size_t bytes)
{
    size_t certified = writer->certified_bytes < bytes ? (size_t)writer->certified_bytes : bytes;
    uint64_t at = writer->data_offset + writer->data_at;
    digest_add(&writer->digest, (const uint8_t *)data + certified, bytes - certified);
    writer->certified_bytes -= certified;
    writer->data_at += bytes;
    return fsio_rewrite(&writer->file, at, data, bytes);
}

/* By pieces that fit on the stack. */
static enum err write_encoded(struct tensorfile_writer *writer, const float *values, size_t count)
{
    uint8_t encoded[ENCODED_AT_A_TIME * VALUE_BYTES_MAX];
    for (size_t at = 0; at < count; at += ENCODED_AT_A_TIME) {
        size_t part = count - at < ENCODED_AT_A_TIME ? count - at : ENCODED_AT_A_TIME;
        size_t lost = dtype_encode(writer->dtype, values + at, part, encoded);
        if (lost > 0)
            return err_set(ERR_NONFINITE, "%s: %zu values are too large for %s; take bf16, or f32", writer->file.path,
                           lost, dtype_name(writer->dtype));
        TRY(write_bytes(writer, encoded, part * dtype_bytes(writer->dtype)));
    }
    return ERR_OK;
}

enum err tensorfile_write(struct tensorfile_writer *writer, const float *values, size_t count)
{
    if (count > writer->values_expected - writer->values_written)
        return err_set(ERR_STATE, "%s: more values than its header announces", writer->file.path);
    if (writer->dtype == DTYPE_F32)
        TRY(write_bytes(writer, values, count * sizeof *values));
    else
        TRY(write_encoded(writer, values, count));
    writer->values_written += count;
    return ERR_OK;
}

enum err tensorfile_write_at(struct tensorfile_writer *writer, uint64_t first, const float *values, size_t count)
{
    if (writer->dtype != DTYPE_F32 || first > writer->values_expected || count > writer->values_expected - first)
        return err_set(ERR_STATE, "%s: values where its header announces none", writer->file.path);
    writer->values_written += count;
    return fsio_rewrite(&writer->file, writer->data_offset + first * sizeof *values, values, count * sizeof *values);
}

/* The digest is complete but for its place. */
static enum err commit(struct tensorfile_writer *writer)
{
    struct digest digest = digest_end(&writer->digest);
    char hex[DIGEST_HEX_BYTES];
    digest_hex(&digest, hex);
    TRY(fsio_rewrite(&writer->file, writer->digest_offset, hex, sizeof hex - 1));
    return fsio_commit(&writer->file);
}

static enum err check_whole(const struct tensorfile_writer *writer)
{
    return writer->values_written == writer->values_expected
               ? ERR_OK
               : err_set(ERR_STATE, "%s: values are missing", writer->file.path);
}

enum err tensorfile_commit(struct tensorfile_writer *writer)
{
    enum err err = check_whole(writer);
    if (err == ERR_OK)
        err = commit(writer);
    tensorfile_abort(writer);
    return err;
}

/* What was written in any order, in the file's. */
static enum err digest_data(struct tensorfile_writer *writer)
{
    uint8_t piece[READ_AT_A_TIME];
    uint64_t left = writer->values_expected * sizeof(float);
    for (uint64_t at = writer->data_offset; left > 0;) {
        size_t want = left < sizeof piece ? (size_t)left : sizeof piece;
        TRY(fsio_reread(&writer->file, at, piece, want));
        digest_add(&writer->digest, piece, want);
        at += want;
        left -= want;
    }
    return ERR_OK;
}

/* The same place for the data, whatever the length of the metadata is now. */
static enum err rewrite_header(struct tensorfile_writer *writer, const struct tensorfile_tensor *tensors,
                               size_t tensors_count, const struct tensorfile_meta *meta, size_t meta_count)
{
    char *text, *padded;
    uint64_t data_bytes, room = writer->data_offset - LENGTH_BYTES;
    TRY(header_text(tensors, tensors_count, meta, meta_count, &text, &data_bytes));
    size_t length = strlen(text);
    enum err err = length <= room && data_bytes == writer->values_expected * sizeof(float)
                       ? mem_printf(&padded, "%s%*s", text, (int)(room - length), "")
                       : err_set(ERR_STATE, "%s: its header needs more room than was left", writer->file.path);
    mem_free(text);
    TRY(err);
    err = write_header(writer, padded);
    mem_free(padded);
    return err;
}

enum err tensorfile_commit_as(struct tensorfile_writer *writer, const struct tensorfile_tensor *tensors,
                              size_t tensors_count, const struct tensorfile_meta *meta, size_t meta_count)
{
    enum err err;
    TRY_OUT(check_whole(writer));
    TRY_OUT(rewrite_header(writer, tensors, tensors_count, meta, meta_count));
    TRY_OUT(digest_data(writer));
    TRY_OUT(commit(writer));
out:
    tensorfile_abort(writer);
    return err;
}

void tensorfile_abort(struct tensorfile_writer *writer)
{
    if (writer == NULL)
        return;
    fsio_abort(&writer->file);
    mem_free(writer);
}

/* ---- reading ---- */

struct entry {
    struct tensorfile_tensor tensor; /* its name lives in the JSON */
    uint64_t begin, count;           /* bytes into the data, values */
};

struct tensorfile {
    char *path;
    uint8_t *map;
    size_t map_bytes;
    json_t *header;
    const uint8_t *data;
    uint64_t data_bytes;
    struct entry *entries;
    size_t entries_count;
};

static enum err damaged(const struct tensorfile *file, const char *why)
{
    return err_set(ERR_CORRUPT, "%s: not a whole tensor file: %s", file->path, why);
}

static enum err damaged_tensor(const struct tensorfile *file, const char *name, const char *why)
{
    return err_set(ERR_CORRUPT, "%s: not a whole tensor file: tensor %.80s %s", file->path, name, why);
}

static enum err map_file(struct tensorfile *file)
{
    int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe is not waited for but refused */
    struct stat status;
    if (fd < 0)
        return err_set_errno(errno == ENOENT ? ERR_NOTFOUND : ERR_IO, "%s: cannot open", file->path);
    enum err err = ERR_OK;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
        err = err_set(ERR_IO, "%s: not a regular file", file->path);
    else if (status.st_size < LENGTH_BYTES)
        err = damaged(file, "shorter than its first field");
    if (err == ERR_OK) {
        void *map = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (map == MAP_FAILED) {
            err = err_set_errno(ERR_IO, "%s: cannot map", file->path);
        } else {
            file->map = map;
            file->map_bytes = (size_t)status.st_size;
        }
    }
    close(fd);
    return err;
}

/* What is said of it is printed. */
static bool is_printable(const char *text)
{
    for (; *text != '\0'; text++)
        if (*text < ' ' || *text > '~')
            return false;
    return true;
}

static enum err read_shape(const struct tensorfile *file, const json_t *shape, struct entry *entry)
{
    size_t dims = json_array_size(shape);
    if (dims > TENSORFILE_DIMS_MAX)
        return damaged_tensor(file, entry->tensor.name, "has too many dimensions");
    entry->tensor.dims = (uint32_t)dims;
    entry->count = 1;
    for (uint32_t d = 0; d < entry->tensor.dims; d++) {
        json_int_t size = json_integer_value(json_array_get(shape, d));
        if (size < 0 || (size > 0 && entry->count > file->data_bytes / (uint64_t)size))
            return damaged_tensor(file, entry->tensor.name, "is larger than the file");
        entry->tensor.shape[d] = (uint64_t)size;
        entry->count *= (uint64_t)size;
    }
    return ERR_OK;
}

static enum err read_entry(struct tensorfile *file, const char *name, json_t *value, struct entry *entry)
{
    json_t *shape = json_object_get(value, "shape");
    json_t *offsets = json_object_get(value, "data_offsets");
    const char *dtype = json_string_value(json_object_get(value, "dtype"));
    if (!is_printable(name))
        return damaged(file, "a tensor's name cannot be printed");
    if (dtype == NULL || !json_is_array(shape) || json_array_size(offsets) != 2)
        return damaged_tensor(file, name, "lacks dtype, shape or data_offsets");
    entry->tensor = (struct tensorfile_tensor){.name = name, .dtype = dtype_of_tag(dtype)};
    TRY(read_shape(file, shape, entry));
    json_int_t begin = json_integer_value(json_array_get(offsets, 0));
    json_int_t end = json_integer_value(json_array_get(offsets, 1));
    size_t bytes = dtype_bytes(entry->tensor.dtype);
    if (begin < 0 || end < begin || (bytes > 0 && (uint64_t)(end - begin) != entry->count * bytes))
        return damaged_tensor(file, name, "has a place that does not fit its shape");
    if ((uint64_t)end > file->data_bytes)
        return damaged_tensor(file, name, "ends after the file does; copy or download it again");
    entry->begin = (uint64_t)begin;
    return ERR_OK;
}

static enum err read_header(struct tensorfile *file)
{
    struct bytes_reader reader = bytes_reader_init(file->map, file->map_bytes);
    uint64_t length = bytes_get_u64(&reader);
    if (length > HEADER_BYTES_MAX || length > bytes_left(&reader))
        return damaged(file, "the header is longer than the file");
    json_error_t json_error;
    const uint8_t *text = bytes_get(&reader, (size_t)length);
    file->header = json_loadb((const char *)text, (size_t)length, JSON_REJECT_DUPLICATES, &json_error);
    if (!json_is_object(file->header))
        return damaged(file, "the header is not JSON");
    file->data = file->map + LENGTH_BYTES + length;
    file->data_bytes = bytes_left(&reader);
    TRY(mem_new(json_object_size(file->header), sizeof *file->entries, "tensor names", &file->entries));
    const char *name;
    json_t *value;
    json_object_foreach (file->header, name, value) {
        if (strcmp(name, "__metadata__") != 0)
            TRY(read_entry(file, name, value, &file->entries[file->entries_count++]));
    }
    return ERR_OK;
}

static enum err check_digest(struct tensorfile *file, bool required)
{
    const char *hex = tensorfile_meta(file, digest_key);
    if (hex == NULL && !required)
        return ERR_OK;
    if (hex == NULL || strlen(hex) != DIGEST_HEX_BYTES - 1)
        return damaged(file, "no checksum");
    uint64_t certified = 0;
    if (tensorfile_meta(file, certified_key) != NULL)
        TRY(tensorfile_meta_u64(file, certified_key, &certified));
    if (certified > file->data_bytes)
        return damaged(file, "its checksum leaves out more than there is");
    /* The digest was taken with zeros in its own place. */
    size_t header_bytes = (size_t)(file->data - file->map);
    const uint8_t *place = memmem(file->map, header_bytes, hex, DIGEST_HEX_BYTES - 1);
    char zeros[DIGEST_HEX_BYTES - 1];
    memset(zeros, '0', sizeof zeros);
    if (place == NULL)
        return damaged(file, "no checksum");
    struct digest_state state;
    size_t before = (size_t)(place - file->map);
    digest_begin(&state);
    digest_add(&state, file->map, before);
    digest_add(&state, zeros, sizeof zeros);
    digest_add(&state, place + sizeof zeros, header_bytes - before - sizeof zeros);
    digest_add(&state, file->data + certified, file->data_bytes - certified);
    struct digest digest = digest_end(&state);
    char found[DIGEST_HEX_BYTES];
    if (strcmp(digest_hex(&digest, found), hex) != 0)
        return damaged(file, "its checksum does not match its content");
    return ERR_OK;
}

enum check { CHECK_NOTHING, CHECK_WHERE_IT_IS, CHECK_REQUIRED };

static enum err open_file(const char *path, enum check check, struct tensorfile **out)
{
    enum err err;
    struct tensorfile *file = NULL;
    *out = NULL;
    TRY_OUT(mem_new(1, sizeof *file, "a tensor file", &file));
    TRY_OUT(mem_strdup(path, &file->path));
    TRY_OUT(map_file(file));
    TRY_OUT(read_header(file));
    if (check != CHECK_NOTHING)
        TRY_OUT(check_digest(file, check == CHECK_REQUIRED));
    *out = file;
out:
    if (err != ERR_OK)
        tensorfile_close(file);
    return err;
}

enum err tensorfile_open(const char *path, bool digest_required, struct tensorfile **out)
{
    return open_file(path, digest_required ? CHECK_REQUIRED : CHECK_WHERE_IT_IS, out);
}

enum err tensorfile_open_unread(const char *path, struct tensorfile **out)
{
    return open_file(path, CHECK_NOTHING, out);
}

void tensorfile_close(struct tensorfile *file)
{
    if (file == NULL)
        return;
    if (file->map != NULL)
        munmap(file->map, file->map_bytes);
    json_decref(file->header);
    mem_free(file->entries);
    mem_free(file->path);
    mem_free(file);
}

const char *tensorfile_meta(const struct tensorfile *file, const char *key)
{
    return json_string_value(json_object_get(json_object_get(file->header, "__metadata__"), key));
}

enum err tensorfile_meta_u64(const struct tensorfile *file, const char *key, uint64_t *value)
{
    const char *text = tensorfile_meta(file, key);
    char *end = NULL;
    if (text == NULL || text[0] < '0' || text[0] > '9')
        return err_set(ERR_CORRUPT, "%s: no number \"%s\" in its metadata", file->path, key);
    *value = strtoull(text, &end, 10);
    if (*end != '\0')
        return err_set(ERR_CORRUPT, "%s: \"%s\" in its metadata is not a number", file->path, key);
    return ERR_OK;
}

enum err tensorfile_check_format(const struct tensorfile *file, const char *format)
{
    const char *found = tensorfile_meta(file, "format");
    if (found == NULL)
        return err_set(ERR_CORRUPT, "%s: no \"format\" in its metadata", file->path);
    if (strcmp(found, format) == 0)
        return ERR_OK;
    return err_set(ERR_CONF,
                   "%s: its format is \"%.40s\", and this release reads \"%s\"; go on with the release that wrote it, "
                   "or begin anew in another folder",
                   file->path, found, format);
}

size_t tensorfile_count(const struct tensorfile *file)
{
    return file->entries_count;
}

struct tensorfile_tensor tensorfile_at(const struct tensorfile *file, size_t index)
{
    return file->entries[index].tensor;
}

static enum err unreadable(const struct tensorfile *file, const struct entry *entry, const char *readable)
{
    const char *tag = json_string_value(json_object_get(json_object_get(file->header, entry->tensor.name), "dtype"));
    return err_set(ERR_CORRUPT, "%s: tensor %s is %.16s; only %s can be read", file->path, entry->tensor.name,
                   is_printable(tag) ? tag : "something else", readable);
}

enum err tensorfile_values(const struct tensorfile *file, const char *name, uint64_t count, const float **values)
{
    for (size_t i = 0; i < file->entries_count; i++) {
        const struct entry *entry = &file->entries[i];
        if (strcmp(entry->tensor.name, name) != 0)
            continue;
        if (entry->count != count)
            return err_set(ERR_CORRUPT, "%s: tensor %s has %" PRIu64 " values where %" PRIu64 " are needed", file->path,
                           name, entry->count, count);
        const uint8_t *at = file->data + entry->begin;
        if (entry->tensor.dtype != DTYPE_F32)
            return unreadable(file, entry, "F32");
        if ((uintptr_t)at % sizeof **values != 0)
            return damaged_tensor(file, name, "is not aligned to four bytes");
        *values = (const float *)(const void *)at;
        return ERR_OK;
    }
    return err_set(ERR_NOTFOUND, "%s: no tensor %s", file->path, name);
}

enum err tensorfile_read(const struct tensorfile *file, size_t index, uint64_t first, size_t count, float *to)
{
    const struct entry *entry = &file->entries[index];
    size_t bytes = dtype_bytes(entry->tensor.dtype);
    if (entry->tensor.dtype == DTYPE_OTHER)
        return unreadable(file, entry, "F32, BF16 and F16");
    if (first > entry->count || count > entry->count - first)
        return err_set(ERR_ARG, "%s: tensor %s has no values beyond %" PRIu64, file->path, entry->tensor.name,
                       entry->count);
    dtype_decode(entry->tensor.dtype, file->data + entry->begin + first * bytes, count, to);
    return ERR_OK;
}
