/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/joined.h"

#include "common/fsio.h"
#include "common/mem.h"
#include "net/membership/wire_epoch.h"

enum err joined_read(const char *path, struct record *record, struct record_entry *entry)
{
    struct epoch_message message;
    char *data;
    size_t bytes;
    *record = (struct record){0};
    *entry = (struct record_entry){0};
    TRY(fsio_read(path, WIRE_EPOCH_BYTES_MAX, &data, &bytes));
    enum err err = wire_epoch_unpack(WIRE_DECIDED, data, bytes, &message);
    mem_free(data);
    TRY(err);
    struct record_entry borrowed = {.bytes = (uint8_t *)(uintptr_t)message.bytes,
                                    .bytes_count = message.bytes_count,
                                    .votes = (struct record_vote *)(uintptr_t)message.votes,
                                    .votes_count = message.votes_count};
    err = record_unpack(borrowed.bytes, borrowed.bytes_count, record);
    if (err == ERR_OK)
        err = record_entry_copy(&borrowed, entry);
    if (err != ERR_OK)
        record_deinit(record);
    wire_epoch_deinit(&message);
    return err;
}
