/* SPDX-License-Identifier: Apache-2.0 */
#include "net/transport/wire_enrol.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "common/mem.h"
#include "net/transport/address.h"
#include "net/transport/wire.pb-c.h"

/* What is signed begins with this, so that it is a signature of nothing else. */
static const char label[] = "diloco enrol 1";
enum { SIGNED_BYTES_MAX = 1024, UNPACK_BESIDES = 64 << 10 };

/* ---- fields ---- */

bool wire_name_good(const char *name)
{
    size_t good = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_");
    return good > 0 && name[good] == '\0' && good < WIRE_NAME_BYTES;
}

/* Unpacking takes memory as long as this allows, whatever the bytes say. */
struct budget {
    size_t left;
};

static void *take(void *user, size_t bytes)
{
    struct budget *budget = user;
    void *memory = NULL;
    size_t rounded = (bytes + MEM_ALIGN - 1) / MEM_ALIGN * MEM_ALIGN;
    if (bytes > budget->left || rounded > budget->left || mem_new(rounded, 1, "a message", &memory) != ERR_OK)
        return NULL;
    budget->left -= rounded;
    return memory;
}

static void give_back(void *user, void *memory)
{
    (void)user;
    mem_free(memory);
}

static ProtobufCMessage *unpack(const ProtobufCMessageDescriptor *descriptor, const void *bytes, size_t bytes_count,
                                ProtobufCAllocator *allocator)
{
    return protobuf_c_message_unpack(descriptor, allocator, bytes_count, bytes);
}

static bool fixed_from(const ProtobufCBinaryData *data, size_t bytes, uint8_t *out)
{
    if (data->len == bytes)
        memcpy(out, data->data, bytes);
    return data->len == bytes;
}

static ProtobufCBinaryData binary_of(const uint8_t *bytes, size_t count)
{
    return (ProtobufCBinaryData){.len = count, .data = (uint8_t *)(uintptr_t)bytes};
}

/* ---- enrol ---- */

/* Label with its zero, nonce, run_id, invitation, key, uplink u64, owner wish u8, witness u8, name and address, each
 * with its zero. */
static size_t put_signed(const struct wire_enrol *enrol, const uint8_t nonce[WIRE_NONCE_BYTES],
                         const struct digest *run_id, uint8_t *out)
{
    struct bytes_writer writer = bytes_writer_init(out, SIGNED_BYTES_MAX);
    bytes_put(&writer, label, sizeof label);
    bytes_put(&writer, nonce, WIRE_NONCE_BYTES);
    bytes_put(&writer, run_id->byte, sizeof run_id->byte);
    bytes_put(&writer, enrol->invitation.byte, sizeof enrol->invitation.byte);
    bytes_put(&writer, enrol->key, sizeof enrol->key);
    bytes_put_u64(&writer, enrol->uplink);
    bytes_put_u8(&writer, enrol->owner_wish);
    bytes_put_u8(&writer, enrol->witness);
    bytes_put(&writer, enrol->name, strlen(enrol->name) + 1);
    bytes_put(&writer, enrol->address, strlen(enrol->address) + 1);
    return writer.at;
}

void wire_enrol_sign(const struct ident *ident, const uint8_t nonce[WIRE_NONCE_BYTES], const struct digest *run_id,
                     struct wire_enrol *enrol)
{
    uint8_t message[SIGNED_BYTES_MAX];
    memcpy(enrol->key, ident->key, sizeof enrol->key);
    ident_sign(ident, message, put_signed(enrol, nonce, run_id, message), enrol->signature);
}

bool wire_enrol_signed(const struct wire_enrol *enrol, const uint8_t nonce[WIRE_NONCE_BYTES],
                       const struct digest *run_id)
{
    uint8_t message[SIGNED_BYTES_MAX];
    size_t bytes = put_signed(enrol, nonce, run_id, message);
    return ident_signed(enrol->key, message, bytes, enrol->signature);
}

size_t wire_enrol_pack(const struct wire_enrol *enrol, uint8_t *out)
{
    Diloco__Enrol proto = DILOCO__ENROL__INIT;
    proto.invitation = binary_of(enrol->invitation.byte, sizeof enrol->invitation.byte);
    proto.name = (char *)(uintptr_t)enrol->name;
    proto.key = binary_of(enrol->key, sizeof enrol->key);
    proto.address = (char *)(uintptr_t)enrol->address;
    proto.uplink = enrol->uplink;
    proto.owner_wish = enrol->owner_wish;
    proto.witness = enrol->witness;
    proto.signature = binary_of(enrol->signature, sizeof enrol->signature);
    return protobuf_c_message_pack(&proto.base, out);
}

static enum err take_enrol(const Diloco__Enrol *proto, struct wire_enrol *enrol)
{
    uint8_t curve_key[IDENT_KEY_BYTES];
    *enrol = (struct wire_enrol){.uplink = proto->uplink, .witness = proto->witness};
    if (!fixed_from(&proto->invitation, sizeof enrol->invitation.byte, enrol->invitation.byte))
        return err_set(ERR_PROTO, "invitation of %zu bytes", proto->invitation.len);
    if (!wire_name_good(proto->name))
        return err_set(ERR_PROTO, "a name that is not 1 to %d letters, digits, '-' or '_'", WIRE_NAME_BYTES - 1);
    memcpy(enrol->name, proto->name, strlen(proto->name) + 1);
    if (!fixed_from(&proto->key, sizeof enrol->key, enrol->key) || ident_curve(enrol->key, curve_key) != ERR_OK)
        return err_set(ERR_PROTO, "a key that is none");
    if (proto->address[0] != '\0' && !address_good(proto->address))
        return err_set(ERR_PROTO, "an address that is not host:port");
    memcpy(enrol->address, proto->address, strlen(proto->address) + 1);
    if (proto->uplink == 0)
        return err_set(ERR_PROTO, "an uplink of 0");
    if (proto->owner_wish >= WIRE_OWNER_WISHES)
        return err_set(ERR_PROTO, "owner wish %" PRIu32, proto->owner_wish);
    enrol->owner_wish = (uint8_t)proto->owner_wish;
    if (!fixed_from(&proto->signature, sizeof enrol->signature, enrol->signature))
        return err_set(ERR_PROTO, "signature of %zu bytes", proto->signature.len);
    return ERR_OK;
}

enum err wire_enrol_unpack(const void *bytes, size_t bytes_count, struct wire_enrol *enrol)
{
    struct budget budget = {.left = UNPACK_BESIDES};
    ProtobufCAllocator allocator = {.alloc = take, .free = give_back, .allocator_data = &budget};
    if (bytes_count > WIRE_ENROL_BYTES_MAX)
        return err_set(ERR_PROTO, "an enrolment of %zu bytes", bytes_count);
    ProtobufCMessage *proto = unpack(&diloco__enrol__descriptor, bytes, bytes_count, &allocator);
    if (proto == NULL)
        return err_set(ERR_PROTO, "an enrolment that is damaged, or holds too much");
    enum err err = take_enrol((const Diloco__Enrol *)proto, enrol);
    protobuf_c_message_free_unpacked(proto, &allocator);
    return err;
}

/* ---- the answers ---- */

enum err wire_enrolled_pack(const struct wire_enrolled *enrolled, uint8_t **bytes, size_t *bytes_count)
{
    Diloco__Enrolled proto = DILOCO__ENROLLED__INIT;
    *bytes = NULL;
    proto.id = enrolled->id;
    proto.records = binary_of(enrolled->records, enrolled->records_bytes);
    proto.run_spec = enrolled->run_spec;
    *bytes_count = protobuf_c_message_get_packed_size(&proto.base);
    if (*bytes_count > WIRE_ENROLLED_BYTES_MAX)
        return err_set(ERR_ARG, "records and run spec of %zu bytes; a guest takes %d", *bytes_count,
                       WIRE_ENROLLED_BYTES_MAX);
    TRY(mem_new(*bytes_count, 1, "an answer to a guest", bytes));
    protobuf_c_message_pack(&proto.base, *bytes);
    return ERR_OK;
}

static enum err take_enrolled(const Diloco__Enrolled *proto, struct wire_enrolled *enrolled)
{
    enum err err;
    enrolled->id = proto->id;
    enrolled->records_bytes = proto->records.len;
    if (proto->records.len == 0 || proto->run_spec[0] == '\0')
        return err_set(ERR_PROTO, "an answer without records or run spec");
    TRY_OUT(mem_new(proto->records.len, 1, "records", &enrolled->records));
    memcpy(enrolled->records, proto->records.data, proto->records.len);
    TRY_OUT(mem_strdup(proto->run_spec, &enrolled->run_spec));
out:
    if (err != ERR_OK)
        wire_enrolled_deinit(enrolled);
    return err;
}

enum err wire_enrolled_unpack(const void *bytes, size_t bytes_count, struct wire_enrolled *enrolled)
{
    struct budget budget = {.left = 2 * WIRE_ENROLLED_BYTES_MAX};
    ProtobufCAllocator allocator = {.alloc = take, .free = give_back, .allocator_data = &budget};
    *enrolled = (struct wire_enrolled){.id = 0};
    if (bytes_count > WIRE_ENROLLED_BYTES_MAX)
        return err_set(ERR_PROTO, "an answer of %zu bytes", bytes_count);
    ProtobufCMessage *proto = unpack(&diloco__enrolled__descriptor, bytes, bytes_count, &allocator);
    if (proto == NULL)
        return err_set(ERR_PROTO, "an answer that is damaged, or holds too much");
    enum err err = take_enrolled((const Diloco__Enrolled *)proto, enrolled);
    protobuf_c_message_free_unpacked(proto, &allocator);
    if (err != ERR_OK)
        *enrolled = (struct wire_enrolled){.id = 0};
    return err;
}

void wire_enrolled_deinit(struct wire_enrolled *enrolled)
{
    mem_free(enrolled->records);
    mem_free(enrolled->run_spec);
    *enrolled = (struct wire_enrolled){.id = 0};
}

size_t wire_refusal_pack(const char *reason, uint8_t *out)
{
    char text[WIRE_REASON_BYTES] = "";
    Diloco__Refusal proto = DILOCO__REFUSAL__INIT;
    memcpy(text, reason, strnlen(reason, sizeof text - 1));
    proto.reason = text;
    return protobuf_c_message_pack(&proto.base, out);
}

enum err wire_refusal_unpack(const void *bytes, size_t bytes_count, char reason[WIRE_REASON_BYTES])
{
    struct budget budget = {.left = UNPACK_BESIDES};
    ProtobufCAllocator allocator = {.alloc = take, .free = give_back, .allocator_data = &budget};
    if (bytes_count > WIRE_ENROL_BYTES_MAX)
        return err_set(ERR_PROTO, "a refusal of %zu bytes", bytes_count);
    ProtobufCMessage *proto = unpack(&diloco__refusal__descriptor, bytes, bytes_count, &allocator);
    if (proto == NULL)
        return err_set(ERR_PROTO, "a refusal that is damaged, or holds too much");
    const char *text = ((const Diloco__Refusal *)proto)->reason;
    size_t length = strnlen(text, WIRE_REASON_BYTES - 1);
    for (size_t i = 0; i < length; i++) /* it goes to a terminal */
        reason[i] = text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
    reason[length] = '\0';
    protobuf_c_message_free_unpacked(proto, &allocator);
    return ERR_OK;
}
