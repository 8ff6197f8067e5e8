/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/trainer/door.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
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

/* ---- what a trainer says of itself ---- */

enum { TENSORS_ROOM = 64 };
/* Of what a trainer says of its machine, more than this is no number of ranks, and no size of a memory. */
enum { MACHINE_RANKS_MAX = 1000000 };
static const uint64_t machine_memory_max = (uint64_t)1 << 60;

void introduction_init(struct introduction *introduction)
{
    *introduction = (struct introduction){.memory_fd = -1};
}

void introduction_close_memory(struct introduction *introduction)
{
    if (introduction->memory_fd >= 0)
        close(introduction->memory_fd);
    introduction->memory_fd = -1;
}

void introduction_deinit(struct introduction *introduction)
{
    introduction_close_memory(introduction);
    mem_free(introduction->tensors);
}

void introduction_forget(struct introduction *introduction)
{
    introduction_close_memory(introduction);
    introduction->hello = (struct ipc_hello){0};
    introduction->tensors_count = 0;
    introduction->other_base[0] = '\0';
}

static enum err check_version(const struct introduction *introduction)
{
    if (introduction->hello.version == IPC_VERSION)
        return ERR_OK;
    return err_set(ERR_PROTO,
                   "it speaks version %" PRIu32 " of the daemon's interface, we speak %d; install the same release",
                   introduction->hello.version, IPC_VERSION);
}

/* A rate that can be multiplied and printed; 0, as if not said, for all else. */
static double rate(double said)
{
    return isfinite(said) && said > 0 ? said : 0;
}

/* For status alone, so what makes no sense is not refused: it counts as not said. */
static void clean_machine(struct ipc_machine *machine)
{
    machine->device[sizeof machine->device - 1] = '\0';
    for (char *at = machine->device; *at != '\0'; at++)
        if (*at < ' ' || *at > '~')
            *at = '?';
    if (machine->ranks > MACHINE_RANKS_MAX)
        machine->ranks = 0;
    if (machine->ranks == 0)
        machine->tensor_parallel = 0;
    else if (machine->tensor_parallel == 0 || machine->ranks % machine->tensor_parallel != 0)
        machine->tensor_parallel = 1;
    if (machine->memory_bytes > machine_memory_max)
        machine->memory_bytes = 0;
    if (machine->memory_total_bytes > machine_memory_max)
        machine->memory_total_bytes = 0;
    machine->flops_per_token = rate(machine->flops_per_token);
    machine->peak_flops = rate(machine->peak_flops);
}

enum err introduction_hello(struct introduction *introduction, const struct ipc_hello *hello, int fd)
{
    introduction->hello = *hello;
    introduction->hello.trainer[sizeof introduction->hello.trainer - 1] = '\0';
    clean_machine(&introduction->hello.machine);
    introduction_close_memory(introduction);
    introduction->memory_fd = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
    return check_version(introduction);
}

static enum err room_for_tensor(struct introduction *introduction)
{
    uint32_t room = introduction->tensors_room > 0 ? 2 * introduction->tensors_room : TENSORS_ROOM;
    if (introduction->tensors_count == IPC_TENSORS_MAX)
        return err_set(ERR_PROTO, "it has more than %d tensors", IPC_TENSORS_MAX);
    if (introduction->tensors_count < introduction->tensors_room)
        return ERR_OK;
    TRY(mem_grow(&introduction->tensors, introduction->tensors_count, room, sizeof *introduction->tensors, "tensors"));
    introduction->tensors_room = room;
    return ERR_OK;
}

enum err introduction_tensor(struct introduction *introduction, const struct ipc_tensor *said)
{
    TRY(room_for_tensor(introduction));
    struct ipc_tensor *tensor = &introduction->tensors[introduction->tensors_count++];
    *tensor = *said;
    tensor->name[IPC_NAME_BYTES - 1] = tensor->type[IPC_TYPE_BYTES - 1] = '\0';
    tensor->frozen = tensor->frozen != 0;
    bool typed = !tensor->frozen || (tensor->type[0] != '\0' && strpbrk(tensor->type, "\t\n") == NULL);
    if (tensor->dims > IPC_DIMS_MAX || tensor->layer < -1 || !typed || strpbrk(tensor->name, "\t\n") != NULL)
        return err_set(ERR_PROTO, "a tensor with a name, shape or layer that makes no sense");
    return ERR_OK;
}

enum err introduction_end(const struct introduction *introduction)
{
    return check_version(introduction);
}

bool introduction_again(const struct introduction *introduction)
{
    return introduction->hello.session != 0 && introduction->memory_fd >= 0;
}

int introduction_take_memory(struct introduction *introduction)
{
    int fd = introduction->memory_fd;
    introduction->memory_fd = -1;
    return fd;
}
