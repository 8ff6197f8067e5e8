/* SPDX-License-Identifier: Apache-2.0 */
/*
 * line_caps: what this machine's settings keep the longest of our lines from (net/transport/caps.h). Private to peers/.
 *
 * Only the loop's thread.
 */
#ifndef DAEMON_PEERS_LINE_CAPS_H
#define DAEMON_PEERS_LINE_CAPS_H

#include <stdbool.h>

#include "common/bitset.h"
#include "daemon/dconf.h"
#include "daemon/transfer/objects.h"
#include "net/config/view.h"
#include "net/transport/caps.h"
#include "net/transport/link.h"

/* All borrowed. */
struct line_caps_conf {
    const struct dconf *conf;
    const struct view *view;
    const struct link *link;
    const struct objects *objects;
};

/* Of the lines to the members `up`, by slot: the text of caps_tell() about the longest that there is something to tell
 * of. False, and "": there is nothing. */
bool line_caps_tell(const struct line_caps_conf *conf, const struct bitset *up, char text[CAPS_TEXT_BYTES]);

#endif
