/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives through NCCL on real GPUs.
 *
 *   test_nccl_gpu        one rank on one GPU: NCCL starts, takes our streams, moves arrays, and ends
 *   test_nccl_gpu two    a rank on each of the GPUs 0 and 1; of two values NCCL's sums, too, are ours to the bit
 */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/gpu.h"
#include "tests/lib/ranks.h"
#include "worker/comm/comm_nccl.h"
#include "worker/comm/comm_open.h"

static const int64_t counts[] = {1, 127, 4999, 100003};

static enum err check_all(const struct ranks *ranks)
{
    struct comm *group;
    for (int queue = KERN_MAIN; queue < KERN_QUEUES; queue++)
        TRY(ranks_check_all(ranks, (enum kern_queue)queue, counts, 4));
    TRY(ranks->comm->calls->split(ranks->comm, 0, -ranks->comm->rank, &group));
    const struct ranks turned = {.kern = ranks->kern, .dev = ranks->dev, .comm = group};
    CHECK(group->rank == group->count - 1 - ranks->comm->rank);
    TRY(ranks_check_all(&turned, KERN_COMM, counts, 2));
    TRY(group->calls->check(group));
    group->calls->free(group);
    return ranks->comm->calls->check(ranks->comm);
}

/* ---- one rank ---- */

static enum err be_one(const struct nccl_api *api, struct ranks *ranks)
{
    const char *device[] = {"cuda:0"};
    struct group_page page;
    struct comm *host;
    float *array;
    TRY(group_page_new(1, device, 0, &page));
    struct group_seat seat = {.page = &page};
    TRY(comm_shm_new(&seat, ranks->kern, ranks->dev, 0, &host));
    TRY(comm_nccl_new(api, host, ranks->kern, ranks->dev, 0, &ranks->comm));
    TRY(check_all(ranks));
    /* An end in the midst leaves a device that works. */
    TRY(ranks->kern->alloc(ranks->dev, sizeof *array, "a test's array", (void **)&array));
    TRY(ranks->comm->calls->all_reduce(ranks->comm, KERN_COMM, array, 1, COMM_F32));
    ranks->comm->calls->cancel(ranks->comm);
    CHECK(ranks->comm->calls->all_reduce(ranks->comm, KERN_COMM, array, 1, COMM_F32) == ERR_CLOSED);
    CHECK(ranks->comm->calls->check(ranks->comm) == ERR_CLOSED);
    ranks->comm->calls->free(ranks->comm);
    ranks->kern->free(ranks->dev, array);
    group_page_free(&page);
    return ranks->kern->sync(ranks->dev);
}

static int one(void)
{
    struct ranks ranks;
    struct nccl_api api;
    int version = 0;
    int status = gpu_open(&ranks.kern, &ranks.dev);
    if (status != 0)
        return status;
    enum err err = nccl_api_open(&api);
    if (err != ERR_OK) {
        printf("skipped: %s\n", err_text());
        ranks.kern->close(ranks.dev);
        return GPU_SKIPPED;
    }
    api.get_version(&version);
    printf("NCCL %d.%d.%d\n", version / 10000, version % 10000 / 100, version % 100);
    fflush(stdout);
    err = be_one(&api, &ranks);
    if (err != ERR_OK)
        fprintf(stderr, "%s\n", err_text());
    ranks.kern->close(ranks.dev);
    return err != ERR_OK;
}

/* ---- two ---- */

static enum err be_one_of_two(void *user, const struct launch_rank *rank)
{
    char number[16];
    struct ranks ranks;
    (void)user;
    snprintf(number, sizeof number, "%d", rank->device);
    setenv("DILOCO_GPU", number, 1);
    if (gpu_open(&ranks.kern, &ranks.dev) != 0)
        return err_set(ERR_NOTFOUND, "there are no two GPUs that can be used");
    TRY(comm_open(rank->seat, ranks.kern, ranks.dev, rank->patience_s, &ranks.comm));
    TRY(check_all(&ranks));
    TRY(ranks.comm->calls->barrier(ranks.comm));
    ranks_close(&ranks);
    return ERR_OK;
}

static int two(void)
{
    static const int numbers[] = {0, 1};
    const struct launch_conf conf = {.ranks = 2, .device = "cuda", .number = numbers};
    enum err err = launch_run(&conf, be_one_of_two, NULL);
    if (err == ERR_OK)
        return 0;
    printf("%s%s\n", err == ERR_NOTFOUND ? "skipped: " : "", err_text());
    return err == ERR_NOTFOUND ? GPU_SKIPPED : 1;
}

int main(int argc, char **argv)
{
    return argc > 1 && strcmp(argv[1], "two") == 0 ? two() : one();
}
