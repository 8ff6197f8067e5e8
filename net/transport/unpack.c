/* SPDX-License-Identifier: Apache-2.0 */
#include "net/transport/unpack.h"

#include <stdbool.h>

#include "common/mem.h"

/* What mem_new() may add to an allocation: the rest of a line, and the allocator's own words. */
enum { OVERHEAD_BYTES = MEM_ALIGN + 16 };

struct budget {
    size_t left;
    bool no_memory; /* rather than too much asked for */
};

static void *take(void *user, size_t bytes)
{
    struct budget *budget = user;
    void *memory;
    if (bytes > budget->left || OVERHEAD_BYTES > budget->left - bytes)
        return NULL;
    budget->left -= bytes + OVERHEAD_BYTES;
    if (mem_new(bytes, 1, "a message of the epoch protocol", &memory) != ERR_OK)
        budget->no_memory = true;
    return memory;
}

static void give_back(void *user, void *memory)
{
    (void)user;
    mem_free(memory);
}

enum err unpack_proto(const ProtobufCMessageDescriptor *descriptor, const char *what, const uint8_t *bytes,
                      size_t bytes_count, ProtobufCMessage **out)
{
    struct budget budget = {.left = UNPACK_BYTES_MAX};
    ProtobufCAllocator allocator = {.alloc = take, .free = give_back, .allocator_data = &budget};
    *out = protobuf_c_message_unpack(descriptor, &allocator, bytes_count, bytes);
    if (*out != NULL)
        return ERR_OK;
    if (budget.no_memory)
        return ERR_NOMEM; /* mem_new() has said so */
    return err_set(ERR_PROTO, "%s is damaged, or holds too much", what);
}

void unpack_free(ProtobufCMessage *proto)
{
    ProtobufCAllocator allocator = {.alloc = take, .free = give_back};
    if (proto != NULL)
        protobuf_c_message_free_unpacked(proto, &allocator);
}
