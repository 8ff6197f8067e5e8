/* SPDX-License-Identifier: Apache-2.0 */
#include "net/transfer/xfer.h"

#include <string.h>

#include "common/bitset.h"
#include "common/mem.h"

/*
 * ASK: silence from the receiver after which a sender asks; STANDS: a transfer that brought nothing for so long is
 * asked after, and may be begun from elsewhere; LATER: pause after "not yet".
 */
enum { ASK_MS = 1500, STANDS_MS = 3000, LATER_MS = 300 };
enum { QUEUE_BESIDES = 64 };
#define NOBODY UINT32_MAX /* whose slot is another's now */

/*
 * ---- whose chunk goes next ----
 *
 * Results go before contributions, and these before the rest, for which nobody stands still. As long as some of what
 * others stand still for is unacknowledged, the rest may have half a window under way; an eighth while more of that
 * waits; and one byte in 24 is the rest's own.
 */

struct outgoing {
    bool used;
    bool ask;  /* a question is to go: how far are you? */
    bool hold; /* no bytes before the receiver has answered a question */
    uint8_t pass;
    uint32_t peer;
    struct wire_key key;
    const uint8_t *data;
    uint64_t total, cursor, acked;
    uint64_t heard_ms;    /* last word from the receiver, or our last question */
    uint64_t answered_ms; /* last word from the receiver, or when the first byte went that it has to answer */
    uint64_t not_before_ms;
    uint64_t order; /* of arrival */
};

/* Of each peer: what others stand still for, and what nobody does. */
enum { IN_A_HURRY, IN_NO_HURRY, FIRSTS };

/* Of one peer, as of now: bytes that may be unacknowledged, those of a chunk, and those that are. */
struct turn_way {
    uint64_t window, chunk, outstanding;
    struct outgoing *first[FIRSTS];
};

struct turn {
    struct turn_way *ways; /* [peers]; the caller's */
    uint32_t peers_count;
    uint32_t peer; /* whose turn it is to be served first */
    uint64_t owed; /* bytes that may go although nobody stands still for them */
};

/* 1/LEAST of a line; of a window 1/BEHIND what is unacknowledged, 1/BESIDE what waits. */
enum { LEAST = 24, BESIDE = 8, BEHIND = 2 };

/* Results first: the others stand still without them. States and plans last: nobody stands still for them. */
static int urgency(uint32_t kind)
{
    return kind == WIRE_RESULT ? 0 : kind == WIRE_CONTRIBUTION ? 1 : 2;
}

static bool in_a_hurry(const struct outgoing *o)
{
    return o->key.kind == WIRE_RESULT || o->key.kind == WIRE_CONTRIBUTION;
}

static bool before(const struct outgoing *left, const struct outgoing *right)
{
    int l = urgency(left->key.kind);
    int r = urgency(right->key.kind);
    return l != r ? l < r : left->order < right->order;
}

static bool may_go(const struct outgoing *o, uint64_t now_ms)
{
    return o->used && now_ms >= o->not_before_ms && (o->ask || (!o->hold && o->cursor < o->total));
}

/* For each peer what goes first. Questions before bytes: they are small, and something waits for the answer. */
static void choose_first(struct turn *turn, struct outgoing *outgoing, uint32_t count, uint64_t now_ms)
{
    for (uint32_t i = 0; i < turn->peers_count; i++)
        turn->ways[i].first[IN_A_HURRY] = turn->ways[i].first[IN_NO_HURRY] = NULL;
    for (uint32_t i = 0; i < count; i++) {
        struct outgoing *o = &outgoing[i];
        if (!may_go(o, now_ms))
            continue;
        struct outgoing **best = &turn->ways[o->peer].first[o->ask || in_a_hurry(o) ? IN_A_HURRY : IN_NO_HURRY];
        if (*best == NULL || (o->ask && !(*best)->ask) || (o->ask == (*best)->ask && before(o, *best)))
            *best = o;
    }
}

/* What is under way to those that answer. They share our line, whoever they are for: its measure is the largest window,
 * or who has a small one would wait for all that the others have under way. */
struct under_way {
    bool hurry, more; /* others stand still for some of it; and for what waits */
    uint64_t rest;    /* bytes that nobody stands still for */
    uint64_t window;  /* the largest of all peers */
};

static struct under_way look_under_way(const struct turn *turn, const struct outgoing *outgoing, uint32_t count,
                                       uint64_t now_ms)
{
    struct under_way look = {.rest = 0};
    for (uint32_t i = 0; i < turn->peers_count; i++)
        look.window = turn->ways[i].window > look.window ? turn->ways[i].window : look.window;
    for (uint32_t i = 0; i < count; i++) {
        const struct outgoing *o = &outgoing[i];
        if (!o->used || o->hold || now_ms >= o->answered_ms + ASK_MS)
            continue;
        look.hurry |= in_a_hurry(o) && o->cursor > o->acked;
        look.more |= in_a_hurry(o) && o->cursor < o->total;
        look.rest += in_a_hurry(o) ? 0 : o->cursor - o->acked;
    }
    return look;
}

/* Whether what nobody stands still for has to wait for what of it is under way. */
static bool yields(const struct under_way *look, uint64_t bytes)
{
    uint64_t most = look->window / (look->more ? BESIDE : BEHIND);
    return (look->hurry || look->more) && look->rest > 0 && look->rest + bytes > most;
}

/* The next chunk of what is in a hurry, or of what is not, of `most` bytes. */
static struct outgoing *next_of(struct turn *turn, const struct bitset *blocked, const struct under_way *look,
                                int hurry, uint64_t most, uint64_t *bytes)
{
    for (uint32_t k = 0; k < turn->peers_count; k++) {
        uint32_t peer = (turn->peer + k) % turn->peers_count;
        const struct turn_way *way = &turn->ways[peer];
        struct outgoing *o = way->first[hurry];
        if (o == NULL || bitset_has(blocked, peer))
            continue;
        *bytes = o->ask ? 0 : o->total - o->cursor < way->chunk ? o->total - o->cursor : way->chunk;
        if (*bytes > 0 && way->outstanding > 0 && way->outstanding + *bytes > way->window)
            continue;
        if (*bytes > most || (hurry == IN_NO_HURRY && yields(look, *bytes)))
            continue;
        turn->peer = (peer + 1) % turn->peers_count;
        return o;
    }
    return NULL;
}

/* What may go now, and how many bytes of it (0: a question); NULL: nothing. `turn->ways` are as of now, but for
 * `first`. */
static struct outgoing *turn_next(struct turn *turn, struct outgoing *outgoing, uint32_t count,
                                  const struct bitset *blocked, uint64_t now_ms, uint64_t *bytes)
{
    const struct under_way look = look_under_way(turn, outgoing, count, now_ms);
    choose_first(turn, outgoing, count, now_ms);
    struct outgoing *o = next_of(turn, blocked, &look, IN_NO_HURRY, turn->owed, bytes);
    if (o == NULL)
        o = next_of(turn, blocked, &look, IN_A_HURRY, UINT64_MAX, bytes);
    return o != NULL ? o : next_of(turn, blocked, &look, IN_NO_HURRY, UINT64_MAX, bytes);
}

/* So much of it went. Owed only while something waits that nobody stands still for. */
static void turn_sent(struct turn *turn, const struct outgoing *o, uint64_t bytes)
{
    bool waits = false;
    for (uint32_t i = 0; i < turn->peers_count && !waits; i++)
        waits = turn->ways[i].first[IN_NO_HURRY] != NULL;
    if (!waits)
        turn->owed = 0;
    else if (in_a_hurry(o))
        turn->owed = turn->owed < WIRE_CHUNK_BYTES_MAX ? turn->owed + bytes / LEAST : turn->owed;
    else
        turn->owed = turn->owed > bytes ? turn->owed - bytes : 0;
}

/* ---- the transfers ---- */

struct incoming {
    bool used;
    bool complete;   /* whole; waiting for xfer_finish() */
    bool complained; /* about a gap in `pass`, the last one seen */
    uint8_t pass;
    uint32_t delay_us; /* of the last chunk */
    uint32_t peer;
    struct wire_key key;
    uint8_t *buffer;
    uint64_t total, have;
    uint64_t acked;    /* what the sender was last told */
    uint64_t heard_ms; /* last chunk, or our last question */
    uint64_t moved_ms; /* last chunk that brought something new */
};

struct xfer {
    struct xfer_conf conf;
    struct outgoing *outgoing;
    struct incoming *incoming;
    struct xfer_limit *limits; /* [peers] */
    struct xfer_flow *flows;   /* likewise */
    uint64_t order;
    struct turn turn;
    uint64_t now_ms;
    struct xfer_message *queue; /* ring */
    size_t queue_room, queue_head, queue_count;
    bool unsaid; /* something came in that was not acknowledged yet */
};

/* What every peer begins with. */
static void begin_peer(struct xfer *xfer, uint32_t peer)
{
    xfer->limits[peer] = (struct xfer_limit){.window = WIRE_CHUNK_BYTES_MAX, .chunk = WIRE_CHUNK_BYTES_MAX};
    xfer->flows[peer] = (struct xfer_flow){0};
}

static size_t queue_room(uint32_t outgoing_max, uint32_t incoming_max)
{
    return 2 * ((size_t)outgoing_max + incoming_max) + QUEUE_BESIDES;
}

enum err xfer_new(const struct xfer_conf *conf, struct xfer **out)
{
    enum err err;
    struct xfer *xfer = NULL;
    *out = NULL;
    TRY_OUT(mem_new(1, sizeof *xfer, "transfers", &xfer));
    xfer->conf = *conf;
    xfer->queue_room = queue_room(conf->outgoing_max, conf->incoming_max);
    TRY_OUT(mem_new(conf->outgoing_max, sizeof *xfer->outgoing, "transfers", &xfer->outgoing));
    TRY_OUT(mem_new(conf->incoming_max, sizeof *xfer->incoming, "transfers", &xfer->incoming));
    TRY_OUT(mem_new(xfer->queue_room, sizeof *xfer->queue, "transfers", &xfer->queue));
    TRY_OUT(mem_new(conf->peers_count, sizeof *xfer->limits, "transfers", &xfer->limits));
    TRY_OUT(mem_new(conf->peers_count, sizeof *xfer->flows, "transfers", &xfer->flows));
    TRY_OUT(mem_new(conf->peers_count, sizeof *xfer->turn.ways, "transfers", &xfer->turn.ways));
    xfer->turn.peers_count = conf->peers_count;
    for (uint32_t i = 0; i < conf->peers_count; i++)
        begin_peer(xfer, i);
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
    mem_free(xfer->limits);
    mem_free(xfer->flows);
    mem_free(xfer->turn.ways);
    mem_free(xfer);
}

static enum err grow_peers(struct xfer *xfer, uint32_t peers_count)
{
    uint32_t before = xfer->conf.peers_count;
    if (peers_count <= before)
        return ERR_OK;
    TRY(mem_grow(&xfer->limits, before, peers_count, sizeof *xfer->limits, "transfers"));
    TRY(mem_grow(&xfer->flows, before, peers_count, sizeof *xfer->flows, "transfers"));
    TRY(mem_grow(&xfer->turn.ways, before, peers_count, sizeof *xfer->turn.ways, "transfers"));
    xfer->conf.peers_count = xfer->turn.peers_count = peers_count;
    for (uint32_t i = before; i < peers_count; i++)
        begin_peer(xfer, i);
    return ERR_OK;
}

/* The ring is laid straight. */
static enum err grow_queue(struct xfer *xfer, size_t room)
{
    struct xfer_message *queue;
    if (room <= xfer->queue_room)
        return ERR_OK;
    TRY(mem_new(room, sizeof *queue, "transfers", &queue));
    for (size_t i = 0; i < xfer->queue_count; i++)
        queue[i] = xfer->queue[(xfer->queue_head + i) % xfer->queue_room];
    mem_free(xfer->queue);
    xfer->queue = queue;
    xfer->queue_room = room;
    xfer->queue_head = 0;
    return ERR_OK;
}

enum err xfer_grow(struct xfer *xfer, uint32_t peers_count, uint32_t outgoing_max, uint32_t incoming_max)
{
    TRY(grow_peers(xfer, peers_count));
    TRY(grow_queue(xfer, queue_room(outgoing_max, incoming_max)));
    if (outgoing_max > xfer->conf.outgoing_max) {
        TRY(mem_grow(&xfer->outgoing, xfer->conf.outgoing_max, outgoing_max, sizeof *xfer->outgoing, "transfers"));
        xfer->conf.outgoing_max = outgoing_max;
    }
    if (incoming_max > xfer->conf.incoming_max) {
        TRY(mem_grow(&xfer->incoming, xfer->conf.incoming_max, incoming_max, sizeof *xfer->incoming, "transfers"));
        xfer->conf.incoming_max = incoming_max;
    }
    return ERR_OK;
}

void xfer_set_limit(struct xfer *xfer, uint32_t peer, const struct xfer_limit *limit)
{
    xfer->limits[peer] = *limit;
}

struct xfer_flow xfer_flow(const struct xfer *xfer, uint32_t peer)
{
    return xfer->flows[peer];
}

/* ---- control messages ---- */

/* A full queue drops: every message here is repeated by a timer until it has had its effect. */
static void enqueue(struct xfer *xfer, struct xfer_message message)
{
    if (xfer->queue_count < xfer->queue_room)
        xfer->queue[(xfer->queue_head + xfer->queue_count++) % xfer->queue_room] = message;
}

static void say_ack(struct xfer *xfer, struct incoming *in, enum wire_ask ask)
{
    in->acked = in->have;
    enqueue(xfer, (struct xfer_message){.peer = in->peer,
                                        .type = WIRE_ACK,
                                        .key = in->key,
                                        .have = in->have,
                                        .ask = ask,
                                        .pass = in->pass,
                                        .delay_us = in->delay_us});
}

static void say_done(struct xfer *xfer, uint32_t peer, const struct wire_key *key, enum wire_done status)
{
    enqueue(xfer, (struct xfer_message){.peer = peer, .type = WIRE_DONE, .key = *key, .status = status});
}

/* What came in since it was last asked is acknowledged at once, one message an object. */
static void say_unsaid(struct xfer *xfer)
{
    for (uint32_t i = 0; i < xfer->conf.incoming_max; i++) {
        struct incoming *in = &xfer->incoming[i];
        if (in->used && in->have > in->acked)
            say_ack(xfer, in, WIRE_ASK_NOTHING);
    }
    xfer->unsaid = false;
}

bool xfer_message(struct xfer *xfer, struct xfer_message *message)
{
    if (xfer->queue_count == 0 && xfer->unsaid)
        say_unsaid(xfer);
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
                   bool ask_first, uint64_t now_ms)
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
                                   .ask = ask_first,
                                   .hold = ask_first,
                                   .peer = peer,
                                   .key = *key,
                                   .data = data,
                                   .total = bytes,
                                   .heard_ms = now_ms,
                                   .answered_ms = now_ms,
                                   .order = xfer->order++};
    return ERR_OK;
}

uint64_t xfer_outstanding(const struct xfer *xfer, uint32_t peer)
{
    const struct xfer_flow *flow = &xfer->flows[peer];
    return flow->sent - flow->delivered - flow->given_up;
}

/* The receiver has `have` bytes without a gap. */
static void settle(struct xfer *xfer, struct outgoing *o, uint64_t have)
{
    uint64_t sent = have < o->cursor ? have : o->cursor; /* it may have more, from elsewhere */
    if (sent > o->acked)
        xfer->flows[o->peer].delivered += sent - o->acked;
    if (have > o->acked)
        o->acked = have;
    if (o->cursor < o->acked)
        o->cursor = o->acked;
}

/* What is not acknowledged is not waited for any more; the next chunk is the one at `cursor`. */
static void rewind_to(struct xfer *xfer, struct outgoing *o, uint64_t cursor)
{
    xfer->flows[o->peer].given_up += o->cursor - o->acked;
    xfer->flows[o->peer].wasted += o->cursor - cursor;
    o->cursor = o->acked = cursor;
    o->pass++;
}

static void end_outgoing(struct xfer *xfer, struct outgoing *o)
{
    xfer->flows[o->peer].given_up += o->cursor - o->acked;
    xfer->flows[o->peer].wasted += o->cursor;
    o->used = false;
}

bool xfer_next(struct xfer *xfer, const struct bitset *blocked, struct xfer_chunk *chunk)
{
    uint64_t bytes;
    for (uint32_t i = 0; i < xfer->conf.peers_count; i++) {
        struct turn_way *way = &xfer->turn.ways[i];
        way->window = xfer->limits[i].window;
        way->chunk = xfer->limits[i].chunk;
        way->outstanding = xfer_outstanding(xfer, i);
    }
    const struct outgoing *o =
        turn_next(&xfer->turn, xfer->outgoing, xfer->conf.outgoing_max, blocked, xfer->now_ms, &bytes);
    if (o == NULL)
        return false;
    *chunk = (struct xfer_chunk){.peer = o->peer,
                                 .key = o->key,
                                 .pass = o->pass,
                                 .total = o->total,
                                 .offset = o->cursor,
                                 .data = o->data + o->cursor,
                                 .bytes = (size_t)bytes};
    return true;
}

void xfer_sent(struct xfer *xfer, const struct xfer_chunk *chunk, uint64_t now_ms)
{
    struct outgoing *o = find_outgoing(xfer, chunk->peer, &chunk->key);
    xfer->now_ms = now_ms;
    if (o == NULL || o->cursor != chunk->offset || o->pass != chunk->pass)
        return;
    if (chunk->bytes == 0)
        o->ask = false;
    if (o->cursor == o->acked)
        o->heard_ms = o->answered_ms = now_ms; /* nothing was outstanding: the clock starts now */
    turn_sent(&xfer->turn, o, chunk->bytes);
    o->cursor += chunk->bytes;
    xfer->flows[o->peer].sent += chunk->bytes;
}

void xfer_cancel(struct xfer *xfer, uint32_t kind, uint32_t fragment, uint64_t version_max)
{
    for (uint32_t i = 0; i < xfer->conf.outgoing_max; i++) {
        struct outgoing *o = &xfer->outgoing[i];
        if (o->used && o->key.kind == kind && o->key.fragment == fragment && o->key.version <= version_max)
            end_outgoing(xfer, o);
    }
}

uint32_t xfer_sending(const struct xfer *xfer, uint32_t peer, uint32_t kind)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < xfer->conf.outgoing_max; i++)
        count += xfer->outgoing[i].used && xfer->outgoing[i].peer == peer && xfer->outgoing[i].key.kind == kind;
    return count;
}

void xfer_withdraw(struct xfer *xfer, const uint8_t *memory, uint64_t bytes)
{
    for (uint32_t i = 0; i < xfer->conf.outgoing_max; i++) {
        struct outgoing *o = &xfer->outgoing[i];
        if (o->used && o->data >= memory && o->data < memory + bytes)
            end_outgoing(xfer, o);
    }
}

bool xfer_ack_in(struct xfer *xfer, uint32_t peer, const struct wire_ack *ack, uint64_t now_ms)
{
    struct outgoing *o = find_outgoing(xfer, peer, &ack->key);
    xfer->now_ms = now_ms;
    if (o == NULL)
        return ack->ask == WIRE_ASK_NOTHING;
    if (ack->have > o->total)
        return true;
    o->heard_ms = o->answered_ms = now_ms;
    o->hold = false;
    settle(xfer, o, ack->have);
    /* A complaint about an earlier pass has been heard already: what it misses is on its way again. */
    if (ack->ask == WIRE_ASK_GO_ON && ack->pass == o->pass && ack->have <= o->acked)
        rewind_to(xfer, o, ack->have);
    return true;
}

bool xfer_done_in(struct xfer *xfer, uint32_t peer, const struct wire_key *key, enum wire_done status, uint64_t now_ms)
{
    struct outgoing *o = find_outgoing(xfer, peer, key);
    xfer->now_ms = now_ms;
    if (o == NULL)
        return false;
    if (status == WIRE_NOT_YET) {
        /* From now on a question, until it is wanted: what is not wanted costs the line no bytes. */
        rewind_to(xfer, o, 0);
        o->heard_ms = now_ms;
        o->not_before_ms = now_ms + LATER_MS;
        o->ask = o->hold = true;
        return false;
    }
    if (status == WIRE_RECEIVED && o->acked == o->total)
        o->used = false;
    else /* it is not wanted, or was there already */
        end_outgoing(xfer, o);
    return true;
}

void xfer_ask(struct xfer *xfer, uint32_t peer)
{
    for (uint32_t i = 0; i < xfer->conf.outgoing_max; i++) {
        struct outgoing *o = &xfer->outgoing[i];
        o->ask |= o->used && o->peer == peer && o->cursor > 0;
    }
}

uint64_t xfer_left(const struct xfer *xfer)
{
    uint64_t left = 0;
    for (uint32_t i = 0; i < xfer->conf.outgoing_max; i++)
        if (xfer->outgoing[i].used && xfer->now_ms < xfer->outgoing[i].heard_ms + STANDS_MS)
            left += xfer->outgoing[i].cursor - xfer->outgoing[i].acked;
    return left;
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

uint64_t xfer_have(const struct xfer *xfer, const struct wire_key *key)
{
    const struct incoming *in = find_incoming(xfer, key);
    return in != NULL && !in->complete ? in->have : 0;
}

bool xfer_gone(struct xfer *xfer, uint32_t peer, const struct wire_key *key)
{
    struct incoming *in = find_incoming(xfer, key);
    bool ours = in != NULL && in->peer == peer && !in->complete;
    if (ours)
        in->used = false;
    return ours;
}

void xfer_lost_sight(struct xfer *xfer, uint32_t peer)
{
    for (uint32_t i = 0; i < xfer->conf.incoming_max; i++) {
        struct incoming *in = &xfer->incoming[i];
        if (in->used && in->peer == peer && xfer->now_ms >= STANDS_MS)
            in->moved_ms = xfer->now_ms - STANDS_MS;
    }
}

bool xfer_take_back(struct xfer *xfer, const uint8_t *buffer)
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
    if (!xfer_take_back(xfer, offer.buffer)) {
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
    if (in->peer != peer && (key->kind == WIRE_STATE || key->kind == WIRE_LEAVES)) {
        say_done(xfer, peer, key, WIRE_NOT_NEEDED); /* asked of that member alone: whoever else sends it lies */
        return NULL;
    }
    /* Who made the object goes before those who pass it on; else the first to send, as long as it brings something. */
    bool maker = in->peer != peer && xfer->conf.maker(xfer->conf.user, peer, key);
    if (in->complete || (!maker && xfer->now_ms < in->moved_ms + STANDS_MS)) {
        say_done(xfer, peer, key, WIRE_NOT_YET);
        return NULL;
    }
    if (in->total != total) { /* a new offer, whose length has to be looked at */
        in->used = false;
        return take_offer(xfer, peer, key, total);
    }
    /* Both hold the same bytes if they are honest; the digest decides. */
    in->peer = peer;
    in->complained = false;
    return in;
}

/* The connection is ordered: what should have come before is lost, or was never sent to us; or this came from elsewhere
 * already, and what follows may be news. Said once a pass; if that is lost too, the sender asks. */
static void complain(struct xfer *xfer, struct incoming *in, enum wire_ask ask)
{
    if (!in->complained)
        say_ack(xfer, in, ask);
    in->complained = true;
}

/* The sender asks how far we are. */
static void answer(struct xfer *xfer, struct incoming *in, uint64_t offset)
{
    bool lost = !in->complete && offset > in->have;
    say_ack(xfer, in, lost ? WIRE_ASK_GO_ON : WIRE_ASK_NOTHING);
    in->complained |= lost;
}

enum xfer_progress xfer_chunk_in(struct xfer *xfer, uint32_t peer, const struct wire_chunk *chunk, uint32_t delay_us,
                                 uint64_t now_ms, uint64_t *bytes)
{
    xfer->now_ms = now_ms;
    struct incoming *in = incoming_for(xfer, peer, &chunk->key, chunk->total);
    if (in == NULL)
        return XFER_NOTHING;
    in->complained &= in->pass == chunk->pass;
    in->pass = chunk->pass;
    in->delay_us = delay_us;
    in->heard_ms = now_ms;
    uint64_t end = chunk->offset + chunk->bytes;
    if (chunk->bytes == 0)
        answer(xfer, in, chunk->offset);
    else if (!in->complete && (chunk->offset > in->have || end <= in->have))
        complain(xfer, in, chunk->offset > in->have ? WIRE_ASK_GO_ON : WIRE_ASK_NOTHING);
    if (chunk->bytes == 0 || in->complete || chunk->offset > in->have || end <= in->have)
        return XFER_NOTHING;
    memcpy(in->buffer + in->have, chunk->data + (in->have - chunk->offset), (size_t)(end - in->have));
    in->have = end;
    in->moved_ms = now_ms;
    xfer->unsaid = true;
    if (in->have < in->total)
        return XFER_MORE;
    in->complete = true;
    *bytes = in->total;
    return XFER_COMPLETE;
}

void xfer_finish(struct xfer *xfer, uint32_t peer, const struct wire_key *key, enum wire_done status)
{
    struct incoming *in = find_incoming(xfer, key);
    bool forgotten = in != NULL && in->peer == NOBODY;
    if (in != NULL && (in->peer == peer || forgotten)) {
        if (in->have > in->acked)
            say_ack(xfer, in, WIRE_ASK_NOTHING);
        in->used = false;
    }
    if (!forgotten)
        say_done(xfer, peer, key, status);
}

/* ---- time ---- */

void xfer_tick(struct xfer *xfer, uint64_t now_ms)
{
    xfer->now_ms = now_ms;
    for (uint32_t i = 0; i < xfer->conf.outgoing_max; i++) {
        struct outgoing *o = &xfer->outgoing[i];
        bool waits = o->used && (o->hold || o->cursor > o->acked || o->cursor == o->total);
        if (!waits || now_ms < o->heard_ms + ASK_MS || now_ms < o->not_before_ms)
            continue;
        o->ask = true;
        o->heard_ms = now_ms;
    }
    for (uint32_t i = 0; i < xfer->conf.incoming_max; i++) {
        struct incoming *in = &xfer->incoming[i];
        if (!in->used || in->complete || now_ms < in->heard_ms + STANDS_MS)
            continue;
        say_ack(xfer, in, WIRE_ASK_STILL);
        in->heard_ms = now_ms;
    }
}

void xfer_drop_incoming(struct xfer *xfer)
{
    for (uint32_t i = 0; i < xfer->conf.incoming_max; i++) {
        struct incoming *in = &xfer->incoming[i];
        if (in->used && !in->complete && (in->key.kind == WIRE_CONTRIBUTION || in->key.kind == WIRE_RESULT))
            in->used = false;
    }
}

void xfer_reset_peer(struct xfer *xfer, uint32_t peer)
{
    for (uint32_t i = 0; i < xfer->conf.outgoing_max; i++)
        if (xfer->outgoing[i].used && xfer->outgoing[i].peer == peer)
            end_outgoing(xfer, &xfer->outgoing[i]);
    for (uint32_t i = 0; i < xfer->conf.incoming_max; i++)
        if (xfer->incoming[i].peer == peer && !xfer->incoming[i].complete)
            xfer->incoming[i].used = false;
}

/* What was to be said to it is for nobody now; an object that is whole and being looked at stays, and nobody is told.
 */
void xfer_forget_peer(struct xfer *xfer, uint32_t peer)
{
    size_t count = xfer->queue_count;
    xfer_reset_peer(xfer, peer);
    for (uint32_t i = 0; i < xfer->conf.incoming_max; i++)
        if (xfer->incoming[i].used && xfer->incoming[i].peer == peer) {
            xfer->incoming[i].peer = NOBODY;
            xfer->incoming[i].acked = xfer->incoming[i].have;
        }
    xfer->queue_count = 0;
    for (size_t i = 0; i < count; i++) {
        const struct xfer_message *message = &xfer->queue[(xfer->queue_head + i) % xfer->queue_room];
        if (message->peer != peer)
            xfer->queue[(xfer->queue_head + xfer->queue_count++) % xfer->queue_room] = *message;
    }
    begin_peer(xfer, peer);
}
