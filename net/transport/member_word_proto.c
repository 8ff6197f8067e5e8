/* SPDX-License-Identifier: Apache-2.0 */
#include "net/transport/member_word_proto.h"

#include <inttypes.h>
#include <string.h>

void member_word_to_proto(const struct member_word *word, Diloco__MemberWord *proto)
{
    diloco__member_word__init(proto);
    proto->number = word->number;
    proto->address = (char *)(uintptr_t)word->address;
    proto->uplink = word->uplink;
    proto->owner_choice = word->owner_choice;
    proto->draining = word->draining;
    proto->units = word->units;
    proto->signature.data = (uint8_t *)(uintptr_t)word->signature;
    proto->signature.len = sizeof word->signature;
    if (!member_word_has_next(word))
        return;
    proto->next_key = (ProtobufCBinaryData){.len = sizeof word->next_key, .data = (uint8_t *)(uintptr_t)word->next_key};
    proto->next_signature =
        (ProtobufCBinaryData){.len = sizeof word->next_signature, .data = (uint8_t *)(uintptr_t)word->next_signature};
}

/* Both, or neither. */
static enum err next_from_proto(const Diloco__MemberWord *proto, struct member_word *word)
{
    if (proto->next_key.len == 0 && proto->next_signature.len == 0)
        return ERR_OK;
    if (proto->next_key.len != sizeof word->next_key || proto->next_signature.len != sizeof word->next_signature)
        return err_set(ERR_PROTO, "a member's word with a new key of %zu bytes and a signature of %zu",
                       proto->next_key.len, proto->next_signature.len);
    memcpy(word->next_key, proto->next_key.data, sizeof word->next_key);
    memcpy(word->next_signature, proto->next_signature.data, sizeof word->next_signature);
    return member_word_has_next(word) ? ERR_OK : err_set(ERR_PROTO, "a member's word with a new key of zeros");
}

enum err member_word_from_proto(const Diloco__MemberWord *proto, struct member_word *word)
{
    *word = (struct member_word){.number = 0};
    if (proto == NULL)
        return err_set(ERR_PROTO, "a message without its sender's word");
    size_t bytes = strlen(proto->address);
    if (bytes >= sizeof word->address || proto->owner_choice > UINT8_MAX)
        return err_set(ERR_PROTO, "a member's word with an address of %zu bytes and owner choice %" PRIu32, bytes,
                       proto->owner_choice);
    if (proto->signature.len != sizeof word->signature)
        return err_set(ERR_PROTO, "a member's word with a signature of %zu bytes", proto->signature.len);
    word->number = proto->number;
    memcpy(word->address, proto->address, bytes);
    word->uplink = proto->uplink;
    word->owner_choice = (uint8_t)proto->owner_choice;
    word->draining = proto->draining;
    word->units = proto->units;
    memcpy(word->signature, proto->signature.data, sizeof word->signature);
    TRY(next_from_proto(proto, word));
    return member_word_check(word);
}
