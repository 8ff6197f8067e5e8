/* SPDX-License-Identifier: Apache-2.0 */
/*
 * joined: the file with the view record by which an island joined its run: a DECIDED, as dilococtl join was told it.
 * Blocking; any thread.
 */
#ifndef DAEMON_JOINED_H
#define DAEMON_JOINED_H

#include "common/err.h"
#include "net/config/record.h"

/* The record, and as it was decided: record_deinit() and record_entry_free() them. ERR_NOTFOUND: there is no such file;
 * ERR_PROTO and others: damaged. On failure both are empty. */
ERR_MUST_CHECK enum err joined_read(const char *path, struct record *record, struct record_entry *entry);

#endif
