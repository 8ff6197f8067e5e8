/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A disk that can be told to fail while a program runs, for LD_PRELOAD: whatever changes a file of the folder that
 * FAULTY_FOLDER names fails with the error whose number stands in the file FAULTY_ERROR names; 0, or no file: it works.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEEN __attribute__((visibility("default")))

SEEN int open(const char *path, int flags, ...);
SEEN int open64(const char *path, int flags, ...);
SEEN ssize_t write(int fd, const void *data, size_t bytes);
SEEN ssize_t pwrite(int fd, const void *data, size_t bytes, off_t at);
SEEN ssize_t pwrite64(int fd, const void *data, size_t bytes, off64_t at);
SEEN int fsync(int fd);
SEEN int fdatasync(int fd);
SEEN int ftruncate(int fd, off_t bytes);
SEEN int ftruncate64(int fd, off64_t bytes);

/* Reads with the real calls only. */
static void *real(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

static int fault(void)
{
    char text[16] = "";
    int (*really_open)(const char *, int, ...) = (int (*)(const char *, int, ...))(size_t)real("open");
    const char *path = getenv("FAULTY_ERROR");
    int fd = path != NULL ? really_open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return 0;
    if (read(fd, text, sizeof text - 1) <= 0)
        text[0] = '\0';
    close(fd);
    return atoi(text);
}

static bool in_folder(const char *path)
{
    const char *folder = getenv("FAULTY_FOLDER");
    return folder != NULL && path != NULL && strncmp(path, folder, strlen(folder)) == 0;
}

static bool fails(int fd)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = '\0';
    int error = in_folder(path) ? fault() : 0;
    if (error != 0)
        errno = error;
    return error != 0;
}

static bool fails_to_open(const char *path, int flags)
{
    char absolute[4096] = "";
    if ((flags & (O_CREAT | O_WRONLY | O_RDWR | O_TRUNC)) == 0)
        return false;
    if (path[0] != '/' && getcwd(absolute, sizeof absolute - 1) != NULL)
        strncat(absolute, "/", sizeof absolute - strlen(absolute) - 1);
    strncat(absolute, path, sizeof absolute - strlen(absolute) - 1);
    int error = in_folder(absolute) ? fault() : 0;
    if (error != 0)
        errno = error;
    return error != 0;
}

int open(const char *path, int flags, ...)
{
    int (*really)(const char *, int, ...) = (int (*)(const char *, int, ...))(size_t)real("open");
    va_list args;
    va_start(args, flags);
    mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(args, mode_t) : 0;
    va_end(args);
    return fails_to_open(path, flags) ? -1 : really(path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(args, mode_t) : 0;
    va_end(args);
    return open(path, flags | O_LARGEFILE, mode);
}

ssize_t write(int fd, const void *data, size_t bytes)
{
    ssize_t (*really)(int, const void *, size_t) = (ssize_t(*)(int, const void *, size_t))(size_t)real("write");
    return fails(fd) ? -1 : really(fd, data, bytes);
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t at)
{
    ssize_t (*really)(int, const void *, size_t, off_t) =
        (ssize_t(*)(int, const void *, size_t, off_t))(size_t)real("pwrite");
    return fails(fd) ? -1 : really(fd, data, bytes, at);
}

ssize_t pwrite64(int fd, const void *data, size_t bytes, off64_t at)
{
    return pwrite(fd, data, bytes, at);
}

int fsync(int fd)
{
    int (*really)(int) = (int (*)(int))(size_t)real("fsync");
    return fails(fd) ? -1 : really(fd);
}

int fdatasync(int fd)
{
    int (*really)(int) = (int (*)(int))(size_t)real("fdatasync");
    return fails(fd) ? -1 : really(fd);
}

int ftruncate(int fd, off_t bytes)
{
    int (*really)(int, off_t) = (int (*)(int, off_t))(size_t)real("ftruncate");
    return fails(fd) ? -1 : really(fd, bytes);
}

int ftruncate64(int fd, off64_t bytes)
{
    return ftruncate(fd, bytes);
}
