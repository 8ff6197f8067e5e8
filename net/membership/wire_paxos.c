/* SPDX-License-Identifier: Apache-2.0 */
#include "net/membership/wire_paxos.h"

#include <inttypes.h>
#include <string.h>

#include "common/mem.h"
#include "net/config/config_proof.h"
#include "net/membership/evidence.h"
#include "net/config/config_proto.h"

void wire_paxos_deinit(struct paxos_message *message)
{
    for (size_t i = 0; i < sizeof message->memory / sizeof message->memory[0]; i++)
        mem_free(message->memory[i]);
    memset(message, 0, sizeof *message);
}

/* ---- pack ---- */

static enum err pack_out(const ProtobufCMessage *proto, uint8_t **bytes, size_t *bytes_count)
{
    *bytes_count = protobuf_c_message_get_packed_size(proto);
    if (*bytes_count > WIRE_PAXOS_BYTES_MAX)
        return err_set(ERR_ARG, "a message of the epoch protocol of %zu bytes, more than %d", *bytes_count,
                       WIRE_PAXOS_BYTES_MAX);
    TRY(mem_new(*bytes_count, 1, "a packed message", bytes));
    protobuf_c_message_pack(proto, *bytes);
    return ERR_OK;
}

static enum err pack_prepare(const struct paxos_message *message, uint8_t **bytes, size_t *bytes_count)
{
    Diloco__Prepare proto = DILOCO__PREPARE__INIT;
    proto.epoch = message->epoch;
    proto.ballot = message->ballot;
    proto.recover = message->recover;
    proto.draft = config_bytes_to_proto(message->bytes, message->bytes_count);
    return pack_out(&proto.base, bytes, bytes_count);
}

/* What lies beside a promise's own arrays while it is packed. */
struct promise_rows {
    Diloco__HeldFragment rows[CONFIG_FRAGMENTS_MAX], *rows_at[CONFIG_FRAGMENTS_MAX];
    Diloco__HeldResult held[WIRE_RESULTS_MAX], *held_at[WIRE_RESULTS_MAX];
    Diloco__ConfigEndorsement endorsements[WIRE_ENDORSEMENTS_MAX], *endorsements_at[WIRE_ENDORSEMENTS_MAX];
};

static enum err held_to_proto(const struct part_result *from, uint32_t count, struct promise_rows *to,
                              uint32_t *held_count)
{
    if (count > WIRE_RESULTS_MAX - *held_count)
        return err_set(ERR_ARG, "a promise with more than %d results", WIRE_RESULTS_MAX);
    for (uint32_t k = 0; k < count; k++, ++*held_count) {
        Diloco__HeldResult *held = &to->held[*held_count];
        diloco__held_result__init(held);
        to->held_at[*held_count] = held;
        held->owner = from[k].id.owner;
        held->epoch = from[k].id.epoch;
        held->shards = from[k].shards;
        held->digest = config_bytes_to_proto(from[k].id.digest.byte, DIGEST_BYTES);
    }
    return ERR_OK;
}

static enum err rows_to_proto(const struct paxos_message *message, struct promise_rows *to)
{
    uint32_t held_count = 0;
    for (uint32_t i = 0; i < message->rows_count; i++) {
        const struct holding *row = &message->rows[i];
        diloco__held_fragment__init(&to->rows[i]);
        to->rows_at[i] = &to->rows[i];
        to->rows[i].fragment = row->fragment;
        to->rows[i].version = row->version;
        to->rows[i].hash = config_bytes_to_proto(row->hash.byte, row->hash_known ? DIGEST_BYTES : 0);
        to->rows[i].reach = row->reach;
        to->rows[i].n_held = row->held_count;
        to->rows[i].held = to->held_at + held_count;
        TRY(held_to_proto(row->held, row->held_count, to, &held_count));
        to->rows[i].n_beyond = row->beyond_count;
        to->rows[i].beyond = to->held_at + held_count;
        TRY(held_to_proto(row->beyond, row->beyond_count, to, &held_count));
    }
    return ERR_OK;
}

static enum err pack_promise(const struct paxos_message *message, uint8_t **bytes, size_t *bytes_count)
{
    struct promise_rows *rows;
    Diloco__Promise proto = DILOCO__PROMISE__INIT;
    if (message->rows_count > CONFIG_FRAGMENTS_MAX || message->endorsements_count > WIRE_ENDORSEMENTS_MAX)
        return err_set(ERR_ARG, "a promise with %" PRIu32 " fragments and %" PRIu32 " endorsements",
                       message->rows_count, message->endorsements_count);
    TRY(mem_new_unset(1, sizeof *rows, "a message being packed", &rows));
    enum err err = rows_to_proto(message, rows);
    proto.epoch = message->epoch;
    proto.ballot = message->ballot;
    proto.accepted_ballot = message->accepted;
    proto.accepted = config_bytes_to_proto(message->bytes, message->bytes_count);
    proto.incarnation = message->incarnation;
    proto.sealed = message->sealed;
    for (uint32_t i = 0; i < message->endorsements_count; i++) {
        config_endorsement_to_proto(&message->endorsements[i], &rows->endorsements[i]);
        rows->endorsements[i].signer = 0;
        rows->endorsements_at[i] = &rows->endorsements[i];
    }
    proto.n_endorsements = message->endorsements_count;
    proto.endorsements = rows->endorsements_at;
    proto.step = message->step;
    proto.n_rows = message->rows_count;
    proto.rows = rows->rows_at;
    if (err == ERR_OK)
        err = pack_out(&proto.base, bytes, bytes_count);
    mem_free(rows);
    return err;
}

static enum err pack_decided(const struct paxos_message *message, uint8_t **bytes, size_t *bytes_count)
{
    Diloco__Decided proto = DILOCO__DECIDED__INIT;
    Diloco__ConfigVote votes[CONFIG_VOTERS_MAX], *votes_at[CONFIG_VOTERS_MAX];
    if (message->votes_count > CONFIG_VOTERS_MAX)
        return err_set(ERR_ARG, "a configuration with %" PRIu32 " votes", message->votes_count);
    for (uint32_t i = 0; i < message->votes_count; i++) {
        config_vote_to_proto(&message->votes[i], &votes[i]);
        votes_at[i] = &votes[i];
    }
    proto.config = config_bytes_to_proto(message->bytes, message->bytes_count);
    proto.n_votes = message->votes_count;
    proto.votes = votes_at;
    return pack_out(&proto.base, bytes, bytes_count);
}

static enum err pack_ballot(const struct paxos_message *message, uint8_t **bytes, size_t *bytes_count)
{
    Diloco__Reject reject = DILOCO__REJECT__INIT;
    Diloco__Accept accept = DILOCO__ACCEPT__INIT;
    Diloco__Accepted accepted = DILOCO__ACCEPTED__INIT;
    reject.epoch = accept.epoch = accepted.epoch = message->epoch;
    reject.ballot = accept.ballot = accepted.ballot = message->ballot;
    if (message->type == WIRE_REJECT)
        return pack_out(&reject.base, bytes, bytes_count);
    if (message->type == WIRE_ACCEPT) {
        accept.config = config_bytes_to_proto(message->bytes, message->bytes_count);
        return pack_out(&accept.base, bytes, bytes_count);
    }
    accepted.digest = config_bytes_to_proto(message->digest.byte, DIGEST_BYTES);
    accepted.signature = config_bytes_to_proto(message->signature, IDENT_SIGNATURE_BYTES);
    return pack_out(&accepted.base, bytes, bytes_count);
}

static enum err pack_order(const struct order *order, uint8_t **bytes, size_t *bytes_count)
{
    Diloco__OrderMessage proto = DILOCO__ORDER_MESSAGE__INIT;
    struct order_proto of;
    proto.order = order_to_proto(order, &of);
    return pack_out(&proto.base, bytes, bytes_count);
}

enum err wire_paxos_pack(const struct paxos_message *message, uint8_t **bytes, size_t *bytes_count)
{
    Diloco__ConfigLog config_log = DILOCO__CONFIG_LOG__INIT;
    Diloco__Evidence evidence = DILOCO__EVIDENCE__INIT;
    switch (message->type) {
    case WIRE_PREPARE: return pack_prepare(message, bytes, bytes_count);
    case WIRE_PROMISE: return pack_promise(message, bytes, bytes_count);
    case WIRE_REJECT:
    case WIRE_ACCEPT:
    case WIRE_ACCEPTED: return pack_ballot(message, bytes, bytes_count);
    case WIRE_DECIDED: return pack_decided(message, bytes, bytes_count);
    case WIRE_CONFIG_LOG: config_log.after = message->epoch; return pack_out(&config_log.base, bytes, bytes_count);
    case WIRE_ORDER: return pack_order(message->order, bytes, bytes_count);
    case WIRE_EVIDENCE:
        evidence.id = message->id;
        evidence.evidence = config_bytes_to_proto(message->bytes, message->bytes_count);
        return pack_out(&evidence.base, bytes, bytes_count);
    }
    return err_set(ERR_ARG, "message type %d is none of the epoch protocol", (int)message->type);
}

/* ---- unpack ---- */

/* Memory of the message, the `slot`-th of it. */
static enum err take(struct paxos_message *message, int slot, size_t count, size_t size, const char *what, void *out)
{
    void **memory = out;
    *memory = NULL;
    if (count == 0)
        return ERR_OK;
    TRY(mem_new(count, size, what, out));
    message->memory[slot] = *memory;
    return ERR_OK;
}

static enum err take_bytes(struct paxos_message *message, int slot, const ProtobufCBinaryData *proto, const char *what,
                           const uint8_t **bytes, size_t *bytes_count)
{
    uint8_t *copy;
    if (proto->len > CONFIG_BYTES_MAX)
        return err_set(ERR_PROTO, "%s of %zu bytes", what, proto->len);
    TRY(take(message, slot, proto->len, 1, what, &copy));
    if (proto->len > 0)
        memcpy(copy, proto->data, proto->len);
    *bytes = copy;
    *bytes_count = proto->len;
    return ERR_OK;
}

/* The same of a configuration, which is known by its digest. */
static enum err take_config(struct paxos_message *message, const ProtobufCBinaryData *proto, const char *what)
{
    TRY(take_bytes(message, 0, proto, what, &message->bytes, &message->bytes_count));
    if (message->bytes_count > 0)
        message->digest = config_digest(message->bytes, message->bytes_count);
    return ERR_OK;
}

static enum err take_ballot(uint64_t epoch, uint64_t ballot, struct paxos_message *message)
{
    message->epoch = epoch;
    message->ballot = ballot;
    if (epoch == 0 || epoch >= CONFIG_NUMBER_MAX || ballot == 0)
        return err_set(ERR_PROTO, "ballot %" PRIu64 " about epoch %" PRIu64, ballot, epoch);
    return ERR_OK;
}

static enum err take_prepare(const Diloco__Prepare *proto, struct paxos_message *message)
{
    TRY(take_ballot(proto->epoch, proto->ballot, message));
    message->recover = proto->recover;
    return take_bytes(message, 0, &proto->draft, "a draft", &message->bytes, &message->bytes_count);
}

/* Of a version of the fragment, before this epoch. */
static enum err take_held(Diloco__HeldResult *const *results, size_t count, uint32_t fragment, uint64_t version,
                          uint64_t epoch, struct part_result *held)
{
    for (size_t i = 0; i < count; i++) {
        const Diloco__HeldResult *from = results[i];
        held[i] = (struct part_result){
            .id = {.fragment = fragment, .owner = from->owner, .version = version, .epoch = from->epoch},
            .shards = from->shards};
        TRY(config_bytes_from_proto(&from->digest, "a held result's digest", held[i].id.digest.byte, DIGEST_BYTES));
        if (from->epoch >= epoch || from->shards == 0)
            return err_set(ERR_PROTO, "a result held of epoch %" PRIu64 " with shards %" PRIx64, from->epoch,
                           from->shards);
        if (i > 0 && result_id_order(&held[i - 1].id, &held[i].id) >= 0)
            return err_set(ERR_PROTO, "held results that are not in order of owner and epoch");
    }
    return ERR_OK;
}

static enum err take_row(const Diloco__HeldFragment *proto, uint64_t epoch, struct holding *row,
                         struct part_result *held)
{
    row->fragment = proto->fragment;
    row->version = proto->version;
    row->hash_known = proto->hash.len > 0;
    row->held = held;
    row->held_count = (uint32_t)proto->n_held;
    row->reach = proto->reach;
    row->beyond = proto->n_beyond > 0 ? held + proto->n_held : NULL;
    row->beyond_count = (uint32_t)proto->n_beyond;
    if (row->fragment >= CONFIG_FRAGMENTS_MAX || row->version >= CONFIG_NUMBER_MAX)
        return err_set(ERR_PROTO, "a promise with fragment %" PRIu32 ", version %" PRIu64, row->fragment, row->version);
    if (row->reach >= CONFIG_NUMBER_MAX || (row->reach != 0 && row->reach <= row->version) ||
        (row->reach == 0 && row->beyond_count > 0))
        return err_set(ERR_PROTO, "a promise that reaches version %" PRIu64 " from %" PRIu64, row->reach, row->version);
    if (row->hash_known)
        TRY(config_bytes_from_proto(&proto->hash, "a version's hash", row->hash.byte, DIGEST_BYTES));
    TRY(take_held(proto->held, proto->n_held, row->fragment, row->version + 1, epoch, held));
    if (proto->n_beyond == 0)
        return ERR_OK;
    return take_held(proto->beyond, proto->n_beyond, row->fragment, row->reach + 1, epoch, held + proto->n_held);
}

/* Whether its sender has signed them is net/membership/endorse.h's to see. */
static enum err take_endorsements(const Diloco__Promise *proto, struct paxos_message *message)
{
    struct config_endorsement *endorsements;
    if (proto->n_endorsements > WIRE_ENDORSEMENTS_MAX)
        return err_set(ERR_PROTO, "a promise with %zu endorsements", proto->n_endorsements);
    TRY(take(message, 3, proto->n_endorsements, sizeof *endorsements, "a promise's endorsements", &endorsements));
    message->endorsements = endorsements;
    message->endorsements_count = (uint32_t)proto->n_endorsements;
    for (size_t i = 0; i < proto->n_endorsements; i++) {
        TRY(config_endorsement_from_proto(proto->endorsements[i], &endorsements[i]));
        if (endorsements[i].signer != 0 ||
            (i > 0 && config_endorsement_order(&endorsements[i - 1], &endorsements[i]) >= 0))
            return err_set(ERR_PROTO, "a promise whose endorsements are not in order, or of somebody else");
    }
    return ERR_OK;
}

static enum err take_promise(const Diloco__Promise *proto, struct paxos_message *message)
{
    struct holding *rows;
    struct part_result *held;
    size_t held_count = 0;
    TRY(take_ballot(proto->epoch, proto->ballot, message));
    message->accepted = proto->accepted_ballot;
    message->incarnation = proto->incarnation;
    message->sealed = proto->sealed;
    message->step = proto->step;
    if (message->step >= CONFIG_NUMBER_MAX)
        return err_set(ERR_PROTO, "a promise with run step %" PRIu64, message->step);
    if (proto->accepted_ballot > proto->ballot || (proto->accepted_ballot > 0) != (proto->accepted.len > 0))
        return err_set(ERR_PROTO,
                       "a promise of ballot %" PRIu64 " with a configuration of %zu bytes, accepted in %" PRIu64,
                       proto->ballot, proto->accepted.len, proto->accepted_ballot);
    if (proto->n_rows > CONFIG_FRAGMENTS_MAX)
        return err_set(ERR_PROTO, "a promise with %zu fragments", proto->n_rows);
    for (size_t i = 0; i < proto->n_rows; i++)
        held_count += proto->rows[i]->n_held + proto->rows[i]->n_beyond;
    if (held_count > WIRE_RESULTS_MAX)
        return err_set(ERR_PROTO, "a promise with %zu results", held_count);
    TRY(take_config(message, &proto->accepted, "an accepted configuration"));
    TRY(take_endorsements(proto, message));
    TRY(take(message, 1, proto->n_rows, sizeof *rows, "a promise's fragments", &rows));
    TRY(take(message, 2, held_count, sizeof *held, "a promise's results", &held));
    message->rows = rows;
    message->rows_count = (uint32_t)proto->n_rows;
    for (size_t i = 0, at = 0; i < proto->n_rows; at += rows[i].held_count + rows[i].beyond_count, i++) {
        TRY(take_row(proto->rows[i], message->epoch, &rows[i], held_count > 0 ? held + at : NULL));
        if (i > 0 && rows[i].fragment <= rows[i - 1].fragment)
            return err_set(ERR_PROTO, "a promise whose fragments are not in order");
    }
    return ERR_OK;
}

static enum err take_accept(const Diloco__Accept *proto, struct paxos_message *message)
{
    TRY(take_ballot(proto->epoch, proto->ballot, message));
    if (proto->config.len == 0)
        return err_set(ERR_PROTO, "nothing to accept");
    return take_config(message, &proto->config, "a configuration to accept");
}

static enum err take_accepted(const Diloco__Accepted *proto, struct paxos_message *message)
{
    TRY(take_ballot(proto->epoch, proto->ballot, message));
    TRY(config_bytes_from_proto(&proto->digest, "an accepted configuration's digest", message->digest.byte,
                                DIGEST_BYTES));
    return config_bytes_from_proto(&proto->signature, "a vote's signature", message->signature, IDENT_SIGNATURE_BYTES);
}

static enum err take_decided(const Diloco__Decided *proto, struct paxos_message *message)
{
    struct config_vote *votes;
    if (proto->config.len == 0 || proto->n_votes > CONFIG_VOTERS_MAX)
        return err_set(ERR_PROTO, "a decided configuration of %zu bytes with %zu votes", proto->config.len,
                       proto->n_votes);
    TRY(take_config(message, &proto->config, "a decided configuration"));
    TRY(take(message, 1, proto->n_votes, sizeof *votes, "a configuration's votes", &votes));
    message->votes = votes;
    message->votes_count = (uint32_t)proto->n_votes;
    for (size_t i = 0; i < proto->n_votes; i++) {
        TRY(config_vote_from_proto(proto->votes[i], &votes[i]));
        if (votes[i].ballot == 0)
            return err_set(ERR_PROTO, "a vote in ballot 0");
    }
    return ERR_OK;
}

static enum err take_config_log(const Diloco__ConfigLog *proto, struct paxos_message *message)
{
    message->epoch = proto->after;
    if (proto->after >= CONFIG_NUMBER_MAX)
        return err_set(ERR_PROTO, "configurations after epoch %" PRIu64, proto->after);
    return ERR_OK;
}

static enum err take_order(const Diloco__OrderMessage *proto, struct paxos_message *message)
{
    struct order *order;
    if (proto->order == NULL)
        return err_set(ERR_PROTO, "an ORDER without one");
    TRY(take(message, 0, 1, sizeof *order, "an order", &order));
    message->order = order;
    return order_from_proto(proto->order, order);
}

static enum err take_evidence(const Diloco__Evidence *proto, struct paxos_message *message)
{
    message->id = proto->id;
    if (proto->evidence.len == 0 || proto->evidence.len > EVIDENCE_BYTES_MAX)
        return err_set(ERR_PROTO, "evidence of %zu bytes", proto->evidence.len);
    return take_bytes(message, 0, &proto->evidence, "evidence", &message->bytes, &message->bytes_count);
}

static enum err take_fields(const ProtobufCMessage *proto, struct paxos_message *message)
{
    switch (message->type) {
    case WIRE_PREPARE: return take_prepare((const Diloco__Prepare *)proto, message);
    case WIRE_PROMISE: return take_promise((const Diloco__Promise *)proto, message);
    case WIRE_REJECT: {
        const Diloco__Reject *reject = (const Diloco__Reject *)proto;
        return take_ballot(reject->epoch, reject->ballot, message);
    }
    case WIRE_ACCEPT: return take_accept((const Diloco__Accept *)proto, message);
    case WIRE_ACCEPTED: return take_accepted((const Diloco__Accepted *)proto, message);
    case WIRE_DECIDED: return take_decided((const Diloco__Decided *)proto, message);
    case WIRE_CONFIG_LOG: return take_config_log((const Diloco__ConfigLog *)proto, message);
    case WIRE_ORDER: return take_order((const Diloco__OrderMessage *)proto, message);
    default: return take_evidence((const Diloco__Evidence *)proto, message);
    }
}

enum err wire_paxos_unpack(uint32_t type, const void *payload, size_t bytes_count, struct paxos_message *message)
{
    static const struct {
        const ProtobufCMessageDescriptor *descriptor;
        const char *name;
    } types[] = {
        [WIRE_PREPARE - WIRE_PREPARE] = {&diloco__prepare__descriptor, "a PREPARE"},
        [WIRE_PROMISE - WIRE_PREPARE] = {&diloco__promise__descriptor, "a PROMISE"},
        [WIRE_REJECT - WIRE_PREPARE] = {&diloco__reject__descriptor, "a REJECT"},
        [WIRE_ACCEPT - WIRE_PREPARE] = {&diloco__accept__descriptor, "an ACCEPT"},
        [WIRE_ACCEPTED - WIRE_PREPARE] = {&diloco__accepted__descriptor, "an ACCEPTED"},
        [WIRE_DECIDED - WIRE_PREPARE] = {&diloco__decided__descriptor, "a DECIDED"},
        [WIRE_CONFIG_LOG - WIRE_PREPARE] = {&diloco__config_log__descriptor, "a CONFIG_LOG"},
        [WIRE_ORDER - WIRE_PREPARE] = {&diloco__order_message__descriptor, "an ORDER"},
        [WIRE_EVIDENCE - WIRE_PREPARE] = {&diloco__evidence__descriptor, "an EVIDENCE"},
    };
    ProtobufCMessage *proto;
    memset(message, 0, sizeof *message);
    if (!wire_is_epoch(type))
        return err_set(ERR_PROTO, "message type %" PRIu32 " is none of the epoch protocol", type);
    message->type = (enum wire_paxos_type)type;
    if (bytes_count > WIRE_PAXOS_BYTES_MAX)
        return err_set(ERR_PROTO, "%s of %zu bytes", types[type - WIRE_PREPARE].name, bytes_count);
    TRY(unpack_proto(types[type - WIRE_PREPARE].descriptor, types[type - WIRE_PREPARE].name, payload, bytes_count,
                     &proto));
    enum err err = take_fields(proto, message);
    unpack_free(proto);
    if (err != ERR_OK)
        wire_paxos_deinit(message);
    return err;
}
