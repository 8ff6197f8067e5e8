/* SPDX-License-Identifier: Apache-2.0 */
/*
 * evidence: two signed results of one part, without their payloads, as bytes that anybody can check who knows the
 * owner's key.
 *
 * An owner makes one result of a part. One that makes another has lied, or works from an older disk without knowing it.
 * Pure. Checking accepts bytes from strangers: none reach an assert.
 */
#ifndef NET_MEMBERSHIP_EVIDENCE_H
#define NET_MEMBERSHIP_EVIDENCE_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "net/config/config_log.h"
#include "net/transport/wire_object.h"

enum { EVIDENCE_BYTES_MAX = 8 + 2 * WIRE_OBJECT_STUB_BYTES_MAX };

/* Of two results, whole and checked by wire_object_open(). Caller frees `*out`. ERR_PROTO: one is none; ERR_NOMEM. */
ERR_MUST_CHECK enum err evidence_make(const uint8_t *first, size_t first_bytes, const uint8_t *second,
                                      size_t second_bytes, uint8_t **out, size_t *out_bytes);

/* Takes the two apart; nothing is checked against a key. ERR_PROTO: the bytes are no evidence. */
ERR_MUST_CHECK enum err evidence_open(const uint8_t *bytes, size_t count, struct wire_object *first,
                                      struct wire_object *second);
/* Whether they are of this run, of one part, different, and both signed with the owner's key. ERR_PROTO. */
ERR_MUST_CHECK enum err evidence_check(const struct wire_object *first, const struct wire_object *second,
                                       const uint8_t nonce[WIRE_NONCE_BYTES], const uint8_t *owner_key);
/* The same with the key that the owner had in the epoch of which the results are, by the configurations that are known
 * here or by the newest one's list of keys that were left: who changes its key does not get rid of what it signed, and
 * who finds a key that was left signs with it of no epoch after that, nor of one before its owner was a member, where
 * that one's configuration is known here. */
ERR_MUST_CHECK enum err evidence_check_of(const struct wire_object *first, const struct wire_object *second,
                                          const struct config_log *config_log);

#endif
