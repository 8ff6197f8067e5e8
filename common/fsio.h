/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fsio: files that are either whole or not there.
 *
 * A file is written beside its name, flushed to the disk, then renamed; the folder is flushed too. So after a crash
 * at any instant the name holds the old content or the new, never a part. Blocking; any thread.
 */
#ifndef COMMON_FSIO_H
#define COMMON_FSIO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/err.h"

/* As err_set_errno(), for a failed write, with the remedy behind it where errno tells: a full disk or quota, a disk
 * that fails or may only be read, a folder of another user. */
enum err fsio_failed(enum err code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Locks an open file or folder (flock) for this open file description alone. `*held`: it is ours; else someone else
 * has it. Does not wait. ERR_CONF: its file system keeps no locks, with the remedy. */
ERR_MUST_CHECK enum err fsio_lock(int fd, const char *path, bool *held);
/* The same error for another kind of lock on `path`, which failed with errno. */
ERR_MUST_CHECK enum err fsio_lock_failed(const char *path);

/* Creates the folder and its parents; existing ones are fine. */
ERR_MUST_CHECK enum err fsio_mkdirs(const char *path, mode_t mode);

/* Reads a whole file of at most `bytes_max` bytes into new memory with a NUL after it; caller frees with
 * mem_free(). ERR_NOTFOUND if there is none, ERR_NOMEM if it is larger. */
ERR_MUST_CHECK enum err fsio_read(const char *path, size_t bytes_max, char **data, size_t *bytes);

/* Replaces the file at `path` by these bytes. */
ERR_MUST_CHECK enum err fsio_replace(const char *path, const void *data, size_t bytes, mode_t mode);

/* The same without a flush: it waits for no disk. Whole after a crash of this program; after one of the machine it may
 * be torn. */
ERR_MUST_CHECK enum err fsio_put(const char *path, const void *data, size_t bytes, mode_t mode);

/* fsio_replace() in pieces: begin, write any number of times, then commit or abort. */
struct fsio_writer {
    int fd;
    char *path;
    char *path_temporary;
    uint64_t at; /* bytes written so far */
};
ERR_MUST_CHECK enum err fsio_begin(struct fsio_writer *writer, const char *path, mode_t mode);
ERR_MUST_CHECK enum err fsio_write(struct fsio_writer *writer, const void *data, size_t bytes);
/* Overwrites bytes that were already written. */
ERR_MUST_CHECK enum err fsio_rewrite(struct fsio_writer *writer, uint64_t offset, const void *data, size_t bytes);
/* Reads back the bytes written. ERR_IO. */
ERR_MUST_CHECK enum err fsio_reread(const struct fsio_writer *writer, uint64_t offset, void *data, size_t bytes);
/* Flushes, in pieces of FSIO_FLUSH_BYTES where the file is larger, so that flushes of other files wait for one of them
 * and not for all; renames, flushes the folder; ends the writer whatever the outcome. */
enum { FSIO_FLUSH_BYTES = 8 << 20 };
ERR_MUST_CHECK enum err fsio_commit(struct fsio_writer *writer);
void fsio_abort(struct fsio_writer *writer);

/* write() until all is out or it fails; `what` names the file in the error. */
ERR_MUST_CHECK enum err fsio_write_all(int fd, const void *data, size_t bytes, const char *what);

/* Makes renames and creations in the folder of `path` durable. */
ERR_MUST_CHECK enum err fsio_sync_folder_of(const char *path);

#endif
