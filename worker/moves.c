/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/moves.h"

#include "common/log.h"
#include "common/mem.h"

/* Pieces of memory aside, used in turn, one set for each way; and values in all pieces of a set at most. */
enum { PIECES = 4, SET_VALUES_MAX = 32 << 20 };
enum { MARKS = 256 };

struct piece {
    float *values;
    uint64_t mark; /* of the queue that used it last: then it may be written again */
};

struct set {
    struct piece piece[PIECES];
    unsigned next;
};

struct moves {
    struct diloco_device device;
    const struct kern *kern;
    struct kern_dev *dev;
    float *w;
    int64_t count;
    moves_act *act;
    const void *user; /* of act() */
    size_t piece_values;
    struct set out, in;
    float *memory;
    /* Mark n of ours stands for two of the device's; those of more than MARKS ago are looked up as the oldest kept. */
    struct {
        uint64_t main, copy;
    } marks[MARKS];
    uint64_t marks_published;
    bool refused; /* to pin */
};

/* The next piece of a set, to be written in `writer`; `user` is the queue that read it last. */
static struct piece *next_piece(struct moves *m, struct set *set, enum kern_queue writer, enum kern_queue user)
{
    struct piece *piece = &set->piece[set->next++ % PIECES];
    if (piece->mark != 0 && !m->kern->reached(m->dev, piece->mark))
        m->kern->order(m->dev, writer, user);
    return piece;
}

/* ---- one piece of a move: some rows, or a part of one, that fit ---- */

struct part {
    const struct diloco_move *move;
    size_t at; /* values of the tensor before it */
    float *tensor;
    size_t host; /* values in host memory before it */
    size_t rows, columns, count;
};

/* Bytes from one row in host memory to the next; of one row it says nothing, but no copy takes less than its length. */
static size_t host_stride(const struct part *p)
{
    return (p->rows > 1 ? p->move->stride : p->columns) * sizeof(float);
}

static void send_out(struct moves *m, const struct part *p)
{
    const size_t row = p->columns * sizeof(float);
    struct piece *piece = next_piece(m, &m->out, KERN_MAIN, KERN_COPY);
    m->kern->copy(m->dev, KERN_MAIN, piece->values, p->tensor, p->count * sizeof(float));
    m->kern->order(m->dev, KERN_COPY, KERN_MAIN);
    m->kern->copy_rows(m->dev, KERN_COPY, p->move->host + p->host, host_stride(p), piece->values, row, row, p->rows);
    piece->mark = m->kern->mark(m->dev, KERN_COPY);
}

/* Values of `host` on the device, when MAIN has come here; `*piece` is to be marked after their use. */
static float *bring_in(struct moves *m, const struct part *p, const float *host, struct piece **piece)
{
    const size_t row = p->columns * sizeof(float);
    if (host == NULL)
        return NULL;
    *piece = next_piece(m, &m->in, KERN_COPY, KERN_MAIN);
    m->kern->copy_rows(m->dev, KERN_COPY, (*piece)->values, row, host + p->host, host_stride(p), row, p->rows);
    m->kern->order(m->dev, KERN_MAIN, KERN_COPY);
    return (*piece)->values;
}

/* Where the products' copy of a tensor's values lies; NULL: there is none, as of what is beside the tensors. */
static kern_act *act_of(const struct moves *m, const float *tensor)
{
    if (tensor < m->w || tensor >= m->w + m->count)
        return NULL;
    return m->act(m->user, tensor);
}

static void write_in(struct moves *m, const struct part *p, const float *values)
{
    kern_act *act = act_of(m, p->tensor);
    m->kern->copy(m->dev, KERN_MAIN, p->tensor, values, p->count * sizeof(float));
    if (act != NULL)
        m->kern->to_act(m->dev, act, p->tensor, (int64_t)p->count);
}

static void compute(struct moves *m, const struct part *p, const float *host, const float *base)
{
    const struct diloco_move *move = p->move;
    const struct kern_aside rule = {(float)move->keep, (float)move->fresh, (float)move->past_share, (float)move->decay};
    float *aside = move->aside != NULL ? (float *)move->aside + move->beside + p->at : NULL;
    float *past = move->past != NULL ? (float *)move->past + move->beside + p->at : NULL;
    kern_act *act = act_of(m, p->tensor);
    int64_t count = (int64_t)p->count;
    switch (move->kind) {
    case DILOCO_READ: break; /* send_out() */
    case DILOCO_WRITE: write_in(m, p, host); break;
    case DILOCO_MIX: m->kern->mix(m->dev, p->tensor, act, host, count, rule.keep); break;
    case DILOCO_SHIFT: m->kern->shift(m->dev, p->tensor, act, host, base, count); break;
    case DILOCO_ASIDE_OUT: m->kern->aside_out(m->dev, p->tensor, act, base, aside, past, count, rule); break;
    case DILOCO_ASIDE_COUNTED:
    case DILOCO_ASIDE_MISSED:
        m->kern->aside_in(m->dev, p->tensor, act, base, host, aside, past, move->kind == DILOCO_ASIDE_COUNTED, count,
                          rule);
        break;
    case DILOCO_ASIDE_LOOK: m->kern->find_bad(m->dev, move->bad, aside, count); break;
    case DILOCO_ASIDE_OFF: m->kern->aside_off(m->dev, p->tensor, act, aside, past, move->bad, count, rule); break;
    }
}

static void move_part(struct moves *m, const struct part *p)
{
    struct piece *host = NULL, *base = NULL;
    if (p->move->kind == DILOCO_READ) {
        send_out(m, p);
        return;
    }
    const float *host_values = bring_in(m, p, p->move->host, &host);
    compute(m, p, host_values, bring_in(m, p, p->move->base, &base));
    uint64_t mark = host != NULL || base != NULL ? m->kern->mark(m->dev, KERN_MAIN) : 0;
    if (host != NULL)
        host->mark = mark;
    if (base != NULL)
        base->mark = mark;
}

/* ---- the device ---- */

static int device_move(void *user, const struct diloco_move *move)
{
    struct moves *m = user;
    size_t row_pieces = move->columns > m->piece_values ? 1 : m->piece_values / move->columns;
    for (size_t row = 0; row < move->rows; row += row_pieces) {
        struct part p = {.move = move, .rows = move->rows - row < row_pieces ? move->rows - row : row_pieces};
        for (size_t column = 0; column < move->columns; column += p.columns) {
            size_t left = move->columns - column;
            p.columns = left < m->piece_values ? left : m->piece_values;
            p.count = p.rows * p.columns;
            p.at = row * move->columns + column;
            p.tensor = (float *)move->tensor + move->first + p.at;
            p.host = row * move->stride + column;
            move_part(m, &p);
        }
    }
    return m->kern->fault(m->dev) == ERR_OK ? 0 : -1;
}

static uint64_t device_mark(void *user)
{
    struct moves *m = user;
    uint64_t number = ++m->marks_published;
    m->marks[number % MARKS].main = m->kern->mark(m->dev, KERN_MAIN);
    m->marks[number % MARKS].copy = m->kern->mark(m->dev, KERN_COPY);
    return number;
}

static int device_reached(void *user, uint64_t mark)
{
    struct moves *m = user;
    uint64_t oldest = m->marks_published >= MARKS ? m->marks_published - MARKS + 1 : 1;
    uint64_t number = mark < oldest ? oldest : mark;
    if (m->kern->fault(m->dev) != ERR_OK)
        return -1;
    return m->kern->reached(m->dev, m->marks[number % MARKS].main) &&
           m->kern->reached(m->dev, m->marks[number % MARKS].copy);
}

static void *device_alloc(void *user, size_t values)
{
    struct moves *m = user;
    void *out;
    return m->kern->alloc(m->dev, values * sizeof(float), "work set aside", &out) == ERR_OK ? out : NULL;
}

static void device_free(void *user, void *memory)
{
    struct moves *m = user;
    m->kern->free(m->dev, memory);
}

static void device_pin(void *user, void *memory, size_t bytes)
{
    struct moves *m = user;
    m->refused = m->kern->pin(m->dev, memory, bytes) != ERR_OK;
    if (m->refused)
        log_warn("the memory shared with the daemon cannot be pinned: %s; exchanging is slower", err_text());
}

static void device_unpin(void *user, void *memory)
{
    struct moves *m = user;
    if (!m->refused)
        m->kern->unpin(m->dev, memory);
}

static size_t piece_values(int64_t count)
{
    size_t set = count < SET_VALUES_MAX ? (size_t)count : SET_VALUES_MAX;
    return ((set + PIECES - 1) / PIECES + 63) / 64 * 64;
}

size_t moves_memory(int64_t count)
{
    return 2 * PIECES * piece_values(count) * sizeof(float);
}

enum err moves_new(const struct kern *kern, struct kern_dev *dev, float *w, int64_t count, moves_act *act,
                   const void *user, struct moves **out)
{
    struct moves *m;
    *out = NULL;
    TRY(mem_new(1, sizeof *m, "moves of parameters", &m));
    *m = (struct moves){.kern = kern, .dev = dev, .w = w, .count = count, .act = act, .user = user};
    m->piece_values = piece_values(count);
    enum err err = kern->alloc(dev, moves_memory(count), "moves of parameters", (void **)&m->memory);
    if (err != ERR_OK) {
        mem_free(m);
        return err;
    }
    for (size_t i = 0; i < PIECES; i++) {
        m->out.piece[i].values = m->memory + i * m->piece_values;
        m->in.piece[i].values = m->memory + (PIECES + i) * m->piece_values;
    }
    m->device = (struct diloco_device){.size = sizeof m->device,
                                       .user = m,
                                       .move = device_move,
                                       .mark = device_mark,
                                       .reached = device_reached,
                                       .alloc = device_alloc,
                                       .free = device_free,
                                       .pin = device_pin,
                                       .unpin = device_unpin};
    *out = m;
    return ERR_OK;
}

void moves_free(struct moves *m)
{
    if (m == NULL)
        return;
    m->kern->free(m->dev, m->memory);
    mem_free(m);
}

const struct diloco_device *moves_device(const struct moves *m)
{
    return &m->device;
}
