/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/model/model_shares.h"

#include "worker/comm/comm.h"
#include "worker/model/model_layout.h"
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

/* ---- what is whose ---- */

int model_pieces(const struct model *m)
{
    return alone(m) ? 1 : m->buckets_count;
}

struct model_piece model_piece(const struct model *m, int index)
{
    const struct model_bucket *bucket = &m->buckets[index];
    if (alone(m))
        return (struct model_piece){0, m->flat_count, 0};
    return (struct model_piece){bucket->begin + m->grid.row * bucket->own, bucket->own, bucket->at};
}

static int bucket_of(const struct model *m, int64_t value)
{
    int b = 0;
    while (b < m->buckets_count - 1 && value >= m->buckets[b + 1].begin)
        b++;
    return b;
}

int model_parts(const struct model *m, const struct model_tensor *tensor)
{
    return tensor->dims > 1 ? m->grid.tp : 1;
}

struct model_part model_part_of(const struct model *m, const struct model_tensor *tensor, int column)
{
    struct model_part part = tensor->part;
    bool by_vocabulary = tensor->layer < 0;
    if (tensor->dims == 1)
        return part;
    if (by_vocabulary) {
        part.row = m->V * column / m->grid.tp;
        part.rows = m->V * (column + 1) / m->grid.tp - part.row;
    } else if (part.columns < (int64_t)tensor->shape[1]) {
        part.column = column * part.columns;
    } else {
        part.row = column * part.rows;
    }
    return part;
}

struct model_share model_share(const struct model *m, const struct model_tensor *tensor)
{
    struct model_piece piece = model_piece(m, bucket_of(m, tensor->offset));
    int64_t begin = tensor->offset > piece.begin ? tensor->offset : piece.begin;
    int64_t end = tensor->offset + tensor->part.rows * tensor->part.columns;
    end = end < piece.begin + piece.count ? end : piece.begin + piece.count;
    if (end <= begin)
        return (struct model_share){0, 0, piece.at};
    return (struct model_share){begin - tensor->offset, end - begin, piece.at + begin - piece.begin};
}

int64_t model_flat_of(const struct model *m, int64_t at)
{
    int p = 0;
    while (p < model_pieces(m) - 1 && at >= model_piece(m, p + 1).at)
        p++;
    struct model_piece piece = model_piece(m, p);
    return piece.begin + at - piece.at;
}

kern_act *model_act_of(const struct model *m, const float *own)
{
    return act_at(m, model_flat_of(m, own - m->w));
}

/* ---- collectives ---- */

/* They begin when what MAIN holds is done, */
static void to_comm(struct model *m)
{
    m->kern->order(m->dev, KERN_COMM, KERN_MAIN);
}

/* and what MAIN is given from here on begins when they are. */
static enum err from_comm(struct model *m, enum err err)
{
    m->kern->order(m->dev, KERN_MAIN, KERN_COMM);
    return err;
}

static enum err sum_number(struct model *m, struct comm *comm, double *number)
{
    if (comm == NULL)
        return ERR_OK;
    to_comm(m);
    return from_comm(m, comm->calls->all_reduce(comm, KERN_COMM, number, 1, COMM_F64));
}

void model_row_begin(struct model *m)
{
    if (m->grid.of_row != NULL)
        to_comm(m);
}

enum err model_row_sum(struct model *m, kern_act *array, int64_t count)
{
    struct comm *row = m->grid.of_row;
    if (row == NULL)
        return ERR_OK;
    return from_comm(m, row->calls->all_reduce(row, KERN_COMM, array, count, act_type(m)));
}

enum err model_row_gather(struct model *m, float *array, int64_t count)
{
    struct comm *row = m->grid.of_row;
    if (row == NULL)
        return ERR_OK;
    to_comm(m);
    return from_comm(m, row->calls->all_gather(row, KERN_COMM, array, array + row->rank * count, count, COMM_F32));
}

/* ---- gradients ---- */

void model_sum_next(struct model *m)
{
    m->work->sums = m->grid.of_column != NULL;
}

enum err model_bucket_done(struct model *m, int index)
{
    struct comm *column = m->grid.of_column;
    struct model_piece piece = model_piece(m, index);
    if (!m->work->sums || piece.count == 0)
        return ERR_OK;
    to_comm(m);
    return column->calls->reduce_scatter(column, KERN_COMM, m->grad + piece.begin, m->grad + m->buckets[index].begin,
                                         piece.count, COMM_F32);
}

void model_await_sums(struct model *m)
{
    m->work->sums = false;
    if (m->grid.of_column != NULL)
        m->kern->order(m->dev, KERN_MAIN, KERN_COMM);
}

enum err model_sum_all(struct model *m, double *number)
{
    return sum_number(m, m->grid.of_all, number);
}

enum err model_sum_rows(struct model *m, double *number)
{
    return sum_number(m, m->grid.of_column, number);
}

enum err model_check(struct model *m)
{
    return alone(m) ? ERR_OK : m->grid.of_all->calls->check(m->grid.of_all);
}

enum err model_mean(struct model *m, double *value)
{
    const struct kern *k = m->kern;
    if (m->grid.of_column == NULL)
        return ERR_OK;
    k->copy(m->dev, KERN_MAIN, m->loss, value, sizeof *value);
    TRY(model_sum_rows(m, m->loss));
    k->copy(m->dev, KERN_MAIN, value, m->loss, sizeof *value);
    k->zero(m->dev, m->loss, sizeof *m->loss);
    *value /= m->grid.dp;
    TRY(k->sync(m->dev));
    return model_check(m);
}

enum err model_gather_grads(struct model *m, int index)
{
    struct comm *column = m->grid.of_column;
    struct model_piece piece = model_piece(m, index);
    if (column == NULL || piece.count == 0)
        return ERR_OK;
    to_comm(m);
    return from_comm(m, column->calls->all_gather(column, KERN_COMM, m->grad + m->buckets[index].begin,
                                                  m->grad + piece.begin, piece.count, COMM_F32));
}

/* Parts that lie one after the other become the matrix that they are. */
static void interleave(struct model *m, const struct model_tensor *tensor, float *whole, const float *parts)
{
    size_t bytes = (size_t)tensor->part.columns * sizeof *whole, width = (size_t)tensor->shape[1] * sizeof *whole;
    for (int column = 0; column < m->grid.tp; column++) {
        struct model_part part = model_part_of(m, tensor, column);
        m->kern->copy_rows(m->dev, KERN_MAIN, whole + part.row * (int64_t)tensor->shape[1] + part.column, width, parts,
                           bytes, bytes, (size_t)part.rows);
        parts += part.rows * part.columns;
    }
}

enum err model_gather_whole(struct model *m, const struct model_tensor *tensor, float *room, float **whole)
{
    int64_t count = tensor->part.rows * tensor->part.columns;
    float *parts = room + tensor->count;
    *whole = m->grad + tensor->offset;
    if (m->grid.of_row == NULL)
        return ERR_OK;
    m->kern->copy(m->dev, KERN_MAIN, parts + m->grid.column * count, *whole, (size_t)count * sizeof *parts);
    TRY(model_row_gather(m, parts, count));
    *whole = room;
    interleave(m, tensor, room, parts);
    return ERR_OK;
}

void model_keep_part(struct model *m, const struct model_tensor *tensor, const float *whole)
{
    const struct model_part *part = &tensor->part;
    size_t bytes = (size_t)part->columns * sizeof *whole, width = (size_t)tensor->shape[1] * sizeof *whole;
    if (m->grid.of_row == NULL)
        return;
    m->kern->copy_rows(m->dev, KERN_MAIN, m->grad + tensor->offset, bytes,
                       whole + part->row * (int64_t)tensor->shape[1] + part->column, width, bytes, (size_t)part->rows);
}

enum err model_send_grads(struct model *m, const struct model_tensor *tensor, int root)
{
    struct comm *column = m->grid.of_column;
    if (column == NULL)
        return ERR_OK;
    to_comm(m);
    return from_comm(m, column->calls->broadcast(column, KERN_COMM, m->grad + tensor->offset,
                                                 tensor->part.rows * tensor->part.columns, COMM_F32, root));
}

/* ---- masters ---- */

enum err model_spread(struct model *m)
{
    struct comm *column = m->grid.of_column, *row = m->grid.of_row;
    const struct model_bucket *norms = &m->buckets[MODEL_BUCKET_NORMS];
    enum err err = ERR_OK;
    if (alone(m))
        return ERR_OK;
    to_comm(m);
    for (int b = 0; b < m->buckets_count && column != NULL && err == ERR_OK; b++) {
        struct model_piece piece = model_piece(m, b);
        if (piece.count > 0)
            err = column->calls->all_gather(column, KERN_COMM, act_at(m, m->buckets[b].begin), act_at(m, piece.begin),
                                            piece.count, act_type(m));
    }
    if (row != NULL && err == ERR_OK)
        err = row->calls->broadcast(row, KERN_COMM, act_at(m, norms->begin), norms->count, act_type(m), 0);
    return from_comm(m, err);
}

enum err model_gather(struct model *m, const struct model_tensor *tensor, int column, const float *own,
                      const float **at)
{
    int b = bucket_of(m, tensor->offset);
    struct model_piece piece = model_piece(m, b);
    struct model_part part = model_part_of(m, tensor, column);
    struct comm *of_row = m->grid.of_row, *of_column = m->grid.of_column;
    enum err err = ERR_OK;
    float *to = m->grad + m->buckets[b].begin;
    bool ours = column == m->grid.column;
    if (ours && of_column == NULL)
        m->kern->copy(m->dev, KERN_MAIN, to, own + piece.at, (size_t)piece.count * sizeof *to);
    to_comm(m);
    if (ours && of_column != NULL)
        err = of_column->calls->all_gather(of_column, KERN_COMM, to, own + piece.at, piece.count, COMM_F32);
    if (err == ERR_OK && of_row != NULL)
        err = of_row->calls->broadcast(of_row, KERN_COMM, m->grad + tensor->offset, part.rows * part.columns, COMM_F32,
                                       column);
    *at = m->grad + tensor->offset;
    return from_comm(m, err);
}

void model_gathered_end(struct model *m, const struct model_tensor *tensor)
{
    const struct model_bucket *bucket = &m->buckets[bucket_of(m, tensor->offset)];
    m->kern->zero(m->dev, m->grad + bucket->begin, (size_t)bucket->count * sizeof *m->grad);
}
