/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctl_plan: dilococtl plan: what a link and a machine are good for. A table of how much of its time a run would train
 * under each way of synchronising, what of the machine its daemons take, what bandwidth each needs, what it sends, and
 * a run spec to begin with.
 */
#ifndef DAEMON_CTL_CTL_PLAN_H
#define DAEMON_CTL_CTL_PLAN_H

#include "common/err.h"
#include "daemon/ctl/ctl_plan_types.h"

/* So many parameters, as 1e9, 350M or 1.3B, as people write the names of models. ERR_ARG. */
ERR_MUST_CHECK enum err ctl_plan_params(const char *text, double *params);

/* Measures this machine for about a second, and prints to stdout. ERR_ARG: a value that makes no sense; ERR_IO. */
ERR_MUST_CHECK enum err ctl_plan(const struct ctl_plan *plan);

/* The same in parts: the machine; and, pure, what it comes to. */
ERR_MUST_CHECK enum err ctl_plan_machine(const struct ctl_plan *plan, struct plan_machine *out);
ERR_MUST_CHECK enum err ctl_plan_find(const struct ctl_plan *plan, const struct plan_machine *machine,
                                      struct plan_found *found);

#endif
