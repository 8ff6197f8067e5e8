/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/transfer/send_scheduler.h"

#include "common/env.h"
#include "common/mem.h"
#include "net/transfer/congestion_window.h"
#include "net/transfer/token_bucket.h"

enum { CHUNKS_PER_TURN = 64, BLOCKED_WAIT_US = 1000, GO_ON_US = 1, BITS = 8 };
/* Under a rate limit: what may go at once after a rest, and how large a chunk is, as parts of a second. */
enum { BURST_PARTS = 50, CHUNK_PARTS = 40 };

struct way {
    struct congestion_window congestion;
    struct xfer_flow seen;   /* as far as `congestion` knows of it */
    struct xfer_flow before; /* of transfers that have ended */
    uint64_t window;         /* bytes that the peer takes in unacknowledged */
    uint32_t delay_us;       /* of the chunk last acknowledged */
    uint64_t starved_us;     /* of the bulk connection's send buffer, as last seen */
};

struct send_scheduler {
    struct send_scheduler_conf conf;
    struct xfer *xfer;
    struct way *ways;      /* [members] */
    struct xfer_flow gone; /* of members that have left */
    struct token_bucket bucket;
    uint64_t paced;             /* bytes of all that link handed over, as far as `bucket` knows of them */
    struct rate_estimator rate; /* our uplink, as seen */
    uint64_t wait_us;
};

static uint64_t now_us(void)
{
    return (uint64_t)(env_mono_s() * 1e6);
}

uint32_t send_scheduler_clock_us(void)
{
    return (uint32_t)now_us();
}

static void begin_way(struct way *way)
{
    *way = (struct way){.congestion = congestion_window_init(now_us()), .window = CONGESTION_CHUNK_MAX};
}

static void add_flow(struct xfer_flow *sum, const struct xfer_flow *flow)
{
    sum->sent += flow->sent;
    sum->delivered += flow->delivered;
    sum->wasted += flow->wasted;
}

enum err send_scheduler_new(const struct send_scheduler_conf *conf, struct send_scheduler **out)
{
    struct send_scheduler *scheduler;
    *out = NULL;
    TRY(mem_new(1, sizeof *scheduler, "the send scheduler", &scheduler));
    scheduler->conf = *conf;
    scheduler->bucket = token_bucket_init(conf->rate_limit, conf->rate_limit / BITS / BURST_PARTS, now_us());
    enum err err = mem_new(conf->members_count, sizeof *scheduler->ways, "the send scheduler", &scheduler->ways);
    if (err != ERR_OK) {
        send_scheduler_free(scheduler);
        return err;
    }
    for (uint32_t i = 0; i < conf->members_count; i++)
        begin_way(&scheduler->ways[i]);
    *out = scheduler;
    return ERR_OK;
}

void send_scheduler_free(struct send_scheduler *scheduler)
{
    if (scheduler == NULL)
        return;
    mem_free(scheduler->ways);
    mem_free(scheduler);
}

enum err send_scheduler_grow(struct send_scheduler *scheduler, uint32_t members_count)
{
    uint32_t before = scheduler->conf.members_count;
    if (members_count <= before)
        return ERR_OK;
    TRY(mem_grow(&scheduler->ways, before, members_count, sizeof *scheduler->ways, "the send scheduler"));
    scheduler->conf.members_count = members_count;
    for (uint32_t i = before; i < members_count; i++)
        begin_way(&scheduler->ways[i]);
    return ERR_OK;
}

void send_scheduler_forget(struct send_scheduler *scheduler, uint32_t peer)
{
    if (scheduler->xfer != NULL) {
        xfer_reset_peer(scheduler->xfer, peer);
        struct xfer_flow flow = xfer_flow(scheduler->xfer, peer);
        add_flow(&scheduler->gone, &flow);
        xfer_forget_peer(scheduler->xfer, peer);
    }
    add_flow(&scheduler->gone, &scheduler->ways[peer].before);
    begin_way(&scheduler->ways[peer]);
}

void send_scheduler_carry(struct send_scheduler *scheduler, struct xfer *xfer)
{
    for (uint32_t i = 0; i < scheduler->conf.members_count && scheduler->xfer != NULL; i++) {
        struct way *way = &scheduler->ways[i];
        struct xfer_flow flow = xfer_flow(scheduler->xfer, i);
        congestion_window_given_up(&way->congestion, congestion_window_flight(&way->congestion));
        way->before.sent += flow.sent;
        way->before.delivered += flow.delivered;
        way->before.wasted += flow.wasted + xfer_outstanding(scheduler->xfer, i);
        way->seen = (struct xfer_flow){0};
    }
    scheduler->xfer = xfer;
}

void send_scheduler_set_window(struct send_scheduler *scheduler, uint32_t peer, uint64_t window_bytes)
{
    scheduler->ways[peer].window = window_bytes;
}

uint64_t send_scheduler_window(const struct send_scheduler *scheduler, uint32_t peer)
{
    return scheduler->ways[peer].window;
}

void send_scheduler_reconnected(struct send_scheduler *scheduler, uint32_t peer)
{
    struct way *way = &scheduler->ways[peer];
    uint64_t flight = congestion_window_flight(&way->congestion);
    way->congestion = congestion_window_init(now_us());
    congestion_window_sent(&way->congestion, flight, now_us());
    xfer_ask(scheduler->xfer, peer);
}

void send_scheduler_note_delay(struct send_scheduler *scheduler, uint32_t peer, uint32_t delay_us)
{
    scheduler->ways[peer].delay_us = delay_us;
}

/* ---- what may go ---- */

/* What arrived, or will not any more, since the last look. */
static void follow(struct send_scheduler *scheduler, uint32_t peer, uint64_t at_us)
{
    struct way *way = &scheduler->ways[peer];
    struct xfer_flow flow = xfer_flow(scheduler->xfer, peer);
    if (congestion_window_flight(&way->congestion) == 0 && flow.sent == way->seen.sent)
        return;
    struct traffic_socket socket = link_bulk_socket(scheduler->conf.link, peer);
    congestion_window_look(&way->congestion, &(struct congestion_socket){.unsent = socket.unsent,
                                                                         .retransmits = socket.retransmits,
                                                                         .queue_us = socket.queue_us});
    if (flow.delivered > way->seen.delivered) {
        congestion_window_delivered(&way->congestion, flow.delivered - way->seen.delivered, way->delay_us, at_us);
        /* Only then: more of it than the line needs would be a queue that nobody can overtake. */
        if (socket.starved_us > way->starved_us)
            link_make_room(scheduler->conf.link, peer, congestion_window_now(&way->congestion));
        way->starved_us = socket.starved_us;
    }
    if (flow.given_up > way->seen.given_up)
        congestion_window_given_up(&way->congestion, flow.given_up - way->seen.given_up);
    way->seen = flow;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void set_limit(struct send_scheduler *scheduler, uint32_t peer)
{
    const struct way *way = &scheduler->ways[peer];
    uint64_t paced = scheduler->bucket.rate_bits / BITS / CHUNK_PARTS;
    struct xfer_limit limit = {.window = smaller(congestion_window_now(&way->congestion), way->window),
                               .chunk = congestion_window_chunk_bytes(&way->congestion)};
    if (scheduler->bucket.rate_bits > 0)
        limit.chunk = smaller(limit.chunk, paced > CONGESTION_CHUNK_MIN ? paced : CONGESTION_CHUNK_MIN);
    xfer_set_limit(scheduler->xfer, peer, &limit);
}

/* The limit is on all that goes onto the line, whoever handed it over. */
static void pace_all(struct send_scheduler *scheduler, uint64_t at_us)
{
    uint64_t handed = link_handed_bytes(scheduler->conf.link);
    token_bucket_spend(&scheduler->bucket, handed - scheduler->paced, at_us);
    scheduler->paced = handed;
}

static enum err send_chunk(struct send_scheduler *scheduler, const struct xfer_chunk *chunk, uint64_t now_ms,
                           uint64_t at_us)
{
    struct way *way = &scheduler->ways[chunk->peer];
    uint8_t head[WIRE_CHUNK_HEADER_BYTES];
    struct wire_chunk fields = {.key = chunk->key,
                                .pass = chunk->pass,
                                .stamp_us = (uint32_t)at_us,
                                .total = chunk->total,
                                .offset = chunk->offset};
    wire_chunk_put(&fields, head);
    TRY(link_send(scheduler->conf.link, chunk->peer, WIRE_CHUNK, head, sizeof head, chunk->data, chunk->bytes));
    pace_all(scheduler, at_us);
    xfer_sent(scheduler->xfer, chunk, now_ms);
    congestion_window_sent(&way->congestion, chunk->bytes, at_us);
    set_limit(scheduler, chunk->peer);
    return ERR_OK;
}

static void send_chunks(struct send_scheduler *scheduler, uint64_t now_ms)
{
    struct bitset blocked = {{0}};
    struct xfer_chunk chunk;
    scheduler->wait_us = 0;
    pace_all(scheduler, now_us());
    for (int i = 0; i < CHUNKS_PER_TURN; i++) {
        if (!xfer_next(scheduler->xfer, &blocked, &chunk)) {
            if (!bitset_empty(&blocked))
                scheduler->wait_us = BLOCKED_WAIT_US;
            return;
        }
        uint64_t at_us = now_us();
        uint64_t wait_us = token_bucket_wait_us(&scheduler->bucket, chunk.bytes, at_us);
        if (wait_us > 0) {
            scheduler->wait_us = wait_us;
            return;
        }
        if (send_chunk(scheduler, &chunk, now_ms, at_us) != ERR_OK)
            bitset_add(&blocked, chunk.peer);
    }
    scheduler->wait_us = GO_ON_US;
}

static struct xfer_flow sum_of(const struct send_scheduler *scheduler)
{
    struct xfer_flow sum = scheduler->gone;
    for (uint32_t i = 0; i < scheduler->conf.members_count; i++) {
        struct xfer_flow flow = xfer_flow(scheduler->xfer, i);
        add_flow(&sum, &flow);
        add_flow(&sum, &scheduler->ways[i].before);
    }
    return sum;
}

void send_scheduler_flush(struct send_scheduler *scheduler, uint64_t now_ms)
{
    uint64_t at_us = now_us();
    for (uint32_t i = 0; i < scheduler->conf.members_count; i++) {
        follow(scheduler, i, at_us);
        set_limit(scheduler, i);
    }
    send_chunks(scheduler, now_ms);
    rate_estimator_update(&scheduler->rate, sum_of(scheduler).delivered, xfer_left(scheduler->xfer), now_us());
}

uint64_t send_scheduler_wait_us(const struct send_scheduler *scheduler)
{
    return scheduler->wait_us;
}

/* ---- looking in ---- */

uint64_t send_scheduler_sent_bytes(const struct send_scheduler *scheduler)
{
    return sum_of(scheduler).sent;
}

uint64_t send_scheduler_wasted_bytes(const struct send_scheduler *scheduler)
{
    return sum_of(scheduler).wasted;
}

uint64_t send_scheduler_uplink_bits(const struct send_scheduler *scheduler)
{
    return scheduler->rate.bits_per_s;
}
