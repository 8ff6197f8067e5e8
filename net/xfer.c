#include "net/xfer.h"

#include <string.h>

#include "common/mem.h"

/*
 * CHUNK: small enough that a 10 Mbit/s link sends one in 52 ms, large enough that headers vanish.
 * PROBE: silence from the receiver after which a sender asks; STALL: silence from the sender after which a receiver
 * asks to resume; LATER: pause after "not yet". STANDS: a transfer that brought nothing for so long may be begun from
 * elsewhere. RESUME: a gap is complained about at most this often. ACK_PARTS: a small window is acknowledged in so
 * many parts, or the sender would stand still between two.
 */
enum {
    CHUNK_BYTES = 64 << 10,
    ACK_BYTES = 4 * CHUNK_BYTES,
    PROBE_MS = 1500,
    STALL_MS = 1000,
    LATER_MS = 300,
    STANDS_MS = 3000,
    RESUME_MS = 200,
    ACK_PARTS = 4
};

struct outgoing {
    bool used;
    uint32_t peer;
    struct wire_key key;
    const uint8_t *data;
    uint64_t total, cursor, acked;
    uint64_t heard_ms; /* last word from the receiver, or our last probe */
    uint64_t not_before_ms;
    uint64_t order; /* of arrival */
};

struct incoming {
    bool used;
    bool complete; /* whole; waiting for xfer_finish() */
    uint32_t peer;
    struct wire_key key;
    uint8_t *buffer;
    uint64_t total, have;
    uint64_t acked;    /* what the sender was last told */
    uint64_t heard_ms; /* last chunk, or our last resume */
    uint64_t moved_ms; /* last chunk that brought something new */
    uint64_t resume_ms;
};

struct xfer {
    struct xfer_conf conf;
    struct outgoing *outgoing;
    struct incoming *incoming;
    uint64_t window[WIRE_MEMBERS_MAX];
    uint64_t order;
    uint32_t turn; /* peer whose turn it is to be served first */
    uint64_t now_ms;
    struct xfer_message *queue; /* ring */
    size_t queue_room, queue_head, queue_count;
    uint64_t arrived; /* bytes acknowledged */
};

enum err xfer_new(const struct xfer_conf *conf, struct xfer **out)
{
    enum err err;
    struct xfer *xfer = NULL;
    *out = NULL;
    TRY_OUT(mem_new(1, sizeof *xfer, "transfers", &xfer));
    xfer->conf = *conf;
    xfer->queue_room = 2 * ((size_t)conf->outgoing_max + conf->incoming_max) + 64;
    TRY_OUT(mem_new(conf->outgoing_max, sizeof *xfer->outgoing, "transfers", &xfer->outgoing));
    TRY_OUT(mem_new(conf->incoming_max, sizeof *xfer->incoming, "transfers", &xfer->incoming));
    TRY_OUT(mem_new(xfer->queue_room, sizeof *xfer->queue, "transfers", &xfer->queue));
    for (uint32_t i = 0; i < WIRE_MEMBERS_MAX; i++)
        xfer->window[i] = CHUNK_BYTES; /* until the peer says more */
out:
    if (err != ERR_OK)
        xfer_free(xfer);
    else
        *out = xfer;
    return err;
}

void xfer_free(struct xfer *xfer)
{
    if (xfer == NULL)
        return;
    mem_free(xfer->outgoing);
    mem_free(xfer->incoming);
    mem_free(xfer->queue);
    mem_free(xfer);
}

void xfer_set_window(struct xfer *xfer, uint32_t peer, uint64_t window_bytes)
{
    xfer->window[peer] = window_bytes;
}

/* ---- control messages ---- */

/* A full queue drops: every message here is repeated by a timer until it has had its effect. */
static void enqueue(struct xfer *xfer, struct xfer_message message)
{
    if (xfer->queue_count < xfer->queue_room)
        xfer->queue[(xfer->queue_head + xfer->queue_count++) % xfer->queue_room] = message;
}

static void say_ack(struct xfer *xfer, uint32_t peer, const struct wire_key *key, uint64_t have, bool resume)
{
    enqueue(xfer, (struct xfer_message){.peer = peer, .type = WIRE_ACK, .key = *key, .bytes = have, .resume = resume});
}

static void say_done(struct xfer *xfer, uint32_t peer, const struct wire_key *key, enum wire_done status)
{
    enqueue(xfer, (struct xfer_message){.peer = peer, .type = WIRE_DONE, .key = *key, .status = status});
}

bool xfer_message(struct xfer *xfer, struct xfer_message *message)
{
    if (xfer->queue_count == 0)
        return false;
    *message = xfer->queue[xfer->queue_head];
    xfer->queue_head = (xfer->queue_head + 1) % xfer->queue_room;
    xfer->queue_count--;
    return true;
}

/* ---- sending ---- */

static struct outgoing *find_outgoing(struct xfer *xfer, uint32_t peer, const struct wire_key *key)
{
    for (uint32_t i = 0; i < xfer->conf.outgoing_max; i++) {
        struct outgoing *o = &xfer->outgoing[i];
        if (o->used && o->peer == peer && wire_key_equal(&o->key, key))
            return o;
    }
    return NULL;
}

enum err xfer_send(struct xfer *xfer, uint32_t peer, const struct wire_key *key, const uint8_t *data, uint64_t bytes,
                   uint64_t now_ms)
{
    struct outgoing *free_slot = find_outgoing(xfer, peer, key);
    if (free_slot != NULL)
        return ERR_OK;
    for (uint32_t i = 0; i < xfer->conf.outgoing_max && free_slot == NULL; i++)
        if (!xfer->outgoing[i].used)
            free_slot = &xfer->outgoing[i];
    if (free_slot == NULL)
        return err_set(ERR_NOMEM, "more than %u transfers at a time", xfer->conf.outgoing_max);
    *free_slot = (struct outgoing){.used = true,
                                   .peer = peer,
                                   .key = *key,
                                   .data = data,
                                   .total = bytes,
                                   .heard_ms = now_ms,
                                   .order = xfer->order++};
    return ERR_OK;
}

uint64_t xfer_outstanding(const struct xfer *xfer, uint32_t peer)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < xfer->conf.outgoing_max; i++) {
        const struct outgoing *o = &xfer->outgoing[i];
        if (o->used && o->peer == peer)
            sum += o->cursor - o->acked;
    }
    return sum;
}

/* Results first: the others stand still without them. States last: nobody stands still for them. */
static int urgency(uint32_t kind)
{
    return kind == WIRE_RESULT ? 0 : kind == WIRE_CONTRIBUTION ? 1 : 2;
}

static bool before(const struct outgoing *left, const struct outgoing *right)
{
    int l = urgency(left->key.kind);
    int r = urgency(right->key.kind);
    return l != r ? l < r : left->order < right->order;
}

static struct outgoing *first_for(struct xfer *xfer, uint32_t peer)
{
    struct outgoing *best = NULL;
    for (uint32_t i = 0; i < xfer->conf.outgoing_max; i++) {
        struct outgoing *o = &xfer->outgoing[i];
        if (o->used && o->peer == peer && o->cursor < o->total && xfer->now_ms >= o->not_before_ms &&
            (best == NULL || before(o, best)))
            best = o;
    }
    return best;
}

bool xfer_next(struct xfer *xfer, const struct bitset *blocked, struct xfer_chunk *chunk)
{
    for (uint32_t k = 0; k < xfer->conf.peers_count; k++) {
        uint32_t peer = (xfer->turn + k) % xfer->conf.peers_count;
        if (bitset_has(blocked, peer))
            continue;
        struct outgoing *o = first_for(xfer, peer);
        if (o == NULL)
            continue;
        uint64_t bytes = o->total - o->cursor < CHUNK_BYTES ? o->total - o->cursor : CHUNK_BYTES;
        uint64_t outstanding = xfer_outstanding(xfer, peer);
        if (outstanding > 0 && outstanding + bytes > xfer->window[peer])
            continue;
        *chunk = (struct xfer_chunk){.peer = peer,
                                     .key = o->key,
                                     .total = o->total,
                                     .offset = o->cursor,
                                     .data = o->data + o->cursor,
                                     .bytes = (size_t)bytes};
        xfer->turn = (peer + 1) % xfer->conf.peers_count;
        return true;
    }
    return false;
}

void xfer_sent(struct xfer *xfer, const struct xfer_chunk *chunk, uint64_t now_ms)
{
    struct outgoing *o = find_outgoing(xfer, chunk->peer, &chunk->key);
    xfer->now_ms = now_ms;
    if (o == NULL || o->cursor != chunk->offset)
        return;
    if (o->cursor == o->acked)
        o->heard_ms = now_ms; /* nothing was outstanding: the clock starts now */
    o->cursor += chunk->bytes;
}

void xfer_cancel(struct xfer *xfer, uint32_t kind, uint32_t fragment, uint64_t version_max)
{
    for (uint32_t i = 0; i < xfer->conf.outgoing_max; i++) {
        struct outgoing *o = &xfer->outgoing[i];
        if (o->used && o->key.kind == kind && o->key.fragment == fragment && o->key.version <= version_max)
            o->used = false;
    }
}

bool xfer_ack_in(struct xfer *xfer, uint32_t peer, const struct wire_key *key, uint64_t have, bool resume,
                 uint64_t now_ms)
{
    struct outgoing *o = find_outgoing(xfer, peer, key);
    xfer->now_ms = now_ms;
    if (o == NULL)
        return !resume;
    if (have > o->total)
        return true;
    o->heard_ms = now_ms;
    if (resume) {
        o->cursor = have;
        o->acked = have;
    } else if (have > o->acked && have <= o->cursor) {
        xfer->arrived += have - o->acked;
        o->acked = have;
    }
    return true;
}

bool xfer_done_in(struct xfer *xfer, uint32_t peer, const struct wire_key *key, enum wire_done status, uint64_t now_ms)
{
    struct outgoing *o = find_outgoing(xfer, peer, key);
    xfer->now_ms = now_ms;
    if (o == NULL)
        return false;
    if (status == WIRE_NOT_YET) {
        o->cursor = 0;
        o->acked = 0;
        o->heard_ms = now_ms;
        o->not_before_ms = now_ms + LATER_MS;
        return false;
    }
    xfer->arrived += status == WIRE_RECEIVED ? o->total - o->acked : 0;
    o->used = false;
    return true;
}

void xfer_progress(const struct xfer *xfer, uint64_t *arrived, uint64_t *left)
{
    *arrived = xfer->arrived;
    *left = 0;
    for (uint32_t i = 0; i < xfer->conf.outgoing_max; i++)
        if (xfer->outgoing[i].used && xfer->now_ms < xfer->outgoing[i].heard_ms + STANDS_MS)
            *left += xfer->outgoing[i].cursor - xfer->outgoing[i].acked;
}

/* ---- receiving ---- */

static struct incoming *find_incoming(const struct xfer *xfer, const struct wire_key *key)
{
    for (uint32_t i = 0; i < xfer->conf.incoming_max; i++) {
        struct incoming *in = &xfer->incoming[i];
        if (in->used && wire_key_equal(&in->key, key))
            return in;
    }
    return NULL;
}

bool xfer_receiving(const struct xfer *xfer, const struct wire_key *key)
{
    const struct incoming *in = find_incoming(xfer, key);
    return in != NULL && (in->complete || xfer->now_ms < in->moved_ms + STANDS_MS);
}

bool xfer_gone(struct xfer *xfer, uint32_t peer, const struct wire_key *key)
{
    struct incoming *in = find_incoming(xfer, key);
    bool ours = in != NULL && in->peer == peer && !in->complete;
    if (ours)
        in->used = false;
    return ours;
}

/* A buffer serves one transfer: an unfinished one that had it before ends. False: a complete one is being read. */
static bool claim_buffer(struct xfer *xfer, const uint8_t *buffer)
{
    for (uint32_t i = 0; i < xfer->conf.incoming_max; i++) {
        struct incoming *in = &xfer->incoming[i];
        if (!in->used || in->buffer != buffer)
            continue;
        if (in->complete)
            return false;
        in->used = false;
    }
    return true;
}

/* Asks the caller about an object not known yet; NULL if it is not taken, and the sender was told. */
static struct incoming *take_offer(struct xfer *xfer, uint32_t peer, const struct wire_key *key, uint64_t total)
{
    struct xfer_offer offer = {.answer = WIRE_NOT_YET};
    struct incoming *slot = NULL;
    for (uint32_t i = 0; i < xfer->conf.incoming_max && slot == NULL; i++)
        if (!xfer->incoming[i].used)
            slot = &xfer->incoming[i];
    if (slot == NULL || xfer->conf.offer(xfer->conf.user, peer, key, total, &offer) == XFER_ANSWER) {
        say_done(xfer, peer, key, offer.answer);
        return NULL;
    }
    if (total > offer.bytes_max) {
        say_done(xfer, peer, key, WIRE_REFUSED);
        return NULL;
    }
    if (!claim_buffer(xfer, offer.buffer)) {
        say_done(xfer, peer, key, WIRE_NOT_YET);
        return NULL;
    }
    *slot = (struct incoming){.used = true,
                              .peer = peer,
                              .key = *key,
                              .buffer = offer.buffer,
                              .total = total,
                              .heard_ms = xfer->now_ms,
                              .moved_ms = xfer->now_ms};
    return slot;
}

/* The transfer for this object and peer; takes a new one on, or answers. An object that another peer is already
 * sending goes on from there unless that one stands still. */
static struct incoming *incoming_for(struct xfer *xfer, uint32_t peer, const struct wire_key *key, uint64_t total)
{
    struct incoming *in = find_incoming(xfer, key);
    if (in == NULL)
        return take_offer(xfer, peer, key, total);
    if (in->peer == peer && in->total == total)
        return in;
    /* Who made the object goes before those who pass it on; else the first to send, as long as it brings something. */
    bool maker = key->island == peer && key->island != in->peer;
    if (in->complete || (!maker && xfer->now_ms < in->moved_ms + STALL_MS)) {
        say_done(xfer, peer, key, WIRE_NOT_YET);
        return NULL;
    }
    if (in->total != total) { /* a new offer, whose length has to be looked at */
        in->used = false;
        return take_offer(xfer, peer, key, total);
    }
    /* Both hold the same bytes if they are honest; the digest decides. */
    in->peer = peer;
    in->acked = 0;
    say_ack(xfer, peer, key, in->have, true);
    return in;
}

enum xfer_progress xfer_chunk_in(struct xfer *xfer, uint32_t peer, const struct wire_chunk *chunk, uint64_t now_ms,
                                 uint64_t *bytes)
{
    xfer->now_ms = now_ms;
    struct incoming *in = incoming_for(xfer, peer, &chunk->key, chunk->total);
    if (in == NULL || in->complete)
        return XFER_NOTHING;
    if (chunk->offset > in->have) {
        if (now_ms >= in->resume_ms)
            say_ack(xfer, peer, &in->key, in->have, true);
        in->resume_ms = now_ms + RESUME_MS;
        return XFER_NOTHING;
    }
    uint64_t end = chunk->offset + chunk->bytes;
    if (end <= in->have) { /* seen before: doubled, or the sender began anew */
        if (now_ms >= in->resume_ms)
            say_ack(xfer, peer, &in->key, in->have, true);
        in->resume_ms = now_ms + RESUME_MS;
        return XFER_NOTHING;
    }
    memcpy(in->buffer + in->have, chunk->data + (in->have - chunk->offset), (size_t)(end - in->have));
    in->have = end;
    in->heard_ms = in->moved_ms = now_ms;
    uint64_t unsaid = in->have - in->acked;
    if (in->have == in->total || unsaid >= ACK_BYTES || unsaid >= xfer->conf.window_bytes / ACK_PARTS) {
        in->acked = in->have;
        say_ack(xfer, peer, &in->key, in->have, false);
    }
    if (in->have < in->total)
        return XFER_NOTHING;
    in->complete = true;
    *bytes = in->total;
    return XFER_COMPLETE;
}

void xfer_finish(struct xfer *xfer, uint32_t peer, const struct wire_key *key, enum wire_done status)
{
    struct incoming *in = find_incoming(xfer, key);
    if (in != NULL && in->peer == peer)
        in->used = false;
    say_done(xfer, peer, key, status);
}

void xfer_drop(struct xfer *xfer, uint32_t kind, uint32_t fragment, uint64_t version_max)
{
    for (uint32_t i = 0; i < xfer->conf.incoming_max; i++) {
        struct incoming *in = &xfer->incoming[i];
        if (in->used && in->key.kind == kind && in->key.fragment == fragment && in->key.version <= version_max)
            in->used = false;
    }
}

void xfer_probe_in(struct xfer *xfer, uint32_t peer, const struct wire_key *key, uint64_t total, uint64_t now_ms)
{
    xfer->now_ms = now_ms;
    struct incoming *in = incoming_for(xfer, peer, key, total);
    if (in == NULL)
        return;
    in->acked = in->have;
    say_ack(xfer, peer, key, in->have, !in->complete);
}

/* ---- time ---- */

void xfer_tick(struct xfer *xfer, uint64_t now_ms)
{
    xfer->now_ms = now_ms;
    for (uint32_t i = 0; i < xfer->conf.outgoing_max; i++) {
        struct outgoing *o = &xfer->outgoing[i];
        bool silent = o->used && o->cursor > 0 && now_ms >= o->heard_ms + PROBE_MS && now_ms >= o->not_before_ms;
        if (!silent || (o->cursor < o->total && o->cursor == o->acked))
            continue;
        enqueue(xfer, (struct xfer_message){.peer = o->peer, .type = WIRE_PROBE, .key = o->key, .bytes = o->total});
        o->heard_ms = now_ms;
    }
    for (uint32_t i = 0; i < xfer->conf.incoming_max; i++) {
        struct incoming *in = &xfer->incoming[i];
        if (!in->used || in->complete || now_ms < in->heard_ms + STALL_MS)
            continue;
        say_ack(xfer, in->peer, &in->key, in->have, true);
        in->heard_ms = now_ms;
    }
}

void xfer_reset_peer(struct xfer *xfer, uint32_t peer)
{
    for (uint32_t i = 0; i < xfer->conf.outgoing_max; i++)
        if (xfer->outgoing[i].peer == peer)
            xfer->outgoing[i].used = false;
    for (uint32_t i = 0; i < xfer->conf.incoming_max; i++)
        if (xfer->incoming[i].peer == peer && !xfer->incoming[i].complete)
            xfer->incoming[i].used = false;
}
