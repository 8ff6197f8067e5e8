/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backlog: connections that bring bytes and no message.
 *
 * ZeroMQ hands a message over when its last part is there, and takes in any number of parts until then; its limits are
 * on a part and on whole messages. So a member could fill our memory with one message that never ends. The kernel knows
 * how much was taken from a connection: one that goes on for BACKLOG_BYTES_MAX without a message of it having been seen
 * here is shut down. Honest ones stay far below: a message has two parts of 64 KiB at most, ZeroMQ's queue is bounded,
 * and what waits in the kernel's buffer is not counted. The number of connections is bounded, too.
 *
 * The descriptors are ZeroMQ's: they may be closed and used anew at any time; nothing is read, written or closed here.
 * Memory is in proportion to the highest descriptor. The thread that owns the links calls.
 */
#ifndef NET_TRANSPORT_BACKLOG_H
#define NET_TRANSPORT_BACKLOG_H

#include <stddef.h>

#include "common/err.h"

enum { BACKLOG_BYTES_MAX = 16 << 20, BACKLOG_FDS_MAX = 1 << 20 };

struct backlog;

ERR_MUST_CHECK enum err backlog_new(size_t connections_max, struct backlog **out);
/* NULL is fine. */
void backlog_free(struct backlog *backlog);
/* How many connections there may be from now on. */
void backlog_allow(struct backlog *backlog, size_t connections_max);

/* A connection that was accepted or dialled just now. More than there may be: it is shut down. */
void backlog_open(struct backlog *backlog, int fd);
/* A whole message of it was taken in. */
void backlog_seen(struct backlog *backlog, int fd);
/* Ends a connection: whoever it was of is not to be heard. */
void backlog_end(struct backlog *backlog, int fd);
/* Shuts down those that have brought too much; several times a second. Returns how many. */
size_t backlog_check(struct backlog *backlog);

#endif
