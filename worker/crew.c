/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/crew.h"

#include "worker/comm/comm_open.h"

static int broadcast(void *user, void *bytes, size_t count, int *fd)
{
    struct comm *comm = user;
    return comm->calls->host_broadcast(comm, bytes, count, fd, 0) == ERR_OK ? 0 : -1;
}

static int barrier(void *user)
{
    struct comm *comm = user;
    return comm->calls->barrier(comm) == ERR_OK ? 0 : -1;
}

struct model_grid crew_grid(const struct launch_rank *rank, int tp)
{
    if (rank == NULL)
        return (struct model_grid){.dp = 1, .tp = 1};
    tp = tp > 1 ? tp : 1;
    return (struct model_grid){.dp = rank->count / tp, .tp = tp, .row = rank->rank / tp, .column = rank->rank % tp};
}

static enum err split(struct crew *crew)
{
    struct model_grid *grid = &crew->grid;
    const struct comm_calls *calls = crew->comm->calls;
    grid->of_all = crew->comm;
    if (grid->dp > 1)
        TRY(calls->split(crew->comm, grid->column, grid->row, &grid->of_column));
    if (grid->tp > 1)
        TRY(calls->split(crew->comm, grid->row, grid->column, &grid->of_row));
    return ERR_OK;
}

enum err crew_init(struct crew *crew, const struct launch_rank *rank, int tp, const struct kern *kern,
                   struct kern_dev *dev)
{
    *crew = (struct crew){.count = 1, .grid = crew_grid(rank, tp)};
    if (rank == NULL || rank->count == 1)
        return ERR_OK;
    TRY(comm_open(rank->seat, kern, dev, rank->patience_s, &crew->comm));
    crew->rank = rank->rank;
    crew->count = rank->count;
    crew->group = (struct diloco_group){.size = sizeof crew->group,
                                        .rank = crew->rank,
                                        .count = crew->count,
                                        .user = crew->comm,
                                        .broadcast = broadcast,
                                        .barrier = barrier};
    return split(crew);
}

void crew_deinit(struct crew *crew)
{
    struct comm *const all[] = {crew->grid.of_row, crew->grid.of_column, crew->comm};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i] != NULL)
            all[i]->calls->free(all[i]);
    crew->grid.of_row = crew->grid.of_column = crew->grid.of_all = crew->comm = NULL;
}

enum err crew_agree(const struct crew *crew, void *bytes, size_t count)
{
    return crew->comm != NULL ? crew->comm->calls->host_broadcast(crew->comm, bytes, count, NULL, 0) : ERR_OK;
}

enum err crew_meet(const struct crew *crew)
{
    return crew->comm != NULL ? crew->comm->calls->barrier(crew->comm) : ERR_OK;
}
