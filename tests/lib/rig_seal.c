/* SPDX-License-Identifier: Apache-2.0 */
/* Of rig.h: objects as others would seal them, and as they would not. */
#include "tests/lib/rig.h"

#include <string.h>

#include "common/bytes.h"
#include "daemon/rules.h"
#include "daemon/state/state_object.h"
#include "tests/lib/mend.h"
#include "tests/lib/roster.h"

/* Where a state says how many rows its certificate has (docs/FORMATS.md, 5). */
enum { STATE_CERTIFICATE = 72 };

uint32_t rig_id(uint32_t member)
{
    return roster_id(member);
}

const struct ident *rig_ident(uint32_t member)
{
    static struct ident idents[RIG_MEMBERS_MAX];
    if (idents[member].public_text[0] == '\0')
        assert_ok(ident_generate(&idents[member]));
    return &idents[member];
}

void rig_seal(const struct rig *rig, const struct wire_key *key, const struct wire_meta *meta, const float *values,
              size_t count, struct rig_object *out)
{
    struct codec *codec;
    size_t frame_bytes, fault;
    struct version_part of;
    struct digest digest;
    struct codec_part part = {.count = count, .choice = rules_codec(&rig->spec)};
    struct vec_source source = {.minuend = values};
    assert_true(parts_find(&rig->parts, key->fragment, key->version, key->epoch, key->owner, &of) < VERSION_PARTS_MAX);
    assert_true(wire_object_bytes_max(codec_frame_bytes_max(&part, 1), of.shards, RIG_MEMBERS_MAX) <= sizeof out->byte);
    assert_ok(codec_new(0, &codec));
    assert_ok(codec_encode(codec, &part, 1, &source, NULL, wire_object_frame(out->byte), &frame_bytes, &fault));
    codec_free(codec);
    struct wire_object what = {.key = *key, .shards = of.shards};
    memcpy(what.nonce, rig->spec.digest.byte, sizeof what.nonce);
    const struct ident *ident = key->kind == WIRE_RESULT ? rig_ident(roster_number(key->owner)) : NULL;
    out->key = *key;
    assert_ok(wire_object_seal(&what, meta, ident, out->byte, frame_bytes, &out->bytes, &digest));
}

void rig_open_object(const struct rig_object *object, struct wire_object *what, struct wire_meta *meta)
{
    const uint8_t *frame;
    size_t frame_bytes;
    assert_ok(wire_object_open(object->byte, object->bytes, what, meta, &frame, &frame_bytes));
}

void rig_seal_again(struct rig_object *object, const struct wire_object *what, const struct wire_meta *meta)
{
    static uint8_t contributors[RIG_MEMBERS_MAX * WIRE_CONTRIBUTOR_BYTES];
    struct wire_object was;
    struct wire_meta moved = *meta, old;
    const uint8_t *frame;
    size_t frame_bytes;
    struct digest digest;
    assert_ok(wire_object_open(object->byte, object->bytes, &was, &old, &frame, &frame_bytes));
    if (meta->contributors_count > 0)
        memcpy(contributors, meta->contributors, (size_t)meta->contributors_count * WIRE_CONTRIBUTOR_BYTES);
    moved.contributors = contributors;
    const struct ident *ident = what->key.kind == WIRE_RESULT ? rig_ident(roster_number(object->key.owner)) : NULL;
    assert_ok(wire_object_seal(what, &moved, ident, object->byte, frame_bytes, &object->bytes, &digest));
}

void rig_spoil(struct rig_object *object)
{
    enum { NO_CODEC = 99 };
    struct wire_object what;
    struct wire_meta meta;
    const uint8_t *inside;
    size_t frame_bytes;
    assert_ok(wire_object_open(object->byte, object->bytes, &what, &meta, &inside, &frame_bytes));
    uint8_t *frame = wire_object_frame(object->byte);
    frame[CODEC_HEADER_BYTES] = NO_CODEC;
    mend_object(object->byte, object->bytes); /* that of the frame, too */
    rig_seal_again(object, &what, &meta);
}

void rig_append(const struct rig *rig, const struct rig_object *object)
{
    struct wire_object what;
    assert_ok(wire_object_peek(object->byte, object->bytes, &what));
    struct result_id key = wire_object_result(&what);
    assert_ok(ledger_append(rig->ledger, &key, object->byte, object->bytes));
}

bool rig_find(const struct rig *rig, uint32_t f, uint64_t version, uint32_t owner, struct result_id *key)
{
    struct result_id like = {.fragment = f, .owner = rig_id(owner), .version = version, .epoch = rig->view.epoch};
    return results_find(rig->ledger, &like, key);
}

void rig_commit(const struct rig *rig, uint32_t f, uint64_t version)
{
    struct result_id keys[LEDGER_RESULTS_MAX];
    struct ledger_commit commit = {.fragment = f, .version = version};
    size_t count = ledger_list(rig->ledger, f, version, keys, LEDGER_RESULTS_MAX);
    assert_in_range(count, 1, LEDGER_PARTS_MAX);
    for (size_t i = 0; i < count; i++)
        commit.parts[commit.parts_count++] = keys[i];
    assert_ok(ledger_append_commit(rig->ledger, &commit, false));
}

bool rig_has(const struct rig *rig, uint32_t f, uint64_t version, uint32_t owner)
{
    struct result_id key;
    return rig_find(rig, f, version, owner, &key);
}

void rig_certify(const struct rig *rig, const struct digest *hash, const struct bitset *members,
                 struct rig_object *object)
{
    const struct certificate_subject subject = {.nonce = rig->spec.digest.byte,
                                                .fragment = object->key.fragment,
                                                .version = object->key.version,
                                                .hash = *hash};
    struct certificate certificate = {.count = 0};
    struct bytes_reader there = bytes_reader_init(object->byte + STATE_CERTIFICATE, sizeof(uint64_t));
    object->bytes -= certificate_bytes((uint32_t)bytes_get_u64(&there));
    for (uint32_t i = 0; i < rig->conf.members; i++) {
        if (!bitset_has(members, i))
            continue;
        struct certificate_row *row = &certificate.rows[certificate.count++];
        row->id = rig_id(i);
        certificate_row_sign(rig_ident(i), &subject, row->signature);
    }
    assert_true(object->bytes + certificate_bytes(certificate.count) <= sizeof object->byte);
    state_object_certify(object->byte, object->bytes, &certificate);
    object->bytes += certificate_bytes(certificate.count);
}
