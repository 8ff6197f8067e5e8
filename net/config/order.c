/* SPDX-License-Identifier: Apache-2.0 */
#include "net/config/order.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/bytes.h"

/* What is signed begins with one of these, so that it is a signature of nothing else. */
static const char order_label[] = "diloco order";
static const char approval_label[] = "diloco order approval";
enum { SIGNED_BYTES = sizeof order_label + WIRE_NONCE_BYTES + 3 * 4 + 3 * 8 + IDENT_SIGNATURE_BYTES };
enum { APPROVED_BYTES = sizeof approval_label + WIRE_NONCE_BYTES + IDENT_SIGNATURE_BYTES };

const char *order_kind_name(uint32_t kind)
{
    static const char *const names[ORDER_KINDS] = {
        [ORDER_ADMIT] = "admit",     [ORDER_EVICT] = "evict",   [ORDER_REVOKE] = "revoke",
        [ORDER_OWNER] = "owner",     [ORDER_GRANT] = "grant",   [ORDER_CONTRIBUTOR] = "contributor",
        [ORDER_UNGRANT] = "ungrant", [ORDER_STEPS] = "steps",   [ORDER_FOUNDER] = "founder",
        [ORDER_PAUSE] = "pause",     [ORDER_RESUME] = "resume", [ORDER_VOID] = "withdraw",
        [ORDER_REKEY] = "rekey",
    };
    return kind < ORDER_KINDS && names[kind] != NULL ? names[kind] : "unknown";
}

bool order_about_member(uint32_t kind)
{
    return (kind >= ORDER_EVICT && kind <= ORDER_FOUNDER) || kind == ORDER_REKEY;
}

void order_text(const struct order *order, const char *subject, char *text, size_t text_bytes)
{
    const char *kind = order_kind_name(order->kind);
    char key[IDENT_TEXT_BYTES + 8] = "";
    if (order->kind == ORDER_REKEY) {
        memcpy(key, " to ", sizeof " to ");
        ident_text(order->key, key + strlen(key));
    }
    if (order->kind == ORDER_ADMIT)
        snprintf(text, text_bytes, "%s %s%s", kind, order->join.name, order->value != 0 ? " as a contributor" : "");
    else if (order->kind == ORDER_STEPS)
        snprintf(text, text_bytes, "%s %" PRIu64, kind, order->value);
    else if (order->kind == ORDER_VOID)
        snprintf(text, text_bytes, "%s order %" PRIu64, kind, order->number);
    else if (!order_about_member(order->kind))
        snprintf(text, text_bytes, "%s the run", kind);
    else if (subject != NULL)
        snprintf(text, text_bytes, "%s %s%s", kind, subject, key);
    else
        snprintf(text, text_bytes, "%s id %" PRIu32 "%s", kind, order->subject, key);
}

int order_compare(const struct order *left, const struct order *right)
{
    if (left->signer != right->signer)
        return left->signer < right->signer ? -1 : 1;
    return left->number < right->number ? -1 : left->number > right->number;
}

static enum err check_value(const struct order *order)
{
    bool good = order->value == 0;
    if (order->kind == ORDER_ADMIT || order->kind == ORDER_VOID)
        good = order->value <= 1;
    else if (order->kind == ORDER_STEPS)
        good = order->value > 0 && order->value < ORDER_NUMBER_MAX;
    return good ? ERR_OK
                : err_set(ERR_PROTO, "an order of kind %" PRIu32 " with value %" PRIu64, order->kind, order->value);
}

static enum err check_key(const struct order *order)
{
    static const uint8_t none[IDENT_KEY_BYTES];
    bool has = memcmp(order->key, none, sizeof none) != 0;
    if (has == (order->kind == ORDER_REKEY))
        return ERR_OK;
    return err_set(ERR_PROTO, "an order of kind %" PRIu32 " %s a key", order->kind, has ? "with" : "without");
}

enum err order_check(const struct order *order)
{
    static const struct wire_join none;
    if (order->kind < ORDER_ADMIT || order->kind >= ORDER_KINDS)
        return err_set(ERR_PROTO, "an order of unknown kind %" PRIu32, order->kind);
    if (order->number == 0 || order->number >= ORDER_NUMBER_MAX || order->epoch >= ORDER_NUMBER_MAX)
        return err_set(ERR_PROTO, "an order of number %" PRIu64 ", epoch %" PRIu64, order->number, order->epoch);
    if (!order_about_member(order->kind) && order->subject != 0)
        return err_set(ERR_PROTO, "an order of kind %" PRIu32 " about member %" PRIu32, order->kind, order->subject);
    TRY(check_value(order));
    TRY(check_key(order));
    if (order->kind == ORDER_ADMIT)
        TRY(member_word_check(&order->join.word));
    else if (memcmp(&order->join, &none, sizeof none) != 0)
        return err_set(ERR_PROTO, "an order of kind %" PRIu32 " with a newcomer", order->kind);
    if (order->kind == ORDER_ADMIT && (order->join.word.draining || member_word_has_next(&order->join.word)))
        return err_set(ERR_PROTO, "an order that admits a newcomer that is about to leave, or to change its key");
    if (order->approvals_count > ORDER_APPROVALS_MAX)
        return err_set(ERR_PROTO, "an order with %" PRIu32 " approvals", order->approvals_count);
    for (uint32_t i = 1; i < order->approvals_count; i++)
        if (order->approvals[i].id <= order->approvals[i - 1].id)
            return err_set(ERR_PROTO, "an order whose approvals are not in order");
    return ERR_OK;
}

/* Label with its zero, nonce, kind, signer and subject u32, number, epoch and value u64; then 64 bytes: of an order
 * that admits, the signature of the newcomer; of one that gives another key, that key and zeros; else zeros. */
static void put_signed(const uint8_t nonce[WIRE_NONCE_BYTES], const struct order *order, uint8_t out[SIGNED_BYTES])
{
    struct bytes_writer writer = bytes_writer_init(out, SIGNED_BYTES);
    bytes_put(&writer, order_label, sizeof order_label);
    bytes_put(&writer, nonce, WIRE_NONCE_BYTES);
    bytes_put_u32(&writer, order->kind);
    bytes_put_u32(&writer, order->signer);
    bytes_put_u32(&writer, order->subject);
    bytes_put_u64(&writer, order->number);
    bytes_put_u64(&writer, order->epoch);
    bytes_put_u64(&writer, order->value);
    if (order->kind != ORDER_REKEY) {
        bytes_put(&writer, order->join.signature, sizeof order->join.signature);
        return;
    }
    static const uint8_t zeros[IDENT_SIGNATURE_BYTES - IDENT_KEY_BYTES];
    bytes_put(&writer, order->key, sizeof order->key);
    bytes_put(&writer, zeros, sizeof zeros);
}

void order_sign(const struct ident *ident, const uint8_t nonce[WIRE_NONCE_BYTES], struct order *order)
{
    uint8_t message[SIGNED_BYTES];
    put_signed(nonce, order, message);
    ident_sign(ident, message, sizeof message, order->signature);
}

bool order_signed(const uint8_t *key, const uint8_t nonce[WIRE_NONCE_BYTES], const struct order *order)
{
    uint8_t message[SIGNED_BYTES];
    put_signed(nonce, order, message);
    return ident_signed(key, message, sizeof message, order->signature);
}

struct digest order_digest(const uint8_t nonce[WIRE_NONCE_BYTES], const struct order *order)
{
    uint8_t message[SIGNED_BYTES + IDENT_SIGNATURE_BYTES];
    put_signed(nonce, order, message);
    memcpy(message + SIGNED_BYTES, order->signature, IDENT_SIGNATURE_BYTES);
    return digest_of(message, sizeof message);
}

bool order_same(const struct order *left, const struct order *right)
{
    return left->kind == right->kind && left->signer == right->signer && left->subject == right->subject &&
           left->number == right->number && left->value == right->value &&
           memcmp(left->key, right->key, sizeof left->key) == 0 &&
           memcmp(left->join.signature, right->join.signature, sizeof left->join.signature) == 0;
}

/* ---- approvals: of exactly this order, by its signature ---- */

static void put_approved(const uint8_t nonce[WIRE_NONCE_BYTES], const struct order *order, uint8_t out[APPROVED_BYTES])
{
    struct bytes_writer writer = bytes_writer_init(out, APPROVED_BYTES);
    bytes_put(&writer, approval_label, sizeof approval_label);
    bytes_put(&writer, nonce, WIRE_NONCE_BYTES);
    bytes_put(&writer, order->signature, sizeof order->signature);
}

bool order_approved(const uint8_t *key, const uint8_t nonce[WIRE_NONCE_BYTES], const struct order *order,
                    const struct order_approval *approval)
{
    uint8_t message[APPROVED_BYTES];
    put_approved(nonce, order, message);
    return ident_signed(key, message, sizeof message, approval->signature);
}

bool order_add_approval(struct order *order, const struct order_approval *approval)
{
    uint32_t at = 0;
    while (at < order->approvals_count && order->approvals[at].id < approval->id)
        at++;
    if ((at < order->approvals_count && order->approvals[at].id == approval->id) ||
        order->approvals_count == ORDER_APPROVALS_MAX)
        return false;
    memmove(&order->approvals[at + 1], &order->approvals[at], (order->approvals_count - at) * sizeof *order->approvals);
    order->approvals[at] = *approval;
    order->approvals_count++;
    return true;
}

enum err order_approve(const struct ident *ident, const uint8_t nonce[WIRE_NONCE_BYTES], uint32_t id,
                       struct order *order)
{
    struct order_approval approval = {.id = id};
    uint8_t message[APPROVED_BYTES];
    put_approved(nonce, order, message);
    ident_sign(ident, message, sizeof message, approval.signature);
    (void)order_add_approval(order, &approval); /* one that is there is the same: signing is deterministic */
    for (uint32_t i = 0; i < order->approvals_count; i++)
        if (order->approvals[i].id == id)
            return ERR_OK;
    return err_set(ERR_STATE, "the order has %d approvals already", ORDER_APPROVALS_MAX);
}
