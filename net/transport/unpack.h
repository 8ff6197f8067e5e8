/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unpack: Protocol Buffers from strangers, in bounded memory.
 *
 * protobuf-c takes memory for whatever the bytes announce: two bytes can become a message of a hundred. Here it gets
 * UNPACK_BYTES_MAX and no more, whatever they say. Private to net/. Pure.
 */
#ifndef NET_TRANSPORT_UNPACK_H
#define NET_TRANSPORT_UNPACK_H

#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#include "common/err.h"

/* More than twice what the largest allowed record, or message of the epoch protocol, needs. */
enum { UNPACK_BYTES_MAX = 12 << 20 };

/* `what` names it in the error's text. ERR_PROTO: damaged, or more than the limit; ERR_NOMEM. unpack_free() what came.
 */
ERR_MUST_CHECK enum err unpack_proto(const ProtobufCMessageDescriptor *descriptor, const char *what,
                                     const uint8_t *bytes, size_t bytes_count, ProtobufCMessage **out);
/* NULL is fine. */
void unpack_free(ProtobufCMessage *proto);

#endif
