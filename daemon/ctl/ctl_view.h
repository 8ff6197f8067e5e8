/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctl_view: the text of `watch`: a daemon's answers, and figures from earlier ones: rates, time left, the last losses,
 * and for whom it waits since when. As text for ctl_screen; it knows no terminal, no socket and no clock.
 */
#ifndef DAEMON_CTL_CTL_VIEW_H
#define DAEMON_CTL_CTL_VIEW_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/err.h"

struct ctl_view;

ERR_MUST_CHECK enum err ctl_view_new(struct ctl_view **out);
void ctl_view_free(struct ctl_view *view);

/* One answer of the daemon to each of `status`, `peers` and `fragments`; the view keeps them, and takes control
 * characters out of their texts. Time only goes on. */
void ctl_view_take(struct ctl_view *view, json_t *status, json_t *peers, json_t *fragments, uint64_t now_ms);
/* There is no answer just now, for this reason. The last one stays on the screen. */
void ctl_view_fail(struct ctl_view *view, const char *why, uint64_t now_ms);

struct ctl_view_look {
    int rows, columns;
    bool utf8, help;
    int first; /* row of the middle that is shown first; cut to what there is by ctl_view_print() */
    uint64_t interval_ms;
};
/* `rows` lines: the head, as much of the middle as there is room for, and the keys. */
void ctl_view_print(const struct ctl_view *view, struct ctl_view_look *look, uint64_t now_ms, FILE *file);

#endif
