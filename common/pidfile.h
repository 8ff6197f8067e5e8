/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pidfile: a process by which another one will know it again, in a file: its number, and when it was started.
 *
 * A number alone may be anybody's one day; with the time of its start it names one process until the machine starts
 * anew. Any thread; nothing blocks but the file.
 */
#ifndef COMMON_PIDFILE_H
#define COMMON_PIDFILE_H

#include "common/err.h"

/* Writes the file, whole or not at all. ERR_IO, ERR_NOSPACE. */
ERR_MUST_CHECK enum err pidfile_save(const char *path, int pid);

/* A descriptor (pidfd_open(2)) of the process that the file names, if that still runs, which the caller closes; else,
 * or without a file, `*pid` is 0 and `*fd` -1. ERR_STATE: it runs and cannot be watched, with its number. */
ERR_MUST_CHECK enum err pidfile_open(const char *path, int *pid, int *fd);

#endif
