#include "worker/crew.h"

#include "worker/comm/comm_shm.h"

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

enum err crew_init(struct crew *crew, const struct launch_rank *rank, const struct kern *kern, struct kern_dev *dev)
{
    *crew = (struct crew){.count = 1};
    if (rank == NULL || rank->count == 1)
        return ERR_OK;
    TRY(comm_shm_new(rank->seat, kern, dev, rank->patience_s, &crew->comm));
    crew->rank = rank->rank;
    crew->count = rank->count;
    crew->group = (struct diloco_group){.size = sizeof crew->group,
                                        .rank = crew->rank,
                                        .count = crew->count,
                                        .user = crew->comm,
                                        .broadcast = broadcast,
                                        .barrier = barrier};
    return ERR_OK;
}

void crew_deinit(struct crew *crew)
{
    if (crew->comm != NULL)
        crew->comm->calls->free(crew->comm);
    crew->comm = NULL;
}

bool crew_leads(const struct crew *crew)
{
    return crew->rank == 0;
}

enum err crew_agree(const struct crew *crew, void *bytes, size_t count)
{
    return crew->comm != NULL ? crew->comm->calls->host_broadcast(crew->comm, bytes, count, NULL, 0) : ERR_OK;
}
