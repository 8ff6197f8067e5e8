/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/state/slots.h"

#include <assert.h>

#include "common/bitset.h"
#include "common/mem.h"
#include "net/chain.h"
#include "net/wire_object.h"

/* Members' slots stand in pieces that never move. */
enum { PIECE = 64, PIECES = BITSET_MAX / PIECE };

struct fragment_slots {
    struct slot *out, *result; /* [CHAIN_PARTS_MAX] each */
    struct slot *in[PIECES];
    struct slot own;
    uint8_t *state;
    uint64_t state_bytes;
};

struct slots {
    struct slots_conf conf;
    struct fragment_slots *fragments;
};

enum err slots_members(struct slots *slots, uint32_t count)
{
    assert(count <= BITSET_MAX);
    if (count > slots->conf.members_count)
        slots->conf.members_count = count;
    for (uint32_t f = 0; f < slots->conf.fragments_count; f++)
        for (uint32_t i = 0; i * PIECE < count; i++)
            if (slots->fragments[f].in[i] == NULL)
                TRY(mem_new(PIECE, sizeof *slots->fragments[f].in[i], "slots", &slots->fragments[f].in[i]));
    return ERR_OK;
}

enum err slots_new(const struct slots_conf *conf, struct slots **out)
{
    enum err err;
    struct slots *slots = NULL;
    *out = NULL;
    TRY_OUT(mem_new(1, sizeof *slots, "slots", &slots));
    slots->conf = *conf;
    TRY_OUT(mem_new(conf->fragments_count, sizeof *slots->fragments, "slots", &slots->fragments));
    for (uint32_t f = 0; f < conf->fragments_count; f++) {
        struct fragment_slots *fragment = &slots->fragments[f];
        TRY_OUT(mem_new(CHAIN_PARTS_MAX, sizeof *fragment->out, "slots", &fragment->out));
        TRY_OUT(mem_new(CHAIN_PARTS_MAX, sizeof *fragment->result, "slots", &fragment->result));
    }
    TRY_OUT(slots_members(slots, conf->members_count));
out:
    if (err != ERR_OK)
        slots_free(slots);
    else
        *out = slots;
    return err;
}

static void free_row(struct slot *row, uint32_t count)
{
    for (uint32_t i = 0; row != NULL && i < count; i++)
        mem_free(row[i].data);
    mem_free(row);
}

void slots_free(struct slots *slots)
{
    if (slots == NULL)
        return;
    for (uint32_t f = 0; slots->fragments != NULL && f < slots->conf.fragments_count; f++) {
        struct fragment_slots *fragment = &slots->fragments[f];
        free_row(fragment->out, CHAIN_PARTS_MAX);
        free_row(fragment->result, CHAIN_PARTS_MAX);
        for (size_t i = 0; i < PIECES; i++)
            free_row(fragment->in[i], PIECE);
        mem_free(fragment->own.data);
        mem_pages_free(fragment->state, (size_t)fragment->state_bytes, 1);
    }
    mem_free(slots->fragments);
    mem_free(slots);
}

uint64_t slots_bytes(uint32_t fragments_count, uint32_t members_count)
{
    uint64_t in = ((uint64_t)members_count + PIECE - 1) / PIECE * PIECE;
    return fragments_count * (sizeof(struct fragment_slots) + (2 * CHAIN_PARTS_MAX + in) * sizeof(struct slot));
}

struct slot *slots_out(const struct slots *slots, uint32_t f, uint32_t p)
{
    return &slots->fragments[f].out[p];
}

struct slot *slots_in(const struct slots *slots, uint32_t f, uint32_t member)
{
    return &slots->fragments[f].in[member / PIECE][member % PIECE];
}

struct slot *slots_result(const struct slots *slots, uint32_t f, uint32_t p)
{
    return &slots->fragments[f].result[p];
}

struct slot *slots_own(const struct slots *slots, uint32_t f)
{
    return &slots->fragments[f].own;
}

enum err slots_room(struct slots *slots, struct slot *slot, uint32_t f, uint64_t shards)
{
    uint8_t *data;
    size_t bytes = wire_object_bytes_max(replica_frame_bytes_max(slots->conf.replica, f, shards), shards,
                                         slots->conf.members_count);
    if (slot->data != NULL && bytes <= slot->bytes_max)
        return ERR_OK;
    TRY(mem_new_unset(bytes, 1, "an encoded part", &data)); /* what is encoded is mostly much less */
    if (slot->data != NULL) {
        assert(!slot->busy);
        mem_free(slot->data);
        slot->bytes = 0;
        slot->version = 0;
    }
    slot->data = data;
    slot->bytes_max = bytes;
    return ERR_OK;
}

enum err slots_take_state(struct slots *slots, uint32_t f, uint64_t bytes, uint8_t **out)
{
    struct fragment_slots *fragment = &slots->fragments[f];
    if (fragment->state != NULL && fragment->state_bytes < bytes) {
        mem_pages_free(fragment->state, (size_t)fragment->state_bytes, 1);
        fragment->state = NULL;
    }
    if (fragment->state == NULL) {
        TRY(mem_pages_new((size_t)bytes, 1, "a state on its way in", &fragment->state));
        fragment->state_bytes = bytes;
    }
    *out = fragment->state;
    return ERR_OK;
}

uint8_t *slots_state(const struct slots *slots, uint32_t f)
{
    return slots->fragments[f].state;
}

void slots_free_state(struct slots *slots, uint32_t f)
{
    mem_pages_free(slots->fragments[f].state, (size_t)slots->fragments[f].state_bytes, 1);
    slots->fragments[f].state = NULL;
}
