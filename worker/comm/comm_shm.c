/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/comm/comm_shm.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/env.h"
#include "common/mem.h"
#include "common/processors.h"
#include "worker/comm/comm_sum.h"
#include "worker/comm/handover.h"

enum { SPINS = 2000, LINE_BYTES = 64 };
static const double PATIENCE_S = 60, SLICE_S = .1; /* nobody sleeps longer without a look at who is gone */

/* Of one rank, for all its communicators. */
struct base {
    const struct group_seat *seat;
    const struct group_page *page;
    const struct kern *kern;
    struct kern_dev *dev;
    double patience_s;
    bool pinned;
    int spins;
    unsigned users;
    uint64_t handovers[GROUP_RANKS_MAX]; /* descriptors that went to or came from that rank */
    char given_up[GROUP_WHY_BYTES];      /* what cancel() says: it may have no time to write it */
};

struct shm {
    struct comm comm;
    struct base *base;
    uint32_t slot;
    uint32_t turn;               /* how often it has waited for all */
    int member[GROUP_RANKS_MAX]; /* rank here to rank in the page */
};

/* ---- who waits, and what is wrong ---- */

static struct group_rank *own(const struct shm *shm)
{
    return group_rank(shm->base->page, shm->base->seat->rank);
}

static struct group_slot *slot_of(const struct shm *shm, int member)
{
    return &group_rank(shm->base->page, shm->member[member])->slot[shm->slot];
}

static enum err closed(const struct shm *shm)
{
    return group_closed(shm->base->page);
}

/* All shall know what has gone wrong here, unless it is that something had gone wrong before. */
static enum err fail(const struct shm *shm, enum group_op op, enum err err)
{
    return group_fail(shm->base->page, shm->base->seat->rank, op, err);
}

static bool has_come(const struct shm *shm, int member)
{
    return (int32_t)(atomic_load(&slot_of(shm, member)->came) - shm->turn) >= 0;
}

static enum err give_up(const struct shm *shm, enum group_op op, const char *how)
{
    char why[GROUP_WHY_BYTES] = "";
    const struct group_page *page = shm->base->page;
    size_t at = 0;
    int missing = 0;
    for (int i = 0; i < shm->comm.count; i++) {
        if (has_come(shm, i) || at >= sizeof why)
            continue;
        int rank = shm->member[i];
        at += (size_t)snprintf(why + at, sizeof why - at, "%s %d (%s)", missing == 0 ? "rank" : ",", rank,
                               group_device(page, rank));
        missing++;
    }
    if (at < sizeof why)
        snprintf(why + at, sizeof why - at, " %s %s, where rank %d (%s) waits", how, group_op_name(op),
                 shm->base->seat->rank, group_device(page, shm->base->seat->rank));
    group_cancel(page, ERR_STATE, why);
    return closed(shm);
}

static void pause_a_moment(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* `*waited`: seconds of patience gone, in which a rank that is stopped for a while does not lose its own. */
static enum err wait_for(struct shm *shm, enum group_op op, int member, double *waited)
{
    _Atomic uint32_t *word = &slot_of(shm, member)->came;
    const struct group_rank *other = group_rank(shm->base->page, shm->member[member]);
    char how[64];
    for (int i = 0; i < shm->base->spins && !has_come(shm, member); i++)
        pause_a_moment();
    for (;;) {
        uint32_t seen = atomic_load(word);
        bool left = atomic_load(&other->left) != 0; /* what it did before it left is seen after this */
        if (has_come(shm, member))
            return ERR_OK;
        if (group_cancelled(shm->base->page))
            return closed(shm);
        if (left)
            return give_up(shm, op, "ended before");
        if (*waited >= shm->base->patience_s) {
            snprintf(how, sizeof how, "has not come in %g s to", shm->base->patience_s);
            return give_up(shm, op, how);
        }
        double rest = shm->base->patience_s - *waited, begin = env_mono_s();
        group_sleep(word, seen, rest < SLICE_S ? rest : SLICE_S);
        double slept = env_mono_s() - begin;
        *waited += slept < 2 * SLICE_S ? slept : 2 * SLICE_S;
    }
}

/* All wait for all. What each wrote before is seen by all after it. */
static enum err meet(struct shm *shm, enum group_op op)
{
    double waited = 0;
    struct group_rank *me = own(shm);
    shm->turn++;
    atomic_fetch_add(&me->beat, 1);
    atomic_store(&me->slot[shm->slot].came, shm->turn);
    group_wake(&me->slot[shm->slot].came);
    atomic_store(&me->waits, 1);
    enum err err = ERR_OK;
    for (int i = 0; i < shm->comm.count && err == ERR_OK; i++)
        err = wait_for(shm, op, i, &waited);
    atomic_store(&me->waits, 0);
    return err;
}

/* The first time that all meet in a collective: have they come to the same one? */
static enum err meet_for(struct shm *shm, enum group_op op, uint64_t what)
{
    uint32_t call = (uint32_t)env_mix64(env_mix64(what) ^ op);
    /* By parity: who has gone on from here writes the other one, and waits for us before it comes back to this one. */
    uint32_t parity = (shm->turn + 1) & 1;
    atomic_store(&own(shm)->slot[shm->slot].call[parity], call);
    TRY(meet(shm, op));
    for (int i = 0; i < shm->comm.count; i++)
        if (atomic_load(&slot_of(shm, i)->call[parity]) != call)
            return err_set(ERR_STATE, "rank %d (%s) has come to something else: a fault in this program, or two of it",
                           shm->member[i], group_device(shm->base->page, shm->member[i]));
    return ERR_OK;
}

static enum err begin(struct shm *shm, enum group_op op)
{
    if (group_cancelled(shm->base->page))
        return closed(shm);
    TRY(fail(shm, op, group_page_check(shm->base->page)));
    atomic_store(&own(shm)->op, op);
    return ERR_OK;
}

static enum err end(struct shm *shm, enum group_op op, enum err err)
{
    atomic_store(&own(shm)->op, GROUP_IDLE);
    return fail(shm, op, err);
}

/* ---- arrays, in pieces ---- */

/* Piece k goes through half k mod 2 of the areas: while it is summed, the next one is on its way into the other. */
struct job {
    enum group_op op;
    enum kern_queue queue;
    bool host; /* the array is in the host's memory */
    const char *in;
    char *out;
    int64_t count, piece; /* values: of what is cut, and of a piece of it */
    size_t value;         /* bytes of one */
    enum comm_type type;
    int root;
};

static char *area(const struct shm *shm, int member, int64_t k)
{
    const struct group_page *page = shm->base->page;
    return group_stage(page, shm->member[member]) + (size_t)(k & 1) * (page->fixed.stage_bytes / 2);
}

static int64_t piece_count(const struct job *job, int64_t k)
{
    int64_t rest = job->count - k * job->piece;
    return rest < job->piece ? rest : job->piece;
}

/* Where the share of a piece begins that a rank sums: on a cache line of its own. */
static int64_t share(const struct shm *shm, const struct job *job, int64_t count, int member)
{
    int64_t unit = (int64_t)(LINE_BYTES / job->value);
    int64_t units = (count + unit - 1) / unit;
    int64_t at = units * member / shm->comm.count * unit;
    return at < count ? at : count;
}

static void put(const struct shm *shm, const struct job *job, void *to, const void *from, int64_t count)
{
    if (count == 0)
        return;
    if (job->host)
        memcpy(to, from, (size_t)count * job->value);
    else
        shm->base->kern->copy(shm->base->dev, job->queue, to, from, (size_t)count * job->value);
}

/* Until the copies that were queued are done. */
static enum err settle(const struct shm *shm, const struct job *job)
{
    const struct kern *kern = shm->base->kern;
    return job->host ? ERR_OK : kern->wait(shm->base->dev, kern->mark(shm->base->dev, job->queue));
}

static void send_in(const struct shm *shm, const struct job *job, int64_t k)
{
    int64_t count = piece_count(job, k);
    size_t at = (size_t)(k * job->piece) * job->value, bytes = (size_t)count * job->value;
    char *half = area(shm, shm->comm.rank, k);
    if (job->op == GROUP_REDUCE_SCATTER)
        shm->base->kern->copy_rows(shm->base->dev, job->queue, half, bytes, job->in + at,
                                   (size_t)job->count * job->value, bytes, (size_t)shm->comm.count);
    else if (job->root < 0 || job->root == shm->comm.rank)
        put(shm, job, half, job->in + at, count);
}

static void sum(const struct shm *shm, const struct job *job, int64_t k)
{
    const void *part[GROUP_RANKS_MAX];
    int64_t count = piece_count(job, k);
    int me = shm->comm.rank;
    int64_t first = job->op == GROUP_REDUCE_SCATTER ? me * count : share(shm, job, count, me);
    int64_t last = job->op == GROUP_REDUCE_SCATTER ? first + count : share(shm, job, count, me + 1);
    size_t at = (size_t)first * job->value;
    for (int i = 0; i < shm->comm.count; i++)
        part[i] = area(shm, i, k) + at;
    comm_sum(job->type, area(shm, me, k) + at, part, shm->comm.count, last - first);
}

static void take_out(const struct shm *shm, const struct job *job, int64_t k)
{
    int64_t count = piece_count(job, k), at = k * job->piece;
    int me = shm->comm.rank;
    if (job->op == GROUP_REDUCE_SCATTER) {
        put(shm, job, job->out + (size_t)at * job->value, area(shm, me, k) + (size_t)(me * count) * job->value, count);
        return;
    }
    if (job->root >= 0) {
        if (job->root != me)
            put(shm, job, job->out + (size_t)at * job->value, area(shm, job->root, k), count);
        return;
    }
    for (int i = 0; i < shm->comm.count; i++) {
        if (job->op == GROUP_ALL_GATHER) {
            char *to = job->out + (size_t)(i * job->count + at) * job->value;
            if (to != job->in + (size_t)at * job->value)
                put(shm, job, to, area(shm, i, k), count);
            continue;
        }
        int64_t first = share(shm, job, count, i), last = share(shm, job, count, i + 1);
        put(shm, job, job->out + (size_t)(at + first) * job->value, area(shm, i, k) + (size_t)first * job->value,
            last - first);
    }
}

static enum err move(struct shm *shm, const struct job *job, uint64_t what)
{
    bool sums = job->op == GROUP_ALL_REDUCE || job->op == GROUP_REDUCE_SCATTER;
    int64_t pieces = (job->count + job->piece - 1) / job->piece;
    send_in(shm, job, 0);
    for (int64_t k = 0; k < pieces; k++) {
        /* All have sent piece k in, and are done with taking k - 1 out: its half is free. */
        TRY(settle(shm, job));
        TRY(k == 0 ? meet_for(shm, job->op, what) : meet(shm, job->op));
        if (k + 1 < pieces)
            send_in(shm, job, k + 1);
        if (sums)
            sum(shm, job, k);
        if (job->op == GROUP_ALL_REDUCE) /* the others' shares are to be there */
            TRY(meet(shm, job->op));
        take_out(shm, job, k);
    }
    /* The areas are free again, for any communicator. */
    TRY(settle(shm, job));
    return meet(shm, job->op);
}

static enum err check_job(const struct shm *shm, const struct job *job)
{
    if (job->count < 0 || job->value == 0 || job->root >= shm->comm.count ||
        job->count > INT64_MAX / 8 / GROUP_RANKS_MAX)
        return err_set(ERR_ARG, "%s of %lld values of type %d from rank %d", group_op_name(job->op),
                       (long long)job->count, (int)job->type, job->root);
    return ERR_OK;
}

/* root -1: there is none. */
static enum err run(struct comm *comm, struct job job)
{
    struct shm *shm = (struct shm *)comm;
    int64_t rows = job.op == GROUP_REDUCE_SCATTER ? comm->count : 1;
    TRY(check_job(shm, &job));
    TRY(begin(shm, job.op));
    if (job.count == 0 || comm->count == 1) {
        if (job.in != job.out)
            put(shm, &job, job.out, job.in, job.count);
        return end(shm, job.op, ERR_OK);
    }
    job.piece = (int64_t)(shm->base->page->fixed.stage_bytes / 2 / job.value) / rows;
    uint64_t what = (uint64_t)job.count ^ (uint64_t)job.type << 56 ^ (uint64_t)(job.root + 1) << 48;
    enum err err = move(shm, &job, what);
    if (err != ERR_OK && settle(shm, &job) != ERR_OK) /* what is still being copied is the caller's again */
        err = err == ERR_CLOSED ? closed(shm) : err;
    return end(shm, job.op, err);
}

static enum err shm_all_reduce(struct comm *comm, enum kern_queue queue, void *array, int64_t count,
                               enum comm_type type)
{
    return run(comm, (struct job){.op = GROUP_ALL_REDUCE,
                                  .queue = queue,
                                  .in = array,
                                  .out = array,
                                  .count = count,
                                  .value = comm_type_bytes(type),
                                  .type = type,
                                  .root = -1});
}

static enum err shm_reduce_scatter(struct comm *comm, enum kern_queue queue, void *part, const void *array,
                                   int64_t count, enum comm_type type)
{
    return run(comm, (struct job){.op = GROUP_REDUCE_SCATTER,
                                  .queue = queue,
                                  .in = array,
                                  .out = part,
                                  .count = count,
                                  .value = comm_type_bytes(type),
                                  .type = type,
                                  .root = -1});
}

static enum err shm_all_gather(struct comm *comm, enum kern_queue queue, void *array, const void *part, int64_t count,
                               enum comm_type type)
{
    return run(comm, (struct job){.op = GROUP_ALL_GATHER,
                                  .queue = queue,
                                  .in = part,
                                  .out = array,
                                  .count = count,
                                  .value = comm_type_bytes(type),
                                  .type = type,
                                  .root = -1});
}

static enum err bad_root(int root)
{
    return err_set(ERR_ARG, "a broadcast from rank %d, which there is not", root);
}

static enum err shm_broadcast(struct comm *comm, enum kern_queue queue, void *array, int64_t count, enum comm_type type,
                              int root)
{
    if (root < 0)
        return bad_root(root);
    return run(comm, (struct job){.op = GROUP_BROADCAST,
                                  .queue = queue,
                                  .in = array,
                                  .out = array,
                                  .count = count,
                                  .value = comm_type_bytes(type),
                                  .type = type,
                                  .root = root});
}

static enum err shm_check(struct comm *comm)
{
    struct shm *shm = (struct shm *)comm;
    return group_cancelled(shm->base->page) ? closed(shm) : ERR_OK;
}

static enum err shm_barrier(struct comm *comm)
{
    struct shm *shm = (struct shm *)comm;
    TRY(begin(shm, GROUP_BARRIER));
    return end(shm, GROUP_BARRIER, meet_for(shm, GROUP_BARRIER, 0));
}

/* ---- between hosts ---- */

static enum err receive(struct shm *shm, int socket, uint64_t number, int *fd)
{
    double waited = 0;
    for (;;) {
        enum err err = handover_receive(socket, number, fd);
        if (err != ERR_AGAIN && err != ERR_CLOSED)
            return err;
        if (group_cancelled(shm->base->page))
            return closed(shm);
        if (waited >= shm->base->patience_s)
            return err_set(ERR_STATE, "rank 0 has not sent the descriptor in %g s", shm->base->patience_s);
        /* Of one that is gone the launcher knows more, and will tell. */
        struct pollfd look = {.fd = err == ERR_AGAIN ? socket : -1, .events = POLLIN};
        (void)poll(&look, 1, (int)(SLICE_S * 1000));
        waited += SLICE_S;
    }
}

static enum err pass_on(struct shm *shm, int root, int *fd)
{
    struct base *base = shm->base;
    uint64_t nonce = base->page->fixed.nonce;
    if (shm->comm.rank != root)
        return receive(shm, base->seat->socket[shm->member[root]], nonce + base->handovers[shm->member[root]]++, fd);
    for (int i = 0; i < shm->comm.count; i++) {
        if (i == root)
            continue;
        int rank = shm->member[i];
        enum err err = handover_send(base->seat->socket[rank], nonce + base->handovers[rank]++, *fd);
        if (err != ERR_OK && err != ERR_CLOSED)
            return err;
    }
    return ERR_OK;
}

static enum err shm_host_broadcast(struct comm *comm, void *bytes, size_t count, int *fd, int root)
{
    struct shm *shm = (struct shm *)comm;
    if (root < 0 || root >= comm->count)
        return bad_root(root);
    if (fd != NULL && shm->member[root] != 0)
        return err_set(ERR_ARG, "a descriptor from rank %d: only rank 0 of all can send one", shm->member[root]);
    TRY(run(comm, (struct job){.op = GROUP_HOST_BROADCAST,
                               .host = true,
                               .in = bytes,
                               .out = bytes,
                               .count = (int64_t)count,
                               .value = 1,
                               .root = root}));
    if (fd == NULL || comm->count == 1)
        return ERR_OK;
    TRY(begin(shm, GROUP_HOST_BROADCAST));
    enum err err = meet_for(shm, GROUP_HOST_BROADCAST, UINT64_MAX);
    if (err == ERR_OK)
        err = pass_on(shm, root, fd);
    return end(shm, GROUP_HOST_BROADCAST, err);
}

/* ---- making, splitting, ending ---- */

static const struct comm_calls shm_calls;

static enum err make(struct base *base, uint32_t slot, struct shm **out)
{
    struct shm *shm;
    TRY(mem_new(1, sizeof *shm, "a communicator", &shm));
    shm->comm.calls = &shm_calls;
    shm->base = base;
    shm->slot = slot;
    base->users++;
    *out = shm;
    return ERR_OK;
}

struct wish {
    int32_t key;
    int rank; /* in the one that is split */
};

/* Those of our color, in order. */
static void choose(const struct shm *from, int color, struct shm *to)
{
    struct wish wish[GROUP_RANKS_MAX];
    int count = 0;
    for (int i = 0; i < from->comm.count; i++) {
        const struct group_rank *rank = group_rank(from->base->page, from->member[i]);
        if (i != from->comm.rank && atomic_load(&rank->color) != color)
            continue;
        struct wish new = {.key = atomic_load(&rank->key), .rank = i};
        int at = count++;
        for (; at > 0 && wish[at - 1].key > new.key; at--)
            wish[at] = wish[at - 1];
        wish[at] = new;
    }
    to->comm.count = count;
    for (int i = 0; i < count; i++) {
        to->member[i] = from->member[wish[i].rank];
        if (wish[i].rank == from->comm.rank)
            to->comm.rank = i;
    }
}

/* All of one split have the same slot, which none of them has used. Those of other colors may have it, too: a slot is
 * a place in each rank's own row. */
static enum err next_slot(const struct shm *shm, uint32_t *slot)
{
    *slot = 0;
    for (int i = 0; i < shm->comm.count; i++) {
        uint32_t used = atomic_load(&group_rank(shm->base->page, shm->member[i])->slots);
        *slot = used > *slot ? used : *slot;
    }
    if (*slot >= GROUP_SLOTS)
        return err_set(ERR_STATE, "more than %d communicators", GROUP_SLOTS);
    return ERR_OK;
}

static enum err split(struct shm *shm, int color, int key, struct shm *new)
{
    struct group_rank *me = own(shm);
    atomic_store(&me->color, color);
    atomic_store(&me->key, key);
    TRY(meet_for(shm, GROUP_SPLIT, 0));
    choose(shm, color, new);
    enum err err = next_slot(shm, &new->slot);
    TRY(meet(shm, GROUP_SPLIT)); /* all have read it */
    TRY(err);
    atomic_store(&me->slots, new->slot + 1);
    new->turn = atomic_load(&me->slot[new->slot].came);
    return ERR_OK;
}

static void shm_free(struct comm *comm)
{
    struct shm *shm = (struct shm *)comm;
    if (shm == NULL)
        return;
    struct base *base = shm->base;
    mem_free(shm);
    if (--base->users > 0)
        return;
    if (base->pinned)
        base->kern->unpin(base->dev, group_stage(base->page, 0));
    mem_free(base);
}

static enum err shm_split(struct comm *comm, int color, int key, struct comm **out)
{
    struct shm *shm = (struct shm *)comm, *new;
    *out = NULL;
    TRY(begin(shm, GROUP_SPLIT));
    enum err err = make(shm->base, 0, &new);
    if (err == ERR_OK && (err = split(shm, color, key, new)) != ERR_OK)
        shm_free(&new->comm);
    if (err == ERR_OK)
        *out = &new->comm;
    return end(shm, GROUP_SPLIT, err);
}

static void shm_cancel(struct comm *comm)
{
    const struct base *base = ((struct shm *)comm)->base;
    group_cancel(base->page, ERR_STATE, base->given_up);
}

const struct group_seat *comm_shm_seat(const struct comm *comm)
{
    return ((const struct shm *)comm)->base->seat;
}

uint32_t comm_shm_slot(const struct comm *comm)
{
    return ((const struct shm *)comm)->slot;
}

int comm_shm_member(const struct comm *comm, int rank)
{
    return ((const struct shm *)comm)->member[rank];
}

static const struct comm_calls shm_calls = {
    .all_reduce = shm_all_reduce,
    .reduce_scatter = shm_reduce_scatter,
    .all_gather = shm_all_gather,
    .broadcast = shm_broadcast,
    .check = shm_check,
    .barrier = shm_barrier,
    .host_broadcast = shm_host_broadcast,
    .split = shm_split,
    .cancel = shm_cancel,
    .free = shm_free,
};

/* To spin is to take a processor from the one that is waited for, unless there is one for each. */
static int spins_for(uint32_t ranks)
{
    return processors_here() >= ranks ? SPINS : 0;
}

enum err comm_shm_new(const struct group_seat *seat, const struct kern *kern, struct kern_dev *dev, double patience_s,
                      struct comm **out)
{
    struct base *base;
    struct shm *shm;
    const struct group_fixed *fixed = &seat->page->fixed;
    *out = NULL;
    TRY(group_page_check(seat->page));
    if (seat->rank < 0 || seat->rank >= (int)fixed->ranks)
        return err_set(ERR_ARG, "rank %d of %u", seat->rank, fixed->ranks);
    TRY(mem_new(1, sizeof *base, "a communicator", &base));
    *base = (struct base){.seat = seat,
                          .page = seat->page,
                          .kern = kern,
                          .dev = dev,
                          .patience_s = patience_s > 0 ? patience_s : PATIENCE_S,
                          .spins = spins_for(fixed->ranks)};
    snprintf(base->given_up, sizeof base->given_up, "rank %d (%s) has given up", seat->rank,
             group_device(seat->page, seat->rank));
    enum err err = make(base, 0, &shm);
    if (err != ERR_OK) {
        mem_free(base);
        return err;
    }
    shm->comm.rank = seat->rank;
    shm->comm.count = (int)fixed->ranks;
    for (int i = 0; i < shm->comm.count; i++)
        shm->member[i] = i;
    struct group_rank *me = own(shm);
    shm->turn = atomic_load(&me->slot[0].came);
    if (atomic_load(&me->slots) == 0)
        atomic_store(&me->slots, 1);
    base->pinned = kern->pin(dev, group_stage(seat->page, 0), fixed->bytes - fixed->stage_offset) == ERR_OK;
    *out = &shm->comm;
    return ERR_OK;
}
