/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record_proto: parts of a record as Protocol Buffers, where record and epoch messages share them. Private to net/.
 */
#ifndef NET_CONFIG_RECORD_PROTO_H
#define NET_CONFIG_RECORD_PROTO_H

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

#endif
