/* SPDX-License-Identifier: Apache-2.0 */
/* Messages from peers: header, every control payload, chunks. The first byte chooses the type. */
#include "common/digest.h"
#include "net/transport/wire.h"
#include "tests/lib/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct wire_message message;
    struct wire_header header;
    struct wire_chunk chunk;
    if (bytes == 0)
        return 0;
    (void)!wire_header_get(data + 1, bytes - 1, &header);
    (void)!wire_chunk_get(data + 1, bytes - 1, &chunk);
    if (wire_unpack(data[0] % 10, data + 1, bytes - 1, &message) == ERR_OK) {
        static uint8_t packed[WIRE_CONTROL_BYTES_MAX];
        size_t packed_bytes;
        (void)!wire_pack(&message, packed, &packed_bytes);
    }
    return 0;
}

#ifndef LIBFUZZER
int main(void)
{
    if (digest_init() != ERR_OK)
        return 1;
    return fuzz_replay("wire", LLVMFuzzerTestOneInput, 40000);
}
#endif
