/* SPDX-License-Identifier: Apache-2.0 */
/*
 * status_json: a status as JSON, as docs/FORMATS.md describes the answers of the control socket. The caller decrefs;
 * NULL when out of memory.
 */
#ifndef DAEMON_CONTROL_STATUS_JSON_H
#define DAEMON_CONTROL_STATUS_JSON_H

#include <jansson.h>

#include "daemon/control/status.h"

json_t *status_json(const struct status *status);
json_t *status_json_peers(const struct status *status);
json_t *status_json_fragments(const struct status *status);

#endif
