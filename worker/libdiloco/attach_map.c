/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/libdiloco/attach_map.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/err.h"
#include "common/ipc.h"
#include "common/mem.h"
#include "worker/libdiloco/attach_device.h"
#include "worker/libdiloco/attach_far.h"
#include "worker/libdiloco/attach_group.h"
#include "worker/libdiloco/attach_link.h"
#include "worker/libdiloco/attach_move.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* of Linux 5.14 */
#endif

enum { MAP_PIECE = 256 << 20 };

/* Where the tensors lie in their fragments. */
static int place_tensors(struct diloco *d)
{
    const struct ipc_place *places = ipc_places(d->shm);
    for (uint32_t i = 0; i < d->tensors_count; i++) {
        struct tensor *tensor = &d->tensors[i];
        tensor->place = places[i];
        if (tensor->place.count != tensor->whole || tensor->place.fragment >= d->shm->fragments_count)
            return attach_fail(d, DILOCO_ERROR, "the daemon has another size for tensor %s", tensor->announced.name);
        tensor->own_offset = d->local[tensor->place.fragment].own_count;
        d->local[tensor->place.fragment].own_count += tensor->count;
    }
    return attach_make_beside(d);
}

/* All pages at once: the first snapshot of a fragment would else find them one by one, in a step, which takes it many
 * times as long as the copy; and a machine without memory for them would kill the trainer there. An older kernel does
 * not do this; there it is so. */
static int touch_shared(struct diloco *d)
{
    for (uint64_t at = 0, piece; at < d->shm->bytes; at += piece) {
        piece = d->shm->bytes - at < MAP_PIECE ? d->shm->bytes - at : MAP_PIECE;
        if (!attach_follows(d) && attach_interrupted(d))
            return attach_fail(d, DILOCO_INTERRUPTED, "interrupted while memory was shared with the daemon");
        if (d->far == NULL) /* else they wait for this rank's word, where no other is expected */
            attach_group_awake(d);
        if (madvise((char *)d->shm + at, (size_t)piece, MADV_POPULATE_WRITE) == 0)
            continue;
        if (errno == EINVAL || errno == EINTR)
            return DILOCO_OK;
        return attach_fail(d, DILOCO_ERROR,
                           "no memory for the %" PRIu64
                           " MiB that are shared with the daemon (%s): end other programs, "
                           "give this machine or its container more, or train a smaller model",
                           d->shm->bytes >> 20, strerror(errno));
    }
    return DILOCO_OK;
}

/* Memory that somebody makes smaller later is a SIGBUS in the middle of training. */
static bool may_shrink(int memfd)
{
    int seals = fcntl(memfd, F_GET_SEALS);
    return seals < 0 || (seals & F_SEAL_SHRINK) == 0;
}

static int map_shared(struct diloco *d, int memfd)
{
    if (memfd < 0 && attach_follows(d) && d->far != NULL)
        return DILOCO_OK; /* a far rank */
    if (memfd < 0 && attach_follows(d))
        return attach_fail(d, DILOCO_ERROR,
                           "rank %d got no descriptor of the daemon's memory, as one on another machine does not, and "
                           "options.group has no send, receive and arrived to reach it by",
                           d->group.rank);
    if (memfd >= 0 && may_shrink(memfd)) {
        close(memfd);
        return attach_fail(d, DILOCO_ERROR,
                           "the daemon's shared memory is not sealed, so it may go away under this trainer; is the "
                           "daemon of the same version?");
    }
    off_t bytes = memfd >= 0 ? lseek(memfd, 0, SEEK_END) : -1;
    if (bytes < (off_t)sizeof(struct ipc_shm)) {
        if (memfd >= 0)
            close(memfd);
        return attach_fail(d, DILOCO_ERROR, "the daemon sent no shared memory; is it of the same version?");
    }
    struct ipc_shm *map = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
    if (map == MAP_FAILED) {
        attach_fail(d, DILOCO_ERROR, "cannot map the daemon's shared memory: %s", strerror(errno));
        close(memfd);
        return DILOCO_ERROR;
    }
    if (ipc_shm_check(map, (uint64_t)bytes) != ERR_OK || map->tensors_count != d->tensors_count) {
        munmap(map, (size_t)bytes);
        close(memfd);
        return attach_fail(d, DILOCO_ERROR, "the daemon's shared memory does not fit: %s", err_text());
    }
    d->memfd = memfd;
    d->shm = map;
    if (mem_new(map->fragments_count, sizeof *d->local, "fragments", &d->local) != ERR_OK ||
        attach_link_reserve(d, map->fragments_count) != ERR_OK)
        return attach_fail(d, DILOCO_ERROR, "%s", err_text());
    int result = touch_shared(d);
    if (result != DILOCO_OK)
        return result;
    attach_device_pin(d, d->shm, (size_t)d->shm->bytes);
    return DILOCO_OK;
}

int attach_map(struct diloco *d, int memfd, uint64_t session)
{
    int result = attach_far_meet(d, map_shared(d, memfd));
    d->session = session;
    if (result == DILOCO_OK)
        result = place_tensors(d);
    return result == DILOCO_OK ? attach_far_parts(d) : result;
}
