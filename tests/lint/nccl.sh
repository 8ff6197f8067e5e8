#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What worker/comm/nccl_api.h declares of NCCL is what NCCL's own header says, where there is one: functions, numbers,
# and the places in the configuration. Ours stands in where nccl.h is not included, so one program is built both ways.
set -u
skip() { echo "$1"; exit 77; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
nvcc=$(command -v "${NVCC:-nvcc}" 2>/dev/null) && nvcc=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
flags="-std=gnu11 -D_GNU_SOURCE -I. -Wall -Werror"
theirs=
for folder in "$nvcc/include" /usr/include /usr/local/include /usr/local/cuda/include; do
    [ -f "$folder/nccl.h" ] || continue
    # It includes CUDA's headers, which may stand elsewhere.
    theirs="-isystem $folder${nvcc:+ -isystem $nvcc/include} -isystem /usr/local/cuda/include"
    break
done
[ -n "$theirs" ] || skip "nccl.h is not here, so what is declared of NCCL was not compared"
echo '#include <nccl.h>' | ${CC:-cc} $flags $theirs -fsyntax-only -x c - 2>"$work/said" ||
    skip "nccl.h does not compile here, so what is declared of NCCL was not compared: $(grep -m 1 error "$work/said")"

cat >"$work/both.c" <<'END'
#ifdef THEIRS
#include <nccl.h>
#endif
#include <stdio.h>

#include "worker/comm/nccl_api.h"

#ifdef FUNCTIONS
extern const struct nccl_api theirs;
const struct nccl_api theirs = {
    .get_version = ncclGetVersion,
    .get_unique_id = ncclGetUniqueId,
    .init_rank = ncclCommInitRankConfig,
    .finalize = ncclCommFinalize,
    .destroy = ncclCommDestroy,
    .comm_abort = ncclCommAbort,
    .async_error = ncclCommGetAsyncError,
    .error_string = ncclGetErrorString,
    .last_error = ncclGetLastError,
    .all_reduce = ncclAllReduce,
    .reduce_scatter = ncclReduceScatter,
    .all_gather = ncclAllGather,
    .broadcast = ncclBroadcast,
};
#else
#define SHOW(value) printf("%s %lld\n", #value, (long long)(value))
int main(void)
{
    SHOW(sizeof(ncclUniqueId));
    SHOW(sizeof(ncclResult_t));
    SHOW(sizeof(ncclRedOp_t));
    SHOW(sizeof(ncclDataType_t));
    SHOW(ncclSuccess);
    SHOW(ncclUnhandledCudaError);
    SHOW(ncclSystemError);
    SHOW(ncclInternalError);
    SHOW(ncclInvalidArgument);
    SHOW(ncclInvalidUsage);
    SHOW(ncclRemoteError);
    SHOW(ncclInProgress);
    SHOW(ncclSum);
    SHOW(ncclInt32);
    SHOW(ncclFloat32);
    SHOW(ncclFloat64);
    SHOW(ncclBfloat16);
    SHOW(sizeof ((ncclConfig_t *)0)->size);
    SHOW(sizeof ((ncclConfig_t *)0)->magic);
    SHOW(sizeof ((ncclConfig_t *)0)->version);
    SHOW(sizeof ((ncclConfig_t *)0)->blocking);
    SHOW(offsetof(ncclConfig_t, size));
    SHOW(offsetof(ncclConfig_t, magic));
    SHOW(offsetof(ncclConfig_t, version));
    SHOW(offsetof(ncclConfig_t, blocking));
#ifdef THEIRS
    const ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    unsigned magic = config.magic;
    int room = sizeof config >= NCCL_API_CONFIG_BYTES;
    int oldest = NCCL_VERSION(2, 14, 0);
#else
    unsigned magic = NCCL_API_MAGIC;
    int room = sizeof(ncclConfig_t) == NCCL_API_CONFIG_BYTES;
    int oldest = NCCL_API_OLDEST;
#endif
    SHOW(magic);
    SHOW(room);
    SHOW(oldest);
    return 0;
}
#endif
END
${CC:-cc} $flags $theirs -DTHEIRS -DFUNCTIONS -c "$work/both.c" -o "$work/functions.o" || exit 1
${CC:-cc} $flags $theirs -DTHEIRS "$work/both.c" -o "$work/theirs" || exit 1
[ -x "$work/theirs" ] || skip "there is no compiler here, so what is declared of NCCL was not compared"
"$work/theirs" >"$work/theirs.said" || exit 1
${CC:-cc} $flags "$work/both.c" -o "$work/ours" && "$work/ours" >"$work/ours.said" || exit 1
diff "$work/ours.said" "$work/theirs.said" || { echo "worker/comm/nccl_api.h (<) is not what $folder/nccl.h says (>)"; exit 1; }
echo "$(wc -l <"$work/ours.said") numbers and 13 functions are those of $folder/nccl.h"
