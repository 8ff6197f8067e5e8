/* SPDX-License-Identifier: Apache-2.0 */
#include "net/membership/epoch_wire.h"

#include <string.h>

struct wire_epoch epoch_wire_out(const struct epoch_message *from)
{
    static const enum wire_epoch_type types[EPOCH_MESSAGES] = {
        [EPOCH_PREPARE] = WIRE_PREPARE, [EPOCH_PROMISE] = WIRE_PROMISE, [EPOCH_HOLDINGS] = WIRE_PROMISE,
        [EPOCH_REJECT] = WIRE_REJECT,   [EPOCH_ACCEPT] = WIRE_ACCEPT,   [EPOCH_ACCEPTED] = WIRE_ACCEPTED,
        [EPOCH_CHAIN] = WIRE_CHAIN,
    };
    struct wire_epoch out = {.type = types[from->type], .epoch = from->epoch + 1, .ballot = from->ballot};
    switch (from->type) {
    case EPOCH_PREPARE:
        out.prepare.draft = from->bytes;
        out.prepare.draft_bytes = from->bytes_count;
        out.prepare.recover = from->recover;
        break;
    case EPOCH_PROMISE:
        out.promise.accepted_ballot = from->accepted;
        out.promise.accepted = from->bytes;
        out.promise.accepted_bytes = from->bytes_count;
        out.promise.sealed = true;
        break;
    case EPOCH_ACCEPT:
        out.accept.record = from->bytes;
        out.accept.record_bytes = from->bytes_count;
        break;
    case EPOCH_ACCEPTED: out.accepted.digest = from->digest; break;
    case EPOCH_CHAIN: out.epoch = from->epoch; break;
    default: break;
    }
    return out;
}

static void take_record(struct epoch_message *out, const uint8_t *bytes, size_t bytes_count)
{
    out->bytes = bytes;
    out->bytes_count = bytes_count;
    if (bytes_count > 0)
        out->digest = record_digest(bytes, bytes_count);
}

bool epoch_wire_in(const struct wire_epoch *from, uint64_t last, struct epoch_message *out)
{
    *out = (struct epoch_message){.epoch = from->epoch - 1, .ballot = from->ballot};
    switch (from->type) {
    case WIRE_PREPARE:
        out->type = EPOCH_PREPARE;
        out->bytes = from->prepare.draft;
        out->bytes_count = from->prepare.draft_bytes;
        out->recover = from->prepare.recover;
        return true;
    case WIRE_PROMISE:
        out->type = from->promise.sealed ? EPOCH_PROMISE : EPOCH_HOLDINGS;
        out->accepted = from->promise.accepted_ballot;
        take_record(out, from->promise.accepted, from->promise.accepted_bytes);
        return true;
    case WIRE_REJECT: out->type = EPOCH_REJECT; return true;
    case WIRE_ACCEPT:
        out->type = EPOCH_ACCEPT;
        take_record(out, from->accept.record, from->accept.record_bytes);
        return true;
    case WIRE_ACCEPTED:
        out->type = EPOCH_ACCEPTED;
        out->digest = from->accepted.digest;
        memcpy(out->signature, from->accepted.signature, sizeof out->signature);
        return true;
    case WIRE_DECIDED:
        out->type = EPOCH_RECORD;
        out->epoch = last;
        out->votes = from->decided.votes;
        out->votes_count = from->decided.votes_count;
        take_record(out, from->decided.record, from->decided.record_bytes);
        return true;
    case WIRE_CHAIN:
        out->type = EPOCH_CHAIN;
        out->epoch = from->epoch;
        return true;
    default: return false;
    }
}

bool epoch_wire_brings_record(const struct epoch_message *message)
{
    switch (message->type) {
    case EPOCH_ACCEPT:
    case EPOCH_RECORD: return true;
    case EPOCH_PROMISE:
    case EPOCH_HOLDINGS: return message->bytes_count > 0;
    default: return false;
    }
}
