/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl_api: NVIDIA's library of collectives, opened when somebody wants it: nothing links it, and it is not needed to
 * build. What is used of it is declared here, word for word as in nccl.h of 2.28 (tests/lint/nccl.sh compares, where
 * there is one); the configuration is that of 2.14, which all later ones take. Owns nothing: the library, once open,
 * stays. Any thread.
 */
#ifndef WORKER_COMM_NCCL_API_H
#define WORKER_COMM_NCCL_API_H

#include <stdbool.h>
#include <stddef.h>

#include "common/err.h"

enum { NCCL_API_OLDEST = 21400, NCCL_API_MAJOR = 2 };
#define NCCL_API_MAGIC 0xcafebeefu
/* ncclConfig_t as it was in NCCL_API_OLDEST: up to and with `blocking`. */
enum { NCCL_API_CONFIG_BYTES = 24 };

#ifndef NCCL_H_ /* nccl.h is not there too, to be compared */
typedef struct ncclComm *ncclComm_t;
typedef struct CUstream_st *cudaStream_t;

#define NCCL_UNIQUE_ID_BYTES 128
typedef struct {
    char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

typedef enum {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInternalError = 3,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7
} ncclResult_t;

typedef struct ncclConfig_v21400 {
    size_t size;
    unsigned int magic;
    unsigned int version;
    int blocking;
} ncclConfig_t;

typedef enum { ncclSum = 0 } ncclRedOp_t;

typedef enum { ncclInt32 = 2, ncclFloat32 = 7, ncclFloat64 = 8, ncclBfloat16 = 9 } ncclDataType_t;
#endif

struct nccl_api {
    ncclResult_t (*get_version)(int *version);
    ncclResult_t (*get_unique_id)(ncclUniqueId *id);
    ncclResult_t (*init_rank)(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config);
    ncclResult_t (*finalize)(ncclComm_t comm);
    ncclResult_t (*destroy)(ncclComm_t comm);
    ncclResult_t (*comm_abort)(ncclComm_t comm);
    ncclResult_t (*async_error)(ncclComm_t comm, ncclResult_t *error);
    const char *(*error_string)(ncclResult_t result);
    const char *(*last_error)(ncclComm_t comm);
    ncclResult_t (*all_reduce)(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream);
    ncclResult_t (*reduce_scatter)(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                   ncclComm_t comm, cudaStream_t stream);
    ncclResult_t (*all_gather)(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm,
                               cudaStream_t stream);
    ncclResult_t (*broadcast)(const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                              cudaStream_t stream);
};

/* libnccl.so.2 from the first of the folders (separated by colons; "": none) that has it, then, with `loader`, from
 * where the loader looks. ERR_NOTFOUND: it is not there, or of a version that cannot be used; the text says which is
 * wanted and what to do. */
ERR_MUST_CHECK enum err nccl_api_open_in(const char *folders, bool loader, struct nccl_api *out);
/* The same from where the loader looks, then from where CUDA's toolkit puts it. */
ERR_MUST_CHECK enum err nccl_api_open(struct nccl_api *out);

#endif
