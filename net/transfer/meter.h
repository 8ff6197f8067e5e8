/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meter: how fast a link is, seen from what gets through while there is something to send. Pure: the caller brings the
 * time and the counters. Integers only.
 */
#ifndef NET_TRANSFER_METER_H
#define NET_TRANSFER_METER_H

#include <stdbool.h>
#include <stdint.h>

struct meter {
    uint64_t bits_per_s; /* smoothed; 0: not known yet */
    bool busy;
    uint64_t since_us, bytes_then;
};

/* `arrived`: bytes acknowledged by all peers since the start; `outstanding`: bytes on their way or waiting. */
void meter_update(struct meter *meter, uint64_t arrived, uint64_t outstanding, uint64_t now_us);

#endif
