/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/comm/comm_open.h"

#include <string.h>

#include "common/log.h"
#include "worker/comm/comm_nccl.h"
#include "worker/comm/comm_shm.h"
#include "worker/comm/nccl_api.h"

enum comm_kind comm_kind_of(const struct group_page *page)
{
    int ranks = (int)page->fixed.ranks;
    bool shared = false, several = false;
    for (int i = 1; i < ranks; i++) {
        bool seen = false;
        for (int j = 0; j < i; j++)
            seen |= strcmp(group_device(page, i), group_device(page, j)) == 0;
        shared |= seen;
        several |= !seen;
    }
    if (!several)
        return COMM_SHM;
    return shared ? COMM_SHM_MIXED : COMM_NCCL;
}

static enum err open_nccl(const struct group_seat *seat, const struct kern *kern, struct kern_dev *dev,
                          double patience_s, struct comm **out)
{
    struct nccl_api api;
    struct comm *host;
    TRY(nccl_api_open(&api));
    TRY(comm_shm_new(seat, kern, dev, patience_s, &host));
    return comm_nccl_new(&api, host, kern, dev, patience_s, out);
}

enum err comm_open(const struct group_seat *seat, const struct kern *kern, struct kern_dev *dev, double patience_s,
                   struct comm **out)
{
    enum comm_kind kind = comm_kind_of(seat->page);
    *out = NULL;
    if (kern->stream(dev, KERN_MAIN) == NULL) /* on the CPU */
        kind = COMM_SHM;
    if (kind == COMM_NCCL)
        return open_nccl(seat, kern, dev, patience_s, out);
    if (kind == COMM_SHM && seat->page->fixed.ranks > 1 && !kern->on_host && seat->rank == 0)
        log_warn("all ranks have one GPU (%s), where they take turns; give each one of its own (--devices)",
                 group_device(seat->page, 0));
    if (kind == COMM_SHM_MIXED && seat->rank == 0)
        log_warn("several ranks have one GPU, which NCCL refuses: sums go through memory of the host, which is slower; "
                 "give each rank a GPU of its own, or all of them one");
    return comm_shm_new(seat, kern, dev, patience_s, out);
}
