/* SPDX-License-Identifier: Apache-2.0 */
/*
 * traffic: the traffic of each peer's connections, bytes at the socket and round-trip time, as the kernel counts them
 * (TCP_INFO); and an end to those that bring bytes and no message.
 *
 * Owns the list of file descriptors that are known to carry a peer's traffic, and the sums over those that are gone.
 * The descriptors belong to ZeroMQ: nothing is read from them, written to them or closed here, and one may be closed or
 * reused at any time. The thread that owns the links calls. Nothing blocks.
 */
#ifndef NET_TRANSPORT_TRAFFIC_H
#define NET_TRANSPORT_TRAFFIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

struct traffic;

struct traffic_sum {
    uint64_t sent, received; /* bytes, over all connections so far */
    uint32_t rtt_us;         /* as TCP last measured it; 0: unknown */
    uint32_t rtt_min_us;     /* the shortest of the last minutes, of any connection; 0: unknown */
};

ERR_MUST_CHECK enum err traffic_new(uint32_t peers_count, struct traffic **out);
/* NULL is fine. */
void traffic_free(struct traffic *traffic);
/* Room for so many peers, if there is less. */
ERR_MUST_CHECK enum err traffic_grow(struct traffic *traffic, uint32_t peers_count);
/* The number is another peer's from now on. */
void traffic_forget(struct traffic *traffic, uint32_t peer);
/* The connections known to carry its traffic, now or earlier; returns how many. */
enum { TRAFFIC_FDS_MAX = 8 };
size_t traffic_fds(const struct traffic *traffic, uint32_t peer, int fds[TRAFFIC_FDS_MAX]);

/* Remembers that this descriptor carries traffic of the peer; a negative one is passed over. Returns the one of the
 * peer's that had to make room, the oldest, of TRAFFIC_FDS_MAX; -1: none had. */
int traffic_note(struct traffic *traffic, uint32_t peer, int fd);

/* Of one connection, as the kernel sees it now. */
struct traffic_socket {
    uint64_t sent, received; /* bytes */
    uint64_t unsent;         /* bytes that it has not sent yet */
    uint64_t retransmits;    /* segments that it has sent again */
    uint64_t queue_us;       /* round trip beyond the shortest of the last minutes */
    uint64_t starved_us;     /* how long its send buffer was what kept it from sending more */
    uint32_t rtt_us;         /* 0: unknown */
    uint32_t rtt_min_us;     /* the shortest of the last minutes; 0: unknown */
};
/* False, and zeros: it is no TCP socket (any more). */
bool traffic_socket(int fd, struct traffic_socket *out);

/* Reads the kernel's counters; call often enough (a second) not to miss a short connection. */
void traffic_sample(struct traffic *traffic);

/* As of the last sample. */
struct traffic_sum traffic_of(const struct traffic *traffic, uint32_t peer);

/* ---- connections that bring bytes and no message ----
 *
 * ZeroMQ hands a message over when its last part is there, and takes in any number of parts until then; its limits are
 * on a part and on whole messages. So a member could fill our memory with one message that never ends. The kernel knows
 * how much was taken from a connection: one that goes on for BACKLOG_BYTES_MAX without a message of it having been seen
 * here is shut down. Honest ones stay far below: a message has two parts of 64 KiB at most, ZeroMQ's queue is bounded,
 * and what waits in the kernel's buffer is not counted. The number of connections is bounded, too: of those of which no
 * message has come yet, the oldest makes room for the next, so that nobody keeps others out who only holds connections
 * open. Memory is in proportion to the highest descriptor. */

enum { BACKLOG_BYTES_MAX = 16 << 20, BACKLOG_FDS_MAX = 1 << 20 };

struct backlog;

ERR_MUST_CHECK enum err backlog_new(size_t connections_max, struct backlog **out);
/* NULL is fine. */
void backlog_free(struct backlog *backlog);
/* How many connections there may be from now on. */
void backlog_allow(struct backlog *backlog, size_t connections_max);

/* A connection that was accepted just now, or `dialled`. More than there may be: the oldest one that was accepted and
 * has brought no message is shut down, or, where there is none, this one. */
void backlog_open(struct backlog *backlog, int fd, bool dialled);
/* A whole message of it was taken in. */
void backlog_seen(struct backlog *backlog, int fd);
/* Ends a connection: whoever it was of is not to be heard. */
void backlog_end(struct backlog *backlog, int fd);
/* Shuts down those that have brought too much; several times a second. Returns how many. */
size_t backlog_check(struct backlog *backlog);

#endif
