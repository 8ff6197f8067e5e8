/* SPDX-License-Identifier: Apache-2.0 */
/* View records and the messages by which they are decided. The first byte chooses: a record, or a type of message. */
#include <stdlib.h>
#include <string.h>

#include "common/digest.h"
#include "common/mem.h"
#include "net/config/chain.h"
#include "net/config/record.h"
#include "net/membership/wire_epoch.h"
#include "tests/lib/fuzz.h"

enum { EPOCH_TYPES = WIRE_WISH - WIRE_PREPARE + 1 };

/* Parts of the first versions; that they are disjoint and of all shards. */
static void take_parts(const struct chain *chain)
{
    struct chain_part parts[CHAIN_PARTS_MAX];
    for (uint32_t fragment = 0; fragment < 4; fragment++) {
        for (uint32_t shards = 1; shards <= 64; shards += 21) {
            uint64_t seen = 0, first = record_start(chain_last(chain), fragment) + 1;
            uint32_t count = chain_parts(chain, fragment, shards, first, parts);
            for (uint32_t i = 0; i < count; i++) {
                if (parts[i].shards == 0 || (seen & parts[i].shards) != 0)
                    abort();
                seen |= parts[i].shards;
            }
            if (count > 0 && seen != UINT64_MAX >> (64 - shards))
                abort();
        }
    }
}

static void try_record(const uint8_t *data, size_t bytes)
{
    struct record record;
    struct chain *chain;
    uint8_t *again;
    size_t again_bytes;
    if (record_unpack(data, bytes, &record) != ERR_OK)
        return;
    /* One form: what it says packs to these bytes. */
    if (record_pack(&record, &again, &again_bytes) != ERR_OK || again_bytes != bytes ||
        memcmp(again, data, bytes) != 0 || record_certifying(&record) == 0)
        abort();
    mem_free(again);
    struct digest digest = record_digest(data, bytes);
    if (record_follows(&record, &digest, &record) == ERR_OK)
        abort();
    if (chain_new(&chain) == ERR_OK) {
        if (chain_add(chain, &record, &digest) != ERR_OK)
            abort();
        take_parts(chain);
        chain_free(chain);
    }
    record_deinit(&record);
}

static void try_message(uint32_t type, const uint8_t *data, size_t bytes)
{
    struct epoch_message message;
    uint8_t *again;
    size_t again_bytes;
    if (wire_epoch_unpack(type, data, bytes, &message) != ERR_OK)
        return;
    /* One that others pack in longer forms can be no longer in ours. */
    if (wire_epoch_pack(&message, &again, &again_bytes) != ERR_OK)
        abort();
    mem_free(again);
    wire_epoch_deinit(&message);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes == 0)
        return 0;
    uint32_t choice = data[0] % (EPOCH_TYPES + 1);
    if (choice == 0)
        try_record(data + 1, bytes - 1);
    else
        try_message(WIRE_PREPARE + choice - 1, data + 1, bytes - 1);
    return 0;
}

#ifndef LIBFUZZER
int main(void)
{
    if (digest_init() != ERR_OK)
        return 1;
    return fuzz_replay("record", LLVMFuzzerTestOneInput, 4000);
}
#endif
