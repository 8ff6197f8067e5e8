/* SPDX-License-Identifier: Apache-2.0 */
#include "net/membership/evidence.h"

#include <inttypes.h>
#include <string.h>

#include "common/bytes.h"
#include "common/mem.h"

/* Layout: u32 bytes of the first, u32 bytes of the second, the two stubs. */
enum { HEAD_BYTES = 8 };

enum err evidence_make(const uint8_t *first, size_t first_bytes, const uint8_t *second, size_t second_bytes,
                       uint8_t **out, size_t *out_bytes)
{
    size_t a, b;
    *out = NULL;
    TRY(wire_object_stub_bytes(first, first_bytes, &a));
    TRY(wire_object_stub_bytes(second, second_bytes, &b));
    TRY(mem_new(HEAD_BYTES + a + b, 1, "evidence", out));
    struct bytes_writer writer = bytes_writer_init(*out, HEAD_BYTES);
    bytes_put_u32(&writer, (uint32_t)a);
    bytes_put_u32(&writer, (uint32_t)b);
    wire_object_stub(first, first_bytes, *out + HEAD_BYTES);
    wire_object_stub(second, second_bytes, *out + HEAD_BYTES + a);
    *out_bytes = HEAD_BYTES + a + b;
    return ERR_OK;
}

enum err evidence_open(const uint8_t *bytes, size_t count, struct wire_object *first, struct wire_object *second)
{
    struct bytes_reader reader = bytes_reader_init(bytes, count);
    size_t a = bytes_get_u32(&reader), b = bytes_get_u32(&reader);
    if (reader.failed || count > EVIDENCE_BYTES_MAX || a > count - HEAD_BYTES || b != count - HEAD_BYTES - a)
        return err_set(ERR_PROTO, "evidence of %zu bytes that is none", count);
    TRY(wire_object_stub_open(bytes + HEAD_BYTES, a, first));
    return wire_object_stub_open(bytes + HEAD_BYTES + a, b, second);
}

enum err evidence_check(const struct wire_object *first, const struct wire_object *second,
                        const uint8_t nonce[WIRE_NONCE_BYTES], const uint8_t *owner_key)
{
    TRY(wire_object_is(first, &first->key, nonce));
    TRY(wire_object_is(second, &first->key, nonce)); /* a key names fragment, version, epoch and owner */
    if (first->key.kind != WIRE_RESULT || digest_equal(&first->digest, &second->digest))
        return err_set(ERR_PROTO, "evidence with one result, or none");
    TRY(wire_object_signed(first, owner_key));
    return wire_object_signed(second, owner_key);
}

/* The key that the owner had in an epoch whose configuration is not known here: of those that it left, the one that it
 * left next after that; else its present one, as of an epoch that has not begun here. So with a key that it has left
 * nobody signs of an epoch after that. */
static const uint8_t *key_in(const struct config *last, const struct config_member *owner, uint64_t epoch)
{
    const struct config_retired *next = NULL;
    for (uint32_t i = 0; i < last->retired_count; i++) {
        const struct config_retired *retired = &last->retired[i];
        if (retired->id == owner->id && retired->epoch > epoch && (next == NULL || retired->epoch < next->epoch))
            next = retired;
    }
    return next != NULL ? next->key : owner->key;
}

enum err evidence_check_of(const struct wire_object *first, const struct wire_object *second,
                           const struct config_log *config_log)
{
    uint64_t epoch = first->key.epoch;
    const struct config *last = config_log_last(config_log), *then = config_log_at(config_log, epoch);
    const struct config_member *owner = config_member(last, first->key.owner), *was;
    if (owner == NULL)
        return err_set(ERR_PROTO, "evidence about id %u, which is not on the roster", (unsigned)first->key.owner);
    was = then != NULL ? config_member(then, owner->id) : NULL;
    if (then != NULL && was == NULL)
        return err_set(ERR_PROTO, "evidence about island %s, which was not on the roster in epoch %" PRIu64,
                       owner->name, epoch);
    return evidence_check(first, second, last->nonce, was != NULL ? was->key : key_in(last, owner, epoch));
}
