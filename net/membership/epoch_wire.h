/* SPDX-License-Identifier: Apache-2.0 */
/*
 * epoch_wire: messages of net/membership/epoch as they go over the wire (net/membership/wire_epoch.h), and back: which
 * field goes where, and which epoch a message counts from. Pure; what points to bytes goes on pointing to the same.
 *
 * Not here is what takes a key, a disk or other members: a PROMISE's holdings, an ACCEPTED's signature, and whether
 * what came in is good (struct epoch_event).
 */
#ifndef NET_MEMBERSHIP_EPOCH_WIRE_H
#define NET_MEMBERSHIP_EPOCH_WIRE_H

#include <stdbool.h>
#include <stdint.h>

#include "net/membership/epoch.h"
#include "net/membership/wire_epoch.h"

/* Of any but a RECORD, which no message of net/membership/epoch's own carries. The caller adds: PROMISE and HOLDINGS:
 * incarnation and rows. ACCEPTED: the signature. */
struct wire_epoch epoch_wire_out(const struct epoch_message *from);

/* `last`: the newest record's epoch here. Digests of records are computed. False: not a message of epochs (WISH). */
bool epoch_wire_in(const struct wire_epoch *from, uint64_t last, struct epoch_message *out);

/* Whether it brings a record that is `good` only if it follows ours, or is proved. */
bool epoch_wire_brings_record(const struct epoch_message *message);

#endif
