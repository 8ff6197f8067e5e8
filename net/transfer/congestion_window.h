/* SPDX-License-Identifier: Apache-2.0 */
/*
 * congestion_window: how many bytes may be on their way to one peer, so that the line is full and its queues are short.
 *
 * Measures, from chunks and acknowledgements, the rate of arrival and the time spent in the line's queues. There are
 * two witnesses: the delay one way, by the receiver's clock against ours, of which only changes count (as LEDBAT, RFC
 * 6817); our own socket's queue is in it. And TCP's round trip: the queue of what comes the other way is in it. What
 * both saw is the line's. Allowed is rate x (round trip without that wait + CONGESTION_QUEUE_MS, or less, down to half
 * of it, the faster it is) and a chunk, the rate being a maximum over the last samples (as BBR, Cardwell et al., ACM
 * Queue 14.5, 2016), and twice as much in each round as long as no queue is seen. So the line never runs dry, the
 * rates of those that share it come nearer to each other, and what waits in it is worth about CONGESTION_QUEUE_MS:
 * heartbeats and answers, on a connection of their own, wait no longer behind bulk. Beside that a little may wait in
 * the socket, so that TCP always has something to send where loss or its own start makes it the slower one. Now and
 * then the window is cut below what the line itself holds, so that the shortest delay is measured without our own
 * queue.
 *
 * Pure: the caller brings time and counters. Integers only.
 */
#ifndef NET_TRANSFER_CONGESTION_WINDOW_H
#define NET_TRANSFER_CONGESTION_WINDOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CONGESTION_QUEUE_MS = 80, CONGESTION_MARKS = 64 };
enum {
    CONGESTION_CHUNK_MIN = 4 << 10,
    CONGESTION_CHUNK_MAX = 64 << 10,
    CONGESTION_WINDOW_MIN = 2 * CONGESTION_CHUNK_MIN
};

/* What the kernel says of our end of the connection. */
struct congestion_socket {
    uint64_t unsent;      /* bytes handed to it that it has not sent yet */
    uint64_t retransmits; /* segments, since the connection began */
    uint64_t queue_us;    /* round trip beyond the shortest, as TCP measures them */
};

/* Remembered of one chunk until it is settled. */
struct congestion_mark {
    uint64_t sent;                    /* with it */
    uint64_t at_us;                   /* when it went */
    uint64_t delivered, delivered_us; /* then; and when the last of that had come, by the receiver's clock */
    uint64_t retransmits;
    bool full; /* the window was in use: what comes back says what the line can do */
};

/* The largest over the last one to two spans of time. */
struct congestion_peak {
    uint64_t now, before; /* 0: none */
    uint64_t since_us;
};

struct congestion_window {
    uint64_t sent, settled, delivered; /* bytes since the start; settled: delivered or given up */
    uint64_t delivered_us;             /* when the last of them came, by the receiver's clock shifted to ours */
    struct congestion_mark marks[CONGESTION_MARKS]; /* ring */
    size_t marks_head, marks_count;
    struct congestion_peak rate; /* bytes per second */
    struct congestion_peak
        headroom;        /* a constant less the delay one way, microseconds: the peak is the shortest delay */
    uint32_t delay_zero; /* the first delay: the clocks' difference */
    bool delay_known;
    uint64_t window;                 /* bytes on the line */
    struct congestion_socket socket; /* as last told */
    uint64_t handed;                 /* bytes handed to it since */
    uint64_t free_us;                /* the round trip without our own queue */
    uint64_t drain_us;               /* when to measure the shortest delay next, or when that ends */
    bool draining;
    bool starting;      /* no queue was ever seen, or for some rounds now: twice as much in each */
    uint64_t queued_us; /* when a queue was last seen, or the window was not in use */
};

/* Knows nothing yet: a first connection, or one after a break. */
struct congestion_window congestion_window_init(uint64_t now_us);

/* Bytes sent and not settled, wherever they are. */
uint64_t congestion_window_flight(const struct congestion_window *congestion);
/* How many bytes may be sent and not settled now; at least CONGESTION_WINDOW_MIN. */
uint64_t congestion_window_now(const struct congestion_window *congestion);
/* How large the next chunk should be: worth a quarter of CONGESTION_QUEUE_MS. */
size_t congestion_window_chunk_bytes(const struct congestion_window *congestion);

/* What the kernel says now; before each of what follows, or nearly. */
void congestion_window_look(struct congestion_window *congestion, const struct congestion_socket *socket);
/* `bytes` were handed to the connection. */
void congestion_window_sent(struct congestion_window *congestion, uint64_t bytes, uint64_t now_us);
/* `bytes` of these have arrived. `delay_us`: of the last of them, the receiver's clock when it came less ours when it
 * went, modulo 2^32. */
void congestion_window_delivered(struct congestion_window *congestion, uint64_t bytes, uint32_t delay_us,
                                 uint64_t now_us);
/* `bytes` of these will not be acknowledged: lost, unwanted, or of a transfer that ended. */
void congestion_window_given_up(struct congestion_window *congestion, uint64_t bytes);

#endif
