/* SPDX-License-Identifier: Apache-2.0 */
#include "net/transfer/congestion_window.h"

enum { US = 1000000, QUEUE_US = CONGESTION_QUEUE_MS * 1000, QUEUE_LOW_US = QUEUE_US / 2 };
/*
 * The queue that a flow makes: QUEUE_US up to 2^QUEUE_RATE_LOG bytes per second, FAIR_US less for each doubling of its
 * rate, and never less than QUEUE_LOW_US, or than 1/QUEUE_OF_FREE of the line's own round trip: on a long line less
 * would leave it idle where answers come unevenly.
 */
enum { FAIR_US = QUEUE_US / 10, QUEUE_RATE_LOG = 20, QUEUE_OF_FREE = 5 };
/*
 * RATE_SPAN: for how long a maximum counts. DELAY_SPAN: for how long a shortest delay counts; DRAIN: after so long the
 * window is cut to DRAIN_NUM/DRAIN_DEN of the line's content for a round. MARKS_PER_WINDOW: samples in a window.
 * UNSENT: what may wait in the socket; CHUNK: a chunk's length.
 */
enum { RATE_SPAN_US = 1500000, DELAY_SPAN_US = 25000000, DRAIN_US = 10000000, DRAIN_NUM = 3, DRAIN_DEN = 4 };
enum { MARKS_PER_WINDOW = 32, STARTING_ROUNDS = 4, UNSENT_US = QUEUE_US / 2, CHUNK_US = QUEUE_US / 4 };
/* Delays are kept as headroom below this, so that a shorter one is a larger number. */
static const int64_t delay_top_us = (int64_t)1 << 33;

/* By the clock: all that share our uplink at the same time, or each would measure the others' queue. */
static uint64_t next_drain_us(uint64_t now_us)
{
    return (now_us / DRAIN_US + 1) * DRAIN_US;
}

struct congestion_window congestion_window_init(uint64_t now_us)
{
    return (struct congestion_window){
        .window = CONGESTION_WINDOW_MIN, .drain_us = next_drain_us(now_us), .starting = true};
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* `a` less `b`, but not below zero. */
static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static uint64_t peak(const struct congestion_peak *peak)
{
    return larger(peak->now, peak->before);
}

/* Spans pass only while there are samples: a pause makes nothing forgotten. */
static void put(struct congestion_peak *peak, uint64_t value, uint64_t span_us, uint64_t now_us)
{
    if (now_us >= peak->since_us + span_us)
        *peak = (struct congestion_peak){.before = peak->now, .since_us = now_us};
    peak->now = larger(peak->now, value);
}

static uint64_t content(uint64_t rate, uint64_t us)
{
    return (uint64_t)((unsigned __int128)rate * us / US);
}

/* Binary logarithm in units of 1/FAIR_US, straight between powers of two. */
static uint64_t log2_fair(uint64_t value)
{
    uint64_t whole = 0;
    while (value >> (whole + 1) > 0)
        whole++;
    return whole * FAIR_US + ((value - ((uint64_t)1 << whole)) * FAIR_US >> whole);
}

/*
 * The queue that a flow of such a rate makes. Were it the same for all, those that share a line would keep whatever
 * shares they have, for ever: each one's window is its rate of before times the same time. As the larger one stops at
 * a shorter queue than the smaller one, their rates come nearer to each other. (So does Swift with a target that falls
 * with the window: Kumar et al., SIGCOMM 2020, 3.1.)
 */
static uint64_t queue_aim_us(uint64_t rate, uint64_t free_us)
{
    uint64_t most = QUEUE_US + QUEUE_RATE_LOG * FAIR_US, log = log2_fair(larger(rate, 1));
    uint64_t least = larger(QUEUE_LOW_US, free_us / QUEUE_OF_FREE);
    return smaller(larger(less(most, log), least), QUEUE_US);
}

uint64_t congestion_window_flight(const struct congestion_window *congestion)
{
    return congestion->sent - congestion->settled;
}

/* Of what is on its way, on the line itself. */
static uint64_t on_line(const struct congestion_window *congestion)
{
    return less(congestion_window_flight(congestion), congestion->socket.unsent);
}

static uint64_t window_now(const struct congestion_window *congestion)
{
    uint64_t drained = content(peak(&congestion->rate), congestion->free_us) * DRAIN_NUM / DRAIN_DEN;
    return larger(congestion->draining ? smaller(drained, congestion->window) : congestion->window,
                  CONGESTION_WINDOW_MIN);
}

uint64_t congestion_window_now(const struct congestion_window *congestion)
{
    uint64_t unsent_max =
        larger(content(peak(&congestion->rate), UNSENT_US), 2 * congestion_window_chunk_bytes(congestion));
    uint64_t room = smaller(less(window_now(congestion), on_line(congestion)),
                            less(unsent_max, congestion->socket.unsent + congestion->handed));
    return larger(congestion_window_flight(congestion) + room, CONGESTION_WINDOW_MIN);
}

size_t congestion_window_chunk_bytes(const struct congestion_window *congestion)
{
    uint64_t bytes = smaller(content(peak(&congestion->rate), CHUNK_US), window_now(congestion) / 4);
    return (size_t)larger(smaller(bytes, CONGESTION_CHUNK_MAX), CONGESTION_CHUNK_MIN);
}

/* ---- sending ---- */

void congestion_window_look(struct congestion_window *congestion, const struct congestion_socket *socket)
{
    congestion->socket = *socket;
    congestion->handed = 0;
}

void congestion_window_sent(struct congestion_window *congestion, uint64_t bytes, uint64_t now_us)
{
    congestion->sent += bytes;
    congestion->handed += bytes;
    const struct congestion_mark *last =
        &congestion
             ->marks[(congestion->marks_head + congestion->marks_count + CONGESTION_MARKS - 1) % CONGESTION_MARKS];
    bool soon = congestion->marks_count > 0 && congestion->sent - last->sent < congestion->window / MARKS_PER_WINDOW;
    if (soon || congestion->marks_count == CONGESTION_MARKS)
        return;
    congestion->marks[(congestion->marks_head + congestion->marks_count++) % CONGESTION_MARKS] =
        (struct congestion_mark){.sent = congestion->sent,
                                 .at_us = now_us,
                                 .delivered = congestion->delivered,
                                 .delivered_us = congestion->delivered_us,
                                 .retransmits = congestion->socket.retransmits,
                                 .full =
                                     congestion_window_flight(congestion) + congestion_window_chunk_bytes(congestion) >=
                                     window_now(congestion) - window_now(congestion) / 8};
}

/* ---- what comes back ---- */

struct sample {
    bool any, full, retransmitted;
    uint64_t rate, round_us, queue_us;
};

/* The delay one way, against that of the first chunk. */
static int64_t delay_of(struct congestion_window *congestion, uint32_t delay_us)
{
    if (!congestion->delay_known)
        congestion->delay_zero = delay_us;
    congestion->delay_known = true;
    return (int32_t)(delay_us - congestion->delay_zero);
}

/* How long the last chunk waited on the line: what both witnesses saw. */
static uint64_t queue_of(struct congestion_window *congestion, int64_t delay, uint64_t now_us)
{
    uint64_t headroom = (uint64_t)(delay_top_us - delay);
    put(&congestion->headroom, headroom, DELAY_SPAN_US, now_us);
    return smaller(peak(&congestion->headroom) - headroom, congestion->socket.queue_us);
}

/* The youngest mark that is settled, as a sample; older ones say less. */
static struct sample take_sample(struct congestion_window *congestion, uint32_t delay_us, uint64_t now_us)
{
    struct sample sample = {.any = false};
    const struct congestion_mark *mark = NULL;
    while (congestion->marks_count > 0 && congestion->marks[congestion->marks_head].sent <= congestion->settled) {
        mark = &congestion->marks[congestion->marks_head];
        congestion->marks_head = (congestion->marks_head + 1) % CONGESTION_MARKS;
        congestion->marks_count--;
    }
    if (mark == NULL)
        return sample;
    int64_t delay = delay_of(congestion, delay_us);
    congestion->delivered_us = mark->at_us + (uint64_t)delay;
    /* By the receiver's clock, or answers that come in bunches would look like a faster line. */
    uint64_t took_us =
        mark->delivered_us != 0 ? less(congestion->delivered_us, mark->delivered_us) : now_us - mark->at_us;
    sample.any = true;
    sample.full = mark->full;
    sample.retransmitted = congestion->socket.retransmits != mark->retransmits;
    sample.round_us = larger(now_us - mark->at_us, 1);
    sample.rate = (congestion->delivered - mark->delivered) * US / larger(took_us, 1);
    sample.queue_us = smaller(queue_of(congestion, delay, now_us), sample.round_us);
    return sample;
}

/* Cuts the window until what was on its way when that began has come back, and what came after it. */
static void drain(struct congestion_window *congestion, const struct sample *sample, uint64_t now_us)
{
    if (now_us < congestion->drain_us)
        return;
    congestion->draining = !congestion->draining;
    congestion->drain_us =
        congestion->draining ? now_us + sample->round_us + congestion->free_us : next_drain_us(now_us);
}

/* Whether the line takes more than it gets: no queue from the start, or for some rounds of full windows. */
static void note_queue(struct congestion_window *congestion, const struct sample *sample, uint64_t now_us)
{
    uint64_t low_us = queue_aim_us(peak(&congestion->rate), congestion->free_us) / 2;
    if (sample->queue_us >= low_us)
        congestion->starting = false;
    if (sample->queue_us >= low_us || !sample->full || congestion->draining)
        congestion->queued_us = now_us;
    else if (now_us > congestion->queued_us + STARTING_ROUNDS * sample->round_us)
        congestion->starting = true;
}

static void set_window(struct congestion_window *congestion, const struct sample *sample, uint64_t bytes)
{
    uint64_t most = congestion->window + bytes; /* one sample may be wrong: twice in a round at most */
    uint64_t queue_us = queue_aim_us(peak(&congestion->rate), congestion->free_us);
    uint64_t rate = sample->queue_us > queue_us * 5 / 4 ? sample->rate : peak(&congestion->rate);
    /* And one chunk: a window of few chunks would stay at as many, since a part of one is never on its way. */
    uint64_t aim = smaller(content(rate, congestion->free_us + queue_us) + CONGESTION_CHUNK_MIN, most);
    /* What TCP sent again came late for another reason than a queue. */
    if (sample->retransmitted)
        aim = larger(aim, congestion->window);
    else if (congestion->starting && sample->full)
        aim = most;
    congestion->window = larger(aim, CONGESTION_WINDOW_MIN);
}

void congestion_window_delivered(struct congestion_window *congestion, uint64_t bytes, uint32_t delay_us,
                                 uint64_t now_us)
{
    congestion->settled += bytes;
    congestion->delivered += bytes;
    struct sample sample = take_sample(congestion, delay_us, now_us);
    if (!sample.any)
        return;
    congestion->free_us = sample.round_us - sample.queue_us;
    /* Less than the line can do, because less was sent, is no news. */
    if (sample.full || sample.rate > peak(&congestion->rate))
        put(&congestion->rate, sample.rate, RATE_SPAN_US, now_us);
    drain(congestion, &sample, now_us);
    note_queue(congestion, &sample, now_us);
    if (!congestion->draining)
        set_window(congestion, &sample, bytes);
}

void congestion_window_given_up(struct congestion_window *congestion, uint64_t bytes)
{
    congestion->settled += bytes;
    congestion->marks_count = 0; /* they would count as delivered */
}
