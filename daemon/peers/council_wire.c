/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/council_wire.h"

#include <inttypes.h>
#include <string.h>

#include "common/log.h"
#include "net/membership/epoch_wire.h"

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
static void add_holdings(const struct council_wire *wire, struct wire_epoch *out)
{
    /* A disk that is not in doubt is the one that the record names: the first one of hand-written members, 0. */
    const struct view *view = wire->seats->view;
    bool sure = vote_doubt(wire->seats->vote) == VOTE_SURE;
    out->promise.incarnation = sure ? view->members[view->self].incarnation : vote_incarnation(wire->seats->vote);
    holdings_own(wire->holdings, wire->seats->sync, &out->promise.rows, &out->promise.rows_count);
}

void council_wire_out(const struct council_wire *wire, const struct epoch_message *from, struct wire_epoch *out)
{
    *out = epoch_wire_out(from);
    if (out->type == WIRE_PROMISE)
        add_holdings(wire, out);
    else if (out->type == WIRE_ACCEPTED)
        record_vote_sign(wire->ident, last(wire)->nonce, out->epoch, out->ballot, &from->digest,
                         out->accepted.signature);
}

/* ---- in ---- */

/* Whether the record follows ours: what it says is checked before it is accepted, or believed to be decided. */
static bool follows(const struct council_wire *wire, const struct epoch_message *message)
{
    struct record record;
    struct compose_base base = council_wire_base(wire);
    if (record_unpack(message->bytes, message->bytes_count, &record) != ERR_OK) {
        log_debug("a record is passed over: %s", err_text());
        return false;
    }
    enum err err = message->type == EPOCH_RECORD ? record_proved(last(wire), base.digest, &record, &message->digest,
                                                                 message->votes, message->votes_count)
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
    if (!epoch_wire_in(in, last(wire)->epoch, out))
        return false;
    if (out->type == EPOCH_ACCEPTED)
        *good = good_vote(wire, member, in);
    else if (epoch_wire_brings_record(out))
        *good = follows(wire, out);
    if (in->type == WIRE_PROMISE && out->epoch == last(wire)->epoch)
        holdings_answer(wire->holdings, wire->seats->sync, wire->seats->view->members[member].id, in);
    return *good || out->type != EPOCH_RECORD;
}
