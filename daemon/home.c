/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/home.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/fsio.h"
#include "common/mem.h"

/* Of the paths of sockets the longest. */
static const char control_socket[] = "/run/control.sock";

const char *home_chosen(const char *option)
{
    const char *environment = getenv("DILOCO_HOME");
    if (option != NULL)
        return option;
    return environment != NULL && environment[0] != '\0' ? environment : NULL;
}

/* ---- the paths ---- */

/* A boot takes it away, and so may the end of a person's last session: then the disk is in doubt until it is named. */
static const char marks[] = "/dev/shm";

/* Whether it is a folder that nobody else can put a mark into. */
static bool is_private(const char *folder)
{
    struct stat status;
    return lstat(folder, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid() &&
           (status.st_mode & (S_IRWXG | S_IRWXO)) == 0;
}

enum err home_mark(bool in_folder, const char *public_key, const char *sockets, char **path, bool *exposed)
{
    char *folder;
    *path = NULL;
    TRY(mem_printf(&folder, "%s/diloco-%u", marks, (unsigned)geteuid()));
    bool ours = in_folder && (mkdir(folder, S_IRWXU) == 0 || errno == EEXIST) && is_private(folder);
    enum err err = ours ? mem_printf(path, "%s/%s.mark", folder, public_key) : fsio_mkdirs(sockets, 0755);
    mem_free(folder);
    *exposed = in_folder && !ours;
    if (err == ERR_OK && !ours)
        err = mem_printf(path, "%s/vote.mark", sockets);
    return err;
}

static enum err find_service(struct home *home)
{
    TRY(mem_strdup("/etc/diloco/dilocod.conf", &home->conf));
    TRY(mem_strdup("/etc/diloco/key/island.key", &home->key));
    TRY(mem_strdup("/etc/diloco/run.ini", &home->run));
    TRY(mem_strdup("/var/lib/diloco", &home->state));
    return mem_strdup("/run/diloco", &home->sockets);
}

/* From the root, so that it is the same place for a daemon that was started elsewhere. */
static enum err absolute(const char *folder, char **out)
{
    char *here = NULL;
    while (strncmp(folder, "./", 2) == 0)
        folder += 2 + strspn(folder + 2, "/");
    if (folder[0] != '/') {
        here = getcwd(NULL, 0);
        if (here == NULL)
            return err_set_errno(ERR_IO, "--home %s: cannot find out which folder this is in", folder);
    }
    bool is_here = strcmp(folder, ".") == 0 || folder[0] == '\0';
    enum err err =
        mem_printf(out, "%s%s%s", here != NULL ? here : "", here != NULL && !is_here ? "/" : "", is_here ? "" : folder);
    free(here);
    for (size_t bytes = err == ERR_OK ? strlen(*out) : 0; bytes > 1 && (*out)[bytes - 1] == '/'; bytes--)
        (*out)[bytes - 1] = '\0';
    return err;
}

enum err home_find(const char *folder, struct home *home)
{
    const size_t bytes_max = sizeof(((struct sockaddr_un *)NULL)->sun_path) - 1 - strlen(control_socket);
    *home = (struct home){0};
    if (folder == NULL)
        return find_service(home);
    if (folder[0] == '\0')
        return err_set(ERR_ARG, "--home is empty; name a folder");
    TRY(absolute(folder, &home->folder));
    if (strlen(home->folder) > bytes_max)
        return err_set(ERR_ARG,
                       "--home %s: %zu bytes, and a folder with sockets in it may have at most %zu; choose a shorter "
                       "one, or a link to it",
                       home->folder, strlen(home->folder), bytes_max);
    TRY(mem_printf(&home->conf, "%s/dilocod.conf", home->folder));
    TRY(mem_printf(&home->key, "%s/island.key", home->folder));
    TRY(mem_printf(&home->run, "%s/run.ini", home->folder));
    TRY(mem_printf(&home->state, "%s/state", home->folder));
    TRY(mem_printf(&home->sockets, "%s/run", home->folder));
    TRY(mem_printf(&home->log, "%s/dilocod.log", home->folder));
    TRY(mem_printf(&home->supervisor, "%s/supervisor.pid", home->folder));
    return mem_printf(&home->pid, "%s/dilocod.pid", home->folder);
}

void home_free(struct home *home)
{
    mem_free(home->folder);
    mem_free(home->conf);
    mem_free(home->key);
    mem_free(home->run);
    mem_free(home->state);
    mem_free(home->sockets);
    mem_free(home->log);
    mem_free(home->pid);
    mem_free(home->supervisor);
    *home = (struct home){0};
}

/* ---- the locks ---- */

/* Which byte of a file is locked, and what that means. */
enum { HELD = 0, PAUSING = 1 };

static struct flock byte_lock(int type, int which)
{
    return (struct flock){.l_type = (short)type, .l_whence = SEEK_SET, .l_start = which, .l_len = 1};
}

static enum err write_number(int fd, const char *path)
{
    char text[32];
    int bytes = snprintf(text, sizeof text, "%d\n", (int)getpid());
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)bytes, 0) != bytes)
        return err_set_errno(ERR_IO, "%s: cannot write", path);
    return ERR_OK;
}

static enum err holder_of(const char *path, int which, int *pid)
{
    struct flock lock = byte_lock(F_WRLCK, which);
    *pid = 0;
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? ERR_OK : err_set_errno(ERR_IO, "%s: cannot open", path);
    enum err err = ERR_OK;
    if (fcntl(fd, F_GETLK, &lock) != 0)
        err = err_set_errno(ERR_IO, "%s: cannot see who has locked it", path);
    else if (lock.l_type != F_UNLCK && lock.l_pid <= 0)
        err = err_set(ERR_STATE, "%s: locked by a dilocod on another machine or in another container; stop it there",
                      path);
    else if (lock.l_type != F_UNLCK)
        *pid = (int)lock.l_pid;
    close(fd);
    return err;
}

/* Where another has it, which is no failure, `*fd` is -1; `*holder`: who, 0: it has let go of it again. */
static enum err lock_file(const char *path, int *fd, int *holder)
{
    struct flock lock = byte_lock(F_WRLCK, HELD);
    *holder = 0;
    *fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (*fd < 0 && errno == ENOENT)
        return err_set_errno(ERR_CONF, "%s: cannot create; is there such a folder?", path);
    if (*fd < 0)
        return fsio_failed(ERR_CONF, "%s: cannot create", path);
    enum err err = ERR_OK;
    bool held = fcntl(*fd, F_SETLK, &lock) == 0;
    if (held)
        err = write_number(*fd, path);
    else if (errno != EACCES && errno != EAGAIN)
        err = fsio_lock_failed(path);
    else
        err = holder_of(path, HELD, holder);
    if (err != ERR_OK || !held) {
        close(*fd);
        *fd = -1;
    }
    return err;
}

enum err home_lock(const struct home *home, int *fd)
{
    int holder;
    TRY(lock_file(home->pid, fd, &holder));
    if (*fd >= 0)
        return ERR_OK;
    return err_set(ERR_STATE, "dilocod runs in %s already (pid %d); stop it with: dilococtl --home %s stop",
                   home->folder, holder, home->folder);
}

enum err home_holder(const struct home *home, int *pid)
{
    return holder_of(home->pid, HELD, pid);
}

enum err home_lock_supervisor(const struct home *home, int *fd)
{
    int holder;
    TRY(lock_file(home->supervisor, fd, &holder));
    if (*fd >= 0)
        return ERR_OK;
    return err_set(ERR_STATE, "the dilocod in %s has a supervisor already (pid %d)", home->folder, holder);
}

enum err home_supervisor(const struct home *home, int *pid)
{
    return holder_of(home->supervisor, HELD, pid);
}

enum err home_set_pausing(const struct home *home, int fd, bool pausing)
{
    struct flock lock = byte_lock(pausing ? F_WRLCK : F_UNLCK, PAUSING);
    return fcntl(fd, F_SETLK, &lock) == 0 ? ERR_OK : fsio_lock_failed(home->supervisor);
}

enum err home_is_pausing(const struct home *home, bool *pausing)
{
    int pid;
    enum err err = holder_of(home->supervisor, PAUSING, &pid);
    *pausing = err == ERR_OK && pid > 0;
    return err;
}

bool home_is_there(const struct home *home, int fd)
{
    struct stat named, locked;
    return lstat(home->supervisor, &named) == 0 && fstat(fd, &locked) == 0 && named.st_dev == locked.st_dev &&
           named.st_ino == locked.st_ino;
}
