/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attach_gate: a daemon on a machine without any rank. A gateway beside it is rank 0 then, and has no values; the
 * trainer's ranks come behind it, and all are far. Each has a connection of its own to it, which is all that the floors
 * above see of a group. With DILOCO_SOCKET of another kind all of this is nothing.
 */
#ifndef WORKER_LIBDILOCO_ATTACH_GATE_H
#define WORKER_LIBDILOCO_ATTACH_GATE_H

#include <stdbool.h>
#include <stddef.h>

#include "worker/libdiloco/attach_core.h"
#include "worker/libdiloco/gate_calls.h"

/* Where `path` is a gateway's address ("tcp://HOST:PORT"): connects all ranks to it, and takes the place of
 * options.group. The key is in the file that the environment's DILOCO_SITE_KEY names. DILOCO_ERROR, _UNREACHABLE,
 * _REFUSED, _INTERRUPTED. */
ERR_MUST_CHECK int attach_gate_open(struct diloco *d, const char *path);
void attach_gate_close(struct diloco *d);

/* Of all ranks, before they follow a call: the trainer's first asks the gateway to make it. A failure is heard by
 * whoever follows. */
void attach_gate_call(struct diloco *d, enum gate_call call, const void *bytes, size_t count);
/* `has_all`: this rank has all values. DILOCO_ERROR: no memory; it was not asked. */
ERR_MUST_CHECK int attach_gate_call_begin(struct diloco *d, bool has_all);
/* After a call that gives bytes: how many of them are in `to`, which has room for `room`; 0 in other ranks, or if that
 * failed. */
size_t attach_gate_fetch(struct diloco *d, void *to, size_t room);

/* Whether this rank is the trainer's first, behind a gateway. */
bool attach_gate_leads(const struct diloco *d);
/* How many ranks the trainer has. */
int attach_gate_ranks(const struct diloco *d);
/* Why the gateway is lost; NULL: there is none. */
const char *attach_gate_why(const struct diloco *d);

#endif
