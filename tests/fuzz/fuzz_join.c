/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens, the messages of guests and of who answers them, and the list of invitations. The first byte chooses. A token
 * is also tried with a sum that fits, or hardly one would be looked into. */
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "common/digest.h"
#include "net/transport/invite.h"
#include "net/transport/wire_join.h"
#include "tests/lib/fuzz.h"

enum { KINDS = 7, TOKEN_MAX = 1200 };

static void try_token(const uint8_t *data, size_t bytes)
{
    static char text[INVITE_TEXT_BYTES], again[INVITE_TEXT_BYTES];
    struct invite invite;
    size_t length = bytes < sizeof text - 1 ? bytes : sizeof text - 1;
    memcpy(text, data, length);
    text[length] = '\0';
    if (invite_parse(text, &invite) != ERR_OK)
        return;
    if (invite_text(&invite, again) != ERR_OK || strcmp(text, again) != 0)
        abort(); /* what was taken in is written in one way only */
}

static void try_summed(const uint8_t *data, size_t bytes)
{
    static char text[INVITE_TEXT_BYTES] = "dlc1.";
    uint8_t raw[TOKEN_MAX + 4];
    if (bytes < 2 || bytes > TOKEN_MAX)
        return;
    memcpy(raw, data, bytes);
    raw[0] = (uint8_t)(bytes + 4);
    raw[1] = (uint8_t)((bytes + 4) >> 8);
    struct digest sum = digest_of(raw, bytes);
    memcpy(raw + bytes, sum.byte, 4);
    sodium_bin2base64(text + 5, sizeof text - 5, raw, bytes + 4, sodium_base64_VARIANT_URLSAFE_NO_PADDING);
    try_token((const uint8_t *)text, strlen(text));
}

static void try_list(const uint8_t *data, size_t bytes)
{
    static uint8_t summed[INVITES_BYTES_MAX + DIGEST_BYTES];
    static struct invites invites;
    if (bytes > INVITES_BYTES_MAX)
        return;
    (void)!invites_unpack(data, bytes, &invites);
    memcpy(summed, data, bytes);
    struct digest sum = digest_of(data, bytes);
    memcpy(summed + bytes, sum.byte, sizeof sum.byte);
    if (invites_unpack(summed, bytes + sizeof sum.byte, &invites) == ERR_OK)
        (void)invites_expire(&invites, UINT64_MAX, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct wire_join join, again;
    struct wire_joined joined;
    struct wire_dial_response response, response_again;
    bool later;
    char reason[WIRE_REASON_BYTES];
    uint8_t packed[WIRE_JOIN_BYTES_MAX], second[WIRE_JOIN_BYTES_MAX];
    if (bytes == 0)
        return 0;
    switch (data[0] % KINDS) {
    case 0: try_token(data + 1, bytes - 1); break;
    case 1: try_summed(data + 1, bytes - 1); break;
    case 2:
        if (wire_join_unpack(data + 1, bytes - 1, &join) != ERR_OK)
            break;
        if (wire_join_unpack(packed, wire_join_pack(&join, packed), &again) != ERR_OK ||
            wire_join_pack(&again, second) != wire_join_pack(&join, packed) ||
            memcmp(packed, second, wire_join_pack(&join, packed)) != 0)
            abort();
        if (wire_join_signed(&join, packed) && wire_dial_request_signed(&join, packed))
            abort();
        break;
    case 3:
        if (wire_joined_unpack(data + 1, bytes - 1, &joined) == ERR_OK)
            wire_joined_deinit(&joined);
        break;
    case 4: (void)!wire_refusal_unpack(data + 1, bytes - 1, reason, &later); break;
    case 5: try_list(data + 1, bytes - 1); break;
    default:
        if (wire_dial_response_unpack(data + 1, bytes - 1, &response) != ERR_OK)
            break;
        if (wire_dial_response_unpack(packed, wire_dial_response_pack(&response, packed), &response_again) != ERR_OK ||
            memcmp(&response, &response_again, sizeof response) != 0)
            abort();
        break;
    }
    return 0;
}

#ifndef LIBFUZZER
int main(void)
{
    if (digest_init() != ERR_OK)
        return 1;
    return fuzz_replay("join", LLVMFuzzerTestOneInput, 40000);
}
#endif
