/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctl_origin: the run spec of a run that begins from a model, for dilococtl init. Reads files; blocking.
 */
#ifndef DAEMON_CTL_CTL_ORIGIN_H
#define DAEMON_CTL_CTL_ORIGIN_H

#include "common/err.h"

/* The run spec in `run`, or the sample where that is NULL, fitted to the model at `from`, with its place and digest;
 * the caller's to mem_free(). ERR_CONF: the two do not go together, or the place cannot stand in a run spec. */
ERR_MUST_CHECK enum err ctl_origin_run(const char *from, const char *run, char **text);

/* Whether the text of a run spec, read from `path`, means the same in another folder. ERR_CONF: init is relative. */
ERR_MUST_CHECK enum err ctl_origin_check(const char *text, const char *path);

#endif
