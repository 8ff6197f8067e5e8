/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctl_service: starting and stopping the daemon that runs as this machine's service, and its log: by systemd's own
 * programs. Blocking; reports on standard output.
 */
#ifndef DAEMON_CTL_CTL_SERVICE_H
#define DAEMON_CTL_CTL_SERVICE_H

#include <stdbool.h>

#include "common/err.h"

/* A folder that is there where systemd runs (sd_booted(3)). */
extern const char ctl_service_mark[];

/* ERR_STATE: systemd does not run here; with the remedy. `mark`: as below. */
ERR_MUST_CHECK enum err ctl_service_check(const char *mark);

/* `mark` is ctl_service_mark, but in tests. `enable`: also at every boot from now on. ERR_STATE: systemd does not run
 * here, or the service does not start; with the remedy. */
ERR_MUST_CHECK enum err ctl_service_start(const char *mark, bool enable);
ERR_MUST_CHECK enum err ctl_service_stop(const char *mark);
ERR_MUST_CHECK enum err ctl_service_logs(const char *mark, bool follow, bool trainer);

#endif
