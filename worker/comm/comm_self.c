/* SPDX-License-Identifier: Apache-2.0 */
/* One rank alone. */
#include <stdatomic.h>

#include "common/mem.h"
#include "worker/comm/comm.h"
#include "worker/comm/comm_sum.h"

struct self {
    struct comm comm;
    const struct kern *kern;
    struct kern_dev *dev;
    _Atomic bool cancelled;
};

static enum err begin(struct comm *comm, int root)
{
    if (root != 0)
        return err_set(ERR_ARG, "rank %d of one rank", root);
    return atomic_load(&((struct self *)comm)->cancelled) ? err_set(ERR_CLOSED, "the only rank has given up") : ERR_OK;
}

static enum err copy(struct comm *comm, enum kern_queue queue, void *to, const void *from, int64_t count,
                     enum comm_type type)
{
    struct self *self = (struct self *)comm;
    TRY(begin(comm, 0));
    if (count < 0 || comm_type_bytes(type) == 0)
        return err_set(ERR_ARG, "a collective of %lld values of type %d", (long long)count, (int)type);
    if (to != from && count > 0)
        self->kern->copy(self->dev, queue, to, from, (size_t)count * comm_type_bytes(type));
    return ERR_OK;
}

static enum err self_all_reduce(struct comm *comm, enum kern_queue queue, void *array, int64_t count,
                                enum comm_type type)
{
    return copy(comm, queue, array, array, count, type);
}

static enum err self_broadcast(struct comm *comm, enum kern_queue queue, void *array, int64_t count,
                               enum comm_type type, int root)
{
    TRY(begin(comm, root));
    return copy(comm, queue, array, array, count, type);
}

static enum err self_check(struct comm *comm)
{
    return begin(comm, 0);
}

static enum err self_barrier(struct comm *comm)
{
    return begin(comm, 0);
}

static enum err self_host_broadcast(struct comm *comm, void *bytes, size_t count, int *fd, int root)
{
    (void)bytes, (void)count, (void)fd;
    return begin(comm, root);
}

static enum err self_split(struct comm *comm, int color, int key, struct comm **out)
{
    const struct self *self = (const struct self *)comm;
    (void)color, (void)key;
    *out = NULL;
    TRY(begin(comm, 0));
    return comm_self_new(self->kern, self->dev, out);
}

static void self_cancel(struct comm *comm)
{
    atomic_store(&((struct self *)comm)->cancelled, true);
}

static void self_free(struct comm *comm)
{
    mem_free(comm);
}

static const struct comm_calls self_calls = {
    .all_reduce = self_all_reduce,
    .reduce_scatter = copy,
    .all_gather = copy,
    .broadcast = self_broadcast,
    .check = self_check,
    .barrier = self_barrier,
    .host_broadcast = self_host_broadcast,
    .split = self_split,
    .cancel = self_cancel,
    .free = self_free,
};

enum err comm_self_new(const struct kern *kern, struct kern_dev *dev, struct comm **out)
{
    struct self *self;
    *out = NULL;
    TRY(mem_new(1, sizeof *self, "a communicator", &self));
    self->comm = (struct comm){.calls = &self_calls, .rank = 0, .count = 1};
    self->kern = kern;
    self->dev = dev;
    *out = &self->comm;
    return ERR_OK;
}
