#include "daemon/peers/council_wire.h"

#include <inttypes.h>
#include <string.h>

#include "common/log.h"

static const struct record *last(const struct council_wire *wire)
{
    return chain_last(wire->seats->chain);
}

struct compose_base council_wire_base(const struct council_wire *wire)
{
    return (struct compose_base){.record = last(wire),
                                 .digest = chain_last_digest(wire->seats->chain),
                                 .shards = wire->shards_counts,
                                 .fragments_count = wire->seats->fragments_count};
}

/* ---- out ---- */

/* What we hold, as it is now. */
static void add_holdings(const struct council_wire *wire, bool sealed, struct wire_epoch *out)
{
    /* A disk that is not in doubt is the one that the record names: the first one of hand-written members, 0. */
    const struct view *view = wire->seats->view;
    bool sure = vote_doubt(wire->seats->vote) == VOTE_SURE;
    out->promise.incarnation = sure ? view->members[view->self].incarnation : vote_incarnation(wire->seats->vote);
    out->promise.sealed = sealed;
    holdings_own(wire->holdings, wire->seats->sync, &out->promise.rows, &out->promise.rows_count);
}

static void sign(const struct council_wire *wire, const struct epoch_message *from, struct wire_epoch *out)
{
    out->accepted.digest = from->digest;
    record_vote_sign(wire->ident, last(wire)->nonce, from->epoch + 1, from->ballot, &from->digest,
                     out->accepted.signature);
}

void council_wire_out(const struct council_wire *wire, const struct epoch_message *from, struct wire_epoch *out)
{
    static const enum wire_epoch_type types[EPOCH_MESSAGES] = {
        [EPOCH_PREPARE] = WIRE_PREPARE, [EPOCH_PROMISE] = WIRE_PROMISE, [EPOCH_HOLDINGS] = WIRE_PROMISE,
        [EPOCH_REJECT] = WIRE_REJECT,   [EPOCH_ACCEPT] = WIRE_ACCEPT,   [EPOCH_ACCEPTED] = WIRE_ACCEPTED,
        [EPOCH_RECORD] = WIRE_DECIDED,  [EPOCH_CHAIN] = WIRE_CHAIN,
    };
    *out = (struct wire_epoch){.type = types[from->type], .epoch = from->epoch + 1, .ballot = from->ballot};
    switch (from->type) {
    case EPOCH_PREPARE:
        out->prepare.draft = from->bytes;
        out->prepare.draft_bytes = from->bytes_count;
        out->prepare.recover = from->recover;
        break;
    case EPOCH_PROMISE:
        out->promise.accepted_ballot = from->accepted;
        out->promise.accepted = from->bytes;
        out->promise.accepted_bytes = from->bytes_count;
        add_holdings(wire, true, out);
        break;
    case EPOCH_HOLDINGS: add_holdings(wire, false, out); break;
    case EPOCH_ACCEPT:
        out->accept.record = from->bytes;
        out->accept.record_bytes = from->bytes_count;
        break;
    case EPOCH_ACCEPTED: sign(wire, from, out); break;
    case EPOCH_CHAIN: out->epoch = from->epoch; break;
    default: break;
    }
}

/* ---- in ---- */

/* Whether the record follows ours: what it says is checked before it is accepted, or believed to be decided. */
static bool follows(const struct council_wire *wire, const uint8_t *bytes, size_t bytes_count, struct digest *digest,
                    const struct record_vote *votes, uint32_t votes_count, bool proved)
{
    struct record record;
    struct compose_base base = council_wire_base(wire);
    *digest = record_digest(bytes, bytes_count);
    if (record_unpack(bytes, bytes_count, &record) != ERR_OK) {
        log_debug("a record is passed over: %s", err_text());
        return false;
    }
    enum err err = proved ? record_proved(last(wire), base.digest, &record, digest, votes, votes_count)
                          : compose_follows(&base, &record);
    if (err != ERR_OK)
        log_debug("record %" PRIu64 " is passed over: %s", record.epoch, err_text());
    record_deinit(&record);
    return err == ERR_OK;
}

static bool good_vote(const struct council_wire *wire, uint32_t member, const struct wire_epoch *message)
{
    struct record_vote vote = {.id = wire->seats->view->members[member].id, .ballot = message->ballot};
    memcpy(vote.signature, message->accepted.signature, sizeof vote.signature);
    return record_vote_good(wire->seats->view->members[member].key, last(wire)->nonce, message->epoch,
                            &message->accepted.digest, &vote);
}

bool council_wire_in(const struct council_wire *wire, uint32_t member, struct wire_epoch *in, struct epoch_message *out,
                     bool *good)
{
    *good = true;
    *out = (struct epoch_message){.epoch = in->epoch - 1, .ballot = in->ballot};
    switch (in->type) {
    case WIRE_PREPARE:
        out->type = EPOCH_PREPARE;
        out->bytes = in->prepare.draft;
        out->bytes_count = in->prepare.draft_bytes;
        out->recover = in->prepare.recover;
        return true;
    case WIRE_PROMISE:
        out->type = in->promise.sealed ? EPOCH_PROMISE : EPOCH_HOLDINGS;
        out->accepted = in->promise.accepted_ballot;
        out->bytes = in->promise.accepted;
        out->bytes_count = in->promise.accepted_bytes;
        if (out->bytes_count > 0)
            *good = follows(wire, out->bytes, out->bytes_count, &out->digest, NULL, 0, false);
        if (out->epoch == last(wire)->epoch)
            holdings_answer(wire->holdings, wire->seats->view->members[member].id, in);
        return true;
    case WIRE_REJECT: out->type = EPOCH_REJECT; return true;
    case WIRE_ACCEPT:
        out->type = EPOCH_ACCEPT;
        out->bytes = in->accept.record;
        out->bytes_count = in->accept.record_bytes;
        *good = follows(wire, out->bytes, out->bytes_count, &out->digest, NULL, 0, false);
        return true;
    case WIRE_ACCEPTED:
        out->type = EPOCH_ACCEPTED;
        out->digest = in->accepted.digest;
        memcpy(out->signature, in->accepted.signature, sizeof out->signature);
        *good = good_vote(wire, member, in);
        return true;
    case WIRE_DECIDED:
        out->type = EPOCH_RECORD;
        out->bytes = in->decided.record;
        out->bytes_count = in->decided.record_bytes;
        out->votes = in->decided.votes;
        out->votes_count = in->decided.votes_count;
        out->epoch = last(wire)->epoch;
        *good = follows(wire, out->bytes, out->bytes_count, &out->digest, out->votes, out->votes_count, true);
        return *good;
    case WIRE_CHAIN:
        out->type = EPOCH_CHAIN;
        out->epoch = in->epoch;
        return true;
    default: return false;
    }
}
