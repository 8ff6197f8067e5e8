/* SPDX-License-Identifier: Apache-2.0 */
/*
 * status: how this island is doing, taken once from all parts into a plain struct; and as JSON.
 *
 * Taking it changes nothing but the connections' counters, which are read anew. Only the loop's thread calls. Names and
 * texts are borrowed from the parts and valid until something else happens.
 */
#ifndef DAEMON_CONTROL_STATUS_H
#define DAEMON_CONTROL_STATUS_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "daemon/control/status_types.h"

/* ERR_NOMEM. */
ERR_MUST_CHECK enum err status_take(const struct status_conf *from, uint64_t now_ms, struct status *out);
void status_deinit(struct status *status);

/* One line for people: where the run is and the first complaint. */
void status_line(const struct status *status, char *line, size_t line_bytes);

/* ---- as JSON, as docs/FORMATS.md describes the answers of the control socket ----
 *
 * The caller decrefs; NULL when out of memory. */

json_t *status_json(const struct status *status);
json_t *status_json_peers(const struct status *status);
json_t *status_json_fragments(const struct status *status);
json_t *status_json_order(const struct membership_pending *pending);
/* Members that ask for another key, as the newest configuration says; the caller's. */
json_t *status_json_rekeys(const struct view *view);

#endif
