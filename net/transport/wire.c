/* SPDX-License-Identifier: Apache-2.0 */
#include "net/transport/wire.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "net/transport/member_word_proto.h"
#include "net/transport/wire.pb-c.h"

_Static_assert((int)MEMBER_WORD_NONCE_BYTES == (int)WIRE_NONCE_BYTES, "one nonce");
_Static_assert((int)ADDRESS_BYTES == (int)WIRE_ADDRESS_BYTES, "one address");

#define HEADER_MAGIC 0x31434c44u /* "DLC1" */
enum { WORD_BITS = 64 };

/* ---- header: magic u32, version u8, type u8, reserved u16, run tag u64 ---- */

void wire_header_put(const struct wire_header *header, uint8_t *out)
{
    struct bytes_writer writer = bytes_writer_init(out, WIRE_HEADER_BYTES);
    bytes_put_u32(&writer, HEADER_MAGIC);
    bytes_put_u8(&writer, (uint8_t)header->version);
    bytes_put_u8(&writer, (uint8_t)header->type);
    bytes_put_u16(&writer, 0);
    bytes_put_u64(&writer, header->run_tag);
}

enum err wire_header_get(const void *frame, size_t bytes, struct wire_header *header)
{
    struct bytes_reader reader = bytes_reader_init(frame, bytes);
    if (bytes != WIRE_HEADER_BYTES)
        return err_set(ERR_PROTO, "a header of %zu bytes", bytes);
    if (bytes_get_u32(&reader) != HEADER_MAGIC)
        return err_set(ERR_PROTO, "not a diloco message");
    header->version = bytes_get_u8(&reader);
    header->type = bytes_get_u8(&reader);
    (void)bytes_get_u16(&reader);
    header->run_tag = bytes_get_u64(&reader);
    return ERR_OK;
}

uint64_t wire_run_tag(const uint8_t nonce[WIRE_NONCE_BYTES], const struct digest *run_id)
{
    struct digest_state state;
    digest_begin(&state);
    digest_add(&state, nonce, WIRE_NONCE_BYTES);
    digest_add(&state, run_id->byte, sizeof run_id->byte);
    struct digest digest = digest_end(&state);
    return digest_tag(&digest);
}

/* ---- small parts ---- */

static void key_to_proto(const struct wire_key *key, Diloco__ObjectKey *proto)
{
    diloco__object_key__init(proto);
    proto->kind = key->kind;
    proto->fragment = key->fragment;
    proto->version = key->version;
    proto->epoch = key->epoch;
    proto->owner = key->owner;
    proto->island = key->island;
    proto->first = key->first;
    proto->count = key->count;
}

static enum err check_key(const struct wire_key *key)
{
    if (key->kind < WIRE_CONTRIBUTION || key->kind >= WIRE_KINDS)
        return err_set(ERR_PROTO, "object of unknown kind %" PRIu32, key->kind);
    if (key->fragment >= WIRE_PLAN_FRAGMENTS_MAX)
        return err_set(ERR_PROTO, "object with fragment %" PRIu32 ", owner %" PRIu32 ", island %" PRIu32, key->fragment,
                       key->owner, key->island);
    /* One name for one object: what its kind leaves no choice in is fixed, so that equal keys mean equal objects. */
    bool range = key->count > 0 && key->count <= WIRE_LEAVES_MAX && key->first <= UINT32_MAX - key->count;
    bool canonical = key->kind == WIRE_LEAVES ? range : key->first == 0 && key->count == 0;
    if (!canonical)
        return err_set(ERR_PROTO, "object with leaves %" PRIu32 " and %" PRIu32 " on", key->first, key->count);
    if (key->kind == WIRE_RESULT)
        canonical = key->island == key->owner;
    else if (key->kind == WIRE_STATE || key->kind == WIRE_LEAVES)
        canonical = key->owner == 0 && key->epoch == 0;
    else if (key->kind == WIRE_PLAN)
        canonical = key->fragment == 0 && key->version == 0 && key->epoch == 0 && key->owner == 0 && key->island == 0;
    return canonical ? ERR_OK : err_set(ERR_PROTO, "object with a name that is not its own: %s", wire_key_text(key));
}

static enum err key_from_proto(const Diloco__ObjectKey *proto, struct wire_key *key)
{
    if (proto == NULL)
        return err_set(ERR_PROTO, "a message without its object key");
    *key = (struct wire_key){.kind = proto->kind,
                             .fragment = proto->fragment,
                             .version = proto->version,
                             .epoch = proto->epoch,
                             .owner = proto->owner,
                             .island = proto->island,
                             .first = proto->first,
                             .count = proto->count};
    return check_key(key);
}

static ProtobufCBinaryData binary_of(const struct digest *digest, bool known)
{
    return (ProtobufCBinaryData){.len = known ? DIGEST_BYTES : 0, .data = (uint8_t *)(uintptr_t)digest->byte};
}

static enum err digest_from(const ProtobufCBinaryData *data, const char *what, bool may_be_empty, struct digest *digest,
                            bool *known)
{
    *known = data->len == DIGEST_BYTES;
    if (*known)
        memcpy(digest->byte, data->data, DIGEST_BYTES);
    else
        memset(digest->byte, 0, DIGEST_BYTES);
    if (data->len != DIGEST_BYTES && !(may_be_empty && data->len == 0))
        return err_set(ERR_PROTO, "%s of %zu bytes", what, data->len);
    return ERR_OK;
}

static enum err text_from(const char *text, const char *what, char *out, size_t out_bytes)
{
    size_t bytes = strlen(text);
    if (bytes >= out_bytes)
        return err_set(ERR_PROTO, "%s of %zu bytes", what, bytes);
    /* Control characters would let a peer write into our log and terminal; bytes that are no UTF-8 are no JSON. */
    for (size_t i = 0; i < bytes; i++)
        out[i] = text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
    out[bytes] = '\0';
    return ERR_OK;
}

static enum err pack_checked(const ProtobufCMessage *proto, uint8_t *out, size_t *bytes)
{
    *bytes = protobuf_c_message_get_packed_size(proto);
    if (*bytes > WIRE_CONTROL_BYTES_MAX)
        return err_set(ERR_ARG, "a control message of %zu bytes", *bytes);
    protobuf_c_message_pack(proto, out);
    return ERR_OK;
}

/* ---- hello ---- */

static enum err pack_hello(const struct wire_hello *hello, uint8_t *out, size_t *bytes)
{
    Diloco__Hello proto = DILOCO__HELLO__INIT;
    Diloco__MemberWord word;
    proto.run_id = binary_of(&hello->run_id, true);
    proto.plan_id = binary_of(&hello->plan_id, hello->plan_known);
    proto.session = hello->session;
    proto.island = hello->island;
    proto.name = (char *)(uintptr_t)hello->name;
    proto.software = (char *)(uintptr_t)hello->software;
    proto.window_kib = hello->window_kib;
    member_word_to_proto(&hello->word, &word);
    proto.word = &word;
    return pack_checked(&proto.base, out, bytes);
}

static enum err check_hello(const Diloco__Hello *proto, struct wire_hello *hello)
{
    bool known;
    TRY(digest_from(&proto->run_id, "run_id", false, &hello->run_id, &known));
    TRY(digest_from(&proto->plan_id, "plan_id", true, &hello->plan_id, &hello->plan_known));
    hello->session = proto->session;
    hello->island = proto->island;
    hello->window_kib = proto->window_kib;
    if (hello->window_kib < WIRE_WINDOW_KIB_MIN || hello->window_kib > WIRE_WINDOW_KIB_MAX)
        return err_set(ERR_PROTO, "window of %" PRIu32 " KiB", hello->window_kib);
    TRY(member_word_from_proto(proto->word, &hello->word));
    TRY(text_from(proto->name, "name", hello->name, sizeof hello->name));
    return text_from(proto->software, "software", hello->software, sizeof hello->software);
}

/* ---- heartbeat ---- */

/* The memory of a heartbeat's lists while it is packed. */
struct beat_lists {
    Diloco__FragmentState rows[WIRE_FRAGMENTS_MAX];
    Diloco__FragmentState *rows_at[WIRE_FRAGMENTS_MAX];
    Diloco__Held held[WIRE_HELD_MAX];
    Diloco__Held *held_at[WIRE_HELD_MAX];
};

static void put_held(const struct wire_heartbeat *beat, struct beat_lists *lists)
{
    for (uint32_t k = 0; k < beat->held_count; k++) {
        diloco__held__init(&lists->held[k]);
        lists->held[k].owner = beat->held[k].owner;
        lists->held[k].tag.len = WIRE_TAG_BYTES;
        lists->held[k].tag.data = (uint8_t *)(uintptr_t)beat->held[k].tag;
        lists->held_at[k] = &lists->held[k];
    }
}

static enum err pack_heartbeat(const struct wire_heartbeat *beat, uint8_t *out, size_t *bytes)
{
    static _Thread_local struct beat_lists lists;
    Diloco__Heartbeat proto = DILOCO__HEARTBEAT__INIT;
    if (beat->fragments_count > WIRE_FRAGMENTS_MAX || beat->held_count > WIRE_HELD_MAX ||
        beat->silent_count > WIRE_MEMBERS_MAX)
        return err_set(ERR_ARG,
                       "a heartbeat with %" PRIu32 " fragments, %" PRIu32 " results and %" PRIu32 " silent ones",
                       beat->fragments_count, beat->held_count, beat->silent_count);
    put_held(beat, &lists);
    for (uint32_t i = 0; i < beat->fragments_count; i++) {
        const struct wire_fragment *from = &beat->fragments[i];
        Diloco__FragmentState *row = &lists.rows[i];
        if (from->held_first > beat->held_count || from->held_count > beat->held_count - from->held_first)
            return err_set(ERR_ARG, "a heartbeat whose fragment %" PRIu32 " holds what is not there", from->fragment);
        diloco__fragment_state__init(row);
        row->fragment = from->fragment;
        row->version = from->at.version;
        row->contributed = from->at.contributed;
        row->abstained = from->at.abstained;
        row->hash = binary_of(&from->at.hash, from->at.hash_known);
        row->repairing = from->at.repairing;
        row->signature.len = from->certified ? WIRE_SIGNATURE_BYTES : 0;
        row->signature.data = (uint8_t *)(uintptr_t)from->signature;
        row->n_held = from->held_count;
        row->held = lists.held_at + from->held_first;
        lists.rows_at[i] = row;
    }
    proto.sequence = beat->sequence;
    proto.echo = beat->echo;
    proto.echo_delay_ms = beat->echo_delay_ms;
    proto.taking_part = beat->taking_part;
    proto.step = beat->step;
    proto.trained = beat->trained;
    proto.tokens = beat->tokens;
    proto.loss = beat->loss;
    proto.tokens_per_s = beat->tokens_per_s;
    proto.trainer = beat->trainer;
    proto.session = beat->session;
    proto.epoch = beat->epoch;
    proto.incarnation = beat->incarnation;
    proto.in_doubt = beat->in_doubt;
    proto.disk_fails = beat->disk_fails;
    proto.undialled = beat->undialled;
    proto.unfinished = beat->unfinished;
    proto.n_silent = beat->silent_count;
    proto.silent = (uint32_t *)(uintptr_t)beat->silent;
    proto.n_fragments = beat->fragments_count;
    proto.fragments = lists.rows_at;
    return pack_checked(&proto.base, out, bytes);
}

static enum err take_held(const Diloco__FragmentState *row, struct wire_fragment *to, struct wire_heartbeat *beat)
{
    if (row->n_held > WIRE_HELD_OF_ONE_MAX || row->n_held > WIRE_HELD_MAX - beat->held_count)
        return err_set(ERR_PROTO, "a heartbeat with %zu results of fragment %" PRIu32, row->n_held, row->fragment);
    to->held_first = beat->held_count;
    to->held_count = (uint32_t)row->n_held;
    for (size_t k = 0; k < row->n_held; k++) {
        struct wire_held *held = &beat->held[beat->held_count++];
        if (row->held[k]->tag.len != WIRE_TAG_BYTES)
            return err_set(ERR_PROTO, "a result's tag of %zu bytes", row->held[k]->tag.len);
        held->owner = row->held[k]->owner;
        memcpy(held->tag, row->held[k]->tag.data, WIRE_TAG_BYTES);
    }
    return ERR_OK;
}

static enum err take_signature(const Diloco__FragmentState *row, struct wire_fragment *to)
{
    to->certified = row->signature.len > 0;
    if (to->certified && (row->signature.len != WIRE_SIGNATURE_BYTES || !to->at.hash_known))
        return err_set(ERR_PROTO, "a heartbeat that certifies fragment %" PRIu32 " with %zu bytes%s", row->fragment,
                       row->signature.len, to->at.hash_known ? "" : " and without a hash");
    if (to->certified)
        memcpy(to->signature, row->signature.data, WIRE_SIGNATURE_BYTES);
    else
        memset(to->signature, 0, WIRE_SIGNATURE_BYTES);
    return ERR_OK;
}

static enum err check_heartbeat(const Diloco__Heartbeat *proto, struct wire_heartbeat *beat)
{
    uint64_t seen[WIRE_PLAN_FRAGMENTS_MAX / WORD_BITS] = {0};
    if (proto->n_fragments > WIRE_FRAGMENTS_MAX)
        return err_set(ERR_PROTO, "a heartbeat with %zu fragments", proto->n_fragments);
    if (proto->n_silent > WIRE_MEMBERS_MAX)
        return err_set(ERR_PROTO, "a heartbeat with %zu silent members", proto->n_silent);
    if (proto->trainer >= WIRE_TRAINER_STATES)
        return err_set(ERR_PROTO, "trainer state %" PRIu32, proto->trainer);
    beat->sequence = proto->sequence;
    beat->echo = proto->echo;
    beat->echo_delay_ms = proto->echo_delay_ms;
    beat->taking_part = proto->taking_part;
    beat->step = proto->step;
    beat->trained = proto->trained;
    beat->tokens = proto->tokens;
    beat->loss = proto->loss;
    beat->tokens_per_s = proto->tokens_per_s;
    beat->trainer = proto->trainer;
    beat->session = proto->session;
    beat->epoch = proto->epoch;
    beat->incarnation = proto->incarnation;
    beat->in_doubt = proto->in_doubt;
    beat->disk_fails = proto->disk_fails;
    beat->undialled = proto->undialled;
    beat->unfinished = proto->unfinished;
    beat->silent_count = (uint32_t)proto->n_silent;
    if (proto->n_silent > 0)
        memcpy(beat->silent, proto->silent, proto->n_silent * sizeof *beat->silent);
    beat->held_count = 0;
    beat->fragments_count = (uint32_t)proto->n_fragments;
    for (uint32_t i = 0; i < beat->fragments_count; i++) {
        const Diloco__FragmentState *row = proto->fragments[i];
        struct wire_fragment *to = &beat->fragments[i];
        if (row->fragment >= WIRE_PLAN_FRAGMENTS_MAX)
            return err_set(ERR_PROTO, "fragment number %" PRIu32, row->fragment);
        uint64_t *word = &seen[row->fragment / WORD_BITS], bit = (uint64_t)1 << row->fragment % WORD_BITS;
        if ((*word & bit) != 0)
            return err_set(ERR_PROTO, "a heartbeat that speaks of fragment %" PRIu32 " twice", row->fragment);
        *word |= bit;
        to->fragment = row->fragment;
        to->at.version = row->version;
        to->at.contributed = row->contributed;
        to->at.abstained = row->abstained;
        to->at.repairing = row->repairing;
        TRY(take_held(row, to, beat));
        TRY(digest_from(&row->hash, "hash", true, &to->at.hash, &to->at.hash_known));
        TRY(take_signature(row, to));
    }
    return ERR_OK;
}

/* ---- dispatch ---- */

static enum err pack_with_key(const struct wire_message *message, uint8_t *out, size_t *bytes)
{
    Diloco__ObjectKey key;
    Diloco__Ack ack = DILOCO__ACK__INIT;
    Diloco__Done done = DILOCO__DONE__INIT;
    Diloco__Fetch fetch = DILOCO__FETCH__INIT;
    switch (message->type) {
    case WIRE_ACK:
        key_to_proto(&message->ack.key, &key);
        ack.key = &key;
        ack.have = message->ack.have;
        ack.ask = (uint32_t)message->ack.ask;
        ack.pass = message->ack.pass;
        ack.delay_us = message->ack.delay_us;
        return pack_checked(&ack.base, out, bytes);
    case WIRE_DONE:
        key_to_proto(&message->done.key, &key);
        done.key = &key;
        done.status = message->done.status;
        return pack_checked(&done.base, out, bytes);
    default:
        key_to_proto(&message->fetch.key, &key);
        fetch.key = &key;
        return pack_checked(&fetch.base, out, bytes);
    }
}

enum err wire_pack(const struct wire_message *message, uint8_t *out, size_t *bytes)
{
    Diloco__Bye bye = DILOCO__BYE__INIT;
    switch (message->type) {
    case WIRE_HELLO: return pack_hello(&message->hello, out, bytes);
    case WIRE_HEARTBEAT: return pack_heartbeat(&message->heartbeat, out, bytes);
    case WIRE_ACK:
    case WIRE_DONE:
    case WIRE_FETCH: return pack_with_key(message, out, bytes);
    case WIRE_BYE: bye.reason = (char *)(uintptr_t)message->bye.reason; return pack_checked(&bye.base, out, bytes);
    case WIRE_BULK_HELLO: *bytes = 0; return ERR_OK;
    case WIRE_CHUNK:
    case WIRE_JOIN:
    case WIRE_JOINED:
    case WIRE_REFUSAL:
    case WIRE_DIAL_REQUEST:
    case WIRE_DIAL_RESPONSE: break;
    }
    return err_set(ERR_ARG, "message type %d has no control payload", (int)message->type);
}

/* Takes the fields out of an unpacked protobuf; the ladder of checks per type. */
static enum err take_fields(uint32_t type, const ProtobufCMessage *proto, struct wire_message *message)
{
    switch (type) {
    case WIRE_HELLO: return check_hello((const Diloco__Hello *)proto, &message->hello);
    case WIRE_HEARTBEAT: return check_heartbeat((const Diloco__Heartbeat *)proto, &message->heartbeat);
    case WIRE_ACK: {
        const Diloco__Ack *ack = (const Diloco__Ack *)proto;
        message->ack.have = ack->have;
        message->ack.ask = (enum wire_ask)ack->ask;
        message->ack.pass = (uint8_t)ack->pass;
        message->ack.delay_us = ack->delay_us;
        if (ack->ask >= WIRE_ASKS || ack->pass > UINT8_MAX)
            return err_set(ERR_PROTO, "an ack that asks %" PRIu32 " of pass %" PRIu32, ack->ask, ack->pass);
        return key_from_proto(ack->key, &message->ack.key);
    }
    case WIRE_DONE: {
        const Diloco__Done *done = (const Diloco__Done *)proto;
        message->done.status = done->status;
        if (done->status < WIRE_RECEIVED || done->status > WIRE_GONE)
            return err_set(ERR_PROTO, "status %" PRIu32, done->status);
        return key_from_proto(done->key, &message->done.key);
    }
    case WIRE_FETCH: return key_from_proto(((const Diloco__Fetch *)proto)->key, &message->fetch.key);
    default: return text_from(((const Diloco__Bye *)proto)->reason, "reason", message->bye.reason, WIRE_REASON_BYTES);
    }
}

/*
 * What unpacking may take, whatever the bytes say: as much as the largest message that is within its limits, a
 * heartbeat of WIRE_FRAGMENTS_MAX rows, each with a hash, a signature and a place in the list, of WIRE_HELD_MAX
 * results, and of WIRE_MEMBERS_MAX silent members; and protobuf-c's own lists of fields.
 */
enum {
    UNPACK_ROW_BYTES = sizeof(Diloco__FragmentState) + DIGEST_BYTES + WIRE_SIGNATURE_BYTES + sizeof(void *),
    UNPACK_HELD_BYTES = sizeof(Diloco__Held) + WIRE_TAG_BYTES + sizeof(void *),
    UNPACK_BYTES_MAX = WIRE_FRAGMENTS_MAX * UNPACK_ROW_BYTES + WIRE_HELD_MAX * UNPACK_HELD_BYTES +
                       WIRE_MEMBERS_MAX * (int)sizeof(uint32_t) + (64 << 10)
};

/* Where it takes it from; taken by one message at a time, and left as a whole. */
struct arena {
    size_t used;
    _Alignas(max_align_t) uint8_t bytes[UNPACK_BYTES_MAX];
};

static void *take(void *user, size_t bytes)
{
    struct arena *arena = user;
    size_t rounded = (bytes + _Alignof(max_align_t) - 1) / _Alignof(max_align_t) * _Alignof(max_align_t);
    if (bytes > UNPACK_BYTES_MAX || rounded > UNPACK_BYTES_MAX - arena->used)
        return NULL;
    arena->used += rounded;
    return arena->bytes + arena->used - rounded;
}

static void give_back(void *user, void *memory)
{
    (void)user;
    (void)memory;
}

enum err wire_unpack(uint32_t type, const void *payload, size_t bytes, struct wire_message *message)
{
    static const ProtobufCMessageDescriptor *const descriptors[] = {
        [WIRE_HELLO] = &diloco__hello__descriptor, [WIRE_HEARTBEAT] = &diloco__heartbeat__descriptor,
        [WIRE_ACK] = &diloco__ack__descriptor,     [WIRE_DONE] = &diloco__done__descriptor,
        [WIRE_FETCH] = &diloco__fetch__descriptor, [WIRE_BYE] = &diloco__bye__descriptor,
    };
    message->type = (enum wire_type)type;
    if (type == WIRE_BULK_HELLO && bytes == 0)
        return ERR_OK;
    if (type < WIRE_HELLO || type > WIRE_BYE)
        return err_set(ERR_PROTO, "message of unknown type %" PRIu32, type);
    if (bytes > WIRE_CONTROL_BYTES_MAX)
        return err_set(ERR_PROTO, "control message of %zu bytes", bytes);
    static _Thread_local struct arena arena;
    ProtobufCAllocator allocator = {.alloc = take, .free = give_back, .allocator_data = &arena};
    arena.used = 0;
    ProtobufCMessage *proto = protobuf_c_message_unpack(descriptors[type], &allocator, bytes, payload);
    if (proto == NULL)
        return err_set(ERR_PROTO, "control message of type %" PRIu32 " is damaged, or holds too much", type);
    enum err err = take_fields(type, proto, message);
    protobuf_c_message_free_unpacked(proto, &allocator);
    return err;
}

/* ---- chunks: kind u8, pass u8, zero u16, fragment u32, version u64, epoch u64, owner u32, island u32, first u32,
 * count u32, total u64, offset u64, stamp u32 ---- */

void wire_chunk_put(const struct wire_chunk *chunk, uint8_t *out)
{
    struct bytes_writer writer = bytes_writer_init(out, WIRE_CHUNK_HEADER_BYTES);
    bytes_put_u8(&writer, (uint8_t)chunk->key.kind);
    bytes_put_u8(&writer, chunk->pass);
    bytes_put_u16(&writer, 0);
    bytes_put_u32(&writer, chunk->key.fragment);
    bytes_put_u64(&writer, chunk->key.version);
    bytes_put_u64(&writer, chunk->key.epoch);
    bytes_put_u32(&writer, chunk->key.owner);
    bytes_put_u32(&writer, chunk->key.island);
    bytes_put_u32(&writer, chunk->key.first);
    bytes_put_u32(&writer, chunk->key.count);
    bytes_put_u64(&writer, chunk->total);
    bytes_put_u64(&writer, chunk->offset);
    bytes_put_u32(&writer, chunk->stamp_us);
}

enum err wire_chunk_get(const void *payload, size_t bytes, struct wire_chunk *chunk)
{
    struct bytes_reader reader = bytes_reader_init(payload, bytes);
    chunk->key.kind = bytes_get_u8(&reader);
    chunk->pass = bytes_get_u8(&reader);
    unsigned zero = bytes_get_u16(&reader);
    chunk->key.fragment = bytes_get_u32(&reader);
    chunk->key.version = bytes_get_u64(&reader);
    chunk->key.epoch = bytes_get_u64(&reader);
    chunk->key.owner = bytes_get_u32(&reader);
    chunk->key.island = bytes_get_u32(&reader);
    chunk->key.first = bytes_get_u32(&reader);
    chunk->key.count = bytes_get_u32(&reader);
    chunk->total = bytes_get_u64(&reader);
    chunk->offset = bytes_get_u64(&reader);
    chunk->stamp_us = bytes_get_u32(&reader);
    if (reader.failed)
        return err_set(ERR_PROTO, "chunk of %zu bytes is shorter than its header", bytes);
    if (zero != 0)
        return err_set(ERR_PROTO, "chunk with %u where zero is due", zero);
    TRY(check_key(&chunk->key));
    chunk->bytes = bytes_left(&reader);
    chunk->data = bytes_get(&reader, chunk->bytes);
    if (chunk->total == 0 || chunk->bytes > WIRE_CHUNK_BYTES_MAX || chunk->offset > chunk->total ||
        chunk->bytes > chunk->total - chunk->offset)
        return err_set(ERR_PROTO, "chunk of %zu bytes at %" PRIu64 " of %" PRIu64, chunk->bytes, chunk->offset,
                       chunk->total);
    return ERR_OK;
}

/* ---- names ---- */

bool wire_is_epoch(uint32_t type)
{
    return type >= WIRE_PREPARE && type <= WIRE_EVIDENCE;
}

bool wire_is_dial(uint32_t type)
{
    return type == WIRE_DIAL_REQUEST || type == WIRE_DIAL_RESPONSE;
}

bool wire_key_equal(const struct wire_key *left, const struct wire_key *right)
{
    return left->kind == right->kind && left->fragment == right->fragment && left->version == right->version &&
           left->epoch == right->epoch && left->owner == right->owner && left->island == right->island &&
           left->first == right->first && left->count == right->count;
}

const char *wire_kind_name(uint32_t kind)
{
    static const char *const names[] = {"nothing", "contribution", "result", "state", "plan", "leaves"};
    return kind < WIRE_KINDS ? names[kind] : "unknown";
}

const char *wire_trainer_name(uint32_t trainer)
{
    static const char *const names[WIRE_TRAINER_STATES] = {
        [WIRE_TRAINER_NONE] = "none",         [WIRE_TRAINER_STARTING] = "starting",
        [WIRE_TRAINER_TRAINING] = "training", [WIRE_TRAINER_FINISHING] = "finishing",
        [WIRE_TRAINER_FINISHED] = "finished", [WIRE_TRAINER_FAILED] = "failed",
    };
    return trainer < WIRE_TRAINER_STATES ? names[trainer] : "unknown";
}

const char *wire_key_text(const struct wire_key *key)
{
    static _Thread_local char text[160];
    snprintf(text, sizeof text,
             "%s of fragment %" PRIu32 ", version %" PRIu64 ", epoch %" PRIu64 ", owner %" PRIu32 ", island %" PRIu32,
             wire_kind_name(key->kind), key->fragment, key->version, key->epoch, key->owner, key->island);
    return text;
}
