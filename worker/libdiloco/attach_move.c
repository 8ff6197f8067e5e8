#include "worker/libdiloco/attach_move.h"

#include <math.h>
#include <string.h>

#include "common/ipc.h"
#include "common/mem.h"
#include "worker/libdiloco/aside.h"
#include "worker/libdiloco/attach_link.h"

/* ---- values ---- */

/* Values that are moved at a time: copies to and from a GPU should be long. */
enum { STRETCH = 1 << 18 };

static void read_tensor(const struct diloco *d, float *to, const void *tensor, size_t count)
{
    if (d->options.device.read != NULL)
        d->options.device.read(d->options.device.user, to, tensor, count);
    else
        memcpy(to, tensor, count * sizeof *to);
}

static void write_tensor(const struct diloco *d, void *tensor, const float *from, size_t count)
{
    if (d->options.device.write != NULL)
        d->options.device.write(d->options.device.user, tensor, from, count);
    else
        memcpy(tensor, from, count * sizeof *from);
}

static void mix_host(float *live, const float *anchor, const float *base, size_t count, enum diloco_mix mode,
                     double alpha)
{
    float keep = (float)alpha;
    float take = (float)(1 - alpha);
    if (mode == DILOCO_RESET) {
        memcpy(live, anchor, count * sizeof *live);
    } else if (mode == DILOCO_SHIFT) {
        for (size_t i = 0; i < count; i++)
            live[i] += anchor[i] - base[i];
    } else {
        for (size_t i = 0; i < count; i++)
            live[i] = keep * live[i] + take * anchor[i];
    }
}

static void mix_tensor(const struct diloco *d, void *live, const float *anchor, const float *base, size_t count,
                       enum diloco_mix mode)
{
    double alpha = d->shm->mix;
    if (mode == DILOCO_MIX && alpha == 0)
        mode = DILOCO_RESET; /* and an Inf in the old value cannot survive as 0 * Inf */
    if (d->options.device.mix != NULL)
        d->options.device.mix(d->options.device.user, live, anchor, base, count, mode, alpha);
    else
        mix_host(live, anchor, base, count, mode, alpha);
}

/* ---- the two moves of a fragment ---- */

/* Gives away a word that is ours. It is what we left there, unless somebody else writes into the memory. */
static int give_word(struct diloco *d, uint32_t f, enum ipc_word from, enum ipc_word to)
{
    struct ipc_fragment *fragment = ipc_fragment(d->shm, f);
    if (ipc_move(fragment, IPC_TRAINER, from, to))
        return DILOCO_OK;
    return attach_fail(d, DILOCO_ERROR,
                       "fragment %u: another process wrote %s over our %s in the shared memory; end it, and start this "
                       "trainer anew",
                       f, ipc_word_name(ipc_word(fragment)), ipc_word_name(from));
}

void attach_copy_out(struct diloco *d, uint32_t f, float *area)
{
    const struct ipc_place *places = ipc_places(d->shm);
    for (uint32_t i = 0; i < d->tensors_count; i++)
        if (places[i].fragment == f)
            read_tensor(d, area + places[i].offset, d->tensors[i].data, places[i].count);
}

void attach_copy_in(struct diloco *d, uint32_t f, const float *area)
{
    const struct ipc_place *places = ipc_places(d->shm);
    for (uint32_t i = 0; i < d->tensors_count; i++)
        if (places[i].fragment == f)
            write_tensor(d, d->tensors[i].data, area + places[i].offset, places[i].count);
}

static struct aside_rule aside_rule(const struct diloco *d)
{
    return (struct aside_rule){.keep = (float)d->shm->mix,
                               .fresh = (float)d->shm->eager_fresh,
                               .past = (float)d->shm->eager_past,
                               .decay = (float)d->shm->eager_decay};
}

enum err attach_make_aside(struct diloco *d)
{
    if (d->shm->set_aside != 0)
        TRY(mem_new(STRETCH, sizeof(float), "work set aside", &d->stretch));
    for (uint32_t f = 0; d->shm->set_aside != 0 && f < d->shm->fragments_count; f++) {
        size_t count = (size_t)ipc_fragment(d->shm, f)->values_count;
        TRY(mem_new(count, sizeof(float), "work set aside", &d->local[f].aside));
        if (d->shm->eager_fresh != 0)
            TRY(mem_new(count, sizeof(float), "work of earlier rounds", &d->local[f].past));
    }
    return ERR_OK;
}

void attach_free_aside(struct diloco *d)
{
    for (uint32_t f = 0; d->local != NULL && f < d->shm->fragments_count; f++) {
        mem_free(d->local[f].aside);
        mem_free(d->local[f].past);
    }
    mem_free(d->stretch);
}

enum aside_move { ASIDE_OUT, ASIDE_COUNTED, ASIDE_MISSED, ASIDE_BACK, ASIDE_DROP };

/* Moves the values of a tensor that begin at `from` in the fragment. */
static void move_stretch(struct diloco *d, uint32_t f, float *tensor, uint64_t from, size_t count, enum aside_move move)
{
    struct ipc_fragment *fragment = ipc_fragment(d->shm, f);
    const float *area = ipc_area(d->shm, fragment) + from; /* ASIDE_OUT: the snapshot; later the anchor */
    const float *base = ipc_base(d->shm, fragment) + from;
    const struct aside_rule rule = aside_rule(d);
    float *aside = d->local[f].aside + from, *live = d->stretch;
    float *past = d->local[f].past != NULL ? d->local[f].past + from : NULL;
    if (move == ASIDE_OUT)
        memcpy(live, area, count * sizeof *live);
    else
        read_tensor(d, live, tensor, count);
    switch (move) {
    case ASIDE_OUT: aside_out(&rule, live, base, aside, past, count); break;
    case ASIDE_COUNTED:
    case ASIDE_MISSED: aside_in(&rule, live, base, area, aside, past, move == ASIDE_COUNTED, count); break;
    case ASIDE_BACK:
    case ASIDE_DROP: aside_off(&rule, live, aside, past, move == ASIDE_BACK, count); break;
    }
    write_tensor(d, tensor, live, count);
}

/* All values of a fragment from `begin` to before `end`. */
static void move_aside(struct diloco *d, uint32_t f, uint64_t begin, uint64_t end, enum aside_move move)
{
    const struct ipc_place *places = ipc_places(d->shm);
    for (uint32_t i = 0; i < d->tensors_count; i++) {
        uint64_t from = begin > places[i].offset ? begin : places[i].offset;
        uint64_t to = places[i].offset + places[i].count;
        to = to < end ? to : end;
        for (; places[i].fragment == f && from < to; from += STRETCH)
            move_stretch(d, f, (float *)d->tensors[i].data + (from - places[i].offset), from,
                         to - from < STRETCH ? (size_t)(to - from) : STRETCH, move);
    }
}

int attach_snapshot(struct diloco *d, uint32_t f, bool final)
{
    struct ipc_fragment *fragment = ipc_fragment(d->shm, f);
    if (!ipc_move(fragment, IPC_TRAINER, IPC_FREE, IPC_COPYING))
        return DILOCO_OK;
    attach_copy_out(d, f, ipc_area(d->shm, fragment));
    if (d->shm->set_aside != 0)
        move_aside(d, f, 0, UINT64_MAX, ASIDE_OUT);
    fragment->snapshot_step = d->step;
    fragment->snapshot_tokens = d->tokens;
    fragment->snapshot_final = final;
    fragment->mix_step = final ? d->step : d->step + d->shm->overlap;
    int result = give_word(d, f, IPC_COPYING, IPC_SNAPSHOT);
    if (result != DILOCO_OK)
        return result;
    d->local[f].sent = true;
    d->local[f].last = d->leave;
    attach_say(d, IPC_TAKEN, f);
    return DILOCO_OK;
}

static void mix_range(struct diloco *d, uint32_t f, const struct ipc_range *range, enum diloco_mix mode)
{
    struct ipc_fragment *fragment = ipc_fragment(d->shm, f);
    const struct ipc_place *places = ipc_places(d->shm);
    const float *anchor = ipc_area(d->shm, fragment);
    const float *base = ipc_base(d->shm, fragment);
    for (uint32_t i = 0; i < d->tensors_count; i++) {
        const struct ipc_place *place = &places[i];
        uint64_t begin = range->begin > place->offset ? range->begin : place->offset;
        uint64_t end = place->offset + place->count;
        end = range->end < end ? range->end : end;
        if (place->fragment != f || begin >= end)
            continue;
        mix_tensor(d, (float *)d->tensors[i].data + (begin - place->offset), anchor + begin, base + begin,
                   (size_t)(end - begin), mode);
    }
}

int attach_take_in(struct diloco *d, uint32_t f, bool ending)
{
    struct ipc_fragment *fragment = ipc_fragment(d->shm, f);
    if (!ipc_move(fragment, IPC_TRAINER, IPC_ANCHOR, IPC_MIXING))
        return DILOCO_OK;
    bool counted = false;
    bool missed = false;
    for (uint32_t r = 0; r < fragment->ranges_count && r < IPC_RANGES_MAX; r++) {
        const struct ipc_range *range = &fragment->ranges[r];
        enum diloco_mix mode = range->mode == IPC_SHIFT             ? DILOCO_SHIFT
                               : range->mode == IPC_RESET || ending ? DILOCO_RESET
                                                                    : DILOCO_MIX;
        if (d->shm->set_aside != 0 && d->local[f].sent && mode != DILOCO_RESET)
            move_aside(d, f, range->begin, range->end, mode == DILOCO_MIX ? ASIDE_COUNTED : ASIDE_MISSED);
        else
            mix_range(d, f, range, mode);
        if (range->mode == IPC_SHIFT)
            missed = true;
        else
            counted = true;
    }
    if (counted && !missed)
        d->local[f].tokens_counted = d->local[f].sent ? fragment->snapshot_tokens : d->tokens;
    d->local[f].sent = false;
    fragment->base ^= 1;
    fragment->base_version = fragment->anchor_version;
    int result = give_word(d, f, IPC_MIXING, IPC_FREE);
    if (result != DILOCO_OK)
        return result;
    attach_say(d, IPC_MIXED, f);
    return DILOCO_OK;
}

/* Whether what is set aside of a fragment holds no NaN. */
static bool aside_is_finite(const struct diloco *d, uint32_t f)
{
    uint64_t count = ipc_fragment(d->shm, f)->values_count;
    for (uint64_t i = 0; i < count; i++)
        if (!isfinite(d->local[f].aside[i]))
            return false;
    return true;
}

bool attach_released(struct diloco *d, uint32_t f)
{
    if (!d->local[f].sent || ipc_word(ipc_fragment(d->shm, f)) != IPC_FREE)
        return false;
    d->local[f].sent = false;
    if (d->shm->set_aside != 0)
        move_aside(d, f, 0, UINT64_MAX, aside_is_finite(d, f) ? ASIDE_BACK : ASIDE_DROP);
    return true;
}
