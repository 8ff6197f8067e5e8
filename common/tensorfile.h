/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensorfile: named tensors in one file, in the safetensors layout, with a checksum.
 *
 * Layout: u64 little-endian header length, a JSON header, then the data (docs/FORMATS.md). Any safetensors reader opens
 * our files. Ours carry "blake2b" in __metadata__: the digest of header (with that value as zeros) and data, but for
 * the first "certified_bytes" of the data, where the metadata say so: its user has another digest of these. Values are
 * floats here; in the file they may be kept shorter (dtype.h). Reading maps the file and checks every offset against
 * the file's length before anything is used: a file may come from anybody.
 */
#ifndef COMMON_TENSORFILE_H
#define COMMON_TENSORFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/dtype.h"
#include "common/err.h"

enum { TENSORFILE_DIMS_MAX = 6 };

struct tensorfile_tensor {
    const char *name; /* borrowed; printable where it was read */
    uint32_t dims;
    uint64_t shape[TENSORFILE_DIMS_MAX];
    enum dtype dtype;
};

struct tensorfile_meta {
    const char *key, *value; /* borrowed */
};

struct tensorfile_writer;

/* Starts a file with these tensors, all of one dtype, to be filled in this order. The file appears at `path` on commit
 * only. A key "certified_bytes" of `meta` leaves so many bytes at the beginning of the data out of the checksum. */
ERR_MUST_CHECK enum err tensorfile_create(const char *path, const struct tensorfile_tensor *tensors,
                                          size_t tensors_count, const struct tensorfile_meta *meta, size_t meta_count,
                                          struct tensorfile_writer **out);
/* Appends `count` values of the next tensor; one tensor may come in pieces. ERR_NONFINITE: one that is finite is too
 * large for the dtype. */
ERR_MUST_CHECK enum err tensorfile_write(struct tensorfile_writer *writer, const float *values, size_t count);
/* Ends the writer whatever the outcome. ERR_STATE if values are missing. */
ERR_MUST_CHECK enum err tensorfile_commit(struct tensorfile_writer *writer);
void tensorfile_abort(struct tensorfile_writer *writer);

/* Floats in any order: `count` from the file's value `first` on, each value once; then the tensors as before and the
 * metadata as they are then, at most as long as they were at first. The checksum is made then, over the bytes written.
 * "certified_bytes" is not for such a file. */
ERR_MUST_CHECK enum err tensorfile_write_at(struct tensorfile_writer *writer, uint64_t first, const float *values,
                                            size_t count);
ERR_MUST_CHECK enum err tensorfile_commit_as(struct tensorfile_writer *writer, const struct tensorfile_tensor *tensors,
                                             size_t tensors_count, const struct tensorfile_meta *meta,
                                             size_t meta_count);

struct tensorfile;

/* Opens and checks a file. `digest_required`: refuse a file without our checksum (a foreign safetensors file is
 * fine otherwise). ERR_NOTFOUND, ERR_CORRUPT. */
ERR_MUST_CHECK enum err tensorfile_open(const char *path, bool digest_required, struct tensorfile **out);
/* The same without reading the values: for who knows them by another digest. */
ERR_MUST_CHECK enum err tensorfile_open_unread(const char *path, struct tensorfile **out);
void tensorfile_close(struct tensorfile *file);

/* NULL if there is no such key. Borrowed until close. */
const char *tensorfile_meta(const struct tensorfile *file, const char *key);
/* The same as a number; ERR_CORRUPT if missing or not one. */
ERR_MUST_CHECK enum err tensorfile_meta_u64(const struct tensorfile *file, const char *key, uint64_t *value);
/* Whether its "format" is this one. ERR_CONF: of another release. ERR_CORRUPT: none. */
ERR_MUST_CHECK enum err tensorfile_check_format(const struct tensorfile *file, const char *format);

size_t tensorfile_count(const struct tensorfile *file);
/* The i-th tensor in the file's order; `name` is borrowed until close. */
struct tensorfile_tensor tensorfile_at(const struct tensorfile *file, size_t index);

/* The values of one tensor of exactly `count` floats, borrowed until close; ERR_NOTFOUND, ERR_CORRUPT (other size, or
 * kept as something else than floats). */
ERR_MUST_CHECK enum err tensorfile_values(const struct tensorfile *file, const char *name, uint64_t count,
                                          const float **values);

/* `count` values of the i-th tensor from its value `first` on, which it must have, as floats. ERR_CORRUPT: of a dtype
 * that cannot be read. */
ERR_MUST_CHECK enum err tensorfile_read(const struct tensorfile *file, size_t index, uint64_t first, size_t count,
                                        float *to);

#endif
