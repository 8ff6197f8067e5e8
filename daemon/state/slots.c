#include "daemon/state/slots.h"

#include "common/mem.h"
#include "net/wire_object.h"

struct fragment_slots {
    struct slot *out, *in, *result; /* [members] each */
    struct slot own;
    uint8_t *state;
};

struct slots {
    struct slots_conf conf;
    struct fragment_slots *fragments;
};

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
        TRY_OUT(mem_new(conf->members_count, sizeof *fragment->out, "slots", &fragment->out));
        TRY_OUT(mem_new(conf->members_count, sizeof *fragment->in, "slots", &fragment->in));
        TRY_OUT(mem_new(conf->members_count, sizeof *fragment->result, "slots", &fragment->result));
    }
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
        free_row(fragment->out, slots->conf.members_count);
        free_row(fragment->in, slots->conf.members_count);
        free_row(fragment->result, slots->conf.members_count);
        mem_free(fragment->own.data);
        mem_free(fragment->state);
    }
    mem_free(slots->fragments);
    mem_free(slots);
}

struct slot *slots_out(const struct slots *slots, uint32_t f, uint32_t shard)
{
    return &slots->fragments[f].out[shard];
}

struct slot *slots_in(const struct slots *slots, uint32_t f, uint32_t member)
{
    return &slots->fragments[f].in[member];
}

struct slot *slots_result(const struct slots *slots, uint32_t f, uint32_t shard)
{
    return &slots->fragments[f].result[shard];
}

struct slot *slots_own(const struct slots *slots, uint32_t f)
{
    return &slots->fragments[f].own;
}

enum err slots_room(struct slots *slots, struct slot *slot, uint32_t f, uint32_t shard)
{
    if (slot->data != NULL)
        return ERR_OK;
    size_t bytes =
        wire_object_bytes_max(replica_frame_bytes_max(slots->conf.replica, f, shard), slots->conf.members_count);
    TRY(mem_new(bytes, 1, "an encoded shard", &slot->data));
    slot->bytes_max = bytes;
    return ERR_OK;
}

enum err slots_take_state(struct slots *slots, uint32_t f, uint64_t bytes, uint8_t **out)
{
    struct fragment_slots *fragment = &slots->fragments[f];
    if (fragment->state == NULL)
        TRY(mem_new((size_t)bytes, 1, "a state on its way in", &fragment->state));
    *out = fragment->state;
    return ERR_OK;
}

uint8_t *slots_state(const struct slots *slots, uint32_t f)
{
    return slots->fragments[f].state;
}

void slots_free_state(struct slots *slots, uint32_t f)
{
    mem_free(slots->fragments[f].state);
    slots->fragments[f].state = NULL;
}
