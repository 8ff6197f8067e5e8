/* SPDX-License-Identifier: Apache-2.0 */
/*
 * member_word_proto: a member's word as Protocol Buffers (net/transport/wire.proto), in a HELLO and in a JOIN. Private
 * to net/transport/. Pure.
 */
#ifndef NET_TRANSPORT_MEMBER_WORD_PROTO_H
#define NET_TRANSPORT_MEMBER_WORD_PROTO_H

#include "common/err.h"
#include "net/transport/member_word.h"
#include "net/transport/wire.pb-c.h"

/* The view lies in the word. */
void member_word_to_proto(const struct member_word *word, Diloco__MemberWord *proto);
/* Limits are checked (member_word_check()), the signature is not. NULL is a word that is missing. ERR_PROTO. */
ERR_MUST_CHECK enum err member_word_from_proto(const Diloco__MemberWord *proto, struct member_word *word);

#endif
