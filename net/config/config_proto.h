/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config_proto: configurations, and their parts in epoch messages, as Protocol Buffers (net/transport/wire.proto).
 * Private to net/. Pure.
 *
 * A configuration is signed and kept as these bytes. protobuf-c packs fields in order of their numbers and leaves out
 * zeros, so equal configurations pack to equal bytes. Unpacking is more liberal than that (unknown fields, other
 * orders, long numbers), so config_unpack() packs again what it unpacked, and both have to be the same bytes.
 *
 * protobuf-c takes memory for whatever the bytes announce: two bytes can become a message of a hundred. Here it gets
 * UNPACK_BYTES_MAX and no more, whatever they say.
 */
#ifndef NET_CONFIG_CONFIG_PROTO_H
#define NET_CONFIG_CONFIG_PROTO_H

#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#include "common/err.h"
#include "net/config/config.h"
#include "net/config/config_proof.h"
#include "net/transport/wire.pb-c.h"

/* The views lie in what they are of. */
void config_carried_to_proto(const struct part_result *carried, Diloco__ConfigCarried *proto);
void config_vote_to_proto(const struct config_vote *vote, Diloco__ConfigVote *proto);
void config_endorsement_to_proto(const struct config_endorsement *endorsement, Diloco__ConfigEndorsement *proto);
ProtobufCBinaryData config_bytes_to_proto(const void *bytes, size_t bytes_count);

/* What an order as a message points to. */
struct order_proto {
    Diloco__Order order;
    Diloco__Join join;
    Diloco__MemberWord word;
    Diloco__OrderApproval approvals[ORDER_APPROVALS_MAX], *approvals_at[ORDER_APPROVALS_MAX];
};
/* Returns &to->order. */
Diloco__Order *order_to_proto(const struct order *order, struct order_proto *to);
/* With its limits checked (order_check()). ERR_PROTO. */
ERR_MUST_CHECK enum err order_from_proto(const Diloco__Order *proto, struct order *order);

/* Lengths alone are checked here. ERR_PROTO. */
ERR_MUST_CHECK enum err config_carried_from_proto(const Diloco__ConfigCarried *proto, struct part_result *carried);
ERR_MUST_CHECK enum err config_vote_from_proto(const Diloco__ConfigVote *proto, struct config_vote *vote);
ERR_MUST_CHECK enum err config_endorsement_from_proto(const Diloco__ConfigEndorsement *proto,
                                                      struct config_endorsement *endorsement);
/* So many bytes, exactly. */
ERR_MUST_CHECK enum err config_bytes_from_proto(const ProtobufCBinaryData *proto, const char *what, void *out,
                                                size_t out_bytes);

/* More than twice what the largest allowed configuration, or message of the epoch protocol, needs. */
enum { UNPACK_BYTES_MAX = 12 << 20 };

/* `what` names it in the error's text. ERR_PROTO: damaged, or more than the limit; ERR_NOMEM. unpack_free() what came.
 */
ERR_MUST_CHECK enum err unpack_proto(const ProtobufCMessageDescriptor *descriptor, const char *what,
                                     const uint8_t *bytes, size_t bytes_count, ProtobufCMessage **out);
/* NULL is fine. */
void unpack_free(ProtobufCMessage *proto);

#endif
