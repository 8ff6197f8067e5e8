/* SPDX-License-Identifier: Apache-2.0 */
/*
 * send_scheduler: which peer sends next, and how much: within the peer's window, the line's congestion window, and the
 * rate limit for all together. Takes the chunks that xfer has ready and hands them to the connections. Private to
 * daemon/transfer.
 */
#ifndef DAEMON_TRANSFER_SEND_SCHEDULER_H
#define DAEMON_TRANSFER_SEND_SCHEDULER_H

#include <stdint.h>

#include "common/err.h"
#include "net/transport/link.h"
#include "net/transfer/xfer.h"

/* All borrowed. */
struct send_scheduler_conf {
    struct link *link;
    uint32_t members_count;
    uint64_t rate_limit; /* bits per second; 0: none */
};

struct send_scheduler;

ERR_MUST_CHECK enum err send_scheduler_new(const struct send_scheduler_conf *conf, struct send_scheduler **out);
/* NULL is fine. */
void send_scheduler_free(struct send_scheduler *scheduler);

/* Room for so many members, if there is less. */
ERR_MUST_CHECK enum err send_scheduler_grow(struct send_scheduler *scheduler, uint32_t members_count);
/* The slot is another member's from now on: transfers with the one before end, and the line is not known. */
void send_scheduler_forget(struct send_scheduler *scheduler, uint32_t peer);

/* From now on these transfers, which have not begun; those before have ended. Borrowed. */
void send_scheduler_carry(struct send_scheduler *scheduler, struct xfer *xfer);
/* How many unacknowledged bytes a peer takes in; until it is told, one chunk. */
void send_scheduler_set_window(struct send_scheduler *scheduler, uint32_t peer, uint64_t window_bytes);
uint64_t send_scheduler_window(const struct send_scheduler *scheduler, uint32_t peer);
/* A new bulk connection: bytes on their way may be lost, and the line may be another one. */
void send_scheduler_reconnected(struct send_scheduler *scheduler, uint32_t peer);
/* An acknowledgement's delay_us; before xfer is told of it. */
void send_scheduler_note_delay(struct send_scheduler *scheduler, uint32_t peer, uint32_t delay_us);
/* Our clock as chunks carry it: microseconds, modulo 2^32. */
uint32_t send_scheduler_clock_us(void);

/* Hands over what may go now. */
void send_scheduler_flush(struct send_scheduler *scheduler, uint64_t now_ms);
/* Microseconds until something may go that waits for its turn; 0: nothing waits. */
uint64_t send_scheduler_wait_us(const struct send_scheduler *scheduler);

/* Bytes of objects handed to connections; of these, lost or not taken. */
uint64_t send_scheduler_sent_bytes(const struct send_scheduler *scheduler);
uint64_t send_scheduler_wasted_bytes(const struct send_scheduler *scheduler);
/* Our uplink in bits per second, as measured while there was something to send; 0: not known. */
uint64_t send_scheduler_uplink_bits(const struct send_scheduler *scheduler);

#endif
