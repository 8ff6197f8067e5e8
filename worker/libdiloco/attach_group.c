/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/libdiloco/attach_group.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/env.h"
#include "common/ipc.h"
#include "worker/libdiloco/attach_gate.h"

#define FAILED 0x80000000u /* in a fragment's count of ranks */

enum { AWAKE_MS = 1000 };

static bool alone(const struct diloco *d)
{
    return d->group.count <= 1 || d->speaks_to_none;
}

int attach_group_take(struct diloco *d, const struct diloco_group *group)
{
    if (group == NULL)
        return DILOCO_OK;
    if (!attach_take(&d->group, sizeof d->group, group))
        return attach_fail(d, DILOCO_ERROR, ATTACH_WRONG_SIZE, "diloco_group");
    group = &d->group;
    bool some = group->send != NULL || group->receive != NULL || group->arrived != NULL;
    bool all = group->send != NULL && group->receive != NULL && group->arrived != NULL;
    if (group->count < 1 || group->rank < 0 || group->rank >= group->count || group->broadcast == NULL ||
        group->barrier == NULL || some != all)
        return attach_fail(d, DILOCO_ERROR, "options.group: rank %d of %d, or a function is missing", group->rank,
                           group->count);
    if (group->name != NULL)
        snprintf(d->name, sizeof d->name, "%s", group->name);
    else
        snprintf(d->name, sizeof d->name, "rank %d", group->rank);
    d->group.name = d->name;
    return DILOCO_OK;
}

void attach_group_deinit(struct diloco *d)
{
    if (d->scratch != NULL)
        munmap(d->scratch, d->scratch_values * sizeof *d->scratch);
    d->scratch = NULL;
}

bool attach_group_has_all(const struct diloco *d)
{
    bool all = true;
    for (uint32_t i = 0; i < d->tensors_count; i++)
        all &= d->tensors[i].count == d->tensors[i].whole;
    return all;
}

bool attach_follows(const struct diloco *d)
{
    return d->group.rank > 0;
}

static int broken(struct diloco *d)
{
    if (attach_gate_why(d) != NULL)
        return attach_fail(d, DILOCO_ERROR, "%s", attach_gate_why(d));
    return attach_fail(d, DILOCO_ERROR, "%s has lost the others of its group", d->name);
}

int attach_order(struct diloco *d, const struct attach_order *order, int fd)
{
    struct attach_order copy = *order;
    if (alone(d))
        return DILOCO_OK;
    return d->group.broadcast(d->group.user, &copy, sizeof copy, &fd) == 0 ? DILOCO_OK : broken(d);
}

void attach_group_awake(struct diloco *d)
{
    uint64_t now_ms = env_mono_ms();
    if (alone(d) || attach_follows(d) || now_ms < d->awake_ms + AWAKE_MS)
        return;
    d->awake_ms = now_ms;
    (void)!attach_order(d, &(struct attach_order){.kind = ATTACH_ORDER_WAIT}, -1);
}

int attach_hear(struct diloco *d, struct attach_order *order, int *fd)
{
    *fd = -1;
    return d->group.broadcast(d->group.user, order, sizeof *order, fd) == 0 ? DILOCO_OK : broken(d);
}

int attach_meet(struct diloco *d)
{
    return alone(d) || d->group.barrier(d->group.user) == 0 ? DILOCO_OK : broken(d);
}

/* ---- who has done what ---- */

void attach_group_begins(struct diloco *d, uint32_t f)
{
    if (!alone(d))
        atomic_store(&ipc_fragment(d->shm, f)->ranks_done, 0);
}

void attach_group_did(struct diloco *d, uint32_t f, bool failed)
{
    if (failed)
        atomic_fetch_or(&ipc_fragment(d->shm, f)->ranks_done, FAILED);
    else
        atomic_fetch_add(&ipc_fragment(d->shm, f)->ranks_done, 1);
}

int attach_group_done(struct diloco *d, uint32_t f, bool *done)
{
    *done = true;
    if (alone(d))
        return DILOCO_OK;
    uint32_t count = atomic_load(&ipc_fragment(d->shm, f)->ranks_done);
    if ((count & FAILED) != 0)
        return attach_fail(d, DILOCO_ERROR, "a device of another rank has failed");
    *done = count == (uint32_t)d->group.count - 1;
    return DILOCO_OK;
}

/* ---- memory of the ranks' own ---- */

int attach_group_map_scratch(struct diloco *d, int fd, uint64_t count)
{
    attach_group_deinit(d);
    off_t bytes = fd >= 0 ? lseek(fd, 0, SEEK_END) : -1;
    if (!d->is_far && (bytes < 0 || (uint64_t)bytes < count * sizeof *d->scratch))
        return attach_fail(d, DILOCO_ERROR, "the memory that ranks share is not there");
    int how = d->is_far ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
    void *map = mmap(NULL, count * sizeof *d->scratch, PROT_READ | PROT_WRITE, how, d->is_far ? -1 : fd, 0);
    if (map == MAP_FAILED)
        return attach_fail(d, DILOCO_ERROR, "cannot map the memory that ranks share: %s", strerror(errno));
    d->scratch = map;
    d->scratch_values = count;
    return DILOCO_OK;
}

int attach_group_scratch(struct diloco *d, uint64_t count)
{
    if (d->scratch_values >= count && d->scratch != NULL)
        return DILOCO_OK;
    int fd = memfd_create("diloco-ranks", MFD_CLOEXEC);
    int result = DILOCO_OK;
    if (fd < 0 || ftruncate(fd, (off_t)(count * sizeof *d->scratch)) != 0)
        result = attach_fail(d, DILOCO_ERROR, "no memory for ranks to share: %s", strerror(errno));
    if (result == DILOCO_OK)
        result = attach_group_map_scratch(d, fd, count);
    if (result == DILOCO_OK)
        result = attach_order(d, &(struct attach_order){.kind = ATTACH_ORDER_SCRATCH, .count = count}, fd);
    if (fd >= 0)
        close(fd);
    return result;
}
