/* SPDX-License-Identifier: Apache-2.0 */
#include "net/transport/wire_join.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "common/mem.h"
#include "net/transport/member_word_proto.h"
#include "net/transport/wire.pb-c.h"

/* What is signed begins with one of these, so that it is a signature of nothing else. */
static const char join_label[] = "diloco join", dial_label[] = "diloco dial request";
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

/* ---- admit ---- */

/* Label with its zero, nonce, invitation, key, witness u8, name with its zero, and the word's signature. */
static size_t put_signed(const struct wire_join *join, const char *label, const uint8_t nonce[WIRE_NONCE_BYTES],
                         uint8_t *out)
{
    struct bytes_writer writer = bytes_writer_init(out, SIGNED_BYTES_MAX);
    bytes_put(&writer, label, strlen(label) + 1);
    bytes_put(&writer, nonce, WIRE_NONCE_BYTES);
    bytes_put(&writer, join->invitation.byte, sizeof join->invitation.byte);
    bytes_put(&writer, join->key, sizeof join->key);
    bytes_put_u8(&writer, join->witness);
    bytes_put(&writer, join->name, strlen(join->name) + 1);
    bytes_put(&writer, join->word.signature, sizeof join->word.signature);
    return writer.at;
}

static void sign(const struct ident *ident, const char *label, const uint8_t nonce[WIRE_NONCE_BYTES],
                 struct wire_join *join)
{
    uint8_t message[SIGNED_BYTES_MAX];
    member_word_sign(ident, nonce, MEMBER_WORD_NEWCOMER, &join->word);
    memcpy(join->key, ident->key, sizeof join->key);
    ident_sign(ident, message, put_signed(join, label, nonce, message), join->signature);
}

static bool is_signed(const struct wire_join *join, const char *label, const uint8_t nonce[WIRE_NONCE_BYTES])
{
    uint8_t message[SIGNED_BYTES_MAX];
    size_t bytes = put_signed(join, label, nonce, message);
    return ident_signed(join->key, message, bytes, join->signature) &&
           member_word_signed(join->key, nonce, MEMBER_WORD_NEWCOMER, &join->word);
}

void wire_join_sign(const struct ident *ident, const uint8_t nonce[WIRE_NONCE_BYTES], struct wire_join *join)
{
    sign(ident, join_label, nonce, join);
}

bool wire_join_signed(const struct wire_join *join, const uint8_t nonce[WIRE_NONCE_BYTES])
{
    return is_signed(join, join_label, nonce);
}

void wire_dial_request_sign(const struct ident *ident, const uint8_t nonce[WIRE_NONCE_BYTES], struct wire_join *join)
{
    sign(ident, dial_label, nonce, join);
}

bool wire_dial_request_signed(const struct wire_join *join, const uint8_t nonce[WIRE_NONCE_BYTES])
{
    return is_signed(join, dial_label, nonce);
}

void wire_join_to_proto(const struct wire_join *join, Diloco__MemberWord *word, Diloco__Join *proto)
{
    diloco__join__init(proto);
    proto->invitation = binary_of(join->invitation.byte, sizeof join->invitation.byte);
    proto->name = (char *)(uintptr_t)join->name;
    proto->key = binary_of(join->key, sizeof join->key);
    proto->witness = join->witness;
    proto->signature = binary_of(join->signature, sizeof join->signature);
    member_word_to_proto(&join->word, word);
    proto->word = word;
}

size_t wire_join_pack(const struct wire_join *join, uint8_t *out)
{
    Diloco__Join proto;
    Diloco__MemberWord word;
    wire_join_to_proto(join, &word, &proto);
    return protobuf_c_message_pack(&proto.base, out);
}

enum err wire_join_from_proto(const Diloco__Join *proto, struct wire_join *join)
{
    uint8_t curve_key[IDENT_KEY_BYTES];
    *join = (struct wire_join){.witness = proto->witness};
    if (!fixed_from(&proto->invitation, sizeof join->invitation.byte, join->invitation.byte))
        return err_set(ERR_PROTO, "invitation of %zu bytes", proto->invitation.len);
    if (!wire_name_good(proto->name))
        return err_set(ERR_PROTO, "a name that is not 1 to %d letters, digits, '-' or '_'", WIRE_NAME_BYTES - 1);
    memcpy(join->name, proto->name, strlen(proto->name) + 1);
    if (!fixed_from(&proto->key, sizeof join->key, join->key) || ident_curve(join->key, curve_key) != ERR_OK)
        return err_set(ERR_PROTO, "a key that is none");
    if (!fixed_from(&proto->signature, sizeof join->signature, join->signature))
        return err_set(ERR_PROTO, "signature of %zu bytes", proto->signature.len);
    return member_word_from_proto(proto->word, &join->word);
}

enum err wire_join_unpack(const void *bytes, size_t bytes_count, struct wire_join *join)
{
    struct budget budget = {.left = UNPACK_BESIDES};
    ProtobufCAllocator allocator = {.alloc = take, .free = give_back, .allocator_data = &budget};
    if (bytes_count > WIRE_JOIN_BYTES_MAX)
        return err_set(ERR_PROTO, "an admission of %zu bytes", bytes_count);
    ProtobufCMessage *proto = unpack(&diloco__join__descriptor, bytes, bytes_count, &allocator);
    if (proto == NULL)
        return err_set(ERR_PROTO, "an admission that is damaged, or holds too much");
    enum err err = wire_join_from_proto((const Diloco__Join *)proto, join);
    protobuf_c_message_free_unpacked(proto, &allocator);
    return err;
}

/* ---- the answers ---- */

enum err wire_joined_pack(const struct wire_joined *joined, uint8_t **bytes, size_t *bytes_count)
{
    Diloco__Joined proto = DILOCO__JOINED__INIT;
    *bytes = NULL;
    proto.id = joined->id;
    proto.configs = binary_of(joined->configs, joined->configs_bytes);
    proto.run_spec = joined->run_spec;
    *bytes_count = protobuf_c_message_get_packed_size(&proto.base);
    if (*bytes_count > WIRE_JOINED_BYTES_MAX)
        return err_set(ERR_ARG, "configurations and run spec of %zu bytes; a guest takes %d", *bytes_count,
                       WIRE_JOINED_BYTES_MAX);
    TRY(mem_new(*bytes_count, 1, "an answer to a guest", bytes));
    protobuf_c_message_pack(&proto.base, *bytes);
    return ERR_OK;
}

static enum err take_admitted(const Diloco__Joined *proto, struct wire_joined *joined)
{
    enum err err;
    joined->id = proto->id;
    joined->configs_bytes = proto->configs.len;
    if (proto->configs.len == 0 || proto->run_spec[0] == '\0')
        return err_set(ERR_PROTO, "an answer without configurations or run spec");
    TRY_OUT(mem_new(proto->configs.len, 1, "configs", &joined->configs));
    memcpy(joined->configs, proto->configs.data, proto->configs.len);
    TRY_OUT(mem_strdup(proto->run_spec, &joined->run_spec));
out:
    if (err != ERR_OK)
        wire_joined_deinit(joined);
    return err;
}

enum err wire_joined_unpack(const void *bytes, size_t bytes_count, struct wire_joined *joined)
{
    struct budget budget = {.left = 2 * WIRE_JOINED_BYTES_MAX};
    ProtobufCAllocator allocator = {.alloc = take, .free = give_back, .allocator_data = &budget};
    *joined = (struct wire_joined){.id = 0};
    if (bytes_count > WIRE_JOINED_BYTES_MAX)
        return err_set(ERR_PROTO, "an answer of %zu bytes", bytes_count);
    ProtobufCMessage *proto = unpack(&diloco__joined__descriptor, bytes, bytes_count, &allocator);
    if (proto == NULL)
        return err_set(ERR_PROTO, "an answer that is damaged, or holds too much");
    enum err err = take_admitted((const Diloco__Joined *)proto, joined);
    protobuf_c_message_free_unpacked(proto, &allocator);
    if (err != ERR_OK)
        *joined = (struct wire_joined){.id = 0};
    return err;
}

void wire_joined_deinit(struct wire_joined *joined)
{
    mem_free(joined->configs);
    mem_free(joined->run_spec);
    *joined = (struct wire_joined){.id = 0};
}

size_t wire_refusal_pack(const char *reason, bool later, uint8_t *out)
{
    char text[WIRE_REASON_BYTES] = "";
    Diloco__Refusal proto = DILOCO__REFUSAL__INIT;
    memcpy(text, reason, strnlen(reason, sizeof text - 1));
    proto.reason = text;
    proto.later = later;
    return protobuf_c_message_pack(&proto.base, out);
}

enum err wire_refusal_unpack(const void *bytes, size_t bytes_count, char reason[WIRE_REASON_BYTES], bool *later)
{
    struct budget budget = {.left = UNPACK_BESIDES};
    ProtobufCAllocator allocator = {.alloc = take, .free = give_back, .allocator_data = &budget};
    if (bytes_count > WIRE_JOIN_BYTES_MAX)
        return err_set(ERR_PROTO, "a refusal of %zu bytes", bytes_count);
    ProtobufCMessage *proto = unpack(&diloco__refusal__descriptor, bytes, bytes_count, &allocator);
    if (proto == NULL)
        return err_set(ERR_PROTO, "a refusal that is damaged, or holds too much");
    const char *text = ((const Diloco__Refusal *)proto)->reason;
    size_t length = strnlen(text, WIRE_REASON_BYTES - 1);
    for (size_t i = 0; i < length; i++) /* it goes to a terminal */
        reason[i] = text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
    reason[length] = '\0';
    *later = ((const Diloco__Refusal *)proto)->later;
    protobuf_c_message_free_unpacked(proto, &allocator);
    return ERR_OK;
}

/* ---- whether a guest is reached ---- */

void wire_dial_tag(const struct wire_join *join, uint8_t tag[WIRE_DIAL_TAG_BYTES])
{
    memcpy(tag, join->signature, WIRE_DIAL_TAG_BYTES);
}

size_t wire_dial_response_pack(const struct wire_dial_response *response, uint8_t *out)
{
    Diloco__DialResponse proto = DILOCO__DIAL_RESPONSE__INIT;
    Diloco__DialReport reports[WIRE_DIAL_REPORTS_MAX], *list[WIRE_DIAL_REPORTS_MAX];
    for (uint32_t i = 0; i < response->reports_count && i < WIRE_DIAL_REPORTS_MAX; i++) {
        diloco__dial_report__init(&reports[i]);
        reports[i].island = (char *)(uintptr_t)response->reports[i].island;
        reports[i].outcome = response->reports[i].outcome;
        reports[i].took_ms = response->reports[i].took_ms;
        list[proto.n_reports++] = &reports[i];
    }
    proto.request = binary_of(response->request, sizeof response->request);
    proto.reports = list;
    return protobuf_c_message_pack(&proto.base, out);
}

static enum err take_report(const Diloco__DialReport *proto, struct wire_dial_report *report)
{
    if (proto->island[0] != '\0' && !wire_name_good(proto->island))
        return err_set(ERR_PROTO, "a report on dialling of an island whose name is none");
    if (proto->outcome >= WIRE_DIAL_OUTCOMES)
        return err_set(ERR_PROTO, "a report on dialling with outcome %" PRIu32, proto->outcome);
    if (proto->took_ms > WIRE_DIAL_TOOK_MS_MAX)
        return err_set(ERR_PROTO, "a report on dialling that took %" PRIu32 " ms", proto->took_ms);
    memcpy(report->island, proto->island, strlen(proto->island) + 1);
    report->outcome = (uint8_t)proto->outcome;
    report->took_ms = proto->took_ms;
    return ERR_OK;
}

static enum err take_response(const Diloco__DialResponse *proto, struct wire_dial_response *response)
{
    if (!fixed_from(&proto->request, sizeof response->request, response->request))
        return err_set(ERR_PROTO, "an answer about dialling that names its question by %zu bytes", proto->request.len);
    if (proto->n_reports == 0 || proto->n_reports > WIRE_DIAL_REPORTS_MAX)
        return err_set(ERR_PROTO, "an answer about dialling with %zu reports", proto->n_reports);
    for (size_t i = 0; i < proto->n_reports; i++)
        TRY(take_report(proto->reports[i], &response->reports[i]));
    response->reports_count = (uint32_t)proto->n_reports;
    return ERR_OK;
}

enum err wire_dial_response_unpack(const void *bytes, size_t bytes_count, struct wire_dial_response *response)
{
    struct budget budget = {.left = UNPACK_BESIDES};
    ProtobufCAllocator allocator = {.alloc = take, .free = give_back, .allocator_data = &budget};
    *response = (struct wire_dial_response){.reports_count = 0};
    if (bytes_count > WIRE_JOIN_BYTES_MAX)
        return err_set(ERR_PROTO, "an answer about dialling of %zu bytes", bytes_count);
    ProtobufCMessage *proto = unpack(&diloco__dial_response__descriptor, bytes, bytes_count, &allocator);
    if (proto == NULL)
        return err_set(ERR_PROTO, "an answer about dialling that is damaged, or holds too much");
    enum err err = take_response((const Diloco__DialResponse *)proto, response);
    protobuf_c_message_free_unpacked(proto, &allocator);
    return err;
}
