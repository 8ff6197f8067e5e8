/* SPDX-License-Identifier: Apache-2.0 */
/* Configurations and the messages by which they are decided. The first byte chooses: a configuration, or a type of
 * message. */
#include <stdlib.h>
#include <string.h>

#include "common/digest.h"
#include "common/mem.h"
#include "net/config/config_log.h"
#include "net/config/config.h"
#include "net/membership/wire_paxos.h"
#include "tests/lib/fuzz.h"

enum { EPOCH_TYPES = WIRE_EVIDENCE - WIRE_PREPARE + 1 };

/* Parts of the first versions; that they are disjoint and of all shards. */
static void take_parts(const struct config_log *config_log)
{
    struct version_part parts[VERSION_PARTS_MAX];
    for (uint32_t fragment = 0; fragment < 4; fragment++) {
        for (uint32_t shards = 1; shards <= 64; shards += 21) {
            uint64_t seen = 0, first = config_start(config_log_last(config_log), fragment) + 1;
            uint32_t count = config_log_parts(config_log, fragment, shards, first, parts);
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

static void try_config(const uint8_t *data, size_t bytes)
{
    struct config config;
    struct config_log *config_log;
    uint8_t *again;
    size_t again_bytes;
    if (config_unpack(data, bytes, &config) != ERR_OK)
        return;
    /* One form: what it says packs to these bytes. */
    if (config_pack(&config, &again, &again_bytes) != ERR_OK || again_bytes != bytes ||
        memcmp(again, data, bytes) != 0 || config_commit_quorum(&config) == 0)
        abort();
    mem_free(again);
    struct digest digest = config_digest(data, bytes);
    if (config_follows(&config, &digest, &config) == ERR_OK)
        abort();
    if (config_log_new(&config_log) == ERR_OK) {
        if (config_log_add(config_log, &config, &digest) != ERR_OK)
            abort();
        take_parts(config_log);
        config_log_free(config_log);
    }
    config_deinit(&config);
}

static void try_message(uint32_t type, const uint8_t *data, size_t bytes)
{
    struct paxos_message message;
    uint8_t *again;
    size_t again_bytes;
    if (wire_paxos_unpack(type, data, bytes, &message) != ERR_OK)
        return;
    /* One that others pack in longer forms can be no longer in ours. */
    if (wire_paxos_pack(&message, &again, &again_bytes) != ERR_OK)
        abort();
    mem_free(again);
    wire_paxos_deinit(&message);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes == 0)
        return 0;
    uint32_t choice = data[0] % (EPOCH_TYPES + 1);
    if (choice == 0)
        try_config(data + 1, bytes - 1);
    else
        try_message(WIRE_PREPARE + choice - 1, data + 1, bytes - 1);
    return 0;
}

#ifndef LIBFUZZER
int main(void)
{
    if (digest_init() != ERR_OK)
        return 1;
    return fuzz_replay("config", LLVMFuzzerTestOneInput, 4000);
}
#endif
