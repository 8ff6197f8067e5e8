/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire_enrol: the messages between a guest and the island that invited it, as structs and as bytes.
 *
 * A guest proves a one-time key, says once who it is (ENROL), and is put on the roster (ENROLLED) or not (REFUSAL). It
 * signs what it says with its own key, over the run and the invitation, so that nobody enrols another's key and no
 * signature is of use elsewhere. Pure. Bytes come from strangers: limits are checked before memory is taken.
 */
#ifndef NET_TRANSPORT_WIRE_ENROL_H
#define NET_TRANSPORT_WIRE_ENROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/digest.h"
#include "common/err.h"
#include "net/transport/ident.h"
#include "net/transport/wire.h"

enum {
    WIRE_ENROL_BYTES_MAX = 4096,
    WIRE_ENROLLED_BYTES_MAX = 2 << 20,
};

struct wire_enrol {
    struct digest invitation;
    char name[WIRE_NAME_BYTES];
    uint8_t key[IDENT_KEY_BYTES];
    char address[WIRE_ADDRESS_BYTES]; /* "host:port"; "": it dials the others */
    uint64_t uplink;                  /* bit/s */
    uint8_t owner_wish;               /* enum record_wish */
    bool witness;
    uint8_t signature[IDENT_SIGNATURE_BYTES];
};

/* A member's name: 1 to 63 letters, digits, '-' or '_'. */
bool wire_name_good(const char *name);

/* Signs it for this run; `key` and `signature` are filled in. */
void wire_enrol_sign(const struct ident *ident, const uint8_t nonce[WIRE_NONCE_BYTES], const struct digest *run_id,
                     struct wire_enrol *enrol);
/* Whether the owner of `key` said it, for this run. */
bool wire_enrol_signed(const struct wire_enrol *enrol, const uint8_t nonce[WIRE_NONCE_BYTES],
                       const struct digest *run_id);

/* Packs into `out` (WIRE_ENROL_BYTES_MAX); returns the length. */
size_t wire_enrol_pack(const struct wire_enrol *enrol, uint8_t *out);
/* ERR_PROTO names the field. The signature is the caller's to check. */
ERR_MUST_CHECK enum err wire_enrol_unpack(const void *bytes, size_t bytes_count, struct wire_enrol *enrol);

struct wire_enrolled {
    uint32_t id;
    uint8_t *records; /* packed view records, opaque here */
    size_t records_bytes;
    char *run_spec; /* its text */
};

/* Packed bytes: mem_free() them. ERR_ARG: more than WIRE_ENROLLED_BYTES_MAX. */
ERR_MUST_CHECK enum err wire_enrolled_pack(const struct wire_enrolled *enrolled, uint8_t **bytes, size_t *bytes_count);
/* wire_enrolled_deinit() it. ERR_PROTO, ERR_NOMEM: it is empty. */
ERR_MUST_CHECK enum err wire_enrolled_unpack(const void *bytes, size_t bytes_count, struct wire_enrolled *enrolled);
void wire_enrolled_deinit(struct wire_enrolled *enrolled);

/* Packs into `out` (WIRE_ENROL_BYTES_MAX), cut to WIRE_REASON_BYTES; returns the length. */
size_t wire_refusal_pack(const char *reason, uint8_t *out);
ERR_MUST_CHECK enum err wire_refusal_unpack(const void *bytes, size_t bytes_count, char reason[WIRE_REASON_BYTES]);

#endif
