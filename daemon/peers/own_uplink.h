/* SPDX-License-Identifier: Apache-2.0 */
/*
 * own_uplink: the uplink that this island states of itself. Shards are shared out by what islands state, so what is
 * configured counts until the line has carried much less than that for a while; a share goes by what is sent.
 *
 * The fastest of two windows is the measure: whoever waits for a slow receiver, or has little to send, is slow at times
 * only. What is stated lies between that and four times as much, and changes no more than once a window, of five
 * minutes at least: each change is a word of this island, and may cost an epoch. The caller brings the time; what
 * changes is logged.
 */
#ifndef DAEMON_PEERS_OWN_UPLINK_H
#define DAEMON_PEERS_OWN_UPLINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { OWN_UPLINK_WINDOW_MS = 300000 };

struct own_uplink {
    uint64_t configured, stated; /* bit/s */
    uint64_t begun_ms;           /* this window */
    uint64_t last;               /* bit/s, as measured before */
    struct own_uplink_window {
        uint64_t fastest; /* bit/s */
        uint32_t samples; /* how often what was measured changed */
    } now, before;
};

/* Of a daemon that starts, or whose configuration has changed. `bits`: per second, above 0. */
struct own_uplink own_uplink_init(uint64_t bits, uint64_t now_ms);

/* Once a tick. `measured`: bit/s, smoothed; 0: not known. True: another uplink is stated from now on. */
bool own_uplink_look(struct own_uplink *uplink, uint64_t measured, uint64_t now_ms);

/* What to tell people where far less is stated than is configured; false: that is not so, and "". */
bool own_uplink_tell(const struct own_uplink *uplink, char *text, size_t text_bytes);

#endif
