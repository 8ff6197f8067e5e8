/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trainer over several machines of one site, by MPI: example-trainer.c with the numbers shared out among its ranks.
 * Those on the daemon's machine share its memory; what the others have travels by MPI, to and from these.
 *
 *     mpicc example-ranks.c -o example-ranks $(pkg-config --cflags --libs diloco)
 *     DILOCO_SOCKET=/run/diloco/worker.sock mpirun -n 4 -H here:2,there:2 ./example-ranks
 *
 * Rank 0 has to be on the daemon's machine, which is where `program` in [worker] is started. Where srun starts ranks by
 * PMI it does as well as mpirun. All that libdiloco asks of MPI is in `struct ranks` and the functions up to
 * make_group(): they can be taken as they are, and one thread of each rank calls them.
 */
#include <diloco.h>
#include <fcntl.h>
#include <mpi.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { COUNT = 2000, BATCH = 32, PLACE_BYTES = 128, ENDING_MS = 10000 };

/* ---- the group, over a communicator of its own, so that no message of the model's is mistaken for one of these ----
 */

struct ranks {
    MPI_Comm comm;
    int rank, count;
    int near; /* this rank sees the processes of rank 0's machine */
    char name[MPI_MAX_PROCESSOR_NAME + 32];
    MPI_Request *under_way; /* by number - 1; MPI_REQUEST_NULL: free */
    int room;
};

/* A kernel, and processes that see each other: names of machines may be equal, and say nothing of containers. */
static void look_where(char place[PLACE_BYTES])
{
    memset(place, 0, PLACE_BYTES);
    FILE *boot = fopen("/proc/sys/kernel/random/boot_id", "r");
    size_t length = boot != NULL ? fread(place, 1, PLACE_BYTES / 2, boot) : 0;
    if (boot != NULL)
        fclose(boot);
    if (readlink("/proc/self/ns/pid", place + length, PLACE_BYTES / 2 - 1) < 0)
        snprintf(place + length, PLACE_BYTES / 2, "nowhere");
}

static int broadcast(void *user, void *bytes, size_t count, int *fd)
{
    struct ranks *ranks = user;
    int header[2] = {getpid(), *fd};
    if (MPI_Bcast(header, 2, MPI_INT, 0, ranks->comm) != MPI_SUCCESS ||
        MPI_Bcast(bytes, (int)count, MPI_BYTE, 0, ranks->comm) != MPI_SUCCESS)
        return -1;
    if (ranks->rank > 0) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/fd/%d", header[0], header[1]);
        *fd = header[1] >= 0 && ranks->near ? open(path, O_RDWR | O_CLOEXEC) : -1;
    }
    return header[1] < 0 || MPI_Barrier(ranks->comm) == MPI_SUCCESS ? 0 : -1; /* rank 0 may close it then */
}

static int meet(void *user)
{
    struct ranks *ranks = user;
    return MPI_Barrier(ranks->comm) == MPI_SUCCESS ? 0 : -1;
}

/* A place for one more on its way; its number, or 0. */
static int place_for(struct ranks *ranks)
{
    int at = 0;
    while (at < ranks->room && ranks->under_way[at] != MPI_REQUEST_NULL)
        at++;
    if (at == ranks->room) {
        int room = 2 * ranks->room + 16;
        MPI_Request *more = realloc(ranks->under_way, (size_t)room * sizeof *more);
        if (more == NULL)
            return 0;
        for (int i = ranks->room; i < room; i++)
            more[i] = MPI_REQUEST_NULL;
        ranks->under_way = more;
        ranks->room = room;
    }
    return at + 1;
}

static uint64_t send_to(void *user, int rank, uint32_t tag, const void *bytes, size_t count)
{
    struct ranks *ranks = user;
    int number = place_for(ranks);
    if (number == 0 || MPI_Isend(bytes, (int)count, MPI_BYTE, rank, (int)tag, ranks->comm,
                                 &ranks->under_way[number - 1]) != MPI_SUCCESS)
        return 0;
    return (uint64_t)number;
}

static uint64_t receive_from(void *user, int rank, uint32_t tag, void *bytes, size_t count)
{
    struct ranks *ranks = user;
    int number = place_for(ranks);
    if (number == 0 || MPI_Irecv(bytes, (int)count, MPI_BYTE, rank, (int)tag, ranks->comm,
                                 &ranks->under_way[number - 1]) != MPI_SUCCESS)
        return 0;
    return (uint64_t)number;
}

static int has_arrived(void *user, uint64_t number, int wait)
{
    struct ranks *ranks = user;
    MPI_Request *one = &ranks->under_way[number - 1];
    int there = 1;
    int result = wait ? MPI_Wait(one, MPI_STATUS_IGNORE) : MPI_Test(one, &there, MPI_STATUS_IGNORE);
    return result == MPI_SUCCESS ? there : -1;
}

static struct diloco_group make_group(struct ranks *ranks)
{
    char own[PLACE_BYTES], first[PLACE_BYTES], host[MPI_MAX_PROCESSOR_NAME] = "";
    int length, all_near;
    MPI_Comm_dup(MPI_COMM_WORLD, &ranks->comm);
    MPI_Comm_set_errhandler(ranks->comm, MPI_ERRORS_RETURN); /* libdiloco says who was lost */
    MPI_Comm_rank(ranks->comm, &ranks->rank);
    MPI_Comm_size(ranks->comm, &ranks->count);
    MPI_Get_processor_name(host, &length);
    snprintf(ranks->name, sizeof ranks->name, "rank %d on %s", ranks->rank, host);
    look_where(own);
    memcpy(first, own, sizeof first);
    MPI_Bcast(first, sizeof first, MPI_BYTE, 0, ranks->comm);
    ranks->near = memcmp(own, first, sizeof own) == 0;
    MPI_Allreduce(&ranks->near, &all_near, 1, MPI_INT, MPI_MIN, ranks->comm);
    struct diloco_group group = {.size = sizeof group,
                                 .rank = ranks->rank,
                                 .count = ranks->count,
                                 .name = ranks->name,
                                 .user = ranks,
                                 .broadcast = broadcast,
                                 .barrier = meet};
    if (!all_near) {
        group.send = send_to;
        group.receive = receive_from;
        group.arrived = has_arrived;
    }
    return group;
}

/* ---- training ---- */

/* A number between -1 and 1. */
static float noise(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(*state >> 32) / 2147483648.0f;
}

/* A batch system, or the daemon when it is stopped, asks by SIGTERM: the last contributions go out, and we end. */
static volatile sig_atomic_t is_asked;

static void ask(int number)
{
    (void)number;
    is_asked = 1;
}

/* One optimizer step on this rank's `count` numbers, from `first` on; returns the loss of all ranks before it. With it
 * they hear whether any of them was asked to end: a scheduler may ask one alone, and it is for rank 0 to say. */
static double sgd_step(float *w, int first, int count, uint64_t *random, MPI_Comm comm, bool *any_is_asked)
{
    double loss = 0, own[2], all[2];
    for (int i = 0; i < COUNT; i++) {
        float wanted = (float)(i % 17) / 17 + noise(random); /* all ranks draw all, so that it matters not how many */
        if (i < first || i >= first + count)
            continue;
        float error = w[i - first] - wanted;
        loss += 0.5 * error * error / COUNT;
        w[i - first] -= 0.05f * error;
    }
    own[0] = loss, own[1] = is_asked;
    MPI_Allreduce(own, all, 2, MPI_DOUBLE, MPI_SUM, comm);
    *any_is_asked = all[1] > 0;
    return all[0];
}

/* Ends all ranks, as one that is alone waits for the others. */
static int failed(struct diloco *d, const char *what)
{
    fprintf(stderr, "%s: %s\n", what, diloco_error(d));
    MPI_Abort(MPI_COMM_WORLD, 1);
    return 1;
}

static int train(struct diloco *d, float *w, int first, int count, const struct diloco_start *start,
                 const struct timespec *pause)
{
    uint64_t random = diloco_seed(d, 1);
    int result = start->step < start->steps ? DILOCO_OK : DILOCO_STOP;
    while (result == DILOCO_OK) {
        bool ends;
        double loss = sgd_step(w, first, count, &random, MPI_COMM_WORLD, &ends);
        struct diloco_report report = {.size = sizeof report, .tokens = BATCH, .loss = loss};
        if (ends)
            diloco_ending(d, ENDING_MS);
        result = diloco_step(d, &report);
        nanosleep(pause, NULL);
    }
    return result == DILOCO_STOP ? diloco_finish(d) : result;
}

/* An argument is the milliseconds that a step takes at least, as those of a model do. */
int main(int argc, char **argv)
{
    const struct timespec pause = {.tv_nsec = argc > 1 ? atol(argv[1]) % 1000 * 1000000 : 0};
    struct ranks ranks = {0};
    struct diloco *d;
    MPI_Init(&argc, &argv);
    signal(SIGTERM, ask);
    setvbuf(stdout, NULL, _IOLBF, 0); /* lines, also where it is no terminal */
    struct diloco_group group = make_group(&ranks);
    const int first = COUNT * ranks.rank / ranks.count, count = COUNT * (ranks.rank + 1) / ranks.count - first;
    float *w = calloc((size_t)count + 1, sizeof *w);

    struct diloco_options options = {
        .size = sizeof options, .trainer = "example-ranks", .wait_ms = 5000, .group = &group};
    if (w == NULL || diloco_attach(&options, &d) != DILOCO_OK)
        return failed(d, "attach");
    struct diloco_tensor tensor = {.size = sizeof tensor,
                                   .name = "w",
                                   .data = w,
                                   .dims = 1,
                                   .shape = {COUNT},
                                   .layer = DILOCO_LAYER_NONE,
                                   .part = {.columns = COUNT, .first = (uint64_t)first, .count = (uint64_t)count}};
    struct diloco_start start = {.size = sizeof start};
    if (diloco_register(d, &tensor) != DILOCO_OK || diloco_begin(d, &start) != DILOCO_OK)
        return failed(d, "begin");
    printf("island %s, %s of %d, after step %llu of %llu\n", start.island, ranks.name, ranks.count,
           (unsigned long long)start.step, (unsigned long long)start.steps);

    int result = train(d, w, first, count, &start, &pause);
    if (result == DILOCO_OPEN) /* this island leaves, or others are away: the run may go on */
        printf("not the end: %s\n", diloco_error(d));
    else if (result != DILOCO_OK)
        return failed(d, "train");
    printf("done: w[%d] = %.9g, wanted %.3f\n", first, (double)w[0], first % 17 / 17.0);
    diloco_detach(d);
    free(w);
    free(ranks.under_way);
    MPI_Comm_free(&ranks.comm);
    MPI_Finalize();
    return 0;
}
