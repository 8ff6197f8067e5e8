/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/state/slots.h"

#include <assert.h>

#include "common/bitset.h"
#include "common/mem.h"
#include "net/config/config_log.h"
#include "net/transport/wire_object.h"

/* Members' slots stand in pieces that never move. */
enum { PIECE = 64, PIECES = BITSET_MAX / PIECE };

struct fragment_slots {
    struct slot *out, *result; /* [VERSION_PARTS_MAX] each */
    struct slot *in[PIECES];
    struct slot own;
    uint8_t *state;
    uint64_t state_bytes;
};

/* Memory of a state that has been taken over, for the next one: pages that the kernel need not clear again. */
struct spare {
    uint8_t *memory;
    uint64_t bytes;
};
/* LEAST: bytes that are worth it; memory is made in a STEP, since states differ in length by some rows. */
enum { SPARE_LEAST = 1 << 20, STEP = 4 << 10 };

struct slots {
    struct spare spares[SLOTS_SPARES];
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
        TRY_OUT(mem_new(VERSION_PARTS_MAX, sizeof *fragment->out, "slots", &fragment->out));
        TRY_OUT(mem_new(VERSION_PARTS_MAX, sizeof *fragment->result, "slots", &fragment->result));
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
        free_row(fragment->out, VERSION_PARTS_MAX);
        free_row(fragment->result, VERSION_PARTS_MAX);
        for (size_t i = 0; i < PIECES; i++)
            free_row(fragment->in[i], PIECE);
        mem_free(fragment->own.data);
        mem_pages_free(fragment->state, (size_t)fragment->state_bytes, 1);
    }
    slots_drop_spares(slots);
    mem_free(slots->fragments);
    mem_free(slots);
}

uint64_t slots_bytes(uint32_t fragments_count, uint32_t members_count)
{
    uint64_t in = ((uint64_t)members_count + PIECE - 1) / PIECE * PIECE;
    return fragments_count * (sizeof(struct fragment_slots) + (2 * VERSION_PARTS_MAX + in) * sizeof(struct slot));
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

/* Without one that fits, those that do not are let go before another is made: so there are never more states in memory
 * than come in at a time. */
static enum err new_state(struct slots *slots, struct fragment_slots *fragment, uint64_t bytes)
{
    for (size_t i = 0; i < SLOTS_SPARES; i++) {
        struct spare *spare = &slots->spares[i];
        if (spare->memory == NULL || spare->bytes < bytes)
            continue;
        fragment->state = spare->memory;
        fragment->state_bytes = spare->bytes;
        *spare = (struct spare){.bytes = 0};
        return ERR_OK;
    }
    slots_drop_spares(slots);
    uint64_t room = bytes < SPARE_LEAST ? bytes : (bytes + STEP - 1) / STEP * STEP;
    TRY(mem_pages_new((size_t)room, 1, "a state on its way in", &fragment->state));
    fragment->state_bytes = room;
    return ERR_OK;
}

enum err slots_take_state(struct slots *slots, uint32_t f, uint64_t bytes, uint8_t **out)
{
    struct fragment_slots *fragment = &slots->fragments[f];
    if (fragment->state != NULL && fragment->state_bytes < bytes)
        slots_free_state(slots, f);
    if (fragment->state == NULL)
        TRY(new_state(slots, fragment, bytes));
    *out = fragment->state;
    return ERR_OK;
}

uint8_t *slots_state(const struct slots *slots, uint32_t f)
{
    return slots->fragments[f].state;
}

void slots_free_state(struct slots *slots, uint32_t f)
{
    struct fragment_slots *fragment = &slots->fragments[f];
    struct spare *place = NULL;
    for (size_t i = 0; i < SLOTS_SPARES && place == NULL; i++)
        if (slots->spares[i].memory == NULL)
            place = &slots->spares[i];
    if (place != NULL && fragment->state != NULL && fragment->state_bytes >= SPARE_LEAST)
        *place = (struct spare){.memory = fragment->state, .bytes = fragment->state_bytes};
    else
        mem_pages_free(fragment->state, (size_t)fragment->state_bytes, 1);
    fragment->state = NULL;
}

void slots_drop_spares(struct slots *slots)
{
    for (size_t i = 0; i < SLOTS_SPARES; i++) {
        mem_pages_free(slots->spares[i].memory, (size_t)slots->spares[i].bytes, 1);
        slots->spares[i] = (struct spare){.bytes = 0};
    }
}
