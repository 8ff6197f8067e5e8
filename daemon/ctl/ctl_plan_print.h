/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctl_plan_print: what dilococtl plan found, as a table, as JSON and as a picture.
 */
#ifndef DAEMON_CTL_CTL_PLAN_PRINT_H
#define DAEMON_CTL_CTL_PLAN_PRINT_H

#include "common/err.h"
#include "daemon/ctl/ctl_plan_types.h"

void ctl_plan_print(const struct ctl_plan *plan, const struct plan_found *found);
/* ERR_IO. */
ERR_MUST_CHECK enum err ctl_plan_json(const struct ctl_plan *plan, const struct plan_found *found);
/* To plan->plot. ERR_IO. */
ERR_MUST_CHECK enum err ctl_plan_draw(const struct ctl_plan *plan, const struct plan_found *found);

#endif
