/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order: what an operator asks of the run, with its signature, and the approvals of voters where it takes them.
 *
 * An order has a number of its signer's. It travels to the voters, and the configuration that carries it out has it;
 * who may sign what is judged against the configuration before that one (net/config/config_orders.h). Pure. Bytes come
 * from strangers.
 */
#ifndef NET_CONFIG_ORDER_H
#define NET_CONFIG_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/digest.h"
#include "common/err.h"
#include "net/transport/ident.h"
#include "net/transport/wire_join.h"

enum order_kind {
    ORDER_ADMIT = 1,       /* join: the newcomer; value 1: as a contributor */
    ORDER_EVICT = 2,       /* subject takes no part until it has come back by itself */
    ORDER_REVOKE = 3,      /* subject's key leaves the roster */
    ORDER_OWNER = 4,       /* subject may own shards and vote */
    ORDER_CONTRIBUTOR = 5, /* subject may not */
    ORDER_GRANT = 6,       /* subject may sign orders */
    ORDER_UNGRANT = 7,     /* subject may not */
    ORDER_FOUNDER = 8,     /* subject is the operator that grants */
    ORDER_STEPS = 9,       /* value: length of the run */
    ORDER_PAUSE = 10,
    ORDER_RESUME = 11,
    ORDER_VOID = 12,  /* the signer's order of this number is withdrawn; value 1: that one takes approvals */
    ORDER_REKEY = 13, /* subject, which stated it, has the key `key` from then on */
    ORDER_KINDS
};
enum { ORDER_APPROVALS_MAX = 65 };
#define ORDER_NUMBER_MAX ((uint64_t)1 << 63)

/* The signature of a voter that agrees. */
struct order_approval {
    uint32_t id;
    uint8_t signature[IDENT_SIGNATURE_BYTES];
};

struct order {
    uint32_t kind;                /* enum order_kind */
    uint32_t signer;              /* id */
    uint32_t subject;             /* id of the member that EVICT to FOUNDER and REKEY are about; else 0 */
    uint64_t number;              /* of the signer's, from 1 */
    uint64_t epoch;               /* in which it was signed; VOID: in which the one was that it withdraws */
    uint64_t value;               /* STEPS, ADMIT, VOID; else 0 */
    struct wire_join join;        /* ADMIT; else zeros */
    uint8_t key[IDENT_KEY_BYTES]; /* REKEY; else zeros */
    uint8_t signature[IDENT_SIGNATURE_BYTES];
    struct order_approval approvals[ORDER_APPROVALS_MAX]; /* in order of id */
    uint32_t approvals_count;
};

/* "revoke", …; "unknown". */
const char *order_kind_name(uint32_t kind);
bool order_about_member(uint32_t kind);
/* "paris revokes oslo", without who asked: "revoke oslo", "steps 4000"; `subject`: the member's name, NULL: its id. */
void order_text(const struct order *order, const char *subject, char *text, size_t text_bytes);

/* In order of signer, then number. */
int order_compare(const struct order *left, const struct order *right);
/* Limits and what its kind leaves no choice in; no signature. ERR_PROTO. */
ERR_MUST_CHECK enum err order_check(const struct order *order);

void order_sign(const struct ident *ident, const uint8_t nonce[WIRE_NONCE_BYTES], struct order *order);
bool order_signed(const uint8_t *key, const uint8_t nonce[WIRE_NONCE_BYTES], const struct order *order);
/* Of what the signature is over, and the signature: what was found of it once is so of all of this digest. */
struct digest order_digest(const uint8_t nonce[WIRE_NONCE_BYTES], const struct order *order);
/* Whether both ask for the same by the same number, whatever their epochs. */
bool order_same(const struct order *left, const struct order *right);

/* Adds our approval, or takes the place of an earlier one. ERR_STATE: there are ORDER_APPROVALS_MAX. */
ERR_MUST_CHECK enum err order_approve(const struct ident *ident, const uint8_t nonce[WIRE_NONCE_BYTES], uint32_t id,
                                      struct order *order);
bool order_approved(const uint8_t *key, const uint8_t nonce[WIRE_NONCE_BYTES], const struct order *order,
                    const struct order_approval *approval);
/* Puts one in its place; false: that member's is there, or there is no room. */
bool order_add_approval(struct order *order, const struct order_approval *approval);

#endif
