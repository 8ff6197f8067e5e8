/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ways: how much goes to whom, and when: what a peer takes in, what the line to it holds, and for all together the rate
 * limit. Takes the chunks that xfer has ready and hands them to the connections. Private to daemon/transfer.
 */
#ifndef DAEMON_TRANSFER_WAYS_H
#define DAEMON_TRANSFER_WAYS_H

#include <stdint.h>

#include "common/err.h"
#include "net/transport/link.h"
#include "net/transfer/xfer.h"

/* All borrowed. */
struct ways_conf {
    struct link *link;
    uint32_t members_count;
    uint64_t rate_limit; /* bits per second; 0: none */
};

struct ways;

ERR_MUST_CHECK enum err ways_new(const struct ways_conf *conf, struct ways **out);
/* NULL is fine. */
void ways_free(struct ways *ways);

/* Room for so many members, if there is less. */
ERR_MUST_CHECK enum err ways_grow(struct ways *ways, uint32_t members_count);
/* The slot is another member's from now on: transfers with the one before end, and the line is not known. */
void ways_forget(struct ways *ways, uint32_t peer);

/* From now on these transfers, which have not begun; those before have ended. Borrowed. */
void ways_carry(struct ways *ways, struct xfer *xfer);
/* How many unacknowledged bytes a peer takes in; until it is told, one chunk. */
void ways_set_window(struct ways *ways, uint32_t peer, uint64_t window_bytes);
uint64_t ways_window(const struct ways *ways, uint32_t peer);
/* A new bulk connection: bytes on their way may be lost, and the line may be another one. */
void ways_reconnected(struct ways *ways, uint32_t peer);
/* An acknowledgement's delay_us; before xfer is told of it. */
void ways_note_delay(struct ways *ways, uint32_t peer, uint32_t delay_us);
/* Our clock as chunks carry it: microseconds, modulo 2^32. */
uint32_t ways_clock_us(void);

/* Hands over what may go now. */
void ways_flush(struct ways *ways, uint64_t now_ms);
/* Microseconds until something may go that waits for its turn; 0: nothing waits. */
uint64_t ways_wait_us(const struct ways *ways);

/* Bytes of objects handed to connections; of these, lost or not taken. */
uint64_t ways_sent_bytes(const struct ways *ways);
uint64_t ways_wasted_bytes(const struct ways *ways);
/* Of our uplink, as measured while there was something to send, per second; 0: not known. */
uint64_t ways_uplink_bits(const struct ways *ways);

#endif
