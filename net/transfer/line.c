/* SPDX-License-Identifier: Apache-2.0 */
#include "net/transfer/line.h"

enum { US = 1000000, QUEUE_US = LINE_QUEUE_MS * 1000, QUEUE_HIGH_US = QUEUE_US * 5 / 4, QUEUE_LOW_US = QUEUE_US / 2 };
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

struct line line_init(uint64_t now_us)
{
    return (struct line){.window = LINE_WINDOW_MIN, .drain_us = next_drain_us(now_us), .starting = true};
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

static uint64_t peak(const struct line_peak *peak)
{
    return larger(peak->now, peak->before);
}

/* Spans pass only while there are samples: a pause makes nothing forgotten. */
static void put(struct line_peak *peak, uint64_t value, uint64_t span_us, uint64_t now_us)
{
    if (now_us >= peak->since_us + span_us)
        *peak = (struct line_peak){.before = peak->now, .since_us = now_us};
    peak->now = larger(peak->now, value);
}

static uint64_t content(uint64_t rate, uint64_t us)
{
    return (uint64_t)((unsigned __int128)rate * us / US);
}

uint64_t line_flight(const struct line *line)
{
    return line->sent - line->settled;
}

/* Of what is on its way, on the line itself. */
static uint64_t on_line(const struct line *line)
{
    return less(line_flight(line), line->socket.unsent);
}

static uint64_t window_now(const struct line *line)
{
    uint64_t drained = content(peak(&line->rate), line->free_us) * DRAIN_NUM / DRAIN_DEN;
    return larger(line->draining ? smaller(drained, line->window) : line->window, LINE_WINDOW_MIN);
}

uint64_t line_window(const struct line *line)
{
    uint64_t unsent_max = larger(content(peak(&line->rate), UNSENT_US), 2 * line_chunk_bytes(line));
    uint64_t room =
        smaller(less(window_now(line), on_line(line)), less(unsent_max, line->socket.unsent + line->handed));
    return larger(line_flight(line) + room, LINE_WINDOW_MIN);
}

size_t line_chunk_bytes(const struct line *line)
{
    uint64_t bytes = smaller(content(peak(&line->rate), CHUNK_US), window_now(line) / 4);
    return (size_t)larger(smaller(bytes, LINE_CHUNK_MAX), LINE_CHUNK_MIN);
}

/* ---- sending ---- */

void line_look(struct line *line, const struct line_socket *socket)
{
    line->socket = *socket;
    line->handed = 0;
}

void line_sent(struct line *line, uint64_t bytes, uint64_t now_us)
{
    line->sent += bytes;
    line->handed += bytes;
    const struct line_mark *last = &line->marks[(line->marks_head + line->marks_count + LINE_MARKS - 1) % LINE_MARKS];
    bool soon = line->marks_count > 0 && line->sent - last->sent < line->window / MARKS_PER_WINDOW;
    if (soon || line->marks_count == LINE_MARKS)
        return;
    line->marks[(line->marks_head + line->marks_count++) % LINE_MARKS] =
        (struct line_mark){.sent = line->sent,
                           .at_us = now_us,
                           .delivered = line->delivered,
                           .delivered_us = line->delivered_us,
                           .retransmits = line->socket.retransmits,
                           .full = line_flight(line) >= window_now(line) - window_now(line) / 4};
}

/* ---- what comes back ---- */

struct sample {
    bool any, full, retransmitted;
    uint64_t rate, round_us, queue_us;
};

/* The delay one way, against that of the first chunk. */
static int64_t delay_of(struct line *line, uint32_t delay_us)
{
    if (!line->delay_known)
        line->delay_zero = delay_us;
    line->delay_known = true;
    return (int32_t)(delay_us - line->delay_zero);
}

/* How long the last chunk waited on the line: what both witnesses saw. */
static uint64_t queue_of(struct line *line, int64_t delay, uint64_t now_us)
{
    uint64_t headroom = (uint64_t)(delay_top_us - delay);
    put(&line->headroom, headroom, DELAY_SPAN_US, now_us);
    return smaller(peak(&line->headroom) - headroom, line->socket.queue_us);
}

/* The youngest mark that is settled, as a sample; older ones say less. */
static struct sample take_sample(struct line *line, uint32_t delay_us, uint64_t now_us)
{
    struct sample sample = {.any = false};
    const struct line_mark *mark = NULL;
    while (line->marks_count > 0 && line->marks[line->marks_head].sent <= line->settled) {
        mark = &line->marks[line->marks_head];
        line->marks_head = (line->marks_head + 1) % LINE_MARKS;
        line->marks_count--;
    }
    if (mark == NULL)
        return sample;
    int64_t delay = delay_of(line, delay_us);
    line->delivered_us = mark->at_us + (uint64_t)delay;
    /* By the receiver's clock, or answers that come in bunches would look like a faster line. */
    uint64_t took_us = mark->delivered_us != 0 ? less(line->delivered_us, mark->delivered_us) : now_us - mark->at_us;
    sample.any = true;
    sample.full = mark->full;
    sample.retransmitted = line->socket.retransmits != mark->retransmits;
    sample.round_us = larger(now_us - mark->at_us, 1);
    sample.rate = (line->delivered - mark->delivered) * US / larger(took_us, 1);
    sample.queue_us = smaller(queue_of(line, delay, now_us), sample.round_us);
    return sample;
}

/* Cuts the window until what was on its way when that began has come back, and what came after it. */
static void drain(struct line *line, const struct sample *sample, uint64_t now_us)
{
    if (now_us < line->drain_us)
        return;
    line->draining = !line->draining;
    line->drain_us = line->draining ? now_us + sample->round_us + line->free_us : next_drain_us(now_us);
}

/* Whether the line takes more than it gets: no queue from the start, or for some rounds of full windows. */
static void note_queue(struct line *line, const struct sample *sample, uint64_t now_us)
{
    if (sample->queue_us >= QUEUE_LOW_US)
        line->starting = false;
    if (sample->queue_us >= QUEUE_LOW_US || !sample->full || line->draining)
        line->queued_us = now_us;
    else if (now_us > line->queued_us + STARTING_ROUNDS * sample->round_us)
        line->starting = true;
}

static void set_window(struct line *line, const struct sample *sample, uint64_t bytes)
{
    uint64_t most = line->window + bytes; /* one sample may be wrong: twice in a round at most */
    uint64_t rate = sample->queue_us > QUEUE_HIGH_US ? sample->rate : peak(&line->rate);
    uint64_t aim = smaller(content(rate, line->free_us + QUEUE_US), most);
    /* What TCP sent again came late for another reason than a queue. */
    if (sample->retransmitted)
        aim = larger(aim, line->window);
    else if (line->starting && sample->full)
        aim = most;
    line->window = larger(aim, LINE_WINDOW_MIN);
}

void line_delivered(struct line *line, uint64_t bytes, uint32_t delay_us, uint64_t now_us)
{
    line->settled += bytes;
    line->delivered += bytes;
    struct sample sample = take_sample(line, delay_us, now_us);
    if (!sample.any)
        return;
    line->free_us = sample.round_us - sample.queue_us;
    /* Less than the line can do, because less was sent, is no news. */
    if (sample.full || sample.rate > peak(&line->rate))
        put(&line->rate, sample.rate, RATE_SPAN_US, now_us);
    drain(line, &sample, now_us);
    note_queue(line, &sample, now_us);
    if (!line->draining)
        set_window(line, &sample, bytes);
}

void line_given_up(struct line *line, uint64_t bytes)
{
    line->settled += bytes;
    line->marks_count = 0; /* they would count as delivered */
}
