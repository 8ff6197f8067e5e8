/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire_join: the messages between a guest and the island that invited it, as structs and as bytes.
 *
 * A guest proves a one-time key, says once who it is (JOIN), and is admitted to the roster (JOINED) or refused
 * (REFUSAL). It signs what it says with its own key, over the run and the invitation, so that nobody admits another's
 * key, or one that is not there, and no signature is of use elsewhere; the order that admits it carries this. Before
 * that it may ask, by the same fields with a signature of another kind (DIAL_REQUEST), whether it is reached at the
 * address that it states; it is told what came of it (DIAL_RESPONSE). Pure. Bytes come from strangers: limits are
 * checked before memory is taken.
 */
#ifndef NET_TRANSPORT_WIRE_JOIN_H
#define NET_TRANSPORT_WIRE_JOIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/digest.h"
#include "common/err.h"
#include "net/transport/ident.h"
#include "net/transport/wire.h"

struct Diloco__Join; /* net/transport/wire.pb-c.h */
struct Diloco__MemberWord;

enum {
    WIRE_JOIN_BYTES_MAX = 4096,
    WIRE_JOINED_BYTES_MAX = 2 << 20,
    WIRE_DIAL_TAG_BYTES = 16,
    WIRE_DIAL_REPORTS_MAX = 2, /* of the inviter, and of one more owner */
    WIRE_DIAL_TOOK_MS_MAX = 600000,
};

struct wire_join {
    struct digest invitation;
    char name[WIRE_NAME_BYTES];
    uint8_t key[IDENT_KEY_BYTES];
    bool witness;
    struct member_word word;
    uint8_t signature[IDENT_SIGNATURE_BYTES];
};

/* A member's name: 1 to 63 letters, digits, '-' or '_'. */
bool wire_name_good(const char *name);

/* Signs it, and its word, for this run; `key` and both signatures are filled in. */
void wire_join_sign(const struct ident *ident, const uint8_t nonce[WIRE_NONCE_BYTES], struct wire_join *join);
/* Whether the owner of `key` said both, for this run. */
bool wire_join_signed(const struct wire_join *join, const uint8_t nonce[WIRE_NONCE_BYTES]);

/* The same of a question to be dialled, which admits nobody: neither signature stands for the other. */
void wire_dial_request_sign(const struct ident *ident, const uint8_t nonce[WIRE_NONCE_BYTES], struct wire_join *join);
bool wire_dial_request_signed(const struct wire_join *join, const uint8_t nonce[WIRE_NONCE_BYTES]);

/* Packs into `out` (WIRE_JOIN_BYTES_MAX); returns the length. */
size_t wire_join_pack(const struct wire_join *join, uint8_t *out);
/* ERR_PROTO names the field. The signature is the caller's to check. */
ERR_MUST_CHECK enum err wire_join_unpack(const void *bytes, size_t bytes_count, struct wire_join *join);
/* As Protocol Buffers, for the order that admits the guest. The views lie in the JOIN, and in `word`. */
void wire_join_to_proto(const struct wire_join *join, struct Diloco__MemberWord *word, struct Diloco__Join *proto);
/* As wire_join_unpack(). */
ERR_MUST_CHECK enum err wire_join_from_proto(const struct Diloco__Join *proto, struct wire_join *join);

struct wire_joined {
    uint32_t id;
    uint8_t *configs; /* packed configurations, opaque here */
    size_t configs_bytes;
    char *run_spec; /* its text */
};

/* Packed bytes: mem_free() them. ERR_ARG: more than WIRE_JOINED_BYTES_MAX. */
ERR_MUST_CHECK enum err wire_joined_pack(const struct wire_joined *joined, uint8_t **bytes, size_t *bytes_count);
/* wire_joined_deinit() it. ERR_PROTO, ERR_NOMEM: it is empty. */
ERR_MUST_CHECK enum err wire_joined_unpack(const void *bytes, size_t bytes_count, struct wire_joined *joined);
void wire_joined_deinit(struct wire_joined *joined);

/* Packs into `out` (WIRE_JOIN_BYTES_MAX), cut to WIRE_REASON_BYTES; returns the length. */
size_t wire_refusal_pack(const char *reason, bool later, uint8_t *out);
/* `*later`: the guest is to ask on. */
ERR_MUST_CHECK enum err wire_refusal_unpack(const void *bytes, size_t bytes_count, char reason[WIRE_REASON_BYTES],
                                            bool *later);

/* ---- whether a guest is reached ---- */

/* What came of dialling an address. */
enum wire_dial_outcome {
    WIRE_DIAL_UNTESTED = 0, /* nobody dialled: too many were to be, or no answer came in time */
    WIRE_DIAL_REACHED = 1,
    WIRE_DIAL_REFUSED = 2,   /* nobody listens there */
    WIRE_DIAL_NO_ANSWER = 3, /* no connection comes about */
    WIRE_DIAL_NO_ROUTE = 4,
    WIRE_DIAL_SOMEBODY_ELSE = 5, /* it takes connections, and is not the one that it should be */
    WIRE_DIAL_NO_NAME = 6,       /* the name does not resolve */
    WIRE_DIAL_OUTCOMES
};

struct wire_dial_report {
    char island[WIRE_NAME_BYTES]; /* who dialled; "": the sender */
    uint8_t outcome;              /* enum wire_dial_outcome */
    uint32_t took_ms;
};

struct wire_dial_response {
    uint8_t request[WIRE_DIAL_TAG_BYTES]; /* wire_dial_tag() of the question */
    struct wire_dial_report reports[WIRE_DIAL_REPORTS_MAX];
    uint32_t reports_count; /* at least 1 */
};

/* What an answer names a question by: the first bytes of its signature. */
void wire_dial_tag(const struct wire_join *join, uint8_t tag[WIRE_DIAL_TAG_BYTES]);
/* Packs into `out` (WIRE_JOIN_BYTES_MAX); returns the length. */
size_t wire_dial_response_pack(const struct wire_dial_response *response, uint8_t *out);
/* ERR_PROTO names the field. */
ERR_MUST_CHECK enum err wire_dial_response_unpack(const void *bytes, size_t bytes_count,
                                                  struct wire_dial_response *response);

#endif
