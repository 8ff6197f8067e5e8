/* SPDX-License-Identifier: Apache-2.0 */
#include "net/config/config_proto.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "common/mem.h"
#include "net/config/config_deal.h"
#include "net/config/config_proof.h"
#include "net/transport/wire.pb-c.h"

/* ---- bounded memory ---- */

/* What mem_new() may add to an allocation: the rest of a line, and the allocator's own words. */
enum { OVERHEAD_BYTES = MEM_ALIGN + 16 };

struct budget {
    size_t left;
    bool no_memory; /* rather than too much asked for */
};

static void *take(void *user, size_t bytes)
{
    struct budget *budget = user;
    void *memory;
    if (bytes > budget->left || OVERHEAD_BYTES > budget->left - bytes)
        return NULL;
    budget->left -= bytes + OVERHEAD_BYTES;
    if (mem_new(bytes, 1, "a message of the epoch protocol", &memory) != ERR_OK)
        budget->no_memory = true;
    return memory;
}

static void give_back(void *user, void *memory)
{
    (void)user;
    mem_free(memory);
}

enum err unpack_proto(const ProtobufCMessageDescriptor *descriptor, const char *what, const uint8_t *bytes,
                      size_t bytes_count, ProtobufCMessage **out)
{
    struct budget budget = {.left = UNPACK_BYTES_MAX};
    ProtobufCAllocator allocator = {.alloc = take, .free = give_back, .allocator_data = &budget};
    *out = protobuf_c_message_unpack(descriptor, &allocator, bytes_count, bytes);
    if (*out != NULL)
        return ERR_OK;
    if (budget.no_memory)
        return ERR_NOMEM; /* mem_new() has said so */
    return err_set(ERR_PROTO, "%s is damaged, or holds too much", what);
}

void unpack_free(ProtobufCMessage *proto)
{
    ProtobufCAllocator allocator = {.alloc = take, .free = give_back};
    if (proto != NULL)
        protobuf_c_message_free_unpacked(proto, &allocator);
}

/* ---- parts ---- */

ProtobufCBinaryData config_bytes_to_proto(const void *bytes, size_t bytes_count)
{
    return (ProtobufCBinaryData){.len = bytes_count, .data = (uint8_t *)(uintptr_t)bytes};
}

void config_carried_to_proto(const struct part_result *carried, Diloco__ConfigCarried *proto)
{
    diloco__config_carried__init(proto);
    proto->fragment = carried->id.fragment;
    proto->owner = carried->id.owner;
    proto->version = carried->id.version;
    proto->epoch = carried->id.epoch;
    proto->shards = carried->shards;
    proto->digest = config_bytes_to_proto(carried->id.digest.byte, DIGEST_BYTES);
}

void config_vote_to_proto(const struct config_vote *vote, Diloco__ConfigVote *proto)
{
    diloco__config_vote__init(proto);
    proto->id = vote->id;
    proto->ballot = vote->ballot;
    proto->signature = config_bytes_to_proto(vote->signature, IDENT_SIGNATURE_BYTES);
}

void config_endorsement_to_proto(const struct config_endorsement *endorsement, Diloco__ConfigEndorsement *proto)
{
    diloco__config_endorsement__init(proto);
    proto->member = endorsement->member;
    proto->says = endorsement->says;
    proto->incarnation = endorsement->incarnation;
    proto->signer = endorsement->signer;
    proto->signature = config_bytes_to_proto(endorsement->signature, IDENT_SIGNATURE_BYTES);
}

static void member_to_proto(const struct config_member *member, Diloco__ConfigMember *proto)
{
    diloco__config_member__init(proto);
    proto->id = member->id;
    proto->name = (char *)(uintptr_t)member->name;
    proto->key = config_bytes_to_proto(member->key, IDENT_KEY_BYTES);
    proto->address = (char *)(uintptr_t)member->address;
    proto->uplink = member->uplink;
    proto->incarnation = member->incarnation;
    proto->role = member->role;
    proto->owner_choice = member->owner_choice;
    proto->voter = member->voter;
    proto->losses = member->losses;
    proto->word = member->word;
    proto->draining = member->draining;
    proto->contributor = member->contributor;
    proto->operates = member->operates;
    proto->units = member->units;
    if (config_has_next(member))
        proto->next_key = config_bytes_to_proto(member->next_key, IDENT_KEY_BYTES);
}

enum err config_bytes_from_proto(const ProtobufCBinaryData *proto, const char *what, void *out, size_t out_bytes)
{
    if (proto->len != out_bytes)
        return err_set(ERR_PROTO, "%s of %zu bytes", what, proto->len);
    memcpy(out, proto->data, out_bytes);
    return ERR_OK;
}

enum err config_carried_from_proto(const Diloco__ConfigCarried *proto, struct part_result *carried)
{
    carried->id.fragment = proto->fragment;
    carried->id.owner = proto->owner;
    carried->id.version = proto->version;
    carried->id.epoch = proto->epoch;
    carried->shards = proto->shards;
    return config_bytes_from_proto(&proto->digest, "a carried result's digest", carried->id.digest.byte, DIGEST_BYTES);
}

enum err config_vote_from_proto(const Diloco__ConfigVote *proto, struct config_vote *vote)
{
    vote->id = proto->id;
    vote->ballot = proto->ballot;
    return config_bytes_from_proto(&proto->signature, "a vote's signature", vote->signature, IDENT_SIGNATURE_BYTES);
}

enum err config_endorsement_from_proto(const Diloco__ConfigEndorsement *proto, struct config_endorsement *endorsement)
{
    *endorsement = (struct config_endorsement){
        .member = proto->member, .says = proto->says, .incarnation = proto->incarnation, .signer = proto->signer};
    return config_bytes_from_proto(&proto->signature, "an endorsement's signature", endorsement->signature,
                                   IDENT_SIGNATURE_BYTES);
}

/* ---- orders ---- */

Diloco__Order *order_to_proto(const struct order *order, struct order_proto *to)
{
    Diloco__Order *proto = &to->order;
    diloco__order__init(proto);
    proto->kind = order->kind;
    proto->signer = order->signer;
    proto->number = order->number;
    proto->epoch = order->epoch;
    proto->subject = order->subject;
    proto->value = order->value;
    if (order->kind == ORDER_ADMIT) {
        wire_join_to_proto(&order->join, &to->word, &to->join);
        proto->join = &to->join;
    }
    if (order->kind == ORDER_REKEY)
        proto->key = config_bytes_to_proto(order->key, sizeof order->key);
    proto->signature = config_bytes_to_proto(order->signature, sizeof order->signature);
    for (uint32_t i = 0; i < order->approvals_count; i++) {
        diloco__order_approval__init(&to->approvals[i]);
        to->approvals[i].id = order->approvals[i].id;
        to->approvals[i].signature = config_bytes_to_proto(order->approvals[i].signature, IDENT_SIGNATURE_BYTES);
        to->approvals_at[i] = &to->approvals[i];
    }
    proto->n_approvals = order->approvals_count;
    proto->approvals = to->approvals_at;
    return proto;
}

enum err order_from_proto(const Diloco__Order *proto, struct order *order)
{
    *order = (struct order){.kind = proto->kind,
                            .signer = proto->signer,
                            .number = proto->number,
                            .epoch = proto->epoch,
                            .subject = proto->subject,
                            .value = proto->value};
    if ((proto->join != NULL) != (proto->kind == ORDER_ADMIT))
        return err_set(ERR_PROTO, "an order of kind %" PRIu32 " %s a newcomer", proto->kind,
                       proto->join != NULL ? "with" : "without");
    if (proto->join != NULL)
        TRY(wire_join_from_proto(proto->join, &order->join));
    if (proto->key.len > 0)
        TRY(config_bytes_from_proto(&proto->key, "an order's key", order->key, sizeof order->key));
    TRY(config_bytes_from_proto(&proto->signature, "an order's signature", order->signature, sizeof order->signature));
    if (proto->n_approvals > ORDER_APPROVALS_MAX)
        return err_set(ERR_PROTO, "an order with %zu approvals", proto->n_approvals);
    order->approvals_count = (uint32_t)proto->n_approvals;
    for (size_t i = 0; i < proto->n_approvals; i++) {
        order->approvals[i].id = proto->approvals[i]->id;
        TRY(config_bytes_from_proto(&proto->approvals[i]->signature, "an approval's signature",
                                    order->approvals[i].signature, IDENT_SIGNATURE_BYTES));
    }
    return order_check(order);
}

/* config_check() judges the text itself. */
static enum err text_from_proto(const char *text, const char *what, char *out, size_t out_bytes)
{
    size_t bytes = strlen(text);
    if (bytes >= out_bytes)
        return err_set(ERR_PROTO, "%s of %zu bytes", what, bytes);
    memcpy(out, text, bytes + 1);
    return ERR_OK;
}

static enum err member_from_proto(const Diloco__ConfigMember *proto, struct config_member *member)
{
    if (proto->role > UINT8_MAX || proto->owner_choice > UINT8_MAX || proto->losses > UINT8_MAX)
        return err_set(ERR_PROTO, "a member with role %" PRIu32 ", owner choice %" PRIu32 " and %" PRIu32 " losses",
                       proto->role, proto->owner_choice, proto->losses);
    member->id = proto->id;
    member->uplink = proto->uplink;
    member->incarnation = proto->incarnation;
    member->role = (uint8_t)proto->role;
    member->owner_choice = (uint8_t)proto->owner_choice;
    member->voter = proto->voter != 0;
    member->word = proto->word;
    member->draining = proto->draining != 0;
    member->contributor = proto->contributor != 0;
    member->operates = proto->operates != 0;
    member->units = proto->units;
    member->losses = (uint8_t)proto->losses;
    TRY(text_from_proto(proto->name, "a member's name", member->name, sizeof member->name));
    TRY(text_from_proto(proto->address, "a member's address", member->address, sizeof member->address));
    if (proto->next_key.len > 0)
        TRY(config_bytes_from_proto(&proto->next_key, "a member's new key", member->next_key, IDENT_KEY_BYTES));
    return config_bytes_from_proto(&proto->key, "a member's key", member->key, IDENT_KEY_BYTES);
}

/* ---- pack ---- */

/* What lies beside a configuration's own arrays while it is packed. */
struct rows {
    Diloco__ConfigMember members[CONFIG_MEMBERS_MAX], *members_at[CONFIG_MEMBERS_MAX];
    Diloco__ConfigCarried carried[CONFIG_CARRIED_MAX], *carried_at[CONFIG_CARRIED_MAX];
    struct order_proto orders[CONFIG_ORDERS_MAX];
    Diloco__Order *orders_at[CONFIG_ORDERS_MAX];
    Diloco__ConfigWord words[CONFIG_MEMBERS_MAX], *words_at[CONFIG_MEMBERS_MAX];
    Diloco__ConfigMark marks[CONFIG_MEMBERS_MAX], *marks_at[CONFIG_MEMBERS_MAX];
    Diloco__ConfigRetired retired[CONFIG_RETIRED_MAX], *retired_at[CONFIG_RETIRED_MAX];
    Diloco__ConfigEndorsement endorsements[CONFIG_ENDORSEMENTS_MAX], *endorsements_at[CONFIG_ENDORSEMENTS_MAX];
};

static bool map_empty(const struct shardmap *map)
{
    for (uint32_t slot = 0; slot < SHARDMAP_SLOTS; slot++)
        if (map->owner[slot] != SHARDMAP_NOBODY)
            return false;
    return true;
}

static void lists_to_proto(const struct config *config, struct rows *rows, Diloco__Config *proto)
{
    for (uint32_t i = 0; i < config->orders_count; i++)
        rows->orders_at[i] = order_to_proto(&config->orders[i], &rows->orders[i]);
    for (uint32_t i = 0; i < config->words_count; i++) {
        diloco__config_word__init(&rows->words[i]);
        rows->words[i].id = config->words[i].id;
        rows->words[i].signature = config_bytes_to_proto(config->words[i].signature, IDENT_SIGNATURE_BYTES);
        const struct config_member *member = config_member(config, config->words[i].id);
        if (member != NULL && config_has_next(member))
            rows->words[i].next_signature =
                config_bytes_to_proto(config->words[i].next_signature, IDENT_SIGNATURE_BYTES);
        rows->words_at[i] = &rows->words[i];
    }
    for (uint32_t i = 0; i < config->marks_count; i++) {
        diloco__config_mark__init(&rows->marks[i]);
        rows->marks[i].id = config->marks[i].id;
        rows->marks[i].number = config->marks[i].number;
        rows->marks[i].below = config->marks[i].below;
        rows->marks_at[i] = &rows->marks[i];
    }
    for (uint32_t i = 0; i < config->retired_count; i++) {
        diloco__config_retired__init(&rows->retired[i]);
        rows->retired[i].id = config->retired[i].id;
        rows->retired[i].key = config_bytes_to_proto(config->retired[i].key, IDENT_KEY_BYTES);
        rows->retired[i].revoked = config->retired[i].revoked;
        rows->retired[i].epoch = config->retired[i].epoch;
        rows->retired_at[i] = &rows->retired[i];
    }
    proto->n_retired = config->retired_count;
    proto->retired = rows->retired_at;
    for (uint32_t i = 0; i < config->endorsements_count; i++) {
        config_endorsement_to_proto(&config->endorsements[i], &rows->endorsements[i]);
        rows->endorsements_at[i] = &rows->endorsements[i];
    }
    proto->n_endorsements = config->endorsements_count;
    proto->endorsements = rows->endorsements_at;
    proto->n_orders = config->orders_count;
    proto->orders = rows->orders_at;
    proto->n_words = config->words_count;
    proto->words = rows->words_at;
    proto->n_marks = config->marks_count;
    proto->marks = rows->marks_at;
}

static void to_proto(const struct config *config, struct rows *rows, Diloco__Config *proto)
{
    diloco__config__init(proto);
    lists_to_proto(config, rows, proto);
    for (uint32_t i = 0; i < config->members_count; i++) {
        member_to_proto(&config->members[i], &rows->members[i]);
        rows->members_at[i] = &rows->members[i];
    }
    for (uint32_t i = 0; i < config->carried_count; i++) {
        config_carried_to_proto(&config->carried[i], &rows->carried[i]);
        rows->carried_at[i] = &rows->carried[i];
    }
    proto->nonce = config_bytes_to_proto(config->nonce, CONFIG_NONCE_BYTES);
    proto->epoch = config->epoch;
    proto->previous = config_bytes_to_proto(config->previous.byte, DIGEST_BYTES);
    proto->next_id = config->next_id;
    proto->steps = config->steps;
    proto->steps_before = config->steps_before;
    proto->paused = config->paused;
    proto->ballot = config->ballot;
    proto->founder = config->founder;
    proto->deal_horizon = config->deal.horizon;
    proto->deal_counted = config->deal.counted_step;
    proto->deal_step = config->deal.start.step;
    proto->deal_position = config->deal.start.position;
    proto->n_map = map_empty(&config->map) ? 0 : SHARDMAP_SLOTS;
    proto->map = (uint32_t *)(uintptr_t)config->map.owner;
    proto->n_members = config->members_count;
    proto->members = rows->members_at;
    proto->n_starts = config->starts_count;
    proto->starts = config->starts;
    proto->n_carried = config->carried_count;
    proto->carried = rows->carried_at;
}

static bool orders_fit(const struct config *config)
{
    bool fit = config->orders_count <= CONFIG_ORDERS_MAX && config->words_count <= CONFIG_MEMBERS_MAX &&
               config->marks_count <= CONFIG_MEMBERS_MAX && config->retired_count <= CONFIG_RETIRED_MAX &&
               config->endorsements_count <= CONFIG_ENDORSEMENTS_MAX;
    for (uint32_t i = 0; fit && i < config->orders_count; i++)
        fit = config->orders[i].approvals_count <= ORDER_APPROVALS_MAX &&
              memchr(config->orders[i].join.name, '\0', WIRE_NAME_BYTES) != NULL &&
              memchr(config->orders[i].join.word.address, '\0', ADDRESS_BYTES) != NULL;
    return fit;
}

static bool texts_end(const struct config *config)
{
    for (uint32_t i = 0; i < config->members_count; i++) {
        const struct config_member *member = &config->members[i];
        if (memchr(member->name, '\0', sizeof member->name) == NULL ||
            memchr(member->address, '\0', sizeof member->address) == NULL)
            return false;
    }
    return true;
}

static enum err check_lists(const struct config *config)
{
    if (config->members_count > CONFIG_MEMBERS_MAX || config->starts_count > CONFIG_FRAGMENTS_MAX ||
        config->carried_count > CONFIG_CARRIED_MAX || !texts_end(config) || !orders_fit(config))
        return err_set(ERR_ARG,
                       "a configuration of %" PRIu32 " members, %" PRIu32 " starts and %" PRIu32 " carried results",
                       config->members_count, config->starts_count, config->carried_count);
    return ERR_OK;
}

enum err config_packed_bytes(const struct config *config, size_t *bytes_count)
{
    struct rows *rows;
    Diloco__Config proto;
    TRY(check_lists(config));
    TRY(mem_new_unset(1, sizeof *rows, "a configuration being packed", &rows));
    to_proto(config, rows, &proto);
    *bytes_count = diloco__config__get_packed_size(&proto);
    mem_free(rows);
    return ERR_OK;
}

enum err config_pack(const struct config *config, uint8_t **bytes, size_t *bytes_count)
{
    struct rows *rows;
    Diloco__Config proto;
    TRY(check_lists(config));
    TRY(mem_new_unset(1, sizeof *rows, "a configuration being packed", &rows));
    to_proto(config, rows, &proto);
    *bytes_count = diloco__config__get_packed_size(&proto);
    enum err err = ERR_OK;
    if (*bytes_count > CONFIG_BYTES_MAX)
        err = err_set(ERR_ARG, "a configuration of %zu bytes, more than %d: too many members, or results to carry",
                      *bytes_count, CONFIG_BYTES_MAX);
    else
        err = mem_new_unset(*bytes_count, 1, "a packed configuration", bytes);
    if (err == ERR_OK)
        diloco__config__pack(&proto, *bytes);
    mem_free(rows);
    return err;
}

/* ---- unpack ---- */

static enum err check_counts(const Diloco__Config *proto)
{
    if (proto->n_members > CONFIG_MEMBERS_MAX || proto->n_starts > CONFIG_FRAGMENTS_MAX ||
        proto->n_carried > CONFIG_CARRIED_MAX)
        return err_set(ERR_PROTO, "a configuration of %zu members, %zu starts and %zu carried results",
                       proto->n_members, proto->n_starts, proto->n_carried);
    if (proto->n_orders > CONFIG_ORDERS_MAX || proto->n_words > CONFIG_MEMBERS_MAX ||
        proto->n_marks > CONFIG_MEMBERS_MAX || proto->n_retired > CONFIG_RETIRED_MAX)
        return err_set(ERR_PROTO, "a configuration with %zu orders, %zu words, %zu marks and %zu retired keys",
                       proto->n_orders, proto->n_words, proto->n_marks, proto->n_retired);
    if (proto->n_endorsements > CONFIG_ENDORSEMENTS_MAX)
        return err_set(ERR_PROTO, "a configuration with %zu endorsements", proto->n_endorsements);
    if (proto->n_map != 0 && proto->n_map != SHARDMAP_SLOTS)
        return err_set(ERR_PROTO, "a configuration whose map has %zu slots", proto->n_map);
    return ERR_OK;
}

static enum err new_array(size_t count, size_t size, const char *what, void *out)
{
    return count > 0 ? mem_new(count, size, what, out) : ERR_OK;
}

static enum err lists_from_proto(const Diloco__Config *proto, struct config *out)
{
    TRY(new_array(proto->n_orders, sizeof *out->orders, "a configuration's orders", &out->orders));
    out->orders_count = (uint32_t)proto->n_orders;
    for (size_t i = 0; i < proto->n_orders; i++)
        TRY(order_from_proto(proto->orders[i], &out->orders[i]));
    TRY(new_array(proto->n_words, sizeof *out->words, "a configuration's words", &out->words));
    out->words_count = (uint32_t)proto->n_words;
    for (size_t i = 0; i < proto->n_words; i++) {
        out->words[i].id = proto->words[i]->id;
        TRY(config_bytes_from_proto(&proto->words[i]->signature, "a word's signature", out->words[i].signature,
                                    IDENT_SIGNATURE_BYTES));
        if (proto->words[i]->next_signature.len > 0)
            TRY(config_bytes_from_proto(&proto->words[i]->next_signature, "a new key's signature",
                                        out->words[i].next_signature, IDENT_SIGNATURE_BYTES));
    }
    TRY(new_array(proto->n_marks, sizeof *out->marks, "a configuration's marks", &out->marks));
    out->marks_count = (uint32_t)proto->n_marks;
    for (size_t i = 0; i < proto->n_marks; i++)
        out->marks[i] = (struct config_mark){
            .id = proto->marks[i]->id, .number = proto->marks[i]->number, .below = proto->marks[i]->below};
    TRY(new_array(proto->n_retired, sizeof *out->retired, "a configuration's retired keys", &out->retired));
    out->retired_count = (uint32_t)proto->n_retired;
    for (size_t i = 0; i < proto->n_retired; i++) {
        out->retired[i].id = proto->retired[i]->id;
        out->retired[i].revoked = proto->retired[i]->revoked != 0;
        out->retired[i].epoch = proto->retired[i]->epoch;
        TRY(config_bytes_from_proto(&proto->retired[i]->key, "a retired key", out->retired[i].key, IDENT_KEY_BYTES));
    }
    TRY(new_array(proto->n_endorsements, sizeof *out->endorsements, "a configuration's endorsements",
                  &out->endorsements));
    out->endorsements_count = (uint32_t)proto->n_endorsements;
    for (size_t i = 0; i < proto->n_endorsements; i++)
        TRY(config_endorsement_from_proto(proto->endorsements[i], &out->endorsements[i]));
    return ERR_OK;
}

static enum err from_proto(const Diloco__Config *proto, struct config *out)
{
    TRY(check_counts(proto));
    TRY(lists_from_proto(proto, out));
    out->epoch = proto->epoch;
    out->next_id = proto->next_id;
    out->steps = proto->steps;
    out->steps_before = proto->steps_before;
    out->paused = proto->paused != 0;
    out->ballot = proto->ballot;
    out->founder = proto->founder;
    out->deal = (struct config_deal){.horizon = proto->deal_horizon,
                                     .counted_step = proto->deal_counted,
                                     .start = {proto->deal_step, proto->deal_position}};
    TRY(config_bytes_from_proto(&proto->nonce, "a configuration's nonce", out->nonce, CONFIG_NONCE_BYTES));
    TRY(config_bytes_from_proto(&proto->previous, "a configuration's previous digest", out->previous.byte,
                                DIGEST_BYTES));
    out->map = shardmap_empty();
    if (proto->n_map > 0)
        memcpy(out->map.owner, proto->map, sizeof out->map.owner);
    TRY(new_array(proto->n_members, sizeof *out->members, "a configuration's members", &out->members));
    out->members_count = (uint32_t)proto->n_members;
    for (size_t i = 0; i < proto->n_members; i++)
        TRY(member_from_proto(proto->members[i], &out->members[i]));
    TRY(new_array(proto->n_starts, sizeof *out->starts, "a configuration's starts", &out->starts));
    out->starts_count = (uint32_t)proto->n_starts;
    if (proto->n_starts > 0)
        memcpy(out->starts, proto->starts, proto->n_starts * sizeof *out->starts);
    TRY(new_array(proto->n_carried, sizeof *out->carried, "a configuration's carried results", &out->carried));
    out->carried_count = (uint32_t)proto->n_carried;
    for (size_t i = 0; i < proto->n_carried; i++)
        TRY(config_carried_from_proto(proto->carried[i], &out->carried[i]));
    return ERR_OK;
}

/* Whether the bytes are those that config_pack() makes of it. */
static enum err check_bytes(const struct config *config, const uint8_t *bytes, size_t bytes_count)
{
    uint8_t *again;
    size_t again_count;
    TRY(config_pack(config, &again, &again_count));
    bool same = again_count == bytes_count && memcmp(again, bytes, bytes_count) == 0;
    mem_free(again);
    return same ? ERR_OK : err_set(ERR_PROTO, "a configuration that is not packed in its one form");
}

enum err config_read(const uint8_t *bytes, size_t bytes_count, struct config *out)
{
    ProtobufCMessage *proto;
    memset(out, 0, sizeof *out);
    if (bytes_count > CONFIG_BYTES_MAX)
        return err_set(ERR_PROTO, "a configuration of %zu bytes, more than %d", bytes_count, CONFIG_BYTES_MAX);
    TRY(unpack_proto(&diloco__config__descriptor, "a configuration", bytes, bytes_count, &proto));
    enum err err = from_proto((const Diloco__Config *)proto, out);
    unpack_free(proto);
    TRY_OUT(err);
    TRY_OUT(check_bytes(out, bytes, bytes_count));
    TRY_OUT(config_check(out));
    TRY_OUT(config_deal_check(out));
out:
    if (err != ERR_OK)
        config_deinit(out);
    return err;
}

enum err config_unpack(const uint8_t *bytes, size_t bytes_count, struct config *out)
{
    TRY(config_read(bytes, bytes_count, out));
    enum err err = config_keys_check(out, NULL);
    if (err != ERR_OK)
        config_deinit(out);
    return err;
}
