/* SPDX-License-Identifier: Apache-2.0 */
/* Of rig.h: what was posted and ordered, and what the rig holds. */
#include "tests/lib/rig.h"

#include "tests/lib/roster.h"
#include "tests/lib/shares.h"

/* ---- what was posted and ordered ---- */

void rig_forget(struct rig *rig)
{
    rig->posted_count = rig->ordered_count = 0;
}

const struct event *rig_posted(const struct rig *rig, enum event_type type, uint32_t f)
{
    for (size_t i = rig->posted_count; i-- > 0;)
        if (rig->posted[i].type == type && rig->posted[i].fragment == f)
            return &rig->posted[i];
    return NULL;
}

const struct event *rig_told(const struct rig *rig, enum sync_event_type type, uint32_t f)
{
    for (size_t i = rig->posted_count; i-- > 0;)
        if (rig->posted[i].type == EVENT_SYNC && rig->posted[i].sync.type == type && rig->posted[i].fragment == f)
            return &rig->posted[i];
    return NULL;
}

size_t rig_posted_count(const struct rig *rig, enum event_type type)
{
    size_t count = 0;
    for (size_t i = 0; i < rig->posted_count; i++)
        count += rig->posted[i].type == type;
    return count;
}

size_t rig_told_count(const struct rig *rig, enum sync_event_type type)
{
    size_t count = 0;
    for (size_t i = 0; i < rig->posted_count; i++)
        count += rig->posted[i].type == EVENT_SYNC && rig->posted[i].sync.type == type;
    return count;
}

const struct sync_action *rig_ordered(const struct rig *rig, enum sync_action_type type, uint32_t f)
{
    for (size_t i = rig->ordered_count; i-- > 0;)
        if (rig->ordered[i].type == type && rig->ordered[i].fragment == f)
            return &rig->ordered[i];
    return NULL;
}

size_t rig_ordered_count(const struct rig *rig, enum sync_action_type type)
{
    size_t count = 0;
    for (size_t i = 0; i < rig->ordered_count; i++)
        count += rig->ordered[i].type == type;
    return count;
}

/* ---- looking in ---- */

size_t rig_values(const struct rig *rig, uint32_t f)
{
    return (size_t)rig->plan->plan->fragments[f].values_count;
}

struct plan_shard rig_shard(const struct rig *rig, uint32_t f, uint32_t shard)
{
    return shares_run(&rig->parts, f, shard);
}

void rig_decode(const uint8_t *frame, size_t frame_bytes, float *values, size_t count)
{
    struct codec *codec;
    assert_ok(codec_check(frame, frame_bytes, count));
    assert_ok(codec_new(0, &codec));
    assert_ok(codec_decode(codec, frame, frame_bytes, values, count));
    codec_free(codec);
}

const uint8_t *rig_open_slot(const struct slot *slot, uint32_t kind, struct wire_meta *meta, size_t *frame_bytes)
{
    const uint8_t *frame;
    struct wire_object what;
    assert_false(slot->busy);
    assert_ok(wire_object_open(slot->data, slot->bytes, &what, meta, &frame, frame_bytes));
    assert_int_equal(what.key.kind, kind);
    return frame;
}

struct bitset rig_set(const uint32_t *numbers, size_t count)
{
    struct bitset set = {{0}};
    for (size_t i = 0; i < count; i++)
        bitset_add(&set, numbers[i]);
    return set;
}

void rig_assert_set(const struct bitset *set, struct bitset want)
{
    for (uint32_t i = 0; i < WIRE_MEMBERS_MAX; i++)
        if (bitset_has(set, i) != bitset_has(&want, i))
            fail_msg("%u is %s the set", i, bitset_has(set, i) ? "in" : "not in");
}

void rig_assert_held(const struct rig *rig, uint32_t f, struct bitset want)
{
    const struct version_part *parts;
    uint32_t count = sync_parts(rig->sync, f, &parts);
    struct bitset held = {{0}};
    struct digest digest;
    bool acknowledged;
    for (uint32_t p = 0; p < count; p++)
        if (parts[p].id.epoch == rig->view.epoch && sync_held(rig->sync, f, p, &digest, &acknowledged))
            bitset_add(&held, roster_number(parts[p].id.owner));
    rig_assert_set(&held, want);
}

bool rig_all_zero(const float *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (values[i] != 0)
            return false;
    return true;
}

struct digest rig_hash(const struct rig *rig, uint32_t f, uint64_t version)
{
    struct digest hash;
    assert_ok(replica_hash(rig->replica, f, version, rounds_state(rig->rounds, f)->step, &hash));
    return hash;
}
