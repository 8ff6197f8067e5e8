/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record_proto: records, and their parts in epoch messages, as Protocol Buffers (net/transport/wire.proto). Private to
 * net/. Pure.
 *
 * The bytes of a record are what is signed and kept. protobuf-c packs fields in order of their numbers and leaves out
 * what is zero, so equal records pack to equal bytes. Unpacking is more liberal than that (unknown fields, other
 * orders, long numbers), so record_unpack() packs again what it unpacked, and both have to be the same bytes.
 *
 * protobuf-c takes memory for whatever the bytes announce: two bytes can become a message of a hundred. Here it gets
 * UNPACK_BYTES_MAX and no more, whatever they say.
 */
#ifndef NET_CONFIG_RECORD_PROTO_H
#define NET_CONFIG_RECORD_PROTO_H

#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#include "common/err.h"
#include "net/config/record.h"
#include "net/transport/wire.pb-c.h"

/* The views lie in what they are of. */
void record_carried_to_proto(const struct part_result *carried, Diloco__RecordCarried *proto);
void record_vote_to_proto(const struct record_vote *vote, Diloco__RecordVote *proto);
ProtobufCBinaryData record_bytes_to_proto(const void *bytes, size_t bytes_count);

void record_member_to_proto(const struct record_member *member, Diloco__RecordMember *proto);

/* Lengths alone are checked here. ERR_PROTO. */
ERR_MUST_CHECK enum err record_carried_from_proto(const Diloco__RecordCarried *proto, struct part_result *carried);
ERR_MUST_CHECK enum err record_member_from_proto(const Diloco__RecordMember *proto, struct record_member *member);
ERR_MUST_CHECK enum err record_vote_from_proto(const Diloco__RecordVote *proto, struct record_vote *vote);
/* So many bytes, exactly. */
ERR_MUST_CHECK enum err record_bytes_from_proto(const ProtobufCBinaryData *proto, const char *what, void *out,
                                                size_t out_bytes);

/* More than twice what the largest allowed record, or message of the epoch protocol, needs. */
enum { UNPACK_BYTES_MAX = 12 << 20 };

/* `what` names it in the error's text. ERR_PROTO: damaged, or more than the limit; ERR_NOMEM. unpack_free() what came.
 */
ERR_MUST_CHECK enum err unpack_proto(const ProtobufCMessageDescriptor *descriptor, const char *what,
                                     const uint8_t *bytes, size_t bytes_count, ProtobufCMessage **out);
/* NULL is fine. */
void unpack_free(ProtobufCMessage *proto);

#endif
