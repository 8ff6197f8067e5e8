/* SPDX-License-Identifier: Apache-2.0 */
#include "common/newfolder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/fsio.h"
#include "common/mem.h"

static const char being_written[] = ".new"; /* fsio's, of a file */

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* Or the beginning of one. */
static bool is_ours(const struct newfolder *folder, const char *name)
{
    char whole[256];
    size_t length = strlen(name), end = sizeof being_written - 1;
    if (length > end && length < sizeof whole && strcmp(name + length - end, being_written) == 0) {
        snprintf(whole, sizeof whole, "%.*s", (int)(length - end), name);
        return folder->ours(whole);
    }
    return folder->ours(name);
}

/* ---- what is there ---- */

struct sight {
    bool empty, marked;
    char other[256]; /* the first file of others; "": there is none */
};

static enum err look(const struct newfolder *folder, const char *path, const char *mark, struct sight *seen)
{
    DIR *dir = opendir(path);
    *seen = (struct sight){.empty = true};
    if (dir == NULL)
        return err_set_errno(ERR_IO, "%s: cannot open", path);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (is_dots(entry->d_name))
            continue;
        seen->empty = false;
        seen->marked = seen->marked || (mark != NULL && strcmp(entry->d_name, mark) == 0);
        if (!is_ours(folder, entry->d_name) && seen->other[0] == '\0')
            snprintf(seen->other, sizeof seen->other, "%s", entry->d_name);
    }
    closedir(dir);
    return ERR_OK;
}

static enum err check_there(struct newfolder *folder, const char *mark)
{
    struct stat status;
    struct sight seen;
    if (lstat(folder->path, &status) != 0)
        return errno == ENOENT ? ERR_OK : err_set_errno(ERR_IO, "%s: cannot look at it", folder->path);
    if (!S_ISDIR(status.st_mode))
        return err_set(ERR_STATE, "%s: is there, and no folder; choose another name", folder->path);
    TRY(look(folder, folder->path, mark, &seen));
    folder->replaces = !seen.empty;
    if (seen.empty)
        return ERR_OK;
    if (seen.other[0] != '\0')
        return err_set(ERR_STATE, "%s: is there, and holds %.100s, which is not replaced; choose another folder",
                       folder->path, seen.other);
    if (mark == NULL)
        return err_set(ERR_STATE, "%s: is there already; --force replaces it, or choose another folder", folder->path);
    return seen.marked
               ? ERR_OK
               : err_set(ERR_STATE, "%s: is there, and was not made by us: no %s is in it; choose another folder",
                         folder->path, mark);
}

/* ---- the place beside it ---- */

static enum err lock(struct newfolder *folder)
{
    bool held;
    folder->fd = open(folder->place, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder->fd < 0)
        return err_set_errno(ERR_IO, "%s: cannot open", folder->place);
    TRY(fsio_lock(folder->fd, folder->place, &held));
    if (held)
        return ERR_OK;
    return err_set(ERR_STATE, "%s: another program is writing it; wait for that, or choose another folder",
                   folder->path);
}

static void clear(const struct newfolder *folder, const char *path)
{
    DIR *dir = opendir(path);
    if (dir == NULL)
        return;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        if (!is_dots(entry->d_name) && is_ours(folder, entry->d_name))
            unlinkat(dirfd(dir), entry->d_name, 0);
    closedir(dir);
}

static enum err make_place(struct newfolder *folder)
{
    struct sight seen;
    if (mkdir(folder->place, 0755) != 0 && errno != EEXIST)
        return fsio_failed(ERR_IO, "cannot create folder %s", folder->place);
    TRY(lock(folder));
    clear(folder, folder->place);
    TRY(look(folder, folder->place, NULL, &seen));
    return seen.empty
               ? ERR_OK
               : err_set(ERR_STATE, "%s: holds %.100s, which is not removed; move it away, or choose another folder",
                         folder->place, seen.other);
}

/* Without slashes at its end. */
static enum err take_name(struct newfolder *folder, const char *path)
{
    TRY(mem_strdup(path, &folder->path));
    size_t length = strlen(folder->path);
    while (length > 1 && folder->path[length - 1] == '/')
        folder->path[--length] = '\0';
    const char *slash = strrchr(folder->path, '/'), *name = slash != NULL ? slash + 1 : folder->path;
    if (name[0] == '\0' || is_dots(name))
        return err_set(ERR_ARG, "\"%s\": no name for a new folder; name one that is not there yet", path);
    return mem_printf(&folder->place, "%s.new", folder->path);
}

static void deinit(struct newfolder *folder)
{
    if (folder->fd >= 0)
        close(folder->fd);
    if (folder->parent_fd >= 0)
        close(folder->parent_fd);
    mem_free(folder->path);
    mem_free(folder->place);
    *folder = (struct newfolder){.fd = -1, .parent_fd = -1};
}

/* Now: nothing is to fail once it has its name. */
static enum err open_parent(struct newfolder *folder)
{
    char *copy;
    TRY(mem_strdup(folder->path, &copy));
    folder->parent_fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    mem_free(copy);
    return folder->parent_fd >= 0 ? ERR_OK : err_set_errno(ERR_IO, "%s: cannot open the folder it is in", folder->path);
}

enum err newfolder_begin(struct newfolder *folder, const char *path, const char *mark, bool (*ours)(const char *name))
{
    enum err err;
    *folder = (struct newfolder){.ours = ours, .fd = -1, .parent_fd = -1};
    TRY_OUT(take_name(folder, path));
    TRY_OUT(check_there(folder, mark));
    TRY_OUT(make_place(folder));
    TRY_OUT(open_parent(folder));
out:
    if (err != ERR_OK)
        deinit(folder);
    return err;
}

/* ---- the end ---- */

static enum err cannot_rename(const struct newfolder *folder)
{
    return err_set_errno(ERR_IO, "cannot rename %s to %s", folder->place, folder->path);
}

/* Both at one instant; what was there is in the place then. */
static enum err exchange(const struct newfolder *folder)
{
    if (renameat2(AT_FDCWD, folder->place, AT_FDCWD, folder->path, RENAME_EXCHANGE) != 0)
        return cannot_rename(folder);
    clear(folder, folder->place);
    rmdir(folder->place);
    return ERR_OK;
}

enum err newfolder_commit(struct newfolder *folder)
{
    enum err err = ERR_OK;
    if (fsync(folder->fd) != 0)
        err = err_set_errno(ERR_IO, "%s: cannot flush", folder->place);
    else if (folder->replaces)
        err = exchange(folder);
    else if (rename(folder->place, folder->path) != 0)
        err = cannot_rename(folder);
    if (err != ERR_OK)
        newfolder_abort(folder);
    else if (fsync(folder->parent_fd) != 0)
        err = err_set_errno(ERR_IO, "%s: cannot flush the folder it is in", folder->path);
    deinit(folder);
    return err;
}

void newfolder_abort(struct newfolder *folder)
{
    if (folder->fd >= 0) {
        clear(folder, folder->place);
        rmdir(folder->place);
    }
    deinit(folder);
}
