/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/line_caps.h"

#include <string.h>

/* The line to one island, as configured and measured. */
static struct caps_line line_to(const struct line_caps_conf *conf, uint32_t slot)
{
    const struct dconf *dconf = conf->conf;
    const struct config_member *as = &conf->view->members[slot].as;
    uint64_t limit = dconf->rate_limit > 0 ? dconf->rate_limit : UINT64_MAX;
    return (struct caps_line){.island = as->name,
                              .rtt_us = link_counters(conf->link, slot).rtt_min_us,
                              .up_bits = dconf->uplink < limit ? dconf->uplink : limit,
                              .down_bits = as->uplink,
                              .window_out = objects_window(conf->objects, slot),
                              .window_in = dconf->window,
                              .connections = 1};
}

bool line_caps_tell(const struct line_caps_conf *conf, const struct bitset *up, char text[CAPS_TEXT_BYTES])
{
    const struct view *view = conf->view;
    uint64_t longest_us = 0;
    char of_line[CAPS_TEXT_BYTES];
    text[0] = '\0';
    for (uint32_t i = 0; i < view->count; i++) {
        bool sends = bitset_has(up, i) && view->members[i].as.role != CONFIG_WITNESS;
        if (!sends || view_is_witness(view))
            continue;
        struct caps_line line = line_to(conf, i);
        if (line.rtt_us <= longest_us || !caps_tell(link_caps(conf->link), &line, of_line))
            continue;
        longest_us = line.rtt_us;
        memcpy(text, of_line, CAPS_TEXT_BYTES);
    }
    return text[0] != '\0';
}
