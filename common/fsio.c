/* SPDX-License-Identifier: Apache-2.0 */
#include "common/fsio.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/mem.h"

/* ---- what to do when it fails ---- */

/* NULL: errno says all that is known. */
static const char *remedy_of(int error)
{
    switch (error) {
    case ENOSPC: return "free some space; nothing that was saved is lost";
    case EDQUOT: return "free some of this user's files, or let its quota be raised; nothing that was saved is lost";
    case EIO: return "the disk fails: look at what the kernel says of it (dmesg), and move the folder to another disk";
    case EROFS:
        return "this file system may only be read, as the kernel decides when a disk fails: look at what it says of "
               "it (dmesg), then mount it for writing again (mount -o remount,rw)";
    case ELOOP: return "a symbolic link is in its place, which is not followed: remove it";
    case EACCES: return "let the user that the program runs as write there (chown), or name another folder";
    default: return NULL;
    }
}

enum err fsio_failed(enum err code, const char *format, ...)
{
    int error = errno;
    char what[512];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    errno = error;
    code = err_set_errno(code, "%s", what);
    const char *remedy = remedy_of(error);
    return remedy != NULL ? err_suffix(code, "%s", remedy) : code;
}

/* ---- locks ---- */

enum err fsio_lock_failed(const char *path)
{
    int error = errno;
    enum err err = fsio_failed(ERR_IO, "cannot lock %s", path);
    if (error != ENOLCK && error != ENOSYS && error != EOPNOTSUPP)
        return err;
    return err_suffix(ERR_CONF,
                      "its file system keeps no locks (NFS without a lock service, Lustre without flock), and "
                      "two programs could write there at once: use a folder on a disk of this machine");
}

enum err fsio_lock(int fd, const char *path, bool *held)
{
    *held = flock(fd, LOCK_EX | LOCK_NB) == 0;
    return *held || errno == EWOULDBLOCK ? ERR_OK : fsio_lock_failed(path);
}

/* ---- folders and files ---- */

enum err fsio_mkdirs(const char *path, mode_t mode)
{
    char *copy;
    TRY(mem_strdup(path, &copy));
    enum err err = ERR_OK;
    for (char *slash = copy + 1; err == ERR_OK; slash++) {
        if (*slash != '/' && *slash != '\0')
            continue;
        char saved = *slash;
        *slash = '\0';
        if (mkdir(copy, mode) != 0 && errno != EEXIST)
            err = fsio_failed(ERR_IO, "cannot create folder %s", copy);
        *slash = saved;
        if (saved == '\0')
            break;
    }
    mem_free(copy);
    return err;
}

/* By statx() and not fstat(), which programs built today take from C libraries of 2021 on only: see conf/wheel.sh. */
static bool size_of(int fd, uint64_t *size)
{
    struct statx status;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_SIZE, &status) != 0)
        return false;
    *size = status.stx_size;
    return true;
}

static enum err read_into(int fd, const char *path, size_t size, size_t bytes_max, char **data, size_t *bytes)
{
    if (size > bytes_max)
        return err_set(ERR_NOMEM, "%s: %zu bytes, more than the %zu allowed", path, size, bytes_max);
    TRY(mem_new(size + 1, 1, path, data));
    size_t at = 0;
    while (at < size) {
        ssize_t got = read(fd, *data + at, size - at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            mem_free(*data);
            *data = NULL;
            return err_set_errno(ERR_IO, "%s: cannot read", path);
        }
        if (got == 0)
            break;
        at += (size_t)got;
    }
    *bytes = at;
    return ERR_OK;
}

enum err fsio_read(const char *path, size_t bytes_max, char **data, size_t *bytes)
{
    *data = NULL;
    *bytes = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set_errno(errno == ENOENT ? ERR_NOTFOUND : ERR_IO, "%s: cannot open", path);
    uint64_t size;
    enum err err;
    if (!size_of(fd, &size))
        err = err_set_errno(ERR_IO, "%s: cannot stat", path);
    else
        err = read_into(fd, path, (size_t)size, bytes_max, data, bytes);
    close(fd);
    return err;
}

enum err fsio_write_all(int fd, const void *data, size_t bytes, const char *what)
{
    const char *at = data;
    while (bytes > 0) {
        ssize_t put = write(fd, at, bytes);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return fsio_failed(ERR_IO, "%s: cannot write %zu bytes", what, bytes);
        at += put;
        bytes -= (size_t)put;
    }
    return ERR_OK;
}

enum err fsio_sync_folder_of(const char *path)
{
    char *copy;
    TRY(mem_strdup(path, &copy));
    enum err err = ERR_OK;
    int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) != 0)
        err = fsio_failed(ERR_IO, "%s: cannot flush its folder", path);
    if (fd >= 0)
        close(fd);
    mem_free(copy);
    return err;
}

static void writer_deinit(struct fsio_writer *writer)
{
    if (writer->fd >= 0)
        close(writer->fd);
    mem_free(writer->path);
    mem_free(writer->path_temporary);
    *writer = (struct fsio_writer){.fd = -1};
}

enum err fsio_begin(struct fsio_writer *writer, const char *path, mode_t mode)
{
    enum err err;
    *writer = (struct fsio_writer){.fd = -1};
    TRY_OUT(mem_strdup(path, &writer->path));
    TRY_OUT(mem_printf(&writer->path_temporary, "%s.new", path));
    writer->fd = open(writer->path_temporary, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, mode);
    if (writer->fd < 0)
        err = fsio_failed(ERR_IO, "cannot create %s", writer->path_temporary);
out:
    if (err != ERR_OK)
        writer_deinit(writer);
    return err;
}

enum err fsio_write(struct fsio_writer *writer, const void *data, size_t bytes)
{
    enum err err = fsio_write_all(writer->fd, data, bytes, writer->path);
    if (err == ERR_OK)
        writer->at += bytes;
    return err;
}

enum err fsio_rewrite(struct fsio_writer *writer, uint64_t offset, const void *data, size_t bytes)
{
    const char *at = data;
    while (bytes > 0) {
        ssize_t put = pwrite(writer->fd, at, bytes, (off_t)offset);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return fsio_failed(ERR_IO, "%s: cannot write", writer->path);
        at += put;
        offset += (uint64_t)put;
        bytes -= (size_t)put;
    }
    return ERR_OK;
}

enum err fsio_reread(const struct fsio_writer *writer, uint64_t offset, void *data, size_t bytes)
{
    char *at = data;
    while (bytes > 0) {
        ssize_t got = pread(writer->fd, at, bytes, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? fsio_failed(ERR_IO, "%s: cannot read back", writer->path)
                           : err_set(ERR_IO, "%s: shorter than what was written", writer->path);
        at += got;
        offset += (uint64_t)got;
        bytes -= (size_t)got;
    }
    return ERR_OK;
}

/* A flush of much data at once keeps all other flushes of the disk waiting until it is through: another file's wait
 * for one piece. What is left for fsync() is little. A failure is told once for each open file, so it counts here;
 * a file system without this call leaves all to fsync(). */
static bool flush_pieces(const struct fsio_writer *writer)
{
    const unsigned flags = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    uint64_t size;
    if (!size_of(writer->fd, &size))
        return true;
    for (off_t at = 0; at + FSIO_FLUSH_BYTES < (off_t)size; at += FSIO_FLUSH_BYTES)
        if (sync_file_range(writer->fd, at, FSIO_FLUSH_BYTES, flags) != 0)
            return errno != EIO && errno != ENOSPC && errno != EDQUOT;
    return true;
}

/* Ends the writer whatever the outcome. */
static enum err finish(struct fsio_writer *writer, bool durably)
{
    enum err err = ERR_OK;
    if (durably && (!flush_pieces(writer) || fsync(writer->fd) != 0))
        err = fsio_failed(ERR_IO, "%s: cannot flush", writer->path);
    else if (rename(writer->path_temporary, writer->path) != 0)
        err = fsio_failed(ERR_IO, "cannot rename %s to %s", writer->path_temporary, writer->path);
    if (err != ERR_OK) {
        fsio_abort(writer);
        return err;
    }
    if (durably)
        err = fsio_sync_folder_of(writer->path);
    writer_deinit(writer);
    return err;
}

enum err fsio_commit(struct fsio_writer *writer)
{
    return finish(writer, true);
}

void fsio_abort(struct fsio_writer *writer)
{
    if (writer->path_temporary != NULL)
        unlink(writer->path_temporary);
    writer_deinit(writer);
}

static enum err replace(const char *path, const void *data, size_t bytes, mode_t mode, bool durably)
{
    struct fsio_writer writer;
    TRY(fsio_begin(&writer, path, mode));
    enum err err = fsio_write(&writer, data, bytes);
    if (err != ERR_OK) {
        fsio_abort(&writer);
        return err;
    }
    return finish(&writer, durably);
}

enum err fsio_replace(const char *path, const void *data, size_t bytes, mode_t mode)
{
    return replace(path, data, bytes, mode, true);
}

enum err fsio_put(const char *path, const void *data, size_t bytes, mode_t mode)
{
    return replace(path, data, bytes, mode, false);
}
