/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/transfer/ways.h"

#include "common/env.h"
#include "common/mem.h"
#include "net/transfer/line.h"
#include "net/transfer/pace.h"

enum { CHUNKS_PER_TURN = 64, BLOCKED_WAIT_US = 1000, GO_ON_US = 1, BITS = 8 };
/* Under a rate limit: what may go at once after a rest, and how large a chunk is, as parts of a second. */
enum { BURST_PARTS = 50, CHUNK_PARTS = 40 };

struct way {
    struct line line;
    struct xfer_flow seen;   /* as far as `line` knows of it */
    struct xfer_flow before; /* of transfers that have ended */
    uint64_t window;         /* bytes that the peer takes in unacknowledged */
    uint32_t delay_us;       /* of the chunk last acknowledged */
    uint64_t starved_us;     /* of the bulk connection's send buffer, as last seen */
};

struct ways {
    struct ways_conf conf;
    struct xfer *xfer;
    struct way *ways;      /* [members] */
    struct xfer_flow gone; /* of members that have left */
    struct pace pace;
    uint64_t paced;     /* bytes of all that link handed over, as far as `pace` knows of them */
    struct meter meter; /* our uplink, as seen */
    uint64_t wait_us;
};

static uint64_t now_us(void)
{
    return (uint64_t)(env_mono_s() * 1e6);
}

uint32_t ways_clock_us(void)
{
    return (uint32_t)now_us();
}

static void begin_way(struct way *way)
{
    *way = (struct way){.line = line_init(now_us()), .window = LINE_CHUNK_MAX};
}

static void add_flow(struct xfer_flow *sum, const struct xfer_flow *flow)
{
    sum->sent += flow->sent;
    sum->delivered += flow->delivered;
    sum->wasted += flow->wasted;
}

enum err ways_new(const struct ways_conf *conf, struct ways **out)
{
    struct ways *ways;
    *out = NULL;
    TRY(mem_new(1, sizeof *ways, "objects", &ways));
    ways->conf = *conf;
    ways->pace = pace_init(conf->rate_limit, conf->rate_limit / BITS / BURST_PARTS, now_us());
    enum err err = mem_new(conf->members_count, sizeof *ways->ways, "objects", &ways->ways);
    if (err != ERR_OK) {
        ways_free(ways);
        return err;
    }
    for (uint32_t i = 0; i < conf->members_count; i++)
        begin_way(&ways->ways[i]);
    *out = ways;
    return ERR_OK;
}

void ways_free(struct ways *ways)
{
    if (ways == NULL)
        return;
    mem_free(ways->ways);
    mem_free(ways);
}

enum err ways_grow(struct ways *ways, uint32_t members_count)
{
    uint32_t before = ways->conf.members_count;
    if (members_count <= before)
        return ERR_OK;
    TRY(mem_grow(&ways->ways, before, members_count, sizeof *ways->ways, "objects"));
    ways->conf.members_count = members_count;
    for (uint32_t i = before; i < members_count; i++)
        begin_way(&ways->ways[i]);
    return ERR_OK;
}

void ways_forget(struct ways *ways, uint32_t peer)
{
    if (ways->xfer != NULL) {
        xfer_reset_peer(ways->xfer, peer);
        struct xfer_flow flow = xfer_flow(ways->xfer, peer);
        add_flow(&ways->gone, &flow);
        xfer_forget_peer(ways->xfer, peer);
    }
    add_flow(&ways->gone, &ways->ways[peer].before);
    begin_way(&ways->ways[peer]);
}

void ways_carry(struct ways *ways, struct xfer *xfer)
{
    for (uint32_t i = 0; i < ways->conf.members_count && ways->xfer != NULL; i++) {
        struct way *way = &ways->ways[i];
        struct xfer_flow flow = xfer_flow(ways->xfer, i);
        line_given_up(&way->line, line_flight(&way->line));
        way->before.sent += flow.sent;
        way->before.delivered += flow.delivered;
        way->before.wasted += flow.wasted + xfer_outstanding(ways->xfer, i);
        way->seen = (struct xfer_flow){0};
    }
    ways->xfer = xfer;
}

void ways_set_window(struct ways *ways, uint32_t peer, uint64_t window_bytes)
{
    ways->ways[peer].window = window_bytes;
}

uint64_t ways_window(const struct ways *ways, uint32_t peer)
{
    return ways->ways[peer].window;
}

void ways_reconnected(struct ways *ways, uint32_t peer)
{
    struct way *way = &ways->ways[peer];
    uint64_t flight = line_flight(&way->line);
    way->line = line_init(now_us());
    line_sent(&way->line, flight, now_us());
    xfer_ask(ways->xfer, peer);
}

void ways_note_delay(struct ways *ways, uint32_t peer, uint32_t delay_us)
{
    ways->ways[peer].delay_us = delay_us;
}

/* ---- what may go ---- */

/* What arrived, or will not any more, since the last look. */
static void follow(struct ways *ways, uint32_t peer, uint64_t at_us)
{
    struct way *way = &ways->ways[peer];
    struct xfer_flow flow = xfer_flow(ways->xfer, peer);
    if (line_flight(&way->line) == 0 && flow.sent == way->seen.sent)
        return;
    struct traffic_socket socket = link_bulk_socket(ways->conf.link, peer);
    line_look(&way->line, &(struct line_socket){
                              .unsent = socket.unsent, .retransmits = socket.retransmits, .queue_us = socket.queue_us});
    if (flow.delivered > way->seen.delivered) {
        line_delivered(&way->line, flow.delivered - way->seen.delivered, way->delay_us, at_us);
        /* Only then: more of it than the line needs would be a queue that nobody can overtake. */
        if (socket.starved_us > way->starved_us)
            link_make_room(ways->conf.link, peer, line_window(&way->line));
        way->starved_us = socket.starved_us;
    }
    if (flow.given_up > way->seen.given_up)
        line_given_up(&way->line, flow.given_up - way->seen.given_up);
    way->seen = flow;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void set_limit(struct ways *ways, uint32_t peer)
{
    const struct way *way = &ways->ways[peer];
    uint64_t paced = ways->pace.rate_bits / BITS / CHUNK_PARTS;
    struct xfer_limit limit = {.window = smaller(line_window(&way->line), way->window),
                               .chunk = line_chunk_bytes(&way->line)};
    if (ways->pace.rate_bits > 0)
        limit.chunk = smaller(limit.chunk, paced > LINE_CHUNK_MIN ? paced : LINE_CHUNK_MIN);
    xfer_set_limit(ways->xfer, peer, &limit);
}

/* The limit is on all that goes onto the line, whoever handed it over. */
static void pace_all(struct ways *ways, uint64_t at_us)
{
    uint64_t handed = link_handed_bytes(ways->conf.link);
    pace_spend(&ways->pace, handed - ways->paced, at_us);
    ways->paced = handed;
}

static enum err send_chunk(struct ways *ways, const struct xfer_chunk *chunk, uint64_t now_ms, uint64_t at_us)
{
    struct way *way = &ways->ways[chunk->peer];
    uint8_t head[WIRE_CHUNK_HEADER_BYTES];
    struct wire_chunk fields = {.key = chunk->key,
                                .pass = chunk->pass,
                                .stamp_us = (uint32_t)at_us,
                                .total = chunk->total,
                                .offset = chunk->offset};
    wire_chunk_put(&fields, head);
    TRY(link_send(ways->conf.link, chunk->peer, WIRE_CHUNK, head, sizeof head, chunk->data, chunk->bytes));
    pace_all(ways, at_us);
    xfer_sent(ways->xfer, chunk, now_ms);
    line_sent(&way->line, chunk->bytes, at_us);
    set_limit(ways, chunk->peer);
    return ERR_OK;
}

static void send_chunks(struct ways *ways, uint64_t now_ms)
{
    struct bitset blocked = {{0}};
    struct xfer_chunk chunk;
    ways->wait_us = 0;
    pace_all(ways, now_us());
    for (int i = 0; i < CHUNKS_PER_TURN; i++) {
        if (!xfer_next(ways->xfer, &blocked, &chunk)) {
            if (!bitset_empty(&blocked))
                ways->wait_us = BLOCKED_WAIT_US;
            return;
        }
        uint64_t at_us = now_us();
        uint64_t wait_us = pace_wait_us(&ways->pace, chunk.bytes, at_us);
        if (wait_us > 0) {
            ways->wait_us = wait_us;
            return;
        }
        if (send_chunk(ways, &chunk, now_ms, at_us) != ERR_OK)
            bitset_add(&blocked, chunk.peer);
    }
    ways->wait_us = GO_ON_US;
}

static struct xfer_flow sum_of(const struct ways *ways)
{
    struct xfer_flow sum = ways->gone;
    for (uint32_t i = 0; i < ways->conf.members_count; i++) {
        struct xfer_flow flow = xfer_flow(ways->xfer, i);
        add_flow(&sum, &flow);
        add_flow(&sum, &ways->ways[i].before);
    }
    return sum;
}

void ways_flush(struct ways *ways, uint64_t now_ms)
{
    uint64_t at_us = now_us();
    for (uint32_t i = 0; i < ways->conf.members_count; i++) {
        follow(ways, i, at_us);
        set_limit(ways, i);
    }
    send_chunks(ways, now_ms);
    meter_update(&ways->meter, sum_of(ways).delivered, xfer_left(ways->xfer), now_us());
}

uint64_t ways_wait_us(const struct ways *ways)
{
    return ways->wait_us;
}

/* ---- looking in ---- */

uint64_t ways_sent_bytes(const struct ways *ways)
{
    return sum_of(ways).sent;
}

uint64_t ways_wasted_bytes(const struct ways *ways)
{
    return sum_of(ways).wasted;
}

uint64_t ways_uplink_bits(const struct ways *ways)
{
    return ways->meter.bits_per_s;
}
