/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/trainer/door.h"

#include <errno.h>
#include <grp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/fsio.h"
#include "common/ipc.h"
#include "common/mem.h"

enum { MODE = 0600, MODE_GROUP = 0660 };

static enum err give_to_group(const char *path, const char *name)
{
    errno = 0;
    const struct group *group = getgrnam(name);
    if (group == NULL)
        return err_set(ERR_CONF, "[worker] group: this machine has no group %s; make it with: groupadd --system %s",
                       name, name);
    if (chown(path, (uid_t)-1, group->gr_gid) != 0)
        return err_set_errno(ERR_CONF,
                             "[worker] group: cannot give %s to group %s; the user that the daemon runs as has to be "
                             "in it (usermod -aG %s USER, then start the daemon anew)",
                             path, name, name);
    return ERR_OK;
}

enum err door_open(const struct dconf *conf, char **path, int *listen_fd)
{
    bool group = conf->worker_group[0] != '\0';
    TRY(fsio_mkdirs(conf->run_folder, 0755));
    TRY(mem_printf(path, "%s/worker.sock", conf->run_folder));
    TRY(ipc_listen(*path, SOCK_SEQPACKET, listen_fd));
    /* First nobody's, then the group's: at no time whose it is not. */
    if (chmod(*path, MODE) != 0)
        return err_set_errno(ERR_CONF, "%s: cannot set its mode", *path);
    if (!group)
        return ERR_OK;
    TRY(give_to_group(*path, conf->worker_group));
    return chmod(*path, MODE_GROUP) == 0 ? ERR_OK : err_set_errno(ERR_CONF, "%s: cannot open it", *path);
}

bool door_admits(const struct dconf *conf, int fd, uint32_t *pid)
{
    struct ucred who;
    socklen_t bytes = sizeof who;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) != 0)
        return false;
    *pid = (uint32_t)who.pid;
    return who.uid == 0 || who.uid == getuid() || conf->worker_group[0] != '\0';
}

int door_watch(uint32_t pid)
{
    return pid != 0 ? (int)syscall(SYS_pidfd_open, (pid_t)pid, 0) : -1;
}
