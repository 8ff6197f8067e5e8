/* SPDX-License-Identifier: Apache-2.0 */
/*
 * caps: the rate that this machine's kernel lets a connection carry, and the setting to change where that is less than
 * a line between islands could.
 *
 * A sender buffers unacknowledged bytes, a receiver its announced window: so one connection carries at most a buffer in
 * a round trip (RFC 7323), and about half of a buffer holds bytes, the rest is the kernel's own. And a congestion
 * control that takes every loss for a queue carries at most 1.22 segments / (round trip x sqrt(share lost)) (Mathis et
 * al., CCR 27.3, 1997), which bbr (Cardwell et al., ACM Queue 14.5, 2016) does not.
 *
 * caps_read() looks at the system once; the rest is pure. Nothing is changed here.
 */
#ifndef NET_TRANSPORT_CAPS_H
#define NET_TRANSPORT_CAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One text for people. */
enum { CAPS_TEXT_BYTES = 1000 };

struct caps {
    uint64_t grows_bytes;      /* that a send buffer grows to by itself; 0: not known */
    uint64_t send_bytes;       /* most that it grows to, or may be set to; 0: not known */
    uint64_t receive_bytes;    /* that a receive buffer grows to; 0: not known */
    uint64_t wmem[2], rmem[2]; /* the first two values of tcp_wmem and tcp_rmem, which are to stay */
    int bbr_error;             /* why bbr cannot be set, as errno; 0: it can */
    char congestion[16];       /* the one used instead */
    char allowed[96];          /* tcp_allowed_congestion_control */
};

/* A line to one island. */
struct caps_line {
    const char *island;             /* borrowed; its name */
    uint64_t rtt_us;                /* the shortest round trip seen; 0: not known, and nothing is told */
    uint64_t up_bits, down_bits;    /* per second: what we may send to it, and it to us; 0: not known */
    uint64_t window_out, window_in; /* bytes that it, and we, take in unacknowledged; 0: not known */
    unsigned connections;           /* over how many bulk is spread at most, 1 or more */
};

/* `folder`: "/proc/sys/net". What cannot be read is not known. */
void caps_read(const char *folder, struct caps *out);

/* What of this the line stands still for, with the settings to change, as one sentence; false, and "": nothing that
 * matters there. A line where a buffer is crossed in an instant, as on a machine or in a house, is never told of. */
bool caps_tell(const struct caps *caps, const struct caps_line *line, char text[CAPS_TEXT_BYTES]);

/* How much a line holds that is never told of. */
bool caps_is_near(const struct caps_line *line);

#endif
