#include "worker/model/model_shares.h"

#include "worker/comm/comm.h"
#include "worker/model/model_work.h"

static bool alone(const struct model *m)
{
    return m->ranks == 1;
}

static kern_act *act_at(const struct model *m, int64_t value)
{
    return (char *)m->act + (size_t)value * m->kern->act_bytes;
}

static enum comm_type act_type(const struct model *m)
{
    return m->kern->act_bytes == sizeof(float) ? COMM_F32 : COMM_BF16;
}

int model_pieces(const struct model *m)
{
    return alone(m) ? 1 : m->buckets_count;
}

struct model_piece model_piece(const struct model *m, int index)
{
    if (alone(m))
        return (struct model_piece){0, m->flat_count, 0};
    const struct model_bucket *bucket = &m->buckets[index];
    int64_t count = bucket->count / m->ranks;
    return (struct model_piece){bucket->begin + m->rank * count, count, bucket->begin / m->ranks};
}

static int bucket_of(const struct model *m, int64_t value)
{
    int b = 0;
    while (b < m->buckets_count - 1 && value >= m->buckets[b + 1].begin)
        b++;
    return b;
}

struct model_share model_share(const struct model *m, const struct model_tensor *tensor)
{
    struct model_piece piece = model_piece(m, bucket_of(m, tensor->offset));
    int64_t begin = tensor->offset > piece.begin ? tensor->offset : piece.begin;
    int64_t end = tensor->offset + tensor->count;
    end = end < piece.begin + piece.count ? end : piece.begin + piece.count;
    if (end <= begin)
        return (struct model_share){0, 0, piece.at};
    return (struct model_share){begin - tensor->offset, end - begin, piece.at + begin - piece.begin};
}

int64_t model_flat_of(const struct model *m, int64_t at)
{
    struct model_piece piece = model_piece(m, alone(m) ? 0 : bucket_of(m, at * m->ranks));
    return piece.begin + at - piece.at;
}

kern_act *model_act_of(const struct model *m, const float *own)
{
    return act_at(m, model_flat_of(m, own - m->w));
}

/* ---- gradients ---- */

void model_sum_next(struct model *m)
{
    m->work->sums = !alone(m);
}

enum err model_bucket_done(struct model *m, int index)
{
    struct model_piece piece = model_piece(m, alone(m) ? 0 : index);
    if (!m->work->sums)
        return ERR_OK;
    m->kern->order(m->dev, KERN_COMM, KERN_MAIN);
    return m->dp->calls->reduce_scatter(m->dp, KERN_COMM, m->grad + piece.begin, m->grad + m->buckets[index].begin,
                                        piece.count, COMM_F32);
}

void model_await_sums(struct model *m)
{
    m->work->sums = false;
    if (!alone(m))
        m->kern->order(m->dev, KERN_MAIN, KERN_COMM);
}

enum err model_gather_grads(struct model *m, int index)
{
    struct model_piece piece = model_piece(m, index);
    if (alone(m))
        return ERR_OK;
    m->kern->order(m->dev, KERN_COMM, KERN_MAIN);
    TRY(m->dp->calls->all_gather(m->dp, KERN_COMM, m->grad + m->buckets[index].begin, m->grad + piece.begin,
                                 piece.count, COMM_F32));
    m->kern->order(m->dev, KERN_MAIN, KERN_COMM);
    return ERR_OK;
}

enum err model_send_grads(struct model *m, const struct model_tensor *tensor, int root)
{
    if (alone(m))
        return ERR_OK;
    m->kern->order(m->dev, KERN_COMM, KERN_MAIN);
    TRY(m->dp->calls->broadcast(m->dp, KERN_COMM, m->grad + tensor->offset, tensor->count, COMM_F32, root));
    m->kern->order(m->dev, KERN_MAIN, KERN_COMM);
    return ERR_OK;
}

enum err model_mean(struct model *m, double *value)
{
    const struct kern *k = m->kern;
    if (alone(m))
        return ERR_OK;
    k->copy(m->dev, KERN_MAIN, m->loss, value, sizeof *value);
    TRY(m->dp->calls->all_reduce(m->dp, KERN_MAIN, m->loss, 1, COMM_F64));
    k->copy(m->dev, KERN_MAIN, value, m->loss, sizeof *value);
    k->zero(m->dev, m->loss, sizeof *m->loss);
    *value /= m->ranks;
    return k->sync(m->dev);
}

/* ---- masters ---- */

enum err model_spread(struct model *m)
{
    if (alone(m))
        return ERR_OK;
    m->kern->order(m->dev, KERN_COMM, KERN_MAIN);
    for (int b = 0; b < m->buckets_count; b++) {
        struct model_piece piece = model_piece(m, b);
        TRY(m->dp->calls->all_gather(m->dp, KERN_COMM, act_at(m, m->buckets[b].begin), act_at(m, piece.begin),
                                     piece.count, act_type(m)));
    }
    m->kern->order(m->dev, KERN_MAIN, KERN_COMM);
    return ERR_OK;
}

enum err model_gather(struct model *m, const struct model_tensor *tensor, const float *own)
{
    int b = bucket_of(m, tensor->offset);
    struct model_piece piece = model_piece(m, b);
    m->kern->order(m->dev, KERN_COMM, KERN_MAIN);
    TRY(m->dp->calls->all_gather(m->dp, KERN_COMM, m->grad + m->buckets[b].begin, own + piece.at, piece.count,
                                 COMM_F32));
    m->kern->order(m->dev, KERN_MAIN, KERN_COMM);
    return ERR_OK;
}

void model_gathered_end(struct model *m, const struct model_tensor *tensor)
{
    const struct model_bucket *bucket = &m->buckets[bucket_of(m, tensor->offset)];
    m->kern->zero(m->dev, m->grad + bucket->begin, (size_t)bucket->count * sizeof *m->grad);
}
