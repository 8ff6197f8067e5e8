/* SPDX-License-Identifier: Apache-2.0 */
/* See fake_nccl.h. Ranks meet in a memfd whose path in /proc is the unique id. */
#include "tests/fakes/fake_nccl.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "worker/comm/comm_sum.h"
#include "worker/comm/nccl_api.h"

enum { RANKS_MAX = 16, AREA_BYTES = 4 << 20, POLLS = 3, LATE = 300, NEWEST = 22809, WHAT_BYTES = 16 };
#define EXPORTED __attribute__((visibility("default")))

struct meeting {
    _Atomic int came;                     /* ranks that have begun */
    _Atomic unsigned in[RANKS_MAX];       /* collectives for which a rank's array is in its area */
    _Atomic unsigned out[RANKS_MAX];      /* from which it has taken all it needs */
    _Alignas(64) char area[][AREA_BYTES]; /* [ranks] */
};

enum kind { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST };

struct job {
    struct ncclComm *comm;
    enum kind kind;
    const void *from;
    void *to;
    size_t count; /* of a part */
    enum comm_type type;
    int root;
    unsigned number;
    bool sent, hangs, fails;
    int tries;
};

struct ncclComm {
    struct meeting *meeting;
    int ranks, rank;
    unsigned called;
    int polls; /* it says that it is in progress so many times more */
    bool finalized;
    struct job *waits;    /* without a stream: the one that goes on when asked */
    _Atomic int queued;   /* in streams */
    _Atomic bool aborted; /* looked at by what is in streams */
    _Atomic int error;    /* ncclResult_t */
};

/* ---- what goes wrong ---- */

static bool wrong(const char *what, int *first, int *second)
{
    const char *said = getenv("FAKE_NCCL");
    char word[WHAT_BYTES];
    *first = *second = -1;
    return said != NULL && sscanf(said, "%15s %d %d", word, first, second) >= 2 && strcmp(word, what) == 0;
}

static bool strikes(const char *what, const struct ncclComm *comm, unsigned number)
{
    int rank, at;
    return wrong(what, &rank, &at) && rank == comm->rank && at == (int)number;
}

/* ---- one collective ---- */

static size_t bytes_of(const struct job *job)
{
    return job->count * comm_type_bytes(job->type);
}

static bool all_have(const struct ncclComm *comm, const _Atomic unsigned *words, unsigned number)
{
    for (int i = 0; i < comm->ranks; i++)
        if (atomic_load(&words[i]) < number)
            return false;
    return true;
}

static void take(struct job *job)
{
    const struct ncclComm *comm = job->comm;
    const void *part[RANKS_MAX];
    size_t bytes = bytes_of(job), shift = job->kind == REDUCE_SCATTER ? (size_t)comm->rank * bytes : 0;
    for (int i = 0; i < comm->ranks; i++)
        part[i] = comm->meeting->area[i] + shift;
    if (job->kind == BROADCAST)
        memcpy(job->to, part[job->root], bytes);
    else if (job->kind == ALL_GATHER)
        for (int i = 0; i < comm->ranks; i++)
            memcpy((char *)job->to + (size_t)i * bytes, part[i], bytes);
    else
        comm_sum(job->type, job->to, part, comm->ranks, (int64_t)job->count);
}

/* A step of it; whether it is over. */
static bool go_on(struct job *job)
{
    struct ncclComm *comm = job->comm;
    struct meeting *meeting = comm->meeting;
    if (atomic_load(&comm->aborted))
        return true;
    if (job->fails && ++job->tries == LATE) /* when the call has returned, if it does not wait */
        atomic_store(&comm->error, ncclRemoteError);
    if (job->hangs || job->fails)
        return false;
    if (!job->sent) {
        size_t bytes = bytes_of(job) * (job->kind == REDUCE_SCATTER ? (size_t)comm->ranks : 1);
        if (!all_have(comm, meeting->out, job->number - 1))
            return false;
        memcpy(meeting->area[comm->rank], job->from, bytes);
        atomic_store(&meeting->in[comm->rank], job->number);
        job->sent = true;
    }
    if (!all_have(comm, meeting->in, job->number))
        return false;
    if (atomic_load(&meeting->out[comm->rank]) < job->number)
        take(job);
    atomic_store(&meeting->out[comm->rank], job->number);
    return true;
}

static bool go_on_in_stream(void *arg)
{
    struct job *job = arg;
    if (!go_on(job))
        return false;
    atomic_fetch_sub(&job->comm->queued, 1);
    free(job);
    return true;
}

static ncclResult_t begin(struct job job, ncclDataType_t type, struct fake_stream *stream)
{
    struct ncclComm *comm = job.comm;
    struct job *own = malloc(sizeof *own);
    job.type = type == ncclFloat32    ? COMM_F32
               : type == ncclBfloat16 ? COMM_BF16
               : type == ncclInt32    ? COMM_I32
                                      : COMM_F64;
    job.number = ++comm->called;
    job.fails = strikes("error", comm, job.number);
    job.hangs = strikes("hang", comm, job.number);
    if (own == NULL || job.count * comm_type_bytes(job.type) * (size_t)comm->ranks > AREA_BYTES || comm->waits != NULL)
        abort();
    *own = job;
    comm->polls = POLLS;
    if (stream == NULL) {
        comm->waits = own;
    } else {
        atomic_fetch_add(&comm->queued, 1);
        stream->enqueue(stream, go_on_in_stream, own);
    }
    return ncclInProgress;
}

/* ---- the library ---- */

EXPORTED ncclResult_t ncclGetVersion(int *version);
EXPORTED ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
EXPORTED ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank,
                                             ncclConfig_t *config);
EXPORTED ncclResult_t ncclCommFinalize(ncclComm_t comm);
EXPORTED ncclResult_t ncclCommDestroy(ncclComm_t comm);
EXPORTED ncclResult_t ncclCommAbort(ncclComm_t comm);
EXPORTED ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error);
EXPORTED const char *ncclGetErrorString(ncclResult_t result);
EXPORTED const char *ncclGetLastError(ncclComm_t comm);
EXPORTED ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                    ncclComm_t comm, cudaStream_t stream);
EXPORTED ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                        ncclComm_t comm, cudaStream_t stream);
EXPORTED ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm,
                                    cudaStream_t stream);
EXPORTED ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                                    ncclComm_t comm, cudaStream_t stream);

ncclResult_t ncclGetVersion(int *version)
{
    int asked, none;
    *version = wrong("version", &asked, &none) ? asked : NEWEST;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    int fd = memfd_create("fake-nccl", MFD_CLOEXEC); /* stays: others may open it by its path */
    if (fd < 0 || ftruncate(fd, (off_t)(sizeof(struct meeting) + (size_t)RANKS_MAX * AREA_BYTES)) != 0)
        return ncclSystemError;
    snprintf(id->internal, sizeof id->internal, "/proc/%d/fd/%d", getpid(), fd);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    int refused, none;
    if (config->size < NCCL_API_CONFIG_BYTES || config->magic != NCCL_API_MAGIC || config->version < NCCL_API_OLDEST ||
        config->blocking != 0 || ranks > RANKS_MAX)
        return ncclInvalidArgument;
    if (wrong("refuse", &refused, &none) && refused == rank)
        return ncclUnhandledCudaError;
    int fd = open(id.internal, O_RDWR | O_CLOEXEC);
    struct meeting *meeting = fd < 0 ? MAP_FAILED
                                     : mmap(NULL, sizeof *meeting + (size_t)RANKS_MAX * AREA_BYTES,
                                            PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    struct ncclComm *comm = calloc(1, sizeof *comm);
    if (meeting == MAP_FAILED || comm == NULL) {
        free(comm);
        return ncclSystemError;
    }
    close(fd);
    *comm = (struct ncclComm){.meeting = meeting, .ranks = ranks, .rank = rank, .polls = POLLS};
    atomic_fetch_add(&meeting->came, 1);
    *out = comm;
    return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    *error = (ncclResult_t)atomic_load(&comm->error);
    if (*error != ncclSuccess)
        return ncclSuccess;
    if (comm->polls > 0 || atomic_load(&comm->meeting->came) < comm->ranks) {
        comm->polls -= comm->polls > 0;
        *error = ncclInProgress;
        return ncclSuccess;
    }
    if (comm->waits == NULL)
        return ncclSuccess;
    if (!go_on(comm->waits)) {
        *error = ncclInProgress;
        return ncclSuccess;
    }
    free(comm->waits);
    comm->waits = NULL;
    return ncclSuccess;
}

#ifndef FAKE_WITHOUT_FINALIZE
ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    comm->finalized = true;
    comm->polls = POLLS;
    return ncclInProgress;
}
#endif

static void drop(struct ncclComm *comm)
{
    while (atomic_load(&comm->queued) > 0)
        usleep(1000);
    munmap(comm->meeting, sizeof *comm->meeting + (size_t)RANKS_MAX * AREA_BYTES);
    free(comm->waits);
    free(comm);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    if (!comm->finalized)
        abort();
    drop(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    atomic_store(&comm->aborted, true);
    drop(comm);
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    return result == ncclRemoteError          ? "remote process exited or there was a network error"
           : result == ncclUnhandledCudaError ? "unhandled cuda error"
                                              : "some error";
}

const char *ncclGetLastError(ncclComm_t comm)
{
    return comm == NULL                               ? "played: no device"
           : atomic_load(&comm->error) != ncclSuccess ? "played: connection closed by peer"
                                                      : "";
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream)
{
    (void)op;
    return begin((struct job){.comm = comm, .kind = ALL_REDUCE, .from = from, .to = to, .count = count}, type,
                 (struct fake_stream *)stream);
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream)
{
    (void)op;
    return begin((struct job){.comm = comm, .kind = REDUCE_SCATTER, .from = from, .to = to, .count = count}, type,
                 (struct fake_stream *)stream);
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream)
{
    return begin((struct job){.comm = comm, .kind = ALL_GATHER, .from = from, .to = to, .count = count}, type,
                 (struct fake_stream *)stream);
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream)
{
    return begin((struct job){.comm = comm, .kind = BROADCAST, .from = from, .to = to, .count = count, .root = root},
                 type, (struct fake_stream *)stream);
}
